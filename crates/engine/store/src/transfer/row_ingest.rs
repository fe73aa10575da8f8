//! Ingest: sorted partitions from elsewhere become SSTables of this shard without passing through
//! the memtable, and are seen all at once.
//!
//! Files are also received unmodified ([`crate::transfer::file_streams`]).
//!
//! Order: 1. each file set is written and synced, its TOC.txt under the name `TOC.txt.tmp`; 2. when
//! there are several a record, `helenus-ingest-<generation>.log`, names them all and is synced; 3.
//! the TOC files get their names; 4. the view gets all of the files in one step; 5. the record goes.
//! A crash before 2 leaves sets with the mark of an unfinished write, which the next start removes. A start that
//! finds a record continues with step 3. So all files of an ingest exist or none: a deletion may be in one of
//! them and its hidden data in another, and a replica that had both may have purged both since.
//!
//! INV-ingest-1: ingested data is stored as it was written: timestamps, deletions, expired cells.
//! INV-ingest-2: when a truncation or drop came after the ingest began, nothing of it stays.
//! INV-ingest-3: after a crash all files of an ingest are in use or none is.

use std::cmp::Ordering;
use std::rc::Rc;

use data::page_cursor::{PageChain, PageCursor, PageStops};
use data::replica_page::{PageEnd, ReplicaPage};
use data::{Advance, BoundRef, Cursor, DeletionTime, Item, Marker, RowRef, TableShape};
use rt::Fs;
use sst_format::header::EncodingStats;
use sstable::{Descriptor, SstableReader, SstableWriter, WriterOptions};
use stdx::{TableId, TimestampMicros, Token};

use crate::error::StoreError;
use crate::files::table_files::{encode_record, record_path, remove_if_there, toc_path};
use crate::tables::dropped_columns;
use crate::tables::table::{InFlight, TableState, TableVersion, TableView};
use crate::tables::table_file::{TableFile, map_error};
use crate::transfer::Transfer;
use crate::transfer::file_streams::{Coming, Syncing};

/// Partitions for which the Bloom filter of the first file is sized. Their final number is unknown:
/// a file that reaches its number is finished, and the next one is sized for [`GROWTH`] times more.
const FIRST_PARTITIONS: u64 = 8192;
/// See [`FIRST_PARTITIONS`].
const GROWTH: u64 = 8;
/// Partitions of one file at most.
const PARTITIONS_MAX: u64 = 64 << 20;
/// Items between two checks of the clock.
const ITEMS_PER_LOOK: usize = 128;

/// Result of an ingest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ingested {
    /// Files that are in use now.
    pub files: u64,
    /// Partitions, counted once per file.
    pub partitions: u64,
    /// Bytes of all components.
    pub disk_bytes: u64,
}

/// Takes pages of one table in ring order. Dropped before [`Ingest::finish`], everything it wrote is
/// removed in the background.
pub struct Ingest {
    pub(crate) store: Rc<Transfer>,
    pub(crate) table: Rc<TableState>,
    pub(crate) version: Rc<TableVersion>,
    pub(crate) directory: String,
    /// Number of times the table had been emptied when this began.
    emptied: u64,
    open: Option<(SstableWriter, InFlight)>,
    /// The file that is received unmodified.
    pub(crate) coming: Option<Coming>,
    /// Components of the last file that came so, which become durable.
    pub(crate) syncing: Vec<Syncing>,
    /// Written and, but for `syncing`, synced; their TOC.txt not named yet.
    pub(crate) done: Vec<Done>,
    pub(crate) report: Ingested,
    expected_partitions: u64,
    min_timestamp: Option<TimestampMicros>,
    /// `(start, end]`, ascending; `None` = any token.
    pub(crate) ranges: Option<Vec<(Token, Token)>>,
    place: Place,
}

/// A file that is written.
pub(crate) struct Done {
    pub(crate) in_flight: InFlight,
    pub(crate) descriptor: Descriptor,
    /// It came as it is.
    pub(crate) is_whole: bool,
}

