//! Calls, operators and casts within terms: which function they mean, with typed arguments.

use std::sync::Arc;

use cql_syntax::ast::{FunctionName, NativeType, Term};
use schema::Table;
use types::CqlType;
use types::arithmetic::Operator;
use types::compat::Assignment;

use super::Binds;
use super::bind::fold;
use super::{
    PlannedCall, PlannedTerm, Receiver, literal_type, operator, plan_term, resolve_hint, test,
    text_of,
};
use crate::context::PlanContext;
use crate::error::PlanError;
use crate::functions::{self, Argument, NativeFunction};
use crate::raw_type;

/// Target of a call.
pub(super) enum Callee<'t> {
    Named(&'t FunctionName),
    Negate,
    Operator(Operator),
    Cast(NativeType),
}

struct TermArgument<'t> {
    term: &'t Term,
    keyspace: &'t str,
    table: &'t str,
    cx: &'t PlanContext<'t>,
}

impl Argument for TermArgument<'_> {
    fn test(&self, ty: &CqlType) -> Assignment {
        let receiver = Receiver {
            keyspace: self.keyspace,
            table: self.table,
            name: Arc::from("arg"),
            ty: ty.clone(),
        };
        test(self.term, &receiver, self.cx)
    }

    fn exact_type(&self) -> Option<CqlType> {
        exact_type(self.term, self.keyspace, self.table, self.cx)
    }

    fn compatible_type(&self) -> Option<CqlType> {
        match self.term {
            Term::Literal(literal) => Some(literal_type(literal)),
            // Without a receiver it may be a list or a vector.
            Term::List(..) => None,
            Term::Set(elements, _) => {
                let element = self.common_type(elements)?;
                Some(CqlType::set(element, true))
            }
            Term::Map(entries, _) => {
                let (keys, values): (Vec<_>, Vec<_>) =
                    entries.iter().map(|(k, v)| (k.clone(), v.clone())).unzip();
                Some(CqlType::map(self.common_type(&keys)?, self.common_type(&values)?, true))
            }
            _ => self.exact_type(),
        }
    }

    fn text(&self) -> String {
        text_of(self.term)
    }

    fn is_marker(&self) -> bool {
        matches!(self.term, Term::Bind(_))
    }
}

impl TermArgument<'_> {
    fn common_type(&self, terms: &[Term]) -> Option<CqlType> {
        let types: Vec<CqlType> = terms
            .iter()
            .filter_map(|term| TermArgument { term, ..*self }.compatible_type())
            .collect();
        types.iter().find(|ty| types.iter().all(|t| t.test_assignment(ty).is_assignable())).cloned()
    }
}

fn exact_type(term: &Term, keyspace: &str, table: &str, cx: &PlanContext<'_>) -> Option<CqlType> {
    let of = |term: &Term| exact_type(term, keyspace, table, cx);
    match term {
        Term::TypeHint { ty, .. } => resolve_hint(ty, keyspace, cx).ok(),
        Term::Set(elements, _) => Some(CqlType::set(elements.iter().find_map(of)?, true)),
        Term::Map(entries, _) => Some(CqlType::map(
            entries.iter().find_map(|(k, _)| of(k))?,
            entries.iter().find_map(|(_, v)| of(v))?,
            true,
        )),
        Term::Tuple(elements, _) => {
            let types: Option<Vec<CqlType>> = elements.iter().map(of).collect();
            Some(CqlType::tuple(types?))
        }
        Term::FunctionCall { .. } | Term::Negate(..) | Term::Binary { .. } | Term::Cast { .. } => {
            let receiver = Receiver { keyspace, table, name: Arc::from(""), ty: CqlType::Empty };
            call_parts(term, |callee, args| {
                resolve_call(&callee, args, None, &receiver, cx).ok().flatten()
            })
            .flatten()
            .map(|function| function.returns)
        }
        Term::Literal(_) | Term::Null(_) | Term::Bind(_) | Term::List(..) | Term::Udt(..) => None,
    }
}

