//! The counter cache: this node's own counts, so that the next increment of the same counter needs no read.
//!
//! Owns: clocks and counts of one writer (this node) by (table, contents, erasures, token, place, column), their
//! budget, counts of hits. Never: counts of other writers, values for readers. Source of the idea and the names:
//! Cassandra's `CounterCacheKey`, `ClockAndCount`.
//!
//! A cached count was read or written by a leader, which leads nothing else of the partition meanwhile. Writes
//! to memtables are reported here ([`CounterCache::note`]):
//! - Counts of other writers change nothing.
//! - A count of this writer that did not come from its leader just now (a hint, a read repair) makes the cache
//!   drop that one counter; a leader stores its own count after that.
//! - Any deletion drops the partition: the number of erasures of the partition's group rises, and entries
//!   under the old number are never found again and just age out.
//!
//! Any other change of a table's data gives its views another number of contents
//! ([`TableView::contents`](crate::tables::table::TableView::contents)), with the same result.
//!
//! INV-counter-cache-1: a cached count is the part of this writer in the cell that a read of the table would
//! find. That cell is visible, and no older than the cached timestamp.
//!
//! A leader may keep a count only when it knows that its cell is visible: a visible cell that is not newer was
//! found before it, and no deletion has come since then. So the first increment of a counter keeps nothing.

pub(crate) mod saved_keys;

use std::cell::{Cell, RefCell};
use std::hash::Hash;
use std::rc::Rc;

use data::counter::{self, CounterId};
use data::{ColumnRef, MutationRef, RowRef};
use quick_cache::unsync::Cache;
use quick_cache::{Equivalent, Weighter};
use smallvec::SmallVec;
use stdx::{ColumnId, FixedHasher, TableId, TimestampMicros, Token};

use crate::env::Env;
use crate::error::StoreError;
use crate::read::Reader;
use crate::tables::registry::Tables;
use crate::tables::table::TableState;

/// Accounted for a count beside its key.
const ENTRY_OVERHEAD: usize = 160;
/// Groups of partitions that are forgotten together.
const GROUPS: usize = 4096;

/// A row of a counter table: partition key and clustering, `None` for the static row.
pub type CounterRow<'a> = (&'a [u8], Option<&'a [u8]>);

/// Key, and clustering or none, in one.
type Place = SmallVec<[u8; 64]>;

/// The length of the key, four bytes big endian, the key, 1 and the clustering or 0.
fn place_of((key, clustering): CounterRow<'_>) -> Place {
    let mut place = Place::new();
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
    place.extend_from_slice(&length.to_be_bytes());
    place.extend_from_slice(key);
    place.push(u8::from(clustering.is_some()));
    place.extend_from_slice(clustering.unwrap_or_default());
    place
}

/// The same back.
fn row_of(place: &[u8]) -> Option<CounterRow<'_>> {
    let (length, rest) = place.split_first_chunk::<4>()?;
    let (key, rest) = rest.split_at_checked(u32::from_be_bytes(*length).try_into().ok()?)?;
    match rest.split_first()? {
        (0, []) => Some((key, None)),
        (1, clustering) => Some((key, Some(clustering))),
        _ => None,
    }
}

/// This node's own count in one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnCount {
    /// The cell is not older.
    pub timestamp: TimestampMicros,
    /// Clock of the node's shard in the cell's context.
    pub clock: i64,
    /// Likewise.
    pub count: i64,
}

impl OwnCount {
    /// The part of a writer in a cell.
    pub fn of(timestamp: TimestampMicros, context: &[u8], id: CounterId) -> OwnCount {
        let (clock, count) = counter::clock_and_count(context, id);
        OwnCount { timestamp, clock, count }
    }
}

/// Numbers that are part of the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Numbers {
    table: TableId,
    contents: u64,
    erased: u64,
    token: Token,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct CellKey {
    numbers: Numbers,
    column: ColumnId,
    place: Box<[u8]>,
}

