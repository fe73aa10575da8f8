//! The desk of shard 0 that verifies passwords for all shards: its threads, turns and waiting places.
//!
//! Never: decides who waits (`logins::Slowdown`), who the client is (`login`).

use crate::login_log::LoginLog;
use logins::{Login, PasswordPool, Passwords, Slowdown, Verdict};
use rt::Rt;
use rt::service::ServiceFailure;
use rt::sync::{Notify, Semaphore};
use std::cell::{Cell, RefCell};
use std::future::Future;
use stdx::FixedMap;

/// Logins that wait on a node; more are refused.
pub(crate) const WAITING_MAX: usize = 2048;
/// Waiting places out of [`WAITING_MAX`] for roles that have logged in from their address before.
pub(crate) const WAITING_RESERVED: usize = 512;
/// Verifies passwords for all shards of the node; on shard 0.
pub(crate) struct Desk {
    pool: RefCell<Option<PasswordPool>>,
    pub(crate) passwords: Passwords,
    pub(crate) slowdown: RefCell<Slowdown>,
    pub(crate) log: LoginLog,
    /// One for each thread of the pool, and one that is ready when it is.
    pub(crate) turns: Semaphore,
    /// Additional turns of known pairs: they do not wait for the turns of strangers.
    pub(crate) turns_of_known: Semaphore,
    waiting: Cell<usize>,
    /// Networks with logins that wait for the end of another one, see [`Admission::Queued`].
    queues: RefCell<FixedMap<u64, Queue>>,
}

/// Logins of one network that wait.
#[derive(Default)]
struct Queue {
    waiting: usize,
    /// A login of the network has ended.
    ended: Notify,
}

impl Desk {
    /// Starts the pool.
    ///
    /// # Errors
    /// The system refused a thread.
    pub(crate) fn start(rt: &Rt) -> std::io::Result<Desk> {
        // A quarter of the processors: requests go on while all threads hash.
        let threads = (rt.shard_count() / 4).clamp(1, 16);
        let pool = PasswordPool::start(rt, threads)?;
        Ok(Desk {
            passwords: pool.passwords(),
            pool: RefCell::new(Some(pool)),
            slowdown: RefCell::default(),
            log: LoginLog::default(),
            turns: Semaphore::new(2 * usize::from(threads)),
            turns_of_known: Semaphore::new(usize::from(threads)),
            waiting: Cell::new(0),
            queues: RefCell::default(),
        })
    }

    pub(crate) fn passwords(&self) -> Passwords {
        self.passwords.clone()
    }

    pub(crate) fn failure(&self) -> impl Future<Output = Option<ServiceFailure>> + use<> {
        let failure = self.pool.borrow().as_ref().map(PasswordPool::failure);
        async move {
            match failure {
                Some(failure) => failure.await,
                None => None,
            }
        }
    }

    pub(crate) async fn stop(&self) {
        let pool = self.pool.borrow_mut().take();
        if let Some(pool) = pool {
            pool.stop().await;
        }
    }
}

/// Counts a login that waits.
pub(crate) struct Waits<'a>(&'a Cell<usize>);

impl<'a> Waits<'a> {
    pub(crate) fn begin(desk: &'a Desk, is_known: bool) -> Option<Waits<'a>> {
        let max = if is_known { WAITING_MAX } else { WAITING_MAX - WAITING_RESERVED };
        let now = desk.waiting.get();
        (now < max).then(|| {
            desk.waiting.set(now + 1);
            Waits(&desk.waiting)
        })
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// A login in the queue of its network.
pub(crate) struct Queued<'a> {
    desk: &'a Desk,
    network: u64,
    pub(crate) ended: Notify,
}

impl<'a> Queued<'a> {
    pub(crate) fn begin(desk: &'a Desk, network: u64) -> Queued<'a> {
        let mut queues = desk.queues.borrow_mut();
        let queue = queues.entry(network).or_default();
        queue.waiting += 1;
        Queued { desk, network, ended: queue.ended.clone() }
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let mut queues = self.desk.queues.borrow_mut();
        if let Some(queue) = queues.get_mut(&self.network) {
            queue.waiting = queue.waiting.saturating_sub(1);
            if queue.waiting == 0 {
                queues.remove(&self.network);
            }
        }
    }
}

/// An admitted login; it ends unverified if it is dropped.
pub(crate) struct Admitted<'a> {
    pub(crate) rt: &'a Rt,
    pub(crate) desk: &'a Desk,
    pub(crate) network: u64,
    pub(crate) login: Option<Login>,
}

impl Admitted<'_> {
    pub(crate) fn is_known(&self) -> bool {
        self.login.as_ref().is_some_and(Login::is_known)
    }

    pub(crate) fn end(&mut self, verdict: Verdict) {
        let Some(login) = self.login.take() else { return };
        self.desk.slowdown.borrow_mut().ended(self.rt.now(), login, verdict);
        let ended = self.desk.queues.borrow().get(&self.network).map(|queue| queue.ended.clone());
        if let Some(ended) = ended {
            ended.notify_waiters();
        }
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.end(Verdict::Unverified);
    }
}
