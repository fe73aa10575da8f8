//! Streams of frames and segments: torn, damaged, too long, compressed.

use super::*;

/// Frames of a client, each with the body it should arrive with.
pub(super) fn client_frames(
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

pub(super) fn streams() -> Vec<(ProtocolVersion, Option<Compression>)> {
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
        // Below and above what one segment holds. The token has a length of 4 bytes before it, the frame a header.
        for size in [1000, 200_000] {
            let (bytes, bodies) =
                client_frames(Negotiated::plain(version), compression, &[size, 3]);
            let of_body = version.has_segments() || compression.is_some();
            let length = size + if of_body { 4 } else { 13 };
            let mut decoder = started(version, compression, length);
            let mut input = &bytes[..];
            assert_eq!(decoder.next(&mut input).unwrap().unwrap().body, bodies[0]);
            assert_eq!(decoder.next(&mut input).unwrap().unwrap().body, bodies[1]);

            let mut decoder = started(version, compression, length - 1);
            let mut input = &bytes[..];
            let error = decoder.next(&mut input).unwrap_err();
            assert_eq!(
                (error.stream, error.fatal, error.reply_version),
                (0, false, version.number())
            );
            assert_eq!(error.error.code(), ErrorCode::Invalid);
            let max = length - 1;
            let text = if of_body {
                format!("CQL Message of size {length} bytes exceeds allowed maximum of {max} bytes")
            } else {
                format!("Request is too big: length {length} exceeds maximum allowed length {max}.")
            };
            assert_eq!(error.to_string(), text, "{version} {compression:?}");
            assert_eq!(
                decoder.next(&mut input).unwrap().unwrap().body,
                bodies[1],
                "the connection goes on"
            );
        }
    }
}

#[test]
fn a_compressed_body_that_is_none_is_answered_and_skipped() {
    use Compression::{Lz4, Snappy};
    let good = [4u8, 0, 0, 5, 5, 0, 0, 0, 0];
    let lz4 = "Provided frame does not appear to be LZ4 compressed";
    let snappy = "Provided frame does not appear to be Snappy compressed";
    let negative = format!(
        "Invalid uncompressed frame length -2; it must be non-negative and no greater than \
         native_transport_max_frame_size ({MAX} bytes)"
    );
    for (compression, body, text) in [
        (Lz4, &[][..], lz4),
        (Lz4, &[0, 0, 0], lz4),
        (Lz4, &[0xff, 0xff, 0xff, 0xfe, 0x10, 7], &negative),
        // Two literals: more than declared, fewer, and cut short.
        (Lz4, &[0, 0, 0, 1, 0x20, 7, 7], "lz4 block of 3 compressed bytes is damaged"),
        (Lz4, &[0, 0, 0, 3, 0x20, 7, 7], "lz4 block has 2 bytes instead of 3"),
        (Lz4, &[0, 0, 0, 2, 0x20, 7], "lz4 block of 2 compressed bytes is damaged"),
        (
            Lz4,
            &[0, 1, 0, 0, 0x20, 7, 7],
            "lz4 block of 65536 bytes is larger than the limit of 765",
        ),
        (Snappy, &[], snappy),
        (Snappy, &[1, 4, 7, 7], snappy),
        (Snappy, &[3, 4, 7, 7], snappy),
        (Snappy, &[0xff; 20], snappy),
        (Snappy, &[0xff, 0xff, 0xff, 0xff, 0x0f, 4, 7, 7], snappy),
    ] {
        let length = body.len() as u8;
        let bytes = [&[4, 1, 0, 9, 5, 0, 0, 0, length], body, &good].concat();
        let mut decoder = started(ProtocolVersion::V4, Some(compression), MAX);
        let mut input = &bytes[..];
        let error = decoder.next(&mut input).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.stream, error.fatal), (text, 9, false));
        assert_eq!(error.error.code(), ErrorCode::ProtocolError);
        assert_eq!(decoder.next(&mut input).unwrap().unwrap().header.stream, 5);
    }
    // A body that declares too much is refused before decompression.
    for (compression, body) in [
        (Lz4, &[0x7f, 0xff, 0xff, 0xff, 0x10, 7][..]),
        (Snappy, &[0xff, 0xff, 0xff, 0xff, 0x07, 0, 7]),
    ] {
        let bytes = [&[4, 1, 0, 9, 5, 0, 0, 0, body.len() as u8], body].concat();
        let mut decoder = started(ProtocolVersion::V4, Some(compression), MAX);
        let error = decoder.next(&mut &bytes[..]).unwrap_err();
        assert_eq!(
            error.error,
            WireError::MessageTooBig { length: i32::MAX as u64, max: MAX as u64 }
        );
        assert_eq!((error.stream, error.fatal, decoder.held_bytes()), (9, false, 0));
    }
}

