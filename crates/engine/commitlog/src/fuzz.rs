//! Fuzz targets: plain functions over bytes that must never panic.

use crate::format::{SegmentHeader, decode_descriptor};
use crate::keys::Keys;
use crate::replay::walk_segment;

/// A segment's file, as a whole and in pieces: both must yield the same result.
pub fn fuzz_segment(data: &[u8]) {
    let id = SegmentHeader::decode(data).map_or(crate::SegmentId(1 << 12), |header| header.id);
    let keys = Keys::parse(&"a".repeat(64)).ok();
    let whole = walk_segment(id, data, usize::MAX, keys.as_ref());
    let in_pieces = walk_segment(id, data, 7, keys.as_ref());
    stdx::invariant!(whole == in_pieces, "commit log: pieces of a segment are not the whole");
}

/// A descriptor record's payload.
pub fn fuzz_descriptor(data: &[u8]) {
    let _ = decode_descriptor(data);
}

/// Inventories of any bytes.
pub fn fuzz_inventory(data: &[u8]) {
    let _ = crate::inventory::decode(data);
}
