//! What fuzzers and the tests drive: functions over any bytes that must never panic.

pub use crate::json::fuzz_json;
