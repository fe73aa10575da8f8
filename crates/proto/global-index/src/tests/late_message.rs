//! A history that random ones rarely meet: a tombstone with a timestamp of the future is purged before the last message of a
//! write that it shadows arrives.

use data::{
    CellRef, DeletionTime, Liveness, MutationBuilder, MutationRef, RowBuilder, RowRef, TableShape,
};
use stdx::{DeletionSeconds, TimestampMicros, WallMicros};

use super::replicas::Replicas;
use super::world::{clustering, key};
use super::{V, index, table};
use crate::{EntryPage, FoundRow, GhostPolicy, GlobalScan, ScanBounds, ScanStep, entries_of};

fn base_mutation(cell: Option<CellRef<'_>>, deletion: DeletionTime) -> Vec<u8> {
    let mut row = Vec::new();
    let mut builder = RowBuilder::new(&mut row, Liveness::NONE, deletion, TimestampMicros(0));
    if let Some(cell) = cell {
        builder.cell(V, &cell);
    }
    builder.finish();
    let mut bytes = Vec::new();
    let mut builder = MutationBuilder::new(&mut bytes, table().id, 1, &key(1));
    builder.rows([(clustering(1).as_slice(), RowRef::trusted(&row))].into_iter());
    builder.finish();
    bytes
}

/// Reads value "a" by the index from all entry replicas and two of the base; deletes ghosts. Returns the number of matches.
fn read(base: &Replicas, entries: &mut Replicas, of: &[usize], seconds: i64) -> usize {
    let index = index();
    let (now, ttl_clock) = (WallMicros(seconds * 1_000_000), DeletionSeconds(seconds));
    let bounds = ScanBounds { page: 10, examined: 10 };
    let mut scan = GlobalScan::new(b"a", None, bounds, GhostPolicy::Delete);
    let live = entries.live(&[0, 1, 2], b"a", ttl_clock);
    let rows = live.iter().map(|(name, row)| (name.as_slice(), RowRef::trusted(row)));
    scan.entries(EntryPage::read(&index, None, rows, None, ttl_clock).unwrap()).unwrap();
    if scan.step(&index) == ScanStep::Done {
        return 0;
    }
    let row = base.read(of, &key(1), &clustering(1));
    let (key, clustering) = (key(1), clustering(1));
    let found = FoundRow { key: &key, clustering: &clustering, base: row.as_base() };
    let checked = scan.rows(&index, &[found], ttl_clock, now).unwrap();
    for deletion in &checked.deletions {
        (0..3).for_each(|replica| entries.apply(replica, deletion));
    }
    checked.matches.len()
}

#[test]
fn a_tombstone_that_is_purged_before_its_victims_arrive_proves_nothing() {
    let index = index();
    let mut base = Replicas::new(TableShape::for_table(&table()));
    let mut entries = Replicas::new(TableShape::for_table(index.entry_table()));
    // At 1,000 s a client deletes the row as of 5,000 s.
    let deletion =
        DeletionTime { timestamp: TimestampMicros(5_000_000_000), local: DeletionSeconds(1_000) };
    (0..3).for_each(|replica| base.apply(replica, &base_mutation(None, deletion)));
    // At 1,500 s the value is written; the message to the third replica is late.
    let cell = CellRef::live(TimestampMicros(1_500_000_000), b"a");
    let write = base_mutation(Some(cell), DeletionTime::LIVE);
    let parsed = MutationRef::open(&write).unwrap();
    for entry in entries_of(&index, &parsed, WallMicros(1_500_000_000)).unwrap() {
        (0..3).for_each(|replica| entries.apply(replica, &entry.bytes));
    }
    (0..2).for_each(|replica| base.apply(replica, &write));
    assert_eq!(read(&base, &mut entries, &[0, 1], 1_570), 0);
    // With gc_grace_seconds of 600, at 1,610 s the tombstone is purged, and the message arrives then.
    base.repair_and_purge(DeletionSeconds(1_610), DeletionSeconds(1_010));
    base.apply(2, &write);
    assert_eq!(read(&base, &mut entries, &[1, 2], 1_620), 1);
}
