//! Conditional writes and serial reads: the driver of `paxos` for partitions.

use std::sync::Arc;

use cluster::{ClusterSnapshot, Consistency};
use data::command::ReadCommand;
use request::RequestError;
use stdx::{Instant, TimestampMicros};
use store::{ReadStats, RowSink, StoreError};

use crate::Coordinator;
use crate::cluster_parts::ReplicatedRead;

/// What a conditional write does with the rows that it finds. As a sink it is shown the rows of its
/// read, merged and live, each time that its condition is to be decided.
pub trait CasOperation: RowSink {
    /// Forgets what was shown: it is shown again, newer.
    fn restart(&mut self);

    /// Decides by what was shown since the last restart. `Some`: the condition holds, and this is the
    /// encoded mutation, all of it of the operation's partition and with that timestamp. `None`: it
    /// does not; what was shown is what the client is told.
    ///
    /// # Errors
    /// The condition or the values cannot be evaluated; nothing is written then.
    fn decide(&mut self, timestamp: TimestampMicros) -> Result<Option<Vec<u8>>, CasRefused>;
}

/// A condition that cannot be evaluated; the text is for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CasRefused(pub String);

/// A conditional write of one partition.
#[derive(Clone, Debug)]
pub struct CasOrder {
    /// The metadata it is planned with.
    pub snapshot: Arc<ClusterSnapshot>,
    /// All rows and columns of one partition that the conditions need.
    pub read: ReadCommand,
    /// `Global` for SERIAL, `Local` for LOCAL_SERIAL.
    pub scope: paxos::Scope,
    /// Who must have the write before it is acknowledged.
    pub commit: Consistency,
    /// False: the keyspace has `durable_writes = false`.
    pub durable: bool,
    /// When the client is answered at the latest while nothing is decided.
    pub deadline: Instant,
}

/// How a conditional write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CasOutcome {
    /// The condition held and the write is committed at the level that was asked for.
    Applied,
    /// It did not hold; nothing was written.
    NotApplied,
}

/// Why a conditional write or a serial read has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CasError {
    /// Without effect (`Unavailable`, or a timeout or failure at the serial level), or committed, but
    /// not at the level that was asked for (`WriteTimeout` of type `Cas` at the commit level).
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The write may have been applied, or not: CAS_WRITE_UNKNOWN.
    #[error("CAS operation result is unknown - proposal accepted by {received} but not a quorum.")]
    Unknown {
        /// Replicas that accepted it.
        received: u32,
        /// A quorum.
        required: u32,
    },
    /// See there.
    #[error(transparent)]
    Refused(#[from] CasRefused),
    /// Too many operations wait for the partition or the node; nothing was begun.
    #[error("{0}")]
    Overloaded(String),
    /// This node cannot do it; nothing was begun.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Coordinator {
    /// A conditional write: reads what the condition needs, decides and writes, linearizable with all
    /// conditional writes and serial reads of the partition at the same scope.
    ///
    /// # Errors
    /// See [`CasError`].
    pub async fn cas<O: CasOperation>(
        &self,
        order: CasOrder,
        operation: &mut O,
    ) -> Result<CasOutcome, CasError> {
        let _ = (order, operation);
        Err(CasError::Overloaded("conditional writes are not ready".to_owned()))
    }

    /// A read of one partition at SERIAL or LOCAL_SERIAL: sees every conditional write that ended
    /// before it began.
    ///
    /// # Errors
    /// See [`CasError`]; never `Unknown` or `Refused`. Rows may have been shown before an error.
    pub async fn read_serial<S: RowSink>(
        &self,
        command: &ReadCommand,
        order: &ReplicatedRead,
        scope: paxos::Scope,
        sink: &mut S,
    ) -> Result<ReadStats, CasError> {
        let _ = (command, order, scope, sink);
        Err(CasError::Overloaded("serial reads are not ready".to_owned()))
    }
}
