//! The part of a table that a search covers.

use std::cmp::Ordering;
use std::sync::Arc;

use data::command::{KeyRange, RingBound};
use data::{ClusteringComparator, Slices};
use index_format::RowKey;
use stdx::Token;

/// Partitions and rows that a search may give.
#[derive(Clone, Debug)]
pub struct SearchRange {
    /// The partitions.
    pub range: KeyRange,
    /// Rows up to this clustering of the first partition, whose key is the start of the range, are left out.
    pub after_row: Option<Vec<u8>>,
    /// Rows outside are left out.
    pub slices: Arc<Slices>,
}

/// Position of a candidate relative to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Before,
    Inside,
    /// Among the partitions, but its row is not wanted.
    Unwanted,
    After,
}

impl SearchRange {
    /// The token of the first partition, at least.
    pub fn first_token(&self) -> Token {
        token_of(&self.range.start)
    }

    /// The token of the last partition, at most.
    pub fn last_token(&self) -> Token {
        token_of(&self.range.end)
    }

    /// Returns true if the range ends before this token.
    pub(crate) fn is_before_token(&self, token: Token) -> bool {
        token > self.last_token()
    }

    /// Returns true if the search may give a partition, or with `row` one of its rows.
    pub fn contains(
        &self,
        key: &RowKey,
        row: Option<&[u8]>,
        comparator: &ClusteringComparator,
    ) -> bool {
        self.relation(key, row, comparator) == Relation::Inside
    }

    /// Position of a partition, or with `row` of one of its rows.
    pub(crate) fn relation(
        &self,
        key: &RowKey,
        row: Option<&[u8]>,
        comparator: &ClusteringComparator,
    ) -> Relation {
        if is_after(key.token, &key.partition, &self.range.end) {
            return Relation::After;
        }
        if !is_after(key.token, &key.partition, &self.range.start) {
            return Relation::Before;
        }
        let Some(row) = row else { return Relation::Inside };
        if let Some(last) = &self.after_row
            && self.starts_with(key)
            && comparator.compare(row, last) != Ordering::Greater
        {
            return Relation::Before;
        }
        let is_wanted = self.slices.is_all()
            || self.slices.0.iter().any(|slice| {
                comparator.compare_to_bound(row, slice.start()) == Ordering::Greater
                    && comparator.compare_to_bound(row, slice.end()) == Ordering::Less
            });
        if is_wanted { Relation::Inside } else { Relation::Unwanted }
    }

    /// Returns true if the range begins with this partition.
    fn starts_with(&self, key: &RowKey) -> bool {
        match &self.range.start {
            RingBound::Key { token, key: first, after: false } => {
                *token == key.token && **first == *key.partition
            }
            RingBound::Key { .. } | RingBound::Token { .. } => false,
        }
    }
}

/// Returns the token of a position of the ring.
fn token_of(bound: &RingBound) -> Token {
    match bound {
        RingBound::Token { token, .. } | RingBound::Key { token, .. } => *token,
    }
}

/// Returns true if a partition lies after a position of the ring.
fn is_after(token: Token, key: &[u8], bound: &RingBound) -> bool {
    match bound {
        RingBound::Token { token: at, after: true } => token > *at,
        RingBound::Token { token: at, after: false } => token >= *at,
        RingBound::Key { token: at, key: at_key, after } => {
            match (token, key).cmp(&(*at, at_key.as_slice())) {
                Ordering::Less => false,
                Ordering::Equal => !after,
                Ordering::Greater => true,
            }
        }
    }
}
