//! [`Repair`]: the object of a shard, its settings, its commands, its life.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cluster::ClusterSnapshot;
use coordinator::Coordinator;
use messaging::Messaging;
use rt::sync::Notify;
use rt::{Gate, Group, Rt};
use stdx::{HostId, Instant, Uuid};
use telemetry::Counter;

use crate::error::RepairError;
use crate::job::{Job, RepairState, RepairStatus};
use crate::scope::{self, RepairOptions};

/// Ended repairs that are remembered.
const ENDED_MAX: usize = 50;

/// Limits and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairSettings {
    /// Bytes of this node that are compared with one question. Default 2 MiB.
    pub stretch_bytes: usize,
    /// Parts into which a stretch that differs is cut. Default 16.
    pub parts: usize,
    /// Bytes of a stretch that is merged instead of being cut. Default 16 KiB.
    pub merged_bytes: usize,
    /// Bytes after which pages that are merged end. Default 256 KiB.
    pub page_bytes: usize,
    /// Bytes per second of this node that its repairs read to compare, all together; 0 = no limit.
    /// Default 64 MiB, as Cassandra's validation has by `compaction_throughput`.
    pub bytes_per_second: u64,
    /// Longest wait for one answer. Default 30 s.
    pub answer_timeout: Duration,
    /// How often a question is asked before the repair fails. Default 6.
    pub attempts: u32,
    /// Pause after the first failure; it doubles. Default 250 ms.
    pub retry_pause: Duration,
    /// Mutations of one repair and table that are under way. Default 128.
    pub mutations_in_flight: usize,
    /// Repairs at a time. Default 4.
    pub running_max: usize,
    /// Questions of peers that a shard answers at a time; above it refuses. Default 8.
    pub serving_max: usize,
}

impl Default for RepairSettings {
    fn default() -> RepairSettings {
        RepairSettings {
            stretch_bytes: 2 << 20,
            parts: 16,
            merged_bytes: 16 << 10,
            page_bytes: 256 << 10,
            bytes_per_second: 64 << 20,
            answer_timeout: Duration::from_secs(30),
            attempts: 6,
            retry_pause: Duration::from_millis(250),
            mutations_in_flight: 128,
            running_max: 4,
            serving_max: 8,
        }
    }
}

/// What a shard's repair works with.
pub struct RepairParts {
    /// The shard.
    pub rt: Rt,
    /// The node's data; part of a cluster.
    pub coordinator: Coordinator,
    /// The way to peers.
    pub messaging: Messaging,
    /// The newest snapshot that this node has applied.
    pub snapshot: Rc<dyn Fn() -> Arc<ClusterSnapshot>>,
    /// What the failure detector says.
    pub is_alive: Rc<dyn Fn(HostId) -> bool>,
    /// Limits and times.
    pub settings: RepairSettings,
}

pub(crate) struct Counts {
    pub(crate) bytes_read: Counter,
    pub(crate) stretches: Counter,
    pub(crate) differing: Counter,
    pub(crate) mutations: Counter,
    pub(crate) served: Counter,
}

pub(crate) struct Inner {
    pub(crate) rt: Rt,
    pub(crate) coordinator: Coordinator,
    pub(crate) messaging: Messaging,
    pub(crate) snapshot: Rc<dyn Fn() -> Arc<ClusterSnapshot>>,
    pub(crate) is_alive: Rc<dyn Fn(HostId) -> bool>,
    pub(crate) settings: RepairSettings,
    pub(crate) counts: Counts,
    pub(crate) gate: Gate,
    pub(crate) serving: Cell<usize>,
    pub(crate) stopping: Cell<bool>,
    pub(crate) stop: Notify,
    /// When everything read so far has been read at the rate allowed.
    free_at: Cell<Instant>,
    jobs: RefCell<VecDeque<Rc<Job>>>,
    next_id: Cell<u32>,
}

/// Repair on one shard. Clones are the same object. Commands are given to one shard of a node.
#[derive(Clone)]
pub struct Repair {
    pub(crate) inner: Rc<Inner>,
}

impl Repair {
    /// Repair of the shard of `parts.rt`; it serves peers by [`Repair::serve_peer`].
    pub fn new(parts: RepairParts) -> Repair {
        let RepairParts { rt, coordinator, messaging, snapshot, is_alive, settings } = parts;
        let telemetry = rt.telemetry();
        let counter = |name, help| telemetry.counter(name, help, &[]);
        let counts = Counts {
            bytes_read: counter("repair_read_bytes_total", "bytes of this node that were compared"),
            stretches: counter("repair_stretches_total", "stretches compared between replicas"),
            differing: counter("repair_mismatches_total", "stretches of which replicas differed"),
            mutations: counter("repair_mutations_total", "mutations that replicas lacked"),
            served: counter("repair_served_total", "stretches read for repairs of other nodes"),
        };
        let gate = rt.gate("repair");
        let inner = Inner {
            rt,
            coordinator,
            messaging,
            snapshot,
            is_alive,
            settings,
            counts,
            gate,
            serving: Cell::new(0),
            stopping: Cell::new(false),
            stop: Notify::new(),
            free_at: Cell::new(Instant::ZERO),
            jobs: RefCell::default(),
            next_id: Cell::new(0),
        };
        Repair { inner: Rc::new(inner) }
    }

