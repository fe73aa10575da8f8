//! Builds of indexes of files that were written without them.

use std::cell::Cell;
use std::rc::Rc;

use super::*;
use crate::tests::transfer::file_streams::{give, hold};
use crate::{IndexState, VerifyOptions};

fn state(store: &Store, number: usize) -> Option<IndexState> {
    store.tables().index_state(TABLE, index_id(number))
}

fn file_count(store: &Store) -> usize {
    store.rooms.tables.table(TABLE).unwrap().view().files.len()
}

/// Waits until all files have all indexes.
pub(crate) async fn wait_built(rt: &Rt, store: &Store) {
    let table = store.rooms.tables.table(TABLE).unwrap();
    for _ in 0..6_000 {
        let ids: Vec<Uuid> = table.version().index_ids().collect();
        let is_built =
            |id: &Uuid| store.tables().index_state(TABLE, *id) == Some(IndexState::Built);
        if table.file_without_index().is_none()
            && table.claimed.borrow().is_empty()
            && ids.iter().all(is_built)
        {
            return;
        }
        rt.sleep(Duration::from_millis(100)).await;
    }
    panic!("indexes are not built");
}

async fn write_files(rt: &Rt, store: &Store, count: i64) {
    for file in 0..count {
        for timestamp in 1..30 {
            let mutation = random_mutation(rt, file * 100 + timestamp);
            write(store, &mutation).await.unwrap();
        }
        store.flush(None).await.unwrap();
    }
}

/// INV-index-1, as far as the store keeps it.
#[test]
fn a_new_index_is_built_file_by_file_and_then_counts_as_built() {
    run(8_100, |rt| async move {
        let store = open_with(&rt, &[]).await;
        write_files(&rt, &store, 4).await;
        write(&store, &insert(3, 3, "in memory", 1_000)).await.unwrap();
        let kinds = Rc::new(std::cell::RefCell::new(Vec::new()));
        let seen = kinds.clone();
        store.compactor().on_compacted(move |record| seen.borrow_mut().push(record.kind));
        let rows = read_all(&store).await;
        assert_eq!(state(&store, 3), None);
        store.set_schema(indexed_schema(&ALL));
        assert_eq!(state(&store, 3), Some(IndexState::Building { done: 0, total: 4 }));
        // Its rows are not in the index: the memtable is another one from here on.
        let view = store.rooms.tables.table(TABLE).unwrap().view();
        assert!(view.active.is_empty() && view.flushing.len() == 1);
        assert!(view.flushing[0].with_index(index_id(3), |_| ()).is_none());
        assert!(view.active.with_index(index_id(3), |_| ()).is_some());
        wait_built(&rt, &store).await;
        assert_eq!(*kinds.borrow(), ["Secondary index build"; 4]);
        assert!(check_files(&store).await > 50);
        assert_eq!(read_all(&store).await, rows);
        store.stop().await;
    });
}

#[test]
fn a_rebuild_writes_every_file_once_and_the_index_stays_usable() {
    run(8_160, |rt| async move {
        let store = open_with(&rt, &[]).await;
        write_files(&rt, &store, 3).await;
        assert_eq!(store.compactor().rebuild_indexes(TABLE).await.unwrap(), 0, "no index");
        let built = Rc::new(std::cell::RefCell::new(Vec::new()));
        let seen = built.clone();
        store.compactor().on_index_built(move |built| seen.borrow_mut().push(built));
        store.set_schema(indexed_schema(&ALL));
        let facts = store.index_stats(TABLE);
        assert_eq!(facts.len(), ALL.len());
        for index in &facts {
            assert_eq!(index.state, IndexState::Building { done: 0, total: 3 });
            assert!(index.files.is_empty() && index.files_without == 3);
        }
        wait_built(&rt, &store).await;
        for index in store.index_stats(TABLE) {
            assert_eq!((index.state, index.files_without), (IndexState::Built, 0));
            assert_eq!(index.files.len(), 3);
            for file in &index.files {
                assert!(file.path.ends_with("-Data.db") && file.rows > 0 && file.rows_bytes > 64);
                assert!(file.bytes > 64 && file.terms <= file.entries);
                assert!(file.bounds.0 <= file.bounds.1 && file.tokens.0 <= file.tokens.1);
            }
        }
        // Time for the report.
        rt.sleep(Duration::from_secs(3)).await;
        let mut names: Vec<String> = built.borrow().iter().map(|b| b.index.clone()).collect();
        names.sort_unstable();
        assert_eq!(names, ALL.map(|number| format!("i{number}")), "each is reported once");
        assert!(built.borrow().iter().all(|b| b.rows > 0 && b.table == "t"), "{built:?}");

        let generations = |store: &Store| {
            let view = store.rooms.tables.table(TABLE).unwrap().view();
            view.files.iter().map(|file| file.generation).collect::<Vec<_>>()
        };
        let (rows, before) = (read_all(&store).await, generations(&store));
        let kinds = Rc::new(std::cell::RefCell::new(Vec::new()));
        let (seen, watched) = (kinds.clone(), store.clone());
        store.compactor().on_compacted(move |record| {
            assert_eq!(state(&watched, 3), Some(IndexState::Built));
            seen.borrow_mut().push(record.kind);
        });
        assert_eq!(store.compactor().rebuild_indexes(TABLE).await.unwrap(), 3);
        assert_eq!(*kinds.borrow(), ["Secondary index build"; 3]);
        assert!(generations(&store).iter().all(|now| !before.contains(now)));
        check_files(&store).await;
        assert_eq!(read_all(&store).await, rows);
        let unknown = store.compactor().rebuild_indexes(stdx::TableId(Uuid::nil())).await;
        assert!(matches!(unknown, Err(crate::StoreError::UnknownTable(_))));
        store.stop().await;
    });
}

