//! [`Link`]: one outgoing connection, from the first request that needs it to its end.

use crate::counters::PeerCounters;
use crate::outbox::Outbox;
use internode::Lane;
use rt::Stream;
use rt::sync::Notify;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use stdx::{HostId, Instant, ShardId};

/// Key of a connection: a peer, its shard, and a kind of message.
pub(crate) type RouteKey = (HostId, ShardId, Lane);

/// One outgoing connection.
pub(crate) struct Link {
    pub(crate) id: u64,
    pub(crate) key: RouteKey,
    pub(crate) address: SocketAddr,
    pub(crate) outbox: Outbox,
    pub(crate) counters: Rc<PeerCounters>,
    pub(crate) in_flight: Cell<usize>,
    pub(crate) opened_at: Cell<Option<Instant>>,
    pub(crate) last_request: Cell<Instant>,
    pub(crate) last_received: Cell<Instant>,
    pub(crate) conn: RefCell<Option<Stream>>,
    /// Ends an attempt to connect.
    pub(crate) abort: Notify,
    /// A test cut it: see `cut`.
    pub(crate) is_cut: Cell<bool>,
    /// Notified when that changes and when the connection ends.
    pub(crate) changed: Notify,
    pub(crate) closing: RefCell<Option<&'static str>>,
}

impl Link {
    pub(crate) fn host(&self) -> HostId {
        self.key.0
    }

    pub(crate) fn is_open(&self) -> bool {
        self.opened_at.get().is_some() && !self.outbox.is_closed()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    /// Ends the connection; its task completes what waits.
    pub(crate) fn close(&self, why: &'static str) {
        self.closing.borrow_mut().get_or_insert(why);
        let conn = self.conn.borrow().clone();
        if let Some(conn) = conn {
            conn.shutdown();
        }
        self.outbox.close();
        self.abort.notify_waiters();
        self.changed.notify_waiters();
    }

    pub(crate) fn left(&self) {
        self.in_flight.set(self.in_flight.get().saturating_sub(1));
    }

    /// Waits while it is cut and not closed.
    pub(crate) async fn whole(&self) {
        loop {
            let changed = self.changed.notified();
            if !self.is_cut.get() || self.outbox.is_closed() {
                return;
            }
            changed.await;
        }
    }
}
