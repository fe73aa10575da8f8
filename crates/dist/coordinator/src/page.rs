//! Pages of packed rows that cross from one shard to another.
//!
//! Bytes of a page: `partition*`, each `tag 1 · token i64 · key length u32 · key · static length u32
//! (u32::MAX = none) · static row`, then `tag 2 · clustering length u32 · clustering · row length
//! u32 · row` for each row. Made and read inside one process only, so it is trusted.

use data::RowRef;
use stdx::Token;
use store::{Flow, ReadStats, RowSink};

use crate::PageLimit;

const PARTITION: u8 = 1;
const ROW: u8 = 2;
const NONE: u32 = u32::MAX;

/// A page of rows in packed form.
#[derive(Clone, Debug, Default)]
pub struct PackedPage {
    pub(crate) bytes: Vec<u8>,
    /// The page stopped at its limit: there may be more after its last row.
    pub more: bool,
    /// What it cost to make.
    pub(crate) stats: ReadStats,
}

/// One item of a page.
#[derive(Clone, Copy, Debug)]
pub enum PageItem<'a> {
    /// A partition begins.
    Partition {
        /// Its token.
        token: Token,
        /// Its key.
        key: &'a [u8],
        /// Its live static row.
        static_row: Option<RowRef<'a>>,
    },
    /// A row of it.
    Row {
        /// Its clustering.
        clustering: &'a [u8],
        /// The row.
        row: RowRef<'a>,
    },
}

impl PackedPage {
    /// The item at byte `at` and where the next one begins; `None` at the end.
    pub fn item(&self, at: usize) -> Option<(PageItem<'_>, usize)> {
        let mut rest = self.bytes.get(at..)?;
        let before = rest.len();
        let tag = *take(&mut rest, 1)?.first()?;
        let item = if tag == PARTITION {
            let token = Token(i64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?));
            let key = sized(&mut rest)??;
            let static_row = sized(&mut rest)?.map(RowRef::trusted);
            PageItem::Partition { token, key, static_row }
        } else {
            let clustering = sized(&mut rest)??;
            PageItem::Row { clustering, row: RowRef::trusted(sized(&mut rest)??) }
        };
        Some((item, at + before - rest.len()))
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Holds nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

fn take<'a>(rest: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(n)?;
    *rest = tail;
    Some(head)
}

fn sized<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let n = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
    if n == NONE {
        return Some(None);
    }
    Some(Some(take(rest, n as usize)?))
}

fn put(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    let n = bytes.map_or(NONE, |b| u32::try_from(b.len()).unwrap_or(NONE));
    stdx::invariant!(bytes.is_none() || n != NONE, "page: a value of 4 GiB or more");
    out.extend_from_slice(&n.to_le_bytes());
    out.extend_from_slice(bytes.unwrap_or(&[]));
}

/// Collects rows into a page.
#[derive(Debug)]
pub struct PageWriter {
    page: PackedPage,
    limit: PageLimit,
    rows: usize,
}

impl PageWriter {
    /// An empty page with that limit.
    pub fn new(limit: PageLimit) -> PageWriter {
        PageWriter { page: PackedPage::default(), limit, rows: 0 }
    }

    /// The page.
    pub fn finish(self) -> PackedPage {
        self.page
    }

    fn flow(&mut self) -> Flow {
        if self.rows >= self.limit.rows || self.page.bytes.len() >= self.limit.bytes {
            self.page.more = true;
            return Flow::Stop;
        }
        Flow::Continue
    }
}

impl RowSink for PageWriter {
    fn partition(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        let out = &mut self.page.bytes;
        out.push(PARTITION);
        out.extend_from_slice(&token.0.to_le_bytes());
        put(out, Some(key));
        put(out, static_row.map(|r| r.bytes()));
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        let out = &mut self.page.bytes;
        out.push(ROW);
        put(out, Some(clustering));
        put(out, Some(row.bytes()));
        self.rows += 1;
        self.flow()
    }

    fn partition_end(&mut self) -> Flow {
        self.flow()
    }
}
