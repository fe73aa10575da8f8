//! The four compressors of SSTables and the two of the native protocol.
//!
//! Owns framing of compressed blocks (who writes the length, in which byte order) and the caps on output. Never
//! allocates more output than the caller's cap, nor than the compressed bytes can possibly hold. Output is appended;
//! after an error the output vector is as long as before.
//!
//! Source: `org.apache.cassandra.io.compress.*Compressor`; native protocol v4 §5, v5 §2.2.

use crate::lz4_encode::Encoder;
use crate::lz4_high::HighEncoder;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use stdx::invariant;

/// Which compressor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// LZ4 block.
    Lz4,
    /// Snappy block ("raw" format), which carries its own length.
    Snappy,
    /// Deflate in a zlib wrapper.
    Deflate,
    /// Zstandard frame.
    Zstd,
}

impl Algorithm {
    /// Lower-case name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Lz4 => "lz4",
            Algorithm::Snappy => "snappy",
            Algorithm::Deflate => "deflate",
            Algorithm::Zstd => "zstd",
        }
    }
}

/// Why a block could not be compressed or decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompressionError {
    /// The block announces or produces more than the caller allows, or than its bytes can hold.
    #[error("{} block of {announced} bytes is larger than the limit of {max}", algorithm.name())]
    OutputTooLong {
        /// The algorithm of the block.
        algorithm: Algorithm,
        /// The announced length; `max + 1` when the block only turned out to be longer.
        announced: u64,
        /// The cap.
        max: u64,
    },
    /// The block decompresses to another length than announced.
    #[error("{} block has {actual} bytes instead of {expected}", algorithm.name())]
    LengthMismatch {
        /// The algorithm of the block.
        algorithm: Algorithm,
        /// Bytes announced.
        expected: usize,
        /// Bytes found.
        actual: usize,
    },
    /// The block is damaged or cut short.
    #[error("{} block of {length} compressed bytes is damaged", algorithm.name())]
    Damaged {
        /// The algorithm of the block.
        algorithm: Algorithm,
        /// Compressed bytes.
        length: usize,
    },
    /// The input is longer than the format can say.
    #[error("{} cannot compress {length} bytes at once", algorithm.name())]
    InputTooLong {
        /// The algorithm that has the limit.
        algorithm: Algorithm,
        /// Bytes given.
        length: usize,
    },
    /// The compressor could not be set up with this level.
    #[error("{} does not take the level {level}", algorithm.name())]
    BadLevel {
        /// The algorithm that rejects the level.
        algorithm: Algorithm,
        /// The level asked for.
        level: i32,
    },
}

type Result<T> = std::result::Result<T, CompressionError>;

fn damaged(algorithm: Algorithm, src: &[u8]) -> CompressionError {
    CompressionError::Damaged { algorithm, length: src.len() }
}

fn too_long(algorithm: Algorithm, announced: u64, max: usize) -> CompressionError {
    CompressionError::OutputTooLong { algorithm, announced, max: max as u64 }
}

/// Lets `fill` write into `cap` fresh bytes at the end of `out`, and keeps the number of bytes that
/// it reports.
fn append(
    out: &mut Vec<u8>,
    cap: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<usize>,
) -> Result<usize> {
    let start = out.len();
    out.resize(start.saturating_add(cap), 0);
    let result = fill(out.get_mut(start..).unwrap_or_default());
    out.truncate(start.saturating_add(*result.as_ref().unwrap_or(&0)));
    result
}

/// LZ4 blocks and the ways Cassandra writes their length.
pub mod lz4 {
    use super::{Algorithm, CompressionError, Result, append, damaged, too_long};
    use crate::lz4_encode::{BLOCK_BYTES_MAX, Encoder};
    use crate::lz4_high::HighEncoder;

    const LZ4: Algorithm = Algorithm::Lz4;

    /// `LZ4Compressor.DEFAULT_HIGH_COMPRESSION_LEVEL`.
    pub const HIGH_LEVEL_DEFAULT: i32 = 9;

    /// Levels of the high compressor that Cassandra accepts.
    pub const HIGH_LEVELS: std::ops::RangeInclusive<i32> = 1..=17;

