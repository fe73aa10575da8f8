//! Repair marks that an administrator sets: files that count as repaired from now on, or not any more.
//!
//! Incremental repairs skip repaired files. Tombstones are purged by the record of repaired ranges, which a mark does
//! not change: see crate `repair`.

use sstable::repair_state::RepairState;
use stdx::TableId;

use crate::compact::cleanup::OwnedRanges;
use crate::error::StoreError;
use crate::repair::Repair;

/// Marks of a table's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairedMark {
    /// Repaired now.
    Repaired,
    /// Not repaired.
    Unrepaired,
}

impl Repair {
    /// Sets the mark on all files of a table that have another one; the files by the prefix of their names. Files of a
    /// repair session in progress keep theirs. With `preview` nothing is changed.
    ///
    /// # Errors
    /// `UnknownTable`, `Stopping`; `DiskFull`, `Io`: some files may be marked already.
    pub async fn set_repaired(
        &self,
        id: TableId,
        mark: RepairedMark,
        preview: bool,
    ) -> Result<Vec<String>, StoreError> {
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        let _own = self.files.slots.own_table(&table).await;
        let now = self.env.rt.wall().0.div_euclid(1000).max(1);
        let repaired_at = if mark == RepairedMark::Repaired { now } else { 0 };
        let mut named = Vec::new();
        for file in table.view().files.clone() {
            let before = RepairState::of(file.reader.meta());
            let is_marked = (before.repaired_at != 0) == (repaired_at != 0);
            if is_marked || before.pending.is_some() {
                continue;
            }
            if self.env.stopping.get() {
                return Err(StoreError::Stopping);
            }
            named.push(file.reader.meta().descriptor().prefix());
            let state = RepairState { repaired_at, pending: None };
            match (preview, file.spanning) {
                (true, _) => {}
                (false, false) => self.restate(&table, &file, state).await?,
                // Other shards use the file and would write the same component.
                (false, true) => {
                    self.split(&table, &file, &OwnedRanges::everything(), state).await?;
                }
            }
        }
        Ok(named)
    }
}
