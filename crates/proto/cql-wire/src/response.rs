//! Bodies of responses: appended by servers, decoded by clients. Rows are written by `rows`.

use crate::collections::BytesMap;
use crate::constants::{ErrorCode, Opcode};
use crate::error::{FrameError, Result, WireError};
use crate::error_body::ErrorBody;
use crate::event::{Event, SchemaChange};
use crate::frame::{Frame, FrameExtras, RESPONSE_BIT, ResponseFrame, flags, put_header};
use crate::metadata::{
    ColumnsBlock, PreparedMetadata, ResultMetadata, put_prepared_metadata, put_result_metadata,
};
use crate::primitive::{
    bytes, put_bytes, put_count, put_short_bytes, put_string, put_string_cut, put_string_list,
    short_bytes, string, string_list, uuid,
};
use crate::version::{Negotiated, ProtocolVersion};
use codec::{Reader, Writer};
use stdx::Uuid;

/// First number of a RESULT.
pub(crate) mod result_kind {
    pub(crate) const VOID: i32 = 1;
    pub(crate) const ROWS: i32 = 2;
    pub(crate) const SET_KEYSPACE: i32 = 3;
    pub(crate) const PREPARED: i32 = 4;
    pub(crate) const SCHEMA_CHANGE: i32 = 5;
}

/// Contents of PREPARED, for encoding.
#[derive(Clone, Copy, Debug)]
pub struct PreparedResponse<'a> {
    /// Id to EXECUTE with.
    pub id: &'a [u8],
    /// Id of the result's description; written where ids are in use.
    pub result_metadata_id: &'a [u8],
    /// The bind markers.
    pub markers: &'a ColumnsBlock,
    /// Positions of the markers of the partition key, in its order; empty when not all are bound.
    pub partition_key_indexes: &'a [u16],
    /// The mark for conditional statements ([`crate::scylla::LWT_MARK`]) or 0.
    pub extra_flags: u32,
    /// The columns of the result; `None` for statements that return none.
    pub columns: Option<&'a ColumnsBlock>,
}

/// Appends one response frame whose body `write` fills.
///
/// # Errors
/// The errors of `write`, `TooLong`; nothing is left in `out`.
pub fn encode_frame(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    stream: i16,
    opcode: Opcode,
    extras: &FrameExtras<'_>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    let mut frame = ResponseFrame::begin(out, version, stream, opcode, extras)?;
    write(frame.body())?;
    frame.finish()?;
    Ok(())
}

/// Appends the body of an ERROR. A message above 65,535 bytes is cut; errors that the version does not have become
/// the ones that Cassandra uses instead.
///
/// # Errors
/// `TooLong` for names that do not fit.
pub fn put_error(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    error: &ErrorBody<'_>,
    message: &str,
) -> Result<()> {
    error.encode(message, version, out)
}

/// Appends the whole frame that answers a [`FrameError`] or a request that cannot be decoded. Before v3 the header has
/// eight bytes. It is not in a segment: in v5 after STARTUP it goes through [`crate::pack_segments`] as every frame.
pub fn encode_frame_error(out: &mut Vec<u8>, error: &FrameError) {
    let start = out.len();
    let first = error.reply_version | RESPONSE_BIT;
    if error.reply_version < 3 {
        let [_, stream] = error.stream.to_be_bytes();
        out.put_bytes(&[first, 0, stream, Opcode::Error.number(), 0, 0, 0, 0]);
    } else {
        let version = ProtocolVersion::from_number(error.reply_version);
        let beta = version.is_ok_and(ProtocolVersion::is_beta);
        let bits = if beta { flags::USE_BETA } else { 0 };
        put_header(out, first, bits, error.stream, Opcode::Error, 0);
    }
    let body_at = out.len();
    out.put_i32(error.error.code().number());
    put_string_cut(out, &error.error.to_string());
    let length = u32::try_from(out.len().saturating_sub(body_at)).unwrap_or(u32::MAX);
    out.patch_u32(body_at.saturating_sub(4).max(start), length);
}

/// Appends the body of AUTHENTICATE: the class name of the authenticator.
///
/// # Errors
/// `TooLong`.
pub fn put_authenticate(out: &mut Vec<u8>, authenticator: &str) -> Result<()> {
    put_string(out, authenticator)
}

/// Appends the body of AUTH_CHALLENGE or AUTH_SUCCESS.
///
/// # Errors
/// `TooLong`.
pub fn put_auth_token(out: &mut Vec<u8>, token: Option<&[u8]>) -> Result<()> {
    put_bytes(out, token)
}

