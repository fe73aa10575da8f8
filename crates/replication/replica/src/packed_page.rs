//! Pages of packed rows that cross from one shard to another.
//!
//! Bytes of a page: `partition*`, each `tag 1 · token i64 · key length u32 · key · static length u32
//! (u32::MAX = none) · static row`, then `tag 2 · clustering length u32 · clustering · row length
//! u32 · row` for each row. Trusted inside
//! one process; what another node sends is checked first ([`crate::scan_page`]).
//!
//! With a filter a page has only the rows that pass it: no other row is copied or sent. Such a page may end, even
//! empty, because of the work done for it. Its end is stored beside its rows.

use data::command::ReadCommand;
use data::{FoldState, RowFilter, RowRef};
use stdx::Token;
use store::{Flow, Look, LookedAt, ReadStats, RowSink};

const PARTITION: u8 = 1;
const ROW: u8 = 2;
const NONE: u32 = u32::MAX;
/// Bytes that a skipped row or partition counts in addition to its own size.
pub const LEFT_OUT_OVERHEAD: usize = 32;

/// Number of tombstones after which the pages of replicas and of other shards end, unless a
/// client's page ends before: some milliseconds of work.
pub const TOMBSTONES_OF_A_PAGE: u32 = 10_000;

/// Bounds of one page that crosses shards.
#[derive(Clone, Copy, Debug)]
pub struct PageLimit {
    /// At most this many rows.
    pub rows: usize,
    /// Stop after the row that crosses this many bytes.
    pub bytes: usize,
    /// Stop after so many bytes of rows that a filter leaves out: some milliseconds of work. The
    /// requester can then time out, and a shard does not read on for a requester that has enough
    /// rows.
    pub left_out: usize,
    /// Stop after so many tombstones, at least 1.
    pub tombstones: u32,
}

impl Default for PageLimit {
    fn default() -> Self {
        PageLimit {
            rows: usize::MAX,
            bytes: 1 << 20,
            left_out: 4 << 20,
            tombstones: TOMBSTONES_OF_A_PAGE,
        }
    }
}

/// A position in a read: a row of a partition, or its end.
#[derive(Clone, Copy, Debug)]
pub struct RowPosition<'a> {
    /// Token of the partition.
    pub token: Token,
    /// Its key.
    pub key: &'a [u8],
    /// The row; `None`: the whole partition lies before.
    pub clustering: Option<&'a [u8]>,
}

/// A page of rows in packed form.
#[derive(Debug, Default)]
pub struct PackedPage {
    /// Its items.
    pub bytes: Vec<u8>,
    /// The page stopped at a limit: more may follow its end.
    pub more: bool,
    /// Position of its end; set when more may follow.
    pub end: Option<PageEnd>,
    /// Rows in it.
    pub rows: usize,
    /// Cost of building the page.
    pub stats: ReadStats,
    /// Tombstones, and the data hidden by them, that were read when the page ended because of its
    /// tombstones.
    pub scanned: u32,
    /// State of the fold that is not a result yet.
    pub state: Option<FoldState>,
    /// The same state encoded, from another node.
    pub encoded: Option<Vec<u8>>,
    /// A fold could not be done.
    pub is_failed: bool,
}

/// End of a page: everything up to and including this position was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageEnd {
    /// Token of its last partition.
    pub token: Token,
    /// The key.
    pub key: Vec<u8>,
    /// A row of the partition, or a position where no row exists; `None`: the whole partition was
    /// read.
    pub clustering: Option<Vec<u8>>,
    /// The page has items of the partition, so that the partition is not returned again for its
    /// static row alone.
    pub is_shown: bool,
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
    #[inline]
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

    /// Ends the page after a row, or after a whole partition, when it has reached a limit. `passed`
    /// is the work done for rows that are not in it, see [`PageLimit::left_out`].
    #[inline]
    pub fn flow(&mut self, limit: &PageLimit, passed: usize, at: RowPosition<'_>) -> Flow {
        if self.rows < limit.rows && self.bytes.len() < limit.bytes && passed < limit.left_out {
            return Flow::Continue;
        }
        self.end_at(at, true);
        Flow::Stop
    }

    /// Ends it there.
    fn end_at(&mut self, at: RowPosition<'_>, is_shown: bool) {
        self.more = true;
        let RowPosition { token, key, clustering } = at;
        let (key, clustering) = (key.to_vec(), clustering.map(<[u8]>::to_vec));
        self.end = Some(PageEnd { token, key, clustering, is_shown });
    }

    /// Ends the page at the read's position when it has met as many tombstones as a page may.
    pub(crate) fn look(&mut self, limit: &PageLimit, upto: &LookedAt<'_>, is_shown: bool) -> Look {
        if upto.scanned < limit.tombstones {
            return Look::Continue;
        }
        self.scanned = upto.scanned;
        let LookedAt { token, key, clustering, .. } = *upto;
        self.end_at(RowPosition { token, key, clustering }, is_shown);
        Look::Stop
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

pub fn put_partition(out: &mut Vec<u8>, token: Token, key: &[u8], static_row: Option<&[u8]>) {
    out.push(PARTITION);
    out.extend_from_slice(&token.0.to_le_bytes());
    put(out, Some(key));
    put(out, static_row);
}

pub fn put_row(out: &mut Vec<u8>, clustering: &[u8], row: &[u8]) {
    out.push(ROW);
    put(out, Some(clustering));
    put(out, Some(row));
}

/// Collects rows into a page.
#[derive(Debug)]
pub struct PageWriter<'f> {
    page: PackedPage,
    limit: PageLimit,
    filter: Option<&'f dyn RowFilter>,
    /// A partition is wanted though no row of it is.
    wants_static: bool,
    /// The current partition.
    token: Token,
    key: Vec<u8>,
    static_row: Option<Vec<u8>>,
    /// It is in the page already.
    is_put: bool,
    /// It was announced and is not over.
    is_inside: bool,
    /// Bytes that the filter left out.
    left_out: usize,
}

