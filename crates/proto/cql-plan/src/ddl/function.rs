//! CREATE and DROP of functions and aggregates.
//!
//! Source: Cassandra 5.0's `CreateFunctionStatement`, `CreateAggregateStatement` and their DROPs.

use std::sync::Arc;

use cql_syntax::ast::{
    CreateAggregate, CreateFunction, DropAggregate, DropFunction, Ident, RawType, Term,
};
use schema::{Keyspace, Schema, SchemaChange, UserAggregate, UserFunction};
use types::CqlType;

use super::{
    DdlContext, DdlOutcome, On, SchemaEventKind, SchemaEventTarget, absent,
    check_not_replicated_system, duplicate,
};
use crate::context::{PlanContext, PlanLimits};
use crate::error::PlanError;
use crate::functions::UuidSource;
use crate::functions::user::{DISABLED, UserFunctions, language};
use crate::raw_type;
use crate::term::Binds;
use crate::term::{Receiver, plan_term};
use crate::values::{BindEnv, Bound};

fn refuse<T>(text: String) -> Result<T, PlanError> {
    Err(PlanError::invalid(text))
}

const BOTH: &str = "Cannot use both 'OR REPLACE' and 'IF NOT EXISTS' directives";

/// Users' functions, when they are switched on.
fn enabled<'a>(cx: &DdlContext<'a>) -> Result<&'a UserFunctions, PlanError> {
    let functions = cx.functions.ok_or_else(|| PlanError::invalid(DISABLED))?;
    functions.check_enabled()?;
    Ok(functions)
}

fn check_name(what: &str, name: &str) -> Result<(), PlanError> {
    if name.contains(['/', '[', ']']) {
        return refuse(format!("{what} name '{name}' is invalid"));
    }
    Ok(())
}

/// Checks that types of a signature are not frozen as a whole, for they are the types of values on
/// the wire.
fn check_not_frozen(what: &str, types: &[RawType]) -> Result<(), PlanError> {
    let frozen = |ty: &&RawType| match ty {
        RawType::Frozen(inner) => !matches!(**inner, RawType::Tuple(_)),
        _ => false,
    };
    match types.iter().find(frozen) {
        Some(ty) => {
            refuse(format!("{what} '{ty}' cannot be frozen; remove frozen<> modifier from '{ty}'"))
        }
        None => Ok(()),
    }
}

fn find_keyspace<'s>(schema: &'s Schema, name: &str) -> Result<&'s Arc<Keyspace>, PlanError> {
    schema
        .keyspace(name)
        .ok_or_else(|| PlanError::invalid(format!("Keyspace '{name}' doesn't exist")))
}

fn resolve(types: &[RawType], keyspace: &Keyspace) -> Result<Vec<CqlType>, PlanError> {
    types.iter().map(|ty| raw_type::resolve(ty, &keyspace.name, &keyspace.types)).collect()
}

fn texts(types: &[RawType]) -> Vec<String> {
    types.iter().map(ToString::to_string).collect()
}

fn names(names: &[&Ident]) -> String {
    let names: Vec<String> = names.iter().map(|name| name.to_cql()).collect();
    format!("[{}]", names.join(", "))
}

/// Returns true if values of the new type may replace values of the old one.
fn replaces(new: &CqlType, old: &CqlType) -> bool {
    new == old || new.is_compatible_with(old)
}

