//! CQL connections, prepared statements, execution, results, events, authentication.
//!
//! Owns: everything between a client's bytes and the coordinator: the handshake and the turns of
//! [`Connection`], limits and overload, prepared statements, the way of a statement from text or id
//! to its answer, schema changes as clients ask for them, events, traces, virtual tables. Never:
//! parses frames (that is `cql-wire`) or statements (`cql-syntax`), decides what a statement means
//! (`cql-plan`), stores anything (`coordinator`, `membership`).
//!
//! Invariants: INV-connection-1: the answer of a write is in the output only after a commit that
//! followed it. INV-connection-2: whatever bytes arrive, only this connection is affected.
//! INV-prepared-1 and -2: see `prepared`.
//!
//! Reading order: `settings`, `account`, `server`, `accept`, `connection`, `running`, `driver`, `execute`, `select`,
//! `conditional`, `forwarded`, `replicas`, `schema_change`, `role_change`, `access`, `disk_usage`, `topology_events`, `prepared`, `failure`.

mod accept;
mod access;
mod account;
mod auth;
mod conditional;
mod connection;
mod counters;
mod describe;
mod disk_usage;
mod driver;
mod execute;
mod failure;
mod forwarded;
pub mod fuzz;
mod guardrails;
mod internal;
mod latency;
mod list_write;
mod mesh;
mod patience;
mod pending;
mod prepared;
mod replicas;
mod role_change;
mod running;
mod scanned;
mod schema_change;
mod select;
mod server;
mod session;
mod settings;
mod tombstones;
mod topology_events;
mod trace;
mod truncate_table;
mod virtual_tables;
mod wire_type;

pub use connection::Connection;
pub use guardrails::{Guardrails, TimestampGuardrails};
pub use internal::{Content, RowWrite, encode_row};
pub use latency::TableLatencies;
pub use mesh::{ClientInfo, ServerMesh};
pub use server::{CqlServer, ServerParts};
pub use settings::{Authentication, ServerSettings, Timeout};
pub use virtual_tables::{NoVirtualSource, VirtualRow, VirtualRows, VirtualSource};

#[cfg(test)]
mod tests;
