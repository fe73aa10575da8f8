//! From a stream of bytes to frames.
//!
//! Owns the one machine that cuts received bytes into frames: plain frames of v3 and v4 (decompressed where needed),
//! v5 before and after the switch to segments. It reads from the caller's buffer and copies only decompressed
//! bodies, and frames that are spread over segments. It decides for each error whether the connection stays open.
//!
//! INV-wire-decoder-1: a frame above the limit is never collected; its bytes are skipped as they arrive. The same
//! applies to a frame that the caller refuses while it is incomplete ([`FrameDecoder::refuse_partial`]).

use crate::compression::Compression;
use crate::constants::Opcode;
use crate::error::{FrameError, WireError};
use crate::frame::{
    Frame, FrameHeader, HEADER_LEN, RESPONSE_BIT, RawHeader, decompress_body, flags,
};
use crate::segment::{SegmentHeader, TRAILER_LEN, header_len, verify_payload};
use crate::version::ProtocolVersion;
use codec::compression::lz4;
use std::ops::Range;

/// Capacity above which buffers for decompressed and collected frames are given back before the next one.
const KEEP_CAPACITY_MAX: usize = 1 << 20;
/// The same while no frame is being taken.
const IDLE_CAPACITY_MAX: usize = 64 << 10;

/// Side that decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Takes requests.
    Server,
    /// Takes responses.
    Client,
}

/// Cuts frames out of received bytes.
///
/// ```text
/// loop {
///     let mut input = &received[..];
///     while let Some(frame) = decoder.next(&mut input)? { … }   // an error that is not fatal: go on calling
///     drop the bytes before `input` from `received`, read at least decoder.missing() more
/// }
/// ```
#[derive(Debug)]
pub struct FrameDecoder {
    side: Side,
    frame_bytes_max: usize,
    /// Set by [`FrameDecoder::start`]: frames of another version are refused from then on.
    locked: Option<ProtocolVersion>,
    compression: Option<Compression>,
    segmented: bool,
    /// Bytes to pass over, then the error to report.
    discard: Option<(u64, FrameError)>,
    missing: usize,
    payload: Payload,
    /// Decompressed body or payload.
    scratch: Vec<u8>,
    /// The large frame being collected from segments.
    large: Vec<u8>,
    large_state: Large,
}

/// Location of the rest of the current self-contained segment.
#[derive(Clone, Copy, Debug)]
enum Payload {
    None,
    /// In the input: this many bytes, then the trailer.
    Input(usize),
    /// In `scratch`, from this position on.
    Scratch(usize),
}

#[derive(Clone, Debug)]
enum Large {
    None,
    /// Collecting: bytes in all.
    Collecting(usize, FrameHeader),
    /// Passing over: bytes left, then the error.
    Discarding(u64, FrameError),
    /// Handed out; to be cleared.
    Done,
}

enum Place<'i> {
    Input(&'i [u8]),
    Scratch(Range<usize>),
    Large,
}

type Step<'i> = Result<Option<(FrameHeader, Place<'i>)>, FrameError>;

impl FrameDecoder {
    /// For a new connection. `frame_bytes_max` (`native_transport_max_frame_size`, 16 MiB by default) bounds a plain
    /// frame with its header, and the body of a frame that came in segments or compressed, as in Cassandra.
    pub fn new(side: Side, frame_bytes_max: usize) -> FrameDecoder {
        FrameDecoder {
            side,
            frame_bytes_max,
            locked: None,
            compression: None,
            segmented: false,
            discard: None,
            missing: HEADER_LEN,
            payload: Payload::None,
            scratch: Vec::new(),
            large: Vec::new(),
            large_state: Large::None,
        }
    }

    /// To be called when STARTUP was answered with READY or AUTHENTICATE (by the server after encoding that answer,
    /// by the client after decoding it): everything after is of this version, compressed like this, and in v5 in
    /// segments.
    ///
    /// # Errors
    /// `SnappyInV5`.
    pub fn start(
        &mut self,
        version: ProtocolVersion,
        compression: Option<Compression>,
    ) -> Result<(), WireError> {
        if version.has_segments() && compression == Some(Compression::Snappy) {
            return Err(WireError::SnappyInV5);
        }
        self.locked = Some(version);
        self.compression = compression;
        self.segmented = version.has_segments();
        Ok(())
    }

