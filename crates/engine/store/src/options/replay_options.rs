//! Filter of the mutations that are replayed from an old commit log.

use data::{ColumnRef, MutationRef, RowRef};
use schema::{Schema, Table};

/// Filter of the replay of the old commit log; by default everything is replayed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayOptions {
    /// `keyspace` or `keyspace.table`; empty: all. Keyspaces of the system are always replayed: what
    /// is decided there (lightweight transactions, logged batches) must not be forgotten.
    pub tables: Vec<String>,
    /// The moment that is restored; what is later is left out.
    pub until: Option<PointInTime>,
}

/// A moment as the timestamps of mutations count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointInTime {
    /// Microseconds since 1970.
    pub micros: i64,
    /// Microseconds of one unit of the timestamps that clients write; 1 unless they count in others.
    pub unit_micros: i64,
}

impl ReplayOptions {
    /// Checks that every name in the list exists.
    ///
    /// # Errors
    /// The message of Cassandra 5.0 (`CommitLogReplayer.ReplayFilter`).
    pub fn check(&self, schema: &Schema) -> Result<(), String> {
        for item in &self.tables {
            let item = item.trim();
            if item.is_empty() || item.ends_with('.') {
                return Err(format!("Invalid pair: '{item}'"));
            }
            let (keyspace, table) = item.split_once('.').unwrap_or((item, ""));
            if table.contains('.') {
                return Err(format!(
                    "commitlog_replay_list property contains an item which is not in format \
                     'keyspace' or 'keyspace.table' but it is '{item}'"
                ));
            }
            if schema.keyspace(keyspace).is_none() {
                return Err(format!("Unknown keyspace {keyspace}"));
            }
            if !table.is_empty() && schema.table(keyspace, table).is_none() {
                return Err(format!("Unknown table {keyspace}.{table}"));
            }
        }
        Ok(())
    }

    pub(crate) fn includes(&self, table: &Table) -> bool {
        self.tables.is_empty()
            || is_of_system(table)
            || self.tables.iter().any(|item| match item.trim().split_once('.') {
                Some((keyspace, name)) => *keyspace == *table.keyspace && *name == *table.name,
                None => *item.trim() == *table.keyspace,
            })
    }

    /// Returns true if a mutation is later than the moment that is restored.
    pub(crate) fn is_after(&self, table: &Table, mutation: &MutationRef<'_>) -> bool {
        let Some(until) = self.until else { return false };
        let unit = if is_of_system(table) { 1 } else { until.unit_micros };
        // NONE and LIVE are the smallest number: their product must not become large.
        max_timestamp(mutation).saturating_mul(unit) > until.micros
    }
}

/// Largest timestamp in a mutation, as its writer counts; `i64::MIN` when there is none.
pub fn max_timestamp(mutation: &MutationRef<'_>) -> i64 {
    let rows = mutation.rows().map(|(_, row)| max_of_row(&row));
    let tombstones = mutation.range_tombstones().map(|t| t.deletion.timestamp.0);
    let static_row = mutation.static_row.as_ref().map(max_of_row);
    let all = rows.chain(tombstones).chain(static_row).chain([mutation.deletion.timestamp.0]);
    all.max().unwrap_or(i64::MIN)
}

fn max_of_row(row: &RowRef<'_>) -> i64 {
    let (liveness, deletion, columns) = row.parts();
    let mut max = liveness.timestamp.0.max(deletion.timestamp.0);
    for (_, column) in columns {
        match column {
            ColumnRef::Simple(cell) => max = max.max(cell.timestamp.0),
            ColumnRef::Complex(complex) => {
                max = max.max(complex.deletion.timestamp.0);
                for (_, cell) in complex.cells() {
                    max = max.max(cell.timestamp.0);
                }
            }
        }
    }
    max
}

/// Returns true if the table is in one of the node's own keyspaces.
pub(crate) fn is_of_system(table: &Table) -> bool {
    &*table.keyspace == "system" || table.keyspace.starts_with("system_")
}
