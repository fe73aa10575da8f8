//! A small blocking client of the native protocol, v3 to v5.
//!
//! Owns: the bodies of requests and answers, in a codec of its own (see the crate documentation).
//! Connection, login and frames are `blocking-client`'s. Never retries and never hides an error of
//! the server.
//!
//! Source: native protocol specifications v4 and v5 of Apache Cassandra.

use anyhow::{Context, Result, anyhow, bail};
use blocking_client::{CqlConnection, CqlError};
use cql_client::{Login, LoginError};
use cql_wire::{Opcode, ProtocolVersion};

use crate::bytes::{Cursor, put_long_string, put_short_bytes, put_string, put_u16, put_u32};
use crate::value::{Column, Kind, parse_marshal_class};

/// Largest message that is accepted from the server.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

pub use blocking_client::Transport as Stream;

/// Answer of a server.
#[derive(Debug)]
pub enum Answer {
    /// RESULT Void.
    Void,
    /// RESULT Rows.
    Rows(Rows),
    /// RESULT Set_keyspace.
    SetKeyspace(String),
    /// RESULT Prepared.
    Prepared(Prepared),
    /// RESULT Schema_change: change, target, and the names that follow.
    SchemaChange(String, String, Vec<String>),
    /// ERROR.
    Error(ServerError),
}

/// An ERROR message.
#[derive(Debug)]
pub struct ServerError {
    /// Protocol error code.
    pub code: i32,
    /// The text.
    pub message: String,
    /// The further fields of that code, as `name=value`.
    pub fields: Vec<String>,
}

/// Metadata of rows.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// Columns in order; empty when the server left them out.
    pub columns: Vec<Column>,
    /// Count of columns, also when they were left out.
    pub count: usize,
    /// Position of the next page.
    pub paging_state: Option<Vec<u8>>,
    /// New id of the result metadata (v5).
    pub new_id: Option<Vec<u8>>,
    /// The server skipped the columns.
    pub skipped: bool,
}

/// RESULT Rows.
#[derive(Debug)]
pub struct Rows {
    /// Metadata of the page.
    pub metadata: Metadata,
    /// Raw cells, row by row.
    pub rows: Vec<Vec<Option<Vec<u8>>>>,
}

/// RESULT Prepared.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Statement id.
    pub id: Vec<u8>,
    /// Id of the result metadata (v5).
    pub result_id: Vec<u8>,
    /// Bound columns.
    pub bound: Vec<Column>,
    /// Indexes of the partition key among the bound columns.
    pub key_indexes: Vec<u16>,
    /// Result metadata.
    pub result: Metadata,
}

/// A message with what its header carried.
#[derive(Debug)]
pub struct Response {
    /// The answer.
    pub answer: Answer,
    /// Warnings of the header.
    pub warnings: Vec<String>,
}

/// A bound value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The cell is deleted.
    Null,
    /// The cell is left alone (v4 and later).
    Unset,
    /// Serialised value.
    Bytes(Vec<u8>),
}

/// Parameters of QUERY, EXECUTE and BATCH.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Consistency code.
    pub consistency: u16,
    /// Serial consistency code.
    pub serial_consistency: Option<u16>,
    /// Positional values.
    pub values: Vec<Bound>,
    /// Leave out the columns in the answer.
    pub skip_metadata: bool,
    /// Rows per page.
    pub page_size: Option<i32>,
    /// Position to continue at.
    pub paging_state: Option<Vec<u8>>,
    /// Client timestamp in microseconds.
    pub timestamp: Option<i64>,
    /// Keyspace of the request (v5).
    pub keyspace: Option<String>,
    /// Time that TTLs see (v5).
    pub now_in_seconds: Option<i32>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            consistency: 10,
            serial_consistency: None,
            values: Vec::new(),
            skip_metadata: false,
            page_size: None,
            paging_state: None,
            timestamp: None,
            keyspace: None,
            now_in_seconds: None,
        }
    }
}

/// One connection.
pub struct Client {
    connection: CqlConnection<Box<dyn Stream>>,
    version: u8,
}

