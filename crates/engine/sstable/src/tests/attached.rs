//! An invented attached component through the life of its file set.

use data::Cursor;
use data::command::KeyRange;
use rt::{Fs, OpenOptions};
use sst_format::component::{attached_in_toc, decode_toc};
use stdx::Generation;

use super::{next, open_golden, run};
use crate::offline::{
    ScrubOptions, Told, scrub, snapshot, unknown_components, verify, verify_checksums,
};
use crate::{
    Attached, AttachedKind, AttachedName, AttachedWriter, Component, Descriptor, Lifecycle,
    SetState, SstableError, SstableReader, SstableWriter, WriterOptions, list_sstables,
    rebuild_toc, remove_sstable,
};

const DERIVED: &str = "Invented+aa+by_name+Terms.db";
const LOCAL: &str = "Invented+Local.db";
const ESSENTIAL: &str = "Invented+Essential.db";
const ALL: [(&str, Lifecycle); 3] =
    [(DERIVED, Lifecycle::Derived), (LOCAL, Lifecycle::Local), (ESSENTIAL, Lifecycle::Essential)];

fn name(text: &str) -> AttachedName {
    AttachedName::parse(text).unwrap()
}

/// Content of the component of that name: three blocks.
fn content(text: &str) -> Vec<u8> {
    (0..150_000u32).map(|i| (i.wrapping_mul(31) >> 3) as u8 ^ text.len() as u8).collect()
}

/// A writer with all rows of a golden file, and the attached components begun.
async fn begin(
    fs: &Fs,
    golden: &SstableReader,
    generation: u64,
) -> (SstableWriter, Vec<AttachedWriter>) {
    let header = &golden.meta().statistics().header;
    let table = crate::offline::table_of_header(header);
    let options = WriterOptions::for_table(&table, Generation(generation), 100, header.stats);
    fs.create_dir_all("out").await.unwrap();
    let mut writer = SstableWriter::create(fs, "out", &table, options.unwrap()).await.unwrap();
    let mut attached = Vec::new();
    for (text, lifecycle) in ALL {
        let kind = AttachedKind { name: name(text), lifecycle };
        attached.push(AttachedWriter::begin(&mut writer, kind).await.unwrap());
    }
    let again = AttachedKind { name: name(LOCAL), lifecycle: Lifecycle::Local };
    let refused = AttachedWriter::begin(&mut writer, again).await.err().unwrap();
    assert!(matches!(refused, SstableError::Unsupported { .. }), "{refused}");
    let all = std::sync::Arc::new(data::Slices::all());
    let mut cursor = golden.range_cursor(0, KeyRange::all(), all, None);
    while next(golden, &mut cursor).await {
        writer.put(cursor.item()).unwrap();
    }
    for one in &mut attached {
        let text = one.kind().name.as_str().to_owned();
        for piece in content(&text).chunks(7001) {
            one.put(piece);
            one.write_full().await.unwrap();
        }
    }
    (writer, attached)
}

async fn write(fs: &Fs, golden: &SstableReader, generation: u64) -> SstableReader {
    let (mut writer, attached) = begin(fs, golden, generation).await;
    for one in attached {
        one.finish(&mut writer).await.unwrap();
    }
    let written = writer.finish().await.unwrap().unwrap();
    let bytes = written.disk_bytes();
    let reader = open(fs, generation).await.unwrap();
    assert_eq!(reader.meta().disk_bytes(), bytes, "all components are counted");
    reader
}

async fn open(fs: &Fs, generation: u64) -> crate::Result<SstableReader> {
    SstableReader::open(fs, "out", Descriptor::nb(Generation(generation)), None).await
}

async fn names(fs: &Fs) -> Vec<String> {
    fs.read_dir("out").await.unwrap().into_iter().map(|entry| entry.name).collect()
}

async fn overwrite(fs: &Fs, path: &str, offset: u64, bytes: &[u8]) {
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    let file = fs.open(path, options).await.unwrap();
    file.write_at(rt::Buf::from(bytes.to_vec()), offset).await.1.unwrap();
}

#[test]
fn attached_components_are_listed_covered_and_read_back() {
    run(|rt| async move {
        let fs = rt.fs();
        let golden = open_golden(&fs, "clust").await;
        let reader = write(&fs, &golden, 1).await;
        let meta = reader.meta();
        let toc = fs.read(&meta.file(Component::Toc), 1 << 20).await.unwrap();
        let mut listed = attached_in_toc(&toc);
        listed.sort_unstable();
        let mut expected = ALL.map(|(text, _)| name(text));
        expected.sort_unstable();
        assert_eq!(listed, expected);
        assert_eq!(decode_toc(&toc).unwrap(), meta.components());
        assert_eq!(Attached::of(meta).lost().count(), 0);
        for (text, lifecycle) in ALL {
            assert_eq!(Attached::of(meta).checksum(name(text)).unwrap().lifecycle, lifecycle);
            let mut read = Vec::new();
            for block in 0..3 {
                let bytes = reader.load_attached(name(text), block).await.unwrap();
                read.extend_from_slice(bytes.as_slice());
            }
            assert_eq!(read, content(text));
            assert!(reader.load_attached(name(text), 3).await.is_err(), "there are three blocks");
        }
        verify(&reader).await.unwrap();
        assert_eq!(unknown_components(&fs, &reader).await.unwrap(), Vec::<String>::new());
        // The level is written again: nothing of them changes.
        crate::repair_state::write_level(&fs, meta, 3).await.unwrap();
        let again = open(&fs, 1).await.unwrap();
        assert_eq!(again.meta().statistics().stats.level, 3);
        assert_eq!(Attached::of(again.meta()).existing().len(), 3);
        verify(&again).await.unwrap();
    });
}

