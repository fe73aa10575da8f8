//! Our files of the full query log: one frame for each record (docs/formats/query-log.md).

use crate::framing::{FileFormat, FrameError, next_frame, push_frame};
use crate::record::{BatchQuery, LoggedStatement, LoggedValue, QueryRecord};
use codec::{DecodeError, Reader};
use cql_wire::BatchKind;

/// The files.
pub const QUERY_LOG: FileFormat =
    FileFormat { magic: *b"HELQUERY", version: 1, name: "full query log" };
/// Extension of the files.
pub const EXTENSION: &str = ".fql";
/// Kind of a record with a single statement.
const SINGLE: u8 = 1;
/// Kind of a record with a batch.
const BATCH: u8 = 2;
/// Length of a value or text that is null.
const NULL: i32 = -1;
/// Length of a value that is unset.
const UNSET: i32 = -2;

/// Defect of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryLogError {
    /// The frame is cut off or damaged.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The checksum is right, the fields are not.
    #[error("the record at offset {offset} is no query record: {error}")]
    Fields {
        /// Offset of the record in its file.
        offset: u64,
        /// The defect.
        error: DecodeError,
    },
}

/// Appends a record, with its frame.
pub fn push_record(out: &mut Vec<u8>, record: &QueryRecord) {
    push_frame(out, |out| push_payload(out, record));
}

/// Reads the record at the beginning of `rest`; `offset` is its offset in the file. Returns it and the bytes of its
/// frame; `None` at the end.
///
/// # Errors
/// The record is cut off or damaged.
pub fn next_record(
    rest: &[u8],
    offset: u64,
) -> Result<Option<(QueryRecord, usize)>, QueryLogError> {
    let Some((payload, bytes)) = next_frame(rest, offset)? else { return Ok(None) };
    Ok(Some((read_payload(payload, offset)?, bytes)))
}

/// Reads the payload of the frame at `offset` of a file.
///
/// # Errors
/// The bytes are no record.
pub fn read_payload(payload: &[u8], offset: u64) -> Result<QueryRecord, QueryLogError> {
    decode(payload).map_err(|error| QueryLogError::Fields { offset, error })
}

fn push_payload(out: &mut Vec<u8>, record: &QueryRecord) {
    out.push(match record.statement {
        LoggedStatement::Single { .. } => SINGLE,
        LoggedStatement::Batch { .. } => BATCH,
    });
    out.push(record.protocol_version);
    out.extend_from_slice(&record.start_millis.to_le_bytes());
    out.extend_from_slice(&record.generated_timestamp.to_le_bytes());
    out.extend_from_slice(&record.generated_now.to_le_bytes());
    push_bytes(out, Some(record.options.as_slice()));
    push_bytes(out, record.keyspace.as_deref().map(str::as_bytes));
    match &record.statement {
        LoggedStatement::Single { query } => push_bytes(out, Some(query.as_bytes())),
        LoggedStatement::Batch { kind, queries } => {
            out.push(kind.number());
            push_length(out, queries.len());
            for one in queries {
                push_bytes(out, Some(one.query.as_bytes()));
                push_length(out, one.values.len());
                for value in &one.values {
                    match value {
                        LoggedValue::Null => push_bytes(out, None),
                        LoggedValue::Unset => out.extend_from_slice(&UNSET.to_le_bytes()),
                        LoggedValue::Bytes(bytes) => push_bytes(out, Some(bytes)),
                    }
                }
            }
        }
    }
}

fn push_length(out: &mut Vec<u8>, length: usize) {
    // Requests are shorter than 2 GiB.
    out.extend_from_slice(&i32::try_from(length).unwrap_or(i32::MAX).to_le_bytes());
}

fn push_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => out.extend_from_slice(&NULL.to_le_bytes()),
        Some(bytes) => {
            push_length(out, bytes.len());
            out.extend_from_slice(bytes);
        }
    }
}

