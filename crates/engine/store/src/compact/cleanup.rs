//! Cleanup: files lose the partitions that the node does not own any more.
//!
//! Each file with such partitions is compacted alone, without them; a file with no others is
//! removed. The order of steps, and the state after a crash between them, is that of any compaction.
//!
//! INV-cleanup-1: only files that existed when the caller reported its ranges are processed, so
//! that later data, for ranges that are owned again, stays.
//!
//! After a crash the replay of the commit log may bring rows back that were younger than its oldest
//! segment; the next cleanup takes them out again.

use compact_plan::{Cut, Plan, Reason};
use stdx::{Generation, Token};

use crate::tables::table_file::TableFile;

/// Token ranges of a table that a node owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRanges(Vec<(Token, Token)>);

impl OwnedRanges {
    /// Ranges `(start, end]`, ascending and apart from each other; one that begins with the smallest
    /// token holds it.
    pub fn new(ranges: Vec<(Token, Token)>) -> OwnedRanges {
        OwnedRanges(ranges)
    }

    /// The whole ring.
    pub(crate) fn everything() -> OwnedRanges {
        OwnedRanges(vec![(Token::MIN, Token::MAX)])
    }

    /// Every token that is not in these.
    pub(crate) fn complement(&self) -> OwnedRanges {
        let mut all = Vec::with_capacity(self.0.len() + 1);
        let mut reached = Token::MIN;
        for (start, end) in &self.0 {
            if *start > reached {
                all.push((reached, *start));
            }
            reached = *end;
        }
        if reached < Token::MAX {
            all.push((reached, Token::MAX));
        }
        OwnedRanges(all)
    }

    /// Returns true if no partition of a file can lie in them.
    pub(crate) fn misses(&self, file: &TableFile) -> bool {
        share(self, file) == Share::None
    }

    pub(crate) fn as_slice(&self) -> &[(Token, Token)] {
        &self.0
    }

    /// Returns true if a partition of that token is owned.
    pub fn contains(&self, token: Token) -> bool {
        let at = self.0.partition_point(|(_, end)| *end < token);
        let inside = |(start, _): &(Token, Token)| *start < token || *start == Token::MIN;
        self.0.get(at).is_some_and(inside)
    }

    /// Returns true if every token from `first` to `last` is owned.
    pub(crate) fn covers(&self, first: Token, last: Token) -> bool {
        self.share_of(first, last) == Share::All
    }

    /// Returns the owned share of a file of partitions from `first` to `last`.
    fn share_of(&self, first: Token, last: Token) -> Share {
        let at = self.0.partition_point(|(_, end)| *end < first);
        match self.0.get(at) {
            Some((_, end)) if self.contains(first) && last <= *end => Share::All,
            Some((start, _)) if last > *start || self.contains(first) => Share::Part,
            _ => Share::None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    All,
    Part,
    None,
}

/// Result of a cleanup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Files that lie in owned ranges as a whole.
    pub kept: u64,
    /// Files that were rewritten.
    pub rewritten: u64,
    /// Files that had nothing owned.
    pub removed: u64,
}

pub(crate) fn share(owned: &OwnedRanges, file: &TableFile) -> Share {
    let meta = file.reader.meta();
    owned.share_of(meta.first_token(), meta.last_token())
}

pub(crate) fn plan(file: &TableFile, expired: Vec<Generation>) -> Plan {
    let level = file.reader.meta().statistics().stats.level;
    Plan {
        inputs: vec![file.generation],
        expired,
        level: u32::try_from(level).unwrap_or(0),
        cut: Cut::Never,
        apart: false,
        reason: Reason::Cleanup,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(ranges: &[(i64, i64)]) -> OwnedRanges {
        OwnedRanges::new(ranges.iter().map(|(a, b)| (Token(*a), Token(*b))).collect())
    }

    #[test]
    fn a_range_is_open_at_its_start_but_for_the_smallest_token() {
        let some = owned(&[(i64::MIN, -5), (0, 10), (20, i64::MAX)]);
        let has = |token: i64| some.contains(Token(token));
        for token in [i64::MIN, -6, -5, 1, 10, 21, i64::MAX] {
            assert!(has(token), "{token}");
        }
        for token in [-4, 0, 11, 20] {
            assert!(!has(token), "{token}");
        }
        assert!(!owned(&[]).contains(Token(0)));
        assert!(!owned(&[(0, 5)]).contains(Token::MIN));
    }

    #[test]
    fn the_complement_has_every_token_that_the_ranges_do_not_have() {
        let tokens = [i64::MIN, -6, -5, -4, 0, 1, 10, 11, 20, 21, i64::MAX];
        for ranges in [
            [].as_slice(),
            &[(i64::MIN, -5), (0, 10), (20, i64::MAX)],
            &[(-5, 0), (0, 10)],
            &[(i64::MIN, i64::MAX)],
        ] {
            let some = owned(ranges);
            let rest = some.complement();
            for token in tokens {
                let (a, b) = (some.contains(Token(token)), rest.contains(Token(token)));
                assert!(a != b, "{token} in {ranges:?}");
            }
        }
    }

    #[test]
    fn a_file_is_owned_as_a_whole_in_part_or_not_at_all() {
        let some = owned(&[(0, 10), (20, 30)]);
        let of = |first: i64, last: i64| some.share_of(Token(first), Token(last));
        for (first, last) in [(1, 10), (5, 5), (21, 30)] {
            assert_eq!(of(first, last), Share::All, "{first} {last}");
        }
        for (first, last) in [(0, 10), (1, 11), (5, 25), (-5, 1), (11, 21), (-5, 50), (15, 40)] {
            assert_eq!(of(first, last), Share::Part, "{first} {last}");
        }
        for (first, last) in [(-5, 0), (11, 20), (31, 40), (0, 0)] {
            assert_eq!(of(first, last), Share::None, "{first} {last}");
        }
        assert_eq!(owned(&[]).share_of(Token(0), Token(5)), Share::None);
    }
}
