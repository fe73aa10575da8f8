//! A newcomer in the place of a dead member.

use super::*;

impl Net {
    /// Options of node `n` for the place of the member that stood at node `old`'s address.
    fn replacing(&self, n: u8, old: u8) -> Options {
        Options {
            replace_address_first_boot: Some(Address::Ip(self.world.ip(&name(old)))),
            rack: Some(format!("r{}", old % 3)),
            seeds: vec![self.world.ip("n1").to_string(), self.world.ip("n2").to_string()],
            ..self.options(n)
        }
    }

    fn tokens(&self, n: u8) -> Vec<u8> {
        self.query(n, "SELECT tokens FROM system.local").unwrap()[0][0].clone().unwrap()
    }

    /// Empties the directory of a node that does not run.
    fn empty(&self, n: u8) {
        self.on_disk(n, |rt| async move { rt.fs().remove_dir_all("/data").await.unwrap() });
    }
}

#[test]
fn a_replacement_has_the_tokens_and_the_data_of_the_dead_and_the_dead_is_out() {
    for seed in 230..233 {
        let net = Net::new(seed);
        let nodes = net.cluster(&[1, 2, 3]);
        net.fill(1, 3, 40);
        let tokens = net.tokens(3);
        net.world.kill(&nodes[2].node);
        net.run(40);
        // Writes go on; what the newcomer needs of them is on the others.
        net.query_at(1, "INSERT INTO ks.t (k, v) VALUES (40, 'v40')", Consistency::Quorum).unwrap();
        let newcomer = net.start_with(4, net.replacing(4, 3));
        net.until_ready(&[&newcomer]);
        net.run(10);
        assert_eq!(net.tokens(4), tokens, "seed {seed}");
        net.check_peers(&[1, 2, 4]);
        for n in [1, 2, 4] {
            net.check_rows(n, 41);
        }
        // It is a member like the others: changes of the schema go through it, restarts too.
        net.query(4, &keyspace("after")).unwrap();
        net.world.kill(&newcomer.node);
        let again = net.start_with(4, net.replacing(4, 3));
        net.until_ready(&[&again]);
        net.run(10);
        net.check_rows(4, 41);
        // The old one does not come back.
        let failure = net.failure_of(&net.start(3));
        assert!(failure.contains("is no member of the cluster any more"), "seed {seed}: {failure}");
    }
}

#[test]
fn a_replacement_may_stand_where_the_dead_one_stood() {
    let net = Net::new(234);
    let nodes = net.cluster(&[1, 2, 3]);
    net.fill(1, 2, 40);
    let tokens = net.tokens(3);
    let old = net.host_of(3);
    net.world.kill(&nodes[2].node);
    net.empty(3);
    net.run(40);
    // Killed in the middle and its directory emptied once more: the next one goes on in its place.
    let first = net.start_with(3, net.replacing(3, 3));
    net.run(4);
    assert!(!first.is_ready());
    net.world.kill(&first.node);
    net.empty(3);
    net.run(40);
    let newcomer = net.start_with(3, net.replacing(3, 3));
    net.until_ready(&[&newcomer]);
    net.run(10);
    assert_eq!(net.tokens(3), tokens);
    assert_ne!(net.host_of(3), old);
    net.check_peers(&[1, 2, 3]);
    for n in 1..=3 {
        net.check_rows(n, 40);
    }
}

#[test]
fn a_replacement_that_is_killed_goes_on_with_the_next_start() {
    for seed in 235..238 {
        let net = Net::new(seed);
        let nodes = net.cluster(&[1, 2, 3]);
        net.fill(1, 3, 20);
        net.world.kill(&nodes[2].node);
        net.run(40);
        let first = net.start_with(4, net.replacing(4, 3));
        net.world.run_for(Duration::from_millis(200 + 2_500 * (seed - 235)));
        net.world.kill(&first.node);
        let again = net.start_with(4, net.replacing(4, 3));
        net.until_ready(&[&again]);
        net.run(10);
        net.check_peers(&[1, 2, 4]);
        net.check_rows(4, 20);
    }
}

#[test]
fn only_a_dead_member_is_replaced_and_only_in_its_place() {
    let net = Net::new(238);
    let nodes = net.cluster(&[1, 2, 3]);
    net.fill(1, 3, 5);
    let refused = |options: Options| {
        let started = net.start_with(4, options);
        let failure = net.failure_of(&started);
        net.empty(4);
        failure
    };
    let failure = refused(net.replacing(4, 3));
    assert!(failure.contains("Cannot replace a live node"), "{failure}");
    let failure = refused(net.replacing(4, 9));
    assert!(failure.contains("because it doesn't exist in gossip"), "{failure}");
    let alone = Options { seeds: vec![net.world.ip("n4").to_string()], ..net.replacing(4, 3) };
    let failure = refused(alone);
    assert!(failure.contains("seeds names no other node"), "{failure}");
    net.world.kill(&nodes[2].node);
    // The failure detectors have not convicted it yet.
    let failure = refused(net.replacing(4, 3));
    assert!(failure.contains("Cannot replace a live node"), "{failure}");
    net.run(40);
    let elsewhere = Options { rack: Some("r7".to_owned()), ..net.replacing(4, 3) };
    let failure = refused(elsewhere);
    assert!(failure.contains("start its replacement there"), "{failure}");
    let newcomer = net.start_with(4, net.replacing(4, 3));
    net.until_ready(&[&newcomer]);
    net.run(5);
    net.check_peers(&[1, 2, 4]);
}

#[test]
fn a_dead_member_that_comes_back_meanwhile_is_not_replaced() {
    let net = Net::new(239);
    let nodes = net.cluster(&[1, 2, 3]);
    net.fill(1, 3, 5);
    net.world.kill(&nodes[2].node);
    net.run(40);
    let newcomer = net.start_with(4, net.replacing(4, 3));
    net.run(1);
    let back = net.start(3);
    net.until_ready(&[&back]);
    let failure = net.failure_of(&newcomer);
    assert!(failure.contains("is back"), "{failure}");
    net.check_rows(3, 5);
}
