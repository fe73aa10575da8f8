//! The cardinality estimator in Statistics.db: HyperLogLog++ with 2^13 registers, in the dense
//! serialised form of stream-lib that Cassandra reads.
//!
//! Layout: i32 -2 (version), LEB128 p = 13, LEB128 sp = 25, LEB128 0 (dense), LEB128 byte count,
//! then words of 32 bits with six registers of 5 bits each, lowest first.

use codec::{Reader, Writer};

use crate::{FormatError, Result};

const P: u32 = 13;
const SP: u32 = 25;
const REGISTERS: usize = 1 << P;
const PER_WORD: usize = 6;
const WORDS: usize = REGISTERS / PER_WORD + 1;

/// The estimator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HyperLogLog {
    registers: Vec<u8>,
}

impl Default for HyperLogLog {
    fn default() -> Self {
        HyperLogLog { registers: vec![0; REGISTERS] }
    }
}

fn put_leb(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f | 0x80).to_le_bytes()[0]);
        value >>= 7;
    }
    out.put_u8(value.to_le_bytes()[0]);
}

/// `MurmurHash.hash2_64` with seed 0, whose tail bytes are signed.
pub fn murmur2_64(key: &[u8]) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let mut h = M.wrapping_mul(key.len() as u64);
    let (words, tail) = key.as_chunks::<8>();
    for word in words {
        let mut k = u64::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 47;
        h = (h ^ k.wrapping_mul(M)).wrapping_mul(M);
    }
    if !tail.is_empty() {
        h = (h ^ codec::signed_tail(tail)).wrapping_mul(M);
    }
    h ^= h >> 47;
    h = h.wrapping_mul(M);
    h ^ (h >> 47)
}

impl HyperLogLog {
    /// Takes in a key.
    #[inline]
    pub fn add(&mut self, key: &[u8]) {
        self.add_hash(murmur2_64(key));
    }

    /// The same of a key whose [`murmur2_64`] is known.
    #[inline]
    pub fn add_hash(&mut self, hash: u64) {
        let index = usize::try_from(hash >> (64 - P)).unwrap_or(0);
        let run = ((hash << P) | (1 << (P - 1))).leading_zeros().saturating_add(1);
        if let Some(register) = self.registers.get_mut(index) {
            *register = (*register).max(u8::try_from(run).unwrap_or(u8::MAX));
        }
    }

    /// Takes in all keys that another one has taken in.
    pub fn merge(&mut self, other: &HyperLogLog) {
        for (register, more) in self.registers.iter_mut().zip(&other.registers) {
            *register = (*register).max(*more);
        }
    }

    /// Estimated number of different keys.
    pub fn estimate(&self) -> u64 {
        let m = REGISTERS as f64;
        let sum: f64 = self.registers.iter().map(|r| f64::from(*r).exp2().recip()).sum();
        let raw = 0.7213 / (1.0 + 1.079 / m) * m * m / sum;
        let zeros = self.registers.iter().filter(|r| **r == 0).count();
        let estimate = if zeros > 0 && raw <= 5.0 * m { m * (m / zeros as f64).ln() } else { raw };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let rounded = estimate.round() as u64;
        rounded
    }

    /// The bytes that Cassandra's `HyperLogLogPlus.Builder.build` reads.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(WORDS.saturating_mul(4).saturating_add(16));
        out.put_i32(-2);
        put_leb(&mut out, P);
        put_leb(&mut out, SP);
        put_leb(&mut out, 0);
        put_leb(&mut out, u32::try_from(WORDS * 4).unwrap_or(0));
        for group in self.registers.chunks(PER_WORD) {
            let mut word = 0u32;
            for (i, register) in (0u32..).zip(group) {
                word |= u32::from(*register & 0x1f) << i.wrapping_mul(5);
            }
            out.put_u32(word);
        }
        out
    }

    /// Reads the dense form. `None` for the sparse one, which small files of Cassandra have and
    /// which nothing here needs.
    ///
    /// # Errors
    /// `Decode`, `Invalid`.
    pub fn decode(bytes: &[u8]) -> Result<Option<HyperLogLog>> {
        let mut r = Reader::new(bytes, "cardinality estimator");
        let version = r.i32()?;
        if version != -2 {
            return Ok(None);
        }
        let (p, _sp, form) = (r.u8()?, r.u8()?, r.u8()?);
        if u32::from(p) != P || form != 0 {
            return Ok(None);
        }
        let length = usize::from(r.u8()? & 0x7f) | usize::from(r.u8()?) << 7;
        if length != WORDS * 4 {
            return Err(FormatError::Invalid { what: "wrong register count", offset: 7 });
        }
        let mut registers = Vec::with_capacity(REGISTERS);
        for _ in 0..WORDS {
            let word = r.u32()?;
            for i in 0..6u32 {
                registers.push(u8::try_from((word >> i.wrapping_mul(5)) & 0x1f).unwrap_or(0));
            }
        }
        registers.truncate(REGISTERS);
        r.finish()?;
        Ok(Some(HyperLogLog { registers }))
    }
}

/// Estimate of an estimator in either serialised form. `None` when it is neither.
///
/// The sparse form (of small files of Cassandra) is counted: as many of 2^25 places are taken as it
/// lists. Estimates of dense ones may differ from Cassandra's by the bias tables it corrects with.
pub fn estimate_serialised(bytes: &[u8]) -> Option<u64> {
    if let Ok(Some(dense)) = HyperLogLog::decode(bytes) {
        return Some(dense.estimate());
    }
    let mut r = Reader::new(bytes, "cardinality estimator");
    let version = r.i32().ok()?;
    let (p, sp, form) = (r.u8().ok()?, r.u8().ok()?, r.u8().ok()?);
    if version != -2 || u32::from(p) != P || u32::from(sp) != SP || form != 1 {
        return None;
    }
    let mut count = 0u64;
    let mut shift = 0u32;
    loop {
        let byte = r.u8().ok()?;
        count |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            break;
        }
        shift = shift.checked_add(7).filter(|s| *s < 35)?;
    }
    let places = f64::from(1u32 << SP);
    let free = places - (count as f64).min(places - 1.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let estimate = (places * (places / free).ln()).round() as u64;
    Some(estimate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_lie_within_a_few_percent_and_come_back() {
        for n in [1u32, 100, 5000, 200_000] {
            let mut h = HyperLogLog::default();
            for i in 0..n {
                h.add(&i.to_be_bytes());
            }
            let estimate = h.estimate() as f64;
            assert!((estimate / f64::from(n) - 1.0).abs() < 0.05, "{n}: {estimate}");
            assert_eq!(HyperLogLog::decode(&h.encode()).unwrap(), Some(h));
        }
    }

    #[test]
    fn keys_that_several_have_count_once() {
        let of = |range: std::ops::Range<u32>| {
            let mut h = HyperLogLog::default();
            range.for_each(|i| h.add(&i.to_be_bytes()));
            h
        };
        let mut merged = of(0..60_000);
        merged.merge(&of(40_000..100_000));
        assert_eq!(merged, of(0..100_000));
        merged.merge(&HyperLogLog::default());
        assert_eq!(merged, of(0..100_000));
    }

    #[test]
    fn tail_bytes_are_signed() {
        assert_ne!(murmur2_64(&[0x80]), murmur2_64(&[0x00]));
        assert_eq!(murmur2_64(b""), 0);
    }
}
