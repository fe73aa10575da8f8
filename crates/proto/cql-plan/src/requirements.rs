//! Permissions that a plan needs, and the resources whose permissions its creator gets.
//!
//! Owns: [`requirements`] and those of each kind of plan, [`created`]. Whether a user has them is [`crate::auth::Access`]'s. Source: `authorize` of
//! Cassandra 5.0's statements.

use std::sync::Arc;

use cluster::Permission;
use cql_syntax::ast::{CreateAggregate, RawType, StatementKind};
use schema::{Keyspace, Schema, Table};
use types::CqlType;

use crate::auth::{Requirement, Resource};
use crate::batch::BatchPlan;
use crate::ddl::DdlPlan;
use crate::functions::user::Routine;
use crate::modify::ModifyPlan;
use crate::plan::{CommandPlan, Plan, PlanInputs, PlanKind};
use crate::raw_type;
use crate::select::SelectPlan;

/// Returns the permissions that a plan needs; statements about roles have rules of their own. The
/// permissions of schema changes depend on the existing schema.
pub fn requirements(plan: &Plan, schema: &Schema) -> Vec<Requirement> {
    match &plan.kind {
        PlanKind::Select(select) => of_select(select, &plan.inputs),
        PlanKind::Modify(modify) => of_modify(modify, &plan.inputs),
        PlanKind::Batch(batch) => of_batch(batch, &plan.inputs),
        PlanKind::Command(command) => of_command(command, schema),
    }
}

/// `needed` with EXECUTE on the functions that a plan calls.
fn with_functions(mut needed: Vec<Requirement>, inputs: &PlanInputs) -> Vec<Requirement> {
    for routine in &inputs.functions {
        let execute = |name: &str, args: &[CqlType]| {
            let resource = Resource::function(routine.keyspace(), name, args);
            Requirement::Permission(Permission::Execute, resource)
        };
        needed.push(execute(routine.name(), routine.args()));
        if let Routine::Aggregate(aggregate) = routine {
            needed.push(execute(&aggregate.state_function, &aggregate.state_args()));
            let last = aggregate.final_function.iter();
            let of_state = std::slice::from_ref(&aggregate.state_type);
            needed.extend(last.map(|function| execute(function, of_state)));
        }
    }
    needed
}

/// Returns the permissions that a SELECT needs.
pub fn of_select(plan: &SelectPlan, inputs: &PlanInputs) -> Vec<Requirement> {
    let table = plan.table();
    if is_readable_by_all(table) {
        return with_functions(Vec::new(), inputs);
    }
    let mut needed = vec![on_table(Permission::Select, table)];
    let columns = plan.restricted_masked_columns();
    if !columns.is_empty() {
        needed.push(Requirement::Masked {
            resource: Resource::table(&table.keyspace, &table.name),
            table: format!("{}.{}", table.keyspace, table.name),
            columns: columns.into_iter().map(str::to_owned).collect(),
        });
    }
    with_functions(needed, inputs)
}

/// Returns the permissions that INSERT, UPDATE and DELETE need.
pub fn of_modify(plan: &ModifyPlan, inputs: &PlanInputs) -> Vec<Requirement> {
    with_functions(of_modification(plan), inputs)
}

/// Returns the permissions that BEGIN BATCH needs.
pub fn of_batch(plan: &BatchPlan, inputs: &PlanInputs) -> Vec<Requirement> {
    let needed = plan.statements().iter().flat_map(of_modification).collect();
    with_functions(needed, inputs)
}

/// Returns the permissions that other statements need; for a schema change they depend on the
/// existing schema.
pub fn of_command(plan: &CommandPlan, schema: &Schema) -> Vec<Requirement> {
    match plan {
        CommandPlan::Truncate(truncate) => vec![on_table(Permission::Modify, &truncate.table)],
        CommandPlan::Ddl(ddl) => of_schema_change(ddl, schema),
        CommandPlan::Use(_) | CommandPlan::Describe(..) | CommandPlan::Auth(_) => Vec::new(),
    }
}

fn on_table(permission: Permission, table: &Arc<Table>) -> Requirement {
    Requirement::Permission(permission, Resource::table(&table.keyspace, &table.name))
}

