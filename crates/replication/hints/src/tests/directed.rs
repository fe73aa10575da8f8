//! One thing at a time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::Truncation;
use internode::ErrorReply;

use super::harness::*;
use crate::*;

#[test]
fn what_a_replica_missed_reaches_it_when_it_is_up_and_the_files_go() {
    let cluster = Cluster::pair(1, settings());
    cluster.store_many(50);
    assert!(cluster.hint_files().len() > 4);
    cluster.run(30_000);
    assert_eq!(cluster.received(), 0, "nobody said that it is up");
    cluster.sender().set_up(host(2));
    cluster.until_delivered();
    check(&cluster.facts.borrow()).unwrap();
    assert_eq!(cluster.received(), 50);
    assert_eq!(cluster.counter("hints_delivered_total", ""), 50);
    assert_eq!(cluster.files(), Vec::<String>::new());
    // It is up: later ones follow with the period.
    cluster.store(1);
    cluster.until_delivered();
    assert_eq!(cluster.received(), 51);
}

#[test]
fn hints_in_memory_are_delivered_too_and_the_period_makes_them_durable() {
    let mut cluster = Cluster::pair(2, settings());
    cluster.store(1);
    cluster.sender().set_up(host(2));
    cluster.until_delivered();
    assert_eq!(cluster.received(), 1);
    cluster.sender().set_down(host(2), cluster.nodes[&1].rt.now());
    cluster.store(1);
    cluster.run(1500);
    let node = cluster.nodes[&1].node.clone();
    cluster.world.power_cut_losing_all(&node);
    cluster.start(1);
    cluster.sender().set_up(host(2));
    cluster.until_delivered();
    assert_eq!(cluster.received(), 2);
}

#[test]
fn acknowledged_hints_are_not_sent_again_after_a_restart() {
    let mut cluster = Cluster::pair(3, settings());
    cluster.settings.file_bytes_max = 1 << 20;
    let node = cluster.nodes[&1].node.clone();
    cluster.world.kill(&node);
    cluster.start(1);
    cluster.store_many(40);
    // One partition, one at a time: the 20th is refused repeatedly.
    let hints = cluster.sender();
    hints.set_up(host(2));
    let facts = cluster.facts.clone();
    cluster.world.run_until(|| facts.borrow().received.len() >= 15, DAY).unwrap();
    cluster.facts.borrow_mut().refuse = u64::MAX;
    cluster.run(5000);
    let before = cluster.received();
    assert!(before < 40, "{before}");
    assert_eq!(cluster.files().iter().filter(|f| f.ends_with(".offset")).count(), 1);
    let node = cluster.nodes[&1].node.clone();
    cluster.world.kill(&node);
    cluster.facts.borrow_mut().refuse = 0;
    cluster.start(1);
    cluster.sender().set_up(host(2));
    cluster.until_delivered();
    check(&cluster.facts.borrow()).unwrap();
    let again = cluster.received() - 40;
    // Two of three partitions may have had one in flight after the first that failed.
    assert!(again <= 2, "{again} were sent again");
    assert_eq!(cluster.files(), Vec::<String>::new());
}

#[test]
fn a_replica_that_fails_gets_them_later_and_one_that_refuses_for_good_never() {
    for refusal in [
        None,
        Some(ErrorReply::Overloaded),
        Some(ErrorReply::UnknownTable(TABLE)),
        Some(ErrorReply::DiskFull),
        Some(ErrorReply::Timeout),
    ] {
        let cluster = Cluster::pair(4, settings());
        cluster.store_many(9);
        cluster.facts.borrow_mut().refuse = 4;
        cluster.facts.borrow_mut().refusal = refusal;
        cluster.facts.borrow_mut().invalid = BTreeSet::from([5]);
        cluster.sender().set_up(host(2));
        cluster.until_delivered();
        cluster.facts.borrow_mut().confirmed.remove(&5);
        check(&cluster.facts.borrow()).unwrap();
        assert_eq!(cluster.received(), 8);
        assert!(cluster.counter("hints_delivery_failed_total", "") >= 4);
        assert_eq!(cluster.counter("hints_dropped_total", "refused"), 1);
    }
}

