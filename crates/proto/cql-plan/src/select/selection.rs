//! The selection of a SELECT: names, types and expressions of its result columns.
//!
//! Owns: typing of selectors with Cassandra's words and column names. Never: rows
//! ([`super::expr`]).
//!
//! Source: `cql3.selection.Selectable` and its parts.

mod grouping;

use std::sync::Arc;

use cql_syntax::ast::{FunctionName, RawType, SelectItem, Selection, Selector, Term};
use schema::Table;
use types::aggregate::{Aggregate, AggregateKind};
use types::{Comparator, CqlType};

use super::arguments::{SelectorArgument, constant_term, is_untyped, text_of_selector};
use super::error_order::no_signature;
use super::expr::Expr;
use super::relations::existing_column;
use crate::context::PlanContext;
use crate::error::PlanError;
use crate::functions::masking;
use crate::functions::user::{CallableAggregate, Callee};
use crate::functions::{self, Argument, NativeFunction};
use crate::term::Binds;
use crate::term::{
    PlannedTerm, Receiver, literal_type, operator, plan_term, resolve_hint, test_assignment,
    text_of,
};

pub(super) use grouping::{plan_group_selector, selectors_columns};

/// What an aggregate computes.
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

    /// Whether parts of it over some of the rows each can be merged: see [`Aggregate::can_be_merged`]. Of users'
    /// aggregates that is unknown.
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
    /// What it computes.
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
    /// Those of them that are keys of elements, with what the element is of: they must have values.
    pub element_keys: Vec<(usize, String)>,
    /// Those of them that are ends of slices, with what the slice is of: they are not null.
    pub slice_keys: Vec<(usize, String)>,
    /// Those of them that are arguments of functions, with the function's name: they must be set.
    pub call_terms: Vec<(usize, Arc<str>)>,
    /// Calls of constants, and those that look at their constants: what is wrong with them is told
    /// whether or not there are rows.
    pub constant_calls: Vec<ConstantCall>,
    /// Rows are grouped, or some output has an aggregate.
    pub is_aggregate: bool,
}

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

