//! Whole nodes in one simulated network, looked at by CQL.
#![allow(clippy::disallowed_types, reason = "facts are shared with the world's main function")]

mod cleaning;
mod client;
mod conviction;
mod cutting;
mod dropped;
mod full_disks;
mod identity;
mod lacking;
mod moving_data;
mod repairing;
mod replacing;
mod replication;
mod roles;
mod serving;
mod tracing;
mod truncation;

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use admin::model::ClusterCommand;
use admin::{AdminMesh, AdminReply, AdminRequest};
use conf::{Address, Options, Snitch};
use cql_wire::Consistency;
use rt::sim::{SimNode, World, WorldOptions};
use rt::{NodeSpec, Rt, ShardId};

use crate::cluster::tests::client::Rows;
use crate::{Meshes, Outcome};

const CQL: u16 = 9042;

fn name(n: u8) -> String {
    format!("n{n}")
}

/// A node that was started.
struct Started {
    node: SimNode,
    outcome: Arc<Outcome>,
    admin: Arc<AdminMesh>,
    shards: u16,
}

impl Started {
    fn is_ready(&self) -> bool {
        self.outcome.ready.get().is_some()
    }

    fn failure(&self) -> Option<String> {
        self.outcome.failure().map(ToString::to_string)
    }
}

struct Net {
    world: World,
}

impl Net {
    fn new(seed: u64) -> Net {
        Net { world: World::new(seed, WorldOptions::default()) }
    }

    /// The options of a node whose seeds are the nodes 1 and 2.
    fn options(&self, n: u8) -> Options {
        let ip = |n: u8| self.world.ip(&name(n));
        Options {
            workdir: "/data".to_owned(),
            cluster_name: "Test".to_owned(),
            num_tokens: 4,
            seeds: vec![ip(1).to_string(), format!("{}:7000", ip(2))],
            listen_address: Address::Ip(ip(n)),
            rpc_address: Address::Ip(ip(n)),
            native_shard_aware_transport_port: 0,
            smp: Some(1 + u16::from(n % 2)),
            endpoint_snitch: Snitch::GossipingPropertyFile,
            datacenter: Some("dc1".to_owned()),
            rack: Some(format!("r{}", n % 3)),
            ..Options::default()
        }
    }

    fn start_with(&self, n: u8, options: Options) -> Started {
        let outcome = Arc::new(Outcome::default());
        // Like `Node::prepare`, but keeps the administrator's mesh.
        let shards = options.smp.unwrap_or(1);
        let meshes = Meshes::new(shards);
        let admin = meshes.admin.clone();
        let spec = NodeSpec { name: name(n), shards, work_dir: String::new() };
        let (options, of_main) = (Arc::new(options), outcome.clone());
        let main: rt::Main = Arc::new(move |rt| {
            let (options, meshes) = (options.clone(), meshes.clone());
            let program = crate::Program::default();
            let (outcome, hook) = (of_main.clone(), None);
            let shard = crate::shard::Shard { rt, options, meshes, outcome, hook, program };
            Box::pin(shard.run())
        });
        Started { node: self.world.start_node(spec, main), outcome, admin, shards }
    }

    fn start(&self, n: u8) -> Started {
        self.start_with(n, self.options(n))
    }

    fn run(&self, seconds: u64) {
        self.world.run_for(Duration::from_secs(seconds));
    }

    fn until_ready(&self, nodes: &[&Started]) {
        let done = || nodes.iter().all(|n| n.is_ready() || n.failure().is_some());
        self.world.run_until(done, Duration::from_secs(300)).unwrap();
        for (i, node) in nodes.iter().enumerate() {
            assert_eq!(node.failure(), None, "node {i} of the list");
        }
    }

    /// Has a node do something, to its end.
    fn command(&self, at: &Started, command: ClusterCommand) -> AdminReply {
        let found = self.begin_command(at, command);
        self.world.run_until(|| found.borrow().is_some(), Duration::from_secs(600)).unwrap();
        found.take().unwrap()
    }

