//! From a decoded request to its answer: QUERY, PREPARE, EXECUTE and BATCH.
//!
//! Everything up to binding is done at once, borrowing from the frame. A local write ends here and
//! waits for the turn's commit ([`Step::Held`]); what may wait becomes a future that owns what it
//! needs ([`Step::Waits`]).

use crate::connection::HeldWrite;
use crate::failure::{Failure, Result};
use crate::internal;
use crate::list_write::{ListWrite, Order};
use crate::pending::Waiting;
use crate::prepared::{Compiled, Prepared, id_of, is_fully_qualified, parse};
use crate::schema_change;
use crate::server::Server;
use crate::session::{Session, Ticket};
use crate::wire_type::Described;
use cluster::ClusterSnapshot;
use cql_plan::plan::{BoundValue, ExecuteOptions, Plan, PlanKind};
use cql_syntax::ast::{self, StatementKind};
use cql_wire::response::{self, PreparedResponse};
use cql_wire::{
    Batch, BatchKind, BatchQuery, BoundValues, Consistency, Opcode, QueryParameters, Request,
    WriteType,
};
use smallvec::SmallVec;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use stdx::{TimestampMicros, Token, WallMicros};
use store::StoreError;

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
        Request::Batch(request) => batch(request, cx),
        Request::Prepare { query, keyspace } => prepare(query, *keyspace, cx),
        Request::Startup(_)
        | Request::Options
        | Request::Register(_)
        | Request::AuthResponse(_) => Err(cx.server.internal_failure("request in a wrong place")),
    }
}

/// The columns of the result; `None` for statements that return none.
pub(crate) fn result_columns(plan: &Plan) -> Option<Vec<Described>> {
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
    check_page_size(parameters)?;
    if let Some(trace) = &cx.ticket.trace {
        let mut described = trace_parameters(parameters);
        described.push(("query".to_owned(), text.to_owned()));
        trace.describe("Execute CQL3 query", described);
    }
    cx.ticket.note(|| format!("Parsing {text}"));
    let statement = parse(text)?;
    let used = cx.session.keyspace.borrow().clone();
    check_keyspace(cx.server, parameters.keyspace)?;
    let keyspace = parameters.keyspace.or(used.as_deref());
    cx.ticket.note(|| "Preparing statement".to_owned());
    if let StatementKind::Describe(describe) = &statement.kind {
        let mode = if parameters.skip_metadata { Describe::Skip } else { Describe::Full };
        return crate::describe::run(describe, keyspace, parameters, mode, cx);
    }
    let compiled = {
        let snapshot = cx.server.snapshot();
        let limits = &cx.server.plan_limits;
        Compiled::new(&statement, &snapshot, keyspace, limits, cx.server.rt.wall())?
    };
    let values = values_of(&compiled, &parameters.values);
    if values.len() != compiled.plan.binds.len() {
        return Err(Failure::invalid("Invalid amount of bind variables"));
    }
    let mode = if parameters.skip_metadata { Describe::Skip } else { Describe::Full };
    run_plan(&Rc::new(compiled), &values, parameters, mode, cx)
}

fn execute(
    id: &[u8],
    result_metadata_id: Option<&[u8]>,
    parameters: &QueryParameters<'_>,
    cx: &mut Cx<'_>,
) -> Result<Step> {
    let Some(prepared) = cx.server.prepared.get(id) else {
        return Err(Failure::Unprepared(id.to_vec()));
    };
    let compiled = current(cx.server, &prepared)?;
    check_page_size(parameters)?;
    if let Some(trace) = &cx.ticket.trace {
        let mut described = trace_parameters(parameters);
        described.push(("query".to_owned(), prepared.text.to_string()));
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
        trace.describe("Execute CQL3 prepared query", described);
    }
    let values = values_of(&compiled, &parameters.values);
    compiled.plan.check_value_count(values.len())?;
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
        Ok(compiled) => {
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
    server: &'o Server,
    session: &Session,
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
        default_timestamp: timestamp,
        page_size: parameters.page_size.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0),
        paging_state: parameters.paging_state,
        protocol_version: session.version().number(),
        uuids: &server.uuids,
    }
}

