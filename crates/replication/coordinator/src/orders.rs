//! The requests that go to several nodes, and why they fail.
//!
//! Owns: the types that other crates give and take. Never: decides anything.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::{ClusterSnapshot, Consistency};
use lwt::SerialRead;
use replica::{ReplicaMutation, RequestTrace};
use request::{RequestError, WriteType};
use stdx::{Instant, TableId, Uuid};
use store::StoreError;

/// A write for several nodes.
#[derive(Clone, Debug)]
pub struct ReplicatedWrite {
    /// The metadata it is planned and carried through with.
    pub snapshot: Arc<ClusterSnapshot>,
    /// Consistency level of the statement.
    pub consistency: Consistency,
    /// Write type that errors report.
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

/// Increments of one partition.
#[derive(Clone, Debug)]
pub struct CounterWrite {
    /// The metadata it begins with.
    pub snapshot: Arc<ClusterSnapshot>,
    /// Consistency level of the statement.
    pub consistency: Consistency,
    /// The mutation; its live cells are increments ([`data::counter::update`]).
    pub mutation: ReplicaMutation,
    /// When the client is answered at the latest.
    pub deadline: Instant,
}

/// Increments for this node to lead.
#[derive(Debug)]
pub struct Lead {
    pub(crate) write: CounterWrite,
    /// Other nodes have the data too.
    pub(crate) is_replicated: bool,
    /// Id of the request's trace, for the shard that leads.
    pub(crate) trace: Option<Uuid>,
}

/// Terms of a read of several nodes; its `ReadCommand` selects the rows.
#[derive(Clone, Debug)]
pub struct ReplicatedRead {
    /// The metadata it is planned and carried through with.
    pub snapshot: Arc<ClusterSnapshot>,
    /// Consistency level of the statement.
    pub consistency: Consistency,
    /// When the client is answered at the latest.
    pub deadline: Instant,
    /// For scans without an overall deadline: the timeout of each page of each range, used instead
    /// of the deadline.
    pub page_timeout: Option<Duration>,
    /// See [`crate::Local::read`].
    pub rows_wanted: usize,
    /// The limits of the statement that replicas need.
    pub limits: SelectLimits,
}

impl ReplicatedRead {
    /// Returns the terms of the same read at SERIAL or LOCAL_SERIAL.
    pub fn serial(&self, scope: paxos::Scope, trace: Option<Rc<RequestTrace>>) -> SerialRead {
        SerialRead {
            snapshot: self.snapshot.clone(),
            scope,
            deadline: self.deadline,
            rows_wanted: self.rows_wanted,
            rows_per_partition: self.limits.rows_per_partition,
            trace,
        }
    }

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
