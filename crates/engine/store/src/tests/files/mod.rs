//! Tests of `files`.

pub(super) mod attached;
pub(super) mod compressed;
pub(super) mod directories;
pub(super) mod failed_directories;
pub(super) mod file_sets;
pub(super) mod late_tables;
pub(super) mod sealed;
mod table_keys;
pub(super) mod versions;
