//! GROUP BY: the rows that form one group.
//!
//! Owns: the rules of its columns and of its functions (`floor(at, 1h)`). Never: rows.
//!
//! Source: `SelectStatement.getAggregationSpecFactory`, `GroupMaker`, `Selector.validateForGroupBy`.

use std::sync::Arc;

use cql_syntax::ast::{self, Selector};
use schema::{Column, ColumnKind, Table};
use types::Comparator;

use super::expr::Expr;
use super::relations::existing_column;
use super::restrictions::Restrictions;
use super::selection::{PlannedSelection, plan_group_selector, refuse, selectors_columns};
use crate::context::PlanContext;
use crate::error::PlanError;
use crate::functions::{self, NativeFunction};
use crate::term::Binds;

const ORDER: &str = "Group by currently only support groups of columns following their declared \
                     order in the PRIMARY KEY";
const ONLY: &str =
    "Only column names and monotonic scalar functions are supported in the GROUP BY clause.";

/// A function of the last clustering column of a group: rows are one group while it gives the same.
#[derive(Clone, Debug)]
pub struct GroupFunction {
    expr: Expr,
    order: Comparator,
    /// Error if the function may not group; reported at each execution, as in Cassandra.
    wrong: Option<PlanError>,
}

impl GroupFunction {
    /// Checks that the function may group.
    pub(crate) fn check(&self) -> Result<(), PlanError> {
        self.wrong.clone().map_or(Ok(()), Err)
    }

    /// Returns the function as an expression.
    pub fn expr(&self) -> &Expr {
        &self.expr
    }

    /// Returns true if two of its results are of one group.
    pub fn is_same(&self, a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
        match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => self.order.compare(a, b).is_eq(),
            _ => false,
        }
    }
}

