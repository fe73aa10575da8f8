//! The serialization header of Statistics.db and what reading and writing rows need of it.
//!
//! Column order inside a file is Cassandra's: single-cell columns by name, then multi-cell ones by
//! name. Source: `db.SerializationHeader`, `db.rows.EncodingStats`, `db.Columns`.

use codec::{Reader, Writer};
use schema::column_order::compare_names;
use schema::{ColumnKind, Table};
use stdx::{ColumnId, DeletionSeconds, TimestampMicros};
use types::CqlType;

use crate::foreign::reads;
use crate::{FormatError, Result, Version};

const TIMESTAMP_EPOCH: i64 = 1_442_880_000_000_000;
const DELETION_EPOCH: i64 = 1_442_880_000;

/// Bases of the deltas in which rows write their times. Any values are correct; minima make small
/// files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodingStats {
    /// Base of timestamps.
    pub min_timestamp: TimestampMicros,
    /// Base of local deletion and expiry times.
    pub min_local_deletion: DeletionSeconds,
    /// Base of TTLs, seconds.
    pub min_ttl: i32,
}

impl EncodingStats {
    /// Statistics when nothing is known (`EncodingStats.NO_STATS`).
    pub const NONE: EncodingStats = EncodingStats {
        min_timestamp: TimestampMicros(TIMESTAMP_EPOCH),
        min_local_deletion: DeletionSeconds(DELETION_EPOCH),
        min_ttl: 0,
    };

    /// The smaller of each; [`EncodingStats::NONE`]'s fields give way to known ones.
    #[must_use]
    pub fn merge(self, other: EncodingStats) -> EncodingStats {
        fn pick<T: Ord + Copy>(a: T, b: T, none: T) -> T {
            if a == none {
                b
            } else if b == none {
                a
            } else {
                a.min(b)
            }
        }
        EncodingStats {
            min_timestamp: pick(self.min_timestamp, other.min_timestamp, Self::NONE.min_timestamp),
            min_local_deletion: pick(
                self.min_local_deletion,
                other.min_local_deletion,
                Self::NONE.min_local_deletion,
            ),
            min_ttl: pick(self.min_ttl, other.min_ttl, 0),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.put_vint_unsigned(self.min_timestamp.0.wrapping_sub(TIMESTAMP_EPOCH).cast_unsigned());
        put_i32_delta(out, self.min_local_deletion.0, DELETION_EPOCH);
        put_i32_delta(out, i64::from(self.min_ttl), 0);
    }

    fn decode(r: &mut Reader<'_>) -> Result<EncodingStats> {
        let timestamp = r.vint_unsigned()?.cast_signed().wrapping_add(TIMESTAMP_EPOCH);
        let local = i64::from(r.vint_unsigned_i32()?).saturating_add(DELETION_EPOCH);
        let min_ttl = r.vint_unsigned_i32()?;
        Ok(EncodingStats {
            min_timestamp: TimestampMicros(timestamp),
            min_local_deletion: DeletionSeconds(local),
            min_ttl,
        })
    }
}

/// `writeUnsignedVInt32((int) (value - base))`: the difference wraps to 32 bits and is widened
/// with its sign.
#[inline]
pub(crate) fn put_i32_delta(out: &mut Vec<u8>, value: i64, base: i64) {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "Cassandra's cast; the reader adds in 64 bits"
    )]
    let delta = value.wrapping_sub(base) as i32;
    out.put_vint_unsigned(i64::from(delta).cast_unsigned());
}

/// A column as the header names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderColumn {
    /// Column name, case kept.
    pub name: String,
    /// Its type when the file was written.
    pub ty: CqlType,
}

