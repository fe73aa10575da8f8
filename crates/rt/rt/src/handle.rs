//! [`Rt`]: one shard of one node.

use crate::env::Env;
use crate::executor::{Group, Queues, TURN, Tasks};
use crate::file_keys::FileKeys;
use crate::shared::{NodeShared, Port, Shared, TaskKey};
use crate::sync::waiters::Waiters;
use crate::timer::Timers;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use stdx::{Instant, ShardId, WallMicros};

/// One shard of one node: clock, randomness, tasks, files, sockets. Cheap to clone, stays on its
/// shard.
#[derive(Clone)]
pub struct Rt {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) shard: ShardId,
    shard_count: u16,
    pub(crate) env: Env,
    pub(crate) file_keys: FileKeys,
    pub(crate) shared: Arc<Shared>,
    pub(crate) node: Arc<NodeShared>,
    io_description: String,
    pub(crate) tasks: RefCell<Tasks>,
    pub(crate) queues: RefCell<Queues>,
    pub(crate) timers: RefCell<Timers>,
    /// Kept between turns to reuse its memory.
    pub(crate) woken: RefCell<Vec<TaskKey>>,
    pub(crate) ports: RefCell<Vec<Box<dyn Port>>>,
    pub(crate) stop_waiters: Waiters,
    pub(crate) stop_seen: Cell<bool>,
    pub(crate) turn_started: Cell<Instant>,
    /// Turn of the task that runs, by its group.
    pub(crate) turn: Cell<Duration>,
    /// In its place, for measurements.
    pub(crate) longer_turn: Cell<Option<Duration>>,
    /// No more tasks: the shard ends.
    pub(crate) ending: Cell<bool>,
    pub(crate) main_done: Cell<bool>,
    /// Actions that run after the last task.
    pub(crate) at_end: RefCell<Vec<Box<dyn FnOnce()>>>,
    pub(crate) telemetry: telemetry::Shard,
    pub(crate) polls: telemetry::Counter,
}

impl Rt {
    pub(crate) fn new(
        shard: u16,
        node: Arc<NodeShared>,
        env: Env,
        io_description: String,
    ) -> Option<Rt> {
        let shared = Arc::clone(node.shards.get(usize::from(shard))?);
        let telemetry = telemetry::Shard::new();
        let polls = telemetry.counter("executor_poll_total", "polls of tasks", &[]);
        let inner = Inner {
            shard: ShardId(shard),
            shard_count: u16::try_from(node.shards.len()).unwrap_or(u16::MAX),
            file_keys: FileKeys::new(env.clone()),
            env,
            shared,
            node,
            io_description,
            tasks: RefCell::default(),
            queues: RefCell::default(),
            timers: RefCell::default(),
            woken: RefCell::default(),
            ports: RefCell::default(),
            stop_waiters: Waiters::default(),
            stop_seen: Cell::new(false),
            turn_started: Cell::new(Instant::ZERO),
            turn: Cell::new(TURN),
            longer_turn: Cell::new(None),
            ending: Cell::new(false),
            main_done: Cell::new(false),
            at_end: RefCell::default(),
            telemetry,
            polls,
        };
        Some(Rt { inner: Rc::new(inner) })
    }

    /// Runs `last` when the shard has ended and its tasks are gone: parts that hold each other let go
    /// of each other then, or nothing of an ended shard would ever be freed. It must not await, spawn
    /// or call other shards.
    pub fn at_end(&self, last: impl FnOnce() + 'static) {
        self.inner.at_end.borrow_mut().push(Box::new(last));
    }

    /// This shard's number, `0..shard_count`.
    pub fn shard(&self) -> ShardId {
        self.inner.shard
    }

    /// Shards of this node.
    pub fn shard_count(&self) -> u16 {
        self.inner.shard_count
    }

    /// The share of processor time that a group gets on this shard under load; see [`Group`].
    pub fn share(&self, group: Group) -> u32 {
        self.inner.queues.borrow().share(group)
    }

    /// Gives a group another share on this shard, 1 to 1000, from its next task on.
    pub fn set_share(&self, group: Group, share: u32) {
        self.inner.queues.borrow_mut().set_share(group, share);
    }

    /// Monotonic time since the node (simulator: the world) started.
    pub fn now(&self) -> Instant {
        self.inner.env.now()
    }

    /// Wall clock. May jump.
    pub fn wall(&self) -> WallMicros {
        self.inner.env.wall()
    }

    /// Uniform random number; from the world's seed in the simulator.
    pub fn random_u64(&self) -> u64 {
        self.inner.env.random_u64()
    }

    /// Fills `out` with random bytes, natively from a cryptographic generator seeded by the system.
    pub fn random_fill(&self, out: &mut [u8]) {
        self.inner.env.random_fill(out);
    }

    /// For long loops: ready at once unless this task has used up its turn of 500 us, or 100 us where no
    /// statement waits for its group (simulator: by the seed); then it resolves after the others had
    /// theirs.
    pub fn yield_if_due(&self) -> YieldIfDue {
        YieldIfDue { rt: self.clone(), yielded: false }
    }

    /// Lets tasks of this shard run longer before they are asked to yield: for measurements under
    /// an emulator, which slows everything down. Native only.
    pub fn set_turn(&self, turn: Duration) {
        self.inner.longer_turn.set(Some(turn));
    }

    /// Returns true if [`Rt::yield_if_due`] would yield: for loops that must save state first.
    pub fn is_yield_due(&self) -> bool {
        match &self.inner.env {
            Env::Native(_) => {
                let turn = self.inner.longer_turn.get().unwrap_or(self.inner.turn.get());
                self.now().since(self.inner.turn_started.get()) >= turn
            }
            Env::Sim(env) => env.is_yield_due(),
        }
    }

    /// Runs blocking or long work away from the shard: natively on a pool thread, in the simulator
    /// in place with a virtual duration. Dropping the future does not stop it.
    ///
    /// # Panics
    /// When `f` panicked.
    pub async fn offload<T: Send + 'static>(
        &self,
        name: &'static str,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        match &self.inner.env {
            Env::Native(env) => match env.pool().run(f).await {
                Some(value) => value,
                None => stdx::invariant::broken(format_args!("offloaded work {name} panicked")),
            },
            Env::Sim(env) => {
                env.offload(name).await;
                f()
            }
        }
    }

    /// Resolves when the node is asked to stop.
    pub async fn stop_requested(&self) {
        poll_fn(|cx| {
            if self.is_stop_requested() {
                return Poll::Ready(());
            }
            self.inner.stop_waiters.register(cx.waker());
            Poll::Pending
        })
        .await;
    }

    /// Returns true if the node was asked to stop.
    pub fn is_stop_requested(&self) -> bool {
        self.inner.node.is_stop_requested()
    }

    /// Asks the whole node to stop; every shard's [`Rt::stop_requested`] resolves.
    pub fn request_stop(&self) {
        self.inner.node.request_stop();
    }

    /// This shard's metrics.
    pub fn telemetry(&self) -> telemetry::Shard {
        self.inner.telemetry.clone()
    }

    /// Which file backend is in use and why, for the log line at start.
    pub fn io_description(&self) -> &str {
        &self.inner.io_description
    }
}

/// See [`Rt::yield_if_due`].
pub struct YieldIfDue {
    rt: Rt,
    yielded: bool,
}

impl Future for YieldIfDue {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.yielded || !self.rt.is_yield_due() {
            return Poll::Ready(());
        }
        self.yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
