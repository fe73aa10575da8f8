//! Keyspaces that get other replicas, and what lightweight transactions had decided before.

use super::*;

const KEYS: u32 = 24;

impl Net {
    fn replicate(&self, n: u8, replicas: u8) {
        let replication = format!("{{'class': 'NetworkTopologyStrategy', 'dc1': {replicas}}}");
        let alter = format!("ALTER KEYSPACE ks WITH replication = {replication}");
        self.query(n, &alter).unwrap();
    }

    /// Returns true if node `n` inserts a row that is missing.
    fn insert_new(&self, n: u8, k: u32) -> Result<bool, String> {
        let insert = format!("INSERT INTO ks.t (k, v) VALUES ({k}, 'v{k}') IF NOT EXISTS");
        let rows = self.query_at(n, &insert, Consistency::Quorum)?;
        Ok(rows[0][0].as_deref() == Some(&[1]))
    }

    /// How many rows that were decided to be there are inserted once more, and how often that is
    /// not known.
    fn insert_again(&self, n: u8) -> (usize, usize) {
        let again: Vec<_> = (0..KEYS).map(|k| self.insert_new(n, k)).collect();
        let lost = again.iter().filter(|result| **result == Ok(true)).count();
        (lost, again.iter().filter(|result| result.is_err()).count())
    }
}

#[test]
fn new_replicas_know_what_was_decided_before_they_were_any() {
    for waits in [false, true] {
        let net = Net::new(310);
        let nodes = net.cluster(&[1, 2, 3]);
        net.fill(1, 1, 0);
        for k in 0..KEYS {
            assert_eq!(net.insert_new(1, k), Ok(true));
        }
        net.replicate(2, 3);
        if waits {
            net.run(20);
        }
        // The only replica that some of the keys had.
        net.world.kill(&nodes[0].node);
        net.run(if waits { 25 } else { 0 });
        let (lost, unknown) = net.insert_again(2);
        assert_eq!(lost, 0, "after the handover: {waits}");
        if waits {
            assert_eq!(unknown, 0, "a quorum is there");
        } else {
            // Down for long: no replica forgets what it knows.
            net.run(60);
            assert_eq!(net.insert_again(2).0, 0);
            let back = net.start(1);
            net.until_ready(&[&back]);
            net.run(30);
            assert_eq!(net.insert_again(3), (0, 0));
        }
    }
}

#[test]
fn a_replica_that_is_left_alone_knows_what_the_others_decided() {
    let net = Net::new(311);
    let options = |n| Options { hinted_handoff_enabled: false, ..net.options(n) };
    let start = |n| {
        let node = net.start_with(n, options(n));
        net.until_ready(&[&node]);
        node
    };
    let nodes: Vec<Started> = (1..=3).map(start).collect();
    net.run(5);
    net.fill(1, 3, 0);
    net.world.kill(&nodes[2].node);
    net.run(40);
    for k in 0..KEYS {
        assert_eq!(net.insert_new(1, k), Ok(true));
    }
    let _back = start(3);
    net.run(10);
    net.replicate(1, 1);
    assert_eq!(net.insert_again(3), (0, 0), "at once");
    net.run(20);
    assert_eq!(net.insert_again(3), (0, 0), "handed over");
    // The next change waits for the one before.
    net.replicate(1, 2);
    net.replicate(2, 3);
    assert_eq!(net.insert_again(1), (0, 0));
    net.world.kill(&nodes[0].node);
    // The handover was under way: it goes on when the death is known, after 30 to 50 seconds by the seed.
    net.run(60);
    assert_eq!(net.insert_again(2), (0, 0));
}
