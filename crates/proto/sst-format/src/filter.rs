//! `Filter.db`: the Bloom filter over partition keys.
//!
//! Layout: hash count i32, count of 64-bit words i32, then the bits, bit `i` in byte `i / 8` at
//! `1 << i % 8`; before `na` each word was written as a big-endian number. Source: `utils.BloomFilterSerializer`, `utils.obs.OffHeapBitSet`.

use codec::{BloomCapacity, BloomHash, Reader, Writer};

use crate::{FormatError, Result, Version};

/// Bits that Cassandra adds beyond keys times bits per key.
const EXCESS_BITS: u64 = 20;
/// Most bits per key that its table knows.
const BITS_PER_KEY_MAX: usize = 20;

/// A Bloom filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BloomFilter {
    hash_count: u32,
    bits: Vec<u8>,
    capacity: BloomCapacity,
}

/// From little-endian words to big-endian ones, and back.
fn turn_words(bits: &mut [u8]) {
    for word in bits.as_chunks_mut::<8>().0 {
        word.reverse();
    }
}

/// False-positive rates by bits per key (from 2) and hash count (from 1): those of the standard
/// formula `(1 - e^(-k/b))^k`, which Cassandra's published table rounds.
fn false_positive_rate(hash_count: usize, bits_per_key: usize) -> f64 {
    let k = hash_count as f64;
    (1.0 - (-k / bits_per_key as f64).exp()).powf(k)
}

impl BloomFilter {
    /// An empty filter for that many keys. `fp_chance` of 1 or more: a filter without bits, which
    /// holds every key (Cassandra leaves the component out then).
    pub fn with_capacity(keys: u64, fp_chance: f64) -> BloomFilter {
        if fp_chance >= 1.0 {
            return BloomFilter::new(0, Vec::new());
        }
        let (hash_count, bits_per_key) = Self::shape(fp_chance);
        let bits = keys.max(1).saturating_mul(bits_per_key as u64).saturating_add(EXCESS_BITS);
        let bytes = bits.div_ceil(64).saturating_mul(8);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(i32::MAX as usize);
        BloomFilter::new(u32::try_from(hash_count).unwrap_or(1), vec![0; bytes])
    }

    fn new(hash_count: u32, bits: Vec<u8>) -> BloomFilter {
        let capacity = BloomCapacity::new((bits.len() as u64).saturating_mul(8));
        BloomFilter { hash_count, bits, capacity }
    }

    /// Fewest bits per key that reach the rate, then fewest hashes.
    fn shape(fp_chance: f64) -> (usize, usize) {
        for bits in 2..=BITS_PER_KEY_MAX {
            for hashes in 1..=bits.min(14) {
                if false_positive_rate(hashes, bits) <= fp_chance {
                    return (hashes, bits);
                }
            }
        }
        (14, BITS_PER_KEY_MAX)
    }

    /// Adds a key's hash. Who has many: [`FilterBuilder`](crate::FilterBuilder).
    #[inline]
    pub fn add(&mut self, hash: BloomHash) {
        for position in self.positions(hash) {
            self.set(position);
        }
    }

    /// The bits of a hash.
    #[inline]
    pub(crate) fn positions(&self, hash: BloomHash) -> impl Iterator<Item = u64> + use<> {
        hash.positions(self.hash_count, self.capacity)
    }

    /// Sets a bit.
    #[inline]
    pub(crate) fn set(&mut self, position: u64) {
        let byte = usize::try_from(position >> 3).ok().and_then(|i| self.bits.get_mut(i));
        if let Some(byte) = byte {
            *byte |= 1 << (position & 7);
        }
    }

    /// Returns true if the key may have been added; never false for one that was.
    #[inline]
    pub fn may_contain(&self, hash: BloomHash) -> bool {
        if self.bits.is_empty() {
            return true;
        }
        hash.positions(self.hash_count, self.capacity).all(|position| {
            usize::try_from(position >> 3)
                .ok()
                .and_then(|i| self.bits.get(i))
                .is_some_and(|byte| byte & (1 << (position & 7)) != 0)
        })
    }

    /// True when it answers yes to everything and has no component on disk.
    pub fn is_always_present(&self) -> bool {
        self.bits.is_empty()
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.bits.len()
    }

