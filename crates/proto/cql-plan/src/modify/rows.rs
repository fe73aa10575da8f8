//! Writes of a statement to one row: cells, packed in the scratch buffer.

use std::ops::Range;

use data::{CellRef, ColumnRef, DeletionTime, Liveness, RowBuilder, RowRef, counter};
use index_format::{VectorIndex, floats_of};
use stdx::TimestampMicros;
use types::CqlType;
use types::arithmetic::{Operand, Operator};

use super::complex::write_complex;
use super::lists::RowLists;
use super::operations::{ColumnOperation, ColumnOperations};
use super::write::Times;
use crate::error::PlanError;
use crate::guardrails::Watch;
use crate::term::{PlannedTerm, invalid_value};
use crate::values::{BindEnv, Bound, BoundValue};

/// Header before the cells of a row.
#[derive(Clone, Copy)]
pub(super) struct RowHeader {
    pub(super) liveness: Liveness,
    pub(super) deletion: DeletionTime,
}

/// Appends a packed row to `scratch`. `None` when nothing is in it.
pub(super) fn write_row(
    header: RowHeader,
    columns: &[ColumnOperations],
    times: &Times,
    values: &[BoundValue<'_>],
    env: &BindEnv<'_>,
    lists: RowLists<'_>,
    scratch: &mut Vec<u8>,
) -> Result<Option<Range<usize>>, PlanError> {
    let mut row = RowBuilder::new(scratch, header.liveness, header.deletion, times.timestamp);
    for column in columns {
        match &column.complex {
            None => match column.operations.first() {
                Some(ColumnOperation::Set(term)) => match term.bind(values, env)? {
                    Bound::Value(bytes) => {
                        if let Some(watch) = env.watch {
                            watch_cell(watch, column, &bytes)?;
                        }
                        if let Some(indexes) = &column.vectors {
                            check_vector(indexes, &bytes)?;
                        }
                        row.cell(column.id, &times.cell(&bytes));
                    }
                    Bound::Null => row.cell(column.id, &times.tombstone()),
                    Bound::Unset => {}
                },
                Some(ColumnOperation::Delete) => row.cell(column.id, &times.tombstone()),
                Some(ColumnOperation::AddValue(ty, term)) => {
                    let found = lists.cells(column.id).first().map(|cell| cell.value.as_slice());
                    if let Some(sum) = add_to(found, ty, term, values, env)? {
                        if let Some(watch) = env.watch {
                            watch.column_value(&column.name, sum.len())?;
                        }
                        row.cell(column.id, &times.cell(&sum));
                    }
                }
                Some(ColumnOperation::Increment(_) | ColumnOperation::Decrement(_)) => {
                    if let Some(sum) = increment(&column.operations, values, env)? {
                        let repeats = i64::try_from(times.repeats).unwrap_or(i64::MAX);
                        let sum = sum.wrapping_mul(repeats);
                        row.cell(column.id, &times.cell(&counter::update(sum)));
                    }
                }
                _ => {}
            },
            Some(form) => write_complex(&mut row, column, form, times, values, env, lists)?,
        }
    }
    Ok(if row.is_empty() { None } else { Some(row.finish()) })
}

/// Refuses a vector that an index of its column cannot have. Source: `VectorMemoryIndex`, `OnHeapGraph.validateIndexable`.
#[cold]
fn check_vector(indexes: &[VectorIndex], value: &[u8]) -> Result<(), PlanError> {
    for index in indexes {
        if let Some(vector) = floats_of(value, index.dimensions) {
            index.check(&vector).map_err(|defect| PlanError::invalid(defect.to_string()))?;
        }
    }
    Ok(())
}

/// Holds a column of one cell against the limits. Source: `Lists.Appender.doAppend` and its like,
/// `UpdateParameters.addCell`.
#[cold]
fn watch_cell(watch: &Watch, column: &ColumnOperations, bytes: &[u8]) -> Result<(), PlanError> {
    if column.is_frozen_collection {
        let count = bytes.first_chunk().map_or(0, |count| i32::from_be_bytes(*count));
        watch.collection_items(&column.name, usize::try_from(count).unwrap_or(0))?;
    }
    watch.column_value(&column.name, bytes.len())?;
    if column.is_frozen_collection {
        watch.collection_size(&column.name, CELL_OVERHEAD_BYTES + bytes.len())?;
    }
    Ok(())
}

/// Bytes of a cell beside its path and value: timestamp, TTL, deletion time (`Cell.dataSize`).
pub(super) const CELL_OVERHEAD_BYTES: usize = 8 + 4 + 8;

/// Appends a row of a conditional write with its deletions a microsecond before `ballot`.
pub(crate) fn age_row(
    row: RowRef<'_>,
    ballot: TimestampMicros,
    scratch: &mut Vec<u8>,
) -> Range<usize> {
    let timestamp = before(ballot);
    let aged = |deletion: DeletionTime| match deletion.is_live() {
        true => deletion,
        false => DeletionTime { timestamp, ..deletion },
    };
    let (liveness, deletion, columns) = row.parts();
    let mut out = RowBuilder::new(scratch, liveness, aged(deletion), ballot);
    for (id, column) in columns {
        match column {
            ColumnRef::Simple(cell) => out.cell(id, &aged_cell(cell, timestamp)),
            ColumnRef::Complex(complex) => {
                out.begin_complex(id, aged(complex.deletion));
                for (path, cell) in complex.cells() {
                    out.complex_cell(path, &aged_cell(cell, timestamp));
                }
                out.end_complex();
            }
        }
    }
    out.finish()
}

fn aged_cell(cell: CellRef<'_>, timestamp: TimestampMicros) -> CellRef<'_> {
    match cell.is_tombstone() {
        true => CellRef::tombstone(timestamp, cell.local),
        false => cell,
    }
}

pub(super) fn before(ballot: TimestampMicros) -> TimestampMicros {
    TimestampMicros(ballot.0.saturating_sub(1))
}

/// All that a statement adds to one counter; `None` when every value is unset. Sums wrap around, as
/// those of Cassandra do. Source: `Constants.Adder`, `Constants.Substracter`.
#[cold]
fn increment(
    operations: &[ColumnOperation],
    values: &[BoundValue<'_>],
    env: &BindEnv<'_>,
) -> Result<Option<i64>, PlanError> {
    let mut sum: Option<i64> = None;
    for operation in operations {
        let (ColumnOperation::Increment(term) | ColumnOperation::Decrement(term)) = operation
        else {
            continue;
        };
        let bytes = match term.bind(values, env)? {
            Bound::Unset => continue,
            Bound::Null => {
                return Err(PlanError::invalid("Invalid null value for counter increment"));
            }
            Bound::Value(bytes) => bytes,
        };
        let Ok(bytes) = <[u8; 8]>::try_from(&*bytes) else {
            return Err(PlanError::invalid("Invalid empty value for counter increment"));
        };
        let mut by = i64::from_be_bytes(bytes);
        if matches!(operation, ColumnOperation::Decrement(_)) {
            by = by.checked_neg().ok_or_else(|| {
                PlanError::invalid(format!(
                    "The negation of {by} overflows supported counter precision (signed 8 bytes \
                     integer)"
                ))
            })?;
        }
        sum = Some(sum.unwrap_or(0).wrapping_add(by));
    }
    Ok(sum)
}

/// Adds the term to the stored value; returns `None` without a stored value. Source:
/// `Constants.Adder`.
fn add_to(
    found: Option<&[u8]>,
    ty: &CqlType,
    term: &PlannedTerm,
    values: &[BoundValue<'_>],
    env: &BindEnv<'_>,
) -> Result<Option<Vec<u8>>, PlanError> {
    let Bound::Value(added) = term.bind(values, env)? else {
        return Err(PlanError::invalid("Invalid null value for an addition"));
    };
    if found.is_none() {
        return Ok(None);
    }
    let (left, right) = (Operand::new(ty, found), Operand::new(ty, Some(&added)));
    Operator::Add.apply(left, right).map_err(invalid_value)
}
