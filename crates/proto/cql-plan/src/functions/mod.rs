//! Native scalar functions, operators and casts: which one a call means, and what it gives.
//!
//! Owns: names and signatures of Cassandra 5.0's native functions (with their names from before
//! 5.0), overload resolution ([`resolve`]) among them and users' ([`user`]), evaluation
//! ([`NativeFunction::eval`]). Never: native aggregates (see `select`), clocks or randomness of its own ([`BindEnv`]).
//!
//! Source: `cql3.functions.*`, `FunctionResolver`.

mod blob;
mod collections;
mod convert;
mod digests;
pub mod json;
pub(crate) mod masking;
mod math;
mod time;
pub mod user;
mod vector;

pub(crate) use convert::push_key_component;

use std::sync::Arc;

use cql_syntax::ast::FunctionName;
use schema::{Column, ColumnMask, Table};
use types::arithmetic::Operator;
use types::compat::Assignment;
use types::{CqlType, TypeError};

use crate::error::PlanError;
use crate::plan::{BindEnv, PlanContext};

/// An argument of a call before it is planned: a term or a selector.
pub trait Argument {
    /// How it fits a parameter's type.
    fn test(&self, ty: &CqlType) -> Assignment;
    /// Its type, when it has exactly one (`getExactTypeIfKnown`).
    fn exact_type(&self) -> Option<CqlType>;
    /// A type that can hold it (`getCompatibleTypeIfKnown`).
    fn compatible_type(&self) -> Option<CqlType> {
        self.exact_type()
    }
    /// Its text in messages.
    fn text(&self) -> String;
    /// A bare bind marker.
    fn is_marker(&self) -> bool {
        false
    }
    /// Number of elements of a `[…]` literal.
    fn vector_dimension(&self) -> Option<u32> {
        None
    }
}

/// Arguments of a call as bytes; `None` is null.
pub type Args<'a> = [Option<&'a [u8]>];

type Eval = fn(&NativeFunction, &Args<'_>, &BindEnv<'_>) -> Result<Option<Vec<u8>>, PlanError>;

/// One native function with the types of one of its signatures.
#[derive(Clone, Debug)]
pub struct NativeFunction {
    /// Name without keyspace.
    pub name: Arc<str>,
    /// Parameter types.
    pub args: Vec<CqlType>,
    /// Type of the result.
    pub returns: CqlType,
    /// Gives the same for the same arguments.
    pub pure: bool,
    /// Its signature was made from the types of the arguments.
    pub from_factory: bool,
    /// A user's function or aggregate: its keyspace, what it is, and its code once it was picked.
    keyspace: Option<Arc<str>>,
    routine: Option<user::Routine>,
    pub(crate) callee: Option<user::Callee>,
    eval: Eval,
}

impl NativeFunction {
    fn new(name: &str, args: &[CqlType], returns: CqlType, eval: Eval) -> NativeFunction {
        NativeFunction {
            name: Arc::from(name),
            args: args.to_vec(),
            returns,
            pure: true,
            from_factory: false,
            keyspace: None,
            routine: None,
            callee: None,
            eval,
        }
    }

    fn made(name: &str, args: &[CqlType], returns: CqlType, eval: Eval) -> NativeFunction {
        NativeFunction { from_factory: true, ..NativeFunction::new(name, args, returns, eval) }
    }

