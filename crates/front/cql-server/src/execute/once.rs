//! Functions that give another result each time (`uuid()`, `now()`, `current_timestamp()`): evaluated once in an
//! execution.
//!
//! A statement is bound more than once where it has conditions or must read lists first, and another node may
//! carry it out. The results of its calls are therefore put behind the values of its markers before anything
//! else, and whatever binds or forwards the statement from then on has them.

use super::{Modification, Statement};
use crate::failure::Result;
use cql_plan::plan::{BoundValue, with_results};

/// Runs with a request whose calls are evaluated.
///
/// # Errors
/// What `run` gives; a function that fails.
pub(crate) fn with_calls_evaluated<T>(
    request: &Modification<'_>,
    run: impl FnOnce(&Modification<'_>) -> Result<T>,
) -> Result<T> {
    if request.statements.iter().all(|(compiled, _)| compiled.plan.calls.is_empty()) {
        return run(request);
    }
    let mut results = Vec::with_capacity(request.statements.len());
    for (compiled, values) in request.statements {
        results.push(compiled.plan.evaluate_calls(values, &request.options)?);
    }
    let values: Vec<Vec<BoundValue<'_>>> = request
        .statements
        .iter()
        .zip(&results)
        .map(|((_, values), results)| with_results(values, results.as_deref().unwrap_or_default()))
        .collect();
    let statements: Vec<Statement<'_>> = request
        .statements
        .iter()
        .zip(&values)
        .map(|((compiled, _), values)| (*compiled, values.as_slice()))
        .collect();
    run(&Modification {
        statements: &statements,
        batch: request.batch,
        consistency: request.consistency,
        allowed: request.allowed,
        options: request.options,
        has_timestamp: request.has_timestamp,
    })
}
