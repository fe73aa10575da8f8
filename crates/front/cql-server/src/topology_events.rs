//! Events to registered clients about the other nodes: TOPOLOGY_CHANGE and STATUS_CHANGE.
//!
//! Owns: which change is news, per shard. Never: sends anything. Source: `Server.EventNotifier` of
//! Cassandra: NEW_NODE waits until the node serves clients, nothing is reported twice.

use cluster::{ClusterSnapshot, Member, MemberState};
use cql_wire::Event;
use cql_wire::event::TopologyChangeKind;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use stdx::HostId;

/// The last reported state of each node.
#[derive(Default)]
pub(crate) struct News(RefCell<BTreeMap<HostId, Peer>>);

#[derive(Clone, Copy, Default)]
struct Peer {
    /// `None`: not known yet.
    is_up: Option<bool>,
    /// The node is in the ring, and its NEW_NODE was not sent yet.
    is_unannounced: bool,
}

type Events = Vec<Event<'static>>;

fn topology(kind: TopologyChangeKind, address: SocketAddr) -> Event<'static> {
    Event::TopologyChange { kind, address }
}

fn status(up: bool, address: SocketAddr) -> Event<'static> {
    Event::StatusChange { up, address }
}

/// Returns true if clients are notified of this member.
fn is_in_ring(member: &Member) -> bool {
    !matches!(member.state, MemberState::Joining | MemberState::JoinHandover)
}

impl News {
    /// Returns the events of a change of the members.
    pub(crate) fn changed(&self, before: &ClusterSnapshot, after: &ClusterSnapshot) -> Events {
        let mut peers = self.0.borrow_mut();
        let mut events = Events::new();
        for (host, old) in &before.members {
            if !after.members.contains_key(host) {
                peers.remove(host);
                if is_in_ring(old) {
                    events.push(topology(TopologyChangeKind::RemovedNode, old.rpc));
                }
            }
        }
        for (host, new) in after.members.iter().filter(|(_, member)| is_in_ring(member)) {
            match before.members.get(host).filter(|old| is_in_ring(old)) {
                Some(old) if old.rpc == new.rpc => {
                    if old.tokens != new.tokens {
                        events.push(topology(TopologyChangeKind::MovedNode, new.rpc));
                    }
                    continue;
                }
                // To clients a node with another address is another node.
                Some(old) => events.push(topology(TopologyChangeKind::RemovedNode, old.rpc)),
                None => {}
            }
            // The clients of this node know its address.
            if *host == after.local.host_id {
                continue;
            }
            let peer = peers.entry(*host).or_default();
            if peer.is_up == Some(true) {
                events.push(topology(TopologyChangeKind::NewNode, new.rpc));
                events.push(status(true, new.rpc));
            } else {
                peer.is_unannounced = true;
            }
        }
        events
    }

    /// Returns the events of a node that is up (alive and serving clients) or down.
    pub(crate) fn liveness(&self, snapshot: &ClusterSnapshot, host: HostId, is_up: bool) -> Events {
        let mut events = Events::new();
        let Some(member) = snapshot.members.get(&host) else { return events };
        let mut peers = self.0.borrow_mut();
        let peer = peers.entry(host).or_default();
        if peer.is_up.replace(is_up) == Some(is_up) || !is_in_ring(member) {
            return events;
        }
        if is_up && std::mem::take(&mut peer.is_unannounced) {
            events.push(topology(TopologyChangeKind::NewNode, member.rpc));
        }
        events.push(status(is_up, member.rpc));
        events
    }
}

#[cfg(test)]
mod tests;
