//! Errors of a selection that Cassandra reports before or after other errors of the statement.

use std::sync::Arc;

use cql_syntax::ast::{self, FunctionName, Selection, Statement};
use schema::{ColumnKind, Table};
use types::CqlType;

use super::selection::{PlannedSelection, plan_selection, refuse, selected_columns};
use crate::context::PlanContext;
use crate::error::{PlanError, PlanErrorKind};
use crate::functions;
use crate::functions::EvalEnv;
use crate::term::Binds;

/// Returns the error that Cassandra reports before it checks the WHERE clause, if any. For a table
/// with static columns it first checks if only these are selected. For that it resolves columns and
/// functions, no further than it must. Source: `SelectStatement.selectOnlyStaticColumns`,
/// `RawSelector.toSelectables` (a lazy list).
#[cold]
pub(super) fn earlier_error(
    select: &ast::Select,
    statement: &Statement,
    table: &Arc<Table>,
    cx: &PlanContext<'_>,
) -> Option<PlanError> {
    let Selection::Items(items) = &select.selection else { return None };
    if table.static_count == 0 || table.is_static_compact() {
        return None;
    }
    let kind = |at: &usize| table.columns.get(*at).map(|column| column.kind);
    let is_static = |at: &usize| kind(at) == Some(ColumnKind::Static);
    let is_other =
        |at: &usize| !matches!(kind(at), Some(ColumnKind::Static | ColumnKind::PartitionKey(_)));
    // Returns true if an item selects such a column.
    let any = |wanted: &dyn Fn(&usize) -> bool| -> Result<bool, PlanError> {
        for item in items {
            let alone = Selection::Items(vec![item.clone()]);
            let columns = selected_columns(&alone, table)?;
            let mut binds = Binds::new(&statement.bind_markers);
            match plan_selection(&alone, table, false, cx, &mut binds) {
                Err(error) if error.kind == PlanErrorKind::FunctionCall => return Err(error),
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

impl PlannedSelection {
    /// Refuses a term that has no value where an element's key is wanted, is null where a slice ends,
    /// or unset where a function takes it. Source: `ElementsSelector.ElementSelector`, `SliceSelector`.
    #[cold]
    pub(super) fn check_key(&self, term: usize, is_unset: bool) -> Result<(), PlanError> {
        if is_unset && let Some((_, of)) = self.call_terms.iter().find(|(call, _)| *call == term) {
            return refuse(format!("Invalid unset value for argument in call to function {of}"));
        }
        if let Some((_, of)) = self.slice_keys.iter().find(|(key, _)| *key == term)
            && !is_unset
        {
            return refuse(format!("Invalid null value for slice selection on {of}"));
        }
        let Some((_, of)) = self.element_keys.iter().find(|(key, _)| *key == term) else {
            return Ok(());
        };
        let what = if is_unset { "unset" } else { "null" };
        refuse(format!("Invalid {what} value for element selection on {of}"))
    }

    /// Evaluates calls of constants, which fail also where there is no row. Source:
    /// `ScalarFunction.partialApplication`.
    pub(super) fn check_constant_calls(
        &self,
        terms: &[Option<Vec<u8>>],
        env: &EvalEnv<'_>,
    ) -> Result<(), PlanError> {
        for call in &self.constant_calls {
            let term = |index: &Option<usize>| terms.get((*index)?)?.as_deref();
            let args: Vec<Option<&[u8]>> = call.args.iter().map(term).collect();
            call.function.eval(&args, env)?;
        }
        Ok(())
    }
}

/// The error of a sum or average of a value that is no number.
pub(super) fn no_signature(name: &FunctionName, ty: &CqlType) -> String {
    const KNOWN: [&str; 9] =
        ["float", "smallint", "bigint", "tinyint", "varint", "decimal", "int", "double", "counter"];
    let plain = &name.name.text;
    let list = |types: &[&str]| -> Vec<String> {
        types.iter().map(|ty| format!("system.{plain} : ({ty}) -> {ty}")).collect()
    };
    if *ty == CqlType::Timestamp {
        // Its values are 64-bit integers, and so fit two of the functions.
        return format!(
            "Ambiguous call to function {} (can be matched by following signatures: {}): use type \
             casts to disambiguate",
            functions::plain_name(name),
            list(&["bigint", "varint"]).join(", ")
        );
    }
    let known = list(&KNOWN);
    format!(
        "Invalid call to function {}, none of its type signatures match (known type signatures: \
         {})",
        functions::plain_name(name),
        known.join(", ")
    )
}
