//! Model of a partition: operations are carried out one after the other in the order of their
//! timestamps, on a plain map.

use std::collections::BTreeMap;

use super::operation::{Action, Change, Operation, frozen};
use super::table::{Shape, Table};

/// A column's content.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// The number of its value.
    Plain(u64),
    /// By the rank of the key: numbers of key and value.
    Elements(BTreeMap<u64, (u64, u64)>),
}

#[derive(Clone, Debug, Default)]
struct Row {
    is_inserted: bool,
    cells: BTreeMap<usize, Content>,
}

/// A row of an answer: serialised values of the clustering key and of the other columns.
pub type Cells = Vec<Option<Vec<u8>>>;

/// A partition.
#[derive(Clone, Debug, Default)]
pub struct Partition {
    statics: Row,
    /// By places of the clustering key in the table's order, with its numbers.
    rows: BTreeMap<Vec<u64>, (Vec<u64>, Row)>,
}

impl Row {
    fn change(&mut self, table: &Table, column: usize, change: &Change) {
        let Some(shape) = table.columns.get(column).map(|column| column.shape) else { return };
        let rank = |key: u64| match shape {
            Shape::Set(kind) | Shape::Map(kind, _) => kind.rank(key),
            Shape::Plain(_) | Shape::Frozen(_) => key,
        };
        match change {
            Change::Plain(None) => drop(self.cells.remove(&column)),
            Change::Plain(Some(number)) => {
                self.cells.insert(column, Content::Plain(*number));
            }
            Change::Whole(elements) => {
                let elements = elements.iter().map(|(k, v)| (rank(*k), (*k, *v))).collect();
                self.cells.insert(column, Content::Elements(elements));
            }
            Change::Element(key, value) => {
                let content = self.cells.entry(column);
                let content = content.or_insert_with(|| Content::Elements(BTreeMap::new()));
                let Content::Elements(elements) = content else { return };
                match value {
                    Some(value) => drop(elements.insert(rank(*key), (*key, *value))),
                    None => drop(elements.remove(&rank(*key))),
                }
            }
        }
        let is_empty = |content: &Content| matches!(content, Content::Elements(e) if e.is_empty());
        if self.cells.get(&column).is_some_and(is_empty) {
            self.cells.remove(&column);
        }
    }

    fn value(&self, table: &Table, column: usize) -> Option<Vec<u8>> {
        let shape = table.columns.get(column)?.shape;
        let put = |out: &mut Vec<u8>, bytes: Vec<u8>| {
            out.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
            out.extend(bytes);
        };
        let counted =
            |count: usize| u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes().to_vec();
        match (shape, self.cells.get(&column)?) {
            (Shape::Plain(kind), Content::Plain(number)) => Some(kind.bytes(*number)),
            (Shape::Frozen(kind), Content::Plain(number)) => {
                let mut out = counted(frozen(*number).count());
                frozen(*number).for_each(|item| put(&mut out, kind.bytes(item)));
                Some(out)
            }
            (Shape::Set(kind), Content::Elements(elements)) => {
                let mut out = counted(elements.len());
                elements.values().for_each(|(key, _)| put(&mut out, kind.bytes(*key)));
                Some(out)
            }
            (Shape::Map(kind, of), Content::Elements(elements)) => {
                let mut out = counted(elements.len());
                for (key, value) in elements.values() {
                    put(&mut out, kind.bytes(*key));
                    put(&mut out, of.bytes(*value));
                }
                Some(out)
            }
            _ => None,
        }
    }
}

impl Partition {
    /// Returns the partition that results from these operations; their order does not matter.
    #[must_use]
    pub fn of(table: &Table, operations: &[Operation]) -> Self {
        let mut sorted: Vec<&Operation> = operations.iter().collect();
        sorted.sort_by_key(|operation| operation.stamp);
        let mut partition = Self::default();
        for operation in sorted {
            partition.carry_out(table, &operation.action);
        }
        partition
    }

    fn row(&mut self, table: &Table, key: &[u64]) -> &mut Row {
        let places = key.iter().enumerate().map(|(at, number)| table.place(at, *number)).collect();
        &mut self.rows.entry(places).or_insert_with(|| (key.to_vec(), Row::default())).1
    }

    fn carry_out(&mut self, table: &Table, action: &Action) {
        match action {
            Action::Insert(key, changes) | Action::Update(key, changes) => {
                for (column, change) in changes {
                    match table.columns.get(*column).is_some_and(|column| column.is_static) {
                        true => self.statics.change(table, *column, change),
                        false => self.row(table, key).change(table, *column, change),
                    }
                }
                if matches!(action, Action::Insert(..)) {
                    self.row(table, key).is_inserted = true;
                }
            }
            Action::Statics(changes) => {
                for (column, change) in changes {
                    self.statics.change(table, *column, change);
                }
            }
            Action::Rows(slice) => self.rows.retain(|_, (key, _)| !slice.has(table, key)),
            Action::Partition => *self = Self::default(),
        }
    }

    /// All rows in the table's order with their clustering keys: clustering key, then the other columns. A
    /// partition that has static values only shows one row without a key.
    #[must_use]
    pub fn rows(&self, table: &Table) -> Vec<(Option<Vec<u64>>, Cells)> {
        let cells = |row: &Row| -> Cells {
            let columns = table.columns.iter().enumerate();
            let one = |(at, column): (usize, &super::table::Column)| match column.is_static {
                true => self.statics.value(table, at),
                false => row.value(table, at),
            };
            columns.map(one).collect()
        };
        let mut rows = Vec::new();
        for (key, row) in self.rows.values() {
            if row.is_inserted || !row.cells.is_empty() {
                let of_key = table.clustering.iter().zip(key);
                let mut all: Cells = of_key.map(|(c, n)| Some(c.kind.bytes(*n))).collect();
                all.extend(cells(row));
                rows.push((Some(key.clone()), all));
            }
        }
        if rows.is_empty() && !self.statics.cells.is_empty() {
            let mut all: Cells = table.clustering.iter().map(|_| None).collect();
            all.extend(cells(&Row::default()));
            rows.push((None, all));
        }
        rows
    }
}
