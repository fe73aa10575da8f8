//! Incremental repairs, and what is noted of repairs.

use std::time::Duration;

use dist_testing::table::{TABLE, insert};
use dist_testing::{Random, Replicas};
use internode::Verb;
use stdx::{ShardId, Token};
use store::ReadScope;

use super::nodes::{Nodes, Options, full};
use crate::{Kind, RepairOptions, RepairState};

fn incremental() -> RepairOptions {
    RepairOptions { incremental: true, ..full() }
}

fn divergent(seed: u64, from: i64, count: i64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut random = Random(seed);
    (from..from + count)
        .map(|at| {
            let write = random.write(24, at);
            let to = match random.below(6) {
                0 => vec![1],
                1 => vec![2, 3],
                2 => vec![1, 3],
                _ => vec![1, 2, 3],
            };
            (write, to)
        })
        .collect()
}

/// Files of all shards of a node: repaired, pending, others.
fn states(nodes: &Nodes, n: u8) -> (u64, u64, u64) {
    let shards = nodes.shards(n);
    (0..shards).fold((0, 0, 0), |sum, shard| {
        let store = nodes.node(n, shard).coordinator.store().clone();
        let (repaired, pending, other) = store.repair().repair_states(TABLE);
        (sum.0 + repaired, sum.1 + pending, sum.2 + other)
    })
}

/// When a node takes the whole ring for repaired, on each of its shards.
fn noted(nodes: &Nodes, n: u8) -> Vec<Option<i64>> {
    let of = |shard| {
        let repair = nodes.node(n, shard).repair.unwrap();
        repair.history().least_within(TABLE, Token::MIN, Token::MAX)
    };
    (0..nodes.shards(n)).map(of).collect()
}

#[test]
fn an_incremental_repair_compares_what_is_new_and_calls_it_repaired() {
    for seed in 0..6 {
        let nodes = Nodes::start(&Options::new(300 + seed));
        nodes.write_all(&divergent(seed, 1, 300));
        assert!(nodes.check_equal().is_err());
        let by = nodes.any();
        let first = nodes.repair(by, incremental());
        assert_eq!(first.state, RepairState::Successful, "seed {seed} {:?}", first.lines);
        nodes.check_equal().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(first.counts.mutations > 0);
        for n in 1..=3 {
            let (repaired, pending, other) = states(&nodes, n);
            assert!(repaired > 0 && pending == 0 && other == 0, "seed {seed}: {n}");
            assert!(noted(&nodes, n).iter().all(Option::is_some), "seed {seed}: {n}");
        }
        // Nothing is new: nothing is read. What was sent has become repaired on both sides.
        let again = nodes.repair(nodes.any(), incremental());
        assert_eq!(again.state, RepairState::Successful, "{:?}", again.lines);
        assert_eq!((again.counts.differing, again.counts.mutations), (0, 0), "seed {seed}");
        let all = nodes.repair(nodes.any(), full());
        assert_eq!((all.counts.differing, all.counts.mutations), (0, 0), "seed {seed}");
        assert!(all.counts.bytes_read > 4 * again.counts.bytes_read, "seed {seed}");
        // Only what came since is compared.
        nodes.write_all(&divergent(seed + 50, 1000, 20));
        let third = nodes.repair(nodes.any(), incremental());
        assert_eq!(third.state, RepairState::Successful, "{:?}", third.lines);
        nodes.check_equal().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(third.counts.bytes_read < all.counts.bytes_read, "seed {seed}");
    }
}

#[test]
fn a_session_that_fails_is_given_up_everywhere() {
    for (seed, after) in [(320, 5), (321, 60), (322, 200), (323, 500)] {
        let mut options = Options::new(seed);
        options.settings.bytes_per_second = 20_000;
        let nodes = Nodes::start(&options);
        nodes.write_all(&divergent(seed, 1, 300));
        let id = nodes.begin(1, incremental());
        nodes.world.run_for(Duration::from_millis(after));
        assert_eq!(nodes.status(1, id).state, RepairState::Running);
        nodes.node(1, 0).repair.unwrap().abort(Some(id));
        let failed = nodes.finish(1, id);
        assert_eq!(failed.state, RepairState::Failed);
        nodes.world.run_for(Duration::from_secs(10));
        for n in 1..=3 {
            let (repaired, pending, _) = states(&nodes, n);
            assert_eq!((repaired, pending), (0, 0), "{after} ms: {n}");
            assert_eq!(noted(&nodes, n), vec![None; usize::from(nodes.shards(n))]);
            assert_eq!(nodes.node(n, 0).repair.unwrap().sessions(), []);
        }
        let done = nodes.repair(2, incremental());
        assert_eq!(done.state, RepairState::Successful, "{:?}", done.lines);
        nodes.check_equal().unwrap();
    }
}

