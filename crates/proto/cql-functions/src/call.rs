//! A call while its function is being made from the types of its arguments, and the errors of such calls.

use schema::Table;
use types::CqlType;

use crate::error::PlanError;
use crate::native::Argument;

/// Input of a factory of functions.
pub(crate) struct Call<'a> {
    pub(crate) name: &'a str,
    pub(crate) args: &'a [&'a dyn Argument],
    pub(crate) receiver: Option<&'a CqlType>,
    pub(crate) table: Option<&'a Table>,
}

/// The type a factory takes for its only argument.
pub(crate) fn one_type(call: &Call<'_>, parameter: &str) -> Result<CqlType, PlanError> {
    let [arg] = call.args else { return Err(wrong_count(call, parameter)) };
    arg.compatible_type().ok_or_else(|| cannot_infer(call, parameter, *arg))
}

pub(crate) fn wrong_count(call: &Call<'_>, parameters: &str) -> PlanError {
    PlanError::function_call(format!(
        "Invalid number of arguments for function system.{}({parameters})",
        call.name
    ))
}

pub(crate) fn cannot_infer(call: &Call<'_>, parameters: &str, arg: &dyn Argument) -> PlanError {
    PlanError::function_call(format!(
        "Cannot infer type of argument {} in call to function system.{}({parameters}): use type \
         casts to disambiguate",
        arg.text(),
        call.name
    ))
}

pub(crate) fn wrong_argument(
    call: &Call<'_>,
    what: &str,
    arg: &dyn Argument,
    ty: &CqlType,
) -> PlanError {
    PlanError::function_call(format!(
        "Function system.{} requires {what}, but found argument {} of type {ty}",
        call.name,
        arg.text()
    ))
}
