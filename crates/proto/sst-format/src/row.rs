//! Rows and markers of Data.db: reading.
//!
//! Two steps, so that rows outside a slice cost little: [`decode_head`] reads flags, clustering and
//! size; [`decode_row`] or [`decode_marker`] reads the body. Output goes to [`RowScratch`], which
//! is reused: no allocation per row. Source: `db.rows.UnfilteredSerializer`, `db.rows.Cell`.

use std::cmp::Ordering;

use codec::{DecodeError, DecodeErrorKind, Reader};
use data::clustering::{components, push_component};
use data::row::{CellRef, RowBuilder};
use data::{BoundRef, ClusteringComparator, DeletionTime, Liveness, RowRef};
use stdx::{ColumnId, DeletionSeconds, TimestampMicros, TtlSeconds};

use crate::Version;
use crate::clustering::{PrefixKind, decode_bound_values, decode_values};
use crate::header::{EncodingStats, ReadColumn, ReadColumns, ReadSchema};

pub(crate) const END_OF_PARTITION: u8 = 0x01;
pub(crate) const IS_MARKER: u8 = 0x02;
pub(crate) const HAS_TIMESTAMP: u8 = 0x04;
pub(crate) const HAS_TTL: u8 = 0x08;
pub(crate) const HAS_DELETION: u8 = 0x10;
pub(crate) const HAS_ALL_COLUMNS: u8 = 0x20;
pub(crate) const HAS_COMPLEX_DELETION: u8 = 0x40;
pub(crate) const EXTENSION_FLAG: u8 = 0x80;
pub(crate) const IS_STATIC: u8 = 0x01;
/// Deletions by old materialized views; read as ordinary row deletions.
const HAS_SHADOWABLE_DELETION: u8 = 0x02;

pub(crate) const CELL_IS_DELETED: u8 = 0x01;
pub(crate) const CELL_IS_EXPIRING: u8 = 0x02;
pub(crate) const CELL_HAS_EMPTY_VALUE: u8 = 0x04;
pub(crate) const CELL_USE_ROW_TIMESTAMP: u8 = 0x08;
pub(crate) const CELL_USE_ROW_TTL: u8 = 0x10;
const CELL_FLAGS: u8 = 0x1f;

/// Largest row or marker body accepted, bytes: the format's own limit is 2^31.
pub const BODY_BYTES_MAX: usize = i32::MAX as usize;

type Decoded<T> = std::result::Result<T, DecodeError>;

/// Kind of the item after a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadKind {
    /// The partition is over.
    EndOfPartition,
    /// A row; its clustering is in the scratch.
    Row,
    /// The static row.
    StaticRow,
    /// A range-tombstone marker; its prefix is in the scratch.
    Marker(PrefixKind),
}

/// Flags and extent of one row or marker, positions relative to the bytes given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Kind of the item.
    pub kind: HeadKind,
    flags: u8,
    /// Offset of the body (after its size).
    pub body: usize,
    /// Offset of the next row, marker or end.
    pub end: usize,
}

/// Buffer that rows are unpacked to; reused from row to row.
#[derive(Debug, Default)]
pub struct RowScratch {
    /// Clustering or prefix of the last head, in `data`'s form.
    pub clustering: Vec<u8>,
    /// The last row, packed.
    pub row: Vec<u8>,
    slots: Vec<Slot>,
}

/// A parsed column that waits for its turn in id order: where it starts in the body.
#[derive(Clone, Copy, Debug)]
struct Slot {
    id: ColumnId,
    column: u16,
    at: usize,
}

/// Reads flags, clustering and size at the start of `bytes`. `Truncated`: more bytes are needed,
/// unless these are the last of the file. The body itself may still be incomplete: compare
/// [`Head::end`].
///
/// # Errors
/// `Truncated`, `Invalid`.
#[inline]
pub fn decode_head(schema: &ReadSchema, bytes: &[u8], scratch: &mut RowScratch) -> Decoded<Head> {
    match decode_usual_head(schema, bytes, &mut scratch.clustering) {
        Some(head) => Ok(head),
        None => decode_any_head(schema, bytes, scratch),
    }
}

