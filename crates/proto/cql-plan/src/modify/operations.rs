//! Operations of a modification on its columns. Source: `cql3.Operation` and the setters of
//! `Constants`, `Lists`, `Sets`, `Maps`, `UserTypes`.

use std::sync::Arc;

use cql_syntax::ast::{DeleteTarget, Operation, Term};
use index_format::VectorIndex;
use schema::{Column, ColumnKind, IndexMetadata, Table};
use smallvec::SmallVec;
use stdx::ColumnId;
use types::{Comparator, CqlType};

use super::{existing_column, is_primary_key};
use crate::context::PlanContext;
use crate::error::PlanError;
use crate::term::Binds;
use crate::term::{PlannedTerm, Receiver, plan_term, text_of};

/// All that a statement does to one column.
#[derive(Clone, Debug)]
pub(super) struct ColumnOperations {
    pub(super) id: ColumnId,
    pub(super) name: Arc<str>,
    /// It is a collection of one cell.
    pub(super) is_frozen_collection: bool,
    /// Indexes of its vectors; `None`: it has none.
    pub(super) vectors: Option<Box<[VectorIndex]>>,
    /// Form and path order of a column of many cells.
    pub(super) complex: Option<ComplexForm>,
    pub(super) operations: SmallVec<[ColumnOperation; 1]>,
}

/// Layout of the cells of a multi-cell type.
#[derive(Clone, Debug)]
pub(super) struct ComplexForm {
    pub(super) layout: Layout,
    pub(super) order: Comparator,
}

/// Layout of a collection's cells: the contents of their paths and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Path: a time UUID.
    List,
    /// Path: the element; the value is empty.
    Set,
    /// Path: the key.
    Map,
    /// Path: position of the field, 2 bytes; the number of fields.
    Udt(usize),
}

/// One assignment or deletion.
#[derive(Clone, Debug)]
pub(super) enum ColumnOperation {
    /// The whole value.
    Set(PlannedTerm),
    /// Elements in addition: `c + {…}`, appended for lists.
    Add(PlannedTerm),
    /// `c = c + value` of a number or text in a conditional statement; reads the value.
    AddValue(CqlType, PlannedTerm),
    /// `c = c + value` of a counter.
    Increment(PlannedTerm),
    /// `c = c - value` of a counter.
    Decrement(PlannedTerm),
    /// List elements at the front.
    Prepend(PlannedTerm),
    /// Elements of a set or keys of a map, given as a set.
    Discard(PlannedTerm),
    /// Elements of a list, given as a list; finds them by reading.
    DiscardValues(PlannedTerm),
    /// `m[key] = value`.
    SetElement(PlannedTerm, PlannedTerm),
    /// `l[index] = value`; finds the element by reading.
    SetIndex(PlannedTerm, PlannedTerm),
    /// `udt.field = value`.
    SetField(u16, PlannedTerm),
    /// The whole column.
    Delete,
    /// `DELETE m[key]`.
    DeleteElement(PlannedTerm),
    /// `DELETE l[index]`; finds the element by reading.
    DeleteIndex(PlannedTerm),
    /// `DELETE udt.field`.
    DeleteField(u16),
}

/// The operations of a statement while they are taken in.
pub(super) struct Operations<'t> {
    table: &'t Table,
    columns: Vec<(&'t Column, ColumnOperations)>,
}

fn complex_form(column: &Column) -> Option<ComplexForm> {
    if !column.is_complex() {
        return None;
    }
    let (layout, path) = match &column.ty {
        CqlType::Set { element, .. } => (Layout::Set, (**element).clone()),
        CqlType::Map { key, .. } => (Layout::Map, (**key).clone()),
        CqlType::Udt(udt) => (Layout::Udt(udt.fields.len()), CqlType::Smallint),
        _ => (Layout::List, CqlType::Timeuuid),
    };
    Some(ComplexForm { layout, order: Comparator::for_type(&path) })
}

