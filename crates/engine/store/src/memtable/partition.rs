//! One version of a partition in a memtable.

use data::{
    DeletionTime, Keep, Merged, MutationRef, RangeTombstoneList, RowRef, TableShape, merge_rows,
};
use stdx::Token;

use super::entry::{Entry, EntryRef};
use super::held::Partition;
use super::key::Key;
use super::rows::Rows;
use super::{Notes, note_oldest, note_timestamp};

/// Accounted for a partition beside its rows: its places in the map and its own fields.
const PARTITION_OVERHEAD: usize = 200;

/// Content of a partition. Immutable while a reader holds it: the writer changes it only when it
/// is the sole owner (INV-memtable-1).
#[derive(Clone, Debug)]
pub(crate) struct PartitionVersion {
    pub(crate) token: Token,
    pub(crate) key: Key,
    pub(crate) deletion: DeletionTime,
    pub(crate) static_row: Option<Box<[u8]>>,
    pub(crate) rows: Rows,
    pub(crate) tombstones: RangeTombstoneList,
}

// With the counts of an `Rc` it takes 128 bytes, which is a size that allocators have.
const _: () = assert!(size_of::<PartitionVersion>() <= 112);

impl PartitionVersion {
    pub(crate) fn new(token: Token, key: Key) -> PartitionVersion {
        PartitionVersion {
            token,
            key,
            deletion: DeletionTime::LIVE,
            static_row: None,
            rows: Rows::None,
            tombstones: RangeTombstoneList::new(),
        }
    }

    /// A partition of one row, to be changed.
    pub(super) fn of_plain(token: Token, key: &[u8], entry: EntryRef<'_>) -> PartitionVersion {
        let mut version = PartitionVersion::new(token, key.into());
        let (clustering, row) = entry.parts();
        version.put_row(clustering, row);
        version
    }

    pub(crate) fn overhead(key: &[u8]) -> usize {
        PARTITION_OVERHEAD + key.len()
    }

    pub(crate) fn static_row(&self) -> Option<RowRef<'_>> {
        self.static_row.as_deref().map(RowRef::trusted)
    }

    /// Loads the data that a scan reads first: the key and the first row.
    #[inline]
    pub(crate) fn touch(&self) -> u8 {
        let key = self.key.first().copied().unwrap_or(0);
        self.rows.view().touch().wrapping_add(key)
    }

    /// Loads the key alone.
    #[inline]
    pub(crate) fn touch_key(&self) -> u8 {
        self.key.first().copied().unwrap_or(0)
    }

    /// Memory it accounts for.
    pub(crate) fn memory_bytes(&self) -> usize {
        Self::overhead(&self.key)
            + self.static_row.as_ref().map_or(0, |r| r.len() + 16)
            + self.rows.iter().map(Entry::memory_bytes).sum::<usize>()
            + self.tombstones.heap_bytes()
    }

    /// Merges a mutation in; returns the change of memory. `scratch` is overwritten, `oldest` becomes the
    /// smallest timestamp of it and of all that the mutation has.
    pub(crate) fn apply(
        &mut self,
        shape: &TableShape,
        mutation: &MutationRef<'_>,
        notes: Notes<'_>,
    ) -> isize {
        let Notes { scratch, oldest } = notes;
        if !mutation.deletion.is_live() {
            note_timestamp(oldest, mutation.deletion.timestamp);
            self.deletion = self.deletion.max(mutation.deletion);
        }
        let mut delta = 0;
        if let Some(row) = mutation.static_row {
            note_oldest(oldest, row);
            delta += self.apply_static(shape, row, scratch);
        }
        let mut rows = mutation.rows();
        for (clustering, row) in &mut rows {
            note_oldest(oldest, row);
            delta += self.apply_row(shape, clustering, row, scratch);
        }
        if rows.has_range_tombstones() {
            for tombstone in mutation.range_tombstones() {
                note_timestamp(oldest, tombstone.deletion.timestamp);
                delta += self.tombstones.add(shape.clustering(), tombstone);
            }
        }
        delta
    }

    fn apply_static(
        &mut self,
        shape: &TableShape,
        row: RowRef<'_>,
        scratch: &mut Vec<u8>,
    ) -> isize {
        let Some(old) = self.static_row() else {
            self.static_row = Some(row.bytes().into());
            return signed(row.bytes().len() + 16);
        };
        scratch.clear();
        let outcome = merge_rows(shape, &[old, row], DeletionTime::LIVE, Keep::All, scratch);
        let merged = match outcome.row {
            Merged::Nothing | Merged::Source(0) => return 0,
            Merged::Source(_) => row.bytes(),
            Merged::Built => scratch.as_slice(),
        };
        let before = signed(old.bytes().len());
        self.static_row = Some(merged.into());
        signed(merged.len()) - before
    }

    fn apply_row(
        &mut self,
        shape: &TableShape,
        clustering: &[u8],
        row: RowRef<'_>,
        scratch: &mut Vec<u8>,
    ) -> isize {
        match self.rows.view().find(shape.clustering(), clustering) {
            Err(place) => {
                let entry = Entry::new(clustering, row);
                let bytes = entry.memory_bytes();
                self.rows.insert(place, entry);
                signed(bytes)
            }
            Ok(place) => {
                let Some(old) = self.rows.view().get(place) else { return 0 };
                scratch.clear();
                let outcome =
                    merge_rows(shape, &[old.row(), row], DeletionTime::LIVE, Keep::All, scratch);
                let merged = match outcome.row {
                    Merged::Nothing | Merged::Source(0) => return 0,
                    Merged::Source(_) => row,
                    Merged::Built => RowRef::trusted(scratch),
                };
                let before = signed(old.memory_bytes());
                // The existing one stays: an equal one may be encoded differently. Source:
                // `Rows.merge`.
                let entry = Entry::new(old.clustering(), merged);
                let after = signed(entry.memory_bytes());
                self.rows.replace(place, entry);
                after - before
            }
        }
    }

    /// Puts a static row into a partition that has none; returns its memory.
    pub(crate) fn put_static(&mut self, row: RowRef<'_>) -> usize {
        self.static_row = Some(row.bytes().into());
        row.bytes().len() + 16
    }

    /// Appends a row after all others; returns its memory.
    pub(crate) fn put_row(&mut self, clustering: &[u8], row: RowRef<'_>) -> usize {
        let entry = Entry::new(clustering, row);
        let bytes = entry.memory_bytes();
        self.rows.push(entry);
        bytes
    }

    /// Merges newer content of the same partition in.
    pub(crate) fn absorb_partition(
        &mut self,
        shape: &TableShape,
        newer: &Partition,
        scratch: &mut Vec<u8>,
    ) {
        match newer {
            Partition::Plain(_, plain) => {
                let (clustering, row) = plain.entry().parts();
                self.apply_row(shape, clustering, row, scratch);
            }
            Partition::Version(newer) => self.absorb(shape, newer, scratch),
        }
    }

    /// Merges a newer version of the same partition in.
    pub(crate) fn absorb(
        &mut self,
        shape: &TableShape,
        newer: &PartitionVersion,
        scratch: &mut Vec<u8>,
    ) {
        self.deletion = self.deletion.max(newer.deletion);
        if let Some(row) = newer.static_row() {
            self.apply_static(shape, row, scratch);
        }
        for entry in newer.rows.iter() {
            self.apply_row(shape, entry.clustering(), entry.row(), scratch);
        }
        for range in newer.tombstones.iter() {
            self.tombstones.add(shape.clustering(), range.as_ref());
        }
    }
}

fn signed(n: usize) -> isize {
    isize::try_from(n).unwrap_or(isize::MAX)
}