    /// Appends the raw block of `src`, without a length. Returns the bytes written.
    ///
    /// # Errors
    /// `InputTooLong` above LZ4's 0x7E000000 bytes.
    pub fn compress(src: &[u8], out: &mut Vec<u8>) -> Result<usize> {
        check_input(src)?;
        append(out, lz4_flex::block::get_maximum_output_size(src.len()), |buffer| {
            lz4_flex::block::compress_into(src, buffer)
                .map_err(|_| CompressionError::InputTooLong { algorithm: LZ4, length: src.len() })
        })
    }

    fn check_input(src: &[u8]) -> Result<()> {
        if src.len() > 0x7e00_0000 {
            return Err(CompressionError::InputTooLong { algorithm: LZ4, length: src.len() });
        }
        Ok(())
    }

    /// Appends the content of the raw block `src`, which must be exactly `expected_len` bytes.
    ///
    /// # Errors
    /// `OutputTooLong` when a block of this size cannot hold so much (checked before allocation), `LengthMismatch`,
    /// `Damaged`.
    pub fn decompress(src: &[u8], expected_len: usize, out: &mut Vec<u8>) -> Result<()> {
        // One byte of LZ4 stands for at most 255 bytes of output.
        let possible = src.len().saturating_mul(255);
        if expected_len > possible {
            return Err(too_long(LZ4, expected_len as u64, possible));
        }
        if expected_len == 0 {
            // The block of nothing is one token of zero; lz4-java also takes no block at all.
            return if matches!(src, [] | [0]) { Ok(()) } else { Err(damaged(LZ4, src)) };
        }
        append(out, expected_len, |buffer| {
            let actual =
                lz4_flex::block::decompress_into(src, buffer).map_err(|_| damaged(LZ4, src))?;
            if actual != expected_len {
                return Err(CompressionError::LengthMismatch {
                    algorithm: LZ4,
                    expected: expected_len,
                    actual,
                });
            }
            Ok(actual)
        })
        .map(|_| ())
    }

    /// Appends the length of `src` (four bytes, little endian), then its block: `LZ4Compressor` of SSTables.
    ///
    /// # Errors
    /// As [`compress`].
    pub fn compress_with_len_le(src: &[u8], out: &mut Vec<u8>) -> Result<usize> {
        prefixed(src, u32::to_le_bytes, out)
    }

    /// The same, with the working memory of the blocks before where the block is short enough for that.
    pub(super) fn compress_with(
        encoder: &mut Encoder,
        src: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        let Some(length) = u32::try_from(src.len()).ok().filter(|_| src.len() <= BLOCK_BYTES_MAX)
        else {
            return compress_with_len_le(src, out);
        };
        let start = out.len();
        out.extend_from_slice(&length.to_le_bytes());
        encoder.encode(src, out);
        Ok(out.len().saturating_sub(start))
    }

    pub(super) fn new_high(level: i32) -> Result<HighEncoder> {
        let known = u8::try_from(level).ok().filter(|_| HIGH_LEVELS.contains(&level));
        let level = known.ok_or(CompressionError::BadLevel { algorithm: LZ4, level })?;
        Ok(HighEncoder::new(level))
    }

    /// The same by the high compressor, of blocks of any length.
    pub(super) fn compress_high(
        encoder: &mut HighEncoder,
        src: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        check_input(src)?;
        let length = u32::try_from(src.len())
            .map_err(|_| CompressionError::InputTooLong { algorithm: LZ4, length: src.len() })?;
        let start = out.len();
        out.extend_from_slice(&length.to_le_bytes());
        encoder.encode(src, out);
        Ok(out.len().saturating_sub(start))
    }

    /// Appends the length of `src` (four bytes, big endian), then its block: native protocol v3 and v4.
    ///
    /// # Errors
    /// As [`compress`].
    pub fn compress_with_len_be(src: &[u8], out: &mut Vec<u8>) -> Result<usize> {
        prefixed(src, u32::to_be_bytes, out)
    }

    fn prefixed(src: &[u8], to_bytes: fn(u32) -> [u8; 4], out: &mut Vec<u8>) -> Result<usize> {
        check_input(src)?;
        let length = u32::try_from(src.len())
            .map_err(|_| CompressionError::InputTooLong { algorithm: LZ4, length: src.len() })?;
        let start = out.len();
        out.extend_from_slice(&to_bytes(length));
        match compress(src, out) {
            Ok(written) => Ok(written.saturating_add(4)),
            Err(error) => {
                out.truncate(start);
                Err(error)
            }
        }
    }

