//! Attached indexes: what files and memtables have must be what their own rows have.

pub(crate) mod building;
mod components;
mod failures;

use std::collections::BTreeSet;

use data::{Advance, Cursor, Item};
use index_format::{
    IndexCursor, Lookup, RowKey, RowsReader, Step, TableIndexes, TermRange, memtable::MemtableRows,
};
use schema::{IndexKind, IndexMetadata, IndexRules, IndexTarget, TargetPart};
use sstable::{IndexComponent, SstableReader};

use crate::memtable::Memtable;
use crate::tests::*;

pub(crate) const SET: ColumnId = ColumnId(5);
pub(crate) const MAP: ColumnId = ColumnId(6);

/// Column and part of every index of these tests, by id from 1.
pub(crate) const INDEXES: [(&str, TargetPart); 7] = [
    ("pk", TargetPart::Simple),
    ("ck", TargetPart::Simple),
    ("s", TargetPart::Simple),
    ("v", TargetPart::Simple),
    ("c", TargetPart::Values),
    ("m", TargetPart::Keys),
    ("m", TargetPart::Entries),
];

pub(crate) fn index_id(number: usize) -> Uuid {
    Uuid::from_u128(number as u128 + 1)
}

/// The table with the indexes of these numbers, compacted on request only.
pub(crate) fn indexed_table(numbers: &[usize], version: u64) -> Table {
    let mut options = TableOptions { gc_grace_seconds: i32::MAX, ..TableOptions::default() };
    options.compaction.insert("enabled".to_owned(), "false".to_owned());
    let mut table = table(options);
    let set = CqlType::Set { element: Box::new(CqlType::Int).into(), frozen: false };
    let map = CqlType::Map {
        key: Box::new(CqlType::Text).into(),
        value: Box::new(CqlType::Int).into(),
        frozen: false,
    };
    let column =
        |id, name: &str, ty| Column { id, name: name.into(), ty, kind: ColumnKind::Regular };
    table.columns.insert(3, column(SET, "c", set));
    table.columns.insert(4, column(MAP, "m", map));
    table.next_column_id = 7;
    table.version = version;
    let mut indexes: Vec<IndexMetadata> = numbers.iter().map(|number| metadata(*number)).collect();
    indexes.sort_by(|a, b| a.name.cmp(&b.name));
    table.indexes = indexes.into_iter().map(Arc::new).collect();
    table
}

fn metadata(number: usize) -> IndexMetadata {
    let (column, part) = INDEXES[number];
    IndexMetadata {
        id: index_id(number),
        name: format!("i{number}").into(),
        kind: IndexKind::Composites,
        options: BTreeMap::new(),
        target: IndexTarget { column: column.into(), part },
        rules: IndexRules::Legacy,
    }
}

pub(crate) fn indexed_schema(numbers: &[usize]) -> Arc<Schema> {
    schema_of(vec![indexed_table(numbers, numbers.len() as u64 + 1)])
}

pub(crate) const ALL: [usize; 7] = [0, 1, 2, 3, 4, 5, 6];

pub(crate) async fn open_with(rt: &Rt, numbers: &[usize]) -> Store {
    Store::open(rt.clone(), options(rt), indexed_schema(numbers)).await.unwrap().0
}

/// A mutation with random rows of one partition.
pub(crate) fn random_mutation(rt: &Rt, timestamp: i64) -> Vec<u8> {
    let below = |n: u64| i32::try_from(rt.random_u64() % n).unwrap();
    let at = TimestampMicros(timestamp);
    let pk = below(12);
    if below(12) == 0 {
        return match below(3) {
            0 => delete_partition(pk, timestamp),
            1 => delete_range(pk, below(5), 5 + below(5), timestamp),
            _ => delete_row(pk, below(10), timestamp),
        };
    }
    if below(8) == 0 {
        return insert_static(pk, &format!("s{}", below(3)), timestamp);
    }
    let mut row = Vec::new();
    let liveness = if below(2) == 0 { Liveness::new(at) } else { Liveness::NONE };
    let mut builder = RowBuilder::new(&mut row, liveness, DeletionTime::LIVE, TimestampMicros(0));
    let text = format!("value {}", below(6));
    let far = DeletionSeconds(NOW.0 + 1_000);
    match below(5) {
        0 => builder.cell(VALUE, &CellRef::tombstone(at, DeletionSeconds(1_000_000))),
        1 => {
            let ttl = stdx::TtlSeconds(1_000);
            builder.cell(VALUE, &CellRef::expiring(at, ttl, far, text.as_bytes()));
        }
        2 => {}
        _ => builder.cell(VALUE, &CellRef::live(at, text.as_bytes())),
    }
    let dead = CellRef::tombstone(at, DeletionSeconds(1_000_000));
    if below(2) == 0 {
        let first = below(5);
        builder.begin_complex(SET, DeletionTime::LIVE);
        builder.complex_cell(&first.to_be_bytes(), &CellRef::live(at, &[]));
        builder.complex_cell(&(first + 1).to_be_bytes(), &dead);
        builder.end_complex();
    }
    if below(2) == 0 {
        builder.begin_complex(MAP, DeletionTime::LIVE);
        let value = below(4).to_be_bytes();
        builder.complex_cell(b"a", &CellRef::live(at, &value));
        builder.complex_cell(format!("k{}", below(3)).as_bytes(), &CellRef::live(at, &value));
        builder.complex_cell(b"z", &dead);
        builder.end_complex();
    }
    builder.finish();
    let clustering = clustering(below(10));
    encode(pk, |m| m.rows([(clustering.as_slice(), RowRef::trusted(&row))].into_iter()))
}

