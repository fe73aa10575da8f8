//! [`Inbound`]: one connection that a peer opened.

use crate::counters::PeerCounters;
use crate::outbox::Outbox;
use internode::Lane;
use rt::Stream;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use stdx::{FixedMap, HostId, Instant, ShardId};

/// One accepted connection.
pub(crate) struct Inbound {
    pub(super) id: u64,
    pub(super) from: HostId,
    pub(super) from_shard: ShardId,
    /// Number of the peer's start.
    pub(super) incarnation: u64,
    pub(super) lane: Lane,
    pub(super) joining: bool,
    pub(super) address: SocketAddr,
    pub(super) conn: Stream,
    pub(crate) outbox: Outbox,
    pub(super) counters: Rc<PeerCounters>,
    pub(super) serving: Cell<usize>,
    pub(super) serving_bytes: Cell<usize>,
    /// Waiting requests, and whether they were cancelled. Those answered in place are never here.
    pub(super) waiting: RefCell<FixedMap<u64, bool>>,
    /// The reading task is in the middle of a turn and will write its answers itself.
    pub(super) in_turn: Cell<bool>,
    pub(super) last_received: Cell<Instant>,
}

impl Inbound {
    pub(crate) fn from(&self) -> HostId {
        self.from
    }

    /// Returns true if it comes from the host `from` in another start than `incarnation`, and
    /// something was received on it since `since`.
    pub(crate) fn is_other_process(&self, from: HostId, incarnation: u64, since: Instant) -> bool {
        self.from == from
            && self.incarnation != incarnation
            && !self.outbox.is_closed()
            && self.last_received.get() >= since
    }

    /// Ends the connection. What the kernel has already is still sent.
    pub(crate) fn close(&self, why: &'static str) {
        if !self.outbox.is_closed() {
            tracing::debug!(peer = %self.address, host = %self.from, why,
                "connection from a peer closed");
        }
        self.outbox.close();
        self.conn.shutdown();
    }
}
