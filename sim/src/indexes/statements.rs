//! Random statements of the clients and the administrator of the indexed table.

use conformance::fuzz::random::Random;

use super::model::{
    COLUMNS, CellChange, CellChanges, Change, Predicate, Question, ROWS, RowKey, TTL,
};
use super::nearest::{self, Nearest, VECTORS};

/// Partitions of each client.
const PARTITIONS: i32 = 2;
/// Number of values of an indexed column.
pub const VALUES: i32 = 3;

/// The columns of the SAI indexes `one` and `two`.
#[derive(Clone, Copy, Debug, Default)]
pub enum Layout {
    /// `one` is on `v`, `two` on `w`.
    #[default]
    Straight,
    /// `one` is on `w`, `two` on `v`: the same index ids with other columns.
    Swapped,
}

impl Layout {
    /// Returns the other layout.
    pub fn other(self) -> Layout {
        match self {
            Layout::Straight => Layout::Swapped,
            Layout::Swapped => Layout::Straight,
        }
    }
}

/// A write: its rows, what it does to each of them, and its statement.
#[derive(Clone, Debug)]
pub struct Write {
    pub keys: Vec<RowKey>,
    pub change: Change,
    pub text: String,
}

/// Generator of a client's statements.
pub struct Draw(Random);

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw(Random::new(seed))
    }

    /// Returns a number below the limit.
    pub fn below(&mut self, limit: i32) -> i32 {
        (self.0.bits() % u64::from(limit.unsigned_abs().max(1))) as i32
    }

    /// Returns the rows per page of a read; `None`: no paging.
    pub fn page(&mut self) -> Option<i32> {
        self.0.percent(75).then(|| 1 + self.below(5))
    }

    fn cells(&mut self) -> CellChanges {
        let mut cells = [CellChange::Keep; 4];
        for (cell, values) in cells.iter_mut().zip([VALUES, VALUES, VALUES, VECTORS]) {
            *cell = match self.below(20) {
                0..10 => CellChange::Keep,
                10..18 => CellChange::Put(self.below(values)),
                _ => CellChange::Clear,
            };
        }
        if cells == [CellChange::Keep; 4] {
            cells[0] = CellChange::Put(self.below(VALUES));
        }
        cells
    }

    /// Returns a write of a client's rows with that timestamp.
    pub fn write(&mut self, client: i32, stamp: i64) -> Write {
        let p = client * PARTITIONS + self.below(PARTITIONS);
        let c = self.below(ROWS);
        let row = format!("WHERE p = {p} AND c = {c}");
        let update = format!("UPDATE ks.indexed USING TIMESTAMP {stamp}");
        let delete = format!("DELETE FROM ks.indexed USING TIMESTAMP {stamp}");
        let of_row = |change, text| Write { keys: vec![(p, Some(c))], change, text };
        match self.below(100) {
            0..50 => {
                let cells = self.cells();
                of_row(Change::Update(cells), format!("{update} SET {} {row}", assigned(&cells)))
            }
            50..62 => {
                let (cells, ttl) = (self.cells(), TTL.as_secs());
                let text = format!("{update} AND TTL {ttl} SET {} {row}", assigned(&cells));
                of_row(Change::Expire(cells), text)
            }
            62..74 => {
                let cells = self.cells();
                of_row(Change::Insert(cells), insert(&cells, p, c, stamp))
            }
            74..84 => of_row(Change::Delete, format!("{delete} {row}")),
            84..88 => {
                let rows = (0..ROWS).map(|c| (p, Some(c)));
                let keys = std::iter::once((p, None)).chain(rows).collect();
                Write { keys, change: Change::Delete, text: format!("{delete} WHERE p = {p}") }
            }
            _ => {
                let value = self.below(VALUES);
                let mut cells = [CellChange::Keep; 4];
                cells[0] = CellChange::Put(value);
                let text = format!("{update} SET s = {value} WHERE p = {p}");
                Write { keys: vec![(p, None)], change: Change::Update(cells), text }
            }
        }
    }

    /// Returns a read by an index of any partition of that many clients; so many of 100 are reads of the nearest rows.
    pub fn question(&mut self, clients: i32, nearest: usize) -> Question {
        let partition = self.0.percent(15).then(|| self.below(clients * PARTITIONS));
        if self.0.percent(nearest) {
            let predicate = match self.below(10) {
                0..5 => Predicate::All,
                5..7 => Predicate::V(self.below(VALUES)),
                7 => Predicate::VFrom(self.below(VALUES)),
                8 => Predicate::VAndW(self.below(VALUES), self.below(VALUES)),
                _ => Predicate::S(self.below(VALUES)),
            };
            let nearest = Nearest { to: self.below(VECTORS), rows: 1 + self.below(9) };
            return Question { predicate, partition, nearest: Some(nearest) };
        }
        let value = self.below(VALUES);
        let predicate = match self.below(10) {
            0..3 => Predicate::V(value),
            3 => Predicate::VFrom(value),
            4..7 => Predicate::VAndW(value, self.below(VALUES)),
            7 => Predicate::L(value),
            _ => Predicate::S(value),
        };
        Question { predicate, partition, nearest: None }
    }
}

