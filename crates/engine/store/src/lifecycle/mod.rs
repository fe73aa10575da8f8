//! x

pub(crate) mod snapshot;
pub(crate) mod truncate;
pub(crate) mod truncation_records;
