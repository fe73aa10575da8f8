//! From a decoded request to its answer: QUERY, EXECUTE, PREPARE (`prepare`) and BATCH (`batch`);
//! writes of all forms are `write`.
//!
//! Everything up to binding is done at once, borrowing from the frame. A local write ends here and
//! waits for the turn's commit ([`Step::Held`]); what may wait becomes a future that owns what it
//! needs ([`Step::Waits`]).

mod batch;
mod check;
mod counting;
mod once;
mod prepare;
mod write;

use crate::access;
use crate::conditional;
use crate::connection::HeldWrite;
use crate::failure::{Failure, Result};
use crate::forwarded::Source;
use crate::guardrails;
use crate::internal;
use crate::pending::Waiting;
use crate::prepared::{Compiled, Prepared, parse, source_of};
use crate::role_change;
use crate::schema_change;
use crate::server::Server;
use crate::session::{Session, Ticket};
use crate::truncate_table;
use crate::wire_type::Described;
pub(crate) use check::Allowed;
use check::{Access, check};
use cql_plan::ddl::MASKING_DISABLED;
use cql_plan::plan::{BoundValue, ExecuteOptions, Plan, PlanKind};
use cql_syntax::ast::StatementKind;
use cql_wire::response;
use cql_wire::{BoundValues, Consistency, Opcode, QueryParameters, Request};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use stdx::{TimestampMicros, WallMicros};
use write::modify;

pub(crate) use once::with_calls_evaluated;
pub(crate) use prepare::{prepare_here, prepared_here, spread};
#[cfg(test)]
pub(crate) use write::join_all;
pub(crate) use write::{Modification, Statement, WriteOrder, bind, carry_out};

/// How far a request got at once.
pub(crate) enum Step {
    /// Answered.
    Done,
    /// Applied; the answer waits for the commit.
    Held(HeldWrite),
    /// To be polled.
    Waits(Waiting),
}

/// What a request runs in.
pub(crate) struct Cx<'a> {
    pub(crate) server: &'a Rc<Server>,
    pub(crate) session: &'a Rc<Session>,
    pub(crate) ticket: &'a Ticket,
    pub(crate) out: &'a mut Vec<u8>,
}

/// Values of one statement.
pub(crate) type Values<'v> = SmallVec<[BoundValue<'v>; 16]>;

/// How a result is described to this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Describe {
    /// All columns.
    Full,
    /// None: the client knows them.
    Skip,
    /// All columns and their new id.
    Changed,
}

/// Runs one request.
///
/// # Errors
/// What to tell the client.
pub(crate) fn run(request: &Request<'_>, cx: &mut Cx<'_>) -> Result<Step> {
    match request {
        Request::Execute { id, result_metadata_id, parameters } => {
            execute(id, *result_metadata_id, parameters, cx)
        }
        Request::Query { query: text, parameters } => query(text, parameters, cx),
        Request::Batch(request) => batch::batch(request, cx),
        Request::Prepare { query, keyspace } => prepare::prepare(query, *keyspace, cx),
        Request::Startup(_)
        | Request::Options
        | Request::Register(_)
        | Request::AuthResponse(_) => Err(cx.server.internal_failure("request in a wrong place")),
    }
}

/// The columns of the result; `None` for statements that return none.
pub(crate) fn result_columns(plan: &Plan) -> Option<Arc<Vec<Described>>> {
    crate::select::result_columns(plan)
}

/// The keyspace of a request must exist, whatever it is needed for.
fn check_keyspace(server: &Server, keyspace: Option<&str>) -> Result<()> {
    match keyspace {
        Some(name) if server.snapshot().schema.keyspace(name).is_none() => {
            Err(Failure::invalid(format!("Keyspace '{name}' does not exist")))
        }
        _ => Ok(()),
    }
}

fn check_page_size(parameters: &QueryParameters<'_>) -> Result<()> {
    if parameters.page_size == Some(0) {
        return Err(Failure::protocol("The page size cannot be 0"));
    }
    Ok(())
}

