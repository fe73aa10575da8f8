//! Packed rows: the one in-memory form of a row.
//!
//! A packed row is an immutable byte run; memtable, cache, mutations and results all hold it, and
//! [`RowRef`] is a view of it. The clustering is *not* inside: its owner keeps it beside the run.
//! Layout (integers little-endian, `v` = LEB128, `z` = zigzag LEB128):
//!
//! ```text
//! flags u8 · base timestamp i64 · [ttl u32 · expires i64] · [deletion ts i64 · local i64] · column*
//! column  = id v · cell
//! cell    = flags u8 · [ts delta z] · [ttl v · expires z | local z] · [length v · value]
//! complex = flags u8 · nested length u32 · [deletion ts delta z · local z] · (path length v · path · cell)*
//! ```
//!
//! INV-row-1: columns ascend by id; nested cells ascend by path. See `docs/formats/mutation.md`.

use std::cmp::Ordering;

use stdx::{ColumnId, DeletionSeconds, TimestampMicros, TtlSeconds};

use crate::deletion::{DeletionTime, Liveness};
use crate::raw::{Raw, put_v, put_z};

const ROW_HAS_LIVENESS: u8 = 0x01;
const ROW_EXPIRES: u8 = 0x02;
const ROW_HAS_DELETION: u8 = 0x04;
const ROW_FLAGS: u8 = 0x07;

const CELL_TOMBSTONE: u8 = 0x01;
const CELL_EXPIRING: u8 = 0x02;
const CELL_SAME_TIMESTAMP: u8 = 0x04;
const CELL_SAME_EXPIRY: u8 = 0x08;
const CELL_COMPLEX: u8 = 0x10;
const COMPLEX_HAS_DELETION: u8 = 0x20;
const CELL_FLAGS: u8 = 0x0f;

/// One cell's value and times; fields as in Cassandra's `Cell`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellRef<'a> {
    /// Write timestamp.
    pub timestamp: TimestampMicros,
    /// Time to live; none for tombstones and cells that do not expire.
    pub ttl: TtlSeconds,
    /// Deletion time of a tombstone, expiry time of an expiring cell, `NONE` of a live one.
    pub local: DeletionSeconds,
    /// Serialised value; empty for tombstones.
    pub value: &'a [u8],
}

impl<'a> CellRef<'a> {
    /// A cell that does not expire.
    pub fn live(timestamp: TimestampMicros, value: &'a [u8]) -> Self {
        CellRef { timestamp, ttl: TtlSeconds::NONE, local: DeletionSeconds::NONE, value }
    }

    /// A cell that expires at `expires_at` (write time plus `ttl`).
    pub fn expiring(
        timestamp: TimestampMicros,
        ttl: TtlSeconds,
        expires_at: DeletionSeconds,
        value: &'a [u8],
    ) -> Self {
        CellRef { timestamp, ttl, local: expires_at, value }
    }

    /// A cell tombstone made at `local`.
    pub fn tombstone(timestamp: TimestampMicros, local: DeletionSeconds) -> Self {
        CellRef { timestamp, ttl: TtlSeconds::NONE, local, value: &[] }
    }

    /// Was written with a TTL (expired or not).
    pub fn is_expiring(&self) -> bool {
        self.ttl != TtlSeconds::NONE
    }

    /// Was written as a deletion.
    pub fn is_tombstone(&self) -> bool {
        self.local != DeletionSeconds::NONE && self.ttl == TtlSeconds::NONE
    }

    /// Has a visible value at `now`.
    pub fn is_live(&self, now: DeletionSeconds) -> bool {
        self.local == DeletionSeconds::NONE || (self.is_expiring() && now < self.local)
    }

    /// Compares by last-write-wins; `Equal` only for identical outcomes.
    /// Source: Cassandra `Cells.resolveRegular` (CASSANDRA-14592).
    pub fn reconcile(&self, other: &CellRef<'_>) -> Ordering {
        let by_time = self.timestamp.cmp(&other.timestamp);
        if by_time != Ordering::Equal {
            return by_time;
        }
        let self_dies = self.local != DeletionSeconds::NONE;
        let other_dies = other.local != DeletionSeconds::NONE;
        if self_dies != other_dies {
            return self_dies.cmp(&other_dies);
        }
        if self_dies {
            let by_kind = other.is_expiring().cmp(&self.is_expiring());
            if by_kind != Ordering::Equal {
                return by_kind;
            }
            let by_local = self.local.cmp(&other.local);
            if by_local != Ordering::Equal {
                return by_local;
            }
        }
        // The last comparison only makes the choice independent of the order of arguments.
        self.value.cmp(other.value).then(self.ttl.cmp(&other.ttl))
    }
}

