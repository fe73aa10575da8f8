//! Entries of rows in compiled indexes. Collections, static rows and tombstones: tests of `store`.

use std::collections::BTreeMap;
use std::sync::Arc;

use data::{ClusteringBuf, DeletionTime, Liveness, RowBuilder, RowRef};
use schema::{
    Column, ColumnKind, IndexKind, IndexMetadata, IndexRules, IndexTarget, Table, TableKind,
    TableOptions, TargetPart,
};
use stdx::{ColumnId, TableId, TimestampMicros, Token};
use types::CqlType;
use uuid::Uuid;

use crate::writer::TERM_BYTES_MAX;
use crate::{IndexedPart, IndexedRow, Scope, TableIndex, TableIndexes};

/// A table of two partition-key and two clustering columns, the second descending, with indexes of these columns.
fn table(columns: &[(&str, &[(&str, &str)])]) -> Table {
    let column =
        |id, name: &str, ty, kind| Column { id: ColumnId(id), name: name.into(), ty, kind };
    let clustering = |position, reversed| ColumnKind::Clustering { position, reversed };
    let index = |(name, options): &(&str, &[(&str, &str)])| {
        let option = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        Arc::new(IndexMetadata {
            id: Uuid::from_u128(u128::from(name.as_bytes()[0])),
            name: format!("by_{name}").into(),
            kind: IndexKind::Custom,
            options: options.iter().map(option).collect(),
            target: IndexTarget { column: (*name).into(), part: TargetPart::Simple },
            rules: IndexRules::Sai,
        })
    };
    Table {
        id: TableId(Uuid::from_u128(1)),
        keyspace: "ks".into(),
        name: "t".into(),
        kind: TableKind::Regular,
        columns: vec![
            column(0, "p", CqlType::Text, ColumnKind::PartitionKey(0)),
            column(1, "q", CqlType::Text, ColumnKind::PartitionKey(1)),
            column(2, "c", CqlType::Int, clustering(0, false)),
            column(3, "d", CqlType::Int, clustering(1, true)),
            column(4, "n", CqlType::Counter, ColumnKind::Regular),
        ],
        partition_key_count: 2,
        clustering_count: 2,
        static_count: 0,
        options: TableOptions::default(),
        dropped: BTreeMap::new(),
        masks: BTreeMap::new(),
        indexes: columns.iter().map(index).collect(),
        version: 1,
        next_column_id: 5,
    }
}

fn key(p: &str, q: &str) -> Vec<u8> {
    let part = |text: &str| {
        let length = u16::try_from(text.len()).unwrap().to_be_bytes();
        [length.as_slice(), text.as_bytes(), &[0]].concat()
    };
    [part(p), part(q)].concat()
}

fn clustering(c: i32, d: i32) -> Vec<u8> {
    ClusteringBuf::from_components([c.to_be_bytes().as_slice(), &d.to_be_bytes()]).0
}

fn entries(indexes: &TableIndexes, row: &IndexedRow<'_>) -> Vec<(usize, Vec<u8>)> {
    let mut found = Vec::new();
    indexes.visit_row(row, &mut Vec::new(), |number, term| found.push((number, term.to_vec())));
    found
}

