//! Nodes that read and answer reads, without membership, gossip or clients.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::{ClusterSnapshot, Consistency, Member};
use data::MutationRef;
use data::command::{KeyRange, Partitions, ReadCommand};
use data::page_cursor::{PageChain, PageCursor, PageStops};
use data::replica_page::{PageLimits, ReplicaPage};
use data::{Advance, Cursor, Item, TableShape};
use dist_testing::table::{NOW, TABLE, key, schema};
use dist_testing::{Ground, ORACLE, Replicas, host, identity, is_alive, messaging, serve};
use internode::{ErrorReply, FilteredRead, ReadRequest, Verb};
use messaging::{Handler, MessagingMesh, Request, Responder, Settings};
use request::RequestError;
use rt::Rt;
use rt::sim::WorldOptions;
use schema::TableOptions;
use stdx::DeletionSeconds;
use store::{ReadStats, Store};

use super::filtered::Values;
use super::sink::{Collect, Cut, Found};
use crate::replicated::read::Inner;
use crate::{
    ClusterParts, Coordinator, NoHints, ReplicatedRead, ReplicationSettings, SelectLimits,
    ShardMesh, ShardWork,
};
use replica::{NodeRead, ReplicaQuery};

/// One shard of a node.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) rt: Rt,
    pub(super) coordinator: Coordinator,
    pub(super) snapshot: Arc<ClusterSnapshot>,
}

/// State shared by all nodes of this thread's world: they run on one thread.
#[derive(Default)]
struct Registry {
    nodes: BTreeMap<(u8, u16), Node>,
    /// Acknowledges repairs and does not apply them.
    loses_repairs: BTreeSet<u8>,
    /// Answers reads of other partitions than it was asked for.
    misreads: BTreeSet<u8>,
    /// Does not know the verbs `FilteredRead` and `VectorSearch`.
    old: BTreeSet<u8>,
    /// Knows it, and plans no filter.
    refusing: BTreeSet<u8>,
    /// How often nodes were asked to filter a page.
    asked_to_filter: BTreeMap<u8, u64>,
}

thread_local! {
    static REGISTRY: RefCell<Registry> = RefCell::default();
}

fn registry<T>(with: impl FnOnce(&mut Registry) -> T) -> T {
    REGISTRY.with(|r| with(&mut r.borrow_mut()))
}

/// The partition that a node reads which reads the wrong one.
pub(super) const MISREAD: i32 = 99;

/// The same request for other partitions.
fn misread(request: &Request<'_>, payload: &mut Vec<u8>) {
    let everything = Partitions::Range(KeyRange::all());
    if request.verb == Verb::FilteredRead {
        let mut asked = FilteredRead::decode(request.payload).unwrap();
        (asked.command.partitions, asked.command.resume) = (everything, None);
        asked.encode(payload);
    } else if let Ok(mut asked) = ReadRequest::decode(request.payload) {
        asked.command.partitions = match asked.command.partitions {
            Partitions::Key(_) => Partitions::Key(key(MISREAD)),
            Partitions::Range(_) => everything,
        };
        asked.encode(payload);
    } else {
        payload.extend_from_slice(request.payload);
    }
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
        if request.verb == Verb::FilteredRead {
            registry(|r| *r.asked_to_filter.entry(self.n).or_default() += 1);
        }
        let is_new = matches!(request.verb, Verb::FilteredRead | Verb::VectorSearch);
        if is_new && registry(|r| r.old.contains(&self.n)) {
            return responder.fail(&ErrorReply::UnknownVerb(request.verb.number()));
        }
        let mut payload = Vec::new();
        let mut request = request;
        if registry(|r| r.misreads.contains(&self.n)) {
            misread(&request, &mut payload);
            request = Request { payload: &payload, ..request };
        }
        assert!(self.coordinator.serve_peer(request, responder).is_none());
    }
}

/// Parts of a node; shared by its shards.
struct Setup {
    snapshot: Arc<ClusterSnapshot>,
    data: Arc<ShardMesh>,
    messaging: Arc<MessagingMesh>,
    page_tombstones: u32,
}

/// How a world is.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) seed: u64,
    /// Number of shards of each node.
    pub(super) shards: Vec<u16>,
    pub(super) factor: u32,
    pub(super) tokens: usize,
    pub(super) table: TableOptions,
    /// Replication factor by datacenter instead of `factor`; nodes stand in them in turn.
    pub(super) datacenters: Vec<(String, u32)>,
    /// Number of tombstones after which pages of replicas end.
    pub(super) page_tombstones: u32,
}

