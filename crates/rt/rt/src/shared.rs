//! State of a shard that other threads may touch: its inbox of woken tasks and its sleep state.

use rt_native::cross::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

/// Names one task of a shard; a reused slot has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskKey {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Shared state of one shard. The lock is held for a push or a swap only, and contended only by
/// other threads.
pub(crate) struct Shared {
    inbox: Mutex<Inbox>,
    /// Set by the shard before it checks the inbox a last time and then waits.
    sleeping: AtomicBool,
    root: Mutex<Option<Waker>>,
}

#[derive(Default)]
struct Inbox {
    woken: Vec<TaskKey>,
    attention: bool,
}

impl Shared {
    pub(crate) fn new() -> Arc<Shared> {
        Arc::new(Shared {
            inbox: Mutex::default(),
            sleeping: AtomicBool::new(false),
            root: Mutex::new(None),
        })
    }

    fn push(&self, key: TaskKey) {
        lock(&self.inbox).woken.push(key);
        self.rouse();
    }

    /// Makes the shard poll its mesh rings and its stop flag.
    pub(crate) fn attend(&self) {
        lock(&self.inbox).attention = true;
        self.rouse();
    }

    fn rouse(&self) {
        // The inbox lock orders this load after the shard's store, if the shard missed our push.
        if self.sleeping.load(Ordering::Acquire) && self.sleeping.swap(false, Ordering::AcqRel) {
            let root = lock(&self.root).clone();
            if let Some(root) = root {
                root.wake();
            }
        }
    }

    /// Swaps the woken tasks into `into` (which must be empty); tells whether attention is wanted.
    pub(crate) fn take(&self, into: &mut Vec<TaskKey>) -> bool {
        let mut inbox = lock(&self.inbox);
        std::mem::swap(&mut inbox.woken, into);
        std::mem::take(&mut inbox.attention)
    }

    pub(crate) fn is_quiet(&self) -> bool {
        let inbox = lock(&self.inbox);
        inbox.woken.is_empty() && !inbox.attention
    }

    /// Like [`Shared::is_quiet`], without a lock if nothing has arrived since it was last true: the
    /// simulated world polls all its shards at every step. No thread sleeps, so none is woken.
    pub(crate) fn is_still_quiet(&self) -> bool {
        if self.sleeping.load(Ordering::Acquire) {
            return true;
        }
        self.sleeping.store(true, Ordering::Release);
        if self.is_quiet() {
            return true;
        }
        self.sleeping.store(false, Ordering::Release);
        false
    }

    /// Announces sleep; false when there is work after all.
    pub(crate) fn try_sleep(&self, root: &Waker) -> bool {
        {
            let mut mine = lock(&self.root);
            match &mut *mine {
                Some(waker) => waker.clone_from(root),
                none => *none = Some(root.clone()),
            }
        }
        self.sleeping.store(true, Ordering::Release);
        if self.is_quiet() {
            return true;
        }
        self.sleeping.store(false, Ordering::Release);
        false
    }

    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::Release);
    }
}

/// The waker of one task: made once, at spawn.
pub(crate) struct TaskHeader {
    pub(crate) key: TaskKey,
    /// Set while the task stands in the inbox or a run queue, so that it stands there once.
    pub(crate) queued: AtomicBool,
    pub(crate) shared: Arc<Shared>,
}

impl Wake for TaskHeader {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.shared.push(self.key);
        }
    }
}

/// The served side of a mesh, as the executor sees it.
pub(crate) trait Port {
    fn drain(&self);
    fn close(&self);
}

/// State that the shards of one node (incarnation) share.
pub(crate) struct NodeShared {
    stop: AtomicBool,
    pub(crate) shards: Vec<Arc<Shared>>,
}

impl NodeShared {
    pub(crate) fn new(shards: u16) -> Arc<NodeShared> {
        let shards = (0..shards).map(|_| Shared::new()).collect();
        Arc::new(NodeShared { stop: AtomicBool::new(false), shards })
    }

    pub(crate) fn request_stop(&self) {
        self.stop.store(true, Ordering::Release);
        for shard in &self.shards {
            shard.attend();
        }
    }

    pub(crate) fn is_stop_requested(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}
