//! Searches of indexes: every live row that matches is a candidate, in order, once, whatever its parts lie in.

use std::collections::BTreeSet;

use data::command::{ResumePosition, RingBound};
use index_format::search::{
    Frontier, IndexPredicate, IndexSearch, MatchedPartition, MatchedRows, Matches, Matching,
    SearchLimits,
};
use index_format::{IndexedRow, Scope, TableIndexes, TermFilter, TermRange};
use rt::{Buf, OpenOptions};
use sstable::{Component, IndexComponent, SstableError};

use crate::tests::indexes::*;
use crate::tests::*;

/// A row, or without a clustering a partition.
type Row = (i32, Option<i32>);
/// Number of an index and a term.
type Entries = BTreeSet<(usize, Vec<u8>)>;

const WIDE: SearchLimits = SearchLimits { keys: u32::MAX, bytes: u64::MAX, scanned: u64::MAX };

fn below(rt: &Rt, count: u64) -> u64 {
    rt.random_u64() % count
}

fn compiled() -> TableIndexes {
    TableIndexes::of_table(&indexed_table(&ALL, 1)).unwrap()
}

fn number_of(id: Uuid) -> usize {
    (0..INDEXES.len()).find(|number| index_id(*number) == id).unwrap()
}

fn scope_of(number: usize) -> Scope {
    compiled().get(index_id(number)).unwrap().part.scope()
}

fn pk_of(key: &[u8]) -> i32 {
    i32::from_be_bytes(key.try_into().unwrap())
}

fn ck_of(clustering: &[u8]) -> i32 {
    let value = data::clustering::components(clustering).next().unwrap().unwrap();
    i32::from_be_bytes(value.try_into().unwrap())
}

/// Entries of rows in the indexes: of partitions, of rows.
struct Shown {
    indexes: TableIndexes,
    partitions: BTreeMap<i32, Entries>,
    rows: BTreeMap<Row, Entries>,
    key: Vec<u8>,
}

impl Shown {
    fn new() -> Shown {
        let (partitions, rows) = (BTreeMap::new(), BTreeMap::new());
        Shown { indexes: compiled(), partitions, rows, key: Vec::new() }
    }

    fn add(&mut self, key: &[u8], clustering: Option<&[u8]>, row: RowRef<'_>) {
        let pk = pk_of(key);
        let partition = self.partitions.entry(pk).or_default();
        let of_row = clustering.map(|c| self.rows.entry((pk, Some(ck_of(c)))).or_default());
        let mut of_row = of_row;
        let row = IndexedRow { key, clustering, row, is_first: true };
        self.indexes.visit_row(&row, &mut Vec::new(), |number, term| {
            let index = &self.indexes.all()[number];
            let entry = (number_of(index.id), term.to_vec());
            match (index.part.scope(), &mut of_row) {
                (Scope::Row, Some(of_row)) => of_row.insert(entry),
                _ => partition.insert(entry),
            };
        });
    }

    fn add_mutation(&mut self, mutation: &[u8]) {
        let mutation = MutationRef::open(mutation).unwrap();
        mutation.static_row.into_iter().for_each(|row| self.add(mutation.key, None, row));
        mutation.rows().for_each(|(ck, row)| self.add(mutation.key, Some(ck), row));
    }

    /// Rows, or partitions, that have all predicates.
    fn matches(&self, predicates: &[IndexPredicate]) -> BTreeSet<Row> {
        let numbers: Vec<usize> = predicates.iter().map(|p| number_of(p.index)).collect();
        let has = |entries: &Entries, at: usize| {
            entries.iter().any(|(number, term)| {
                let IndexPredicate { ranges, filter, .. } = &predicates[at];
                *number == numbers[at]
                    && ranges.iter().any(|range| range.contains(term))
                    && filter.as_ref().is_none_or(|filter| filter.accepts(term))
            })
        };
        let all = |pk: i32, of_row: Option<&Entries>| {
            (0..predicates.len()).all(|at| match (scope_of(numbers[at]), of_row) {
                (Scope::Row, Some(entries)) => has(entries, at),
                (Scope::Row, None) => false,
                (Scope::Partition, _) => has(&self.partitions[&pk], at),
            })
        };
        if numbers.iter().any(|number| scope_of(*number) == Scope::Row) {
            let rows = self.rows.iter().filter(|(row, entries)| all(row.0, Some(entries)));
            return rows.map(|(row, _)| *row).collect();
        }
        let partitions = self.partitions.keys().filter(|pk| all(**pk, None));
        partitions.map(|pk| (*pk, None)).collect()
    }
}

