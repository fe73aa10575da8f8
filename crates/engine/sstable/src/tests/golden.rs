use codec::crc32;
use stdx::{DeletionSeconds, Generation, Uuid};

use super::{GOLDEN, TABLES, open_golden, rewrite, run};
use crate::offline::{
    MetadataOptions, MetadataStyle, TimestampUnit, add_checksums, dump_json, metadata_text,
    scan_overview, verify,
};
use crate::repair_state::{RepairState, write_repair_state};
use crate::{Component, Descriptor, SstableReader, Version};

/// When sstabledump made the stored dumps.
const NOW: DeletionSeconds = DeletionSeconds(1_795_236_668);

async fn dump(reader: &SstableReader) -> String {
    let mut text = String::new();
    dump_json(reader, NOW, &mut |piece| text.push_str(piece)).await.unwrap();
    text
}

fn first_difference(ours: &str, theirs: &str) -> String {
    let lines = ours.lines().zip(theirs.lines()).enumerate();
    let found = lines.into_iter().find(|(_, (a, b))| a != b);
    match found {
        Some((n, (a, b))) => format!("line {}:\n  ours   {a}\n  theirs {b}", n + 1),
        None => format!("lengths {} and {}", ours.len(), theirs.len()),
    }
}

#[test]
fn dumps_of_cassandras_files_are_those_of_sstabledump() {
    run(|rt| async move {
        for table in ["alltypes", "clust", "plain", "dropped"] {
            let reader = open_golden(&rt.fs(), table).await;
            let path = format!("{GOLDEN}/{table}/dump.json");
            let theirs = rt.fs().read(&path, 1 << 20).await.unwrap();
            let theirs = String::from_utf8(theirs).unwrap();
            let ours = dump(&reader).await;
            assert!(ours == theirs, "{table} {}", first_difference(&ours, &theirs));
        }
        // Too long to keep: their length and CRC32.
        for (table, length, crc) in [
            ("wide", WIDE.0, WIDE.1),
            ("widestat", WIDESTAT.0, WIDESTAT.1),
            ("snappy", CHUNKED.0, CHUNKED.1),
            ("deflate", CHUNKED.0, CHUNKED.1),
            ("zstd", CHUNKED.0, CHUNKED.1),
        ] {
            let reader = open_golden(&rt.fs(), table).await;
            let ours = dump(&reader).await;
            assert_eq!((ours.len(), crc32(ours.as_bytes())), (length, crc), "{table}");
        }
    });
}

/// Uncompressed bytes of Data.
async fn data_of(reader: &SstableReader) -> Vec<u8> {
    let mut out = Vec::new();
    for block in 0..reader.meta().data_blocks() {
        out.extend_from_slice(reader.load_block(block).await.unwrap().bytes());
    }
    out
}

#[test]
fn rewriting_cassandras_rows_gives_its_bytes_again() {
    run(|rt| async move {
        let fs = rt.fs();
        for (n, (table, _)) in (1..).zip(TABLES) {
            let theirs = open_golden(&fs, table).await;
            // Cassandra's own granularity of the index of rows.
            let ours = rewrite(&fs, &theirs, n, |o| o.column_index_size = 64 << 10).await;
            let (a, b) = (data_of(&ours).await, data_of(&theirs).await);
            let at = a.iter().zip(&b).position(|(x, y)| x != y).unwrap_or(a.len().min(b.len()));
            let near =
                |d: &[u8]| format!("{:02x?}", &d[at.saturating_sub(8)..(at + 24).min(d.len())]);
            assert!(a == b, "Data of {table} at {at} of {}:\n{}\n{}", b.len(), near(&a), near(&b));
            let read = |path: String| {
                let fs = fs.clone();
                async move { fs.read(&path, 1 << 20).await.unwrap() }
            };
            for component in [Component::Index, Component::Summary, Component::Filter] {
                let a = read(ours.meta().file(component)).await;
                let b = read(theirs.meta().file(component)).await;
                assert!(a == b, "{component} of {table}");
            }
            let (a, b) = (ours.meta().statistics(), theirs.meta().statistics());
            let mut expected = b.stats.clone();
            expected.commit_log = Vec::new();
            expected.originating_host = None;
            expected.compression_ratio = a.stats.compression_ratio;
            assert_eq!(a.stats, expected, "stats of {table}");
            assert_eq!(a.header, b.header, "header of {table}");
            verify(&ours).await.unwrap();
        }
    });
}

#[test]
fn every_component_of_cassandra_writes_back_to_its_bytes() {
    run(|rt| async move {
        for (table, generation) in TABLES {
            let file = |c: Component| format!("{GOLDEN}/{table}/nb-{generation}-big-{c}");
            let bytes = |c| {
                let (fs, path) = (rt.fs(), file(c));
                async move { fs.read(&path, 1 << 20).await.unwrap() }
            };
            let raw = bytes(Component::Statistics).await;
            let back =
                sst_format::Statistics::decode(&raw, crate::Version::Nb).unwrap().encode().unwrap();
            assert!(back == raw, "statistics of {table}");
            let raw = bytes(Component::Summary).await;
            assert_eq!(
                sst_format::Summary::decode(&raw, sst_format::Partitioner::Murmur3)
                    .unwrap()
                    .encode()
                    .unwrap(),
                raw
            );
            let raw = bytes(Component::Filter).await;
            assert_eq!(
                sst_format::BloomFilter::decode(&raw, crate::Version::Nb)
                    .unwrap()
                    .encode(crate::Version::Nb),
                raw
            );
            if table != "plain" {
                let raw = bytes(Component::CompressionInfo).await;
                assert_eq!(
                    sst_format::CompressionInfo::decode(&raw, crate::Version::Nb)
                        .unwrap()
                        .encode(crate::Version::Nb)
                        .unwrap(),
                    raw
                );
            }
        }
    });
}

