//! Logged batches: all of a batch's mutations are applied in the end, or none.
//!
//! Order:
//!
//! 1. The entry is written to `system.batches`, as durable as an acknowledged write.
//! 2. The mutations are applied on their shards, each as durable.
//! 3. The client is answered.
//! 4. The entry is deleted; no request waits for that.
//!
//! A crash before step 1 completes leaves nothing behind. A later crash leaves the entry. The next
//! start replays its mutations and deletes it. Replaying a mutation that was applied already changes
//! nothing, because timestamps are fixed.
//!
//! While the node runs, each shard remembers the ids of batches that their coordinator abandoned
//! ([`LoggedBatch`] dropped). A background task replays them, so that the log needs no scans. Source:
//! Cassandra's `BatchlogManager`.
//!
//! In a cluster the entry is stored on two other nodes ([`crate::Writer`]). They remember it until
//! the coordinator removes it. An entry that is not removed in time is replayed on all replicas, with
//! hints for those that are down.
//!
//! INV-batch-1: no mutation of a logged batch is applied before its entry could be acknowledged.
//! INV-batch-2: an entry is deleted only when each of its mutations could be acknowledged, or is
//! obsolete.

mod batch_handover;
pub(crate) mod batch_log;
pub(crate) mod batch_wire;
mod shard_log;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cluster::{ClusterSnapshot, Consistency, PlacementKey};
use data::MutationRef;
use replica::{Env, Origin, ReplicaMutation};
use request::WriteType;
use rt::Group;
use rt::sync::{Notify, Semaphore};
use stdx::{Instant, TimestampMicros, Uuid, WallMicros};
use store::StoreError;
use telemetry::Counter;

pub(crate) use batch_handover::keeps_batches;
pub use shard_log::{BatchLog, LoggedBatch};

use crate::local::Local;
use crate::replicated::write::{Purpose, Writer};
use crate::shared::{ReplicatedError, ReplicatedWrite, Shared};
use batch_log::{BatchTable, Entries, Entry, Fate, patience};
use shard_log::{TakeStored, Unfinished};

/// Interval of the replays of abandoned batches, as in Cassandra.
const INTERVAL: Duration = Duration::from_secs(10);
/// Entries of one page of a scan.
const PAGE_ENTRIES: usize = 128;
/// Batches that are replayed at a time, so that one with a replica that does not answer holds up few
/// others.
const REPLAYS_AT_ONCE: usize = 16;
/// Bytes of mutations per second that the replays of a running node may write, divided by the number
/// of nodes: Cassandra's default of `batchlog_replay_throttle`.
const REPLAY_BYTES_PER_SECOND: u64 = 1 << 20;
/// A shard without room for a replayed mutation is asked again after this time, so often.
const ROOM_PAUSE: Duration = Duration::from_millis(100);
const ROOM_ATTEMPTS: usize = 20;

/// Replays of batches that were not carried through.
#[derive(Clone)]
pub struct Batches {
    inner: Rc<Inner>,
}

struct Inner {
    shared: Rc<Shared>,
    log: BatchLog,
    writer: Writer,
    /// Bytes per second of the whole cluster; 0: no bound.
    throttle: Cell<u64>,
    stop: Notify,
    stopping: Cell<bool>,
    replayed_total: Counter,
}

/// Context of a replay.
#[derive(Clone, Copy)]
struct Replaying<'a> {
    snapshot: &'a ClusterSnapshot,
    table: BatchTable,
    /// Bytes per second; `None`: no bound.
    rate: Option<u64>,
}

impl Batches {
    pub(crate) fn new(shared: Rc<Shared>, log: BatchLog, writer: Writer) -> Batches {
        let replayed_total = shared.env().rt.telemetry().counter(
            "batchlog_replays_total",
            "batches replayed from the batch log",
            &[],
        );
        let (throttle, stopping) = (Cell::new(REPLAY_BYTES_PER_SECOND), Cell::new(false));
        let stop = Notify::new();
        let inner = Inner { shared, log, writer, throttle, stop, stopping, replayed_total };
        Batches { inner: Rc::new(inner) }
    }

    fn env(&self) -> &Env {
        self.inner.shared.env()
    }

    fn local(&self) -> &Local {
        &self.inner.shared.local
    }

    /// The log.
    pub fn log(&self) -> &BatchLog {
        &self.inner.log
    }

    /// Ends the background task after a last round.
    pub(crate) fn stop(&self) {
        self.inner.stopping.set(true);
        self.inner.stop.notify_waiters();
    }
}

