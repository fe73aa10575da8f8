//! The node as one of several: who it is, how it comes into a cluster and goes, and how the parts of
//! each shard are bound to the other nodes.
//!
//! Owns: `metadata/identity` ([`identity`]), the place of the node ([`place`]), founding and joining
//! ([`joining`]), what every shard needs of the other nodes ([`member`]), the way to `Normal`
//! ([`movement`]), finding members that stand elsewhere ([`seeking`]), members that go ([`leaving`]) or
//! take another token ([`moving`]), operations that are given up ([`giving_up`]), what is left to copy after a restart ([`received`]), what keyspaces
//! with other replicas hand over ([`inheriting`]), the removal of what is not owned any more
//! ([`cleaning`]), reports and commands for administration. Never: decides who owns what (`cluster`),
//! who is alive (`liveness`), or about data.

pub(crate) mod cleaning;
pub(crate) mod clocks;
mod commands;
pub(crate) mod giving_up;
pub(crate) mod identity;
pub(crate) mod inheriting;
pub(crate) mod joining;
pub(crate) mod leaving;
pub(crate) mod member;
pub(crate) mod movement;
pub(crate) mod moving;
pub(crate) mod network;
pub(crate) mod place;
pub(crate) mod received;
pub(crate) mod repairing;
pub(crate) mod report;
pub(crate) mod seeds;
pub(crate) mod seeking;
#[cfg(test)]
mod tests;
pub(crate) mod truncation;
mod unreachable_seeds;
