use stdx::Generation;

use super::*;
use crate::testing::*;
use crate::{CompactionOptions, before_major, next, parts};

const ICS: &str = "IncrementalCompactionStrategy";

fn small(more: &[(&str, &str)]) -> CompactionOptions {
    let mut all = vec![("sstable_size_in_mb", "10"), ("min_sstable_size", "1")];
    all.extend_from_slice(more);
    options(ICS, &all)
}

/// A run of even fragments of the whole ring.
fn run(number: u64, bytes: u64, fragments: i64) -> Vec<SstableInfo> {
    let fragment = |n: i64| {
        let ends = (n * 1000 / fragments, (n + 1) * 1000 / fragments - 1);
        let generation = number * 100 + u64::try_from(n).unwrap();
        let size = bytes / u64::try_from(fragments).unwrap();
        SstableInfo {
            run: Some(Uuid::from_u128(u128::from(number))),
            ..file(generation, 0, size, ends)
        }
    };
    (0..fragments).map(fragment).collect()
}

#[test]
fn runs_of_similar_size_are_merged_and_not_their_fragments() {
    // Eight fragments of one size, but of two runs: nothing to merge.
    let files: Vec<SstableInfo> =
        [run(1, 40 * MIB, 4), run(2, 40 * MIB, 4)].into_iter().flatten().collect();
    assert_eq!(next(&small(&[]), &state(&files)), None);
    let mut files = files;
    files.extend(run(3, 41 * MIB, 4));
    files.extend(run(4, 42 * MIB, 2));
    files.push(file(900, 0, 2 * MIB, (0, 1000)));
    let plan = next(&small(&[]), &state(&files)).unwrap();
    assert_eq!(plan.inputs.len(), 14);
    assert!(!plan.inputs.contains(&Generation(900)));
    assert!(plan.apart);
    assert!(matches!(plan.reason, Reason::SimilarRuns { runs: 4, files: 14, .. }), "{plan:?}");
    assert_eq!(estimated_tasks(&files, &small(&[]).size_tiered), 1);
}

#[test]
fn a_merge_falls_apart_where_the_largest_fragments_end() {
    let files: Vec<SstableInfo> =
        [run(1, 40 * MIB, 4), run(2, 40 * MIB, 8), run(3, 40 * MIB, 4), run(4, 42 * MIB, 2)]
            .into_iter()
            .flatten()
            .collect();
    let plan = next(&small(&[]), &state(&files)).unwrap();
    let parts = parts::parts(&plan, &files);
    assert_eq!(parts.len(), 2);
    assert_eq!(parts.iter().map(|p| p.inputs.len()).collect::<Vec<_>>(), [9, 9]);
}

#[test]
fn fragments_are_halves_of_halves_and_small_enough() {
    let files = run(1, 100 * MIB, 1);
    let inputs: Vec<&SstableInfo> = files.iter().collect();
    let tokens = cuts(10 * MIB, &inputs);
    assert_eq!(tokens.len(), 15);
    for (n, token) in (1_i128..).zip(&tokens) {
        assert_eq!(i128::from(token.0) + 1, i128::from(i64::MIN) + n * (1 << 60));
    }
    // Where the data lies in a small part of the ring only this is cut.
    let dense = [file(1, 0, 100 * MIB, (3, 5))];
    let inputs: Vec<&SstableInfo> = dense.iter().collect();
    let tokens = cuts(10 * MIB, &inputs);
    assert!(tokens.len() >= 10 && tokens.len() < 40, "{}", tokens.len());
    let inside = tokens.iter().filter(|t| dense[0].first_token <= **t && **t < dense[0].last_token);
    assert!(inside.count() >= 10);
    assert_eq!(cuts(10 * MIB, &[]), []);
}

/// INV-incremental-1.
#[test]
fn cuts_of_any_two_runs_are_nested() {
    let coarse = run(1, 37 * MIB, 1);
    let fine = run(2, 300 * MIB, 1);
    let of = |files: &[SstableInfo]| cuts(10 * MIB, &files.iter().collect::<Vec<_>>());
    let (coarse, fine) = (of(&coarse), of(&fine));
    assert!(!coarse.is_empty() && coarse.iter().all(|t| fine.contains(t)));
}

#[test]
fn a_table_grows_in_runs_and_a_merge_needs_space_for_few_fragments() {
    let mut table = Table::new(small(&[]));
    let mut tiered =
        Table::new(options("SizeTieredCompactionStrategy", &[("min_sstable_size", "1048576")]));
    for n in 0..256 {
        table.flush(4 * MIB, n);
        tiered.flush(4 * MIB, n);
    }
    assert!(table.files.iter().all(|f| f.size_bytes <= 10 * MIB), "{:?}", table.files);
    let runs = runs(&table.files).0.len();
    assert!(runs <= 4, "{runs} runs");
    // It writes as much, and the largest merge of the other is the whole table.
    assert_eq!(table.written, tiered.written);
    assert_eq!(tiered.largest, 1024 * MIB);
    assert!(table.largest <= 4 * 10 * MIB, "{} MiB", table.largest / MIB);
}

#[test]
fn tiers_over_the_goal_are_merged() {
    let files: Vec<SstableInfo> = [run(1, 400 * MIB, 64), run(2, 40 * MIB, 4), run(3, 50 * MIB, 8)]
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(next(&small(&[]), &state(&files)), None);
    assert_eq!(next(&small(&[("space_amplification_goal", "1.25")]), &state(&files)), None);
    let plan = next(&small(&[("space_amplification_goal", "1.2")]), &state(&files)).unwrap();
    assert_eq!(plan.inputs.len(), 76);
    assert_eq!(plan.reason, Reason::SpaceAmplification { runs: 3, percent: 123 });
    // One tier is no two.
    let one = run(1, 400 * MIB, 64);
    assert_eq!(next(&small(&[("space_amplification_goal", "1.01")]), &state(&one)), None);
}

#[test]
fn small_files_are_cut_before_a_major_compaction() {
    let mut files = run(1, 64 * MIB, 8);
    files.push(file(900, 0, 2 * MIB, (0, 1000)));
    files.push(file(901, 0, MIB, (0, 1000)));
    let plans = before_major(&small(&[]), &state(&files));
    assert_eq!(plans.len(), 1);
    assert_eq!(inputs(&plans[0]), [900, 901]);
    assert!(matches!(&plans[0].cut, Cut::AtTokens(tokens) if tokens.len() == 7));
    // Alone they are merged at once, as are files of other strategies.
    assert_eq!(before_major(&small(&[]), &state(&files[8..])), []);
    let tiered = options("SizeTieredCompactionStrategy", &[]);
    assert_eq!(before_major(&tiered, &state(&files)), []);
}