    /// After `next` returned `None`: least number of further bytes that the next frame needs.
    pub fn missing(&self) -> usize {
        self.missing.max(1)
    }

    /// Memory of a frame that is not complete.
    pub fn held_bytes(&self) -> usize {
        self.scratch.capacity().saturating_add(self.large.capacity())
    }

    /// Returns true if a part of a frame arrived that is neither in the input nor handed out: of a
    /// large frame in segments, or of one that is skipped.
    pub fn is_within_frame(&self) -> bool {
        self.discard.is_some()
            || matches!(self.large_state, Large::Collecting(..) | Large::Discarding(..))
    }

    /// Skips the rest of the incomplete frame and reports `NoMemory` on its stream when its end was
    /// reached. `input` is the rest that `next` left when it returned `None`. Returns false if the
    /// frame is not identified yet, or is skipped already.
    pub fn refuse_partial(&mut self, input: &[u8]) -> bool {
        if self.segmented {
            let Large::Collecting(length, header) = self.large_state else { return false };
            let left = length.saturating_sub(self.large.len());
            let error =
                self.on_stream(header.stream, WireError::NoMemory { length: length as u64 });
            self.large_state = Large::Discarding(left as u64, error);
            self.large = Vec::new();
            return true;
        }
        let Some(bytes) = input.first_chunk::<HEADER_LEN>().filter(|_| self.discard.is_none())
        else {
            return false;
        };
        let raw = RawHeader::parse(bytes);
        let length = u64::from(raw.length).saturating_add(HEADER_LEN as u64);
        if length <= input.len() as u64 || self.check_header(&raw).is_err() {
            return false;
        }
        self.discard = Some((length, self.on_stream(raw.stream, WireError::NoMemory { length })));
        true
    }

    /// Gives the memory of a large frame back that was handed out. Called when `next` has nothing more to hand out.
    pub fn release_large(&mut self) {
        if matches!(self.large_state, Large::Done) {
            self.large_state = Large::None;
            clear(&mut self.large, IDLE_CAPACITY_MAX);
        }
        if matches!(self.payload, Payload::None | Payload::Input(_)) {
            clear(&mut self.scratch, IDLE_CAPACITY_MAX);
        }
    }

    /// The next frame, or `None` when `input` does not hold a whole one; `input` is advanced past
    /// the used bytes.
    ///
    /// The bytes left in `input` must be presented again, followed by more.
    ///
    /// # Errors
    /// See [`FrameError::fatal`]: after an error that is not fatal the decoder has passed the bad
    /// frame.
    pub fn next<'a, 'i: 'a>(
        &'a mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Frame<'a>>, FrameError> {
        let step =
            if self.segmented { self.next_in_segments(input) } else { self.next_plain(input) };
        let Some((header, place)) = step? else { return Ok(None) };
        let body = match place {
            Place::Input(body) => body,
            Place::Scratch(range) => self.scratch.get(range).unwrap_or_default(),
            Place::Large => self.large.get(HEADER_LEN..).unwrap_or_default(),
        };
        Ok(Some(Frame { header, body }))
    }