#[test]
fn a_participant_that_is_cut_off_gives_the_session_up_by_itself() {
    for (seed, after) in [(330, 40), (331, 300)] {
        let mut options = Options::new(seed);
        options.settings.bytes_per_second = 20_000;
        let nodes = Nodes::start(&options);
        nodes.write_all(&divergent(seed, 1, 300));
        let id = nodes.begin(1, incremental());
        nodes.world.run_for(Duration::from_millis(after));
        nodes.cut(1, 2);
        let failed = nodes.finish(1, id);
        assert_eq!(failed.state, RepairState::Failed);
        nodes.world.run_for(Duration::from_secs(60));
        for n in 1..=3 {
            assert_eq!((states(&nodes, n).0, states(&nodes, n).1), (0, 0), "{after} ms: {n}");
        }
        nodes.world.heal_all();
        nodes.world.run_for(Duration::from_secs(10));
        let done = nodes.repair(3, incremental());
        assert_eq!(done.state, RepairState::Successful, "{:?}", done.lines);
        nodes.check_equal().unwrap();
    }
}

#[test]
fn what_an_earlier_run_left_pending_becomes_ordinary_again() {
    let nodes = Nodes::start(&Options::new(335));
    nodes.write_all(&divergent(335, 1, 100));
    let left = stdx::Uuid::from_u128(0xdead);
    nodes.run_on(nodes.node(2, 1), move |node| async move {
        let ranges = store::OwnedRanges::new(vec![(Token::MIN, Token::MAX)]);
        node.coordinator.store().repair().begin_repair(TABLE, left, &ranges).await.unwrap();
    });
    assert!(states(&nodes, 2).1 > 0);
    // It blocks a session of the same ranges until the next look, and no longer.
    let busy = nodes.repair(1, incremental());
    assert_eq!(busy.state, RepairState::Failed);
    assert!(busy.lines.iter().any(|l| l.text.contains(&left.to_string())), "{:?}", busy.lines);
    nodes.world.run_for(Duration::from_secs(5));
    assert_eq!(states(&nodes, 2).1, 0);
    let done = nodes.repair(1, incremental());
    assert_eq!(done.state, RepairState::Successful, "{:?}", done.lines);
    nodes.check_equal().unwrap();
}

#[test]
fn a_repair_is_noted_only_when_all_replicas_took_part() {
    let nodes = Nodes::start(&Options::new(340));
    nodes.write_all(&divergent(340, 1, 100));
    let address = |n: u8| {
        let snapshot = nodes.node(1, 0).snapshot.borrow().clone();
        snapshot.members[&dist_testing::host(n)].storage.ip().to_string()
    };
    let none = |nodes: &Nodes| (1..=3).all(|n| noted(nodes, n).iter().all(Option::is_none));
    let hosts = vec![address(1), address(2)];
    let part = nodes.repair(1, RepairOptions { hosts, incremental: true, ..full() });
    assert_eq!(part.state, RepairState::Successful, "{:?}", part.lines);
    assert!(none(&nodes) && states(&nodes, 1).0 == 0);
    for preview in [
        RepairOptions { preview: true, ..full() },
        RepairOptions { preview: true, ..incremental() },
        RepairOptions { validate: true, ..incremental() },
    ] {
        assert!(matches!(preview.kind(), Kind::Preview(_)));
        let seen = nodes.repair(1, preview);
        assert_eq!(seen.state, RepairState::Successful, "{:?}", seen.lines);
        assert!(none(&nodes));
    }
    nodes.set_alive(3, false);
    let forced = nodes.repair(1, RepairOptions { force: true, ..full() });
    assert_eq!(forced.state, RepairState::Successful, "{:?}", forced.lines);
    assert!(none(&nodes));
    nodes.set_alive(3, true);
    let whole = nodes.repair(2, RepairOptions { datacenter_parallel: true, ..full() });
    assert_eq!(whole.state, RepairState::Successful, "{:?}", whole.lines);
    let at = Some(whole.started_at.seconds().0);
    for n in 1..=3 {
        assert!(noted(&nodes, n).iter().all(|seen| *seen == at), "{n}");
    }
    assert_eq!(states(&nodes, 1).0, 0);
}

