//! The binary audit log: a file of checksummed records.
//!
//! Owns: the records (docs/formats/audit-log.md), reading them back. Never: frames (those of the full query log,
//! [`query_log::framing`]), names of files ([`crate::binlog`]).

use crate::binlog::{BinaryFiles, Layout};
use conf::RollCycle;
use query_log::framing::{FileFormat, FrameError, next_frame, push_frame};

/// The format of the files.
pub const AUDIT_LOG: FileFormat =
    FileFormat { magic: *b"HELAUDIT", version: 1, name: "binary audit log" };
/// Kind of a record with a line of the audit log.
pub const KIND_LINE: u8 = 1;

/// Files of the binary audit log that roll with this cycle.
pub fn layout(cycle: RollCycle) -> Layout {
    Layout::Binary(BinaryFiles { cycle, extension: ".audit", header: AUDIT_LOG.header() })
}

/// Appends a record with a line that `write` appends.
#[inline]
pub fn push_record(out: &mut Vec<u8>, millis: i64, write: impl FnOnce(&mut Vec<u8>)) {
    push_frame(out, |out| {
        out.push(KIND_LINE);
        out.extend_from_slice(&millis.to_le_bytes());
        write(out);
    });
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'f> {
    /// A line of the audit log, and when it was logged.
    Line {
        /// Milliseconds since the epoch.
        millis: i64,
        /// The line.
        line: &'f str,
    },
    /// A kind that this version does not know.
    Unknown(u8),
}

/// Defect of a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BinaryLogError {
    /// Its frame cannot be read.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It has a kind and no time.
    #[error("the record at offset {offset} ends within its time")]
    Short {
        /// Offset of the record.
        offset: u64,
    },
    /// A line is no UTF-8.
    #[error("the record at offset {offset} is not valid UTF-8")]
    Text {
        /// Offset of the record.
        offset: u64,
    },
}

/// Reads the payload of the frame at `offset` of its file.
///
/// # Errors
/// It is no record.
pub fn read_payload(payload: &[u8], offset: u64) -> Result<Record<'_>, BinaryLogError> {
    let Some((&kind, body)) = payload.split_first() else {
        return Err(BinaryLogError::Short { offset });
    };
    if kind != KIND_LINE {
        return Ok(Record::Unknown(kind));
    }
    let Some((millis, line)) = body.split_first_chunk::<8>() else {
        return Err(BinaryLogError::Short { offset });
    };
    let line = std::str::from_utf8(line).map_err(|_| BinaryLogError::Text { offset })?;
    Ok(Record::Line { millis: i64::from_le_bytes(*millis), line })
}

/// Reads the record at the beginning of `rest`; `offset` is its place in the file. Returns it with its length;
/// `None` at the end.
///
/// # Errors
/// The record is cut off or damaged.
pub fn next_record(
    rest: &[u8],
    offset: u64,
) -> Result<Option<(Record<'_>, usize)>, BinaryLogError> {
    let Some((payload, length)) = next_frame(rest, offset)? else { return Ok(None) };
    Ok(Some((read_payload(payload, offset)?, length)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::crc32;
    use query_log::framing::{FRAME_HEADER_BYTES, HEADER_BYTES};

    fn u32_at(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    fn file(lines: &[&str]) -> Vec<u8> {
        let mut out = AUDIT_LOG.header().to_vec();
        for (index, line) in lines.iter().enumerate() {
            push_record(&mut out, index as i64, |out| out.extend_from_slice(line.as_bytes()));
        }
        out
    }

    fn read(bytes: &[u8]) -> Result<Vec<String>, BinaryLogError> {
        AUDIT_LOG.check_header(bytes)?;
        let (mut at, mut lines) = (HEADER_BYTES, Vec::new());
        while let Some((record, length)) = next_record(&bytes[at..], at as u64)? {
            match record {
                Record::Line { line, .. } => lines.push(line.to_owned()),
                Record::Unknown(kind) => lines.push(format!("kind {kind}")),
            }
            at += length;
        }
        Ok(lines)
    }

    #[test]
    fn a_file_is_the_same_in_every_version() {
        let bytes = file(&["a|b"]);
        assert_eq!(&bytes[..12], b"HELAUDIT\x01\0\0\0");
        assert_eq!(bytes.len(), HEADER_BYTES + FRAME_HEADER_BYTES + 12);
        assert_eq!(&bytes[16..20], &[12, 0, 0, 0]);
        assert_eq!(&bytes[24..], b"\x01\0\0\0\0\0\0\0\0a|b");
        let sums = (u32_at(&bytes, 12), u32_at(&bytes, 20));
        assert_eq!(sums, GOLDEN_CHECKSUMS);
        assert_eq!(read(&bytes).unwrap(), ["a|b"]);
    }

    const GOLDEN_CHECKSUMS: (u32, u32) = (1_462_811_556, 3_105_833_835);

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let bytes = file(&["first", "second"]);
        assert_eq!(read(&bytes).unwrap(), ["first", "second"]);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert!(read(&changed).is_err(), "byte {at}");
        }
        let ends = [HEADER_BYTES, HEADER_BYTES + FRAME_HEADER_BYTES + 9 + 5, bytes.len()];
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length]).is_ok(), ends.contains(&length), "{length} bytes");
        }
    }

    #[test]
    fn an_unknown_kind_is_passed_on_by_its_number() {
        let mut bytes = file(&["x"]);
        bytes[24] = 9;
        let sum = crc32(&[&bytes[16..20], &bytes[24..]].concat()).to_le_bytes();
        bytes[20..24].copy_from_slice(&sum);
        assert_eq!(read(&bytes).unwrap(), ["kind 9"]);
    }

    #[test]
    fn no_bytes_panic() {
        testkit::mutate([file(&["one", "two"])], crate::fuzz::fuzz_audit_log);
    }
}
