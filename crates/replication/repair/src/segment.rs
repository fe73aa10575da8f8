//! Segments: parts of a table between two positions, in a form that replicas with different content
//! can be asked for.
//!
//! Owns: [`Segment`], its parts before and after the end of a page, its command.

use data::clustering::{Slice, Slices};
use data::command::{KeyRange, Partitions, ReadCommand, RingBound};
use data::replica_page::PageEnd;
use stdx::{DeletionSeconds, TableId, Token};

/// A part of a table. It is bounded by positions, never by a number of rows, so that it means the
/// same part on replicas with different rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Whole partitions.
    Ring(KeyRange),
    /// Rows of one partition, each time with its static row and its deletion.
    Rows {
        /// Serialised partition key.
        key: Vec<u8>,
        /// The row before the segment; `None`: it starts at the first row.
        after: Option<Vec<u8>>,
        /// Up to this row, itself included; `None`: to the last.
        upto: Option<Vec<u8>>,
    },
}

/// End of a page, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    token: Token,
    key: Vec<u8>,
    /// The row before the position; `None`: the position is after the partition.
    clustering: Option<Vec<u8>>,
}

impl Position {
    /// Returns the end of a page; `None`: nothing comes after it.
    pub fn of(end: &PageEnd<'_>) -> Option<Position> {
        match end {
            PageEnd::Exhausted => None,
            PageEnd::After { token, key } => Some(Position::after(*token, key)),
            PageEnd::Inside { token, key, clustering } => {
                Some(Position::inside(*token, key, clustering))
            }
        }
    }

    /// Like [`Position::of`], for a table without clustering columns: a partition has nothing after
    /// its row.
    pub fn of_whole_partition(end: &PageEnd<'_>) -> Option<Position> {
        Position::of(end).map(|position| Position { clustering: None, ..position })
    }

    /// Returns the position after a partition.
    pub fn after(token: Token, key: &[u8]) -> Position {
        Position { token, key: key.to_vec(), clustering: None }
    }

    /// Returns the position after a row.
    pub fn inside(token: Token, key: &[u8], clustering: &[u8]) -> Position {
        Position { token, key: key.to_vec(), clustering: Some(clustering.to_vec()) }
    }

    fn bound(&self, after: bool) -> RingBound {
        RingBound::Key { token: self.token, key: self.key.clone(), after }
    }
}

impl Segment {
    /// Returns the segment of the tokens after `start` up to `end`. The smallest token as `start`
    /// is included.
    pub fn of_tokens(start: Token, end: Token) -> Segment {
        Segment::Ring(KeyRange {
            start: RingBound::Token { token: start, after: start != Token::MIN },
            end: RingBound::Token { token: end, after: true },
        })
    }

    /// The command that reads it whole.
    pub fn command(&self, table: TableId, now: DeletionSeconds) -> ReadCommand {
        let (partitions, slices) = match self {
            Segment::Ring(range) => (Partitions::Range(range.clone()), Slices::all()),
            Segment::Rows { key, after, upto } => {
                let slice = Slice {
                    start: after.clone().unwrap_or_default(),
                    start_after: after.is_some(),
                    end: upto.clone().unwrap_or_default(),
                    end_after: true,
                };
                (Partitions::Key(key.clone()), Slices(vec![slice]))
            }
        };
        ReadCommand {
            table,
            partitions,
            slices: slices.into(),
            reversed: false,
            columns: None,
            now,
            wants_static: true,
            resume: None,
            bypass_cache: false,
        }
    }

    /// Returns a token near its start, which determines the peer's shard to ask.
    pub fn token(&self) -> Token {
        match self {
            Segment::Rows { key, .. } => codec::token_of(key),
            Segment::Ring(KeyRange { start: RingBound::Token { token, after }, .. }) => {
                Token(token.0.saturating_add(i64::from(*after)))
            }
            Segment::Ring(KeyRange { start: RingBound::Key { token, .. }, .. }) => *token,
        }
    }

