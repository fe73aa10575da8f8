//! Reads by index of replicas that differ: what they show is what a filter over everything shows. Each replica's index
//! is a scan of its own rows, which gives few keys at a time.

use std::rc::Rc;

use cluster::Consistency;
use data::RowRef;
use data::command::ReadCommand;
use dist_testing::table::{STATIC, TABLE, V, W, insert, insert_static, update};
use dist_testing::{ORACLE, Random, Replicas};
use index_format::{
    Frontier, IndexPredicate, IndexSearch, MatchedPartition, MatchedRows, Matches, Matching,
    TermRange,
};
use replica::IndexSearcher;
use request::{ReplicaError, RequestError};
use std::ops::Bound;
use stdx::{ColumnId, Token, Uuid};
use store::{Flow, ReadStats, RowSink, Store, StoreError};

use super::filtered::{Values, live};
use super::local::Sifted;
use super::nodes::{Ask, Nodes, Options, TIMEOUT, all, one};
use super::sink::{Collect, Found, next_page};
use crate::{IndexOrder, IndexReadError, ReplicatedRead, SelectLimits};

const KEYS: i32 = 12;
/// The indexes: by the last digit of `v`, of all set `w`, by the last digit of the static column.
const BY_V: Uuid = Uuid::from_u128(1);
pub(super) const OF_W: Uuid = Uuid::from_u128(2);
/// The same; it says that most rows are in it.
pub(super) const COMMON_W: Uuid = Uuid::from_u128(5);
const BY_STATIC: Uuid = Uuid::from_u128(3);
/// No replica has it.
const UNBUILT: Uuid = Uuid::from_u128(4);
/// Keys of one answer of these replicas.
const KEYS_OF_ANSWER: usize = 3;

fn digits(index: Uuid, below: u8) -> IndexPredicate {
    let upper = Bound::Excluded(vec![b'0' + below]);
    IndexPredicate {
        index,
        ranges: vec![TermRange { lower: Bound::Unbounded, upper }],
        filter: None,
    }
}

fn predicates(filter: Values) -> Vec<IndexPredicate> {
    let mut predicates = Vec::new();
    if filter.v < 10 {
        predicates.push(digits(BY_V, filter.v));
    }
    if filter.w {
        predicates.push(IndexPredicate {
            index: OF_W,
            ranges: vec![TermRange::all()],
            filter: None,
        });
    }
    if filter.statics < 10 {
        predicates.push(digits(BY_STATIC, filter.statics));
    }
    predicates
}

/// Collects the keys of matches.
struct Keys {
    predicates: Vec<IndexPredicate>,
    found: Vec<MatchedPartition>,
    frontier: Frontier,
    at: (Token, Vec<u8>),
    statics: bool,
    wants_more: bool,
}

impl Keys {
    fn holds(&self, column: ColumnId, row: RowRef<'_>) -> bool {
        let index = [(BY_V, V), (OF_W, W), (BY_STATIC, STATIC)];
        let of = |p: &IndexPredicate| index.iter().any(|(id, c)| *id == p.index && *c == column);
        let value = live(row, column);
        let last = value.as_ref().and_then(|value| value.last().copied());
        self.predicates.iter().filter(|p| of(p)).all(|predicate| {
            last.is_some_and(|last| predicate.ranges.iter().any(|range| range.contains(&[last])))
        })
    }

    fn asks_of(&self, column: ColumnId) -> bool {
        let index = [(BY_V, V), (OF_W, W), (BY_STATIC, STATIC)];
        self.predicates.iter().any(|p| index.contains(&(p.index, column)))
    }

    fn is_of_partitions(&self) -> bool {
        !self.asks_of(V) && !self.asks_of(W)
    }

    fn flow(&mut self, frontier: Frontier) -> Flow {
        let count: usize = self.found.iter().map(MatchedPartition::keys).sum();
        if self.wants_more || count < KEYS_OF_ANSWER {
            return Flow::Continue;
        }
        self.frontier = frontier;
        Flow::Stop
    }
}

