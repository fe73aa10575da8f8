//! Failures as ERROR frames, in Cassandra's codes and fields of each protocol version.

use cql_plan::{PlanError, PlanErrorCode};
use cql_wire::error_body::{ErrorBody, Failures};
use cql_wire::{
    FailureReason, FrameExtras, Opcode, ProtocolVersion, ResponseFrame, WireError, WriteType,
    response,
};
use query::{CasFailed, FailedKind, Failure, ReplicasFailed};
use std::net::SocketAddr;
use stdx::Uuid;

/// Fields of an ERROR frame that do not depend on the failure.
pub(crate) struct ErrorFrame<'f> {
    pub(crate) version: ProtocolVersion,
    pub(crate) stream: i16,
    pub(crate) tracing_id: Option<Uuid>,
    pub(crate) warnings: &'f [&'f str],
    /// This node's address for other nodes; names the failed replica if only this one was asked.
    pub(crate) node: SocketAddr,
}

/// Appends the ERROR frame.
pub(crate) fn encode(
    failure: &Failure,
    out: &mut Vec<u8>,
    about: &ErrorFrame<'_>,
) -> std::result::Result<(), WireError> {
    let &ErrorFrame { version, stream, tracing_id, warnings, node } = about;
    let message = failure.message(node);
    let body = body(failure, node);
    let note =
        failure.internal().map(|i| format!("{{\"id\":\"{}\",\"cause\":\"{}\"}}", i.id, i.cause));
    let payload = note.as_ref().map(|n| ("helenus.error", n.as_bytes()));
    let extras = FrameExtras { tracing_id, warnings, custom_payload: payload.as_slice() };
    let mut frame = ResponseFrame::begin(out, version, stream, Opcode::Error, &extras)?;
    response::put_error(frame.body(), version, &body, &message)?;
    frame.finish()?;
    Ok(())
}

fn body(failure: &Failure, node: SocketAddr) -> ErrorBody<'_> {
    let failures = |reason: FailureReason| Failures::Reasons(vec![(node.ip(), reason)]);
    match failure {
        Failure::Plan(PlanError {
            code: PlanErrorCode::AlreadyExists { keyspace, table }, ..
        }) => ErrorBody::AlreadyExists { keyspace, table },
        Failure::Plan(PlanError {
            code: PlanErrorCode::FunctionFailure { keyspace, function, args },
            ..
        })
        | Failure::Warned(
            PlanError { code: PlanErrorCode::FunctionFailure { keyspace, function, args }, .. },
            _,
        ) => ErrorBody::FunctionFailure {
            keyspace,
            function,
            argument_types: args.iter().map(String::as_str).collect(),
        },
        Failure::Unavailable { consistency, required, alive, .. } => {
            ErrorBody::Unavailable { consistency: *consistency, required: *required, alive: *alive }
        }
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
        Failure::WriteFailure { consistency, write_type, reason, .. } => ErrorBody::WriteFailure {
            consistency: *consistency,
            received: 0,
            block_for: 1,
            failures: failures(*reason),
            write_type: *write_type,
        },
        &Failure::CasUnknown(CasFailed { consistency, received, block_for }) => {
            ErrorBody::CasWriteUnknown { consistency, received, block_for }
        }
        Failure::Replicas(failed) => replicas_body(failed),
        Failure::Wire(_)
        | Failure::Plan(_)
        | Failure::Warned(..)
        | Failure::Plain(..)
        | Failure::Internal(..) => {
            ErrorBody::without_fields(failure.code()).unwrap_or(ErrorBody::ServerError)
        }
    }
}

fn replicas_body(failed: &ReplicasFailed) -> ErrorBody<'_> {
    let ReplicasFailed { kind, consistency, received, block_for, .. } = *failed;
    let reasons = || {
        let reasons = failed.failures.iter().map(|one| (one.address.ip(), one.reason));
        Failures::Reasons(reasons.collect())
    };
    match kind {
        FailedKind::ReadTimeout { data_present } => {
            ErrorBody::ReadTimeout { consistency, received, block_for, data_present }
        }
        FailedKind::ReadFailure { data_present } => ErrorBody::ReadFailure {
            consistency,
            received,
            block_for,
            failures: reasons(),
            data_present,
        },
        FailedKind::WriteTimeout(write_type) => ErrorBody::WriteTimeout {
            consistency,
            received,
            block_for,
            write_type,
            contentions: (write_type == WriteType::Cas).then_some(failed.contentions),
        },
        FailedKind::WriteFailure(write_type) => ErrorBody::WriteFailure {
            consistency,
            received,
            block_for,
            failures: reasons(),
            write_type,
        },
    }
}

#[cfg(test)]
mod tests;