/// Statistics of a batch replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchReplay {
    /// Batches that are done and out of the log.
    pub batches: u64,
    /// The subset of `batches` that was dropped for being older than its tables'
    /// `gc_grace_seconds`.
    pub past_grace: u64,
    /// Mutations applied.
    pub mutations: u64,
    /// Mutations of tables that were dropped or truncated since.
    pub obsolete: u64,
    /// Lost mutations: they cannot be decoded, or are larger than the commit log accepts now.
    pub lost: u64,
    /// Batches that stay in the log for a later replay.
    pub left: u64,
    /// Why, for the last of them; or why the log could not be read.
    pub error: Option<StoreError>,
}

impl BatchReplay {
    fn add(&mut self, other: BatchReplay) {
        let BatchReplay { batches, past_grace, mutations, obsolete, lost, left, error } = other;
        self.batches += batches;
        self.past_grace += past_grace;
        self.mutations += mutations;
        self.obsolete += obsolete;
        self.lost += lost;
        self.left += left;
        self.error = error.or(self.error.take());
    }

    /// Nothing was found.
    pub fn is_empty(&self) -> bool {
        *self == BatchReplay::default()
    }
}

impl Batches {
    /// Replays all batches in the log, of all shards. Must be called on one shard at start, before
    /// clients are served. Batches that cannot be applied now are retried by the background task of
    /// this shard.
    pub async fn replay_batches(&self, snapshot: &ClusterSnapshot) -> BatchReplay {
        if !keeps_batches(snapshot) {
            return BatchReplay::default();
        }
        self.scan_batches(snapshot, |_| true, None).await
    }

    /// Replays batches of all shards that were abandoned longer ago than twice the write timeout.
    /// Starts at once, at the pace of the background task. Must be called on one shard. Batches
    /// that cannot be applied now are left to the background task.
    pub async fn replay_abandoned(&self, snapshot: &ClusterSnapshot) -> BatchReplay {
        if !keeps_batches(snapshot) {
            return BatchReplay::default();
        }
        let (now, write_timeout) = (self.env().rt.wall(), self.write_timeout());
        let throttle = self.batch_replay_throttle();
        let rate = (throttle > 0).then(|| (throttle / snapshot.members.len().max(1) as u64).max(1));
        self.scan_batches(snapshot, |e| e.is_abandoned(now, write_timeout), rate).await
    }

    async fn scan_batches(
        &self,
        snapshot: &ClusterSnapshot,
        wanted: impl Fn(&Entry) -> bool,
        throttle: Option<u64>,
    ) -> BatchReplay {
        let mut report = BatchReplay::default();
        let Some(table) = BatchTable::of(&snapshot.schema) else { return report };
        let terms = Replaying { snapshot, table, rate: throttle };
        let mut behind: Option<Vec<u8>> = None;
        let log = &self.inner.log;
        log.scan_begins();
        loop {
            let mut page = Entries::new(table, PAGE_ENTRIES);
            let command = table.scan(behind.as_deref(), self.env().rt.wall().seconds());
            if let Err(error) = self.local().read(&command, PAGE_ENTRIES, &mut page).await {
                report.error = Some(error);
                break;
            }
            let Some(last) = page.found.last() else { break };
            behind = Some(last.id.clone());
            let (due, others): (Vec<Entry>, Vec<Entry>) = page.found.into_iter().partition(&wanted);
            for entry in others {
                // Its coordinator may still be at work: look it up once more by its id.
                if !log.is_stored(&entry.id) {
                    let since = self.env().rt.now();
                    log.remember(Unfinished { id: entry.id, since });
                }
            }
            let replayed = self.replay_entries(&due, terms).await;
            replayed.into_iter().for_each(|replay| report.add(replay));
        }
        if report.left > 0 || report.error.is_some() {
            log.need_scan();
        }
        // The deletions of the entries; a failure of the log shows at the next write.
        let _ = self.local().commit().await;
        report
    }