/// Expressions and names of elements, and their common type.
type ElementsPlanned = (Vec<Expr>, Vec<String>, Option<CqlType>);

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

    /// Whether constants that stand behind a type in parentheses are of that type. How many a vector
    /// has is told in other words.
    fn constants_fit(&self, selector: &Selector, ty: &CqlType) -> bool {
        if let (Selector::List(items, _), CqlType::Vector { element, .. }) = (selector, ty) {
            return items.iter().all(|item| self.constants_fit(item, element));
        }
        let Some(term) = constant_term(selector) else { return true };
        test_assignment(&term, &self.receiver("[selection]", ty.clone()), self.cx).is_assignable()
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
            Selector::Cast { selector, ty, .. } => {
                let to = crate::raw_type::native(*ty);
                if is_untyped(selector) {
                    return Err(cannot_infer(selector));
                }
                let mut typed = self.typed(std::slice::from_ref(&**selector), binds)?;
                // A cast to the type it has is the value itself, name included.
                if let [SelectorArgument { planned, .. }] = typed.as_mut_slice()
                    && planned.as_ref().is_some_and(|p| p.ty == to)
                    && let Some(planned) = planned.take()
                {
                    return Ok(planned);
                }
                let found = self.call_typed(typed, binds, |args, _| {
                    functions::resolve_cast(&to, args, expected)
                })?;
                found.ok_or_else(|| {
                    // Cassandra names the first column that is selected, whichever is cast.
                    let first = self.first_column.as_deref().unwrap_or_default();
                    PlanError::invalid(format!("{first} cannot be cast to {}", to.to_cql_name()))
                })
            }
            Selector::FunctionCall { name, args, .. } => self.function(name, args, expected, binds),
            Selector::Field { receiver, field } => {
                let receiver = self.selector(receiver, None, binds)?;
                let (index, ty, count) = field_of(&receiver, &field.text)?;
                Ok(Planned {
                    expr: Expr::Field(Box::new(receiver.expr), index, count),
                    ty,
                    name: format!("{}.{}", receiver.name, field.text),
                })
            }
            Selector::Element { receiver, key } => {
                let receiver = self.selector(receiver, None, binds)?;
                let (key_ty, ty, map) = keyed(&receiver, "Element")?;
                let key_index = self.key_term(&receiver, key, &key_ty, map, binds)?;
                self.plan.element_keys.push((key_index, receiver.name.clone()));
                Ok(Planned {
                    name: format!("{}[{}]", receiver.name, text_of(key)),
                    expr: Expr::Element {
                        receiver: Box::new(receiver.expr),
                        key: key_index,
                        order: Comparator::for_type(&key_ty),
                        map,
                    },
                    ty,
                })
            }
            Selector::Slice { receiver, from, to } => {
                let receiver = self.selector(receiver, None, binds)?;
                let (key_ty, _, map) = keyed(&receiver, "Slice")?;
                let mut bound = |planner: &mut Self, term: &Option<Box<Term>>| {
                    term.as_ref()
                        .map(|t| planner.key_term(&receiver, t, &key_ty, map, binds))
                        .transpose()
                };
                let (from_index, to_index) = (bound(self, from)?, bound(self, to)?);
                for index in from_index.iter().chain(&to_index) {
                    self.plan.slice_keys.push((*index, receiver.name.clone()));
                }
                let text = |t: &Option<Box<Term>>| t.as_deref().map(text_of).unwrap_or_default();
                Ok(Planned {
                    name: format!("{}[{}..{}]", receiver.name, text(from), text(to)),
                    expr: Expr::Slice {
                        from: from_index,
                        to: to_index,
                        order: Comparator::for_type(&key_ty),
                        map,
                        multi_cell: receiver.ty.is_multi_cell(),
                        receiver: Box::new(receiver.expr),
                    },
                    ty: receiver.ty,
                })
            }
            Selector::TypeHint { ty: raw, selector: inner, .. } => {
                let ty = resolve_hint(raw, &self.table.keyspace, self.cx)?;
                let hint = hint_text(raw, &self.table.keyspace);
                let wrong = |text: &str| {
                    // Collections of selectors are frozen.
                    let of = match ty.to_cql_name() {
                        name if ty.is_collection() && ty.is_multi_cell() => {
                            format!("frozen<{name}>")
                        }
                        name => name,
                    };
                    refuse(format!(
                        "Cannot assign value ({hint}){text} to ({hint}){text} of type {of}"
                    ))
                };
                if !self.constants_fit(inner, &ty) {
                    return wrong(&text_of_selector(inner));
                }
                let planned = self.selector(inner, Some(&ty), binds)?;
                if !planned.ty.test_assignment(&ty).is_assignable() {
                    return wrong(&planned.name);
                }
                Ok(Planned { name: format!("({hint}){}", planned.name), expr: planned.expr, ty })
            }
            Selector::Tuple(items, _) => {
                let single = items.len() == 1;
                if expected.is_none() && !single && items.iter().any(is_untyped) {
                    return Err(no_type());
                }
                self.tuple(items, expected, binds)
            }
            Selector::List(items, _) => {
                if let Some(CqlType::Vector { element, dimension }) = expected {
                    let count = u32::try_from(items.len()).unwrap_or(u32::MAX);
                    if count != *dimension {
                        return refuse(format!(
                            "Unable to create a vector selector of type {} from {count} elements",
                            CqlType::vector((**element).clone(), *dimension).to_cql_name()
                        ));
                    }
                    let (exprs, names, _) = self.items(items, Some(element), binds)?;
                    return Ok(Planned {
                        expr: Expr::Vector(exprs, (**element).clone(), *dimension),
                        ty: CqlType::vector((**element).clone(), *dimension),
                        name: format!("[{}]", names.join(", ")),
                    });
                }
                let wanted = match expected {
                    Some(CqlType::List { element, .. }) => Some(&**element),
                    _ => None,
                };
                let (exprs, names, ty) = self.items(items, wanted, binds)?;
                let ty = ty.ok_or_else(no_type)?;
                Ok(Planned {
                    expr: Expr::List(exprs),
                    ty: CqlType::list(ty, is_frozen(expected)),
                    name: format!("[{}]", names.join(", ")),
                })
            }
            Selector::Set(items, _) => {
                if let (Some(CqlType::Map { key, value, .. }), true) = (expected, items.is_empty())
                {
                    return Ok(Planned {
                        expr: Expr::Map(Vec::new(), Comparator::for_type(key)),
                        ty: CqlType::map((**key).clone(), (**value).clone(), is_frozen(expected)),
                        name: "{}".to_owned(),
                    });
                }
                let wanted = match expected {
                    Some(CqlType::Set { element, .. }) => Some(&**element),
                    _ => None,
                };
                let (exprs, names, ty) = self.items(items, wanted, binds)?;
                let ty = ty.ok_or_else(no_type)?;
                Ok(Planned {
                    expr: Expr::Set(exprs, Comparator::for_type(&ty)),
                    ty: CqlType::set(ty, is_frozen(expected)),
                    name: format!("{{{}}}", names.join(", ")),
                })
            }
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

    fn key_term(
        &mut self,
        receiver: &Planned,
        key: &Term,
        ty: &CqlType,
        map: bool,
        binds: &mut Binds,
    ) -> Result<usize, PlanError> {
        let what = if map { "key" } else { "value" };
        let target = self.receiver(format!("{what}({})", receiver.name), ty.clone());
        let planned = plan_term(key, &target, self.cx, binds)?;
        Ok(self.add_term(planned))
    }

    /// Expressions, names and the common type of elements.
    fn items(
        &mut self,
        items: &[Selector],
        expected: Option<&CqlType>,
        binds: &mut Binds,
    ) -> Result<ElementsPlanned, PlanError> {
        // Each element is planned once: first those that have a type of their own, of which the
        // first gives the type of all when none is expected, then the others.
        let mut ty = expected.cloned();
        let mut planned: Vec<Option<Planned>> = Vec::with_capacity(items.len());
        for item in items {
            let own = match is_untyped(item) {
                true => None,
                false => Some(self.selector(item, expected, binds)?),
            };
            if let (None, Some(own)) = (&ty, &own) {
                ty = Some(own.ty.clone());
            }
            planned.push(own);
        }
        if ty.is_none() {
            // Of literals alone: it is the collection whose type cannot be told.
            return Ok((Vec::new(), Vec::new(), None));
        }
        let (mut exprs, mut names) = (Vec::new(), Vec::new());
        for (item, own) in items.iter().zip(planned) {
            let planned = match own {
                Some(planned) => planned,
                None => self.selector(item, ty.as_ref(), binds)?,
            };
            if let Some(ty) = &ty
                && !planned.ty.test_assignment(ty).is_assignable()
            {
                return Err(PlanError::function_call(format!(
                    "Type error: {} cannot be passed as element of type {}",
                    planned.name,
                    ty.to_cql_name()
                )));
            }
            exprs.push(planned.expr);
            names.push(planned.name);
        }
        Ok((exprs, names, ty))
    }

    fn tuple(
        &mut self,
        items: &[Selector],
        expected: Option<&CqlType>,
        binds: &mut Binds,
    ) -> Result<Planned, PlanError> {
        let fields: Option<&[CqlType]> = match expected {
            Some(CqlType::Tuple(fields)) => Some(fields),
            _ => None,
        };
        if let ([inner], None) = (items, fields) {
            let planned = self.selector(inner, expected, binds)?;
            return Ok(Planned { name: format!("({})", planned.name), ..planned });
        }
        let (mut exprs, mut names, mut types) = (Vec::new(), Vec::new(), Vec::new());
        for (index, item) in items.iter().enumerate() {
            let planned = self.selector(item, fields.and_then(|f| f.get(index)), binds)?;
            exprs.push(planned.expr);
            names.push(planned.name);
            types.push(planned.ty);
        }
        Ok(Planned {
            expr: Expr::Tuple(exprs),
            ty: CqlType::tuple(types),
            name: format!("({})", names.join(", ")),
        })
    }

    fn map_or_udt(
        &mut self,
        entries: &[(Selector, Selector)],
        expected: Option<&CqlType>,
        binds: &mut Binds,
    ) -> Result<Option<Planned>, PlanError> {
        if let Some(ty @ CqlType::Udt(udt)) = expected {
            let mut fields: Vec<Expr> = udt.fields.iter().map(|_| Expr::Null).collect();
            let mut names = Vec::new();
            for (key, value) in entries {
                let Selector::Column(field) = key else {
                    return refuse(format!(
                        "{} is not a valid field identifier of type {} ",
                        text_of_selector(key),
                        udt.name
                    ));
                };
                let Some(index) = udt.field_position(&field.text) else {
                    return refuse(format!(
                        "Unknown field '{}' in value of user defined type {}",
                        field.text, udt.name
                    ));
                };
                let ty = udt.fields.get(index).map(|(_, ty)| ty);
                let planned = self.selector(value, ty, binds)?;
                names.push(format!("{}: {}", field.text, planned.name));
                if let Some(slot) = fields.get_mut(index) {
                    *slot = planned.expr;
                }
            }
            return Ok(Some(Planned {
                expr: Expr::Tuple(fields),
                ty: ty.clone(),
                name: format!("{{{}}}", names.join(", ")),
            }));
        }
        // Of itself it has no type, whatever is in it.
        let Some(CqlType::Map { key, value, .. }) = expected else { return Ok(None) };
        let (key_ty, value_ty) = (Some(&**key), Some(&**value));
        let (keys, values): (Vec<Selector>, Vec<Selector>) = entries.iter().cloned().unzip();
        let (keys, key_names, key_ty) = self.items(&keys, key_ty, binds)?;
        let (values, value_names, value_ty) = self.items(&values, value_ty, binds)?;
        let (Some(key_ty), Some(value_ty)) = (key_ty, value_ty) else { return Ok(None) };
        let names: Vec<String> =
            key_names.iter().zip(&value_names).map(|(k, v)| format!("{k}: {v}")).collect();
        Ok(Some(Planned {
            expr: Expr::Map(keys.into_iter().zip(values).collect(), Comparator::for_type(&key_ty)),
            ty: CqlType::map(key_ty, value_ty, is_frozen(expected)),
            name: format!("{{{}}}", names.join(", ")),
        }))
    }

    fn aggregate(
        &mut self,
        kind: AggregateKind,
        ty: &CqlType,
        argument: Option<Expr>,
        name: String,
    ) -> Result<Planned, PlanError> {
        if self.in_aggregate {
            return refuse(
                "aggregate functions cannot be used as arguments of aggregate functions".to_owned(),
            );
        }
        let start = Aggregate::new(kind, ty).map_err(crate::term::invalid_value)?;
        let ty = start.result_type();
        let (function, arguments) =
            (AggregateFunction::Native(start), argument.into_iter().collect());
        self.plan.aggregates.push(AggregateSpec { function, arguments });
        Ok(Planned { expr: Expr::Aggregate(self.plan.aggregates.len() - 1), ty, name })
    }

    fn count_rows(&mut self) -> Result<Planned, PlanError> {
        self.aggregate(AggregateKind::Count, &CqlType::Bigint, None, "count".to_owned())
    }

    fn function(
        &mut self,
        name: &FunctionName,
        args: &[Selector],
        expected: Option<&CqlType>,
        binds: &mut Binds,
    ) -> Result<Planned, PlanError> {
        if functions::is_aggregate(name) {
            return self.aggregate_call(name, args, binds);
        }
        let (keyspace, cx) = (self.table.keyspace.clone(), self.cx);
        let found = self.call(args, binds, |args, table| {
            functions::resolve(name, args, expected, &cx.call_site(&keyspace, Some(table)))
        })?;
        found.ok_or_else(|| {
            PlanError::function_call(format!("Unknown function '{}'", functions::plain_name(name)))
        })
    }

    fn aggregate_call(
        &mut self,
        name: &FunctionName,
        args: &[Selector],
        binds: &mut Binds,
    ) -> Result<Planned, PlanError> {
        let plain = name.name.text.as_str();
        let kind = match plain {
            "count" => AggregateKind::Count,
            "min" => AggregateKind::Min,
            "max" => AggregateKind::Max,
            "sum" => AggregateKind::Sum,
            _ => AggregateKind::Avg,
        };
        let [arg] = args else {
            return Err(PlanError::function_call(match kind {
                AggregateKind::Count => format!(
                    "Invalid number of arguments in call to function system.count: 1 required but \
                     {} provided",
                    args.len()
                ),
                AggregateKind::Min | AggregateKind::Max => {
                    format!("Invalid number of arguments for function system.{plain}(any)")
                }
                AggregateKind::Sum | AggregateKind::Avg => no_signature(name, &CqlType::Text),
            }));
        };
        // Of any constant it counts rows.
        if let (AggregateKind::Count, Selector::Literal(_)) = (kind, arg) {
            return self.count_rows();
        }
        if self.in_aggregate {
            return refuse(
                "aggregate functions cannot be used as arguments of aggregate functions".to_owned(),
            );
        }
        let literal_ty = match arg {
            Selector::Literal(literal) => Some(literal_type(literal)),
            _ => None,
        };
        self.in_aggregate = true;
        let planned = self.selector(arg, literal_ty.as_ref(), binds);
        self.in_aggregate = false;
        let planned = planned?;
        if matches!(kind, AggregateKind::Sum | AggregateKind::Avg) && !planned.ty.is_numeric() {
            return Err(PlanError::function_call(no_signature(name, &planned.ty)));
        }
        let column = format!("system.{plain}({})", planned.name);
        self.aggregate(kind, &planned.ty, Some(planned.expr), column)
    }

    /// Plans the arguments that have a type of their own, resolves the function by them, plans the
    /// others for its parameters. `None`: there is no such function.
    fn call(
        &mut self,
        args: &[Selector],
        binds: &mut Binds,
        resolve: impl FnOnce(&[&dyn Argument], &Table) -> Result<Option<NativeFunction>, PlanError>,
    ) -> Result<Option<Planned>, PlanError> {
        let typed = self.typed(args, binds)?;
        self.call_typed(typed, binds, resolve)
    }

    /// Plans those arguments that have a type of their own.
    fn typed<'s>(
        &mut self,
        args: &'s [Selector],
        binds: &mut Binds,
    ) -> Result<Vec<SelectorArgument<'s>>, PlanError> {
        let mut typed = Vec::with_capacity(args.len());
        for selector in args {
            let planned = match is_untyped(selector) {
                true => None,
                false => Some(self.selector(selector, None, binds)?),
            };
            typed.push(SelectorArgument { selector, planned });
        }
        Ok(typed)
    }

    fn call_typed(
        &mut self,
        typed: Vec<SelectorArgument<'_>>,
        binds: &mut Binds,
        resolve: impl FnOnce(&[&dyn Argument], &Table) -> Result<Option<NativeFunction>, PlanError>,
    ) -> Result<Option<Planned>, PlanError> {
        let arguments: Vec<&dyn Argument> = typed.iter().map(|a| a as &dyn Argument).collect();
        let Some(function) = resolve(&arguments, self.table)? else { return Ok(None) };
        let (mut exprs, mut names) = (Vec::new(), Vec::new());
        for (index, argument) in typed.into_iter().enumerate() {
            let planned = match argument.planned {
                Some(planned) => planned,
                None => self.selector(argument.selector, function.args.get(index), binds)?,
            };
            exprs.push(planned.expr);
            names.push(planned.name);
        }
        if let Some(Callee::Aggregate(aggregate)) = &function.callee {
            if self.in_aggregate || exprs.iter().any(Expr::has_aggregate) {
                return refuse(
                    "aggregate functions cannot be used as arguments of aggregate functions"
                        .to_owned(),
                );
            }
            let aggregate = AggregateFunction::User(Box::new(aggregate.clone()));
            self.plan.aggregates.push(AggregateSpec { function: aggregate, arguments: exprs });
            return Ok(Some(Planned {
                ty: function.returns.clone(),
                name: function.column_name(&names),
                expr: Expr::Aggregate(self.plan.aggregates.len() - 1),
            }));
        }
        for expr in &exprs {
            if let Expr::Term(index) = expr {
                self.plan.call_terms.push((*index, function.name.clone()));
            }
        }
        self.note_constant_call(&function, &exprs);
        let (ty, name) = (function.returns.clone(), function.column_name(&names));
        let expr = Expr::Call(Box::new(function), exprs);
        Ok(Some(Planned { ty, name, expr }))
    }

    /// Notes a call that is evaluated at each execution for its errors alone: one of constants, or of a function
    /// that checks its constants before it looks at the value, whose other arguments are null then.
    fn note_constant_call(&mut self, function: &NativeFunction, args: &[Expr]) {
        if function.callee.is_some() {
            return;
        }
        let is_constant = |e: &Expr| matches!(e, Expr::Term(_) | Expr::Null);
        let of_constants = !args.is_empty() && args.iter().all(is_constant);
        if of_constants || masking::checks_arguments(function) {
            let term = |e: &Expr| if let Expr::Term(index) = e { Some(*index) } else { None };
            let args = args.iter().map(term).collect();
            self.plan.constant_calls.push(ConstantCall { function: function.clone(), args });
        }
    }
}

