//! Tombstones that a compaction purges while memtables are not flushed.

use crate::tests::*;

/// Tombstones may be purged at once.
fn purgeable() -> Arc<Schema> {
    let compaction = BTreeMap::from([
        ("class".into(), "SizeTieredCompactionStrategy".into()),
        ("enabled".into(), "false".into()),
    ]);
    let options = TableOptions { gc_grace_seconds: 0, compaction, ..TableOptions::default() };
    schema_of(vec![table(options)])
}

/// A write of partition 1 that has something of that time, and something newer where there is room for it.
type WriteAt = fn(i64) -> Vec<u8>;

fn row_of(liveness: Liveness, deletion: DeletionTime, cells: &[(ColumnId, i64)]) -> Vec<u8> {
    let cells = cells.iter().map(|(id, at)| (*id, CellRef::live(TimestampMicros(*at), b"x")));
    let row = packed(liveness, deletion, &cells.collect::<Vec<_>>());
    let clustering = clustering(9);
    encode(1, |m| m.rows([(clustering.as_slice(), RowRef::trusted(&row))].into_iter()))
}

fn late() -> Liveness {
    Liveness::new(TimestampMicros(100))
}

const OTHER: ColumnId = ColumnId(4);

const WRITES: [(&str, WriteAt); 9] = [
    ("a row", |at| insert(1, 9, "x", at)),
    ("a cell of a newer row", |at| row_of(late(), DeletionTime::LIVE, &[(VALUE, at)])),
    ("the last cell", |at| row_of(late(), DeletionTime::LIVE, &[(VALUE, 100), (OTHER, at)])),
    ("a cell alone", |at| row_of(Liveness::NONE, DeletionTime::LIVE, &[(VALUE, at)])),
    ("a row's deletion", |at| delete_row(1, 9, at)),
    ("a deletion with newer cells", |at| row_of(late(), deletion(at), &[(VALUE, 100)])),
    ("a static cell", |at| insert_static(1, "x", at)),
    ("a range deletion", |at| delete_range(1, 20, 30, at)),
    ("the partition's deletion", |at| delete_partition(1, at)),
];

#[test]
fn a_tombstone_goes_when_all_that_memtables_have_of_its_partition_is_newer() {
    for (seed, (what, of)) in (0..).zip(WRITES) {
        for held in [false, true] {
            run(1_400 + seed, move |rt| async move {
                let opened = Store::open(rt.clone(), options(&rt), purgeable()).await;
                let store = opened.unwrap().0;
                let mut sstables = Vec::new();
                for at in [5, 6, 7] {
                    write(&store, &insert(1, 1, "x", 5)).await.unwrap();
                    store.flush(None).await.unwrap();
                    write(&store, &delete_row(1, 1, 6)).await.unwrap();
                    store.flush(None).await.unwrap();
                    if held {
                        // Then the next write is stored in another version.
                        write(&store, &insert(1, 40, "x", 200)).await.unwrap();
                    }
                    let view = store.rooms.tables.table(TABLE).unwrap().view();
                    let reader = view.active.get(codec::token_of(&key(1)), &key(1));
                    write(&store, &of(at)).await.unwrap();
                    drop(reader);
                    store.compactor().compact_partition(TABLE, &key(1)).await.unwrap();
                    sstables.push(store.table_stats(TABLE).sstables);
                    assert_eq!(
                        values(&read_partition(&store, 1).await)
                            .iter()
                            .filter(|r| r.0 == 1)
                            .count(),
                        0
                    );
                    store.lifecycle().truncate(TABLE, TimestampMicros(1_000)).await.unwrap();
                }
                assert_eq!(sstables, [1, 1, 0], "{what}");
                store.stop().await;
            });
        }
    }
}

#[test]
fn a_memtable_without_the_partition_keeps_no_tombstone_of_it() {
    run(1_420, |rt| async move {
        let store = Store::open(rt.clone(), options(&rt), purgeable()).await.unwrap().0;
        write(&store, &delete_row(1, 1, 6)).await.unwrap();
        store.flush(None).await.unwrap();
        write(&store, &insert(2, 1, "x", 1)).await.unwrap();
        store.compactor().compact_partition(TABLE, &key(1)).await.unwrap();
        assert_eq!(store.table_stats(TABLE).sstables, 0);
        store.stop().await;
    });
}

#[test]
fn a_file_of_nothing_but_old_tombstones_goes_as_a_whole_when_memtables_have_newer_things_only() {
    run(1_421, |rt| async move {
        let store = Store::open(rt.clone(), options(&rt), purgeable()).await.unwrap().0;
        for pk in 0..2 {
            write(&store, &delete_row(pk, 1, 6)).await.unwrap();
            store.flush(None).await.unwrap();
        }
        let expired = |store: &Store| {
            let table = store.rooms.tables.table(TABLE).unwrap();
            let infos = store.rooms.compactor.infos(&table);
            infos.state().memtable_min_timestamp
        };
        assert_eq!(expired(&store), None);
        write(&store, &insert(5, 1, "x", 9)).await.unwrap();
        assert_eq!(expired(&store), Some(TimestampMicros(9)));
        write(&store, &delete_partition(6, 7)).await.unwrap();
        write(&store, &insert(6, 1, "x", 8)).await.unwrap();
        assert_eq!(expired(&store), Some(TimestampMicros(7)));
        // Overwritten cells count too.
        write(&store, &insert(5, 1, "x", 3)).await.unwrap();
        assert_eq!(expired(&store), Some(TimestampMicros(3)));
        store.flush(None).await.unwrap();
        assert_eq!(expired(&store), None);
        store.stop().await;
    });
}
