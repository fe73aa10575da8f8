//! Password hashing off the shards, and the slow-down of failed logins.
//!
//! Owns: bcrypt hashes ([`password`]), the pool of threads that compute them ([`PasswordPool`]), which login waits for
//! how long ([`Slowdown`]). Never: roles, connections, error texts of clients.
//!
//! Invariants:
//! - INV-logins-1: no shard computes a password hash.
//! - INV-logins-2: failed logins of other addresses never refuse a login; they delay it by at most
//!   [`slowdown::ROLE_DELAY_MAX`], and not at all where the role has logged in from this address before. A login under
//!   way counts like a failure until it ends.
//! - INV-logins-3: the state about failed logins is bounded, whatever names and addresses are tried.
//!
//! Reading order: `slowdown`, `password`, `pool`.

#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod password;
pub mod pool;
pub mod slowdown;

pub use pool::{PasswordPool, Passwords};
pub use slowdown::{Admission, Login, LoginQueue, Slowdown, Verdict};
