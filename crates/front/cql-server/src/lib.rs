//! CQL connections: the handshake, frames to statements and back, events, authentication.
//!
//! Owns: everything between a client's bytes and [`query`]: the turns of [`Connection`], limits and overload, results
//! as frames ([`query::ResultSink`]), failures as ERROR frames, events, virtual tables about connections. Never:
//! parses frames (`cql-wire`), executes statements (`query`).
//!
//! Invariants: see `connection`.
//!
//! Reading order: `settings`, `server`, `accept`, `connection`, `frame_sink`, `running`, `held`, `observed`, `driver`, `session`,
//! `login`, `certificate_login`, `error_frame`, `forwarded`, `schema_events`, `topology_events`, `connection_tables`.

mod accept;
mod auth;
mod certificate_login;
mod connection;
mod connection_tables;
mod counters;
mod driver;
mod error_frame;
mod forwarded;
mod frame_sink;
pub mod fuzz;
mod held;
mod login;
mod mesh;
mod observed;
mod observed_requests;
mod pending;
mod port;
mod running;
mod schema_events;
mod server;
mod session;
mod settings;
mod topology_events;

pub use certificate_login::{CertificateLogin, RoleOfIdentity};
pub use connection::Connection;
pub use login::{LoginAttempt, LoginRefusal};
pub use mesh::{ClientInfo, ServerMesh};
pub use port::{CertificateLimits, Placement, Port, PortEncryption};
pub use server::{CqlServer, ServerParts};
pub use settings::{Authentication, ServerSettings};

#[cfg(test)]
mod tests;
