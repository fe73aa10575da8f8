//! Digests of Java that none of our dependencies has: MD2 (RFC 1319) and SHA-3 (FIPS 202).
//!
//! For masks only: nothing is kept safe by them.

/// Numbers of RFC 1319 that stand for bytes.
const MD2_TABLE: [u8; 256] = [
    41, 46, 67, 201, 162, 216, 124, 1, 61, 54, 84, 161, 236, 240, 6, 19, 98, 167, 5, 243, 192, 199,
    115, 140, 152, 147, 43, 217, 188, 76, 130, 202, 30, 155, 87, 60, 253, 212, 224, 22, 103, 66,
    111, 24, 138, 23, 229, 18, 190, 78, 196, 214, 218, 158, 222, 73, 160, 251, 245, 142, 187, 47,
    238, 122, 169, 104, 121, 145, 21, 178, 7, 63, 148, 194, 16, 137, 11, 34, 95, 33, 128, 127, 93,
    154, 90, 144, 50, 39, 53, 62, 204, 231, 191, 247, 151, 3, 255, 25, 48, 179, 72, 165, 181, 209,
    215, 94, 146, 42, 172, 86, 170, 198, 79, 184, 56, 210, 150, 164, 125, 182, 118, 252, 107, 226,
    156, 116, 4, 241, 69, 157, 112, 89, 100, 113, 135, 32, 134, 91, 207, 101, 230, 45, 168, 2, 27,
    96, 37, 173, 174, 176, 185, 246, 28, 70, 97, 105, 52, 64, 126, 15, 85, 71, 163, 35, 221, 81,
    175, 58, 195, 92, 249, 206, 186, 197, 234, 38, 44, 83, 13, 110, 133, 40, 132, 9, 211, 223, 205,
    244, 65, 129, 77, 82, 106, 220, 55, 200, 108, 193, 171, 250, 36, 225, 123, 8, 12, 189, 177, 74,
    120, 136, 149, 139, 227, 99, 232, 109, 233, 203, 213, 254, 59, 0, 29, 57, 242, 239, 183, 14,
    102, 88, 208, 228, 166, 119, 114, 248, 235, 117, 75, 10, 49, 68, 80, 180, 143, 237, 31, 26,
    219, 153, 141, 51, 159, 17, 131, 20,
];

/// MD2: 16 bytes.
pub(crate) fn md2(value: &[u8]) -> Vec<u8> {
    let substitute = |byte: u8| MD2_TABLE.get(usize::from(byte)).copied().unwrap_or(0);
    let mut padded = value.to_vec();
    let missing = 16 - value.len() % 16;
    padded.extend(std::iter::repeat_n(u8::try_from(missing).unwrap_or(16), missing));
    let (mut sum, mut last) = ([0_u8; 16], 0_u8);
    for block in padded.chunks(16) {
        for (slot, byte) in sum.iter_mut().zip(block) {
            *slot ^= substitute(byte ^ last);
            last = *slot;
        }
    }
    padded.extend_from_slice(&sum);
    let mut state = [0_u8; 48];
    for block in padded.chunks(16) {
        let (digest, rest) = state.split_at_mut(16);
        let (second, third) = rest.split_at_mut(16);
        for (((d, s), t), byte) in digest.iter().zip(second).zip(third).zip(block) {
            *s = *byte;
            *t = byte ^ d;
        }
        let mut carry = 0_u8;
        for round in 0..18_u8 {
            for slot in &mut state {
                *slot ^= substitute(carry);
                carry = *slot;
            }
            carry = carry.wrapping_add(round);
        }
    }
    state.iter().take(16).copied().collect()
}

/// How far each lane is turned, and where it goes: rho and pi in one walk over the lanes.
const TURNS: [(usize, u32); 24] = [
    (10, 1),
    (7, 3),
    (11, 6),
    (17, 10),
    (18, 15),
    (3, 21),
    (5, 28),
    (16, 36),
    (8, 45),
    (21, 55),
    (24, 2),
    (4, 14),
    (15, 27),
    (23, 41),
    (19, 56),
    (13, 8),
    (12, 25),
    (2, 43),
    (20, 62),
    (14, 18),
    (22, 39),
    (9, 61),
    (6, 20),
    (1, 44),
];

/// Keccak-f[1600].
fn permute(lanes: &mut [u64; 25]) {
    // The constants of the rounds come from a shift register (FIPS 202, rc).
    let mut register = 1_u8;
    for _ in 0..24 {
        let mut columns = [0_u64; 5];
        for (x, column) in columns.iter_mut().enumerate() {
            *column = lanes.iter().skip(x).step_by(5).fold(0, |all, lane| all ^ lane);
        }
        for (x, lane) in lanes.iter_mut().enumerate() {
            *lane ^= columns[(x + 4) % 5] ^ columns[(x + 1) % 5].rotate_left(1);
        }
        let mut moved = lanes[1];
        for (to, turn) in TURNS {
            moved = std::mem::replace(&mut lanes[to], moved.rotate_left(turn));
        }
        for row in lanes.chunks_mut(5) {
            let old: [u64; 5] = std::array::from_fn(|x| row[x]);
            for (x, lane) in row.iter_mut().enumerate() {
                *lane ^= !old[(x + 1) % 5] & old[(x + 2) % 5];
            }
        }
        for bit in 0..7_u32 {
            if register & 1 == 1 {
                lanes[0] ^= 1 << ((1_u32 << bit) - 1);
            }
            let carry = register & 0x80 != 0;
            register <<= 1;
            if carry {
                register ^= 0x71;
            }
        }
    }
}

/// SHA-3 with a digest of this many bytes: 28, 32, 48 or 64.
pub(crate) fn sha3(value: &[u8], bytes: usize) -> Vec<u8> {
    let rate = 200_usize.saturating_sub(bytes.saturating_mul(2)).max(8);
    let mut padded = value.to_vec();
    padded.push(0x06);
    padded.resize(padded.len().next_multiple_of(rate), 0);
    if let Some(last) = padded.last_mut() {
        *last |= 0x80;
    }
    let mut lanes = [0_u64; 25];
    for block in padded.chunks(rate) {
        for (lane, word) in lanes.iter_mut().zip(block.chunks(8)) {
            let word: [u8; 8] = std::array::from_fn(|i| word.get(i).copied().unwrap_or(0));
            *lane ^= u64::from_le_bytes(word);
        }
        permute(&mut lanes);
    }
    lanes.iter().flat_map(|lane| lane.to_le_bytes()).take(bytes).collect()
}
