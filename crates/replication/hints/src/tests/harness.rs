//! Nodes for tests, what was stored and received, and the checks on that.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::{ClusterSnapshot, Member};
use data::{MutationBuilder, MutationRef};
pub(super) use dist_testing::{PORT, host, name};
use dist_testing::{identity, serve};
use internode::{ErrorReply, Hint, Verb};
use messaging::{Handler, Messaging, MessagingMesh, Peer, Request, Responder, Settings};
use rt::Rt;
use rt::sim::{SimNode, World, WorldOptions};
use schema::{Schema, Table, TableKind, TableOptions};
use stdx::{HostId, TableId, Uuid};

use crate::*;

pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);
/// `gc_grace_seconds` is ten days.
pub(super) const TABLE: TableId = TableId(Uuid::from_u128(0x71));
/// `gc_grace_seconds` is 60.
pub(super) const SHORT: TableId = TableId(Uuid::from_u128(0x72));
/// `gc_grace_seconds` is 0.
pub(super) const ZERO: TableId = TableId(Uuid::from_u128(0x73));

fn table(id: TableId, gc_grace_seconds: i32) -> Table {
    Table {
        id,
        keyspace: "ks".into(),
        name: format!("t{}", id.0.as_u128()).into(),
        kind: TableKind::Regular,
        columns: vec![],
        partition_key_count: 0,
        clustering_count: 0,
        static_count: 0,
        options: TableOptions { gc_grace_seconds, ..TableOptions::default() },
        dropped: BTreeMap::new(),
        masks: BTreeMap::new(),
        indexes: Default::default(),
        version: 1,
        next_column_id: 0,
    }
}

fn member(n: u8) -> Member {
    let address = SocketAddr::from(([127, 0, 0, n], PORT));
    Member { datacenter: format!("dc{}", n % 2), ..dist_testing::member(n, address) }
}

/// The cluster of those nodes as n1 sees it. Even nodes are in dc0, odd ones in dc1.
pub(super) fn snapshot(nodes: &[u8]) -> ClusterSnapshot {
    let tables = [(TABLE, 864_000), (SHORT, 60), (ZERO, 0)];
    let tables_by_id = tables.iter().map(|(id, gc)| (*id, Arc::new(table(*id, *gc)))).collect();
    let members = nodes.iter().map(|n| member(*n)).collect();
    let schema = Arc::new(Schema { tables_by_id, ..Schema::default() });
    dist_testing::snapshot(1, members, schema)
}

/// A mutation of a partition, identified by its number.
pub(super) fn mutation_of(table: TableId, partition: u8, number: u64, extra: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut key = vec![partition];
    // The length of a key is the length of the mutation.
    key.resize(1 + extra, partition);
    MutationBuilder::new(&mut out, table, number, &key).finish();
    out
}

pub(super) fn mutation(partition: u8, number: u64) -> Vec<u8> {
    mutation_of(TABLE, partition, number, 40)
}

pub(super) fn settings() -> HintsSettings {
    HintsSettings {
        file_bytes_max: 1024,
        flush_period: Duration::from_secs(1),
        throttle_bytes_per_second: 0,
        disk_free_bytes_min: 0,
        ..HintsSettings::new("hints")
    }
}

/// Events over all lives of all nodes.
#[derive(Default)]
pub(super) struct Facts {
    /// (partition, number) that `store` took, in order.
    pub(super) stored: Vec<(u8, u64)>,
    /// Numbers that a flush confirmed.
    pub(super) confirmed: BTreeSet<u64>,
    /// (partition, number) as they arrived, with the node they were meant for.
    pub(super) received: Vec<(u8, u64)>,
    pub(super) targets: BTreeSet<HostId>,
    /// How many of the next hints are answered with an error or not at all, and how.
    pub(super) refuse: u64,
    pub(super) refusal: Option<ErrorReply>,
    /// Hints are not answered, but kept here.
    pub(super) hold: bool,
    pub(super) held: Vec<(HostId, Responder)>,
    /// Hints with these numbers are refused as invalid.
    pub(super) invalid: BTreeSet<u64>,
}

pub(super) type SharedFacts = Rc<RefCell<Facts>>;

