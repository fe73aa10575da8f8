//! Reads with a filter of ranges that several replicas answer: of the page that is shown only what passes is sent, as
//! long as replicas agree.

use std::sync::Arc;
use std::time::Duration;

use cluster::Consistency;
use data::command::{KeyRange, Partitions, ReadCommand, RingBound};
use data::{CellRef, ColumnRef, RowFilter, RowRef};
use dist_testing::table::{
    NOW, STATIC, V, W, delete_partition, delete_range, delete_row, insert, insert_static, update,
};
use dist_testing::{ORACLE, Random, Replicas, host};
use request::{ReplicaError, RequestError};
use schema::TableOptions;
use stdx::{ColumnId, DeletionSeconds, TimestampMicros, Token, TtlSeconds};
use store::ReadStats;

use super::local::Sifted;
use super::nodes::{Ask, Nodes, Options, TIMEOUT, all};
use super::sink::{Collect, Found, next_page};
use crate::{ReplicatedRead, SelectLimits, ShardFilter};

const KEYS: i32 = 24;

/// Asks something of values: what passes differs between replicas that differ.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values {
    /// The last digit of `v` is below; 10: nothing is asked, 0: nothing passes.
    pub(super) v: u8,
    /// Column `w` is set.
    pub(super) w: bool,
    /// The last digit of the static column is below; 10: nothing is asked.
    pub(super) statics: u8,
    /// So many partitions of four pass.
    pub(super) keys: u8,
}

const ANY: Values = Values { v: 10, w: false, statics: 10, keys: 4 };

impl Values {
    fn encode(self) -> Vec<u8> {
        vec![self.v, u8::from(self.w), self.statics, self.keys]
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Values> {
        let [v, w, statics, keys] = *bytes else { return None };
        Some(Values { v, w: w != 0, statics, keys })
    }

    fn random(nodes: &Nodes) -> Values {
        Values {
            v: [0, 1, 3, 10][nodes.below(4)],
            w: nodes.below(3) == 0,
            statics: [2, 5, 10, 10][nodes.below(4)],
            keys: [1, 3, 4, 4][nodes.below(4)],
        }
    }
}

pub(super) fn live(row: RowRef<'_>, id: ColumnId) -> Option<Vec<u8>> {
    match row.column(id)? {
        ColumnRef::Simple(cell) => cell.is_live(NOW).then(|| cell.value.to_vec()),
        ColumnRef::Complex(_) => None,
    }
}

fn is_below(row: Option<RowRef<'_>>, id: ColumnId, limit: u8) -> bool {
    let last = row.and_then(|row| live(row, id)).and_then(|value| value.last().copied());
    limit == 10 || last.is_some_and(|last| last.wrapping_sub(b'0') < limit)
}

impl RowFilter for Values {
    fn keeps_partition(&self, key: &[u8], static_row: Option<RowRef<'_>>) -> bool {
        key.last().is_none_or(|last| last % 4 < self.keys)
            && is_below(static_row, STATIC, self.statics)
    }

