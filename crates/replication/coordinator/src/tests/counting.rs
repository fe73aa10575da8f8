//! Counters under kills, power cuts and partitions: a final count lies between the sum of the
//! acknowledged increments and that sum plus the increments of unknown outcome.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use cluster::Consistency::{self, All, LocalQuorum, One, Quorum};
use data::command::ReadCommand;
use data::counter;
use data::{CellRef, ColumnRef, DeletionTime, Liveness, MutationBuilder, RowBuilder, RowRef};
use request::RequestError;
use stdx::{DeletionSeconds, TimestampMicros, Token};
use store::{Flow, RowSink, SyncMode};

use super::nodes::{CounterIds, Nodes, Options, Shard, TIMEOUT, millis};
use super::table::{COUNTERS, VALUE, read_all};
use crate::{CounterWrite, ReplicatedError, ReplicatedRead, SelectLimits};
use replica::ReplicaMutation;

/// Partitions; few, so that their increments meet.
const KEYS: i32 = 4;

pub(super) fn add(pk: i32, by: i64, at: i64) -> (Token, Vec<u8>) {
    let at = TimestampMicros(at);
    let mut row = Vec::new();
    let mut builder = RowBuilder::new(&mut row, Liveness::NONE, DeletionTime::LIVE, at);
    builder.cell(VALUE, &CellRef::live(at, &counter::update(by)));
    builder.finish();
    let key = pk.to_be_bytes();
    let mut out = Vec::new();
    let mut mutation = MutationBuilder::new(&mut out, COUNTERS, 1, &key);
    mutation.rows([([].as_slice(), RowRef::trusted(&row))].into_iter());
    mutation.finish();
    (codec::token_of(&key), out)
}

pub(super) fn order(shard: &Shard, level: Consistency, pk: i32, by: i64) -> CounterWrite {
    let (token, mutation) = add(pk, by, shard.rt.wall().0);
    CounterWrite {
        snapshot: shard.snapshot(),
        consistency: level,
        mutation: ReplicaMutation::durable(token, mutation),
        deadline: shard.rt.now() + TIMEOUT,
    }
}

/// Totals by key.
#[derive(Default)]
struct Totals {
    found: BTreeMap<i32, i64>,
    key: i32,
}

impl RowSink for Totals {
    fn partition(&mut self, _: Token, key: &[u8], _: Option<RowRef<'_>>) -> Flow {
        self.key = i32::from_be_bytes(key.try_into().unwrap());
        Flow::Continue
    }

    fn row(&mut self, _: &[u8], row: RowRef<'_>) -> Flow {
        if let Some(ColumnRef::Simple(cell)) = row.column(VALUE) {
            self.found.insert(self.key, counter::total(cell.value));
        }
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

fn all_counters() -> ReadCommand {
    read_all(COUNTERS)
}

/// Reads the counters as a client.
fn totals(nodes: &Nodes, n: u8, level: Consistency) -> BTreeMap<i32, i64> {
    nodes.run_on(nodes.shard(n, 0), |shard| async move {
        let order = ReplicatedRead {
            snapshot: shard.snapshot(),
            consistency: level,
            deadline: shard.rt.now() + millis(10_000),
            page_timeout: None,
            rows_wanted: 100,
            limits: SelectLimits { rows_per_partition: u32::MAX },
        };
        let mut totals = Totals::default();
        shard
            .coordinator
            .reads()
            .read_replicated(&all_counters(), &order, &mut totals)
            .await
            .unwrap();
        totals.found
    })
}

/// Reads the counters of one replica.
fn own_totals(nodes: &Nodes, n: u8) -> BTreeMap<i32, i64> {
    nodes.run_on(nodes.shard(n, 0), |shard| async move {
        let mut totals = Totals::default();
        shard.coordinator.read(&all_counters(), usize::MAX, &mut totals).await.unwrap();
        totals.found
    })
}

/// A client's knowledge of one counter.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    acknowledged: i64,
    /// Sums of the increments that may or may not count: those below 0, those above.
    unknown: (i64, i64),
}

impl Known {
    fn note_unknown(&mut self, by: i64) {
        if by < 0 { self.unknown.0 += by } else { self.unknown.1 += by }
    }

