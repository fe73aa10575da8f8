//! The executor of one shard: what all statements of the shard share.
//!
//! Owns: the snapshot in use, clocks for timestamps, limits, prepared statements, the memory of requests. Never:
//! how a statement runs ([`crate::execute`]).

use crate::account::Account;
use crate::counters::Counters;
use crate::failure::{Failure, Internal, Result};
use crate::guardrail_limits::Guardrails;
use crate::latency::Latencies;
use crate::observers::Observers;
use crate::prepared::{Planning, PreparedCache};
use crate::replica_disks::ReplicaDisks;
use crate::settings::{QuerySettings, Timeout, Timeouts};
use crate::shard_calls::{ShardCall, ShardCalls};
use crate::users::{Accesses, CidrMetrics};
use crate::virtual_source::VirtualSource;
use cluster::ClusterSnapshot;
use coordinator::Coordinator;
use cql_plan::functions::user::UserFunctions;
use cql_plan::plan::{PlanLimits, UuidSource};
use cql_wire::{Consistency, ErrorCode, FailureReason};
use logins::Passwords;
use membership::Membership;
use rt::sync::Semaphore;
use rt::{Gate, Group, Rt};
use schema::Schema;
use std::cell::{Cell, Ref, RefCell};
use std::future::Future;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use stdx::{TimestampMicros, Uuid, WallMicros};
use store::StoreError;
use truncation::{ShardReply, TruncationParts, Truncations};

/// Parts that an [`Executor`] is built from.
pub struct ExecutorParts {
    /// The shard.
    pub rt: Rt,
    /// Access to all data of the node.
    pub coordinator: Coordinator,
    /// Schema and roles.
    pub membership: Membership,
    /// The same on all shards.
    pub settings: QuerySettings,
    /// Limits that plans enforce.
    pub plan_limits: PlanLimits,
    /// Owner of the tasks.
    pub gate: Gate,
    /// The way to the executors of the other shards.
    pub shards: Rc<dyn ShardCalls>,
    /// Rows of virtual tables that this crate does not compute.
    pub virtual_source: Rc<dyn VirtualSource>,
}

/// State that all statements of a shard share.
pub struct Executor {
    /// The shard.
    pub rt: Rt,
    /// Access to all data of the node.
    pub coordinator: Coordinator,
    /// Schema and roles.
    pub membership: Membership,
    /// The same on all shards.
    pub settings: QuerySettings,
    /// Timeouts of requests.
    pub timeouts: Timeouts,
    /// Limits on requests.
    pub guardrails: RefCell<Guardrails>,
    /// Nodes with full disks.
    pub replica_disks: ReplicaDisks,
    /// Settings and functions that statements are planned with.
    pub plan_limits: Planning,
    /// Prepared statements.
    pub prepared: PreparedCache,
    /// Source of unique ids.
    pub uuids: UuidSource,
    /// Observers of finished requests.
    pub observers: Observers,
    /// The counters.
    pub counters: Counters,
    /// Latencies of requests.
    pub latencies: Rc<Latencies>,
    /// TRUNCATE on this node and on all.
    pub truncations: Truncations,
    /// Memory of this shard's requests.
    pub account: Rc<Account>,
    /// Replication factor of a keyspace that does not specify one.
    pub default_keyspace_rf: Cell<u32>,
    pub(crate) gate: Gate,
    pub(crate) shards: Rc<dyn ShardCalls>,
    /// The threads that hash passwords; on the shard that owns them.
    pub(crate) passwords: RefCell<Option<Passwords>>,
    pub(crate) virtual_source: Rc<dyn VirtualSource>,
    pub(crate) accesses: Accesses,
    pub(crate) cidr_metrics: CidrMetrics,
    /// Encoded mutations of the statement that is being run.
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// Permits for scans, and for reads of one partition on another shard. No account counts the
    /// memory of their pages in flight.
    pub(crate) scans: Semaphore,
    pub(crate) remote_reads: Semaphore,
    snapshot: RefCell<Arc<ClusterSnapshot>>,
    pub(crate) last_timestamp: Cell<i64>,
    draining: Cell<bool>,
    buffers: RefCell<Vec<Vec<u8>>>,
}

