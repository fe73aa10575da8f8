//! A parsed statement resolved against a schema: [`plan`] and its result.
//!
//! Owns: the [`Plan`] and its kinds. External inputs of planning and binding are in [`crate::context`] and
//! [`crate::values`], the bind markers in [`crate::term`]. Never: IO, clocks, randomness of its own; a plan is
//! immutable and shared.

use std::sync::Arc;

use cql_syntax::ast::{Describe, Statement, StatementKind};
use schema::{Schema, Table, TableKind};
use stdx::TableId;

use crate::auth::AuthPlan;
use crate::batch::{self, BatchPlan};
use crate::ddl::DdlPlan;
use crate::error::PlanError;
use crate::functions::user::Routine;
use crate::modify::{self, ModifyPlan};
use crate::select::{self, SelectPlan};
use crate::tables::{check_not_system, full_name, is_log_table};
use crate::term::PlannedCall;

pub use crate::context::{PlanContext, PlanLimits};
pub use crate::functions::{EvalEnv, UuidSource};
pub use crate::term::{BindSpec, Binds};
pub use crate::values::{BindEnv, Bound, BoundValue, ExecuteOptions, with_results};

/// One statement, resolved, validated and typed. Immutable; shared between executions.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Kind of the statement, with its plan.
    pub kind: PlanKind,
    /// Dependencies of the plan.
    pub inputs: PlanInputs,
}

/// Dependencies of a plan, whatever its kind: values, tables, functions.
#[derive(Clone, Debug, Default)]
pub struct PlanInputs {
    /// The bind markers in order.
    pub binds: Vec<BindSpec>,
    /// Tables and their versions that must be unchanged for the plan to stay valid.
    pub tables: Vec<(TableId, u64)>,
    /// See [`PlanInputs::pk_bind_indices`].
    pub partition_key_binds: Option<Vec<u16>>,
    /// Calls of functions such as `uuid()`, whose results differ; see [`PlanInputs::evaluate_calls`].
    pub calls: Vec<PlannedCall>,
    /// Users' functions and aggregates that it calls.
    pub functions: Vec<Routine>,
    /// Users' functions that the masks of its columns call; no permission is needed for them.
    pub masks: Vec<Routine>,
}

impl Plan {
    /// A plan that touches no table and has no markers.
    fn of_command(plan: CommandPlan) -> Plan {
        Plan { kind: PlanKind::Command(plan), inputs: PlanInputs::default() }
    }

    /// A plan of one table.
    ///
    /// # Errors
    /// A marker without receiver.
    pub fn of_table(kind: PlanKind, mut binds: Binds, table: &Table) -> Result<Plan, PlanError> {
        let inputs = PlanInputs {
            calls: binds.take_calls(),
            partition_key_binds: binds.partition_key_indices(table),
            binds: binds.finish()?,
            tables: vec![(table.id, table.version)],
            functions: Vec::new(),
            masks: Vec::new(),
        };
        Ok(Plan { kind, inputs })
    }

    fn of_modification(plan: ModifyPlan, binds: Binds) -> Result<Plan, PlanError> {
        plan.check_not_virtual()?;
        let table = plan.table().clone();
        Plan::of_table(PlanKind::Modify(plan), binds, &table)
    }

    fn of_batch(plan: BatchPlan, mut binds: Binds) -> Result<Plan, PlanError> {
        let statements = plan.statements();
        let mut tables: Vec<_> =
            statements.iter().map(|s| (s.table().id, s.table().version)).collect();
        tables.sort_unstable();
        tables.dedup();
        let partition_key_binds = match (tables.as_slice(), statements.first()) {
            ([_], Some(first)) => binds.partition_key_indices(first.table()),
            _ => None,
        };
        let inputs = PlanInputs {
            calls: binds.take_calls(),
            binds: binds.finish()?,
            tables,
            partition_key_binds,
            functions: Vec::new(),
            masks: Vec::new(),
        };
        Ok(Plan { kind: PlanKind::Batch(plan), inputs })
    }
}

impl PlanInputs {
    /// For the PREPARED response: per partition-key column the index of its bind marker.
    pub fn pk_bind_indices(&self) -> Option<&[u16]> {
        self.partition_key_binds.as_deref()
    }

    /// Returns true if every table and function is still the one that the plan was built for.
    pub fn is_valid_for(&self, schema: &Schema) -> bool {
        self.tables
            .iter()
            .all(|(id, version)| schema.table_by_id(*id).is_some_and(|t| t.version == *version))
            && self.functions.iter().chain(&self.masks).all(|function| function.is_in(schema))
    }

