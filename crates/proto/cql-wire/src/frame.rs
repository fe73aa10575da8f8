//! The nine bytes before every message ("envelope" in v5), and building a response after them.
//!
//! Owns the header's layout, its flags, and the optional fields between header and body: tracing id, warnings, custom
//! payload.

use crate::collections::BytesMap;
use crate::compression::Compression;
use crate::constants::Opcode;
use crate::error::{Result, WireError};
use crate::primitive::{put_string_list, string_list};
use crate::version::ProtocolVersion;
use codec::CompressionError;
use codec::compression::{lz4, snappy};
use codec::writer::LengthError;
use codec::{Reader, Writer};
use stdx::Uuid;

/// Bytes of a frame header from v3 on.
pub const HEADER_LEN: usize = 9;

/// Bits of the second header byte.
pub mod flags {
    /// The body is compressed (v3, v4; without meaning in v5).
    pub const COMPRESSED: u8 = 0x01;
    /// Request: trace it. Response: a tracing id leads the body.
    pub const TRACING: u8 = 0x02;
    /// A bytes map leads the body (v4 on).
    pub const CUSTOM_PAYLOAD: u8 = 0x04;
    /// A list of warnings leads the body (responses, v4 on).
    pub const WARNING: u8 = 0x08;
    /// The client takes a version in development.
    pub const USE_BETA: u8 = 0x10;
}

/// The header of one frame, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Version of the protocol.
    pub version: ProtocolVersion,
    /// [`flags`]; unknown bits are kept and ignored, as Cassandra does.
    pub flags: u8,
    /// Chosen by the client, 0..=32767; the response repeats it. Events have -1.
    pub stream: i16,
    /// Kind of message.
    pub opcode: Opcode,
}

impl FrameHeader {
    /// Returns true if this flag is set.
    #[inline]
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// One frame: header, and body after decompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its header.
    pub header: FrameHeader,
    /// Its body; lives until the decoder is asked for the next frame.
    pub body: &'a [u8],
}

/// The nine bytes taken apart, nothing checked yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawHeader {
    pub(crate) first: u8,
    pub(crate) flags: u8,
    pub(crate) stream: i16,
    pub(crate) opcode: u8,
    pub(crate) length: u32,
}

impl RawHeader {
    #[inline]
    pub(crate) fn parse(bytes: &[u8; HEADER_LEN]) -> RawHeader {
        let [first, flags, s0, s1, opcode, l0, l1, l2, l3] = *bytes;
        RawHeader {
            first,
            flags,
            stream: i16::from_be_bytes([s0, s1]),
            opcode,
            length: u32::from_be_bytes([l0, l1, l2, l3]),
        }
    }
}

/// Direction bit of the first byte: set in responses.
pub(crate) const RESPONSE_BIT: u8 = 0x80;

pub(crate) fn put_header(
    out: &mut Vec<u8>,
    first: u8,
    flags: u8,
    stream: i16,
    opcode: Opcode,
    length: u32,
) {
    out.put_u8(first);
    out.put_u8(flags);
    out.put_i16(stream);
    out.put_u8(opcode.number());
    out.put_u32(length);
}

/// Optional parts between the header and the body of a response.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameExtras<'a> {
    /// Id of the trace that was started.
    pub tracing_id: Option<Uuid>,
    /// Warnings to the client; left out before v4, which has no place for them.
    pub warnings: &'a [&'a str],
    /// Custom payload; left out before v4.
    pub custom_payload: &'a [(&'a str, &'a [u8])],
}

/// One response under construction at the end of a connection's output buffer.
///
/// The header is reserved at the start and its length patched by [`ResponseFrame::finish`]. If it
/// is dropped without that, the buffer is truncated to its previous length: an encoder that fails
/// half-way leaves nothing in it.
#[derive(Debug)]
pub struct ResponseFrame<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    finished: bool,
}

