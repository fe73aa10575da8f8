//! Nodes that read and answer reads, without membership, gossip or clients.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::{ClusterSnapshot, Consistency, LocalNode, Member, MemberState};
use data::MutationRef;
use data::command::{KeyRange, Partitions, ReadCommand};
use data::page_cursor::{PageChain, PageCursor, PageStops};
use data::replica_page::{PageLimits, ReplicaPage};
use data::{Advance, Cursor, Item, Slices, TableShape};
use internode::{Features, Identity, Verb, VersionRange};
use messaging::{Handler, Messaging, MessagingMesh, Peer, Request, Responder, Settings};
use request::RequestError;
use rt::sim::{World, WorldOptions};
use rt::{Group, NodeSpec, Rt};
use schema::TableOptions;
use stdx::{DeletionSeconds, Epoch, HostId, ShardId, Token, Uuid, WallMicros};
use store::{ReadStats, Store, StoreOptions};

use super::sink::{Collect, Found};
use super::table::{NOW, Random, TABLE, key, schema};
use crate::reading::shards::ReplicaQuery;
use crate::{
    ClusterParts, Coordinator, NoHints, ReplicatedRead, ReplicationSettings, SelectLimits,
    ShardMesh,
};

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
    pub(super) snapshot: Arc<ClusterSnapshot>,
}

/// What all nodes of this thread's world share: they run on one thread.
#[derive(Default)]
struct Registry {
    nodes: BTreeMap<(u8, u16), Node>,
    dead: BTreeSet<u8>,
    /// Acknowledges repairs and does not apply them.
    loses_repairs: BTreeSet<u8>,
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
}

impl Handler for Served {
    fn handle(&self, request: Request<'_>, responder: Responder) {
        if request.verb == Verb::Mutation && registry(|r| r.loses_repairs.contains(&self.n)) {
            return responder.respond(|_| {});
        }
        assert!(self.coordinator.serve_peer(request, responder).is_none());
    }
}

/// What a node is made of; shared by its shards.
struct Setup {
    snapshot: Arc<ClusterSnapshot>,
    data: Arc<ShardMesh>,
    messaging: Arc<MessagingMesh>,
    tombstones_max: u32,
}

/// How a world is.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) seed: u64,
    /// Of each node.
    pub(super) shards: Vec<u16>,
    pub(super) factor: u32,
    pub(super) tokens: usize,
    pub(super) table: TableOptions,
    /// Replication factor by datacenter instead of `factor`; nodes stand in them in turn.
    pub(super) datacenters: Vec<(String, u32)>,
    pub(super) tombstones_max: u32,
}

impl Options {
    pub(super) fn new(seed: u64) -> Options {
        let (shards, table) = (vec![1, 2, 3], TableOptions::default());
        let (factor, tokens, datacenters) = (3, 4, Vec::new());
        Options { seed, shards, factor, tokens, table, datacenters, tombstones_max: 100_000 }
    }
}

/// A world with its nodes.
pub(super) struct Nodes {
    pub(super) world: World,
    pub(super) random: RefCell<Random>,
    shards: Vec<u16>,
}