/// A column of a row: one cell, or a collection of cells.
#[derive(Clone, Copy, Debug)]
pub enum ColumnRef<'a> {
    /// One cell.
    Simple(CellRef<'a>),
    /// Many cells under one deletion.
    Complex(ComplexRef<'a>),
}

/// A collection or user type stored as many cells.
#[derive(Clone, Copy, Debug)]
pub struct ComplexRef<'a> {
    /// Deletion of all cells at or before its timestamp (an overwrite of the whole collection).
    pub deletion: DeletionTime,
    base: i64,
    liveness: Liveness,
    cells: &'a [u8],
}

impl<'a> ComplexRef<'a> {
    /// Cells with their paths, in path order.
    pub fn cells(&self) -> ComplexCells<'a> {
        ComplexCells { raw: Raw::new(self.cells), base: self.base, liveness: self.liveness }
    }
}

/// Iterator over the cells of a complex column: (path, cell).
#[derive(Clone)]
pub struct ComplexCells<'a> {
    raw: Raw<'a>,
    base: i64,
    liveness: Liveness,
}

impl<'a> Iterator for ComplexCells<'a> {
    type Item = (&'a [u8], CellRef<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.raw.is_empty() {
            return None;
        }
        let path = self.raw.sized();
        let flags = self.raw.u8();
        let cell = read_cell(&mut self.raw, flags, self.base, &self.liveness);
        match (path, cell) {
            (Some(path), Some(cell)) => Some((path, cell)),
            _ => stdx::invariant::broken(format_args!("packed row: nested cell cut short")),
        }
    }
}

fn read_cell<'a>(
    raw: &mut Raw<'a>,
    flags: Option<u8>,
    base: i64,
    liveness: &Liveness,
) -> Option<CellRef<'a>> {
    let flags = flags?;
    if flags & !CELL_FLAGS != 0 {
        return None;
    }
    let timestamp =
        if flags & CELL_SAME_TIMESTAMP != 0 { base } else { base.wrapping_add(raw.z()?) };
    let (mut ttl, mut local) = (TtlSeconds::NONE, DeletionSeconds::NONE);
    if flags & CELL_EXPIRING != 0 {
        if flags & CELL_TOMBSTONE != 0 {
            return None;
        }
        if flags & CELL_SAME_EXPIRY != 0 {
            (ttl, local) = (liveness.ttl, liveness.expires_at);
        } else {
            ttl = TtlSeconds(i32::try_from(raw.v()?).ok()?);
            local = DeletionSeconds(raw.z()?);
        }
    } else if flags & CELL_TOMBSTONE != 0 {
        local = DeletionSeconds(raw.z()?);
        return Some(CellRef { timestamp: TimestampMicros(timestamp), ttl, local, value: &[] });
    }
    let value = raw.sized()?;
    Some(CellRef { timestamp: TimestampMicros(timestamp), ttl, local, value })
}

/// View of a packed row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRef<'a> {
    bytes: &'a [u8],
}

