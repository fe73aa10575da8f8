//! Replicas of one table: merged rows and deletions in memory.

use std::collections::{BTreeMap, BTreeSet};

use data::tombstones::BoundBuf;
use data::{
    BoundRef, DeletionTime, Keep, Merged, MutationRef, Purge, RowRef, TableShape, merge_rows,
};
use stdx::{DeletionSeconds, TimestampMicros};

use crate::BaseRow;

pub(crate) const REPLICAS: usize = 3;

#[derive(Clone)]
struct Range {
    start: BoundBuf,
    end: BoundBuf,
    deletion: DeletionTime,
}

#[derive(Clone)]
struct Partition {
    deletion: DeletionTime,
    ranges: Vec<Range>,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Partition {
    fn new() -> Partition {
        Partition { deletion: DeletionTime::LIVE, ranges: Vec::new(), rows: BTreeMap::new() }
    }
}

/// All replicas of a table.
pub(crate) struct Replicas {
    shape: TableShape,
    replicas: Vec<BTreeMap<Vec<u8>, Partition>>,
}

/// A row as some replicas have it together.
#[derive(Clone)]
pub(crate) struct OwnedRow {
    pub(crate) covering: DeletionTime,
    pub(crate) row: Option<Vec<u8>>,
}

impl OwnedRow {
    pub(crate) fn as_base(&self) -> BaseRow<'_> {
        BaseRow { covering: self.covering, row: self.row.as_deref().map(RowRef::trusted) }
    }
}

impl Replicas {
    pub(crate) fn new(shape: TableShape) -> Replicas {
        Replicas { shape, replicas: vec![BTreeMap::new(); REPLICAS] }
    }

    fn put_row(&mut self, replica: usize, key: &[u8], clustering: &[u8], row: RowRef<'_>) {
        let partition = self.replicas[replica].entry(key.to_vec()).or_insert_with(Partition::new);
        let merged = merge(
            &self.shape,
            &[partition.rows.get(clustering).map(Vec::as_slice), Some(row.bytes())],
            DeletionTime::LIVE,
            Keep::All,
        );
        merged.and_then(|merged| partition.rows.insert(clustering.to_vec(), merged));
    }

    fn put_range(&mut self, replica: usize, key: &[u8], range: Range) {
        let partition = self.replicas[replica].entry(key.to_vec()).or_insert_with(Partition::new);
        let is_known = |known: &Range| {
            known.start == range.start && known.end == range.end && known.deletion == range.deletion
        };
        if !partition.ranges.iter().any(is_known) {
            partition.ranges.push(range);
        }
    }

    pub(crate) fn apply(&mut self, replica: usize, bytes: &[u8]) {
        let mutation = MutationRef::open(bytes).unwrap();
        let key = mutation.key;
        let partition = self.replicas[replica].entry(key.to_vec()).or_insert_with(Partition::new);
        partition.deletion = partition.deletion.max(mutation.deletion);
        for t in mutation.range_tombstones() {
            let (start, end) = (BoundBuf::new(t.start), BoundBuf::new(t.end));
            self.put_range(replica, key, Range { start, end, deletion: t.deletion });
        }
        for (clustering, row) in mutation.rows() {
            self.put_row(replica, key, clustering, row);
        }
    }

    /// The row as these replicas have it together, tombstones included.
    pub(crate) fn read(&self, of: &[usize], key: &[u8], clustering: &[u8]) -> OwnedRow {
        let mut covering = DeletionTime::LIVE;
        let mut rows = Vec::new();
        for partition in of.iter().filter_map(|r| self.replicas[*r].get(key)) {
            covering = covering.max(self.covering(partition, clustering));
            rows.push(partition.rows.get(clustering).map(Vec::as_slice));
        }
        OwnedRow { covering, row: merge(&self.shape, &rows, covering, Keep::All) }
    }

    fn covering(&self, partition: &Partition, clustering: &[u8]) -> DeletionTime {
        let order = self.shape.clustering();
        let covers = |range: &&Range| {
            order.compare_to_bound(clustering, range.start.as_bound()).is_gt()
                && order.compare_to_bound(clustering, range.end.as_bound()).is_lt()
        };
        let ranges = partition.ranges.iter().filter(covers);
        ranges.fold(partition.deletion, |all, range| all.max(range.deletion))
    }