#[test]
fn an_index_of_a_table_without_files_is_built_at_once() {
    run(8_110, |rt| async move {
        let store = open_with(&rt, &[]).await;
        write(&store, &insert(3, 3, "in memory", 1_000)).await.unwrap();
        rt.sleep(Duration::from_secs(2)).await;
        store.set_schema(indexed_schema(&[3]));
        assert_eq!(state(&store, 3), Some(IndexState::Built));
        assert_eq!(state(&store, 4), None);
        store.stop().await;
    });
}

#[test]
fn a_restart_continues_a_build_and_a_stray_file_never_undoes_one() {
    let world = world(8_120);
    run_in(&world, |rt| async move {
        let store = open_with(&rt, &[]).await;
        write_files(&rt, &store, 4).await;
        store.drain().await.unwrap();
        store.stop().await;
    });
    let (rewritten, was_between) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(false)));
    let lives = [
        (rewritten.clone(), was_between.clone(), false),
        (rewritten.clone(), was_between.clone(), true),
    ];
    for (rewritten, was_between, to_the_end) in lives {
        run_in(&world, move |rt| {
            let (rewritten, was_between) = (rewritten.clone(), was_between.clone());
            async move {
                let store = open_with(&rt, &ALL).await;
                let done = Rc::new(Cell::new(0));
                let seen = done.clone();
                store.compactor().on_compacted(move |_| seen.set(seen.get() + 1));
                match to_the_end {
                    true => wait_built(&rt, &store).await,
                    false => {
                        while done.get() == 0 {
                            rt.sleep(Duration::from_millis(1)).await;
                        }
                        let building =
                            matches!(state(&store, 3), Some(IndexState::Building { .. }));
                        *was_between.lock().unwrap() = building;
                    }
                }
                // Time for the list of built indexes.
                rt.sleep(Duration::from_secs(u64::from(to_the_end) * 3)).await;
                store.stop().await;
                *rewritten.lock().unwrap() += done.get();
            }
        });
    }
    assert!(*was_between.lock().unwrap());
    assert_eq!(*rewritten.lock().unwrap(), 4, "no file is built twice");
    // A component is lost.
    let disk = world.disk("n1");
    let of_index = |path: &&String| path.contains(&TableId(index_id(3)).to_hex());
    let lost = disk.list().iter().find(of_index).unwrap().clone();
    disk.remove(&lost);
    run_in(&world, move |rt| {
        let lost = lost.trim_start_matches("/n1/").to_owned();
        async move {
            let opened = Store::open(rt.clone(), options(&rt), indexed_schema(&ALL)).await;
            let (store, report) = opened.unwrap();
            assert_eq!(state(&store, 3), Some(IndexState::Built), "it was built before");
            assert!(report.damaged_marks.iter().any(|what| what.starts_with(&lost)), "{report:?}");
            wait_built(&rt, &store).await;
            assert_eq!(file_count(&store), 4);
            check_files(&store).await;
            store.stop().await;
        }
    });
}

