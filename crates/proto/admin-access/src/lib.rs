//! Logins at the administrative API: who a client is, and what it may do.
//!
//! Owns: credentials in the `Authorization` header ([`Credentials`]), hashed bearer tokens and their file ([`Tokens`]),
//! scopes of logins ([`AccessScope`]) and what each may do ([`decide`]), the delay of answers to failed logins
//! with tokens and certificates ([`FailedLogins`]), the password file of nodetool ([`password_file`]). Never: sockets, files, clocks, hashing of
//! passwords.
//!
//! Invariants:
//! - INV-scope-1: what a request needs is decided by its row in the table of routes; a request without a row needs the
//!   operator's scope.
//! - INV-scope-2: a secret is compared in time that does not depend on how much of it is right.
//! - INV-scope-3: no input panics a reader, and the memory of failed logins is bounded.
//!
//! Reading order: [`scope`], [`credentials`], [`tokens`], [`failures`].

#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod base64;
pub mod credentials;
pub mod failures;
pub mod fuzz;
pub mod password_file;
pub mod scope;
pub mod tokens;

pub use credentials::{Credentials, Secret};
pub use failures::FailedLogins;
pub use scope::{AccessScope, Decision, Need, Principal, RolePermissions, decide, scope_of_role};
pub use tokens::{Token, TokenFileError, Tokens};
