//! ERROR frames for each protocol version when replicas fail, byte for byte.

use super::*;
use crate::tests::{V3, V4, V5, several_members};
use cql_wire::{Consistency, FrameDecoder, Side};
use request::{ReplicaError, RequestError};
use smallvec::smallvec;
use stdx::HostId;

fn host(n: u128) -> HostId {
    HostId(Uuid::from_u128(n))
}

/// The body of the ERROR frame.
fn body(error: RequestError, asked: Consistency, version: ProtocolVersion) -> Vec<u8> {
    let failure = Failure::request(error, asked, &several_members(3));
    let own = "127.0.0.1:7000".parse().unwrap();
    encoded(&failure, version, own)
}

fn encoded(failure: &Failure, version: ProtocolVersion, node: SocketAddr) -> Vec<u8> {
    let mut out = Vec::new();
    let about = ErrorFrame { version, stream: 1, tracing_id: None, warnings: &[], node };
    encode(failure, &mut out, &about).unwrap();
    let mut decoder = FrameDecoder::new(Side::Client, 1 << 20);
    let frame = decoder.next(&mut out.as_slice()).unwrap().unwrap();
    frame.body.to_vec()
}

fn expect(code: i32, text: &str, fields: &[u8]) -> Vec<u8> {
    let mut out = code.to_be_bytes().to_vec();
    out.extend_from_slice(&u16::try_from(text.len()).unwrap().to_be_bytes());
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(fields);
    out
}

#[test]
fn too_few_live_replicas() {
    let error = RequestError::Unavailable {
        consistency: cluster::Consistency::Quorum,
        required: 2,
        alive: 1,
    };
    let fields = [&[0, 4][..], &[0, 0, 0, 2], &[0, 0, 0, 1]].concat();
    for version in [V3, V4, V5] {
        assert_eq!(
            body(error.clone(), Consistency::Quorum, version),
            expect(0x1000, "Cannot achieve consistency level QUORUM", &fields)
        );
    }
}

#[test]
fn timeouts_carry_what_was_received() {
    let write = RequestError::WriteTimeout {
        consistency: cluster::Consistency::All,
        received: 2,
        block_for: 3,
        write_type: request::WriteType::UnloggedBatch,
    };
    let read = RequestError::ReadTimeout {
        consistency: cluster::Consistency::Two,
        received: 1,
        block_for: 2,
        data_present: true,
    };
    for version in [V3, V4, V5] {
        let mut fields = [&[0, 5][..], &[0, 0, 0, 2], &[0, 0, 0, 3], &[0, 14]].concat();
        fields.extend_from_slice(b"UNLOGGED_BATCH");
        assert_eq!(
            body(write.clone(), Consistency::All, version),
            expect(0x1100, "Operation timed out - received only 2 responses.", &fields)
        );
        let fields = [&[0, 2][..], &[0, 0, 0, 1], &[0, 0, 0, 2], &[1]].concat();
        assert_eq!(
            body(read.clone(), Consistency::Two, version),
            expect(0x1200, "Operation timed out - received only 1 responses.", &fields)
        );
    }
}