    fn next_plain<'i>(&mut self, input: &mut &'i [u8]) -> Step<'i> {
        if let Some((left, error)) = self.discard.take() {
            let left = advance_some(input, left);
            if left == 0 {
                return Err(error);
            }
            self.missing = usize::try_from(left).unwrap_or(usize::MAX);
            self.discard = Some((left, error));
            return Ok(None);
        }
        let Some(first) = input.first().copied() else { return self.need(HEADER_LEN) };
        let number = first & !RESPONSE_BIT;
        let Some(bytes) = input.first_chunk::<HEADER_LEN>() else {
            // v1 and v2 have shorter headers: their clients may never send a ninth byte.
            if number < 3 {
                *input = &[];
                return Err(unsupported(number, 0));
            }
            return self.need(HEADER_LEN.saturating_sub(input.len()));
        };
        let raw = RawHeader::parse(bytes);
        let total = u64::from(raw.length).saturating_add(HEADER_LEN as u64);
        let checked = match self.check_header(&raw) {
            Err(error) if error.fatal => {
                *input = &[];
                return Err(error);
            }
            checked if total > self.frame_bytes_max as u64 => {
                let too_big = WireError::TooBig { length: total, max: self.frame_bytes_max as u64 };
                Err(checked.err().unwrap_or_else(|| self.on_stream(raw.stream, too_big)))
            }
            checked => checked,
        };
        let header = match checked {
            Ok(header) => header,
            Err(error) => {
                self.discard = Some((total, error));
                return self.next_plain(input);
            }
        };
        let length = usize::try_from(total).unwrap_or(usize::MAX);
        let Some((whole, after)) = input.split_at_checked(length) else {
            return self.need(length.saturating_sub(input.len()));
        };
        *input = after;
        let body = whole.get(HEADER_LEN..).unwrap_or_default();
        match self.compression {
            // Without an agreed compression the flag is ignored, as Cassandra does.
            Some(compression) if header.has(flags::COMPRESSED) => {
                clear(&mut self.scratch, KEEP_CAPACITY_MAX);
                decompress_body(compression, body, self.frame_bytes_max, &mut self.scratch)
                    .map_err(|error| self.on_stream(header.stream, error))?;
                Ok(Some((header, Place::Scratch(0..self.scratch.len()))))
            }
            _ => Ok(Some((header, Place::Input(body)))),
        }
    }

    fn next_in_segments<'i>(&mut self, input: &mut &'i [u8]) -> Step<'i> {
        loop {
            if matches!(self.large_state, Large::Done) {
                self.large_state = Large::None;
                clear(&mut self.large, KEEP_CAPACITY_MAX);
            }
            match self.payload {
                Payload::Input(0) => {
                    let Some((_, after)) = input.split_at_checked(TRAILER_LEN) else {
                        return self.need(TRAILER_LEN.saturating_sub(input.len()));
                    };
                    *input = after;
                    self.payload = Payload::None;
                }
                Payload::Input(left) => {
                    let Some(payload) = input.get(..left) else {
                        return self.need(left.saturating_sub(input.len()));
                    };
                    let (length, header) = self.frame_in_payload(payload)?;
                    self.payload = Payload::Input(left.saturating_sub(length));
                    let (whole, after) = input.split_at_checked(length).unwrap_or_default();
                    *input = after;
                    return Ok(Some((
                        header?,
                        Place::Input(whole.get(HEADER_LEN..).unwrap_or_default()),
                    )));
                }
                Payload::Scratch(at) if at >= self.scratch.len() => self.payload = Payload::None,
                Payload::Scratch(at) => {
                    let payload = self.scratch.get(at..).unwrap_or_default();
                    let (length, header) = self.frame_in_payload(payload)?;
                    let end = at.saturating_add(length);
                    self.payload = Payload::Scratch(end);
                    return Ok(Some((header?, Place::Scratch(at.saturating_add(HEADER_LEN)..end))));
                }
                Payload::None => match self.open_segment(input)? {
                    Opened::NeedMore => return Ok(None),
                    Opened::Again => {}
                    Opened::Large(header) => return Ok(Some((header, Place::Large))),
                },
            }
        }
    }

    /// The frame at the start of a self-contained payload: its length, and its header or the error to answer. The
    /// outer error is fatal, the inner one is not.
    fn frame_in_payload(
        &self,
        payload: &[u8],
    ) -> Result<(usize, Result<FrameHeader, FrameError>), FrameError> {
        let Some(bytes) = payload.first_chunk::<HEADER_LEN>() else {
            return Err(
                self.fatal(0, WireError::Segment { problem: "a frame header is cut short" })
            );
        };
        let raw = RawHeader::parse(bytes);
        let body = self.body_len(&raw)?;
        let length = body.saturating_add(HEADER_LEN);
        if length > payload.len() {
            let problem = "a self-contained segment holds a part of a frame";
            return Err(self.fatal(raw.stream, WireError::Segment { problem }));
        }
        let header = match self.check_header(&raw) {
            Err(error) if error.fatal => return Err(error),
            Ok(_) if body > self.frame_bytes_max => {
                Err(self.on_stream(raw.stream, self.too_big(body)))
            }
            header => header,
        };
        Ok((length, header))
    }

    fn body_len(&self, raw: &RawHeader) -> Result<usize, FrameError> {
        match usize::try_from(raw.length.cast_signed()) {
            Ok(length) => Ok(length),
            Err(_) => Err(self
                .fatal(raw.stream, WireError::NegativeLength { length: raw.length.cast_signed() })),
        }
    }

    fn open_segment(&mut self, input: &mut &[u8]) -> Result<Opened, FrameError> {
        let lz4 = self.compression.is_some();
        let header_len = header_len(lz4);
        let Some(header) = SegmentHeader::parse(input, lz4) else {
            self.missing = header_len.saturating_sub(input.len());
            return Ok(Opened::NeedMore);
        };
        let header = header.map_err(|error| self.fatal(0, error))?;
        let end = header_len.saturating_add(header.payload_len);
        let Some((trailer, payload)) = input
            .get(end..)
            .and_then(|tail| tail.first_chunk::<TRAILER_LEN>())
            .zip(input.get(header_len..end))
        else {
            self.missing = end.saturating_add(TRAILER_LEN).saturating_sub(input.len());
            return Ok(Opened::NeedMore);
        };
        verify_payload(payload, *trailer).map_err(|error| self.fatal(0, error))?;
        if let Some(length) = header.uncompressed_len {
            clear(&mut self.scratch, KEEP_CAPACITY_MAX);
            lz4::decompress(payload, length, &mut self.scratch)
                .map_err(|error| self.fatal(0, error.into()))?;
        }
        if header.self_contained {
            if !matches!(self.large_state, Large::None) {
                let problem = "a self-contained segment comes within a large frame";
                return Err(self.fatal(0, WireError::Segment { problem }));
            }
            self.payload = match header.uncompressed_len {
                Some(_) => {
                    *input = input.get(end.saturating_add(TRAILER_LEN)..).unwrap_or_default();
                    Payload::Scratch(0)
                }
                None => {
                    *input = input.get(header_len..).unwrap_or_default();
                    Payload::Input(header.payload_len)
                }
            };
            return Ok(Opened::Again);
        }
        *input = input.get(end.saturating_add(TRAILER_LEN)..).unwrap_or_default();
        match header.uncompressed_len {
            Some(_) => {
                let scratch = std::mem::take(&mut self.scratch);
                let opened = self.collect(&scratch);
                self.scratch = scratch;
                opened
            }
            None => self.collect(payload),
        }
    }

    /// One more part of a large frame.
    fn collect(&mut self, part: &[u8]) -> Result<Opened, FrameError> {
        if matches!(self.large_state, Large::None) {
            let Some(bytes) = part.first_chunk::<HEADER_LEN>() else {
                return Err(
                    self.fatal(0, WireError::Segment { problem: "a frame header is cut short" })
                );
            };
            let raw = RawHeader::parse(bytes);
            let body = self.body_len(&raw)?;
            let length = body.saturating_add(HEADER_LEN);
            let header =
                self.check_header(&raw).map_err(|error| FrameError { fatal: true, ..error })?;
            self.large_state = if body > self.frame_bytes_max {
                let error = self.on_stream(raw.stream, self.too_big(body));
                Large::Discarding(length as u64, error)
            } else {
                Large::Collecting(length, header)
            };
        }
        let overrun = WireError::Segment { problem: "a large frame ends within a segment" };
        match &mut self.large_state {
            Large::Discarding(left, error) => match left.checked_sub(part.len() as u64) {
                Some(0) => {
                    let error = error.clone();
                    self.large_state = Large::None;
                    Err(error)
                }
                Some(rest) => {
                    *left = rest;
                    Ok(Opened::Again)
                }
                None => Err(self.fatal(0, overrun)),
            },
            Large::Collecting(length, header) => {
                let (length, header) = (*length, *header);
                if self.large.len().saturating_add(part.len()) > length {
                    return Err(self.fatal(header.stream, overrun));
                }
                self.large.extend_from_slice(part);
                stdx::invariant!(
                    self.large.len() <= self.frame_bytes_max.saturating_add(HEADER_LEN),
                    "INV-wire-decoder-1: {} bytes of one frame collected, the limit is {}",
                    self.large.len(),
                    self.frame_bytes_max
                );
                if self.large.len() < length {
                    return Ok(Opened::Again);
                }
                self.large_state = Large::Done;
                Ok(Opened::Large(header))
            }
            Large::None | Large::Done => Ok(Opened::Again),
        }
    }

    fn check_header(&self, raw: &RawHeader) -> Result<FrameHeader, FrameError> {
        let number = raw.first & !RESPONSE_BIT;
        let version = ProtocolVersion::from_number(number)
            .map_err(|_| unsupported(number, if number < 3 { 0 } else { raw.stream }))?;
        if let Some(expected) = self.locked.filter(|locked| *locked != version) {
            return Err(
                self.on_stream(raw.stream, WireError::VersionChanged { got: version, expected })
            );
        }
        let reply = |error| FrameError {
            stream: raw.stream,
            reply_version: self.locked.unwrap_or(version).number(),
            fatal: false,
            error,
        };
        if version.is_beta() && raw.flags & flags::USE_BETA == 0 {
            return Err(reply(WireError::BetaFlagUnset { version }));
        }
        let opcode = Opcode::from_number(raw.opcode).map_err(reply)?;
        let from_client = raw.first & RESPONSE_BIT == 0;
        if opcode.is_request() != from_client || from_client != (self.side == Side::Server) {
            return Err(reply(WireError::WrongDirection { opcode }));
        }
        Ok(FrameHeader { version, flags: raw.flags, stream: raw.stream, opcode })
    }

    #[cold]
    fn too_big(&self, body: usize) -> WireError {
        WireError::MessageTooBig { length: body as u64, max: self.frame_bytes_max as u64 }
    }

    #[cold]
    fn on_stream(&self, stream: i16, error: WireError) -> FrameError {
        let reply_version = self.locked.unwrap_or(ProtocolVersion::CURRENT).number();
        FrameError { stream, reply_version, fatal: false, error }
    }

    #[cold]
    fn fatal(&self, stream: i16, error: WireError) -> FrameError {
        FrameError { fatal: true, ..self.on_stream(stream, error) }
    }

    fn need<T>(&mut self, missing: usize) -> Result<Option<T>, FrameError> {
        self.missing = missing;
        Ok(None)
    }
}

enum Opened {
    NeedMore,
    Again,
    Large(FrameHeader),
}

#[cold]
fn unsupported(version: u8, stream: i16) -> FrameError {
    FrameError {
        stream,
        reply_version: ProtocolVersion::reply_number(version),
        fatal: true,
        error: WireError::UnsupportedVersion { version },
    }
}

/// Empties a buffer, and gives its memory back when one large frame made it grow above `keep` bytes.
fn clear(buffer: &mut Vec<u8>, keep: usize) {
    if buffer.capacity() > keep {
        *buffer = Vec::new();
    } else {
        buffer.clear();
    }
}

/// Moves `input` forward by at most `wanted` bytes; returns how many are still to come.
fn advance_some(input: &mut &[u8], wanted: u64) -> u64 {
    let here = usize::try_from(wanted).unwrap_or(usize::MAX).min(input.len());
    *input = input.get(here..).unwrap_or_default();
    wanted.saturating_sub(here as u64)
}
