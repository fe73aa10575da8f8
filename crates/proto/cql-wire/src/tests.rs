//! Whole messages through encoder, segments, decoder: every message in every version, frames of a real Cassandra,
//! streams torn at every byte, limits, and mutated input.

use crate::decoder::{FrameDecoder, Side};
use crate::event::{
    Event, EventKind, EventKinds, SchemaChange, SchemaChangeKind, SchemaTarget, TopologyChangeKind,
};
use crate::fuzz;
use crate::request::{BatchList, RequestOptions, encode_request};
use crate::response::{self, PreparedResponse, encode_frame, encode_frame_error};
use crate::rows::{MetadataMode, RowsEncoder};
use crate::*;
use codec::{Reader, Writer};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use stdx::Uuid;

const MAX: usize = 16 << 20;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// One frame through a decoder that takes plain frames.
fn through<T>(bytes: &[u8], side: Side, see: impl FnOnce(&Frame<'_>) -> T) -> T {
    let mut decoder = FrameDecoder::new(side, MAX);
    let mut input = bytes;
    let seen = see(&decoder.next(&mut input).unwrap().expect("a whole frame"));
    assert!(input.is_empty());
    assert_eq!(decoder.next(&mut input), Ok(None));
    seen
}

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

fn each_negotiated() -> Vec<Negotiated> {
    let mut all: Vec<Negotiated> =
        ProtocolVersion::ALL.into_iter().map(Negotiated::plain).collect();
    all.push(Negotiated {
        metadata_id: true,
        lwt_mark: true,
        ..Negotiated::plain(ProtocolVersion::V4)
    });
    all
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

fn columns() -> Vec<ColumnSpec<'static>> {
    use WireType as T;
    let udt = T::Udt {
        keyspace: "ks".into(),
        name: "udt".into(),
        fields: vec![("f".into(), T::Int), ("g".into(), T::List(Box::new(T::Varchar)))],
    };
    let vector =
        "org.apache.cassandra.db.marshal.VectorType(org.apache.cassandra.db.marshal.FloatType , 3)";
    let kinds = vec![
        T::Custom(vector.into()),
        T::Ascii,
        T::Bigint,
        T::Blob,
        T::Boolean,
        T::Counter,
        T::Decimal,
        T::Double,
        T::Float,
        T::Int,
        T::Timestamp,
        T::Uuid,
        T::Varchar,
        T::Varint,
        T::Timeuuid,
        T::Inet,
        T::Date,
        T::Time,
        T::Smallint,
        T::Tinyint,
        T::Duration,
        T::Map(Box::new(T::Varchar), Box::new(T::Set(Box::new(udt.clone())))),
        T::Tuple(vec![T::Int, udt]),
        T::Tuple(vec![]),
    ];
    kinds
        .into_iter()
        .map(|kind| ColumnSpec { keyspace: "ks", table: "t", name: "c", kind })
        .collect()
}

fn check_response(
    negotiated: Negotiated,
    opcode: Opcode,
    expect: &ResponseBody<'_>,
    write: impl Fn(&mut Vec<u8>) -> Result<(), WireError>,
) {
    let id = Uuid::from_u128(0x1f22_f130_e564_11f1_ad04_d784_a7c4_84c4);
    let rich = FrameExtras {
        tracing_id: Some(id),
        warnings: &["careful"],
        custom_payload: &[("k", b"v")],
    };
    for extras in [FrameExtras::default(), rich] {
        let mut out = b"before".to_vec();
        encode_frame(&mut out, negotiated.version, 3, opcode, &extras, &write).unwrap();
        through(&out[6..], Side::Client, |frame| {
            let decoded = Response::decode(frame, negotiated).unwrap();
            assert_eq!(&decoded.body, expect, "{negotiated:?}");
            assert_eq!(decoded.tracing_id, extras.tracing_id);
            let newer = negotiated.version >= ProtocolVersion::V4;
            assert_eq!(decoded.warnings, if newer { extras.warnings } else { &[] });
            assert_eq!(
                decoded.custom_payload.is_some(),
                newer && !extras.custom_payload.is_empty()
            );
            for cut in 0..frame.body.len() {
                let short = Frame { body: &frame.body[..cut], ..*frame };
                assert!(Response::decode(&short, negotiated).is_err(), "{expect:?} cut at {cut}");
            }
        });
    }
}

#[test]
fn every_response_without_rows_comes_back_in_every_version() {
    for negotiated in each_negotiated() {
        let version = negotiated.version;
        let check = |opcode,
                     expect: &ResponseBody<'_>,
                     write: &dyn Fn(&mut Vec<u8>) -> Result<(), WireError>| {
            check_response(negotiated, opcode, expect, write);
        };
        check(Opcode::Ready, &ResponseBody::Ready, &|_| Ok(()));
        let class = "org.apache.cassandra.auth.PasswordAuthenticator";
        check(Opcode::Authenticate, &ResponseBody::Authenticate(class), &|out| {
            response::put_authenticate(out, class)
        });
        for token in [None, Some(&b"token"[..])] {
            let write = |out: &mut Vec<u8>| response::put_auth_token(out, token);
            check(Opcode::AuthChallenge, &ResponseBody::AuthChallenge(token), &write);
            check(Opcode::AuthSuccess, &ResponseBody::AuthSuccess(token), &write);
        }
        let supported =
            vec![("CQL_VERSION", vec!["3.4.7"]), ("COMPRESSION", vec!["snappy", "lz4"])];
        let expect = ResponseBody::Supported(supported.clone());
        check(Opcode::Supported, &expect, &|out| response::put_supported(out, &supported));
        check(Opcode::Result, &ResponseBody::Void, &|out| {
            response::put_void(out);
            Ok(())
        });
        check(Opcode::Result, &ResponseBody::SetKeyspace("ks"), &|out| {
            response::put_set_keyspace(out, "ks")
        });
        for address in ["127.0.0.1:9042", "[2001:db8::1]:65535"] {
            let address: SocketAddr = address.parse().unwrap();
            for kind in TopologyChangeKind::ALL {
                let event = Event::TopologyChange { kind, address };
                let expect = ResponseBody::Event(event.clone());
                check(Opcode::Event, &expect, &|out| response::put_event(out, version, &event));
            }
            for up in [true, false] {
                let event = Event::StatusChange { up, address };
                let expect = ResponseBody::Event(event.clone());
                check(Opcode::Event, &expect, &|out| response::put_event(out, version, &event));
            }
        }
        for kind in SchemaChangeKind::ALL {
            for target in [
                SchemaTarget::Keyspace,
                SchemaTarget::Table("t"),
                SchemaTarget::Type("u"),
                SchemaTarget::Function("f", vec!["int", "text"]),
                SchemaTarget::Aggregate("a", vec![]),
            ] {
                let function =
                    matches!(target, SchemaTarget::Function(..) | SchemaTarget::Aggregate(..));
                let change = SchemaChange { kind, keyspace: "ks", target };
                if function && version == ProtocolVersion::V3 {
                    // Told as an update of the keyspace, with an empty name behind that nobody reads.
                    let mut out = Vec::new();
                    let version = ProtocolVersion::V3;
                    let write =
                        |out: &mut Vec<u8>| response::put_schema_change(out, version, &change);
                    encode_frame(
                        &mut out,
                        version,
                        1,
                        Opcode::Result,
                        &FrameExtras::default(),
                        write,
                    )
                    .unwrap();
                    let updated = SchemaChange {
                        kind: SchemaChangeKind::Updated,
                        keyspace: "ks",
                        target: SchemaTarget::Keyspace,
                    };
                    through(&out, Side::Client, |frame| {
                        let decoded = Response::decode(frame, negotiated).unwrap();
                        assert_eq!(decoded.body, ResponseBody::SchemaChange(updated));
                        assert_eq!(frame.body[frame.body.len() - 2..], [0, 0]);
                    });
                    continue;
                }
                let expect = ResponseBody::SchemaChange(change.clone());
                check(Opcode::Result, &expect, &|out| {
                    response::put_schema_change(out, version, &change)
                });
                let event = Event::SchemaChange(change);
                let expect = ResponseBody::Event(event.clone());
                check(Opcode::Event, &expect, &|out| response::put_event(out, version, &event));
            }
        }
    }
}

fn all_errors() -> Vec<ErrorBody<'static>> {
    let (consistency, received, block_for) = (Consistency::Quorum, 1, 2);
    let reasons = Failures::Reasons(vec![
        (IpAddr::V4(Ipv4Addr::LOCALHOST), FailureReason::Timeout),
        (IpAddr::V6(Ipv6Addr::LOCALHOST), FailureReason::ReadTooManyTombstones),
    ]);
    let mut all: Vec<ErrorBody<'static>> =
        ErrorCode::ALL.iter().filter_map(|code| ErrorBody::without_fields(*code)).collect();
    for write_type in WriteType::ALL {
        let contentions = (write_type == WriteType::Cas).then_some(3);
        all.push(ErrorBody::WriteTimeout {
            consistency,
            received,
            block_for,
            write_type,
            contentions,
        });
        let failures = reasons.clone();
        all.push(ErrorBody::WriteFailure {
            consistency,
            received,
            block_for,
            failures,
            write_type,
        });
    }
    all.push(ErrorBody::Unavailable { consistency, required: 2, alive: 1 });
    all.push(ErrorBody::ReadTimeout { consistency, received, block_for, data_present: true });
    all.push(ErrorBody::ReadFailure {
        consistency,
        received,
        block_for,
        failures: reasons,
        data_present: false,
    });
    let argument_types = vec!["int"];
    all.push(ErrorBody::FunctionFailure { keyspace: "ks", function: "f", argument_types });
    all.push(ErrorBody::CasWriteUnknown { consistency, received, block_for });
    all.push(ErrorBody::AlreadyExists { keyspace: "ks", table: "" });
    all.push(ErrorBody::Unprepared { id: &[9; 16] });
    all
}

