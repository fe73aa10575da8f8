//! Events that replicas record for a traced request.

use std::cell::RefCell;
use std::rc::Rc;

use cluster::Consistency::All;
use data::command::{Partitions, ReadCommand};
use stdx::Uuid;

use super::counting::order;
use super::nodes::{CounterIds, Nodes, Options, TIMEOUT};
use super::table::{Collect, TABLE, insert, read_all};
use crate::{ReadTrace, ReplicatedRead, RequestTrace, SelectLimits};
use replica::Origin;

type Written = Rc<RefCell<Vec<(u8, Uuid, Vec<String>)>>>;
type Said = Rc<RefCell<Vec<String>>>;

fn noting(id: Uuid) -> (Rc<RequestTrace>, Said) {
    let said = Said::default();
    let own = said.clone();
    (Rc::new(RequestTrace::new(id, move |text| own.borrow_mut().push(text))), said)
}

#[test]
fn replicas_write_down_what_they_do_for_a_traced_request_only() {
    let nodes = Nodes::start(&Options::two_datacenters(1));
    let written: Written = Rc::default();
    for n in 1..=4 {
        for shard in nodes.all_shards(n) {
            let written = written.clone();
            shard.coordinator.on_peer_trace(Rc::new(move |id, events| {
                let events = events.into_iter().map(|event| event.activity).collect();
                written.borrow_mut().push((n, id, events));
            }));
        }
    }
    nodes.write(1, All, 1, "not traced").unwrap();
    assert_eq!(written.borrow().len(), 0);

    let id = Uuid::from_u128(7);
    let said = nodes.run_on(nodes.shard(1, 0), move |shard| async move {
        let order = shard.order(All, vec![insert(2, "traced", 1_000)]);
        let (trace, said) = noting(id);
        shard.coordinator.writer().write_traced(order, 0, Some(trace)).await.unwrap();
        said.borrow().clone()
    });
    let count = |begin: &str| said.iter().filter(|text| text.starts_with(begin)).count();
    // To the other of this datacenter, and to one of the other that passes it on; all three answer.
    assert_eq!(count("Sending MUTATION_REQ message to /"), 2, "{said:?}");
    assert_eq!(count("MUTATION_RSP message received from /"), 3, "{said:?}");
    assert_eq!(count("Processing response from /"), 3, "{said:?}");
    assert_eq!(count("Appending to commitlog"), 1, "{said:?}");
    assert_eq!(count("Adding to t memtable"), 1, "{said:?}");
    assert_eq!(said.len(), 10, "{said:?}");
    let mut by: Vec<u8> = written.borrow().iter().map(|(n, ..)| *n).collect();
    by.sort_unstable();
    // One of the other datacenter has passed it on.
    assert_eq!(by, [2, 3, 4]);
    for (n, of, events) in written.borrow_mut().drain(..) {
        assert_eq!(of, id);
        let first = events.first().map(String::as_str).unwrap_or_default();
        assert!(first.starts_with("MUTATION_REQ message received from /"), "n{n}: {events:?}");
        let own = ["Appending to commitlog", "Adding to t memtable"];
        assert_eq!(events[1..3], own, "n{n}: {events:?}");
        assert!(events[3].starts_with("Enqueuing response to /"), "n{n}: {events:?}");
    }

    nodes.run_on(nodes.shard(1, 0), move |shard| async move {
        let command = ReadCommand {
            partitions: Partitions::Key(2_i32.to_be_bytes().to_vec()),
            ..read_all(TABLE)
        };
        let order = ReplicatedRead {
            snapshot: shard.snapshot(),
            consistency: All,
            deadline: shard.rt.now() + TIMEOUT,
            page_timeout: None,
            rows_wanted: 10,
            limits: SelectLimits { rows_per_partition: u32::MAX },
        };
        let mut found = Collect::default();
        let noted: Rc<RefCell<Vec<String>>> = Rc::default();
        let own = noted.clone();
        let trace = Rc::new(ReadTrace::new(id, move |activity| own.borrow_mut().push(activity)));
        shard
            .coordinator
            .reads()
            .read_traced(
                &command,
                &order,
                crate::ReadOptions { trace: Some(&trace), filter: None },
                &mut found,
            )
            .await
            .unwrap();
        assert_eq!(found.rows.len(), 1);
        let said = |begin: &str| noted.borrow().iter().filter(|e| e.starts_with(begin)).count();
        let whom = (said("reading data locally"), said("reading digest from /"));
        assert_eq!(whom, (1, 3), "{:?}", noted.borrow());
        trace.finish(true);
        let merged = "Merged data from memtables and 0 sstables";
        assert_eq!(said(merged), 1, "{:?}", noted.borrow());
        let of_shard = " read 1 live row in 1 partition, 0 tombstone cells, from memtables only; \
                        it sent 1 page of ";
        let shards = noted.borrow().iter().filter(|e| e.contains(of_shard)).count();
        assert_eq!(shards, 1, "{:?}", noted.borrow());
    });
    nodes.run(10);
    assert_eq!(written.borrow().len(), 3);
    for (n, of, events) in written.borrow().iter() {
        assert_eq!(*of, id);
        let begin: Vec<&str> =
            events.iter().map(|e| e.split(" from ").next().unwrap_or_default()).collect();
        assert_eq!(
            begin[..2],
            ["READ_REQ message received", "Executing single-partition query on t"],
            "n{n}"
        );
        assert_eq!(begin[2..4], ["Merged data", "Read 1 live rows and 0 tombstone cells"], "n{n}");
        assert!(events[4].contains(" read 1 live row in 1 partition, "), "n{n}: {events:?}");
        assert!(begin[5].starts_with("Enqueuing response of"), "n{n}: {events:?}");
    }
}

