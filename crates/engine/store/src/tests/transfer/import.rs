//! Import of file sets, on one shard and on several, and a crash at every IO of it.

use commitlog::SyncMode;
use rt::OpenOptions;
use rt::sim::CrashKind;

use crate::tests::everywhere::*;
use crate::tests::*;
use crate::{Descriptor, ImportOptions, Imported, OwnedRanges, Version};

/// Where the files come from: links of them, as a snapshot has them.
const SOURCE: &str = "import/ks/t";
const KEYS: i32 = 8;

/// No automatic compaction.
fn manual_schema() -> Arc<Schema> {
    let mut options = TableOptions { gc_grace_seconds: 0, ..TableOptions::default() };
    options.compaction.insert("min_threshold".to_owned(), "32".to_owned());
    schema_of(vec![table(options)])
}

async fn open_manual(rt: &Rt) -> Store {
    let options = StoreOptions { sync: SyncMode::Batch, auto_snapshot: false, ..options(rt) };
    Store::open(rt.clone(), options, manual_schema()).await.unwrap().0
}

fn directory(store: &Store) -> String {
    store
        .rooms
        .files
        .directories
        .directory_of(&store.rooms.tables.table(TABLE).unwrap().version().table)
}

async fn names(rt: &Rt, directory: &str) -> Vec<String> {
    rt.fs().read_dir(directory).await.unwrap().into_iter().map(|e| e.name).collect()
}

/// Two files: row 1 of each partition with its deletion in the other file, and row 2.
async fn write_files(store: &Store, keys: impl Iterator<Item = i32> + Clone) {
    for pk in keys.clone() {
        write(store, &insert(pk, 1, "gone", 100)).await.unwrap();
        write(store, &insert(pk, 2, "stays", 100)).await.unwrap();
    }
    store.flush(None).await.unwrap();
    for pk in keys {
        write(store, &delete_row(pk, 1, 200)).await.unwrap();
    }
    store.flush(None).await.unwrap();
}

/// Moves the files of the table below [`SOURCE`], as if another node had written them.
async fn set_aside(rt: &Rt) {
    let store = open_manual(rt).await;
    write_files(&store, 0..KEYS).await;
    store.drain().await.unwrap();
    let from = directory(&store);
    store.stop().await;
    let fs = rt.fs();
    fs.create_dir_durably(SOURCE).await.unwrap();
    for name in names(rt, &from).await {
        fs.rename(&format!("{from}/{name}"), &format!("{SOURCE}/{name}")).await.unwrap();
    }
    fs.sync_dir(&from).await.unwrap();
    fs.sync_dir(SOURCE).await.unwrap();
}

fn verified() -> ImportOptions {
    ImportOptions { verify: true, ..ImportOptions::default() }
}

async fn import(store: &Store, options: &ImportOptions) -> Imported {
    let done = store.transfer().import(TABLE, &[SOURCE.to_owned()], options).await.unwrap();
    store.transfer().adopt(TABLE, &done.files).await.unwrap();
    done
}

fn expected() -> Rows {
    (0..KEYS).map(|pk| ((pk, 2), "stays".to_owned())).collect()
}

#[test]
fn files_of_a_directory_become_files_of_the_table_and_stay_so() {
    run(400, |rt| async move {
        set_aside(&rt).await;
        let store = open_manual(&rt).await;
        write(&store, &insert(0, 3, "own", 100)).await.unwrap();
        let done = import(&store, &verified()).await;
        assert_eq!((done.files.len(), done.failed.len(), done.left.len()), (2, 0, 0));
        assert_eq!(names(&rt, SOURCE).await, Vec::<String>::new());
        let mut rows = expected();
        rows.insert((0, 3), "own".to_owned());
        assert_eq!(rows_of(&read_all(&store).await), rows);
        // Nothing is taken in twice, and an empty directory has nothing.
        assert_eq!(store.transfer().adopt(TABLE, &done.files).await, Ok(0));
        assert_eq!(import(&store, &verified()).await, Imported::default());
        store.stop().await;
        let store = open_manual(&rt).await;
        assert_eq!(rows_of(&read_all(&store).await), rows);
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(rows_of(&read_all(&store).await), rows);
        assert_eq!(store.table_stats(TABLE).sstables, 1);
    });
}