#[test]
fn every_error_comes_back_in_v5() {
    let negotiated = Negotiated::plain(ProtocolVersion::V5);
    let mut codes: Vec<ErrorCode> = all_errors().iter().map(ErrorBody::code).collect();
    codes.dedup();
    for code in ErrorCode::ALL {
        assert!(codes.contains(code), "{code}");
    }
    for error in all_errors() {
        let expect = ResponseBody::Error { error: error.clone(), message: "m" };
        check_response(negotiated, Opcode::Error, &expect, |out| {
            response::put_error(out, negotiated.version, &error, "m")
        });
    }
}

#[test]
fn older_clients_are_told_newer_errors_as_cassandra_tells_them() {
    let told = |error: &ErrorBody<'_>, version| {
        let mut out = Vec::new();
        error.encode("m", version, &mut out).unwrap();
        let mut r = Reader::new(&out, "ERROR");
        let (body, message) = ErrorBody::decode(&mut r, version).unwrap();
        assert!(r.is_empty(), "{error:?}");
        (format!("{body:?}"), body.code(), message.to_owned())
    };
    let (consistency, received, block_for) = (Consistency::One, 0, 1);
    let write_type = WriteType::Cas;
    let cas = ErrorBody::WriteTimeout {
        consistency,
        received,
        block_for,
        write_type,
        contentions: Some(4),
    };
    let timeout =
        ErrorBody::WriteTimeout { consistency, received, block_for, write_type, contentions: None };
    assert_eq!(told(&cas, ProtocolVersion::V4).0, format!("{timeout:?}"));
    let unknown = ErrorBody::CasWriteUnknown { consistency, received, block_for };
    assert_eq!(told(&unknown, ProtocolVersion::V4).0, format!("{timeout:?}"));
    assert_eq!(
        told(&ErrorBody::CdcWriteFailure, ProtocolVersion::V4).1,
        ErrorCode::CdcWriteFailure
    );
    let (_, code, message) = told(&ErrorBody::CdcWriteFailure, ProtocolVersion::V3);
    assert_eq!((code, message.as_str()), (ErrorCode::Invalid, "ERROR CDC_WRITE_FAILURE: m"));
    let reasons = vec![(IpAddr::V4(Ipv4Addr::LOCALHOST), FailureReason::Unknown); 2];
    let failures = Failures::Reasons(reasons);
    let failure =
        ErrorBody::ReadFailure { consistency, received, block_for, failures, data_present: true };
    let failures = Failures::Count(2);
    let counted =
        ErrorBody::ReadFailure { consistency, received, block_for, failures, data_present: true };
    assert_eq!(told(&failure, ProtocolVersion::V4).0, format!("{counted:?}"));
    assert_eq!(told(&failure, ProtocolVersion::V3).1, ErrorCode::ReadTimeout);
    for error in all_errors() {
        for version in ProtocolVersion::ALL {
            told(&error, version);
        }
    }
}