impl<'o> ResponseFrame<'o> {
    /// Reserves the header of a response and writes the extras.
    ///
    /// # Errors
    /// `TooLong` when extras do not fit; nothing is left in `out`.
    pub fn begin(
        out: &'o mut Vec<u8>,
        version: ProtocolVersion,
        stream: i16,
        opcode: Opcode,
        extras: &FrameExtras<'_>,
    ) -> Result<ResponseFrame<'o>> {
        let start = out.len();
        let newer = version >= ProtocolVersion::V4;
        let warnings = if newer { extras.warnings } else { &[] };
        let payload = if newer { extras.custom_payload } else { &[] };
        let mut bits = 0;
        for (present, flag) in [
            (version.is_beta(), flags::USE_BETA),
            (extras.tracing_id.is_some(), flags::TRACING),
            (!warnings.is_empty(), flags::WARNING),
            (!payload.is_empty(), flags::CUSTOM_PAYLOAD),
        ] {
            bits |= if present { flag } else { 0 };
        }
        put_header(out, version.number() | RESPONSE_BIT, bits, stream, opcode, 0);
        let frame = ResponseFrame { out, start, finished: false };
        if let Some(id) = extras.tracing_id {
            frame.out.put_bytes(id.as_bytes());
        }
        if !warnings.is_empty() {
            put_string_list(frame.out, warnings)?;
        }
        if !payload.is_empty() {
            BytesMap::encode(frame.out, payload)?;
        }
        Ok(frame)
    }

    /// Takes over a whole response that was built elsewhere for the same version, neither
    /// compressed nor traced. It gets another stream, a tracing id, and its warnings after those
    /// given. A custom payload that is given is left out. `None`: the bytes are no such frame, or
    /// there are too many warnings.
    pub fn copied(
        out: &'o mut Vec<u8>,
        version: ProtocolVersion,
        stream: i16,
        extras: &FrameExtras<'_>,
        made: &[u8],
    ) -> Option<ResponseFrame<'o>> {
        let (header, body) = made.split_first_chunk::<HEADER_LEN>()?;
        let header = RawHeader::parse(header);
        let is_whole = usize::try_from(header.length) == Ok(body.len());
        let plain = header.flags & (flags::COMPRESSED | flags::TRACING) == 0;
        if header.first != version.number() | RESPONSE_BIT || !is_whole || !plain {
            return None;
        }
        let opcode = Opcode::from_number(header.opcode).ok()?;
        let FrameExtras { tracing_id, warnings, .. } = *extras;
        let warnings = if version >= ProtocolVersion::V4 { warnings } else { &[] };
        let start = out.len();
        let traced = if tracing_id.is_some() { flags::TRACING } else { 0 };
        let warned = if warnings.is_empty() { 0 } else { flags::WARNING };
        put_header(out, header.first, header.flags | traced | warned, stream, opcode, 0);
        let frame = ResponseFrame { out, start, finished: false };
        if let Some(id) = tracing_id {
            frame.out.put_bytes(id.as_bytes());
        }
        if warnings.is_empty() {
            frame.out.put_bytes(body);
            return Some(frame);
        }
        let mut rest = Reader::new(body, "warnings");
        let mut all = warnings.to_vec();
        if header.flags & flags::WARNING != 0 {
            all.extend(string_list(&mut rest).ok()?);
        }
        put_string_list(frame.out, &all).ok()?;
        frame.out.put_bytes(rest.rest());
        Some(frame)
    }

    /// Inserts warnings into a frame that was begun without any. Left out before v4, which cannot
    /// carry them.
    ///
    /// # Errors
    /// `TooLong` for a warning that does not fit; the frame is unchanged.
    pub fn warn(&mut self, warnings: &[&str]) -> Result<()> {
        let Some([first, bits]) = self.out.get_mut(self.start..).and_then(<[u8]>::first_chunk_mut)
        else {
            return Ok(());
        };
        if warnings.is_empty() || *first & !RESPONSE_BIT < ProtocolVersion::V4.number() {
            return Ok(());
        }
        let mut list = Vec::new();
        put_string_list(&mut list, warnings)?;
        let id_len = if *bits & flags::TRACING == 0 { 0 } else { Uuid::nil().as_bytes().len() };
        *bits |= flags::WARNING;
        let at = self.start.saturating_add(HEADER_LEN).saturating_add(id_len);
        self.out.splice(at..at, list);
        Ok(())
    }

    /// Returns the buffer to append the body to.
    #[inline]
    pub fn body(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Bytes of the body so far, extras included.
    pub fn body_len(&self) -> usize {
        self.out.len().saturating_sub(self.start).saturating_sub(HEADER_LEN)
    }

    /// Patches the length. Returns the bytes of the whole frame.
    ///
    /// # Errors
    /// `TooLong` when the length of the body exceeds an `i32`; nothing is left in the buffer.
    pub fn finish(mut self) -> Result<usize> {
        self.seal()?;
        Ok(self.out.len().saturating_sub(self.start))
    }

    /// Like [`ResponseFrame::finish`], with a body compressed for v3 or v4. `scratch` is working
    /// memory that the connection keeps; its content does not matter.
    ///
    /// # Errors
    /// Those of [`ResponseFrame::finish`], and `Compression`.
    pub fn finish_compressed(
        self,
        compression: Compression,
        scratch: &mut Vec<u8>,
    ) -> Result<usize> {
        let body_at = self.start.saturating_add(HEADER_LEN);
        scratch.clear();
        let body = self.out.get(body_at..).unwrap_or_default();
        compress_body(compression, body, scratch)?;
        self.out.truncate(body_at);
        self.out.put_bytes(scratch);
        match self.out.get_mut(self.start.saturating_add(1)) {
            Some(bits) => *bits |= flags::COMPRESSED,
            None => stdx::invariant!(false, "response frame at {} lost its header", self.start),
        }
        self.finish()
    }

    fn seal(&mut self) -> Result<()> {
        let length = patchable_len(self.body_len())?;
        self.out.patch_u32(self.start.saturating_add(5), length);
        self.finished = true;
        Ok(())
    }
}

