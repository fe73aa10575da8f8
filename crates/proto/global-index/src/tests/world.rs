//! A base table and its entries on three replicas each, writers that fail anywhere, messages that arrive late or never.

use std::collections::BTreeSet;

use data::{
    CellRef, ClusteringBuf, ColumnRef, DeletionTime, Liveness, MutationBuilder, MutationRef,
    RangeTombstoneRef, RowBuilder, RowRef, TableShape,
};
use index_format::MatchedRows;
use stdx::{DeletionSeconds, TableId, TimestampMicros, TtlSeconds, Uuid, WallMicros};
use testkit::Random;

use super::replicas::{OwnedRow, REPLICAS, Replicas};
use super::{V, W, index, table};
use crate::{
    EntryPage, FoundRow, GhostPolicy, GlobalIndex, GlobalScan, ScanBounds, ScanStep, delete_entry,
    entries_of,
};

const VALUES: &[&str; SIZE_MAX] = &["a", "b", "c"];
/// Most partitions, rows of each, and values of a world.
const SIZE_MAX: usize = 3;
const SECOND: i64 = 1_000_000;
const GC_GRACE: i64 = 600;
/// Messages are dropped this long before `gc_grace_seconds`: the skew of clocks of writer and reader, twice.
const HINT_LIFE: i64 = (GC_GRACE - 120) * SECOND;
const WRITE_TIMEOUT: i64 = 30 * SECOND;
const QUORUM: u32 = 2;

/// A defect that the property must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    None,
    /// Entries of rows that do not exist are deleted.
    DeleteOnAbsence,
    /// The base write is sent before its entries.
    IndexAfterBase,
    /// Entries of writes with a TTL do not expire.
    EntryWithoutTtl,
    /// Entries are not checked.
    SkipVerification,
    /// One slot for writes with and without TTL, with the write's timestamp.
    OneSlot,
    /// Entries have the write's timestamp even if it is old.
    OldTimestamp,
    /// Ghosts are deleted although rows that were read differ between replicas and are not repaired.
    NoReadRepair,
    /// Entries are acknowledged by one replica.
    WeakEntries,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Base,
    Entries,
}

struct Message {
    target: Target,
    replica: usize,
    bytes: Vec<u8>,
    sent: i64,
    /// Number of the write, and of its mutation, that it acknowledges.
    acknowledges: Option<(usize, usize)>,
}

struct Write {
    first: Vec<(Target, Vec<u8>)>,
    second: Vec<(Target, Vec<u8>)>,
    acknowledged: Vec<u32>,
    started: i64,
    is_over: bool,
}

#[derive(Default, Debug)]
pub(crate) struct Counts {
    pub(crate) matches: usize,
    pub(crate) ghosts: usize,
    pub(crate) deletions: usize,
}

pub(crate) struct World {
    random: Random,
    defect: Defect,
    index: GlobalIndex,
    base: Replicas,
    entries: Replicas,
    /// Small worlds meet more often in one row.
    partitions: usize,
    rows: usize,
    values: &'static [&'static str],
    /// Some clients use timestamps of the future. They shadow so much that other histories need worlds without them.
    has_future: bool,
    now: i64,
    messages: Vec<Message>,
    writes: Vec<Write>,
    /// Rows and values that were written without a TTL.
    lasting: BTreeSet<(Vec<u8>, Vec<u8>, Vec<u8>)>,
    pub(crate) counts: Counts,
}

pub(crate) fn key(n: i32) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

pub(crate) fn clustering(n: i32) -> Vec<u8> {
    ClusteringBuf::from_components([n.to_be_bytes().as_slice()]).0
}

impl World {
    pub(crate) fn new(seed: u64, defect: Defect) -> World {
        let index = index();
        let entry_shape = TableShape::for_table(index.entry_table());
        let mut random = Random::new(seed);
        let mut size = || 1 + random.below(SIZE_MAX);
        let (partitions, rows, values) = (size(), size(), &VALUES[..size()]);
        World {
            random,
            defect,
            partitions,
            rows,
            values,
            has_future: seed.is_multiple_of(3),
            index,
            base: Replicas::new(TableShape::for_table(&table())),
            entries: Replicas::new(entry_shape),
            now: 1_000_000 * SECOND,
            messages: Vec::new(),
            writes: Vec::new(),
            lasting: BTreeSet::new(),
            counts: Counts::default(),
        }
    }