#[test]
fn a_message_too_long_for_a_string_is_cut_at_a_character() {
    let long = format!("{}é", "x".repeat(65_534));
    let mut out = Vec::new();
    response::put_error(&mut out, ProtocolVersion::V4, &ErrorBody::Invalid, &long).unwrap();
    assert_eq!(out.len(), 4 + 2 + 65_534);
    out.clear();
    response::put_error(&mut out, ProtocolVersion::V4, &ErrorBody::Invalid, &long[1..]).unwrap();
    assert_eq!(out.len(), 4 + 2 + 65_535);
}

#[test]
fn prepared_and_rows_come_back_with_every_type_in_every_version() {
    for negotiated in each_negotiated() {
        let version = negotiated.version;
        let mut specs = columns();
        let block = ColumnsBlock::encode(&specs, version).unwrap();
        // What the client sees of types that its version does not have.
        for spec in &mut specs {
            let mut out = Vec::new();
            spec.kind.encode(version, &mut out).unwrap();
            spec.kind = WireType::decode(&mut Reader::new(&out, "type")).unwrap();
        }
        let prepared = PreparedResponse {
            id: &[1; 16],
            result_metadata_id: b"meta",
            markers: &block,
            partition_key_indexes: &[2, 0],
            extra_flags: scylla::LWT_MARK,
            columns: Some(&block),
        };
        let expect = ResponseBody::Prepared(Prepared {
            id: &[1; 16],
            result_metadata_id: negotiated.has_metadata_id().then_some(&b"meta"[..]),
            metadata: PreparedMetadata {
                flags: 1 | if negotiated.lwt_mark { scylla::LWT_MARK } else { 0 },
                partition_key_indexes: if version == ProtocolVersion::V3 {
                    vec![]
                } else {
                    vec![2, 0]
                },
                columns: specs.clone(),
            },
            result_metadata: ResultMetadata {
                column_count: block.count(),
                columns: Some(specs.clone()),
                ..ResultMetadata::default()
            },
        });
        check_response(negotiated, Opcode::Result, &expect, |out| {
            response::put_prepared(out, negotiated, &prepared)
        });

        let few = [
            ColumnSpec { keyspace: "ks", table: "a", name: "x", kind: WireType::Int },
            ColumnSpec { keyspace: "ks", table: "b", name: "y", kind: WireType::Blob },
        ];
        let few_block = ColumnsBlock::encode(&few, version).unwrap();
        let mut modes = vec![MetadataMode::Full, MetadataMode::Skip];
        if negotiated.has_metadata_id() {
            modes.push(MetadataMode::Changed(b"new id"));
        }
        for mode in modes {
            for paging_state in [None, Some(&b"next"[..])] {
                let mut out = b"before".to_vec();
                let extras = FrameExtras { warnings: &["w"], ..FrameExtras::default() };
                let mut rows =
                    RowsEncoder::begin(&mut out, version, 9, &extras, &few_block, mode).unwrap();
                for i in 0..3u32 {
                    rows.value(&i.to_be_bytes()).unwrap();
                    if i == 1 {
                        rows.null()
                    } else {
                        rows.value_with(|out| out.put_bytes(&[7; 5])).unwrap()
                    }
                    rows.end_row();
                }
                rows.value(b"not sent").unwrap();
                assert_eq!(rows.row_count(), 3);
                rows.finish(paging_state).unwrap();
                through(&out[6..], Side::Client, |frame| {
                    let decoded = Response::decode(frame, negotiated).unwrap();
                    let ResponseBody::Rows(rows) = decoded.body else { panic!("rows") };
                    assert_eq!(rows.metadata.paging_state, paging_state);
                    assert_eq!(rows.metadata.columns.is_none(), mode == MetadataMode::Skip);
                    let changed =
                        matches!(mode, MetadataMode::Changed(_)).then_some(&b"new id"[..]);
                    assert_eq!(rows.metadata.new_metadata_id, changed);
                    if let Some(columns) = &rows.metadata.columns {
                        assert_eq!(columns[..], few);
                    }
                    let seven = Some(&[7u8; 5][..]);
                    let expect = [
                        Some(&[0u8, 0, 0, 0][..]),
                        seven,
                        Some(&[0, 0, 0, 1]),
                        None,
                        Some(&[0, 0, 0, 2]),
                        seven,
                    ];
                    assert_eq!(rows.values().collect::<Vec<_>>(), expect);
                });
            }
        }
    }
}