fn query(text: &str, parameters: &QueryParameters<'_>, cx: &mut Cx<'_>) -> Result<Step> {
    if let Some(trace) = &cx.ticket.trace {
        let mut described = trace_parameters(parameters);
        described.push(("query".to_owned(), without_password(text).into_owned()));
        trace.describe("Execute CQL3 query", described);
    }
    check_page_size(parameters)?;
    cx.ticket.note(|| format!("Parsing {}", without_password(text)));
    let statement = parse(text)?;
    let used = cx.session.keyspace.borrow().clone();
    check_keyspace(cx.server, parameters.keyspace)?;
    let keyspace = parameters.keyspace.or(used.as_deref());
    cx.ticket.note(|| "Preparing statement".to_owned());
    if let StatementKind::Describe(describe) = &statement.kind {
        access::check_login(cx.server, cx.session)?;
        let mode = if parameters.skip_metadata { Describe::Skip } else { Describe::Full };
        return crate::describe::run(describe, keyspace, parameters, mode, cx);
    }
    let mut compiled = {
        let snapshot = cx.server.snapshot();
        let limits = &cx.server.plan_limits;
        Compiled::new(&statement, &snapshot, keyspace, limits, cx.server.rt.wall())?
    };
    let is_serial = conditional::scope_of(parameters.consistency).is_some();
    let folds = matches!(&compiled.plan.kind, PlanKind::Select(plan) if plan.folds());
    if is_serial || folds || conditional::is_conditional(&compiled.plan) {
        compiled.source = Some(text_source(text, keyspace));
    }
    let values = values_of(&compiled, &parameters.values);
    if values.len() != compiled.plan.binds.len() {
        return Err(Failure::invalid("Invalid amount of bind variables"));
    }
    cx.server.counters.regular_executions.inc();
    let mode = if parameters.skip_metadata { Describe::Skip } else { Describe::Full };
    if matches!(compiled.plan.kind, PlanKind::Auth(_)) {
        access::check_login(cx.server, cx.session)?;
        return role_change::run(&Rc::new(compiled), mode, cx);
    }
    run_plan(&Rc::new(compiled), &values, parameters, mode, cx)
}

/// What a trace calls EXECUTE.
const EXECUTE_PREPARED: &str = "Execute CQL3 prepared query";

