//! Offline tools that count, cut, mend and mark file sets.

use std::ops::ControlFlow;
use std::sync::Arc;

use data::command::KeyRange;
use data::{Cursor, Item, Slices};
use rt::Fs;
use stdx::{DeletionSeconds, Generation};

use super::{GOLDEN, TABLES, collect, next, open_golden, rewrite, run};
use crate::offline::{
    self, Detail, PartitionScan, PartitionStats, ScanClock, Unfit, analyse, purge_preview,
    range_of_key, verify,
};
use crate::repair_state::write_level;
use crate::{Component, Descriptor, SstableError, SstableReader, Version, list_sstables};

/// Nothing is expired yet, and no tombstone old enough.
const EARLY: ScanClock =
    ScanClock { now: DeletionSeconds(i64::MIN), gc_before: DeletionSeconds(i64::MIN) };
/// Everything with an end is over.
const LATE: ScanClock =
    ScanClock { now: DeletionSeconds(1 << 40), gc_before: DeletionSeconds(1 << 40) };

/// Every golden file set of every version.
async fn all_golden(fs: &Fs) -> Vec<SstableReader> {
    let mut out = Vec::new();
    for (table, _) in TABLES {
        out.push(open_golden(fs, table).await);
    }
    for (version, tables) in [
        (Version::Oa, &["alltypes", "clust", "late", "widestat"][..]),
        (Version::Da, &["alltypes", "clust", "late", "ordered", "plain", "wide", "widestat"]),
    ] {
        for table in tables {
            let directory = format!("{GOLDEN}/{version}/{table}");
            let found = list_sstables(fs, &directory).await.unwrap();
            out.push(SstableReader::open(fs, &directory, found[0].0, None).await.unwrap());
        }
    }
    out
}

/// One of each kind: compressed, plain, wide, every format.
async fn some_golden(fs: &Fs) -> Vec<SstableReader> {
    let mut all = all_golden(fs).await;
    all.retain(|reader| {
        let directory = reader.meta().directory().to_owned();
        let is = |end: &str| directory.ends_with(end);
        is("testdata/clust") || is("testdata/plain") || is("oa/widestat") || is("da/ordered")
    });
    assert_eq!(all.len(), 4);
    all
}

async fn scan(
    reader: &SstableReader,
    range: KeyRange,
    clock: ScanClock,
    detail: Detail,
) -> Vec<PartitionStats> {
    let mut scan = PartitionScan::new(reader, range, clock, detail);
    let mut out = Vec::new();
    while let Some(stats) = scan.next().await.unwrap() {
        out.push(stats);
    }
    out
}

async fn items(reader: &SstableReader) -> Vec<String> {
    let all = Arc::new(Slices::all());
    collect(reader, &mut reader.range_cursor(0, KeyRange::all(), all, None)).await
}

/// A copy of a file set in a directory of its own, open to be damaged.
async fn copy(fs: &Fs, reader: &SstableReader, directory: &str) -> Descriptor {
    fs.create_dir_all(directory).await.unwrap();
    let set = reader.meta().descriptor();
    for component in reader.meta().components() {
        let bytes = fs.read(&reader.meta().file(*component), 1 << 24).await.unwrap();
        let to = format!("{directory}/{}", set.file_name(*component));
        fs.write_atomic(&to, bytes).await.unwrap();
    }
    set
}

#[test]
fn a_scan_counts_what_a_cursor_shows_and_its_sizes_are_those_of_data() {
    run(|rt| async move {
        for reader in all_golden(&rt.fs()).await {
            let file = reader.meta().file(Component::Data);
            let found = scan(&reader, KeyRange::all(), EARLY, Detail::Rows).await;
            let report = verify(&reader).await.unwrap();
            assert_eq!(found.len() as u64, report.partitions, "{file}");
            let markers: u64 = found.iter().map(|p| p.range_tombstones).sum();
            assert_eq!(markers, report.markers, "{file}");
            let all = Arc::new(Slices::all());
            let mut cursor = reader.range_cursor(0, KeyRange::all(), all, None);
            let mut rows = 0;
            while next(&reader, &mut cursor).await {
                rows += u64::from(matches!(cursor.item(), Item::Row { .. }));
            }
            assert_eq!(found.iter().map(|p| p.rows).sum::<u64>(), rows, "{file}");
            let mut at = 0;
            for partition in &found {
                assert_eq!(partition.offset, at, "{file}");
                at += partition.size;
            }
            assert_eq!(at, reader.meta().data_length(), "{file}");
            // Without rows and one by one it is the same.
            let sizes = scan(&reader, KeyRange::all(), EARLY, Detail::Sizes).await;
            assert_eq!(sizes.len(), found.len(), "{file}");
            for (size, full) in sizes.iter().zip(&found) {
                assert_eq!(
                    (&size.key, size.offset, size.size),
                    (&full.key, full.offset, full.size)
                );
            }
            for full in found.iter().step_by(1 + found.len() / 10) {
                let range = range_of_key(full.token, &full.key);
                let alone = scan(&reader, range.clone(), EARLY, Detail::Rows).await;
                assert_eq!(alone, std::slice::from_ref(full), "{file}");
                let alone = scan(&reader, range, EARLY, Detail::Sizes).await;
                assert_eq!(alone[0].size, full.size, "{file}");
            }
        }
    });
}

