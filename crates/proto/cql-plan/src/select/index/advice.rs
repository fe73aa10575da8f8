//! The index that would answer a filter of a statement with ALLOW FILTERING.

use schema::{Column, IndexTarget, Table, TargetPart};
use types::name::quote_identifier;

use super::super::restrictions::{Condition, Restriction};
use super::answering;
use super::support::{self, IndexOperator};
use crate::ddl::may_index;

/// Returns the statement that creates an index which answers one of the filters: of equality before elements before
/// ranges. `None`: none can.
pub(crate) fn advised_index<'r>(
    table: &Table,
    filters: impl Iterator<Item = &'r Restriction>,
) -> Option<String> {
    if table.is_virtual() || is_of_system(table) {
        return None;
    }
    let mut best: Option<(IndexOperator, &Column, TargetPart)> = None;
    for restriction in filters {
        let [column] = support::columns(table, restriction) else { continue };
        let Some(operator) = operator_of(&restriction.condition) else { continue };
        let is_better = best.is_none_or(|(found, ..)| rank(operator) < rank(found));
        if is_better
            && answering(table, column, operator).is_none()
            && let Some(part) = part_of(table, column, operator)
        {
            best = Some((operator, column, part));
        }
    }
    let (_, column, part) = best?;
    let name = quote_identifier(&column.name);
    let target = match part.function() {
        Some(function) => format!("{function}({name})"),
        None => name,
    };
    let (keyspace, table) = (quote_identifier(&table.keyspace), quote_identifier(&table.name));
    Some(format!("CREATE INDEX ON {keyspace}.{table} ({target}) USING 'sai'"))
}

/// The node's own keyspaces, which have no indexes.
fn is_of_system(table: &Table) -> bool {
    &*table.keyspace == "system" || table.keyspace.starts_with("system_")
}

fn rank(operator: IndexOperator) -> u8 {
    match operator {
        IndexOperator::Equal => 0,
        IndexOperator::Contains | IndexOperator::ContainsKey => 1,
        IndexOperator::Range | IndexOperator::Like => 2,
    }
}

fn operator_of(condition: &Condition) -> Option<IndexOperator> {
    match condition {
        Condition::Eq(_) => Some(IndexOperator::Equal),
        Condition::Slice { .. } => Some(IndexOperator::Range),
        Condition::Contains { entries, .. } if !entries.is_empty() => Some(IndexOperator::Equal),
        Condition::Contains { values, .. } if !values.is_empty() => Some(IndexOperator::Contains),
        Condition::Contains { .. } => Some(IndexOperator::ContainsKey),
        // LIKE is refused without an index that answers it.
        Condition::In(_) | Condition::Analyzed(_, _) | Condition::Like(_, _) => None,
    }
}

/// Part of the column that a storage-attached index must have to answer the operator. `None`: there can be no such index.
fn part_of(table: &Table, column: &Column, operator: IndexOperator) -> Option<TargetPart> {
    let (ty, is_open) = (&column.ty, column.ty.is_multi_cell());
    let part = match operator {
        IndexOperator::Equal if is_open => TargetPart::Entries,
        IndexOperator::Equal if ty.is_collection() => TargetPart::Full,
        IndexOperator::Equal => TargetPart::Simple,
        IndexOperator::Range if !is_open && support::has_ranges(ty) => TargetPart::Simple,
        IndexOperator::Contains if is_open => TargetPart::Values,
        IndexOperator::ContainsKey if is_open => TargetPart::Keys,
        _ => return None,
    };
    may_index(table, &IndexTarget { column: column.name.clone(), part }).then_some(part)
}
