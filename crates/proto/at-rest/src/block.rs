//! A sealed file: encrypted blocks of fixed size, and a trailer.
//!
//! ```text
//! file:    block 0 · block 1 · … · last block · trailer
//! block:   ciphertext (4,076 bytes; the last one 0 to 4,076) · tag 16 · crc32 4
//! trailer: "HLNSEALD" · version u16 · 0 u16 · block bytes u32 · salt 16 · plain length u64 · crc32 u32
//! ```
//! Cipher: AES-256-GCM. The key is derived from the data key, the salt and the name of the file in its set, so a block
//! of another file, of another component or of an earlier writing of this one does not open. The nonce is the number
//! of the block and if it is the last one, so a moved block does not open, nor does a file that was cut or extended at
//! a block's end. No nonce is used twice: a salt is used for one writing, which writes each block once.
//!
//! The checksums cover the stored bytes, their position and the salt: damage is found without a key.
//! All integers are little-endian.

use codec::checksum::Crc32;
use ring::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};

use crate::secret::{DataKey, SALT_BYTES, Salt};
use crate::{Result, SealError};

/// Bytes of a stored block, except the last one: aligned for direct IO.
pub const BLOCK_BYTES: usize = 4096;
const BLOCK_U32: u32 = 4096;
const TAG_BYTES: usize = 16;
const CRC_BYTES: usize = 4;
const OVERHEAD_BYTES: usize = TAG_BYTES + CRC_BYTES;
/// Plain bytes of a block.
pub const PAYLOAD_BYTES: usize = BLOCK_BYTES - OVERHEAD_BYTES;
/// Bytes of the trailer.
pub const TRAILER_BYTES: usize = 44;
const MAGIC: &[u8; 8] = b"HLNSEALD";
const VERSION: u16 = 1;
/// Largest plain length: block numbers and lengths stay far from overflows.
const LENGTH_MAX: u64 = 1 << 50;

const BLOCK: u64 = BLOCK_BYTES as u64;
const PAYLOAD: u64 = PAYLOAD_BYTES as u64;
const OVERHEAD: u64 = OVERHEAD_BYTES as u64;
const TRAILER: u64 = TRAILER_BYTES as u64;

/// Blocks of a file with so many plain bytes; an empty one has one.
fn block_count(plain: u64) -> u64 {
    plain.div_ceil(PAYLOAD).max(1)
}

/// Bytes of the sealed form of so many plain bytes.
pub fn physical_length(plain: u64) -> u64 {
    let blocks = block_count(plain).saturating_mul(OVERHEAD);
    plain.saturating_add(blocks).saturating_add(TRAILER)
}

fn damaged(what: &'static str, offset: u64) -> SealError {
    SealError::Damaged { what, offset }
}

/// Position of a block, as its nonce and its checksum contain it.
#[derive(Clone, Copy)]
struct Position {
    number: u64,
    is_last: bool,
}

impl Position {
    fn bytes(self) -> [u8; NONCE_LEN] {
        let [a, b, c, d, e, f, g, h] = self.number.to_le_bytes();
        [u8::from(self.is_last), 0, 0, 0, a, b, c, d, e, f, g, h]
    }

    fn nonce(self) -> Nonce {
        Nonce::assume_unique_for_key(self.bytes())
    }

    fn offset(self) -> u64 {
        self.number.saturating_mul(BLOCK)
    }
}

/// The checksums of blocks of one file.
#[derive(Clone)]
struct BlockCrc(Crc32);

impl BlockCrc {
    fn new(salt: &Salt) -> BlockCrc {
        let mut crc = Crc32::new();
        crc.update(salt);
        BlockCrc(crc)
    }

    fn of(&self, position: Position, sealed: &[u8]) -> [u8; CRC_BYTES] {
        let mut crc = self.0.clone();
        crc.update(&position.bytes());
        crc.update(sealed);
        crc.value().to_le_bytes()
    }

    /// Returns the block without its checksum.
    fn check<'b>(&self, position: Position, block: &'b mut [u8]) -> Result<&'b mut [u8]> {
        let offset = position.offset();
        let split = block.len().checked_sub(CRC_BYTES);
        let parts = split.and_then(|at| block.split_at_mut_checked(at));
        let (sealed, crc) = parts.ok_or(damaged("a block is cut", offset))?;
        match *crc == self.of(position, sealed) {
            true => Ok(sealed),
            false => Err(damaged("a block has another checksum", offset)),
        }
    }
}

