//! Texts of failures.

use super::*;
use crate::tests::several_members;
use smallvec::smallvec;
use stdx::HostId;

fn host(n: u128) -> HostId {
    HostId(Uuid::from_u128(n))
}

#[test]
fn failures_say_what_their_reason_does_not() {
    let failed = |failures| RequestError::WriteFailure {
        consistency: cluster::Consistency::Quorum,
        received: 0,
        block_for: 2,
        failures,
        write_type: request::WriteType::Simple,
    };
    let snapshot = several_members(3);
    let node = "127.0.0.1:7000".parse().unwrap();
    for (error, text) in [
        (ReplicaError::DiskFull, "UNKNOWN from /127.0.0.2:7000 (its disk is full)"),
        (ReplicaError::Corrupt, "UNKNOWN from /127.0.0.2:7000 (a data file is damaged)"),
        (ReplicaError::Overloaded, "UNKNOWN from /127.0.0.2:7000 (it is overloaded)"),
        (ReplicaError::Failed, "UNKNOWN from /127.0.0.2:7000 (its commit log or a file failed)"),
        (ReplicaError::Refused, "UNKNOWN from /127.0.0.2:7000 (it refused the request)"),
        (ReplicaError::Unknown, "UNKNOWN from /127.0.0.2:7000"),
        (ReplicaError::Timeout, "TIMEOUT from /127.0.0.2:7000"),
    ] {
        let failures = smallvec![(host(2), error), (host(3), ReplicaError::DiskFull)];
        let failure = Failure::request(failed(failures), Consistency::Quorum, &snapshot);
        let expected = format!(
            "Operation failed - received 0 responses and 2 failures: {text}, UNKNOWN from \
             /127.0.0.3:7000 (its disk is full)"
        );
        assert_eq!(failure.message(node), expected);
    }
    let id = Uuid::from_bytes([7; 16]);
    let alone = "Operation failed - received 0 responses and 1 failures: ";
    let error = StoreError::DiskFull { detail: "at /secret".to_owned() };
    let failure = Failure::write(&error, Consistency::One, WriteType::Simple, id);
    let expected = format!("{alone}UNKNOWN from /127.0.0.1:7000 (its disk is full)");
    assert_eq!(failure.message(node), expected);
    let error = StoreError::Corrupt { file: "/secret".to_owned(), what: "it".to_owned() };
    let failure = Failure::read(&error, Consistency::One, id);
    let expected = format!("{alone}UNKNOWN from /127.0.0.1:7000 (a data file is damaged)");
    assert_eq!(failure.message(node), expected);
    // The file is for the node only, which names it at a start.
    assert_eq!(failure.store_error(), Some(&error));
    let error = StoreError::TombstoneFailure { scanned: 7 };
    let failure = Failure::read(&error, Consistency::One, id);
    assert_eq!(
        failure.message(node),
        format!("{alone}READ_TOO_MANY_TOMBSTONES from /127.0.0.1:7000")
    );
}

#[test]
fn this_nodes_own_errors_keep_their_codes() {
    let of = |error| {
        let id = |_: &StoreError| Uuid::nil();
        let (level, kind) = (Consistency::One, WriteType::Simple);
        Failure::replicated(error, level, kind, &several_members(2), id).code()
    };
    assert_eq!(of(ReplicatedError::Overloaded("x".to_owned())), ErrorCode::Overloaded);
    assert_eq!(of(ReplicatedError::Store(StoreError::Stopping)), ErrorCode::Overloaded);
    let invalid = StoreError::Invalid("x".to_owned());
    assert_eq!(of(ReplicatedError::Store(invalid)), ErrorCode::WriteFailure);
}
