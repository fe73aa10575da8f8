//! Which ranges a repair is for.

use std::net::SocketAddr;
use std::sync::Arc;

use cluster::{ClusterSnapshot, TokenRange};
use dist_testing::host;
use stdx::Token;

use super::nodes::{Options, full, snapshot};
use crate::RepairOptions;
use crate::scope::{Scope, check, is_replicated, plan, still_holds};

/// Nodes of which each has one token: n at `n * 100`.
fn cluster(nodes: u8, factor: u32) -> ClusterSnapshot {
    let addresses: Vec<SocketAddr> =
        (1..=nodes).map(|n| SocketAddr::from(([127, 0, 0, n], 7000))).collect();
    let shards = vec![1; usize::from(nodes)];
    let mut made = snapshot(&Options { shards, factor, tokens: 1, ..Options::new(1) }, &addresses);
    for (n, member) in (1..).zip(made.members.values_mut()) {
        Arc::make_mut(member).tokens = vec![Token(n * 100)];
        Arc::make_mut(member).datacenter = if n <= 2 { "dc".into() } else { "other".into() };
    }
    made
}

fn ranges(scope: &Scope) -> Vec<(i64, i64)> {
    let all = scope.sessions.iter().flat_map(|s| s.ranges.iter());
    let mut all: Vec<_> = all.map(|r| (r.start.0, r.end.0)).collect();
    all.sort_unstable();
    all
}

#[test]
fn all_ranges_of_the_node_grouped_by_replicas_and_joined() {
    let three = cluster(3, 3);
    let scope = plan(&three, &full()).unwrap();
    assert_eq!(scope.sessions.len(), 1);
    assert_eq!(scope.sessions[0].peers, [host(2), host(3)]);
    assert_eq!((ranges(&scope), scope.range_count), (vec![(i64::MIN, i64::MAX)], 3));
    // Node 1 of four with RF 2 has its own range and that of the node before.
    let four = cluster(4, 2);
    let scope = plan(&four, &full()).unwrap();
    assert_eq!(scope.sessions.len(), 2);
    assert_eq!(
        scope.sessions.iter().map(|s| s.peers.clone()).collect::<Vec<_>>(),
        [[host(2)], [host(4)]]
    );
    assert_eq!(ranges(&scope), [(i64::MIN, 100), (300, 400), (400, i64::MAX)]);
    let primary = plan(&four, &RepairOptions { primary_range: true, ..full() }).unwrap();
    assert_eq!(ranges(&primary), [(i64::MIN, 100), (400, i64::MAX)]);
}

#[test]
fn sub_ranges_must_be_the_nodes_own() {
    let four = cluster(4, 2);
    let of = |start, end| {
        let ranges = vec![(Token(start), Token(end))];
        plan(&four, &RepairOptions { ranges, ..full() })
    };
    assert_eq!(ranges(&of(310, 320).unwrap()), [(310, 320)]);
    // Through two ranges, and around the end of the ring.
    assert_eq!(ranges(&of(350, 50).unwrap()), [(i64::MIN, 50), (350, 400), (400, i64::MAX)]);
    assert_eq!(of(110, 120).unwrap_err(), "Nothing to repair for (110,120] in ks - aborting");
    let words = of(50, 120).unwrap_err();
    assert!(words.starts_with("Requested range (50,120] intersects a local range (("), "{words}");
}

#[test]
fn replicas_are_restricted_by_datacenter_and_host() {
    let three = cluster(3, 3);
    let peers =
        |options: RepairOptions| plan(&three, &options).map(|s| s.sessions[0].peers.clone());
    let dc = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    assert_eq!(peers(RepairOptions { datacenters: dc(&["dc"]), ..full() }), Ok(vec![host(2)]));
    let hosts = dc(&["127.0.0.1", "127.0.0.3:7000"]);
    assert_eq!(peers(RepairOptions { hosts, ..full() }), Ok(vec![host(3)]));
    let words = peers(RepairOptions { hosts: dc(&["127.0.0.2"]), ..full() }).unwrap_err();
    assert_eq!(words, "The current host must be part of the repair");
    let words = peers(RepairOptions { hosts: dc(&["127.0.0.1"]), ..full() }).unwrap_err();
    assert!(words.starts_with("Specified hosts [127.0.0.1] do not share range"), "{words}");
}

