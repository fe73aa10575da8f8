//! The outer layer of v5: checksummed segments of at most 128 KiB - 1 that hold whole frames or parts of large ones.
//!
//! Header, little endian: 17 bits of payload length, one bit "self-contained", padding to 3 bytes, CRC-24. With LZ4: 17
//! bits of compressed and 17 bits of uncompressed length (0: the payload is stored as it is), the bit, padding to 5
//! bytes, CRC-24. Then the payload and its CRC-32. Source: native protocol v5 §2.

use crate::error::{Result, WireError};
use crate::frame::HEADER_LEN;
use codec::compression::lz4;
use codec::{Reader, Writer, crc24, crc32_segment_payload};

/// Bytes of the largest payload.
pub const SEGMENT_PAYLOAD_MAX: usize = (1 << 17) - 1;
/// Bytes after the payload.
pub(crate) const TRAILER_LEN: usize = 4;

/// One segment's header, its checksum verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Bytes of the payload as sent.
    pub(crate) payload_len: usize,
    /// Bytes of the payload once decompressed; `None` when it is not compressed.
    pub(crate) uncompressed_len: Option<usize>,
    /// True if it holds whole frames.
    pub(crate) self_contained: bool,
}

/// Bytes of a segment header.
pub(crate) const fn header_len(lz4: bool) -> usize {
    if lz4 { 8 } else { 6 }
}

impl SegmentHeader {
    /// `bytes` starts with a header; `None` when it is cut short.
    pub(crate) fn parse(bytes: &[u8], lz4: bool) -> Option<Result<SegmentHeader>> {
        let (numbers, checksum) = bytes.get(..header_len(lz4))?.split_last_chunk::<3>()?;
        let [c0, c1, c2] = *checksum;
        let read = u32::from_le_bytes([c0, c1, c2, 0]);
        let computed = crc24(numbers);
        if read != computed {
            return Some(Err(WireError::Checksum { part: "header", read, computed }));
        }
        let bits = numbers.iter().rev().fold(0u64, |bits, byte| (bits << 8) | u64::from(*byte));
        let field =
            |shift: u32| usize::try_from((bits >> shift) & 0x1_ffff).unwrap_or(SEGMENT_PAYLOAD_MAX);
        Some(Ok(if lz4 {
            SegmentHeader {
                payload_len: field(0),
                uncompressed_len: Some(field(17)).filter(|length| *length != 0),
                self_contained: bits >> 34 & 1 == 1,
            }
        } else {
            SegmentHeader {
                payload_len: field(0),
                uncompressed_len: None,
                self_contained: bits >> 17 & 1 == 1,
            }
        }))
    }
}

/// Checks the four bytes after a payload against it.
pub(crate) fn verify_payload(payload: &[u8], trailer: [u8; TRAILER_LEN]) -> Result<()> {
    let read = u32::from_le_bytes(trailer);
    let computed = crc32_segment_payload(payload);
    if read == computed {
        Ok(())
    } else {
        Err(WireError::Checksum { part: "body", read, computed })
    }
}

/// Appends finished v5 frames, one after the other in `frames`, to `out` as segments: as many whole
/// frames per segment as fit, larger ones spread over segments of their own. Called once per turn
/// with all answers of a connection. Bytes after the last whole frame are a broken invariant:
/// [`crate::ResponseFrame`] writes whole ones.
pub fn pack_segments(frames: &[u8], lz4: bool, out: &mut Vec<u8>) {
    let mut rest = frames;
    while !rest.is_empty() {
        let mut fit = 0usize;
        // Whole frames that fit together.
        while let Some(length) = frame_len(rest.get(fit..).unwrap_or_default()) {
            let end = fit.saturating_add(length);
            if end > SEGMENT_PAYLOAD_MAX {
                break;
            }
            fit = end;
        }
        if fit > 0 {
            let (payload, after) = rest.split_at_checked(fit).unwrap_or((rest, &[]));
            put_segment(payload, true, lz4, out);
            rest = after;
            continue;
        }
        let Some((large, after)) = frame_len(rest).and_then(|length| rest.split_at_checked(length))
        else {
            stdx::invariant!(
                false,
                "answers end with {} bytes that are no whole frame, their client would wait for ever",
                rest.len()
            );
            return;
        };
        for payload in large.chunks(SEGMENT_PAYLOAD_MAX) {
            put_segment(payload, false, lz4, out);
        }
        rest = after;
    }
}

/// Returns the length of the frame that `bytes` starts with, if it is complete.
fn frame_len(bytes: &[u8]) -> Option<usize> {
    let mut r = Reader::new(bytes, "frame");
    r.skip(HEADER_LEN.saturating_sub(4)).ok()?;
    let body = usize::try_from(r.u32().ok()?).ok()?;
    let total = body.checked_add(HEADER_LEN)?;
    (total <= bytes.len()).then_some(total)
}

/// Appends one segment. `payload` is at most [`SEGMENT_PAYLOAD_MAX`] bytes.
fn put_segment(payload: &[u8], self_contained: bool, lz4: bool, out: &mut Vec<u8>) {
    stdx::invariant!(
        payload.len() <= SEGMENT_PAYLOAD_MAX,
        "segment of {} bytes, its length field has room for {SEGMENT_PAYLOAD_MAX}",
        payload.len()
    );
    let mark = u64::from(self_contained);
    let length = payload.len() as u64;
    if !lz4 {
        put_segment_header(length | mark << 17, false, out);
        out.put_bytes(payload);
        out.put_u32_le(crc32_segment_payload(payload));
        return;
    }
    let header_at = out.len();
    out.put_u64(0);
    let payload_at = out.len();
    // A payload that does not shrink is stored: the uncompressed length is then 0.
    let compressed = lz4::compress(payload, out).ok().filter(|written| *written < payload.len());
    let (sent, uncompressed) = match compressed {
        Some(written) => (written as u64, length),
        None => {
            out.truncate(payload_at);
            out.put_bytes(payload);
            (length, 0)
        }
    };
    let checksum = crc32_segment_payload(out.get(payload_at..).unwrap_or_default());
    let header = segment_header_bytes(sent | uncompressed << 17 | mark << 34, true);
    out.patch_u64(header_at, u64::from_be_bytes(header));
    out.put_u32_le(checksum);
}

fn put_segment_header(bits: u64, lz4: bool, out: &mut Vec<u8>) {
    let header = segment_header_bytes(bits, lz4);
    out.put_bytes(header.get(..header_len(lz4)).unwrap_or_default());
}

fn segment_header_bytes(bits: u64, lz4: bool) -> [u8; 8] {
    let [b0, b1, b2, b3, b4, ..] = bits.to_le_bytes();
    let numbers = [b0, b1, b2, b3, b4];
    let width = if lz4 { 5 } else { 3 };
    let [c0, c1, c2, _] = crc24(numbers.get(..width).unwrap_or_default()).to_le_bytes();
    if lz4 { [b0, b1, b2, b3, b4, c0, c1, c2] } else { [b0, b1, b2, c0, c1, c2, 0, 0] }
}
