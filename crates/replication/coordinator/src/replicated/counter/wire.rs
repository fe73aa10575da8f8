//! Payloads of the verb `CounterMutation`: the request has version, level and mutation, the answer
//! the outcome.

use cluster::Consistency;
use codec::{DecodeError, Reader, Writer};
use request::types::Failures;
use request::{ReplicaError, RequestError, WriteType};
use stdx::{HostId, Uuid};

const VERSION: u8 = 1;
/// More replicas than any plan has.
const FAILURES_MAX: usize = 255;

/// Increments for their leader: version 1 · level u8 (as in the native protocol) · mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) consistency: Consistency,
    pub(crate) mutation: &'a [u8],
}

fn version(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    match reader.u8()? {
        VERSION => Ok(()),
        other => Err(reader.invalid(i64::from(other))),
    }
}

impl<'a> Message<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(VERSION);
        out.put_u8(self.consistency as u8);
        out.put_bytes(self.mutation);
    }

    pub(crate) fn decode(payload: &'a [u8]) -> Result<Message<'a>, DecodeError> {
        let mut reader = Reader::new(payload, "counter mutation");
        version(&mut reader)?;
        let level = reader.u8()?;
        let known = Consistency::ALL.into_iter().find(|c| *c as u8 == level);
        let consistency = known.ok_or_else(|| reader.invalid(i64::from(level)))?;
        Ok(Message { consistency, mutation: reader.rest() })
    }
}

/// Outcome of increments that a leader accepted: version 1 · kind u8 · fields. An error reply
/// instead means that the leader did nothing, or that the outcome is unknown (`did_nothing`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// 0: at the level.
    Done,
    /// 1: required u32, alive u32; nothing was done.
    Unavailable { required: u32, alive: u32 },
    /// 2: received u32, needed u32; they were added, and will reach the others.
    Timeout { received: u32, block_for: u32 },
    /// 3: received u32, needed u32, count u8 of (host 16, reason u16): likewise.
    Failure { received: u32, block_for: u32, failures: Failures },
}

impl Outcome {
    /// Converts an error of the leader's write.
    pub(crate) fn of(error: &RequestError) -> Outcome {
        match error {
            &RequestError::Unavailable { required, alive, .. }
            | &RequestError::UnavailableIn { required, alive, .. } => {
                Outcome::Unavailable { required, alive }
            }
            &RequestError::WriteTimeout { received, block_for, .. }
            | &RequestError::ReadTimeout { received, block_for, .. } => {
                Outcome::Timeout { received, block_for }
            }
            RequestError::WriteFailure { received, block_for, failures, .. }
            | RequestError::ReadFailure { received, block_for, failures, .. } => Outcome::Failure {
                received: *received,
                block_for: *block_for,
                failures: failures.clone(),
            },
        }
    }

    /// Converts the outcome to the error of the coordinator that sent the increments.
    pub(crate) fn result(self, consistency: Consistency) -> Result<(), RequestError> {
        let write_type = WriteType::Counter;
        Err(match self {
            Outcome::Done => return Ok(()),
            Outcome::Unavailable { required, alive } => {
                RequestError::Unavailable { consistency, required, alive }
            }
            Outcome::Timeout { received, block_for } => {
                RequestError::WriteTimeout { consistency, received, block_for, write_type }
            }
            Outcome::Failure { received, block_for, failures } => RequestError::WriteFailure {
                consistency,
                received,
                block_for,
                failures,
                write_type,
            },
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(VERSION);
        let mut pair = |kind, a: u32, b: u32| {
            out.put_u8(kind);
            out.put_u32(a);
            out.put_u32(b);
        };
        match self {
            Outcome::Done => out.put_u8(0),
            Outcome::Unavailable { required, alive } => pair(1, *required, *alive),
            Outcome::Timeout { received, block_for } => pair(2, *received, *block_for),
            Outcome::Failure { received, block_for, failures } => {
                pair(3, *received, *block_for);
                let failures = failures.iter().take(FAILURES_MAX);
                out.put_u8(u8::try_from(failures.len()).unwrap_or(u8::MAX));
                for (host, why) in failures {
                    out.put_bytes(host.0.as_bytes());
                    out.put_u16(code_of(*why));
                }
            }
        }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Outcome, DecodeError> {
        let mut reader = Reader::new(payload, "outcome of a counter mutation");
        version(&mut reader)?;
        let outcome = match reader.u8()? {
            0 => Outcome::Done,
            1 => Outcome::Unavailable { required: reader.u32()?, alive: reader.u32()? },
            2 => Outcome::Timeout { received: reader.u32()?, block_for: reader.u32()? },
            3 => {
                let (received, block_for) = (reader.u32()?, reader.u32()?);
                let mut failures = Failures::new();
                for _ in 0..reader.u8()? {
                    let host = reader.array::<16>()?;
                    failures.push((HostId(Uuid::from_bytes(host)), error_of(reader.u16()?)));
                }
                Outcome::Failure { received, block_for, failures }
            }
            other => return Err(reader.invalid(i64::from(other))),
        };
        reader.finish()?;
        Ok(outcome)
    }
}

/// Like [`ReplicaError::code`], with own codes for errors without one. A node of an earlier version
/// reads codes that it does not know as unknown.
fn code_of(error: ReplicaError) -> u16 {
    match error {
        ReplicaError::Overloaded => 0xffff,
        ReplicaError::DiskFull => 0xfffe,
        ReplicaError::Corrupt => 0xfffd,
        ReplicaError::Refused => 0xfffc,
        ReplicaError::Failed => 0xfffb,
        error => error.code(),
    }
}

fn error_of(code: u16) -> ReplicaError {
    use ReplicaError::{
        Corrupt, DiskFull, Failed, IncompatibleSchema, IndexNotAvailable, NodeDown, Overloaded,
        ReadSize, Refused, Timeout, TooManyIndexes, TooManyTombstones,
    };
    let known = [
        TooManyTombstones,
        Timeout,
        IncompatibleSchema,
        ReadSize,
        NodeDown,
        IndexNotAvailable,
        TooManyIndexes,
        Overloaded,
        DiskFull,
        Corrupt,
        Refused,
        Failed,
    ];
    known.into_iter().find(|e| code_of(*e) == code).unwrap_or(ReplicaError::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_of_a_failure_comes_back() {
        use ReplicaError::{
            Corrupt, DiskFull, Failed, NodeDown, Overloaded, Refused, Timeout, Unknown,
        };
        for error in [Unknown, Timeout, NodeDown, Overloaded, DiskFull, Corrupt, Refused, Failed] {
            assert_eq!(error_of(code_of(error)), error);
        }
        assert_eq!(error_of(0xfff0), Unknown, "of a later version");
    }
}