    /// Has every shard of a node do something, one after the other.
    fn command_all(&self, at: &Started, command: &ClusterCommand) -> Vec<AdminReply> {
        let one = |shard| {
            let found = self.begin_command_at(at, shard, command.clone());
            self.world.run_until(|| found.borrow().is_some(), Duration::from_secs(600)).unwrap();
            found.take().unwrap()
        };
        (0..at.shards).map(ShardId).map(one).collect()
    }

    fn begin_command(
        &self,
        at: &Started,
        command: ClusterCommand,
    ) -> Rc<RefCell<Option<AdminReply>>> {
        self.begin_command_at(at, ShardId(0), command)
    }

    fn begin_command_at(
        &self,
        at: &Started,
        shard: ShardId,
        command: ClusterCommand,
    ) -> Rc<RefCell<Option<AdminReply>>> {
        let found: Rc<RefCell<Option<AdminReply>>> = Rc::default();
        let (out, admin) = (found.clone(), at.admin.clone());
        self.world.client(&format!("a{}", self.world.random_u64()), move |rt| async move {
            let request = AdminRequest::Command(command);
            // A node that dies meanwhile never answers.
            *out.borrow_mut() = admin.call(&rt, shard, request).await.ok();
        });
        found
    }

    /// Runs `work` with the disk of a node that does not run.
    fn on_disk<F: Future<Output = ()> + 'static>(&self, n: u8, work: impl FnOnce(Rt) -> F) {
        let done = Rc::new(RefCell::new(false));
        let out = done.clone();
        self.world.client(&name(n), move |rt| {
            let work = work(rt);
            async move {
                work.await;
                *out.borrow_mut() = true;
            }
        });
        self.world.run_until(|| *done.borrow(), Duration::from_secs(60)).unwrap();
    }

    /// Starts the nodes one after the other.
    fn cluster(&self, all: &[u8]) -> Vec<Started> {
        let mut started = Vec::new();
        for n in all {
            let node = self.start(*n);
            self.until_ready(&[&node]);
            started.push(node);
        }
        self.run(5);
        started
    }

    fn fill(&self, n: u8, replicas: u8, rows: u32) {
        let replication = format!("{{'class': 'NetworkTopologyStrategy', 'dc1': {replicas}}}");
        self.query(n, &format!("CREATE KEYSPACE ks WITH replication = {replication}")).unwrap();
        self.query(n, "CREATE TABLE ks.t (k int PRIMARY KEY, v text)").unwrap();
        for k in 0..rows {
            let insert = format!("INSERT INTO ks.t (k, v) VALUES ({k}, 'v{k}')");
            self.query_at(n, &insert, Consistency::All).unwrap();
        }
    }

    /// Every row is found at ALL by node `n`.
    fn check_rows(&self, n: u8, rows: u32) {
        for k in 0..rows {
            let select = format!("SELECT v FROM ks.t WHERE k = {k}");
            let found = self.query_at(n, &select, Consistency::All).unwrap();
            assert_eq!(found, [[Some(format!("v{k}").into_bytes())]], "row {k} at n{n}");
        }
    }

    /// Runs until the node has given up.
    fn failure_of(&self, started: &Started) -> String {
        let done = || started.failure().is_some() || started.is_ready();
        self.world.run_until(done, Duration::from_secs(300)).unwrap();
        assert!(!started.is_ready(), "it started");
        started.failure().unwrap()
    }

    fn begin(&self, n: u8, text: &str, consistency: Consistency) -> Rc<RefCell<Option<Rows>>> {
        let address = SocketAddr::new(self.world.ip(&name(n)), CQL);
        let found: Rc<RefCell<Option<Rows>>> = Rc::default();
        let (out, text) = (found.clone(), text.to_owned());
        self.world.client(&format!("c{}", self.world.random_u64()), move |rt| async move {
            let rows = client::query(&rt, address, &text, consistency).await;
            *out.borrow_mut() = Some(rows);
        });
        found
    }

    fn query_at(&self, n: u8, text: &str, consistency: Consistency) -> Rows {
        let found = self.begin(n, text, consistency);
        self.world.run_until(|| found.borrow().is_some(), Duration::from_secs(60)).unwrap();
        found.take().unwrap()
    }

    fn query(&self, n: u8, text: &str) -> Rows {
        self.query_at(n, text, Consistency::One)
    }

    /// The first column as texts, sorted.
    fn texts(&self, n: u8, text: &str) -> Vec<String> {
        let rows = self.query(n, text).unwrap_or_else(|e| panic!("n{n}: {text}: {e}"));
        let first = |row: &Vec<Option<Vec<u8>>>| {
            String::from_utf8_lossy(row[0].as_deref().unwrap_or_default()).into_owned()
        };
        let mut texts: Vec<String> = rows.iter().map(first).collect();
        texts.sort();
        texts
    }

    fn hosts_of_peers(&self, n: u8, table: &str) -> Vec<Vec<u8>> {
        let rows = self.query(n, &format!("SELECT host_id FROM system.{table}")).unwrap();
        let mut hosts: Vec<Vec<u8>> = rows.iter().map(|r| r[0].clone().unwrap()).collect();
        hosts.sort();
        hosts
    }

    fn host_of(&self, n: u8) -> Vec<u8> {
        self.query(n, "SELECT host_id FROM system.local").unwrap()[0][0].clone().unwrap()
    }

    /// Every node of `all` has the others in its tables of peers, with the same schema version.
    fn check_peers(&self, all: &[u8]) {
        let hosts: Vec<Vec<u8>> = all.iter().map(|n| self.host_of(*n)).collect();
        for (n, own) in all.iter().zip(&hosts) {
            let mut others: Vec<Vec<u8>> = hosts.iter().filter(|h| *h != own).cloned().collect();
            others.sort();
            assert_eq!(self.hosts_of_peers(*n, "peers"), others, "n{n}");
            assert_eq!(self.hosts_of_peers(*n, "peers_v2"), others, "n{n}");
            let local = self.query(*n, "SELECT schema_version FROM system.local").unwrap();
            let of_peers = self.query(*n, "SELECT schema_version FROM system.peers_v2").unwrap();
            assert!(of_peers.iter().all(|row| row[0] == local[0][0]), "n{n}");
        }
    }
}

