//! The state of an aggregate over the rows of a group, native or a user's.

use codec::{DecodeError, Reader};
use types::aggregate::Aggregate;

use crate::error::PlanError;
use crate::functions::EvalEnv;
use crate::functions::user::CallableAggregate;

/// A state.
#[derive(Clone, Debug)]
pub(crate) enum Accumulator {
    Native(Aggregate),
    User(Box<CallableAggregate>, Option<Vec<u8>>),
}

impl Accumulator {
    /// The state of a user's aggregate before the first row.
    pub(crate) fn user(aggregate: CallableAggregate) -> Accumulator {
        let initial = aggregate.definition.initial.clone();
        Accumulator::User(Box::new(aggregate), initial)
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
                aggregate.add(arg).map_err(crate::term::invalid_value)
            }
            Accumulator::User(aggregate, state) => {
                aggregate.add(state, args, env)?;
                Ok(false)
            }
        }
    }

    /// Not a user's.
    pub(crate) fn is_native(&self) -> bool {
        matches!(self, Accumulator::Native(_))
    }

    /// See [`Aggregate::can_be_merged`]; of users' nobody knows.
    pub(crate) fn can_be_merged(&self) -> bool {
        match self {
            Accumulator::Native(aggregate) => aggregate.can_be_merged(),
            Accumulator::User(..) => false,
        }
    }

    /// Takes in what the same aggregate has of other rows: see [`Aggregate::merge`].
    pub(crate) fn merge(&mut self, other: Accumulator, is_before: bool) -> Result<bool, PlanError> {
        match (self, other) {
            (Accumulator::Native(aggregate), Accumulator::Native(other)) => {
                aggregate.merge(other, is_before).map_err(crate::term::invalid_value)
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

    /// The state of the same aggregate that was encoded.
    pub(crate) fn decode_state(&self, reader: &mut Reader<'_>) -> Result<Accumulator, DecodeError> {
        match self {
            Accumulator::Native(start) => Ok(Accumulator::Native(start.decode_state(reader)?)),
            Accumulator::User(..) => Err(reader.invalid(0)),
        }
    }

    /// The result over the rows so far.
    pub(crate) fn result(&self, env: &EvalEnv<'_>) -> Result<Option<Vec<u8>>, PlanError> {
        match self {
            Accumulator::Native(aggregate) => {
                aggregate.result().map_err(crate::term::invalid_value)
            }
            Accumulator::User(aggregate, state) => aggregate.result(state.as_deref(), env),
        }
    }
}