/// The header component of Statistics.db.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SerializationHeader {
    /// Bases of times.
    pub stats: EncodingStats,
    /// Types of the partition-key columns; more than one are a `CompositeType` in the file.
    pub key_types: Vec<CqlType>,
    /// Types of the clustering columns, with "descending".
    pub clustering_types: Vec<(CqlType, bool)>,
    /// Static columns in file order.
    pub statics: Vec<HeaderColumn>,
    /// Regular columns in file order.
    pub regulars: Vec<HeaderColumn>,
}

fn put_type(out: &mut Vec<u8>, name: &str) {
    out.put_bytes_vint(name.as_bytes());
}

fn marshal_error(name: &str, error: &types::TypeError) -> FormatError {
    FormatError::Unsupported { what: "type", value: format!("{name} ({error})") }
}

fn read_type_name<'a>(r: &mut Reader<'a>) -> Result<&'a str> {
    let n = r.vint_len()?;
    Ok(r.utf8(n)?)
}

pub(crate) fn read_type(r: &mut Reader<'_>) -> Result<(CqlType, bool)> {
    let name = read_type_name(r)?;
    types::parse_marshal(name).map_err(|e| marshal_error(name, &e))
}

/// File order of columns: single-cell before multi-cell, each in Cassandra's order of names. A Cassandra sorts the columns of a
/// header in this order before it reads rows, so in a file with another order it takes cells for those of other columns.
fn file_order(a: &HeaderColumn, b: &HeaderColumn) -> std::cmp::Ordering {
    let shapes = a.ty.is_multi_cell().cmp(&b.ty.is_multi_cell());
    shapes.then_with(|| compare_names(&a.name, &b.name))
}

impl SerializationHeader {
    /// The header for writing all columns of a table.
    pub fn for_table(table: &Table, stats: EncodingStats) -> SerializationHeader {
        let columns = |list: &[schema::Column]| {
            let mut columns: Vec<HeaderColumn> = list
                .iter()
                .map(|c| HeaderColumn { name: c.name.to_string(), ty: c.ty.clone() })
                .collect();
            columns.sort_by(file_order);
            columns
        };
        // Readers add deltas to the base in 32 bits or in 64. With a later base, some readers could
        // not represent the times after it.
        let min_local_deletion = stats.min_local_deletion.min(DeletionSeconds::MAX_SIGNED);
        SerializationHeader {
            stats: EncodingStats { min_local_deletion, ..stats },
            key_types: table.partition_key().iter().map(|c| c.ty.clone()).collect(),
            clustering_types: table
                .clustering()
                .iter()
                .map(|c| {
                    let reversed = matches!(c.kind, ColumnKind::Clustering { reversed: true, .. });
                    (c.ty.clone(), reversed)
                })
                .collect(),
            statics: columns(table.statics()),
            regulars: columns(table.regulars()),
        }
    }

    /// The type of a key of one column whose type is a `CompositeType` of the key's types.
    pub(crate) fn whole_key_type(&self) -> Option<CqlType> {
        let types = self.key_types.iter().map(|ty| (ty.clone(), false)).collect();
        types::CustomType::composite(types).map(CqlType::custom)
    }

    /// Marshal name of the partition key.
    pub fn key_type_name(&self) -> String {
        match self.key_types.as_slice() {
            [one] => one.to_marshal_name(),
            many => types::marshal::composite_marshal_name(many),
        }
    }

