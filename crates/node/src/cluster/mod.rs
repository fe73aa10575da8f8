//! The node as one of several: how the parts of each shard are bound to the other nodes.
//!
//! Owns: where the node stands ([`place`]), its way to others ([`network`]), what every shard needs of them ([`member`]),
//! reports and commands for administration. Never: how a node comes into a cluster, moves and goes ([`topology`]), who
//! owns what (`cluster`), who is alive (`liveness`), data.

pub(crate) mod clocks;
mod commands;
pub(crate) mod member;
pub(crate) mod network;
pub(crate) mod place;
pub(crate) mod repairing;
pub(crate) mod report;
#[cfg(test)]
mod tests;
pub(crate) mod truncation;
