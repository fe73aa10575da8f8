//! [`PageWriter`]: the items of a merged cursor as a page.

use std::cmp::Ordering;
use std::ops::Range;

use stdx::{DeletionSeconds, TimestampMicros};

use super::filtered::{FilteredPage, Kept, Place, WholePage};
use super::{
    END_EXHAUSTED, HAS_DELETION, HAS_STATIC, HEADER_BYTES, PAGE_VERSION, PASSED_TIMES, PageEnd,
    PageFlow, PageLimits, TAG_CUT, TAG_MARKER, TAG_PARTITION, TAG_ROW, behind, in_order, seal,
};
use crate::clustering::BoundRef;
use crate::counter;
use crate::cursor::{ClusteredRow, Item};
use crate::deletion::DeletionTime;
use crate::passed::place_between;
use crate::raw::{Raw, put_v};
use crate::row::{CellRef, ColumnRef, RowBuilder, RowRef};
use crate::row_filter::RowFilter;
use crate::shape::TableShape;

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Exhausted,
    After,
    Inside,
}

/// Collects the items of a merged cursor (`MergeMode::All` or `Purge`) into a page.
pub struct PageWriter<'s> {
    shape: &'s TableShape,
    reversed: bool,
    now: DeletionSeconds,
    counts_static: bool,
    limits: PageLimits,
    out: Vec<u8>,
    /// The current partition, also when nothing of it was written yet.
    key: Vec<u8>,
    deletion: DeletionTime,
    in_partition: bool,
    /// There was one.
    has_partition: bool,
    header_written: bool,
    static_is_live: bool,
    /// Where the partition's static row stands in `out`, with its length.
    static_at: Range<usize>,
    /// The filter and its output.
    kept: Option<Kept<'s>>,
    /// Clustering of the last row met; empty and unset at the start of a partition.
    last: Vec<u8>,
    has_last: bool,
    /// The range deletion open after the last written item.
    open: DeletionTime,
    /// A marker that may still be joined by another one of its position.
    pending: Option<DeletionTime>,
    pending_prefix: Vec<u8>,
    pending_after: bool,
    row_scratch: Vec<u8>,
    /// Live rows of the partition to come that earlier pages had.
    live_before: u32,
    live_in_partition: u32,
    live_rows: u32,
    tombstones: u32,
    /// Tombstones that count towards the limit: those written.
    scanned: u32,
    /// Partitions with a deletion among them.
    deletions: u32,
    /// Number of skipped rows and markers.
    left_out: u32,
    /// The read continues after this clustering; a position before it is no progress.
    floor: Option<Vec<u8>>,
    has_cut_partitions: bool,
    end: End,
}

