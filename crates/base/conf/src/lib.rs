//! Typed options, cassandra.yaml names and spellings.
//!
//! Owns: the table of settings ([`options`]), the grammars of their values ([`value`]), Cassandra's
//! old spellings ([`spelling`]), the settings that limit statements ([`guardrails`]), the property
//! files of snitches ([`snitch`]) and of the commit log's archive ([`commitlog`]), and the settings
//! that are known without having an effect ([`known`]); the layers defaults < file < environment <
//! command line ([`load()`]); the reference
//! ([`reference_markdown`]). Never: reads a file, the environment or a host name; text and
//! iterators come in, [`Options`] and warnings go out.
//!
//! Invariants: a value that was written and has no effect is named in a warning or stops the
//! start; every wrong value is reported with its place and the form that was expected, all of them
//! at once.
//!
//! Reading order: [`options`], [`load()`], [`value`].

#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod at_rest;
pub mod audit;
pub mod binlog;
mod certificate_login;
pub mod commitlog;
mod consistency;
pub mod encryption;
pub mod fuzz;
pub mod guardrails;
pub mod key_hosts;
pub mod known;
pub mod load;
pub mod options;
pub mod parameterized;
pub mod query_log;
mod reference;
pub mod server_encryption;
pub mod snitch;
pub mod spelling;
pub mod value;
pub mod yaml;

pub use at_rest::{AtRestOptions, KeyProvider};
pub use audit::{AuditLogger, AuditOptions};
pub use binlog::{BinLogOptions, RollCycle};
pub use certificate_login::{RoleQueries, RoleQuery, RoleQuerySource};
pub use commitlog::{Archiving, CommitLogCompression, RestorePoint};
pub use encryption::{
    CertificatesOfClients, Encryption, EncryptionOptions, KeyPlace, Password, Secret, TrustPlace,
};
pub use load::{
    CommandLine, ConfError, ConfErrors, ENV_PREFIX, Loaded, Origin, Sources, Warning, load,
    summarize,
};
pub use options::{Options, Setting, Status, settings};
pub use parameterized::ParameterizedClass;
pub use query_log::QueryLogOptions;
pub use reference::{SETTING_COMMANDS, reference_markdown};
pub use server_encryption::{InternodeAuthenticator, InternodeEncryption, ServerEncryptionOptions};
pub use value::{
    Address, ApiLogin, Authenticator, Authorizer, CertificateValidator, CidrAuthorizer, CidrMode,
    CommitFailurePolicy, CommitLogSync, DataRate, DataSize, DiskFailurePolicy, FlushCompression,
    InternodeCompression, LogFormat, LogLevel, MemorySize, NetworkAuthorizer, Number, Partitioner,
    Snitch, SstableFormat, SstableVersion, StorageCompatibilityMode,
};
