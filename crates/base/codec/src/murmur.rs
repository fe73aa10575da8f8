//! Cassandra's Murmur3 and its derived values: tokens and bloom-filter bits.
//!
//! Owns the variant: bytes of the tail are sign-extended before they are shifted, so keys with bytes above 0x7F hash
//! differently from the published MurmurHash3 (`org.apache.cassandra.utils.MurmurHash`).

use stdx::Token;

/// Both 64-bit halves of the hash, in the order of Cassandra's result array.
pub fn murmur3_x64_128(key: &[u8], seed: u64) -> (u64, u64) {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let (blocks, tail) = key.as_chunks::<16>();
    let (mut h1, mut h2) = (seed, seed);
    for block in blocks {
        let (k1, k2) = halves(*block);
        h1 ^= k1.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= k2.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    if !tail.is_empty() {
        let (low, high) = tail.split_at_checked(8).unwrap_or((tail, &[]));
        let k1 = signed_tail(low);
        if !high.is_empty() {
            let k2 = signed_tail(high);
            h2 ^= k2.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
        }
        h1 ^= k1.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    }
    let length = key.len() as u64;
    h1 ^= length;
    h2 ^= length;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    h1 = mix(h1);
    h2 = mix(h2);
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    (h1, h2)
}

/// Up to eight bytes as Java's hashes process the tail of a key: each widened with its sign,
/// shifted to its place, least significant first, and all of them combined by exclusive or. Bytes
/// beyond eight do not count.
#[inline]
pub fn signed_tail(bytes: &[u8]) -> u64 {
    const LOWEST: u64 = 0x0101_0101_0101_0101;
    let joined = unsigned_tail(bytes);
    // A negative byte turns all bytes above it around.
    let negative = (joined >> 7) & LOWEST;
    // In each byte how many below it are negative.
    let below = negative.wrapping_mul(LOWEST << 8);
    joined ^ (below & LOWEST).wrapping_mul(0xff)
}

/// Up to eight bytes, little endian, without a loop: keys are hashed more often than anything else.
#[inline]
fn unsigned_tail(bytes: &[u8]) -> u64 {
    if let Some(whole) = bytes.first_chunk::<8>() {
        return u64::from_le_bytes(*whole);
    }
    // Bytes in the middle come in twice, at the same place.
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let shift = u32::try_from(bytes.len().saturating_sub(4)).unwrap_or(0).wrapping_mul(8);
        let last = u64::from(u32::from_le_bytes(*last)).wrapping_shl(shift);
        return u64::from(u32::from_le_bytes(*first)) | last;
    }
    match bytes {
        [] => 0,
        [a] => u64::from(*a),
        [a, b] => u64::from(u16::from_le_bytes([*a, *b])),
        [a, b, c, ..] => u64::from(u32::from_le_bytes([*a, *b, *c, 0])),
    }
}

#[inline]
fn halves(block: [u8; 16]) -> (u64, u64) {
    let whole = u128::from_le_bytes(block);
    #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
    let low = whole as u64;
    let high = (whole >> 64) as u64;
    (low, high)
}

#[inline]
fn mix(mut k: u64) -> u64 {
    k ^= k >> 33;
    k = k.wrapping_mul(0xff51_afd7_ed55_8ccd);
    k ^= k >> 33;
    k = k.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}

/// Token and bloom-filter hash of one partition key, from one pass over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash {
    /// Position on the ring.
    pub token: Token,
    /// The pair that filters walk.
    pub bloom: BloomHash,
}

/// Hashes a serialised partition key once for both uses.
#[inline]
pub fn hash_key(key: &[u8]) -> KeyHash {
    let (h1, h2) = murmur3_x64_128(key, 0);
    let token = match h1.cast_signed() {
        // `Murmur3Partitioner.getToken`: the minimum is no key's token, except the empty key's.
        _ if key.is_empty() => Token::MIN,
        i64::MIN => Token::MAX,
        hash => Token(hash),
    };
    KeyHash { token, bloom: BloomHash { base: h2.cast_signed(), increment: h1.cast_signed() } }
}

/// Token of a serialised partition key, as Cassandra's `Murmur3Partitioner` computes it: never [`Token::MIN`], except
/// for the empty key.
#[inline]
pub fn token_of(key: &[u8]) -> Token {
    hash_key(key).token
}

