//! List operations that read before they write: elements by index and by value.
//!
//! A statement returns its reads ([`ModifyPlan::list_reads`]). The caller executes them and passes
//! the rows to [`FoundLists`]; binding takes the paths of the elements from there. Source:
//! `Lists.SetterByIndex`, `Lists.Discarder`, `Lists.DiscarderByIndex`,
//! `ModificationStatement.readRequiredLists`.

use std::collections::BTreeMap;
use std::sync::Arc;

use data::command::{Partitions, ReadCommand};
use data::{CellRef, ColumnRef, RowRef, Slice, Slices};
use stdx::{ColumnId, DeletionSeconds, TableId, TimestampMicros};

use super::keys::COMBINATIONS_MAX;
use super::operations::{ColumnOperation, ColumnOperations};
use super::write::slice;
use super::{ModifyKind, ModifyPlan};
use crate::error::PlanError;
use crate::term::PlannedTerm;
use crate::values::{BindEnv, Bound, BoundValue, ExecuteOptions};

/// An element of a list as it was read.
#[derive(Clone, Debug)]
pub(super) struct ListCell {
    pub(super) path: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) timestamp: TimestampMicros,
}

impl ListCell {
    fn new(path: &[u8], cell: CellRef<'_>) -> ListCell {
        ListCell { path: path.to_vec(), value: cell.value.to_vec(), timestamp: cell.timestamp }
    }
}

/// Elements of a list in their order.
pub(super) type ListCells = Vec<ListCell>;

/// One row whose lists must be read before a statement can be bound.
#[derive(Clone, Debug)]
pub struct ListRead {
    /// Reads exactly that row.
    pub command: ReadCommand,
    /// The static row is wanted; otherwise the row.
    pub is_static: bool,
    columns: Vec<ColumnId>,
    row: RowId,
}

/// A row of a table, as the statement names it. The clustering is `None` for the static row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RowId {
    table: TableId,
    key: Vec<u8>,
    clustering: Option<Vec<u8>>,
}

/// The lists that reads found.
#[derive(Clone, Debug, Default)]
pub struct FoundLists {
    rows: BTreeMap<RowId, Vec<(ColumnId, ListCells)>>,
}

/// Location of a row.
#[derive(Clone, Copy, Debug)]
pub struct RowPlace<'a> {
    /// Its table.
    pub table: TableId,
    /// Serialised partition key.
    pub key: &'a [u8],
    /// Serialised clustering; `None`: the static row.
    pub clustering: Option<&'a [u8]>,
}

impl FoundLists {
    /// Takes the lists of the row (or static row) that a read found.
    pub fn take(&mut self, read: &ListRead, row: RowRef<'_>) {
        let mut lists = Vec::new();
        for id in &read.columns {
            let Some(ColumnRef::Complex(complex)) = row.column(*id) else { continue };
            let cells = complex
                .cells()
                .filter(|(_, cell)| cell.is_live(read.command.now))
                .map(|(path, cell)| ListCell::new(path, cell))
                .collect();
            lists.push((*id, cells));
        }
        self.rows.insert(read.row.clone(), lists);
    }

    /// Takes what operations may need of a row (or static row, without clustering) that was read for
    /// a conditional write: lists, and single cells as lists of one cell without path.
    pub fn take_row(&mut self, place: RowPlace<'_>, row: RowRef<'_>, now: DeletionSeconds) {
        let RowPlace { table, key, clustering } = place;
        let mut found = Vec::new();
        for (id, column) in row.columns() {
            let cells: ListCells = match column {
                ColumnRef::Simple(cell) if cell.is_live(now) => {
                    vec![ListCell::new(&[], cell)]
                }
                ColumnRef::Simple(_) => continue,
                ColumnRef::Complex(complex) => complex
                    .cells()
                    .filter(|(_, cell)| cell.is_live(now))
                    .map(|(path, cell)| ListCell::new(path, cell))
                    .collect(),
            };
            found.push((id, cells));
        }
        let row = RowId { table, key: key.to_vec(), clustering: clustering.map(<[u8]>::to_vec) };
        self.rows.insert(row, found);
    }

    /// The lists of one row; `clustering` is `None` for the static row.
    pub(super) fn row(
        &self,
        table: TableId,
        key: &[u8],
        clustering: Option<&[u8]>,
    ) -> RowLists<'_> {
        let id = RowId { table, key: key.to_vec(), clustering: clustering.map(<[u8]>::to_vec) };
        RowLists(self.rows.get(&id).map_or(&[], Vec::as_slice))
    }
}

/// The lists of one row.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowLists<'l>(&'l [(ColumnId, ListCells)]);

impl<'l> RowLists<'l> {
    pub(super) const NONE: RowLists<'static> = RowLists(&[]);

    /// The elements of a list, none when it is null.
    pub(super) fn cells(&self, column: ColumnId) -> &'l [ListCell] {
        self.0.iter().find(|(id, _)| *id == column).map_or(&[], |(_, cells)| cells)
    }
}