impl<'a> RowRef<'a> {
    /// A view of bytes that this process packed or that [`RowRef::parse`] accepted.
    #[inline]
    pub fn trusted(bytes: &'a [u8]) -> RowRef<'a> {
        RowRef { bytes }
    }

    /// Checks bytes from outside (a commit-log record, a peer): every length and flag, column
    /// order, and that nothing is left over. `None` when they are not a packed row.
    pub fn parse(bytes: &'a [u8]) -> Option<RowRef<'a>> {
        let mut raw = Raw::new(bytes);
        let header = RowHeader::read(&mut raw)?;
        let mut last: Option<u64> = None;
        while !raw.is_empty() {
            let id = raw.v()?;
            if u16::try_from(id).is_err() || last.is_some_and(|l| l >= id) {
                return None;
            }
            last = Some(id);
            if let ColumnRef::Complex(complex) = read_column(&mut raw, &header)? {
                let mut nested = Raw::new(complex.cells);
                while !nested.is_empty() {
                    nested.sized()?;
                    let flags = nested.u8();
                    read_cell(&mut nested, flags, complex.base, &complex.liveness)?;
                }
            }
        }
        Some(RowRef { bytes })
    }

    /// The packed bytes.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    fn header(&self) -> (RowHeader, Raw<'a>) {
        let mut raw = Raw::new(self.bytes);
        match RowHeader::read(&mut raw) {
            Some(header) => (header, raw),
            None => stdx::invariant::broken(format_args!("packed row: header cut short")),
        }
    }

    /// Liveness, deletion and columns with one read of the header.
    #[inline]
    pub fn parts(&self) -> (Liveness, DeletionTime, Columns<'a>) {
        let (header, raw) = self.header();
        (header.liveness, header.deletion, Columns { raw, header })
    }

    /// The timestamp that cells are stored relative to.
    pub fn base_timestamp(&self) -> TimestampMicros {
        TimestampMicros(self.header().0.base)
    }

    /// The smallest timestamp of anything in it; `None`: there is nothing in it.
    #[inline]
    pub fn min_timestamp(&self) -> Option<TimestampMicros> {
        // Most rows: every cell has the row's timestamp.
        if let Some((timestamp, mut cells)) = self.usual_cells() {
            while cells.next_usual().is_some() {}
            if cells.is_done() {
                return Some(timestamp);
            }
        }
        self.min_of_all_timestamps()
    }

    fn min_of_all_timestamps(&self) -> Option<TimestampMicros> {
        let (liveness, deletion, columns) = self.parts();
        let of_deletion =
            |deletion: DeletionTime| (!deletion.is_live()).then_some(deletion.timestamp);
        let of_liveness = (!liveness.is_empty()).then_some(liveness.timestamp);
        let of_cells = columns.filter_map(|(_, column)| match column {
            ColumnRef::Simple(cell) => Some(cell.timestamp),
            ColumnRef::Complex(complex) => {
                let cells = complex.cells().map(|(_, cell)| cell.timestamp);
                cells.chain(of_deletion(complex.deletion)).min()
            }
        });
        of_cells.chain(of_liveness).chain(of_deletion(deletion)).min()
    }

    /// Primary-key liveness.
    pub fn liveness(&self) -> Liveness {
        self.header().0.liveness
    }

    /// Deletion of the whole row.
    pub fn deletion(&self) -> DeletionTime {
        self.header().0.deletion
    }

    /// Columns in order of id.
    #[inline]
    pub fn columns(&self) -> Columns<'a> {
        let (header, raw) = self.header();
        Columns { raw, header }
    }

    /// The column of that id.
    #[inline]
    pub fn column(&self, id: ColumnId) -> Option<ColumnRef<'a>> {
        // Most rows: the cells before the column are skipped without being decoded.
        if let Some((timestamp, mut cells)) = self.usual_cells() {
            while let Some((found, value)) = cells.next_usual() {
                if found >= id {
                    let cell = || ColumnRef::Simple(CellRef::live(timestamp, value));
                    return (found == id).then(cell);
                }
            }
            if cells.is_done() {
                return None;
            }
        }
        for (found, column) in self.columns() {
            if found >= id {
                return (found == id).then_some(column);
            }
        }
        None
    }

    /// No liveness, no deletion, no cell.
    pub fn is_empty(&self) -> bool {
        let (header, raw) = self.header();
        header.liveness.is_empty() && header.deletion.is_live() && raw.is_empty()
    }

    /// A quick check for the form of most rows: no deletion, no TTL, no tombstone, no complex
    /// column, and some content. False proves nothing.
    #[inline]
    pub fn is_plain(&self) -> bool {
        let Some((flags, mut rest)) = self.bytes.split_first() else { return false };
        if flags & !ROW_HAS_LIVENESS != 0 {
            return false;
        }
        // The base timestamp.
        rest = rest.get(8..).unwrap_or(&[]);
        if *flags == 0 && rest.is_empty() {
            return false;
        }
        while let [id, cell, length, tail @ ..] = rest {
            if (id | length) >= 0x80 || *cell != CELL_SAME_TIMESTAMP {
                return is_plain_tail(rest);
            }
            let Some(next) = tail.get(usize::from(*length)..) else { return false };
            rest = next;
        }
        rest.is_empty() || is_plain_tail(rest)
    }

    /// Timestamp and cells, when the row is live without a TTL and not deleted, like most rows.
    /// [`UsualCells`] reports the form of the cells.
    #[inline]
    pub fn usual_cells(&self) -> Option<(TimestampMicros, UsualCells<'a>)> {
        let (flags, rest) = self.bytes.split_first()?;
        let (base, cells) = rest.split_first_chunk()?;
        (*flags == ROW_HAS_LIVENESS)
            .then(|| (TimestampMicros(i64::from_le_bytes(*base)), UsualCells { rest: cells }))
    }

    /// Returns true if a reader at `now` sees the row: live liveness or any live cell (the caller
    /// has already applied deletions by merging).
    pub fn has_live_data(&self, now: DeletionSeconds) -> bool {
        self.liveness().is_live(now)
            || self.columns().any(|(_, column)| match column {
                ColumnRef::Simple(cell) => cell.is_live(now),
                ColumnRef::Complex(complex) => complex.cells().any(|(_, c)| c.is_live(now)),
            })
    }

    /// Counts the row for the tombstone thresholds: its dead cells, or one when the row holds
    /// nothing but a deletion.
    pub fn tombstones(&self, now: DeletionSeconds) -> u32 {
        if self.is_plain() {
            return 0;
        }
        let (liveness, deletion, columns) = self.parts();
        let (mut dead, mut live) = (0_u32, liveness.is_live(now));
        let mut note = |cell: &CellRef<'_>| match cell.is_live(now) {
            true => live = true,
            false => dead = dead.saturating_add(1),
        };
        for (_, column) in columns {
            match column {
                ColumnRef::Simple(cell) => note(&cell),
                ColumnRef::Complex(complex) => complex.cells().for_each(|(_, c)| note(&c)),
            }
        }
        if dead == 0 && !live && !deletion.is_live() { 1 } else { dead }
    }
}

