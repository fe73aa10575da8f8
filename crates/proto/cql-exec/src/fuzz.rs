//! Entry points of fuzzers and tests: functions over any bytes that must never panic.

/// Any text as a modification, with any bytes as its values: the writes must decode.
pub fn fuzz_modify(data: &[u8]) {
    crate::cas::fuzz::fuzz_modify(data);
}

/// Any bytes as another node's work for shards.
pub fn fuzz_scan_work(data: &[u8]) {
    crate::remote_fold::fuzz::fuzz_scan_work(data);
}
