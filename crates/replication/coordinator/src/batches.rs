//! Logged batches: all of a batch's mutations are applied in the end, or none.
//!
//! Order: 1. the entry is written to `system.batches` and as durable as a write that is
//! acknowledged; 2. the mutations are applied on their shards, each as durable; 3. the client is
//! answered; 4. the entry is deleted, which nobody waits for. A crash before 1 is done leaves
//! nothing. Later ones leave the entry: the next start applies the mutations once more, which
//! changes nothing where they are (their timestamps are fixed), and deletes it.
//!
//! While the node runs, what an unsuccessful coordinator leaves behind ([`LoggedBatch`] dropped) is
//! remembered by id and replayed by a background task, so that the log needs no scans. Source:
//! Cassandra's `BatchlogManager`.
//!
//! In a cluster the entry is on two other nodes ([`Coordinator::write_replicated`]). They remember it
//! until the coordinator takes it out, and replay what is not taken out in time on all replicas, with
//! hints for those that are away.
//!
//! INV-batch-1: no mutation of a logged batch is applied before its entry could be acknowledged.
//! INV-batch-2: an entry is deleted only when each of its mutations could be acknowledged, or is of
//! no use any more.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cluster::{ClusterSnapshot, Consistency, PlacementKey};
use data::MutationRef;
use request::WriteType;
use rt::Group;
use rt::sync::{Notify, Semaphore};
use schema::Schema;
use stdx::{Instant, TableId, TimestampMicros, Uuid, WallMicros};
use store::StoreError;

use crate::batch_handover::keeps_batches;
use crate::batch_log::{BatchTable, Entries, Entry, Fate, patience};
use crate::cluster_parts::{ReplicatedError, ReplicatedWrite};
use crate::replica::{Origin, ReplicaMutation};
use crate::writing::Purpose;
use crate::{Coordinator, ShardRequest};

/// Between two looks at what coordinators left behind, as in Cassandra.
const INTERVAL: Duration = Duration::from_secs(10);
/// Entries of one page of a scan.
const PAGE_ENTRIES: usize = 128;
/// Batches that are replayed at a time, so that one with a replica that does not answer holds up few
/// others.
const REPLAYS_AT_ONCE: usize = 16;
/// Bytes of mutations per second that the replays of a running node may write, divided by the number
/// of nodes: Cassandra's default of `batchlog_replay_throttle`.
const REPLAY_BYTES_PER_SECOND: u64 = 1 << 20;
/// Ids that are tried for one whose entry lies on this shard.
const LOCAL_ID_ATTEMPTS: usize = 8;
/// Left-over batches that are remembered by id; above it the whole log is scanned.
const UNFINISHED_MAX: usize = 16_384;
/// A shard without room for a replayed mutation is asked again after this time, so often.
const ROOM_PAUSE: Duration = Duration::from_millis(100);
const ROOM_ATTEMPTS: usize = 20;

/// What this shard knows of batches that were not carried through.
pub(crate) struct Batches {
    unfinished: RefCell<Vec<Unfinished>>,
    /// Stored for a coordinator of the cluster that has not removed them.
    stored: RefCell<BTreeMap<[u8; 16], Instant>>,
    /// There may be entries that are not in `unfinished`.
    scan_due: Cell<bool>,
    /// Bytes per second of the whole cluster; 0: no bound.
    throttle: Cell<u64>,
    /// Of writes without a client.
    write_timeout: Cell<Duration>,
    stop: Notify,
    stopping: Cell<bool>,
    logged_total: telemetry::Counter,
    replayed_total: telemetry::Counter,
}

impl Batches {
    pub(crate) fn new(telemetry: &telemetry::Shard) -> Batches {
        Batches {
            unfinished: RefCell::default(),
            stored: RefCell::default(),
            scan_due: Cell::new(false),
            throttle: Cell::new(REPLAY_BYTES_PER_SECOND),
            write_timeout: Cell::new(Duration::from_secs(2)),
            stop: Notify::new(),
            stopping: Cell::new(false),
            logged_total: telemetry.counter(
                "batchlog_writes_total",
                "logged batches written to the batch log",
                &[],
            ),
            replayed_total: telemetry.counter(
                "batchlog_replays_total",
                "batches replayed from the batch log",
                &[],
            ),
        }
    }