#[test]
fn damage_of_an_attached_component_is_found_by_name_and_offset() {
    run(|rt| async move {
        let fs = rt.fs();
        let golden = open_golden(&fs, "clust").await;
        for (generation, (text, lifecycle)) in (1..).zip(ALL) {
            let reader = write(&fs, &golden, generation).await;
            let path = reader.meta().file(Component::Attached(name(text)));
            overwrite(&fs, &path, 70_000, b"flip").await;
            for error in [
                verify(&reader).await.unwrap_err(),
                verify_checksums(&reader).await.unwrap_err(),
                reader.load_attached(name(text), 1).await.map(|_| ()).unwrap_err(),
            ] {
                let SstableError::Corrupt { file, offset, .. } = &error else { panic!("{error}") };
                assert_eq!((file, *offset), (&path, 65_536), "{error}");
            }
            reader.load_attached(name(text), 0).await.unwrap();
            // One byte more or less is seen when the file set is opened.
            overwrite(&fs, &path, 150_000, b"x").await;
            let error = open(&fs, generation).await.err().unwrap();
            assert!(
                matches!(&error, SstableError::Corrupt { file, offset: 150_000, .. } if *file == path),
                "{error}"
            );
            fs.remove_file(&path).await.unwrap();
            match (open(&fs, generation).await, lifecycle.is_rebuilt()) {
                (Ok(reader), true) => {
                    assert_eq!(
                        Attached::of(reader.meta()).lost().collect::<Vec<_>>(),
                        [name(text)]
                    );
                    verify(&reader).await.unwrap();
                    let missing = reader.load_attached(name(text), 0).await.map(|_| ());
                    assert_eq!(missing, Err(SstableError::Missing { file: path }));
                }
                (Err(error), false) => {
                    assert_eq!(error, SstableError::Missing { file: path });
                    // Its rows can be saved: they need none of it.
                    let set = Descriptor::nb(Generation(generation));
                    let (new, how) = (Generation(9), ScrubOptions::default());
                    let told = Told { loss: &mut |loss| panic!("{loss}"), at: &mut |_, _| () };
                    let done = scrub(&fs, "out", set, new, how, told).await.unwrap();
                    assert_eq!((done.losses, done.bad_components), (0, vec![error.to_string()]));
                    let scrubbed = open(&fs, 9).await.unwrap();
                    assert_eq!(
                        Attached::of(scrubbed.meta()).existing(),
                        [],
                        "the new file has none"
                    );
                }
                (opened, _) => panic!("{text}: {}", opened.is_ok()),
            }
        }
    });
}

#[test]
fn attached_components_go_with_the_file_set_and_with_a_write_that_ended() {
    run(|rt| async move {
        let fs = rt.fs();
        let golden = open_golden(&fs, "clust").await;
        let set = Descriptor::nb(Generation(1));
        let reader = write(&fs, &golden, 1).await;
        let linked = snapshot(&fs, "out", set, "tag").await.unwrap();
        let linked = fs.read_dir(&linked).await.unwrap();
        assert_eq!(linked.len(), reader.meta().components().len());
        drop(reader);
        // Without its TOC.txt: the rebuilt set equals the old one.
        let toc = format!("out/{}", set.file_name(Component::Toc));
        let bytes = fs.read(&toc, 1 << 20).await.unwrap();
        fs.remove_file(&toc).await.unwrap();
        let header = &golden.meta().statistics().header;
        let table = crate::offline::table_of_header(header);
        rebuild_toc(&fs, "out", set, &table, "0").await.unwrap();
        assert_eq!(fs.read(&toc, 1 << 20).await.unwrap(), bytes);
        remove_sstable(&fs, "out", set).await.unwrap();
        assert_eq!(names(&fs).await, ["snapshots"]);

        // Aborted, and as a crash in the middle leaves it: with its mark only.
        let (writer, attached) = begin(&fs, &golden, 2).await;
        drop(attached);
        writer.abort().await;
        assert_eq!(names(&fs).await, ["snapshots"]);
        let (writer, attached) = begin(&fs, &golden, 3).await;
        drop((writer, attached));
        let sets = list_sstables(&fs, "out").await.unwrap();
        let set = Descriptor::nb(Generation(3));
        assert_eq!(sets, [(set, SetState::Unfinished)]);
        remove_sstable(&fs, "out", set).await.unwrap();
        assert_eq!(names(&fs).await, ["snapshots"]);
    });
}
