//! Nodes that repair and answer repairs, without membership, gossip or clients.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::{ClusterSnapshot, LocalNode, Member, MemberState};
use coordinator::{ClusterParts, Coordinator, NoHints, ReplicationSettings, ShardMesh};
use data::MutationRef;
use data::replica_page::ReplicaPage;
use internode::{Features, Identity, Verb, VersionRange};
use messaging::{Handler, Messaging, MessagingMesh, Peer, Request, Responder, Settings};
use rt::sim::{World, WorldOptions};
use rt::{Group, NodeSpec, Rt};
use schema::TableOptions;
use stdx::{DeletionSeconds, Epoch, HostId, ShardId, Token, Uuid, WallMicros};
use store::{Store, StoreOptions};

use super::table::{NOW, Random, TABLE, schema};
use crate::stretch::Stretch;
use crate::{Repair, RepairOptions, RepairParts, RepairSettings, RepairState, RepairStatus};

const PORT: u16 = 7000;
/// The node that has everything and belongs to no cluster.
pub(super) const ORACLE: u8 = 0;

pub(super) fn host(n: u8) -> HostId {
    HostId(Uuid::from_bytes([n; 16]))
}

fn name(n: u8) -> String {
    format!("n{n}")
}

/// One shard of a node.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) rt: Rt,
    pub(super) coordinator: Coordinator,
    pub(super) repair: Option<Repair>,
    pub(super) messaging: Option<Messaging>,
    pub(super) snapshot: Rc<RefCell<Arc<ClusterSnapshot>>>,
}

/// What all nodes of this thread's world share: they run on one thread.
#[derive(Default)]
struct Registry {
    nodes: BTreeMap<(u8, u16), Node>,
    dead: BTreeSet<u8>,
    /// Acknowledges mutations and does not apply them.
    loses_mutations: BTreeSet<u8>,
    /// Requests served of each verb.
    served: BTreeMap<Verb, u64>,
}

thread_local! {
    static REGISTRY: RefCell<Registry> = RefCell::default();
}

fn registry<T>(with: impl FnOnce(&mut Registry) -> T) -> T {
    REGISTRY.with(|r| with(&mut r.borrow_mut()))
}

struct Served {
    n: u8,
    coordinator: Coordinator,
    repair: Repair,
}

impl Handler for Served {
    fn handle(&self, request: Request<'_>, responder: Responder) {
        registry(|r| *r.served.entry(request.verb).or_default() += 1);
        if request.verb == Verb::Mutation && registry(|r| r.loses_mutations.contains(&self.n)) {
            return responder.respond(|_| {});
        }
        match request.verb {
            Verb::RepairHashes | Verb::RepairRows => {
                assert!(self.repair.serve_peer(request, responder).is_none());
            }
            _ => assert!(self.coordinator.serve_peer(request, responder).is_none()),
        }
    }
}

/// What a node is made of; shared by its shards.
struct Setup {
    snapshot: Arc<ClusterSnapshot>,
    data: Arc<ShardMesh>,
    messaging: Arc<MessagingMesh>,
    settings: RepairSettings,
}

/// How a world is.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) seed: u64,
    /// Of each node.
    pub(super) shards: Vec<u16>,
    pub(super) factor: u32,
    pub(super) tokens: usize,
    pub(super) settings: RepairSettings,
}

impl Options {
    /// Three nodes with one, two and three shards, RF 3; limits so small that everything is cut.
    pub(super) fn new(seed: u64) -> Options {
        let settings = RepairSettings {
            stretch_bytes: 3000,
            parts: 4,
            merged_bytes: 300,
            page_bytes: 700,
            bytes_per_second: 0,
            answer_timeout: Duration::from_millis(500),
            attempts: 3,
            retry_pause: Duration::from_millis(20),
            ..RepairSettings::default()
        };
        Options { seed, shards: vec![1, 2, 3], factor: 3, tokens: 4, settings }
    }
}

/// A world with its nodes.
pub(super) struct Nodes {
    pub(super) world: World,
    pub(super) random: RefCell<Random>,
    shards: Vec<u16>,
}

