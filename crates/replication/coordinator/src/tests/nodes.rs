//! Nodes that write and serve writes, without membership, gossip or clients.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::{ClusterSnapshot, Consistency, Member, MemberState, Truncation};
use data::counter::CounterId;
use dist_testing::{Ground, host, identity, is_alive, member, messaging, name, serve};
use internode::Verb;
use messaging::{Handler, Messaging, MessagingMesh, Request, Responder, Settings};
use request::WriteType;
use rt::Rt;
use rt::sim::{SimNode, WorldOptions};
use stdx::{Epoch, HostId, Instant, ShardId, TableId, Token, Uuid, WallMicros};
use store::SyncMode;

use super::table::{self, Collect};
use crate::{
    ClusterParts, Coordinator, HintSink, ReplicatedError, ReplicatedWrite, ReplicationSettings,
    ShardMesh,
};
use replica::ReplicaMutation;

/// Timeout of a write in these tests.
pub(super) const TIMEOUT: Duration = Duration::from_millis(500);

pub(super) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// One shard of a running node.
#[derive(Clone)]
pub(super) struct Shard {
    pub(super) rt: Rt,
    pub(super) coordinator: Coordinator,
    pub(super) messaging: Messaging,
    snapshot: Rc<RefCell<Arc<ClusterSnapshot>>>,
}

impl Shard {
    pub(super) fn snapshot(&self) -> Arc<ClusterSnapshot> {
        self.snapshot.borrow().clone()
    }

    /// Applies newer metadata.
    pub(super) fn learn(&self, snapshot: ClusterSnapshot) {
        self.messaging.set_epoch(snapshot.epoch);
        self.follow(snapshot);
    }

    /// The same, of which it tells others nothing yet.
    fn follow(&self, mut snapshot: ClusterSnapshot) {
        let known = self.snapshot();
        if known.epoch < snapshot.epoch {
            snapshot.places = known.places.clone();
            snapshot.places.follow(snapshot.epoch, &known.members, &snapshot.members);
        }
        *self.snapshot.borrow_mut() = Arc::new(snapshot);
    }

    /// A write of this shard.
    pub(super) fn order(
        &self,
        consistency: Consistency,
        mutations: Vec<ReplicaMutation>,
    ) -> ReplicatedWrite {
        ReplicatedWrite {
            snapshot: self.snapshot(),
            consistency,
            write_type: WriteType::Simple,
            mutations,
            logged: false,
            batch_id: Uuid::nil(),
            deadline: self.rt.now() + TIMEOUT,
        }
    }
}

/// State shared by all nodes of this thread's world: they run on one thread.
#[derive(Default)]
struct Registry {
    shards: BTreeMap<(u8, u16), Shard>,
    /// Acknowledges mutations and does not apply them.
    liars: BTreeSet<u8>,
    /// Hints are off.
    no_hints: bool,
    /// Hints have no room, which is found out when one is stored.
    hints_full: bool,
    hints_flushed: usize,
    /// So many flushes of hints fail.
    failing_flushes: usize,
    /// The node that stored it, and its target.
    hints: Vec<(u8, HostId, Vec<u8>)>,
    /// When their writes were made.
    hint_times: Vec<WallMicros>,
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
        if request.verb == Verb::Mutation && registry(|r| r.liars.contains(&self.n)) {
            return responder.respond(|_| {});
        }
        if let Some(responder) = self.coordinator.serve_peer(request, responder) {
            drop(responder);
        }
    }
}

struct Recorded(u8);

impl HintSink for Recorded {
    fn may_hint(&self, _: HostId) -> bool {
        registry(|r| !r.no_hints)
    }

    fn store(&self, host: HostId, mutation: &[u8], written_at: WallMicros) -> bool {
        registry(|r| {
            if !r.hints_full {
                r.hint_times.push(written_at);
                r.hints.push((self.0, host, mutation.to_vec()));
            }
            !r.hints_full
        })
    }

    fn flush(&self) -> std::pin::Pin<Box<dyn Future<Output = bool>>> {
        let is_durable = registry(|r| {
            r.hints_flushed += 1;
            r.hints_flushed > r.failing_flushes
        });
        Box::pin(std::future::ready(is_durable))
    }
}

