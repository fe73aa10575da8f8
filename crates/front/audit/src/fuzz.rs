//! Fuzz functions: readers of bytes from outside.

use crate::binary::{HEADER_BYTES, Record, check_header, next_record, push_record};

/// Reads a binary audit log: no bytes panic, and a record that is read is written back as it was.
pub fn fuzz_audit_log(data: &[u8]) {
    if check_header(data).is_err() {
        return;
    }
    let mut at = HEADER_BYTES;
    while let Ok(Some((record, length))) =
        next_record(data.get(at..).unwrap_or_default(), at as u64)
    {
        if let Record::Line { millis, line } = record {
            let mut again = Vec::new();
            push_record(&mut again, millis, line);
            assert_eq!(data.get(at..at + length), Some(again.as_slice()));
        }
        at += length;
    }
}
