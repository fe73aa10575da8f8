//! CQL types and values: parse, validate, compare, serialise.
//!
//! Owns: the type tree ([`CqlType`]), its CQL and marshal names, the check of bytes against a type,
//! the order of values, text and JSON of values, wire forms of collections, tuples and vectors,
//! numbers, dates, durations and timeuuids, casts, arithmetic and aggregate states.
//! Never: clocks (the current time is an argument), randomness, IO, schema look-ups.
//!
//! Values are their wire bytes everywhere; null is the absence of bytes (`Option`), which is not the
//! empty value. Source of truth: Cassandra 5.0's `db.marshal` and `serializers` packages.
//!
//! Invariants: INV-compare-1 (see [`compare`]): the order is total over all byte strings.
//!
//! Reading order: [`cql_type`], [`wire`], [`compare`], [`literal`], [`format`], [`marshal`].

pub mod aggregate;
pub mod arithmetic;
pub mod cast;
pub mod compare;
pub mod compat;
pub mod cql_type;
pub mod custom;
pub mod duration;
pub mod elementary;
pub mod error;
pub mod format;
pub mod fuzz;
pub mod inet;
pub mod literal;
pub mod marshal;
pub mod name;
pub mod number;
pub mod temporal;
#[cfg(test)]
mod testing;
pub mod timeuuid;
mod validate;
pub mod wire;
mod zones;

pub use compare::Comparator;
pub use cql_type::{CqlType, UdtType};
pub use custom::CustomType;
pub use duration::Duration;
pub use error::TypeError;
pub use marshal::parse_marshal;
pub use number::Decimal;
