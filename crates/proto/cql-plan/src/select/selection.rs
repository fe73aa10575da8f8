//! The selection of a SELECT: names, types and expressions of its result columns.
//!
//! Owns: typing of selectors with Cassandra's words and column names: of columns and constants here, of functions
//! and aggregates in [`calls`], of elements and fields in [`parts`], of collections in [`literals`]. Never: rows
//! ([`super::expr`]).
//!
//! Source: `cql3.selection.Selectable` and its parts.

mod calls;
mod columns;
mod grouping;
mod literals;
mod parts;

use std::sync::Arc;

use cql_syntax::ast::{SelectItem, Selection, Selector, Term};
use schema::Table;
use types::CqlType;
use types::aggregate::Aggregate;

use super::arguments::{is_untyped, text_of_selector};
use super::expr::Expr;
use super::relations::existing_column;
use crate::context::PlanContext;
use crate::error::PlanError;
use crate::functions::user::CallableAggregate;
use crate::functions::{self, NativeFunction};
use crate::term::Binds;
use crate::term::{PlannedTerm, Receiver, operator, plan_term};

pub(crate) use columns::selected_columns;
pub(super) use columns::selectors_columns;
pub(super) use grouping::plan_group_selector;

/// Function of an aggregate.
#[derive(Clone, Debug)]
pub enum AggregateFunction {
    /// A native one, before the first row.
    Native(Aggregate),
    /// A user's.
    User(Box<CallableAggregate>),
}

impl AggregateFunction {
    /// Not a user's.
    pub fn is_native(&self) -> bool {
        matches!(self, AggregateFunction::Native(_))
    }

    /// Returns true if partial results over disjoint rows can be merged: see
    /// [`Aggregate::can_be_merged`]. Users' aggregates count as not mergeable.
    pub fn can_be_merged(&self) -> bool {
        match self {
            AggregateFunction::Native(aggregate) => aggregate.can_be_merged(),
            AggregateFunction::User(_) => false,
        }
    }
}

/// An aggregate over the rows of a group.
#[derive(Clone, Debug)]
pub struct AggregateSpec {
    /// The aggregate.
    pub function: AggregateFunction,
    /// Its arguments; a native one without counts rows.
    pub arguments: Vec<Expr>,
}

/// A call of a function with constants.
#[derive(Clone, Debug)]
pub struct ConstantCall {
    /// The function.
    pub function: NativeFunction,
    /// By number of the term; `None` is null.
    pub args: Vec<Option<usize>>,
}

/// One result column.
#[derive(Clone, Debug)]
pub struct Output {
    /// Name or alias.
    pub name: Arc<str>,
    /// Type of its values.
    pub ty: CqlType,
    /// The expression.
    pub expr: Expr,
}

/// A typed selection.
#[derive(Clone, Debug, Default)]
pub struct PlannedSelection {
    /// The result columns.
    pub outputs: Vec<Output>,
    /// Aggregates that the outputs name by number.
    pub aggregates: Vec<AggregateSpec>,
    /// Expressions taken from the first row of a group.
    pub first_row: Vec<Expr>,
    /// Terms that are bound once per execution.
    pub terms: Vec<PlannedTerm>,
    /// Those of them that are keys of elements, with the name of the collection: they must have
    /// values.
    pub element_keys: Vec<(usize, String)>,
    /// Those of them that are ends of slices, with the name of the collection: they are not null.
    pub slice_keys: Vec<(usize, String)>,
    /// Those of them that are arguments of functions, with the function's name: they must be set.
    pub call_terms: Vec<(usize, Arc<str>)>,
    /// Calls of constants, and calls that check their constants. Their errors are reported even if
    /// no rows exist.
    pub constant_calls: Vec<ConstantCall>,
    /// Rows are grouped, or some output has an aggregate.
    pub is_aggregate: bool,
}

