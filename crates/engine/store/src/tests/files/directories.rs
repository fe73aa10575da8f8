//! Files in several data directories. Most other tests have two of them too, in another order at each start.

use crate::tests::*;

const DISKS: [&str; 3] = ["disk1", "disk2", "disk3"];

async fn open_on(rt: &Rt, disks: [&str; 3]) -> Store {
    let mut options = options(rt);
    options.data_directories = disks.map(str::to_owned).to_vec();
    let mut of_table = TableOptions { gc_grace_seconds: i32::MAX, ..TableOptions::default() };
    of_table.compaction.insert("enabled".to_owned(), "false".to_owned());
    Store::open(rt.clone(), options, schema_of(vec![table(of_table)])).await.unwrap().0
}

/// Data files below each disk, without those of snapshots and backups.
fn data_files(world: &World) -> [usize; 3] {
    let all = world.disk("n1").list();
    DISKS.map(|disk| {
        let below = format!("/{disk}/ks/t-");
        let is_live = |f: &&String| {
            f.contains(&below) && f.ends_with("-Data.db") && !f.contains("/snapshots/")
        };
        all.iter().filter(is_live).count()
    })
}

/// Runs a step on every shard of a start, one after the other.
fn start_on<F: Future<Output = ()> + 'static>(
    world: &World,
    (shards, disks): (u16, [&'static str; 3]),
    step: impl Fn(Store) -> F + Send + Sync + Clone + 'static,
) {
    let done = Arc::new(Mutex::new(0));
    let count = done.clone();
    start(world, shards, move |rt| {
        let (step, count) = (step.clone(), count.clone());
        async move {
            let store = open_on(&rt, disks).await;
            while *count.lock().unwrap() != usize::from(rt.shard().0) {
                rt.sleep(Duration::from_millis(1)).await;
            }
            step(store.clone()).await;
            *count.lock().unwrap() += 1;
            while *count.lock().unwrap() < usize::from(rt.shard_count()) {
                rt.sleep(Duration::from_millis(1)).await;
            }
            store.stop().await;
        }
    });
    let all = usize::from(shards);
    world.run_until(|| *done.lock().unwrap() == all, Duration::from_secs(3600)).unwrap();
    world.run_for(Duration::from_secs(5));
}

fn own_keys(store: &Store) -> impl Iterator<Item = i32> {
    let (shard, shards) = store.rooms.env.shard();
    (0..60).filter(move |pk| shard_of(codec::token_of(&key(*pk)), shards).0 == shard)
}

/// INV-directories-1.
#[test]
fn shards_write_to_directories_of_their_own_and_read_from_all() {
    let world = world(150);
    let write_all = |value: &'static str, timestamp| {
        move |store: Store| async move {
            for pk in own_keys(&store) {
                write(&store, &insert(pk, 1, value, timestamp)).await.unwrap();
            }
            store.flush(None).await.unwrap();
        }
    };
    let expect = |value: &'static str| {
        move |store: Store| async move {
            for pk in own_keys(&store) {
                let found = read_partition(&store, pk).await;
                assert_eq!(found, [(pk, Some(1), None, Some(value.to_owned()))]);
            }
        }
    };
    start_on(&world, (3, DISKS), write_all("one", 1));
    assert_eq!(data_files(&world), [1, 1, 1]);
    // Another order, and fewer shards than directories: files are written elsewhere.
    start_on(&world, (3, ["disk3", "disk1", "disk2"]), expect("one"));
    start_on(&world, (2, ["disk2", "disk3", "disk1"]), write_all("two", 2));
    // A replay of the log may have been flushed too.
    assert!(data_files(&world).iter().sum::<usize>() >= 5);
    start_on(&world, (3, ["disk3", "disk1", "disk2"]), expect("two"));
    // Files in other directories are moved on request.
    start_on(&world, (2, DISKS), |store| async move {
        assert!(store.table_stats(TABLE).misplaced_sstables > 0);
        let moved = store.compactor().upgrade(TABLE, crate::UpgradeScope::Misplaced).await.unwrap();
        assert_eq!(store.table_stats(TABLE).misplaced_sstables, 0);
        assert!(moved > 0, "{moved} files");
        let own = store
            .rooms
            .files
            .directories
            .directory_of(&store.rooms.tables.table(TABLE).unwrap().version().table);
        let view = store.rooms.tables.table(TABLE).unwrap().view();
        assert!(view.files.iter().all(|file| file.reader.meta().directory() == own));
        assert_eq!(
            store.compactor().upgrade(TABLE, crate::UpgradeScope::Misplaced).await.unwrap(),
            0
        );
    });
    start_on(&world, (2, ["disk3", "disk2", "disk1"]), expect("two"));
    // Inputs of all directories are removed, and the outputs lie where the shards write.
    start_on(&world, (1, DISKS), |store| async move {
        store.compactor().compact_major(TABLE).await.unwrap()
    });
    assert_eq!(data_files(&world).iter().sum::<usize>(), 1, "{:?}", data_files(&world));
    start_on(&world, (1, ["disk2", "disk1", "disk3"]), expect("two"));
    start_on(&world, (2, DISKS), write_all("three", 3));
    assert!(data_files(&world).iter().sum::<usize>() >= 3);

    // A snapshot has its part in each of them, and is one.
    start_on(&world, (2, DISKS), |store| async move {
        store.lifecycle().snapshot("all", None).await.unwrap();
        if store.rooms.env.shard().0 == 1 {
            let snapshots = store.lifecycle().snapshots().await.unwrap();
            let [one] = snapshots.as_slice() else { panic!("{snapshots:?}") };
            assert!(one.disk_bytes > 0 && one.tag == "all");
        }
    });
    let in_snapshot = |world: &World| {
        let all = world.disk("n1").list();
        all.iter().filter(|f| f.contains("/snapshots/all/") && f.ends_with("-Data.db")).count()
    };
    assert_eq!(in_snapshot(&world), data_files(&world).iter().sum::<usize>());
    start_on(&world, (1, DISKS), |store| async move {
        store.lifecycle().clear_snapshot(Some("all"), None).await.unwrap();
        store.set_schema(schema_of(Vec::new()));
        store.rooms.env.rt.sleep(Duration::from_secs(5)).await;
    });
    assert_eq!((in_snapshot(&world), data_files(&world)), (0, [0, 0, 0]));
}