#[test]
fn a_damaged_component_is_not_used_and_its_file_is_rewritten() {
    // In the header, and in a block.
    for (seed, bit) in [(8_130, 8 * 9), (8_131, 8 * 40)] {
        let world = world(seed);
        run_in(&world, |rt| async move {
            let store = open_with(&rt, &[3]).await;
            write_files(&rt, &store, 1).await;
            store.drain().await.unwrap();
            rt.sleep(Duration::from_secs(3)).await;
            store.stop().await;
        });
        let disk = world.disk("n1");
        let of_index = |path: &&String| path.contains(&TableId(index_id(3)).to_hex());
        let damaged = disk.list().iter().find(of_index).unwrap().clone();
        assert!(disk.flip_bit(&damaged, bit));
        run_in(&world, move |rt| {
            let damaged = damaged.trim_start_matches("/n1/").to_owned();
            async move {
                let opened = Store::open(rt.clone(), options(&rt), indexed_schema(&[3])).await;
                let (store, report) = opened.unwrap();
                let rows = read_all(&store).await;
                let file = store.rooms.tables.table(TABLE).unwrap().view().files[0].clone();
                match bit / 8 < 32 {
                    true => {
                        assert!(file.reader.index(index_id(3)).is_none());
                        let named = |what: &String| what.starts_with(&damaged);
                        assert!(report.damaged_marks.iter().any(named), "{report:?}");
                    }
                    false => {
                        let failed =
                            store.verifier().verify(TABLE, &VerifyOptions::default()).await;
                        assert!(failed.unwrap()[0].1.to_string().contains(&damaged));
                        let component = IndexComponent::Entries(index_id(3));
                        let root =
                            file.reader.index(index_id(3)).unwrap().terms().unwrap().root.unwrap();
                        let at = index_format::BlockRef { offset: 32, length: 20 };
                        let at = if root.offset == 32 { root } else { at };
                        let error = file.reader.load_index_block(component, at).await.unwrap_err();
                        assert!(error.is_damage() && error.to_string().contains(&damaged));
                        store.rooms.files.note_damaged_index(&file, component, &error);
                        assert!(file.reader.index(index_id(3)).is_none());
                        assert_eq!(state(&store, 3), Some(IndexState::Built));
                    }
                }
                wait_built(&rt, &store).await;
                let view = store.rooms.tables.table(TABLE).unwrap().view();
                assert_ne!(view.files[0].generation, file.generation);
                check_files(&store).await;
                assert_eq!(read_all(&store).await, rows);
                store.stop().await;
            }
        });
    }
}

#[test]
fn components_travel_with_whole_files_and_unknown_ones_are_not_used() {
    for (seed, to_numbers) in [(8_140, &[3, 4][..]), (8_141, &[4, 5][..]), (8_142, &[][..])] {
        run(seed, move |rt| async move {
            let at = |directory: &str| StoreOptions {
                data_directories: vec![format!("{directory}/data")],
                commitlog_directory: format!("{directory}/commitlog"),
                sstable_version: sstable::Version::Nb,
                ..options(&rt)
            };
            let from = Store::open(rt.clone(), at("a"), indexed_schema(&[3, 4])).await.unwrap().0;
            write_files(&rt, &from, 1).await;
            let schema = indexed_schema(to_numbers);
            let to = Store::open(rt.clone(), at("b"), schema).await.unwrap().0;
            let held = hold(&from).await;
            let mut ingest = to.transfer().ingest(TABLE).await.unwrap();
            give(&held.files()[0], &mut ingest, |_, _| ()).await.unwrap();
            ingest.finish().await.unwrap();
            let file = to.rooms.tables.table(TABLE).unwrap().view().files[0].clone();
            for number in [3, 4] {
                assert!(file.reader.index(index_id(number)).is_some(), "both came with it");
            }
            assert!(file.reader.index(index_id(5)).is_none());
            if !to_numbers.is_empty() {
                wait_built(&rt, &to).await;
                check_files(&to).await;
            }
            let now = to.rooms.tables.table(TABLE).unwrap().view().files[0].clone();
            assert_eq!(now.generation != file.generation, to_numbers.contains(&5));
            assert_eq!(read_all(&to).await, read_all(&from).await);
            from.stop().await;
            to.stop().await;
        });
    }
}

#[test]
fn a_component_of_another_definition_of_the_index_is_not_used() {
    run(8_150, |rt| async move {
        let store = open_with(&rt, &[3]).await;
        write_files(&rt, &store, 1).await;
        let component = |store: &Store| {
            let file = store.rooms.tables.table(TABLE).unwrap().view().files[0].clone();
            file.reader.index(index_id(3)).map(|open| open.definition)
        };
        let before = component(&store).unwrap();
        // A table recreated with its old id imports a file of its first incarnation.
        let mut table = indexed_table(&[3], 9);
        let index = IndexMetadata {
            target: IndexTarget { column: "w".into(), part: TargetPart::Simple },
            ..(*table.indexes[0]).clone()
        };
        table.indexes = table.indexes_with(index);
        store.set_schema(schema_of(vec![table]));
        assert_eq!(component(&store), None);
        wait_built(&rt, &store).await;
        assert!(component(&store).is_some_and(|now| now != before));
        store.stop().await;
    });
}
