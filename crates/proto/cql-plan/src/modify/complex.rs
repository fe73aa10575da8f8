//! Columns of many cells: operations on collections and user types into cells under paths.

use std::borrow::Cow;

use data::{CellRef, DeletionTime, RowBuilder};
use types::wire::{CollectionKind, Elements, Entries, Fields};

use super::lists::{ListCell, RowLists, bind_index, path_at};
use super::operations::{ColumnOperation, ColumnOperations, ComplexForm, Layout};
use super::rows::CELL_OVERHEAD_BYTES;
use super::write::Times;
use crate::error::PlanError;
use crate::expansion::WriteSize;
use crate::guardrails::Watch;
use crate::term::{PlannedTerm, invalid_value};
use crate::values::{BindEnv, Bound, BoundValue};

/// A cell of a complex column: path, and value or tombstone.
type PathCell<'v> = (Cow<'v, [u8]>, Option<Cow<'v, [u8]>>);

/// Cells of one complex column while its operations are taken in.
struct ComplexCells<'v> {
    deletion: DeletionTime,
    cells: Vec<PathCell<'v>>,
    touched: bool,
    /// Changes of this pass so far: index of its first cell, and a deletion.
    pass: (usize, DeletionTime),
}

/// Appends one column of many cells to a row; nothing when no operation touches it. `lists` has the
/// cells that were read before the write.
pub(super) fn write_complex(
    row: &mut RowBuilder<'_>,
    column: &ColumnOperations,
    form: &ComplexForm,
    times: &Times,
    values: &[BoundValue<'_>],
    env: &BindEnv<'_>,
    lists: RowLists<'_>,
) -> Result<(), PlanError> {
    let found = lists.cells(column.id);
    let live = DeletionTime::LIVE;
    let mut complex =
        ComplexCells { deletion: live, cells: Vec::new(), touched: false, pass: (0, live) };
    let repeats = if form.layout == Layout::List { times.repeats } else { 1 };
    let operations = column.operations.iter().enumerate();
    let mut size = WriteSize::new(times.bytes_max);
    for (number, operation) in std::iter::repeat_n(operations, repeats).flatten() {
        if number == 0 {
            complex.pass = (complex.cells.len(), live);
        }
        if let Some(watch) = env.watch {
            watch_reading(watch, operation)?;
        }
        let before = complex.cells.len();
        complex.apply(operation, form, times, values, env, found)?;
        if repeats > 1 {
            for (path, value) in complex.cells.get(before..).unwrap_or_default() {
                size.add_row(path.len(), value.as_ref().map_or(0, |value| value.len()))?;
            }
        }
        if let Some(watch) = env.watch {
            let cells = complex.cells.get(before..).unwrap_or_default();
            watch_cells(watch, column, form, operation, cells)?;
        }
    }
    let ComplexCells { deletion, mut cells, touched, .. } = complex;
    if !touched {
        return Ok(());
    }
    cells.sort_by(|a, b| form.order.compare(&a.0, &b.0));
    row.begin_complex(column.id, deletion);
    let mut cells = cells.iter().peekable();
    while let Some((path, value)) = cells.next() {
        let mut winner = cell_of(times, value);
        while let Some((_, other)) =
            cells.next_if(|(next, _)| form.order.compare(path, next).is_eq())
        {
            let other = cell_of(times, other);
            if other.reconcile(&winner).is_gt() {
                winner = other;
            }
        }
        row.complex_cell(path, &winner);
    }
    row.end_complex();
    Ok(())
}

/// Source: `Lists.SetterByIndex`, `Lists.Discarder`, `Lists.DiscarderByIndex`.
fn watch_reading(watch: &Watch, operation: &ColumnOperation) -> Result<(), PlanError> {
    let what = match operation {
        ColumnOperation::SetIndex(..) => {
            "Setting of list items by index requiring read before write"
        }
        ColumnOperation::DiscardValues(_) => "Removal of list items requiring read before write",
        ColumnOperation::DeleteIndex(_) => {
            "Removal of list items by index requiring read before write"
        }
        _ => return Ok(()),
    };
    watch.read_before_write(what)
}

/// Checks the cells of one operation against the limits; existing elements do not count. Source:
/// `Lists.Appender.doAppend` and its like, `UpdateParameters`.
fn watch_cells(
    watch: &Watch,
    column: &ColumnOperations,
    form: &ComplexForm,
    operation: &ColumnOperation,
    cells: &[PathCell<'_>],
) -> Result<(), PlanError> {
    let is_whole = matches!(operation, ColumnOperation::Set(_) | ColumnOperation::Add(_))
        && !matches!(form.layout, Layout::Udt(_))
        && !cells.is_empty();
    if is_whole {
        watch.collection_items(&column.name, cells.len())?;
    }
    let mut size = 0_usize;
    for (path, value) in cells {
        if let Some(value) = value {
            watch.column_value(&column.name, value.len())?;
            size = size.saturating_add(CELL_OVERHEAD_BYTES + path.len() + value.len());
        }
        watch.column_value(&column.name, path.len())?;
    }
    if is_whole { watch.collection_size(&column.name, size) } else { Ok(()) }
}

fn cell_of<'a>(times: &Times, value: &'a Option<Cow<'_, [u8]>>) -> CellRef<'a> {
    match value {
        Some(value) => times.cell(value),
        None => times.tombstone(),
    }
}

impl<'v> ComplexCells<'v> {
    fn apply(
        &mut self,
        operation: &'v ColumnOperation,
        form: &ComplexForm,
        times: &Times,
        values: &[BoundValue<'v>],
        env: &BindEnv<'_>,
        found: &'v [ListCell],
    ) -> Result<(), PlanError> {
        match operation {
            ColumnOperation::Set(term) => match term.bind(values, env)? {
                Bound::Unset => {}
                Bound::Null => self.delete(times.before()),
                Bound::Value(bytes) => {
                    self.delete(times.before());
                    self.add(bytes, form.layout, times, env)?;
                }
            },
            ColumnOperation::Add(term) => {
                if let Bound::Value(bytes) = term.bind(values, env)? {
                    self.add(bytes, form.layout, times, env)?;
                }
            }
            ColumnOperation::Prepend(term) => {
                if let Bound::Value(bytes) = term.bind(values, env)? {
                    // Each path sorts before the one made before it.
                    for element in elements(bytes, CollectionKind::List)?.into_iter().rev() {
                        let path = env.eval.uuids.prepend_uuid(times.elements);
                        self.push(Cow::Owned(path.to_vec()), Some(element));
                    }
                }
            }
            ColumnOperation::Discard(term) => {
                if let Bound::Value(bytes) = term.bind(values, env)? {
                    for element in elements(bytes, CollectionKind::Set)? {
                        self.push(element, None);
                    }
                }
            }
            ColumnOperation::DiscardValues(term) => {
                if let Bound::Value(bytes) = term.bind(values, env)? {
                    let unwanted = elements(bytes, CollectionKind::List)?;
                    for cell in self.current(found, form, times).iter() {
                        if unwanted.iter().any(|u| **u == *cell.value) {
                            self.push(Cow::Owned(cell.path.clone()), None);
                        }
                    }
                }
            }
            ColumnOperation::SetIndex(index, term) => {
                let Some(index) = bind_index(index, values, env)? else {
                    return Err(PlanError::invalid("Invalid unset value for list index"));
                };
                let value = term.bind(values, env)?;
                let current = self.current(found, form, times);
                let path = Cow::Owned(path_at(&current, index, "set an element on")?.to_vec());
                match value {
                    Bound::Unset => {}
                    Bound::Null => self.push(path, None),
                    Bound::Value(bytes) => self.push(path, Some(bytes)),
                }
            }
            ColumnOperation::DeleteIndex(index) => {
                if let Some(index) = bind_index(index, values, env)? {
                    let current = self.current(found, form, times);
                    let path = path_at(&current, index, "delete an element from")?.to_vec();
                    self.push(Cow::Owned(path), None);
                }
            }
            ColumnOperation::SetElement(key, value) => {
                let key = path_of(key, values, env, "map key")?;
                match value.bind(values, env)? {
                    Bound::Unset => {}
                    Bound::Null => self.push(key, None),
                    Bound::Value(bytes) => self.push(key, Some(bytes)),
                }
            }
            ColumnOperation::DeleteElement(key) => {
                let what = if form.layout == Layout::Set { "set element" } else { "map key" };
                let key = path_of(key, values, env, what)?;
                self.push(key, None);
            }
            ColumnOperation::SetField(position, term) => {
                let path = || Cow::Owned(position.to_be_bytes().to_vec());
                match term.bind(values, env)? {
                    Bound::Unset => {}
                    Bound::Null => self.push(path(), None),
                    Bound::Value(bytes) => self.push(path(), Some(bytes)),
                }
            }
            ColumnOperation::DeleteField(position) => {
                self.push(Cow::Owned(position.to_be_bytes().to_vec()), None);
            }
            ColumnOperation::Delete => self.delete(times.deletion()),
            // Only of columns of one cell.
            ColumnOperation::AddValue(..)
            | ColumnOperation::Increment(_)
            | ColumnOperation::Decrement(_) => {}
        }
        Ok(())
    }

    fn delete(&mut self, deletion: DeletionTime) {
        self.deletion = deletion;
        self.pass.1 = deletion;
        self.touched = true;
    }

    /// The list as it is after the operations of this pass so far.
    /// Source: `UpdateParameters.getPrefetchedRow`.
    fn current(
        &self,
        found: &'v [ListCell],
        form: &ComplexForm,
        times: &Times,
    ) -> Cow<'v, [ListCell]> {
        let (from, deletion) = self.pass;
        let pending = self.cells.get(from..).unwrap_or_default();
        if pending.is_empty() && deletion.is_live() {
            return Cow::Borrowed(found);
        }
        let is_deleted = |at| !deletion.is_live() && at <= deletion.timestamp;
        let mut current: Vec<ListCell> =
            found.iter().filter(|cell| !is_deleted(cell.timestamp)).cloned().collect();
        for (path, value) in pending.iter().filter(|_| !is_deleted(times.timestamp)) {
            let at = current.iter().position(|cell| cell.path == **path);
            let old = at.and_then(|at| current.get(at));
            let new = cell_of(times, value);
            if old
                .is_some_and(|old| CellRef::live(old.timestamp, &old.value).reconcile(&new).is_gt())
            {
                continue;
            }
            current.retain(|cell| cell.path != **path);
            if let Some(value) = value {
                let (path, value) = (path.to_vec(), value.to_vec());
                current.push(ListCell { path, value, timestamp: times.timestamp });
            }
        }
        current.sort_by(|a, b| form.order.compare(&a.path, &b.path));
        Cow::Owned(current)
    }

    fn push(&mut self, path: Cow<'v, [u8]>, value: Option<Cow<'v, [u8]>>) {
        self.touched = true;
        self.cells.push((path, value));
    }

    /// The cells of a whole value.
    fn add(
        &mut self,
        bytes: Cow<'v, [u8]>,
        layout: Layout,
        times: &Times,
        env: &BindEnv<'_>,
    ) -> Result<(), PlanError> {
        match layout {
            Layout::List => {
                for element in elements(bytes, CollectionKind::List)? {
                    let path = env.eval.uuids.time_uuid(times.elements);
                    self.push(Cow::Owned(path.to_vec()), Some(element));
                }
            }
            Layout::Set => {
                for element in elements(bytes, CollectionKind::Set)? {
                    self.push(element, Some(Cow::Borrowed(&[])));
                }
            }
            Layout::Map => {
                for (key, value) in entries(bytes)? {
                    self.push(key, Some(value));
                }
            }
            Layout::Udt(count) => {
                for (position, field) in fields(bytes, count)?.into_iter().enumerate() {
                    let Some(field) = field else { continue };
                    let position = u16::try_from(position).unwrap_or(u16::MAX);
                    self.push(Cow::Owned(position.to_be_bytes().to_vec()), Some(field));
                }
            }
        }
        Ok(())
    }
}

fn path_of<'v>(
    key: &'v PlannedTerm,
    values: &[BoundValue<'v>],
    env: &BindEnv<'_>,
    what: &str,
) -> Result<Cow<'v, [u8]>, PlanError> {
    match key.bind(values, env)? {
        Bound::Value(bytes) => Ok(bytes),
        Bound::Null => Err(PlanError::invalid(format!("Invalid null {what}"))),
        Bound::Unset => Err(PlanError::invalid(format!("Invalid unset {what}"))),
    }
}

/// Elements of a list or set that was validated.
fn elements(bytes: Cow<'_, [u8]>, kind: CollectionKind) -> Result<Vec<Cow<'_, [u8]>>, PlanError> {
    fn split(bytes: &[u8], kind: CollectionKind) -> Result<Vec<&[u8]>, PlanError> {
        let mut elements = Vec::new();
        for item in Elements::new(bytes, kind).map_err(invalid_value)? {
            elements.extend(item.map_err(invalid_value)?);
        }
        Ok(elements)
    }
    match bytes {
        Cow::Borrowed(bytes) => Ok(split(bytes, kind)?.into_iter().map(Cow::Borrowed).collect()),
        Cow::Owned(bytes) => {
            Ok(split(&bytes, kind)?.into_iter().map(|e| Cow::Owned(e.to_vec())).collect())
        }
    }
}

type Entry<'v> = (Cow<'v, [u8]>, Cow<'v, [u8]>);

fn entries(bytes: Cow<'_, [u8]>) -> Result<Vec<Entry<'_>>, PlanError> {
    type Pairs<'b> = Vec<(&'b [u8], &'b [u8])>;
    fn split(bytes: &[u8]) -> Result<Pairs<'_>, PlanError> {
        let entries = Entries::new(bytes).map_err(invalid_value)?;
        entries.map(|entry| entry.map_err(invalid_value)).collect()
    }
    Ok(match bytes {
        Cow::Borrowed(bytes) => {
            split(bytes)?.into_iter().map(|(k, v)| (Cow::Borrowed(k), Cow::Borrowed(v))).collect()
        }
        Cow::Owned(bytes) => split(&bytes)?
            .into_iter()
            .map(|(k, v)| (Cow::Owned(k.to_vec()), Cow::Owned(v.to_vec())))
            .collect(),
    })
}

type Field<'v> = Option<Cow<'v, [u8]>>;

fn fields(bytes: Cow<'_, [u8]>, count: usize) -> Result<Vec<Field<'_>>, PlanError> {
    fn split(bytes: &[u8], count: usize) -> Result<Vec<Option<&[u8]>>, PlanError> {
        Fields::new(bytes, count).map(|field| field.map_err(invalid_value)).collect()
    }
    Ok(match bytes {
        Cow::Borrowed(bytes) => {
            split(bytes, count)?.into_iter().map(|f| f.map(Cow::Borrowed)).collect()
        }
        Cow::Owned(bytes) => {
            split(&bytes, count)?.into_iter().map(|f| f.map(|f| Cow::Owned(f.to_vec()))).collect()
        }
    })
}
