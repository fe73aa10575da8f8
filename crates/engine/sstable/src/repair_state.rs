//! Repair state and level in Statistics.db, changed in place: the only part of a file set that is
//! ever rewritten.
//!
//! Order: 1. Checksums.db loses its entry of Statistics, if it has one (files of earlier builds); 2. the
//! new Statistics.db replaces the old one. Both are renames of synced files, so a reader that opens or
//! links the file set at any time gets an intact one. Statistics has checksums of its own over every
//! byte, and the binding in Checksums.db covers only the parts that do not change here
//! ([`sst_format::Statistics::identity`]).

use rt::Fs;
use sst_format::Component;
use sst_format::checksums::Checksums;
use sst_format::statistics::{Statistics, StatsMetadata};
use stdx::Uuid;

use crate::meta::SstableMeta;
use crate::set_files::SetFiles;
use crate::{Result, SstableError};

/// Largest Statistics.db or Checksums.db, bytes.
const BYTES_MAX: usize = 2 << 30;

/// Repair state of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairState {
    /// Milliseconds since 1970 of the repair that its data took part in, 0 = none.
    pub repaired_at: i64,
    /// Session of the running incremental repair that it is in.
    pub pending: Option<Uuid>,
}

impl RepairState {
    /// Reads the state of a file.
    pub fn of(meta: &SstableMeta) -> RepairState {
        let stats = &meta.statistics().stats;
        RepairState { repaired_at: stats.repaired_at, pending: stats.pending_repair }
    }
}

/// Writes the state of a complete file set. Readers that have it open keep the old state. The
/// caller must exclude other changes of the same file set.
///
/// # Errors
/// `Corrupt`, `Io`: the old or the new state holds then, in full.
pub async fn write_repair_state(fs: &Fs, meta: &SstableMeta, state: RepairState) -> Result<()> {
    change(fs, meta, |stats| {
        stats.repaired_at = state.repaired_at;
        stats.pending_repair = state.pending;
    })
    .await
}

/// Writes the level of a complete file set, as [`write_repair_state`] does its state.
///
/// # Errors
/// `Corrupt`, `Io`: the old or the new level holds then.
pub async fn write_level(fs: &Fs, meta: &SstableMeta, level: i32) -> Result<()> {
    change(fs, meta, |stats| stats.level = level).await
}

/// Builds the components of a file set's copy with another level or repair state: its
/// Statistics.db, and its Checksums.db when that has an entry of it.
///
/// # Errors
/// `Corrupt`, `Io`.
pub async fn restated(
    fs: &Fs,
    meta: &SstableMeta,
    of: impl FnOnce(&mut StatsMetadata),
) -> Result<Vec<(Component, Vec<u8>)>> {
    let mut changed = Vec::new();
    let files = SetFiles::open(fs, meta.directory(), meta.descriptor()).await?;
    let path = meta.file(Component::Checksums);
    if meta.components().contains(&Component::Checksums) {
        let bytes = files.read(Component::Checksums, BYTES_MAX).await?;
        let mut list =
            Checksums::decode(&bytes).map_err(|e| SstableError::of_format(&path, 0, &e))?;
        let before = list.components.len();
        list.components.retain(|c| c.component != Component::Statistics);
        if list.components.len() < before {
            changed.push((Component::Checksums, list.encode()));
        }
    }
    let path = meta.file(Component::Statistics);
    let at = |error| SstableError::of_format(&path, 0, &error);
    let bytes = files.read(Component::Statistics, BYTES_MAX).await?;
    let mut statistics = Statistics::decode(&bytes, meta.version()).map_err(at)?;
    of(&mut statistics.stats);
    changed.push((Component::Statistics, statistics.encode().map_err(at)?));
    Ok(changed)
}

async fn change(fs: &Fs, meta: &SstableMeta, of: impl FnOnce(&mut StatsMetadata)) -> Result<()> {
    let changed = restated(fs, meta, of).await?;
    let files = SetFiles::open(fs, meta.directory(), meta.descriptor()).await?;
    for (component, bytes) in changed {
        files.replace(component, bytes).await?;
    }
    Ok(())
}