/// Progress of the data.
#[derive(Default)]
struct Place {
    /// The last partition, with its token; it may continue in the next page.
    key: Option<(Token, Vec<u8>)>,
    /// The writer is inside of it.
    in_partition: bool,
    deletion: Option<DeletionTime>,
    static_row: Vec<u8>,
    /// The last row or marker of it.
    last: Option<Last>,
    /// A range closed at the end of the last page: the next one may open it again.
    pending: Option<DeletionTime>,
}

/// Work to do before a partition can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    GoOn,
    /// Another file has to begin.
    NextFile,
    /// The same, and the one before was as full as was expected.
    LargerFile,
}

struct Last {
    prefix: Vec<u8>,
    /// `None`: a row.
    after: Option<bool>,
}

impl Transfer {
    /// Begins to take in partitions of a table.
    ///
    /// # Errors
    /// `UnknownTable`, `Stopping`, `DiskFull`, `Io`.
    pub async fn ingest(self: &Rc<Self>, table: TableId) -> Result<Ingest, StoreError> {
        if self.env.stopping.get() || self.env.drained.get() {
            return Err(StoreError::Stopping);
        }
        self.env.full_disk.check()?;
        let Some(table) = self.tables.table(table) else {
            return Err(StoreError::UnknownTable(table));
        };
        let emptied = table.emptied.get();
        self.files.make_directory(&table).await?;
        let version = table.version();
        Ok(Ingest {
            store: self.clone(),
            directory: self.files.directories.directory_of(&version.table),
            version,
            emptied,
            open: None,
            coming: None,
            syncing: Vec::new(),
            done: Vec::new(),
            report: Ingested::default(),
            expected_partitions: FIRST_PARTITIONS,
            min_timestamp: None,
            ranges: None,
            place: Place::default(),
            table,
        })
    }
}

impl Ingest {
    /// Takes only partitions of these ranges `(start, end]`, ascending and apart from each other;
    /// one that begins with the smallest token holds it. Others are refused as `Invalid`.
    pub fn within(mut self, ranges: Vec<(Token, Token)>) -> Ingest {
        self.ranges = Some(ranges);
        self
    }

    /// Takes a page of the table, forward and with nothing purged, whose partitions follow those
    /// given so far, or continue the last one where its page ended inside. Returns how many
    /// partitions the page begins or continues.
    ///
    /// # Errors
    /// `Invalid`: not such a page, a partition of another shard, or the table was emptied meanwhile;
    /// `UnknownTable`: it was dropped; `DiskFull`, `Io`, `Stopping`. Drop the ingest then.
    pub async fn page(&mut self, bytes: &[u8]) -> Result<u64, StoreError> {
        self.store.env.full_disk.check()?;
        let result = self.take_page(bytes).await;
        self.store.files.note_write_result(&result);
        result
    }

