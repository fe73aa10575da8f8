//! Threads of services: helpers of a node that run beside its shards, on an executor of their own.
//!
//! Owns: the thread, its tokio runtime, catching its panic. Never: what a service is asked (`rt::service`).

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Threads that one service's runtime starts for calls that block (name look-ups, files of a library).
const BLOCKING_THREADS_MAX: usize = 4;

/// How a thread of a service ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its code returned.
    Returned,
    /// It panicked, with this message.
    Panicked(String),
}

/// The monotonic clock of a node, for its threads that are no shards.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub(crate) start: std::time::Instant,
}

impl Clock {
    /// Nanoseconds since the node started.
    pub fn now_nanos(self) -> u64 {
        // 64 bits of nanoseconds are 584 years of running.
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Starts a thread with a reactor and timers (one tokio runtime on this one thread) and runs the future
/// that `body` makes there. Tasks that the future spawned are dropped when it is done. `ended` is called
/// on the thread, last.
///
/// # Errors
/// The system refused a reactor or a thread.
pub fn start_reactor<F: Future<Output = ()>>(
    name: &str,
    body: impl FnOnce() -> F + Send + 'static,
    ended: impl FnOnce(Ended) + Send + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name(format!("{name}-blocking"))
        .build()?;
    let run = move || {
        let end = caught(|| runtime.block_on(async { body().await }));
        // Not `drop`, which waits for all blocking calls.
        runtime.shutdown_background();
        ended(end);
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}

/// Claim of a thread to a processor that other threads want, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// That of shards.
    #[default]
    Usual,
    /// A tenth of that: a shard that wakes up preempts the thread, which proceeds slowly on a busy processor.
    Low,
}

/// Nice value of [`Priority::Low`]: the kernel gives a thread of 10 a weight of 110, one of 0 a weight of 1024.
const LOW_NICE: i32 = 10;

/// Threads to start by [`start_workers`].
#[derive(Clone, Copy, Debug)]
pub struct Workers<'a> {
    /// Names the threads.
    pub name: &'a str,
    /// Number of threads.
    pub threads: u16,
    /// Their priority.
    pub priority: Priority,
}

/// Starts threads without a runtime that each run `work` once. `ended` is called on each thread,
/// last.
///
/// # Errors
/// The system refused a thread; those that were started before it run.
pub fn start_workers(
    workers: Workers<'_>,
    work: impl Fn() + Send + Sync + 'static,
    ended: impl Fn(Ended) + Send + Sync + 'static,
) -> io::Result<()> {
    let Workers { name, threads, priority } = workers;
    let both = Arc::new((work, ended));
    for number in 0..threads {
        let both = Arc::clone(&both);
        let run = move || {
            if priority == Priority::Low {
                // Linux changes this thread alone. A thread that keeps its priority works as well.
                let _ = rustix::process::setpriority_process(None, LOW_NICE);
            }
            let end = caught(|| (both.0)());
            (both.1)(end);
        };
        std::thread::Builder::new().name(format!("{name}-{number}")).spawn(run)?;
    }
    Ok(())
}

fn caught(f: impl FnOnce()) -> Ended {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(()) => Ended::Returned,
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            Ended::Panicked(text.unwrap_or_default())
        }
    }
}

/// Waits for `f`, on a service's thread with a runtime only; `None` when it took longer than `max`.
pub async fn timeout<F: Future>(max: Duration, f: F) -> Option<F::Output> {
    tokio::time::timeout(max, f).await.ok()
}

/// Runs a future on this thread, which sleeps while the future waits.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park();
    }
}
