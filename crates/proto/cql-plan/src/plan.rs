//! A parsed statement resolved against a schema: [`plan`] and what it gives.
//!
//! Owns: the [`Plan`] and its kinds, the typed list of bind markers ([`Binds`]), what planning and
//! binding are told from outside ([`PlanContext`], [`ExecuteOptions`], [`UuidSource`]).
//! Never: IO, clocks, randomness of its own; a plan is immutable and shared.

use std::borrow::Cow;
use std::sync::Arc;

use cql_syntax::ast::{Describe, QualifiedName, Statement, StatementKind};
use schema::{Schema, Table, TableKind};
use stdx::{DeletionSeconds, TableId, TimestampMicros, WallMicros};
use types::CqlType;

use crate::auth::AuthPlan;
use crate::batch::{self, BatchPlan};
use crate::ddl::{DdlPlan, keyspace_of};
use crate::error::PlanError;
use crate::functions::user::{Routine, UserFunctions};
use crate::functions::{CallSite, FunctionScope};
pub use crate::functions::{EvalEnv, UuidSource};
use crate::guardrails::Watch;
use crate::modify::{self, ModifyPlan};
use crate::select::{self, SelectPlan};
use crate::system::is_log_table;
use crate::term::{PlannedCall, Receiver};

/// Limits that plans enforce, from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanLimits {
    /// A batch of more bytes is warned about (`batch_size_warn_threshold`, 5 KiB).
    pub batch_bytes_warn: usize,
    /// A batch of more bytes is refused (`batch_size_fail_threshold`, 50 KiB).
    pub batch_bytes_fail: usize,
    /// An unlogged batch over more partitions is warned about
    /// (`unlogged_batch_across_partitions_warn_threshold`, 10).
    pub unlogged_batch_partitions_warn: usize,
    /// Last second at which what is written may expire: what this node and the others can keep in
    /// their files. 2038-01-19T03:14:06Z unless set.
    pub expiry_max: DeletionSeconds,
    /// A statement that writes more bytes is refused before its mutations are built
    /// (`max_mutation_size`, 16 MiB).
    pub mutation_bytes_max: usize,
}

impl Default for PlanLimits {
    fn default() -> Self {
        PlanLimits {
            batch_bytes_warn: 5 * 1024,
            batch_bytes_fail: 50 * 1024,
            unlogged_batch_partitions_warn: 10,
            expiry_max: DeletionSeconds::MAX_SIGNED,
            mutation_bytes_max: 16 << 20,
        }
    }
}

/// What planning is told beside the statement.
#[derive(Clone, Copy)]
pub struct PlanContext<'a> {
    /// The schema names are resolved in.
    pub schema: &'a Arc<Schema>,
    /// The keyspace in use, for unqualified names.
    pub keyspace: Option<&'a str>,
    /// Limits of the configuration.
    pub limits: &'a PlanLimits,
    /// What the timestamp literal `'now'` means; as in Cassandra it is fixed at PREPARE.
    pub now: WallMicros,
    /// Users' functions; `None`: they are switched off.
    pub functions: Option<&'a UserFunctions>,
}

impl<'a> PlanContext<'a> {
    /// Where users' functions are looked up.
    pub(crate) fn function_scope(&self) -> FunctionScope<'a> {
        FunctionScope { schema: self.schema, functions: self.functions }
    }

    /// Where a call stands that is about a table, if any.
    pub(crate) fn call_site<'b>(&self, keyspace: &'b str, table: Option<&'b Table>) -> CallSite<'b>
    where
        'a: 'b,
    {
        CallSite { scope: self.function_scope(), keyspace, table }
    }

    /// The table a name means.
    ///
    /// # Errors
    /// No keyspace given nor in use; keyspace or table unknown.
    pub fn table(&self, name: &QualifiedName) -> Result<&'a Arc<Table>, PlanError> {
        let keyspace = keyspace_of(name, self.keyspace)?;
        let Some(found) = self.schema.keyspace(&keyspace) else {
            return Err(PlanError::invalid(format!("keyspace {keyspace} does not exist")));
        };
        found
            .tables
            .get(name.name.text.as_str())
            .ok_or_else(|| PlanError::invalid(format!("table {} does not exist", name.name.text)))
    }
}

