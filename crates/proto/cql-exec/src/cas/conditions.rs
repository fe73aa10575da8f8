//! Evaluation of a condition on a row as it was read.
//!
//! A missing row is one whose columns are all null. Source: the `Bound` classes of
//! `cql3.conditions.ColumnCondition`.

use std::cmp::Ordering;

use cql_functions::PlanError;
use cql_plan::conditions::{BoundCondition, BoundTarget};
use cql_syntax::ast::Operator;
use data::{ColumnRef, RowRef};
use stdx::{ColumnId, DeletionSeconds};
use types::wire::{CollectionKind, Elements, Entries, Fields};
use types::{Comparator, CqlType};

use crate::cells::append_udt;

/// Live cells of a column of many: path and value.
type Cells<'r> = Vec<(&'r [u8], &'r [u8])>;

fn null_compared(op: Operator) -> PlanError {
    PlanError::invalid(format!("Invalid comparison with null for operator \"{}\"", op.symbol()))
}

/// Returns true if `order` (of the stored value to the one asked for) satisfies an operator.
fn satisfies(order: Ordering, op: Operator) -> bool {
    match op {
        Operator::Eq => order.is_eq(),
        Operator::NotEq => order.is_ne(),
        Operator::Lt => order.is_lt(),
        Operator::LtEq => order.is_le(),
        Operator::Gt => order.is_gt(),
        Operator::GtEq => order.is_ge(),
        Operator::Contains | Operator::ContainsKey | Operator::Like => false,
    }
}

/// Compares the stored value with the one asked for. `ty` is the type of the stored value.
fn compare(
    op: Operator,
    ty: &CqlType,
    asked: Option<&[u8]>,
    found: Option<&[u8]>,
) -> Result<bool, PlanError> {
    let Some(asked) = asked else {
        return match op {
            Operator::Eq => Ok(found.is_none()),
            Operator::NotEq => Ok(found.is_some()),
            _ => Err(null_compared(op)),
        };
    };
    let Some(found) = found else { return Ok(op == Operator::NotEq) };
    if matches!(op, Operator::Contains | Operator::ContainsKey) {
        return contains(&frozen_cells(found, ty)?, ty, op, asked);
    }
    Ok(satisfies(Comparator::for_type(ty).compare(found, asked), op))
}

fn simple<'r>(row: Option<RowRef<'r>>, id: ColumnId, now: DeletionSeconds) -> Option<&'r [u8]> {
    match row?.column(id)? {
        ColumnRef::Simple(cell) if cell.is_live(now) => Some(cell.value),
        _ => None,
    }
}

fn cells<'r>(row: Option<RowRef<'r>>, id: ColumnId, now: DeletionSeconds) -> Cells<'r> {
    match row.and_then(|row| row.column(id)) {
        Some(ColumnRef::Complex(complex)) => complex
            .cells()
            .filter(|(_, cell)| cell.is_live(now))
            .map(|(path, cell)| (path, cell.value))
            .collect(),
        _ => Vec::new(),
    }
}

/// A collection's value as cells: of sets the paths count, of lists the values.
fn frozen_cells<'b>(bytes: &'b [u8], ty: &CqlType) -> Result<Cells<'b>, PlanError> {
    let mut cells = Vec::new();
    match ty {
        CqlType::Map { .. } => {
            for entry in Entries::new(bytes).map_err(PlanError::from)? {
                cells.push(entry.map_err(PlanError::from)?);
            }
        }
        CqlType::Set { .. } => {
            for element in Elements::new(bytes, CollectionKind::Set).map_err(PlanError::from)? {
                cells.extend(element.map_err(PlanError::from)?.map(|e| (e, &[] as &[u8])));
            }
        }
        _ => {
            for element in Elements::new(bytes, CollectionKind::List).map_err(PlanError::from)? {
                cells.extend(element.map_err(PlanError::from)?.map(|e| (&[] as &[u8], e)));
            }
        }
    }
    Ok(cells)
}

fn contains(
    cells: &Cells<'_>,
    ty: &CqlType,
    op: Operator,
    asked: &[u8],
) -> Result<bool, PlanError> {
    let (of_paths, element) = match ty {
        CqlType::Map { key, .. } if op == Operator::ContainsKey => (true, key),
        CqlType::Map { value, .. } => (false, value),
        CqlType::Set { element, .. } => (true, element),
        CqlType::List { element, .. } => (false, element),
        _ => return Ok(false),
    };
    let order = Comparator::for_type(element);
    Ok(cells.iter().any(|(path, value)| {
        let found = if of_paths { path } else { value };
        order.compare(found, asked).is_eq()
    }))
}

/// Order of two collections: element by element, then by length.
fn compare_collections(ty: &CqlType, found: &Cells<'_>, asked: &Cells<'_>) -> Ordering {
    let (paths, values) = match ty {
        CqlType::Map { key, value, .. } => {
            (Some(Comparator::for_type(key)), Some(Comparator::for_type(value)))
        }
        CqlType::Set { element, .. } => (Some(Comparator::for_type(element)), None),
        CqlType::List { element, .. } => (None, Some(Comparator::for_type(element))),
        _ => (None, None),
    };
    let of = |order: &Option<Comparator>, a: &[u8], b: &[u8]| {
        order.as_ref().map_or(Ordering::Equal, |order| order.compare(a, b))
    };
    for ((path, value), (asked_path, asked_value)) in found.iter().zip(asked) {
        let order = of(&paths, path, asked_path).then_with(|| of(&values, value, asked_value));
        if order.is_ne() {
            return order;
        }
    }
    found.len().cmp(&asked.len())
}

