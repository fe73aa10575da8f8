//! The one executor of both worlds: a slab of tasks, a run queue per group, picked by shares.
//!
//! INV-executor-1: a task stands at most once in inbox and queues together (`TaskHeader::queued`).
//! INV-executor-2: no borrow of the shard's state is held while a future is polled or dropped.

use crate::env::Env;
use crate::gate::{Closed, Gate, GateInner};
use crate::handle::{Inner, Rt};
use crate::shared::{TaskHeader, TaskKey};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use stdx::Instant;

/// How long a task, and one loop turn over all tasks, may run before others and the reactor get
/// their turn.
pub(crate) const TURN: Duration = Duration::from_micros(500);
/// The same for work that no statement waits for: requests that arrive meanwhile wait this long.
pub(crate) const BACKGROUND_TURN: Duration = Duration::from_micros(100);
/// Turns of background work after which other threads have the processor, if they wait for it.
const TURNS_PER_YIELD: u32 = 4;
/// Tasks run between two polls of inbox and timers.
const BATCH: usize = 16;
const GROUPS: usize = 7;
/// Largest share of a group.
pub(crate) const SHARE_MAX: u32 = 1000;
type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

/// Scheduling group of a task: under load each gets processor time by its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Statements of clients; 1000 shares.
    Statement,
    /// Lightweight transactions; 1000 shares.
    Lwt,
    /// Compaction; 200 shares, until [`crate::Rt::set_share`] says otherwise.
    Compaction,
    /// Memtable flush; 500 shares.
    Flush,
    /// Streaming and repair; 200 shares.
    Stream,
    /// Gossip and metadata; 200 shares.
    Gossip,
    /// Admin and everything else; 100 shares.
    Admin,
}

impl Group {
    fn index(self) -> usize {
        match self {
            Group::Statement => 0,
            Group::Lwt => 1,
            Group::Compaction => 2,
            Group::Flush => 3,
            Group::Stream => 4,
            Group::Gossip => 5,
            Group::Admin => 6,
        }
    }

    fn turn(self) -> Duration {
        match self {
            Group::Statement | Group::Lwt | Group::Gossip => TURN,
            Group::Compaction | Group::Flush | Group::Stream | Group::Admin => BACKGROUND_TURN,
        }
    }
}

/// Shares by [`Group::index`] of a shard that begins.
const SHARES: [u64; GROUPS] = [1000, 1000, 200, 500, 200, 200, 100];

#[derive(Default)]
pub(crate) struct Tasks {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Tasks {
    /// The name of each task that has not ended.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.slots.iter().filter_map(|slot| slot.task.as_ref().map(|task| task.name))
    }
}

struct Slot {
    generation: u32,
    task: Option<Task>,
}

struct Task {
    /// Taken out while polled.
    future: Option<TaskFuture>,
    header: Arc<TaskHeader>,
    waker: Waker,
    group: Group,
    name: &'static str,
    gate: Rc<GateInner>,
}

/// Run queues. `pass` is the virtual time of a group: processor time divided by its share.
pub(crate) struct Queues {
    queues: [VecDeque<TaskKey>; GROUPS],
    shares: [u64; GROUPS],
    pass: [u64; GROUPS],
    floor: u64,
    len: usize,
}

impl Default for Queues {
    fn default() -> Queues {
        Queues { queues: Default::default(), shares: SHARES, pass: [0; GROUPS], floor: 0, len: 0 }
    }
}

impl Queues {
    pub(crate) fn share(&self, group: Group) -> u32 {
        u32::try_from(self.shares[group.index()]).unwrap_or(u32::MAX)
    }

    pub(crate) fn set_share(&mut self, group: Group, share: u32) {
        self.shares[group.index()] = u64::from(share.clamp(1, SHARE_MAX));
    }

    fn push(&mut self, group: Group, key: TaskKey) {
        let g = group.index();
        if self.queues[g].is_empty() {
            // A group that slept gets no credit for it.
            self.pass[g] = self.pass[g].max(self.floor);
        }
        self.queues[g].push_back(key);
        self.len += 1;
    }

    fn pop_fair(&mut self) -> Option<TaskKey> {
        let g =
            (0..GROUPS).filter(|g| !self.queues[*g].is_empty()).min_by_key(|g| self.pass[*g])?;
        self.floor = self.pass[g];
        self.len -= 1;
        self.queues[g].pop_front()
    }