#[test]
fn cassandras_files_verify_and_get_checksums() {
    run(|rt| async move {
        let fs = rt.fs();
        for (table, generation) in TABLES {
            let reader = open_golden(&fs, table).await;
            let report = verify(&reader).await.unwrap();
            assert_eq!(report.partitions, reader.meta().estimated_partitions(), "{table}");
            fs.create_dir_all(table).await.unwrap();
            for component in reader.meta().components() {
                let name = format!("nb-{generation}-big-{component}");
                let bytes = fs.read(&format!("{GOLDEN}/{table}/{name}"), 1 << 20).await.unwrap();
                fs.write_atomic(&format!("{table}/{name}"), bytes).await.unwrap();
            }
            let copy =
                SstableReader::open(&fs, table, reader.meta().descriptor(), None).await.unwrap();
            add_checksums(&fs, &copy, 4).await.unwrap();
            let copy =
                SstableReader::open(&fs, table, reader.meta().descriptor(), None).await.unwrap();
            assert_eq!(copy.meta().group().unwrap().shard, None);
            assert_eq!(verify(&copy).await.unwrap(), report);
            // Its state of repair changes, and nothing else; the first time Checksums.db lists it.
            let before = copy.meta().statistics().clone();
            for state in [
                RepairState { repaired_at: 0, pending: Some(Uuid::from_u128(5)) },
                RepairState { repaired_at: 77, pending: None },
            ] {
                write_repair_state(&fs, copy.meta(), state).await.unwrap();
                let again =
                    SstableReader::open(&fs, table, copy.meta().descriptor(), None).await.unwrap();
                assert_eq!(RepairState::of(again.meta()), state);
                assert_eq!(verify(&again).await.unwrap(), report);
                let mut statistics = again.meta().statistics().clone();
                statistics.stats.repaired_at = before.stats.repaired_at;
                statistics.stats.pending_repair = before.stats.pending_repair;
                assert_eq!(statistics, before);
            }
        }
    });
}

#[test]
fn metadata_of_cassandras_files_is_that_of_sstablemetadata() {
    run(|rt| async move {
        for table in METADATA {
            let reader = open_golden(&rt.fs(), table).await;
            let path = format!("{GOLDEN}/{table}/metadata.txt");
            let theirs = rt.fs().read(&path, 1 << 20).await.unwrap();
            let theirs = String::from_utf8(theirs).unwrap();
            let ours = metadata_text(&reader, NOW, &MetadataOptions::default(), None);
            // The first line has the path; the estimate of droppable ones the second it was asked in.
            let lines = |text: &str| {
                text.lines()
                    .filter(|l| {
                        !l.starts_with("SSTable: ") && !l.starts_with("Estimated droppable")
                    })
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            for (a, b) in lines(&ours).iter().zip(lines(&theirs)) {
                assert_eq!(*a, b, "{table}");
            }
            assert_eq!(lines(&ours).len(), lines(&theirs).len());
        }
    });
}

/// Its options `-s -c -u -t SECONDS`, without what it prints of the progress.
#[test]
fn metadata_with_a_scan_in_colours_is_that_of_sstablemetadata() {
    run(|rt| async move {
        let style = MetadataStyle { colors: true, unicode: true };
        let unit = TimestampUnit::Seconds;
        let options = MetadataOptions { unit, style, ..MetadataOptions::default() };
        for table in ["clust", "plain", "oa/late", "oa/widestat"] {
            let path = format!("{GOLDEN}/{table}/scan.txt");
            let theirs = String::from_utf8(rt.fs().read(&path, 1 << 20).await.unwrap()).unwrap();
            let reader = match table.strip_prefix("oa/") {
                None => open_golden(&rt.fs(), table).await,
                Some(_) => {
                    let set = Descriptor::new(Version::Oa, Generation(1));
                    let directory = format!("{GOLDEN}/{table}");
                    SstableReader::open(&rt.fs(), &directory, set, None).await.unwrap()
                }
            };
            let mut told = (0, 0);
            let scanned = scan_overview(&reader, &mut |at, of| told = (at, of)).await.unwrap();
            assert!(table != "oa/widestat" || told.1 == reader.meta().data_length(), "{told:?}");
            let ours = metadata_text(&reader, NOW, &options, Some(&scanned));
            // As above.
            let is_same =
                |line: &str| !line.contains("SSTable\u{1b}") && !line.contains("droppable");
            let of = |text: &str| -> Vec<String> {
                text.lines().filter(|line| is_same(line)).map(str::to_owned).collect()
            };
            let (ours, theirs) = (of(&ours), of(&theirs));
            for (a, b) in ours.iter().zip(&theirs) {
                assert_eq!(a, b, "{table}");
            }
            assert_eq!(ours.len(), theirs.len());
        }
    });
}

/// Tables with a stored output of sstablemetadata.
const METADATA: [&str; 4] = ["clust", "plain", "wide", "alltypes"];

const WIDE: (usize, u32) = (1812930, 0xcc448f26);
const WIDESTAT: (usize, u32) = (1023478, 0xbe63e821);
const CHUNKED: (usize, u32) = (113400, 0x6f12b581);
