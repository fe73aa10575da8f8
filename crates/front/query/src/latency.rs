//! Latencies of clients' requests on this shard: from the turn in which they arrived to their answer.
//!
//! One clock read begins a turn and one ends it, whatever the number of its requests; a request that
//! waits is measured for itself when it ends.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use smallvec::SmallVec;
use stdx::{FixedMap, Instant, TableId, Uuid};
use telemetry::{EstimatedHistogram, EstimatedSnapshot};

/// Most tables whose requests a shard measures: the first that were used since the start.
const TABLES_MAX: usize = 4_096;

/// Kinds of requests that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads of partitions.
    Read,
    /// Reads of token ranges.
    Range,
    /// Writes and batches.
    Write,
    /// Reads at a serial level.
    CasRead,
    /// Conditional writes and batches.
    CasWrite,
}

/// Tables that a request is of, by their numbers in [`Latencies`], which begin with 1.
/// A batch is measured for four of its tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// The only one of most requests; 0: none.
    first: u16,
    others: [u16; 3],
}

impl Touched {
    /// Each table once, and no more than there is room for.
    #[inline]
    fn add(&mut self, number: u16) {
        if self.first == 0 {
            self.first = number;
        } else if self.first != number {
            self.add_other(number);
        }
    }

    fn add_other(&mut self, number: u16) {
        for place in &mut self.others {
            if *place == 0 {
                *place = number;
            }
            if *place == number {
                return;
            }
        }
    }

    #[inline]
    fn for_each(self, mut with: impl FnMut(u16)) {
        if self.first != 0 {
            with(self.first);
        }
        for other in self.others {
            if other == 0 {
                return;
            }
            with(other);
        }
    }
}

/// A running request.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Kind of the request.
    pub kind: Kind,
    /// Tables that it is of.
    pub touched: Touched,
    /// Instant of its arrival.
    pub began: Instant,
}

/// Requests of one turn that ended in it.
#[derive(Debug, Default)]
pub struct Ended {
    reads: u64,
    ranges: u64,
    writes: u64,
    cas_reads: u64,
    cas_writes: u64,
    /// Number of requests by table and kind.
    of_tables: SmallVec<[(u16, Kind, u64); 4]>,
}

impl Ended {
    /// One ended.
    pub fn add(&mut self, kind: Kind, touched: Touched) {
        let counted = match kind {
            Kind::Read => &mut self.reads,
            Kind::Range => &mut self.ranges,
            Kind::Write => &mut self.writes,
            Kind::CasRead => &mut self.cas_reads,
            Kind::CasWrite => &mut self.cas_writes,
        };
        *counted += 1;
        touched.for_each(|number| match self.of_tables.last_mut() {
            Some((n, k, times)) if (*n, *k) == (number, kind) => *times += 1,
            _ => self.of_tables.push((number, kind, 1)),
        });
    }

    /// Returns true if no request ended.
    pub fn is_empty(&self) -> bool {
        self.reads + self.ranges + self.writes + self.cas_reads + self.cas_writes == 0
    }
}

/// The histograms of one shard.
pub struct Latencies {
    read: EstimatedHistogram,
    range: EstimatedHistogram,
    write: EstimatedHistogram,
    cas_read: EstimatedHistogram,
    cas_write: EstimatedHistogram,
    /// Kind of the request that is starting.
    running: Cell<Option<Kind>>,
    /// Tables that it is of.
    touched: Cell<Touched>,
    /// The table that was looked up last, and its number.
    last: Cell<(TableId, u16)>,
    tables: RefCell<Tables>,
}

/// Latencies of requests by table.
#[derive(Default)]
struct Tables {
    numbers: FixedMap<TableId, u16>,
    /// The first has number 1.
    all: Vec<OfTable>,
}

struct OfTable {
    id: TableId,
    reads: EstimatedHistogram,
    scans: EstimatedHistogram,
    writes: EstimatedHistogram,
}

/// Latencies of requests of a table to this shard: microseconds, in Cassandra's buckets. They count
/// like `coordinator_read_latency`, `…_scan_…` and `…_write_…` of its tables' metrics: serial reads
/// count as reads, conditional writes do not count as writes.
#[derive(Clone, Debug)]
pub struct TableLatencies {
    /// Reads of partitions.
    pub reads: EstimatedSnapshot,
    /// Reads of token ranges.
    pub scans: EstimatedSnapshot,
    /// Writes and batches; a batch counts once for each of the first four of its tables.
    pub writes: EstimatedSnapshot,
}