impl Client {
    /// Performs STARTUP on a fresh stream and waits for READY.
    ///
    /// # Errors
    /// The stream fails, or the server answers other than READY.
    pub fn start(stream: Box<dyn Stream>, version: u8) -> Result<Self> {
        match Self::start_as(stream, version, None)? {
            Ok(client) => Ok(client),
            Err(error) => bail!("STARTUP was refused: {error:?}"),
        }
    }

    /// The same, with a name and a password for a server that requires them. The inner error is the
    /// server's refusal.
    ///
    /// # Errors
    /// As `start`.
    pub fn start_as(
        stream: Box<dyn Stream>,
        version: u8,
        user: Option<(&str, &str)>,
    ) -> Result<std::result::Result<Self, ServerError>> {
        let number = ProtocolVersion::from_number(version)?;
        let mut connection = CqlConnection::new(stream, number, MESSAGE_BYTES_MAX);
        let user = user.map(|(name, password)| (name.to_owned(), password.to_owned()));
        match connection.login(Login { user, ..Login::plain() }, None) {
            Ok(()) => Ok(Ok(Self { connection, version })),
            Err(CqlError::Login(LoginError::NoCredentials(_))) => {
                bail!("the server wants a password")
            }
            Err(CqlError::Login(
                LoginError::Refused(error) | LoginError::WrongCredentials(error),
            )) => Ok(Err(ServerError {
                code: error.code.number(),
                message: error.message,
                fields: Vec::new(),
            })),
            Err(error) => Err(error.into()),
        }
    }

    /// The protocol version in use.
    #[must_use]
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Sends QUERY.
    ///
    /// # Errors
    /// The stream fails or the answer cannot be decoded; an ERROR is an answer.
    pub fn query(&mut self, cql: &str, parameters: &Parameters) -> Result<Response> {
        let mut body = Vec::new();
        put_long_string(&mut body, cql)?;
        self.put_parameters(&mut body, parameters)?;
        self.request(Opcode::Query, &body)
    }

    /// Sends PREPARE.
    ///
    /// # Errors
    /// As `query`.
    pub fn prepare(&mut self, cql: &str, keyspace: Option<&str>) -> Result<Response> {
        let mut body = Vec::new();
        put_long_string(&mut body, cql)?;
        if self.version >= 5 {
            put_u32(&mut body, u32::from(keyspace.is_some()));
            if let Some(keyspace) = keyspace {
                put_string(&mut body, keyspace);
            }
        }
        self.request(Opcode::Prepare, &body)
    }

    /// Sends EXECUTE.
    ///
    /// # Errors
    /// As `query`.
    pub fn execute(&mut self, prepared: &Prepared, parameters: &Parameters) -> Result<Response> {
        let mut body = Vec::new();
        put_short_bytes(&mut body, &prepared.id)?;
        if self.version >= 5 {
            put_short_bytes(&mut body, &prepared.result_id)?;
        }
        self.put_parameters(&mut body, parameters)?;
        self.request(Opcode::Execute, &body)
    }

    /// Sends BATCH of statement texts without values; `kind` 0 is logged, 1 is unlogged.
    ///
    /// # Errors
    /// As `query`.
    pub fn batch(
        &mut self,
        kind: u8,
        texts: &[String],
        parameters: &Parameters,
    ) -> Result<Response> {
        let mut body = vec![kind];
        put_u16(&mut body, u16::try_from(texts.len())?);
        for text in texts {
            body.push(0);
            put_long_string(&mut body, text)?;
            put_u16(&mut body, 0);
        }
        put_u16(&mut body, parameters.consistency);
        let mut flags = 0_u32;
        let mut tail = Vec::new();
        if let Some(serial) = parameters.serial_consistency {
            flags |= 0x10;
            put_u16(&mut tail, serial);
        }
        if let Some(timestamp) = parameters.timestamp {
            flags |= 0x20;
            tail.extend_from_slice(&timestamp.to_be_bytes());
        }
        if let Some(keyspace) = &parameters.keyspace {
            flags |= 0x80;
            put_string(&mut tail, keyspace);
        }
        if let Some(now) = parameters.now_in_seconds {
            flags |= 0x100;
            tail.extend_from_slice(&now.to_be_bytes());
        }
        self.put_flags(&mut body, flags)?;
        body.extend_from_slice(&tail);
        self.request(Opcode::Batch, &body)
    }

