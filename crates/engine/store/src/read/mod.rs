//! Reads: sources, merges, pages for clients and for replicas, and the caches in front of files.
//!
//! Owns: the choice and order of memtables and files for a read, and the caches of rows and counters. Never:
//! writes; the row cache apart, which a flush folds itself into. Imports: `observe`, `files`, `tables`, `env`.

pub(crate) mod cache_handover;
pub(crate) mod counter_cache;
pub(crate) mod driver;
pub(crate) mod index_search;
pub(crate) mod memtable_fast_path;
pub(crate) mod merging;
pub(crate) mod replica_pages;
pub(crate) mod row_cache;
pub(crate) mod saved_keys;
pub(crate) mod sources;
pub(crate) mod timestamp_order;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use data::command::ReadCommand;
use index_format::search::{IndexSearch, MatchedPartition, Matches, Neighbours, VectorSearch};
use sstable::CursorBuffers;

use crate::env::Env;
use crate::error::StoreError;
use crate::files::Files;
use crate::read::counter_cache::CounterCache;
use crate::read::driver::RowSink;
use crate::read::index_search::IndexReads;
use crate::read::replica_pages::ReadAheads;
use crate::read::row_cache::RowCache;
use crate::read::saved_keys::SavedKeys;
use crate::tables::read_stats::ReadStats;
use crate::tables::registry::Tables;

/// The reads of one shard.
pub struct Reader {
    pub(crate) env: Rc<Env>,
    pub(crate) tables: Rc<Tables>,
    pub(crate) files: Rc<Files>,
    pub(crate) row_cache: RowCache,
    pub(crate) counter_cache: Rc<CounterCache>,
    pub(crate) saved_keys: Rc<SavedKeys>,
    /// Memory of finished SSTable cursors.
    pub(crate) cursor_buffers: RefCell<Vec<CursorBuffers>>,
    /// Blocks that pages for streams and repairs have read after their ends.
    pub(crate) read_aheads: RefCell<ReadAheads>,
    /// Merge buffers, taken and given back.
    pub(crate) read_scratch: Cell<Vec<u8>>,
    pub(crate) index_reads: IndexReads,
}

impl Reader {
    pub(crate) fn new(
        env: Rc<Env>,
        tables: Rc<Tables>,
        files: Rc<Files>,
        row_cache: RowCache,
        counter_cache: Rc<CounterCache>,
    ) -> Reader {
        Reader {
            saved_keys: Rc::new(SavedKeys::new(env.clone())),
            index_reads: IndexReads::new(&env.rt.telemetry()),
            env,
            tables,
            files,
            row_cache,
            counter_cache,
            cursor_buffers: RefCell::default(),
            read_aheads: RefCell::default(),
            read_scratch: Cell::default(),
        }
    }

    /// Searches keys of candidates by attached indexes, over one view, up to the frontier that the answer names.
    /// A candidate had the value once: read it and filter.
    ///
    /// # Errors
    /// `IndexNotAvailable`: an index is unknown here, or its first build is not finished; `UnknownTable`, `Corrupt`
    /// (Data; a damaged index is passed by), `Io`.
    pub async fn search_index(&self, search: &IndexSearch) -> Result<Matches, StoreError> {
        // Boxed: callers would carry its memory.
        Box::pin(index_search::search_view(self, search)).await
    }

    /// Searches the rows whose vectors are nearest to a vector. Scores are those of the vectors that the rows have now; of
    /// files with many vectors the answer is approximate.
    ///
    /// # Errors
    /// `Invalid`: impossible vector, limit or predicate; else those of [`Reader::search_index`].
    pub async fn search_vectors(&self, search: &VectorSearch) -> Result<Neighbours, StoreError> {
        Box::pin(index_search::vectors::search_nearest(self, search)).await
    }

    /// Reads rows that a search gave, in order, over one view; `command` without a position to resume from.
    ///
    /// # Errors
    /// Those of [`Reader::read`].
    pub async fn read_matches<S: RowSink>(
        &self,
        command: &ReadCommand,
        keys: &[MatchedPartition],
        sink: &mut S,
    ) -> Result<ReadStats, StoreError> {
        index_search::named_rows::read_named(self, command, keys, sink).await
    }
}
