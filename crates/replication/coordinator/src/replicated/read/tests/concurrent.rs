//! Writers and readers at QUORUM while the network breaks: what was acknowledged or shown is shown
//! from then on.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use cluster::Consistency;
use dist_testing::table::{insert, key};
use request::WriteType;
use rt::Group;
use stdx::Uuid;

use super::nodes::{Ask, Node, Nodes, Options, all, one};
use super::sink::{Collect, Found};
use crate::{ReplicatedRead, ReplicatedWrite, SelectLimits};

const KEYS: i32 = 6;

/// State shared by the clients.
#[derive(Default)]
struct Facts {
    /// By key: the newest value that was acknowledged or shown. Values grow.
    floor: BTreeMap<i32, i64>,
    acknowledged: u32,
    shown: u32,
    failed: u32,
    violation: Option<String>,
    quiet: bool,
}

type Shared = Rc<RefCell<Facts>>;

impl Facts {
    fn note(&mut self, pk: i32, value: i64) {
        let floor = self.floor.entry(pk).or_default();
        *floor = value.max(*floor);
    }
}

async fn pause(node: &Node) {
    node.rt.sleep(Duration::from_millis(node.rt.random_u64() % 20)).await;
}

async fn writer(node: Node, pk: i32, facts: Shared) {
    let mut at = 0;
    while !facts.borrow().quiet {
        at += 1;
        pause(&node).await;
        let mutation = insert(pk, 1, &at.to_string(), at);
        let order = ReplicatedWrite {
            snapshot: node.snapshot.clone(),
            consistency: Consistency::Quorum,
            write_type: WriteType::Simple,
            mutations: vec![crate::ReplicaMutation::durable(codec::token_of(&key(pk)), mutation)],
            logged: false,
            batch_id: Uuid::from_u128(0),
            deadline: node.rt.now() + Duration::from_millis(500),
        };
        let written = node.coordinator.writer().write_replicated(order).await;
        let mut facts = facts.borrow_mut();
        match written {
            Ok(()) => {
                facts.acknowledged += 1;
                facts.note(pk, at);
            }
            Err(_) => facts.failed += 1,
        }
    }
}

async fn reader(node: Node, facts: Shared) {
    while !facts.borrow().quiet {
        pause(&node).await;
        let pk = (node.rt.random_u64() % (KEYS as u64 + 1)) as i32;
        let command = if pk == KEYS { all() } else { one(pk) };
        let floor = facts.borrow().floor.clone();
        let ask = Ask::at(Consistency::Quorum);
        let mut sink = Collect::new(&command, None, u32::MAX);
        let order = ReplicatedRead {
            snapshot: node.snapshot.clone(),
            consistency: ask.level,
            deadline: node.rt.now() + Duration::from_millis(500),
            page_timeout: None,
            rows_wanted: ask.rows_wanted,
            limits: SelectLimits { rows_per_partition: u32::MAX },
        };
        let read = node.coordinator.reads().read_replicated(&command, &order, &mut sink).await;
        let mut facts = facts.borrow_mut();
        if read.is_err() {
            facts.failed += 1;
            continue;
        }
        facts.shown += 1;
        let rows = sink.finish();
        for pk in (0..KEYS).filter(|k| pk == KEYS || pk == *k) {
            let value = value_of(&rows, pk);
            if value < floor.get(&pk).copied() {
                facts.violation = Some(format!("pk {pk}: {value:?} behind {:?}", floor.get(&pk)));
            }
            if let Some(value) = value {
                facts.note(pk, value);
            }
        }
    }
}

fn value_of(rows: &[Found], pk: i32) -> Option<i64> {
    let (.., v, _) = rows.iter().find(|r| r.0 == pk)?;
    v.as_ref()?.parse().ok()
}

/// Runs clients and breaks the network; then all is healed.
fn run(seed: u64, liar: Option<u8>) -> (Nodes, Shared) {
    let nodes = Nodes::start(&Options::new(seed));
    liar.into_iter().for_each(|n| nodes.lose_repairs_at(n));
    let facts = Shared::default();
    let spawn = |n: u8, make: &dyn Fn(Node) -> std::pin::Pin<Box<dyn Future<Output = ()>>>| {
        let node = nodes.node(n, 0);
        let gate = node.rt.gate("client");
        let rt = node.rt.clone();
        gate.spawn(&rt, Group::Statement, "client", make(node)).unwrap();
    };
    for pk in 0..KEYS {
        let n = 1 + (pk % 3) as u8;
        spawn(n, &|node| Box::pin(writer(node, pk, facts.clone())));
        spawn(n, &|node| Box::pin(reader(node, facts.clone())));
    }
    nodes.world.run_for(Duration::from_millis(300));
    for _ in 0..12 {
        let (a, b) = (nodes.any(), nodes.any());
        if a != b {
            nodes.cut(a, b);
        }
        nodes.world.run_for(Duration::from_millis(nodes.below(700) as u64));
        if nodes.below(2) == 0 {
            nodes.world.heal_all();
        }
    }
    nodes.world.heal_all();
    nodes.world.run_for(Duration::from_secs(3));
    facts.borrow_mut().quiet = true;
    nodes.world.run_for(Duration::from_secs(3));
    (nodes, facts)
}

#[test]
fn quorum_reads_never_go_back_behind_what_was_acknowledged_or_shown() {
    for seed in 100..108 {
        let (nodes, facts) = run(seed, None);
        let facts = facts.borrow();
        assert_eq!(facts.violation, None, "seed {seed}");
        assert!(facts.acknowledged > 300 && facts.shown > 300, "seed {seed}");
        assert!(nodes.mismatches() > 0, "seed {seed}");
        let everyone = Ask::at(Consistency::All);
        nodes.read(1, &all(), &everyone).result.unwrap();
        nodes.check_equal().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

#[test]
fn the_checker_sees_a_replica_that_acknowledges_and_forgets() {
    let seen = (100..104).filter(|seed| run(*seed, Some(2)).1.borrow().violation.is_some());
    assert!(seen.count() > 0);
}
