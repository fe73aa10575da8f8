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

/// How long the others take a node for alive: its machine refuses connections, or is silent without power.
fn conviction(seed: u64, is_killed: bool) -> Option<u64> {
    let net = Net::new(seed);
    let nodes = net.cluster(&[1, 2, 3]);
    net.fill(1, 3, 5);
    net.run(if seed.is_multiple_of(2) { 5 } else { 120 });
    match is_killed {
        true => net.world.kill(&nodes[2].node),
        false => net.world.power_cut(&nodes[2].node),
    }
    (1..60).find(|_| {
        net.run(1);
        nodes[..2].iter().all(|node| net.alive(node) == 2)
    })
}

/// News of it that another node passes on may come after the first refusal, so that it takes another round or two.
#[test]
fn a_node_that_is_killed_is_down_within_two_seconds_and_never_after_six() {
    let took: Vec<u64> = (240..260).map(|seed| conviction(seed, true).unwrap()).collect();
    assert!(took.iter().all(|took| *took <= 6), "{took:?}");
    let within_two = took.iter().filter(|took| **took <= 2).count();
    assert!(within_two >= 14, "{within_two} of 20: {took:?}");
}

/// Only time tells.
#[test]
fn a_node_without_power_is_down_after_15_to_22_seconds() {
    for seed in 243..246 {
        let took = conviction(seed, false);
        assert!(took.is_some_and(|took| (15..=22).contains(&took)), "seed {seed}: {took:?} s");
    }
}
