//! Entries of files and memtables after random writes, flushes, compactions, restarts.

use sstable::AttachedName;

use super::*;
use crate::UpgradeScope;
use crate::tests::files::sealed::{ring, sealed_tables};

fn view(store: &Store) -> std::rc::Rc<crate::tables::table::TableView> {
    store.rooms.tables.table(TABLE).unwrap().view()
}

async fn write_random(rt: &Rt, store: &Store, mutations: &mut Vec<Vec<u8>>, timestamp: i64) {
    let mutation = random_mutation(rt, timestamp);
    write(store, &mutation).await.unwrap();
    mutations.push(mutation);
}

#[test]
fn files_and_memtables_have_the_entries_of_their_own_rows() {
    for seed in 8_000..8_012 {
        let world = world(seed);
        run_in(&world, move |rt| async move {
            let store = match seed % 2 {
                0 => open_with(&rt, &ALL).await,
                _ => {
                    rt.set_file_keys(ring("key"));
                    let sealed = StoreOptions { sealing: sealed_tables(), ..options(&rt) };
                    Store::open(rt.clone(), sealed, indexed_schema(&ALL)).await.unwrap().0
                }
            };
            let indexes = store.rooms.tables.table(TABLE).unwrap().version().indexes.clone();
            let indexes = indexes.unwrap();
            let mut since_flush = Vec::new();
            let mut entries = 0;
            for timestamp in 1..300 {
                write_random(&rt, &store, &mut since_flush, timestamp).await;
                match rt.random_u64() % 60 {
                    0 | 1 => {
                        check_memtable(&indexes, &view(&store).active, &since_flush);
                        store.flush(None).await.unwrap();
                        since_flush.clear();
                    }
                    2 => {
                        store.compactor().compact_major(TABLE).await.unwrap();
                        since_flush.clear();
                    }
                    _ => {}
                }
                if timestamp % 50 == 0 {
                    entries += check_files(&store).await;
                }
            }
            check_memtable(&indexes, &view(&store).active, &since_flush);
            store.flush(None).await.unwrap();
            entries += check_files(&store).await;
            store.compactor().upgrade(TABLE, UpgradeScope::All).await.unwrap();
            entries += check_files(&store).await;
            let how = crate::ScrubOptions::default();
            store.compactor().scrub(TABLE, None, how).await.unwrap();
            entries += check_files(&store).await;
            assert!(entries > 500, "{entries}");
            store.stop().await;
        });
    }
}

#[test]
fn replayed_rows_are_in_the_index_of_the_memtable() {
    let world = world(8_020);
    let written = Arc::new(Mutex::new(Vec::new()));
    let first = written.clone();
    run_in(&world, move |rt| {
        let first = first.clone();
        async move {
            let store = open_with(&rt, &ALL).await;
            let mut mutations = Vec::new();
            for timestamp in 1..60 {
                write_random(&rt, &store, &mut mutations, timestamp).await;
            }
            store.stop().await;
            *first.lock().unwrap() = mutations;
        }
    });
    run_in(&world, move |rt| {
        let written = written.lock().unwrap().clone();
        async move {
            let store = open_with(&rt, &ALL).await;
            let table = store.rooms.tables.table(TABLE).unwrap();
            let indexes = table.version().indexes.clone().unwrap();
            check_memtable(&indexes, &table.view().active, &written);
            let accounted = store.rooms.writer.memtable_bytes.get();
            assert_eq!(accounted, table.view().active.bytes());
            store.stop().await;
        }
    });
}

#[test]
fn the_budget_of_memtables_counts_their_indexes() {
    run(8_030, |rt| async move {
        let mut bytes = Vec::new();
        for (directory, numbers) in [("a", &[][..]), ("b", &[3][..])] {
            let mut options = options(&rt);
            options.data_directories = vec![format!("{directory}/data")];
            options.commitlog_directory = format!("{directory}/commitlog");
            let schema = indexed_schema(numbers);
            let store = Store::open(rt.clone(), options, schema).await.unwrap().0;
            for pk in 0..100 {
                write(&store, &insert(pk, 1, &format!("value {pk}"), 1)).await.unwrap();
            }
            bytes.push(store.memory_bytes().0);
            store.flush(None).await.unwrap();
            assert_eq!(store.memory_bytes().0, 0, "all of it is released");
            store.stop().await;
        }
        assert!(bytes[1] > bytes[0] + 100 * 100, "{bytes:?}");
    });
}

#[test]
fn a_dropped_index_vanishes_with_the_next_compaction() {
    run(8_040, |rt| async move {
        let store = open_with(&rt, &[3, 4]).await;
        write(&store, &insert(1, 1, "a", 1)).await.unwrap();
        store.flush(None).await.unwrap();
        store.set_schema(indexed_schema(&[3]));
        let names = |store: &Store| -> Vec<AttachedName> {
            let meta = view(store).files[0].reader.meta().clone();
            sstable::Attached::of(&meta).existing().iter().map(|(name, _)| *name).collect()
        };
        assert_eq!(names(&store).len(), 3);
        store.compactor().compact_major(TABLE).await.unwrap();
        let left = [IndexComponent::Entries(index_id(3)).name(), IndexComponent::Rows.name()];
        assert_eq!(BTreeSet::from_iter(names(&store)), BTreeSet::from(left));
        store.set_schema(indexed_schema(&[]));
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(names(&store), []);
        store.stop().await;
    });
}
