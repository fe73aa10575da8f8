//! From a request to its answer: QUERY ([`query`]), EXECUTE ([`execute`]) and BATCH ([`batch`]); PREPARE is
//! [`crate::prepare`].
//!
//! Everything up to binding is done at once, borrowing from the request. A local write ends here and waits for a
//! commit ([`Step::Held`]). A request that may wait becomes a future that owns its data ([`Step::Waits`]).

mod batch;

pub(crate) use batch::NOT_IN_BATCH;
pub use batch::batch;

use crate::access;
use crate::client::ClientState;
use crate::conditional;
use crate::consistency::{Access, Allowed, check, scope_of};
use crate::context::{Cx, Step, Values};
use crate::executor::Executor;
use crate::failure::{Failure, Result};
use crate::guardrails;
use crate::modification::{Modification, Statements, WithValues};
use crate::password::without_password;
use crate::prepare::{check_keyspace, current};
use crate::prepared::{Compiled, CompiledHeader, Source, parse};
use crate::role_change;
use crate::schema_change;
use crate::select::ReadRequest;
use crate::sink::{Describe, ResultSink};
use crate::truncate_table;
use crate::write::modify;
use cql_plan::ddl::MASKING_DISABLED;
use cql_plan::plan::{BindSpec, BoundValue, CommandPlan};
use cql_syntax::ast::StatementKind;
use cql_wire::{BoundValues, Consistency, QueryParameters};

fn check_page_size(parameters: &QueryParameters<'_>) -> Result<()> {
    if parameters.page_size == Some(0) {
        return Err(Failure::protocol("The page size cannot be 0"));
    }
    Ok(())
}

/// Executes a statement that is sent as text.
///
/// # Errors
/// A [`Failure`] for the client.
pub fn query<S: ResultSink>(
    text: &str,
    parameters: &QueryParameters<'_>,
    cx: &mut Cx<'_, S>,
) -> Result<Step<S::Answer>> {
    if let Some(trace) = &cx.ticket.trace {
        let mut described = trace_parameters(parameters);
        described.push(("query".to_owned(), without_password(text).into_owned()));
        trace.describe("Execute CQL3 query", described);
    }
    check_page_size(parameters)?;
    cx.ticket.note(|| format!("Parsing {}", without_password(text)));
    let statement = parse(text)?;
    let used = cx.sink.client().keyspace.borrow().clone();
    check_keyspace(cx.executor, parameters.keyspace)?;
    let keyspace = parameters.keyspace.or(used.as_deref());
    cx.ticket.note(|| "Preparing statement".to_owned());
    if let StatementKind::Describe(describe) = &statement.kind {
        access::check_login(cx.executor, cx.sink.client())?;
        let mode = if parameters.skip_metadata { Describe::Skip } else { Describe::Full };
        return crate::describe::run(describe, keyspace, parameters, mode, cx);
    }
    let mut compiled = {
        let snapshot = cx.executor.snapshot();
        let limits = &cx.executor.plan_limits;
        let now = cx.executor.rt.wall();
        Compiled::new(&statement, &snapshot, keyspace, limits, now).map_err(|error| {
            access::error_of_unplanned(
                cx.executor,
                cx.sink.client(),
                &statement.kind,
                keyspace,
                error,
            )
        })?
    };
    let is_serial = scope_of(parameters.consistency).is_some();
    let folds = matches!(&compiled, Compiled::Select(select) if select.plan.select.folds());
    if is_serial || folds || compiled.is_conditional() {
        compiled.set_source(text_source(text, keyspace));
    }
    let binds = &compiled.header().inputs.binds;
    let values = values_of(binds, &parameters.values);
    if values.len() != binds.len() {
        return Err(Failure::invalid("Invalid amount of bind variables"));
    }
    if !cx.sink.client().is_node {
        cx.executor.counters.regular_executions.inc();
    }
    let mode = if parameters.skip_metadata { Describe::Skip } else { Describe::Full };
    if let Compiled::Command(command) = &compiled
        && let CommandPlan::Auth(plan) = &command.plan
    {
        access::check_login(cx.executor, cx.sink.client())?;
        return Ok(Step::Waits(role_change::run(plan.clone(), mode, cx)));
    }
    run_plan(&compiled, &values, parameters, mode, cx)
}

/// Name of EXECUTE in a trace.
const EXECUTE_PREPARED: &str = "Execute CQL3 prepared query";