/// Columns of one live cell each that has the row's timestamp, a small id and a value below 128 bytes,
/// ascending by id.
#[derive(Clone, Debug)]
pub struct UsualCells<'a> {
    rest: &'a [u8],
}

impl<'a> UsualCells<'a> {
    /// The next cell; `None` also when it is of another form: see [`UsualCells::is_done`].
    #[inline]
    pub fn next_usual(&mut self) -> Option<(ColumnId, &'a [u8])> {
        let [id, CELL_SAME_TIMESTAMP, length, tail @ ..] = self.rest else { return None };
        if (id | length) >= 0x80 {
            return None;
        }
        let (value, rest) = tail.split_at_checked(usize::from(*length))?;
        self.rest = rest;
        Some((ColumnId(u16::from(*id)), value))
    }

    /// The same, where the value was seen to be there: its length, and the bytes that begin with it.
    #[inline]
    pub fn next_seen(&mut self) -> Option<(usize, &'a [u8])> {
        let [_, _, length, tail @ ..] = self.rest else { return None };
        let length = usize::from(*length);
        self.rest = tail.get(length..)?;
        Some((length, tail))
    }

    /// Returns true if both have the same columns, and no cells of another form.
    #[inline]
    pub(crate) fn has_columns_of(mut self, mut other: UsualCells<'_>) -> bool {
        loop {
            match (self.next_usual(), other.next_usual()) {
                (Some((a, _)), Some((b, _))) if a == b => {}
                (None, None) => return self.is_done() && other.is_done(),
                _ => return false,
            }
        }
    }

    /// No cell of any form follows.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Like [`RowRef::is_plain`], for columns of any encoding.
fn is_plain_tail(columns: &[u8]) -> bool {
    let mut raw = Raw::new(columns);
    while !raw.is_empty() {
        let flags = raw.v().and_then(|_| raw.u8());
        let value = match flags {
            Some(CELL_SAME_TIMESTAMP) => raw.sized(),
            Some(0) => raw.v().and_then(|_| raw.sized()),
            _ => return false,
        };
        if value.is_none() {
            return false;
        }
    }
    true
}

#[derive(Clone, Copy, Debug)]
struct RowHeader {
    base: i64,
    liveness: Liveness,
    deletion: DeletionTime,
}

impl RowHeader {
    #[inline]
    fn read(raw: &mut Raw<'_>) -> Option<RowHeader> {
        let flags = raw.u8()?;
        if flags & !ROW_FLAGS != 0 || (flags & ROW_EXPIRES != 0 && flags & ROW_HAS_LIVENESS == 0) {
            return None;
        }
        let base = raw.i64()?;
        let mut liveness = Liveness::NONE;
        if flags & ROW_HAS_LIVENESS != 0 {
            liveness.timestamp = TimestampMicros(base);
        }
        if flags & ROW_EXPIRES != 0 {
            liveness.ttl = TtlSeconds(i32::try_from(raw.u32()?).ok()?);
            liveness.expires_at = DeletionSeconds(raw.i64()?);
        }
        let mut deletion = DeletionTime::LIVE;
        if flags & ROW_HAS_DELETION != 0 {
            deletion.timestamp = TimestampMicros(raw.i64()?);
            deletion.local = DeletionSeconds(raw.i64()?);
        }
        Some(RowHeader { base, liveness, deletion })
    }
}

fn read_column<'a>(raw: &mut Raw<'a>, header: &RowHeader) -> Option<ColumnRef<'a>> {
    let flags = raw.u8()?;
    if flags & CELL_COMPLEX == 0 {
        return read_cell(raw, Some(flags), header.base, &header.liveness).map(ColumnRef::Simple);
    }
    if flags & !(CELL_COMPLEX | COMPLEX_HAS_DELETION) != 0 {
        return None;
    }
    let length = usize::try_from(raw.u32()?).ok()?;
    let mut nested = Raw::new(raw.bytes(length)?);
    let mut deletion = DeletionTime::LIVE;
    if flags & COMPLEX_HAS_DELETION != 0 {
        deletion.timestamp = TimestampMicros(header.base.wrapping_add(nested.z()?));
        deletion.local = DeletionSeconds(nested.z()?);
    }
    Some(ColumnRef::Complex(ComplexRef {
        deletion,
        base: header.base,
        liveness: header.liveness,
        cells: nested.rest(),
    }))
}

