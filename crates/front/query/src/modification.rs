//! Writes of a client: statements with their values, and the terms of their execution.
//!
//! Owns: the forms of a write ([`Statements`]), each with its typed plan. A form is chosen once, where a request
//! begins ([`crate::execute`], [`crate::forwarded`]); a plan that is no write cannot be in one.
//!
//! Functions that give another result each time (`uuid()`, `now()`, `current_timestamp()`) are evaluated once in an
//! execution. A statement is bound more than once if it has conditions or must read lists first, and another node
//! may execute it. The results of its calls are therefore appended to the values of its markers first. Every later
//! step that binds or forwards the statement uses them.

use crate::consistency::Allowed;
use crate::failure::Result;
use crate::latency::Latencies;
use crate::owned_values::OwnedValues;
use crate::prepared::{CompiledPlan, Source};
use cluster::ClusterSnapshot;
use cql_plan::cas::CasStatement;
use cql_plan::plan::{BoundValue, ExecuteOptions, with_results};
use cql_plan::{BatchPlan, ListRead, ModifyPlan, PlanError};
use cql_syntax::ast::BatchKind;
use cql_wire::{Consistency, WriteType};
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;

/// A statement and its values.
pub(crate) struct WithValues<'m, P> {
    pub(crate) statement: &'m Rc<CompiledPlan<P>>,
    pub(crate) values: &'m [BoundValue<'m>],
}

impl<P> Clone for WithValues<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for WithValues<'_, P> {}

impl<'m, P> WithValues<'m, P> {
    fn has_calls(&self) -> bool {
        !self.statement.header.inputs.calls.is_empty()
    }

    /// The results of its calls; none where they are among the values already.
    fn results(&self, options: &ExecuteOptions<'_>) -> Result<Vec<Option<Vec<u8>>>> {
        let results = self.statement.header.inputs.evaluate_calls(self.values, options)?;
        Ok(results.unwrap_or_default())
    }

