//! CREATE, ALTER and DROP of keyspaces, tables and types: statements to schema changes.
//!
//! A plan is made from the statement alone; [`DdlPlan::outcome`] validates it against the schema it
//! will be applied to, so a retry on a newer schema is just another call. Views are refused by name here.

mod alter_table;
mod compact;
mod copy;
mod function;
mod guarded;
mod index;
mod keyspace;
mod mask;
mod missing;
mod names;
mod table;
mod udt;

pub(crate) use index::may_index;
pub use index::{INDEXES_AVAILABLE, IndexSettings};
pub use table::definition as table_definition;

use std::collections::BTreeMap;
use std::sync::Arc;

use cql_syntax::ast::{AlterTableChange, FunctionName, Ident, Property, StatementKind};
use schema::{Keyspace, Schema, SchemaChange};
use stdx::{TableId, Uuid, WallMicros};

use crate::error::PlanError;
use crate::functions::user::UserFunctions;
use crate::guardrails::Watch;
use crate::options;
use crate::system_keyspaces::{REPLICATED_SYSTEM, SYSTEM, VIRTUAL};
pub use crate::tables::keyspace_of;
use crate::tables::no_keyspace;

/// Error of a statement that adds a mask while `dynamic_data_masking_enabled` is false.
pub const MASKING_DISABLED: &str = "Cannot mask columns because dynamic data masking is not enabled. \
                                    You can enable it with the dynamic_data_masking_enabled \
                                    property on cassandra.yaml";

/// Longest keyspace name, as in Cassandra (`SchemaConstants.NAME_LENGTH`).
const KEYSPACE_CHARS_MAX: usize = 48;
/// Longest table name: what leaves room for the id in the name of the table's directory.
const TABLE_CHARS_MAX: usize = 222;

/// A change of the schema, for the answer and the SCHEMA_CHANGE event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaEvent {
    /// Kind of the change.
    pub kind: SchemaEventKind,
    /// To what sort of thing.
    pub target: SchemaEventTarget,
    /// Its keyspace.
    pub keyspace: String,
    /// Its name; empty for a keyspace.
    pub name: String,
}

/// Kind of a schema change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the protocol's words")]
pub enum SchemaEventKind {
    Created,
    Updated,
    Dropped,
}

/// Kind of object that a schema change is about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the protocol's words")]
pub enum SchemaEventTarget {
    Keyspace,
    Table,
    Type,
    /// With the types of its arguments.
    Function(Vec<String>),
    /// With the types of its arguments.
    Aggregate(Vec<String>),
}

/// The result of planning a DDL statement against one schema.
#[derive(Clone, Debug, PartialEq)]
pub struct DdlOutcome {
    /// To be applied in order; empty when IF [NOT] EXISTS makes it a no-op.
    pub changes: Vec<SchemaChange>,
    /// Event to report; `None` when nothing happened.
    pub event: Option<SchemaEvent>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
}

impl DdlOutcome {
    fn nothing() -> DdlOutcome {
        DdlOutcome { changes: Vec::new(), event: None, warnings: Vec::new() }
    }

    fn one(
        change: SchemaChange,
        kind: SchemaEventKind,
        target: SchemaEventTarget,
        keyspace: &str,
        name: &str,
    ) -> DdlOutcome {
        let event =
            SchemaEvent { kind, target, keyspace: keyspace.to_owned(), name: name.to_owned() };
        DdlOutcome { changes: vec![change], event: Some(event), warnings: Vec::new() }
    }

    /// Adds the warnings about the properties, if the statement changed anything.
    fn warned_of(mut self, properties: &[Property]) -> DdlOutcome {
        if !self.changes.is_empty() {
            self.warnings.extend(options::warnings(properties));
        }
        self
    }
}

