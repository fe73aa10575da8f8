//! Frames: the unit of everything after the handshake.
//!
//! ```text
//! length u32 · kind u8 · flags u8 · verb u16 · stream u64 · epoch u64 · deadline u32
//! · payload CRC32 u32 · header CRC32 u32 · payload (length bytes)
//! ```
//!
//! The header's checksum is looked at before its length is believed. With flag TRACED the payload
//! begins with a trace session id; with flag LZ4 what follows is the plain length u32 and a block.

use crate::verb::Verb;
use codec::compression::lz4;
use codec::{Reader, Writer, crc32};
use stdx::{Epoch, Uuid};

/// Bytes of a frame before its payload.
pub const HEADER_BYTES: usize = 36;
/// Largest payload unless configured otherwise, bytes, plain or compressed.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;
/// Payloads below this are not worth compressing.
const COMPRESS_BYTES_MIN: usize = 512;

const FLAG_TRACED: u8 = 1;
const FLAG_LZ4: u8 = 2;
const FLAG_MORE: u8 = 4;
const FLAGS: u8 = FLAG_TRACED | FLAG_LZ4 | FLAG_MORE;
const TRACE_BYTES: usize = 16;

const DEADLINE_AT: usize = 24;
const PAYLOAD_CHECKSUM_AT: usize = 28;
const HEADER_CHECKSUM_AT: usize = 32;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Wants a response with its stream id.
    Request = 1,
    /// Answers a request.
    Response = 2,
    /// Wants no response.
    OneWay = 3,
    /// The request with this stream id is not waited for any more.
    Cancel = 4,
    /// Answers a request with an [`crate::ErrorReply`].
    Error = 5,
}

impl FrameKind {
    fn from_number(number: u8) -> Option<FrameKind> {
        match number {
            1 => Some(FrameKind::Request),
            2 => Some(FrameKind::Response),
            3 => Some(FrameKind::OneWay),
            4 => Some(FrameKind::Cancel),
            5 => Some(FrameKind::Error),
            _ => None,
        }
    }
}

/// The fields of a frame before its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Number of its verb, also one of a later version.
    pub verb: u16,
    /// Pairs a response with its request; chosen by the side that connected. 0 in one-way frames.
    pub stream: u64,
    /// Last entry of the metadata log that the sender had applied.
    pub epoch: Epoch,
    /// Time left for a request or one-way message when it was sent, microseconds; 0 = no deadline.
    pub deadline_micros: u32,
    /// Trace session that this belongs to.
    pub trace: Option<Uuid>,
    /// A response that is not the last one of its request.
    pub more: bool,
}

impl FrameHeader {
    /// The verb; `None` when this build does not know it.
    pub fn known_verb(&self) -> Option<Verb> {
        Verb::from_number(self.verb)
    }
}

/// A whole frame. The payload is borrowed from the received bytes or from the decoder.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its header.
    pub header: FrameHeader,
    /// Its payload, plain.
    pub payload: &'a [u8],
}

/// Bytes that are no frame: the connection must be closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The header is damaged, or these bytes are no header.
    #[error("the checksum of a frame's header is wrong")]
    HeaderChecksum,
    /// The payload is damaged.
    #[error("the checksum of a frame's payload is wrong ({verb:#06x}, {length} bytes)")]
    PayloadChecksum {
        /// Verb of the frame.
        verb: u16,
        /// Length of the payload.
        length: usize,
    },
    /// Longer than allowed.
    #[error("a frame has {length} bytes of payload, the limit is {max} ({verb:#06x})")]
    TooLong {
        /// Verb of the frame.
        verb: u16,
        /// Actual length.
        length: usize,
        /// Limit.
        max: usize,
    },
    /// A field of the header has no meaning.
    #[error("a frame has the {field} {value}, which means nothing")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u8,
    },
    /// The payload is shorter than its flags require.
    #[error("the payload of a frame is cut short ({verb:#06x}, {length} bytes)")]
    Short {
        /// Verb of the frame.
        verb: u16,
        /// Length of the payload.
        length: usize,
    },
    /// A compressed payload where compression was not agreed, or a damaged one.
    #[error("the compressed payload of a frame cannot be used: {0}")]
    Compression(&'static str),
}

/// A payload above the limit; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {length} bytes, the limit is {max}")]
pub struct FrameTooLong {
    /// Its length.
    pub length: usize,
    /// The limit.
    pub max: usize,
}

/// Appends frames to an output buffer.
#[derive(Debug)]
pub struct FrameEncoder {
    lz4: bool,
    payload_bytes_max: usize,
    scratch: Vec<u8>,
}

