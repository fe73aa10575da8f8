//! A replica with a damaged file: repairs bring back what is lost of it, and let it go.

use std::time::Duration;

use dist_testing::table::{TABLE, insert};
use dist_testing::{Replicas, host};
use rt::{Buf, OpenOptions};
use stdx::Token;
use store::VerifyOptions;

use super::nodes::{Nodes, Options, full};
use crate::{AutoSettings, RepairOptions, RepairState};

const KEYS: i32 = 40;

/// Flips the bits of one byte in the middle of a file.
async fn damage(rt: &rt::Rt, path: &str) {
    let options = OpenOptions { read: true, write: true, ..OpenOptions::default() };
    let file = rt.fs().open(path, options).await.unwrap();
    let at = file.len().await.unwrap() / 2;
    let byte = !file.read_exact_at(at, 1).await.unwrap().as_slice()[0];
    file.write_at(Buf::from(vec![byte]), at).await.1.unwrap();
}

/// Damages the file of the first node, and waits until what can be read of it is in others.
fn damaged() -> Nodes {
    damaged_with(AutoSettings { enabled: false, ..AutoSettings::default() })
}

fn damaged_with(auto: AutoSettings) -> Nodes {
    let mut options = Options { shards: vec![1, 1, 1], ..Options::new(71) };
    options.settings.auto = auto;
    let nodes = Nodes::start(&options);
    // Wait until the work of the schedule at the start is over, before there is data.
    wait(&nodes, 10);
    let rows =
        (0..KEYS).map(|pk| (insert(pk, 1, &format!("{pk} ").repeat(400), 10), vec![1, 2, 3]));
    nodes.write_all(&rows.collect::<Vec<_>>());
    (1..=3).for_each(|n| nodes.flush(n));
    nodes.run_on(nodes.node(1, 0), |node| async move {
        let store = node.coordinator.store().clone();
        let files =
            store.compactor().files_of_partition(TABLE, &1_i32.to_be_bytes()).await.unwrap();
        damage(&node.rt, &files[0].0).await;
        let found = store.verifier().verify(TABLE, &VerifyOptions::default()).await.unwrap();
        assert_eq!(found.len(), 1);
        while !store.verifier().damaged_files().iter().all(|file| file.is_salvaged()) {
            node.rt.sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(store.verifier().damaged_files().len(), 1);
    });
    nodes
}

fn is_damaged(nodes: &Nodes) -> bool {
    !nodes.replica(1, 0).1.verifier().damaged_files().is_empty()
}

fn wait(nodes: &Nodes, seconds: u64) {
    nodes.run_on(nodes.node(1, 0), move |node| async move {
        node.rt.sleep(Duration::from_secs(seconds)).await;
    });
}

#[test]
fn a_repair_brings_back_what_a_damaged_file_has_lost_and_lets_it_go() {
    let nodes = damaged();
    assert!(nodes.check_equal().is_err(), "something is lost");
    // Clocks differ: this one may have begun before.
    let status = nodes.repair(2, full());
    assert_eq!(status.state, RepairState::Successful, "{:?}", status.lines);
    nodes.check_equal().unwrap();
    wait(&nodes, 20);
    assert!(is_damaged(&nodes));
    // A repair of a part of the ring.
    let part = RepairOptions { ranges: vec![(Token(0), Token::MAX)], ..full() };
    let status = nodes.repair(1, part);
    assert_eq!(status.state, RepairState::Successful, "{:?}", status.lines);
    wait(&nodes, 20);
    assert!(is_damaged(&nodes));
    let status = nodes.repair(3, full());
    assert_eq!(status.state, RepairState::Successful, "{:?}", status.lines);
    nodes.world.run_until(|| !is_damaged(&nodes), Duration::from_secs(60)).unwrap();
    nodes.check_equal().unwrap();
    let (_, store) = nodes.replica(1, 0);
    nodes.run_on(nodes.node(1, 0), move |_| async move {
        let options = VerifyOptions { extended: true, ..VerifyOptions::default() };
        assert_eq!(store.verifier().verify(TABLE, &options).await.unwrap(), []);
    });
}

/// Repairs begin by themselves, slowly, those of the schedule at the start only.
fn by_itself() -> AutoSettings {
    AutoSettings {
        enabled: true,
        window: Some(Duration::from_secs(365 * 86_400)),
        bytes_per_second: 4_000,
        initial_delay: Duration::from_secs(1),
        turn: Duration::from_secs(86_400),
    }
}

/// Numbers of the repairs that the first node has begun, and whether one runs.
fn begun(nodes: &Nodes) -> (Vec<u32>, bool) {
    let all = nodes.node(1, 0).repair.unwrap().list();
    let runs = all.iter().any(|status| status.state == RepairState::Running);
    (all.iter().map(|status| status.id).collect(), runs)
}

/// Returns the reported state of the damaged file.
fn state(nodes: &Nodes) -> String {
    let (_, store) = nodes.replica(1, 0);
    let path = store.verifier().damaged_files()[0].path.clone();
    nodes.node(1, 0).repair.unwrap().damaged_file_state(&path).unwrap_or_default()
}

fn until(nodes: &Nodes, what: impl Fn() -> bool) {
    nodes.world.run_until(what, Duration::from_secs(120)).unwrap();
}

#[test]
fn what_a_damaged_file_has_lost_is_repaired_by_itself_behind_its_copies_and_once() {
    let nodes = damaged_with(by_itself());
    let before = begun(&nodes).0.len();
    wait(&nodes, 9);
    assert_eq!(begun(&nodes).0.len(), before, "it would not count");
    assert!(nodes.check_equal().is_err(), "something is lost");
    until(&nodes, || begun(&nodes).1);
    until(&nodes, || state(&nodes).contains("of its ranges runs"));
    until(&nodes, || !is_damaged(&nodes));
    nodes.check_equal().unwrap();
    // Its ranges and no others.
    let (_, details) = nodes.node(1, 0).repair.unwrap().list_details().pop().unwrap();
    let ranges = details.options.ranges;
    assert!(ranges.len() > 1 && ranges.iter().all(|(a, b)| a < b), "{ranges:?}");
    assert!(ranges[0].0 > Token::MIN && ranges[ranges.len() - 1].1 < Token::MAX, "{ranges:?}");
    assert_eq!(details.options.tables, ["t"]);
    wait(&nodes, 300);
    assert_eq!(begun(&nodes).0.len(), before + 1);
}

#[test]
fn the_repair_for_a_damaged_file_waits_for_a_dead_replica_and_is_tried_again_when_it_fails() {
    let nodes = damaged_with(by_itself());
    let before = begun(&nodes).0.len();
    nodes.set_alive(3, false);
    wait(&nodes, 60);
    assert_eq!(begun(&nodes).0.len(), before);
    let address = nodes.node(1, 0).snapshot.borrow().members[&host(3)].storage;
    let waits = format!("its repair waits for replicas that are not alive: /{address}");
    assert_eq!(state(&nodes), waits);
    nodes.set_alive(3, true);
    until(&nodes, || begun(&nodes).1);
    // In the middle: what was begun fails.
    nodes.set_alive(2, false);
    until(&nodes, || !begun(&nodes).1);
    nodes.set_alive(2, true);
    wait(&nodes, 2);
    let state = state(&nodes);
    assert!(
        state.starts_with("1 repairs of its ranges failed, the next is in 1 minutes"),
        "{state}"
    );
    assert_eq!(begun(&nodes).0.len(), before + 1);
    until(&nodes, || !is_damaged(&nodes));
    assert_eq!(begun(&nodes).0.len(), before + 2);
    nodes.check_equal().unwrap();
}

#[test]
fn no_repair_for_a_damaged_file_begins_while_none_may_or_another_one_of_its_ranges_runs() {
    let nodes = damaged_with(AutoSettings { enabled: false, ..by_itself() });
    wait(&nodes, 60);
    assert_eq!(begun(&nodes), (vec![], false));
    assert!(state(&nodes).contains("auto_repair_enabled"), "{}", state(&nodes));
    let repair = nodes.node(1, 0).repair.unwrap();
    // One by hand that leaves something out.
    let part = (Token::MIN, Token(0));
    let slow = RepairOptions { ranges: vec![part], bytes_per_second: 400, ..full() };
    let id = nodes.begin(1, slow);
    repair.set_automatic(crate::Automatic::On);
    until(&nodes, || begun(&nodes).0.len() > 1);
    let (_, details) = repair.list_details().pop().unwrap();
    let ranges = details.options.ranges;
    assert!(ranges.iter().all(|(start, _)| *start >= Token(0)), "{ranges:?}");
    assert_eq!(nodes.status(1, id).state, RepairState::Running);
    // Switched off it ends; switched on, it starts again.
    repair.set_automatic(crate::Automatic::Off);
    until(&nodes, || nodes.status(1, id + 1).state != RepairState::Running);
    assert_eq!(nodes.status(1, id).state, RepairState::Running);
    repair.set_automatic(crate::Automatic::On);
    assert_eq!(nodes.finish(1, id).state, RepairState::Successful);
    until(&nodes, || !is_damaged(&nodes));
    nodes.check_equal().unwrap();
}
