//! Packing of numbers into bits, lowest bit first.

/// Numbers of one packed group at most.
pub(crate) const GROUP: usize = 128;

/// A number of so many bits lies in the eight bytes from the one in which it begins.
const NARROW_BITS_MAX: u32 = 57;

/// Bits that a number takes.
pub(crate) fn width(value: u64) -> u32 {
    64 - value.leading_zeros()
}

/// Bytes of `count` numbers of `width` bits.
pub(crate) fn packed_len(count: usize, width: u32) -> usize {
    (count * width as usize).div_ceil(8)
}

/// Appends numbers of `width` bits each, 0..=64.
pub(crate) fn pack(values: impl Iterator<Item = u64>, width: u32, out: &mut Vec<u8>) {
    let mut held = 0u128;
    let mut bits = 0;
    for value in values {
        held |= u128::from(value) << bits;
        bits += width;
        while bits >= 8 {
            out.push(held.to_le_bytes()[0]);
            held >>= 8;
            bits -= 8;
        }
    }
    if bits > 0 {
        out.push(held.to_le_bytes()[0]);
    }
}

/// The number of `width` bits, 0..=64, at index `at`. Bits beyond the end are 0.
pub(crate) fn get(bytes: &[u8], width: u32, at: usize) -> u64 {
    let bit = at * width as usize;
    let rest = bytes.get(bit / 8..).unwrap_or_default();
    if width <= NARROW_BITS_MAX
        && let Some(word) = rest.first_chunk::<8>()
    {
        return (u64::from_le_bytes(*word) >> (bit % 8)) & ((1 << width) - 1);
    }
    let word = match rest.first_chunk::<16>() {
        Some(word) => u128::from_le_bytes(*word),
        None => {
            let mut word = [0; 16];
            word.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            u128::from_le_bytes(word)
        }
    };
    let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
    #[expect(clippy::cast_possible_truncation, reason = "masked")]
    let low = (word >> (bit % 8)) as u64;
    low & mask
}

/// Unpacks numbers of up to 32 bits. Bits beyond the end are 0.
pub(crate) fn unpack(bytes: &[u8], width: u32, out: &mut [u32]) {
    let mut padded = [0u8; GROUP * 4 + 8];
    let length = bytes.len().min(GROUP * 4);
    if let (Some(to), Some(from)) = (padded.get_mut(..length), bytes.get(..length)) {
        to.copy_from_slice(from);
    }
    let mask = (1u64 << width) - 1;
    let mut bit = 0;
    for slot in out {
        let word = padded.get(bit / 8..).and_then(<[u8]>::first_chunk::<8>);
        let word = u64::from_le_bytes(word.copied().unwrap_or_default());
        #[expect(clippy::cast_possible_truncation, reason = "a mask of 32 bits at most")]
        let value = ((word >> (bit % 8)) & mask) as u32;
        *slot = value;
        bit += width as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_width_come_back() {
        let mut random = testkit::Random::new(5);
        for bits in 0..=64u32 {
            let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
            let values: Vec<u64> = (0..GROUP).map(|_| random.next_u64() & mask).collect();
            let mut bytes = Vec::new();
            pack(values.iter().copied(), bits, &mut bytes);
            assert_eq!(bytes.len(), packed_len(GROUP, bits));
            for (at, value) in values.iter().enumerate() {
                assert_eq!(get(&bytes, bits, at), *value, "{bits} bits, {at}");
            }
            if bits <= 32 {
                let mut out = [0; GROUP];
                unpack(&bytes, bits, &mut out);
                assert!(out.iter().zip(&values).all(|(a, b)| u64::from(*a) == *b), "{bits} bits");
            }
            assert!(values.iter().all(|value| width(*value) <= bits));
        }
    }
}
