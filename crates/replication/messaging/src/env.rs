//! [`Env`]: the environment that both directions of a shard's messaging share.

use crate::counters::{Counters, KindsStats};
use crate::cut::Cuts;
use crate::dropped_log::{DroppedLog, DroppedMessage};
use crate::mesh::MessagingMesh;
use crate::peer::Peer;
use crate::peer_log::PeerLog;
use crate::pending::Pending;
use crate::settings::Settings;
use internode::{FrameHeader, FrameKind, Identity, Verb};
use rt::sync::Notify;
use rt::{Gate, Rt};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use stdx::{Epoch, HostId};

/// Environment of a shard's messaging: its identity, peers, messages in flight, and the stop flag.
pub(crate) struct Env {
    pub(crate) rt: Rt,
    pub(crate) settings: Arc<Settings>,
    pub(crate) gate: Gate,
    pub(crate) identity: RefCell<Rc<Identity>>,
    pub(crate) epoch: Cell<Epoch>,
    pub(crate) peers: RefCell<BTreeMap<HostId, Peer>>,
    pub(crate) pending: RefCell<Pending>,
    pub(crate) counters: Counters,
    pub(crate) dropped_log: DroppedLog,
    pub(crate) peer_log: PeerLog,
    pub(crate) mesh: Arc<MessagingMesh>,
    pub(crate) cuts: Cuts,
    last_id: Cell<u64>,
    /// Bytes that wait to be sent on outgoing connections.
    pub(crate) queued_bytes: Rc<Cell<usize>>,
    /// Bytes of answers that wait to be sent.
    pub(crate) answer_bytes: Rc<Cell<usize>>,
    /// Received requests without an answer, and their payloads' bytes.
    pub(crate) serving: Cell<usize>,
    pub(crate) serving_bytes: Cell<usize>,
    pub(crate) draining: Cell<bool>,
    pub(crate) ended: Cell<bool>,
    /// Notified when draining begins, when it may be over, and when all ends.
    pub(crate) changed: Notify,
}

impl Env {
    pub(crate) fn new(
        rt: &Rt,
        identity: Identity,
        settings: Arc<Settings>,
        mesh: Arc<MessagingMesh>,
    ) -> Env {
        Env {
            rt: rt.clone(),
            settings,
            gate: rt.gate("messaging"),
            identity: RefCell::new(Rc::new(identity)),
            epoch: Cell::new(Epoch(0)),
            peers: RefCell::default(),
            pending: RefCell::new(Pending::new()),
            counters: Counters::new(rt.telemetry()),
            dropped_log: DroppedLog::default(),
            peer_log: PeerLog::default(),
            mesh,
            cuts: Cuts::default(),
            last_id: Cell::new(0),
            queued_bytes: Rc::default(),
            answer_bytes: Rc::default(),
            serving: Cell::new(0),
            serving_bytes: Cell::new(0),
            draining: Cell::new(false),
            ended: Cell::new(false),
            changed: Notify::new(),
        }
    }

    pub(crate) fn header(&self, kind: FrameKind, verb: Verb, stream: u64) -> FrameHeader {
        FrameHeader {
            kind,
            verb: verb.number(),
            stream,
            epoch: self.epoch.get(),
            deadline_micros: 0,
            trace: None,
            more: false,
        }
    }

    pub(crate) fn identity(&self) -> Rc<Identity> {
        self.identity.borrow().clone()
    }

    /// Counts a dropped message, also for the log.
    pub(crate) fn dropped(&self, verb: Verb, dropped: DroppedMessage) {
        let (DroppedMessage::Internal(waited) | DroppedMessage::CrossNode(waited)) = dropped;
        self.counters.dropped(verb, waited);
        self.dropped_log.note(verb, dropped);
    }

    pub(crate) fn next_id(&self) -> u64 {
        let id = self.last_id.get() + 1;
        self.last_id.set(id);
        id
    }

    /// Tells [`Messaging::stop`] to look again.
    pub(crate) fn maybe_quiet(&self) {
        if self.draining.get() && self.is_quiet() {
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.pending.borrow().len() == 0
            && self.serving.get() == 0
            && self.queued_bytes.get() == 0
            && self.answer_bytes.get() == 0
    }

    pub(crate) fn kinds_stats(&self) -> KindsStats {
        let mut kinds = self.counters.kinds();
        for waiting in self.pending.borrow().iter() {
            kinds.of(waiting.verb.number()).pending += 1;
        }
        kinds
    }
}
