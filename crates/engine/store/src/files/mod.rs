//! The SSTables of a shard: which exist, where, in which state.
//!
//! Owns: file sets and their transactions, data directories, damaged files, files from and for other nodes,
//! repair state. Never: merges rows of several files.

pub(crate) mod chunk_cache;
pub(crate) mod damage_marks;
pub(crate) mod directories;
pub(crate) mod failed_directories;
pub(crate) mod held_files;
pub(crate) mod late_tables;
pub(crate) mod scan_list;
pub(crate) mod slots;
pub(crate) mod table_files;