#[test]
fn tombstones_are_counted_by_kind_and_by_age() {
    run(|rt| async move {
        let reader = open_golden(&rt.fs(), "alltypes").await;
        let sum = |found: &[PartitionStats]| {
            let of = |number: fn(&PartitionStats) -> u64| found.iter().map(number).sum::<u64>();
            (
                (of(|p| p.row_tombstones), of(|p| p.complex_tombstones), of(|p| p.cell_tombstones)),
                (of(|p| p.rows_expired), of(|p| p.cells_expired), of(|p| p.droppable)),
            )
        };
        let early = sum(&scan(&reader, KeyRange::all(), EARLY, Detail::Rows).await);
        let late = sum(&scan(&reader, KeyRange::all(), LATE, Detail::Rows).await);
        assert_eq!(early.0, late.0);
        assert_eq!((early.1.0, early.1.1, early.1.2), (0, 0, 0));
        let dump = {
            let mut text = String::new();
            let now = DeletionSeconds(0);
            offline::dump_json(&reader, now, &mut |piece| text.push_str(piece)).await.unwrap();
            text
        };
        // Every deletion of the dump is one of those that were counted.
        let deletions = dump.matches("\"deletion_info\"").count() as u64;
        let (rows, complex, cells) = late.0;
        let statics = dump.matches("static_block").count() as u64;
        assert!(rows + complex + cells <= deletions, "{late:?} {deletions}");
        assert!(rows + complex + cells + statics > 0, "{late:?}");
        assert!(late.1.2 >= rows + complex + cells, "{late:?}");
    });
}

#[test]
fn pieces_hold_every_partition_once_in_order() {
    run(|rt| async move {
        let fs = rt.fs();
        for (i, reader) in all_golden(&fs).await.into_iter().enumerate() {
            let directory = format!("split-{i}");
            let set = copy(&fs, &reader, &directory).await;
            let reader = SstableReader::open(&fs, &directory, set, None).await.unwrap();
            let first = offline::next_generation(&fs, &directory).await.unwrap();
            let limit = reader.meta().data_file_length() / 3;
            let mut told = Vec::new();
            let mut at = |done, total| told.push((done, total));
            let to = offline::Rewrite { fs: &fs, at: &mut at };
            let written = offline::split(to, &reader, limit, first).await.unwrap();
            assert_ascends(&told, reader.meta().data_length());
            let partitions = verify(&reader).await.unwrap().partitions;
            assert_eq!(written.iter().map(|w| w.partitions).sum::<u64>(), partitions);
            let sizes = scan(&reader, KeyRange::all(), EARLY, Detail::Sizes).await;
            let half = sizes.iter().any(|p| p.size > reader.meta().data_length() / 2);
            assert!(written.len() > 1 || half || sizes.len() < 8, "{directory}");
            let mut found = Vec::new();
            for (piece, n) in written.iter().zip(first.0..) {
                assert_eq!(piece.descriptor.generation.0, n);
                let new =
                    SstableReader::open(&fs, &directory, piece.descriptor, None).await.unwrap();
                verify(&new).await.unwrap();
                found.extend(items(&new).await);
            }
            assert!(found == items(&reader).await, "{directory}");
        }
    });
}

/// Progress reports of a run never fall and never exceed the total, which is known.
fn assert_ascends(told: &[(u64, u64)], total: u64) {
    assert!(told.iter().all(|(done, of)| *of == total && done <= of), "{told:?}");
    assert!(!told.is_empty() && told.is_sorted(), "{told:?}");
}