/// Encrypts a file from front to back.
pub struct Sealer {
    cipher: LessSafeKey,
    salt: Salt,
    crc: BlockCrc,
    /// Plain bytes of the next block: it may be the last.
    held: Vec<u8>,
    number: u64,
    length: u64,
}

impl Sealer {
    /// Seals the file with that name in its set. The salt is random and used for this writing only.
    pub fn new(key: &DataKey, name: &str, salt: Salt) -> Sealer {
        Sealer {
            cipher: key.of_file(name, &salt),
            salt,
            crc: BlockCrc::new(&salt),
            held: Vec::with_capacity(PAYLOAD_BYTES),
            number: 0,
            length: 0,
        }
    }

    /// Plain bytes so far.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Takes the next plain bytes, and appends blocks of [`BLOCK_BYTES`] to `out`.
    pub fn put(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        self.length = self.length.saturating_add(bytes.len() as u64);
        stdx::invariant!(self.length <= LENGTH_MAX, "a sealed file of more than 2^50 bytes");
        while !bytes.is_empty() {
            if self.held.len() == PAYLOAD_BYTES {
                self.seal_held(false, out);
            }
            if self.held.is_empty()
                && bytes.len() > PAYLOAD_BYTES
                && let Some((block, later)) = bytes.split_first_chunk::<PAYLOAD_BYTES>()
            {
                // Other bytes follow: it is not the last block, and need not be held.
                self.seal(block, false, out);
                bytes = later;
                continue;
            }
            let room = PAYLOAD_BYTES.saturating_sub(self.held.len()).min(bytes.len());
            let (now, later) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
            self.held.extend_from_slice(now);
            bytes = later;
        }
    }

    fn seal_held(&mut self, is_last: bool, out: &mut Vec<u8>) {
        let mut held = std::mem::take(&mut self.held);
        self.seal(&held, is_last, out);
        held.clear();
        self.held = held;
    }

    fn seal(&mut self, block: &[u8], is_last: bool, out: &mut Vec<u8>) {
        let position = Position { number: self.number, is_last };
        let start = out.len();
        out.extend_from_slice(block);
        let plain = out.get_mut(start..).unwrap_or_default();
        let tag = self.cipher.seal_in_place_separate_tag(position.nonce(), Aad::empty(), plain);
        match tag {
            Ok(tag) => out.extend_from_slice(tag.as_ref()),
            // Only content above 64 GiB is refused.
            Err(_) => stdx::invariant::broken(format_args!("a block is too long to be encrypted")),
        }
        let crc = self.crc.of(position, out.get(start..).unwrap_or_default());
        out.extend_from_slice(&crc);
        self.number = self.number.saturating_add(1);
    }

    /// Appends the last block and the trailer. Nothing may be put after it.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.seal_held(true, out);
        let start = out.len();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&BLOCK_U32.to_le_bytes());
        out.extend_from_slice(&self.salt);
        out.extend_from_slice(&self.length.to_le_bytes());
        let crc = codec::crc32(out.get(start..).unwrap_or_default());
        out.extend_from_slice(&crc.to_le_bytes());
    }
}

/// The trailer of a file of `physical` bytes.
struct Trailer {
    salt: Salt,
    length: u64,
}

impl Trailer {
    fn decode(bytes: &[u8], physical: u64) -> Result<Trailer> {
        let at = physical.saturating_sub(TRAILER);
        let wrong = |what| damaged(what, at);
        let (body, crc) = bytes
            .split_last_chunk::<CRC_BYTES>()
            .filter(|_| bytes.len() == TRAILER_BYTES)
            .ok_or(wrong("the trailer is cut"))?;
        if codec::crc32(body).to_le_bytes() != *crc {
            return Err(wrong("the trailer is missing or has another checksum"));
        }
        let mut r = codec::Reader::new(body, "trailer");
        let cut = |_| wrong("the trailer is cut");
        if r.bytes(MAGIC.len()).map_err(cut)? != MAGIC {
            return Err(wrong("there is no trailer"));
        }
        let version = u16::from_le_bytes(r.array().map_err(cut)?);
        if version != VERSION {
            return Err(SealError::Version(version));
        }
        let reserved: [u8; 2] = r.array().map_err(cut)?;
        let block = u32::from_le_bytes(r.array().map_err(cut)?);
        let salt: [u8; SALT_BYTES] = r.array().map_err(cut)?;
        let length = u64::from_le_bytes(r.array().map_err(cut)?);
        if reserved != [0; 2] || block != BLOCK_U32 || length > LENGTH_MAX {
            return Err(wrong("the trailer has impossible values"));
        }
        if physical_length(length) != physical {
            return Err(wrong("the file has another length than its trailer says"));
        }
        Ok(Trailer { salt, length })
    }

