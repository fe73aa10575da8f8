//! Mutations: bind produces them, and commit log, memtable and replicas carry them. One encoding,
//! built once per write.
//!
//! Layout, version 1 (`v` = LEB128; see `docs/formats/mutation.md`):
//!
//! ```text
//! version u8 · table id 16 · schema version v · key length v · key · flags u8
//! · [partition deletion ts i64 · local i64] · [static row length v · row]
//! · row count v · (clustering length v · clustering · row length v · row)*
//! · tombstone count v · (start after u8 · prefix · end after u8 · prefix · ts i64 · local i64)*
//! ```
//!
//! INV-mutation-1: rows ascend by clustering and are unique (the builder's caller sorts).

use stdx::{DeletionSeconds, TableId, TimestampMicros, Uuid};

use crate::clustering::{self, BoundRef};
use crate::deletion::DeletionTime;
use crate::raw::{Raw, put_v};
use crate::row::RowRef;

/// The version this build writes.
pub const MUTATION_VERSION: u8 = 1;
/// Largest partition key, as in Cassandra (`FBUtilities.MAX_UNSIGNED_SHORT`).
pub const KEY_BYTES_MAX: usize = 65_535;

const HAS_DELETION: u8 = 1;
const HAS_STATIC: u8 = 2;

/// A range tombstone: everything between two bounds, written at or before its timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeTombstoneRef<'a> {
    /// Where it starts.
    pub start: BoundRef<'a>,
    /// Where it ends.
    pub end: BoundRef<'a>,
    /// The deletion of the range.
    pub deletion: DeletionTime,
}

/// Appends one encoded mutation to a byte buffer. Call order: `new`, then at most once each
/// [`deletion`](Self::deletion), [`static_row`](Self::static_row), [`rows`](Self::rows),
/// [`range_tombstones`](Self::range_tombstones), then [`finish`](Self::finish).
pub struct MutationBuilder<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    flags_at: usize,
    stage: u8,
}

impl<'o> MutationBuilder<'o> {
    /// Starts a mutation of one partition. `key` is the serialised partition key.
    pub fn new(out: &'o mut Vec<u8>, table: TableId, schema_version: u64, key: &[u8]) -> Self {
        stdx::invariant!(key.len() <= KEY_BYTES_MAX, "mutation: key of {} bytes", key.len());
        let start = out.len();
        out.push(MUTATION_VERSION);
        out.extend_from_slice(table.0.as_bytes());
        put_v(out, schema_version);
        put_v(out, key.len() as u64);
        out.extend_from_slice(key);
        let flags_at = out.len();
        out.push(0);
        MutationBuilder { out, start, flags_at, stage: 0 }
    }

    fn advance(&mut self, stage: u8, flag: u8) {
        stdx::invariant!(self.stage < stage, "mutation: parts out of order");
        self.stage = stage;
        match self.out.get_mut(self.flags_at) {
            Some(flags) => *flags |= flag,
            None => stdx::invariant!(false, "mutation: flags at {} are cut off", self.flags_at),
        }
    }

    /// Deletion of the whole partition.
    pub fn deletion(&mut self, deletion: DeletionTime) {
        self.advance(1, HAS_DELETION);
        self.out.extend_from_slice(&deletion.timestamp.0.to_le_bytes());
        self.out.extend_from_slice(&deletion.local.0.to_le_bytes());
    }

    /// The static row, packed.
    pub fn static_row(&mut self, row: RowRef<'_>) {
        self.advance(2, HAS_STATIC);
        put_v(self.out, row.bytes().len() as u64);
        self.out.extend_from_slice(row.bytes());
    }

    /// Rows in clustering order.
    pub fn rows<'a>(&mut self, rows: impl ExactSizeIterator<Item = (&'a [u8], RowRef<'a>)>) {
        self.advance(3, 0);
        let announced = rows.len();
        put_v(self.out, announced as u64);
        let mut written = 0;
        let mut before: Option<&[u8]> = None;
        for (clustering, row) in rows {
            stdx::debug_invariant!(
                before.replace(clustering) != Some(clustering),
                "INV-mutation-1: row {clustering:?} twice"
            );
            put_v(self.out, clustering.len() as u64);
            self.out.extend_from_slice(clustering);
            put_v(self.out, row.bytes().len() as u64);
            self.out.extend_from_slice(row.bytes());
            written += 1;
        }
        stdx::debug_invariant!(
            written == announced,
            "mutation: {written} of {announced} rows written"
        );
    }

    /// Range tombstones, in any order.
    pub fn range_tombstones<'a>(
        &mut self,
        tombstones: impl ExactSizeIterator<Item = RangeTombstoneRef<'a>>,
    ) {
        if self.stage < 3 {
            self.rows(std::iter::empty());
        }
        self.advance(4, 0);
        let announced = tombstones.len();
        put_v(self.out, announced as u64);
        let mut written = 0;
        for t in tombstones {
            written += 1;
            for bound in [t.start, t.end] {
                self.out.push(u8::from(bound.after));
                put_v(self.out, bound.prefix.len() as u64);
                self.out.extend_from_slice(bound.prefix);
            }
            self.out.extend_from_slice(&t.deletion.timestamp.0.to_le_bytes());
            self.out.extend_from_slice(&t.deletion.local.0.to_le_bytes());
        }
        stdx::invariant!(
            written == announced,
            "mutation: {written} of {announced} range tombstones written"
        );
    }

    /// Ends the mutation and says where it lies in the buffer.
    pub fn finish(mut self) -> std::ops::Range<usize> {
        if self.stage < 4 {
            self.range_tombstones(std::iter::empty());
        }
        self.start..self.out.len()
    }
}