/// Returns a row's flags and the bytes after its clustering header, when the row is of the usual
/// form: regular, and no value of its clustering missing or empty.
#[inline]
fn usual_row<'a>(schema: &ReadSchema, bytes: &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (flags, rest) = bytes.split_first()?;
    if flags & (END_OF_PARTITION | IS_MARKER | EXTENSION_FLAG) != 0 {
        return None;
    }
    match schema.clustering.len() {
        0 => Some((*flags, rest)),
        1..=32 => match rest.split_first()? {
            (0, rest) => Some((*flags, rest)),
            _ => None,
        },
        _ => None,
    }
}

/// The next value of a clustering; `None` also for lengths of several bytes.
#[inline]
pub(crate) fn usual_value(fixed: Option<usize>, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    match fixed {
        Some(n) => bytes.split_at_checked(n),
        None => match bytes.split_first()? {
            (length @ 0..0x80, rest) => rest.split_at_checked(usize::from(*length)),
            _ => None,
        },
    }
}

/// Decodes a vint of up to eight bytes. Unless it has one byte, eight bytes must follow its first
/// one.
#[inline]
pub(crate) fn usual_vint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let more = first.leading_ones();
    if more == 0 {
        return Some((u64::from(*first), rest));
    }
    let tail = u64::from_be_bytes(*rest.first_chunk()?);
    // 1 to 7 bytes follow; eight are left to the general form.
    let bits = more.wrapping_mul(8);
    let tail = tail.checked_shr(64u32.wrapping_sub(bits))?;
    let head = u64::from(first & 0xffu8.checked_shr(more)?).checked_shl(bits)?;
    Some((head | tail, rest.get(more as usize..)?))
}

/// A body's size of one or two bytes.
#[inline]
pub(crate) fn usual_size(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match bytes {
        [size @ 0..0x80, rest @ ..] => Some((usize::from(*size), rest)),
        [high @ 0x80..0xc0, low, rest @ ..] => {
            Some((usize::from(u16::from_be_bytes([high & 0x3f, *low])), rest))
        }
        _ => None,
    }
}

/// [`decode_head`] of the usual row; `None`: it is of another form, or damaged, or cut.
#[inline]
fn decode_usual_head(schema: &ReadSchema, bytes: &[u8], clustering: &mut Vec<u8>) -> Option<Head> {
    let (flags, mut rest) = usual_row(schema, bytes)?;
    clustering.clear();
    for fixed in schema.clustering.iter() {
        let (value, next) = usual_value(*fixed, rest)?;
        push_component(clustering, Some(value));
        rest = next;
    }
    let (size, rest) = usual_size(rest)?;
    let body = bytes.len().saturating_sub(rest.len());
    Some(Head { kind: HeadKind::Row, flags, body, end: body.saturating_add(size) })
}

/// Returns true if `bytes` begins with the end of a partition, as it is written.
#[inline]
pub fn is_partition_end(bytes: &[u8]) -> bool {
    bytes.first() == Some(&END_OF_PARTITION)
}

/// Decodes the row at the start of `bytes`, head and body, if it is complete and of the usual form;
/// returns its end. `None`: use [`decode_head`], which reports errors.
#[inline]
pub fn decode_usual(schema: &ReadSchema, bytes: &[u8], scratch: &mut RowScratch) -> Option<usize> {
    let head = decode_usual_head(schema, bytes, &mut scratch.clustering)?;
    let body = bytes.get(head.body..head.end)?;
    decode_usual_row(&schema.stats, &schema.regulars, head.flags, body, &mut scratch.row)?;
    Some(head.end)
}

