//! Administration: reports of a node about itself, and commands to it.
//!
//! Owns: the requests that each shard answers ([`serve_shard`]), the HTTP server, a service beside
//! the shards ([`AdminServer`]), its JSON ([`model`]), the Prometheus text ([`prometheus`]), and
//! the texts that nodetool prints ([`nodetool`]). Never: touches a shard other than through the
//! mesh; never decides about data; never hashes a password.
//!
//! Invariants: INV-admin-1: a slow or hostile HTTP client costs its own connection only: connections,
//! sizes and waiting are bounded. INV-admin-2: a command is answered after every shard has done it.
//! INV-admin-3: no answer to a client without a login tells whether a role exists, and each request passes
//! `server::authorise`.
//!
//! Reading order: [`model`], `cluster_command`, [`request`], [`shard_actions`], [`shard`], [`commands`], [`server`] (`authorise` first),
//! [`histogram`], [`prometheus`], [`nodetool`].

pub mod actions;
pub mod catalog;
mod cluster_command;
mod commander;
pub mod commands;
mod compaction_command;
pub mod histogram;
mod members;
pub mod model;
pub mod nodetool;
pub mod operation;
pub mod prometheus;
pub mod request;
pub mod server;
pub mod shard;
pub mod shard_actions;
pub mod verbs;

pub use actions::{ActionLog, ApiAction, ApiOutcome};
pub use cluster_command::ClusterAction;
pub use commander::Commander;
pub use commands::{UpkeepAction, UpkeepReply, UpkeepRequest};
pub use compaction_command::CompactionAction;
pub use request::{
    ActionError, AdminCaller, AdminMesh, AdminReply, AdminRequest, ApiLogin, LoginReply, Selection,
};
pub use server::{
    AccessParts, AdminAccess, AdminError, AdminParts, AdminServer, ApiEncryption, LogControl,
    LoginPolicy, PlainConnections, cidr_filtering, stages,
};
pub use shard::{ShardParts, serve_shard};
pub use shard_actions::{
    CertificateIdentity, LoginRefusal, NodeFacts, PasswordLogin, ShardActions, Work,
};
