//! Several nodes under the simulator: what is fetched is what the source has, whatever happens on
//! the way.
#![allow(clippy::disallowed_types, reason = "facts are shared with the world's main function")]

mod fetching;
mod files;
mod planning;
mod requests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster::{ClusterSnapshot, Member, MemberState, TokenRange};
use data::command::{KeyRange, Partitions, ReadCommand};
use data::page_cursor::{PageChain, PageCursor, PageStops};
use data::replica_page::{PageLimits, ReplicaPage};
use data::{
    Advance, BoundRef, CellRef, ClusteringBuf, Cursor, DeletionTime, Item, Liveness,
    MutationBuilder, MutationRef, RangeTombstoneRef, RowBuilder, RowRef, TableShape,
};
use dist_testing::{PORT, Random, host, identity, messaging, name, serve, snapshot};
use messaging::{Handler, MessagingMesh, Peer, Request, Responder, Settings};
use rt::sim::{SimNode, World, WorldOptions};
use rt::{NodeSpec, Rt};
use schema::{
    Column, ColumnKind, Keyspace, KeyspaceParams, Schema, Table, TableKind, TableOptions,
};
use stdx::{
    ColumnId, DeletionSeconds, Epoch, FixedMap, HostId, ShardMap, TableId, TimestampMicros, Token,
    TtlSeconds, Uuid,
};
use store::Store;
use types::CqlType;

use crate::*;

const TABLE: TableId = TableId(Uuid::from_u128(0x11));
const LOCAL_TABLE: TableId = TableId(Uuid::from_u128(0x12));
const STATIC: ColumnId = ColumnId(2);
const VALUE: ColumnId = ColumnId(3);

fn table(id: TableId, keyspace: &str) -> Table {
    let column =
        |id, name: &str, ty, kind| Column { id: ColumnId(id), name: name.into(), ty, kind };
    Table {
        id,
        keyspace: keyspace.into(),
        name: "t".into(),
        kind: TableKind::Regular,
        columns: vec![
            column(0, "pk", CqlType::Int, ColumnKind::PartitionKey(0)),
            column(1, "ck", CqlType::Int, ColumnKind::Clustering { position: 0, reversed: false }),
            column(2, "s", CqlType::Text, ColumnKind::Static),
            column(3, "v", CqlType::Text, ColumnKind::Regular),
        ],
        partition_key_count: 1,
        clustering_count: 1,
        static_count: 1,
        // Nothing is ever purged: what is compared is everything.
        options: TableOptions { gc_grace_seconds: i32::MAX, ..TableOptions::default() },
        dropped: BTreeMap::new(),
        masks: BTreeMap::new(),
        indexes: Default::default(),
        version: 1,
        next_column_id: 4,
    }
}

type Options<'a> = &'a [(&'a str, &'a str)];