#[test]
fn an_incomplete_frame_that_is_refused_is_skipped_and_answered_at_its_end() {
    for (version, compression) in streams() {
        let large = 1_000_000;
        // Does not shrink.
        let (bytes, bodies) = {
            let mut state = 7u32;
            let token: Vec<u8> = (0..large)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .collect();
            let request = Request::AuthResponse(Some(&token));
            let options = RequestOptions { stream: 3, compression, ..RequestOptions::default() };
            let mut plain = Vec::new();
            let negotiated = Negotiated::plain(version);
            encode_request(&request, negotiated, &options, &mut plain).unwrap();
            let mut bytes = plain;
            if version.has_segments() {
                let mut segments = Vec::new();
                pack_segments(&bytes, compression.is_some(), &mut segments);
                bytes = segments;
            }
            let (more, bodies) = client_frames(negotiated, compression, &[3]);
            bytes.extend(more);
            (bytes, bodies)
        };
        let mut decoder = started(version, compression, MAX);
        let mut input = &bytes[..500_000];
        assert!(!decoder.is_within_frame());
        assert_eq!(decoder.next(&mut input), Ok(None));
        assert_eq!(decoder.is_within_frame(), version.has_segments());
        let from = 500_000 - input.len();
        assert!(decoder.refuse_partial(input), "{version} {compression:?}");
        assert!(decoder.is_within_frame() && decoder.held_bytes() < 300_000);
        assert!(!decoder.refuse_partial(input), "it is refused already");
        let mut input = &bytes[from..];
        let error = decoder.next(&mut input).unwrap_err();
        assert_eq!((error.stream, error.fatal), (3, false));
        assert_eq!(error.error.code(), ErrorCode::Overloaded);
        assert!(error.to_string().contains("there is no memory for a request of 100"), "{error}");
        assert_eq!(decoder.next(&mut input).unwrap().unwrap().body, bodies[0]);
        assert!(!decoder.is_within_frame());
    }
    // A header that is cut short gives no frame yet.
    let mut decoder = started(ProtocolVersion::V4, None, MAX);
    assert!(!decoder.refuse_partial(&[4, 0, 0, 1, 7, 0, 0, 0]));
    assert!(!decoder.refuse_partial(&[4, 0, 0, 1, 7, 0, 0, 0, 0]), "it is complete");
    assert!(decoder.refuse_partial(&[4, 0, 0, 1, 7, 0, 0, 0, 1]));
}

#[test]
fn the_memory_of_a_large_frame_is_given_back() {
    for (version, compression) in
        streams().into_iter().filter(|(v, c)| v.has_segments() || c.is_some())
    {
        let (bytes, bodies) = client_frames(Negotiated::plain(version), compression, &[3_000_000]);
        let mut decoder = started(version, compression, MAX);
        let mut input = &bytes[..];
        assert!(decoder.next(&mut input).unwrap().unwrap().body == bodies[0]);
        assert!(decoder.held_bytes() >= 3_000_000);
        decoder.release_large();
        assert!(decoder.held_bytes() <= 64 << 10, "{version} {compression:?}");
    }
}

/// INV-wire-1.
#[test]
fn an_announced_length_alone_makes_nobody_allocate() {
    let mut decoder = started(ProtocolVersion::V4, None, MAX);
    let mut input = &[4u8, 0, 0, 1, 7, 0, 0xff, 0, 0][..];
    assert_eq!(decoder.next(&mut input), Ok(None));
    assert_eq!(decoder.missing(), 0xff_0000);
    // Above the limit the bytes are skipped as they arrive.
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
fn warnings_put_in_at_the_end_make_the_frame_that_they_make_at_the_beginning() {
    let id = Uuid::from_u128(0x1f22_f130_e564_11f1_ad04_d784_a7c4_84c4);
    for version in [ProtocolVersion::V3, ProtocolVersion::V4, ProtocolVersion::V5] {
        for tracing_id in [None, Some(id)] {
            for warnings in [&[][..], &["a"], &["a", "b"]] {
                let extras = FrameExtras { tracing_id, warnings, custom_payload: &[] };
                let mut expected = b"before".to_vec();
                encode_frame(&mut expected, version, 9, Opcode::Result, &extras, |body| {
                    response::put_set_keyspace(body, "ks")
                })
                .unwrap();
                let extras = FrameExtras { warnings: &[], ..extras };
                let mut out = b"before".to_vec();
                let mut frame =
                    ResponseFrame::begin(&mut out, version, 9, Opcode::Result, &extras).unwrap();
                response::put_set_keyspace(frame.body(), "ks").unwrap();
                frame.warn(warnings).unwrap();
                frame.finish().unwrap();
                assert_eq!(out, expected, "{version:?} {tracing_id:?} {warnings:?}");
            }
        }
    }
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
    // Warnings that are cut short make the frame invalid, and nothing is left of the attempt.
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
