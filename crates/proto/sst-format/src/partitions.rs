//! `Partitions.db` and `Rows.db` of format BTI.
//!
//! Partitions: a trie from unique prefixes of keys to positions, then first and last key (u16
//! length), then three numbers of 8 bytes: where these keys begin, the count of keys, the root. A
//! payload is a byte of the key's hash (flag 8) and a signed number: `!position` in Data, or the
//! position of an entry of Rows.
//!
//! Rows: for each wide partition a trie from separators to blocks of rows, followed by an entry: key
//! (u16 length), position in Data vint, distance of the root zvint (from the end of the key), count of
//! blocks vint, deletion of the partition.
//! Source: `io.sstable.format.bti.{PartitionIndex,RowIndexReader,TrieIndexEntry}`.

use codec::{DecodeError, Reader, Writer};
use data::DeletionTime;

use crate::trie::{Node, Stop, signed_number};
use crate::trie_write::{PAYLOAD_BYTES_MAX, Payload};
use crate::{FormatError, Result, Version, put_deletion, read_deletion};

/// Bytes of the three numbers at the end.
const FOOTER_BYTES: usize = 24;
/// Most bytes that [`Footer::decode`] needs to see: two keys and the numbers.
pub const FOOTER_BYTES_MAX: usize = 2 * (2 + 65_535) + FOOTER_BYTES;
const HAS_HASH: u8 = 8;
const HAS_OPEN: u8 = 8;

/// The end of Partitions.db.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// First key of the file.
    pub first: Vec<u8>,
    /// Last key.
    pub last: Vec<u8>,
    /// Keys.
    pub count: u64,
    /// Position of the root.
    pub root: u64,
}

impl Footer {
    /// Reads it from the last bytes of a file of that length: all of it or
    /// [`FOOTER_BYTES_MAX`] at least.
    ///
    /// # Errors
    /// `Decode`, `Invalid`.
    pub fn decode(tail: &[u8], length: u64) -> Result<Footer> {
        let wrong = |what| FormatError::Invalid { what, offset: length };
        let before = length.saturating_sub(tail.len() as u64);
        let Some((head, numbers)) = tail.split_last_chunk::<FOOTER_BYTES>() else {
            return Err(wrong("the file is shorter than its footer"));
        };
        let mut r = Reader::new(numbers, "partition index footer");
        let (keys_at, count, root) = (r.u64()?, r.u64()?, r.u64()?);
        let keys = keys_at.checked_sub(before).and_then(|at| usize::try_from(at).ok());
        let Some(keys) = keys.and_then(|at| head.get(at..)) else {
            return Err(wrong("first and last key are not before the footer"));
        };
        let mut r = Reader::new(keys, "first and last key");
        let (first, last) = (r.bytes_u16()?.to_vec(), r.bytes_u16()?.to_vec());
        r.finish()?;
        if root >= keys_at || count == 0 {
            return Err(wrong("the partition index has no root before its keys"));
        }
        Ok(Footer { first, last, count, root })
    }

    /// Appends it after `position` bytes of trie.
    ///
    /// # Errors
    /// `TooLarge` for a key above 65,535 bytes.
    pub fn encode(&self, position: u64, out: &mut Vec<u8>) -> Result<()> {
        for key in [&self.first, &self.last] {
            out.put_bytes_u16(key, "partition key")
                .map_err(|_| FormatError::TooLarge { what: "partition key" })?;
        }
        for number in [position, self.count, self.root] {
            out.put_u64(number);
        }
        Ok(())
    }
}

/// Target of an entry of the partition index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To the partition, in Data.
    Data(u64),
    /// To its entry in Rows.
    Rows(u64),
}