/// Returns true if the condition holds; `row` is `None` when the row does not exist.
///
/// # Errors
/// Invalid comparisons, with Cassandra's words.
pub(crate) fn applies(
    condition: &BoundCondition,
    row: Option<RowRef<'_>>,
    now: DeletionSeconds,
) -> Result<bool, PlanError> {
    match (&condition.target, &condition.ty) {
        (BoundTarget::Whole, CqlType::Udt(udt)) if condition.is_complex => {
            let mut value = Vec::new();
            let complex = match row.and_then(|row| row.column(condition.id)) {
                Some(ColumnRef::Complex(complex)) => Some(complex),
                _ => None,
            };
            let fields = u16::try_from(udt.fields.len()).unwrap_or(u16::MAX);
            let any = complex.is_some_and(|c| append_udt(&mut value, &c, fields, now));
            any_holds(condition, &condition.ty, any.then_some(value.as_slice()))
        }
        (BoundTarget::Whole, _) if condition.is_complex => {
            collection_holds(condition, &cells(row, condition.id, now))
        }
        (BoundTarget::Whole, ty) => any_holds(condition, ty, simple(row, condition.id, now)),
        (BoundTarget::Element(key), CqlType::Map { key: key_type, value, .. }) => {
            let Some(key) = key else {
                return Err(PlanError::invalid("Invalid null value for map element access"));
            };
            let cells = cells_of(condition, row, now)?;
            let order = Comparator::for_type(key_type);
            let found = cells.iter().find(|(path, _)| order.compare(path, key).is_eq());
            any_holds(condition, value, found.map(|(_, value)| *value))
        }
        (BoundTarget::Element(index), CqlType::List { element, .. }) => {
            // An empty value is an int, too, and none at the same time.
            let index = index.as_deref().and_then(|b| b.try_into().ok()).map(i32::from_be_bytes);
            let Some(index) = index else {
                return Err(PlanError::invalid("Invalid null value for list element access"));
            };
            let Ok(at) = usize::try_from(index) else {
                return Err(PlanError::invalid(format!("Invalid negative list index {index}")));
            };
            let cells = cells_of(condition, row, now)?;
            any_holds(condition, element, cells.get(at).map(|(_, value)| *value))
        }
        (BoundTarget::Field(position), CqlType::Udt(udt)) => {
            let Some((_, ty)) = udt.fields.get(*position) else { return Ok(false) };
            if condition.is_complex {
                let path = u16::try_from(*position).unwrap_or(u16::MAX).to_be_bytes();
                let cells = cells(row, condition.id, now);
                let found = cells.iter().find(|(at, _)| **at == path);
                return any_holds(condition, ty, found.map(|(_, value)| *value));
            }
            let found = match simple(row, condition.id, now) {
                None => None,
                Some(bytes) => Fields::new(bytes, udt.fields.len())
                    .nth(*position)
                    .transpose()
                    .map_err(PlanError::from)?
                    .flatten(),
            };
            any_holds(condition, ty, found)
        }
        (BoundTarget::Element(_) | BoundTarget::Field(_), _) => Ok(false),
    }
}

/// The collection's cells, frozen or not.
fn cells_of<'r>(
    condition: &'r BoundCondition,
    row: Option<RowRef<'r>>,
    now: DeletionSeconds,
) -> Result<Cells<'r>, PlanError> {
    if condition.is_complex {
        return Ok(cells(row, condition.id, now));
    }
    match simple(row, condition.id, now) {
        Some(bytes) => frozen_cells(bytes, &condition.ty),
        None => Ok(Vec::new()),
    }
}

fn any_holds(
    condition: &BoundCondition,
    ty: &CqlType,
    found: Option<&[u8]>,
) -> Result<bool, PlanError> {
    for value in &condition.values {
        if compare(condition.op, ty, value.as_deref(), found)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A whole collection of many cells. An empty one is null.
fn collection_holds(condition: &BoundCondition, found: &Cells<'_>) -> Result<bool, PlanError> {
    let is_contains = matches!(condition.op, Operator::Contains | Operator::ContainsKey);
    for value in &condition.values {
        let asked = match value {
            Some(value) if is_contains => {
                if contains(found, &condition.ty, condition.op, value)? {
                    return Ok(true);
                }
                continue;
            }
            Some(value) => frozen_cells(value, &condition.ty)?,
            None => Vec::new(),
        };
        if asked.is_empty() {
            match condition.op {
                Operator::Eq if found.is_empty() => return Ok(true),
                Operator::Eq => continue,
                Operator::NotEq => return Ok(!found.is_empty()),
                op if value.is_none() => return Err(null_compared(op)),
                op => {
                    let kind = match &condition.ty {
                        CqlType::Map { .. } => "map",
                        CqlType::Set { .. } => "set",
                        _ => "list",
                    };
                    return Err(PlanError::invalid(format!(
                        "Invalid comparison with an empty {kind} for operator \"{}\"",
                        op.symbol()
                    )));
                }
            }
        }
        if found.is_empty() && condition.op != Operator::NotEq {
            continue;
        }
        if satisfies(compare_collections(&condition.ty, found, &asked), condition.op) {
            return Ok(true);
        }
    }
    Ok(false)
}
