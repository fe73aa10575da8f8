//! File sets of older versions: those of `nb`, whose rows have the same bytes, with the components
//! that differ written as the older version has them.

use rt::Fs;
use sst_format::{BloomFilter, CompressionInfo, Statistics, Version};
use stdx::{DeletionSeconds, Generation};

use super::{GOLDEN, TABLES, open_golden, rewrite, run};
use crate::offline::{MetadataOptions, dump_json, metadata_text, verify};
use crate::{Component, Descriptor, SstableReader};

/// Makes the file set of a golden table in an older version.
async fn as_version(fs: &Fs, table: &str, version: Version) -> SstableReader {
    let golden = open_golden(fs, table).await;
    let from = golden.meta().descriptor();
    let to = Descriptor::new(version, Generation(1));
    let directory = format!("{version}-{table}");
    fs.create_dir_all(&directory).await.unwrap();
    for component in golden.meta().components() {
        let path = format!("{GOLDEN}/{table}/{}", from.file_name(*component));
        let mut bytes = fs.read(&path, 1 << 24).await.unwrap();
        let is_old = version < Version::Na;
        match component {
            Component::Statistics => {
                let mut statistics = Statistics::decode(&bytes, Version::Nb).unwrap();
                statistics.version = version;
                bytes = statistics.encode().unwrap();
            }
            Component::Filter if is_old => {
                assert!(BloomFilter::decode(&bytes, Version::Nb).is_ok());
                bytes[8..].chunks_exact_mut(8).for_each(<[u8]>::reverse);
            }
            Component::CompressionInfo if is_old => {
                let mut info = CompressionInfo::decode(&bytes, Version::Nb).unwrap();
                // The limit of plain chunks lies above the chunk length.
                info.offsets.clear();
                let at = info.encode(Version::Nb).unwrap().len() - 4 - 8 - 4;
                bytes.drain(at..at + 4);
            }
            _ => {}
        }
        let path = format!("{directory}/{}", to.file_name(*component));
        fs.write_atomic(&path, bytes).await.unwrap();
    }
    SstableReader::open(fs, &directory, to, None).await.unwrap()
}

async fn dump(reader: &SstableReader) -> String {
    let mut text = String::new();
    dump_json(reader, DeletionSeconds(1_795_236_668), &mut |p| text.push_str(p)).await.unwrap();
    text
}

#[test]
fn older_versions_are_read_as_the_newer() {
    run(|rt| async move {
        let fs = rt.fs();
        for version in Version::ALL.into_iter().filter(|v| *v < Version::Nb) {
            for (table, _) in TABLES {
                let golden = open_golden(&fs, table).await;
                let old = as_version(&fs, table, version).await;
                assert_eq!(verify(&old).await.unwrap(), verify(&golden).await.unwrap());
                assert!(dump(&old).await == dump(&golden).await, "{table} as {version}");
                let text =
                    metadata_text(&old, DeletionSeconds(0), &MetadataOptions::default(), None);
                let covers_all = text.contains("Covered clusterings: ALL\n");
                let has_clusterings = table == "clust" || table.starts_with("wide");
                assert!(covers_all || version >= Version::Md || !has_clusterings);
                let stats = &old.meta().statistics().stats;
                assert!(stats.originating_host.is_none() || version == Version::Me);
            }
        }
    });
}

#[test]
fn what_is_written_as_me_has_the_rows_of_its_original_and_no_plain_chunks() {
    run(|rt| async move {
        let fs = rt.fs();
        for (generation, (table, _)) in (1..).zip(TABLES) {
            let golden = open_golden(&fs, table).await;
            let ours = rewrite(&fs, &golden, generation, |options| {
                options.version = Version::Me;
                // The first chunks of some would be stored plain.
                if let Some(compression) = &mut options.compression {
                    compression.max_compressed_length = 64;
                }
            })
            .await;
            assert_eq!(ours.meta().version(), Version::Me);
            assert_eq!(verify(&ours).await.unwrap(), verify(&golden).await.unwrap(), "{table}");
            assert!(dump(&ours).await == dump(&golden).await, "{table}");
            let limit = ours.meta().compression().map(|info| info.max_compressed_length);
            assert!(limit.is_none_or(|limit| limit == i32::MAX), "{table}: {limit:?}");
        }
    });
}

#[test]
fn two_versions_of_one_generation_are_refused_and_unknown_components_go_with_the_file() {
    run(|rt| async move {
        let fs = rt.fs();
        let old = as_version(&fs, "clust", Version::Me).await;
        let directory = old.meta().directory().to_owned();
        let toc = old.meta().file(Component::Toc);
        let mut listed = fs.read(&toc, 1000).await.unwrap();
        listed.extend_from_slice(b"SAI+aa+Meta.db\n");
        fs.write_atomic(&toc, listed).await.unwrap();
        let extra = format!("{directory}/me-1-big-SAI+aa+Meta.db");
        fs.write_atomic(&extra, b"x".to_vec()).await.unwrap();
        let descriptor = old.meta().descriptor();
        let again = SstableReader::open(&fs, &directory, descriptor, None).await.unwrap();
        let found = crate::list_sstables(&fs, &directory).await.unwrap();
        assert_eq!(found, [(descriptor, crate::SetState::Complete)]);
        verify(&again).await.unwrap();
        let unknown = crate::offline::unknown_components(&fs, &again).await.unwrap();
        assert_eq!(unknown, ["SAI+aa+Meta.db"]);

        let twin = format!("{directory}/mc-1-big-TOC.txt");
        fs.write_atomic(&twin, b"Data.db\n".to_vec()).await.unwrap();
        let refused = crate::list_sstables(&fs, &directory).await.unwrap_err().to_string();
        assert!(refused.contains("has the same generation"), "{refused}");
        fs.remove_file(&twin).await.unwrap();

        crate::remove_sstable(&fs, &directory, descriptor).await.unwrap();
        assert!(fs.read_dir(&directory).await.unwrap().is_empty());
    });
}
