//! Requests: every one in every version, and the errors of bad ones in Cassandra's words.

use super::*;

fn check_request(request: &Request<'_>, negotiated: Negotiated) {
    for (tracing, payload) in [(false, &[][..]), (true, &[("k", &b"v"[..])][..])] {
        let custom_payload =
            if negotiated.version < ProtocolVersion::V4 { &[][..] } else { payload };
        let options = RequestOptions { stream: 77, tracing, custom_payload, compression: None };
        let mut out = b"before".to_vec();
        encode_request(request, negotiated, &options, &mut out).unwrap();
        through(&out[6..], Side::Server, |frame| {
            assert_eq!(frame.header.stream, 77);
            let decoded = RequestFrame::decode(frame, negotiated).unwrap();
            assert_eq!(&decoded.request, request, "{negotiated:?}");
            assert_eq!(decoded.tracing, tracing);
            let sent = decoded
                .custom_payload
                .map(|map| map.iter().collect::<Vec<_>>())
                .unwrap_or_default();
            assert_eq!(sent.len(), custom_payload.len());
            // No prefix of a body is a message, except where all fields are optional or absent.
            for cut in 0..frame.body.len() {
                let short = Frame { body: &frame.body[..cut], ..*frame };
                assert!(
                    RequestFrame::decode(&short, negotiated).is_err(),
                    "{request:?} cut at {cut}"
                );
            }
        });
    }
}

#[test]
fn every_request_comes_back_in_every_version() {
    let mut startup = Vec::new();
    StringMap::encode(&mut startup, &[("CQL_VERSION", "3.4.7"), ("COMPRESSION", "lz4")]).unwrap();
    for negotiated in each_negotiated() {
        let (v4, v5) =
            (negotiated.version >= ProtocolVersion::V4, negotiated.version == ProtocolVersion::V5);
        let mut values = ValueList::new();
        values.push(BoundValue::Bytes(b"one")).unwrap();
        values.push(BoundValue::Null).unwrap();
        values.push(BoundValue::Bytes(b"")).unwrap();
        if v4 {
            values.push(BoundValue::Unset).unwrap();
        }
        let mut named = ValueList::new();
        named.push_named("ключ", BoundValue::Bytes(&[0xff; 3])).unwrap();
        named.push_named("b", BoundValue::Null).unwrap();
        let plain = QueryParameters::new(Consistency::LocalQuorum);
        let full = QueryParameters {
            values: values.values(),
            skip_metadata: true,
            page_size: Some(5000),
            paging_state: Some(b"state"),
            serial_consistency: Some(Consistency::LocalSerial),
            timestamp: Some(-1),
            keyspace: v5.then_some("ks"),
            now_in_seconds: v5.then_some(17),
            ..plain
        };
        let by_name = QueryParameters { values: named.values(), ..plain };
        let metadata_id = negotiated.has_metadata_id().then_some(&b"meta"[..]);
        let mut batch = BatchList::new();
        batch.push(BatchQuery::Text("INSERT …"), values.values()).unwrap();
        batch.push(BatchQuery::Prepared(&[7; 16]), BoundValues::EMPTY).unwrap();
        let batch_parameters = QueryParameters { timestamp: Some(5), ..plain };
        let statements = batch.statements();
        let kinds = EventKinds::NONE.with(EventKind::SchemaChange).with(EventKind::StatusChange);
        for request in [
            Request::Startup(StringMap::decode(&mut Reader::new(&startup, "STARTUP")).unwrap()),
            Request::Options,
            Request::Query { query: "SELECT ☃", parameters: plain },
            Request::Query { query: "SELECT 1", parameters: full },
            Request::Query { query: "SELECT 1", parameters: by_name },
            Request::Prepare { query: "SELECT", keyspace: None },
            Request::Prepare { query: "SELECT", keyspace: v5.then_some("ks") },
            Request::Execute { id: &[1; 16], result_metadata_id: metadata_id, parameters: full },
            Request::Batch(Batch {
                kind: BatchKind::Unlogged,
                statements,
                parameters: batch_parameters,
            }),
            Request::Register(kinds),
            Request::AuthResponse(Some(b"\0user\0pass")),
            Request::AuthResponse(None),
        ] {
            check_request(&request, negotiated);
        }
    }
}