/// Conditions reveal stored values: they need the permissions of a SELECT.
fn of_modification(plan: &ModifyPlan) -> Vec<Requirement> {
    let mut needed = vec![on_table(Permission::Modify, plan.table())];
    if plan.has_conditions() {
        needed.push(on_table(Permission::Select, plan.table()));
    }
    needed
}

/// Returns true for the tables that drivers and connectors read on their own, as in Cassandra
/// 5.0.9.
fn is_readable_by_all(table: &Table) -> bool {
    match &*table.keyspace {
        "system" => matches!(
            &*table.name,
            "local" | "peers" | "peers_v2" | "size_estimates" | "table_estimates"
        ),
        "system_traces" => matches!(&*table.name, "events" | "sessions"),
        "system_schema" | "system_virtual_schema" => true,
        _ => false,
    }
}

/// Types of a keyspace as written; `None` when there is no such type.
fn types_of(raw: &[RawType], keyspace: &Keyspace) -> Option<Vec<CqlType>> {
    let resolve = |ty| raw_type::resolve(ty, &keyspace.name, &keyspace.types).ok();
    raw.iter().map(resolve).collect()
}

/// Returns the permission for CREATE FUNCTION and CREATE AGGREGATE: ALTER to replace one, else
/// CREATE.
fn of_creation(
    keyspace: &str,
    name: &str,
    args: &[RawType],
    or_replace: bool,
    schema: &Schema,
) -> Requirement {
    let replaced = schema.keyspace(keyspace).filter(|_| or_replace).and_then(|k| {
        let types = types_of(args, k)?;
        let exists = k.function(name, &types).is_some() || k.aggregate(name, &types).is_some();
        exists.then_some(types)
    });
    match replaced {
        Some(types) => {
            Requirement::Permission(Permission::Alter, Resource::function(keyspace, name, &types))
        }
        None => Requirement::Permission(
            Permission::Create,
            Resource::KeyspaceFunctions(keyspace.to_owned()),
        ),
    }
}

/// Returns the permissions for DROP FUNCTION and DROP AGGREGATE: DROP on each overload that is
/// meant.
fn of_drop(
    keyspace: &str,
    name: &str,
    args: Option<&[RawType]>,
    schema: &Schema,
) -> Vec<Requirement> {
    let Some(keyspace) = schema.keyspace(keyspace) else { return Vec::new() };
    let wanted = match args {
        None => None,
        Some(args) => match types_of(args, keyspace) {
            Some(types) => Some(types),
            None => return Vec::new(),
        },
    };
    let functions = keyspace.functions_named(name).map(|f| &f.args);
    functions
        .chain(keyspace.aggregates_named(name).map(|a| &a.args))
        .filter(|args| wanted.as_ref().is_none_or(|w| schema::functions::same_arguments(args, w)))
        .map(|args| {
            let resource = Resource::function(&keyspace.name, name, args);
            Requirement::Permission(Permission::Drop, resource)
        })
        .collect()
}

fn of_aggregate(plan: &DdlPlan, s: &CreateAggregate, schema: &Schema) -> Vec<Requirement> {
    let keyspace = plan.keyspace();
    let name = &s.name.name.text;
    let mut needed = vec![of_creation(keyspace, name, &s.args, s.or_replace, schema)];
    let Some(found) = schema.keyspace(keyspace) else { return needed };
    let raw: Vec<RawType> = [&s.state_type].into_iter().chain(&s.args).cloned().collect();
    let Some(types) = types_of(&raw, found) else { return needed };
    let mut execute = |name: &str, args: &[CqlType]| {
        let resource = Resource::function(keyspace, name, args);
        needed.push(Requirement::Permission(Permission::Execute, resource));
    };
    execute(&s.state_function.text, &types);
    if let (Some(last), Some(state)) = (&s.final_function, types.get(..1)) {
        execute(&last.text, state);
    }
    needed
}

