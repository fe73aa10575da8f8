//! Nodes that repair and answer repairs, without membership, gossip or clients.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::ClusterSnapshot;
use coordinator::{ClusterParts, Coordinator, NoHints, ReplicationSettings, ShardMesh};
use data::replica_page::ReplicaPage;
use dist_testing::table::{NOW, TABLE, schema};
use dist_testing::{Ground, ORACLE, Replicas, host, identity, is_alive, messaging, serve};
use internode::Verb;
use messaging::{Handler, Messaging, MessagingMesh, Request, Responder, Settings};
use rt::Rt;
use rt::sim::WorldOptions;
use schema::TableOptions;
use stdx::{DeletionSeconds, Epoch, Token};
use store::Store;

use crate::segment::Segment;
use crate::{Repair, RepairOptions, RepairParts, RepairSettings, RepairState, RepairStatus};

/// One shard of a node.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) rt: Rt,
    pub(super) coordinator: Coordinator,
    pub(super) repair: Option<Repair>,
    pub(super) messaging: Option<Messaging>,
    pub(super) snapshot: Rc<RefCell<Arc<ClusterSnapshot>>>,
}

/// State shared by all nodes of this thread's world: they run on one thread.
#[derive(Default)]
struct Registry {
    nodes: BTreeMap<(u8, u16), Node>,
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
            verb if verb.number() >> 8 == Verb::RepairHashes.number() >> 8 => {
                assert!(self.repair.serve_peer(request, responder).is_none());
            }
            _ => assert!(self.coordinator.serve_peer(request, responder).is_none()),
        }
    }
}

/// Parts of a node; shared by its shards.
struct Setup {
    snapshot: Arc<ClusterSnapshot>,
    data: Arc<ShardMesh>,
    messaging: Arc<MessagingMesh>,
    repair: Arc<crate::RepairMesh>,
    settings: RepairSettings,
}

/// How a world is.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) seed: u64,
    /// Number of shards of each node.
    pub(super) shards: Vec<u16>,
    pub(super) factor: u32,
    pub(super) tokens: usize,
    pub(super) settings: RepairSettings,
}

impl Options {
    /// Three nodes with one, two and three shards, RF 3; limits so small that everything is cut.
    pub(super) fn new(seed: u64) -> Options {
        let settings = RepairSettings {
            segment_bytes: 3000,
            parts: 4,
            merged_bytes: 300,
            page_bytes: 700,
            bytes_per_second: 0,
            answer_timeout: Duration::from_millis(500),
            attempts: 3,
            retry_pause: Duration::from_millis(20),
            session_idle: Duration::from_secs(20),
            auto: crate::AutoSettings { enabled: false, ..crate::AutoSettings::default() },
            ..RepairSettings::default()
        };
        Options { seed, shards: vec![1, 2, 3], factor: 3, tokens: 4, settings }
    }
}

/// A world with its nodes.
pub(super) struct Nodes {
    ground: Ground,
}

impl Deref for Nodes {
    type Target = Ground;

    fn deref(&self) -> &Ground {
        &self.ground
    }
}

impl Replicas for Nodes {
    fn ground(&self) -> &Ground {
        &self.ground
    }

    fn replica(&self, n: u8, shard: u16) -> (Rt, Store) {
        let node = self.node(n, shard);
        (node.rt, node.coordinator.store().clone())
    }
}

pub(super) fn snapshot(options: &Options, addresses: &[SocketAddr]) -> ClusterSnapshot {
    let members = dist_testing::ring(options.seed, addresses, &options.shards, options.tokens);
    dist_testing::snapshot(5, members, schema(TableOptions::default(), options.factor, &[]))
}

async fn shard(rt: Rt, n: u8, setup: Arc<Setup>) {
    let snapshot = Rc::new(RefCell::new(setup.snapshot.clone()));
    let run = u64::try_from(rt.wall().0).unwrap();
    let schema = setup.snapshot.schema.clone();
    let store = dist_testing::store(&rt, n, run, schema, |_| ()).await;
    let coordinator = Coordinator::new(rt.clone(), store, setup.data.clone());
    let mut node = Node {
        rt: rt.clone(),
        coordinator: coordinator.clone(),
        repair: None,
        messaging: None,
        snapshot: snapshot.clone(),
    };
    if n != ORACLE {
        let (identity, mesh) = (identity(n, 1, rt.shard_count()), setup.messaging.clone());
        let messaging = messaging(&rt, identity, Settings::default(), mesh, &setup.snapshot);
        let known = snapshot.clone();
        let known: Rc<dyn Fn() -> Arc<ClusterSnapshot>> = Rc::new(move || known.borrow().clone());
        let repair = Repair::new(RepairParts {
            rt: rt.clone(),
            coordinator: coordinator.clone(),
            messaging: messaging.clone(),
            snapshot: known.clone(),
            is_alive: is_alive(),
            mesh: setup.repair.clone(),
            records: None,
            work_dir: "data".to_owned(),
            settings: setup.settings,
        });
        repair.begin().await.unwrap();
        let served = Served { n, coordinator: coordinator.clone(), repair: repair.clone() };
        serve(&rt, &messaging, Rc::new(served)).await;
        coordinator.attach(ClusterParts {
            messaging: messaging.clone(),
            snapshot: known,
            is_alive: is_alive(),
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
        let world = WorldOptions { wall_start_micros: NOW.0 * 1_000_000, ..Default::default() };
        let ground = Ground::new(options.seed, options.shards.clone(), world);
        let seen = snapshot(options, &ground.addresses());
        for n in ORACLE..=ground.count() {
            let shards = if n == ORACLE { 1 } else { ground.shards(n) };
            let setup = Arc::new(Setup {
                snapshot: Arc::new(seen.with_local(host(n.max(1))).unwrap()),
                data: Arc::new(ShardMesh::new(shards, 1024)),
                messaging: Arc::new(MessagingMesh::new(shards)),
                repair: Arc::new(crate::new_mesh(shards)),
                settings: options.settings,
            });
            ground.start_node(n, shards, move |rt| shard(rt, n, setup.clone()));
        }
        ground.wait_for(|| registry(|r| r.nodes.len()) == 1 + ground.all_shards());
        Nodes { ground }
    }

    pub(super) fn node(&self, n: u8, shard: u16) -> Node {
        registry(|r| r.nodes[&(n, shard)].clone())
    }

    /// Runs a future on a shard to its end.
    pub(super) fn run_on<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        node: Node,
        make: impl FnOnce(Node) -> F,
    ) -> T {
        let rt = node.rt.clone();
        dist_testing::run_on(&self.world, &rt, make(node))
    }

    /// Everything that a node has, as all repairs of the run see it.
    pub(super) fn content(&self, n: u8) -> Vec<u8> {
        self.run_on(self.node(n, 0), |node| async move {
            let whole = Segment::of_tokens(Token::MIN, Token::MAX);
            let command = whole.command(TABLE, DeletionSeconds(NOW.0 + 3600));
            let snapshot = node.snapshot.borrow().clone();
            let scope = store::ReadScope::Repair;
            let read = node.coordinator.replica_reads().read_stretch(
                &snapshot,
                command,
                usize::MAX,
                scope,
            );
            let page = read.await.unwrap();
            ReplicaPage::open(&page).unwrap().content().to_vec()
        })
    }

    /// Checks that each node has everything that all nodes had together.
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
        // Parts of nodes that refer to the world are dropped before the world.
        let nodes = registry(|r| std::mem::take(&mut r.nodes));
        drop(nodes);
    }
}
