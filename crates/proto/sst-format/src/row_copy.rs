//! Copies rows of the usual form into a file without unpacking and packing them. Rows of another file are
//! copied verbatim, with other times and sizes in front. Rows of a memtable are written from their packed
//! form.
//!
//! A row is of the usual form when it is live without a TTL and not deleted, and has all columns of the file,
//! each one live cell of the row's timestamp; no value of its clustering is empty or null. All others, and
//! damaged or truncated ones, are for [`crate::row`] and [`crate::row_write`].
//!
//! INV-row-copy-1: the output is byte for byte that of unpacking and [`crate::row_write::encode_row`].

use codec::Writer;
use data::RowRef;
use data::clustering::{components, push_component};
use data::row::UsualCells;
use stdx::TimestampMicros;

use crate::header::{ReadSchema, WriteSchema};
use crate::row::{
    CELL_HAS_EMPTY_VALUE, CELL_USE_ROW_TIMESTAMP, HAS_ALL_COLUMNS, HAS_TIMESTAMP, usual_size,
    usual_value, usual_vint,
};

const USUAL_FLAGS: u8 = HAS_TIMESTAMP | HAS_ALL_COLUMNS;
const EMPTY_CELL: u8 = CELL_USE_ROW_TIMESTAMP | CELL_HAS_EMPTY_VALUE;
/// Most clustering columns of such rows: those that fit into one number.
const CLUSTERING_MAX: usize = 32;

/// A row of the usual form that can be written.
pub trait UsualRow {
    /// Timestamp of the row and its cells.
    fn timestamp(&self) -> TimestampMicros;

    /// Appends the row. `previous` is as in [`crate::row_write::encode_row`].
    fn put(&self, previous: u64, out: &mut Vec<u8>);

    /// Appends its clustering in `data`'s form.
    fn put_clustering(&self, out: &mut Vec<u8>);
}

/// Appends flags and times of a row whose cells take this many bytes.
#[inline]
fn put_times(previous: u64, delta: u64, cells: usize, out: &mut Vec<u8>) {
    let times = codec::vint_unsigned_len(previous).saturating_add(codec::vint_unsigned_len(delta));
    out.put_vint_unsigned(times.saturating_add(cells) as u64);
    out.put_vint_unsigned(previous);
    out.put_vint_unsigned(delta);
}

/// Finds rows of one file that can be copied verbatim into another.
#[derive(Clone, Debug)]
pub struct RowCopier {
    /// Widths of clustering values.
    clustering: Vec<Option<usize>>,
    /// Widths of the values of each column.
    columns: Vec<Option<usize>>,
    /// Bases of timestamps.
    from: i64,
    to: i64,
    /// Rows at or before this may have cells that are hidden.
    dropped_at: TimestampMicros,
}

/// A row in the bytes of its file.
#[derive(Clone, Copy, Debug)]
pub struct RawRow<'a> {
    copier: &'a RowCopier,
    timestamp: TimestampMicros,
    clustering: &'a [u8],
    cells: &'a [u8],
    /// Bytes that it takes in its file.
    pub length: usize,
}

/// Positions of the parts of a row of [`RowCopier::row`], so that a copy need not parse it again.
#[derive(Clone, Copy, Debug)]
pub struct RowPlace {
    timestamp: TimestampMicros,
    clustering: u16,
    cells: u16,
    length: u16,
}

impl RowPlace {
    /// Timestamp of the row and its cells.
    #[inline]
    pub fn timestamp(&self) -> TimestampMicros {
        self.timestamp
    }

    /// Bytes that the row takes in its file.
    #[inline]
    pub fn length(&self) -> usize {
        usize::from(self.length)
    }
}

impl RawRow<'_> {
    /// Returns the positions of its parts; `None` if it is too long for them.
    #[inline]
    pub fn place(&self) -> Option<RowPlace> {
        Some(RowPlace {
            timestamp: self.timestamp,
            clustering: u16::try_from(self.clustering.len()).ok()?,
            cells: u16::try_from(self.cells.len()).ok()?,
            length: u16::try_from(self.length).ok()?,
        })
    }
}

