//! Tests of `transfer`.

pub(super) mod file_streams;
pub(super) mod import;
pub(super) mod row_ingest;
