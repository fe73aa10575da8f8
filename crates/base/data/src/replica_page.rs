//! Replica pages: the result of a read on one replica, tombstones included.
//!
//! Owns: the encoding (`docs/formats/replica-page.md`), [`PageWriter`] which cuts a page, and
//! [`ReplicaPage`], the checked view. Never: merging (see [`crate::page_cursor`] for the cursor over
//! pages), messages.
//!
//! INV-page-1: one content has one encoding: rows are packed relative to a base that follows from
//! their content, markers of one position are one, a marker changes the open deletion, a partition
//! holds something. So a hash of the bytes is a digest of the content.
//! INV-page-2: everything of the read up to the page's end is in the page, nothing after it; only
//! partitions marked as cut are incomplete.

mod filtered;
mod writer;

use std::cmp::Ordering;

use stdx::{DeletionSeconds, TimestampMicros, Token};

use crate::clustering::BoundRef;
use crate::deletion::DeletionTime;
use crate::mutation::KEY_BYTES_MAX;
use crate::page_check::Check;
use crate::raw::{Raw, put_v};
use crate::row::RowRef;
use crate::shape::TableShape;

pub use filtered::{FilteredPage, WholePage};
pub use writer::PageWriter;

/// The version this build writes.
pub const PAGE_VERSION: u8 = 1;
/// Version, kind of the end, live rows, length of the items.
pub(crate) const HEADER_BYTES: usize = 10;

const END_EXHAUSTED: u8 = 0;
const END_AFTER: u8 = 1;
const END_INSIDE: u8 = 2;
const HAS_CUT_PARTITIONS: u8 = 0x80;

pub(crate) const TAG_PARTITION: u8 = 1;
pub(crate) const TAG_ROW: u8 = 2;
pub(crate) const TAG_MARKER: u8 = 3;
pub(crate) const TAG_CUT: u8 = 4;

pub(crate) const HAS_DELETION: u8 = 1;
pub(crate) const HAS_STATIC: u8 = 2;

/// End of the part of the read that a page covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageEnd<'a> {
    /// To the end of the requested range.
    Exhausted,
    /// To the end of this partition.
    After {
        /// Its token.
        token: Token,
        /// Serialised key.
        key: &'a [u8],
    },
    /// To this row of this partition, itself included (in read order). The row need not exist: it
    /// may be a position between two range deletions.
    Inside {
        /// The partition's token.
        token: Token,
        /// Serialised key.
        key: &'a [u8],
        /// Serialised clustering of the row.
        clustering: &'a [u8],
    },
}

impl PageEnd<'_> {
    /// The partition it lies in; `None` when there is no end before that of the read.
    pub fn partition(&self) -> Option<(Token, &[u8])> {
        match self {
            PageEnd::Exhausted => None,
            PageEnd::After { token, key } | PageEnd::Inside { token, key, .. } => {
                Some((*token, key))
            }
        }
    }

    /// Order of two ends of one read: which comes first.
    pub fn compare(&self, other: &PageEnd<'_>, shape: &TableShape, reversed: bool) -> Ordering {
        let (a, b) = match (self.partition(), other.partition()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Greater,
            (Some(_), None) => return Ordering::Less,
            (Some(a), Some(b)) => (a, b),
        };
        a.cmp(&b).then_with(|| match (self, other) {
            (PageEnd::Inside { clustering: a, .. }, PageEnd::Inside { clustering: b, .. }) => {
                in_order(shape.clustering().compare(a, b), reversed)
            }
            (PageEnd::Inside { .. }, _) => Ordering::Less,
            (_, PageEnd::Inside { .. }) => Ordering::Greater,
            _ => Ordering::Equal,
        })
    }
}

pub(crate) fn in_order(order: Ordering, reversed: bool) -> Ordering {
    if reversed { order.reverse() } else { order }
}

/// The bound directly after a row in read order.
pub(crate) fn behind(clustering: &[u8], reversed: bool) -> BoundRef<'_> {
    BoundRef { prefix: clustering, after: !reversed }
}

/// Limits of a page. All replicas of one read use the same limits, and limits depend only on the
/// content of the page, so that replicas with equal content cut at the same position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimits {
    /// Rows that are live at the command's `now`; at least 1.
    pub rows: u32,
    /// Live rows of one partition (PER PARTITION LIMIT, DISTINCT); rows after them are skipped and
    /// the partition marked as cut. `u32::MAX` = no such limit.
    pub rows_per_partition: u32,
    /// Bytes: the page ends after the row or partition that crosses them, or at the next position
    /// after a marker that does.
    pub bytes: usize,
    /// Tombstones: the page ends as for bytes. Dead cells, rows that are deletions only, markers
    /// and deletions of partitions count. Skipped data fills nothing and differs between replicas:
    /// tombstones old enough to be left out, and data that they hide. The page ends after
    /// [`PASSED_TIMES`] as many of both. `u32::MAX` = no such limit.
    pub tombstones: u32,
}

