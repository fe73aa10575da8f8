//! Reads: sources, merges, pages for clients and for replicas, and the caches in front of files.
//!
//! Owns: the choice and order of memtables and files for a read, and the caches of rows and counters. Never:
//! writes; the row cache apart, which a flush folds itself into. Imports: `observe`, `files`, `tables`, `env`.

pub(crate) mod cache_handover;
pub(crate) mod counter_cache;
pub(crate) mod driver;
pub(crate) mod memtable_fast_path;
pub(crate) mod merging;
pub(crate) mod replica_pages;
pub(crate) mod row_cache;
pub(crate) mod saved_keys;
pub(crate) mod sources;
pub(crate) mod timestamp_order;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use sstable::CursorBuffers;

use crate::env::Env;
use crate::files::Files;
use crate::read::counter_cache::CounterCache;
use crate::read::replica_pages::ReadAheads;
use crate::read::row_cache::RowCache;
use crate::read::saved_keys::SavedKeys;
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
}
