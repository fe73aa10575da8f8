//! Helpers shared by the tests of this crate.

use cluster::ClusterSnapshot;
pub(crate) use dist_testing::loopback::member;
use rt::Rt;
use rt::sim::{World, WorldOptions};
use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

/// A cluster of members 1 to `n`, as the first of them sees it.
pub(crate) fn several_members(n: u8) -> ClusterSnapshot {
    dist_testing::loopback::several_members(n, &cql_plan::system::system_schema())
}

/// Runs `main` as the only shard of a node.
pub(crate) fn run<F: Future<Output = ()> + 'static>(main: impl FnOnce(Rt) -> F + 'static) {
    let world = World::new(11, WorldOptions::default());
    let done = Rc::new(Cell::new(false));
    let seen = done.clone();
    world.client("n1", move |rt| async move {
        main(rt).await;
        seen.set(true);
    });
    world.run_until(|| done.get(), Duration::from_secs(3600)).unwrap();
}