#[test]
fn an_unfinished_response_leaves_the_output_as_it_was() {
    let mut out = b"kept".to_vec();
    let block = ColumnsBlock::default();
    let extras = FrameExtras::default();
    let version = ProtocolVersion::V5;
    let mut rows =
        RowsEncoder::begin(&mut out, version, 1, &extras, &block, MetadataMode::Full).unwrap();
    rows.value(b"v").unwrap();
    drop(rows);
    assert_eq!(out, b"kept");
    let long = "x".repeat(65_536);
    let failed = encode_frame(&mut out, version, 1, Opcode::Result, &extras, |out| {
        response::put_set_keyspace(out, &long)
    });
    assert!(matches!(failed, Err(WireError::TooLong(_))));
    assert_eq!(out, b"kept");
    let fits = |out: &mut Vec<u8>| response::put_set_keyspace(out, &long[1..]);
    assert!(encode_frame(&mut out, version, 1, Opcode::Result, &extras, fits).is_ok());
}

#[test]
fn types_nest_to_the_limit_and_no_deeper() {
    let nested = |depth: usize| {
        let mut bytes: Vec<u8> = [0u8, 0x20].repeat(depth);
        bytes.put_u16(9);
        WireType::decode(&mut Reader::new(&bytes, "type"))
    };
    assert!(nested(types::DEPTH_MAX).is_ok());
    assert_eq!(nested(types::DEPTH_MAX + 1), Err(WireError::TypeTooDeep { max: 64 }));
    assert_eq!(WireType::decode(&mut Reader::new(&[0, 0x0a], "type")), Ok(WireType::Varchar));
    assert_eq!(
        WireType::decode(&mut Reader::new(&[0, 0x16], "type")),
        Err(WireError::UnknownType { number: 0x16 })
    );
}

/// Answers of Cassandra 5.0.9, byte for byte.
mod golden {
    use super::*;

    const PREPARED_V3: &str = "83000002080000005200000004001059eacedfaec6dc3ee952b7902f845d4e\
        0000000100000001000673797374656d00056c6f63616c00036b6579000d\
        0000000100000001000673797374656d00056c6f63616c00036b6579000d";
    const PREPARED_V4: &str = "84000002080000005800000004001059eacedfaec6dc3ee952b7902f845d4e\
        00000001000000010000000100000006\
        73797374656d00056c6f63616c00036b6579000d0000000100000001000673797374656d00056c6f63616c00036b6579000d";
    const ROWS_V4: &str = "84000002080000002f000000020000000100000001\
        000673797374656d00056c6f63616c00036b6579000d00000001000000056c6f63616c";
    const ROWS_TRACED_V4: &str = "84020002080000003f1f22f130e56411f1ad04d784a7c484c4\
        000000020000000100000001000673797374656d00056c6f63616c00036b6579000d00000001000000056c6f63616c";
    const USE_V4: &str = "84000002080000000c00000003000673797374656d";
    const CREATED_V4: &str =
        "8400000208000000200000000500074352454154454400055441424c450006776972655f6800026464";
    const EXISTS_V4: &str = "84000002000000003500002400002543616e6e6f7420616464206578697374696e67206b65797370\
        6163652022776972655f68220006776972655f680000";
    const TYPES: &str = "08000000ca0000000200000001000000050006776972655f680002646400016b0009000164\
        0000002c6f72672e6170616368652e63617373616e6472612e64622e6d61727368616c2e4475726174696f6e54797065\
        00016d0021000d00200009000174003100020009000d000176\
        000000596f72672e6170616368652e63617373616e6472612e64622e6d61727368616c2e566563746f7254797065\
        286f72672e6170616368652e63617373616e6472612e64622e6d61727368616c2e466c6f617454797065202c2033\
        2900000000";

    fn key() -> [ColumnSpec<'static>; 1] {
        [ColumnSpec { keyspace: "system", table: "local", name: "key", kind: WireType::Varchar }]
    }

    #[test]
    fn prepared_is_cassandras() {
        for (text, version) in
            [(PREPARED_V3, ProtocolVersion::V3), (PREPARED_V4, ProtocolVersion::V4)]
        {
            let block = ColumnsBlock::encode(&key(), version).unwrap();
            let prepared = PreparedResponse {
                id: &hex("59eacedfaec6dc3ee952b7902f845d4e"),
                result_metadata_id: b"",
                markers: &block,
                partition_key_indexes: &[0],
                extra_flags: 0,
                columns: Some(&block),
            };
            let mut out = Vec::new();
            let write = |out: &mut Vec<u8>| {
                response::put_prepared(out, Negotiated::plain(version), &prepared)
            };
            encode_frame(&mut out, version, 2, Opcode::Result, &FrameExtras::default(), write)
                .unwrap();
            assert_eq!(out, hex(text));
        }
    }

