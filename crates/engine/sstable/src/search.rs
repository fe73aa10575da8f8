//! The promoted index of one partition, read block by block from Index.db.
//!
//! Every method may return a block that it needs. Called again after the block was fed, it
//! continues.

use codec::DecodeErrorKind;
use sst_format::Version;
use sst_format::index::{IndexInfo, PromotedHeader};

use crate::block::Window;

/// Result of one step of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<T> {
    /// Feed this block and call again.
    Need(u64),
    /// Done.
    Is(T),
}

/// Damage of the index, with its offset.
#[derive(Debug)]
pub(crate) struct IndexDamage {
    pub(crate) offset: u64,
    pub(crate) what: String,
}

type Result<T> = std::result::Result<T, IndexDamage>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Promoted {
    version: Version,
    at: u64,
    length: u64,
    header: Option<PromotedHeader>,
    place: Option<(usize, u64)>,
    loaded: Option<usize>,
    low: usize,
    high: usize,
    searching: bool,
    /// Result of the search, until it is ended.
    found: Option<usize>,
}

impl Promoted {
    pub(crate) fn new(at: u64, length: u64, version: Version) -> Promoted {
        Promoted {
            version,
            at,
            length,
            header: None,
            place: None,
            loaded: None,
            low: 0,
            high: 0,
            searching: false,
            found: None,
        }
    }

    /// Number of blocks.
    pub(crate) fn blocks(&mut self, window: &mut Window) -> Result<Found<usize>> {
        if let Some(header) = &self.header {
            return Ok(Found::Is(header.blocks));
        }
        window.seek(self.at);
        let length = usize::try_from(self.length).unwrap_or(usize::MAX);
        match PromotedHeader::decode(window.bytes(), length, self.version) {
            Ok(header) => {
                self.header = Some(header);
                Ok(Found::Is(header.blocks))
            }
            Err(e) => need(window, &e),
        }
    }

    /// Loads one block's entry into `info`.
    pub(crate) fn load(
        &mut self,
        index: usize,
        lengths: &[Option<usize>],
        window: &mut Window,
        info: &mut IndexInfo,
    ) -> Result<Found<()>> {
        if self.loaded == Some(index) {
            return Ok(Found::Is(()));
        }
        let header = match self.blocks(window)? {
            Found::Need(block) => return Ok(Found::Need(block)),
            Found::Is(_) => self.header,
        };
        let Some(header) = header else { return Ok(Found::Is(())) };
        let first = self.at.saturating_add(header.length as u64);
        let end = self.at.saturating_add(self.length);
        let table = end.saturating_sub((header.blocks as u64).saturating_mul(4));
        let offset = match self.place {
            Some((i, offset)) if i == index => offset,
            _ => {
                window.seek(table.saturating_add((index as u64).saturating_mul(4)));
                let mut r = codec::Reader::new(window.bytes(), "promoted index offset");
                match r.u32() {
                    Ok(offset) => {
                        self.place = Some((index, u64::from(offset)));
                        u64::from(offset)
                    }
                    Err(e) => return need(window, &e),
                }
            }
        };
        let at = first.saturating_add(offset);
        if at >= table {
            let what = "a block of the promoted index lies outside of it".to_owned();
            return Err(IndexDamage { offset: at, what });
        }
        window.seek(at);
        self.loaded = None;
        match info.decode_into(window.bytes(), lengths, self.version) {
            Ok(_) => {
                self.loaded = Some(index);
                Ok(Found::Is(()))
            }
            Err(e) => need(window, &e),
        }
    }

    /// The first block for which `is_at_or_behind` holds; the number of blocks when none does.
    pub(crate) fn search(
        &mut self,
        lengths: &[Option<usize>],
        window: &mut Window,
        info: &mut IndexInfo,
        is_at_or_behind: impl Fn(&IndexInfo) -> bool,
    ) -> Result<Found<usize>> {
        // Loading the found entry may need a block of its own and call this again. A new search
        // would then evict that block from the window, without end.
        if let Some(found) = self.found {
            return Ok(Found::Is(found));
        }
        let blocks = match self.blocks(window)? {
            Found::Need(block) => return Ok(Found::Need(block)),
            Found::Is(blocks) => blocks,
        };
        if !self.searching {
            (self.low, self.high, self.searching) = (0, blocks, true);
        }
        while self.low < self.high {
            let middle = self.low.midpoint(self.high);
            if let Found::Need(block) = self.load(middle, lengths, window, info)? {
                return Ok(Found::Need(block));
            }
            if is_at_or_behind(info) {
                self.high = middle;
            } else {
                self.low = middle.saturating_add(1);
            }
        }
        self.searching = false;
        self.found = Some(self.low);
        Ok(Found::Is(self.low))
    }

    /// Ends a search: the next one starts from the beginning.
    pub(crate) fn end_search(&mut self) {
        self.found = None;
    }
}

fn need<T>(window: &Window, error: &codec::DecodeError) -> Result<Found<T>> {
    match (error.kind, window.needed()) {
        (DecodeErrorKind::Truncated { .. }, Some(block)) => Ok(Found::Need(block)),
        _ => Err(IndexDamage {
            offset: window.position().saturating_add(error.offset as u64),
            what: error.to_string(),
        }),
    }
}