    fn remove_nth(&mut self, mut n: usize) -> Option<TaskKey> {
        for queue in &mut self.queues {
            if n < queue.len() {
                self.len -= 1;
                return queue.remove(n);
            }
            n -= queue.len();
        }
        None
    }

    fn charge(&mut self, group: Group, nanos: u64) {
        let g = group.index();
        self.pass[g] = self.pass[g].saturating_add(nanos.max(1) * 1000 / self.shares[g]);
    }
}

impl Inner {
    pub(crate) fn spawn(
        self: &Rc<Self>,
        gate: &Gate,
        group: Group,
        name: &'static str,
        future: TaskFuture,
    ) -> Result<(), Closed> {
        if self.ending.get() {
            return Err(Closed);
        }
        let mut tasks = self.tasks.borrow_mut();
        let index = match tasks.free.pop() {
            Some(index) => index,
            None => {
                tasks.slots.push(Slot { generation: 0, task: None });
                u32::try_from(tasks.slots.len() - 1).unwrap_or(u32::MAX)
            }
        };
        let slot = &mut tasks.slots[index as usize];
        let key = TaskKey { index, generation: slot.generation };
        let queued = AtomicBool::new(true);
        let header = Arc::new(TaskHeader { key, queued, shared: Arc::clone(&self.shared) });
        let waker = Waker::from(Arc::clone(&header));
        let gate = Rc::clone(&gate.inner);
        gate.enter();
        stdx::debug_invariant!(slot.task.is_none(), "INV-rt-3: a task takes the slot of another");
        slot.task = Some(Task { future: Some(future), header, waker, group, name, gate });
        drop(tasks);
        self.queues.borrow_mut().push(group, key);
        Ok(())
    }

    /// Fires due timers, serves the mesh, checks the stop flag, queues the woken tasks.
    pub(crate) fn attend(&self, now: Instant) {
        loop {
            let due = self.timers.borrow_mut().pop_due(now);
            match due {
                Some(waker) => waker.wake(),
                None => break,
            }
        }
        loop {
            let mut woken = self.woken.take();
            let attention = self.shared.take(&mut woken);
            {
                let tasks = self.tasks.borrow();
                let mut queues = self.queues.borrow_mut();
                for key in woken.drain(..) {
                    if let Some(slot) = tasks.slots.get(key.index as usize)
                        && slot.generation == key.generation
                        && let Some(task) = &slot.task
                    {
                        queues.push(task.group, key);
                    }
                }
            }
            self.woken.replace(woken);
            if !attention {
                return;
            }
            if self.node.is_stop_requested() && !self.stop_seen.replace(true) {
                self.stop_waiters.wake_all();
            }
            // Taken out, because a handler may serve another mesh; put back in front of those.
            let ports = self.ports.take();
            for port in &ports {
                port.drain();
            }
            let added = self.ports.replace(ports);
            self.ports.borrow_mut().extend(added);
        }
    }

    pub(crate) fn ready_len(&self) -> usize {
        self.queues.borrow().len
    }

    /// Polls one task. Returns the time when it was done.
    fn run(self: &Rc<Self>, key: TaskKey, started: Instant) -> Instant {
        let index = key.index as usize;
        let (mut future, waker, group, name) = {
            let mut tasks = self.tasks.borrow_mut();
            let slot = &mut tasks.slots[index];
            let Some(task) = slot.task.as_mut().filter(|_| slot.generation == key.generation)
            else {
                return started;
            };
            let Some(future) = task.future.take() else { return started };
            stdx::debug_invariant!(
                task.header.queued.load(Ordering::Acquire),
                "INV-executor-1: task {} was queued twice",
                task.name
            );
            // Before the poll, so that a wake during it queues the task again.
            task.header.queued.store(false, Ordering::Release);
            (future, task.waker.clone(), task.group, task.name)
        };
        self.check_free();
        self.turn_started.set(started);
        self.turn.set(group.turn());
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let ended = self.env.now();
        let spent = ended.since(started);
        self.queues.borrow_mut().charge(group, spent.as_nanos() as u64);
        self.polls.inc();
        if spent > TURN && matches!(self.env, Env::Native(_)) {
            self.stalled(name, spent);
        }
        if done {
            self.check_free();
            drop(future);
            self.finish(index);
        } else if let Some(task) = &mut self.tasks.borrow_mut().slots[index].task {
            task.future = Some(future);
        }
        ended
    }