    fn put_flags(&self, body: &mut Vec<u8>, flags: u32) -> Result<()> {
        if self.version >= 5 {
            put_u32(body, flags);
        } else {
            body.push(u8::try_from(flags).context("this option needs protocol v5")?);
            if flags & 0x80 != 0 {
                bail!("a keyspace per request needs protocol v5");
            }
        }
        Ok(())
    }

    fn put_parameters(&self, body: &mut Vec<u8>, parameters: &Parameters) -> Result<()> {
        put_u16(body, parameters.consistency);
        let mut flags = 0_u32;
        let mut tail = Vec::new();
        if !parameters.values.is_empty() {
            flags |= 0x01;
            put_u16(&mut tail, u16::try_from(parameters.values.len())?);
            for value in &parameters.values {
                match value {
                    Bound::Null => tail.extend_from_slice(&(-1_i32).to_be_bytes()),
                    Bound::Unset => tail.extend_from_slice(&(-2_i32).to_be_bytes()),
                    Bound::Bytes(bytes) => {
                        put_u32(&mut tail, u32::try_from(bytes.len())?);
                        tail.extend_from_slice(bytes);
                    }
                }
            }
        }
        if parameters.skip_metadata {
            flags |= 0x02;
        }
        if let Some(size) = parameters.page_size {
            flags |= 0x04;
            tail.extend_from_slice(&size.to_be_bytes());
        }
        if let Some(state) = &parameters.paging_state {
            flags |= 0x08;
            put_u32(&mut tail, u32::try_from(state.len())?);
            tail.extend_from_slice(state);
        }
        if let Some(serial) = parameters.serial_consistency {
            flags |= 0x10;
            put_u16(&mut tail, serial);
        }
        if let Some(timestamp) = parameters.timestamp {
            flags |= 0x20;
            tail.extend_from_slice(&timestamp.to_be_bytes());
        }
        if let Some(keyspace) = &parameters.keyspace {
            flags |= 0x80;
            put_string(&mut tail, keyspace);
        }
        if let Some(now) = parameters.now_in_seconds {
            flags |= 0x100;
            tail.extend_from_slice(&now.to_be_bytes());
        }
        self.put_flags(body, flags)?;
        body.extend_from_slice(&tail);
        Ok(())
    }

    fn request(&mut self, opcode: Opcode, body: &[u8]) -> Result<Response> {
        let (opcode, flags, body) = self.exchange(opcode, body)?;
        let mut cursor = Cursor::new(&body);
        if flags & 0x02 != 0 {
            cursor.take(16)?;
        }
        let mut warnings = Vec::new();
        if flags & 0x08 != 0 {
            for _ in 0..cursor.u16()? {
                warnings.push(cursor.string()?);
            }
        }
        if flags & 0x04 != 0 {
            for _ in 0..cursor.u16()? {
                cursor.string()?;
                cursor.bytes()?;
            }
        }
        let answer = match opcode {
            0 => Answer::Error(decode_error(&mut cursor)?),
            8 => decode_result(&mut cursor, self.version)?,
            other => bail!("unexpected opcode {other}"),
        };
        if !cursor.rest.is_empty() && !matches!(answer, Answer::Error(_)) {
            bail!("{} bytes are left after the answer", cursor.rest.len());
        }
        Ok(Response { answer, warnings })
    }

    fn exchange(&mut self, opcode: Opcode, body: &[u8]) -> Result<(u8, u8, Vec<u8>)> {
        let (opcode, flags, body) = self.connection.exchange(opcode, body, None, |frame| {
            (frame.header.opcode.number(), frame.header.flags, frame.body.to_vec())
        })?;
        if flags & 0x01 != 0 {
            bail!("a compressed answer without being asked");
        }
        Ok((opcode, flags, body))
    }
}

