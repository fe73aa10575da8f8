//! Conditional statements: rows in, a decision and the client's answer out.
//!
//! Owns: [`CasExec`], which takes the rows of one partition and decides. Never: rounds of Paxos, reading; the caller
//! shows rows, asks for a decision at a ballot's timestamp, and may begin again as often as it must.
//!
//! Invariant: INV-cas-2: a decision depends only on the rows shown since the last restart, the values and the
//! timestamp (and on functions like `now()`).
//!
//! Source: `cql3.statements.CQL3CasRequest`, `ModificationStatement.buildCasResultSet`.

mod conditions;
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use cql_functions::PlanError;
use cql_plan::cas::{AskedRow, BoundCas, CasStatement, RowCondition};
use cql_plan::column_source::{Source, key_component};
use cql_plan::modify::{FoundLists, RowPlace};
use cql_plan::plan::ExecuteOptions;
use cql_plan::select::ResultColumn;
use data::{ColumnRef, RowRef};
use schema::{Column, ColumnKind};
use stdx::{ColumnId, DeletionSeconds, TimestampMicros};
use types::CqlType;

use crate::cells::put_column;
use conditions::applies;

/// Next step of the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CasFlow {
    /// Continue.
    Continue,
    /// End the read.
    Stop,
}

/// Outcome of a conditional statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its conditions held.
    Applied,
    /// They did not.
    NotApplied,
}

/// The answer to a conditional statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CasResult {
    /// `[applied]`; if the conditions do not hold, followed by the columns that were read.
    pub columns: Vec<ResultColumn>,
    /// At least one; `None` is null.
    pub rows: Vec<Vec<Option<Vec<u8>>>>,
}

/// Decides bound conditions on the rows it is shown.
pub struct CasExec<'c> {
    bound: &'c BoundCas,
    statements: &'c [CasStatement<'c>],
    options: ExecuteOptions<'c>,
    /// Packed; `None` when nothing of it is live.
    static_row: Option<Vec<u8>>,
    /// Clustering and packed row, in clustering order.
    rows: Vec<(Vec<u8>, Vec<u8>)>,
}