/// Executes a prepared statement.
///
/// # Errors
/// It is not prepared, its values are invalid, or it failed at once.
pub fn execute<S: ResultSink>(
    id: &[u8],
    result_metadata_id: Option<&[u8]>,
    parameters: &QueryParameters<'_>,
    cx: &mut Cx<'_, S>,
) -> Result<Step<S::Answer>> {
    if let Some(trace) = &cx.ticket.trace {
        // Nothing more is known of a statement that is not prepared.
        trace.describe(EXECUTE_PREPARED, trace_parameters(parameters));
    }
    let Some(prepared) = cx.executor.prepared.get(id) else {
        return Err(Failure::Unprepared(id.to_vec()));
    };
    let compiled = current(cx.executor, &prepared)?;
    check_page_size(parameters)?;
    if let Some(trace) = &cx.ticket.trace {
        let mut described = trace_parameters(parameters);
        described.push(("query".to_owned(), without_password(&prepared.text).into_owned()));
        for (i, value) in parameters.values.values().enumerate() {
            if let Some(marker) = compiled.header().markers.columns().get(i) {
                let text = match value {
                    cql_wire::BoundValue::Unset => "<unset>".to_owned(),
                    cql_wire::BoundValue::Null => "null".to_owned(),
                    cql_wire::BoundValue::Bytes(bytes) => marker.ty.format_cql_literal(bytes),
                };
                described.push((format!("bound_var_{i}_{}", marker.name), text));
            }
        }
        trace.describe(EXECUTE_PREPARED, described);
    }
    let inputs = &compiled.header().inputs;
    let values = values_of(&inputs.binds, &parameters.values);
    inputs.check_value_count(values.len())?;
    cx.executor.counters.prepared_executions.inc();
    let mode = match &compiled {
        Compiled::Modify(_) | Compiled::Batch(_) | Compiled::Command(_) => Describe::Full,
        Compiled::Select(statement) => {
            let current = statement.plan.columns.id();
            if cx.sink.client().negotiated.get().has_metadata_id() {
                match result_metadata_id {
                    Some(known) if known == current => match parameters.skip_metadata {
                        true => Describe::Skip,
                        false => Describe::Full,
                    },
                    Some(_) | None => Describe::Changed,
                }
            } else if parameters.skip_metadata
                // The meaning of `*` may change, and such clients cannot be notified.
                && !statement.plan.select.is_wildcard()
                && prepared.described_as.get().as_ref() == Some(current)
            {
                Describe::Skip
            } else {
                Describe::Full
            }
        }
    };
    run_plan(&compiled, &values, parameters, mode, cx)
}

/// The source of a statement that was sent as text.
fn text_source(text: &str, keyspace: Option<&str>) -> Source {
    Source { text: text.into(), keyspace: keyspace.map(Into::into), is_prepared: false }
}

/// Values in the order of the markers. A named value that is missing shortens the list.
fn values_of<'v>(markers: &[BindSpec], values: &BoundValues<'v>) -> Values<'v> {
    if !values.is_named() {
        return values.values().map(plan_value).collect();
    }
    let mut ordered = Values::new();
    for marker in markers {
        let found = values.iter().find(|(name, _)| *name == Some(&*marker.name));
        ordered.extend(found.map(|(_, value)| plan_value(value)));
    }
    ordered
}

