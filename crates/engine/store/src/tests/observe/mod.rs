//! Tests of `observe`.

pub(super) mod large_partitions;
pub(super) mod large_scan;
pub(super) mod sampling;
