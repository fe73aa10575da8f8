//! Cassandra's SSTable formats, BIG (versions `ma` to `oa`) and BTI (`da`), as pure encoders and
//! decoders over byte slices, plus our own `Checksums.db`.
//!
//! Owns: the bytes of every component. Never: IO, clocks, the order in which files are read (crate
//! `sstable`), the meaning of a row (crate `data`).
//!
//! Invariants: INV-format-1: no decoder panics on any bytes, and none allocates on the word of a
//! length field. INV-format-2: what an encoder writes, its decoder reads back equal, except local
//! deletion times beyond the last one of the version (2038, since `oa` 2106), which are capped (never
//! wrapped).
//!
//! Reading order: [`version`], [`component`], [`attached`], [`header`], [`row`], [`index`], [`statistics`],
//! [`trie`], [`partitions`], the rest.
//! See `docs/formats/sstable.md`.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::expect_used
)]
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

pub mod attached;
pub mod byte_order;
pub mod checksums;
mod chunk;
pub mod clustering;
pub mod component;
pub mod compression_info;
pub mod filter;
mod filter_write;
mod foreign;
pub mod fuzz;
pub mod header;
pub mod histogram;
pub mod hyperloglog;
pub mod index;
pub mod partitions;
pub mod row;
pub mod row_copy;
pub mod row_write;
pub mod statistics;
pub mod stats_collector;
pub mod summary;
pub mod trie;
pub mod trie_write;
pub mod version;

pub use attached::{AttachedKind, AttachedName, Lifecycle};
pub use checksums::{Binding, Checksums, ComponentChecksum, StorageGroup};
pub use chunk::Chunk;
pub use component::{Component, Descriptor};
pub use compression_info::CompressionInfo;
pub use filter::BloomFilter;
pub use filter_write::FilterBuilder;
pub use header::{EncodingStats, HeaderColumn, ReadSchema, SerializationHeader, WriteSchema};
pub use index::{IndexEntry, IndexInfo};
pub use row::{Head, HeadKind, RowScratch};
pub use row_copy::{PackedRow, RawRow, RowCopier, RowPlace, UsualRow};
pub use statistics::{Partitioner, Statistics, StatsMetadata};
pub use stats_collector::StatsCollector;
pub use summary::Summary;
pub use version::Version;

use codec::DecodeError;

/// Error of decoding or encoding a component.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes cannot be decoded.
    #[error("{0}")]
    Decode(#[from] DecodeError),
    /// A checksum does not match.
    #[error("{what} at byte {offset} has the checksum {found:08x} instead of {expected:08x}")]
    Checksum {
        /// The covered bytes.
        what: &'static str,
        /// Offset of the covered bytes.
        offset: u64,
        /// Checksum stored.
        expected: u32,
        /// Checksum of the actual bytes.
        found: u32,
    },
    /// The bytes are well-formed but their contents are impossible.
    #[error("{what} at byte {offset}")]
    Invalid {
        /// The defect.
        what: &'static str,
        /// Offset of the defect.
        offset: u64,
    },
    /// Something this build does not read: another version, compressor, partitioner or type.
    #[error("{what} \"{value}\" is not supported")]
    Unsupported {
        /// Kind of the thing.
        what: &'static str,
        /// Its name in the file.
        value: String,
    },
    /// The file has a column that the table neither has nor had.
    #[error("column \"{column}\" of the file is not a column of the table")]
    UnknownColumn {
        /// Its name.
        column: String,
    },
    /// A value given to an encoder does not have the length its type fixes.
    #[error("value of {length} bytes where the type has {expected}")]
    ValueLength {
        /// Bytes given.
        length: usize,
        /// Bytes the type has.
        expected: usize,
    },
    /// More than the format's length fields allow.
    #[error("{what} is larger than the format allows")]
    TooLarge {
        /// Name of the thing.
        what: &'static str,
    },
}

