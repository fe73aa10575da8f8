//! Hash maps with one fixed seed, so that two runs of one seed hash alike.
//!
//! Iterating one of these into an output is still forbidden: sort, or use an ordered map.

use std::hash::BuildHasher;

/// Builds hashers with a constant seed. Keys from outside that an attacker could choose to collide
/// (prepared-statement ids, table names) sit in bounded maps, so a fixed seed is acceptable.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedHasher;

impl BuildHasher for FixedHasher {
    type Hasher = foldhash::fast::FoldHasher<'static>;

    fn build_hasher(&self) -> Self::Hasher {
        foldhash::fast::FixedState::with_seed(0x4845_4c45_4e55_5331).build_hasher()
    }
}

/// Hash map with the fixed hasher.
pub type FixedMap<K, V> = hashbrown::HashMap<K, V, FixedHasher>;
/// Hash set with the fixed hasher.
pub type FixedSet<K> = hashbrown::HashSet<K, FixedHasher>;