/// Bytes of the rows at the start of `bytes` that lie before `bound`: of those in the usual form
/// that are wholly there. A slice without an index close by begins with many of them, which are
/// compared where they lie.
pub fn skip_rows_before(
    schema: &ReadSchema,
    comparator: &ClusteringComparator,
    bound: BoundRef<'_>,
    bytes: &[u8],
) -> usize {
    let mut rest = bytes;
    while let Some(next) = row_before(schema, comparator, bound, rest) {
        rest = next;
    }
    bytes.len().saturating_sub(rest.len())
}

/// Returns the bytes after the row at the start of `bytes`, if the row is before the bound.
#[inline]
fn row_before<'a>(
    schema: &ReadSchema,
    comparator: &ClusteringComparator,
    bound: BoundRef<'_>,
    bytes: &'a [u8],
) -> Option<&'a [u8]> {
    let (_, mut rest) = usual_row(schema, bytes)?;
    let mut parts = components(bound.prefix);
    let mut order = Ordering::Equal;
    for (position, fixed) in schema.clustering.iter().enumerate() {
        let (value, next) = usual_value(*fixed, rest)?;
        if order == Ordering::Equal
            && let Some(part) = parts.next()
        {
            order = comparator.compare_component(position, Some(value), part);
        }
        rest = next;
    }
    let before = match order {
        Ordering::Less => true,
        Ordering::Equal => bound.after,
        Ordering::Greater => false,
    };
    if !before {
        return None;
    }
    let (size, rest) = usual_size(rest)?;
    rest.get(size..)
}

/// Like [`decode_head`], for rows of any form.
pub(crate) fn decode_any_head(
    schema: &ReadSchema,
    bytes: &[u8],
    scratch: &mut RowScratch,
) -> Decoded<Head> {
    let mut r = Reader::new(bytes, "row");
    let flags = r.u8()?;
    if flags & END_OF_PARTITION != 0 {
        let end = r.position();
        return Ok(Head { kind: HeadKind::EndOfPartition, flags, body: end, end });
    }
    let extended = if flags & EXTENSION_FLAG != 0 { r.u8()? } else { 0 };
    if extended & !(IS_STATIC | HAS_SHADOWABLE_DELETION) != 0 {
        return Err(r.invalid(i64::from(extended)));
    }
    scratch.clustering.clear();
    let kind = if flags & IS_MARKER != 0 {
        let ordinal = r.u8()?;
        let kind = PrefixKind::from_ordinal(ordinal).filter(|k| *k != PrefixKind::Clustering);
        let Some(kind) = kind else { return Err(r.invalid(i64::from(ordinal))) };
        decode_bound_values(&mut r, &schema.clustering, &mut scratch.clustering)?;
        HeadKind::Marker(kind)
    } else if extended & IS_STATIC != 0 {
        HeadKind::StaticRow
    } else {
        let count = schema.clustering.len();
        decode_values(&mut r, count, &schema.clustering, &mut scratch.clustering)?;
        HeadKind::Row
    };
    let size = r.vint_len()?;
    let body = r.position();
    match body.checked_add(size) {
        Some(end) => Ok(Head { kind, flags, body, end }),
        None => {
            Err(r.error(DecodeErrorKind::TooLong {
                length: size as u64,
                max: BODY_BYTES_MAX as u64,
            }))
        }
    }
}

/// A partition's key, deletion and the bytes of both, at the start of `bytes`.
///
/// # Errors
/// `Truncated`: more bytes are needed, unless these are the last of the file.
#[inline]
pub fn decode_partition_header(
    bytes: &[u8],
    version: Version,
) -> Decoded<(&[u8], DeletionTime, usize)> {
    let mut r = Reader::new(bytes, "partition header");
    let key = r.bytes_u16()?;
    let deletion = crate::read_deletion(&mut r, version)?;
    Ok((key, deletion, r.position()))
}

/// The deletions of a marker: what ends and what begins at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkerBody {
    /// The deletion that ends.
    pub close: Option<DeletionTime>,
    /// The deletion that begins.
    pub open: Option<DeletionTime>,
}

