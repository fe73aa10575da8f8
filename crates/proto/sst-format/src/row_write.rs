//! Rows, markers and partition headers of Data.db: writing.

use codec::Writer;
use data::row::{CellRef, ColumnRef};
use data::{DeletionTime, Liveness, RowRef};

use crate::clustering::{PrefixKind, encode_bound, encode_values};
use crate::header::{EncodingStats, WriteColumn, WriteColumns, WriteSchema, put_i32_delta};
use crate::row::{
    CELL_HAS_EMPTY_VALUE, CELL_IS_DELETED, CELL_IS_EXPIRING, CELL_USE_ROW_TIMESTAMP,
    CELL_USE_ROW_TTL, END_OF_PARTITION, EXTENSION_FLAG, HAS_ALL_COLUMNS, HAS_COMPLEX_DELETION,
    HAS_DELETION, HAS_TIMESTAMP, HAS_TTL, IS_MARKER, IS_STATIC,
};
use crate::row_copy::{PackedRow, UsualRow};
use crate::stats_collector::{StatsCollector, UsualRows};
use crate::{FormatError, Result, Version, deletion_i32, deletion_u32, put_deletion};

/// Working memory of the encoder; reused from row to row.
#[derive(Debug, Default)]
pub struct EncodeScratch {
    body: Vec<u8>,
    present: Vec<u16>,
}

/// Appends a partition's key and deletion.
///
/// # Errors
/// `TooLarge` for a key above 65,535 bytes; `Unsupported` for a deletion before 1970 since `oa`.
pub fn encode_partition_header(
    key: &[u8],
    deletion: &DeletionTime,
    version: Version,
    out: &mut Vec<u8>,
) -> Result<()> {
    check_deletion(deletion, version)?;
    out.put_bytes_u16(key, "partition key")
        .map_err(|_| FormatError::TooLarge { what: "partition key" })?;
    put_deletion(out, deletion, version);
    Ok(())
}

/// Since `oa` the sign of a deletion's timestamp marks a live one.
fn check_deletion(deletion: &DeletionTime, version: Version) -> Result<()> {
    if version.has_uint_times() && !deletion.is_live() && deletion.timestamp.0 < 0 {
        let value = deletion.timestamp.0.to_string();
        let what = "timestamp of a deletion in this version";
        return Err(FormatError::Unsupported { what, value });
    }
    Ok(())
}

/// Appends the mark of a partition's end.
pub fn encode_partition_end(out: &mut Vec<u8>) {
    out.put_u8(END_OF_PARTITION);
}

/// Kind of row to write.
#[derive(Clone, Copy, Debug)]
pub enum RowKind<'a> {
    /// The static row.
    Static,
    /// A row with this clustering.
    Regular(&'a [u8]),
}

/// Appends a row. `previous` is the size in bytes from the start of the row or marker before this
/// one to the start of this one (from the start of the partition for the first); 0 for static rows.
/// Cells of columns that the schema does not name (dropped since they were written) are left out.
///
/// # Errors
/// `ValueLength` for a value that its type cannot have.
pub fn encode_row(
    schema: &WriteSchema,
    kind: RowKind<'_>,
    row: RowRef<'_>,
    previous: u64,
    scratch: &mut EncodeScratch,
    stats: &mut StatsCollector,
    out: &mut Vec<u8>,
) -> Result<()> {
    if let RowKind::Regular(clustering) = kind
        && encode_usual_row(schema, clustering, row, previous, stats, out).is_some()
    {
        return Ok(());
    }
    encode_any_row(schema, kind, row, previous, scratch, stats, out)
}

/// [`encode_row`] of a row of the usual form. `None`: it is of another form, and nothing was done.
#[inline]
fn encode_usual_row(
    schema: &WriteSchema,
    clustering: &[u8],
    row: RowRef<'_>,
    previous: u64,
    stats: &mut StatsCollector,
    out: &mut Vec<u8>,
) -> Option<()> {
    let row = PackedRow::new(schema, clustering, row)?;
    row.put(previous, out);
    let columns = schema.regulars.columns.len() as u64;
    stats.usual_rows(&UsualRows::one(row.timestamp()), columns);
    Some(())
}