impl Latencies {
    pub(crate) fn new(shard: &telemetry::Shard) -> Latencies {
        let latency = |name, help| shard.latency(name, help, &[]);
        Latencies {
            read: latency("coordinator_read_latency_micros", "microseconds of reads by key"),
            range: latency("coordinator_range_latency_micros", "microseconds of reads of ranges"),
            write: latency("coordinator_write_latency_micros", "microseconds of writes"),
            cas_read: latency(
                "coordinator_cas_read_latency_micros",
                "microseconds of serial reads",
            ),
            cas_write: latency(
                "coordinator_cas_write_latency_micros",
                "microseconds of conditional writes",
            ),
            running: Cell::new(None),
            touched: Cell::default(),
            last: Cell::new((TableId(Uuid::nil()), 0)),
            tables: RefCell::default(),
        }
    }

    /// Sets the kind of the request that is starting; the last call counts.
    #[inline]
    pub(crate) fn note_kind(&self, kind: Kind) {
        self.running.set(Some(kind));
    }

    /// Notes a table of the request that is starting.
    #[inline]
    pub(crate) fn note_table(&self, id: TableId) {
        let (last, mut number) = self.last.get();
        if last != id {
            number = self.number_of(id);
            self.last.set((id, number));
        }
        let mut touched = self.touched.get();
        touched.add(number);
        self.touched.set(touched);
    }

    /// 0: there is no room for it.
    fn number_of(&self, id: TableId) -> u16 {
        let mut tables = self.tables.borrow_mut();
        if let Some(number) = tables.numbers.get(&id) {
            return *number;
        }
        let number = tables.all.len() + 1;
        let Some(number) = u16::try_from(number).ok().filter(|n| usize::from(*n) <= TABLES_MAX)
        else {
            return 0;
        };
        let new = EstimatedHistogram::default;
        tables.all.push(OfTable { id, reads: new(), scans: new(), writes: new() });
        tables.numbers.insert(id, number);
        number
    }

    /// Takes the kind and the tables of the request that just started; `None` for a request that is
    /// not measured.
    #[inline]
    pub fn take(&self) -> (Option<Kind>, Touched) {
        (self.running.take(), self.touched.take())
    }

    /// A request ended that took so long.
    pub fn record(&self, kind: Kind, touched: Touched, took: Duration) {
        self.record_times(kind, took, 1);
        touched.for_each(|number| self.record_of_table(number, kind, took, 1));
    }

    fn record_of_table(&self, number: u16, kind: Kind, took: Duration, times: u64) {
        let tables = self.tables.borrow();
        let Some(table) = tables.all.get(usize::from(number).wrapping_sub(1)) else { return };
        let histogram = match kind {
            Kind::Read | Kind::CasRead => &table.reads,
            Kind::Range => &table.scans,
            Kind::Write => &table.writes,
            Kind::CasWrite => return,
        };
        histogram.record_nanos_times(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), times);
    }

    /// Returns the latencies of each table.
    pub fn of_tables(&self) -> Vec<(TableId, TableLatencies)> {
        let of = |table: &OfTable| {
            let latencies = TableLatencies {
                reads: table.reads.snapshot(),
                scans: table.scans.snapshot(),
                writes: table.writes.snapshot(),
            };
            (table.id, latencies)
        };
        self.tables.borrow().all.iter().map(of).collect()
    }

    fn record_times(&self, kind: Kind, took: Duration, times: u64) {
        let histogram = match kind {
            Kind::Read => &self.read,
            Kind::Range => &self.range,
            Kind::Write => &self.write,
            Kind::CasRead => &self.cas_read,
            Kind::CasWrite => &self.cas_write,
        };
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        histogram.record_nanos_times(nanos, times);
    }

    /// Requests of one turn ended.
    pub fn record_turn(&self, ended: Ended, took: Duration) {
        let Ended { reads, ranges, writes, cas_reads, cas_writes, of_tables } = ended;
        for (number, kind, times) in of_tables {
            self.record_of_table(number, kind, took, times);
        }
        for (kind, times) in [
            (Kind::Read, reads),
            (Kind::Range, ranges),
            (Kind::Write, writes),
            (Kind::CasRead, cas_reads),
            (Kind::CasWrite, cas_writes),
        ] {
            if times > 0 {
                self.record_times(kind, took, times);
            }
        }
    }
}
