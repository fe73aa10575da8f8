//! [`Repair`]: the object of a shard, its settings, its commands, its life.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cluster::ClusterSnapshot;
use coordinator::Coordinator;
use messaging::Messaging;
use rt::sync::{Notify, Semaphore};
use rt::{Gate, Group, Rt};
use stdx::{HostId, Instant, IoErrorKind, ShardId, TableId, Token, Uuid};
use telemetry::{Counter, Gauge};

use crate::auto::{AutoSettings, AutoState};
use crate::auto_damaged::DamagedState;
use crate::details::RepairDetails;
use crate::error::RepairError;
use crate::history::{self, RepairHistory};
use crate::job::{Job, RepairStatus};
use crate::mesh::RepairMesh;
use crate::participation::Participations;
use crate::records::RepairRecords;
use crate::scope::{self, RepairOptions};
use crate::sessions::Sessions;

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
    /// How long a replica waits to hear of an incremental session before it gives it up. Default
    /// 10 min.
    pub session_idle: Duration,
    /// How long a replica may take to set its files apart for one. Default 6 h.
    pub open_timeout: Duration,
    /// Repairs that begin by themselves.
    pub auto: AutoSettings,
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
            session_idle: Duration::from_secs(600),
            open_timeout: Duration::from_secs(6 * 3600),
            auto: AutoSettings::default(),
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
    /// The way to the other shards.
    pub mesh: Arc<RepairMesh>,
    /// Where the file of the history lies.
    pub work_dir: String,
    /// Who writes records of repairs, if anybody does.
    pub records: Option<Rc<dyn RepairRecords>>,
    /// Limits and times.
    pub settings: RepairSettings,
}

