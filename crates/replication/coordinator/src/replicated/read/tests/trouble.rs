//! Replicas that are dead, silent or slow.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::time::Duration;

use cluster::Consistency;
use data::command::{KeyRange, Partitions, ReadCommand, RingBound};
use dist_testing::table::{delete_row, insert};
use dist_testing::{Replicas, host};
use request::{ReplicaError, RequestError};
use schema::TableOptions;
use stdx::Token;

use super::nodes::{Ask, MISREAD, Node, Nodes, Options, all, one};
use super::sink::Collect;
use crate::{ReplicatedRead, SelectLimits};

fn with_speculation(seed: u64, policy: &str) -> Nodes {
    let table = TableOptions { speculative_retry: policy.to_owned(), ..TableOptions::default() };
    let nodes = Nodes::start(&Options { table, ..Options::new(seed) });
    for pk in 0..4 {
        nodes.write(&[1, 2, 3], &insert(pk, 1, "x", 1));
    }
    // From every shard of n1 there are connections to all shards of the others.
    for pk in 0..20 {
        nodes.read(1, &one(pk), &Ask::at(Consistency::All)).result.unwrap();
    }
    nodes.read(1, &all(), &Ask::at(Consistency::All)).result.unwrap();
    nodes
}

#[test]
fn a_level_that_cannot_be_met_is_unavailable_with_its_numbers() {
    let nodes = with_speculation(80, "99p");
    let error = |level, command: &_| nodes.read(1, command, &Ask::at(level)).result.unwrap_err();
    let unavailable =
        |consistency, required, alive| RequestError::Unavailable { consistency, required, alive };
    nodes.set_alive(2, false);
    let (quorum, everyone) = (Consistency::Quorum, Consistency::All);
    assert_eq!(error(everyone, &one(1)), unavailable(everyone, 3, 2));
    assert_eq!(error(everyone, &all()), unavailable(everyone, 3, 2));
    assert!(nodes.read(1, &one(1), &Ask::at(quorum)).result.is_ok());
    nodes.set_alive(3, false);
    assert_eq!(error(quorum, &one(1)), unavailable(quorum, 2, 1));
    assert_eq!(error(quorum, &all()), unavailable(quorum, 2, 1));
    assert_eq!(error(Consistency::Three, &one(1)), unavailable(Consistency::Three, 3, 1));
    assert!(nodes.read(1, &one(1), &Ask::at(Consistency::One)).result.is_ok());
}

#[test]
fn silence_is_a_timeout_at_the_deadline_with_what_was_received() {
    let timeout = |level, received, block_for| RequestError::ReadTimeout {
        consistency: level,
        received,
        block_for,
        data_present: true,
    };
    for (level, block_for) in [(Consistency::Quorum, 2), (Consistency::All, 3)] {
        for command in [one(1), all()] {
            let nodes = with_speculation(81, "NEVER");
            nodes.cut(1, 2);
            nodes.cut(1, 3);
            let found = nodes.read(1, &command, &Ask::at(level));
            assert_eq!(found.result, Err(timeout(level, 1, block_for)));
            assert_eq!((found.rows, found.took.as_secs()), (vec![], 5));
        }
    }
}

#[test]
fn a_silent_replica_is_replaced_by_another_in_time() {
    let nodes = with_speculation(82, "50ms");
    let quorum = Ask::at(Consistency::Quorum);
    for silent in [2, 3] {
        nodes.cut(1, silent);
        for pk in 0..4 {
            let found = nodes.read(1, &one(pk), &quorum);
            found.result.as_ref().unwrap();
            assert_eq!(found.rows.len(), 1);
            assert!(found.took < Duration::from_millis(100), "{:?}", found.took);
        }
        let found = nodes.read(1, &all(), &quorum);
        found.result.as_ref().unwrap();
        assert_eq!(found.rows.len(), 4);
        // Without a replacement the deadline comes.
        assert!(nodes.read(1, &one(1), &Ask::at(Consistency::All)).result.is_err());
        nodes.world.heal_all();
        nodes.world.run_for(Duration::from_secs(5));
    }
    // NEVER: no other replica is asked instead.
    drop(nodes);
    let failed = |silent| {
        let nodes = with_speculation(83, "NEVER");
        nodes.cut(1, silent);
        nodes.read(1, &one(1), &quorum).result.is_err()
    };
    assert!(failed(2) != failed(3), "one of the two is asked");
}

