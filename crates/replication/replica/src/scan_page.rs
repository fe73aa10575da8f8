//! Pages of shards of other nodes: into the bytes of a response, and back when they are found to be such a page.
//!
//! Inside a node pages are trusted. A page from outside is checked here, row by row, before any other code sees
//! it.

use std::cmp::Ordering;

use codec::DecodeError;
use data::command::{KeyRange, RingBound};
use data::{RowFold, RowRef, clustering};
use internode::{ScanCost, ScanEnd, ScanPage};
use stdx::Token;
use store::{Filtered, ReadStats};

use crate::folded_page::open_result;
use crate::packed_page::{PackedPage, PageEnd, PageItem};
use crate::token_range::tokens_of;

/// Properties that a page from another node must have.
pub struct Expected<'e> {
    /// The ranges that were asked for, ascending.
    pub ranges: &'e [KeyRange],
    /// The row of the first partition after which the page begins, if it begins inside of a
    /// partition.
    pub resumed: Option<&'e [u8]>,
    /// Clustering columns of the table.
    pub clustering: usize,
    /// Results of this fold; `None`: rows.
    pub fold: Option<&'e dyn RowFold>,
}

/// Appends a page for another node; `state` is the state of its fold.
pub fn encode(page: &PackedPage, state: Option<&[u8]>, out: &mut Vec<u8>) {
    let ReadStats { partitions, rows, tombstones, filtered, .. } = page.stats;
    let cost = ScanCost {
        partitions,
        rows,
        tombstones,
        scanned: page.scanned,
        dropped_rows: filtered.rows,
        dropped_partitions: filtered.partitions,
        dropped_bytes: filtered.bytes,
    };
    let end = page.end.as_ref().map(|end| ScanEnd {
        token: end.token,
        key: end.key.clone(),
        clustering: end.clustering.clone(),
        is_shown: end.is_shown,
    });
    let (more, is_failed, items) = (page.more, page.is_failed, page.bytes.as_slice());
    ScanPage { more, is_failed, end, cost, state, items }.encode(out);
}

/// A page of another node.
///
/// # Errors
/// A description of the fault.
pub fn decode(payload: &[u8], expected: &Expected<'_>) -> Result<PackedPage, String> {
    let page = ScanPage::decode(payload).map_err(|error: DecodeError| error.to_string())?;
    let ScanPage { more, is_failed, end, cost, state, items } = page;
    let state = state.map(<[u8]>::to_vec);
    if let Some(state) = &state
        && expected.fold.is_none_or(|fold| fold.decode_state(state).is_none())
    {
        return Err("a state that is none of its fold".to_owned());
    }
    let ScanCost { partitions, rows, tombstones, .. } = cost;
    let filtered = Filtered {
        rows: cost.dropped_rows,
        partitions: cost.dropped_partitions,
        bytes: cost.dropped_bytes,
    };
    let mut page = PackedPage {
        bytes: items.to_vec(),
        more,
        end: end.map(|ScanEnd { token, key, clustering, is_shown }| PageEnd {
            token,
            key,
            clustering,
            is_shown,
        }),
        scanned: cost.scanned,
        stats: ReadStats { partitions, rows, tombstones, filtered, ..ReadStats::default() },
        encoded: state,
        is_failed,
        ..PackedPage::default()
    };
    page.rows = expected.check(&page)?;
    Ok(page)
}

impl Expected<'_> {
    /// Checks a page, and returns the number of its rows or results.
    fn check(&self, page: &PackedPage) -> Result<usize, &'static str> {
        let (mut at, mut rows) = (0, 0_usize);
        let mut last: Option<(Token, &[u8])> = None;
        let mut ranges = self.ranges.iter().map(tokens_of).peekable();
        let mut lies_in_ranges = |token: Token| {
            while ranges.next_if(|range| range.upto < token).is_some() {}
            ranges.peek().is_some_and(|range| range.after < token)
        };
        while at < page.len() {
            let is_known = page.bytes.get(at).is_some_and(|tag| matches!(tag, 1 | 2));
            let item = page.item(at).filter(|_| is_known);
            let (item, next) = item.ok_or("an item is cut short or of no known kind")?;
            at = next;
            match item {
                PageItem::Partition { token, key, static_row } => {
                    if token != codec::token_of(key) || !lies_in_ranges(token) {
                        return Err("a partition lies elsewhere");
                    }
                    if last.is_some_and(|last| last >= (token, key)) {
                        return Err("partitions are out of order");
                    }
                    if static_row.is_some_and(|row| RowRef::parse(row.bytes()).is_none()) {
                        return Err("a static row is not a packed row");
                    }
                    last = Some((token, key));
                }
                PageItem::Row { .. } if last.is_none() => return Err("a row has no partition"),
                PageItem::Row { clustering, row } => {
                    self.check_row(clustering, row)?;
                    rows = rows.saturating_add(1);
                }
            }
        }
        let Some(end) = &page.end else { return Ok(rows) };
        let PageEnd { token, key, clustering, .. } = end;
        if *token != codec::token_of(key) || !lies_in_ranges(*token) {
            return Err("its end lies elsewhere");
        }
        if clustering.as_ref().is_some_and(|c| !self.is_clustering(c)) {
            return Err("its end is in no row");
        }
        if !self.gets_on(end) {
            return Err("it ends where it begins");
        }
        match last.is_some_and(|last| last > (*token, key)) {
            true => Err("its end lies before its last partition"),
            false => Ok(rows),
        }
    }

    /// Returns true if a page with that end makes progress beyond its start, so that a read of such
    /// pages ends.
    fn gets_on(&self, end: &PageEnd) -> bool {
        let start = self.ranges.first().map(|range| &range.start);
        let Some(RingBound::Key { token, key, after }) = start else { return true };
        match (end.token, &end.key).cmp(&(*token, key)) {
            Ordering::Greater => true,
            Ordering::Less => false,
            Ordering::Equal => {
                let clustering = end.clustering.as_deref();
                !after && clustering.is_none_or(|c| Some(c) != self.resumed)
            }
        }
    }

    fn is_clustering(&self, bytes: &[u8]) -> bool {
        clustering::check(bytes, self.clustering) == Some(self.clustering)
    }

    fn check_row(&self, clustering: &[u8], row: RowRef<'_>) -> Result<(), &'static str> {
        let Some(fold) = self.fold else {
            RowRef::parse(row.bytes()).ok_or("a row is not a packed row")?;
            return match self.is_clustering(clustering) {
                true => Ok(()),
                false => Err("a clustering has the wrong number of components"),
            };
        };
        if row.bytes().first().is_none_or(|first| *first > 1) {
            return Err("a result without a first byte");
        }
        let (last, bytes) = open_result(clustering, row).ok_or("no result")?;
        if !fold.is_result(bytes) {
            return Err("a result has other cells");
        }
        match last.is_none_or(|last| self.is_clustering(last)) {
            true => Ok(()),
            false => Err("a result is of no row"),
        }
    }
}