    /// Inverse of [`compress_with_len_le`]. Returns the bytes appended, at most `max_len`.
    ///
    /// # Errors
    /// `OutputTooLong`, `LengthMismatch`, `Damaged`.
    pub fn decompress_with_len_le(src: &[u8], max_len: usize, out: &mut Vec<u8>) -> Result<usize> {
        unprefixed(src, u32::from_le_bytes, max_len, out)
    }

    /// Inverse of [`compress_with_len_be`]. Returns the bytes appended, at most `max_len`.
    ///
    /// # Errors
    /// `OutputTooLong`, `LengthMismatch`, `Damaged`.
    pub fn decompress_with_len_be(src: &[u8], max_len: usize, out: &mut Vec<u8>) -> Result<usize> {
        unprefixed(src, u32::from_be_bytes, max_len, out)
    }

    fn unprefixed(
        src: &[u8],
        from_bytes: fn([u8; 4]) -> u32,
        max_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        let (prefix, block) = src.split_first_chunk::<4>().ok_or_else(|| damaged(LZ4, src))?;
        let announced = from_bytes(*prefix);
        match usize::try_from(announced) {
            Ok(length) if length <= max_len => decompress(block, length, out).map(|()| length),
            _ => Err(too_long(LZ4, u64::from(announced), max_len)),
        }
    }
}

/// Snappy blocks.
pub mod snappy {
    use super::{Algorithm, CompressionError, Result, append, damaged, too_long};

    const SNAPPY: Algorithm = Algorithm::Snappy;

    /// Appends the block of `src`. Returns the bytes written.
    ///
    /// # Errors
    /// `InputTooLong` above 4 GiB.
    pub fn compress(src: &[u8], out: &mut Vec<u8>) -> Result<usize> {
        compress_with(&mut snap::raw::Encoder::new(), src, out)
    }

    pub(super) fn compress_with(
        encoder: &mut snap::raw::Encoder,
        src: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        let too_long = CompressionError::InputTooLong { algorithm: SNAPPY, length: src.len() };
        let cap = snap::raw::max_compress_len(src.len());
        if cap == 0 {
            return Err(too_long);
        }
        append(out, cap, |buffer| encoder.compress(src, buffer).map_err(|_| too_long))
    }

    /// Appends the content of the block. Returns the bytes appended, at most `max_len`.
    ///
    /// # Errors
    /// `OutputTooLong`, `Damaged`.
    pub fn decompress(src: &[u8], max_len: usize, out: &mut Vec<u8>) -> Result<usize> {
        if src.is_empty() {
            return Err(damaged(SNAPPY, src));
        }
        let announced = snap::raw::decompress_len(src).map_err(|_| damaged(SNAPPY, src))?;
        // A copy takes three bytes for at most 64 of output.
        let possible = src.len().saturating_mul(22).saturating_add(64);
        if announced > max_len.min(possible) {
            return Err(too_long(SNAPPY, announced as u64, max_len.min(possible)));
        }
        append(out, announced, |buffer| {
            snap::raw::Decoder::new().decompress(src, buffer).map_err(|_| damaged(SNAPPY, src))
        })
    }
}

/// Deflate in a zlib wrapper, as `java.util.zip.Deflater` writes it.
pub mod deflate {
    use super::{
        Algorithm, Compress, Compression, CompressionError, Decompress, FlushCompress,
        FlushDecompress, Result, Status, append, damaged, too_long,
    };

    const DEFLATE: Algorithm = Algorithm::Deflate;

    /// Appends the stream of `src`. Returns the bytes written.
    ///
    /// # Errors
    /// None for inputs that fit in memory.
    pub fn compress(src: &[u8], out: &mut Vec<u8>) -> Result<usize> {
        compress_with(&mut new_compressor(), src, out)
    }

    pub(super) fn new_compressor() -> Compress {
        Compress::new(Compression::default(), true)
    }

    pub(super) fn compress_with(
        compressor: &mut Compress,
        src: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        compressor.reset();
        // Stored blocks are the worst case: 5 bytes per 16 KiB or less, 6 of wrapper; one pass always suffices.
        let cap = src.len().saturating_add(src.len() >> 9).saturating_add(128);
        append(out, cap, |buffer| match compressor.compress(src, buffer, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => {
                Ok(usize::try_from(compressor.total_out()).unwrap_or(usize::MAX))
            }
            _ => Err(CompressionError::InputTooLong { algorithm: DEFLATE, length: src.len() }),
        })
    }

