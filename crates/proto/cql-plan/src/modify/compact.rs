//! Writes to tables made WITH COMPACT STORAGE, as far as they differ: a row is its one cell.
//!
//! Source: `UpdateParameters.newRow`, `addRowDeletion`, `UpdateStatement.addUpdateForKey`.

use std::ops::Range;

use data::clustering::components;
use data::{DeletionTime, Liveness, RowBuilder};
use schema::{Column, CompactForm, Table};
use types::CqlType;

use super::write::{Times, slice};
use super::{ModifyKind, ModifyPlan};
use crate::error::PlanError;

/// The hidden column that rows of a compact table consist of when only key columns were declared.
pub(super) fn empty_value(table: &Table) -> Option<&Column> {
    table.compact_form()?;
    table.regulars().first().filter(|value| value.ty == CqlType::Empty)
}

/// Looks at rows that are about to be written or deleted one by one.
///
/// # Errors
/// An empty clustering where it is the only one; a row without its value.
#[inline]
pub(super) fn check(
    plan: &ModifyPlan,
    clusterings: &[Range<usize>],
    scratch: &[u8],
) -> Result<(), PlanError> {
    match plan.rows.table.compact_form() {
        None => Ok(()),
        Some(form) => check_rows(plan, form, clusterings, scratch),
    }
}

#[cold]
fn check_rows(
    plan: &ModifyPlan,
    form: CompactForm,
    clusterings: &[Range<usize>],
    scratch: &[u8],
) -> Result<(), PlanError> {
    let is_empty = |row: &Range<usize>| {
        components(slice(scratch, row)).next().flatten().is_none_or(<[u8]>::is_empty)
    };
    if form == CompactForm::Dense && clusterings.iter().any(is_empty) {
        let name = plan.rows.table.clustering().first().map_or("", |c| &*c.name);
        let text = format!("Invalid empty or null value for column {name}");
        return Err(PlanError::invalid(text));
    }
    if plan.kind != ModifyKind::Delete
        && plan.regulars.is_empty()
        && !clusterings.is_empty()
        && let Some(value) = plan.rows.table.regulars().first()
    {
        return Err(PlanError::invalid(format!(
            "Column {} is mandatory for this COMPACT STORAGE table",
            types::name::quote_identifier(&value.name)
        )));
    }
    Ok(())
}

/// Writes the deletion of one row of a compact table: a tombstone of its cell, not of the row.
pub(super) fn row_deletion(
    table: &Table,
    times: &Times,
    scratch: &mut Vec<u8>,
) -> Option<Range<usize>> {
    table.compact_form()?;
    let value = table.regulars().first()?;
    let mut row = RowBuilder::new(scratch, Liveness::NONE, DeletionTime::LIVE, times.timestamp);
    row.cell(value.id, &times.tombstone());
    Some(row.finish())
}

#[cfg(test)]
mod tests {
    use crate::modify::tests::{check, check_error};

    #[test]
    fn rows_of_compact_tables_have_no_marker() {
        check("INSERT INTO cst (k, v) VALUES (1, 5)", &[], &["00000001 static(v=5)"]);
        check("INSERT INTO cde (k, c, v) VALUES (1, 'a', 5)", &[], &["00000001 ['a'](v=5)"]);
        check("INSERT INTO cno (k, c) VALUES (1, 2)", &[], &["00000001 [2](value=null)"]);
    }

    #[test]
    fn the_last_clustering_columns_of_a_compact_table_may_be_null() {
        check("INSERT INTO cco (k, c, v) VALUES (1, 2, 5)", &[], &["00000001 [2,null](v=5)"]);
        check("UPDATE cco SET v = 5 WHERE k = 1 AND c = 2", &[], &["00000001 [2,null](v=5)"]);
        check_error(
            "INSERT INTO cco (k, d, v) VALUES (1, 2, 5)",
            &[],
            "PRIMARY KEY column \"d\" cannot be restricted as preceding column \"c\" is not \
             restricted",
        );
        check_error(
            "INSERT INTO cco (k, v) VALUES (1, 5)",
            &[],
            "Some clustering keys are missing: c, d",
        );
        check_error(
            "INSERT INTO cco (k, c, d) VALUES (1, 2, 3)",
            &[],
            "Column v is mandatory for this COMPACT STORAGE table",
        );
        check_error(
            "INSERT INTO cde (k, c, v) VALUES (1, '', 3)",
            &[],
            "Invalid empty or null value for column c",
        );
    }

    #[test]
    fn a_row_of_a_compact_table_is_deleted_by_a_tombstone_of_its_cell() {
        check("DELETE FROM cde WHERE k = 1 AND c = 'a'", &[], &["00000001 ['a'](v=x)"]);
        check("DELETE FROM cno WHERE k = 1 AND c = 2", &[], &["00000001 [2](value=x)"]);
        check("DELETE FROM cco WHERE k = 1 AND c = 2", &[], &["00000001 range(2- 2+)@1000"]);
        check("DELETE FROM cst WHERE k = 1", &[], &["00000001 deleted@1000"]);
        check("DELETE v FROM cst WHERE k = 1", &[], &["00000001 static(v=x)"]);
    }
}
