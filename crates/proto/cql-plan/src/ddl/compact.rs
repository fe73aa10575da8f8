//! CREATE TABLE … WITH COMPACT STORAGE: the statements that it rejects, and the columns that it
//! adds.
//!
//! Source: `CreateTableStatement.validateCompactTable`, `fixupCompactTable`, `DefaultNames`.

use cql_syntax::ast::PrimaryKey;
use schema::{Column, ColumnKind, CompactForm};
use stdx::ColumnId;
use types::CqlType;

use super::table::ColumnTypes;
use crate::error::PlanError;

/// The form of the table.
///
/// # Errors
/// Columns and types that compact storage does not support.
pub(super) fn form(
    types: &ColumnTypes<'_>,
    in_key: &[&str],
    key: &PrimaryKey,
) -> Result<CompactForm, PlanError> {
    let refuse = |text: &str| Err(PlanError::invalid(text));
    let others = || types.iter().filter(|(name, _)| !in_key.contains(name));
    if others().any(|(_, (ty, _))| ty.is_multi_cell()) {
        return refuse("Non-frozen collections and UDTs are not supported with COMPACT STORAGE");
    }
    if types.values().any(|(_, is_static)| *is_static) {
        return refuse("Static columns are not supported in COMPACT STORAGE tables");
    }
    let form = match key.clustering.len() {
        0 if others().next().is_none() => {
            return refuse("No definition found that is not part of the PRIMARY KEY");
        }
        0 => CompactForm::Static,
        1 => CompactForm::Dense,
        _ => CompactForm::DenseCompound,
    };
    if form != CompactForm::Static && others().count() > 1 {
        let names: Vec<&str> = others().map(|(name, _)| *name).collect();
        return refuse(&format!(
            "COMPACT STORAGE with composite PRIMARY KEY allows no more than one column not part of \
             the PRIMARY KEY (got: {})",
            names.join(", ")
        ));
    }
    Ok(form)
}

/// The columns that are not written and are there all the same; their ids are given later.
pub(super) fn hidden(
    form: CompactForm,
    types: &ColumnTypes<'_>,
    in_key: &[&str],
    has_counters: bool,
) -> Vec<Column> {
    let is_free = |name: &String| !types.contains_key(name.as_str());
    let column = |name: String, ty, kind| Column { id: ColumnId(0), name: name.into(), ty, kind };
    let value = || {
        let later = (1..=u32::MAX).map(|n| format!("value{n}"));
        std::iter::once("value".to_owned()).chain(later).find(is_free).unwrap_or_default()
    };
    if form == CompactForm::Static {
        let clustering = (1..=u32::MAX).map(|n| format!("column{n}")).find(is_free);
        let clustering = clustering.unwrap_or_default();
        let kind = ColumnKind::Clustering { position: 0, reversed: false };
        let ty = if has_counters { CqlType::Counter } else { CqlType::Blob };
        return vec![
            column(clustering, CqlType::Text, kind),
            column(value(), ty, ColumnKind::Regular),
        ];
    }
    if types.len() > in_key.len() {
        return Vec::new();
    }
    vec![column(value(), CqlType::Empty, ColumnKind::Regular)]
}
