//! Arithmetic of token ranges, and their encoding in messages between nodes.

use cluster::TokenRange;
use codec::{DecodeError, Reader, Writer};
use stdx::Token;

/// Span of tokens, both ends included: the span of a file's partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenSpan {
    /// Token of the first partition.
    pub first: Token,
    /// Token of the last partition.
    pub last: Token,
}

impl TokenSpan {
    /// Returns true if both have tokens in common.
    pub(crate) fn meets(self, other: TokenSpan) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Returns the intersection of a range, which does not wrap, with the span.
    pub(crate) fn part_of(self, range: TokenRange) -> Option<TokenRange> {
        let start = range.start.max(Token(self.first.0.saturating_sub(1)));
        let end = range.end.min(self.last);
        (start < end).then_some(TokenRange { start, end })
    }
}

/// Tokens of `(start, end]`, which does not wrap.
pub(crate) fn width(start: Token, end: Token) -> u128 {
    u128::try_from(i128::from(end.0) - i128::from(start.0)).unwrap_or(0)
}

/// Splits `(start, end]` into so many parts of the same width.
pub(crate) fn parts_of(start: Token, end: Token, parts: u64) -> Vec<(Token, Token)> {
    let all = i128::from(end.0) - i128::from(start.0);
    let parts = i128::from(parts.max(1)).min(all.max(1));
    let at = |n: i128| {
        let token = i128::from(start.0) + all * n / parts;
        Token(i64::try_from(token).unwrap_or(end.0))
    };
    (0..parts).map(|n| (at(n), at(n + 1))).collect()
}

/// A range of the ring, or all of it, without wrap.
pub(crate) fn unwrapped(range: TokenRange) -> Vec<(Token, Token)> {
    match range.start == range.end {
        true => vec![(Token::MIN, Token::MAX)],
        false => range.unwrapped().map(|part| (part.start, part.end)).collect(),
    }
}

/// Appends ranges.
pub(crate) fn put_ranges(out: &mut Vec<u8>, ranges: &[(Token, Token)]) {
    out.put_vint_unsigned(ranges.len() as u64);
    for (start, end) in ranges {
        out.put_i64(start.0);
        out.put_i64(end.0);
    }
}

/// Reads ranges back: ascending, apart from each other.
pub(crate) fn take_ranges(r: &mut Reader<'_>) -> Result<Vec<(Token, Token)>, DecodeError> {
    let count = r.vint_len()?;
    let count = r.check_count(count, 16)?;
    let mut ranges: Vec<(Token, Token)> = Vec::with_capacity(count);
    for _ in 0..count {
        let (start, end) = (Token(r.i64()?), Token(r.i64()?));
        let ascends = ranges.last().is_none_or(|(_, last)| *last <= start);
        if start >= end || !ascends {
            return Err(r.invalid(start.0));
        }
        ranges.push((start, end));
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_range_are_all_of_it() {
        let (min, max) = (Token(i64::MIN), Token(i64::MAX));
        for (start, end, parts) in
            [(min, max, 64), (min, max, 1), (Token(-3), Token(4), 3), (Token(5), Token(7), 9)]
        {
            let all = parts_of(start, end, parts);
            assert!(all.len() as u64 <= parts && !all.is_empty(), "{all:?}");
            assert_eq!((all[0].0, all[all.len() - 1].1), (start, end));
            assert!(all.windows(2).all(|w| w[0].1 == w[1].0), "{all:?}");
            assert!(all.iter().all(|(a, b)| a < b), "{all:?}");
            assert_eq!(all.iter().map(|(a, b)| width(*a, *b)).sum::<u128>(), width(start, end));
        }
        assert_eq!(parts_of(Token(-3), Token(4), 3).len(), 3);
    }
}