/// Input of planning beside the statement and the schema.
pub struct DdlContext<'a> {
    /// The schema the change will be applied to.
    pub schema: &'a Schema,
    /// Datacenters of the cluster and how many nodes each has, for NetworkTopologyStrategy.
    pub datacenters: &'a [(&'a str, u32)],
    /// Addresses of nodes that join, leave or move: as long as there are some no keyspace may be
    /// altered, because its data is being moved by the old replication.
    pub moving: &'a [std::net::SocketAddr],
    /// Gives the id of a new table.
    pub new_table_id: &'a mut dyn FnMut() -> Uuid,
    /// Timestamp of dropped columns.
    pub now: WallMicros,
    /// Limits for an ordinary user.
    pub watch: Option<&'a Watch>,
    /// Replication factor of a keyspace that does not specify one (`default_keyspace_rf`).
    pub default_factor: u32,
    /// Compaction of a table whose statement names none (`default_compaction`); `None`: size-tiered.
    pub default_compaction: Option<&'a BTreeMap<String, String>>,
    /// True if ALTER TABLE … DROP COMPACT STORAGE is allowed (`drop_compact_storage_enabled`).
    pub drop_compact_storage: bool,
    /// Users' functions; `None`: they are switched off.
    pub functions: Option<&'a UserFunctions>,
    /// Settings of CREATE INDEX.
    pub indexes: &'a IndexSettings,
}

/// A DDL statement with its keyspace resolved.
#[derive(Clone, Debug)]
pub struct DdlPlan {
    statement: StatementKind,
    keyspace: String,
}

impl DdlPlan {
    /// Takes a DDL statement; `None` for statements of other kinds.
    ///
    /// # Errors
    /// No keyspace in the statement nor in use; a statement that is not supported; a system
    /// keyspace as the target.
    pub fn new(
        statement: &StatementKind,
        session_keyspace: Option<&str>,
    ) -> Option<Result<DdlPlan, PlanError>> {
        let keyspace = match statement {
            StatementKind::CreateKeyspace(s) => Ok(s.keyspace.text.clone()),
            StatementKind::AlterKeyspace(s) => Ok(s.keyspace.text.clone()),
            StatementKind::DropKeyspace(s) => Ok(s.keyspace.text.clone()),
            StatementKind::CreateTable(s) => keyspace_of(&s.table, session_keyspace),
            StatementKind::CopyTable(s) => keyspace_of(&s.source, session_keyspace)
                .and_then(|_| keyspace_of(&s.table, session_keyspace)),
            StatementKind::AlterTable(s) => keyspace_of(&s.table, session_keyspace),
            StatementKind::DropTable(s) => keyspace_of(&s.table, session_keyspace),
            StatementKind::DropTrigger(s) => keyspace_of(&s.table, session_keyspace),
            StatementKind::CreateType(s) => keyspace_of(&s.name, session_keyspace),
            StatementKind::AlterType(s) => keyspace_of(&s.name, session_keyspace),
            StatementKind::DropType(s) => keyspace_of(&s.name, session_keyspace),
            StatementKind::DropIndex(s) => keyspace_of(&s.name, session_keyspace),
            StatementKind::DropView(s) => keyspace_of(&s.view, session_keyspace),
            StatementKind::CreateIndex(s) => keyspace_of(&s.table, session_keyspace),
            StatementKind::CreateView(s) => keyspace_of(&s.view, session_keyspace),
            StatementKind::AlterView(s) => keyspace_of(&s.view, session_keyspace),
            StatementKind::CreateTrigger(s) => keyspace_of(&s.table, session_keyspace),
            StatementKind::CreateFunction(s) => function_keyspace(&s.name, session_keyspace),
            StatementKind::CreateAggregate(s) => function_keyspace(&s.name, session_keyspace),
            StatementKind::DropFunction(s) => function_keyspace(&s.name, session_keyspace),
            StatementKind::DropAggregate(s) => function_keyspace(&s.name, session_keyspace),
            _ => return None,
        };
        Some(keyspace.and_then(|keyspace| {
            check_modifiable(statement, &keyspace)?;
            let mut statement = statement.clone();
            if let (StatementKind::CopyTable(s), Some(session)) = (&mut statement, session_keyspace)
            {
                let span = s.source.name.span;
                let in_use = Ident { text: session.to_owned(), quoted: true, span };
                s.source.keyspace.get_or_insert(in_use);
            }
            Ok(DdlPlan { statement, keyspace })
        }))
    }

    /// The keyspace it works on.
    pub fn keyspace(&self) -> &str {
        &self.keyspace
    }

