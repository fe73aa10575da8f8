//! Partitions that no SSTable can hold.
//!
//! Mutations are checked before they are applied, so there should be none. A commit log of an earlier release may
//! have some, though, and a peer may send data that this release does not foresee. Such a partition must not
//! block the flush of other data: a flush writes all others and puts the partition back into the active memtable.
//! There it is read, merged with later writes and retried by the next flush, so a deletion that shadows the
//! offending row frees it.
//!
//! Order of a flush with such partitions: 1. the file set of all others is written, see [`crate::write::flush`]; 2. the
//! partitions' content is appended to the commit log again and merged into the active memtable, in one step with the
//! change of the view; 3. the log is synced; 4. segments with the earlier records may be released. Until 3 the
//! earlier records are pinned.
//!
//! INV-unflushable-1: the log is not kept for such a partition beyond the segment with its latest copy.
//! INV-unflushable-2: tables without such partitions can always use half of the memtables' budget; a table with
//! some takes no more writes when they hold its share of a quarter. All partitions of a table without the key of its files
//! ([`crate::write::table_key`]) count as such.

use std::rc::Rc;
use std::sync::Arc;

use data::command::KeyRange;
use data::{
    Advance, BoundRef, Cursor, DeletionTime, Item, MergeCursor, MergeMode, MutationBuilder,
    MutationRef, RangeTombstoneRef, RowRef, Slices,
};
use sstable::{SstableError, SstableWriter};
use stdx::Token;

use crate::env::failure::StoreFailure;
use crate::error::StoreError;
use crate::memtable::{Memtable, MemtableScan};
use crate::tables::table::{TableState, TableVersion};
use crate::write::{Writer, table_key};

/// Bytes of rows or range tombstones of one mutation that a partition is put back with.
const MUTATION_BYTES: usize = 16 * 1024;
/// Bytes of a key or clustering that messages show.
const SHOWN_BYTES: usize = 64;

/// A partition that a flush could not write.
pub(crate) struct Refused {
    pub(crate) key: Vec<u8>,
    token: Token,
    /// All that it holds.
    mutations: Vec<Vec<u8>>,
    /// The error, and its position.
    error: StoreError,
}

impl Refused {
    pub(crate) fn into_error(self) -> StoreError {
        self.error
    }
}

/// Where the mutations of a memtable are logged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logging {
    /// In the log that is being replayed, to which nothing can be appended.
    Replaying,
    /// In the log of this run, or nowhere.
    Running,
}

/// Parts read of one partition.
#[derive(Default)]
struct Parts {
    token: Option<Token>,
    key: Vec<u8>,
    deletion: Option<DeletionTime>,
    static_row: Option<Vec<u8>>,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    tombstones: Vec<OwnedTombstone>,
    open: Option<(Vec<u8>, bool, DeletionTime)>,
    error: Option<StoreError>,
}

struct OwnedTombstone {
    start: (Vec<u8>, bool),
    end: (Vec<u8>, bool),
    deletion: DeletionTime,
}

impl OwnedTombstone {
    fn borrow(&self) -> RangeTombstoneRef<'_> {
        RangeTombstoneRef {
            start: BoundRef { prefix: &self.start.0, after: self.start.1 },
            end: BoundRef { prefix: &self.end.0, after: self.end.1 },
            deletion: self.deletion,
        }
    }

    fn bytes(&self) -> usize {
        self.start.0.len().saturating_add(self.end.0.len())
    }
}

impl Parts {
    fn take(&mut self, item: Item<'_>) {
        match item {
            Item::Partition { token, key, deletion } => {
                let error = self.error.take();
                *self = Parts { token: Some(token), key: key.to_vec(), error, ..Parts::default() };
                self.deletion = (!deletion.is_live()).then_some(deletion);
            }
            Item::Static(row) => self.static_row = Some(row.bytes().to_vec()),
            Item::Row { clustering, row } => {
                self.rows.push((clustering.to_vec(), row.bytes().to_vec()));
            }
            Item::Marker(marker) => {
                let at = (marker.position.prefix.to_vec(), marker.position.after);
                if let Some((prefix, after, deletion)) = self.open.take() {
                    let (start, end) = ((prefix, after), at.clone());
                    self.tombstones.push(OwnedTombstone { start, end, deletion });
                }
                self.open = marker.open.map(|deletion| (at.0, at.1, deletion));
            }
            Item::PartitionEnd => {}
        }
    }

