//! How long a node that was killed is taken for alive.

use super::*;

impl Net {
    /// How many members a node takes for alive, itself too.
    fn alive(&self, at: &Started) -> usize {
        let found: Rc<RefCell<Option<usize>>> = Rc::default();
        let (out, admin) = (found.clone(), at.admin.clone());
        self.world.client(&format!("a{}", self.world.random_u64()), move |rt| async move {
            let reply = admin.call(&rt, ShardId(0), AdminRequest::Cluster).await.unwrap();
            let AdminReply::Cluster(cluster) = reply else { panic!("{reply:?}") };
            let peers = cluster.gossip.map(|gossip| gossip.peers).unwrap_or_default();
            *out.borrow_mut() = Some(peers.iter().filter(|peer| peer.is_alive).count());
        });
        self.world.run_until(|| found.borrow().is_some(), Duration::from_secs(60)).unwrap();
        found.take().unwrap()
    }
}

/// Its machine refuses connections; without power it is silent, and only time tells.
#[test]
fn a_node_is_down_within_three_seconds_when_killed_and_after_18_to_21_without_power() {
    for seed in 240..246 {
        let is_killed = seed < 243;
        let net = Net::new(seed);
        let nodes = net.cluster(&[1, 2, 3]);
        net.fill(1, 3, 5);
        net.run(if seed % 2 == 0 { 5 } else { 120 });
        match is_killed {
            true => net.world.kill(&nodes[2].node),
            false => net.world.power_cut(&nodes[2].node),
        }
        let took = (1..60_u64).find(|_| {
            net.run(1);
            nodes[..2].iter().all(|node| net.alive(node) == 2)
        });
        let expected = if is_killed { 1..=3 } else { 15..=22 };
        assert!(took.is_some_and(|took| expected.contains(&took)), "seed {seed}: {took:?} s");
    }
}
