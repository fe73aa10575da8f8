//! Copies partitions of one row that follow in a merge verbatim, the newest of several versions. Most tables have no
//! other partitions, so all work that the merge saves for them counts. Each input's partitions are scanned a block at a
//! time ([`sstable::Lookahead`]), and those found in all inputs are sorted together.
//!
//! INV-copying-1 holds: see [`crate::compact::row_copy`].
//! INV-ahead-1: an input whose next partition is not known, or is of another form, bounds what is put in order.

use data::BlockRequest;
use sst_format::RowCopier;
use sstable::{Follows, Lookahead};
use stdx::Token;

use crate::compact::compaction::MergeCounts;
use crate::compact::outputs::Outputs;
use crate::compact::row_copy::Copiers;
use crate::error::StoreError;
use crate::read::cache_handover::Warmth;
use crate::read::merging::Merging;
use crate::read::sources::Source;
use crate::write::verbatim_copy::is_on;

/// Limit of partitions that the merge processes alone before the next lookahead, after one that
/// found none.
const PAUSE_MAX: u32 = 64;

/// Distance, in partitions, at which the bytes of a partition are prefetched before it is copied.
const PREFETCHED: usize = 16;

/// Partitions found ahead in one input.
#[derive(Default)]
struct Input {
    found: Lookahead,
    /// Partitions before it were taken; the input has skipped those before `passed`.
    next: usize,
    passed: usize,
}

impl Input {
    /// Scans the following partitions, unless they are known. `is_moved`: the merge has moved it
    /// since.
    fn look(
        &mut self,
        merge: &mut impl Merging,
        number: usize,
        copier: Option<&RowCopier>,
        is_moved: bool,
    ) {
        let left = self.found.len() > self.next;
        let is_settled = matches!(self.found.follows(), Follows::Other(_) | Follows::End);
        let is_known = match is_moved {
            false => left || (self.found.is_empty() && is_settled),
            true => {
                let file = merge.input(number).and_then(Source::file);
                left && file.is_some_and(|file| file.cursor.is_at(&self.found, self.next))
            }
        };
        if is_known {
            return;
        }
        match is_moved {
            true => merge.move_input(number, |file| file.cursor.step_back()),
            false => self.pass(merge, number),
        }
        (self.next, self.passed) = (0, 0);
        match merge.input_mut(number).and_then(Source::file_mut) {
            Some(file) => file.look_ahead(copier, &mut self.found),
            None => self.found = Lookahead::default(),
        }
    }

    /// Moves the input past the taken partitions.
    fn pass(&mut self, merge: &mut impl Merging, number: usize) {
        if self.passed == self.next {
            return;
        }
        self.passed = self.next;
        merge.move_input(number, |file| {
            file.cursor.pass_ahead(&self.found, self.next);
            true
        });
    }
}

/// A partition that follows, in an input.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Next {
    token: Token,
    input: u32,
    index: u32,
}

impl Next {
    fn input(self) -> usize {
        self.input as usize
    }

    fn index(self) -> usize {
        self.index as usize
    }
}

/// Result of gathering partitions in order.
enum Gathered {
    Some,
    /// The next partition is for the merge.
    None,
    /// The following partition is in that block.
    Needs(BlockRequest),
}

/// See the module.
pub(crate) struct Ahead {
    inputs: Vec<Input>,
    /// In order; those before `at` were taken.
    order: Vec<Next>,
    at: usize,
    /// The merge has moved inputs since.
    is_moved: bool,
    /// Number of partitions without a lookahead, and their number after the next attempt that finds
    /// none: 0 after the first one.
    pause: u32,
    next_pause: u32,
}

impl Ahead {
    pub(crate) fn new(merge: &impl Merging) -> Ahead {
        let inputs = merge.inputs().map(|_| Input::default()).collect();
        Ahead { inputs, order: Vec::new(), at: 0, is_moved: true, pause: 0, next_pause: 0 }
    }

    /// Copies partitions as far as they are in memory. Returns how many, and the block with the
    /// next one, if it is one to copy. None and no block: the merge has to continue alone.
    ///
    /// # Errors
    /// `Invalid`: what cannot be written.
    pub(crate) fn take(
        &mut self,
        merge: &mut impl Merging,
        copiers: &Copiers,
        outputs: &mut Outputs<'_>,
        warmth: &mut Warmth,
        counts: &mut MergeCounts,
    ) -> Result<(usize, Option<BlockRequest>), StoreError> {
        if !merge.is_between() || !is_on() {
            return Ok((0, None));
        }
        if self.pause > 0 {
            self.pause -= 1;
            return Ok((0, None));
        }
        if self.is_moved || self.at == self.order.len() {
            match self.gather(merge, copiers) {
                Gathered::Some => {}
                Gathered::Needs(request) => return Ok((0, Some(request))),
                Gathered::None => {
                    self.pause = self.next_pause;
                    self.next_pause = (self.next_pause * 2).clamp(1, PAUSE_MAX);
                    self.give_back(merge);
                    return Ok((0, None));
                }
            }
        }
        self.next_pause = 0;
        let taken = match warmth.is_any_cached() {
            true => self.copy_one(copiers, outputs, warmth, counts)?,
            false => {
                outputs.set_warm(false);
                self.copy(copiers, outputs, counts, usize::MAX)?
            }
        };
        if taken == 0 {
            self.give_back(merge);
        }
        #[cfg(test)]
        crate::write::verbatim_copy::PARTITIONS
            .set(crate::write::verbatim_copy::PARTITIONS.get() + taken as u64);
        Ok((taken, None))
    }

