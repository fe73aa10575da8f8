//! [`Messaging`]: the object of a shard, its peers, its life.

use crate::completions::Completions;
use crate::counters::{KindsStats, PeerStats};
use crate::dropped_log::{DroppedMessage, INTERVAL};
use crate::env::Env;
use crate::error::{MessagingError, OpenError};
use crate::hooks::Hooks;
use crate::inbound::{Handler, Inbounds, StoragePort};
use crate::io::first_of;
use crate::mesh::MessagingMesh;
use crate::outbound::{Client, Outbound, RequestFuture};
use crate::peer::{Outgoing, Peer};
use crate::security::Encryption;
use crate::settings::Settings;
use internode::{HelloAck, Identity, Verb};
use rt::{Group, Rt};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::{Epoch, HostId, IoError};

/// Messaging of one shard. Clones are the same object.
#[derive(Clone)]
pub struct Messaging {
    pub(crate) env: Rc<Env>,
    hooks: Rc<Hooks>,
    outbound: Rc<Outbound>,
    inbounds: Rc<Inbounds>,
}

impl Messaging {
    /// Messaging of the shard of `rt`. Nothing is accepted before [`Messaging::listen`]. `settings`
    /// and `mesh` are the same on all shards of the node.
    pub fn new(
        rt: &Rt,
        identity: Identity,
        settings: Arc<Settings>,
        mesh: Arc<MessagingMesh>,
    ) -> Messaging {
        let env = Rc::new(Env::new(rt, identity, settings, mesh.clone()));
        let hooks = Rc::new(Hooks::default());
        let outbound = Rc::new(Outbound::new(env.clone(), hooks.clone()));
        let inbounds = Rc::new(Inbounds::new(env.clone(), hooks.clone(), outbound.clone(), mesh));
        let messaging = Messaging { env, hooks, outbound, inbounds };
        messaging.begin();
        messaging
    }

    /// Starts the tasks of this shard.
    fn begin(&self) {
        let env = &self.env;
        let timer = self.outbound.clone();
        let task = async move { timer.run_timer().await };
        // A closed gate is impossible here, an ending shard needs no timer.
        let _ = env.gate.spawn(&env.rt, Group::Statement, "messaging-timer", task);
        let task = log_dropped_messages(env.clone());
        let _ = env.gate.spawn(&env.rt, Group::Admin, "messaging-dropped-log", task);
        self.inbounds.take_moved();
        let ending = self.clone();
        env.rt.at_end(move || ending.release());
    }

    /// Returns the hooks: decisions and notifications of other parts of the node.
    pub fn hooks(&self) -> &Hooks {
        &self.hooks
    }

    /// Answers requests of peers with `handler` from now on. Earlier requests are answered with
    /// "stopping", which means that nothing was done.
    pub fn serve(&self, handler: Rc<dyn Handler>) {
        self.inbounds.serve(handler);
    }

