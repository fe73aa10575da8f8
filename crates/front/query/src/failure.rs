//! Failures of requests, as the client gets them.
//!
//! Owns the translation of this node's errors to Cassandra's codes and texts. Internals of the node (paths,
//! sizes of budgets, messages of the operating system) never get into a message: they are logged. A cause in a
//! few words is in the message and, with the id of the log line, in the custom payload `helenus.error`.

use cluster::{ADDRESS_UNKNOWN, ClusterSnapshot, ReplicationError};
use coordinator::ReplicatedError;
use cql_plan::{PlanError, PlanErrorCode};
use cql_wire::{Consistency, ErrorCode, FailureReason, WireError, WriteType};
use membership::SubmitError;
use request::{ReplicaError, RequestError};
use std::net::SocketAddr;
use stdx::Uuid;
use store::StoreError;

/// A statement's failure, in Cassandra's terms.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The request itself is malformed.
    Wire(WireError),
    /// The statement is wrong.
    Plan(PlanError),
    /// A code without fields.
    Plain(ErrorCode, String),
    /// Too few replicas.
    Unavailable {
        /// The level.
        consistency: Consistency,
        /// Replicas that it needs.
        required: i32,
        /// Replicas that are alive.
        alive: i32,
        /// The datacenter, for EACH_QUORUM.
        datacenter: Option<String>,
    },
    /// EXECUTE or BATCH with an id that is not in the cache.
    Unprepared(Vec<u8>),
    /// The read did not end in time.
    ReadTimeout {
        /// The level.
        consistency: Consistency,
    },
    /// The write did not end in time.
    WriteTimeout {
        /// The level.
        consistency: Consistency,
        /// Kind of the write.
        write_type: WriteType,
    },
    /// The read failed on its replica.
    ReadFailure {
        /// The level.
        consistency: Consistency,
        /// Reason code of the protocol.
        reason: FailureReason,
        /// Details beside the reason code.
        internal: Internal,
    },
    /// The write failed on its replica.
    WriteFailure {
        /// The level.
        consistency: Consistency,
        /// Kind of the write.
        write_type: WriteType,
        /// Reason code of the protocol.
        reason: FailureReason,
        /// Details beside the reason code.
        internal: Internal,
    },
    /// A conditional write that may have been applied, or not.
    CasUnknown(CasFailed),
    /// The outcome of the answers of several nodes.
    Replicas(Box<ReplicasFailed>),
    /// The statement is wrong, which came out after the client was to be warned.
    Warned(PlanError, &'static str),
    /// Another failure on this node, with the code to report it under.
    Internal(ErrorCode, String, Internal),
}

/// A proposal that some replicas accepted, and no quorum.
#[derive(Clone, Debug, PartialEq)]
pub struct CasFailed {
    /// The serial level.
    pub consistency: Consistency,
    /// Replicas that accepted it.
    pub received: i32,
    /// A quorum.
    pub block_for: i32,
}

/// A request to several nodes that did not succeed.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicasFailed {
    /// Kind of the request.
    pub kind: FailedKind,
    /// Consistency level as the client named it.
    pub consistency: Consistency,
    /// Replicas that succeeded.
    pub received: i32,
    /// Replicas that the level needs.
    pub block_for: i32,
    /// The replicas that failed, and why. Empty: the deadline passed without a failure.
    pub failures: Vec<FailedReplica>,
    /// Rounds of a conditional write that were lost to others.
    pub contentions: u16,
}

/// A replica that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedReplica {
    /// Its address for other nodes.
    pub address: SocketAddr,
    /// Reason code of the protocol.
    pub reason: FailureReason,
    /// Cause that the reason code does not show.
    pub cause: Option<&'static str>,
}

