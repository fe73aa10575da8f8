//! Every reason to refuse a hint, each beside the nearest case that is taken.

use std::time::Duration;

use super::harness::*;
use crate::policy::*;
use crate::*;

fn situation() -> Situation<'static> {
    Situation {
        is_peer: true,
        datacenter: "dc0",
        down_for: None,
        oldest_age: None,
        host_bytes: 0,
        total_bytes: 0,
        buffered_bytes: 0,
        disk_full: false,
        closed: false,
        shards: 2,
    }
}

#[test]
fn each_reason_refuses_and_the_nearest_case_does_not() {
    let settings = HintsSettings {
        host_bytes_max: 1000,
        total_bytes_max: 4000,
        buffer_bytes_max: 100,
        window: Duration::from_secs(60),
        disabled_datacenters: ["dc1".to_owned()].into(),
        ..settings()
    };
    let with = |change: fn(&mut Situation<'_>)| {
        let mut now = situation();
        change(&mut now);
        may_hint(&settings, &now)
    };
    let second = Duration::from_secs(1);
    assert_eq!(with(|_| ()), Ok(()));
    assert_eq!(with(|s| s.closed = true), Err(Refusal::Closed));
    assert_eq!(with(|s| s.is_peer = false), Err(Refusal::NoPeer));
    assert_eq!(with(|s| s.datacenter = "dc1"), Err(Refusal::DatacenterDisabled));
    assert_eq!(with(|s| s.down_for = Some(Duration::from_secs(60))), Ok(()));
    assert_eq!(with(|s| s.down_for = Some(Duration::from_secs(61))), Err(Refusal::PastWindow));
    assert_eq!(with(|s| s.oldest_age = Some(Duration::from_secs(60))), Ok(()));
    assert_eq!(with(|s| s.oldest_age = Some(Duration::from_secs(61))), Err(Refusal::PastWindow));
    // Bounds are shared by two shards.
    assert_eq!(with(|s| s.host_bytes = 499), Ok(()));
    assert_eq!(with(|s| s.host_bytes = 500), Err(Refusal::HostFull));
    assert_eq!(with(|s| s.total_bytes = 1999), Ok(()));
    assert_eq!(with(|s| s.total_bytes = 2000), Err(Refusal::TotalFull));
    assert_eq!(with(|s| s.buffered_bytes = 49), Ok(()));
    assert_eq!(with(|s| s.buffered_bytes = 50), Err(Refusal::BufferFull));
    assert_eq!(with(|s| s.disk_full = true), Err(Refusal::DiskFull));
    let off = HintsSettings { enabled: false, ..settings.clone() };
    assert_eq!(may_hint(&off, &situation()), Err(Refusal::Disabled));
    let old = Situation { oldest_age: Some(second * 61), ..situation() };
    let forgetful = HintsSettings { window_persistent: false, ..settings.clone() };
    assert_eq!(may_hint(&forgetful, &old), Ok(()));
    let unbounded = HintsSettings { host_bytes_max: 0, ..settings };
    let much = Situation { host_bytes: 1 << 40, ..situation() };
    assert_eq!(may_hint(&unbounded, &much), Ok(()));
}

#[test]
fn who_is_no_peer_gets_no_hints_and_useless_writes_are_not_kept() {
    let cluster = Cluster::pair(1, settings());
    let hints = cluster.sender();
    assert!(hints.may_hint(host(2)));
    assert!(!hints.may_hint(host(1)) && !hints.may_hint(host(9)));
    assert_eq!(cluster.counter("hints_refused_total", "no_peer"), 2);
    assert!(!cluster.store_in(ZERO, 1));
    assert!(!cluster.store_in(stdx::TableId(stdx::Uuid::from_u128(99)), 1));
    assert!(!hints.store(host(2), b"no mutation", cluster.nodes[&1].rt.wall()));
    assert_eq!(cluster.counter("hints_refused_total", "pointless"), 3);
    let wall = cluster.nodes[&1].rt.wall();
    let fits = 1024 - 64 - 28 - mutation_of(TABLE, 1, 1, 0).len() - 1;
    assert!(hints.store(host(2), &mutation_of(TABLE, 1, 1, fits), wall));
    assert!(!hints.store(host(2), &mutation_of(TABLE, 1, 1, fits + 1), wall));
    assert_eq!(cluster.counter("hints_refused_total", "too_large"), 1);
    cluster.nodes[&1].run(&cluster.world, |_, hints| async move { hints.flush().await }).unwrap();
    assert_eq!(hints.pending()[0].bytes, 1024);
}

