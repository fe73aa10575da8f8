//! The full query log: every statement that succeeded, with what is needed to execute it again.
//!
//! Owns: the record ([`record`]), our files ([`format`], [`framing`]), the reader of Cassandra's files ([`chronicle`]). Never: names of files, sockets, clocks, executing
//! a statement.
//!
//! Invariants:
//! - INV-querylog-1: every byte of a record is covered by a checksum or by a check of its value; a record is returned
//!   whole or not at all.
//! - INV-querylog-2: no input panics a reader or makes it allocate more than a small multiple of the input's size.
//!
//! Reading order: [`record`], [`framing`], [`format`], [`chronicle`].

#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod chronicle;
pub mod format;
pub mod framing;
pub mod fuzz;
pub mod record;

pub use cql_wire::BatchKind;
pub use record::{BatchQuery, LoggedStatement, LoggedValue, QueryRecord};
