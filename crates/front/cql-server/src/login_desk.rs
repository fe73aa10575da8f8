//! The desk of shard 0 that verifies passwords for all shards: its threads, turns and waiting places.
//!
//! Never: decides who waits (`logins::Slowdown`), who the client is (`login`).

use crate::login_log::LoginLog;
use crate::login_queues::LoginQueues;
use logins::{Login, PasswordPool, Passwords, Slowdown, Verdict};
use rt::Rt;
use rt::service::ServiceFailure;
use rt::sync::Semaphore;
use std::cell::{Cell, RefCell};
use std::future::Future;

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
    /// Logins that wait for the end of another one.
    pub(crate) queues: LoginQueues,
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
            queues: LoginQueues::default(),
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

/// An admitted login; it ends unverified if it is dropped.
pub(crate) struct Admitted<'a> {
    pub(crate) rt: &'a Rt,
    pub(crate) desk: &'a Desk,
    pub(crate) login: Option<Login>,
}

impl Admitted<'_> {
    pub(crate) fn is_known(&self) -> bool {
        self.login.as_ref().is_some_and(Login::is_known)
    }

    pub(crate) fn end(&mut self, verdict: Verdict) {
        let Some(login) = self.login.take() else { return };
        let queues = login.queues();
        let role = login.role();
        self.desk.slowdown.borrow_mut().ended(self.rt.now(), login, verdict);
        self.desk.queues.ended(queues, role, verdict);
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.end(Verdict::Unverified);
    }
}
