//! Estimates of the number and size of partitions in a range of the ring, for
//! `system.size_estimates`.
//!
//! Partition keys are hashed, so those of a file are taken as evenly spread over its tokens.
//! Memtables do not count, as in Cassandra.

use sst_format::hyperloglog::HyperLogLog;
use sstable::SstableMeta;
use stdx::{TableId, Token};

use crate::tables::registry::Tables;
use crate::tables::table_file::TableFile;

/// Estimated content of one shard's SSTables in a range.
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

/// Partitions that files have together, those that several have counted once, to some percent: at least
/// those of the one with most, at most the sum. What a filter for all of them needs.
pub(crate) fn partitions_together<'m>(metas: impl Iterator<Item = &'m SstableMeta>) -> u64 {
    let (mut most, mut sum, mut apart) = (0u64, 0u64, 0u64);
    let mut together = HyperLogLog::default();
    for meta in metas {
        let count = meta.estimated_partitions();
        most = most.max(count);
        sum = sum.saturating_add(count);
        match HyperLogLog::decode(&meta.statistics().cardinality) {
            Ok(Some(keys)) => together.merge(&keys),
            // Some small files of Cassandra say it in another form.
            _ => apart = apart.saturating_add(count),
        }
    }
    if sum == most {
        return sum;
    }
    together.estimate().saturating_add(apart).clamp(most, sum)
}

impl Tables {
    /// Estimates for ranges that begin after their first token and end with their second one
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
                    add(&mut all, file, range.0, range.1);
                }
                all
            })
            .collect()
    }
}

/// Samples of one file at most: more of them are thinned out evenly.
const SAMPLES_PER_FILE: usize = 4096;

impl Tables {
    /// Tokens of some of the keys of this shard's files of a table, within ranges that begin after
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
            let is_own = |token: &Token| file.filter.is_none_or(|f| f.shows(*token));
            samples.extend(tokens.into_iter().filter(is_own).filter(|t| is_within(*t)));
        }
        samples
    }
}

fn add(all: &mut RangeEstimate, file: &TableFile, left: Token, right: Token) {
    let meta = file.reader.meta();
    let sizes = &meta.statistics().stats.partition_sizes;
    // A file that spans shards is counted by each of them.
    let shards = file.filter.map_or(1, |f| u64::from(f.map.shards()));
    let count = sizes.count() / shards;
    let share = Share::of(meta.first_token(), meta.last_token(), left, right);
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
    /// Share of a file with these first and last tokens, in the range after `left` up to `right`.
    fn of(first: Token, last: Token, left: Token, right: Token) -> Option<Share> {
        let (first, last) = (i128::from(first.0), i128::from(last.0));
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
    use crate::tests::{TABLE, insert, open, run, write};

    #[test]
    fn partitions_that_several_files_have_count_once() {
        run(41, |rt| async move {
            let store = open(&rt).await;
            for keys in [0..600, 400..1000] {
                for pk in keys {
                    write(&store, &insert(pk, 1, "value", 1)).await.unwrap();
                }
                store.flush(None).await.unwrap();
            }
            let files = store.rooms.tables.table(TABLE).unwrap().view().files.clone();
            assert_eq!(files.len(), 2);
            let of = |n| partitions_together(files.iter().take(n).map(|f| &**f.reader.meta()));
            assert_eq!((of(0), of(1)), (0, 600));
            assert!((960..=1040).contains(&of(2)), "{} partitions", of(2));
            store.stop().await;
        });
    }

    #[test]
    fn a_file_counts_in_a_range_by_the_part_of_its_tokens_there() {
        let part = |file: (i64, i64), range: (i64, i64)| {
            let share = Share::of(Token(file.0), Token(file.1), Token(range.0), Token(range.1));
            share.map(|s| s.part_of(100))
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
