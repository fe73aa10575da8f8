//! Decoders of this crate as plain functions over any bytes; they must never panic.

/// Payloads of the `Meta…` verbs, and stored registers. A decoded value survives a round trip.
pub fn fuzz_metadata_message(data: &[u8]) {
    crate::wire::fuzz_metadata_message(data);
}

/// High-water marks of the metadata log of any bytes.
pub fn fuzz_log_end(data: &[u8]) {
    let _ = crate::log_end::decode(data);
}
