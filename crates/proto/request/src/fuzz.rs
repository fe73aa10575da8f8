//! Fuzz targets: any text as a policy, any bytes as a replica page.

use crate::speculation::SpeculativeRetry;

/// Any text is a policy whose text is one of its readings, or is refused.
pub fn fuzz_speculative_retry(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(policy) = SpeculativeRetry::parse(text) {
        let _ = policy.to_string();
    }
}

/// A replica page from a peer: see [`data::page_fuzz::walk_page`].
pub fn fuzz_replica_page(data: &[u8]) {
    data::page_fuzz::walk_page(data);
}