#[test]
fn a_copy_leaves_the_directory_as_it_was() {
    run(401, |rt| async move {
        set_aside(&rt).await;
        let before = names(&rt, SOURCE).await;
        let store = open_manual(&rt).await;
        let options = ImportOptions { copy: true, ..verified() };
        for round in 1..=2 {
            assert_eq!(import(&store, &options).await.files.len(), 2);
            assert_eq!(names(&rt, SOURCE).await, before);
            assert_eq!(store.table_stats(TABLE).sstables, 2 * round);
            assert_eq!(rows_of(&read_all(&store).await), expected());
        }
    });
}

/// INV-import-1.
#[test]
fn a_refused_directory_is_named_and_left_as_it_was_and_others_are_taken() {
    run(402, |rt| async move {
        set_aside(&rt).await;
        let (fs, other) = (rt.fs(), "import/bad");
        fs.create_dir_durably(other).await.unwrap();
        for name in names(&rt, SOURCE).await {
            let bytes = fs.read(&format!("{SOURCE}/{name}"), 1 << 20).await.unwrap();
            let is_data = name.ends_with("-Data.db");
            let bytes = if is_data { flipped(bytes) } else { bytes };
            fs.write_atomic(&format!("{other}/{name}"), bytes).await.unwrap();
        }
        let before = names(&rt, other).await;
        let store = open_manual(&rt).await;
        let own = directory(&store);
        let directories = [other.to_owned(), format!("{SOURCE}/"), own.clone()];
        let done = store.transfer().import(TABLE, &directories, &verified()).await.unwrap();
        // In the order of their names; which one the own has is left to chance.
        let failed: BTreeMap<&str, &StoreError> =
            done.failed.iter().map(|(d, why)| (d.as_str(), why)).collect();
        assert_eq!(failed.len(), 2, "{failed:?}");
        assert!(failed.contains_key(own.as_str()), "{failed:?}");
        assert!(matches!(failed[other], StoreError::Corrupt { .. }), "{failed:?}");
        assert_eq!(names(&rt, other).await, before);
        assert_eq!(done.files.len(), 2);
        store.transfer().adopt(TABLE, &done.files).await.unwrap();
        assert_eq!(rows_of(&read_all(&store).await), expected());
        let missing =
            store.transfer().import(TABLE, &["import/none".to_owned()], &verified()).await;
        let text = "Directory import/none does not exist".to_owned();
        assert_eq!(missing, Err(StoreError::Invalid(text)));
    });
}

/// Changes the last byte.
fn flipped(mut bytes: Vec<u8>) -> Vec<u8> {
    *bytes.last_mut().unwrap() ^= 1;
    bytes
}

#[test]
fn a_file_set_without_its_toc_and_one_of_another_table_are_refused() {
    run(403, |rt| async move {
        set_aside(&rt).await;
        let store = open_manual(&rt).await;
        let toc = names(&rt, SOURCE).await.into_iter().find(|n| n.ends_with("TOC.txt")).unwrap();
        let bytes = rt.fs().read(&format!("{SOURCE}/{toc}"), 1 << 10).await.unwrap();
        rt.fs().remove_file(&format!("{SOURCE}/{toc}")).await.unwrap();
        let done = import(&store, &verified()).await;
        let (_, error) = &done.failed[0];
        assert!(error.to_string().contains("is not complete: it has no TOC.txt"), "{error}");
        rt.fs().write_atomic(&format!("{SOURCE}/{toc}"), bytes).await.unwrap();
        store.stop().await;
        let mut narrow = table(TableOptions::default());
        narrow.columns.retain(|c| c.id != VALUE);
        let schema = schema_of(vec![narrow]);
        let (store, _) = Store::open(rt.clone(), options(&rt), schema).await.unwrap();
        let done = import(&store, &ImportOptions::default()).await;
        assert_eq!((done.files.len(), done.failed.len()), (0, 1));
        assert_eq!(store.table_stats(TABLE).sstables, 0);
    });
}

#[test]
fn partitions_that_are_not_owned_are_refused_unless_nobody_looks() {
    run(404, |rt| async move {
        set_aside(&rt).await;
        let store = open_manual(&rt).await;
        let mut tokens: Vec<Token> = (0..KEYS).map(|pk| codec::token_of(&key(pk))).collect();
        tokens.sort_unstable();
        let (first, last) = (tokens[0], tokens[tokens.len() - 1]);
        let hole = tokens[3];
        let owned = |ranges: Vec<(Token, Token)>| ImportOptions {
            owned: Some(OwnedRanges::new(ranges)),
            ..verified()
        };
        let before = |token: Token| Token(token.0 - 1);
        // The ends are owned, one in the middle is not.
        let done = import(&store, &owned(vec![(Token::MIN, before(hole)), (hole, last)])).await;
        let (_, error) = &done.failed[0];
        let text = format!("has a partition of token {}, which this node does not own", hole.0);
        assert!(error.to_string().ends_with(&text), "{error}");
        assert_eq!(read_all(&store).await, vec![]);
        // Owned in pieces, but all of it.
        let done = import(&store, &owned(vec![(before(first), hole), (hole, last)])).await;
        assert_eq!((done.failed.len(), done.files.len()), (0, 2), "{done:?}");
    });
}