    /// Appends the component's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.stats.encode(out);
        put_type(out, &self.key_type_name());
        out.put_vint_unsigned(self.clustering_types.len() as u64);
        for (ty, reversed) in &self.clustering_types {
            let name = if *reversed { ty.to_marshal_name_reversed() } else { ty.to_marshal_name() };
            put_type(out, &name);
        }
        for columns in [&self.statics, &self.regulars] {
            out.put_vint_unsigned(columns.len() as u64);
            for column in columns {
                out.put_bytes_vint(column.name.as_bytes());
                put_type(out, &column.ty.to_marshal_name());
            }
        }
    }

    /// Reads the component's bytes.
    ///
    /// # Errors
    /// `Decode`, `Unsupported` for a type that does not parse, `Invalid` for two columns of one name.
    pub fn decode(bytes: &[u8]) -> Result<SerializationHeader> {
        let mut r = Reader::new(bytes, "serialization header");
        let stats = EncodingStats::decode(&mut r)?;
        let key = read_type_name(&mut r)?;
        let key_types = types::marshal::parse_marshal_components(key)
            .map_err(|e| marshal_error(key, &e))?
            .into_iter()
            .map(|(ty, _)| ty)
            .collect();
        let count = r.vint_len()?;
        let count = r.check_count(count, 1)?;
        let mut clustering_types = Vec::with_capacity(count);
        for _ in 0..count {
            clustering_types.push(read_type(&mut r)?);
        }
        let mut lists = [Vec::new(), Vec::new()];
        for list in &mut lists {
            let count = r.vint_len()?;
            let count = r.check_count(count, 2)?;
            list.reserve(count);
            for _ in 0..count {
                let n = r.vint_len()?;
                let name = r.utf8(n)?.to_owned();
                let (ty, _) = read_type(&mut r)?;
                list.push(HeaderColumn { name, ty });
            }
        }
        r.finish()?;
        // Columns are found by name: of two, one would be read or written as the other.
        let mut names: Vec<&str> = lists.iter().flatten().map(|c| c.name.as_str()).collect();
        names.sort_unstable();
        if !names.is_sorted_by(|a, b| a < b) {
            return Err(FormatError::Invalid { what: "two columns of one name", offset: 0 });
        }
        let [statics, regulars] = lists;
        Ok(SerializationHeader { stats, key_types, clustering_types, statics, regulars })
    }

    pub(crate) fn clustering_lengths(&self) -> Vec<Option<usize>> {
        self.clustering_types.iter().map(|(ty, _)| ty.fixed_len()).collect()
    }

    /// Returns the schema for reading rows, with columns resolved by name against the current
    /// table.
    ///
    /// # Errors
    /// `UnknownColumn` for a column that the table neither has nor had. For system tables it is
    /// skipped, and so is a column of another type. `Invalid` when the number of clustering columns
    /// differs.
    pub fn read_schema(&self, table: &Table, version: Version) -> Result<ReadSchema> {
        if self.clustering_types.len() != table.clustering().len() {
            return Err(FormatError::Invalid {
                what: "the file has another number of clustering columns than the table",
                offset: 0,
            });
        }
        let resolve = |columns: &[HeaderColumn], is_static: bool| -> Result<ReadColumns> {
            let mut out = Vec::with_capacity(columns.len());
            for column in columns {
                let dropped = table.dropped.get(column.name.as_str());
                let is_of_kind = |c: &&schema::Column| match c.kind {
                    ColumnKind::Static => is_static,
                    ColumnKind::Regular => !is_static,
                    _ => false,
                };
                let current = table.column(&column.name).filter(is_of_kind);
                // Other versions have other columns in system tables, which mean nothing here.
                let is_system = is_system_keyspace(&table.keyspace);
                if current.is_none() && dropped.is_none() && !is_system {
                    return Err(FormatError::UnknownColumn { column: column.name.clone() });
                }
                // Nor do those that have the name, but another type: such values could be read by the
                // file's type and not be written by the table's. The same of a column that was dropped and is
                // there again.
                let may_differ = is_system || dropped.is_some();
                let current = current.filter(|c| !may_differ || reads(&c.ty, &column.ty));
                // Cells of a hidden column are read too: a rewrite of the file keeps them.
                let mut hidden = table.hidden().map(|d| &d.column);
                let hidden = || {
                    let found = hidden.find(|c| *c.name == *column.name).filter(is_of_kind);
                    // They are written by the type that the column had.
                    found.filter(|c| reads(&c.ty, &column.ty))
                };
                // A column that became another kind of cell is read by the file's shape and then
                // dropped: its cells cannot be shown.
                let id = current
                    .or_else(hidden)
                    .filter(|c| c.ty.is_multi_cell() == column.ty.is_multi_cell())
                    .map(|c| c.id);
                let dropped_at = dropped.map_or(TimestampMicros::NONE, |d| d.dropped_at);
                out.push(ReadColumn::new(column, id, dropped_at));
            }
            Ok(ReadColumns::new(out))
        };
        Ok(ReadSchema {
            version,
            stats: self.stats,
            clustering: self.clustering_lengths(),
            statics: resolve(&self.statics, true)?,
            regulars: resolve(&self.regulars, false)?,
        })
    }

    /// Returns the schema for writing rows. Columns of the header that are not the table's, or
    /// occur twice, are a broken invariant of the caller: headers for writing come from
    /// [`SerializationHeader::for_table`].
    pub fn write_schema(&self, table: &Table, version: Version) -> WriteSchema {
        let resolve = |columns: &[HeaderColumn]| {
            let mut ids = Vec::with_capacity(columns.len());
            let mut by_id = Vec::new();
            for (index, column) in columns.iter().enumerate() {
                let found = table.column(&column.name).map(|c| c.id);
                let Some(id) = found else {
                    stdx::invariant::broken(format_args!(
                        "a header for writing has a foreign column"
                    ))
                };
                let slot = usize::from(id.0);
                if by_id.len() <= slot {
                    by_id.resize(slot.saturating_add(1), u16::MAX);
                }
                if let Some(entry) = by_id.get_mut(slot) {
                    stdx::invariant!(*entry == u16::MAX, "a header for writing has a column twice");
                    *entry = u16::try_from(index).unwrap_or(u16::MAX);
                }
                ids.push(WriteColumn { id, fixed: cell_length(&column.ty) });
            }
            let in_id_order = ids.is_sorted_by(|a, b| a.id < b.id);
            WriteColumns { columns: ids, by_id, in_id_order }
        };
        WriteSchema {
            version,
            stats: self.stats,
            has_counters: table.is_counter(),
            clustering: self.clustering_lengths(),
            statics: resolve(&self.statics),
            regulars: resolve(&self.regulars),
        }
    }
}