    /// Ends the background task after a last round.
    pub(crate) fn stop(&self) {
        self.stopping.set(true);
        self.stop.notify_waiters();
    }

    fn remember(&self, batch: Unfinished) {
        let mut unfinished = self.unfinished.borrow_mut();
        if unfinished.len() < UNFINISHED_MAX {
            unfinished.push(batch);
        } else {
            unfinished.clear();
            self.scan_due.set(true);
        }
    }

    /// A coordinator of the cluster had this batch stored; without its removal it is replayed.
    pub(crate) fn note_stored(&self, id: [u8; 16], since: Instant) {
        let mut stored = self.stored.borrow_mut();
        if stored.len() < UNFINISHED_MAX {
            stored.insert(id, since);
        } else {
            self.scan_due.set(true);
        }
    }

    /// A batch is written to the log of a node.
    pub(crate) fn note_logged(&self) {
        self.logged_total.inc();
    }

    /// Whether a batch is remembered by its id already.
    fn is_stored(&self, id: &[u8]) -> bool {
        let id = <[u8; 16]>::try_from(id);
        id.is_ok_and(|id| self.stored.borrow().contains_key(&id))
    }

    /// Takes what was left behind long enough ago. At the end of the node what was stored for others
    /// stays in the log: their coordinators may be at work, and the next start finds it.
    fn take_due(&self, due: impl Fn(Instant) -> bool) -> Vec<Unfinished> {
        let mut taken: Vec<Unfinished> =
            self.unfinished.borrow_mut().extract_if(.., |batch| due(batch.since)).collect();
        let is_stopping = self.stopping.get();
        self.stored.borrow_mut().retain(|id, since| {
            let is_due = !is_stopping && due(*since);
            if is_due {
                taken.push(Unfinished { id: id.to_vec(), since: *since });
            }
            !is_due
        });
        taken
    }
}

/// A batch whose coordinator gave up.
struct Unfinished {
    id: Vec<u8>,
    since: Instant,
}

/// A batch that is in the log. Dropped, it is left to the replay.
#[must_use = "a batch that is not finished is replayed"]
pub struct LoggedBatch {
    coordinator: Coordinator,
    table: BatchTable,
    id: [u8; 16],
    written_at: TimestampMicros,
    is_settled: bool,
}

impl LoggedBatch {
    /// All mutations of the batch may be acknowledged: takes the entry out of the log, without
    /// waiting for it.
    pub fn finish(mut self) {
        self.is_settled = true;
        self.coordinator.remove_entry(self.table, &self.id, self.written_at);
    }
}

impl Drop for LoggedBatch {
    fn drop(&mut self) {
        if !self.is_settled {
            let inner = &self.coordinator.inner;
            inner.batches.remember(Unfinished { id: self.id.to_vec(), since: inner.rt.now() });
        }
    }
}

/// What a replay of batches came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchReplay {
    /// Batches that are done and out of the log.
    pub batches: u64,
    /// Of them, those dropped because they are older than their tables' `gc_grace_seconds`.
    pub past_grace: u64,
    /// Mutations applied.
    pub mutations: u64,
    /// Mutations of tables that were dropped or truncated since.
    pub obsolete: u64,
    /// Mutations that cannot be read or are larger than the commit log takes now: lost.
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