impl FrameEncoder {
    /// With compression if `lz4`; payloads of at most `payload_bytes_max` bytes.
    pub fn new(lz4: bool, payload_bytes_max: usize) -> FrameEncoder {
        let payload_bytes_max = payload_bytes_max.min(u32::MAX as usize);
        FrameEncoder { lz4, payload_bytes_max, scratch: Vec::new() }
    }

    /// Appends one frame, whose payload `write` appends, and returns its whole length. `write` must
    /// only append.
    ///
    /// # Errors
    /// The payload is above the limit: `out` is as before.
    pub fn encode(
        &mut self,
        out: &mut Vec<u8>,
        header: &FrameHeader,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<usize, FrameTooLong> {
        let start = out.len();
        out.put_u32(0);
        out.put_u8(header.kind as u8);
        out.put_u8(0);
        out.put_u16(header.verb);
        out.put_u64(header.stream);
        out.put_u64(header.epoch.0);
        out.put_u32(header.deadline_micros);
        out.put_u64(0);
        let payload_at = out.len();
        let mut flags = if header.more { FLAG_MORE } else { 0 };
        if let Some(trace) = header.trace {
            flags |= FLAG_TRACED;
            out.put_bytes(trace.as_bytes());
        }
        let plain_at = out.len();
        write(out);
        let length = out.len().saturating_sub(payload_at);
        if length > self.payload_bytes_max {
            out.truncate(start);
            return Err(FrameTooLong { length, max: self.payload_bytes_max });
        }
        if self.lz4 && self.compress(out, plain_at) {
            flags |= FLAG_LZ4;
        }
        let payload = out.get(payload_at..).unwrap_or_default();
        let (length, checksum) = (payload.len(), crc32(payload));
        let announced = u32::try_from(length).unwrap_or(u32::MAX);
        stdx::invariant!(
            length <= self.payload_bytes_max && announced != u32::MAX,
            "frame with a payload of {length} bytes, its reader takes {}",
            self.payload_bytes_max
        );
        out.patch_u32(start, announced);
        match out.get_mut(start.saturating_add(5)) {
            Some(place) => *place = flags,
            None => stdx::invariant!(false, "frame at {start} was cut off before its flags"),
        }
        out.patch_u32(start.saturating_add(PAYLOAD_CHECKSUM_AT), checksum);
        seal(out.get_mut(start..).unwrap_or_default());
        Ok(out.len().saturating_sub(start))
    }

    /// Replaces the plain bytes from `at` on by their block, when that is shorter.
    fn compress(&mut self, out: &mut Vec<u8>, at: usize) -> bool {
        let plain = out.get(at..).unwrap_or_default();
        if plain.len() < COMPRESS_BYTES_MIN {
            return false;
        }
        self.scratch.clear();
        let compressed = lz4::compress_with_len_be(plain, &mut self.scratch);
        // An eighth at least, or the other side's work is not worth it.
        let worth = plain.len().saturating_sub(plain.len() / 8);
        if compressed.is_err() || self.scratch.len() > worth {
            return false;
        }
        out.truncate(at);
        out.extend_from_slice(&self.scratch);
        if self.scratch.capacity() > (1 << 20) {
            self.scratch = Vec::new();
        }
        true
    }
}

/// Writes the header's checksum.
fn seal(frame: &mut [u8]) {
    let checksum = crc32(frame.get(..HEADER_CHECKSUM_AT).unwrap_or_default());
    match frame.get_mut(HEADER_CHECKSUM_AT..HEADER_BYTES) {
        Some(place) => place.copy_from_slice(&checksum.to_be_bytes()),
        None => stdx::invariant!(false, "frame of {} bytes has no header", frame.len()),
    }
}

/// Sets the time left of an encoded frame that waited to be sent. `frame` begins with its header;
/// a frame without a deadline stays as it is.
pub fn patch_deadline(frame: &mut [u8], deadline_micros: u32) {
    let length = frame.len();
    let Some(place) = frame.get_mut(DEADLINE_AT..PAYLOAD_CHECKSUM_AT) else {
        stdx::invariant::broken(format_args!("frame of {length} bytes has no deadline to set"))
    };
    if place.iter().all(|b| *b == 0) {
        return;
    }
    // Zero would mean that there is no deadline.
    place.copy_from_slice(&deadline_micros.max(1).to_be_bytes());
    seal(frame);
}

/// Splits received bytes into frames.
#[derive(Debug)]
pub struct FrameDecoder {
    lz4: bool,
    payload_bytes_max: usize,
    plain: Vec<u8>,
}

impl FrameDecoder {
    /// Takes compressed payloads if `lz4`; payloads of at most `payload_bytes_max` bytes.
    pub fn new(lz4: bool, payload_bytes_max: usize) -> FrameDecoder {
        FrameDecoder { lz4, payload_bytes_max, plain: Vec::new() }
    }

