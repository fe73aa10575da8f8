use super::*;

/// A day and seventeen hours more than data lives.
const FLUSHES: u64 = 256;
const MIB: u64 = 1 << 20;

fn cost(name: &str, workload: Workload) -> Costs {
    let (_, options) = compared().into_iter().find(|(n, _)| *n == name).unwrap();
    let costs = run(&options, workload, FLUSHES);
    assert_eq!(costs.wrong, 0, "{name} {workload:?}");
    assert_eq!(costs.flushed, FLUSHES * FLUSH_ENTRIES * ENTRY_BYTES);
    costs
}

#[test]
fn windows_write_less_than_tiers_and_tiers_less_than_levels() {
    for workload in [Workload::Insert, Workload::Expiring] {
        let [windows, tiers, levels] =
            ["TWCS", "STCS", "LCS"].map(|name| cost(name, workload).write_amplification());
        assert!(windows < tiers && 2.0 * tiers < levels, "{windows} {tiers} {levels}");
        // Every version once for each of the four powers of four in 256, and at first.
        assert!((4.0..=5.0).contains(&tiers), "{tiers}");
    }
}

#[test]
fn a_read_looks_at_two_files_at_most_by_levels() {
    for workload in Workload::ALL {
        let costs = cost("LCS", workload);
        assert!(costs.files_per_read_max <= 2, "{workload:?} {costs:?}");
        assert!(costs.files_per_read < 1.1, "{workload:?} {costs:?}");
    }
    // With other strategies overwritten keys are in many files.
    assert!(cost("STCS", Workload::Overwrite).files_per_read > 3.0);
}

#[test]
fn windows_need_space_for_one_of_them_and_hold_one_more_than_they_must() {
    let costs = cost("TWCS", Workload::Expiring);
    let windows = 86_400.0 / (4.0 * 3_600.0);
    assert!(costs.temporary_share <= 1.0 / windows, "{costs:?}");
    assert!(costs.space_max <= 1.0 + 1.5 / windows, "{costs:?}");
}

#[test]
fn temporary_space_is_bounded_by_shards_and_by_fragments() {
    let tiers = cost("STCS", Workload::Insert);
    assert!(tiers.temporary_share > 0.99, "{tiers:?}");
    // The base shard count of unified compaction is four.
    let unified = cost("UCS", Workload::Insert);
    assert!(unified.temporary_share < 0.26, "{unified:?}");
    for workload in Workload::ALL {
        // At most four runs of similar size, each with a fragment of 1000 MiB.
        let runs = cost("ICS", workload);
        assert!(runs.temporary <= 4 * 1_000 * MIB, "{workload:?} {runs:?}");
        // It writes what size-tiered compaction writes.
        let tiers = cost("STCS", workload);
        assert_eq!(runs.written, tiers.written, "{workload:?}");
    }
}

#[test]
fn the_bound_of_fragments_stays_as_the_table_grows() {
    let (_, mut options) = compared().into_iter().find(|(n, _)| *n == "ICS").unwrap();
    options.incremental.fragment_size = 300 * MIB;
    let [small, large] = [64, 256].map(|flushes| run(&options, Workload::Insert, flushes));
    assert!(large.bytes == 4 * small.bytes);
    for costs in [small, large] {
        assert!(costs.temporary <= 4 * 300 * MIB, "{costs:?}");
    }
}

#[test]
fn a_goal_for_space_is_kept_for_more_writing() {
    let [goal, none] = ["ICS, goal 1.5", "ICS"].map(|name| cost(name, Workload::Overwrite));
    assert!(goal.space < 1.5 && none.space > 2.0 * goal.space, "{goal:?} {none:?}");
    assert!(goal.written > none.written);
}
