//! Damage, limits and hostile lengths.

use super::*;
use crate::frame::HEADER_BYTES;

fn next_error(bytes: &[u8], lz4: bool, max: usize) -> FrameError {
    FrameDecoder::new(lz4, max).next(bytes).map(|f| f.map(|(_, n)| n)).unwrap_err()
}

/// Recomputes the header's checksum after a change that is meant to be seen.
fn reseal(frame: &mut [u8]) {
    let checksum = codec::crc32(&frame[..32]);
    frame[32..36].copy_from_slice(&checksum.to_be_bytes());
}

/// INV-internode-2.
#[test]
fn no_flipped_bit_of_a_frame_goes_unseen() {
    let frame = frame_of(&header(FrameKind::Request, Verb::Mutation), &mutation(b"k"), false);
    for bit in 0..frame.len() * 8 {
        let mut damaged = frame.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let decoded = FrameDecoder::new(true, 1 << 20).next(&damaged).map(|f| f.is_some());
        assert!(decoded.is_err(), "bit {bit}");
    }
}

#[test]
fn no_flipped_bit_of_a_handshake_goes_unseen() {
    let bytes = payload_of(|out| Handshake::Hello(hello()).encode(out));
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        // A longer length only waits for more bytes, and the checksum would not match either.
        let waits = (48..64).contains(&bit);
        let decoded = Handshake::decode(&damaged);
        // The byte after the kind is not used yet, but the checksum covers it.
        assert!(decoded.is_err() || (waits && decoded == Ok(None)), "bit {bit}: {decoded:?}");
    }
}

#[test]
fn a_part_of_a_frame_waits_for_the_rest() {
    let frame = frame_of(&header(FrameKind::Request, Verb::Ping), &[1; 8], false);
    let mut decoder = FrameDecoder::new(false, 100);
    for cut in 0..frame.len() {
        assert!(decoder.next(&frame[..cut]).unwrap().is_none(), "{cut}");
        let needed = decoder.needed(&frame[..cut]).unwrap();
        assert_eq!(needed, (cut >= HEADER_BYTES).then_some(HEADER_BYTES + 8));
    }
    let mut two = frame.clone();
    two.extend_from_slice(&frame);
    let (_, length) = decoder.next(&two).unwrap().unwrap();
    assert_eq!(length, frame.len());
    assert!(decoder.next(&two[length..]).unwrap().is_some());
}

#[test]
fn the_longest_payload_passes_and_one_byte_more_does_not_on_either_side() {
    let head = header(FrameKind::Request, Verb::Echo);
    let mut encoder = FrameEncoder::new(false, 1000);
    let mut out = b"before".to_vec();
    let refused = encoder.encode(&mut out, &head, |o| o.extend_from_slice(&[7; 1001]));
    assert_eq!(refused, Err(FrameTooLong { length: 1001, max: 1000 }));
    assert_eq!(out, b"before");
    assert!(encoder.encode(&mut out, &head, |o| o.extend_from_slice(&[7; 1000])).is_ok());
    let frame = &out[6..];
    assert!(FrameDecoder::new(false, 1000).next(frame).unwrap().is_some());
    // Refused by its header alone, before any byte of the payload has arrived.
    let error = next_error(&frame[..HEADER_BYTES], false, 999);
    assert_eq!(error, FrameError::TooLong { verb: 2, length: 1000, max: 999 });
}

#[test]
fn a_block_that_grows_above_the_limit_is_refused() {
    let frame = frame_of(&header(FrameKind::Request, Verb::Echo), &[0; 10_000], true);
    assert!(frame.len() < 200, "compressed to {}", frame.len());
    assert!(FrameDecoder::new(true, 10_000).next(&frame).unwrap().is_some());
    assert!(matches!(next_error(&frame, true, 9_999), FrameError::Compression(_)));
    assert!(matches!(next_error(&frame, false, 10_000), FrameError::Compression(_)));
}

#[test]
fn meaningless_fields_are_refused_even_with_a_good_checksum() {
    let frame = frame_of(&header(FrameKind::Request, Verb::Echo), b"12345678", false);
    let with = |at: usize, value: u8| {
        let mut changed = frame.clone();
        changed[at] = value;
        reseal(&mut changed);
        FrameDecoder::new(true, 100).next(&changed).map(|f| f.is_some())
    };
    assert_eq!(with(4, 3), Ok(true));
    assert_eq!(with(4, 0), Err(FrameError::Field { field: "kind", value: 0 }));
    assert_eq!(with(4, 6), Err(FrameError::Field { field: "kind", value: 6 }));
    assert_eq!(with(5, 8), Err(FrameError::Field { field: "flags", value: 8 }));
    assert_eq!(with(5, 4), Err(FrameError::Field { field: "flags", value: 4 }), "no response");
    assert_eq!(with(5, 1), Err(FrameError::Short { verb: 2, length: 8 }), "no trace id");
    assert!(matches!(with(5, 2), Err(FrameError::Compression(_))));
    // Verbs of later versions are for the receiver to answer, not a broken connection.
    assert_eq!(with(6, 0x7f), Ok(true));
}

