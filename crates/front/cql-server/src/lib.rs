//! CQL connections: the handshake, frames to statements and back, events, authentication.
//!
//! Owns: everything between a client's bytes and [`query`]: the turns of [`Connection`], limits and overload, results
//! as frames ([`query::ResultSink`]), failures as ERROR frames, events, virtual tables about connections. Never:
//! parses frames (`cql-wire`), executes statements (`query`).
//!
//! Invariants: see `connection`.
//!
//! Imports go one way, from `assembly` over `accept`, `driver`, `connection` and `login` to `server` and `session`.
//!
//! Reading order: `settings`, `server`, `assembly`, `accept`, `connection`, `admission`, `frame_sink`, `running`, `held`, `commits`, `observed`, `driver`,
//! `session`, `login`, `login_desk`, `role_connections`, `request_rates`, `certificate_login`, `error_frame`, `forwarded`, `schema_events`,
//! `topology_events`, `connection_tables`.

mod accept;
mod admission;
mod assembly;
mod auth;
mod certificate_login;
mod client_info;
mod commits;
mod connection;
mod connection_tables;
mod counters;
mod driver;
mod error_frame;
mod first_of;
mod forwarded;
mod frame_sink;
pub mod fuzz;
mod held;
mod login;
mod login_attempt;
mod login_desk;
mod login_log;
mod login_queues;
mod mesh;
mod observed;
mod observed_requests;
mod pending;
mod port;
mod request_rates;
mod role_connections;
mod running;
mod schema_events;
mod server;
mod session;
mod settings;
mod topology_events;

pub use assembly::ServerParts;
pub use certificate_login::{CertificateLogin, RoleOfIdentity};
pub use client_info::ClientInfo;
pub use connection::Connection;
pub use login_attempt::{LoginAttempt, LoginRefusal};
pub use mesh::ServerMesh;
pub use port::{CertificateLimits, ClientChecks, Placement, Port, PortEncryption};
pub use request_rates::RateLimits;
pub use server::CqlServer;
pub use settings::{Authentication, ServerSettings};

#[cfg(test)]
mod tests;
