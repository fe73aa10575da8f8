//! Writes under kills, power cuts and partitions: what was acknowledged is on enough disks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use cluster::Consistency::Quorum;
use store::SyncMode;

use super::nodes::{Nodes, Options, Shard, millis};
use super::table::insert;

/// State shared by the writers of a run.
#[derive(Clone, Default)]
struct Facts {
    last: Rc<Cell<i32>>,
    acknowledged: Rc<RefCell<Vec<i32>>>,
    refused: Rc<Cell<usize>>,
    quiet: Rc<Cell<bool>>,
}

async fn writer(shard: Shard, facts: Facts) {
    while !facts.quiet.get() {
        let pk = facts.last.get() + 1;
        facts.last.set(pk);
        let order = shard.order(Quorum, vec![insert(pk, &format!("value {pk}"), 1_000)]);
        match shard.coordinator.writer().write_replicated(order).await {
            Ok(()) => facts.acknowledged.borrow_mut().push(pk),
            Err(_) => facts.refused.set(facts.refused.get() + 1),
        }
        shard.rt.sleep(millis(1 + shard.rt.random_u64() % 8)).await;
    }
}

/// Each acknowledged row is on `needed` replicas at least.
fn check(
    acknowledged: &[i32],
    replicas: &[BTreeMap<i32, String>],
    needed: usize,
) -> Result<(), String> {
    for pk in acknowledged {
        let value = format!("value {pk}");
        let on = replicas.iter().filter(|rows| rows.get(pk) == Some(&value)).count();
        if on < needed {
            return Err(format!("{pk} is on {on} replicas"));
        }
    }
    Ok(())
}

fn start_writers(nodes: &Nodes, n: u8, facts: &Facts) {
    for _ in 0..2 {
        let facts = facts.clone();
        nodes.spawn(nodes.any_shard(n), |shard| writer(shard, facts));
    }
}

fn any(nodes: &Nodes) -> u8 {
    1 + (nodes.world.random_u64() % 3) as u8
}

fn run(seed: u64, corrupt: impl Fn(&Nodes)) -> (Result<(), String>, Facts, u64) {
    let nodes = Nodes::start(&Options { sync: SyncMode::Batch, ..Options::new(seed) });
    nodes.hints_off();
    corrupt(&nodes);
    let facts = Facts::default();
    for n in 1..=3 {
        start_writers(&nodes, n, &facts);
    }
    for _ in 0..8 {
        nodes.run(nodes.world.random_u64() % 400);
        let (n, m) = (any(&nodes), any(&nodes));
        match nodes.world.random_u64() % 4 {
            0 if n != m => nodes.cut(n, m),
            0 | 1 => nodes.world.heal_all(),
            kind => {
                if kind == 2 {
                    nodes.kill(n)
                } else {
                    nodes.power_cut(n)
                }
                nodes.run(nodes.world.random_u64() % 700);
                nodes.restart(n);
                start_writers(&nodes, n, &facts);
            }
        }
    }
    facts.quiet.set(true);
    nodes.world.heal_all();
    nodes.run(15_000);
    let replicas: Vec<_> = (1..=3).map(|n| nodes.rows(n)).collect();
    for n in 1..=3 {
        assert!(nodes.is_running(n));
        assert_eq!(nodes.count_of(n, "coordinator_writes_in_flight"), 0, "seed {seed} n{n}");
        assert_eq!(nodes.shard(n, 0).messaging.pending(), 0);
    }
    let result = check(&facts.acknowledged.borrow(), &replicas, 2);
    (result, facts, nodes.world.trace_hash())
}

#[test]
fn what_a_quorum_acknowledged_is_on_a_quorum_after_crashes() {
    for seed in 0..12 {
        let (result, facts, trace) = run(seed, |_| {});
        result.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let written = facts.acknowledged.borrow().len();
        assert!(written > 50, "seed {seed}: {written} acknowledged");
        if seed < 2 {
            assert_eq!(trace, run(seed, |_| {}).2, "seed {seed}");
        }
    }
}

#[test]
fn a_replica_that_lies_is_found_out() {
    let mut found = 0;
    for seed in 0..4 {
        found += usize::from(run(seed, |nodes| nodes.lie_at(2)).0.is_err());
    }
    assert!(found > 0, "the checker cannot fail");
}
