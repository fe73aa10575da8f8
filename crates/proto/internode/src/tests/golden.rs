//! The bytes of version 1. A change of `golden_v1.txt` is a new version of the protocol.

use super::*;
use std::fmt::Write;

fn cases() -> Vec<(&'static str, Vec<u8>)> {
    use FrameKind::{Cancel, Error, OneWay, Request, Response};
    let handshake = |message: Handshake| payload_of(|out| message.encode(out));
    let ack = identity().ack(&judge(&identity(), &hello(), true).unwrap());
    let refused = Refused { code: RefusalCode::UnknownHost, message: "go away".to_owned() };
    let bytes = mutation(b"key");
    let flags = MutationFlags::READ_REPAIR;
    let plain = Mutation { flags, bytes: &bytes };
    let forward = MutationForward {
        targets: vec![ForwardTarget { host: host(3), shard: ShardId(2) }],
        mutation: Mutation { flags: MutationFlags::NONE, bytes: &bytes },
    };
    let hint = Hint {
        target: host(3),
        created_at: WallMicros(1_700_000_000_000_000),
        gc_grace_seconds: 864_000,
        bytes: &bytes,
    };
    let frame = |kind, verb, payload: Vec<u8>| frame_of(&header(kind, verb), &payload, false);
    let error = |e: ErrorReply| {
        let header = FrameHeader { deadline_micros: 0, ..header(Error, Verb::Mutation) };
        frame_of(&header, &payload_of(|o| e.encode(o)), false)
    };
    let forward_ack = ForwardAck { target: Some(0), result: Ok(()) };
    let traced =
        FrameHeader { trace: Some(Uuid::from_bytes([0x77; 16])), ..header(Request, Verb::Read) };
    let more =
        FrameHeader { more: true, deadline_micros: 0, ..header(Response, Verb::MutationForward) };
    vec![
        ("hello", handshake(Handshake::Hello(hello()))),
        ("hello-ack", handshake(Handshake::Ack(ack))),
        ("refused", handshake(Handshake::Refused(refused))),
        (
            "ping",
            frame(
                Request,
                Verb::Ping,
                payload_of(|o| Ping { sent: 99, wall: None, answered: None }.encode(o)),
            ),
        ),
        ("mutation", frame(Request, Verb::Mutation, payload_of(|o| plain.encode(o)))),
        ("forward", frame(Request, Verb::MutationForward, payload_of(|o| forward.encode(o)))),
        ("forward-ack", frame_of(&more, &payload_of(|o| forward_ack.encode(o)), false)),
        ("hint", frame(OneWay, Verb::Hint, payload_of(|o| hint.encode(o)))),
        ("read", frame_of(&traced, &payload_of(|o| point_read().encode(o)), false)),
        ("range-read", frame(Request, Verb::RangeRead, payload_of(|o| range_read().encode(o)))),
        ("scan", frame(Request, Verb::Scan, payload_of(|o| scan().encode(o)))),
        ("scan-page", frame(Response, Verb::Scan, payload_of(|o| scan_page().encode(o)))),
        (
            "filtered-read",
            frame(Request, Verb::FilteredRead, payload_of(|o| filtered_read().encode(o))),
        ),
        (
            "filtered-page",
            frame(Response, Verb::FilteredRead, payload_of(|o| filtered_answer().encode(o))),
        ),
        ("cancel", frame(Cancel, Verb::Read, Vec::new())),
        ("overloaded", error(ErrorReply::Overloaded)),
        ("unknown-table", error(ErrorReply::UnknownTable(table()))),
        ("epoch-too-old", error(ErrorReply::EpochTooOld { needed: Epoch(43) })),
        ("epoch-too-new", error(ErrorReply::EpochTooNew { known: Epoch(41) })),
        ("tombstones", error(ErrorReply::TombstoneOverwhelming { scanned: 100_001 })),
        ("disk-full", error(ErrorReply::DiskFull)),
        ("stopping", error(ErrorReply::Stopping)),
        ("corrupt", error(ErrorReply::Corrupt)),
        ("invalid", error(ErrorReply::Invalid("no such column".to_owned()))),
        ("timeout", error(ErrorReply::Timeout)),
        ("unknown-verb", error(ErrorReply::UnknownVerb(0x7f01))),
        ("internal", error(ErrorReply::Internal("a bug".to_owned()))),
        ("index-not-available", error(ErrorReply::IndexNotAvailable(table().0))),
    ]
}

#[test]
fn every_message_has_its_golden_bytes() {
    let mut text = String::new();
    for (name, bytes) in cases() {
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        writeln!(text, "{name} {hex}").unwrap();
    }
    assert_eq!(text, include_str!("golden_v1.txt"), "the file would be:\n{text}");
}

/// Only read: another release of the compressor may find another block for the same bytes.
const LZ4_FRAME: &str = "00000031010200020102030405060708000000000000002a001e848055aa4e767bede990\
    00000500f2097468652073616d6520776f72647320616761696e20616e640a002f2c202000ffffffffcb606761696e2c20";

#[test]
fn a_compressed_frame_from_the_first_release_is_read() {
    let hex: Vec<u8> = LZ4_FRAME.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |b: u8| char::from(b).to_digit(16).unwrap() as u8;
    let bytes: Vec<u8> = hex.chunks(2).map(|p| digit(p[0]) << 4 | digit(p[1])).collect();
    let mut decoder = FrameDecoder::new(true, 1 << 20);
    let (frame, _) = decoder.next(&bytes).unwrap().unwrap();
    let text = "the same words again and again, ".repeat(40);
    assert_eq!(frame.payload, text.as_bytes());
}

/// INV-internode-3.
#[test]
fn verbs_have_their_golden_numbers() {
    let mut text = String::new();
    for verb in Verb::ALL {
        assert_eq!(Verb::from_number(verb.number()), Some(*verb));
        writeln!(text, "{:04x} {}", verb.number(), verb.name()).unwrap();
    }
    assert_eq!(text, include_str!("golden_verbs.txt"), "the file would be:\n{text}");
    assert!(Verb::ALL.is_sorted());
    assert_eq!(Verb::from_number(0x02ff), None);
}

#[test]
fn the_decoders_take_the_golden_bytes() {
    for (name, bytes) in cases() {
        if bytes.starts_with(b"HLNS") {
            assert!(Handshake::decode(&bytes).unwrap().is_some(), "{name}");
            continue;
        }
        let mut decoder = FrameDecoder::new(true, 1 << 20);
        let (frame, length) = decoder.next(&bytes).unwrap().unwrap();
        assert_eq!(length, bytes.len(), "{name}");
        assert_eq!(frame.header.epoch, Epoch(42), "{name}");
    }
}
