//! Fuzz functions: readers of bytes from outside.

use crate::binary::{AUDIT_LOG, Record, next_record, push_record};
use query_log::framing::HEADER_BYTES;

/// Reads a binary audit log: no bytes panic, and a record that is read is written back as it was.
pub fn fuzz_audit_log(data: &[u8]) {
    if AUDIT_LOG.check_header(data).is_err() {
        return;
    }
    let mut at = HEADER_BYTES;
    while let Ok(Some((record, length))) =
        next_record(data.get(at..).unwrap_or_default(), at as u64)
    {
        if let Record::Line { millis, line } = record {
            let mut again = Vec::new();
            push_record(&mut again, millis, |out| out.extend_from_slice(line.as_bytes()));
            assert_eq!(data.get(at..at + length), Some(again.as_slice()));
        }
        at += length;
    }
}
