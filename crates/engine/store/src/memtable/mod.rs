//! Memtables: the newest writes of a table, sorted, in memory.
//!
//! Owns: partitions by (token, key), their version chains, accounted bytes. Never: durability.
//!
//! INV-memtable-1: a [`PartitionVersion`] is changed only when no reader holds it; else the write goes
//! to a new version after it. A reader that waits for the disk thus sees a mutation whole or not at
//! all. Versions fold when a write or read finds that no reader holds them any more. A partition of one
//! row ([`plain`]) is never changed.

mod cursor;
mod entry;
mod held;
pub(crate) mod hidden_cells;
mod indexes;
mod key;
mod partition;
mod plain;
mod rows;
mod slot;
mod vectors;
mod view;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque, btree_map};
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

use commitlog::LogPosition;
use data::command::RingBound;
use data::{MutationRef, RowRef, TableShape};
use index_format::{MemtableIndex, RowKey, TableIndexes};
use smallvec::SmallVec;
use stdx::{TimestampMicros, Token, Uuid};

pub(crate) use cursor::{MemtableScan, PartitionCursor};
pub(crate) use entry::EntryRef;
pub(crate) use held::{Held, Partition};
use indexes::MemtableIndexes;
pub(crate) use key::Key;
pub(crate) use partition::PartitionVersion;
use plain::{Chunks, only_row};
use slot::{Slot, Versions, key_of};
pub(crate) use vectors::MemtableVectors;
pub(crate) use view::RowsFrom;

/// Items that are written between two checks of the clock: some 20 us, small against a turn.
pub(crate) const ITEMS_PER_LOOK: usize = 32;

/// See the module.
pub(crate) struct Memtable {
    map: RefCell<BTreeMap<i64, Slot>>,
    chunks: RefCell<Chunks>,
    bytes: Cell<usize>,
    partitions: Cell<usize>,
    mutations: Cell<u64>,
    /// Smallest timestamp of all writes to it, including overwritten ones.
    oldest: Cell<Option<TimestampMicros>>,
    /// The first and last mutation in it, in the commit log; `None` when none of it is logged.
    first_position: Cell<Option<LogPosition>>,
    /// Holds mutations from segments of earlier runs.
    replayed: Cell<bool>,
    /// Memory of partitions that an earlier flush could not write, see [`crate::write::unflushable`].
    refused: Cell<usize>,
    /// May have cells of columns that were dropped and not added again.
    hiding: Cell<bool>,
    /// Index entries of its rows; `None`: its table had no index when it became active.
    indexes: RefCell<Option<Box<MemtableIndexes>>>,
}

impl Memtable {
    pub(crate) fn new() -> Memtable {
        Memtable {
            map: RefCell::new(BTreeMap::new()),
            chunks: RefCell::new(Chunks::new()),
            bytes: Cell::new(0),
            partitions: Cell::new(0),
            mutations: Cell::new(0),
            oldest: Cell::new(None),
            first_position: Cell::new(None),
            replayed: Cell::new(false),
            refused: Cell::new(0),
            hiding: Cell::new(false),
            indexes: RefCell::default(),
        }
    }

    /// Gives a memtable without rows the indexes of its table.
    pub(crate) fn begin_indexes(&self, indexes: &Rc<TableIndexes>) {
        let mut own = self.indexes.borrow_mut();
        if own.is_none() && self.is_empty() {
            *own = Some(Box::new(MemtableIndexes::new(indexes.clone())));
        }
    }

    /// Enters the rows of a mutation into the indexes. Returns the bytes by which accounted memory grew.
    pub(crate) fn index(&self, token: Token, mutation: &MutationRef<'_>) -> usize {
        let mut indexes = self.indexes.borrow_mut();
        let grown = indexes.as_mut().map_or(0, |indexes| indexes.insert(token, mutation));
        self.bytes.set(self.bytes.get().saturating_add(grown));
        grown
    }

    /// Runs `f` on the index of that id. `None`: the memtable has rows that are not in it.
    pub(crate) fn with_index<R>(
        &self,
        id: Uuid,
        f: impl FnOnce(&MemtableIndex<Arc<RowKey>>) -> R,
    ) -> Option<R> {
        self.indexes.borrow().as_ref()?.terms(id).map(f)
    }

