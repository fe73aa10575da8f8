//! Sources of items for reads and compactions: memtables, SSTables, and filters before an SSTable.
//!
//! Owns: the kinds of sources and their common cursor. `read` chooses the sources and fetches blocks.

use std::rc::Rc;

use codec::KeyHash;
use data::{Advance, BoundRef, Cursor, CursorError, DeletionTime, Item, Marker};
use smallvec::SmallVec;
use sst_format::RowCopier;
use sstable::{Chunk, Lookahead, SstableCursor};
use stdx::ShardMap;

use crate::memtable::{EntryRef, MemtableScan, PartitionCursor, PartitionVersion};
use crate::read::timestamp_order::BegunSource;
use crate::tables::table_file::TableFile;

/// Sources of one read: seldom more than a memtable and a file.
pub(crate) type Sources = SmallVec<[Source; 2]>;

/// A source of a read or compaction.
pub(crate) enum Source {
    Partition(PartitionCursor),
    Scan(Box<MemtableScan>),
    File(Box<FileSource>),
    Begun(Box<BegunSource>),
    Tail(Box<TailSource>),
}

/// A cursor over an SSTable, with the file it belongs to.
pub(crate) struct FileSource {
    pub(crate) file: Rc<TableFile>,
    pub(crate) cursor: SstableCursor,
    shard_map: ShardMap,
}

impl FileSource {
    pub(crate) fn new(
        file: Rc<TableFile>,
        cursor: SstableCursor,
        shard_map: ShardMap,
    ) -> FileSource {
        FileSource { file, cursor, shard_map }
    }

    /// Hands a block over that the cursor asked for.
    pub(crate) fn feed(&mut self, block: u64, chunk: Rc<Chunk>) {
        self.cursor.feed(block, chunk);
    }

    /// Returns the current item.
    pub(crate) fn item(&self) -> Item<'_> {
        self.cursor.item()
    }

    /// See [`SstableCursor::key_hash`].
    #[inline]
    pub(crate) fn key_hash(&self) -> Option<KeyHash> {
        self.cursor.key_hash()
    }

    /// Returns its rows verbatim: see [`SstableCursor::raw_rows`].
    #[inline]
    pub(crate) fn raw_rows(&self) -> Option<&[u8]> {
        self.cursor.raw_rows()
    }

    /// See [`SstableCursor::look_ahead`].
    pub(crate) fn look_ahead(&mut self, copier: Option<&RowCopier>, ahead: &mut Lookahead) {
        // Partitions of hidden slices must not be found.
        self.cursor.look_ahead(copier.filter(|_| self.file.hidden.is_empty()), ahead);
    }

    /// See [`SstableCursor::pass_rows`].
    #[inline]
    pub(crate) fn pass_rows(&mut self, bytes: usize, ended: bool) {
        self.cursor.pass_rows(bytes, ended);
    }

    pub(crate) fn advance(&mut self) -> Result<Advance, CursorError> {
        loop {
            let advance = self.cursor.advance()?;
            // Slices that were released (after a change of the shard count) stay invisible.
            if advance == Advance::Item
                && !self.file.hidden.is_empty()
                && let Item::Partition { token, .. } = self.cursor.item()
                && !self.file.shows(self.shard_map, token)
            {
                self.cursor.skip_partition();
                continue;
            }
            return Ok(advance);
        }
    }
}

/// The part of a file's partition after a head of the row cache. It shows an empty partition down
/// to the head's end and a marker that changes nothing. A reader that continues after the marker
/// waits for the file.
pub(crate) struct TailSource {
    pub(crate) inner: FileSource,
    /// It ends after its last row.
    head: Rc<PartitionVersion>,
    stage: Tail,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tail {
    Start,
    Partition,
    Marker,
    /// The file is being opened, and its partition and static row, which the head has, are skipped.
    Opening,
    Inside,
    /// The file has nothing of it.
    Ended,
    Done,
}

impl TailSource {
    /// `inner` has just the slices after the last row of the head.
    pub(crate) fn new(inner: FileSource, head: Rc<PartitionVersion>) -> TailSource {
        TailSource { inner, head, stage: Tail::Start }
    }

