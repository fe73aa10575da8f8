//! Calls in a selection: casts, functions, aggregates.

use cql_syntax::ast::{FunctionName, NativeType, Selector};
use schema::Table;
use types::CqlType;
use types::aggregate::{Aggregate, AggregateKind};

use super::{
    AggregateFunction, AggregateSpec, ConstantCall, Planned, Planner, cannot_infer, refuse,
};
use crate::error::PlanError;
use crate::functions::masking;
use crate::functions::user::Callee;
use crate::functions::{self, Argument, NativeFunction};
use crate::select::arguments::{SelectorArgument, is_untyped};
use crate::select::error_order::no_signature;
use crate::select::expr::Expr;
use crate::term::{Binds, literal_type};

impl Planner<'_, '_> {
    pub(super) fn cast(
        &mut self,
        selector: &Selector,
        ty: NativeType,
        expected: Option<&CqlType>,
        binds: &mut Binds,
    ) -> Result<Planned, PlanError> {
        let to = crate::raw_type::native(ty);
        if is_untyped(selector) {
            return Err(cannot_infer(selector));
        }
        let mut typed = self.typed(std::slice::from_ref(selector), binds)?;
        // A cast to the type it has is the value itself, name included.
        if let [SelectorArgument { planned, .. }] = typed.as_mut_slice()
            && planned.as_ref().is_some_and(|p| p.ty == to)
            && let Some(planned) = planned.take()
        {
            return Ok(planned);
        }
        let found =
            self.call_typed(typed, binds, |args, _| functions::resolve_cast(&to, args, expected))?;
        found.ok_or_else(|| {
            // Cassandra names the first column that is selected, whichever is cast.
            let first = self.first_column.as_deref().unwrap_or_default();
            PlanError::invalid(format!("{first} cannot be cast to {}", to.to_cql_name()))
        })
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

    pub(super) fn count_rows(&mut self) -> Result<Planned, PlanError> {
        self.aggregate(AggregateKind::Count, &CqlType::Bigint, None, "count".to_owned())
    }

    pub(super) fn function(
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
        // `count` of any constant counts rows.
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
    pub(super) fn call(
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

    /// Notes a call that is evaluated at each execution for its errors alone. It is a call of
    /// constants, or of a function that checks its constants before it reads the value; its other
    /// arguments are null then.
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