/// Types a selection.
pub(crate) fn plan_selection(
    selection: &Selection,
    table: &Table,
    grouped: bool,
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<PlannedSelection, PlanError> {
    let mut planner = Planner {
        table,
        cx,
        plan: PlannedSelection::default(),
        in_aggregate: false,
        first_column: None,
    };
    match selection {
        Selection::Wildcard => {
            for (_, column) in table.visible() {
                planner.plan.outputs.push(Output {
                    name: column.name.clone(),
                    ty: column.ty.clone(),
                    expr: Expr::of_column(table, column, cx)?,
                });
            }
        }
        Selection::Items(items) => {
            planner.plan.outputs.reserve_exact(items.len());
            for item in items {
                let output = planner.item(item, binds)?;
                planner.plan.outputs.push(output);
            }
        }
    }
    let mut plan = planner.plan;
    plan.is_aggregate = grouped || !plan.aggregates.is_empty();
    if plan.is_aggregate {
        let outputs = std::mem::take(&mut plan.outputs);
        for output in outputs {
            let expr = output.expr.lift(&mut plan.first_row);
            plan.outputs.push(Output { expr, ..output });
        }
    }
    Ok(plan)
}

/// A typed selector.
pub(super) struct Planned {
    pub(super) expr: Expr,
    pub(super) ty: CqlType,
    pub(super) name: String,
}

pub(super) struct Planner<'a, 'c> {
    pub(super) table: &'a Table,
    cx: &'a PlanContext<'c>,
    plan: PlannedSelection,
    in_aggregate: bool,
    /// The first column that was named.
    first_column: Option<Arc<str>>,
}

pub(super) fn refuse<T>(text: String) -> Result<T, PlanError> {
    Err(PlanError::invalid(text))
}

impl Planner<'_, '_> {
    fn item(&mut self, item: &SelectItem, binds: &mut Binds) -> Result<Output, PlanError> {
        if let (Selector::Column(name), None) = (&item.selector, &item.alias) {
            // The most frequent kind has its name already.
            let (_, column) = existing_column(self.table, name)?;
            self.first_column.get_or_insert_with(|| column.name.clone());
            let expr = Expr::of_column(self.table, column, self.cx)?;
            return Ok(Output { name: column.name.clone(), ty: column.ty.clone(), expr });
        }
        if let Selector::Tuple(items, _) = &item.selector
            && items.len() == 1
        {
            return Err(cannot_infer(&item.selector));
        }
        let planned = self.selector(&item.selector, None, binds)?;
        let name = match &item.alias {
            Some(alias) => Arc::from(alias.text.as_str()),
            None => Arc::from(planned.name),
        };
        Ok(Output { name, ty: planned.ty, expr: planned.expr })
    }

    fn receiver(&self, name: impl Into<Arc<str>>, ty: CqlType) -> Receiver<'_> {
        Receiver { keyspace: &self.table.keyspace, table: &self.table.name, name: name.into(), ty }
    }

    fn add_term(&mut self, term: PlannedTerm) -> usize {
        self.plan.terms.push(term);
        self.plan.terms.len() - 1
    }

    pub(super) fn selector(
        &mut self,
        selector: &Selector,
        expected: Option<&CqlType>,
        binds: &mut Binds,
    ) -> Result<Planned, PlanError> {
        let no_type = || cannot_infer(selector);
        match selector {
            Selector::Column(name) => {
                let (_, column) = existing_column(self.table, name)?;
                self.first_column.get_or_insert_with(|| column.name.clone());
                Ok(Planned {
                    expr: Expr::of_column(self.table, column, self.cx)?,
                    ty: column.ty.clone(),
                    name: column.name.to_string(),
                })
            }
            Selector::Literal(literal) => {
                let ty = expected.ok_or_else(no_type)?.clone();
                self.term(&Term::Literal(literal.clone()), ty, selector, binds)
            }
            Selector::Bind(marker) => {
                let ty = expected.ok_or_else(no_type)?.clone();
                self.term(&Term::Bind(marker.clone()), ty, selector, binds)
            }
            Selector::Null(_) => {
                let ty = expected.ok_or_else(no_type)?.clone();
                Ok(Planned { expr: Expr::Null, ty, name: "NULL".to_owned() })
            }
            Selector::CountRows(_) => self.count_rows(),
            Selector::Metadata { kind, target, .. } => self.metadata(*kind, target, binds),
            Selector::Cast { selector, ty, .. } => self.cast(selector, *ty, expected, binds),
            Selector::FunctionCall { name, args, .. } => self.function(name, args, expected, binds),
            Selector::Field { receiver, field } => self.field(receiver, &field.text, binds),
            Selector::Element { receiver, key } => self.element(receiver, key, binds),
            Selector::Slice { receiver, from, to } => self.slice(receiver, from, to, binds),
            Selector::TypeHint { ty, selector, .. } => self.hinted(ty, selector, binds),
            Selector::Tuple(items, _) => {
                let single = items.len() == 1;
                if expected.is_none() && !single && items.iter().any(is_untyped) {
                    return Err(no_type());
                }
                self.tuple(items, expected, binds)
            }
            Selector::List(items, _) => self.list(items, expected, binds)?.ok_or_else(no_type),
            Selector::Set(items, _) => self.set(items, expected, binds)?.ok_or_else(no_type),
            Selector::MapOrUdt(entries, _) => {
                self.map_or_udt(entries, expected, binds)?.ok_or_else(no_type)
            }
            Selector::Negate(inner, _) => self
                .call(std::slice::from_ref(&**inner), binds, |args, _| {
                    functions::resolve_negate(args, expected).map(Some)
                })?
                .ok_or_else(no_type),
            Selector::Binary { op, left, right } => {
                let sides = [(**left).clone(), (**right).clone()];
                self.call(&sides, binds, |args, _| {
                    functions::resolve_operator(operator(*op), args, expected).map(Some)
                })?
                .ok_or_else(no_type)
            }
        }
    }

    fn term(
        &mut self,
        term: &Term,
        ty: CqlType,
        selector: &Selector,
        binds: &mut Binds,
    ) -> Result<Planned, PlanError> {
        let planned = plan_term(term, &self.receiver("[selection]", ty.clone()), self.cx, binds)?;
        Ok(Planned {
            expr: Expr::Term(self.add_term(planned)),
            ty,
            name: text_of_selector(selector),
        })
    }
}

fn cannot_infer(selector: &Selector) -> PlanError {
    PlanError::invalid(format!(
        "Cannot infer type for term {} in selection clause (try using a cast to force a type)",
        text_of_selector(selector)
    ))
}
