//! A simulated world of numbered nodes, and how a test drives it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::net::SocketAddr;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use data::MutationRef;
use rt::sim::{SimNode, World, WorldOptions};
use rt::{Group, NodeSpec, Rt};
use stdx::{HostId, ShardMap};
use store::Store;

use crate::{PORT, Random, host, name};

/// The node that has everything and belongs to no cluster; of one shard.
pub const ORACLE: u8 = 0;

/// Longest wait of a test, in virtual time.
const PATIENCE: Duration = Duration::from_secs(3600);

thread_local! {
    // Nodes held for dead: a world runs on the thread of its test, and a node's main function may
    // not capture what is not `Send`.
    static DOWN: RefCell<BTreeSet<HostId>> = RefCell::default();
}

/// The failure detector's word, which [`Ground::set_alive`] gives.
pub fn is_alive() -> Rc<dyn Fn(HostId) -> bool> {
    Rc::new(|host| DOWN.with(|down| !down.borrow().contains(&host)))
}

/// Starts a task on a shard; its result appears in the cell.
pub fn spawn_on<T: 'static>(
    rt: &Rt,
    future: impl Future<Output = T> + 'static,
) -> Rc<RefCell<Option<T>>> {
    let result: Rc<RefCell<Option<T>>> = Rc::default();
    let out = result.clone();
    let task = async move {
        let value = future.await;
        *out.borrow_mut() = Some(value);
    };
    rt.gate("test").spawn(rt, Group::Admin, "test", task).expect("the shard runs");
    result
}

/// Runs a task on a shard to its end.
pub fn run_on<T: 'static>(world: &World, rt: &Rt, future: impl Future<Output = T> + 'static) -> T {
    let result = spawn_on(rt, future);
    world.run_until(|| result.borrow().is_some(), PATIENCE).expect("the task ends");
    result.take().expect("it ended")
}

/// A world with nodes n1, n2, ….
pub struct Ground {
    /// The world.
    pub world: World,
    /// Source of the test's choices.
    pub random: RefCell<Random>,
    shards: Vec<u16>,
}

impl Ground {
    /// Creates a world for nodes with so many shards; none is started, and none is marked as dead.
    pub fn new(seed: u64, shards: Vec<u16>, options: WorldOptions) -> Ground {
        DOWN.with(|down| down.borrow_mut().clear());
        let random = RefCell::new(Random(seed ^ 0x5eed));
        Ground { world: World::new(seed, options), random, shards }
    }

    /// Returns the addresses on which the nodes listen for each other, in their order.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let address = |n| SocketAddr::new(self.world.ip(&name(n)), PORT);
        (1..=self.count()).map(address).collect()
    }

    /// Starts a node.
    pub fn start_node<F: Future<Output = ()> + 'static>(
        &self,
        n: u8,
        shards: u16,
        main: impl Fn(Rt) -> F + Send + Sync + 'static,
    ) -> SimNode {
        let spec = NodeSpec { name: name(n), shards, work_dir: format!("/{}", name(n)) };
        let main = move |rt| -> Pin<Box<dyn Future<Output = ()>>> { Box::pin(main(rt)) };
        self.world.start_node(spec, Arc::new(main))
    }

    /// Runs until a condition holds; at most a minute.
    pub fn wait_for(&self, condition: impl Fn() -> bool) {
        self.world.run_until(condition, Duration::from_secs(60)).expect("within a minute");
    }

    /// Runs for so many milliseconds.
    pub fn run(&self, ms: u64) {
        self.world.run_for(Duration::from_millis(ms));
    }

    /// A number in 0..n.
    pub fn below(&self, n: usize) -> usize {
        self.random.borrow_mut().below(n as u64) as usize
    }

    /// Any node.
    pub fn any(&self) -> u8 {
        1 + u8::try_from(self.below(self.shards.len())).expect("few nodes")
    }

    /// The number of nodes, which is that of the last one.
    pub fn count(&self) -> u8 {
        u8::try_from(self.shards.len()).expect("few nodes")
    }

    /// The number of shards of a node.
    pub fn shards(&self, n: u8) -> u16 {
        self.shards[usize::from(n) - 1]
    }

    /// The number of shards of all nodes.
    pub fn all_shards(&self) -> usize {
        self.shards.iter().map(|s| usize::from(*s)).sum()
    }

    /// The failure detector's word.
    pub fn set_alive(&self, n: u8, alive: bool) {
        DOWN.with(|down| {
            let mut down = down.borrow_mut();
            if alive { down.remove(&host(n)) } else { down.insert(host(n)) }
        });
    }

    /// Cuts the link between two nodes.
    pub fn cut(&self, a: u8, b: u8) {
        self.world.partition(&name(a), &name(b));
    }

    /// Sets the latency of messages from one node to another.
    pub fn set_latency(&self, from: u8, to: u8, micros: Range<u64>) {
        self.world.set_latency(&name(from), &name(to), micros);
    }
}

/// Nodes with stores that a test can write to directly.
pub trait Replicas {
    /// The world.
    fn ground(&self) -> &Ground;

    /// One shard of a running node, or of the oracle.
    fn replica(&self, n: u8, shard: u16) -> (Rt, Store);

    /// Applies mutations on one node only, as if the others had missed them.
    fn apply(&self, n: u8, mutations: Vec<Vec<u8>>) {
        let shards = if n == ORACLE { 1 } else { self.ground().shards(n) };
        let mut of_shards: Vec<Vec<Vec<u8>>> = vec![Vec::new(); usize::from(shards)];
        for mutation in mutations {
            let opened = MutationRef::open(&mutation).expect("an encoded mutation");
            let map = ShardMap::ByTokenHash { shards };
            let shard = map.shard_of(opened.table, codec::token_of(opened.key));
            of_shards[usize::from(shard.0)].push(mutation);
        }
        for (shard, mutations) in (0..).zip(of_shards).filter(|(_, m)| !m.is_empty()) {
            let (rt, store) = self.replica(n, shard);
            run_on(&self.ground().world, &rt, async move {
                for mutation in mutations {
                    let mutation = MutationRef::open(&mutation).expect("an encoded mutation");
                    store.apply(&mutation, true).expect("it is applied");
                }
                store.commit().await.expect("it is logged");
            });
        }
    }

    /// Applies a mutation on these nodes and on the oracle.
    fn write(&self, to: &[u8], mutation: &[u8]) {
        for n in to.iter().chain([&ORACLE]) {
            self.apply(*n, vec![mutation.to_vec()]);
        }
    }

    /// Writes what `plan` gives: each mutation with the nodes that get it. The oracle gets all.
    fn write_all(&self, plan: &[(Vec<u8>, Vec<u8>)]) {
        for n in ORACLE..=self.ground().count() {
            let gets = |to: &[u8]| n == ORACLE || to.contains(&n);
            let mine = plan.iter().filter(|(_, to)| gets(to)).map(|(m, _)| m.clone());
            self.apply(n, mine.collect());
        }
    }

    /// Flushes all shards of a node.
    fn flush(&self, n: u8) {
        for shard in 0..self.ground().shards(n) {
            let (rt, store) = self.replica(n, shard);
            let flush = async move { store.flush(None).await.expect("it is flushed") };
            run_on(&self.ground().world, &rt, flush);
        }
    }
}
