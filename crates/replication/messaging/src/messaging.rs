//! [`Messaging`]: the object of a shard, its peers, its life.

use crate::client::{Client, Completions};
use crate::clocks::Clocks;
use crate::connect::{Route, RouteKey};
use crate::counters::{Counters, KindsStats, PeerStats};
use crate::cut::Cuts;
use crate::dropped_log::{DroppedLog, DroppedMessage};
use crate::error::{MessagingError, OpenError};
use crate::futures::{FutureState, Futures, RequestFuture};
use crate::inbound::{Handler, Inbound};
use crate::link::Link;
use crate::mesh::MessagingMesh;
use crate::pending::Pending;
use crate::settings::Settings;
use internode::{Hello, HelloAck, Identity, Refusal, Verb};
use rt::sync::Notify;
use rt::{Gate, Group, Rt};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::{Epoch, HostId, Instant, IoError, ShardId, Uuid};

/// Messaging of one shard. Clones are the same object.
#[derive(Clone)]
pub struct Messaging {
    pub(crate) inner: Rc<Inner>,
}

/// Where a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Address and storage port.
    pub address: SocketAddr,
    /// Its shards, as far as is known; corrected by what the peer says when a connection opens.
    pub shard_count: u16,
}

/// Whom a message goes to, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The peer.
    pub host: HostId,
    /// Its shard.
    pub shard: ShardId,
    /// What is asked.
    pub verb: Verb,
    /// When the sender gives up.
    pub deadline: Instant,
    /// Trace session that it belongs to.
    pub trace: Option<Uuid>,
}

/// A further opinion about who may connect: called on shard 0 with a HELLO that is otherwise
/// acceptable and the address it came from. The membership refuses here a host id that another live
/// node has.
pub type Admission = Rc<dyn Fn(&Hello, SocketAddr) -> Result<(), Refusal>>;

/// Whether connections to a peer are compressed.
pub type Compressed = Rc<dyn Fn(HostId) -> bool>;

/// How a connection to a peer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFailure {
    /// It was open and ended although this node did not close it.
    Lost,
    /// The peer's machine refused it: nothing listens there.
    Refused,
}

/// Told of connections to peers that failed.
pub type LinkFailed = Rc<dyn Fn(HostId, LinkFailure)>;

/// Told of answers whose sender knows a newer epoch than [`Messaging::set_epoch`] said.
pub type NewerEpoch = Rc<dyn Fn(HostId, Epoch)>;

pub(crate) struct Inner {
    pub(crate) rt: Rt,
    pub(crate) settings: Arc<Settings>,
    pub(crate) mesh: Arc<MessagingMesh>,
    pub(crate) gate: Gate,
    pub(crate) identity: RefCell<Rc<Identity>>,
    pub(crate) epoch: Cell<Epoch>,
    pub(crate) peers: RefCell<BTreeMap<HostId, Peer>>,
    pub(crate) routes: RefCell<BTreeMap<RouteKey, Route>>,
    pub(crate) links: RefCell<BTreeMap<u64, Rc<Link>>>,
    pub(crate) cuts: Cuts,
    pub(crate) inbounds: RefCell<BTreeMap<u64, Rc<Inbound>>>,
    pub(crate) pending: RefCell<Pending>,
    /// When the timer task will wake by itself.
    pub(crate) armed: Cell<Instant>,
    pub(crate) timer: Notify,
    pub(crate) clients: RefCell<Vec<Rc<dyn Completions>>>,
    pub(crate) futures: Rc<Futures>,
    pub(crate) handler: RefCell<Option<Rc<dyn Handler>>>,
    pub(crate) admission: RefCell<Option<Admission>>,
    pub(crate) newer: RefCell<Option<NewerEpoch>>,
    pub(crate) link_failed: RefCell<Option<LinkFailed>>,
    pub(crate) compressed: RefCell<Option<Compressed>>,
    pub(crate) counters: Counters,
    pub(crate) dropped_log: DroppedLog,
    pub(crate) clocks: Clocks,
    pub(crate) last_id: Cell<u64>,
    /// Bytes that wait to be sent on outgoing connections.
    pub(crate) queued_bytes: Rc<Cell<usize>>,
    /// Bytes of answers that wait to be sent.
    pub(crate) answer_bytes: Rc<Cell<usize>>,
    /// Received requests without an answer, and their payloads' bytes.
    pub(crate) serving: Cell<usize>,
    pub(crate) serving_bytes: Cell<usize>,
    pub(crate) handshakes: Cell<usize>,
    pub(crate) draining: Cell<bool>,
    pub(crate) ended: Cell<bool>,
    /// Told when draining begins, when it may be over, and when all ends.
    pub(crate) changed: Notify,
}

