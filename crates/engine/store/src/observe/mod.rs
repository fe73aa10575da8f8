//! Counters and reports: samples of partitions, large partitions, stages of `nodetool tpstats`.
//!
//! Owns: what a shard counts and reports about its data. Never: changes data.

pub(crate) mod large_partitions;
pub(crate) mod sampling;
