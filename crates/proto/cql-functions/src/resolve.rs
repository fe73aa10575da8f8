//! Resolution of calls to functions, native ones and users'.
//!
//! Source: `FunctionResolver`.

use cql_syntax::ast::FunctionName;
use schema::Table;
use types::CqlType;
use types::arithmetic::{Operand, Operator};
use types::compat::Assignment;

use crate::call::Call;
use crate::env::EvalEnv;
use crate::error::PlanError;
use crate::native::{
    Args, Argument, NEGATE, NUMBERS, NativeFunction, cast_name, native_name, operator_name,
    operator_of, plain_name,
};
use crate::user::{self, FunctionScope};
use crate::{blob, collections, convert, json, masking, math, time, vector};

/// Context of a call.
#[derive(Clone, Copy)]
pub struct CallSite<'a> {
    /// Users' functions.
    pub scope: FunctionScope<'a>,
    /// The keyspace of functions that are named without one.
    pub keyspace: &'a str,
    /// The table that `token()` is about.
    pub table: Option<&'a Table>,
}

/// The function that a call means: native, or a user's of the keyspace that is named, else of that of the call.
/// `None`: no function of that name. `receiver` is the type the result must fit, when it is known.
///
/// # Errors
/// No signature takes the arguments, or more than one does.
pub fn resolve(
    name: &FunctionName,
    args: &[&dyn Argument],
    receiver: Option<&CqlType>,
    site: &CallSite<'_>,
) -> Result<Option<NativeFunction>, PlanError> {
    let FunctionScope { schema, functions } = site.scope;
    let mut candidates = Vec::new();
    let named = name.keyspace.as_ref().map_or(site.keyspace, |k| &k.text);
    if let Some(keyspace) = schema.keyspace(named) {
        user::candidates(keyspace, &name.name.text, &mut candidates);
    }
    if let Some(native) = native_name(name) {
        let call = Call { name: native, args, receiver, table: site.table };
        native_candidates(&call, &mut candidates)?;
    }
    let mut picked = pick(&plain_name(name), candidates, args, receiver)?;
    if let Some(function) = &mut picked {
        user::load(function, functions, schema)?;
    }
    Ok(picked)
}

fn native_candidates(
    call: &Call<'_>,
    candidates: &mut Vec<NativeFunction>,
) -> Result<(), PlanError> {
    let native = call.name;
    time::candidates(native, candidates);
    math::candidates(native, candidates);
    blob::candidates(native, candidates);
    convert::candidates(native, candidates);
    for factory in [convert::make, collections::make, json::make, vector::make, masking::make] {
        candidates.extend(factory(call)?);
    }
    Ok(())
}

/// The operator for two arguments.
///
/// # Errors
/// No signature takes the arguments, or more than one does.
pub fn resolve_operator(
    op: Operator,
    args: &[&dyn Argument],
    receiver: Option<&CqlType>,
) -> Result<NativeFunction, PlanError> {
    let mut candidates = Vec::new();
    let name = operator_name(op);
    let mut push = |left: &CqlType, right: &CqlType| {
        if let Some(returns) = op.result_type(left, right) {
            let args = [left.clone(), right.clone()];
            candidates.push(NativeFunction::new(name, &args, returns, eval_operator));
        }
    };
    for left in &NUMBERS {
        for right in &NUMBERS {
            push(left, right);
        }
    }
    push(&CqlType::Timestamp, &CqlType::Duration);
    push(&CqlType::Date, &CqlType::Duration);
    push(&CqlType::Text, &CqlType::Text);
    push(&CqlType::Ascii, &CqlType::Ascii);
    push(&CqlType::Ascii, &CqlType::Text);
    push(&CqlType::Text, &CqlType::Ascii);
    let unknown = || PlanError::function_call(format!("Unknown function system.{name} called"));
    pick(&format!("system.{name}"), candidates, args, receiver)?.ok_or_else(unknown)
}

/// The negation of an argument.
///
/// # Errors
/// It is not a number, or one of unknown type.
pub fn resolve_negate(
    args: &[&dyn Argument],
    receiver: Option<&CqlType>,
) -> Result<NativeFunction, PlanError> {
    let candidates = NUMBERS
        .iter()
        .map(|ty| {
            NativeFunction::new(NEGATE, std::slice::from_ref(ty), ty.clone(), |f, args, _| {
                let ty = f.args.first().unwrap_or(&CqlType::Int);
                types::arithmetic::negate(ty, f.arg(args, 0)).map_err(PlanError::from)
            })
        })
        .collect();
    let unknown = || PlanError::function_call("Unknown function system._negate called");
    pick("system._negate", candidates, args, receiver)?.ok_or_else(unknown)
}

/// `CAST(argument AS to)`.
///
/// # Errors
/// There is no such cast.
pub fn resolve_cast(
    to: &CqlType,
    args: &[&dyn Argument],
    receiver: Option<&CqlType>,
) -> Result<Option<NativeFunction>, PlanError> {
    let name = cast_name(to);
    let mut candidates = Vec::new();
    convert::candidates(&name, &mut candidates);
    pick(&format!("system.{name}"), candidates, args, receiver)
}