#[test]
fn a_traced_read_says_that_replicas_differ_and_what_is_done_about_it() {
    let nodes = Nodes::start(&Options::new(1));
    nodes.write(1, All, 5, "old").unwrap();
    nodes.run_on(nodes.any_shard(2), |shard| async move {
        let newer = insert(5, "newer", i64::MAX / 2);
        shard.coordinator.apply(newer, Origin::Client).await.unwrap();
    });
    let read = |shard: super::nodes::Shard| async move {
        let command = ReadCommand {
            partitions: Partitions::Key(5_i32.to_be_bytes().to_vec()),
            ..read_all(TABLE)
        };
        let order = ReplicatedRead {
            snapshot: shard.snapshot(),
            consistency: All,
            deadline: shard.rt.now() + TIMEOUT,
            page_timeout: None,
            rows_wanted: 10,
            limits: SelectLimits { rows_per_partition: u32::MAX },
        };
        let said = Said::default();
        let own = said.clone();
        let trace = Rc::new(ReadTrace::new(Uuid::nil(), move |text| own.borrow_mut().push(text)));
        let mut found = Collect::default();
        let terms = crate::ReadOptions { trace: Some(&trace), filter: None };
        shard.coordinator.reads().read_traced(&command, &order, terms, &mut found).await.unwrap();
        assert_eq!(found.rows.len(), 1);
        said.borrow().clone()
    };
    let said = nodes.run_on(nodes.any_shard(1), read);
    let mut steps = said.iter();
    let token = codec::token_of(&5_i32.to_be_bytes()).0;
    let mismatch = format!("Digest mismatch: Mismatch for key DecoratedKey({token}, 00000005)");
    for step in [
        "reading digest from /",
        &mismatch,
        "Enqueuing full data read to /",
        "Sending read-repair-mutation to /",
    ] {
        assert!(steps.any(|text| text.starts_with(step)), "{step}: {said:?}");
    }
    assert_eq!(said.iter().filter(|text| **text == mismatch).count(), 1, "{said:?}");
    // Rows that the coordinator's own node lacks are written there too.
    nodes.run_on(nodes.any_shard(2), |shard| async move {
        let newest = insert(5, "newest", i64::MAX / 2 + 1);
        shard.coordinator.apply(newest, Origin::Client).await.unwrap();
    });
    let said = nodes.run_on(nodes.any_shard(1), read);
    let own = format!("Sending read-repair-mutation to /{}", nodes.addresses()[0]);
    assert!(said.contains(&own), "{own}: {said:?}");
    // They agree now.
    let said = nodes.run_on(nodes.any_shard(1), read);
    let expected = ["reading data locally", "reading digest from /", "reading digest from /"];
    let as_expected = said.iter().zip(expected).all(|(text, begin)| text.starts_with(begin));
    assert!(as_expected && said.len() == expected.len(), "{said:?}");
}