fn run_plan(
    compiled: &Rc<Compiled>,
    values: &[BoundValue<'_>],
    parameters: &QueryParameters<'_>,
    mode: Describe,
    cx: &mut Cx<'_>,
) -> Result<Step> {
    match &compiled.plan.kind {
        PlanKind::Modify(plan) => {
            cx.server.counters.writes.inc();
            let durable = check(cx.server, compiled, parameters.consistency, Access::Write)?;
            let options = options_of(cx.server, cx.session, parameters);
            if plan.needs_read() {
                let timeout_nanos = plan.timeout_nanos(values, &options)?;
                let consistency = parameters.consistency;
                let order = Order { consistency, durable, timeout_nanos, options: &options };
                return ListWrite::statement(compiled, values, &order).run(cx);
            }
            let mut encoded = cx.server.scratch.borrow_mut();
            encoded.clear();
            let mutations = plan.bind(values, &options, &mut encoded)?;
            let mut writes: Writes<'_> = SmallVec::new();
            for mutation in &mutations {
                let bytes = encoded.get(mutation.range.clone()).unwrap_or_default();
                writes.push(Write { token: mutation.token, bytes, durable });
            }
            let order = WriteOrder {
                consistency: parameters.consistency,
                write_type: WriteType::Simple,
                warnings: Vec::new(),
                timeout_nanos: plan.timeout_nanos(values, &options)?,
            };
            write(&writes, order, cx)
        }
        PlanKind::Batch(plan) => {
            cx.server.counters.batches.inc();
            let durable = check(cx.server, compiled, parameters.consistency, Access::Write)?;
            let options = options_of(cx.server, cx.session, parameters);
            if plan.needs_read() {
                let timeout_nanos = plan.timeout_nanos(values, &options)?;
                let consistency = parameters.consistency;
                let order = Order { consistency, durable, timeout_nanos, options: &options };
                return ListWrite::statement(compiled, values, &order).run(cx);
            }
            let mut encoded = cx.server.scratch.borrow_mut();
            encoded.clear();
            let bound = plan.bind(values, &options, &cx.server.plan_limits, &mut encoded)?;
            let writes: Writes<'_> = bound
                .mutations
                .iter()
                .map(|m| Write {
                    token: m.token,
                    bytes: encoded.get(m.range.clone()).unwrap_or_default(),
                    durable,
                })
                .collect();
            let order = WriteOrder {
                consistency: parameters.consistency,
                write_type: batch_type(plan.kind(), writes.len()),
                warnings: bound.warnings,
                timeout_nanos: plan.timeout_nanos(values, &options)?,
            };
            write(&writes, order, cx)
        }
        PlanKind::Select(_) => {
            cx.server.counters.reads.inc();
            check(cx.server, compiled, parameters.consistency, Access::Read)?;
            crate::select::run(compiled, values, parameters, mode, cx)
        }
        PlanKind::Ddl(_) => {
            cx.server.counters.schema_changes.inc();
            if compiled.drops_table {
                check_drop_allowed(cx.server)?;
            }
            Ok(Step::Waits(ddl(compiled.clone(), cx)))
        }
        PlanKind::Describe(describe, keyspace) => {
            // As in Cassandra PREPARED does not describe the result, so every answer does.
            let has_id = cx.session.negotiated.get().has_metadata_id();
            let mode = if has_id { Describe::Changed } else { Describe::Full };
            crate::describe::run(describe, keyspace.as_deref(), parameters, mode, cx)
        }
        PlanKind::Truncate(_) => {
            check_drop_allowed(cx.server)?;
            Ok(Step::Waits(truncate(compiled.clone(), cx)))
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

/// Cassandra's guardrail on losing whole tables.
fn check_drop_allowed(server: &Server) -> Result<()> {
    if server.settings.drop_truncate_table_enabled {
        return Ok(());
    }
    Err(Failure::invalid(
        "Guardrail drop_truncate_table_enabled violated: DROP and TRUNCATE TABLE functionality is \
         not allowed",
    ))
}

/// What a statement does with its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// High bit of [`Compiled::achievable`]: the keyspaces have durable writes.
const DURABLE: u32 = 1 << 31;

/// Checks the consistency level against the replicas there are, and tells whether writes are
/// durable. The answer is remembered until the next epoch.
pub(crate) fn check(
    server: &Server,
    compiled: &Compiled,
    consistency: Consistency,
    access: Access,
) -> Result<bool> {
    let snapshot = server.snapshot();
    let (epoch, known) = compiled.achievable.get();
    let bit = 1 << consistency.number();
    if epoch == snapshot.epoch && known & bit != 0 {
        return Ok(known & DURABLE != 0);
    }
    let known = if epoch == snapshot.epoch { known } else { 0 };
    let durable = check_tables(&snapshot, &compiled.plan, consistency, access)?;
    let mask = known | bit | if durable { DURABLE } else { 0 };
    compiled.achievable.set((snapshot.epoch, mask));
    Ok(durable)
}

fn check_tables(
    snapshot: &ClusterSnapshot,
    plan: &Plan,
    consistency: Consistency,
    access: Access,
) -> Result<bool> {
    match (access, consistency) {
        (Access::Read, Consistency::Any) => {
            return Err(Failure::invalid("ANY ConsistencyLevel is only supported for writes"));
        }
        (Access::Write, Consistency::Serial | Consistency::LocalSerial) => {
            return Err(Failure::invalid(
                "You must use conditional updates for serializable writes",
            ));
        }
        _ => {}
    }
    // One keyspace with durable writes is enough: a log record too many harms nobody.
    let mut durable = false;
    for (id, _) in &plan.tables {
        let keyspace = snapshot
            .schema
            .table_by_id(*id)
            .and_then(|table| snapshot.schema.keyspace(&table.keyspace));
        let Some(keyspace) = keyspace else {
            return Err(Failure::invalid("the table was dropped"));
        };
        durable |= keyspace.params.durable_writes;
        snapshot
            .check_consistency(keyspace, level(consistency), access == Access::Write)
            .map_err(|error| Failure::replication(error, consistency))?;
    }
    Ok(durable)
}

fn level(consistency: Consistency) -> cluster::Consistency {
    match consistency {
        Consistency::Any => cluster::Consistency::Any,
        Consistency::One => cluster::Consistency::One,
        Consistency::Two => cluster::Consistency::Two,
        Consistency::Three => cluster::Consistency::Three,
        Consistency::Quorum => cluster::Consistency::Quorum,
        Consistency::All => cluster::Consistency::All,
        Consistency::LocalQuorum => cluster::Consistency::LocalQuorum,
        Consistency::EachQuorum => cluster::Consistency::EachQuorum,
        Consistency::Serial => cluster::Consistency::Serial,
        Consistency::LocalSerial => cluster::Consistency::LocalSerial,
        Consistency::LocalOne => cluster::Consistency::LocalOne,
        Consistency::NodeLocal => cluster::Consistency::NodeLocal,
    }
}

/// One encoded mutation to apply.
#[derive(Clone, Copy)]
struct Write<'b> {
    token: Token,
    bytes: &'b [u8],
    durable: bool,
}

type Writes<'b> = SmallVec<[Write<'b>; 1]>;

/// How writes are answered.
struct WriteOrder {
    consistency: Consistency,
    write_type: WriteType,
    warnings: Vec<String>,
    /// `USING TIMEOUT`.
    timeout_nanos: Option<u64>,
}

/// Applies mutations: at once when this shard owns them all, else as a future.
fn write(writes: &[Write<'_>], order: WriteOrder, cx: &Cx<'_>) -> Result<Step> {
    let coordinator = &cx.server.coordinator;
    let WriteOrder { consistency, write_type, warnings, timeout_nanos } = order;
    let at_once = cx.ticket.trace.is_none() && writes.iter().all(|w| coordinator.is_local(w.token));
    if at_once {
        match coordinator.store().admit_write() {
            Ok(()) => {
                for write in writes {
                    coordinator.apply_local(write.bytes, write.durable).map_err(|error| {
                        let id = cx.server.log_failure("write", &error);
                        Failure::write(&error, consistency, write_type, id)
                    })?;
                }
                let ticket = cx.ticket.clone();
                return Ok(Step::Held(HeldWrite { ticket, consistency, write_type, warnings }));
            }
            // Room may come: wait for it below.
            Err(StoreError::Overloaded { .. }) => {}
            Err(error) => {
                let id = cx.server.log_failure("write", &error);
                return Err(Failure::write(&error, consistency, write_type, id));
            }
        }
    }
    let owned: Vec<(Token, Vec<u8>, bool)> =
        writes.iter().map(|w| (w.token, w.bytes.to_vec(), w.durable)).collect();
    let (server, session) = (cx.server.clone(), cx.session.clone());
    let ticket = cx.ticket.clone();
    Ok(Step::Waits(Box::pin(async move {
        let timeout = timeout_nanos.map_or(server.settings.write_timeout, Duration::from_nanos);
        let deadline = server.rt.now() + timeout;
        ticket.note(|| "Determining replicas for mutation".to_owned());
        let applied = server.rt.timeout(deadline, apply_all(&server, &ticket, owned)).await;
        let result = match applied {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                let id = server.log_failure("write", &error);
                Err(Failure::write(&error, consistency, write_type, id))
            }
            Err(_) => Err(Failure::WriteTimeout { consistency, write_type }),
        };
        finish(&server, &session, &ticket, result, |out| {
            let warnings: Vec<&str> = warnings.iter().map(String::as_str).collect();
            session.respond_void(out, &ticket, &warnings);
            Ok(())
        })
        .await
    })))
}

/// Applies mutations wherever they belong and waits until all may be acknowledged.
pub(crate) async fn apply_all(
    server: &Rc<Server>,
    ticket: &Ticket,
    writes: Vec<(Token, Vec<u8>, bool)>,
) -> std::result::Result<(), StoreError> {
    let coordinator = &server.coordinator;
    let mut remote = Vec::new();
    let mut any_local = false;
    if writes.iter().any(|(token, ..)| coordinator.is_local(*token)) {
        if let Err(StoreError::Overloaded { .. }) = coordinator.store().admit_write() {
            coordinator.store().wait_for_room().await?;
        }
        coordinator.store().admit_write()?;
    }
    for (token, bytes, durable) in writes {
        if coordinator.is_local(token) {
            ticket.note(|| "Appending to commitlog".to_owned());
            coordinator.apply_local(&bytes, durable)?;
            ticket.note(|| "Adding to memtable".to_owned());
            any_local = true;
        } else {
            let owner = coordinator.owner(token);
            ticket.note(|| format!("Sending mutation to shard {}", owner.0));
            remote.push(coordinator.apply(token, bytes, durable));
        }
    }
    let local = async { if any_local { coordinator.commit().await } else { Ok(()) } };
    let remote = async {
        for result in join_all(remote).await {
            result?;
        }
        Ok(())
    };
    let (local, remote) = join(local, remote).await;
    local.and(remote)
}

/// Runs both to their ends.
async fn join<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let (mut from_a, mut from_b) = (None, None);
    std::future::poll_fn(|cx| {
        use std::task::Poll;
        if from_a.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(cx)
        {
            from_a = Some(output);
        }
        if from_b.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(cx)
        {
            from_b = Some(output);
        }
        match (from_a.take(), from_b.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (from_a, from_b) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}

/// Runs all at the same time to their ends.
async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.into_iter().map(|f| (Some(Box::pin(f)), None)).collect();
    std::future::poll_fn(|cx| {
        use std::task::Poll;
        let mut waits = false;
        for (future, output) in &mut running {
            if let Some(f) = future {
                match f.as_mut().poll(cx) {
                    Poll::Ready(value) => {
                        *output = Some(value);
                        *future = None;
                    }
                    Poll::Pending => waits = true,
                }
            }
        }
        if waits { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
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
        let changed = match &compiled.plan.kind {
            PlanKind::Ddl(plan) => schema_change::execute(&server, plan).await,
            _ => Err(server.internal_failure("a plan of another kind")),
        };
        let (result, changed) = match changed {
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

fn truncate(compiled: Rc<Compiled>, cx: &Cx<'_>) -> Waiting {
    let (server, session) = (cx.server.clone(), cx.session.clone());
    let ticket = cx.ticket.clone();
    Box::pin(async move {
        let result = match &compiled.plan.kind {
            PlanKind::Truncate(plan) => schema_change::truncate(&server, &plan.table).await,
            _ => Err(server.internal_failure("a plan of another kind")),
        };
        finish(&server, &session, &ticket, result, |out| {
            session.respond_void(out, &ticket, &[]);
            Ok(())
        })
        .await
    })
}

/// Plans a statement and puts it into this shard's cache.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn prepare_here(
    server: &Rc<Server>,
    text: &str,
    keyspace: Option<&str>,
) -> Result<(Rc<Prepared>, bool)> {
    let statement = parse(text)?;
    let is_qualified = is_fully_qualified(&statement.kind);
    let id = id_of(text, keyspace.filter(|_| !is_qualified));
    if let Some(known) = server.prepared.get(&id)
        && current(server, &known).is_ok()
    {
        let compiled = known.compiled.borrow().clone();
        known.described_as.set(compiled.result.as_ref().map(|r| *r.id()));
        return Ok((known, false));
    }
    let compiled = {
        let snapshot = server.snapshot();
        Compiled::new(&statement, &snapshot, keyspace, &server.plan_limits, server.rt.wall())?
    };
    let markers = compiled.plan.binds.len();
    if markers > usize::from(u16::MAX) {
        return Err(Failure::invalid(format!(
            "Too many markers(?). {markers} markers exceed the allowed maximum of 65535"
        )));
    }
    let kept = keyspace.filter(|_| !is_qualified);
    let prepared = Rc::new(Prepared::new(id, text, kept, is_qualified, compiled));
    let evicted = server.prepared.insert(prepared.clone());
    internal::forget_prepared(server, evicted);
    let count = i64::try_from(server.prepared.len()).unwrap_or(i64::MAX);
    server.counters.prepared_statements.set(count);
    Ok((prepared, true))
}

fn prepare(text: &str, keyspace: Option<&str>, cx: &Cx<'_>) -> Result<Step> {
    check_keyspace(cx.server, keyspace)?;
    let used = cx.session.keyspace.borrow().clone();
    let keyspace = keyspace.or(used.as_deref());
    let (prepared, is_new) = prepare_here(cx.server, text, keyspace)?;
    cx.server.counters.prepared.inc();
    let warning = if prepared.is_qualified || cx.session.warned_use.replace(true) {
        None
    } else {
        Some(use_warning(&prepared, keyspace))
    };
    let (server, session) = (cx.server.clone(), cx.session.clone());
    let ticket = cx.ticket.clone();
    let keyspace = keyspace.map(str::to_owned);
    Ok(Step::Waits(Box::pin(async move {
        let result = spread(&server, &prepared, keyspace, is_new).await;
        finish(&server, &session, &ticket, result, |out| {
            put_prepared(&session, &ticket, &prepared, warning.as_deref(), out)
        })
        .await
    })))
}

/// Makes a prepared statement known to the other shards and to the next start.
pub(crate) async fn spread(
    server: &Rc<Server>,
    prepared: &Rc<Prepared>,
    keyspace: Option<String>,
    is_new: bool,
) -> Result<()> {
    let others =
        (0..server.rt.shard_count()).map(stdx::ShardId).filter(|shard| *shard != server.rt.shard());
    let mut calls = Vec::new();
    for shard in others {
        let (text, keyspace) = (prepared.text.to_string(), keyspace.clone());
        let request = crate::mesh::ServerRequest::Prepare { text, keyspace };
        calls.push(server.mesh.calls.call(&server.rt, shard, request));
    }
    for answer in join_all(calls).await {
        if answer.is_err() {
            return Err(Failure::overloaded("a shard takes no more requests"));
        }
    }
    if is_new {
        let id = &prepared.id;
        let kept = prepared.keyspace.as_deref();
        if let Err(error) = internal::store_prepared(server, id, kept, &prepared.text).await {
            // It works until a restart; the client would then prepare again.
            server.log_failure("storing a prepared statement", &error);
        }
    }
    Ok(())
}

fn put_prepared(
    session: &Session,
    ticket: &Ticket,
    prepared: &Prepared,
    warning: Option<&str>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let compiled = prepared.compiled.borrow().clone();
    let version = session.version();
    let markers = compiled.markers.encoded(version)?;
    let result = match &compiled.result {
        Some(result) => Some(result.encoded(version)?),
        None => None,
    };
    let nothing = crate::wire_type::Description::new(Vec::new());
    let metadata_id = *compiled.result.as_ref().unwrap_or(&nothing).id();
    let answer = PreparedResponse {
        id: &prepared.id,
        result_metadata_id: &metadata_id,
        markers: &markers.block,
        partition_key_indexes: compiled.plan.pk_bind_indices().unwrap_or_default(),
        extra_flags: 0,
        columns: result.as_ref().map(|r| &r.block),
    };
    let negotiated = session.negotiated.get();
    session.respond(out, ticket, Opcode::Result, warning.as_slice(), |body| {
        response::put_prepared(body, negotiated, &answer)
    })
}

fn use_warning(prepared: &Prepared, used: Option<&str>) -> String {
    let id: String = prepared.id.iter().map(|b| format!("{b:02x}")).collect();
    let used = used.unwrap_or("null");
    format!(
        "`USE <keyspace>` with prepared statements is considered to be an anti-pattern due to \
         ambiguity in non-qualified table names. Please consider removing instances of \
         `Session#setKeyspace(<keyspace>)`, `Session#execute(\"USE <keyspace>\")` and \
         `cluster.newSession(<keyspace>)` from your code, and always use fully qualified table \
         names (e.g. <keyspace>.<table>). Keyspace used: {used}, statement keyspace: {used}, \
         statement id: {id}"
    )
}

fn batch(request: &Batch<'_>, cx: &mut Cx<'_>) -> Result<Step> {
    cx.server.counters.batches.inc();
    let parameters = &request.parameters;
    if let Some(trace) = &cx.ticket.trace {
        trace.describe("Execute batch of CQL3 queries", trace_parameters(parameters));
    }
    let used = cx.session.keyspace.borrow().clone();
    check_keyspace(cx.server, parameters.keyspace)?;
    let keyspace = parameters.keyspace.or(used.as_deref());
    let mut compiled: SmallVec<[Rc<Compiled>; 8]> = SmallVec::new();
    let mut values: SmallVec<[Values<'_>; 8]> = SmallVec::new();
    for statement in request.statements.iter() {
        let one = match statement.query {
            BatchQuery::Prepared(id) => {
                let Some(prepared) = cx.server.prepared.get(id) else {
                    return Err(Failure::Unprepared(id.to_vec()));
                };
                current(cx.server, &prepared)?
            }
            BatchQuery::Text(text) => {
                let snapshot = cx.server.snapshot();
                let (limits, now) = (&cx.server.plan_limits, cx.server.rt.wall());
                Rc::new(Compiled::new(&parse(text)?, &snapshot, keyspace, limits, now)?)
            }
        };
        let given: Values<'_> = statement.values.values().map(plan_value).collect();
        let markers = one.plan.binds.len();
        if given.len() != markers {
            return Err(Failure::invalid(format!(
                "There were {markers} markers(?) in CQL but {} bound variables",
                given.len()
            )));
        }
        compiled.push(one);
        values.push(given);
    }
    let mut durable = false;
    let mut parts = Vec::with_capacity(compiled.len());
    for (one, given) in compiled.iter().zip(&values) {
        let PlanKind::Modify(plan) = &one.plan.kind else {
            return Err(Failure::invalid(
                "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are \
                 allowed.",
            ));
        };
        durable |= check(cx.server, one, parameters.consistency, Access::Write)?;
        parts.push((plan, given.as_slice()));
    }
    let kind = match request.kind {
        BatchKind::Logged => ast::BatchKind::Logged,
        BatchKind::Unlogged => ast::BatchKind::Unlogged,
        BatchKind::Counter => ast::BatchKind::Counter,
    };
    let options = options_of(cx.server, cx.session, parameters);
    if parts.iter().any(|(plan, _)| plan.needs_read()) {
        let consistency = parameters.consistency;
        let order = Order { consistency, durable, timeout_nanos: None, options: &options };
        let statements = compiled.iter().zip(values.iter().map(|v| v.as_slice()));
        return ListWrite::batch(kind, statements, &order).run(cx);
    }
    let mut encoded = cx.server.scratch.borrow_mut();
    encoded.clear();
    let bound =
        cql_plan::batch::bind_batch(kind, &parts, &options, &cx.server.plan_limits, &mut encoded)?;
    let writes: Writes<'_> = bound
        .mutations
        .iter()
        .map(|m| Write {
            token: m.token,
            bytes: encoded.get(m.range.clone()).unwrap_or_default(),
            durable,
        })
        .collect();
    let write_type = batch_type(kind, writes.len());
    let order = WriteOrder {
        consistency: parameters.consistency,
        write_type,
        warnings: bound.warnings,
        timeout_nanos: None,
    };
    write(&writes, order, cx)
}

/// What a failed batch is called: one partition is one write, as in Cassandra.
pub(crate) fn batch_type(kind: ast::BatchKind, partitions: usize) -> WriteType {
    match kind {
        ast::BatchKind::Logged if partitions > 1 => WriteType::Batch,
        ast::BatchKind::Unlogged if partitions > 1 => WriteType::UnloggedBatch,
        ast::BatchKind::Logged | ast::BatchKind::Unlogged => WriteType::Simple,
        ast::BatchKind::Counter => WriteType::Counter,
    }
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
