use stdx::{DeletionSeconds, TimestampMicros, Token, WallMicros};

use super::*;

const MIB: u64 = 1 << 20;

/// A file of `size` bytes that covers the whole ring and holds live data.
fn file(generation: u64, size_bytes: u64) -> SstableInfo {
    SstableInfo {
        generation: Generation(generation),
        size_bytes,
        level: 0,
        min_timestamp: TimestampMicros(0),
        max_timestamp: TimestampMicros(100),
        max_local_deletion_time: DeletionSeconds::NONE,
        droppable_tombstone_ratio: 0.0,
        first_token: Token::MIN,
        last_token: Token::MAX,
        repaired_at: 0,
        pending_repair: None,
        run: None,
        windows: None,
        created_at: WallMicros(0),
        hotness: 0.0,
    }
}

fn files(sizes: &[u64]) -> Vec<SstableInfo> {
    sizes.iter().zip(1..).map(|(size, generation)| file(generation, *size)).collect()
}

fn state(candidates: &[SstableInfo]) -> TableState<'_> {
    TableState {
        candidates,
        others: &[],
        memtable_min_timestamp: None,
        gc_before: DeletionSeconds(1_000),
        now: WallMicros(1_000_000 * 1_000_000),
        flush_bytes: None,
    }
}

/// With both sides and the compactions for tombstones.
fn next_background(
    options: &SizeTieredOptions,
    tombstones: &TombstoneOptions,
    state: &TableState<'_>,
) -> Option<Plan> {
    let options = crate::CompactionOptions {
        size_tiered: options.clone(),
        tombstones: tombstones.clone(),
        ..crate::CompactionOptions::default()
    };
    crate::next(&options, state)
}

fn sizes(sizes: &[u64], options: &SizeTieredOptions) -> Vec<Vec<u64>> {
    let files = files(sizes);
    buckets(&files, options).iter().map(|b| b.iter().map(|f| f.size_bytes).collect()).collect()
}

/// Generations that are planned, sorted; empty when nothing is.
fn planned(files: &[SstableInfo]) -> Vec<u64> {
    let plan =
        next_background(&SizeTieredOptions::default(), &TombstoneOptions::default(), &state(files));
    let mut inputs: Vec<u64> =
        plan.map(|p| p.inputs.iter().map(|g| g.0).collect()).unwrap_or_default();
    inputs.sort_unstable();
    inputs
}

#[test]
fn files_share_a_bucket_when_they_are_within_half_of_its_mean() {
    let plain = SizeTieredOptions { min_sstable_size: 2, ..SizeTieredOptions::default() };
    for (input, expect) in [
        (&[][..], vec![]),
        (&[100], vec![vec![100]]),
        (&[100, 149], vec![vec![100, 149]]),
        (&[100, 150], vec![vec![100], vec![150]]),
        (&[200, 100, 120, 900], vec![vec![100, 120], vec![200], vec![900]]),
        // The mean moves up while the bucket grows: 100, 124, 144, 161.
        (&[100, 149, 185, 215], vec![vec![100, 149, 185, 215]]),
        (&[1, 4, 8, 8, 8, 5], vec![vec![1], vec![4, 5], vec![8, 8, 8]]),
    ] {
        assert_eq!(sizes(input, &plain), expect, "{input:?}");
    }
}

#[test]
fn files_below_the_minimum_size_share_one_bucket() {
    let options = SizeTieredOptions::default();
    assert_eq!(
        sizes(&[1, 1000, 40 * MIB, 50 * MIB - 1, 50 * MIB], &options),
        [vec![1, 1000, 40 * MIB, 50 * MIB - 1], vec![50 * MIB]]
    );
}

#[test]
fn fewer_files_than_the_minimum_are_left_alone() {
    assert_eq!(planned(&files(&[100 * MIB; 3])), [0_u64; 0]);
    assert_eq!(planned(&files(&[100 * MIB; 4])), [1, 2, 3, 4]);
}

#[test]
fn at_most_the_maximum_is_merged_at_once() {
    let many = files(&[100 * MIB; 40]);
    assert_eq!(planned(&many).len(), 32);
    assert_eq!(estimated_tasks(&many, &SizeTieredOptions::default()), 2);
    assert_eq!(estimated_tasks(&many[..3], &SizeTieredOptions::default()), 0);
}

#[test]
fn smaller_files_come_first_unless_others_are_read_more() {
    let mut both = files(&[1000 * MIB, 1000 * MIB, 1000 * MIB, 1000 * MIB, MIB, MIB, MIB, MIB]);
    assert_eq!(planned(&both), [5, 6, 7, 8]);
    both[0].hotness = 0.5;
    assert_eq!(planned(&both), [1, 2, 3, 4]);
}