impl FormatError {
    /// Byte position in the component, as far as known.
    pub fn offset(&self) -> u64 {
        match self {
            FormatError::Decode(e) => e.offset as u64,
            FormatError::Checksum { offset, .. } | FormatError::Invalid { offset, .. } => *offset,
            _ => 0,
        }
    }
}

/// Result of decoding or encoding.
pub type Result<T> = std::result::Result<T, FormatError>;

/// Largest local deletion time a file before `oa` can hold: 2038-01-19T03:14:06Z.
pub const DELETION_SECONDS_MAX: i64 = stdx::DeletionSeconds::MAX_SIGNED.0;

/// The capped 32-bit form of a local deletion time.
pub(crate) fn deletion_i32(local: stdx::DeletionSeconds) -> i32 {
    if local == stdx::DeletionSeconds::NONE {
        return i32::MAX;
    }
    i32::try_from(local.0.clamp(i64::from(i32::MIN), DELETION_SECONDS_MAX)).unwrap_or(i32::MAX)
}

/// Inverse of [`deletion_i32`].
pub(crate) fn deletion_from_i32(local: i32) -> stdx::DeletionSeconds {
    if local == i32::MAX {
        stdx::DeletionSeconds::NONE
    } else {
        stdx::DeletionSeconds(i64::from(local))
    }
}

/// One byte for a partition that is not deleted, since `oa`.
const IS_LIVE: u8 = 0x80;

/// Unsigned 32-bit form of a local deletion time (`Cell.deletionTimeLongToUnsignedInteger`):
/// all ones mean "none", and the largest time is three less than that.
pub(crate) fn deletion_u32(local: stdx::DeletionSeconds) -> u32 {
    if local == stdx::DeletionSeconds::NONE {
        return u32::MAX;
    }
    u32::try_from(local.0.clamp(0, DELETION_SECONDS_UINT_MAX)).unwrap_or(u32::MAX)
}

/// Inverse of [`deletion_u32`].
pub(crate) fn deletion_from_u32(local: u32) -> stdx::DeletionSeconds {
    if local == u32::MAX {
        stdx::DeletionSeconds::NONE
    } else {
        stdx::DeletionSeconds(i64::from(local))
    }
}

/// Largest local deletion time since `oa`: 2106-02-07T06:28:13Z.
pub const DELETION_SECONDS_UINT_MAX: i64 = stdx::DeletionSeconds::MAX_UNSIGNED.0;

/// Appends a deletion time in the form of partition headers and index entries: 12 bytes, or since
/// `oa` one byte for a live one.
pub(crate) fn put_deletion(out: &mut Vec<u8>, deletion: &data::DeletionTime, version: Version) {
    use codec::Writer;
    if !version.has_uint_times() {
        out.put_i32(deletion_i32(deletion.local));
        out.put_i64(deletion.timestamp.0);
    } else if deletion.is_live() {
        out.put_u8(IS_LIVE);
    } else {
        // The sign bit marks live ones; Cassandra has no negative timestamps here.
        out.put_i64(deletion.timestamp.0.max(0));
        out.put_u32(deletion_u32(deletion.local));
    }
}

/// Reads that form.
pub(crate) fn read_deletion(
    r: &mut codec::Reader<'_>,
    version: Version,
) -> std::result::Result<data::DeletionTime, DecodeError> {
    if !version.has_uint_times() {
        let local = r.i32()?;
        let timestamp = r.i64()?;
        return Ok(data::DeletionTime {
            timestamp: stdx::TimestampMicros(timestamp),
            local: deletion_from_i32(local),
        });
    }
    match r.peek_u8() {
        Some(IS_LIVE) => {
            r.u8()?;
            return Ok(data::DeletionTime::LIVE);
        }
        Some(flags) if flags & IS_LIVE != 0 => return Err(r.invalid(i64::from(flags))),
        _ => {}
    }
    let timestamp = r.i64()?;
    let local = r.u32()?;
    Ok(data::DeletionTime {
        timestamp: stdx::TimestampMicros(timestamp),
        local: deletion_from_u32(local),
    })
}
