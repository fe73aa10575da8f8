//! The row cache: the files' content of partitions that are read often, deletions included, merged once and
//! stored as the memtable stores partitions.
//!
//! Owns: heads of partitions by (table, contents, token, key), their budget, counts of hits. Reads merge a head
//! with the memtables in the place of the files, so a write does not drop it; a flush merges its output into
//! the heads. Any other change of the files' data gives the table's views another number of contents
//! ([`TableView::contents`]), and heads of other numbers are never found again and just age out.
//!
//! INV-row-cache-1: a head that is found under a view's number has exactly the data of that view's files, down to
//! its end. Beyond that it may have data that is in a memtable of the view too.
//!
//! Source of the option and the names: Cassandra's `CachingParams` and `CacheMetrics`; Cassandra drops a
//! partition from its row cache with every write to it.

mod head;
pub(crate) mod saved_keys;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use data::command::RingBound;
use data::{Advance, Cursor, DeletionTime, Item, MergeCursor, MergeMode, Slices, TableShape};
use quick_cache::unsync::Cache;
use quick_cache::{Equivalent, Weighter};
use stdx::{FixedHasher, TableId, Token};

use crate::tables::cached_rows::CachedRows;

pub(crate) use self::head::Head;
use self::head::{Building, Until, split};
use crate::error::StoreError;
use crate::memtable::{Key, Memtable, Partition, PartitionCursor, PartitionVersion};
use crate::read::Reader;
use crate::read::driver::{BYTES_PER_ITEM, HashedKey, ITEMS_PER_LOOK, Shaped, candidates};
use crate::read::sources::{Source, Sources, TailSource};
use crate::tables::read_stats::ReadStats;
use crate::tables::table::{TableState, TableView};

/// A head takes at most this part of the cache.
const PART_OF_CACHE: u64 = 16;
/// Partitions of a flushed memtable that are looked up between two checks of the clock.
const PARTITIONS_PER_LOOK: usize = 32;

#[derive(Clone, PartialEq, Eq)]
struct HeadKey {
    table: TableId,
    contents: u64,
    token: Token,
    key: Key,
}

// The token is a hash of the key.
impl Hash for HeadKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.table, self.contents, self.token).hash(state);
    }
}

struct HeadKeyRef<'a> {
    table: TableId,
    contents: u64,
    token: Token,
    key: &'a [u8],
}

impl Hash for HeadKeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.table, self.contents, self.token).hash(state);
    }
}

impl Equivalent<HeadKey> for HeadKeyRef<'_> {
    fn equivalent(&self, other: &HeadKey) -> bool {
        self.token == other.token
            && self.contents == other.contents
            && self.table == other.table
            && self.key == &*other.key
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<HeadKey, Rc<Head>> for ByBytes {
    fn weight(&self, _: &HeadKey, head: &Rc<Head>) -> u64 {
        head.bytes as u64
    }
}

/// Size and counters of a shard's row cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowCacheStats {
    /// Most accounted bytes; 0: there is no row cache.
    pub(crate) capacity: u64,
    /// Accounted bytes.
    pub(crate) bytes: u64,
    /// Partitions.
    pub(crate) entries: u64,
    /// Reads of partitions of tables whose rows are cached.
    pub(crate) requests: u64,
    /// Those of them that found the partition.
    pub(crate) hits: u64,
}

/// See the module.
pub(crate) struct RowCache {
    heads: RefCell<Cache<HeadKey, Rc<Head>, ByBytes, FixedHasher>>,
    capacity: Cell<u64>,
    hits: telemetry::Counter,
    misses: telemetry::Counter,
    bytes: telemetry::Gauge,
    entries: telemetry::Gauge,
    capacity_shown: telemetry::Gauge,
}

impl RowCache {
    pub(crate) fn new(capacity: u64, telemetry: &telemetry::Shard) -> RowCache {
        let cache = RowCache {
            heads: RefCell::new(Self::cache(capacity)),
            capacity: Cell::new(capacity),
            hits: telemetry.counter(
                "row_cache_hits_total",
                "partitions found in the row cache",
                &[],
            ),
            misses: telemetry.counter(
                "row_cache_misses_total",
                "partitions of tables with cached rows that were not in the row cache",
                &[],
            ),
            bytes: telemetry.gauge("row_cache_bytes", "memory of cached rows", &[]),
            entries: telemetry.gauge("row_cache_entries", "partitions in the row cache", &[]),
            capacity_shown: telemetry.gauge(
                "row_cache_capacity_bytes",
                "most memory of cached rows",
                &[],
            ),
        };
        cache.show();
        cache
    }

