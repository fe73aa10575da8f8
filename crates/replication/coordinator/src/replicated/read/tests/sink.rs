//! A sink that writes down what it is shown, and checks the protocol.

use data::command::{Partitions, ReadCommand, ResumePosition, RingBound};
use data::{ColumnRef, RowRef};
use dist_testing::table::{STATIC, V, W};
use stdx::{ColumnId, Token};
use store::{Flow, Look, LookedAt, RowSink};

use replica::resumed;

/// One row as text: pk, ck or none for a partition with only a static row, static, v, w.
pub(super) type Found = (i32, Option<i32>, Option<String>, Option<String>, Option<String>);

pub(super) struct Collect {
    rows: Vec<Found>,
    stop_after: Option<usize>,
    per_partition: u32,
    /// From the command: the partition in which it resumes.
    resumed: Option<(Vec<u8>, u32)>,
    key: Option<Vec<u8>>,
    last_key: Option<(Token, Vec<u8>)>,
    static_value: Option<String>,
    in_partition: u32,
    any: bool,
    stopped: bool,
    pub(super) tombstones: u32,
    pub(super) refused: u32,
    pub(super) cut: Option<Cut>,
}

/// Where a sink stopped for its tombstones: key, clustering, and rows of the partition so far.
pub(super) type Cut = (Vec<u8>, Option<Vec<u8>>, u32);

fn text_of(row: RowRef<'_>, id: ColumnId) -> Option<String> {
    match row.column(id)? {
        ColumnRef::Simple(cell) => Some(String::from_utf8(cell.value.to_vec()).unwrap()),
        ColumnRef::Complex(_) => None,
    }
}

fn pk_of(key: &[u8]) -> i32 {
    i32::from_be_bytes(key.try_into().unwrap())
}

impl Collect {
    pub(super) fn new(
        command: &ReadCommand,
        stop_after: Option<usize>,
        per_partition: u32,
    ) -> Collect {
        let resumed = resumed(command).map(|(key, rows)| (key.to_vec(), rows));
        Collect {
            rows: Vec::new(),
            stop_after,
            per_partition,
            resumed,
            key: None,
            last_key: None,
            static_value: None,
            in_partition: 0,
            any: false,
            stopped: false,
            tombstones: u32::MAX,
            refused: u32::MAX,
            cut: None,
        }
    }

    fn flow(&mut self) -> Flow {
        if self.stop_after.is_some_and(|n| self.rows.len() >= n) {
            self.stopped = true;
            return Flow::Stop;
        }
        if self.in_partition >= self.per_partition { Flow::SkipPartition } else { Flow::Continue }
    }

    pub(super) fn finish(self) -> Vec<Found> {
        assert!(self.stopped || self.key.is_none(), "a partition was not ended");
        self.rows
    }
}

impl RowSink for Collect {
    fn partition(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        assert!(!self.stopped && self.key.is_none(), "a partition within another");
        assert_eq!(token, codec::token_of(key));
        let place = (token, key.to_vec());
        assert!(self.last_key.as_ref() < Some(&place), "partitions out of order or shown twice");
        self.last_key = Some(place);
        self.key = Some(key.to_vec());
        self.any = false;
        self.in_partition =
            self.resumed.as_ref().filter(|(k, _)| k == key).map_or(0, |(_, rows)| *rows);
        self.static_value = static_row.and_then(|r| text_of(r, STATIC));
        if self.in_partition >= self.per_partition { Flow::SkipPartition } else { Flow::Continue }
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        let key = self.key.as_ref().filter(|_| !self.stopped).expect("a row without a partition");
        let ck = data::clustering::components(clustering).next().unwrap().unwrap();
        let ck = i32::from_be_bytes(ck.try_into().unwrap());
        let (v, w) = (text_of(row, V), text_of(row, W));
        self.rows.push((pk_of(key), Some(ck), self.static_value.clone(), v, w));
        self.in_partition += 1;
        self.any = true;
        self.flow()
    }

    fn looked_at(&mut self, upto: LookedAt<'_>) -> Look {
        assert!(!self.stopped);
        if upto.tombstones > self.refused {
            self.stopped = true;
            return Look::Refuse;
        }
        if upto.scanned < self.tombstones {
            return Look::Continue;
        }
        let rows = match &self.resumed {
            // Also when it is over for this sink, which wants no more of it.
            _ if self.last_key.as_ref().is_some_and(|(_, key)| key == upto.key) => {
                self.in_partition
            }
            Some((key, rows)) if key == upto.key => *rows,
            _ => 0,
        };
        self.cut = Some((upto.key.to_vec(), upto.clustering.map(<[u8]>::to_vec), rows));
        self.stopped = true;
        Look::Stop
    }

    fn tombstones_per_look(&self) -> u32 {
        if self.refused == u32::MAX { self.tombstones } else { 1 }
    }

    fn partition_end(&mut self) -> Flow {
        let key = self.key.take().expect("the end of no partition");
        if self.any || self.in_partition > 0 {
            return Flow::Continue;
        }
        self.rows.push((pk_of(&key), None, self.static_value.clone(), None, None));
        self.in_partition = 0;
        self.flow()
    }
}

/// Returns the command that continues where a sink stopped for its tombstones; `None`: nothing
/// follows.
pub(super) fn behind(command: &ReadCommand, cut: &Cut) -> Option<ReadCommand> {
    let (key, clustering, rows_in_partition) = cut.clone();
    let mut next = command.clone();
    match &mut next.partitions {
        Partitions::Key(_) if clustering.is_none() => return None,
        Partitions::Key(_) => {}
        Partitions::Range(range) => {
            let after = clustering.is_none();
            range.start = RingBound::Key { token: codec::token_of(&key), key, after };
        }
    }
    let resume = |last| ResumePosition { clustering: Some(last), rows_in_partition };
    next.resume = clustering.map(resume);
    Some(next)
}

/// Returns the command that continues after the rows that were shown; `None` if none were.
pub(super) fn next_page(command: &ReadCommand, rows: &[Found]) -> Option<ReadCommand> {
    let (pk, ck, ..) = rows.last()?;
    let key = dist_testing::table::key(*pk);
    let here = rows.iter().rev().take_while(|r| r.0 == *pk).count();
    let before = resumed(command).filter(|(k, _)| *k == key).map_or(0, |(_, rows)| rows);
    let rows_in_partition = u32::try_from(here).unwrap() + before;
    behind(command, &(key, ck.map(dist_testing::table::clustering), rows_in_partition))
}
