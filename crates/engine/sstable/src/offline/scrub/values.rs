//! Checks of a scrub on the values and times of rows.

use data::clustering::components;
use data::{CellRef, ColumnRef, Liveness, RowBuilder, RowRef};
use schema::Table;
use sst_format::{DELETION_SECONDS_MAX, Version};
use stdx::{ColumnId, DeletionSeconds, FixedMap, TimestampMicros};
use types::CqlType;

use super::ScrubOptions;

/// The largest time of a version before `oa`: a reader returns it for one that had overflowed.
const OVERFLOWED: DeletionSeconds = DeletionSeconds(DELETION_SECONDS_MAX);

/// The types of a table's columns, and the treatment of rows.
pub(super) struct Values {
    /// Name and type of each column; empty: values are not checked.
    columns: FixedMap<ColumnId, (String, CqlType)>,
    clustering: Vec<(String, CqlType)>,
    reinserts: bool,
}

impl Values {
    pub(super) fn new(table: &Table, version: Version, how: ScrubOptions) -> Values {
        let mut columns = FixedMap::default();
        let mut clustering = Vec::new();
        if how.validate {
            for column in table.statics().iter().chain(table.regulars()) {
                columns.insert(column.id, (column.name.to_string(), column.ty.clone()));
            }
            let of_table = table.clustering().iter();
            clustering = of_table.map(|c| (c.name.to_string(), c.ty.clone())).collect();
        }
        let reinserts = how.reinsert_overflowed_ttl && !version.has_uint_times();
        Values { columns, clustering, reinserts }
    }

    /// Returns the error of a clustering.
    pub(super) fn wrong_clustering(&self, clustering: &[u8]) -> Option<String> {
        let values = components(clustering).zip(&self.clustering);
        values
            .filter_map(|(value, (name, ty))| Some((name, ty.validate(value?).err()?)))
            .map(|(name, error)| wrong_text(name, &error.to_string()))
            .next()
    }

    /// Returns the error of a row's values.
    pub(super) fn wrong(&self, row: RowRef<'_>) -> Option<String> {
        if self.columns.is_empty() {
            return None;
        }
        row.columns().find_map(|(id, column)| {
            let (name, ty) = self.columns.get(&id)?;
            let error = match column {
                ColumnRef::Simple(cell) => wrong_cell(ty, &cell),
                ColumnRef::Complex(complex) => {
                    let (path_type, value_type) = of_complex(ty)?;
                    complex.cells().find_map(|(path, cell)| {
                        let path = path_type.as_ref().and_then(|ty| ty.validate(path).err());
                        let path = path.map(|error| error.to_string());
                        path.or_else(|| value_type.and_then(|ty| wrong_cell(ty, &cell)))
                    })
                }
            };
            error.map(|error| wrong_text(name, &error))
        })
    }

    /// The row with overflowed times set to the largest and newer by a microsecond, so that it wins
    /// over the deletion that its wrong time made of it; `None`: it has no such time. Source:
    /// Cassandra `FixNegativeLocalDeletionTimeIterator`.
    pub(super) fn fixed(&self, row: RowRef<'_>) -> Option<Vec<u8>> {
        if !self.reinserts || !has_overflowed(row) {
            return None;
        }
        let mut liveness = row.liveness();
        if liveness.is_expiring() && liveness.expires_at == OVERFLOWED {
            liveness = Liveness { timestamp: next(liveness.timestamp), ..liveness };
        }
        let mut out = Vec::with_capacity(row.bytes().len());
        let mut builder = RowBuilder::new(&mut out, liveness, row.deletion(), row.base_timestamp());
        for (id, column) in row.columns() {
            match column {
                ColumnRef::Simple(cell) => builder.cell(id, &fixed_cell(cell)),
                ColumnRef::Complex(complex) => {
                    builder.begin_complex(id, complex.deletion);
                    for (path, cell) in complex.cells() {
                        builder.complex_cell(path, &fixed_cell(cell));
                    }
                    builder.end_complex();
                }
            }
        }
        builder.finish();
        Some(out)
    }
}

fn wrong_text(name: &str, error: &str) -> String {
    format!("{} has no value of its type: {error}", name.trim_start_matches('\0'))
}

fn wrong_cell(ty: &CqlType, cell: &CellRef<'_>) -> Option<String> {
    // A counter's cell is its context.
    if cell.is_tombstone() || ty.is_counter() {
        return None;
    }
    ty.validate(cell.value).err().map(|error| error.to_string())
}

/// Types of the path and the value of a cell; `None`: nothing is known of it.
fn of_complex(ty: &CqlType) -> Option<(Option<CqlType>, Option<&CqlType>)> {
    match ty {
        CqlType::List { element, .. } => Some((Some(CqlType::Timeuuid), Some(element))),
        CqlType::Set { element, .. } => Some((Some((**element).clone()), None)),
        CqlType::Map { key, value, .. } => Some((Some((**key).clone()), Some(value))),
        _ => None,
    }
}

fn next(timestamp: TimestampMicros) -> TimestampMicros {
    TimestampMicros(timestamp.0.saturating_add(1))
}

fn is_overflowed(cell: &CellRef<'_>) -> bool {
    cell.is_expiring() && cell.local == OVERFLOWED
}

fn fixed_cell(cell: CellRef<'_>) -> CellRef<'_> {
    match is_overflowed(&cell) {
        true => CellRef { timestamp: next(cell.timestamp), ..cell },
        false => cell,
    }
}

fn has_overflowed(row: RowRef<'_>) -> bool {
    let liveness = row.liveness();
    (liveness.is_expiring() && liveness.expires_at == OVERFLOWED)
        || row.columns().any(|(_, column)| match column {
            ColumnRef::Simple(cell) => is_overflowed(&cell),
            ColumnRef::Complex(complex) => complex.cells().any(|(_, cell)| is_overflowed(&cell)),
        })
}
