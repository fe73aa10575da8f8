//! Where partitions begin, from the index, in the order of Data.

use super::verify::{IndexWalk, TrieWalk};
use crate::{Result, SstableReader};

/// Places of partitions as the index has them, from front to back.
pub(super) struct Starts<'r> {
    walk: Walk<'r>,
    /// The entry after all that were passed.
    next: Option<(u64, Option<Vec<u8>>)>,
    /// The last entry that was passed.
    passed: Option<(u64, Option<Vec<u8>>)>,
    /// The index ended, or could not be read further.
    pub(super) end: Option<std::result::Result<(), String>>,
}

enum Walk<'r> {
    Index(IndexWalk),
    Tries(TrieWalk<'r>),
    None,
}

impl<'r> Starts<'r> {
    /// `has_index` false: nothing is known.
    pub(super) fn new(reader: &'r SstableReader, has_index: bool) -> Starts<'r> {
        let walk = match (has_index, reader.meta().footer()) {
            (false, _) => Walk::None,
            (true, None) => Walk::Index(IndexWalk::new(reader)),
            (true, Some(footer)) => Walk::Tries(TrieWalk::new(reader, footer)),
        };
        Starts { walk, next: None, passed: None, end: None }
    }

    /// The first start after a position; positions must not descend from call to call. `None`:
    /// there is none, or the index cannot be read that far (see [`Starts::end`]).
    pub(super) async fn behind(&mut self, position: u64) -> Option<u64> {
        loop {
            if let Some((start, _)) = &self.next {
                if *start > position {
                    return Some(*start);
                }
                self.passed = self.next.take();
            }
            if self.end.is_some() {
                return None;
            }
            match self.entry().await {
                Ok(Some(entry)) => {
                    let last = self.passed.as_ref().map(|(start, _)| *start);
                    if last.is_some_and(|last| entry.0 <= last) {
                        self.end = Some(Err("its entries do not ascend".to_owned()));
                    } else {
                        self.next = Some(entry);
                    }
                }
                Ok(None) => self.end = Some(Ok(())),
                Err(error) => self.end = Some(Err(error.to_string())),
            }
        }
    }

    /// The key of the partition that begins there, where the index has it. Call it after
    /// [`Starts::behind`] of the same position.
    pub(super) fn key_at(&self, position: u64) -> Option<Vec<u8>> {
        self.passed.as_ref().filter(|(start, _)| *start == position)?.1.clone()
    }

    async fn entry(&mut self) -> Result<Option<(u64, Option<Vec<u8>>)>> {
        match &mut self.walk {
            Walk::None => Err(crate::SstableError::Missing { file: "the index".to_owned() }),
            Walk::Index(walk) => {
                let entry = walk.next().await?;
                Ok(entry.map(|(key, position)| (position, Some(key.to_vec()))))
            }
            Walk::Tries(walk) => walk.next_start().await,
        }
    }
}
