//! Import of files and compactions on behalf of an administrator.

use admin::model::{
    CompactionSettings, DamagedReport, GarbageGranularity, ImportRequest, ScrubRequest,
    SstableReport, VerifyRequest,
};
use admin::{ActionError, CompactionAction, UpkeepAction, UpkeepReply};
use cluster::ranges::merge;
use cluster::{ClusterSnapshot, Replication};
use stdx::{ShardId, TableId, Token};
use store::{
    BuiltIndex, DamageEvent, DiskSpaceChange, ImportOptions, Imported, OwnedRanges, RepairedMark,
    ScrubOptions, Store, StoreError, TombstoneOption, UpgradeScope, VerifyOptions,
};

use crate::actions::Actions;

/// Logs the handling of corrupt files, first of those that an earlier run has found.
pub(crate) fn log_damage(store: &Store) {
    for file in store.verifier().damaged_files() {
        tracing::warn!(
            path = %file.path,
            reason = %file.reason,
            "a file is damaged since an earlier run, or cannot be opened; see nodetool damagedsstables"
        );
    }
    store.files().on_damage(|event| match event {
        DamageEvent::Found { path, reason } => tracing::error!(
            %path,
            %reason,
            "a file is damaged: reads that need its damaged parts fail, and it is not compacted, until \
             a full repair of its ranges or a scrub"
        ),
        DamageEvent::Salvaged { path, losses: 0 } => {
            tracing::warn!(%path, "damaged file replaced without loss");
        }
        DamageEvent::Salvaged { path, losses } => tracing::warn!(
            %path,
            losses,
            "readable rows of a damaged file are copied to other files; a full repair of its \
            ranges removes it"
        ),
        DamageEvent::Released { path } => {
            tracing::warn!(%path, "damaged file removed: other files replace it");
        }
        DamageEvent::Index { error } => {
            tracing::warn!(
                %error,
                "component of an index is damaged: rows of its file are read without the index until it is rewritten"
            );
        }
        DamageEvent::Failed { path, error } => {
            tracing::error!(
                %path,
                %error,
                "a step for a damaged file failed; it will be retried; see nodetool \
                damagedsstables"
            );
        }
    });
}

/// Logs when the first build of an index has ended on this shard, and if its column is a bad one for an index.
pub(crate) fn log_built_indexes(store: &Store, shard: ShardId) {
    let shard = shard.0;
    store.compactor().on_index_built(move |built| {
        let BuiltIndex { keyspace, table, index, rows, values, .. } = &built;
        match built.near_constant() {
            Some(percent) => tracing::warn!(
                shard,
                %keyspace,
                %table,
                %index,
                rows,
                values,
                percent,
                "index built, but its column has few values: each names about that per cent of the rows, so queries \
                 by it alone are slower than a scan; drop it unless queries restrict other indexed columns too"
            ),
            None if *rows > 0 => {
                tracing::info!(shard, %keyspace, %table, %index, rows, values, "index built");
            }
            None => {}
        }
    });
}

/// Logs when writes of this shard begin to be refused for lack of space, and when they are accepted
/// again. Refusals in between are not logged: clients get the cause.
pub(crate) fn log_disk_space(store: &Store, shard: ShardId) {
    let shard = shard.0;
    store.env().on_disk_space(move |change| match change {
        DiskSpaceChange::Full { detail } => tracing::error!(
            shard,
            cause = %detail,
            "disk full: writes are refused until space returns, reads go on; remove snapshots (nodetool \
             clearsnapshot) or other files, or enlarge the disk"
        ),
        DiskSpaceChange::Freed { refusals } => {
            tracing::info!(shard, refusals, "the disk has space again: writes are accepted");
        }
    });
}

/// The message of a refusal is that of Cassandra's RuntimeException, which ends its nodetool with
/// 2.
fn failed(error: StoreError) -> ActionError {
    ActionError::Failed(error.to_string())
}

