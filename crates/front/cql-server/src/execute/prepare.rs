//! PREPARE: a statement becomes known to this shard, the others and the next start.

use super::write::join_all;
use super::{Cx, Step, check_keyspace, current, finish, without_password};
use crate::conditional::is_conditional;
use crate::failure::{Failure, Result};
use crate::internal;
use crate::prepared::{Compiled, Prepared, id_of, is_fully_qualified, parse, plan_bytes};
use crate::server::Server;
use crate::session::{Session, Ticket};
use cql_plan::plan::PlanKind;
use cql_wire::Opcode;
use cql_wire::response::{self, PreparedResponse};
use std::rc::Rc;

/// Plans a statement and puts it into this shard's cache.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn prepare_here(
    server: &Rc<Server>,
    text: &str,
    keyspace: Option<&str>,
) -> Result<(Rc<Prepared>, bool)> {
    // Before it takes that memory.
    server.prepared.check_size(text, plan_bytes(text))?;
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
    server.prepared.check_size(text, prepared.bytes)?;
    let evicted = server.prepared.insert(prepared.clone());
    server.counters.prepared_evicted.add(evicted.len() as u64);
    internal::forget_prepared(server, evicted);
    let count = i64::try_from(server.prepared.len()).unwrap_or(i64::MAX);
    server.counters.prepared_statements.set(count);
    Ok((prepared, true))
}

/// The plan of a statement by its text, out of this shard's cache or into it.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn prepared_here(
    server: &Rc<Server>,
    text: &str,
    keyspace: Option<&str>,
) -> Result<Rc<Compiled>> {
    if let Some(known) = server.prepared.get(&id_of(text, keyspace)) {
        return current(server, &known);
    }
    let (prepared, _) = prepare_here(server, text, keyspace)?;
    let compiled = prepared.compiled.borrow().clone();
    Ok(compiled)
}

pub(super) fn prepare(text: &str, keyspace: Option<&str>, cx: &Cx<'_>) -> Result<Step> {
    if let Some(trace) = &cx.ticket.trace {
        let query = ("query".to_owned(), without_password(text).into_owned());
        trace.describe("Preparing CQL3 query", vec![query]);
    }
    check_keyspace(cx.server, keyspace)?;
    let used = cx.session.keyspace.borrow().clone();
    let keyspace = keyspace.or(used.as_deref());
    let (prepared, is_new) = prepare_here(cx.server, text, keyspace)?;
    if let Some(watch) = cx.ticket.watch()
        && let PlanKind::Select(plan) = &prepared.compiled.borrow().plan.kind
        && plan.groups()
    {
        watch.group_by()?;
    }
    cx.server.counters.prepared.inc();
    // What is known already is answered without a word. Source: `QueryProcessor.prepare`.
    let warns = is_new && !prepared.is_qualified && !cx.session.warned_use.replace(true);
    let warning = warns.then(|| use_warning(&prepared, keyspace));
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
    // Statements about roles may hold a password.
    let is_kept = !matches!(prepared.compiled.borrow().plan.kind, PlanKind::Auth(_));
    if is_new && is_kept {
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
        // Tells drivers that ask for it to send all of a partition to the same node: proposers
        // that do not meet cost each other no rounds.
        extra_flags: if is_conditional(&compiled.plan) { cql_wire::scylla::LWT_MARK } else { 0 },
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
