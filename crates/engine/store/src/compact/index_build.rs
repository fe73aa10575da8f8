//! Builds indexes of existing files: a file that lacks a component of an index is rewritten alone, as an upgrade
//! rewrites it ([`crate::compact::upgrade`]), and its new file has all of them. One file at a time, in the background.
//!
//! What is to be built is what the files lack, so a build needs no record: a restart continues with the files that are
//! left. That covers a new index, an import, a stream of a node without the index, a lost or damaged component.

use std::rc::Rc;

use compact_plan::Reason;
use rt::Group;

use crate::compact::Compactor;
use crate::compact::compaction::{Job, options_of};
use crate::compact::upgrade;
use crate::files::index_marks::write_indexed;
use crate::tables::table::TableState;

/// Clears the mark of a running build when dropped.
struct Running(Rc<Compactor>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.builds_index.set(false);
    }
}

/// Begins the rewrite of the next file that lacks an index, in a task of its own; false when there is none, or one is
/// under way.
pub(crate) fn begin_next(compactor: &Rc<Compactor>) -> bool {
    if compactor.builds_index.get() || !compactor.files.slots.has_slot() {
        return false;
    }
    let now = compactor.env.rt.now();
    for table in tables_with_indexes(compactor) {
        if table.wanted.get() > 0 || table.compaction_paused_until.get() > now {
            continue;
        }
        let version = table.version();
        if options_of(&version).is_err() {
            continue;
        }
        let Some(file) = table.file_without_index() else { continue };
        let Some(slot) = compactor.files.slots.try_slot() else { return false };
        let plan = upgrade::plan(&file, Reason::IndexBuild);
        // Claimed in the turn in which it was chosen.
        let claim = compactor.claim_inputs(&table, &plan);
        compactor.builds_index.set(true);
        let running = Running(compactor.clone());
        let task = async move {
            let _slot = slot;
            let Ok(options) = options_of(&version) else { return };
            let job = Job { plan: &plan, options, owned: None };
            let result = running.0.compact_claimed(&table, job, claim).await;
            running.0.pause_compactions(&table, &result);
            table.follow_indexes();
            drop(running);
        };
        let env = &compactor.env;
        return env.gate.spawn(&env.rt, Group::Compaction, "index-build", task).is_ok();
    }
    false
}

fn tables_with_indexes(compactor: &Compactor) -> Vec<Rc<TableState>> {
    let mut tables = compactor.tables.all_tables();
    tables.retain(|table| table.version.borrow().indexes.is_some());
    tables
}

/// Notes which indexes are built by now, durably, and reports those that are so since the last call.
pub(crate) async fn note_built(compactor: &Compactor) {
    for table in tables_with_indexes(compactor) {
        table.follow_indexes();
        report_built(compactor, &table);
        write_indexed(&compactor.files, &table).await;
    }
}

/// An index whose first build has ended on this shard, with what its SSTables have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuiltIndex {
    /// Keyspace.
    pub keyspace: String,
    /// Table.
    pub table: String,
    /// Name of the index.
    pub index: String,
    /// Rows.
    pub rows: u64,
    /// Pairs of a value and a row.
    pub entries: u64,
    /// Different values: those of the SSTable with most of them.
    pub values: u64,
}

/// Per cent of the rows that a value names, from which on a scan is faster than the index.
const NEAR_CONSTANT_PERCENT: u64 = 10;
/// Fewer rows show nothing.
const NEAR_CONSTANT_ROWS: u64 = 1000;

impl BuiltIndex {
    /// Returns the per cent of the rows that a value names on average, if that is so much that queries by the index are
    /// slower than a scan.
    pub fn near_constant(&self) -> Option<u64> {
        let named = self.entries.checked_div(self.values)?;
        let percent = named.saturating_mul(100).checked_div(self.rows)?.min(100);
        (self.rows >= NEAR_CONSTANT_ROWS && percent >= NEAR_CONSTANT_PERCENT).then_some(percent)
    }
}

fn report_built(compactor: &Compactor, table: &TableState) {
    let built = table.indexes.take_unreported();
    let Some(hook) = compactor.on_index_built.borrow().clone() else { return };
    let (version, view) = (table.version(), table.view());
    for index in built {
        let named = version.table.index_by_id(index);
        let mut report = BuiltIndex {
            keyspace: version.table.keyspace.to_string(),
            table: version.table.name.to_string(),
            index: named.map(|index| index.name.to_string()).unwrap_or_default(),
            ..BuiltIndex::default()
        };
        for open in view.files.iter().filter_map(|file| file.reader.index(index)) {
            report.rows += u64::from(open.rows.rows);
            let (values, entries) = open.counts();
            report.entries = report.entries.saturating_add(entries);
            report.values = report.values.max(values);
        }
        hook(report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_near_constant_when_its_values_name_a_tenth_of_many_rows() {
        let percent = |rows, entries, values| {
            BuiltIndex { rows, entries, values, ..BuiltIndex::default() }.near_constant()
        };
        assert_eq!(percent(1_000, 1_000, 10), Some(10));
        assert_eq!(percent(1_000, 1_000, 11), None);
        assert_eq!(percent(999, 999, 1), None, "too few rows");
        assert_eq!(percent(100_000, 9_000, 1), None, "most rows have no value");
        // Entries of collections: several of a row.
        assert_eq!(percent(1_000, 5_000, 2), Some(100));
        assert_eq!((percent(0, 0, 0), percent(5_000, 0, 0)), (None, None));
    }
}
