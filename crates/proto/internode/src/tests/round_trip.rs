//! Whatever is encoded comes back.

use super::*;
use proptest::prelude::*;

fn clusterings() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5), 0..4).prop_map(|components| {
        ClusteringBuf::from_components(components.iter().map(Vec::as_slice)).0
    })
}

fn slices() -> impl Strategy<Value = Slices> {
    let slice = (clusterings(), any::<bool>(), clusterings(), any::<bool>()).prop_map(
        |(start, start_after, end, end_after)| Slice { start, start_after, end, end_after },
    );
    prop::collection::vec(slice, 0..4).prop_map(Slices)
}

fn partitions() -> impl Strategy<Value = Partitions> {
    let key = || prop::collection::vec(any::<u8>(), 0..300);
    prop_oneof![
        key().prop_map(Partitions::Key),
        (any::<i64>(), any::<i64>(), key(), any::<bool>()).prop_map(|(a, b, key, after)| {
            let start = RingBound::Token { token: Token(a.min(b)), after: false };
            let end = RingBound::Key { token: Token(a.max(b)), key, after };
            Partitions::Range(KeyRange { start, end })
        }),
    ]
}

fn reads() -> impl Strategy<Value = ReadRequest> {
    let columns = prop::option::of(prop::collection::vec(any::<u16>().prop_map(ColumnId), 0..6));
    let resume = prop::option::of((prop::option::of(clusterings()), any::<u32>()));
    let flags = any::<(bool, bool, bool, bool)>();
    (partitions(), slices(), columns, resume, flags, any::<(u64, u64, i64)>()).prop_map(
        |(partitions, slices, columns, resume, flags, numbers)| {
            let (digest, reversed, wants_static, bypass_cache) = flags;
            ReadRequest {
                digest,
                limits: ReadLimits {
                    rows: numbers.0,
                    bytes: numbers.1,
                    rows_per_partition: u32::try_from(numbers.0 >> 33).unwrap().max(1),
                },
                command: ReadCommand {
                    table: table(),
                    partitions,
                    slices: slices.into(),
                    reversed,
                    columns: columns.map(Into::into),
                    now: DeletionSeconds(numbers.2),
                    wants_static,
                    resume: resume.map(|(clustering, rows_in_partition)| ResumePosition {
                        clustering,
                        rows_in_partition,
                    }),
                    bypass_cache,
                },
            }
        },
    )
}

