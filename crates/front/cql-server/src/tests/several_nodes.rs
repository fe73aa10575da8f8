//! Three nodes that are one cluster, in the simulator: statements, schema changes, TRUNCATE and
//! events over messaging. The log begins with all of them in it.

use super::cluster_of_shards::Remote;
use super::*;
use cluster::Address;
use coordinator::{ClusterParts, NoHints, ReplicationSettings};
use cql_wire::{EventKind, EventKinds};
use internode::{Features, Identity, VersionRange};
use messaging::{Handler, Messaging, MessagingMesh, Peer, Responder};
use rt::sim::SimNode;
use std::cell::RefCell;
use std::net::SocketAddr;
use stdx::FixedSet;

const NODES: u8 = 3;

/// State shared by the test and its nodes.
#[derive(Default)]
struct Shared {
    servers: RefCell<std::collections::BTreeMap<u8, CqlServer>>,
    /// Nodes that the failure detectors of all nodes report as dead.
    dead: RefCell<FixedSet<HostId>>,
    /// Nodes that do not empty their stores.
    forgetful: RefCell<FixedSet<u8>>,
    /// Nodes that do not know the verbs `Scan` and `FilteredRead`.
    old: RefCell<FixedSet<u8>>,
}

struct Verbs {
    n: u8,
    shared: Rc<Shared>,
    membership: Membership,
    coordinator: Coordinator,
}

impl Handler for Verbs {
    fn handle(&self, request: messaging::Request<'_>, responder: Responder) {
        let (verb, from, epoch) = (request.verb, request.from, request.epoch);
        let payload = request.payload.to_vec();
        self.membership.notice(from, epoch);
        let is_new = matches!(verb, internode::Verb::Scan | internode::Verb::FilteredRead);
        if is_new && self.shared.old.borrow().contains(&self.n) {
            return responder.fail(&internode::ErrorReply::UnknownVerb(verb.number()));
        }
        if let Some(responder) = self.coordinator.serve_peer(request, responder) {
            self.membership.serve_peer(verb, &payload, responder);
        }
    }
}

fn address(world_ip: std::net::IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(world_ip, port)
}

fn in_cluster(n: u8, ip: std::net::IpAddr) -> Member {
    let quarter = i64::MAX / 2;
    Member {
        storage: address(ip, 7000),
        rpc: address(ip, 9042),
        tokens: vec![Token((i64::from(n) - 2) * quarter)],
        ..member(n)
    }
}

/// Entries that put all nodes into the cluster.
fn entries(ips: &[std::net::IpAddr]) -> Vec<Transformation> {
    let members: Vec<Member> = (1..=NODES).zip(ips).map(|(n, ip)| in_cluster(n, *ip)).collect();
    let first = &members[0];
    let local = LocalNode { host_id: first.host_id, tokens: first.tokens.clone(), ..local_node() };
    let own = Address { host: first.host_id, storage: first.storage, rpc: first.rpc };
    let mut entries =
        vec![Transformation::Bootstrap(local), Transformation::Readdress { changes: vec![own] }];
    for other in members.into_iter().skip(1) {
        let host = other.host_id;
        let joining = Member { state: MemberState::Joining, ..other };
        entries.push(Transformation::Join { member: Arc::new(joining) });
        for state in [MemberState::JoinHandover, MemberState::Normal] {
            entries.push(Transformation::SetState { host, state });
        }
    }
    let hosts = (1..=NODES).map(|n| member(n).host_id).collect();
    entries.push(Transformation::SetVoters { hosts });
    entries
}

