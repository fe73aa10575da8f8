//! Golden bytes, round trips, damage, and refused nodes.

mod damage;
mod golden;
mod handshake;
mod round_trip;

use crate::*;
use data::clustering::{ClusteringBuf, Slice, Slices};
use data::command::{KeyRange, Partitions, ReadCommand, ResumePosition, RingBound};
use data::replica_page::WholePage;
use data::{DeletionTime, MutationBuilder};
use stdx::*;

fn host(n: u8) -> HostId {
    HostId(Uuid::from_bytes([n; 16]))
}

fn table() -> TableId {
    TableId(Uuid::from_bytes([0xab; 16]))
}

fn identity() -> Identity {
    Identity {
        cluster_id: Some(Uuid::from_bytes([0xcc; 16])),
        cluster_name: "Test Cluster".to_owned(),
        host_id: host(1),
        incarnation: 7,
        shard_count: 4,
        joining: false,
        versions: VersionRange::THIS,
        features: Features::LZ4,
    }
}

fn hello() -> Hello {
    Hello {
        versions: VersionRange::THIS,
        features: Features::LZ4,
        lane: Lane::Requests,
        joining: false,
        cluster_id: Some(Uuid::from_bytes([0xcc; 16])),
        cluster_name: "Test Cluster".to_owned(),
        from: host(2),
        to: Some(host(1)),
        incarnation: 3,
        source_shard: ShardId(1),
        shard_count: 2,
        destination_shard: ShardId(6),
    }
}

fn header(kind: FrameKind, verb: Verb) -> FrameHeader {
    FrameHeader {
        kind,
        verb: verb.number(),
        stream: 0x0102_0304_0506_0708,
        epoch: Epoch(42),
        deadline_micros: 2_000_000,
        trace: None,
        more: false,
    }
}

/// A mutation that deletes the partition `key`.
fn mutation(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut builder = MutationBuilder::new(&mut out, table(), 5, key);
    builder.deletion(DeletionTime {
        timestamp: TimestampMicros(1_000_001),
        local: DeletionSeconds(1),
    });
    builder.finish();
    out
}

fn point_read() -> ReadRequest {
    ReadRequest {
        digest: true,
        limits: ReadLimits { rows: 5000, bytes: 1 << 20, rows_per_partition: u32::MAX },
        command: ReadCommand {
            table: table(),
            partitions: Partitions::Key(b"key".to_vec()),
            slices: Slices(vec![Slice::prefix(ClusteringBuf::from_components([&b"a"[..]]).0)])
                .into(),
            reversed: true,
            columns: Some([ColumnId(3), ColumnId(9)].into()),
            now: DeletionSeconds(1_700_000_000),
            wants_static: true,
            resume: Some(ResumePosition {
                clustering: Some(ClusteringBuf::from_components([&b"ab"[..]]).0),
                rows_in_partition: 17,
            }),
            bypass_cache: false,
        },
    }
}

fn range_read() -> ReadRequest {
    ReadRequest {
        digest: false,
        limits: ReadLimits { rows: 100, bytes: 65_536, rows_per_partition: u32::MAX },
        command: ReadCommand {
            table: table(),
            partitions: Partitions::Range(KeyRange {
                start: RingBound::Key { token: Token(-5), key: b"k".to_vec(), after: true },
                end: RingBound::Token { token: Token(12), after: true },
            }),
            slices: Slices::all().into(),
            reversed: false,
            columns: None,
            now: DeletionSeconds(1),
            wants_static: false,
            resume: None,
            bypass_cache: false,
        },
    }
}

fn scan() -> ScanRequest<'static> {
    let ReadRequest { limits, command, .. } = range_read();
    ScanRequest {
        shard: ShardId(1),
        shards: 3,
        limits,
        left_out: 4 << 20,
        command,
        further: vec![KeyRange {
            start: RingBound::Token { token: Token(40), after: true },
            end: RingBound::Token { token: Token(50), after: true },
        }],
        work: b"work",
        state: Some(b"state"),
    }
}

fn scan_page() -> ScanPage<'static> {
    ScanPage {
        more: true,
        is_failed: false,
        end: Some(ScanEnd {
            token: Token(7),
            key: b"key".to_vec(),
            clustering: Some(ClusteringBuf::from_components([&b"c"[..]]).0),
            is_shown: true,
        }),
        cost: ScanCost {
            scanned: 9_001,
            partitions: 3,
            rows: 500,
            tombstones: 4,
            dropped_rows: 300,
            dropped_partitions: 1,
            dropped_bytes: 70_000,
        },
        state: Some(b"left"),
        items: b"items",
    }
}

fn filtered_read() -> FilteredRead<'static> {
    let ReadRequest { limits, command, .. } = range_read();
    FilteredRead { work: b"work", limits, command }
}

fn filtered_answer() -> FilteredAnswer<'static> {
    FilteredAnswer {
        digest: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
        whole: WholePage {
            live_rows: 500,
            tombstones: 4,
            bytes: 65_600,
            partitions: 30,
            dropped_rows: 490,
            dropped_partitions: 2,
            dropped_bytes: 60_000,
        },
        last_key: Some(b"key"),
        page: b"page",
    }
}

fn payload_of(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn frame_of(header: &FrameHeader, payload: &[u8], lz4: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = FrameEncoder::new(lz4, frame::PAYLOAD_BYTES_MAX);
    let length = encoder.encode(&mut out, header, |o| o.extend_from_slice(payload)).unwrap();
    assert_eq!(length, out.len());
    out
}
