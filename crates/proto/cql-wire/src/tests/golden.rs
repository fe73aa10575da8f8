//! Answers of Cassandra 5.0.9, byte for byte.

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
    for (text, version) in [(PREPARED_V3, ProtocolVersion::V3), (PREPARED_V4, ProtocolVersion::V4)]
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
        let write =
            |out: &mut Vec<u8>| response::put_prepared(out, Negotiated::plain(version), &prepared);
        encode_frame(&mut out, version, 2, Opcode::Result, &FrameExtras::default(), write).unwrap();
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
            RowsEncoder::begin(&mut out, version, 2, &extras, &block, MetadataMode::Full).unwrap();
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
    let vector =
        "org.apache.cassandra.db.marshal.VectorType(org.apache.cassandra.db.marshal.FloatType , 3)";
    let specs = [
        spec("k", WireType::Int),
        spec("d", WireType::Duration),
        spec("m", WireType::Map(Box::new(WireType::Varchar), Box::new(list))),
        spec("t", WireType::Tuple(vec![WireType::Int, WireType::Varchar])),
        spec("v", WireType::Custom(vector.into())),
    ];
    for (start, version) in [("83000002", ProtocolVersion::V3), ("84000002", ProtocolVersion::V4)] {
        let block = ColumnsBlock::encode(&specs, version).unwrap();
        let mut out = Vec::new();
        let extras = FrameExtras::default();
        let rows =
            RowsEncoder::begin(&mut out, version, 2, &extras, &block, MetadataMode::Full).unwrap();
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
    assert_eq!(made(Opcode::Result, &|out| response::put_set_keyspace(out, "system")), hex(USE_V4));
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
            "Invalid or unsupported protocol version ({number}); supported versions are (3/v3, 4/v4, 5/v5, 6/v6-beta)"
        )
    };
    // v1 and v2: eight bytes, stream 0, their own version. Others: v5, their stream.
    for (sent, header, number) in [
        (&[2, 0, 0, 9, 5, 0, 0, 0, 0][..], &[0x82, 0, 0, 0][..], 2),
        (&[1, 0, 0, 5, 0, 0, 0, 0], &[0x81, 0, 0, 0], 1),
        (&[7, 0x10, 0, 9, 5, 0, 0, 0, 0], &[0x85, 0, 0, 9, 0], 7),
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
fn a_version_in_development_wants_its_flag_in_every_frame() {
    let mut decoder = FrameDecoder::new(Side::Server, MAX);
    let sent = [6, 0, 0, 9, 5, 0, 0, 0, 0, 6, 0x10, 0, 9, 5, 0, 0, 0, 0];
    let mut input = &sent[..];
    let error = decoder.next(&mut input).unwrap_err();
    assert!(!error.fatal);
    let text = "Beta version of the protocol used (6/v6-beta), but USE_BETA flag is unset";
    let mut out = Vec::new();
    encode_frame_error(&mut out, &error);
    let mut expect = vec![0x86, 0x10, 0, 9, 0];
    expect.put_u32(6 + text.len() as u32);
    expect.put_u32(0x0a);
    expect.put_bytes_u16(text.as_bytes(), "text").unwrap();
    assert_eq!(out, expect);
    let frame = decoder.next(&mut input).unwrap().unwrap();
    assert_eq!(frame.header.version, ProtocolVersion::V6);
    // Requests and responses carry the flag.
    let negotiated = Negotiated::plain(ProtocolVersion::V6);
    let mut out = Vec::new();
    encode_request(&Request::Options, negotiated, &RequestOptions::default(), &mut out).unwrap();
    assert_eq!(out, [6, 0x10, 0, 0, 5, 0, 0, 0, 0]);
}

#[test]
fn a_query_and_its_segment_are_as_the_specification_lays_them_out() {
    let mut out = Vec::new();
    let request = Request::Query { query: "q", parameters: QueryParameters::new(Consistency::One) };
    let options = RequestOptions { stream: 258, ..RequestOptions::default() };
    encode_request(&request, Negotiated::plain(ProtocolVersion::V5), &options, &mut out).unwrap();
    assert_eq!(out, hex("0500010207000000 0b 00000001 71 0001 00000000".replace(' ', "").as_str()));
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