/// Appends the body of SUPPORTED.
///
/// # Errors
/// `TooLong`.
pub fn put_supported<S: AsRef<str>>(out: &mut Vec<u8>, options: &[(&str, Vec<S>)]) -> Result<()> {
    put_count(out, options.len(), "supported options")?;
    options.iter().try_for_each(|(key, values)| {
        put_string(out, key)?;
        put_string_list(out, values)
    })
}

/// Appends the body of an EVENT. Its frame has stream -1.
///
/// # Errors
/// `TooLong`.
pub fn put_event(out: &mut Vec<u8>, version: ProtocolVersion, event: &Event<'_>) -> Result<()> {
    event.encode(version, out)
}

/// Appends the body of a RESULT without content.
pub fn put_void(out: &mut Vec<u8>) {
    out.put_i32(result_kind::VOID);
}

/// Appends the body of a RESULT of USE.
///
/// # Errors
/// `TooLong`.
pub fn put_set_keyspace(out: &mut Vec<u8>, keyspace: &str) -> Result<()> {
    out.put_i32(result_kind::SET_KEYSPACE);
    put_string(out, keyspace)
}

/// Appends the body of a RESULT of a schema change.
///
/// # Errors
/// `TooLong`.
pub fn put_schema_change(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    change: &SchemaChange<'_>,
) -> Result<()> {
    out.put_i32(result_kind::SCHEMA_CHANGE);
    change.encode(version, out)
}

/// Appends the body of a RESULT of PREPARE.
///
/// # Errors
/// `TooLong`.
pub fn put_prepared(
    out: &mut Vec<u8>,
    negotiated: Negotiated,
    prepared: &PreparedResponse<'_>,
) -> Result<()> {
    out.put_i32(result_kind::PREPARED);
    put_short_bytes(out, prepared.id)?;
    if negotiated.has_metadata_id() {
        put_short_bytes(out, prepared.result_metadata_id)?;
    }
    let extra_flags = if negotiated.lwt_mark { prepared.extra_flags } else { 0 };
    let indexes = prepared.partition_key_indexes;
    put_prepared_metadata(out, prepared.markers, indexes, extra_flags, negotiated.version)?;
    let none = ColumnsBlock::default();
    let columns = prepared.columns.unwrap_or(&none);
    put_result_metadata(out, columns, prepared.columns.is_none(), None, None)?;
    Ok(())
}

/// One response, borrowed from its frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// Id of the trace that was started.
    pub tracing_id: Option<Uuid>,
    /// Warnings.
    pub warnings: Vec<&'a str>,
    /// Custom payload.
    pub custom_payload: Option<BytesMap<'a>>,
    /// The response itself.
    pub body: ResponseBody<'a>,
}

