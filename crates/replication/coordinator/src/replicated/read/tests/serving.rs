//! Answers of a replica to requests of its peers.

use std::time::Duration;

use data::command::ReadCommand;
use data::replica_page::ReplicaPage;
use data::{Slice, Slices};
use dist_testing::table::{clustering, insert};
use dist_testing::{Replicas, host};
use internode::{ErrorReply, ReadLimits, ReadRequest, Verb};
use messaging::{MessagingError, Outgoing};
use request::digest_of;
use stdx::{Epoch, ShardId, TableId, Uuid};

use super::nodes::{Nodes, Options, all, one};

const LIMITS: ReadLimits = ReadLimits { rows: 100, bytes: 1 << 20, rows_per_partition: u32::MAX };

/// Asks n2's shard 1 from n1.
fn ask(nodes: &Nodes, verb: Verb, payload: Vec<u8>) -> Result<Vec<u8>, MessagingError> {
    nodes.run_on(nodes.node(1, 0), |node| async move {
        let deadline = node.rt.now() + Duration::from_secs(1);
        let (host, shard) = (host(2), ShardId(1));
        let to = Outgoing { host, shard, verb, deadline, trace: None };
        let messaging = node.coordinator.cluster().unwrap().parts.messaging.clone();
        let sent = messaging.request(&to, |out| out.extend_from_slice(&payload));
        sent.await.map(|response| response.payload)
    })
}

fn encoded(command: &ReadCommand, limits: ReadLimits, digest: bool) -> Vec<u8> {
    let mut out = Vec::new();
    ReadRequest { digest, limits, command: command.clone() }.encode(&mut out);
    out
}

fn with_rows() -> Nodes {
    let nodes = Nodes::start(&Options::new(90));
    for pk in 0..6 {
        for ck in 0..4 {
            nodes.write(&[1, 2, 3], &insert(pk, ck, "x", 1));
        }
    }
    nodes
}

#[test]
fn a_digest_is_that_of_the_page_whichever_shard_is_asked() {
    let nodes = with_rows();
    for (verb, command) in [(Verb::Read, one(1)), (Verb::Read, one(2)), (Verb::RangeRead, all())] {
        let page = ask(&nodes, verb, encoded(&command, LIMITS, false)).unwrap();
        assert!(ReplicaPage::open(&page).unwrap().live_rows() >= 4);
        let digest = ask(&nodes, verb, encoded(&command, LIMITS, true)).unwrap();
        assert_eq!(digest, digest_of(&page).0.to_be_bytes());
    }
}

#[test]
fn pages_keep_to_their_limits() {
    let nodes = with_rows();
    let live = |limits| {
        let page = ask(&nodes, Verb::RangeRead, encoded(&all(), limits, false)).unwrap();
        let page = ReplicaPage::open(&page).unwrap();
        (page.live_rows(), page.is_exhausted())
    };
    assert_eq!(live(LIMITS), (24, true));
    assert_eq!(live(ReadLimits { rows: 5, ..LIMITS }), (5, false));
    assert_eq!(live(ReadLimits { rows_per_partition: 1, ..LIMITS }), (6, true));
    assert_eq!(live(ReadLimits { rows: 5, rows_per_partition: 2, ..LIMITS }), (5, false));
    let (rows, exhausted) = live(ReadLimits { bytes: 60, ..LIMITS });
    assert!(rows < 5 && !exhausted);
}

#[test]
fn what_cannot_be_read_is_refused_with_its_reason() {
    let nodes = with_rows();
    let refused = |verb, payload| match ask(&nodes, verb, payload) {
        Err(MessagingError::Remote(reply)) => reply,
        other => panic!("{other:?}"),
    };
    let mut unknown = one(1);
    unknown.table = TableId(Uuid::from_u128(0x99));
    let reply = refused(Verb::Read, encoded(&unknown, LIMITS, false));
    assert_eq!(reply, ErrorReply::UnknownTable(unknown.table));

    let is_invalid = |reply: &ErrorReply| matches!(reply, ErrorReply::Invalid(_));
    assert!(is_invalid(&refused(Verb::RangeRead, encoded(&one(1), LIMITS, false))));
    assert!(is_invalid(&refused(Verb::Read, encoded(&all(), LIMITS, false))));
    assert!(is_invalid(&refused(Verb::Read, vec![1, 2, 3])));
    let slice = |from, to| {
        let (start, end) = (clustering(from), clustering(to));
        Slice { start, start_after: false, end, end_after: false }
    };
    let mut command = one(1);
    command.slices = Slices(vec![slice(1, 2), slice(2, 4)]).into();
    assert!(ask(&nodes, Verb::Read, encoded(&command, LIMITS, false)).is_ok());
    command.slices = Slices(vec![slice(2, 4), slice(1, 2)]).into();
    assert!(is_invalid(&refused(Verb::Read, encoded(&command, LIMITS, false))));
}

#[test]
fn a_coordinator_with_older_metadata_is_told_so_by_who_is_no_replica_any_more() {
    let options = Options { factor: 1, shards: vec![1, 2], ..Options::new(91) };
    let nodes = Nodes::start(&options);
    let of_two = (0..50).find(|pk| nodes.replicas_of(&insert(*pk, 1, "x", 1)) == [2]).unwrap();
    let of_one = (0..50).find(|pk| nodes.replicas_of(&insert(*pk, 1, "x", 1)) == [1]).unwrap();
    let set_epoch = |epoch| {
        nodes.run_on(nodes.node(1, 0), move |node| async move {
            node.coordinator.cluster().unwrap().parts.messaging.set_epoch(Epoch(epoch));
        });
    };
    let read = |command: &ReadCommand, verb| ask(&nodes, verb, encoded(command, LIMITS, false));
    // A coordinator as new as n2 is served whatever it asks for.
    assert!(read(&one(of_one), Verb::Read).is_ok());
    set_epoch(4);
    assert!(read(&one(of_two), Verb::Read).is_ok());
    let too_old = MessagingError::Remote(ErrorReply::EpochTooOld { needed: Epoch(5) });
    assert_eq!(read(&one(of_one), Verb::Read), Err(too_old.clone()));
    assert_eq!(read(&all(), Verb::RangeRead), Err(too_old));
}
