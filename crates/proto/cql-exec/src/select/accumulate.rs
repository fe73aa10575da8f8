//! The state of an aggregate over the rows of a group, native or a user's.

use codec::{DecodeError, Reader};
use cql_functions::user::CallableAggregate;
use cql_functions::{EvalEnv, PlanError};
use cql_plan::select::AggregateFunction;
use types::aggregate::{Aggregate, Came};

/// A state.
#[derive(Clone, Debug)]
pub(crate) enum Accumulator {
    Native(Aggregate),
    User(Box<CallableAggregate>, Option<Vec<u8>>),
}

impl Accumulator {
    /// The state before the first row.
    pub(crate) fn start(function: &AggregateFunction) -> Accumulator {
        match function {
            AggregateFunction::Native(aggregate) => Accumulator::Native(aggregate.clone()),
            AggregateFunction::User(aggregate) => {
                Accumulator::User(aggregate.clone(), aggregate.definition.initial.clone())
            }
        }
    }

    /// Takes a row in. Without arguments a native aggregate counts rows. Whether the row has the least or greatest
    /// value so far, and is the first that has.
    pub(crate) fn add(
        &mut self,
        args: &[Option<&[u8]>],
        env: &EvalEnv<'_>,
    ) -> Result<bool, PlanError> {
        match self {
            Accumulator::Native(aggregate) => {
                let arg = args.first().copied().unwrap_or(Some(&[]));
                aggregate.add(arg).map_err(PlanError::from)
            }
            Accumulator::User(aggregate, state) => {
                aggregate.add(state, args, env)?;
                Ok(false)
            }
        }
    }

    /// Merges the state of the same aggregate over other rows: see [`Aggregate::merge`].
    pub(crate) fn merge(&mut self, other: Accumulator, came: Came) -> Result<bool, PlanError> {
        match (self, other) {
            (Accumulator::Native(aggregate), Accumulator::Native(other)) => {
                aggregate.merge(other, came).map_err(PlanError::from)
            }
            _ => Err(PlanError::invalid("aggregates that do not fit")),
        }
    }

    /// Appends the state; false: it is a user's, whose states stay where they are.
    pub(crate) fn encode_state(&self, out: &mut Vec<u8>) -> bool {
        let Accumulator::Native(aggregate) = self else { return false };
        aggregate.encode_state(out);
        true
    }

    /// The state of an aggregate that was encoded.
    pub(crate) fn decode_state(
        function: &AggregateFunction,
        reader: &mut Reader<'_>,
    ) -> Result<Accumulator, DecodeError> {
        match function {
            AggregateFunction::Native(start) => {
                Ok(Accumulator::Native(start.decode_state(reader)?))
            }
            AggregateFunction::User(_) => Err(reader.invalid(0)),
        }
    }

    /// The result over the rows so far.
    pub(crate) fn result(&self, env: &EvalEnv<'_>) -> Result<Option<Vec<u8>>, PlanError> {
        match self {
            Accumulator::Native(aggregate) => aggregate.result().map_err(PlanError::from),
            Accumulator::User(aggregate, state) => aggregate.result(state.as_deref(), env),
        }
    }
}
