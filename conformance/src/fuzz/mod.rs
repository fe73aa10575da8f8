//! The differential fuzzer: random tables and statements, valid and slightly wrong, whose answers
//! must be the same from two servers.
//!
//! Owns: the choices of a seed (`random`), literals that may be bound (`bound`), types and literals
//! (`types`), a table (`table`), its indexes (`index`), statements that write (`write`) and read (`select`, `restrict`), the
//! comparison of two answers (`compare`), an answer of the reference without its index (`scan`), a round (`round`), differences with a reason (`known`).
//! Never: chooses the next statement by an answer, so that a seed alone gives the statements.
//!
//! Time is the caller's: each request has `now_in_seconds`, so that TTLs expire at the same
//! statement on both servers.

pub mod bound;
pub mod compare;
pub mod index;
pub mod known;
pub mod random;
pub mod restrict;
pub mod round;
pub mod scan;
pub mod select;
pub mod table;
pub mod types;
pub mod write;