    fn allows(&self, total: i64) -> bool {
        total >= self.acknowledged + self.unknown.0 && total <= self.acknowledged + self.unknown.1
    }
}

/// State shared by the clients of a run.
#[derive(Clone, Default)]
struct Facts {
    known: Rc<RefCell<BTreeMap<i32, Known>>>,
    acknowledged: Rc<Cell<usize>>,
    uncertain: Rc<Cell<usize>>,
    refused: Rc<Cell<usize>>,
    quiet: Rc<Cell<bool>>,
    needs_quorum: Rc<Cell<bool>>,
}

fn bump(cell: &Cell<usize>) {
    cell.set(cell.get() + 1);
}

async fn client(shard: Shard, facts: Facts) {
    while !facts.quiet.get() {
        let random = shard.rt.random_u64();
        let pk = (random % KEYS as u64) as i32;
        let by = (random >> 8 & 15) as i64 - 4;
        // An increment that one replica has acknowledged may be lost with it.
        let levels =
            if facts.needs_quorum.get() { [Quorum; 4] } else { [One, Quorum, Quorum, LocalQuorum] };
        let level = levels[(random >> 16 & 3) as usize];
        // Until the answer arrives the outcome is unknown: the node may be killed.
        facts.known.borrow_mut().entry(pk).or_default().note_unknown(by);
        let result = shard.coordinator.counters().count(order(&shard, level, pk, by), None).await;
        note(&facts, pk, by, &result);
        shard.rt.sleep(millis(1 + shard.rt.random_u64() % 8)).await;
    }
}

fn note(facts: &Facts, pk: i32, by: i64, result: &Result<(), ReplicatedError>) {
    let mut known = facts.known.borrow_mut();
    let known = known.entry(pk).or_default();
    match result {
        Ok(()) => {
            take_back(known, by);
            known.acknowledged += by;
            bump(&facts.acknowledged);
        }
        Err(ReplicatedError::Request(
            RequestError::WriteTimeout { .. } | RequestError::WriteFailure { .. },
        )) => bump(&facts.uncertain),
        Err(_) => {
            take_back(known, by);
            bump(&facts.refused);
        }
    }
}

fn take_back(known: &mut Known, by: i64) {
    if by < 0 { known.unknown.0 -= by } else { known.unknown.1 -= by }
}

fn start_clients(nodes: &Nodes, n: u8, facts: &Facts) {
    for _ in 0..2 {
        let facts = facts.clone();
        nodes.spawn(nodes.any_shard(n), |shard| client(shard, facts));
    }
}

fn check(facts: &Facts, found: &BTreeMap<i32, i64>) -> Result<(), String> {
    for (pk, known) in facts.known.borrow().iter() {
        let total = found.get(pk).copied().unwrap_or_default();
        if !known.allows(total) {
            return Err(format!("counter {pk} is {total}, known is {known:?}"));
        }
    }
    Ok(())
}

fn any(nodes: &Nodes) -> u8 {
    1 + (nodes.world.random_u64() % 3) as u8
}

fn run(options: &Options, has_losses: bool) -> (Result<(), String>, Facts, u64) {
    let (nodes, seed) = (Nodes::start(options), options.seed);
    nodes.hints_off();
    let facts = Facts::default();
    facts.needs_quorum.set(has_losses);
    for n in 1..=3 {
        start_clients(&nodes, n, &facts);
    }
    let loser = any(&nodes);
    for step in 0..8 {
        nodes.run(nodes.world.random_u64() % 400);
        let (n, m) = (any(&nodes), any(&nodes));
        match nodes.world.random_u64() % 4 {
            0 if n != m => nodes.cut(n, m),
            0 | 1 => nodes.world.heal_all(),
            kind => {
                match (has_losses && step == 5, kind) {
                    (true, _) => nodes.power_cut_losing_all(loser),
                    (false, 2) => nodes.kill(n),
                    (false, _) if has_losses => nodes.kill(n),
                    _ => nodes.power_cut(n),
                }
                let n = if has_losses && step == 5 { loser } else { n };
                nodes.run(nodes.world.random_u64() % 700);
                nodes.restart(n);
                start_clients(&nodes, n, &facts);
            }
        }
    }
    facts.quiet.set(true);
    nodes.world.heal_all();
    nodes.run(15_000);
    let seen: Vec<_> = (1..=3).map(|n| totals(&nodes, n, All)).collect();
    for n in 1..=3 {
        assert_eq!(nodes.count_of(n, "coordinator_writes_in_flight"), 0, "seed {seed} n{n}");
        assert_eq!(nodes.shard(n, 0).messaging.pending(), 0);
        assert_eq!(seen[0], seen[usize::from(n) - 1], "seed {seed} n{n}");
        assert_eq!(seen[0], own_totals(&nodes, n), "seed {seed}: repaired on n{n}");
    }
    (check(&facts, &seen[0]), facts, nodes.world.trace_hash())
}

fn batch(seed: u64) -> Options {
    Options { sync: SyncMode::Batch, ..Options::new(seed) }
}

#[test]
fn counters_stay_between_what_was_acknowledged_and_what_may_have_been() {
    let (mut acknowledged, mut uncertain) = (0, 0);
    for seed in 0..40 {
        let (result, facts, trace) = run(&batch(seed), false);
        result.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        acknowledged += facts.acknowledged.get();
        uncertain += facts.uncertain.get();
        if seed < 2 {
            assert_eq!(trace, run(&batch(seed), false).2, "seed {seed}");
        }
    }
    assert!(acknowledged > 1000 && uncertain > 5, "{acknowledged} {uncertain}");
}

/// In periodic mode a power cut may lose a node's last counts; other replicas have them. Under a
/// new id the node does not continue from its old counts.
#[test]
fn a_node_that_lost_what_it_counted_counts_on_as_somebody_else() {
    let options = |seed, counter_ids| Options { counter_ids, ..Options::new(seed) };
    let mut lost = 0;
    for seed in 0..8 {
        let (result, ..) = run(&options(seed, CounterIds::Fresh), true);
        result.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        lost += usize::from(run(&options(seed, CounterIds::Host), true).0.is_err());
    }
    assert!(lost > 0, "the checker cannot fail");
}

#[test]
fn nodes_that_count_as_one_are_found_out() {
    let one = |seed| Options { counter_ids: CounterIds::One, ..batch(seed) };
    let found = (0..4).filter(|seed| run(&one(*seed), false).0.is_err()).count();
    assert!(found > 0, "the checker cannot fail");
}

/// All nodes lead at the same time; nothing is lost, nothing counted twice.
#[test]
fn without_faults_counts_are_exact() {
    // INV-counting-1.
    let nodes = Nodes::start(&Options::new(5));
    let facts = Facts::default();
    for n in 1..=3 {
        start_clients(&nodes, n, &facts);
        start_clients(&nodes, n, &facts);
    }
    nodes.run(1_500);
    facts.quiet.set(true);
    nodes.run(3_000);
    assert_eq!((facts.uncertain.get(), facts.refused.get()), (0, 0));
    assert!(facts.acknowledged.get() > 500, "{}", facts.acknowledged.get());
    let hits: i64 = (1..=3).map(|n| nodes.count_of(n, "counter_cache_hits_total")).sum();
    assert!(hits > 250, "{hits} were counted on without a read");
    for n in 1..=3 {
        let expected: BTreeMap<i32, i64> =
            facts.known.borrow().iter().map(|(pk, known)| (*pk, known.acknowledged)).collect();
        assert_eq!(own_totals(&nodes, n), expected, "n{n}");
    }
}

/// Two replicas of four nodes: half of the increments need a leader elsewhere.
#[test]
fn a_coordinator_that_is_no_replica_finds_a_leader_and_another_one() {
    // INV-counting-3.
    let options = Options {
        nodes: vec![(1, "dc1"), (2, "dc1"), (1, "dc1"), (2, "dc1")],
        replication: super::table::simple("2"),
        ..Options::new(9)
    };
    let nodes = Nodes::start(&options);
    let mut expected = BTreeMap::new();
    for pk in 0..20 {
        let result = nodes.run_on(nodes.any_shard(1), move |shard| async move {
            shard.coordinator.counters().count(order(&shard, Quorum, pk, 5), None).await
        });
        assert!(result.is_ok(), "{result:?}");
        expected.insert(pk, 5);
    }
    assert!(nodes.count_of(1, "coordinator_counters_sent_total") > 3);
    // A node that died and is still held for alive: where it would lead, the other replica does. A
    // connection that is lost with an increment on it leaves it unknown; on a later try there is none.
    nodes.kill(3);
    nodes.run(1_000);
    let mut failures = 0;
    for pk in 0..20 {
        for _ in 0..3 {
            let result = nodes.run_on(nodes.any_shard(1), move |shard| async move {
                shard.coordinator.counters().count(order(&shard, One, pk, 5), None).await
            });
            match result {
                Ok(()) => *expected.get_mut(&pk).unwrap() += 5,
                Err(ReplicatedError::Request(RequestError::WriteTimeout { .. })) => failures += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(failures < 6, "{failures}");
    assert!(nodes.count_of(1, "coordinator_counters_resent_total") > 0);
    // Held for dead it is not asked, and a level that needs it is refused at once.
    nodes.set_down(3, true);
    let mut unavailable = 0;
    for pk in 0..20 {
        let result = nodes.run_on(nodes.any_shard(1), move |shard| async move {
            shard.coordinator.counters().count(order(&shard, All, pk, 1000), None).await
        });
        match result {
            Ok(()) => *expected.get_mut(&pk).unwrap() += 1000,
            Err(ReplicatedError::Request(RequestError::Unavailable { .. })) => unavailable += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(unavailable > 3, "{unavailable}");
    assert_eq!(totals(&nodes, 1, One), expected);
}

#[test]
fn no_replica_has_a_count_that_its_leader_does_not_have() {
    // INV-counting-2.
    let nodes = Nodes::start(&Options::new(13));
    nodes.spawn(nodes.any_shard(1), |shard| async move {
        for _ in 0..40 {
            shard.coordinator.counters().count(order(&shard, One, 1, 1), None).await.unwrap();
            shard.rt.sleep(millis(2)).await;
        }
    });
    let of = |n| own_totals(&nodes, n).get(&1).copied().unwrap_or_default();
    let mut under_way = 0;
    while of(2).min(of(3)) < 40 {
        nodes.run(1);
        let others = of(2).max(of(3));
        let leader = of(1);
        assert!(others <= leader, "{others} of {leader}");
        under_way += u32::from(others < leader);
    }
    assert!(under_way > 5, "{under_way}");
}

#[test]
fn a_count_of_before_a_truncation_is_never_written_behind_it() {
    // INV-counting-4.
    let nodes = Nodes::start(&Options::new(10));
    let count = |by| {
        nodes.run_on(nodes.shard(1, 0), move |shard| async move {
            shard.coordinator.counters().count(order(&shard, Quorum, 1, by), None).await
        })
    };
    count(5).unwrap();
    nodes.run(100);
    let at = nodes.shard(1, 0).rt.wall();
    nodes.run(100);
    // The leader has not heard of it, and the others take nothing from it.
    for n in [2, 3] {
        nodes.truncate_table(n, COUNTERS, at);
    }
    let error = count(100).unwrap_err();
    assert!(matches!(error, ReplicatedError::Request(_)), "{error}");
    assert_eq!((own_totals(&nodes, 2)[&1], own_totals(&nodes, 3)[&1]), (5, 5));
    nodes.truncate_table(1, COUNTERS, at);
    let at = nodes.shard(1, 0).rt.wall();
    nodes.run(100);
    for n in 1..=3 {
        nodes.truncate_table(n, COUNTERS, at);
    }
    for shard in nodes.all_shards(1) {
        shard.messaging.set_epoch(shard.snapshot().epoch);
    }
    // It has heard of it, and its store has not emptied the table yet.
    count(3).unwrap();
    nodes.run(100);
    assert_eq!((own_totals(&nodes, 2)[&1], own_totals(&nodes, 3)[&1]), (3, 3));
}

/// The read of a count takes a while when it is in a file; a caller that waits for it must not
/// write the old count.
#[test]
fn an_increment_that_has_read_before_a_truncation_reads_again() {
    for is_alone in [true, false] {
        let (nodes, replication) = (vec![(1, "dc1")], super::table::simple("1"));
        let nodes = Nodes::start(&Options { nodes, replication, is_alone, ..Options::new(12) });
        nodes.run_on(nodes.shard(1, 0), |shard| async move {
            shard.coordinator.counters().count(order(&shard, One, 1, 5), None).await.unwrap();
            shard.coordinator.store().flush(None).await.unwrap();
        });
        // No cache has it then.
        nodes.kill(1);
        nodes.restart(1);
        nodes.run_on(nodes.shard(1, 0), |shard| async move {
            let coordinator = &shard.coordinator;
            let mut under_way =
                pin!(coordinator.counters().count(order(&shard, One, 1, 100), None));
            let is_ready = poll_fn(|cx| Poll::Ready(under_way.as_mut().poll(cx).is_ready())).await;
            assert!(!is_ready, "the count is in memory");
            coordinator.counters().truncate(COUNTERS, shard.rt.wall()).await.unwrap();
            under_way.await.unwrap();
        });
        assert_eq!(own_totals(&nodes, 1), [(1, 100)].into(), "alone: {is_alone}");
    }
}

/// Timestamps of increments are their clients'; a client's clock may be slow.
#[test]
fn what_is_counted_behind_a_truncation_counts_whatever_its_timestamp_is() {
    let nodes = Nodes::start(&Options::new(13));
    let count = |by| {
        nodes.run_on(nodes.shard(1, 0), move |shard| async move {
            let (token, mutation) = add(1, by, shard.rt.wall().0 - 60_000_000);
            let mutation = ReplicaMutation::durable(token, mutation);
            let write = CounterWrite { mutation, ..order(&shard, All, 1, by) };
            shard.coordinator.counters().count(write, None).await.unwrap();
        });
    };
    count(5);
    let at = nodes.shard(1, 0).rt.wall();
    for n in 1..=3 {
        nodes.truncate_table(n, COUNTERS, at);
        for shard in nodes.all_shards(n) {
            shard.messaging.set_epoch(shard.snapshot().epoch);
            nodes.run_on(shard, move |shard| async move {
                shard.coordinator.counters().truncate(COUNTERS, at).await.unwrap();
            });
        }
    }
    assert_eq!(own_totals(&nodes, 1), BTreeMap::new());
    count(3);
    count(4);
    assert_eq!(totals(&nodes, 2, All), [(1, 7)].into());
}

/// Deletion of the row of a counter.
fn delete(pk: i32, at: i64) -> Vec<u8> {
    let (timestamp, local) = (TimestampMicros(at), DeletionSeconds(2_000_000_000));
    let deletion = DeletionTime { timestamp, local };
    let mut row = Vec::new();
    RowBuilder::new(&mut row, Liveness::NONE, deletion, TimestampMicros(at)).finish();
    let mut out = Vec::new();
    let mut mutation = MutationBuilder::new(&mut out, COUNTERS, 1, &pk.to_be_bytes());
    mutation.rows([([].as_slice(), RowRef::trusted(&row))].into_iter());
    mutation.finish();
    out
}

/// A node's own part of one counter, as a read finds it.
#[derive(Default)]
struct OwnPart(Option<(i64, i64)>);

impl RowSink for OwnPart {
    fn partition(&mut self, _: Token, _: &[u8], _: Option<RowRef<'_>>) -> Flow {
        Flow::Continue
    }

    fn row(&mut self, _: &[u8], row: RowRef<'_>) -> Flow {
        if let Some(ColumnRef::Simple(cell)) = row.column(VALUE) {
            self.0 = Some(counter::clock_and_count(cell.value, OWN));
        }
        Flow::Stop
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

const OWN: counter::CounterId = counter::CounterId([3; 16]);

/// Counts that leaders leave in the counter cache are those that reads find, even after increments
/// that are older than others or than deletions, and after flushes.
#[test]
fn what_leaders_keep_is_what_reads_find() {
    let nodes = Nodes::start(&Options::new(11));
    let hits = nodes.run_on(nodes.shard(1, 0), |shard| async move {
        shard.coordinator.counters().set_counter_id(OWN);
        let store = shard.coordinator.store().clone();
        let mut hits = 0;
        for step in 0..600 {
            let random = shard.rt.random_u64();
            let pk = (random % 2) as i32;
            let key = pk.to_be_bytes();
            let at = 1_000_000 + step - (random >> 8 & 15) as i64 / 13 * 9;
            match random >> 16 & 31 {
                0 => {
                    let deletion = delete(pk, at + 3);
                    store.apply(&data::MutationRef::open(&deletion).unwrap(), true).unwrap();
                }
                1 => store.flush(None).await.unwrap(),
                _ => {
                    let (token, mutation) = add(pk, 1, at);
                    let mutation = ReplicaMutation::durable(token, mutation);
                    let write = CounterWrite { mutation, ..order(&shard, One, pk, 1) };
                    shard.coordinator.counters().count(write, None).await.unwrap();
                }
            }
            let of = store.counters().counts_of(COUNTERS, &key).unwrap();
            let Some(cached) = store.counters().cached_count(&of, (&key, Some(&[])), VALUE) else {
                continue;
            };
            hits += 1;
            let mut own = OwnPart::default();
            let command = ReadCommand {
                partitions: data::command::Partitions::Key(key.to_vec()),
                ..all_counters()
            };
            store.read(&command, &mut own).await.unwrap();
            assert_eq!(own.0, Some((cached.clock, cached.count)), "step {step}");
        }
        hits
    });
    assert!(hits > 150, "{hits}");
}
