//! The files that a distribution of cluster-key compaction writes at once: one for each window, and one
//! for shared data.
//!
//! Their number is bounded, and with it the memory for their buffers. The first windows have a file each;
//! later ones share files in stretches of [`STRETCH`] windows, then of [`STRETCH`] such stretches, and so
//! on; the last file takes the rest. The content of a shared file is distributed again later.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use compact_plan::Windows;
use compact_plan::cluster_key::DIRECT_WINDOWS;
use data::{DeletionTime, Item};
use sstable::SstableWriter;
use stdx::Token;

use crate::compact::window_routing::{Piece, Place, Router};
use crate::read::cache_handover::WarmBlocks;
use crate::write::flush::Sieve;

/// Windows of the shortest stretch, and stretches of a longer one.
const STRETCH: i64 = 16;
/// Most stretches of one length.
const STRETCHES: usize = 8;
/// Lengths of stretches.
const LENGTHS: u32 = 3;

/// Key of an output file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Slot {
    /// Data in no window, or in several.
    Shared,
    /// A window.
    Window(i64),
    /// Several windows, by the exponent of [`STRETCH`] and the number of the stretch.
    Stretch(u32, i64),
    /// All other windows.
    Rest,
}

struct File {
    writer: SstableWriter,
    /// Its number in the chunk cache.
    cached_as: u64,
    sieve: Sieve,
    /// True if it has data of the partition.
    is_in: bool,
}

/// See the module. For every item in order: [`Sorted::prepare`], [`Sorted::add`] for missing files,
/// [`Sorted::put`].
pub(crate) struct Sorted {
    router: Router,
    files: Vec<File>,
    /// Places in `files`; `None`: not there yet.
    slots: BTreeMap<Slot, Option<usize>>,
    key: Vec<u8>,
    token: Token,
    /// Markers before the item that was prepared.
    pieces: Vec<Piece>,
    /// Slot of the item.
    target: Option<Slot>,
    missing: Vec<Slot>,
    is_warm: bool,
}

impl Sorted {
    pub(crate) fn new(windows: Windows, reversed: bool) -> Sorted {
        Sorted {
            router: Router::new(windows, reversed),
            files: Vec::new(),
            slots: BTreeMap::new(),
            key: Vec::new(),
            token: Token::MIN,
            pieces: Vec::new(),
            target: None,
            missing: Vec::new(),
            is_warm: false,
        }
    }

    fn slot_of(&self, place: Place) -> Slot {
        let Place::Window(window) = place else { return Slot::Shared };
        let has = |slot: &Slot| self.slots.contains_key(slot);
        let direct = Slot::Window(window);
        let count = |is: fn(&Slot, u32) -> bool, n: u32| {
            self.slots.keys().filter(|slot| is(slot, n)).count()
        };
        if has(&direct) || count(|s, _| matches!(s, Slot::Window(_)), 0) < DIRECT_WINDOWS {
            return direct;
        }
        let mut number = window;
        for length in 1..=LENGTHS {
            number = number.div_euclid(STRETCH);
            let stretch = Slot::Stretch(length, number);
            let is = |s: &Slot, n: u32| matches!(s, Slot::Stretch(length, _) if *length == n);
            if has(&stretch) || count(is, length) < STRETCHES {
                return stretch;
            }
        }
        Slot::Rest
    }

    fn need(&mut self, place: Place) -> Slot {
        let slot = self.slot_of(place);
        if let Entry::Vacant(entry) = self.slots.entry(slot) {
            entry.insert(None);
            self.missing.push(slot);
        }
        slot
    }

    /// Determines the slot of an item. Returns true when a file is missing for it.
    pub(crate) fn prepare(&mut self, item: Item<'_>) -> bool {
        self.pieces.clear();
        let mut pieces = std::mem::take(&mut self.pieces);
        let place = match item {
            Item::Partition { token, key, deletion } => {
                self.router.partition();
                self.token = token;
                self.key.clear();
                self.key.extend_from_slice(key);
                (!deletion.is_live()).then_some(Place::Shared)
            }
            Item::Static(_) => Some(Place::Shared),
            Item::Row { clustering, .. } => Some(self.router.row(clustering, &mut pieces)),
            Item::Marker(marker) => {
                self.router.marker(&marker, &mut pieces);
                None
            }
            Item::PartitionEnd => None,
        };
        for piece in &pieces {
            self.need(piece.place);
        }
        self.pieces = pieces;
        self.target = place.map(|place| self.need(place));
        !self.missing.is_empty()
    }