fn field_of(receiver: &Planned, field: &str) -> Result<(usize, CqlType, usize), PlanError> {
    let CqlType::Udt(udt) = &receiver.ty else {
        return refuse(format!(
            "Invalid field selection: {} of type {} is not a user type",
            receiver.name,
            receiver.ty.to_cql_name()
        ));
    };
    match udt.field_position(field).and_then(|i| Some((i, udt.fields.get(i)?))) {
        Some((index, (_, ty))) => Ok((index, ty.clone(), udt.fields.len())),
        None => refuse(format!(
            "{} of type {} has no field {field}",
            receiver.name,
            receiver.ty.to_cql_name()
        )),
    }
}

/// Key type, element type and whether it is a map.
fn keyed(receiver: &Planned, what: &str) -> Result<(CqlType, CqlType, bool), PlanError> {
    match &receiver.ty {
        CqlType::Map { key, value, .. } => Ok(((**key).clone(), (**value).clone(), true)),
        CqlType::Set { element, .. } => Ok(((**element).clone(), (**element).clone(), false)),
        CqlType::List { .. } => refuse(format!(
            "{what} selection is only allowed on sets and maps, but {} is a list",
            receiver.name
        )),
        ty if what == "Slice" => refuse(format!(
            "Invalid slice selection: {} of type {} is not a collection",
            receiver.name,
            ty.to_cql_name()
        )),
        ty => refuse(format!(
            "Invalid element selection: {} is of type {} is not a collection",
            receiver.name,
            ty.to_cql_name()
        )),
    }
}

