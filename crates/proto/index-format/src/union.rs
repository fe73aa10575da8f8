//! The ascending union of lists of rows.
//!
//! Several lists are merged in windows of 65,536 ids: each sets bits, then the bits are read. A merge by a heap
//! would cost a logarithm an id.

use crate::IndexError;
use crate::block::Feed;
use crate::postings::{ListCursor, ListStep};

const WINDOW_WORDS: usize = 1024;
const WINDOW_IDS: u64 = WINDOW_WORDS as u64 * 64;

#[derive(Debug)]
pub(crate) enum Union {
    One(ListCursor),
    Many(Box<Windows>),
}

#[derive(Debug)]
struct Source {
    list: ListCursor,
    /// The id read ahead.
    head: Option<u32>,
    is_done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Heads are read up to this source; the smallest names the next window.
    Choosing(usize),
    /// Bits of the sources before this one are set.
    Filling(usize),
    Filled,
}

#[derive(Debug)]
pub(crate) struct Windows {
    sources: Vec<Source>,
    state: State,
    /// First id of the window, a multiple of its size.
    base: u32,
    words: Vec<u64>,
}

impl Union {
    pub(crate) fn of(mut lists: Vec<ListCursor>) -> Union {
        match lists.pop() {
            None => Union::One(ListCursor::of_ids(Vec::new())),
            Some(list) if lists.is_empty() => Union::One(list),
            Some(list) => {
                lists.push(list);
                let source = |list| Source { list, head: None, is_done: false };
                Union::Many(Box::new(Windows {
                    sources: lists.into_iter().map(source).collect(),
                    state: State::Choosing(0),
                    base: 0,
                    words: vec![0; WINDOW_WORDS],
                }))
            }
        }
    }

    /// The next id of at least `bound`, which never falls.
    pub(crate) fn next(&mut self, bound: u32, feed: &Feed) -> Result<ListStep, IndexError> {
        match self {
            Union::One(list) => list.next(bound, feed),
            Union::Many(windows) => windows.next(bound, feed),
        }
    }
}

impl Windows {
    fn end(&self) -> u64 {
        u64::from(self.base) + WINDOW_IDS
    }

    fn next(&mut self, mut bound: u32, feed: &Feed) -> Result<ListStep, IndexError> {
        loop {
            match self.state {
                State::Choosing(from) => {
                    if let Some(step) = self.choose(from, bound, feed)? {
                        return Ok(step);
                    }
                }
                State::Filling(_) if u64::from(bound) >= self.end() => {
                    self.state = State::Choosing(0);
                }
                State::Filling(from) => {
                    if let Some(step) = self.fill(from, bound, feed)? {
                        return Ok(step);
                    }
                }
                State::Filled => {
                    if let Some(id) = self.first_from(bound) {
                        return Ok(ListStep::Id(id));
                    }
                    self.state = State::Choosing(0);
                    let Ok(end) = u32::try_from(self.end()) else { return Ok(ListStep::End) };
                    bound = bound.max(end);
                }
            }
        }
    }

    fn choose(
        &mut self,
        from: usize,
        bound: u32,
        feed: &Feed,
    ) -> Result<Option<ListStep>, IndexError> {
        for (at, source) in self.sources.iter_mut().enumerate().skip(from) {
            if let Some(need) = source.read(bound, feed)? {
                self.state = State::Choosing(at);
                return Ok(Some(need));
            }
        }
        // A bound that rose since the first sources were read leaves heads below it.
        if self.sources.iter().any(|source| source.head.is_some_and(|head| head < bound)) {
            self.state = State::Choosing(0);
            return Ok(None);
        }
        let Some(first) = self.sources.iter().filter_map(|source| source.head).min() else {
            return Ok(Some(ListStep::End));
        };
        self.base = first - first % 65_536;
        self.words.fill(0);
        self.state = State::Filling(0);
        Ok(None)
    }

    fn fill(
        &mut self,
        from: usize,
        bound: u32,
        feed: &Feed,
    ) -> Result<Option<ListStep>, IndexError> {
        let end = self.end();
        for (at, source) in self.sources.iter_mut().enumerate().skip(from) {
            while let Some(id) = source.head.filter(|id| u64::from(*id) < end) {
                let offset = id.saturating_sub(self.base) as usize;
                if let Some(word) = self.words.get_mut(offset / 64) {
                    *word |= 1 << (offset % 64);
                }
                source.head = None;
                if let Some(need) = source.read(bound.max(id.saturating_add(1)), feed)? {
                    self.state = State::Filling(at);
                    return Ok(Some(need));
                }
            }
            // The block that was missing may have been fed now.
            if source.head.is_none() && !source.is_done {
                if let Some(need) = source.read(bound, feed)? {
                    self.state = State::Filling(at);
                    return Ok(Some(need));
                }
                self.state = State::Filling(at);
                return Ok(None);
            }
        }
        self.state = State::Filled;
        Ok(None)
    }

    fn first_from(&self, bound: u32) -> Option<u32> {
        let offset = bound.saturating_sub(self.base);
        let mut at = offset as usize / 64;
        let mut word = self.words.get(at)? & (u64::MAX << (offset % 64));
        while word == 0 {
            at += 1;
            word = *self.words.get(at)?;
        }
        let index = u32::try_from(at).ok()? * 64 + word.trailing_zeros();
        self.base.checked_add(index)
    }
}

impl Source {
    /// Reads the head, at least `bound`, unless it is.
    fn read(&mut self, bound: u32, feed: &Feed) -> Result<Option<ListStep>, IndexError> {
        if self.is_done || self.head.is_some_and(|head| head >= bound) {
            return Ok(None);
        }
        match self.list.next(bound, feed)? {
            ListStep::Id(id) => self.head = Some(id),
            ListStep::End => (self.head, self.is_done) = (None, true),
            need @ ListStep::Need(_) => {
                self.head = None;
                return Ok(Some(need));
            }
        }
        Ok(None)
    }
}
