//! Mutated input never panics.

use testkit::mutate;

use super::errors::all_errors;
use super::streams::{client_frames, streams};
use super::*;

/// First byte for the fuzz functions: version, compression.
fn choice(version: ProtocolVersion, compression: Option<Compression>) -> u8 {
    let compressed = match compression {
        None => 0,
        Some(Compression::Lz4) => 0x10,
        Some(Compression::Snappy) => 0x20,
    };
    compressed | (version.number() - 3)
}

#[test]
fn any_bytes_from_a_client_never_panic() {
    let mut corpus = Vec::new();
    for (version, compression) in streams() {
        let (bytes, _) = client_frames(Negotiated::plain(version), compression, &[3, 200, 9]);
        corpus.push([&[choice(version, compression)][..], &bytes].concat());
        corpus.push([&[choice(version, compression) | 0x80][..], &bytes].concat());
    }
    mutate(&corpus, fuzz::fuzz_server_stream);
}

#[test]
fn any_bytes_from_a_server_never_panic() {
    let mut corpus = Vec::new();
    for version in ProtocolVersion::ALL {
        let mut frames = Vec::new();
        let extras = FrameExtras { warnings: &["w"], ..FrameExtras::default() };
        for error in all_errors() {
            let write = |out: &mut Vec<u8>| response::put_error(out, version, &error, "m");
            encode_frame(&mut frames, version, 1, Opcode::Error, &extras, write).unwrap();
        }
        let mut bytes = vec![choice(version, None)];
        if version == ProtocolVersion::V5 {
            pack_segments(&frames, false, &mut bytes)
        } else {
            bytes.extend(frames)
        }
        corpus.push(bytes);
    }
    mutate(&corpus, fuzz::fuzz_client_stream);
}

#[test]
fn any_request_body_never_panics() {
    let mut corpus = Vec::new();
    for version in ProtocolVersion::ALL {
        let mut values = ValueList::new();
        values.push_named("n", BoundValue::Bytes(b"value")).unwrap();
        let parameters = QueryParameters {
            values: values.values(),
            page_size: Some(1),
            paging_state: Some(b"p"),
            serial_consistency: Some(Consistency::Serial),
            timestamp: Some(1),
            ..QueryParameters::new(Consistency::One)
        };
        let mut batch = BatchList::new();
        batch.push(BatchQuery::Text("q"), values.values()).unwrap();
        batch.push(BatchQuery::Prepared(b"id"), values.values()).unwrap();
        let statements = batch.statements();
        for request in [
            Request::Query { query: "query", parameters },
            Request::Execute { id: b"id", result_metadata_id: Some(b"m"), parameters },
            Request::Batch(Batch { kind: BatchKind::Logged, statements, parameters }),
            Request::Prepare { query: "p", keyspace: None },
            Request::Register(EventKinds::NONE.with(EventKind::StatusChange)),
        ] {
            let mut out = Vec::new();
            encode_request(
                &request,
                Negotiated::plain(version),
                &RequestOptions::default(),
                &mut out,
            )
            .unwrap();
            corpus.push(
                [&[choice(version, None), request.opcode().number(), 0][..], &out[9..]].concat(),
            );
        }
    }
    mutate(&corpus, fuzz::fuzz_request_body);
}

#[test]
fn any_response_body_never_panics() {
    let mut corpus = Vec::new();
    for version in ProtocolVersion::ALL {
        let negotiated = Negotiated::plain(version);
        let block = ColumnsBlock::encode(&columns(), version).unwrap();
        let prepared = PreparedResponse {
            id: b"id",
            result_metadata_id: b"m",
            markers: &block,
            partition_key_indexes: &[0],
            extra_flags: 0,
            columns: Some(&block),
        };
        let mut body = vec![choice(version, None), Opcode::Result.number(), 0];
        response::put_prepared(&mut body, negotiated, &prepared).unwrap();
        corpus.push(body);
        let few = [ColumnSpec { keyspace: "k", table: "t", name: "c", kind: WireType::Int }];
        let block = ColumnsBlock::encode(&few, version).unwrap();
        let mut out = Vec::new();
        let extras = FrameExtras::default();
        let mut rows =
            RowsEncoder::begin(&mut out, version, 1, &extras, &block, MetadataMode::Full).unwrap();
        for _ in 0..3 {
            rows.value(b"abcd").unwrap();
            rows.end_row();
        }
        rows.finish(Some(b"next")).unwrap();
        corpus.push([&[choice(version, None), Opcode::Result.number(), 0][..], &out[9..]].concat());
        let event = Event::StatusChange { up: true, address: "127.0.0.1:9042".parse().unwrap() };
        let mut body = vec![choice(version, None), Opcode::Event.number(), 0];
        response::put_event(&mut body, version, &event).unwrap();
        corpus.push(body);
    }
    mutate(&corpus, fuzz::fuzz_response_body);
}
