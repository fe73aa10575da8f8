//! Filling a Bloom filter that is larger than the processor's caches.
//!
//! Each key sets several bits anywhere, and each of them would wait for memory. So what goes into one stretch
//! of the filter is gathered, and set together once there is enough: then the stretch is in a cache.

use codec::BloomHash;

use crate::BloomFilter;

/// Filters of fewer bytes are in the cache nearest to the processor anyway.
const SMALL_BYTES: usize = 48 * 1024;
/// Bits of a segment (a stretch of the filter) are at least two to the power of this: 8 KiB, so that
/// it stays in that cache while its bits are set. Those of larger filters are longer, and in the
/// next cache.
const STRETCH_SHIFT_MIN: u32 = 16;
/// Most segments. Each has a slot where the next position is noted. All these slots should fit into
/// the nearest cache, beside the other data of a key.
const STRETCHES_MAX: u64 = 64;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Positions that are gathered for each line of a segment before they are set. One wait for a line
/// then serves this many. They take a quarter of the filter.
const TOGETHER_PER_LINE: usize = 4;
/// Most positions that are gathered: 8 MiB.
const WAITING_MAX: usize = (8 << 20) / size_of::<u32>();
/// Gap between the slots of one segment and those of the next. Without it the slots to fill next
/// would all be in the same few sets of a cache.
const APART: usize = LINE / size_of::<u32>();

/// A Bloom filter that is being filled. Takes a quarter of the filter beside it, at most 8 MiB.
#[derive(Debug)]
pub struct FilterBuilder {
    filter: BloomFilter,
    /// The segment of a position is the position shifted right by this many bits.
    shift: u32,
    /// Slots for the positions of one segment.
    together: usize,
    /// By segment, `together` slots each, and the number of used ones. Empty for a small filter.
    waiting: Vec<u32>,
    counts: Vec<usize>,
}

impl FilterBuilder {
    /// Fills an empty filter.
    pub fn new(filter: BloomFilter) -> FilterBuilder {
        let bits = (filter.memory_bytes() as u64).saturating_mul(8);
        let mut shift = STRETCH_SHIFT_MIN;
        while bits >> shift >= STRETCHES_MAX {
            shift = shift.saturating_add(1);
        }
        let stretches = match filter.memory_bytes() < SMALL_BYTES {
            true => 0,
            false => usize::try_from(bits >> shift).unwrap_or(0).saturating_add(1),
        };
        let lines = 1usize.checked_shl(shift).unwrap_or(usize::MAX) / (8 * LINE);
        let most = WAITING_MAX.checked_div(stretches).unwrap_or(0);
        let together = lines.saturating_mul(TOGETHER_PER_LINE).min(most);
        let waiting = vec![0; stretches.saturating_mul(together.saturating_add(APART))];
        FilterBuilder { filter, shift, together, waiting, counts: vec![0; stretches] }
    }

    /// Adds a key's hash.
    #[inline]
    pub fn add(&mut self, hash: BloomHash) {
        if self.counts.is_empty() {
            return self.filter.add(hash);
        }
        for position in self.filter.positions(hash) {
            let stretch = usize::try_from(position >> self.shift).unwrap_or(0);
            // The lower bits: fewer than 32.
            let place = u32::try_from(position & ((1u64 << self.shift).wrapping_sub(1)));
            let first = stretch.wrapping_mul(self.together.wrapping_add(APART));
            if let Some(count) = self.counts.get_mut(stretch)
                && let Some(next) = self.waiting.get_mut(first.wrapping_add(*count))
            {
                *next = place.unwrap_or(0);
                *count = count.wrapping_add(1);
                if *count == self.together {
                    self.set_waiting(stretch);
                }
            }
        }
    }

    /// Sets the bits that are gathered for a segment.
    #[inline(never)]
    fn set_waiting(&mut self, stretch: usize) {
        let first = stretch.wrapping_mul(self.together.wrapping_add(APART));
        let Some(count) = self.counts.get_mut(stretch) else { return };
        let places = self.waiting.get(first..first.wrapping_add(*count)).unwrap_or(&[]);
        let start = (stretch as u64) << self.shift;
        places.iter().for_each(|place| self.filter.set(start | u64::from(*place)));
        *count = 0;
    }

    /// The filter with all that was added.
    pub fn finish(mut self) -> BloomFilter {
        for stretch in 0..self.counts.len() {
            self.set_waiting(stretch);
        }
        self.filter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_of_all_sizes_have_the_bits_that_adding_one_by_one_sets() {
        for keys in [0, 1, 1_000, 200_000, 400_000, 3_000_000, 16_000_000] {
            for fp_chance in [0.01, 0.1, 1.0] {
                let mut simple = BloomFilter::with_capacity(keys, fp_chance);
                let mut builder = FilterBuilder::new(simple.clone());
                let is_large = simple.memory_bytes() >= SMALL_BYTES;
                assert_eq!(builder.counts.is_empty(), !is_large);
                assert!(builder.counts.len() as u64 <= STRETCHES_MAX);
                assert!(builder.waiting.len() <= WAITING_MAX + 64 * APART);
                // In most sizes more than the slots of each segment, and not a multiple of them.
                for key in 0..if is_large { 200_011u64 } else { 500 } {
                    let hash = codec::hash_key(&key.to_be_bytes()).bloom;
                    simple.add(hash);
                    builder.add(hash);
                }
                assert!(builder.finish() == simple, "{keys} keys, {fp_chance}");
            }
        }
    }
}