/// The keyspaces whose tables every version defines for itself.
fn is_system_keyspace(name: &str) -> bool {
    const NAMES: [&str; 5] =
        ["system", "system_auth", "system_distributed", "system_schema", "system_traces"];
    NAMES.contains(&name)
}

/// Width of the values of a column's cells. Cassandra writes the cells of a multi-cell column by
/// the type of the whole column, which has no fixed width, so their values always carry a length.
fn cell_length(ty: &CqlType) -> Option<usize> {
    if ty.is_multi_cell() { None } else { ty.fixed_len() }
}

/// One column for reading.
#[derive(Clone, Debug)]
pub struct ReadColumn {
    /// Its id in the table, also of one that was dropped; `None`: its cells can never be shown.
    pub id: Option<ColumnId>,
    /// Many cells.
    pub complex: bool,
    /// Bytes of its values when all have the same.
    pub fixed: Option<usize>,
    /// Cells at or before this are hidden; [`TimestampMicros::NONE`] = nothing is.
    pub dropped_at: TimestampMicros,
}

impl ReadColumn {
    fn new(column: &HeaderColumn, id: Option<ColumnId>, dropped_at: TimestampMicros) -> ReadColumn {
        let complex = column.ty.is_multi_cell();
        ReadColumn { id, complex, fixed: cell_length(&column.ty), dropped_at }
    }
}

/// Columns of one kind for reading.
#[derive(Clone, Debug)]
pub struct ReadColumns {
    /// In file order.
    pub columns: Vec<ReadColumn>,
    /// Ids ascend in file order, so rows can be packed as they are read.
    pub in_id_order: bool,
}