    /// One random event. Returns what a read got wrong.
    pub(crate) fn event(&mut self) -> Result<(), String> {
        match self.random.below(20) {
            0..4 => self.begin_write(),
            4..12 => self.deliver(),
            12..15 => self.continue_write(),
            15 => self.now += self.random.below(20 * 1_000_000) as i64,
            16 if self.random.below(3) == 0 => {
                self.now += self.random.below(500 * 1_000_000) as i64;
            }
            17 => self.repair(),
            _ => {
                let value = *self.random.pick(self.values);
                return self.read(value);
            }
        }
        Ok(())
    }

    /// Delivers all messages, waits until all TTLs are over, and reads each value. Entries of writes with a TTL must be
    /// gone.
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        while !self.messages.is_empty() {
            self.deliver();
        }
        self.now += 400 * SECOND;
        for value in self.values {
            self.read(value)?;
            self.read(value)?;
        }
        let now = self.seconds();
        for value in self.entries.keys() {
            for (entry, _) in self.entries.live(&[0, 1, 2], &value, now) {
                let row = self.index.keys().row_of(&entry).unwrap();
                if !self.lasting.contains(&(value.clone(), row.key, row.clustering)) {
                    return Err(format!("an entry of {value:?} outlives its TTL"));
                }
            }
        }
        Ok(())
    }

    fn seconds(&self) -> DeletionSeconds {
        WallMicros(self.now).seconds()
    }

    /// A clock of a coordinator.
    fn skewed(&mut self) -> WallMicros {
        WallMicros(self.now + self.random.below(30 * 1_000_000) as i64 - 15 * SECOND)
    }

    fn timestamp(&mut self, clock: WallMicros) -> TimestampMicros {
        let shift = match self.random.below(12) {
            0 | 1 => -(self.random.below(2_000) as i64),
            2 | 3 if self.has_future => self.random.below(2_000) as i64,
            _ => 0,
        };
        let mut at = clock.0 + shift * SECOND;
        if self.random.below(4) == 0 {
            at -= at.rem_euclid(20 * SECOND);
        }
        TimestampMicros(at)
    }

    fn begin_write(&mut self) {
        let clock = self.skewed();
        let at = self.timestamp(clock);
        let pk = self.random.below(self.partitions) as i32;
        let ttl = match self.random.below(3) {
            0 => Some(5 + self.random.below(300) as i32),
            _ => None,
        };
        let kind = self.random.below(14);
        let ck = self.random.below(self.rows) as i32;
        let base = match kind {
            0..8 | 13 => {
                let all = 0..self.rows as i32;
                let rows = if kind == 13 { all.collect() } else { vec![ck] };
                let values = self.values;
                let rows: Vec<(i32, Vec<u8>)> =
                    rows.into_iter().map(|row| (row, (*self.random.pick(values)).into())).collect();
                if ttl.is_none() {
                    for (ck, value) in &rows {
                        self.lasting.insert((value.clone(), key(pk), clustering(*ck)));
                    }
                }
                set(pk, &rows, kind < 4, at, ttl, clock)
            }
            8 => other_column(pk, ck, at),
            _ => delete(kind, pk, ck, DeletionTime { timestamp: at, local: clock.seconds() }),
        };
        let entries = self.make_entries(&base, at, clock);
        let (mut first, mut second) = (entries, vec![(Target::Base, base)]);
        if self.defect == Defect::IndexAfterBase {
            std::mem::swap(&mut first, &mut second);
        }
        let acknowledged = vec![0; first.len()];
        let number = self.writes.len();
        for (mutation, (target, bytes)) in first.iter().enumerate() {
            self.send(*target, bytes, Some((number, mutation)));
        }
        let started = self.now;
        self.writes.push(Write { first, second, acknowledged, started, is_over: false });
    }

    fn make_entries(
        &mut self,
        base: &[u8],
        at: TimestampMicros,
        clock: WallMicros,
    ) -> Vec<(Target, Vec<u8>)> {
        let lasting;
        let mutation = match self.defect {
            Defect::EntryWithoutTtl => {
                lasting = without_ttl(base);
                MutationRef::open(&lasting).unwrap()
            }
            _ => MutationRef::open(base).unwrap(),
        };
        let clock = if self.defect == Defect::OldTimestamp { WallMicros(i64::MIN) } else { clock };
        let entries = entries_of(&self.index, &mutation, clock).unwrap();
        let expires = self.index.expires_column();
        entries
            .into_iter()
            .map(|entry| match self.defect {
                Defect::OneSlot => (Target::Entries, in_one_slot(&entry.bytes, at, expires)),
                _ => (Target::Entries, entry.bytes),
            })
            .collect()
    }

    /// Sends a mutation to the replicas; some messages are lost.
    fn send(&mut self, target: Target, bytes: &[u8], acknowledges: Option<(usize, usize)>) {
        for replica in 0..REPLICAS {
            if self.random.below(6) != 0 {
                let (bytes, sent) = (bytes.to_vec(), self.now);
                self.messages.push(Message { target, replica, bytes, sent, acknowledges });
            }
        }
    }

    fn deliver(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let at = self.random.below(self.messages.len());
        let message = self.messages.swap_remove(at);
        if self.now - message.sent > HINT_LIFE {
            return;
        }
        match message.target {
            Target::Base => self.base.apply(message.replica, &message.bytes),
            Target::Entries => self.entries.apply(message.replica, &message.bytes),
        }
        if let Some((write, mutation)) = message.acknowledges {
            self.writes[write].acknowledged[mutation] += 1;
        }
    }

    /// Sends the second part of a write whose first part is acknowledged. A coordinator may also fail before it.
    fn continue_write(&mut self) {
        let needed = if self.defect == Defect::WeakEntries { 1 } else { QUORUM };
        let now = self.now;
        let is_ready = |write: &Write| {
            !write.is_over
                && now - write.started < WRITE_TIMEOUT
                && write.acknowledged.iter().all(|count| *count >= needed)
        };
        let ready: Vec<usize> =
            (0..self.writes.len()).filter(|number| is_ready(&self.writes[*number])).collect();
        if ready.is_empty() {
            return;
        }
        let number = *self.random.pick(&ready);
        self.writes[number].is_over = true;
        if self.random.below(8) == 0 {
            return;
        }
        for (target, bytes) in std::mem::take(&mut self.writes[number].second) {
            self.send(target, &bytes, None);
        }
        self.writes[number].first.clear();
    }

    /// Repairs a table or both, and purges tombstones. Hints that are too old are dropped first.
    fn repair(&mut self) {
        let now = self.now;
        self.messages.retain(|message| now - message.sent <= HINT_LIFE);
        let seconds = self.seconds();
        let gc_before = DeletionSeconds(seconds.0 - GC_GRACE);
        let which = self.random.below(6);
        if which < 2 {
            self.base.repair_and_purge(seconds, gc_before);
        }
        if which == 0 || which == 2 {
            self.entries.repair_and_purge(seconds, gc_before);
        }
    }

    fn quorum(&mut self) -> [usize; 2] {
        let out = self.random.below(REPLICAS);
        [(out + 1) % REPLICAS, (out + 2) % REPLICAS]
    }

    /// Rows with a value, as a filter over quorums of the partitions sees them.
    fn filter(&self, value: &str, quorums: &[[usize; 2]]) -> BTreeSet<(i32, i32)> {
        let mut rows = BTreeSet::new();
        for pk in 0..self.partitions as i32 {
            for ck in 0..self.rows as i32 {
                let read = self.base.read(&quorums[pk as usize], &key(pk), &clustering(ck));
                let column = read.row.as_deref().and_then(|row| RowRef::trusted(row).column(V));
                if let Some(ColumnRef::Simple(cell)) = column
                    && cell.is_live(self.seconds())
                    && cell.value == value.as_bytes()
                {
                    rows.insert((pk, ck));
                }
            }
        }
        rows
    }

    fn read(&mut self, value: &str) -> Result<(), String> {
        let quorums: Vec<[usize; 2]> = (0..self.partitions).map(|_| self.quorum()).collect();
        let expected = self.filter(value, &quorums);
        let clock = self.skewed();
        let mut found: Vec<(i32, i32)> = Vec::new();
        let mut after = None;
        'scans: loop {
            let bounds = ScanBounds {
                page: 1 + self.random.below(4) as u32,
                examined: 1 + self.random.below(12) as u32,
            };
            let policy = GhostPolicy::Delete;
            let mut scan = GlobalScan::new(value.as_bytes(), after.take(), bounds, policy);
            loop {
                match scan.step(&self.index) {
                    ScanStep::Done => break 'scans,
                    ScanStep::Bound(position) => {
                        after = Some(position);
                        break;
                    }
                    ScanStep::Entries { partition, after, limit } => {
                        let page = self.entry_page(&partition, after.as_deref(), limit);
                        scan.entries(page).map_err(|e| e.to_string())?;
                    }
                    ScanStep::Rows(partitions) => {
                        self.check_rows(
                            value,
                            &mut scan,
                            &partitions,
                            &quorums,
                            clock,
                            &mut found,
                        )?;
                    }
                }
            }
        }
        let unique: BTreeSet<(i32, i32)> = found.iter().copied().collect();
        if unique.len() != found.len() {
            return Err(format!("{value}: a row twice in {found:?}"));
        }
        if unique != expected {
            return Err(format!("{value}: index {unique:?}, filter {expected:?}"));
        }
        self.counts.matches += unique.len();
        Ok(())
    }

    fn entry_page(&mut self, partition: &[u8], after: Option<&[u8]>, limit: u32) -> EntryPage {
        let of = self.quorum();
        let rows = self.entries.live(&of, partition, self.seconds());
        let keys = self.index.keys();
        let is_after = |row: &&(Vec<u8>, Vec<u8>)| {
            after.is_none_or(|after| keys.compare(after, &row.0).is_lt())
        };
        let left: Vec<_> = rows.iter().filter(is_after).collect();
        // Pages may end early.
        let count = 1 + self.random.below(limit as usize);
        let page = left.iter().take(count);
        let end = (left.len() > count).then(|| left[count - 1].0.clone());
        let rows = page.map(|(name, row)| (name.as_slice(), RowRef::trusted(row)));
        EntryPage::read(&self.index, after, rows, end, self.seconds()).unwrap()
    }

    fn check_rows(
        &mut self,
        value: &str,
        scan: &mut GlobalScan,
        partitions: &[index_format::MatchedPartition],
        quorums: &[[usize; 2]],
        clock: WallMicros,
        found: &mut Vec<(i32, i32)>,
    ) -> Result<(), String> {
        let mut read: Vec<(Vec<u8>, Vec<u8>, OwnedRow)> = Vec::new();
        for partition in partitions {
            let pk = i32::from_be_bytes(partition.key.as_slice().try_into().unwrap());
            let MatchedRows::Rows(rows) = &partition.rows else { unreachable!() };
            for name in rows {
                let of = &quorums[pk as usize];
                let row = self.base.read(of, &partition.key, name);
                if self.defect != Defect::NoReadRepair {
                    self.base.read_repair(of, &partition.key, name, &row);
                }
                read.push((partition.key.clone(), name.clone(), row));
            }
        }
        // Rows of which nothing exists may be left out of an answer.
        let keeps = self.random.below(2) == 0;
        let rows: Vec<FoundRow<'_>> = read
            .iter()
            .filter(|(_, _, row)| keeps || row.row.is_some() || !row.covering.is_live())
            .map(|(key, clustering, row)| FoundRow { key, clustering, base: row.as_base() })
            .collect();
        let ttl_clock = self.seconds();
        let checked = scan.rows(&self.index, &rows, ttl_clock, clock).map_err(|e| e.to_string())?;
        self.counts.ghosts += checked.ghosts as usize;
        self.counts.deletions += checked.deletions.len();
        for deletion in &checked.deletions {
            self.send(Target::Entries, deletion, None);
        }
        let place = |key: &[u8], row: &[u8]| {
            let pk = i32::from_be_bytes(key.try_into().unwrap());
            (pk, (0..SIZE_MAX as i32).find(|ck| clustering(*ck) == row).unwrap())
        };
        match self.defect {
            Defect::SkipVerification => {
                found.extend(read.iter().map(|(key, row, _)| place(key, row)));
            }
            _ => found.extend(checked.matches.iter().map(|e| place(&e.row.key, &e.row.clustering))),
        }
        if self.defect == Defect::DeleteOnAbsence {
            self.delete_absent(value, &read, clock);
        }
        Ok(())
    }

    fn delete_absent(
        &mut self,
        value: &str,
        read: &[(Vec<u8>, Vec<u8>, OwnedRow)],
        now: WallMicros,
    ) {
        for (key, row, base) in read {
            if base.row.is_some() {
                continue;
            }
            let name = self.index.keys().entry_of(codec::token_of(key), key, row).unwrap();
            let merged = self.entries.read(&[0, 1, 2], value.as_bytes(), &name);
            let Some(merged) = merged.row else { continue };
            let at = RowRef::trusted(&merged).liveness().timestamp;
            let row = self.index.keys().row_of(&name).unwrap();
            let entry = crate::Entry { clustering: name, row, lasting: Some(at) };
            let deletion = delete_entry(&self.index, value.as_bytes(), &entry, at, now);
            self.send(Target::Entries, &deletion, None);
        }
    }
}