    /// Listens for peers. To be called on shard 0 only, which hands connections to the others.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn listen(&self, address: SocketAddr) -> Result<SocketAddr, IoError> {
        self.inbounds.listen(address, StoragePort::Shared).await
    }

    /// Like [`Messaging::listen`], for a port on which only TLS is spoken (`ssl_storage_port`).
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn listen_encrypted(&self, address: SocketAddr) -> Result<SocketAddr, IoError> {
        self.inbounds.listen(address, StoragePort::Encrypted).await
    }

    /// Sets keys and rules for connections that are made and accepted from now on, on all shards of
    /// the node. Existing connections stay.
    pub fn set_encryption(&self, encryption: Encryption) {
        self.env.mesh.encryption.publish(Arc::new(encryption));
    }

    /// Creates a sender of requests whose completions are passed to `handler`.
    pub fn client(&self, handler: Rc<dyn Completions>) -> Client {
        let index = self.outbound.clients.add(handler);
        Client { outbound: self.outbound.clone(), index }
    }

    /// Sends a request now and gives the future of its answer. `write` appends the payload and must
    /// not send anything itself.
    pub fn request(&self, to: &Outgoing, write: impl FnOnce(&mut Vec<u8>)) -> RequestFuture {
        self.outbound.request(to, write)
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
        self.outbound.send_one_way(to, write)
    }

    /// Asks an unknown peer for its identity: the host id and cluster of a seed, for example.
    ///
    /// # Errors
    /// No answer, or this node is refused there.
    pub async fn discover(&self, address: SocketAddr) -> Result<HelloAck, OpenError> {
        self.outbound.discover(address).await
    }

    /// Adds a peer, or changes its address; then connections to the old one are dropped. This
    /// node's own host id is ignored.
    pub fn set_peer(&self, host: HostId, peer: Peer) {
        if host == self.env.identity().host_id {
            return;
        }
        let before = self.env.peers.borrow_mut().insert(host, peer);
        if before.is_some_and(|b| b.address != peer.address) {
            self.outbound.drop_routes(host, "the peer's address changed");
        }
    }

    /// Forgets a peer and drops the connections to it and from it.
    pub fn remove_peer(&self, host: HostId) {
        self.env.peers.borrow_mut().remove(&host);
        self.outbound.drop_routes(host, "the peer was removed");
        self.outbound.clocks.forget(host);
        for inbound in self.inbounds.all() {
            if inbound.from() == host {
                inbound.close("the peer was removed");
            }
        }
    }

    /// Returns the known peer with this host id.
    pub fn peer(&self, host: HostId) -> Option<Peer> {
        self.env.peers.borrow().get(&host).copied()
    }

    /// The peer is heard of again: the next request tries to connect at once.
    pub fn peer_is_up(&self, host: HostId) {
        self.outbound.reset_backoff(host);
    }

    /// Replaces the identity that this node announces. Connections are reopened when cluster or
    /// membership changed.
    pub fn set_identity(&self, identity: Identity) {
        let before = self.env.identity.replace(Rc::new(identity));
        let after = self.env.identity();
        if before.joining != after.joining || before.cluster_id != after.cluster_id {
            let hosts: Vec<HostId> = self.env.peers.borrow().keys().copied().collect();
            for host in hosts {
                self.outbound.drop_routes(host, "this node's membership changed");
            }
        }
    }

    /// Sets the epoch that every message carries from now on.
    pub fn set_epoch(&self, epoch: Epoch) {
        self.env.epoch.set(epoch);
    }

    /// Requests that wait for their answers.
    pub fn pending(&self) -> usize {
        self.env.pending.borrow().len()
    }

    /// Requests of peers that are not answered yet.
    pub fn serving(&self) -> usize {
        self.env.serving.get()
    }

    /// Logs a peer's request that was not executed, because it came too late or this node has too
    /// much to do. `waited` is the known part of its waiting time.
    pub fn log_dropped(&self, verb: Verb, waited: Duration) {
        self.env.dropped_log.note(verb, DroppedMessage::CrossNode(waited));
    }

    /// Like [`Messaging::log_dropped`], and counts it.
    pub fn note_dropped(&self, verb: Verb, waited: Duration) {
        self.env.dropped(verb, DroppedMessage::CrossNode(waited));
    }

    /// Messages of this shard by kind.
    pub fn kinds_stats(&self) -> KindsStats {
        self.env.kinds_stats()
    }

    /// Every peer that there was traffic with, by host id.
    pub fn peer_stats(&self) -> Vec<PeerStats> {
        let (links, inbounds) = (self.outbound.links(), self.inbounds.all());
        let stats = |(host, counters): (HostId, Rc<crate::counters::PeerCounters>)| {
            let of_host = || links.iter().filter(move |l| l.host() == host);
            let in_of_host = || inbounds.iter().filter(move |i| i.from() == host);
            PeerStats {
                host,
                address: self.env.peers.borrow().get(&host).map(|p| p.address),
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
        self.env.counters.all_peers().into_iter().map(stats).collect()
    }

    /// Takes no more requests, of peers or of this node; waits until those that run are done, at
    /// most `grace`; then closes everything and waits for its tasks. What is still waiting then
    /// completes as lost.
    pub async fn stop(&self, grace: Duration) {
        let env = &self.env;
        env.draining.set(true);
        env.changed.notify_waiters();
        let deadline = env.rt.now() + grace;
        let drained = async {
            loop {
                let changed = env.changed.notified();
                if env.is_quiet() {
                    break;
                }
                changed.await;
            }
        };
        if env.rt.timeout(deadline, drained).await.is_err() {
            let (pending, serving) = (self.pending(), self.serving());
            tracing::info!(pending, serving, "messaging stopped with requests under way");
        }
        env.ended.set(true);
        for link in self.outbound.links() {
            link.close("this node is stopping");
        }
        for inbound in self.inbounds.all() {
            inbound.close("this node is stopping");
        }
        env.changed.notify_waiters();
        self.outbound.wake_timer();
        env.gate.close().await;
        self.release();
    }

    /// Returns the recently measured offsets of peers' clocks from this node's, by host id.
    pub fn clocks(&self) -> Vec<(HostId, i64)> {
        self.outbound.clocks.fresh(self.env.rt.now())
    }

    /// Cuts the links to these addresses and heals all others. For tests.
    pub fn cut_links(&self, addresses: BTreeSet<IpAddr>) {
        self.outbound.cut(addresses);
    }

    /// Releases what other parts gave: it holds what holds messaging.
    fn release(&self) {
        self.inbounds.release();
        self.hooks.release();
        self.outbound.clients.release();
    }
}

/// Logs what was dropped, every few seconds, until messaging ends.
async fn log_dropped_messages(env: Rc<Env>) {
    loop {
        let (changed, stopped) = (env.dropped_log.changed.notified(), env.changed.notified());
        if env.ended.get() {
            return;
        }
        // Nothing was dropped: no timer runs.
        first_of(changed, stopped).await;
        if env.ended.get() {
            return;
        }
        let next = env.rt.now() + INTERVAL;
        let ended = async {
            loop {
                let stopped = env.changed.notified();
                if env.ended.get() {
                    return;
                }
                stopped.await;
            }
        };
        // Either way the dropped messages are logged.
        let _ = env.rt.timeout(next, ended).await;
        for line in env.dropped_log.take_lines() {
            tracing::info!("{line}");
        }
    }
}
