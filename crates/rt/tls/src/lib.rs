//! Key stores, certificates and TLS settings as rustls configurations.
//!
//! Owns: the readers of PEM, JKS and PKCS12 ([`material`]), Java's and GnuTLS's names of protocols and cipher suites
//! ([`offer`]), fields of certificates ([`certificate`]) and bounds on their validity ([`limits`]), the identity that a
//! certificate names ([`identity`]), the configurations of servers and clients ([`config`]), the schedule of reloads and
//! expiry notices ([`reload`]). Never: files, clocks, sockets. Inputs are bytes, settings and a [`TimeProvider`]; outputs
//! are configurations and errors.
//!
//! Invariants:
//! - INV-tls-1: a configuration exists only for a private key that matches its leaf certificate, and for a chain in
//!   which each certificate is followed by its issuer.
//! - INV-tls-2: no bytes panic a reader; sizes and work factors are bounded before they are acted on.
//! - INV-tls-3: a setting that rustls cannot satisfy is rejected by name; it never weakens the offer.
//!
//! Reading order: [`material`], [`offer`], [`config`], [`reload`].

#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod certificate;
pub mod config;
mod der;
mod ec;
mod error;
pub mod fuzz;
pub mod identity;
mod jks;
pub mod limits;
pub mod material;
pub mod offer;
mod pem;
mod pkcs12;
pub mod reload;
mod verify;

pub use certificate::PeerCertificate;
pub use config::{ClientAuth, ClientParts, ServerParts, client_config, server_config};
pub use error::TlsError;
pub use identity::{IdentityError, IdentityQuery, IdentityRule, IdentitySource};
pub use limits::CertificateLimits;
pub use material::{Identity, KeyMaterial, Source, Trust};
pub use offer::Offer;
pub use rustls;
pub use rustls::time_provider::TimeProvider;

#[cfg(test)]
mod tests;