/// Indexes of the vectors of a column. `None`: there is none.
fn vector_indexes(table: &Table, column: &Column) -> Option<Box<[VectorIndex]>> {
    if !matches!(column.ty, CqlType::Vector { .. }) {
        return None;
    }
    let of_column = |index: &&Arc<IndexMetadata>| index.target.column == column.name;
    let indexes = table.indexes.iter().filter(of_column);
    let found: Box<[_]> = indexes.filter_map(|index| VectorIndex::of(table, index)).collect();
    (!found.is_empty()).then_some(found)
}

fn refused<T>(text: String) -> Result<T, PlanError> {
    Err(PlanError::invalid(text))
}

impl<'t> Operations<'t> {
    pub(super) fn new(table: &'t Table) -> Self {
        Operations { table, columns: Vec::new() }
    }

    fn push(&mut self, column: &'t Column, operation: ColumnOperation) {
        match self.columns.iter_mut().find(|(c, _)| c.id == column.id) {
            Some((_, existing)) => existing.operations.push(operation),
            None => {
                let operations = ColumnOperations {
                    id: column.id,
                    name: column.name.clone(),
                    is_frozen_collection: column.ty.is_collection() && !column.is_complex(),
                    vectors: vector_indexes(self.table, column),
                    complex: complex_form(column),
                    operations: SmallVec::from_iter([operation]),
                };
                self.columns.push((column, operations));
            }
        }
    }

    /// `column = value`.
    pub(super) fn set(
        &mut self,
        column: &'t Column,
        value: &Term,
        cx: &PlanContext<'_>,
        binds: &mut Binds,
    ) -> Result<(), PlanError> {
        let term = plan_term(value, &Receiver::column(self.table, column), cx, binds)?;
        if column.ty.is_counter() {
            return refused(format!(
                "Cannot set the value of counter column {} (counters can only be \
                 incremented/decremented, not set)",
                column.name
            ));
        }
        self.push(column, ColumnOperation::Set(term));
        Ok(())
    }

    /// Nothing is written.
    pub(super) fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// `column = value` with the value planned already.
    pub(super) fn set_planned(&mut self, column: &'t Column, value: PlannedTerm) {
        self.push(column, ColumnOperation::Set(value));
    }

    /// One assignment of SET. `conditional`: the statement has IF, and may add to the stored value.
    pub(super) fn assign(
        &mut self,
        column: &'t Column,
        operation: &Operation,
        conditional: bool,
        cx: &PlanContext<'_>,
        binds: &mut Binds,
    ) -> Result<(), PlanError> {
        let earlier = self.columns.iter().find(|(c, _)| c.id == column.id);
        if let Some((_, earlier)) = earlier {
            let is_set = matches!(operation, Operation::Set(_))
                || earlier.operations.iter().any(|o| matches!(o, ColumnOperation::Set(_)));
            if is_set {
                return Err(PlanError::syntax(format!(
                    "Multiple incompatible setting of column {}",
                    column.name
                )));
            }
        }
        let receiver = Receiver::column(self.table, column);
        let name = &column.name;
        let planned = match operation {
            Operation::Set(value) => return self.set(column, value, cx, binds),
            Operation::Add(value) if column.ty.is_counter() => {
                ColumnOperation::Increment(plan_term(value, &receiver, cx, binds)?)
            }
            Operation::Subtract(value) if column.ty.is_counter() => {
                ColumnOperation::Decrement(plan_term(value, &receiver, cx, binds)?)
            }
            Operation::Add(value) => self.addition(column, value, conditional, cx, binds)?,
            Operation::Subtract(value) => self.subtraction(column, value, cx, binds)?,
            Operation::Prepend(value) => {
                let written = format!("{name} = {} - {name}", text_of(value));
                if !matches!(column.ty, CqlType::List { .. }) {
                    return refused(format!(
                        "Invalid operation ({written}) for non list column {name}"
                    ));
                }
                if !column.is_complex() {
                    return refused(format!(
                        "Invalid operation ({written}) for frozen list column {name}"
                    ));
                }
                ColumnOperation::Prepend(plan_term(value, &receiver, cx, binds)?)
            }
            Operation::SetElement { key, value } => self.element(column, key, value, cx, binds)?,
            Operation::SetField { field, value } => {
                let written = format!("{name}.{} = {}", field.to_cql(), text_of(value));
                let CqlType::Udt(udt) = &column.ty else {
                    return refused(format!(
                        "Invalid operation ({written}) for non-UDT column {name}"
                    ));
                };
                if !column.is_complex() {
                    return refused(format!(
                        "Invalid operation ({written}) for frozen UDT column {name}"
                    ));
                }
                let (position, ty) = field_of(udt, &field.text, name)?;
                let term = plan_term(value, &receiver.field_of(&field.text, ty), cx, binds)?;
                ColumnOperation::SetField(position, term)
            }
        };
        self.push(column, planned);
        Ok(())
    }

