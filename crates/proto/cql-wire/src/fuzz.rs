//! Entry points for fuzzing: any bytes in, no panic.
//!
//! The first byte chooses side, compression and version; the rest is the input from the other side.

use crate::compression::Compression;
use crate::constants::Opcode;
use crate::decoder::{FrameDecoder, Side};
use crate::frame::{Frame, FrameHeader};
use crate::request::RequestFrame;
use crate::response::{Response, ResponseBody, encode_frame_error};
use crate::startup::StartupOptions;
use crate::version::{Negotiated, ProtocolVersion};
use stdx::invariant;

/// Limit on frames while fuzzing.
const FRAME_BYTES_MAX: usize = 1 << 16;

/// A server's decoder fed with a client's bytes, requests decoded.
pub fn fuzz_server_stream(data: &[u8]) {
    stream(data, Side::Server);
}

/// A client's decoder fed with a server's bytes, responses decoded.
pub fn fuzz_client_stream(data: &[u8]) {
    stream(data, Side::Client);
}

fn choose(choice: u8) -> (Negotiated, Option<Compression>) {
    let version = match choice % 4 {
        0 => ProtocolVersion::V3,
        1 => ProtocolVersion::V4,
        2 => ProtocolVersion::V5,
        _ => ProtocolVersion::V6,
    };
    let compression = match choice >> 4 & 3 {
        1 => Some(Compression::Lz4),
        2 if version < ProtocolVersion::V5 => Some(Compression::Snappy),
        _ => None,
    };
    (Negotiated { metadata_id: choice & 0x40 != 0, ..Negotiated::plain(version) }, compression)
}

fn stream(data: &[u8], side: Side) {
    let Some((choice, bytes)) = data.split_first() else { return };
    let (negotiated, compression) = choose(*choice);
    let mut decoder = FrameDecoder::new(side, FRAME_BYTES_MAX);
    if choice & 0x80 == 0 {
        let started = decoder.start(negotiated.version, compression);
        invariant!(started.is_ok(), "the choice is one that STARTUP accepts");
    }
    let mut input = bytes;
    loop {
        let before = input.len();
        match decoder.next(&mut input) {
            Ok(None) => break,
            Ok(Some(frame)) => {
                invariant!(frame.body.len() <= FRAME_BYTES_MAX, "INV-wire-1: the limit holds");
                message(&frame, side, negotiated);
            }
            Err(error) => {
                let mut out = Vec::new();
                encode_frame_error(&mut out, &error);
                invariant!(out.len() >= 8, "every error can be answered");
                if error.fatal {
                    return;
                }
            }
        }
        invariant!(input.len() <= before, "input only moves forward");
    }
}

fn message(frame: &Frame<'_>, side: Side, negotiated: Negotiated) {
    match side {
        Side::Server => request(frame, negotiated),
        Side::Client => response(frame, negotiated),
    }
}

fn request(frame: &Frame<'_>, negotiated: Negotiated) {
    use crate::request::{Request, RequestOptions, encode_request};
    let Ok(decoded) = RequestFrame::decode(frame, negotiated) else { return };
    let negotiated = Negotiated { version: frame.header.version, ..negotiated };
    match decoded.request {
        Request::Query { parameters, .. } | Request::Execute { parameters, .. } => {
            invariant!(
                parameters.values.iter().count() == parameters.values.len(),
                "values were checked"
            );
        }
        Request::Batch(batch) => {
            invariant!(
                batch.statements.iter().count() == batch.statements.len(),
                "statements were checked"
            );
        }
        Request::Startup(options) => {
            let _checked = StartupOptions::check(options, negotiated.version);
        }
        Request::Options
        | Request::Prepare { .. }
        | Request::Register(_)
        | Request::AuthResponse(_) => {}
    }
    let _payload = decoded.custom_payload.map(|payload| payload.iter().count());
    let _encoded =
        encode_request(&decoded.request, negotiated, &RequestOptions::default(), &mut Vec::new());
}

fn response(frame: &Frame<'_>, negotiated: Negotiated) {
    let Ok(decoded) = Response::decode(frame, negotiated) else { return };
    if let ResponseBody::Rows(rows) = &decoded.body {
        let values = u64::from(rows.row_count()).checked_mul(u64::from(rows.metadata.column_count));
        invariant!(Some(rows.values().count() as u64) == values, "rows were checked");
    }
}

/// One body, without a frame: second byte opcode, third flags.
fn body(data: &[u8], side: Side) {
    let Some((&[choice, opcode, flags], body)) = data.split_first_chunk::<3>() else { return };
    let (negotiated, _) = choose(choice);
    let Ok(opcode) = Opcode::from_number(opcode) else { return };
    let header = FrameHeader { version: negotiated.version, flags, stream: 1, opcode };
    message(&Frame { header, body }, side, negotiated);
}

/// Body of a request.
pub fn fuzz_request_body(data: &[u8]) {
    body(data, Side::Server);
}

/// Body of a response.
pub fn fuzz_response_body(data: &[u8]) {
    body(data, Side::Client);
}