    fn cache(capacity: u64) -> Cache<HeadKey, Rc<Head>, ByBytes, FixedHasher> {
        let items = usize::try_from(capacity / 1_024).unwrap_or(usize::MAX).clamp(16, 1 << 20);
        let lifecycle = quick_cache::unsync::DefaultLifecycle::default();
        Cache::with(items, capacity, ByBytes, FixedHasher, lifecycle)
    }

    /// Returns true if the cache is enabled.
    pub(crate) fn is_on(&self) -> bool {
        self.capacity.get() > 0
    }

    /// Changes the budget at once; 0 turns the cache off.
    pub(crate) fn set_capacity(&self, bytes: u64) {
        self.capacity.set(bytes);
        match bytes {
            0 => self.clear(),
            _ => self.heads.borrow_mut().set_capacity(bytes),
        }
        self.show();
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        *self.heads.borrow_mut() = Self::cache(self.capacity.get());
        self.show();
    }

    pub(crate) fn stats(&self) -> RowCacheStats {
        let heads = self.heads.borrow();
        RowCacheStats {
            capacity: self.capacity.get(),
            bytes: heads.weight(),
            entries: heads.len() as u64,
            requests: self.hits.get() + self.misses.get(),
            hits: self.hits.get(),
        }
    }

    /// A head, counted as asked for.
    fn get(&self, key: &HeadKeyRef<'_>) -> Option<Rc<Head>> {
        let found = self.heads.borrow().get(key).cloned();
        match &found {
            Some(head) if head.until != Until::Nothing => self.hits.inc(),
            _ => self.misses.inc(),
        }
        found
    }

    fn insert(&self, key: HeadKey, head: Rc<Head>) {
        self.heads.borrow_mut().insert(key, head);
        self.show();
    }

    fn show(&self) {
        let heads = self.heads.borrow();
        self.bytes.set(i64::try_from(heads.weight()).unwrap_or(i64::MAX));
        self.entries.set(i64::try_from(heads.len()).unwrap_or(i64::MAX));
        self.capacity_shown.set(i64::try_from(self.capacity.get()).unwrap_or(i64::MAX));
    }

    /// Bytes of the largest head that is kept.
    fn head_bytes_max(&self) -> usize {
        usize::try_from(self.capacity.get() / PART_OF_CACHE).unwrap_or(usize::MAX)
    }

    /// Merges a flushed partition into its head, if there is one.
    fn fold(&self, shape: &TableShape, table: TableId, contents: u64, new: &Partition) {
        let key = HeadKeyRef { table, contents, token: new.token(), key: new.key() };
        let Some(old) = self.heads.borrow().peek(&key).cloned() else { return };
        if old.until == Until::Nothing {
            return;
        }
        let folded = (old.until == Until::End).then(|| {
            let mut version = PartitionVersion::clone(&old.version);
            version.absorb_partition(shape, new, &mut Vec::new());
            Head::new(version, Until::End)
        });
        let mut heads = self.heads.borrow_mut();
        match folded {
            Some(head) if head.bytes <= self.head_bytes_max() => {
                let key =
                    HeadKey { table, contents, token: new.token(), key: head.version.key.clone() };
                heads.insert(key, Rc::new(head));
            }
            // It is unknown for which rows the beginning of a partition has room: the next read
            // rebuilds it.
            _ => drop(heads.remove(&key)),
        }
    }
}

/// Why the reading of a head stopped.
enum Pause {
    Done,
    Load(data::BlockRequest),
    Yield,
}

impl Reader {
    /// Returns true if rows of the table are cached.
    #[inline]
    pub(crate) fn caches_rows(&self, table: &TableState) -> bool {
        self.row_cache.is_on() && table.cached_rows() != CachedRows::None
    }

