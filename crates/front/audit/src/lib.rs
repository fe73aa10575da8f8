//! The audit log: who did what, from which address, with which outcome.
//!
//! Owns: events ([`event`]) and how finished requests become events ([`recorder`]), filters ([`filter`]), the queue
//! between requests and writers ([`queue`]), Cassandra's line ([`line`]) and the binary format ([`binary`]), names and
//! rolling of files ([`rolling`]); and, thin, the files ([`files`]), the destinations (`destination`) and each
//! shard's part ([`auditor`]). Never: executes
//! a statement, decides whether one is allowed.
//!
//! Invariants: see `queue` and `destination`.
//!
//! Reading order: `event`, `statement`, `mask`, `recorder`, `filter`, `queue`, `line`, `binary`, `rolling`,
//! `settings`, `files`, `destination`, `auditor`.

pub mod auditor;
pub mod binary;
mod counters;
mod destination;
pub mod event;
pub mod files;
pub mod filter;
pub mod fuzz;
pub mod line;
pub mod mask;
pub mod queue;
pub mod recorder;
pub mod rolling;
pub mod settings;
pub mod statement;

pub use auditor::{AdminEvent, AuditMesh, Auditor, AuditorParts};
pub use settings::{AuditHelper, AuditSettings};

#[cfg(test)]
mod tests;
