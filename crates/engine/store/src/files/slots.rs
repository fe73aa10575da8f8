//! Which compactions run on this shard: how many at a time, with which files, with how much space, and
//! how fast all of them together write.
//!
//! INV-slots-1: no file is an input of two compactions. A background compaction claims its inputs in the
//! turn in which it is planned, from unclaimed files. An operation on a table as a whole (a major
//! compaction, cleanup, repair sessions) waits until nothing of it is claimed, and keeps the background
//! away until it is done. INV-slots-2: a compaction begins only when the disk has room for its output,
//! beside the remaining output of running ones.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use rt::sync::Notify;
use stdx::{Generation, Instant, TableId};

use crate::env::Env;
use crate::error::StoreError;
use crate::files::directories::Directories;
use crate::tables::table::{TableState, bump};

/// Most compactions of a shard at a time.
pub(crate) const COMPACTORS_MAX: u32 = 64;

/// The compactions of a shard.
pub struct Slots {
    env: Rc<Env>,
    directories: Rc<Directories>,
    max: Cell<u32>,
    taken: Cell<u32>,
    running: RefCell<Vec<(u64, CompactionProgress, Rc<Progress>)>>,
    next: Cell<u64>,
    /// A compaction ended, more of them may run, or the store stops.
    pub(crate) changed: Notify,
    /// Time at which all written bytes would have been written at the allowed rate.
    paced: Cell<Instant>,
    /// Refused for want of space.
    refused: Cell<u64>,
    /// Bytes that ended compactions have read.
    pub(crate) read_by_ended: Cell<u64>,
}

/// Progress of a compaction.
#[derive(Default)]
pub(crate) struct Progress {
    /// Uncompressed bytes read.
    pub(crate) done: Cell<u64>,
    /// `done` when its part began, and the bytes of the part.
    pub(crate) part: Cell<(u64, u64)>,
    /// Bytes on disk that this part, or a later one, may need.
    pub(crate) needed: Cell<u64>,
    /// A request to end the compaction without an output is pending.
    pub(crate) stopped: Cell<bool>,
}

impl Progress {
    /// Bytes that it may still write.
    fn left(&self) -> u64 {
        let (from, bytes) = self.part.get();
        let done = self.done.get().saturating_sub(from).min(bytes);
        let left = u128::from(self.needed.get()) * u128::from(bytes - done);
        // At most `needed`.
        (left / u128::from(bytes.max(1))) as u64
    }
}

impl Slots {
    pub(crate) fn new(env: Rc<Env>, directories: Rc<Directories>) -> Slots {
        let max = env.options.concurrent_compactors;
        Slots {
            env,
            directories,
            read_by_ended: Cell::new(0),
            max: Cell::new(max.clamp(1, COMPACTORS_MAX)),
            taken: Cell::new(0),
            running: RefCell::default(),
            next: Cell::new(0),
            changed: Notify::new(),
            paced: Cell::new(Instant::ZERO),
            refused: Cell::new(0),
        }
    }

    /// Adds bytes that were written; when the next may be. 0 bytes per second is no limit.
    pub(crate) fn pace(&self, now: Instant, bytes: u64, bytes_per_second: u64) -> Instant {
        let Some(micros) = bytes.saturating_mul(1_000_000).checked_div(bytes_per_second) else {
            self.paced.set(now);
            return now;
        };
        let due = self.paced.get().max(now) + Duration::from_micros(micros);
        self.paced.set(due);
        due
    }

    fn end(&self, change: impl FnOnce()) {
        change();
        self.changed.notify_waiters();
    }
}

/// The right to run one compaction after the other.
pub(crate) struct Slot(Rc<Slots>);

impl Drop for Slot {
    fn drop(&mut self) {
        let slots = &self.0;
        slots.end(|| slots.taken.set(slots.taken.get().saturating_sub(1)));
    }
}

/// A table as a whole, with a slot.
pub(crate) struct TableSlot {
    table: Rc<TableState>,
    _slot: Option<Slot>,
    /// True if it owns the slot, false while it waits.
    has: bool,
    slots: Rc<Slots>,
}

impl Drop for TableSlot {
    fn drop(&mut self) {
        let table = &self.table;
        self.slots.end(|| {
            table.wanted.set(table.wanted.get().saturating_sub(1));
            if self.has {
                table.owned.set(false);
            }
        });
    }
}

/// Inputs of a compaction, its own until this is dropped.
pub(crate) struct Claim {
    slots: Rc<Slots>,
    table: Rc<TableState>,
    inputs: Vec<Generation>,
    id: u64,
    pub(crate) progress: Rc<Progress>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let slots = &self.slots;
        bump(&slots.read_by_ended, self.progress.done.get());
        slots.end(|| {
            self.table.claimed.borrow_mut().retain(|g| !self.inputs.contains(g));
            slots.running.borrow_mut().retain(|(id, ..)| *id != self.id);
        });
    }
}

impl Slots {
    /// Changes how many compactions of this shard run at a time, from now on; running ones
    /// continue. At least 1, at most 64.
    pub fn set_concurrent_compactors(&self, max: u32) {
        let slots = self;
        slots.end(|| slots.max.set(max.clamp(1, COMPACTORS_MAX)));
    }

