//! Stretches: parts of a table between two positions, as replicas with different content can be
//! asked for them.
//!
//! Owns: [`Stretch`], what of it lies before and behind the end of a page, its command.

use data::clustering::{Slice, Slices};
use data::command::{KeyRange, Partitions, ReadCommand, RingBound};
use data::replica_page::PageEnd;
use stdx::{DeletionSeconds, TableId, Token};

/// A part of a table. It is bounded by positions, never by a number of rows: replicas that have
/// different rows mean the same part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// Whole partitions.
    Ring(KeyRange),
    /// Rows of one partition, each time with its static row and its deletion.
    Rows {
        /// Serialised partition key.
        key: Vec<u8>,
        /// Behind this row; `None`: from the first.
        after: Option<Vec<u8>>,
        /// Up to this row, itself included; `None`: to the last.
        upto: Option<Vec<u8>>,
    },
}

/// Where a page ended, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    token: Token,
    key: Vec<u8>,
    /// Inside the partition, behind this row; `None`: behind the partition.
    clustering: Option<Vec<u8>>,
}

impl Place {
    /// The end of a page; `None`: there is nothing behind it. In a table without clustering columns
    /// nothing of a partition can be behind its row.
    pub fn of(end: &PageEnd<'_>, has_clustering: bool) -> Option<Place> {
        match end {
            PageEnd::Exhausted => None,
            PageEnd::After { token, key } => Some(Place::after(*token, key)),
            PageEnd::Inside { token, key, .. } if !has_clustering => {
                Some(Place::after(*token, key))
            }
            PageEnd::Inside { token, key, clustering } => {
                Some(Place::inside(*token, key, clustering))
            }
        }
    }

    /// Behind a partition.
    pub fn after(token: Token, key: &[u8]) -> Place {
        Place { token, key: key.to_vec(), clustering: None }
    }

    /// Behind a row.
    pub fn inside(token: Token, key: &[u8], clustering: &[u8]) -> Place {
        Place { token, key: key.to_vec(), clustering: Some(clustering.to_vec()) }
    }

    fn bound(&self, after: bool) -> RingBound {
        RingBound::Key { token: self.token, key: self.key.clone(), after }
    }
}

impl Stretch {
    /// The tokens behind the first up to the second; behind the smallest token is from it on.
    pub fn of_tokens(start: Token, end: Token) -> Stretch {
        Stretch::Ring(KeyRange {
            start: RingBound::Token { token: start, after: start != Token::MIN },
            end: RingBound::Token { token: end, after: true },
        })
    }