#[derive(Hash)]
struct CellKeyRef<'a> {
    numbers: Numbers,
    column: ColumnId,
    place: &'a [u8],
}

impl Equivalent<CellKey> for CellKeyRef<'_> {
    fn equivalent(&self, other: &CellKey) -> bool {
        self.numbers == other.numbers && self.column == other.column && self.place == &*other.place
    }
}

#[derive(Clone)]
struct ByBytes;

/// `None`: forgotten, until its leader has written again.
type Kept = Cell<Option<OwnCount>>;

impl Weighter<CellKey, Kept> for ByBytes {
    fn weight(&self, key: &CellKey, _: &Kept) -> u64 {
        (key.place.len() + ENTRY_OVERHEAD) as u64
    }
}

/// Changes of partitions whose tokens share a group.
#[derive(Clone, Copy, Default)]
struct Group {
    /// Deletions.
    erased: u64,
    /// Deletions and counts of this writer.
    touched: u64,
}

/// See the module.
pub(crate) struct CounterCache {
    counts: RefCell<Cache<CellKey, Kept, ByBytes, FixedHasher>>,
    capacity: Cell<u64>,
    /// The id under which this node counts; nothing is cached before that is known.
    writer: Cell<Option<CounterId>>,
    groups: RefCell<Vec<Group>>,
    /// Number of times the whole cache was cleared.
    cleared: Cell<u64>,
    hits: telemetry::Counter,
    misses: telemetry::Counter,
    bytes: telemetry::Gauge,
    entries: telemetry::Gauge,
    capacity_shown: telemetry::Gauge,
}

impl CounterCache {
    pub(crate) fn new(capacity: u64, telemetry: &telemetry::Shard) -> CounterCache {
        let cache = CounterCache {
            counts: RefCell::new(Self::cache(capacity)),
            capacity: Cell::new(capacity),
            writer: Cell::default(),
            groups: RefCell::new(vec![Group::default(); GROUPS]),
            cleared: Cell::new(0),
            hits: telemetry.counter(
                "counter_cache_hits_total",
                "counters that were counted on from the counter cache",
                &[],
            ),
            misses: telemetry.counter(
                "counter_cache_misses_total",
                "counters that were read to be counted on",
                &[],
            ),
            bytes: telemetry.gauge("counter_cache_bytes", "memory of cached counts", &[]),
            entries: telemetry.gauge("counter_cache_entries", "counts in the counter cache", &[]),
            capacity_shown: telemetry.gauge(
                "counter_cache_capacity_bytes",
                "most memory of cached counts",
                &[],
            ),
        };
        cache.show();
        cache
    }

    fn cache(capacity: u64) -> Cache<CellKey, Kept, ByBytes, FixedHasher> {
        let items = usize::try_from(capacity / 256).unwrap_or(usize::MAX).clamp(16, 1 << 18);
        let lifecycle = quick_cache::unsync::DefaultLifecycle::default();
        Cache::with(items, capacity, ByBytes, FixedHasher, lifecycle)
    }

    /// Returns true if the cache is enabled.
    pub(crate) fn is_on(&self) -> bool {
        self.capacity.get() > 0
    }