/// One bind marker as PREPARED metadata shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindSpec {
    /// Keyspace of the receiver.
    pub keyspace: Arc<str>,
    /// Table of the receiver.
    pub table: Arc<str>,
    /// Name of the marker, else of its receiver.
    pub name: Arc<str>,
    /// Type of the values.
    pub ty: CqlType,
}

/// The bind markers of one statement while it is being planned.
pub struct Binds {
    markers: Vec<BindSlot>,
    /// Calls of functions that give another result each time, in the order in which they can be evaluated.
    calls: Vec<PlannedCall>,
}

struct BindSlot {
    /// `:name`.
    name: Option<Arc<str>>,
    /// The receiver's own name, which tells partition-key columns even behind `:name`.
    target: Option<Arc<str>>,
    spec: Option<BindSpec>,
}

impl Binds {
    /// No receiver known yet. `markers` is [`Statement::bind_markers`].
    pub fn new(markers: &[Option<String>]) -> Binds {
        let slot = |name: &Option<String>| BindSlot {
            name: name.as_deref().map(Arc::from),
            target: None,
            spec: None,
        };
        Binds { markers: markers.iter().map(slot).collect(), calls: Vec::new() }
    }

    /// Notes a call whose function gives another result each time; the slot of its result, which is behind the
    /// values of all markers. `None` when there are too many: then it is evaluated wherever it is needed.
    pub(crate) fn add_call(&mut self, call: &PlannedCall) -> Option<u16> {
        let slot = u16::try_from(self.markers.len().saturating_add(self.calls.len())).ok()?;
        self.calls.push(PlannedCall { slot: None, ..call.clone() });
        Some(slot)
    }

    /// The calls that were noted.
    pub(crate) fn take_calls(&mut self) -> Vec<PlannedCall> {
        std::mem::take(&mut self.calls)
    }

    /// Number of markers.
    pub(crate) fn len(&self) -> usize {
        self.markers.len()
    }

    /// Says what a marker is bound to. A marker stands at one place of the statement, so this is
    /// called once per index; an index out of range is ignored.
    pub fn set(&mut self, index: usize, receiver: &Receiver<'_>) {
        let Some(slot) = self.markers.get_mut(index) else { return };
        slot.target = Some(receiver.name.clone());
        slot.spec = Some(BindSpec {
            keyspace: Arc::from(receiver.keyspace),
            table: Arc::from(receiver.table),
            name: slot.name.clone().unwrap_or_else(|| receiver.name.clone()),
            ty: receiver.ty.clone(),
        });
    }

    /// For each partition-key column the index of the marker that is its value; `None` unless all
    /// have one. Source: `VariableSpecifications.getPartitionKeyBindIndexes`.
    pub fn partition_key_indices(&self, table: &Table) -> Option<Vec<u16>> {
        let position = |column: &schema::Column| {
            let at = self.markers.iter().rposition(|m| m.target.as_ref() == Some(&column.name))?;
            u16::try_from(at).ok()
        };
        table.partition_key().iter().map(position).collect()
    }

    /// The typed markers in order.
    ///
    /// # Errors
    /// A marker that no receiver was found for.
    pub fn finish(self) -> Result<Vec<BindSpec>, PlanError> {
        let untyped = || PlanError::invalid("a bind marker's type cannot be told");
        self.markers.into_iter().map(|m| m.spec.ok_or_else(untyped)).collect()
    }
}

/// One statement, resolved, validated and typed. Immutable; shared between executions.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What to do.
    pub kind: PlanKind,
    /// The bind markers in order.
    pub binds: Vec<BindSpec>,
    /// Tables and their versions that must be unchanged for the plan to stay valid.
    pub tables: Vec<(TableId, u64)>,
    /// See [`Plan::pk_bind_indices`].
    pub partition_key_binds: Option<Vec<u16>>,
    /// Calls of functions such as `uuid()`, whose results differ; see [`Plan::evaluate_calls`].
    pub calls: Vec<PlannedCall>,
    /// Users' functions and aggregates that it calls.
    pub functions: Vec<Routine>,
    /// Users' functions that the masks of its columns call, for which nobody needs a permission.
    pub masks: Vec<Routine>,
}