pub(super) fn snapshot(options: &Options, addresses: &[SocketAddr]) -> ClusterSnapshot {
    let mut random = Random(options.seed);
    let members = addresses.iter().zip(&options.shards).zip(1..).map(|((address, shards), n)| {
        let mut tokens: Vec<Token> =
            (0..options.tokens).map(|_| Token(random.next() as i64)).collect();
        tokens.sort_unstable();
        let member = Member {
            host_id: host(n),
            storage: *address,
            rpc: *address,
            datacenter: "dc".to_owned(),
            rack: "r".to_owned(),
            tokens,
            moving_to: Vec::new(),
            state: MemberState::Normal,
            replaces: None,
            shards: *shards,
            features: 0,
            release: String::new(),
        };
        (host(n), Arc::new(member))
    });
    let local = LocalNode {
        host_id: host(1),
        cluster_name: "Test".to_owned(),
        datacenter: "dc".to_owned(),
        rack: "r".to_owned(),
        tokens: Vec::new(),
        created_at: WallMicros(1),
    };
    ClusterSnapshot {
        epoch: Epoch(5),
        cluster_id: Uuid::from_u128(9),
        local,
        members: members.collect(),
        voters: vec![host(1)],
        features: 0,
        schema: schema(TableOptions::default(), options.factor, &[]),
        roles: BTreeMap::new(),
        truncations: BTreeMap::new(),
    }
}

async fn shard(rt: Rt, n: u8, setup: Arc<Setup>) {
    let snapshot = Rc::new(RefCell::new(setup.snapshot.clone()));
    let run = u64::try_from(rt.wall().0).unwrap();
    let mut options = StoreOptions::new(
        "data".into(),
        "commitlog".into(),
        host(n),
        run,
        cluster::shard_of_token,
        |t| format!("CREATE TABLE {}", t.name),
    );
    options.segment_bytes = 1 << 20;
    options.disk_reserve_bytes = 0;
    let schema = setup.snapshot.schema.clone();
    let (store, _) = Store::open(rt.clone(), options, schema).await.unwrap();
    let coordinator = Coordinator::new(rt.clone(), store, setup.data.clone());
    let mut node = Node {
        rt: rt.clone(),
        coordinator: coordinator.clone(),
        repair: None,
        messaging: None,
        snapshot: snapshot.clone(),
    };
    if n != ORACLE {
        let identity = Identity {
            cluster_id: Some(setup.snapshot.cluster_id),
            cluster_name: "Test".to_owned(),
            host_id: host(n),
            incarnation: 1,
            shard_count: rt.shard_count(),
            joining: false,
            versions: VersionRange::THIS,
            features: Features::LZ4,
        };
        let settings = Arc::new(Settings::default());
        let messaging = Messaging::new(&rt, identity, settings, setup.messaging.clone());
        let is_alive: Rc<dyn Fn(HostId) -> bool> =
            Rc::new(|h: HostId| registry(|r| !r.dead.iter().any(|n| host(*n) == h)));
        let known = snapshot.clone();
        let known: Rc<dyn Fn() -> Arc<ClusterSnapshot>> = Rc::new(move || known.borrow().clone());
        let repair = Repair::new(RepairParts {
            rt: rt.clone(),
            coordinator: coordinator.clone(),
            messaging: messaging.clone(),
            snapshot: known.clone(),
            is_alive: is_alive.clone(),
            settings: setup.settings,
        });
        let served = Served { n, coordinator: coordinator.clone(), repair: repair.clone() };
        messaging.serve(Rc::new(served));
        if rt.shard() == ShardId(0) {
            messaging.listen(SocketAddr::from(([0, 0, 0, 0], PORT))).await.unwrap();
        }
        for member in setup.snapshot.members.values() {
            let peer = Peer { address: member.storage, shard_count: member.shards };
            messaging.set_peer(member.host_id, peer);
        }
        messaging.set_epoch(setup.snapshot.epoch);
        coordinator.attach(ClusterParts {
            messaging: messaging.clone(),
            snapshot: known,
            is_alive,
            hints: Rc::new(NoHints),
            epoch_wait: None,
            settings: ReplicationSettings { dynamic_snitch: false, ..Default::default() },
        });
        (node.repair, node.messaging) = (Some(repair), Some(messaging));
    }
    registry(|r| r.nodes.insert((n, rt.shard().0), node));
    rt.stop_requested().await;
}

