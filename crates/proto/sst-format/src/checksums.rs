//! Our own component `Checksums.db`, and Cassandra's `CRC.db` and `Digest.crc32`.
//!
//! `Checksums.db` holds a CRC32 of every 64 KiB of every other component (the other formats leave
//! Index, Summary, Filter, CompressionInfo and TOC unguarded), names the storage group of the file
//! and binds the file set together: table, identifier and the unchangeable part of Statistics.db.
//! Byte table in `docs/formats/sstable.md`.

use codec::checksum::Crc32;
use codec::{Reader, Writer, crc32};
use stdx::{Token, Uuid};

use crate::attached::{AttachedName, Lifecycle};
use crate::component::Component;
use crate::{FormatError, Result};

/// Bytes covered by one checksum, except at the end of a component.
pub const CHECKSUM_BLOCK: usize = 64 * 1024;
const CHECKSUM_BLOCK_U32: u32 = 64 * 1024;
const MAGIC: &[u8; 8] = b"HLNSCRC1";
/// Version of lists without a binding, of files that are in no run; read only.
const CHECKSUMS_VERSION_UNBOUND: u16 = 1;
/// Like version 1, with the run after the tokens; read only.
const CHECKSUMS_VERSION_UNBOUND_RUN: u16 = 2;
/// Version that is written: with a [`Binding`].
pub const CHECKSUMS_VERSION: u16 = 3;
/// Version of lists with attached components, with the lifecycle of each; otherwise as 3.
pub const CHECKSUMS_VERSION_ATTACHED: u16 = 4;
/// Longest identifier of a file set, bytes.
const ID_BYTES_MAX: usize = 64;

/// Identity of a file set: components of another one do not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Table that the file set was written for; nil when the writer did not know it.
    pub table: Uuid,
    /// Identifier in the file names: a number or a UUID.
    pub id: String,
    /// [`crate::Statistics::identity`] of Statistics.db, which is rewritten in place.
    pub statistics: u32,
}

/// Part of the ring that the file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageGroup {
    /// Shard for whose slice it was written; `None` when it may span slices.
    pub shard: Option<u16>,
    /// Shard count at that time.
    pub shard_count: u16,
    /// Token of the first partition.
    pub first: Token,
    /// Token of the last partition.
    pub last: Token,
    /// The run of incremental compaction that the file is a fragment of.
    pub run: Option<Uuid>,
}

/// Checksums of one component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentChecksum {
    /// The component.
    pub component: Component,
    /// Its length in bytes.
    pub length: u64,
    /// CRC32 of each block.
    pub blocks: Vec<u32>,
    /// Its lifecycle; [`Lifecycle::Essential`] for the fixed kinds.
    pub lifecycle: Lifecycle,
}

impl ComponentChecksum {
    /// Returns true if both are checksums of the same bytes of the same component.
    pub fn is_same_content(&self, other: &ComponentChecksum) -> bool {
        (self.component, self.length, &self.blocks)
            == (other.component, other.length, &other.blocks)
    }

    /// Checks a whole component.
    ///
    /// # Errors
    /// `Invalid` when the length differs, `Checksum` for the first block that differs.
    pub fn verify_all(&self, bytes: &[u8]) -> Result<()> {
        if bytes.len() as u64 != self.length {
            return Err(FormatError::Invalid {
                what: "the file does not have the length recorded in Checksums.db",
                offset: self.length.min(bytes.len() as u64),
            });
        }
        bytes.chunks(CHECKSUM_BLOCK).enumerate().try_for_each(|(i, b)| self.verify_block(i, b))
    }

    /// Checks one block by number.
    ///
    /// # Errors
    /// `Checksum`; `Invalid` for a block that does not exist.
    pub fn verify_block(&self, index: usize, bytes: &[u8]) -> Result<()> {
        let offset = (index as u64).saturating_mul(CHECKSUM_BLOCK as u64);
        let expected = *self
            .blocks
            .get(index)
            .ok_or(FormatError::Invalid { what: "no checksum for this block", offset })?;
        let found = crc32(bytes);
        if found == expected {
            return Ok(());
        }
        Err(FormatError::Checksum { what: "block", offset, expected, found })
    }
}

/// Takes in a component's bytes in pieces of any size.
#[derive(Clone, Debug)]
pub struct BlockChecksummer {
    length: u64,
    in_block: usize,
    crc: Crc32,
    blocks: Vec<u32>,
}

impl Default for BlockChecksummer {
    fn default() -> Self {
        BlockChecksummer { length: 0, in_block: 0, crc: Crc32::new(), blocks: Vec::new() }
    }
}