/// The pair of hashes from which a `Filter.db` derives its bit positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BloomHash {
    /// First position before the remainder: the second half of the hash.
    pub base: i64,
    /// Step between positions: the first half of the hash.
    pub increment: i64,
}

impl BloomHash {
    /// The bit positions of `hash_count` hashes in a filter of that capacity, each below it. A filter without bits has
    /// no positions.
    #[inline]
    pub fn positions(self, hash_count: u32, capacity: BloomCapacity) -> impl Iterator<Item = u64> {
        let BloomHash { mut base, increment } = self;
        let count = if capacity.bits == 0 { 0 } else { hash_count };
        (0..count).map(move |_| {
            let position = capacity.remainder(base.unsigned_abs());
            base = base.wrapping_add(increment);
            position
        })
    }
}

/// The bits of a Bloom filter, with precomputed values for quick remainders by their number: a
/// division of 64 bits takes a processor longer than all other work for a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BloomCapacity {
    bits: u64,
    /// 2^64 / bits, rounded down (of a power of two one less).
    reciprocal: u64,
}

impl BloomCapacity {
    /// Creates a capacity of this many bits, 2^63 - 1 at most.
    pub fn new(bits: u64) -> BloomCapacity {
        let bits = bits.min(i64::MAX.unsigned_abs());
        BloomCapacity { bits, reciprocal: u64::MAX.checked_div(bits).unwrap_or(0) }
    }

    /// Number of bits.
    pub fn bits(self) -> u64 {
        self.bits
    }