    /// Offset of the end of the blocks.
    fn blocks_end(&self) -> u64 {
        physical_length(self.length).saturating_sub(TRAILER)
    }

    fn position(&self, number: u64) -> Position {
        Position { number, is_last: number.saturating_add(1) == block_count(self.length) }
    }
}

/// Returns true if the end of a file is the trailer of a sealed one.
pub fn is_sealed(end: &[u8]) -> bool {
    let start = end.len().checked_sub(TRAILER_BYTES);
    start.and_then(|at| end.get(at..)).is_some_and(|trailer| trailer.starts_with(MAGIC))
}

/// Stored bytes that have to be read for plain ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Number of the first block.
    pub block: u64,
    /// Offset in the file as stored, a multiple of [`BLOCK_BYTES`].
    pub offset: u64,
    /// Stored bytes.
    pub length: usize,
    /// Plain bytes of the first block before the wanted ones.
    pub skip: usize,
    /// Plain bytes that are wanted: fewer than asked for at the end of the file.
    pub plain: usize,
}

/// Decrypts parts of a file.
pub struct Opener {
    cipher: LessSafeKey,
    crc: BlockCrc,
    trailer: Trailer,
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opener({} bytes)", self.trailer.length)
    }
}

impl Opener {
    /// Stored bytes at the end of a file of `physical` bytes that [`Opener::of_end`] needs: offset, a multiple of
    /// [`BLOCK_BYTES`], and length.
    pub fn end_span(physical: u64) -> (u64, usize) {
        // The last block begins in it, wherever the trailer begins.
        let wanted = BLOCK.saturating_add(TRAILER);
        let start = physical.saturating_sub(wanted);
        let start = start.saturating_sub(start.checked_rem(BLOCK).unwrap_or(0));
        (start, usize::try_from(physical.saturating_sub(start)).unwrap_or(usize::MAX))
    }

    /// The opener of the file with that name in its set, by the bytes of [`Opener::end_span`]. The last block is
    /// opened: its position proves where the file ends.
    ///
    /// # Errors
    /// `Damaged`, `Version`.
    pub fn of_end(key: &DataKey, name: &str, physical: u64, end: &mut [u8]) -> Result<Opener> {
        let (from, _) = Opener::end_span(physical);
        let cut = damaged("the trailer is cut", physical);
        let split = end.len().checked_sub(TRAILER_BYTES).ok_or(cut.clone())?;
        let (blocks, trailer) = end.split_at_mut_checked(split).ok_or(cut.clone())?;
        let trailer = Trailer::decode(trailer, physical)?;
        let opener = Opener {
            cipher: key.of_file(name, &trailer.salt),
            crc: BlockCrc::new(&trailer.salt),
            trailer,
        };
        let last = block_count(opener.trailer.length).saturating_sub(1);
        let skip = last.saturating_mul(BLOCK).checked_sub(from);
        let skip = skip.and_then(|skip| usize::try_from(skip).ok()).ok_or(cut.clone())?;
        let block = blocks.get_mut(skip..).ok_or(cut)?;
        opener.open_block(last, block, 0)?;
        Ok(opener)
    }

    /// Plain bytes of the file.
    pub fn length(&self) -> u64 {
        self.trailer.length
    }

    /// Stored bytes that hold `length` plain ones from `offset` on. `None`: there are none.
    pub fn span(&self, offset: u64, length: usize) -> Option<Span> {
        let left = self.trailer.length.checked_sub(offset).filter(|left| *left > 0)?;
        let plain = (length as u64).min(left);
        let last = offset.checked_add(plain)?.checked_sub(1)?.checked_div(PAYLOAD)?;
        let first = offset.checked_div(PAYLOAD)?;
        let start = first.checked_mul(BLOCK)?;
        let end = last.checked_add(1)?.checked_mul(BLOCK)?.min(self.trailer.blocks_end());
        if plain == 0 {
            return None;
        }
        Some(Span {
            block: first,
            offset: start,
            length: usize::try_from(end.checked_sub(start)?).ok()?,
            skip: usize::try_from(offset.checked_rem(PAYLOAD)?).ok()?,
            plain: usize::try_from(plain).ok()?,
        })
    }

