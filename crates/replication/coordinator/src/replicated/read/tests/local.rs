//! Reads of one node's own data: pages of its shards as one stream, filtered where the rows lie. Pages are tiny
//! in tests (see [`crate::PageLimit`]), so that partitions go over several of them.

use std::sync::Arc;

use cluster::Consistency;
use data::command::{KeyRange, Partitions, ReadCommand, RingBound};
use data::{RowFilter, RowRef};
use dist_testing::table::STATIC;
use dist_testing::{ORACLE, Random, Replicas};
use stdx::Token;
use store::{Flow, Look, LookedAt, ReadStats, RowSink};

use super::nodes::{Ask, Nodes, Options, all, one};
use super::sink::{Collect, Found, next_page};
use crate::ShardFilter;

const KEYS: i32 = 12;

/// Keeps one clustering of `rows` and leaves out one partition of `partitions`, as those without a static row
/// when `statics`.
#[derive(Clone, Debug)]
struct Chosen {
    rows: u8,
    partitions: u8,
    statics: bool,
}

impl RowFilter for Chosen {
    fn keeps_partition(&self, key: &[u8], static_row: Option<RowRef<'_>>) -> bool {
        let has_static = static_row.is_some_and(|row| row.column(STATIC).is_some());
        key.last().is_none_or(|last| last % self.partitions != 1) && (has_static || !self.statics)
    }

    fn keeps_row(&self, clustering: &[u8], _: RowRef<'_>) -> bool {
        clustering.last().is_none_or(|last| last % self.rows == 0)
    }
}

/// Checks each row again, as every filtering sink must. A partition is shown once a row of it
/// passes.
pub(super) struct Sifted<'f> {
    filter: &'f dyn RowFilter,
    wants_static: bool,
    pending: Option<(Token, Vec<u8>, Option<Vec<u8>>)>,
    is_shown: bool,
    pub(super) inner: Collect,
    /// How many it was shown.
    pub(super) rows: u64,
}

impl<'f> Sifted<'f> {
    pub(super) fn new(filter: &'f dyn RowFilter, wants_static: bool, inner: Collect) -> Sifted<'f> {
        Sifted { filter, wants_static, pending: None, is_shown: false, inner, rows: 0 }
    }
}

impl RowSink for Sifted<'_> {
    fn partition(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        (self.pending, self.is_shown) = (None, false);
        if !self.filter.keeps_partition(key, static_row) {
            return Flow::SkipPartition;
        }
        if self.wants_static && static_row.is_some() {
            self.is_shown = true;
            return self.inner.partition(token, key, static_row);
        }
        let static_row = static_row.map(|row| row.bytes().to_vec());
        self.pending = Some((token, key.to_vec(), static_row));
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        self.rows += 1;
        if !self.filter.keeps_row(clustering, row) {
            return Flow::Continue;
        }
        if let Some((token, key, static_row)) = self.pending.take() {
            self.is_shown = true;
            let static_row = static_row.as_deref().map(RowRef::trusted);
            match self.inner.partition(token, &key, static_row) {
                Flow::Continue => {}
                other => return other,
            }
        }
        self.inner.row(clustering, row)
    }

    fn partition_end(&mut self) -> Flow {
        if self.is_shown { self.inner.partition_end() } else { Flow::Continue }
    }

    fn looked_at(&mut self, upto: LookedAt<'_>) -> Look {
        self.inner.looked_at(upto)
    }

    fn tombstones_per_look(&self) -> u32 {
        self.inner.tombstones_per_look()
    }
}

