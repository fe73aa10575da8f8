//! The SSTables of a shard: which exist, where, in which state.
//!
//! Owns: file sets and their transactions, data directories, damaged files, files from and for other nodes,
//! repair state. Never: merges rows of several files.

pub(crate) mod background_verify;
pub(crate) mod directories;
pub(crate) mod failed_directories;
pub(crate) mod file_streams;
pub(crate) mod import;
pub(crate) mod late_tables;
pub(crate) mod quarantine;
pub(crate) mod repair_state;
pub(crate) mod repaired_set;
pub(crate) mod row_ingest;
pub(crate) mod table_files;
pub(crate) mod verify;
