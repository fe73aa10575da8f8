//! Replicas that have missed different writes, and what repair makes of them.

use std::time::Duration;

use dist_testing::table::{delete_partition, delete_range, delete_row, insert, insert_static};
use dist_testing::{Random, Replicas};
use internode::Verb;

use super::nodes::{Nodes, Options, full};
use crate::{RepairOptions, RepairSettings, RepairState};

const KEYS: i32 = 24;

/// Writes of which each is on some of three nodes, at least one.
fn divergent(seed: u64, count: i64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut random = Random(seed);
    let mut to = || match random.below(10) {
        0 => vec![1],
        1 => vec![2],
        2 => vec![3],
        3 => vec![1, 2],
        4 => vec![2, 3],
        5 => vec![1, 3],
        _ => vec![1, 2, 3],
    };
    let to: Vec<Vec<u8>> = (0..count).map(|_| to()).collect();
    (1..=count).map(|at| random.write(KEYS, at)).zip(to).collect()
}

fn everywhere(mutations: impl IntoIterator<Item = Vec<u8>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    mutations.into_iter().map(|m| (m, vec![1, 2, 3])).collect()
}

/// INV-repair-1 and INV-repair-2.
#[test]
fn repair_makes_replicas_equal_to_what_they_have_together() {
    for seed in 0..12 {
        let nodes = Nodes::start(&Options::new(seed));
        let writes = divergent(seed, 400);
        nodes.write_all(&writes[..250]);
        if seed % 2 == 1 {
            nodes.flush(nodes.any());
        }
        nodes.write_all(&writes[250..]);
        assert!(nodes.check_equal().is_err(), "seed {seed}");
        let by = nodes.any();
        let options = RepairOptions { sequential: seed % 3 == 0, ..full() };
        let status = nodes.repair(by, options);
        assert_eq!(status.state, RepairState::Successful, "seed {seed} {:?}", status.lines);
        nodes.check_equal().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(status.counts.mutations > 0 && status.counts.differing > 0);
        assert_eq!(status.percent, 100);
        // No difference is left, from any node's point of view.
        let again = nodes.repair(nodes.any(), full());
        assert_eq!((again.counts.differing, again.counts.mutations), (0, 0), "seed {seed}");
        assert!(again.counts.segments > 0);
    }
}

#[test]
fn equal_replicas_exchange_digests_only() {
    let mut options = Options::new(3);
    options.settings = RepairSettings { bytes_per_second: 0, ..RepairSettings::default() };
    let nodes = Nodes::start(&options);
    let text = "x".repeat(1000);
    let rows = (0..40).flat_map(|pk| (0..100).map(move |ck| (pk, ck)));
    let writes = everywhere(rows.map(|(pk, ck)| insert(pk, ck, &text, 10)));
    nodes.write_all(&writes);
    (1..=3).for_each(|n| nodes.flush(n));
    for by in 1..=3 {
        let (before, served) = (nodes.traffic(), nodes.served(Verb::RepairHashes));
        let status = nodes.repair(by, full());
        assert_eq!(status.state, RepairState::Successful, "{:?}", status.lines);
        assert_eq!((status.counts.differing, status.counts.mutations), (0, 0));
        // Everything was read once: 4 MB of rows.
        let read = status.counts.bytes_read;
        assert!((4_000_000..5_200_000).contains(&read), "{read} bytes were read");
        let after = nodes.traffic();
        let (messages, bytes) = (after.0 - before.0, after.1 - before.1);
        let asked = nodes.served(Verb::RepairHashes) - served;
        assert!(asked <= 10, "{asked} questions");
        // Pings of the connections are among them.
        assert!(messages < 100 && bytes < 10_000, "{messages} messages of {bytes} bytes");
    }
    assert_eq!((nodes.served(Verb::RepairRows), nodes.served(Verb::Mutation)), (0, 0));
}

#[test]
fn two_nodes_in_sync_read_once_and_send_less_than_a_thousandth() {
    let mut options = Options::new(4);
    options.shards = vec![1, 1];
    options.factor = 2;
    options.settings = RepairSettings { bytes_per_second: 0, ..RepairSettings::default() };
    let nodes = Nodes::start(&options);
    let text = "x".repeat(2000);
    let rows = (0..80).flat_map(|pk| (0..100).map(move |ck| (pk, ck)));
    let writes: Vec<_> = rows.map(|(pk, ck)| (insert(pk, ck, &text, 10), vec![1, 2])).collect();
    nodes.write_all(&writes);
    (1..=2).for_each(|n| nodes.flush(n));
    let before = nodes.traffic().1;
    let status = nodes.repair(1, full());
    assert_eq!(status.counts.differing, 0);
    let (read, sent) = (status.counts.bytes_read, nodes.traffic().1 - before);
    assert!((16_000_000..17_500_000).contains(&read), "{read} bytes were read");
    assert!(sent < 16_000, "{sent} bytes were sent for {read}");
}