    /// Opens the stored bytes of a span in place: the plain ones are at the front then.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn open(&self, span: Span, bytes: &mut [u8]) -> Result<()> {
        if bytes.len() != span.length {
            return Err(damaged("the file ends early", span.offset));
        }
        let (mut number, mut from, mut done, mut skip) = (span.block, 0_usize, 0_usize, span.skip);
        while from < bytes.len() {
            let end = from.saturating_add(BLOCK_BYTES).min(bytes.len());
            // Decrypted to where its plain bytes belong, unless only some of them are wanted.
            let gap = if skip == 0 { from.saturating_sub(done) } else { 0 };
            let to = from.saturating_sub(gap);
            let length =
                self.open_block(number, bytes.get_mut(to..end).unwrap_or_default(), gap)?;
            let wanted = length.saturating_sub(skip).min(span.plain.saturating_sub(done));
            if skip > 0 {
                let start = from.saturating_add(skip);
                bytes.copy_within(start..start.saturating_add(wanted), done);
            }
            done = done.saturating_add(wanted);
            (skip, from, number) = (0, end, number.saturating_add(1));
        }
        match done == span.plain {
            true => Ok(()),
            false => Err(damaged("the file ends early", span.offset)),
        }
    }

    /// Opens a block that stands after `gap` bytes. Returns its plain bytes, which are at the front then.
    fn open_block(&self, number: u64, bytes: &mut [u8], gap: usize) -> Result<usize> {
        let position = self.trailer.position(number);
        let block = bytes.get_mut(gap..).unwrap_or_default();
        let end = self.crc.check(position, block)?.len().saturating_add(gap);
        let bytes = bytes.get_mut(..end).unwrap_or_default();
        let opened = self.cipher.open_within(position.nonce(), Aad::empty(), bytes, gap..);
        let forged =
            damaged("a block was changed, moved, or encrypted with another key", position.offset());
        opened.map(|plain| plain.len()).map_err(|_| forged)
    }
}

/// The sealed form of a whole file.
pub fn seal_whole(key: &DataKey, name: &str, salt: Salt, bytes: &[u8]) -> Vec<u8> {
    let length = usize::try_from(physical_length(bytes.len() as u64)).unwrap_or(0);
    let mut out = Vec::with_capacity(length);
    let mut sealer = Sealer::new(key, name, salt);
    sealer.put(bytes, &mut out);
    sealer.finish(&mut out);
    out
}

/// The plain bytes of a whole sealed file.
///
/// # Errors
/// `Damaged`, `Version`.
pub fn open_whole(key: &DataKey, name: &str, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
    let physical = bytes.len() as u64;
    let (from, _) = Opener::end_span(physical);
    let from = usize::try_from(from).unwrap_or(usize::MAX);
    let mut end = bytes.get(from..).unwrap_or_default().to_vec();
    let opener = Opener::of_end(key, name, physical, &mut end)?;
    let plain = usize::try_from(opener.length()).unwrap_or(usize::MAX);
    if let Some(span) = opener.span(0, plain) {
        let blocks = bytes.get_mut(..span.length).unwrap_or_default();
        opener.open(span, blocks)?;
    }
    bytes.truncate(plain);
    Ok(bytes)
}

/// Compares the checksums of a sealed file without its key: damage is found, a forgery is not.
pub struct UnkeyedCheck {
    crc: BlockCrc,
    trailer: Trailer,
}

impl UnkeyedCheck {
    /// Begins with the last [`TRAILER_BYTES`] of a file of `physical` bytes.
    ///
    /// # Errors
    /// `Damaged`, `Version`.
    pub fn new(physical: u64, trailer: &[u8]) -> Result<UnkeyedCheck> {
        let trailer = Trailer::decode(trailer, physical)?;
        Ok(UnkeyedCheck { crc: BlockCrc::new(&trailer.salt), trailer })
    }

    /// Offset of the end of the blocks.
    pub fn blocks_end(&self) -> u64 {
        self.trailer.blocks_end()
    }

    /// Compares whole stored blocks from `offset` on, a multiple of [`BLOCK_BYTES`].
    ///
    /// # Errors
    /// `Damaged`.
    pub fn check(&self, offset: u64, blocks: &mut [u8]) -> Result<()> {
        let first = offset.checked_div(BLOCK).unwrap_or(0);
        for (number, block) in (first..).zip(blocks.chunks_mut(BLOCK_BYTES)) {
            self.crc.check(self.trailer.position(number), block)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