fn keyspace(name: &str) -> String {
    format!(
        "CREATE KEYSPACE {name} WITH replication = \
         {{'class': 'NetworkTopologyStrategy', 'dc1': 3}}"
    )
}

#[test]
fn three_nodes_found_a_cluster_and_a_schema_change_is_seen_by_all_when_it_is_answered() {
    for seed in 0..4 {
        let net = Net::new(seed);
        let nodes: Vec<Started> = (1..=3).map(|n| net.start(n)).collect();
        net.until_ready(&nodes.iter().collect::<Vec<_>>());
        net.run(5);
        net.check_peers(&[1, 2, 3]);
        for (i, n) in [2_u8, 3, 1].into_iter().enumerate() {
            let name = format!("ks{i}");
            net.query(n, &keyspace(&name)).unwrap();
            let select = "SELECT keyspace_name FROM system_schema.keyspaces";
            for m in 1..=3 {
                let seen = net.texts(m, select);
                assert!(seen.contains(&name), "seed {seed}: n{m} after n{n}: {seen:?}");
            }
        }
        net.check_peers(&[1, 2, 3]);
        // Three nodes, three voters: one of them may be away.
        net.world.kill(&nodes[0].node);
        net.run(40);
        net.query(2, &keyspace("without_n1")).unwrap();
        let again = net.start(1);
        net.until_ready(&[&again]);
        let seen = net.texts(1, "SELECT keyspace_name FROM system_schema.keyspaces");
        assert!(seen.contains(&"without_n1".to_owned()), "seed {seed}: {seen:?}");
        net.run(20);
        net.check_peers(&[1, 2, 3]);
    }
}

#[test]
fn nodes_that_join_at_the_same_time_all_get_in() {
    for seed in 10..13 {
        let net = Net::new(seed);
        let nodes: Vec<Started> = (1..=5).map(|n| net.start(n)).collect();
        net.until_ready(&nodes.iter().collect::<Vec<_>>());
        net.run(5);
        net.check_peers(&[1, 2, 3, 4, 5]);
    }
}