    #[test]
    fn rows_are_cassandras() {
        let tracing_id = Some(Uuid::from_u128(0x1f22_f130_e564_11f1_ad04_d784_a7c4_84c4));
        for (text, tracing_id) in [(ROWS_V4, None), (ROWS_TRACED_V4, tracing_id)] {
            let version = ProtocolVersion::V4;
            let block = ColumnsBlock::encode(&key(), version).unwrap();
            let extras = FrameExtras { tracing_id, ..FrameExtras::default() };
            let mut out = Vec::new();
            let mut rows =
                RowsEncoder::begin(&mut out, version, 2, &extras, &block, MetadataMode::Full)
                    .unwrap();
            rows.value(b"local").unwrap();
            rows.end_row();
            rows.finish(None).unwrap();
            assert_eq!(out, hex(text));
        }
    }

    #[test]
    fn types_without_an_id_travel_as_class_names() {
        let spec = |name, kind| ColumnSpec { keyspace: "wire_h", table: "dd", name, kind };
        let list = WireType::List(Box::new(WireType::Int));
        let vector = "org.apache.cassandra.db.marshal.VectorType(org.apache.cassandra.db.marshal.FloatType , 3)";
        let specs = [
            spec("k", WireType::Int),
            spec("d", WireType::Duration),
            spec("m", WireType::Map(Box::new(WireType::Varchar), Box::new(list))),
            spec("t", WireType::Tuple(vec![WireType::Int, WireType::Varchar])),
            spec("v", WireType::Custom(vector.into())),
        ];
        for (start, version) in
            [("83000002", ProtocolVersion::V3), ("84000002", ProtocolVersion::V4)]
        {
            let block = ColumnsBlock::encode(&specs, version).unwrap();
            let mut out = Vec::new();
            let extras = FrameExtras::default();
            let rows =
                RowsEncoder::begin(&mut out, version, 2, &extras, &block, MetadataMode::Full)
                    .unwrap();
            rows.finish(None).unwrap();
            assert_eq!(out, hex(&format!("{start}{TYPES}")));
        }
    }

    #[test]
    fn other_results_and_errors_are_cassandras() {
        let version = ProtocolVersion::V4;
        let made = |opcode, write: &dyn Fn(&mut Vec<u8>) -> Result<(), WireError>| {
            let mut out = Vec::new();
            encode_frame(&mut out, version, 2, opcode, &FrameExtras::default(), write).unwrap();
            out
        };
        assert_eq!(
            made(Opcode::Result, &|out| response::put_set_keyspace(out, "system")),
            hex(USE_V4)
        );
        let target = SchemaTarget::Table("dd");
        let change = SchemaChange { kind: SchemaChangeKind::Created, keyspace: "wire_h", target };
        assert_eq!(
            made(Opcode::Result, &|out| response::put_schema_change(out, version, &change)),
            hex(CREATED_V4)
        );
        let exists = ErrorBody::AlreadyExists { keyspace: "wire_h", table: "" };
        let message = "Cannot add existing keyspace \"wire_h\"";
        assert_eq!(
            made(Opcode::Error, &|out| response::put_error(out, version, &exists, message)),
            hex(EXISTS_V4)
        );
    }

    #[test]
    fn unknown_versions_are_answered_in_a_header_their_client_can_read() {
        let answer = |bytes: &[u8]| {
            let mut decoder = FrameDecoder::new(Side::Server, MAX);
            let mut input = bytes;
            let error = decoder.next(&mut input).unwrap_err();
            assert!(error.fatal);
            let mut out = Vec::new();
            encode_frame_error(&mut out, &error);
            out
        };
        let text = |number| {
            format!(
                "Invalid or unsupported protocol version ({number}); supported versions are (3/v3, 4/v4, 5/v5)"
            )
        };
        // v1 and v2: eight bytes, stream 0, their own version. Others: v5, their stream.
        for (sent, header, number) in [
            (&[2, 0, 0, 9, 5, 0, 0, 0, 0][..], &[0x82, 0, 0, 0][..], 2),
            (&[1, 0, 0, 5, 0, 0, 0, 0], &[0x81, 0, 0, 0], 1),
            (&[6, 0, 0, 9, 5, 0, 0, 0, 0], &[0x85, 0, 0, 9, 0], 6),
            (&[66, 0, 0, 9, 5, 0, 0, 0, 0], &[0x85, 0, 0, 9, 0], 66),
            (&[0, 0, 0, 9, 5, 0, 0, 0, 0], &[0x85, 0, 0, 0, 0], 0),
        ] {
            let text = text(number);
            let mut expect = header.to_vec();
            expect.put_u32(6 + text.len() as u32);
            expect.put_u32(0x0a);
            expect.put_bytes_u16(text.as_bytes(), "text").unwrap();
            assert_eq!(answer(sent), expect, "version {number}");
        }
    }

    #[test]
    fn a_query_and_its_segment_are_as_the_specification_lays_them_out() {
        let mut out = Vec::new();
        let request =
            Request::Query { query: "q", parameters: QueryParameters::new(Consistency::One) };
        let options = RequestOptions { stream: 258, ..RequestOptions::default() };
        encode_request(&request, Negotiated::plain(ProtocolVersion::V5), &options, &mut out)
            .unwrap();
        assert_eq!(
            out,
            hex("0500010207000000 0b 00000001 71 0001 00000000".replace(' ', "").as_str())
        );
        let mut segment = Vec::new();
        pack_segments(&out, false, &mut segment);
        // 20 bytes, bit 17 for "self-contained"; checksums little endian.
        assert_eq!(segment[..3], [20, 0, 0b10]);
        assert_eq!(segment[3..6], codec::crc24(&[20, 0, 2]).to_le_bytes()[..3]);
        assert_eq!(segment[6..26], out);
        let prefixed = [&[0xfa, 0x2d, 0x55, 0xca][..], &out].concat();
        assert_eq!(segment[26..], codec::crc32(&prefixed).to_le_bytes());
        segment.clear();
        pack_segments(&out, true, &mut segment);
        // Does not shrink: stored, uncompressed length 0, bit 34.
        assert_eq!(segment[..5], [20, 0, 0, 0, 0b100]);
        assert_eq!(segment[8..28], out);
    }
}