/// A repair of the keyspace.
pub(super) fn full() -> RepairOptions {
    RepairOptions { keyspace: "ks".to_owned(), job_threads: 1, ..RepairOptions::default() }
}

impl Nodes {
    pub(super) fn start(options: &Options) -> Nodes {
        registry(|r| *r = Registry::default());
        let world_options =
            WorldOptions { wall_start_micros: NOW.0 * 1_000_000, ..WorldOptions::default() };
        let world = World::new(options.seed, world_options);
        let count = u8::try_from(options.shards.len()).unwrap();
        let addresses: Vec<SocketAddr> =
            (1..=count).map(|n| SocketAddr::new(world.ip(&name(n)), PORT)).collect();
        let seen = snapshot(options, &addresses);
        for n in ORACLE..=count {
            let shards = if n == ORACLE { 1 } else { options.shards[usize::from(n) - 1] };
            let own = if n == ORACLE { host(1) } else { host(n) };
            let setup = Arc::new(Setup {
                snapshot: Arc::new(seen.with_local(own).unwrap()),
                data: Arc::new(ShardMesh::new(shards, 1024)),
                messaging: Arc::new(MessagingMesh::new(shards)),
                settings: options.settings,
            });
            let spec = NodeSpec { name: name(n), shards, work_dir: format!("/{}", name(n)) };
            world.start_node(spec, Arc::new(move |rt| Box::pin(shard(rt, n, setup.clone()))));
        }
        let wanted = 1 + options.shards.iter().map(|s| usize::from(*s)).sum::<usize>();
        let opened = || registry(|r| r.nodes.len()) == wanted;
        world.run_until(opened, Duration::from_secs(60)).unwrap();
        let random = RefCell::new(Random(options.seed ^ 0x5eed));
        Nodes { world, random, shards: options.shards.clone() }
    }

    pub(super) fn below(&self, n: usize) -> usize {
        self.random.borrow_mut().below(n as u64) as usize
    }

    /// Any node.
    pub(super) fn any(&self) -> u8 {
        u8::try_from(1 + self.below(self.shards.len())).unwrap()
    }

    pub(super) fn count(&self) -> u8 {
        u8::try_from(self.shards.len()).unwrap()
    }

    pub(super) fn node(&self, n: u8, shard: u16) -> Node {
        registry(|r| r.nodes[&(n, shard)].clone())
    }

    /// Runs a future on a shard to its end.
    pub(super) fn run_on<T, F>(&self, node: Node, make: impl FnOnce(Node) -> F) -> T
    where
        T: 'static,
        F: Future<Output = T> + 'static,
    {
        let result: Rc<RefCell<Option<T>>> = Rc::default();
        let (out, rt) = (result.clone(), node.rt.clone());
        let future = make(node);
        let gate = rt.gate("test");
        let task = async move { *out.borrow_mut() = Some(future.await) };
        gate.spawn(&rt, Group::Admin, "test", task).unwrap();
        self.world.run_until(|| result.borrow().is_some(), Duration::from_secs(600)).unwrap();
        result.borrow_mut().take().unwrap()
    }

    /// Applies mutations on one node only, as if the others had missed them.
    pub(super) fn apply(&self, n: u8, mutations: Vec<Vec<u8>>) {
        self.run_on(self.node(n, 0), |node| async move {
            for mutation in mutations {
                let token = codec::token_of(MutationRef::open(&mutation).unwrap().key);
                node.coordinator.apply(token, mutation, true).await.unwrap();
            }
        });
    }

    /// Writes what `plan` gives: each mutation with the nodes that get it. The oracle gets all.
    pub(super) fn write_all(&self, plan: &[(Vec<u8>, Vec<u8>)]) {
        for n in ORACLE..=self.count() {
            let gets = |to: &[u8]| n == ORACLE || to.contains(&n);
            let mine = plan.iter().filter(|(_, to)| gets(to)).map(|(m, _)| m.clone());
            self.apply(n, mine.collect());
        }
    }

