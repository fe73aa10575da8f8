//! An invented attached component, written as an index builder writes its own, through everything that a store
//! does with file sets.

use data::{Advance, Cursor, Slices};
use rt::{Buf, OpenOptions};
use sstable::{
    Attached, AttachedKind, AttachedWriter, Descriptor, Lifecycle, SstableReader, SstableWriter,
    WriterOptions, list_sstables,
};
use stdx::Generation;

use crate::VerifyOptions;
use crate::tests::read::replica_pages::{open_at, open_version_at};
use crate::tests::transfer::file_streams::{give, hold};
use crate::tests::*;
use crate::{AttachedName, AttachedTaken, Component, ImportOptions, TakenForms, Version};

const SOURCE: &str = "import/ks/t";
const DERIVED: &str = "Invented+aa+by_name+Terms.db";
const LOCAL: &str = "Invented+Local.db";
const ESSENTIAL: &str = "Invented+Essential.db";
const ALL: [(&str, Lifecycle); 3] =
    [(DERIVED, Lifecycle::Derived), (ESSENTIAL, Lifecycle::Essential), (LOCAL, Lifecycle::Local)];

fn content(name: &str) -> Vec<u8> {
    (0..150_000u32).map(|i| (i.wrapping_mul(31) >> 3) as u8 ^ name.len() as u8).collect()
}

fn directory(store: &Store) -> String {
    store
        .rooms
        .files
        .directories
        .directory_of(&store.rooms.tables.table(TABLE).unwrap().version().table)
}

/// The names of the attached components in a directory, and the checksums of their contents.
async fn attached_in(rt: &Rt, directory: &str) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    for entry in rt.fs().read_dir(directory).await.unwrap() {
        let name = Descriptor::parse_any(&entry.name).map(|(_, name)| name.to_owned());
        if let Some(name) = name.filter(|name| name.starts_with("Invented")) {
            let path = format!("{directory}/{}", entry.name);
            found.push((name, codec::crc32(&rt.fs().read(&path, 1 << 20).await.unwrap())));
        }
    }
    found.sort();
    found
}

fn expected(names: &[&str]) -> Vec<(String, u32)> {
    let sum = |name: &&str| ((*name).to_owned(), codec::crc32(&content(name)));
    let mut all: Vec<_> = names.iter().map(sum).collect();
    all.sort();
    all
}

/// The rows of a store as file sets below [`SOURCE`] with attached components.
async fn write_source(rt: &Rt, version: Version) {
    let store = open_version_at(rt, "source", version, schema()).await;
    for pk in 0..40 {
        write(&store, &insert(pk, 1, "a", 100)).await.unwrap();
    }
    store.drain().await.unwrap();
    let from = directory(&store);
    let table = store.rooms.tables.table(TABLE).unwrap().version().table.clone();
    store.stop().await;
    let fs = rt.fs();
    fs.create_dir_durably(SOURCE).await.unwrap();
    for (number, (set, _)) in (1..).zip(list_sstables(&fs, &from).await.unwrap()) {
        let reader = SstableReader::open(&fs, &from, set, Some(&table)).await.unwrap();
        let stats = reader.meta().statistics().header.stats;
        let mut options = WriterOptions::for_table(&table, Generation(number), 40, stats).unwrap();
        options.version = version;
        (options.shard, options.shard_count) = (Some(0), 1);
        let mut writer = SstableWriter::create(&fs, SOURCE, &table, options).await.unwrap();
        let all = Arc::new(Slices::all());
        let mut cursor = reader.range_cursor(0, KeyRange::all(), all, None);
        loop {
            match cursor.advance().unwrap() {
                Advance::Item => writer.put(cursor.item()).unwrap(),
                Advance::End => break,
                Advance::NeedBlock(request) => {
                    cursor.feed(request.block, reader.load_block(request.block).await.unwrap());
                }
            }
        }
        for (name, lifecycle) in ALL {
            let kind = AttachedKind { name: AttachedName::parse(name).unwrap(), lifecycle };
            let mut attached = AttachedWriter::begin(&mut writer, kind).await.unwrap();
            attached.put(&content(name));
            attached.finish(&mut writer).await.unwrap();
        }
        writer.finish().await.unwrap().unwrap();
    }
}

/// A store that has imported what [`write_source`] wrote.
async fn imported(rt: &Rt, version: Version, options: &ImportOptions) -> Store {
    write_source(rt, version).await;
    let store = open_version_at(rt, "a", version, schema()).await;
    let done = store.transfer().import(TABLE, &[SOURCE.to_owned()], options).await.unwrap();
    assert_eq!((done.files.len(), done.failed.len(), done.left.len()), (1, 0, 0), "{done:?}");
    assert_eq!(store.transfer().adopt(TABLE, &done.files).await, Ok(1));
    store
}

fn verified() -> ImportOptions {
    ImportOptions { verify: true, ..ImportOptions::default() }
}