/// Every confirmed hint arrived, only stored ones did, and those of a partition first in order.
pub(super) fn check(facts: &Facts) -> Result<(), String> {
    let mut first: Vec<(u8, u64)> = Vec::new();
    for one in &facts.received {
        if !facts.stored.contains(one) {
            return Err(format!("{one:?} was received and never stored"));
        }
        if !first.contains(one) {
            first.push(*one);
        }
    }
    let arrived: BTreeSet<u64> = first.iter().map(|(_, n)| *n).collect();
    if let Some(lost) = facts.confirmed.iter().find(|n| !arrived.contains(n)) {
        return Err(format!("hint {lost} was confirmed and never received"));
    }
    for (i, (partition, number)) in first.iter().enumerate() {
        let earlier = |(p, n): &(u8, u64)| p == partition && n > number;
        if let Some((_, n)) = first.iter().take(i).find(|e| earlier(e)) {
            return Err(format!("partition {partition}: hint {n} arrived before {number}"));
        }
    }
    Ok(())
}

struct Receiver(SharedFacts);

impl Handler for Receiver {
    fn handle(&self, request: Request<'_>, responder: Responder) {
        if request.verb != Verb::Hint {
            return responder.fail(&ErrorReply::UnknownVerb(request.verb.number()));
        }
        let hint = Hint::decode(request.payload).unwrap();
        let mutation = MutationRef::open(hint.bytes).unwrap();
        let number = mutation.schema_version;
        let mut facts = self.0.borrow_mut();
        if facts.invalid.contains(&number) {
            return responder.fail(&ErrorReply::Invalid("never".to_owned()));
        }
        if facts.refuse > 0 {
            facts.refuse -= 1;
            match &facts.refusal {
                Some(error) => responder.fail(error),
                None => drop(responder),
            }
            return;
        }
        if facts.hold {
            facts.held.push((hint.target, responder));
            return;
        }
        facts.targets.insert(hint.target);
        facts.received.push((mutation.key[0], number));
        responder.respond(|_| {});
    }
}

pub(super) struct TestNode {
    pub(super) node: SimNode,
    pub(super) rt: Rt,
    pub(super) hints: Rc<RefCell<Option<Hints>>>,
    pub(super) snapshot: Rc<RefCell<Arc<ClusterSnapshot>>>,
}

impl TestNode {
    pub(super) fn hints(&self) -> Hints {
        self.hints.borrow().clone().unwrap()
    }

    /// Runs a task on the node to its end.
    pub(super) fn run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        world: &World,
        task: impl FnOnce(Rt, Hints) -> F,
    ) -> T {
        dist_testing::run_on(world, &self.rt, task(self.rt.clone(), self.hints()))
    }
}

pub(super) struct Cluster {
    pub(super) world: World,
    pub(super) facts: SharedFacts,
    pub(super) nodes: BTreeMap<u8, TestNode>,
    pub(super) settings: HintsSettings,
    pub(super) members: Vec<u8>,
    /// Id of the key that nodes have, if any.
    pub(super) keys: Option<&'static str>,
    next: Cell<u64>,
    /// Hints stored before this life of n1: what was not confirmed of them may be lost.
    earlier: Cell<usize>,
}

impl Cluster {
    /// n1 keeps hints, the others receive. None is started.
    pub(super) fn new(seed: u64, members: &[u8], settings: HintsSettings) -> Cluster {
        Cluster {
            world: World::new(seed, WorldOptions::default()),
            facts: Rc::default(),
            nodes: BTreeMap::new(),
            settings,
            members: members.to_vec(),
            keys: None,
            next: Cell::new(1),
            earlier: Cell::new(0),
        }
    }

    /// n1 and n2, both running.
    pub(super) fn pair(seed: u64, settings: HintsSettings) -> Cluster {
        let mut cluster = Cluster::new(seed, &[1, 2], settings);
        cluster.start(1);
        cluster.start(2);
        cluster
    }

    /// Starts a node and waits until its hints are open, or it died.
    pub(super) fn start(&mut self, n: u8) {
        self.begin(n);
        let (open, node) = {
            let started = &self.nodes[&n];
            (started.hints.clone(), started.node.clone())
        };
        let ready = || open.borrow().is_some() || !self.world.is_alive(&node);
        self.world.run_until(ready, Duration::from_secs(60)).unwrap();
    }

