//! The threads of a node that hash passwords: a bounded queue, no shard waits for them.

use std::future::Future;
use std::io;
use std::time::Duration;

use rt::Rt;
use rt::service::{CallError, Client, Priority, Service, ServiceFailure, ServiceSpec};
use stdx::Instant;

use crate::password;

/// Requests that wait for a thread at most; more are refused. Callers bound their own waits, too.
const REQUESTS_MAX: usize = 1024;
/// Time of [`PasswordPool::stop`]: a hash that is being computed cannot be interrupted.
const ABORT_MAX: Duration = Duration::from_secs(5);

/// One piece of work.
enum Work {
    Verify(Verification),
    /// Hash a new password with a random salt.
    Hash {
        password: String,
        salt: [u8; 16],
    },
}

/// Result of a piece of work.
enum Done {
    Verified { is_right: bool },
    Hashed(Result<String, String>),
}

/// The threads, owned by the shard that started them.
pub struct PasswordPool {
    service: Service<Work, Done>,
}

/// A caller for the pool.
#[derive(Clone)]
pub struct Passwords {
    client: Client<Work, Done>,
}

impl PasswordPool {
    /// Starts this many threads, at least one.
    ///
    /// # Errors
    /// The system refused a thread.
    pub fn start(rt: &Rt, threads: u16) -> io::Result<PasswordPool> {
        let spec = ServiceSpec {
            name: "passwords",
            requests_max: REQUESTS_MAX,
            drain_max: Duration::ZERO,
            abort_max: ABORT_MAX,
            priority: Priority::Usual,
        };
        Ok(PasswordPool { service: Service::start_workers(rt, spec, threads, perform)? })
    }

    /// Returns a caller.
    pub fn passwords(&self) -> Passwords {
        Passwords { client: self.service.client() }
    }

    /// Waits until the pool ends; `None` when it was stopped.
    pub fn failure(&self) -> impl Future<Output = Option<ServiceFailure>> + use<> {
        self.service.failure()
    }

    /// Drops what waits and ends the threads.
    pub async fn stop(self) {
        // Nothing depends on how it ended.
        let _ = self.service.stop().await;
    }
}

impl Passwords {
    /// Returns true if a password has this stored hash.
    ///
    /// # Errors
    /// The queue is full, or no thread answered by the deadline.
    pub async fn verify(
        &self,
        rt: &Rt,
        work: Verification,
        deadline: Instant,
    ) -> Result<bool, CallError> {
        let done = self.client.call(rt, Work::Verify(work), deadline).await?;
        Ok(matches!(done, Done::Verified { is_right: true }))
    }

    /// Hashes a new password with a random salt.
    ///
    /// # Errors
    /// The problem, as the end of a sentence.
    pub async fn hash(
        &self,
        rt: &Rt,
        password: String,
        deadline: Instant,
    ) -> Result<String, String> {
        let mut salt = [0; 16];
        rt.random_fill(&mut salt);
        match self.client.call(rt, Work::Hash { password, salt }, deadline).await {
            Ok(Done::Hashed(hashed)) => hashed,
            Ok(Done::Verified { .. }) => Err("the pool answered another question".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A password to be verified; see [`password::matches`].
pub struct Verification {
    /// The password that the client sent.
    pub password: String,
    /// Hash of the role; `None`: there is no such role or it has no password.
    pub stored: Option<String>,
    /// Cost of the comparison without a hash.
    pub cost_otherwise: u32,
}

fn perform(work: Work) -> Done {
    match work {
        Work::Verify(Verification { password, stored, cost_otherwise }) => Done::Verified {
            is_right: password::matches(&password, stored.as_deref(), cost_otherwise),
        },
        Work::Hash { password, salt } => {
            Done::Hashed(password::hash(&password, password::COST, salt))
        }
    }
}
