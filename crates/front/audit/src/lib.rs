//! The audit log: who did what, from which address, with which outcome.
//!
//! Owns: events ([`event`]) and how finished requests become events ([`recorder`]), filters ([`filter`]),
//! Cassandra's line ([`line`]) and the binary format ([`binary`]), each shard's part ([`auditor`]); and what it shares
//! with the full query log: queues, writers, files ([`binlog`]). Never: executes a statement, decides whether one is
//! allowed.
//!
//! Invariants: see `binlog::queue` and `binlog::destination`.
//!
//! Reading order: `event`, `statement`, `mask`, `recorder`, `filter`, `known_events`, `line`, `binary`, `settings`, `binlog`, `table`, `auditor`.

pub mod auditor;
pub mod binary;
pub mod binlog;
mod counters;
pub mod event;
pub mod filter;
pub mod fuzz;
mod known_events;
pub mod line;
pub mod mask;
pub mod recorder;
pub mod settings;
pub mod statement;
mod table;

pub use auditor::{AdminEvent, AuditAnswer, AuditMesh, Auditor, AuditorParts};
pub use settings::{AuditHelper, AuditSettings};

#[cfg(test)]
mod tests;