/// Kind of request that failed on the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedKind {
    /// A read, whose time is over.
    ReadTimeout {
        /// The replica that was to send rows has sent them.
        data_present: bool,
    },
    /// A read.
    ReadFailure {
        /// See `ReadTimeout`.
        data_present: bool,
    },
    /// A write, whose time is over.
    WriteTimeout(WriteType),
    /// A write.
    WriteFailure(WriteType),
}

/// Details beside the message: the log shows them with `detail`, the payload without.
#[derive(Clone, Debug, PartialEq)]
pub struct Internal {
    /// Names the log line.
    pub id: Uuid,
    /// A few words for the client.
    pub cause: &'static str,
    /// The store's error that caused it, for the node itself: it names files.
    pub error: Option<Box<StoreError>>,
}

/// Result of a request step; its error can be reported to the client.
pub type Result<T> = std::result::Result<T, Failure>;

impl From<WireError> for Failure {
    fn from(error: WireError) -> Failure {
        Failure::Wire(error)
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Failure {
        Failure::Plan(error)
    }
}

impl Failure {
    /// 0x2200.
    pub fn invalid(message: impl Into<String>) -> Failure {
        Failure::Plain(ErrorCode::Invalid, message.into())
    }

    /// 0x000A.
    pub fn protocol(message: impl Into<String>) -> Failure {
        Failure::Plain(ErrorCode::ProtocolError, message.into())
    }

    /// 0x1001.
    pub fn overloaded(message: impl Into<String>) -> Failure {
        Failure::Plain(ErrorCode::Overloaded, message.into())
    }

    /// A consistency level that cannot be had.
    pub fn replication(error: ReplicationError, asked: Consistency) -> Failure {
        match error {
            ReplicationError::Invalid(message) => Failure::invalid(message),
            ReplicationError::Unavailable(u) => Failure::Unavailable {
                consistency: asked,
                required: i32::try_from(u.required).unwrap_or(i32::MAX),
                alive: i32::try_from(u.alive).unwrap_or(i32::MAX),
                datacenter: u.datacenter,
            },
        }
    }

    /// A read that the store refused; `id` names the log line.
    pub fn read(error: &StoreError, consistency: Consistency, id: Uuid) -> Failure {
        let failure = |reason, cause| Failure::ReadFailure {
            consistency,
            reason,
            internal: Internal { id, cause, error: Some(Box::new(error.clone())) },
        };
        match error {
            StoreError::TombstoneFailure { .. } => {
                failure(FailureReason::ReadTooManyTombstones, "too many tombstones")
            }
            StoreError::UnknownTable(_) => {
                failure(FailureReason::IncompatibleSchema, "the table was dropped")
            }
            StoreError::Overloaded { .. } | StoreError::QueueFull => {
                Failure::overloaded("the shard that owns the data has too many requests waiting")
            }
            StoreError::Stopping => Failure::overloaded("the node is stopping"),
            StoreError::IndexNotAvailable { .. } => {
                failure(FailureReason::IndexNotAvailable, "the index is not built yet")
            }
            StoreError::Corrupt { .. } => failure(FailureReason::Unknown, "a data file is damaged"),
            _ => failure(FailureReason::Unknown, "a file could not be read or written"),
        }
    }

    /// A write that the store refused; `id` names the log line.
    pub fn write(
        error: &StoreError,
        consistency: Consistency,
        write_type: WriteType,
        id: Uuid,
    ) -> Failure {
        let failure = |reason, cause| Failure::WriteFailure {
            consistency,
            write_type,
            reason,
            internal: Internal { id, cause, error: Some(Box::new(error.clone())) },
        };
        match error {
            StoreError::Overloaded { .. } | StoreError::QueueFull => {
                Failure::overloaded("memtables are full and their flushes do not keep up")
            }
            StoreError::Stopping => Failure::overloaded("the node is stopping"),
            StoreError::UnknownTable(_) => {
                failure(FailureReason::IncompatibleSchema, "the table was dropped")
            }
            StoreError::DiskFull { .. } => failure(FailureReason::Unknown, "its disk is full"),
            StoreError::MutationTooLarge { .. } => Failure::invalid(error.to_string()),
            StoreError::Unwritable { what, .. } => Failure::invalid(what.clone()),
            StoreError::Unflushable { .. } => Failure::overloaded(error.to_string()),
            StoreError::LogFailed(_) => failure(FailureReason::Unknown, "its commit log failed"),
            _ => failure(FailureReason::Unknown, "a file could not be read or written"),
        }
    }

