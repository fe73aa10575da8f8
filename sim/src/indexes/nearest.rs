//! Reads of the nearest rows of the indexed table: their vectors, the rank of a row, the order of an answer.
//!
//! Vectors have small integers as components, so squared distances are compared exactly. Rows of equal distances
//! are in ring order.

use super::model::{Cells, Position, ShownRow};

/// Number of vectors: those with components from 0 to [`SIDE`] - 1.
pub const VECTORS: i32 = SIDE * SIDE;
const SIDE: i32 = 7;

/// Components of the vector with that number.
fn vector(number: i32) -> [i32; 2] {
    [number % SIDE, number / SIDE]
}

/// Returns the vector with that number as it is written.
pub fn literal(number: i32) -> String {
    let [x, y] = vector(number);
    format!("[{x}, {y}]")
}

/// Returns the number of an encoded vector.
///
/// # Errors
/// No client writes it.
pub fn decode(bytes: &[u8]) -> Result<i32, String> {
    let encoded = |number: &i32| {
        let components = vector(*number).map(|component| (component as f32).to_be_bytes());
        components.as_flattened() == bytes
    };
    (0..VECTORS).find(encoded).ok_or_else(|| format!("a vector that was never written: {bytes:?}"))
}

/// Rank of a row: its squared distance, then its position.
pub type Rank = (i32, Position);

/// Restriction of a read to the nearest rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nearest {
    /// Number of the vector.
    pub to: i32,
    /// LIMIT.
    pub rows: i32,
}

impl Nearest {
    /// Returns the end of the statement.
    pub fn ordering(self) -> String {
        format!(" ORDER BY e ANN OF {} LIMIT {}", literal(self.to), self.rows)
    }

    /// Returns the rank of a row; one without a vector is behind all others.
    pub fn rank(self, position: Position, cells: &Cells) -> Rank {
        let [.., Some(number)] = cells else { return (i32::MAX, position) };
        let distance: i32 =
            std::iter::zip(vector(self.to), vector(*number)).map(|(a, b)| (a - b) * (a - b)).sum();
        (distance, position)
    }

    fn rank_of(self, row: &ShownRow) -> Rank {
        self.rank(row.position(), &row.cells)
    }

    /// Returns the nearest of these rows, nearest first.
    pub fn best(self, mut rows: Vec<ShownRow>) -> Vec<ShownRow> {
        rows.sort_by_key(|row| self.rank_of(row));
        rows.truncate(self.rows as usize);
        rows
    }