/// A server's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponseBody<'a> {
    /// Something went wrong.
    Error {
        /// Code and fields.
        error: ErrorBody<'a>,
        /// Message.
        message: &'a str,
    },
    /// The connection can be used.
    Ready,
    /// Credentials first.
    Authenticate(&'a str),
    /// The options of STARTUP.
    Supported(Vec<(&'a str, Vec<&'a str>)>),
    /// Done, without a result.
    Void,
    /// Rows.
    Rows(Rows<'a>),
    /// The keyspace is used from now on.
    SetKeyspace(&'a str),
    /// Prepared.
    Prepared(Prepared<'a>),
    /// The schema changed.
    SchemaChange(SchemaChange<'a>),
    /// Something happened.
    Event(Event<'a>),
    /// Next step of authentication.
    AuthChallenge(Option<&'a [u8]>),
    /// Authenticated.
    AuthSuccess(Option<&'a [u8]>),
}

/// A prepared statement, as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared<'a> {
    /// Id to EXECUTE with.
    pub id: &'a [u8],
    /// Id of the result's description, where ids are in use.
    pub result_metadata_id: Option<&'a [u8]>,
    /// The bind markers.
    pub metadata: PreparedMetadata<'a>,
    /// The result.
    pub result_metadata: ResultMetadata<'a>,
}

/// A page of rows, checked, as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows<'a> {
    /// The columns.
    pub metadata: ResultMetadata<'a>,
    row_count: u32,
    content: &'a [u8],
}

impl<'a> Rows<'a> {
    fn decode(r: &mut Reader<'a>, negotiated: Negotiated) -> Result<Rows<'a>> {
        let metadata = ResultMetadata::decode(r, negotiated)?;
        let at = *r;
        let rows = r.len_i32()?;
        let start = r.peek_rest();
        let from = r.position();
        if metadata.column_count == 0 && rows > 0 {
            // Rows without columns take no bytes: their number could be any.
            return Err(at.invalid(i64::try_from(rows).unwrap_or(i64::MAX)).into());
        }
        for _ in 0..rows {
            for _ in 0..metadata.column_count {
                bytes(r)?;
            }
        }
        let length = r.position().saturating_sub(from);
        let content = start.get(..length).unwrap_or_default();
        Ok(Rows { metadata, row_count: u32::try_from(rows).unwrap_or(u32::MAX), content })
    }

    /// Number of rows.
    pub fn row_count(&self) -> u32 {
        self.row_count
    }

    /// All values, row by row: `column_count` of them per row.
    pub fn values(&self) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        let mut r = Reader::new(self.content, "rows");
        std::iter::from_fn(move || if r.is_empty() { None } else { bytes(&mut r).ok() })
    }
}

impl<'a> Response<'a> {
    /// Decodes the body of a frame. Bytes after the last field are ignored.
    ///
    /// # Errors
    /// Anything cut short or out of range.
    pub fn decode(frame: &Frame<'a>, negotiated: Negotiated) -> Result<Response<'a>> {
        let header = frame.header;
        let mut r = Reader::new(frame.body, header.opcode.name());
        let tracing_id = if header.has(flags::TRACING) { Some(uuid(&mut r)?) } else { None };
        let warnings = if header.has(flags::WARNING) { string_list(&mut r)? } else { Vec::new() };
        let custom_payload =
            if header.has(flags::CUSTOM_PAYLOAD) { Some(BytesMap::decode(&mut r)?) } else { None };
        let negotiated = Negotiated { version: header.version, ..negotiated };
        let body = ResponseBody::decode(&mut r, header.opcode, negotiated)?;
        Ok(Response { tracing_id, warnings, custom_payload, body })
    }
}

impl<'a> ResponseBody<'a> {
    fn decode(
        r: &mut Reader<'a>,
        opcode: Opcode,
        negotiated: Negotiated,
    ) -> Result<ResponseBody<'a>> {
        Ok(match opcode {
            Opcode::Error => {
                let (error, message) = ErrorBody::decode(r, negotiated.version)?;
                ResponseBody::Error { error, message }
            }
            Opcode::Ready => ResponseBody::Ready,
            Opcode::Authenticate => ResponseBody::Authenticate(string(r)?),
            Opcode::Supported => {
                let count = usize::from(r.u16()?);
                let mut options = Vec::with_capacity(r.check_count(count, 4)?);
                for _ in 0..count {
                    options.push((string(r)?, string_list(r)?));
                }
                ResponseBody::Supported(options)
            }
            Opcode::Result => ResponseBody::decode_result(r, negotiated)?,
            Opcode::Event => ResponseBody::Event(Event::decode(r)?),
            Opcode::AuthChallenge => ResponseBody::AuthChallenge(bytes(r)?),
            Opcode::AuthSuccess => ResponseBody::AuthSuccess(bytes(r)?),
            Opcode::Startup
            | Opcode::Credentials
            | Opcode::Options
            | Opcode::Query
            | Opcode::Prepare
            | Opcode::Execute
            | Opcode::Register
            | Opcode::Batch
            | Opcode::AuthResponse => return Err(WireError::UnsupportedMessage),
        })
    }

    fn decode_result(r: &mut Reader<'a>, negotiated: Negotiated) -> Result<ResponseBody<'a>> {
        Ok(match r.i32()? {
            result_kind::VOID => ResponseBody::Void,
            result_kind::ROWS => ResponseBody::Rows(Rows::decode(r, negotiated)?),
            result_kind::SET_KEYSPACE => ResponseBody::SetKeyspace(string(r)?),
            result_kind::PREPARED => ResponseBody::Prepared(Prepared {
                id: short_bytes(r)?,
                result_metadata_id: if negotiated.has_metadata_id() {
                    Some(short_bytes(r)?)
                } else {
                    None
                },
                metadata: PreparedMetadata::decode(r, negotiated.version)?,
                result_metadata: ResultMetadata::decode(r, negotiated)?,
            }),
            result_kind::SCHEMA_CHANGE => ResponseBody::SchemaChange(SchemaChange::decode(r)?),
            number => return Err(WireError::UnknownResultKind { number }),
        })
    }

    /// The error's code, if it is one.
    pub fn error_code(&self) -> Option<ErrorCode> {
        match self {
            ResponseBody::Error { error, .. } => Some(error.code()),
            _ => None,
        }
    }
}
