//! Conditional statements and batches: the read, the conditions, the writes that follow, and the
//! answer to the client.
//!
//! Owns: [`BoundCas`] (one partition, its conditions row by row, the read they need, the writes). Never: the decision
//! if conditions hold (`cql-exec`), rounds of Paxos, reading.
//!
//! Invariant: INV-cas-1: everything written has the ballot's timestamp, deletions one microsecond
//! less, whatever timestamps the statements have (`modify::Stamp`).
//!
//! Source: `cql3.statements.CQL3CasRequest`,
//! `ModificationStatement.makeCasRequest`, `buildCasResultSet`, `BatchStatement.makeCasRequest`.

mod condition_order;

use std::sync::Arc;

use codec::murmur::token_of;
use data::command::{Partitions, ReadCommand};
use data::{Slice, Slices};
use schema::{Column, Table};
use stdx::{ColumnId, TimestampMicros, Token, WallMicros};

use crate::batch::{BatchWrite, bind_into};
use crate::conditions::{BoundCondition, PlannedConditions};
use crate::error::PlanError;
use crate::modify::{FoundLists, ModifyPlan, Named, PendingUpdate, Stamp, encode_update};
use crate::values::{BoundValue, ExecuteOptions};

/// A statement and its values.
pub type CasStatement<'s> = (&'s ModifyPlan, &'s [BoundValue<'s>]);

/// Form of a request with IF; a batch of one statement is a batch, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CasForm {
    /// One INSERT, UPDATE or DELETE.
    Statement,
    /// A batch.
    Batch,
}

/// Condition on one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowCondition {
    /// The row exists.
    Exists,
    /// It does not.
    NotExists,
    /// All of these hold.
    Columns(Vec<BoundCondition>),
}

/// The conditions of a statement or batch with their values.
#[derive(Clone, Debug)]
pub struct BoundCas {
    /// The table.
    pub table: Arc<Table>,
    /// Serialised partition key.
    pub key: Vec<u8>,
    /// On the static row.
    pub statics: Option<RowCondition>,
    /// By serialised clustering, ascending, each once.
    pub rows: Vec<(Vec<u8>, RowCondition)>,
    /// Columns that are read and shown.
    pub static_columns: Vec<ColumnId>,
    /// See above.
    pub regular_columns: Vec<ColumnId>,
    /// Columns to show when the conditions do not hold.
    pub shown: Vec<Column>,
    /// The row that each statement asked for, in order.
    pub asked_rows: Vec<AskedRow>,
    /// The read that the conditions need.
    pub command: ReadCommand,
}

/// The row whose previous state a statement returns on connections with ScyllaDB's LWT mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskedRow {
    /// The row of that serialised clustering.
    Row(Vec<u8>),
    /// The static row.
    Static,
    /// None: the statement has no conditions, and gives a row of nulls.
    Nothing,
}

/// Conditions by row, while they are gathered.
#[derive(Default)]
struct Gathered {
    statics: Option<RowCondition>,
    rows: Vec<(Vec<u8>, RowCondition)>,
}

impl Gathered {
    /// The slot of a row's conditions.
    fn slot(&mut self, row: Option<&[u8]>) -> Option<&mut RowCondition> {
        match row {
            None => self.statics.as_mut(),
            Some(row) => self.rows.iter_mut().find(|(at, _)| at == row).map(|(_, c)| c),
        }
    }

    fn put(&mut self, row: Option<&[u8]>, condition: RowCondition) {
        match row {
            None => self.statics = Some(condition),
            Some(row) => self.rows.push((row.to_vec(), condition)),
        }
    }

    /// Source: `CQL3CasRequest.addExistsCondition`.
    fn existence(&mut self, row: Option<&[u8]>, asked: RowCondition) -> Result<(), PlanError> {
        match self.slot(row) {
            None => {
                self.put(row, asked);
                Ok(())
            }
            Some(before) if *before == asked => Ok(()),
            Some(RowCondition::Columns(_)) => Err(PlanError::invalid(format!(
                "Cannot mix IF conditions and IF {}EXISTS for the same row",
                if asked == RowCondition::NotExists { "NOT " } else { "" }
            ))),
            Some(_) => Err(PlanError::invalid(
                "Cannot mix IF EXISTS and IF NOT EXISTS conditions for the same row",
            )),
        }
    }

