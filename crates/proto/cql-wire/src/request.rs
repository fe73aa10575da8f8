//! Bodies of requests, decoded by servers and encoded by clients.

use crate::collections::{BytesMap, StringMap};
use crate::compression::Compression;
use crate::constants::{BatchKind, Opcode};
use crate::error::{Result, WireError};
use crate::event::EventKinds;
use crate::frame::{Frame, HEADER_LEN, compress_body, flags, patchable_len, put_header};
use crate::primitive::{
    bytes, check_count, long_string, put_bytes, put_count, put_long_string, put_short_bytes,
    put_string,
};
use crate::primitive::{short_bytes, string};
use crate::query::{BoundValues, QueryParameters, is_same_form};
use crate::version::{Negotiated, ProtocolVersion};
use codec::{Reader, Writer};

/// PREPARE of v5: a keyspace follows.
const PREPARE_WITH_KEYSPACE: u32 = 0x01;

/// One request, borrowed from its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFrame<'a> {
    /// True if the request is to be traced.
    pub tracing: bool,
    /// Custom payload (v4 on).
    pub custom_payload: Option<BytesMap<'a>>,
    /// The request itself.
    pub request: Request<'a>,
}

/// A client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// First message; see [`crate::StartupOptions::check`].
    Startup(StringMap<'a>),
    /// Asks for the options of STARTUP.
    Options,
    /// One statement as text.
    Query {
        /// The statement.
        query: &'a str,
        /// Values and options.
        parameters: QueryParameters<'a>,
    },
    /// Prepare a statement.
    Prepare {
        /// The statement.
        query: &'a str,
        /// Keyspace of unqualified names (v5).
        keyspace: Option<&'a str>,
    },
    /// Run a prepared statement.
    Execute {
        /// Id from PREPARED.
        id: &'a [u8],
        /// Result metadata id that the client knows, where ids are in use.
        result_metadata_id: Option<&'a [u8]>,
        /// Values and options.
        parameters: QueryParameters<'a>,
    },
    /// Several statements at once.
    Batch(Batch<'a>),
    /// Subscribe to events.
    Register(EventKinds),
    /// Next step of authentication.
    AuthResponse(Option<&'a [u8]>),
}

/// A BATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    /// Kind.
    pub kind: BatchKind,
    /// Its statements, in order.
    pub statements: BatchStatements<'a>,
    /// Options; without values.
    pub parameters: QueryParameters<'a>,
}

/// Statement of a batch: text or id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchQuery<'a> {
    /// The statement's text.
    Text(&'a str),
    /// By id from PREPARED.
    Prepared(&'a [u8]),
}

/// One statement of a batch with its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchStatement<'a> {
    /// The statement to run.
    pub query: BatchQuery<'a>,
    /// With which values; positional.
    pub values: BoundValues<'a>,
}

/// Statements of a batch, checked, borrowed from the message.
#[derive(Clone, Copy, Debug)]
pub struct BatchStatements<'a> {
    count: u16,
    version: ProtocolVersion,
    bytes: &'a [u8],
}

impl PartialEq for BatchStatements<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.iter().eq(other.iter())
    }
}
impl Eq for BatchStatements<'_> {}

impl<'a> BatchStatements<'a> {
    fn decode(r: &mut Reader<'a>, version: ProtocolVersion) -> Result<BatchStatements<'a>> {
        let count = r.u16()?;
        let start = r.peek_rest();
        let from = r.position();
        for _ in 0..count {
            batch_statement(r, version)?;
        }
        let length = r.position().saturating_sub(from);
        Ok(BatchStatements { count, version, bytes: start.get(..length).unwrap_or_default() })
    }

    /// Returns their number.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Each statement, in order.
    pub fn iter(&self) -> impl Iterator<Item = BatchStatement<'a>> + use<'a> {
        let BatchStatements { count, version, bytes } = *self;
        let mut r = Reader::new(bytes, "BATCH");
        (0..count).map_while(move |_| batch_statement(&mut r, version).ok())
    }
}

fn batch_statement<'a>(r: &mut Reader<'a>, version: ProtocolVersion) -> Result<BatchStatement<'a>> {
    let query = match r.u8()? {
        0 => BatchQuery::Text(long_string(r)?),
        1 => BatchQuery::Prepared(short_bytes(r)?),
        number => return Err(WireError::UnknownQueryKind { number }),
    };
    Ok(BatchStatement { query, values: BoundValues::decode(r, version, false)? })
}

fn put_batch_statement(
    out: &mut Vec<u8>,
    statement: BatchStatement<'_>,
    version: ProtocolVersion,
) -> Result<()> {
    match statement.query {
        BatchQuery::Text(text) => {
            out.put_u8(0);
            put_long_string(out, text)?;
        }
        BatchQuery::Prepared(id) => {
            out.put_u8(1);
            put_short_bytes(out, id)?;
        }
    }
    statement.values.encode_positional(version, out)
}