impl Coordinator {
    /// Writes the encoded mutations of a batch to the log and waits until that may be acknowledged.
    /// `next_id` makes ascending time UUIDs.
    ///
    /// # Errors
    /// As [`Coordinator::apply`]. After `Overloaded`, `QueueFull` and `MutationTooLarge` nothing was
    /// written; after others the batch may be replayed.
    pub async fn log_batch(
        &self,
        schema: &Schema,
        mutations: &[&[u8]],
        next_id: &mut dyn FnMut() -> [u8; 16],
    ) -> Result<LoggedBatch, StoreError> {
        let Some(table) = BatchTable::of(schema) else {
            return Err(StoreError::Invalid("there is no table system.batches".to_owned()));
        };
        let id = self.local_id(table.id(), next_id);
        let written_at = TimestampMicros(self.inner.rt.wall().0);
        let entry = table.entry(&id, written_at, mutations.iter().copied(), next_id);
        let mut batch =
            LoggedBatch { coordinator: self.clone(), table, id, written_at, is_settled: false };
        let written = self
            .apply(ReplicaMutation::durable(codec::token_of(&id), entry), Origin::BatchLog)
            .await;
        self.inner.batches.logged_total.inc();
        match written {
            Ok(()) => Ok(batch),
            Err(error) => {
                batch.is_settled = matches!(
                    error,
                    StoreError::Overloaded { .. }
                        | StoreError::QueueFull
                        | StoreError::MutationTooLarge { .. }
                        | StoreError::Unwritable { .. }
                );
                Err(error)
            }
        }
    }

    /// An id whose entry lies on this shard, if one is found soon.
    fn local_id(&self, table: TableId, next_id: &mut dyn FnMut() -> [u8; 16]) -> [u8; 16] {
        let mut id = next_id();
        for _ in 0..LOCAL_ID_ATTEMPTS {
            if self.is_local(table, codec::token_of(&id)) {
                break;
            }
            id = next_id();
        }
        id
    }

    /// Deletes an entry that was stored for a coordinator of the cluster.
    pub(crate) fn remove_stored(
        &self,
        table: BatchTable,
        id: &[u8; 16],
        written_at: TimestampMicros,
    ) {
        self.inner.batches.stored.borrow_mut().remove(id);
        self.remove_entry(table, id, written_at);
    }

    /// Deletes an entry. Nobody waits: the deletion goes to the kernel with the next commit of its
    /// shard, and a crash before costs one replay.
    pub(crate) fn remove_entry(&self, table: BatchTable, id: &[u8], written_at: TimestampMicros) {
        let at = TimestampMicros(self.inner.rt.wall().0.max(written_at.0));
        let deletion = table.deletion(id, at);
        let deletion = ReplicaMutation::durable(codec::token_of(id), deletion);
        if self.owns(&deletion) {
            // An error (the node stops, the log failed) leaves the entry to the next start.
            let _ = self.inner.replica.admit_and_apply(&deletion, Origin::BatchDone);
        } else {
            let owner = deletion.owner(self.shard_map());
            let request = ShardRequest::Apply(deletion, Origin::BatchDone);
            drop(self.inner.mesh.call(&self.inner.rt, owner, request));
        }
    }

    /// Replays all batches that are in the log, of all shards. To be called on one shard at start,
    /// before clients are served. What cannot be applied now is tried again by the background task
    /// of this shard.
    pub async fn replay_batches(&self, snapshot: &ClusterSnapshot) -> BatchReplay {
        if !keeps_batches(snapshot) {
            return BatchReplay::default();
        }
        self.scan_batches(snapshot, |_| true, None).await
    }