    /// `system.name`, or with the keyspace of a user's function.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.keyspace(), self.name)
    }

    /// Its keyspace.
    pub fn keyspace(&self) -> &str {
        self.keyspace.as_deref().unwrap_or("system")
    }

    /// Whether it is a user's function or aggregate.
    pub fn is_users(&self) -> bool {
        self.routine.is_some()
    }

    /// Whether it is a user's aggregate.
    pub fn is_aggregate(&self) -> bool {
        matches!(self.routine, Some(user::Routine::Aggregate(_)))
    }

    /// The result for arguments that are valid for the parameters' types.
    ///
    /// # Errors
    /// The function cannot be computed for these arguments.
    pub fn eval(&self, args: &Args<'_>, env: &BindEnv<'_>) -> Result<Option<Vec<u8>>, PlanError> {
        (self.eval)(self, args, env)
    }

    /// The name of a selected column: `system.name(a, b)`, `a + b`, `-a`, `cast(a as int)`.
    pub fn column_name(&self, args: &[String]) -> String {
        let first = args.first().map_or("", String::as_str);
        if let Some(op) = operator_of(&self.name) {
            return format!("{first} {} {}", op.symbol(), args.get(1).map_or("", String::as_str));
        }
        if &*self.name == NEGATE {
            return format!("-{first}");
        }
        if self.name.starts_with(CAST) {
            return format!("cast({first} as {})", self.returns);
        }
        format!("{}({})", self.full_name(), args.join(", "))
    }

    /// `system.name : (types) -> type`, as messages list signatures.
    fn signature(&self) -> String {
        self.partial_signature(&[])
    }

    /// The same, with `(constant)` behind the types of arguments that are constants.
    pub(crate) fn partial_signature(&self, constants: &[bool]) -> String {
        let args: Vec<String> = self
            .args
            .iter()
            .enumerate()
            .map(|(index, ty)| {
                let name = ty.to_cql_name();
                // Tuples are printed without `frozen<>` here.
                let inner = match ty {
                    CqlType::Tuple(_) => {
                        name.strip_prefix("frozen<").and_then(|n| n.strip_suffix('>'))
                    }
                    _ => None,
                };
                let constant = constants.get(index).copied().unwrap_or(false);
                let suffix = if constant { "(constant)" } else { "" };
                format!("{}{suffix}", inner.unwrap_or(&name))
            })
            .collect();
        let name = types::name::quote_identifier(&self.name);
        let keyspace = self.keyspace.as_deref().map(types::name::quote_identifier);
        let keyspace = keyspace.as_deref().unwrap_or("system");
        format!("{keyspace}.{name} : ({}) -> {}", args.join(", "), self.returns)
    }

    /// Argument at an index; null when it is not there or is an empty value without meaning.
    fn arg<'v>(&self, args: &Args<'v>, index: usize) -> Option<&'v [u8]> {
        let bytes = args.get(index).copied().flatten()?;
        let meaningless = bytes.is_empty()
            && self.args.get(index).is_some_and(CqlType::is_empty_value_meaningless);
        (!meaningless).then_some(bytes)
    }
}

const NEGATE: &str = "_negate";
const CAST: &str = "cast_as_";
const OPERATORS: [Operator; 5] =
    [Operator::Add, Operator::Subtract, Operator::Multiply, Operator::Divide, Operator::Modulo];

/// The function name of an operator.
pub fn operator_name(op: Operator) -> &'static str {
    match op {
        Operator::Add => "_add",
        Operator::Subtract => "_substract",
        Operator::Multiply => "_multiply",
        Operator::Divide => "_divide",
        Operator::Modulo => "_modulo",
    }
}

fn operator_of(name: &str) -> Option<Operator> {
    OPERATORS.into_iter().find(|op| operator_name(*op) == name)
}

/// The function name of a cast.
pub fn cast_name(to: &CqlType) -> String {
    format!("{CAST}{to}")
}

/// Number types in the order Cassandra registers operators for.
const NUMBERS: [CqlType; 9] = [
    CqlType::Tinyint,
    CqlType::Smallint,
    CqlType::Int,
    CqlType::Bigint,
    CqlType::Float,
    CqlType::Double,
    CqlType::Decimal,
    CqlType::Varint,
    CqlType::Counter,
];

/// `[keyspace.]name` for messages.
pub fn plain_name(name: &FunctionName) -> String {
    match &name.keyspace {
        Some(keyspace) => format!("{}.{}", keyspace.text, name.name.text),
        None => name.name.text.clone(),
    }
}

/// `[keyspace.]name` with quotes where needed.
pub fn name_text(name: &FunctionName) -> String {
    match &name.keyspace {
        Some(keyspace) => format!("{}.{}", keyspace.to_cql(), name.name.to_cql()),
        None => name.name.to_cql(),
    }
}

/// The name when it can mean a native function.
fn native_name(name: &FunctionName) -> Option<&str> {
    match &name.keyspace {
        Some(keyspace) if keyspace.text != "system" => None,
        _ => Some(&name.name.text),
    }
}

/// Whether a name is that of the function that gives the token of a key.
pub(crate) fn is_token(name: &FunctionName) -> bool {
    native_name(name) == Some("token")
}

/// Whether a name is that of a native aggregate.
pub fn is_aggregate(name: &FunctionName) -> bool {
    native_name(name).is_some_and(|n| matches!(n, "count" | "min" | "max" | "sum" | "avg"))
}