/// INV-wire-2: what EXECUTE is decoded to lies in the frame, nothing of it is a copy.
#[test]
fn decoding_execute_copies_nothing() {
    for negotiated in each_negotiated() {
        let mut values = ValueList::new();
        values.push(BoundValue::Bytes(b"one")).unwrap();
        values.push(BoundValue::Bytes(b"another")).unwrap();
        let parameters = QueryParameters {
            values: values.values(),
            paging_state: Some(b"state"),
            ..QueryParameters::new(Consistency::One)
        };
        let known = (negotiated.version == ProtocolVersion::V5).then_some(&b"metadata"[..]);
        let request = Request::Execute { id: b"id", result_metadata_id: known, parameters };
        let options =
            RequestOptions { stream: 1, tracing: false, custom_payload: &[], compression: None };
        let mut out = Vec::new();
        encode_request(&request, negotiated, &options, &mut out).unwrap();
        through(&out, Side::Server, |frame| {
            let lies_in_frame = |part: &[u8]| frame.body.as_ptr_range().contains(&part.as_ptr());
            let decoded = RequestFrame::decode(frame, negotiated).unwrap();
            let Request::Execute { id, result_metadata_id, parameters } = decoded.request else {
                panic!("{:?}", decoded.request)
            };
            assert!(lies_in_frame(id) && result_metadata_id.is_none_or(lies_in_frame));
            assert!(parameters.paging_state.is_some_and(lies_in_frame));
            let mut seen = 0;
            for (_, value) in parameters.values.iter() {
                assert!(matches!(value, BoundValue::Bytes(bytes) if lies_in_frame(bytes)));
                seen += 1;
            }
            assert_eq!(seen, 2);
        });
    }
}

/// INV-wire-2: where the output has room, the rows are written into it and it does not move.
#[test]
fn encoding_rows_writes_into_the_output_only() {
    let version = ProtocolVersion::V5;
    let block = ColumnsBlock::encode(&columns(), version).unwrap();
    let mut out = Vec::with_capacity(1 << 20);
    let before = (out.capacity(), out.as_ptr());
    let extras = FrameExtras::default();
    let mut rows =
        RowsEncoder::begin(&mut out, version, 9, &extras, &block, MetadataMode::Skip).unwrap();
    for n in 0..1000_u32 {
        for _ in 0..block.count() {
            rows.value(&n.to_be_bytes()).unwrap();
        }
        rows.end_row();
    }
    rows.finish(Some(b"paging state")).unwrap();
    assert!(out.len() > 10_000);
    assert_eq!((out.capacity(), out.as_ptr()), before, "INV-wire-2");
}

#[test]
fn values_keep_names_nulls_and_unset_apart() {
    let mut list = ValueList::new();
    list.push_named("a", BoundValue::Unset).unwrap();
    list.push_named("b", BoundValue::Bytes(b"")).unwrap();
    let seen: Vec<_> = list.values().iter().collect();
    assert_eq!(seen, [(Some("a"), BoundValue::Unset), (Some("b"), BoundValue::Bytes(b""))]);
}

#[test]
fn clients_cannot_say_what_a_version_does_not_have() {
    let encode = |request: &Request<'_>, version| {
        let mut out = b"kept".to_vec();
        let result = encode_request(
            request,
            Negotiated::plain(version),
            &RequestOptions::default(),
            &mut out,
        );
        assert!(result.is_ok() || out == b"kept");
        result
    };
    let keyspace =
        QueryParameters { keyspace: Some("k"), ..QueryParameters::new(Consistency::One) };
    let query = Request::Query { query: "q", parameters: keyspace };
    assert!(encode(&query, ProtocolVersion::V4).is_err());
    assert!(encode(&query, ProtocolVersion::V5).is_ok());
    let mut list = ValueList::new();
    list.push(BoundValue::Unset).unwrap();
    let unset = QueryParameters { values: list.values(), ..QueryParameters::new(Consistency::One) };
    let query = Request::Query { query: "q", parameters: unset };
    assert!(encode(&query, ProtocolVersion::V3).is_err());
    assert!(encode(&query, ProtocolVersion::V4).is_ok());
    let mut batch = BatchList::new();
    for _ in 0..2 {
        batch.clear();
        batch.push(BatchQuery::Text("q"), list.values()).unwrap();
        let statements = batch.statements();
        assert_eq!(statements.len(), 1);
        let parameters = QueryParameters::new(Consistency::One);
        let query = Request::Batch(Batch { kind: BatchKind::Unlogged, statements, parameters });
        assert!(encode(&query, ProtocolVersion::V3).is_err());
        assert!(encode(&query, ProtocolVersion::V4).is_ok());
    }
    list.clear();
    assert!(list.values().is_empty());
}

