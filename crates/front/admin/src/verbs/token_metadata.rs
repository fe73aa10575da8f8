//! `checktokenmetadata`: whether gossip and this node agree on the tokens of the ring.
//!
//! Tokens are part of the metadata log, and a node gossips the epoch of the log that it has. Peers of this node's
//! epoch have its tokens; one of another epoch may have others.

use std::time::Duration;

use crate::model::{ClusterReport, NodeReport};

use super::cluster;
use super::line::{Line, Outcome};
use super::node::node;

/// Gossip brings the epoch of a peer within one or two of its rounds: a difference is real when it outlasts them.
const ROUND: Duration = Duration::from_secs(1);
const ROUNDS: u32 = 4;

/// Output when all nodes agree, as Cassandra's tool prints it.
const NONE: &str = "\n";

/// `checktokenmetadata`; retries while a peer seems to have another epoch.
pub(super) fn run(line: &Line) -> Outcome {
    let api = &line.api;
    let mut found = NONE.to_owned();
    for round in 0..ROUNDS {
        if round > 0 {
            api.terminal.pause(ROUND);
        }
        found = mismatches(&node(api)?, &cluster::report(api)?);
        if found == NONE {
            break;
        }
    }
    Ok(found)
}

/// A paragraph for each live peer with another epoch; an empty line when there is none, as Cassandra prints it.
fn mismatches(node: &NodeReport, cluster: &ClusterReport) -> String {
    let peers = cluster.gossip.as_ref().map_or(&[][..], |gossip| gossip.peers.as_slice());
    let mut out = String::new();
    for peer in peers.iter().filter(|p| p.is_alive && p.host_id != node.host_id) {
        if peer.epoch == node.epoch {
            continue;
        }
        let member = node.nodes.iter().find(|n| n.host_id == peer.host_id);
        let shown = member.map_or(peer.host_id.as_str(), |n| n.address.as_str());
        out.push_str(&format!(
            "Mismatch on : {shown}\n  Gossip epoch: {}\n  Epoch of this node: {}\n",
            peer.epoch, node.epoch
        ));
    }
    if out.is_empty() { NONE.to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{GossipPeerReport, GossipReport, MemberReport};

    #[test]
    fn live_peers_of_another_epoch_are_named() {
        let member = |id: &str, address: &str| MemberReport {
            host_id: id.to_owned(),
            address: address.to_owned(),
            ..MemberReport::default()
        };
        let node = NodeReport {
            host_id: "a".to_owned(),
            epoch: 7,
            nodes: vec![member("a", "127.0.0.1"), member("b", "127.0.0.2")],
            ..NodeReport::default()
        };
        let peer = |id: &str, epoch, is_alive| GossipPeerReport {
            host_id: id.to_owned(),
            epoch,
            is_alive,
            ..GossipPeerReport::default()
        };
        let found = |peers| {
            let gossip = Some(GossipReport { active: true, peers });
            mismatches(&node, &ClusterReport { gossip, ..ClusterReport::default() })
        };
        assert_eq!(mismatches(&node, &ClusterReport::default()), "\n");
        // A node that is down stays at its last epoch.
        let agree = vec![peer("a", 6, true), peer("b", 7, true), peer("c", 5, false)];
        assert_eq!(found(agree), "\n");
        assert_eq!(
            found(vec![peer("b", 5, true)]),
            "Mismatch on : 127.0.0.2\n  Gossip epoch: 5\n  Epoch of this node: 7\n"
        );
    }
}