proptest! {
    #[test]
    fn read_requests_come_back(read in reads()) {
        let bytes = payload_of(|o| read.encode(o));
        let again = ReadRequest::decode(&bytes).unwrap();
        prop_assert_eq!(format!("{read:?}"), format!("{again:?}"));
    }

    #[test]
    fn scans_come_back(
        read in reads(), shards in 1u16..300, left_out: u64,
        work in prop::collection::vec(any::<u8>(), 0..40),
        state in prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
    ) {
        let mut command = read.command;
        let start = RingBound::Token { token: Token(-9), after: true };
        let end = RingBound::Key { token: Token(9), key: work.clone(), after: false };
        command.partitions = Partitions::Range(KeyRange { start, end });
        let shard = ShardId(shards / 2);
        let (further, limits) = (scan().further, read.limits);
        let request = ScanRequest {
            shard, shards, limits, left_out, command, further, work: &work, state: state.as_deref(),
        };
        let bytes = payload_of(|o| request.encode(o));
        let again = ScanRequest::decode(&bytes).unwrap();
        prop_assert_eq!(format!("{request:?}"), format!("{again:?}"));
        let page = ScanPage { state: state.as_deref(), items: &work, ..scan_page() };
        let bytes = payload_of(|o| page.encode(o));
        prop_assert_eq!(ScanPage::decode(&bytes).unwrap(), page);
    }

    #[test]
    fn filtered_reads_and_pages_come_back(
        read in reads(), work in prop::collection::vec(any::<u8>(), 0..40),
        last_key in prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
        digest: u128, counts: (u32, u32, u64, u64, u64, u64, u64),
    ) {
        let (limits, command) = (read.limits, read.command);
        let request = FilteredRead { work: &work, limits, command };
        let bytes = payload_of(|o| request.encode(o));
        let is_range = matches!(request.command.partitions, Partitions::Range(_));
        match FilteredRead::decode(&bytes) {
            Ok(again) => prop_assert_eq!(format!("{request:?}"), format!("{again:?}")),
            Err(_) => prop_assert!(!is_range || limits.rows_per_partition != u32::MAX),
        }
        let (live_rows, tombstones, bytes, partitions, rows, dropped, dropped_bytes) = counts;
        let whole = WholePage {
            live_rows, tombstones, bytes, partitions,
            dropped_rows: rows, dropped_partitions: dropped, dropped_bytes,
        };
        let last_key = last_key.as_deref();
        let answer = FilteredAnswer { digest, whole, last_key, page: &work };
        let bytes = payload_of(|o| answer.encode(o));
        prop_assert_eq!(FilteredAnswer::decode(&bytes).unwrap(), answer);
    }

    #[test]
    fn frames_come_back_one_after_the_other_however_they_are_cut(
        payloads in prop::collection::vec((prop::collection::vec(0u8..4, 0..2000), any::<u64>(), any::<bool>()), 1..6),
        lz4: bool,
        piece in 1usize..700,
    ) {
        let mut encoder = FrameEncoder::new(lz4, 4000);
        let mut bytes = Vec::new();
        let mut sent = Vec::new();
        for (payload, number, traced) in payloads {
            let mut head = header(FrameKind::Request, Verb::Echo);
            head.stream = number;
            head.epoch = Epoch(number / 3);
            head.trace = traced.then(|| Uuid::from_bytes([5; 16]));
            encoder.encode(&mut bytes, &head, |o| o.extend_from_slice(&payload)).unwrap();
            sent.push((head, payload));
        }
        let mut decoder = FrameDecoder::new(lz4, 4000);
        let (mut received, mut input) = (Vec::new(), Vec::new());
        for chunk in bytes.chunks(piece) {
            input.extend_from_slice(chunk);
            while let Some((frame, length)) = decoder.next(&input).unwrap() {
                received.push((frame.header, frame.payload.to_vec()));
                input.drain(..length);
            }
        }
        prop_assert!(input.is_empty());
        prop_assert_eq!(sent, received);
    }

    #[test]
    fn hellos_come_back(
        name in "\\PC{0,40}", numbers: (u16, u16, u64, u64), ids: (u128, u128, u128), lane in 0u8..3,
    ) {
        let id = |n: u128| Uuid::from_u128(n);
        let hello = Hello {
            versions: VersionRange { min: numbers.0.min(numbers.1), max: numbers.0.max(numbers.1) },
            features: Features(numbers.2),
            lane: [Lane::Requests, Lane::Bulk, Lane::Probe][usize::from(lane)],
            joining: numbers.3 & 1 != 0,
            cluster_id: (ids.0 % 3 != 0).then(|| id(ids.0)),
            cluster_name: name,
            from: HostId(id(ids.1 | 1)),
            to: (ids.2 % 3 != 0).then(|| HostId(id(ids.2))),
            incarnation: numbers.3,
            source_shard: ShardId(numbers.0 / 2),
            shard_count: (numbers.0 / 2) + 1,
            destination_shard: ShardId(numbers.1),
        };
        let message = Handshake::Hello(hello);
        let bytes = payload_of(|o| message.encode(o));
        prop_assert_eq!(Handshake::decode(&bytes), Ok(Some((message, bytes.len()))));
    }

    #[test]
    fn mutations_and_hints_come_back(
        key in prop::collection::vec(any::<u8>(), 1..400), count in 0usize..=255, micros: i64, grace: u32,
    ) {
        let bytes = mutation(&key);
        let flags = MutationFlags::READ_REPAIR.union(MutationFlags::BATCH_REPLAY);
        let plain = Mutation { flags, bytes: &bytes };
        let encoded = payload_of(|o| plain.encode(o));
        let decoded = Mutation::decode(&encoded).unwrap();
        prop_assert_eq!(decoded, plain);
        prop_assert_eq!(data::MutationRef::parse(decoded.bytes, 1).unwrap().key, &key[..]);
        let targets = (0..count).map(|n| ForwardTarget { host: host(9), shard: ShardId(n as u16) });
        let forward = MutationForward { targets: targets.collect(), mutation: plain };
        let encoded = payload_of(|o| forward.encode(o));
        prop_assert_eq!(MutationForward::decode(&encoded).unwrap(), forward);
        let hint = Hint {
            target: host(4),
            created_at: WallMicros(micros),
            gc_grace_seconds: grace,
            bytes: &bytes,
        };
        let encoded = payload_of(|o| hint.encode(o));
        prop_assert_eq!(Hint::decode(&encoded).unwrap(), hint);
    }

    #[test]
    fn error_replies_and_acknowledgements_come_back(
        code in 1u16..20, number: u64, text in "\\PC{0,60}", target: Option<u8>,
    ) {
        let error = match code {
            1 => ErrorReply::Overloaded,
            2 => ErrorReply::UnknownTable(table()),
            3 => ErrorReply::EpochTooOld { needed: Epoch(number) },
            4 => ErrorReply::EpochTooNew { known: Epoch(number) },
            5 => ErrorReply::TombstoneOverwhelming { scanned: number },
            6 => ErrorReply::DiskFull,
            7 => ErrorReply::Stopping,
            8 => ErrorReply::Corrupt,
            9 => ErrorReply::Invalid(text),
            10 => ErrorReply::Timeout,
            11 => ErrorReply::UnknownVerb(number as u16),
            12 => ErrorReply::Internal(text),
            13 => ErrorReply::IndexNotAvailable(table().0),
            other => ErrorReply::Other(other),
        };
        prop_assert_eq!(error.code(), code);
        let bytes = payload_of(|o| error.encode(o));
        prop_assert_eq!(ErrorReply::decode(&bytes), Ok(error.clone()));
        for result in [Ok(()), Err(error)] {
            let ack = ForwardAck { target, result };
            let bytes = payload_of(|o| ack.encode(o));
            prop_assert_eq!(ForwardAck::decode(&bytes), Ok(ack));
        }
    }

    #[test]
    fn the_fuzz_functions_take_anything(data in prop::collection::vec(any::<u8>(), 0..200)) {
        run_all(&data);
    }

    #[test]
    fn the_fuzz_functions_take_damaged_messages(at: prop::sample::Index, value: u8, which in 0usize..8) {
        let mut data = match which {
            0 => payload_of(|o| Handshake::Hello(hello()).encode(o)),
            1 => payload_of(|o| point_read().encode(o)),
            2 => payload_of(|o| range_read().encode(o)),
            3 => payload_of(|o| scan().encode(o)),
            4 => payload_of(|o| scan_page().encode(o)),
            5 => payload_of(|o| filtered_read().encode(o)),
            6 => payload_of(|o| filtered_answer().encode(o)),
            _ => frame_of(&header(FrameKind::Request, Verb::Read), &payload_of(|o| point_read().encode(o)), false),
        };
        let at = at.index(data.len());
        data[at] = value;
        run_all(&data);
    }
}

