//! The binary audit log: a file of checksummed records.
//!
//! Owns: header and records (docs/formats/audit-log.md), reading them back. Never: names of files ([`crate::binlog`]).
//! A record that a crash cut off is the last one of its file: a start never appends to an older file.

use crate::binlog::{BinaryFiles, Layout};
use codec::crc32;
use conf::RollCycle;

/// First bytes of a file.
pub const MAGIC: [u8; 8] = *b"HELAUDIT";
/// Version of the format.
pub const VERSION: u32 = 1;
/// Bytes of the header: magic, version, checksum of both.
pub const HEADER_BYTES: usize = 16;
/// Bytes before the payload of a record: its length, its checksum.
pub const RECORD_HEADER_BYTES: usize = 8;
/// Longest payload of a record.
pub const PAYLOAD_BYTES_MAX: usize = 256 << 20;
/// Kind of a record with a line of the audit log.
pub const KIND_LINE: u8 = 1;

/// Files of the binary audit log that roll with this cycle.
pub fn layout(cycle: RollCycle) -> Layout {
    Layout::Binary(BinaryFiles { cycle, extension: ".audit", header: header() })
}

/// Returns the header of a file.
pub fn header() -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    let [magic @ .., _, _, _, _] = &mut out;
    let (name, version) = magic.split_at_mut(8);
    name.copy_from_slice(&MAGIC);
    version.copy_from_slice(&VERSION.to_le_bytes());
    let checksum = crc32(out.get(..12).unwrap_or_default()).to_le_bytes();
    if let Some(slot) = out.get_mut(12..) {
        slot.copy_from_slice(&checksum);
    }
    out
}

/// Appends a record with a line.
pub fn push_record(out: &mut Vec<u8>, millis: i64, line: &str) {
    let begin = out.len();
    out.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
    out.push(KIND_LINE);
    out.extend_from_slice(&millis.to_le_bytes());
    out.extend_from_slice(line.as_bytes());
    let payload = out.get(begin + RECORD_HEADER_BYTES..).unwrap_or_default();
    // Texts of requests are shorter than 4 GiB.
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes();
    let mut summed = Vec::from(length);
    summed.extend_from_slice(payload);
    let checksum = crc32(&summed).to_le_bytes();
    if let Some(slot) = out.get_mut(begin..begin + 4) {
        slot.copy_from_slice(&length);
    }
    if let Some(slot) = out.get_mut(begin + 4..begin + 8) {
        slot.copy_from_slice(&checksum);
    }
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

/// Defect of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BinaryLogError {
    /// The file is none of this format.
    #[error("not a binary audit log of Helenus")]
    Magic,
    /// The file has another version.
    #[error("version {0} of the audit log is not supported")]
    Version(u32),
    /// The header is damaged.
    #[error("checksum mismatch in the header")]
    Header,
    /// The file ends within a record, as after a crash.
    #[error("the file ends within a record at offset {offset}")]
    Cut {
        /// Offset of the record.
        offset: u64,
    },
    /// A record is damaged.
    #[error("checksum mismatch of the record at offset {offset}")]
    Checksum {
        /// Offset of the record.
        offset: u64,
    },
    /// A record is longer than any can be.
    #[error("the record at offset {offset} claims {length} bytes")]
    Length {
        /// Offset of the record.
        offset: u64,
        /// The claimed length.
        length: u32,
    },
    /// A line is no UTF-8.
    #[error("the record at offset {offset} is not valid UTF-8")]
    Text {
        /// Offset of the record.
        offset: u64,
    },
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}

/// Checks the header of a file.
///
/// # Errors
/// Other bytes, another version, a damaged header.
pub fn check_header(bytes: &[u8]) -> Result<(), BinaryLogError> {
    if bytes.get(..8) != Some(&MAGIC[..]) {
        return Err(BinaryLogError::Magic);
    }
    let (Some(version), Some(checksum)) = (u32_at(bytes, 8), u32_at(bytes, 12)) else {
        return Err(BinaryLogError::Cut { offset: 0 });
    };
    if crc32(bytes.get(..12).unwrap_or_default()) != checksum {
        return Err(BinaryLogError::Header);
    }
    if version != VERSION {
        return Err(BinaryLogError::Version(version));
    }
    Ok(())
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
    if rest.is_empty() {
        return Ok(None);
    }
    let cut = BinaryLogError::Cut { offset };
    let length = u32_at(rest, 0).ok_or_else(|| cut.clone())?;
    let checksum = u32_at(rest, 4).ok_or_else(|| cut.clone())?;
    let bytes = usize::try_from(length).unwrap_or(usize::MAX);
    if bytes > PAYLOAD_BYTES_MAX {
        return Err(BinaryLogError::Length { offset, length });
    }
    let end = RECORD_HEADER_BYTES + bytes;
    let payload = rest.get(RECORD_HEADER_BYTES..end).ok_or(cut)?;
    let mut summed = Vec::with_capacity(bytes + 4);
    summed.extend_from_slice(&length.to_le_bytes());
    summed.extend_from_slice(payload);
    let damaged = BinaryLogError::Checksum { offset };
    if crc32(&summed) != checksum {
        return Err(damaged);
    }
    let (&kind, body) = payload.split_first().ok_or_else(|| damaged.clone())?;
    if kind != KIND_LINE {
        return Ok(Some((Record::Unknown(kind), end)));
    }
    let (millis, line) = body.split_first_chunk::<8>().ok_or(damaged)?;
    let line = std::str::from_utf8(line).map_err(|_| BinaryLogError::Text { offset })?;
    Ok(Some((Record::Line { millis: i64::from_le_bytes(*millis), line }, end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(lines: &[&str]) -> Vec<u8> {
        let mut out = header().to_vec();
        for (index, line) in lines.iter().enumerate() {
            push_record(&mut out, index as i64, line);
        }
        out
    }

    fn read(bytes: &[u8]) -> Result<Vec<String>, BinaryLogError> {
        check_header(bytes)?;
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
        assert_eq!(bytes.len(), HEADER_BYTES + RECORD_HEADER_BYTES + 12);
        assert_eq!(&bytes[16..20], &[12, 0, 0, 0]);
        assert_eq!(&bytes[24..], b"\x01\0\0\0\0\0\0\0\0a|b");
        let sums = (u32_at(&bytes, 12).unwrap(), u32_at(&bytes, 20).unwrap());
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
        let ends = [HEADER_BYTES, HEADER_BYTES + RECORD_HEADER_BYTES + 9 + 5, bytes.len()];
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
