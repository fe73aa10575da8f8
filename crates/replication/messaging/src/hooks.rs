//! [`Hooks`]: decisions that messaging takes from other parts of the node, and its notifications to
//! them.

use crate::security::Nearness;
use internode::{Hello, Refusal};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use stdx::{Epoch, HostId};

/// A further check of connecting nodes: called on shard 0 with a HELLO that is otherwise acceptable
/// and the address it came from. Membership refuses here a host id that another live node has.
pub type Admission = Rc<dyn Fn(&Hello, SocketAddr) -> Result<(), Refusal>>;

/// Returns true if connections to a peer are compressed.
pub type Compressed = Rc<dyn Fn(HostId) -> bool>;

/// Returns the place of a member relative to this node.
pub type Places = Rc<dyn Fn(HostId) -> Nearness>;

/// Failure of a connection to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFailure {
    /// It was open and ended although this node did not close it.
    Lost,
    /// The peer's machine refused it: nothing listens there.
    Refused,
}

/// Called for each connection to a peer that failed.
pub type LinkFailed = Rc<dyn Fn(HostId, LinkFailure)>;

/// Called for answers whose sender knows a newer epoch than that of [`Messaging::set_epoch`].
pub type NewerEpoch = Rc<dyn Fn(HostId, Epoch)>;

/// Called after each measurement of a peer's clock.
type ClockMeasured = Rc<dyn Fn()>;

/// The hooks of a shard's messaging; none is set at first.
#[derive(Default)]
pub struct Hooks {
    admission: RefCell<Option<Admission>>,
    compressed: RefCell<Option<Compressed>>,
    places: RefCell<Option<Places>>,
    newer: RefCell<Option<NewerEpoch>>,
    link_failed: RefCell<Option<LinkFailed>>,
    clock_measured: RefCell<Option<ClockMeasured>>,
}

impl Hooks {
    /// Sets a further check of connecting nodes.
    pub fn set_admission(&self, admission: Admission) {
        *self.admission.borrow_mut() = Some(admission);
    }

    /// Compresses only connections to peers for which `to` returns true, if
    /// [`crate::Settings::compression`] allows any; called when a connection is opened.
    pub fn compress_only(&self, to: Compressed) {
        *self.compressed.borrow_mut() = Some(to);
    }

    /// Looks up the places of peers with `places`; until then none is known.
    pub fn place_peers(&self, places: Places) {
        *self.places.borrow_mut() = Some(places);
    }

    /// Calls `hook` for each answer of a peer that knows a newer epoch; requests carry theirs to
    /// the handler.
    pub fn on_newer_epoch(&self, hook: NewerEpoch) {
        *self.newer.borrow_mut() = Some(hook);
    }

    /// Calls `hook` for each connection to a peer that is lost or refused.
    pub fn on_link_failed(&self, hook: LinkFailed) {
        *self.link_failed.borrow_mut() = Some(hook);
    }

    /// Calls `hook` after each measurement of a peer's clock.
    pub fn on_clock(&self, hook: impl Fn() + 'static) {
        *self.clock_measured.borrow_mut() = Some(Rc::new(hook));
    }

    pub(crate) fn admission(&self) -> Option<Admission> {
        self.admission.borrow().clone()
    }

    pub(crate) fn compressed(&self) -> Option<Compressed> {
        self.compressed.borrow().clone()
    }

    /// Returns the place of a peer; that of a node that is joining is not known.
    pub(crate) fn nearness(&self, host: HostId, joining: bool) -> Nearness {
        let places = self.places.borrow().clone().filter(|_| !joining);
        places.map_or(Nearness::Unknown, |places| places(host))
    }

    pub(crate) fn newer_epoch(&self) -> Option<NewerEpoch> {
        self.newer.borrow().clone()
    }

    pub(crate) fn link_failed(&self) -> Option<LinkFailed> {
        self.link_failed.borrow().clone()
    }

    pub(crate) fn clock_measured(&self) -> Option<ClockMeasured> {
        self.clock_measured.borrow().clone()
    }

    /// Releases all of them: they hold what holds messaging.
    pub(crate) fn release(&self) {
        drop(self.admission.take());
        drop(self.compressed.take());
        drop(self.places.take());
        drop(self.newer.take());
        drop(self.link_failed.take());
        drop(self.clock_measured.take());
    }
}