/// Turns the error of a dropped table into success. A command for several tables then continues
/// with the others.
pub(crate) fn unless_gone<T: Default>(result: Result<T, StoreError>) -> Result<T, StoreError> {
    match result {
        Err(StoreError::UnknownTable(_)) => Ok(T::default()),
        other => other,
    }
}

/// Returns the ranges of a table that the node stores, or is about to; `None`: everything.
fn owned(snapshot: &ClusterSnapshot, table: TableId) -> Option<OwnedRanges> {
    let placements = snapshot.placements_of_table(table)?;
    if *placements.replication() == Replication::Local {
        return None;
    }
    let ranges = merge(placements.ranges_written_to(snapshot.local.host_id));
    let mut ranges: Vec<(Token, Token)> =
        ranges.into_iter().flat_map(|range| range.unwrapped()).map(|r| (r.start, r.end)).collect();
    ranges.sort_unstable();
    Some(OwnedRanges::new(ranges))
}

impl Actions {
    /// Executes an action on this shard.
    ///
    /// # Errors
    /// `Failed`, in the words of the store.
    pub(crate) async fn carry_out(&self, action: UpkeepAction) -> Result<UpkeepReply, ActionError> {
        let store = &self.store;
        match action {
            UpkeepAction::Import { table, request } => {
                return self.import(table, request).await;
            }
            UpkeepAction::NewFiles(table) => {
                let unknown = store.transfer().unknown_files(table).await.map_err(failed)?;
                let files = store.transfer().claim_new_files(table).await.map_err(failed)?;
                return Ok(UpkeepReply::Imported { files, failed: unknown });
            }
            UpkeepAction::Refresh(table, files) => {
                let done = store.transfer().refresh(table, &files).await.map_err(failed)?;
                return Ok(told(table, done));
            }
            UpkeepAction::Adopt(table, files) => {
                store.transfer().adopt(table, &files).await.map_err(failed)?;
            }
            UpkeepAction::FilesOfPartition { table, key, is_leveled } => {
                let files =
                    store.compactor().files_of_partition(table, &key).await.map_err(failed)?;
                let report =
                    |(path, level)| SstableReport { path, level: is_leveled.then_some(level) };
                return Ok(UpkeepReply::Files(files.into_iter().map(report).collect()));
            }
            UpkeepAction::LoadTarget(table) => return self.load_target(table),
            UpkeepAction::Load { table, consistency, mutations } => {
                self.load(table, &consistency, &mutations).await?;
            }
            UpkeepAction::Damaged => return Ok(UpkeepReply::Damaged(self.damaged())),
            UpkeepAction::Settings(tables) => {
                return Ok(UpkeepReply::Settings(self.settings_of(tables)));
            }
            UpkeepAction::SetRepaired { tables, repaired, preview } => {
                return self.set_repaired(tables, repaired, preview).await;
            }
            UpkeepAction::Compaction(action) => self.compaction(action).await?,
        }
        Ok(UpkeepReply::Done)
    }

    /// Marks files as repaired or unrepaired; the prefixes of their names.
    async fn set_repaired(
        &self,
        tables: Vec<TableId>,
        repaired: bool,
        preview: bool,
    ) -> Result<UpkeepReply, ActionError> {
        let mark = if repaired { RepairedMark::Repaired } else { RepairedMark::Unrepaired };
        let mut files = Vec::new();
        for table in tables {
            let named = self.store.repair().set_repaired(table, mark, preview).await;
            files.extend(unless_gone(named).map_err(failed)?);
        }
        Ok(UpkeepReply::Marked(files))
    }