/// The index; `None` when it is unset.
pub(super) fn bind_index(
    index: &PlannedTerm,
    values: &[BoundValue<'_>],
    env: &BindEnv<'_>,
) -> Result<Option<i32>, PlanError> {
    let null = || PlanError::invalid("Invalid null value for list index");
    match index.bind(values, env)? {
        Bound::Null => Err(null()),
        Bound::Unset => Ok(None),
        // An empty value is an int, too, and none at the same time.
        Bound::Value(bytes) => {
            (*bytes).try_into().map(|b| Some(i32::from_be_bytes(b))).map_err(|_| null())
        }
    }
}

/// The path of one element.
pub(super) fn path_at<'l>(
    cells: &'l [ListCell],
    index: i32,
    what: &str,
) -> Result<&'l [u8], PlanError> {
    if cells.is_empty() {
        return Err(PlanError::invalid(format!("Attempted to {what} a list which is null")));
    }
    let found = usize::try_from(index).ok().and_then(|i| cells.get(i));
    found.map(|cell| cell.path.as_slice()).ok_or_else(|| {
        PlanError::invalid(format!(
            "List index {index} out of bound, list has size {}",
            cells.len()
        ))
    })
}

fn reads_list(column: &ColumnOperations) -> bool {
    column.operations.iter().any(|operation| {
        matches!(
            operation,
            ColumnOperation::SetIndex(..)
                | ColumnOperation::DeleteIndex(_)
                | ColumnOperation::DiscardValues(_)
                | ColumnOperation::AddValue(..)
        )
    })
}

/// Returns true if an operation needs the current list.
pub(super) fn needs_read(columns: &[ColumnOperations]) -> bool {
    columns.iter().any(reads_list)
}

pub(super) fn reading(columns: &[ColumnOperations]) -> Vec<ColumnId> {
    columns.iter().filter(|c| reads_list(c)).map(|c| c.id).collect()
}

impl ModifyPlan {
    /// Returns true if lists must be read before the statement can be bound.
    pub fn needs_read(&self) -> bool {
        self.needs_read
    }

    /// Returns true if the statement needs more than binding and applying: a read of lists, or a
    /// leader for counters.
    #[inline]
    pub fn takes_detour(&self) -> bool {
        self.takes_detour
    }

    /// Returns the reads that must precede binding; empty for most statements.
    ///
    /// # Errors
    /// Those of [`ModifyPlan::bind`] for the values of the primary key.
    pub fn list_reads(
        &self,
        values: &[BoundValue<'_>],
        options: &ExecuteOptions<'_>,
    ) -> Result<Vec<ListRead>, PlanError> {
        let mut reads = Vec::new();
        if !self.needs_read {
            return Ok(reads);
        }
        let (statics, regulars) = (reading(&self.statics), reading(&self.regulars));
        let env = options.env();
        let mut scratch = options.uuids.take_scratch();
        let keys = self.rows.keys(values, &env, &mut scratch)?;
        let one = |key: &[u8], clustering: Option<&[u8]>, columns: &[ColumnId]| ListRead {
            command: ReadCommand {
                table: self.rows.table.id,
                partitions: Partitions::Key(key.to_vec()),
                slices: Arc::new(match clustering {
                    Some(clustering) => Slices(vec![Slice::prefix(clustering.to_vec())]),
                    None => Slices::all(),
                }),
                reversed: false,
                columns: Some(columns.into()),
                now: options.now.seconds(),
                wants_static: clustering.is_none(),
                resume: None,
                bypass_cache: false,
            },
            is_static: clustering.is_none(),
            columns: columns.to_vec(),
            row: RowId {
                table: self.rows.table.id,
                key: key.to_vec(),
                clustering: clustering.map(<[u8]>::to_vec),
            },
        };
        if !statics.is_empty() {
            reads.extend(keys.iter().map(|key| one(slice(&scratch, key), None, &statics)));
        }
        if !regulars.is_empty() && self.names_whole_rows() {
            let rows = self.rows.prefixes(values, &env, &mut scratch)?;
            if rows.len().saturating_mul(keys.len()) > COMBINATIONS_MAX {
                return Err(PlanError::invalid(format!(
                    "IN relations of one statement name more than {COMBINATIONS_MAX} rows"
                )));
            }
            for key in &keys {
                for row in &rows {
                    let (key, row) = (slice(&scratch, key), slice(&scratch, row));
                    reads.push(one(key, Some(row), &regulars));
                }
            }
        }
        options.uuids.give_scratch(scratch);
        Ok(reads)
    }

    /// Returns true if the WHERE clause restricts all clustering columns; binding rejects the other
    /// statements.
    fn names_whole_rows(&self) -> bool {
        self.rows.has_whole_keys() && self.kind != ModifyKind::Insert
    }
}
