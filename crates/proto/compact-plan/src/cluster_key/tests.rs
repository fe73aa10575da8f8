use std::collections::BTreeSet;

use stdx::{DeletionSeconds, Generation, WallMicros};

use super::*;
use crate::testing::{MIB, file, inputs, options, state};
use crate::{before_major, major, next, user_defined};

fn tens() -> CompactionOptions {
    options("ClusterKeyCompactionStrategy", &[("compaction_window_unit", "TENS")])
        .for_table(Some(("c", "int")))
        .unwrap()
}

fn in_windows(generation: u64, windows: Option<(i64, i64)>) -> SstableInfo {
    SstableInfo {
        windows,
        created_at: WallMicros(i64::try_from(generation).unwrap()),
        ..file(generation, 0, 100 * MIB, (0, 1000))
    }
}

fn shared(generation: u64, windows: Option<(i64, i64)>) -> SstableInfo {
    SstableInfo { level: SHARED_LEVEL, ..in_windows(generation, windows) }
}

#[test]
fn files_of_one_window_are_merged_by_size_the_newest_window_first() {
    let mut files: Vec<SstableInfo> = (1..=3).map(|n| in_windows(n, Some((7, 7)))).collect();
    files.extend((4..=6).map(|n| in_windows(n, Some((-2, -2)))));
    assert_eq!(next(&tens(), &state(&files)), None);
    files.push(in_windows(7, Some((-2, -2))));
    let plan = next(&tens(), &state(&files)).unwrap();
    assert_eq!(inputs(&plan), [4, 5, 6, 7]);
    assert_eq!(plan.reason, Reason::KeyWindow { window: -2, files: 4 });
    assert_eq!((plan.cut, plan.level), (Cut::Never, 0));
    assert_eq!(estimated_tasks(&files, &tens().size_tiered), 1);
    files.push(in_windows(8, Some((7, 7))));
    assert_eq!(inputs(&next(&tens(), &state(&files)).unwrap()), [1, 2, 3, 8]);
    // One much larger than the others is left alone.
    files[7].size_bytes *= 10;
    assert_eq!(inputs(&next(&tens(), &state(&files)).unwrap()), [4, 5, 6, 7]);
}

#[test]
fn mixed_files_are_distributed_when_there_are_enough_of_them_with_the_oldest_one() {
    let mut files = vec![
        in_windows(1, Some((0, 1))),
        in_windows(2, Some((500, 501))),
        in_windows(3, Some((3, 9))),
        // At another level: by leveled compaction, or shared.
        in_windows(5, Some((0, 0))),
    ];
    assert_eq!(next(&tens(), &state(&files)), None);
    files.push(in_windows(4, Some((14, 15))));
    let plan = next(&tens(), &state(&files)).unwrap();
    assert_eq!(inputs(&plan), [1, 3, 4], "what is far away would need more windows");
    assert_eq!((&plan.cut, plan.level), (&Cut::AtWindows, 0));
    assert_eq!(plan.reason, Reason::Distribution { files: 3 });
    // The oldest one has its turn, however far it is.
    files[1].created_at = WallMicros(0);
    assert_eq!(inputs(&next(&tens(), &state(&files)).unwrap()), [2]);
    // Files with unknown windows go together.
    files[1].windows = None;
    files[2].windows = None;
    assert_eq!(inputs(&next(&tens(), &state(&files)).unwrap()), [2, 3]);
}

#[test]
fn shared_files_are_merged_and_never_distributed_for_themselves() {
    let mut files: Vec<SstableInfo> = (1..=3).map(|n| shared(n, None)).collect();
    assert_eq!(next(&tens(), &state(&files)), None);
    assert_eq!(before_major(&tens(), &state(&files)), []);
    files.push(shared(4, Some((0, 9))));
    let plan = next(&tens(), &state(&files)).unwrap();
    assert_eq!((inputs(&plan), plan.cut, plan.level), (vec![1, 2, 3, 4], Cut::AtWindows, 0));
}

#[test]
fn a_major_compaction_sorts_first_and_then_takes_each_window_alone() {
    let mut files = vec![
        in_windows(1, Some((0, 3))),
        in_windows(2, Some((0, 0))),
        in_windows(3, Some((0, 0))),
        in_windows(4, Some((2, 2))),
        shared(5, None),
    ];
    files[3].repaired_at = 1;
    let first = before_major(&tens(), &state(&files));
    assert_eq!(first.iter().map(inputs).collect::<Vec<_>>(), [vec![1]]);
    files.remove(0);
    assert_eq!(before_major(&tens(), &state(&files)), []);
    let plans = major(&tens(), &state(&files));
    assert_eq!(plans.iter().map(inputs).collect::<Vec<_>>(), [vec![4], vec![2, 3], vec![5]]);
    assert!(plans.iter().all(|p| p.reason == Reason::Major));
}

#[test]
fn named_files_are_sorted_into_windows_too() {
    let files = [in_windows(1, Some((0, 0))), in_windows(2, Some((4, 4)))];
    let named = [Generation(1), Generation(2)];
    let plan = user_defined(&named, &tens(), &state(&files)).unwrap();
    assert_eq!(plan.cut, Cut::AtWindows);
}