/// How a world is.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) seed: u64,
    /// Number of shards and datacenter of each node.
    pub(super) nodes: Vec<(u16, &'static str)>,
    pub(super) replication: Vec<(&'static str, &'static str)>,
    pub(super) sync: SyncMode,
    /// It takes over its ranges.
    pub(super) joining: Option<u8>,
    /// The only node, and it knows of no cluster.
    pub(super) is_alone: bool,
    pub(super) settings: ReplicationSettings,
    pub(super) counter_ids: CounterIds,
}

/// Counter ids under which nodes write their cells.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CounterIds {
    /// As their hosts.
    Host,
    /// A new id at each start.
    Fresh,
    /// All as one, which is wrong.
    One,
}

impl Options {
    /// Three nodes with one, two and three shards, RF 3.
    pub(super) fn new(seed: u64) -> Options {
        Options {
            seed,
            nodes: vec![(1, "dc1"), (2, "dc1"), (3, "dc1")],
            replication: table::simple("3"),
            sync: SyncMode::Periodic { period: Duration::from_secs(10) },
            joining: None,
            is_alone: false,
            counter_ids: CounterIds::Host,
            settings: ReplicationSettings {
                write_request_timeout: TIMEOUT,
                ..ReplicationSettings::default()
            },
        }
    }

    /// Two datacenters of two nodes, RF 2 in each.
    pub(super) fn two_datacenters(seed: u64) -> Options {
        let class = "org.apache.cassandra.locator.NetworkTopologyStrategy";
        Options {
            nodes: vec![(1, "dc1"), (2, "dc1"), (2, "dc2"), (1, "dc2")],
            replication: vec![("class", class), ("dc1", "2"), ("dc2", "2")],
            ..Options::new(seed)
        }
    }
}

struct Setup {
    n: u8,
    snapshot: Arc<ClusterSnapshot>,
    data: Arc<ShardMesh>,
    messaging: Arc<MessagingMesh>,
    options: Options,
}

/// A world with its nodes.
pub(super) struct Nodes {
    ground: Ground,
    options: Options,
    seen: ClusterSnapshot,
    running: RefCell<BTreeMap<u8, SimNode>>,
    pub(super) next_id: Cell<u128>,
}

impl Deref for Nodes {
    type Target = Ground;

    fn deref(&self) -> &Ground {
        &self.ground
    }
}

fn snapshot(options: &Options, ground: &Ground) -> ClusterSnapshot {
    let count = i64::from(ground.count());
    let places = ground.addresses().into_iter().zip(&options.nodes).zip(1..);
    let members = places.map(|((address, (shards, datacenter)), n)| Member {
        datacenter: (*datacenter).to_owned(),
        rack: format!("r{n}"),
        tokens: vec![Token(i64::from(n) * (i64::MAX / count))],
        state: match options.joining {
            Some(joining) if joining == n => MemberState::Joining,
            _ => MemberState::Normal,
        },
        shards: *shards,
        ..member(n, address)
    });
    let schema = table::schema(&options.replication, true);
    dist_testing::snapshot(5, members.collect(), schema)
}