/// Frames of a client, each with the body it should arrive with.
fn client_frames(
    negotiated: Negotiated,
    compression: Option<Compression>,
    sizes: &[usize],
) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut plain = Vec::new();
    let mut bodies = Vec::new();
    for (stream, size) in sizes.iter().enumerate() {
        // Short ones do not shrink, long ones do.
        let token: Vec<u8> = (0..*size)
            .map(|i| if *size < 1000 { ((i * i) >> 3) as u8 } else { (i / 16) as u8 })
            .collect();
        let request = Request::AuthResponse(Some(&token));
        let options =
            RequestOptions { stream: stream as i16, compression, ..RequestOptions::default() };
        encode_request(&request, negotiated, &options, &mut plain).unwrap();
        let mut body = (*size as u32).to_be_bytes().to_vec();
        body.extend_from_slice(&token);
        bodies.push(body);
    }
    if negotiated.version < ProtocolVersion::V5 {
        return (plain, bodies);
    }
    let mut segments = Vec::new();
    pack_segments(&plain, compression.is_some(), &mut segments);
    (segments, bodies)
}

fn started(version: ProtocolVersion, compression: Option<Compression>, max: usize) -> FrameDecoder {
    let mut decoder = FrameDecoder::new(Side::Server, max);
    decoder.start(version, compression).unwrap();
    decoder
}

fn streams() -> Vec<(ProtocolVersion, Option<Compression>)> {
    use Compression::{Lz4, Snappy};
    use ProtocolVersion::{V3, V4, V5};
    vec![(V3, None), (V4, Some(Lz4)), (V4, Some(Snappy)), (V5, None), (V5, Some(Lz4))]
}

#[test]
fn a_stream_torn_at_every_byte_gives_the_same_frames() {
    for (version, compression) in streams() {
        let sizes = [0, 1, 300, 140_000, 5, 131_058 - 13, 20];
        let (bytes, bodies) = client_frames(Negotiated::plain(version), compression, &sizes);
        // Byte by byte.
        let mut decoder = started(version, compression, MAX);
        let (mut from, mut seen) = (0, 0);
        for end in 0..=bytes.len() {
            let mut input = &bytes[from..end];
            while let Some(frame) = decoder.next(&mut input).unwrap() {
                assert_eq!(frame.header.stream as usize, seen);
                assert!(frame.body == bodies[seen], "{version} {compression:?} frame {seen}");
                seen += 1;
            }
            from = end - input.len();
            assert!(decoder.missing() >= 1);
            assert!(
                end == bytes.len() || decoder.missing() <= bytes.len() - end,
                "{version} {compression:?} at {end}"
            );
        }
        assert_eq!((seen, from), (bodies.len(), bytes.len()), "{version} {compression:?}");
        // In two parts, cut at every byte of a short stream.
        let (bytes, bodies) = client_frames(Negotiated::plain(version), compression, &[10, 500, 0]);
        for cut in 0..bytes.len() {
            let mut decoder = started(version, compression, MAX);
            let mut seen = Vec::new();
            let mut input = &bytes[..cut];
            while let Some(frame) = decoder.next(&mut input).unwrap() {
                seen.push(frame.body.to_vec());
            }
            let mut input = &bytes[cut - input.len()..];
            while let Some(frame) = decoder.next(&mut input).unwrap() {
                seen.push(frame.body.to_vec());
            }
            assert!(seen == bodies && input.is_empty(), "{version} {compression:?} cut at {cut}");
        }
    }
}

#[test]
fn a_flipped_bit_in_a_segment_never_yields_a_frame() {
    for compression in [None, Some(Compression::Lz4)] {
        let (bytes, _) = client_frames(Negotiated::plain(ProtocolVersion::V5), compression, &[40]);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let mut decoder = started(ProtocolVersion::V5, compression, MAX);
            let error = decoder.next(&mut &damaged[..]).expect_err("a checksum is wrong");
            assert!(error.fatal);
            assert!(matches!(error.error, WireError::Checksum { .. }), "bit {bit}: {error}");
        }
    }
}

#[test]
fn a_frame_at_the_limit_is_taken_and_one_byte_more_is_refused_on_its_stream() {
    for (version, compression) in streams() {
        // Below and above what one segment holds. 13 bytes are header and length of the token.
        for size in [1000, 200_000] {
            let (bytes, bodies) =
                client_frames(Negotiated::plain(version), compression, &[size, 3]);
            let mut decoder = started(version, compression, size + 13);
            let mut input = &bytes[..];
            assert_eq!(decoder.next(&mut input).unwrap().unwrap().body, bodies[0]);
            assert_eq!(decoder.next(&mut input).unwrap().unwrap().body, bodies[1]);

            let mut decoder = started(version, compression, size + 12);
            let mut input = &bytes[..];
            let error = decoder.next(&mut input).unwrap_err();
            assert_eq!(
                (error.stream, error.fatal, error.reply_version),
                (0, false, version.number())
            );
            match error.error {
                WireError::TooBig { .. } => {
                    assert_eq!(error.error.code(), ErrorCode::Invalid);
                    let text = format!(
                        "Request is too big: length {} exceeds maximum allowed length {}.",
                        size + 13,
                        size + 12
                    );
                    assert_eq!(error.to_string(), text);
                }
                other => assert!(matches!(other, WireError::Compression(_)), "{other}"),
            }
            assert_eq!(
                decoder.next(&mut input).unwrap().unwrap().body,
                bodies[1],
                "the connection goes on"
            );
        }
    }
}