fn snapshot(options: &Options, addresses: &[SocketAddr]) -> ClusterSnapshot {
    let mut random = Random(options.seed);
    let datacenter = |n: u8| {
        let at = usize::from(n - 1) % options.datacenters.len().max(1);
        options.datacenters.get(at).map_or("dc", |(name, _)| name).to_owned()
    };
    let members = addresses.iter().zip(&options.shards).zip(1..).map(|((address, shards), n)| {
        let mut tokens: Vec<Token> =
            (0..options.tokens).map(|_| Token(random.next() as i64)).collect();
        tokens.sort_unstable();
        let member = Member {
            host_id: host(n),
            storage: *address,
            rpc: *address,
            datacenter: datacenter(n),
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
        schema: schema(options.table.clone(), options.factor, &options.datacenters),
        roles: BTreeMap::new(),
        truncations: BTreeMap::new(),
    }
}

async fn shard(rt: Rt, n: u8, setup: Arc<Setup>) {
    let snapshot = setup.snapshot.clone();
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
    options.tombstone_failure_threshold = setup.tombstones_max;
    let (store, _) = Store::open(rt.clone(), options, snapshot.schema.clone()).await.unwrap();
    let coordinator = Coordinator::new(rt.clone(), store, setup.data.clone());
    if n != ORACLE {
        let identity = Identity {
            cluster_id: Some(snapshot.cluster_id),
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
        messaging.serve(Rc::new(Served { n, coordinator: coordinator.clone() }));
        if rt.shard() == ShardId(0) {
            messaging.listen(SocketAddr::from(([0, 0, 0, 0], PORT))).await.unwrap();
        }
        for member in snapshot.members.values() {
            let peer = Peer { address: member.storage, shard_count: member.shards };
            messaging.set_peer(member.host_id, peer);
        }
        messaging.set_epoch(snapshot.epoch);
        let known = snapshot.clone();
        coordinator.attach(ClusterParts {
            messaging,
            snapshot: Rc::new(move || known.clone()),
            is_alive: Rc::new(|h: HostId| registry(|r| !r.dead.iter().any(|n| host(*n) == h))),
            hints: Rc::new(NoHints),
            epoch_wait: None,
            settings: ReplicationSettings { dynamic_snitch: false, ..Default::default() },
        });
    }
    let node = Node { rt: rt.clone(), coordinator, snapshot };
    registry(|r| r.nodes.insert((n, rt.shard().0), node));
    rt.stop_requested().await;
}

/// How a read is asked for.
#[derive(Clone)]
pub(super) struct Ask {
    pub(super) level: Consistency,
    pub(super) rows_wanted: usize,
    /// Rows after which the sink stops.
    pub(super) stop_after: Option<usize>,
    pub(super) per_partition: u32,
}

impl Ask {
    pub(super) fn at(level: Consistency) -> Ask {
        Ask { level, rows_wanted: 5000, stop_after: None, per_partition: u32::MAX }
    }
}

/// What came of a read.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) rows: Vec<Found>,
    pub(super) result: Result<ReadStats, RequestError>,
    pub(super) took: Duration,
}

pub(super) fn all() -> ReadCommand {
    read_of(Partitions::Range(KeyRange::all()))
}

pub(super) fn one(pk: i32) -> ReadCommand {
    read_of(Partitions::Key(key(pk)))
}

fn read_of(partitions: Partitions) -> ReadCommand {
    ReadCommand {
        table: TABLE,
        partitions,
        slices: Slices::all(),
        reversed: false,
        columns: None,
        now: NOW,
        wants_static: true,
        resume: None,
    }
}

impl Nodes {
    pub(super) fn start(options: &Options) -> Nodes {
        registry(|r| *r = Registry::default());
        let world = World::new(options.seed, WorldOptions::default());
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
                tombstones_max: options.tombstones_max,
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

    /// Applies a mutation on these nodes and on the oracle.
    pub(super) fn write(&self, to: &[u8], mutation: &[u8]) {
        for n in to.iter().chain([&ORACLE]) {
            self.apply(*n, vec![mutation.to_vec()]);
        }
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

    /// Reads with node `n` as coordinator.
    pub(super) fn read(&self, n: u8, command: &ReadCommand, ask: &Ask) -> Outcome {
        let shards = if n == ORACLE { 1 } else { self.shards[usize::from(n) - 1] };
        let shard = self.below(usize::from(shards)) as u16;
        let (command, ask) = (command.clone(), ask.clone());
        self.run_on(self.node(n, shard), |node| async move {
            let mut sink = Collect::new(&command, ask.stop_after, ask.per_partition);
            let began = node.rt.now();
            let result = if n == ORACLE {
                Ok(node.coordinator.read(&command, ask.rows_wanted, &mut sink).await.unwrap())
            } else {
                let order = ReplicatedRead {
                    snapshot: node.snapshot.clone(),
                    consistency: ask.level,
                    deadline: node.rt.now() + Duration::from_secs(5),
                    rows_wanted: ask.rows_wanted,
                    limits: SelectLimits { rows_per_partition: ask.per_partition },
                };
                node.coordinator.read_replicated(&command, &order, &mut sink).await
            };
            Outcome { rows: sink.finish(), result, took: node.rt.now().since(began) }
        })
    }

    /// What the oracle says.
    pub(super) fn expected(&self, command: &ReadCommand, ask: &Ask) -> Vec<Found> {
        self.read(ORACLE, command, ask).rows
    }

    /// Everything that a node has, encoded.
    pub(super) fn content(&self, n: u8) -> Vec<u8> {
        let snapshot = self.node(n, 0).snapshot;
        let shape = TableShape::for_table(snapshot.schema.table_by_id(TABLE).unwrap());
        self.run_on(self.node(n, 0), |node| async move {
            let limits = PageLimits { bytes: usize::MAX, ..PageLimits::default() };
            // As reads do: an expired cell is what it will be when it is compacted, a tombstone.
            let purge_before = DeletionSeconds(NOW.0 - 864_000);
            let query = ReplicaQuery { command: all(), limits, purge_before };
            node.coordinator.read_node(&shape, query).await.unwrap()
        })
    }

    /// Whether all nodes have the same.
    pub(super) fn check_equal(&self) -> Result<(), String> {
        let first = self.content(1);
        for n in 2..=self.count() {
            let other = self.content(n);
            if other != first {
                let (a, b) = (text_of(&first), text_of(&other));
                let at = a.iter().zip(&b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
                let (a, b) = (a.get(at), b.get(at));
                return Err(format!("n1 has {a:?}, n{n} has {b:?}"));
            }
        }
        Ok(())
    }

    /// Merges that the coordinators had to do so far.
    pub(super) fn mismatches(&self) -> u64 {
        let counts = |node: &Node| node.coordinator.read_repair_counts().mismatches;
        registry(|r| r.nodes.values().map(counts).sum())
    }

    /// The failure detector's word.
    pub(super) fn set_alive(&self, n: u8, alive: bool) {
        registry(|r| if alive { r.dead.remove(&n) } else { r.dead.insert(n) });
    }

    /// The network between two nodes.
    pub(super) fn cut(&self, a: u8, b: u8) {
        self.world.partition(&name(a), &name(b));
    }

    pub(super) fn lose_repairs_at(&self, n: u8) {
        registry(|r| r.loses_repairs.insert(n));
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // What a coordinator holds of the world goes before the world.
        let nodes = registry(|r| std::mem::take(&mut r.nodes));
        drop(nodes);
    }
}

impl Nodes {
    /// The nodes that hold the partition of a mutation.
    pub(super) fn replicas_of(&self, mutation: &[u8]) -> Vec<u8> {
        let token = codec::token_of(MutationRef::open(mutation).unwrap().key);
        let snapshot = self.node(1, 0).snapshot;
        let placements = snapshot.placements(&snapshot.replication_of_table(TABLE).unwrap());
        let is_replica = |n: &u8| placements.replicas(token).position(host(*n)).is_some();
        (1..=self.count()).filter(is_replica).collect()
    }
}

/// The items of a page as text, for messages.
fn text_of(page: &[u8]) -> Vec<String> {
    let shape =
        TableShape::for_table(schema(TableOptions::default(), 1, &[]).table_by_id(TABLE).unwrap());
    let chain = PageChain::new(ReplicaPage::open(page).unwrap());
    let stops = PageStops::NONE;
    let mut cursor = PageCursor::new(&shape, false, &chain, &stops);
    let mut items = Vec::new();
    let mut key = Vec::new();
    while cursor.advance().unwrap() == Advance::Item {
        let item = cursor.item();
        if let Item::Partition { key: here, .. } = item {
            key = here.to_vec();
        }
        let parts = match item {
            Item::Row { row, .. } | Item::Static(row) => {
                let (liveness, deletion, columns) = row.parts();
                format!("{liveness:?} {deletion:?} {:?}", columns.collect::<Vec<_>>())
            }
            _ => String::new(),
        };
        items.push(format!("in {key:?}: {item:?} {parts}"));
    }
    items
}