    /// Returns true if the statement must be rejected while masking is disabled
    /// ([`MASKING_DISABLED`]), before any other check. As in Cassandra, neither ALTER TABLE ADD nor
    /// a statement that removes a mask counts.
    pub fn needs_masking(&self) -> bool {
        match &self.statement {
            StatementKind::CreateTable(s) => s.columns.iter().any(|c| c.mask.is_some()),
            StatementKind::AlterTable(s) => {
                matches!(s.change, AlterTableChange::ColumnMask { mask: Some(_), .. })
            }
            _ => false,
        }
    }

    /// DROP TABLE.
    pub fn drops_table(&self) -> bool {
        matches!(self.statement, StatementKind::DropTable(_))
    }

    /// The error for ordinary users of a statement that only superusers may use. Its spelling is
    /// Cassandra's.
    pub fn refusal_of_others(&self) -> Option<PlanError> {
        let text = match self.statement {
            StatementKind::CreateTrigger(_) => {
                "Only superusers are allowed to perform CREATE TRIGGER queries"
            }
            StatementKind::DropTrigger(_) => {
                "Only superusers are allowed to perfrom DROP TRIGGER queries"
            }
            _ => return None,
        };
        Some(PlanError::unauthorized(text))
    }

    /// The statement.
    pub(crate) fn statement(&self) -> &StatementKind {
        &self.statement
    }

    /// Computes the changes to the given schema.
    ///
    /// # Errors
    /// Everything Cassandra refuses, in its words.
    pub fn outcome(&self, cx: &mut DdlContext<'_>) -> Result<DdlOutcome, PlanError> {
        let outcome = self.changed(cx)?;
        outcome.changes.iter().try_for_each(names::check)?;
        Ok(outcome)
    }

    fn changed(&self, cx: &mut DdlContext<'_>) -> Result<DdlOutcome, PlanError> {
        if !matches!(
            self.statement,
            StatementKind::CreateFunction(_) | StatementKind::CreateAggregate(_)
        ) {
            keyspace::check_name(&self.keyspace)?;
        }
        let allowed = match cx.watch {
            Some(watch) => guarded::check(&self.statement, cx, watch)?,
            None => None,
        };
        match allowed.as_ref().unwrap_or(&self.statement) {
            StatementKind::CreateKeyspace(s) => keyspace::create(s, cx),
            StatementKind::AlterKeyspace(s) => keyspace::alter(s, cx),
            StatementKind::DropKeyspace(s) => keyspace::drop(s, cx),
            StatementKind::CreateTable(s) => table::create(s, &self.keyspace, cx)
                .map(|outcome| outcome.warned_of(&s.options.properties)),
            StatementKind::CopyTable(s) => {
                copy::create(s, &self.keyspace, cx).map(|outcome| outcome.warned_of(&s.properties))
            }
            StatementKind::AlterTable(s) => {
                let outcome = alter_table::alter(s, &self.keyspace, cx)?;
                Ok(match &s.change {
                    AlterTableChange::With(properties) => outcome.warned_of(properties),
                    _ => outcome,
                })
            }
            StatementKind::DropTable(s) => table::drop(s, &self.keyspace, cx),
            StatementKind::CreateType(s) => udt::create(s, &self.keyspace, cx),
            StatementKind::AlterType(s) => udt::alter(s, &self.keyspace, cx),
            StatementKind::DropType(s) => udt::drop(s, &self.keyspace, cx),
            StatementKind::DropIndex(s) => index::drop(s, &self.keyspace, cx),
            // These objects are not supported, so the one to drop does not exist.
            StatementKind::DropView(s) => absent(
                s.if_exists,
                format!("Materialized view '{}.{}' doesn't exist", self.keyspace, s.view.name.text),
            ),
            StatementKind::DropTrigger(s) => absent(
                s.if_exists,
                format!(
                    "Trigger '{}' on '{}.{}' doesn't exist",
                    s.name.text, self.keyspace, s.table.name.text
                ),
            ),
            StatementKind::CreateIndex(s) => index::create(s, &self.keyspace, cx),
            StatementKind::CreateView(s) => {
                missing::create_view(s, &self.keyspace, cx)?;
                Err(PlanError::unsupported(self.statement.name()))
            }
            StatementKind::AlterView(s) => absent(
                s.if_exists,
                format!("Materialized view '{}.{}' doesn't exist", self.keyspace, s.view.name.text),
            ),
            StatementKind::CreateTrigger(s) => missing::create_trigger(s, &self.keyspace, cx),
            StatementKind::CreateFunction(s) => function::create(s, &self.keyspace, cx),
            StatementKind::CreateAggregate(s) => function::create_aggregate(s, &self.keyspace, cx),
            StatementKind::DropFunction(s) => function::drop(s, &self.keyspace, cx),
            StatementKind::DropAggregate(s) => function::drop_aggregate(s, &self.keyspace, cx),
            other => Err(PlanError::unsupported(other.name())),
        }
    }
}

