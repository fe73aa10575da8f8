//! Errors from one side to the other: what a replica's trouble is to its coordinator, and how a
//! replica says it.

use internode::ErrorReply;
use messaging::MessagingError;
use request::ReplicaError;
use store::StoreError;

/// Translates the error of a request to a peer into one of the client's request.
pub fn replica_error(error: &MessagingError) -> ReplicaError {
    match error {
        MessagingError::UnknownHost(_)
        | MessagingError::Stopping
        | MessagingError::Unreachable { .. }
        | MessagingError::Refused { .. }
        | MessagingError::Lost { .. } => ReplicaError::NodeDown,
        MessagingError::Overloaded(_) => ReplicaError::Overloaded,
        MessagingError::Timeout { .. } => ReplicaError::Timeout,
        MessagingError::Remote(reply) => of_reply(reply),
        MessagingError::TooLarge { .. } | MessagingError::Malformed => ReplicaError::Unknown,
    }
}

/// Translates a peer's error reply.
pub fn of_reply(reply: &ErrorReply) -> ReplicaError {
    match reply {
        ErrorReply::Overloaded => ReplicaError::Overloaded,
        ErrorReply::UnknownTable(_)
        | ErrorReply::EpochTooOld { .. }
        | ErrorReply::EpochTooNew { .. } => ReplicaError::IncompatibleSchema,
        ErrorReply::TombstoneOverwhelming { .. } => ReplicaError::TooManyTombstones,
        ErrorReply::Stopping => ReplicaError::NodeDown,
        ErrorReply::Timeout => ReplicaError::Timeout,
        ErrorReply::DiskFull => ReplicaError::DiskFull,
        ErrorReply::Corrupt => ReplicaError::Corrupt,
        ErrorReply::Invalid(_) => ReplicaError::Refused,
        ErrorReply::IndexNotAvailable(_) => ReplicaError::IndexNotAvailable,
        ErrorReply::Internal(_) => ReplicaError::Failed,
        ErrorReply::UnknownVerb(_) | ErrorReply::Other(_) => ReplicaError::Unknown,
    }
}

/// Translates an error of this node's own store.
pub fn of_store(error: &StoreError) -> ReplicaError {
    of_reply(&error_reply(error))
}

/// Converts an error of this node, as a replica, to its reply.
pub fn error_reply(error: &StoreError) -> ErrorReply {
    match error {
        StoreError::UnknownTable(table) => ErrorReply::UnknownTable(*table),
        StoreError::Overloaded { .. } | StoreError::QueueFull | StoreError::Unflushable { .. } => {
            ErrorReply::Overloaded
        }
        StoreError::DiskFull { .. } => ErrorReply::DiskFull,
        StoreError::Corrupt { .. } => ErrorReply::Corrupt,
        StoreError::TombstoneFailure { scanned } => {
            ErrorReply::TombstoneOverwhelming { scanned: u64::from(*scanned) }
        }
        StoreError::IndexNotAvailable { index } => ErrorReply::IndexNotAvailable(*index),
        StoreError::Stopping => ErrorReply::Stopping,
        StoreError::MutationTooLarge { .. }
        | StoreError::Unwritable { .. }
        | StoreError::Unsupported(_)
        | StoreError::Invalid(_) => ErrorReply::Invalid(error.to_string()),
        StoreError::LogFailed(_) | StoreError::Io(_) => ErrorReply::Internal(error.to_string()),
    }
}

/// Converts the failure of a forwarding node to reach one of its targets to its reply.
pub fn of_forward(error: &MessagingError) -> ErrorReply {
    match error {
        MessagingError::Remote(reply) => reply.clone(),
        MessagingError::Overloaded(_) => ErrorReply::Overloaded,
        MessagingError::Timeout { .. } | MessagingError::Lost { maybe_delivered: true } => {
            ErrorReply::Timeout
        }
        // Nothing was done there, which is what this code says.
        MessagingError::UnknownHost(_)
        | MessagingError::Stopping
        | MessagingError::Unreachable { .. }
        | MessagingError::Refused { .. }
        | MessagingError::Lost { maybe_delivered: false } => ErrorReply::Stopping,
        MessagingError::TooLarge { .. } | MessagingError::Malformed => {
            ErrorReply::Internal(error.to_string())
        }
    }
}