    /// `c = c + value`.
    fn addition(
        &self,
        column: &Column,
        value: &Term,
        conditional: bool,
        cx: &PlanContext<'_>,
        binds: &mut Binds,
    ) -> Result<ColumnOperation, PlanError> {
        let (receiver, name) = (Receiver::column(self.table, column), &column.name);
        let written = format!("{name} = {name} + {}", text_of(value));
        if conditional && is_single_value(&column.ty) {
            if !is_addable(&column.ty) {
                return refused(format!(
                    "Invalid operation ({written}) for non-numeric and non-text type {name}"
                ));
            }
            let term = plan_term(value, &receiver, cx, binds)?;
            return Ok(ColumnOperation::AddValue(column.ty.clone(), term));
        }
        check_collection(column, &written)?;
        let term = plan_term(value, &receiver, cx, binds);
        if term.is_err() && matches!(column.ty, CqlType::Map { .. }) {
            return refused(format!(
                "Value for a map addition has to be a map, but was: '{}'",
                text_of(value)
            ));
        }
        Ok(ColumnOperation::Add(term?))
    }

    /// `c = c - value`.
    fn subtraction(
        &self,
        column: &Column,
        value: &Term,
        cx: &PlanContext<'_>,
        binds: &mut Binds,
    ) -> Result<ColumnOperation, PlanError> {
        let (receiver, name) = (Receiver::column(self.table, column), &column.name);
        let written = format!("{name} = {name} - {}", text_of(value));
        check_collection(column, &written)?;
        let ty = match &column.ty {
            CqlType::Map { key, .. } => CqlType::set((**key).clone(), true),
            other => other.clone(),
        };
        let receiver = receiver.derive(name.clone(), ty);
        let term = plan_term(value, &receiver, cx, binds).map_err(|error| match &column.ty {
            CqlType::Map { .. } => PlanError::invalid(format!(
                "Value for a map substraction has to be a set, but was: '{}'",
                text_of(value)
            )),
            _ => error,
        })?;
        Ok(match &column.ty {
            CqlType::List { .. } => ColumnOperation::DiscardValues(term),
            _ => ColumnOperation::Discard(term),
        })
    }

    /// `c[key] = value`.
    fn element(
        &self,
        column: &Column,
        key: &Term,
        value: &Term,
        cx: &PlanContext<'_>,
        binds: &mut Binds,
    ) -> Result<ColumnOperation, PlanError> {
        let (receiver, name) = (Receiver::column(self.table, column), &column.name);
        let written = format!("{name}[{}] = {}", text_of(key), text_of(value));
        if !column.ty.is_collection() {
            return refused(format!(
                "Invalid operation ({written}) for non collection column {name}"
            ));
        }
        if !column.is_complex() {
            return refused(format!(
                "Invalid operation ({written}) for frozen collection column {name}"
            ));
        }
        Ok(match &column.ty {
            CqlType::Map { key: key_type, value: value_type, .. } => {
                let key = plan_term(key, &receiver.key_of(key_type), cx, binds)?;
                let value = plan_term(value, &receiver.value_of(value_type), cx, binds)?;
                ColumnOperation::SetElement(key, value)
            }
            CqlType::List { element, .. } => {
                let index = receiver.index_of(column);
                let index = plan_term(key, &index, cx, binds)?;
                let value = plan_term(value, &receiver.value_of(element), cx, binds)?;
                ColumnOperation::SetIndex(index, value)
            }
            _ => {
                return refused(format!("Invalid operation ({written}) for set column {name}"));
            }
        })
    }