    /// Replays what coordinators of all shards left behind longer ago than twice the write timeout,
    /// at the pace of the background task but at once. To be called on one shard; what cannot be
    /// applied now stays with the background task.
    pub async fn replay_abandoned(&self, snapshot: &ClusterSnapshot) -> BatchReplay {
        if !keeps_batches(snapshot) {
            return BatchReplay::default();
        }
        let (now, write_timeout) = (self.inner.rt.wall(), self.write_timeout());
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
        let mut behind: Option<Vec<u8>> = None;
        let batches = &self.inner.batches;
        batches.scan_due.set(false);
        loop {
            let mut page = Entries::new(table, PAGE_ENTRIES);
            let command = table.scan(behind.as_deref(), self.inner.rt.wall().seconds());
            if let Err(error) = self.read(&command, PAGE_ENTRIES, &mut page).await {
                report.error = Some(error);
                break;
            }
            let Some(last) = page.found.last() else { break };
            behind = Some(last.id.clone());
            let (due, others): (Vec<Entry>, Vec<Entry>) = page.found.into_iter().partition(&wanted);
            for entry in others {
                // Somebody is at work on it: it is looked up once more by its id.
                if !batches.is_stored(&entry.id) {
                    let since = self.inner.rt.now();
                    batches.remember(Unfinished { id: entry.id, since });
                }
            }
            let replayed = self.replay_entries(&due, snapshot, table, throttle).await;
            replayed.into_iter().for_each(|replay| report.add(replay));
        }
        if report.left > 0 || report.error.is_some() {
            batches.scan_due.set(true);
        }
        // The deletions of the entries; a failure of the log shows at the next write.
        let _ = self.commit().await;
        report
    }