fn eval_operator(
    f: &NativeFunction,
    args: &Args<'_>,
    _: &EvalEnv<'_>,
) -> Result<Option<Vec<u8>>, PlanError> {
    let ([left, right], Some(op)) = (f.args.as_slice(), operator_of(&f.name)) else {
        return Ok(None);
    };
    let (left, right) = (Operand::new(left, f.arg(args, 0)), Operand::new(right, f.arg(args, 1)));
    op.apply(left, right).map_err(|error| {
        let args: Vec<String> = f.args.iter().map(CqlType::to_cql_name).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        PlanError::function_failure(&f.name, &args, error.to_string())
    })
}

fn fits(function: &NativeFunction, args: &[&dyn Argument]) -> Assignment {
    if function.args.len() != args.len() {
        return Assignment::No;
    }
    let mut result = Assignment::Exact;
    for (arg, ty) in args.iter().zip(&function.args) {
        match arg.test(ty) {
            Assignment::No => return Assignment::No,
            Assignment::Weak => result = Assignment::Weak,
            Assignment::Exact => {}
        }
    }
    result
}

/// Source: `FunctionResolver.get`.
fn pick(
    name: &str,
    candidates: Vec<NativeFunction>,
    args: &[&dyn Argument],
    receiver: Option<&CqlType>,
) -> Result<Option<NativeFunction>, PlanError> {
    if candidates.len() <= 1 {
        let Some(function) = candidates.into_iter().next() else { return Ok(None) };
        check_only(&function, args)?;
        return Ok(Some(function));
    }
    let operator = name.strip_prefix("system.").and_then(operator_of);
    let text = |i: usize| args.get(i).map_or_else(String::new, |a| a.text());
    let mut compatible: Vec<NativeFunction> = Vec::new();
    for function in &candidates {
        let returns_fit =
            receiver.is_none_or(|ty| function.returns.test_assignment(ty).is_assignable());
        if !returns_fit {
            continue;
        }
        match fits(function, args) {
            Assignment::Exact => return Ok(Some(function.clone())),
            Assignment::Weak => compatible.push(function.clone()),
            Assignment::No => {}
        }
    }
    if compatible.is_empty() {
        return Err(no_signature_fits(name, &candidates, args));
    }
    if compatible.len() == 1 {
        return Ok(compatible.pop());
    }
    if let Some(op) = operator {
        if let Some(ty) = receiver.filter(|_| !args.iter().any(|a| a.is_marker()))
            && let Some(found) = compatible.iter().find(|f| f.args.iter().all(|a| a == ty))
        {
            return Ok(Some(found.clone()));
        }
        return Err(PlanError::invalid(format!(
            "Ambiguous '{}' operation with args {} and {}: use type hint to disambiguate, example \
             '(int) ?'",
            op.symbol(),
            text(0),
            text(1)
        )));
    }
    if name == "system._negate" {
        return Err(PlanError::invalid("Ambiguous negation: use type casts to disambiguate"));
    }
    Err(PlanError::function_call(format!(
        "Ambiguous call to function {name} (can be matched by following signatures: {}): use type \
         casts to disambiguate",
        signatures(&compatible)
    )))
}

fn signatures(functions: &[NativeFunction]) -> String {
    functions.iter().map(NativeFunction::signature).collect::<Vec<_>>().join(", ")
}

/// The error of a call that none of several signatures takes.
fn no_signature_fits(
    name: &str,
    candidates: &[NativeFunction],
    args: &[&dyn Argument],
) -> PlanError {
    let text = |i: usize| args.get(i).map_or_else(String::new, |a| a.text());
    let message = match name.strip_prefix("system.").and_then(operator_of) {
        Some(op) => format!(
            "the '{}' operation is not supported between {} and {}",
            op.symbol(),
            text(0),
            text(1)
        ),
        None => format!(
            "Invalid call to function {name}, none of its type signatures match (known type \
             signatures: {})",
            signatures(candidates)
        ),
    };
    // Which casts exist is known without the functions: Cassandra checks them later.
    match name.starts_with("system.cast_as_") {
        true => PlanError::invalid(message),
        false => PlanError::function_call(message),
    }
}

/// Source: `FunctionResolver.validateTypes`.
fn check_only(function: &NativeFunction, args: &[&dyn Argument]) -> Result<(), PlanError> {
    if args.len() != function.args.len() {
        return Err(PlanError::function_call(format!(
            "Invalid number of arguments in call to function {}: {} required but {} provided",
            function.full_name(),
            function.args.len(),
            args.len()
        )));
    }
    for (i, (arg, ty)) in args.iter().zip(&function.args).enumerate() {
        if !arg.test(ty).is_assignable() {
            return Err(PlanError::function_call(format!(
                "Type error: {} cannot be passed as argument {i} of function {} of type {ty}",
                arg.text(),
                function.full_name()
            )));
        }
    }
    Ok(())
}
