//! Terms of GROUP BY, typed as selectors are.

use cql_syntax::ast::Selector;
use schema::Table;
use types::CqlType;

use super::{Planned, PlannedSelection, Planner};
use crate::context::PlanContext;
use crate::error::PlanError;
use crate::select::expr::Expr;
use crate::term::Binds;

/// A term of GROUP BY.
pub(in crate::select) struct GroupSelector {
    pub(in crate::select) expr: Expr,
    pub(in crate::select) ty: CqlType,
    /// Full name, when it is a call of a user's aggregate.
    pub(in crate::select) aggregate: Option<String>,
}

/// Types a term of GROUP BY. Its terms are added to those of the selection.
pub(in crate::select) fn plan_group_selector(
    selector: &Selector,
    selection: &mut PlannedSelection,
    table: &Table,
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<GroupSelector, PlanError> {
    let aggregates = selection.aggregates.len();
    let plan = std::mem::take(selection);
    let mut planner = Planner { table, cx, plan, in_aggregate: false, first_column: None };
    let planned = planner.selector(selector, None, binds);
    *selection = planner.plan;
    // The caller rejects an aggregate in the expression; none is computed.
    selection.aggregates.truncate(aggregates);
    let Planned { expr, ty, name } = planned?;
    let is_aggregate = matches!(expr, Expr::Aggregate(_));
    let full_name = name.split('(').next().unwrap_or_default().to_owned();
    Ok(GroupSelector { expr, ty, aggregate: is_aggregate.then_some(full_name) })
}
