//! The same without other nodes.

use cluster::Consistency::{One, Quorum};
use paxos::Scope::{Global, Local};

use super::super::nodes::{Nodes, Options};
use super::super::table::simple;
use super::world::Cas;
use crate::{CasError, CasOutcome};

fn alone(seed: u64, shards: u16, is_alone: bool) -> Nodes {
    let (nodes, replication) = (vec![(shards, "dc1")], simple("1"));
    Nodes::start(&Options { nodes, replication, is_alone, ..Options::new(seed) })
}

#[test]
fn a_node_that_is_alone_writes_on_conditions_and_remembers() {
    for (shards, is_alone) in [(1, true), (3, true), (2, false)] {
        let nodes = alone(1, shards, is_alone);
        for pk in 0..12 {
            nodes.run_on(nodes.any_shard(1), |shard| async move {
                let mut first = Cas::new(pk, 0, 5);
                let outcome = shard.cas(&mut first, Global, Quorum).await.unwrap();
                assert_eq!(outcome, CasOutcome::Applied);
                let mut second = Cas::new(pk, 0, 6);
                let outcome = shard.cas(&mut second, Local, One).await.unwrap();
                assert_eq!((outcome, second.seen.0), (CasOutcome::NotApplied, [5, 0]));
                assert_eq!(shard.read_serial(pk, Global).await.unwrap(), [5, 0]);
            });
        }
        // In periodic mode, too: nothing waits for the next sync.
        nodes.power_cut_losing_all(1);
        nodes.restart(1);
        for pk in 0..12 {
            nodes.run_on(nodes.any_shard(1), |shard| async move {
                assert_eq!(shard.read_serial(pk, Global).await.unwrap(), [5, 0]);
                let mut next = Cas::new(pk, 5, 7);
                let outcome = shard.cas(&mut next, Global, Quorum).await.unwrap();
                assert_eq!(outcome, CasOutcome::Applied);
            });
        }
        assert_eq!(nodes.rows(1).len(), 12);
    }
}

#[test]
fn a_condition_that_cannot_be_evaluated_leaves_nothing_behind() {
    let nodes = alone(2, 1, true);
    nodes.run_on(nodes.shard(1, 0), |shard| async move {
        let mut cas = Cas { refuses: true, ..Cas::new(1, 0, 5) };
        let refused = shard.cas(&mut cas, Global, One).await;
        assert!(matches!(refused, Err(CasError::Refused(why)) if why.0 == "no"));
        assert_eq!(shard.read_serial(1, Global).await.unwrap(), [0, 0]);
        // The turn was given back.
        let outcome = shard.cas(&mut Cas::new(1, 0, 5), Global, One).await.unwrap();
        assert_eq!(outcome, CasOutcome::Applied);
    });
}

#[test]
fn concurrent_writers_of_one_node_take_turns() {
    let nodes = alone(3, 2, true);
    let results: Vec<_> = (0..40)
        .map(|n| {
            nodes.spawn(nodes.any_shard(1), move |shard| async move {
                shard.cas(&mut Cas::new(1, 0, 100 + n), Global, One).await
            })
        })
        .collect();
    nodes.run(5_000);
    let applied = |want| {
        let outcomes = results.iter().map(|r| r.borrow().clone().unwrap().unwrap());
        outcomes.filter(|o| *o == want).count()
    };
    assert_eq!((applied(CasOutcome::Applied), applied(CasOutcome::NotApplied)), (1, 39));
    assert_eq!(nodes.count_of(1, "coordinator_cas_contentions_total"), 0);
}
