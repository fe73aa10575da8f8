//! INSERT, UPDATE and DELETE: from syntax to a plan that binds values into mutations.
//!
//! Owns: [`ModifyPlan`] and its construction. `clause` has the WHERE clause of modifications,
//! `operations` the assignments and deletions, `write` the binding, with the partitions and rows in
//! `keys` and the writes to them in `rows`. `lists` has the reads that elements of lists need,
//! `named` the one row of a conditional statement. Never: reads itself, decides conditions
//! ([`crate::cas`]).
//!
//! Invariants: INV-modify-1: operations of a plan ascend by column id, each id once.
//! INV-modify-2: a statement that reads nothing writes the same row content to every row it
//! names, so it is packed once per execution.
//!
//! Reading order: this file, `clause`, `operations`, `write`, `keys`, `rows`, `complex`, `lists`, `named`.
//! Source: `cql3.statements.ModificationStatement` and its children.

mod attributes;
mod clause;
mod compact;
mod complex;
mod keys;
mod lists;
mod named;
mod operations;
mod rows;
mod term_sizes;
mod write;

use std::sync::Arc;

use cql_syntax::ast::{
    Delete, Insert, InsertValues, JsonValue, QualifiedName, Relation, Term, Update, Using,
};
use data::TableShape;
use schema::{Column, ColumnKind, Table, TableKind};
use stdx::{DeletionSeconds, TimestampMicros};
use types::{CqlType, Duration};

use crate::conditions::{PlannedConditions, custom_timestamp};
use crate::context::PlanContext;
use crate::error::PlanError;
use crate::functions::json::{JsonColumn, columns_of};
use crate::tables::{check_not_system, existing_column, full_name};
use crate::term::Binds;
use crate::term::{PlannedTerm, Receiver, plan_term};
use crate::values::{BindEnv, Bound, BoundValue, ExecuteOptions};

pub(crate) use attributes::Stamp;
pub use lists::{FoundLists, ListRead, RowPlace};
pub(crate) use named::Named;
pub(crate) use rows::age_row;
pub use write::BoundMutation;
pub(crate) use write::{
    Update as PendingUpdate, encode_update, slice as scratch_slice, without_condition,
};

use clause::WhereClause;
use keys::NamedRows;
use operations::{ColumnOperations, Operations};

/// Kind of a modification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the statement")]
pub enum ModifyKind {
    Insert,
    Update,
    Delete,
}

impl ModifyKind {
    /// The statement's keyword.
    pub fn name(self) -> &'static str {
        match self {
            ModifyKind::Insert => "INSERT",
            ModifyKind::Update => "UPDATE",
            ModifyKind::Delete => "DELETE",
        }
    }
}

/// One INSERT, UPDATE or DELETE, resolved and typed.
#[derive(Clone, Debug)]
pub struct ModifyPlan {
    kind: ModifyKind,
    rows: NamedRows,
    statics: Vec<ColumnOperations>,
    regulars: Vec<ColumnOperations>,
    attributes: Attributes,
    conditions: PlannedConditions,
    json: Option<JsonDocument>,
    /// Some operation needs the list (or value) as it is.
    needs_read: bool,
    /// That, or it is on counters.
    takes_detour: bool,
}

/// A document of INSERT JSON that comes with the values. The values of the columns are taken from
/// it and appended to the bound values, where the plan's terms expect them.
#[derive(Clone, Debug)]
struct JsonDocument {
    document: PlannedTerm,
    /// Index of the first column's value: the number of markers of the statement.
    base: usize,
    default_unset: bool,
}

impl ModifyPlan {
    /// The table it writes.
    pub fn table(&self) -> &Arc<Table> {
        &self.rows.table
    }

    /// Returns the kind of the statement.
    pub fn kind(&self) -> ModifyKind {
        self.kind
    }

    /// The compiled shape of the table.
    pub(crate) fn shape(&self) -> &TableShape {
        &self.rows.shape
    }

    /// Returns true if the statement writes to a table with counters. Bound values are then
    /// increments, which a leader turns into counts ([`data::counter`]).
    #[inline]
    pub fn is_counter(&self) -> bool {
        self.rows.shape.has_counters()
    }

    /// Returns true if the statement has its own timestamp.
    pub fn has_timestamp(&self) -> bool {
        self.attributes.timestamp.is_some()
    }

