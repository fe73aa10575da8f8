//! Blocks: the unit that is read, verified and cached. Every byte of a component between its header and its
//! footer belongs to one.

use std::rc::Rc;

use codec::checksum::Crc32;
use codec::{Reader, Writer};
use sst_format::Chunk;

use crate::IndexError;

/// Bytes after the payload of a block: kind, CRC32.
pub(crate) const TRAILER_BYTES: usize = 5;
/// Longest block, bytes. The largest that is written is the directory of a list of 2^31 rows, about 4 MiB.
pub const BLOCK_BYTES_MAX: u32 = 16 << 20;

/// Where a block is in its component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockRef {
    /// Offset of the first byte.
    pub offset: u64,
    /// Bytes with the trailer, at most [`BLOCK_BYTES_MAX`].
    pub length: u32,
}

impl BlockRef {
    /// Offset after the last byte.
    pub fn end(self) -> u64 {
        self.offset.saturating_add(u64::from(self.length))
    }

    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.put_vint_unsigned(self.offset);
        out.put_vint_unsigned(u64::from(self.length));
    }

    /// Reads a reference out of a block at `owner`, which must come after the block that it names.
    pub(crate) fn read(r: &mut Reader<'_>, owner: u64) -> Result<BlockRef, IndexError> {
        let offset = r.vint_unsigned()?;
        let length = r.vint_len()?;
        BlockRef::checked(offset, length, owner)
    }

    /// The reference to a block before `owner`.
    ///
    /// # Errors
    /// `Invalid`: it points forward, or is longer or shorter than a block can be.
    pub fn checked(offset: u64, length: usize, owner: u64) -> Result<BlockRef, IndexError> {
        let short = u32::try_from(length).ok().filter(|n| *n <= BLOCK_BYTES_MAX);
        let at = short.map(|length| BlockRef { offset, length });
        at.filter(|at| at.end() <= owner && length >= TRAILER_BYTES)
            .ok_or(IndexError::Invalid { what: "reference to an impossible block", offset: owner })
    }
}

/// Kind of a block: the content of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Terms and their short lists of rows.
    Leaf,
    /// Separators and references to leaves or nodes.
    Node,
    /// Lists of rows.
    Postings,
    /// References to the blocks of one long list.
    Directory,
    /// The facts about the component that a reader keeps.
    Summary,
    /// Places of 1,024 rows.
    Rows,
    /// References to blocks of rows.
    RowDirectory,
    /// A part of a sorted run of a build.
    Run,
    /// Vectors or nodes of a graph (crate `ann`).
    Vectors,
    /// Facts about a segment of vectors (crate `ann`).
    VectorSegment,
}

impl BlockKind {
    fn code(self) -> u8 {
        match self {
            BlockKind::Leaf => 1,
            BlockKind::Node => 2,
            BlockKind::Postings => 3,
            BlockKind::Directory => 4,
            BlockKind::Summary => 5,
            BlockKind::Rows => 6,
            BlockKind::RowDirectory => 7,
            BlockKind::Run => 8,
            BlockKind::Vectors => 9,
            BlockKind::VectorSegment => 10,
        }
    }

    fn of_code(code: u8) -> Option<BlockKind> {
        Some(match code {
            1 => BlockKind::Leaf,
            2 => BlockKind::Node,
            3 => BlockKind::Postings,
            4 => BlockKind::Directory,
            5 => BlockKind::Summary,
            6 => BlockKind::Rows,
            7 => BlockKind::RowDirectory,
            8 => BlockKind::Run,
            9 => BlockKind::Vectors,
            10 => BlockKind::VectorSegment,
            _ => return None,
        })
    }
}

/// A block whose checksum was compared. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Block {
    chunk: Rc<Chunk>,
    at: BlockRef,
    kind: BlockKind,
}

impl Block {
    /// Verifies the bytes read at `at`.
    ///
    /// # Errors
    /// `Checksum` when a byte differs from what was written there; `Invalid` for an unknown kind.
    pub fn open(at: BlockRef, bytes: impl Into<Vec<u8>>) -> Result<Block, IndexError> {
        let bytes = bytes.into();
        let (payload, code, expected) = split(at, &bytes)?;
        let found = checksum(payload, code, at.offset);
        if found != expected {
            return Err(IndexError::Checksum { what: "block", offset: at.offset, expected, found });
        }
        Block::of_chunk(at, Rc::new(Chunk::new(bytes)))
    }

