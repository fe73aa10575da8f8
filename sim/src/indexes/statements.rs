//! Random statements of the clients and the administrator of the indexed table.

use conformance::fuzz::random::Random;

use super::model::{COLUMNS, CellChange, Change, Predicate, Question, ROWS, RowKey, TTL};

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

    fn cells(&mut self) -> [CellChange; 3] {
        let mut cells = [CellChange::Keep; 3];
        for cell in &mut cells {
            *cell = match self.below(20) {
                0..10 => CellChange::Keep,
                10..18 => CellChange::Put(self.below(VALUES)),
                _ => CellChange::Clear,
            };
        }
        if cells == [CellChange::Keep; 3] {
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
                let change =
                    Change::Update([CellChange::Put(value), CellChange::Keep, CellChange::Keep]);
                let text = format!("{update} SET s = {value} WHERE p = {p}");
                Write { keys: vec![(p, None)], change, text }
            }
        }
    }

    /// Returns a read by an index of any partition of that many clients.
    pub fn question(&mut self, clients: i32) -> Question {
        let value = self.below(VALUES);
        let predicate = match self.below(10) {
            0..3 => Predicate::V(value),
            3 => Predicate::VFrom(value),
            4..7 => Predicate::VAndW(value, self.below(VALUES)),
            7 => Predicate::L(value),
            _ => Predicate::S(value),
        };
        let partition = self.0.percent(15).then(|| self.below(clients * PARTITIONS));
        Question { predicate, partition }
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
    let all = (0..VALUES).flat_map(of_value);
    all.map(|predicate| Question { predicate, partition: None }).collect()
}

/// Assignments of an UPDATE.
fn assigned(cells: &[CellChange; 3]) -> String {
    let of_column = |(name, cell): (&str, &CellChange)| match cell {
        CellChange::Keep => None,
        CellChange::Put(value) => Some(format!("{name} = {value}")),
        CellChange::Clear => Some(format!("{name} = null")),
    };
    let all: Vec<String> = COLUMNS.into_iter().zip(cells).filter_map(of_column).collect();
    all.join(", ")
}

fn insert(cells: &[CellChange; 3], p: i32, c: i32, stamp: i64) -> String {
    let (mut names, mut values) = (String::new(), String::new());
    for (name, cell) in COLUMNS.into_iter().zip(cells) {
        let value = match cell {
            CellChange::Keep => continue,
            CellChange::Put(value) => value.to_string(),
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
pub fn creations(layout: Layout) -> [String; 4] {
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
    ]
}

/// The names of the indexes.
pub const NAMES: [&str; 4] = ["one", "two", "of_l", "of_s"];

/// Returns the statement that drops an index.
pub fn drop_index(name: &str) -> String {
    format!("DROP INDEX IF EXISTS ks.{name}")
}