impl RowSink for Keys {
    fn partition(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        self.at = (token, key.to_vec());
        self.statics = !self.asks_of(STATIC) || static_row.is_some_and(|r| self.holds(STATIC, r));
        if !self.statics {
            return Flow::SkipPartition;
        }
        if !self.is_of_partitions() {
            return Flow::Continue;
        }
        self.found.push(MatchedPartition { token, key: key.to_vec(), rows: MatchedRows::Whole });
        match self.flow(Frontier::After { token, key: key.to_vec() }) {
            Flow::Continue => Flow::SkipPartition,
            flow => flow,
        }
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        if !self.holds(V, row) || !self.holds(W, row) {
            return Flow::Continue;
        }
        let ((token, key), clustering) = (self.at.clone(), clustering.to_vec());
        match self.found.last_mut() {
            Some(MatchedPartition { key: last, rows: MatchedRows::Rows(rows), .. })
                if *last == key =>
            {
                rows.push(clustering.clone());
            }
            _ => {
                let rows = MatchedRows::Rows(vec![clustering.clone()]);
                self.found.push(MatchedPartition { token, key: key.clone(), rows });
            }
        }
        self.flow(Frontier::Inside { token, key, clustering })
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

async fn scan(store: &Store, search: &IndexSearch) -> Result<Matches, StoreError> {
    if search.predicates.iter().any(|predicate| predicate.index == UNBUILT) {
        return Err(StoreError::IndexNotAvailable { index: UNBUILT });
    }
    let predicates = match search.matching {
        Matching::Driving(predicate) => vec![search.predicates[predicate].clone()],
        Matching::Intersection | Matching::EstimateOnly => search.predicates.clone(),
    };
    let mut keys = Keys {
        predicates,
        found: Vec::new(),
        frontier: Frontier::Done,
        at: (Token(0), Vec::new()),
        statics: false,
        wants_more: search.matching == Matching::EstimateOnly,
    };
    let command = ReadCommand { wants_static: true, ..search.command.clone() };
    store.read(&command, &mut keys).await?;
    let is_common = |p: &IndexPredicate| p.index == COMMON_W;
    let few = |(at, p)| if is_common(p) { 1_000_000 } else { 10 - at as u64 };
    let estimates = search.predicates.iter().enumerate().map(few).collect();
    if search.matching == Matching::EstimateOnly {
        return Ok(Matches { estimates, ..Matches::none(0) });
    }
    let (partitions, frontier) = (keys.found, keys.frontier);
    Ok(Matches { partitions, frontier, estimates, rows: 100 })
}

/// The search of a shard: see the module.
pub(super) fn searcher(store: Store) -> IndexSearcher {
    Rc::new(move |search| {
        let store = store.clone();
        Box::pin(async move { scan(&store, &search).await })
    })
}

/// Result of an indexed read.
struct Seen {
    rows: Vec<Found>,
    result: Result<ReadStats, RequestError>,
}

fn read(
    nodes: &Nodes,
    n: u8,
    command: &ReadCommand,
    ask: &Ask,
    (filter, predicates): (Values, Vec<IndexPredicate>),
) -> Seen {
    let shards = if n == ORACLE { 1 } else { nodes.shards(n) };
    let shard = nodes.below(usize::from(shards)) as u16;
    let (command, ask) = (command.clone(), ask.clone());
    nodes.run_on(nodes.node(n, shard), move |node| async move {
        let inner = Collect::new(&command, ask.stop_after, u32::MAX);
        let mut sink = Sifted::new(&filter, command.wants_static, inner);
        let order = ReplicatedRead {
            snapshot: node.snapshot.clone(),
            consistency: ask.level,
            deadline: node.rt.now() + TIMEOUT,
            page_timeout: ask.by_page.then_some(TIMEOUT),
            rows_wanted: usize::MAX,
            limits: SelectLimits { rows_per_partition: u32::MAX },
        };
        let table = node.snapshot.schema.table_by_id(TABLE).unwrap().clone();
        let order = IndexOrder {
            table: &table,
            predicates: &predicates,
            replicas: (n != ORACLE).then_some(&order),
            trace: None,
            rows_wanted: ask.rows_wanted,
        };
        let index_reads = node.coordinator.scans().index_reads();
        let result = match index_reads.read(&command, &order, &mut sink).await {
            Ok(read) => Ok(read.stats),
            Err(IndexReadError::Request(error)) => Err(error),
            Err(IndexReadError::Store(error)) => panic!("{error}"),
        };
        let rows = if result.is_ok() { sink.inner.finish() } else { Vec::new() };
        Seen { rows, result }
    })
}

/// The rows that the oracle has, which pass.
fn expected(nodes: &Nodes, command: &ReadCommand, filter: Values) -> Vec<Found> {
    let command = command.clone();
    nodes.run_on(nodes.node(ORACLE, 0), move |node| async move {
        let inner = Collect::new(&command, None, u32::MAX);
        let mut sink = Sifted::new(&filter, command.wants_static, inner);
        node.coordinator.read(&command, usize::MAX, &mut sink).await.unwrap();
        sink.inner.finish()
    })
}

fn random_filter(nodes: &Nodes) -> Values {
    loop {
        let filter = Values {
            v: [0, 2, 5, 10][nodes.below(4)],
            w: nodes.below(3) == 0,
            statics: [3, 6, 10, 10][nodes.below(4)],
            keys: 4,
        };
        if !predicates(filter).is_empty() {
            return filter;
        }
    }
}

/// Reads in several ways; the first difference from the filter over everything.
fn check(nodes: &Nodes, level: Consistency, rounds: usize) -> Result<(), String> {
    for round in 0..rounds {
        let filter = random_filter(nodes);
        let whole = match nodes.below(4) {
            0 => one(nodes.below(KEYS as usize) as i32),
            _ => all(),
        };
        let asks_of_rows = filter.v < 10 || filter.w;
        let wants_static = !asks_of_rows && nodes.below(2) == 0;
        let command = ReadCommand { wants_static, ..whole };
        let stop_after = [None, Some(1), Some(4)][nodes.below(3)];
        let rows_wanted = stop_after.unwrap_or(usize::MAX);
        let ask = Ask { rows_wanted, stop_after, ..Ask::at(level) };
        let expected = expected(nodes, &command, filter);
        let (mut found, mut rest) = (Vec::new(), Some(command.clone()));
        while let Some(command) = rest {
            let page = read(nodes, nodes.any(), &command, &ask, (filter, predicates(filter)));
            if let Err(error) = page.result {
                return Err(format!("round {round}: {error:?}"));
            }
            rest = next_page(&command, &page.rows).filter(|_| Some(page.rows.len()) == stop_after);
            found.extend(page.rows);
        }
        if found != expected {
            let text = format!("{filter:?} of {command:?}: {found:?}, not {expected:?}");
            return Err(format!("round {round}: {text}"));
        }
    }
    Ok(())
}

/// Three nodes; each write is on two of them, any two.
fn divergent_nodes(seed: u64) -> Nodes {
    let nodes = Nodes::start(&Options::new(seed));
    let mut random = Random(seed);
    let writes: Vec<_> = (1..=200)
        .map(|at| {
            let mutation = random.write(KEYS, at);
            let not = 1 + random.below(3) as u8;
            (mutation, (1..=3).filter(|n| *n != not).collect())
        })
        .collect();
    nodes.write_all(&writes);
    nodes
}

/// INV-index-read-4.
#[test]
fn an_indexed_read_at_quorum_shows_what_a_filter_over_everything_shows() {
    for seed in 0..12 {
        let nodes = divergent_nodes(seed);
        for level in [Consistency::Quorum, Consistency::All] {
            let checked = check(&nodes, level, 12);
            assert_eq!(checked, Ok(()), "seed {seed}, {level:?}");
        }
    }
}

#[test]
fn an_indexed_read_of_more_nodes_than_replicas_searches_every_range() {
    for factor in [1, 2] {
        let nodes = Nodes::start(&Options { factor, ..Options::new(9) });
        let writes: Vec<_> =
            (0..KEYS).map(|key| (insert(key, 1, "v1", 1), vec![1, 2, 3])).collect();
        nodes.write_all(&writes);
        let filter = Values { v: 2, w: false, statics: 10, keys: 4 };
        for n in 1..=3 {
            let ask = Ask::at(Consistency::Quorum);
            let found = read(&nodes, n, &all(), &ask, (filter, predicates(filter)));
            assert_eq!(found.rows, expected(&nodes, &all(), filter), "factor {factor}, n{n}");
        }
    }
}

#[test]
fn parts_of_a_row_that_match_on_different_replicas_are_one_match() {
    let nodes = Nodes::start(&Options::new(7));
    let cell =
        |value: &'static str| data::CellRef::live(stdx::TimestampMicros(5), value.as_bytes());
    nodes.write_all(&[
        (insert(1, 1, "v7", 1), vec![1, 2, 3]),
        // The row matches after the merge only.
        (update(1, 1, V, &cell("v1")), vec![1, 2]),
        (update(1, 1, W, &cell("w")), vec![2, 3]),
        (insert_static(1, "s1", 5), vec![1, 3]),
    ]);
    let filter = Values { v: 2, w: true, statics: 2, keys: 4 };
    for n in 1..=3 {
        let command = ReadCommand { wants_static: false, ..all() };
        let ask = Ask::at(Consistency::Quorum);
        let found = read(&nodes, n, &command, &ask, (filter, predicates(filter)));
        assert_eq!(found.rows.len(), 1, "n{n}");
        assert_eq!(found.rows, expected(&nodes, &command, filter));
    }
}

#[test]
fn an_index_that_no_replica_has_fails_the_read_with_that_reason() {
    let nodes = Nodes::start(&Options::new(8));
    let filter = Values { v: 2, w: false, statics: 10, keys: 4 };
    let ask = Ask::at(Consistency::Quorum);
    let unbuilt = vec![digits(UNBUILT, 2)];
    let found = read(&nodes, 1, &all(), &ask, (filter, unbuilt));
    let Err(RequestError::ReadFailure { failures, .. }) = found.result else {
        panic!("{:?}", found.result)
    };
    assert_eq!(failures.len(), 2, "too many have failed for a quorum then");
    assert!(failures.iter().all(|(_, reason)| *reason == ReplicaError::IndexNotAvailable));
}

#[test]
fn one_slow_or_cut_replica_does_not_keep_a_quorum_from_being_searched() {
    let nodes = divergent_nodes(21);
    nodes.cut(1, 3);
    nodes.cut(2, 3);
    nodes.set_alive(3, true);
    for n in 1..=2 {
        let filter = Values { v: 5, w: false, statics: 10, keys: 4 };
        let command = ReadCommand { wants_static: false, ..all() };
        // Each search and each read by name waits for the silent replica again.
        let ask = Ask { by_page: true, ..Ask::at(Consistency::Quorum) };
        let found = read(&nodes, n, &command, &ask, (filter, predicates(filter)));
        assert!(found.result.is_ok(), "{:?}", found.result);
        assert_eq!(found.rows, expected(&nodes, &command, filter));
    }
}

#[test]
fn a_node_with_everything_reads_by_its_own_index() {
    let nodes = divergent_nodes(31);
    for _ in 0..20 {
        let filter = random_filter(&nodes);
        let command = ReadCommand { wants_static: false, ..all() };
        let ask = Ask::at(Consistency::One);
        let found = read(&nodes, ORACLE, &command, &ask, (filter, predicates(filter)));
        assert_eq!(found.rows, expected(&nodes, &command, filter), "{filter:?}");
    }
}