impl Plan {
    /// A plan that touches no table and has no markers.
    pub fn simple(kind: PlanKind) -> Plan {
        Plan {
            kind,
            binds: Vec::new(),
            tables: Vec::new(),
            partition_key_binds: None,
            calls: Vec::new(),
            functions: Vec::new(),
            masks: Vec::new(),
        }
    }

    /// A plan of one table.
    ///
    /// # Errors
    /// A marker without receiver.
    pub fn of_table(kind: PlanKind, mut binds: Binds, table: &Table) -> Result<Plan, PlanError> {
        Ok(Plan {
            kind,
            calls: binds.take_calls(),
            partition_key_binds: binds.partition_key_indices(table),
            binds: binds.finish()?,
            tables: vec![(table.id, table.version)],
            functions: Vec::new(),
            masks: Vec::new(),
        })
    }

    /// For the PREPARED response: per partition-key column the index of its bind marker.
    pub fn pk_bind_indices(&self) -> Option<&[u16]> {
        self.partition_key_binds.as_deref()
    }

    /// Whether every table and function is still as it was when the plan was made.
    pub fn is_valid_for(&self, schema: &Schema) -> bool {
        self.tables
            .iter()
            .all(|(id, version)| schema.table_by_id(*id).is_some_and(|t| t.version == *version))
            && self.functions.iter().chain(&self.masks).all(|function| function.is_in(schema))
    }

    /// The results of the calls whose functions give another one each time (`uuid()`, `now()`), to stand behind
    /// the values of the markers. An execution that binds a statement more than once, as a conditional one does,
    /// or that has another node carry it out, evaluates them once, before anything else: with them among the
    /// values no call is evaluated again. `None`: there are no such calls, or they are among the values already.
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

/// The values of markers, and behind them the results of [`Plan::evaluate_calls`].
pub fn with_results<'v>(
    values: &[BoundValue<'v>],
    results: &'v [Option<Vec<u8>>],
) -> Vec<BoundValue<'v>> {
    let result = |result: &'v Option<Vec<u8>>| match result {
        Some(bytes) => BoundValue::Bytes(bytes),
        None => BoundValue::Null,
    };
    values.iter().copied().chain(results.iter().map(result)).collect()
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
    /// SELECT.
    Select(Box<SelectPlan>),
    /// BEGIN BATCH.
    Batch(BatchPlan),
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

/// One bound value as it came on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundValue<'a> {
    /// Length -1.
    Null,
    /// Length -2 (protocol v4 on): what it would set stays as it is.
    Unset,
    /// Anything else.
    Bytes(&'a [u8]),
}

/// What one execution is told.
#[derive(Clone, Copy, Debug)]
pub struct ExecuteOptions<'a> {
    /// When it is, for what expires: the client's time in seconds, else the wall clock.
    pub now: WallMicros,
    /// Wall clock of the coordinator, for UUIDs and functions of the time: whatever the client says of
    /// the time, as what a shard makes of it would go on from there for everybody.
    pub clock: WallMicros,
    /// The client's timestamp, else the coordinator's.
    pub default_timestamp: TimestampMicros,
    /// Rows per page; `None` or 0 = no paging.
    pub page_size: Option<u32>,
    /// Where the last page ended.
    pub paging_state: Option<&'a [u8]>,
    /// Native protocol version of the connection.
    pub protocol_version: u8,
    /// The shard's maker of UUIDs.
    pub uuids: &'a UuidSource,
    /// Limits for an ordinary user.
    pub watch: Option<&'a Watch>,
}

impl<'a> ExecuteOptions<'a> {
    /// What terms need of it.
    pub fn env(&self) -> BindEnv<'a> {
        let ExecuteOptions { now, clock, uuids, protocol_version, watch, .. } = *self;
        BindEnv { eval: EvalEnv { now, clock, uuids, protocol_version }, watch }
    }
}

