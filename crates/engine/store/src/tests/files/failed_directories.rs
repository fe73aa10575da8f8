//! Data directories that fail with `best_effort`.

use std::cell::RefCell;
use std::rc::Rc;

use rt::sim::DiskControl;
use stdx::{IoError, IoErrorKind};

use crate::StoreFailure;
use crate::tests::*;

const DISKS: [&str; 3] = ["disk1", "disk2", "disk3"];

async fn open_on(rt: &Rt, disks: &[&str]) -> (Store, Rc<RefCell<Vec<StoreFailure>>>) {
    let mut options = options(rt);
    options.data_directories = disks.iter().map(|disk| (*disk).to_owned()).collect();
    options.best_effort = true;
    // Deleted data is purged as soon as possible.
    let of_table = TableOptions { gc_grace_seconds: 0, ..TableOptions::default() };
    let store = Store::open(rt.clone(), options, schema_of(vec![table(of_table)])).await.unwrap().0;
    let told: Rc<RefCell<Vec<StoreFailure>>> = Rc::default();
    let failures = told.clone();
    store.env().on_failure(move |failure| failures.borrow_mut().push(failure));
    (store, told)
}

/// Runs `main` on one node; where it requests that, the disk is changed before it continues.
pub(crate) fn run_failing<F: Future<Output = ()> + 'static>(
    world: &World,
    faults: &[fn(&DiskControl)],
    main: impl Fn(Rt, Asked) -> F + Send + Sync + Clone + 'static,
) {
    let limit = Duration::from_secs(100 * 3_600);
    let asked = Asked::default();
    let of_node = asked.clone();
    start(world, 1, move |rt| {
        let (main, asked) = (main.clone(), of_node.clone());
        async move {
            main(rt.clone(), asked.clone()).await;
            *asked.0.lock().unwrap() += 1;
        }
    });
    for (n, fault) in (1_usize..).zip(faults) {
        world.run_until(|| *asked.0.lock().unwrap() == 2 * n - 1, limit).unwrap();
        fault(&world.disk("n1"));
        *asked.0.lock().unwrap() += 1;
    }
    let end = 2 * faults.len() + 1;
    world.run_until(|| *asked.0.lock().unwrap() == end, limit).unwrap();
}

/// Odd while something is to be done to the disk.
#[derive(Clone, Default)]
pub(crate) struct Asked(Arc<Mutex<usize>>);

impl Asked {
    pub(crate) async fn fault(&self, rt: &Rt) {
        *self.0.lock().unwrap() += 1;
        while !self.0.lock().unwrap().is_multiple_of(2) {
            rt.sleep(Duration::from_millis(1)).await;
        }
    }
}

fn device_error(path: String) -> StoreError {
    let detail = "injected failure".to_owned();
    StoreError::Io(IoError { kind: IoErrorKind::Device, operation: "read", path, detail })
}

/// Where a shard alone writes the files of the table.
fn own_disk(store: &Store) -> String {
    let directory = store
        .rooms
        .files
        .directories
        .directory_of(&store.rooms.tables.table(TABLE).unwrap().version().table);
    directory.split('/').next().unwrap().to_owned()
}

fn row(pk: i32, value: &str) -> Found {
    (pk, Some(1), None, Some(value.to_owned()))
}

/// A read fails: data in that directory is missing from then on, and writes use other directories.
/// A start that finds the directory again has everything, also deletions made meanwhile.
/// INV-out-of-service-1.
#[test]
fn a_directory_that_fails_is_missing_until_the_next_start_and_nothing_comes_back() {
    let world = world(850);
    let reads_fail: fn(&DiskControl) =
        |disk| disk.set_failing_reads(Some((1, IoErrorKind::Device)));
    let reads_go_on: fn(&DiskControl) = |disk| disk.set_failing_reads(None);
    run_failing(&world, &[reads_fail, reads_go_on], |rt, asked| {
        async move {
            let (store, told) = open_on(&rt, &DISKS).await;
            for pk in [1, 2, 3] {
                write(&store, &insert(pk, 1, "old", 100)).await.unwrap();
            }
            store.flush(None).await.unwrap();
            let first = own_disk(&store);
            for file in &store.rooms.tables.table(TABLE).unwrap().view().files {
                store.rooms.files.cache.forget(file.id);
            }
            asked.fault(&rt).await;
            let mut sink = Collect::default();
            let failed = store.read(&read_of(Partitions::Key(key(1))), &mut sink).await;
            asked.fault(&rt).await;
            let error = failed.unwrap_err();
            assert!(error.to_string().contains(&first), "{error}");
            // As those do who have asked for it.
            store.note_failure(&error);
            {
                let told = told.borrow();
                let [StoreFailure::OutOfService(text)] = &told[..] else { panic!("{told:?}") };
                assert!(
                    text.starts_with(&format!(
                        "this shard no longer uses {first}, and 1 SSTables in it are missing"
                    )),
                    "{text}"
                );
            }
            assert_ne!(own_disk(&store), first);
            assert_eq!(read_all(&store).await, []);

            write(&store, &delete_row(1, 1, 200)).await.unwrap();
            write(&store, &insert(2, 1, "new", 200)).await.unwrap();
            store.flush(None).await.unwrap();
            write(&store, &insert(4, 1, "new", 200)).await.unwrap();
            store.flush(None).await.unwrap();
            store.compactor().compact_major(TABLE).await.unwrap();
            rt.sleep(Duration::from_secs(20)).await;
            assert_eq!(read_all(&store).await.len(), 2);
            let view = store.rooms.tables.table(TABLE).unwrap().view();
            let is_elsewhere = |f: &Rc<crate::tables::table_file::TableFile>| {
                !f.reader.meta().directory().starts_with(&first)
            };
            assert!(!view.files.is_empty() && view.files.iter().all(is_elsewhere));
            // Nothing of this is replayed.
            store.drain().await.unwrap();
            store.stop().await;
        }
    });
    run_in(&world, move |rt| async move {
        let (store, told) = open_on(&rt, &DISKS).await;
        assert_eq!(read_partition(&store, 1).await, [], "deleted while its file was missing");
        let mut rows = read_all(&store).await;
        rows.sort();
        assert_eq!(rows, [row(2, "new"), row(3, "old"), row(4, "new")]);
        assert!(told.borrow().is_empty(), "{told:?}");
        store.stop().await;
    });
}

