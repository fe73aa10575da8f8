//! Reads of a partition, their expected answers, and the errors of wrong ones.

use std::fmt::Write as _;

use super::model::{Cells, Partition};
use super::operation::{Operation, Slice, writer_of};
use super::table::{Shape, Table};
use crate::fuzz::random::Random;

/// A read.
#[derive(Clone, Debug, Default)]
pub struct Read {
    /// Its rows.
    pub slice: Slice,
    /// Against the table's order.
    pub is_reversed: bool,
    /// Limit of rows.
    pub limit: Option<usize>,
}

impl Read {
    /// A random one; each fourth is of the whole partition.
    pub fn random(table: &Table, random: &mut Random) -> Self {
        let slice = match random.percent(25) {
            true => Slice::default(),
            false => Slice::random(table, random),
        };
        let is_reversed = random.percent(40);
        let limit = random.percent(30).then(|| 1 + random.below(6));
        Self { slice, is_reversed, limit }
    }

    /// Its SELECT.
    #[must_use]
    pub fn statement(&self, table: &Table, partition: u64) -> String {
        let mut columns: Vec<String> =
            (0..table.clustering.len()).map(|n| format!("c{n}")).collect();
        columns.extend((0..table.columns.len()).map(|n| table.column(n)));
        let (columns, name, place) =
            (columns.join(", "), &table.name, table.of_partition(partition));
        let mut text = format!("SELECT {columns} FROM {name} WHERE {place}");
        text.push_str(&self.slice.terms(table));
        if self.is_reversed {
            let order: Vec<String> = table
                .clustering
                .iter()
                .enumerate()
                .map(|(n, c)| format!("c{n} {}", if c.is_descending { "ASC" } else { "DESC" }))
                .collect();
            // Writing into a string cannot fail.
            let _ = write!(text, " ORDER BY {}", order.join(", "));
        }
        if let Some(limit) = self.limit {
            let _ = write!(text, " LIMIT {limit}");
        }
        text
    }

    /// The rows that it must answer.
    #[must_use]
    pub fn expected(&self, table: &Table, partition: &Partition) -> Vec<Cells> {
        let is_of_all = self.slice == Slice::default();
        let mut rows: Vec<Cells> = partition
            .rows(table)
            .into_iter()
            .filter(|(key, _)| match key {
                Some(key) => self.slice.has(table, key),
                None => is_of_all,
            })
            .map(|(_, cells)| cells)
            .collect();
        if self.is_reversed {
            rows.reverse();
        }
        rows.truncate(self.limit.unwrap_or(usize::MAX));
        rows
    }

    /// Returns the first difference between an answer and the operations; `None`: none.
    #[must_use]
    pub fn wrong(
        &self,
        table: &Table,
        operations: &[Operation],
        found: &[Cells],
    ) -> Option<String> {
        let expected = self.expected(table, &Partition::of(table, operations));
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            if found == expected {
                continue;
            }
            let mut text = format!("row {at}");
            let keys = table.clustering.len();
            for column in 0..expected.len().max(found.len()) {
                let (found, expected) = (found.get(column), expected.get(column));
                if found != expected {
                    let name = match column.checked_sub(keys) {
                        None => format!("c{column}"),
                        Some(column) => table.column(column),
                    };
                    let show = |cell: Option<&Option<Vec<u8>>>| shown(table, column, cell);
                    let _ = write!(text, ", {name} {} instead of {}", show(found), show(expected));
                }
            }
            return Some(text);
        }
        (found.len() != expected.len())
            .then(|| format!("{} rows instead of {}", found.len(), expected.len()))
    }
}

/// Formats a cell: its bytes, and the operation that wrote it if they identify one.
fn shown(table: &Table, column: usize, cell: Option<&Option<Vec<u8>>>) -> String {
    let Some(Some(bytes)) = cell else { return "null".to_owned() };
    let mut text = String::from("0x");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    let column = column.checked_sub(table.clustering.len()).and_then(|n| table.columns.get(n));
    if let Some(Shape::Plain(kind)) = column.map(|column| column.shape)
        && kind.bits() >= 32
    {
        let _ = match kind.number(bytes) {
            Some(number) => write!(text, " (of operation {})", writer_of(number)),
            None => write!(text, " (of no operation)"),
        };
    }
    text
}