#[test]
fn a_newcomer_takes_over_the_data_of_its_ranges() {
    for (seed, replicas) in [(20, 1), (21, 2)] {
        let net = Net::new(seed);
        let mut nodes = net.cluster(&[1, 2]);
        net.fill(1, replicas, 60);
        nodes.extend(net.cluster(&[3]));
        for n in 1..=3 {
            net.check_rows(n, 60);
        }
        // It stored the data itself: it has the rows after a restart too.
        net.world.kill(&nodes[2].node);
        let again = net.start(3);
        net.until_ready(&[&again]);
        net.run(10);
        net.check_rows(3, 60);
    }
}

#[test]
fn a_node_that_is_killed_while_it_joins_goes_on_with_that() {
    for seed in 30..34 {
        let net = Net::new(seed);
        let _nodes = net.cluster(&[1, 2]);
        net.fill(1, 1, 20);
        let first = net.start(3);
        net.world.run_for(Duration::from_millis(200 + 900 * (seed - 30)));
        net.world.kill(&first.node);
        let again = net.start(3);
        net.until_ready(&[&again]);
        net.run(10);
        net.check_peers(&[1, 2, 3]);
        net.check_rows(3, 20);
    }
}

#[test]
fn a_decommissioned_node_leaves_its_data_behind() {
    for (seed, replicas) in [(40, 1), (41, 2)] {
        let net = Net::new(seed);
        let nodes = net.cluster(&[1, 2, 3]);
        net.fill(1, replicas, 60);
        let reply = net.command(&nodes[2], ClusterCommand::Decommission { force: true });
        assert!(matches!(reply, AdminReply::Done), "{reply:?}");
        net.run(5);
        net.check_peers(&[1, 2]);
        // Its clients find the others.
        assert!(net.query(3, "SELECT key FROM system.local").is_err());
        net.world.kill(&nodes[2].node);
        net.run(30);
        for n in 1..=2 {
            net.check_rows(n, 60);
        }
        // A later start is refused with that error.
        let again = net.start(3);
        let failure = net.failure_of(&again);
        assert!(failure.contains("is no member of the cluster any more"), "{failure}");
    }
}

#[test]
fn a_dead_node_is_removed_and_its_copies_are_made_anew() {
    let net = Net::new(50);
    let nodes = net.cluster(&[1, 2, 3, 4]);
    net.fill(1, 2, 60);
    let dead = net.query(4, "SELECT host_id FROM system.local").unwrap()[0][0].clone().unwrap();
    let dead = stdx::Uuid::from_slice(&dead).unwrap().to_string();
    let refused = net.command(&nodes[0], ClusterCommand::RemoveNode { host_id: dead.clone() });
    assert!(matches!(refused, AdminReply::Failed(_)), "it is alive: {refused:?}");
    net.world.kill(&nodes[3].node);
    net.run(40);
    let reply = net.command(&nodes[0], ClusterCommand::RemoveNode { host_id: dead });
    assert!(matches!(reply, AdminReply::Done), "{reply:?}");
    net.run(5);
    net.check_peers(&[1, 2, 3]);
    for n in 1..=3 {
        net.check_rows(n, 60);
    }
}

#[test]
fn an_assassinated_node_is_out_even_when_it_voted() {
    let net = Net::new(51);
    let nodes = net.cluster(&[1, 2, 3, 4]);
    let dead = net.world.ip("n1").to_string();
    net.world.kill(&nodes[0].node);
    net.run(40);
    let reply = net.command(&nodes[1], ClusterCommand::Assassinate { address: dead });
    assert!(matches!(reply, AdminReply::Done), "{reply:?}");
    net.run(5);
    net.check_peers(&[2, 3, 4]);
    net.query(3, &keyspace("after")).unwrap();
}

