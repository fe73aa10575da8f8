//! Counts of a stage: work of one kind that runs, waits for its turn, or waits for room.
//!
//! A stage has the name of the thread pool that does such work in Cassandra, as `nodetool tpstats`
//! and `system_views.thread_pools` list them. Here it runs on the shard itself.

use crate::{Counter, Gauge, Shard};

/// Name of the metric with the tasks of a stage that run now, by label `stage`.
pub const STAGE_ACTIVE: &str = "stage_active_tasks";
/// Tasks that wait for their turn.
pub const STAGE_PENDING: &str = "stage_pending_tasks";
/// Tasks that ended, well or not.
pub const STAGE_COMPLETED: &str = "stage_completed_tasks_total";
/// Tasks that wait for room.
pub const STAGE_BLOCKED: &str = "stage_blocked_tasks";
/// Tasks that had to wait for room, or were refused for want of it.
pub const STAGE_BLOCKED_TOTAL: &str = "stage_blocked_tasks_total";

/// The counts of one stage on one shard. Cheap to clone; all clones share the cells.
#[derive(Clone, Debug)]
pub struct Stage {
    active: Gauge,
    pending: Gauge,
    completed: Counter,
    blocked: Gauge,
    blocked_total: Counter,
}

impl Shard {
    /// The stage of that name, created at first use.
    ///
    /// # Panics
    /// As [`Shard::counter`].
    pub fn stage(&self, name: &str) -> Stage {
        let labels = [("stage", name)];
        Stage {
            active: self.gauge(STAGE_ACTIVE, "tasks of a stage that run now", &labels),
            pending: self.gauge(STAGE_PENDING, "tasks that wait for their turn", &labels),
            completed: self.counter(STAGE_COMPLETED, "tasks that ended", &labels),
            blocked: self.gauge(STAGE_BLOCKED, "tasks that wait for room", &labels),
            blocked_total: self.counter(
                STAGE_BLOCKED_TOTAL,
                "tasks that had to wait for room or were refused",
                &labels,
            ),
        }
    }
}

impl Stage {
    /// A task runs until the guard is dropped; then it is completed.
    #[must_use = "the task ends when this is dropped"]
    pub fn run(&self) -> StageTask<'_> {
        self.active.add(1);
        StageTask { gauge: &self.active, completed: Some(&self.completed) }
    }

    /// Like [`Stage::run`], for a part of a task that counts as completed elsewhere.
    #[must_use = "the task ends when this is dropped"]
    pub fn hold(&self) -> StageTask<'_> {
        self.active.add(1);
        StageTask { gauge: &self.active, completed: None }
    }

    /// Begins a task that [`Stage::end`] ends, where no guard can be held.
    pub fn begin(&self) {
        self.active.add(1);
    }

    /// A task ends that [`Stage::begin`] began.
    pub fn end(&self) {
        self.active.add(-1);
        self.completed.inc();
    }

    /// A task waits for its turn until the guard is dropped.
    #[must_use = "the task stops waiting when this is dropped"]
    pub fn wait(&self) -> StageTask<'_> {
        self.pending.add(1);
        StageTask { gauge: &self.pending, completed: None }
    }

    /// A task waits for room until the guard is dropped.
    #[must_use = "the task stops waiting when this is dropped"]
    pub fn block(&self) -> StageTask<'_> {
        self.refused();
        self.blocked.add(1);
        StageTask { gauge: &self.blocked, completed: None }
    }

    /// A task ran to its end without ever suspending.
    pub fn completed(&self) {
        self.completed.inc();
    }

    /// A task was refused for want of room.
    pub fn refused(&self) {
        self.blocked_total.inc();
    }

    /// The number of tasks that run now.
    pub fn active(&self) -> &Gauge {
        &self.active
    }

    /// The number of tasks that wait for their turn.
    pub fn pending(&self) -> &Gauge {
        &self.pending
    }
}

/// A task of a [`Stage`] that runs or waits.
#[derive(Debug)]
pub struct StageTask<'s> {
    gauge: &'s Gauge,
    completed: Option<&'s Counter>,
}

impl Drop for StageTask<'_> {
    fn drop(&mut self) {
        self.gauge.add(-1);
        if let Some(completed) = self.completed {
            completed.inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Value;

    fn counts(shard: &Shard) -> [i64; 5] {
        let snapshot = shard.snapshot();
        [STAGE_ACTIVE, STAGE_PENDING, STAGE_COMPLETED, STAGE_BLOCKED, STAGE_BLOCKED_TOTAL].map(
            |name| match snapshot.find(name).map(|m| &m.value) {
                Some(Value::Gauge(n)) => *n,
                Some(Value::Counter(n)) => *n as i64,
                other => panic!("{name}: {other:?}"),
            },
        )
    }

    #[test]
    fn a_task_is_counted_where_it_is_and_once_at_its_end() {
        let shard = Shard::new();
        let stage = shard.stage("ReadStage");
        assert_eq!(counts(&shard), [0; 5]);
        let (first, second) = (stage.run(), stage.wait());
        let third = stage.block();
        assert_eq!(counts(&shard), [1, 1, 0, 1, 1]);
        drop((first, second, third));
        assert_eq!(counts(&shard), [0, 0, 1, 0, 1]);
        stage.completed();
        stage.refused();
        assert_eq!(counts(&shard), [0, 0, 2, 0, 2]);
        stage.begin();
        let held = stage.hold();
        assert_eq!(counts(&shard), [2, 0, 2, 0, 2]);
        stage.end();
        drop(held);
        assert_eq!(counts(&shard), [0, 0, 3, 0, 2]);
    }
}