#[test]
fn a_window_that_has_expired_goes_whole() {
    let mut files = [in_windows(1, Some((1, 1))), in_windows(2, Some((2, 2)))];
    files[0].max_local_deletion_time = DeletionSeconds(999);
    files[1].min_timestamp.0 = 50;
    files[0].max_timestamp.0 = 40;
    let plan = next(&tens(), &state(&files)).unwrap();
    assert_eq!((inputs(&plan), plan.expired.len()), (vec![1], 1));
}

/// Mimics the executor's distribution: each of the first windows gets a file, the others share
/// files by ranges of windows.
fn distributed(windows: &BTreeSet<i64>) -> Vec<BTreeSet<i64>> {
    let mut files: Vec<BTreeSet<i64>> = Vec::new();
    let mut stretches: BTreeMap<i64, BTreeSet<i64>> = BTreeMap::new();
    for window in windows {
        match files.len() < DIRECT_WINDOWS {
            true => files.push(BTreeSet::from([*window])),
            false => drop(stretches.entry(window.div_euclid(64)).or_default().insert(*window)),
        }
    }
    files.extend(stretches.into_values());
    files
}

#[test]
fn distributions_come_to_an_end_and_leave_fewer_mixed_files_than_the_threshold() {
    let options = tens();
    let mut drawn = 0_u64;
    let mut random = move |below: u64| {
        drawn =
            drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (drawn >> 33) % below
    };
    let (mut files, mut generation, mut plans): (Vec<(SstableInfo, BTreeSet<i64>)>, u64, u64) =
        (Vec::new(), 0, 0);
    let add = |generation: u64, windows: BTreeSet<i64>| {
        let span = (*windows.first().unwrap(), *windows.last().unwrap());
        (in_windows(generation, Some(span)), windows)
    };
    for flush in 0..200_i64 {
        // Mostly new rows, now and then old ones, a whole year once in a while.
        let from = if random(10) == 0 { 0 } else { flush };
        let width = if flush == 100 { 5_000 } else { 1 + random(4) as i64 };
        generation += 1;
        files.push(add(generation, (from..from + width).collect()));
        loop {
            let infos: Vec<SstableInfo> = files.iter().map(|(info, _)| info.clone()).collect();
            let Some(plan) = next(&options, &state(&infos)) else { break };
            plans += 1;
            assert!(plans < 20_000, "no end");
            let (taken, rest): (Vec<_>, Vec<_>) =
                files.into_iter().partition(|(info, _)| plan.inputs.contains(&info.generation));
            files = rest;
            let windows: BTreeSet<i64> = taken.into_iter().flat_map(|(_, w)| w).collect();
            let outputs = match plan.cut {
                Cut::AtWindows => distributed(&windows),
                _ => vec![windows],
            };
            for windows in outputs {
                generation += 1;
                files.push(add(generation, windows));
            }
        }
        let mixed = files.iter().filter(|(info, _)| place_of(info) == Place::Mixed).count();
        assert!(mixed < 4, "{mixed} after flush {flush}");
    }
    assert!(plans > 100, "{plans}");
}

#[test]
fn options_and_columns_are_checked() {
    let refused = |more: &[(&str, &str)]| {
        let class = [("class", "ClusterKeyCompactionStrategy")];
        crate::parse_options(class.into_iter().chain(more.iter().copied())).unwrap_err().message
    };
    let (unit, size, count) = ("compaction_window_unit", "compaction_window_size", "window_count");
    assert_eq!(refused(&[(unit, "WEEKS")]), "WEEKS is not valid for compaction_window_unit");
    assert_eq!(
        refused(&[(unit, "TENS"), (size, "0")]),
        "0 must be greater than 1 for compaction_window_size"
    );
    assert!(refused(&[(unit, "TENS"), (size, "x")]).starts_with("x is not a parsable int"));
    assert_eq!(refused(&[(size, "3")]), "compaction_window_size needs compaction_window_unit");
    assert_eq!(refused(&[(count, "1")]), "window_count must be from 2 to 1024, but was 1");
    assert!(refused(&[(count, "4"), (unit, "TENS")]).starts_with("window_count makes static"));
    assert!(refused(&[]).starts_with("ClusterKeyCompactionStrategy needs compaction_window_unit"));
    assert!(refused(&[(count, "4"), ("x", "y")]).contains("[x] are not understood by ClusterKey"));

    let options = options("ClusterKeyCompactionStrategy", &[(count, "4")]);
    let of = |first| options.clone().for_table(first).map(|o| o.cluster_key.windows.unwrap());
    assert_eq!(of(Some(("c", "smallint"))).unwrap().window_of(0), 2);
    assert_eq!(
        of(Some(("c", "text"))).unwrap_err().message,
        "ClusterKeyCompactionStrategy needs a first clustering column of type tinyint, smallint, int, \
         bigint or timestamp; c is of type text"
    );
    assert!(of(None).unwrap_err().message.ends_with("the table has none"));
}
