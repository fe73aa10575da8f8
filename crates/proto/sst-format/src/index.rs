//! Index.db: one entry per partition, with the promoted index of its rows when it is wide.
//!
//! Entry: key (u16 length), Data position vint, promoted size vint, and when that is not 0: header
//! length vint, partition deletion (12 bytes), block count vint, the blocks, then the offset of
//! each block from the first as i32. Source: `io.sstable.format.big.RowIndexEntry`,
//! `io.sstable.IndexInfo`.

use codec::{DecodeError, Reader, Writer, token_of};
use data::DeletionTime;
use stdx::Token;

use crate::clustering::{ClusteringLengths, Prefix};
use crate::{FormatError, Result, Version, put_deletion, read_deletion};

/// Base of the width delta of a block.
const WIDTH_BASE: i64 = 64 * 1024;
/// Default size at which a block of the promoted index ends (`column_index_size`): half a chunk, so
/// that a slice skips some 4 KiB of rows at its start. Cassandra's is 64 KiB because it holds the
/// whole index of a partition in memory; here it is searched in the file.
pub const COLUMN_INDEX_SIZE: u64 = 8 * 1024;

/// One entry; positions relative to the bytes given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry<'a> {
    /// Serialised partition key.
    pub key: &'a [u8],
    /// Position of the partition in Data (uncompressed).
    pub position: u64,
    /// Offset of the promoted part.
    pub promoted_at: usize,
    /// Its length in bytes, 0 = none.
    pub promoted_length: usize,
}

impl<'a> IndexEntry<'a> {
    /// Returns the offset of the next entry.
    pub fn end(&self) -> usize {
        self.promoted_at.saturating_add(self.promoted_length)
    }

    /// Reads the entry at the start of `bytes`; the promoted part need not be there.
    ///
    /// # Errors
    /// `Truncated`: more bytes are needed, unless these are the last of the file.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> std::result::Result<IndexEntry<'a>, DecodeError> {
        let mut r = Reader::new(bytes, "index entry");
        let key = r.bytes_u16()?;
        let position = r.vint_unsigned()?;
        let promoted_length = r.vint_len()?;
        Ok(IndexEntry { key, position, promoted_at: r.position(), promoted_length })
    }
}

/// Returns the bytes of the leading entries with other keys than `key`. It counts only entries
/// whose key and numbers are complete and that end before the bytes do. A lookup skips some sixty
/// entries, so this decodes nothing that it does not need.
pub fn skip_other_keys(bytes: &[u8], key: &[u8]) -> usize {
    let last = key.last();
    let mut rest = bytes;
    while let Some((found, next)) = split_entry(rest) {
        if found.last() == last && found == key {
            break;
        }
        rest = next;
    }
    bytes.len().saturating_sub(rest.len())
}

/// The key of the entry at the start of `bytes`, and what follows the entry; `None` when it is cut.
#[inline]
fn split_entry(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, tail) = bytes.split_first_chunk::<2>()?;
    let (key, tail) = tail.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    // The leading ones of a vint's first byte are the number of bytes that follow it.
    let (first, tail) = tail.split_first()?;
    let tail = tail.get(first.leading_ones() as usize..)?;
    let next = match tail.split_first()? {
        (0, next) => next,
        (size @ 1..0x80, next) => next.get(usize::from(*size)..)?,
        _ => {
            let mut r = Reader::new(tail, "index entry");
            let size = r.vint_len().ok()?;
            r.skip(size).ok()?;
            r.peek_rest()
        }
    };
    Some((key, next))
}

/// Tokens and offsets of every 16th entry of `bytes`, the first one left out; `None` when the
/// entries do not end where the bytes do.
pub fn sample_entries(bytes: &[u8]) -> Option<Vec<(Token, u32)>> {
    let mut marks = Vec::new();
    let mut rest = bytes;
    let mut count = 0u32;
    while !rest.is_empty() {
        let (key, next) = split_entry(rest)?;
        if count > 0 && count.is_multiple_of(16) {
            let at = u32::try_from(bytes.len().saturating_sub(rest.len())).ok()?;
            marks.push((token_of(key), at));
        }
        count = count.saturating_add(1);
        rest = next;
    }
    marks.shrink_to_fit();
    Some(marks)
}

/// Header before the blocks of a promoted index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromotedHeader {
    /// Bytes from the partition's start to its first row or marker.
    pub header_length: u64,
    /// Deletion of the partition.
    pub deletion: DeletionTime,
    /// Number of blocks.
    pub blocks: usize,
    /// Bytes of this header itself.
    pub length: usize,
}

