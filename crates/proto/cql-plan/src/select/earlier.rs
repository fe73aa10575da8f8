//! What is wrong with a selection, and is told before or behind other errors of its statement.

use std::sync::Arc;

use cql_syntax::ast::{self, Selection, Statement};
use schema::{ColumnKind, Table};

use super::selection::{PlannedSelection, plan_selection, refuse, selected_columns};
use crate::error::PlanError;
use crate::plan::{Binds, PlanContext};

/// What Cassandra says before it looks at the WHERE clause, if anything. Of a table with static columns
/// it asks first whether these alone are selected, and for that resolves columns and functions, no
/// further than it must. Source: `SelectStatement.selectOnlyStaticColumns`, `RawSelector.toSelectables`
/// (a lazy list).
#[cold]
pub(super) fn earlier_error(
    select: &ast::Select,
    statement: &Statement,
    table: &Arc<Table>,
    cx: &PlanContext<'_>,
) -> Option<PlanError> {
    let Selection::Items(items) = &select.selection else { return None };
    if table.static_count == 0 {
        return None;
    }
    let kind = |at: &usize| table.columns.get(*at).map(|column| column.kind);
    let is_static = |at: &usize| kind(at) == Some(ColumnKind::Static);
    let is_other =
        |at: &usize| !matches!(kind(at), Some(ColumnKind::Static | ColumnKind::PartitionKey(_)));
    // Whether an item selects such a column.
    let any = |wanted: &dyn Fn(&usize) -> bool| -> Result<bool, PlanError> {
        for item in items {
            let alone = Selection::Items(vec![item.clone()]);
            let columns = selected_columns(&alone, table)?;
            let mut binds = Binds::new(&statement.bind_markers);
            match plan_selection(&alone, table, false, cx, &mut binds) {
                Err(error) if is_of_function(&error) => return Err(error),
                _ if columns.iter().any(wanted) => return Ok(true),
                _ => {}
            }
        }
        Ok(false)
    };
    match any(&is_static) {
        Ok(true) => any(&is_other).err(),
        other => other.err(),
    }
}

/// Whether it is told when functions are resolved.
fn is_of_function(error: &PlanError) -> bool {
    const OF_FUNCTIONS: [&str; 6] = [
        "Unknown function",
        "Invalid call to function",
        "Ambiguous call to function",
        "Invalid number of arguments",
        "Cannot infer type of argument",
        "Type error: ",
    ];
    let message = &error.message;
    if message.starts_with("Invalid call to function system.cast_as_") {
        return false;
    }
    OF_FUNCTIONS.iter().any(|text| message.starts_with(text))
        || (message.starts_with("Function ") && message.contains(" requires "))
        || message.contains(" operation is not supported between ")
}

impl PlannedSelection {
    /// Refuses a term that has no value where an element's key is wanted.
    /// Source: `ElementsSelector.ElementSelector`.
    #[cold]
    pub(super) fn check_key(&self, term: usize, is_unset: bool) -> Result<(), PlanError> {
        let Some((_, of)) = self.element_keys.iter().find(|(key, _)| *key == term) else {
            return Ok(());
        };
        let what = if is_unset { "unset" } else { "null" };
        refuse(format!("Invalid {what} value for element selection on {of}"))
    }
}