/// The limit of skipped items, as a multiple of the tombstones that a page may have.
pub const PASSED_TIMES: u32 = 4;

impl Default for PageLimits {
    fn default() -> Self {
        let tombstones = u32::MAX;
        PageLimits { rows: u32::MAX, rows_per_partition: u32::MAX, bytes: 1 << 20, tombstones }
    }
}

/// Next request of a [`PageWriter`] to its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageFlow {
    /// The next item.
    Continue,
    /// Nothing more of this partition, not even its end.
    SkipPartition,
    /// Nothing more: the page is full.
    Full,
}

/// Why bytes are not a replica page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// Written by a version that this build does not read.
    #[error("replica page has the version {0}, this node reads version 1")]
    Version(u8),
    /// The bytes cannot be a page.
    #[error("replica page is malformed: {0}")]
    Malformed(&'static str),
}

/// One undigested item of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RawItem<'a> {
    Partition {
        token: Token,
        key: &'a [u8],
        deletion: DeletionTime,
        static_row: Option<RowRef<'a>>,
    },
    Row {
        clustering: &'a [u8],
        row: RowRef<'a>,
    },
    Marker {
        position: BoundRef<'a>,
        open: DeletionTime,
    },
    Cut,
}

/// Walks the items of a page's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawItems<'a> {
    raw: Raw<'a>,
}

fn read_deletion(raw: &mut Raw<'_>) -> Option<DeletionTime> {
    let timestamp = TimestampMicros(raw.i64()?);
    let deletion = DeletionTime { timestamp, local: DeletionSeconds(raw.i64()?) };
    (!deletion.is_live()).then_some(deletion)
}

impl<'a> RawItems<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// The next item; `None` when there is none or it is cut short.
    pub(crate) fn read(&mut self) -> Option<RawItem<'a>> {
        let raw = &mut self.raw;
        match raw.u8()? {
            TAG_PARTITION => {
                let key = raw.sized()?;
                let flags = raw.u8()?;
                if key.len() > KEY_BYTES_MAX || flags & !(HAS_DELETION | HAS_STATIC) != 0 {
                    return None;
                }
                let mut deletion = DeletionTime::LIVE;
                if flags & HAS_DELETION != 0 {
                    deletion = read_deletion(raw)?;
                }
                let mut static_row = None;
                if flags & HAS_STATIC != 0 {
                    static_row = Some(RowRef::trusted(raw.sized()?));
                }
                let token = codec::token_of(key);
                Some(RawItem::Partition { token, key, deletion, static_row })
            }
            TAG_ROW => {
                let clustering = raw.sized()?;
                Some(RawItem::Row { clustering, row: RowRef::trusted(raw.sized()?) })
            }
            TAG_MARKER => {
                let after = match raw.u8()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                };
                let position = BoundRef { prefix: raw.sized()?, after };
                let open = match raw.u8()? {
                    0 => DeletionTime::LIVE,
                    1 => read_deletion(raw)?,
                    _ => return None,
                };
                Some(RawItem::Marker { position, open })
            }
            TAG_CUT => Some(RawItem::Cut),
            _ => None,
        }
    }
}

/// View of an encoded page.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaPage<'a> {
    bytes: &'a [u8],
    items: &'a [u8],
    end: PageEnd<'a>,
    live_rows: u32,
    has_cut_partitions: bool,
}

impl<'a> ReplicaPage<'a> {
    /// A view of bytes this process encoded or [`ReplicaPage::parse`] accepted: reads the header
    /// and the end only.
    ///
    /// # Errors
    /// `Version`, `Malformed` when even that does not hold.
    pub fn open(bytes: &'a [u8]) -> Result<ReplicaPage<'a>, PageError> {
        let version = bytes.first().copied().unwrap_or(0);
        if version != PAGE_VERSION {
            return Err(PageError::Version(version));
        }
        Self::read_frame(bytes).ok_or(PageError::Malformed("its header or end is cut short"))
    }

    fn read_frame(bytes: &'a [u8]) -> Option<ReplicaPage<'a>> {
        let mut raw = Raw::new(bytes);
        raw.u8()?;
        let kind = raw.u8()?;
        let live_rows = raw.u32()?;
        let length = usize::try_from(raw.u32()?).ok()?;
        let items = raw.bytes(length)?;
        let end = match kind & !HAS_CUT_PARTITIONS {
            END_EXHAUSTED => PageEnd::Exhausted,
            END_AFTER => {
                let key = raw.sized()?;
                PageEnd::After { token: codec::token_of(key), key }
            }
            END_INSIDE => {
                let key = raw.sized()?;
                PageEnd::Inside { token: codec::token_of(key), key, clustering: raw.sized()? }
            }
            _ => return None,
        };
        let has_cut_partitions = kind & HAS_CUT_PARTITIONS != 0;
        raw.is_empty().then_some(ReplicaPage { bytes, items, end, live_rows, has_cut_partitions })
    }

    /// Checks bytes from a peer whole: every length, row and bound, the order of everything and
    /// that nothing is left over. `reversed` is the command's.
    ///
    /// # Errors
    /// `Version`; `Malformed`, which names the violated rule.
    pub fn parse(
        bytes: &'a [u8],
        shape: &TableShape,
        reversed: bool,
    ) -> Result<ReplicaPage<'a>, PageError> {
        let page = ReplicaPage::open(bytes)?;
        Check::new(shape, reversed).page(&page).map_err(PageError::Malformed)?;
        Ok(page)
    }

    /// The encoded bytes; a hash of them is a digest of the content (INV-page-1).
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The encoded items without header and end: pages of the same content are equal in them,
    /// whatever their limits were.
    pub fn content(&self) -> &'a [u8] {
        self.items
    }