fn function_keyspace(name: &FunctionName, session: Option<&str>) -> Result<String, PlanError> {
    match (&name.keyspace, session) {
        (Some(keyspace), _) => Ok(keyspace.text.clone()),
        (None, Some(keyspace)) => Ok(keyspace.to_owned()),
        (None, None) => Err(no_keyspace()),
    }
}

/// DROP of what does not exist.
fn absent(if_exists: bool, text: String) -> Result<DdlOutcome, PlanError> {
    if if_exists { Ok(DdlOutcome::nothing()) } else { Err(PlanError::invalid(text)) }
}

/// Rejects changes of these two kinds of keyspaces. Statements that Cassandra's permissions cover
/// are unauthorized; the others are invalid.
fn check_modifiable(statement: &StatementKind, keyspace: &str) -> Result<(), PlanError> {
    if !SYSTEM.contains(&keyspace) && !VIRTUAL.contains(&keyspace) {
        return Ok(());
    }
    Err(match statement {
        StatementKind::CreateKeyspace(_)
        | StatementKind::DropIndex(_)
        | StatementKind::AlterView(_)
        | StatementKind::DropView(_)
        | StatementKind::CreateTrigger(_)
        | StatementKind::DropTrigger(_)
        | StatementKind::CreateFunction(_)
        | StatementKind::CreateAggregate(_)
        | StatementKind::DropFunction(_)
        | StatementKind::DropAggregate(_) => {
            PlanError::invalid(format!("System keyspace '{keyspace}' is not user-modifiable"))
        }
        _ => PlanError::unauthorized(format!("{keyspace} keyspace is not user-modifiable.")),
    })
}

/// Replicated system keyspaces can be altered (their replication), nothing else.
fn check_not_replicated_system(keyspace: &str, verb: &str, on: On<'_>) -> Result<(), PlanError> {
    if !REPLICATED_SYSTEM.contains(&keyspace) {
        return Ok(());
    }
    let resource = match on {
        On::Keyspace => format!("keyspace {keyspace}"),
        On::AllTables => format!("all tables in {keyspace}"),
        On::Table(table) => format!("table {keyspace}.{table}"),
    };
    Err(PlanError::unauthorized(format!("Cannot {verb} <{resource}>")))
}

/// Resource of the permission that a rejected statement on a system keyspace needs.
#[derive(Clone, Copy)]
enum On<'n> {
    /// The keyspace.
    Keyspace,
    /// All its tables: new tables and types.
    AllTables,
    /// One table.
    Table(&'n str),
}

fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn find_keyspace<'s>(schema: &'s Schema, name: &str) -> Result<&'s Arc<Keyspace>, PlanError> {
    schema
        .keyspace(name)
        .ok_or_else(|| PlanError::invalid(format!("Keyspace '{name}' doesn't exist")))
}

fn duplicate<'i>(names: impl IntoIterator<Item = &'i Ident>) -> Option<&'i Ident> {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        if seen.contains(&name.text.as_str()) {
            return Some(name);
        }
        seen.push(&name.text);
    }
    None
}

/// The id given by `WITH ID = …`.
fn parse_table_id(text: &str) -> Result<TableId, PlanError> {
    Uuid::parse_str(text).map(TableId).map_err(|_| PlanError::config("Invalid table id"))
}