/// Keyspaces with one table each, by the options of their replication.
fn schema_of(keyspaces: &[(&str, TableId, Options<'_>)]) -> Arc<Schema> {
    let mut all = BTreeMap::new();
    let mut by_id: FixedMap<TableId, Arc<Table>> = FixedMap::default();
    for (name, id, replication) in keyspaces {
        let table = Arc::new(table(*id, name));
        by_id.insert(*id, table.clone());
        let replication =
            replication.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let keyspace = Keyspace {
            name: (*name).into(),
            params: KeyspaceParams { durable_writes: true, replication },
            tables: [(table.name.clone(), table)].into(),
            types: BTreeMap::new(),
            functions: Vec::new(),
            aggregates: Vec::new(),
            is_virtual: false,
        };
        all.insert((*name).into(), Arc::new(keyspace));
    }
    Arc::new(Schema { keyspaces: all, tables_by_id: by_id, version: Uuid::from_u128(1) })
}

fn member(n: u8, tokens: &[i64], state: MemberState) -> Member {
    let tokens = tokens.iter().map(|t| Token(*t)).collect();
    let address = SocketAddr::from(([127, 0, 0, n], PORT));
    Member { tokens, state, ..dist_testing::member(n, address) }
}

/// Two nodes and one that joins.
fn joining() -> ClusterSnapshot {
    let replicated: &[(&str, &str)] = &[("class", "SimpleStrategy"), ("replication_factor", "2")];
    let local: &[(&str, &str)] = &[("class", "LocalStrategy")];
    let schema = schema_of(&[("ks", TABLE, replicated), ("own", LOCAL_TABLE, local)]);
    let members = vec![
        member(1, &[-6_000_000_000_000_000_000, 1_000_000_000], MemberState::Normal),
        member(2, &[-1_000_000_000, 5_000_000_000_000_000_000], MemberState::Normal),
        member(3, &[-3_000_000_000_000_000_000, 7_000_000_000_000_000_000], MemberState::Joining),
    ];
    snapshot(5, members, schema)
}

fn key(pk: i32) -> Vec<u8> {
    pk.to_be_bytes().to_vec()
}

/// A random mutation of some partition, of every kind.
fn mutation(r: u64, partitions: u64) -> Vec<u8> {
    let pk = (r % partitions) as i32;
    let clustering = |ck: i32| ClusteringBuf::from_components([ck.to_be_bytes().as_slice()]).0;
    let ck = ((r >> 16) % 12) as i32;
    let timestamp = TimestampMicros(1 + ((r >> 24) % 50) as i64);
    let deletion = DeletionTime { timestamp, local: DeletionSeconds(1_000_000) };
    let value = format!("{}", (r >> 30) % 1000).repeat(5);
    let packed = |liveness, deletion, column: Option<(ColumnId, CellRef<'_>)>| {
        let mut row = Vec::new();
        let mut builder = RowBuilder::new(&mut row, liveness, deletion, TimestampMicros(0));
        if let Some((id, cell)) = column {
            builder.cell(id, &cell);
        }
        builder.finish();
        row
    };
    let live = CellRef::live(timestamp, value.as_bytes());
    // Not within the tests: compactions make tombstones of what is expired.
    let expires_at = DeletionSeconds(2_100_000_000);
    let expiring = CellRef::expiring(timestamp, TtlSeconds(5), expires_at, b"gone");
    let mut out = Vec::new();
    let key = key(pk);
    let mut builder = MutationBuilder::new(&mut out, TABLE, 1, &key);
    let (at, until) = (clustering(ck), clustering(ck + 1 + ((r >> 44) % 4) as i32));
    let row = match (r >> 40) % 10 {
        0 => {
            builder.deletion(deletion);
            None
        }
        1 | 2 => {
            let start = BoundRef { prefix: &at, after: false };
            let end = BoundRef { prefix: &until, after: false };
            let range = RangeTombstoneRef { start, end, deletion };
            builder.range_tombstones([range].into_iter());
            None
        }
        3 => {
            let row = packed(Liveness::NONE, DeletionTime::LIVE, Some((STATIC, live)));
            builder.static_row(RowRef::trusted(&row));
            None
        }
        4 => Some(packed(Liveness::NONE, deletion, None)),
        5 => Some(packed(Liveness::NONE, DeletionTime::LIVE, Some((VALUE, expiring)))),
        _ => Some(packed(Liveness::new(timestamp), DeletionTime::LIVE, Some((VALUE, live)))),
    };
    if let Some(row) = row {
        builder.rows([(at.as_slice(), RowRef::trusted(&row))].into_iter());
    }
    builder.finish();
    out
}

/// Everything of a table: partitions by key, their items as text.
type Dump = BTreeMap<Vec<u8>, Vec<String>>;

async fn dump(store: &Store, into: &mut Dump) {
    let command = ReadCommand {
        wants_static: true,
        ..ReadCommand::whole(TABLE, Partitions::Range(KeyRange::all()), DeletionSeconds(1))
    };
    let limits = PageLimits { bytes: usize::MAX, ..PageLimits::default() };
    let keep = DeletionSeconds(i64::MIN);
    let read = store.reader().read_replica(&command, limits, true, keep).await.unwrap();
    let shape = TableShape::for_table(&table(TABLE, "ks"));
    let (chain, stops) = (PageChain::new(ReplicaPage::open(&read.page).unwrap()), PageStops::NONE);
    let mut cursor = PageCursor::new(&shape, false, &chain, &stops);
    let mut at = Vec::new();
    while cursor.advance().unwrap() == Advance::Item {
        let text = match cursor.item() {
            Item::Partition { key, .. } => {
                at = key.to_vec();
                format!("{:?}", cursor.item())
            }
            Item::Row { clustering, row } => format!("{clustering:?} {:?}", row.bytes()),
            Item::Static(row) => format!("{:?}", row.bytes()),
            other => format!("{other:?}"),
        };
        into.entry(at.clone()).or_default().push(text);
    }
}

/// State shared by the nodes of a world.
#[derive(Default)]
struct Facts {
    /// Shards that run, by node.
    ready: BTreeMap<u8, u16>,
    /// Partitions by node.
    dumps: BTreeMap<u8, Dump>,
    /// Shards that are in `dumps`.
    dumped: BTreeMap<u8, u16>,
    /// How the fetch of a node ended.
    outcome: Option<Result<FetchReport, StreamError>>,
    progress: Vec<FetchProgress>,
    /// Mutations in memtables of the node that fetched.
    memtable_mutations: u64,
    sessions: Vec<SessionStats>,
}

type Shared = Arc<Mutex<Facts>>;

/// One node of a world.
#[derive(Clone)]
struct Spec {
    n: u8,
    shards: u16,
    /// Mutations that it writes when it starts; writing them again changes nothing.
    data: Arc<Vec<Vec<u8>>>,
    /// Plan that it fetches when it runs.
    plan: Option<Vec<FetchRange>>,
    snapshot: Arc<Mutex<Arc<ClusterSnapshot>>>,
    settings: StreamSettings,
    /// Turns the nodes' answers into others.
    tamper: Option<fn(&mut Vec<u8>)>,
    /// So long after its beginning it gives the fetch up.
    gives_up_after: Option<Duration>,
    /// Versions of its files, taken in turn.
    versions: Vec<store::Version>,
}

impl Spec {
    fn new(n: u8, shards: u16, data: Vec<Vec<u8>>) -> Spec {
        let settings = StreamSettings {
            page_bytes: 700,
            page_timeout: Duration::from_secs(2),
            retry_pause: Duration::from_millis(50),
            retry_pause_max: Duration::from_secs(1),
            ..StreamSettings::default()
        };
        let snapshot = Arc::new(Mutex::new(Arc::new(joining().with_local(host(n)).unwrap())));
        let (tamper, gives_up_after) = (None, None);
        let data = Arc::new(data);
        let versions = vec![store::Version::Nb];
        Spec { n, shards, data, plan: None, snapshot, settings, tamper, gives_up_after, versions }
    }

    fn fetching(mut self, plan: Vec<FetchRange>) -> Spec {
        self.plan = Some(plan);
        self
    }
}

struct Served(RefCell<Option<Streaming>>, Option<fn(&mut Vec<u8>)>);

impl Handler for Served {
    fn handle(&self, request: Request<'_>, responder: Responder) {
        if let Some(tamper) = self.1 {
            let mut answer = Vec::new();
            tamper(&mut answer);
            responder.respond(|out| out.extend_from_slice(&answer));
            return;
        }
        if let Some(streaming) = &*self.0.borrow() {
            drop(streaming.serve_peer(request, responder));
        }
    }
}

/// The store of a node, which writes the n-th of the node's versions.
async fn open(rt: &Rt, spec: &Spec, run: u64, schema: Arc<Schema>, n: usize) -> Store {
    let version = spec.versions[n % spec.versions.len()];
    // Each has a number of its own.
    let run = run * 1_000 + n as u64;
    dist_testing::store(rt, spec.n, run, schema, |options| options.sstable_version = version).await
}

async fn node(
    rt: Rt,
    spec: Spec,
    peers: Vec<(HostId, Peer)>,
    meshes: (Arc<MessagingMesh>, Arc<StreamMesh>),
    run: u64,
    facts: Shared,
) {
    let schema = spec.snapshot.lock().unwrap().schema.clone();
    let mut store = open(&rt, &spec, run, schema.clone(), 0).await;
    for (i, bytes) in spec.data.iter().enumerate() {
        let mutation = MutationRef::open(bytes).unwrap();
        let map = ShardMap::ByTokenHash { shards: spec.shards };
        if map.shard_of(mutation.table, codec::token_of(mutation.key)) == rt.shard() {
            store.apply(&mutation, true).unwrap();
        }
        if i % 100 == 99 {
            store.flush(None).await.unwrap();
            if spec.versions.len() > 1 {
                store.stop().await;
                store = open(&rt, &spec, run, schema.clone(), i / 100 + 1).await;
            }
        }
    }
    store.commit().await.unwrap();
    let snapshot = spec.snapshot.lock().unwrap().clone();
    let settings = Settings { backoff_max: Duration::from_secs(1), ..Settings::default() };
    let identity = identity(spec.n, run, spec.shards);
    let messaging = messaging(&rt, identity, settings, meshes.0, &snapshot);
    for (host, peer) in peers {
        messaging.set_peer(host, peer);
    }
    let served = Rc::new(Served(RefCell::new(None), spec.tamper));
    serve(&rt, &messaging, served.clone()).await;
    let newest = spec.snapshot.clone();
    let streaming = Streaming::new(StreamParts {
        rt: rt.clone(),
        store: store.clone(),
        messaging: messaging.clone(),
        mesh: meshes.1,
        snapshot: Rc::new(move || newest.lock().unwrap().clone()),
        settings: spec.settings,
    });
    *served.0.borrow_mut() = Some(streaming.clone());
    *facts.lock().unwrap().ready.entry(spec.n).or_default() += 1;
    if let Some(plan) = spec.plan.clone() {
        if rt.shard().0 == 0 {
            while facts.lock().unwrap().ready.get(&spec.n) < Some(&spec.shards) {
                rt.sleep(Duration::from_millis(1)).await;
            }
            let (stopper, of_task) = (rt.clone(), streaming.clone());
            let stop = async move {
                stopper.stop_requested().await;
                of_task.stop().await;
            };
            rt.gate("test").spawn(&rt, rt::Group::Admin, "test-stop", stop).unwrap();
            let told = facts.clone();
            let progress = |progress: &FetchProgress| told.lock().unwrap().progress.push(*progress);
            let id = streaming.new_plan();
            if let Some(after) = spec.gives_up_after {
                let (rt, of_task) = (rt.clone(), streaming.clone());
                let give_up = async move {
                    rt.clone().sleep(after).await;
                    assert!(!of_task.abort(Uuid::nil()), "no such plan");
                    assert!(of_task.abort(id));
                };
                let gate = streaming.env.gate.clone();
                gate.spawn(&streaming.env.rt, rt::Group::Admin, "test-abort", give_up).unwrap();
            }
            let keep: &Keep<'_> = &|_| Box::pin(std::future::ready(()));
            let outcome = streaming
                .fetch_keeping(
                    crate::Operation { name: "Bootstrap", plan: id },
                    plan,
                    &progress,
                    keep,
                )
                .await;
            assert!(!streaming.abort(id), "it is over");
            facts.lock().unwrap().outcome = Some(outcome);
        }
        while facts.lock().unwrap().outcome.is_none() {
            rt.sleep(Duration::from_millis(1)).await;
        }
        let mutations = store.table_stats(TABLE).memtable_mutations;
        let mut facts = facts.lock().unwrap();
        facts.memtable_mutations += mutations;
        facts.sessions.extend(streaming.stats().receiving);
    } else {
        while facts.lock().unwrap().outcome.is_none() && !rt.is_stop_requested() {
            rt.sleep(Duration::from_millis(1)).await;
        }
    }
    let mut found = Dump::new();
    dump(&store, &mut found).await;
    {
        let mut facts = facts.lock().unwrap();
        facts.dumps.entry(spec.n).or_default().append(&mut found);
        *facts.dumped.entry(spec.n).or_default() += 1;
    }
    rt.stop_requested().await;
    streaming.stop().await;
    messaging.stop(Duration::from_millis(100)).await;
    store.stop().await;
}

struct Cluster {
    world: World,
    facts: Shared,
    specs: BTreeMap<u8, Spec>,
    nodes: BTreeMap<u8, SimNode>,
    runs: u64,
}

impl Cluster {
    fn new(seed: u64, specs: Vec<Spec>) -> Cluster {
        let world = World::new(seed, WorldOptions::default());
        let specs = specs.into_iter().map(|s| (s.n, s)).collect();
        Cluster { world, facts: Shared::default(), specs, nodes: BTreeMap::new(), runs: 1_000_000 }
    }

    /// Starts those that have the data, then the others.
    fn start(seed: u64, specs: Vec<Spec>) -> Cluster {
        let mut cluster = Cluster::new(seed, specs);
        let (sources, others): (Vec<u8>, Vec<u8>) =
            cluster.specs.keys().partition(|n| cluster.specs[n].plan.is_none());
        for n in sources {
            cluster.start_node(n);
            cluster.wait_ready(n);
        }
        others.into_iter().for_each(|n| cluster.start_node(n));
        cluster
    }

    fn start_node(&mut self, n: u8) {
        self.runs += 1;
        let (spec, run, facts) = (self.specs[&n].clone(), self.runs, self.facts.clone());
        facts.lock().unwrap().ready.insert(n, 0);
        let peers: Vec<(HostId, Peer)> = self
            .specs
            .values()
            .map(|s| {
                let address = SocketAddr::new(self.world.ip(&name(s.n)), PORT);
                (host(s.n), Peer { address, shard_count: s.shards })
            })
            .collect();
        let shards = spec.shards;
        let meshes = (Arc::new(MessagingMesh::new(shards)), Arc::new(new_mesh(shards)));
        let node_spec = NodeSpec { name: name(n), shards, work_dir: format!("/{}", name(n)) };
        let main = move |rt: Rt| {
            let (spec, peers, facts) = (spec.clone(), peers.clone(), facts.clone());
            let future = node(rt, spec, peers, meshes.clone(), run, facts);
            Box::pin(future) as std::pin::Pin<Box<dyn Future<Output = ()>>>
        };
        let node = self.world.start_node(node_spec, Arc::new(main));
        self.nodes.insert(n, node);
    }

    fn wait_ready(&self, n: u8) {
        let (facts, shards) = (self.facts.clone(), self.specs[&n].shards);
        let ready = move || facts.lock().unwrap().ready.get(&n) >= Some(&shards);
        self.world.run_until(ready, Duration::from_secs(60)).unwrap();
    }

    /// Runs until the fetch is over and everybody has shown what it has.
    fn finish(&self) -> Result<FetchReport, StreamError> {
        let facts = self.facts.clone();
        let over = move || facts.lock().unwrap().outcome.is_some();
        self.world.run_until(over, Duration::from_secs(600)).unwrap();
        let facts = self.facts.clone();
        let alive: Vec<(u8, u16)> = self
            .nodes
            .iter()
            .filter(|(_, node)| self.world.is_alive(node))
            .map(|(n, _)| (*n, self.specs[n].shards))
            .collect();
        let shown =
            move || alive.iter().all(|(n, s)| facts.lock().unwrap().dumped.get(n) >= Some(s));
        self.world.run_until(shown, Duration::from_secs(60)).unwrap();
        self.facts.lock().unwrap().outcome.clone().unwrap()
    }

    fn dump(&self, n: u8) -> Dump {
        self.facts.lock().unwrap().dumps.get(&n).cloned().unwrap_or_default()
    }
}

/// Checks that the other node has the source's data in the ranges, and nothing else.
fn compare(source: &Dump, ranges: &[TokenRange], fetched: &Dump) -> Result<(), String> {
    let inside = |key: &[u8]| {
        let token = codec::token_of(key);
        ranges.iter().any(|r| r.contains(token))
    };
    for (key, items) in source.iter().filter(|(key, _)| inside(key)) {
        match fetched.get(key) {
            None => return Err(format!("{key:?} is missing")),
            Some(found) if found != items => {
                return Err(format!("{key:?} differs: {items:#?} became {found:#?}"));
            }
            Some(_) => {}
        }
    }
    match fetched.keys().find(|key| !inside(key) || !source.contains_key(*key)) {
        Some(key) => Err(format!("{key:?} should not be there")),
        None => Ok(()),
    }
}

/// Random data of every kind.
fn random_data(seed: u64, count: usize, partitions: u64) -> Vec<Vec<u8>> {
    let mut random = Random(seed);
    (0..count).map(|_| mutation(random.next(), partitions)).collect()
}