/// Returns a read of each kind with each value.
pub fn all_questions() -> Vec<Question> {
    let of_value = |v| {
        let both = (0..VALUES).map(move |w| Predicate::VAndW(v, w));
        [Predicate::V(v), Predicate::VFrom(v), Predicate::L(v), Predicate::S(v)]
            .into_iter()
            .chain(both)
    };
    let by_index = |predicate| Question { predicate, partition: None, nearest: None };
    let by_vector = |number: i32, predicate| {
        let nearest = Nearest { to: number * 11 % VECTORS, rows: 1 + number * 3 % 10 };
        Question { predicate, partition: None, nearest: Some(nearest) }
    };
    let of_vectors = |v| [Predicate::All, Predicate::V(v), Predicate::VFrom(v), Predicate::S(v)];
    let vectors = (0..VALUES).flat_map(of_vectors);
    let vectors = (0..).zip(vectors).map(|(number, predicate)| by_vector(number, predicate));
    (0..VALUES).flat_map(of_value).map(by_index).chain(vectors).collect()
}

/// A value of a column as it is written.
fn literal(column: &str, value: i32) -> String {
    if column == "e" { nearest::literal(value) } else { value.to_string() }
}

/// Assignments of an UPDATE.
fn assigned(cells: &CellChanges) -> String {
    let of_column = |(name, cell): (&str, &CellChange)| match cell {
        CellChange::Keep => None,
        CellChange::Put(value) => Some(format!("{name} = {}", literal(name, *value))),
        CellChange::Clear => Some(format!("{name} = null")),
    };
    let all: Vec<String> = COLUMNS.into_iter().zip(cells).filter_map(of_column).collect();
    all.join(", ")
}

fn insert(cells: &CellChanges, p: i32, c: i32, stamp: i64) -> String {
    let (mut names, mut values) = (String::new(), String::new());
    for (name, cell) in COLUMNS.into_iter().zip(cells) {
        let value = match cell {
            CellChange::Keep => continue,
            CellChange::Put(value) => literal(name, *value),
            CellChange::Clear => "null".to_owned(),
        };
        names.push_str(&format!(", {name}"));
        values.push_str(&format!(", {value}"));
    }
    format!(
        "INSERT INTO ks.indexed (p, c{names}) VALUES ({p}, {c}{values}) USING TIMESTAMP {stamp}"
    )
}

/// Returns the statements that create the indexes.
pub fn creations(layout: Layout) -> [String; 5] {
    let (of_v, of_w) = match layout {
        Layout::Straight => ("one", "two"),
        Layout::Swapped => ("two", "one"),
    };
    let create = |name: &str, column: &str, rules: &str| {
        format!("CREATE INDEX IF NOT EXISTS {name} ON ks.indexed ({column}){rules}")
    };
    [
        create(of_v, "v", " USING 'sai'"),
        create(of_w, "w", " USING 'sai'"),
        create("of_l", "l", ""),
        create("of_s", "s", " USING 'sai'"),
        create("of_e", "e", " USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}"),
    ]
}

/// The names of the indexes.
pub const NAMES: [&str; 5] = ["one", "two", "of_l", "of_s", "of_e"];

/// Returns the statement that drops an index.
pub fn drop_index(name: &str) -> String {
    format!("DROP INDEX IF EXISTS ks.{name}")
}