/// Iterator over the columns of a row, ascending by id.
#[derive(Clone)]
pub struct Columns<'a> {
    raw: Raw<'a>,
    header: RowHeader,
}

impl<'a> Iterator for Columns<'a> {
    type Item = (ColumnId, ColumnRef<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // Most cells: a small id, live, of the row's timestamp, a short value.
        if let [id, CELL_SAME_TIMESTAMP, length, tail @ ..] = self.raw.rest()
            && (id | length) < 0x80
            && let Some((value, rest)) = tail.split_at_checked(usize::from(*length))
        {
            self.raw = Raw::new(rest);
            let cell = CellRef::live(TimestampMicros(self.header.base), value);
            return Some((ColumnId(u16::from(*id)), ColumnRef::Simple(cell)));
        }
        self.next_of_any_form()
    }
}

impl<'a> Columns<'a> {
    fn next_of_any_form(&mut self) -> Option<(ColumnId, ColumnRef<'a>)> {
        if self.raw.is_empty() {
            return None;
        }
        let id = self.raw.v().and_then(|id| u16::try_from(id).ok());
        match (id, read_column(&mut self.raw, &self.header)) {
            (Some(id), Some(column)) => Some((ColumnId(id), column)),
            _ => stdx::invariant::broken(format_args!("packed row: column cut short")),
        }
    }
}

/// Appends one packed row to a byte buffer.
///
/// Columns are given in ascending order of id. A row that got no liveness, deletion or cell is
/// still a valid (empty) row; [`RowBuilder::is_empty`] tells.
pub struct RowBuilder<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    base: i64,
    liveness: Liveness,
    last: Option<ColumnId>,
    complex_at: Option<usize>,
    /// Where the open complex column began, and whether the row was empty before it.
    complex_start: (usize, bool),
    empty: bool,
}

impl<'o> RowBuilder<'o> {
    /// Starts a row at the end of `out`. `base` is the timestamp most cells have (any value is
    /// correct, a good one is small); a liveness overrides it.
    #[inline]
    pub fn new(
        out: &'o mut Vec<u8>,
        liveness: Liveness,
        deletion: DeletionTime,
        base: TimestampMicros,
    ) -> Self {
        let start = out.len();
        let mut flags = 0;
        let mut base = base.0;
        if !liveness.is_empty() {
            flags |= ROW_HAS_LIVENESS;
            base = liveness.timestamp.0;
            if liveness.is_expiring() {
                flags |= ROW_EXPIRES;
            }
        }
        if !deletion.is_live() {
            flags |= ROW_HAS_DELETION;
        }
        out.push(flags);
        out.extend_from_slice(&base.to_le_bytes());
        if flags & ROW_EXPIRES != 0 {
            out.extend_from_slice(&liveness.ttl.0.to_le_bytes());
            out.extend_from_slice(&liveness.expires_at.0.to_le_bytes());
        }
        if flags & ROW_HAS_DELETION != 0 {
            out.extend_from_slice(&deletion.timestamp.0.to_le_bytes());
            out.extend_from_slice(&deletion.local.0.to_le_bytes());
        }
        let empty = flags == 0;
        RowBuilder {
            out,
            start,
            base,
            liveness,
            last: None,
            complex_at: None,
            complex_start: (0, true),
            empty,
        }
    }