#[test]
fn the_deadline_of_a_frame_that_waited_can_be_set_again() {
    let mut frame = frame_of(&header(FrameKind::Request, Verb::Echo), b"payload", false);
    let deadline = |frame: &[u8]| {
        let mut decoder = FrameDecoder::new(false, 100);
        let (frame, _) = decoder.next(frame).unwrap().unwrap();
        assert_eq!(frame.payload, b"payload");
        frame.header.deadline_micros
    };
    patch_deadline(&mut frame, 5);
    assert_eq!(deadline(&frame), 5);
    patch_deadline(&mut frame, 0);
    assert_eq!(deadline(&frame), 1, "zero would mean none");
    let none = FrameHeader { deadline_micros: 0, ..header(FrameKind::Response, Verb::Echo) };
    let mut frame = frame_of(&none, b"payload", false);
    patch_deadline(&mut frame, 5);
    assert_eq!(deadline(&frame), 0);
}

#[test]
fn damaged_messages_are_refused() {
    assert!(Ping::decode(&[0; 7]).is_err() && Ping::decode(&[0; 9]).is_err());
    let bytes = mutation(b"k");
    let good = payload_of(|o| Mutation { flags: MutationFlags::NONE, bytes: &bytes }.encode(o));
    assert!(Mutation::decode(&good).is_ok());
    for (at, value) in [(0, 4), (1, 9)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert!(Mutation::decode(&bad).is_err(), "{at}");
    }
    assert!(Mutation::decode(&[]).is_err() && Mutation::decode(&[0]).is_err());
    let read = payload_of(|o| point_read().encode(o));
    for cut in 0..read.len() {
        assert!(ReadRequest::decode(&read[..cut]).is_err(), "{cut}");
    }
    let mut longer = read.clone();
    longer.push(0);
    assert!(ReadRequest::decode(&longer).is_err());
    let mut newer = read.clone();
    newer[0] = 2;
    assert!(ReadRequest::decode(&newer).is_err());
}

#[test]
fn a_range_that_wraps_is_refused_and_its_nearest_neighbour_is_not() {
    let with = |start: RingBound, end: RingBound| {
        let mut read = range_read();
        read.command.partitions = Partitions::Range(KeyRange { start, end });
        ReadRequest::decode(&payload_of(|o| read.encode(o))).is_ok()
    };
    let token = |t, after| RingBound::Token { token: Token(t), after };
    let key = |k: &[u8], after| RingBound::Key { token: Token(4), key: k.to_vec(), after };
    assert!(with(token(4, true), token(5, false)));
    assert!(!with(token(5, false), token(4, true)));
    assert!(with(key(b"a", true), key(b"b", false)));
    assert!(!with(key(b"b", false), key(b"a", true)));
    assert!(with(token(4, false), key(b"a", false)) && with(key(b"a", true), token(4, true)));
    assert!(!with(token(4, true), key(b"a", false)) && !with(key(b"a", true), token(4, false)));
}

/// INV-internode-1.
#[test]
fn a_count_that_the_bytes_do_not_bear_out_reserves_nothing() {
    use codec::Writer;
    let read = range_read();
    let mut bytes = payload_of(|o| read.encode(o));
    // The last part is the slices: one of three bytes, its count before.
    bytes.truncate(bytes.len() - 4);
    bytes.put_vint_unsigned(1 << 30);
    bytes.extend_from_slice(&[0; 30]);
    let error = ReadRequest::decode(&bytes).unwrap_err();
    let expected = codec::DecodeErrorKind::TooLong { length: 1 << 30, max: 10 };
    assert_eq!(error.kind, expected);
}

#[test]
fn only_reads_that_pass_by_the_caches_are_of_the_second_version() {
    let mut read = range_read();
    let usual = payload_of(|o| read.encode(o));
    read.command.bypass_cache = true;
    let passing = payload_of(|o| read.encode(o));
    assert_eq!((usual[0], &passing[..3]), (1, [2, usual[1], 1].as_slice()));
    assert_eq!(passing[3..], usual[2..]);
    let bypasses = |bytes: &[u8]| ReadRequest::decode(bytes).map(|r| r.command.bypass_cache).ok();
    assert_eq!((bypasses(&usual), bypasses(&passing)), (Some(false), Some(true)));
    for flags in [0, 2, 3, 0xff] {
        let mut other = passing.clone();
        other[2] = flags;
        assert_eq!(bypasses(&other), None, "flags {flags}");
    }
    let mut third = passing;
    third[0] = 3;
    assert_eq!(bypasses(&third), None);
}