    /// Checks that rows are ordered by rank, each once, and not too many. Returns the rank up to which no row may be
    /// missing; `None`: none at all, since fewer rows than wanted are shown.
    ///
    /// # Errors
    /// They are not.
    pub fn check_order(self, shown: &[ShownRow]) -> Result<Option<Rank>, String> {
        for pair in shown.windows(2) {
            if let [before, after] = pair
                && self.rank_of(before) >= self.rank_of(after)
            {
                return Err(format!("shows {after:?} after {before:?}, which is not nearer"));
            }
        }
        let wanted = self.rows as usize;
        match shown.last() {
            Some(_) if shown.len() > wanted => Err(format!("shows {} rows", shown.len())),
            Some(last) if shown.len() == wanted => Ok(Some(self.rank_of(last))),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{CellChange, Change, Histories, Predicate, Question, Window};
    use super::*;
    use stdx::Instant;

    /// Row `c` has vector `c` in its history; row 4 is overwritten by vector 1 from 10 to 11.
    fn histories() -> Histories {
        let mut histories = Histories::default();
        let put = |v, e| {
            let (v, e) = (CellChange::Put(v), CellChange::Put(e));
            Change::Update([v, CellChange::Keep, CellChange::Keep, e])
        };
        for c in 0..5 {
            histories.begin(&[(1, Some(c))], put(c % 2, c), Instant(0));
            histories.acknowledge(&[(1, Some(c))], Instant(1));
        }
        histories.begin(&[(1, Some(4))], put(0, 1), Instant(10));
        histories.acknowledge(&[(1, Some(4))], Instant(11));
        histories
    }

    fn row(c: i32, e: i32) -> ShownRow {
        ShownRow { p: 1, c: Some(c), s: None, cells: [Some(c % 2), None, None, Some(e)] }
    }

    fn check(predicate: Predicate, rows: i32, from: u64, shown: &[ShownRow]) -> Result<(), String> {
        let nearest = Some(Nearest { to: 1, rows });
        let asked = Question { predicate, partition: None, nearest };
        let window = Window { from: Instant(from), until: Instant(from) };
        histories().check(&asked, &window, shown)
    }

    #[test]
    fn an_answer_without_one_of_the_nearest_rows_is_found() {
        let all = [row(1, 1), row(0, 0), row(2, 2), row(3, 3), row(4, 4)];
        let check_all = |rows, shown: &[ShownRow]| check(Predicate::All, rows, 2, shown);
        assert_eq!(check_all(9, &all), Ok(()));
        assert_eq!(check_all(3, &all[..3]), Ok(()));
        for missing in 0..5 {
            let mut some = all.to_vec();
            some.remove(missing);
            assert!(check_all(9, &some).unwrap_err().contains("lacks row"));
            // The last row is not wanted.
            assert_eq!(check_all(4, &some).is_ok(), missing == 4, "{missing}");
        }
        // The wrong one of two at the same distance.
        assert!(check_all(2, &[row(1, 1), row(2, 2)]).unwrap_err().contains("lacks row (1, 0)"));
        assert!(check_all(9, &[]).unwrap_err().contains("lacks row (1, 0)"));
    }

    #[test]
    fn an_answer_with_a_wrong_order_or_too_many_rows_is_found() {
        let order = |rows, shown: &[ShownRow]| check(Predicate::All, rows, 2, shown).unwrap_err();
        assert!(order(2, &[row(0, 0), row(1, 1)]).contains("is not nearer"));
        assert!(order(3, &[row(1, 1), row(2, 2), row(0, 0)]).contains("is not nearer"));
        assert!(order(2, &[row(1, 1), row(1, 1)]).contains("is not nearer"));
        let three = [row(1, 1), row(0, 0), row(2, 2)];
        assert!(order(2, &three).contains("shows 3 rows"));
    }

    #[test]
    fn a_row_counts_with_a_vector_that_it_may_have() {
        let (stale, now) = ([row(1, 1), row(0, 0), row(2, 2)], [row(1, 1), row(4, 1), row(0, 0)]);
        // While it is overwritten, both.
        for (at, of_stale, of_now) in [(2, true, false), (10, true, true), (12, false, true)] {
            assert_eq!(check(Predicate::All, 3, at, &stale).is_ok(), of_stale, "{at}");
            assert_eq!(check(Predicate::All, 3, at, &now).is_ok(), of_now, "{at}");
        }
        // The old vector.
        let old_vector = [row(1, 1), row(0, 0), row(2, 2), row(3, 3), row(4, 4)];
        let wrong = check(Predicate::All, 9, 12, &old_vector).unwrap_err();
        assert!(wrong.contains("without such a matching state"), "{wrong}");
    }

    #[test]
    fn the_nearest_rows_satisfy_the_predicate() {
        let of_v = |v, rows, shown: &[ShownRow]| check(Predicate::V(v), rows, 2, shown);
        assert_eq!(of_v(0, 2, &[row(0, 0), row(2, 2)]), Ok(()));
        assert!(of_v(0, 2, &[row(1, 1), row(0, 0)]).unwrap_err().contains("matching state"));
        assert!(of_v(0, 2, &[row(0, 0), row(4, 4)]).unwrap_err().contains("lacks row (1, 2)"));
        assert_eq!(of_v(1, 1, &[row(1, 1)]), Ok(()));
        let text = "WHERE v = 1 ORDER BY e ANN OF [2, 1] LIMIT 3";
        let nearest = Some(Nearest { to: 9, rows: 3 });
        let asked = Question { predicate: Predicate::V(1), partition: None, nearest };
        assert_eq!(asked.statement().split_once("indexed ").unwrap().1, text);
    }

    #[test]
    fn vectors_are_decoded_as_they_are_encoded() {
        let bytes = |x: f32, y: f32| [x.to_be_bytes(), y.to_be_bytes()].concat();
        assert_eq!(decode(&bytes(2.0, 1.0)), Ok(9));
        assert_eq!(decode(&bytes(6.0, 6.0)), Ok(VECTORS - 1));
        assert!(decode(&bytes(2.5, 1.0)).is_err() && decode(&[]).is_err());
    }
}
