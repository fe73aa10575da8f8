//! Guardrails on the sizes of terms that a write adds to storage-attached indexes.
//!
//! Every row of the statement is checked, one that is deleted too, by all indexes of the table in the order of their names.
//! Source: Cassandra's `PartitionUpdate.validateIndexedColumns`, `StorageAttachedIndex.validateTermSizeForRow`.

use data::{CellRef, ColumnRef, RowRef};
use index_format::indexed::text_options;
use index_format::text::TextOptions;
use schema::{Column, ColumnKind, IndexRules, Table, TargetPart};
use types::CqlType;

use super::write::{Update, slice};
use crate::column_source::key_component;
use crate::error::PlanError;
use crate::guardrails::{TermKind, Watch};

/// Bytes of an entry of a map beside its key and value: two lengths of two bytes, two ends.
const ENTRY_OVERHEAD_BYTES: usize = 2 * (2 + 1);

/// Returns true if writes to the table are checked.
pub(super) fn are_limited(table: &Table, watch: &Watch) -> bool {
    let is_attached = table.indexes.iter().any(|index| index.rules == IndexRules::Sai);
    is_attached && watch.rails().limits_terms()
}

/// Checks the rows of an update.
///
/// # Errors
/// A term is too large.
pub(super) fn check(
    table: &Table,
    update: &Update,
    scratch: &[u8],
    watch: &Watch,
) -> Result<(), PlanError> {
    let key = slice(scratch, &update.key);
    if let Some(row) = &update.static_row {
        check_row(table, key, None, RowRef::trusted(slice(scratch, row)), watch)?;
    }
    for (clustering, row) in &update.rows {
        let clustering = slice(scratch, clustering);
        check_row(table, key, Some(clustering), RowRef::trusted(slice(scratch, row)), watch)?;
    }
    Ok(())
}

fn check_row(
    table: &Table,
    key: &[u8],
    clustering: Option<&[u8]>,
    row: RowRef<'_>,
    watch: &Watch,
) -> Result<(), PlanError> {
    for index in table.indexes.iter().filter(|index| index.rules == IndexRules::Sai) {
        let Some(column) = table.column(&index.target.column) else { continue };
        let kind = kind_of(&column.ty);
        let text = text_options(index);
        let guard = |value: &[u8]| match size_of(value, text) {
            0 => Ok(()),
            bytes => watch.index_term(kind, &column.name, bytes),
        };
        match (column.kind, clustering) {
            (ColumnKind::PartitionKey(position), _) => {
                let part = key_component(key, table.partition_key_count, position);
                part.map_or(Ok(()), guard)?;
            }
            (ColumnKind::Clustering { position, .. }, Some(clustering)) => {
                let mut values = data::clustering::components(clustering);
                values.nth(position.into()).flatten().map_or(Ok(()), guard)?;
            }
            (ColumnKind::Static | ColumnKind::Regular, _) => {
                check_column(column, index.target.part, row, guard, |bytes| {
                    watch.index_term(kind, &column.name, bytes)
                })?;
            }
            (ColumnKind::Clustering { .. }, None) => {}
        }
    }
    Ok(())
}

/// Checks the cells of a column: `guard` gets values, `of_entry` the bytes of entries of a map.
fn check_column(
    column: &Column,
    part: TargetPart,
    row: RowRef<'_>,
    guard: impl Fn(&[u8]) -> Result<(), PlanError>,
    of_entry: impl Fn(usize) -> Result<(), PlanError>,
) -> Result<(), PlanError> {
    let is_live = |cell: &CellRef<'_>| !cell.is_tombstone();
    match row.column(column.id) {
        Some(ColumnRef::Simple(cell)) if is_live(&cell) => guard(cell.value),
        None | Some(ColumnRef::Simple(_)) => Ok(()),
        Some(ColumnRef::Complex(complex)) => {
            let is_set = matches!(column.ty, CqlType::Set { .. });
            for (path, cell) in complex.cells().filter(|(_, cell)| is_live(cell)) {
                match part {
                    TargetPart::Entries => {
                        of_entry(path.len() + cell.value.len() + ENTRY_OVERHEAD_BYTES)?;
                    }
                    TargetPart::Keys => guard(path)?,
                    _ if is_set => guard(path)?,
                    _ => guard(cell.value)?,
                }
            }
            Ok(())
        }
    }
}

fn kind_of(ty: &CqlType) -> TermKind {
    if ty.is_vector() {
        TermKind::Vector
    } else if !ty.is_multi_cell() && (ty.is_collection() || ty.is_tuple() || ty.is_udt()) {
        TermKind::Frozen
    } else {
        TermKind::String
    }
}

/// Bytes of a value as the index has it.
fn size_of(value: &[u8], text: TextOptions) -> usize {
    match std::str::from_utf8(value) {
        Ok(value) if !text.is_plain() => {
            let mut changed = Vec::new();
            text.apply(value, &mut changed);
            changed.len()
        }
        _ => value.len(),
    }
}
