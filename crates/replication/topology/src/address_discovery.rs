//! Finding members again that stand at another address than the metadata says.
//!
//! A node that starts at a new address tells it through the metadata log, for which a majority of the
//! voters must answer. When so many have moved at once that nobody reaches a majority where the log says
//! (several pairs have swapped their addresses, say), nobody could ever tell. So who reaches no majority
//! asks at every address it knows of who is there, and goes by the answers until the log has them.
//!
//! It may also be that the others have put this node out, and that it did not hear of it. When a majority
//! says so, and nobody else, the node ends: what a client wrote at it would be lost. One that was leaving
//! has left.

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

/// Between two looks: at first, and at most. The pause doubles as long as nobody new is found.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(16));
/// Addresses that are asked at once; of more, each round takes the next ones.
const ASKED_MAX: usize = 32;
/// Rounds one after the other in which all who answer say that they know no such member. A newcomer is not
/// known to everybody at once.
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
                // Who has left knows it, and looks for nobody.
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
                    tracing::info!("the others know this node as one that has left");
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

    /// What was found by asking counts as long as it works: who does not answer there is looked for
    /// where the log says again.
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

/// Whether this node was on its way out when it last heard of the others.
fn is_leaving(snapshot: &ClusterSnapshot) -> bool {
    use cluster::MemberState::{LeaveHandover, Leaving};
    snapshot.local_member().is_some_and(|me| matches!(me.state, Leaving | LeaveHandover))
}

/// Whether a majority, as many as the voters', says that it knows no such member, and nobody else
/// anything.
fn is_stranger(snapshot: &ClusterSnapshot, answers: &[Answer]) -> bool {
    let refused = answers.iter().filter(|(_, answer)| {
        matches!(answer, Err(OpenError::Refused { code: RefusalCode::UnknownHost, .. }))
    });
    let welcome = answers.iter().any(|(_, answer)| answer.is_ok());
    !welcome && refused.count() > snapshot.voters.len() / 2
}

/// Goes by what members have answered of themselves: those for which `may_move` holds are where they
/// answered. How many were elsewhere before.
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
        tracing::info!(%host, %address, "a member answers at another address than was known");
        messaging.set_peer(host, Peer { address: *address, shard_count: ack.shard_count.max(1) });
        found += 1;
    }
    found
}
