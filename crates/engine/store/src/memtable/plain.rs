//! Partitions of nothing but one row, which is all that most tables have, and where they lie.
//!
//! Such a partition is one run of bytes, which never changes: a second write of it makes a
//! [`super::PartitionVersion`] of it. Runs lie behind each other in chunks, so that to write one costs no
//! allocation, to give one back does not touch it, and whoever walks through them waits for memory once each.

use bytes::{BufMut, Bytes, BytesMut};
use data::{MutationRef, RowRef};

use super::entry::{self, EntryRef};

/// Bytes of the largest such partition: below it little of a chunk is left over at its end.
const PLAIN_BYTES_MAX: usize = 4096;
/// Bytes of the first chunk of a memtable. Each next one is as large as all before together.
const CHUNK_BYTES_MIN: usize = 8 << 10;
/// Bytes of the largest chunk. As long as a reader holds one partition of it, all of it stays.
const CHUNK_BYTES_MAX: usize = 256 << 10;
/// Accounted for a partition beside its bytes: its place in the map.
const PLAIN_OVERHEAD: usize = 96;

/// A partition of one row: length of the key, key, and the row as in [`entry::Entry`].
#[derive(Clone, Debug)]
pub(crate) struct Plain(Bytes);

impl Plain {
    fn split(&self) -> (&[u8], &[u8]) {
        let split = |bytes: &'_ [u8]| {
            let (length, _) = bytes.split_first_chunk()?;
            Some(2 + usize::from(u16::from_le_bytes(*length)))
        };
        let at = split(&self.0).unwrap_or(0);
        let (head, entry) = self.0.split_at_checked(at).unwrap_or((&[], &[]));
        (head.get(2..).unwrap_or(&[]), entry)
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.split().0
    }

    #[inline]
    pub(crate) fn entry(&self) -> EntryRef<'_> {
        EntryRef::of(self.split().1)
    }

    /// Loads it.
    #[inline]
    pub(super) fn touch(&self) -> u8 {
        entry::touch(&self.0)
    }

    /// Memory it accounts for.
    pub(super) fn memory_bytes(&self) -> usize {
        PLAIN_OVERHEAD + self.0.len()
    }
}

/// The chunks of one memtable. It has the one that is being filled; the others are kept by what lies in
/// them.
pub(super) struct Chunks {
    open: BytesMut,
    bytes: usize,
}

impl Chunks {
    pub(super) fn new() -> Chunks {
        Chunks { open: BytesMut::new(), bytes: 0 }
    }

    /// Puts a partition in; `None` when it is too large.
    #[inline]
    pub(super) fn put(&mut self, key: &[u8], clustering: &[u8], row: RowRef<'_>) -> Option<Plain> {
        let key_length = u16::try_from(key.len()).ok()?;
        let head = entry::short_head(clustering)?;
        let row = row.bytes();
        let bytes = 3 + key.len() + clustering.len() + row.len();
        if bytes > PLAIN_BYTES_MAX {
            return None;
        }
        if self.open.capacity() < bytes {
            let size = self.bytes.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
            self.bytes = self.bytes.saturating_add(size);
            self.open = BytesMut::with_capacity(size);
        }
        self.open.put_u16_le(key_length);
        self.open.extend_from_slice(key);
        self.open.put_u8(head);
        self.open.extend_from_slice(clustering);
        self.open.extend_from_slice(row);
        Some(Plain(self.open.split().freeze()))
    }
}

/// The only row of a mutation that has nothing else.
#[inline]
pub(super) fn only_row<'m>(mutation: &MutationRef<'m>) -> Option<(&'m [u8], RowRef<'m>)> {
    if !mutation.deletion.is_live() || mutation.static_row.is_some() {
        return None;
    }
    let mut rows = mutation.rows();
    let only = rows.next()?;
    (rows.next().is_none() && !rows.has_range_tombstones()).then_some(only)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_rows_of_every_length_are_what_they_were_and_large_ones_are_refused() {
        let mut chunks = Chunks::new();
        let mut kept = Vec::new();
        let lengths = [0, 1, 2, 7, 40, 253, 254, 255, 256, 1_000, 4_000, 4_093, 4_094, 70_000];
        let bytes: Vec<u8> = (0..70_000).map(|i| (i % 251) as u8).collect();
        for key in lengths {
            for clustering in lengths {
                for row in lengths {
                    let (key, clustering) = (&bytes[..key], &bytes[..clustering]);
                    let row = &bytes[70_000 - row..];
                    let put = chunks.put(key, clustering, RowRef::trusted(row));
                    let sum = 3 + key.len() + clustering.len() + row.len();
                    assert_eq!(put.is_some(), sum <= PLAIN_BYTES_MAX && clustering.len() < 255);
                    kept.extend(put.map(|plain| (plain, key, clustering, row)));
                }
            }
        }
        assert!(kept.len() > 300 && chunks.bytes > 2 * CHUNK_BYTES_MAX);
        for (plain, key, clustering, row) in kept {
            assert_eq!(plain.key(), key);
            let (found_clustering, found_row) = plain.entry().parts();
            assert_eq!((found_clustering, found_row.bytes()), (clustering, row));
        }
    }

    #[test]
    fn chunks_begin_small_and_have_no_more_than_twice_what_was_put_in_or_the_largest_one() {
        let mut chunks = Chunks::new();
        let mut put = 0;
        for i in 0..20_000 {
            let row = vec![7; i % 300];
            chunks.put(b"key", b"", RowRef::trusted(&row)).unwrap();
            put += 6 + row.len();
            assert!(chunks.bytes <= CHUNK_BYTES_MIN + 2 * put + CHUNK_BYTES_MAX.min(put));
            assert!(chunks.bytes >= put);
        }
    }
}