#[test]
fn a_copy_in_another_directory_is_refused_by_name() {
    let world = world(151);
    start_on(&world, (1, DISKS), |store| async move {
        write(&store, &insert(1, 1, "x", 1)).await.unwrap();
        store.flush(None).await.unwrap();
        let fs = store.rooms.env.rt.fs();
        let file = store.rooms.tables.table(TABLE).unwrap().view().files[0].clone();
        let meta = file.reader.meta();
        let other = DISKS.iter().find(|disk| !meta.directory().starts_with(**disk)).unwrap();
        let (_, below) = meta.directory().split_once('/').unwrap();
        fs.create_dir_all(&format!("{other}/{below}")).await.unwrap();
        for component in meta.components() {
            let name = meta.descriptor().file_name(*component);
            let bytes = fs.read(&meta.file(*component), 1 << 20).await.unwrap();
            fs.write_atomic(&format!("{other}/{below}/{name}"), bytes).await.unwrap();
        }
    });
    let seen: Arc<Mutex<Option<String>>> = Arc::default();
    let told = seen.clone();
    run_in(&world, move |rt| {
        let told = told.clone();
        async move {
            let mut options = options(&rt);
            options.data_directories = DISKS.map(str::to_owned).to_vec();
            let error = Store::open(rt, options, schema()).await.err().unwrap();
            *told.lock().unwrap() = Some(error.to_string());
        }
    });
    let text = seen.lock().unwrap().clone().unwrap();
    assert!(text.contains("disk1/ks/t-") && text.contains("have the same generation"), "{text}");
}
