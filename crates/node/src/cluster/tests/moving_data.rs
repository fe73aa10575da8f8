//! Rebuild, datacenters that come and go, move, and movements that are cut off or given up.

use std::cell::Cell;

use super::*;

fn counter(node: &Started, metric: &str) -> u64 {
    let metrics = node.node.telemetry().metrics;
    let of = metrics.iter().filter(|m| m.name == metric);
    of.map(|m| match m.value {
        telemetry::Value::Counter(n) => n,
        _ => 0,
    })
    .sum()
}

fn streamed(node: &Started) -> u64 {
    counter(node, "stream_received_bytes_total")
}

fn done(reply: &AdminReply) {
    assert!(matches!(reply, AdminReply::Done), "{reply:?}");
}

fn refused(reply: AdminReply) -> String {
    match reply {
        AdminReply::Failed(error) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

fn rebuild(datacenter: &str) -> ClusterCommand {
    ClusterCommand::Rebuild {
        datacenter: Some(datacenter.to_owned()),
        keyspace: Some("ks".to_owned()),
        tokens: None,
        sources: None,
        exclude_local_dc: false,
    }
}

impl Net {
    fn options_in(&self, n: u8, datacenter: &str) -> Options {
        Options { datacenter: Some(datacenter.to_owned()), ..self.options(n) }
    }

    fn alter(&self, n: u8, replication: &str) -> Rows {
        self.query(n, &format!("ALTER KEYSPACE ks WITH replication = {replication}"))
    }

    /// Returns true if a file exists on the disk of a node that does not run.
    fn has_file(&self, n: u8, path: &'static str) -> bool {
        let found = Rc::new(Cell::new(false));
        let out = found.clone();
        self.on_disk(n, move |rt| async move { out.set(rt.fs().exists(path).await.unwrap()) });
        found.get()
    }
}

#[test]
fn a_datacenter_that_no_keyspace_asks_for_gets_no_data() {
    let net = Net::new(300);
    let mut nodes = net.cluster(&[1, 2]);
    net.fill(1, 2, 60);
    for n in [3, 4] {
        let node = net.start_with(n, net.options_in(n, "dc2"));
        net.until_ready(&[&node]);
        nodes.push(node);
    }
    net.run(5);
    let of_users = |node: &Started| counter(node, "stream_received_partitions_total");
    assert_eq!(nodes.iter().map(of_users).sum::<u64>(), 0, "nobody asked for data there");
    let unknown = refused(net.command(&nodes[2], rebuild("dc9")));
    assert!(unknown.contains("available datacenters are: dc1,dc2"), "{unknown}");
}

#[test]
fn a_rebuild_brings_what_the_node_owns() {
    let net = Net::new(301);
    let mut nodes = net.cluster(&[1, 2]);
    net.fill(1, 2, 60);
    let node = net.start_with(3, net.options_in(3, "dc2"));
    net.until_ready(&[&node]);
    nodes.push(node);
    net.run(5);
    net.alter(1, "{'class': 'NetworkTopologyStrategy', 'dc1': 2, 'dc2': 1}").unwrap();
    let text = refused(net.command(&nodes[2], rebuild("dc2")));
    assert!(text.contains("Unable to find sufficient sources for streaming range"), "{text}");
    done(&net.command(&nodes[2], rebuild("dc1")));
    assert!(streamed(&nodes[2]) > 0);
    for k in 0..60 {
        let select = format!("SELECT v FROM ks.t WHERE k = {k}");
        let found = net.query_at(3, &select, Consistency::LocalOne).unwrap();
        assert_eq!(found, [[Some(format!("v{k}").into_bytes())]], "row {k}");
    }
    // It goes again: nothing is copied for a keyspace that does not ask for it.
    net.alter(1, "{'class': 'NetworkTopologyStrategy', 'dc1': 2}").unwrap();
    // Empty pages of system keyspaces are no data.
    let partitions = |node: &Started| counter(node, "stream_received_partitions_total");
    let before: u64 = nodes.iter().map(partitions).sum();
    done(&net.command(&nodes[2], ClusterCommand::Decommission { force: true }));
    let users: u64 = nodes.iter().map(partitions).sum();
    assert_eq!(users, before, "the other datacenter's node had nothing to give");
    net.run(5);
    net.check_peers(&[1, 2]);
    net.check_rows(1, 60);
}

fn single(net: &Net, n: u8, token: i64) -> Options {
    Options { num_tokens: 1, initial_token: vec![stdx::Token(token)], ..net.options(n) }
}

#[test]
fn a_node_with_one_token_moves_with_its_data() {
    for (seed, replicas) in [(310, 1), (311, 2)] {
        let net = Net::new(seed);
        let mut nodes = Vec::new();
        for (n, token) in [(1, -6), (2, 0), (3, 6)] {
            let node = net.start_with(n, single(&net, n, token * 1_000_000_000_000_000_000));
            net.until_ready(&[&node]);
            nodes.push(node);
        }
        net.run(5);
        net.fill(1, replicas, 60);
        let move_to = |token: &str| ClusterCommand::Move { token: token.to_owned() };
        let taken = refused(net.command(&nodes[2], move_to("0")));
        assert_eq!(taken, "target token 0 is already owned by another node.");
        done(&net.command(&nodes[2], move_to("-3000000000000000000")));
        net.run(5);
        for n in 1..=3 {
            net.check_rows(n, 60);
        }
        let tokens = net.query(1, "SELECT tokens FROM system.peers_v2").unwrap();
        let moved = b"-3000000000000000000".to_vec();
        let has = |cell: &Option<Vec<u8>>| {
            cell.as_deref().is_some_and(|c| c.windows(moved.len()).any(|w| w == moved))
        };
        assert!(tokens.iter().any(|row| has(&row[0])), "seed {seed}: {tokens:?}");
        // Data that it no longer owns is removed automatically, and it keeps its token over a
        // restart.
        net.run(300);
        net.world.kill(&nodes[2].node);
        nodes[2] = net.start_with(3, single(&net, 3, 6_000_000_000_000_000_000));
        net.until_ready(&[&nodes[2]]);
        net.run(5);
        for n in 1..=3 {
            net.check_rows(n, 60);
        }
    }
}

#[test]
fn a_node_with_several_tokens_does_not_move() {
    let net = Net::new(312);
    let nodes = net.cluster(&[1, 2]);
    let text = refused(net.command(&nodes[1], ClusterCommand::Move { token: "5".to_owned() }));
    assert!(text.contains("has more than one token and cannot be moved thusly"), "{text}");
}

/// Killed while it joins, a newcomer fetches only the tables that it had not.
#[test]
fn a_newcomer_goes_on_with_the_tables_that_are_missing() {
    let mut resumed = 0;
    for seed in 320..328 {
        let net = Net::new(seed);
        let _nodes = net.cluster(&[1, 2]);
        net.fill(1, 1, 40);
        for table in ["a", "b", "c"] {
            net.query(1, &format!("CREATE TABLE ks.{table} (k int PRIMARY KEY, v text)")).unwrap();
            for k in 0..20 {
                let insert = format!("INSERT INTO ks.{table} (k, v) VALUES ({k}, 'v{k}')");
                net.query_at(1, &insert, Consistency::All).unwrap();
            }
        }
        let first = net.start(3);
        let started = || streamed(&first) > 0 || first.is_ready();
        net.world.run_until(started, Duration::from_secs(100)).unwrap();
        net.world.run_for(Duration::from_micros(1 + net.world.random_u64() % 30_000));
        let had = streamed(&first);
        if net.world.random_u64().is_multiple_of(2) {
            net.world.kill(&first.node);
        } else {
            net.world.power_cut(&first.node);
        }
        let is_remembered = net.has_file(3, "/data/metadata/received-join");
        let again = net.start(3);
        net.until_ready(&[&again]);
        assert!(had > 0);
        resumed += u64::from(is_remembered);
        net.run(5);
        for n in 1..=3 {
            net.check_rows(n, 40);
            for table in ["a", "b", "c"] {
                for k in 0..20 {
                    let select = format!("SELECT v FROM ks.{table} WHERE k = {k}");
                    let found = net.query_at(n, &select, Consistency::All).unwrap();
                    assert_eq!(found.len(), 1, "seed {seed}: {table} {k} at n{n}");
                }
            }
        }
        net.world.kill(&again.node);
        assert!(!net.has_file(3, "/data/metadata/received-join"), "it is over");
    }
    assert!(resumed > 1, "{resumed}: no run went on");
}

#[test]
fn a_decommission_is_given_up_and_the_ring_is_as_it_was() {
    let net = Net::new(330);
    let nodes = net.cluster(&[1, 2, 3]);
    net.fill(1, 1, 60);
    let nothing = refused(net.command(&nodes[2], ClusterCommand::AbortMovement {}));
    assert!(nothing.contains("nothing in progress"), "{nothing}");
    let leaving = net.begin_command(&nodes[2], ClusterCommand::Decommission { force: true });
    net.run(1);
    done(&net.command(&nodes[2], ClusterCommand::AbortMovement {}));
    net.world.run_until(|| leaving.borrow().is_some(), Duration::from_secs(100)).unwrap();
    let text = refused(leaving.take().unwrap());
    assert!(text.contains("aborted by an operator"), "{text}");
    net.run(5);
    net.check_peers(&[1, 2, 3]);
    for n in 1..=3 {
        net.check_rows(n, 60);
    }
    done(&net.command(&nodes[2], ClusterCommand::Decommission { force: true }));
    net.run(5);
    net.check_rows(1, 60);
}

#[test]
fn a_newcomer_is_taken_out_again_and_the_ring_is_as_it_was() {
    let net = Net::new(331);
    let nodes = net.cluster(&[1, 2]);
    net.fill(1, 1, 60);
    let newcomer = net.start(3);
    net.run(1);
    assert!(!newcomer.is_ready());
    let address = net.world.ip("n3").to_string();
    done(&net.command(&nodes[0], ClusterCommand::AbortBootstrap { node: address }));
    let failure = net.failure_of(&newcomer);
    assert!(failure.contains("no member"), "{failure}");
    net.run(5);
    net.check_peers(&[1, 2]);
    for n in 1..=2 {
        net.check_rows(n, 60);
    }
}

/// Pending removals survive a restart; fewer replicas are a reason too.
#[test]
fn what_a_keyspace_does_not_ask_for_any_more_goes_by_itself_over_a_restart() {
    let net = Net::new(340);
    let mut nodes = net.cluster(&[1, 2, 3]);
    net.fill(1, 3, 60);
    assert_eq!(nodes.iter().map(|n| net.partitions(n)).sum::<u64>(), 180);
    net.alter(1, "{'class': 'NetworkTopologyStrategy', 'dc1': 1}").unwrap();
    net.run(5);
    for n in 1..=3_u8 {
        let at = usize::from(n) - 1;
        net.world.kill(&nodes[at].node);
        nodes[at] = net.start(n);
        net.until_ready(&[&nodes[at]]);
    }
    net.run(300);
    assert_eq!(nodes.iter().map(|n| net.partitions(n)).sum::<u64>(), 60);
    for n in 1..=3 {
        net.check_rows(n, 60);
    }
}

/// Returns a node's report about its part in the cluster, all shards together.
fn report(net: &Net, of: &Started) -> admin::model::ClusterReport {
    let mut all = admin::model::ClusterReport::default();
    for shard in (0..of.shards).map(ShardId) {
        let found: Rc<RefCell<Option<AdminReply>>> = Rc::default();
        let (out, admin) = (found.clone(), of.admin.clone());
        net.world.client(&format!("a{}", net.world.random_u64()), move |rt| async move {
            *out.borrow_mut() = Some(admin.call(&rt, shard, AdminRequest::Cluster).await.unwrap());
        });
        net.world.run_until(|| found.borrow().is_some(), Duration::from_secs(60)).unwrap();
        let Some(AdminReply::Cluster(one)) = found.take() else { panic!("no report") };
        all.merge(*one);
    }
    all
}

/// Runs until that is so of what a node says.
fn until(net: &Net, of: &Started, what: impl Fn(&admin::model::ClusterReport) -> bool) {
    for _ in 0..2_000 {
        if what(&report(net, of)) {
            return;
        }
        net.world.run_for(Duration::from_millis(5));
    }
    panic!("it never came to that");
}

/// So slow that what is copied takes a while.
fn slowly(net: &Net, nodes: &[Started], bytes_per_second: u64) {
    for node in nodes {
        for reply in
            net.command_all(node, &ClusterCommand::SetStreamThroughput { bytes_per_second })
        {
            done(&reply);
        }
    }
}

fn finished(net: &Net, reply: &Rc<RefCell<Option<AdminReply>>>) -> AdminReply {
    net.world.run_until(|| reply.borrow().is_some(), Duration::from_secs(100)).unwrap();
    reply.take().unwrap()
}

#[test]
fn a_rebuild_is_given_up_and_the_same_one_goes_on_with_the_rest() {
    let net = Net::new(350);
    let mut nodes = net.cluster(&[1, 2]);
    net.fill(1, 2, 60);
    net.query(1, "CREATE TABLE ks.more (k int PRIMARY KEY, v text)").unwrap();
    for k in 0..60 {
        let insert = format!("INSERT INTO ks.more (k, v) VALUES ({k}, 'v{k}')");
        net.query_at(1, &insert, Consistency::All).unwrap();
    }
    let node = net.start_with(3, net.options_in(3, "dc2"));
    net.until_ready(&[&node]);
    nodes.push(node);
    net.run(5);
    net.alter(1, "{'class': 'NetworkTopologyStrategy', 'dc1': 2, 'dc2': 1}").unwrap();
    let nothing = refused(net.command(&nodes[2], ClusterCommand::AbortRebuild {}));
    assert!(nothing.contains("no rebuild in progress"), "{nothing}");
    // The new replica takes over what lightweight transactions decided.
    net.run(10);
    // Before it fetches anything.
    let had = counter(&nodes[2], "stream_received_partitions_total");
    let rebuilding = net.begin_command(&nodes[2], rebuild("dc1"));
    net.world.run_for(Duration::from_millis(500));
    done(&net.command(&nodes[2], ClusterCommand::AbortRebuild {}));
    let text = refused(finished(&net, &rebuilding));
    assert!(text.contains("aborted by an operator"), "{text}");
    assert_eq!(counter(&nodes[2], "stream_received_partitions_total"), had);
    // While it does.
    slowly(&net, &nodes, 3_000);
    let rebuilding = net.begin_command(&nodes[2], rebuild("dc1"));
    until(&net, &nodes[2], |report| {
        let sessions = &report.streaming.as_ref().unwrap().sessions;
        let of_rebuild = |s: &&admin::model::StreamReport| {
            s.operation == "Rebuild" && s.receiving.is_some_and(|p| p.files > 0 && p.bytes > 0)
        };
        sessions.iter().find(of_rebuild).is_some()
    });
    done(&net.command(&nodes[2], ClusterCommand::AbortRebuild {}));
    let text = refused(finished(&net, &rebuilding));
    assert!(text.contains("aborted by an operator"), "{text}");
    assert_eq!(report(&net, &nodes[2]).streaming.unwrap().sessions, []);
    let before = streamed(&nodes[2]);
    net.run(5);
    assert_eq!(streamed(&nodes[2]), before, "it still copies");
    slowly(&net, &nodes, 0);
    done(&net.command(&nodes[2], rebuild("dc1")));
    for (table, k) in ["t", "more"].into_iter().flat_map(|t| (0..60).map(move |k| (t, k))) {
        let select = format!("SELECT v FROM ks.{table} WHERE k = {k}");
        let found = net.query_at(3, &select, Consistency::LocalOne).unwrap();
        assert_eq!(found, [[Some(format!("v{k}").into_bytes())]], "row {k} of {table}");
    }
}

fn id_of(net: &Net, n: u8) -> String {
    stdx::Uuid::from_slice(&net.host_of(n)).unwrap().to_string()
}

#[test]
fn a_removal_is_given_up_and_the_dead_node_is_a_member_as_before() {
    let net = Net::new(351);
    let nodes = net.cluster(&[1, 2, 3, 4]);
    net.fill(1, 2, 60);
    let dead = id_of(&net, 4);
    net.world.kill(&nodes[3].node);
    net.run(40);
    let abort = |host_id| ClusterCommand::AbortRemoval { host_id };
    let nothing = refused(net.command(&nodes[0], abort(None)));
    assert!(nothing.contains("no removal in progress"), "{nothing}");
    let unknown = refused(net.command(&nodes[0], abort(Some("7".to_owned()))));
    assert_eq!(unknown, "Invalid UUID string: 7");
    slowly(&net, &nodes[..3], 500);
    let remove = || ClusterCommand::RemoveNode { host_id: dead.clone() };
    let removing = net.begin_command(&nodes[0], remove());
    until(&net, &nodes[0], |report| {
        let removal = report.removal.as_ref();
        removal.is_some_and(|r| r.copies.iter().any(|c| c.ranges > 0 && c.bytes > 0))
    });
    let copying = |node| {
        let sessions = report(&net, node).streaming.unwrap().sessions;
        let is_copy = |s: &admin::model::StreamReport| s.operation == "Restore replica count";
        sessions.iter().any(|s| is_copy(s) && s.receiving.is_some())
    };
    assert!(nodes[..3].iter().any(copying));
    done(&net.command(&nodes[0], abort(Some(dead.clone()))));
    let text = refused(finished(&net, &removing));
    assert!(text.contains("aborted by an operator"), "{text}");
    // No node copies any more, although all copies would have taken minutes.
    net.run(2);
    assert!(!nodes[..3].iter().any(copying), "copies go on");
    assert_eq!(report(&net, &nodes[0]).removal, None);
    slowly(&net, &nodes[..3], 0);
    let again = net.start(4);
    net.until_ready(&[&again]);
    net.run(10);
    net.check_peers(&[1, 2, 3, 4]);
    for n in 1..=4 {
        net.check_rows(n, 60);
    }
    net.world.kill(&again.node);
    net.run(40);
    done(&net.command(&nodes[0], remove()));
    net.run(5);
    net.check_rows(2, 60);
}

/// The node that carried it out died: another one takes the order back.
#[test]
fn a_removal_that_was_left_behind_is_given_up_at_another_node() {
    let net = Net::new(352);
    let nodes = net.cluster(&[1, 2, 3, 4]);
    net.fill(1, 2, 40);
    let dead = id_of(&net, 4);
    net.world.kill(&nodes[3].node);
    net.run(40);
    slowly(&net, &nodes[..3], 100);
    let _removing = net.begin_command(&nodes[2], ClusterCommand::RemoveNode { host_id: dead });
    let is_copying =
        |r: &admin::model::ClusterReport| r.removal.as_ref().is_some_and(|r| !r.copies.is_empty());
    until(&net, &nodes[2], is_copying);
    net.world.kill(&nodes[2].node);
    net.run(40);
    done(&net.command(&nodes[0], ClusterCommand::AbortRemoval { host_id: None }));
    let nothing = refused(net.command(&nodes[0], ClusterCommand::AbortRemoval { host_id: None }));
    assert!(nothing.contains("no removal in progress"), "{nothing}");
    slowly(&net, &nodes[..2], 0);
    let back: Vec<Started> = [3, 4].map(|n| net.start(n)).into_iter().collect();
    net.until_ready(&back.iter().collect::<Vec<_>>());
    net.run(10);
    net.check_peers(&[1, 2, 3, 4]);
    for n in 1..=4 {
        net.check_rows(n, 40);
    }
}