impl PromotedHeader {
    /// Most bytes that [`PromotedHeader::decode`] needs to see.
    pub const BYTES_MAX: usize = 9 + 12 + 9;

    /// Reads it at the start of the promoted part; `promoted_length` checks the block count.
    ///
    /// # Errors
    /// `Truncated`, `Invalid` when that many blocks cannot be there.
    pub fn decode(
        bytes: &[u8],
        promoted_length: usize,
        version: Version,
    ) -> std::result::Result<PromotedHeader, DecodeError> {
        let mut r = Reader::new(bytes, "promoted index");
        let header_length = r.vint_unsigned()?;
        let deletion = read_deletion(&mut r, version)?;
        let blocks = r.vint_len()?;
        let length = r.position();
        // Each block takes an offset of 4 bytes and at least 5 bytes itself.
        let needed = blocks.saturating_mul(9).saturating_add(length);
        if blocks == 0 || needed > promoted_length {
            return Err(r.invalid(i64::try_from(blocks).unwrap_or(i64::MAX)));
        }
        Ok(PromotedHeader { header_length, deletion, blocks, length })
    }
}

/// One block of a promoted index: rows and markers that lie together in Data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexInfo {
    /// First row or marker.
    pub first: Prefix,
    /// Last row or marker.
    pub last: Prefix,
    /// Offset of the block from the partition's start.
    pub offset: u64,
    /// Its bytes.
    pub width: u64,
    /// The range deletion that is open at its end.
    pub open: Option<DeletionTime>,
}

impl IndexInfo {
    /// Reads a block into this one, whose memory is reused.
    ///
    /// # Errors
    /// `Truncated`, `Invalid`.
    pub fn decode_into(
        &mut self,
        bytes: &[u8],
        lengths: &ClusteringLengths,
        version: Version,
    ) -> std::result::Result<usize, DecodeError> {
        let mut r = Reader::new(bytes, "promoted index block");
        Prefix::decode(&mut r, lengths, &mut self.first)?;
        Prefix::decode(&mut r, lengths, &mut self.last)?;
        self.offset = r.vint_unsigned()?;
        let width = r.vint_signed()?.saturating_add(WIDTH_BASE);
        self.width = u64::try_from(width).map_err(|_| r.invalid(width))?;
        self.open = match r.u8()? {
            0 => None,
            _ => Some(read_deletion(&mut r, version)?),
        };
        Ok(r.position())
    }

    /// Appends the block.
    ///
    /// # Errors
    /// `ValueLength`.
    pub fn encode(
        &self,
        lengths: &ClusteringLengths,
        version: Version,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.first.encode(lengths, out)?;
        self.last.encode(lengths, out)?;
        out.put_vint_unsigned(self.offset);
        out.put_vint_signed(self.width.cast_signed().wrapping_sub(WIDTH_BASE));
        out.put_bool(self.open.is_some());
        if let Some(open) = &self.open {
            put_deletion(out, open, version);
        }
        Ok(())
    }
}

/// Builds the promoted index of one partition; reused from partition to partition.
#[derive(Debug, Default)]
pub struct PromotedBuilder {
    blocks: Vec<u8>,
    offsets: Vec<u32>,
}

