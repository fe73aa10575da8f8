//! A coordinator that outruns a replica slows its writers down instead of dropping writes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use cluster::Consistency::{self, All, One};
use dist_testing::{host, name};
use request::WindowSettings;
use rt::sim::LinkOptions;

use super::nodes::{Nodes, Options, millis};
use super::table::insert;
use crate::{ReplicatedError, ReplicationSettings};

/// Above what messaging takes for one peer.
const ROWS: i32 = 20_000;

fn nodes(seed: u64) -> Nodes {
    let options = Options::new(seed);
    let settings = ReplicationSettings {
        // Below the time that writes of these tests have.
        replica_window: WindowSettings { stall: millis(200), ..WindowSettings::default() },
        ..options.settings.clone()
    };
    let nodes = Nodes::start(&Options { nodes: vec![(1, "dc1"); 3], settings, ..options });
    nodes.connect(1);
    nodes
}

/// Limits the link to the third node to 1 MiB per second.
fn thin_link(nodes: &Nodes) {
    let options = LinkOptions { bytes_per_second: Some(1 << 20), ..LinkOptions::default() };
    nodes.world.set_link(&name(1), &name(3), options);
}

struct Outcome {
    result: Result<(), ReplicatedError>,
    took: Duration,
}

type Writes = Vec<Rc<RefCell<Option<Outcome>>>>;

/// Begins writes of rows, all at once.
fn begin(nodes: &Nodes, level: Consistency, rows: std::ops::Range<i32>, source: u64) -> Writes {
    let write = |pk| {
        nodes.spawn(nodes.shard(1, 0), move |shard| async move {
            let mut order = shard.order(level, vec![insert(pk, "some value", 1_000)]);
            let began = shard.rt.now();
            order.deadline = began + Duration::from_secs(60);
            let result = shard.coordinator.writer().write_traced(order, source, None).await;
            Outcome { result, took: shard.rt.now().since(began) }
        })
    };
    rows.map(write).collect()
}

fn all_done(nodes: &Nodes, writes: &Writes) -> Duration {
    nodes.wait_for(|| writes.iter().all(|w| w.borrow().is_some()));
    let mut longest = Duration::ZERO;
    for write in writes {
        let outcome = write.borrow();
        let outcome = outcome.as_ref().unwrap();
        assert!(outcome.result.is_ok(), "{:?}", outcome.result);
        longest = longest.max(outcome.took);
    }
    longest
}

#[test]
fn an_outrun_replica_has_all_rows_soon_after_the_last_answer_and_no_hints() {
    for seed in 0..2 {
        let nodes = nodes(seed);
        thin_link(&nodes);
        all_done(&nodes, &begin(&nodes, One, 0..ROWS, 1));
        nodes.run(300);
        assert_eq!(nodes.hints().len(), 0, "seed {seed}");
        assert_eq!(nodes.rows(3).len(), ROWS as usize, "seed {seed}");
        assert!(nodes.count_of(1, "coordinator_writes_waited_total") > 10_000);
        assert_eq!(nodes.count_of(1, "coordinator_writes_waiting"), 0);
        assert_eq!(nodes.count_of(1, "coordinator_writes_in_flight"), 0);
        assert_eq!(nodes.count_of(1, "coordinator_replica_stalls_total"), 0);
    }
}

#[test]
fn one_that_writes_little_does_not_wait_behind_one_that_writes_much() {
    // INV-backpressure-2.
    let nodes = nodes(3);
    thin_link(&nodes);
    let much = begin(&nodes, One, 0..ROWS, 1);
    nodes.run(400);
    let mut longest = Duration::ZERO;
    for pk in 0..20 {
        let little = begin(&nodes, One, ROWS + pk..ROWS + pk + 1, 2);
        longest = longest.max(all_done(&nodes, &little));
    }
    assert!(much.iter().any(|w| w.borrow().is_none()), "there was no queue");
    assert!(longest < millis(30), "{longest:?}");
    assert!(all_done(&nodes, &much) > Duration::from_secs(1));
}

#[test]
fn a_replica_that_stands_still_holds_nobody_for_long_and_misses_nothing() {
    let nodes = nodes(4);
    let stop = Rc::new(Cell::new(false));
    let (longest, written) = (Rc::new(Cell::new(Duration::ZERO)), Rc::new(Cell::new(0)));
    for n in 0..600 {
        let (stop, longest, written) = (stop.clone(), longest.clone(), written.clone());
        nodes.spawn(nodes.shard(1, 0), move |shard| async move {
            let mut pk = n * 1_000;
            while !stop.get() {
                let order = shard.order(One, vec![insert(pk, "v", 1_000)]);
                let began = shard.rt.now();
                shard.coordinator.writer().write_traced(order, n as u64, None).await.unwrap();
                longest.set(longest.get().max(shard.rt.now().since(began)));
                written.set(written.get() + 1);
                pk += 1;
                shard.rt.sleep(millis(20)).await;
            }
        });
    }
    nodes.run(300);
    nodes.pause(3, Duration::from_secs(5));
    nodes.run(1_000);
    let soon = written.get();
    nodes.run(4_000);
    assert!(written.get() - soon > 60_000, "{soon} {}: clients stand still too", written.get());
    nodes.run(1_000);
    // The bound, and the time of a write to the others.
    assert!(longest.get() < millis(300), "{:?}", longest.get());
    assert!(nodes.count_of(1, "coordinator_writes_rerouted_total") > 10_000);
    let hinted = nodes.hints().len();
    nodes.run(500);
    assert_eq!(nodes.hints().len(), hinted, "it is back");
    stop.set(true);
    nodes.run(1_000);
    assert!(nodes.hints().iter().all(|to| *to == host(3)));
    nodes.deliver_hints();
    assert_eq!(nodes.rows(3).len(), written.get());
    assert_eq!(nodes.rows(2).len(), written.get());
}

#[test]
fn a_level_that_needs_a_replica_waits_for_it_to_its_end() {
    let nodes = nodes(5);
    nodes.pause(3, Duration::from_secs(3));
    let few = begin(&nodes, One, 0..2_000, 1);
    nodes.run(1_000);
    assert_eq!(nodes.count_of(1, "coordinator_replica_stalls_total"), 1);
    let needing = begin(&nodes, All, 10_000..10_010, 1);
    all_done(&nodes, &needing);
    all_done(&nodes, &few);
    assert!(nodes.world.now() >= stdx::Instant(3_000_000_000));
}