    /// Replays entries, several at a time. Returns the statistics of each, in their order.
    async fn replay_entries(&self, entries: &[Entry], terms: Replaying<'_>) -> Vec<BatchReplay> {
        let Replaying { snapshot, table, rate } = terms;
        let turns = Semaphore::new(REPLAYS_AT_ONCE);
        // One after another, so that all of them together keep to the throttle.
        let pacing = Semaphore::new(1);
        let replay = async |entry: &Entry| {
            let _turn = turns.acquire(1).await;
            let pace = pacing.acquire(1).await;
            self.pace(entry, rate).await;
            drop(pace);
            let mut report = BatchReplay::default();
            self.replay_entry(entry, snapshot, table, &mut report).await;
            report
        };
        let mut running: Vec<_> =
            entries.iter().map(|entry| (Some(Box::pin(replay(entry))), None)).collect();
        poll_fn(|cx| {
            let mut waits = false;
            for (future, report) in &mut running {
                let Some(replay) = future else { continue };
                match replay.as_mut().poll(cx) {
                    Poll::Ready(done) => {
                        *report = Some(done);
                        *future = None;
                    }
                    Poll::Pending => waits = true,
                }
            }
            if waits { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        running.into_iter().filter_map(|(_, report)| report).collect()
    }

    /// Bytes of all mutations per second that replays of all nodes together may write; 0: no bound.
    /// Each shard has its share.
    pub fn set_batch_replay_throttle(&self, bytes_per_second: u64) {
        self.inner.throttle.set(bytes_per_second);
    }

    /// Returns the value last passed to [`Batches::set_batch_replay_throttle`].
    pub fn batch_replay_throttle(&self) -> u64 {
        self.inner.throttle.get()
    }

    /// Sets the timeout of writes without a client: replayed batches, hints and mutations that are
    /// forwarded to the current replicas of their range. A batch counts as abandoned after twice
    /// that time.
    pub fn set_write_timeout(&self, timeout: Duration) {
        self.inner.shared.set_write_timeout(timeout);
    }

    /// See [`Batches::set_write_timeout`].
    pub fn write_timeout(&self) -> Duration {
        self.inner.shared.write_timeout()
    }

    /// Keeps the replays of a running node from taking all of it.
    async fn pace(&self, entry: &Entry, bytes_per_second: Option<u64>) {
        if let Some(rate) = bytes_per_second
            && !self.inner.stopping.get()
        {
            let micros = (entry.bytes() as u64).saturating_mul(1_000_000) / rate.max(1);
            let until = self.env().rt.now() + Duration::from_micros(micros);
            // Elapsed, or the node stops: then nothing is waited for.
            let _ = self.env().rt.timeout(until, self.inner.stop.notified()).await;
        }
    }

    async fn replay_entry(
        &self,
        entry: &Entry,
        snapshot: &ClusterSnapshot,
        table: BatchTable,
        report: &mut BatchReplay,
    ) {
        if entry.is_past_grace(snapshot, self.env().rt.wall()) {
            report.past_grace += 1;
        } else {
            let mut replicated = Vec::new();
            for (mutation, fate) in entry.mutations.iter().zip(entry.fates(snapshot)) {
                let Fate::Apply { token, durable } = fate else {
                    match fate {
                        Fate::Unreadable => report.lost += 1,
                        _ => report.obsolete += 1,
                    }
                    continue;
                };
                let bytes = mutation.clone();
                let mutation = ReplicaMutation { token, bytes, durable };
                if is_of_several_nodes(snapshot, &mutation.bytes) {
                    replicated.push(mutation);
                    continue;
                }
                match self.apply_patiently(&mutation).await {
                    Ok(()) => report.mutations += 1,
                    Err(StoreError::UnknownTable(_)) => report.obsolete += 1,
                    Err(StoreError::MutationTooLarge { .. } | StoreError::Unwritable { .. }) => {
                        report.lost += 1;
                    }
                    Err(error) => {
                        report.left += 1;
                        report.error = Some(error);
                        return;
                    }
                }
            }
            if !self.replay_on_replicas(replicated, entry.written_at, report).await {
                report.left += 1;
                return;
            }
        }
        report.batches += 1;
        self.inner.replayed_total.inc();
        self.inner.log.remove_entry(table, &entry.id, entry.written_at);
    }

    /// Writes mutations to their replicas: true when each replica has its own, or a hint for it is
    /// durable, and at least one has it. Before this node is attached to its cluster nothing is
    /// written.
    async fn replay_on_replicas(
        &self,
        mutations: Vec<ReplicaMutation>,
        written_at: TimestampMicros,
        report: &mut BatchReplay,
    ) -> bool {
        if mutations.is_empty() {
            return true;
        }
        let Some(cluster) = self.inner.shared.cluster() else { return false };
        let parts = &cluster.parts;
        let hints_before = cluster.counters.hints.get();
        let count = mutations.len() as u64;
        let order = ReplicatedWrite {
            snapshot: (parts.snapshot)(),
            consistency: Consistency::One,
            write_type: WriteType::UnloggedBatch,
            mutations,
            logged: false,
            batch_id: Uuid::nil(),
            deadline: self.env().rt.now() + self.write_timeout(),
        };
        match self
            .inner
            .writer
            .write_for(order, Purpose::BatchReplay(WallMicros(written_at.0)))
            .await
        {
            Ok(()) => {
                report.mutations += count;
                // A hint that is in memory only is no reason to forget the batch.
                cluster.counters.hints.get() == hints_before || parts.hints.flush().await
            }
            Err(ReplicatedError::Store(StoreError::UnknownTable(_))) => {
                // Dropped just now: the next round sees it.
                false
            }
            Err(error) => {
                report.error = Some(match error {
                    ReplicatedError::Store(error) => error,
                    other => StoreError::Invalid(other.to_string()),
                });
                false
            }
        }
    }

    /// Applies a mutation, waiting for room if need be.
    async fn apply_patiently(&self, mutation: &ReplicaMutation) -> Result<(), StoreError> {
        let mut attempts = 0;
        loop {
            let result = self.local().apply(mutation.clone(), Origin::BatchReplay).await;
            let no_room =
                matches!(result, Err(StoreError::Overloaded { .. } | StoreError::QueueFull));
            attempts += 1;
            if !no_room || attempts >= ROOM_ATTEMPTS || self.inner.stopping.get() {
                return result;
            }
            self.env().rt.sleep(ROOM_PAUSE).await;
        }
    }

    /// Starts the task that replays batches of this shard's coordinators that were abandoned longer
    /// ago than twice the write timeout. `snapshot` returns the current metadata, `report` is
    /// called with the statistics of each replay.
    pub fn start_batch_replay(
        &self,
        write_timeout: Duration,
        snapshot: impl Fn() -> Arc<ClusterSnapshot> + 'static,
        report: impl Fn(&BatchReplay) + 'static,
    ) {
        let this = self.clone();
        self.set_write_timeout(write_timeout);
        let task = async move {
            let batches = &this.inner;
            while !batches.stopping.get() {
                let deadline = this.env().rt.now() + INTERVAL;
                // Elapsed: the next round.
                let _ = this.env().rt.timeout(deadline, batches.stop.notified()).await;
                let replay = this.replay_left_behind(this.write_timeout(), &snapshot()).await;
                if !replay.is_empty() {
                    report(&replay);
                }
            }
        };
        // A closed gate: the node is stopping already.
        let _ = self.env().gate.spawn(&self.env().rt, Group::Admin, "batch-replay", task);
    }

    /// Runs one round. When the node stops it does not wait: no coordinator is at work any more.
    async fn replay_left_behind(
        &self,
        write_timeout: Duration,
        snapshot: &ClusterSnapshot,
    ) -> BatchReplay {
        let (rt, batches, log) = (&self.env().rt, &self.inner, &self.inner.log);
        if !keeps_batches(snapshot) {
            return BatchReplay::default();
        }
        let stopping = batches.stopping.get();
        // Deletions of entries so far; a failure of the log shows at the next write.
        let _ = self.local().commit().await;
        let throttle = batches.throttle.get();
        let parts =
            u64::from(rt.shard_count().max(1)).saturating_mul(snapshot.members.len() as u64);
        let rate = (!stopping && throttle > 0).then(|| (throttle / parts.max(1)).max(1));
        if log.is_scan_due() {
            let now = rt.wall();
            let wanted = |e: &Entry| stopping || e.is_abandoned(now, write_timeout);
            return self.scan_batches(snapshot, wanted, rate).await;
        }
        let mut report = BatchReplay::default();
        let Some(table) = BatchTable::of(&snapshot.schema) else { return report };
        let now = rt.now();
        let stored = if stopping { TakeStored::No } else { TakeStored::Due };
        let due = |since: Instant| stopping || since + patience(write_timeout) <= now;
        let terms = Replaying { snapshot, table, rate };
        let mut entries = Vec::new();
        for batch in log.take_due(stored, due) {
            let mut found = Entries::new(table, 1);
            let command = table.lookup(&batch.id, rt.wall().seconds());
            if let Err(error) = self.local().read(&command, 1, &mut found).await {
                report.left += 1;
                report.error = Some(error);
                log.remember(batch);
                continue;
            }
            // No entry: it never got into the log.
            entries.extend(found.found);
            if entries.len() >= PAGE_ENTRIES {
                self.replay_found(&mut entries, terms, &mut report).await;
            }
        }
        self.replay_found(&mut entries, terms, &mut report).await;
        report
    }

    /// Replays entries and removes them from the list; those that stay in the log are remembered.
    async fn replay_found(
        &self,
        entries: &mut Vec<Entry>,
        terms: Replaying<'_>,
        report: &mut BatchReplay,
    ) {
        let now = self.env().rt.now();
        let replayed = self.replay_entries(entries, terms).await;
        for (entry, replay) in entries.drain(..).zip(replayed) {
            if replay.left > 0 {
                self.inner.log.remember(Unfinished { id: entry.id, since: now });
            }
            report.add(replay);
        }
    }
}

/// Returns true if a mutation is replicated on several nodes, so that this node must not apply it
/// alone.
fn is_of_several_nodes(snapshot: &ClusterSnapshot, mutation: &[u8]) -> bool {
    let Some(opened) = MutationRef::open(mutation) else { return false };
    snapshot.members.len() > 1
        && PlacementKey::of_table(snapshot, opened.table).is_some_and(|key| !key.is_local())
}