/// Reads a marker's body, `bytes[head.body..head.end]`.
///
/// # Errors
/// `Truncated`, `Trailing`, `Invalid`.
pub fn decode_marker(schema: &ReadSchema, kind: PrefixKind, body: &[u8]) -> Decoded<MarkerBody> {
    let mut r = Reader::new(body, "range tombstone marker");
    r.vint_unsigned()?;
    let first = read_deletion(&mut r, schema)?;
    let second = if kind.is_boundary() { Some(read_deletion(&mut r, schema)?) } else { None };
    r.finish()?;
    Ok(match second {
        Some(second) => MarkerBody { close: Some(first), open: Some(second) },
        None if kind.is_end() => MarkerBody { close: Some(first), open: None },
        None => MarkerBody { close: None, open: Some(first) },
    })
}

#[inline]
fn read_timestamp(r: &mut Reader<'_>, stats: &EncodingStats) -> Decoded<TimestampMicros> {
    let delta = r.vint_unsigned()?.cast_signed();
    Ok(TimestampMicros(stats.min_timestamp.0.wrapping_add(delta)))
}

/// A time beyond 2038 that some old version wrapped is kept as the largest one, as Cassandra's
/// "invalid deletion time" never comes either; since `oa` times are unsigned.
#[inline]
fn local_of(schema: &ReadSchema, delta: i32) -> DeletionSeconds {
    let local = schema.stats.min_local_deletion.0.saturating_add(i64::from(delta));
    if local >= 0 {
        return DeletionSeconds(local);
    }
    if !schema.version.has_uint_times() {
        return DeletionSeconds(crate::DELETION_SECONDS_MAX);
    }
    // Differences were cut to 32 bits: two's complement gives the unsigned time back.
    match u32::try_from(local.saturating_add(1i64 << 32)) {
        Ok(local) => DeletionSeconds(i64::from(local).min(crate::DELETION_SECONDS_UINT_MAX)),
        Err(_) => DeletionSeconds(crate::DELETION_SECONDS_UINT_MAX),
    }
}

#[inline]
fn read_local(r: &mut Reader<'_>, schema: &ReadSchema) -> Decoded<DeletionSeconds> {
    Ok(local_of(schema, r.vint_unsigned_i32()?))
}

#[inline]
fn read_ttl(r: &mut Reader<'_>, stats: &EncodingStats) -> Decoded<TtlSeconds> {
    let delta = r.vint_unsigned_i32()?;
    match stats.min_ttl.checked_add(delta) {
        Some(ttl) if ttl > 0 => Ok(TtlSeconds(ttl)),
        _ => Err(r.invalid(i64::from(delta))),
    }
}

fn read_deletion(r: &mut Reader<'_>, schema: &ReadSchema) -> Decoded<DeletionTime> {
    let timestamp = read_timestamp(r, &schema.stats)?;
    Ok(DeletionTime { timestamp, local: read_local(r, schema)? })
}

/// Unpacks a row's body, `bytes[head.body..head.end]`, into `scratch.row`. The row may turn out
/// empty when all it had was of dropped columns.
///
/// # Errors
/// `Truncated`, `Trailing`, `Invalid`.
pub fn decode_row<'s>(
    schema: &ReadSchema,
    head: &Head,
    body: &[u8],
    scratch: &'s mut RowScratch,
) -> Decoded<RowRef<'s>> {
    let columns = if head.kind == HeadKind::StaticRow { &schema.statics } else { &schema.regulars };
    if decode_usual_row(&schema.stats, columns, head.flags, body, &mut scratch.row).is_some() {
        return Ok(RowRef::trusted(&scratch.row));
    }
    decode_any_row(schema, columns, head, body, scratch)
}

