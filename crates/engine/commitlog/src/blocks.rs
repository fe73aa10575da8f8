//! Blocks of a compressed or encrypted segment: whole records, packed together. See
//! `docs/formats/commitlog.md`.
//!
//! ```text
//! block: magic 4 · compression u8, 1 if encrypted u8, 0 u16 · stored u32 · unpacked u32 · offset u32 · crc32 u32 · stored bytes
//! ```
//! `offset` is where the first record would lie in a segment that is not compressed: positions are
//! the same in both. The checksum covers the segment id, the block's offset in the file and all
//! fields, so that no block is mistaken for one of another segment or offset.

use codec::checksum::Crc32;
use codec::{Algorithm, Compressor};
use rt::Buf;

use crate::format::{Parsed, SegmentId};
use crate::keys::{Keys, NO_KEY, NONCE_BYTES, SEALED_BYTES};

/// Records are packed together until a block has this many bytes of them; a record is never cut.
pub const BLOCK_BYTES: usize = 64 * 1024;
/// Bytes of a block before its stored content.
pub const BLOCK_HEADER_BYTES: usize = 24;
/// Longest content: far above half of the largest segment, which one record may take.
const UNPACKED_BYTES_MAX: u32 = (1 << 30) + (1 << 20);

/// Begins every block, so that blocks are found after damage.
pub(crate) const BLOCK_MAGIC: &[u8; 4] = b"\xf6HLB";

/// The position of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockPlace {
    pub(crate) segment: SegmentId,
    /// In the file, unlike positions of records.
    pub(crate) offset: u64,
}

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

/// A block verbatim from the file, its checksum verified.
pub(crate) struct Block<'a> {
    /// How it is compressed.
    compression: Option<Algorithm>,
    /// Associated data of the tag beside the content, when the block is encrypted.
    sealed: Option<[u8; ASSOCIATED_BYTES]>,
    stored: &'a [u8],
    unpacked: usize,
    /// Position of its first record.
    pub(crate) offset: u64,
    /// Bytes of the block with its header.
    pub(crate) bytes: usize,
}

/// Decrypts and decompresses blocks.
#[derive(Default)]
pub(crate) struct Unpacker {
    codec: Option<Compressor>,
    opened: Vec<u8>,
    keys: Option<Keys>,
}

impl Unpacker {
    /// `keys`: of encrypted blocks.
    pub(crate) fn new(keys: Option<Keys>) -> Unpacker {
        Unpacker { keys, ..Unpacker::default() }
    }
}

/// Why a block was not unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotUnpacked {
    /// It is damaged.
    Damaged(&'static str),
    /// It is intact, but encrypted with another key, or by another node: never the tail of a crash.
    Sealed(&'static str),
}

impl Block<'_> {
    /// Replaces `out` with the records.
    ///
    /// # Errors
    /// The stored bytes do not match the header after unpacking, or cannot be decrypted.
    pub(crate) fn unpack(&self, with: &mut Unpacker, out: &mut Vec<u8>) -> Result<(), NotUnpacked> {
        const WRONG: NotUnpacked = NotUnpacked::Damaged("a block does not unpack to what it says");
        out.clear();
        let mut stored = self.stored;
        if let Some(associated) = &self.sealed {
            let keys = with.keys.as_ref().ok_or(NotUnpacked::Sealed(NO_KEY))?;
            keys.open(associated, stored, &mut with.opened).map_err(NotUnpacked::Sealed)?;
            stored = &with.opened;
        }
        let Some(algorithm) = self.compression else {
            out.extend_from_slice(stored);
            return if out.len() == self.unpacked { Ok(()) } else { Err(WRONG) };
        };
        if with.codec.as_ref().is_none_or(|c| c.algorithm() != algorithm) {
            with.codec = Some(Compressor::new(algorithm).map_err(|_| WRONG)?);
        }
        let Some(codec) = with.codec.as_mut() else { return Err(WRONG) };
        match codec.decompress(stored, self.unpacked, out) {
            Ok(length) if length == self.unpacked => Ok(()),
            _ => Err(WRONG),
        }
    }
}

/// Segment id, offset, fields of the header except the checksum.
const ASSOCIATED_BYTES: usize = 8 + 8 + BLOCK_HEADER_BYTES - 4;

fn associated(segment: SegmentId, place: u64, fields: &[u8]) -> [u8; ASSOCIATED_BYTES] {
    let mut all = [0; ASSOCIATED_BYTES];
    let parts = segment.0.to_le_bytes().into_iter().chain(place.to_le_bytes());
    for (to, byte) in all.iter_mut().zip(parts.chain(fields.iter().copied())) {
        *to = byte;
    }
    all
}

fn block_crc(segment: SegmentId, place: u64, fields: &[u8], stored: &[u8]) -> u32 {
    let mut crc = Crc32::new();
    crc.update(&segment.0.to_le_bytes());
    crc.update(&place.to_le_bytes());
    crc.update(fields);
    crc.update(stored);
    crc.value()
}

