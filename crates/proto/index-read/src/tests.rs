//! Unions, checks and reads by name over random tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use data::ClusteringComparator;
use data::clustering::{ClusteringBuf, Slice, Slices};
use data::command::{KeyRange, Partitions, ReadCommand, RingBound};
use index_format::{
    Frontier, IndexPredicate, IndexSearch, MatchedPartition, MatchedRows, Matches, Matching,
    SearchLimits, TermRange,
};
use schema::{Column, ColumnKind, Table, TableKind, TableOptions};
use stdx::{ColumnId, DeletionSeconds, TableId, Token, Uuid};
use testkit::Random;
use types::CqlType;

use crate::driving::{KEYS_MAX, keys_of_search};
use crate::{
    Continued, DriverEstimates, NamedRead, NamedReads, RangeConcurrency, Remainder, advance, check,
    unite,
};

/// The order of a table with so many `int` clustering columns, descending.
pub(crate) fn order(columns: u16) -> ClusteringComparator {
    let column = |id: u16, name: String, kind| Column {
        id: ColumnId(id),
        name: name.as_str().into(),
        ty: CqlType::Int,
        kind,
    };
    let key = column(0, "k".to_owned(), ColumnKind::PartitionKey(0));
    let clustering = (0..columns).map(|position| {
        let kind = ColumnKind::Clustering { position, reversed: true };
        column(position + 1, format!("c{position}"), kind)
    });
    ClusteringComparator::for_table(&Table {
        id: TableId(Uuid::from_u128(1)),
        keyspace: "ks".into(),
        name: "t".into(),
        kind: TableKind::Regular,
        columns: std::iter::once(key).chain(clustering).collect(),
        partition_key_count: 1,
        clustering_count: usize::from(columns),
        static_count: 0,
        options: TableOptions::default(),
        dropped: Default::default(),
        masks: Default::default(),
        indexes: Default::default(),
        version: 1,
        next_column_id: columns + 1,
    })
}

pub(crate) fn row(value: i32) -> Vec<u8> {
    ClusteringBuf::from_components([&value.to_be_bytes()[..]]).0
}

pub(crate) fn key(n: u8) -> Vec<u8> {
    vec![b'k', n]
}

pub(crate) fn token(n: u8) -> Token {
    codec_token(&key(n))
}

fn codec_token(key: &[u8]) -> Token {
    // Pairs of keys share a token.
    Token(i64::from(key[1] / 2))
}

fn partition(n: u8, rows: &[i32]) -> MatchedPartition {
    let rows = MatchedRows::Rows(rows.iter().map(|value| row(*value)).collect());
    MatchedPartition { token: token(n), key: key(n), rows }
}

fn command() -> ReadCommand {
    let table = TableId(Uuid::from_u128(1));
    ReadCommand::whole(table, Partitions::Range(KeyRange::all()), DeletionSeconds(0))
}

fn limits(keys: u32) -> SearchLimits {
    SearchLimits { keys, bytes: u64::MAX, scanned: u64::MAX }
}

fn search(command: &ReadCommand, keys: u32) -> IndexSearch {
    let predicate =
        IndexPredicate { index: Uuid::nil(), ranges: vec![TermRange::all()], filter: None };
    IndexSearch {
        command: command.clone(),
        predicates: vec![predicate],
        matching: Matching::Driving(0),
        limits: limits(keys),
    }
}

/// Keys of a replica, in order: partition, then rows (descending).
type Model = BTreeMap<(Token, Vec<u8>), Vec<i32>>;

/// The answer of a replica: its matches after the command's start, up to some of them.
fn answer(model: &Model, command: &ReadCommand, keys: usize, kind: usize) -> Matches {
    let Partitions::Range(range) = &command.partitions else { unreachable!() };
    let resumed = command.resume.as_ref().and_then(|resume| resume.clustering.clone());
    let order = order(1);
    let mut all = Vec::new();
    for ((token, key), rows) in model {
        let is_after = match &range.start {
            RingBound::Token { token: at, after: false } => token >= at,
            RingBound::Token { token: at, after: true } => token > at,
            RingBound::Key { token: at, key: at_key, after: true } => (token, key) > (at, at_key),
            RingBound::Key { token: at, key: at_key, after: false } => (token, key) >= (at, at_key),
        };
        let is_first =
            matches!(&range.start, RingBound::Key { key: at, after: false, .. } if at == key);
        for value in rows.iter().rev() {
            let clustering = row(*value);
            let is_passed =
                is_first && resumed.as_ref().is_some_and(|r| order.compare(&clustering, r).is_le());
            if is_after && !is_passed {
                all.push((*token, key.clone(), clustering));
            }
        }
    }
    let frontier = match all.get(keys.saturating_sub(1)) {
        _ if all.len() <= keys => Frontier::Done,
        Some((token, key, clustering)) => {
            let (token, key, clustering) = (*token, key.clone(), clustering.clone());
            let goes_on = all.get(keys).is_some_and(|next| next.1 == key);
            match kind {
                0 if !goes_on => Frontier::After { token, key },
                1 if all.get(keys).is_some_and(|next| next.0 > token) => {
                    Frontier::Before { token: Token(token.0 + 1) }
                }
                _ => Frontier::Inside { token, key, clustering },
            }
        }
        None => unreachable!(),
    };
    all.truncate(keys);
    let mut partitions: Vec<MatchedPartition> = Vec::new();
    for (token, key, clustering) in all {
        match partitions.last_mut() {
            Some(MatchedPartition { key: last, rows: MatchedRows::Rows(rows), .. })
                if *last == key =>
            {
                rows.push(clustering);
            }
            _ => {
                let rows = MatchedRows::Rows(vec![clustering]);
                partitions.push(MatchedPartition { token, key, rows });
            }
        }
    }
    Matches { partitions, frontier, estimates: vec![1], rows: 10 }
}

