//! Encrypted files of a store: flushes, compactions, restarts, imports, saved caches, streams.

use std::collections::BTreeSet;

use at_rest::{KeyRing, generated_line, parse_keys};
use sstable::{Component, Descriptor, Sealing};

use crate::read::row_cache::saved_keys::ROWS;
use crate::tests::transfer::file_streams::{FULL, VERSIONS, taken};
use crate::tests::*;
use crate::{ImportOptions, SealingPolicy, UpgradeScope, VerifyOptions};

const TEXT: &str = "text of a row that must stay secret";

pub(crate) fn ring(id: &str) -> Option<Arc<KeyRing>> {
    let line = generated_line(id, [id.as_bytes()[0]; 32]).unwrap();
    Some(Arc::new(parse_keys(&line).unwrap().ring))
}

/// Files of users' tables are encrypted.
pub(crate) fn sealed_tables() -> SealingPolicy {
    SealingPolicy { user: Sealing::Sealed, ..SealingPolicy::default() }
}

fn sealed_options(rt: &Rt) -> StoreOptions {
    // The commit log is encrypted by keys of its own.
    let keys = format!("{}\n{}", "a".repeat(64), "b".repeat(64));
    let keys = commitlog::Keys::parse(&keys).unwrap();
    StoreOptions { sealing: sealed_tables(), commitlog_keys: Some(keys), ..options(rt) }
}

async fn open_sealed(rt: &Rt) -> Store {
    rt.set_file_keys(ring("key"));
    let mut of_table = TableOptions { gc_grace_seconds: i32::MAX, ..TableOptions::default() };
    of_table.compaction.insert("enabled".to_owned(), "false".to_owned());
    let schema = schema_of(vec![table(of_table)]);
    Store::open(rt.clone(), sealed_options(rt), schema).await.unwrap().0
}

async fn fill(store: &Store, from: i32) {
    for pk in from..from + 60 {
        write(store, &insert(pk, pk, TEXT, 1)).await.unwrap();
    }
    store.flush(None).await.unwrap();
}

fn are_sealed(store: &Store) -> BTreeSet<bool> {
    let view = store.rooms.tables.table(TABLE).unwrap().view();
    view.files.iter().map(|file| file.reader.meta().is_sealed()).collect()
}

/// No file of the node has a text of its rows; the components of SSTables are sealed.
fn check_disk(world: &World) {
    let disk = world.disk("n1");
    let mut components = BTreeSet::new();
    for path in disk.list() {
        let bytes = disk.read(&path).unwrap();
        let text = TEXT.as_bytes();
        assert!(!bytes.windows(text.len()).any(|w| w == text), "{path}");
        let name = path.rsplit('/').next().unwrap();
        if let Some((_, component)) = Descriptor::parse(name) {
            let clear = matches!(component, Component::Toc | Component::Encryption);
            assert_eq!(at_rest::is_sealed(&bytes), !clear, "{path}");
            components.insert(component);
        }
    }
    assert!(components.len() >= 8, "{components:?}");
}

#[test]
fn flushes_compactions_and_snapshots_are_encrypted_and_survive_a_restart() {
    for seed in 7100..7104 {
        let world = world(seed);
        run_in(&world, |rt| async move {
            let store = open_sealed(&rt).await;
            fill(&store, 0).await;
            fill(&store, 40).await;
            let rows = read_all(&store).await;
            assert_eq!((rows.len(), are_sealed(&store)), (100, BTreeSet::from([true])));
            store.compactor().compact_major(TABLE).await.unwrap();
            fill(&store, 100).await;
            let how = VerifyOptions { extended: true, ..VerifyOptions::default() };
            assert_eq!(store.verifier().verify(TABLE, &how).await.unwrap(), []);
            store.stop().await;
            let store = open_sealed(&rt).await;
            assert_eq!(read_all(&store).await.len(), 160);
            assert_eq!(are_sealed(&store), BTreeSet::from([true]));
            store.stop().await;
        });
        check_disk(&world);
    }
}

#[test]
fn a_start_without_the_key_is_refused_by_file_and_key_and_changes_nothing() {
    let world = world(7110);
    run_in(&world, |rt| async move {
        let store = open_sealed(&rt).await;
        fill(&store, 0).await;
        store.stop().await;
        for keys in [None, ring("other")] {
            rt.set_file_keys(keys);
            let mut of_store = sealed_options(&rt);
            // Not even where damaged files are put up with.
            of_store.starts_with_damaged_files = true;
            let refused = Store::open(rt.clone(), of_store, schema()).await;
            let text = refused.err().unwrap().to_string();
            assert!(text.contains("-Data.db"), "{text}");
            assert!(text.contains("key \"key\" of key-file"), "{text}");
        }
        let store = open_sealed(&rt).await;
        assert_eq!(read_all(&store).await.len(), 60);
        store.stop().await;
    });
    check_disk(&world);
}

