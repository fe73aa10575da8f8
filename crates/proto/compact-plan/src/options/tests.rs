use super::*;

fn parse(pairs: &[(&str, &str)]) -> Result<CompactionOptions, OptionsError> {
    parse_options(pairs.iter().copied())
}

/// The text for one option of one strategy, or nothing when it is accepted.
fn check(class: &str, option: (&str, &str), expect: Option<&str>) {
    let result = parse(&[("class", class), option]);
    let message = result.err().map(|e| e.message);
    assert_eq!(message.as_deref(), expect, "{class} {option:?}");
}

const STCS: &str = "SizeTieredCompactionStrategy";
const LCS: &str = "LeveledCompactionStrategy";
const TWCS: &str = "TimeWindowCompactionStrategy";
const UCS: &str = "UnifiedCompactionStrategy";
const ICS: &str = "IncrementalCompactionStrategy";
const DTCS: &str = "DateTieredCompactionStrategy";

#[test]
fn the_default_is_what_parsing_its_map_gives() {
    let default = CompactionOptions::default();
    let pairs = default.map.iter().map(|(k, v)| (k.as_str(), v.as_str()));
    assert_eq!(parse_options(pairs), Ok(default.clone()));
    assert_eq!(parse(&[("class", STCS)]), Ok(default));
}

#[test]
fn classes_are_known_with_and_without_their_package() {
    for strategy in Strategy::ALL {
        assert_eq!(Strategy::from_class(strategy.simple_name()), Ok(strategy));
        assert_eq!(Strategy::from_class(&strategy.class_name()), Ok(strategy));
    }
    assert_eq!(
        parse(&[]).unwrap_err().message,
        "Missing sub-option 'class' for the 'compaction' option"
    );
    assert_eq!(
        parse(&[("class", "Nope")]).unwrap_err().message,
        "Unable to find compaction strategy class 'org.apache.cassandra.db.compaction.Nope'"
    );
    assert_eq!(
        parse(&[("class", "a.Nope")]).unwrap_err().message,
        "Unable to find compaction strategy class 'a.Nope'"
    );
}

#[test]
fn options_of_all_strategies_are_checked_with_their_texts() {
    for class in [STCS, LCS, TWCS, UCS, ICS, DTCS] {
        for (option, expect) in [
            (("tombstone_threshold", "0.5"), None),
            (
                ("tombstone_threshold", "-1"),
                Some("tombstone_threshold must be greater than 0, but was -1.000000"),
            ),
            (
                ("tombstone_threshold", "x"),
                Some("x is not a parsable int (base10) for tombstone_threshold"),
            ),
            (
                ("tombstone_compaction_interval", "-5"),
                Some("tombstone_compaction_interval must be greater than 0, but was -5"),
            ),
            (
                ("tombstone_compaction_interval", "1d"),
                Some("1d is not a parsable int (base10) for tombstone_compaction_interval"),
            ),
            (
                ("unchecked_tombstone_compaction", "maybe"),
                Some(
                    "'unchecked_tombstone_compaction' should be either 'true' or 'false', not 'maybe'",
                ),
            ),
            (("log_all", "1"), Some("'log_all' should either be 'true' or 'false', not 1")),
            (("enabled", "1"), Some("enabled should either be 'true' or 'false', not 1")),
            (("enabled", "FALSE"), None),
            (
                ("provide_overlapping_tombstones", "some"),
                Some(
                    "Invalid value SOME for 'provide_overlapping_tombstones' compaction sub-option \
                     - must be one of the following [NONE, ROW, CELL].",
                ),
            ),
            (("provide_overlapping_tombstones", "row"), None),
        ] {
            check(class, option, expect);
        }
        let message = format!("Properties specified [x] are not understood by {class}");
        check(class, ("x", "y"), Some(&message));
    }
}

#[test]
fn size_tiered_options_are_checked_with_their_texts() {
    for class in [STCS, LCS, TWCS] {
        check(class, ("min_sstable_size", "0"), None);
        check(class, ("min_sstable_size", "-1"), Some("min_sstable_size must be non negative: -1"));
        check(
            class,
            ("min_sstable_size", "50MiB"),
            Some("50MiB is not a parsable int (base10) for min_sstable_size"),
        );
        check(class, ("bucket_low", "x"), Some("x is not a parsable float for bucket_low"));
        check(
            class,
            ("bucket_high", "0.5"),
            Some("bucket_high value (0.5) is less than or equal to the bucket_low value (0.5)"),
        );
        check(class, ("bucket_high", "0.51"), None);
    }
}

