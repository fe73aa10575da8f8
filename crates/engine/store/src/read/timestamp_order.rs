//! Reads of one partition that may need several files: files are read in the order of their largest
//! timestamps, newest first, and those that can change nothing are skipped.
//!
//! Owns: which files such a read opens, and in what order. Never: merging; it gives [`Source`]s to its
//! caller. Two conditions end the order early. Either a deletion of the partition is newer than all data of
//! the next file. Or rows are named by whole clusterings, and all requested cells were found and are newer
//! than that file.
//!
//! INV-by-timestamp-1: the sources show what all files would show: to a read of rows (`Exactness::Rows`) the
//! same live rows with the same cells of the requested columns, to a page of a replica (`Exactness::All`) the
//! same bytes, deletions included.
//!
//! Source: Cassandra's `SinglePartitionReadCommand.queryMemtableAndSSTablesInTimestampOrder`; here a row
//! without liveness is complete too, when one of its cells is live, as no other replica is asked.

use std::cmp::{Ordering, Reverse};
use std::rc::Rc;
use std::sync::Arc;

use codec::KeyHash;
use data::command::ReadCommand;
use data::{
    Advance, BoundBuf, ClusteringComparator, ColumnRef, CursorError, DeletionTime, Item,
    RangeTombstoneRef, RowRef, Slices, TableShape, clustering,
};
use smallvec::SmallVec;
use sstable::Chunk;
use stdx::{ColumnId, DeletionSeconds, TimestampMicros};

use crate::error::StoreError;
use crate::memtable::{Partition, PartitionCursor, PartitionVersion};
use crate::read::Reader;
use crate::read::sources::{FileSource, Source, Sources};
use crate::tables::read_stats::ReadStats;
use crate::tables::table::{TableState, TableView};
use crate::tables::table_file::{TableFile, map_error};

/// Limit of rows by name that are searched in order; more of them are seldom all in the newest
/// files.
const NAMES_MAX: usize = 8;
/// Memory that rows from files may take while it is not known whether older files matter. Reads of more
/// merge all files as they are.
const COPIED_BYTES_MAX: usize = 256 << 10;

/// Files that may have a partition, usually few.
pub(crate) type Candidates<'v> = SmallVec<[&'v Rc<TableFile>; 4]>;

/// The data that must equal a read of all files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exactness {
    /// Live rows, and cells of the requested columns.
    Rows,
    /// Everything, deletions included.
    All,
}

/// A read of one partition.
pub(crate) struct Asked<'a> {
    pub(crate) table: &'a TableState,
    pub(crate) shape: &'a Rc<TableShape>,
    pub(crate) view: &'a TableView,
    pub(crate) command: &'a ReadCommand,
    /// Slices of this partition; they differ from the command's when a page continues.
    pub(crate) slices: &'a Arc<Slices>,
    pub(crate) hash: &'a KeyHash,
    pub(crate) key: &'a [u8],
    pub(crate) exactness: Exactness,
}

fn newest(file: &TableFile) -> TimestampMicros {
    file.reader.meta().statistics().stats.max_timestamp
}

/// The newest writing of a cell or liveness that was found.
#[derive(Clone, Copy)]
struct Seen {
    timestamp: TimestampMicros,
    /// Live at the read's clock; of several of one timestamp all are.
    is_live: bool,
}

impl Seen {
    const NOTHING: Seen = Seen { timestamp: TimestampMicros::NONE, is_live: false };

    fn note(&mut self, timestamp: TimestampMicros, is_live: bool) {
        match timestamp.cmp(&self.timestamp) {
            Ordering::Greater => *self = Seen { timestamp, is_live },
            Ordering::Equal => self.is_live &= is_live,
            Ordering::Less => {}
        }
    }
}

/// Requested cells, by column id ascending.
struct Cells(SmallVec<[(ColumnId, Seen); 8]>);

impl Cells {
    fn of(columns: impl Iterator<Item = ColumnId>) -> Cells {
        let mut cells: SmallVec<_> = columns.map(|id| (id, Seen::NOTHING)).collect();
        cells.sort_unstable_by_key(|(id, _)| *id);
        Cells(cells)
    }