fn decode(payload: &[u8]) -> Result<QueryRecord, DecodeError> {
    let mut r = Reader::new(payload, "kind of the record");
    let kind = r.u8()?;
    r.rename("record");
    let protocol_version = r.u8()?;
    let start_millis = r.i64_le()?;
    let generated_timestamp = r.i64_le()?;
    let generated_now = r.i64_le()?;
    r.rename("query options");
    let options = required(&mut r)?.to_vec();
    r.rename("keyspace");
    let keyspace = match length(&mut r, NULL)? {
        Ok(bytes) => Some(r.utf8(bytes)?.to_owned()),
        Err(_) => None,
    };
    let statement = match kind {
        SINGLE => LoggedStatement::Single { query: query(&mut r)? },
        BATCH => batch(&mut r)?,
        other => {
            return Err(Reader::new(payload, "kind of the record").invalid(i64::from(other)));
        }
    };
    r.finish()?;
    Ok(QueryRecord {
        start_millis,
        protocol_version,
        options,
        generated_timestamp,
        generated_now,
        keyspace,
        statement,
    })
}

/// Reads a length: that many bytes follow, or it is one of the negative numbers from `lowest` on.
fn length(r: &mut Reader<'_>, lowest: i32) -> Result<Result<usize, i32>, DecodeError> {
    let before = *r;
    let length = r.i32_le()?;
    match usize::try_from(length) {
        Ok(length) => Ok(Ok(length)),
        Err(_) if length >= lowest => Ok(Err(length)),
        Err(_) => Err(before.invalid(i64::from(length))),
    }
}

fn required<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let bytes = count(r)?;
    r.bytes(bytes)
}

/// Reads a number that is not negative.
fn count(r: &mut Reader<'_>) -> Result<usize, DecodeError> {
    let before = *r;
    match length(r, 0)? {
        Ok(count) => Ok(count),
        Err(negative) => Err(before.invalid(i64::from(negative))),
    }
}

fn query(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    r.rename("query");
    let bytes = count(r)?;
    Ok(r.utf8(bytes)?.to_owned())
}

fn batch(r: &mut Reader<'_>) -> Result<LoggedStatement, DecodeError> {
    r.rename("batch");
    let before = *r;
    let number = r.u8()?;
    let kind = BatchKind::from_number(number).map_err(|_| before.invalid(i64::from(number)))?;
    // Two lengths each.
    let queries = count(r)?;
    let queries = r.check_count(queries, 8)?;
    let mut all = Vec::new();
    for _ in 0..queries {
        let query = query(r)?;
        r.rename("values");
        let values = count(r)?;
        let values = r.check_count(values, 4)?;
        let values = (0..values).map(|_| value(r)).collect::<Result<_, _>>()?;
        all.push(BatchQuery { query, values });
    }
    Ok(LoggedStatement::Batch { kind, queries: all })
}