    /// Appends the content of the stream. Returns the bytes appended, at most `max_len`.
    ///
    /// # Errors
    /// `OutputTooLong`, `Damaged` (also when the stream ends early; bytes after its end are damage too).
    pub fn decompress(src: &[u8], max_len: usize, out: &mut Vec<u8>) -> Result<usize> {
        decompress_with(&mut Decompress::new(true), src, max_len, out)
    }

    pub(super) fn decompress_with(
        inflater: &mut Decompress,
        src: &[u8],
        max_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        inflater.reset(true);
        let start = out.len();
        let result = inflate(inflater, src, max_len, out);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    fn inflate(
        inflater: &mut Decompress,
        src: &[u8],
        max_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        let mut produced = 0usize;
        // Output grows with the actual size, by doubling, up to the cap.
        let mut step = src.len().saturating_mul(4).max(256);
        loop {
            let consumed = usize::try_from(inflater.total_in()).unwrap_or(usize::MAX);
            let input = src.get(consumed..).unwrap_or_default();
            let room = max_len.saturating_sub(produced).min(step);
            let status;
            if room == 0 {
                // At the cap: only the end of the stream may follow. A spare byte detects more
                // output.
                let mut spare = [0u8];
                let before = inflater.total_out();
                status = inflater.decompress(input, &mut spare, FlushDecompress::Finish);
                if inflater.total_out() != before {
                    return Err(too_long(DEFLATE, (max_len as u64).saturating_add(1), max_len));
                }
                if !matches!(status, Ok(Status::StreamEnd)) {
                    return Err(damaged(DEFLATE, src));
                }
            } else {
                let before = inflater.total_out();
                let mut end = Err(damaged(DEFLATE, src));
                let written = append(out, room, |buffer| {
                    end = inflater
                        .decompress(input, buffer, FlushDecompress::None)
                        .map_err(|_| damaged(DEFLATE, src));
                    Ok(usize::try_from(inflater.total_out().saturating_sub(before))
                        .unwrap_or(usize::MAX))
                })?;
                produced = produced.saturating_add(written);
                status = Ok(end?);
                let no_progress = written == 0 && inflater.total_in() == consumed as u64;
                if no_progress && !matches!(status, Ok(Status::StreamEnd)) {
                    return Err(damaged(DEFLATE, src));
                }
            }
            if matches!(status, Ok(Status::StreamEnd)) {
                let all_taken = inflater.total_in() == src.len() as u64;
                return if all_taken { Ok(produced) } else { Err(damaged(DEFLATE, src)) };
            }
            step = step.saturating_mul(2);
        }
    }
}

/// Zstandard frames.
pub mod zstd {
    use super::{Algorithm, CompressionError, Result, append, damaged, too_long};
    use ::zstd::bulk;
    use ::zstd::zstd_safe;

    const ZSTD: Algorithm = Algorithm::Zstd;

    /// `ZstdCompressor.DEFAULT_COMPRESSION_LEVEL`.
    pub const LEVEL_DEFAULT: i32 = 3;

    /// Levels that Cassandra accepts, from `ZstdCompressor.FAST_COMPRESSION_LEVEL` on.
    pub const LEVELS: std::ops::RangeInclusive<i32> = -131_072..=22;

    /// Appends the frame of `src`, with a checksum as Cassandra writes it. Returns the bytes written.
    ///
    /// # Errors
    /// `BadLevel`, `InputTooLong`.
    pub fn compress(src: &[u8], level: i32, out: &mut Vec<u8>) -> Result<usize> {
        compress_with(&mut new_compressor(level)?, src, out)
    }

    pub(super) fn new_compressor(level: i32) -> Result<bulk::Compressor<'static>> {
        let bad = CompressionError::BadLevel { algorithm: ZSTD, level };
        if !LEVELS.contains(&level) {
            return Err(bad);
        }
        let mut compressor = bulk::Compressor::new(level).map_err(|_| bad)?;
        compressor.set_parameter(zstd_safe::CParameter::ChecksumFlag(true)).map_err(|_| bad)?;
        Ok(compressor)
    }

