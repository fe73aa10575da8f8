//! Compare-and-set from several coordinators under kills, power cuts, partitions, slow links and
//! clocks that disagree: what clients see is linearizable.

use std::cell::Cell;
use std::rc::Rc;

use cluster::Consistency::{Any, One, Quorum};

use super::super::nodes::{Nodes, Options, Shard, millis};
use super::world::{Cas, Ends, History};

const PARTITIONS: i32 = 2;

/// State shared by the clients of a run.
#[derive(Clone)]
struct Run {
    histories: Rc<Vec<History>>,
    quiet: Rc<Cell<bool>>,
}

async fn client(shard: Shard, node: u8, run: Run) {
    let mut known = [[0; 2]; PARTITIONS as usize];
    while !run.quiet.get() {
        let random = shard.rt.random_u64();
        let pk = (random % 2) as usize;
        let history = &run.histories[pk];
        if random >> 8 & 3 == 0 {
            known[pk] = history.read(node, &shard, pk as i32).await.unwrap_or(known[pk]);
        } else {
            let register = (random >> 16 & 1) as usize;
            let target = if random >> 17 & 3 == 0 { 1 - register } else { register };
            let expect = if random >> 20 & 7 == 0 { 7 } else { known[pk][register] };
            let commit = [Quorum, One, Any, Quorum][(random >> 24 & 3) as usize];
            let new = history.new_value();
            let cas = Cas { register, target, ..Cas::new(pk as i32, expect, new) };
            known[pk] = history.cas(node, &shard, cas, commit).await.unwrap_or(known[pk]);
        }
        shard.rt.sleep(millis(1 + shard.rt.random_u64() % 20)).await;
    }
}

fn start_clients(nodes: &Nodes, n: u8, run: &Run) {
    for _ in 0..2 {
        let run = run.clone();
        nodes.spawn(nodes.any_shard(n), |shard| client(shard, n, run));
    }
}

fn any(nodes: &Nodes) -> u8 {
    1 + (nodes.world.random_u64() % 3) as u8
}

struct Report {
    verdict: Result<(), String>,
    ends: Ends,
    trace: u64,
}

/// How faults follow each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Nodes are away for a while.
    Calm,
    /// Nodes die and restart during the rounds of others, whose messages are in flight for long.
    Restless,
}

fn run(seed: u64, each_start: impl Fn(&Nodes, u8)) -> Report {
    run_at(seed, Pace::Calm, each_start)
}

fn run_at(seed: u64, pace: Pace, each_start: impl Fn(&Nodes, u8)) -> Report {
    let nodes = Nodes::start(&Options::new(seed));
    nodes.hints_off();
    for n in 1..=3 {
        each_start(&nodes, n);
        nodes.set_clock_skew(n, nodes.world.random_u64() as i64 % 200_000);
    }
    let histories = (0..PARTITIONS).map(|_| History::default()).collect();
    let run = Run { histories: Rc::new(histories), quiet: Rc::default() };
    for n in 1..=3 {
        start_clients(&nodes, n, &run);
    }
    let die = |n: u8| run.histories.iter().for_each(|h| h.node_died(n));
    let (faults, longest, away) = match pace {
        Pace::Calm => (7, 400, 500),
        Pace::Restless => (60, 60, 3),
    };
    if pace == Pace::Restless {
        for (n, m) in [(1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)] {
            nodes.set_latency(n, m, 100..20_000);
        }
    }
    for _ in 0..faults {
        nodes.run(nodes.world.random_u64() % longest);
        let (n, m) = (any(&nodes), any(&nodes));
        match nodes.world.random_u64() % 6 {
            0 if n != m => nodes.cut(n, m),
            0 | 1 => nodes.world.heal_all(),
            2 => nodes.set_latency(n, m, 100..100_000),
            kind => {
                // One node, or all of them at once.
                let dying: Vec<u8> = if kind == 5 { vec![1, 2, 3] } else { vec![n] };
                for n in &dying {
                    if kind == 3 {
                        nodes.kill(*n);
                    } else {
                        nodes.power_cut_losing_all(*n);
                    }
                    die(*n);
                }
                nodes.run(nodes.world.random_u64() % away);
                for n in dying {
                    nodes.restart(n);
                    each_start(&nodes, n);
                    start_clients(&nodes, n, &run);
                }
            }
        }
    }
    nodes.world.heal_all();
    nodes.world.clear_links();
    nodes.run(500);
    run.quiet.set(true);
    nodes.run(10_000);
    // The final value, read twice.
    for pk in 0..PARTITIONS {
        let history = run.histories[pk as usize].clone();
        for n in [1, 2] {
            let history = history.clone();
            nodes.run_on(nodes.any_shard(n), move |shard| async move {
                assert!(history.read(n, &shard, pk).await.is_some(), "nothing is in the way now");
            });
        }
    }
    let mut ends = Ends::default();
    let mut verdict = Ok(());
    for history in run.histories.iter() {
        let of = history.ends();
        ends.applied += of.applied;
        ends.not_applied += of.not_applied;
        ends.reads += of.reads;
        ends.doubtful += of.doubtful;
        ends.without_effect += of.without_effect;
        verdict = verdict.and(history.check());
    }
    Report { verdict, ends, trace: nodes.world.trace_hash() }
}

#[test]
fn what_clients_see_is_linearizable_whatever_fails() {
    // INV-serial-2, INV-serial-3.
    let mut all = Ends::default();
    for seed in 0..20 {
        let report = run(seed, |_, _| {});
        report.verdict.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        if seed < 2 {
            assert_eq!(report.trace, run(seed, |_, _| {}).trace, "seed {seed}");
        }
        let ends = report.ends;
        assert!(ends.applied > 20, "seed {seed}: {ends:?}");
        all.applied += ends.applied;
        all.not_applied += ends.not_applied;
        all.reads += ends.reads;
        all.doubtful += ends.doubtful;
        all.without_effect += ends.without_effect;
    }
    assert!(all.not_applied > 100 && all.reads > 100, "{all:?}");
    assert!(all.doubtful > 5 && all.without_effect > 5, "{all:?}");
}

#[test]
fn answering_before_the_sync_is_found_out() {
    // INV-serial-1.
    let lie = |nodes: &Nodes, n: u8| {
        for shard in nodes.all_shards(n) {
            shard.coordinator.answer_before_sync();
        }
    };
    let found = (0..12).filter(|seed| run(*seed, lie).verdict.is_err()).count();
    assert!(found > 0, "the checker cannot fail");
}

#[test]
fn a_start_that_forgets_what_was_promised_is_found_out() {
    // INV-serial-7.
    let forget = |nodes: &Nodes, n: u8| {
        for shard in nodes.all_shards(n) {
            shard.coordinator.forget_horizon();
        }
    };
    let found = (0..1_000).find(|seed| run_at(*seed, Pace::Restless, forget).verdict.is_err());
    assert!(found.is_some(), "the checker cannot fail");
}

#[test]
fn what_clients_see_is_linearizable_when_nodes_come_back_within_a_round() {
    let mut applied = 0;
    for seed in 0..20 {
        let report = run_at(seed, Pace::Restless, |_, _| {});
        report.verdict.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        applied += report.ends.applied;
    }
    assert!(applied > 100, "{applied}");
}
