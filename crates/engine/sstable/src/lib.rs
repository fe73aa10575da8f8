//! SSTables of one shard: readers, cursors, writers and offline tools over `rt` files.
//!
//! Owns: which bytes of which file are read and written when, their verification, the search for a
//! partition and its rows. Never: the bytes themselves (crate `sst-format`), the cache of blocks and
//! the choice of files (crate `store`).
//!
//! A file set is described by [`SstableMeta`], which is pure: everything but Data and Index, decoded
//! and verified at open. [`SstableReader`] adds the open files and loads blocks. [`SstableCursor`]
//! walks partitions over blocks that its driver feeds.
//!
//! Invariants: INV-sstable-1: no byte of a file of ours reaches a cursor before a checksum over it
//! was compared. INV-sstable-2: TOC.txt gets its name last; until then, and from the beginning of a
//! removal, the file set carries a mark ([`file_set`]).
//!
//! Reading order: [`meta`], [`block`], [`cursor`], [`set_files`], [`indexes`], [`reader`], [`writer`], [`file_set`],
//! [`repair_state`], [`unreadable`], [`offline`].

mod attached;
pub mod block;
mod covered;
pub mod cursor;
pub mod file_set;
mod header_table;
pub mod indexes;
pub mod meta;
pub mod offline;
pub mod reader;
pub mod repair_state;
mod row_keys;
mod search;
pub mod sequential;
pub mod set_files;
pub mod unreadable;
pub mod writer;

#[cfg(test)]
mod tests;

pub use attached::Attached;
pub use block::{Chunk, INDEX_BLOCK, ROWS_BLOCK};
pub use cursor::{CursorBuffers, Follows, Lookahead, SstableCursor, TokenFilter};
pub use file_set::{SetState, list_sstables, rebuild_toc, remove_sstable};
pub use indexes::{IndexComponent, IndexEntries, OpenIndex};
pub use meta::{BlockFile, Components, SstableMeta};
pub use reader::SstableReader;
pub use row_keys::{ReadKey, RowKeys};
pub use sequential::{ReadAhead, SEQUENTIAL_BYTES, SequentialReader};
pub use set_files::{Rewrapped, Sealing, SetFiles, key_record, rewrap};
pub use sst_format::{
    AttachedKind, AttachedName, Binding, Component, Descriptor, EncodingStats, Lifecycle,
    StorageGroup, Version,
};
pub use unreadable::open_unreadable;
pub use writer::{
    AttachedWriter, CopiedRows, CopyUntil, Indexing, LARGE_MAX, LargeCell, LargeData, LargeLimits,
    LargePartition, LargeRow, SstableWriter, WHOLE_MAX, WriteCompression, WriterOptions, Written,
};

use data::CursorError;
use sst_format::FormatError;
use stdx::{IoError, IoErrorKind};

/// Errors of an SSTable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SstableError {
    /// Bytes on disk differ from those written: restore the file from a replica or snapshot.
    #[error(
        "{file} is corrupt at offset {offset}: {what}; restore it from a replica or a snapshot"
    )]
    Corrupt {
        /// The component file.
        file: String,
        /// Byte offset in it (for Data: uncompressed where the damage was seen after decompression).
        offset: u64,
        /// Description of the error.
        what: String,
    },
    /// A component that must be there is not.
    #[error("{file} is missing")]
    Missing {
        /// The file.
        file: String,
    },
    /// This build cannot read the file, though it need not be damaged.
    #[error("{file} cannot be read: {what}")]
    Unsupported {
        /// The file.
        file: String,
        /// Why.
        what: String,
    },
    /// The provider of the file's key did not give it, as when it is down: a retry may succeed.
    #[error("{file} cannot be read: {what}")]
    NoKey {
        /// The file.
        file: String,
        /// Why.
        what: String,
    },
    /// The writer cannot write its input.
    #[error("a row cannot be written to {file}: {error}")]
    Unwritable {
        /// The Data file.
        file: String,
        /// Why.
        error: FormatError,
    },
    /// The machine refused an operation.
    #[error(transparent)]
    Io(#[from] IoError),
}

impl SstableError {
    /// Returns true if a file differs from what was written, or the device cannot read it back, so
    /// that other files must replace it. False for data that this build cannot read, or is not
    /// allowed to.
    pub fn is_damage(&self) -> bool {
        match self {
            SstableError::Corrupt { .. } | SstableError::Missing { .. } => true,
            SstableError::Io(error) => is_unreadable(error),
            SstableError::Unsupported { .. }
            | SstableError::NoKey { .. }
            | SstableError::Unwritable { .. } => false,
        }
    }

    /// Turns a decoder's error about a component into one that names its file.
    pub(crate) fn of_format(file: &str, base: u64, error: &FormatError) -> SstableError {
        match error {
            FormatError::Unsupported { .. } | FormatError::UnknownColumn { .. } => {
                SstableError::Unsupported { file: file.to_owned(), what: error.to_string() }
            }
            _ => SstableError::Corrupt {
                file: file.to_owned(),
                offset: base.saturating_add(error.offset()),
                what: error.to_string(),
            },
        }
    }
}

/// Returns true if the device cannot read back existing data.
pub(crate) fn is_unreadable(error: &IoError) -> bool {
    matches!(error.kind, IoErrorKind::Device | IoErrorKind::UnexpectedEof)
}

impl From<CursorError> for SstableError {
    fn from(error: CursorError) -> Self {
        match error {
            CursorError::Corrupt { file, offset, what } => {
                SstableError::Corrupt { file, offset, what }
            }
        }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, SstableError>;