#[test]
fn failures_name_who_failed_and_why() {
    let failures =
        smallvec![(host(3), ReplicaError::IncompatibleSchema), (host(2), ReplicaError::Unknown),];
    let write = RequestError::WriteFailure {
        consistency: cluster::Consistency::Quorum,
        received: 1,
        block_for: 2,
        failures,
        write_type: request::WriteType::Simple,
    };
    let text = "Operation failed - received 1 responses and 2 failures: INCOMPATIBLE_SCHEMA from \
                /127.0.0.3:7000, UNKNOWN from /127.0.0.2:7000";
    let numbers = [&[0, 4][..], &[0, 0, 0, 1], &[0, 0, 0, 2], &[0, 0, 0, 2]].concat();
    let simple = [&[0, 6][..], b"SIMPLE"].concat();
    let reasons = [4, 127, 0, 0, 3, 0, 3, 4, 127, 0, 0, 2, 0, 0];
    let asked = Consistency::Quorum;
    assert_eq!(
        body(write.clone(), asked, V5),
        expect(0x1500, text, &[&numbers[..], &reasons, &simple].concat())
    );
    assert_eq!(
        body(write.clone(), asked, V4),
        expect(0x1500, text, &[&numbers[..], &simple].concat())
    );
    // v3 has no failures.
    let fields = [&numbers[..10], &simple].concat();
    assert_eq!(body(write, asked, V3), expect(0x1100, text, &fields));

    let read = RequestError::ReadFailure {
        consistency: cluster::Consistency::One,
        received: 0,
        block_for: 1,
        failures: smallvec![(host(1), ReplicaError::TooManyTombstones)],
        data_present: false,
    };
    let text = "Operation failed - received 0 responses and 1 failures: READ_TOO_MANY_TOMBSTONES \
                from /127.0.0.1:7000";
    let numbers = [&[0, 1][..], &[0, 0, 0, 0], &[0, 0, 0, 1], &[0, 0, 0, 1]].concat();
    assert_eq!(
        body(read.clone(), Consistency::One, V5),
        expect(0x1300, text, &[&numbers[..], &[4, 127, 0, 0, 1, 0, 1], &[0]].concat())
    );
    assert_eq!(
        body(read, Consistency::One, V4),
        expect(0x1300, text, &[&numbers[..], &[0]].concat())
    );
}

#[test]
fn a_serial_read_is_told_its_own_level_and_the_batch_log_its_own() {
    let serial = RequestError::ReadTimeout {
        consistency: cluster::Consistency::LocalQuorum,
        received: 1,
        block_for: 2,
        data_present: false,
    };
    let bytes = body(serial, Consistency::LocalSerial, V4);
    assert_eq!(bytes[bytes.len() - 11..][..2], [0, 9]);
    let log = RequestError::WriteTimeout {
        consistency: cluster::Consistency::One,
        received: 0,
        block_for: 1,
        write_type: request::WriteType::BatchLog,
    };
    let bytes = body(log, Consistency::Quorum, V4);
    let tail = [&[0, 1][..], &[0; 4], &[0, 0, 0, 1], &[0, 9], b"BATCH_LOG"].concat();
    assert!(bytes.ends_with(&tail), "{bytes:?}");
}

#[test]
fn a_conditional_write_of_unknown_outcome() {
    let told = |version| {
        let failed = CasFailed { consistency: Consistency::Serial, received: 1, block_for: 2 };
        let own = "127.0.0.1:7000".parse().unwrap();
        encoded(&Failure::CasUnknown(failed), version, own)
    };
    let text = "CAS operation result is unknown - proposal accepted by 1 but not a quorum.";
    let fields = [&[0, 8][..], &[0, 0, 0, 1], &[0, 0, 0, 2]].concat();
    assert_eq!(told(V5), expect(0x1700, text, &fields));
    // Older versions have no code for it.
    let timeout = [&fields[..], &[0, 3], b"CAS"].concat();
    for version in [V3, V4] {
        assert_eq!(told(version), expect(0x1100, text, &timeout));
    }
}

#[test]
fn a_conditional_write_without_an_answer_in_time() {
    let error = RequestError::WriteTimeout {
        consistency: cluster::Consistency::Serial,
        received: 1,
        block_for: 2,
        write_type: request::WriteType::Cas,
    };
    let text = "CAS operation timed out: received 1 of 2 required responses after 0 contention \
                retries";
    // The level is the serial one, whatever the commit's is.
    let fields = [&[0, 8][..], &[0, 0, 0, 1], &[0, 0, 0, 2], &[0, 3], b"CAS"].concat();
    let asked = Consistency::Quorum;
    assert_eq!(body(error.clone(), asked, V4), expect(0x1100, text, &fields));
    let with_contentions = [&fields[..], &[0, 0]].concat();
    assert_eq!(body(error, asked, V5), expect(0x1100, text, &with_contentions));
}