#[test]
fn datacenters_have_levels_of_their_own() {
    let datacenters = vec![("east".to_owned(), 2), ("west".to_owned(), 2)];
    let shards = vec![1, 1, 2, 1];
    let options = Options { shards, datacenters, ..Options::new(85) };
    let nodes = Nodes::start(&options);
    let written = insert(1, 1, "x", 1);
    nodes.write(&[1, 2, 3, 4], &written);
    let read = |level| nodes.read(1, &one(1), &Ask::at(level));
    for level in [Consistency::LocalQuorum, Consistency::EachQuorum, Consistency::All] {
        assert_eq!(read(level).rows.len(), 1, "{level:?}");
        assert_eq!(nodes.read(1, &all(), &Ask::at(level)).rows.len(), 1, "{level:?}");
    }
    // The west is 2 and 4.
    nodes.set_alive(2, false);
    assert_eq!(read(Consistency::LocalQuorum).rows.len(), 1);
    assert_eq!(read(Consistency::Quorum).rows.len(), 1);
    let consistency = Consistency::EachQuorum;
    let datacenter = "west".into();
    let error = RequestError::UnavailableIn { consistency, datacenter, required: 2, alive: 1 };
    assert_eq!(read(consistency).result, Err(error));
    nodes.set_alive(2, true);
    nodes.set_alive(3, false);
    let consistency = Consistency::LocalQuorum;
    let error = RequestError::Unavailable { consistency, required: 2, alive: 1 };
    assert_eq!(read(consistency).result, Err(error));
}

#[test]
fn more_tombstones_than_the_reader_allows_are_a_failure_of_their_replica() {
    let nodes = Nodes::start(&Options::new(86));
    let writes = |count| (0..count).map(|ck| (delete_row(1, ck, 1), vec![1, 2, 3]));
    nodes.write_all(&writes(10).collect::<Vec<_>>());
    let refusing = |level| Ask { refused: 10, tombstones: 1_000, ..Ask::at(level) };
    let everyone = Consistency::All;
    nodes.read(1, &one(1), &refusing(everyone)).result.unwrap();
    nodes.write_all(&writes(11).collect::<Vec<_>>());
    for command in [one(1), all()] {
        match nodes.read(1, &command, &refusing(everyone)).result {
            Err(RequestError::ReadFailure { failures, received: 0, block_for: 3, .. }) => {
                assert!(failures.iter().all(|(_, r)| *r == ReplicaError::TooManyTombstones));
                assert!(!failures.is_empty());
            }
            other => panic!("{other:?}"),
        }
        // A node that allows them answers, in pages of any size.
        nodes.read(1, &command, &Ask::at(everyone)).result.unwrap();
    }
    // Also when this node is the only one asked.
    match nodes.read(1, &one(1), &refusing(Consistency::One)).result {
        Err(RequestError::ReadFailure { failures, received: 0, block_for: 1, .. }) => {
            assert_eq!(failures.as_slice(), [(host(1), ReplicaError::TooManyTombstones)]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_read_that_is_dropped_waits_for_nobody() {
    // INV-reading-3.
    let nodes = with_speculation(87, "NEVER");
    nodes.cut(1, 2);
    nodes.cut(1, 3);
    let order = |node: &Node| ReplicatedRead {
        snapshot: node.snapshot.clone(),
        consistency: Consistency::All,
        deadline: node.rt.now() + Duration::from_secs(5),
        page_timeout: None,
        rows_wanted: 100,
        limits: SelectLimits { rows_per_partition: u32::MAX },
    };
    let waiting = nodes.run_on(nodes.node(1, 0), move |node| async move {
        let messaging = node.coordinator.cluster().unwrap().parts.messaging.clone();
        let (command, order) = (one(1), order(&node));
        let mut sink = Collect::new(&command, None, u32::MAX);
        let (soon, asked) = (node.rt.now() + Duration::from_millis(50), Cell::new(0));
        let read = node.coordinator.reads().read_replicated(&command, &order, &mut sink);
        let mut read = Box::pin(read);
        let watched = poll_fn(|cx| {
            let polled = read.as_mut().poll(cx);
            asked.set(messaging.pending());
            polled
        });
        assert!(node.rt.timeout(soon, watched).await.is_err());
        drop(read);
        (asked.get(), messaging.pending())
    });
    assert_eq!(waiting, (2, 0));
}

#[test]
fn a_page_of_what_was_not_asked_for_is_a_failure_of_its_node() {
    let nodes = with_speculation(88, "NEVER");
    for pk in 0..8 {
        nodes.write(&[1, 2, 3], &insert(pk, 1, "x", 1));
    }
    nodes.write(&[1, 2, 3], &insert(MISREAD, 1, "y", 1));
    nodes.misread_at(2);
    match nodes.read(1, &one(1), &Ask::at(Consistency::All)).result {
        // The others' answers may come before or after it.
        Err(RequestError::ReadFailure { failures, block_for: 3, .. }) => {
            assert_eq!(failures.as_slice(), [(host(2), ReplicaError::Unknown)]);
        }
        other => panic!("{other:?}"),
    }
    let end = RingBound::Token { token: Token(0), after: true };
    let half = KeyRange { end, ..KeyRange::all() };
    let half = ReadCommand { partitions: Partitions::Range(half), ..all() };
    match nodes.read(1, &half, &Ask::at(Consistency::All)).result {
        Err(RequestError::ReadFailure { failures, .. }) => assert_eq!(failures[0].0, host(2)),
        other => panic!("{other:?}"),
    }
    // With fewer needed another node stands in for it.
    for _ in 0..8 {
        let read = nodes.read(1, &one(1), &Ask::at(Consistency::Quorum));
        assert_eq!((read.rows.len(), read.result.is_ok()), (1, true));
    }
}