async fn cluster_node(rt: Rt, n: u8, ips: Vec<std::net::IpAddr>, shared: Rc<Shared>) {
    let base = cql_plan::system::system_schema();
    let mut framed = Vec::new();
    let entries = entries(&ips);
    for (i, entry) in entries.iter().enumerate() {
        entry.encode_entry(Epoch(i as u64 + 1), &mut framed);
    }
    let last = Epoch(entries.len() as u64);
    // Makes the directory.
    membership::log::open(&rt, "", &base).await.unwrap();
    let opened = membership::log::create(&rt, "", &base, &framed, last).await.unwrap();
    let snapshot = opened.snapshot.unwrap().with_local(member(n).host_id).unwrap();
    let snapshot = Arc::new(snapshot);
    let meshes = Meshes::new(1);
    let mut options = StoreOptions::new(
        "data".to_owned(),
        "commitlog".to_owned(),
        snapshot.local.host_id,
        u64::try_from(rt.wall().0).unwrap(),
        stdx::ShardMap::ByTokenHash { shards: rt.shard_count() },
        |table| format!("CREATE TABLE {}", table.name),
    );
    options.segment_bytes = 1 << 20;
    options.disk_reserve_bytes = 0;
    let (store, _) = Store::open(rt.clone(), options, snapshot.schema.clone()).await.unwrap();
    let log = Some((opened.log, ""));
    let membership = Membership::new(rt.clone(), meshes.metadata, snapshot.clone(), log);
    let of_store = store.clone();
    membership.on_change(move |_, after| of_store.set_schema(after.schema.clone()));
    let coordinator = Coordinator::new(rt.clone(), store, meshes.data);
    let identity = Identity {
        cluster_id: Some(snapshot.cluster_id),
        cluster_name: snapshot.local.cluster_name.clone(),
        host_id: snapshot.local.host_id,
        incarnation: rt.random_u64(),
        shard_count: 1,
        joining: false,
        versions: VersionRange::THIS,
        features: Features::LZ4,
    };
    let mesh = Arc::new(MessagingMesh::new(1));
    let messaging = Messaging::new(&rt, identity, Arc::new(messaging::Settings::default()), mesh);
    for other in snapshot.members.values() {
        messaging.set_peer(other.host_id, Peer { address: other.storage, shard_count: 1 });
    }
    messaging.set_epoch(snapshot.epoch);
    let told = messaging.clone();
    membership.on_change(move |_, after| told.set_epoch(after.epoch));
    let alive = shared.clone();
    let is_alive = move |host: HostId| !alive.dead.borrow().contains(&host);
    membership.attach(messaging.clone(), is_alive.clone());
    let current = membership.clone();
    coordinator.attach(ClusterParts {
        messaging: messaging.clone(),
        snapshot: Rc::new(move || current.snapshot()),
        is_alive: Rc::new(is_alive),
        hints: Rc::new(NoHints),
        epoch_wait: None,
        settings: ReplicationSettings::default(),
    });
    let (of_test, members) = (shared.clone(), membership.clone());
    let coordinating = coordinator.clone();
    let verbs = Verbs { n, shared: of_test, membership: members, coordinator: coordinating };
    messaging.serve(Rc::new(verbs));
    let mut settings = settings();
    settings.query.broadcast_address = address(ips[usize::from(n) - 1], 9042);
    settings.query.storage_address = address(ips[usize::from(n) - 1], 7000);
    let server = CqlServer::new(ServerParts {
        rt: rt.clone(),
        coordinator,
        membership: membership.clone(),
        settings: Arc::new(settings),
        plan_limits: cql_plan::plan::PlanLimits::default(),
        mesh: meshes.server,
        virtual_source: Rc::new(query::NoVirtualSource),
    });
    server.truncations().apply("", &snapshot).await.unwrap();
    let others = shared.clone();
    server.truncations().set_applied_epochs(move |host| {
        let n = (1..=NODES).find(|n| member(*n).host_id == host)?;
        let servers = others.servers.borrow();
        Some(servers.get(&n)?.executor().membership.snapshot().epoch)
    });
    let others = shared.clone();
    server.truncations().set_states_of_others(move |host, table, at| {
        let n = (1..=NODES).find(|n| member(*n).host_id == host);
        let servers = others.servers.borrow();
        let state = n.and_then(|n| Some(servers.get(&n)?.truncations().state(table, at)));
        async move { state }
    });
    let (emptying, of_test) = (server.clone(), shared.clone());
    membership.on_apply(move |_, after| {
        let (server, shared) = (emptying.clone(), of_test.clone());
        Box::pin(async move {
            if !shared.forgetful.borrow().contains(&n) {
                server.truncations().apply("", &after).await.unwrap();
            }
        })
    });
    messaging.listen(SocketAddr::from(([0, 0, 0, 0], 7000))).await.unwrap();
    server.listen(SocketAddr::from(([0, 0, 0, 0], 9042))).await.unwrap();
    shared.servers.borrow_mut().insert(n, server);
    rt.stop_requested().await;
}

pub(super) struct Cluster {
    world: World,
    shared: Rc<Shared>,
    nodes: Vec<SimNode>,
}

