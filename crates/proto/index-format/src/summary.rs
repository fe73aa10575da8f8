//! Ends of a component: a header that names it, a summary that a reader keeps, a footer that finds the summary.
//!
//! | offset | bytes | header | | offset from the end | bytes | footer |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | 0 | 4 | magic | | 32 | 8 | offset of the summary |
//! | 4 | 2 | version | | 24 | 4 | length of the summary |
//! | 6 | 2 | 0 | | 20 | 8 | length of the component |
//! | 8 | 16 | id of the index, or 0 | | 12 | 2, 2 | version, 0 |
//! | 24 | 4 | definition of the index, or 0 | | 8 | 4 | magic |
//! | 28 | 4 | CRC32 of the 28 bytes before | | 4 | 4 | CRC32 of the 28 bytes before |

use codec::{Reader, Writer, crc32};
use uuid::Uuid;

use crate::block::Output;
use crate::leaf::Counts;
use crate::{Block, BlockKind, BlockRef, IndexError};

/// Version of both components.
pub const VERSION: u16 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 32;
/// Bytes of the footer.
pub const FOOTER_BYTES: usize = 32;

/// Which component it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComponentKind {
    /// `Index+<id>.db`.
    Terms,
    /// `Index+Rows.db`.
    Rows,
    /// `Index+<id>.db` of vectors (crate `ann`).
    Vectors,
}

impl ComponentKind {
    /// The kind whose header begins so. `None`: none does.
    pub fn of_header(bytes: &[u8]) -> Option<ComponentKind> {
        let kinds = [ComponentKind::Terms, ComponentKind::Rows, ComponentKind::Vectors];
        kinds.into_iter().find(|kind| bytes.starts_with(&kind.magic()))
    }

    fn magic(self) -> [u8; 4] {
        match self {
            ComponentKind::Terms => *b"HLIX",
            ComponentKind::Rows => *b"HLRW",
            ComponentKind::Vectors => *b"HLVC",
        }
    }
}

/// Begins a component.
pub fn put_header(kind: ComponentKind, id: Uuid, out: &mut Output) {
    put_header_of(kind, id, 0, out);
}

/// Begins a component of an index of this definition: [`crate::TableIndex::definition`].
pub fn put_header_of(kind: ComponentKind, id: Uuid, definition: u32, out: &mut Output) {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.put_bytes(&kind.magic());
    header.put_u16(VERSION);
    header.put_u16(0);
    header.put_bytes(id.as_bytes());
    header.put_u32(definition);
    header.put_u32(crc32(&header));
    out.put_raw(&header);
}

fn sealed<'a>(bytes: &'a [u8], what: &'static str, offset: u64) -> Result<Reader<'a>, IndexError> {
    let body = bytes.len().checked_sub(4).and_then(|end| bytes.split_at_checked(end));
    let (body, seal) = body.ok_or(IndexError::Invalid { what, offset })?;
    let expected = Reader::new(seal, what).u32()?;
    let found = crc32(body);
    if found != expected {
        return Err(IndexError::Checksum { what, offset, expected, found });
    }
    Ok(Reader::new(body, what))
}

/// Reads the header: the id of the index and its definition.
///
/// # Errors
/// `Checksum`; `Version` of a later release; `Invalid` for another component.
pub fn read_header(kind: ComponentKind, bytes: &[u8]) -> Result<(Uuid, u32), IndexError> {
    let bytes = bytes.get(..HEADER_BYTES).unwrap_or(bytes);
    let mut r = sealed(bytes, "header of an index component", 0)?;
    let wrong = IndexError::Invalid { what: "header of another component", offset: 0 };
    if r.array::<4>()? != kind.magic() {
        return Err(wrong);
    }
    check_version(r.u16()?)?;
    if r.u16()? != 0 {
        return Err(wrong);
    }
    Ok((Uuid::from_bytes(r.array()?), r.u32()?))
}

fn check_version(version: u16) -> Result<(), IndexError> {
    if version == VERSION { Ok(()) } else { Err(IndexError::Version { version }) }
}

/// The last bytes of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Where the summary is.
    pub summary: BlockRef,
}

impl Footer {
    /// Ends a component.
    pub fn put(self, kind: ComponentKind, out: &mut Output) {
        let length = out.offset() + FOOTER_BYTES as u64;
        let mut footer = Vec::with_capacity(FOOTER_BYTES);
        footer.put_u64(self.summary.offset);
        footer.put_u32(self.summary.length);
        footer.put_u64(length);
        footer.put_u16(VERSION);
        footer.put_u16(0);
        footer.put_bytes(&kind.magic());
        footer.put_u32(crc32(&footer));
        out.put_raw(&footer);
    }

    /// Reads the last [`FOOTER_BYTES`] of a component of `length` bytes.
    ///
    /// # Errors
    /// `Checksum`; `Version` of a later release; `Invalid` when the component is another one or has another length.
    pub fn read(kind: ComponentKind, bytes: &[u8], length: u64) -> Result<Footer, IndexError> {
        let offset = length.saturating_sub(FOOTER_BYTES as u64);
        let wrong = |what| IndexError::Invalid { what, offset };
        let mut r = sealed(bytes, "footer of an index component", offset)?;
        let (at, summary_length, written) = (r.u64()?, r.u32()?, r.u64()?);
        let (version, zero, magic) = (r.u16()?, r.u16()?, r.array::<4>()?);
        if magic != kind.magic() || zero != 0 {
            return Err(wrong("footer of another component"));
        }
        check_version(version)?;
        if written != length {
            return Err(wrong("component of another length than its footer names"));
        }
        Ok(Footer { summary: BlockRef::checked(at, summary_length as usize, offset)? })
    }
}

/// Facts about `Index+<id>.db` that a reader keeps in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSummary {
    /// Bound of the row ids: rows of the file.
    pub rows: u32,
    /// Terms, and pairs of a term and a row.
    pub counts: Counts,
    /// The root node. None: no row has a value.
    pub root: Option<BlockRef>,
    /// Smallest term.
    pub min: Vec<u8>,
    /// Largest term.
    pub max: Vec<u8>,
}

impl IndexSummary {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(self.rows);
        out.put_vint_unsigned(self.counts.terms);
        out.put_vint_unsigned(self.counts.ids);
        out.put_bytes_vint(&self.min);
        out.put_bytes_vint(&self.max);
        out.put_u8(u8::from(self.root.is_some()));
        if let Some(root) = self.root {
            root.put(&mut out);
        }
        out
    }

    /// Reads the block that [`Footer::summary`] names.
    ///
    /// # Errors
    /// A defect of the block.
    pub fn read(block: Block) -> Result<IndexSummary, IndexError> {
        let block = block.expect(BlockKind::Summary)?;
        let mut r = Reader::new(block.payload(), "summary of an index");
        let rows = r.u32()?;
        let counts = Counts { terms: r.vint_unsigned()?, ids: r.vint_unsigned()? };
        let (min, max) = (r.bytes_vint()?.to_vec(), r.bytes_vint()?.to_vec());
        let root = match r.u8()? {
            0 => None,
            1 => Some(BlockRef::read(&mut r, block.at().offset)?),
            _ => return Err(block.invalid("summary with an impossible root")),
        };
        r.finish()?;
        Ok(IndexSummary { rows, counts, root, min, max })
    }
}
