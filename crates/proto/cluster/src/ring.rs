//! Tokens to shards and nodes.

use stdx::{ShardId, Token};

/// Most significant bits of the biased token that do not choose the shard
/// (`SCYLLA_SHARDING_IGNORE_MSB`): with 12 of them neighbouring vnodes spread over all shards.
pub const IGNORE_MSB: u32 = 12;

/// The shard that owns a token, by the formula that shard-aware drivers use
/// (`biased-token-round-robin`). `shards` is at least 1.
#[inline]
pub fn shard_of_token(token: Token, shards: u16) -> ShardId {
    let biased = (token.0 as u64).wrapping_add(1 << 63) << IGNORE_MSB;
    let shard = (u128::from(biased) * u128::from(shards)) >> 64;
    ShardId(shard as u16)
}

/// `count` tokens spread evenly over the ring, for a node that is alone: what Cassandra's formula
/// for `initial_token` gives, ascending. `offset` (0..gap) moves all of them, so that two such
/// nodes that meet later do not own the same tokens.
pub fn tokens_for_single_node(count: u16, offset: u64) -> Vec<Token> {
    let count = u64::from(count.max(1));
    let gap = u64::MAX / count;
    let mut tokens: Vec<Token> = (0..count)
        .map(|i| {
            let position = i.wrapping_mul(gap).wrapping_add(offset % gap.max(1));
            Token(position.wrapping_add(1 << 63) as i64)
        })
        .map(|t| if t == Token::MIN { Token(i64::MIN + 1) } else { t })
        .collect();
    tokens.sort();
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_owns_tokens_and_the_only_shard_owns_all() {
        for shards in [1_u16, 2, 3, 8] {
            let mut seen = vec![false; usize::from(shards)];
            let mut token = i64::MIN;
            for _ in 0..10_000 {
                token = token.wrapping_add(0x9e37_79b9_7f4a_7c15_u64 as i64);
                let shard = shard_of_token(Token(token), shards);
                assert!(shard.0 < shards);
                seen[usize::from(shard.0)] = true;
            }
            assert!(seen.iter().all(|s| *s), "{shards} shards: {seen:?}");
        }
    }

    #[test]
    fn the_shard_of_a_token_is_what_the_documented_formula_gives() {
        // (token + 2^63) << 12, times shards, high 64 bits: worked by hand for two points.
        assert_eq!(shard_of_token(Token(i64::MIN), 4), ShardId(0));
        assert_eq!(shard_of_token(Token(-1), 4), ShardId(3));
        assert_eq!(shard_of_token(Token(0), 4), ShardId(0));
        assert_eq!(shard_of_token(Token(1 << 50), 4), ShardId(1));
    }

    #[test]
    fn tokens_of_a_single_node_are_distinct_and_spread() {
        let tokens = tokens_for_single_node(16, 12_345);
        assert_eq!(tokens.len(), 16);
        for pair in tokens.windows(2) {
            let gap = (pair[1].0 as i128) - (pair[0].0 as i128);
            assert!(gap > (1_i128 << 59) && gap < (1_i128 << 61), "gap {gap}");
        }
    }
}
