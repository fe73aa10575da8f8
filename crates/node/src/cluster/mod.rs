//! The node as one of several: bindings of each shard's parts to the other nodes.
//!
//! Owns: the node's location ([`place`]), its transport to other nodes ([`network`]), their uses on
//! every shard ([`member`]), reports and commands for administration. Never: joining, moving and
//! leaving a cluster ([`topology`]), ownership (`cluster`), liveness (`liveness`), data.

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
