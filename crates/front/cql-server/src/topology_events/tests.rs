use super::*;
use crate::tests::{member, several_members};
use std::sync::Arc;

fn named(events: &[Event<'_>]) -> Vec<String> {
    let name = |event: &Event<'_>| match event {
        Event::TopologyChange { kind, address } => format!("{} {address}", kind.name()),
        Event::StatusChange { up, address } => {
            format!("{} {address}", if *up { "UP" } else { "DOWN" })
        }
        Event::SchemaChange(_) => panic!("a schema change"),
    };
    events.iter().map(name).collect()
}

fn with(snapshot: &ClusterSnapshot, changed: Member) -> ClusterSnapshot {
    let mut after = snapshot.clone();
    after.members.insert(changed.host_id, Arc::new(changed));
    after
}

#[test]
fn a_new_node_is_announced_when_it_serves_clients() {
    let news = News::default();
    let two = several_members(2);
    let mut third = member(3);
    third.state = MemberState::Joining;
    let joining = with(&two, third.clone());
    assert_eq!(named(&news.changed(&two, &joining)), [""; 0]);
    assert_eq!(named(&news.liveness(&joining, third.host_id, false)), [""; 0]);
    third.state = MemberState::Normal;
    let joined = with(&two, third.clone());
    assert_eq!(named(&news.changed(&joining, &joined)), [""; 0]);
    let up = ["NEW_NODE 127.0.0.3:9042", "UP 127.0.0.3:9042"];
    assert_eq!(named(&news.liveness(&joined, third.host_id, true)), up);
    // Each change once.
    assert_eq!(named(&news.liveness(&joined, third.host_id, true)), [""; 0]);
    assert_eq!(named(&news.liveness(&joined, third.host_id, false)), ["DOWN 127.0.0.3:9042"]);
    assert_eq!(named(&news.liveness(&joined, third.host_id, true)), ["UP 127.0.0.3:9042"]);
}

#[test]
fn a_node_that_serves_clients_before_its_entry_arrives_is_announced_with_it() {
    let news = News::default();
    let two = several_members(2);
    let mut third = member(3);
    third.state = MemberState::JoinHandover;
    let joining = with(&two, third.clone());
    assert_eq!(named(&news.liveness(&joining, third.host_id, true)), [""; 0]);
    third.state = MemberState::Normal;
    let events = news.changed(&joining, &with(&two, third));
    assert_eq!(named(&events), ["NEW_NODE 127.0.0.3:9042", "UP 127.0.0.3:9042"]);
}

#[test]
fn nodes_that_leave_move_or_change_their_address() {
    let news = News::default();
    let three = several_members(3);
    let mut gone = three.clone();
    gone.members.remove(&member(3).host_id);
    assert_eq!(named(&news.changed(&three, &gone)), ["REMOVED_NODE 127.0.0.3:9042"]);
    let mut moved = member(2);
    moved.tokens = vec![stdx::Token(77)];
    let after = with(&three, moved.clone());
    assert_eq!(named(&news.changed(&three, &after)), ["MOVED_NODE 127.0.0.2:9042"]);
    moved.rpc = "127.0.0.9:9042".parse().unwrap();
    let elsewhere = with(&three, moved.clone());
    assert_eq!(named(&news.changed(&after, &elsewhere)), ["REMOVED_NODE 127.0.0.2:9042"]);
    let up = ["NEW_NODE 127.0.0.9:9042", "UP 127.0.0.9:9042"];
    assert_eq!(named(&news.liveness(&elsewhere, moved.host_id, true)), up);
    // Clients never knew of a node whose join was aborted.
    let mut fourth = member(4);
    fourth.state = MemberState::Joining;
    assert_eq!(named(&news.changed(&with(&three, fourth), &three)), [""; 0]);
    // No event for an unknown node.
    assert_eq!(named(&news.liveness(&three, member(5).host_id, true)), [""; 0]);
}

#[test]
fn a_replacement_at_the_same_address_takes_the_place_of_the_dead_one() {
    let news = News::default();
    let three = several_members(3);
    assert_eq!(named(&news.liveness(&three, member(3).host_id, false)), ["DOWN 127.0.0.3:9042"]);
    let mut newcomer = member(4);
    (newcomer.rpc, newcomer.storage) = (member(3).rpc, member(3).storage);
    newcomer.replaces = Some(member(3).host_id);
    newcomer.state = MemberState::Joining;
    let joining = with(&three, newcomer.clone());
    assert_eq!(named(&news.changed(&three, &joining)), [""; 0], "nothing while it copies");
    assert_eq!(named(&news.liveness(&joining, newcomer.host_id, false)), [""; 0]);
    newcomer.state = MemberState::Normal;
    newcomer.replaces = None;
    let mut replaced = with(&joining, newcomer.clone());
    replaced.members.remove(&member(3).host_id);
    assert_eq!(named(&news.changed(&joining, &replaced)), ["REMOVED_NODE 127.0.0.3:9042"]);
    let up = ["NEW_NODE 127.0.0.3:9042", "UP 127.0.0.3:9042"];
    assert_eq!(named(&news.liveness(&replaced, newcomer.host_id, true)), up);
}
