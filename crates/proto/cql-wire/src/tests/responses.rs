//! Responses but errors: every one in every version, with every type.

use super::*;

pub(super) fn check_response(
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
                    // Sent as an update of the keyspace, followed by an empty name that no client
                    // reads.
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

#[test]
fn prepared_and_rows_come_back_with_every_type_in_every_version() {
    for negotiated in each_negotiated() {
        let version = negotiated.version;
        let mut specs = columns();
        let block = ColumnsBlock::encode(&specs, version).unwrap();
        // Replaces types that the version lacks by those that the client sees.
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
