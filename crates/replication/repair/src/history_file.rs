//! [`HistoryFile`]: when ranges were repaired, as a shard knows it, and its durable form.

use std::cell::{Ref, RefCell};
use std::rc::Rc;

use rt::sync::Semaphore;
use stdx::{IoErrorKind, TableId, Token};

use crate::env::Env;
use crate::history::{self, RepairHistory};

/// The history of a shard. Shard 0 writes the file.
pub(crate) struct HistoryFile {
    env: Rc<Env>,
    /// Directory of the file.
    work_dir: String,
    known: RefCell<RepairHistory>,
    /// One write of the file at a time.
    write_slot: Semaphore,
}

impl HistoryFile {
    pub(crate) fn new(env: Rc<Env>, work_dir: String) -> HistoryFile {
        HistoryFile { env, work_dir, known: RefCell::default(), write_slot: Semaphore::new(1) }
    }

    pub(crate) fn known(&self) -> Ref<'_, RepairHistory> {
        self.known.borrow()
    }

    fn path(&self) -> String {
        format!("{}/{}", self.work_dir, history::FILE)
    }

    /// Reads the file, when there is one.
    pub(crate) async fn load(&self) -> Result<(), stdx::IoError> {
        let path = self.path();
        match self.env.rt.fs().read(&path, history::BYTES_MAX).await {
            Ok(bytes) => match RepairHistory::decode(&bytes) {
                Some(history) => *self.known.borrow_mut() = history,
                None => tracing::warn!(
                    path,
                    "ignoring the damaged history of repairs: everything counts as not repaired"
                ),
            },
            Err(error) if error.kind == IoErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Tells the shard's store which tombstones may be purged.
    pub(crate) fn apply_policies(&self) {
        let snapshot = (self.env.snapshot)();
        history::apply(&snapshot, &self.known.borrow(), self.env.coordinator.store());
    }

    /// Ranges were repaired and that is durable: their tombstones may be purged.
    pub(crate) fn note(&self, table: TableId, ranges: &[(Token, Token)], seconds: i64) {
        self.known.borrow_mut().note(table, ranges, seconds);
        self.apply_policies();
    }

    /// Persists that ranges were repaired. Shard 0.
    pub(crate) async fn write(
        &self,
        table: TableId,
        ranges: &[(Token, Token)],
        seconds: i64,
    ) -> Result<(), stdx::IoError> {
        let _permit = self.write_slot.acquire(1).await;
        let mut history = self.known.borrow().clone();
        let snapshot = (self.env.snapshot)();
        history.keep(|id| snapshot.schema.table_by_id(id).is_some());
        history.note(table, ranges, seconds);
        self.env.rt.fs().write_atomic(&self.path(), history.encode()).await?;
        *self.known.borrow_mut() = history;
        Ok(())
    }
}