#[test]
fn a_verification_tells_how_far_it_is() {
    run(|rt| async move {
        for reader in all_golden(&rt.fs()).await {
            let mut told = Vec::new();
            offline::verify_with(&reader, &mut |done, total| told.push((done, total)))
                .await
                .unwrap();
            assert_ascends(&told, reader.meta().disk_bytes() + reader.meta().data_length());
        }
    });
}

/// Scrubs and returns the report, the reported losses, and everything in the new file sets.
async fn scrub(
    fs: &Fs,
    directory: &str,
    set: Descriptor,
) -> (offline::ScrubReport, Vec<String>, Vec<Vec<String>>) {
    let first = offline::next_generation(fs, directory).await.unwrap();
    let mut told = Vec::new();
    let mut tell = |loss: &offline::Loss| told.push(loss.to_string());
    // Counter values that Cassandra refuses are tested elsewhere.
    let how = offline::ScrubOptions { skip_corrupted: true, ..Default::default() };
    let mut progress = Vec::new();
    let mut at = |done, total| progress.push((done, total));
    let who = offline::Told { loss: &mut tell, at: &mut at };
    let report = offline::scrub(fs, directory, set, first, how, who).await.unwrap();
    assert!(progress.iter().all(|(done, total)| done <= total), "{progress:?}");
    let mut found = Vec::new();
    for written in &report.written {
        let new = SstableReader::open(fs, directory, written.descriptor, None).await.unwrap();
        verify(&new).await.unwrap();
        found.push(items(&new).await);
    }
    (report, told, found)
}

#[test]
fn a_whole_file_is_scrubbed_without_loss_and_lost_indexes_are_made_anew() {
    run(|rt| async move {
        let fs = rt.fs();
        for (i, reader) in some_golden(&fs).await.into_iter().enumerate() {
            let expected = items(&reader).await;
            let directory = format!("scrub-{i}");
            let set = copy(&fs, &reader, &directory).await;
            let (report, told, found) = scrub(&fs, &directory, set).await;
            assert_eq!((told.len(), report.bad_components.len(), report.out_of_order), (0, 0, 0));
            assert!(found == std::slice::from_ref(&expected), "{directory}");
            for component in reader.meta().components() {
                let needed = [Component::Data, Component::Statistics, Component::CompressionInfo];
                if needed.contains(component) {
                    continue;
                }
                for way in ["cut", "gone"] {
                    let directory = format!("scrub-{i}-{way}-{component}");
                    let set = copy(&fs, &reader, &directory).await;
                    let path = format!("{directory}/{}", set.file_name(*component));
                    match way {
                        "cut" => fs.write_atomic(&path, b"x".to_vec()).await.unwrap(),
                        _ => fs.remove_file(&path).await.unwrap(),
                    }
                    let (_, told, found) = scrub(&fs, &directory, set).await;
                    assert_eq!(told, [""; 0], "{directory}");
                    assert!(found == std::slice::from_ref(&expected), "{directory}");
                }
            }
        }
    });
}

#[test]
fn a_damaged_name_of_a_compressor_is_damage_and_no_compressor_that_is_not_known() {
    run(|rt| async move {
        let fs = rt.fs();
        let golden = some_golden(&fs).await.remove(0);
        let ours = rewrite(&fs, &golden, 1, |_| {}).await;
        let set = copy(&fs, &ours, "compressor").await;
        let path = format!("compressor/{}", set.file_name(Component::CompressionInfo));
        let mut bytes = fs.read(&path, 1 << 20).await.unwrap();
        let at = bytes.windows(3).position(|w| w == b"LZ4").unwrap();
        bytes[at] ^= 1;
        fs.write_atomic(&path, bytes).await.unwrap();
        let how = offline::ScrubOptions { skip_corrupted: true, ..Default::default() };
        let who = offline::Told { loss: &mut |_| {}, at: &mut |_, _| {} };
        let done = offline::scrub(&fs, "compressor", set, Generation(9), how, who).await;
        assert!(matches!(done.map(drop), Err(SstableError::Corrupt { .. })));
    });
}