    /// Runs `f` on the vectors of the index of that id. `None`: the memtable has rows that are not in it.
    pub(crate) fn with_vectors<R>(
        &self,
        id: Uuid,
        f: impl FnOnce(&MemtableVectors) -> R,
    ) -> Option<R> {
        self.indexes.borrow().as_ref()?.vectors(id).map(f)
    }

    pub(crate) fn is_replayed(&self) -> bool {
        self.replayed.get()
    }

    pub(crate) fn set_replayed(&self) {
        self.replayed.set(true);
    }

    /// The smallest timestamp of the writes to it; `None`: no write had one.
    pub(crate) fn min_timestamp(&self) -> Option<TimestampMicros> {
        self.oldest.get()
    }

    /// Takes over where another memtable's first mutation lies in the log, and whether it was replayed.
    pub(crate) fn keep_position_of(&self, other: &Memtable) {
        let (own, others) = (self.first_position.get(), other.first_position.get());
        self.first_position.set(own.into_iter().chain(others).min());
        self.replayed.set(self.replayed.get() || other.replayed.get());
    }

    /// Removes the partitions of chosen tokens.
    pub(crate) fn remove_where(&self, gone: impl Fn(Token) -> bool) {
        let mut map = self.map.borrow_mut();
        map.retain(|token, _| !gone(Token(*token)));
        self.partitions.set(map.values().map(Slot::count).sum());
        let indexed = self.indexes.borrow().as_ref().map_or(0, |indexes| indexes.bytes());
        let rows: usize = map.values().map(Slot::memory_bytes).sum();
        self.bytes.set(rows + indexed);
    }

    /// Takes everything out, to be dropped in steps: see [`Leftovers`].
    pub(crate) fn into_leftovers(self) -> Leftovers {
        Leftovers {
            slots: self.map.into_inner().into_values(),
            chunks: self.chunks.into_inner(),
            indexes: self.indexes.into_inner(),
        }
    }

    /// Memory of partitions that an earlier flush could not write.
    pub(crate) fn refused_bytes(&self) -> usize {
        self.refused.get().min(self.bytes.get())
    }

    /// Adds bytes of partitions that a flush could not write.
    pub(crate) fn add_refused(&self, bytes: usize) {
        self.refused.set(self.refused.get().saturating_add(bytes));
    }

    /// Returns true if it may have cells of hidden columns.
    pub(crate) fn may_hide(&self) -> bool {
        self.hiding.get()
    }

    /// A column may have been dropped since something was written to it.
    pub(crate) fn note_altered(&self) {
        self.hiding.set(self.hiding.get() || !self.is_empty());
    }

