//! File sets of `oa` and `da`: those that a real Cassandra wrote, and our own.

use std::rc::Rc;
use std::sync::Arc;

use data::command::{KeyRange, RingBound};
use data::{Advance, Cursor, Item, Slice, Slices};
use rt::Fs;
use sst_format::{Descriptor, Statistics};
use stdx::{DeletionSeconds, FixedMap, Generation, Token};

use super::{GOLDEN, open_golden, rewrite, run, text_of};
use crate::offline::{MetadataOptions, add_checksums, dump_json, metadata_text, verify};
use crate::{Chunk, Component, CursorBuffers, SstableCursor, SstableReader, Version};

/// When sstabledump made the stored dumps.
const NOW: DeletionSeconds = DeletionSeconds(1_795_330_000);

async fn open(fs: &Fs, version: Version, table: &str) -> SstableReader {
    let directory = format!("{GOLDEN}/{version}/{table}");
    let found = crate::list_sstables(fs, &directory).await.unwrap();
    let [(descriptor, crate::SetState::Complete)] = found[..] else {
        panic!("{directory}: {found:?}")
    };
    assert_eq!(descriptor.version, version);
    SstableReader::open(fs, &directory, descriptor, None).await.unwrap()
}

async fn dump(reader: &SstableReader) -> String {
    let mut text = String::new();
    dump_json(reader, NOW, &mut |piece| text.push_str(piece)).await.unwrap();
    text
}

async fn stored(fs: &Fs, reader: &SstableReader, name: &str) -> String {
    let path = format!("{}/{name}", reader.meta().directory());
    String::from_utf8(fs.read(&path, 1 << 22).await.unwrap()).unwrap()
}

#[test]
fn dumps_and_metadata_of_newer_versions_are_those_of_cassandras_tools() {
    run(|rt| async move {
        let fs = rt.fs();
        for version in [Version::Oa, Version::Da] {
            for table in ["alltypes", "clust", "late"] {
                let reader = open(&fs, version, table).await;
                verify(&reader).await.unwrap();
                let path = reader.meta().file(Component::Statistics);
                let raw = fs.read(&path, 1 << 20).await.unwrap();
                let back = reader.meta().statistics().encode().unwrap();
                assert!(back == raw, "statistics of {version} {table}");
                let (ours, theirs) = (dump(&reader).await, stored(&fs, &reader, "dump.json").await);
                let line = ours.lines().zip(theirs.lines()).find(|(a, b)| a != b);
                assert!(ours == theirs, "{version} {table}: {line:?}");
                let ours = metadata_text(&reader, NOW, &MetadataOptions::default(), None);
                let theirs = stored(&fs, &reader, "metadata.txt").await;
                for (a, b) in ours.lines().zip(theirs.lines()) {
                    let varies = a.starts_with("SSTable: ") || a.starts_with("Estimated droppable");
                    assert!(varies || a == b, "{version} {table}:\n{a}\n{b}");
                }
                assert_eq!(ours.lines().count(), theirs.lines().count());
            }
        }
        for (version, table, length, crc) in LONG_DUMPS {
            let reader = open(&fs, version, table).await;
            verify(&reader).await.unwrap();
            let ours = dump(&reader).await;
            let found = (ours.len(), codec::crc32(ours.as_bytes()));
            assert_eq!(found, (length, crc), "{version} {table}");
        }
    });
}

/// The slices in which all reads of a partition are compared: around each row, and all of it.
fn slices_around(rows: &[Vec<u8>]) -> Vec<Slices> {
    let mut all = vec![Slices::all()];
    for (i, row) in rows.iter().enumerate() {
        let to = rows.get(i + 3).unwrap_or(row);
        for (end, end_after) in [(row, true), (to, false)] {
            if end_after || to != row {
                let (start, end) = (row.clone(), end.clone());
                all.push(Slices(vec![Slice { start, start_after: false, end, end_after }]));
            }
        }
    }
    all
}

/// The blocks that were read of a file.
type Blocks = FixedMap<u64, Rc<Chunk>>;

/// Moves to the next item; each block is read once.
async fn step(reader: &SstableReader, cursor: &mut SstableCursor, blocks: &mut Blocks) -> bool {
    loop {
        match cursor.advance().unwrap() {
            Advance::Item => return true,
            Advance::End => return false,
            Advance::NeedBlock(request) => {
                let chunk = match blocks.get(&request.block) {
                    Some(chunk) => chunk.clone(),
                    None => reader.load_block(request.block).await.unwrap(),
                };
                blocks.insert(request.block, chunk.clone());
                cursor.feed(request.block, chunk);
            }
        }
    }
}

