//! Ranges of keys as ranges of tokens.

use data::command::{KeyRange, RingBound};
use request::TokenRange;
use stdx::Token;

/// The tokens that a range of keys touches: above the first, up to the second.
pub fn tokens_of(range: &KeyRange) -> TokenRange {
    let before = |token: Token| Token(token.0.saturating_sub(1));
    let after = match &range.start {
        RingBound::Token { token, after: true } => *token,
        RingBound::Token { token, after: false } | RingBound::Key { token, .. } => before(*token),
    };
    let upto = match &range.end {
        RingBound::Token { token, after: false } => before(*token),
        RingBound::Token { token, after: true } | RingBound::Key { token, .. } => *token,
    };
    TokenRange { after, upto }
}

/// The part of a range of keys that lies in a sub-range of its tokens.
pub fn part_of(range: &KeyRange, sub: TokenRange) -> KeyRange {
    let whole = tokens_of(range);
    let bound = |token| RingBound::Token { token, after: true };
    KeyRange {
        start: if sub.after == whole.after { range.start.clone() } else { bound(sub.after) },
        end: if sub.upto == whole.upto { range.end.clone() } else { bound(sub.upto) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_a_range_hold_every_key_of_it_and_no_more() {
        let token = |n: i64, after| RingBound::Token { token: Token(n), after };
        let key = |n: i64, after| RingBound::Key { token: Token(n), key: vec![1], after };
        let of = |start, end| {
            let TokenRange { after, upto } = tokens_of(&KeyRange { start, end });
            (after.0, upto.0)
        };
        assert_eq!(of(token(5, true), token(9, true)), (5, 9));
        assert_eq!(of(token(5, false), token(9, false)), (4, 8));
        assert_eq!(of(key(5, true), key(5, false)), (4, 5));
        assert_eq!(of(token(i64::MIN, false), token(i64::MAX, true)), (i64::MIN, i64::MAX));
    }

    #[test]
    fn a_part_keeps_the_bounds_of_the_whole_at_its_ends_only() {
        let start = RingBound::Key { token: Token(5), key: vec![7], after: false };
        let end = RingBound::Token { token: Token(50), after: false };
        let range = KeyRange { start: start.clone(), end: end.clone() };
        let part =
            |after, upto| part_of(&range, TokenRange { after: Token(after), upto: Token(upto) });
        let bound = |n| RingBound::Token { token: Token(n), after: true };
        assert_eq!(part(4, 20), KeyRange { start, end: bound(20) });
        assert_eq!(part(20, 49), KeyRange { start: bound(20), end });
        assert_eq!(part(20, 30), KeyRange { start: bound(20), end: bound(30) });
    }
}