#[test]
fn previews_tell_repaired_and_unrepaired_data_apart() {
    let nodes = Nodes::start(&Options::new(350));
    nodes.write_all(&divergent(350, 1, 200));
    nodes.repair(1, incremental());
    // A difference in what was not repaired, and none in what was.
    nodes.write_all(&[(insert(3, 3, "new", 9000), vec![2])]);
    let differing = |options: RepairOptions| nodes.repair(1, options).counts.differing;
    assert!(differing(RepairOptions { preview: true, ..incremental() }) > 0);
    assert_eq!(differing(RepairOptions { validate: true, ..incremental() }), 0);
    assert!(differing(RepairOptions { preview: true, ..full() }) > 0);
    assert!(nodes.check_equal().is_err());
    assert_eq!(nodes.served(Verb::Mutation), 0);
}

#[test]
fn a_pull_repair_gives_this_node_alone_what_it_lacks() {
    let nodes = Nodes::start(&Options::new(360));
    nodes.write_all(&[(insert(1, 1, "a", 10), vec![1]), (insert(2, 2, "b", 10), vec![2])]);
    let address = |n: u8| {
        let snapshot = nodes.node(1, 0).snapshot.borrow().clone();
        snapshot.members[&dist_testing::host(n)].storage.ip().to_string()
    };
    let before = nodes.content(2);
    let pull = RepairOptions { pull: true, hosts: vec![address(1), address(2)], ..full() };
    assert!(nodes.node(1, 0).repair.unwrap().start(pull.clone()).is_err());
    let ranges = vec![(Token::MIN, Token::MAX)];
    let done = nodes.repair(1, RepairOptions { ranges, ..pull });
    assert_eq!(done.state, RepairState::Successful, "{:?}", done.lines);
    assert_eq!(nodes.content(2), before);
    assert_ne!(nodes.content(1), before);
    assert_eq!(done.counts.mutations, 1);
}

#[test]
fn every_table_is_repaired_by_itself_within_its_window() {
    let mut options = Options::new(370);
    options.settings.auto = crate::AutoSettings {
        enabled: true,
        window: Some(Duration::from_secs(1200)),
        initial_delay: Duration::from_secs(30),
        turn: Duration::from_secs(10),
        ..crate::AutoSettings::default()
    };
    let nodes = Nodes::start(&options);
    nodes.write_all(&divergent(370, 1, 100));
    assert!(nodes.check_equal().is_err());
    nodes.world.run_for(Duration::from_secs(200));
    nodes.check_equal().unwrap();
    let oldest = |nodes: &Nodes| (1..=3).flat_map(|n| noted(nodes, n)).min().flatten();
    let first = oldest(&nodes).unwrap();
    let status = nodes.node(1, 0).repair.unwrap().auto_status();
    assert!(status.enabled && status.tables.len() == 1 && !status.tables[0].is_due);
    // Not again at once, but within the window.
    nodes.world.run_for(Duration::from_secs(200));
    assert_eq!(oldest(&nodes), Some(first));
    nodes.world.run_for(Duration::from_secs(500));
    let second = oldest(&nodes).unwrap();
    assert!(second > first && second - first < 1200, "{first} {second}");
    // Switched off, nothing begins.
    (1..=3).for_each(|n| nodes.node(n, 0).repair.unwrap().set_automatic(crate::Automatic::Off));
    nodes.world.run_for(Duration::from_secs(2000));
    assert_eq!(oldest(&nodes), Some(second));
}

#[test]
fn what_was_repaired_is_known_to_the_next_run() {
    let nodes = Nodes::start(&Options::new(380));
    nodes.write_all(&divergent(380, 1, 50));
    nodes.repair(1, full());
    let read = nodes.run_on(nodes.node(2, 0), |node| async move {
        let bytes = node.rt.fs().read("data/repair_history", 1 << 20).await.unwrap();
        crate::RepairHistory::decode(&bytes).unwrap()
    });
    let known = nodes.node(2, 1).repair.unwrap().history();
    assert_eq!(read, known);
    assert!(read.least_within(TABLE, Token::MIN, Token::MAX).is_some());
    assert_eq!(nodes.node(2, 1).rt.shard(), ShardId(1));
    // Reads for repairs know no session that was not begun.
    let unknown = nodes.run_on(nodes.node(2, 0), |node| async move {
        let command = crate::segment::Segment::of_tokens(Token::MIN, Token::MAX)
            .command(TABLE, node.rt.wall().seconds());
        let scope = ReadScope::Pending(stdx::Uuid::from_u128(1));
        let snapshot = node.snapshot.borrow().clone();
        node.coordinator.replica_reads().read_stretch(&snapshot, command, 1000, scope).await
    });
    assert!(unknown.is_err());
}
