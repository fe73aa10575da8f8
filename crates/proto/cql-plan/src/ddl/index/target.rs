//! Targets of indexes: which columns and parts of columns may be indexed, by whatever class.
//!
//! Source: `CreateIndexStatement.validateIndexTarget`, `IndexTarget`.

use cql_syntax::ast::{self, IndexTargetKind};
use schema::{Column, ColumnKind, IndexKind, IndexTarget, Table, TargetPart};
use types::CqlType;
use types::name::quote_identifier;

use super::super::KEYSPACE_CHARS_MAX;
use crate::error::PlanError;

/// The targets of a statement in a table. The bare name of a collection means its values.
pub(super) fn resolve(
    targets: &[ast::IndexTarget],
    table: &Table,
) -> Result<Vec<IndexTarget>, PlanError> {
    let one = |target: &ast::IndexTarget| {
        let name = target.column.text.as_str();
        let column = table.visible_column(name).ok_or_else(|| super::undefined(name, table))?;
        let part = match target.kind {
            IndexTargetKind::Simple if column.ty.is_collection() => TargetPart::Values,
            IndexTargetKind::Simple => TargetPart::Simple,
            IndexTargetKind::Values => TargetPart::Values,
            IndexTargetKind::Keys => TargetPart::Keys,
            IndexTargetKind::Entries => TargetPart::Entries,
            IndexTargetKind::Full => TargetPart::Full,
        };
        Ok(IndexTarget { column: column.name.clone(), part })
    };
    targets.iter().map(one).collect()
}

pub(super) fn check_number(targets: &[IndexTarget], kind: IndexKind) -> Result<(), PlanError> {
    let is_custom = kind == IndexKind::Custom;
    if targets.is_empty() && !is_custom {
        return Err(PlanError::invalid(
            "Only CUSTOM indexes can be created without specifying a target column",
        ));
    }
    if targets.len() > 1 && !is_custom {
        return Err(PlanError::invalid("Only CUSTOM indexes support multiple columns"));
    }
    let mut seen: Vec<&str> = Vec::new();
    for target in targets {
        if seen.contains(&&*target.column) {
            return Err(PlanError::invalid(format!(
                "Duplicate column '{}' in index target list",
                target.column
            )));
        }
        seen.push(&target.column);
    }
    Ok(())
}

/// Checks one target.
///
/// # Errors
/// A column that has no index of this kind.
pub(super) fn check(target: &IndexTarget, table: &Table, kind: IndexKind) -> Result<(), PlanError> {
    let Some(column) = table.column(&target.column) else {
        return Err(super::undefined(&target.column, table));
    };
    if kind == IndexKind::Custom {
        check_name(&column.name)?;
    }
    let text = durations(&column.ty)
        .map(|what| format!("Secondary indexes are not supported on {what}"))
        .or_else(|| in_compact_table(column, table))
        .or_else(|| by_type(column, target.part, table));
    match text {
        Some(text) => Err(PlanError::invalid(text)),
        None => Ok(()),
    }
}

/// Cassandra puts the name of the column into names of files.
fn check_name(name: &str) -> Result<(), PlanError> {
    if !super::super::is_valid_name(name) {
        return Err(PlanError::invalid(format!(
            "Column '{name}' contains non-alphanumeric-underscore characters"
        )));
    }
    if name.len() > KEYSPACE_CHARS_MAX {
        return Err(PlanError::invalid(format!(
            "Column '{name}' is longer than the permissible name length of {KEYSPACE_CHARS_MAX} \
             characters"
        )));
    }
    Ok(())
}

fn durations(ty: &CqlType) -> Option<&'static str> {
    if !ty.any(&mut |ty| matches!(ty, CqlType::Duration)) {
        return None;
    }
    Some(match ty {
        _ if ty.is_collection() => "collections containing durations",
        CqlType::Tuple(_) => "tuples containing durations",
        CqlType::Udt(_) => "UDTs containing durations",
        _ => "duration columns",
    })
}

fn in_compact_table(column: &Column, table: &Table) -> Option<String> {
    table.compact_form()?;
    let part = match column.kind {
        ColumnKind::PartitionKey(_) | ColumnKind::Clustering { .. } => {
            "PRIMARY KEY columns in COMPACT STORAGE tables"
        }
        ColumnKind::Regular => "compact value column of COMPACT STORAGE tables",
        ColumnKind::Static => return None,
    };
    Some(format!("Secondary indexes are not supported on {part}"))
}

fn by_type(column: &Column, part: TargetPart, table: &Table) -> Option<String> {
    let name = &column.name;
    let function = part.function().unwrap_or_default();
    if matches!(column.kind, ColumnKind::PartitionKey(_)) && table.partition_key_count == 1 {
        return Some(format!(
            "Cannot create secondary index on the only partition key column {name}"
        ));
    }
    let is_frozen_collection = column.ty.is_collection() && !column.ty.is_multi_cell();
    if is_frozen_collection && part != TargetPart::Full {
        return Some(format!(
            "Cannot create {function}() index on frozen column {name}. Frozen collections are \
             immutable and must be fully indexed by using the 'full({})' modifier",
            quote_identifier(name)
        ));
    }
    if !is_frozen_collection && part == TargetPart::Full {
        return Some("full() indexes can only be created on frozen collections".to_owned());
    }
    if !column.ty.is_collection() && part != TargetPart::Simple {
        return Some(format!(
            "Cannot create {function}() index on {name}. Non-collection columns only support \
             simple indexes"
        ));
    }
    let is_map = matches!(column.ty, CqlType::Map { .. }) && column.ty.is_multi_cell();
    if !is_map && matches!(part, TargetPart::Keys | TargetPart::Entries) {
        return Some(format!(
            "Cannot create index on {function} of column {name} with non-map type"
        ));
    }
    (column.ty.is_udt() && column.ty.is_multi_cell())
        .then(|| format!("Cannot create index on non-frozen UDT column {name}"))
}

/// Type of the indexed values; `None`: entries of a map, which have two.
pub(super) fn term_type(column: &Column, part: TargetPart) -> Option<&CqlType> {
    match (part, &column.ty) {
        (TargetPart::Entries, _) => None,
        (TargetPart::Keys, CqlType::Map { key, .. }) => Some(key),
        (TargetPart::Values, CqlType::Map { value, .. }) => Some(value),
        (TargetPart::Values, CqlType::List { element, .. } | CqlType::Set { element, .. }) => {
            Some(element)
        }
        (_, ty) => Some(ty),
    }
}

pub(super) fn is_vector(ty: &CqlType) -> bool {
    matches!(ty, CqlType::Vector { .. })
}

/// Returns true for types whose values have no order in bytes here.
pub(super) fn has_no_terms(ty: &CqlType) -> bool {
    matches!(ty, CqlType::Custom(_) | CqlType::Empty | CqlType::Counter)
}