    /// One target of DELETE.
    pub(super) fn delete(
        &mut self,
        target: &DeleteTarget,
        cx: &PlanContext<'_>,
        binds: &mut Binds,
    ) -> Result<(), PlanError> {
        let (DeleteTarget::Column(name)
        | DeleteTarget::Element(name, _)
        | DeleteTarget::Field(name, _)) = target;
        let column = existing_column(self.table, &name.text)?;
        if is_primary_key(column) {
            return refused(format!(
                "Invalid identifier {} for deletion (should not be a PRIMARY KEY part)",
                column.name
            ));
        }
        let name = &column.name;
        let receiver = Receiver::column(self.table, column);
        let planned = match target {
            DeleteTarget::Column(_) => ColumnOperation::Delete,
            DeleteTarget::Element(_, key) => {
                if !column.ty.is_collection() {
                    return refused(format!(
                        "Invalid deletion operation for non collection column {name}"
                    ));
                }
                if !column.is_complex() {
                    return refused(format!(
                        "Invalid deletion operation for frozen collection column {name}"
                    ));
                }
                let receiver = match &column.ty {
                    CqlType::Map { key, .. } => receiver.key_of(key),
                    CqlType::Set { element, .. } => receiver.value_of(element),
                    _ => receiver.index_of(column),
                };
                let key = plan_term(key, &receiver, cx, binds)?;
                match &column.ty {
                    CqlType::List { .. } => ColumnOperation::DeleteIndex(key),
                    _ => ColumnOperation::DeleteElement(key),
                }
            }
            DeleteTarget::Field(_, field) => {
                let CqlType::Udt(udt) = &column.ty else {
                    return refused(format!(
                        "Invalid field deletion operation for non-UDT column {name}"
                    ));
                };
                if !column.is_complex() {
                    return refused(format!(
                        "Frozen UDT column {name} does not support field deletions"
                    ));
                }
                ColumnOperation::DeleteField(field_of(udt, &field.text, name)?.0)
            }
        };
        self.push(column, planned);
        Ok(())
    }

    /// Operations on static columns and on regular ones, ascending by id.
    pub(super) fn finish(
        self,
    ) -> Result<(Vec<ColumnOperations>, Vec<ColumnOperations>), PlanError> {
        let (mut statics, mut regulars) = (Vec::new(), Vec::new());
        for (column, mut operations) in self.columns {
            if operations.complex.is_none() && !column.ty.is_counter() {
                // DELETE a, a names the same cell twice.
                operations.operations.truncate(1);
            }
            match column.kind {
                ColumnKind::Static => statics.push(operations),
                _ => regulars.push(operations),
            }
        }
        statics.sort_by_key(|o: &ColumnOperations| o.id);
        regulars.sort_by_key(|o: &ColumnOperations| o.id);
        Ok((statics, regulars))
    }
}

fn field_of<'u>(
    udt: &'u types::UdtType,
    field: &str,
    column: &str,
) -> Result<(u16, &'u CqlType), PlanError> {
    let unknown =
        || PlanError::invalid(format!("UDT column {column} does not have a field named {field}"));
    let at = udt.field_position(field).ok_or_else(unknown)?;
    let (_, ty) = udt.fields.get(at).ok_or_else(unknown)?;
    Ok((u16::try_from(at).map_err(|_| unknown())?, ty))
}

fn is_single_value(ty: &CqlType) -> bool {
    !ty.is_collection() && !ty.is_tuple() && !ty.is_udt()
}

fn is_addable(ty: &CqlType) -> bool {
    ty.is_numeric() || matches!(ty, CqlType::Text | CqlType::Ascii)
}

/// `+` and `-` are for collections of many cells, and for counters.
fn check_collection(column: &Column, written: &str) -> Result<(), PlanError> {
    let name = &column.name;
    if column.ty.is_tuple() || column.ty.is_udt() {
        return refused(format!("Invalid operation ({written}) for tuple column {name}"));
    }
    if !column.ty.is_collection() {
        return refused(format!("Invalid operation ({written}) for non counter column {name}"));
    }
    if !column.is_complex() {
        return refused(format!(
            "Invalid operation ({written}) for frozen collection column {name}"
        ));
    }
    Ok(())
}