impl BlockChecksummer {
    /// The next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.length = self.length.saturating_add(bytes.len() as u64);
        while !bytes.is_empty() {
            let room = CHECKSUM_BLOCK.saturating_sub(self.in_block);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.crc.update(now);
            self.in_block = self.in_block.saturating_add(now.len());
            if self.in_block == CHECKSUM_BLOCK {
                self.blocks.push(self.crc.value());
                self.crc = Crc32::new();
                self.in_block = 0;
            }
            bytes = later;
        }
    }

    /// Ends the component.
    pub fn finish(mut self, component: Component) -> ComponentChecksum {
        if self.in_block > 0 {
            self.blocks.push(self.crc.value());
        }
        let lifecycle = Lifecycle::Essential;
        ComponentChecksum { component, length: self.length, blocks: self.blocks, lifecycle }
    }

    /// Checksums of a component that is in memory whole.
    pub fn of(component: Component, bytes: &[u8]) -> ComponentChecksum {
        let mut c = BlockChecksummer::default();
        c.update(bytes);
        c.finish(component)
    }
}

/// The whole component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksums {
    /// Part of the ring that the file holds.
    pub group: StorageGroup,
    /// `None` in lists of versions 1 and 2.
    pub binding: Option<Binding>,
    /// One entry for every other component of the SSTable.
    pub components: Vec<ComponentChecksum>,
}

impl Checksums {
    /// The entry of a component.
    pub fn component(&self, component: Component) -> Option<&ComponentChecksum> {
        self.components.iter().find(|c| c.component == component)
    }

    /// The attached components that it lists.
    pub fn attached(&self) -> impl Iterator<Item = AttachedName> {
        self.components.iter().filter_map(|listed| match listed.component {
            Component::Attached(name) => Some(name),
            _ => None,
        })
    }

    /// Gives a bound file set another name and table. One without a binding stays so.
    pub fn rebind(&mut self, table: Uuid, id: String) {
        if let Some(binding) = &mut self.binding {
            binding.table = table;
            binding.id = id;
        }
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_bytes(MAGIC);
        let has_attached = self.components.iter().any(|c| c.component.is_attached());
        stdx::invariant!(
            self.binding.is_some() || !has_attached,
            "checksum list: attached components without a binding"
        );
        out.put_u16(match (&self.binding, self.group.run) {
            (Some(_), _) if has_attached => CHECKSUMS_VERSION_ATTACHED,
            (Some(_), _) => CHECKSUMS_VERSION,
            (None, None) => CHECKSUMS_VERSION_UNBOUND,
            (None, Some(_)) => CHECKSUMS_VERSION_UNBOUND_RUN,
        });
        out.put_u32(CHECKSUM_BLOCK_U32);
        out.put_u8(u8::from(self.group.shard.is_some()));
        out.put_u16(self.group.shard.unwrap_or(0));
        out.put_u16(self.group.shard_count);
        out.put_i64(self.group.first.0);
        out.put_i64(self.group.last.0);
        if self.binding.is_some() {
            out.put_bool(self.group.run.is_some());
        }
        if let Some(run) = self.group.run {
            out.put_bytes(run.as_bytes());
        }
        if let Some(binding) = &self.binding {
            out.put_bytes(binding.table.as_bytes());
            out.put_u8(u8::try_from(binding.id.len()).unwrap_or(u8::MAX));
            out.put_bytes(binding.id.as_bytes());
            out.put_u32(binding.statistics);
        }
        out.put_u8(u8::try_from(self.components.len()).unwrap_or(u8::MAX));
        for c in &self.components {
            let name = c.component.file_name().as_bytes();
            out.put_u8(u8::try_from(name.len()).unwrap_or(u8::MAX));
            out.put_bytes(name);
            if c.component.is_attached() {
                out.put_u8(c.lifecycle.code());
            }
            out.put_u64(c.length);
            for crc in &c.blocks {
                out.put_u32(*crc);
            }
        }
        let crc = crc32(&out);
        out.put_u32(crc);
        out
    }