impl<'a> RequestFrame<'a> {
    /// Decodes the body of a frame. Bytes after the last field are ignored, as Cassandra does.
    ///
    /// # Errors
    /// Always one to answer on the frame's stream; the connection stays open.
    #[inline]
    pub fn decode(frame: &Frame<'a>, negotiated: Negotiated) -> Result<RequestFrame<'a>> {
        let mut r = Reader::new(frame.body, frame.header.opcode.name());
        let custom_payload = if frame.header.has(flags::CUSTOM_PAYLOAD) {
            if frame.header.version < ProtocolVersion::V4 {
                return Err(WireError::CustomPayload);
            }
            Some(BytesMap::decode(&mut r)?)
        } else {
            None
        };
        let version = frame.header.version;
        let request =
            Request::decode(&mut r, frame.header.opcode, Negotiated { version, ..negotiated })?;
        Ok(RequestFrame { tracing: frame.header.has(flags::TRACING), custom_payload, request })
    }
}

impl<'a> Request<'a> {
    fn decode(r: &mut Reader<'a>, opcode: Opcode, negotiated: Negotiated) -> Result<Request<'a>> {
        let version = negotiated.version;
        Ok(match opcode {
            Opcode::Execute => Request::Execute {
                id: short_bytes(r)?,
                result_metadata_id: if negotiated.has_metadata_id() {
                    Some(short_bytes(r)?)
                } else {
                    None
                },
                parameters: QueryParameters::decode(r, version)?,
            },
            Opcode::Query => Request::Query {
                query: long_string(r)?,
                parameters: QueryParameters::decode(r, version)?,
            },
            Opcode::Batch => {
                // Cassandra names a bad kind only after everything else was read; the order is not visible otherwise.
                let kind = BatchKind::from_number(r.u8()?)?;
                let statements = BatchStatements::decode(r, version)?;
                Request::Batch(Batch {
                    kind,
                    statements,
                    parameters: QueryParameters::decode(r, version)?,
                })
            }
            Opcode::Prepare => {
                let query = long_string(r)?;
                let flags = if version >= ProtocolVersion::V5 { r.u32()? } else { 0 };
                let keyspace =
                    if flags & PREPARE_WITH_KEYSPACE != 0 { Some(string(r)?) } else { None };
                Request::Prepare { query, keyspace }
            }
            Opcode::Startup => Request::Startup(StringMap::decode(r)?),
            Opcode::Options => Request::Options,
            Opcode::Register => Request::Register(EventKinds::decode(r)?),
            Opcode::AuthResponse => Request::AuthResponse(bytes(r)?),
            Opcode::Credentials
            | Opcode::Error
            | Opcode::Ready
            | Opcode::Authenticate
            | Opcode::Supported
            | Opcode::Result
            | Opcode::Event
            | Opcode::AuthChallenge
            | Opcode::AuthSuccess => return Err(WireError::UnsupportedMessage),
        })
    }

    /// Its opcode.
    pub fn opcode(&self) -> Opcode {
        match self {
            Request::Startup(_) => Opcode::Startup,
            Request::Options => Opcode::Options,
            Request::Query { .. } => Opcode::Query,
            Request::Prepare { .. } => Opcode::Prepare,
            Request::Execute { .. } => Opcode::Execute,
            Request::Batch(_) => Opcode::Batch,
            Request::Register(_) => Opcode::Register,
            Request::AuthResponse(_) => Opcode::AuthResponse,
        }
    }

    fn encode_body(&self, negotiated: Negotiated, out: &mut Vec<u8>) -> Result<()> {
        let version = negotiated.version;
        match self {
            Request::Startup(options) => {
                let (count, bytes) = options.raw();
                out.put_u16(count);
                out.put_bytes(bytes);
                Ok(())
            }
            Request::Options => Ok(()),
            Request::Query { query, parameters } => {
                put_long_string(out, query)?;
                parameters.encode(version, out)
            }
            Request::Prepare { query, keyspace } => {
                put_long_string(out, query)?;
                match keyspace {
                    Some(_) if version < ProtocolVersion::V5 => {
                        let what = "a keyspace with PREPARE";
                        return Err(WireError::NeedsVersion { what, needed: ProtocolVersion::V5 });
                    }
                    Some(keyspace) => {
                        out.put_u32(PREPARE_WITH_KEYSPACE);
                        put_string(out, keyspace)?;
                    }
                    None if version >= ProtocolVersion::V5 => out.put_u32(0),
                    None => {}
                }
                Ok(())
            }
            Request::Execute { id, result_metadata_id, parameters } => {
                put_short_bytes(out, id)?;
                if negotiated.has_metadata_id() {
                    put_short_bytes(out, result_metadata_id.unwrap_or_default())?;
                }
                parameters.encode(version, out)
            }
            Request::Batch(batch) => {
                out.put_u8(batch.kind.number());
                put_count(out, batch.statements.len(), "batch")?;
                if is_same_form(batch.statements.version, version) {
                    out.extend_from_slice(batch.statements.bytes);
                } else {
                    for statement in batch.statements.iter() {
                        put_batch_statement(out, statement, version)?;
                    }
                }
                QueryParameters { values: BoundValues::EMPTY, ..batch.parameters }
                    .encode(version, out)
            }
            Request::Register(kinds) => kinds.encode(out),
            Request::AuthResponse(token) => put_bytes(out, *token),
        }
    }
}

/// Statements of a batch put together by a client.
#[derive(Clone, Debug, Default)]
pub struct BatchList {
    count: u16,
    bytes: Vec<u8>,
}

impl BatchList {
    /// No statements yet.
    pub fn new() -> BatchList {
        BatchList::default()
    }