    fn source(&self) -> (Option<&'m Source>, &'m [BoundValue<'m>]) {
        (self.statement.header.source.as_ref(), self.values)
    }
}

/// The statements of a write.
#[derive(Clone, Copy)]
pub(crate) enum Statements<'m> {
    /// INSERT, UPDATE or DELETE.
    One(WithValues<'m, ModifyPlan>),
    /// BEGIN BATCH.
    TextBatch(WithValues<'m, BatchPlan>),
    /// Those of a BATCH message, in order.
    Message(BatchKind, &'m [WithValues<'m, ModifyPlan>]),
}

impl<'m> Statements<'m> {
    /// All modifications in order, each with its values.
    pub(crate) fn modifications(&self) -> impl Iterator<Item = CasStatement<'m>> {
        let (plans, values, parts): (&[ModifyPlan], _, &[WithValues<'m, ModifyPlan>]) = match *self
        {
            Statements::One(one) => (std::slice::from_ref(&one.statement.plan), one.values, &[]),
            Statements::TextBatch(batch) => (batch.statement.plan.statements(), batch.values, &[]),
            Statements::Message(_, parts) => (&[], &[], parts),
        };
        let parts = parts.iter().map(|part| (&part.statement.plan, part.values));
        plans.iter().map(move |plan| (plan, values)).chain(parts)
    }

    /// Returns the source of each statement, and its values.
    pub(crate) fn sources(&self) -> SmallVec<[(Option<&'m Source>, &'m [BoundValue<'m>]); 1]> {
        match self {
            Statements::One(one) => std::iter::once(one.source()).collect(),
            Statements::TextBatch(batch) => std::iter::once(batch.source()).collect(),
            Statements::Message(_, parts) => parts.iter().map(WithValues::source).collect(),
        }
    }

    /// Returns true if one of them has IF.
    pub(crate) fn has_conditions(&self) -> bool {
        match self {
            Statements::One(one) => one.statement.plan.has_conditions(),
            Statements::TextBatch(batch) => batch.statement.plan.has_conditions(),
            Statements::Message(_, parts) => {
                parts.iter().any(|part| part.statement.plan.has_conditions())
            }
        }
    }

    /// Returns true if one of them has its own timestamp.
    pub(crate) fn has_timestamp(&self) -> bool {
        match self {
            Statements::One(one) => one.statement.plan.has_timestamp(),
            Statements::TextBatch(batch) => batch.statement.plan.has_timestamp(),
            Statements::Message(_, parts) => {
                parts.iter().any(|part| part.statement.plan.has_timestamp())
            }
        }
    }

    /// Returns true if they need more than binding and applying: a read of lists, or a leader for
    /// counters.
    pub(crate) fn takes_detour(&self) -> bool {
        match self {
            Statements::One(one) => one.statement.plan.takes_detour(),
            Statements::TextBatch(batch) => batch.statement.plan.takes_detour(),
            Statements::Message(_, parts) => {
                parts.iter().any(|part| part.statement.plan.takes_detour())
            }
        }
    }

    /// Returns true if one of them is on counters.
    pub(crate) fn is_counter(&self) -> bool {
        match self {
            Statements::One(one) => one.statement.plan.is_counter(),
            Statements::TextBatch(batch) => batch.statement.plan.is_counter(),
            Statements::Message(_, parts) => {
                parts.iter().any(|part| part.statement.plan.is_counter())
            }
        }
    }

    /// Notes whose latency the request counts for.
    pub(crate) fn note_tables(&self, latencies: &Latencies) {
        match self {
            Statements::One(one) => latencies.note_table(one.statement.plan.table().id),
            Statements::TextBatch(batch) => {
                let tables = batch.statement.plan.statements().iter().map(|plan| plan.table().id);
                tables.for_each(|id| latencies.note_table(id));
            }
            Statements::Message(_, parts) => {
                let tables = parts.iter().map(|part| part.statement.plan.table().id);
                tables.for_each(|id| latencies.note_table(id));
            }
        }
    }

    /// Returns the value of `USING TIMEOUT`, in nanoseconds; a BATCH message cannot have it.
    ///
    /// # Errors
    /// The value is null, negative, or has months or days.
    pub(crate) fn timeout_nanos(&self, options: &ExecuteOptions<'_>) -> Result<Option<u64>> {
        Ok(match self {
            Statements::One(one) => one.statement.plan.timeout_nanos(one.values, options)?,
            Statements::TextBatch(batch) => {
                batch.statement.plan.timeout_nanos(batch.values, options)?
            }
            Statements::Message(..) => None,
        })
    }

    /// Returns the reads that must precede binding, up to the first statement with an invalid
    /// primary key, and the error of that key.
    pub(crate) fn list_reads(
        &self,
        options: &ExecuteOptions<'_>,
    ) -> (Vec<ListRead>, Option<PlanError>) {
        match self {
            Statements::TextBatch(batch) => batch.statement.plan.list_reads(batch.values, options),
            Statements::One(one) => match one.statement.plan.list_reads(one.values, options) {
                Ok(reads) => (reads, None),
                Err(error) => (Vec::new(), Some(error)),
            },
            Statements::Message(_, parts) => {
                let mut reads = Vec::new();
                for part in *parts {
                    match part.statement.plan.list_reads(part.values, options) {
                        Ok(more) => reads.extend(more),
                        Err(error) => return (reads, Some(error)),
                    }
                }
                (reads, None)
            }
        }
    }

    fn has_calls(&self) -> bool {
        match self {
            Statements::One(one) => one.has_calls(),
            Statements::TextBatch(batch) => batch.has_calls(),
            Statements::Message(_, parts) => parts.iter().any(WithValues::has_calls),
        }
    }
}

/// A statement and its values that outlive their request.
pub(crate) struct OwnedStatement<P> {
    statement: Rc<CompiledPlan<P>>,
    values: OwnedValues,
}

impl<P> OwnedStatement<P> {
    fn of(one: &WithValues<'_, P>) -> OwnedStatement<P> {
        OwnedStatement { statement: one.statement.clone(), values: OwnedValues::of(one.values) }
    }
}

/// [`Statements`] that outlive their request.
pub(crate) enum OwnedStatements {
    One(OwnedStatement<ModifyPlan>),
    TextBatch(OwnedStatement<BatchPlan>),
    Message(BatchKind, Vec<OwnedStatement<ModifyPlan>>),
}

impl OwnedStatements {
    pub(crate) fn of(statements: &Statements<'_>) -> OwnedStatements {
        match statements {
            Statements::One(one) => OwnedStatements::One(OwnedStatement::of(one)),
            Statements::TextBatch(batch) => OwnedStatements::TextBatch(OwnedStatement::of(batch)),
            Statements::Message(kind, parts) => {
                OwnedStatements::Message(*kind, parts.iter().map(OwnedStatement::of).collect())
            }
        }
    }

    /// Runs with the statements.
    pub(crate) fn with<T>(&self, run: impl FnOnce(&Statements<'_>) -> T) -> T {
        match self {
            OwnedStatements::One(OwnedStatement { statement, values }) => {
                let values = values.borrow();
                run(&Statements::One(WithValues { statement, values: &values }))
            }
            OwnedStatements::TextBatch(OwnedStatement { statement, values }) => {
                let values = values.borrow();
                run(&Statements::TextBatch(WithValues { statement, values: &values }))
            }
            OwnedStatements::Message(kind, parts) => {
                let values: Vec<_> = parts.iter().map(|part| part.values.borrow()).collect();
                let parts: Vec<WithValues<'_, ModifyPlan>> = parts
                    .iter()
                    .zip(&values)
                    .map(|(part, values)| WithValues { statement: &part.statement, values })
                    .collect();
                run(&Statements::Message(*kind, &parts))
            }
        }
    }

    /// The values of each statement.
    pub(crate) fn values(&self) -> Vec<Vec<BoundValue<'_>>> {
        match self {
            OwnedStatements::One(one) => vec![one.values.borrow()],
            OwnedStatements::TextBatch(batch) => vec![batch.values.borrow()],
            OwnedStatements::Message(_, parts) => {
                parts.iter().map(|part| part.values.borrow()).collect()
            }
        }
    }

    /// All modifications in order, each with its values out of [`OwnedStatements::values`].
    pub(crate) fn modifications<'s>(
        &'s self,
        values: &'s [Vec<BoundValue<'s>>],
    ) -> Vec<CasStatement<'s>> {
        match self {
            OwnedStatements::One(one) => {
                values.iter().map(|values| (&one.statement.plan, values.as_slice())).collect()
            }
            OwnedStatements::TextBatch(batch) => {
                let plans = batch.statement.plan.statements().iter();
                let each = |values: &'s Vec<_>| plans.clone().map(move |p| (p, values.as_slice()));
                values.iter().flat_map(each).collect()
            }
            OwnedStatements::Message(_, parts) => {
                let plans = parts.iter().map(|part| &part.statement.plan);
                plans.zip(values.iter().map(Vec::as_slice)).collect()
            }
        }
    }
}

/// A write of a client.
pub(crate) struct Modification<'m> {
    pub(crate) statements: Statements<'m>,
    pub(crate) consistency: Consistency,
    /// Properties of the tables: are writes logged in the commit log, do they go to several nodes.
    pub(crate) allowed: Allowed,
    pub(crate) options: ExecuteOptions<'m>,
    /// The request came with a timestamp: `options.default_timestamp` is the client's.
    pub(crate) has_timestamp: bool,
}