#[test]
fn expired_truncated_and_tableless_hints_are_dropped_and_counted() {
    let cluster = Cluster::pair(5, settings());
    for partition in 0..3 {
        assert!(cluster.store_in(SHORT, partition));
    }
    cluster.run(61_000);
    assert!(cluster.store_in(SHORT, 1));
    assert!(cluster.store(1));
    let mut changed = snapshot(&[1, 2]);
    let truncated_at = cluster.nodes[&1].rt.wall();
    changed.truncations.insert(TABLE, Truncation { truncated_at, ..Truncation::default() });
    *cluster.nodes[&1].snapshot.borrow_mut() = Arc::new(changed);
    cluster.run(1);
    assert!(cluster.store(2));
    cluster.sender().set_up(host(2));
    cluster.until_delivered();
    assert_eq!(cluster.counter("hints_dropped_total", "expired"), 3);
    assert_eq!(cluster.counter("hints_dropped_total", "truncated"), 1);
    assert_eq!(cluster.facts.borrow().received, [(1, 4), (2, 6)]);

    cluster.sender().set_down(host(2), cluster.nodes[&1].rt.now());
    assert!(cluster.store(1));
    let mut changed = snapshot(&[1, 2]);
    changed.schema = Arc::default();
    *cluster.nodes[&1].snapshot.borrow_mut() = Arc::new(changed);
    cluster.sender().set_up(host(2));
    cluster.until_delivered();
    assert_eq!(cluster.counter("hints_dropped_total", "no_table"), 1);
    assert_eq!(cluster.received(), 2);
}

#[test]
fn nothing_is_sent_to_a_node_that_was_forgotten_and_its_files_go() {
    // So slow that the delivery is in the middle.
    let slow = HintsSettings { throttle_bytes_per_second: 200, ..settings() };
    let cluster = Cluster::pair(6, slow);
    cluster.store_many(30);
    cluster.sender().set_up(host(2));
    cluster.run(5000);
    cluster.store(1);
    cluster.sender().forget(host(2));
    assert!(!cluster.store(1));
    let before = cluster.received();
    assert!((1..30).contains(&before), "{before}");
    cluster.run(120_000);
    assert_eq!(cluster.received(), before);
    assert_eq!(cluster.files(), Vec::<String>::new());
    assert_eq!(cluster.sender().pending(), []);
    assert_eq!(cluster.counter("hints_dropped_total", "no_replica"), 1);
    assert!(cluster.counter("hints_dropped_file_bytes_total", "") > 1000);
    cluster.sender().set_up(host(2));
    assert!(cluster.store(1), "a member again");
}

#[test]
fn a_node_that_left_before_a_restart_is_noticed() {
    let mut cluster = Cluster::pair(7, settings());
    cluster.store_many(5);
    let node = cluster.nodes[&1].node.clone();
    cluster.world.kill(&node);
    cluster.members = vec![1, 3];
    cluster.start(1);
    cluster.sender().set_up(host(2));
    cluster.run(5000);
    assert_eq!(cluster.received(), 0);
    assert_eq!(cluster.files(), Vec::<String>::new());
}

