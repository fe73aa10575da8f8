//! Merges of files, as compactions drive them.

use std::rc::Rc;

use codec::KeyHash;
use data::{BlockRequest, Cursor, MergeCursor};
use sstable::Chunk;

use crate::read::sources::{FileSource, Source};

/// A merge whose sources are files.
pub(crate) trait Merging: Cursor {
    /// Hands a block over that was asked for.
    fn feed(&mut self, request: BlockRequest, chunk: Rc<Chunk>);

    /// The inputs, in the order of their numbers; files that only hide have higher ones.
    fn inputs(&self) -> impl Iterator<Item = &Source>;

    /// Returns for each of them if it has the current partition.
    fn members(&self) -> impl Iterator<Item = bool>;

    /// Hash of the current partition's key, where it is known.
    fn key_hash(&self) -> Option<KeyHash>;

    /// The input whose rows follow as it has them, if that is so: see [`MergeCursor::untouched`].
    fn untouched(&mut self) -> Option<(usize, &mut Source)>;

    /// See [`MergeCursor::run`].
    fn run(&self) -> Option<(usize, Option<&[u8]>)>;

    /// See [`MergeCursor::took_rows`].
    fn took_rows(&mut self, ended: bool);

    /// See [`MergeCursor::has_one_row`].
    fn has_one_row(&self) -> bool;

    /// See [`MergeCursor::is_between`].
    fn is_between(&self) -> bool;

    /// See [`MergeCursor::move_source`]; inputs are files.
    fn move_input(&mut self, number: usize, place: impl FnOnce(&mut FileSource) -> bool);

    /// The input of that number.
    fn input(&self, number: usize) -> Option<&Source>;

    /// The same to be changed.
    fn input_mut(&mut self, number: usize) -> Option<&mut Source>;

    /// See [`MergeCursor::took_partition`].
    fn took_partition(&mut self);
}

impl Merging for MergeCursor<'_, Source> {
    fn feed(&mut self, request: BlockRequest, chunk: Rc<Chunk>) {
        if let Some(source) = self.source_mut(request.source) {
            source.feed(request.block, chunk);
        }
    }

    fn inputs(&self) -> impl Iterator<Item = &Source> {
        self.sources()
    }

    fn members(&self) -> impl Iterator<Item = bool> {
        MergeCursor::members(self)
    }

    #[inline]
    fn key_hash(&self) -> Option<KeyHash> {
        self.at_partition()?.file()?.key_hash()
    }

    #[inline]
    fn untouched(&mut self) -> Option<(usize, &mut Source)> {
        let index = MergeCursor::untouched(self)?;
        let source = self.source_mut(u32::try_from(index).ok()?)?;
        Some((index, source))
    }

    #[inline]
    fn run(&self) -> Option<(usize, Option<&[u8]>)> {
        MergeCursor::run(self)
    }

    #[inline]
    fn took_rows(&mut self, ended: bool) {
        MergeCursor::took_rows(self, ended);
    }

    #[inline]
    fn has_one_row(&self) -> bool {
        MergeCursor::has_one_row(self)
    }

    #[inline]
    fn is_between(&self) -> bool {
        MergeCursor::is_between(self)
    }

    #[inline]
    fn move_input(&mut self, number: usize, place: impl FnOnce(&mut FileSource) -> bool) {
        self.move_source(number, |source| source.file_mut().is_some_and(place));
    }

    #[inline]
    fn input(&self, number: usize) -> Option<&Source> {
        self.source(number)
    }

    #[inline]
    fn input_mut(&mut self, number: usize) -> Option<&mut Source> {
        self.source_mut(u32::try_from(number).ok()?)
    }

    #[inline]
    fn took_partition(&mut self) {
        MergeCursor::took_partition(self);
    }
}