impl Modification<'_> {
    fn with<'n>(&'n self, statements: Statements<'n>) -> Modification<'n> {
        Modification {
            statements,
            consistency: self.consistency,
            allowed: self.allowed,
            options: self.options,
            has_timestamp: self.has_timestamp,
        }
    }
}

/// Result of the checks before a write.
pub(crate) struct Checked {
    /// `USING TIMEOUT`.
    pub(crate) timeout_nanos: Option<u64>,
    /// Warnings to the client.
    pub(crate) warnings: Vec<String>,
}

/// Terms of the execution and the answer of writes.
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
/// The errors of `run`; a function that fails.
pub(crate) fn with_calls_evaluated<T>(
    request: &Modification<'_>,
    run: impl FnOnce(&Modification<'_>) -> Result<T>,
) -> Result<T> {
    if !request.statements.has_calls() {
        return run(request);
    }
    match request.statements {
        Statements::One(one) => {
            let results = one.results(&request.options)?;
            let values = with_results(one.values, &results);
            let one = WithValues { values: &values, ..one };
            run(&request.with(Statements::One(one)))
        }
        Statements::TextBatch(batch) => {
            let results = batch.results(&request.options)?;
            let values = with_results(batch.values, &results);
            let batch = WithValues { values: &values, ..batch };
            run(&request.with(Statements::TextBatch(batch)))
        }
        Statements::Message(kind, parts) => {
            let results = parts.iter().map(|part| part.results(&request.options));
            let results = results.collect::<Result<Vec<_>>>()?;
            let values: Vec<Vec<BoundValue<'_>>> = parts
                .iter()
                .zip(&results)
                .map(|(part, results)| with_results(part.values, results))
                .collect();
            let parts: Vec<WithValues<'_, ModifyPlan>> = parts
                .iter()
                .zip(&values)
                .map(|(part, values)| WithValues { statement: part.statement, values })
                .collect();
            run(&request.with(Statements::Message(kind, &parts)))
        }
    }
}
