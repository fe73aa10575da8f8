//! Requests of peers to a replica, and its refusals.

use cluster::Consistency::{All, Quorum};
use dist_testing::host;
use internode::{ErrorReply, Hint, Mutation, MutationFlags, Verb};
use messaging::{MessagingError, Outgoing};
use request::{ReplicaError, RequestError};
use stdx::{HostId, ShardId, ShardMap, TableId, Uuid, WallMicros};

use super::nodes::{Nodes, Options, Shard, millis};
use super::table::{TABLE, insert, simple};
use crate::ReplicatedError;
use replica::ReplicaMutation;

/// Asks a node from node 1; `shard` of that node.
pub(super) fn ask(
    nodes: &Nodes,
    to: u8,
    shard: u16,
    verb: Verb,
    payload: Vec<u8>,
) -> Result<(), MessagingError> {
    nodes.run_on(nodes.shard(1, 0), |asking| async move {
        let (host, shard) = (host(to), ShardId(shard));
        let deadline = asking.rt.now() + millis(500);
        let outgoing = Outgoing { host, shard, verb, deadline, trace: None };
        let request = asking.messaging.request(&outgoing, |out| out.extend_from_slice(&payload));
        request.await.map(|_| ())
    })
}

fn mutation(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Mutation { flags: MutationFlags::NONE, bytes }.encode(&mut out);
    out
}

pub(super) fn hint(
    target: HostId,
    created_at: WallMicros,
    gc_grace_seconds: u32,
    bytes: &[u8],
) -> Vec<u8> {
    let mut out = Vec::new();
    Hint { target, created_at, gc_grace_seconds, bytes }.encode(&mut out);
    out
}

#[test]
fn a_mutation_is_applied_whichever_shard_it_came_to() {
    // INV-coordinator-1.
    let nodes = Nodes::start(&Options::new(1));
    for pk in 0..30 {
        let bytes = insert(pk, "x", 1_000).bytes;
        ask(&nodes, 3, (pk % 3) as u16, Verb::Mutation, mutation(&bytes)).unwrap();
    }
    assert_eq!((nodes.rows(3).len(), nodes.rows(1).len()), (30, 0));
    assert_eq!(nodes.count_of(3, "replica_mutations_total"), 30);
}

#[test]
fn bytes_that_are_no_mutation_of_the_table_are_refused() {
    let nodes = Nodes::start(&Options::new(2));
    let good = insert(1, "x", 1_000).bytes;
    let refused = |payload: Vec<u8>| match ask(&nodes, 3, 0, Verb::Mutation, payload) {
        Err(MessagingError::Remote(reply)) => reply,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused(Vec::new()), ErrorReply::Invalid(_)));
    assert!(matches!(refused(mutation(&[9, 9])), ErrorReply::Invalid(_)));
    let cut = mutation(&good[..good.len() - 1]);
    assert!(matches!(refused(cut), ErrorReply::Invalid(_)));
    let mut of_another = good.clone();
    of_another[1..17].fill(7);
    let table = TableId(Uuid::from_bytes([7; 16]));
    assert_eq!(refused(mutation(&of_another)), ErrorReply::UnknownTable(table));
    let mut of_later_schema = good.clone();
    assert_eq!(std::mem::replace(&mut of_later_schema[17], 2), 1);
    assert_eq!(refused(mutation(&of_later_schema)), ErrorReply::UnknownTable(TABLE));
    let store = ask(&nodes, 3, 0, Verb::BatchStore, vec![1, 2, 3]);
    assert!(matches!(store, Err(MessagingError::Remote(ErrorReply::Invalid(_)))));
    assert!(nodes.rows(3).is_empty());
    let strange = ask(&nodes, 3, 0, Verb::Truncate, Vec::new());
    assert!(matches!(strange, Err(MessagingError::Remote(_))), "given back, and dropped there");
    ask(&nodes, 3, 0, Verb::Mutation, mutation(&good)).unwrap();
    assert_eq!(nodes.rows(3).len(), 1);
}

#[test]
fn a_replica_with_older_metadata_waits_for_it_and_one_without_the_table_refuses() {
    let nodes = Nodes::start(&Options::new(3));
    nodes.connect(1);
    nodes.set_schema(2, 4, false);
    let write = |pk| {
        nodes.spawn(nodes.shard(1, 0), move |shard: Shard| async move {
            let order = shard.order(All, vec![insert(pk, "y", 1_000)]);
            shard.coordinator.writer().write_replicated(order).await
        })
    };
    let waiting = write(1);
    nodes.run(100);
    assert!(waiting.borrow().is_none());
    nodes.set_schema(2, 5, true);
    nodes.run(100);
    assert!(matches!(&*waiting.borrow(), Some(Ok(()))));
    nodes.set_schema(2, 5, false);
    let refused = write(2);
    nodes.run(100);
    let Some(Err(ReplicatedError::Request(error))) = refused.take() else { panic!() };
    let RequestError::WriteFailure { received: 1 | 2, block_for: 3, failures, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(failures[..], [(host(2), ReplicaError::IncompatibleSchema)]);
    let unknown = nodes.run_on(nodes.shard(2, 0), |shard| async move {
        let order = shard.order(Quorum, vec![insert(3, "z", 1_000)]);
        shard.coordinator.writer().write_replicated(order).await
    });
    let Err(ReplicatedError::Store(error)) = unknown else { panic!("{unknown:?}") };
    assert_eq!(error, store::StoreError::UnknownTable(TABLE));
}

#[test]
fn hints_are_applied_unless_they_are_too_old() {
    let nodes = Nodes::start(&Options::new(4));
    let now = nodes.shard(1, 0).rt.wall();
    let before = |seconds: i64| WallMicros(now.0 - seconds * 1_000_000);
    let send = |pk: i32, created_at, grace| {
        let bytes = insert(pk, "x", 1_000).bytes;
        ask(&nodes, 3, 0, Verb::Hint, hint(host(3), created_at, grace, &bytes)).unwrap();
    };
    send(1, before(50), 100);
    send(2, before(150), 100);
    send(3, before(0), 0);
    assert_eq!(nodes.rows(3).keys().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(nodes.count_of(3, "replica_hints_total"), 1);
    assert_eq!(nodes.count_of(3, "replica_hints_obsolete_total"), 2);
    nodes.truncate(3, before(20));
    send(4, before(30), 1000);
    send(5, before(20), 1000);
    send(6, before(10), 1000);
    assert_eq!(nodes.rows(3).keys().copied().collect::<Vec<_>>(), [1, 6]);
}

#[test]
fn a_hint_for_a_node_that_has_left_goes_to_who_has_its_range() {
    let nodes = Nodes::start(&Options { replication: simple("1"), ..Options::new(5) });
    let now = nodes.shard(1, 0).rt.wall();
    for pk in 0..20 {
        let ReplicaMutation { token, bytes, .. } = insert(pk, "x", 1_000);
        let shard = ShardMap::ByTokenHash { shards: 2 }.shard_of(TABLE, token).0;
        ask(&nodes, 2, shard, Verb::Hint, hint(host(9), now, 1000, &bytes)).unwrap();
    }
    let counts: Vec<usize> = (1..=3).map(|n| nodes.rows(n).len()).collect();
    assert_eq!(counts.iter().sum::<usize>(), 20, "each is with its one owner: {counts:?}");
    assert!(counts[0] > 0 && counts[2] > 0, "{counts:?}");
}