#[test]
fn hints_of_a_node_that_left_are_handed_on_once_all_are_taken() {
    let cluster = Cluster::pair(8, settings());
    cluster.store_many(20);
    let taken: Rc<RefCell<Vec<Missed>>> = Rc::default();
    let fail = Rc::new(Cell::new(3));
    let (out, failing) = (taken.clone(), fail.clone());
    cluster.sender().set_redistribute(Rc::new(move |missed| {
        let (out, failing) = (out.clone(), failing.clone());
        Box::pin(async move {
            if out.borrow().len() == 10 && failing.get() > 0 {
                failing.set(failing.get() - 1);
                return false;
            }
            out.borrow_mut().push(missed);
            true
        })
    }));
    cluster.sender().forget(host(2));
    cluster.run(500);
    assert_eq!(taken.borrow().len(), 10);
    assert!(!cluster.files().is_empty());
    cluster.until_delivered();
    assert_eq!(fail.get(), 0);
    let numbers: BTreeSet<u64> = taken
        .borrow()
        .iter()
        .filter_map(|m| data::MutationRef::open(&m.mutation).map(|m| m.schema_version))
        .collect();
    assert_eq!(numbers, (1..=20).collect());
    assert!(taken.borrow().iter().all(|m| m.target == host(2) && m.table == TABLE));
    assert_eq!(cluster.received(), 0);
    assert_eq!(cluster.files(), Vec::<String>::new());
}

#[test]
fn what_was_handed_on_as_hints_is_durable_before_the_old_file_goes() {
    let mut cluster = Cluster::new(19, &[1, 2, 3], settings());
    cluster.start(1);
    cluster.store_many(20);
    let (hints, rt) = (cluster.sender(), cluster.nodes[&1].rt.clone());
    cluster.sender().set_redistribute(Rc::new(move |missed: Missed| {
        let taken = hints.store(host(3), &missed.mutation, rt.wall());
        Box::pin(async move { taken })
    }));
    cluster.sender().forget(host(2));
    let of_2 = |files: Vec<String>| files.iter().any(|f| f.contains("-02020202-"));
    let gone = || !of_2(cluster.files());
    cluster.world.run_until(gone, DAY).unwrap();
    // The removal becomes durable; the next period is far.
    cluster.run(10);
    let node = cluster.nodes[&1].node.clone();
    cluster.world.power_cut_losing_all(&node);
    cluster.start(1);
    cluster.start(3);
    cluster.sender().set_up(host(3));
    cluster.until_delivered();
    check(&cluster.facts.borrow()).unwrap();
    assert_eq!(cluster.facts.borrow().targets, BTreeSet::from([host(3)]));
}

#[test]
fn paused_deliveries_wait_and_hints_are_still_kept() {
    let cluster = Cluster::pair(9, settings());
    cluster.sender().pause();
    cluster.sender().set_up(host(2));
    cluster.store_many(10);
    cluster.run(10_000);
    assert!(cluster.sender().is_paused());
    assert_eq!(cluster.received(), 0);
    cluster.sender().resume();
    cluster.until_delivered();
    assert_eq!(cluster.received(), 10);
}

#[test]
fn truncate_drops_one_or_all_also_in_the_middle_of_a_delivery() {
    let slow = HintsSettings { throttle_bytes_per_second: 200, ..settings() };
    let mut cluster = Cluster::new(10, &[1, 2, 3], slow);
    cluster.start(1);
    cluster.start(2);
    cluster.store_many(30);
    let bytes = mutation(1, 1000);
    assert!(cluster.sender().store(host(3), &bytes, cluster.nodes[&1].rt.wall()));
    let pending = cluster.sender().pending();
    let hosts: Vec<_> = pending.iter().map(|p| (p.host, p.files > 0)).collect();
    assert_eq!(hosts, [(host(2), true), (host(3), false)]);
    assert!(pending.iter().all(|p| p.oldest <= p.newest && p.bytes > 50));
    cluster.sender().set_up(host(2));
    cluster.run(3000);
    let truncate = |only| {
        let run = |_, hints: Hints| async move { hints.truncate(only).await };
        cluster.nodes[&1].run(&cluster.world, run).unwrap();
    };
    truncate(Some(host(2)));
    let before = cluster.received();
    assert!((1..30).contains(&before), "{before}");
    cluster.run(60_000);
    assert_eq!(cluster.received(), before);
    assert_eq!(cluster.sender().pending().len(), 1);
    truncate(None);
    assert_eq!(cluster.sender().pending(), []);
    assert_eq!(cluster.files(), Vec::<String>::new());
    cluster.store(1);
    cluster.until_delivered();
    assert_eq!(cluster.received(), before + 1);
}