#[test]
fn files_of_either_kind_are_read_and_an_upgrade_of_all_changes_the_kind() {
    run(7120, |rt| async move {
        let plain = open(&rt).await;
        fill(&plain, 0).await;
        plain.stop().await;
        let store = open_sealed(&rt).await;
        fill(&store, 60).await;
        assert_eq!(are_sealed(&store), BTreeSet::from([false, true]));
        assert_eq!(read_all(&store).await.len(), 120);
        store.compactor().upgrade(TABLE, UpgradeScope::All).await.unwrap();
        assert_eq!(are_sealed(&store), BTreeSet::from([true]));
        assert_eq!(read_all(&store).await.len(), 120);
        store.stop().await;
        // And back: the keys are still needed to read.
        let store = open(&rt).await;
        store.compactor().upgrade(TABLE, UpgradeScope::All).await.unwrap();
        assert_eq!(are_sealed(&store), BTreeSet::from([false]));
        assert_eq!(read_all(&store).await.len(), 120);
        store.stop().await;
    });
}

/// Another node has other keys: it gets rows, and encrypts them with its own.
#[test]
fn encrypted_files_are_not_sent_and_no_file_is_taken_for_an_encrypted_table() {
    run(7130, |rt| async move {
        let store = open_sealed(&rt).await;
        fill(&store, 0).await;
        assert_eq!(store.transfer().whole_versions(TABLE), []);
        let held = store.transfer().hold(TABLE, &[FULL], 0, &taken(&VERSIONS)).await.unwrap();
        assert!(held.is_none());
        store.stop().await;
    });
}

#[test]
fn imported_files_keep_their_encryption_and_their_key() {
    for copy in [false, true] {
        run(7140, move |rt| async move {
            let store = open_sealed(&rt).await;
            fill(&store, 0).await;
            store.drain().await.unwrap();
            let from = {
                let view = store.rooms.tables.table(TABLE).unwrap().view();
                view.files[0].reader.meta().directory().to_owned()
            };
            store.stop().await;
            let fs = rt.fs();
            fs.create_dir_durably("import/ks/t").await.unwrap();
            for entry in fs.read_dir(&from).await.unwrap() {
                if Descriptor::parse(&entry.name).is_some() {
                    let path = format!("{from}/{}", entry.name);
                    fs.rename(&path, &format!("import/ks/t/{}", entry.name)).await.unwrap();
                }
            }
            let store = open_sealed(&rt).await;
            assert_eq!(read_all(&store).await.len(), 0);
            let options = ImportOptions { verify: true, copy, ..ImportOptions::default() };
            let imported =
                store.transfer().import(TABLE, &["import/ks/t".to_owned()], &options).await;
            let imported = imported.unwrap();
            assert_eq!(imported.failed, []);
            store.transfer().adopt(TABLE, &imported.files).await.unwrap();
            assert_eq!(read_all(&store).await.len(), 60);
            assert_eq!(are_sealed(&store), BTreeSet::from([true]));
            store.stop().await;
            let store = open_sealed(&rt).await;
            assert_eq!(read_all(&store).await.len(), 60);
            store.stop().await;
        });
    }
}

#[test]
fn saved_caches_are_encrypted_and_ignored_without_their_key() {
    let world = world(7150);
    run_in(&world, |rt| async move {
        let store = open_sealed(&rt).await;
        let body = ROWS.encode([(TABLE, TEXT.as_bytes())].into_iter());
        let saved = store.rooms.reader.saved_keys.clone();
        saved.save_cache(ROWS, body).await;
        let path = saved.saved_files(ROWS).await.remove(0);
        assert_eq!(saved.saved_keys(ROWS, &path).await, [(TABLE, TEXT.as_bytes().to_vec())]);
        rt.set_file_keys(ring("other"));
        assert_eq!(saved.saved_keys(ROWS, &path).await, []);
        let damaged = crate::damaged_saved_caches(&rt.fs(), "saved_caches").await;
        assert!(damaged[0].1.contains("key \"key\" of key-file"), "{damaged:?}");
        rt.set_file_keys(ring("key"));
        fill(&store, 0).await;
        store.stop().await;
    });
    check_disk(&world);
}
