//! The nearest rows that a search by a vector found so far.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use index_format::RowKey;

/// A row with its score. The order is from the nearest on; of equal scores, that of the table.
#[derive(Clone, Debug)]
pub struct Ranked {
    /// Its score: larger is nearer.
    pub score: f32,
    /// The row.
    pub row: Arc<RowKey>,
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Ranked) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Ranked) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Ranked) -> Ordering {
        other.score.total_cmp(&self.score).then_with(|| self.row.cmp(&other.row))
    }
}

/// The nearest of the rows that were offered, at most so many.
#[derive(Debug)]
pub struct Nearest {
    limit: usize,
    /// The farthest is first.
    rows: BinaryHeap<Ranked>,
    /// A row was left out.
    is_cut: bool,
}

impl Nearest {
    /// At most `limit` rows, at least one.
    pub fn new(limit: usize) -> Nearest {
        Nearest { limit: limit.max(1), rows: BinaryHeap::new(), is_cut: false }
    }

    /// Returns true if some row of this score could be among them.
    pub fn admits(&self, score: f32) -> bool {
        self.farthest().is_none_or(|farthest| score.total_cmp(&farthest.score).is_ge())
    }

    /// Returns true if a row of a score beyond this one, or of this score after `row`, could be among them.
    pub fn admits_after(&self, score: f32, row: &RowKey) -> bool {
        self.farthest().is_none_or(|farthest| {
            let scores = score.total_cmp(&farthest.score);
            scores.then_with(|| farthest.row.as_ref().cmp(row)).is_gt()
        })
    }

    /// The farthest row, if there are as many as there may be.
    fn farthest(&self) -> Option<&Ranked> {
        self.rows.peek().filter(|_| self.rows.len() >= self.limit)
    }

    /// Takes a row that was not offered before.
    pub fn offer(&mut self, ranked: Ranked) {
        self.rows.push(ranked);
        if self.rows.len() > self.limit {
            self.rows.pop();
            self.is_cut = true;
        }
    }

    /// Notes that a row was not offered because none like it is admitted.
    pub fn pass(&mut self) {
        self.is_cut = true;
    }

    /// Returns true if rows were left out.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The rows, nearest first.
    pub fn into_rows(self) -> Vec<Ranked> {
        self.rows.into_sorted_vec()
    }
}

#[cfg(test)]
mod tests {
    use stdx::Token;

    use super::*;

    fn key(token: i64) -> RowKey {
        let none: Box<[u8]> = Box::default();
        RowKey {
            token: Token(token),
            partition: none.clone(),
            clustering: none.clone(),
            values: none,
        }
    }

    #[test]
    fn the_nearest_are_kept_and_equal_ones_in_table_order() {
        let mut nearest = Nearest::new(3);
        for (score, token) in [(0.5, 9), (0.25, 1), (0.5, 2)] {
            assert!(nearest.admits(score) && nearest.admits_after(score, &key(token)));
            nearest.offer(Ranked { score, row: Arc::new(key(token)) });
        }
        assert!(!nearest.is_cut() && nearest.admits(0.25) && !nearest.admits(0.2));
        assert!(nearest.admits_after(0.25, &key(0)) && !nearest.admits_after(0.25, &key(1)));
        assert!(nearest.admits_after(0.3, &key(5)));
        nearest.offer(Ranked { score: 0.5, row: Arc::new(key(4)) });
        assert!(nearest.is_cut() && !nearest.admits_after(0.5, &key(10)));
        assert!(nearest.admits_after(0.5, &key(8)));
        let tokens: Vec<i64> = nearest.into_rows().iter().map(|found| found.row.token.0).collect();
        assert_eq!(tokens, [2, 4, 9]);
    }
}
