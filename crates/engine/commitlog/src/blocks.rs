//! Blocks of a compressed segment: whole records, compressed together. See
//! `docs/formats/commitlog.md`.
//!
//! ```text
//! block: magic 4 · compression u32 · stored u32 · unpacked u32 · offset u32 · crc32 u32 · stored bytes
//! ```
//! `offset` is where the first record would lie in a segment that is not compressed: positions are
//! the same in both. The checksum covers the segment id, the block's place in the file and all
//! fields, so that no block is taken for one of another segment or place.

use codec::checksum::Crc32;
use codec::{Algorithm, Compressor};
use rt::Buf;

use crate::format::{Parsed, SegmentId};

/// Records are packed together until a block has this many bytes of them; a record is never cut.
pub const BLOCK_BYTES: usize = 64 * 1024;
/// Bytes of a block before what it stores.
pub const BLOCK_HEADER_BYTES: usize = 24;
/// Longest content: far above half of the largest segment, which one record may take.
const UNPACKED_BYTES_MAX: u32 = (1 << 30) + (1 << 20);

/// Begins every block, so that blocks are found behind damage.
pub(crate) const BLOCK_MAGIC: &[u8; 4] = b"\xf6HLB";

/// The number of a compressor in the file; 0 is none.
pub(crate) fn compression_code(compression: Option<Algorithm>) -> u8 {
    match compression {
        None => 0,
        Some(Algorithm::Lz4) => 1,
        Some(Algorithm::Snappy) => 2,
        Some(Algorithm::Deflate) => 3,
        Some(Algorithm::Zstd) => 4,
    }
}

/// The compressor of a number in the file; `None`: no such number.
pub(crate) fn compression_of(code: u32) -> Option<Option<Algorithm>> {
    Some(match code {
        0 => None,
        1 => Some(Algorithm::Lz4),
        2 => Some(Algorithm::Snappy),
        3 => Some(Algorithm::Deflate),
        4 => Some(Algorithm::Zstd),
        _ => return None,
    })
}

/// A block as it lies in the file, its checksum compared.
pub(crate) struct Block<'a> {
    /// How it is compressed.
    compression: Option<Algorithm>,
    stored: &'a [u8],
    unpacked: usize,
    /// Position of its first record.
    pub(crate) offset: u64,
    /// Bytes of the block with its header.
    pub(crate) bytes: usize,
}

impl Block<'_> {
    /// Replaces `out` with the records.
    ///
    /// # Errors
    /// The stored bytes do not unpack to what the header says.
    pub(crate) fn unpack(
        &self,
        codecs: &mut Option<Compressor>,
        out: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        const WRONG: &str = "a block does not unpack to what it says";
        out.clear();
        let Some(algorithm) = self.compression else {
            out.extend_from_slice(self.stored);
            return if out.len() == self.unpacked { Ok(()) } else { Err(WRONG) };
        };
        if codecs.as_ref().is_none_or(|c| c.algorithm() != algorithm) {
            *codecs = Some(Compressor::new(algorithm).map_err(|_| WRONG)?);
        }
        let Some(codec) = codecs.as_mut() else { return Err(WRONG) };
        match codec.decompress(self.stored, self.unpacked, out) {
            Ok(length) if length == self.unpacked => Ok(()),
            _ => Err(WRONG),
        }
    }
}

fn block_crc(segment: SegmentId, place: u64, fields: &[u8], stored: &[u8]) -> u32 {
    let mut crc = Crc32::new();
    crc.update(&segment.0.to_le_bytes());
    crc.update(&place.to_le_bytes());
    crc.update(fields);
    crc.update(stored);
    crc.value()
}

