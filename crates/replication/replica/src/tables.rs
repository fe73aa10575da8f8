//! Facts of a table that reads and writes need, computed once per version of its schema.

use std::rc::Rc;
use std::sync::Arc;

use cluster::ClusterSnapshot;
use data::TableShape;
use request::{ReadRepair, SpeculativeRetry};
use schema::Table;
use stdx::{DeletionSeconds, TableId};
use store::Store;

/// Facts of one version of a table that reads need.
pub struct TableFacts {
    /// The table.
    pub table: Arc<Table>,
    /// Its columns, for cursors.
    pub shape: Rc<TableShape>,
    /// The keyspace's `durable_writes`.
    pub durable: bool,
    /// Policy of read repair.
    pub read_repair: ReadRepair,
    /// Condition on which a read asks one more replica.
    pub speculate: SpeculativeRetry,
    /// Condition on which a read repair writes to one more replica.
    pub additional_write: SpeculativeRetry,
}

impl TableFacts {
    /// Computes the facts of a table in a snapshot.
    pub fn new(snapshot: &ClusterSnapshot, table: Arc<Table>) -> TableFacts {
        let keyspace = snapshot.schema.keyspace(&table.keyspace);
        let durable = keyspace.is_none_or(|k| k.params.durable_writes);
        // Policies were checked when the table was made.
        let policy = |text: &str| {
            SpeculativeRetry::parse(text).unwrap_or(SpeculativeRetry::Percentile(99.0))
        };
        let is_off = table.options.read_repair.eq_ignore_ascii_case("NONE");
        TableFacts {
            shape: Rc::new(TableShape::for_table(&table)),
            durable,
            read_repair: if is_off { ReadRepair::None } else { ReadRepair::Blocking },
            speculate: policy(&table.options.speculative_retry),
            additional_write: policy(&table.options.additional_write_policy),
            table,
        }
    }

    /// Tombstones made before this need not be shown to a coordinator.
    pub fn purge_before(&self, store: &Store, now: DeletionSeconds) -> DeletionSeconds {
        store.reader().purge_before(self.table.id, now)
    }
}

/// Facts of the tables that were read, as of their newest version met.
#[derive(Default)]
pub struct TableCache(std::cell::RefCell<stdx::FixedMap<TableId, Rc<TableFacts>>>);

/// Most tables that are cached; beyond it the cache is cleared.
const TABLES_MAX: usize = 4096;

impl TableCache {
    /// `None`: there is no such table in the snapshot.
    pub fn get(&self, snapshot: &ClusterSnapshot, id: TableId) -> Option<Rc<TableFacts>> {
        let table = snapshot.schema.table_by_id(id)?;
        let mut known = self.0.borrow_mut();
        if let Some(facts) = known.get(&id)
            && Arc::ptr_eq(&facts.table, table)
        {
            return Some(facts.clone());
        }
        if known.len() >= TABLES_MAX {
            known.clear();
        }
        let facts = Rc::new(TableFacts::new(snapshot, table.clone()));
        known.insert(id, facts.clone());
        Some(facts)
    }
}
