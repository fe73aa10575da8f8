//! Newcomers while nodes are dead that have what they would take over.

use super::*;

impl Net {
    /// A cluster of nodes 1 to 3 with a keyspace of so many replicas, whose third node is dead.
    fn without_third(&self, replicas: u8) -> Vec<Started> {
        let nodes = self.cluster(&[1, 2, 3]);
        self.fill(1, replicas, 40);
        self.world.kill(&nodes[2].node);
        self.run(40);
        nodes
    }

    /// How many rows are found at ONE by node `n`.
    fn found(&self, n: u8) -> usize {
        let select = |k| self.query(n, &format!("SELECT v FROM ks.t WHERE k = {k}"));
        (0..40).filter(|k| select(*k).is_ok_and(|rows| !rows.is_empty())).count()
    }
}

#[test]
fn tables_of_the_system_whose_only_replica_is_dead_hold_no_newcomer_up() {
    let net = Net::new(300);
    let _nodes = net.without_third(3);
    let newcomer = net.start(4);
    net.until_ready(&[&newcomer]);
    net.run(5);
    assert_eq!(net.found(4), 40);
}

/// A cluster whose dead node has what node 4 would take over, and why node 4 did not start.
fn refused_newcomer(seed: u64) -> Option<(Net, Vec<Started>, String)> {
    let net = Net::new(seed);
    let nodes = net.without_third(1);
    let newcomer = net.start(4);
    let done = || newcomer.failure().is_some() || newcomer.is_ready();
    net.world.run_until(done, Duration::from_secs(300)).unwrap();
    newcomer.failure().map(|failure| (net, nodes, failure))
}

#[test]
fn a_newcomer_is_refused_what_only_a_dead_node_has_and_told_what_to_do() {
    // With some seeds the newcomer gets no token range of the dead node.
    let (net, nodes, failure) = (304..320).find_map(refused_newcomer).unwrap();
    let expected = "Unable to find sufficient sources for streaming range";
    assert!(failure.contains(expected) && failure.contains("with RF=1"), "{failure}");
    assert!(failure.contains("consistent_rangemovement"), "{failure}");
    // The message's advice: first both are removed.
    let removals: Vec<String> =
        failure.split("nodetool removenode ").skip(1).map(|t| t[..36].to_owned()).collect();
    assert_eq!(removals.len(), 2, "{failure}");
    net.run(40);
    for host_id in removals {
        let reply = net.command(&nodes[0], ClusterCommand::RemoveNode { host_id });
        assert!(matches!(reply, AdminReply::Done), "{reply:?}");
    }
    net.on_disk(4, |rt| async move { rt.fs().remove_dir_all("/data").await.unwrap() });
    let again = net.start(4);
    net.until_ready(&[&again]);
    net.run(5);
    let found = net.found(4);
    assert!((1..40).contains(&found), "{found}: what the dead one had is gone, nothing else");
}

#[test]
fn a_newcomer_joins_with_what_is_left_when_it_may() {
    let net = Net::new(302);
    let nodes = net.without_third(1);
    let options = Options { consistent_rangemovement: false, ..net.options(4) };
    let newcomer = net.start_with(4, options);
    net.until_ready(&[&newcomer]);
    net.run(5);
    let found = net.found(4);
    assert!((1..40).contains(&found), "{found}");
    drop(nodes);
}