    /// Most accounted bytes.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity.get()
    }

    fn set_capacity(&self, bytes: u64) {
        self.capacity.set(bytes);
        // While the cache is off, no write updates it.
        if bytes == 0 {
            self.clear();
        } else {
            self.counts.borrow_mut().set_capacity(bytes);
        }
        self.show();
    }

    /// Clears the cache, and invalidates reads in progress.
    fn clear(&self) {
        self.cleared.set(self.cleared.get() + 1);
        *self.counts.borrow_mut() = Self::cache(self.capacity.get());
        self.show();
    }

    fn show(&self) {
        let counts = self.counts.borrow();
        self.bytes.set(i64::try_from(counts.weight()).unwrap_or(i64::MAX));
        self.entries.set(i64::try_from(counts.len()).unwrap_or(i64::MAX));
        self.capacity_shown.set(i64::try_from(self.capacity.get()).unwrap_or(i64::MAX));
    }

    fn group(&self, token: Token) -> Group {
        self.groups.borrow().get(group_at(token)).copied().unwrap_or_default()
    }

    fn change_group(&self, token: Token, change: impl FnOnce(&mut Group)) {
        if let Some(group) = self.groups.borrow_mut().get_mut(group_at(token)) {
            change(group);
        }
    }

    /// A mutation is applied to the memtable of a table with counters. Not inlined: other tables' writes need no room
    /// for it on the stack.
    #[inline(never)]
    pub(crate) fn note(&self, table: &TableState, token: Token, mutation: &MutationRef<'_>) {
        if !self.is_on() {
            return;
        }
        let mut rows = mutation.rows();
        let deletes = !mutation.deletion.is_live()
            || mutation.static_row.is_some_and(has_deletion)
            || rows.any(|(_, row)| has_deletion(row))
            || mutation.range_tombstones().next().is_some();
        if deletes {
            self.change_group(token, |group| {
                group.erased += 1;
                group.touched += 1;
            });
            return;
        }
        let Some(writer) = self.writer.get() else { return };
        if let Some(row) = mutation.static_row {
            self.note_row(table, token, (mutation.key, None), row, writer);
        }
        for (clustering, row) in mutation.rows() {
            self.note_row(table, token, (mutation.key, Some(clustering)), row, writer);
        }
    }

    fn note_row(
        &self,
        table: &TableState,
        token: Token,
        at: CounterRow<'_>,
        row: RowRef<'_>,
        writer: CounterId,
    ) {
        for (column, cell) in row.columns() {
            let ColumnRef::Simple(cell) = cell else { continue };
            let mut shards = counter::shards(cell.value).into_iter().flatten();
            if !shards.any(|shard| shard.id == writer) {
                continue;
            }
            self.change_group(token, |group| group.touched += 1);
            let numbers = self.numbers(table, token);
            let key = CellKeyRef { numbers, column, place: &place_of(at) };
            if let Some(kept) = self.counts.borrow().peek(&key) {
                kept.set(None);
            }
        }
    }

    fn numbers(&self, table: &TableState, token: Token) -> Numbers {
        let contents = table.view.borrow().contents;
        Numbers { table: table.id, contents, erased: self.group(token).erased, token }
    }
}

fn group_at(token: Token) -> usize {
    // Tokens of a shard need not have all low bits.
    let hash = codec::xxh3_64(&token.0.to_be_bytes());
    usize::try_from(hash % GROUPS as u64).unwrap_or(0)
}

/// Returns true if the row deletes anything.
fn has_deletion(row: RowRef<'_>) -> bool {
    let (_, deletion, mut columns) = row.parts();
    !deletion.is_live()
        || columns.any(|(_, column)| match column {
            ColumnRef::Simple(cell) => cell.is_tombstone(),
            ColumnRef::Complex(_) => true,
        })
}

/// Counters of a partition as the cache had them at some moment, when nothing was read of it yet.
pub struct CountsOf {
    table: Rc<TableState>,
    numbers: Numbers,
    touched: u64,
    cleared: u64,
    writer: CounterId,
}

impl CountsOf {
    /// The id under which its counts are found and stored.
    pub fn writer(&self) -> CounterId {
        self.writer
    }
}

/// The counters of one shard that this node itself counts.
pub struct Counters {
    pub(crate) env: Rc<Env>,
    pub(crate) tables: Rc<Tables>,
    pub(crate) reader: Rc<Reader>,
    pub(crate) counter_cache: Rc<CounterCache>,
}

impl Counters {
    pub(crate) fn new(env: Rc<Env>, tables: Rc<Tables>, reader: Rc<Reader>) -> Counters {
        let counter_cache = reader.counter_cache.clone();
        Counters { env, tables, reader, counter_cache }
    }