/// An entry: number of the index, term, and the row.
pub(crate) type Entry<R> = (usize, Vec<u8>, R);

/// Entries of a row, worked out from its cells one by one.
fn entries_of<R: Ord + Clone>(
    indexes: &TableIndexes,
    clustering: Option<&[u8]>,
    row: RowRef<'_>,
    at: &R,
    all: &mut BTreeSet<Entry<R>>,
) {
    for index in indexes.all() {
        let number = usize::try_from(index.id.as_u128()).unwrap() - 1;
        let mut add = |path: &[u8], value: &[u8]| {
            let mut term = Vec::new();
            index.encoder().unwrap().cell(path, value, &mut term);
            all.insert((number, term, at.clone()));
        };
        let column = match (INDEXES[number].0, clustering) {
            ("pk", _) => continue,
            ("ck", Some(clustering)) => {
                let value = data::clustering::components(clustering).next().unwrap().unwrap();
                let is_deletion = row.liveness().is_empty()
                    && row.columns().all(|(_, column)| match column {
                        ColumnRef::Simple(cell) => cell.is_tombstone(),
                        ColumnRef::Complex(all) => all.cells().all(|(_, c)| c.is_tombstone()),
                    });
                if !is_deletion {
                    add(&[], value);
                }
                continue;
            }
            ("s", None) => STATIC,
            ("v", Some(_)) => VALUE,
            ("c", Some(_)) => SET,
            ("m", Some(_)) => MAP,
            _ => continue,
        };
        match row.columns().find(|(id, _)| *id == column).map(|(_, column)| column) {
            Some(ColumnRef::Simple(cell)) if !cell.is_tombstone() => add(&[], cell.value),
            Some(ColumnRef::Complex(complex)) => {
                let cells = complex.cells().filter(|(_, cell)| !cell.is_tombstone());
                cells.for_each(|(path, cell)| add(path, cell.value));
            }
            _ => {}
        }
    }
}

fn term_of_key(indexes: &TableIndexes, key: &[u8]) -> Option<Vec<u8>> {
    let index = indexes.get(index_id(0))?;
    let mut term = Vec::new();
    index.encoder().unwrap().value(key, &mut term);
    Some(term)
}

/// Rows of ranges of terms in a file.
pub(crate) async fn search_file(reader: &SstableReader, id: Uuid, range: TermRange) -> Vec<u32> {
    let index = reader.index(id).unwrap();
    let mut cursor = IndexCursor::new(index.terms().unwrap(), vec![range]);
    let mut rows = Vec::new();
    loop {
        match cursor.advance().unwrap() {
            Step::Row(row) => rows.push(row),
            Step::End => return rows,
            Step::NeedBlock(at) => {
                let block = reader.load_index_block(IndexComponent::Entries(id), at).await;
                cursor.feed(block.unwrap());
            }
        }
    }
}

/// The component of every index equals what the rows of its own file have. Returns the number of entries.
pub(crate) async fn check_file(indexes: &TableIndexes, reader: &SstableReader) -> usize {
    let all = Arc::new(Slices::all());
    let mut cursor = reader.range_cursor(0, KeyRange::all(), all, None);
    // Ordinal of the partition and its token, of each row.
    let mut rows: Vec<(u32, Token)> = Vec::new();
    let mut expected: BTreeSet<Entry<u32>> = BTreeSet::new();
    let mut partition = (0, Token::MIN);
    let id = |rows: &[_]| u32::try_from(rows.len() - 1).unwrap();
    loop {
        match cursor.advance().unwrap() {
            Advance::End => break,
            Advance::NeedBlock(request) => {
                cursor.feed(request.block, reader.load_block(request.block).await.unwrap());
            }
            Advance::Item => match cursor.item() {
                Item::Partition { token, key, .. } => {
                    partition = (rows.last().map_or(0, |(ordinal, _)| ordinal + 1), token);
                    // Each partition has a static row, which may be empty.
                    rows.push(partition);
                    if let Some(term) = term_of_key(indexes, key) {
                        expected.insert((0, term, id(&rows)));
                    }
                }
                Item::Static(row) => entries_of(indexes, None, row, &id(&rows), &mut expected),
                Item::Row { clustering, row } => {
                    rows.push(partition);
                    entries_of(indexes, Some(clustering), row, &id(&rows), &mut expected);
                }
                Item::Marker(_) | Item::PartitionEnd => {}
            },
        }
    }
    check_components(indexes, reader, &rows, &expected).await;
    expected.len()
}

