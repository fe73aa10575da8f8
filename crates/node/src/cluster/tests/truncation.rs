//! TRUNCATE that a node was not there for.

use super::*;

/// Rows of `ks.t` as node `n` itself has them.
fn own_rows(net: &Net, n: u8) -> Vec<String> {
    net.texts(n, "SELECT v FROM ks.t")
}

#[test]
fn a_truncation_that_a_node_missed_takes_the_rows_of_before_and_none_of_later() {
    for seed in 200..203 {
        let net = Net::new(seed);
        let nodes = net.cluster(&[1, 2, 3]);
        net.fill(1, 3, 8);
        assert_eq!(own_rows(&net, 3).len(), 8);
        net.world.kill(&nodes[2].node);
        // The failure detectors have not noticed yet that it is down; the answer may be that it did
        // not acknowledge.
        let _ = net.query(1, "TRUNCATE ks.t");
        let later: Vec<String> = (20..28).map(|k| format!("v{k}")).collect();
        for k in 20..28 {
            let insert = format!("INSERT INTO ks.t (k, v) VALUES ({k}, 'v{k}')");
            net.query_at(2, &insert, Consistency::Quorum).unwrap();
        }
        net.run(30);
        let again = net.start(3);
        net.until_ready(&[&again]);
        // Before anything else comes to it, what was truncated is gone.
        assert!(own_rows(&net, 3).iter().all(|row| later.contains(row)), "seed {seed}");
        net.run(40);
        assert_eq!(own_rows(&net, 3), later, "seed {seed}: kept for it and delivered");
        // The next entry does not carry the truncation out again.
        net.query(1, &keyspace("later")).unwrap();
        net.run(2);
        for n in 1..=3 {
            assert_eq!(own_rows(&net, n), later, "seed {seed}: n{n}");
        }
    }
}