    #[inline]
    fn column_id(&mut self, id: ColumnId) {
        stdx::invariant!(self.complex_at.is_none(), "packed row: column inside a complex column");
        stdx::invariant!(
            self.last.is_none_or(|l| l < id),
            "INV-row-1: packed row: columns out of order"
        );
        self.last = Some(id);
        self.empty = false;
        put_v(self.out, u64::from(id.0));
    }

    fn put_cell(&mut self, cell: &CellRef<'_>) {
        let mut flags = 0;
        if cell.timestamp.0 == self.base {
            flags |= CELL_SAME_TIMESTAMP;
        }
        if cell.is_expiring() {
            flags |= CELL_EXPIRING;
            if cell.ttl == self.liveness.ttl && cell.local == self.liveness.expires_at {
                flags |= CELL_SAME_EXPIRY;
            }
        } else if cell.is_tombstone() {
            flags |= CELL_TOMBSTONE;
        }
        self.out.push(flags);
        if flags & CELL_SAME_TIMESTAMP == 0 {
            put_z(self.out, cell.timestamp.0.wrapping_sub(self.base));
        }
        if flags & CELL_EXPIRING != 0 && flags & CELL_SAME_EXPIRY == 0 {
            put_v(self.out, u64::from(cell.ttl.0.unsigned_abs()));
            put_z(self.out, cell.local.0);
        }
        if flags & CELL_TOMBSTONE != 0 {
            put_z(self.out, cell.local.0);
            return;
        }
        put_v(self.out, cell.value.len() as u64);
        self.out.extend_from_slice(cell.value);
    }

    /// Adds a column of one live cell that has the row's base timestamp.
    #[inline]
    pub fn cell_at_base(&mut self, id: ColumnId, value: &[u8]) {
        self.column_id(id);
        self.out.push(CELL_SAME_TIMESTAMP);
        put_v(self.out, value.len() as u64);
        self.out.extend_from_slice(value);
    }

    /// Adds a column of one cell.
    pub fn cell(&mut self, id: ColumnId, cell: &CellRef<'_>) {
        self.column_id(id);
        self.put_cell(cell);
    }

    /// Opens a complex column; cells follow by [`RowBuilder::complex_cell`].
    pub fn begin_complex(&mut self, id: ColumnId, deletion: DeletionTime) {
        self.complex_start = (self.out.len(), self.empty);
        self.column_id(id);
        let has_deletion = !deletion.is_live();
        self.out.push(CELL_COMPLEX | if has_deletion { COMPLEX_HAS_DELETION } else { 0 });
        self.complex_at = Some(self.out.len());
        self.out.extend_from_slice(&[0; 4]);
        if has_deletion {
            put_z(self.out, deletion.timestamp.0.wrapping_sub(self.base));
            put_z(self.out, deletion.local.0);
        }
    }

    /// Adds a cell to the open complex column, in path order.
    pub fn complex_cell(&mut self, path: &[u8], cell: &CellRef<'_>) {
        stdx::invariant!(self.complex_at.is_some(), "packed row: no complex column is open");
        put_v(self.out, path.len() as u64);
        self.out.extend_from_slice(path);
        self.put_cell(cell);
    }

    /// Closes the open complex column.
    pub fn end_complex(&mut self) {
        let Some(at) = self.complex_at.take() else {
            stdx::invariant::broken(format_args!("packed row: no complex column is open"))
        };
        let length = self.out.len().saturating_sub(at + 4);
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        stdx::invariant!(length != u32::MAX, "packed row: complex column of 4 GiB or more");
        match self.out.get_mut(at..at + 4) {
            Some(slot) => slot.copy_from_slice(&length.to_le_bytes()),
            None => stdx::invariant!(false, "packed row: length of a complex column cut off"),
        }
    }

    /// Takes the open complex column back, with all cells given to it.
    pub fn cancel_complex(&mut self) {
        stdx::invariant!(self.complex_at.is_some(), "packed row: no complex column is open");
        self.complex_at = None;
        let (start, was_empty) = self.complex_start;
        self.out.truncate(start);
        self.empty = was_empty;
    }

    /// Nothing was given so far.
    pub fn is_empty(&self) -> bool {
        self.empty
    }

    /// Ends the row and says where it lies in the buffer.
    #[inline]
    pub fn finish(self) -> std::ops::Range<usize> {
        stdx::invariant!(self.complex_at.is_none(), "packed row: complex column left open");
        self.start..self.out.len()
    }
}