/// What terms are told when they are bound.
#[derive(Clone, Copy, Debug)]
pub struct BindEnv<'a> {
    /// For functions.
    pub eval: EvalEnv<'a>,
    /// Limits for an ordinary user.
    pub watch: Option<&'a Watch>,
}

impl<'a> BindEnv<'a> {
    /// Of constants, which are evaluated while a statement is planned.
    pub(crate) fn of_constants(now: WallMicros, uuids: &'a UuidSource) -> BindEnv<'a> {
        BindEnv { eval: EvalEnv::of_constants(now, uuids), watch: None }
    }
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
    plan.functions = functions.take_used();
    plan.masks = functions.take_masks();
    Ok(plan)
}

fn plan_kind(statement: &Statement, cx: &PlanContext<'_>) -> Result<Plan, PlanError> {
    if let Some(ddl) = DdlPlan::new(&statement.kind, cx.keyspace) {
        return Ok(Plan::simple(PlanKind::Ddl(ddl?)));
    }
    if let Some(auth) = AuthPlan::new(&statement.kind, cx.keyspace) {
        return Ok(Plan::simple(PlanKind::Auth(auth?)));
    }
    match &statement.kind {
        StatementKind::Insert(s) => modify::plan_insert(s, &statement.bind_markers, cx),
        StatementKind::Update(s) => modify::plan_update(s, &statement.bind_markers, cx),
        StatementKind::Delete(s) => modify::plan_delete(s, &statement.bind_markers, cx),
        StatementKind::Batch(s) => batch::plan_batch(s, &statement.bind_markers, cx),
        StatementKind::Select(s) => select::plan_select(s, statement, cx),
        StatementKind::Use(s) => {
            let name = &s.keyspace.text;
            if cx.schema.keyspace(name).is_none() {
                return Err(PlanError::invalid(format!("Keyspace '{name}' does not exist")));
            }
            Ok(Plan::simple(PlanKind::Use(name.clone())))
        }
        StatementKind::Describe(s) => Ok(Plan::simple(PlanKind::Describe(
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
            Ok(Plan {
                tables: vec![(table.id, table.version)],
                ..Plan::simple(PlanKind::Truncate(TruncatePlan { table: table.clone() }))
            })
        }
        other => Err(PlanError::unsupported(other.name())),
    }
}

/// Refuses to change the contents of keyspaces that only the node itself writes. Cassandra takes
/// such statements from everybody who may, and does not start afterwards.
pub(crate) fn check_not_system(table: &Table) -> Result<(), PlanError> {
    if matches!(&*table.keyspace, "system" | "system_schema") {
        return Err(PlanError::invalid(format!(
            "{} keyspace is not user-modifiable.",
            table.keyspace
        )));
    }
    if crate::auth::is_computed(table) {
        return Err(PlanError::invalid(format!(
            "{} is made of the cluster's metadata: change it by CREATE ROLE, GRANT and the like",
            full_name(table)
        )));
    }
    Ok(())
}

/// `keyspace.table` as Cassandra's `TableMetadata.toString` gives it.
pub(crate) fn full_name(table: &Table) -> String {
    format!(
        "{}.{}",
        types::name::quote_identifier(&table.keyspace),
        types::name::quote_identifier(&table.name)
    )
}

/// What a term came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound<'v> {
    /// Null.
    Null,
    /// Nothing was given.
    Unset,
    /// A value, valid for its type.
    Value(Cow<'v, [u8]>),
}

impl<'v> Bound<'v> {
    /// The value's bytes; `None` for null and unset.
    pub fn value(&self) -> Option<&[u8]> {
        match self {
            Bound::Value(bytes) => Some(bytes),
            Bound::Null | Bound::Unset => None,
        }
    }

    pub(crate) fn owned(bytes: Option<Vec<u8>>) -> Bound<'v> {
        bytes.map_or(Bound::Null, |bytes| Bound::Value(Cow::Owned(bytes)))
    }
}