    /// Sets the id under which this node counts from now on. Counts under another id are dropped
    /// from the cache.
    pub fn count_as(&self, id: CounterId) {
        let cache = &self.counter_cache;
        if cache.writer.replace(Some(id)) != Some(id) {
            cache.clear();
        }
    }

    /// To be called before anything is read of a partition; `None`: there is no cache, or no such table.
    pub fn counts_of(&self, table: TableId, key: &[u8]) -> Option<CountsOf> {
        let cache = &self.counter_cache;
        let writer = cache.writer.get().filter(|_| cache.is_on())?;
        let table = self.tables.table(table)?;
        let token = codec::token_of(key);
        let (touched, cleared) = (cache.group(token).touched, cache.cleared.get());
        let numbers = cache.numbers(&table, token);
        Some(CountsOf { table, numbers, touched, cleared, writer })
    }

    /// Returns this node's own count in a counter, if it is cached. Each call counts as a lookup.
    pub fn cached_count(
        &self,
        of: &CountsOf,
        row: CounterRow<'_>,
        column: ColumnId,
    ) -> Option<OwnCount> {
        let cache = &self.counter_cache;
        let key = CellKeyRef { numbers: of.numbers, column, place: &place_of(row) };
        let found = cache.counts.borrow().get(&key).and_then(Cell::get);
        match found {
            Some(_) => cache.hits.inc(),
            None => cache.misses.inc(),
        }
        found
    }

    /// Returns true if everything read since [`Counters::counts_of`] is still current.
    pub fn are_counts_current(&self, of: &CountsOf) -> bool {
        self.counter_cache.group(of.numbers.token).touched == of.touched
            && self.are_numbers_current(of)
    }

    /// Returns true if nothing was deleted since then; counts may have changed.
    fn are_numbers_current(&self, of: &CountsOf) -> bool {
        let cache = &self.counter_cache;
        cache.cleared.get() == of.cleared
            && cache.writer.get() == Some(of.writer)
            && cache.is_on()
            && !of.table.dropped.get()
            && cache.numbers(&of.table, of.numbers.token) == of.numbers
    }

    /// Stores the result of a read or the count that its leader has just applied. Pre:
    /// [`Counters::are_counts_current`] was true right before that, and nothing has been awaited
    /// since then. An applied count is stored only if a visible cell that is not newer was read.
    pub fn keep_count(
        &self,
        of: &CountsOf,
        row: CounterRow<'_>,
        column: ColumnId,
        count: OwnCount,
    ) {
        let cache = &self.counter_cache;
        if !self.are_numbers_current(of) {
            return;
        }
        let place = place_of(row);
        let key = CellKeyRef { numbers: of.numbers, column, place: &place };
        if let Some(kept) = cache.counts.borrow().peek(&key) {
            kept.set(Some(count));
            return;
        }
        let key = CellKey { numbers: of.numbers, column, place: place.as_slice().into() };
        cache.counts.borrow_mut().insert(key, Cell::new(Some(count)));
        cache.show();
    }

    /// Changes the budget of the counter cache at once; 0 turns it off. What it has is not the chunk cache's.
    ///
    /// # Errors
    /// `Invalid`: more than a quarter of what all caches have together.
    pub fn set_counter_cache_capacity(&self, bytes: u64) -> Result<(), StoreError> {
        let all = self.env.options.chunk_cache_bytes_max as u64;
        if bytes > all / 4 {
            let text = format!(
                "a counter cache of a shard may have at most {} bytes, a quarter of what caches have",
                all / 4
            );
            return Err(StoreError::Invalid(text));
        }
        self.counter_cache.set_capacity(bytes);
        self.reader.share_caches();
        Ok(())
    }

    /// Forgets all counts that are cached.
    pub fn invalidate_counter_cache(&self) {
        self.counter_cache.clear();
    }
}

#[cfg(test)]
impl CounterCache {
    /// Hits, misses and entries.
    pub(crate) fn numbers_for_tests(&self) -> (u64, u64, u64) {
        (self.hits.get(), self.misses.get(), self.counts.borrow().len() as u64)
    }
}
