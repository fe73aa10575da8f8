//! Why a request failed, as the client is told.
//!
//! Owns the way from this node's errors to Cassandra's codes and texts. Never puts what is inside
//! the node (paths, sizes of budgets, the words of the operating system) into a message: that goes
//! to the log and, shortened to a cause and an error id, to the custom payload `helenus.error`.

use cluster::ReplicationError;
use cql_plan::{PlanError, PlanErrorCode};
use cql_wire::error_body::{ErrorBody, Failures};
use cql_wire::{
    Consistency, ErrorCode, FailureReason, FrameExtras, Opcode, ProtocolVersion, ResponseFrame,
    WireError, WriteType, response,
};
use membership::SubmitError;
use std::net::IpAddr;
use stdx::Uuid;
use store::StoreError;

/// A statement's failure: what Cassandra would say.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::enum_variant_names,
    reason = "ReadFailure and WriteFailure are the protocol's names"
)]
pub(crate) enum Failure {
    /// The request itself is malformed.
    Wire(WireError),
    /// The statement is wrong.
    Plan(PlanError),
    /// A code without fields.
    Plain(ErrorCode, String),
    /// Too few replicas.
    Unavailable { consistency: Consistency, required: i32, alive: i32 },
    /// EXECUTE or BATCH with an id that is not in the cache.
    Unprepared(Vec<u8>),
    /// The read did not end in time.
    ReadTimeout { consistency: Consistency },
    /// The write did not end in time.
    WriteTimeout { consistency: Consistency, write_type: WriteType },
    /// The read failed on its replica.
    ReadFailure { consistency: Consistency, reason: FailureReason, internal: Internal },
    /// The write failed on its replica.
    WriteFailure {
        consistency: Consistency,
        write_type: WriteType,
        reason: FailureReason,
        internal: Internal,
    },
    /// Something else went wrong on this node, with the code to tell it under.
    Internal(ErrorCode, String, Internal),
}

/// What is said beside the message: in the log with `detail`, in the payload without.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Internal {
    /// Names the log line.
    pub(crate) id: Uuid,
    /// A few words for the client.
    pub(crate) cause: &'static str,
}

