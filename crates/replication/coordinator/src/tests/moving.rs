//! Writes and hints that meet a change of who holds a range.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::Consistency::{All, EachQuorum, Quorum};
use cluster::{ClusterSnapshot, MemberState};
use dist_testing::host;
use internode::{ErrorReply, Mutation, MutationFlags, Verb};
use messaging::MessagingError;
use stdx::{Epoch, ShardMap, TableId, TimestampMicros, Token, Uuid, WallMicros};

use super::nodes::{Nodes, Options};
use super::serving::{ask, hint};
use super::table::{TABLE, insert, simple};
use crate::replicated::batch::batch_wire;
use replica::ReplicaMutation;

/// Gives a node newer metadata.
fn learn(nodes: &Nodes, n: u8, snapshot: &ClusterSnapshot) {
    for shard in nodes.all_shards(n) {
        shard.learn(snapshot.with_local(host(n)).unwrap());
    }
}

fn replicas(snapshot: &ClusterSnapshot, token: Token) -> Vec<u8> {
    let placements = snapshot.placements_of_table(TABLE).unwrap();
    let natural = placements.replicas(token);
    natural.natural().map(|m| m.host_id.0.as_bytes()[0]).collect()
}

fn owner(token: Token, shards: u16) -> u16 {
    ShardMap::ByTokenHash { shards }.shard_of(TABLE, token).0
}

fn send_hint(nodes: &Nodes, to: u8, target: u8, pk: i32, created_at: WallMicros) {
    let ReplicaMutation { token, bytes, .. } = insert(pk, "x", 1_000);
    let shards = nodes.all_shards(to).len() as u16;
    let payload = hint(host(target), created_at, 864_000, &bytes);
    ask(nodes, to, owner(token, shards), Verb::Hint, payload).unwrap();
}

#[test]
fn a_hint_for_a_node_that_gave_the_range_away_goes_to_who_has_it() {
    let nodes = Nodes::start(&Options { replication: simple("1"), ..Options::new(1) });
    let now = nodes.shard(1, 0).rt.wall();
    for pk in 0..20 {
        send_hint(&nodes, 2, 2, pk, now);
    }
    let snapshot = nodes.shard(1, 0).snapshot();
    let rows: Vec<BTreeMap<i32, String>> = (1..=3).map(|n| nodes.rows(n)).collect();
    for pk in 0..20 {
        let owner = replicas(&snapshot, insert(pk, "x", 1).token)[0];
        assert!(rows[usize::from(owner) - 1].contains_key(&pk), "{pk} is not on n{owner}");
    }
}

#[test]
fn a_hint_that_a_leaving_node_hands_over_still_reaches_its_replica() {
    let nodes = Nodes::start(&Options::new(2));
    let now = nodes.shard(1, 0).rt.wall();
    for pk in 0..10 {
        send_hint(&nodes, 2, 3, pk, now);
    }
    assert_eq!(nodes.rows(3).len(), 10);
    nodes.set_down(3, true);
    send_hint(&nodes, 2, 3, 11, WallMicros(now.0 - 5));
    assert_eq!(nodes.hints(), [host(3)], "it is kept for it");
    assert_eq!(nodes.hint_times(), [WallMicros(now.0 - 5)], "as old as the write");
}

#[test]
fn a_hint_reaches_who_takes_its_range_over() {
    let options = Options { replication: simple("1"), joining: Some(2), ..Options::new(3) };
    let nodes = Nodes::start(&options);
    let now = nodes.shard(1, 0).rt.wall();
    for pk in 0..30 {
        let owner = replicas(&nodes.shard(1, 0).snapshot(), insert(pk, "x", 1).token)[0];
        if owner == 3 {
            send_hint(&nodes, 3, 3, pk, now);
        }
    }
    let (old, new) = (nodes.rows(3), nodes.rows(2));
    let snapshot = nodes.shard(1, 0).snapshot();
    let placements = snapshot.placements_of_table(TABLE).unwrap();
    let is_moving = |pk: i32| placements.replicas(insert(pk, "x", 1).token).pending_len() > 0;
    let moving: BTreeMap<i32, String> =
        old.iter().filter(|(pk, _)| is_moving(**pk)).map(|(k, v)| (*k, v.clone())).collect();
    assert!(old.len() > moving.len() && !moving.is_empty(), "{old:?}");
    assert_eq!(new, moving);
}