pub(super) fn create(
    statement: &CreateFunction,
    keyspace: &str,
    cx: &DdlContext<'_>,
) -> Result<DdlOutcome, PlanError> {
    if statement.if_not_exists && statement.or_replace {
        return refuse(BOTH.to_owned());
    }
    check_not_replicated_system(keyspace, "CREATE", On::Keyspace)?;
    let functions = enabled(cx)?;
    // For languages that Cassandra supports, Cassandra's own errors come first.
    let is_java = statement.language.eq_ignore_ascii_case("java");
    if !is_java {
        language(&statement.language)?;
    }
    let name = statement.name.name.text.as_str();
    check_name("Function", name)?;
    let arg_names: Vec<&Ident> = statement.args.iter().map(|(name, _)| name).collect();
    if duplicate(arg_names.iter().copied()).is_some() {
        return refuse(format!(
            "Duplicate argument names for given function {name} with argument names {}",
            names(&arg_names)
        ));
    }
    let raw: Vec<RawType> = statement.args.iter().map(|(_, ty)| ty.clone()).collect();
    check_not_frozen("Argument", &raw)?;
    check_not_frozen("Return type", std::slice::from_ref(&statement.return_type))?;
    let keyspace = find_keyspace(cx.schema, keyspace)?;
    let args = resolve(&raw, keyspace)?;
    let returns = raw_type::resolve(&statement.return_type, &keyspace.name, &keyspace.types)?;
    if is_java {
        language(&statement.language)?;
    }
    let function = UserFunction {
        keyspace: keyspace.name.clone(),
        name: name.into(),
        arg_names: arg_names.iter().map(|n| n.text.as_str().into()).collect(),
        args,
        returns,
        called_on_null_input: statement.called_on_null_input,
        language: statement.language.as_str().into(),
        body: statement.body.as_str().into(),
    };
    functions.check(&function)?;
    let Some(kind) = function_event(statement, &function, keyspace)? else {
        return Ok(DdlOutcome::nothing());
    };
    let target = SchemaEventTarget::Function(texts(&raw));
    let (keyspace, change) = (&keyspace.name, SchemaChange::PutFunction(function));
    Ok(DdlOutcome::one(change, kind, target, keyspace, name))
}

/// Returns the event of CREATE FUNCTION, given the existing function of that name; `None`: no
/// change.
fn function_event(
    statement: &CreateFunction,
    function: &UserFunction,
    keyspace: &Keyspace,
) -> Result<Option<SchemaEventKind>, PlanError> {
    let name = &function.name;
    if keyspace.aggregate(name, &function.args).is_some() {
        return refuse(format!("Function '{name}' cannot replace an aggregate"));
    }
    let Some(old) = keyspace.function(name, &function.args) else {
        return Ok(Some(SchemaEventKind::Created));
    };
    if statement.if_not_exists {
        return Ok(None);
    }
    if !statement.or_replace {
        return refuse(format!("Function '{name}' already exists"));
    }
    if old.called_on_null_input != function.called_on_null_input {
        // Like Cassandra, names the new directive.
        let directive = match function.called_on_null_input {
            true => "CALLED ON NULL INPUT",
            false => "RETURNS NULL ON NULL INPUT",
        };
        return refuse(format!("Function '{name}' must have {directive} directive"));
    }
    if !replaces(&function.returns, &old.returns) {
        return refuse(format!(
            "Cannot replace function '{name}', the new return type {} is not compatible with the \
             return type {} of existing function",
            function.returns, old.returns
        ));
    }
    Ok((**old != *function).then_some(SchemaEventKind::Updated))
}

/// Returns the event of CREATE AGGREGATE, given the existing aggregate of that name; `None`: no
/// change.
fn aggregate_event(
    statement: &CreateAggregate,
    aggregate: &UserAggregate,
    keyspace: &Keyspace,
) -> Result<Option<SchemaEventKind>, PlanError> {
    let name = &aggregate.name;
    if keyspace.function(name, &aggregate.args).is_some() {
        return refuse(format!("Aggregate '{name}' cannot replace a function"));
    }
    let Some(old) = keyspace.aggregate(name, &aggregate.args) else {
        return Ok(Some(SchemaEventKind::Created));
    };
    if statement.if_not_exists {
        return Ok(None);
    }
    if !statement.or_replace {
        return refuse(format!("Aggregate '{name}' already exists"));
    }
    if !replaces(&aggregate.returns, &old.returns) {
        return refuse(format!(
            "Cannot replace aggregate '{name}', the new return type {} isn't compatible with the \
             return type {} of existing function",
            aggregate.returns, old.returns
        ));
    }
    Ok((**old != *aggregate).then_some(SchemaEventKind::Updated))
}

/// Text of `name(types)` or `name` in messages of DROP.
fn dropped_name(keyspace: &str, name: &str, args: Option<&[RawType]>) -> String {
    match args {
        None => format!("{keyspace}.{name}"),
        Some(args) => format!("{keyspace}.{name}({})", texts(args).join(", ")),
    }
}

fn ambiguous<T>(what: &str, name: &str) -> Result<T, PlanError> {
    refuse(format!(
        "'DROP {what} {name}' matches multiple function definitions; specify the argument types by \
         issuing a statement like 'DROP {what} {name} (type, type, ...)'. You can use cqlsh 'DESCRIBE \
         {what} {name}' command to find all overloads"
    ))
}

