//! Compactions on request.

use stdx::Generation;

use crate::options::{CompactionOptions, Strategy};
use crate::size_tiered::plan;
use crate::{
    Cut, Plan, Reason, SstableInfo, TableState, cluster_key, incremental, leveled, unified,
};

/// Error of a user-defined compaction that cannot be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManualError {
    /// No file was named.
    #[error("no file named")]
    Empty,
    /// A named file is missing, or is in a running compaction or an incremental repair.
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

/// A major compaction: one plan for the repaired files and one for the others. It merges all files
/// into one, or, as the strategy requires, into one level, one file for each shard of the ring, or
/// one file for each window of the first clustering column. A single file is rewritten too, as it
/// drops data that may be purged. Files in an incremental repair are skipped.
pub fn major(options: &CompactionOptions, state: &TableState<'_>) -> Vec<Plan> {
    let tombstones = &options.tombstones;
    [true, false]
        .into_iter()
        .flat_map(|repaired| {
            let side: Vec<&SstableInfo> =
                files(state).filter(|f| f.is_repaired() == repaired).collect();
            if side.is_empty() {
                return Vec::new();
            }
            vec![match options.strategy {
                Strategy::SizeTiered | Strategy::TimeWindow | Strategy::DateTiered => {
                    plan(&side, state, tombstones, Reason::Major)
                }
                Strategy::Leveled => leveled::major(&options.leveled, tombstones, &side, state),
                Strategy::Unified => unified::major(&options.unified, tombstones, &side, state),
                Strategy::Incremental => {
                    incremental::major(&options.incremental, tombstones, &side, state)
                }
                Strategy::ClusterKey => return cluster_key::major(tombstones, &side, state),
            }]
        })
        .collect()
}

/// Outputs of a split major compaction are not made smaller than this, bytes. Source: Cassandra 5.0
/// SplittingSizeTieredCompactionWriter.
const SPLIT_BYTES_MIN: u64 = 50_000_000;
/// Most outputs of it. Source: the same.
const SPLIT_OUTPUTS_MAX: usize = 20;

/// Like [`major`], but cuts size-tiered outputs into several: one with half of the data, the next
/// with half of the rest and so on. The other strategies cut as always.
pub fn major_split(options: &CompactionOptions, state: &TableState<'_>) -> Vec<Plan> {
    let mut plans = major(options, state);
    if options.strategy == Strategy::SizeTiered {
        for plan in &mut plans {
            let of_it = |f: &&SstableInfo| plan.inputs.contains(&f.generation);
            let bytes = files(state).filter(of_it).map(|f| f.size_bytes).sum();
            plan.cut = halves(bytes);
        }
    }
    plans
}

fn halves(bytes: u64) -> Cut {
    let mut sizes = Vec::new();
    let mut next = bytes / 2;
    while sizes.len() < SPLIT_OUTPUTS_MAX {
        sizes.push(next);
        if next < SPLIT_BYTES_MIN {
            break;
        }
        next /= 2;
    }
    // The last one takes the rest.
    sizes.pop();
    if sizes.is_empty() { Cut::Never } else { Cut::AtSizes(sizes) }
}

/// Plans steps before a major compaction, so that it needs little space. Incremental compaction
/// first cuts small files that lie across the fragments of large runs like these fragments.
/// Cluster-key compaction first sorts files of several windows into these. Each step changes the
/// files: call this repeatedly until nothing is left, then [`major`].
pub fn before_major(options: &CompactionOptions, state: &TableState<'_>) -> Vec<Plan> {
    let (tiered, tombstones) = (&options.size_tiered, &options.tombstones);
    [true, false]
        .into_iter()
        .filter_map(|repaired| {
            let side: Vec<&SstableInfo> =
                files(state).filter(|f| f.is_repaired() == repaired).collect();
            match options.strategy {
                Strategy::Incremental => {
                    incremental::align(&options.incremental, tombstones, &side, state)
                }
                Strategy::ClusterKey => cluster_key::sort_out(tiered, tombstones, &side, state),
                _ => None,
            }
        })
        .collect()
}

/// A compaction of named files; a file named twice counts once. Several files of levels become one of
/// level 0, which may overlap any other.
///
/// # Errors
/// See [`ManualError`].
pub fn user_defined(
    generations: &[Generation],
    options: &CompactionOptions,
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
    let mut plan = plan(&inputs, state, &options.tombstones, Reason::UserDefined);
    if inputs.len() > 1 {
        plan.level = 0;
    }
    if options.strategy == Strategy::ClusterKey {
        plan.cut = Cut::AtWindows;
    }
    Ok(plan)
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
            windows: None,
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
        let named = user_defined(&[Generation(1)], &CompactionOptions::default(), &state(&files));
        assert_eq!(named, Err(ManualError::NotACandidate { generation: Generation(1) }));
    }

    #[test]
    fn a_split_major_compaction_halves_size_tiered_outputs_down_to_the_smallest() {
        let cut_of = |bytes: u64, strategy| {
            let files = [SstableInfo { size_bytes: bytes, ..file(1, 0) }];
            let options = CompactionOptions { strategy, ..CompactionOptions::default() };
            major_split(&options, &state(&files)).remove(0).cut
        };
        let tiered = |bytes| cut_of(bytes, Strategy::SizeTiered);
        assert_eq!(tiered(99_999_999), Cut::Never);
        assert_eq!(tiered(100_000_000), Cut::AtSizes(vec![50_000_000]));
        assert_eq!(tiered(400_000_000), Cut::AtSizes(vec![200_000_000, 100_000_000, 50_000_000]));
        let Cut::AtSizes(most) = tiered(u64::MAX) else { panic!() };
        assert_eq!(most.len(), SPLIT_OUTPUTS_MAX - 1);
        let windows = cut_of(400_000_000, Strategy::TimeWindow);
        assert_eq!(windows, Cut::Never);
    }

    #[test]
    fn several_named_files_of_a_level_become_one_of_level_0_and_one_keeps_its_level() {
        let files = [1, 2].map(|n| SstableInfo { level: 3, ..file(n, 0) });
        let level = |named: &[u64]| {
            let named: Vec<Generation> = named.iter().map(|g| Generation(*g)).collect();
            user_defined(&named, &CompactionOptions::default(), &state(&files)).unwrap().level
        };
        assert_eq!((level(&[2]), level(&[1, 2])), (3, 0));
    }

    #[test]
    fn a_user_defined_compaction_takes_the_named_files_only() {
        let files = [file(1, 0), file(2, 5), file(3, 0)];
        let plan = |named: &[u64]| {
            let named: Vec<Generation> = named.iter().map(|g| Generation(*g)).collect();
            user_defined(&named, &CompactionOptions::default(), &state(&files))
                .map(|p| p.inputs.iter().map(|g| g.0).collect::<Vec<_>>())
        };
        assert_eq!(plan(&[3, 1, 3]), Ok(vec![3, 1]));
        assert_eq!(plan(&[]), Err(ManualError::Empty));
        assert_eq!(plan(&[1, 9]), Err(ManualError::NotACandidate { generation: Generation(9) }));
        assert_eq!(plan(&[1, 2]), Err(ManualError::MixedRepair { generation: Generation(2) }));
    }
}
