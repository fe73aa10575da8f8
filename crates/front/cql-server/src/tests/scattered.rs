//! Aggregations and filters that shards of several nodes make: answers are those of one node with one shard, byte by
//! byte, with their pages, warnings and errors.

use super::aggregations::{TABLES, answers, answers_at, run_with};
use super::cluster_of_shards::Remote;
use super::several_nodes::{Cluster, KEYSPACE, at};
use super::*;
use coordinator::PageLimit;
use std::cell::RefCell;

const SCATTERED: &str = "coordinator_scattered_reads_total";
const REFUSED: &str = "coordinator_scattered_reads_refused_total";
const MOVED: &str = "coordinator_scattered_reads_moved_total";
const SERVED: &str = "replica_scans_total";
/// Pages that a filter shortens: shown, sent, and those that a node would not filter.
const FILTERED: &str = "coordinator_filtered_pages_total";
const FILTERED_SERVED: &str = "replica_filtered_pages_total";
const FILTERED_REFUSED: &str = "coordinator_filtered_pages_refused_total";
/// Pages of rows.
const ROWS_SERVED: &str = "replica_reads_total";

fn small() -> PageLimit {
    PageLimit { bytes: 150, left_out: 300, ..PageLimit::default() }
}

/// Returns the answers of three nodes, asked through the first; each row is on one of them.
fn answers_of(cluster: &Cluster, seed: u64) -> Vec<(String, Got)> {
    cluster.limit_pages(small());
    let found = Rc::new(RefCell::new(Vec::new()));
    let into = found.clone();
    cluster.run("c1", move |rt, nodes| async move {
        let mut remote = Remote::connect(&rt, nodes[0]).await;
        *into.borrow_mut() = answers(&mut remote, seed).await;
    });
    found.take()
}

fn compare(expected: &[(String, Got)], found: &[(String, Got)], what: &str) {
    for (expected, found) in expected.iter().zip(found) {
        assert_eq!(found, expected, "{what}");
    }
    assert_eq!(found.len(), expected.len());
}

/// INV-scattered-1.
#[test]
fn nodes_that_share_a_scan_answer_what_one_shard_answers_with_all_rows() {
    for seed in 1..=3 {
        let (expected, _) = run_with(1, seed);
        let cluster = Cluster::start(seed);
        compare(&expected, &answers_of(&cluster, seed), &format!("seed {seed}"));
        assert!(cluster.count(1, SCATTERED) > 100, "{}", cluster.count(1, SCATTERED));
        assert_eq!(cluster.count(1, REFUSED), 0);
        assert_eq!(cluster.count(1, SERVED), 0, "its own shard is asked by itself");
        for n in [2, 3] {
            assert!(cluster.count(n, SERVED) > 150, "n{n}: {}", cluster.count(n, SERVED));
        }
    }
}

#[test]
fn a_node_that_does_not_know_of_scans_gives_its_rows() {
    let (expected, _) = run_with(1, 4);
    let cluster = Cluster::start(4);
    cluster.grow_old(3);
    compare(&expected, &answers_of(&cluster, 4), "with an old node");
    // It is asked once, and not again for a while.
    let (scattered, refused) = (cluster.count(1, SCATTERED), cluster.count(1, REFUSED));
    assert!(refused > 0 && scattered < 20, "{scattered} of which {refused} were refused");
    assert!(cluster.count(3, ROWS_SERVED) > 100);
}

#[test]
fn filters_at_a_quorum_answer_what_one_shard_answers_also_beside_a_node_that_does_not_filter() {
    let (expected, _) = run_with(1, 7);
    for is_old in [false, true] {
        let cluster = Cluster::start(7);
        if is_old {
            cluster.grow_old(2);
        }
        let found = Rc::new(RefCell::new(Vec::new()));
        let into = found.clone();
        cluster.run("c1", move |rt, nodes| async move {
            let mut remote = Remote::connect(&rt, nodes[2]).await;
            let how = (3, Consistency::Quorum);
            *into.borrow_mut() = answers_at(&mut remote, 7, how).await;
        });
        compare(&expected, &found.take(), &format!("old: {is_old}"));
        let filtered = cluster.count(3, FILTERED);
        assert!(filtered > 100, "{filtered} pages");
        let others = [1, 2].map(|n| cluster.count(n, FILTERED_SERVED));
        assert!(!is_old || others[1] == 0, "{others:?}");
        let refused = cluster.count(3, FILTERED_REFUSED);
        assert!(refused <= u64::from(is_old), "it is asked once: {refused}");
    }
}