impl RowCopier {
    /// From a file with that header into one with this. `None`: they do not have the same columns in the
    /// same order, or a column is dropped, or is one of counters or of many cells.
    pub fn new(from: &ReadSchema, to: &WriteSchema) -> Option<RowCopier> {
        let (read, written) = (&from.regulars.columns, &to.regulars.columns);
        let are_same = read.len() == written.len()
            && from.clustering == to.clustering
            && from.clustering.len() <= CLUSTERING_MAX
            && read.iter().zip(written).all(|(from, to)| {
                from.id == Some(to.id)
                    && !from.complex
                    && from.fixed == to.fixed
                    && from.fixed != Some(0)
            });
        if !are_same || to.has_counters {
            return None;
        }
        let dropped_at = read.iter().map(|column| column.dropped_at).max();
        Some(RowCopier {
            clustering: from.clustering.clone(),
            columns: read.iter().map(|column| column.fixed).collect(),
            from: from.stats.min_timestamp.0,
            to: to.stats.min_timestamp.0,
            dropped_at: dropped_at.unwrap_or(TimestampMicros::NONE),
        })
    }

    /// Regular columns.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// The row at the start of `bytes`, if it is of the usual form, wholly there, and written as this
    /// crate writes it.
    #[inline]
    pub fn row<'a>(&'a self, bytes: &'a [u8]) -> Option<RawRow<'a>> {
        self.row_inline(bytes)
    }

    /// The row that was found at the start of these bytes before, which are the same since. `None`: they are fewer.
    #[inline]
    pub fn row_at<'a>(&'a self, bytes: &'a [u8], place: &RowPlace) -> Option<RawRow<'a>> {
        let (length, cells) = (place.length(), usize::from(place.cells));
        let row = bytes.get(..length)?;
        Some(RawRow {
            copier: self,
            timestamp: place.timestamp,
            clustering: row.get(1..usize::from(place.clustering).saturating_add(1))?,
            cells: row.get(length.saturating_sub(cells)..)?,
            length,
        })
    }

    /// Rows have no clustering: a partition has one at most.
    #[inline]
    pub fn has_single_rows(&self) -> bool {
        self.clustering.is_empty()
    }

    /// [`RowCopier::row`] for the one place where handing the row back in memory would be noticed.
    #[inline(always)]
    pub fn row_inline<'a>(&'a self, bytes: &'a [u8]) -> Option<RawRow<'a>> {
        let [USUAL_FLAGS, behind_flags @ ..] = bytes else { return None };
        let behind = self.behind_clustering(behind_flags)?;
        let clustering = behind_flags.get(..behind_flags.len().saturating_sub(behind.len()))?;
        let (size, body) = usual_size(behind)?;
        let length = bytes.len().saturating_sub(body.len()).saturating_add(size);
        // The size of the row before.
        let (_, rest) = usual_vint(body.get(..size)?)?;
        let (delta, cells) = usual_vint(rest)?;
        let timestamp = TimestampMicros(self.from.wrapping_add(delta.cast_signed()));
        if timestamp == TimestampMicros::NONE || timestamp <= self.dropped_at {
            return None;
        }
        let mut rest = cells;
        for fixed in &self.columns {
            rest = behind_cell(*fixed, rest)?;
        }
        let row = RawRow { copier: self, timestamp, clustering, cells, length };
        rest.is_empty().then_some(row)
    }

    #[inline]
    fn behind_clustering<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        if self.clustering.is_empty() {
            return Some(bytes);
        }
        let [0, rest @ ..] = bytes else { return None };
        let mut rest = rest;
        for fixed in &self.clustering {
            let (value, next) = usual_value(*fixed, rest)?;
            if value.is_empty() {
                return None;
            }
            rest = next;
        }
        Some(rest)
    }
}