#[test]
fn attached_components_are_imported_linked_streamed_and_removed_with_their_file_set() {
    for version in [Version::Nb, Version::Da] {
        run(240, move |rt| async move {
            let store = imported(&rt, version, &verified()).await;
            let all = expected(&[DERIVED, ESSENTIAL, LOCAL]);
            assert_eq!(attached_in(&rt, &directory(&store)).await, all);
            assert_eq!(rt.fs().read_dir(SOURCE).await.unwrap(), vec![], "all of it was moved");

            store.lifecycle().snapshot("tag", None).await.unwrap();
            let snapshot = format!("{}/snapshots/tag", directory(&store));
            assert_eq!(attached_in(&rt, &snapshot).await, all);

            // Rows are sent to a receiver that does not know them.
            let only = TakenForms { versions: vec![version], attached: AttachedTaken::No };
            let full = (Token::MIN, Token::MAX);
            assert!(store.transfer().hold(TABLE, &[full], 0, &only).await.unwrap().is_none());

            let to = open_version_at(&rt, "b", version, schema()).await;
            let held = hold(&store).await;
            let mut ingest = to.transfer().ingest(TABLE).await.unwrap();
            give(&held.files()[0], &mut ingest, |_, _| ()).await.unwrap();
            ingest.finish().await.unwrap();
            assert_eq!(read_all(&to).await, read_all(&store).await);
            let streamed = expected(&[DERIVED, ESSENTIAL]);
            assert_eq!(attached_in(&rt, &directory(&to)).await, streamed);
            let meta = to.rooms.tables.table(TABLE).unwrap().view().files[0].reader.meta().clone();
            let lost: Vec<String> =
                Attached::of(&meta).lost().map(|name| name.to_string()).collect();
            assert_eq!(lost, [LOCAL]);
            let extended = VerifyOptions { extended: true, ..VerifyOptions::default() };
            assert_eq!(to.verifier().verify(TABLE, &extended).await, Ok(Vec::new()));
            to.lifecycle().snapshot("tag", None).await.unwrap();
            let snapshot = format!("{}/snapshots/tag", directory(&to));
            assert_eq!(attached_in(&rt, &snapshot).await, streamed);

            // A rewrite has none of them; they are removed with the old file.
            drop(held);
            for store in [&store, &to] {
                store.compactor().compact_major(TABLE).await.unwrap();
                assert_eq!(attached_in(&rt, &directory(store)).await, vec![]);
                assert_eq!(read_all(store).await.len(), 40);
            }
            store.stop().await;
            to.stop().await;
        });
    }
}

#[test]
fn a_copy_of_an_attached_component_that_is_not_what_was_written_is_refused() {
    run(241, |rt| async move {
        let store = imported(&rt, Version::Nb, &ImportOptions::default()).await;
        let to = open_at(&rt, "b", schema()).await;
        let held = hold(&store).await;
        for wrong in [DERIVED, ESSENTIAL] {
            let mut ingest = to.transfer().ingest(TABLE).await.unwrap();
            let flip = |c: Component, bytes: &mut Vec<u8>| {
                if c.file_name() == wrong {
                    bytes[70_000] ^= 1;
                }
            };
            let error = give(&held.files()[0], &mut ingest, flip).await.unwrap_err();
            let expect = format!("a file that came: {wrong} has another checksum");
            assert_eq!(error.to_string(), expect);
        }
        // Without the one that cannot be rebuilt.
        let mut ingest = to.transfer().ingest(TABLE).await.unwrap();
        let file = &held.files()[0];
        let rest = || file.components().filter(|(c, _)| c.file_name() != ESSENTIAL);
        ingest.begin_whole(file.version(), rest().collect()).await.unwrap();
        for (component, _) in rest() {
            let bytes = file.read(component, 0, usize::MAX).await.unwrap().to_vec();
            ingest.whole_bytes(component, &bytes).await.unwrap();
        }
        let error = ingest.end_whole().await.unwrap_err();
        assert_eq!(error.to_string(), "a file that came: components are missing");
        drop(ingest);
        rt.sleep(Duration::from_secs(3)).await;
        assert_eq!(rt.fs().read_dir(&directory(&to)).await.unwrap(), vec![], "nothing is left");
    });
}

#[test]
fn damage_of_an_attached_component_is_found_by_verification_with_its_name_and_offset() {
    for (name, _) in ALL {
        run(242, move |rt| async move {
            let store = imported(&rt, Version::Nb, &verified()).await;
            let meta =
                store.rooms.tables.table(TABLE).unwrap().view().files[0].reader.meta().clone();
            let path = meta.file(Component::Attached(AttachedName::parse(name).unwrap()));
            let options = OpenOptions { write: true, ..OpenOptions::default() };
            let file = rt.fs().open(&path, options).await.unwrap();
            file.write_at(Buf::from(b"flip".to_vec()), 70_000).await.1.unwrap();
            let failed = store.verifier().verify(TABLE, &VerifyOptions::default()).await.unwrap();
            assert_eq!(failed.len(), 1);
            let text = failed[0].1.to_string();
            assert!(text.contains(&path) && text.contains("65536"), "{text}");
            store.stop().await;
        });
    }
}
