//! Accepted nodes, refused nodes, and the answers to these.

use super::*;

fn refused(hello: &Hello, is_known: bool) -> (RefusalCode, String) {
    let refusal = judge(&identity(), hello, is_known).unwrap_err();
    let bytes = payload_of(|out| refusal.message().encode(out));
    match Handshake::decode(&bytes).unwrap().unwrap() {
        (Handshake::Refused(Refused { code, message }), _) => (code, message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_member_is_accepted_on_the_shard_it_wants_as_far_as_there_is_one() {
    let agreement = judge(&identity(), &hello(), true).unwrap();
    let expected = Agreement { version: 1, features: Features::LZ4, shard: ShardId(2) };
    assert_eq!(agreement, expected, "6 modulo 4 shards");
    let plain = Hello { features: Features(0b110), ..hello() };
    assert_eq!(judge(&identity(), &plain, true).unwrap().features, Features::NONE);
}

#[test]
fn a_newcomer_is_accepted_unknown_but_not_from_another_cluster() {
    let newcomer = Hello { joining: true, cluster_id: None, to: None, ..hello() };
    assert!(judge(&identity(), &newcomer, false).is_ok());
    let other = Hello { cluster_name: "Prod".to_owned(), ..newcomer };
    assert_eq!(refused(&other, false).0, RefusalCode::WrongCluster);
}

#[test]
fn every_refusal_says_what_to_do() {
    let check = |hello: Hello, is_known, code, words: &str| {
        let (got, message) = refused(&hello, is_known);
        assert_eq!(got, code, "{message}");
        assert!(message.contains(words), "{message}");
    };
    let id = |n: u8| Some(Uuid::from_bytes([n; 16]));
    let versions = |min, max| VersionRange { min, max };
    check(
        Hello { cluster_name: "Prod".to_owned(), ..hello() },
        true,
        RefusalCode::WrongCluster,
        "\"Test Cluster\", you come from \"Prod\": set cluster_name and seeds",
    );
    check(
        Hello { cluster_id: id(0xdd), ..hello() },
        true,
        RefusalCode::WrongCluster,
        "empty data directory",
    );
    check(
        Hello { cluster_id: None, ..hello() },
        true,
        RefusalCode::WrongCluster,
        "restore it or start with an empty data directory",
    );
    check(
        Hello { versions: versions(2, 3), ..hello() },
        true,
        RefusalCode::NoCommonVersion,
        "speaks version 1 of the protocol between nodes, you speak 2 to 3: upgrade",
    );
    check(
        Hello { from: host(1), to: None, ..hello() },
        true,
        RefusalCode::DuplicateHostId,
        "start with an empty one",
    );
    check(
        Hello { from: host(1), to: None, incarnation: 7, ..hello() },
        true,
        RefusalCode::Yourself,
        "leave the own address out",
    );
    check(hello(), false, RefusalCode::UnknownHost, "to join again");
    check(
        Hello { to: Some(host(9)), ..hello() },
        true,
        RefusalCode::WrongHost,
        "look them up again",
    );
    for refusal in [Refusal::ShuttingDown, Refusal::Busy] {
        assert!(refusal.to_string().contains("try again"));
    }
}

#[test]
fn the_newest_common_version_is_chosen() {
    let range = |min, max| VersionRange { min, max };
    assert_eq!(range(1, 3).common(range(2, 5)), Some(3));
    assert_eq!(range(2, 5).common(range(1, 2)), Some(2));
    assert_eq!(range(1, 3).common(range(4, 5)), None);
    assert_eq!(range(4, 5).common(range(1, 3)), None);
}

#[test]
fn an_answer_from_somebody_else_is_not_used() {
    let (mine, hello) = (Identity { host_id: host(2), ..identity() }, hello());
    let ack = identity().ack(&judge(&identity(), &hello, true).unwrap());
    assert_eq!(mine.check_ack(&hello, &ack), Ok(()));
    let wrong = [
        HelloAck { version: 2, ..ack.clone() },
        HelloAck { host_id: host(8), ..ack.clone() },
        HelloAck { host_id: host(2), ..ack.clone() },
        HelloAck { cluster_id: Some(Uuid::from_bytes([1; 16])), ..ack.clone() },
        HelloAck { features: Features(3), ..ack.clone() },
    ];
    for ack in wrong {
        assert!(mine.check_ack(&hello, &ack).is_err(), "{ack:?}");
    }
}

#[test]
fn fields_that_later_versions_append_are_ignored() {
    let message = Handshake::Hello(hello());
    let mut bytes = payload_of(|out| message.encode(out));
    bytes.truncate(bytes.len() - 4);
    bytes.extend_from_slice(b"more");
    let length = u16::try_from(bytes.len() - 8).unwrap();
    bytes[6..8].copy_from_slice(&length.to_be_bytes());
    let checksum = codec::crc32(&bytes);
    bytes.extend_from_slice(&checksum.to_be_bytes());
    assert_eq!(Handshake::decode(&bytes), Ok(Some((message, bytes.len()))));
}

#[test]
fn strangers_are_recognised_by_their_first_bytes() {
    use crate::hello::Stranger;
    let check = |bytes: &[u8], expected| {
        assert_eq!(Handshake::decode(bytes), Err(HandshakeError::NotInternode(expected)));
    };
    check(&[0xca, 0x55, 0x2d, 0xfa], Stranger::Cassandra);
    check(&[0x16, 0x03, 0x01, 0x02], Stranger::Tls);
    check(&[0x05, 0x00, 0x00, 0x00, 0x05], Stranger::Cql);
    check(b"GET / HTTP/1.1", Stranger::Http);
    check(b"x", Stranger::Unknown);
    assert_eq!(Handshake::decode(b"HLN"), Ok(None));
}

#[test]
fn a_shard_that_the_sender_does_not_have_is_refused() {
    let bytes = |hello: Hello| payload_of(|out| Handshake::Hello(hello).encode(out));
    assert!(Handshake::decode(&bytes(Hello { source_shard: ShardId(1), ..hello() })).is_ok());
    assert!(Handshake::decode(&bytes(Hello { source_shard: ShardId(2), ..hello() })).is_err());
}