#[test]
fn what_a_damaged_chunk_takes_is_named_and_everything_else_is_saved() {
    run(|rt| async move {
        let fs = rt.fs();
        let mut seen = 0;
        for (i, reader) in some_golden(&fs).await.into_iter().enumerate() {
            let whole = items(&reader).await;
            let length = reader.meta().data_file_length();
            for (n, at) in [3, length / 2, length - 6].into_iter().enumerate() {
                let directory = format!("damage-{i}-{n}");
                let set = copy(&fs, &reader, &directory).await;
                let path = format!("{directory}/{}", set.file_name(Component::Data));
                let mut bytes = fs.read(&path, 1 << 24).await.unwrap();
                bytes[usize::try_from(at).unwrap()] ^= 0x10;
                fs.write_atomic(&path, bytes).await.unwrap();
                let (report, told, found) = scrub(&fs, &directory, set).await;
                assert_eq!(report.losses, told.len() as u64);
                let found: Vec<String> = found.into_iter().flatten().collect();
                // In order and nothing new, but for the ends of what was cut.
                let mut rest = whole.iter();
                let is_end = |item: &&String| item.starts_with("marker") || *item == "end";
                for item in found.iter().filter(|item| !is_end(item)) {
                    assert!(rest.any(|other| other == item), "{directory}: {item}");
                }
                // One chunk holds so much of a file at most.
                let chunk = reader.meta().data_block_bytes();
                let partitions = |all: &[String]| {
                    all.iter().filter(|item| item.starts_with("partition")).count()
                };
                let lost = partitions(&whole) - partitions(&found);
                let sizes = scan(&reader, KeyRange::all(), EARLY, Detail::Sizes).await;
                let location = (0..reader.meta().data_blocks()).find(|block| {
                    let l = reader.meta().locate(*block).unwrap();
                    at >= l.offset && at < l.offset + l.length as u64
                });
                let from = location.unwrap() * chunk;
                let touched = sizes
                    .iter()
                    .filter(|p| p.offset < from + chunk && p.offset + p.size > from)
                    .count();
                assert!(lost <= touched, "{directory}: {lost} of {touched}");
                // Cassandra's files may end with a chunk of nothing.
                assert_eq!(told.is_empty(), touched == 0, "{directory}: {told:?}");
                seen += touched;
            }
        }
        assert!(seen > 4, "{seen}");
    });
}

#[test]
fn partitions_that_are_not_in_order_come_into_a_second_file() {
    run(|rt| async move {
        let fs = rt.fs();
        let directory = format!("{GOLDEN}/da/ordered");
        let found = list_sstables(&fs, &directory).await.unwrap();
        let golden = SstableReader::open(&fs, &directory, found[0].0, None).await.unwrap();
        let golden = rewrite(&fs, &golden, 1, |options| options.compression = None).await;
        let sizes = scan(&golden, KeyRange::all(), EARLY, Detail::Sizes).await;
        let set = copy(&fs, &golden, "order").await;
        let file = |c: Component| format!("order/{}", set.file_name(c));
        let bytes = fs.read(&file(Component::Data), 1 << 24).await.unwrap();
        let part = |i: usize| {
            let at = usize::try_from(sizes[i].offset).unwrap();
            bytes[at..at + usize::try_from(sizes[i].size).unwrap()].to_vec()
        };
        // The third stands first, and the second occurs twice.
        let order: Vec<usize> = [2, 0, 1, 1].into_iter().chain(3..sizes.len()).collect();
        let data: Vec<u8> = order.iter().flat_map(|i| part(*i)).collect();
        fs.write_atomic(&file(Component::Data), data).await.unwrap();
        fs.remove_file(&file(Component::Crc)).await.unwrap();
        let (report, told, found) = scrub(&fs, "order", set).await;
        assert_eq!(told, [""; 0]);
        assert_eq!((report.partitions as usize, report.out_of_order), (sizes.len() + 1, 3));
        let keys = |all: &[String]| -> Vec<String> {
            all.iter().filter(|item| item.starts_with("partition")).cloned().collect()
        };
        let whole = keys(&items(&golden).await);
        let of = |list: &[usize]| list.iter().map(|i| whole[*i].clone()).collect::<Vec<_>>();
        let first: Vec<usize> = (2..sizes.len()).collect();
        let found: Vec<Vec<String>> = found.iter().map(|all| keys(all)).collect();
        assert_eq!(found, [of(&first), of(&[0, 1]), of(&[1])]);
    });
}