/// The payload of a node of the partition index: the byte of the hash, if it has one, and where it
/// leads. `None`: no payload.
///
/// # Errors
/// `Damaged`.
pub fn partition_payload(
    node: &Node<'_>,
    position: u64,
) -> std::result::Result<Option<(Option<u8>, Target)>, Stop> {
    let damaged = Stop::Damaged(position);
    let mut bytes = node.payload();
    let (mut hash, mut width) = (None, usize::from(node.flags));
    if node.flags >= HAS_HASH {
        let (first, rest) = bytes.split_first().ok_or(damaged)?;
        (hash, bytes) = (Some(*first), rest);
        width = usize::from(node.flags & 7).saturating_add(1);
    }
    if width == 0 {
        return Ok(None);
    }
    let value = signed_number(bytes, width).ok_or(damaged)?;
    Ok(Some((
        hash,
        match u64::try_from(value) {
            Ok(position) => Target::Rows(position),
            Err(_) => Target::Data((!value).cast_unsigned()),
        },
    )))
}

/// The payload of a place of the partition index.
pub fn encode_target(hash: u8, target: Target) -> Payload {
    let value = match target {
        Target::Data(position) => !position.cast_signed(),
        Target::Rows(position) => position.cast_signed(),
    };
    let (number, width) = signed(value);
    let [a, b, c, d, e, f, g, h] = number;
    let flags = HAS_HASH | u8::try_from(width).unwrap_or(8).saturating_sub(1);
    Payload::of_first(flags, [hash, a, b, c, d, e, f, g, h], width.saturating_add(1))
}

/// The shortest suffix of a number's bytes that represents it, at least one byte, and its length.
fn signed(value: i64) -> ([u8; 8], usize) {
    let significant = 65u32.saturating_sub((value ^ (value >> 63)).leading_zeros());
    let width = significant.div_ceil(8).clamp(1, 8);
    let before = 64u32.saturating_sub(width.saturating_mul(8));
    (value.wrapping_shl(before).to_be_bytes(), width as usize)
}

/// The payload of a place of a row index. Offsets beyond 32 PiB do not exist.
pub fn encode_block(block: &RowBlock, version: Version) -> Payload {
    let (number, width) = signed(block.offset.cast_signed());
    let flags = u8::try_from(width).unwrap_or(8) & 7;
    let Some(open) = block.open.filter(|open| !open.is_live()) else {
        let [a, b, c, d, e, f, g, h] = number;
        return Payload::of_first(flags, [a, b, c, d, e, f, g, h, 0], width);
    };
    let number = number.get(..width).unwrap_or(&number);
    let mut bytes = Vec::with_capacity(PAYLOAD_BYTES_MAX);
    bytes.put_bytes(number);
    put_deletion(&mut bytes, &open, version);
    Payload::new(flags | HAS_OPEN, &bytes)
}

/// A block of rows: where it begins, from the partition's start, and the range deletion that is open
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowBlock {
    /// From the partition's start. The last place of a trie gives the end of the rows.
    pub offset: u64,
    /// Open at its begin.
    pub open: Option<DeletionTime>,
}

/// The payload of a node of a row index. `None`: no payload.
///
/// # Errors
/// `Damaged`.
pub fn row_payload(
    node: &Node<'_>,
    position: u64,
    version: Version,
) -> std::result::Result<Option<RowBlock>, Stop> {
    let damaged = Stop::Damaged(position);
    if node.flags == 0 {
        return Ok(None);
    }
    let bytes = node.payload();
    let width = usize::from(node.flags & !HAS_OPEN);
    let offset = signed_number(bytes, width).and_then(|n| u64::try_from(n).ok()).ok_or(damaged)?;
    let mut open = None;
    if node.flags & HAS_OPEN != 0 {
        let mut r = Reader::new(bytes.get(width..).unwrap_or(&[]), "open deletion");
        open = Some(read_deletion(&mut r, version).map_err(|_| damaged)?);
    }
    Ok(Some(RowBlock { offset, open: open.filter(|o| !o.is_live()) }))
}

/// An entry of Rows.db.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsEntry<'a> {
    /// Serialised partition key.
    pub key: &'a [u8],
    /// Position of the partition in Data (uncompressed).
    pub position: u64,
    /// Root of the trie of its rows.
    pub root: u64,
    /// Blocks of rows.
    pub blocks: u64,
    /// Deletion of the partition.
    pub deletion: DeletionTime,
}