fn value(r: &mut Reader<'_>) -> Result<LoggedValue, DecodeError> {
    Ok(match length(r, UNSET)? {
        Ok(bytes) => LoggedValue::Bytes(r.bytes(bytes)?.to_vec()),
        Err(NULL) => LoggedValue::Null,
        Err(_) => LoggedValue::Unset,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::{FRAME_HEADER_BYTES, HEADER_BYTES};
    use crate::record::{NO_NOW, NO_TIMESTAMP};

    fn single() -> QueryRecord {
        QueryRecord {
            start_millis: 0x0102_0304,
            protocol_version: 5,
            options: vec![0, 1, 0, 0, 0, 0],
            generated_timestamp: NO_TIMESTAMP,
            generated_now: NO_NOW,
            keyspace: None,
            statement: LoggedStatement::Single { query: "SELECT 1".to_owned() },
        }
    }

    fn batch() -> QueryRecord {
        let one = |query: &str, values| BatchQuery { query: query.to_owned(), values };
        let values = vec![
            LoggedValue::Bytes(vec![7; 3]),
            LoggedValue::Null,
            LoggedValue::Unset,
            LoggedValue::Bytes(Vec::new()),
        ];
        QueryRecord {
            keyspace: Some("Ks".to_owned()),
            generated_timestamp: 5,
            generated_now: 6,
            statement: LoggedStatement::Batch {
                kind: BatchKind::Counter,
                queries: vec![one("a", values), one("é", Vec::new())],
            },
            ..single()
        }
    }

    fn file(records: &[QueryRecord]) -> Vec<u8> {
        let mut out = QUERY_LOG.header().to_vec();
        for record in records {
            push_record(&mut out, record);
        }
        out
    }

    fn read(bytes: &[u8]) -> Result<Vec<QueryRecord>, QueryLogError> {
        QUERY_LOG.check_header(bytes)?;
        let (mut at, mut records) = (HEADER_BYTES, Vec::new());
        while let Some((record, length)) = next_record(&bytes[at..], at as u64)? {
            records.push(record);
            at += length;
        }
        Ok(records)
    }

    const GOLDEN: &[&str] = &[
        "48454c51554552590100000088c406cc34000000644058fe0105040302010000",
        "0000000000000000008000000080ffffffff06000000000100000000ffffffff",
        "0800000053454c45435420315500000016a96c69020504030201000000000500",
        "000000000000060000000000000006000000000100000000020000004b730202",
        "00000001000000610400000003000000070707fffffffffeffffff0000000002",
        "000000c3a900000000",
    ];

    #[test]
    fn a_file_is_the_same_in_every_version() {
        let bytes = file(&[single(), batch()]);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN.concat());
        assert_eq!(read(&bytes).unwrap(), [single(), batch()]);
    }

    /// INV-querylog-1.
    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let bytes = file(&[single(), batch()]);
        for at in 0..bytes.len() {
            for bit in [0x01, 0x10, 0x80] {
                let mut changed = bytes.clone();
                changed[at] ^= bit;
                assert!(read(&changed).is_err(), "byte {at}");
            }
        }
        let ends = [HEADER_BYTES, file(&[single()]).len(), bytes.len()];
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length]).is_ok(), ends.contains(&length), "{length} bytes");
        }
    }

    /// Payload with a right checksum and wrong fields.
    #[test]
    fn wrong_fields_are_refused_with_their_offset() {
        let mut out = Vec::new();
        push_record(&mut out, &batch());
        let payload = out.split_off(FRAME_HEADER_BYTES);
        assert_eq!(read_payload(&payload, 16).unwrap(), batch());
        for length in 0..payload.len() {
            assert!(read_payload(&payload[..length], 16).is_err(), "{length} bytes");
        }
        let refused = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut changed = payload.clone();
            change(&mut changed);
            read_payload(&changed, 16).unwrap_err().to_string()
        };
        let prefix = "the record at offset 16 is no query record: ";
        let kind = refused(&|bytes| bytes[0] = 3);
        assert_eq!(kind, format!("{prefix}kind of the record has the invalid value 3 at byte 0"));
        let longer = refused(&|bytes| bytes.push(0));
        assert_eq!(
            longer,
            format!("{prefix}values has 1 bytes too many at byte {}", payload.len())
        );
        let options = refused(&|bytes| bytes[26..30].fill(0xff));
        assert_eq!(options, format!("{prefix}query options has the invalid value -1 at byte 26"));
        // After the options and "Ks": the kind of the batch, then the number of statements.
        assert!(refused(&|bytes| bytes[42] = 3).contains("batch has the invalid value 3"));
        assert!(refused(&|bytes| bytes[46] = 0x7f).contains("batch is cut short at byte 47"));
    }

    /// INV-querylog-2.
    #[test]
    fn no_bytes_panic() {
        testkit::mutate([file(&[single(), batch()])], crate::fuzz::fuzz_query_log);
    }
}