/// Every partition and row is found by its key, forwards and backwards, through the indexes.
async fn look_everything_up(reader: &SstableReader) {
    let all = Arc::new(Slices::all());
    let blocks = &mut Blocks::default();
    let mut scan = reader.range_cursor(0, KeyRange::all(), all.clone(), None);
    let mut partitions: Vec<(Token, Vec<u8>, Vec<Vec<u8>>)> = Vec::new();
    while step(reader, &mut scan, blocks).await {
        match scan.item() {
            Item::Partition { token, key, .. } => {
                partitions.push((token, key.to_vec(), Vec::new()));
            }
            Item::Row { clustering, .. } => {
                partitions.last_mut().unwrap().2.push(clustering.to_vec());
            }
            _ => {}
        }
    }
    for (i, (token, key, rows)) in partitions.iter().enumerate() {
        let stride = 1 + rows.len() / 7;
        let rows: Vec<Vec<u8>> = rows.iter().step_by(stride).cloned().collect();
        for slices in slices_around(&rows) {
            let slices = Arc::new(slices);
            let start = RingBound::Key { token: *token, key: key.clone(), after: false };
            let end = RingBound::Key { token: *token, key: key.clone(), after: true };
            let range = KeyRange { start, end };
            // A scan reads rows one after the other, without the index of rows.
            let mut scan = reader.range_cursor(0, range, slices.clone(), None);
            let mut expected = Vec::new();
            while step(reader, &mut scan, blocks).await {
                expected.push(text_of(scan.item()));
            }
            for reversed in [false, true] {
                let buffers = CursorBuffers::default();
                let mut cursor =
                    reader.partition_cursor(0, *token, key, slices.clone(), reversed, buffers);
                let mut found = Vec::new();
                while step(reader, &mut cursor, blocks).await {
                    let item = cursor.item();
                    // Rows alone are the same in both directions.
                    if !reversed || matches!(item, Item::Row { .. }) {
                        found.push(text_of(item));
                    }
                }
                if reversed {
                    found.reverse();
                    let rows = expected.iter().filter(|t| t.starts_with("row"));
                    assert!(found.iter().eq(rows), "{key:?} {slices:?}: {found:?} {expected:?}");
                } else {
                    assert_eq!(found, expected, "{key:?} {slices:?}");
                }
            }
        }
        // No partition is found under a missing key.
        let mut other = key.clone();
        other.push(1);
        let buffers = CursorBuffers::default();
        let mut cursor = reader.partition_cursor(
            0,
            reader.meta().token_of(&other),
            &other,
            all.clone(),
            false,
            buffers,
        );
        assert!(!step(reader, &mut cursor, blocks).await);
        // A scan from the middle of the ring.
        let start = RingBound::Token { token: *token, after: true };
        let end = RingBound::Token { token: Token::MAX, after: true };
        let mut scan = reader.range_cursor(0, KeyRange { start, end }, all.clone(), None);
        let mut count = 0;
        while step(reader, &mut scan, blocks).await {
            count += usize::from(matches!(scan.item(), Item::PartitionEnd));
        }
        assert_eq!(count, partitions.len() - i - 1);
    }
}

#[test]
fn tries_lead_to_every_partition_and_row_of_every_type() {
    run(|rt| async move {
        for table in ["ordered", "widestat", "wide", "clust", "alltypes", "plain"] {
            look_everything_up(&open(&rt.fs(), Version::Da, table).await).await;
        }
    });
}

#[test]
fn files_written_in_newer_versions_have_the_same_rows_and_are_found_again() {
    run(|rt| async move {
        let fs = rt.fs();
        let mut generation = 0;
        for table in ["ordered", "widestat", "clust"] {
            for version in [Version::Oa, Version::Da] {
                generation += 1;
                let theirs = open(&fs, Version::Da, table).await;
                let ours = rewrite(&fs, &theirs, generation, |options| {
                    options.version = version;
                    options.column_index_size = 2000;
                })
                .await;
                assert_eq!(ours.meta().version(), version);
                assert!(dump(&ours).await == dump(&theirs).await, "{version} {table}");
                let (a, b) = (ours.meta().statistics(), theirs.meta().statistics());
                let mut expected = b.stats.clone();
                expected.commit_log = Vec::new();
                expected.originating_host = None;
                expected.compression_ratio = a.stats.compression_ratio;
                assert_eq!(a.stats, expected, "{version} {table}");
                verify(&ours).await.unwrap();
                look_everything_up(&ours).await;
            }
        }
        // A partition of few rows has no index of rows, and one partition no transitions.
        let nb = open_golden(&fs, "plain").await;
        let ours = rewrite(&fs, &nb, 99, |options| options.version = Version::Da).await;
        verify(&ours).await.unwrap();
        look_everything_up(&ours).await;
    });
}