#[test]
fn an_announced_length_alone_makes_nobody_allocate() {
    let mut decoder = started(ProtocolVersion::V4, None, MAX);
    let mut input = &[4u8, 0, 0, 1, 7, 0, 0xff, 0, 0][..];
    assert_eq!(decoder.next(&mut input), Ok(None));
    assert_eq!(decoder.missing(), 0xff_0000);
    // Above the limit the bytes are passed over as they come.
    let mut decoder = started(ProtocolVersion::V4, None, MAX);
    let mut input = &[4u8, 0, 0, 1, 7, 0xff, 0xff, 0xff, 0xff, 1, 2, 3][..];
    assert_eq!(decoder.next(&mut input), Ok(None));
    assert!(input.is_empty());
}

#[test]
fn bad_frames_are_answered_and_passed_over() {
    let good = [4u8, 0, 0, 5, 5, 0, 0, 0, 0];
    for (bad, text) in [
        (&[4u8, 0, 0, 9, 0x7f, 0, 0, 0, 2, 1, 1][..], "Unknown opcode 127"),
        (
            &[0x84, 0, 0, 9, 5, 0, 0, 0, 0],
            "Wrong protocol direction (expected REQUEST, got RESPONSE) for opcode 5 (OPTIONS)",
        ),
        (
            &[3, 0, 0, 9, 5, 0, 0, 0, 0],
            "Invalid message version. Got 3/v3 but previous messages on this connection had version 4/v4",
        ),
    ] {
        let bytes = [bad, &good].concat();
        let mut decoder = started(ProtocolVersion::V4, None, MAX);
        let mut input = &bytes[..];
        let error = decoder.next(&mut input).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.stream, error.fatal), (text, 9, false));
        assert_eq!(decoder.next(&mut input).unwrap().unwrap().header.stream, 5);
        // The same within a segment of v5.
        let mut frames = bytes.clone();
        let at = bad.len();
        frames[0] = frames[0] & 0x80 | if frames[0] & 0x7f == 3 { 3 } else { 5 };
        frames[at] = 5;
        let mut segments = Vec::new();
        pack_segments(&frames, false, &mut segments);
        let mut decoder = started(ProtocolVersion::V5, None, MAX);
        let mut input = &segments[..];
        let error = decoder.next(&mut input).unwrap_err();
        assert_eq!((error.stream, error.fatal, error.reply_version), (9, false, 5));
        assert_eq!(decoder.next(&mut input).unwrap().unwrap().header.stream, 5);
    }
}

#[test]
fn segments_that_do_not_add_up_end_the_connection() {
    let frame = [5u8, 0, 0, 1, 15, 0, 0, 0, 1, 0];
    let segment = |payload: &[u8], self_contained: bool| {
        let bits = payload.len() as u32 | u32::from(self_contained) << 17;
        let mut out = bits.to_le_bytes()[..3].to_vec();
        out.extend_from_slice(&codec::crc24(&out).to_le_bytes()[..3]);
        out.extend_from_slice(payload);
        out.extend_from_slice(&codec::crc32_segment_payload(payload).to_le_bytes());
        out
    };
    let run = |bytes: &[u8]| {
        started(ProtocolVersion::V5, None, MAX).next(&mut &bytes[..]).map(|frame| frame.is_some())
    };
    assert_eq!(run(&segment(&frame, true)), Ok(true));
    assert_eq!(run(&[segment(&[], true), segment(&frame, true)].concat()), Ok(true));
    assert_eq!(run(&[segment(&frame[..9], false), segment(&frame[9..], false)].concat()), Ok(true));
    for bad in [
        segment(&frame[..9], true),
        segment(&frame[..5], true),
        segment(&frame[..5], false),
        [segment(&frame[..9], false), segment(&frame, true)].concat(),
        [segment(&frame[..9], false), segment(&[1, 2], false)].concat(),
        segment(&[5, 0, 0, 1, 15, 0xff, 0xff, 0xff, 0xff], true),
    ] {
        assert!(run(&bad).unwrap_err().fatal);
    }
}

#[test]
fn a_segment_is_filled_to_its_last_byte_and_no_further() {
    let negotiated = Negotiated::plain(ProtocolVersion::V5);
    let fits = SEGMENT_PAYLOAD_MAX - 13;
    let count = |sizes: &[usize]| {
        let (bytes, _) = client_frames(negotiated, None, sizes);
        let (mut at, mut marks) = (0, Vec::new());
        while at < bytes.len() {
            let bits = u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], 0]);
            marks.push(bits >> 17 & 1 == 1);
            at += 10 + (bits & 0x1_ffff) as usize;
        }
        marks
    };
    assert_eq!(count(&[fits]), [true]);
    assert_eq!(count(&[fits + 1]), [false, false]);
    assert_eq!(count(&[10, 10, 10]), [true]);
    assert_eq!(count(&[10, fits, 10]), [true, true, true]);
    assert_eq!(count(&[10, fits + 1, 10, 10]), [true, false, false, true]);
    assert_eq!(count(&[fits - 20 - 13, 20]), [true]);
    assert_eq!(count(&[fits - 20 - 13 + 1, 20]), [true, true]);
}