impl Options {
    pub(super) fn new(seed: u64) -> Options {
        let (shards, table) = (vec![1, 2, 3], TableOptions::default());
        let (factor, tokens, datacenters) = (3, 4, Vec::new());
        Options { seed, shards, factor, tokens, table, datacenters, page_tombstones: 10_000 }
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

fn snapshot(options: &Options, ground: &Ground) -> ClusterSnapshot {
    let ring = dist_testing::ring;
    let members = ring(options.seed, &ground.addresses(), &options.shards, options.tokens);
    let datacenters = options.datacenters.iter().map(|(name, _)| name.clone()).cycle();
    let placed = members.into_iter().zip(datacenters.chain(std::iter::repeat("dc".to_owned())));
    let members = placed.map(|(member, datacenter)| Member { datacenter, ..member }).collect();
    let schema = schema(options.table.clone(), options.factor, &options.datacenters);
    dist_testing::snapshot(5, members, schema)
}

async fn shard(rt: Rt, n: u8, setup: Arc<Setup>) {
    let snapshot = setup.snapshot.clone();
    let run = u64::try_from(rt.wall().0).unwrap();
    let store = dist_testing::store(&rt, n, run, snapshot.schema.clone(), |_| {});
    let coordinator = Coordinator::new(rt.clone(), store.await, setup.data.clone());
    coordinator.local().limit_replica_pages(setup.page_tombstones);
    coordinator.replica().search_with(super::indexed::searcher(coordinator.store().clone()));
    coordinator
        .replica()
        .search_vectors_with(super::nearest::searcher(coordinator.store().clone()));
    coordinator.replica_reads().serve_scans(Rc::new(move |work, _| {
        if registry(|r| r.refusing.contains(&n)) {
            return Err("it has other columns".to_owned());
        }
        let filter = Values::decode(work).ok_or_else(|| "no such filter".to_owned())?;
        Ok(ShardWork::Filter(Arc::new(filter)))
    }));
    if n != ORACLE {
        let (identity, mesh) = (identity(n, 1, rt.shard_count()), setup.messaging.clone());
        let messaging = messaging(&rt, identity, Settings::default(), mesh, &snapshot);
        let served = Served { n, coordinator: coordinator.clone() };
        serve(&rt, &messaging, Rc::new(served)).await;
        let known = snapshot.clone();
        coordinator.attach(ClusterParts {
            messaging,
            snapshot: Rc::new(move || known.clone()),
            is_alive: is_alive(),
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
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) level: Consistency,
    pub(super) rows_wanted: usize,
    /// Rows after which the sink stops.
    pub(super) stop_after: Option<usize>,
    pub(super) per_partition: u32,
    /// Each page of a range has as long as else the whole read.
    pub(super) by_page: bool,
    /// Number of tombstones after which the sink stops.
    pub(super) tombstones: u32,
    /// Number of tombstones above which it aborts the read.
    pub(super) refused: u32,
}

/// How long a read may take.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

impl Ask {
    pub(super) fn at(level: Consistency) -> Ask {
        let (stop_after, per_partition, by_page) = (None, u32::MAX, false);
        let (tombstones, refused) = (u32::MAX, u32::MAX);
        Ask { level, rows_wanted: 5000, stop_after, per_partition, by_page, tombstones, refused }
    }
}

/// Outcome of a read.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) rows: Vec<Found>,
    /// Where it stopped for its tombstones.
    pub(super) cut: Option<Cut>,
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
    ReadCommand { wants_static: true, ..ReadCommand::whole(TABLE, partitions, NOW) }
}

impl Nodes {
    pub(super) fn start(options: &Options) -> Nodes {
        registry(|r| *r = Registry::default());
        let ground = Ground::new(options.seed, options.shards.clone(), WorldOptions::default());
        let seen = snapshot(options, &ground);
        for n in ORACLE..=ground.count() {
            let shards = if n == ORACLE { 1 } else { ground.shards(n) };
            let setup = Arc::new(Setup {
                snapshot: Arc::new(seen.with_local(host(n.max(1))).unwrap()),
                data: Arc::new(ShardMesh::new(shards, 1024)),
                messaging: Arc::new(MessagingMesh::new(shards)),
                page_tombstones: options.page_tombstones,
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

    /// Reads with node `n` as coordinator.
    pub(super) fn read(&self, n: u8, command: &ReadCommand, ask: &Ask) -> Outcome {
        let shards = if n == ORACLE { 1 } else { self.shards(n) };
        let shard = self.below(usize::from(shards)) as u16;
        let (command, ask) = (command.clone(), ask.clone());
        self.run_on(self.node(n, shard), |node| async move {
            let mut sink = Collect::new(&command, ask.stop_after, ask.per_partition);
            (sink.tombstones, sink.refused) = (ask.tombstones, ask.refused);
            let began = node.rt.now();
            let result = if n == ORACLE {
                Ok(node.coordinator.read(&command, ask.rows_wanted, &mut sink).await.unwrap())
            } else {
                let order = ReplicatedRead {
                    snapshot: node.snapshot.clone(),
                    consistency: ask.level,
                    deadline: node.rt.now() + TIMEOUT,
                    page_timeout: ask.by_page.then_some(TIMEOUT),
                    rows_wanted: ask.rows_wanted,
                    limits: SelectLimits { rows_per_partition: ask.per_partition },
                };
                node.coordinator.reads().read_replicated(&command, &order, &mut sink).await
            };
            let cut = sink.cut.clone();
            Outcome { rows: sink.finish(), cut, result, took: node.rt.now().since(began) }
        })
    }

    /// Returns the rows that the oracle has.
    pub(super) fn expected(&self, command: &ReadCommand, ask: &Ask) -> Vec<Found> {
        self.read(ORACLE, command, ask).rows
    }

    /// Everything that a node has, encoded.
    pub(super) fn content(&self, n: u8) -> Vec<u8> {
        let snapshot = self.node(n, 0).snapshot;
        let shape = TableShape::for_table(snapshot.schema.table_by_id(TABLE).unwrap());
        self.run_on(self.node(n, 0), |node| async move {
            let limits = PageLimits { bytes: usize::MAX, ..PageLimits::default() };
            // Like reads: an expired cell is what it will be when it is compacted, a tombstone.
            let purge_before = DeletionSeconds(NOW.0 - 864_000);
            let scope = store::ReadScope::All;
            let query = ReplicaQuery { command: all(), limits, purge_before, scope };
            NodeRead::new(&shape, query).read(node.coordinator.local()).await.unwrap().page
        })
    }

    /// Checks that all nodes have the same content.
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
        let counts = |node: &Node| node.coordinator.reads().read_repair_counts().mismatches;
        registry(|r| r.nodes.values().map(counts).sum())
    }

    /// Pages of which the coordinators were sent what passes a filter, and those of which they were not.
    pub(super) fn filtered_pages(&self) -> (u64, u64) {
        let sum = |count: &dyn Fn(&Inner) -> u64| {
            registry(|r| r.nodes.values().map(|n| count(&n.coordinator.reads().inner)).sum())
        };
        (sum(&|r| r.filtered.get()), sum(&|r| r.filtered_refused.get()))
    }

    pub(super) fn asked_to_filter(&self, n: u8) -> u64 {
        registry(|r| r.asked_to_filter.get(&n).copied().unwrap_or(0))
    }

    pub(super) fn grow_old(&self, n: u8) {
        registry(|r| r.old.insert(n));
    }

    pub(super) fn refuse_at(&self, n: u8) {
        registry(|r| r.refusing.insert(n));
    }

    pub(super) fn misread_at(&self, n: u8) {
        registry(|r| r.misreads.insert(n));
    }

    pub(super) fn lose_repairs_at(&self, n: u8) {
        registry(|r| r.loses_repairs.insert(n));
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // Parts of coordinators that refer to the world are dropped before the world.
        let nodes = registry(|r| std::mem::take(&mut r.nodes));
        drop(nodes);
    }
}

impl Nodes {
    /// The nodes that hold the partition of a mutation.
    pub(super) fn replicas_of(&self, mutation: &[u8]) -> Vec<u8> {
        let token = codec::token_of(MutationRef::open(mutation).unwrap().key);
        let snapshot = self.node(1, 0).snapshot;
        let placements = snapshot.placements_of_table(TABLE).unwrap();
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