    /// Evaluates the calls whose functions give another result each time (`uuid()`, `now()`); the
    /// results are appended to the values of the markers. An execution that binds a statement more
    /// than once, as a conditional one does, or that forwards it to another node, evaluates them
    /// once, before anything else. With the results among the values no call is evaluated again.
    /// `None`: there are no such calls, or their results are among the values already.
    ///
    /// # Errors
    /// A function fails; an argument is unset.
    pub fn evaluate_calls(
        &self,
        values: &[BoundValue<'_>],
        options: &ExecuteOptions<'_>,
    ) -> Result<Option<Vec<Option<Vec<u8>>>>, PlanError> {
        if self.calls.is_empty() || values.len() != self.binds.len() {
            return Ok(None);
        }
        let env = options.env();
        let mut results: Vec<Option<Vec<u8>>> = Vec::with_capacity(self.calls.len());
        for call in &self.calls {
            // An argument may be another of these calls, which stands before.
            let known = with_results(values, &results);
            let result = call.bind(&known, &env)?;
            results.push(result);
        }
        Ok(Some(results))
    }

    /// Most values that an execution may have: those of markers and the results of calls.
    pub fn value_count_max(&self) -> usize {
        self.binds.len().saturating_add(self.calls.len())
    }

    /// Checks the number of values given for the markers.
    ///
    /// # Errors
    /// Too few or too many, in Cassandra's words.
    pub fn check_value_count(&self, given: usize) -> Result<(), PlanError> {
        let expected = self.binds.len();
        if given == expected {
            return Ok(());
        }
        Err(PlanError::invalid(format!(
            "there were {expected} markers(?) in CQL but {given} bound variables"
        )))
    }
}

/// The kinds of plans.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a box would cost each write that is not prepared an allocation"
)]
pub enum PlanKind {
    /// INSERT, UPDATE, DELETE.
    Modify(ModifyPlan),
    /// SELECT; boxed, as it is large.
    Select(Box<SelectPlan>),
    /// BEGIN BATCH.
    Batch(BatchPlan),
    /// Everything else.
    Command(CommandPlan),
}

/// A statement that neither reads nor writes rows.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "smaller than the plan of a write, with which it shares its place"
)]
pub enum CommandPlan {
    /// CREATE, ALTER, DROP.
    Ddl(DdlPlan),
    /// USE, with the keyspace, which exists.
    Use(String),
    /// TRUNCATE.
    Truncate(TruncatePlan),
    /// Roles and permissions.
    Auth(AuthPlan),
    /// DESCRIBE, with the keyspace in use where it was planned.
    Describe(Box<Describe>, Option<String>),
}

/// TRUNCATE of one table.
#[derive(Clone, Debug)]
pub struct TruncatePlan {
    /// The table.
    pub table: Arc<Table>,
}

/// Resolves, validates and types one parsed statement.
///
/// # Errors
/// Everything Cassandra refuses at PREPARE, in its words; statements that are not supported, by
/// name.
pub fn plan(statement: &Statement, cx: &PlanContext<'_>) -> Result<Plan, PlanError> {
    let Some(functions) = cx.functions else { return plan_kind(statement, cx) };
    functions.begin();
    let mut plan = plan_kind(statement, cx)?;
    plan.inputs.functions = functions.take_used();
    plan.inputs.masks = functions.take_masks();
    Ok(plan)
}

fn plan_kind(statement: &Statement, cx: &PlanContext<'_>) -> Result<Plan, PlanError> {
    if let Some(ddl) = DdlPlan::new(&statement.kind, cx.keyspace) {
        return Ok(Plan::of_command(CommandPlan::Ddl(ddl?)));
    }
    if let Some(auth) = AuthPlan::new(&statement.kind, cx.keyspace) {
        return Ok(Plan::of_command(CommandPlan::Auth(auth?)));
    }
    let mut binds = Binds::new(&statement.bind_markers);
    match &statement.kind {
        StatementKind::Insert(s) => {
            Plan::of_modification(modify::plan_insert(s, cx, &mut binds)?, binds)
        }
        StatementKind::Update(s) => {
            Plan::of_modification(modify::plan_update(s, cx, &mut binds)?, binds)
        }
        StatementKind::Delete(s) => {
            Plan::of_modification(modify::plan_delete(s, cx, &mut binds)?, binds)
        }
        StatementKind::Batch(s) => Plan::of_batch(batch::plan_batch(s, cx, &mut binds)?, binds),
        StatementKind::Select(s) => {
            let table = cx.table(&s.table)?;
            let plan = select::plan_select(s, statement, table, cx, &mut binds)?;
            Plan::of_table(PlanKind::Select(Box::new(plan)), binds, table)
        }
        StatementKind::Use(s) => {
            let name = &s.keyspace.text;
            if cx.schema.keyspace(name).is_none() {
                return Err(PlanError::invalid(format!("Keyspace '{name}' does not exist")));
            }
            Ok(Plan::of_command(CommandPlan::Use(name.clone())))
        }
        StatementKind::Describe(s) => Ok(Plan::of_command(CommandPlan::Describe(
            Box::new(s.clone()),
            cx.keyspace.map(str::to_owned),
        ))),
        StatementKind::Truncate(s) => {
            let table = cx.table(&s.table)?;
            check_not_system(table)?;
            if table.kind == TableKind::Virtual && !is_log_table(table) {
                return Err(PlanError::invalid(
                    "Truncation is not supported by table ".to_owned() + &full_name(table),
                ));
            }
            let tables = vec![(table.id, table.version)];
            Ok(Plan {
                kind: PlanKind::Command(CommandPlan::Truncate(TruncatePlan {
                    table: table.clone(),
                })),
                inputs: PlanInputs { tables, ..PlanInputs::default() },
            })
        }
        other => Err(PlanError::unsupported(other.name())),
    }
}