    /// Returns the slot whose file must be opened before the item can be put.
    pub(crate) fn next_missing(&self) -> Option<Slot> {
        self.missing.last().copied()
    }

    /// Supplies the file that [`Sorted::next_missing`] asked for.
    pub(crate) fn add(&mut self, writer: SstableWriter, cached_as: u64) {
        let Some(slot) = self.missing.pop() else { return };
        self.slots.insert(slot, Some(self.files.len()));
        self.files.push(File { writer, cached_as, sieve: Sieve::new(), is_in: false });
    }

    fn pass(&mut self, slot: Slot, item: Item<'_>) -> sstable::Result<bool> {
        let index = self.slots.get(&slot).copied().flatten();
        let Some(file) = index.and_then(|index| self.files.get_mut(index)) else {
            stdx::invariant::broken(format_args!("sorted outputs: no file for {slot:?}"))
        };
        if !file.is_in {
            file.is_in = true;
            if !matches!(item, Item::Partition { .. }) {
                let (token, key) = (self.token, self.key.as_slice());
                let begin = Item::Partition { token, key, deletion: DeletionTime::LIVE };
                file.sieve.put(begin, &mut file.writer)?;
            }
        }
        file.writer.set_warm(self.is_warm);
        file.sieve.put(item, &mut file.writer)?;
        Ok(file.writer.is_full())
    }

    /// See [`SstableWriter::set_warm`]; for the files of the next items.
    pub(crate) fn set_warm(&mut self, is_warm: bool) {
        self.is_warm = is_warm;
    }

    /// Writes the item that was prepared; true when [`Sorted::write_full`] has something to do.
    ///
    /// # Errors
    /// `Unwritable`.
    pub(crate) fn put(&mut self, item: Item<'_>) -> sstable::Result<bool> {
        let mut is_full = false;
        let pieces = std::mem::take(&mut self.pieces);
        for piece in &pieces {
            let slot = self.slot_of(piece.place);
            is_full |= self.pass(slot, Item::Marker(piece.marker()))?;
        }
        self.pieces = pieces;
        if let Some(slot) = self.target {
            is_full |= self.pass(slot, item)?;
        }
        if let Item::PartitionEnd = item {
            for file in self.files.iter_mut().filter(|file| file.is_in) {
                file.is_in = false;
                file.sieve.put(Item::PartitionEnd, &mut file.writer)?;
                is_full |= file.writer.is_full();
            }
        }
        Ok(is_full)
    }

    /// Writes all full requests. `warm` receives the kept blocks, by the number of the file.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) async fn write_full(&mut self, warm: &mut Vec<WarmBlocks>) -> sstable::Result<()> {
        for file in self.files.iter_mut().filter(|file| file.writer.is_full()) {
            file.writer.write_full().await?;
            warm.push((file.cached_as, file.writer.take_warm()));
        }
        Ok(())
    }

    /// Uncompressed bytes so far.
    pub(crate) fn data_length(&self) -> u64 {
        self.files.iter().map(|file| file.writer.data_length()).sum()
    }

    /// The next writer to finish, in the order in which they were added.
    pub(crate) fn take(&mut self) -> Option<(SstableWriter, u64)> {
        match self.files.is_empty() {
            true => None,
            false => Some(self.files.remove(0)).map(|file| (file.writer, file.cached_as)),
        }
    }
}

#[cfg(test)]
mod tests {
    use compact_plan::windows::{KeyType, WindowRule, WindowUnit};

    use super::*;

    #[test]
    fn however_many_windows_there_are_the_files_are_few_and_each_window_has_one() {
        let rule = WindowRule::Moving { unit: WindowUnit::Numbers(1), size: 1 };
        let windows = Windows::new(rule, KeyType::BigInt).unwrap();
        let mut sorted = Sorted::new(windows, false);
        sorted.need(Place::Shared);
        let mut first: BTreeMap<i64, Slot> = BTreeMap::new();
        for round in 0..2 {
            let far = (1..20).map(|n| n * 1_000_000);
            for window in (0..10_000).chain(far).chain([i64::MIN, i64::MAX]) {
                let slot = sorted.need(Place::Window(window));
                assert_eq!(*first.entry(window).or_insert(slot), slot, "round {round}");
            }
        }
        let most = 2 + DIRECT_WINDOWS + STRETCHES * LENGTHS as usize;
        assert_eq!(sorted.slots.len(), most);
        assert_eq!(first[&15], Slot::Window(15));
        assert_eq!(first[&16], Slot::Stretch(1, 1));
        assert_eq!(first[&i64::MAX], Slot::Rest);
    }
}