async fn shard(rt: Rt, setup: Arc<Setup>) {
    let n = setup.n;
    let known = Rc::new(RefCell::new(setup.snapshot.clone()));
    let run = u64::try_from(rt.wall().0).unwrap();
    let schema = setup.snapshot.schema.clone();
    let sync = setup.options.sync;
    let store = dist_testing::store(&rt, n, run, schema, |options| options.sync = sync).await;
    let coordinator = Coordinator::new(rt.clone(), store, setup.data.clone());
    match setup.options.counter_ids {
        CounterIds::Host => {}
        CounterIds::Fresh => {
            let id = u128::from(run) << 64 | u128::from(n);
            coordinator.counters().set_counter_id(CounterId(id.to_be_bytes()));
        }
        CounterIds::One => coordinator.counters().set_counter_id(CounterId([7; 16])),
    }
    if rt.shard() == ShardId(0) {
        // Nothing can be replayed yet, which must not be forgotten.
        coordinator.batches().replay_batches(&setup.snapshot).await;
    }
    let settings = Settings { connect_timeout: millis(200), ..Settings::default() };
    let (identity, mesh) = (identity(n, run, rt.shard_count()), setup.messaging.clone());
    let messaging = messaging(&rt, identity, settings, mesh, &setup.snapshot);
    let (of_wait, of_parts, rt_of_wait) = (known.clone(), known.clone(), rt.clone());
    let parts = ClusterParts {
        messaging: messaging.clone(),
        snapshot: Rc::new(move || of_parts.borrow().clone()),
        is_alive: is_alive(),
        hints: Rc::new(Recorded(n)),
        epoch_wait: Some(Rc::new(move |epoch, until: Instant| {
            let (known, rt) = (of_wait.clone(), rt_of_wait.clone());
            Box::pin(async move {
                while known.borrow().epoch < epoch && rt.now() < until {
                    rt.sleep(millis(5)).await;
                }
                known.borrow().epoch >= epoch
            })
        })),
        settings: setup.options.settings.clone(),
    };
    coordinator.lwt().load_checkpoints("/paxos").await.unwrap();
    if !setup.options.is_alone {
        coordinator.attach(parts);
    }
    let served = Served { n, coordinator: coordinator.clone() };
    serve(&rt, &messaging, Rc::new(served)).await;
    let of_replay = known.clone();
    coordinator.batches().start_batch_replay(TIMEOUT, move || of_replay.borrow().clone(), |_| ());
    let made = Shard { rt: rt.clone(), coordinator, messaging, snapshot: known };
    registry(|r| r.shards.insert((n, rt.shard().0), made));
    rt.stop_requested().await;
}

impl Nodes {
    pub(super) fn start(options: &Options) -> Nodes {
        registry(|r| *r = Registry::default());
        let shards = options.nodes.iter().map(|(shards, _)| *shards).collect();
        let ground = Ground::new(options.seed, shards, WorldOptions::default());
        let seen = snapshot(options, &ground);
        let nodes = Nodes {
            ground,
            options: options.clone(),
            seen,
            running: RefCell::default(),
            next_id: Cell::new(0x0000_0001_0000_1000_8000_0000_0000_0000),
        };
        for n in 1..=nodes.count() {
            nodes.begin(n);
        }
        for n in 1..=nodes.count() {
            nodes.await_start(n);
        }
        nodes
    }

    fn begin(&self, n: u8) {
        let shards = self.shards(n);
        let setup = Arc::new(Setup {
            n,
            snapshot: Arc::new(self.seen.with_local(host(n)).unwrap()),
            data: Arc::new(ShardMesh::new(shards, 1024)),
            messaging: Arc::new(MessagingMesh::new(shards)),
            options: self.options.clone(),
        });
        let node = self.start_node(n, shards, move |rt| shard(rt, setup.clone()));
        self.running.borrow_mut().insert(n, node);
    }

    fn await_start(&self, n: u8) {
        let all = usize::from(self.shards(n));
        self.wait_for(|| registry(|r| r.shards.keys().filter(|k| k.0 == n).count()) == all);
    }

    pub(super) fn restart(&self, n: u8) {
        self.begin(n);
        self.await_start(n);
    }

    /// The process ends without warning; the others do not know.
    pub(super) fn kill(&self, n: u8) {
        registry(|r| r.shards.retain(|k, _| k.0 != n));
        self.world.kill(&self.running.borrow()[&n]);
    }

    /// No task of the node runs for a while; its connections stay.
    pub(super) fn pause(&self, n: u8, duration: Duration) {
        self.world.pause(&self.running.borrow()[&n], duration);
    }

    pub(super) fn power_cut(&self, n: u8) {
        registry(|r| r.shards.retain(|k, _| k.0 != n));
        self.world.power_cut(&self.running.borrow()[&n]);
    }

    /// Like a power cut after which the disk has only synced data.
    pub(super) fn power_cut_losing_all(&self, n: u8) {
        registry(|r| r.shards.retain(|k, _| k.0 != n));
        self.world.power_cut_losing_all(&self.running.borrow()[&n]);
    }

    /// How far a node's wall clock is ahead of the others'.
    pub(super) fn set_clock_skew(&self, n: u8, micros: i64) {
        self.world.set_clock_skew(&name(n), micros);
    }