/// The client of [`Messaging::request`].
const FUTURES: usize = 0;

impl Messaging {
    /// Messaging of the shard of `rt`. Nothing is accepted before [`Messaging::listen`]. `settings`
    /// and `mesh` are the same on all shards of the node.
    pub fn new(
        rt: &Rt,
        identity: Identity,
        settings: Arc<Settings>,
        mesh: Arc<MessagingMesh>,
    ) -> Messaging {
        let futures = Rc::new(Futures::default());
        let first: Rc<dyn Completions> = futures.clone();
        let inner = Rc::new(Inner {
            rt: rt.clone(),
            settings,
            mesh: mesh.clone(),
            gate: rt.gate("messaging"),
            identity: RefCell::new(Rc::new(identity)),
            epoch: Cell::new(Epoch(0)),
            peers: RefCell::default(),
            routes: RefCell::default(),
            links: RefCell::default(),
            cuts: Cuts::default(),
            inbounds: RefCell::default(),
            pending: RefCell::new(Pending::new()),
            armed: Cell::new(Instant(u64::MAX)),
            timer: Notify::new(),
            clients: RefCell::new(vec![first]),
            futures,
            handler: RefCell::new(None),
            admission: RefCell::new(None),
            newer: RefCell::new(None),
            link_failed: RefCell::new(None),
            compressed: RefCell::new(None),
            counters: Counters::new(rt.telemetry()),
            dropped_log: DroppedLog::default(),
            clocks: Clocks::default(),
            last_id: Cell::new(0),
            queued_bytes: Rc::default(),
            answer_bytes: Rc::default(),
            serving: Cell::new(0),
            serving_bytes: Cell::new(0),
            handshakes: Cell::new(0),
            draining: Cell::new(false),
            ended: Cell::new(false),
            changed: Notify::new(),
        });
        let timer = inner.clone();
        let task = async move { timer.run_timer().await };
        // A closed gate is impossible here, an ending shard needs no timer.
        let _ = inner.gate.spawn(rt, Group::Statement, "messaging-timer", task);
        let logging = inner.clone();
        let task = async move { logging.run_dropped_log().await };
        let _ = inner.gate.spawn(rt, Group::Admin, "messaging-dropped-log", task);
        let adopting = inner.clone();
        mesh.calls.serve(rt, move |adopt, reply| {
            adopting.adopt_moved(*adopt);
            reply.send(());
        });
        let ending = inner.clone();
        rt.at_end(move || ending.let_go());
        Messaging { inner }
    }

    /// Answers requests of peers from now on with `handler`; before that they get "stopping", which
    /// says that nothing was done.
    pub fn serve(&self, handler: Rc<dyn Handler>) {
        *self.inner.handler.borrow_mut() = Some(handler);
    }

    /// Asks `admission` too about who connects.
    pub fn set_admission(&self, admission: Admission) {
        *self.inner.admission.borrow_mut() = Some(admission);
    }

