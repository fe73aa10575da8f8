use stdx::DeletionSeconds;

use super::*;
use crate::testing::{MIB, Table, file, inputs, options, state};
use crate::{CompactionOptions, next};

fn hours() -> CompactionOptions {
    options(
        "TimeWindowCompactionStrategy",
        &[("compaction_window_unit", "HOURS"), ("compaction_window_size", "1")],
    )
}

const HOUR: i64 = 3_600_000_000;

fn at(generation: u64, timestamp: i64) -> SstableInfo {
    let mut file = file(generation, 0, 100 * MIB, (0, 1000));
    file.max_timestamp.0 = timestamp;
    file.min_timestamp.0 = timestamp - 10;
    file
}

#[test]
fn a_window_begins_at_a_multiple_of_its_length() {
    let of = |unit: i64, ticks: i64, timestamp: i64| {
        TimeWindowOptions { window_seconds: unit, ticks_per_second: ticks, age_seconds_max: None }
            .window_of(timestamp)
    };
    assert_eq!(of(3_600, 1_000_000, 2 * HOUR - 1), 3_600);
    assert_eq!(of(3_600, 1_000_000, 2 * HOUR), 7_200);
    assert_eq!(of(86_400, 1_000, 86_400_000 * 3 + 5), 3 * 86_400);
    assert_eq!(of(60, 1, -1), 0);
}

#[test]
fn an_old_window_needs_two_files_and_the_newest_as_many_as_by_size() {
    let newest = [at(1, 5 * HOUR), at(2, 5 * HOUR + 1), at(3, 5 * HOUR + 2)];
    assert_eq!(next(&hours(), &state(&newest)), None);
    let mut files = newest.to_vec();
    files.push(at(4, 4 * HOUR));
    assert_eq!(next(&hours(), &state(&files)), None);
    files.push(at(5, 4 * HOUR + 9));
    let plan = next(&hours(), &state(&files)).unwrap();
    assert_eq!(inputs(&plan), [4, 5]);
    assert_eq!(plan.reason, Reason::Window { start: 4 * 3_600, files: 2 });
    files.push(at(6, 5 * HOUR + 3));
    assert_eq!(inputs(&next(&hours(), &state(&files)).unwrap()), [1, 2, 3, 6], "newest first");
    // Files of different sizes are not merged in the newest window.
    files[0].size_bytes *= 10;
    assert_eq!(inputs(&next(&hours(), &state(&files)).unwrap()), [4, 5]);
}

#[test]
fn what_has_expired_goes_whole_unless_something_alive_is_older() {
    let mut files = [at(1, HOUR), at(2, 2 * HOUR), at(3, 3 * HOUR)];
    files[0].max_local_deletion_time = DeletionSeconds(999);
    let plan = next(&hours(), &state(&files)).unwrap();
    assert_eq!((inputs(&plan), plan.expired.len()), (vec![1], 1));
    files[2].min_timestamp.0 = HOUR;
    assert_eq!(next(&hours(), &state(&files)), None);
}

#[test]
fn a_series_ends_with_one_file_for_each_old_window() {
    let mut table = Table::new(hours());
    for n in 0..240 {
        table.flush(60 * MIB, 24 * HOUR + n * HOUR / 10);
    }
    let options = TimeWindowOptions { window_seconds: 3_600, ..TimeWindowOptions::default() };
    let windows = windows(table.files.iter(), &options);
    assert_eq!(windows.len(), 24);
    for (_, files) in windows.iter().rev().skip(1) {
        assert_eq!(files.len(), 1);
    }
    // Each byte is written at its flush, perhaps in its window, and once when that is over.
    assert!(table.written <= 3 * 240 * 60 * MIB, "{} bytes", table.written);
}

#[test]
fn files_above_the_age_of_date_tiered_compaction_stay_as_they_are() {
    // The state's time is 1,000,000 s.
    let at = |generation: u64, second: i64| SstableInfo {
        max_timestamp: stdx::TimestampMicros(second * 1_000_000),
        ..file(generation, 0, MIB, (0, 1000))
    };
    let files = [at(1, 300_000), at(2, 300_001), at(3, 999_999)];
    let class = "DateTieredCompactionStrategy";
    let young = options(class, &[("max_sstable_age_days", "20")]);
    assert_eq!(inputs(&crate::next(&young, &state(&files)).unwrap()), [1, 2]);
    let old = options(class, &[("max_sstable_age_days", "5")]);
    assert_eq!(crate::next(&old, &state(&files)), None);
}