    /// All shards of a running node.
    pub(super) fn all_shards(&self, n: u8) -> Vec<Shard> {
        registry(|r| r.shards.iter().filter(|(k, _)| k.0 == n).map(|(_, s)| s.clone()).collect())
    }

    pub(super) fn is_running(&self, n: u8) -> bool {
        registry(|r| r.shards.keys().any(|k| k.0 == n))
    }

    /// The failure detector's word.
    pub(super) fn set_down(&self, n: u8, is_down: bool) {
        self.set_alive(n, !is_down);
    }

    /// The node acknowledges mutations and does not apply them.
    pub(super) fn lie_at(&self, n: u8) {
        registry(|r| r.liars.insert(n));
    }

    pub(super) fn fill_hints(&self) {
        registry(|r| r.hints_full = true);
    }

    pub(super) fn empty_hints(&self) {
        registry(|r| r.hints_full = false);
    }

    /// When the writes were made that hints are of.
    pub(super) fn hint_times(&self) -> Vec<WallMicros> {
        registry(|r| r.hint_times.clone())
    }

    /// Gives what was kept for replicas to them; they run.
    pub(super) fn deliver_hints(&self) {
        for (_, target, mutation) in registry(|r| std::mem::take(&mut r.hints)) {
            let shard = self.shard(target.0.as_bytes()[0], 0);
            self.run_on(shard, |shard| async move {
                let key = data::MutationRef::open(&mutation).expect("a mutation").key;
                let token = codec::token_of(key);
                let mutation = ReplicaMutation::durable(token, mutation);
                let applied = shard.coordinator.apply(mutation, crate::Origin::Hint).await;
                applied.expect("it is applied");
            });
        }
    }

    pub(super) fn fail_first_flush(&self) {
        registry(|r| r.failing_flushes = 1);
    }

    pub(super) fn hints_flushed(&self) -> usize {
        registry(|r| r.hints_flushed)
    }

    pub(super) fn hints_off(&self) {
        registry(|r| r.no_hints = true);
    }

    /// Returns the targets of the stored hints, in order.
    pub(super) fn hints(&self) -> Vec<HostId> {
        registry(|r| r.hints.iter().map(|(_, host, _)| *host).collect())
    }

    pub(super) fn any_shard(&self, n: u8) -> Shard {
        let shard = self.world.random_u64() % u64::from(self.shards(n));
        self.shard(n, shard as u16)
    }

    pub(super) fn shard(&self, n: u8, shard: u16) -> Shard {
        registry(|r| r.shards[&(n, shard)].clone())
    }

