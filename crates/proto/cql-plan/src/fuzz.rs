//! What fuzzers and the tests drive: functions over any bytes that must never panic.

pub use crate::describe::fuzz_describe_paging;
pub use crate::modify::fuzz::fuzz_modify;
pub use crate::paging::fuzz_paging_state;
pub use crate::select::shipped::fuzz::fuzz_scan_work;