#[test]
fn repaired_and_other_files_are_never_merged() {
    let mut mixed = files(&[MIB; 6]);
    for file in &mut mixed[..3] {
        file.repaired_at = 1;
    }
    assert_eq!(planned(&mixed), [0_u64; 0]);
    mixed.extend(files(&[MIB; 7]).split_off(6));
    assert_eq!(planned(&mixed), [4, 5, 6, 7]);
}

#[test]
fn a_file_of_droppable_tombstones_is_compacted_alone() {
    let mut one = files(&[100 * MIB, MIB]);
    one[0].droppable_tombstone_ratio = 0.21;
    one[0].last_token = Token(0);
    one[1].first_token = Token(1);
    assert_eq!(planned(&one), [1]);
    // Not above the threshold.
    one[0].droppable_tombstone_ratio = f64::from(TombstoneOptions::default().threshold);
    assert_eq!(planned(&one), [0_u64; 0]);
    // Written less than a day ago.
    one[0].droppable_tombstone_ratio = 0.9;
    one[0].created_at = WallMicros((1_000_000 - 86_400) * 1_000_000 + 1);
    assert_eq!(planned(&one), [0_u64; 0]);
    one[0].created_at = WallMicros((1_000_000 - 86_400) * 1_000_000);
    assert_eq!(planned(&one), [1]);
    // Another file overlaps: it may have the data that the tombstones shadow.
    one[1].first_token = Token(0);
    assert_eq!(planned(&one), [0_u64; 0]);
    // It overlaps, but the file is expired as a whole and older than the data of the other.
    one[0].max_local_deletion_time = DeletionSeconds(999);
    one[1].min_timestamp = TimestampMicros(101);
    assert_eq!(planned(&one), [1]);
}

#[test]
fn unchecked_tombstone_compaction_ignores_overlap() {
    let mut two = files(&[100 * MIB, MIB]);
    two[0].droppable_tombstone_ratio = 0.9;
    let unchecked = TombstoneOptions { unchecked: true, ..TombstoneOptions::default() };
    let plan = next_background(&SizeTieredOptions::default(), &unchecked, &state(&two)).unwrap();
    assert_eq!(plan.inputs, [Generation(1)]);
    assert_eq!(plan.reason.to_string(), "90.0 % droppable tombstones");
}

#[test]
fn expired_inputs_are_named_so_that_they_are_not_read() {
    let mut four = files(&[MIB; 4]);
    four[2].max_local_deletion_time = DeletionSeconds(999);
    four[2].max_timestamp = TimestampMicros(-1);
    let plan =
        next_background(&SizeTieredOptions::default(), &TombstoneOptions::default(), &state(&four))
            .unwrap();
    assert_eq!(plan.inputs.len(), 4);
    assert_eq!(plan.expired, [Generation(3)]);
    assert_eq!(plan.reason.to_string(), "4 files of about 1048576 bytes");
}

#[test]
fn plans_hold_each_file_once_and_only_files_that_were_given() {
    let mut state_of = 1_u64;
    let mut next = move || {
        state_of = state_of.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state_of >> 33
    };
    for _ in 0..500 {
        let count = next() % 60;
        let mut all: Vec<SstableInfo> = (1..=count).map(|g| file(g, 1 << (next() % 40))).collect();
        for file in &mut all {
            file.hotness = (next() % 3) as f64;
            file.repaired_at = (next() % 2) as i64;
            file.droppable_tombstone_ratio = (next() % 100) as f64 / 100.0;
        }
        let options = SizeTieredOptions::default();
        let plan = next_background(&options, &TombstoneOptions::default(), &state(&all));
        let Some(plan) = plan else { continue };
        let mut seen = plan.inputs.clone();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), plan.inputs.len());
        assert!(plan.inputs.len() <= 32);
        let sides: Vec<bool> = all
            .iter()
            .filter(|f| plan.inputs.contains(&f.generation))
            .map(SstableInfo::is_repaired)
            .collect();
        assert_eq!(sides.len(), plan.inputs.len());
        assert!(sides.iter().all(|s| *s == sides[0]));
    }
}

#[test]
fn a_preview_has_all_that_is_due_and_each_file_once() {
    let sizes = [vec![MIB; 4], vec![100 * MIB; 4], vec![10_000 * MIB; 3]].concat();
    let files = files(&sizes);
    let options = crate::CompactionOptions::default();
    let plans = crate::preview(&options, &state(&files));
    let mut inputs: Vec<Vec<u64>> =
        plans.iter().map(|p| p.inputs.iter().map(|g| g.0).collect()).collect();
    inputs.iter_mut().for_each(|i| i.sort_unstable());
    inputs.sort();
    assert_eq!(inputs, [vec![1, 2, 3, 4], vec![5, 6, 7, 8]]);
    assert_eq!(plans.first(), crate::next(&options, &state(&files)).as_ref());
    let paused = crate::CompactionOptions { enabled: false, ..options };
    assert!(crate::preview(&paused, &state(&files)).is_empty());
}