#[test]
fn thresholds_are_checked_with_their_texts() {
    let removed = "Disabling compaction by setting compaction thresholds to 0 has been removed, \
                   set the compaction option 'enabled' to false instead.";
    for (option, expect) in [
        (("min_threshold", "2"), None),
        (("min_threshold", "1"), Some("Min compaction threshold cannot be less than 2 (got 1)")),
        (("min_threshold", "0"), Some(removed)),
        (("max_threshold", "0"), Some(removed)),
        (
            ("max_threshold", "3"),
            Some(
                "Min compaction threshold (got 4) cannot be greater than max compaction threshold \
                 (got 3)",
            ),
        ),
        (
            ("min_threshold", "-1"),
            Some("Invalid value -1 for 'min_threshold' compaction sub-option - must be an integer"),
        ),
    ] {
        check(STCS, option, expect);
    }
    check(
        UCS,
        ("min_threshold", "4"),
        Some(
            "Properties specified [min_threshold] are not understood by UnifiedCompactionStrategy",
        ),
    );
}

#[test]
fn leveled_options_are_checked_with_their_texts() {
    check(LCS, ("sstable_size_in_mb", "160"), None);
    check(
        LCS,
        ("sstable_size_in_mb", "0"),
        Some("sstable_size_in_mb must be larger than 0, but was 0"),
    );
    check(
        LCS,
        ("sstable_size_in_mb", "x"),
        Some("x is not a parsable int (base10) for sstable_size_in_mb"),
    );
    check(LCS, ("fanout_size", "0"), Some("fanout_size must be larger than 0, but was 0"));
    // Cassandra's text names the other option's value here.
    let absurd = "At most 9223372036854775807 bytes may be in a compaction level; your \
                  maxSSTableSize must be absurdly high to compute 104857600000000000000000";
    check(LCS, ("sstable_size_in_mb", "1000000000"), Some(absurd));
    check(LCS, ("sstable_size_in_mb", "80000"), None);
    check(LCS, ("fanout_size", "x"), Some("x is not a parsable int (base10) for fanout_size"));
    check(LCS, ("single_sstable_uplevel", "true"), None);
    assert_eq!(Strategy::Leveled.default_bloom_filter_fp_chance(), 0.1);
}

#[test]
fn time_window_options_are_checked_with_their_texts() {
    check(TWCS, ("compaction_window_unit", "HOURS"), None);
    check(
        TWCS,
        ("compaction_window_unit", "SECONDS"),
        Some("SECONDS is not valid for compaction_window_unit"),
    );
    check(TWCS, ("timestamp_resolution", "SECONDS"), None);
    check(
        TWCS,
        ("timestamp_resolution", "DAYS"),
        Some("DAYS is not valid for timestamp_resolution"),
    );
    check(
        TWCS,
        ("compaction_window_size", "0"),
        Some("0 must be greater than 1 for compaction_window_size"),
    );
    check(
        TWCS,
        ("compaction_window_size", "x"),
        Some("x is not a parsable int (base10) for compaction_window_size"),
    );
    check(
        TWCS,
        ("expired_sstable_check_frequency_seconds", "-1"),
        Some("expired_sstable_check_frequency_seconds must not be negative, but was -1"),
    );
    check(
        TWCS,
        ("unsafe_aggressive_sstable_expiration", "x"),
        Some("unsafe_aggressive_sstable_expiration is not 'true' or 'false' (x)"),
    );
    check(
        TWCS,
        ("unsafe_aggressive_sstable_expiration", "true"),
        Some(
            "unsafe_aggressive_sstable_expiration is requested but not allowed, restart cassandra \
             with -Dcassandra.allow_unsafe_aggressive_sstable_expiration=true to allow it",
        ),
    );
}