    fn note(&mut self, shape: &TableShape, row: RowRef<'_>, now: DeletionSeconds) {
        for (id, column) in row.columns() {
            let Ok(at) = self.0.binary_search_by_key(&id, |(id, _)| *id) else { continue };
            if let ColumnRef::Simple(cell) = column
                && shape.is_visible(id, cell.timestamp)
                && let Some((_, seen)) = self.0.get_mut(at)
            {
                seen.note(cell.timestamp, cell.is_live(now));
            }
        }
    }

    fn are_newer_than(&self, other: TimestampMicros) -> bool {
        self.0.iter().all(|(_, seen)| seen.timestamp > other)
    }

    fn has_live(&self, than: TimestampMicros) -> bool {
        self.0.iter().any(|(_, seen)| seen.is_live && seen.timestamp > than)
    }
}

/// A row that is requested by its clustering.
struct Named<'a> {
    clustering: &'a [u8],
    /// Timestamp of the deletion that covers it, of the row or of a range.
    deleted: TimestampMicros,
    liveness: Seen,
    cells: Cells,
}

/// Data found so far for rows that are requested by name.
struct Found<'a> {
    now: DeletionSeconds,
    exactness: Exactness,
    /// The deletion of the partition.
    deleted: TimestampMicros,
    statics: Cells,
    rows: SmallVec<[Named<'a>; 1]>,
}

impl<'a> Found<'a> {
    /// `None`: the order of files is of no use for this read.
    fn of(asked: &Asked<'a>) -> Option<Found<'a>> {
        let version = asked.table.version();
        if asked.shape.has_counters() || !Rc::ptr_eq(&version.shape, asked.shape) {
            return None;
        }
        let names = names_of(asked.slices, asked.shape.clustering())?;
        let table = &version.table;
        let command = asked.command;
        let is_looked_at = |id: ColumnId| match (&command.columns, asked.exactness) {
            (Some(columns), Exactness::Rows) => columns.contains(&id),
            _ => true,
        };
        let all_statics = command.wants_static || asked.exactness == Exactness::All;
        let statics = table.statics().iter().filter(|c| all_statics || is_looked_at(c.id));
        let regulars = table.regulars().iter().filter(|c| is_looked_at(c.id));
        // Elements of a collection may be in any file.
        if statics.clone().chain(regulars.clone()).any(schema::Column::is_complex) {
            return None;
        }
        let rows = names.into_iter().map(|clustering| Named {
            clustering,
            deleted: DeletionTime::LIVE.timestamp,
            liveness: Seen::NOTHING,
            cells: Cells::of(regulars.clone().map(|c| c.id)),
        });
        Some(Found {
            now: command.now,
            exactness: asked.exactness,
            deleted: DeletionTime::LIVE.timestamp,
            statics: Cells::of(statics.map(|c| c.id)),
            rows: rows.collect(),
        })
    }

    fn note(&mut self, shape: &TableShape, version: &Partition) {
        let order = shape.clustering();
        self.deleted = self.deleted.max(version.deletion().timestamp);
        if let Some(row) = version.static_row() {
            self.statics.note(shape, row, self.now);
        }
        for named in &mut self.rows {
            let covering = version.covering(order, named.clustering);
            named.deleted = named.deleted.max(covering.timestamp);
            let place = version.rows().find(order, named.clustering).ok();
            let Some(entry) = place.and_then(|place| version.rows().get(place)) else { continue };
            let row = entry.row();
            named.deleted = named.deleted.max(row.deletion().timestamp);
            let liveness = row.liveness();
            named.liveness.note(liveness.timestamp, liveness.is_live(self.now));
            named.cells.note(shape, row, self.now);
        }
    }

    /// Returns true if no data as old as `other` or older changes the result.
    fn is_complete(&self, other: TimestampMicros) -> bool {
        if self.deleted >= other {
            return true;
        }
        let is_decided = |named: &Named<'_>| {
            let liveness = named.liveness.timestamp > other;
            let exists = match self.exactness {
                Exactness::All => liveness,
                // Else the row may exist only by an older cell or liveness.
                Exactness::Rows => {
                    liveness && named.liveness.is_live || named.cells.has_live(other)
                }
            };
            named.deleted >= other || exists && named.cells.are_newer_than(other)
        };
        self.statics.are_newer_than(other) && self.rows.iter().all(is_decided)
    }

    /// Returns true if a file can be skipped. Pages must contain deletions whatever they hide.
    fn passes_by(&self, file: &TableFile) -> bool {
        let stats = &file.reader.meta().statistics().stats;
        let is_free = self.exactness == Exactness::Rows || !stats.may_have_tombstones();
        is_free && self.is_complete(stats.max_timestamp)
    }
}

