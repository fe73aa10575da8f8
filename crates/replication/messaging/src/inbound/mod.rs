//! The side that answers: connections that peers opened.

mod accept;
mod connection;
mod encrypted;
mod responder;
mod serve;

pub(crate) use connection::Inbound;
pub(crate) use encrypted::StoragePort;
pub use responder::{Handler, Request, Responder};

use crate::env::Env;
use crate::hooks::Hooks;
use crate::mesh::MessagingMesh;
use crate::outbound::Outbound;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Connections from peers and the requests on them.
pub(crate) struct Inbounds {
    env: Rc<Env>,
    hooks: Rc<Hooks>,
    outbound: Rc<Outbound>,
    mesh: Arc<MessagingMesh>,
    handler: RefCell<Option<Rc<dyn Handler>>>,
    open: RefCell<BTreeMap<u64, Rc<Inbound>>>,
    /// Number of handshakes under way.
    handshakes: Cell<usize>,
}

impl Inbounds {
    pub(crate) fn new(
        env: Rc<Env>,
        hooks: Rc<Hooks>,
        outbound: Rc<Outbound>,
        mesh: Arc<MessagingMesh>,
    ) -> Inbounds {
        let (handler, open, handshakes) = Default::default();
        Inbounds { env, hooks, outbound, mesh, handler, open, handshakes }
    }

    /// Answers requests with `handler` from now on.
    pub(crate) fn serve(&self, handler: Rc<dyn Handler>) {
        *self.handler.borrow_mut() = Some(handler);
    }

    /// All connections.
    pub(crate) fn all(&self) -> Vec<Rc<Inbound>> {
        self.open.borrow().values().cloned().collect()
    }

    /// Takes the connections that shard 0 accepted for this one.
    pub(crate) fn take_moved(self: &Rc<Self>) {
        let inbounds = self.clone();
        self.mesh.calls.serve(&self.env.rt, move |adopt, reply| {
            inbounds.adopt_moved(*adopt);
            reply.send(());
        });
    }

    /// Releases the handler: it holds what holds messaging.
    pub(crate) fn release(&self) {
        drop(self.handler.take());
    }
}