#[test]
fn what_is_truncated_while_its_directory_is_missing_does_not_come_back() {
    let world = world(851);
    run_in(&world, move |rt| async move {
        let (store, _) = open_on(&rt, &DISKS).await;
        write(&store, &insert(1, 1, "old", 100)).await.unwrap();
        store.flush(None).await.unwrap();
        store.note_failure(&device_error(format!("{}/ks/a", own_disk(&store))));
        assert_eq!(read_all(&store).await, []);
        store.lifecycle().truncate(TABLE, TimestampMicros(1_000_000)).await.unwrap();
        write(&store, &insert(2, 1, "new", 200)).await.unwrap();
        store.flush(None).await.unwrap();
        store.stop().await;
    });
    run_in(&world, move |rt| async move {
        let (store, _) = open_on(&rt, &DISKS).await;
        assert_eq!(read_all(&store).await, [row(2, "new")]);
        store.stop().await;
    });
}

/// A write fails: the memtable is written elsewhere.
#[test]
fn a_flush_goes_to_another_directory_when_its_own_fails() {
    let world = world(852);
    let writes_fail: fn(&DiskControl) = |disk| disk.set_failing(Some(IoErrorKind::Device));
    let writes_go_on: fn(&DiskControl) = |disk| disk.set_failing(None);
    run_failing(&world, &[writes_fail, writes_go_on], |rt, asked| {
        async move {
            let (store, told) = open_on(&rt, &DISKS).await;
            let first = own_disk(&store);
            write(&store, &insert(1, 1, "a", 100)).await.unwrap();
            store.rooms.writer.switch_memtable(&store.rooms.tables.table(TABLE).unwrap());
            asked.fault(&rt).await;
            store.flush(None).await.unwrap_err();
            asked.fault(&rt).await;
            // Another one may have failed in the background.
            assert!(
                matches!(told.borrow().first(), Some(StoreFailure::OutOfService(_))),
                "{told:?}"
            );
            store.flush(None).await.unwrap();
            let view = store.rooms.tables.table(TABLE).unwrap().view();
            let [file] = &view.files[..] else { panic!("{} files", view.files.len()) };
            assert!(!file.reader.meta().directory().starts_with(&first));
            assert_eq!(read_all(&store).await, [row(1, "a")]);
            store.stop().await;
        }
    });
}

#[test]
fn what_is_no_failure_of_a_device_and_the_last_directory_stay_in_service() {
    run(853, |rt| async move {
        let (store, told) = open_on(&rt, &DISKS[..2]).await;
        write(&store, &insert(1, 1, "a", 100)).await.unwrap();
        store.flush(None).await.unwrap();
        let first = own_disk(&store);
        let missing = IoError {
            kind: IoErrorKind::NotFound,
            operation: "open",
            path: format!("{first}/ks/a"),
            detail: "gone".to_owned(),
        };
        for error in [StoreError::Io(missing), device_error("commitlog/a".to_owned())] {
            store.note_failure(&error);
            let last = told.borrow_mut().pop().unwrap();
            assert!(matches!(last, StoreFailure::Disk(_)), "{last:?}");
        }
        assert_eq!(read_all(&store).await, [row(1, "a")]);
        store.note_failure(&device_error(format!("{first}/ks/a")));
        let last = told.borrow_mut().pop().unwrap();
        assert!(matches!(last, StoreFailure::OutOfService(_)), "{last:?}");
        let other = own_disk(&store);
        assert_ne!(other, first);
        store.note_failure(&device_error(format!("{other}/ks/a")));
        let last = told.borrow_mut().pop().unwrap();
        assert!(matches!(last, StoreFailure::NoDirectory(_)), "{last:?}");
        assert_eq!(own_disk(&store), other);
        store.stop().await;
    });
}

/// Promises of Paxos and the batch log must not be forgotten.
#[test]
fn the_directory_of_the_local_keyspaces_stays_in_service() {
    run(854, |rt| async move {
        let mut local = table(TableOptions::default());
        local.id = TableId(Uuid::from_u128(0x12));
        local.keyspace = "system".into();
        let (store, told) = open_on(&rt, &DISKS).await;
        store.set_schema(schema_of(vec![table(TableOptions::default()), local]));
        store.note_failure(&device_error("disk1/ks/a".to_owned()));
        let last = told.borrow_mut().pop().unwrap();
        assert!(matches!(last, StoreFailure::NoDirectory(_)), "{last:?}");
        store.note_failure(&device_error("disk2/ks/a".to_owned()));
        let last = told.borrow_mut().pop().unwrap();
        assert!(matches!(last, StoreFailure::OutOfService(_)), "{last:?}");
        store.stop().await;
    });
}