impl RowSink for Shown {
    fn partition(&mut self, _: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        self.key = key.to_vec();
        let key = key.to_vec();
        static_row.into_iter().for_each(|row| self.add(&key, None, row));
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        let key = self.key.clone();
        self.add(&key, Some(clustering), row);
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

async fn live(store: &Store, partitions: Partitions) -> Shown {
    let mut shown = Shown::new();
    store.read(&read_of(partitions), &mut shown).await.unwrap();
    shown
}

/// Some bytes of a term, at its end or anywhere.
fn part_of(rt: &Rt, term: &[u8], is_end: bool) -> Vec<u8> {
    let start = below(rt, term.len() as u64 + 1) as usize;
    let end = match is_end {
        true => term.len(),
        false => start + below(rt, (term.len() - start) as u64 + 1) as usize,
    };
    term[start..end].to_vec()
}

/// A predicate with a term that some row may have, a range of terms, or a filter of terms.
fn random_predicate(rt: &Rt, shown: &Shown) -> IndexPredicate {
    let number = below(rt, INDEXES.len() as u64) as usize;
    let of_partitions = shown.partitions.values().flatten();
    let entries = of_partitions.chain(shown.rows.values().flatten());
    let terms: BTreeSet<&Vec<u8>> =
        entries.filter(|(of, _)| *of == number).map(|(_, term)| term).collect();
    let terms: Vec<&Vec<u8>> = terms.into_iter().collect();
    let term = |rt: &Rt| match terms.len() {
        0 => b"nothing".to_vec(),
        count => terms[below(rt, count as u64) as usize].clone(),
    };
    let filter = match below(rt, 6) {
        0 => Some(TermFilter::EndsWith(part_of(rt, &term(rt), true))),
        1 => Some(TermFilter::Contains(part_of(rt, &term(rt), false))),
        _ => None,
    };
    if filter.is_some() {
        let ranges = match below(rt, 2) {
            0 => vec![TermRange::all()],
            _ => {
                vec![TermRange::prefix(&part_of(rt, &term(rt), false)), TermRange::equal(&term(rt))]
            }
        };
        return IndexPredicate { index: index_id(number), ranges, filter };
    }
    let ranges = match below(rt, 4) {
        0 => vec![TermRange::equal(&term(rt)), TermRange::equal(&term(rt))],
        1 => vec![TermRange {
            lower: std::ops::Bound::Included(term(rt)),
            upper: std::ops::Bound::Unbounded,
        }],
        _ => vec![TermRange::equal(&term(rt))],
    };
    IndexPredicate { index: index_id(number), ranges, filter: None }
}

fn search_of(
    command: ReadCommand,
    predicates: &[IndexPredicate],
    matching: Matching,
) -> IndexSearch {
    IndexSearch { command, predicates: predicates.to_vec(), matching, limits: WIDE }
}

fn keys_of(partitions: &[MatchedPartition]) -> Vec<Row> {
    let of_partition = |partition: &MatchedPartition| match &partition.rows {
        MatchedRows::Whole => vec![(pk_of(&partition.key), None)],
        MatchedRows::Rows(rows) => {
            rows.iter().map(|row| (pk_of(&partition.key), Some(ck_of(row)))).collect()
        }
    };
    partitions.iter().flat_map(of_partition).collect()
}

/// The command that continues a search at its frontier.
fn continued(command: &ReadCommand, frontier: Frontier) -> Option<ReadCommand> {
    let Partitions::Range(range) = &command.partitions else { panic!("one partition") };
    let (start, clustering) = match frontier {
        Frontier::Done => return None,
        Frontier::Before { token } => (RingBound::Token { token, after: false }, None),
        Frontier::After { token, key } => (RingBound::Key { token, key, after: true }, None),
        Frontier::Inside { token, key, clustering } => {
            (RingBound::Key { token, key, after: false }, Some(clustering))
        }
    };
    let resume = clustering
        .map(|clustering| ResumePosition { clustering: Some(clustering), rows_in_partition: 1 });
    let range = KeyRange { start, end: range.end.clone() };
    Some(ReadCommand { partitions: Partitions::Range(range), resume, ..command.clone() })
}

/// All matches of a range, in answers of random sizes.
async fn search_in_parts(rt: &Rt, store: &Store, search: &IndexSearch) -> Vec<MatchedPartition> {
    let mut search = search.clone();
    let mut all: Vec<MatchedPartition> = Vec::new();
    loop {
        search.limits = WIDE;
        if below(rt, 2) == 0 {
            search.limits.keys = 1 + below(rt, 7) as u32;
        }
        if below(rt, 2) == 0 {
            search.limits.scanned = below(rt, 20);
        }
        let matches: Matches = store.reader().search_index(&search).await.unwrap();
        all.extend(matches.partitions);
        let Some(next) = continued(&search.command, matches.frontier) else { return all };
        search.command = next;
    }
}

/// Keys ascend, each once.
fn check_order(keys: &[Row]) {
    let place = |row: &Row| (codec::token_of(&key(row.0)), row.0, row.1);
    assert!(keys.is_sorted_by(|a, b| place(a) < place(b)), "{keys:?}");
}

/// INV-index-1: what all live rows have, and nothing that no row ever had (`ever`), unless files without index add it.
async fn check(rt: &Rt, store: &Store, ever: &Shown, is_exact: bool) -> usize {
    let all = live(store, Partitions::Range(KeyRange::all())).await;
    let mut found = 0;
    for _ in 0..12 {
        let count = 1 + below(rt, 3) as usize;
        let predicates: Vec<IndexPredicate> =
            (0..count).map(|_| random_predicate(rt, ever)).collect();
        let matching = match below(rt, 2) {
            0 => Matching::Driving(below(rt, count as u64) as usize),
            _ => Matching::Intersection,
        };
        let used = match matching {
            Matching::Driving(at) => vec![predicates[at].clone()],
            _ => predicates.clone(),
        };
        let (command, inside): (ReadCommand, Box<dyn Fn(i32) -> bool>) = match below(rt, 4) {
            0 => {
                let pk = below(rt, 12) as i32;
                (read_of(Partitions::Key(key(pk))), Box::new(move |other| other == pk))
            }
            1 => {
                let token = Token(rt.random_u64().cast_signed());
                let start = RingBound::Token { token, after: true };
                let range = KeyRange { start, ..KeyRange::all() };
                let is_after = move |pk: i32| codec::token_of(&key(pk)) > token;
                (read_of(Partitions::Range(range)), Box::new(is_after))
            }
            _ => (read_of(Partitions::Range(KeyRange::all())), Box::new(|_| true)),
        };
        let search = search_of(command, &predicates, matching);
        let partitions = match &search.command.partitions {
            Partitions::Key(_) => store.reader().search_index(&search).await.unwrap().partitions,
            Partitions::Range(_) => search_in_parts(rt, store, &search).await,
        };
        let keys = keys_of(&partitions);
        check_order(&keys);
        let keys: BTreeSet<Row> = keys.into_iter().collect();
        let inside = |row: &Row| inside(row.0);
        let expected: BTreeSet<Row> = all.matches(&used).into_iter().filter(inside).collect();
        let missing: Vec<&Row> = expected.difference(&keys).collect();
        assert!(missing.is_empty(), "{missing:?} of {expected:?} by {search:?}");
        if is_exact {
            let possible: BTreeSet<Row> = ever.matches(&used);
            let more: Vec<&Row> = keys.difference(&possible).collect();
            assert!(more.is_empty(), "{more:?} by {search:?}");
        }
        found += expected.len();
        check_rows(store, &search, &partitions, &all, &used, &expected).await;
    }
    found
}

/// Candidates read by name, and filtered, are the rows that match.
async fn check_rows(
    store: &Store,
    search: &IndexSearch,
    partitions: &[MatchedPartition],
    all: &Shown,
    used: &[IndexPredicate],
    expected: &BTreeSet<Row>,
) {
    let mut rows = Shown::new();
    store.reader().read_matches(&search.command, partitions, &mut rows).await.unwrap();
    let found: BTreeSet<Row> = rows.matches(used);
    assert_eq!(found, *expected, "by {search:?}");
    for (row, entries) in &rows.rows {
        assert_eq!(all.rows.get(row), Some(entries), "{row:?} by {search:?}");
    }
}

#[test]
fn every_live_row_that_matches_is_a_candidate() {
    let found = Arc::new(Mutex::new(0));
    for seed in 0..12 {
        let found = found.clone();
        run(seed, move |rt| {
            let found = found.clone();
            async move {
                let store = open_with(&rt, &ALL).await;
                let mut ever = Shown::new();
                let mut sum = 0;
                for timestamp in 1..=240 {
                    let mutation = random_mutation(&rt, timestamp + below(&rt, 5) as i64);
                    ever.add_mutation(&mutation);
                    write(&store, &mutation).await.unwrap();
                    match below(&rt, 60) {
                        0 | 1 => store.flush(None).await.unwrap(),
                        2 => store.compactor().compact_major(TABLE).await.unwrap(),
                        3 => sum += check(&rt, &store, &ever, true).await,
                        _ => {}
                    }
                }
                sum += check(&rt, &store, &ever, true).await;
                *found.lock().unwrap() += sum;
            }
        });
    }
    assert!(*found.lock().unwrap() > 1_000, "{found:?} rows");
}

/// Files of random indexes lose them while the node runs.
#[test]
fn a_file_without_its_component_hides_no_row() {
    for seed in 0..8 {
        run(seed, move |rt| async move {
            let store = open_with(&rt, &ALL).await;
            let mut ever = Shown::new();
            for timestamp in 1..=150 {
                let mutation = random_mutation(&rt, timestamp);
                ever.add_mutation(&mutation);
                write(&store, &mutation).await.unwrap();
                if below(&rt, 30) == 0 {
                    store.flush(None).await.unwrap();
                }
            }
            let view = store.tables().table(TABLE).unwrap().view();
            for file in &view.files {
                let component = match below(&rt, 3) {
                    0 => IndexComponent::Rows,
                    _ => IndexComponent::Entries(index_id(below(&rt, 7) as usize)),
                };
                let what = "lost by the test".to_owned();
                let error = SstableError::Corrupt { file: String::new(), offset: 0, what };
                file.reader.mark_index_damaged(component, &error);
            }
            check(&rt, &store, &ever, false).await;
        });
    }
}

/// A byte of a component that changes on disk: the search begins again without the component, and reports it.
#[test]
fn a_component_that_turns_out_damaged_hides_no_row() {
    let damaged = Arc::new(Mutex::new(0));
    for seed in 0..8 {
        let damaged = damaged.clone();
        run(seed, move |rt| {
            let damaged = damaged.clone();
            async move {
                let store = open_with(&rt, &ALL).await;
                let mut ever = Shown::new();
                for timestamp in 1..=120 {
                    let mutation = random_mutation(&rt, timestamp);
                    ever.add_mutation(&mutation);
                    write(&store, &mutation).await.unwrap();
                }
                store.flush(None).await.unwrap();
                let view = store.tables().table(TABLE).unwrap().view();
                let reader = &view.files[0].reader;
                let components = (0..7).map(|number| IndexComponent::Entries(index_id(number)));
                for component in components.chain([IndexComponent::Rows]) {
                    let path = reader.meta().file(Component::Attached(component.name()));
                    flip(&rt, &path, 40).await;
                }
                check(&rt, &store, &ever, false).await;
                *damaged.lock().unwrap() += reader.damaged_indexes().len();
            }
        });
    }
    assert!(*damaged.lock().unwrap() > 8, "{damaged:?} components");
}

async fn flip(rt: &Rt, path: &str, at: u64) {
    let options = OpenOptions { read: true, write: true, ..OpenOptions::default() };
    let file = rt.fs().open(path, options).await.unwrap();
    let byte = file.read_exact_at(at, 1).await.unwrap().as_slice()[0] ^ 0x10;
    file.write_at(Buf::from(vec![byte]), at).await.1.unwrap();
}

#[test]
fn an_index_that_is_unknown_or_not_built_is_not_available() {
    run(1, |rt| async move {
        let store = open_with(&rt, &[3]).await;
        let all = read_of(Partitions::Range(KeyRange::all()));
        let of = |number| IndexPredicate {
            index: index_id(number),
            ranges: vec![TermRange::equal(b"value 1")],
            filter: None,
        };
        write(&store, &insert(1, 2, "value 1", 10)).await.unwrap();
        let search = search_of(all.clone(), &[of(3)], Matching::Driving(0));
        let matches = store.reader().search_index(&search).await.unwrap();
        assert_eq!(keys_of(&matches.partitions), [(1, Some(2))]);
        assert_eq!((matches.estimates, matches.frontier), (vec![1], Frontier::Done));
        let search = search_of(all, &[of(4)], Matching::Driving(0));
        let error = store.reader().search_index(&search).await.unwrap_err();
        assert_eq!(error, StoreError::IndexNotAvailable { index: index_id(4) });
    });
}

fn value_1() -> IndexPredicate {
    IndexPredicate { index: index_id(3), ranges: vec![TermRange::equal(b"value 1")], filter: None }
}

fn search_all(matching: Matching) -> IndexSearch {
    search_of(read_of(Partitions::Range(KeyRange::all())), &[value_1()], matching)
}

async fn found(store: &Store) -> Result<BTreeSet<Row>, StoreError> {
    let matches = store.reader().search_index(&search_all(Matching::Driving(0))).await?;
    Ok(keys_of(&matches.partitions).into_iter().collect())
}

#[test]
fn rows_of_a_memtable_that_is_being_flushed_are_candidates() {
    run(8_301, |rt| async move {
        let store = open_with(&rt, &ALL).await;
        for pk in 0..20 {
            write(&store, &insert(pk, 1, "value 1", 10)).await.unwrap();
        }
        let (gate, other) = (rt.gate("test"), store.clone());
        let flush = async move { other.flush(None).await.unwrap() };
        gate.spawn(&rt, rt::Group::Admin, "flush", flush).unwrap();
        let table = store.tables().table(TABLE).unwrap();
        for _ in 0..10_000 {
            if !table.view().flushing.is_empty() {
                break;
            }
            rt.sleep(Duration::from_micros(1)).await;
        }
        write(&store, &insert(20, 1, "value 1", 10)).await.unwrap();
        assert!(!table.view().flushing.is_empty(), "no flush is under way");
        assert_eq!(found(&store).await, Ok((0..=20).map(|pk| (pk, Some(1))).collect()));
        gate.close().await;
        assert!(table.view().flushing.is_empty());
        assert_eq!(found(&store).await, Ok((0..=20).map(|pk| (pk, Some(1))).collect()));
        store.stop().await;
    });
}

#[test]
fn rows_of_a_memtable_from_before_the_index_are_candidates() {
    run(8_302, |rt| async move {
        let store = open_with(&rt, &[]).await;
        write(&store, &insert(3, 3, "value 1", 10)).await.unwrap();
        store.set_schema(indexed_schema(&[3]));
        write(&store, &insert(4, 4, "value 1", 10)).await.unwrap();
        assert_eq!(found(&store).await, Ok([(3, Some(3)), (4, Some(4))].into()));
        store.stop().await;
    });
}

#[test]
fn an_index_is_not_available_before_the_files_have_it() {
    run(8_303, |rt| async move {
        let store = open_with(&rt, &[]).await;
        write(&store, &insert(1, 2, "value 1", 10)).await.unwrap();
        store.flush(None).await.unwrap();
        store.set_schema(indexed_schema(&[3]));
        let missing = Err(StoreError::IndexNotAvailable { index: index_id(3) });
        assert_eq!(found(&store).await, missing);
        for _ in 0..1_000 {
            if found(&store).await != missing {
                break;
            }
            rt.sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(found(&store).await, Ok([(1, Some(2))].into()));
        store.stop().await;
    });
}

/// Exact of sources with the index, all rows of others.
#[test]
fn an_estimate_counts_the_candidates_of_every_source() {
    run(8_304, |rt| async move {
        let store = open_with(&rt, &ALL).await;
        for pk in 0..14 {
            let value = if pk < 10 { "value 1" } else { "value 2" };
            write(&store, &insert(pk, 1, value, 10)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        for pk in 20..23 {
            write(&store, &insert(pk, 1, "value 1", 10)).await.unwrap();
        }
        let search = search_all(Matching::EstimateOnly);
        let counted = store.reader().search_index(&search).await.unwrap();
        assert_eq!((counted.estimates, counted.rows), (vec![13], 17));
        let view = store.tables().table(TABLE).unwrap().view();
        let what = "lost by the test".to_owned();
        let error = SstableError::Corrupt { file: String::new(), offset: 0, what };
        view.files[0].reader.mark_index_damaged(IndexComponent::Entries(index_id(3)), &error);
        let counted = store.reader().search_index(&search).await.unwrap();
        assert_eq!((counted.estimates, counted.rows), (vec![17], 17));
        store.stop().await;
    });
}