    /// Tokens that it still has, for progress; 0 within a partition.
    pub fn width(&self) -> u128 {
        let token = |bound: &RingBound| match bound {
            RingBound::Token { token, .. } | RingBound::Key { token, .. } => *token,
        };
        match self {
            Segment::Rows { .. } => 0,
            Segment::Ring(range) => {
                let (start, end) = (token(&range.start), token(&range.end));
                u128::try_from(i128::from(end.0) - i128::from(start.0)).unwrap_or(0)
            }
        }
    }

    /// Splits it at a position inside it: the parts before and the parts after, in order. Empty parts
    /// are left out.
    pub fn split(self, at: &Position) -> (Vec<Segment>, Vec<Segment>) {
        let whole = self.width();
        let (before, behind) = self.split_at(at);
        let parts: u128 = before.iter().chain(&behind).map(Segment::width).sum();
        stdx::debug_invariant!(
            parts == whole,
            "INV-repair-1: a stretch of {whole} tokens was cut into {parts}"
        );
        (before, behind)
    }

    fn split_at(self, at: &Position) -> (Vec<Segment>, Vec<Segment>) {
        let (mut before, mut behind) = (Vec::new(), Vec::new());
        match (self, &at.clustering) {
            (Segment::Ring(range), None) => {
                push_ring(&mut before, range.start, at.bound(true));
                push_ring(&mut behind, at.bound(true), range.end);
            }
            (Segment::Ring(range), Some(row)) => {
                push_ring(&mut before, range.start, at.bound(false));
                let (key, upto) = (at.key.clone(), Some(row.clone()));
                before.push(Segment::Rows { key, after: None, upto });
                let (key, after) = (at.key.clone(), Some(row.clone()));
                behind.push(Segment::Rows { key, after, upto: None });
                push_ring(&mut behind, at.bound(true), range.end);
            }
            (rows @ Segment::Rows { .. }, None) => before.push(rows),
            (Segment::Rows { key, after, upto }, Some(row)) => {
                if upto.as_ref() != Some(row) {
                    let after = Some(row.clone());
                    behind.push(Segment::Rows { key: key.clone(), after, upto });
                }
                before.push(Segment::Rows { key, after, upto: Some(row.clone()) });
            }
        }
        (before, behind)
    }

    /// Returns true if a position lies in it, or at its end.
    fn holds(&self, at: &Position) -> bool {
        match self {
            Segment::Rows { key, .. } => *key == at.key,
            Segment::Ring(_) => true,
        }
    }

    /// Splits it at ascending positions.
    pub fn split_all(self, positions: &[Position]) -> Vec<Segment> {
        let mut done = Vec::new();
        let mut rest = std::collections::VecDeque::from([self]);
        for position in positions {
            while let Some(first) = rest.pop_front() {
                if !first.holds(position) {
                    // The rest of a partition before the position's own.
                    done.push(first);
                    continue;
                }
                let (before, behind) = first.split(position);
                done.extend(before);
                for part in behind.into_iter().rev() {
                    rest.push_front(part);
                }
                break;
            }
        }
        done.extend(rest);
        done
    }
}