#[test]
fn unified_options_are_checked_with_their_texts() {
    for (option, expect) in [
        (("scaling_parameters", "T4, L10,N,-3"), None),
        (
            ("scaling_parameters", "X4"),
            Some("Scaling parameter X4 must match N|L[0-9]+|T[0-9]+|[+-]?[0-9]+"),
        ),
        (("scaling_parameters", "T1"), Some("Fan factor cannot be lower than 2 in T1")),
        (
            ("base_shard_count", "0"),
            Some("Invalid configuration, base_shard_count should be positive: 0"),
        ),
        (("base_shard_count", "x"), Some("x is not a parsable int (base10) for base_shard_count")),
        (("target_sstable_size", "1GiB"), None),
        (
            ("target_sstable_size", "1B"),
            Some("target_sstable_size 1B is not acceptable, size must be at least 1.000MiB"),
        ),
        (
            ("target_sstable_size", "x"),
            Some("target_sstable_size x is not a valid size in bytes: x does not end in unit B"),
        ),
        (
            ("flush_size_override", "1KiB"),
            Some("flush_size_override 1KiB is not acceptable, size must be at least 1.000MiB"),
        ),
        (("max_sstables_to_compact", "-1"), None),
        (
            ("max_sstables_to_compact", "x"),
            Some("x is not a parsable int (base10) for max_sstables_to_compact"),
        ),
        (
            ("expired_sstable_check_frequency_seconds", "0"),
            Some(
                "Invalid configuration, expired_sstable_check_frequency_seconds should be \
                 positive: 0",
            ),
        ),
        (
            ("expired_sstable_check_frequency_seconds", "x"),
            Some("x is not a parsable long (base10) for expired_sstable_check_frequency_seconds"),
        ),
        (
            ("unsafe_aggressive_sstable_expiration", "x"),
            Some("unsafe_aggressive_sstable_expiration should either be 'true' or 'false', not x"),
        ),
        (("overlap_inclusion_method", "single"), None),
        (
            ("overlap_inclusion_method", "x"),
            Some(
                "Invalid overlap inclusion method x. The valid options are [NONE, SINGLE, \
                 TRANSITIVE].",
            ),
        ),
        (("min_sstable_size", "100MiB"), None),
        (
            ("min_sstable_size", "1GiB"),
            Some(
                "Invalid configuration, min_sstable_size (1.000GiB) should be less than 70% of \
                 the targetSSTableSize (1.000GiB)",
            ),
        ),
        (("min_sstable_size", "x"), Some("x is not a valid size in bytes for min_sstable_size")),
        (("sstable_growth", "33.3%"), None),
        (("sstable_growth", "1.1"), Some("sstable_growth 1.1 must be between 0 and 1")),
    ] {
        check(UCS, option, expect);
    }
    let options = parse(&[("class", UCS)]).unwrap();
    assert!(!options.map.contains_key("min_threshold"));
    assert_eq!(options.size_tiered, SizeTieredOptions::default());
}

#[test]
fn values_reach_the_pickers() {
    let options = parse(&[
        ("class", STCS),
        ("min_threshold", "2"),
        ("max_threshold", "8"),
        ("min_sstable_size", "1024"),
        ("bucket_low", "0.4"),
        ("bucket_high", "1.9"),
        ("tombstone_threshold", "0.3"),
        ("tombstone_compaction_interval", "60"),
        ("unchecked_tombstone_compaction", "true"),
        ("only_purge_repaired_tombstones", "true"),
        ("enabled", "false"),
    ])
    .unwrap();
    assert!(!options.enabled);
    assert_eq!(
        options.size_tiered,
        SizeTieredOptions {
            min_threshold: 2,
            max_threshold: 8,
            min_sstable_size: 1024,
            bucket_low: 0.4,
            bucket_high: 1.9,
        }
    );
    assert_eq!(
        options.tombstones,
        TombstoneOptions {
            threshold: 0.3,
            compaction_interval_seconds: 60,
            unchecked: true,
            only_purge_repaired: true,
            provide_overlapping: TombstoneOption::None,
            alone: true,
        }
    );
    assert_eq!(
        options.map["class"],
        "org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy"
    );
}

