//! Differences between a replica's page and the merged content.

use std::cmp::Ordering;

use data::mutation::MutationBuilder;
use data::page_cursor::PageCursor;
use data::{
    Advance, BoundBuf, BoundRef, CellRef, ColumnRef, ComplexRef, Cursor, CursorError, DeletionTime,
    Item, Liveness, RangeTombstone, RowBuilder, RowRef, TableShape,
};
use stdx::{ColumnId, Token};

/// Gathers one partition's repair.
struct Repair<'p> {
    key: &'p [u8],
    deletion: DeletionTime,
    /// Packed, empty = none.
    static_row: Vec<u8>,
    /// Packed rows, one after the other, with their clusterings, in read order.
    rows: Vec<(&'p [u8], std::ops::Range<usize>)>,
    packed: Vec<u8>,
    ranges: Vec<RangeTombstone>,
}

impl<'p> Repair<'p> {
    fn new(key: &'p [u8]) -> Repair<'p> {
        Repair {
            key,
            deletion: DeletionTime::LIVE,
            static_row: Vec::new(),
            rows: Vec::new(),
            packed: Vec::new(),
            ranges: Vec::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.deletion.is_live()
            && self.static_row.is_empty()
            && self.rows.is_empty()
            && self.ranges.is_empty()
    }

    fn encode(mut self, shape: &TableShape, reversed: bool) -> Vec<u8> {
        if reversed {
            self.rows.reverse();
            self.ranges.reverse();
        }
        let mut out = Vec::new();
        let mut builder = MutationBuilder::new(&mut out, shape.table(), shape.version(), self.key);
        if !self.deletion.is_live() {
            builder.deletion(self.deletion);
        }
        if !self.static_row.is_empty() {
            builder.static_row(RowRef::trusted(&self.static_row));
        }
        let packed = &self.packed;
        builder.rows(self.rows.iter().map(|(clustering, at)| {
            (*clustering, RowRef::trusted(packed.get(at.clone()).unwrap_or(&[])))
        }));
        builder.range_tombstones(self.ranges.iter().map(RangeTombstone::as_ref));
        builder.finish();
        out
    }
}

/// A cursor with its current item.
struct Lane<'c, 'p> {
    cursor: PageCursor<'c, 'p>,
    item: Option<Item<'p>>,
}

impl<'c, 'p> Lane<'c, 'p> {
    fn new(cursor: PageCursor<'c, 'p>) -> Result<Lane<'c, 'p>, CursorError> {
        let mut lane = Lane { cursor, item: None };
        lane.step()?;
        Ok(lane)
    }

    fn step(&mut self) -> Result<(), CursorError> {
        self.item = match self.cursor.advance()? {
            Advance::Item => Some(self.cursor.current()),
            Advance::End | Advance::NeedBlock(_) => None,
        };
        Ok(())
    }

    fn partition(&self) -> Option<(Token, &'p [u8], DeletionTime)> {
        match self.item {
            Some(Item::Partition { token, key, deletion }) => Some((token, key, deletion)),
            _ => None,
        }
    }

    /// Moves to the first partition at or after a key. Whether it is that of the key.
    fn seek(&mut self, token: Token, key: &[u8]) -> Result<bool, CursorError> {
        let place = (token, key);
        loop {
            match self.partition() {
                Some((token, key, _)) if (token, key) < place => {
                    self.cursor.skip_partition();
                    self.step()?;
                }
                Some((token, key, _)) => return Ok((token, key) == place),
                None => return Ok(false),
            }
        }
    }
}

/// Encoded mutations, one per partition, that bring `source` to `merged`. `merged` is the merge of
/// `source` with others, within the same bounds.
pub(super) fn diff(
    shape: &TableShape,
    reversed: bool,
    merged: PageCursor<'_, '_>,
    source: PageCursor<'_, '_>,
) -> Result<Vec<Vec<u8>>, CursorError> {
    let mut merged = Lane::new(merged)?;
    let mut source = Lane::new(source)?;
    let mut mutations = Vec::new();
    while let Some((token, key, deletion)) = merged.partition() {
        let mut repair = Repair::new(key);
        let both = source.seek(token, key)?;
        let source_deletion = match source.partition() {
            Some((_, _, d)) if both => d,
            _ => DeletionTime::LIVE,
        };
        if deletion.supersedes(&source_deletion) {
            repair.deletion = deletion;
        }
        merged.step()?;
        if both {
            source.step()?;
        }
        partition(shape, reversed, &mut merged, both.then_some(&mut source), &mut repair)?;
        if !repair.is_empty() {
            mutations.push(repair.encode(shape, reversed));
        }
    }
    Ok(mutations)
}

/// Read order of two rows or markers; the end of the partition comes last.
fn compare(
    shape: &TableShape,
    reversed: bool,
    a: Option<&Item<'_>>,
    b: Option<&Item<'_>>,
) -> Ordering {
    let cmp = shape.clustering();
    let order = match (a, b) {
        (None, None) => return Ordering::Equal,
        (None, Some(_)) => return Ordering::Greater,
        (Some(_), None) => return Ordering::Less,
        (Some(Item::Row { clustering: a, .. }), Some(Item::Row { clustering: b, .. })) => {
            cmp.compare(a, b)
        }
        (Some(Item::Row { clustering, .. }), Some(Item::Marker(m))) => {
            cmp.compare_to_bound(clustering, m.position)
        }
        (Some(Item::Marker(m)), Some(Item::Row { clustering, .. })) => {
            cmp.compare_to_bound(clustering, m.position).reverse()
        }
        (Some(Item::Marker(a)), Some(Item::Marker(b))) => {
            cmp.compare_bounds(a.position, b.position)
        }
        _ => return Ordering::Equal,
    };
    if reversed { order.reverse() } else { order }
}

/// The row or marker that a lane stands at.
fn inner<'p>(lane: Option<&Lane<'_, 'p>>) -> Option<Item<'p>> {
    lane?.item.filter(|i| matches!(i, Item::Row { .. } | Item::Marker(_)))
}

fn static_of<'p>(lane: Option<&Lane<'_, 'p>>) -> Option<RowRef<'p>> {
    match lane?.item {
        Some(Item::Static(row)) => Some(row),
        _ => None,
    }
}

/// The range deletion that the replica misses at the place reached, and since where.
struct Missing<'p> {
    merged: DeletionTime,
    source: DeletionTime,
    since: Option<(BoundRef<'p>, DeletionTime)>,
}

impl<'p> Missing<'p> {
    fn change(&mut self, at: BoundRef<'p>, reversed: bool, ranges: &mut Vec<RangeTombstone>) {
        // Where the replica's own deletion is as new, or a partition deletion covers both, nothing
        // is missing.
        let missing = self.merged.supersedes(&self.source).then_some(self.merged);
        if self.since.map(|(_, d)| d) == missing {
            return;
        }
        if let Some((from, deletion)) = self.since.take() {
            let (start, end) = if reversed { (at, from) } else { (from, at) };
            ranges.push(RangeTombstone {
                start: BoundBuf::new(start),
                end: BoundBuf::new(end),
                deletion,
            });
        }
        self.since = missing.map(|d| (at, d));
    }
}

/// Compares one partition; both lanes are after its header, and afterwards after its end.
fn partition<'m>(
    shape: &TableShape,
    reversed: bool,
    merged: &mut Lane<'_, 'm>,
    mut source: Option<&mut Lane<'_, '_>>,
    repair: &mut Repair<'m>,
) -> Result<(), CursorError> {
    let (row, other) = (static_of(Some(merged)), static_of(source.as_deref()));
    if let Some(row) = row {
        row_diff(shape, row, other, &mut repair.static_row);
        merged.step()?;
    }
    if let Some(lane) = source.as_deref_mut().filter(|_| other.is_some()) {
        lane.step()?;
    }
    let mut missing =
        Missing { merged: DeletionTime::LIVE, source: DeletionTime::LIVE, since: None };
    loop {
        let (a, b) = (inner(Some(merged)), inner(source.as_deref()));
        let order = compare(shape, reversed, a.as_ref(), b.as_ref());
        let a = a.filter(|_| order != Ordering::Greater);
        let b = b.filter(|_| order != Ordering::Less);
        if let Some(Item::Marker(marker)) = a.or(b) {
            let open = |item: Option<Item<'_>>| match item {
                Some(Item::Marker(m)) => Some(m.open.unwrap_or(DeletionTime::LIVE)),
                _ => None,
            };
            missing.merged = open(a).unwrap_or(missing.merged);
            missing.source = open(b).unwrap_or(missing.source);
            missing.change(marker.position, reversed, &mut repair.ranges);
        }
        if let Some(Item::Row { clustering, row }) = a {
            let other = match b {
                Some(Item::Row { row, .. }) => Some(row),
                _ => None,
            };
            let start = repair.packed.len();
            row_diff(shape, row, other, &mut repair.packed);
            if repair.packed.len() > start {
                repair.rows.push((clustering, start..repair.packed.len()));
            }
        }
        if a.is_some() {
            merged.step()?;
        }
        if b.is_some()
            && let Some(lane) = source.as_deref_mut()
        {
            lane.step()?;
        }
        if a.is_none() && b.is_none() {
            break;
        }
    }
    // Past the end of the partition.
    merged.step()?;
    if let Some(lane) = source {
        lane.step()?;
    }
    Ok(())
}