/// The clusterings when every slice is of one row.
fn names_of<'a>(
    slices: &'a Slices,
    order: &ClusteringComparator,
) -> Option<SmallVec<[&'a [u8]; 1]>> {
    if order.is_empty() {
        let only: &[u8] = &[];
        return Some(SmallVec::from_elem(only, 1));
    }
    if slices.0.len() > NAMES_MAX {
        return None;
    }
    let name = |slice: &'a data::Slice| {
        let is_one = slice.start == slice.end && !slice.start_after && slice.end_after;
        let is_whole = clustering::check(&slice.start, order.len()) == Some(order.len());
        (is_one && is_whole).then_some(slice.start.as_slice())
    };
    slices.0.iter().map(name).collect()
}

/// A cursor over an SSTable that is at its partition already, which is shown first.
pub(crate) struct BegunSource {
    pub(crate) inner: FileSource,
    is_shown: bool,
}

impl BegunSource {
    fn new(inner: FileSource) -> BegunSource {
        BegunSource { inner, is_shown: false }
    }

    pub(crate) fn advance(&mut self) -> Result<Advance, CursorError> {
        match std::mem::replace(&mut self.is_shown, true) {
            true => self.inner.advance(),
            false => Ok(Advance::Item),
        }
    }
}

/// Result of copying a file's part.
enum Copied {
    /// The file does not have the partition.
    Nothing,
    Part(Rc<PartitionVersion>),
    /// It would take too much memory.
    TooMuch,
}