/// Unpacks a row of the usual form: all columns there, simple and known, their cells live and of the
/// row's timestamp. `None`: it is of another form, or damaged.
#[inline]
fn decode_usual_row(
    stats: &EncodingStats,
    columns: &ReadColumns,
    flags: u8,
    body: &[u8],
    row: &mut Vec<u8>,
) -> Option<()> {
    const RELEVANT: u8 =
        HAS_TIMESTAMP | HAS_TTL | HAS_DELETION | HAS_ALL_COLUMNS | HAS_COMPLEX_DELETION;
    if flags & RELEVANT != HAS_TIMESTAMP | HAS_ALL_COLUMNS || !columns.in_id_order {
        return None;
    }
    // The size of the row before.
    let (_, rest) = usual_vint(body)?;
    let (delta, mut rest) = usual_vint(rest)?;
    let timestamp = TimestampMicros(stats.min_timestamp.0.wrapping_add(delta.cast_signed()));
    if timestamp == TimestampMicros::NONE {
        return None;
    }
    row.clear();
    row.reserve(body.len().saturating_add(columns.columns.len().saturating_mul(8)));
    let mut builder = RowBuilder::new(row, Liveness::new(timestamp), DeletionTime::LIVE, timestamp);
    for column in &columns.columns {
        let ([CELL_USE_ROW_TIMESTAMP], tail) = rest.split_first_chunk::<1>()? else { return None };
        if column.complex || timestamp <= column.dropped_at {
            return None;
        }
        let (value, next) = match (usual_value(column.fixed, tail), column.fixed) {
            (Some(found), _) => found,
            (None, Some(_)) => return None,
            (None, None) => {
                let mut r = Reader::new(tail, "cell");
                (r.bytes_vint().ok()?, r.peek_rest())
            }
        };
        builder.cell_at_base(column.id?, value);
        rest = next;
    }
    builder.finish();
    rest.is_empty().then_some(())
}

/// Like [`decode_row`], for rows of any form.
pub(crate) fn decode_any_row<'s>(
    schema: &ReadSchema,
    columns: &ReadColumns,
    head: &Head,
    body: &[u8],
    scratch: &'s mut RowScratch,
) -> Decoded<RowRef<'s>> {
    let stats = &schema.stats;
    let mut r = Reader::new(body, "row");
    r.vint_unsigned()?;
    let mut liveness = Liveness::NONE;
    if head.flags & HAS_TIMESTAMP != 0 {
        liveness.timestamp = read_timestamp(&mut r, stats)?;
        if head.flags & HAS_TTL != 0 {
            liveness.ttl = read_ttl(&mut r, stats)?;
            liveness.expires_at = read_local(&mut r, schema)?;
        }
    } else if head.flags & HAS_TTL != 0 {
        return Err(r.invalid(i64::from(head.flags)));
    }
    let mut deletion = DeletionTime::LIVE;
    if head.flags & HAS_DELETION != 0 {
        deletion = read_deletion(&mut r, schema)?;
    }
    let base = if liveness.is_empty() { stats.min_timestamp } else { liveness.timestamp };
    let subset = Subset::read(&mut r, head.flags & HAS_ALL_COLUMNS != 0, columns.columns.len())?;
    let RowScratch { row, slots, .. } = scratch;
    row.clear();
    let context = CellContext {
        schema,
        liveness: &liveness,
        complex_deletion: head.flags & HAS_COMPLEX_DELETION != 0,
    };
    let mut builder = RowBuilder::new(row, liveness, deletion, base);
    if columns.in_id_order {
        subset.for_each(&columns.columns, |_, column| {
            read_column(&mut r, column, &context, Some(&mut builder))
        })?;
    } else {
        read_out_of_order(&mut r, &subset, columns, &context, slots, &mut builder)?;
    }
    let range = builder.finish();
    r.finish()?;
    Ok(RowRef::trusted(row.get(range).unwrap_or(&[])))
}

