//! The records: `version`, `type`, then the fields of the full query log or of the binary audit log.

use super::ChronicleError;
use super::wire::WireReader;
use crate::record::{BatchQuery, LoggedStatement, LoggedValue, QueryRecord};
use codec::DecodeError;
use cql_wire::BatchKind;

/// Newest version of the records of both logs.
const VERSION: i64 = 0;
/// Type of a record with a single statement.
const SINGLE: &str = "single-query";
/// Type of a record with a batch.
const BATCH: &str = "batch";
/// Type of a record of the audit log.
const AUDIT: &str = "audit";
/// Most statements of a batch, as in the native protocol.
const QUERIES_MAX: usize = 65_535;
/// Most values of a batch. Null takes one byte in the file and more in memory.
const VALUES_MAX: usize = 1 << 22;

/// A record of Cassandra.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedRecord {
    /// A request, of the full query log.
    Query(QueryRecord),
    /// A line of the audit log.
    Audit(String),
    /// A record of another version or type.
    Unsupported(UnsupportedRecord),
}

/// Why a record is not read; the texts are those of Cassandra's tools.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedRecord {
    /// The version is newer.
    #[error("Unsupported record version [{0}] - highest supported version is [{VERSION}]")]
    Version(i64),
    /// The type is another one.
    #[error(
        "Unsupported record type field [{0}] - supported record types are [{SINGLE}, {BATCH}, {AUDIT}]"
    )]
    Type(String),
}

/// Reads the record in `payload`; `offset` is the offset of the excerpt in its file.
///
/// # Errors
/// The bytes are no record.
pub fn decode_record(payload: &[u8], offset: u64) -> Result<LoggedRecord, ChronicleError> {
    let fields = |error| ChronicleError::Fields { offset, error };
    let mut wire = WireReader::new(payload, "record");
    let missing = |field| ChronicleError::Missing { offset, field };
    if wire.field().map_err(fields)?.as_deref() != Some("version") {
        return Err(missing("version"));
    }
    wire.rename("version");
    let version = wire.integer().map_err(fields)?;
    if version > VERSION {
        return Ok(LoggedRecord::Unsupported(UnsupportedRecord::Version(version)));
    }
    wire.rename("record");
    if wire.field().map_err(fields)?.as_deref() != Some("type") {
        return Err(missing("type"));
    }
    wire.rename("type");
    let kind = wire.text().map_err(fields)?.ok_or_else(|| missing("type"))?;
    if ![SINGLE, BATCH, AUDIT].contains(&kind.as_str()) {
        return Ok(LoggedRecord::Unsupported(UnsupportedRecord::Type(kind)));
    }
    let mut found = RecordFields::default();
    found.read(&mut wire).map_err(fields)?;
    if kind == AUDIT {
        return Ok(LoggedRecord::Audit(found.message.ok_or_else(|| missing("message"))?));
    }
    let statement = match kind == SINGLE {
        true => {
            LoggedStatement::Single { query: found.query.take().ok_or_else(|| missing("query"))? }
        }
        false => found.take_batch(offset)?,
    };
    Ok(LoggedRecord::Query(QueryRecord {
        start_millis: found.start_millis.ok_or_else(|| missing("query-start-time"))?,
        protocol_version: found.protocol_version.ok_or_else(|| missing("protocol-version"))?,
        options: found.options.ok_or_else(|| missing("query-options"))?,
        generated_timestamp: found
            .generated_timestamp
            .ok_or_else(|| missing("generated-timestamp"))?,
        generated_now: found.generated_now.ok_or_else(|| missing("generated-now-in-seconds"))?,
        keyspace: found.keyspace.ok_or_else(|| missing("keyspace"))?,
        statement,
    }))
}

/// Fields of a record, as far as it has them.
#[derive(Default)]
struct RecordFields {
    message: Option<String>,
    start_millis: Option<i64>,
    protocol_version: Option<u8>,
    options: Option<Vec<u8>>,
    generated_timestamp: Option<i64>,
    generated_now: Option<i64>,
    keyspace: Option<Option<String>>,
    query: Option<String>,
    batch_kind: Option<BatchKind>,
    queries: Option<Vec<String>>,
    values: Option<Vec<Vec<LoggedValue>>>,
}

