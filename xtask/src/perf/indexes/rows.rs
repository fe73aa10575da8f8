//! Rows of the tables, a function of their number, and the queries with their correct answers.

use anyhow::{Context, Result, bail};

use super::super::cql::Page;

/// Rows that share a value of column `sel`.
pub const ROWS_PER_VALUE: u64 = 10;
/// Different range queries; later ones repeat them.
const RANGES: u64 = 64;
/// A range covers this part of the rows of each of its two columns.
const RANGE_PART: u64 = 100;

/// Columns of every table.
pub const COLUMNS: &str = "(id int PRIMARY KEY, sel text, uniq int, a int, b int, note text)";
/// Columns of a query, in the order of [`Table::check`].
const SELECTED: &str = "id, sel, uniq, a, b";

/// A pseudo-random number of another one (splitmix64).
pub fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn int(value: i32) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

/// Kind of query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Query {
    /// One row by its key.
    Key,
    /// The ten rows of a value.
    Equality,
    /// The one row of a value.
    Unique,
    /// A range of each of two columns.
    Ranges,
}

impl Query {
    /// All of them.
    pub const ALL: [Query; 4] = [Query::Key, Query::Equality, Query::Unique, Query::Ranges];

    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Query::Key => "read by key",
            Query::Equality => "equality, 10 rows",
            Query::Unique => "equality, 1 row",
            Query::Ranges => "two ranges with AND",
        }
    }

    /// Text of the statement.
    pub fn statement(self, table: &str) -> String {
        let restriction = match self {
            Query::Key => "id = ?",
            Query::Equality => "sel = ?",
            Query::Unique => "uniq = ?",
            Query::Ranges => "a >= ? AND a < ? AND b >= ? AND b < ?",
        };
        format!("SELECT {SELECTED} FROM {table} WHERE {restriction}")
    }
}

/// Number of the rows that match, and the sum of their ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Expected {
    rows: u64,
    ids: u64,
}

/// A table of a number of rows, and the answers of its queries.
pub struct Table {
    rows: u64,
    ranges: Vec<Expected>,
}

impl Table {
    /// Computes the answers of the range queries.
    pub fn new(rows: u64) -> Table {
        let mut table = Table { rows: whole(rows), ranges: Vec::new() };
        let bounds: Vec<[i32; 4]> = (0..RANGES).map(|n| table.bounds(n)).collect();
        let mut ranges = vec![Expected::default(); bounds.len()];
        for id in 0..table.rows {
            let (a, b) = (table.a(id), table.b(id));
            for ([from_a, to_a, from_b, to_b], expected) in bounds.iter().zip(&mut ranges) {
                if a >= *from_a && a < *to_a && b >= *from_b && b < *to_b {
                    expected.rows += 1;
                    expected.ids += id;
                }
            }
        }
        table.ranges = ranges;
        table
    }

    /// Number of its rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Statement that writes a row.
    pub fn insert(table: &str) -> String {
        format!("INSERT INTO {table} (id, sel, uniq, a, b, note) VALUES (?, ?, ?, ?, ?, ?)")
    }

    /// Values of a row, for [`Table::insert`].
    pub fn row(&self, id: u64) -> Vec<Vec<u8>> {
        let note = format!("{:016x}{:016x}", mix(id ^ 0x5a5a), mix(id ^ 0xa5a5));
        vec![
            int(number(id)),
            self.sel(id % self.groups()).into_bytes(),
            int(unique(id)),
            int(self.a(id)),
            int(self.b(id)),
            note.into_bytes(),
        ]
    }

    fn groups(&self) -> u64 {
        self.rows / ROWS_PER_VALUE
    }

    fn sel(&self, group: u64) -> String {
        format!("s{:016x}", mix(group))
    }

    fn a(&self, id: u64) -> i32 {
        number(mix(id.wrapping_mul(2)) % self.rows)
    }

    fn b(&self, id: u64) -> i32 {
        number(mix(id.wrapping_mul(2) + 1) % self.rows)
    }

    /// The row or group that the n-th query asks for.
    fn asked(&self, query: Query, n: u64) -> u64 {
        match query {
            Query::Key | Query::Unique => mix(n ^ 0x1111) % self.rows,
            Query::Equality => mix(n ^ 0x2222) % self.groups(),
            Query::Ranges => n % RANGES,
        }
    }

    fn bounds(&self, range: u64) -> [i32; 4] {
        let width = (self.rows / RANGE_PART).max(1);
        let from = |salt: u64| mix(range ^ salt) % (self.rows - width + 1);
        let (a, b) = (from(0x3333), from(0x4444));
        [number(a), number(a + width), number(b), number(b + width)]
    }