/// Returns the bytes after the cell at the start of `bytes`, a live one of the row's timestamp.
#[inline]
fn behind_cell(fixed: Option<usize>, bytes: &[u8]) -> Option<&[u8]> {
    match (bytes, fixed) {
        ([CELL_USE_ROW_TIMESTAMP, rest @ ..], Some(width)) => rest.get(width..),
        ([CELL_USE_ROW_TIMESTAMP, length @ 1..0x80, rest @ ..], None) => {
            rest.get(usize::from(*length)..)
        }
        ([CELL_USE_ROW_TIMESTAMP, rest @ ..], None) => {
            let (length, value) = usual_vint(rest)?;
            // Lengths may take more bytes than they need, and values of length zero have two forms.
            let said_in = rest.len().saturating_sub(value.len());
            if length == 0 || said_in != codec::vint_unsigned_len(length) {
                return None;
            }
            value.get(usize::try_from(length).ok()?..)
        }
        ([EMPTY_CELL, rest @ ..], _) => Some(rest),
        _ => None,
    }
}

impl UsualRow for RawRow<'_> {
    #[inline]
    fn timestamp(&self) -> TimestampMicros {
        self.timestamp
    }

    #[inline]
    fn put(&self, previous: u64, out: &mut Vec<u8>) {
        out.reserve(self.clustering.len().saturating_add(self.cells.len()).saturating_add(32));
        out.put_u8(USUAL_FLAGS);
        out.put_bytes(self.clustering);
        let delta = self.timestamp.0.wrapping_sub(self.copier.to).cast_unsigned();
        put_times(previous, delta, self.cells.len(), out);
        out.put_bytes(self.cells);
    }

    #[inline]
    fn put_clustering(&self, out: &mut Vec<u8>) {
        let mut rest = self.clustering.get(1..).unwrap_or(&[]);
        for fixed in &self.copier.clustering {
            let Some((value, next)) = usual_value(*fixed, rest) else { return };
            push_component(out, Some(value));
            rest = next;
        }
    }
}

/// A packed row of the usual form.
#[derive(Clone, Debug)]
pub struct PackedRow<'a> {
    schema: &'a WriteSchema,
    timestamp: TimestampMicros,
    clustering: &'a [u8],
    cells: UsualCells<'a>,
    /// Bytes that the cells take in the file.
    cells_length: usize,
}

impl<'a> PackedRow<'a> {
    /// A regular row with its clustering; `None`: it is of another form, or cannot be written. Values of the
    /// usual form have less than 128 bytes here.
    #[inline]
    pub fn new(
        schema: &'a WriteSchema,
        clustering: &'a [u8],
        row: RowRef<'a>,
    ) -> Option<PackedRow<'a>> {
        let columns = &schema.regulars;
        if schema.has_counters || !columns.in_id_order || !has_usual_values(schema, clustering) {
            return None;
        }
        let (timestamp, cells) = row.usual_cells()?;
        let mut cells_length = 0usize;
        let mut measured = cells.clone();
        for column in &columns.columns {
            let (id, value) = measured.next_usual()?;
            let fits = column.fixed.is_none_or(|n| n == value.len() || value.is_empty());
            if id != column.id || !fits {
                return None;
            }
            // The flags, and a length of one byte.
            let more =
                1usize.saturating_add(usize::from(column.fixed.is_none() && !value.is_empty()));
            cells_length = cells_length.saturating_add(value.len()).saturating_add(more);
        }
        let row = PackedRow { schema, timestamp, clustering, cells, cells_length };
        measured.is_done().then_some(row)
    }
}

impl PackedRow<'_> {
    /// The row takes no more bytes in the file.
    pub fn length_max(&self) -> usize {
        self.clustering.len().saturating_add(self.cells_length).saturating_add(64)
    }
}

/// Returns true if all values are present, of the required length, and not empty.
#[inline]
fn has_usual_values(schema: &WriteSchema, clustering: &[u8]) -> bool {
    if schema.clustering.is_empty() {
        return clustering.is_empty();
    }
    let mut values = components(clustering);
    schema.clustering.len() <= CLUSTERING_MAX
        && schema.clustering.iter().all(|fixed| match values.next() {
            Some(Some(value)) => !value.is_empty() && fixed.is_none_or(|n| n == value.len()),
            _ => false,
        })
        && values.next().is_none()
}

