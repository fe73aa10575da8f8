//! The environment of all topology operations of a shard.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use conf::Options;
use coordinator::Coordinator;
use hints::{Hints, PendingHints};
use liveness::Liveness;
use membership::Membership;
use messaging::Messaging;
use rt::{Gate, Mesh, Rt};
use stdx::{HostId, Instant};
use streaming::Streaming;

use crate::error::{Result, TopologyError};
use crate::orders::Orders;
use crate::seeds;

/// Makes a shard deliver its hints or hand them to a node; returns the hints that are left.
pub type HintsMesh = Mesh<HostId, Vec<PendingHints>>;

/// The parts of a shard that topology operations use.
pub struct TopologyParts {
    /// The shard.
    pub rt: Rt,
    /// The settings of the start.
    pub options: Arc<Options>,
    /// The seeds in force; those of shard 0 are the node's.
    pub seeds: Rc<RefCell<Vec<String>>>,
    /// The way to other nodes.
    pub messaging: Messaging,
    /// Liveness of the members, and the epochs that they have applied.
    pub liveness: Liveness,
    /// The metadata, and changes of it.
    pub membership: Membership,
    /// Lightweight transactions and the batch log.
    pub coordinator: Coordinator,
    /// Writes that wait for other nodes.
    pub hints: Hints,
    /// Copies ranges.
    pub streaming: Streaming,
    /// The way to the hints of all shards.
    pub hints_mesh: Arc<HintsMesh>,
    /// Owner of the background tasks.
    pub gate: Gate,
    /// Owner of the removal of data; it ends with the store.
    pub cleaning: Gate,
}

/// The parts, and what is in progress.
pub(crate) struct Env {
    pub(crate) rt: Rt,
    pub(crate) options: Arc<Options>,
    pub(crate) seeds: Rc<RefCell<Vec<String>>>,
    pub(crate) messaging: Messaging,
    pub(crate) liveness: Liveness,
    pub(crate) membership: Membership,
    pub(crate) coordinator: Coordinator,
    pub(crate) hints: Hints,
    pub(crate) streaming: Streaming,
    pub(crate) hints_mesh: Arc<HintsMesh>,
    pub(crate) gate: Gate,
    pub(crate) cleaning: Gate,
    /// Copies for members that leave, and the movement that this node carries out.
    pub(crate) orders: Rc<Orders>,
    /// Start of gossip; later than everything while it has not started.
    pub(crate) gossips_since: Cell<Instant>,
}

impl Env {
    pub(crate) fn new(parts: TopologyParts) -> Env {
        Env {
            rt: parts.rt,
            options: parts.options,
            seeds: parts.seeds,
            messaging: parts.messaging,
            liveness: parts.liveness,
            membership: parts.membership,
            coordinator: parts.coordinator,
            hints: parts.hints,
            streaming: parts.streaming,
            hints_mesh: parts.hints_mesh,
            gate: parts.gate,
            cleaning: parts.cleaning,
            orders: Rc::default(),
            gossips_since: Cell::new(Instant(u64::MAX)),
        }
    }

    /// Addresses of the seeds in force. An address that cannot be parsed has stopped the start, or
    /// was refused.
    pub(crate) fn seed_addresses(&self) -> Vec<SocketAddr> {
        seeds::read(&self.seeds.borrow(), self.options.storage_port).unwrap_or_default()
    }

    /// # Errors
    /// `Stopped` when the node is asked to stop meanwhile.
    pub(crate) async fn pause(&self, pause: Duration) -> Result<()> {
        let end = self.rt.now() + pause;
        match self.rt.timeout(end, self.rt.stop_requested()).await {
            Ok(()) => Err(TopologyError::Stopped),
            Err(_) => Ok(()),
        }
    }
}