    /// Values of the n-th query.
    pub fn values(&self, query: Query, n: u64) -> Vec<Vec<u8>> {
        let asked = self.asked(query, n);
        match query {
            Query::Key => vec![int(number(asked))],
            Query::Equality => vec![self.sel(asked).into_bytes()],
            Query::Unique => vec![int(unique(asked))],
            Query::Ranges => self.bounds(asked).map(int).to_vec(),
        }
    }

    /// Compares the answer of the n-th query with the expected one.
    ///
    /// # Errors
    /// A row is missing, is one too many or has other values than were written.
    pub fn check(&self, query: Query, n: u64, page: &Page<'_>) -> Result<()> {
        let mut found = Expected::default();
        page.each_row(|cells| {
            found.ids += self.check_row(cells)?;
            found.rows += 1;
            Ok(())
        })?;
        let expected = self.expected(query, n)?;
        if found != expected {
            bail!("{}: {found:?} instead of {expected:?}", query.name());
        }
        Ok(())
    }

    /// Compares a row with what was written; its id.
    fn check_row(&self, cells: &[&[u8]]) -> Result<u64> {
        let id = cells.first().and_then(|id| <[u8; 4]>::try_from(*id).ok());
        let id = u64::try_from(i32::from_be_bytes(id.context("a row without an id")?))?;
        let written = self.row(id);
        if !written.iter().take(cells.len()).eq(cells.iter().copied()) {
            bail!("row {id} has other values than were written");
        }
        Ok(id)
    }

    fn expected(&self, query: Query, n: u64) -> Result<Expected> {
        let asked = self.asked(query, n);
        Ok(match query {
            Query::Key | Query::Unique => Expected { rows: 1, ids: asked },
            Query::Equality => {
                let ids = (0..ROWS_PER_VALUE).map(|n| asked + n * self.groups()).sum();
                Expected { rows: ROWS_PER_VALUE, ids }
            }
            Query::Ranges => *self.ranges.get(usize::try_from(asked)?).context("no such range")?,
        })
    }
}

/// The next number of rows that gives every value the same number of rows.
fn whole(rows: u64) -> u64 {
    rows.max(RANGE_PART).next_multiple_of(ROWS_PER_VALUE)
}

/// Rows and their numbers fit an `int`: the command line allows no more.
fn number(value: u64) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// A different value for each id: the factor is odd.
fn unique(id: u64) -> i32 {
    number(id).wrapping_mul(0x9e37_79b1_u32.cast_signed())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn ten_rows_share_a_value_and_one_has_a_unique_one() {
        let table = Table::new(2_000);
        let (mut groups, mut uniques) = (BTreeMap::<Vec<u8>, u64>::new(), BTreeSet::new());
        for id in 0..table.rows() {
            let row = table.row(id);
            *groups.entry(row[1].clone()).or_default() += 1;
            assert!(uniques.insert(row[2].clone()));
        }
        assert_eq!(groups.len(), 200);
        assert!(groups.values().all(|rows| *rows == ROWS_PER_VALUE));
    }

    #[test]
    fn answers_are_those_of_a_scan() {
        let table = Table::new(5_000);
        let mut of_ranges = 0;
        for query in Query::ALL {
            for n in 0..RANGES {
                let asked = table.values(query, n);
                let matches = |row: &[Vec<u8>]| match query {
                    Query::Key => row[0] == asked[0],
                    Query::Equality => row[1] == asked[0],
                    Query::Unique => row[2] == asked[0],
                    // Numbers from 0 on: the order of the bytes is that of the numbers.
                    Query::Ranges => {
                        row[3] >= asked[0]
                            && row[3] < asked[1]
                            && row[4] >= asked[2]
                            && row[4] < asked[3]
                    }
                };
                let mut scanned = Expected::default();
                for id in (0..table.rows()).filter(|id| matches(&table.row(*id))) {
                    scanned.rows += 1;
                    scanned.ids += id;
                }
                of_ranges += if query == Query::Ranges { scanned.rows } else { 0 };
                assert_eq!(table.expected(query, n).unwrap(), scanned, "{query:?} {n}");
            }
        }
        assert!(of_ranges > 0, "no range had a row");
    }

    #[test]
    fn a_row_with_another_value_is_wrong() {
        let table = Table::new(1_000);
        let row = table.row(7);
        let mut cells: Vec<&[u8]> = row.iter().take(5).map(Vec::as_slice).collect();
        assert_eq!(table.check_row(&cells).unwrap(), 7);
        let other = int(unique(8));
        cells[2] = &other;
        assert!(table.check_row(&cells).is_err());
        assert!(table.check_row(&[]).is_err());
    }
}