fn execute(
    id: &[u8],
    result_metadata_id: Option<&[u8]>,
    parameters: &QueryParameters<'_>,
    cx: &mut Cx<'_>,
) -> Result<Step> {
    if let Some(trace) = &cx.ticket.trace {
        // Of a statement that is not known there is no more to say.
        trace.describe(EXECUTE_PREPARED, trace_parameters(parameters));
    }
    let Some(prepared) = cx.server.prepared.get(id) else {
        return Err(Failure::Unprepared(id.to_vec()));
    };
    let compiled = current(cx.server, &prepared)?;
    check_page_size(parameters)?;
    if let Some(trace) = &cx.ticket.trace {
        let mut described = trace_parameters(parameters);
        described.push(("query".to_owned(), without_password(&prepared.text).into_owned()));
        for (i, value) in parameters.values.values().enumerate() {
            if let Some(marker) = compiled.markers.columns().get(i) {
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
    let values = values_of(&compiled, &parameters.values);
    compiled.plan.check_value_count(values.len())?;
    cx.server.counters.prepared_executions.inc();
    let mode = match &compiled.result {
        None => Describe::Full,
        Some(result) => {
            let current = result.id();
            if cx.session.negotiated.get().has_metadata_id() {
                match result_metadata_id {
                    Some(known) if known == current => match parameters.skip_metadata {
                        true => Describe::Skip,
                        false => Describe::Full,
                    },
                    Some(_) | None => Describe::Changed,
                }
            } else if parameters.skip_metadata
                && !compiled.is_wildcard
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

/// The plan of a prepared statement on the schema in use, made again where the schema moved on.
fn current(server: &Rc<Server>, prepared: &Rc<Prepared>) -> Result<Rc<Compiled>> {
    let compiled = prepared.compiled.borrow().clone();
    let snapshot = server.snapshot();
    if compiled.is_valid_for(&snapshot) {
        return Ok(compiled);
    }
    server.counters.replanned.inc();
    let made = parse(&prepared.text).and_then(|statement| {
        let keyspace = prepared.keyspace.as_deref();
        let now = server.rt.wall();
        Compiled::new(&statement, &snapshot, keyspace, &server.plan_limits, now)
    });
    match made {
        Ok(mut compiled) => {
            compiled.source = Some(source_of(&prepared.text, prepared.keyspace.as_ref()));
            let compiled = Rc::new(compiled);
            *prepared.compiled.borrow_mut() = compiled.clone();
            Ok(compiled)
        }
        Err(_) => {
            // As in Cassandra: the client prepares again and is told then what is wrong.
            server.prepared.remove(&prepared.id);
            Err(Failure::Unprepared(prepared.id.to_vec()))
        }
    }
}

/// Values in the order of the markers. A named value that is missing shortens the list.
fn values_of<'v>(compiled: &Compiled, values: &BoundValues<'v>) -> Values<'v> {
    if !values.is_named() {
        return values.values().map(plan_value).collect();
    }
    let mut ordered = Values::new();
    for marker in &compiled.plan.binds {
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

/// What an execution is told, from the request and this shard's clock.
pub(crate) fn options_of<'o>(
    (server, session, ticket): (&'o Server, &Session, &'o Ticket),
    parameters: &QueryParameters<'o>,
) -> ExecuteOptions<'o> {
    let wall = server.rt.wall();
    let timestamp = match parameters.timestamp {
        Some(timestamp) => TimestampMicros(timestamp),
        None => server.next_timestamp(wall),
    };
    let now = match parameters.now_in_seconds {
        Some(seconds) => WallMicros(i64::from(seconds).saturating_mul(1_000_000)),
        None => wall,
    };
    ExecuteOptions {
        now,
        clock: wall,
        default_timestamp: timestamp,
        page_size: parameters.page_size.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0),
        paging_state: parameters.paging_state,
        protocol_version: session.version().number(),
        uuids: &server.uuids,
        watch: ticket.watch(),
    }
}

fn run_plan(
    compiled: &Rc<Compiled>,
    values: &[BoundValue<'_>],
    parameters: &QueryParameters<'_>,
    mode: Describe,
    cx: &mut Cx<'_>,
) -> Result<Step> {
    access::authorize(cx.server, cx.session, compiled)?;
    match &compiled.plan.kind {
        PlanKind::Modify(plan) => {
            cx.server.counters.writes.inc();
            if plan.has_conditions() {
                return modify_if(compiled, values, parameters, mode, cx);
            }
            modify_one(compiled, values, parameters, cx)
        }
        PlanKind::Batch(plan) => {
            cx.server.counters.batches.inc();
            if plan.has_conditions() {
                return modify_if(compiled, values, parameters, mode, cx);
            }
            modify_one(compiled, values, parameters, cx)
        }
        PlanKind::Select(plan) => {
            cx.server.counters.reads.inc();
            if let Some(watch) = cx.ticket.watch() {
                crate::guardrails::check_select(watch, plan, parameters.consistency)?;
            }
            let allowed = check(cx.server, compiled, parameters.consistency, Access::Read)?;
            crate::select::run(compiled, values, parameters, (mode, allowed), cx)
        }
        PlanKind::Ddl(plan) => {
            cx.server.counters.schema_changes.inc();
            if plan.needs_masking() && !cx.server.settings.dynamic_data_masking_enabled {
                return Err(Failure::invalid(MASKING_DISABLED));
            }
            if compiled.drops_table {
                check_drop_allowed(cx.server)?;
            }
            Ok(Step::Waits(ddl(compiled.clone(), cx)))
        }
        PlanKind::Describe(describe, keyspace) => {
            let mode = undescribed(cx.session);
            crate::describe::run(describe, keyspace.as_deref(), parameters, mode, cx)
        }
        PlanKind::Auth(_) => role_change::run(compiled, undescribed(cx.session), cx),
        PlanKind::Truncate(_) => {
            check_drop_allowed(cx.server)?;
            Ok(Step::Waits(truncate_table::run(compiled.clone(), cx)))
        }
        PlanKind::Use(keyspace) => {
            if !cx.server.settings.use_statements_enabled {
                return Err(Failure::invalid(
                    "USE statements prohibited. (see use_statements_enabled in cassandra.yaml)",
                ));
            }
            if cx.server.snapshot().schema.keyspace(keyspace).is_none() {
                return Err(Failure::invalid(format!("Keyspace '{keyspace}' does not exist")));
            }
            *cx.session.keyspace.borrow_mut() = Some(keyspace.as_str().into());
            cx.session.respond(cx.out, cx.ticket, Opcode::Result, &[], |body| {
                response::put_set_keyspace(body, keyspace)
            })?;
            Ok(Step::Done)
        }
    }
}

/// A statement as others may see it: who reads traces is not to learn passwords.
pub(crate) fn without_password(text: &str) -> Cow<'_, str> {
    let lower = text.trim_start().to_ascii_lowercase();
    let gives_one = ["create", "alter"].iter().any(|verb| lower.starts_with(verb));
    let behind = |at: usize| at + (text.len() - lower.len()) + "password".len();
    match lower.find("password").filter(|_| gives_one).and_then(|at| text.get(..behind(at))) {
        Some(shown) => Cow::Owned(format!("{shown} *******")),
        None => Cow::Borrowed(text),
    }
}

/// As in Cassandra PREPARED does not describe the result of some statements, so every answer does.
fn undescribed(session: &Session) -> Describe {
    let has_id = session.negotiated.get().has_metadata_id();
    if has_id { Describe::Changed } else { Describe::Full }
}

/// INSERT, UPDATE, DELETE, or a batch as text.
fn modify_one(
    compiled: &Rc<Compiled>,
    values: &[BoundValue<'_>],
    parameters: &QueryParameters<'_>,
    cx: &Cx<'_>,
) -> Result<Step> {
    let consistency = parameters.consistency;
    if let Some(watch) = cx.ticket.watch() {
        guardrails::check_write_levels(watch, consistency, parameters.serial_consistency)?;
    }
    let allowed = check(cx.server, compiled, consistency, Access::Write)?;
    let options = options_of((cx.server, cx.session, cx.ticket), parameters);
    let statements = &[(compiled, values)];
    let has_timestamp = parameters.timestamp.is_some();
    let modification =
        Modification { statements, batch: None, consistency, allowed, options, has_timestamp };
    modify(&modification, cx)
}

/// The same with IF.
fn modify_if(
    compiled: &Rc<Compiled>,
    values: &[BoundValue<'_>],
    parameters: &QueryParameters<'_>,
    mode: Describe,
    cx: &Cx<'_>,
) -> Result<Step> {
    let (consistency, serial) = (parameters.consistency, parameters.serial_consistency);
    if let Some(watch) = cx.ticket.watch() {
        guardrails::check_write_levels(watch, consistency, serial)?;
    }
    let statements = &[(compiled, values)];
    let modification = Modification {
        statements,
        batch: None,
        consistency,
        allowed: Allowed::default(),
        options: options_of((cx.server, cx.session, cx.ticket), parameters),
        has_timestamp: false,
    };
    conditional::run(&modification, serial, mode, cx)
}

/// Cassandra's guardrail on losing whole tables.
fn check_drop_allowed(server: &Server) -> Result<()> {
    if server.guardrails.borrow().drop_truncate_table_enabled {
        return Ok(());
    }
    Err(Failure::invalid(
        "Guardrail drop_truncate_table_enabled violated: DROP and TRUNCATE TABLE functionality is \
         not allowed",
    ))
}

/// Ends a request that waited: writes its trace, then its answer or failure.
pub(crate) async fn finish(
    server: &Rc<Server>,
    session: &Rc<Session>,
    ticket: &Ticket,
    result: Result<()>,
    answer: impl FnOnce(&mut Vec<u8>) -> Result<()>,
) -> Vec<u8> {
    if let Some(trace) = &ticket.trace {
        if result.is_err() {
            trace.note("Request failed".to_owned());
        }
        internal::write_trace(server, trace, session.peer.ip()).await;
    }
    let mut out = server.buffer();
    if let Err(failure) = result.and_then(|()| answer(&mut out)) {
        server.counters.failed(failure.code());
        session.respond_failure(&mut out, ticket, &failure);
    }
    out
}

fn ddl(compiled: Rc<Compiled>, cx: &Cx<'_>) -> Waiting {
    let (server, session) = (cx.server.clone(), cx.session.clone());
    let ticket = cx.ticket.clone();
    Box::pin(async move {
        let watch = ticket.watch.clone();
        let done = schema_change::execute(&server, &compiled, &session, watch).await;
        let (result, changed) = match done {
            Ok(changed) => (Ok(()), Some(changed)),
            Err(failure) => (Err(failure), None),
        };
        finish(&server, &session, &ticket, result, |out| {
            let warnings: Vec<&str> =
                changed.iter().flat_map(|c| &c.warnings).map(String::as_str).collect();
            match changed.as_ref().and_then(|c| c.event.as_ref()) {
                Some(event) => {
                    let version = session.version();
                    session.respond(out, &ticket, Opcode::Result, &warnings, |body| {
                        let change = schema_change::as_wire(event);
                        response::put_schema_change(body, version, &change)
                    })
                }
                None => {
                    session.respond_void(out, &ticket, &warnings);
                    Ok(())
                }
            }
        })
        .await
    })
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
