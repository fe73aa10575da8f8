use super::*;
use crate::testing::{MIB, Table, file, inputs, options, state};
use crate::{CompactionOptions, next};

fn leveled() -> CompactionOptions {
    options("LeveledCompactionStrategy", &[("sstable_size_in_mb", "100")])
}

fn planned(files: &[SstableInfo]) -> Option<Plan> {
    next(&leveled(), &state(files))
}

#[test]
fn little_in_level_0_stays_there_and_much_goes_up_with_what_it_overlaps() {
    assert_eq!(planned(&[file(1, 0, 30 * MIB, (0, 1000))]), None);
    let small = [file(1, 0, 30 * MIB, (0, 500)), file(2, 0, 40 * MIB, (200, 900))];
    let plan = planned(&small).unwrap();
    assert_eq!((inputs(&plan), plan.level), (vec![1, 2], 0));
    let much = [
        file(1, 0, 60 * MIB, (100, 300)),
        file(2, 0, 60 * MIB, (200, 400)),
        file(3, 1, 100 * MIB, (0, 150)),
        file(4, 1, 100 * MIB, (160, 350)),
        file(5, 1, 100 * MIB, (410, 700)),
        file(6, 2, 100 * MIB, (0, 1000)),
    ];
    let plan = planned(&much).unwrap();
    assert_eq!((inputs(&plan), plan.level), (vec![1, 2, 3, 4], 1));
    assert_eq!(plan.cut, Cut::AtBytes(100 * MIB));
}

#[test]
fn a_level_that_is_too_full_gives_the_file_that_overlaps_least_above() {
    // Level 1 may hold 1,000 MiB.
    let mut files: Vec<SstableInfo> =
        (0..11).map(|n| file(n as u64 + 1, 1, 100 * MIB, (n * 90, n * 90 + 80))).collect();
    files.push(file(20, 2, 100 * MIB, (0, 350)));
    files.push(file(21, 2, 100 * MIB, (360, 440)));
    files.push(file(22, 2, 90 * MIB, (450, 1000)));
    // File 5 (360 to 440) meets one of 100, those after it one of 90; the first of these is number
    // 6.
    let plan = planned(&files).unwrap();
    assert_eq!((inputs(&plan), plan.level), (vec![6, 22], 2));
    files.remove(0);
    assert_eq!(planned(&files), None, "1,000 MiB are not too much");
}

#[test]
fn files_of_a_level_that_overlap_count_as_level_0() {
    let files = [
        file(1, 1, 100 * MIB, (0, 500)),
        file(2, 1, 120 * MIB, (400, 600)),
        file(3, 1, 100 * MIB, (700, 800)),
    ];
    let found = levels(&files);
    let generations = |n: usize| found[n].iter().map(|f| f.generation.0).collect::<Vec<_>>();
    assert_eq!((generations(0), generations(1)), (vec![2], vec![1, 3]));
    let plan = planned(&files).unwrap();
    assert_eq!((inputs(&plan), plan.level), (vec![1, 2], 1));
}

#[test]
fn too_many_files_in_level_0_are_merged_by_size_before_a_higher_level_is_looked_at() {
    let mut files: Vec<SstableInfo> = (1..=40).map(|n| file(n, 0, 30 * MIB, (0, 1000))).collect();
    files.extend((0..11).map(|n| file(n as u64 + 50, 1, 100 * MIB, (n * 90, n * 90 + 80))));
    let plan = planned(&files).unwrap();
    assert_eq!((plan.inputs.len(), plan.level, plan.cut), (32, 0, Cut::Never));
}

#[test]
fn repaired_files_have_levels_of_their_own() {
    let mut files = [
        file(1, 0, 60 * MIB, (0, 500)),
        file(2, 0, 60 * MIB, (0, 500)),
        file(3, 1, 100 * MIB, (0, 500)),
        file(4, 1, 100 * MIB, (0, 500)),
    ];
    files[3].repaired_at = 7;
    assert_eq!(inputs(&planned(&files).unwrap()), [1, 2, 3]);
    files[0].pending_repair = Some(stdx::Uuid::from_u128(1));
    assert_eq!(planned(&files), None);
}

#[test]
fn a_table_at_rest_has_levels_without_overlaps_and_within_their_sizes() {
    let mut table = Table::new(leveled());
    for n in 0..400 {
        table.flush(30 * MIB, n);
        let levels = levels(&table.files);
        for (n, level) in levels.iter().enumerate().skip(1) {
            let kept = table.files.iter().filter(|f| f.level as usize == n).count();
            assert_eq!(level.len(), kept, "INV-leveled-1: level {n} has overlaps");
            let bytes = bytes_of(level.iter().copied());
            let max = LeveledOptions { sstable_size: 100 * MIB, ..LeveledOptions::default() }
                .level_bytes_max(n as u32);
            assert!(bytes as f64 <= max as f64 * 1.001, "level {n} has {bytes} bytes");
        }
        assert!(levels[0].len() < 4, "{} files stay in level 0", levels[0].len());
    }
    assert!(table.overlap() <= 5, "{} files over one token", table.overlap());
}

#[test]
fn a_major_compaction_fills_one_level() {
    let files: Vec<SstableInfo> = (1..=12).map(|n| file(n, 0, 100 * MIB, (0, 1000))).collect();
    let plans = crate::major(&leveled(), &state(&files));
    assert_eq!(plans.len(), 1);
    assert_eq!((plans[0].level, &plans[0].cut), (2, &Cut::AtBytes(100 * MIB)));
}