/// Reads the block at the start of `bytes`, which lie at offset `place` of the file.
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
    let [compression, sealed, 0, 0] = *compression else { return Parsed::Invalid };
    let (Some(compression), 0..=1) = (compression_of(u32::from(compression)), sealed) else {
        return Parsed::Invalid;
    };
    let is_sealed = sealed == 1;
    let (Ok(length), Ok(unpacked_bytes)) =
        (usize::try_from(u32::from_le_bytes(*stored)), usize::try_from(unpacked))
    else {
        return Parsed::Invalid;
    };
    let more = if is_sealed { SEALED_BYTES } else { 0 };
    if unpacked > UNPACKED_BYTES_MAX || length > unpacked_bytes.saturating_add(more) {
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
        sealed: is_sealed.then(|| associated(segment, place, fields)),
        stored,
        unpacked: unpacked_bytes,
        offset: u64::from(u32::from_le_bytes(*offset)),
        bytes: BLOCK_HEADER_BYTES.saturating_add(length),
    })
}

/// Makes blocks of records.
pub(crate) struct Packer {
    codec: Option<Compressor>,
    keys: Option<Keys>,
    scratch: Vec<u8>,
    sealed: Vec<u8>,
}

impl Packer {
    /// With the compressor's default level. `None`: there is no memory for it.
    pub(crate) fn new(algorithm: Option<Algorithm>, keys: Option<Keys>) -> Option<Packer> {
        let codec = match algorithm {
            Some(algorithm) => Some(Compressor::new(algorithm).ok()?),
            None => None,
        };
        Some(Packer { codec, keys, scratch: Vec::new(), sealed: Vec::new() })
    }

    /// Appends blocks with `records`, whole ones, of which the first has the position `offset`.
    /// `at` is where the first byte of `out` will lie; `random` fills nonces.
    pub(crate) fn pack(
        &mut self,
        at: BlockPlace,
        offset: u64,
        records: &[u8],
        random: impl Fn(&mut [u8]),
        out: &mut Buf,
    ) {
        let mut start = 0;
        while start < records.len() {
            let end = cut(records, start);
            stdx::invariant!(
                start < end && end <= records.len(),
                "commit log: block {start}..{end} of {} bytes of records",
                records.len()
            );
            let content = records.get(start..end).unwrap_or(&[]);
            let position = offset + start as u64;
            let mut nonce = [0; NONCE_BYTES];
            if self.keys.is_some() {
                random(&mut nonce);
            }
            let block = BlockPlace { offset: at.offset + out.len() as u64, ..at };
            self.put(block, position, content, nonce, out);
            start = end;
        }
    }

    fn put(
        &mut self,
        at: BlockPlace,
        offset: u64,
        content: &[u8],
        nonce: [u8; NONCE_BYTES],
        out: &mut Buf,
    ) {
        self.scratch.clear();
        let algorithm = self.codec.as_mut().and_then(|codec| {
            let done = codec.compress(content, &mut self.scratch).is_ok();
            (done && self.scratch.len() < content.len()).then(|| codec.algorithm())
        });
        let mut stored = if algorithm.is_some() { self.scratch.as_slice() } else { content };
        let is_sealed = self.keys.is_some();
        let stored_bytes = stored.len() + if is_sealed { SEALED_BYTES } else { 0 };
        let word = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
        let offset = u32::try_from(offset).unwrap_or(u32::MAX);
        stdx::invariant!(
            u32::try_from(content.len()).is_ok_and(|n| n <= UNPACKED_BYTES_MAX)
                && offset != u32::MAX,
            "commit log: a block of {} bytes at {offset}, its reader takes {UNPACKED_BYTES_MAX}",
            content.len()
        );
        let mut fields = [0; BLOCK_HEADER_BYTES - 4];
        let parts = [
            *BLOCK_MAGIC,
            [compression_code(algorithm), u8::from(is_sealed), 0, 0],
            word(stored_bytes),
            word(content.len()),
            offset.to_le_bytes(),
        ];
        for (field, part) in fields.as_chunks_mut::<4>().0.iter_mut().zip(parts) {
            *field = part;
        }
        if let Some(keys) = &self.keys {
            self.sealed.clear();
            let associated = associated(at.segment, at.offset, &fields);
            keys.seal(nonce, &associated, stored, &mut self.sealed);
            stored = &self.sealed;
        }
        stdx::invariant!(
            stored.len() == stored_bytes,
            "commit log: a block of {} stored bytes says {stored_bytes}",
            stored.len()
        );
        out.extend_from_slice(&fields);
        out.extend_from_slice(&block_crc(at.segment, at.offset, &fields, stored).to_le_bytes());
        out.extend_from_slice(stored);
        for buffer in [&mut self.scratch, &mut self.sealed] {
            if buffer.capacity() > 4 * BLOCK_BYTES {
                *buffer = Vec::new();
            }
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