#[test]
fn what_passes_no_filter_does_not_leave_its_node() {
    let cluster = Cluster::start(5);
    cluster.run("c1", |rt, nodes| async move {
        let mut remote = Remote::connect(&rt, nodes[0]).await;
        for text in TABLES {
            remote.query(text).await.unwrap();
        }
        for k in 0..60 {
            let text = format!("INSERT INTO ks.one (k, i, s) VALUES ({k}, {k}, 'x')");
            remote.query(&text).await.unwrap();
        }
    });
    let rows_before: u64 = [2, 3].map(|n| cluster.count(n, ROWS_SERVED)).iter().sum();
    cluster.run("c2", |rt, nodes| async move {
        let mut remote = Remote::connect(&rt, nodes[0]).await;
        // At each level one answer is enough, as there is one replica.
        for level in [Consistency::One, Consistency::Quorum, Consistency::All, Consistency::Serial]
        {
            let query = "SELECT k FROM ks.one WHERE i = 41 ALLOW FILTERING";
            let Body::Rows(rows) = at(&mut remote, level, query).await else { panic!("{level:?}") };
            assert_eq!(rows.rows, [[Some(int(41).to_vec())]]);
            let query = "SELECT count(*), sum(i) FROM ks.one";
            let Body::Rows(rows) = at(&mut remote, level, query).await else { panic!("{level:?}") };
            let sum = (0..60).sum::<i32>().to_be_bytes().to_vec();
            assert_eq!(rows.rows, [[Some(60_i64.to_be_bytes().to_vec()), Some(sum)]]);
        }
    });
    let rows: u64 = [2, 3].map(|n| cluster.count(n, ROWS_SERVED)).iter().sum();
    assert_eq!(rows, rows_before, "no node was asked for rows");
    assert!(cluster.count(2, SERVED) >= 8 && cluster.count(3, SERVED) >= 8);
}

/// INV-scattered-1.
#[test]
fn all_replicas_work_for_an_aggregation_at_one_and_others_go_on_for_one_that_is_silent() {
    let cluster = Cluster::start(6);
    cluster.limit_pages(small());
    cluster.run("c1", |rt, nodes| async move {
        let mut remote = Remote::connect(&rt, nodes[0]).await;
        remote.query(KEYSPACE).await.unwrap();
        remote.query("CREATE TABLE ks.t (k int, c int, v int, PRIMARY KEY (k, c))").await.unwrap();
        for (k, c) in (0..40).flat_map(|k| (0..5).map(move |c| (k, c))) {
            let text = format!("INSERT INTO ks.t (k, c, v) VALUES ({k}, {c}, {})", k * c);
            assert_eq!(at(&mut remote, Consistency::All, &text).await, Body::Void);
        }
    });
    let ask = |name: &'static str| {
        cluster.run(name, |rt, nodes| async move {
            let mut remote = Remote::connect(&rt, nodes[0]).await;
            let query = "SELECT count(*), max(v) FROM ks.t";
            let Body::Rows(rows) = at(&mut remote, Consistency::One, query).await else { panic!() };
            let most = Some(int(39 * 4).to_vec());
            assert_eq!(rows.rows, [[Some(200_i64.to_be_bytes().to_vec()), most]]);
            let query = "SELECT k, count(*) FROM ks.t GROUP BY k";
            let Body::Rows(rows) = at(&mut remote, Consistency::One, query).await else { panic!() };
            let five = Some(5_i64.to_be_bytes().to_vec());
            assert!(rows.rows.len() == 40 && rows.rows.iter().all(|row| row[1] == five));
        });
    };
    ask("c2");
    assert_eq!(cluster.count(1, SCATTERED), 2);
    assert!(cluster.count(2, SERVED) > 2 && cluster.count(3, SERVED) > 2);
    // The failure detectors do not notice that node 3 does not answer.
    cluster.partition("n1", "n3");
    ask("c3");
    assert_eq!((cluster.count(1, SCATTERED), cluster.count(1, REFUSED)), (4, 0));
    assert!(cluster.count(1, MOVED) > 0, "the others have gone on");
    cluster.kill(2);
    ask("c4");
}