/// Finds the columns of a row, by their position in the file. Returns true if a collection of it is
/// deleted.
#[inline]
fn find_columns(columns: &WriteColumns, row: RowRef<'_>, present: &mut Vec<u16>) -> bool {
    present.clear();
    let mut complex_deletion = false;
    for (id, column) in row.columns() {
        let Some(index) = columns.index_of(id) else { continue };
        present.push(u16::try_from(index).unwrap_or(u16::MAX));
        if let ColumnRef::Complex(complex) = column {
            complex_deletion |= !complex.deletion.is_live();
        }
    }
    if !columns.in_id_order {
        present.sort_unstable();
    }
    complex_deletion
}

/// Appends the times of a row itself. Returns the flags of those that it has.
#[inline]
fn put_times(
    schema: &WriteSchema,
    liveness: &Liveness,
    deletion: &DeletionTime,
    body: &mut Vec<u8>,
) -> u8 {
    let mut flags = 0;
    if !liveness.is_empty() {
        flags |= HAS_TIMESTAMP;
        put_timestamp(body, &schema.stats, liveness.timestamp.0);
        if liveness.is_expiring() {
            flags |= HAS_TTL;
            put_i32_delta(body, i64::from(liveness.ttl.0), i64::from(schema.stats.min_ttl));
            put_local(body, schema, liveness.expires_at);
        }
    }
    if !deletion.is_live() {
        flags |= HAS_DELETION;
        put_deletion_delta(body, schema, deletion);
    }
    flags
}

/// Like [`encode_row`], for rows of any form.
pub(crate) fn encode_any_row(
    schema: &WriteSchema,
    kind: RowKind<'_>,
    row: RowRef<'_>,
    previous: u64,
    scratch: &mut EncodeScratch,
    stats: &mut StatsCollector,
    out: &mut Vec<u8>,
) -> Result<()> {
    let (columns, is_static) = match kind {
        RowKind::Static => (&schema.statics, true),
        RowKind::Regular(_) => (&schema.regulars, false),
    };
    if schema.has_counters {
        stats.counters(row);
    }
    let (liveness, deletion) = (row.liveness(), row.deletion());
    let EncodeScratch { body, present } = scratch;
    let complex_deletion = find_columns(columns, row, present);
    body.clear();
    let mut flags = put_times(schema, &liveness, &deletion, body);
    if complex_deletion {
        flags |= HAS_COMPLEX_DELETION;
    }
    let is_empty = liveness.is_empty() && deletion.is_live() && present.is_empty();
    if !(is_static && is_empty) {
        stats.row(&liveness, &deletion);
    }
    if present.len() == columns.columns.len() {
        flags |= HAS_ALL_COLUMNS;
    } else {
        encode_subset(present, columns.columns.len(), body);
    }
    let mut cells =
        CellWriter { schema, liveness: &liveness, complex_deletion, collector: stats, body };
    if columns.in_id_order {
        for (id, column) in row.columns() {
            if let Some(c) = columns.index_of(id).and_then(|i| columns.columns.get(i)) {
                cells.column(c, column)?;
            }
        }
    } else {
        out_of_order(columns, present, row, &mut cells)?;
    }
    if is_static {
        out.put_u8(flags | EXTENSION_FLAG);
        out.put_u8(IS_STATIC);
    } else {
        out.put_u8(flags);
    }
    if let RowKind::Regular(clustering) = kind {
        encode_values(clustering, &schema.clustering, out)?;
    }
    let size = body.len().saturating_add(codec::vint_unsigned_len(previous));
    out.put_vint_unsigned(size as u64);
    out.put_vint_unsigned(previous);
    out.put_bytes(body);
    Ok(())
}

/// Columns in file order where ids do not ascend with it.
fn out_of_order(
    columns: &WriteColumns,
    present: &[u16],
    row: RowRef<'_>,
    cells: &mut CellWriter<'_>,
) -> Result<()> {
    for index in present {
        if let Some(column) = columns.columns.get(usize::from(*index))
            && let Some(value) = row.column(column.id)
        {
            cells.column(column, value)?;
        }
    }
    Ok(())
}

