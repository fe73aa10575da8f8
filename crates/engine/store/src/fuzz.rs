//! Fuzz targets: plain functions over bytes that must never panic.

/// A transaction record of a compaction.
pub fn fuzz_transaction(data: &[u8]) {
    let _ = crate::files::table_files::Transaction::decode(data);
}
