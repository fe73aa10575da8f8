use stdx::{DeletionSeconds, TimestampMicros};

use super::*;
use crate::testing::{MIB, Table, file, inputs, options, state};
use crate::{CompactionOptions, next};

fn unified(scaling: &str) -> CompactionOptions {
    options(
        "UnifiedCompactionStrategy",
        &[
            ("scaling_parameters", scaling),
            ("flush_size_override", "10MiB"),
            ("target_sstable_size", "100MiB"),
            ("min_sstable_size", "10MiB"),
        ],
    )
}

#[test]
fn scaling_parameters_give_fan_out_and_threshold() {
    let of = |text: &str| unified(text).unified;
    let both = |text: &str| (of(text).fanout(0), of(text).threshold(0));
    assert_eq!(both("T4"), (4, 4));
    assert_eq!(both("L10"), (10, 2));
    assert_eq!(both("N"), (2, 2));
    assert_eq!(both("-3"), (5, 2));
    let several = of("T8, N, L4");
    assert_eq!([several.threshold(0), several.threshold(1), several.threshold(7)], [8, 2, 2]);
    assert_eq!(several.fanout(7), 4);
}

/// Results of Controller.getNumShards of Cassandra 5.0 with the same options.
#[test]
fn denser_outputs_are_cut_into_more_shards() {
    let options = UnifiedOptions {
        base_shard_count: 4,
        target_sstable_size: 1 << 30,
        min_sstable_size: 100 << 20,
        growth: 0.0,
        ..UnifiedOptions::default()
    };
    let shards = |mib: u64| options.shards((mib * MIB) as f64);
    assert_eq!([shards(1), shards(150), shards(250), shards(399)], [1, 1, 2, 2]);
    assert_eq!([shards(400), shards(4 << 10), shards(5_700), shards(6_000)], [4, 4, 4, 8]);
    assert_eq!(shards(64 << 10), 64);
    let grown = UnifiedOptions { growth: 0.333, ..options.clone() };
    assert_eq!(grown.shards((64_u64 << 30) as f64), 32);
    let fixed = UnifiedOptions { growth: 1.0, ..options };
    assert_eq!(fixed.shards((64_u64 << 30) as f64), 4);
    assert_eq!(fixed.shards(f64::NAN), 4);
}

#[test]
fn the_ring_is_cut_evenly_and_boundaries_stay_when_shards_double() {
    assert_eq!(boundaries(1), []);
    assert_eq!(boundaries(2), [Token(0)]);
    let (four, eight) = (boundaries(4), boundaries(8));
    assert_eq!((four.len(), eight.len()), (3, 7));
    assert!(four.iter().all(|t| eight.contains(t)));
}

#[test]
fn as_many_overlaps_as_the_threshold_are_merged_with_all_that_is_connected() {
    let files = [
        file(1, 0, 5 * MIB, (0, 400)),
        file(2, 0, 5 * MIB, (300, 700)),
        file(3, 0, 5 * MIB, (600, 1000)),
    ];
    // Two over one token at most: enough for leveled, not for tiered by three.
    assert_eq!(next(&unified("T3"), &state(&files)), None);
    let plan = next(&unified("L3"), &state(&files)).unwrap();
    assert_eq!(inputs(&plan), [1, 2, 3]);
    assert_eq!(plan.reason, Reason::Overlap { level: 0, overlap: 2, files: 3 });
    let mut none = unified("L3");
    none.unified.overlap = OverlapInclusion::None;
    assert_eq!(inputs(&next(&none, &state(&files)).unwrap()), [1, 2]);
    let apart = [file(1, 0, 5 * MIB, (0, 400)), file(2, 0, 5 * MIB, (500, 700))];
    assert_eq!(next(&unified("L3"), &state(&apart)), None);
}

#[test]
fn files_of_different_density_are_in_different_levels() {
    // The first level ends at 10 MiB * (1 - 0.9 / 2) * 2, the next at twice that.
    let files = [
        file(1, 0, 10 * MIB, (0, 1000)),
        file(2, 0, 12 * MIB, (0, 1000)),
        file(3, 0, 25 * MIB, (0, 1000)),
    ];
    assert_eq!(next(&unified("N"), &state(&files)), None);
    let options = unified("N").unified;
    let found = levels(&files, &options, None);
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn a_table_at_rest_has_fewer_overlaps_than_thresholds_of_all_levels() {
    for (scaling, per_level, written_max) in [("T4", 3, 6), ("L4", 1, 14), ("N", 1, 9)] {
        let mut table = Table::new(unified(scaling));
        for n in 0..256 {
            table.flush(10 * MIB, n);
        }
        let levels = levels(&table.files, &table.options.unified, None).len();
        assert!(
            table.overlap() <= per_level * levels,
            "{scaling}: {} files over one token in {levels} levels",
            table.overlap()
        );
        let factor = table.written / (256 * 10 * MIB);
        assert!(factor <= written_max, "{scaling}: every byte is written {factor} times");
    }
}

#[test]
fn what_has_expired_goes_whole_where_nothing_overlaps_unless_something_alive_is_older() {
    let mut files =
        [file(1, 0, 10 * MIB, (0, 300)), file(2, 0, 10 * MIB, (400, 999)), file(3, 0, MIB, (0, 1))];
    (files[1].min_timestamp, files[2].min_timestamp) = (TimestampMicros(5), TimestampMicros(5));
    assert_eq!(next(&unified("T4"), &state(&files)), None);
    files[0].max_local_deletion_time = DeletionSeconds(999);
    let plan = next(&unified("T4"), &state(&files)).unwrap();
    assert_eq!((inputs(&plan), plan.expired.len()), (vec![1], 1));
    assert_eq!(plan.reason, Reason::Expired { files: 1 });
    files[1].min_timestamp.0 = 1;
    assert_eq!(next(&unified("T4"), &state(&files)), None);
}