/// View of an encoded mutation.
#[derive(Clone, Copy, Debug)]
pub struct MutationRef<'a> {
    /// The table.
    pub table: TableId,
    /// The table's schema version the writer knew.
    pub schema_version: u64,
    /// Serialised partition key.
    pub key: &'a [u8],
    /// Deletion of the whole partition, or [`DeletionTime::LIVE`].
    pub deletion: DeletionTime,
    /// The static row.
    pub static_row: Option<RowRef<'a>>,
    rows: Raw<'a>,
    row_count: u64,
    bytes: &'a [u8],
}

fn read_bound<'a>(raw: &mut Raw<'a>) -> Option<BoundRef<'a>> {
    let after = match raw.u8()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    Some(BoundRef { prefix: raw.sized()?, after })
}

fn read_tombstone<'a>(raw: &mut Raw<'a>) -> Option<RangeTombstoneRef<'a>> {
    let (start, end) = (read_bound(raw)?, read_bound(raw)?);
    let timestamp = TimestampMicros(raw.i64()?);
    let deletion = DeletionTime { timestamp, local: DeletionSeconds(raw.i64()?) };
    Some(RangeTombstoneRef { start, end, deletion })
}

impl<'a> MutationRef<'a> {
    /// A view of bytes this process encoded or [`MutationRef::parse`] accepted: reads the header
    /// only. `None` when even that is not a mutation of a known version.
    pub fn open(bytes: &'a [u8]) -> Option<MutationRef<'a>> {
        let mut raw = Raw::new(bytes);
        if raw.u8()? != MUTATION_VERSION {
            return None;
        }
        let table = TableId(Uuid::from_slice(raw.bytes(16)?).ok()?);
        let schema_version = raw.v()?;
        let key = raw.sized()?;
        if key.len() > KEY_BYTES_MAX {
            return None;
        }
        let flags = raw.u8()?;
        if flags & !(HAS_DELETION | HAS_STATIC) != 0 {
            return None;
        }
        let mut deletion = DeletionTime::LIVE;
        if flags & HAS_DELETION != 0 {
            deletion.timestamp = TimestampMicros(raw.i64()?);
            deletion.local = DeletionSeconds(raw.i64()?);
        }
        let static_row = match flags & HAS_STATIC {
            0 => None,
            _ => Some(RowRef::trusted(raw.sized()?)),
        };
        let row_count = raw.v()?;
        Some(MutationRef {
            table,
            schema_version,
            key,
            deletion,
            static_row,
            rows: raw,
            row_count,
            bytes,
        })
    }

    /// Checks bytes from outside whole: every row, bound and length, and that nothing is left over.
    /// `clustering_count` is the table's number of clustering columns.
    pub fn parse(bytes: &'a [u8], clustering_count: usize) -> Option<MutationRef<'a>> {
        let mutation = MutationRef::open(bytes)?;
        if let Some(row) = mutation.static_row {
            RowRef::parse(row.bytes())?;
        }
        let mut raw = mutation.rows;
        for _ in 0..mutation.row_count {
            if clustering::check(raw.sized()?, clustering_count)? != clustering_count {
                return None;
            }
            RowRef::parse(raw.sized()?)?;
        }
        for _ in 0..raw.v()? {
            let t = read_tombstone(&mut raw)?;
            clustering::check(t.start.prefix, clustering_count)?;
            clustering::check(t.end.prefix, clustering_count)?;
        }
        raw.is_empty().then_some(mutation)
    }

    /// The encoded bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Rows that the header announces.
    pub(crate) fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Rows with their clusterings, in clustering order.
    pub fn rows(&self) -> MutationRows<'a> {
        MutationRows { raw: self.rows, left: self.row_count }
    }

    /// Range tombstones, in the order they were given.
    pub fn range_tombstones(&self) -> impl Iterator<Item = RangeTombstoneRef<'a>> + use<'a> {
        let mut rows = self.rows();
        while rows.next().is_some() {}
        let mut raw = rows.raw;
        let count = raw.v().unwrap_or(0);
        (0..count).map_while(move |_| read_tombstone(&mut raw))
    }
}

/// Iterator over a mutation's rows: (clustering, row).
#[derive(Clone)]
pub struct MutationRows<'a> {
    raw: Raw<'a>,
    left: u64,
}

impl MutationRows<'_> {
    /// Returns true if range tombstones follow; valid only after the last row was read.
    pub fn has_range_tombstones(&self) -> bool {
        self.left == 0 && self.raw.rest().first().is_some_and(|count| *count != 0)
    }
}

impl<'a> Iterator for MutationRows<'a> {
    type Item = (&'a [u8], RowRef<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        match (self.raw.sized(), self.raw.sized()) {
            (Some(clustering), Some(row)) => Some((clustering, RowRef::trusted(row))),
            _ => stdx::invariant::broken(format_args!("mutation: row cut short")),
        }
    }
}
