//! Partitions of nothing but one row, which is all that most tables have, and where they lie.
//!
//! Such a partition is one run of bytes, which never changes: a second write turns it into a
//! [`super::PartitionVersion`]. Runs are stored one after the other in chunks. So writing one costs no
//! allocation, returning one does not touch it, and a scan waits for memory once for each.

use std::rc::Rc;

use bytes::{BufMut, Bytes, BytesMut};
use data::{MutationRef, RowRef};

use super::entry::{self, EntryRef};

/// Bytes of the largest such partition: below it little of a chunk is left over at its end.
const PLAIN_BYTES_MAX: usize = 4096;
/// Bytes of the first chunk of a memtable. Each next one is as large as all before together.
const CHUNK_BYTES_MIN: usize = 8 << 10;
/// Bytes of the largest chunk. As long as a reader holds one partition of it, all of it stays.
const CHUNK_BYTES_MAX: usize = 256 << 10;
/// Accounted for a partition beside its bytes: its entry in the map.
const PLAIN_OVERHEAD: usize = 48;
/// Segments that are dropped together.
const SEGMENTS_TOGETHER: usize = 4;

/// Bytes from which a segment is sealed when a reader wants data in it; of a smaller one it gets a
/// copy.
const SEGMENT_BYTES_MIN: usize = 4 << 10;

/// Where such a partition lies in the [`Chunks`] of its memtable.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlainAt {
    length: u16,
    segment: u32,
    at: u32,
}

/// A partition of one row that a reader holds: length of the key, key, and the row as in
/// [`entry::Entry`].
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    segment: Rc<Bytes>,
    place: PlainAt,
}

/// Key and row.
#[inline]
fn split(bytes: &[u8]) -> (&[u8], EntryRef<'_>) {
    let rest = bytes
        .split_first_chunk()
        .and_then(|(length, rest)| rest.split_at_checked(usize::from(u16::from_le_bytes(*length))));
    let (key, entry) = rest.unwrap_or((&[], &[]));
    (key, EntryRef::of(entry))
}

impl PlainAt {
    #[inline]
    fn of(self, segment: &[u8]) -> &[u8] {
        let at = self.at as usize;
        segment.get(at..at + usize::from(self.length)).unwrap_or(&[])
    }

    /// Memory it accounts for.
    pub(super) fn memory_bytes(self) -> usize {
        PLAIN_OVERHEAD + usize::from(self.length)
    }
}

impl Plain {
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        split(self.place.of(&self.segment)).0
    }

    #[inline]
    pub(crate) fn entry(&self) -> EntryRef<'_> {
        split(self.place.of(&self.segment)).1
    }

    /// Asks the processor to load it.
    #[inline]
    pub(super) fn prefetch(&self) {
        rt::prefetch(self.place.of(&self.segment));
    }
}

/// The chunks of one memtable, in segments: the bytes written to a chunk between two readers'
/// requests to hold some of it.
pub(super) struct Chunks {
    /// The segment that is being written, with the free room after it in its chunk.
    open: BytesMut,
    sealed: Vec<Rc<Bytes>>,
    bytes: usize,
}

impl Chunks {
    pub(super) fn new() -> Chunks {
        Chunks { open: BytesMut::new(), sealed: Vec::new(), bytes: 0 }
    }

    /// Puts a partition in; `None` when it is too large.
    #[inline]
    pub(super) fn put(
        &mut self,
        key: &[u8],
        clustering: &[u8],
        row: RowRef<'_>,
    ) -> Option<PlainAt> {
        let key_length = u16::try_from(key.len()).ok()?;
        let head = entry::short_head(clustering)?;
        let row = row.bytes();
        let bytes = 3 + key.len() + clustering.len() + row.len();
        if bytes > PLAIN_BYTES_MAX {
            return None;
        }
        let length = u16::try_from(bytes).ok()?;
        if self.open.capacity() - self.open.len() < bytes {
            self.seal();
            let size = self.bytes.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
            self.bytes = self.bytes.saturating_add(size);
            self.open = BytesMut::with_capacity(size);
        }
        let segment = u32::try_from(self.sealed.len()).ok()?;
        let at = u32::try_from(self.open.len()).ok()?;
        self.open.put_u16_le(key_length);
        self.open.extend_from_slice(key);
        self.open.put_u8(head);
        self.open.extend_from_slice(clustering);
        self.open.extend_from_slice(row);
        Some(PlainAt { length, segment, at })
    }

    fn seal(&mut self) {
        if !self.open.is_empty() {
            self.sealed.push(Rc::new(self.open.split().freeze()));
        }
    }

    #[inline]
    fn bytes_at(&self, place: PlainAt) -> &[u8] {
        place.of(self.sealed.get(place.segment as usize).map_or(&self.open, |sealed| sealed))
    }

    /// The key of a partition.
    #[inline]
    pub(super) fn key(&self, place: PlainAt) -> &[u8] {
        split(self.bytes_at(place)).0
    }

    /// Key and row of a partition.
    #[inline]
    pub(super) fn parts(&self, place: PlainAt) -> (&[u8], EntryRef<'_>) {
        split(self.bytes_at(place))
    }

    /// A partition to be held.
    #[inline]
    pub(super) fn hold(&mut self, place: PlainAt) -> Plain {
        if place.segment as usize == self.sealed.len() && self.open.len() >= SEGMENT_BYTES_MIN {
            self.seal();
        }
        match self.sealed.get(place.segment as usize) {
            Some(segment) => Plain { segment: segment.clone(), place },
            None => {
                let copy = Bytes::copy_from_slice(self.bytes_at(place));
                Plain { segment: Rc::new(copy), place: PlainAt { segment: 0, at: 0, ..place } }
            }
        }
    }

    /// Drops some segments; false when there are none left.
    pub(super) fn drop_some(&mut self) -> bool {
        self.open = BytesMut::new();
        self.sealed.truncate(self.sealed.len().saturating_sub(SEGMENTS_TOGETHER));
        !self.sealed.is_empty()
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
        let (mut kept, mut held) = (Vec::new(), Vec::new());
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
                    kept.extend(put.map(|place| (place, key, clustering, row)));
                    if let Some((place, ..)) = kept.last().filter(|_| kept.len() % 7 == 0) {
                        held.push((kept.len() - 1, chunks.hold(*place)));
                    }
                }
            }
        }
        assert!(kept.len() > 300 && chunks.bytes > 2 * CHUNK_BYTES_MAX);
        let check = |at: usize, found: (&[u8], EntryRef<'_>)| {
            let (_, key, clustering, row) = kept[at];
            let (found_clustering, found_row) = found.1.parts();
            assert_eq!((found.0, found_clustering, found_row.bytes()), (key, clustering, row));
        };
        assert!(chunks.sealed.len() > 20 && held.len() > 40);
        for (at, (place, ..)) in kept.iter().enumerate() {
            check(at, chunks.parts(*place));
            let plain = chunks.hold(*place);
            check(at, (plain.key(), plain.entry()));
        }
        while chunks.drop_some() {}
        for (at, plain) in held {
            check(at, (plain.key(), plain.entry()));
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
