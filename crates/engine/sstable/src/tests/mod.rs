//! Tests over real files, on the native machine.

mod attached;
mod copying;
mod crash;
mod damage;
mod field_notes;
mod golden;
mod indexes;
mod legacy;
mod scrubbing;
mod sealed;
mod slices;
mod tools;
mod versions;
mod warm;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use data::{Advance, Cursor, Item};
use rt::{Fs, Machine, NativeOptions, NodeSpec, Rt};
use stdx::Generation;

use crate::{Descriptor, SstableCursor, SstableReader, SstableWriter, WriterOptions};

/// Directory of the files that a real Cassandra wrote.
pub(super) const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata");
/// Tables there and their generations.
pub(super) const TABLES: [(&str, u64); 9] = [
    ("alltypes", 3),
    ("clust", 1),
    ("plain", 1),
    ("dropped", 1),
    ("snappy", 1),
    ("deflate", 2),
    ("zstd", 2),
    ("wide", 2),
    ("widestat", 2),
];

/// Runs a test on one native shard with an empty work directory.
pub(super) fn run<F: Future<Output = ()> + 'static>(
    test: impl Fn(Rt) -> F + Send + Sync + 'static,
) {
    let directory = tempfile::tempdir().unwrap();
    let work_dir = directory.path().to_str().unwrap().to_owned();
    let main: rt::Main = Arc::new(move |rt: Rt| {
        let stop = rt.clone();
        let future = test(rt);
        Box::pin(async move {
            future.await;
            stop.request_stop();
        }) as Pin<Box<dyn Future<Output = ()>>>
    });
    let machine = Machine::native(NativeOptions::default());
    machine.start(NodeSpec { name: "test".into(), shards: 1, work_dir }, main).join().unwrap();
}

/// Opens a golden file set as offline tools do.
pub(super) async fn open_golden(fs: &Fs, table: &str) -> SstableReader {
    let generation = TABLES.iter().find(|(t, _)| *t == table).unwrap().1;
    let descriptor = Descriptor::nb(Generation(generation));
    SstableReader::open(fs, &format!("{GOLDEN}/{table}"), descriptor, None).await.unwrap()
}

/// Moves to the next item, loading what is needed; false at the end.
pub(super) async fn next(reader: &SstableReader, cursor: &mut SstableCursor) -> bool {
    loop {
        match cursor.advance().unwrap() {
            Advance::Item => return true,
            Advance::End => return false,
            Advance::NeedBlock(request) => {
                let chunk = reader.load_block(request.block).await.unwrap();
                cursor.feed(request.block, chunk);
            }
        }
    }
}

/// Everything a cursor shows, as text.
pub(super) async fn collect(reader: &SstableReader, cursor: &mut SstableCursor) -> Vec<String> {
    let mut out = Vec::new();
    while next(reader, cursor).await {
        out.push(text_of(cursor.item()));
    }
    out
}

pub(super) fn text_of(item: Item<'_>) -> String {
    match item {
        Item::Partition { key, .. } => format!("partition {key:?}"),
        Item::Static(row) => format!("static {:?}", row.bytes()),
        Item::Row { clustering, row } => format!("row {clustering:?} {:?}", row.bytes()),
        Item::Marker(m) => format!("marker {m:?}"),
        Item::PartitionEnd => "end".to_owned(),
    }
}

/// Writes all that a reader has to a new file set in the work directory.
pub(super) async fn rewrite(
    fs: &Fs,
    reader: &SstableReader,
    generation: u64,
    change: impl FnOnce(&mut WriterOptions),
) -> SstableReader {
    let table = crate::offline::table_of_header(&reader.meta().statistics().header);
    let stats = reader.meta().statistics();
    let mut options = WriterOptions::for_table(
        &table,
        Generation(generation),
        reader.meta().estimated_partitions(),
        stats.header.stats,
    )
    .unwrap();
    change(&mut options);
    fs.create_dir_all("out").await.unwrap();
    let mut writer = SstableWriter::create(fs, "out", &table, options).await.unwrap();
    let all = std::sync::Arc::new(data::Slices::all());
    let mut cursor = reader.range_cursor(0, data::command::KeyRange::all(), all, None);
    while next(reader, &mut cursor).await {
        writer.put(cursor.item()).unwrap();
        writer.write_full().await.unwrap();
    }
    let written = writer.finish().await.unwrap().unwrap();
    SstableReader::open(fs, "out", written.descriptor, None).await.unwrap()
}