/// Rows that are found, what the read says of them, and how many rows the sink was shown.
fn read(
    nodes: &Nodes,
    n: u8,
    command: &ReadCommand,
    (ask, filter): (&Ask, &Chosen),
    pushes: bool,
) -> (Vec<Found>, ReadStats, u64) {
    let shards = if n == ORACLE { 1 } else { nodes.shards(n) };
    let shard = nodes.below(usize::from(shards)) as u16;
    let (command, ask, filter) = (command.clone(), ask.clone(), filter.clone());
    nodes.run_on(nodes.node(n, shard), move |node| async move {
        let inner = Collect::new(&command, ask.stop_after, ask.per_partition);
        let mut sink = Sifted::new(&filter, command.wants_static, inner);
        let rows_wanted = ask.rows_wanted;
        let pushed = ShardFilter { filter: Arc::new(filter.clone()), rows_wanted, shipped: None };
        let wanted = crate::Wanted { rows: rows_wanted, filter: pushes.then_some(&pushed) };
        let stats =
            node.coordinator.local().read_filtered(&command, wanted, &mut sink).await.unwrap();
        (sink.inner.finish(), stats, sink.rows)
    })
}

fn three_nodes(seed: u64) -> Nodes {
    let nodes = Nodes::start(&Options { shards: vec![1, 2, 3], ..Options::new(seed) });
    let mut random = Random(seed);
    let writes: Vec<_> = (1..=500)
        .map(|at| {
            let mutation = random.write(KEYS, at);
            let to = nodes.replicas_of(&mutation);
            (mutation, to)
        })
        .collect();
    nodes.write_all(&writes);
    nodes
}

#[test]
fn shards_that_filter_show_what_one_shard_shows_that_does_not() {
    // INV-coordinator-2.
    let (mut filtered, mut shown) = (0, 0);
    for seed in 80..86 {
        let nodes = three_nodes(seed);
        for round in 0..40 {
            let of = |below| 1 + nodes.below(below) as u8;
            let filter =
                Chosen { rows: of(7), partitions: 1 + of(4), statics: nodes.below(4) == 0 };
            let mut command = if nodes.below(4) == 0 { one(nodes.below(12) as i32) } else { all() };
            // Rows are not asked of where a static row alone is shown.
            command.wants_static = filter.rows == 1 && nodes.below(2) == 0;
            if let (Partitions::Range(range), 0) = (&mut command.partitions, nodes.below(3)) {
                let at = || Token(nodes.random.borrow_mut().next() as i64);
                let (a, b) = (at(), at());
                let bound = |token, after| RingBound::Token { token, after };
                *range = KeyRange { start: bound(a.min(b), true), end: bound(a.max(b), false) };
            }
            let per_partition = [1, 2, 5, u32::MAX][nodes.below(4)];
            let stop_after = [None, Some(1), Some(7)][nodes.below(3)];
            let rows_wanted = [1, 7, 100, usize::MAX][nodes.below(4)];
            let ask = Ask { rows_wanted, stop_after, per_partition, ..Ask::at(Consistency::One) };
            let whole = Ask { stop_after: None, ..ask.clone() };
            let (expected, looked_at, _) = read(&nodes, ORACLE, &command, (&whole, &filter), false);
            for (n, pushes) in [(1, true), (2, true), (3, true), (2, false), (3, false)] {
                let (mut found, mut rest) = (Vec::new(), Some(command.clone()));
                while let Some(command) = rest {
                    let asked = (&ask, &filter);
                    let (rows, stats, seen) = read(&nodes, n, &command, asked, pushes);
                    (filtered, shown) = (filtered + stats.filtered.rows, shown + seen);
                    assert_eq!(stats.rows, seen + stats.filtered.rows);
                    if stop_after.is_none() && per_partition == u32::MAX {
                        assert_eq!(stats.rows, looked_at.rows, "seed {seed} round {round} n{n}");
                    }
                    rest = next_page(&command, &rows).filter(|_| Some(rows.len()) == stop_after);
                    found.extend(rows);
                }
                assert_eq!(found, expected, "seed {seed} round {round} n{n} {filter:?} {ask:?}");
            }
        }
    }
    // Else nothing of the above is about filters.
    assert!(filtered > shown / 4 && shown > 1_000, "{filtered} filtered, {shown} shown");
}