impl<'s> PageWriter<'s> {
    /// An empty page. `now` is the clock of TTLs; `counts_static`: the reader wants a live static
    /// row shown when its partition has no live row, so that it counts as one.
    pub fn new(
        shape: &'s TableShape,
        reversed: bool,
        now: DeletionSeconds,
        counts_static: bool,
        limits: PageLimits,
    ) -> PageWriter<'s> {
        let mut out = vec![PAGE_VERSION, END_EXHAUSTED];
        out.resize(HEADER_BYTES, 0);
        PageWriter {
            shape,
            reversed,
            now,
            counts_static,
            limits,
            out,
            key: Vec::new(),
            deletion: DeletionTime::LIVE,
            in_partition: false,
            has_partition: false,
            header_written: false,
            static_is_live: false,
            static_at: 0..0,
            kept: None,
            last: Vec::new(),
            has_last: false,
            open: DeletionTime::LIVE,
            pending: None,
            pending_prefix: Vec::new(),
            pending_after: false,
            row_scratch: Vec::new(),
            live_before: 0,
            live_in_partition: 0,
            live_rows: 0,
            tombstones: 0,
            scanned: 0,
            deletions: 0,
            left_out: 0,
            floor: None,
            has_cut_partitions: false,
            end: End::Exhausted,
        }
    }

    /// Collects the rows that pass the filter, see [`PageWriter::finish_filtered`]. A limit per
    /// partition is not allowed then.
    pub fn filter(&mut self, filter: &'s dyn RowFilter) {
        self.kept = Some(Kept::new(filter));
    }

    /// The next partition continues from an earlier page that had this many live rows of it. They
    /// count for the limit per partition, and its static row does not count any more when there are
    /// some. 0 resets that.
    pub fn go_on_behind(&mut self, live_rows: u32) {
        self.live_before = live_rows;
    }

    /// The next partition continues after this clustering; `None`: it begins.
    pub fn set_floor(&mut self, clustering: Option<&[u8]>) {
        self.floor = clustering.map(<[u8]>::to_vec);
    }

    /// Live rows of the current partition so far (of the last one, between partitions), those of
    /// [`PageWriter::go_on_behind`] included.
    pub fn live_in_partition(&self) -> u32 {
        self.live_in_partition
    }

    /// Rows live at the reader's clock so far, as the page's header counts them.
    pub fn live_rows(&self) -> u32 {
        self.live_rows
    }

    /// Tombstones and expired cells taken so far, as Cassandra counts them for its thresholds
    /// (`ReadCommand.MetricRecording`): dead cells, rows that are deletions only, markers.
    pub fn tombstones(&self) -> u32 {
        self.tombstones
    }

    fn count_tombstones(&mut self, count: u32) {
        self.tombstones = self.tombstones.saturating_add(count);
    }

    fn put_sized(&mut self, bytes: &[u8]) {
        put_v(&mut self.out, bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    fn put_deletion(&mut self, deletion: DeletionTime) {
        self.out.extend_from_slice(&deletion.timestamp.0.to_le_bytes());
        self.out.extend_from_slice(&deletion.local.0.to_le_bytes());
    }

    fn header(&mut self, static_row: Option<RowRef<'_>>) {
        if self.header_written {
            return;
        }
        self.header_written = true;
        self.out.push(TAG_PARTITION);
        let key = std::mem::take(&mut self.key);
        self.put_sized(&key);
        self.key = key;
        let mut flags = 0;
        if !self.deletion.is_live() {
            flags |= HAS_DELETION;
        }
        if static_row.is_some() {
            flags |= HAS_STATIC;
        }
        self.out.push(flags);
        if flags & HAS_DELETION != 0 {
            self.put_deletion(self.deletion);
            self.deletions = self.deletions.saturating_add(1);
            self.scan(1);
        }
        if let Some(row) = static_row {
            let at = self.out.len();
            self.put_row(row);
            self.static_at = at..self.out.len();
        }
    }

    fn put_row(&mut self, row: RowRef<'_>) {
        let mut scratch = std::mem::take(&mut self.row_scratch);
        scratch.clear();
        let mut cleared = Vec::new();
        let mut row = row;
        if self.shape.has_counters() && clear_local_shards(row, &mut cleared) {
            row = RowRef::trusted(&cleared);
        }
        match canonical_base(row) {
            None => self.put_sized(row.bytes()),
            Some(base) => {
                repack(row, base, &mut scratch);
                self.put_sized(&scratch);
            }
        }
        self.row_scratch = scratch;
    }

    fn put_marker(&mut self, prefix: &[u8], after: bool, open: DeletionTime) {
        stdx::debug_invariant!(
            open != self.open,
            "INV-page-1: a marker that changes nothing would be a second encoding of the same content"
        );
        self.header(None);
        self.out.push(TAG_MARKER);
        self.out.push(u8::from(after));
        self.put_sized(prefix);
        self.out.push(u8::from(!open.is_live()));
        if !open.is_live() {
            self.put_deletion(open);
        }
        self.open = open;
        self.scan(1);
    }

    fn scan(&mut self, count: u32) {
        self.scanned = self.scanned.saturating_add(count);
    }

    fn flush_marker(&mut self) {
        let Some(open) = self.pending.take() else { return };
        if open == self.open {
            return;
        }
        let prefix = std::mem::take(&mut self.pending_prefix);
        self.put_marker(&prefix, self.pending_after, open);
        self.pending_prefix = prefix;
    }

    /// Closes an open range after the last row: the page or the partition is cut there.
    fn close_behind_last(&mut self) {
        self.pending = None;
        if self.open.is_live() {
            return;
        }
        let last = std::mem::take(&mut self.last);
        let bound = behind(&last, self.reversed);
        self.put_marker(bound.prefix, bound.after, DeletionTime::LIVE);
        self.last = last;
    }

    /// Reports `count` rows and markers that were skipped before they reached the writer, of the
    /// current partition, up to this clustering if it is known.
    pub fn passed(&mut self, count: u32, upto: Option<&[u8]>) -> PageFlow {
        self.left_out = self.left_out.saturating_add(count);
        let Some(upto) = upto.filter(|_| self.in_partition && self.is_full()) else {
            return PageFlow::Continue;
        };
        if !self.is_progress(upto) {
            return PageFlow::Continue;
        }
        let upto = upto.to_vec();
        self.cut_at(upto);
        PageFlow::Full
    }

    fn is_progress(&self, place: &[u8]) -> bool {
        let cmp = self.shape.clustering();
        let is_behind =
            |floor: &[u8]| in_order(cmp.compare(place, floor), self.reversed) == Ordering::Greater;
        self.floor.as_deref().is_none_or(is_behind) && (!self.has_last || is_behind(&self.last))
    }

    /// Ends the page after a clustering, with all markers taken.
    fn cut_at(&mut self, place: Vec<u8>) {
        if !self.deletion.is_live() {
            // Others may have rows up to there that it hides.
            self.header(None);
        }
        let pending = BoundRef { prefix: &self.pending_prefix, after: self.pending_after };
        let end = behind(&place, self.reversed);
        if self.shape.clustering().compare_bounds(pending, end) != Ordering::Equal {
            self.flush_marker();
        }
        // A deletion that opens at the end itself belongs to the next page.
        (self.last, self.has_last) = (place, true);
        self.cut_inside();
    }

    /// The page is full after a marker: it ends before the next item of the partition, if there is
    /// a position.
    fn ends_before(&mut self, next: &Item<'_>) -> bool {
        let changes = self.pending.is_some_and(|open| open != self.open);
        if !changes || !self.is_full_with_pending() {
            return false;
        }
        let mut place = Vec::new();
        let from = BoundRef { prefix: &self.pending_prefix, after: self.pending_after };
        let is_found = place_between(self.shape, self.reversed, from, next, &mut place)
            && self.is_progress(&place);
        if is_found {
            self.cut_at(place);
        }
        is_found
    }

    fn is_full_with_pending(&self) -> bool {
        self.out.len() >= self.limits.bytes || self.has_tombstones(1)
    }

    /// Takes the next item of the source.
    pub fn item(&mut self, item: &Item<'_>) -> PageFlow {
        if self.pending.is_some() && self.ends_before(item) {
            return PageFlow::Full;
        }
        match item {
            Item::Partition { key, deletion, .. } => {
                self.partition(key, *deletion);
                PageFlow::Continue
            }
            Item::Static(row) => {
                if !row.is_empty() {
                    self.count_tombstones(row.tombstones(self.now));
                    self.static_is_live = row.has_live_data(self.now);
                    self.scan(row.tombstones(self.now));
                    self.header(Some(*row));
                }
                PageFlow::Continue
            }
            Item::Marker(marker) => {
                self.count_tombstones(1);
                let position = marker.position;
                let cmp = self.shape.clustering();
                let joins = self.pending.is_some() && {
                    let before =
                        BoundRef { prefix: &self.pending_prefix, after: self.pending_after };
                    cmp.compare_bounds(before, position) == Ordering::Equal
                };
                if !joins {
                    self.flush_marker();
                    self.pending_prefix.clear();
                    self.pending_prefix.extend_from_slice(position.prefix);
                    self.pending_after = position.after;
                }
                self.pending = Some(marker.open.unwrap_or(DeletionTime::LIVE));
                PageFlow::Continue
            }
            Item::Row { clustering, row } => self.row(clustering, *row),
            Item::PartitionEnd => self.partition_end(),
        }
    }

    #[inline]
    fn partition(&mut self, key: &[u8], deletion: DeletionTime) {
        stdx::debug_invariant!(
            self.end == End::Exhausted,
            "INV-page-2: a partition after the end of the page"
        );
        self.key.clear();
        self.key.extend_from_slice(key);
        self.deletion = deletion;
        (self.in_partition, self.has_partition) = (true, true);
        self.header_written = false;
        self.static_is_live = false;
        self.has_last = false;
        self.open = DeletionTime::LIVE;
        self.pending = None;
        self.live_in_partition = std::mem::take(&mut self.live_before);
        if let Some(kept) = &mut self.kept {
            kept.partition();
        }
    }

    /// Like [`PageWriter::item`], for a partition of one plain row and nothing else, after another
    /// partition.
    #[inline]
    pub fn plain_partition(&mut self, key: &[u8], row: ClusteredRow<'_>) -> PageFlow {
        self.partition(key, DeletionTime::LIVE);
        match self.plain_row(row.clustering, row.row) {
            PageFlow::Continue => self.partition_end(),
            // There is nothing to pass over.
            PageFlow::SkipPartition => PageFlow::Continue,
            PageFlow::Full => PageFlow::Full,
        }
    }

    /// Like [`PageWriter::item`], for a plain row ([`RowRef::is_plain`]) of a table without
    /// counters.
    #[inline]
    pub fn plain_row(&mut self, clustering: &[u8], row: RowRef<'_>) -> PageFlow {
        if self.pending.is_some() || row.liveness().is_empty() {
            return self.item(&Item::Row { clustering, row });
        }
        self.header(None);
        let at = self.out.len();
        self.out.push(TAG_ROW);
        self.put_sized(clustering);
        self.put_sized(row.bytes());
        self.behind_row(ClusteredRow { clustering, row }, at, true)
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> PageFlow {
        self.flush_marker();
        self.header(None);
        let at = self.out.len();
        self.out.push(TAG_ROW);
        self.put_sized(clustering);
        self.put_row(row);
        let tombstones = row.tombstones(self.now);
        self.count_tombstones(tombstones);
        self.scan(tombstones);
        self.behind_row(ClusteredRow { clustering, row }, at, row.has_live_data(self.now))
    }

    /// A row was written from `at` on.
    #[inline]
    fn behind_row(&mut self, row: ClusteredRow<'_>, at: usize, is_live: bool) -> PageFlow {
        stdx::debug_invariant!(
            self.end == End::Exhausted && self.in_partition,
            "INV-page-2: a row after the end of the page or outside a partition"
        );
        self.last.clear();
        self.last.extend_from_slice(row.clustering);
        self.has_last = true;
        if is_live {
            self.live_rows = self.live_rows.saturating_add(1);
            self.live_in_partition = self.live_in_partition.saturating_add(1);
            if self.kept.is_some() {
                self.keep(row, at);
            }
        }
        if self.is_full() {
            self.cut_inside();
            return PageFlow::Full;
        }
        if self.live_in_partition >= self.limits.rows_per_partition {
            self.cut_partition();
            return PageFlow::SkipPartition;
        }
        PageFlow::Continue
    }

    /// Notes that a live row was written from `at` on.
    fn keep(&mut self, row: ClusteredRow<'_>, at: usize) {
        let Some(kept) = &mut self.kept else { return };
        // Readers see the counters that were written, without local shards.
        let written = if self.shape.has_counters() { written_row(&self.out, at) } else { None };
        let row = ClusteredRow { row: written.unwrap_or(row.row), ..row };
        let static_at = self.static_is_live.then_some(&self.static_at);
        kept.row(&Place::new(&self.out, &self.key, static_at), row, at);
    }

    /// The partition may be shown for its static row alone.
    fn keep_static(&mut self) {
        let Some(kept) = &mut self.kept else { return };
        kept.static_alone(&Place::new(&self.out, &self.key, Some(&self.static_at)));
    }

    fn partition_end(&mut self) -> PageFlow {
        self.flush_marker();
        if !self.deletion.is_live() {
            self.header(None);
        }
        if !self.header_written {
            // Nothing is left of it, which it took to find out.
            self.left_out = self.left_out.saturating_add(1);
        }
        self.floor = None;
        self.in_partition = false;
        if self.static_is_live && self.counts_static {
            if self.live_in_partition == 0 {
                self.live_rows = self.live_rows.saturating_add(1);
            }
            self.keep_static();
        }
        if self.is_full() {
            self.end = End::After;
            return PageFlow::Full;
        }
        PageFlow::Continue
    }

    fn is_full(&self) -> bool {
        self.live_rows >= self.limits.rows
            || self.out.len() >= self.limits.bytes
            || self.has_tombstones(0)
    }

    /// Returns true if the page reaches its limit of tombstones with `more` of them.
    fn has_tombstones(&self, more: u32) -> bool {
        let most = self.limits.tombstones;
        let scanned = self.scanned.saturating_add(more);
        most < u32::MAX
            && (scanned >= most
                || scanned.saturating_add(self.left_out) >= most.saturating_mul(PASSED_TIMES))
    }

    fn cut_inside(&mut self) {
        self.close_behind_last();
        self.in_partition = false;
        self.end = End::Inside;
    }

    fn cut_partition(&mut self) {
        self.close_behind_last();
        self.out.push(TAG_CUT);
        self.has_cut_partitions = true;
        self.in_partition = false;
        self.floor = None;
    }

    /// Marks the partition that just ended as cut after its last row, as it was cut in some source.
    pub fn mark_cut(&mut self) {
        if self.header_written && self.has_last {
            self.out.push(TAG_CUT);
            self.has_cut_partitions = true;
        }
    }

    /// Ends the page; it is exhausted unless a limit was met.
    pub fn finish(self) -> Vec<u8> {
        self.finish_filtered(PageEnd::Exhausted).0
    }

    /// Ends the page like [`PageWriter::finish`], for a read up to `end`: at `end`, or before it if
    /// a limit was met. Also returns the filtered rows, if a filter is set.
    pub fn finish_filtered(self, end: PageEnd<'_>) -> (Vec<u8>, Option<FilteredPage>) {
        let (key, last) = (self.key.clone(), self.last.clone());
        let token = codec::token_of(&key);
        let own = match self.end {
            End::Exhausted => PageEnd::Exhausted,
            End::After => PageEnd::After { token, key: &key },
            End::Inside => PageEnd::Inside { token, key: &key, clustering: &last },
        };
        match end.compare(&own, self.shape, self.reversed) {
            Ordering::Less => self.seal(end),
            Ordering::Equal | Ordering::Greater => self.seal(own),
        }
    }

    /// Ends the page at a position that the caller knows.
    pub fn finish_at(self, end: PageEnd<'_>) -> Vec<u8> {
        self.seal(end).0
    }

    fn seal(mut self, end: PageEnd<'_>) -> (Vec<u8>, Option<FilteredPage>) {
        seal(&mut self.out, end, self.live_rows, self.has_cut_partitions);
        let tombstones = self.scanned.saturating_sub(self.deletions);
        let (live_rows, bytes) = (self.live_rows, self.out.len() as u64);
        let whole = WholePage { live_rows, tombstones, bytes, ..WholePage::default() };
        let filtered = self.kept.take().map(|kept| {
            let last_key = self.has_partition.then(|| std::mem::take(&mut self.key));
            kept.finish(end, whole, last_key)
        });
        (self.out, filtered)
    }
}

/// The row that stands in a page from `at` on.
fn written_row(out: &[u8], at: usize) -> Option<RowRef<'_>> {
    let mut raw = Raw::new(out.get(at..)?);
    raw.u8()?;
    raw.sized()?;
    raw.sized().map(RowRef::trusted)
}

/// The base that follows from the row's content, when the row is packed relative to another one.
fn canonical_base(row: RowRef<'_>) -> Option<TimestampMicros> {
    let (liveness, deletion, mut columns) = row.parts();
    if !liveness.is_empty() {
        return None;
    }
    let base = if !deletion.is_live() {
        deletion.timestamp
    } else {
        match columns.next() {
            None => TimestampMicros(0),
            Some((_, ColumnRef::Simple(cell))) => cell.timestamp,
            Some((_, ColumnRef::Complex(complex))) if !complex.deletion.is_live() => {
                complex.deletion.timestamp
            }
            Some((_, ColumnRef::Complex(complex))) => {
                complex.cells().next().map_or(TimestampMicros(0), |(_, cell)| cell.timestamp)
            }
        }
    };
    (row.base_timestamp() != base).then_some(base)
}

/// Rebuilds a row whose counters have local shards, from before Cassandra 2.1: added up at their own
/// node, they must not be added to those of another one. False: there are none.
#[cold]
fn clear_local_shards(row: RowRef<'_>, out: &mut Vec<u8>) -> bool {
    let has_local = |column: ColumnRef<'_>| match column {
        ColumnRef::Simple(cell) => counter::has_local_shards(cell.value),
        ColumnRef::Complex(_) => false,
    };
    if !row.columns().any(|(_, column)| has_local(column)) {
        return false;
    }
    let (liveness, deletion, columns) = row.parts();
    let mut builder = RowBuilder::new(out, liveness, deletion, row.base_timestamp());
    for (id, column) in columns {
        let ColumnRef::Simple(cell) = column else { continue };
        let mut value = Vec::new();
        counter::without_local(cell.value, &mut value);
        builder
            .cell(id, &if cell.is_tombstone() { cell } else { CellRef { value: &value, ..cell } });
    }
    builder.finish();
    true
}

fn repack(row: RowRef<'_>, base: TimestampMicros, out: &mut Vec<u8>) {
    let (liveness, deletion, columns) = row.parts();
    let mut builder = RowBuilder::new(out, liveness, deletion, base);
    for (id, column) in columns {
        match column {
            ColumnRef::Simple(cell) => builder.cell(id, &cell),
            ColumnRef::Complex(complex) => {
                builder.begin_complex(id, complex.deletion);
                for (path, cell) in complex.cells() {
                    builder.complex_cell(path, &cell);
                }
                builder.end_complex();
            }
        }
    }
    builder.finish();
}