    /// Copies the next partition, and adds it to the chunk cache if it came from there.
    fn copy_one(
        &mut self,
        copiers: &Copiers,
        outputs: &mut Outputs<'_>,
        warmth: &mut Warmth,
        counts: &mut MergeCounts,
    ) -> Result<usize, StoreError> {
        let versions = versions(&self.order, self.at);
        warmth.partition_of(versions.iter().map(|version| version.input()));
        outputs.set_warm(warmth.is_warm());
        self.copy(copiers, outputs, counts, 1)
    }

    /// Copies sorted partitions, at most `most`. Returns how many.
    fn copy(
        &mut self,
        copiers: &Copiers,
        outputs: &mut Outputs<'_>,
        counts: &mut MergeCounts,
        most: usize,
    ) -> Result<usize, StoreError> {
        let Some((bytes_max, last)) = outputs.wholes() else { return Ok(0) };
        let (inputs, order, first) = (&self.inputs, &self.order, self.at);
        let (mut at, mut left) = (first, most);
        // They lie in the blocks of all inputs: more than fits into the nearest caches.
        let prefetch = |place: usize| {
            if let Some(next) = order.get(place)
                && let Some(input) = inputs.get(next.input())
            {
                input.found.prefetch(next.index());
            }
        };
        (first..first + most.min(PREFETCHED)).for_each(prefetch);
        // The writer asks for each partition and writes it.
        let taken = outputs.whole_partitions(|| {
            left = left.checked_sub(1)?;
            let versions = versions(order, at);
            let winner = newest(inputs, copiers, versions).filter(|newest| newest.token <= last)?;
            let found = &inputs.get(winner.input())?.found;
            let (hash, key, row) = found.partition(winner.index(), copiers.of(winner.input())?)?;
            if key.len() + row.length > bytes_max {
                return None;
            }
            counts.add(versions.len());
            (at + PREFETCHED..at + PREFETCHED + versions.len()).for_each(prefetch);
            at += versions.len();
            Some((hash, key, row))
        })?;
        for version in self.order.get(first..at).unwrap_or(&[]) {
            if let Some(input) = self.inputs.get_mut(version.input()) {
                input.next = version.index() + 1;
            }
        }
        self.at = at;
        Ok(taken)
    }

    /// Sorts the following partitions of all inputs, as far as they are known of all.
    fn gather(&mut self, merge: &mut impl Merging, copiers: &Copiers) -> Gathered {
        self.order.clear();
        self.at = 0;
        // Those after `last`, and from `other` on, are not sorted.
        let (mut last, mut other) = (Token::MAX, None);
        for (number, input) in self.inputs.iter_mut().enumerate() {
            input.look(merge, number, copiers.of(number), self.is_moved);
            match (input.found.last_token(), input.found.follows()) {
                (_, Follows::Other(token)) => {
                    other = Some(other.map_or(token, |other: Token| other.min(token)));
                }
                (_, Follows::End) => {}
                (Some(token), _) => last = last.min(token),
                (None, Follows::Block(block)) => {
                    #[cfg(test)]
                    crate::write::verbatim_copy::CUT_OFF
                        .set(crate::write::verbatim_copy::CUT_OFF.get() + 1);
                    let Ok(source) = u32::try_from(number) else { return Gathered::None };
                    return Gathered::Needs(BlockRequest { source, block });
                }
                (None, Follows::Unknown | Follows::More) => return Gathered::None,
            }
        }
        self.is_moved = false;
        for (input, number) in self.inputs.iter().zip(0..) {
            let tokens = input.found.tokens_from(input.next);
            let known = |token: &Token| *token <= last && other.is_none_or(|other| *token < other);
            let follows = tokens.take_while(known).zip(input.next as u32..);
            self.order.extend(follows.map(|(token, index)| Next { token, input: number, index }));
        }
        self.order.sort_unstable();
        match self.order.is_empty() {
            true => Gathered::None,
            false => Gathered::Some,
        }
    }

    /// Hands the inputs back to the merge.
    fn give_back(&mut self, merge: &mut impl Merging) {
        for (number, input) in self.inputs.iter_mut().enumerate() {
            input.pass(merge, number);
        }
        self.order.clear();
        self.at = 0;
        self.is_moved = true;
    }
}

/// Returns the next partitions with one token.
#[inline]
fn versions(order: &[Next], at: usize) -> &[Next] {
    let rest = order.get(at..).unwrap_or(&[]);
    let Some(first) = rest.first() else { return &[] };
    let count = rest.iter().take_while(|next| next.token == first.token).count();
    rest.get(..count).unwrap_or(rest)
}

/// The version that is copied. `None`: it is for the merge.
#[inline]
fn newest(inputs: &[Input], copiers: &Copiers, versions: &[Next]) -> Option<Next> {
    match versions {
        [] => None,
        [one] => Some(*one),
        [first, others @ ..] => {
            let found = |next: &Next| Some(&inputs.get(next.input())?.found);
            // Several rows of a partition are not versions of each other.
            copiers.of(first.input()).filter(|copier| copier.has_single_rows())?;
            let (_, key) = found(first)?.key(first.index())?;
            let time = |next: &Next| Some(found(next)?.row_place(next.index())?.timestamp());
            let mut newest = (time(first)?, *first);
            for other in others {
                let at = time(other)?;
                // Between versions of one time, the values decide.
                if found(other)?.key(other.index())?.1 != key || at == newest.0 {
                    return None;
                }
                if at > newest.0 {
                    newest = (at, *other);
                }
            }
            Some(newest.1)
        }
    }
}