    fn keeps_row(&self, _: &[u8], row: RowRef<'_>) -> bool {
        is_below(Some(row), V, self.v) && (!self.w || live(row, W).is_some())
    }
}

/// Result of a read: the rows, the cost, and how many rows the sink was shown.
struct Seen {
    rows: Vec<Found>,
    result: Result<ReadStats, RequestError>,
    shown: u64,
    took: Duration,
}

fn read(nodes: &Nodes, n: u8, command: &ReadCommand, ask: &Ask, filter: Values) -> Seen {
    let shards = if n == ORACLE { 1 } else { nodes.shards(n) };
    let shard = nodes.below(usize::from(shards)) as u16;
    let (command, ask) = (command.clone(), ask.clone());
    nodes.run_on(nodes.node(n, shard), move |node| async move {
        let mut inner = Collect::new(&command, ask.stop_after, u32::MAX);
        (inner.tombstones, inner.refused) = (ask.tombstones, ask.refused);
        let mut sink = Sifted::new(&filter, command.wants_static, inner);
        let began = node.rt.now();
        let result = if n == ORACLE {
            Ok(node.coordinator.read(&command, ask.rows_wanted, &mut sink).await.unwrap())
        } else {
            let order = ReplicatedRead {
                snapshot: node.snapshot.clone(),
                consistency: ask.level,
                deadline: node.rt.now() + TIMEOUT,
                page_timeout: None,
                rows_wanted: ask.rows_wanted,
                limits: SelectLimits { rows_per_partition: ask.per_partition },
            };
            let shipped = Some(filter.encode());
            let rows_wanted = ask.rows_wanted;
            let filter = ShardFilter { filter: Arc::new(filter), rows_wanted, shipped };
            let with = crate::ReadOptions { trace: None, filter: Some(&filter) };
            node.coordinator.reads().read_traced(&command, &order, with, &mut sink).await
        };
        let (shown, took) = (sink.rows, node.rt.now().since(began));
        let rows = if result.is_ok() { sink.inner.finish() } else { Vec::new() };
        Seen { rows, result, shown, took }
    })
}

/// A command over all or a part of the ring.
fn any_range(nodes: &Nodes) -> ReadCommand {
    let mut command = all();
    if nodes.below(3) == 0 {
        let at = || Token(nodes.random.borrow_mut().next() as i64);
        let (a, b) = (at(), at());
        let bound = |token, after| RingBound::Token { token, after };
        let range = KeyRange { start: bound(a.min(b), true), end: bound(a.max(b), false) };
        command.partitions = Partitions::Range(range);
    }
    command
}

/// Reads in several ways; the first difference from the oracle.
fn check(nodes: &Nodes, level: Consistency, rounds: usize) -> Result<(), String> {
    for round in 0..rounds {
        let (filter, mut command) = (Values::random(nodes), any_range(nodes));
        let stop_after = [None, None, Some(1), Some(7)][nodes.below(4)];
        let asks_of_rows = filter.v < 10 || filter.w;
        // With both, where a client's page ends says whether a static row was shown alone.
        command.wants_static = nodes.below(2) == 0 && !(asks_of_rows && stop_after.is_some());
        let rows_wanted = [3, 50, usize::MAX][nodes.below(3)];
        let ask = Ask { rows_wanted, stop_after, ..Ask::at(level) };
        let whole = Ask { stop_after: None, ..ask.clone() };
        let expected = read(nodes, ORACLE, &command, &whole, filter).rows;
        let (mut found, mut rest) = (Vec::new(), Some(command));
        while let Some(command) = rest {
            let n = nodes.any();
            let page = read(nodes, n, &command, &ask, filter);
            page.result.map_err(|error| format!("round {round} n{n}: {error}"))?;
            rest = next_page(&command, &page.rows).filter(|_| Some(page.rows.len()) == stop_after);
            found.extend(page.rows);
        }
        if found != expected {
            return Err(format!("round {round} {filter:?} {ask:?}: {found:?}, not {expected:?}"));
        }
    }
    Ok(())
}

/// Writes of which each is on two or three of three nodes: a quorum acknowledged them.
fn acknowledged(seed: u64, count: i64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut random = Random(seed);
    let mut write = |at| {
        let to = match random.below(9) {
            0 => vec![1, 2],
            1 => vec![2, 3],
            2 => vec![1, 3],
            _ => vec![1, 2, 3],
        };
        (random.write(KEYS, at), to)
    };
    (1..=count).map(&mut write).collect()
}

fn without_repair(read_repair: &str) -> TableOptions {
    TableOptions { read_repair: read_repair.to_owned(), ..TableOptions::default() }
}

#[test]
fn filters_at_a_quorum_leave_what_they_leave_of_one_node_with_everything() {
    let (mut filtered, mut merged) = (0, 0);
    for seed in 200..208 {
        let table = without_repair(["BLOCKING", "NONE"][seed as usize % 2]);
        let page_tombstones = [10_000, 30][seed as usize / 2 % 2];
        let nodes = Nodes::start(&Options { table, page_tombstones, ..Options::new(seed) });
        let writes = acknowledged(seed, 240);
        nodes.write_all(&writes[..160]);
        nodes.flush(nodes.any());
        nodes.write_all(&writes[160..]);
        check(&nodes, Consistency::Quorum, 12).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        check(&nodes, Consistency::All, 4).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        filtered += nodes.filtered_pages().0;
        merged += nodes.mismatches();
    }
    // Else nothing of the above is about both.
    assert!(filtered > 100 && merged > 100, "{filtered} filtered, {merged} merged");
}

/// Nodes that have the same.
fn agreeing(options: &Options) -> Nodes {
    let nodes = Nodes::start(options);
    let mut random = Random(options.seed);
    let write = |at| {
        let mutation = random.write(KEYS, at);
        let to = nodes.replicas_of(&mutation);
        (mutation, to)
    };
    nodes.write_all(&(1..=300).map(write).collect::<Vec<_>>());
    nodes
}

#[test]
fn what_does_not_pass_stays_where_it_is_when_replicas_agree() {
    // Vnodes: no node has everything.
    let shards = vec![1, 2, 1, 3];
    let nodes = agreeing(&Options { shards, factor: 3, tokens: 6, ..Options::new(220) });
    for n in 1..=4 {
        for filter in [ANY, Values { v: 1, ..ANY }, Values { v: 0, keys: 3, ..ANY }] {
            let ask = Ask { rows_wanted: usize::MAX, ..Ask::at(Consistency::Quorum) };
            let command = ReadCommand { wants_static: false, ..all() };
            let expected = read(&nodes, ORACLE, &command, &ask, filter);
            let looked_at = expected.result.unwrap();
            let found = read(&nodes, n, &command, &ask, filter);
            let stats = found.result.unwrap();
            assert_eq!(found.rows, expected.rows);
            // No row arrives that the coordinator would drop.
            assert_eq!(found.shown, found.rows.len() as u64);
            assert_eq!(stats.rows, found.shown + stats.filtered.rows);
            assert_eq!(stats.rows, looked_at.rows);
            let whole = nodes.read(n, &command, &ask).result.unwrap();
            assert_eq!(stats.tombstones, whole.tombstones);
            assert_eq!(stats.filtered.partitions > 0, filter.keys < 4);
        }
    }
    check(&nodes, Consistency::Quorum, 12).unwrap();
    assert_eq!((nodes.mismatches(), nodes.filtered_pages().1), (0, 0));
}

/// Reads of three nodes at ALL, from each of them.
fn rows_of(write: &[(Vec<u8>, &[u8])], filter: Values) -> Vec<Found> {
    let mut found: Option<Vec<Found>> = None;
    for n in 1..=3 {
        let nodes = Nodes::start(&Options::new(230));
        for (mutation, to) in write {
            nodes.write(to, mutation);
        }
        let command = ReadCommand { wants_static: false, ..all() };
        let seen = read(&nodes, n, &command, &Ask::at(Consistency::All), filter);
        seen.result.unwrap();
        assert_eq!(seen.rows, found.get_or_insert_with(|| seen.rows.clone()).clone(), "n{n}");
        assert!(nodes.mismatches() > 0, "they differ");
        nodes.check_equal().unwrap();
    }
    found.unwrap()
}

fn cell(at: i64, value: &str) -> CellRef<'_> {
    CellRef::live(TimestampMicros(at), value.as_bytes())
}