    /// Reads and checks the file.
    ///
    /// # Errors
    /// `Checksum` over the whole file first, then `Unsupported` for another version, `Invalid`.
    pub fn decode(bytes: &[u8]) -> Result<Checksums> {
        const WHAT: &str = "checksum list";
        let mut r = Reader::new(bytes, WHAT);
        let Some((covered, stored)) = bytes.split_last_chunk::<4>() else {
            r.skip(4)?;
            return Err(FormatError::Invalid { what: WHAT, offset: 0 });
        };
        let (expected, found) = (u32::from_be_bytes(*stored), crc32(covered));
        if expected != found {
            return Err(FormatError::Checksum { what: WHAT, offset: 0, expected, found });
        }
        r = Reader::new(covered, WHAT);
        if r.bytes(MAGIC.len())? != MAGIC {
            return Err(FormatError::Invalid { what: "not a checksum list", offset: 0 });
        }
        let version = r.u16()?;
        let block = r.u32()?;
        let is_known = matches!(
            version,
            CHECKSUMS_VERSION_UNBOUND
                | CHECKSUMS_VERSION_UNBOUND_RUN
                | CHECKSUMS_VERSION
                | CHECKSUMS_VERSION_ATTACHED
        );
        if !is_known || block != CHECKSUM_BLOCK_U32 {
            return Err(FormatError::Unsupported {
                what: "checksum list version",
                value: format!("{version}/{block}"),
            });
        }
        let has_shard = r.u8()? == 1;
        let shard = Some(r.u16()?).filter(|_| has_shard);
        let shard_count = r.u16()?;
        let (first, last) = (Token(r.i64()?), Token(r.i64()?));
        let has_run = match version {
            CHECKSUMS_VERSION | CHECKSUMS_VERSION_ATTACHED => r.bool()?,
            version => version == CHECKSUMS_VERSION_UNBOUND_RUN,
        };
        let run = if has_run { Some(Uuid::from_u128(r.u128()?)) } else { None };
        let binding = match version {
            CHECKSUMS_VERSION | CHECKSUMS_VERSION_ATTACHED => Some(decode_binding(&mut r)?),
            _ => None,
        };
        let mut components = Vec::new();
        for _ in 0..r.u8()? {
            components.push(decode_component(&mut r, version)?);
        }
        r.finish()?;
        let group = StorageGroup { shard, shard_count, first, last, run };
        Ok(Checksums { group, binding, components })
    }
}

fn decode_component(r: &mut Reader<'_>, version: u16) -> Result<ComponentChecksum> {
    let at = r.position() as u64;
    let n = usize::from(r.u8()?);
    let name = r.utf8(n)?;
    let component = match version {
        CHECKSUMS_VERSION_ATTACHED => Component::any_from_file_name(name),
        _ => Component::from_file_name(name),
    };
    let component =
        component.ok_or(FormatError::Invalid { what: "unknown component name", offset: at })?;
    let mut lifecycle = Lifecycle::Essential;
    if component.is_attached() {
        let offset = r.position() as u64;
        let invalid = FormatError::Invalid { what: "unknown lifecycle of a component", offset };
        lifecycle = Lifecycle::from_code(r.u8()?).ok_or(invalid)?;
    }
    let length = r.u64()?;
    let count = usize::try_from(length.div_ceil(CHECKSUM_BLOCK as u64))
        .map_err(|_| FormatError::TooLarge { what: "component" })?;
    let count = r.check_count(count, 4)?;
    let mut blocks = Vec::with_capacity(count);
    for _ in 0..count {
        blocks.push(r.u32()?);
    }
    Ok(ComponentChecksum { component, length, blocks, lifecycle })
}

fn decode_binding(r: &mut Reader<'_>) -> Result<Binding> {
    let table = Uuid::from_u128(r.u128()?);
    let (at, length) = (r.position() as u64, usize::from(r.u8()?));
    if length > ID_BYTES_MAX {
        return Err(FormatError::Invalid { what: "identifier of a file set too long", offset: at });
    }
    let id = r.utf8(length)?.to_owned();
    Ok(Binding { table, id, statistics: r.u32()? })
}

/// `CRC.db`: chunk length, then a CRC32 per chunk of the uncompressed Data file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataCrc {
    /// Bytes per checksum, as Cassandra writes it: 65,536.
    pub chunk_length: u32,
    /// Checksums.
    pub chunks: Vec<u32>,
}

impl DataCrc {
    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(self.chunk_length);
        for crc in &self.chunks {
            out.put_u32(*crc);
        }
        out
    }

    /// Reads the file.
    ///
    /// # Errors
    /// `Decode`, `Invalid` for a chunk length of 0 or above 1 GiB.
    pub fn decode(bytes: &[u8]) -> Result<DataCrc> {
        let mut r = Reader::new(bytes, "CRC.db");
        let chunk_length = r.u32()?;
        if chunk_length == 0 || chunk_length > 1 << 30 {
            return Err(FormatError::Invalid { what: "chunk length out of range", offset: 0 });
        }
        let mut chunks = Vec::with_capacity(r.remaining() / 4);
        while !r.is_empty() {
            chunks.push(r.u32()?);
        }
        Ok(DataCrc { chunk_length, chunks })
    }
}

/// The text of `Digest.crc32`.
pub fn encode_digest(crc: u32) -> Vec<u8> {
    crc.to_string().into_bytes()
}