/// Error for a result that is too large.
const RESULT_TOO_LARGE: &str =
    "the result is larger than half of the memory for requests of a shard: use paging";

/// Estimated bytes of a page of another shard, and the number of reads that may wait for one
/// however little memory is left.
const PAGE_BYTES: usize = 1 << 20;
const REMOTE_READS_MIN: usize = 64;
/// The same of scans, which have pages of several shards.
const SCAN_BYTES: usize = 4 << 20;
const SCANS_MIN: usize = 8;

/// Buffers of answers that are kept for reuse, and how large one may be.
const BUFFERS_MAX: usize = 64;
const BUFFER_BYTES_MAX: usize = 64 << 10;

impl Executor {
    /// Puts the parts together. It follows the metadata from then on.
    pub fn new(parts: ExecutorParts) -> Rc<Executor> {
        let ExecutorParts {
            rt,
            coordinator,
            membership,
            settings,
            plan_limits,
            gate,
            shards,
            virtual_source,
        } = parts;
        let latencies = Rc::new(Latencies::new(&rt.telemetry()));
        let request_bytes_max = settings.request_bytes_max / usize::from(rt.shard_count().max(1));
        let logging: Rc<RefCell<Weak<Executor>>> = Rc::default();
        let truncation_parts = TruncationParts {
            rt: rt.clone(),
            coordinator: coordinator.clone(),
            membership: membership.clone(),
            gate: gate.clone(),
            storage_address: settings.storage_address,
            timeout: settings.truncate_timeout,
            ask: ask_truncations(&shards),
            on_failure: log_truncate_failures(&logging),
        };
        let executor = Rc::new(Executor {
            truncations: Truncations::new(truncation_parts),
            coordinator,
            snapshot: RefCell::new(membership.snapshot()),
            plan_limits: Planning {
                limits: plan_limits,
                functions: match settings.user_defined_functions_enabled {
                    true => UserFunctions::new(settings.user_function_limits),
                    false => UserFunctions::disabled(settings.user_function_limits),
                },
            },
            gate,
            shards,
            passwords: RefCell::new(None),
            virtual_source,
            prepared: PreparedCache::new(settings.prepared_bytes_max),
            accesses: Accesses::default(),
            cidr_metrics: CidrMetrics::new(&rt.telemetry()),
            uuids: UuidSource::new(rt.random_u64()),
            observers: Observers::default(),
            counters: Counters::new(&rt.telemetry(), &latencies),
            latencies,
            scratch: RefCell::default(),
            last_timestamp: Cell::new(0),
            account: Account::new(request_bytes_max),
            scans: Semaphore::new((request_bytes_max / SCAN_BYTES).max(SCANS_MIN)),
            remote_reads: Semaphore::new((request_bytes_max / PAGE_BYTES).max(REMOTE_READS_MIN)),
            draining: Cell::new(false),
            default_keyspace_rf: Cell::new(settings.default_keyspace_rf),
            buffers: RefCell::default(),
            timeouts: Timeouts::new(&settings),
            guardrails: RefCell::new(settings.guardrails.clone()),
            replica_disks: ReplicaDisks::default(),
            settings,
            rt,
            membership,
        });
        *logging.borrow_mut() = Rc::downgrade(&executor);
        let following = executor.clone();
        executor
            .membership
            .on_change(move |_, after| *following.snapshot.borrow_mut() = after.clone());
        executor
    }

    /// Sets the threads that hash passwords, on the shard that owns them.
    pub fn set_passwords(&self, passwords: Passwords) {
        *self.passwords.borrow_mut() = Some(passwords);
    }

    /// Refuses new requests from now on.
    pub fn stop(&self) {
        self.draining.set(true);
        self.truncations.stop();
    }

    /// Takes requests again.
    pub fn resume(&self) {
        self.draining.set(false);
        self.truncations.resume();
    }

    /// Returns true if the executor accepts no more requests.
    #[inline]
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Changes how long requests may take that begin from now on.
    pub fn set_timeout(&self, kind: Timeout, timeout: Duration) {
        self.timeouts.set(kind, timeout);
        if kind == Timeout::Truncate {
            self.truncations.set_timeout(timeout);
        }
    }

