//! Fuzz targets: plain functions over bytes that must never panic.

use crate::format::{SegmentHeader, decode_descriptor};
use crate::replay::walk_segment;

/// A segment's file.
pub fn fuzz_segment(data: &[u8]) {
    if let Ok(header) = SegmentHeader::decode(data) {
        let _ = walk_segment(header.id, data);
    }
    let _ = walk_segment(crate::SegmentId(1 << 12), data);
}

/// A descriptor record's payload.
pub fn fuzz_descriptor(data: &[u8]) {
    let _ = decode_descriptor(data);
}