    /// Adds a statement with its values.
    ///
    /// # Errors
    /// `TooLong` for the 65,536th.
    pub fn push(&mut self, query: BatchQuery<'_>, values: BoundValues<'_>) -> Result<()> {
        check_count(usize::from(self.count).saturating_add(1), "batch")?;
        let start = self.bytes.len();
        let result = put_batch_statement(
            &mut self.bytes,
            BatchStatement { query, values },
            ProtocolVersion::CURRENT,
        );
        match result {
            Ok(()) => self.count = self.count.saturating_add(1),
            Err(_) => self.bytes.truncate(start),
        }
        result
    }

    /// No statements again; keeps its memory.
    pub fn clear(&mut self) {
        self.count = 0;
        self.bytes.clear();
    }

    /// The statements, to be put into a [`Batch`].
    pub fn statements(&self) -> BatchStatements<'_> {
        BatchStatements { count: self.count, version: ProtocolVersion::CURRENT, bytes: &self.bytes }
    }
}

/// Options of a client's request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestOptions<'a> {
    /// Stream of the request and its response, 0..=32767.
    pub stream: i16,
    /// Ask for a trace.
    pub tracing: bool,
    /// Custom payload (v4 on).
    pub custom_payload: &'a [(&'a str, &'a [u8])],
    /// Compress the body (v3 and v4 only; v5 compresses segments).
    pub compression: Option<Compression>,
}

/// Appends a request as a frame; for v5 after STARTUP it still has to go through
/// [`crate::pack_segments`].
///
/// # Errors
/// A field that the version cannot express; nothing is left in `out`.
pub fn encode_request(
    request: &Request<'_>,
    negotiated: Negotiated,
    options: &RequestOptions<'_>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let start = out.len();
    let result = encode_request_at(request, negotiated, options, out, start);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Appends a request whose body was encoded by the caller, as [`encode_request`] does: without tracing, payload and
/// compression.
///
/// # Errors
/// `TooLong`; nothing is left in `out`.
pub fn encode_request_body(
    version: ProtocolVersion,
    opcode: Opcode,
    stream: i16,
    body: &[u8],
    out: &mut Vec<u8>,
) -> Result<()> {
    let length = patchable_len(body.len())?;
    let bits = if version.is_beta() { flags::USE_BETA } else { 0 };
    put_header(out, version.number(), bits, stream, opcode, length);
    out.extend_from_slice(body);
    Ok(())
}

fn encode_request_at(
    request: &Request<'_>,
    negotiated: Negotiated,
    options: &RequestOptions<'_>,
    out: &mut Vec<u8>,
    start: usize,
) -> Result<()> {
    let compression = options.compression.filter(|_| negotiated.version < ProtocolVersion::V5);
    let compression = compression.filter(|_| request.opcode() != Opcode::Startup);
    let mut bits = 0;
    for (present, flag) in [
        (negotiated.version.is_beta(), flags::USE_BETA),
        (options.tracing, flags::TRACING),
        (!options.custom_payload.is_empty(), flags::CUSTOM_PAYLOAD),
        (compression.is_some(), flags::COMPRESSED),
    ] {
        bits |= if present { flag } else { 0 };
    }
    put_header(out, negotiated.version.number(), bits, options.stream, request.opcode(), 0);
    let body_at = start.saturating_add(HEADER_LEN);
    if !options.custom_payload.is_empty() {
        if negotiated.version < ProtocolVersion::V4 {
            return Err(WireError::NeedsVersion {
                what: "a custom payload",
                needed: ProtocolVersion::V4,
            });
        }
        BytesMap::encode(out, options.custom_payload)?;
    }
    request.encode_body(negotiated, out)?;
    if let Some(compression) = compression {
        let body = out.split_off(body_at);
        compress_body(compression, &body, out)?;
    }
    let length = patchable_len(out.len().saturating_sub(body_at))?;
    out.patch_u32(start.saturating_add(5), length);
    Ok(())
}
