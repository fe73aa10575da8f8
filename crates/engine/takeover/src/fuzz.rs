//! Decoders of this crate as plain functions over any bytes; they must never panic.

/// A commit-log segment of Cassandra's.
pub fn fuzz_cassandra_commit_log(data: &[u8]) {
    let found = crate::commit_log::content(data);
    // Input called empty must at least begin like a segment, or be all zeros.
    if found.is_none() && data.len() >= 4 {
        assert!(data.iter().all(|b| *b == 0) || data.starts_with(&[0, 0, 0]));
    }
}