    #[inline]
    fn remainder(self, value: u64) -> u64 {
        // The quotient, or one less: the reciprocal lacks at most one, and the value is below 2^64.
        let product = u128::from(value).wrapping_mul(u128::from(self.reciprocal));
        let quotient = u64::try_from(product >> 64).unwrap_or(u64::MAX);
        let rest = value.wrapping_sub(quotient.wrapping_mul(self.bits));
        rest.checked_sub(self.bits).unwrap_or(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_each_byte_widened_with_its_sign() {
        let mut state = 1u64;
        for round in 0..4_000usize {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let bytes = state.to_be_bytes();
            let bytes = &bytes[..round % 9];
            let one_by_one = bytes.iter().enumerate().fold(0u64, |sum, (i, byte)| {
                sum ^ (i64::from(byte.cast_signed()).cast_unsigned() << (8 * i))
            });
            assert_eq!(signed_tail(bytes), one_by_one, "{bytes:02x?}");
        }
    }

    #[test]
    fn the_empty_key_has_the_minimum_token() {
        assert_eq!(token_of(b""), Token::MIN);
        assert_eq!(murmur3_x64_128(b"", 0), (0, 0));
    }

    #[test]
    fn bloom_positions_step_by_the_first_half_from_the_second() {
        let of = BloomCapacity::new;
        let hash = BloomHash { base: 7, increment: -10 };
        assert_eq!(hash.positions(4, of(100)).collect::<Vec<_>>(), [7, 3, 13, 23]);
        let hash = BloomHash { base: i64::MAX, increment: 1 };
        assert_eq!(hash.positions(2, of(64)).collect::<Vec<_>>(), [63, 0]);
        assert_eq!(hash.positions(3, of(0)).count(), 0);
        assert_eq!(hash.positions(2, of(u64::MAX)).count(), 2);
    }

    #[test]
    fn positions_are_the_remainders_of_signed_division() {
        let edges =
            [0, 1, 2, 3, 63, 64, 65, 1 << 31, (1 << 62) - 1, 1 << 62, i64::MAX - 1, i64::MAX];
        let mut values: Vec<i64> = edges.iter().flat_map(|n| [*n, n.wrapping_neg()]).collect();
        values.push(i64::MIN);
        let mut state = 1u64;
        for shift in 0..2_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            values.push(state.cast_signed() >> (shift % 64));
        }
        let capacities = edges.iter().skip(1).copied();
        for capacity in capacities.chain(values.iter().map(|v| (v & i64::MAX).max(1)).take(300)) {
            for value in &values {
                let hash = BloomHash { base: *value, increment: 0 };
                let found = hash.positions(1, BloomCapacity::new(capacity.unsigned_abs())).next();
                let expect = value.checked_rem(capacity).map(i64::unsigned_abs);
                assert_eq!(found, expect, "{value} in {capacity}");
            }
        }
    }

    /// Keys (hex) and their tokens from `SELECT token(k)` of Cassandra 5.0.9: every tail length,
    /// bytes on both sides of 0x80, UTF-8 beyond ASCII.
    #[rustfmt::skip]
    const TOKENS: &[(&str, i64)] = &[
        ("61", -8839064797231613815),
        ("808080808080808080", -8549929301482172571),
        ("26b8b04fff7b29b80c14fc9988ec67083cbd9858", -8489110503521647363),
        ("6a0551f1fb4e7ded49247a061fa89ff5713e4b0ac822d364037a888f463eef79c8", -6930879217502294478),
        ("bf5bd867048cc96b5d6094d702730bb5", -6584548321252081428),
        ("9d8a2453a1e0e490606d6efa397e4a7af8b56162f6dae928989842bdfb4d7f40", -6449184932606262566),
        ("5bcbb0", -6050364365248302831),
        ("0afc78fa392a0de4221c51f72e7b318c096a775961a99c1297343cb7e7", -5661186177320442580),
        ("80", -5284281814142962636),
        ("7fde562e167d4583c88cde805c10c9cbc65bb196a908c24e", -4980367985077727455),
        ("d34074a66b250efaeaa308cd7e55d63521fbbb90f3", -4492425489097040208),
        ("ff", -4442228696663692417),
        ("41bd", -4274326356668384577),
        ("ffffffffffffffffffffffffffffffffff", -4128212798341382003),
        ("544dd19a960098adb556104f5ad1", -4125236074042637860),
        ("00000001", -4069959284402364209),
        ("40c6761b96bfc7cc5edc4b096ef2fa173557", -3855330906872121565),
        ("5d8fb4ab47d57c43c5fbb0b74bf4f257a62d94da02798cc640", -3779686249782377504),
        ("9f", -3700297922047225212),
        ("4e7bb2502f7b78b42d0e41f9f005f3", -3215194676847570825),
        ("e98db5e98db5e98db5", -3154909464171608663),
        ("9484aaef6b4d9f8dc6dda345b8fe07322896709fa62e38c2af2ea1b7", -3121889696959553182),
        ("ffffffffffffffffffffffffffffffff", -2824192546314762522),
        ("f6328ae0ada0342ef0f7b032", -2355536618664844582),
        ("5f005967f347db68dd1db0d48c5ff6098c9d4d184b8b8356f3944bf55ad1", -2087504288139290055),
        ("808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f", -61479015959055060),
        ("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f", -12013068397501695),
        ("d0bad0bbd18ed187", 1182936647932017555),
        ("c6f13fa60de6", 1189014295032096208),
        ("f1d7bda6", 1389351884649706830),
        ("21a1e5c9691b2b6f5f260fd86b4b2474ecff9eda2bf9", 2133709493186629947),
        ("216b68d090a4895e7724289861907af532f7229b1759d2e4a900611b5390ea", 2431381629492814753),
        ("839c5ceb255746ecb38b174faf514e2dcc14a0", 2443902994602715987),
        ("c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", 4032995824025522200),
        ("8574f57cb0ba517a464a7867e6251c60d2fd88f52da0ef", 5441288856759958172),
        ("c3a9", 5461403030378599040),
        ("30313233343536373839616263646566", 5467490433528156583),
        ("472eeadec46328c3cc", 5528528438448485681),
        ("0135c637f5fb2adf2a4a50", 6085179519143680878),
        ("281c5f78de3f61", 6184748626003450960),
        ("73f95df455842487fa2a32d65cefda7a48b114b8abba6a2b9dc7ef", 6486111101888816695),
        ("12239e9e71202100f8df", 6675896199282978639),
        ("ffffffffffffffff", 7071048584287372947),
        ("8b1a923f03bb3768", 7494571985083277414),
        ("fefefefefefefefefefefefefefefe", 8102345716022190393),
        ("53ab467649d180a5accc5b5946a458bcf0d46859ecd72cdeddb0", 8185566853890269699),
        ("f7f7e4624c055c6a2aef254310", 8481671133028583548),
        ("ec8707d777", 8649336778462055659),
        ("2e9ff4f4321ec13eedd1f17658835ae486", 8974147359342450082),
    ];

    #[test]
    fn tokens_are_those_of_a_real_cassandra() {
        for (hex, token) in TOKENS {
            let key: Vec<u8> = (0..hex.len())
                .step_by(2)
                .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap())
                .collect();
            assert_eq!(token_of(&key), Token(*token), "token of 0x{hex}");
        }
    }
}
