//! The cluster as a value: ring, placement arithmetic, the metadata log and its fold.
//!
//! Owns: [`ClusterSnapshot`] (what every shard of a node sees between two tasks), [`Transformation`]
//! (one entry of the metadata log) and its encoding, shard and replica arithmetic. Never: IO; the
//! log's file is written by its driver in `node`.
//!
//! Invariants: INV-cluster-1: a snapshot at epoch e is the fold of entries 1..=e, nothing else.
//! INV-cluster-2: [`shard_of_token`] is what drivers compute from the SUPPORTED keys.
//!
//! Reading order: [`ring`], [`snapshot`], [`metalog`].

pub mod fuzz;
pub mod metalog;
pub mod replication;
pub mod ring;
pub mod snapshot;

pub use metalog::{MetaLogError, Transformation};
pub use replication::{Consistency, ReplicationError, Unavailable};
pub use ring::{IGNORE_MSB, shard_of_token, tokens_for_single_node};
pub use snapshot::{ClusterSnapshot, LocalNode, Role, Truncation};