    /// Returns the beginning of a partition in the files of a view: from the row cache, or read
    /// into it. `None`: its rows are not cached, or cannot be. The view must be the table's when
    /// this is called.
    pub(crate) async fn cached_head(
        &self,
        table: &TableState,
        shape: &Rc<TableShape>,
        view: &TableView,
        key: &[u8],
        stats: &mut ReadStats,
    ) -> Result<Option<Rc<Head>>, StoreError> {
        let cache = &self.row_cache;
        let CachedRows::First(rows) = table.cached_rows() else { return Ok(None) };
        if !cache.is_on() || view.files.is_empty() {
            return Ok(None);
        }
        let token = codec::token_of(key);
        let of_view = HeadKeyRef { table: table.id, contents: view.contents, token, key };
        if let Some(head) = cache.get(&of_view) {
            return Ok((head.until != Until::Nothing).then_some(head));
        }
        let read = self.fill_head(Shaped { table, shape }, view, token, key, rows, stats);
        Ok(read.await?.filter(|head| head.until != Until::Nothing))
    }

    /// Reads a head into the cache; `None`: no file may have the partition.
    async fn fill_head(
        &self,
        of: Shaped<'_>,
        view: &TableView,
        token: Token,
        key: &[u8],
        rows: u32,
        stats: &mut ReadStats,
    ) -> Result<Option<Rc<Head>>, StoreError> {
        let Shaped { table, shape } = of;
        let cache = &self.row_cache;
        // Else a flush that has ended since the view was taken would be missing in the head.
        debug_assert!(std::ptr::eq(view, &**table.view.borrow()), "the view is the table's");
        let folds = table.folds.get();
        let mut sources = Sources::new();
        let slices = Arc::new(Slices::all());
        let (hash, unhidden) = (codec::hash_key(key), DeletionTime::LIVE.timestamp);
        let files = candidates(view, &slices, &hash, unhidden);
        let hashed = HashedKey { hash: &hash, key };
        self.push_files(&files, &slices, false, hashed, &mut sources, stats);
        if sources.is_empty() {
            return Ok(None);
        }
        let building = Building::new(token, key, rows, cache.head_bytes_max());
        let head = Rc::new(self.read_head(shape, sources, building, stats).await?);
        // A flush that has begun to fold itself in since then, or a change of the cache, is not in it.
        if !is_folding(folds) && folds == table.folds.get() && cache.is_on() {
            let (contents, key) = (view.contents, head.version.key.clone());
            cache.insert(HeadKey { table: table.id, contents, token, key }, head.clone());
        }
        Ok(Some(head))
    }