    pub(super) fn begin(&mut self, n: u8) {
        if n == 1 {
            self.earlier.set(self.facts.borrow().stored.len());
        }
        let facts = self.facts.clone();
        let seen = Rc::new(RefCell::new(Arc::new(snapshot(&self.members))));
        let of_parts = seen.clone();
        let address = |k: &u8| SocketAddr::new(self.world.ip(&name(*k)), PORT);
        let peers: Vec<_> = self.members.iter().map(|k| (host(*k), address(k))).collect();
        let settings = self.settings.clone();
        let hints: Rc<RefCell<Option<Hints>>> = Rc::default();
        let out = hints.clone();
        let made: Rc<RefCell<Option<Rt>>> = Rc::default();
        let of_rt = made.clone();
        let keys = self.keys.map(|id| {
            let line = at_rest::generated_line(id, [id.as_bytes()[0]; 32]).unwrap();
            Arc::new(at_rest::parse_keys(&line).unwrap().ring)
        });
        let node = self.world.client(&name(n), move |rt| {
            rt.set_file_keys(keys);
            *of_rt.borrow_mut() = Some(rt.clone());
            async move {
                let identity = identity(n, rt.random_u64(), 1);
                let mesh = Arc::new(MessagingMesh::new(1));
                let of_messaging = Settings {
                    backoff_max: Duration::from_millis(500),
                    keepalive_interval: Duration::from_millis(500),
                    keepalive_timeout: Duration::from_millis(1500),
                    ..Settings::default()
                };
                let messaging = Messaging::new(&rt, identity, Arc::new(of_messaging), mesh);
                for (host, address) in peers {
                    messaging.set_peer(host, Peer { address, shard_count: 1 });
                }
                serve(&rt, &messaging, Rc::new(Receiver(facts))).await;
                loop {
                    let seen = of_parts.clone();
                    let snapshot = Rc::new(move || seen.borrow().clone());
                    let parts = HintsParts { messaging: messaging.clone(), snapshot };
                    if let Ok(hints) = Hints::open(&rt, parts, settings.clone()).await {
                        *out.borrow_mut() = Some(hints);
                        break;
                    }
                    rt.sleep(Duration::from_millis(10)).await;
                }
                rt.stop_requested().await;
            }
        });
        let rt = made.take().unwrap();
        self.nodes.insert(n, TestNode { node, rt, hints, snapshot: seen });
    }

    pub(super) fn sender(&self) -> Hints {
        self.nodes[&1].hints()
    }

    /// Stores one hint for n2; whether it was taken.
    pub(super) fn store(&self, partition: u8) -> bool {
        self.store_in(TABLE, partition)
    }

    pub(super) fn store_in(&self, table: TableId, partition: u8) -> bool {
        let number = self.next.get();
        self.next.set(number + 1);
        let bytes = mutation_of(table, partition, number, 40);
        let taken = self.sender().store(host(2), &bytes, self.nodes[&1].rt.wall());
        if taken {
            self.facts.borrow_mut().stored.push((partition, number));
        }
        taken
    }

    pub(super) fn flush(&self) -> Result<(), HintsError> {
        let stored = self.facts.borrow().stored.clone();
        let before = stored.iter().skip(self.earlier.get()).map(|(_, n)| *n);
        let result = self.nodes[&1].run(&self.world, |_, hints| async move { hints.flush().await });
        if result.is_ok() {
            self.facts.borrow_mut().confirmed.extend(before);
        }
        result
    }

    /// Stores hints for n2 of three partitions and confirms them.
    pub(super) fn store_many(&self, count: u8) {
        for i in 0..count {
            assert!(self.store(i % 3));
        }
        self.flush().unwrap();
    }

    pub(super) fn run(&self, millis: u64) {
        self.world.run_for(Duration::from_millis(millis));
    }

    /// Waits until n1 keeps nothing any more.
    pub(super) fn until_delivered(&self) {
        let hints = self.sender();
        let empty = || hints.pending().is_empty();
        if self.world.run_until(empty, Duration::from_secs(3600)).is_err() {
            panic!("still pending: {:?}", hints.pending());
        }
    }

    pub(super) fn files(&self) -> Vec<String> {
        let files = self.world.disk("n1").list();
        files.into_iter().filter(|f| f.contains("helenus-hints-")).collect()
    }

    pub(super) fn hint_files(&self) -> Vec<String> {
        self.files().into_iter().filter(|f| f.ends_with(".hints")).collect()
    }

    pub(super) fn received(&self) -> usize {
        self.facts.borrow().received.len()
    }

    pub(super) fn counter(&self, name: &str, reason: &str) -> u64 {
        let snapshot = self.nodes[&1].rt.telemetry().snapshot();
        let labels = |m: &telemetry::Metric| match reason {
            "" => m.labels.is_empty(),
            reason => m.labels.iter().any(|(_, v)| v == reason),
        };
        let metric = snapshot.metrics.into_iter().find(|m| m.name == name && labels(m));
        match metric.map(|m| m.value) {
            Some(telemetry::Value::Counter(n)) => n,
            other => panic!("{name} {reason}: {other:?}"),
        }
    }
}