    /// Listens for peers. To be called on shard 0 only, which hands connections to the others.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn listen(&self, address: SocketAddr) -> Result<SocketAddr, IoError> {
        self.inner.listen(address).await
    }

    /// A sender of requests whose completions go to `handler`.
    pub fn client(&self, handler: Rc<dyn Completions>) -> Client {
        let mut clients = self.inner.clients.borrow_mut();
        clients.push(handler);
        Client { messaging: self.clone(), index: clients.len() - 1 }
    }

    /// Sends a request now and gives the future of its answer. `write` appends the payload and must
    /// not send anything itself.
    pub fn request(&self, to: &Outgoing, write: impl FnOnce(&mut Vec<u8>)) -> RequestFuture {
        let (token, receiver) = self.inner.futures.enter();
        let state = match self.inner.send_request(FUTURES, token, to, write) {
            Ok(id) => FutureState::Sent { messaging: self.clone(), token, id, receiver },
            Err(error) => {
                self.inner.futures.leave(token);
                FutureState::Refused(Some(error))
            }
        };
        RequestFuture { state }
    }

    /// Sends a message that gets no answer. `Ok` means that it was queued, no more.
    ///
    /// # Errors
    /// Nothing was queued.
    pub fn send_one_way(
        &self,
        to: &Outgoing,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), MessagingError> {
        self.inner.send_one_way(to, write)
    }

    /// Asks who is at an address: the host id and cluster of a seed, say. Needs no known peer.
    ///
    /// # Errors
    /// Nobody answered, or this node is refused there.
    pub async fn discover(&self, address: SocketAddr) -> Result<HelloAck, OpenError> {
        self.inner.discover(address).await
    }

    /// Makes a peer known, or tells its new address; then connections to the old one are dropped.
    /// The own host id is ignored.
    pub fn set_peer(&self, host: HostId, peer: Peer) {
        if host == self.inner.identity().host_id {
            return;
        }
        let before = self.inner.peers.borrow_mut().insert(host, peer);
        if before.is_some_and(|b| b.address != peer.address) {
            self.inner.drop_routes(host, "the peer's address changed");
        }
    }

    /// Forgets a peer and drops the connections to it and from it.
    pub fn remove_peer(&self, host: HostId) {
        self.inner.peers.borrow_mut().remove(&host);
        self.inner.drop_routes(host, "the peer was removed");
        self.inner.clocks.forget(host);
        let inbounds: Vec<_> = self.inner.inbounds.borrow().values().cloned().collect();
        for inbound in inbounds {
            if inbound.from() == host {
                inbound.close("the peer was removed");
            }
        }
    }

    /// What is known of a peer.
    pub fn peer(&self, host: HostId) -> Option<Peer> {
        self.inner.peers.borrow().get(&host).copied()
    }

    /// The peer is heard of again: the next request tries to connect at once.
    pub fn peer_is_up(&self, host: HostId) {
        self.inner.reset_backoff(host);
    }

    /// Replaces what this node says about itself. Connections are opened anew when cluster or
    /// membership changed.
    pub fn set_identity(&self, identity: Identity) {
        let before = self.inner.identity.replace(Rc::new(identity));
        let after = self.inner.identity();
        if before.joining != after.joining || before.cluster_id != after.cluster_id {
            let hosts: Vec<HostId> = self.inner.peers.borrow().keys().copied().collect();
            for host in hosts {
                self.inner.drop_routes(host, "this node's membership changed");
            }
        }
    }

    /// Compresses connections to those peers only for which `to` says so, if
    /// [`Settings::compression`] allows any; asked when a connection is made.
    pub fn compress_only(&self, to: Compressed) {
        *self.inner.compressed.borrow_mut() = Some(to);
    }

    /// Has `hook` told of each answer of a peer that knows a newer epoch; requests carry theirs to
    /// the handler.
    pub fn on_newer_epoch(&self, hook: NewerEpoch) {
        *self.inner.newer.borrow_mut() = Some(hook);
    }

    /// Has `hook` told of each connection to a peer that is lost or refused.
    pub fn on_link_failed(&self, hook: LinkFailed) {
        *self.inner.link_failed.borrow_mut() = Some(hook);
    }

    /// The epoch that every message carries from now on.
    pub fn set_epoch(&self, epoch: Epoch) {
        self.inner.epoch.set(epoch);
    }

    /// Requests that wait for their answers.
    pub fn pending(&self) -> usize {
        self.inner.pending.borrow().len()
    }

    /// Requests of peers that are not answered yet.
    pub fn serving(&self) -> usize {
        self.inner.serving.get()
    }

    /// A peer's request was not carried out, because it came too late or this node has too much to do:
    /// the log tells it. `waited` is as much as is known.
    pub fn log_dropped(&self, verb: Verb, waited: Duration) {
        self.inner.dropped_log.note(verb, DroppedMessage::CrossNode(waited));
    }

    /// As [`Messaging::log_dropped`], and counts it.
    pub fn note_dropped(&self, verb: Verb, waited: Duration) {
        self.inner.dropped(verb, DroppedMessage::CrossNode(waited));
    }

    /// Messages of this shard by kind.
    pub fn kinds_stats(&self) -> KindsStats {
        self.inner.kinds_stats()
    }

    /// Every peer that there was traffic with, by host id.
    pub fn peer_stats(&self) -> Vec<PeerStats> {
        self.inner.peer_stats()
    }

    /// Takes no more requests, of peers or of this node; waits until those that run are done, at
    /// most `grace`; then closes everything and waits for its tasks. What is still waiting then
    /// completes as lost.
    pub async fn stop(&self, grace: Duration) {
        let inner = &self.inner;
        inner.draining.set(true);
        inner.changed.notify_waiters();
        let deadline = inner.rt.now() + grace;
        let drained = async {
            loop {
                let changed = inner.changed.notified();
                if inner.is_quiet() {
                    break;
                }
                changed.await;
            }
        };
        if inner.rt.timeout(deadline, drained).await.is_err() {
            let (pending, serving) = (self.pending(), self.serving());
            tracing::info!(pending, serving, "messaging stopped with requests under way");
        }
        inner.ended.set(true);
        let links: Vec<_> = inner.links.borrow().values().cloned().collect();
        for link in links {
            link.close("this node is stopping");
        }
        let inbounds: Vec<_> = inner.inbounds.borrow().values().cloned().collect();
        for inbound in inbounds {
            inbound.close("this node is stopping");
        }
        inner.changed.notify_waiters();
        inner.timer.notify_one();
        inner.gate.close().await;
        inner.let_go();
    }
}