    async fn take_page(&mut self, bytes: &[u8]) -> Result<u64, StoreError> {
        self.check_alive()?;
        let version = self.version.clone();
        // Cells of hidden columns are received too.
        let shape = version.shape.stored();
        let page = ReplicaPage::parse(bytes, shape, false)
            .map_err(|error| StoreError::Invalid(error.to_string()))?;
        if page.has_cut_partitions() {
            return Err(StoreError::Invalid("a page with cut partitions".to_owned()));
        }
        let ends_inside = matches!(page.end(), PageEnd::Inside { .. });
        let (chain, stops) = (PageChain::new(page), PageStops::NONE);
        self.note_timestamps(PageCursor::new(shape, false, &chain, &stops))?;
        let mut cursor = PageCursor::new(shape, false, &chain, &stops);
        let (mut partitions, mut items) = (0, 0);
        // A partition begins with its static row, and its end is none when the page ends inside.
        let mut begins: Option<(Token, &[u8], DeletionTime)> = None;
        let mut ends = false;
        while cursor.advance()? == Advance::Item {
            let item = cursor.current();
            if std::mem::take(&mut ends) {
                self.end_partition()?;
            }
            if let Some((token, key, deletion)) = begins.take() {
                let static_row = match item {
                    Item::Static(row) => row.bytes(),
                    _ => &[],
                };
                let step = self.place_partition(token, key, deletion, static_row)?;
                if step != Step::GoOn {
                    // Rarely awaited futures are boxed: this loop runs for every row.
                    Box::pin(self.turn(step)).await?;
                }
                self.begin_partition(token, key, deletion, static_row)?;
            }
            match item {
                Item::Partition { token, key, deletion } => {
                    partitions += 1;
                    begins = Some((token, key, deletion));
                }
                Item::Static(_) => {}
                Item::Row { clustering, row } => self.row(shape, clustering, row)?,
                Item::Marker(marker) => self.marker(shape, marker)?,
                Item::PartitionEnd => ends = true,
            }
            if self.open.as_ref().is_some_and(|(writer, _)| writer.is_full()) {
                Box::pin(self.write_full()).await?;
            }
            items += 1;
            if items % ITEMS_PER_LOOK == 0 && self.store.env.rt.is_yield_due() {
                self.store.env.rt.yield_if_due().await;
            }
        }
        // The next page may continue this partition.
        if ends && !ends_inside {
            self.end_partition()?;
        }
        Ok(partitions)
    }

