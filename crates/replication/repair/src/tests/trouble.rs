//! Repairs that cannot continue.

use std::sync::Arc;
use std::time::Duration;

use cluster::{MemberState, Truncation};
use dist_testing::table::{TABLE, insert};
use dist_testing::{Random, Replicas, host};
use stdx::WallMicros;

use super::nodes::{Nodes, Options, full};
use crate::{RepairOptions, RepairState};

fn differing(seed: u64) -> Nodes {
    let mut options = Options::new(seed);
    // Slow enough to be disturbed.
    options.settings.bytes_per_second = 20_000;
    let nodes = Nodes::start(&options);
    let mut random = Random(seed);
    let writes: Vec<_> = (0..600)
        .map(|n| (insert(n / 4, n % 4, &"v".repeat(60), 10), vec![1 + random.below(3) as u8]))
        .collect();
    nodes.write_all(&writes);
    nodes
}

fn last_lines(status: &crate::RepairStatus) -> String {
    status.lines.iter().rev().take(2).map(|l| l.text.clone()).collect::<Vec<_>>().join(" | ")
}

#[test]
fn a_repair_with_a_dead_replica_is_refused_and_names_it() {
    let nodes = differing(200);
    nodes.set_alive(3, false);
    let before: Vec<_> = (1..=3).map(|n| nodes.content(n)).collect();
    let status = nodes.repair(1, full());
    let address = nodes.node(1, 0).snapshot.borrow().members[&host(3)].storage;
    assert_eq!(status.state, RepairState::Failed);
    assert_eq!(
        last_lines(&status),
        format!(
            "Repair command #1 finished with error | Repair command #1 failed with error Endpoint \
             not alive: /{address}"
        )
    );
    assert_eq!(before, (1..=3).map(|n| nodes.content(n)).collect::<Vec<_>>());
    // Between the others it may be done.
    let hosts = [1, 2].map(|n| nodes.node(1, 0).snapshot.borrow().members[&host(n)].storage);
    let hosts = hosts.iter().map(|a| a.ip().to_string()).collect();
    let status = nodes.repair(1, RepairOptions { hosts, ..full() });
    assert_eq!(status.state, RepairState::Successful, "{:?}", status.lines);
    assert_eq!(nodes.content(1), nodes.content(2));
    assert_ne!(nodes.content(1), nodes.content(3));
}

/// INV-repair-3.
#[test]
fn a_replica_that_is_cut_off_fails_the_repair_and_a_second_one_completes_it() {
    for (seed, after) in [(210, 100), (211, 400), (212, 900)] {
        let nodes = differing(seed);
        let id = nodes.begin(1, full());
        nodes.world.run_for(Duration::from_millis(after));
        assert_eq!(nodes.status(1, id).state, RepairState::Running);
        nodes.cut(1, 2);
        let failed = nodes.finish(1, id);
        assert_eq!(failed.state, RepairState::Failed);
        assert!(failed.percent < 100);
        let address = nodes.node(1, 0).snapshot.borrow().members[&host(2)].storage;
        assert!(last_lines(&failed).contains(&format!("Endpoint /{address} failed")));
        assert!(nodes.check_equal().is_err());
        nodes.world.heal_all();
        nodes.world.run_for(Duration::from_secs(10));
        let done = nodes.repair(1, full());
        assert_eq!(done.state, RepairState::Successful, "{:?}", done.lines);
        nodes.check_equal().unwrap();
    }
}

#[test]
fn a_replica_that_dies_fails_the_repair_at_once() {
    let nodes = differing(220);
    let id = nodes.begin(2, full());
    nodes.world.run_for(Duration::from_millis(300));
    nodes.set_alive(1, false);
    let failed = nodes.finish(2, id);
    assert_eq!(failed.state, RepairState::Failed);
    assert!(last_lines(&failed).contains("Endpoint not alive: "));
    nodes.set_alive(1, true);
    nodes.repair(3, full());
    nodes.check_equal().unwrap();
}

#[test]
fn a_repair_stops_when_its_ranges_move() {
    let nodes = differing(230);
    let id = nodes.begin(2, full());
    nodes.world.run_for(Duration::from_millis(300));
    // A change that moves nothing is none.
    nodes.change(|_| ());
    nodes.world.run_for(Duration::from_millis(300));
    assert_eq!(nodes.status(2, id).state, RepairState::Running);
    nodes.change(|snapshot| {
        let member = snapshot.members.get_mut(&host(3)).unwrap();
        Arc::make_mut(member).state = MemberState::Joining;
    });
    let failed = nodes.finish(2, id);
    assert_eq!(failed.state, RepairState::Failed);
    assert!(last_lines(&failed).contains("the replicas of the range changed"));
    // While they move none begins.
    let refused = nodes.repair(2, full());
    assert_eq!(refused.state, RepairState::Failed);
    assert!(last_lines(&refused).contains("is moving to"), "{}", last_lines(&refused));
}

#[test]
fn a_dropped_table_and_a_cancelled_repair_end_with_their_reasons() {
    let nodes = differing(240);
    let id = nodes.begin(1, full());
    nodes.world.run_for(Duration::from_millis(300));
    let percent = nodes.status(1, id).percent;
    assert!(percent > 0 && percent < 100, "{percent}");
    assert_eq!(nodes.node(1, 0).repair.unwrap().abort(Some(id)), 1);
    let aborted = nodes.finish(1, id);
    assert_eq!(aborted.state, RepairState::Failed);
    assert!(last_lines(&aborted).contains("the repair was cancelled"));
    assert_eq!(nodes.node(1, 0).repair.unwrap().abort(None), 0);

    let id = nodes.begin(1, full());
    nodes.world.run_for(Duration::from_millis(300));
    nodes.change(|snapshot| {
        snapshot.schema = Arc::new(schema::Schema {
            keyspaces: snapshot.schema.keyspaces.clone(),
            tables_by_id: stdx::FixedMap::default(),
            version: stdx::Uuid::from_u128(2),
        });
    });
    let failed = nodes.finish(1, id);
    assert!(last_lines(&failed).contains("the table ks.t was dropped"));
}

#[test]
fn a_truncated_table_ends_its_repair() {
    let nodes = differing(245);
    let id = nodes.begin(1, full());
    nodes.world.run_for(Duration::from_millis(300));
    nodes.change(|snapshot| {
        let truncated = Truncation { truncated_at: WallMicros(1), ..Truncation::default() };
        snapshot.truncations.insert(TABLE, truncated);
    });
    let failed = nodes.finish(1, id);
    assert!(last_lines(&failed).contains("the table ks.t was truncated"));
}

#[test]
fn a_node_that_stops_ends_its_repairs() {
    let nodes = differing(250);
    let id = nodes.begin(1, full());
    nodes.world.run_for(Duration::from_millis(300));
    let status = nodes.run_on(nodes.node(1, 0), |node| async move {
        let repair = node.repair.unwrap();
        repair.stop().await;
        assert!(repair.start(full()).is_err());
        repair.status(id, 0).unwrap()
    });
    assert_eq!(status.state, RepairState::Failed);
    assert!(last_lines(&status).contains("this node is stopping"));
}
