//! BATCH messages: statements by id or text, each with its values, as one write.

use super::{plan_value, text_source, trace_parameters};
use crate::conditional;
use crate::consistency::{Access, Allowed, check};
use crate::context::{Cx, Step, Values};
use crate::executor::Executor;
use crate::failure::{Failure, Result};
use crate::guardrails;
use crate::modification::{Modification, Statements, WithValues};
use crate::prepare::{check_keyspace, current};
use crate::prepared::{Compiled, parse};
use crate::sink::{Describe, ResultSink};
use crate::write::modify;
use cql_plan::ModifyPlan;
use cql_syntax::ast;
use cql_wire::{Batch, BatchKind, BatchQuery};
use smallvec::SmallVec;
use std::rc::Rc;

/// Error for other statements in a batch.
pub(crate) const NOT_IN_BATCH: &str =
    "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed.";

/// Executes a BATCH message.
///
/// # Errors
/// It is invalid, or it failed at once.
pub fn batch<S: ResultSink>(request: &Batch<'_>, cx: &mut Cx<'_, S>) -> Result<Step<S::Answer>> {
    cx.executor.counters.batches.inc();
    let parameters = &request.parameters;
    if let Some(trace) = &cx.ticket.trace {
        trace.describe("Execute batch of CQL3 queries", trace_parameters(parameters));
    }
    let used = cx.sink.client().keyspace.borrow().clone();
    check_keyspace(cx.executor, parameters.keyspace)?;
    let keyspace = parameters.keyspace.or(used.as_deref());
    let Parts { mut compiled, values } = parts(request, keyspace, cx.executor)?;
    let has_conditions = compiled.iter().any(Compiled::is_conditional);
    if has_conditions {
        for (one, statement) in compiled.iter_mut().zip(request.statements.iter()) {
            if let BatchQuery::Text(text) = statement.query {
                one.set_source(text_source(text, keyspace));
            }
        }
    }
    let mut allowed = Allowed::default();
    if let Some(watch) = cx.ticket.watch() {
        let (consistency, serial) = (parameters.consistency, parameters.serial_consistency);
        guardrails::check_write_levels(watch, consistency, serial)?;
    }
    let mut statements: Vec<WithValues<'_, ModifyPlan>> = Vec::with_capacity(compiled.len());
    for (one, values) in compiled.iter().zip(&values) {
        let Compiled::Modify(statement) = one else {
            return Err(Failure::invalid(NOT_IN_BATCH));
        };
        statements.push(WithValues { statement, values });
        crate::access::authorize(cx.executor, cx.sink.client(), one)?;
        if has_conditions {
            continue;
        }
        let of_one = check(cx.executor, &statement.header, parameters.consistency, Access::Write)?;
        allowed = allowed.and(of_one);
    }
    let kind = match request.kind {
        BatchKind::Logged => ast::BatchKind::Logged,
        BatchKind::Unlogged => ast::BatchKind::Unlogged,
        BatchKind::Counter => ast::BatchKind::Counter,
    };
    let modification = Modification {
        statements: Statements::Message(kind, &statements),
        consistency: parameters.consistency,
        allowed,
        options: cx.options(parameters),
        has_timestamp: parameters.timestamp.is_some(),
    };
    if has_conditions {
        let serial = parameters.serial_consistency;
        return conditional::run(&modification, serial, Describe::Full, cx);
    }
    modify(&modification, cx)
}

/// The statements of a message and their values.
struct Parts<'v> {
    compiled: SmallVec<[Compiled; 8]>,
    values: SmallVec<[Values<'v>; 8]>,
}

/// Finds or plans the statements, and checks the number of values of each.
fn parts<'v>(
    request: &Batch<'v>,
    keyspace: Option<&str>,
    executor: &Rc<Executor>,
) -> Result<Parts<'v>> {
    let mut compiled: SmallVec<[Compiled; 8]> = SmallVec::new();
    let mut values: SmallVec<[Values<'_>; 8]> = SmallVec::new();
    // Most batches are one statement with many values: the lookup is reused for the next.
    let mut last: Option<&[u8]> = None;
    for statement in request.statements.iter() {
        let id = match statement.query {
            BatchQuery::Prepared(id) => Some(id),
            BatchQuery::Text(_) => None,
        };
        let before = if id.is_some() && id == last { compiled.last().cloned() } else { None };
        last = id;
        let one = match (before, statement.query) {
            (Some(before), _) => before,
            (None, BatchQuery::Prepared(id)) => {
                let Some(prepared) = executor.prepared.get(id) else {
                    return Err(Failure::Unprepared(id.to_vec()));
                };
                current(executor, &prepared)?
            }
            (None, BatchQuery::Text(text)) => {
                let snapshot = executor.snapshot();
                let (limits, now) = (&executor.plan_limits, executor.rt.wall());
                Compiled::new(&parse(text)?, &snapshot, keyspace, limits, now)?
            }
        };
        let given: Values<'_> = statement.values.values().map(plan_value).collect();
        let markers = one.header().inputs.binds.len();
        if given.len() != markers {
            return Err(Failure::invalid(format!(
                "There were {markers} markers(?) in CQL but {} bound variables",
                given.len()
            )));
        }
        compiled.push(one);
        values.push(given);
    }
    Ok(Parts { compiled, values })
}