#[test]
fn parts_of_keys_have_entries_of_their_own_and_partitions_one_each() {
    let table = table(&[("q", &[("case_sensitive", "FALSE")]), ("d", &[]), ("p", &[])]);
    let indexes = TableIndexes::of_table(&table).unwrap();
    let parts: Vec<IndexedPart> = indexes.all().iter().map(|index| index.part).collect();
    let (first, second) = (IndexedPart::PartitionKey(0), IndexedPart::PartitionKey(1));
    assert_eq!(parts, [second, IndexedPart::Clustering(1), first]);
    assert_eq!(first.scope(), Scope::Partition);
    let at = TimestampMicros(1);
    let mut bytes = Vec::new();
    RowBuilder::new(&mut bytes, Liveness::new(at), DeletionTime::LIVE, at).finish();
    let mut dead = Vec::new();
    let deletion = DeletionTime { timestamp: at, local: stdx::DeletionSeconds(1) };
    RowBuilder::new(&mut dead, Liveness::NONE, deletion, at).finish();
    let (key, clustering) = (key("One", "Two"), clustering(5, 7));
    let mut row = IndexedRow {
        key: &key,
        clustering: Some(&clustering),
        row: RowRef::trusted(&bytes),
        is_first: true,
    };
    let mut seven = Vec::new();
    indexes.all()[1].encoder().unwrap().value(&7_i32.to_be_bytes(), &mut seven);
    let (two, one) = ((0, b"two".to_vec()), (2, b"One".to_vec()));
    assert_eq!(entries(&indexes, &row), [two.clone(), (1, seven.clone()), one.clone()]);
    row.is_first = false;
    assert_eq!(entries(&indexes, &row), [(1, seven)]);
    // The partition may have live rows besides.
    (row.row, row.is_first) = (RowRef::trusted(&dead), true);
    assert_eq!(entries(&indexes, &row), [two, one]);
    row.key = &key[..4];
    assert_eq!(entries(&indexes, &row), [], "a key that is cut has no parts");
}

#[test]
fn keys_of_rows_are_in_the_order_of_the_table() {
    let table = table(&[("c", &[])]);
    let indexes = TableIndexes::of_table(&table).unwrap();
    let row = |c, d| {
        let clustering = clustering(c, d);
        indexes.row_key(Token(3), b"key", Some(&clustering)).unwrap()
    };
    let fixed = indexes.row_key(Token(3), b"key", None).unwrap();
    let rows = [fixed.clone(), row(-4, 9), row(-4, 8), row(2, 1), row(2, -1)];
    assert!(rows.is_sorted() && rows.windows(2).all(|pair| pair[0] != pair[1]));
    assert_eq!(&*rows[1].values, clustering(-4, 9));
    assert!(indexes.row_key(Token(2), b"z", None).unwrap() < fixed);
}

/// Tokens of a SASI index are entries of their own; an empty value has none.
#[test]
fn a_row_has_an_entry_for_each_token_of_an_analyzed_column() {
    let words: &[(&str, &str)] =
        &[("analyzed", "true"), ("tokenization_normalize_lowercase", "true")];
    let mut table = table(&[("p", words), ("q", &[])]);
    table.indexes = table
        .indexes
        .iter()
        .map(|index| Arc::new(IndexMetadata { rules: IndexRules::Sasi, ..(**index).clone() }))
        .collect();
    let indexes = TableIndexes::of_table(&table).unwrap();
    let at = TimestampMicros(1);
    let mut bytes = Vec::new();
    RowBuilder::new(&mut bytes, Liveness::new(at), DeletionTime::LIVE, at).finish();
    let clustering = clustering(5, 7);
    let of = |key: &[u8]| {
        let row = RowRef::trusted(&bytes);
        entries(&indexes, &IndexedRow { key, clustering: Some(&clustering), row, is_first: true })
    };
    let long = "q".repeat(TERM_BYTES_MAX + 5);
    let term = |number, text: &str| (number, text.as_bytes().to_vec());
    assert_eq!(
        of(&key("The cat, the dog", "The cat")),
        [term(0, "the"), term(0, "cat"), term(0, "the"), term(0, "dog"), term(1, "The cat")]
    );
    assert_eq!(of(&key(", ", "")), []);
    assert_eq!(of(&key("", &long)), [term(1, &long[..TERM_BYTES_MAX])]);
    let definition = indexes.all()[1].definition;
    let sai = IndexMetadata { rules: IndexRules::Sai, ..(*table.indexes[1]).clone() };
    assert_ne!(definition, TableIndex::of(&table, &sai).unwrap().definition);
}

#[test]
fn indexes_without_terms_or_columns_are_left_out() {
    let table = table(&[("n", &[]), ("c", &[])]);
    assert!(TableIndex::of(&table, &table.indexes[0]).is_none());
    assert_eq!(TableIndexes::of_table(&table).unwrap().all().len(), 1);
    let none = Table { indexes: Arc::default(), ..table };
    assert!(TableIndexes::of_table(&none).is_none());
}