/// Columns whose ids do not ascend in file order: find where each lies, then pack them by id.
fn read_out_of_order(
    r: &mut Reader<'_>,
    subset: &Subset,
    columns: &ReadColumns,
    context: &CellContext<'_>,
    slots: &mut Vec<Slot>,
    builder: &mut RowBuilder<'_>,
) -> Decoded<()> {
    slots.clear();
    let start = *r;
    subset.for_each(&columns.columns, |index, column| {
        let at = r.position().saturating_sub(start.position());
        if let Some(id) = column.id {
            slots.push(Slot { id, column: index, at });
        }
        read_column(r, column, context, None)
    })?;
    slots.sort_unstable_by_key(|slot| slot.id);
    for slot in slots.iter() {
        let mut at = start;
        at.skip(slot.at)?;
        if let Some(column) = columns.columns.get(usize::from(slot.column)) {
            read_column(&mut at, column, context, Some(builder))?;
        }
    }
    Ok(())
}

/// Columns of the header that a row has.
#[derive(Debug)]
enum Subset {
    All,
    /// Bit set = missing; fewer than 64 columns.
    Missing(u64),
    /// 64 columns or more: one bit per column, set = present.
    Large(Vec<u64>),
}

impl Subset {
    fn read(r: &mut Reader<'_>, all: bool, count: usize) -> Decoded<Subset> {
        if all {
            return Ok(Subset::All);
        }
        let encoded = r.vint_unsigned()?;
        if encoded == 0 {
            return Ok(Subset::All);
        }
        if count >= 64 {
            return Self::read_large(r, encoded, count);
        }
        if encoded >> count != 0 {
            return Err(r.invalid(encoded.cast_signed()));
        }
        Ok(Subset::Missing(encoded))
    }

    fn read_large(r: &mut Reader<'_>, missing: u64, count: usize) -> Decoded<Subset> {
        let missing = match usize::try_from(missing) {
            Ok(missing) if missing <= count => missing,
            _ => return Err(r.invalid(missing.cast_signed())),
        };
        let present = count.saturating_sub(missing);
        let lists_present = present < count / 2;
        let listed = if lists_present { present } else { missing };
        let mut bits = vec![if lists_present { 0 } else { u64::MAX }; count.div_ceil(64)];
        let mut next = 0usize;
        for _ in 0..listed {
            let index = r.vint_len()?;
            if index < next || index >= count {
                return Err(r.invalid(i64::try_from(index).unwrap_or(i64::MAX)));
            }
            next = index.saturating_add(1);
            if let Some(word) = bits.get_mut(index / 64) {
                *word ^= 1u64 << (index % 64);
            }
        }
        Ok(Subset::Large(bits))
    }

    #[inline]
    fn for_each(
        &self,
        columns: &[ReadColumn],
        mut f: impl FnMut(u16, &ReadColumn) -> Decoded<()>,
    ) -> Decoded<()> {
        for (index, column) in (0u16..).zip(columns) {
            let has = match self {
                Subset::All => true,
                Subset::Missing(bits) => (bits >> (index & 63)) & 1 == 0,
                Subset::Large(bits) => bits
                    .get(usize::from(index / 64))
                    .is_some_and(|word| (word >> (index % 64)) & 1 == 1),
            };
            if has {
                f(index, column)?;
            }
        }
        Ok(())
    }
}

struct CellContext<'c> {
    schema: &'c ReadSchema,
    liveness: &'c Liveness,
    complex_deletion: bool,
}

/// Reads one column; packs it when there is a builder and the column still exists.
#[inline]
fn read_column(
    r: &mut Reader<'_>,
    column: &ReadColumn,
    context: &CellContext<'_>,
    builder: Option<&mut RowBuilder<'_>>,
) -> Decoded<()> {
    if column.complex {
        return read_complex(r, column, context, builder);
    }
    let (_, cell) = read_cell(r, column, context)?;
    if let (Some(builder), Some(id)) = (builder, column.id)
        && cell.timestamp > column.dropped_at
    {
        builder.cell(id, &cell);
    }
    Ok(())
}