    pub(super) fn flush(&self, n: u8) {
        for shard in 0..self.shards[usize::from(n) - 1] {
            self.run_on(self.node(n, shard), |node| async move {
                node.coordinator.store().flush(None).await.unwrap();
            });
        }
    }

    /// Everything that a node has, as all repairs of the run see it.
    pub(super) fn content(&self, n: u8) -> Vec<u8> {
        self.run_on(self.node(n, 0), |node| async move {
            let whole = Stretch::of_tokens(Token::MIN, Token::MAX);
            let command = whole.command(TABLE, DeletionSeconds(NOW.0 + 3600));
            let snapshot = node.snapshot.borrow().clone();
            let read = node.coordinator.read_stretch(&snapshot, command, usize::MAX);
            let page = read.await.unwrap();
            ReplicaPage::open(&page).unwrap().content().to_vec()
        })
    }

    /// Whether all nodes have what all had together.
    pub(super) fn check_equal(&self) -> Result<(), String> {
        let expected = self.content(ORACLE);
        let wrong = (1..=self.count()).filter(|n| self.content(*n) != expected);
        let wrong: Vec<u8> = wrong.collect();
        if wrong.is_empty() { Ok(()) } else { Err(format!("{wrong:?} are not as the merge")) }
    }

    /// Begins a repair on a node.
    pub(super) fn begin(&self, n: u8, options: RepairOptions) -> u32 {
        self.node(n, 0).repair.unwrap().start(options).unwrap()
    }

    pub(super) fn status(&self, n: u8, id: u32) -> RepairStatus {
        self.node(n, 0).repair.unwrap().status(id, 0).unwrap()
    }

    pub(super) fn finish(&self, n: u8, id: u32) -> RepairStatus {
        let ended = || self.status(n, id).state != RepairState::Running;
        self.world.run_until(ended, Duration::from_secs(600)).unwrap();
        self.status(n, id)
    }

    /// Repairs on a node, to the end.
    pub(super) fn repair(&self, n: u8, options: RepairOptions) -> RepairStatus {
        let id = self.begin(n, options);
        self.finish(n, id)
    }

    /// Messages and bytes that nodes have sent to each other.
    pub(super) fn traffic(&self) -> (u64, u64) {
        let nodes: Vec<Node> = registry(|r| r.nodes.values().cloned().collect());
        let stats = nodes.iter().filter_map(|n| n.messaging.as_ref()).flat_map(|m| m.peer_stats());
        stats.fold((0, 0), |(n, bytes), s| (n + s.sent, bytes + s.sent_bytes))
    }

    /// Requests served of a verb, on all nodes.
    pub(super) fn served(&self, verb: Verb) -> u64 {
        registry(|r| r.served.get(&verb).copied().unwrap_or(0))
    }

    /// The failure detector's word.
    pub(super) fn set_alive(&self, n: u8, alive: bool) {
        registry(|r| if alive { r.dead.remove(&n) } else { r.dead.insert(n) });
    }

    /// The network between two nodes.
    pub(super) fn cut(&self, a: u8, b: u8) {
        self.world.partition(&name(a), &name(b));
    }

    pub(super) fn lose_mutations_at(&self, n: u8) {
        registry(|r| r.loses_mutations.insert(n));
    }

    /// Gives all nodes new metadata.
    pub(super) fn change(&self, change: impl Fn(&mut ClusterSnapshot)) {
        let nodes: Vec<Node> = registry(|r| r.nodes.values().cloned().collect());
        for node in nodes {
            let mut after = ClusterSnapshot::clone(&node.snapshot.borrow());
            after.epoch = Epoch(after.epoch.0 + 1);
            change(&mut after);
            *node.snapshot.borrow_mut() = Arc::new(after);
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // What the nodes hold of the world goes before the world.
        let nodes = registry(|r| std::mem::take(&mut r.nodes));
        drop(nodes);
    }
}