    /// How many compactions of this shard run at a time.
    pub fn concurrent_compactors(&self) -> u32 {
        self.max.get()
    }

    /// Aborts the running compactions of this shard that `is_meant` selects by their progress:
    /// their outputs are removed, their inputs stay. Returns how many. An aborted background
    /// compaction is not started again for a minute.
    pub fn stop_compactions(&self, is_meant: impl Fn(&CompactionProgress) -> bool) -> u64 {
        let running = self.running.borrow();
        let meant = running.iter().filter(|(_, shown, _)| is_meant(shown));
        meant.map(|(.., progress)| progress.stopped.set(true)).count() as u64
    }

    /// The compactions of this shard that run.
    pub fn compactions(&self) -> Vec<CompactionProgress> {
        let running = self.running.borrow();
        running
            .iter()
            .map(|(_, shown, progress)| CompactionProgress {
                done_bytes: progress.done.get(),
                ..shown.clone()
            })
            .collect()
    }

    pub(crate) fn has_slot(&self) -> bool {
        self.taken.get() < self.max.get()
    }

    /// A slot, when one is free.
    pub(crate) fn try_slot(self: &Rc<Self>) -> Option<Slot> {
        let slots = self;
        if !self.has_slot() {
            return None;
        }
        slots.taken.set(slots.taken.get() + 1);
        Some(Slot(self.clone()))
    }

    /// Waits until no file of the table is being compacted, and for a slot.
    pub(crate) async fn own_table(self: &Rc<Self>, table: &Rc<TableState>) -> TableSlot {
        table.wanted.set(table.wanted.get() + 1);
        let mut own =
            TableSlot { table: table.clone(), _slot: None, has: false, slots: self.clone() };
        loop {
            let changed = self.changed.notified();
            if !own.has && !table.owned.get() && table.claimed.borrow().is_empty() {
                table.owned.set(true);
                own.has = true;
            }
            if own.has
                && let Some(slot) = self.try_slot()
            {
                own._slot = Some(slot);
                return own;
            }
            changed.await;
        }
    }

    /// Claims files for a compaction. Pre: none of them is claimed.
    pub(crate) fn claim(
        self: &Rc<Self>,
        table: &Rc<TableState>,
        inputs: Vec<Generation>,
        mut shown: CompactionProgress,
    ) -> Claim {
        let slots = self;
        let id = slots.next.get();
        shown.id = id;
        slots.next.set(id + 1);
        let progress = Rc::new(Progress::default());
        stdx::debug_invariant!(
            !inputs.iter().any(|g| table.claimed.borrow().contains(g)),
            "INV-slots-1: one of {inputs:?} is claimed twice"
        );
        table.claimed.borrow_mut().extend_from_slice(&inputs);
        slots.running.borrow_mut().push((id, shown, progress.clone()));
        Claim { slots: self.clone(), table: table.clone(), inputs, id, progress }
    }

    /// Compactions since the start that were not started, or were aborted, for lack of space.
    pub fn refused_compactions(&self) -> u64 {
        self.refused.get()
    }

    /// Reserves space for a compaction, which its progress then needs less and less of.
    ///
    /// # Errors
    /// `DiskFull`: not enough space beside the remaining output of other compactions; `Io`.
    pub(crate) async fn reserve(
        &self,
        progress: &Progress,
        part: u64,
        needed: u64,
        what: &str,
    ) -> Result<(), StoreError> {
        let options = &self.env.options;
        let free = self.directories.free_bytes().await?;
        // No wait from here on, so that no other task reserves in between.
        progress.needed.set(0);
        let others: u64 = {
            let running = self.running.borrow();
            running.iter().fold(0, |sum, (.., other)| sum.saturating_add(other.left()))
        };
        let wanted = needed.saturating_add(others).saturating_add(options.disk_reserve_bytes);
        if free < wanted {
            let refused = &self.refused;
            refused.set(refused.get() + 1);
            return Err(StoreError::DiskFull {
                detail: format!(
                    "{what} needs up to {needed} bytes, {free} are free, of which others may need \
                     {others}"
                ),
            });
        }
        progress.part.set((progress.done.get(), part.max(1)));
        progress.needed.set(needed);
        Ok(())
    }
}

/// A compaction under way, for `nodetool compactionstats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionProgress {
    /// Its number on this shard, of all that have run since the start.
    pub id: u64,
    /// The table.
    pub table: TableId,
    /// Keyspace name.
    pub keyspace: String,
    /// Table name.
    pub name: String,
    /// Uncompressed bytes read so far.
    pub done_bytes: u64,
    /// Uncompressed bytes of all inputs.
    pub total_bytes: u64,
    /// Number of inputs.
    pub inputs: usize,
    /// Why it runs.
    pub reason: String,
    /// Kind in Cassandra's words: see [`CompactionRecord::kind`].
    pub kind: &'static str,
}

impl Slots {
    /// Checks that a compaction is still wanted. In the words of Cassandra's
    /// CompactionInterruptedException.
    pub(crate) fn check_goes_on(&self, progress: &Progress) -> Result<(), StoreError> {
        if self.env.stopping.get() {
            return Err(StoreError::Stopping);
        }
        match progress.stopped.get() {
            true => Err(StoreError::Invalid("Compaction interrupted".to_owned())),
            false => Ok(()),
        }
    }
}
