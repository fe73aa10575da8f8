//! Compactions requested by file, range or partition, and the running compactions of tables until the
//! node stops: thresholds, and the switch for automatic ones.
//!
//! [`crate::Slots::stop_compactions`] aborts running compactions: see [`crate::files::slots`].

use std::rc::Rc;

use compact_plan::{CompactionOptions, Plan, SstableInfo};
use sst_format::Component;
use sstable::WriteCompression;
use stdx::{Generation, TableId, Token, WallMicros};

use crate::compact::Compactor;
use crate::compact::cleanup::{self, Cleaned, OwnedRanges, Share};
use crate::compact::compaction::{Job, options_of};
use crate::compact::upgrade::{self, UpgradeScope};
use crate::error::StoreError;
use crate::tables::table::TableState;
use crate::tables::table_file::{TableFile, has_partition};

/// Current compaction settings of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionControl {
    /// Compactions begin automatically.
    pub automatic: bool,
    /// Files of a compaction at least, where the strategy counts them.
    pub min_threshold: u32,
    /// Files of a compaction at most, likewise.
    pub max_threshold: u32,
}

/// Partitions whose tombstones may be purged at any age, until this is dropped.
struct Ageless<'t>(&'t TableState);

impl<'t> Ageless<'t> {
    fn new(table: &'t TableState, tokens: Vec<Token>) -> Ageless<'t> {
        *table.ageless.borrow_mut() = tokens;
        Ageless(table)
    }
}

impl Drop for Ageless<'_> {
    fn drop(&mut self) {
        self.0.ageless.borrow_mut().clear();
    }
}

impl Compactor {
    /// Removes data that is not owned from this shard's files of a table. `owned` is called
    /// directly before the choice of files; `None` aborts.
    ///
    /// # Errors
    /// `UnknownTable`, `DiskFull`, `Corrupt`, `Io`, `Stopping`; files that were not reached stay as
    /// they are.
    pub async fn cleanup(
        &self,
        id: TableId,
        owned: impl FnOnce() -> Option<OwnedRanges>,
    ) -> Result<Cleaned, StoreError> {
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        self.writer.flush(Some(&[id])).await?;
        // Held to the end: the output of another compaction may have newer partitions in it.
        let _own = self.files.slots.own_table(&table).await;
        let version = table.version();
        let options = options_of(&version)?;
        // No wait between these two.
        let Some(owned) = owned() else { return Ok(Cleaned::default()) };
        let files = table.view().files.clone();
        let mut cleaned = Cleaned::default();
        for file in files {
            let share = cleanup::share(&owned, &file);
            let expired = match share {
                // Its readable data is in other files, or will be.
                Share::Part if table.is_damaged(file.generation) => {
                    cleaned.kept += 1;
                    continue;
                }
                Share::All => {
                    cleaned.kept += 1;
                    continue;
                }
                Share::Part => Vec::new(),
                Share::None => vec![file.generation],
            };
            let plan = cleanup::plan(&file, expired);
            self.compact(&table, Job { plan: &plan, options, owned: Some(&owned) }).await?;
            match share {
                Share::None => cleaned.removed += 1,
                _ => cleaned.rewritten += 1,
            }
        }
        Ok(cleaned)
    }