    /// The items of all partitions but the last one, and those of the last one.
    pub fn content_before_last_partition(&self) -> (&'a [u8], &'a [u8]) {
        let mut items = self.items();
        let mut last = 0;
        loop {
            let at = self.items.len() - items.raw.rest().len();
            match items.read() {
                Some(RawItem::Partition { .. }) => last = at,
                Some(_) => {}
                None => return self.items.split_at_checked(last).unwrap_or((self.items, &[])),
            }
        }
    }

    /// Returns the end of the page.
    pub fn end(&self) -> PageEnd<'a> {
        self.end
    }

    /// Returns true if the replica has nothing after this page.
    pub fn is_exhausted(&self) -> bool {
        self.end == PageEnd::Exhausted
    }

    /// Rows live at the command's `now`, as the replica counted them.
    pub fn live_rows(&self) -> u32 {
        self.live_rows
    }

    /// Returns true if a partition was cut by the limit per partition.
    pub fn has_cut_partitions(&self) -> bool {
        self.has_cut_partitions
    }

    /// The partitions that it holds something of, in order.
    pub fn partitions(&self) -> impl Iterator<Item = (Token, &'a [u8])> + use<'a> {
        let mut items = self.items();
        std::iter::from_fn(move || {
            loop {
                if let RawItem::Partition { token, key, .. } = items.read()? {
                    return Some((token, key));
                }
            }
        })
    }

    pub(crate) fn items(&self) -> RawItems<'a> {
        RawItems { raw: Raw::new(self.items) }
    }
}

/// Appends a page's end to its items, which follow the room for the header, and fills in the
/// header.
fn seal(out: &mut Vec<u8>, end: PageEnd<'_>, live_rows: u32, has_cut_partitions: bool) {
    let items = u32::try_from(out.len().saturating_sub(HEADER_BYTES)).unwrap_or(u32::MAX);
    stdx::invariant!(items != u32::MAX, "replica page of 4 GiB or more");
    let mut sized = |bytes: &[u8]| {
        put_v(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    };
    let mut kind = match end {
        PageEnd::Exhausted => END_EXHAUSTED,
        PageEnd::After { key, .. } => {
            sized(key);
            END_AFTER
        }
        PageEnd::Inside { key, clustering, .. } => {
            sized(key);
            sized(clustering);
            END_INSIDE
        }
    };
    if has_cut_partitions {
        kind |= HAS_CUT_PARTITIONS;
    }
    match out.get_mut(1..HEADER_BYTES) {
        Some(header) => {
            let [live, length] = [live_rows.to_le_bytes(), items.to_le_bytes()];
            let fields = [kind].into_iter().chain(live).chain(length);
            header.iter_mut().zip(fields).for_each(|(slot, byte)| *slot = byte);
        }
        None => stdx::invariant!(false, "replica page of {} bytes has no header", out.len()),
    }
    stdx::debug_invariant!(
        ReplicaPage::open(out).is_ok_and(|page| page.live_rows() == live_rows),
        "replica page: what was encoded cannot be opened"
    );
}

/// Clustering order of two rows or markers.
pub(crate) fn compare_raw(shape: &TableShape, a: &RawItem<'_>, b: &RawItem<'_>) -> Ordering {
    let cmp = shape.clustering();
    match (a, b) {
        (RawItem::Row { clustering: a, .. }, RawItem::Row { clustering: b, .. }) => {
            cmp.compare(a, b)
        }
        (RawItem::Row { clustering, .. }, RawItem::Marker { position, .. }) => {
            cmp.compare_to_bound(clustering, *position)
        }
        (RawItem::Marker { position, .. }, RawItem::Row { clustering, .. }) => {
            cmp.compare_to_bound(clustering, *position).reverse()
        }
        (RawItem::Marker { position: a, .. }, RawItem::Marker { position: b, .. }) => {
            cmp.compare_bounds(*a, *b)
        }
        _ => Ordering::Equal,
    }
}