    /// Executes a compaction, or changes their schedule.
    async fn compaction(&self, action: CompactionAction) -> Result<(), ActionError> {
        let compactor = self.store.compactor();
        match action {
            CompactionAction::Stop { kind, id } => {
                let shard = self.rt.shard();
                self.store.files().slots().stop_compactions(|shown| {
                    kind.is_none_or(|kind| kind == shown.kind)
                        && id.as_ref().is_none_or(|id| {
                            crate::actions::task_id(shown.table, shard, shown.id).to_string() == *id
                        })
                });
            }
            CompactionAction::SetThresholds { table, min, max } => {
                compactor.set_compaction_thresholds(table, min, max).map_err(failed)?;
            }
            CompactionAction::SetAutomatic { tables, enabled } => {
                for table in tables {
                    unless_gone(compactor.set_automatic_compaction(table, enabled))
                        .map_err(failed)?;
                }
            }
            CompactionAction::Verify { tables, how } => self.verify(tables, how).await?,
            CompactionAction::Scrub { tables, how } => self.scrub(tables, how).await?,
            CompactionAction::RebuildIndexes { table } => {
                unless_gone(compactor.rebuild_indexes(table).await).map_err(failed)?;
            }
            CompactionAction::Force { table, keys } => {
                compactor.compact_ageless(table, &keys).await.map_err(failed)?;
            }
            CompactionAction::Files { files } => {
                for (table, files) in files {
                    unless_gone(compactor.compact_files(table, &files).await).map_err(failed)?;
                }
            }
            CompactionAction::Range { tables, ranges } => {
                for table in tables {
                    unless_gone(compactor.compact_ranges(table, &ranges).await).map_err(failed)?;
                }
            }
            CompactionAction::Partition { keys } => {
                for (table, key) in keys {
                    unless_gone(compactor.compact_partition(table, &key).await).map_err(failed)?;
                }
            }
            CompactionAction::Split { tables } => {
                for table in tables {
                    unless_gone(compactor.compact_split(table).await).map_err(failed)?;
                }
            }
            CompactionAction::GarbageCollect { tables, granularity } => {
                self.garbage_collect(tables, granularity).await?;
            }
            CompactionAction::Relocate { tables } => {
                self.upgrade_files(tables, UpgradeScope::Misplaced).await?;
            }
            CompactionAction::Recompress { tables } => {
                self.upgrade_files(tables, UpgradeScope::OtherCompression).await?;
            }
        }
        Ok(())
    }

    /// Rewrites files without the data that deletions in other files hide.
    async fn garbage_collect(
        &self,
        tables: Vec<TableId>,
        granularity: GarbageGranularity,
    ) -> Result<(), ActionError> {
        let by = match granularity {
            GarbageGranularity::Row => TombstoneOption::Row,
            GarbageGranularity::Cell => TombstoneOption::Cell,
        };
        for table in tables {
            let done = self.store.compactor().garbage_collect(table, by).await;
            unless_gone(done).map_err(failed)?;
        }
        Ok(())
    }

    /// Rewrites the files of a scope.
    async fn upgrade_files(
        &self,
        tables: Vec<TableId>,
        scope: UpgradeScope,
    ) -> Result<(), ActionError> {
        for table in tables {
            unless_gone(self.store.compactor().upgrade(table, scope).await).map_err(failed)?;
        }
        Ok(())
    }

    /// Returns the damaged files of this shard, with the state of their repairs.
    fn damaged(&self) -> Vec<DamagedReport> {
        let repair = self.cluster.as_ref().map(|cluster| &cluster.repair);
        let report = |file: store::DamagedFile| DamagedReport {
            repair: repair.and_then(|repair| repair.damaged_file_state(&file.path)),
            salvaged: file.is_salvaged(),
            keyspace: file.keyspace,
            table: file.table,
            path: file.path,
            reason: file.reason,
            found: file.found,
            copy_failure: file.copy_failure,
        };
        self.store.verifier().damaged_files().into_iter().map(report).collect()
    }

    /// Returns the current compaction settings of tables.
    fn settings_of(&self, tables: Vec<(TableId, CompactionSettings)>) -> Vec<CompactionSettings> {
        let control = |(id, of_table): (TableId, CompactionSettings)| {
            let control = self.store.compactor().compaction_control(id)?;
            Some(CompactionSettings {
                automatic: control.automatic,
                min_threshold: control.min_threshold,
                max_threshold: control.max_threshold,
                ..of_table
            })
        };
        tables.into_iter().filter_map(control).collect()
    }

