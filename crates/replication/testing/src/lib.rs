//! Shared fixtures for the tests of several crates of this layer.
//!
//! Owns: numbered nodes in a simulated world ([`Ground`]), their identities, members, stores and messaging;
//! a table with every kind of column and random writes to it ([`table`]); members as clients see them
//! ([`loopback`]).
//! Never: in a product (it is a dev-dependency only), checks (each test asserts its own conditions); never
//! depends on the crates whose tests use it.
//!
//! Invariants:
//! - INV-dist-testing-1: everything random follows from the seed that the caller gives.
//!
//! Reading order: [`Ground`], [`Replicas`], [`member`], [`snapshot`], [`table`].

mod ground;
pub mod loopback;
mod parts;
mod random;
pub mod table;

pub use ground::{Ground, ORACLE, Replicas, is_alive, run_on, spawn_on};
pub use parts::{PORT, host, identity, member, messaging, name, ring, serve, snapshot, store};
pub use random::Random;