/// Reads the block that begins with `bytes`, which lie at `place` of the file.
pub(crate) fn parse_block(segment: SegmentId, place: u64, bytes: &[u8]) -> Parsed<Block<'_>> {
    let Some((header, rest)) = bytes.split_first_chunk::<BLOCK_HEADER_BYTES>() else {
        return Parsed::Need(BLOCK_HEADER_BYTES);
    };
    let (words, _) = header.as_chunks::<4>();
    let [magic, compression, stored, unpacked, offset, crc] = words else { return Parsed::Invalid };
    if magic != BLOCK_MAGIC {
        return Parsed::Invalid;
    }
    let unpacked = u32::from_le_bytes(*unpacked);
    let Some(compression) = compression_of(u32::from_le_bytes(*compression)) else {
        return Parsed::Invalid;
    };
    let (Ok(length), Ok(unpacked_bytes)) =
        (usize::try_from(u32::from_le_bytes(*stored)), usize::try_from(unpacked))
    else {
        return Parsed::Invalid;
    };
    if unpacked > UNPACKED_BYTES_MAX || length > unpacked_bytes {
        return Parsed::Invalid;
    }
    let Some(stored) = rest.get(..length) else {
        return Parsed::Need(BLOCK_HEADER_BYTES.saturating_add(length));
    };
    let (fields, _) = header.split_at(BLOCK_HEADER_BYTES - 4);
    if block_crc(segment, place, fields, stored) != u32::from_le_bytes(*crc) {
        return Parsed::Invalid;
    }
    Parsed::Found(Block {
        compression,
        stored,
        unpacked: unpacked_bytes,
        offset: u64::from(u32::from_le_bytes(*offset)),
        bytes: BLOCK_HEADER_BYTES.saturating_add(length),
    })
}

/// Makes blocks of records.
pub(crate) struct Packer {
    codec: Compressor,
    scratch: Vec<u8>,
}

impl Packer {
    /// With the compressor's default level.
    pub(crate) fn new(algorithm: Algorithm) -> Option<Packer> {
        let codec = Compressor::new(algorithm).ok()?;
        Some(Packer { codec, scratch: Vec::new() })
    }

    /// Appends blocks with `records`, whole ones, of which the first has the position `offset`.
    /// `place` is where the first byte of `out` will lie in the file.
    pub(crate) fn pack(
        &mut self,
        segment: SegmentId,
        place: u64,
        offset: u64,
        records: &[u8],
        out: &mut Buf,
    ) {
        let mut at = 0;
        while at < records.len() {
            let end = cut(records, at);
            let content = records.get(at..end).unwrap_or(&[]);
            let position = offset + at as u64;
            self.put(segment, place + out.len() as u64, position, content, out);
            at = end;
        }
    }

    fn put(&mut self, segment: SegmentId, place: u64, offset: u64, content: &[u8], out: &mut Buf) {
        self.scratch.clear();
        let packed = self.codec.compress(content, &mut self.scratch).is_ok()
            && self.scratch.len() < content.len();
        let (algorithm, stored) = match packed {
            true => (Some(self.codec.algorithm()), self.scratch.as_slice()),
            false => (None, content),
        };
        let word = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
        let offset = u32::try_from(offset).unwrap_or(u32::MAX);
        let mut fields = [0; BLOCK_HEADER_BYTES - 4];
        let parts = [
            *BLOCK_MAGIC,
            u32::from(compression_code(algorithm)).to_le_bytes(),
            word(stored.len()),
            word(content.len()),
            offset.to_le_bytes(),
        ];
        for (field, part) in fields.as_chunks_mut::<4>().0.iter_mut().zip(parts) {
            *field = part;
        }
        out.extend_from_slice(&fields);
        out.extend_from_slice(&block_crc(segment, place, &fields, stored).to_le_bytes());
        out.extend_from_slice(stored);
        if self.scratch.capacity() > 4 * BLOCK_BYTES {
            self.scratch = Vec::new();
        }
    }
}

/// End of the block that begins at `from`: whole records, at least one.
fn cut(records: &[u8], from: usize) -> usize {
    let mut end = from;
    while end - from < BLOCK_BYTES {
        let length = records.get(end..).and_then(|rest| rest.first_chunk::<4>());
        let Some(length) = length else { return records.len() };
        let record = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        end = end.saturating_add(record).saturating_add(8);
        if end >= records.len() {
            return records.len();
        }
    }
    end
}