#[test]
fn close_writes_what_is_in_memory_and_refuses_the_rest() {
    let mut cluster = Cluster::pair(11, settings());
    for i in 0..5 {
        assert!(cluster.store(i));
    }
    let close = |_, hints: Hints| async move { hints.close().await };
    cluster.nodes[&1].run(&cluster.world, close).unwrap();
    assert!(!cluster.store(1));
    assert_eq!(cluster.counter("hints_refused_total", "closed"), 1);
    let node = cluster.nodes[&1].node.clone();
    cluster.world.power_cut_losing_all(&node);
    cluster.start(1);
    cluster.sender().set_up(host(2));
    cluster.until_delivered();
    assert_eq!(cluster.received(), 5);
}

#[test]
fn a_leaving_node_hands_its_hints_to_another_one() {
    let mut cluster = Cluster::new(12, &[1, 2, 3], settings());
    cluster.start(1);
    cluster.start(3);
    cluster.store_many(20);
    let own = mutation(5, 77);
    assert!(cluster.sender().store(host(3), &own, cluster.nodes[&1].rt.wall()));
    cluster.facts.borrow_mut().stored.push((5, 77));
    let transfer = |_, hints: Hints| async move { hints.transfer(host(3)).await.is_empty() };
    assert!(!cluster.nodes[&1].run(&cluster.world, transfer), "it is not up");
    cluster.sender().set_up(host(3));
    cluster.sender().pause();
    assert!(cluster.nodes[&1].run(&cluster.world, transfer));
    assert_eq!(cluster.received(), 21);
    assert_eq!(cluster.facts.borrow().targets, BTreeSet::from([host(2), host(3)]));
    check(&cluster.facts.borrow()).unwrap();
}

#[test]
fn files_of_shards_that_are_no_more_are_delivered() {
    let mut cluster = Cluster::pair(13, settings());
    cluster.store_many(20);
    let node = cluster.nodes[&1].node.clone();
    cluster.world.kill(&node);
    let disk = cluster.world.disk("n1");
    for path in cluster.hint_files().into_iter().take(2) {
        let mut bytes = disk.read(&path).unwrap();
        bytes[48..50].copy_from_slice(&5_u16.to_le_bytes());
        let crc = codec::crc32(&bytes[..60]).to_le_bytes();
        bytes[60..64].copy_from_slice(&crc);
        disk.remove(&path);
        disk.write(&path.replace("-0.hints", "-5.hints"), &bytes);
    }
    cluster.start(1);
    cluster.sender().set_up(host(2));
    cluster.until_delivered();
    assert_eq!(cluster.received(), 20);
    check(&cluster.facts.borrow()).unwrap();
    assert_eq!(cluster.files(), Vec::<String>::new());
}

#[test]
fn the_lists_of_shards_are_put_together() {
    let one = |n, files, oldest, newest| PendingHints {
        host: host(n),
        files,
        bytes: 10,
        oldest: stdx::WallMicros(oldest),
        newest: stdx::WallMicros(newest),
    };
    let lists = [vec![one(2, 1, 5, 9), one(3, 1, 1, 1)], vec![one(2, 2, 4, 7)]];
    let expected = [PendingHints { bytes: 20, ..one(2, 3, 4, 9) }, one(3, 1, 1, 1)];
    assert_eq!(PendingHints::merge(lists), expected);
}