    /// Starts a task on a shard; its result appears in the cell.
    pub(super) fn spawn<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        shard: Shard,
        make: impl FnOnce(Shard) -> F,
    ) -> Rc<RefCell<Option<T>>> {
        let rt = shard.rt.clone();
        dist_testing::spawn_on(&rt, make(shard))
    }

    /// Runs a task on a shard to its end.
    pub(super) fn run_on<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        shard: Shard,
        make: impl FnOnce(Shard) -> F,
    ) -> T {
        let rt = shard.rt.clone();
        dist_testing::run_on(&self.world, &rt, make(shard))
    }

    /// Writes one row through a node.
    pub(super) fn write(
        &self,
        by: u8,
        level: Consistency,
        pk: i32,
        value: &str,
    ) -> Result<(), ReplicatedError> {
        let mutation = table::insert(pk, value, 1_000);
        self.run_on(self.any_shard(by), |shard| async move {
            shard.coordinator.writer().write_replicated(shard.order(level, vec![mutation])).await
        })
    }

    /// Opens the connections from all shards of a node to all shards of the others: writes rows with
    /// negative keys and takes them for nothing.
    pub(super) fn connect(&self, by: u8) {
        for shard in 0..self.shards(by) {
            for pk in 1..=24 {
                let mutation = table::insert(-pk, "connected", 1);
                self.run_on(self.shard(by, shard), |shard| async move {
                    let order = shard.order(Consistency::All, vec![mutation]);
                    shard.coordinator.writer().write_replicated(order).await.unwrap();
                });
            }
        }
    }

    /// All rows of a node, by key.
    pub(super) fn rows(&self, n: u8) -> BTreeMap<i32, String> {
        let rows = self.read(n, table::read_all(table::TABLE));
        let key = |k: &Vec<u8>| i32::from_be_bytes(k.as_slice().try_into().unwrap());
        rows.iter().map(|(k, v)| (key(k), v.clone())).filter(|(k, _)| *k >= 0).collect()
    }

    /// Entries in the batch log of a node.
    pub(super) fn logged(&self, n: u8) -> usize {
        self.read(n, table::read_log()).len()
    }

    fn read(&self, n: u8, command: data::command::ReadCommand) -> BTreeMap<Vec<u8>, String> {
        self.run_on(self.shard(n, 0), |shard| async move {
            let mut found = Collect::default();
            shard.coordinator.read(&command, usize::MAX, &mut found).await.unwrap();
            found.rows
        })
    }

    /// A counter or gauge, summed over the shards of a running node.
    pub(super) fn count_of(&self, n: u8, metric: &str) -> i64 {
        let shards: Vec<Shard> = registry(|r| {
            r.shards.iter().filter(|(k, _)| k.0 == n).map(|(_, s)| s.clone()).collect()
        });
        let of = |s: &Shard| match s.rt.telemetry().snapshot().find(metric).map(|m| &m.value) {
            Some(telemetry::Value::Counter(n)) => *n as i64,
            Some(telemetry::Value::Gauge(n)) => *n,
            other => panic!("{metric}: {other:?}"),
        };
        shards.iter().map(of).sum()
    }

    /// Another schema takes the place of the one in use.
    pub(super) fn set_schema(&self, n: u8, epoch: u64, with_table: bool) {
        let schema = table::schema(&self.options.replication, with_table);
        let shards: Vec<Shard> = registry(|r| {
            r.shards.iter().filter(|(k, _)| k.0 == n).map(|(_, s)| s.clone()).collect()
        });
        for shard in shards {
            let mut next = (*shard.snapshot()).clone();
            next.epoch = Epoch(epoch);
            next.schema = schema.clone();
            shard.coordinator.store().set_schema(schema.clone());
            shard.messaging.set_epoch(Epoch(epoch));
            *shard.snapshot.borrow_mut() = Arc::new(next);
        }
    }

    /// A node learns that another one has left.
    pub(super) fn remove_member(&self, n: u8, gone: u8) {
        for shard in self.all_shards(n) {
            let mut next = (*shard.snapshot()).clone();
            next.epoch = Epoch(next.epoch.0 + 1);
            next.members.remove(&host(gone));
            shard.follow(next);
        }
    }

    /// A node learns that another one has taken over its ranges.
    pub(super) fn finish_joining(&self, n: u8, joined: u8) {
        self.set_state(n, joined, MemberState::Normal);
    }

    /// A node learns that a member is in this state now.
    pub(super) fn set_state(&self, n: u8, of: u8, state: MemberState) {
        for shard in self.all_shards(n) {
            let mut next = (*shard.snapshot()).clone();
            next.epoch = Epoch(next.epoch.0 + 1);
            if let Some(member) = next.members.get_mut(&host(of)) {
                *member = Arc::new(Member { state, ..(**member).clone() });
            }
            shard.learn(next);
        }
    }

    /// A node learns that the table was emptied then.
    pub(super) fn truncate(&self, n: u8, at: WallMicros) {
        self.truncate_table(n, table::TABLE, at);
    }

    /// The node knows of a TRUNCATE that its stores have not carried out yet.
    pub(super) fn truncate_table(&self, n: u8, table: TableId, at: WallMicros) {
        for shard in 0..self.shards(n) {
            let shard = self.shard(n, shard);
            let mut next = (*shard.snapshot()).clone();
            next.epoch = Epoch(next.epoch.0 + 1);
            let truncation = Truncation { truncated_at: at, ..Truncation::default() };
            next.truncations.insert(table, truncation);
            *shard.snapshot.borrow_mut() = Arc::new(next);
        }
    }

    /// A new time UUID.
    pub(super) fn batch_id(&self) -> Uuid {
        let id = self.next_id.get();
        self.next_id.set(id + (1 << 96));
        Uuid::from_u128(id)
    }
}