    /// Uncompressed bytes of the file being written.
    pub fn open_bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, |(writer, _)| writer.data_length())
    }

    /// Ends the files and shows all of them in one step. From here on they are durable.
    ///
    /// # Errors
    /// Those of [`Ingest::page`]; nothing of it is visible then.
    pub async fn finish(mut self) -> Result<Ingested, StoreError> {
        // A file that was begun after a truncation is not named in its record: it must not become
        // one that a start after a crash would open.
        self.check_alive()?;
        let shown = self.show().await;
        self.store.files.note_write_result(&shown);
        shown?;
        Ok(self.report)
    }

    /// All steps.
    async fn show(&mut self) -> Result<(), StoreError> {
        if self.coming.is_some() {
            return Err(StoreError::Invalid("a file did not come to its end".to_owned()));
        }
        self.end().await?;
        let syncing = std::mem::take(&mut self.syncing);
        self.synced(syncing).await?;
        // A TRUNCATE since then does not name the files in time.
        self.check_alive()?;
        let Some(first) = self.done.first().map(|done| done.descriptor.generation) else {
            return Ok(());
        };
        let fs = self.store.env.rt.fs();
        // Every name is durable before one of a TOC.txt is.
        fs.sync_dir(&self.directory).await?;
        let record = (self.done.len() > 1).then(|| record_path(&self.directory, first));
        if let Some(path) = &record {
            let files: Vec<Descriptor> = self.done.iter().map(|done| done.descriptor).collect();
            fs.write_atomic(path, encode_record(&files)).await?;
        }
        let named = self.name_files(&fs).await;
        if named.is_err()
            && let Some(path) = &record
        {
            // Before the files: a start that finds it would look for all of them.
            remove_if_there(&fs, path).await?;
            fs.sync_dir(&self.directory).await?;
        }
        named?;
        if let Some(path) = &record {
            // If the record stays, it names files that have their TOC.txt.
            self.store.files.note_write_result(&remove_if_there(&fs, path).await);
        }
        Ok(())
    }

    /// Steps 3 and 4.
    async fn name_files(&mut self, fs: &Fs) -> Result<(), StoreError> {
        for done in &self.done {
            let toc = toc_path(&self.directory, done.descriptor);
            fs.rename(&format!("{toc}.tmp"), &toc).await?;
        }
        fs.sync_dir(&self.directory).await?;
        let table = &self.version.table;
        let mut opened = Vec::with_capacity(self.done.len());
        for done in &self.done {
            let reader = SstableReader::open(fs, &self.directory, done.descriptor, Some(table));
            let reader = reader.await.map_err(map_error)?;
            opened.extend(self.store.files.file_of(table.id, reader, Vec::new()));
        }
        let opened: Vec<Rc<TableFile>> = opened.into_iter().map(Rc::new).collect();
        for file in &opened {
            self.store.files.links.back_up(&self.table, file).await;
        }
        // No wait from here on.
        self.check_alive()?;
        let is_whole = |file: &&Rc<TableFile>| {
            let of_it = |done: &&Done| done.descriptor.generation == file.generation;
            self.done.iter().find(of_it).is_some_and(|done| done.is_whole)
        };
        self.store.observer.look_through(&self.table, opened.iter().filter(is_whole));
        let view = self.table.view();
        let mut files = view.files.clone();
        files.extend(opened);
        self.table.set_view(TableView::new(view.active.clone(), view.flushing.clone(), files));
        self.done.clear();
        self.store.env.work.notify_one();
        Ok(())
    }

    async fn end(&mut self) -> Result<(), StoreError> {
        self.end_partition()?;
        self.end_file().await
    }

    pub(crate) fn check_alive(&self) -> Result<(), StoreError> {
        if self.store.env.stopping.get() {
            return Err(StoreError::Stopping);
        }
        if self.table.dropped.get() {
            return Err(StoreError::UnknownTable(self.table.id));
        }
        if self.table.emptied.get() != self.emptied {
            return Err(StoreError::Invalid("the table was emptied meanwhile".to_owned()));
        }
        Ok(())
    }

    /// The smallest timestamp of the first page is the base of the file's times: any is correct, a
    /// near one makes it small.
    fn note_timestamps(&mut self, mut cursor: PageCursor<'_, '_>) -> Result<(), StoreError> {
        if self.min_timestamp.is_some() {
            return Ok(());
        }
        while cursor.advance()? == Advance::Item {
            if let Item::Row { row, .. } = cursor.item() {
                let timestamp = row.base_timestamp();
                let least = self.min_timestamp.get_or_insert(timestamp);
                *least = timestamp.min(*least);
            }
        }
        Ok(())
    }

    /// Returns true if a token lies in the requested ranges.
    pub(crate) fn is_wanted(&self, token: Token) -> bool {
        let Some(ranges) = &self.ranges else { return true };
        let at = ranges.partition_point(|(_, end)| *end < token);
        let inside = |(start, _): &(Token, Token)| *start < token || token == Token::MIN;
        ranges.get(at).is_some_and(inside)
    }

    /// Determines the place of a partition: after the last one, or continuing it.
    fn place_partition(
        &mut self,
        token: Token,
        key: &[u8],
        deletion: DeletionTime,
        static_row: &[u8],
    ) -> Result<Step, StoreError> {
        let inner = &self.store;
        if inner.env.options.shard_map.shard_of(self.table.id, token) != inner.env.rt.shard() {
            return Err(StoreError::Invalid("a partition of another shard".to_owned()));
        }
        if !self.is_wanted(token) {
            return Err(StoreError::Invalid("a partition of another range".to_owned()));
        }
        let order = match &self.place.key {
            None => Ordering::Greater,
            Some((last_token, last)) => (token, key).cmp(&(*last_token, last.as_slice())),
        };
        if order == Ordering::Equal && self.place.in_partition {
            if self.place.deletion == Some(deletion) && self.place.static_row == static_row {
                return Ok(Step::GoOn);
            }
            // It was written to between the two pages. A partition's beginning cannot be changed,
            // so the rest is written to a file of its own.
            self.end_partition()?;
            // A range that was closed at the page's end may be opened again at the same position.
            self.place.last = None;
            return Ok(Step::NextFile);
        }
        if order != Ordering::Greater {
            return Err(StoreError::Invalid("partitions are out of order".to_owned()));
        }
        self.end_partition()?;
        self.place.last = None;
        Ok(match &self.open {
            None => Step::NextFile,
            Some((writer, _)) if writer.partitions() >= self.expected_partitions => {
                Step::LargerFile
            }
            Some(_) => Step::GoOn,
        })
    }

    /// Ends the file and begins the next one.
    async fn turn(&mut self, step: Step) -> Result<(), StoreError> {
        self.end_file().await?;
        if step == Step::LargerFile {
            self.expected_partitions =
                self.expected_partitions.saturating_mul(GROWTH).min(PARTITIONS_MAX);
        }
        self.begin_file().await
    }

    async fn write_full(&mut self) -> Result<(), StoreError> {
        match &mut self.open {
            Some((writer, _)) => writer.write_full().await.map_err(map_error),
            None => Ok(()),
        }
    }

    /// Begins a partition whose place is known, unless it continues.
    fn begin_partition(
        &mut self,
        token: Token,
        key: &[u8],
        deletion: DeletionTime,
        static_row: &[u8],
    ) -> Result<(), StoreError> {
        if self.place.in_partition {
            return Ok(());
        }
        self.put(Item::Partition { token, key, deletion })?;
        if !static_row.is_empty() {
            self.put(Item::Static(RowRef::trusted(static_row)))?;
        }
        let place = &mut self.place;
        match &mut place.key {
            Some((last_token, last)) => {
                *last_token = token;
                last.clear();
                last.extend_from_slice(key);
            }
            none => *none = Some((token, key.to_vec())),
        }
        place.deletion = Some(deletion);
        place.static_row.clear();
        place.static_row.extend_from_slice(static_row);
        place.in_partition = true;
        Ok(())
    }

    fn row(
        &mut self,
        shape: &TableShape,
        clustering: &[u8],
        row: RowRef<'_>,
    ) -> Result<(), StoreError> {
        self.advance_to(shape, clustering, None)?;
        self.put(Item::Row { clustering, row })
    }

    fn marker(&mut self, shape: &TableShape, marker: Marker<'_>) -> Result<(), StoreError> {
        let (prefix, after) = (marker.position.prefix, marker.position.after);
        let joins = self.place.pending.is_some()
            && self.place.last.as_ref().is_some_and(|last| {
                let at = BoundRef { prefix: &last.prefix, after: last.after == Some(true) };
                shape.clustering().compare_bounds(at, marker.position) == Ordering::Equal
            });
        if joins && let Some(close) = self.place.pending.take() {
            // Closed at the end of a page and opened again at the beginning of the next.
            if marker.open == Some(close) {
                return Ok(());
            }
            return self.hold_or_put(Marker { close: Some(close), ..marker });
        }
        self.advance_to(shape, prefix, Some(after))?;
        self.hold_or_put(marker)
    }

    /// Holds a marker that only closes until it is known that nothing is opened there.
    fn hold_or_put(&mut self, marker: Marker<'_>) -> Result<(), StoreError> {
        match (marker.close, marker.open) {
            (Some(close), None) => {
                self.place.pending = Some(close);
                Ok(())
            }
            _ => self.put(Item::Marker(marker)),
        }
    }

    fn close_pending(&mut self) -> Result<(), StoreError> {
        let Some(close) = self.place.pending.take() else { return Ok(()) };
        let Some(last) = &self.place.last else { return Ok(()) };
        let position = BoundRef { prefix: &last.prefix, after: last.after == Some(true) };
        let marker = Item::Marker(Marker { position, close: Some(close), open: None });
        match &mut self.open {
            Some((writer, _)) => writer.put(marker).map_err(map_error),
            None => Ok(()),
        }
    }

    /// Moves to a row or marker, which must lie after the last one.
    fn advance_to(
        &mut self,
        shape: &TableShape,
        prefix: &[u8],
        after: Option<bool>,
    ) -> Result<(), StoreError> {
        let cmp = shape.clustering();
        let behind = match (&self.place.last, after) {
            (None, _) => true,
            (Some(Last { prefix: last, after: None }), None) => cmp.compare(prefix, last).is_gt(),
            (Some(Last { prefix: last, after: None }), Some(after)) => {
                cmp.compare_to_bound(last, BoundRef { prefix, after }).is_lt()
            }
            (Some(Last { prefix: last, after: Some(at) }), None) => {
                cmp.compare_to_bound(prefix, BoundRef { prefix: last, after: *at }).is_gt()
            }
            (Some(Last { prefix: last, after: Some(at) }), Some(after)) => {
                let last = BoundRef { prefix: last, after: *at };
                cmp.compare_bounds(BoundRef { prefix, after }, last).is_gt()
            }
        };
        if !behind || !self.place.in_partition {
            return Err(StoreError::Invalid("rows are out of order".to_owned()));
        }
        // The pending close has its position there.
        self.close_pending()?;
        let last = self.place.last.get_or_insert_with(|| Last { prefix: Vec::new(), after: None });
        last.prefix.clear();
        last.prefix.extend_from_slice(prefix);
        last.after = after;
        Ok(())
    }

    fn put(&mut self, item: Item<'_>) -> Result<(), StoreError> {
        match &mut self.open {
            Some((writer, _)) => writer.put(item).map_err(map_error),
            None => Ok(()),
        }
    }

    fn end_partition(&mut self) -> Result<(), StoreError> {
        if !self.place.in_partition {
            return Ok(());
        }
        self.close_pending()?;
        self.place.in_partition = false;
        match &mut self.open {
            Some((writer, _)) => writer.put(Item::PartitionEnd).map_err(map_error),
            None => Ok(()),
        }
    }

    async fn begin_file(&mut self) -> Result<(), StoreError> {
        if self.open.is_some() {
            return Ok(());
        }
        let generation = self.store.files.next_generation(&self.table);
        let in_flight = self.table.in_flight(generation);
        let min_timestamp = self.min_timestamp.unwrap_or(EncodingStats::NONE.min_timestamp);
        let stats = EncodingStats { min_timestamp, ..EncodingStats::NONE };
        let options = self.store.writer.writer_options(
            &self.version.table,
            generation,
            self.expected_partitions,
            stats,
        )?;
        let options = WriterOptions { held: true, ..options };
        let fs = self.store.env.rt.fs();
        // Until they arrive it is unknown which of the hidden columns have cells.
        let kept = dropped_columns::table_with_all(&self.version.table);
        match SstableWriter::create(&fs, &self.directory, &kept, options).await {
            Ok(writer) => self.open = Some((writer, in_flight)),
            Err(error) => {
                self.table.orphans.borrow_mut().push(in_flight);
                return Err(map_error(error));
            }
        }
        Ok(())
    }

    /// Step 1 for the file being written.
    async fn end_file(&mut self) -> Result<(), StoreError> {
        let Some((writer, in_flight)) = self.open.take() else { return Ok(()) };
        match writer.finish().await.map_err(map_error) {
            Ok(Some(written)) => {
                self.store.observer.warn_of_large(&self.version.table, Some(&written));
                self.report.files += 1;
                self.report.partitions += written.partitions;
                self.report.disk_bytes += written.disk_bytes();
                let descriptor = written.descriptor;
                self.done.push(Done { in_flight, descriptor, is_whole: false });
            }
            Ok(None) => {}
            Err(error) => {
                self.table.orphans.borrow_mut().push(in_flight);
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        // The background removes the written files. Until then no tombstone that hides their data
        // is purged.
        let open = self.open.take().map(|(writer, in_flight)| {
            drop(writer);
            in_flight
        });
        let coming = self.coming.take().map(Coming::give_up);
        let done = std::mem::take(&mut self.done).into_iter().map(|done| done.in_flight);
        self.table.orphans.borrow_mut().extend(done.chain(open).chain(coming));
    }
}