    /// The snapshot in use; not to be held over an await.
    #[inline]
    pub fn snapshot(&self) -> Ref<'_, Arc<ClusterSnapshot>> {
        self.snapshot.borrow()
    }

    /// The schema in use.
    pub fn schema(&self) -> Arc<Schema> {
        self.snapshot.borrow().schema.clone()
    }

    /// The next timestamp of this shard: later than every one before, never earlier than the clock.
    #[inline]
    pub(crate) fn next_timestamp(&self, wall: WallMicros) -> TimestampMicros {
        let next = wall.0.max(self.last_timestamp.get().saturating_add(1));
        self.last_timestamp.set(next);
        TimestampMicros(next)
    }

    /// A new time UUID.
    pub fn next_time_uuid(&self) -> [u8; 16] {
        self.uuids.time_uuid(self.rt.wall())
    }

    /// An empty buffer for an answer.
    #[inline]
    pub fn buffer(&self) -> Vec<u8> {
        self.buffers.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    pub fn recycle(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        let size = buffer.capacity();
        if size > 0 && size <= BUFFER_BYTES_MAX && buffers.len() < BUFFERS_MAX {
            buffer.clear();
            buffers.push(buffer);
        }
    }

    /// Runs work to its end, even if the request that asked for it is cancelled.
    ///
    /// # Errors
    /// As `work`; `Overloaded` when the node stops.
    pub async fn to_its_end<T: 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T>> + 'static,
    ) -> Result<T> {
        let (done, result) = rt::sync::oneshot::channel();
        let task = async move {
            // The caller may have stopped waiting.
            let _ = done.send(work.await);
        };
        let stopping = || Failure::overloaded("the node is stopping");
        self.gate.spawn(&self.rt, Group::Admin, name, task).map_err(|_| stopping())?;
        result.await.map_err(|_| stopping())?
    }

    /// Writes the one log line of an internal failure and returns the id that names it.
    #[cold]
    pub fn log_failure(&self, what: &'static str, error: &StoreError) -> Uuid {
        let id = Uuid::from_bytes(self.uuids.random_uuid());
        match error {
            StoreError::Overloaded { .. } | StoreError::QueueFull | StoreError::Stopping => {
                tracing::debug!(%id, %error, "{what} refused");
            }
            // The store logs when the disk gets full and when it has space again.
            StoreError::UnknownTable(_)
            | StoreError::DiskFull { .. }
            | StoreError::IndexNotAvailable { .. } => {
                tracing::debug!(%id, %error, "{what} failed");
            }
            StoreError::TombstoneFailure { .. } => {
                tracing::warn!(%id, %error, "{what} failed");
            }
            _ => tracing::error!(%id, %error, "{what} failed"),
        }
        // The failure policy decides if the node continues.
        self.coordinator.store().note_failure(error);
        id
    }

    /// A [`Failure`] of a read with a larger result than memory allows.
    #[cold]
    pub(crate) fn result_too_large(&self, limit: usize, consistency: Consistency) -> Failure {
        let id = Uuid::from_bytes(self.uuids.random_uuid());
        tracing::warn!(%id, limit, "read failed: its result without paging is larger than memory allows");
        let internal = Internal { id, cause: RESULT_TOO_LARGE, error: None };
        Failure::ReadFailure { consistency, reason: FailureReason::ReadSize, internal }
    }

    /// A [`Failure`] of something that must not fail.
    #[cold]
    pub fn internal_failure(&self, what: &str) -> Failure {
        let id = Uuid::from_bytes(self.uuids.random_uuid());
        tracing::error!(%id, "internal error: {what}");
        let internal = Internal { id, cause: "internal error", error: None };
        Failure::Internal(ErrorCode::ServerError, "internal error".to_owned(), internal)
    }
}

fn ask_truncations(shards: &Rc<dyn ShardCalls>) -> truncation::AskShard {
    let shards = shards.clone();
    Rc::new(move |shard, request| -> ShardCall<ShardReply> { shards.truncations(shard, request) })
}

/// Logs failures of the store while it empties tables, once there is an executor.
fn log_truncate_failures(executor: &Rc<RefCell<Weak<Executor>>>) -> Rc<dyn Fn(&StoreError)> {
    let executor = executor.clone();
    Rc::new(move |error| {
        if let Some(executor) = executor.borrow().upgrade() {
            executor.log_failure("truncate", error);
        }
    })
}
