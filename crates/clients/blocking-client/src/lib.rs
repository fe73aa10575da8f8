//! The CQL and HTTP clients of tools that block: `cqlsh`, `bench`, `conformance`, `xtask`, `nodetool`.
//!
//! Owns: sockets (dialling, TLS), the waits of reads, the drivers that carry bytes between a socket
//! and the machines of `cql-client` and `http-client`, logins at the API ([`api`]), TLS of loads ([`load_tls`]). Never: frames, retries, what an answer means
//! to a person.
//!
//! Reading order: [`Socket`], [`CqlConnection`], [`http`], [`api`]. A tool: sockets, the clock.

pub mod api;
pub mod http;
pub mod load_tls;

mod cql;
mod socket;

#[cfg(test)]
mod tests;

pub use cql::{CqlConnection, CqlError, ReadWait};
pub use socket::{BegunHandshake, DialError, Endpoint, Socket, TlsPeer, Transport};