/// Consistency code of a name.
///
/// # Errors
/// The name is not one of the protocol's.
pub fn consistency_code(name: &str) -> Result<u16> {
    CONSISTENCIES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, code)| *code)
        .ok_or_else(|| anyhow!("unknown consistency {name}"))
}

const CONSISTENCIES: [(&str, u16); 11] = [
    ("ANY", 0),
    ("ONE", 1),
    ("TWO", 2),
    ("THREE", 3),
    ("QUORUM", 4),
    ("ALL", 5),
    ("LOCAL_QUORUM", 6),
    ("EACH_QUORUM", 7),
    ("SERIAL", 8),
    ("LOCAL_SERIAL", 9),
    ("LOCAL_ONE", 10),
];

fn consistency_name(code: u16) -> String {
    CONSISTENCIES
        .iter()
        .find(|(_, known)| *known == code)
        .map_or_else(|| code.to_string(), |(name, _)| (*name).to_owned())
}

fn decode_error(cursor: &mut Cursor<'_>) -> Result<ServerError> {
    let code = cursor.i32()?;
    let message = cursor.string()?;
    let mut fields = Vec::new();
    match code {
        0x1000 => {
            fields.push(format!("consistency={}", consistency_name(cursor.u16()?)));
            fields.push(format!("required={}", cursor.i32()?));
            fields.push(format!("alive={}", cursor.i32()?));
        }
        0x2400 => {
            fields.push(format!("keyspace={}", cursor.string()?));
            fields.push(format!("table={}", cursor.string()?));
        }
        0x1400 => {
            fields.push(format!("keyspace={}", cursor.string()?));
            fields.push(format!("function={}", cursor.string()?));
        }
        _ => {}
    }
    Ok(ServerError { code, message, fields })
}

fn decode_result(cursor: &mut Cursor<'_>, version: u8) -> Result<Answer> {
    Ok(match cursor.i32()? {
        1 => Answer::Void,
        2 => {
            let metadata = decode_metadata(cursor, version)?;
            let count = cursor.i32()?;
            let mut rows = Vec::new();
            for _ in 0..count {
                let mut row = Vec::new();
                for _ in 0..metadata.count {
                    row.push(cursor.bytes()?.map(<[u8]>::to_vec));
                }
                rows.push(row);
            }
            Answer::Rows(Rows { metadata, rows })
        }
        3 => Answer::SetKeyspace(cursor.string()?),
        4 => {
            let id = cursor.short_bytes()?.to_vec();
            let result_id = if version >= 5 { cursor.short_bytes()?.to_vec() } else { Vec::new() };
            let flags = cursor.i32()?;
            let count = cursor.i32()?;
            let mut key_indexes = Vec::new();
            if version >= 4 {
                for _ in 0..cursor.i32()? {
                    key_indexes.push(cursor.u16()?);
                }
            }
            let bound = decode_columns(cursor, flags, count)?;
            let result = decode_metadata(cursor, version)?;
            Answer::Prepared(Prepared { id, result_id, bound, key_indexes, result })
        }
        5 => {
            let change = cursor.string()?;
            let target = cursor.string()?;
            let mut names = vec![cursor.string()?];
            if target != "KEYSPACE" {
                names.push(cursor.string()?);
            }
            if target == "FUNCTION" || target == "AGGREGATE" {
                for _ in 0..cursor.u16()? {
                    names.push(cursor.string()?);
                }
            }
            Answer::SchemaChange(change, target, names)
        }
        other => bail!("unknown kind of result {other}"),
    })
}