#[test]
fn a_row_whose_parts_match_on_different_replicas_is_found() {
    // INV-filtered-1.
    const ALL: &[u8] = &[1, 2, 3];
    let both = Values { v: 3, w: true, ..ANY };
    for (with_v, with_w) in [([1_u8], [2_u8]), ([2], [3]), ([3], [1])] {
        let write = [
            (insert(1, 1, "9", 1), ALL),
            (update(1, 1, V, &cell(2, "1")), &with_v[..]),
            (update(1, 1, W, &cell(2, "x")), &with_w[..]),
        ];
        let row = (1, Some(1), None, Some("1".to_owned()), Some("x".to_owned()));
        assert_eq!(rows_of(&write, both), [row]);
    }
    // A static column of one, a row of another.
    let statics = Values { v: 3, statics: 5, ..ANY };
    let write = [(insert_static(1, "4", 1), &[1_u8][..]), (insert(1, 1, "2", 1), &[3_u8][..])];
    let row = (1, Some(1), Some("4".to_owned()), Some("2".to_owned()), None);
    assert_eq!(rows_of(&write, statics), [row]);
}

#[test]
fn a_row_that_matches_on_one_replica_only_is_not_found() {
    const ALL: &[u8] = &[1, 2, 3];
    let filter = Values { v: 3, ..ANY };
    let gone = |at| CellRef::tombstone(TimestampMicros(at), DeletionSeconds(NOW.0 - 5));
    let expired =
        CellRef::expiring(TimestampMicros(3), TtlSeconds(10), DeletionSeconds(NOW.0 - 1), b"1");
    let later = [
        delete_row(1, 1, 3),
        delete_range(1, 0, 9, 3),
        delete_partition(1, 3),
        insert(1, 1, "8", 3),
        update(1, 1, V, &gone(3)),
        update(1, 1, V, &expired),
    ];
    for later in later {
        for n in 1..=3 {
            let to = [n];
            let write = [(insert(1, 1, "1", 1), ALL), (later.clone(), &to[..])];
            let found = rows_of(&write, filter);
            assert!(found.is_empty(), "n{n} {later:?}: {found:?}");
        }
    }
}