#[test]
fn rows_that_are_not_in_order_come_into_a_second_file() {
    run(|rt| async move {
        let fs = rt.fs();
        let golden = open_golden(&fs, "wide").await;
        let golden = rewrite(&fs, &golden, 1, |options| options.compression = None).await;
        let all = Arc::new(Slices::all());
        let mut cursor = golden.range_cursor(0, KeyRange::all(), all, None);
        let mut starts = Vec::new();
        while starts.len() < 40 && next(&golden, &mut cursor).await {
            if matches!(cursor.item(), Item::Row { .. }) {
                starts.push(usize::try_from(cursor.item_start()).unwrap());
            }
        }
        let set = copy(&fs, &golden, "rows").await;
        let file = |c: Component| format!("rows/{}", set.file_name(c));
        let mut bytes = fs.read(&file(Component::Data), 1 << 24).await.unwrap();
        // The previous row now follows.
        bytes[starts[20]..starts[22]].rotate_left(starts[21] - starts[20]);
        fs.write_atomic(&file(Component::Data), bytes).await.unwrap();
        fs.remove_file(&file(Component::Crc)).await.unwrap();
        let (report, told, found) = scrub(&fs, "rows", set).await;
        assert_eq!((told.len(), report.rows_out_of_order, found.len()), (0, 1, 2), "{told:?}");
        let whole = items(&golden).await;
        let stray = found[1].iter().find(|item| item.starts_with("row")).unwrap();
        assert_eq!(found[1].len(), 3);
        let rest: Vec<&String> = whole.iter().filter(|item| *item != stray).collect();
        assert!(found[0].iter().eq(rest.iter().copied()));
        assert!(whole.contains(stray));
    });
}

#[test]
fn a_level_is_written_in_place_and_nothing_else_changes() {
    run(|rt| async move {
        let fs = rt.fs();
        for (i, reader) in all_golden(&fs).await.into_iter().enumerate() {
            let directory = format!("level-{i}");
            let set = copy(&fs, &reader, &directory).await;
            let copied = SstableReader::open(&fs, &directory, set, None).await.unwrap();
            write_level(&fs, copied.meta(), 7).await.unwrap();
            let again = SstableReader::open(&fs, &directory, set, None).await.unwrap();
            let mut statistics = again.meta().statistics().clone();
            assert_eq!(statistics.stats.level, 7);
            statistics.stats.level = reader.meta().statistics().stats.level;
            assert_eq!(&statistics, reader.meta().statistics());
        }
    });
}

#[test]
fn a_directory_in_use_or_in_the_middle_of_something_is_not_fit() {
    run(|rt| async move {
        let fs = rt.fs();
        fs.create_dir_all("node/data/t").await.unwrap();
        let locks = offline::lock_files(&fs, &["node/data/t"]).await.unwrap();
        assert_eq!(locks, [""; 0]);
        let held = fs.lock_exclusive("node/.lock").await.unwrap();
        let locks = offline::lock_files(&fs, &["node/data/t", "node/data"]).await.unwrap();
        assert_eq!(locks, ["node/.lock"]);
        let refused = offline::take_lock(&fs, &locks[0]).await.err();
        assert_eq!(refused, Some(Unfit::InUse("node".to_owned())));
        drop(held);
        offline::take_lock(&fs, &locks[0]).await.unwrap();

        let set = Descriptor::nb(Generation(7));
        let (fit, other) = ([set], [Descriptor::nb(Generation(8))]);
        offline::check_fit(&fs, "node/data/t", &fit).await.unwrap();
        let note = "node/data/t/nb-7-big-Released.0of2";
        fs.write_atomic(note, Vec::new()).await.unwrap();
        offline::check_fit(&fs, "node/data/t", &other).await.unwrap();
        let refused = offline::check_fit(&fs, "node/data/t", &fit).await.err();
        assert_eq!(refused, Some(Unfit::Released(note.to_owned())));
        assert_eq!(offline::next_generation(&fs, "node/data/t").await.unwrap(), Generation(8));
        for record in ["helenus-txn-3.log", "helenus-ingest-3.log", "nb_txn_compaction_5bc5.log"] {
            let path = format!("node/data/t/{record}");
            fs.write_atomic(&path, Vec::new()).await.unwrap();
            let refused = offline::check_fit(&fs, "node/data/t", &other).await.err();
            assert_eq!(refused, Some(Unfit::Unfinished(path.clone())));
            fs.remove_file(&path).await.unwrap();
        }
    });
}