impl Reader {
    /// Opens the needed ones of several files that may have a partition. The sources contain those
    /// of the memtables already.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub(crate) async fn open_in_order(
        &self,
        asked: &Asked<'_>,
        mut files: Candidates<'_>,
        sources: &mut Sources,
        stats: &mut ReadStats,
    ) -> Result<(), StoreError> {
        files.sort_by_key(|file| Reverse(newest(file)));
        match Found::of(asked) {
            Some(found) => self.open_until_found(asked, found, &files, sources, stats).await,
            None => self.open_until_deleted(asked, &files, sources, stats).await,
        }
    }

    async fn open_until_found(
        &self,
        asked: &Asked<'_>,
        mut found: Found<'_>,
        files: &[&Rc<TableFile>],
        sources: &mut Sources,
        stats: &mut ReadStats,
    ) -> Result<(), StoreError> {
        for memtable in asked.view.memtables() {
            for version in memtable.get(asked.hash.token, asked.key).into_iter().flatten() {
                found.note(asked.shape, &version);
            }
        }
        let mut left = COPIED_BYTES_MAX;
        let mut rest = files.iter();
        while let Some(file) = rest.next() {
            if newest(file) < found.deleted {
                break;
            }
            if found.passes_by(file) {
                continue;
            }
            // After the last file nothing can be skipped.
            if rest.len() == 0 {
                sources.push(self.open_one(asked, file, asked.command.reversed, stats));
                break;
            }
            let mut source = self.begin(asked, file, false);
            let copied = self.copy_part(asked, &mut source, &mut left, stats).await;
            self.keep_buffers(std::iter::once(Source::File(Box::new(source))));
            match copied? {
                Copied::Nothing => stats.sstables += 1,
                Copied::Part(version) => {
                    stats.sstables += 1;
                    let version = Partition::Version(version);
                    found.note(asked.shape, &version);
                    sources.push(Source::Partition(PartitionCursor::new(
                        asked.shape.clone(),
                        asked.slices.clone(),
                        asked.command.reversed,
                        version,
                    )));
                }
                Copied::TooMuch => {
                    sources.push(self.open_one(asked, file, asked.command.reversed, stats));
                    for file in rest.by_ref().filter(|file| !found.passes_by(file)) {
                        sources.push(self.open_one(asked, file, asked.command.reversed, stats));
                    }
                }
            }
        }
        Ok(())
    }

    /// Opens files down to where a deletion of the partition hides all that is older.
    async fn open_until_deleted(
        &self,
        asked: &Asked<'_>,
        files: &[&Rc<TableFile>],
        sources: &mut Sources,
        stats: &mut ReadStats,
    ) -> Result<(), StoreError> {
        let mut deleted = DeletionTime::LIVE.timestamp;
        let mut rest = files.iter();
        while let Some(file) = rest.next() {
            if newest(file) < deleted {
                break;
            }
            let has_deletions = file.reader.meta().statistics().stats.has_partition_deletions;
            if rest.len() == 0 || !has_deletions {
                sources.push(self.open_one(asked, file, asked.command.reversed, stats));
                continue;
            }
            stats.sstables += 1;
            let mut source = self.begin(asked, file, asked.command.reversed);
            if !self.advance_file(asked, &mut source, stats).await? {
                self.keep_buffers(std::iter::once(Source::File(Box::new(source))));
                continue;
            }
            if let Item::Partition { deletion, .. } = source.item() {
                deleted = deleted.max(deletion.timestamp);
            }
            sources.push(Source::Begun(Box::new(BegunSource::new(source))));
        }
        Ok(())
    }

    fn begin(&self, asked: &Asked<'_>, file: &Rc<TableFile>, reversed: bool) -> FileSource {
        let buffers = self.cursor_buffers.borrow_mut().pop().unwrap_or_default();
        let (token, slices) = (asked.hash.token, asked.slices.clone());
        let cursor = file.reader.partition_cursor(0, token, asked.key, slices, reversed, buffers);
        FileSource::new(file.clone(), cursor, self.env.options.shard_map)
    }

    fn open_one(
        &self,
        asked: &Asked<'_>,
        file: &Rc<TableFile>,
        reversed: bool,
        stats: &mut ReadStats,
    ) -> Source {
        stats.sstables += 1;
        Source::File(Box::new(self.begin(asked, file, reversed)))
    }

    /// Moves to the next item of a file; false at its end.
    async fn advance_file(
        &self,
        asked: &Asked<'_>,
        source: &mut FileSource,
        stats: &mut ReadStats,
    ) -> Result<bool, StoreError> {
        loop {
            match source.advance()? {
                Advance::Item => return Ok(true),
                Advance::End => return Ok(false),
                Advance::NeedBlock(request) => {
                    let (file, block) = (source.file.clone(), request.block);
                    let chunk = match self.files.cache.get(file.id, block) {
                        Some(chunk) => chunk,
                        None => {
                            self.load_of(&file, block, asked.command.bypass_cache, stats).await?
                        }
                    };
                    source.feed(block, chunk);
                }
            }
        }
    }

    /// Reads a block that the cache does not have, into it unless the read passes by it.
    pub(crate) async fn load_of(
        &self,
        file: &TableFile,
        block: u64,
        bypasses: bool,
        stats: &mut ReadStats,
    ) -> Result<Rc<Chunk>, StoreError> {
        stats.blocks_read += 1;
        let chunk = file.reader.load_block(block).await.map_err(|e| self.env.met(map_error(e)))?;
        stats.block_bytes += chunk.bytes().len() as u64;
        if !bypasses {
            self.files.cache.insert(file.id, block, chunk.clone());
        }
        Ok(chunk)
    }

    /// Copies a file's data for the requested rows.
    async fn copy_part(
        &self,
        asked: &Asked<'_>,
        source: &mut FileSource,
        left: &mut usize,
        stats: &mut ReadStats,
    ) -> Result<Copied, StoreError> {
        let mut part: Option<PartitionVersion> = None;
        let mut open: Option<(BoundBuf, DeletionTime)> = None;
        while self.advance_file(asked, source, stats).await? {
            let part = part
                .get_or_insert_with(|| PartitionVersion::new(asked.hash.token, asked.key.into()));
            let used = match source.item() {
                Item::Partition { deletion, .. } => {
                    part.deletion = deletion;
                    0
                }
                Item::Static(row) => part.put_static(row),
                Item::Row { clustering, row } => part.put_row(clustering, row),
                Item::Marker(marker) => {
                    let mut grown = 0;
                    if let Some((start, deletion)) = open.take() {
                        let (start, end) = (start.as_bound(), marker.position);
                        let range = RangeTombstoneRef { start, end, deletion };
                        grown = part.tombstones.add(asked.shape.clustering(), range);
                    }
                    open = marker.open.map(|deletion| (BoundBuf::new(marker.position), deletion));
                    usize::try_from(grown).unwrap_or(0)
                }
                Item::PartitionEnd => break,
            };
            match left.checked_sub(used) {
                Some(fewer) => *left = fewer,
                None => return Ok(Copied::TooMuch),
            }
        }
        Ok(part.map_or(Copied::Nothing, |part| Copied::Part(Rc::new(part))))
    }
}