/// The types that a DROP names, if it names any; without them only one function or aggregate may have
/// the name.
fn dropped_args(
    what: &str,
    name: &str,
    args: Option<&[RawType]>,
    keyspace: &Keyspace,
) -> Result<Option<Vec<CqlType>>, PlanError> {
    let Some(args) = args else {
        let all = keyspace.functions_named(name).count() + keyspace.aggregates_named(name).count();
        return if all > 1 { ambiguous(what, name) } else { Ok(None) };
    };
    check_not_frozen("Argument", args)?;
    resolve(args, keyspace).map(Some)
}

pub(super) fn drop(
    statement: &DropFunction,
    keyspace_name: &str,
    cx: &DdlContext<'_>,
) -> Result<DdlOutcome, PlanError> {
    let (name, args) = (statement.name.name.text.as_str(), statement.args.as_deref());
    let full = dropped_name(keyspace_name, name, args);
    let missing = || absent(statement.if_exists, format!("Function '{full}' doesn't exist"));
    let Some(keyspace) = cx.schema.keyspace(keyspace_name) else { return missing() };
    let found = match dropped_args("FUNCTION", name, args, keyspace)? {
        None => keyspace.functions_named(name).next(),
        Some(args) => keyspace.function(name, &args),
    };
    let Some(function) = found else { return missing() };
    let users: Vec<String> = keyspace
        .aggregates
        .iter()
        .filter(|a| a.calls(function))
        .map(|a| format!("{}.{}", a.keyspace, a.name))
        .collect();
    if !users.is_empty() {
        return refuse(format!(
            "Function '{full}' is still referenced by aggregates {}",
            users.join(", ")
        ));
    }
    let tables = keyspace.tables_masked_by(function);
    if !tables.is_empty() {
        return refuse(format!(
            "Function '{full}' is still referenced by column masks in tables {}",
            tables.join(", ")
        ));
    }
    let types = function.args.iter().map(CqlType::to_cql_name).collect();
    let change = SchemaChange::DropFunction {
        keyspace: keyspace.name.clone(),
        name: function.name.clone(),
        args: function.args.clone(),
    };
    let target = SchemaEventTarget::Function(types);
    Ok(DdlOutcome::one(change, SchemaEventKind::Dropped, target, keyspace_name, name))
}

pub(super) fn create_aggregate(
    statement: &CreateAggregate,
    keyspace: &str,
    cx: &DdlContext<'_>,
) -> Result<DdlOutcome, PlanError> {
    if statement.if_not_exists && statement.or_replace {
        return refuse(BOTH.to_owned());
    }
    check_not_replicated_system(keyspace, "CREATE", On::Keyspace)?;
    let name = statement.name.name.text.as_str();
    check_name("Aggregate", name)?;
    check_not_frozen("Argument", &statement.args)?;
    check_not_frozen("State type", std::slice::from_ref(&statement.state_type))?;
    let keyspace = cx
        .schema
        .keyspace(keyspace)
        .ok_or_else(|| PlanError::config(format!("Keyspace {keyspace} doesn't exist")))?;
    let args = resolve(&statement.args, keyspace)?;
    let state_type = raw_type::resolve(&statement.state_type, &keyspace.name, &keyspace.types)?;
    let scalar = |what: &str, function: &str, raw: &[RawType], types: &[CqlType]| {
        let text = format!("{}.{function}({})", keyspace.name, texts(raw).join(", "));
        let found = keyspace.function(function, types);
        found.ok_or_else(|| no_scalar(what, &text, keyspace.aggregate(function, types).is_some()))
    };
    let raw_state: Vec<RawType> =
        [&statement.state_type].into_iter().chain(&statement.args).cloned().collect();
    let state_args: Vec<CqlType> = [&state_type].into_iter().chain(&args).cloned().collect();
    let state_name = statement.state_function.text.as_str();
    let state = scalar("State", state_name, &raw_state, &state_args)?;
    if state.returns != state_type {
        return refuse(format!(
            "State function {}.{state_name}({}) return type must be the same as the first argument type \
             - check STYPE, argument and return types",
            keyspace.name,
            texts(&raw_state).join(", ")
        ));
    }
    let mut returns = state.returns.clone();
    if let Some(last) = &statement.final_function {
        let (raw, types) = (&raw_state[..1], std::slice::from_ref(&state_type));
        returns = scalar("Final", &last.text, raw, types)?.returns.clone();
    }
    let initial = match &statement.initial {
        Some(term) => initial(term, &state_type, keyspace, cx)?,
        None => None,
    };
    if !state.called_on_null_input && initial.is_none() {
        return refuse(format!(
            "Cannot create aggregate '{name}' without INITCOND because state function {}.{state_name} \
             does not accept 'null' arguments",
            keyspace.name
        ));
    }
    let aggregate = UserAggregate {
        keyspace: keyspace.name.clone(),
        name: name.into(),
        args,
        returns,
        state_function: state_name.into(),
        state_type,
        final_function: statement.final_function.as_ref().map(|f| f.text.as_str().into()),
        initial,
    };
    let Some(kind) = aggregate_event(statement, &aggregate, keyspace)? else {
        return Ok(DdlOutcome::nothing());
    };
    let target = SchemaEventTarget::Aggregate(texts(&statement.args));
    let (keyspace, change) = (&keyspace.name, SchemaChange::PutAggregate(aggregate));
    Ok(DdlOutcome::one(change, kind, target, keyspace, name))
}

