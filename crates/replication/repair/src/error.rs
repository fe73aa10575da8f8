//! The crate's error.

use std::net::SocketAddr;

use store::StoreError;

/// Why a repair ended before its end. What was repaired until then stays; doing it again is safe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepairError {
    /// The metadata do not allow it, or the range is moving.
    #[error("{0}")]
    Scope(String),
    /// Replicas that do not live.
    #[error("Endpoint not alive: {}", addresses(.0))]
    NotAlive(Vec<SocketAddr>),
    /// The replicas of the ranges are others than they were at the start.
    #[error(
        "the replicas of the range changed while it was being repaired: nothing is lost, repair it \
         again when nodes have stopped joining, leaving or moving"
    )]
    Moved,
    /// A table was dropped.
    #[error("the table {0} was dropped")]
    Dropped(String),
    /// A table was emptied.
    #[error("the table {0} was truncated while it was being repaired")]
    Truncated(String),
    /// A replica failed, or answered nothing several times.
    #[error("Endpoint /{address} failed: {error}")]
    Peer {
        /// Which.
        address: SocketAddr,
        /// How.
        error: String,
    },
    /// A replica answered what it cannot have.
    #[error("Endpoint /{address} answered what was not asked: {error}")]
    Malformed {
        /// Which.
        address: SocketAddr,
        /// What.
        error: String,
    },
    /// This node's own data.
    #[error("this node failed: {0}")]
    Store(StoreError),
    /// The repair was cancelled.
    #[error("the repair was cancelled")]
    Aborted,
    /// This node is stopping.
    #[error("this node is stopping")]
    Stopping,
}

fn addresses(all: &[SocketAddr]) -> String {
    all.iter().map(|a| format!("/{a}")).collect::<Vec<_>>().join(", ")
}

impl From<StoreError> for RepairError {
    fn from(error: StoreError) -> RepairError {
        match error {
            StoreError::Stopping => RepairError::Stopping,
            error => RepairError::Store(error),
        }
    }
}