async fn check_components(
    indexes: &TableIndexes,
    reader: &SstableReader,
    rows: &[(u32, Token)],
    expected: &BTreeSet<Entry<u32>>,
) {
    for index in indexes.all() {
        let number = usize::try_from(index.id.as_u128()).unwrap() - 1;
        let own = || expected.iter().filter(|(of, ..)| *of == number);
        let terms: BTreeSet<&[u8]> = own().map(|(_, term, _)| term.as_slice()).collect();
        let open = reader.index(index.id).expect("component of an index");
        let summary = open.terms().unwrap();
        assert_eq!(summary.counts.ids as usize, own().count(), "{number}");
        assert_eq!(summary.counts.terms as usize, terms.len(), "{number}");
        for term in terms {
            let found = search_file(reader, index.id, TermRange::equal(term)).await;
            let of_term = own().filter(|(_, of, _)| of.as_slice() == term);
            let wanted: Vec<u32> = of_term.map(|(.., row)| *row).collect();
            assert_eq!(found, wanted, "index {number}, term {term:?}");
        }
    }
    let first = indexes.all()[0].id;
    let mut places = RowsReader::new(reader.index(first).unwrap().rows);
    let mut last: Option<(u64, u64)> = None;
    for (row, (ordinal, token)) in (0..).zip(rows) {
        let place = loop {
            match places.place(row).unwrap() {
                Lookup::Found(place) => break place,
                Lookup::NeedBlock(at) => {
                    let block = reader.load_index_block(IndexComponent::Rows, at).await;
                    places.feed(block.unwrap());
                }
            }
        };
        assert_eq!((place.partition, place.token), (*ordinal, *token), "row {row}");
        let here = (place.partition_offset, place.row_offset);
        assert!(here.0 < here.1 && last.is_none_or(|last| last.1 < here.1), "row {row}");
        last = Some(here);
    }
}

/// Components of all files of the table, which must have every index. Returns the number of entries.
pub(crate) async fn check_files(store: &Store) -> usize {
    let table = store.rooms.tables.table(TABLE).unwrap();
    let version = table.version();
    let indexes = version.indexes.as_ref().unwrap();
    let mut entries = 0;
    for file in &table.view().files {
        entries += check_file(indexes, &file.reader).await;
    }
    entries
}

/// The index of a memtable has the entries of these mutations.
pub(crate) fn check_memtable(indexes: &TableIndexes, memtable: &Memtable, mutations: &[Vec<u8>]) {
    let mut expected: BTreeSet<Entry<RowKey>> = BTreeSet::new();
    for bytes in mutations {
        let mutation = MutationRef::open(bytes).unwrap();
        let token = codec::token_of(mutation.key);
        let key = |clustering| indexes.row_key(token, mutation.key, clustering).unwrap();
        let mut any = false;
        if let Some(row) = mutation.static_row {
            any = true;
            entries_of(indexes, None, row, &key(None), &mut expected);
        }
        for (clustering, row) in mutation.rows() {
            any = true;
            entries_of(indexes, Some(clustering), row, &key(Some(clustering)), &mut expected);
        }
        if let Some(term) = term_of_key(indexes, mutation.key).filter(|_| any) {
            expected.insert((0, term, key(None)));
        }
    }
    for index in indexes.all() {
        let number = usize::try_from(index.id.as_u128()).unwrap() - 1;
        let own = || expected.iter().filter(|(of, ..)| *of == number);
        let terms: BTreeSet<&[u8]> = own().map(|(_, term, _)| term.as_slice()).collect();
        let keys = |rows: &mut MemtableRows<Arc<RowKey>>| {
            let mut keys = Vec::new();
            while let Some(key) = rows.current() {
                keys.push(RowKey::clone(key));
                rows.advance();
            }
            keys
        };
        let found = |range| {
            let found = memtable.with_index(index.id, |map| keys(&mut map.rows(vec![range])));
            found.expect("index of the memtable")
        };
        for term in terms {
            let of_term = own().filter(|(_, of, _)| of.as_slice() == term);
            let wanted: Vec<RowKey> = of_term.map(|(.., row)| row.clone()).collect();
            assert_eq!(found(TermRange::equal(term)), wanted, "index {number}, term {term:?}");
        }
        let all: BTreeSet<RowKey> = own().map(|(.., row)| row.clone()).collect();
        assert_eq!(found(TermRange::all()), all.into_iter().collect::<Vec<_>>());
    }
}