impl Cluster {
    pub(super) fn start(seed: u64) -> Cluster {
        let world = World::new(seed, WorldOptions::default());
        let shared: Rc<Shared> = Rc::default();
        let ips: Vec<_> = (1..=NODES).map(|n| world.ip(&format!("n{n}"))).collect();
        let mut nodes = Vec::new();
        for n in 1..=NODES {
            let (ips, shared) = (ips.clone(), shared.clone());
            let main = move |rt| cluster_node(rt, n, ips, shared);
            nodes.push(world.client(&format!("n{n}"), main));
        }
        let ready = shared.clone();
        let all = move || ready.servers.borrow().len() == usize::from(NODES);
        world.run_until(all, Duration::from_secs(60)).unwrap();
        Cluster { world, shared, nodes }
    }

    /// Runs a client on a machine of its own; it is given the nodes' addresses, the first is node
    /// 1's.
    pub(super) fn run<F: Future<Output = ()> + 'static>(
        &self,
        name: &str,
        main: impl FnOnce(Rt, Vec<SocketAddr>) -> F + 'static,
    ) {
        let ips = (1..=NODES).map(|n| self.world.ip(&format!("n{n}")));
        let addresses: Vec<SocketAddr> = ips.map(|ip| address(ip, 9042)).collect();
        let done = Rc::new(Cell::new(false));
        let seen = done.clone();
        self.world.client(name, move |rt| async move {
            main(rt, addresses).await;
            seen.set(true);
        });
        self.world.run_until(|| done.get(), Duration::from_secs(600)).unwrap();
    }

    /// Cuts the link between two machines; the failure detectors do not notice.
    pub(super) fn partition(&self, a: &str, b: &str) {
        self.world.partition(a, b);
    }

    /// How large pages between nodes are from now on.
    pub(super) fn limit_pages(&self, limit: coordinator::PageLimit) {
        for server in self.shared.servers.borrow().values() {
            server.executor().coordinator.local().limit_pages(limit);
        }
    }

    /// Node `n` does not know the verbs `Scan` and `FilteredRead` from now on.
    pub(super) fn grow_old(&self, n: u8) {
        self.shared.old.borrow_mut().insert(n);
    }

    /// Returns the value of a counter of node `n`.
    pub(super) fn count(&self, n: u8, name: &str) -> u64 {
        let metrics = self.telemetry(n).snapshot().metrics;
        let of_name = metrics.iter().filter(|metric| metric.name == name);
        let value = |metric: &telemetry::Metric| match metric.value {
            telemetry::Value::Counter(count) => count,
            _ => 0,
        };
        of_name.map(value).sum()
    }

    /// The counters of a node.
    pub(super) fn telemetry(&self, n: u8) -> telemetry::Shard {
        self.shared.servers.borrow()[&n].inner().rt.telemetry()
    }

    /// Node `n` dies, and all know it.
    pub(super) fn kill(&self, n: u8) {
        self.world.kill(&self.nodes[usize::from(n) - 1]);
        self.shared.dead.borrow_mut().insert(member(n).host_id);
    }
}

pub(super) async fn at(remote: &mut Remote, consistency: Consistency, query: &str) -> Body {
    let parameters = QueryParameters::new(consistency);
    remote.ask(&Request::Query { query, parameters }).await.unwrap().body
}

async fn values(remote: &mut Remote, consistency: Consistency, query: &str) -> Vec<String> {
    match at(remote, consistency, query).await {
        Body::Rows(rows) => show(&rows),
        other => panic!("{query}: {other:?}"),
    }
}

pub(super) const KEYSPACE: &str = "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', \
                        'replication_factor': 3}";
pub(super) const TABLE: &str = "CREATE TABLE ks.t (k int, c int, v text, l list<int>, s int STATIC, PRIMARY \
                     KEY (k, c))";

async fn with_table(remote: &mut Remote) {
    remote.query(KEYSPACE).await.unwrap();
    remote.query(TABLE).await.unwrap();
}