#[test]
fn level_and_repair_become_none_unless_they_are_kept() {
    run(405, |rt| async move {
        set_aside(&rt).await;
        let fs = rt.fs();
        for (descriptor, _) in sstable::list_sstables(&fs, SOURCE).await.unwrap() {
            let reader = sstable::SstableReader::open(&fs, SOURCE, descriptor, None).await.unwrap();
            sstable::repair_state::write_level(&fs, reader.meta(), 3).await.unwrap();
            let state = sstable::repair_state::RepairState { repaired_at: 77, pending: None };
            sstable::repair_state::write_repair_state(&fs, reader.meta(), state).await.unwrap();
        }
        let store = open_manual(&rt).await;
        let of = |store: &Store| -> Vec<(i32, i64)> {
            let view = store.rooms.tables.table(TABLE).unwrap().view();
            let stats = view.files.iter().map(|f| f.reader.meta().statistics().stats.clone());
            stats.map(|s| (s.level, s.repaired_at)).collect()
        };
        let kept =
            ImportOptions { keep_level: true, keep_repaired: true, copy: true, ..verified() };
        import(&store, &kept).await;
        assert_eq!(of(&store), [(3, 77); 2]);
        import(&store, &ImportOptions { keep_level: false, ..kept }).await;
        assert_eq!(of(&store)[2..], [(0, 77); 2]);
        // The source is not written to: its own links keep what they say.
        let reader = |d| sstable::SstableReader::open(&fs, SOURCE, d, None);
        let (descriptor, _) = sstable::list_sstables(&fs, SOURCE).await.unwrap()[0];
        assert_eq!(reader(descriptor).await.unwrap().meta().statistics().stats.level, 3);
        import(&store, &verified()).await;
        assert_eq!(of(&store)[4..], [(0, 0); 2]);
        assert_eq!(rows_of(&read_all(&store).await), expected());
    });
}

#[test]
fn a_refresh_takes_what_somebody_put_into_the_tables_directory() {
    run(406, |rt| async move {
        set_aside(&rt).await;
        let store = open_manual(&rt).await;
        write(&store, &insert(50, 1, "own", 1)).await.unwrap();
        store.flush(None).await.unwrap();
        assert_eq!(store.transfer().claim_new_files(TABLE).await, Ok(vec![]));
        let own = directory(&store);
        let fs = rt.fs();
        let sets = sstable::list_sstables(&fs, SOURCE).await.unwrap();
        for (n, (set, _)) in (1000_u64..).zip(sets) {
            let target = Descriptor::new(set.version, stdx::Generation(n));
            for component in sstable::Component::ALL {
                let from = format!("{SOURCE}/{}", set.file_name(component));
                if fs.exists(&from).await.unwrap() {
                    let to = format!("{own}/{}", target.file_name(component));
                    fs.hard_link(&from, &to).await.unwrap();
                }
            }
        }
        assert_eq!(store.transfer().unknown_files(TABLE).await, Ok(vec![]));
        let new = store.transfer().claim_new_files(TABLE).await.unwrap();
        assert_eq!(new.iter().map(|d| d.generation.0).collect::<Vec<_>>(), [1000, 1001]);
        // A table of other types does not take them.
        let mut other = manual_schema().table_by_id(TABLE).unwrap().as_ref().clone();
        other.columns.iter_mut().find(|c| c.id == VALUE).unwrap().ty = CqlType::Int;
        store.set_schema(schema_of(vec![other]));
        let refused = store.transfer().refresh(TABLE, &new).await.unwrap_err().to_string();
        assert!(refused.contains("of another table: ") && refused.contains("int"), "{refused}");
        assert!(names(&rt, &own).await.iter().any(|n| n.contains("-1000-")));
        store.set_schema(manual_schema());
        let done = store.transfer().refresh(TABLE, &new).await.unwrap();
        store.transfer().adopt(TABLE, &done.files).await.unwrap();
        assert_eq!(done.files.len(), 2);
        assert!(done.files.iter().all(|d| d.generation.0 > 1001), "{done:?}");
        assert!(!names(&rt, &own).await.iter().any(|n| n.contains("-1000-")));
        let mut rows = expected();
        rows.insert((50, 1), "own".to_owned());
        assert_eq!(rows_of(&read_all(&store).await), rows);
        assert_eq!(store.transfer().claim_new_files(TABLE).await, Ok(vec![]));
        assert_eq!(store.transfer().unknown_files(TABLE).await, Ok(vec![]));
        store.stop().await;
        let store = open_manual(&rt).await;
        assert_eq!(rows_of(&read_all(&store).await), rows);
    });
}