/// Events of a traced increment: those of the node that is asked, and those that the others record.
#[test]
fn a_traced_increment_says_what_its_leader_does() {
    let options = Options {
        nodes: vec![(1, "dc1"), (2, "dc1"), (1, "dc1")],
        replication: super::table::simple("2"),
        counter_ids: CounterIds::Fresh,
        ..Options::new(3)
    };
    let nodes = Nodes::start(&options);
    let written: Written = Rc::default();
    for n in 1..=3 {
        for shard in nodes.all_shards(n) {
            let written = written.clone();
            shard.coordinator.on_peer_trace(Rc::new(move |id, events| {
                let events = events.into_iter().map(|event| event.activity).collect();
                written.borrow_mut().push((n, id, events));
            }));
        }
    }
    let id = Uuid::from_u128(9);
    let count = |n: u8, pk: i32| {
        let shard = if n == 2 { nodes.shard(2, 0) } else { nodes.any_shard(n) };
        let said = nodes.run_on(shard, move |shard| async move {
            let (trace, said) = noting(id);
            let write = order(&shard, All, pk, 1);
            shard.coordinator.counters().count(write, Some(trace)).await.unwrap();
            said.borrow().clone()
        });
        nodes.run(10);
        said
    };
    let led = [
        "Acquiring counter locks",
        "Fetching 1 counter values from cache",
        "Reading 1 counter values from the CF",
        "Executing single-partition query on n",
        "Merged data from memtables and 0 sstables",
        "Shard ",
        "Appending to commitlog",
        "Adding to n memtable",
        "Sending MUTATION_REQ message to /",
        "MUTATION_RSP message received from /",
        "Processing response from /",
    ];
    let begins = |events: &[String], begin: &[&str]| {
        assert_eq!(events.len(), begin.len(), "{events:?}");
        let mut events = events.to_vec();
        // The other replica may be sent to before this node writes.
        let written = events.iter().position(|event| event.starts_with("Appending to"));
        let sent = events.iter().position(|event| event.starts_with("Sending MUTATION_REQ"));
        if let (Some(written), Some(sent)) = (written, sent)
            && sent < written
        {
            events[sent..sent + 3].rotate_left(1);
        }
        for (event, begin) in events.iter().zip(begin) {
            assert!(event.starts_with(begin), "{begin}: {events:?}");
        }
    };
    let (mut here, mut there, mut handed) = (0, 0, 0);
    for pk in 0..30 {
        let n = 1 + (pk % 3) as u8;
        let said = count(n, pk);
        let drained = written.borrow_mut().drain(..).collect::<Vec<_>>();
        let mut events: Vec<(u8, Vec<String>)> =
            drained.into_iter().map(|(n, _, events)| (n, events)).collect();
        events.retain(|(_, events)| events[0].starts_with("COUNTER_MUTATION_REQ"));
        match said[0].as_str() {
            "Acquiring counter locks" => {
                here += 1;
                begins(&said, &led);
                assert!(events.is_empty(), "{events:?}");
                // Kept for the next is what was added to something that was read.
                begins(&count(n, pk), &led);
                let said = count(n, pk);
                begins(&said, &[&led[..2], &led[6..]].concat());
                written.borrow_mut().clear();
            }
            "Sending mutation to shard 1" => {
                handed += 1;
                begins(&said[1..], &led);
            }
            _ => {
                there += 1;
                begins(
                    &said,
                    &[
                        "Enqueuing counter update to /",
                        "Sending COUNTER_MUTATION_REQ message to /",
                        "COUNTER_MUTATION_RSP message received from /",
                        "Processing response from /",
                    ],
                );
                let [(leader, events)] = &events[..] else { panic!("{events:?}") };
                assert_ne!(*leader, n);
                let received = "COUNTER_MUTATION_REQ message received from /";
                assert!(events[0].starts_with(received), "{events:?}");
                let answered = "Enqueuing response to /";
                assert!(events.last().unwrap().starts_with(answered), "{events:?}");
            }
        }
    }
    assert!(here > 0 && there > 0 && handed > 0, "{here} {there} {handed}");
}
