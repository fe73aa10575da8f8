//! Fuzz functions: readers of bytes from outside.

use crate::format::{QUERY_LOG, next_record, push_record, read_payload};
use crate::framing::HEADER_BYTES;

/// Reads a file of the full query log, and the same bytes as a payload: no bytes panic, and a record that is read is
/// written back as it was.
pub fn fuzz_query_log(data: &[u8]) {
    if let Ok(record) = read_payload(data, 0) {
        let mut again = Vec::new();
        push_record(&mut again, &record);
        assert_eq!(again.get(crate::framing::FRAME_HEADER_BYTES..), Some(data));
    }
    if QUERY_LOG.check_header(data).is_err() {
        return;
    }
    let mut at = HEADER_BYTES;
    while let Ok(Some((record, length))) =
        next_record(data.get(at..).unwrap_or_default(), at as u64)
    {
        let mut again = Vec::new();
        push_record(&mut again, &record);
        assert_eq!(data.get(at..at + length), Some(again.as_slice()));
        at += length;
    }
}

/// Reads a file of a Chronicle queue, and the same bytes as a record: no bytes panic, records are in order and within
/// the file.
pub fn fuzz_chronicle(data: &[u8]) {
    let _ = crate::chronicle::decode_record(data, 0);
    let Ok(file) = crate::chronicle::read_file(data) else { return };
    let mut last = 0;
    for (offset, _) in &file.records {
        assert!(*offset > last && *offset < data.len() as u64);
        last = *offset;
    }
}