    /// Accounted memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    pub(crate) fn partition_count(&self) -> usize {
        self.partitions.get()
    }

    pub(crate) fn mutation_count(&self) -> u64 {
        self.mutations.get()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.partitions.get() == 0
    }

    /// Where in the commit log its first mutation lies.
    pub(crate) fn first_position(&self) -> Option<LogPosition> {
        self.first_position.get()
    }

    /// Merges a mutation in. `position` is its position in the log, `None` when it was not logged.
    /// Returns the change of accounted memory.
    pub(crate) fn apply(
        &self,
        shape: &TableShape,
        token: Token,
        mutation: &MutationRef<'_>,
        position: Option<LogPosition>,
        scratch: &mut Vec<u8>,
    ) -> isize {
        if self.first_position.get().is_none() {
            self.first_position.set(position);
        }
        if shape.hides() && !self.hiding.get() && has_hidden(shape, mutation) {
            self.hiding.set(true);
        }
        let shape = shape.stored();
        self.mutations.set(self.mutations.get() + 1);
        let mut map = self.map.borrow_mut();
        let mut more = 0;
        let notes = Notes { scratch, oldest: &self.oldest };
        let delta = match map.entry(token.0) {
            btree_map::Entry::Vacant(place) => {
                let row = only_row(mutation);
                let plain = row.and_then(|(clustering, row)| {
                    self.chunks.borrow_mut().put(mutation.key, clustering, row)
                });
                if let (Some(at), Some((_, row))) = (plain, row) {
                    note_oldest(&self.oldest, row);
                    let bytes = at.memory_bytes();
                    place.insert(Slot::Plain(at));
                    self.partitions.set(self.partitions.get() + 1);
                    self.bytes.set(self.bytes.get().saturating_add(bytes));
                    return isize::try_from(bytes).unwrap_or(isize::MAX);
                }
                let mut version = PartitionVersion::new(token, mutation.key.into());
                let bytes = version.apply(shape, mutation, notes);
                place.insert(Slot::One(Rc::new(version)));
                self.added(mutation.key) + bytes
            }
            btree_map::Entry::Occupied(mut place) => {
                let slot = place.get_mut();
                let chunks = self.chunks.borrow();
                if let Slot::Plain(at) = slot
                    && chunks.key(*at) == mutation.key
                {
                    // The part that readers hold is not changed. Its memory is accounted for until
                    // the flush.
                    let version = {
                        let (key, entry) = chunks.parts(*at);
                        PartitionVersion::of_plain(token, key, entry)
                    };
                    more = isize::try_from(version.memory_bytes()).unwrap_or(isize::MAX);
                    *slot = Slot::One(Rc::new(version));
                }
                let delta = match slot.only_mut(mutation.key) {
                    Some(version) => version.apply(shape, mutation, notes),
                    None => self.apply_beside(slot, shape, token, mutation, notes),
                };
                delta.saturating_add(more)
            }
        };
        drop(map);
        let bytes = self.bytes.get().saturating_add_signed(delta);
        self.bytes.set(bytes);
        delta
    }

    /// One more partition: the memory of its key.
    fn added(&self, key: &[u8]) -> isize {
        self.partitions.set(self.partitions.get() + 1);
        isize::try_from(PartitionVersion::overhead(key)).unwrap_or(isize::MAX)
    }

    /// [`Memtable::apply`] where the token has other partitions, or a reader holds versions.
    fn apply_beside(
        &self,
        slot: &mut Slot,
        shape: &TableShape,
        token: Token,
        mutation: &MutationRef<'_>,
        notes: Notes<'_>,
    ) -> isize {
        let Some(partitions) = slot.partitions(token, &self.chunks.borrow()) else { return 0 };
        let mut delta = 0;
        let versions = match partitions.iter().position(|v| key_of(v) >= mutation.key) {
            Some(i) if partitions.get(i).is_some_and(|v| key_of(v) == mutation.key) => {
                partitions.get_mut(i)
            }
            other => {
                let i = other.unwrap_or(partitions.len());
                let version = PartitionVersion::new(token, mutation.key.into());
                partitions.insert(i, Versions::from_elem(Rc::new(version), 1));
                delta += self.added(mutation.key);
                partitions.get_mut(i)
            }
        };
        if let Some(versions) = versions {
            if versions.len() > 1 {
                fold(shape, versions, notes.scratch);
            }
            delta += write(shape, versions, mutation, notes);
        }
        delta
    }

    /// The versions of a partition.
    pub(crate) fn get(&self, token: Token, key: &[u8]) -> Option<Held> {
        self.map.borrow().get(&token.0)?.get(token, key, &mut self.chunks.borrow_mut())
    }

    /// The next partitions after a position of the ring, at most `count`, appended to `out`: each
    /// with its versions folded into one (a private copy when readers hold some). None is appended
    /// only when there is none.
    pub(crate) fn next_after(
        &self,
        shape: &TableShape,
        start: &RingBound,
        count: usize,
        out: &mut VecDeque<Partition>,
    ) {
        let shape = shape.stored();
        let mut map = self.map.borrow_mut();
        let from = match start {
            RingBound::Token { token, after: false } => Bound::Included(token.0),
            RingBound::Token { token, after: true } => Bound::Excluded(token.0),
            RingBound::Key { token, .. } => Bound::Included(token.0),
        };
        let enough = out.len().saturating_add(count);
        let mut chunks = self.chunks.borrow_mut();
        let mut scratch = Vec::new();
        for (&here, slot) in map.range_mut((from, Bound::Unbounded)) {
            // Keys are compared under one token only: they lie where nothing else is needed yet.
            let bound = match start {
                RingBound::Key { token, key, after } if here == token.0 => Some((key, *after)),
                _ => None,
            };
            match slot {
                Slot::Plain(_) | Slot::One(_) if out.len() >= enough => return,
                Slot::Plain(at)
                    if bound.is_some_and(|(b, after)| is_before(chunks.key(*at), b, after)) => {}
                Slot::Plain(at) => out.push_back(Partition::Plain(Token(here), chunks.hold(*at))),
                Slot::One(only)
                    if bound.is_some_and(|(b, after)| is_before(&only.key, b, after)) => {}
                Slot::One(only) => out.push_back(Partition::Version(only.clone())),
                Slot::More(partitions) => {
                    for versions in partitions.iter_mut() {
                        if out.len() >= enough {
                            return;
                        }
                        if !bound.is_some_and(|(b, after)| is_before(key_of(versions), b, after)) {
                            let folded = folded(shape, versions, &mut scratch);
                            out.extend(folded.map(Partition::Version));
                        }
                    }
                }
            }
        }
    }
}