    /// Returns the value of `USING TIMESTAMP`; `None` if the clause is missing or unset.
    ///
    /// # Errors
    /// The value is null or out of bounds.
    pub fn timestamp(
        &self,
        values: &[BoundValue<'_>],
        options: &ExecuteOptions<'_>,
    ) -> Result<Option<TimestampMicros>, PlanError> {
        self.attributes.own_timestamp(values, &options.env())
    }

    /// Returns true if the statement has IF. Such a statement is executed by [`crate::cas`].
    #[inline]
    pub fn has_conditions(&self) -> bool {
        !self.conditions.is_none()
    }

    /// Most bytes that it writes.
    pub(crate) fn mutation_bytes_max(&self) -> usize {
        self.attributes.mutation_bytes_max
    }

    pub(crate) fn is_virtual(&self) -> bool {
        self.rows.table.kind == TableKind::Virtual
    }

    /// Nothing is written to virtual tables. Source: `ModificationStatement.validate`.
    pub(crate) fn check_not_virtual(&self) -> Result<(), PlanError> {
        if !self.is_virtual() {
            return Ok(());
        }
        let attributes = &self.attributes;
        Err(PlanError::invalid(if attributes.timestamp.is_some() {
            "Custom timestamp is not supported by virtual tables".to_owned()
        } else if attributes.ttl.is_some() {
            "Expiring columns are not supported by virtual tables".to_owned()
        } else if self.has_conditions() {
            "Conditional updates are not supported by virtual tables".to_owned()
        } else {
            format!("Modification is not supported by table {}", full_name(&self.rows.table))
        }))
    }

    pub(crate) fn conditions(&self) -> &PlannedConditions {
        &self.conditions
    }

    /// Returns the value of `USING TIMEOUT`, in nanoseconds.
    ///
    /// # Errors
    /// The value is null, negative, or has months or days.
    pub fn timeout_nanos(
        &self,
        values: &[BoundValue<'_>],
        options: &ExecuteOptions<'_>,
    ) -> Result<Option<u64>, PlanError> {
        self.attributes.timeout_nanos(values, &options.env())
    }
}

/// `USING …`, typed.
#[derive(Clone, Debug)]
pub(crate) struct Attributes {
    pub(crate) timestamp: Option<PlannedTerm>,
    ttl: Option<PlannedTerm>,
    timeout: Option<PlannedTerm>,
    /// Last second at which a write may expire.
    expiry_max: DeletionSeconds,
    /// Most bytes that a statement writes.
    pub(crate) mutation_bytes_max: usize,
}

impl Attributes {
    /// Types the terms; `table` is empty for a batch.
    pub(crate) fn plan(
        using: &Using,
        keyspace: &str,
        table: &str,
        cx: &PlanContext<'_>,
        binds: &mut Binds,
    ) -> Result<Attributes, PlanError> {
        let mut one = |term: &Option<Term>, name: &str, ty: CqlType| match term {
            None => Ok(None),
            Some(term) => {
                let receiver = Receiver { keyspace, table, name: Arc::from(name), ty };
                plan_term(term, &receiver, cx, binds).map(Some)
            }
        };
        Ok(Attributes {
            timestamp: one(&using.timestamp, "[timestamp]", CqlType::Bigint)?,
            ttl: one(&using.ttl, "[ttl]", CqlType::Int)?,
            timeout: one(&using.timeout, "[timeout]", CqlType::Duration)?,
            expiry_max: cx.limits.expiry_max,
            mutation_bytes_max: cx.limits.mutation_bytes_max,
        })
    }

    pub(crate) fn timeout_nanos(
        &self,
        values: &[BoundValue<'_>],
        env: &BindEnv<'_>,
    ) -> Result<Option<u64>, PlanError> {
        let Some(term) = &self.timeout else { return Ok(None) };
        let bound = term.bind(values, env)?;
        if bound == Bound::Unset {
            return Ok(None);
        }
        let wrong = || PlanError::invalid("invalid value of timeout: a duration of hours or less");
        let bytes = bound.value().ok_or_else(wrong)?;
        let duration = Duration::from_bytes(bytes).map_err(|_| wrong())?;
        if duration.months() != 0 || duration.days() != 0 {
            return Err(wrong());
        }
        u64::try_from(duration.nanos()).map(Some).map_err(|_| wrong())
    }
}

/// The table of a modification. A virtual one is refused after the rest of the statement was
/// checked ([`ModifyPlan::check_not_virtual`]).
fn writable_table<'a>(
    name: &QualifiedName,
    cx: &PlanContext<'a>,
) -> Result<&'a Arc<Table>, PlanError> {
    let table = cx.table(name)?;
    check_not_system(table)?;
    Ok(table)
}

/// INSERT would set what can only be added to.
fn check_insertable(table: &Table) -> Result<(), PlanError> {
    if table.is_counter() {
        return Err(PlanError::invalid(
            "INSERT statements are not allowed on counter tables, use UPDATE instead",
        ));
    }
    Ok(())
}

/// Rejects clauses that statements on counters cannot have. Source: `ModificationStatement`'s
/// constructor and `validate`.
fn check_counter(attributes: &Attributes, conditions: &PlannedConditions) -> Result<(), PlanError> {
    Err(PlanError::invalid(if !conditions.is_none() {
        "Conditional updates are not supported on counter tables"
    } else if attributes.timestamp.is_some() {
        "Cannot provide custom timestamp for counter updates"
    } else if attributes.ttl.is_some() {
        "Cannot provide custom TTL for counter updates"
    } else {
        return Ok(());
    }))
}

fn is_primary_key(column: &Column) -> bool {
    matches!(column.kind, ColumnKind::PartitionKey(_) | ColumnKind::Clustering { .. })
}

/// Plans INSERT.
///
/// # Errors
/// Those of Cassandra's `UpdateStatement.ParsedInsert`.
pub(crate) fn plan_insert(
    insert: &Insert,
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<ModifyPlan, PlanError> {
    let table = writable_table(&insert.table, cx)?;
    let attributes = Attributes::plan(&insert.using, &table.keyspace, &table.name, cx, binds)?;
    let conditions = match insert.if_not_exists {
        true => PlannedConditions::NotExists,
        false => PlannedConditions::None,
    };
    check_insertable(table)?;
    let (columns, values) = match &insert.values {
        InsertValues::Columns { columns, values } => (columns, values),
        InsertValues::Json { value, default_unset } => {
            let unset = *default_unset;
            return insert_json(table, attributes, conditions, value, unset, cx, binds);
        }
    };
    if columns.len() != values.len() {
        return Err(PlanError::invalid("Unmatched column names/values"));
    }
    let repeated = |i: usize, name: &str| columns.iter().skip(i + 1).any(|c| c.text == name);
    if columns.iter().enumerate().any(|(i, c)| repeated(i, &c.text)) {
        return Err(PlanError::invalid("The column names contains duplicates"));
    }
    let mut clause = WhereClause::new(table, ModifyKind::Insert);
    let mut operations = Operations::new(table);
    let mut keys = Vec::new();
    for (name, value) in columns.iter().zip(values) {
        let column = existing_column(table, &name.text)?;
        if is_primary_key(column) {
            keys.push((column, value));
        } else {
            operations.set(column, value, cx, binds)?;
        }
    }
    for (column, value) in keys {
        let term = plan_term(value, &Receiver::column(table, column), cx, binds)?;
        clause.equal(column, term)?;
    }
    finish(table, ModifyKind::Insert, clause, operations, attributes, conditions)
}

/// INSERT JSON: as INSERT of every column. A literal document is decoded here, a bound one at every
/// execution ([`JsonDocument`]).
fn insert_json(
    table: &Arc<Table>,
    attributes: Attributes,
    conditions: PlannedConditions,
    value: &JsonValue,
    default_unset: bool,
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<ModifyPlan, PlanError> {
    let columns = table.columns.iter().map(|c| (&*c.name, &c.ty));
    let mut json = None;
    let mut terms = Vec::with_capacity(table.columns.len());
    match value {
        JsonValue::Literal(literal) => {
            for column in columns_of(&literal.raw_text(), columns, cx.now.millis())? {
                terms.push(match column {
                    JsonColumn::Value(bytes) => PlannedTerm::Constant(Arc::from(bytes)),
                    JsonColumn::Missing if default_unset => PlannedTerm::Unset,
                    JsonColumn::Missing | JsonColumn::Null => PlannedTerm::Null,
                });
            }
        }
        JsonValue::Bind(marker) => {
            let receiver = Receiver {
                keyspace: &table.keyspace,
                table: &table.name,
                name: Arc::from("[json]"),
                ty: CqlType::Text,
            };
            let document = PlannedTerm::marker(marker, &receiver, binds)?;
            let base = binds.len();
            for (i, column) in table.columns.iter().enumerate() {
                let index = u16::try_from(base + i).map_err(|_| {
                    PlanError::invalid("a statement has more than 65535 bind markers")
                })?;
                terms.push(PlannedTerm::Bind { index, ty: column.ty.clone() });
            }
            json = Some(JsonDocument { document, base, default_unset });
        }
    }
    let mut clause = WhereClause::new(table, ModifyKind::Insert);
    let mut operations = Operations::new(table);
    for (column, term) in table.columns.iter().zip(terms) {
        if is_primary_key(column) {
            clause.equal(existing_column(table, &column.name)?, term)?;
        } else {
            // Also unset columns, and the hidden value of a compact table: the statement is about
            // every column.
            operations.set_planned(column, term);
        }
    }
    let plan = finish(table, ModifyKind::Insert, clause, operations, attributes, conditions)?;
    Ok(ModifyPlan { json, ..plan })
}

/// Plans UPDATE.
///
/// # Errors
/// Those of Cassandra's `UpdateStatement.ParsedUpdate`.
pub(crate) fn plan_update(
    update: &Update,
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<ModifyPlan, PlanError> {
    let table = writable_table(&update.table, cx)?;
    let attributes = Attributes::plan(&update.using, &table.keyspace, &table.name, cx, binds)?;
    let has_timestamp = attributes.timestamp.is_some();
    let conditions = PlannedConditions::plan(&update.conditions, has_timestamp, table, cx, binds)?;
    let mut operations = Operations::new(table);
    for assignment in &update.assignments {
        let column = existing_column(table, &assignment.column.text)?;
        if is_primary_key(column) {
            return Err(PlanError::invalid(format!(
                "PRIMARY KEY part {} found in SET part",
                column.name
            )));
        }
        let conditional = !conditions.is_none();
        operations.assign(column, &assignment.operation, conditional, cx, binds)?;
    }
    let clause = where_clause(table, ModifyKind::Update, &update.relations, cx, binds)?;
    finish(table, ModifyKind::Update, clause, operations, attributes, conditions)
}

/// Plans DELETE.
///
/// # Errors
/// Those of Cassandra's `DeleteStatement.Parsed`.
pub(crate) fn plan_delete(
    delete: &Delete,
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<ModifyPlan, PlanError> {
    let table = writable_table(&delete.table, cx)?;
    let attributes = Attributes::plan(&delete.using, &table.keyspace, &table.name, cx, binds)?;
    let has_timestamp = attributes.timestamp.is_some();
    let conditions = PlannedConditions::plan(&delete.conditions, has_timestamp, table, cx, binds)?;
    let mut operations = Operations::new(table);
    for target in &delete.targets {
        operations.delete(target, cx, binds)?;
    }
    let clause = where_clause(table, ModifyKind::Delete, &delete.relations, cx, binds)?;
    finish(table, ModifyKind::Delete, clause, operations, attributes, conditions)
}

fn where_clause<'t>(
    table: &'t Table,
    kind: ModifyKind,
    relations: &[Relation],
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<WhereClause<'t>, PlanError> {
    let mut clause = WhereClause::new(table, kind);
    for relation in relations {
        clause.add(relation, cx, binds)?;
    }
    Ok(clause)
}

fn finish<'t>(
    table: &'t Arc<Table>,
    kind: ModifyKind,
    clause: WhereClause<'_>,
    mut operations: Operations<'t>,
    attributes: Attributes,
    conditions: PlannedConditions,
) -> Result<ModifyPlan, PlanError> {
    if kind != ModifyKind::Delete
        && operations.is_empty()
        && let Some(value) = compact::empty_value(table)
    {
        operations.set_planned(value, PlannedTerm::Constant(Arc::from([])));
    }
    let (statics, regulars) = operations.finish()?;
    // A DELETE that names no column is about the whole row.
    let on_regulars = !regulars.is_empty() || (kind == ModifyKind::Delete && statics.is_empty());
    let only_statics = !on_regulars
        && !conditions.on_regulars()
        && (!statics.is_empty() || conditions.on_statics());
    let (key, clustering) = clause.finish(only_statics)?;
    if table.is_counter() {
        check_counter(&attributes, &conditions)?;
    }
    let needs_read = lists::needs_read(&statics) || lists::needs_read(&regulars);
    let plan = ModifyPlan {
        needs_read,
        takes_detour: needs_read || table.is_counter(),
        kind,
        rows: NamedRows {
            table: table.clone(),
            shape: TableShape::for_table(table),
            key,
            clustering,
        },
        statics,
        regulars,
        attributes,
        conditions,
        json: None,
    };
    if plan.has_conditions() {
        if plan.has_timestamp() {
            return Err(custom_timestamp());
        }
        if kind == ModifyKind::Delete && !plan.rows.has_whole_keys() {
            let why = if on_regulars {
                "to delete non static columns"
            } else if plan.conditions.on_regulars() {
                "to use IF condition on non static columns"
            } else {
                return Ok(plan);
            };
            return Err(PlanError::invalid(format!(
                "DELETE statements must restrict all PRIMARY KEY columns with equality relations \
                 in order {why}"
            )));
        }
    }
    Ok(plan)
}

#[cfg(test)]
pub(crate) mod tests;