impl RecordFields {
    /// Reads all fields. One that is not known is skipped.
    fn read(&mut self, wire: &mut WireReader<'_>) -> Result<(), DecodeError> {
        loop {
            wire.rename("record");
            let Some(name) = wire.field()? else { return Ok(()) };
            match name.as_str() {
                "message" => self.message = read_text(wire, "message")?,
                "query-start-time" => {
                    self.start_millis = Some(read_integer(wire, "query-start-time")?)
                }
                "protocol-version" => self.protocol_version = Some(read_protocol_version(wire)?),
                "query-options" => {
                    wire.rename("query-options");
                    self.options = wire.bytes()?.map(<[u8]>::to_vec);
                }
                "generated-timestamp" => {
                    self.generated_timestamp = Some(read_integer(wire, "generated-timestamp")?);
                }
                "generated-now-in-seconds" => {
                    self.generated_now = Some(read_integer(wire, "generated-now-in-seconds")?);
                }
                "keyspace" => self.keyspace = Some(read_text(wire, "keyspace")?),
                "query" => self.query = read_text(wire, "query")?,
                "batch-type" => self.batch_kind = Some(read_batch_kind(wire)?),
                "queries" => self.queries = Some(read_queries(wire)?),
                "values" => self.values = Some(read_values(wire)?),
                _ => wire.skip_value()?,
            }
        }
    }

    fn take_batch(&mut self, offset: u64) -> Result<LoggedStatement, ChronicleError> {
        let missing = |field| ChronicleError::Missing { offset, field };
        let kind = self.batch_kind.ok_or_else(|| missing("batch-type"))?;
        let queries = self.queries.take().ok_or_else(|| missing("queries"))?;
        let values = self.values.take().ok_or_else(|| missing("values"))?;
        if queries.len() != values.len() {
            let (queries, values) = (queries.len(), values.len());
            return Err(ChronicleError::Uneven { offset, queries, values });
        }
        let queries = queries.into_iter().zip(values);
        let queries = queries.map(|(query, values)| BatchQuery { query, values }).collect();
        Ok(LoggedStatement::Batch { kind, queries })
    }
}

fn read_text(wire: &mut WireReader<'_>, name: &'static str) -> Result<Option<String>, DecodeError> {
    wire.rename(name);
    wire.text()
}

fn read_integer(wire: &mut WireReader<'_>, name: &'static str) -> Result<i64, DecodeError> {
    wire.rename(name);
    wire.integer()
}

fn read_protocol_version(wire: &mut WireReader<'_>) -> Result<u8, DecodeError> {
    wire.rename("protocol-version");
    let version = wire.count(usize::from(u8::MAX))?;
    Ok(u8::try_from(version).unwrap_or(u8::MAX))
}

fn read_batch_kind(wire: &mut WireReader<'_>) -> Result<BatchKind, DecodeError> {
    wire.rename("batch-type");
    let before = *wire;
    match wire.text()?.as_deref() {
        Some("LOGGED") => Ok(BatchKind::Logged),
        Some("UNLOGGED") => Ok(BatchKind::Unlogged),
        Some("COUNTER") => Ok(BatchKind::Counter),
        _ => Err(before.invalid()),
    }
}

fn read_queries(wire: &mut WireReader<'_>) -> Result<Vec<String>, DecodeError> {
    wire.rename("queries");
    let count = wire.count(QUERIES_MAX)?;
    let mut queries = Vec::new();
    for _ in 0..count {
        let before = *wire;
        queries.push(wire.text()?.ok_or_else(|| before.invalid())?);
    }
    Ok(queries)
}

/// Reads the values of each statement. Unset is stored as empty bytes.
fn read_values(wire: &mut WireReader<'_>) -> Result<Vec<Vec<LoggedValue>>, DecodeError> {
    wire.rename("values");
    let count = wire.count(QUERIES_MAX)?;
    let (mut all, mut room) = (Vec::new(), VALUES_MAX);
    for _ in 0..count {
        let values = wire.count(room)?;
        room = room.saturating_sub(values);
        let mut of_query = Vec::new();
        for _ in 0..values {
            of_query.push(match wire.bytes()? {
                Some(bytes) => LoggedValue::Bytes(bytes.to_vec()),
                None => LoggedValue::Null,
            });
        }
        all.push(of_query);
    }
    Ok(all)
}
