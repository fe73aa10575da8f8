//! Compaction: the choice of the next merge, on request or automatically, and its execution.
//!
//! Owns: the queue of tables, the backlog, the merge and its outputs, pace. Never: chooses a strategy (`compact-plan`
//! does); claims (`files::slots` does). Imports: `lifecycle` (a snapshot may come first), `write`, `read`, `observe`,
//! `files`, `tables`, `env`.

pub(crate) mod backlog;
pub(crate) mod cleanup;
pub(crate) mod compaction;
pub(crate) mod garbage_collect;
pub(crate) mod index_build;
pub(crate) mod outputs;
pub(crate) mod partition_copy;
pub(crate) mod requests;
pub(crate) mod row_copy;
pub(crate) mod scrub;
pub(crate) mod upgrade;
pub(crate) mod window_outputs;
pub(crate) mod window_routing;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stdx::TableId;

use crate::compact::backlog::Control;
use crate::compact::compaction::CompactionRecord;
use crate::compact::index_build::BuiltIndex;
use crate::env::Env;
use crate::env::failure::Hook;
use crate::files::Files;
use crate::lifecycle::Lifecycle;
use crate::observe::Observer;
use crate::tables::registry::Tables;
use crate::write::Writer;

/// The compactions of one shard.
pub struct Compactor {
    pub(crate) env: Rc<Env>,
    pub(crate) tables: Rc<Tables>,
    pub(crate) files: Rc<Files>,
    pub(crate) observer: Rc<Observer>,
    pub(crate) writer: Rc<Writer>,
    pub(crate) lifecycle: Rc<Lifecycle>,
    /// Where the search for the next background compaction begins: after this table.
    compacted_last: Cell<Option<TableId>>,
    /// Backlog of compaction.
    pub(crate) control: Control,
    /// Bytes per second; 0 is no limit.
    compaction_rate: Cell<u64>,
    /// Called for each finished compaction.
    on_compacted: Hook<CompactionRecord>,
    /// Called for each index that was built.
    on_index_built: Hook<BuiltIndex>,
    /// Uncompressed bytes of inputs of finished compactions, and the same as they were on disk.
    compacted_bytes: Cell<(u64, u64)>,
    /// Finished compactions, also of tables that were dropped since.
    finished_compactions: Cell<u64>,
    /// A file is rewritten as it lacks an index.
    builds_index: Cell<bool>,
}

impl Compactor {
    pub(crate) fn new(lifecycle: Rc<Lifecycle>) -> Compactor {
        let rate = lifecycle.env.options.compaction_bytes_per_second;
        Compactor {
            env: lifecycle.env.clone(),
            tables: lifecycle.tables.clone(),
            files: lifecycle.files.clone(),
            observer: lifecycle.writer.observer.clone(),
            writer: lifecycle.writer.clone(),
            lifecycle,
            compacted_last: Cell::default(),
            control: Control::default(),
            compaction_rate: Cell::new(rate),
            on_compacted: RefCell::default(),
            on_index_built: RefCell::default(),
            compacted_bytes: Cell::default(),
            finished_compactions: Cell::default(),
            builds_index: Cell::default(),
        }
    }

    /// Sets what is called for each index whose first build has ended on this shard.
    pub fn on_index_built(&self, hook: impl Fn(BuiltIndex) + 'static) {
        *self.on_index_built.borrow_mut() = Some(Rc::new(hook));
    }

    /// Releases the callbacks, which hold the store.
    pub(crate) fn release_hooks(&self) {
        drop(self.on_compacted.take());
        drop(self.on_index_built.take());
    }
}