    /// Rewrites this shard's files of a table in the current version. Returns how many.
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
    /// Those of [`Compactor::upgrade`].
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
            // A file in a repair keeps another version if the current one has no mark for it.
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
                UpgradeScope::All | UpgradeScope::Indexes => false,
            };
            if is_left || file.written_at > latest || table.is_damaged(file.generation) {
                continue;
            }
            let plan = upgrade::plan(&file, scope.reason());
            self.compact(&table, Job { plan: &plan, options, owned: None }).await?;
            written += 1;
        }
        Ok(written)
    }

    /// Builds the indexes of this shard's files of a table again. They stay usable meanwhile. Returns how many files were
    /// written; 0 of a table without indexes.
    ///
    /// # Errors
    /// Those of [`Compactor::upgrade`].
    pub async fn rebuild_indexes(&self, id: TableId) -> Result<u64, StoreError> {
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        if table.version().indexes.is_none() {
            return Ok(0);
        }
        let written = self.upgrade(id, UpgradeScope::Indexes).await;
        table.follow_indexes();
        written
    }

    /// Compaction settings of a table on this shard; `None`: there is none of that id, or its
    /// options are invalid.
    pub fn compaction_control(&self, id: TableId) -> Option<CompactionControl> {
        let table = self.tables.table(id)?;
        let version = table.version();
        let options = version.compaction.as_ref().ok()?;
        Some(CompactionControl {
            automatic: options.enabled,
            min_threshold: options.size_tiered.min_threshold,
            max_threshold: options.size_tiered.max_threshold,
        })
    }

    /// Sets if compactions of a table begin automatically from now on, whatever its option
    /// `enabled` says. Running ones continue.
    ///
    /// # Errors
    /// `UnknownTable`.
    pub fn set_automatic_compaction(&self, id: TableId, enabled: bool) -> Result<(), StoreError> {
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        table.change_overrides(|overrides| overrides.automatic = Some(enabled));
        self.files.slots.changed.notify_waiters();
        Ok(())
    }

    /// Sets the minimum and maximum number of files of a table's compaction, from now on, whatever
    /// its options say.
    ///
    /// # Errors
    /// `UnknownTable`; `Invalid` in Cassandra's words: 0, or more at least than at most.
    pub fn set_compaction_thresholds(
        &self,
        id: TableId,
        min: u32,
        max: u32,
    ) -> Result<(), StoreError> {
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        if min > max {
            return Err(StoreError::Invalid(format!(
                "The min_compaction_threshold cannot be larger than the \
                 max_compaction_threshold. Min is '{min}', Max is '{max}'."
            )));
        }
        if min == 0 {
            let text = "Disabling compaction by setting min_compaction_threshold or \
                        max_compaction_threshold to 0 is deprecated, set the compaction strategy \
                        option 'enabled' to 'false' instead or use the nodetool command \
                        'disableautocompaction'.";
            return Err(StoreError::Invalid(text.to_owned()));
        }
        table.change_overrides(|overrides| overrides.thresholds = Some((min, max)));
        self.files.slots.changed.notify_waiters();
        Ok(())
    }

    /// Compacts all files of a table as [`Compactor::compact_major`] does; size-tiered outputs are
    /// cut into one with half of the data, one with half of the rest, and so on.
    ///
    /// # Errors
    /// Those of [`Compactor::compact_major`].
    pub async fn compact_split(&self, id: TableId) -> Result<(), StoreError> {
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        self.writer.flush(Some(&[id])).await?;
        let _own = self.files.slots.own_table(&table).await;
        let version = table.version();
        let options = options_of(&version)?;
        for plan in compact_plan::major_split(options, &self.infos(&table).state()) {
            self.compact(&table, Job { plan: &plan, options, owned: None }).await?;
        }
        Ok(())
    }

    /// Compacts those of the named files that this shard has: the repaired into one, and the others.
    /// Skips files in a running repair. Returns how many were compacted.
    ///
    /// # Errors
    /// Those of [`Compactor::compact_major`].
    pub async fn compact_files(
        &self,
        id: TableId,
        files: &[Generation],
    ) -> Result<u64, StoreError> {
        self.compact_chosen(id, |file| files.contains(&file.generation)).await
    }

    /// Compacts the files of this shard that may have partitions of the ranges, both ends included, as
    /// [`Compactor::compact_files`]. Nothing is flushed before.
    ///
    /// # Errors
    /// Those of [`Compactor::compact_major`].
    pub async fn compact_ranges(
        &self,
        id: TableId,
        ranges: &[(Token, Token)],
    ) -> Result<u64, StoreError> {
        self.compact_chosen(id, |file| {
            let meta = file.reader.meta();
            let (first, last) = (meta.first_token(), meta.last_token());
            ranges.iter().any(|(start, end)| first <= *end && last >= *start)
        })
        .await
    }

    /// Compacts the files of this shard that may have a partition, as [`Compactor::compact_files`].
    ///
    /// # Errors
    /// Those of [`Compactor::compact_major`].
    pub async fn compact_partition(&self, id: TableId, key: &[u8]) -> Result<u64, StoreError> {
        let (token, hash) = (codec::token_of(key), codec::hash_key(key));
        if self.env.options.shard_map.shard_of(id, token) != self.env.rt.shard() {
            return Ok(0);
        }
        self.compact_chosen(id, |file| {
            let meta = file.reader.meta();
            let spans = meta.first_token() <= token && token <= meta.last_token();
            spans && file.reader.may_contain(&hash)
        })
        .await
    }

    /// Compacts the files of this shard that may have one of the partitions, as
    /// [`Compactor::compact_files`]. Tombstones of these partitions are purged at any age unless
    /// another file or a memtable has data that they hide. Nothing is flushed before, as in
    /// Cassandra.
    ///
    /// # Errors
    /// Those of [`Compactor::compact_major`].
    pub async fn compact_ageless(&self, id: TableId, keys: &[Vec<u8>]) -> Result<u64, StoreError> {
        let (map, own) = (self.env.options.shard_map, self.env.rt.shard());
        let wanted: Vec<(Token, codec::KeyHash)> = keys
            .iter()
            .map(|key| (codec::token_of(key), codec::hash_key(key)))
            .filter(|(token, _)| map.shard_of(id, *token) == own)
            .collect();
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        if wanted.is_empty() {
            return Ok(0);
        }
        let _own = self.files.slots.own_table(&table).await;
        // No other compaction of the table begins while this exists.
        let _ageless = Ageless::new(&table, wanted.iter().map(|(token, _)| *token).collect());
        let is_chosen = |file: &TableFile| {
            let meta = file.reader.meta();
            wanted.iter().any(|(token, hash)| {
                let spans = meta.first_token() <= *token && *token <= meta.last_token();
                spans && file.reader.may_contain(hash)
            })
        };
        self.compact_owned(&table, is_chosen).await
    }

    /// Files of this shard that have the partition, by the path of their Data, with their levels. By
    /// their indexes: a Bloom filter alone is not believed.
    ///
    /// # Errors
    /// `UnknownTable`; a file that cannot be read.
    pub async fn files_of_partition(
        &self,
        id: TableId,
        key: &[u8],
    ) -> Result<Vec<(String, u32)>, StoreError> {
        let (token, hash) = (codec::token_of(key), codec::hash_key(key));
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        // No key has the least token: there is one before.
        let range = (Token(token.0.saturating_sub(1)), token);
        let mut found = Vec::new();
        let view = table.view();
        for file in &view.files {
            let meta = file.reader.meta();
            let spans = meta.first_token() <= token && token <= meta.last_token();
            if spans
                && file.reader.may_contain(&hash)
                && has_partition(file, range.0, range.1).await?
            {
                found.push((
                    meta.file(Component::Data),
                    u32::try_from(meta.statistics().stats.level).unwrap_or(0),
                ));
            }
        }
        Ok(found)
    }

    async fn compact_chosen(
        &self,
        id: TableId,
        is_chosen: impl Fn(&TableFile) -> bool,
    ) -> Result<u64, StoreError> {
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        let _own = self.files.slots.own_table(&table).await;
        self.compact_owned(&table, is_chosen).await
    }

    /// Pre: the caller has the table as a whole.
    async fn compact_owned(
        &self,
        table: &Rc<TableState>,
        is_chosen: impl Fn(&TableFile) -> bool,
    ) -> Result<u64, StoreError> {
        let version = table.version();
        let options = options_of(&version)?;
        let view = table.view();
        let chosen: Vec<Generation> =
            view.files.iter().filter(|f| is_chosen(f)).map(|f| f.generation).collect();
        drop(view);
        let mut compacted = 0;
        for repaired in [true, false] {
            let Some(plan) = self.plan_of(table, options, &chosen, repaired) else { continue };
            self.compact(table, Job { plan: &plan, options, owned: None }).await?;
            compacted += plan.inputs.len() as u64;
        }
        Ok(compacted)
    }

    fn plan_of(
        &self,
        table: &Rc<TableState>,
        options: &CompactionOptions,
        chosen: &[Generation],
        repaired: bool,
    ) -> Option<Plan> {
        let infos = self.infos(table);
        let state = infos.state();
        let is_of = |f: &&SstableInfo| {
            chosen.contains(&f.generation) && !f.is_pending() && f.is_repaired() == repaired
        };
        let of_side: Vec<Generation> =
            state.candidates.iter().filter(is_of).map(|f| f.generation).collect();
        // All of them are candidates, of one side: the only refusal is that there are none.
        compact_plan::user_defined(&of_side, options, &state).ok()
    }
}
