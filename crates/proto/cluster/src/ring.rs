//! Tokens of a node that founds a cluster.

use stdx::Token;

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
    fn tokens_of_a_single_node_are_distinct_and_spread() {
        let tokens = tokens_for_single_node(16, 12_345);
        assert_eq!(tokens.len(), 16);
        for pair in tokens.windows(2) {
            let gap = (pair[1].0 as i128) - (pair[0].0 as i128);
            assert!(gap > (1_i128 << 59) && gap < (1_i128 << 61), "gap {gap}");
        }
    }
}
