//! Compaction: queue, slots, execution, outputs.
//!
//! Owns: rewriting SSTables, in the background and on request. Never: chooses a strategy (`compact-plan` does).

pub(crate) mod backlog;
pub(crate) mod cleanup;
pub(crate) mod compaction;
pub(crate) mod garbage_collect;
pub(crate) mod outputs;
pub(crate) mod partition_copy;
pub(crate) mod requests;
pub(crate) mod row_copy;
pub(crate) mod scrub;
pub(crate) mod upgrade;
pub(crate) mod window_outputs;
pub(crate) mod window_routing;