impl Drop for ResponseFrame<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.out.truncate(self.start);
        }
    }
}

/// Compresses a whole body as v3 and v4 frame it.
pub(crate) fn compress_body(
    compression: Compression,
    body: &[u8],
    out: &mut Vec<u8>,
) -> Result<()> {
    match compression {
        Compression::Lz4 => lz4::compress_with_len_be(body, out)?,
        Compression::Snappy => snappy::compress(body, out)?,
    };
    Ok(())
}

/// Appends the decompressed `body` of a v3 or v4 frame. A body that declares more than `max` bytes
/// is refused before decompression.
///
/// # Errors
/// `MessageTooBig`: the sender can continue with a smaller one. `NotCompressed`,
/// `BadUncompressedLength`, `Compression`: the sender does not compress as the protocol requires.
pub(crate) fn decompress_body(
    compression: Compression,
    body: &[u8],
    max: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    let done = match compression {
        Compression::Lz4 => lz4::decompress_with_len_be(body, max, out),
        Compression::Snappy => snappy::decompress(body, max, out),
    };
    let (error, max) = match done {
        Ok(_) => return Ok(()),
        Err(error) => (error, max as u64),
    };
    Err(match (compression, error) {
        (_, CompressionError::OutputTooLong { announced, .. })
            if announced > max && announced <= i32::MAX as u64 =>
        {
            WireError::MessageTooBig { length: announced, max }
        }
        (Compression::Lz4, _) if body.len() < 4 => WireError::NotCompressed { compression },
        (Compression::Lz4, CompressionError::OutputTooLong { announced, .. })
            if announced > max =>
        {
            let length = u32::try_from(announced).unwrap_or(u32::MAX).cast_signed();
            WireError::BadUncompressedLength { length, max }
        }
        (Compression::Lz4, error) => error.into(),
        (Compression::Snappy, _) => WireError::NotCompressed { compression },
    })
}

pub(crate) fn patchable_len(length: usize) -> Result<u32> {
    match u32::try_from(length) {
        Ok(short) if short <= i32::MAX as u32 => Ok(short),
        _ => Err(WireError::TooLong(LengthError {
            what: "frame body",
            length,
            max: i32::MAX as usize,
        })),
    }
}