fn no_scalar(what: &str, function: &str, is_aggregate: bool) -> PlanError {
    PlanError::invalid(match is_aggregate {
        true => format!("{what} function {function} isn't a scalar function"),
        false => format!("{what} function {function} doesn't exist"),
    })
}

/// INITCOND as a value of the state's type.
fn initial(
    term: &Term,
    ty: &CqlType,
    keyspace: &Keyspace,
    cx: &DdlContext<'_>,
) -> Result<Option<Vec<u8>>, PlanError> {
    // Only the types of the keyspace can be named in it.
    let keyspaces = [(keyspace.name.clone(), Arc::new(keyspace.clone()))].into();
    let schema = Arc::new(Schema { keyspaces, ..Schema::default() });
    let limits = PlanLimits::default();
    let plan_cx = PlanContext {
        schema: &schema,
        keyspace: Some(&keyspace.name),
        limits: &limits,
        now: cx.now,
        functions: None,
    };
    let receiver = Receiver {
        keyspace: &keyspace.name,
        table: "--dummy--",
        name: "(dummy)".into(),
        ty: ty.clone(),
    };
    let planned = plan_term(term, &receiver, &plan_cx, &mut Binds::new(&[]))?;
    if planned.has_bind() {
        return refuse("INITCOND cannot have bind variables".to_owned());
    }
    let uuids = UuidSource::new(0);
    let env = BindEnv::of_constants(cx.now, &uuids);
    let value = match planned.bind(&[], &env)? {
        Bound::Value(bytes) => Some(bytes.into_owned()),
        Bound::Null | Bound::Unset => None,
    };
    if let Some(value) = &value
        && value.is_empty()
        && ty.is_empty_value_meaningless()
    {
        return refuse(
            "INITCOND must not be empty for all types except TEXT, ASCII, BLOB".to_owned(),
        );
    }
    Ok(value)
}

pub(super) fn drop_aggregate(
    statement: &DropAggregate,
    keyspace_name: &str,
    cx: &DdlContext<'_>,
) -> Result<DdlOutcome, PlanError> {
    let (name, args) = (statement.name.name.text.as_str(), statement.args.as_deref());
    let full = dropped_name(keyspace_name, name, args);
    let missing = || absent(statement.if_exists, format!("Aggregate '{full}' doesn't exist"));
    let Some(keyspace) = cx.schema.keyspace(keyspace_name) else { return missing() };
    let found = match dropped_args("AGGREGATE", name, args, keyspace)? {
        None => keyspace.aggregates_named(name).next(),
        Some(args) => keyspace.aggregate(name, &args),
    };
    let Some(aggregate) = found else { return missing() };
    let types = aggregate.args.iter().map(CqlType::to_cql_name).collect();
    let change = SchemaChange::DropAggregate {
        keyspace: keyspace.name.clone(),
        name: aggregate.name.clone(),
        args: aggregate.args.clone(),
    };
    let target = SchemaEventTarget::Aggregate(types);
    Ok(DdlOutcome::one(change, SchemaEventKind::Dropped, target, keyspace_name, name))
}

#[cfg(test)]
mod tests;