impl UsualRow for PackedRow<'_> {
    #[inline]
    fn timestamp(&self) -> TimestampMicros {
        self.timestamp
    }

    #[inline]
    fn put(&self, previous: u64, out: &mut Vec<u8>) {
        out.reserve(self.clustering.len().saturating_add(self.cells_length).saturating_add(64));
        out.put_u8(USUAL_FLAGS);
        if !self.schema.clustering.is_empty() {
            out.put_u8(0);
            for (fixed, value) in self.schema.clustering.iter().zip(components(self.clustering)) {
                let value = value.unwrap_or(&[]);
                match fixed {
                    Some(_) => out.put_bytes(value),
                    None => out.put_bytes_vint(value),
                }
            }
        }
        let base = self.schema.stats.min_timestamp.0;
        let delta = self.timestamp.0.wrapping_sub(base).cast_unsigned();
        put_times(previous, delta, self.cells_length, out);
        let mut cells = self.cells.clone();
        for column in &self.schema.regulars.columns {
            let Some((length, value)) = cells.next_seen() else { return };
            match (column.fixed, u8::try_from(length)) {
                (_, Ok(0)) => out.put_u8(EMPTY_CELL),
                (None, Ok(short)) => {
                    out.put_bytes(&[CELL_USE_ROW_TIMESTAMP, short]);
                    out.put_first(value, length);
                }
                _ => {
                    out.put_u8(CELL_USE_ROW_TIMESTAMP);
                    out.put_first(value, length);
                }
            }
        }
    }

    #[inline]
    fn put_clustering(&self, out: &mut Vec<u8>) {
        out.put_bytes(self.clustering);
    }
}

#[cfg(test)]
mod tests {
    use data::row::{CellRef, RowBuilder};
    use data::{ClusteringBuf, DeletionTime, Liveness};
    use schema::{Column, ColumnKind, Table, TableKind};
    use stdx::{ColumnId, DeletionSeconds, TtlSeconds};
    use types::CqlType;

    use super::*;
    use crate::header::EncodingStats;
    use crate::row::{RowScratch, decode_any_head, decode_any_row};
    use crate::row_write::{EncodeScratch, RowKind, encode_any_row, encode_row};
    use crate::stats_collector::UsualRows;
    use crate::{SerializationHeader, StatsCollector, Version};

    const NOW: i64 = 1_700_000_000_000_000;

