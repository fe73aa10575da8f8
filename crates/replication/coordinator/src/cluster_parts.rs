//! What a coordinator needs of the cluster, and the requests that go to several nodes.
//!
//! Owns: the types that other crates give and take. Never: decides anything.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::replica::ReplicaMutation;
use cluster::{ClusterSnapshot, Consistency};
use messaging::Messaging;
use request::{RequestError, WindowSettings, WriteType};
use stdx::{Epoch, HostId, Instant, TableId, Uuid, WallMicros};
use store::StoreError;

/// Waits until this node has applied an epoch, at most until an instant; says whether it has.
pub type EpochWait = Rc<dyn Fn(Epoch, Instant) -> Pin<Box<dyn Future<Output = bool>>>>;

/// What `node` gives each shard's coordinator once, when the node is part of a cluster.
pub struct ClusterParts {
    /// The way to other nodes; it serves already, or will.
    pub messaging: Messaging,
    /// The metadata in use.
    pub snapshot: Rc<dyn Fn() -> Arc<ClusterSnapshot>>,
    /// What the failure detector says. Not asked about this node.
    pub is_alive: Rc<dyn Fn(HostId) -> bool>,
    /// Where writes go that a replica missed.
    pub hints: Rc<dyn HintSink>,
    /// For requests of peers that know newer metadata; `None`: they are refused at once.
    pub epoch_wait: Option<EpochWait>,
    /// Limits and times.
    pub settings: ReplicationSettings,
}

/// Keeps writes for replicas that missed them.
pub trait HintSink {
    /// Whether a hint for the host would be kept: hints are on, its hint window has not passed, its
    /// hints do not fill their space.
    fn may_hint(&self, host: HostId) -> bool;

    /// Keeps an encoded mutation for a host, in memory at first. Bounded; false: it could not be
    /// kept, and is counted.
    fn store(&self, host: HostId, mutation: &[u8], written_at: WallMicros) -> bool;

    /// Makes what was stored so far durable; false: it could not be.
    fn flush(&self) -> Pin<Box<dyn Future<Output = bool>>>;
}

/// Hints are off.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHints;

impl HintSink for NoHints {
    fn may_hint(&self, _: HostId) -> bool {
        false
    }

    fn store(&self, _: HostId, _: &[u8], _: WallMicros) -> bool {
        false
    }

    fn flush(&self) -> Pin<Box<dyn Future<Output = bool>>> {
        Box::pin(std::future::ready(true))
    }
}

/// Limits and times of requests to several nodes, per shard. The defaults are Cassandra's where it
/// has them.
#[derive(Clone, Debug)]
pub struct ReplicationSettings {
    /// For writes without a client: replayed batches, hints whose replica has moved.
    pub write_request_timeout: Duration,
    /// Writes that are not finished: answered ones linger until all replicas have answered.
    pub writes_in_flight_max: usize,
    /// Bytes of their mutations, and what is kept beside them.
    pub write_bytes_in_flight_max: usize,
    /// What may be under way to one shard of a replica: more waits, and the clients with it.
    pub replica_window: WindowSettings,
    /// Whether reads prefer replicas that answer quickly.
    pub dynamic_snitch: bool,
    /// How often the order is made anew.
    pub dynamic_snitch_update_interval: Duration,
    /// After this time what was measured is forgotten, so that a bad replica is tried again.
    pub dynamic_snitch_reset_interval: Duration,
    /// A replica near by is preferred until it is so much slower than the best one (1.0: twice as
    /// slow).
    pub dynamic_snitch_badness_threshold: f64,
}

impl Default for ReplicationSettings {
    fn default() -> ReplicationSettings {
        ReplicationSettings {
            write_request_timeout: Duration::from_secs(2),
            writes_in_flight_max: 131_072,
            write_bytes_in_flight_max: 128 << 20,
            replica_window: WindowSettings::default(),
            dynamic_snitch: true,
            dynamic_snitch_update_interval: Duration::from_millis(100),
            dynamic_snitch_reset_interval: Duration::from_secs(600),
            dynamic_snitch_badness_threshold: 1.0,
        }
    }
}

/// A write for several nodes.
#[derive(Clone, Debug)]
pub struct ReplicatedWrite {
    /// The metadata it is planned and carried through with.
    pub snapshot: Arc<ClusterSnapshot>,
    /// Of the statement.
    pub consistency: Consistency,
    /// What errors call it.
    pub write_type: WriteType,
    /// The mutations to write.
    pub mutations: Vec<ReplicaMutation>,
    /// All of them are applied in the end, or none.
    pub logged: bool,
    /// A new time UUID; used when logged.
    pub batch_id: Uuid,
    /// When the client is answered at the latest.
    pub deadline: Instant,
}

/// How a read of several nodes is done; what is read stands in its `ReadCommand`.
#[derive(Clone, Debug)]
pub struct ReplicatedRead {
    /// The metadata it is planned and carried through with.
    pub snapshot: Arc<ClusterSnapshot>,
    /// Of the statement.
    pub consistency: Consistency,
    /// When the client is answered at the latest.
    pub deadline: Instant,
    /// Of a scan that takes as long as it takes: each page of each range has so much time, in the place of the
    /// deadline.
    pub page_timeout: Option<Duration>,
    /// As of [`crate::Coordinator::read`].
    pub rows_wanted: usize,
    /// What replicas need to know of the statement's limits.
    pub limits: SelectLimits,
}

impl ReplicatedRead {
    /// When what is begun now must have ended.
    pub(crate) fn deadline_of(&self, now: Instant) -> Instant {
        self.page_timeout.map_or(self.deadline, |timeout| now + timeout)
    }
}

/// Limits of a SELECT that replicas must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectLimits {
    /// PER PARTITION LIMIT, 1 for DISTINCT; `u32::MAX`: none.
    pub rows_per_partition: u32,
}

/// Why a write for several nodes was not acknowledged.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReplicatedError {
    /// The replicas' answers, or too few of them.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// This node has too much to do; nothing was sent.
    #[error("{0}")]
    Overloaded(String),
    /// This node cannot do it; nothing was sent.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReplicatedError {
    pub(crate) fn unknown_table(table: TableId) -> ReplicatedError {
        ReplicatedError::Store(StoreError::UnknownTable(table))
    }
}