#[test]
fn what_does_not_belong_together_does_not_start() {
    let net = Net::new(60);
    // Another cluster of the same name.
    let alone = Options { seeds: vec![net.world.ip("n5").to_string()], ..net.options(5) };
    let stranger = net.start_with(5, alone);
    net.until_ready(&[&stranger]);
    net.world.kill(&stranger.node);
    let nodes = net.cluster(&[1, 2]);
    let failure = net.failure_of(&net.start(5));
    assert!(failure.contains("only has the same name"), "{failure}");
    // Another name.
    let named = Options { cluster_name: "Other".to_owned(), ..net.options(6) };
    let failure = net.failure_of(&net.start_with(6, named));
    assert!(failure.contains("belongs to the cluster \"Test\""), "{failure}");
    // A token that is taken.
    let taken = net.query(1, "SELECT tokens FROM system.local").unwrap()[0][0].clone().unwrap();
    let text = String::from_utf8_lossy(&taken[8..]).into_owned();
    let digits = |c: char| c.is_ascii_digit() || c == '-';
    let token: String = text.chars().take_while(|c| digits(*c)).collect();
    let token = stdx::Token(token.parse().unwrap());
    let options = Options { initial_token: vec![token], num_tokens: 1, ..net.options(7) };
    let failure = net.failure_of(&net.start_with(7, options));
    assert!(failure.contains(&format!("token {token} belongs to")), "{failure}");
    // A data centre that the data does not stand in.
    net.world.kill(&nodes[1].node);
    let moved = Options { datacenter: Some("dc2".to_owned()), ..net.options(2) };
    let failure = net.failure_of(&net.start_with(2, moved));
    assert!(failure.contains("snitch's data center (dc2) differs from previous"), "{failure}");
    let again = net.start(2);
    net.until_ready(&[&again]);
}

#[test]
fn a_damaged_or_missing_identity_stops_the_start_and_says_what_to_do() {
    let net = Net::new(61);
    let nodes = net.cluster(&[1, 2]);
    net.world.kill(&nodes[1].node);
    const PATH: &str = "/data/metadata/identity";
    let kept: Rc<RefCell<Vec<u8>>> = Rc::default();
    let out = kept.clone();
    net.on_disk(2, move |rt| async move {
        let bytes = rt.fs().read(PATH, 4096).await.unwrap();
        *out.borrow_mut() = bytes.clone();
        let mut damaged = bytes;
        damaged[30] ^= 1;
        rt.fs().write_atomic(PATH, damaged).await.unwrap();
    });
    let failure = net.failure_of(&net.start(2));
    assert!(failure.contains(PATH) && failure.contains("restore the file"), "{failure}");
    net.on_disk(2, |rt| async move { rt.fs().remove_file(PATH).await.unwrap() });
    let failure = net.failure_of(&net.start(2));
    assert!(failure.contains("it is missing"), "{failure}");
    let bytes = kept.take();
    net.on_disk(2, move |rt| async move { rt.fs().write_atomic(PATH, bytes).await.unwrap() });
    let again = net.start(2);
    net.until_ready(&[&again]);
}

#[test]
fn a_node_that_finds_no_seed_says_which_ones_it_asked() {
    let net = Net::new(62);
    let failure = net.failure_of(&net.start(3));
    for n in [1, 2] {
        assert!(failure.contains(&net.world.ip(&name(n)).to_string()), "{failure}");
    }
}

#[test]
fn a_node_alone_opens_no_port_for_others() {
    let net = Net::new(63);
    let address = SocketAddr::new(net.world.ip("n1"), 7000);
    let connect = |expected: bool| {
        let found: Rc<RefCell<Option<bool>>> = Rc::default();
        let out = found.clone();
        net.world.client(&format!("p{expected}"), move |rt| async move {
            let deadline = rt.now() + Duration::from_secs(5);
            let connected = rt.timeout(deadline, rt.connect(address)).await;
            *out.borrow_mut() = Some(matches!(connected, Ok(Ok(_))));
        });
        net.world.run_until(|| found.borrow().is_some(), Duration::from_secs(60)).unwrap();
        assert_eq!(found.take(), Some(expected));
    };
    let options = net.options(1);
    let alone = Options {
        seeds: Vec::new(),
        listen_address: Options::default().listen_address,
        ..options.clone()
    };
    let node = net.start_with(1, alone);
    net.until_ready(&[&node]);
    connect(false);
    net.world.kill(&node.node);
    // The same directory with seeds: it is the first member of the cluster that others join.
    let node = net.start_with(1, options);
    net.until_ready(&[&node]);
    connect(true);
    let other = net.start(2);
    net.until_ready(&[&other]);
    net.run(5);
    net.check_peers(&[1, 2]);
}

