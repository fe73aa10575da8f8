//! Checksums and fast hashes named by Cassandra's formats, and xxh3 for our own.

/// CRC-32 (IEEE), as `java.util.zip.CRC32`.
#[inline]
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// CRC-32 over bytes that come in pieces.
#[derive(Clone, Debug, Default)]
pub struct Crc32(crc32fast::Hasher);

impl Crc32 {
    /// Nothing taken in yet.
    pub fn new() -> Crc32 {
        Crc32::default()
    }

    /// Goes on from a checksum of earlier bytes.
    pub fn resume(checksum: u32) -> Crc32 {
        Crc32(crc32fast::Hasher::new_with_initial(checksum))
    }

    /// Takes in the next bytes.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Takes in an int as Java's `FBUtilities.updateChecksumInt` does: its four bytes, big endian.
    #[inline]
    pub fn update_i32(&mut self, value: i32) {
        self.0.update(&value.to_be_bytes());
    }

    /// The checksum of everything taken in so far.
    #[inline]
    pub fn value(&self) -> u32 {
        self.0.clone().finalize()
    }
}

/// CRC-32 of a payload in protocol v5 segments: four fixed bytes go in first, so a payload of zeros has no checksum of
/// zero (native protocol v5 §2.2).
#[inline]
pub fn crc32_segment_payload(payload: &[u8]) -> u32 {
    /// CRC-32 of FA 2D 55 CA, the state after the fixed bytes.
    const PREFIX: u32 = 0x4477_7ed3;
    let mut hasher = crc32fast::Hasher::new_with_initial(PREFIX);
    hasher.update(payload);
    hasher.finalize()
}

/// CRC-24 of a protocol v5 segment header: polynomial 0x1974F0B, start 0x875060, over the bytes in wire order (native
/// protocol v5 §2.2). The result goes on the wire in three bytes, little endian.
#[inline]
pub fn crc24(bytes: &[u8]) -> u32 {
    let mut crc: u32 = 0x0087_5060;
    for byte in bytes {
        crc ^= u32::from(*byte) << 16;
        for _ in 0..8 {
            crc <<= 1;
            if crc & 0x0100_0000 != 0 {
                crc ^= 0x0197_4f0b;
            }
        }
    }
    crc
}

/// Adler-32, as `java.util.zip.Adler32` (checksums of SSTables before 3.0).
pub fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (mut a, mut b) = (1u32, 0u32);
    // 5552 bytes is the most that cannot overflow b before the remainder is taken.
    for run in bytes.chunks(5552) {
        for byte in run {
            a = a.wrapping_add(u32::from(*byte));
            b = b.wrapping_add(a);
        }
        a %= MODULUS;
        b %= MODULUS;
    }
    (b << 16) | a
}

/// XXH3, 64 bits, seed 0. For our own formats; not cryptographic.
#[inline]
pub fn xxh3_64(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32_has_the_check_value_of_its_catalogue_entry() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        let mut pieces = Crc32::new();
        pieces.update(b"1234");
        let mut pieces = Crc32::resume(pieces.value());
        pieces.update(b"56789");
        assert_eq!(pieces.value(), 0xcbf4_3926);
        let mut int = Crc32::new();
        int.update_i32(0x3132_3334);
        assert_eq!(int.value(), crc32(b"1234"));
    }

    #[test]
    fn segment_payload_checksum_starts_with_the_four_fixed_bytes() {
        for payload in [&b""[..], b"x", b"some longer payload of a segment"] {
            let mut whole = vec![0xfa, 0x2d, 0x55, 0xca];
            whole.extend_from_slice(payload);
            assert_eq!(crc32_segment_payload(payload), crc32(&whole));
        }
    }

    #[test]
    fn adler32_matches_known_values() {
        assert_eq!(adler32(b""), 1);
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
        assert_eq!(adler32(&[0xff; 20_000]), {
            let (mut a, mut b) = (1u64, 0u64);
            for _ in 0..20_000 {
                a = (a + 255) % 65_521;
                b = (b + a) % 65_521;
            }
            ((b << 16) | a) as u32
        });
    }

    #[test]
    fn crc24_is_the_remainder_of_the_stated_polynomial() {
        // The slow definition, bit by bit over a long register, for a header of each length.
        fn slow(bytes: &[u8]) -> u32 {
            let bits =
                bytes.iter().flat_map(|byte| (0..8).rev().map(move |i| u32::from(byte >> i & 1)));
            bits.fold(0x87_5060, |crc, bit| {
                let top = (crc >> 23 & 1) ^ bit;
                (crc << 1 & 0xff_ffff) ^ (top * 0x97_4f0b)
            })
        }
        for bytes in [&[][..], &[0], &[1, 2, 3], &[0xff; 5], &[0x11, 0, 2, 9, 200]] {
            assert_eq!(crc24(bytes), slow(bytes));
            assert!(crc24(bytes) <= 0xff_ffff);
        }
        assert_eq!(crc24(b""), 0x87_5060);
    }

    #[test]
    fn xxh3_has_its_published_values() {
        assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
    }
}
