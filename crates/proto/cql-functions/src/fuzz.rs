//! Entry points of fuzzers and tests: functions over any bytes that must never panic.

/// Any bytes as a JSON document of columns of many types.
pub fn fuzz_json(data: &[u8]) {
    crate::json::fuzz_json(data);
}
