//! [`Streaming`]: the object of a shard, its settings, its life.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cluster::ClusterSnapshot;
use messaging::Messaging;
use rt::sync::Notify;
use rt::{Gate, Group, Mesh, Rt};
use stdx::{ShardId, Uuid};
use store::Store;

use crate::error::StreamError;
use crate::fetch::{Order, ShardOutcome};
use crate::hold::Holds;
use crate::stats::{Counts, StreamStats};
use crate::throttle::Throttle;

/// Orders of the shard that fetches to all shards, and their outcomes.
pub struct StreamMesh(pub(crate) Mesh<Order, Result<ShardOutcome, StreamError>>);

/// The mesh of a node of so many shards; made before they start.
pub fn new_mesh(shards: u16) -> StreamMesh {
    // One table at a time, and seldom more than one operation.
    StreamMesh(Mesh::new(shards, 64))
}

/// Limits and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// Bytes per second that this node gives to peers, all shards together
    /// (`stream_throughput_outbound`); 0 = no limit. Default 24 MiB, as Cassandra's.
    pub outbound_bytes_per_second: u64,
    /// The same for peers in other datacenters, beside the limit for all
    /// (`inter_dc_stream_throughput_outbound`); 0 = no limit. Default 24 MiB, as Cassandra's.
    pub inter_dc_bytes_per_second: u64,
    /// Bytes after which a page ends. Default 1 MiB.
    pub page_bytes: usize,
    /// Longest wait for one page. Default 30 s.
    pub page_timeout: Duration,
    /// How often a page is asked for before the source is given up. Default 8.
    pub attempts: u32,
    /// Pause after the first failure; it doubles. Default 250 ms.
    pub retry_pause: Duration,
    /// Longest pause. Default 8 s.
    pub retry_pause_max: Duration,
    /// Pages and chunks that a shard makes at a time, for all peers; above it refuses. Default 32.
    pub serving_max: usize,
    /// Files that lie in the ranges go as they are (`stream_entire_sstables`).
    pub whole_files: bool,
    /// Bytes of Data from which on they do: a small one costs less as rows. Default 1 MiB.
    pub whole_bytes_min: u64,
    /// Bytes of a file that are asked for at a time. Default 1 MiB.
    pub chunk_bytes: usize,
    /// Chunks of a file that are asked for at the same time. Default 8.
    pub chunks_in_flight: usize,
    /// How long a source holds what nobody asks for any more. Default 5 min.
    pub hold_idle: Duration,
}

impl Default for StreamSettings {
    fn default() -> StreamSettings {
        StreamSettings {
            outbound_bytes_per_second: 24 << 20,
            inter_dc_bytes_per_second: 24 << 20,
            page_bytes: 1 << 20,
            page_timeout: Duration::from_secs(30),
            attempts: 8,
            retry_pause: Duration::from_millis(250),
            retry_pause_max: Duration::from_secs(8),
            serving_max: 32,
            whole_files: true,
            whole_bytes_min: 1 << 20,
            chunk_bytes: 1 << 20,
            chunks_in_flight: 8,
            hold_idle: Duration::from_secs(300),
        }
    }
}

/// What a shard's streaming works with.
pub struct StreamParts {
    /// The shard.
    pub rt: Rt,
    /// Its data; tokens belong to shards by its options' map.
    pub store: Store,
    /// The way to peers.
    pub messaging: Messaging,
    /// The way to the other shards.
    pub mesh: Arc<StreamMesh>,
    /// The newest snapshot that this node has applied.
    pub snapshot: Rc<dyn Fn() -> Arc<ClusterSnapshot>>,
    /// The same on all shards.
    pub settings: StreamSettings,
}

pub(crate) struct Inner {
    pub(crate) rt: Rt,
    pub(crate) store: Store,
    pub(crate) messaging: Messaging,
    pub(crate) mesh: Arc<StreamMesh>,
    pub(crate) snapshot: Rc<dyn Fn() -> Arc<ClusterSnapshot>>,
    pub(crate) settings: StreamSettings,
    pub(crate) gate: Gate,
    /// Of what all peers are given.
    pub(crate) throttle: RefCell<Throttle>,
    /// Of what peers in other datacenters are given.
    pub(crate) inter_dc: RefCell<Throttle>,
    /// Pages being made.
    pub(crate) serving: Cell<usize>,
    /// What is held for peers.
    pub(crate) holds: Holds,
    pub(crate) counts: Counts,
    pub(crate) stopping: Cell<bool>,
    /// Operations that this shard has begun.
    pub(crate) running: RefCell<BTreeSet<Uuid>>,
    /// Operations that are given up, until they are over.
    pub(crate) aborted: RefCell<BTreeSet<Uuid>>,
    stop: Notify,
    abort: Notify,
}

/// Streams of one shard. Clones are the same object.
#[derive(Clone)]
pub struct Streaming {
    pub(crate) inner: Rc<Inner>,
}

