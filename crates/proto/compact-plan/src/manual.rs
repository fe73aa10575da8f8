//! Compactions that somebody asked for.

use stdx::Generation;

use crate::options::{CompactionOptions, Strategy, TombstoneOptions};
use crate::size_tiered::plan;
use crate::{Plan, Reason, SstableInfo, TableState, incremental, leveled, unified};

/// Why a user-defined compaction cannot be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManualError {
    /// No file was named.
    #[error("no file named")]
    Empty,
    /// A named file is not there, or is in a running compaction or an incremental repair.
    #[error("generation {} is not a file that can be compacted now", generation.0)]
    NotACandidate {
        /// The file.
        generation: Generation,
    },
    /// Repaired and other files would be merged.
    #[error("generation {} is on the other side of the repaired boundary", generation.0)]
    MixedRepair {
        /// The first file that does not fit the ones before it.
        generation: Generation,
    },
}

fn files<'a>(state: &TableState<'a>) -> impl Iterator<Item = &'a SstableInfo> {
    state.candidates.iter().filter(|f| !f.is_pending())
}

/// A major compaction: all files into one (into one level, or one file for each shard of the ring, where
/// the strategy says so), one plan for the repaired and one for the others. A single file is rewritten
/// too, as it drops what may be purged. Files that take part in an incremental repair are left alone.
pub fn major(options: &CompactionOptions, state: &TableState<'_>) -> Vec<Plan> {
    let tombstones = &options.tombstones;
    [true, false]
        .into_iter()
        .filter_map(|repaired| {
            let side: Vec<&SstableInfo> =
                files(state).filter(|f| f.is_repaired() == repaired).collect();
            (!side.is_empty()).then(|| match options.strategy {
                Strategy::SizeTiered | Strategy::TimeWindow | Strategy::DateTiered => {
                    plan(&side, state, tombstones, Reason::Major)
                }
                Strategy::Leveled => leveled::major(&options.leveled, tombstones, &side, state),
                Strategy::Unified => unified::major(&options.unified, tombstones, &side, state),
                Strategy::Incremental => {
                    incremental::major(&options.incremental, tombstones, &side, state)
                }
            })
        })
        .collect()
}

/// What should be done before a major compaction, so that it needs little space: by incremental
/// compaction small files that lie across the fragments of large runs are cut like these first. Files
/// change by it: [`major`] is asked afterwards.
pub fn before_major(options: &CompactionOptions, state: &TableState<'_>) -> Vec<Plan> {
    if options.strategy != Strategy::Incremental {
        return Vec::new();
    }
    [true, false]
        .into_iter()
        .filter_map(|repaired| {
            let side: Vec<&SstableInfo> =
                files(state).filter(|f| f.is_repaired() == repaired).collect();
            incremental::align(&options.incremental, &options.tombstones, &side, state)
        })
        .collect()
}

/// A compaction of named files; a file named twice counts once.
///
/// # Errors
/// See [`ManualError`].
pub fn user_defined(
    generations: &[Generation],
    tombstones: &TombstoneOptions,
    state: &TableState<'_>,
) -> Result<Plan, ManualError> {
    let mut inputs: Vec<&SstableInfo> = Vec::new();
    for generation in generations {
        if inputs.iter().any(|f| f.generation == *generation) {
            continue;
        }
        let Some(file) = files(state).find(|f| f.generation == *generation) else {
            return Err(ManualError::NotACandidate { generation: *generation });
        };
        if inputs.first().is_some_and(|first| first.is_repaired() != file.is_repaired()) {
            return Err(ManualError::MixedRepair { generation: *generation });
        }
        inputs.push(file);
    }
    if inputs.is_empty() {
        return Err(ManualError::Empty);
    }
    Ok(plan(&inputs, state, tombstones, Reason::UserDefined))
}

#[cfg(test)]
mod tests {
    use stdx::{DeletionSeconds, TimestampMicros, Token, WallMicros};

    use super::*;

    fn file(generation: u64, repaired_at: i64) -> SstableInfo {
        SstableInfo {
            generation: Generation(generation),
            size_bytes: 1,
            level: 0,
            min_timestamp: TimestampMicros(0),
            max_timestamp: TimestampMicros(1),
            max_local_deletion_time: DeletionSeconds::NONE,
            droppable_tombstone_ratio: 0.0,
            first_token: Token::MIN,
            last_token: Token::MAX,
            repaired_at,
            pending_repair: None,
            run: None,
            created_at: WallMicros(0),
            hotness: 0.0,
        }
    }

    fn state(candidates: &[SstableInfo]) -> TableState<'_> {
        TableState {
            candidates,
            others: &[],
            memtable_min_timestamp: None,
            gc_before: DeletionSeconds(0),
            now: WallMicros(0),
            flush_bytes: None,
        }
    }

    #[test]
    fn a_major_compaction_takes_every_file_and_keeps_the_repaired_apart() {
        let files = [file(1, 0), file(2, 5), file(3, 0)];
        let plans = major(&CompactionOptions::default(), &state(&files));
        let inputs: Vec<Vec<u64>> =
            plans.iter().map(|p| p.inputs.iter().map(|g| g.0).collect()).collect();
        assert_eq!(inputs, [vec![2], vec![1, 3]]);
        assert!(major(&CompactionOptions::default(), &state(&[])).is_empty());
        let mut files = files;
        files[0].pending_repair = Some(stdx::Uuid::from_u128(1));
        let plans = major(&CompactionOptions::default(), &state(&files));
        let inputs: Vec<Vec<u64>> =
            plans.iter().map(|p| p.inputs.iter().map(|g| g.0).collect()).collect();
        assert_eq!(inputs, [vec![2], vec![3]]);
        let named = user_defined(&[Generation(1)], &TombstoneOptions::default(), &state(&files));
        assert_eq!(named, Err(ManualError::NotACandidate { generation: Generation(1) }));
    }

    #[test]
    fn a_user_defined_compaction_takes_the_named_files_only() {
        let files = [file(1, 0), file(2, 5), file(3, 0)];
        let plan = |named: &[u64]| {
            let named: Vec<Generation> = named.iter().map(|g| Generation(*g)).collect();
            user_defined(&named, &TombstoneOptions::default(), &state(&files))
                .map(|p| p.inputs.iter().map(|g| g.0).collect::<Vec<_>>())
        };
        assert_eq!(plan(&[3, 1, 3]), Ok(vec![3, 1]));
        assert_eq!(plan(&[]), Err(ManualError::Empty));
        assert_eq!(plan(&[1, 9]), Err(ManualError::NotACandidate { generation: Generation(9) }));
        assert_eq!(plan(&[1, 2]), Err(ManualError::MixedRepair { generation: Generation(2) }));
    }
}
