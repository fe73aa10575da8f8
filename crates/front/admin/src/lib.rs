//! Administration: reports of a node about itself, and commands to it.
//!
//! Owns: the requests that each shard answers ([`serve_shard`]), the HTTP server, a service beside
//! the shards ([`AdminServer`]), its JSON ([`model`]), the Prometheus text ([`prometheus`]), and
//! the texts that nodetool prints ([`nodetool`]). Never: touches a shard other than through the
//! mesh; never decides about data; never authenticates clients (the address it listens on is the
//! protection, 127.0.0.1 by default).
//!
//! Invariants: INV-admin-1: a slow or hostile HTTP client costs its own connection only: connections,
//! sizes and waiting are bounded. INV-admin-2: a command is answered after every shard has done it.
//!
//! Reading order: [`model`], `cluster_command`, [`request`], [`shard_actions`], [`shard`], [`commands`], [`server`],
//! [`histogram`], [`prometheus`], [`nodetool`].

pub mod catalog;
mod cluster_command;
mod commander;
pub mod commands;
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

pub use cluster_command::ClusterAction;
pub use commander::Commander;
pub use commands::{UpkeepAction, UpkeepReply, UpkeepRequest};
pub use request::{ActionError, AdminCaller, AdminMesh, AdminReply, AdminRequest, Selection};
pub use server::{AdminError, AdminParts, AdminServer, LogControl, cidr_filtering, stages};
pub use shard::{ShardParts, serve_shard};
pub use shard_actions::{NodeFacts, ShardActions, Work};