fn push_ring(out: &mut Vec<Segment>, start: RingBound, end: RingBound) {
    if start != end {
        out.push(Segment::Ring(KeyRange { start, end }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: i32) -> Vec<u8> {
        n.to_be_bytes().to_vec()
    }

    fn token(n: i32) -> Token {
        codec::token_of(&key(n))
    }

    fn rows(n: i32, after: Option<u8>, upto: Option<u8>) -> Segment {
        let row = |r: u8| vec![r];
        Segment::Rows { key: key(n), after: after.map(row), upto: upto.map(row) }
    }

    fn bound(n: i32, after: bool) -> RingBound {
        RingBound::Key { token: token(n), key: key(n), after }
    }

    fn ring(start: RingBound, end: RingBound) -> Segment {
        Segment::Ring(KeyRange { start, end })
    }

    fn inside(n: i32, row: u8) -> Position {
        Position::inside(token(n), &key(n), &[row])
    }

    #[test]
    fn a_cut_leaves_nothing_out_and_overlaps_nowhere() {
        let all = KeyRange::all();
        let whole = Segment::Ring(all.clone());
        let (before, behind) = whole.clone().split(&Position::after(token(1), &key(1)));
        assert_eq!(before, [ring(all.start.clone(), bound(1, true))]);
        assert_eq!(behind, [ring(bound(1, true), all.end.clone())]);
        let (before, behind) = whole.split(&inside(1, 7));
        let first = ring(all.start.clone(), bound(1, false));
        assert_eq!(before, [first, rows(1, None, Some(7))]);
        assert_eq!(behind, [rows(1, Some(7), None), ring(bound(1, true), all.end)]);
        let (before, behind) = rows(1, Some(2), Some(9)).split(&inside(1, 5));
        assert_eq!(
            (before, behind),
            (vec![rows(1, Some(2), Some(5))], vec![rows(1, Some(5), Some(9))])
        );
        let (before, behind) = rows(1, Some(2), Some(9)).split(&inside(1, 9));
        assert_eq!((before, behind), (vec![rows(1, Some(2), Some(9))], vec![]));
        let (before, behind) = rows(1, Some(2), None).split(&Position::after(token(1), &key(1)));
        assert_eq!((before, behind), (vec![rows(1, Some(2), None)], vec![]));
    }

    #[test]
    fn many_cuts_in_and_between_partitions() {
        let mut keys = [1, 2, 3];
        keys.sort_by_key(|n| token(*n));
        let [a, b, c] = keys;
        let all = KeyRange::all();
        let positions =
            [inside(a, 3), inside(a, 5), Position::after(token(b), &key(b)), inside(c, 1)];
        assert_eq!(
            Segment::Ring(all.clone()).split_all(&positions),
            [
                ring(all.start, bound(a, false)),
                rows(a, None, Some(3)),
                rows(a, Some(3), Some(5)),
                rows(a, Some(5), None),
                ring(bound(a, true), bound(b, true)),
                ring(bound(b, true), bound(c, false)),
                rows(c, None, Some(1)),
                rows(c, Some(1), None),
                ring(bound(c, true), all.end),
            ]
        );
        // A cut at the end of a partition within which another one was.
        let positions = [inside(a, 3), Position::after(token(a), &key(a))];
        assert_eq!(Segment::Ring(KeyRange::all()).split_all(&positions).len(), 4);
        assert_eq!(rows(a, None, None).split_all(&[]), [rows(a, None, None)]);
    }

    #[test]
    fn a_table_without_clustering_columns_is_not_cut_inside_partitions() {
        let end = PageEnd::Inside { token: token(1), key: &key(1), clustering: &[] };
        assert_eq!(Position::of_whole_partition(&end), Some(Position::after(token(1), &key(1))));
        assert_eq!(Position::of(&end), Some(Position::inside(token(1), &key(1), &[])));
        assert_eq!(Position::of(&PageEnd::Exhausted), None);
    }

    #[test]
    fn tokens_are_above_the_first_but_for_the_smallest() {
        let after = |segment: &Segment| match segment {
            Segment::Ring(KeyRange { start: RingBound::Token { after, .. }, .. }) => *after,
            _ => panic!("no tokens"),
        };
        let (all, some) =
            (Segment::of_tokens(Token::MIN, Token::MAX), Segment::of_tokens(Token(5), Token(9)));
        assert!(!after(&all) && after(&some));
        assert_eq!((all.width(), some.width()), (u128::from(u64::MAX), 4));
        assert_eq!((all.token(), some.token()), (Token::MIN, Token(6)));
    }
}
