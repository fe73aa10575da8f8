//! Cut links, for tests with real processes: traffic to and from chosen addresses is held back as a
//! broken cable holds it back. Connections stay open until their silence ends them, and new ones
//! time out. Data in flight arrives if the link is restored before that.
//!
//! Only the connecting side holds back, its requests and their answers; so both ends have to be
//! configured.

use crate::outbox::Outbox;
use rt::sync::Notify;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::task::{Context, Poll};
use stdx::Instant;

/// Maximum bytes withheld per connection, which its writer treats as sent. Further bytes wait, as
/// for a full socket.
const HELD_BYTES_MAX: usize = 1 << 20;

/// The addresses that are cut.
#[derive(Default)]
pub(crate) struct Cuts {
    addresses: RefCell<BTreeSet<IpAddr>>,
    changed: Notify,
}

impl Cuts {
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.addresses.borrow().contains(&address)
    }

    /// Replaces the addresses.
    pub(crate) fn set(&self, addresses: BTreeSet<IpAddr>) {
        *self.addresses.borrow_mut() = addresses;
    }

    /// Wakes what waits for a link to be whole again.
    pub(crate) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// Waits while the link to an address is cut.
    pub(crate) async fn passable(&self, address: IpAddr) {
        loop {
            let changed = self.changed.notified();
            if !self.contains(address) {
                return;
            }
            changed.await;
        }
    }
}

/// Bytes that a cut withholds from the peer of one connection; its writer treats them as sent.
#[derive(Default)]
pub(crate) struct Held(Vec<u8>);

impl Held {
    pub(crate) fn take(&mut self, outbox: &Outbox, now: Instant) {
        while outbox.len() > 0 && self.0.len() < HELD_BYTES_MAX {
            self.0.extend_from_slice(&outbox.take_piece(now));
            outbox.piece_done();
        }
    }

    /// Takes the held bytes, to be sent now.
    pub(crate) fn release(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ready when more can be taken or the outbox is closed.
    pub(crate) fn poll_work(&self, outbox: &Outbox, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.len() < HELD_BYTES_MAX { outbox.poll_work(cx) } else { outbox.poll_closed(cx) }
    }
}