fn decode_metadata(cursor: &mut Cursor<'_>, version: u8) -> Result<Metadata> {
    let flags = cursor.i32()?;
    let count = cursor.i32()?;
    let mut metadata = Metadata {
        count: usize::try_from(count).context("a negative count of columns")?,
        skipped: flags & 0x04 != 0,
        ..Metadata::default()
    };
    if flags & 0x02 != 0 {
        metadata.paging_state = cursor.bytes()?.map(<[u8]>::to_vec);
    }
    if version >= 5 && flags & 0x08 != 0 {
        metadata.new_id = Some(cursor.short_bytes()?.to_vec());
    }
    if !metadata.skipped {
        metadata.columns = decode_columns(cursor, flags, count)?;
    }
    Ok(metadata)
}

fn decode_columns(cursor: &mut Cursor<'_>, flags: i32, count: i32) -> Result<Vec<Column>> {
    let global = if flags & 0x01 != 0 && count > 0 {
        Some((cursor.string()?, cursor.string()?))
    } else {
        None
    };
    let mut columns = Vec::new();
    for _ in 0..count {
        let (keyspace, table) = match &global {
            Some((keyspace, table)) => (keyspace.clone(), table.clone()),
            None => (cursor.string()?, cursor.string()?),
        };
        let name = cursor.string()?;
        let kind = decode_kind(cursor, 0)?;
        columns.push(Column { keyspace, table, name, kind });
    }
    Ok(columns)
}

fn decode_kind(cursor: &mut Cursor<'_>, depth: usize) -> Result<Kind> {
    if depth > 32 {
        bail!("a type is nested too deeply");
    }
    let deeper = depth + 1;
    Ok(match cursor.u16()? {
        0x00 => parse_marshal_class(&cursor.string()?)?,
        0x01 => Kind::Ascii,
        0x02 => Kind::Bigint,
        0x03 => Kind::Blob,
        0x04 => Kind::Boolean,
        0x05 => Kind::Counter,
        0x06 => Kind::Decimal,
        0x07 => Kind::Double,
        0x08 => Kind::Float,
        0x09 => Kind::Int,
        0x0b => Kind::Timestamp,
        0x0c => Kind::Uuid,
        0x0d => Kind::Text,
        0x0e => Kind::Varint,
        0x0f => Kind::Timeuuid,
        0x10 => Kind::Inet,
        0x11 => Kind::Date,
        0x12 => Kind::Time,
        0x13 => Kind::Smallint,
        0x14 => Kind::Tinyint,
        0x15 => Kind::Duration,
        0x20 => Kind::List(Box::new(decode_kind(cursor, deeper)?)),
        0x21 => {
            let key = decode_kind(cursor, deeper)?;
            Kind::Map(Box::new(key), Box::new(decode_kind(cursor, deeper)?))
        }
        0x22 => Kind::Set(Box::new(decode_kind(cursor, deeper)?)),
        0x30 => {
            cursor.string()?;
            let name = cursor.string()?;
            let mut fields = Vec::new();
            for _ in 0..cursor.u16()? {
                let field = cursor.string()?;
                fields.push((field, decode_kind(cursor, deeper)?));
            }
            Kind::Udt(name, fields)
        }
        0x31 => {
            let mut parts = Vec::new();
            for _ in 0..cursor.u16()? {
                parts.push(decode_kind(cursor, deeper)?);
            }
            Kind::Tuple(parts)
        }
        other => bail!("unknown type option {other:#06x}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_input_is_an_error_and_not_a_panic() {
        let mut cursor = Cursor::new(&[0, 5, b'a']);
        assert!(cursor.string().is_err());
        for length in 0..40 {
            let bytes = vec![0_u8; length];
            let _ = decode_result(&mut Cursor::new(&bytes), 5);
            let bytes: Vec<u8> = (0..length).map(|i| if i == 3 { 2 } else { 1 }).collect();
            let _ = decode_result(&mut Cursor::new(&bytes), 4);
        }
    }

    #[test]
    fn consistency_names_and_codes_are_inverse() {
        for (name, code) in CONSISTENCIES {
            assert_eq!(consistency_code(name).ok(), Some(code));
            assert_eq!(consistency_name(code), name);
        }
        assert!(consistency_code("QUORUM2").is_err());
    }
}
