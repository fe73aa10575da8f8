//! This node's introduction to other nodes, and the members that messaging knows.

use cluster::{ADDRESS_UNKNOWN, ClusterSnapshot};
use conf::{InternodeCompression, Options};
use internode::{Features, VersionRange};
use messaging::{Messaging, Peer};
use stdx::HostId;

use crate::identity::Identity;

/// Relation of a node to its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// It asks to be let in.
    Joining,
    /// It is one.
    Member,
}

/// A run of this node.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Its number.
    pub number: u64,
    /// Its shards.
    pub shards: u16,
}

/// Returns the introduction that messaging sends to other nodes.
pub fn introduction(
    options: &Options,
    identity: &Identity,
    run: Run,
    membership: Membership,
) -> internode::Identity {
    internode::Identity {
        cluster_id: identity.cluster_id,
        cluster_name: options.cluster_name.clone(),
        host_id: identity.host_id,
        incarnation: run.number,
        shard_count: run.shards,
        joining: membership == Membership::Joining,
        versions: VersionRange::THIS,
        features: match options.internode_compression {
            InternodeCompression::None => Features::NONE,
            InternodeCompression::All | InternodeCompression::Dc => Features::LZ4,
        },
    }
}

/// Makes the members of a snapshot, and its epoch, known to messaging. A member whose address is
/// unknown is a member all the same: it must be let in when it announces its address. Entries that
/// equal those of `before` change nothing: `address_discovery` may have found the member elsewhere
/// since.
pub fn introduce(
    messaging: &Messaging,
    before: Option<&ClusterSnapshot>,
    snapshot: &ClusterSnapshot,
) {
    for member in snapshot.members.values() {
        let shard_count = member.shards.max(1);
        let said = before.and_then(|before| before.members.get(&member.host_id));
        let known = messaging.peer(member.host_id);
        let is_news = said.is_none_or(|said| said.storage != member.storage);
        let address = match known {
            Some(known) if !is_news || member.storage == ADDRESS_UNKNOWN => known.address,
            _ => member.storage,
        };
        let peer = Peer { address, shard_count };
        if known != Some(peer) {
            messaging.set_peer(member.host_id, peer);
        }
    }
    messaging.set_epoch(snapshot.epoch);
}

/// Lets messaging follow a change of the metadata.
pub fn follow(messaging: &Messaging, before: &ClusterSnapshot, after: &ClusterSnapshot) {
    introduce(messaging, Some(before), after);
    let gone = before.members.keys().filter(|host| !after.members.contains_key(*host));
    for host in gone.copied().collect::<Vec<HostId>>() {
        messaging.remove_peer(host);
    }
}