/// Body of a request of Cassandra's v4, decoded; the error's text.
fn refusal(opcode: Opcode, version: ProtocolVersion, flags: u8, body: &[u8]) -> String {
    let header = FrameHeader { version, flags, stream: 2, opcode };
    let error =
        RequestFrame::decode(&Frame { header, body }, Negotiated::plain(version)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ProtocolError);
    error.to_string()
}

#[test]
fn bad_requests_are_refused_in_cassandras_words() {
    let v4 = ProtocolVersion::V4;
    let query = |tail: &[u8]| [&[0, 0, 0, 1, b'q'][..], tail].concat();
    let short = "Not enough bytes to read an UTF8 serialized string preceded by its 4 bytes length";
    assert_eq!(refusal(Opcode::Query, v4, 0, b"\0\0\0\x10SEL"), short);
    assert_eq!(refusal(Opcode::Query, v4, 0, b"\xff\xff\xff\xff\0\x01\0"), short);
    assert_eq!(
        refusal(Opcode::Query, v4, 0, &query(b"\0\x77\0")),
        "Unknown code 119 for a consistency level"
    );
    let timestamp = query(b"\0\x01\x20\x80\0\0\0\0\0\0\0");
    assert_eq!(
        refusal(Opcode::Query, v4, 0, &timestamp),
        "Out of bound timestamp, must be in [-9223372036854775807, 9223372036854775807] (got -9223372036854775808)"
    );
    let value = query(b"\0\x01\x01\0\x01\xff\xff\xff\xfd");
    assert_eq!(refusal(Opcode::Query, v4, 0, &value), "Invalid ByteBuf length -3");
    assert_eq!(
        refusal(Opcode::Batch, v4, 0, b"\0\0\x01\x02"),
        "Invalid query kind in BATCH messages. Must be 0 or 1 but got 2"
    );
    assert_eq!(refusal(Opcode::Batch, v4, 0, b"\x07\0\0\0\x01\0"), "Invalid BATCH message type 7");
    assert_eq!(
        refusal(Opcode::Register, v4, 0, b"\0\x01\0\x03FOO"),
        "Invalid value 'FOO' for Type"
    );
    assert_eq!(
        refusal(Opcode::Options, ProtocolVersion::V3, flags::CUSTOM_PAYLOAD, b"\0\0"),
        "Received frame with CUSTOM_PAYLOAD flag for native protocol version < 4"
    );
    assert_eq!(refusal(Opcode::Credentials, v4, 0, b""), "Unsupported message");
    let bytes = "Not enough bytes to read a byte array preceded by its 2 bytes length";
    assert_eq!(refusal(Opcode::Execute, v4, 0, b"\0\x10x"), bytes);
}

#[test]
fn v3_reads_every_negative_length_as_null_and_bytes_behind_a_message_are_ignored() {
    let body = b"\0\0\0\x01q\0\x01\x01\0\x01\xff\xff\xff\xfezzzz";
    let header =
        FrameHeader { version: ProtocolVersion::V3, flags: 0, stream: 2, opcode: Opcode::Query };
    let decoded =
        RequestFrame::decode(&Frame { header, body }, Negotiated::plain(ProtocolVersion::V3))
            .unwrap();
    let Request::Query { parameters, .. } = decoded.request else { panic!("a query") };
    assert_eq!(parameters.values.values().collect::<Vec<_>>(), [BoundValue::Null]);
}
