//! Invertible data: every written value identifies the operation that wrote it, so a model that
//! knows the operations of a partition knows each byte of every answer.
//!
//! Owns: values of all types from numbers and back (`kind`), random tables (`table`), the
//! operations of a partition (`operation`), their result (`model`), reads and their expected
//! answers (`read`). Never: talks to a server. Operations have timestamps of their own and may be
//! retried until they are acknowledged. So every runner, over the wire or in a simulator, with
//! faults or without, compares with one answer only.
//!
//! One partition must have one writer at a time. Timestamps are unique within a partition and do
//! not follow the order of the operations.

pub mod kind;
pub mod model;
pub mod operation;
pub mod read;
pub mod table;

/// A well-mixed number of several.
#[must_use]
pub fn mixed(parts: &[u64]) -> u64 {
    parts.iter().fold(0, |seed, part| crate::fuzz::random::Random::new(seed ^ part).bits())
}

#[cfg(test)]
mod tests;