/// Appends what `other` misses of `row`; nothing when it misses nothing. What `other` has beyond is
/// deleted by something in `merged` that it gets too.
fn row_diff(shape: &TableShape, row: RowRef<'_>, other: Option<RowRef<'_>>, out: &mut Vec<u8>) {
    let Some(other) = other else {
        if !row.is_empty() {
            out.extend_from_slice(row.bytes());
        }
        return;
    };
    if row.bytes() == other.bytes() {
        return;
    }
    let (mut liveness, mut deletion, columns) = row.parts();
    let (other_liveness, other_deletion, other_columns) = other.parts();
    if liveness == other_liveness {
        liveness = Liveness::NONE;
    }
    if deletion == other_deletion {
        deletion = DeletionTime::LIVE;
    }
    let start = out.len();
    let mut builder = RowBuilder::new(out, liveness, deletion, row.base_timestamp());
    let mut others = other_columns.peekable();
    for (id, column) in columns {
        while others.next_if(|(other_id, _)| *other_id < id).is_some() {}
        let other = others.next_if(|(other_id, _)| *other_id == id).map(|(_, c)| c);
        match (column, other) {
            (ColumnRef::Simple(cell), Some(ColumnRef::Simple(other))) if cell == other => {}
            (ColumnRef::Simple(cell), _) => builder.cell(id, &cell),
            (ColumnRef::Complex(complex), other) => {
                let other = match other {
                    Some(ColumnRef::Complex(other)) => Some(other),
                    _ => None,
                };
                complex_diff(shape, id, &complex, other, &mut builder);
            }
        }
    }
    let empty = builder.is_empty();
    builder.finish();
    if empty {
        out.truncate(start);
    }
}

fn complex_diff(
    shape: &TableShape,
    id: ColumnId,
    complex: &ComplexRef<'_>,
    other: Option<ComplexRef<'_>>,
    builder: &mut RowBuilder<'_>,
) {
    let has_deletion = other.is_some_and(|o| o.deletion == complex.deletion);
    let deletion = if has_deletion { DeletionTime::LIVE } else { complex.deletion };
    builder.begin_complex(id, deletion);
    let mut count = 0_usize;
    let mut others = other.map(|o| o.cells().peekable());
    for (path, cell) in complex.cells() {
        let same: Option<CellRef<'_>> = others.as_mut().and_then(|others| {
            let order = |p: &[u8]| shape.compare_paths(id, p, path);
            while others.next_if(|(p, _)| order(p) == Ordering::Less).is_some() {}
            others.next_if(|(p, _)| order(p) == Ordering::Equal).map(|(_, c)| c)
        });
        if same != Some(cell) {
            builder.complex_cell(path, &cell);
            count += 1;
        }
    }
    if count == 0 && deletion.is_live() {
        builder.cancel_complex();
    } else {
        builder.end_complex();
    }
}