impl ReadColumns {
    fn new(columns: Vec<ReadColumn>) -> ReadColumns {
        let in_id_order = columns.iter().filter_map(|c| c.id).is_sorted_by(|a, b| a < b);
        ReadColumns { columns, in_id_order }
    }
}

/// Schema for reading rows.
#[derive(Clone, Debug)]
pub struct ReadSchema {
    /// Version of the format.
    pub version: Version,
    /// Bases of times.
    pub stats: EncodingStats,
    /// Widths of clustering values.
    pub clustering: Vec<Option<usize>>,
    /// Static columns.
    pub statics: ReadColumns,
    /// Regular columns.
    pub regulars: ReadColumns,
}

impl ReadSchema {
    /// Returns true if every partition has a static row in the file.
    pub fn has_static(&self) -> bool {
        !self.statics.columns.is_empty()
    }
}

/// One column for writing.
#[derive(Clone, Debug)]
pub struct WriteColumn {
    /// Its id.
    pub id: ColumnId,
    /// Bytes of its values when all have the same.
    pub fixed: Option<usize>,
}

/// Columns of one kind for writing.
#[derive(Clone, Debug)]
pub struct WriteColumns {
    /// In file order.
    pub columns: Vec<WriteColumn>,
    by_id: Vec<u16>,
    /// Ids ascend in file order.
    pub in_id_order: bool,
}

impl WriteColumns {
    /// Position in file order of a column id.
    #[inline]
    pub fn index_of(&self, id: ColumnId) -> Option<usize> {
        self.by_id.get(usize::from(id.0)).filter(|i| **i != u16::MAX).map(|i| usize::from(*i))
    }
}

/// Schema for writing rows.
#[derive(Clone, Debug)]
pub struct WriteSchema {
    /// Version of the format.
    pub version: Version,
    /// Bases of times.
    pub stats: EncodingStats,
    /// Widths of clustering values.
    pub clustering: Vec<Option<usize>>,
    /// Static columns.
    pub statics: WriteColumns,
    /// Regular columns.
    pub regulars: WriteColumns,
    /// Its cells are counters.
    pub has_counters: bool,
}

impl WriteSchema {
    /// Returns true if every partition gets a static row.
    pub fn has_static(&self) -> bool {
        !self.statics.columns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_written_in_the_order_in_which_a_cassandra_sorts_them() {
        let column = |name: &str, ty: CqlType| HeaderColumn { name: name.to_owned(), ty };
        let set = || CqlType::set(CqlType::Int, false);
        let mut columns = [
            column("a", set()),
            column("a2", CqlType::Int),
            column("é", set()),
            column("ß", CqlType::Int),
            column("Z", CqlType::set(CqlType::Int, true)),
            column("aé", CqlType::Int),
            column("", CqlType::Int),
        ];
        columns.sort_by(file_order);
        let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["ß", "", "Z", "a2", "aé", "é", "a"]);
    }

    #[test]
    fn a_header_that_names_a_column_twice_is_refused() {
        let column = |name: &str| HeaderColumn { name: name.to_owned(), ty: CqlType::Int };
        let decoded = |statics: &[&str], regulars: &[&str]| {
            let header = SerializationHeader {
                stats: EncodingStats::NONE,
                key_types: vec![CqlType::Int],
                clustering_types: Vec::new(),
                statics: statics.iter().map(|name| column(name)).collect(),
                regulars: regulars.iter().map(|name| column(name)).collect(),
            };
            let mut bytes = Vec::new();
            header.encode(&mut bytes);
            SerializationHeader::decode(&bytes).map(|back| assert_eq!(back, header))
        };
        assert_eq!(decoded(&["s"], &["b", "a"]), Ok(()));
        let twice = Err(FormatError::Invalid { what: "two columns of one name", offset: 0 });
        assert_eq!(decoded(&[], &["a", "b", "a"]), twice);
        assert_eq!(decoded(&["a"], &["a"]), twice);
    }
}
