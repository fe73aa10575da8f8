//! The cluster as a value: ring, placement arithmetic, the metadata log and its fold.
//!
//! Owns: [`ClusterSnapshot`] (what every shard of a node sees between two tasks), [`Transformation`]
//! (one entry of the metadata log) and its encoding, replica arithmetic by table. Never: IO; the
//! log's file is written by its driver in `node`.
//!
//! Invariants: INV-cluster-1: a snapshot at epoch e is the fold of entries 1..=e, nothing else.
//! INV-cluster-3: nothing but `local` depends on which node holds the snapshot.
//!
//! Reading order: [`ring`], [`snapshot`], [`metalog`], [`member`], [`topology`] (order of changes), [`placement`]
//! (replicas of each token, and since when), [`levels`] (number of replicas needed), [`ranges`] (ranges that
//! move), [`allocate`] (tokens of a new node), [`auth`] (roles and permissions), [`cidr`] (names for ranges of
//! addresses), [`features`] (entries that an older build could not read).

#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod allocate;
pub mod auth;
pub mod cidr;
pub mod features;
pub mod fuzz;
pub mod handover;
pub mod levels;
pub mod member;
pub mod metalog;
pub mod place_history;
pub mod placement;
pub mod ranges;
pub mod replication;
pub mod ring;
pub mod snapshot;
mod strategy;
#[cfg(test)]
mod testing;
pub mod topology;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use auth::{Auth, AuthChange, Permission, PermissionSet, Role};
pub use handover::{Handover, HandoverStep, Inheritance, Stage};
pub use levels::{Levels, Shortage};
pub use member::{ADDRESS_UNKNOWN, Member, MemberState};
pub use metalog::{MetaLogError, Transformation};
pub use place_history::{Moved, PlaceHistory};
pub use placement::{PlacementKey, Placements, Replicas};
pub use ranges::{Movement, TokenRange, movements};
pub use replication::{Consistency, Replication, ReplicationError, Unavailable};
pub use ring::tokens_for_single_node;
pub use snapshot::{ClusterSnapshot, LocalNode, Truncation};
pub use topology::{Address, MembershipError, choose_voters};

/// The members of the cluster, by host id.
pub type Members = BTreeMap<stdx::HostId, Arc<Member>>;
