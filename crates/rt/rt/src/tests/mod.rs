//! The same test functions on both worlds, then what only one of them has.

mod both;
mod handshakes;
mod native;
mod network;
mod service;
mod sim;
mod small_file;
mod sync;
mod tls;

use crate::sim::{World, WorldOptions};
use crate::{IoBackend, Machine, Main, NativeOptions, NodeSpec, Rt};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

type Boxed = Pin<Box<dyn Future<Output = ()>>>;

/// INV-rt-4: a handle of a shard, and so a future that holds one, cannot be sent to another thread. Does not compile
/// when `Rt` becomes `Send`: then both impls apply.
const _: () = {
    trait NotSend<Marker> {
        const HOLDS: () = ();
    }
    struct IsSend;
    impl<T: ?Sized> NotSend<()> for T {}
    impl<T: ?Sized + Send> NotSend<IsSend> for T {}
    // INV-native-3: the same of what a shard stands on.
    let () = <rt_native::Env as NotSend<_>>::HOLDS;
    <Rt as NotSend<_>>::HOLDS
};

/// Asks the node to stop also when the test panics, so that its other shards end.
struct StopOnDrop(Rt);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.request_stop();
    }
}

fn main_of(test: impl Fn(Rt) -> Boxed + Send + Sync + 'static) -> Main {
    Arc::new(move |rt| {
        let inner = test(rt.clone());
        Box::pin(async move {
            if rt.shard().0 == 0 {
                let stop = StopOnDrop(rt);
                inner.await;
                drop(stop);
            } else {
                inner.await;
                rt.stop_requested().await;
            }
        })
    })
}

fn natively(io: IoBackend, shards: u16, main: Main) {
    let dir = tempfile::tempdir().unwrap();
    let work_dir = dir.path().to_str().unwrap().to_string();
    let machine = Machine::native(NativeOptions { cpuset: None, io });
    let running = machine.start(NodeSpec { name: "test".to_string(), shards, work_dir }, main);
    running.join().unwrap();
}

fn simulated(seed: u64, shards: u16, main: Main) -> World {
    let world = World::new(seed, WorldOptions::default());
    let spec = NodeSpec { name: "n1".to_string(), shards, work_dir: "/data".to_string() };
    let node = world.start_node(spec, main);
    let ended = world.clone();
    let result = world.run_until(|| !ended.is_alive(&node), Duration::from_secs(600));
    result.unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
    world
}

/// Runs `test` on every shard: natively with both file backends, and simulated with some seeds. The
/// node is asked to stop when shard 0 is done. The same code has to pass on both machines (INV-rt-1).
fn on_both(shards: u16, test: impl Fn(Rt) -> Boxed + Send + Sync + Clone + 'static) {
    for io in [IoBackend::Auto, IoBackend::Threads] {
        natively(io, shards, main_of(test.clone()));
    }
    for seed in 0..5 {
        simulated(seed, shards, main_of(test.clone()));
    }
}

/// Like [`on_both`], for state that is created again for each run.
fn on_both_with<T: Clone + Send + Sync + 'static>(
    shards: u16,
    make: impl Fn() -> T,
    test: fn(Rt, T) -> Boxed,
) {
    let with = || {
        let state = make();
        main_of(move |rt| test(rt, state.clone()))
    };
    for io in [IoBackend::Auto, IoBackend::Threads] {
        natively(io, shards, with());
    }
    for seed in 0..5 {
        simulated(seed, shards, with());
    }
}

/// Runs one client task in a fresh world until it is done.
fn in_world<F: Future<Output = ()> + 'static>(world: &World, name: &str, f: impl FnOnce(Rt) -> F) {
    let done = Rc::new(std::cell::Cell::new(false));
    let mine = Rc::clone(&done);
    world.client(name, move |rt| {
        let body = f(rt);
        async move {
            body.await;
            mine.set(true);
        }
    });
    world.run_until(|| done.get(), Duration::from_secs(600)).unwrap();
}