    /// Continues after a corrupt file; all of them are named at the end.
    async fn verify(&self, tables: Vec<TableId>, how: VerifyRequest) -> Result<(), ActionError> {
        let mut damaged = Vec::new();
        for table in tables {
            let options = VerifyOptions {
                extended: how.extended,
                latest_version: how.check_version,
                quick: how.quick,
                owned: match how.check_tokens {
                    true => owned(&self.membership.snapshot(), table),
                    false => None,
                },
                tell_policy: how.failure_policy,
                forget_repair: how.repair_status,
            };
            let verified = unless_gone(self.store.verifier().verify(table, &options).await);
            let failed_ones = verified.map_err(failed)?;
            for (path, error) in failed_ones {
                tracing::error!(%path, %error, "a file failed its verification");
                damaged.push(format!("Invalid SSTable {path}, please force repair: {error}"));
            }
        }
        match damaged.is_empty() {
            true => Ok(()),
            false => Err(ActionError::Failed(damaged.join("\n"))),
        }
    }

    /// Logs the result of each file; failed ones are named in the answer.
    async fn scrub(&self, tables: Vec<TableId>, how: ScrubRequest) -> Result<(), ActionError> {
        let options = ScrubOptions {
            skip_corrupted: how.skip_corrupted,
            validate: !how.no_validate,
            reinsert_overflowed_ttl: how.reinsert_overflowed_ttl,
        };
        let mut unscrubbed = Vec::new();
        for table in tables {
            let done = self.store.compactor().scrub(table, how.snapshot.as_deref(), options).await;
            for (path, result) in unless_gone(done).map_err(failed)? {
                match unless_gone(result) {
                    Ok(scrubbed) => {
                        for (is_warning, text) in scrubbed.words() {
                            match is_warning {
                                true => tracing::warn!("{text}"),
                                false => tracing::info!("{text}"),
                            }
                        }
                    }
                    Err(error) => {
                        tracing::error!(%path, %error, "cannot scrub a file");
                        unscrubbed.push(format!("{path} was not scrubbed: {error}"));
                    }
                }
            }
        }
        match unscrubbed.is_empty() {
            true => Ok(()),
            false => Err(ActionError::Failed(unscrubbed.join("\n"))),
        }
    }

    async fn import(
        &self,
        table: TableId,
        request: ImportRequest,
    ) -> Result<UpkeepReply, ActionError> {
        let options = ImportOptions {
            keep_level: request.keep_level,
            keep_repaired: request.keep_repaired,
            verify: !request.no_verify,
            copy: request.copy,
            owned: match request.no_tokens {
                true => None,
                false => owned(&self.membership.snapshot(), table),
            },
        };
        let done = self.store.transfer().import(table, &request.directories, &options).await;
        Ok(told(table, done.map_err(failed)?))
    }
}

/// Logs the details that the answer has no fields for.
fn told(table: TableId, done: Imported) -> UpkeepReply {
    let table = table.0;
    for (directory, error) in &done.failed {
        tracing::error!(%table, directory, %error, "cannot import a directory");
    }
    for file in &done.left {
        tracing::warn!(%table, file, "file imported, but not removed from its source directory");
    }
    if !done.files.is_empty() {
        tracing::info!(%table, files = done.files.len(), "imported files");
    }
    let failed = done.failed.into_iter().map(|(directory, _)| directory).collect();
    UpkeepReply::Imported { files: done.files, failed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_table_that_is_gone_is_passed_over() {
        let gone = StoreError::UnknownTable(TableId(stdx::Uuid::from_u128(5)));
        assert_eq!(unless_gone::<u64>(Err(gone)).unwrap(), 0);
        assert_eq!(unless_gone(Ok(7)).unwrap(), 7);
        assert!(unless_gone::<u64>(Err(StoreError::Stopping)).is_err());
    }
}
