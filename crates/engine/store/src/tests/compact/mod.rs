//! Tests of `compact`.

pub(super) mod backlog;
pub(super) mod cleanup;
pub(super) mod cluster_key;
pub(super) mod garbage_collect;
pub(super) mod incremental;
pub(super) mod outputs;
pub(super) mod pruning;
pub(super) mod purging;
pub(super) mod racing;
pub(super) mod requests;
pub(super) mod row_copy;
pub(super) mod scrub;
pub(super) mod strategies;