#[test]
fn nodes_that_do_not_know_of_filters_or_refuse_them_give_their_pages() {
    for is_old in [true, false] {
        // The coordinator is no replica of some ranges, so that it is asked for pages.
        let shards = vec![1, 2, 1, 3];
        let nodes = agreeing(&Options { shards, factor: 3, tokens: 6, ..Options::new(240) });
        match is_old {
            true => nodes.grow_old(3),
            false => nodes.refuse_at(3),
        }
        let ask = Ask { rows_wanted: 20, ..Ask::at(Consistency::Quorum) };
        let filter = Values { v: 3, ..ANY };
        let expected = read(&nodes, ORACLE, &all(), &ask, filter).rows;
        let read_all = || {
            for n in (1..=4).cycle().take(48) {
                let found = read(&nodes, n, &all(), &ask, filter);
                found.result.unwrap();
                assert_eq!(found.rows, expected, "n{n}");
            }
            nodes.asked_to_filter(3)
        };
        let (before, after) = (read_all(), read_all());
        // A node that does not know the verb is remembered for a while, by each shard that has
        // asked it.
        assert!(before > 0 && (before == after) == is_old, "{before} {after}");
        let (filtered, refused) = nodes.filtered_pages();
        assert!(filtered > refused && refused == after, "{filtered} {refused} {after}");
        assert_eq!(nodes.mismatches(), 0);
    }
}

#[test]
fn another_replica_filters_when_one_is_silent_or_sends_what_was_not_asked_for() {
    let table = TableOptions { speculative_retry: "50ms".to_owned(), ..TableOptions::default() };
    let filter = Values { v: 3, ..ANY };
    let ask = Ask { rows_wanted: usize::MAX, ..Ask::at(Consistency::Quorum) };
    for bad in [2, 3] {
        for is_silent in [true, false] {
            let nodes = agreeing(&Options { table: table.clone(), ..Options::new(250) });
            let expected = read(&nodes, ORACLE, &all(), &ask, filter).rows;
            // Connections are there.
            read(&nodes, 1, &all(), &ask, filter).result.unwrap();
            match is_silent {
                true => nodes.cut(1, bad),
                false => nodes.misread_at(bad),
            }
            let mut command = all();
            for _ in 0..3 {
                let found = read(&nodes, 1, &command, &ask, filter);
                found.result.unwrap();
                assert!(found.took < TIMEOUT);
                assert_eq!(found.rows, read(&nodes, ORACLE, &command, &ask, filter).rows);
                let end = RingBound::Token { token: Token(0), after: true };
                command.partitions = Partitions::Range(KeyRange { end, ..KeyRange::all() });
            }
            assert!(!expected.is_empty());
        }
    }
}

#[test]
fn tombstones_count_though_nothing_of_them_is_sent() {
    let nodes = Nodes::start(&Options::new(260));
    let writes: Vec<_> = (0..11).map(|ck| (delete_row(1, ck, 1), vec![1, 2, 3])).collect();
    nodes.write_all(&writes);
    let ask = |refused| Ask { refused, tombstones: 1_000, ..Ask::at(Consistency::All) };
    let filter = Values { v: 0, ..ANY };
    read(&nodes, 1, &all(), &ask(11), filter).result.unwrap();
    match read(&nodes, 1, &all(), &ask(10), filter).result {
        Err(RequestError::ReadFailure { failures, .. }) => {
            let [(who, ReplicaError::TooManyTombstones)] = failures.as_slice() else {
                panic!("{failures:?}")
            };
            assert!((1..=3).any(|n| host(n) == *who));
        }
        other => panic!("{other:?}"),
    }
    assert!(nodes.filtered_pages().0 > 0);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let trace = |seed| {
        let nodes = Nodes::start(&Options::new(seed));
        nodes.write_all(&acknowledged(seed, 60));
        check(&nodes, Consistency::Quorum, 4).unwrap();
        nodes.world.trace_hash()
    };
    assert_eq!(trace(5), trace(5));
}