impl Streaming {
    /// Streaming of the shard of `parts.rt`; it serves the mesh from now on, and peers by
    /// [`Streaming::serve_peer`].
    pub fn new(parts: StreamParts) -> Streaming {
        let StreamParts { rt, store, messaging, mesh, snapshot, settings } = parts;
        let rate = share_of(settings.outbound_bytes_per_second, rt.shard_count());
        let inter_dc = share_of(settings.inter_dc_bytes_per_second, rt.shard_count());
        let inner = Rc::new(Inner {
            gate: rt.gate("streaming"),
            counts: Counts::new(&rt.telemetry()),
            throttle: RefCell::new(Throttle::new(rate)),
            inter_dc: RefCell::new(Throttle::new(inter_dc)),
            serving: Cell::new(0),
            holds: Holds::default(),
            stopping: Cell::new(false),
            running: RefCell::default(),
            aborted: RefCell::default(),
            stop: Notify::new(),
            abort: Notify::new(),
            rt: rt.clone(),
            store,
            messaging,
            mesh: mesh.clone(),
            snapshot,
            settings,
        });
        let streaming = Streaming { inner };
        // The port lives as long as the shard: it must not keep this alive.
        let weak = Rc::downgrade(&streaming.inner);
        mesh.0.serve(&rt, move |order, reply| {
            // Dropped, the reply says that this shard is gone.
            let Some(inner) = weak.upgrade() else { return };
            let streaming = Streaming { inner: inner.clone() };
            let task = async move { reply.send(streaming.obey(order).await) };
            let _ = inner.gate.spawn(&inner.rt, Group::Stream, "stream-fetch", task);
        });
        streaming
    }

    /// Changes the bytes per second that this node gives to peers, all shards together; 0 = no limit.
    /// To be called on every shard.
    pub fn set_throughput(&self, bytes_per_second: u64) {
        let rate = share_of(bytes_per_second, self.inner.rt.shard_count());
        self.inner.throttle.borrow_mut().set_rate(rate);
    }

    /// As [`Streaming::set_throughput`], of what goes to other datacenters.
    pub fn set_inter_dc_throughput(&self, bytes_per_second: u64) {
        let rate = share_of(bytes_per_second, self.inner.rt.shard_count());
        self.inner.inter_dc.borrow_mut().set_rate(rate);
    }

    /// What this shard streams now.
    pub fn stats(&self) -> StreamStats {
        let (receiving, sending) = self.inner.counts.stats(self.inner.rt.now());
        let bytes_per_second_max = self.inner.throttle.borrow().rate();
        let inter_dc_bytes_per_second_max = self.inner.inter_dc.borrow().rate();
        StreamStats { bytes_per_second_max, inter_dc_bytes_per_second_max, receiving, sending }
    }

    /// A name for an operation that [`Streaming::abort`] may end: a time UUID, as Cassandra's plans have.
    pub fn new_plan(&self) -> Uuid {
        let mut random = [0; 16];
        self.inner.rt.random_fill(&mut random);
        let random = u128::from_be_bytes(random);
        let low = types::timeuuid::clock_seq_and_node((random >> 64) as u16, random as u64);
        Uuid::from_bytes(types::timeuuid::from_micros(self.inner.rt.wall().0, low))
    }

    /// Has a fetch that this shard has begun end with `Aborted` as soon as every shard has heard of
    /// it; false: none of that name runs. Tables that are here stay.
    pub fn abort(&self, plan: Uuid) -> bool {
        let inner = &self.inner;
        if !inner.running.borrow().contains(&plan) {
            return false;
        }
        inner.give_up(plan);
        for shard in (0..inner.rt.shard_count()).filter(|n| *n != inner.rt.shard().0) {
            // Sent now; a shard that cannot take it ends with the table that it fetches.
            drop(inner.mesh.0.call(&inner.rt, ShardId(shard), Order::Abort(plan)));
        }
        true
    }

    /// Ends what runs and refuses the rest.
    pub async fn stop(&self) {
        self.inner.stopping.set(true);
        self.inner.stop.notify_waiters();
        self.inner.holds.clear();
        self.inner.gate.close().await;
    }
}

impl Inner {
    /// What this shard does for an operation ends.
    pub(crate) fn give_up(&self, plan: Uuid) {
        self.aborted.borrow_mut().insert(plan);
        self.abort.notify_waiters();
    }

    /// The outcome of `work` for an operation, unless that is given up or streaming stops first.
    pub(crate) async fn unless_aborted<T>(
        &self,
        plan: Uuid,
        work: impl Future<Output = T>,
    ) -> Result<T, StreamError> {
        let aborted = async {
            loop {
                let next = self.abort.notified();
                if self.aborted.borrow().contains(&plan) {
                    return;
                }
                next.await;
            }
        };
        let (mut work, mut aborted) = (pin!(self.unless_stopped(work)), pin!(aborted));
        poll_fn(|cx| {
            if aborted.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(StreamError::Aborted));
            }
            work.as_mut().poll(cx)
        })
        .await
    }

    /// The outcome of `work`, unless streaming stops first.
    pub(crate) async fn unless_stopped<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, StreamError> {
        let stop = self.stop.notified();
        if self.stopping.get() {
            return Err(StreamError::Stopping);
        }
        let (mut work, mut stop) = (pin!(work), pin!(stop));
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            stop.as_mut().poll(cx).map(|_| Err(StreamError::Stopping))
        })
        .await
    }
}

/// A shard's share of the node's rate; at least 1, because 0 is no limit.
fn share_of(rate: u64, shards: u16) -> u64 {
    if rate == 0 { 0 } else { (rate / u64::from(shards.max(1))).max(1) }
}
