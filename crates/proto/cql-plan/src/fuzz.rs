//! Entry points of fuzzers and tests: functions over any bytes that must never panic.

/// Any bytes as a paging state of DESCRIBE.
pub fn fuzz_describe_paging(data: &[u8]) {
    crate::system::describe::fuzz_describe_paging(data);
}

/// Any bytes are a paging state that encodes to themselves, or refused.
pub fn fuzz_paging_state(data: &[u8]) {
    crate::paging::fuzz_paging_state(data);
}
