//! Entry points of fuzzers and tests: functions over any bytes that must never panic.

/// Any text as a modification, with any bytes as its values: what it writes must read back.
pub fn fuzz_modify(data: &[u8]) {
    crate::cas::fuzz::fuzz_modify(data);
}

/// Any bytes as what another node says that shards do with rows.
pub fn fuzz_scan_work(data: &[u8]) {
    crate::remote_fold::fuzz::fuzz_scan_work(data);
}