/// Content of a discarded memtable. Dropping all of it at once would block the shard for as long as
/// it took to write.
pub(crate) struct Leftovers {
    slots: btree_map::IntoValues<i64, Slot>,
    chunks: Chunks,
    indexes: Option<Box<MemtableIndexes>>,
}

impl Leftovers {
    /// Partitions that are dropped together: see [`Leftovers::drop_some`].
    const TOGETHER: usize = 32;

    /// Drops some partitions; false when there is nothing left.
    pub(crate) fn drop_some(&mut self) -> bool {
        let some: SmallVec<[Slot; Leftovers::TOGETHER]> =
            self.slots.by_ref().take(Leftovers::TOGETHER).collect();
        // They lie all over the memory. Loads that do not depend on each other overlap.
        let touched = some.iter().map(Slot::touch);
        std::hint::black_box(touched.fold(0, u8::wrapping_add));
        let indexes = self.indexes.as_mut();
        !some.is_empty()
            || self.chunks.drop_some()
            || indexes.is_some_and(|indexes| indexes.drop_some(Leftovers::TOGETHER))
    }
}

fn is_before(key: &[u8], bound: &[u8], after: bool) -> bool {
    key < bound || (after && key == bound)
}

/// Returns true if a mutation has cells of hidden columns.
#[cold]
fn has_hidden(shape: &TableShape, mutation: &MutationRef<'_>) -> bool {
    let is_hidden = |row: RowRef<'_>| hidden_cells::cells(shape, row).next().is_some();
    mutation.static_row.is_some_and(is_hidden) || mutation.rows().any(|(_, row)| is_hidden(row))
}

/// State of a write beside the partition: a buffer that is overwritten, and the smallest timestamp
/// so far.
pub(super) struct Notes<'a> {
    pub(super) scratch: &'a mut Vec<u8>,
    pub(super) oldest: &'a Cell<Option<TimestampMicros>>,
}

/// `oldest` becomes the smallest timestamp so far.
#[inline]
fn note_oldest(oldest: &Cell<Option<TimestampMicros>>, row: RowRef<'_>) {
    if let Some(least) = row.min_timestamp() {
        note_timestamp(oldest, least);
    }
}

/// The same of anything else that was written.
#[inline]
fn note_timestamp(oldest: &Cell<Option<TimestampMicros>>, at: TimestampMicros) {
    oldest.set(Some(oldest.get().map_or(at, |so_far| so_far.min(at))));
}

/// A partition's content as one version; `None` when there is no version.
fn folded(
    shape: &TableShape,
    versions: &mut Versions,
    scratch: &mut Vec<u8>,
) -> Option<Rc<PartitionVersion>> {
    if versions.len() > 1 {
        fold(shape, versions, scratch);
    }
    if let [only] = versions.as_slice() {
        return Some(only.clone());
    }
    let mut all = versions.iter();
    let mut copy = PartitionVersion::clone(all.next()?);
    for newer in all {
        copy.absorb(shape, newer, scratch);
    }
    Some(Rc::new(copy))
}

