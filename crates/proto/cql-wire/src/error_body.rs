//! The fields after code and message of an ERROR.
//!
//! Owns the fields of each code and the mapping of newer errors for older clients (`ErrorMessage` of
//! Cassandra).

use crate::constants::{Consistency, ErrorCode, FailureReason, WriteType};
use crate::error::Result;
use crate::primitive::{
    consistency, inet_address, put_count, put_inet_address, put_short_bytes, put_string,
    put_string_cut, put_string_list, short_bytes, string, string_list,
};
use crate::version::ProtocolVersion;
use codec::{Reader, Writer};
use core::net::IpAddr;

/// Replicas that failed a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failures {
    /// Their number (v4).
    Count(i32),
    /// Replicas and reasons (v5).
    Reasons(Vec<(IpAddr, FailureReason)>),
}

impl Failures {
    /// Returns their number.
    pub fn count(&self) -> i32 {
        match self {
            Failures::Count(count) => *count,
            Failures::Reasons(reasons) => i32::try_from(reasons.len()).unwrap_or(i32::MAX),
        }
    }

    fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<()> {
        if version < ProtocolVersion::V5 {
            out.put_i32(self.count());
            return Ok(());
        }
        // v5 cannot express a number without reasons.
        let reasons = match self {
            Failures::Count(_) => &[][..],
            Failures::Reasons(reasons) => reasons,
        };
        out.put_u16(0);
        put_count(out, reasons.len(), "failed replicas")?;
        for (address, reason) in reasons {
            put_inet_address(out, *address);
            out.put_u16(reason.number());
        }
        Ok(())
    }

    fn decode(r: &mut Reader<'_>, version: ProtocolVersion) -> Result<Failures> {
        if version < ProtocolVersion::V5 {
            return Ok(Failures::Count(r.i32()?));
        }
        let count = r.len_i32()?;
        let mut reasons = Vec::with_capacity(r.check_count(count, 7)?);
        for _ in 0..count {
            let address = inet_address(r)?;
            // A number from a newer server means no more than "unknown".
            reasons.push((
                address,
                FailureReason::from_number(r.u16()?).unwrap_or(FailureReason::Unknown),
            ));
        }
        Ok(Failures::Reasons(reasons))
    }
}