    /// Replays entries, several at a time. What each came to, in their order.
    async fn replay_entries(
        &self,
        entries: &[Entry],
        snapshot: &ClusterSnapshot,
        table: BatchTable,
        throttle: Option<u64>,
    ) -> Vec<BatchReplay> {
        let turns = Semaphore::new(REPLAYS_AT_ONCE);
        // One after another, so that all of them together keep to the throttle.
        let pacing = Semaphore::new(1);
        let replay = async |entry: &Entry| {
            let _turn = turns.acquire(1).await;
            let pace = pacing.acquire(1).await;
            self.pace(entry, throttle).await;
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
        self.inner.batches.throttle.set(bytes_per_second);
    }

    /// What [`Coordinator::set_batch_replay_throttle`] was told last.
    pub fn batch_replay_throttle(&self) -> u64 {
        self.inner.batches.throttle.get()
    }

    /// How long writes without a client may take: replayed batches, hints and mutations that are
    /// passed on to who has their range now. A batch is left behind after twice that time.
    pub fn set_write_timeout(&self, timeout: Duration) {
        self.inner.batches.write_timeout.set(timeout);
    }

    /// See [`Coordinator::set_write_timeout`].
    pub fn write_timeout(&self) -> Duration {
        self.inner.batches.write_timeout.get()
    }

    /// Keeps the replays of a running node from taking all of it.
    async fn pace(&self, entry: &Entry, bytes_per_second: Option<u64>) {
        if let Some(rate) = bytes_per_second
            && !self.inner.batches.stopping.get()
        {
            let micros = (entry.bytes() as u64).saturating_mul(1_000_000) / rate.max(1);
            let until = self.inner.rt.now() + Duration::from_micros(micros);
            // Elapsed, or the node stops: then nothing is waited for.
            let _ = self.inner.rt.timeout(until, self.inner.batches.stop.notified()).await;
        }
    }

    async fn replay_entry(
        &self,
        entry: &Entry,
        snapshot: &ClusterSnapshot,
        table: BatchTable,
        report: &mut BatchReplay,
    ) {
        if entry.is_past_grace(snapshot, self.inner.rt.wall()) {
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
        self.inner.batches.replayed_total.inc();
        self.remove_entry(table, &entry.id, entry.written_at);
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
        let Some(cluster) = self.cluster() else { return false };
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
            deadline: self.inner.rt.now() + self.write_timeout(),
        };
        match self.write_for(order, Purpose::BatchReplay(WallMicros(written_at.0))).await {
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
            let result = self.apply(mutation.clone(), Origin::BatchReplay).await;
            let no_room =
                matches!(result, Err(StoreError::Overloaded { .. } | StoreError::QueueFull));
            attempts += 1;
            if !no_room || attempts >= ROOM_ATTEMPTS || self.inner.batches.stopping.get() {
                return result;
            }
            self.inner.rt.sleep(ROOM_PAUSE).await;
        }
    }

    /// Starts the task that replays what this shard's coordinators left behind longer ago than twice
    /// the write timeout. `snapshot` gives the metadata in use, `report` gets what each replay came
    /// to.
    pub fn start_batch_replay(
        &self,
        write_timeout: Duration,
        snapshot: impl Fn() -> Arc<ClusterSnapshot> + 'static,
        report: impl Fn(&BatchReplay) + 'static,
    ) {
        let this = self.clone();
        self.set_write_timeout(write_timeout);
        let task = async move {
            let batches = &this.inner.batches;
            while !batches.stopping.get() {
                let deadline = this.inner.rt.now() + INTERVAL;
                // Elapsed: the next round.
                let _ = this.inner.rt.timeout(deadline, batches.stop.notified()).await;
                let replay = this.replay_left_behind(this.write_timeout(), &snapshot()).await;
                if !replay.is_empty() {
                    report(&replay);
                }
            }
        };
        // A closed gate: the node is stopping already.
        let _ = self.inner.gate.spawn(&self.inner.rt, Group::Admin, "batch-replay", task);
    }

    /// One round. At the end of the node nothing is waited for: no coordinator works any more.
    async fn replay_left_behind(
        &self,
        write_timeout: Duration,
        snapshot: &ClusterSnapshot,
    ) -> BatchReplay {
        let (rt, batches) = (&self.inner.rt, &self.inner.batches);
        if !keeps_batches(snapshot) {
            return BatchReplay::default();
        }
        let stopping = batches.stopping.get();
        // Deletions of entries so far; a failure of the log shows at the next write.
        let _ = self.commit().await;
        let throttle = batches.throttle.get();
        let parts =
            u64::from(rt.shard_count().max(1)).saturating_mul(snapshot.members.len() as u64);
        let rate = (!stopping && throttle > 0).then(|| (throttle / parts.max(1)).max(1));
        if batches.scan_due.get() {
            let now = rt.wall();
            let wanted = |e: &Entry| stopping || e.is_abandoned(now, write_timeout);
            return self.scan_batches(snapshot, wanted, rate).await;
        }
        let mut report = BatchReplay::default();
        let Some(table) = BatchTable::of(&snapshot.schema) else { return report };
        let now = rt.now();
        let due = |since: Instant| stopping || since + patience(write_timeout) <= now;
        let mut entries = Vec::new();
        for batch in batches.take_due(due) {
            let mut found = Entries::new(table, 1);
            let command = table.lookup(&batch.id, rt.wall().seconds());
            if let Err(error) = self.read(&command, 1, &mut found).await {
                report.left += 1;
                report.error = Some(error);
                batches.remember(batch);
                continue;
            }
            // No entry: it never got into the log.
            entries.extend(found.found);
            if entries.len() >= PAGE_ENTRIES {
                self.replay_found(&mut entries, (snapshot, table, rate), &mut report).await;
            }
        }
        self.replay_found(&mut entries, (snapshot, table, rate), &mut report).await;
        report
    }
}

impl Coordinator {
    /// Replays entries and takes them out of the list; those that stay in the log are remembered.
    async fn replay_found(
        &self,
        entries: &mut Vec<Entry>,
        (snapshot, table, rate): (&ClusterSnapshot, BatchTable, Option<u64>),
        report: &mut BatchReplay,
    ) {
        let now = self.inner.rt.now();
        let replayed = self.replay_entries(entries, snapshot, table, rate).await;
        for (entry, replay) in entries.drain(..).zip(replayed) {
            if replay.left > 0 {
                self.inner.batches.remember(Unfinished { id: entry.id, since: now });
            }
            report.add(replay);
        }
    }
}

/// Whether a mutation belongs to several nodes, so that this one must not apply it by itself.
fn is_of_several_nodes(snapshot: &ClusterSnapshot, mutation: &[u8]) -> bool {
    let Some(opened) = MutationRef::open(mutation) else { return false };
    snapshot.members.len() > 1
        && PlacementKey::of_table(snapshot, opened.table).is_some_and(|key| !key.is_local())
}