/// Whether a column's mask of that function can be computed.
pub fn can_mask(function: &str) -> bool {
    masking::is_masking(function)
}

/// Checks a mask that was not made by a statement.
///
/// # Errors
/// There is no such function, or it does not take the column and the arguments.
pub fn check_mask(column: &Column, mask: &ColumnMask) -> Result<(), PlanError> {
    masking::Masker::native(column, mask)?.check()
}

/// What a factory makes a function from.
struct Call<'a> {
    name: &'a str,
    args: &'a [&'a dyn Argument],
    receiver: Option<&'a CqlType>,
    table: Option<&'a Table>,
}

/// The function that a call means: native, or a user's of the keyspace that is named, else of
/// `keyspace`. `None`: no function of that name. `receiver` is the type the result must fit, when it is
/// known; `table` the one that `token()` is about.
///
/// # Errors
/// No signature takes the arguments, or more than one does.
pub fn resolve(
    name: &FunctionName,
    args: &[&dyn Argument],
    receiver: Option<&CqlType>,
    keyspace: &str,
    table: Option<&Table>,
    cx: &PlanContext<'_>,
) -> Result<Option<NativeFunction>, PlanError> {
    let mut candidates = Vec::new();
    let named = name.keyspace.as_ref().map_or(keyspace, |k| &k.text);
    if let Some(keyspace) = cx.schema.keyspace(named) {
        user::candidates(keyspace, &name.name.text, &mut candidates);
    }
    if let Some(native) = native_name(name) {
        native_candidates(&Call { name: native, args, receiver, table }, &mut candidates)?;
    }
    let mut picked = pick(&plain_name(name), candidates, args, receiver)?;
    if let Some(function) = &mut picked {
        user::load(function, cx.functions, cx.schema)?;
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
                types::arithmetic::negate(ty, f.arg(args, 0)).map_err(invalid)
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
    _: &BindEnv<'_>,
) -> Result<Option<Vec<u8>>, PlanError> {
    let ([left, right], Some(op)) = (f.args.as_slice(), operator_of(&f.name)) else {
        return Ok(None);
    };
    op.apply((left, f.arg(args, 0)), (right, f.arg(args, 1))).map_err(|error| {
        let args: Vec<String> = f.args.iter().map(CqlType::to_cql_name).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        PlanError::function_failure(&f.name, &args, error.to_string())
    })
}

/// Turns a value error of a function into what the client sees.
fn invalid(error: TypeError) -> PlanError {
    PlanError::from(error)
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
    let list = |functions: &[NativeFunction]| {
        functions.iter().map(NativeFunction::signature).collect::<Vec<_>>().join(", ")
    };
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
        let message = match operator {
            Some(op) => format!(
                "the '{}' operation is not supported between {} and {}",
                op.symbol(),
                text(0),
                text(1)
            ),
            None => format!(
                "Invalid call to function {name}, none of its type signatures match (known type \
                 signatures: {})",
                list(&candidates)
            ),
        };
        // Which casts exist is known without the functions: Cassandra checks them later.
        return Err(match name.starts_with("system.cast_as_") {
            true => PlanError::invalid(message),
            false => PlanError::function_call(message),
        });
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
        list(&compatible)
    )))
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

/// The type a factory takes for its only argument.
fn one_type(call: &Call<'_>, parameter: &str) -> Result<CqlType, PlanError> {
    let [arg] = call.args else { return Err(wrong_count(call, parameter)) };
    arg.compatible_type().ok_or_else(|| cannot_infer(call, parameter, *arg))
}

fn wrong_count(call: &Call<'_>, parameters: &str) -> PlanError {
    PlanError::function_call(format!(
        "Invalid number of arguments for function system.{}({parameters})",
        call.name
    ))
}

fn cannot_infer(call: &Call<'_>, parameters: &str, arg: &dyn Argument) -> PlanError {
    PlanError::function_call(format!(
        "Cannot infer type of argument {} in call to function system.{}({parameters}): use type \
         casts to disambiguate",
        arg.text(),
        call.name
    ))
}

fn wrong_argument(call: &Call<'_>, what: &str, arg: &dyn Argument, ty: &CqlType) -> PlanError {
    PlanError::function_call(format!(
        "Function system.{} requires {what}, but found argument {} of type {ty}",
        call.name,
        arg.text()
    ))
}

#[cfg(test)]
pub(crate) mod tests;