    /// The command that reads it whole.
    pub fn command(&self, table: TableId, now: DeletionSeconds) -> ReadCommand {
        let (partitions, slices) = match self {
            Stretch::Ring(range) => (Partitions::Range(range.clone()), Slices::all()),
            Stretch::Rows { key, after, upto } => {
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

    /// A token near its start: whom to ask.
    pub fn token(&self) -> Token {
        match self {
            Stretch::Rows { key, .. } => codec::token_of(key),
            Stretch::Ring(KeyRange { start: RingBound::Token { token, after }, .. }) => {
                Token(token.0.saturating_add(i64::from(*after)))
            }
            Stretch::Ring(KeyRange { start: RingBound::Key { token, .. }, .. }) => *token,
        }
    }

    /// Tokens that it still has, for progress; 0 within a partition.
    pub fn width(&self) -> u128 {
        let token = |bound: &RingBound| match bound {
            RingBound::Token { token, .. } | RingBound::Key { token, .. } => *token,
        };
        match self {
            Stretch::Rows { .. } => 0,
            Stretch::Ring(range) => {
                let (start, end) = (token(&range.start), token(&range.end));
                u128::try_from(i128::from(end.0) - i128::from(start.0)).unwrap_or(0)
            }
        }
    }

    /// Cuts it at a place within it: what lies before, and what lies behind, in order. Empty parts
    /// are left out.
    pub fn cut(self, at: &Place) -> (Vec<Stretch>, Vec<Stretch>) {
        let whole = self.width();
        let (before, behind) = self.cut_at(at);
        let parts: u128 = before.iter().chain(&behind).map(Stretch::width).sum();
        stdx::debug_invariant!(
            parts == whole,
            "INV-repair-1: a stretch of {whole} tokens was cut into {parts}"
        );
        (before, behind)
    }

    fn cut_at(self, at: &Place) -> (Vec<Stretch>, Vec<Stretch>) {
        let (mut before, mut behind) = (Vec::new(), Vec::new());
        match (self, &at.clustering) {
            (Stretch::Ring(range), None) => {
                push_ring(&mut before, range.start, at.bound(true));
                push_ring(&mut behind, at.bound(true), range.end);
            }
            (Stretch::Ring(range), Some(row)) => {
                push_ring(&mut before, range.start, at.bound(false));
                let (key, upto) = (at.key.clone(), Some(row.clone()));
                before.push(Stretch::Rows { key, after: None, upto });
                let (key, after) = (at.key.clone(), Some(row.clone()));
                behind.push(Stretch::Rows { key, after, upto: None });
                push_ring(&mut behind, at.bound(true), range.end);
            }
            (rows @ Stretch::Rows { .. }, None) => before.push(rows),
            (Stretch::Rows { key, after, upto }, Some(row)) => {
                if upto.as_ref() != Some(row) {
                    let after = Some(row.clone());
                    behind.push(Stretch::Rows { key: key.clone(), after, upto });
                }
                before.push(Stretch::Rows { key, after, upto: Some(row.clone()) });
            }
        }
        (before, behind)
    }

    /// Whether a place lies in it, or at its end.
    fn holds(&self, at: &Place) -> bool {
        match self {
            Stretch::Rows { key, .. } => *key == at.key,
            Stretch::Ring(_) => true,
        }
    }

    /// Cuts it at places that ascend.
    pub fn cut_all(self, places: &[Place]) -> Vec<Stretch> {
        let mut done = Vec::new();
        let mut rest = std::collections::VecDeque::from([self]);
        for place in places {
            while let Some(first) = rest.pop_front() {
                if !first.holds(place) {
                    // The rest of a partition before the place's own.
                    done.push(first);
                    continue;
                }
                let (before, behind) = first.cut(place);
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

fn push_ring(out: &mut Vec<Stretch>, start: RingBound, end: RingBound) {
    if start != end {
        out.push(Stretch::Ring(KeyRange { start, end }));
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

    fn rows(n: i32, after: Option<u8>, upto: Option<u8>) -> Stretch {
        let row = |r: u8| vec![r];
        Stretch::Rows { key: key(n), after: after.map(row), upto: upto.map(row) }
    }

    fn bound(n: i32, after: bool) -> RingBound {
        RingBound::Key { token: token(n), key: key(n), after }
    }

    fn ring(start: RingBound, end: RingBound) -> Stretch {
        Stretch::Ring(KeyRange { start, end })
    }

    fn inside(n: i32, row: u8) -> Place {
        Place::inside(token(n), &key(n), &[row])
    }

    #[test]
    fn a_cut_leaves_nothing_out_and_overlaps_nowhere() {
        let all = KeyRange::all();
        let whole = Stretch::Ring(all.clone());
        let (before, behind) = whole.clone().cut(&Place::after(token(1), &key(1)));
        assert_eq!(before, [ring(all.start.clone(), bound(1, true))]);
        assert_eq!(behind, [ring(bound(1, true), all.end.clone())]);
        let (before, behind) = whole.cut(&inside(1, 7));
        let first = ring(all.start.clone(), bound(1, false));
        assert_eq!(before, [first, rows(1, None, Some(7))]);
        assert_eq!(behind, [rows(1, Some(7), None), ring(bound(1, true), all.end)]);
        let (before, behind) = rows(1, Some(2), Some(9)).cut(&inside(1, 5));
        assert_eq!(
            (before, behind),
            (vec![rows(1, Some(2), Some(5))], vec![rows(1, Some(5), Some(9))])
        );
        let (before, behind) = rows(1, Some(2), Some(9)).cut(&inside(1, 9));
        assert_eq!((before, behind), (vec![rows(1, Some(2), Some(9))], vec![]));
        let (before, behind) = rows(1, Some(2), None).cut(&Place::after(token(1), &key(1)));
        assert_eq!((before, behind), (vec![rows(1, Some(2), None)], vec![]));
    }

    #[test]
    fn many_cuts_in_and_between_partitions() {
        let mut keys = [1, 2, 3];
        keys.sort_by_key(|n| token(*n));
        let [a, b, c] = keys;
        let all = KeyRange::all();
        let places = [inside(a, 3), inside(a, 5), Place::after(token(b), &key(b)), inside(c, 1)];
        assert_eq!(
            Stretch::Ring(all.clone()).cut_all(&places),
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
        let places = [inside(a, 3), Place::after(token(a), &key(a))];
        assert_eq!(Stretch::Ring(KeyRange::all()).cut_all(&places).len(), 4);
        assert_eq!(rows(a, None, None).cut_all(&[]), [rows(a, None, None)]);
    }

    #[test]
    fn a_table_without_clustering_columns_is_not_cut_inside_partitions() {
        let end = PageEnd::Inside { token: token(1), key: &key(1), clustering: &[] };
        assert_eq!(Place::of(&end, false), Some(Place::after(token(1), &key(1))));
        assert_eq!(Place::of(&end, true), Some(Place::inside(token(1), &key(1), &[])));
        assert_eq!(Place::of(&PageEnd::Exhausted, true), None);
    }

    #[test]
    fn tokens_are_above_the_first_but_for_the_smallest() {
        let after = |stretch: &Stretch| match stretch {
            Stretch::Ring(KeyRange { start: RingBound::Token { after, .. }, .. }) => *after,
            _ => panic!("no tokens"),
        };
        let (all, some) =
            (Stretch::of_tokens(Token::MIN, Token::MAX), Stretch::of_tokens(Token(5), Token(9)));
        assert!(!after(&all) && after(&some));
        assert_eq!((all.width(), some.width()), (u128::from(u64::MAX), 4));
        assert_eq!((all.token(), some.token()), (Token::MIN, Token(6)));
    }
}