/// How many clustering columns groups share, and the function of the last of them. Terms of the
/// function are added to those of the selection.
pub(super) fn plan_groups(
    select: &ast::Select,
    restrictions: &Restrictions,
    selection: &mut PlannedSelection,
    table: &Table,
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<(usize, Option<GroupFunction>), PlanError> {
    let keys = table.partition_key_count;
    let primary = keys.saturating_add(table.clustering_count);
    let mut next: usize = 0;
    let mut function = None;
    for selector in &select.group_by {
        let index = match selector {
            Selector::Column(name) => {
                let (index, column) = existing_column(table, name)?;
                group_column(column, index < primary, function.is_some())?;
                index
            }
            selector => {
                let (index, planned) = plan_function(selector, selection, table, cx, binds)?;
                // The last of several functions counts, as in Cassandra.
                function = Some(planned);
                index
            }
        };
        loop {
            if next >= primary {
                return Err(PlanError::invalid(ORDER));
            }
            let here = next;
            next = next.saturating_add(1);
            if here == index {
                break;
            }
            if !restrictions.is_eq(here) {
                return Err(PlanError::invalid(ORDER));
            }
        }
    }
    if next < keys {
        return Err(PlanError::invalid(
            "Group by is not supported on only a part of the partition key",
        ));
    }
    let prefix = next.saturating_sub(keys);
    if prefix > 0 && select.distinct {
        return Err(PlanError::invalid(
            "Grouping on clustering columns is not allowed for SELECT DISTINCT queries",
        ));
    }
    Ok((prefix, function))
}

fn group_column(column: &Column, is_key: bool, behind_function: bool) -> Result<(), PlanError> {
    if !is_key {
        return refuse(format!(
            "Group by is currently only supported on the columns of the PRIMARY KEY, got {}",
            column.name
        ));
    }
    if behind_function {
        return Err(PlanError::invalid(
            "Functions are only supported on the last element of the GROUP BY clause",
        ));
    }
    Ok(())
}

/// The column of a function in GROUP BY, and the function.
fn plan_function(
    selector: &Selector,
    selection: &mut PlannedSelection,
    table: &Table,
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<(usize, GroupFunction), PlanError> {
    if let Some(aggregate) = native_aggregate(selector) {
        return no_aggregates(&format!("system.{aggregate}"));
    }
    let is_call = matches!(
        selector,
        Selector::FunctionCall { .. } | Selector::Binary { .. } | Selector::Negate(..)
    );
    // Casts and other terms fail in Cassandra 5.0.9 with a ClassCastException.
    if !is_call {
        return Err(PlanError::invalid(ONLY));
    }
    let group = plan_group_selector(selector, selection, table, cx, binds)?;
    if let Some(aggregate) = group.aggregate {
        return no_aggregates(&aggregate);
    }
    let columns = selectors_columns(selector, table)?;
    let found = columns.iter().filter_map(|index| Some((*index, table.columns.get(*index)?)));
    let found: Vec<(usize, &Column)> = found.collect();
    let [(index, column)] = found.as_slice() else {
        if found.is_empty() {
            return Err(PlanError::invalid(
                "GROUP BY functions must have one clustering column name as parameter",
            ));
        }
        let names = found.iter().map(|(_, c)| types::name::quote_identifier(&c.name));
        return refuse(format!(
            "GROUP BY functions accept only one clustering column as parameter, got: {}",
            names.collect::<Vec<_>>().join(",")
        ));
    };
    if !matches!(column.kind, ColumnKind::Clustering { .. }) {
        return refuse(format!(
            "Group by functions are only supported on clustering columns, got {}",
            column.name
        ));
    }
    let order = Comparator::for_type(&group.ty);
    let wrong = check_monotonic(&group.expr).err();
    Ok((*index, GroupFunction { expr: group.expr, order, wrong }))
}

fn no_aggregates<T>(name: &str) -> Result<T, PlanError> {
    refuse(format!("Aggregate functions are not supported within the GROUP BY clause, got: {name}"))
}

fn native_aggregate(selector: &Selector) -> Option<Arc<str>> {
    match selector {
        Selector::CountRows(_) => Some(Arc::from("count_rows")),
        Selector::FunctionCall { name, args, .. } if functions::is_aggregate(name) => {
            // Cassandra takes `count(1)` for `count(*)`.
            Some(match (name.name.text.as_str(), args.as_slice()) {
                ("count", [Selector::Literal(_)]) => Arc::from("count_rows"),
                (name, _) => Arc::from(name),
            })
        }
        _ => None,
    }
}

/// A value that does not depend on a row. Source: `Selector.isTerminal`.
fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Term(_) | Expr::Null => true,
        Expr::Call(function, args) => {
            function.pure && !args.is_empty() && args.iter().all(is_constant)
        }
        _ => false,
    }
}

/// Refuses what could give one value for rows that do not lie together.
fn check_monotonic(expr: &Expr) -> Result<(), PlanError> {
    let (function, args) = match expr {
        Expr::Column(_) | Expr::Masked(..) => return Ok(()),
        Expr::Call(function, args) => (function, args),
        _ => return Err(PlanError::invalid(ONLY)),
    };
    let constants: Vec<bool> = args.iter().map(is_constant).collect();
    if !is_monotonic(function, &constants) {
        return refuse(format!(
            "Only monotonic functions are supported in the GROUP BY clause. Got: {} ",
            function.partial_signature(&constants)
        ));
    }
    args.iter().filter(|arg| !is_constant(arg)).try_for_each(check_monotonic)
}

/// Source: `TimeFcts`: conversions of times, and `floor` of a time with all else constant.
fn is_monotonic(function: &NativeFunction, constants: &[bool]) -> bool {
    if function.callee.is_some() {
        return false;
    }
    match &*function.name {
        "to_date" | "todate" | "to_timestamp" | "totimestamp" | "to_unix_timestamp"
        | "tounixtimestamp" => true,
        "floor" => {
            constants.first() == Some(&false) && constants.iter().skip(1).all(|constant| *constant)
        }
        _ => false,
    }
}