    /// The partition as mutations, each small or of one row.
    fn mutations(&self, version: &TableVersion) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut one = |build: &mut dyn FnMut(&mut MutationBuilder<'_>)| {
            let mut out = Vec::new();
            let (id, schema_version) = (version.table.id, version.table.version);
            let mut builder = MutationBuilder::new(&mut out, id, schema_version, &self.key);
            build(&mut builder);
            builder.finish();
            all.push(out);
        };
        if self.deletion.is_some() || self.static_row.is_some() {
            one(&mut |builder| {
                if let Some(deletion) = self.deletion {
                    builder.deletion(deletion);
                }
                if let Some(row) = &self.static_row {
                    builder.static_row(RowRef::trusted(row));
                }
            });
        }
        let sizes = self.rows.iter().map(|(clustering, row)| clustering.len() + row.len());
        for range in chunks(sizes) {
            let rows = self.rows.get(range).unwrap_or_default();
            let rows = rows.iter().map(|(c, row)| (c.as_slice(), RowRef::trusted(row)));
            one(&mut |builder| builder.rows(rows.clone()));
        }
        for range in chunks(self.tombstones.iter().map(OwnedTombstone::bytes)) {
            let tombstones = self.tombstones.get(range).unwrap_or_default();
            one(&mut |builder| {
                builder.range_tombstones(tombstones.iter().map(OwnedTombstone::borrow));
            });
        }
        all
    }
}

/// Neighbours that are together at most [`MUTATION_BYTES`] large, or one that is larger.
fn chunks(sizes: impl Iterator<Item = usize>) -> Vec<std::ops::Range<usize>> {
    let mut ranges: Vec<std::ops::Range<usize>> = Vec::new();
    let mut bytes = 0_usize;
    for (at, size) in sizes.enumerate() {
        bytes = bytes.saturating_add(size);
        match ranges.last_mut() {
            Some(range) if bytes <= MUTATION_BYTES => range.end = at + 1,
            _ => {
                bytes = size;
                ranges.push(at..at + 1);
            }
        }
    }
    ranges
}