#[test]
fn a_limit_per_partition_has_one_encoding() {
    let mut read = range_read();
    let without = payload_of(|o| read.encode(o));
    read.limits.rows_per_partition = 7;
    let with = payload_of(|o| read.encode(o));
    // Behind version, flags, table, rows (100) and bytes (65536, three bytes).
    let at = 1 + 1 + 16 + 1 + 3;
    assert_eq!((with[at], with.len()), (7, without.len() + 1));
    let limit = |bytes: &[u8]| ReadRequest::decode(bytes).map(|r| r.limits.rows_per_partition).ok();
    assert_eq!((limit(&without), limit(&with)), (Some(u32::MAX), Some(7)));
    let mut zero = with;
    zero[at] = 0;
    assert_eq!(limit(&zero), None);
    zero.splice(at..=at, [0xf0, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(limit(&zero), None, "no limit is said by the flag");
}

#[test]
fn damaged_scans_are_refused_or_mean_something() {
    let request = payload_of(|o| scan().encode(o));
    let page = payload_of(|o| scan_page().encode(o));
    for cut in 0..request.len() {
        assert!(ScanRequest::decode(&request[..cut]).is_err(), "{cut}");
    }
    // Items end where the page does, so a page that is cut inside of them is one.
    let items = scan_page().items.len();
    for cut in 0..page.len() - items {
        assert!(ScanPage::decode(&page[..cut]).is_err(), "{cut}");
    }
    for message in [request, page] {
        for bit in 0..message.len() * 8 {
            let mut damaged = message.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fuzz::fuzz_internode_scan(&damaged);
        }
    }
}

#[test]
fn damaged_filtered_reads_are_refused_or_mean_something() {
    let request = payload_of(|o| filtered_read().encode(o));
    let answer = payload_of(|o| filtered_answer().encode(o));
    for cut in 0..request.len() {
        assert!(FilteredRead::decode(&request[..cut]).is_err(), "{cut}");
    }
    // The rest is the page, which is checked with the table at hand.
    let page = filtered_answer().page.len();
    for cut in 0..answer.len() - page {
        assert!(FilteredAnswer::decode(&answer[..cut]).is_err(), "{cut}");
    }
    for message in [request, answer] {
        for bit in 0..message.len() * 8 {
            let mut damaged = message.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fuzz::fuzz_internode_filtered(&damaged);
        }
    }
}

#[test]
fn a_filtered_read_that_cannot_be_is_refused() {
    let is_taken = |change: &dyn Fn(&mut FilteredRead<'_>)| {
        let mut request = filtered_read();
        change(&mut request);
        FilteredRead::decode(&payload_of(|o| request.encode(o))).is_ok()
    };
    assert!(is_taken(&|_| {}));
    assert!(!is_taken(&|r| r.command.partitions = Partitions::Key(b"k".to_vec())));
    assert!(!is_taken(&|r| r.limits.rows_per_partition = 7));
    let mut bytes = payload_of(|o| filtered_read().encode(o));
    bytes[0] = 2;
    assert!(FilteredRead::decode(&bytes).is_err(), "another version");
    let mut bytes = payload_of(|o| filtered_answer().encode(o));
    bytes[1] |= 2;
    assert!(FilteredAnswer::decode(&bytes).is_err(), "an unknown flag");
    let mut for_digest = Vec::new();
    for_digest.extend_from_slice(&[1, 0]);
    let FilteredRead { limits, command, .. } = filtered_read();
    encode_read(&mut for_digest, &command, limits, true);
    assert!(FilteredRead::decode(&for_digest).is_err(), "a digest of what is filtered");
}

#[test]
fn a_scan_that_cannot_be_is_refused() {
    let is_taken = |change: &dyn Fn(&mut ScanRequest<'_>)| {
        let mut request = scan();
        change(&mut request);
        ScanRequest::decode(&payload_of(|o| request.encode(o))).is_ok()
    };
    let range = |start: i64, end: i64| KeyRange {
        start: RingBound::Token { token: Token(start), after: true },
        end: RingBound::Token { token: Token(end), after: true },
    };
    assert!(is_taken(&|_| {}));
    assert!(is_taken(&|r| r.shard = ShardId(2)) && !is_taken(&|r| r.shard = ShardId(3)));
    // Behind the first range, which ends at 12.
    assert!(is_taken(&|r| r.further = vec![range(12, 20), range(20, 21)]));
    assert!(!is_taken(&|r| r.further = vec![range(11, 20)]), "ranges overlap");
    assert!(!is_taken(&|r| r.further = vec![range(30, 40), range(20, 25)]), "they descend");
    assert!(!is_taken(&|r| r.further = vec![range(30, 20)]), "one is upside down");
    assert!(!is_taken(&|r| r.command.partitions = Partitions::Key(b"k".to_vec())));
    let digest = ReadRequest { digest: true, ..range_read() };
    let mut bytes = payload_of(|o| scan().encode(o));
    let read = payload_of(|o| range_read().encode(o));
    bytes.truncate(bytes.len() - read.len());
    digest.encode(&mut bytes);
    assert!(ScanRequest::decode(&bytes).is_err(), "a digest of a scan");
    let end = ScanPage { end: None, ..scan_page() };
    assert!(ScanPage::decode(&payload_of(|o| end.encode(o))).is_err(), "more, and no end");
}