#[test]
fn what_one_node_wrote_every_node_reads_also_when_one_is_dead() {
    let cluster = Cluster::start(21);
    cluster.run("c1", |rt, nodes| async move {
        let mut first = Remote::connect(&rt, nodes[0]).await;
        with_table(&mut first).await;
        for k in 0..20 {
            let mut remote = Remote::connect(&rt, nodes[k % 3]).await;
            let text =
                format!("INSERT INTO ks.t (k, c, v, l, s) VALUES ({k}, 1, 'one', [1, 2, 3], {k})");
            assert_eq!(at(&mut remote, Consistency::Quorum, &text).await, Body::Void);
            // Reads the list before it writes.
            let text = format!("UPDATE ks.t SET l[1] = 9 WHERE k = {k} AND c = 1");
            assert_eq!(at(&mut remote, Consistency::Quorum, &text).await, Body::Void);
        }
        let batch = "BEGIN BATCH INSERT INTO ks.t (k, c, v) VALUES (1, 2, 'two'); INSERT INTO ks.t \
                     (k, c, v) VALUES (2, 2, 'two'); APPLY BATCH";
        assert_eq!(at(&mut first, Consistency::Quorum, batch).await, Body::Void);
    });
    cluster.kill(3);
    cluster.run("c2", |rt, nodes| async move {
        for node in &nodes[..2] {
            let mut remote = Remote::connect(&rt, *node).await;
            for k in 0..20 {
                let query = format!("SELECT v, s FROM ks.t WHERE k = {k} LIMIT 1");
                for level in [Consistency::Quorum, Consistency::Serial, Consistency::One] {
                    assert_eq!(values(&mut remote, level, &query).await, [format!("one {k}")]);
                }
            }
            let all = values(&mut remote, Consistency::Quorum, "SELECT v FROM ks.t").await;
            assert_eq!(all.len(), 22);
            let query = "SELECT l FROM ks.t WHERE k = 1 AND c = 1";
            let Body::Rows(rows) = at(&mut remote, Consistency::Quorum, query).await else {
                panic!()
            };
            let list = rows.rows[0][0].as_deref().unwrap();
            assert!(list.ends_with(&[0, 0, 0, 4, 0, 0, 0, 3]) && list.contains(&9), "{list:?}");
        }
    });
}

#[test]
fn too_few_live_replicas_are_told_with_their_numbers() {
    let cluster = Cluster::start(22);
    cluster.run("c1", |rt, nodes| async move {
        with_table(&mut Remote::connect(&rt, nodes[0]).await).await;
    });
    cluster.kill(3);
    cluster.run("c2", |rt, nodes| async move {
        let mut remote = Remote::connect(&rt, nodes[1]).await;
        let unavailable = |level: &str| {
            let text = format!("Cannot achieve consistency level {level}");
            Body::Error(ErrorCode::Unavailable, text)
        };
        let insert = "INSERT INTO ks.t (k, c) VALUES (1, 1)";
        assert_eq!(at(&mut remote, Consistency::All, insert).await, unavailable("ALL"));
        let select = "SELECT * FROM ks.t WHERE k = 1";
        assert_eq!(at(&mut remote, Consistency::Three, select).await, unavailable("THREE"));
        let scan = "SELECT * FROM ks.t";
        assert_eq!(at(&mut remote, Consistency::All, scan).await, unavailable("ALL"));
        assert_eq!(at(&mut remote, Consistency::Two, insert).await, Body::Void);
        let Body::Error(code, _) = at(&mut remote, Consistency::Serial, insert).await else {
            panic!()
        };
        assert_eq!(code, ErrorCode::Invalid);
        // Its own tables are its own.
        let own = values(&mut remote, Consistency::All, "SELECT key FROM system.local").await;
        assert!(own.len() <= 1);
    });
}

#[test]
fn a_replica_that_is_silent_costs_a_timeout_with_what_was_received() {
    let cluster = Cluster::start(23);
    cluster.run("c1", |rt, nodes| async move {
        with_table(&mut Remote::connect(&rt, nodes[0]).await).await;
    });
    for n in ["n1", "n2"] {
        cluster.world.partition(n, "n3");
    }
    cluster.run("c2", |rt, nodes| async move {
        let mut remote = Remote::connect(&rt, nodes[0]).await;
        let insert = "INSERT INTO ks.t (k, c) VALUES (1, 1)";
        let text = "Operation timed out - received only 2 responses.".to_owned();
        assert_eq!(
            at(&mut remote, Consistency::All, insert).await,
            Body::Error(ErrorCode::WriteTimeout, text.clone())
        );
        let select = "SELECT * FROM ks.t WHERE k = 1";
        assert_eq!(
            at(&mut remote, Consistency::All, select).await,
            Body::Error(ErrorCode::ReadTimeout, text)
        );
        assert_eq!(at(&mut remote, Consistency::Quorum, insert).await, Body::Void);
        // Reads its list first, at the level of the write.
        let update = "UPDATE ks.t SET l[0] = 1 WHERE k = 1 AND c = 1";
        let Body::Error(code, _) = at(&mut remote, Consistency::All, update).await else {
            panic!()
        };
        // By now the connection may be known to be dead.
        assert!(matches!(code, ErrorCode::ReadTimeout | ErrorCode::ReadFailure), "{code:?}");
    });
}