fn read_complex(
    r: &mut Reader<'_>,
    column: &ReadColumn,
    context: &CellContext<'_>,
    builder: Option<&mut RowBuilder<'_>>,
) -> Decoded<()> {
    let mut deletion = DeletionTime::LIVE;
    if context.complex_deletion {
        deletion = read_complex_deletion(r, context.schema)?;
    }
    if deletion.timestamp <= column.dropped_at {
        deletion = DeletionTime::LIVE;
    }
    let count = r.vint_len()?;
    let count = r.check_count(count, 2)?;
    let mut packed = builder.zip(column.id);
    let mut begun = false;
    if let Some((builder, id)) = &mut packed
        && !deletion.is_live()
    {
        builder.begin_complex(*id, deletion);
        begun = true;
    }
    for _ in 0..count {
        let (path, cell) = read_cell(r, column, context)?;
        let Some((builder, id)) = &mut packed else { continue };
        if cell.timestamp <= column.dropped_at {
            continue;
        }
        if !begun {
            builder.begin_complex(*id, DeletionTime::LIVE);
            begun = true;
        }
        builder.complex_cell(path, &cell);
    }
    if begun && let Some((builder, _)) = packed {
        builder.end_complex();
    }
    Ok(())
}

/// A column without deletion in a row where another has one carries the live deletion time
/// (timestamp minimum, local time maximum) as deltas.
fn read_complex_deletion(r: &mut Reader<'_>, schema: &ReadSchema) -> Decoded<DeletionTime> {
    let timestamp = read_timestamp(r, &schema.stats)?;
    let delta = r.vint_unsigned_i32()?;
    if timestamp == TimestampMicros::NONE {
        return Ok(DeletionTime::LIVE);
    }
    Ok(DeletionTime { timestamp, local: local_of(schema, delta) })
}

#[inline]
fn read_cell<'a>(
    r: &mut Reader<'a>,
    column: &ReadColumn,
    context: &CellContext<'_>,
) -> Decoded<(&'a [u8], CellRef<'a>)> {
    let flags = r.u8()?;
    let (deleted, expiring) = (flags & CELL_IS_DELETED != 0, flags & CELL_IS_EXPIRING != 0);
    if flags & !CELL_FLAGS != 0 || (deleted && expiring) {
        return Err(r.invalid(i64::from(flags)));
    }
    let timestamp = if flags & CELL_USE_ROW_TIMESTAMP != 0 {
        context.liveness.timestamp
    } else {
        read_timestamp(r, &context.schema.stats)?
    };
    let (mut ttl, mut local) = (TtlSeconds::NONE, DeletionSeconds::NONE);
    if flags & CELL_USE_ROW_TTL != 0 {
        (ttl, local) = (context.liveness.ttl, context.liveness.expires_at);
    } else if deleted || expiring {
        local = read_local(r, context.schema)?;
        if expiring {
            ttl = read_ttl(r, &context.schema.stats)?;
        }
    }
    let path = if column.complex { r.bytes_vint()? } else { &[] };
    let value = if flags & CELL_HAS_EMPTY_VALUE != 0 {
        &[]
    } else {
        match column.fixed {
            Some(n) => r.bytes(n)?,
            None => r.bytes_vint()?,
        }
    };
    // A tombstone of a counter may carry a value in old files; it means nothing.
    let value = if deleted { &[] } else { value };
    Ok((path, CellRef { timestamp, ttl, local, value }))
}

#[cfg(test)]
mod tests {
    use codec::Writer;

    use super::*;

    #[test]
    fn usual_vints_are_what_the_reader_reads() {
        for bits in 0..64 {
            for value in [1u64 << bits, (1u64 << bits) - 1, (1u64 << bits) | 0x55] {
                let mut bytes = Vec::new();
                bytes.put_vint_unsigned(value);
                let length = bytes.len();
                bytes.extend_from_slice(&[0xEE; 8]);
                match usual_vint(&bytes) {
                    Some((found, rest)) => {
                        assert_eq!((found, rest.len()), (value, 8), "{value}");
                    }
                    None => assert_eq!(length, 9, "{value}"),
                }
                // Truncated: missing bytes are not read.
                if length > 1 {
                    assert_eq!(usual_vint(&bytes[..length]), None);
                }
            }
        }
    }
}
