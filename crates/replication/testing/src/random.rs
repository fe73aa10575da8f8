//! Random numbers of a seed (SplitMix64).

/// A small seeded generator.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "it has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in 0..n.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// INV-dist-testing-1.
    #[test]
    fn one_seed_gives_one_series_of_writes_and_another_seed_another() {
        let writes = |seed| {
            let mut random = Random(seed);
            (0..200).map(|at| random.write(8, at)).collect::<Vec<_>>()
        };
        assert_eq!(writes(7), writes(7));
        assert_ne!(writes(7), writes(8));
    }
}