    /// Source: `CQL3CasRequest.addConditions`.
    fn columns(&mut self, row: Option<&[u8]>, asked: Vec<BoundCondition>) -> Result<(), PlanError> {
        if asked.is_empty() {
            return Ok(());
        }
        match self.slot(row) {
            None => self.put(row, RowCondition::Columns(asked)),
            Some(RowCondition::Columns(before)) => before.extend(asked),
            Some(_) => {
                return Err(PlanError::invalid(
                    "Cannot mix IF conditions and IF NOT EXISTS for the same row",
                ));
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        (plan, values): CasStatement<'_>,
        named: &Named,
        options: &ExecuteOptions<'_>,
    ) -> Result<(), PlanError> {
        let row = match named {
            Named::Static => None,
            Named::Row(row) => Some(row.as_slice()),
            Named::Range => {
                return Err(PlanError::invalid(
                    "IF is only supported for one row or static columns",
                ));
            }
        };
        let planned = match plan.conditions() {
            PlannedConditions::None => return Ok(()),
            PlannedConditions::NotExists => return self.existence(row, RowCondition::NotExists),
            PlannedConditions::Exists => return self.existence(row, RowCondition::Exists),
            PlannedConditions::Columns(planned) => planned,
        };
        let env = options.env();
        let bind = |of_statics: bool| {
            planned
                .iter()
                .filter(|c| c.is_static == of_statics)
                .map(|c| c.bind(values, &env))
                .collect::<Result<Vec<_>, _>>()
        };
        self.columns(row, bind(false)?)?;
        self.columns(None, bind(true)?)
    }
}

/// The read that precedes the decision on the conditions.
struct ReadOfRows<'r> {
    rows: &'r [(Vec<u8>, RowCondition)],
    statics: &'r [ColumnId],
    regulars: &'r [ColumnId],
}

impl ReadOfRows<'_> {
    fn command(&self, table: &Table, key: &[u8], read_at: WallMicros) -> ReadCommand {
        let slices = match self.rows {
            [] => Slices::all(),
            rows => Slices(rows.iter().map(|(row, _)| Slice::prefix(row.clone())).collect()),
        };
        ReadCommand {
            table: table.id,
            partitions: Partitions::Key(key.to_vec()),
            slices: slices.into(),
            reversed: false,
            columns: Some(self.statics.iter().chain(self.regulars).copied().collect()),
            now: read_at.seconds(),
            wants_static: !self.statics.is_empty(),
            resume: None,
            bypass_cache: false,
        }
    }
}

