//! Cursors: every source of sorted partitions (memtable, SSTable, merge) is one.
//!
//! A cursor is synchronous. [`Cursor::advance`] moves to the next item; [`Cursor::item`] is a view
//! of it, valid until the next call. When the source needs bytes that are not in memory, `advance`
//! returns [`Advance::NeedBlock`]: the driver awaits the read, feeds the block to the concrete
//! cursor, and calls `advance` again. No allocation per item.
//!
//! Order of items: `Partition`, at most one `Static`, then `Row`s and `Marker`s by position, then
//! `PartitionEnd`; partitions by (token, key bytes); then [`Advance::End`] for ever.

use stdx::Token;

use crate::clustering::BoundRef;
use crate::deletion::DeletionTime;
use crate::row::RowRef;

/// A stretch of a file that a cursor needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockRequest {
    /// Number of the source within the owner's list (an SSTable's slot in the merge).
    pub source: u32,
    /// The source's own name for the block (for SSTables the compressed chunk's index).
    pub block: u64,
}

/// Outcome of [`Cursor::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// [`Cursor::item`] shows the next item.
    Item,
    /// Feed this block, then advance again.
    NeedBlock(BlockRequest),
    /// Nothing more.
    End,
}

/// A change of the range deletion that is open, at a position of the partition. "Open" and "close"
/// are meant in the order of iteration: a reversed cursor comes to a range's end first, and opens
/// its deletion there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker<'a> {
    /// Where.
    pub position: BoundRef<'a>,
    /// The deletion that ends here.
    pub close: Option<DeletionTime>,
    /// The deletion that begins here.
    pub open: Option<DeletionTime>,
}

/// One item of a cursor.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// A partition begins.
    Partition {
        /// Its place on the ring.
        token: Token,
        /// Serialised partition key.
        key: &'a [u8],
        /// Deletion of the whole partition, or live.
        deletion: DeletionTime,
    },
    /// The static row.
    Static(RowRef<'a>),
    /// A row.
    Row {
        /// Serialised clustering.
        clustering: &'a [u8],
        /// The row.
        row: RowRef<'a>,
    },
    /// A range deletion opens or closes.
    Marker(Marker<'a>),
    /// The partition is over.
    PartitionEnd,
}

/// A row with its clustering.
#[derive(Clone, Copy, Debug)]
pub struct ClusteredRow<'a> {
    /// Serialised clustering.
    pub clustering: &'a [u8],
    /// The row.
    pub row: RowRef<'a>,
}

/// Cause for which a cursor cannot continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// Bytes on disk differ from those written.
    #[error(
        "{file} is corrupt at offset {offset}: {what}; restore it from a replica or a snapshot"
    )]
    Corrupt {
        /// The file.
        file: String,
        /// Where in the (uncompressed) file.
        offset: u64,
        /// Description of the error.
        what: String,
    },
}

/// A source of sorted partitions. See the module for the order of items.
pub trait Cursor {
    /// Moves to the next item.
    ///
    /// # Errors
    /// `Corrupt` when no writer can have written the source's bytes; the cursor must not be used
    /// again.
    fn advance(&mut self) -> Result<Advance, CursorError>;

    /// The item that the last [`Advance::Item`] announced.
    fn item(&self) -> Item<'_>;

    /// Skips the rest of the current partition: the next item is a `Partition` or the end.
    /// Does nothing when the last item was a `PartitionEnd`.
    fn skip_partition(&mut self);
}