fn shortened(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::from("0x");
    for byte in bytes.iter().take(SHOWN_BYTES / 2) {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    if bytes.len() > SHOWN_BYTES / 2 {
        let _ = write!(text, "… ({} bytes)", bytes.len());
    }
    text
}

/// `keyspace.table`, the partition key and the clustering, shortened, for messages.
pub(crate) fn place_of(table: &schema::Table, key: &[u8], clustering: Option<&[u8]>) -> String {
    let at = format!("{}.{}, partition key {}", table.keyspace, table.name, shortened(key));
    let Some(clustering) = clustering else { return at };
    let values: Vec<String> = data::clustering::components(clustering)
        .map(|value| value.map_or_else(|| "null".to_owned(), shortened))
        .collect();
    format!("{at}, clustering ({})", values.join(", "))
}

fn error_at(table: &schema::Table, key: &[u8], item: Item<'_>, error: &SstableError) -> StoreError {
    let clustering = match item {
        Item::Row { clustering, .. } => Some(clustering),
        Item::Marker(marker) => Some(marker.position.prefix),
        _ => None,
    };
    let what = match error {
        SstableError::Unwritable { error, .. } => error.to_string(),
        other => other.to_string(),
    };
    StoreError::Unwritable { what, place: place_of(table, key, clustering) }
}

impl Writer {
    /// The partitions of a memtable that the writer refuses.
    pub(crate) async fn refused_partitions(
        &self,
        version: &TableVersion,
        memtable: &Rc<Memtable>,
        writer: &SstableWriter,
    ) -> Result<Vec<Refused>, StoreError> {
        let (range, slices) = (KeyRange::all(), Arc::new(Slices::all()));
        let shape = &version.shape;
        let scan = MemtableScan::new(memtable.clone(), shape.clone(), &range, slices, false);
        let mut merge = MergeCursor::new(shape.stored(), MergeMode::All, false, [scan]);
        let (mut parts, mut refused) = (Parts::default(), Vec::new());
        while merge.advance()? == Advance::Item {
            let item = merge.item();
            let checked = writer.check(item);
            parts.take(item);
            if let Err(error) = checked {
                let error = error_at(&version.table, &parts.key, item, &error);
                parts.error.get_or_insert(error);
            }
            if matches!(item, Item::PartitionEnd) {
                let error = parts.error.take();
                refused.extend(error.zip(parts.token).map(|(error, token)| {
                    let mutations = parts.mutations(version);
                    Refused { key: std::mem::take(&mut parts.key), token, mutations, error }
                }));
            }
            if self.env.rt.is_yield_due() {
                self.env.rt.yield_if_due().await;
            }
        }
        Ok(refused)
    }

    /// Step 2: merges the partitions that a flush of `memtable` could not write into the active
    /// memtable of the table's view. The log of `memtable` must stay pinned until the log is
    /// synced.
    pub(crate) fn put_back(
        &self,
        table: &TableState,
        memtable: &Memtable,
        refused: &[Refused],
        logging: Logging,
    ) {
        let (version, view) = (table.version(), table.view());
        let was_logged = memtable.first_position().is_some() || memtable.is_replayed();
        let mut scratch = self.scratch.borrow_mut();
        let (mut delta, mut is_logged) = (0_isize, was_logged && logging == Logging::Running);
        for partition in refused {
            for bytes in &partition.mutations {
                let Some(mutation) = MutationRef::open(bytes) else { continue };
                let mut position = None;
                if is_logged {
                    position = self.env.log.append(&version.ticket, bytes).ok();
                    is_logged = position.is_some();
                }
                let active = &view.active;
                let (shape, token) = (&version.shape, partition.token);
                delta += isize::try_from(active.index(token, &mutation)).unwrap_or(isize::MAX);
                delta += active.apply(shape, token, &mutation, position, &mut scratch);
            }
        }
        let bytes = self.memtable_bytes.get().saturating_add_signed(delta);
        self.memtable_bytes.set(bytes);
        view.active.add_refused(usize::try_from(delta).unwrap_or(0));
        self.count_refused(table);
        if was_logged && !is_logged {
            // The earlier records are all there is.
            view.active.keep_position_of(memtable);
        }
    }

    /// Counts the memory of a table's partitions that its flushes could not write; called after a
    /// change of its memtables.
    pub(crate) fn count_refused(&self, table: &TableState) {
        let of_memtable = |memtable: &Rc<Memtable>| match table.lacks_key.get() {
            true => memtable.bytes(),
            false => memtable.refused_bytes(),
        };
        let bytes = table.view().memtables().map(of_memtable).sum();
        let before = table.refused_bytes.replace(bytes);
        let (total, count) = self.refused.get();
        let total = total.saturating_sub(before).saturating_add(bytes);
        let count =
            count.saturating_sub(usize::from(before > 0)).saturating_add(usize::from(bytes > 0));
        self.refused.set((total, count));
        self.refused_gauge.set(i64::try_from(total).unwrap_or(i64::MAX));
    }

    /// Bytes of memtables that flushes can free, and their limit.
    #[inline]
    pub(crate) fn flushable_bytes(&self) -> (usize, usize) {
        let (used, limit) = (self.memtable_bytes.get(), self.env.options.memtable_bytes_max);
        let (refused, _) = self.refused.get();
        (used.saturating_sub(refused), limit.saturating_sub(refused).max(limit / 2))
    }

    /// Refuses a write to a table whose unflushable partitions hold their share of the memory. The deletion of a
    /// partition passes, because it may be the remedy.
    ///
    /// # Errors
    /// `Unflushable`.
    #[cold]
    pub(crate) fn admit_to_refused(
        &self,
        table: &TableState,
        mutation: &MutationRef<'_>,
    ) -> Result<(), StoreError> {
        if table.lacks_key.get() {
            return table_key::admit_without_key(self, table);
        }
        let (share, bytes) = (self.refused_share(), table.refused_bytes.get());
        if !mutation.deletion.is_live() {
            // To be seen at once, if it is.
            table.wants_flush.set(true);
            self.env.work.notify_one();
            return Ok(());
        }
        if bytes <= share {
            return Ok(());
        }
        let version = table.version();
        let table = format!("{}.{}", version.table.keyspace, version.table.name);
        let why =
            "the log names the rows, delete their partitions or truncate the table".to_owned();
        Err(StoreError::Unflushable { table, bytes, share, why })
    }

    /// Bytes that a table may hold which no flush can free.
    pub(crate) fn refused_share(&self) -> usize {
        let (_, tables) = self.refused.get();
        self.env.options.memtable_bytes_max / 4 / tables.max(1)
    }

    /// Reports partitions that could not be flushed, unless the same ones were reported lately. Gives the first error.
    pub(crate) fn report_refused(
        &self,
        table: &TableState,
        refused: Vec<Refused>,
    ) -> Result<(), StoreError> {
        let Some(first) = refused.first() else {
            table.refused_report.take();
            return Ok(());
        };
        let now = self.env.rt.now();
        let mut hash = 0_i64;
        for partition in &refused {
            hash = hash.wrapping_mul(31).wrapping_add(partition.token.0);
        }
        let is_new = match table.refused_report.get() {
            Some((reported, at)) => reported != hash || now.since(at) >= REPORTED_EVERY,
            None => true,
        };
        let error = first.error.clone();
        if is_new {
            table.refused_report.set(Some((hash, now)));
            let (count, bytes) = (refused.len(), table.refused_bytes.get());
            let what = format!(
                "{error}; {count} such partitions of the table hold {bytes} bytes of memtables; delete the partition \
                 or truncate the table to free them"
            );
            self.env.tell_failure(StoreFailure::Unflushable(what));
        }
        Err(error)
    }
}

/// Interval between two reports of the same partitions.
const REPORTED_EVERY: std::time::Duration = std::time::Duration::from_secs(600);