    /// Begins a repair; its number, from 1. 0: there is nothing to repair, because no other node
    /// has replicas of the keyspace.
    ///
    /// # Errors
    /// Options that cannot be, names that are not there, too many repairs at a time.
    pub fn start(&self, options: RepairOptions) -> Result<u32, String> {
        let inner = &self.inner;
        let snapshot = (inner.snapshot)();
        scope::check(&snapshot, &options)?;
        if !scope::is_replicated(&snapshot, &options.keyspace) {
            return Ok(0);
        }
        let running = inner.jobs.borrow().iter().filter(|j| j.is_running()).count();
        if running >= inner.settings.running_max {
            return Err(format!(
                "{running} repairs are running on this node: wait for one of them"
            ));
        }
        let id = inner.next_id.get() + 1;
        let job =
            Rc::new(Job::new(id, inner.random_uuid(), options, (inner.rt.now(), inner.rt.wall())));
        let (this, of_task) = (self.clone(), job.clone());
        let task = async move { this.run(&of_task).await };
        if inner.gate.spawn(&inner.rt, Group::Stream, "repair", task).is_err() {
            return Err(RepairError::Stopping.to_string());
        }
        inner.next_id.set(id);
        let mut jobs = inner.jobs.borrow_mut();
        jobs.push_back(job);
        let ended = jobs.iter().filter(|j| !j.is_running()).count();
        if ended > ENDED_MAX
            && let Some(oldest) = jobs.iter().position(|j| !j.is_running())
        {
            drop(jobs.remove(oldest));
        }
        Ok(id)
    }

    /// A repair of this run of the node, with its lines from that number on. `None`: there was
    /// none, or it ended long ago.
    pub fn status(&self, id: u32, from: u64) -> Option<RepairStatus> {
        self.inner.jobs.borrow().iter().find(|j| j.id == id).map(|j| j.status(from))
    }

    /// All of them, without lines.
    pub fn list(&self) -> Vec<RepairStatus> {
        self.inner.jobs.borrow().iter().map(|j| j.status(u64::MAX)).collect()
    }

    /// Ends a running repair, or all of them; how many there were.
    pub fn abort(&self, id: Option<u32>) -> usize {
        let jobs = self.inner.jobs.borrow();
        let meant = jobs.iter().filter(|j| j.is_running() && id.is_none_or(|id| j.id == id));
        meant
            .map(|job| {
                job.aborted.set(true);
                job.abort.notify_waiters();
            })
            .count()
    }

    /// Ends what runs and refuses the rest.
    pub async fn stop(&self) {
        self.inner.stopping.set(true);
        self.inner.stop.notify_waiters();
        self.inner.gate.close().await;
    }
}

impl Inner {
    fn random_uuid(&self) -> Uuid {
        let mut bytes = [0; 16];
        self.rt.random_fill(&mut bytes);
        // A random one by RFC 9562, section 5.4.
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Uuid::from_bytes(bytes)
    }

    /// The outcome of `work`, unless the repair is cancelled or the node stops first.
    pub(crate) async fn unless_ended<T>(
        &self,
        job: &Job,
        work: impl Future<Output = T>,
    ) -> Result<T, RepairError> {
        let (stop, abort) = (self.stop.notified(), job.abort.notified());
        if self.stopping.get() {
            return Err(RepairError::Stopping);
        }
        if job.aborted.get() {
            return Err(RepairError::Aborted);
        }
        let (mut work, mut stop, mut abort) = (pin!(work), pin!(stop), pin!(abort));
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            if stop.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(RepairError::Stopping));
            }
            abort.as_mut().poll(cx).map(|()| Err(RepairError::Aborted))
        })
        .await
    }

    /// Waits until so many bytes more may have been read.
    pub(crate) async fn pace(&self, job: &Job, bytes: usize) -> Result<(), RepairError> {
        let now = self.rt.now();
        let start = self.free_at.get().max(now);
        let rate = self.settings.bytes_per_second;
        let micros = (bytes as u64).saturating_mul(1_000_000).checked_div(rate).unwrap_or(0);
        self.free_at.set(start + Duration::from_micros(micros));
        if start > now {
            self.unless_ended(job, self.rt.sleep_until(start)).await?;
        }
        Ok(())
    }

    pub(crate) fn finish(&self, job: &Job, state: RepairState) {
        job.state.set(state);
    }
}