    /// A write to several nodes that was not acknowledged. `asked` is the level that the client
    /// named, `id` names the log line.
    pub fn replicated(
        error: ReplicatedError,
        asked: Consistency,
        write_type: WriteType,
        snapshot: &ClusterSnapshot,
        id: impl FnOnce(&StoreError) -> Uuid,
    ) -> Failure {
        match error {
            ReplicatedError::Request(error) => Failure::request(error, asked, snapshot),
            ReplicatedError::Overloaded(message) => Failure::overloaded(message),
            ReplicatedError::Store(error) => {
                let id = id(&error);
                Failure::write(&error, asked, write_type, id)
            }
        }
    }

    /// Converts the error of a state machine of `request`. A serial read is executed at another
    /// level; the client gets the level that it asked for.
    pub fn request(error: RequestError, asked: Consistency, snapshot: &ClusterSnapshot) -> Failure {
        let count = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        let is_serial = matches!(asked, Consistency::Serial | Consistency::LocalSerial);
        let level = |used: cluster::Consistency| match Consistency::from_number(used as u16) {
            Ok(level) if !is_serial => level,
            _ => asked,
        };
        let (kind, consistency, received, block_for, failed) = match error {
            RequestError::Unavailable { consistency, required, alive } => {
                return Failure::Unavailable {
                    consistency: level(consistency),
                    required: count(required),
                    alive: count(alive),
                    datacenter: None,
                };
            }
            RequestError::UnavailableIn { consistency, datacenter, required, alive } => {
                return Failure::Unavailable {
                    consistency: level(consistency),
                    required: count(required),
                    alive: count(alive),
                    datacenter: Some(datacenter.to_string()),
                };
            }
            RequestError::WriteTimeout { consistency, received, block_for, write_type } => {
                let kind = FailedKind::WriteTimeout(type_of_write(write_type));
                (kind, consistency, received, block_for, <_>::default())
            }
            RequestError::WriteFailure {
                consistency,
                received,
                block_for,
                failures,
                write_type,
            } => {
                let kind = FailedKind::WriteFailure(type_of_write(write_type));
                (kind, consistency, received, block_for, failures)
            }
            RequestError::ReadTimeout { consistency, received, block_for, data_present } => {
                let kind = FailedKind::ReadTimeout { data_present };
                (kind, consistency, received, block_for, <_>::default())
            }
            RequestError::ReadFailure {
                consistency,
                received,
                block_for,
                failures,
                data_present,
            } => {
                let kind = FailedKind::ReadFailure { data_present };
                (kind, consistency, received, block_for, failures)
            }
        };
        let address = |host| snapshot.members.get(host).map_or(ADDRESS_UNKNOWN, |m| m.storage);
        Failure::Replicas(Box::new(ReplicasFailed {
            kind,
            consistency: level(consistency),
            received: count(received),
            block_for: count(block_for),
            failures: failed
                .iter()
                .map(|(host, why)| FailedReplica {
                    address: address(host),
                    reason: reason_of(*why),
                    cause: why.cause(),
                })
                .collect(),
            contentions: 0,
        }))
    }