/// The truncation is later than every row of the files. INV-import-3.
#[test]
fn a_truncation_between_import_and_adoption_counts_as_before_the_import() {
    run(408, |rt| async move {
        set_aside(&rt).await;
        let store = open_manual(&rt).await;
        write(&store, &insert(50, 1, "own", 1)).await.unwrap();
        store.flush(None).await.unwrap();
        let table = store.transfer();
        let done = table.import(TABLE, &[SOURCE.to_owned()], &verified()).await.unwrap();
        let at = TimestampMicros(rt.wall().0);
        store.lifecycle().truncate(TABLE, at).await.unwrap();
        store.transfer().adopt(TABLE, &done.files).await.unwrap();
        assert_eq!(rows_of(&read_all(&store).await), expected());
        store.stop().await;
        let store = open_manual(&rt).await;
        assert_eq!(rows_of(&read_all(&store).await), expected());
    });
}

#[test]
fn files_whose_numbers_are_in_use_are_named_and_not_claimed() {
    run(407, |rt| async move {
        set_aside(&rt).await;
        let store = open_manual(&rt).await;
        for pk in 0..3 {
            write(&store, &insert(pk, 1, "own", 1)).await.unwrap();
            store.flush(None).await.unwrap();
        }
        store.compactor().compact_major(TABLE).await.unwrap();
        let (own, fs) = (directory(&store), rt.fs());
        let (set, _) = sstable::list_sstables(&fs, SOURCE).await.unwrap().remove(0);
        let target = Descriptor::new(set.version, stdx::Generation(1));
        assert!(!names(&rt, &own).await.iter().any(|name| name.starts_with(&target.prefix())));
        for component in sstable::Component::ALL {
            let from = format!("{SOURCE}/{}", set.file_name(component));
            if fs.exists(&from).await.unwrap() {
                let to = format!("{own}/{}", target.file_name(component));
                fs.hard_link(&from, &to).await.unwrap();
            }
        }
        let named = vec![format!("{own}/{}", target.prefix())];
        assert_eq!(store.transfer().unknown_files(TABLE).await, Ok(named));
        assert_eq!(store.transfer().claim_new_files(TABLE).await, Ok(vec![]));
        store.stop().await;
    });
}

#[test]
fn files_of_every_written_version_are_taken() {
    run(407, |rt| async move {
        for (n, version) in (0_i32..).zip(sstable::WriterOptions::VERSIONS) {
            let options = StoreOptions { sstable_version: version, ..options(&rt) };
            let (store, _) = Store::open(rt.clone(), options, manual_schema()).await.unwrap();
            write(&store, &insert(n, 1, version.letters(), 1)).await.unwrap();
            store.flush(None).await.unwrap();
            let from = directory(&store);
            let to = format!("import/{version}");
            store.drain().await.unwrap();
            store.stop().await;
            rt.fs().create_dir_durably(&to).await.unwrap();
            for name in names(&rt, &from).await {
                rt.fs().rename(&format!("{from}/{name}"), &format!("{to}/{name}")).await.unwrap();
            }
        }
        let store = open_manual(&rt).await;
        let directories: Vec<String> =
            sstable::WriterOptions::VERSIONS.iter().map(|v| format!("import/{v}")).collect();
        let done = store.transfer().import(TABLE, &directories, &verified()).await.unwrap();
        let versions: std::collections::BTreeSet<Version> =
            done.files.iter().map(|d| d.version).collect();
        assert_eq!(versions.into_iter().collect::<Vec<_>>(), sstable::WriterOptions::VERSIONS);
        store.transfer().adopt(TABLE, &done.files).await.unwrap();
        assert_eq!(read_all(&store).await.len(), sstable::WriterOptions::VERSIONS.len());
    });
}

