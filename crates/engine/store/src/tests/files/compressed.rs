//! How files of a table are compressed: those of flushes and of compactions.

use sstable::WriterOptions;

use crate::UpgradeScope;
use crate::options::FlushCompression;
use crate::tests::*;

const HIGH: &[(&str, &str)] = &[
    ("class", "LZ4Compressor"),
    ("chunk_length_in_kb", "4"),
    ("lz4_compressor_type", "high"),
    ("lz4_high_compressor_level", "12"),
];
const ZSTD: &[(&str, &str)] = &[("class", "ZstdCompressor"), ("chunk_length_in_kb", "4")];
const SNAPPY: &[(&str, &str)] = &[("class", "SnappyCompressor"), ("chunk_length_in_kb", "4")];
const PLAIN: &[(&str, &str)] = &[("enabled", "false")];

async fn open_with(rt: &Rt, table: TableOptions, options: StoreOptions) -> Store {
    Store::open(rt.clone(), options, schema_of(vec![crate::tests::table(table)])).await.unwrap().0
}

/// Class, bytes of chunks and options.
type Compressed = (&'static str, u32, Vec<(String, String)>);

/// Compression of the table's only file; `None`: not compressed.
fn compressed(store: &Store) -> Option<Compressed> {
    let view = store.rooms.tables.table(TABLE).unwrap().view();
    let [file] = &view.files[..] else { panic!("{} files", view.files.len()) };
    let info = file.reader.meta().compression()?;
    Some((info.class_name(), info.chunk_length, info.options.clone()))
}

fn of_table(options: &[(&str, &str)]) -> TableOptions {
    let mut of_table = TableOptions::default();
    of_table.compaction.insert("enabled".to_owned(), "false".to_owned());
    of_table.compression = owned(options).into_iter().collect();
    of_table
}

fn owned(options: &[(&str, &str)]) -> Vec<(String, String)> {
    options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

async fn fill(store: &Store) -> Vec<Found> {
    for pk in 0..500 {
        let text = format!("row {pk} of a table that is compressed");
        write(store, &insert(pk, pk, &text, 1)).await.unwrap();
    }
    store.flush(None).await.unwrap();
    let rows = read_all(store).await;
    assert_eq!(rows.len(), 500);
    rows
}

#[test]
fn flushes_compress_as_they_are_told_and_compactions_as_the_table_says() {
    for (seed, options) in [(700, HIGH), (701, ZSTD), (702, SNAPPY)] {
        for told in [FlushCompression::Fast, FlushCompression::Table, FlushCompression::None] {
            run(seed, move |rt| async move {
                let told_store =
                    StoreOptions { flush_compression: told, ..crate::tests::options(&rt) };
                let store = open_with(&rt, of_table(options), told_store).await;
                let rows = fill(&store).await;
                let flushed = compressed(&store);
                store.compactor().compact_major(TABLE).await.unwrap();
                let compacted = compressed(&store).unwrap();
                let class = options[0].1;
                // Options that are the compressor's own are in the file.
                assert_eq!(compacted, (class, 4096, owned(&options[2..])));
                let expected = match told {
                    FlushCompression::None => None,
                    FlushCompression::Fast if class != "SnappyCompressor" => {
                        Some(("LZ4Compressor", 16 << 10, Vec::new()))
                    }
                    FlushCompression::Fast | FlushCompression::Table => Some(compacted),
                };
                assert_eq!(flushed, expected, "{class} {told:?}");
                assert_eq!(read_all(&store).await, rows);
                store.stop().await;
            });
        }
    }
}

#[test]
fn files_that_are_compressed_otherwise_are_written_anew_once() {
    for (seed, options) in [(710, HIGH), (711, ZSTD), (712, SNAPPY), (713, PLAIN)] {
        for version in WriterOptions::VERSIONS {
            run(seed, move |rt| async move {
                let mut table = of_table(options);
                if options != PLAIN {
                    table.compression.insert("min_compress_ratio".to_owned(), "1.5".to_owned());
                }
                let of_store =
                    StoreOptions { sstable_version: version, ..crate::tests::options(&rt) };
                let store = open_with(&rt, table, of_store).await;
                let rows = fill(&store).await;
                let scope = UpgradeScope::OtherCompression;
                let is_slow = [HIGH, ZSTD].contains(&options);
                assert_eq!(
                    store.compactor().upgrade(TABLE, scope).await.unwrap(),
                    u64::from(is_slow)
                );
                assert_eq!(compressed(&store).is_none(), options == PLAIN);
                assert!(compressed(&store).is_none_or(|(class, ..)| class == options[0].1));
                assert_eq!(store.compactor().upgrade(TABLE, scope).await.unwrap(), 0, "{version}");
                assert_eq!(read_all(&store).await, rows);
                store.stop().await;
            });
        }
    }
}
