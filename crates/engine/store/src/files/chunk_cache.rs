//! The chunk cache: uncompressed chunks of Data and pages of Index, up to a budget.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use sstable::Chunk;
use stdx::FixedHasher;

/// (file, block).
type Key = (u64, u64);

#[derive(Clone)]
struct ByBytes;

impl Weighter<Key, Rc<Chunk>> for ByBytes {
    fn weight(&self, _: &Key, chunk: &Rc<Chunk>) -> u64 {
        // The cache's own memory for an entry is counted too.
        chunk.memory_bytes() as u64 + 64
    }
}

/// See the module.
pub(crate) struct ChunkCache {
    cache: RefCell<Cache<Key, Rc<Chunk>, ByBytes, FixedHasher>>,
    hits: telemetry::Counter,
    misses: telemetry::Counter,
    bytes: telemetry::Gauge,
    entries: telemetry::Gauge,
    capacity: telemetry::Gauge,
    next_file: Cell<u64>,
}

impl ChunkCache {
    pub(crate) fn new(bytes_max: usize, telemetry: &telemetry::Shard) -> ChunkCache {
        let items = (bytes_max / 16_384).max(16);
        let cache = Cache::with(
            items,
            bytes_max as u64,
            ByBytes,
            FixedHasher,
            quick_cache::unsync::DefaultLifecycle::default(),
        );
        let chunks = ChunkCache {
            cache: RefCell::new(cache),
            hits: telemetry.counter("chunk_cache_hits_total", "blocks found in the cache", &[]),
            misses: telemetry.counter("chunk_cache_misses_total", "blocks read from disk", &[]),
            bytes: telemetry.gauge("chunk_cache_bytes", "memory of cached blocks", &[]),
            entries: telemetry.gauge("chunk_cache_entries", "cached blocks", &[]),
            capacity: telemetry.gauge(
                "chunk_cache_capacity_bytes",
                "most memory of cached blocks",
                &[],
            ),
            next_file: Cell::new(1),
        };
        chunks.set_capacity(bytes_max as u64);
        chunks
    }

    fn show(&self, cache: &Cache<Key, Rc<Chunk>, ByBytes, FixedHasher>) {
        self.bytes.set(i64::try_from(cache.weight()).unwrap_or(i64::MAX));
        self.entries.set(i64::try_from(cache.len()).unwrap_or(i64::MAX));
    }

    /// A number for a newly opened file; never given twice, so that blocks of removed files are
    /// never found again and just grow old.
    pub(crate) fn next_file(&self) -> u64 {
        let file = self.next_file.get();
        self.next_file.set(file + 1);
        file
    }

    pub(crate) fn get(&self, file: u64, block: u64) -> Option<Rc<Chunk>> {
        let found = self.cache.borrow().get(&(file, block)).cloned();
        match &found {
            Some(_) => self.hits.inc(),
            None => self.misses.inc(),
        }
        found
    }

    pub(crate) fn insert(&self, file: u64, block: u64, chunk: Rc<Chunk>) {
        let mut cache = self.cache.borrow_mut();
        cache.insert((file, block), chunk);
        self.show(&cache);
    }

    /// Changes the budget at once.
    pub(crate) fn set_capacity(&self, bytes: u64) {
        let mut cache = self.cache.borrow_mut();
        cache.set_capacity(bytes);
        self.capacity.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.show(&cache);
    }

    /// Returns true if a block is cached; does not count as a use of it.
    pub(crate) fn has(&self, file: u64, block: u64) -> bool {
        self.cache.borrow().peek(&(file, block)).is_some()
    }

    /// Returns true if `bytes` more bytes can be added without evictions.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let cache = self.cache.borrow();
        cache.weight().saturating_add(bytes as u64) < cache.capacity()
    }

    /// Forgets some blocks.
    pub(crate) fn forget_blocks(&self, file: u64, blocks: impl Iterator<Item = u64>) {
        let mut cache = self.cache.borrow_mut();
        for block in blocks {
            cache.remove(&(file, block));
        }
        self.show(&cache);
    }

    /// Removes the blocks of a deleted file. Scans the whole cache: where a file may be large and
    /// reads continue, [`crate::read::cache_handover`] does it in small steps.
    pub(crate) fn forget(&self, file: u64) {
        self.cache.borrow_mut().retain(|key, _| key.0 != file);
    }

    /// Accounted bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.cache.borrow().weight()
    }
}