#[derive(Clone, Default)]
struct Shared {
    opened: Barrier,
    adopted: Barrier,
    files: Arc<Mutex<Option<Vec<Descriptor>>>>,
    acknowledged: Arc<Mutex<bool>>,
}

/// The first shard takes the files in, every shard adopts them; then each compacts what it has.
async fn import_on_shards(rt: Rt, shared: Shared, barrier: Barrier) {
    let options = StoreOptions { sync: SyncMode::Batch, ..options(&rt) };
    let store = Store::open(rt.clone(), options, manual_schema()).await.unwrap().0;
    shared.opened.wait(&rt).await;
    barrier.arm(&rt).await;
    if rt.shard().0 == 0 {
        let done = store.transfer().import(TABLE, &[SOURCE.to_owned()], &verified()).await;
        let Ok(done) = done else { return };
        *shared.files.lock().unwrap() = Some(done.files);
    }
    while shared.files.lock().unwrap().is_none() {
        rt.sleep(Duration::from_micros(100)).await;
    }
    let files = shared.files.lock().unwrap().clone().unwrap();
    if store.transfer().adopt(TABLE, &files).await.is_err() {
        return;
    }
    shared.adopted.wait(&rt).await;
    *shared.acknowledged.lock().unwrap() = true;
    let seen = rows_of(&read_all(&store).await);
    let shard = rt.shard();
    let mine = |pk: i32| shard_of(codec::token_of(&key(pk)), rt.shard_count()) == shard;
    let own: Rows = expected().into_iter().filter(|((pk, _), _)| mine(*pk)).collect();
    assert_eq!(seen, own);
    let _ = store.compactor().compact_major(TABLE).await;
}

/// One file has the deletions for another one's data: with half of them rows would be resurrected.
/// INV-import-2.
#[test]
fn a_crash_at_every_io_of_an_import_leaves_all_of_it_or_nothing() {
    let prepare =
        |world: &World, _: &Shared| run_in(world, |rt| async move { set_aside(&rt).await });
    for shards in [1, 2] {
        for kind in [CrashKind::Kill, CrashKind::PowerCut, CrashKind::PowerCutLosingAll] {
            let crash = Crash { name: "import", kind, shards, step: 1 };
            crash_everywhere(crash, prepare, import_on_shards, |world, shared, (_, place)| {
                let acknowledged = *shared.acknowledged.lock().unwrap();
                // Also when another number of shards opens what was left.
                for shards in [shards, 3, 1] {
                    let rows = rows_after_restart(world, shards, &manual_schema(), place);
                    let fits = rows == expected() || (!acknowledged && rows.is_empty());
                    assert!(fits, "{place}, {shards} shards: {rows:?}");
                }
                check_source(world, place);
            });
        }
    }
}

/// The rows are in the table, or can be imported still.
fn check_source(world: &World, place: &str) {
    let place = place.to_owned();
    run_in(world, move |rt| {
        let place = place.clone();
        async move {
            let store = open_manual(&rt).await;
            if read_all(&store).await.is_empty() {
                let done = import(&store, &verified()).await;
                assert_eq!(done.failed, vec![], "{place}");
            }
            assert_eq!(rows_of(&read_all(&store).await), expected(), "{place}");
        }
    });
}

#[test]
fn what_a_failed_import_has_placed_goes() {
    run(408, |rt| async move {
        set_aside(&rt).await;
        let store = open_manual(&rt).await;
        let fs = rt.fs();
        let own = directory(&store);
        // The second set's place is taken.
        let sets = sstable::list_sstables(&fs, SOURCE).await.unwrap();
        let taken = Descriptor::new(sets[1].0.version, stdx::Generation(2));
        let path = format!("{own}/{}", taken.file_name(sstable::Component::Filter));
        let options = OpenOptions { write: true, create: true, ..OpenOptions::default() };
        drop(fs.open(&path, options).await.unwrap());
        let before = names(&rt, SOURCE).await;
        let done = import(&store, &verified()).await;
        assert_eq!((done.files.len(), done.failed.len()), (0, 1), "{done:?}");
        assert_eq!(names(&rt, SOURCE).await, before);
        assert!(!names(&rt, &own).await.iter().any(|n| n.contains("-1-")));
        assert_eq!(import(&store, &verified()).await.files.len(), 2);
        assert_eq!(rows_of(&read_all(&store).await), expected());
    });
}
