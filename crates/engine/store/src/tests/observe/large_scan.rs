//! Files that were not written here are scanned for large data.

use std::cell::RefCell;
use std::rc::Rc;

use crate::ImportOptions;
use crate::observe::large_partitions::LargeThresholds;
use crate::tables::large_files::{LargeEvent, LargeFile};
use crate::tests::observe::large_partitions::{THRESHOLDS, insert_map, schema_with_map, told_of};
use crate::tests::*;

type Events = Rc<RefCell<Vec<LargeEvent>>>;

/// A store of the node with this number, and its reports from now on.
async fn open_as(rt: &Rt, host: u128, data: Option<&str>) -> (Store, Events) {
    let mut options = options(rt);
    options.host = HostId(Uuid::from_u128(host));
    options.sstable_version = sstable::Version::Nb;
    options.auto_snapshot = false;
    if let Some(data) = data {
        options.data_directories = vec![data.to_owned()];
        options.commitlog_directory = format!("{data}-log");
    }
    let store = Store::open(rt.clone(), options, schema_with_map()).await.unwrap().0;
    (store, Events::default())
}

/// Tells from now on, as a node that has started.
fn listen(store: &Store, events: &Events, thresholds: LargeThresholds) {
    store.observer().set_large_thresholds(thresholds);
    let told = events.clone();
    store.observer().on_large_data(move |event| told.borrow_mut().push(event));
}

async fn take(rt: &Rt, events: &Events) -> Vec<String> {
    rt.sleep(Duration::from_secs(5)).await;
    let mut told: Vec<String> = events.take().iter().flat_map(told_of).collect();
    told.sort();
    told
}

/// A file with everything that is reported, and smaller things.
async fn fill(store: &Store) {
    write(store, &insert(1, 1, &"x".repeat(2_001), 6)).await.unwrap();
    write(store, &insert_map(1, 2, 51)).await.unwrap();
    write(store, &insert_map(1, 3, 50)).await.unwrap();
    write(store, &insert(3, 3, &"x".repeat(3_000), 6)).await.unwrap();
    write(store, &insert_static(3, &"y".repeat(2_500), 6)).await.unwrap();
    write(store, &insert_static(4, &"y".repeat(4_500), 6)).await.unwrap();
    for ck in 0..18 {
        write(store, &insert(2, ck, "x", 6)).await.unwrap();
        write(store, &insert(5, ck, &"x".repeat(1_900), 6)).await.unwrap();
    }
    for ck in 18..22 {
        write(store, &delete_row(2, ck, 6)).await.unwrap();
        write(store, &insert(5, ck, &"x".repeat(1_900), 6)).await.unwrap();
    }
    write(store, &delete_range(2, 30, 40, 6)).await.unwrap();
    write(store, &delete_range(2, 40, 50, 7)).await.unwrap();
    write(store, &delete_partition(3, 1)).await.unwrap();
    store.flush(None).await.unwrap();
}

const EXPECT: [&str; 9] = [
    "cell 1 1 v 2001 0",
    "cell 1 2 m 255 51",
    "cell 3  s 2500 0",
    "cell 3 3 v 3000 0",
    "cell 4  s 4500 0",
    "partition 2 22 rows 2 ranges 4 dead",
    "partition 5 22 rows 0 ranges 0 dead",
    "row 3 3",
    "row 4 ",
];

fn expect() -> Vec<&'static str> {
    EXPECT.to_vec()
}

/// The report of one file, without its time.
fn found(events: &Events) -> LargeFile {
    let all = events.take();
    let [LargeEvent::Found(file)] = all.as_slice() else { panic!("{all:?}") };
    let mut file = file.clone();
    file.at = stdx::WallMicros(0);
    file.partitions.sort_by(|a, b| a.partition_key.cmp(&b.partition_key));
    file
}

/// INV-large-1.
#[test]
fn what_is_found_in_a_file_is_what_its_writer_tells_of_it() {
    for seed in 0..12 {
        run(1_500 + seed, |rt| async move {
            // Files of any version, compressed or not.
            let opened = Store::open(rt.clone(), options(&rt), schema_with_map()).await;
            let (store, events) = (opened.unwrap().0, Events::default());
            listen(&store, &events, THRESHOLDS);
            fill(&store).await;
            let table = store.rooms.tables.table(TABLE).unwrap();
            rt.sleep(Duration::from_secs(2)).await;
            let written = found(&events);
            assert!(written.partitions.len() == 2 && written.rows.len() == 2, "{written:?}");
            store.rooms.observer.look_through(&table, table.view().files.iter());
            rt.sleep(Duration::from_secs(2)).await;
            assert_eq!(found(&events), written);
            // Each is reported alone when only its limit is below it.
            for (n, row_bytes) in [(0, u64::MAX), (1, 4_000), (2, 3_000)] {
                let thresholds = LargeThresholds { row_bytes, ..LargeThresholds::default() };
                store.observer().set_large_thresholds(thresholds);
                store.rooms.observer.look_through(&table, table.view().files.iter());
                rt.sleep(Duration::from_secs(2)).await;
                let told: Vec<LargeEvent> = events.take();
                let rows: usize = told
                    .iter()
                    .map(|event| match event {
                        LargeEvent::Found(file) => file.rows.len(),
                        LargeEvent::Gone(_) => panic!("{told:?}"),
                    })
                    .sum();
                assert_eq!(rows, n, "{row_bytes}");
            }
            store.stop().await;
        });
    }
}