#[test]
fn rows_larger_than_a_segment_are_compared_too() {
    let nodes = Nodes::start(&Options::new(59));
    let rows = (0..12).map(|n| insert(n / 4, n % 4, &"x".repeat(20_000), 10));
    nodes.write_all(&everywhere(rows));
    let status = nodes.repair(3, full());
    assert_eq!((status.counts.differing, nodes.served(Verb::RepairRows)), (0, 0));
    nodes.write_all(&[(insert(1, 2, &"y".repeat(20_000), 20), vec![2])]);
    let status = nodes.repair(3, full());
    assert_eq!(status.counts.mutations, 2, "{:?}", status.counts);
    nodes.check_equal().unwrap();
}

#[test]
fn large_partitions_are_compared_by_rows() {
    for seed in [0, 1] {
        let nodes = Nodes::start(&Options::new(60 + seed));
        let text = "y".repeat(50);
        let mut writes = everywhere((0..400).map(|ck| insert(7, ck, &text, 10)));
        writes.extend(everywhere([insert_static(7, "s", 10), delete_range(7, 100, 150, 20)]));
        writes.push((insert(7, 30, "new", 30), vec![2]));
        writes.push((delete_row(7, 31, 30), vec![1]));
        writes.push((delete_range(7, 200, 260, 30), vec![3]));
        writes.push((insert_static(7, "t", 30), vec![1, 3]));
        nodes.write_all(&writes);
        let status = nodes.repair(1 + seed as u8, full());
        assert_eq!(status.state, RepairState::Successful, "{:?}", status.lines);
        nodes.check_equal().unwrap();
    }
}

#[test]
fn in_a_large_partition_one_row_is_found_without_sending_the_partition() {
    let mut options = Options::new(62);
    options.settings.segment_bytes = 64 << 10;
    options.settings.page_bytes = 8 << 10;
    let nodes = Nodes::start(&options);
    let text = "y".repeat(100);
    let mut writes = everywhere((0..2000).map(|ck| insert(7, ck, &text, 10)));
    writes.push((insert(7, 1234, "new", 30), vec![2]));
    nodes.write_all(&writes);
    let before = nodes.traffic();
    let status = nodes.repair(1, full());
    assert_eq!(status.counts.mutations, 2, "{:?}", status.counts);
    let bytes = nodes.traffic().1 - before.1;
    assert!(bytes < 40_000, "{bytes} bytes for one row");
    nodes.check_equal().unwrap();
}

#[test]
fn a_node_that_has_nothing_gets_everything_and_one_that_has_all_gives_it() {
    for (missed_by, by) in [(1, 1), (1, 2), (3, 1), (2, 2)] {
        let nodes = Nodes::start(&Options::new(70));
        let to: Vec<u8> = (1..=3).filter(|n| *n != missed_by).collect();
        let rows = (0..50).flat_map(|pk| (0..8).map(move |ck| (pk, ck)));
        let writes: Vec<_> =
            rows.map(|(pk, ck)| (insert(pk, ck, "some value", 10), to.clone())).collect();
        nodes.write_all(&writes);
        let status = nodes.repair(by, full());
        assert_eq!(status.state, RepairState::Successful, "{:?}", status.lines);
        nodes.check_equal().unwrap();
    }
}

