//! Fuzz targets: plain functions over bytes that must never panic.

use crate::format::{SegmentHeader, decode_descriptor};
use crate::keys::Keys;
use crate::replay::{salvage_segment, walk_segment};

/// A segment's file, as a whole and in pieces: both must yield the same result.
pub fn fuzz_segment(data: &[u8]) {
    let id = SegmentHeader::decode(data).map_or(crate::SegmentId(1 << 12), |header| header.id);
    let keys = Keys::parse(&"a".repeat(64)).ok();
    let whole = walk_segment(id, data, usize::MAX, keys.as_ref());
    let in_pieces = walk_segment(id, data, 7, keys.as_ref());
    stdx::invariant!(whole == in_pieces, "commit log: pieces of a segment are not the whole");
}

/// The same after damage: what follows is read on, and the scan ends.
pub fn fuzz_salvage(data: &[u8]) {
    let id = SegmentHeader::decode(data).map_or(crate::SegmentId(1 << 12), |header| header.id);
    let keys = Keys::parse(&"a".repeat(64)).ok();
    let plain = walk_segment(id, data, usize::MAX, keys.as_ref());
    let whole = salvage_segment(id, data, usize::MAX, keys.as_ref());
    let in_pieces = salvage_segment(id, data, 7, keys.as_ref());
    stdx::invariant!(
        whole == in_pieces,
        "commit log: pieces of a salvaged segment are not the whole"
    );
    stdx::invariant!(whole.0 >= plain.0, "commit log: a salvage finds fewer records");
}

/// A descriptor record's payload.
pub fn fuzz_descriptor(data: &[u8]) {
    let _ = decode_descriptor(data);
}

/// Inventories of any bytes, in the present form and that of earlier releases.
pub fn fuzz_inventory(data: &[u8]) {
    let _ = crate::inventory::decode(data);
    let _ = crate::inventory::decode_former(data);
}

/// The mark of the commit log's directory, and the path in the metadata.
pub fn fuzz_directory(data: &[u8]) {
    if let Some(mark) = crate::directory::Mark::decode(data) {
        stdx::invariant!(mark.encode() == data, "commit log: a mark of other bytes");
    }
    let _ = crate::directory::decode_path(data);
}