/// Callee and arguments of a call, operator or cast.
pub(super) fn call_parts<R>(
    term: &Term,
    then: impl FnOnce(Callee<'_>, &[&Term]) -> R,
) -> Option<R> {
    Some(match term {
        Term::FunctionCall { name, args, .. } => {
            then(Callee::Named(name), &args.iter().collect::<Vec<_>>())
        }
        Term::Negate(inner, _) => then(Callee::Negate, &[inner]),
        Term::Binary { op, left, right, .. } => {
            then(Callee::Operator(operator(*op)), &[left, right])
        }
        Term::Cast { term, ty, .. } => then(Callee::Cast(*ty), &[term]),
        _ => return None,
    })
}

pub(super) fn resolve_call(
    callee: &Callee<'_>,
    args: &[&Term],
    receiver_type: Option<&CqlType>,
    receiver: &Receiver<'_>,
    cx: &PlanContext<'_>,
) -> Result<Option<NativeFunction>, PlanError> {
    let arguments: Vec<TermArgument<'_>> = args
        .iter()
        .map(|term| TermArgument { term, keyspace: receiver.keyspace, table: receiver.table, cx })
        .collect();
    let arguments: Vec<&dyn Argument> = arguments.iter().map(|a| a as &dyn Argument).collect();
    match callee {
        Callee::Named(name) => {
            let table = table_of(name, receiver, cx)?;
            let site = cx.call_site(receiver.keyspace, table);
            functions::resolve(name, &arguments, receiver_type, &site)
        }
        Callee::Negate => functions::resolve_negate(&arguments, receiver_type).map(Some),
        Callee::Operator(op) => {
            functions::resolve_operator(*op, &arguments, receiver_type).map(Some)
        }
        Callee::Cast(ty) => {
            functions::resolve_cast(&raw_type::native(*ty), &arguments, receiver_type)
        }
    }
}

/// The function that a call means whose first argument is no term.
pub(crate) fn resolve_behind(
    name: &FunctionName,
    first: &dyn Argument,
    args: &[Term],
    receiver: &Receiver<'_>,
    cx: &PlanContext<'_>,
) -> Result<Option<NativeFunction>, PlanError> {
    let args: Vec<TermArgument<'_>> = args
        .iter()
        .map(|term| TermArgument { term, keyspace: receiver.keyspace, table: receiver.table, cx })
        .collect();
    let mut arguments = vec![first];
    arguments.extend(args.iter().map(|a| a as &dyn Argument));
    let table = table_of(name, receiver, cx)?;
    let site = cx.call_site(receiver.keyspace, table);
    functions::resolve(name, &arguments, Some(&receiver.ty), &site)
}

/// The table that a call is about: that of its receiver, which need not be there where a table is made, or for constants
/// of no table. Source: `TokenFct.addFunctionsTo`.
fn table_of<'c>(
    name: &FunctionName,
    receiver: &Receiver<'_>,
    cx: &'c PlanContext<'_>,
) -> Result<Option<&'c Table>, PlanError> {
    let table = cx.schema.table(receiver.keyspace, receiver.table).map(|table| &**table);
    if table.is_none() && functions::is_token(name) {
        return Err(PlanError::invalid(format!(
            "The receiver table {}.{} specified by call to function system.token hasn't been found",
            receiver.keyspace, receiver.table
        )));
    }
    Ok(table)
}

pub(super) fn plan_call(
    callee: &Callee<'_>,
    args: &[&Term],
    receiver: &Receiver<'_>,
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<PlannedTerm, PlanError> {
    let function = match resolve_call(callee, args, Some(&receiver.ty), receiver, cx)? {
        Some(function) => function,
        None => {
            let name = match callee {
                Callee::Named(name) => name,
                Callee::Cast(ty) => {
                    let cast = functions::cast_name(&raw_type::native(*ty));
                    let text = format!("Unknown function system.{cast} called");
                    return Err(PlanError::function_call(text));
                }
                Callee::Negate | Callee::Operator(_) => {
                    return Err(PlanError::invalid("unknown operation"));
                }
            };
            if functions::is_aggregate(name) {
                return Err(aggregate_in_term(name, args, receiver, cx));
            }
            return Err(PlanError::function_call(format!(
                "Unknown function {} called",
                functions::plain_name(name)
            )));
        }
    };
    if function.is_aggregate() {
        return Err(PlanError::invalid(
            "Aggregation function are not supported in the where clause",
        ));
    }
    if !result_fits(&function.returns, &receiver.ty) {
        let (what, name) = match callee {
            Callee::Operator(op) => ("operation", op.symbol().to_string()),
            _ => ("function", function.full_name()),
        };
        return Err(PlanError::function_call(format!(
            "Type error: cannot assign result of {what} {name} (type {}) to {} (type {})",
            function.returns, receiver.name, receiver.ty
        )));
    }
    let full_name = function.full_name().to_lowercase();
    let mut planned = Vec::with_capacity(args.len());
    for (i, (term, ty)) in args.iter().zip(function.args.iter()).enumerate() {
        let receiver = receiver.derive(format!("arg{i}({full_name})"), ty.clone());
        planned.push(plan_term(term, &receiver, cx, binds)?);
    }
    let pure = function.pure;
    let mut call = PlannedCall { function, args: planned, slot: None };
    if !pure {
        call.slot = binds.add_call(&call);
        return Ok(PlannedTerm::Call(Box::new(call)));
    }
    fold(PlannedTerm::Call(Box::new(call)), cx)
}

/// Error for a call of an aggregate within a term. `count` is one function (of a blob, which
/// accepts any value), so its invalid arguments are reported first.
#[cold]
fn aggregate_in_term(
    name: &FunctionName,
    args: &[&Term],
    receiver: &Receiver<'_>,
    cx: &PlanContext<'_>,
) -> PlanError {
    if name.name.text == "count" {
        let [arg] = args else {
            return PlanError::function_call(format!(
                "Invalid number of arguments in call to function system.count: 1 required but {} \
                 provided",
                args.len()
            ));
        };
        let blob = receiver.derive("arg0(system.count)".to_owned(), CqlType::Blob);
        if !test(arg, &blob, cx).is_assignable() {
            return PlanError::function_call(format!(
                "Type error: {} cannot be passed as argument 0 of function system.count of type \
                 blob",
                text_of(arg)
            ));
        }
    }
    PlanError::invalid("Aggregation function are not supported in the where clause")
}

/// Source: `AbstractFunction.testAssignment`.
fn result_fits(returns: &CqlType, receiver: &CqlType) -> bool {
    let frozen = receiver.is_freezable() && receiver.is_frozen();
    let returns = if frozen { returns.freeze() } else { returns.clone() };
    *receiver == returns || receiver.is_value_compatible_with(&returns)
}