impl BoundCas {
    /// Binds the conditions of one statement, or of a batch's statements. At least one of these has
    /// conditions; all are of one table. Rows are read as of `read_at`, whatever timestamp the
    /// client gives its writes. Source: `StorageProxy.doPaxos`, which reads by the clock.
    ///
    /// # Errors
    /// Several partitions; IN on clustering columns; conditions that contradict each other; values
    /// that do not fit. With Cassandra's words.
    pub fn bind(
        statements: &[CasStatement<'_>],
        form: CasForm,
        options: &ExecuteOptions<'_>,
        read_at: WallMicros,
    ) -> Result<BoundCas, PlanError> {
        let Some((first, _)) = statements.first() else {
            return Err(PlanError::invalid("a conditional batch without statements"));
        };
        let is_batch = form == CasForm::Batch;
        let table = first.table().clone();
        let env = options.env();
        let mut key: Option<Vec<u8>> = None;
        let mut gathered = Gathered::default();
        let mut asked_rows = Vec::new();
        // `None` once a statement asks for existence: everything is shown.
        let mut asked: Option<Vec<ColumnId>> = Some(Vec::new());
        for (plan, values) in statements {
            let of_statement = plan.one_key(values, &env, is_batch)?;
            if key.get_or_insert_with(|| of_statement.clone()) != &of_statement {
                return Err(PlanError::invalid(
                    "Batch with conditions cannot span multiple partitions",
                ));
            }
            let named = plan.named(values, &env)?;
            if !plan.has_conditions() {
                asked_rows.push(AskedRow::Nothing);
                continue;
            }
            gathered.add((plan, values), &named, options)?;
            asked_rows.push(match named {
                Named::Row(row) => AskedRow::Row(row),
                Named::Static | Named::Range => AskedRow::Static,
            });
            match plan.conditions() {
                PlannedConditions::Columns(conditions) => {
                    if let Some(asked) = &mut asked {
                        asked.extend(conditions.iter().map(|c| c.column.id));
                    }
                }
                _ => asked = None,
            }
        }
        let Gathered { mut statics, mut rows } = gathered;
        for condition in rows.iter_mut().map(|(_, condition)| condition).chain(&mut statics) {
            if let RowCondition::Columns(conditions) = condition {
                condition_order::order(conditions, &table);
            }
        }
        let comparator = first.shape().clustering();
        rows.sort_by(|(a, _), (b, _)| comparator.compare(a, b));
        let (static_columns, regular_columns) = columns_to_read(&table, statements);
        let key = key.unwrap_or_default();
        let read = ReadOfRows { rows: &rows, statics: &static_columns, regulars: &regular_columns };
        let command = read.command(&table, &key, read_at);
        let shown = shown(&table, asked.as_deref(), is_batch);
        Ok(BoundCas {
            table,
            key,
            statics,
            rows,
            static_columns,
            regular_columns,
            shown,
            asked_rows,
            command,
        })
    }

    /// Appends the writes of the statements at the timestamp of a ballot: one encoded mutation,
    /// which is empty when all values are unset. `lists` has the lists that were read.
    ///
    /// # Errors
    /// The errors of a write of these values; a list element that does not exist. With Cassandra's
    /// words.
    pub fn bind_writes(
        &self,
        statements: &[CasStatement<'_>],
        options: &ExecuteOptions<'_>,
        lists: &FoundLists,
        ballot: TimestampMicros,
    ) -> Result<Vec<u8>, PlanError> {
        let mut out = Vec::new();
        let mut scratch = options.uuids.take_scratch();
        let limits = statements.iter().map(|(plan, _)| plan.mutation_bytes_max());
        let bytes_max = limits.max().unwrap_or(usize::MAX);
        let write = BatchWrite { options, stamp: Stamp::Ballot(ballot), bytes_max };
        let written = bind_into(statements, &write, lists, &mut scratch, &mut out);
        if written.is_ok() && out.is_empty() {
            scratch.clear();
            scratch.extend_from_slice(&self.key);
            let nothing = PendingUpdate { key: 0..scratch.len(), ..PendingUpdate::default() };
            encode_update(&self.table, &nothing, &scratch, &mut out);
        }
        options.uuids.give_scratch(scratch);
        written.map(|_| out)
    }

    /// Returns the read: rows of one partition.
    pub fn read(&self) -> &ReadCommand {
        &self.command
    }

    /// Returns the maximum number of rows that the read needs. With conditions on the static row
    /// alone, the first row distinguishes a partition without static content from a missing one.
    pub fn rows_wanted(&self) -> usize {
        if self.rows.is_empty() { 1 } else { usize::MAX }
    }

    /// The table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The partition's token.
    pub fn token(&self) -> Token {
        token_of(&self.key)
    }
}

/// Static and regular columns that are read. For rows (or the static row) that are written these
/// are all of them, because some columns do not show if a row exists. Source: `columnsToRead`.
fn columns_to_read(
    table: &Table,
    statements: &[CasStatement<'_>],
) -> (Vec<ColumnId>, Vec<ColumnId>) {
    let mut looked_at = Vec::new();
    let (mut all_statics, mut all_regulars) = (false, false);
    for (plan, _) in statements {
        all_regulars |= plan.updates_rows();
        if plan.has_conditions() {
            all_statics |= plan.updates_statics();
            looked_at.extend(plan.looks_at());
        }
    }
    let some = |columns: &[Column], all: bool| {
        columns.iter().map(|c| c.id).filter(|id| all || looked_at.contains(id)).collect()
    };
    (some(table.statics(), all_statics), some(table.regulars(), all_regulars))
}

/// The columns of a negative answer; `asked` is `None` for all. Source: `buildCasFailureResultSet`.
fn shown(table: &Table, asked: Option<&[ColumnId]>, is_batch: bool) -> Vec<Column> {
    let Some(asked) = asked else {
        return table.visible().map(|(_, column)| column.clone()).collect();
    };
    let mut shown: Vec<Column> = Vec::new();
    if is_batch {
        shown.extend(table.partition_key().iter().chain(table.clustering()).cloned());
    }
    for id in asked {
        if let Some(column) = table.column_by_id(*id)
            && !shown.iter().any(|c| c.id == *id)
        {
            shown.push(column.clone());
        }
    }
    shown
}