#[test]
fn incremental_options_are_checked_and_read() {
    check(ICS, ("sstable_size_in_mb", "1"), None);
    check(
        ICS,
        ("sstable_size_in_mb", "0"),
        Some("sstable_size_in_mb must be larger than 0, but was 0"),
    );
    check(
        ICS,
        ("sstable_size_in_mb", "1GB"),
        Some("1GB is not a parsable int (base10) for sstable_size_in_mb"),
    );
    check(ICS, ("space_amplification_goal", "1.25"), None);
    check(
        ICS,
        ("space_amplification_goal", "1.0"),
        Some("space_amplification_goal must be greater than 1.0, but was 1.0"),
    );
    check(
        ICS,
        ("space_amplification_goal", "much"),
        Some("much is not a parsable float for space_amplification_goal"),
    );
    check(
        ICS,
        ("fanout_size", "4"),
        Some(
            "Properties specified [fanout_size] are not understood by IncrementalCompactionStrategy",
        ),
    );
    let default = parse(&[("class", ICS)]).unwrap();
    assert_eq!(default.incremental, IncrementalOptions::default());
    assert_eq!(default.size_tiered.min_sstable_size, 50 << 20);
    assert_eq!(default.warning(), None);
    let given = parse(&[
        ("class", ICS),
        ("sstable_size_in_mb", "7"),
        ("min_sstable_size", "3"),
        ("space_amplification_goal", "1.5"),
        ("max_threshold", "9"),
    ])
    .unwrap();
    assert_eq!(given.incremental.fragment_size, 7 << 20);
    assert_eq!(given.incremental.space_amplification_goal, Some(1.5));
    assert_eq!((given.size_tiered.min_sstable_size, given.size_tiered.max_threshold), (3 << 20, 9));
}

#[test]
fn date_tiered_options_become_a_window_and_are_kept() {
    let window = |more: &[(&str, &str)]| {
        let mut map = vec![("class", DTCS)];
        map.extend_from_slice(more);
        parse(&map).unwrap().time_window
    };
    // 60 s, multiplied by four as long as it is at most a day.
    assert_eq!(window(&[]).window_seconds, 61_440);
    assert_eq!(window(&[("base_time_seconds", "3600")]).window_seconds, 57_600);
    assert_eq!(
        window(&[("base_time_seconds", "3600"), ("max_window_size_seconds", "3600")])
            .window_seconds,
        3_600
    );
    assert_eq!(
        window(&[("base_time_seconds", "100"), ("min_threshold", "10")]).window_seconds,
        10_000
    );
    assert_eq!(window(&[("max_sstable_age_days", "0.5")]).age_seconds_max, Some(43_200));
    assert_eq!(window(&[]).age_seconds_max, None);
    assert_eq!(window(&[("timestamp_resolution", "MILLISECONDS")]).ticks_per_second, 1_000);
    let parsed = parse(&[("class", DTCS), ("base_time_seconds", "3600")]).unwrap();
    assert_eq!(
        parsed.map["class"],
        "org.apache.cassandra.db.compaction.DateTieredCompactionStrategy"
    );
    assert_eq!(parsed.map["base_time_seconds"], "3600");
    assert_eq!(
        parsed.warning().unwrap(),
        "DateTieredCompactionStrategy was removed from Cassandra; the table is compacted as by \
         TimeWindowCompactionStrategy with windows of 57600 seconds"
    );
    for (option, expect) in [
        (("base_time_seconds", "0"), Some("base_time_seconds must be greater than 0, but was 0")),
        (
            ("max_window_size_seconds", "x"),
            Some("x is not a parsable int (base10) for max_window_size_seconds"),
        ),
        (("max_sstable_age_days", "-1"), Some("max_sstable_age_days must be non-negative: -1.00")),
        (("max_sstable_age_days", "0.25"), None),
        (("timestamp_resolution", "WEEKS"), Some("timestamp_resolution WEEKS is not valid")),
        (
            ("compaction_window_size", "1"),
            Some(
                "Properties specified [compaction_window_size] are not understood by \
                 DateTieredCompactionStrategy",
            ),
        ),
    ] {
        check(DTCS, option, expect);
    }
}

#[test]
fn windows_wait_for_whole_files_unless_tombstones_are_spoken_of() {
    let alone = |class: &str, more: &[(&str, &str)]| {
        let mut map = vec![("class", class)];
        map.extend_from_slice(more);
        parse(&map).unwrap().tombstones.alone
    };
    for class in [STCS, LCS, UCS, ICS] {
        assert!(alone(class, &[]), "{class}");
    }
    for class in [TWCS, DTCS] {
        assert!(!alone(class, &[]), "{class}");
        assert!(alone(class, &[("tombstone_threshold", "0.3")]), "{class}");
        assert!(alone(class, &[("unchecked_tombstone_compaction", "true")]), "{class}");
        assert!(!alone(class, &[("unchecked_tombstone_compaction", "false")]), "{class}");
    }
}