#[test]
fn options_that_cannot_be_are_refused() {
    let three = cluster(3, 3);
    let words = |options: RepairOptions| check(&three, &options).unwrap_err();
    let list = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    assert_eq!(check(&three, &full()), Ok(()));
    let keyspace = "nope".to_owned();
    assert_eq!(words(RepairOptions { keyspace, ..full() }), "Keyspace [nope] does not exist.");
    let tables = list(&["t", "u"]);
    assert_eq!(words(RepairOptions { tables, ..full() }), "Unknown keyspace/cf pair (ks.u)");
    assert!(words(RepairOptions { job_threads: 5, ..full() }).starts_with("Too many job threads"));
    assert!(words(RepairOptions { job_threads: 0, ..full() }).starts_with("Too many job threads"));
    let (datacenters, hosts) = (list(&["dc"]), list(&["127.0.0.1"]));
    let both = RepairOptions { datacenters, hosts: hosts.clone(), ..full() };
    assert_eq!(words(both), "Cannot combine -dc and -hosts options.");
    let primary = RepairOptions { primary_range: true, hosts, ..full() };
    assert!(words(primary).starts_with("You need to run primary range repair on all nodes"));
    let other = RepairOptions { datacenters: list(&["other"]), ..full() };
    assert!(words(other).starts_with("the local data center must be part"));
    let local = RepairOptions { primary_range: true, datacenters: list(&["dc"]), ..full() };
    assert_eq!(check(&three, &local), Ok(()));
}

#[test]
fn a_repair_changes_what_its_options_name_and_a_preview_nothing() {
    let changes = |options: &RepairOptions, start, end| {
        options.may_change("ks", "t", TokenRange { start: Token(start), end: Token(end) })
    };
    let first = TokenRange { start: Token(0), end: Token(1) };
    assert!(changes(&full(), 0, 1) && !full().may_change("other", "t", first));
    let of = |names: &[&str]| RepairOptions {
        tables: names.iter().map(|n| (*n).to_owned()).collect(),
        ..full()
    };
    assert!(changes(&of(&["u", "t"]), 0, 1) && !changes(&of(&["u"]), 0, 1));
    assert!(!changes(&RepairOptions { preview: true, ..full() }, 0, 1));
    let part = RepairOptions { ranges: vec![(Token(10), Token(20))], ..full() };
    assert!(changes(&part, 0, 11) && changes(&part, 19, 30) && changes(&part, 12, 13));
    assert!(!changes(&part, 0, 10) && !changes(&part, 20, 30));
    let around = RepairOptions { ranges: vec![(Token(20), Token(10))], ..full() };
    assert!(changes(&around, 0, 10) && changes(&around, 20, 30) && !changes(&around, 10, 20));
}

#[test]
fn what_nobody_else_has_is_not_repaired() {
    assert!(!is_replicated(&cluster(3, 1), "ks"));
    assert!(is_replicated(&cluster(3, 2), "ks"));
    // One node with RF 3: no peer to compare with.
    let alone = cluster(1, 3);
    assert!(plan(&alone, &full()).unwrap_err().starts_with("Nothing to repair for ("));
    let ignoring = RepairOptions { ignore_unreplicated: true, ..full() };
    assert_eq!(plan(&alone, &ignoring).unwrap().sessions, []);
}

#[test]
fn a_session_holds_while_its_replicas_stay() {
    let four = cluster(4, 2);
    let scope = plan(&four, &full()).unwrap();
    let holds = |after: &ClusterSnapshot| {
        scope.sessions.iter().map(|s| still_holds(after, "ks", s)).collect::<Vec<_>>()
    };
    assert_eq!(holds(&four), [true, true]);
    // A token of node 3 within the range that 4 shares with this node.
    let mut moved = four.clone();
    Arc::make_mut(moved.members.get_mut(&host(3)).unwrap()).tokens = vec![Token(300), Token(350)];
    assert_eq!(holds(&moved), [true, false]);
    // Elsewhere on the ring.
    let mut moved = four.clone();
    Arc::make_mut(moved.members.get_mut(&host(3)).unwrap()).tokens = vec![Token(250)];
    assert_eq!(holds(&moved), [true, true]);
    let mut moved = four.clone();
    Arc::make_mut(moved.members.get_mut(&host(3)).unwrap()).tokens = vec![Token(300), Token(220)];
    assert_eq!(holds(&moved), [true, true]);
}