    async fn read_head(
        &self,
        shape: &Rc<TableShape>,
        sources: Sources,
        mut building: Building,
        stats: &mut ReadStats,
    ) -> Result<Head, StoreError> {
        let mut merge = Box::new(MergeCursor::new(shape, MergeMode::All, false, sources));
        let result = loop {
            match self.advance_head(shape, &mut merge, &mut building) {
                Ok(Pause::Done) => break Ok(building.finish()),
                Ok(Pause::Yield) => self.env.rt.yield_if_due().await,
                Ok(Pause::Load(request)) => {
                    if let Err(error) = self.load(&mut merge, request, stats).await {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        let (_, sources) = merge.into_parts();
        self.keep_buffers(sources);
        result
    }

    fn advance_head(
        &self,
        shape: &TableShape,
        merge: &mut MergeCursor<'_, Source>,
        building: &mut Building,
    ) -> Result<Pause, StoreError> {
        let mut items = 0;
        loop {
            match self.advance_cached(merge)? {
                Advance::End => return Ok(Pause::Done),
                Advance::NeedBlock(request) => return Ok(Pause::Load(request)),
                Advance::Item => {}
            }
            let item = merge.item();
            items += 1;
            if let Item::Row { row, .. } = item {
                items += row.bytes().len() / BYTES_PER_ITEM;
            }
            if !building.put(shape, &item) {
                return Ok(Pause::Done);
            }
            if items >= ITEMS_PER_LOOK {
                items = 0;
                if self.env.rt.is_yield_due() {
                    return Ok(Pause::Yield);
                }
            }
        }
    }

    /// Adds the sources of a read that has a head: the head, and the files' rows after it, which
    /// are read only on demand. False: the head is of no use for these slices, and nothing was
    /// added.
    #[expect(clippy::too_many_arguments, reason = "a part of the reads, which have no object")]
    pub(crate) fn head_sources(
        &self,
        shape: &Rc<TableShape>,
        view: &TableView,
        head: &Head,
        slices: &Arc<Slices>,
        reversed: bool,
        sources: &mut Sources,
        stats: &mut ReadStats,
    ) -> bool {
        let version = &head.version;
        let (within, behind) = match (head.until, version.rows.last()) {
            (Until::End, _) => (slices.clone(), None),
            (Until::LastRow, Some(last)) => {
                let (within, behind) = split(shape, slices, last.clustering());
                match behind.0.is_empty() {
                    true => (Arc::new(within), None),
                    // The rows after the head would have to be read first.
                    false if reversed || within.0.is_empty() => return false,
                    false => (Arc::new(within), Some(Arc::new(behind))),
                }
            }
            (Until::LastRow | Until::Nothing, _) => return false,
        };
        sources.push(Source::Partition(PartitionCursor::new(
            shape.clone(),
            within,
            reversed,
            version.clone().into(),
        )));
        if let Some(behind) = behind {
            let hash = codec::hash_key(&version.key);
            let mut files = Sources::new();
            let opened = candidates(view, &behind, &hash, version.deletion.timestamp);
            let key = HashedKey { hash: &hash, key: &version.key };
            self.push_files(&opened, &behind, false, key, &mut files, stats);
            sources.extend(files.into_iter().filter_map(|source| match source {
                Source::File(file) => {
                    Some(Source::Tail(Box::new(TailSource::new(*file, version.clone()))))
                }
                _ => None,
            }));
        }
        true
    }

    /// Merges a memtable whose file is written into the heads of its partitions. It must be called
    /// before the view gets the file, and its result be kept until then. Heads have the memtable's
    /// data a little before the files have it, which changes nothing as long as the memtable is in
    /// the view.
    pub(crate) async fn fold<'t>(
        &self,
        table: &'t TableState,
        memtable: &Rc<Memtable>,
    ) -> Fold<'t> {
        let fold = Fold::begin(table);
        let cache = &self.row_cache;
        if !self.caches_rows(table) {
            return fold;
        }
        let shape = table.shape();
        let mut from = RingBound::Token { token: Token::MIN, after: false };
        let mut partitions = VecDeque::new();
        loop {
            memtable.next_after(&shape, &from, PARTITIONS_PER_LOOK, &mut partitions);
            let Some(last) = partitions.back() else { return fold };
            from = RingBound::Key { token: last.token(), key: last.key().to_vec(), after: true };
            for partition in partitions.drain(..) {
                let contents = table.view.borrow().contents;
                cache.fold(&shape, table.id, contents, &partition);
            }
            self.env.rt.yield_if_due().await;
        }
    }

    /// Changes the budget of the row cache at once; 0 turns it off. What it has is not the chunk cache's.
    ///
    /// # Errors
    /// `Invalid`: more than half of what both have together.
    pub fn set_row_cache_capacity(&self, bytes: u64) -> Result<(), StoreError> {
        let both = self.env.options.chunk_cache_bytes_max as u64;
        if bytes > both / 2 {
            let text = format!(
                "a row cache of a shard may have at most {} bytes, half of what caches have",
                both / 2
            );
            return Err(StoreError::Invalid(text));
        }
        self.row_cache.set_capacity(bytes);
        self.share_caches();
        Ok(())
    }

    /// Assigns to the chunk cache the budget that the others leave.
    pub(crate) fn share_caches(&self) {
        let others = self.row_cache.capacity.get() + self.counter_cache.capacity();
        let all = self.env.options.chunk_cache_bytes_max as u64;
        self.files.cache.set_capacity(all.saturating_sub(others));
    }

    /// Forgets all rows that are cached.
    pub fn invalidate_row_cache(&self) {
        self.row_cache.clear();
    }
}

/// A flush that is being folded into the row cache, until it ends: reads meanwhile do not fill the
/// cache.
#[must_use]
pub(crate) struct Fold<'t>(&'t TableState);

impl<'t> Fold<'t> {
    fn begin(table: &'t TableState) -> Fold<'t> {
        debug_assert!(!is_folding(table.folds.get()), "one flush at a time");
        table.folds.set(table.folds.get().wrapping_add(1));
        Fold(table)
    }
}

impl Drop for Fold<'_> {
    fn drop(&mut self) {
        self.0.folds.set(self.0.folds.get().wrapping_add(1));
    }
}

/// `TableState::folds` counts begins and ends.
fn is_folding(folds: u64) -> bool {
    folds & 1 == 1
}