#[test]
fn a_schema_change_without_a_majority_changes_nothing_and_says_so() {
    let cluster = Cluster::start(27);
    cluster.run("c1", |rt, nodes| async move {
        Remote::connect(&rt, nodes[0]).await.query(KEYSPACE).await.unwrap();
    });
    cluster.kill(2);
    cluster.kill(3);
    cluster.run("c2", |rt, nodes| async move {
        let mut remote = Remote::connect(&rt, nodes[0]).await;
        let Body::Error(code, text) = at(&mut remote, Consistency::One, TABLE).await else {
            panic!("one of three decided alone")
        };
        assert_eq!(code, ErrorCode::ServerError);
        assert!(text.contains("nothing was changed"), "{text}");
        let tables = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'ks'";
        assert_eq!(values(&mut remote, Consistency::One, tables).await, [""; 0]);
    });
}

#[test]
fn one_of_two_racing_creations_succeeds_and_all_nodes_have_one_table() {
    let cluster = Cluster::start(24);
    cluster.run("c1", |rt, nodes| async move {
        Remote::connect(&rt, nodes[0]).await.query(KEYSPACE).await.unwrap();
    });
    let outcomes: Rc<RefCell<Vec<Body>>> = Rc::default();
    let ended = Rc::new(Cell::new(0));
    for n in 0..NODES {
        let (outcomes, ended) = (outcomes.clone(), ended.clone());
        let ip = cluster.world.ip(&format!("n{}", n + 1));
        cluster.world.client(&format!("racer{n}"), move |rt| async move {
            let mut remote = Remote::connect(&rt, address(ip, 9042)).await;
            let body = at(&mut remote, Consistency::One, TABLE).await;
            outcomes.borrow_mut().push(body);
            let again = TABLE.replace("TABLE", "TABLE IF NOT EXISTS");
            assert_eq!(at(&mut remote, Consistency::One, &again).await, Body::Void);
            ended.set(ended.get() + 1);
        });
    }
    let all = ended.clone();
    cluster.world.run_until(move || all.get() == NODES, Duration::from_secs(60)).unwrap();
    let outcomes = outcomes.borrow();
    let created = outcomes.iter().filter(|b| matches!(b, Body::SchemaChange(_))).count();
    let refused =
        outcomes.iter().filter(|b| matches!(b, Body::Error(ErrorCode::AlreadyExists, _))).count();
    assert_eq!((created, refused), (1, 2), "{outcomes:?}");
    let servers = cluster.shared.servers.borrow();
    let ids: std::collections::BTreeSet<_> =
        servers.values().map(|s| s.executor().schema().table("ks", "t").unwrap().id).collect();
    let versions: std::collections::BTreeSet<_> =
        servers.values().map(|s| s.executor().schema().version).collect();
    assert_eq!((ids.len(), versions.len()), (1, 1));
}

