//! Small thread pool: file calls that can block, and CPU work that must not stall a shard.
//!
//! Threads start on demand, at most [`THREADS_MAX`], and end when the pool is dropped.

use crate::cross::{SlotReceiver, lock, slot};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Threads per node. Enough depth for a disk without io_uring; each idle one costs a few KiB.
pub const THREADS_MAX: usize = 8;

type Job = Box<dyn FnOnce() + Send>;

struct Shared {
    state: Mutex<State>,
    ready: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

/// The pool of one node, shared by its shards.
pub struct Pool {
    shared: Arc<Shared>,
}

impl Pool {
    /// A pool without threads yet.
    pub fn new() -> Pool {
        let state = State { jobs: VecDeque::new(), threads: 0, idle: 0, closed: false };
        Pool { shared: Arc::new(Shared { state: Mutex::new(state), ready: Condvar::new() }) }
    }

    /// Runs `f` on a pool thread. The future gives `None` only when `f` panicked or no thread could
    /// be started.
    pub fn run<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> SlotReceiver<T> {
        let (sender, receiver) = slot();
        let job: Job = Box::new(move || sender.send(f()));
        let mut state = lock(&self.shared.state);
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads < THREADS_MAX {
            state.threads += 1;
            let shared = Arc::clone(&self.shared);
            let name = format!("io-{}", state.threads);
            let started = std::thread::Builder::new().name(name).spawn(move || work(&shared));
            if started.is_err() {
                state.threads -= 1;
                if state.threads == 0 {
                    // No thread would ever run them: drop them, so that the receivers notice.
                    state.jobs.clear();
                }
            }
        }
        drop(state);
        self.shared.ready.notify_one();
        receiver
    }
}

impl Default for Pool {
    fn default() -> Pool {
        Pool::new()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.shared.state).closed = true;
        self.shared.ready.notify_all();
    }
}

fn work(shared: &Shared) {
    let mut state = lock(&shared.state);
    loop {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            // A panicking job must not take the thread along; its sender is dropped, which tells.
            let _ = catch_unwind(AssertUnwindSafe(job));
            state = lock(&shared.state);
        } else if state.closed {
            return;
        } else {
            state.idle += 1;
            state = shared.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}
