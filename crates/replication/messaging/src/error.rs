//! Why a request got no answer.

use internode::{ErrorReply, RefusalCode};
use std::sync::Arc;
use std::time::Duration;
use stdx::{HostId, IoError};

/// Why a request was not sent, or ended without a response.
///
/// `maybe_delivered` is false only when the peer surely did not get the whole request: sending it
/// again, there or elsewhere, cannot do it twice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessagingError {
    /// No address is known for the host (its own is not either).
    #[error("the host {0} is not known")]
    UnknownHost(HostId),
    /// A bound of this node; nothing was sent.
    #[error("{0}")]
    Overloaded(Bound),
    /// The message is above the limit; nothing was sent.
    #[error("a message of {length} bytes, the limit is {max}")]
    TooLarge {
        /// Its length.
        length: usize,
        /// The limit.
        max: usize,
    },
    /// This node is stopping; nothing was sent.
    #[error("this node is stopping")]
    Stopping,
    /// No connection; nothing was delivered. Requests before `retry_in` fail at once.
    #[error("cannot connect to the host {host}: {cause}")]
    Unreachable {
        /// The peer.
        host: HostId,
        /// When it will be tried again.
        retry_in: Duration,
        /// Cause of the last attempt's failure.
        cause: Arc<str>,
    },
    /// The peer refused the connection; nothing was delivered.
    #[error("the host {host} refused this node: {message}")]
    Refused {
        /// The peer.
        host: HostId,
        /// Why.
        code: RefusalCode,
        /// Why and what to do, in the peer's words.
        message: Arc<str>,
    },
    /// The connection ended before the response.
    #[error("the connection to the host was lost")]
    Lost {
        /// True if the peer may have received the request.
        maybe_delivered: bool,
    },
    /// The deadline passed.
    #[error("no answer before the deadline")]
    Timeout {
        /// True if the peer may have received the request.
        maybe_delivered: bool,
    },
    /// The peer's answer.
    #[error("{0}")]
    Remote(ErrorReply),
    /// The peer's error could not be read.
    #[error("the peer's error reply is malformed")]
    Malformed,
}

/// Which bound was hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bound {
    /// [`crate::Settings::in_flight_max`].
    #[error("too many requests to the host wait for their answers")]
    InFlight,
    /// [`crate::Settings::queue_bytes_max`].
    #[error("too many bytes wait to be sent to the host")]
    QueueBytes,
    /// [`crate::Settings::queue_bytes_shard_max`].
    #[error("too many bytes wait to be sent to other nodes")]
    QueueBytesOfShard,
    /// The stream ids are used up.
    #[error("too many requests to other nodes wait for their answers")]
    Streams,
}

/// Why [`crate::Messaging::discover`] found no node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The network.
    #[error(transparent)]
    Io(#[from] IoError),
    /// No answer in time.
    #[error("no answer in time")]
    Timeout,
    /// The peer closed the connection during the handshake.
    #[error("the peer closed the connection during the handshake")]
    Closed,
    /// The peer refused.
    #[error("refused: {message}")]
    Refused {
        /// Why.
        code: RefusalCode,
        /// Why and what to do, in the peer's words.
        message: Arc<str>,
    },
    /// No encrypted connection could be made, and one in the clear is not allowed.
    #[error("no encrypted connection: {0}")]
    NotEncrypted(String),
    /// The peer's answer was malformed, or from another node.
    #[error("the answer cannot be used: {0}")]
    BadAnswer(String),
    /// This node is stopping.
    #[error("this node is stopping")]
    Stopping,
}
