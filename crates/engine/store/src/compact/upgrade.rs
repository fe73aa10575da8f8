//! Upgrade: files of other versions, or compressed otherwise than their table says, are written anew in the version that
//! is written now.
//!
//! Each file is compacted alone, with all that it has: nothing is purged, and its level and state of
//! repair stay. The order of steps, and what a crash between them leaves, is that of any compaction.

use compact_plan::{Cut, Plan, Reason};
use sstable::WriteCompression;
use stdx::{TableId, WallMicros};

use crate::compact::Compactor;
use crate::compact::compaction::{Job, options_of};
use crate::error::StoreError;
use crate::tables::table_file::TableFile;

/// Which files an upgrade writes anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeScope {
    /// Those of other versions than the one that is written.
    OtherVersions,
    /// Of several data directories: those that lie in another one than this shard writes their table's files
    /// to, or that it shares with others.
    Misplaced,
    /// Those that are compressed otherwise than the table's options say now.
    OtherCompression,
    /// All.
    All,
}

impl Compactor {
    /// Writes this shard's files of a table anew in the version that is written. Returns how many.
    ///
    /// # Errors
    /// `UnknownTable`, `DiskFull`, `Corrupt`, `Io`, `Stopping`; files that were not reached stay as
    /// they are.
    pub async fn upgrade(&self, id: TableId, scope: UpgradeScope) -> Result<u64, StoreError> {
        self.upgrade_written_by(id, scope, WallMicros(i64::MAX)).await
    }

    /// The same of files that were written by then.
    ///
    /// # Errors
    /// As [`Store::upgrade`].
    pub async fn upgrade_written_by(
        &self,
        id: TableId,
        scope: UpgradeScope,
        latest: WallMicros,
    ) -> Result<u64, StoreError> {
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        let _own = self.files.slots.own_table(&table).await;
        let version = table.version();
        let options = options_of(&version)?;
        let own = self.files.directories.directory_of(&version.table);
        let compression = WriteCompression::of_options(&version.table.options.compression);
        let compression = compression.map_err(StoreError::Invalid)?;
        let mut written = 0;
        for file in table.view().files.clone() {
            if self.env.stopping.get() {
                return Err(StoreError::Stopping);
            }
            let now = self.env.options.sstable_version;
            let of_now = file.reader.meta().version() == now;
            // What takes part in a repair is of another version where this one has no mark for it.
            let stats = &file.reader.meta().statistics().stats;
            let stays = stats.pending_repair.is_some() && !now.has_pending_repair();
            let is_left = match scope {
                UpgradeScope::OtherVersions => of_now || stays,
                UpgradeScope::Misplaced => self.files.is_placed(&own, &file),
                UpgradeScope::OtherCompression => {
                    match (&compression, file.reader.meta().compression()) {
                        (None, None) => true,
                        (Some(wanted), Some(is)) => wanted.is_of(is, file.reader.meta().version()),
                        _ => false,
                    }
                }
                UpgradeScope::All => false,
            };
            if is_left || file.written_at > latest || table.is_damaged(file.generation) {
                continue;
            }
            let reason = match scope {
                UpgradeScope::Misplaced => Reason::Relocation,
                _ => Reason::Upgrade,
            };
            let plan = plan(&file, reason);
            self.compact(&table, Job { plan: &plan, options, owned: None }).await?;
            written += 1;
        }
        Ok(written)
    }
}

impl Compactor {}

fn plan(file: &TableFile, reason: Reason) -> Plan {
    let level = file.reader.meta().statistics().stats.level;
    Plan {
        inputs: vec![file.generation],
        expired: Vec::new(),
        level: u32::try_from(level).unwrap_or(0),
        cut: Cut::Never,
        apart: false,
        reason,
    }
}
