//! The crate's error: why a node does not come into its cluster.

use std::net::SocketAddr;

use stdx::{HostId, IoError};

/// Reason why a node is not, or is no more, a member of the cluster.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TopologyError {
    /// An address of the configuration is a name; names are resolved before the node starts.
    #[error("address \"{0}\" is not an IP address")]
    Address(String),
    /// A setting does not fit the machine.
    #[error("{0}")]
    Setting(String),
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The metadata log cannot be used.
    #[error("cannot open the metadata log: {0}")]
    Metadata(#[from] membership::log::OpenError),
    /// A change to the metadata failed.
    #[error("cannot write metadata: {0}")]
    Submit(#[from] membership::SubmitError),
    /// The identity file of this node cannot be used.
    #[error(
        "cannot use {path}: {what}; restore the file from a backup, or start with an empty data \
         directory to join as a new node"
    )]
    Identity {
        /// The file.
        path: String,
        /// Description of the fault.
        what: String,
    },
    /// No member was found to join through.
    #[error(
        "no seed is a member of a cluster, asked for 60 s: {detail}; start a seed first, or put \
         this node's own address first in seeds to found a cluster"
    )]
    Seeds {
        /// Each seed and its outcome.
        detail: String,
    },
    /// Another node does not accept this node's identity.
    #[error("refused by the node at {address}: {message}")]
    Refused {
        /// Address of the other node.
        address: SocketAddr,
        /// Its message: the cause and the remedy.
        message: String,
    },
    /// The cluster does not let this node in.
    #[error("cannot join the cluster through {through}: {detail}")]
    Join {
        /// The member or members asked.
        through: String,
        /// The reason.
        detail: String,
    },
    /// This node was a member and is none any more.
    #[error(
        "this node ({host}) is no member of the cluster any more: it was decommissioned or \
         removed; start with an empty data directory to join as a new node"
    )]
    Removed {
        /// Its host id.
        host: HostId,
    },
    /// The data of this node's ranges cannot be kept.
    #[error("cannot fetch data: {detail}")]
    Streaming {
        /// Description of the fault.
        detail: String,
    },
    /// A stop was requested while it joined.
    #[error("stopped before the node had joined; start it again to go on")]
    Stopped,
}

/// Result of the crate's operations.
pub type Result<T> = std::result::Result<T, TopologyError>;
