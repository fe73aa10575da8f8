//! Entry points for fuzzing: any bytes in, no panic; what decodes encodes to bytes that decode alike.

use crate::filtered::{FilteredAnswer, FilteredRead};
use crate::frame::{FrameDecoder, FrameEncoder, FrameKind};
use crate::hello::Handshake;
use crate::index_search::{
    decode_index_search, decode_matches, encode_index_search, encode_matches,
};
use crate::message::{ForwardAck, Hint, Mutation, MutationForward, Ping};
use crate::read::ReadRequest;
use crate::reply::ErrorReply;
use crate::scan::{ScanPage, ScanRequest};
use crate::vector_search::{
    decode_neighbours, decode_vector_search, encode_neighbours, encode_vector_search,
};
use crate::verb::Verb;
use stdx::invariant;

/// Limit on payloads while fuzzing.
const PAYLOAD_BYTES_MAX: usize = 1 << 16;

/// Decodes the first bytes of an unknown peer.
pub fn fuzz_internode_handshake(data: &[u8]) {
    let Ok(Some((message, length))) = Handshake::decode(data) else { return };
    invariant!(length <= data.len(), "a message lies within its bytes");
    let mut again = Vec::new();
    message.encode(&mut again);
    let decoded = Handshake::decode(&again);
    invariant!(decoded == Ok(Some((message, again.len()))), "a handshake comes back");
}

/// A stream of frames; the first byte decides if they may be compressed.
pub fn fuzz_internode_frames(data: &[u8]) {
    let Some((choice, mut input)) = data.split_first() else { return };
    let mut decoder = FrameDecoder::new(choice & 1 != 0, PAYLOAD_BYTES_MAX);
    let mut encoder = FrameEncoder::new(choice & 2 != 0, PAYLOAD_BYTES_MAX);
    while let Ok(Some((frame, length))) = decoder.next(input) {
        invariant!(frame.payload.len() <= PAYLOAD_BYTES_MAX, "INV-internode-1: the limit holds");
        invariant!(length <= input.len(), "a frame lies within its bytes");
        let mut again = Vec::new();
        let written = encoder.encode(&mut again, &frame.header, |out| {
            out.extend_from_slice(frame.payload);
        });
        if written.is_ok() {
            let mut second = FrameDecoder::new(true, PAYLOAD_BYTES_MAX);
            let same = second.next(&again).is_ok_and(|f| {
                f.is_some_and(|(f, _)| f.header == frame.header && f.payload == frame.payload)
            });
            invariant!(same, "a frame comes back");
        }
        payload(frame.header.kind, frame.header.verb, frame.payload);
        input = input.get(length..).unwrap_or_default();
    }
}

/// A payload after the number of its verb (two bytes) and its kind (one).
pub fn fuzz_internode_payload(data: &[u8]) {
    let Some((&[high, low, kind], bytes)) = data.split_first_chunk::<3>() else { return };
    let kind = match kind % 3 {
        0 => FrameKind::Request,
        1 => FrameKind::Response,
        _ => FrameKind::Error,
    };
    payload(kind, u16::from_be_bytes([high, low]), bytes);
}

/// A read request from outside.
pub fn fuzz_internode_read(data: &[u8]) {
    let Ok(request) = ReadRequest::decode(data) else { return };
    let mut first = Vec::new();
    request.encode(&mut first);
    let mut second = Vec::new();
    match ReadRequest::decode(&first) {
        Ok(again) => again.encode(&mut second),
        Err(error) => stdx::invariant::broken(format_args!("a read request comes back: {error}")),
    }
    invariant!(first == second, "a read request comes back");
}

/// A request for a page of a scan, and such a page, from outside.
pub fn fuzz_internode_scan(data: &[u8]) {
    if let Ok(request) = ScanRequest::decode(data) {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        request.encode(&mut first);
        match ScanRequest::decode(&first) {
            Ok(again) => again.encode(&mut second),
            Err(error) => stdx::invariant::broken(format_args!("a scan comes back: {error}")),
        }
        invariant!(first == second, "a scan comes back");
    }
    if let Ok(page) = ScanPage::decode(data) {
        let mut again = Vec::new();
        page.encode(&mut again);
        invariant!(ScanPage::decode(&again).as_ref() == Ok(&page), "a page comes back");
    }
}