fn base_table() -> TableId {
    TableId(Uuid::from_u128(1))
}

/// INSERT or UPDATE of rows of one partition.
fn set(
    pk: i32,
    values: &[(i32, Vec<u8>)],
    inserts: bool,
    at: TimestampMicros,
    ttl: Option<i32>,
    clock: WallMicros,
) -> Vec<u8> {
    let times =
        ttl.map(|ttl| (TtlSeconds(ttl), DeletionSeconds(clock.seconds().0 + i64::from(ttl))));
    let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for (ck, value) in values {
        let liveness = match times {
            _ if !inserts => Liveness::NONE,
            Some((ttl, expires_at)) => Liveness { timestamp: at, ttl, expires_at },
            None => Liveness::new(at),
        };
        let cell = match times {
            Some((ttl, local)) => CellRef::expiring(at, ttl, local, value),
            None => CellRef::live(at, value),
        };
        let mut row = Vec::new();
        let mut builder = RowBuilder::new(&mut row, liveness, DeletionTime::LIVE, at);
        builder.cell(V, &cell);
        builder.finish();
        rows.push((clustering(*ck), row));
    }
    encode(pk, |builder| {
        builder.rows(rows.iter().map(|(name, row)| (name.as_slice(), RowRef::trusted(row))));
    })
}

