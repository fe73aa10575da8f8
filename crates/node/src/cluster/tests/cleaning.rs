//! Data that a node does not own any more.

use super::*;

impl Net {
    /// Partitions of `ks.t` that the shards of a node have in files and memtables.
    pub(super) fn partitions(&self, at: &Started) -> u64 {
        let found: Rc<RefCell<Option<u64>>> = Rc::default();
        let (out, admin, shards) = (found.clone(), at.admin.clone(), at.shards);
        self.world.client(&format!("a{}", self.world.random_u64()), move |rt| async move {
            let mut sum = 0;
            for shard in (0..shards).map(ShardId) {
                let reply = admin.call(&rt, shard, AdminRequest::Tables).await.unwrap();
                let AdminReply::Tables(tables) = reply else { panic!("{reply:?}") };
                let of_table = tables.iter().filter(|t| (&*t.keyspace, &*t.table) == ("ks", "t"));
                sum += of_table.map(|t| t.partitions_estimate).sum::<u64>();
            }
            *out.borrow_mut() = Some(sum);
        });
        self.world.run_until(|| found.borrow().is_some(), Duration::from_secs(60)).unwrap();
        found.take().unwrap()
    }

    fn sum_of_partitions(&self, nodes: &[Started]) -> u64 {
        nodes.iter().map(|node| self.partitions(node)).sum()
    }
}

fn clean() -> ClusterCommand {
    ClusterCommand::Cleanup { keyspace: "ks".to_owned(), tables: Vec::new() }
}

#[test]
fn what_a_newcomer_took_over_goes_from_the_others_when_it_is_told_to() {
    for (seed, replicas) in [(210, 1), (211, 2)] {
        let net = Net::new(seed);
        let mut nodes = net.cluster(&[1, 2]);
        net.fill(1, replicas, 60);
        nodes.extend(net.cluster(&[3]));
        let owned = 60 * u64::from(replicas);
        assert!(net.sum_of_partitions(&nodes) > owned, "seed {seed}: nothing moved");
        for node in &nodes {
            for reply in net.command_all(node, &clean()) {
                assert!(matches!(reply, AdminReply::Done), "seed {seed}: {reply:?}");
            }
        }
        assert_eq!(net.sum_of_partitions(&nodes), owned, "seed {seed}");
        for n in 1..=3 {
            net.check_rows(n, 60);
        }
    }
}

#[test]
fn it_goes_by_itself_some_time_after_and_not_while_a_member_is_down() {
    let net = Net::new(212);
    let mut nodes = net.cluster(&[1, 2]);
    net.fill(1, 1, 60);
    nodes.extend(net.cluster(&[3]));
    let all = net.sum_of_partitions(&nodes);
    assert!(all > 60);
    net.world.kill(&nodes[2].node);
    net.run(300);
    let before = net.partitions(&nodes[0]) + net.partitions(&nodes[1]);
    assert_eq!(before, 60, "nobody cleans while the new owner is down");
    nodes[2] = net.start(3);
    net.until_ready(&[&nodes[2]]);
    net.run(300);
    assert_eq!(net.sum_of_partitions(&nodes), 60);
    for n in 1..=3 {
        net.check_rows(n, 60);
    }
}

#[test]
fn nobody_cleans_while_a_node_moves() {
    let net = Net::new(213);
    let mut nodes = net.cluster(&[1, 2]);
    net.fill(1, 1, 60);
    let newcomer = net.start(3);
    // It waits for writes that had begun, and streams.
    net.run(2);
    assert!(!newcomer.is_ready());
    // INV-cleaning-1: while a node moves nothing is owned for certain, and nothing goes.
    for reply in net.command_all(&nodes[0], &clean()) {
        let AdminReply::Failed(error) = reply else { panic!("{reply:?}") };
        assert!(error.to_string().contains("Not safe to run cleanup"), "{error}");
    }
    net.until_ready(&[&newcomer]);
    nodes.push(newcomer);
    for n in 1..=3 {
        net.check_rows(n, 60);
    }
}

/// Returns the answer of a node's shard 0.
fn asked(net: &Net, of: &Started, request: AdminRequest) -> AdminReply {
    let found: Rc<RefCell<Option<AdminReply>>> = Rc::default();
    let (out, admin) = (found.clone(), of.admin.clone());
    net.world.client(&format!("a{}", net.world.random_u64()), move |rt| async move {
        *out.borrow_mut() = Some(admin.call(&rt, ShardId(0), request).await.unwrap());
    });
    net.world.run_until(|| found.borrow().is_some(), Duration::from_secs(60)).unwrap();
    found.take().unwrap()
}

#[test]
fn a_snapshot_goes_when_its_time_is_over_also_over_a_restart() {
    let net = Net::new(90);
    let mut nodes = net.cluster(&[1]);
    net.fill(1, 1, 5);
    for (tag, ttl_seconds) in [("stays", None), ("goes", Some(60)), ("later", Some(600))] {
        let (keyspaces, tables) = (vec!["ks".to_owned()], Vec::new());
        let selection = admin::Selection { keyspaces, tables };
        let (tag, skip_flush) = (tag.to_owned(), false);
        let request = AdminRequest::TakeSnapshot { tag, selection, skip_flush, ttl_seconds };
        let reply = asked(&net, &nodes[0], request);
        assert!(matches!(reply, AdminReply::Done), "{reply:?}");
    }
    let listed = |of: &Started| match asked(&net, of, AdminRequest::ListSnapshots) {
        AdminReply::Snapshots(mut all) => {
            all.sort_by(|a, b| a.tag.cmp(&b.tag));
            all.into_iter().map(|s| (s.tag, !s.expires_at.is_empty())).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let of = |tag: &str, expires| (tag.to_owned(), expires);
    net.run(50);
    assert_eq!(listed(&nodes[0]), [of("goes", true), of("later", true), of("stays", false)]);
    net.run(80);
    assert_eq!(listed(&nodes[0]), [of("later", true), of("stays", false)]);
    net.world.kill(&nodes[0].node);
    nodes[0] = net.start(1);
    net.until_ready(&[&nodes[0]]);
    net.run(10);
    assert_eq!(listed(&nodes[0]), [of("later", true), of("stays", false)]);
    net.run(600);
    assert_eq!(listed(&nodes[0]), [of("stays", false)]);
}