    /// Writes what was read to the replicas that it was read from.
    pub(crate) fn read_repair(
        &mut self,
        of: &[usize],
        key: &[u8],
        clustering: &[u8],
        read: &OwnedRow,
    ) {
        for replica in of {
            if !read.covering.is_live() {
                let start = BoundBuf::new(BoundRef { prefix: clustering, after: false });
                let end = BoundBuf::new(BoundRef { prefix: clustering, after: true });
                self.put_range(*replica, key, Range { start, end, deletion: read.covering });
            }
            if let Some(row) = &read.row {
                self.put_row(*replica, key, clustering, RowRef::trusted(row));
            }
        }
    }

    /// Live rows of a partition, in clustering order.
    pub(crate) fn live(
        &self,
        of: &[usize],
        key: &[u8],
        now: DeletionSeconds,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let partitions = of.iter().filter_map(|r| self.replicas[*r].get(key));
        let names: BTreeSet<Vec<u8>> =
            partitions.flat_map(|partition| partition.rows.keys().cloned()).collect();
        let mut rows: Vec<_> = names
            .into_iter()
            .filter_map(|name| {
                let row = self.read(of, key, &name).row?;
                let live = Keep::Live { now };
                let live = merge(&self.shape, &[Some(&row)], DeletionTime::LIVE, live)?;
                RowRef::trusted(&live).has_live_data(now).then_some((name, live))
            })
            .collect();
        rows.sort_by(|(a, _), (b, _)| self.shape.clustering().compare(a, b));
        rows
    }

    /// Repairs all replicas, then purges tombstones made before `gc_before`.
    pub(crate) fn repair_and_purge(&mut self, now: DeletionSeconds, gc_before: DeletionSeconds) {
        let keys: BTreeSet<Vec<u8>> =
            self.replicas.iter().flat_map(|replica| replica.keys().cloned()).collect();
        let all: Vec<usize> = (0..REPLICAS).collect();
        let purge = Purge { now, gc_before, timestamp_below: TimestampMicros(i64::MAX) };
        for key in keys {
            let mut whole = Partition::new();
            let partitions: Vec<&Partition> =
                self.replicas.iter().filter_map(|replica| replica.get(&key)).collect();
            for partition in &partitions {
                whole.deletion = whole.deletion.max(partition.deletion);
                whole.ranges.extend(partition.ranges.iter().cloned());
                whole.rows.extend(partition.rows.keys().map(|name| (name.clone(), Vec::new())));
            }
            let names: Vec<Vec<u8>> = whole.rows.keys().cloned().collect();
            for name in names {
                let read = self.read(&all, &key, &name);
                let kept = read.row.and_then(|row| {
                    merge(&self.shape, &[Some(&row)], DeletionTime::LIVE, Keep::Purge(purge))
                });
                match kept {
                    Some(row) => whole.rows.insert(name, row),
                    None => whole.rows.remove(&name),
                };
            }
            whole.ranges.retain(|range| !purge.drops_deletion(&range.deletion));
            if purge.drops_deletion(&whole.deletion) {
                whole.deletion = DeletionTime::LIVE;
            }
            for replica in &mut self.replicas {
                replica.insert(key.clone(), whole.clone());
            }
        }
    }

    pub(crate) fn keys(&self) -> BTreeSet<Vec<u8>> {
        self.replicas.iter().flat_map(|replica| replica.keys().cloned()).collect()
    }
}

fn merge(
    shape: &TableShape,
    rows: &[Option<&[u8]>],
    covering: DeletionTime,
    keep: Keep,
) -> Option<Vec<u8>> {
    let rows: Vec<RowRef<'_>> = rows.iter().flatten().map(|row| RowRef::trusted(row)).collect();
    if rows.is_empty() {
        return None;
    }
    let mut out = Vec::new();
    match merge_rows(shape, &rows, covering, keep, &mut out).row {
        Merged::Nothing => None,
        Merged::Source(number) => Some(rows[number].bytes().to_vec()),
        Merged::Built => Some(out),
    }
}
