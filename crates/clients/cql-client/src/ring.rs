//! The ring as a client routes by it: the replicas of a token.

/// Token ranges with the nodes that a client may ask for them. Nodes are numbers of the caller's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenRing {
    /// Last token of each range with its replicas, in the order of the tokens.
    ranges: Vec<(i64, Vec<usize>)>,
}

impl TokenRing {
    /// From the last token of each range with its replicas, in any order; of equal tokens one
    /// counts.
    pub fn new(mut ranges: Vec<(i64, Vec<usize>)>) -> TokenRing {
        ranges.sort();
        ranges.dedup_by_key(|(token, _)| *token);
        TokenRing { ranges }
    }

    /// Last tokens of all ranges, in order.
    pub fn tokens(&self) -> impl Iterator<Item = i64> {
        self.ranges.iter().map(|(token, _)| *token)
    }

    /// Number of the range that holds a token; 0 in an empty ring.
    pub fn position(&self, token: i64) -> usize {
        let position = self.ranges.partition_point(|(end, _)| *end < token);
        if position < self.ranges.len() { position } else { 0 }
    }

    /// Replicas of a range; none when they are not known.
    pub fn replicas(&self, position: usize) -> &[usize] {
        self.ranges.get(position).map_or(&[], |(_, nodes)| nodes)
    }
}

/// Appends one of `count` parts of a partition key in the form whose hash is the token.
pub fn push_key_part(part: &[u8], count: usize, key: &mut Vec<u8>) {
    if count == 1 {
        key.extend_from_slice(part);
        return;
    }
    // The server refuses the row of a longer part.
    let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
    key.extend_from_slice(&length.to_be_bytes());
    key.extend_from_slice(part);
    key.push(0);
}