#[test]
fn two_files_of_the_same_partitions_count_twice_and_are_one_after_a_compaction() {
    run(|rt| async move {
        let fs = rt.fs();
        for table in ["clust", "wide", "plain", "zstd"] {
            let one = open_golden(&fs, table).await;
            let two = rewrite(&fs, &one, 1, |_| {}).await;
            let readers = [one.clone(), two.clone()];
            let mut last = (0, 0);
            let mut at = |done, total| last = (done, total);
            let rows = analyse(&readers, EARLY, Detail::Rows, 3, &mut at).await.unwrap();
            assert_eq!(last, (rows.sizes.total, one.meta().data_length() * 2), "{table}");
            let sizes = analyse(&readers, EARLY, Detail::Sizes, 3, &mut |_, _| {}).await.unwrap();
            assert_eq!(rows.sizes.total, one.meta().data_length() * 2, "{table}");
            assert_eq!(rows.spread.min, 2);
            assert_eq!(rows.rows.total, 2 * scan_rows(&one).await, "{table}");
            assert_eq!(sizes.sizes.buckets(), rows.sizes.buckets(), "{table}");
            let names = |list: &[offline::PartitionTotals]| {
                list.iter().map(|p| (p.stats.key.clone(), p.stats.size)).collect::<Vec<_>>()
            };
            assert_eq!(names(&sizes.largest), names(&rows.largest), "{table}");
            assert!(
                rows.largest.len() <= 3
                    && rows.largest.is_sorted_by_key(|p| { std::cmp::Reverse(p.stats.size) })
            );
            // With nothing to purge a compaction leaves what one of them has, byte for byte.
            let files: Vec<(String, Descriptor)> = readers
                .iter()
                .map(|r| (r.meta().directory().to_owned(), r.meta().descriptor()))
                .collect();
            let kept = purge_preview(&fs, &files, EARLY, 3, &mut |_, _| {}).await.unwrap();
            assert_eq!(kept.size, one.meta().data_length() * 2, "{table}");
            assert_eq!(kept.left, one.meta().data_length(), "{table}");
            assert_eq!(kept.gone, 0, "{table}");
            // Purging all that is allowed makes it smaller, never larger.
            let purged = purge_preview(&fs, &files, LATE, 3, &mut |_, _| {}).await.unwrap();
            assert_eq!(purged.partitions, kept.partitions);
            assert!(purged.left <= kept.left, "{table}");
            let has_ends = one.meta().statistics().stats.may_have_tombstones();
            assert_eq!(purged.left < kept.left, has_ends, "{table}");
            fs.remove_dir_all("out").await.unwrap();
        }
    });
}

async fn scan_rows(reader: &SstableReader) -> u64 {
    scan(reader, KeyRange::all(), EARLY, Detail::Rows).await.iter().map(|p| p.rows).sum()
}

#[test]
fn a_damaged_index_is_told_where_sizes_are_taken_of_it() {
    run(|rt| async move {
        let fs = rt.fs();
        let golden = open_golden(&fs, "clust").await;
        let ours = rewrite(&fs, &golden, 1, |_| {}).await;
        let set = copy(&fs, &ours, "index").await;
        let sizes = async |reader: &SstableReader| {
            let readers = [reader.clone()];
            analyse(&readers, EARLY, Detail::Sizes, 1, &mut |_, _| {}).await.map(|all| all.sizes)
        };
        let reader = SstableReader::open(&fs, "index", set, None).await.unwrap();
        let partitions = verify(&reader).await.unwrap().partitions;
        assert_eq!(sizes(&reader).await.unwrap().count, partitions);
        let path = format!("index/{}", set.file_name(Component::Index));
        let mut bytes = fs.read(&path, 1 << 20).await.unwrap();
        // Somewhere in a key, or a place: the entry is one all the same.
        bytes[3] ^= 1;
        fs.write_atomic(&path, bytes).await.unwrap();
        let reader = SstableReader::open(&fs, "index", set, None).await.unwrap();
        let error = sizes(&reader).await.map(|sizes| sizes.count).unwrap_err();
        assert!(
            matches!(&error, SstableError::Corrupt { file, .. } if file.ends_with("Index.db")),
            "{error}"
        );
    });
}

#[test]
fn a_dump_ends_when_nobody_wants_more() {
    run(|rt| async move {
        let reader = open_golden(&rt.fs(), "wide").await;
        for form in
            [offline::DumpForm::Pretty, offline::DumpForm::Keys, offline::DumpForm::Internal]
        {
            let pieces_until = async |wanted: usize| {
                let mut pieces = 0;
                let mut out = |_: &str| {
                    pieces += 1;
                    if pieces < wanted { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                };
                let to = offline::DumpTo { out: &mut out, at: &mut |_, _| {} };
                let options = offline::DumpOptions { form, ..Default::default() };
                offline::dump_with(&reader, DeletionSeconds(0), &options, to).await.unwrap();
                pieces
            };
            assert!(pieces_until(usize::MAX).await > 2, "{form:?}");
            assert_eq!(pieces_until(2).await, 2, "{form:?}");
        }
    });
}