/// What may fail with something to tell the client.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

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
    pub(crate) fn invalid(message: impl Into<String>) -> Failure {
        Failure::Plain(ErrorCode::Invalid, message.into())
    }

    /// 0x000A.
    pub(crate) fn protocol(message: impl Into<String>) -> Failure {
        Failure::Plain(ErrorCode::ProtocolError, message.into())
    }

    /// 0x1001.
    pub(crate) fn overloaded(message: impl Into<String>) -> Failure {
        Failure::Plain(ErrorCode::Overloaded, message.into())
    }

    /// A consistency level that cannot be had.
    pub(crate) fn replication(error: ReplicationError, asked: Consistency) -> Failure {
        match error {
            ReplicationError::Invalid(message) => Failure::invalid(message),
            ReplicationError::Unavailable(u) => Failure::Unavailable {
                consistency: asked,
                required: i32::try_from(u.required).unwrap_or(i32::MAX),
                alive: i32::try_from(u.alive).unwrap_or(i32::MAX),
            },
        }
    }

    /// A read that the store refused; `id` names the log line.
    pub(crate) fn read(error: &StoreError, consistency: Consistency, id: Uuid) -> Failure {
        let failure = |reason, cause| Failure::ReadFailure {
            consistency,
            reason,
            internal: Internal { id, cause },
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
            StoreError::Corrupt { .. } => failure(FailureReason::Unknown, "corrupt data file"),
            _ => failure(FailureReason::Unknown, "input or output error"),
        }
    }

    /// A write that the store refused; `id` names the log line.
    pub(crate) fn write(
        error: &StoreError,
        consistency: Consistency,
        write_type: WriteType,
        id: Uuid,
    ) -> Failure {
        let failure = |reason, cause| Failure::WriteFailure {
            consistency,
            write_type,
            reason,
            internal: Internal { id, cause },
        };
        match error {
            StoreError::Overloaded { .. } | StoreError::QueueFull => {
                Failure::overloaded("memtables are full and their flushes do not keep up")
            }
            StoreError::Stopping => Failure::overloaded("the node is stopping"),
            StoreError::UnknownTable(_) => {
                failure(FailureReason::IncompatibleSchema, "the table was dropped")
            }
            StoreError::DiskFull { .. } => failure(FailureReason::Unknown, "disk full"),
            StoreError::MutationTooLarge { .. } => Failure::invalid(error.to_string()),
            StoreError::LogFailed(_) => failure(FailureReason::Unknown, "commit log failed"),
            _ => failure(FailureReason::Unknown, "input or output error"),
        }
    }

    /// A metadata change that did not happen.
    pub(crate) fn submit(error: &SubmitError, id: Uuid) -> Failure {
        match error {
            SubmitError::Conflict(_) => {
                Failure::overloaded("the schema changes too often at the moment")
            }
            SubmitError::Rejected(e) => Failure::invalid(e.to_string()),
            SubmitError::Io(_) => Failure::Internal(
                ErrorCode::ServerError,
                "the metadata log cannot be written".to_owned(),
                Internal { id, cause: "metadata log failed" },
            ),
            SubmitError::Unavailable => {
                Failure::overloaded("the node cannot take metadata changes now")
            }
            SubmitError::TooLarge { .. } | SubmitError::Refused(_) => {
                Failure::invalid(error.to_string())
            }
            SubmitError::NoMajority { .. }
            | SubmitError::Unknown { .. }
            | SubmitError::Unreadable(_) => {
                Failure::Plain(ErrorCode::ServerError, error.to_string())
            }
        }
    }

    /// The code it is sent under.
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Failure::Wire(e) => e.code(),
            Failure::Plan(e) => match &e.code {
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
        }
    }

    /// What Cassandra says. `node` is the address of the replica that failed: this node.
    pub(crate) fn message(&self, node: IpAddr) -> String {
        match self {
            Failure::Wire(e) => e.to_string(),
            Failure::Plan(e) => e.message.clone(),
            Failure::Plain(_, message) | Failure::Internal(_, message, _) => message.clone(),
            Failure::Unavailable { consistency, .. } => {
                format!("Cannot achieve consistency level {consistency}")
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
            Failure::ReadFailure { reason, .. } | Failure::WriteFailure { reason, .. } => format!(
                "Operation failed - received 0 responses and 1 failures: {} from {}",
                reason.name(),
                display_address(node)
            ),
        }
    }

    /// Appends the ERROR frame.
    pub(crate) fn encode(
        &self,
        out: &mut Vec<u8>,
        version: ProtocolVersion,
        stream: i16,
        tracing_id: Option<Uuid>,
        node: IpAddr,
    ) -> std::result::Result<(), WireError> {
        let message = self.message(node);
        let body = self.body(node);
        let note =
            self.internal().map(|i| format!("{{\"id\":\"{}\",\"cause\":\"{}\"}}", i.id, i.cause));
        let payload = note.as_ref().map(|n| ("helenus.error", n.as_bytes()));
        let extras = FrameExtras { tracing_id, warnings: &[], custom_payload: payload.as_slice() };
        let mut frame = ResponseFrame::begin(out, version, stream, Opcode::Error, &extras)?;
        response::put_error(frame.body(), version, &body, &message)?;
        frame.finish()?;
        Ok(())
    }

    fn internal(&self) -> Option<&Internal> {
        match self {
            Failure::ReadFailure { internal, .. }
            | Failure::WriteFailure { internal, .. }
            | Failure::Internal(_, _, internal) => Some(internal),
            _ => None,
        }
    }

    fn body(&self, node: IpAddr) -> ErrorBody<'_> {
        let failures = |reason: FailureReason| Failures::Reasons(vec![(node, reason)]);
        match self {
            Failure::Plan(PlanError {
                code: PlanErrorCode::AlreadyExists { keyspace, table },
                ..
            }) => ErrorBody::AlreadyExists { keyspace, table },
            Failure::Plan(PlanError {
                code: PlanErrorCode::FunctionFailure { function }, ..
            }) => ErrorBody::FunctionFailure {
                keyspace: "system",
                function,
                argument_types: Vec::new(),
            },
            Failure::Unavailable { consistency, required, alive } => ErrorBody::Unavailable {
                consistency: *consistency,
                required: *required,
                alive: *alive,
            },
            Failure::Unprepared(id) => ErrorBody::Unprepared { id },
            Failure::ReadTimeout { consistency } => ErrorBody::ReadTimeout {
                consistency: *consistency,
                received: 0,
                block_for: 1,
                data_present: false,
            },
            Failure::WriteTimeout { consistency, write_type } => ErrorBody::WriteTimeout {
                consistency: *consistency,
                received: 0,
                block_for: 1,
                write_type: *write_type,
                contentions: None,
            },
            Failure::ReadFailure { consistency, reason, .. } => ErrorBody::ReadFailure {
                consistency: *consistency,
                received: 0,
                block_for: 1,
                failures: failures(*reason),
                data_present: false,
            },
            Failure::WriteFailure { consistency, write_type, reason, .. } => {
                ErrorBody::WriteFailure {
                    consistency: *consistency,
                    received: 0,
                    block_for: 1,
                    failures: failures(*reason),
                    write_type: *write_type,
                }
            }
            Failure::Wire(_) | Failure::Plan(_) | Failure::Plain(..) | Failure::Internal(..) => {
                ErrorBody::without_fields(self.code()).unwrap_or(ErrorBody::ServerError)
            }
        }
    }
}

/// As Java prints an address in these messages: `/127.0.0.1:7000` without the port we do not have.
fn display_address(node: IpAddr) -> String {
    format!("/{node}")
}