/// Which of `count` columns are `present` (ascending positions, not all).
fn encode_subset(present: &[u16], count: usize, out: &mut Vec<u8>) {
    if count < 64 {
        let all = u64::MAX.checked_shr(u32::try_from(64usize.saturating_sub(count)).unwrap_or(0));
        let mut missing = if count == 0 { 0 } else { all.unwrap_or(0) };
        for index in present {
            missing &= !(1u64 << (index & 63));
        }
        out.put_vint_unsigned(missing);
        return;
    }
    out.put_vint_unsigned(count.saturating_sub(present.len()) as u64);
    if present.len() < count / 2 {
        for index in present {
            out.put_vint_unsigned(u64::from(*index));
        }
        return;
    }
    let mut next = present.iter().peekable();
    for index in 0..u16::try_from(count).unwrap_or(u16::MAX) {
        if next.peek() == Some(&&index) {
            next.next();
        } else {
            out.put_vint_unsigned(u64::from(index));
        }
    }
}

/// Appends a marker. See [`encode_row`] for `previous`.
///
/// # Errors
/// `Invalid` when nothing closes or opens; `ValueLength`; `Unsupported` as for partitions.
pub fn encode_marker(
    schema: &WriteSchema,
    marker: &data::Marker<'_>,
    previous: u64,
    scratch: &mut EncodeScratch,
    stats: &mut StatsCollector,
    out: &mut Vec<u8>,
) -> Result<PrefixKind> {
    let kind = PrefixKind::of_marker(marker).ok_or(FormatError::Invalid {
        what: "a marker that neither closes nor opens",
        offset: 0,
    })?;
    let body = &mut scratch.body;
    body.clear();
    for deletion in [marker.close, marker.open].into_iter().flatten() {
        check_deletion(&deletion, schema.version)?;
        put_deletion_delta(body, schema, &deletion);
        stats.deletion(&deletion);
    }
    out.put_u8(IS_MARKER);
    encode_bound(kind, marker.position.prefix, &schema.clustering, out)?;
    let size = body.len().saturating_add(codec::vint_unsigned_len(previous));
    out.put_vint_unsigned(size as u64);
    out.put_vint_unsigned(previous);
    out.put_bytes(body);
    Ok(kind)
}

#[inline]
fn put_timestamp(out: &mut Vec<u8>, stats: &EncodingStats, timestamp: i64) {
    out.put_vint_unsigned(timestamp.wrapping_sub(stats.min_timestamp.0).cast_unsigned());
}

#[inline]
fn put_local(out: &mut Vec<u8>, schema: &WriteSchema, local: stdx::DeletionSeconds) {
    let local = if schema.version.has_uint_times() {
        i64::from(deletion_u32(local))
    } else {
        i64::from(deletion_i32(local))
    };
    put_i32_delta(out, local, schema.stats.min_local_deletion.0);
}

fn put_deletion_delta(out: &mut Vec<u8>, schema: &WriteSchema, deletion: &DeletionTime) {
    put_timestamp(out, &schema.stats, deletion.timestamp.0);
    put_local(out, schema, deletion.local);
}

struct CellWriter<'w> {
    schema: &'w WriteSchema,
    liveness: &'w Liveness,
    complex_deletion: bool,
    collector: &'w mut StatsCollector,
    body: &'w mut Vec<u8>,
}