/// INV-index-read-2, INV-search-1.
#[test]
fn searches_up_to_the_smallest_frontier_give_each_key_of_each_replica_once_in_order() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut models: Vec<Model> = vec![Model::new(); 1 + random.below(3)];
        for model in &mut models {
            for _ in 0..random.below(40) {
                let n = u8::try_from(random.below(8)).unwrap();
                let rows = model.entry((token(n), key(n))).or_default();
                rows.push(i32::try_from(random.below(10)).unwrap());
                rows.sort_unstable();
                rows.dedup();
            }
        }
        let mut expect: Vec<(Token, Vec<u8>, Vec<u8>)> = Vec::new();
        let mut whole = Model::new();
        for model in &models {
            for (place, rows) in model {
                whole.entry(place.clone()).or_default().extend(rows);
            }
        }
        for ((token, key), mut rows) in whole {
            rows.sort_unstable_by(|a, b| b.cmp(a));
            rows.dedup();
            expect.extend(rows.into_iter().map(|value| (token, key.clone(), row(value))));
        }
        let (mut given, mut command, order) = (Vec::new(), command(), order(1));
        loop {
            let max = 1 + u32::try_from(random.below(6)).unwrap();
            let asked = search(&command, max);
            let answers: Vec<Matches> = models
                .iter()
                .map(|model| {
                    let keys = 1 + random.below(max as usize);
                    let answer = answer(model, &command, keys, random.below(3));
                    assert_eq!(check(&answer, &asked, &order), Ok(()), "seed {seed}");
                    answer
                })
                .collect();
            let matches = unite(answers, &order, &limits(max));
            assert_eq!(check(&matches, &asked, &order), Ok(()), "seed {seed}");
            for MatchedPartition { token, key, rows } in matches.partitions {
                let MatchedRows::Rows(rows) = rows else { unreachable!() };
                given.extend(rows.into_iter().map(|row| (token, key.clone(), row)));
            }
            if advance(&mut command, &matches.frontier) == Continued::Over {
                break;
            }
        }
        assert_eq!(given, expect, "seed {seed}");
    }
}

#[test]
fn a_partition_given_whole_is_complete_though_another_answer_ends_inside_it() {
    let inside = Frontier::Inside { token: token(2), key: key(2), clustering: row(5) };
    let rows =
        Matches { partitions: vec![partition(2, &[9, 5])], frontier: inside, ..Matches::none(1) };
    let whole = MatchedPartition { token: token(2), key: key(2), rows: MatchedRows::Whole };
    let later = partition(4, &[1]);
    let other = Matches { partitions: vec![whole.clone(), later], ..Matches::none(1) };
    let united = unite(vec![rows, other], &order(1), &limits(10));
    assert_eq!(united.partitions, [whole]);
    assert_eq!(united.frontier, Frontier::After { token: token(2), key: key(2) });
}

#[test]
fn an_answer_outside_of_the_search_is_refused() {
    let order = order(1);
    let mut command = command();
    command.partitions = Partitions::Range(KeyRange {
        start: RingBound::Key { token: token(2), key: key(2), after: false },
        end: RingBound::Token { token: token(6), after: true },
    });
    command.resume =
        Some(data::command::ResumePosition { clustering: Some(row(5)), rows_in_partition: 0 });
    let search = search(&command, 3);
    let accepted = |partitions: &[MatchedPartition], frontier: Frontier| {
        let matches = Matches { partitions: partitions.to_vec(), frontier, ..Matches::none(1) };
        check(&matches, &search, &order).is_ok()
    };
    let inside =
        |n, value| Frontier::Inside { token: token(n), key: key(n), clustering: row(value) };
    assert!(accepted(&[partition(2, &[4, 3]), partition(6, &[1])], Frontier::Done));
    assert!(!accepted(&[partition(2, &[4, 3]), partition(6, &[2, 1])], Frontier::Done), "too many");
    assert!(!accepted(&[partition(2, &[5])], Frontier::Done), "given before");
    assert!(!accepted(&[partition(2, &[3, 4])], Frontier::Done), "rows descend in this table");
    assert!(!accepted(&[partition(4, &[1]), partition(2, &[4])], Frontier::Done));
    assert!(!accepted(&[partition(1, &[4])], Frontier::Done), "before the range");
    assert!(!accepted(&[partition(8, &[4])], Frontier::Done), "after the range");
    assert!(!accepted(&[partition(2, &[])], Frontier::Done));
    assert!(accepted(&[], inside(2, 4)));
    assert!(!accepted(&[], inside(2, 5)), "no progress");
    assert!(accepted(&[], Frontier::Before { token: Token(token(2).0 + 1) }));
    assert!(!accepted(&[], Frontier::Before { token: token(2) }), "no progress");
    assert!(!accepted(&[partition(4, &[1])], inside(2, 4)), "a match after the frontier");
    let two = Matches::none(2);
    assert!(check(&two, &search, &order).is_err(), "one predicate has one estimate");
}

