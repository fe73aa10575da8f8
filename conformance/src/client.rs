//! A small blocking client of the native protocol, v3 to v5.
//!
//! Owns one connection with one request in flight. Its own codec: see the crate documentation.
//! Never retries and never hides an error of the server.
//!
//! Source: native protocol specifications v4 and v5 of Apache Cassandra.

use std::io::{Read, Write};

use anyhow::{Context, Result, anyhow, bail};

use crate::bytes::{Cursor, put_long_string, put_short_bytes, put_string, put_u16, put_u32};
use crate::value::{Column, Kind, parse_marshal_class};

/// Largest message that is accepted from the server.
const MESSAGE_BYTES_MAX: usize = 256 << 20;
/// Largest payload of a v5 segment.
const SEGMENT_BYTES_MAX: usize = (1 << 17) - 1;

/// A byte stream to a server.
pub trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// What a server answered.
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
    /// Where to go on.
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
    stream: Box<dyn Stream>,
    version: u8,
    framed: bool,
    input: Vec<u8>,
}

impl Client {
    /// Says STARTUP on a fresh stream and waits for READY.
    ///
    /// # Errors
    /// The stream fails, or the server wants something else than READY.
    pub fn start(stream: Box<dyn Stream>, version: u8) -> Result<Self> {
        match Self::start_as(stream, version, None)? {
            Ok(client) => Ok(client),
            Err(error) => bail!("STARTUP was refused: {error:?}"),
        }
    }

    /// The same, with a name and a password for a server that asks for them. The inner error is what
    /// the server says to them.
    ///
    /// # Errors
    /// As `start`.
    pub fn start_as(
        stream: Box<dyn Stream>,
        version: u8,
        user: Option<(&str, &str)>,
    ) -> Result<std::result::Result<Self, ServerError>> {
        let mut client = Self { stream, version, framed: false, input: Vec::new() };
        let mut body = Vec::new();
        put_u16(&mut body, 1);
        put_string(&mut body, "CQL_VERSION");
        put_string(&mut body, "3.0.0");
        let (opcode, _, body) = client.exchange(1, &body)?;
        match opcode {
            2 => {}
            3 => {
                let Some((name, password)) = user else { bail!("the server wants a password") };
                client.framed = version >= 5;
                let token = format!("\0{name}\0{password}");
                let mut body = Vec::new();
                put_u32(&mut body, u32::try_from(token.len())?);
                body.extend_from_slice(token.as_bytes());
                let (opcode, _, body) = client.exchange(15, &body)?;
                match opcode {
                    16 => {}
                    0 => return Ok(Err(decode_error(&mut Cursor::new(&body))?)),
                    other => bail!("AUTH_RESPONSE was answered by opcode {other}"),
                }
            }
            0 => return Ok(Err(decode_error(&mut Cursor::new(&body))?)),
            other => bail!("STARTUP was answered by opcode {other}"),
        }
        client.framed = version >= 5;
        Ok(Ok(client))
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
        self.request(7, &body)
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
        self.request(9, &body)
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
        self.request(10, &body)
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
        self.request(13, &body)
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

    fn request(&mut self, opcode: u8, body: &[u8]) -> Result<Response> {
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

    fn exchange(&mut self, opcode: u8, body: &[u8]) -> Result<(u8, u8, Vec<u8>)> {
        let mut message = vec![self.version, 0, 0, 1, opcode];
        put_u32(&mut message, u32::try_from(body.len())?);
        message.extend_from_slice(body);
        if self.framed {
            let whole = message.len() <= SEGMENT_BYTES_MAX;
            let mut out = Vec::new();
            for part in message.chunks(SEGMENT_BYTES_MAX) {
                let word = u32::try_from(part.len())? | (u32::from(whole) << 17);
                let header = word.to_le_bytes();
                out.extend_from_slice(&header[..3]);
                out.extend_from_slice(&crc24(&header[..3]).to_le_bytes()[..3]);
                out.extend_from_slice(part);
                out.extend_from_slice(&crc32(part).to_le_bytes());
            }
            self.stream.write_all(&out)?;
        } else {
            self.stream.write_all(&message)?;
        }
        self.stream.flush()?;
        loop {
            self.fill(9)?;
            let header: Vec<u8> = self.input[..9].to_vec();
            let length = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
            let length = usize::try_from(length)?;
            if length > MESSAGE_BYTES_MAX {
                bail!("the server announced a message of {length} bytes");
            }
            self.fill(length + 9)?;
            let rest = self.input.split_off(length + 9);
            let message = std::mem::replace(&mut self.input, rest);
            if header[0] != self.version | 0x80 {
                bail!("an answer in protocol version byte {:#04x}", header[0]);
            }
            if header[1] & 0x01 != 0 {
                bail!("a compressed answer without being asked");
            }
            if (header[2], header[3]) == (0, 1) {
                return Ok((header[4], header[1], message[9..].to_vec()));
            }
        }
    }

    fn fill(&mut self, wanted: usize) -> Result<()> {
        while self.input.len() < wanted {
            if self.framed {
                let mut header = [0_u8; 6];
                self.stream.read_exact(&mut header)?;
                let crc = u32::from_le_bytes([header[3], header[4], header[5], 0]);
                if crc != crc24(&header[..3]) {
                    bail!("wrong CRC24 in a segment header");
                }
                let word = u32::from_le_bytes([header[0], header[1], header[2], 0]);
                let length = usize::try_from(word & 0x1_ffff)?;
                let mut payload = vec![0_u8; length + 4];
                self.stream.read_exact(&mut payload)?;
                let tail = payload.split_off(length);
                if tail != crc32(&payload).to_le_bytes() {
                    bail!("wrong CRC32 of a segment");
                }
                self.input.extend_from_slice(&payload);
            } else {
                let mut piece = [0_u8; 65536];
                let want = (wanted - self.input.len()).min(piece.len());
                let count = self.stream.read(&mut piece[..want])?;
                if count == 0 {
                    bail!("the server closed the connection");
                }
                self.input.extend_from_slice(&piece[..count]);
            }
        }
        Ok(())
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

/// CRC24 of a v5 segment header.
fn crc24(bytes: &[u8]) -> u32 {
    let mut crc: u32 = 0x0087_5060;
    for byte in bytes {
        crc ^= u32::from(*byte) << 16;
        for _ in 0..8 {
            crc <<= 1;
            if crc & 0x0100_0000 != 0 {
                crc ^= 0x0197_4f0b;
            }
        }
    }
    crc & 0x00ff_ffff
}

/// CRC32 of a v5 payload: seeded with four bytes, as the specification says.
fn crc32(payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[0xfa, 0x2d, 0x55, 0xca]);
    hasher.update(payload);
    hasher.finalize()
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
