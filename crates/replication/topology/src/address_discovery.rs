//! Finds members whose address differs from the one in the metadata.
//!
//! A node that starts at a new address announces it through the metadata log, for which a majority of the voters
//! must answer. When several nodes have moved at once (pairs that swapped their addresses, say), no node may reach
//! a majority at the addresses of the log, and none could announce its own. So a node that reaches no majority
//! asks every address it knows which node answers there. It uses the answers until the log has the addresses.
//!
//! The other members may also have removed this node without its noticing. When a majority says so, and no node
//! contradicts, the node ends: writes of clients to it would be lost. A node that was leaving has left.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use cluster::{ADDRESS_UNKNOWN, ClusterSnapshot};
use internode::RefusalCode;
use messaging::{Messaging, OpenError, Peer};
use rt::Group;
use stdx::HostId;

use crate::env::Env;
use crate::seeds::{self, Answer};

/// Pause between two rounds: at first, and at most. It doubles as long as no new member is found.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(16));
/// Addresses that are asked at once; of more, each round takes the next ones.
const ASKED_MAX: usize = 32;
/// Consecutive rounds in which all answers say that no such member is known. Not every member knows
/// a newcomer at once.
const STRANGER_ROUNDS: u32 = 3;

/// Looks for members that answer elsewhere than the metadata says. Clones share.
#[derive(Clone)]
pub struct AddressDiscovery {
    env: Rc<Env>,
}

impl AddressDiscovery {
    pub(crate) fn new(env: &Rc<Env>) -> AddressDiscovery {
        AddressDiscovery { env: env.clone() }
    }

    /// Looks for the others, beside everything else, whenever no majority of the voters is alive.
    /// Shard 0 only, whose connections carry gossip and the metadata; the other shards learn the
    /// addresses from the log, which can be written again then. `on_removed` ends the node when it is
    /// no member any more.
    pub fn seek_members(&self, on_removed: impl FnOnce(HostId) + 'static) {
        let this = self.clone();
        let found_total = self.env.rt.telemetry().counter(
            "internode_members_found_total",
            "members that answered elsewhere than the metadata says while no majority was alive",
            &[],
        );
        let task = async move {
            let mut pause = PAUSE.0;
            let mut round = 0_usize;
            let mut strange = 0;
            loop {
                let next = this.env.rt.now() + pause;
                if this.env.rt.timeout(next, this.env.rt.stop_requested()).await.is_ok() {
                    return;
                }
                let snapshot = this.env.membership.snapshot();
                // A node that has left knows it, and searches for no member.
                if snapshot.local_member().is_none() || this.reaches_majority(&snapshot) {
                    this.trust_log(&snapshot);
                    (pause, strange) = (PAUSE.0, 0);
                    continue;
                }
                let addresses = this.addresses_to_ask(&snapshot, round);
                round = round.wrapping_add(1);
                let answers = seeds::ask_all(&this.env.rt, &this.env.messaging, &addresses).await;
                // The log may have changed meanwhile.
                let snapshot = this.env.membership.snapshot();
                let found = sighted(&this.env.messaging, &snapshot, &answers, |host| {
                    !this.env.liveness.is_alive(host)
                });
                found_total.add(found);
                strange = if is_stranger(&snapshot, &answers) { strange + 1 } else { 0 };
                if strange >= STRANGER_ROUNDS && is_leaving(&snapshot) {
                    tracing::info!("the members know this node as one that has left");
                    return this.env.orders.put_out.set(true);
                }
                if strange >= STRANGER_ROUNDS {
                    return on_removed(snapshot.local.host_id);
                }
                pause = if found > 0 { PAUSE.0 } else { (pause * 2).min(PAUSE.1) };
            }
        };
        // A closed gate: the node stops.
        let _ = self.env.gate.spawn(&self.env.rt, Group::Gossip, "seek-members", task);
    }

    fn reaches_majority(&self, snapshot: &ClusterSnapshot) -> bool {
        let alive = snapshot.voters.iter().filter(|host| self.env.liveness.is_alive(**host));
        alive.count() > snapshot.voters.len() / 2
    }

    /// Keeps an address found by asking as long as it works: a member that does not answer there is
    /// tried at the address of the log again.
    fn trust_log(&self, snapshot: &ClusterSnapshot) {
        for member in snapshot.members.values() {
            let host = member.host_id;
            let is_here = self.env.liveness.is_alive(host);
            let known =
                self.env.messaging.peer(host).filter(|known| known.address != member.storage);
            if let Some(known) = known.filter(|_| !is_here && member.storage != ADDRESS_UNKNOWN) {
                self.env.messaging.set_peer(host, Peer { address: member.storage, ..known });
            }
        }
    }

    /// Every address that a member may stand at, but those where one is known to be.
    fn addresses_to_ask(&self, snapshot: &ClusterSnapshot, round: usize) -> Vec<SocketAddr> {
        // A configuration that cannot be understood has stopped the start.
        let own = seeds::own_address(&self.env.options).ok();
        let mut addresses = self.env.seed_addresses();
        addresses.extend(snapshot.members.values().map(|member| member.storage));
        let known = |host: &HostId| self.env.messaging.peer(*host).map(|peer| peer.address);
        addresses.extend(snapshot.members.keys().filter_map(known));
        let is_alive = |host: &&HostId| self.env.liveness.is_alive(**host);
        let taken: Vec<SocketAddr> =
            snapshot.members.keys().filter(is_alive).filter_map(known).collect();
        addresses.retain(|address| {
            *address != ADDRESS_UNKNOWN && Some(*address) != own && !taken.contains(address)
        });
        addresses.sort_unstable();
        addresses.dedup();
        if addresses.len() > ASKED_MAX {
            let first = round.wrapping_mul(ASKED_MAX) % addresses.len();
            addresses.rotate_left(first);
            addresses.truncate(ASKED_MAX);
        }
        addresses
    }
}

/// Returns true if this node was leaving in the last metadata that it has.
fn is_leaving(snapshot: &ClusterSnapshot) -> bool {
    use cluster::MemberState::{LeaveHandover, Leaving};
    snapshot.local_member().is_some_and(|me| matches!(me.state, Leaving | LeaveHandover))
}

/// Returns true if as many nodes as a majority of the voters answer that they know no such member,
/// and no node accepts it.
fn is_stranger(snapshot: &ClusterSnapshot, answers: &[Answer]) -> bool {
    let refused = answers.iter().filter(|(_, answer)| {
        matches!(answer, Err(OpenError::Refused { code: RefusalCode::UnknownHost, .. }))
    });
    let welcome = answers.iter().any(|(_, answer)| answer.is_ok());
    !welcome && refused.count() > snapshot.voters.len() / 2
}

/// Applies the answers of members: those for which `may_move` holds are taken to be where they
/// answered. Returns the number of members that were elsewhere before.
pub(crate) fn sighted(
    messaging: &Messaging,
    snapshot: &ClusterSnapshot,
    answers: &[Answer],
    may_move: impl Fn(HostId) -> bool,
) -> u64 {
    let mut found = 0;
    for (address, answer) in answers {
        let Ok(ack) = answer else { continue };
        let host = ack.host_id;
        let is_member = snapshot.members.contains_key(&host) && host != snapshot.local.host_id;
        let is_there = messaging.peer(host).is_some_and(|peer| peer.address == *address);
        if !is_member || is_there || !may_move(host) {
            continue;
        }
        tracing::info!(%host, %address, "the address of a member has changed");
        messaging.set_peer(host, Peer { address: *address, shard_count: ack.shard_count.max(1) });
        found += 1;
    }
    found
}