/// An error's code and the fields that go with it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are named as in the protocol, part 9")]
pub enum ErrorBody<'a> {
    /// Something unexpected on the server.
    ServerError,
    /// The client broke the protocol.
    ProtocolError,
    /// Authentication failed.
    BadCredentials,
    /// Too few live replicas.
    Unavailable { consistency: Consistency, required: i32, alive: i32 },
    /// The coordinator has too much to do.
    Overloaded,
    /// The coordinator is joining.
    IsBootstrapping,
    /// TRUNCATE failed.
    TruncateError,
    /// Too few replicas acknowledged in time. `contentions` only for `Cas` (v5).
    WriteTimeout {
        consistency: Consistency,
        received: i32,
        block_for: i32,
        write_type: WriteType,
        contentions: Option<u16>,
    },
    /// Too few replicas answered in time.
    ReadTimeout { consistency: Consistency, received: i32, block_for: i32, data_present: bool },
    /// Replicas failed the read (v4).
    ReadFailure {
        consistency: Consistency,
        received: i32,
        block_for: i32,
        failures: Failures,
        data_present: bool,
    },
    /// A user-defined function failed (v4).
    FunctionFailure { keyspace: &'a str, function: &'a str, argument_types: Vec<&'a str> },
    /// Replicas failed the write (v4).
    WriteFailure {
        consistency: Consistency,
        received: i32,
        block_for: i32,
        failures: Failures,
        write_type: WriteType,
    },
    /// The CDC log is full (v4).
    CdcWriteFailure,
    /// The outcome of the conditional write is unknown (v5).
    CasWriteUnknown { consistency: Consistency, received: i32, block_for: i32 },
    /// The statement cannot be parsed.
    SyntaxError,
    /// The user may not do that.
    Unauthorized,
    /// The statement makes no sense.
    Invalid,
    /// Bad options of a schema change.
    ConfigError,
    /// The object already exists; `table` is empty when it is the keyspace.
    AlreadyExists { keyspace: &'a str, table: &'a str },
    /// The prepared statement is not known here.
    Unprepared { id: &'a [u8] },
}

impl<'a> ErrorBody<'a> {
    /// An error that has no fields.
    ///
    /// `None` for codes that have.
    pub fn without_fields(code: ErrorCode) -> Option<ErrorBody<'static>> {
        Some(match code {
            ErrorCode::ServerError => ErrorBody::ServerError,
            ErrorCode::ProtocolError => ErrorBody::ProtocolError,
            ErrorCode::BadCredentials => ErrorBody::BadCredentials,
            ErrorCode::Overloaded => ErrorBody::Overloaded,
            ErrorCode::IsBootstrapping => ErrorBody::IsBootstrapping,
            ErrorCode::TruncateError => ErrorBody::TruncateError,
            ErrorCode::CdcWriteFailure => ErrorBody::CdcWriteFailure,
            ErrorCode::SyntaxError => ErrorBody::SyntaxError,
            ErrorCode::Unauthorized => ErrorBody::Unauthorized,
            ErrorCode::Invalid => ErrorBody::Invalid,
            ErrorCode::ConfigError => ErrorBody::ConfigError,
            ErrorCode::Unavailable
            | ErrorCode::WriteTimeout
            | ErrorCode::ReadTimeout
            | ErrorCode::ReadFailure
            | ErrorCode::FunctionFailure
            | ErrorCode::WriteFailure
            | ErrorCode::CasWriteUnknown
            | ErrorCode::AlreadyExists
            | ErrorCode::Unprepared => return None,
        })
    }

    /// Its code.
    pub fn code(&self) -> ErrorCode {
        match self {
            ErrorBody::ServerError => ErrorCode::ServerError,
            ErrorBody::ProtocolError => ErrorCode::ProtocolError,
            ErrorBody::BadCredentials => ErrorCode::BadCredentials,
            ErrorBody::Unavailable { .. } => ErrorCode::Unavailable,
            ErrorBody::Overloaded => ErrorCode::Overloaded,
            ErrorBody::IsBootstrapping => ErrorCode::IsBootstrapping,
            ErrorBody::TruncateError => ErrorCode::TruncateError,
            ErrorBody::WriteTimeout { .. } => ErrorCode::WriteTimeout,
            ErrorBody::ReadTimeout { .. } => ErrorCode::ReadTimeout,
            ErrorBody::ReadFailure { .. } => ErrorCode::ReadFailure,
            ErrorBody::FunctionFailure { .. } => ErrorCode::FunctionFailure,
            ErrorBody::WriteFailure { .. } => ErrorCode::WriteFailure,
            ErrorBody::CdcWriteFailure => ErrorCode::CdcWriteFailure,
            ErrorBody::CasWriteUnknown { .. } => ErrorCode::CasWriteUnknown,
            ErrorBody::SyntaxError => ErrorCode::SyntaxError,
            ErrorBody::Unauthorized => ErrorCode::Unauthorized,
            ErrorBody::Invalid => ErrorCode::Invalid,
            ErrorBody::ConfigError => ErrorCode::ConfigError,
            ErrorBody::AlreadyExists { .. } => ErrorCode::AlreadyExists,
            ErrorBody::Unprepared { .. } => ErrorCode::Unprepared,
        }
    }

    /// Returns the error that a client of this version gets instead, when its version does not have
    /// this one.
    fn for_version(&self, version: ProtocolVersion) -> Option<ErrorBody<'static>> {
        let v3 = version < ProtocolVersion::V4;
        let before_v5 = version < ProtocolVersion::V5;
        match *self {
            ErrorBody::ReadFailure { consistency, received, block_for, data_present, .. } if v3 => {
                Some(ErrorBody::ReadTimeout { consistency, received, block_for, data_present })
            }
            ErrorBody::WriteFailure { consistency, received, block_for, write_type, .. } if v3 => {
                Some(ErrorBody::WriteTimeout {
                    consistency,
                    received,
                    block_for,
                    write_type,
                    contentions: None,
                })
            }
            ErrorBody::FunctionFailure { .. } | ErrorBody::CdcWriteFailure if v3 => {
                Some(ErrorBody::Invalid)
            }
            ErrorBody::WriteTimeout {
                consistency,
                received,
                block_for,
                write_type,
                contentions: Some(_),
            } if before_v5 || write_type != WriteType::Cas => Some(ErrorBody::WriteTimeout {
                consistency,
                received,
                block_for,
                write_type,
                contentions: None,
            }),
            ErrorBody::CasWriteUnknown { consistency, received, block_for } if before_v5 => {
                let write_type = WriteType::Cas;
                Some(ErrorBody::WriteTimeout {
                    consistency,
                    received,
                    block_for,
                    write_type,
                    contentions: None,
                })
            }
            _ => None,
        }
    }

    /// Appends code, message and fields. A message above 65,535 bytes is cut.
    pub(crate) fn encode(
        &self,
        message: &str,
        version: ProtocolVersion,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if let Some(older) = self.for_version(version) {
            if older == ErrorBody::Invalid {
                // Cassandra names the error that the client does not know.
                return older.encode_as_is(
                    &format!("ERROR {}: {message}", self.code()),
                    version,
                    out,
                );
            }
            return older.encode_as_is(message, version, out);
        }
        self.encode_as_is(message, version, out)
    }

    fn encode_as_is(
        &self,
        message: &str,
        version: ProtocolVersion,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        out.put_i32(self.code().number());
        put_string_cut(out, message);
        let three = |out: &mut Vec<u8>, consistency: Consistency, a: i32, b: i32| {
            out.put_u16(consistency.number());
            out.put_i32(a);
            out.put_i32(b);
        };
        match self {
            ErrorBody::Unavailable { consistency, required, alive } => {
                three(out, *consistency, *required, *alive)
            }
            ErrorBody::WriteTimeout {
                consistency,
                received,
                block_for,
                write_type,
                contentions,
            } => {
                three(out, *consistency, *received, *block_for);
                put_string(out, write_type.name())?;
                // From v5 on a conditional write always has the number of its contentions.
                if version >= ProtocolVersion::V5 && *write_type == WriteType::Cas {
                    out.put_u16(contentions.unwrap_or(0));
                }
            }
            ErrorBody::ReadTimeout { consistency, received, block_for, data_present } => {
                three(out, *consistency, *received, *block_for);
                out.put_bool(*data_present);
            }
            ErrorBody::ReadFailure { consistency, received, block_for, failures, data_present } => {
                three(out, *consistency, *received, *block_for);
                failures.encode(version, out)?;
                out.put_bool(*data_present);
            }
            ErrorBody::WriteFailure { consistency, received, block_for, failures, write_type } => {
                three(out, *consistency, *received, *block_for);
                failures.encode(version, out)?;
                put_string(out, write_type.name())?;
            }
            ErrorBody::FunctionFailure { keyspace, function, argument_types } => {
                put_string(out, keyspace)?;
                put_string(out, function)?;
                put_string_list(out, argument_types)?;
            }
            ErrorBody::CasWriteUnknown { consistency, received, block_for } => {
                three(out, *consistency, *received, *block_for);
            }
            ErrorBody::AlreadyExists { keyspace, table } => {
                put_string(out, keyspace)?;
                put_string(out, table)?;
            }
            ErrorBody::Unprepared { id } => put_short_bytes(out, id)?,
            ErrorBody::ServerError
            | ErrorBody::ProtocolError
            | ErrorBody::BadCredentials
            | ErrorBody::Overloaded
            | ErrorBody::IsBootstrapping
            | ErrorBody::TruncateError
            | ErrorBody::CdcWriteFailure
            | ErrorBody::SyntaxError
            | ErrorBody::Unauthorized
            | ErrorBody::Invalid
            | ErrorBody::ConfigError => {}
        }
        Ok(())
    }

    /// Takes code, message and fields from the reader.
    pub(crate) fn decode(
        r: &mut Reader<'a>,
        version: ProtocolVersion,
    ) -> Result<(ErrorBody<'a>, &'a str)> {
        let code = ErrorCode::from_number(r.i32()?)?;
        let message = string(r)?;
        if let Some(body) = ErrorBody::without_fields(code) {
            return Ok((body, message));
        }
        let body = match code {
            ErrorCode::AlreadyExists => {
                ErrorBody::AlreadyExists { keyspace: string(r)?, table: string(r)? }
            }
            ErrorCode::Unprepared => ErrorBody::Unprepared { id: short_bytes(r)? },
            ErrorCode::FunctionFailure => ErrorBody::FunctionFailure {
                keyspace: string(r)?,
                function: string(r)?,
                argument_types: string_list(r)?,
            },
            _ => ErrorBody::decode_counts(r, code, version)?,
        };
        Ok((body, message))
    }

    /// The codes that begin with a consistency level and two numbers of replicas.
    fn decode_counts(
        r: &mut Reader<'a>,
        code: ErrorCode,
        version: ProtocolVersion,
    ) -> Result<ErrorBody<'a>> {
        let consistency = consistency(r)?;
        let received = r.i32()?;
        let block_for = r.i32()?;
        Ok(match code {
            ErrorCode::Unavailable => {
                ErrorBody::Unavailable { consistency, required: received, alive: block_for }
            }
            ErrorCode::WriteTimeout => {
                let write_type = WriteType::from_name(string(r)?)?;
                let counted = version >= ProtocolVersion::V5 && write_type == WriteType::Cas;
                let contentions = if counted { Some(r.u16()?) } else { None };
                ErrorBody::WriteTimeout {
                    consistency,
                    received,
                    block_for,
                    write_type,
                    contentions,
                }
            }
            ErrorCode::ReadTimeout => {
                ErrorBody::ReadTimeout { consistency, received, block_for, data_present: r.bool()? }
            }
            ErrorCode::ReadFailure => {
                let failures = Failures::decode(r, version)?;
                ErrorBody::ReadFailure {
                    consistency,
                    received,
                    block_for,
                    failures,
                    data_present: r.bool()?,
                }
            }
            ErrorCode::WriteFailure => {
                let failures = Failures::decode(r, version)?;
                let write_type = WriteType::from_name(string(r)?)?;
                ErrorBody::WriteFailure { consistency, received, block_for, failures, write_type }
            }
            _ => ErrorBody::CasWriteUnknown { consistency, received, block_for },
        })
    }
}