    /// A metadata change that did not happen.
    pub fn submit(error: &SubmitError, id: Uuid) -> Failure {
        match error {
            SubmitError::Conflict(_) => {
                Failure::overloaded("the schema changes too often at the moment")
            }
            SubmitError::Rejected(e) => Failure::invalid(e.to_string()),
            SubmitError::Io(_) => Failure::Internal(
                ErrorCode::ServerError,
                "the metadata log cannot be written".to_owned(),
                Internal { id, cause: "metadata log failed", error: None },
            ),
            SubmitError::Unavailable => {
                Failure::overloaded("the node cannot take metadata changes now")
            }
            SubmitError::TooLarge { .. } | SubmitError::Refused(_) => {
                Failure::invalid(error.to_string())
            }
            SubmitError::NoMajority { .. }
            | SubmitError::Unknown { .. }
            | SubmitError::VoterCannot(_)
            | SubmitError::VoterUnsure(_)
            | SubmitError::Unreadable(_) => {
                Failure::Plain(ErrorCode::ServerError, error.to_string())
            }
        }
    }

    /// The code it is sent under.
    pub fn code(&self) -> ErrorCode {
        match self {
            Failure::Wire(e) => e.code(),
            Failure::Plan(e) | Failure::Warned(e, _) => match &e.code {
                PlanErrorCode::Syntax => ErrorCode::SyntaxError,
                PlanErrorCode::Unauthorized => ErrorCode::Unauthorized,
                PlanErrorCode::Invalid => ErrorCode::Invalid,
                PlanErrorCode::Config => ErrorCode::ConfigError,
                PlanErrorCode::AlreadyExists { .. } => ErrorCode::AlreadyExists,
                PlanErrorCode::Protocol => ErrorCode::ProtocolError,
                PlanErrorCode::FunctionFailure { .. } => ErrorCode::FunctionFailure,
            },
            Failure::Plain(code, _) | Failure::Internal(code, ..) => *code,
            Failure::Unavailable { .. } => ErrorCode::Unavailable,
            Failure::Unprepared(_) => ErrorCode::Unprepared,
            Failure::ReadTimeout { .. } => ErrorCode::ReadTimeout,
            Failure::WriteTimeout { .. } => ErrorCode::WriteTimeout,
            Failure::ReadFailure { .. } => ErrorCode::ReadFailure,
            Failure::WriteFailure { .. } => ErrorCode::WriteFailure,
            Failure::CasUnknown(_) => ErrorCode::CasWriteUnknown,
            Failure::Replicas(failed) => match failed.kind {
                FailedKind::ReadTimeout { .. } => ErrorCode::ReadTimeout,
                FailedKind::ReadFailure { .. } => ErrorCode::ReadFailure,
                FailedKind::WriteTimeout(_) => ErrorCode::WriteTimeout,
                FailedKind::WriteFailure(_) => ErrorCode::WriteFailure,
            },
        }
    }

    /// Returns Cassandra's text. `node` is this node's address for other nodes: it is the replica
    /// that failed where only this node was asked.
    pub fn message(&self, node: SocketAddr) -> String {
        match self {
            Failure::Wire(e) => e.to_string(),
            Failure::Plan(e) | Failure::Warned(e, _) => e.message.clone(),
            Failure::Plain(_, message) | Failure::Internal(_, message, _) => message.clone(),
            Failure::Unavailable { consistency, datacenter: None, .. } => {
                format!("Cannot achieve consistency level {consistency}")
            }
            Failure::Unavailable { consistency, datacenter: Some(datacenter), .. } => {
                format!("Cannot achieve consistency level {consistency} in DC {datacenter}")
            }
            Failure::Unprepared(id) => {
                let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();
                format!(
                    "Prepared query with ID {hex} not found (either the query was not prepared on \
                     this host (maybe the host has been restarted?) or you have prepared too many \
                     queries and it has been evicted from the internal cache)"
                )
            }
            Failure::ReadTimeout { .. } | Failure::WriteTimeout { .. } => {
                "Operation timed out - received only 0 responses.".to_owned()
            }
            Failure::ReadFailure { reason, internal, .. }
            | Failure::WriteFailure { reason, internal, .. } => {
                // The other reasons name the cause themselves.
                let has_cause = matches!(reason, FailureReason::Unknown | FailureReason::ReadSize);
                let cause = has_cause.then_some(internal.cause);
                failed_text(0, &[FailedReplica { address: node, reason: *reason, cause }])
            }
            Failure::CasUnknown(failed) => format!(
                "CAS operation result is unknown - proposal accepted by {} but not a quorum.",
                failed.received
            ),
            Failure::Replicas(failed) => match failed.kind {
                FailedKind::WriteTimeout(WriteType::Cas) => format!(
                    "CAS operation timed out: received {} of {} required responses after {} \
                     contention retries",
                    failed.received, failed.block_for, failed.contentions
                ),
                FailedKind::ReadTimeout { .. } | FailedKind::WriteTimeout(_) => {
                    let received = failed.received;
                    format!("Operation timed out - received only {received} responses.")
                }
                FailedKind::ReadFailure { .. } | FailedKind::WriteFailure(_) => {
                    failed_text(failed.received, &failed.failures)
                }
            },
        }
    }

