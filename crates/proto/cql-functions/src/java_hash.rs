//! Order of Java's hash tables of names. Cassandra iterates over some of them: their order shows in texts, and
//! decides which of several errors is reported.

/// `ByteBuffer.hashCode`, which `ColumnIdentifier.hashCode` is, too.
pub fn hash(bytes: &[u8]) -> u32 {
    // Java bytes are signed.
    bytes.iter().rev().fold(1, |hash: u32, byte| {
        hash.wrapping_mul(31).wrapping_add_signed(i32::from(byte.cast_signed()))
    })
}

/// `String.hashCode`.
pub fn string_hash(text: &str) -> u32 {
    text.encode_utf16().fold(0, |hash: u32, unit| hash.wrapping_mul(31).wrapping_add(unit.into()))
}

/// The slot of a hash in a `HashMap` of this many slots, a power of two. Entries of one slot keep
/// their order of insertion.
pub fn slot(hash: u32, slots: usize) -> u32 {
    (hash ^ (hash >> 16)) & u32::try_from(slots).unwrap_or(u32::MAX).saturating_sub(1)
}

/// Slots of a `HashMap` that began empty, with default size, and has this many entries. They double
/// when more than three quarters are taken.
pub fn slots_of(entries: usize) -> usize {
    entries.saturating_mul(4).div_ceil(3).next_power_of_two().max(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_hashed_as_java_does() {
        // `ByteBuffer.wrap("r0".getBytes()).hashCode()`, an empty buffer and a negative byte.
        assert_eq!(hash(b"r0"), 2_563);
        assert_eq!(hash(b""), 1);
        assert_eq!(hash(&[0xff]), 30);
        assert_eq!(string_hash("k.bs"), 3_234_996);
    }

    #[test]
    fn maps_have_as_many_slots_as_java_s() {
        for (entries, slots) in
            [(0, 16), (12, 16), (13, 32), (24, 32), (25, 64), (48, 64), (49, 128)]
        {
            assert_eq!(slots_of(entries), slots, "{entries}");
        }
    }
}
