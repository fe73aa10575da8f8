//! Environment that all parts of a store share: the runtime, the options, the commit log, the gate of its tasks, the
//! stop flag, and the receiver of failures.
//!
//! Owns: the life of the store (running, drained, stopping), refusals for lack of space, the queue of suspect files.
//! Never: knows a table or a file. Imports: options and errors only.

pub(crate) mod failure;
pub(crate) mod full_disk;
pub(crate) mod link_rate;
pub(crate) mod live_options;
pub(crate) mod stages;
pub(crate) mod suspects;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use commitlog::CommitLog;
use rt::sync::Notify;
use rt::{Gate, Rt};
use stdx::{Generation, Instant};

use crate::env::failure::{Hook, StoreFailure};
use crate::env::full_disk::{DiskSpaceChange, FullDisk};
use crate::env::live_options::LiveOptions;
use crate::env::stages::Stages;
use crate::env::suspects::Suspects;
use crate::options::StoreOptions;

/// The common ground of the rooms of one store.
pub struct Env {
    pub(crate) rt: Rt,
    pub(crate) options: StoreOptions,
    pub(crate) log: CommitLog,
    pub(crate) gate: Gate,
    pub(crate) stages: Stages,
    pub(crate) live: LiveOptions,
    /// Why writes are refused for lack of space.
    pub(crate) full_disk: FullDisk,
    /// Components that a read or a check found corrupt.
    pub(crate) suspects: Suspects,
    pub(crate) stopping: Cell<bool>,
    /// Drained: no more writes.
    pub(crate) drained: Cell<bool>,
    /// There may be something to flush or release.
    pub(crate) work: Notify,
    /// The store is stopping.
    pub(crate) stop: Notify,
    /// Called for each failure of the disk.
    on_failure: Hook<StoreFailure>,
}

impl Env {
    pub(crate) fn new(rt: Rt, options: StoreOptions, log: CommitLog) -> Env {
        Env {
            gate: rt.gate("store"),
            log,
            stages: Stages::new(&rt.telemetry()),
            live: LiveOptions::new(&options, rt.shard_count()),
            full_disk: FullDisk::default(),
            suspects: Suspects::default(),
            stopping: Cell::new(false),
            drained: Cell::new(false),
            work: Notify::new(),
            stop: Notify::new(),
            on_failure: RefCell::default(),
            rt,
            options,
        }
    }

    /// Options that can change while the store runs.
    pub fn live(&self) -> &LiveOptions {
        &self.live
    }

    /// Begins the stop: no write is taken and no task begins another step.
    pub(crate) fn begin_stop(&self) {
        self.stopping.set(true);
        self.work.notify_waiters();
        self.stop.notify_waiters();
        self.suspects.changed.notify_waiters();
    }

    /// Releases the callbacks, which hold the store.
    pub(crate) fn release_hooks(&self) {
        drop(self.on_failure.take());
        drop(self.full_disk.on_change.take());
    }
}

impl Env {
    /// Sleeps, but not beyond the stop of the store, nor when it stops already.
    pub(crate) async fn pause(&self, duration: Duration) {
        self.pause_until(self.rt.now() + duration).await;
    }

    /// The same until then.
    pub(crate) async fn pause_until(&self, due: Instant) {
        // A stop that has begun sends no further notification.
        if !self.stopping.get() {
            // Elapsed: the pause is over.
            let _ = self.rt.timeout(due, self.stop.notified()).await;
        }
    }

    pub(crate) fn tell_failure(&self, failure: StoreFailure) {
        let hook = self.on_failure.borrow().clone();
        if let Some(hook) = hook {
            hook(failure);
        }
    }

    /// Calls `hook` whenever the commit log fails or a data file cannot be used.
    pub fn on_failure(&self, hook: impl Fn(StoreFailure) + 'static) {
        *self.on_failure.borrow_mut() = Some(Rc::new(hook));
    }

    /// Calls `hook` when writes begin to be refused for lack of space, and when they are accepted again.
    pub fn on_disk_space(&self, hook: impl Fn(DiskSpaceChange) + 'static) {
        *self.full_disk.on_change.borrow_mut() = Some(Rc::new(hook));
    }

    pub(crate) fn shard(&self) -> (u16, u16) {
        (self.rt.shard().0, self.rt.shard_count().max(1))
    }

    pub(crate) fn is_mine(&self, generation: Generation) -> bool {
        let (shard, shards) = self.shard();
        generation.0 % u64::from(shards) == u64::from(shard)
    }
}