#[test]
fn compressed_responses_come_back() {
    for compression in Compression::ALL {
        let mut out = b"before".to_vec();
        let extras = FrameExtras { warnings: &["w"], ..FrameExtras::default() };
        let mut frame =
            ResponseFrame::begin(&mut out, ProtocolVersion::V4, 4, Opcode::Result, &extras)
                .unwrap();
        let keyspace = "k".repeat(1000);
        response::put_set_keyspace(frame.body(), &keyspace).unwrap();
        let length = frame.finish_compressed(compression, &mut Vec::new()).unwrap();
        assert_eq!(out.len(), 6 + length);
        assert!(length < 200);
        let mut decoder = FrameDecoder::new(Side::Client, MAX);
        decoder.start(ProtocolVersion::V4, Some(compression)).unwrap();
        let mut input = &out[6..];
        let frame = decoder.next(&mut input).unwrap().unwrap();
        let decoded = Response::decode(&frame, Negotiated::plain(ProtocolVersion::V4)).unwrap();
        assert_eq!(decoded.body, ResponseBody::SetKeyspace(&keyspace));
        assert_eq!(decoded.warnings, ["w"]);
    }
    let mut decoder = FrameDecoder::new(Side::Client, MAX);
    assert_eq!(
        decoder.start(ProtocolVersion::V5, Some(Compression::Snappy)),
        Err(WireError::SnappyInV5)
    );
}

#[test]
fn a_copied_response_has_its_warnings_behind_those_given() {
    let id = Uuid::from_u128(0x1f22_f130_e564_11f1_ad04_d784_a7c4_84c4);
    for version in [ProtocolVersion::V3, ProtocolVersion::V4, ProtocolVersion::V5] {
        for (made, given) in
            [(&[][..], &[][..]), (&["a", "b"], &[]), (&[], &["c"]), (&["a"], &["c"])]
        {
            let mut bytes = Vec::new();
            let of_maker = FrameExtras {
                warnings: made,
                custom_payload: &[("k", b"v")],
                ..FrameExtras::default()
            };
            encode_frame(&mut bytes, version, 0, Opcode::Result, &of_maker, |body| {
                response::put_set_keyspace(body, "ks")
            })
            .unwrap();
            let extras = FrameExtras { tracing_id: Some(id), warnings: given, custom_payload: &[] };
            let mut out = b"before".to_vec();
            ResponseFrame::copied(&mut out, version, 9, &extras, &bytes).unwrap().finish().unwrap();
            let negotiated = Negotiated::plain(version);
            through(&out[6..], Side::Client, |frame| {
                assert_eq!(frame.header.stream, 9);
                let decoded = Response::decode(frame, negotiated).unwrap();
                assert_eq!(decoded.body, ResponseBody::SetKeyspace("ks"));
                assert_eq!(decoded.tracing_id, Some(id));
                let newer = version >= ProtocolVersion::V4;
                assert_eq!(decoded.custom_payload.is_some(), newer);
                let all = if newer { [given, made].concat() } else { Vec::new() };
                assert_eq!(decoded.warnings, all);
            });
        }
    }
    // Warnings that are cut short are none, and nothing is left of the attempt.
    let mut out = b"before".to_vec();
    let extras = FrameExtras { warnings: &["c"], ..FrameExtras::default() };
    let broken = [0x84, flags::WARNING, 0, 0, 8, 0, 0, 0, 3, 0, 1, 9];
    assert!(ResponseFrame::copied(&mut out, ProtocolVersion::V4, 9, &extras, &broken).is_none());
    assert_eq!(out, b"before");
}

#[test]
fn a_v5_connection_is_unframed_until_started() {
    let negotiated = Negotiated::plain(ProtocolVersion::V5);
    let mut startup = Vec::new();
    StringMap::encode(&mut startup, &[("CQL_VERSION", "3.0.0")]).unwrap();
    let map = StringMap::decode(&mut Reader::new(&startup, "STARTUP")).unwrap();
    let mut bytes = Vec::new();
    encode_request(&Request::Startup(map), negotiated, &RequestOptions::default(), &mut bytes)
        .unwrap();
    let mut frames = Vec::new();
    encode_request(&Request::Options, negotiated, &RequestOptions::default(), &mut frames).unwrap();
    pack_segments(&frames, false, &mut bytes);
    let mut decoder = FrameDecoder::new(Side::Server, MAX);
    let mut input = &bytes[..];
    assert_eq!(decoder.next(&mut input).unwrap().unwrap().header.opcode, Opcode::Startup);
    decoder.start(ProtocolVersion::V5, None).unwrap();
    assert_eq!(decoder.next(&mut input).unwrap().unwrap().header.opcode, Opcode::Options);
}

/// Runs `target` over the corpus and 10,000 deterministic mutations of it.
fn mutate(corpus: &[Vec<u8>], target: fn(&[u8])) {
    for seed in corpus {
        target(seed);
    }
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    for _ in 0..10_000 {
        let mut data = corpus[next() % corpus.len()].clone();
        for _ in 0..1 + next() % 4 {
            let at = next() % (data.len() + 1);
            match next() % 4 {
                0 if at < data.len() => data[at] = next() as u8,
                1 => data.truncate(at),
                2 if at < data.len() => data[at] ^= 1 << (next() % 8),
                _ => data.insert(at, next() as u8),
            }
        }
        target(&data);
    }
}

/// First byte for the fuzz functions: version, compression.
fn choice(version: ProtocolVersion, compression: Option<Compression>) -> u8 {
    let compressed = match compression {
        None => 0,
        Some(Compression::Lz4) => 0x10,
        Some(Compression::Snappy) => 0x20,
    };
    // The number of the version counts from the low bits, the compression's bits change the remainder.
    (0..3).map(|low| compressed | low).find(|byte| byte % 3 == version.number() - 3).unwrap()
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
