//! Which shard of a node owns a token of a table.
//!
//! Owns: [`ShardMap`], the one implementation of that rule. Never: which node owns a token (that is
//! `cluster::Placements`).
//!
//! INV-shard-map-1: for a table that is spread by token hash the owner is what drivers compute from
//! the SUPPORTED keys `SCYLLA_SHARDING_…`.

use crate::{ShardId, TableId, Token};

/// Most significant bits of the biased token that do not choose the shard
/// (`SCYLLA_SHARDING_IGNORE_MSB`): with 12 of them neighbouring vnodes spread over all shards.
pub const IGNORE_MSB: u32 = 12;

/// The owning shards of one node: a small value that is passed by copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardMap {
    /// Every table alike: the hash of a token's position decides.
    ByTokenHash {
        /// Number of the node's shards, at least 1.
        shards: u16,
    },
}

impl ShardMap {
    /// The shard that owns a token of a table.
    #[inline]
    pub const fn shard_of(self, _table: TableId, token: Token) -> ShardId {
        match self {
            ShardMap::ByTokenHash { shards } => shard_of_token(token, shards),
        }
    }

    /// Like [`ShardMap::shard_of`], for callers that have to look up the table: the closure is
    /// called only if the owner depends on it.
    #[inline]
    pub fn shard_of_lazy(self, token: Token, _table: impl FnOnce() -> TableId) -> ShardId {
        match self {
            ShardMap::ByTokenHash { shards } => shard_of_token(token, shards),
        }
    }

    /// Number of the node's shards, at least 1.
    #[inline]
    pub const fn shards(self) -> u16 {
        match self {
            ShardMap::ByTokenHash { shards: 0 } => 1,
            ShardMap::ByTokenHash { shards } => shards,
        }
    }

    /// The same rule over another number of shards: that of an earlier run, or of a peer.
    #[inline]
    pub const fn over(self, shards: u16) -> ShardMap {
        match self {
            ShardMap::ByTokenHash { .. } => ShardMap::ByTokenHash { shards },
        }
    }
}

/// The formula that shard-aware drivers use (`biased-token-round-robin`).
#[inline]
const fn shard_of_token(token: Token, shards: u16) -> ShardId {
    let biased = (token.0 as u64).wrapping_add(1 << 63) << IGNORE_MSB;
    let shard = (biased as u128 * shards as u128) >> 64;
    ShardId(shard as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Uuid;

    const TABLE: TableId = TableId(Uuid::from_u128(1));

    fn owner(token: i64, shards: u16) -> ShardId {
        ShardMap::ByTokenHash { shards }.shard_of(TABLE, Token(token))
    }

    #[test]
    fn every_shard_owns_tokens_and_the_only_shard_owns_all() {
        for shards in [1_u16, 2, 3, 8] {
            let mut seen = vec![false; usize::from(shards)];
            let mut token = i64::MIN;
            for _ in 0..10_000 {
                token = token.wrapping_add(0x9e37_79b9_7f4a_7c15_u64 as i64);
                let shard = owner(token, shards);
                assert!(shard.0 < shards);
                seen[usize::from(shard.0)] = true;
            }
            assert!(seen.iter().all(|s| *s), "{shards} shards: {seen:?}");
        }
    }

    /// INV-shard-map-1.
    #[test]
    fn the_shard_of_a_token_is_what_the_documented_formula_gives() {
        // (token + 2^63) << 12, times shards, high 64 bits: worked by hand for two points.
        assert_eq!(owner(i64::MIN, 4), ShardId(0));
        assert_eq!(owner(-1, 4), ShardId(3));
        assert_eq!(owner(0, 4), ShardId(0));
        assert_eq!(owner(1 << 50, 4), ShardId(1));
    }

    #[test]
    fn the_rule_over_other_shards_is_that_of_a_node_with_so_many() {
        let map = ShardMap::ByTokenHash { shards: 2 };
        assert_eq!((map.shards(), map.over(0).shards()), (2, 1));
        assert_eq!(map.over(4), ShardMap::ByTokenHash { shards: 4 });
        assert_eq!(map.over(4).shard_of(TABLE, Token(-1)), ShardId(3));
        assert_eq!(map.shard_of(TABLE, Token(-1)), ShardId(1));
    }
}
