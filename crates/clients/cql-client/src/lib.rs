//! The client side of the native protocol, v3 to v5.
//!
//! Owns: one connection as a machine (login, requests to frames, bytes to answers), its driver over
//! `rt`, answers that own their memory, the ring as a client routes by it. Never: sockets, clocks,
//! retries, the meaning of an answer. The driver of tools that block is in `blocking-client`.
//!
//! Invariants:
//! - INV-cql-client-1: from the answer to STARTUP on, everything is sent and read as its version
//!   wants it (in segments from v5 on), and nothing before.
//! - INV-cql-client-2: an answer is handed out with the stream of its request; messages without a
//!   request (events) are never taken for one.
//!
//! Reading order: [`Machine`], [`Login`], [`Reply`], [`Connection`], [`TokenRing`].

mod answer;
mod connection;
mod event;
mod login;
mod machine;
mod ring;

#[cfg(test)]
mod tests;

pub use answer::{Answer, Column, Page, Prepared, Refusal, Reply, ServerError, cql_type};
pub use connection::{ClientError, ConnectOptions, Connection, Query, ReadPace};
pub use event::ServerEvent;
pub use login::{Login, LoginError};
pub use machine::{Machine, MessageFault, Received};
pub use ring::{TokenRing, push_key_part};
