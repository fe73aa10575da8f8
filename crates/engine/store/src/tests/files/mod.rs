//! Tests of `files`.

pub(super) mod compressed;
pub(super) mod directories;
pub(super) mod failed_directories;
pub(super) mod file_sets;
pub(super) mod file_streams;
pub(super) mod import;
pub(super) mod late_tables;
pub(super) mod quarantine;
pub(super) mod repair_state;
pub(super) mod row_ingest;
pub(super) mod verify;
pub(super) mod versions;