    pub(super) fn compress_with(
        compressor: &mut bulk::Compressor<'static>,
        src: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        append(out, zstd_safe::compress_bound(src.len()), |buffer| {
            compressor
                .compress_to_buffer(src, buffer)
                .map_err(|_| CompressionError::InputTooLong { algorithm: ZSTD, length: src.len() })
        })
    }

    /// Appends the content of the frame. Returns the bytes appended, at most `max_len`.
    ///
    /// # Errors
    /// `OutputTooLong`, `Damaged`.
    pub fn decompress(src: &[u8], max_len: usize, out: &mut Vec<u8>) -> Result<usize> {
        decompress_with(&mut bulk::Decompressor::default(), src, max_len, out)
    }

    pub(super) fn decompress_with(
        decompressor: &mut bulk::Decompressor<'static>,
        src: &[u8],
        max_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        let announced = zstd_safe::get_frame_content_size(src).map_err(|_| damaged(ZSTD, src))?;
        let cap = match announced.map(usize::try_from) {
            Some(Ok(length)) if length <= max_len => length,
            Some(_) => return Err(too_long(ZSTD, announced.unwrap_or(u64::MAX), max_len)),
            // A frame without its length: allow up to the caller's maximum, where decoding stops.
            None => max_len,
        };
        append(out, cap, |buffer| {
            let actual =
                decompressor.decompress_to_buffer(src, buffer).map_err(|_| damaged(ZSTD, src))?;
            match announced {
                Some(_) if actual != cap => {
                    Err(CompressionError::LengthMismatch { algorithm: ZSTD, expected: cap, actual })
                }
                _ => Ok(actual),
            }
        })
    }
}

/// One compressor with the framing that SSTables use, keeping its working memory between blocks. One per task or
/// file: not shared.
pub struct Compressor {
    state: State,
}

enum State {
    /// Made with the first block that is compressed.
    Lz4(Option<Encoder>),
    Lz4High(Box<HighEncoder>),
    Snappy(Box<snap::raw::Encoder>),
    Deflate {
        compress: Box<Compress>,
        decompress: Box<Decompress>,
    },
    Zstd {
        compress: Box<::zstd::bulk::Compressor<'static>>,
        decompress: Box<::zstd::bulk::Decompressor<'static>>,
    },
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compressor").field("algorithm", &self.algorithm()).finish()
    }
}

impl Compressor {
    /// With Cassandra's default level.
    ///
    /// # Errors
    /// `BadLevel` never for defaults; the set-up of zstd can fail for want of memory.
    pub fn new(algorithm: Algorithm) -> Result<Compressor> {
        Ok(Compressor {
            state: match algorithm {
                Algorithm::Lz4 => State::Lz4(None),
                Algorithm::Snappy => State::Snappy(Box::new(snap::raw::Encoder::new())),
                Algorithm::Deflate => State::Deflate {
                    compress: Box::new(deflate::new_compressor()),
                    decompress: Box::new(Decompress::new(true)),
                },
                Algorithm::Zstd => return Compressor::zstd(zstd::LEVEL_DEFAULT),
            },
        })
    }

    /// LZ4 by the high compressor at this level, one of [`lz4::HIGH_LEVELS`].
    ///
    /// # Errors
    /// `BadLevel`.
    pub fn lz4_high(level: i32) -> Result<Compressor> {
        Ok(Compressor { state: State::Lz4High(Box::new(lz4::new_high(level)?)) })
    }

    /// Zstandard at this level, one of [`zstd::LEVELS`].
    ///
    /// # Errors
    /// `BadLevel`.
    pub fn zstd(level: i32) -> Result<Compressor> {
        Ok(Compressor {
            state: State::Zstd {
                compress: Box::new(zstd::new_compressor(level)?),
                decompress: Box::new(::zstd::bulk::Decompressor::default()),
            },
        })
    }

    /// Which one it is.
    pub fn algorithm(&self) -> Algorithm {
        match &self.state {
            State::Lz4(_) | State::Lz4High(_) => Algorithm::Lz4,
            State::Snappy(_) => Algorithm::Snappy,
            State::Deflate { .. } => Algorithm::Deflate,
            State::Zstd { .. } => Algorithm::Zstd,
        }
    }

