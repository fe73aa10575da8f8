//! Components of attached indexes: spilled runs, damage of every byte.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use index_format::{IndexCursor, Lookup, RowsReader, Step, TableIndexes, TermRange};
use rt::{Fs, Rt};
use schema::{IndexKind, IndexMetadata, IndexRules, IndexTarget, Table, TargetPart};
use stdx::{Generation, Uuid};

use super::{next, open_golden, run};
use crate::indexes::IndexComponent;
use crate::{Indexing, Result, SstableReader, SstableWriter, WriterOptions};

const ID: Uuid = Uuid::from_u128(0x77);

/// The table of a file of Cassandra with an index of its column `v`.
fn indexed(golden: &SstableReader) -> Table {
    let mut table = crate::offline::table_of_header(&golden.meta().statistics().header);
    table.indexes = table.indexes_with(IndexMetadata {
        id: ID,
        name: "by_v".into(),
        kind: IndexKind::Composites,
        options: BTreeMap::new(),
        target: IndexTarget { column: "v".into(), part: TargetPart::Simple },
        rules: IndexRules::Legacy,
    });
    table
}

/// Writes `count` partitions of one row; the value of the n-th is its number modulo `values`, as text.
async fn write(rt: &Rt, table: &Table, count: u32, values: u32) -> (SstableReader, usize) {
    let fs = rt.fs();
    let indexes = Rc::new(TableIndexes::of_table(table).unwrap());
    let stats = sst_format::EncodingStats::NONE;
    let mut options =
        WriterOptions::for_table(table, Generation(1), u64::from(count), stats).unwrap();
    options.indexing = Some(Indexing { indexes, budget_bytes: 0, vector_bytes: 0, rt: rt.clone() });
    fs.create_dir_all("out").await.unwrap();
    let mut writer = SstableWriter::create(&fs, "out", table, options).await.unwrap();
    let mut keys: Vec<Vec<u8>> = (0..count).map(|n| n.to_be_bytes().to_vec()).collect();
    keys.sort_by_key(|key| (codec::token_of(key), key.clone()));
    let id = table.column("v").unwrap().id;
    let at = stdx::TimestampMicros(1);
    let mut spills = 0;
    for key in keys {
        let number = u32::from_be_bytes(key.as_slice().try_into().unwrap());
        let mut row = Vec::new();
        let (live, none) = (data::DeletionTime::LIVE, data::Liveness::new(at));
        let mut builder = data::RowBuilder::new(&mut row, none, live, at);
        let value = format!("value {}", number % values);
        builder.cell(id, &data::CellRef::live(at, value.as_bytes()));
        builder.finish();
        writer.partition(&key, live).unwrap();
        writer.row(&[], data::RowRef::trusted(&row)).unwrap();
        writer.partition_end().unwrap();
        if writer.is_full() {
            writer.write_full().await.unwrap();
            spills = spills.max(spill_files(&fs).await);
        }
    }
    writer.finish().await.unwrap().unwrap();
    let set = crate::Descriptor::nb(Generation(1));
    (SstableReader::open(&fs, "out", set, None).await.unwrap(), spills)
}

async fn spill_files(fs: &Fs) -> usize {
    let names = fs.read_dir("out").await.unwrap();
    names.iter().filter(|entry| entry.name.ends_with(".spill")).count()
}

async fn rows(reader: &SstableReader, range: TermRange) -> Result<Vec<u32>> {
    let index = reader.index(ID).unwrap();
    let mut cursor = IndexCursor::new(index.terms().unwrap(), vec![range]);
    let mut rows = Vec::new();
    loop {
        match cursor.advance().unwrap() {
            Step::Row(row) => rows.push(row),
            Step::End => return Ok(rows),
            Step::NeedBlock(at) => {
                cursor.feed(reader.load_index_block(IndexComponent::Entries(ID), at).await?);
            }
        }
    }
}

/// Numbers of the partitions in the order of the file.
async fn numbers(reader: &SstableReader) -> Vec<u32> {
    let all = std::sync::Arc::new(data::Slices::all());
    let mut cursor = reader.range_cursor(0, data::command::KeyRange::all(), all, None);
    let mut numbers = Vec::new();
    while next(reader, &mut cursor).await {
        if let data::Item::Partition { key, .. } = data::Cursor::item(&cursor) {
            numbers.push(u32::from_be_bytes(key.try_into().unwrap()));
        }
    }
    numbers
}

#[test]
fn runs_beyond_the_budget_are_spilled_and_merged() {
    run(|rt| async move {
        let golden = open_golden(&rt.fs(), "snappy").await;
        let table = indexed(&golden);
        let (reader, spilled) = write(&rt, &table, 60_000, 50_000).await;
        assert_eq!(spilled, 1, "it was to be spilled");
        assert_eq!(spill_files(&rt.fs()).await, 0, "the file is removed");
        let numbers = numbers(&reader).await;
        assert_eq!(numbers.len(), 60_000);
        let counts = reader.index(ID).unwrap().terms().unwrap().counts;
        assert_eq!((counts.terms, counts.ids), (50_000, 60_000));
        assert_eq!(rows(&reader, TermRange::all()).await.unwrap().len(), 60_000);
        for value in (0..50_000).step_by(997) {
            let term = format!("value {value}");
            let found = rows(&reader, TermRange::equal(term.as_bytes())).await.unwrap();
            let of_value = |(_, n): &(u32, &u32)| **n % 50_000 == value;
            let wanted: Vec<u32> =
                (0..).zip(&numbers).filter(of_value).map(|(row, _)| row).collect();
            assert_eq!(found, wanted, "{value}");
        }
    });
}

/// Reads all blocks of both components.
async fn read_through(reader: &SstableReader) -> Result<()> {
    for row in rows(reader, TermRange::all()).await? {
        let mut places = RowsReader::new(reader.index(ID).unwrap().rows);
        while let Lookup::NeedBlock(at) = places.place(row).unwrap() {
            places.feed(reader.load_index_block(IndexComponent::Rows, at).await?);
        }
    }
    Ok(())
}

#[test]
fn every_flipped_byte_of_a_component_is_found_at_opening_or_reading() {
    run(|rt| async move {
        let fs = rt.fs();
        let golden = open_golden(&fs, "snappy").await;
        let table = indexed(&golden);
        let (reader, _) = write(&rt, &table, 60, 20).await;
        read_through(&reader).await.unwrap();
        let mut found = BTreeSet::new();
        for component in [IndexComponent::Rows, IndexComponent::Entries(ID)] {
            let path = reader.meta().file(crate::Component::Attached(component.name()));
            let bytes = fs.read(&path, 1 << 20).await.unwrap();
            for at in 0..bytes.len() {
                let mut flipped = bytes.clone();
                flipped[at] ^= 0x10;
                fs.write_atomic(&path, flipped).await.unwrap();
                let set = crate::Descriptor::nb(Generation(1));
                let opened = SstableReader::open(&fs, "out", set, None).await.unwrap();
                let error = match opened.index(ID) {
                    None => opened.damaged_indexes().remove(0),
                    Some(_) => read_through(&opened).await.unwrap_err(),
                };
                found.insert(opened.index(ID).is_some());
                assert!(error.is_damage() || error.to_string().contains("version"), "{error}");
                assert!(error.to_string().contains(&path), "{at}: {error}");
                assert!(
                    !opened.mark_index_damaged(component, &error) || opened.index(ID).is_none()
                );
            }
            fs.write_atomic(&path, bytes).await.unwrap();
        }
        assert_eq!(found.len(), 2, "some at the opening, some at reading");
    });
}
