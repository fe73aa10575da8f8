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

/// Notes which indexes are built by now, durably.
pub(crate) async fn note_built(compactor: &Compactor) {
    for table in tables_with_indexes(compactor) {
        table.follow_indexes();
        write_indexed(&compactor.files, &table).await;
    }
}