#[test]
fn writes_go_on_while_a_node_joins_and_another_leaves_and_none_is_lost() {
    for seed in 70..73 {
        let net = Net::new(seed);
        let _nodes = net.cluster(&[1, 2, 3]);
        net.fill(1, 3, 1);
        let mut written = 1;
        let mut write = |many: u32| {
            for k in written..written + many {
                let insert = format!("INSERT INTO ks.t (k, v) VALUES ({k}, 'v{k}')");
                let done = net.query_at(1 + (k % 2) as u8, &insert, Consistency::Quorum);
                done.unwrap_or_else(|e| panic!("seed {seed}: row {k}: {e}"));
            }
            written += many;
        };
        write(20);
        let newcomer = net.start(4);
        while !newcomer.is_ready() {
            assert_eq!(newcomer.failure(), None);
            write(3);
        }
        write(20);
        let leaver = net.begin_command(&newcomer, ClusterCommand::Decommission { force: true });
        while leaver.borrow().is_none() {
            write(3);
        }
        let reply = leaver.take();
        assert!(matches!(reply, Some(AdminReply::Done)), "seed {seed}: {reply:?}");
        write(20);
        for k in 0..written {
            let select = format!("SELECT v FROM ks.t WHERE k = {k}");
            let found = net.query_at(2, &select, Consistency::Quorum).unwrap();
            assert_eq!(found, [[Some(format!("v{k}").into_bytes())]], "seed {seed}: row {k}");
        }
    }
}

#[test]
fn a_schema_change_needs_a_majority_of_the_voters_and_data_does_not() {
    let net = Net::new(80);
    let nodes = net.cluster(&[1, 2, 3]);
    net.fill(1, 3, 1);
    net.world.kill(&nodes[1].node);
    net.world.kill(&nodes[2].node);
    net.run(40);
    let refused = net.query(1, &keyspace("lonely")).unwrap_err();
    assert!(refused.contains("nothing was changed"), "{refused}");
    net.query(1, "INSERT INTO ks.t (k, v) VALUES (7, 'x')").unwrap();
    let again = net.start(2);
    net.until_ready(&[&again]);
    net.run(10);
    net.query(1, &keyspace("lonely")).unwrap();
    // The hints for it were stored.
    net.run(30);
    let select = "SELECT v FROM ks.t WHERE k = 7";
    let found = net.query_at(2, select, Consistency::Quorum).unwrap();
    assert_eq!(found, [[Some(b"x".to_vec())]]);
}

#[test]
fn without_bootstrap_a_newcomer_lacks_what_it_did_not_take_over() {
    let net = Net::new(90);
    let _nodes = net.cluster(&[1, 2]);
    net.fill(1, 1, 60);
    let newcomer = net.start_with(3, Options { auto_bootstrap: false, ..net.options(3) });
    net.until_ready(&[&newcomer]);
    net.run(5);
    let found = |k: u32| {
        let select = format!("SELECT v FROM ks.t WHERE k = {k}");
        !net.query_at(3, &select, Consistency::All).unwrap().is_empty()
    };
    let missing = (0..60).filter(|k| !found(*k)).count();
    // It has some of four tokens in twelve, never all.
    assert!((1..60).contains(&missing), "{missing} rows are missing");
}

#[test]
fn a_node_that_is_asked_to_stop_ends_and_comes_back() {
    for seed in 91..94 {
        let net = Net::new(seed);
        let nodes = net.cluster(&[1, 2, 3]);
        net.fill(1, 3, 5);
        nodes[2].node.request_stop();
        net.world
            .run_until(|| !net.world.is_alive(&nodes[2].node), Duration::from_secs(60))
            .unwrap();
        // It announced its stop: no peer waits for it.
        net.world.run_for(Duration::from_millis(500));
        let refused = net.query_at(1, "SELECT v FROM ks.t WHERE k = 1", Consistency::All);
        let text = refused.unwrap_err();
        assert!(text.contains("Cannot achieve consistency level ALL"), "seed {seed}: {text}");
        net.query_at(1, "INSERT INTO ks.t (k, v) VALUES (1, 'v1')", Consistency::Quorum).unwrap();
        let again = net.start(3);
        net.until_ready(&[&again]);
        net.run(10);
        net.check_rows(3, 5);
        net.check_peers(&[1, 2, 3]);
    }
}