#[test]
fn a_truncated_table_is_empty_on_every_node_or_the_client_is_told() {
    let cluster = Cluster::start(25);
    cluster.run("c1", |rt, nodes| async move {
        let mut remote = Remote::connect(&rt, nodes[0]).await;
        with_table(&mut remote).await;
        let insert = "INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'old')";
        assert_eq!(at(&mut remote, Consistency::All, insert).await, Body::Void);
        assert_eq!(at(&mut remote, Consistency::One, "TRUNCATE ks.t").await, Body::Void);
        for node in &nodes {
            let mut each = Remote::connect(&rt, *node).await;
            let query = "SELECT v FROM ks.t WHERE k = 1";
            assert_eq!(values(&mut each, Consistency::All, query).await, [""; 0]);
        }
        let insert = "INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'new')";
        assert_eq!(at(&mut remote, Consistency::All, insert).await, Body::Void);
        let query = "SELECT v FROM ks.t";
        assert_eq!(values(&mut remote, Consistency::All, query).await, ["new"]);
    });
    // The log of another node than the one that is asked.
    let disk = cluster.world.disk("n3");
    disk.set_failing_below(Some(("commitlog", stdx::IoErrorKind::Device)));
    let third = address(cluster.world.ip("n3"), 7000);
    cluster.run("c1b", move |rt, nodes| async move {
        let mut remote = Remote::connect(&rt, nodes[0]).await;
        let text = format!("Truncate failed on replica /{third} -> UNKNOWN");
        assert_eq!(
            at(&mut remote, Consistency::One, "TRUNCATE ks.t").await,
            Body::Error(ErrorCode::TruncateError, text)
        );
    });
    cluster.shared.forgetful.borrow_mut().insert(2);
    cluster.run("c2", |rt, nodes| async move {
        let mut second = Remote::connect(&rt, nodes[1]).await;
        let Body::Error(code, text) = at(&mut second, Consistency::One, "TRUNCATE ks.t").await
        else {
            panic!("a node that did nothing says that it did")
        };
        assert_eq!(code, ErrorCode::TruncateError);
        assert!(text.starts_with("Truncate failed on replica /"), "{text}");
    });
    for n in ["n1", "n2"] {
        cluster.world.partition(n, "n3");
    }
    cluster.run("c3", |rt, nodes| async move {
        // The failure detectors have not noticed yet that node 3 is cut off.
        let mut remote = Remote::connect(&rt, nodes[0]).await;
        let text = "Error during truncate: Truncate timed out - received only 2 responses";
        assert_eq!(
            at(&mut remote, Consistency::One, "TRUNCATE ks.t").await,
            Body::Error(ErrorCode::TruncateError, text.to_owned())
        );
    });
    cluster.kill(3);
    cluster.run("c4", |rt, nodes| async move {
        let mut remote = Remote::connect(&rt, nodes[0]).await;
        let text = "Error during truncate: Cannot achieve consistency level ALL".to_owned();
        assert_eq!(
            at(&mut remote, Consistency::One, "TRUNCATE ks.t").await,
            Body::Error(ErrorCode::TruncateError, text)
        );
    });
}

#[test]
fn clients_are_told_of_changes_made_through_other_nodes_and_of_nodes_that_die() {
    let cluster = Cluster::start(26);
    let heard: Rc<RefCell<Vec<String>>> = Rc::default();
    let (events, address_of_first) = (heard.clone(), cluster.world.ip("n1"));
    cluster.world.client("listener", move |rt| async move {
        let mut remote = Remote::connect(&rt, address(address_of_first, 9042)).await;
        let kinds = EventKinds::NONE
            .with(EventKind::SchemaChange)
            .with(EventKind::StatusChange)
            .with(EventKind::TopologyChange);
        assert_eq!(remote.ask(&Request::Register(kinds)).await.unwrap().body, Body::Ready);
        events.borrow_mut().push("registered".to_owned());
        while let Some(got) = remote.receive().await {
            events.borrow_mut().push(format!("{:?}", got.body));
        }
    });
    let registered = heard.clone();
    let is_registered = move || !registered.borrow().is_empty();
    cluster.world.run_until(is_registered, Duration::from_secs(60)).unwrap();
    cluster.run("c1", |rt, nodes| async move {
        Remote::connect(&rt, nodes[2]).await.query(KEYSPACE).await.unwrap();
        rt.sleep(Duration::from_secs(1)).await;
    });
    let server = cluster.shared.servers.borrow()[&1].clone();
    for is_up in [true, true, false] {
        server.note_liveness(member(2).host_id, is_up);
    }
    cluster.run("c2", |rt, _| async move { rt.sleep(Duration::from_secs(1)).await });
    let heard = heard.borrow();
    let second = address(cluster.world.ip("n2"), 9042);
    assert_eq!(heard.len(), 4, "{heard:?}");
    assert!(heard[1].contains("SchemaChange") && heard[1].contains("ks"), "{heard:?}");
    for (event, up) in [(&heard[2], "up: true"), (&heard[3], "up: false")] {
        assert!(event.contains("StatusChange") && event.contains(up), "{event}");
        assert!(event.contains(&second.to_string()), "{event}");
    }
}