    /// Returns the details beside the message, if any.
    pub fn internal(&self) -> Option<&Internal> {
        match self {
            Failure::ReadFailure { internal, .. }
            | Failure::WriteFailure { internal, .. }
            | Failure::Internal(_, _, internal) => Some(internal),
            _ => None,
        }
    }

    /// Returns the store's error that caused the failure, if the store failed.
    pub fn store_error(&self) -> Option<&StoreError> {
        self.internal().and_then(|internal| internal.error.as_deref())
    }
}

/// Cassandra's `RequestFailureException`, with the cause in parentheses where the reason does not
/// show it. Addresses are printed as Java does: `/127.0.0.1:7000`.
fn failed_text(received: i32, failures: &[FailedReplica]) -> String {
    let mut text =
        format!("Operation failed - received {received} responses and {} failures", failures.len());
    for (i, FailedReplica { address, reason, cause }) in failures.iter().enumerate() {
        text.push_str(if i == 0 { ": " } else { ", " });
        text.push_str(&format!("{} from /{address}", reason.name()));
        if let Some(cause) = cause {
            text.push_str(&format!(" ({cause})"));
        }
    }
    text
}

/// A level in the words of `cluster`.
pub fn level(consistency: Consistency) -> cluster::Consistency {
    match consistency {
        Consistency::Any => cluster::Consistency::Any,
        Consistency::One => cluster::Consistency::One,
        Consistency::Two => cluster::Consistency::Two,
        Consistency::Three => cluster::Consistency::Three,
        Consistency::Quorum => cluster::Consistency::Quorum,
        Consistency::All => cluster::Consistency::All,
        Consistency::LocalQuorum => cluster::Consistency::LocalQuorum,
        Consistency::EachQuorum => cluster::Consistency::EachQuorum,
        Consistency::Serial => cluster::Consistency::Serial,
        Consistency::LocalSerial => cluster::Consistency::LocalSerial,
        Consistency::LocalOne => cluster::Consistency::LocalOne,
        Consistency::NodeLocal => cluster::Consistency::NodeLocal,
    }
}

fn type_of_write(write_type: request::WriteType) -> WriteType {
    match write_type {
        request::WriteType::Simple => WriteType::Simple,
        request::WriteType::Batch => WriteType::Batch,
        request::WriteType::UnloggedBatch => WriteType::UnloggedBatch,
        request::WriteType::Counter => WriteType::Counter,
        request::WriteType::BatchLog => WriteType::BatchLog,
        request::WriteType::Cas => WriteType::Cas,
        request::WriteType::View => WriteType::View,
        request::WriteType::Cdc => WriteType::Cdc,
    }
}

fn reason_of(error: ReplicaError) -> FailureReason {
    // Its codes are the protocol's.
    FailureReason::from_number(error.code()).unwrap_or(FailureReason::Unknown)
}

#[cfg(test)]
mod tests;
