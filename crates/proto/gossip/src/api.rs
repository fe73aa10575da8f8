//! Inputs and outputs of the machine.

use std::time::Duration;

use stdx::{HostId, Instant, WallMicros};

use crate::message::Message;
use crate::state::AppState;

/// Settings that do not change while the node runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node.
    pub host: HostId,
    /// Number of this start, from [`crate::state::next_generation`], durable already.
    pub generation: u64,
    /// Time between rounds.
    pub round: Duration,
    /// A peer is convicted above this; `phi_convict_threshold`.
    pub phi_convict_threshold: f64,
    /// After a pause of this node longer than this no peer is convicted for as long again.
    pub pause_max: Duration,
    /// Wall clock at the start; later ones come with the ticks.
    pub wall: WallMicros,
}

impl Config {
    /// Cassandra's defaults: a round a second, threshold 8, pauses up to 5 s.
    pub fn new(host: HostId, generation: u64) -> Config {
        Config {
            host,
            generation,
            round: Duration::from_secs(1),
            phi_convict_threshold: 8.0,
            pause_max: Duration::from_secs(5),
            wall: WallMicros(0),
        }
    }
}

/// One of the cluster's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Who.
    pub host: HostId,
    /// True if the configuration names it as a seed.
    pub is_seed: bool,
}

/// An input of the machine.
#[derive(Clone, Debug)]
pub enum Input {
    /// The time of `WakeAt` is reached.
    Tick {
        /// The wall clock, only to judge generations by.
        wall: WallMicros,
    },
    /// A message from a node that passed the handshake.
    Received {
        /// The sender.
        from: HostId,
        /// What.
        message: Message,
    },
    /// The members of the cluster, with or without this node. Others are forgotten.
    Members(Vec<Member>),
    /// This node's state is another one; its version is set here.
    Update(AppState),
    /// A connection to a peer ended although neither side closed it.
    Lost {
        /// The peer.
        host: HostId,
    },
    /// The machine of a peer refused a connection: nothing listens at the peer's address.
    Refused {
        /// The peer.
        host: HostId,
    },
    /// Tell every member of this node's state at once: it begins to serve, or is about to stop.
    Announce,
}

/// An instruction to the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Send, and forget: every message may be lost.
    Send {
        /// The receiver.
        to: HostId,
        /// What.
        message: Message,
    },
    /// A peer has changed.
    Event(Event),
    /// Give a `Tick` then.
    WakeAt(Instant),
}

/// Reason why a peer is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// Nothing was heard of it for too long.
    Convicted,
    /// Its machine refuses connections, so that its process has ended.
    Refused,
    /// It said that it stops.
    Shutdown,
    /// It has restarted; it is up again as soon as it answers.
    Restarted,
}

/// News for the rest of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer answers. Its state is known.
    Up {
        /// Who.
        host: HostId,
    },
    /// A peer that was up is not.
    Down {
        /// Who.
        host: HostId,
        /// The reason.
        reason: DownReason,
    },
    /// A peer has another generation than before.
    Restarted {
        /// Who.
        host: HostId,
        /// The new one.
        generation: u64,
    },
    /// A peer's state is another one; [`Gossip::peer`] has it.
    StateChanged {
        /// Who.
        host: HostId,
    },
    /// Others knew a newer generation of this node than its own (its disk was restored): it has a
    /// higher one now, to be made durable.
    GenerationRaised {
        /// This node's.
        generation: u64,
    },
    /// After that again: another node runs with this host id. One of them must stop.
    Impostor {
        /// The other one's.
        generation: u64,
    },
    /// An impossible generation: the peer's clock is wrong by more than a year, or it is broken.
    /// The claim is ignored.
    Unbelievable {
        /// The node that the claim is about.
        host: HostId,
        /// The claimed generation.
        generation: u64,
    },
}

/// Knowledge of a peer.
#[derive(Clone, Copy, Debug)]
pub struct PeerView<'a> {
    /// Number of its start; 0 when nothing is known.
    pub generation: u64,
    /// Its heartbeat.
    pub version: u64,
    /// Its state.
    pub app: &'a AppState,
    /// True if it is up.
    pub is_alive: bool,
    /// Suspicion level (phi) of its silence; `nodetool failuredetector`.
    pub phi: f64,
}