impl CellWriter<'_> {
    #[inline]
    fn column(&mut self, column: &WriteColumn, value: ColumnRef<'_>) -> Result<()> {
        match value {
            ColumnRef::Simple(cell) => {
                self.collector.column();
                self.cell(&cell, None, column.fixed)
            }
            ColumnRef::Complex(complex) => {
                if self.complex_deletion {
                    if complex.deletion.is_live() {
                        // Beside a column that has one. Cassandra 5 subtracts from its 64-bit "none"
                        // and keeps 32 bits: readers go by the timestamp.
                        put_timestamp(self.body, &self.schema.stats, complex.deletion.timestamp.0);
                        let base = self.schema.stats.min_local_deletion.0;
                        put_i32_delta(self.body, complex.deletion.local.0, base);
                    } else {
                        put_deletion_delta(self.body, self.schema, &complex.deletion);
                    }
                    self.collector.deletion(&complex.deletion);
                }
                let count = complex.cells().count();
                if count > 0 {
                    self.collector.column();
                }
                self.body.put_vint_unsigned(count as u64);
                for (path, cell) in complex.cells() {
                    self.cell(&cell, Some(path), column.fixed)?;
                }
                Ok(())
            }
        }
    }

    #[inline]
    fn cell(
        &mut self,
        cell: &CellRef<'_>,
        path: Option<&[u8]>,
        fixed: Option<usize>,
    ) -> Result<()> {
        let (body, liveness) = (&mut *self.body, self.liveness);
        let deleted = cell.is_tombstone();
        let expiring = cell.is_expiring();
        let same_timestamp = !liveness.is_empty() && cell.timestamp == liveness.timestamp;
        let same_ttl = expiring
            && liveness.is_expiring()
            && cell.ttl == liveness.ttl
            && cell.local == liveness.expires_at;
        let mut flags = 0;
        if cell.value.is_empty() {
            flags |= CELL_HAS_EMPTY_VALUE;
        }
        if deleted {
            flags |= CELL_IS_DELETED;
        } else if expiring {
            flags |= CELL_IS_EXPIRING;
        }
        if same_timestamp {
            flags |= CELL_USE_ROW_TIMESTAMP;
        }
        if same_ttl {
            flags |= CELL_USE_ROW_TTL;
        }
        body.put_u8(flags);
        if !same_timestamp {
            put_timestamp(body, &self.schema.stats, cell.timestamp.0);
        }
        if (deleted || expiring) && !same_ttl {
            put_local(body, self.schema, cell.local);
            if expiring {
                put_i32_delta(body, i64::from(cell.ttl.0), i64::from(self.schema.stats.min_ttl));
            }
        }
        if let Some(path) = path {
            body.put_bytes_vint(path);
        }
        match fixed {
            _ if cell.value.is_empty() => {}
            Some(n) if cell.value.len() != n => {
                return Err(FormatError::ValueLength { length: cell.value.len(), expected: n });
            }
            Some(_) => body.put_bytes(cell.value),
            None => body.put_bytes_vint(cell.value),
        }
        self.collector.cell(cell);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use data::row::RowBuilder;
    use data::{ClusteringBuf, Liveness};
    use stdx::{ColumnId, DeletionSeconds, TimestampMicros, TtlSeconds};
    use types::CqlType;

    use super::*;
    use crate::SerializationHeader;
    use crate::header::HeaderColumn;

    const NOW: TimestampMicros = TimestampMicros(1_700_000_000_000_000);

    /// A table `(p int, c1 int, c2 text, v0 int, v1 blob, v2 blob)`; file order may differ from ids.
    fn schema(in_order: bool) -> WriteSchema {
        let ids = if in_order { [3, 4, 5] } else { [4, 3, 5] };
        let types = [CqlType::Int, CqlType::Blob, CqlType::Blob];
        let names = ["v0", "v1", "v2"];
        let columns = names.iter().zip(ids).zip(&types).map(|((name, id), ty)| schema::Column {
            id: ColumnId(id),
            name: (*name).into(),
            ty: ty.clone(),
            kind: schema::ColumnKind::Regular,
        });
        let table = schema::Table {
            id: stdx::TableId(stdx::Uuid::nil()),
            keyspace: "k".into(),
            name: "t".into(),
            kind: schema::TableKind::Regular,
            partition_key_count: 0,
            clustering_count: 0,
            static_count: 0,
            options: schema::TableOptions::default(),
            dropped: Default::default(),
            masks: Default::default(),
            indexes: Default::default(),
            version: 1,
            next_column_id: 9,
            columns: columns.collect(),
        };
        let header = SerializationHeader {
            stats: EncodingStats {
                min_timestamp: TimestampMicros(NOW.0 - 70),
                ..EncodingStats::NONE
            },
            key_types: vec![CqlType::Int],
            clustering_types: vec![(CqlType::Int, false), (CqlType::Text, true)],
            statics: Vec::new(),
            regulars: names
                .iter()
                .zip(types)
                .map(|(name, ty)| HeaderColumn { name: (*name).to_owned(), ty })
                .collect(),
        };
        header.write_schema(&table, Version::Nb)
    }

    type Encoded = (std::result::Result<(), String>, Vec<u8>, String);

    fn encoded(encode: impl FnOnce(&mut StatsCollector, &mut Vec<u8>) -> Result<()>) -> Encoded {
        let (mut stats, mut out) = (StatsCollector::default(), vec![1, 2]);
        let result = encode(&mut stats, &mut out).map_err(|e| e.to_string());
        // The output of a failed row is not compared.
        if result.is_err() {
            out.clear();
        }
        (result, out, format!("{stats:?}"))
    }

    #[test]
    fn usual_rows_are_written_as_those_of_any_form() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut draw = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as usize % below
        };
        let (mut usual, mut others) = (0, 0);
        let schemas = [true, false].map(schema);
        for round in 0..2_000 {
            let schema = &schemas[usize::from(draw(8) == 0)];
            let rare = |hit: usize| hit == 0;
            let (mut packed, first, second) = (Vec::new(), [0, 0, 0, 7], b"text".repeat(draw(40)));
            let width = if rare(draw(40)) { 3 } else { 4 };
            let clustering = match draw(20) {
                0 => ClusteringBuf::from_components([&first[..width]]).0,
                1 => ClusteringBuf(Vec::new()).0,
                _ => ClusteringBuf::from_components([&first[..width], &second]).0,
            };
            let mut liveness = Liveness::new(NOW);
            if rare(draw(20)) {
                liveness.ttl = TtlSeconds(60);
                liveness.expires_at = DeletionSeconds(1_700_000_060);
            } else if rare(draw(20)) {
                liveness = Liveness::NONE;
            }
            let deletion = match draw(20) {
                0 => DeletionTime { timestamp: NOW, local: DeletionSeconds(1_700_000_000) },
                _ => DeletionTime::LIVE,
            };
            let mut builder = RowBuilder::new(&mut packed, liveness, deletion, NOW);
            for id in [3, 4, 5] {
                let value = vec![id as u8; [4, 4, 4, 4, 0, 3, 127, 128, 300][draw(9)]];
                match draw(30) {
                    0 => continue,
                    1 => builder.cell(ColumnId(id), &CellRef::live(TimestampMicros(5), &value)),
                    2 => builder.cell(
                        ColumnId(id),
                        &CellRef::tombstone(NOW, DeletionSeconds(1_700_000_000)),
                    ),
                    _ => builder.cell(ColumnId(id), &CellRef::live(NOW, &value)),
                }
            }
            if rare(draw(30)) {
                builder.cell(ColumnId(8), &CellRef::live(NOW, b"of a dropped column"));
            }
            builder.finish();
            let (row, previous) = (RowRef::trusted(&packed), [0, 5, 200, 70_000][draw(4)]);
            let kind = RowKind::Regular(&clustering);
            let mut scratch = EncodeScratch::default();
            let expect = encoded(|stats, out| {
                encode_any_row(schema, kind, row, previous, &mut scratch, stats, out)
            });
            let found = encoded(|stats, out| {
                encode_row(schema, kind, row, previous, &mut scratch, stats, out)
            });
            assert_eq!(found, expect, "round {round}");
            let (mut stats, mut out) = (StatsCollector::default(), Vec::new());
            match encode_usual_row(schema, &clustering, row, previous, &mut stats, &mut out) {
                Some(()) => usual += 1,
                None => {
                    others += 1;
                    assert!(out.is_empty(), "round {round}");
                }
            }
        }
        assert!(usual > 200 && others > 200, "{usual} {others}");
    }
}