fn run_all(data: &[u8]) {
    fuzz::fuzz_internode_handshake(data);
    fuzz::fuzz_internode_frames(data);
    fuzz::fuzz_internode_payload(data);
    fuzz::fuzz_internode_read(data);
    fuzz::fuzz_internode_scan(data);
    fuzz::fuzz_internode_filtered(data);
    fuzz::fuzz_internode_index_search(data);
    fuzz::fuzz_internode_vector_search(data);
}

/// The comparator of a table with one `int` clustering column.
fn comparator() -> data::ClusteringComparator {
    use schema::{Column, ColumnKind, Table, TableKind, TableOptions};
    let column = |id, name: &str, kind| Column {
        id: ColumnId(id),
        name: name.into(),
        ty: types::CqlType::Int,
        kind,
    };
    data::ClusteringComparator::for_table(&Table {
        id: table(),
        keyspace: "ks".into(),
        name: "t".into(),
        kind: TableKind::Regular,
        columns: vec![
            column(0, "pk", ColumnKind::PartitionKey(0)),
            column(1, "ck", ColumnKind::Clustering { position: 0, reversed: false }),
        ],
        partition_key_count: 1,
        clustering_count: 1,
        static_count: 0,
        options: TableOptions::default(),
        dropped: Default::default(),
        masks: Default::default(),
        indexes: Default::default(),
        version: 1,
        next_column_id: 2,
    })
}

#[test]
fn slices_are_checked_against_the_table() {
    let comparator = comparator();
    let int = |n: i32| ClusteringBuf::from_components([&n.to_be_bytes()[..]]).0;
    let slice = |from: i32, to: i32| Slice {
        start: int(from),
        start_after: false,
        end: int(to),
        end_after: true,
    };
    let fits = |slices: Vec<Slice>, resume: Option<Vec<u8>>| {
        let mut read = range_read();
        read.command.slices = Slices(slices).into();
        read.command.resume =
            resume.map(|c| ResumePosition { clustering: Some(c), rows_in_partition: 1 });
        read.check_slices(&comparator)
    };
    assert!(fits(vec![Slice::all()], None));
    assert!(fits(vec![slice(1, 2), slice(3, 4)], Some(int(1))));
    assert!(!fits(vec![slice(3, 4), slice(1, 2)], None), "descending");
    assert!(!fits(vec![slice(1, 3), slice(3, 4)], None), "overlapping");
    assert!(!fits(vec![slice(2, 1)], None), "upside down");
    let two = ClusteringBuf::from_components([&[0; 4][..], &[0; 4]]).0;
    assert!(!fits(vec![Slice::prefix(two.clone())], None), "more components than columns");
    assert!(!fits(vec![Slice::all()], Some(two)));
    assert!(!fits(vec![Slice::all()], Some(Vec::new())), "fewer components than columns");
}