fn of_schema_change(plan: &DdlPlan, schema: &Schema) -> Vec<Requirement> {
    match plan.statement() {
        StatementKind::CreateFunction(s) => {
            let args: Vec<RawType> = s.args.iter().map(|(_, ty)| ty.clone()).collect();
            let name = &s.name.name.text;
            vec![of_creation(plan.keyspace(), name, &args, s.or_replace, schema)]
        }
        StatementKind::CreateAggregate(s) => of_aggregate(plan, s, schema),
        StatementKind::DropFunction(s) => {
            of_drop(plan.keyspace(), &s.name.name.text, s.args.as_deref(), schema)
        }
        StatementKind::DropAggregate(s) => {
            of_drop(plan.keyspace(), &s.name.name.text, s.args.as_deref(), schema)
        }
        StatementKind::DropIndex(s) => {
            let found = schema.keyspace(plan.keyspace());
            let found = found.and_then(|keyspace| keyspace.index(&s.name.name.text));
            // Without the index there is no table whose permission could be asked for.
            let on = |table| {
                Requirement::Permission(Permission::Alter, Resource::table(plan.keyspace(), table))
            };
            found.map(|(table, _)| on(&table.name)).into_iter().collect()
        }
        StatementKind::CopyTable(s) => {
            let source = s.source.keyspace.as_ref().map_or("", |keyspace| &keyspace.text);
            let target = Resource::AllTables(plan.keyspace().to_owned());
            vec![
                Requirement::Permission(
                    Permission::Select,
                    Resource::table(source, &s.source.name.text),
                ),
                Requirement::Permission(Permission::Create, target),
            ]
        }
        _ => of_table_change(plan).into_iter().collect(),
    }
}

fn of_table_change(plan: &DdlPlan) -> Option<Requirement> {
    let keyspace = plan.keyspace();
    let on = Requirement::Permission;
    let on_tables = |permission| on(permission, Resource::AllTables(keyspace.to_owned()));
    let on_keyspace = |permission| on(permission, Resource::Keyspace(keyspace.to_owned()));
    let on_table = |permission, table: &str| on(permission, Resource::table(keyspace, table));
    Some(match plan.statement() {
        StatementKind::CreateKeyspace(_) => on(Permission::Create, Resource::AllKeyspaces),
        StatementKind::AlterKeyspace(_) => on_keyspace(Permission::Alter),
        StatementKind::DropKeyspace(_) => on_keyspace(Permission::Drop),
        StatementKind::CreateTable(_) | StatementKind::CreateType(_) => {
            on_tables(Permission::Create)
        }
        StatementKind::AlterTable(s) => on_table(Permission::Alter, &s.table.name.text),
        StatementKind::DropTable(s) => on_table(Permission::Drop, &s.table.name.text),
        StatementKind::CreateIndex(s) => on_table(Permission::Alter, &s.table.name.text),
        StatementKind::CreateView(s) => on_table(Permission::Alter, &s.base.name.text),
        StatementKind::AlterType(_) => on_tables(Permission::Alter),
        StatementKind::DropType(_) => on_tables(Permission::Drop),
        // The other objects do not exist here: their statements need nothing and report that.
        _ => return None,
    })
}

/// Returns the resources on which the creator gets all permissions; `schema` is the one before the
/// change.
pub fn created(plan: &DdlPlan, schema: &Schema) -> Vec<Resource> {
    let keyspace = plan.keyspace();
    let new = |name: &str, args: &[RawType]| {
        let found = schema.keyspace(keyspace)?;
        let types = types_of(args, found)?;
        let is_new =
            found.function(name, &types).is_none() && found.aggregate(name, &types).is_none();
        is_new.then(|| Resource::function(keyspace, name, &types))
    };
    match plan.statement() {
        StatementKind::CreateFunction(s) => {
            let args: Vec<RawType> = s.args.iter().map(|(_, ty)| ty.clone()).collect();
            new(&s.name.name.text, &args).into_iter().collect()
        }
        StatementKind::CreateAggregate(s) => new(&s.name.name.text, &s.args).into_iter().collect(),
        StatementKind::CreateKeyspace(_) => vec![
            Resource::Keyspace(keyspace.to_owned()),
            Resource::KeyspaceFunctions(keyspace.to_owned()),
        ],
        StatementKind::CreateTable(s) => vec![Resource::table(keyspace, &s.table.name.text)],
        StatementKind::CopyTable(s) => vec![Resource::table(keyspace, &s.table.name.text)],
        _ => Vec::new(),
    }
}
