//! Writes: admission, commit log and memtable, flush.
//!
//! Owns: how a mutation gets into the commit log and the memtable, and from there into an SSTable; the memtables'
//! budget. Never: rewrites SSTables. Imports: `read` (its caches follow writes), `observe`, `files`, `tables`, `env`.

pub(crate) mod admission;
pub(crate) mod apply;
pub(crate) mod dropped_columns;
pub(crate) mod flush;
pub(crate) mod table_key;
pub(crate) mod unflushable;
pub(crate) mod verbatim_copy;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rt::sync::{Notify, Semaphore};

use crate::env::Env;
use crate::files::Files;
use crate::observe::Observer;
use crate::read::Reader;
use crate::read::counter_cache::CounterCache;
use crate::tables::registry::Tables;

/// The writes of one shard.
pub struct Writer {
    pub(crate) env: Rc<Env>,
    pub(crate) tables: Rc<Tables>,
    pub(crate) files: Rc<Files>,
    pub(crate) observer: Rc<Observer>,
    pub(crate) reader: Rc<Reader>,
    counter_cache: Rc<CounterCache>,
    /// Accounted bytes of all memtables, flushing ones included.
    pub(crate) memtable_bytes: Cell<usize>,
    /// Bytes of it that no flush can free, and the number of their tables, see [`unflushable`].
    refused: Cell<(usize, usize)>,
    refused_gauge: telemetry::Gauge,
    /// Merge buffers.
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// Memtables became smaller.
    pub(crate) room: Notify,
    /// One flush at a time.
    pub(crate) flush_slot: Semaphore,
    /// Tables whose provider has given no key for new files.
    without_key: Rc<table_key::TablesWithoutKey>,
    /// Segments of earlier runs are gone.
    pub(crate) old_log_released: Cell<bool>,
}

impl Writer {
    pub(crate) fn new(
        env: Rc<Env>,
        tables: Rc<Tables>,
        files: Rc<Files>,
        observer: Rc<Observer>,
        reader: Rc<Reader>,
    ) -> Writer {
        let refused_gauge = env.rt.telemetry().gauge(
            "memtable_unflushable_bytes",
            "memory of partitions that no SSTable can hold",
            &[],
        );
        Writer {
            counter_cache: reader.counter_cache.clone(),
            env,
            tables,
            files,
            observer,
            reader,
            memtable_bytes: Cell::new(0),
            refused: Cell::default(),
            refused_gauge,
            scratch: RefCell::default(),
            room: Notify::new(),
            flush_slot: Semaphore::new(1),
            without_key: Rc::default(),
            old_log_released: Cell::new(false),
        }
    }
}
