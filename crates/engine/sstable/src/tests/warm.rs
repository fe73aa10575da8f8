//! Blocks that are handed out while a file is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use data::{DeletionTime, Item, RowRef, Slices};

use super::*;
use crate::{Chunk, CursorBuffers, INDEX_BLOCK, ROWS_BLOCK, Version};

type Blocks = BTreeMap<u64, Rc<Chunk>>;

/// Keys in the order of files.
fn keys(count: u32) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..count).map(|n| n.to_be_bytes().to_vec()).collect();
    keys.sort_by_key(|key| codec::token_of(key));
    keys
}

/// Writes partitions with the rows of the first one of a golden file; those selected by `is_warm`
/// are warm.
async fn write(
    fs: &Fs,
    (table, generation): (&str, u64),
    keys: &[Vec<u8>],
    is_warm: impl Fn(usize) -> bool,
    change: impl FnOnce(&mut WriterOptions),
) -> (SstableReader, Blocks) {
    let golden = open_golden(fs, table).await;
    let schema = crate::offline::table_of_header(&golden.meta().statistics().header);
    let stats = golden.meta().statistics().header.stats;
    let count = keys.len() as u64;
    let mut options =
        WriterOptions::for_table(&schema, Generation(generation), count, stats).unwrap();
    change(&mut options);
    fs.create_dir_all("out").await.unwrap();
    let mut writer = SstableWriter::create(fs, "out", &schema, options).await.unwrap();
    let mut rows: Vec<(Option<Vec<u8>>, Vec<u8>)> = Vec::new();
    let all = Arc::new(Slices::all());
    let mut cursor = golden.range_cursor(0, data::command::KeyRange::all(), all, None);
    while next(&golden, &mut cursor).await {
        match cursor.item() {
            Item::Partition { .. } | Item::Marker(_) => {}
            Item::Static(row) => rows.push((None, row.bytes().to_vec())),
            Item::Row { clustering, row } => {
                rows.push((Some(clustering.to_vec()), row.bytes().to_vec()));
            }
            Item::PartitionEnd => break,
        }
    }
    let mut blocks = Blocks::new();
    for (n, key) in keys.iter().enumerate() {
        writer.set_warm(is_warm(n));
        writer.partition(key, DeletionTime::LIVE).unwrap();
        for (clustering, row) in &rows {
            let row = RowRef::trusted(row);
            match clustering {
                Some(clustering) => writer.row(clustering, row).unwrap(),
                None => writer.static_row(row).unwrap(),
            }
        }
        writer.partition_end().unwrap();
        if writer.is_full() {
            writer.write_full().await.unwrap();
            blocks.extend(writer.take_warm());
        }
    }
    let written = writer.finish().await.unwrap().unwrap();
    let reader = SstableReader::open(fs, "out", written.descriptor, None).await.unwrap();
    blocks.extend(written.warm);
    (reader, blocks)
}

async fn same_as_read(reader: &SstableReader, blocks: &Blocks) {
    for (block, chunk) in blocks {
        let read = reader.load_block(*block).await.unwrap();
        assert!(read.bytes() == chunk.bytes(), "block {block:x} of {}", reader.meta().directory());
    }
}

#[test]
fn blocks_that_were_kept_are_those_that_a_reader_loads_in_all_versions() {
    run(|rt| async move {
        let fs = rt.fs();
        let mut generation = 0;
        for version in WriterOptions::VERSIONS {
            for (table, count, compressed) in [
                ("plain", 20_000, true),
                ("plain", 5001, false),
                ("wide", 3, true),
                ("wide", 3, false),
            ] {
                generation += 1;
                let place = (table, generation);
                let keys = keys(count);
                let change = |options: &mut WriterOptions| {
                    options.version = version;
                    options.column_index_size = 512;
                    match &mut options.compression {
                        Some(compression) if compressed => compression.chunk_length = 4096,
                        compression => *compression = None,
                    }
                };
                let (reader, all) = write(&fs, place, &keys, |_| true, change).await;
                let wanted: Vec<u64> = reader.meta().blocks().collect();
                let mut wanted_sorted = wanted.clone();
                wanted_sorted.sort_unstable();
                assert_eq!(all.keys().copied().collect::<Vec<u64>>(), wanted_sorted, "{version}");
                let pages = wanted.iter().filter(|b| **b & INDEX_BLOCK != 0).count();
                assert!(count < 6000 || pages > 1, "{version}: {pages} pages");
                if version.is_bti() && table == "wide" {
                    assert!(wanted.iter().any(|b| *b & ROWS_BLOCK != 0));
                }
                same_as_read(&reader, &all).await;

                generation += 1;
                let place = (table, generation);
                let (reader, none) = write(&fs, place, &keys, |_| false, change).await;
                assert!(none.is_empty());

                generation += 1;
                let place = (table, generation);
                // Some in the middle, and alone ones.
                let is_warm = |n: usize| (4000..4100).contains(&n) || n % 5000 == 2;
                let (some_reader, some) = write(&fs, place, &keys, is_warm, change).await;
                same_as_read(&some_reader, &some).await;
                assert_eq!(reader.meta().data_length(), some_reader.meta().data_length());
                let data = |blocks: &Blocks| blocks.range(..ROWS_BLOCK).count();
                if table == "plain" && compressed {
                    assert!(data(&some) * 10 < data(&all), "{} {}", data(&some), data(&all));
                }
                for (n, key) in keys.iter().enumerate().filter(|(n, _)| is_warm(*n)) {
                    let token = codec::token_of(key);
                    let all = Arc::new(Slices::all());
                    let buffers = CursorBuffers::default();
                    let mut cursor =
                        some_reader.partition_cursor(0, token, key, all, false, buffers);
                    let mut items = 0;
                    loop {
                        match cursor.advance().unwrap() {
                            Advance::Item => items += 1,
                            Advance::End => break,
                            Advance::NeedBlock(request) => {
                                let block = request.block;
                                let chunk = some.get(&block).unwrap_or_else(|| {
                                    panic!("{version} {table}: partition {n} wants {block:x}")
                                });
                                cursor.feed(block, chunk.clone());
                            }
                        }
                    }
                    assert!(items > 2, "{version} {table}: partition {n} has {items} items");
                }
            }
        }
        assert!(WriterOptions::VERSIONS.contains(&Version::Da));
    });
}
