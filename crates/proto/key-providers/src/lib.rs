//! Providers of keys for encryption at rest: HashiCorp Vault (transit) and AWS KMS or a service with its protocol.
//!
//! Owns: the requests of a provider and the meaning of its answers ([`vault`], [`kms`]), signatures ([`sigv4`]), what is
//! asked, retried, refreshed and forgotten when ([`service`]). Never: sockets, files, clocks; `key-client` has them.
//!
//! Invariants: INV-key-providers-1: each waiting request is answered once, by its deadline at the next poll.
//! INV-key-providers-2: no error or log line contains a key, a token or a credential.
//!
//! Reading order: [`provider`], [`vault`], [`kms`], [`sigv4`], [`service`].

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::expect_used
)]
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

pub mod fake;
pub mod fuzz;
pub mod kms;
pub mod provider;
mod reply;
#[allow(clippy::arithmetic_side_effects)] // Sums of `Instant` saturate.
pub mod service;
pub mod sigv4;
pub mod vault;

pub use provider::{
    HttpRequest, Login, Made, ProviderError, authority, login, login_file, parse, request,
};
pub use service::{KeyService, KeyStatus, Output, Times};
