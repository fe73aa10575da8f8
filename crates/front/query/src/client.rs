//! Clients that statements are executed for.

use crate::account::AnswerSizes;
use crate::users::Numbered;
use cql_wire::{Negotiated, ProtocolVersion};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use stdx::Instant;

/// Client that executes statements, with the state that their meaning and answers depend on. It is
/// a connection, or a part of the node that acts for itself.
pub struct ClientState {
    /// Address of the client.
    pub peer: SocketAddr,
    /// Version of the protocol and its extensions, by which values and columns are described.
    pub negotiated: Cell<Negotiated>,
    /// Keyspace of the last USE.
    pub keyspace: RefCell<Option<Rc<str>>>,
    /// Role that it has logged in as.
    user: RefCell<Option<Rc<str>>>,
    /// Access of the user, as computed last.
    pub(crate) access: RefCell<Option<Rc<Numbered>>>,
    /// Sizes of the answers to its reads.
    pub answers: AnswerSizes,
    /// The advice about USE was given.
    pub(crate) warned_use: Cell<bool>,
    /// True for the node itself: no access check rejects its requests.
    pub(crate) is_node: bool,
    /// Another node sent a statement to be executed here.
    pub(crate) forwarded: Option<Forwarded>,
}

/// Returns true if both are the same value, or missing.
#[inline]
pub fn same_text(one: Option<&Rc<str>>, other: Option<&Rc<str>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Rc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

/// Decisions of another node about a statement that it forwarded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forwarded {
    /// Latest instant of the client's answer.
    pub(crate) deadline: Instant,
    /// The client may see what masks hide.
    pub(crate) unmasks: bool,
}

impl ClientState {
    /// A client at this address that nothing is known of.
    pub fn new(peer: SocketAddr, negotiated: Negotiated) -> ClientState {
        ClientState {
            peer,
            negotiated: Cell::new(negotiated),
            keyspace: RefCell::new(None),
            user: RefCell::new(None),
            access: RefCell::new(None),
            answers: AnswerSizes::default(),
            warned_use: Cell::new(false),
            is_node: false,
            forwarded: None,
        }
    }

    /// The node itself, at its own address.
    pub fn of_node(node: SocketAddr) -> ClientState {
        let negotiated = Negotiated::plain(ProtocolVersion::CURRENT);
        ClientState { is_node: true, ..ClientState::new(node, negotiated) }
    }

    /// The client of a statement that another node forwarded.
    pub(crate) fn of_forwarded(
        peer: SocketAddr,
        negotiated: Negotiated,
        forwarded: Forwarded,
    ) -> ClientState {
        ClientState { forwarded: Some(forwarded), ..ClientState::new(peer, negotiated) }
    }

    /// Records the role that it has logged in as.
    pub fn log_in(&self, user: &str) {
        *self.user.borrow_mut() = Some(user.into());
        *self.access.borrow_mut() = None;
    }

    /// Role that it has logged in as.
    pub fn user(&self) -> Option<Rc<str>> {
        self.user.borrow().clone()
    }

    /// Returns true if this is the same value as the role that it has logged in as, not only an equal one.
    #[inline]
    pub fn is_same_user(&self, user: Option<&Rc<str>>) -> bool {
        same_text(self.user.borrow().as_ref(), user)
    }

    /// Deadline of a statement that another node forwarded.
    pub(crate) fn forwarded_deadline(&self) -> Option<Instant> {
        self.forwarded.map(|forwarded| forwarded.deadline)
    }
}
