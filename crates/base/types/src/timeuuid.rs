//! Version 1 UUIDs as Cassandra makes and orders them. Source: `utils.TimeUUID`.
//!
//! Making a unique one needs a clock and a node number, which the caller has.

/// 100 ns steps between 1582-10-15 and 1970-01-01.
const EPOCH_STEPS: i64 = 122_192_928_000_000_000;

/// Least clock sequence and node in the byte-wise signed order of the type.
const LSB_MIN: u64 = 0x8080_8080_8080_8080;

/// Greatest clock sequence and node in that order.
const LSB_MAX: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// The UUID of a raw timestamp (100 ns since 1582) and low half, without checks, as Cassandra's.
fn from_raw(raw: i64, lsb: u64) -> [u8; 16] {
    let raw = raw.cast_unsigned();
    let msb = 0x1000 | (raw >> 48) | ((raw & 0xffff_0000_0000) >> 16) | (raw << 32);
    let mut out = [0; 16];
    let (high, low) = out.split_at_mut(8);
    high.copy_from_slice(&msb.to_be_bytes());
    low.copy_from_slice(&lsb.to_be_bytes());
    out
}

/// Least timeuuid of a millisecond (`minTimeuuid`): a bound for queries, not a unique id.
pub fn min_at_millis(unix_millis: i64) -> [u8; 16] {
    from_raw(unix_millis.wrapping_mul(10_000).wrapping_add(EPOCH_STEPS), LSB_MIN)
}

/// Greatest timeuuid of a millisecond (`maxTimeuuid`).
pub fn max_at_millis(unix_millis: i64) -> [u8; 16] {
    let next = unix_millis.wrapping_add(1).wrapping_mul(10_000).wrapping_add(EPOCH_STEPS);
    from_raw(next.wrapping_sub(1), LSB_MAX)
}

/// Timeuuid of microseconds since 1970, a low half with variant bits `10` (clock sequence and node,
/// see [`clock_seq_and_node`]).
pub fn from_micros(unix_micros: i64, clock_seq_and_node: u64) -> [u8; 16] {
    from_raw(unix_micros.wrapping_mul(10).wrapping_add(EPOCH_STEPS), clock_seq_and_node)
}

/// Timeuuid of 100 ns steps since 1970: unique ids within a microsecond.
pub fn from_steps(unix_steps: i64, clock_seq_and_node: u64) -> [u8; 16] {
    from_raw(unix_steps.wrapping_add(EPOCH_STEPS), clock_seq_and_node)
}

/// Low half of a UUID: 14 bits of clock sequence, 48 bits of node, variant bits `10`.
pub fn clock_seq_and_node(clock_seq: u16, node: u64) -> u64 {
    (1 << 63) | (u64::from(clock_seq & 0x3fff) << 48) | (node & 0xffff_ffff_ffff)
}

/// True for 16 bytes with version 1.
pub fn is_timeuuid(bytes: &[u8]) -> bool {
    bytes.len() == 16 && bytes.get(6).is_some_and(|b| b >> 4 == 1)
}

/// 100 ns steps since 1582 of a timeuuid. `None`: not 16 bytes of version 1.
fn raw_timestamp(bytes: &[u8]) -> Option<i64> {
    if !is_timeuuid(bytes) {
        return None;
    }
    let msb = u64::from_be_bytes(*bytes.first_chunk::<8>()?);
    let raw = (msb & 0x0fff) << 48 | (msb & 0xffff_0000) << 16 | msb >> 32;
    Some(raw.cast_signed())
}

/// Microseconds since 1970 of a timeuuid. `None`: not 16 bytes of version 1.
pub fn unix_micros(bytes: &[u8]) -> Option<i64> {
    Some((raw_timestamp(bytes)? / 10).wrapping_sub(EPOCH_STEPS / 10))
}

/// Millis since 1970 of a timeuuid, rounded towards 1970 as Java does.
pub fn unix_millis(bytes: &[u8]) -> Option<i64> {
    Some(unix_micros(bytes)? / 1000)
}

/// High half with the timestamp's bits in order of weight, for comparison.
pub(crate) fn reorder(msb: u64) -> u64 {
    msb << 48 | (msb << 16) & 0xffff_0000_0000 | msb >> 32
}

/// Text of 16 bytes: `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
pub fn format_uuid(bytes: &[u8; 16]) -> String {
    let mut out = String::with_capacity(36);
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        crate::marshal::push_hex(&mut out, &[*byte]);
    }
    out
}

/// Bytes of a UUID in the form 8-4-4-4-12 hex digits, no other.
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let mut parts = text.split('-');
    let mut hex = String::with_capacity(32);
    for len in [8, 4, 4, 4, 12] {
        hex.push_str(parts.next().filter(|p| p.len() == len)?);
    }
    if parts.next().is_some() {
        return None;
    }
    crate::marshal::parse_hex(&hex)?.try_into().ok()
}

/// Bytes of a UUID as Java's `UUID.fromString` reads it: five hex numbers, each of which is
/// truncated to the width of its field.
pub fn parse_java_uuid(text: &str) -> Option<[u8; 16]> {
    if text.len() > 36 {
        return None;
    }
    let mut parts = text.split('-');
    let mut bits = 0u128;
    for width in [32u32, 16, 16, 16, 48] {
        let part = parts.next().filter(|p| !p.is_empty() && p.len() <= 16)?;
        if !part.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let field = u64::from_str_radix(part, 16).ok()? & ((1u64 << width) - 1);
        bits = bits << width | u128::from(field);
    }
    parts.next().is_none().then(|| bits.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_cassandra() {
        // SELECT mintimeuuid('2011-02-03 04:05+0000'), maxtimeuuid('2011-02-03 04:05+0000')
        let millis = 1_296_705_900_000;
        assert_eq!(format_uuid(&min_at_millis(millis)), "c4fb3e00-2f4a-11e0-8080-808080808080");
        assert_eq!(format_uuid(&max_at_millis(millis)), "c4fb650f-2f4a-11e0-7f7f-7f7f7f7f7f7f");
        assert_eq!(unix_millis(&min_at_millis(millis)), Some(millis));
        assert_eq!(unix_millis(&max_at_millis(millis)), Some(millis));
    }

    #[test]
    fn time_and_node_read_back() {
        let id = from_micros(1_296_705_900_123_456, clock_seq_and_node(0xffff, 0x1234_5678_9abc));
        assert_eq!(unix_micros(&id), Some(1_296_705_900_123_456));
        assert!(format_uuid(&id).ends_with("-bfff-123456789abc"));
        assert_eq!(parse_uuid(&format_uuid(&id)), Some(id));
        assert_eq!(unix_micros(&[0; 16]), None);
        assert_eq!(unix_micros(&id[..15]), None);
        for bad in [
            "",
            "c36b4e002f4911e08080808080808080",
            "c4fb3e00-2f4a-11e0-8080-80808080808",
            "g36b4e00-2f49-11e0-8080-808080808080",
        ] {
            assert_eq!(parse_uuid(bad), None, "{bad}");
        }
    }
}