#[test]
fn a_throttled_delivery_follows_its_pace() {
    let slow = HintsSettings { throttle_bytes_per_second: 100, ..settings() };
    let cluster = Cluster::pair(14, slow);
    cluster.store_many(20);
    cluster.sender().set_up(host(2));
    // 20 mutations of at least 60 bytes at 100 bytes per second: the last begins after 11 s.
    cluster.run(10_000);
    let early = cluster.received();
    assert!((5..20).contains(&early), "{early}");
    cluster.sender().set_throttle(0);
    cluster.until_delivered();
    assert_eq!(cluster.received(), 20);
    assert!(cluster.world.now().since(stdx::Instant::ZERO) < Duration::from_secs(60));
}

#[test]
fn so_many_hints_and_bytes_are_in_flight_and_no_more() {
    for (in_flight_max, in_flight_bytes_max, expected) in
        [(3, 1 << 20, 3), (100, 1 << 20, 20), (100, 130, 3), (100, 1, 1)]
    {
        let settings = HintsSettings { in_flight_max, in_flight_bytes_max, ..settings() };
        let mut cluster = Cluster::new(15, &[1, 2], settings);
        cluster.settings.file_bytes_max = 1 << 20;
        cluster.start(1);
        cluster.start(2);
        for partition in 0..20 {
            assert!(cluster.store(partition));
        }
        cluster.facts.borrow_mut().hold = true;
        cluster.sender().set_up(host(2));
        cluster.run(1000);
        assert_eq!(cluster.facts.borrow().held.len(), expected);
        cluster.facts.borrow_mut().hold = false;
        cluster.until_delivered();
        assert_eq!(cluster.received(), 20);
    }
}

#[test]
fn the_next_hint_of_a_partition_waits_for_the_answer_to_the_one_before() {
    let cluster = Cluster::pair(16, settings());
    for _ in 0..5 {
        assert!(cluster.store(7));
    }
    assert!(cluster.store(8));
    cluster.facts.borrow_mut().hold = true;
    cluster.sender().set_up(host(2));
    cluster.run(1000);
    assert_eq!(cluster.facts.borrow().held.len(), 1);
}

#[test]
fn so_many_replicas_are_delivered_to_at_a_time() {
    for (deliveries_max, expected) in [(1, 1), (2, 2), (3, 3)] {
        let settings = HintsSettings { deliveries_max, ..settings() };
        let mut cluster = Cluster::new(17, &[1, 2, 3, 4], settings);
        for n in 1..=4 {
            cluster.start(n);
        }
        for n in 2..=4 {
            let bytes = mutation(1, u64::from(n));
            assert!(cluster.sender().store(host(n), &bytes, cluster.nodes[&1].rt.wall()));
            cluster.sender().set_up(host(n));
        }
        cluster.facts.borrow_mut().hold = true;
        cluster.run(1000);
        let targets: BTreeSet<_> = cluster.facts.borrow().held.iter().map(|h| h.0).collect();
        assert_eq!(targets.len(), expected);
    }
}

/// A shard, the shards whose files it took, bytes set aside.
type Listed = (u16, Vec<u16>, u64);

#[test]
fn every_shard_takes_the_files_of_its_number_and_of_shards_that_are_no_more() {
    let cluster = Cluster::new(18, &[1, 2], settings());
    let disk = cluster.world.disk("n1");
    let id = |shard| crate::format::FileId { target: host(2), sequence: 9, shard };
    for shard in 0..6 {
        disk.write(&format!("/n1/hints/{}", id(shard).file_name()), b"x");
        disk.write(&format!("/n1/hints/{}.damaged", id(shard).file_name()), &[0; 7]);
    }
    #[allow(clippy::disallowed_types, reason = "facts are shared with the world's main function")]
    let found: Arc<std::sync::Mutex<Vec<Listed>>> = Arc::default();
    let out = found.clone();
    let spec = rt::NodeSpec { name: "n1".into(), shards: 2, work_dir: "/n1".into() };
    let main: rt::Main = Arc::new(move |rt| {
        let out = out.clone();
        Box::pin(async move {
            let (_, listing) = crate::files::Directory::open(&rt, "hints").await.unwrap();
            let shards = listing.files.iter().map(|(id, _)| id.shard).collect();
            out.lock().unwrap().push((rt.shard().0, shards, listing.aside_bytes));
        })
    });
    let node = cluster.world.start_node(spec, main);
    cluster.world.run_until(|| !cluster.world.is_alive(&node), DAY).unwrap();
    let mut found = found.lock().unwrap().clone();
    found.sort();
    assert_eq!(found, [(0, vec![0, 2, 4], 21), (1, vec![1, 3, 5], 21)]);
}