#[test]
fn the_window_runs_from_when_the_replica_went_down_and_over_a_restart() {
    let settings = HintsSettings { window: Duration::from_secs(3600), ..settings() };
    let mut cluster = Cluster::pair(2, settings);
    let hints = cluster.sender();
    hints.set_down(host(2), cluster.nodes[&1].rt.now());
    cluster.run(1_800_000);
    // Reported again: the first time counts.
    hints.set_down(host(2), cluster.nodes[&1].rt.now());
    assert!(cluster.store(1));
    cluster.flush().unwrap();
    cluster.run(1_801_000);
    assert!(!cluster.store(1));
    let node = cluster.nodes[&1].node.clone();
    cluster.world.kill(&node);
    cluster.start(1);
    // The new life has not heard since when; the oldest hint is 30 minutes old.
    assert!(cluster.store(1));
    cluster.run(1_801_000);
    assert!(!cluster.store(1));
    assert_eq!(cluster.counter("hints_refused_total", "past_window"), 1);
    cluster.sender().set_up(host(2));
    cluster.until_delivered();
    assert!(cluster.store(1), "the window begins anew when all are delivered");
}

#[test]
fn a_full_buffer_refuses_until_it_is_written_and_a_half_full_one_is_written_early() {
    let slow = HintsSettings {
        buffer_bytes_max: 1000,
        flush_period: Duration::from_secs(3600),
        ..settings()
    };
    let cluster = Cluster::pair(3, slow);
    cluster.run(10);
    let mut taken = 0;
    while cluster.store(1) {
        taken += 1;
    }
    assert!(taken > 5, "{taken}");
    assert_eq!(cluster.counter("hints_refused_total", "buffer_full"), 1);
    cluster.run(1000);
    assert_eq!(cluster.hint_files().len(), 2, "written long before the period ends");
    assert!(cluster.store(1));
}

#[test]
fn a_full_disk_refuses_hints_and_loses_none_that_was_taken() {
    let cluster = Cluster::pair(4, settings());
    cluster.store_many(3);
    cluster.world.disk("n1").set_free_bytes(Some(100));
    for i in 0..3 {
        assert!(cluster.store(i));
    }
    assert!(matches!(cluster.flush(), Err(HintsError::DiskFull(_))));
    assert!(!cluster.sender().may_hint(host(2)));
    assert_eq!(cluster.counter("hints_refused_total", "disk_full"), 1);
    cluster.run(5000);
    assert!(!cluster.store(1));
    cluster.world.disk("n1").set_free_bytes(None);
    cluster.run(1500);
    assert!(cluster.store(1));
    cluster.flush().unwrap();
    cluster.sender().set_up(host(2));
    cluster.until_delivered();
    assert_eq!(cluster.received(), 7);
    check(&cluster.facts.borrow()).unwrap();
}

#[test]
fn some_room_stays_free_on_the_disk() {
    let settings = HintsSettings { disk_free_bytes_min: 1000, ..settings() };
    let cluster = Cluster::pair(5, settings);
    cluster.world.disk("n1").set_free_bytes(Some(1050));
    assert!(cluster.store(1));
    assert!(matches!(cluster.flush(), Err(HintsError::DiskFull(_))));
    assert_eq!(cluster.hint_files().len(), 0);
    cluster.world.disk("n1").set_free_bytes(Some(1100));
    cluster.flush().unwrap();
    assert_eq!(cluster.hint_files().len(), 1);
}

/// INV-hints-3.
#[test]
fn bounds_on_files_refuse_and_delivery_makes_room() {
    let settings = HintsSettings { host_bytes_max: 3000, ..settings() };
    let cluster = Cluster::pair(6, settings);
    while cluster.store(1) {
        cluster.flush().unwrap();
    }
    assert_eq!(cluster.counter("hints_refused_total", "host_full"), 1);
    let bytes = cluster.sender().pending()[0].bytes;
    assert!((3000..3200).contains(&bytes), "{bytes}");
    let on_disk: usize =
        cluster.hint_files().iter().map(|f| cluster.world.disk("n1").read(f).unwrap().len()).sum();
    assert_eq!(on_disk as u64, bytes);
    cluster.sender().set_up(host(2));
    cluster.until_delivered();
    assert!(cluster.store(1));
}

#[test]
fn settings_that_cannot_be_used_are_refused_by_name() {
    let refused = |settings: HintsSettings| match settings.check() {
        Err(HintsError::Setting { name, .. }) => name,
        other => panic!("{other:?}"),
    };
    assert!(settings().check().is_ok() && HintsSettings::new("hints").check().is_ok());
    let large = HintsSettings { file_bytes_max: (2 << 30) + 1, ..settings() };
    assert_eq!(refused(large), "max_hints_file_size");
    let none = HintsSettings { flush_period: Duration::ZERO, ..settings() };
    assert_eq!(refused(none), "hints_flush_period");
    let none = HintsSettings { deliveries_max: 0, ..settings() };
    assert_eq!(refused(none), "max_hints_delivery_threads");
}