    /// A block of bytes that [`Block::open`] verified before, at the same place.
    ///
    /// # Errors
    /// `Invalid` when they cannot be these bytes.
    pub fn of_chunk(at: BlockRef, chunk: Rc<Chunk>) -> Result<Block, IndexError> {
        let (_, code, _) = split(at, chunk.bytes())?;
        let unknown = IndexError::Invalid { what: "block of an unknown kind", offset: at.offset };
        let kind = BlockKind::of_code(code).ok_or(unknown)?;
        Ok(Block { chunk, at, kind })
    }

    /// All of its bytes, for a cache.
    pub fn chunk(&self) -> &Rc<Chunk> {
        &self.chunk
    }

    /// Its bytes without the trailer.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let bytes = self.chunk.bytes();
        bytes.get(..bytes.len().saturating_sub(TRAILER_BYTES)).unwrap_or_default()
    }

    /// Offset and length in the file.
    pub fn at(&self) -> BlockRef {
        self.at
    }

    /// Kind of its content.
    pub fn kind(&self) -> BlockKind {
        self.kind
    }

    /// The error that this block has a defect.
    pub fn invalid(&self, what: &'static str) -> IndexError {
        IndexError::Invalid { what, offset: self.at.offset }
    }

    /// The block, if it is of this kind.
    ///
    /// # Errors
    /// `Invalid` for another kind.
    pub fn expect(self, kind: BlockKind) -> Result<Block, IndexError> {
        if self.kind == kind { Ok(self) } else { Err(self.invalid("block of another kind")) }
    }
}

/// Payload, kind and checksum of the bytes at `at`.
fn split(at: BlockRef, bytes: &[u8]) -> Result<(&[u8], u8, u32), IndexError> {
    let cut = IndexError::Invalid { what: "block is cut short", offset: at.offset };
    if bytes.len() != at.length as usize {
        return Err(cut);
    }
    match bytes.split_last_chunk::<TRAILER_BYTES>() {
        Some((payload, [code, checksum @ ..])) => {
            Ok((payload, *code, u32::from_be_bytes(*checksum)))
        }
        None => Err(cut),
    }
}

fn checksum(payload: &[u8], code: u8, offset: u64) -> u32 {
    let mut crc = Crc32::new();
    crc.update(payload);
    crc.update(&[code]);
    crc.update(&offset.to_be_bytes());
    crc.value()
}

/// Output of a writer: bytes not yet taken, and the offset of the first of them.
#[derive(Debug, Default)]
pub struct Output {
    bytes: Vec<u8>,
    taken: u64,
}

impl Output {
    pub(crate) fn at(offset: u64) -> Output {
        Output { bytes: Vec::new(), taken: offset }
    }

    /// Offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.taken + self.bytes.len() as u64
    }

    /// Bytes that [`Output::take`] would return.
    pub fn buffered(&self) -> usize {
        self.bytes.len()
    }

    /// Takes the bytes written since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        self.taken += self.bytes.len() as u64;
        std::mem::take(&mut self.bytes)
    }

    pub(crate) fn put_raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a block.
    ///
    /// # Errors
    /// `Input` when it is longer than [`BLOCK_BYTES_MAX`].
    pub fn put_block(&mut self, kind: BlockKind, payload: &[u8]) -> Result<BlockRef, IndexError> {
        let offset = self.offset();
        let length = u32::try_from(payload.len() + TRAILER_BYTES).ok();
        let length = length.filter(|length| *length <= BLOCK_BYTES_MAX);
        let length = length.ok_or(IndexError::Input { what: "block is too long" })?;
        self.bytes.extend_from_slice(payload);
        self.bytes.put_u8(kind.code());
        self.bytes.put_u32(checksum(payload, kind.code(), offset));
        Ok(BlockRef { offset, length })
    }
}

/// The block that a cursor was fed last.
#[derive(Debug, Default)]
pub(crate) struct Feed(Option<Block>);

impl Feed {
    pub(crate) fn put(&mut self, block: Block) {
        self.0 = Some(block);
    }

    /// The block at `at`, if it was fed last. It stays: several lists of one block are opened in turn.
    pub(crate) fn get(&self, at: BlockRef, kind: BlockKind) -> Result<Option<Block>, IndexError> {
        match self.0.as_ref().filter(|block| block.at() == at) {
            Some(block) => block.clone().expect(kind).map(Some),
            None => Ok(None),
        }
    }
}