/// INV-index-read-3.
#[test]
fn reads_by_name_hold_the_rows_within_the_slices_once_in_order() {
    let mut command = command();
    command.wants_static = true;
    command.slices = Arc::new(Slices(vec![Slice {
        start: row(200),
        start_after: false,
        end: row(10),
        end_after: false,
    }]));
    let reads = NamedReads::new(&command, &order(1));
    let rows: Vec<i32> = (0..300).rev().collect();
    let whole = MatchedPartition { token: token(4), key: key(4), rows: MatchedRows::Whole };
    let all = reads.of(vec![partition(2, &rows), whole]);
    let named: Vec<&Vec<u8>> = all
        .iter()
        .filter_map(|read| match &read.rows {
            MatchedRows::Rows(rows) => Some(rows),
            MatchedRows::Whole => None,
        })
        .flatten()
        .collect();
    let expect: Vec<Vec<u8>> = (11..=200).rev().map(row).collect();
    assert_eq!(named, expect.iter().collect::<Vec<_>>());
    assert_eq!(all.len(), 3, "rows of two reads, then the whole partition");
    assert_eq!(
        all.iter().map(|read| reads.is_large(read)).collect::<Vec<_>>(),
        [false, false, true]
    );
    let first = reads.command(&all[0]);
    assert_eq!(first.slices.0.len(), 128);
    assert!(!first.wants_static && first.resume.is_none());
    let last = reads.command(&all[2]);
    assert!(last.wants_static && last.slices == command.slices);
    let Remainder::Read(rest) = reads.after(&all[0], Some(&row(190))) else { unreachable!() };
    let MatchedRows::Rows(rest) = rest.rows else { unreachable!() };
    assert_eq!(rest.first(), Some(&row(189)));
    assert_eq!(reads.after(&all[0], Some(&row(73))), Remainder::Nothing);
    assert_eq!(reads.after(&all[0], None), Remainder::Nothing);
}

#[test]
fn a_partition_of_a_table_without_clustering_columns_is_a_small_read() {
    let reads = NamedReads::new(&command(), &order(0));
    let rows = MatchedRows::Rows(vec![Vec::new()]);
    let all = reads.of(vec![MatchedPartition { token: token(1), key: key(1), rows }]);
    let expect = NamedRead { token: token(1), key: key(1), rows: MatchedRows::Whole };
    assert_eq!(all, [expect]);
    assert!(!reads.is_large(&all[0]));
}

#[test]
fn the_predicate_with_the_fewest_candidates_drives() {
    let mut estimates = DriverEstimates::default();
    assert_eq!(estimates.driving(), 0);
    let of = |estimates: &[u64], rows| Matches {
        estimates: estimates.to_vec(),
        rows,
        ..Matches::none(3)
    };
    estimates.note(&of(&[500, 20, 20], 2000));
    estimates.note(&of(&[0, 0, 0], 2000));
    assert_eq!(estimates.driving(), 1);
    assert_eq!((estimates.too_many(0), estimates.too_many(1)), (Some(25), None));
    let share = |candidates| {
        let mut estimates = DriverEstimates::default();
        estimates.note(&of(&[candidates], 2000));
        estimates.too_many(0)
    };
    assert_eq!((share(200), share(199)), (Some(10), None), "a tenth");
    estimates.rows = 999;
    assert_eq!(estimates.too_many(0), None, "a small table");
}

#[test]
fn as_many_ranges_are_searched_as_should_give_what_is_missing() {
    let at = |searched| RangeConcurrency { max: 32, searched };
    assert_eq!(at(0).next(0, 10), 8);
    assert_eq!(at(8).next(0, 10), 32, "no row so far");
    assert_eq!(at(8).next(8, 10), 2);
    assert_eq!(at(8).next(1000, 1001), 1);
    assert_eq!(at(8).next(10, u64::MAX), 32);
    assert_eq!(at(8).next(10, 10), 32, "rows that the filter dropped");
    assert_eq!((keys_of_search(1), keys_of_search(100)), (64, 200));
    assert_eq!(keys_of_search(u64::MAX), KEYS_MAX);
}
