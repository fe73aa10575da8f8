//! Tables whose definitions are missing at a start, or come late: their files are opened when they come,
//! and their writes in the commit log are not dropped.

use std::collections::BTreeSet;

use crate::tests::*;

fn nothing() -> Arc<Schema> {
    schema_of(Vec::new())
}

async fn open_with(rt: &Rt, schema: Arc<Schema>) -> Store {
    Store::open(rt.clone(), options(rt), schema).await.unwrap().0
}

/// INV-found-1.
#[test]
fn files_of_a_table_whose_definition_comes_late_are_read_at_once_and_never_overwritten() {
    // The first operation after the schema change: a read, a flush, a TRUNCATE.
    for first in 0..3 {
        let world = World::new(301 + first, WorldOptions::default());
        run_in(&world, move |rt| async move {
            let store = open(&rt).await;
            for pk in 0..20 {
                write(&store, &insert(pk, 1, "old", 1)).await.unwrap();
                if pk % 10 == 9 {
                    store.flush(None).await.unwrap();
                }
            }
            store.drain().await.unwrap();
            store.stop().await;

            let store = open_with(&rt, nothing()).await;
            let seen = std::rc::Rc::<std::cell::RefCell<Vec<String>>>::default();
            let told = seen.clone();
            store.env().on_failure(move |failure| match failure {
                crate::StoreFailure::Found(what) => told.borrow_mut().push(what),
                other => panic!("{other:?}"),
            });
            store.set_schema(schema());
            let mut expected = 20;
            match first {
                0 => assert_eq!(read_all(&store).await.len(), 20),
                1 => {
                    write(&store, &insert(20, 1, "new", 1)).await.unwrap();
                    store.flush(None).await.unwrap();
                    expected = 21;
                }
                _ => {
                    store.lifecycle().truncate(TABLE, TimestampMicros(5)).await.unwrap();
                    expected = 0;
                }
            }
            assert_eq!(read_all(&store).await.len(), expected);
            assert_eq!(*seen.borrow(), ["ks.t: 2 SSTables"]);
            assert!(store.tables().directories_of_unknown_tables().is_empty());
            store.drain().await.unwrap();
            store.stop().await;
            let store = open(&rt).await;
            assert_eq!(read_all(&store).await.len(), expected, "after a restart");
            store.stop().await;
        });
    }
}

/// INV-found-2.
#[test]
fn a_table_that_is_made_again_while_it_is_dropped_begins_empty() {
    for seed in 0..10 {
        let world = World::new(310 + seed, WorldOptions::default());
        run_in(&world, move |rt| async move {
            let store = open(&rt).await;
            write(&store, &insert(1, 1, "old", 1)).await.unwrap();
            store.flush(None).await.unwrap();
            store.set_schema(nothing());
            if seed % 2 == 1 {
                rt.sleep(Duration::from_micros(seed * 500)).await;
            }
            store.set_schema(schema());
            assert!(read_all(&store).await.is_empty());
            write(&store, &insert(2, 1, "new", 1)).await.unwrap();
            store.flush(None).await.unwrap();
            rt.sleep(Duration::from_secs(20)).await;
            assert_eq!(values(&read_all(&store).await), [(1, "new".to_owned())]);
            store.drain().await.unwrap();
            store.stop().await;
            let store = open(&rt).await;
            assert_eq!(values(&read_all(&store).await), [(1, "new".to_owned())], "{seed}");
            store.stop().await;
        });
    }
}

#[test]
fn writes_of_a_table_that_the_metadata_log_never_had_refuse_the_start_and_stay() {
    let world = World::new(320, WorldOptions::default());
    run_in(&world, |rt| async move {
        let store = open(&rt).await;
        for pk in 0..5 {
            write(&store, &insert(pk, 1, "v", 1)).await.unwrap();
        }
        store.stop().await;
        let with = |ever: Option<Vec<TableId>>, listed: &[&str]| {
            let mut options = options(&rt);
            options.tables_ever =
                ever.map(|ids| Arc::new(ids.into_iter().collect::<BTreeSet<_>>()));
            options.replay.tables = listed.iter().map(|name| (*name).to_owned()).collect();
            options
        };
        let refused = Store::open(rt.clone(), with(Some(vec![]), &[]), nothing()).await;
        let error = refused.err().unwrap().to_string();
        for part in ["commitlog/helenus-commitlog-", "hold 5 writes to 1 tables", "metadata/log"] {
            assert!(error.contains(part), "{error}");
        }
        assert!(error.contains(&TABLE.0.to_string()), "{error}");
        let (store, _) =
            Store::open(rt.clone(), with(Some(vec![TABLE]), &[]), schema()).await.unwrap();
        assert_eq!(read_all(&store).await.len(), 5);
        store.stop().await;
    });
    // Mutations of a table that the log dropped are discarded, and those that a list of tables
    // excludes.
    for (ever, listed) in [(vec![TABLE], &[][..]), (vec![], &["ks.other"])] {
        let world = World::new(321, WorldOptions::default());
        run_in(&world, move |rt| {
            let ever = ever.clone();
            async move {
                let store = open(&rt).await;
                write(&store, &insert(1, 1, "v", 1)).await.unwrap();
                store.stop().await;
                let mut options = options(&rt);
                options.tables_ever = Some(Arc::new(ever.into_iter().collect()));
                options.replay.tables = listed.iter().map(|name| (*name).to_owned()).collect();
                let (store, report) = Store::open(rt.clone(), options, nothing()).await.unwrap();
                assert_eq!(report.dropped_tables + report.not_listed, 1);
                store.stop().await;
            }
        });
    }
}

/// Files that a restore puts into the directory of a dropped table are not what is left of the drop.
#[test]
fn files_that_come_after_a_drop_was_carried_out_are_left_alone() {
    let world = World::new(330, WorldOptions::default());
    run_in(&world, |rt| async move {
        let store = open(&rt).await;
        for pk in 0..10 {
            write(&store, &insert(pk, 1, "v", 1)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        store.lifecycle().snapshot("keep", None).await.unwrap();
        let directory = store.files().target_directory(TABLE).unwrap();
        assert!(store.lifecycle().settle_drops().await.unwrap());
        store.set_schema(nothing());
        assert!(!store.lifecycle().settle_drops().await.unwrap(), "its files are there");
        rt.sleep(Duration::from_secs(20)).await;
        let fs = rt.fs();
        let mark = format!("{directory}/helenus-dropped");
        assert!(fs.exists(&mark).await.unwrap());
        assert!(store.lifecycle().settle_drops().await.unwrap());
        assert!(!fs.exists(&mark).await.unwrap());
        let snapshot = format!("{directory}/snapshots/keep");
        let mut restored = 0;
        for entry in fs.read_dir(&snapshot).await.unwrap() {
            if sstable::Descriptor::parse(&entry.name).is_some() {
                let (from, to) =
                    (format!("{snapshot}/{}", entry.name), format!("{directory}/{}", entry.name));
                fs.hard_link(&from, &to).await.unwrap();
                restored += 1;
            }
        }
        assert!(restored > 5);
        store.stop().await;
        let store = open_with(&rt, nothing()).await;
        assert_eq!(store.tables().directories_of_unknown_tables(), [directory]);
        assert!(store.lifecycle().settle_drops().await.unwrap(), "what is left alone is no drop");
        store.set_schema(schema());
        assert_eq!(read_all(&store).await.len(), 10);
        store.stop().await;
    });
}