#[test]
fn files_of_another_node_in_the_directory_are_looked_through_once() {
    let world = world(1_520);
    run_in(&world, |rt| async move {
        let (store, events) = open_as(&rt, 1, None).await;
        fill(&store).await;
        listen(&store, &events, THRESHOLDS);
        // Its own, written before there were thresholds.
        assert_eq!(take(&rt, &events).await, Vec::<String>::new());
        store.stop().await;

        let (store, events) = open_as(&rt, 2, None).await;
        rt.sleep(Duration::from_secs(5)).await;
        // No receiver is registered yet, and thresholds are unknown.
        listen(&store, &events, THRESHOLDS);
        assert_eq!(take(&rt, &events).await, expect());
        store.stop().await;

        let (store, events) = open_as(&rt, 2, None).await;
        listen(&store, &events, THRESHOLDS);
        assert_eq!(take(&rt, &events).await, Vec::<String>::new());
        // Its end is reported all the same, once a receiver is registered.
        let view = store.rooms.tables.table(TABLE).unwrap().view();
        let file = view.files[0].reader.meta().file(sstable::Component::Data);
        let file = file.rsplit('/').next().unwrap().to_owned();
        let name = crate::tables::large_files::SstableName {
            keyspace: "ks".to_owned(),
            table: "t".to_owned(),
            sstable: file,
        };
        assert_eq!(
            store.observer().large_fate(&name),
            crate::observe::large_partitions::LargeFate::Used
        );
        store.lifecycle().truncate(TABLE, TimestampMicros(1_000)).await.unwrap();
        assert_eq!(take(&rt, &events).await, ["-t"]);
        store.stop().await;
    });
}

#[test]
fn a_look_that_a_restart_cut_off_begins_again() {
    let world = world(1_521);
    run_in(&world, |rt| async move {
        let (store, _) = open_as(&rt, 1, None).await;
        fill(&store).await;
        // Enough that it is not through at once.
        for pk in 10..30 {
            for ck in 0..60 {
                write(&store, &insert(pk, ck, &"z".repeat(20_000), 6)).await.unwrap();
            }
        }
        store.flush(None).await.unwrap();
        store.compactor().compact_major(TABLE).await.unwrap();
        // Nothing of it is in the log, from which it would be rewritten.
        store.drain().await.unwrap();
        store.stop().await;
        let (store, events) = open_as(&rt, 2, None).await;
        listen(&store, &events, THRESHOLDS);
        rt.sleep(Duration::from_millis(200)).await;
        let shown = store.files().slots().compactions();
        assert!(shown.iter().any(|c| c.reason.starts_with("looking for large")), "{shown:?}");
        store.stop().await;
        assert!(events.borrow().is_empty(), "{} events, {shown:?}", events.borrow().len());
        let (store, events) = open_as(&rt, 2, None).await;
        listen(&store, &events, THRESHOLDS);
        assert!(take(&rt, &events).await.len() >= 109);
        assert_eq!(store.files().slots().compactions(), []);
        store.stop().await;
    });
}

#[test]
fn imported_files_are_looked_through_also_those_that_this_node_has_written() {
    for host in [1, 2] {
        let world = world(1_522);
        run_in(&world, move |rt| async move {
            let (store, _) = open_as(&rt, 1, Some("one")).await;
            fill(&store).await;
            let from = store
                .rooms
                .files
                .directories
                .directory_of(&store.rooms.tables.table(TABLE).unwrap().version().table);
            store.stop().await;
            let fs = rt.fs();
            fs.create_dir_durably("import").await.unwrap();
            for entry in fs.read_dir(&from).await.unwrap().into_iter().filter(|e| !e.is_dir) {
                let to = format!("import/{}", entry.name);
                fs.rename(&format!("{from}/{}", entry.name), &to).await.unwrap();
            }
            let (store, events) = open_as(&rt, host, Some("one")).await;
            let done = store
                .transfer()
                .import(TABLE, &["import".to_owned()], &ImportOptions::default())
                .await
                .unwrap();
            assert_eq!(store.transfer().adopt(TABLE, &done.files).await, Ok(1));
            // The node restarts before a receiver is registered.
            store.stop().await;
            let (store, events_later) = open_as(&rt, host, Some("one")).await;
            listen(&store, &events_later, THRESHOLDS);
            assert_eq!(take(&rt, &events_later).await, expect(), "{host}");
            assert!(events.borrow().is_empty());
            store.stop().await;
            let (store, events) = open_as(&rt, host, Some("one")).await;
            listen(&store, &events, THRESHOLDS);
            assert_eq!(take(&rt, &events).await, Vec::<String>::new());
            store.stop().await;
        });
    }
}

#[test]
fn files_that_come_whole_are_looked_through() {
    run(1_523, |rt| async move {
        let (from, _) = open_as(&rt, 1, Some("one")).await;
        let (to, events) = open_as(&rt, 2, Some("two")).await;
        listen(&to, &events, THRESHOLDS);
        fill(&from).await;
        let full = (Token::MIN, Token::MAX);
        let versions = sstable::WriterOptions::VERSIONS;
        let held = from
            .transfer()
            .hold(TABLE, &[full], 0, &crate::tests::transfer::file_streams::taken(&versions))
            .await
            .unwrap()
            .unwrap();
        let mut ingest = to.transfer().ingest(TABLE).await.unwrap();
        let [file] = held.files() else { panic!("{} files", held.files().len()) };
        crate::tests::transfer::file_streams::give(file, &mut ingest, |_, _| ()).await.unwrap();
        assert_eq!(take(&rt, &events).await, Vec::<String>::new());
        ingest.finish().await.unwrap();
        assert_eq!(take(&rt, &events).await, expect());
        to.compactor().compact_major(TABLE).await.unwrap();
        let mut after = expect();
        after.insert(0, "-t");
        assert_eq!(take(&rt, &events).await, after);
        from.stop().await;
        to.stop().await;
    });
}