pub(crate) struct Counts {
    pub(crate) bytes_read: Counter,
    pub(crate) stretches: Counter,
    pub(crate) differing: Counter,
    pub(crate) mutations: Counter,
    pub(crate) served: Counter,
    /// Pages that are read and hashed for repairs.
    pub(crate) validation: telemetry::Stage,
    pub(crate) auto_done: Counter,
    pub(crate) auto_failed: Counter,
    pub(crate) auto_oldest: Gauge,
    pub(crate) auto_pace: Gauge,
    pub(crate) auto_needed: Gauge,
    pub(crate) auto_behind: Gauge,
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
    /// Bytes per second that all repairs may read here; 0 = no limit.
    pub(crate) rate: Cell<u64>,
    /// When everything read so far has been read at the rate allowed.
    free_at: Cell<Instant>,
    pub(crate) mesh: Arc<RepairMesh>,
    pub(crate) work_dir: String,
    pub(crate) records: Option<Rc<dyn RepairRecords>>,
    pub(crate) history: RefCell<RepairHistory>,
    /// One write of the file at a time.
    pub(crate) history_slot: Semaphore,
    /// Sessions of other nodes.
    pub(crate) sessions: Sessions,
    /// The parts that this node takes in repairs; shard 0.
    pub(crate) participations: Participations,
    /// Sessions that this node drives.
    pub(crate) own_sessions: RefCell<BTreeSet<Uuid>>,
    pub(crate) auto: AutoState,
    pub(crate) damaged: DamagedState,
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
        let RepairParts {
            rt,
            coordinator,
            messaging,
            snapshot,
            is_alive,
            mesh,
            work_dir,
            records,
            settings,
        } = parts;
        let telemetry = rt.telemetry();
        let counter = |name, help| telemetry.counter(name, help, &[]);
        let counts = Counts {
            bytes_read: counter("repair_read_bytes_total", "bytes of this node that were compared"),
            stretches: counter("repair_stretches_total", "stretches compared between replicas"),
            differing: counter("repair_mismatches_total", "stretches of which replicas differed"),
            mutations: counter("repair_mutations_total", "mutations that replicas lacked"),
            validation: telemetry.stage("ValidationExecutor"),
            served: counter("repair_served_total", "stretches read for repairs of other nodes"),
            auto_done: counter(
                "auto_repair_done_total",
                "repairs begun by the schedule, ended well",
            ),
            auto_failed: counter(
                "auto_repair_failed_total",
                "repairs begun by the schedule, failed",
            ),
            auto_pace: telemetry.gauge(
                "auto_repair_pace_bytes_per_second",
                "how fast the schedule repairs",
                &[],
            ),
            auto_needed: telemetry.gauge(
                "auto_repair_needed_bytes_per_second",
                "how fast it would have to, whatever its bounds",
                &[],
            ),
            auto_behind: telemetry.gauge(
                "auto_repair_behind",
                "1: a window is over, or more is needed than auto_repair_throughput allows",
                &[],
            ),
            auto_oldest: telemetry.gauge(
                "auto_repair_oldest_seconds",
                "since the least recently repaired primary range of this node was repaired",
                &[],
            ),
        };
        let gate = rt.gate("repair");
        let damaged = DamagedState::new(&rt);
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
            rate: Cell::new(settings.bytes_per_second),
            free_at: Cell::new(Instant::ZERO),
            mesh,
            work_dir,
            records,
            history: RefCell::default(),
            history_slot: Semaphore::new(1),
            sessions: Sessions::default(),
            participations: Participations::default(),
            own_sessions: RefCell::default(),
            auto: AutoState::new(settings.auto.enabled),
            damaged,
            jobs: RefCell::default(),
            next_id: Cell::new(0),
        };
        let repair = Repair { inner: Rc::new(inner) };
        repair.serve_mesh();
        repair.inner.apply_policies();
        repair
    }

    /// Changes the bytes per second that repairs of this node read to compare, all together, those that
    /// run now too; 0 = no limit.
    pub fn set_throughput(&self, bytes_per_second: u64) {
        self.inner.rate.set(bytes_per_second);
    }

    /// Reads what is known of earlier repairs, gives up what the last run left open, and begins to
    /// repair by itself. To be called once on every shard.
    ///
    /// # Errors
    /// `Io`. A file that cannot be understood counts as none: it only keeps tombstones.
    pub async fn begin(&self) -> Result<(), stdx::IoError> {
        let inner = &self.inner;
        let path = format!("{}/{}", inner.work_dir, history::FILE);
        match inner.rt.fs().read(&path, history::BYTES_MAX).await {
            Ok(bytes) => match RepairHistory::decode(&bytes) {
                Some(history) => *inner.history.borrow_mut() = history,
                None => tracing::warn!(path, "what was repaired is not known: the file is damaged"),
            },
            Err(error) if error.kind == IoErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        inner.apply_policies();
        if inner.rt.shard() == ShardId(0) {
            let watching = self.clone();
            let watch = async move { watching.watch_sessions().await };
            let _ = inner.gate.spawn(&inner.rt, Group::Stream, "repair-sessions", watch);
            let repairing = self.clone();
            let auto = async move { repairing.repair_by_itself().await };
            let _ = inner.gate.spawn(&inner.rt, Group::Stream, "auto-repair", auto);
            let repairing = self.clone();
            let damaged = async move { repairing.repair_damaged().await };
            let _ = inner.gate.spawn(&inner.rt, Group::Stream, "repair-damaged", damaged);
        }
        Ok(())
    }

    /// The metadata changed: other tables, ranges or options hold. To be called on every shard.
    pub fn metadata_changed(&self) {
        self.inner.apply_policies();
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
        let running = inner.running();
        if running >= inner.settings.running_max {
            return Err(format!(
                "{running} repairs are running on this node: wait for one of them"
            ));
        }
        let id = inner.next_id.get() + 1;
        let trace = options.trace;
        let mut job = Job::new(id, inner.session_id(), options, (inner.rt.now(), inner.rt.wall()));
        job.trace = inner.records.as_ref().filter(|_| trace).map(|records| records.time_uuid());
        let job = Rc::new(job);
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

    /// All of them, without lines, with what they are made of.
    pub fn list_details(&self) -> Vec<(RepairStatus, RepairDetails)> {
        self.inner.jobs.borrow().iter().map(|j| (j.status(u64::MAX), j.details())).collect()
    }

    /// When parts of ranges of a table were repaired, seconds since 1970, as far as this node took part;
    /// 0: never. Shard 0.
    pub fn repaired_parts(
        &self,
        table: TableId,
        ranges: &[(Token, Token)],
    ) -> Vec<(Token, Token, i64)> {
        let history = self.inner.history.borrow();
        ranges.iter().flat_map(|(start, end)| history.parts_of(table, *start, *end)).collect()
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
    /// Repairs under way.
    pub(crate) fn running(&self) -> usize {
        self.jobs.borrow().iter().filter(|j| j.is_running()).count()
    }

    /// Whether a repair of this node compares a part of a table and changes what it finds.
    pub(crate) fn repairs_now(&self, keyspace: &str, table: &str, range: (Token, Token)) -> bool {
        let jobs = self.jobs.borrow();
        jobs.iter().any(|j| j.is_running() && j.options.may_change(keyspace, table, range))
    }

    /// Tells the shard's store which tombstones may go.
    pub(crate) fn apply_policies(&self) {
        let snapshot = (self.snapshot)();
        history::apply(&snapshot, &self.history.borrow(), self.coordinator.store());
    }

    /// A time UUID when there is who makes them, as Cassandra names sessions; else a random one.
    pub(crate) fn session_id(&self) -> Uuid {
        match &self.records {
            Some(records) => records.time_uuid(),
            None => self.random_uuid(),
        }
    }

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
        let mut start = now;
        // One that is slow by its own wish does not hold others up.
        let rates = [(self.rate.get(), &self.free_at), (self.rate_of(job), &job.free_at)];
        for (rate, free_at) in rates {
            let begin = free_at.get().max(now);
            let micros = (bytes as u64).saturating_mul(1_000_000).checked_div(rate).unwrap_or(0);
            free_at.set(begin + Duration::from_micros(micros));
            start = start.max(begin);
        }
        if start > now {
            self.unless_ended(job, self.rt.sleep_until(start)).await?;
        }
        Ok(())
    }

    /// Bytes per second that a repair may read here; 0 = no limit.
    pub(crate) fn rate_of(&self, job: &Job) -> u64 {
        match (job.options.bytes_per_second, self.rate.get()) {
            (0, rate) | (rate, 0) => rate,
            (own, all) => own.min(all),
        }
    }
}