#[test]
fn deleted_data_does_not_come_back_when_one_replica_missed_the_deletion() {
    for seed in 80..84 {
        let nodes = Nodes::start(&Options::new(seed));
        let rows = (0..3).flat_map(|pk| (0..10).map(move |ck| (pk, ck)));
        nodes.write_all(&everywhere(rows.map(|(pk, ck)| insert(pk, ck, "alive", 10))));
        let missed_by = nodes.any();
        let others: Vec<u8> = (1..=3).filter(|n| *n != missed_by).collect();
        let mut deletions = vec![delete_partition(0, 20), delete_range(1, 2, 9, 20)];
        deletions.extend((0..8).map(|ck| delete_row(2, ck, 20)));
        let deletions: Vec<_> = deletions.into_iter().map(|m| (m, others.clone())).collect();
        nodes.write_all(&deletions);
        nodes.repair(nodes.any(), full());
        // The oracle has every deletion: a row that came back would differ.
        nodes.check_equal().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

#[test]
fn a_preview_counts_and_changes_nothing() {
    let nodes = Nodes::start(&Options::new(90));
    nodes.write_all(&divergent(90, 200));
    let before: Vec<_> = (1..=3).map(|n| nodes.content(n)).collect();
    let preview = nodes.repair(2, RepairOptions { preview: true, ..full() });
    assert_eq!(preview.state, RepairState::Successful);
    assert!(preview.counts.mutations > 0 && preview.counts.mutation_bytes > 0);
    assert_eq!(before, (1..=3).map(|n| nodes.content(n)).collect::<Vec<_>>());
    assert_eq!(nodes.served(Verb::Mutation), 0);
    // Segments of one partition have its deletion each: sent once, counted in each by a preview.
    let done = nodes.repair(2, full());
    assert!((1..=preview.counts.mutations).contains(&done.counts.mutations));
    nodes.check_equal().unwrap();
}

#[test]
fn the_checker_sees_a_replica_that_forgets_what_it_is_sent() {
    let nodes = Nodes::start(&Options::new(91));
    nodes.write_all(&divergent(91, 100));
    nodes.lose_mutations_at(2);
    assert_eq!(nodes.repair(1, full()).state, RepairState::Successful);
    assert!(nodes.check_equal().is_err());
    // And so does the next repair.
    assert!(nodes.repair(3, full()).counts.mutations > 0);
}

#[test]
fn primary_ranges_of_all_nodes_are_all_ranges() {
    let nodes = Nodes::start(&Options::new(92));
    nodes.write_all(&divergent(92, 300));
    for n in 1..=3 {
        assert!(nodes.check_equal().is_err());
        let status = nodes.repair(n, RepairOptions { primary_range: true, ..full() });
        assert_eq!(status.state, RepairState::Successful, "{:?}", status.lines);
    }
    nodes.check_equal().unwrap();
}

#[test]
fn with_fewer_replicas_than_nodes_each_range_is_compared_with_its_own() {
    for seed in 93..97 {
        let options = Options { shards: vec![2, 1, 2, 1], factor: 2, ..Options::new(seed) };
        let nodes = Nodes::start(&options);
        // All rows that a node may have: rows outside its ranges are not touched.
        let mut random = Random(seed);
        let writes: Vec<_> = (1..=300)
            .map(|at| {
                let to = 1 + random.below(4) as u8;
                (random.write(KEYS, at), vec![to, 1 + to % 4])
            })
            .collect();
        nodes.write_all(&writes);
        for n in 1..=4 {
            let status = nodes.repair(n, full());
            assert_eq!(status.state, RepairState::Successful, "{:?}", status.lines);
        }
        for n in 1..=4 {
            let again = nodes.repair(n, full());
            assert_eq!((again.counts.differing, again.counts.mutations), (0, 0), "seed {seed}");
        }
    }
}

#[test]
fn reading_keeps_to_the_rate() {
    let mut options = Options::new(98);
    options.settings.bytes_per_second = 10_000;
    let nodes = Nodes::start(&options);
    nodes.write_all(&everywhere((0..40).map(|ck| insert(1, ck, &"z".repeat(1000), 10))));
    let began = nodes.world.now();
    nodes.repair(1, full());
    let took = nodes.world.now().since(began);
    // 40 KB, of which the last page is not waited for.
    assert!((Duration::from_secs(3)..Duration::from_secs(6)).contains(&took), "{took:?}");
    // A change reaches the repair that runs.
    let id = nodes.begin(1, full());
    let began = nodes.world.now();
    nodes.node(1, 0).repair.unwrap().set_throughput(1_000_000);
    nodes.finish(1, id);
    let took = nodes.world.now().since(began);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn lines_are_cassandras() {
    let nodes = Nodes::start(&Options::new(99));
    let status = nodes.repair(1, RepairOptions { incremental: true, ..full() });
    let lines: Vec<&str> = status.lines.iter().map(|l| l.text.as_str()).collect();
    let [start, intensity, _, _, session, success, end] = lines.as_slice() else {
        panic!("{lines:?}")
    };
    let of = status.session;
    assert!(start.starts_with(&format!(
        "Starting repair command #1 ({of}), repairing keyspace ks with repair options (parallelism: \
         parallel, primary range: false, incremental: true, job threads: 1, ColumnFamilies: [],"
    )));
    assert!(start.contains("# of ranges: 12,"), "{start}");
    assert_eq!(
        *intensity,
        "Repair intensity: reading without a limit, 2 KiB of data at a time, 1 tables at a time, \
         replicas asked in parallel order"
    );
    let range = format!("[({},{}]]", i64::MIN, i64::MAX);
    let (_, details) = nodes.node(1, 0).repair.unwrap().list_details().remove(0);
    let [only] = details.sessions.as_slice() else { panic!("{details:?}") };
    assert_eq!(
        *session,
        format!("Repair session {} for range {range} finished (progress: 100%)", only.id)
    );
    assert_ne!(only.id, of);
    assert_eq!(
        (&details.tables, &details.unfiltered),
        (&vec!["t".to_owned()], &vec![only.ranges.clone()])
    );
    assert_eq!((only.participants.len(), range), (2, format!("[{}]", only.ranges.join(", "))));
    // The phases follow each other.
    let times = [
        Some(status.started_at),
        details.planned_at,
        Some(only.planned_at),
        details.compared_from,
        only.started_at,
        only.ended.as_ref().map(|(at, _)| *at),
        details.compared_upto,
        details.ended_at,
    ];
    assert!(times.iter().all(Option::is_some) && times.is_sorted(), "{times:?}");
    assert_eq!(details.message.as_deref(), Some(*success));
    assert_eq!(*success, "Repair completed successfully");
    assert_eq!(*end, "Repair command #1 finished in 0 seconds");
}