#[test]
fn damage_of_tries_is_seen() {
    run(|rt| async move {
        let fs = rt.fs();
        let theirs = open(&fs, Version::Da, "ordered").await;
        let directory = theirs.meta().directory().to_owned();
        let descriptor = theirs.meta().descriptor();
        fs.create_dir_all("copy").await.unwrap();
        let mut files = Vec::new();
        for component in theirs.meta().components() {
            let name = descriptor.file_name(*component);
            let bytes = fs.read(&format!("{directory}/{name}"), 1 << 24).await.unwrap();
            fs.write_atomic(&format!("copy/{name}"), bytes.clone()).await.unwrap();
            files.push((*component, name, bytes));
        }
        let copy = SstableReader::open(&fs, "copy", descriptor, None).await.unwrap();
        let report = verify(&copy).await.unwrap();
        for (component, name, bytes) in &files {
            if !matches!(component, Component::Partitions | Component::Rows) {
                continue;
            }
            // Padding between pages has no effect; everything else has one, or leads to the same
            // position.
            for at in (0..bytes.len()).step_by(1 + bytes.len() / 60) {
                let mut bad = bytes.clone();
                bad[at] ^= 0x41;
                fs.write_atomic(&format!("copy/{name}"), bad).await.unwrap();
                let result = match SstableReader::open(&fs, "copy", descriptor, None).await {
                    Ok(reader) => verify(&reader).await,
                    Err(error) => Err(error),
                };
                if let Ok(seen) = result {
                    assert_eq!(seen, report);
                }
            }
            fs.write_atomic(&format!("copy/{name}"), bytes.clone()).await.unwrap();
        }
        // With checksums of our own every flip is seen.
        let copy = SstableReader::open(&fs, "copy", descriptor, None).await.unwrap();
        add_checksums(&fs, &copy, 1).await.unwrap();
        for (component, name, bytes) in &files {
            if !matches!(component, Component::Partitions | Component::Rows) {
                continue;
            }
            let mut bad = bytes.clone();
            let at = bad.len() / 2;
            bad[at] ^= 1;
            fs.write_atomic(&format!("copy/{name}"), bad).await.unwrap();
            let reader = SstableReader::open(&fs, "copy", descriptor, None).await.unwrap();
            let error = verify(&reader).await.unwrap_err().to_string();
            assert!(error.contains(component.file_name()), "{error}");
            fs.write_atomic(&format!("copy/{name}"), bytes.clone()).await.unwrap();
        }
    });
}

/// Dumps too long to keep: their length and CRC32.
const LONG_DUMPS: [(Version, &str, usize, u32); 4] = [
    (Version::Da, "widestat", 1_023_477, 1_409_074_205),
    (Version::Da, "wide", 1_812_927, 4_043_082_017),
    (Version::Da, "plain", 1_047, 1_520_492_808),
    (Version::Oa, "widestat", 1_023_477, 237_073_410),
];

#[test]
fn times_beyond_2038_fit_only_versions_that_can_say_them() {
    run(|rt| async move {
        let fs = rt.fs();
        for (version, table) in
            [(Version::Oa, "late"), (Version::Da, "late"), (Version::Oa, "clust")]
        {
            let reader = open(&fs, version, table).await;
            let meta = reader.meta();
            let made_up = crate::offline::table_of_header(&meta.statistics().header);
            let served =
                SstableReader::open(&fs, meta.directory(), meta.descriptor(), Some(&made_up)).await;
            let meta = served.unwrap().meta().clone();
            for written in crate::WriterOptions::VERSIONS {
                let error = meta.check_times(written).err();
                let error = error.map(|e| e.to_string()).unwrap_or_default();
                let fits = table != "late" || written.has_uint_times();
                assert_eq!(error.is_empty(), fits, "{version} {table} to {written}: {error}");
                assert!(fits || error.contains("after 2038-01-19"), "{error}");
            }
        }
    });
}

/// All rows and times of files, and what is known of them without reading them, survive being written in
/// the other version that can say them; what cannot is the last time that it can say.
#[test]
fn times_beyond_2038_are_written_anew_as_they_are_or_capped() {
    run(|rt| async move {
        let fs = rt.fs();
        for from in [Version::Oa, Version::Da] {
            let reader = open(&fs, from, "late").await;
            let expected = dump(&reader).await;
            assert!(reader.meta().has_late_times());
            for to in crate::WriterOptions::VERSIONS {
                let directory = format!("late-{from}-{to}");
                fs.create_dir_all(&directory).await.unwrap();
                let generation = Some(Generation(7));
                let place = crate::offline::Rewrite { fs: &fs, at: &mut |_, _| {} };
                crate::offline::upgrade(place, &reader, to, &directory, generation).await.unwrap();
                let descriptor = Descriptor::new(to, Generation(7));
                let new = SstableReader::open(&fs, &directory, descriptor, None).await.unwrap();
                assert_eq!(new.meta().has_late_times(), to.has_uint_times());
                let (old, stats) = (reader.meta().statistics(), new.meta().statistics());
                let largest = stats.stats.tombstones.points.last().map(|(point, _)| *point);
                match to.has_uint_times() {
                    true => {
                        assert_eq!(dump(&new).await, expected, "{from} to {to}");
                        assert_eq!(stats.stats.tombstones, old.stats.tombstones, "{from} to {to}");
                        let of = |s: &Statistics| {
                            (s.stats.min_local_deletion, s.stats.max_local_deletion)
                        };
                        assert_eq!(of(stats), of(old), "{from} to {to}");
                    }
                    false => {
                        assert!(dump(&new).await.contains("2038-01-19T03:14:06Z"), "{to}");
                        assert_eq!(largest, Some(DeletionSeconds::MAX_SIGNED.0), "{to}");
                    }
                }
            }
        }
    });
}
