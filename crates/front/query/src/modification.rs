//! What a client wants to write: statements with their values, and the terms of carrying them out.
//!
//! Functions that give another result each time (`uuid()`, `now()`, `current_timestamp()`): evaluated once in an
//! execution.
//!
//! A statement is bound more than once where it has conditions or must read lists first, and another node may
//! carry it out. The results of its calls are therefore put behind the values of its markers before anything
//! else, and whatever binds or forwards the statement from then on has them.

use crate::consistency::Allowed;
use crate::failure::Result;
use crate::prepared::Compiled;
use cluster::ClusterSnapshot;
use cql_plan::plan::{BoundValue, ExecuteOptions, with_results};
use cql_syntax::ast;
use cql_wire::{Consistency, WriteType};
use std::rc::Rc;
use std::sync::Arc;

/// A statement and its values.
pub(crate) type Statement<'s> = (&'s Rc<Compiled>, &'s [BoundValue<'s>]);

/// What a client wants to write.
pub(crate) struct Modification<'m> {
    /// One statement (also a batch as text), or those of a batch message in order.
    pub(crate) statements: &'m [Statement<'m>],
    /// Of a batch message.
    pub(crate) batch: Option<ast::BatchKind>,
    pub(crate) consistency: Consistency,
    /// Whether the writes are logged in the commit log, and go to several nodes.
    pub(crate) allowed: Allowed,
    pub(crate) options: ExecuteOptions<'m>,
    /// The request came with a timestamp: `options.default_timestamp` is the client's.
    pub(crate) has_timestamp: bool,
}

/// How writes are carried out and answered.
pub(crate) struct WriteOrder {
    pub(crate) consistency: Consistency,
    pub(crate) write_type: WriteType,
    pub(crate) warnings: Vec<String>,
    /// `USING TIMEOUT`.
    pub(crate) timeout_nanos: Option<u64>,
    /// The metadata the request began with, when other nodes may have the data too.
    pub(crate) snapshot: Option<Arc<ClusterSnapshot>>,
}

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
