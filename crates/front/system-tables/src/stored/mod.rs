//! The node's own rows in stored tables, so that drivers read them and a Cassandra can open a
//! drained directory.
//!
//! Derived from the metadata: [`writer`] writes `system.local`, [`peers`], `system_schema`,
//! [`auth`], and removes leftovers of an earlier run or a Cassandra ([`restored_schema`],
//! [`build_markers`]). Records of the node's activity: [`own_rows`] with [`estimates`],
//! [`compaction_history`], [`large_data`]; [`repair_history`].
//!
//! Rows are read back by statements of the node itself (`query::select_for_node`), except keys of
//! rows that are to be replaced ([`row_sync`]): a SELECT of `system_auth` shows the metadata and
//! not the stored rows.

mod auth;
mod build_markers;
pub mod compaction_history;
pub mod estimates;
mod large_data;
pub mod own_rows;
mod peers;
pub mod repair_history;
mod restored_schema;
mod row_sync;
pub mod writer;