/// Bytes per second that would take an hour for the hints of these tests.
fn throttled() -> HintsSettings {
    let flush_period = Duration::from_secs(3600);
    HintsSettings { throttle_bytes_per_second: 1, flush_period, ..settings() }
}

#[test]
fn what_a_replica_misses_that_is_there_is_delivered_at_once_and_at_full_speed() {
    let cluster = Cluster::pair(31, throttled());
    cluster.sender().set_up(host(2));
    for _ in 0..40 {
        assert!(cluster.store(1));
    }
    assert_eq!(cluster.received(), 0);
    cluster.run(400);
    assert_eq!(cluster.received(), 40);
    assert_eq!(cluster.files(), Vec::<String>::new());
    // One that fails for a moment is tried again soon.
    cluster.facts.borrow_mut().refuse = 1;
    assert!(cluster.store(1));
    cluster.run(400);
    assert_eq!(cluster.received(), 40);
    cluster.run(2_500);
    assert_eq!(cluster.received(), 41);
    check(&cluster.facts.borrow()).unwrap();
}

#[test]
fn what_a_replica_missed_while_it_was_away_is_throttled() {
    let cluster = Cluster::pair(32, throttled());
    let now = |cluster: &Cluster| cluster.nodes[&1].rt.now();
    cluster.sender().set_up(host(2));
    cluster.sender().set_down(host(2), now(&cluster));
    cluster.store_many(10);
    cluster.sender().set_up(host(2));
    // Behind those that wait.
    assert!(cluster.store(1));
    cluster.run(5_000);
    assert!(cluster.received() < 3, "{}", cluster.received());

    // Hints stored while the replica was up; it went down before it had them.
    let cluster = Cluster::pair(33, throttled());
    cluster.sender().set_up(host(2));
    for _ in 0..10 {
        assert!(cluster.store(1));
    }
    cluster.sender().set_down(host(2), now(&cluster));
    cluster.run(1_000);
    cluster.sender().set_up(host(2));
    cluster.run(5_000);
    assert!(cluster.received() < 3, "{}", cluster.received());
}

#[test]
fn a_hand_over_does_not_wait_for_a_slow_delivery_and_says_what_is_left() {
    let settings = HintsSettings { throttle_bytes_per_second: 1, ..settings() };
    let cluster = Cluster::pair(34, settings);
    cluster.store_many(12);
    cluster.sender().set_up(host(2));
    // A delivery has begun that would take long.
    cluster.run(3_000);
    assert!((1..6).contains(&cluster.received()), "{}", cluster.received());
    cluster.sender().set_throttle(0);
    let transfer = |_, hints: Hints| async move { hints.transfer(host(2)).await };
    assert_eq!(cluster.nodes[&1].run(&cluster.world, transfer), []);
    assert_eq!(cluster.received(), 12);

    cluster.facts.borrow_mut().refuse = u64::MAX;
    assert!(cluster.store(1));
    let left = cluster.nodes[&1].run(&cluster.world, transfer);
    assert_eq!(left.iter().map(|left| left.host).collect::<Vec<_>>(), [host(2)]);
    // Deliveries continue afterwards.
    cluster.facts.borrow_mut().refuse = 0;
    cluster.until_delivered();
    check(&cluster.facts.borrow()).unwrap();
}
