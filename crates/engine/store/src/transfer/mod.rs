//! x

pub(crate) mod file_streams;
pub(crate) mod import;
pub(crate) mod row_ingest;