    /// Draws below a bound, each time another number.
    fn drawing(seed: u64) -> impl FnMut(usize) -> usize {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as usize % below
        }
    }

    /// A table with this many clustering columns and values of fixed and other widths; names
    /// descend where ids do not ascend in the file.
    fn table(clustering: u16, descends: bool) -> Table {
        let types = [CqlType::Blob, CqlType::Int, CqlType::Blob];
        let mut columns = Vec::new();
        for position in 0..clustering {
            let ty = if position == 0 { CqlType::Int } else { CqlType::Text };
            let kind = ColumnKind::Clustering { position, reversed: false };
            let name = format!("ck{position}").as_str().into();
            columns.push(Column { id: ColumnId(position), name, ty, kind });
        }
        for (id, ty) in (3..).zip(types) {
            let name = if descends { format!("c{}", 9 - id) } else { format!("c{id}") };
            let (name, kind) = (name.as_str().into(), ColumnKind::Regular);
            columns.push(Column { id: ColumnId(id), name, ty, kind });
        }
        Table {
            id: stdx::TableId(stdx::Uuid::nil()),
            keyspace: "k".into(),
            name: "t".into(),
            kind: TableKind::Regular,
            partition_key_count: 0,
            clustering_count: clustering.into(),
            static_count: 0,
            options: schema::TableOptions::default(),
            dropped: Default::default(),
            masks: Default::default(),
            indexes: Default::default(),
            version: 1,
            next_column_id: 9,
            columns,
        }
    }

    struct Schemas {
        read: ReadSchema,
        write_there: WriteSchema,
        write: WriteSchema,
    }

    /// Schemas of the source and the target of a copy, with different bases.
    fn schemas(clustering: u16, descends: bool) -> Schemas {
        let table = table(clustering, descends);
        let header = |before: i64| {
            let min_timestamp = TimestampMicros(NOW - before);
            SerializationHeader::for_table(
                &table,
                EncodingStats { min_timestamp, ..EncodingStats::NONE },
            )
        };
        let from = header(70);
        Schemas {
            read: from.read_schema(&table, Version::Da).unwrap(),
            write_there: from.write_schema(&table, Version::Da),
            write: header(100_000).write_schema(&table, Version::Da),
        }
    }

    /// Encodes a row of any form, most often of the usual one, as the first file has it.
    fn draw_row(schemas: &Schemas, draw: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
        let timestamp = TimestampMicros(NOW + draw(1 << 20) as i64 - 50);
        let mut liveness = Liveness::new(timestamp);
        match draw(30) {
            0 => liveness = Liveness::NONE,
            1 => {
                liveness.ttl = TtlSeconds(60);
                liveness.expires_at = DeletionSeconds(1_700_000_060);
            }
            _ => {}
        }
        let local = DeletionSeconds(1_700_000_000);
        let deletion = match draw(30) {
            0 => DeletionTime { timestamp: TimestampMicros(NOW), local },
            _ => DeletionTime::LIVE,
        };
        let mut packed = Vec::new();
        let mut builder = RowBuilder::new(&mut packed, liveness, deletion, timestamp);
        for id in [3, 4, 5] {
            let width =
                if id == 4 { [4, 0][usize::from(draw(9) == 0)] } else { draw(9) * draw(90) };
            let value = vec![id as u8; width];
            let cell = match draw(60) {
                0 => continue,
                1 => CellRef::live(TimestampMicros(NOW + 5), &value),
                2 => CellRef::tombstone(timestamp, local),
                _ => CellRef::live(timestamp, &value),
            };
            builder.cell(ColumnId(id), &cell);
        }
        builder.finish();
        let values = [vec![7; 4], vec![b't'; draw(5) * draw(40)]];
        let count = schemas.read.clustering.len();
        let clustering = ClusteringBuf::from_components(values.iter().take(count).map(|v| &v[..]));
        let (mut scratch, mut stats) = (EncodeScratch::default(), StatsCollector::default());
        let mut out = Vec::new();
        let kind = RowKind::Regular(clustering.as_bytes());
        let (row, previous) = (RowRef::trusted(&packed), [5, 200, 70_000][draw(3)]);
        encode_row(&schemas.write_there, kind, row, previous, &mut scratch, &mut stats, &mut out)
            .unwrap();
        out
    }

    /// Compares a copy with unpacking and packing; returns true if the row is copied.
    fn is_copied(schemas: &Schemas, bytes: &[u8], previous: u64) -> bool {
        let copier = RowCopier::new(&schemas.read, &schemas.write).unwrap();
        let Some(raw) = copier.row(bytes) else { return false };
        let (mut scratch, mut encoding) = (RowScratch::default(), EncodeScratch::default());
        let head = decode_any_head(&schemas.read, bytes, &mut scratch).unwrap();
        assert_eq!(head.end, raw.length);
        let body = &bytes[head.body..head.end];
        decode_any_row(&schemas.read, &schemas.read.regulars, &head, body, &mut scratch).unwrap();
        let row = RowRef::trusted(&scratch.row);
        let (mut expect, mut found) = (Vec::new(), Vec::new());
        let (mut stats, mut usual) = (StatsCollector::default(), StatsCollector::default());
        let kind = RowKind::Regular(&scratch.clustering);
        encode_any_row(&schemas.write, kind, row, previous, &mut encoding, &mut stats, &mut expect)
            .unwrap();
        raw.put(previous, &mut found);
        assert_eq!(found, expect);
        usual.usual_rows(&UsualRows::one(raw.timestamp()), copier.columns() as u64);
        assert_eq!(format!("{usual:?}"), format!("{stats:?}"));
        found.clear();
        raw.put_clustering(&mut found);
        assert_eq!(found, scratch.clustering);
        true
    }

    /// INV-row-copy-1.
    #[test]
    fn a_copied_row_is_what_unpacking_and_packing_make_of_it() {
        for seed in 0..6 {
            let schemas = schemas(seed as u16 % 3, seed >= 3);
            let mut draw = drawing(seed);
            let (mut copied, mut others) = (0, 0);
            for _ in 0..300 {
                let mut bytes = draw_row(&schemas, &mut draw);
                let previous = [0, 5, 200, 70_000][draw(4)];
                match is_copied(&schemas, &bytes, previous) {
                    true => copied += 1,
                    false => others += 1,
                }
                // Cut, or with what follows it.
                assert!(!is_copied(&schemas, &bytes[..draw(bytes.len())], previous));
                bytes.extend_from_slice(&[1, 0, 8]);
                is_copied(&schemas, &bytes, previous);
                // Damaged: not taken, or the same as the general way has it.
                for _ in 0..4 {
                    let at = draw(bytes.len());
                    let before = bytes[at];
                    bytes[at] = draw(256) as u8;
                    is_copied(&schemas, &bytes, previous);
                    bytes[at] = before;
                }
            }
            assert!(copied > 120 && others > 20, "seed {seed}: {copied} copied, {others} not");
        }
    }

    #[test]
    fn values_said_in_more_bytes_than_they_need_are_not_copied() {
        let schemas = schemas(0, false);
        let copier = RowCopier::new(&schemas.read, &schemas.write).unwrap();
        let row = |cells: &[u8]| {
            let mut bytes = vec![USUAL_FLAGS, 2 + cells.len() as u8, 5, 70];
            bytes.extend_from_slice(cells);
            bytes.resize(64, 0);
            copier.row(&bytes).is_some()
        };
        assert!(row(&[8, 1, 1, 8, 0, 0, 0, 7, 8, 1, 1]));
        // A length of one in two bytes, and one of zero where the flags could express it.
        assert!(!row(&[8, 0x80, 1, 1, 8, 0, 0, 0, 7, 8, 1, 1]));
        assert!(!row(&[8, 0, 8, 0, 0, 0, 7, 8, 1, 1]));
        assert!(row(&[12, 8, 0, 0, 0, 7, 8, 1, 1]));
    }

    #[test]
    fn files_with_other_columns_and_dropped_ones_are_not_copied_as_they_lie() {
        let Schemas { read, write, .. } = schemas(2, false);
        assert!(RowCopier::new(&read, &write).is_some());
        let changed = |change: &dyn Fn(&mut ReadSchema, &mut WriteSchema)| {
            let (mut read, mut write) = (read.clone(), write.clone());
            change(&mut read, &mut write);
            RowCopier::new(&read, &write).is_some()
        };
        assert!(!changed(&|read, _| read.regulars.columns.truncate(1)));
        assert!(!changed(&|read, _| read.regulars.columns.reverse()));
        assert!(!changed(&|read, _| read.regulars.columns[1].id = None));
        assert!(!changed(&|read, _| read.regulars.columns[1].complex = true));
        assert!(!changed(&|read, _| read.regulars.columns[1].fixed = Some(8)));
        assert!(!changed(&|read, _| read.clustering[0] = None));
        assert!(!changed(&|_, write| write.has_counters = true));
        // Rows at or before the drop of a column are not copied.
        let mut read = schemas(0, false).read;
        let at = |read: &ReadSchema| {
            let copier = RowCopier::new(read, &schemas(0, false).write).unwrap();
            copier.row(&[USUAL_FLAGS, 5, 5, 70, 12, 12, 12]).is_some()
        };
        for (dropped_at, expect) in [(NOW - 1, true), (NOW, false)] {
            read.regulars.columns[2].dropped_at = TimestampMicros(dropped_at);
            assert_eq!(at(&read), expect, "{dropped_at}");
        }
    }
}