#[inline]
fn plan_value(value: cql_wire::BoundValue<'_>) -> BoundValue<'_> {
    match value {
        cql_wire::BoundValue::Null => BoundValue::Null,
        cql_wire::BoundValue::Unset => BoundValue::Unset,
        cql_wire::BoundValue::Bytes(bytes) => BoundValue::Bytes(bytes),
    }
}

fn run_plan<S: ResultSink>(
    compiled: &Compiled,
    values: &[BoundValue<'_>],
    parameters: &QueryParameters<'_>,
    describe: Describe,
    cx: &mut Cx<'_, S>,
) -> Result<Step<S::Answer>> {
    access::authorize(cx.executor, cx.sink.client(), compiled)?;
    match compiled {
        Compiled::Modify(statement) => {
            cx.executor.counters.writes.inc();
            let statements = Statements::One(WithValues { statement, values });
            if statement.plan.has_conditions() {
                return modify_if(statements, parameters, describe, cx);
            }
            modify_always(statements, &statement.header, parameters, cx)
        }
        Compiled::Batch(statement) => {
            cx.executor.counters.batches.inc();
            let statements = Statements::TextBatch(WithValues { statement, values });
            if statement.plan.has_conditions() {
                return modify_if(statements, parameters, describe, cx);
            }
            modify_always(statements, &statement.header, parameters, cx)
        }
        Compiled::Select(statement) => {
            cx.executor.counters.reads.inc();
            if let Some(watch) = cx.ticket.watch() {
                let consistency = parameters.consistency;
                guardrails::check_select(watch, &statement.plan.select, consistency)?;
            }
            let consistency = parameters.consistency;
            let allowed = check(cx.executor, &statement.header, consistency, Access::Read)?;
            let read = ReadRequest { statement, values, parameters, describe };
            crate::select::run(&read, allowed, cx)
        }
        Compiled::Command(command) => run_command(&command.plan, parameters, cx),
    }
}

fn run_command<S: ResultSink>(
    plan: &CommandPlan,
    parameters: &QueryParameters<'_>,
    cx: &mut Cx<'_, S>,
) -> Result<Step<S::Answer>> {
    match plan {
        CommandPlan::Ddl(plan) => {
            cx.executor.counters.schema_changes.inc();
            if plan.needs_masking() && !cx.executor.settings.dynamic_data_masking_enabled {
                return Err(Failure::invalid(MASKING_DISABLED));
            }
            if plan.drops_table() {
                check_drop_allowed(cx.executor)?;
            }
            Ok(Step::Waits(schema_change::run(plan.clone(), cx)))
        }
        CommandPlan::Describe(describe, keyspace) => {
            let mode = undescribed(cx.sink.client());
            crate::describe::run(describe, keyspace.as_deref(), parameters, mode, cx)
        }
        CommandPlan::Auth(plan) => {
            let mode = undescribed(cx.sink.client());
            Ok(Step::Waits(role_change::run(plan.clone(), mode, cx)))
        }
        CommandPlan::Truncate(plan) => {
            check_drop_allowed(cx.executor)?;
            Ok(Step::Waits(truncate_table::run(plan.table.clone(), cx)))
        }
        CommandPlan::Use(keyspace) => {
            if !cx.executor.settings.use_statements_enabled {
                return Err(Failure::invalid(
                    "USE statements prohibited. (see use_statements_enabled in cassandra.yaml)",
                ));
            }
            if cx.executor.snapshot().schema.keyspace(keyspace).is_none() {
                return Err(Failure::invalid(format!("Keyspace '{keyspace}' does not exist")));
            }
            *cx.sink.client().keyspace.borrow_mut() = Some(keyspace.as_str().into());
            cx.sink.keyspace_used(cx.out, cx.ticket, keyspace)?;
            Ok(Step::Done)
        }
    }
}

/// Describes the rows in every answer: PREPARED does not describe the result of some statements
/// (like in Cassandra).
fn undescribed(client: &ClientState) -> Describe {
    let has_id = client.negotiated.get().has_metadata_id();
    if has_id { Describe::Changed } else { Describe::Full }
}

/// INSERT, UPDATE, DELETE, or a batch as text.
fn modify_always<S: ResultSink>(
    statements: Statements<'_>,
    header: &CompiledHeader,
    parameters: &QueryParameters<'_>,
    cx: &Cx<'_, S>,
) -> Result<Step<S::Answer>> {
    let consistency = parameters.consistency;
    if let Some(watch) = cx.ticket.watch() {
        guardrails::check_write_levels(watch, consistency, parameters.serial_consistency)?;
    }
    let allowed = check(cx.executor, header, consistency, Access::Write)?;
    let options = cx.options(parameters);
    let has_timestamp = parameters.timestamp.is_some();
    modify(&Modification { statements, consistency, allowed, options, has_timestamp }, cx)
}

/// The same with IF.
fn modify_if<S: ResultSink>(
    statements: Statements<'_>,
    parameters: &QueryParameters<'_>,
    describe: Describe,
    cx: &Cx<'_, S>,
) -> Result<Step<S::Answer>> {
    let (consistency, serial) = (parameters.consistency, parameters.serial_consistency);
    if let Some(watch) = cx.ticket.watch() {
        guardrails::check_write_levels(watch, consistency, serial)?;
    }
    let modification = Modification {
        statements,
        consistency,
        allowed: Allowed::default(),
        options: cx.options(parameters),
        has_timestamp: false,
    };
    conditional::run(&modification, serial, describe, cx)
}

/// Cassandra's guardrail on losing whole tables.
fn check_drop_allowed(executor: &Executor) -> Result<()> {
    if executor.guardrails.borrow().drop_truncate_table_enabled {
        return Ok(());
    }
    Err(Failure::invalid(
        "Guardrail drop_truncate_table_enabled violated: DROP and TRUNCATE TABLE functionality is \
         not allowed",
    ))
}

fn trace_parameters(parameters: &QueryParameters<'_>) -> Vec<(String, String)> {
    let mut described =
        vec![("consistency_level".to_owned(), parameters.consistency.name().to_owned())];
    if let Some(size) = parameters.page_size.filter(|n| *n > 0) {
        described.push(("page_size".to_owned(), size.to_string()));
    }
    let serial = parameters.serial_consistency.unwrap_or(Consistency::Serial);
    described.push(("serial_consistency_level".to_owned(), serial.name().to_owned()));
    described
}