impl<'f> PageWriter<'f> {
    /// An empty page with that limit, of all rows.
    pub fn new(limit: PageLimit) -> PageWriter<'f> {
        PageWriter {
            page: PackedPage::default(),
            limit,
            filter: None,
            wants_static: false,
            token: Token::MIN,
            key: Vec::new(),
            static_row: None,
            is_put: false,
            is_inside: false,
            left_out: 0,
        }
    }

    /// Keeps only the rows of a command that pass the filter.
    #[must_use]
    pub fn filtered(
        mut self,
        filter: Option<&'f dyn RowFilter>,
        command: &ReadCommand,
    ) -> PageWriter<'f> {
        (self.filter, self.wants_static) = (filter, command.wants_static);
        self
    }

    /// It has reached a limit.
    pub fn is_full(&self) -> bool {
        self.page.more
    }

    /// The page. `stats`: what reading for it has cost.
    pub fn finish(self, mut stats: ReadStats) -> PackedPage {
        stats.filtered = self.page.stats.filtered;
        PackedPage { stats, ..self.page }
    }

    /// Ends the page after this row, or after the current partition, when it has reached a limit.
    #[inline]
    fn flow(&mut self, clustering: Option<&[u8]>) -> Flow {
        let at = RowPosition { token: self.token, key: &self.key, clustering };
        self.page.flow(&self.limit, self.left_out, at)
    }

    /// Counts bytes that are left out.
    #[inline]
    fn leave_out(&mut self, bytes: usize) {
        self.left_out = self.left_out.saturating_add(bytes + LEFT_OUT_OVERHEAD);
        let filtered = &mut self.page.stats.filtered;
        filtered.bytes = filtered.bytes.saturating_add(bytes as u64);
    }
}

impl RowSink for PageWriter<'_> {
    fn partition(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        self.token = token;
        self.is_inside = true;
        self.key.clear();
        self.key.extend_from_slice(key);
        let static_row = static_row.map(|row| row.bytes());
        let Some(filter) = self.filter else {
            put_partition(&mut self.page.bytes, token, key, static_row);
            return Flow::Continue;
        };
        if !filter.keeps_partition(key, static_row.map(RowRef::trusted)) {
            self.leave_out(key.len() + static_row.map_or(0, <[u8]>::len));
            self.page.stats.filtered.partitions += 1;
            self.is_put = true;
            return Flow::SkipPartition;
        }
        self.is_put = self.wants_static && static_row.is_some();
        match self.is_put {
            true => put_partition(&mut self.page.bytes, token, key, static_row),
            false => self.static_row = static_row.map(<[u8]>::to_vec),
        }
        Flow::Continue
    }

    #[inline]
    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        if let Some(filter) = self.filter {
            if !filter.keeps_row(clustering, row) {
                self.leave_out(clustering.len() + row.bytes().len());
                self.page.stats.filtered.rows += 1;
                return self.flow(Some(clustering));
            }
            if !std::mem::replace(&mut self.is_put, true) {
                let static_row = self.static_row.as_deref();
                put_partition(&mut self.page.bytes, self.token, &self.key, static_row);
            }
        }
        put_row(&mut self.page.bytes, clustering, row.bytes());
        self.page.rows += 1;
        self.flow(Some(clustering))
    }

    fn looked_at(&mut self, upto: LookedAt<'_>) -> Look {
        let is_shown = self.is_inside && self.key == upto.key;
        self.page.look(&self.limit, &upto, is_shown)
    }

    fn tombstones_per_look(&self) -> u32 {
        self.limit.tombstones
    }

    fn partition_end(&mut self) -> Flow {
        self.is_inside = false;
        if self.filter.is_some() && !self.is_put {
            let of_static = self.static_row.as_ref().map_or(0, Vec::len);
            self.leave_out(self.key.len() + of_static);
        }
        self.flow(None)
    }
}