fn cannot_infer(selector: &Selector) -> PlanError {
    PlanError::invalid(format!(
        "Cannot infer type for term {} in selection clause (try using a cast to force a type)",
        text_of_selector(selector)
    ))
}

/// Whether a collection is wanted as one value; what is written out is of that kind then.
fn is_frozen(expected: Option<&CqlType>) -> bool {
    expected.is_some_and(CqlType::is_frozen_collection)
}

/// A type hint as column names show it: user types with their keyspace.
fn hint_text(raw: &RawType, keyspace: &str) -> String {
    let text = |raw: &RawType| hint_text(raw, keyspace);
    match raw {
        RawType::UserDefined(name) if name.keyspace.is_none() => format!(
            "{}.{}",
            types::name::quote_identifier(keyspace),
            types::name::quote_identifier(&name.name.text)
        ),
        RawType::List(element) => format!("list<{}>", text(element)),
        RawType::Set(element) => format!("set<{}>", text(element)),
        RawType::Map(key, value) => format!("map<{}, {}>", text(key), text(value)),
        RawType::Tuple(fields) => {
            let fields: Vec<String> = fields.iter().map(text).collect();
            format!("tuple<{}>", fields.join(", "))
        }
        RawType::Vector(element, dimension) => format!("vector<{}, {dimension}>", text(element)),
        // Vectors are always frozen, and shown without.
        RawType::Frozen(inner) if matches!(**inner, RawType::Vector(..)) => text(inner),
        RawType::Frozen(inner) => format!("frozen<{}>", text(inner)),
        RawType::Custom(class) => format!("'{}'", crate::raw_type::full_class(class)),
        RawType::Native(_) | RawType::UserDefined(_) => raw.to_string(),
    }
}