/// Reads `Digest.crc32`.
///
/// # Errors
/// `Invalid` when it is not a decimal number of 32 bits.
pub fn decode_digest(bytes: &[u8]) -> Result<u32> {
    std::str::from_utf8(bytes)
        .ok()
        .and_then(|t| t.trim_end().parse().ok())
        .ok_or(FormatError::Invalid { what: "digest is not a number", offset: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_give_the_checksums_of_the_whole() {
        let bytes: Vec<u8> = (0..200_000u32).map(|i| (i * 7 % 251) as u8).collect();
        let whole = BlockChecksummer::of(Component::Data, &bytes);
        let mut pieces = BlockChecksummer::default();
        bytes.chunks(977).for_each(|c| pieces.update(c));
        assert_eq!(pieces.finish(Component::Data), whole);
        assert_eq!(whole.blocks.len(), 4);
        whole.verify_all(&bytes).unwrap();
        let mut bad = bytes.clone();
        bad[70_000] ^= 1;
        assert!(matches!(
            whole.verify_all(&bad),
            Err(FormatError::Checksum { offset: 65_536, .. })
        ));
        assert!(whole.verify_all(&bytes[..199_999]).is_err());
        assert!(BlockChecksummer::of(Component::Toc, &[]).blocks.is_empty());
    }

    #[test]
    fn a_list_comes_back_and_every_flip_is_seen() {
        let run = Some(Uuid::from_u128(0x0123_4567_89AB_CDEF_u128 << 60));
        let table = Uuid::from_u128(77);
        let binding = Some(Binding { table, id: "12".to_owned(), statistics: 0xDEAD_BEEF });
        for (run, binding, version) in
            [(None, None, 1), (run, None, 2), (None, binding.clone(), 3), (run, binding, 3)]
        {
            let (first, last) = (Token(-5), Token(9));
            let group = StorageGroup { shard: Some(3), shard_count: 8, first, last, run };
            let list = Checksums {
                group,
                binding,
                components: vec![
                    BlockChecksummer::of(Component::Data, &[7; 70_000]),
                    BlockChecksummer::of(Component::Toc, b"x"),
                ],
            };
            let bytes = list.encode();
            assert_eq!(Checksums::decode(&bytes).unwrap(), list);
            assert_eq!(bytes[8..10], [0, version]);
            for i in 0..bytes.len() {
                let mut bad = bytes.clone();
                bad[i] ^= 0x10;
                assert!(Checksums::decode(&bad).is_err(), "flip at {i}");
                assert!(Checksums::decode(&bytes[..i]).is_err(), "cut at {i}");
            }
        }
    }

    #[test]
    fn attached_components_take_version_4_with_their_lifecycles() {
        let group = StorageGroup {
            shard: None,
            shard_count: 1,
            first: Token(0),
            last: Token(1),
            run: None,
        };
        let binding = Binding { table: Uuid::nil(), id: "1".to_owned(), statistics: 7 };
        let data = BlockChecksummer::of(Component::Data, b"data");
        let plain = Checksums { group, binding: Some(binding), components: vec![data] };
        for lifecycle in Lifecycle::ALL {
            let mut list = plain.clone();
            let name = format!("Index+{}.db", lifecycle.code());
            let attached = Component::any_from_file_name(&name).unwrap();
            let sum = BlockChecksummer::of(attached, &[3; 70_000]);
            list.components.push(ComponentChecksum { lifecycle, ..sum });
            let bytes = list.encode();
            assert_eq!(bytes[8..10], [0, 4]);
            assert_eq!(Checksums::decode(&bytes).unwrap(), list);
            // An earlier version cannot have them, and a list without them is unchanged.
            let mut earlier = bytes[..bytes.len() - 4].to_vec();
            earlier[9] = 3;
            let crc = crc32(&earlier);
            earlier.put_u32(crc);
            let error = Checksums::decode(&earlier).unwrap_err();
            assert!(error.to_string().starts_with("unknown component name"), "{error}");
            list.components.pop();
            assert_eq!(list.encode(), plain.encode());
            assert_eq!(plain.encode()[8..10], [0, 3]);
        }
    }

    #[test]
    fn digest_and_crc_come_back() {
        assert_eq!(decode_digest(&encode_digest(u32::MAX)).unwrap(), u32::MAX);
        assert!(decode_digest(b"4294967296").is_err());
        let crc = DataCrc { chunk_length: 65_536, chunks: vec![1, 2] };
        assert_eq!(DataCrc::decode(&crc.encode()).unwrap(), crc);
        assert!(DataCrc::decode(&[0, 0, 0, 0]).is_err());
    }
}
