//! The batch log of a shard: entries are written and deleted, and what is not carried through is remembered.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use replica::{Env, Origin, ReplicaMutation};
use schema::Schema;
use stdx::{Instant, TableId, TimestampMicros};
use store::StoreError;
use telemetry::Counter;

use super::batch_log::BatchTable;
use crate::local::Local;
use crate::shard_requests::ShardRequest;

/// Attempts to find an id whose entry is owned by this shard.
const LOCAL_ID_ATTEMPTS: usize = 8;
/// Left-over batches that are remembered by id; above it the whole log is scanned.
const UNFINISHED_MAX: usize = 16_384;

/// The batch log of a shard.
#[derive(Clone)]
pub struct BatchLog {
    inner: Rc<Inner>,
}

/// This shard's record of batches that did not complete.
struct Inner {
    local: Local,
    unfinished: RefCell<Vec<Unfinished>>,
    /// Stored for a coordinator of the cluster that has not removed them.
    stored: RefCell<BTreeMap<[u8; 16], Instant>>,
    /// There may be entries that are not in `unfinished`.
    scan_due: Cell<bool>,
    logged_total: Counter,
}

/// Selects whether stored batches of other coordinators are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakeStored {
    /// Batches that are due.
    Due,
    /// None.
    No,
}

/// A batch that its coordinator abandoned.
pub(super) struct Unfinished {
    pub(super) id: Vec<u8>,
    pub(super) since: Instant,
}

/// A batch that is in the log. Dropped, it is left to the replay.
#[must_use = "a batch that is not finished is replayed"]
pub struct LoggedBatch {
    log: BatchLog,
    table: BatchTable,
    id: [u8; 16],
    written_at: TimestampMicros,
    is_settled: bool,
}

impl LoggedBatch {
    /// Completes the batch: all its mutations may be acknowledged. Removes the entry from the log
    /// without waiting for it.
    pub fn finish(mut self) {
        self.is_settled = true;
        self.log.remove_entry(self.table, &self.id, self.written_at);
    }
}

impl Drop for LoggedBatch {
    fn drop(&mut self) {
        if !self.is_settled {
            let since = self.log.env().rt.now();
            self.log.remember(Unfinished { id: self.id.to_vec(), since });
        }
    }
}

impl BatchLog {
    pub(crate) fn new(local: Local) -> BatchLog {
        let logged_total = local.env().rt.telemetry().counter(
            "batchlog_writes_total",
            "logged batches written to the batch log",
            &[],
        );
        let (unfinished, stored, scan_due) = Default::default();
        BatchLog { inner: Rc::new(Inner { local, unfinished, stored, scan_due, logged_total }) }
    }

    fn env(&self) -> &Env {
        self.inner.local.env()
    }

    fn local(&self) -> &Local {
        &self.inner.local
    }

    /// Returns true if the log may have entries that are not remembered.
    pub(super) fn is_scan_due(&self) -> bool {
        self.inner.scan_due.get()
    }

    /// A scan of the log begins.
    pub(super) fn scan_begins(&self) {
        self.inner.scan_due.set(false);
    }

    /// Requests a new scan of the log.
    pub(super) fn need_scan(&self) {
        self.inner.scan_due.set(true);
    }

    /// Remembers the id of an unfinished batch, to look it up again.
    pub(super) fn remember(&self, batch: Unfinished) {
        let mut unfinished = self.inner.unfinished.borrow_mut();
        if unfinished.len() < UNFINISHED_MAX {
            unfinished.push(batch);
        } else {
            unfinished.clear();
            self.inner.scan_due.set(true);
        }
    }

    /// A coordinator of the cluster had this batch stored; without its removal it is replayed.
    pub(crate) fn note_stored(&self, id: [u8; 16], since: Instant) {
        let mut stored = self.inner.stored.borrow_mut();
        if stored.len() < UNFINISHED_MAX {
            stored.insert(id, since);
        } else {
            self.inner.scan_due.set(true);
        }
    }

    /// A batch is written to the log of a node.
    pub(crate) fn note_logged(&self) {
        self.inner.logged_total.inc();
    }

    /// Returns true if the batch's id is remembered already.
    pub(super) fn is_stored(&self, id: &[u8]) -> bool {
        let id = <[u8; 16]>::try_from(id);
        id.is_ok_and(|id| self.inner.stored.borrow().contains_key(&id))
    }

    /// Takes the batches that were abandoned long enough ago. When the node stops, entries stored
    /// for others stay in the log: their coordinators may be at work, and the next start finds
    /// them.
    pub(super) fn take_due(
        &self,
        stored: TakeStored,
        due: impl Fn(Instant) -> bool,
    ) -> Vec<Unfinished> {
        let mut taken: Vec<Unfinished> =
            self.inner.unfinished.borrow_mut().extract_if(.., |batch| due(batch.since)).collect();
        self.inner.stored.borrow_mut().retain(|id, since| {
            let is_due = stored == TakeStored::Due && due(*since);
            if is_due {
                taken.push(Unfinished { id: id.to_vec(), since: *since });
            }
            !is_due
        });
        taken
    }

    /// Writes the encoded mutations of a batch to the log and waits until that may be acknowledged.
    /// `next_id` makes ascending time UUIDs.
    ///
    /// # Errors
    /// Those of [`Local::apply`]. After `Overloaded`, `QueueFull` and `MutationTooLarge` nothing
    /// was written; after others the batch may be replayed.
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
        let written_at = TimestampMicros(self.env().rt.wall().0);
        let entry = table.entry(&id, written_at, mutations.iter().copied(), next_id);
        let mut batch = LoggedBatch { log: self.clone(), table, id, written_at, is_settled: false };
        let entry = ReplicaMutation::durable(codec::token_of(&id), entry);
        let written = self.local().apply(entry, Origin::BatchLog).await;
        self.inner.logged_total.inc();
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

    /// Returns an id whose entry is owned by this shard, if one is found soon.
    fn local_id(&self, table: TableId, next_id: &mut dyn FnMut() -> [u8; 16]) -> [u8; 16] {
        let mut id = next_id();
        for _ in 0..LOCAL_ID_ATTEMPTS {
            if self.env().shard_map().shard_of(table, codec::token_of(&id)) == self.env().rt.shard()
            {
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
        self.inner.stored.borrow_mut().remove(id);
        self.remove_entry(table, id, written_at);
    }

    /// Deletes an entry without waiting: the deletion is written to the kernel with the next commit
    /// of its shard, and a crash before costs one replay.
    pub(crate) fn remove_entry(&self, table: BatchTable, id: &[u8], written_at: TimestampMicros) {
        let at = TimestampMicros(self.env().rt.wall().0.max(written_at.0));
        let deletion = table.deletion(id, at);
        let deletion = ReplicaMutation::durable(codec::token_of(id), deletion);
        if self.env().owns(&deletion) {
            // An error (the node stops, the log failed) leaves the entry to the next start.
            let _ = self.env().replica.admit_and_apply(&deletion, Origin::BatchDone);
        } else {
            let owner = deletion.owner(self.env().shard_map());
            let request = ShardRequest::Apply(deletion, Origin::BatchDone);
            drop(self.local().call(owner, request));
        }
    }
}