    /// The bytes of the file.
    pub fn encode(&self, version: Version) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bits.len().saturating_add(8));
        out.put_u32(self.hash_count);
        out.put_u32(u32::try_from(self.bits.len() / 8).unwrap_or(u32::MAX));
        let header = out.len();
        out.put_bytes(&self.bits);
        if version.has_old_filter() {
            turn_words(out.get_mut(header..).unwrap_or_default());
        }
        out
    }

    /// Reads the file.
    ///
    /// # Errors
    /// `Decode`; `Invalid` for a hash count outside 1..=64 or no bits.
    pub fn decode(bytes: &[u8], version: Version) -> Result<BloomFilter> {
        let mut r = Reader::new(bytes, "bloom filter");
        let hash_count = r.u32()?;
        if !(1..=64).contains(&hash_count) {
            return Err(FormatError::Invalid { what: "hash count out of range", offset: 0 });
        }
        let words = r.len_i32()?;
        let length = words.saturating_mul(8);
        let mut bits = r.bytes(length)?.to_vec();
        r.finish()?;
        if version.has_old_filter() {
            turn_words(&mut bits);
        }
        if bits.is_empty() {
            return Err(FormatError::Invalid { what: "filter without bits", offset: 4 });
        }
        Ok(BloomFilter::new(hash_count, bits))
    }

    /// Returns the filter with its words in the other byte order, if only then it holds `keys`,
    /// which are in the file. Builds of 4.0 before its release wrote `na` with the words of older
    /// versions, and nothing else shows that.
    pub fn settled(self, version: Version, keys: &[BloomHash]) -> BloomFilter {
        let holds = |filter: &BloomFilter| keys.iter().all(|key| filter.may_contain(*key));
        if version == Version::Na && !holds(&self) {
            let mut turned = self.clone();
            turn_words(&mut turned.bits);
            if holds(&turned) {
                return turned;
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::hash_key;

    #[test]
    fn every_added_key_is_found_and_few_others() {
        let mut filter = BloomFilter::with_capacity(10_000, 0.01);
        for i in 0..10_000u32 {
            filter.add(hash_key(&i.to_be_bytes()).bloom);
        }
        let filter = BloomFilter::decode(&filter.encode(Version::Nb), Version::Nb).unwrap();
        assert!((0..10_000u32).all(|i| filter.may_contain(hash_key(&i.to_be_bytes()).bloom)));
        let wrong = (10_000..110_000u32)
            .filter(|i| filter.may_contain(hash_key(&i.to_be_bytes()).bloom))
            .count();
        assert!(wrong < 1500, "{wrong} of 100,000");
    }

    #[test]
    fn a_chance_of_one_holds_everything_and_the_next_below_does_not() {
        let all = BloomFilter::with_capacity(10, 1.0);
        assert!(all.may_contain(hash_key(b"x").bloom) && all.is_always_present());
        let some = BloomFilter::with_capacity(10, 0.99);
        assert!(!some.may_contain(hash_key(b"x").bloom) && !some.is_always_present());
    }

    #[test]
    fn the_default_chance_has_cassandras_shape() {
        assert_eq!(BloomFilter::shape(0.01), (5, 10));
        assert_eq!(BloomFilter::shape(0.1), (3, 5));
    }

    #[test]
    fn bits_lie_in_cassandras_byte_order() {
        let mut filter = BloomFilter::new(1, vec![0; 8]);
        filter.add(BloomHash { base: 11, increment: 0 });
        assert_eq!(filter.encode(Version::Nb), [0, 0, 0, 1, 0, 0, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0]);
        // Before `na` the words were big endian.
        let old = [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 8, 0];
        assert_eq!(filter.encode(Version::Me), old);
        assert_eq!(BloomFilter::decode(&old, Version::Me).unwrap(), filter);
    }

    #[test]
    fn words_of_na_are_turned_when_only_then_the_keys_are_there() {
        let keys = [b"first".as_slice(), b"last"].map(|key| hash_key(key).bloom);
        let other = hash_key(b"another").bloom;
        let mut filter = BloomFilter::with_capacity(100, 0.01);
        keys.iter().for_each(|key| filter.add(*key));
        let old = BloomFilter::decode(&filter.encode(Version::Me), Version::Na).unwrap();
        assert_ne!(old, filter);
        assert_eq!(old.clone().settled(Version::Na, &keys), filter);
        // A correct filter stays as it is. One that is wrong in both orders is left for a check to
        // report. After `na` the order is known.
        assert_eq!(filter.clone().settled(Version::Na, &keys), filter);
        assert_eq!(old.clone().settled(Version::Na, &[other]), old);
        assert_eq!(old.clone().settled(Version::Nb, &keys), old);
    }
}
