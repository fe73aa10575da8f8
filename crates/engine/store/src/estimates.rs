//! How many partitions of what size lie in a range of the ring, for `system.size_estimates`.
//!
//! Partition keys are hashed, so those of a file are taken as evenly spread over its tokens.
//! Memtables do not count, as in Cassandra.

use stdx::{TableId, Token};

use crate::files::TableFile;
use crate::store::Store;

/// What the SSTables of one shard have in a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeEstimate {
    /// Partitions, counted once per file; at least one for each file that reaches into the range.
    pub partitions: u64,
    /// Bytes of all partitions of these files, in the range or not, and their number: together the
    /// mean size.
    pub bytes: u64,
    /// See `bytes`.
    pub counted: u64,
}

impl Store {
    /// Estimates for ranges that begin behind their first token and end with their second one
    /// (`Token::MIN` as the second: the end of the ring). Zeros for unknown tables.
    pub fn range_estimates(&self, id: TableId, ranges: &[(Token, Token)]) -> Vec<RangeEstimate> {
        let Some(table) = self.table(id) else {
            return vec![RangeEstimate::default(); ranges.len()];
        };
        let view = table.view();
        ranges
            .iter()
            .map(|range| {
                let mut all = RangeEstimate::default();
                for file in &view.files {
                    add(&mut all, file, *range);
                }
                all
            })
            .collect()
    }
}

/// Samples of one file at most: more of them are thinned out evenly.
const SAMPLES_PER_FILE: usize = 4096;

impl Store {
    /// Tokens of some of the keys of this shard's files of a table, within ranges that begin behind
    /// their first token and end with their second one (`Token::MIN`: the end of the ring): the
    /// samples of the summaries, of a file without one its first and last key. Empty for unknown
    /// tables.
    ///
    /// Memtables do not count, as in Cassandra.
    pub fn key_samples(&self, id: TableId, ranges: &[(Token, Token)]) -> Vec<Token> {
        let Some(table) = self.table(id) else { return Vec::new() };
        let is_within = |token: Token| {
            let is_in = |(left, right): &(Token, Token)| {
                *left < token && (token <= *right || *right == Token::MIN)
            };
            ranges.iter().any(is_in)
        };
        let mut samples = Vec::new();
        for file in &table.view().files {
            let meta = file.reader.meta();
            let tokens: Vec<Token> = match meta.summary() {
                None => vec![meta.first_token(), meta.last_token()],
                Some(summary) => {
                    let step = summary.len().div_ceil(SAMPLES_PER_FILE).max(1);
                    let indexes = (0..summary.len()).step_by(step);
                    indexes.map(|n| codec::token_of(summary.key(n))).collect()
                }
            };
            // A file that spans shards has keys of the others.
            let is_own = |token: &Token| {
                file.filter.is_none_or(|f| (f.shard_of)(*token, f.shard_count) == f.shard)
            };
            samples.extend(tokens.into_iter().filter(is_own).filter(|t| is_within(*t)));
        }
        samples
    }
}

fn add(all: &mut RangeEstimate, file: &TableFile, (left, right): (Token, Token)) {
    let meta = file.reader.meta();
    let sizes = &meta.statistics().stats.partition_sizes;
    // A file that spans shards is counted by each of them.
    let shards = file.filter.map_or(1, |f| u64::from(f.shard_count.max(1)));
    let count = sizes.count() / shards;
    let share = Share::of((meta.first_token(), meta.last_token()), (left, right));
    let Some(share) = share else { return };
    all.partitions = all.partitions.saturating_add(share.part_of(count).max(1));
    all.bytes = all.bytes.saturating_add(sizes.mean().saturating_mul(count));
    all.counted = all.counted.saturating_add(count);
}

/// The part of a file's tokens that lies in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    inside: u128,
    whole: u128,
}

impl Share {
    fn of(file: (Token, Token), (left, right): (Token, Token)) -> Option<Share> {
        let (first, last) = (i128::from(file.0.0), i128::from(file.1.0));
        let end = if right == Token::MIN { i128::from(i64::MAX) } else { i128::from(right.0) };
        let begin = i128::from(left.0);
        let inside = last.min(end) - first.max(begin + 1) + 1;
        let whole = last - first + 1;
        let (inside, whole) = (u128::try_from(inside).ok()?, u128::try_from(whole).ok()?);
        (inside > 0 && whole > 0).then_some(Share { inside, whole })
    }

    fn part_of(self, count: u64) -> u64 {
        let part = u128::from(count).saturating_mul(self.inside) / self.whole.max(1);
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_in_a_range_by_the_part_of_its_tokens_there() {
        let part = |file: (i64, i64), range: (i64, i64)| {
            let token = |(a, b): (i64, i64)| (Token(a), Token(b));
            Share::of(token(file), token(range)).map(|s| s.part_of(100))
        };
        assert_eq!(part((0, 99), (-1, 99)), Some(100));
        // The first token of a range is outside, the last one inside.
        assert_eq!(part((0, 99), (0, 50)), Some(50));
        assert_eq!(part((0, 99), (99, 200)), None);
        assert_eq!(part((0, 99), (-50, -1)), None);
        assert_eq!(part((7, 7), (6, 7)), Some(100));
        assert_eq!(part((0, 99), (49, i64::MIN)), Some(50));
        assert_eq!(part((i64::MIN + 1, i64::MAX), (i64::MIN, i64::MIN)), Some(100));
    }
}