    /// Appends the block of `src` as an SSTable holds it. Returns the bytes written.
    ///
    /// # Errors
    /// `InputTooLong`.
    pub fn compress(&mut self, src: &[u8], out: &mut Vec<u8>) -> Result<usize> {
        let start = out.len();
        let result = match &mut self.state {
            State::Lz4(encoder) => {
                lz4::compress_with(encoder.get_or_insert_with(Encoder::new), src, out)
            }
            State::Lz4High(encoder) => lz4::compress_high(encoder, src, out),
            State::Snappy(encoder) => snappy::compress_with(encoder, src, out),
            State::Deflate { compress, .. } => deflate::compress_with(compress, src, out),
            State::Zstd { compress, .. } => zstd::compress_with(compress, src, out),
        };
        let written = *result.as_ref().unwrap_or(&0);
        invariant!(
            out.len() == start.saturating_add(written),
            "compressor {:?} reports {written} bytes, the output grew from {start} to {}",
            self.algorithm(),
            out.len()
        );
        result
    }

    /// Appends the content of the block. Returns the bytes appended, at most `max_len`.
    ///
    /// # Errors
    /// `OutputTooLong`, `LengthMismatch`, `Damaged`.
    pub fn decompress(&mut self, src: &[u8], max_len: usize, out: &mut Vec<u8>) -> Result<usize> {
        let start = out.len();
        let result = match &mut self.state {
            State::Lz4(_) | State::Lz4High(_) => lz4::decompress_with_len_le(src, max_len, out),
            State::Snappy(_) => snappy::decompress(src, max_len, out),
            State::Deflate { decompress, .. } => {
                deflate::decompress_with(decompress, src, max_len, out)
            }
            State::Zstd { decompress, .. } => zstd::decompress_with(decompress, src, max_len, out),
        };
        let produced = *result.as_ref().unwrap_or(&0);
        invariant!(
            produced <= max_len && out.len() == start.saturating_add(produced),
            "INV-codec-2: decompressor {:?} reports {produced} bytes of at most {max_len}, the output grew from \
             {start} to {}",
            self.algorithm(),
            out.len()
        );
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Algorithm; 4] =
        [Algorithm::Lz4, Algorithm::Snappy, Algorithm::Deflate, Algorithm::Zstd];

    /// Every compressor with its default level, and LZ4's high one.
    fn compressors() -> impl Iterator<Item = Compressor> {
        let high = Compressor::lz4_high(lz4::HIGH_LEVEL_DEFAULT);
        ALL.into_iter().map(Compressor::new).chain([high]).map(Result::unwrap)
    }