/// Writes into the newest version, or a new one when a reader holds that. `oldest` becomes the smallest
/// timestamp so far.
fn write(
    shape: &TableShape,
    versions: &mut Versions,
    mutation: &MutationRef<'_>,
    notes: Notes<'_>,
) -> isize {
    if let Some(newest) = versions.last_mut().and_then(Rc::get_mut) {
        return newest.apply(shape, mutation, notes);
    }
    let Some(held) = versions.last() else { return 0 };
    let mut version = PartitionVersion::new(held.token, held.key.clone());
    version.apply(shape, mutation, notes);
    let bytes = version.memory_bytes();
    versions.push(Rc::new(version));
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

/// Folds versions into the oldest as far as no reader holds it. Accounted bytes stay as they are:
/// an upper bound until the flush.
fn fold(shape: &TableShape, versions: &mut Versions, scratch: &mut Vec<u8>) {
    if versions.first_mut().and_then(Rc::get_mut).is_none() {
        return;
    }
    let newer: SmallVec<[Rc<PartitionVersion>; 4]> = versions.drain(1..).collect();
    if let Some(oldest) = versions.first_mut().and_then(Rc::get_mut) {
        for version in newer {
            oldest.absorb(shape, &version, scratch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{TABLE, clustering, insert, insert_at, key, schema};

    /// INV-memtable-1.
    #[test]
    fn what_a_reader_holds_of_a_partition_stays_while_it_is_written() {
        let table = schema().tables_by_id[&TABLE].clone();
        let shape = TableShape::for_table(&table);
        let memtable = Memtable::new();
        let (mut scratch, token) = (Vec::new(), codec::token_of(&key(1)));
        let mut held = Vec::new();
        for (ck, value) in [(5, "first"), (5, "second"), (6, "third"), (5, "fourth")] {
            let bytes = insert(1, ck, value, 10 + held.len() as i64);
            let mutation = MutationRef::open(&bytes).unwrap();
            memtable.apply(&shape, token, &mutation, None, &mut scratch);
            let now = memtable.get(token, &key(1)).unwrap();
            let rows = |held: &Held| {
                let rows = |p: &Partition| -> Vec<(Vec<u8>, Vec<u8>)> {
                    let rows = p.rows().from(view::Place::FIRST);
                    rows.map(|(c, r)| (c.to_vec(), r.bytes().to_vec())).collect()
                };
                held.iter().map(rows).collect::<Vec<_>>()
            };
            held.push((rows(&now), now));
            for (was, held) in &held {
                assert_eq!(*was, rows(held), "behind {value}");
            }
        }
        let newest = &held.last().unwrap().0;
        assert_eq!(newest.last().unwrap()[0].0, clustering(5));
        assert_eq!((memtable.partition_count(), memtable.mutation_count()), (1, 4));
        assert!(matches!(held[0].1[0], Partition::Plain(..)));
        assert!(matches!(held[1].1[0], Partition::Version(_)));
    }

    #[test]
    fn of_equal_clusterings_that_are_written_differently_the_first_one_is_kept() {
        let mut table = (*schema().tables_by_id[&TABLE]).clone();
        table.columns[1].ty = types::CqlType::Decimal;
        let shape = TableShape::for_table(&table);
        // 1.0, 1.00 and 1.000: a scale and a number.
        let one = |scale: u32| {
            let number = 10_i16.pow(scale).to_be_bytes();
            let decimal = [&scale.to_be_bytes()[..], &number[..]].concat();
            data::ClusteringBuf::from_components([decimal.as_slice()]).0
        };
        for is_held in [false, true] {
            let memtable = Memtable::new();
            let (mut scratch, token) = (Vec::new(), codec::token_of(&key(1)));
            let mut held = Vec::new();
            for (scale, value) in [(1, "first"), (2, "second"), (3, "third")] {
                let bytes = insert_at(1, &one(scale), value, i64::from(scale));
                let mutation = MutationRef::open(&bytes).unwrap();
                memtable.apply(&shape, token, &mutation, None, &mut scratch);
                let now = memtable.get(token, &key(1)).unwrap();
                // Versions stay apart while a reader holds them.
                held.extend(is_held.then_some(now));
            }
            held.clear();
            let bytes = insert_at(1, &one(3), "fourth", 4);
            let mutation = MutationRef::open(&bytes).unwrap();
            memtable.apply(&shape, token, &mutation, None, &mut scratch);
            let now = memtable.get(token, &key(1)).unwrap();
            let found: Vec<_> = now[0].rows().from(view::Place::FIRST).collect();
            assert_eq!((now.len(), found.len()), (1, 1), "they are one row");
            assert_eq!(found[0].0, one(1), "as it was written first");
            assert!(found[0].1.bytes().windows(6).any(|bytes| bytes == b"fourth"));
        }
    }
}