fn other_column(pk: i32, ck: i32, at: TimestampMicros) -> Vec<u8> {
    let mut row = Vec::new();
    let mut builder = RowBuilder::new(&mut row, Liveness::NONE, DeletionTime::LIVE, at);
    builder.cell(W, &CellRef::live(at, b"w"));
    builder.finish();
    encode(pk, |builder| {
        builder.rows([(clustering(ck).as_slice(), RowRef::trusted(&row))].into_iter());
    })
}

/// Deletion of a cell (9), a row (10), a partition (11) or a range (12).
fn delete(kind: usize, pk: i32, ck: i32, deletion: DeletionTime) -> Vec<u8> {
    let name = clustering(ck);
    let mut row = Vec::new();
    let of_row = if kind == 10 { deletion } else { DeletionTime::LIVE };
    let mut builder = RowBuilder::new(&mut row, Liveness::NONE, of_row, deletion.timestamp);
    if kind == 9 {
        builder.cell(V, &CellRef::tombstone(deletion.timestamp, deletion.local));
    }
    builder.finish();
    encode(pk, |builder| match kind {
        9 | 10 => builder.rows([(name.as_slice(), RowRef::trusted(&row))].into_iter()),
        11 => builder.deletion(deletion),
        _ => {
            let start = data::BoundRef { prefix: &name, after: false };
            let range = RangeTombstoneRef { start, end: data::BoundRef::TOP, deletion };
            builder.range_tombstones([range].into_iter());
        }
    })
}