impl<'c> CasExec<'c> {
    /// `statements` and `options` are those that were bound.
    pub fn new(
        bound: &'c BoundCas,
        statements: &'c [CasStatement<'c>],
        options: ExecuteOptions<'c>,
    ) -> CasExec<'c> {
        CasExec { bound, statements, options, static_row: None, rows: Vec::new() }
    }

    fn now(&self) -> DeletionSeconds {
        self.bound.command.now
    }

    /// Discards the rows that were shown.
    pub fn restart(&mut self) {
        self.static_row = None;
        self.rows.clear();
    }

    /// The partition begins. `static_row` is live, if there is one.
    pub fn partition(&mut self, static_row: Option<RowRef<'_>>) -> CasFlow {
        let looks = |row: &RowRef<'_>| has_live(row, &self.bound.static_columns, self.now());
        // Shown once per page; a later one need not have it.
        if let Some(row) = static_row.filter(looks) {
            self.static_row = Some(row.bytes().to_vec());
        }
        CasFlow::Continue
    }

    /// A live row.
    pub fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> CasFlow {
        let now = self.now();
        if !row.liveness().is_live(now) && !has_live(&row, &self.bound.regular_columns, now) {
            return CasFlow::Continue;
        }
        self.rows.push((clustering.to_vec(), row.bytes().to_vec()));
        if self.rows.len() >= self.bound.rows_wanted() { CasFlow::Stop } else { CasFlow::Continue }
    }

    fn static_row(&self) -> Option<RowRef<'_>> {
        self.static_row.as_deref().map(RowRef::trusted)
    }

    fn found(&self, clustering: &[u8]) -> Option<RowRef<'_>> {
        let found = self.rows.iter().find(|(at, _)| at == clustering);
        found.map(|(_, row)| RowRef::trusted(row))
    }

    fn holds(&self) -> Result<bool, PlanError> {
        let now = self.now();
        if let Some(condition) = &self.bound.statics
            && !holds(condition, self.static_row(), now)?
        {
            return Ok(false);
        }
        for (clustering, condition) in &self.bound.rows {
            if !holds(condition, self.found(clustering), now)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Decides if the conditions hold for the rows that were shown. If so, returns the writes as
    /// one encoded mutation with that timestamp; it is empty when all values are unset.
    ///
    /// # Errors
    /// Invalid comparisons; the errors of a write of these values; a list element that does not
    /// exist. With Cassandra's words.
    pub fn decide(&self, timestamp: TimestampMicros) -> Result<Option<Vec<u8>>, PlanError> {
        if !self.holds()? {
            return Ok(None);
        }
        let (bound, now) = (self.bound, self.now());
        let mut lists = FoundLists::default();
        if self.statements.iter().any(|(plan, _)| plan.needs_read()) {
            let place = RowPlace { table: bound.table.id, key: &bound.key, clustering: None };
            if let Some(row) = self.static_row() {
                lists.take_row(place, row, now);
            }
            for (clustering, row) in &self.rows {
                let place = RowPlace { clustering: Some(clustering), ..place };
                lists.take_row(place, RowRef::trusted(row), now);
            }
        }
        bound.bind_writes(self.statements, &self.options, &lists, timestamp).map(Some)
    }

    /// Builds the client's result. If the conditions do not hold, it has the rows that were shown
    /// last.
    pub fn result(&self, verdict: Verdict) -> CasResult {
        let mut columns = vec![self.column(Arc::from("[applied]"), CqlType::Boolean)];
        let mark = Some(vec![u8::from(verdict == Verdict::Applied)]);
        let mut rows = Vec::new();
        if verdict == Verdict::NotApplied {
            for (clustering, row) in &self.rows {
                rows.push(self.shown(&mark, Some(clustering), Some(RowRef::trusted(row))));
            }
            if rows.is_empty() && self.static_row.is_some() {
                rows.push(self.shown(&mark, None, None));
            }
        }
        match rows.is_empty() {
            true => rows.push(vec![mark]),
            false => columns
                .extend(self.bound.shown.iter().map(|c| self.column(c.name.clone(), c.ty.clone()))),
        }
        CasResult { columns, rows }
    }

    /// Builds the result for a client of ScyllaDB: the previous rows, whatever the outcome of the
    /// conditions, one for each statement in their order. A missing row is all nulls, and so is the
    /// row of a statement without conditions. The columns do not depend on the outcome. Source:
    /// ScyllaDB's documentation, "How does ScyllaDB LWT differ from Apache Cassandra".
    pub fn previous(&self, verdict: Verdict) -> CasResult {
        let told = |c: &Column| self.column(c.name.clone(), c.ty.clone());
        let mut columns = vec![self.column(Arc::from("[applied]"), CqlType::Boolean)];
        columns.extend(self.bound.shown.iter().map(told));
        let mark = Some(vec![u8::from(verdict == Verdict::Applied)]);
        let row = |asked: &AskedRow| {
            let found = match asked {
                AskedRow::Row(at) => self.found(at).map(|row| (at, row)),
                AskedRow::Static | AskedRow::Nothing => None,
            };
            match found {
                Some((at, row)) => self.shown(&mark, Some(at), Some(row)),
                None if self.static_row.is_some() && *asked != AskedRow::Nothing => {
                    self.shown(&mark, None, None)
                }
                None => {
                    let mut cells = vec![mark.clone()];
                    cells.resize(columns.len(), None);
                    cells
                }
            }
        };
        let rows = self.bound.asked_rows.iter().map(row).collect();
        CasResult { columns, rows }
    }

    fn column(&self, name: Arc<str>, ty: CqlType) -> ResultColumn {
        let table = &self.bound.table;
        ResultColumn { keyspace: table.keyspace.clone(), table: table.name.clone(), name, ty }
    }

    fn shown(
        &self,
        mark: &Option<Vec<u8>>,
        clustering: Option<&[u8]>,
        row: Option<RowRef<'_>>,
    ) -> Vec<Option<Vec<u8>>> {
        let mut cells = vec![mark.clone()];
        for column in &self.bound.shown {
            cells.push(self.value(column, clustering, row));
        }
        cells
    }

    fn value(
        &self,
        column: &Column,
        clustering: Option<&[u8]>,
        row: Option<RowRef<'_>>,
    ) -> Option<Vec<u8>> {
        let bound = self.bound;
        let (row, shape) = match Source::of(column) {
            Source::Key(index) => {
                let count = bound.table.partition_key_count;
                return key_component(&bound.key, count, index).map(<[u8]>::to_vec);
            }
            Source::Clustering(index) => {
                let mut components = data::clustering::components(clustering?);
                return components.nth(usize::from(index)).flatten().map(<[u8]>::to_vec);
            }
            Source::Static(_, shape) => (self.static_row(), shape),
            Source::Regular(_, shape) => (row, shape),
        };
        // Columns that were not read are null, though the rows shown may have them.
        let read = match column.kind {
            ColumnKind::Static => &bound.static_columns,
            _ => &bound.regular_columns,
        };
        if !read.contains(&column.id) {
            return None;
        }
        let mut bytes = Vec::new();
        put_column(&mut bytes, row.and_then(|r| r.column(column.id)), shape, self.now());
        let (length, value) = bytes.split_first_chunk::<4>()?;
        (i32::from_be_bytes(*length) >= 0).then(|| value.to_vec())
    }
}

/// Returns true if the condition on a row holds; `row` is `None` when the row does not exist.
fn holds(
    condition: &RowCondition,
    row: Option<RowRef<'_>>,
    now: DeletionSeconds,
) -> Result<bool, PlanError> {
    match condition {
        RowCondition::Exists => Ok(row.is_some()),
        RowCondition::NotExists => Ok(row.is_none()),
        RowCondition::Columns(conditions) => {
            for condition in conditions {
                if !applies(condition, row, now)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

/// Returns true if one of the columns has a value.
fn has_live(row: &RowRef<'_>, columns: &[ColumnId], now: DeletionSeconds) -> bool {
    row.columns().any(|(id, column)| {
        columns.contains(&id)
            && match column {
                ColumnRef::Simple(cell) => cell.is_live(now),
                ColumnRef::Complex(complex) => complex.cells().any(|(_, c)| c.is_live(now)),
            }
    })
}
