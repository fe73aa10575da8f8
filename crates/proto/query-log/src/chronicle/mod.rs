//! Files that a real Cassandra wrote: queues of Chronicle (`.cq4`), with its full query log or its binary audit log.
//!
//! Owns: what is read of the format (docs/formats/chronicle-queue.md), in three layers: the container ([`container`]:
//! header words, metadata, end marks), the binary wire ([`wire`]: fields and values) and the records ([`binlog`]).
//! Never: IO, writing such files, the index of a queue (records are read in order).
//!
//! The files have no checksums. A damaged file is noticed only where a length, a code or a field is wrong.
//!
//! Source: OpenHFT's Chronicle Queue 5.23 and Chronicle Wire 2.23; files written by Cassandra 5.0.9.
//!
//! Invariant:
//! - INV-chronicle-1: no input panics the reader, is read beyond its end, or makes it allocate more than a small
//!   multiple of its size.
//!
//! Reading order: [`container`], [`wire`], [`binlog`].

pub mod binlog;
pub mod container;
mod text;
pub mod wire;

#[cfg(test)]
mod tests;

use crate::framing::PAYLOAD_BYTES_MAX;
pub use binlog::{LoggedRecord, UnsupportedRecord, decode_record};
use codec::DecodeError;
pub use container::{Excerpt, QueueCursor, QueueEnd, Step, WORD_BYTES};

/// Extension of the files of a queue. The table `metadata.cq4t` beside them has another one.
pub const EXTENSION: &str = ".cq4";

/// Defect of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChronicleError {
    /// The file does not begin with the header of a queue.
    #[error("not a file of a Chronicle queue: the excerpt at offset 0 is no header")]
    NoHeader,
    /// The header names another kind of store.
    #[error("the header at offset 0 names a store of type \"{0}\", only SCQStore is read")]
    StoreType(String),
    /// The header has a setting that is not read.
    #[error("the header at offset 0 has {field} {value}, which is not supported")]
    Setting {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// The file ends within an excerpt.
    #[error(
        "the file ends within the excerpt at offset {offset}: {needed} bytes needed, {available} left"
    )]
    Cut {
        /// Offset of the excerpt.
        offset: u64,
        /// Bytes of the excerpt.
        needed: u64,
        /// Bytes up to the end of the file.
        available: u64,
    },
    /// The excerpts end with zeros, and more bytes follow.
    #[error(
        "zeros at offset {offset}, where an excerpt or the end is expected, and data again at offset {next}"
    )]
    Hole {
        /// Offset of the zeros.
        offset: u64,
        /// Offset of the first byte after them.
        next: u64,
    },
    /// An excerpt is longer than any record.
    #[error(
        "the excerpt at offset {offset} claims {length} bytes, the limit is {PAYLOAD_BYTES_MAX}"
    )]
    Length {
        /// Offset of the excerpt.
        offset: u64,
        /// The claimed length.
        length: u32,
    },
    /// The fields of an excerpt are wrong.
    #[error("the excerpt at offset {offset} is not readable: {error}")]
    Fields {
        /// Offset of the excerpt.
        offset: u64,
        /// The fault.
        error: DecodeError,
    },
    /// An excerpt lacks a field.
    #[error("the excerpt at offset {offset} has no field \"{field}\"")]
    Missing {
        /// Offset of the excerpt.
        offset: u64,
        /// Name of the field.
        field: &'static str,
    },
    /// A batch has lists of different lengths.
    #[error("the batch at offset {offset} has {queries} statements and values for {values}")]
    Uneven {
        /// Offset of the excerpt.
        offset: u64,
        /// Number of its statements.
        queries: usize,
        /// Number of its lists of values.
        values: usize,
    },
}

/// Records of a file in memory, with their offsets, and how the file ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueFile {
    /// Records in order, each with the offset of its excerpt.
    pub records: Vec<(u64, LoggedRecord)>,
    /// How the file ends.
    pub end: QueueEnd,
}

/// Reads a whole file.
///
/// # Errors
/// The file is not of a queue, or damaged.
pub fn read_file(bytes: &[u8]) -> Result<QueueFile, ChronicleError> {
    let (mut cursor, mut records) = (QueueCursor::default(), Vec::new());
    loop {
        let at = usize::try_from(cursor.offset()).unwrap_or(usize::MAX);
        let rest = bytes.get(at..).unwrap_or_default();
        let word = rest.get(..WORD_BYTES).unwrap_or(rest);
        match cursor.step(word, bytes.len() as u64)? {
            Step::Header(excerpt) => cursor.open(excerpt, payload_of(bytes, excerpt))?,
            Step::Record(excerpt) => {
                let record = decode_record(payload_of(bytes, excerpt), excerpt.offset)?;
                records.push((excerpt.offset, record));
            }
            Step::Skipped => {}
            Step::End(end) => return Ok(QueueFile { records, end }),
        }
    }
}

fn payload_of(bytes: &[u8], excerpt: Excerpt) -> &[u8] {
    let begin = usize::try_from(excerpt.begin).unwrap_or(usize::MAX);
    bytes.get(begin..begin.saturating_add(excerpt.length)).unwrap_or_default()
}