fn encode(pk: i32, fill: impl FnOnce(&mut MutationBuilder<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut builder = MutationBuilder::new(&mut bytes, base_table(), 1, &key(pk));
    fill(&mut builder);
    builder.finish();
    bytes
}

/// The mutation with its indexed cells as if they had no TTL.
fn without_ttl(base: &[u8]) -> Vec<u8> {
    let mutation = MutationRef::open(base).unwrap();
    let mut rows = Vec::new();
    for (name, row) in mutation.rows() {
        let Some(ColumnRef::Simple(cell)) = row.column(V) else { continue };
        if cell.is_tombstone() {
            continue;
        }
        let mut out = Vec::new();
        let at = cell.timestamp;
        let mut builder = RowBuilder::new(&mut out, Liveness::NONE, DeletionTime::LIVE, at);
        builder.cell(V, &CellRef::live(at, cell.value));
        builder.finish();
        rows.push((name, out));
    }
    let pk = i32::from_be_bytes(mutation.key.try_into().unwrap());
    encode(pk, |builder| {
        builder.rows(rows.iter().map(|(name, row)| (*name, RowRef::trusted(row))));
    })
}

/// The entries with the write's timestamp and TTL as the liveness of their rows.
fn in_one_slot(entry: &[u8], at: TimestampMicros, expires: stdx::ColumnId) -> Vec<u8> {
    let mutation = MutationRef::open(entry).unwrap();
    let mut rows = Vec::new();
    for (name, row) in mutation.rows() {
        let liveness = match row.column(expires) {
            Some(ColumnRef::Simple(cell)) => {
                Liveness { timestamp: at, ttl: cell.ttl, expires_at: cell.local }
            }
            _ => row.liveness(),
        };
        let mut out = Vec::new();
        RowBuilder::new(&mut out, liveness, DeletionTime::LIVE, at).finish();
        rows.push((name, out));
    }
    let mut bytes = Vec::new();
    let mut builder = MutationBuilder::new(&mut bytes, mutation.table, 1, mutation.key);
    builder.rows(rows.iter().map(|(name, row)| (*name, RowRef::trusted(row))));
    builder.finish();
    bytes
}
