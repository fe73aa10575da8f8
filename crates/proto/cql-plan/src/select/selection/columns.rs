//! Columns that selectors name.

use cql_syntax::ast::{Selection, Selector};
use schema::Table;

use crate::error::PlanError;
use crate::select::relations::existing_column;

/// Indices of the columns that the selectors name.
pub(crate) fn selected_columns(
    selection: &Selection,
    table: &Table,
) -> Result<Vec<usize>, PlanError> {
    let mut columns = Vec::new();
    if let Selection::Items(items) = selection {
        columns.reserve(items.len());
        for item in items {
            columns_of(&item.selector, table, &mut columns)?;
        }
    }
    Ok(columns)
}

fn columns_of(
    selector: &Selector,
    table: &Table,
    columns: &mut Vec<usize>,
) -> Result<(), PlanError> {
    match selector {
        Selector::Column(name) => columns.push(existing_column(table, name)?.0),
        Selector::Literal(_) | Selector::Null(_) | Selector::Bind(_) | Selector::CountRows(_) => {}
        Selector::Metadata { target: inner, .. }
        | Selector::Cast { selector: inner, .. }
        | Selector::Field { receiver: inner, .. }
        | Selector::Element { receiver: inner, .. }
        | Selector::Slice { receiver: inner, .. }
        | Selector::TypeHint { selector: inner, .. }
        | Selector::Negate(inner, _) => columns_of(inner, table, columns)?,
        Selector::FunctionCall { args: items, .. }
        | Selector::Tuple(items, _)
        | Selector::List(items, _)
        | Selector::Set(items, _) => {
            for item in items {
                columns_of(item, table, columns)?;
            }
        }
        Selector::MapOrUdt(entries, _) => {
            for (key, value) in entries {
                // Keys may be names of fields.
                if !matches!(key, Selector::Column(_)) {
                    columns_of(key, table, columns)?;
                }
                columns_of(value, table, columns)?;
            }
        }
        Selector::Binary { left, right, .. } => {
            columns_of(left, table, columns)?;
            columns_of(right, table, columns)?;
        }
    }
    Ok(())
}

/// Indices of the columns that a selector names, each once.
pub(in crate::select) fn selectors_columns(
    selector: &Selector,
    table: &Table,
) -> Result<Vec<usize>, PlanError> {
    let mut columns = Vec::new();
    columns_of(selector, table, &mut columns)?;
    let mut seen = Vec::new();
    columns.retain(|index| {
        let new = !seen.contains(index);
        seen.push(*index);
        new
    });
    Ok(columns)
}