impl<'a> RowsEntry<'a> {
    /// Reads the entry at the start of `bytes`, which lie at `at` in the file.
    ///
    /// # Errors
    /// `Truncated`: more bytes are needed; `Invalid`.
    pub fn decode(
        bytes: &'a [u8],
        at: u64,
        version: Version,
    ) -> std::result::Result<RowsEntry<'a>, DecodeError> {
        let mut r = Reader::new(bytes, "row index entry");
        let key = r.bytes_u16()?;
        let base = at.saturating_add(r.position() as u64);
        let position = r.vint_unsigned()?;
        let distance = r.vint_signed()?;
        let root = base.checked_add_signed(distance).filter(|root| *root < at);
        let root = root.ok_or_else(|| r.invalid(distance))?;
        let blocks = r.vint_unsigned()?;
        let deletion = read_deletion(&mut r, version)?;
        Ok(RowsEntry { key, position, root, blocks, deletion })
    }

    /// Appends the entry, which begins at `at` in the file.
    ///
    /// # Errors
    /// `TooLarge` for a key above 65,535 bytes.
    pub fn encode(&self, at: u64, version: Version, out: &mut Vec<u8>) -> Result<()> {
        out.put_bytes_u16(self.key, "partition key")
            .map_err(|_| FormatError::TooLarge { what: "partition key" })?;
        let base = at.saturating_add(2).saturating_add(self.key.len() as u64);
        out.put_vint_unsigned(self.position);
        out.put_vint_signed(self.root.cast_signed().wrapping_sub(base.cast_signed()));
        out.put_vint_unsigned(self.blocks);
        put_deletion(out, &self.deletion, version);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stdx::{DeletionSeconds, TimestampMicros};

    use super::*;
    use crate::trie_write::TrieWriter;

    const DELETION: DeletionTime = DeletionTime {
        timestamp: TimestampMicros(1_700_000_000_000_000),
        local: DeletionSeconds(3_000_000_000),
    };

    #[test]
    fn payloads_of_every_size_come_back() {
        for shift in 0..55 {
            let number = (1u64 << shift) | 1;
            for (target, open) in
                [(Target::Data(number), None), (Target::Rows(number), Some(DELETION))]
            {
                let mut out = Vec::new();
                let mut writer = TrieWriter::default();
                writer.add(b"", encode_target(7, target), 0, &mut out);
                let root = writer.finish(0, &mut out).unwrap();
                let node = Node::read(out.as_slice(), root).unwrap();
                assert_eq!(partition_payload(&node, root), Ok(Some((Some(7), target))));
                let block = RowBlock { offset: number, open };
                writer.add(b"", encode_block(&block, Version::Da), 0, &mut out);
                let root = writer.finish(0, &mut out).unwrap();
                let node = Node::read(out.as_slice(), root).unwrap();
                assert_eq!(row_payload(&node, root, Version::Da), Ok(Some(block)));
            }
        }
    }

    #[test]
    fn footers_and_entries_come_back_and_wrong_ones_are_refused() {
        let footer = Footer { first: b"first".to_vec(), last: vec![7; 300], count: 9, root: 77 };
        let mut file = vec![0; 100];
        footer.encode(100, &mut file).unwrap();
        let length = file.len() as u64;
        assert_eq!(Footer::decode(&file, length).unwrap(), footer);
        assert_eq!(Footer::decode(&file[50..], length).unwrap(), footer);
        assert!(Footer::decode(&file[150..], length).is_err());
        assert!(Footer::decode(&file[..file.len() - 1], length - 1).is_err());
        assert!(Footer::decode(&[], 0).is_err());
        let entry =
            RowsEntry { key: b"key", position: 1 << 40, root: 55, blocks: 3, deletion: DELETION };
        let mut out = Vec::new();
        entry.encode(1000, Version::Da, &mut out).unwrap();
        assert_eq!(RowsEntry::decode(&out, 1000, Version::Da).unwrap(), entry);
        assert!(RowsEntry::decode(&out, 20, Version::Da).is_err(), "the root lies before 0");
    }
}