impl Inner {
    /// Forgets who holds what holds this.
    fn let_go(&self) {
        drop(self.handler.take());
        drop(self.admission.take());
        drop(self.newer.take());
        drop(self.link_failed.take());
        drop(self.compressed.take());
        self.clocks.let_go();
        drop(self.clients.take());
    }

    pub(crate) fn identity(&self) -> Rc<Identity> {
        self.identity.borrow().clone()
    }

    /// Counts a message that is dropped, and has the log tell it.
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

    fn is_quiet(&self) -> bool {
        self.pending.borrow().len() == 0
            && self.serving.get() == 0
            && self.queued_bytes.get() == 0
            && self.answer_bytes.get() == 0
    }

    fn kinds_stats(&self) -> KindsStats {
        let mut kinds = self.counters.kinds();
        for waiting in self.pending.borrow().iter() {
            kinds.of(waiting.verb.number()).pending += 1;
        }
        kinds
    }

    fn peer_stats(&self) -> Vec<PeerStats> {
        let links = self.links.borrow();
        let inbounds = self.inbounds.borrow();
        let stats = |(host, counters): (HostId, Rc<crate::counters::PeerCounters>)| {
            let of_host = || links.values().filter(move |l| l.host() == host);
            let in_of_host = || inbounds.values().filter(move |i| i.from() == host);
            PeerStats {
                host,
                address: self.peers.borrow().get(&host).map(|p| p.address),
                links: of_host().filter(|l| l.is_open()).count(),
                inbounds: in_of_host().count(),
                pending: of_host().map(|l| l.in_flight()).sum(),
                queued_bytes: of_host().map(|l| l.outbox.len()).sum::<usize>()
                    + in_of_host().map(|i| i.outbox.len()).sum::<usize>(),
                sent: counters.sent.get(),
                received: counters.received.get(),
                dropped: counters.dropped(),
                sent_bytes: counters.sent_bytes.get(),
                received_bytes: counters.received_bytes.get(),
                rtt: counters.last_rtt.get(),
            }
        };
        self.counters.all_peers().into_iter().map(stats).collect()
    }
}