    /// The frame at the start of `input` and its whole length; `None` when it is incomplete.
    ///
    /// # Errors
    /// The bytes are no frame; the bytes after them cannot be used either.
    pub fn next<'a>(
        &'a mut self,
        input: &'a [u8],
    ) -> Result<Option<(Frame<'a>, usize)>, FrameError> {
        let Some(raw) = self.header(input)? else { return Ok(None) };
        let whole = HEADER_BYTES.saturating_add(raw.length);
        let Some(payload) = input.get(HEADER_BYTES..whole) else { return Ok(None) };
        if crc32(payload) != raw.payload_checksum {
            let (verb, length) = (raw.header.verb, raw.length);
            return Err(FrameError::PayloadChecksum { verb, length });
        }
        let (verb, length) = (raw.header.verb, raw.length);
        let mut header = raw.header;
        let mut payload = payload;
        if raw.flags & FLAG_TRACED != 0 {
            let Some((trace, rest)) = payload.split_first_chunk::<TRACE_BYTES>() else {
                return Err(FrameError::Short { verb, length });
            };
            header.trace = Some(Uuid::from_bytes(*trace));
            payload = rest;
        }
        if raw.flags & FLAG_LZ4 != 0 {
            payload = self.decompress(payload)?;
        }
        Ok(Some((Frame { header, payload }, whole)))
    }

    /// Returns the total length of the frame at the start of `input`, once its header has arrived.
    ///
    /// # Errors
    /// Those of [`FrameDecoder::next`].
    pub fn needed(&self, input: &[u8]) -> Result<Option<usize>, FrameError> {
        Ok(self.header(input)?.map(|raw| HEADER_BYTES.saturating_add(raw.length)))
    }

    fn header(&self, input: &[u8]) -> Result<Option<RawHeader>, FrameError> {
        let Some(bytes) = input.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let raw = RawHeader::read(bytes)?;
        if raw.length > self.payload_bytes_max {
            let (verb, length, max) = (raw.header.verb, raw.length, self.payload_bytes_max);
            return Err(FrameError::TooLong { verb, length, max });
        }
        Ok(Some(raw))
    }

    fn decompress(&mut self, payload: &[u8]) -> Result<&[u8], FrameError> {
        if !self.lz4 {
            return Err(FrameError::Compression("it was not agreed on"));
        }
        self.plain.clear();
        if self.plain.capacity() > (1 << 20) {
            self.plain = Vec::new();
        }
        lz4::decompress_with_len_be(payload, self.payload_bytes_max, &mut self.plain)
            .map_err(|_| FrameError::Compression("the block is damaged or too long"))?;
        Ok(&self.plain)
    }
}

struct RawHeader {
    header: FrameHeader,
    flags: u8,
    length: usize,
    payload_checksum: u32,
}

impl RawHeader {
    fn read(bytes: &[u8; HEADER_BYTES]) -> Result<RawHeader, FrameError> {
        let short = |_| FrameError::HeaderChecksum;
        let mut reader = Reader::new(bytes, "frame header");
        let length = reader.u32().map_err(short)? as usize;
        let kind = reader.u8().map_err(short)?;
        let flags = reader.u8().map_err(short)?;
        let verb = reader.u16().map_err(short)?;
        let stream = reader.u64().map_err(short)?;
        let epoch = Epoch(reader.u64().map_err(short)?);
        let deadline_micros = reader.u32().map_err(short)?;
        let payload_checksum = reader.u32().map_err(short)?;
        let checksum = reader.u32().map_err(short)?;
        if checksum != crc32(bytes.get(..HEADER_CHECKSUM_AT).unwrap_or_default()) {
            return Err(FrameError::HeaderChecksum);
        }
        let Some(known) = FrameKind::from_number(kind) else {
            return Err(FrameError::Field { field: "kind", value: kind });
        };
        if flags & !FLAGS != 0 {
            return Err(FrameError::Field { field: "flags", value: flags });
        }
        let more = flags & FLAG_MORE != 0;
        if more && known != FrameKind::Response {
            return Err(FrameError::Field { field: "flags", value: flags });
        }
        let header =
            FrameHeader { kind: known, verb, stream, epoch, deadline_micros, trace: None, more };
        Ok(RawHeader { header, flags, length, payload_checksum })
    }
}
