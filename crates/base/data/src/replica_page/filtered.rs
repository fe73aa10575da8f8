//! Pages after a selective filter: [`super::PageWriter`] collects them while it writes the whole page.
//!
//! A filtered page is encoded as any page, ends where the whole page does, and has of its partitions and live rows
//! those that pass. It has no deletions, so nothing may be merged with it: it is for showing only.

use std::ops::Range;

use super::{HAS_STATIC, HEADER_BYTES, PAGE_VERSION, PageEnd, TAG_PARTITION, seal};
use crate::cursor::ClusteredRow;
use crate::raw::{Raw, put_v};
use crate::row::RowRef;
use crate::row_filter::RowFilter;

/// A page after filtering.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilteredPage {
    /// The partitions and rows that pass, as an encoded page.
    pub page: Vec<u8>,
    /// Counts of the whole page.
    pub whole: WholePage,
    /// Key of the last partition that was scanned.
    pub last_key: Option<Vec<u8>>,
}

/// Counts of a whole page of which only a part is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WholePage {
    /// Its live rows, as its header counts them.
    pub live_rows: u32,
    /// Its tombstones, as a reader counts them: dead cells, rows that are deletions only, markers.
    pub tombstones: u32,
    /// Its encoded bytes.
    pub bytes: u64,
    /// Partitions with something to show.
    pub partitions: u64,
    /// Live rows that did not pass, of partitions that did.
    pub dropped_rows: u64,
    /// Partitions that did not pass.
    pub dropped_partitions: u64,
    /// Bytes of the filtered-out partitions and rows.
    pub dropped_bytes: u64,
}

/// The current partition, in the bytes of the whole page.
pub(super) struct Place<'a> {
    out: &'a [u8],
    key: &'a [u8],
    /// The static row, with its length and as one, when it is live.
    static_row: Option<(&'a [u8], RowRef<'a>)>,
}

impl<'a> Place<'a> {
    /// `static_at`: where its static row stands, when it is live.
    pub(super) fn new(out: &'a [u8], key: &'a [u8], static_at: Option<&Range<usize>>) -> Place<'a> {
        let static_row = static_at.and_then(|at| {
            let sized = out.get(at.clone())?;
            Some((sized, RowRef::trusted(Raw::new(sized).sized()?)))
        });
        Place { out, key, static_row }
    }
}

/// Filter state and output while a page is written.
pub(super) struct Kept<'s> {
    filter: &'s dyn RowFilter,
    out: Vec<u8>,
    rows: u32,
    /// True if the current partition passes the filter; `None`: not checked yet.
    passes: Option<bool>,
    /// It stands in `out`.
    is_put: bool,
    counts: WholePage,
}

impl<'s> Kept<'s> {
    pub(super) fn new(filter: &'s dyn RowFilter) -> Kept<'s> {
        let mut out = vec![PAGE_VERSION];
        out.resize(HEADER_BYTES, 0);
        let counts = WholePage::default();
        Kept { filter, out, rows: 0, passes: None, is_put: false, counts }
    }

    pub(super) fn partition(&mut self) {
        (self.passes, self.is_put) = (None, false);
    }

    /// Adds a live row, which `place.out` holds from `at` on.
    #[inline]
    pub(super) fn row(&mut self, place: &Place<'_>, row: ClusteredRow<'_>, at: usize) {
        let ClusteredRow { clustering, row } = row;
        if !self.passes(place) {
            return;
        }
        if !self.filter.keeps_row(clustering, row) {
            self.counts.dropped_rows += 1;
            self.counts.dropped_bytes += (clustering.len() + row.bytes().len()) as u64;
            return;
        }
        self.put_partition(place);
        self.out.extend_from_slice(place.out.get(at..).unwrap_or_default());
        self.rows = self.rows.saturating_add(1);
    }

    /// A partition with a live static row is over, which is shown though none of its rows is.
    pub(super) fn static_alone(&mut self, place: &Place<'_>) {
        if self.passes(place) {
            self.put_partition(place);
        }
    }

    #[inline]
    fn passes(&mut self, place: &Place<'_>) -> bool {
        match self.passes {
            Some(passes) => passes,
            None => self.look_at(place),
        }
    }

    fn look_at(&mut self, place: &Place<'_>) -> bool {
        let static_row = place.static_row.as_ref().map(|(_, row)| *row);
        let passes = self.filter.keeps_partition(place.key, static_row);
        self.passes = Some(passes);
        self.counts.partitions += 1;
        if !passes {
            let bytes = place.key.len() + static_row.map_or(0, |row| row.bytes().len());
            self.counts.dropped_partitions += 1;
            self.counts.dropped_bytes += bytes as u64;
        }
        passes
    }

    fn put_partition(&mut self, place: &Place<'_>) {
        if std::mem::replace(&mut self.is_put, true) {
            return;
        }
        let out = &mut self.out;
        out.push(TAG_PARTITION);
        put_v(out, place.key.len() as u64);
        out.extend_from_slice(place.key);
        match &place.static_row {
            None => out.push(0),
            Some((sized, _)) => {
                out.push(HAS_STATIC);
                out.extend_from_slice(sized);
            }
        }
    }

    /// The page, of a whole page with these live rows, tombstones and bytes.
    pub(super) fn finish(
        mut self,
        end: PageEnd<'_>,
        whole: WholePage,
        last_key: Option<Vec<u8>>,
    ) -> FilteredPage {
        seal(&mut self.out, end, self.rows, false);
        let WholePage { live_rows, tombstones, bytes, .. } = whole;
        let whole = WholePage { live_rows, tombstones, bytes, ..self.counts };
        FilteredPage { page: self.out, whole, last_key }
    }
}