#[test]
fn what_a_coordinator_with_older_metadata_acknowledges_is_where_it_is_read() {
    let nodes = Nodes::start(&Options {
        nodes: vec![(1, "dc1"), (2, "dc1"), (3, "dc1"), (2, "dc1")],
        joining: Some(4),
        ..Options::new(4)
    });
    let before = (*nodes.shard(1, 0).snapshot()).clone();
    let mut old = before.clone();
    old.epoch = Epoch(4);
    old.members.remove(&host(4));
    learn(&nodes, 1, &old);
    let mut now = before;
    for (epoch, state) in [(6, MemberState::JoinHandover), (7, MemberState::Normal)] {
        now.epoch = Epoch(epoch);
        Arc::make_mut(now.members.get_mut(&host(4)).unwrap()).state = state;
        for n in 2..=4 {
            learn(&nodes, n, &now);
        }
    }
    nodes.cut(1, 2);
    let acknowledged: Vec<i32> =
        (0..40).filter(|pk| nodes.write(1, Quorum, *pk, "x").is_ok()).collect();
    assert!(acknowledged.len() > 10, "{acknowledged:?}");
    let rows: BTreeMap<u8, BTreeMap<i32, String>> = (1..=4).map(|n| (n, nodes.rows(n))).collect();
    for pk in acknowledged {
        let owners = replicas(&now, insert(pk, "x", 1).token);
        let on = owners.iter().filter(|n| rows[n].contains_key(&pk)).count();
        assert!(on >= 2, "{pk} is on {on} of {owners:?}");
    }
    assert!(nodes.count_of(3, "replica_mutations_outdated_total") > 0);
}

#[test]
fn a_write_that_was_to_be_passed_on_by_older_metadata_reaches_all_who_have_it() {
    let nodes = Nodes::start(&Options::two_datacenters(5));
    let mut now = (*nodes.shard(1, 0).snapshot()).clone();
    now.epoch = Epoch(6);
    Arc::make_mut(now.members.get_mut(&host(4)).unwrap()).tokens = vec![Token(77)];
    for n in 2..=4 {
        learn(&nodes, n, &now);
    }
    for (pk, level) in (0..).zip([EachQuorum, All, Quorum]) {
        nodes.write(1, level, pk, "x").unwrap();
    }
    nodes.run(100);
    for n in 1..=4 {
        assert_eq!(nodes.rows(n).len(), 3, "n{n}");
    }
    let sent_on: i64 = (3..=4).map(|n| nodes.count_of(n, "replica_mutations_outdated_total")).sum();
    assert!(sent_on >= 3, "{sent_on}");
    assert_eq!(nodes.count_of(1, "coordinator_write_timeouts_total"), 0);
}

#[test]
fn what_was_read_or_logged_before_a_truncation_does_not_come_back_behind_it() {
    let nodes = Nodes::start(&Options::new(7));
    let write = |pk: i32, flags| {
        let ReplicaMutation { token, bytes, .. } = insert(pk, "x", 1_000);
        let mut out = Vec::new();
        Mutation { flags, bytes: &bytes }.encode(&mut out);
        ask(&nodes, 3, owner(token, 3), Verb::Mutation, out)
    };
    write(1, MutationFlags::READ_REPAIR).unwrap();
    nodes.truncate(3, nodes.shard(3, 0).rt.wall());
    let error = Err(MessagingError::Remote(ErrorReply::EpochTooOld { needed: Epoch(6) }));
    assert_eq!(write(2, MutationFlags::READ_REPAIR), error);
    assert_eq!(write(3, MutationFlags::BATCH_REPLAY), error);
    write(4, MutationFlags::NONE).unwrap();
    for shard in nodes.all_shards(1) {
        shard.messaging.set_epoch(Epoch(6));
    }
    write(5, MutationFlags::READ_REPAIR).unwrap();
    assert_eq!(nodes.rows(3).keys().copied().collect::<Vec<_>>(), [1, 4, 5]);
}

#[test]
fn a_log_that_a_node_could_not_replay_is_not_stored_there() {
    let nodes = Nodes::start(&Options::new(6));
    let store = |table: [u8; 16]| {
        let mut bytes = insert(1, "x", 1_000).bytes;
        bytes[1..17].copy_from_slice(&table);
        let mut out = Vec::new();
        let mutations = [bytes.as_slice()].into_iter();
        batch_wire::encode_store(&mut out, nodes.batch_id(), TimestampMicros(1_000), mutations);
        ask(&nodes, 3, 0, Verb::BatchStore, out)
    };
    store(*TABLE.0.as_bytes()).unwrap();
    let error = store([7; 16]).unwrap_err();
    let table = TableId(Uuid::from_bytes([7; 16]));
    assert_eq!(error, MessagingError::Remote(ErrorReply::UnknownTable(table)));
    assert_eq!(nodes.logged(3), 1);
}