impl PromotedBuilder {
    /// Begins a partition.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.offsets.clear();
    }

    /// Blocks so far.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// No block so far.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Adds a block.
    ///
    /// # Errors
    /// `TooLarge` when the index of the partition passes 2 GiB; `ValueLength`.
    pub fn push(
        &mut self,
        info: &IndexInfo,
        lengths: &ClusteringLengths,
        version: Version,
    ) -> Result<()> {
        let offset = i32::try_from(self.blocks.len())
            .map_err(|_| FormatError::TooLarge { what: "promoted index" })?;
        self.offsets.push(offset.unsigned_abs());
        info.encode(lengths, version, &mut self.blocks)
    }

    /// Appends the index entry of the partition. A promoted index of one block is left out.
    ///
    /// # Errors
    /// `TooLarge`.
    pub fn encode_entry(
        &self,
        key: &[u8],
        position: u64,
        header_length: u64,
        deletion: &DeletionTime,
        version: Version,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        out.put_bytes_u16(key, "partition key")
            .map_err(|_| FormatError::TooLarge { what: "partition key" })?;
        out.put_vint_unsigned(position);
        if self.offsets.len() <= 1 {
            out.put_u8(0);
            return Ok(());
        }
        let mut stored = Vec::with_capacity(12);
        put_deletion(&mut stored, deletion, version);
        let fields = codec::vint_unsigned_len(header_length)
            .saturating_add(stored.len())
            .saturating_add(codec::vint_unsigned_len(self.offsets.len() as u64));
        let size = fields
            .saturating_add(self.blocks.len())
            .saturating_add(self.offsets.len().saturating_mul(4));
        if i32::try_from(size).is_err() {
            return Err(FormatError::TooLarge { what: "promoted index" });
        }
        out.put_vint_unsigned(size as u64);
        out.put_vint_unsigned(header_length);
        out.put_bytes(&stored);
        out.put_vint_unsigned(self.offsets.len() as u64);
        out.put_bytes(&self.blocks);
        for offset in &self.offsets {
            out.put_u32(*offset);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clustering::PrefixKind;
    use data::ClusteringBuf;
    use stdx::{DeletionSeconds, TimestampMicros};

    #[test]
    fn entries_of_other_keys_are_passed_over_up_to_the_key_or_a_cut() {
        let mut out = Vec::new();
        let mut starts = Vec::new();
        let keys: Vec<Vec<u8>> = (0..40u8)
            .map(|i| vec![7; usize::from(i % 5)].into_iter().chain([i]).collect())
            .collect();
        for (i, key) in keys.iter().enumerate() {
            starts.push(out.len());
            out.put_bytes_u16(key, "key").unwrap();
            out.put_vint_unsigned(1u64 << i);
            let promoted = [0, 1, 127, 128, 300][i % 5];
            out.put_vint_unsigned(promoted as u64);
            out.resize(out.len() + promoted, 0xAA);
        }
        for (key, start) in keys.iter().zip(&starts) {
            assert_eq!(skip_other_keys(&out, key), *start);
        }
        assert_eq!(skip_other_keys(&out, b"none"), out.len());
        // Truncated anywhere: only whole entries are skipped, and all of them.
        for cut in 0..out.len() {
            let whole = starts.iter().rev().find(|s| **s <= cut).copied();
            assert_eq!(Some(skip_other_keys(&out[..cut], b"none")), whole, "{cut}");
            assert_eq!(sample_entries(&out[..cut]).is_some(), starts.contains(&cut), "{cut}");
        }
        let marks: Vec<_> =
            [16, 32].iter().map(|i| (token_of(&keys[*i]), starts[*i] as u32)).collect();
        assert_eq!(sample_entries(&out), Some(marks));
    }

    #[test]
    fn an_entry_with_blocks_comes_back_and_one_block_is_left_out() {
        for version in [Version::Ma, Version::Nb, Version::Oa] {
            entry_comes_back(version);
        }
    }

    fn entry_comes_back(version: Version) {
        let lengths = [Some(4)];
        let deletion =
            DeletionTime { timestamp: TimestampMicros(5), local: DeletionSeconds(1_600_000_000) };
        let info = |n: u8, open| IndexInfo {
            first: Prefix {
                kind: PrefixKind::Clustering,
                values: ClusteringBuf::from_components([&[0, 0, 0, n][..]]).0,
            },
            last: Prefix { kind: PrefixKind::InclusiveEnd, values: Vec::new() },
            offset: u64::from(n) * 70_000,
            width: 70_000,
            open,
        };
        let mut builder = PromotedBuilder::default();
        builder.push(&info(0, None), &lengths, version).unwrap();
        let mut out = Vec::new();
        builder.encode_entry(b"key", 77, 20, &deletion, version, &mut out).unwrap();
        let entry = IndexEntry::decode(&out).unwrap();
        assert_eq!((entry.key, entry.position, entry.end()), (&b"key"[..], 77, out.len()));
        assert_eq!(entry.promoted_length, 0);

        builder.push(&info(1, Some(deletion)), &lengths, version).unwrap();
        out.clear();
        builder.encode_entry(b"key", 77, 20, &deletion, version, &mut out).unwrap();
        let entry = IndexEntry::decode(&out).unwrap();
        assert_eq!(entry.end(), out.len());
        let promoted = &out[entry.promoted_at..];
        let header = PromotedHeader::decode(promoted, entry.promoted_length, version).unwrap();
        assert_eq!((header.header_length, header.deletion, header.blocks), (20, deletion, 2));
        let mut back = IndexInfo::default();
        let n = back.decode_into(&promoted[header.length..], &lengths, version).unwrap();
        assert_eq!(back, info(0, None));
        back.decode_into(&promoted[header.length + n..], &lengths, version).unwrap();
        assert_eq!(back, info(1, Some(deletion)));
        let offsets = &out[out.len() - 8..];
        assert_eq!(offsets, [0, 0, 0, 0, 0, 0, 0, n as u8]);
        assert!(PromotedHeader::decode(promoted, 20, version).is_err());
    }
}