    fn advance(&mut self) -> Result<Advance, CursorError> {
        loop {
            self.stage = match self.stage {
                Tail::Start => Tail::Partition,
                Tail::Partition => Tail::Marker,
                Tail::Marker => {
                    self.stage = Tail::Opening;
                    continue;
                }
                Tail::Opening => match self.inner.advance()? {
                    Advance::NeedBlock(request) => return Ok(Advance::NeedBlock(request)),
                    Advance::End => Tail::Ended,
                    Advance::Item => match self.inner.cursor.item() {
                        Item::Partition { .. } | Item::Static(_) => continue,
                        Item::Row { .. } | Item::Marker(_) | Item::PartitionEnd => Tail::Inside,
                    },
                },
                Tail::Inside => return self.inner.advance(),
                Tail::Ended | Tail::Done => {
                    self.stage = Tail::Done;
                    return Ok(Advance::End);
                }
            };
            return Ok(Advance::Item);
        }
    }

    fn item(&self) -> Item<'_> {
        match self.stage {
            Tail::Partition => Item::Partition {
                token: self.head.token,
                key: &self.head.key,
                deletion: DeletionTime::LIVE,
            },
            Tail::Marker => {
                let last = self.head.rows.last().map_or(&[][..], EntryRef::clustering);
                let position = BoundRef { prefix: last, after: true };
                Item::Marker(Marker { position, close: None, open: None })
            }
            Tail::Inside => self.inner.cursor.item(),
            Tail::Start | Tail::Opening | Tail::Ended | Tail::Done => Item::PartitionEnd,
        }
    }

    fn skip_partition(&mut self) {
        match self.stage {
            Tail::Inside => self.inner.cursor.skip_partition(),
            Tail::Start | Tail::Partition | Tail::Marker | Tail::Opening => self.stage = Tail::Done,
            Tail::Ended | Tail::Done => {}
        }
    }
}

impl Source {
    /// Returns the underlying file, if the source has one.
    #[inline]
    pub(crate) fn file(&self) -> Option<&FileSource> {
        match self {
            Source::File(file) => Some(file),
            Source::Begun(begun) => Some(&begun.inner),
            Source::Tail(tail) => Some(&tail.inner),
            Source::Partition(_) | Source::Scan(_) => None,
        }
    }

    /// The same to be changed.
    #[inline]
    pub(crate) fn file_mut(&mut self) -> Option<&mut FileSource> {
        match self {
            Source::File(file) => Some(file),
            Source::Begun(begun) => Some(&mut begun.inner),
            Source::Tail(tail) => Some(&mut tail.inner),
            Source::Partition(_) | Source::Scan(_) => None,
        }
    }

    /// Hands a block over that the source asked for.
    pub(crate) fn feed(&mut self, block: u64, chunk: Rc<Chunk>) {
        if let Some(file) = self.file_mut() {
            file.cursor.feed(block, chunk);
        }
    }
}

impl Cursor for Source {
    fn advance(&mut self) -> Result<Advance, CursorError> {
        match self {
            Source::Partition(c) => c.advance(),
            Source::Scan(c) => c.advance(),
            Source::File(c) => c.advance(),
            Source::Begun(c) => c.advance(),
            Source::Tail(c) => c.advance(),
        }
    }

    fn item(&self) -> Item<'_> {
        match self {
            Source::Partition(c) => c.item(),
            Source::Scan(c) => c.item(),
            Source::File(c) => c.cursor.item(),
            Source::Begun(c) => c.inner.cursor.item(),
            Source::Tail(c) => c.item(),
        }
    }

    fn skip_partition(&mut self) {
        match self {
            Source::Partition(c) => c.skip_partition(),
            Source::Scan(c) => c.skip_partition(),
            Source::File(c) => c.cursor.skip_partition(),
            Source::Begun(c) => c.inner.cursor.skip_partition(),
            Source::Tail(c) => c.skip_partition(),
        }
    }
}