    fn samples() -> Vec<Vec<u8>> {
        let mut noise = Vec::new();
        let mut state = 1u64;
        for _ in 0..70_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            noise.push((state >> 56) as u8);
        }
        vec![
            vec![],
            b"a".to_vec(),
            b"partition clustering cell ".repeat(50),
            vec![0; 65_536],
            noise,
        ]
    }

    #[test]
    fn every_compressor_returns_what_it_was_given() {
        for mut compressor in compressors() {
            let algorithm = compressor.algorithm();
            for sample in samples() {
                let mut block = b"before".to_vec();
                let written = compressor.compress(&sample, &mut block).unwrap();
                assert_eq!(written + 6, block.len(), "{algorithm:?}");
                let mut out = b"kept".to_vec();
                assert_eq!(
                    compressor.decompress(&block[6..], sample.len(), &mut out),
                    Ok(sample.len()),
                    "{algorithm:?}"
                );
                assert_eq!(&out[..4], b"kept");
                assert_eq!(&out[4..], sample, "{algorithm:?}");
            }
        }
    }

    #[test]
    fn a_cap_one_below_the_length_is_refused_and_leaves_the_output_alone() {
        for mut compressor in compressors() {
            let algorithm = compressor.algorithm();
            for sample in samples().into_iter().filter(|sample| !sample.is_empty()) {
                let mut block = Vec::new();
                compressor.compress(&sample, &mut block).unwrap();
                let mut out = b"kept".to_vec();
                let error = compressor.decompress(&block, sample.len() - 1, &mut out).unwrap_err();
                assert!(
                    matches!(error, CompressionError::OutputTooLong { .. }),
                    "{algorithm:?}: {error}"
                );
                assert_eq!(out, b"kept");
            }
        }
    }

    #[test]
    fn cut_and_extended_blocks_are_damage() {
        for mut compressor in compressors() {
            let algorithm = compressor.algorithm();
            let sample = b"partition clustering cell ".repeat(20);
            let mut block = Vec::new();
            compressor.compress(&sample, &mut block).unwrap();
            for cut in 0..block.len() {
                let mut out = Vec::new();
                let result = compressor.decompress(&block[..cut], sample.len(), &mut out);
                assert!(result.is_err(), "{algorithm:?} cut at {cut} of {}", block.len());
                assert!(out.is_empty());
            }
            block.push(7);
            assert!(
                compressor.decompress(&block, sample.len(), &mut Vec::new()).is_err(),
                "{algorithm:?}"
            );
        }
    }

    #[test]
    fn a_length_no_block_of_that_size_can_hold_is_refused_before_allocation() {
        // INV-codec-2.
        let mut out = Vec::new();
        let huge = usize::MAX;
        let lz4_le = [0xff, 0xff, 0xff, 0x7f, 0x10, 0];
        assert!(matches!(
            lz4::decompress_with_len_le(&lz4_le, huge, &mut out),
            Err(CompressionError::OutputTooLong { announced: 0x7fff_ffff, .. })
        ));
        let snappy_max = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
        assert!(matches!(
            snappy::decompress(&snappy_max, huge, &mut out),
            Err(CompressionError::OutputTooLong { announced: 0xffff_ffff, .. })
        ));
        assert_eq!(out.capacity(), 0);
    }

    #[test]
    fn known_blocks_decompress() {
        let mut out = Vec::new();
        // LZ4: token 0x1f = one literal, match of 15 + 4 + 11; offset 1; then the last five literals.
        let block = [0x1f, b'a', 1, 0, 0, 0x50, b'b', b'b', b'b', b'b', b'b'];
        lz4::decompress(&block, 1 + 19 + 5, &mut out).unwrap();
        assert_eq!(out, b"aaaaaaaaaaaaaaaaaaaabbbbb");
        out.clear();
        // The same with Cassandra's two ways to say the length.
        let le = [&25u32.to_le_bytes()[..], &block].concat();
        let be = [&25u32.to_be_bytes()[..], &block].concat();
        assert_eq!(lz4::decompress_with_len_le(&le, 25, &mut out), Ok(25));
        assert_eq!(lz4::decompress_with_len_be(&be, 25, &mut out), Ok(25));
        out.clear();
        // Snappy: length 5, literal of 5.
        assert_eq!(
            snappy::decompress(&[5, 0x10, b'h', b'e', b'l', b'l', b'o'], 5, &mut out),
            Ok(5)
        );
        // zlib of "a" at the default level, from RFC 1950 and 1951 by hand.
        assert_eq!(
            deflate::decompress(
                &[0x78, 0x9c, 0x4b, 0x04, 0x00, 0x00, 0x62, 0x00, 0x62],
                1,
                &mut out
            ),
            Ok(1)
        );
        // zstd: magic, single segment with a content size of 1, one last raw block of one byte.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x01, 0x09, 0x00, 0x00, b'z'];
        assert_eq!(zstd::decompress(&frame, 1, &mut out), Ok(1));
        assert_eq!(out, b"helloaz");
    }

    #[test]
    fn a_zstd_frame_without_its_length_stops_at_the_cap() {
        // Window descriptor instead of a content size; one RLE block of 1000 zeros.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x00, 0x43, 0x1f, 0x00, 0x00];
        let mut out = Vec::new();
        assert_eq!(zstd::decompress(&frame, 1000, &mut out), Ok(1000));
        assert!(zstd::decompress(&frame, 999, &mut out).is_err());
    }

    #[test]
    fn zstd_frames_carry_a_checksum_and_levels_have_ends() {
        let mut out = Vec::new();
        zstd::compress(b"abc", zstd::LEVEL_DEFAULT, &mut out).unwrap();
        assert_eq!(out[4] & 0b100, 0b100);
        assert!(Compressor::zstd(22).is_ok());
        assert!(matches!(Compressor::zstd(23), Err(CompressionError::BadLevel { level: 23, .. })));
        assert!(Compressor::zstd(-131_072).is_ok());
        assert!(Compressor::zstd(-131_073).is_err());
    }
}