    /// Nothing of the shard's state is borrowed: a future may now be polled or dropped.
    #[inline]
    fn check_free(&self) {
        stdx::debug_invariant!(
            self.tasks.try_borrow_mut().is_ok()
                && self.queues.try_borrow_mut().is_ok()
                && self.timers.try_borrow_mut().is_ok(),
            "INV-executor-2: state of the shard is borrowed while a future is polled or dropped"
        );
    }

    fn finish(&self, index: usize) {
        let task = {
            let mut tasks = self.tasks.borrow_mut();
            let slot = &mut tasks.slots[index];
            slot.generation = slot.generation.wrapping_add(1);
            let task = slot.task.take();
            tasks.free.push(u32::try_from(index).unwrap_or(u32::MAX));
            task
        };
        if let Some(task) = task {
            task.gate.leave();
        }
    }

    #[cold]
    fn stalled(&self, name: &'static str, spent: Duration) {
        let help = "polls of a task that took longer than 500 us";
        self.telemetry.counter("executor_stall_total", help, &[("task", name)]).inc();
        let help = "length of the polls that took longer than 500 us";
        let micros = u64::try_from(spent.as_micros()).unwrap_or(u64::MAX);
        self.telemetry.histogram("executor_stall_micros", help, &[]).record(micros);
    }

    /// Runs the `n`-th of the ready tasks (simulator).
    pub(crate) fn run_nth(self: &Rc<Self>, n: usize) {
        let key = self.queues.borrow_mut().remove_nth(n);
        if let Some(key) = key {
            self.run(key, self.env.now());
        }
    }

    /// Runs ready tasks for at most one turn; true when some are left.
    fn run_turn(self: &Rc<Self>) -> bool {
        let start = self.env.now();
        let (mut now, mut turn) = (start, TURN);
        loop {
            self.attend(now);
            for _ in 0..BATCH {
                let key = self.queues.borrow_mut().pop_fair();
                let Some(key) = key else { break };
                now = self.run(key, now);
                turn = turn.min(self.turn.get());
                if now.since(start) >= turn {
                    break;
                }
            }
            if self.main_done.get() {
                return false;
            }
            if self.ready_len() == 0 && self.shared.is_quiet() {
                return false;
            }
            if now.since(start) >= turn {
                return true;
            }
        }
    }

    /// Drops every task; none is polled afterwards.
    pub(crate) fn end(&self) {
        self.ending.set(true);
        // A future's drop may not spawn (refused) but may wake; so this loop ends.
        for index in 0.. {
            let future = {
                let mut tasks = self.tasks.borrow_mut();
                let Some(slot) = tasks.slots.get_mut(index) else { break };
                slot.generation = slot.generation.wrapping_add(1);
                slot.task.take()
            };
            self.check_free();
            drop(future);
        }
        stdx::invariant!(
            self.tasks.borrow().names().next().is_none(),
            "INV-rt-3: a task outlives its shard"
        );
        *self.queues.borrow_mut() = Queues::default();
        let timers = self.timers.borrow_mut().clear();
        drop(timers);
        let ports = self.ports.take();
        for port in &ports {
            port.close();
        }
        drop(ports);
        for last in self.at_end.take() {
            last();
        }
    }
}

/// The native shard's one future: runs until the main task is done.
pub(crate) async fn run_native(rt: Rt) {
    let Env::Native(env) = rt.inner.env.clone() else { return };
    let mut background_turns = 0;
    poll_fn(|cx| {
        let inner = &rt.inner;
        inner.shared.awake();
        loop {
            let more = inner.run_turn();
            env.flush();
            if inner.main_done.get() {
                return Poll::Ready(());
            }
            if more || env.has_unsubmitted() {
                // The kernel does not preempt a busy thread for milliseconds, even if others would
                // finish soon.
                if more && inner.turn.get() == BACKGROUND_TURN {
                    background_turns = (background_turns + 1) % TURNS_PER_YIELD;
                    if background_turns == 0 {
                        env.yield_processor();
                    }
                }
                env.yield_to_reactor(cx);
                return Poll::Pending;
            }
            if !inner.shared.try_sleep(cx.waker()) {
                continue;
            }
            let next = inner.timers.borrow().next().map(|at| at.0);
            let fired = env.poll_idle(cx, next).is_ready();
            // A finished file operation has put its task into the inbox.
            if fired || !inner.shared.is_quiet() {
                inner.shared.awake();
                continue;
            }
            return Poll::Pending;
        }
    })
    .await;
    rt.inner.end();
}
