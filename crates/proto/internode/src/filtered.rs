//! Reads of ranges whose page a replica filters ([`crate::Verb::FilteredRead`]): the rows that pass, and the
//! properties of the whole page.
//!
//! ```text
//! request: version u8 · work v, bytes · read request, as of RangeRead, up to the end
//! answer:  version u8 · flags u8 · digest of the whole page 16 · of the whole page: live rows v · tombstones v
//!          · bytes v · partitions v · left out: rows v · partitions v · bytes v · [last key u16, bytes]
//!          · replica page, up to the end
//! ```
//!
//! Work is the filter part of a [`crate::ScanRequest`]. The page ends where the whole one does and holds no deletions.

use codec::{DecodeError, Reader, Writer};
use data::command::{Partitions, ReadCommand};
use data::replica_page::WholePage;

use crate::read::{ReadLimits, ReadRequest, encode_read, put_key};
use crate::scan::take_u32;

/// The version of both.
pub const FILTERED_VERSION: u8 = 1;

const HAS_LAST_KEY: u8 = 1;

/// Payload of [`crate::Verb::FilteredRead`].
#[derive(Clone, Debug)]
pub struct FilteredRead<'a> {
    /// Filter of the rows.
    pub work: &'a [u8],
    /// Limits of the page; no limit of rows per partition.
    pub limits: ReadLimits,
    /// The read, of a range.
    pub command: ReadCommand,
}

/// Appends a request without needing to own the command.
pub fn encode_filtered_read(
    out: &mut Vec<u8>,
    work: &[u8],
    command: &ReadCommand,
    limits: ReadLimits,
) {
    out.put_u8(FILTERED_VERSION);
    out.put_bytes_vint(work);
    encode_read(out, command, limits, false);
}

impl FilteredRead<'_> {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode_filtered_read(out, self.work, &self.command, self.limits);
    }

    /// Decodes a request; its read command is checked as in [`ReadRequest::decode`].
    ///
    /// # Errors
    /// Not a request of this version, of one partition, for a digest, or with a limit per
    /// partition.
    pub fn decode(payload: &[u8]) -> Result<FilteredRead<'_>, DecodeError> {
        let mut reader = Reader::new(payload, "filtered read");
        let version = reader.u8()?;
        if version != FILTERED_VERSION {
            return Err(reader.invalid(i64::from(version)));
        }
        let work = reader.bytes_vint()?;
        let ReadRequest { digest, limits, command } = ReadRequest::decode(reader.rest())?;
        let is_range = matches!(command.partitions, Partitions::Range(_));
        if digest || !is_range || limits.rows_per_partition != u32::MAX {
            return Err(reader.invalid(0));
        }
        Ok(FilteredRead { work, limits, command })
    }
}

/// Response to [`crate::Verb::FilteredRead`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilteredAnswer<'a> {
    /// Digest of the whole page.
    pub digest: u128,
    /// Properties of the whole page.
    pub whole: WholePage,
    /// Key of the last partition that was scanned.
    pub last_key: Option<&'a [u8]>,
    /// The rows that pass, as a replica page.
    pub page: &'a [u8],
}

impl FilteredAnswer<'_> {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        // Named one by one, so that a new field cannot be forgotten here.
        let WholePage {
            live_rows,
            tombstones,
            bytes,
            partitions,
            dropped_rows,
            dropped_partitions,
            dropped_bytes,
        } = self.whole;
        out.put_u8(FILTERED_VERSION);
        out.put_u8(if self.last_key.is_some() { HAS_LAST_KEY } else { 0 });
        out.put_bytes(&self.digest.to_be_bytes());
        out.put_vint_unsigned(u64::from(live_rows));
        out.put_vint_unsigned(u64::from(tombstones));
        for count in [bytes, partitions, dropped_rows, dropped_partitions, dropped_bytes] {
            out.put_vint_unsigned(count);
        }
        if let Some(key) = self.last_key {
            put_key(out, key);
        }
        out.put_bytes(self.page);
    }

    /// Reads one back; the page is not looked into.
    ///
    /// # Errors
    /// Not an answer of this version.
    pub fn decode(payload: &[u8]) -> Result<FilteredAnswer<'_>, DecodeError> {
        let mut reader = Reader::new(payload, "filtered page");
        let version = reader.u8()?;
        if version != FILTERED_VERSION {
            return Err(reader.invalid(i64::from(version)));
        }
        let flags = reader.u8()?;
        if flags & !HAS_LAST_KEY != 0 {
            return Err(reader.invalid(i64::from(flags)));
        }
        let digest = u128::from_be_bytes(reader.array()?);
        let whole = WholePage {
            live_rows: take_u32(&mut reader)?,
            tombstones: take_u32(&mut reader)?,
            bytes: reader.vint_unsigned()?,
            partitions: reader.vint_unsigned()?,
            dropped_rows: reader.vint_unsigned()?,
            dropped_partitions: reader.vint_unsigned()?,
            dropped_bytes: reader.vint_unsigned()?,
        };
        let last_key = if flags & HAS_LAST_KEY != 0 { Some(reader.bytes_u16()?) } else { None };
        Ok(FilteredAnswer { digest, whole, last_key, page: reader.rest() })
    }
}