/// A request for a page that is filtered, and such a page, from outside.
pub fn fuzz_internode_filtered(data: &[u8]) {
    if let Ok(request) = FilteredRead::decode(data) {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        request.encode(&mut first);
        match FilteredRead::decode(&first) {
            Ok(again) => again.encode(&mut second),
            Err(error) => stdx::invariant::broken(format_args!("a read comes back: {error}")),
        }
        invariant!(first == second, "a filtered read comes back");
    }
    if let Ok(answer) = FilteredAnswer::decode(data) {
        let mut again = Vec::new();
        answer.encode(&mut again);
        let comes_back = FilteredAnswer::decode(&again).as_ref() == Ok(&answer);
        invariant!(comes_back, "a filtered page comes back");
    }
}

/// A search of an index, and its answer, from outside.
pub fn fuzz_internode_index_search(data: &[u8]) {
    if let Ok(search) = decode_index_search(data) {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        encode_index_search(&mut first, &search);
        match decode_index_search(&first) {
            Ok(again) => encode_index_search(&mut second, &again),
            Err(error) => stdx::invariant::broken(format_args!("a search comes back: {error}")),
        }
        invariant!(first == second, "a search comes back");
    }
    if let Ok(matches) = decode_matches(data) {
        let mut again = Vec::new();
        encode_matches(&mut again, &matches);
        invariant!(decode_matches(&again).as_ref() == Ok(&matches), "an answer comes back");
    }
}

/// A search by a vector, and its answer, from outside. Bytes are compared: a component may be no number.
pub fn fuzz_internode_vector_search(data: &[u8]) {
    if let Ok(search) = decode_vector_search(data) {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        encode_vector_search(&mut first, &search);
        match decode_vector_search(&first) {
            Ok(again) => encode_vector_search(&mut second, &again),
            Err(error) => stdx::invariant::broken(format_args!("a search comes back: {error}")),
        }
        invariant!(first == second, "a search comes back");
    }
    if let Ok(answer) = decode_neighbours(data) {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        encode_neighbours(&mut first, &answer);
        match decode_neighbours(&first) {
            Ok(again) => encode_neighbours(&mut second, &again),
            Err(error) => stdx::invariant::broken(format_args!("an answer comes back: {error}")),
        }
        invariant!(first == second, "an answer comes back");
    }
}

fn payload(kind: FrameKind, verb: u16, bytes: &[u8]) {
    let mut again = Vec::new();
    match (kind, Verb::from_number(verb)) {
        (FrameKind::Error, _) => {
            if let Ok(error) = ErrorReply::decode(bytes) {
                error.encode(&mut again);
                let cut = match &error {
                    // Texts above the limit are cut when they are sent on.
                    ErrorReply::Invalid(text) | ErrorReply::Internal(text) => {
                        text.len() > crate::reply::TEXT_BYTES_MAX
                    }
                    _ => false,
                };
                invariant!(cut || bytes.starts_with(&again), "an error reply comes back");
            }
        }
        (FrameKind::Response, Some(Verb::MutationForward)) => {
            if let Ok(ack) = ForwardAck::decode(bytes) {
                ack.encode(&mut again);
                invariant!(ForwardAck::decode(&again).is_ok(), "an acknowledgement comes back");
            }
        }
        (_, Some(Verb::Ping)) => {
            if let Ok(ping) = Ping::decode(bytes) {
                ping.encode(&mut again);
                invariant!(bytes == again, "a ping comes back");
            }
        }
        (_, Some(Verb::Mutation)) => {
            if let Ok(mutation) = Mutation::decode(bytes) {
                mutation.encode(&mut again);
                invariant!(bytes == again, "a mutation comes back");
            }
        }
        (_, Some(Verb::MutationForward)) => {
            if let Ok(forward) = MutationForward::decode(bytes) {
                forward.encode(&mut again);
                invariant!(bytes == again, "a forwarded mutation comes back");
            }
        }
        (_, Some(Verb::Hint)) => {
            if let Ok(hint) = Hint::decode(bytes) {
                hint.encode(&mut again);
                invariant!(bytes == again, "a hint comes back");
            }
        }
        (_, Some(Verb::Read | Verb::RangeRead)) => fuzz_internode_read(bytes),
        (_, Some(Verb::Scan)) => fuzz_internode_scan(bytes),
        (_, Some(Verb::FilteredRead)) => fuzz_internode_filtered(bytes),
        (_, Some(Verb::IndexSearch)) => fuzz_internode_index_search(bytes),
        (_, Some(Verb::VectorSearch)) => fuzz_internode_vector_search(bytes),
        _ => {}
    }
}
