//! PREPARE: a statement becomes known to this shard, the others and the next start.

use crate::context::{Cx, Step, finish};
use crate::executor::Executor;
use crate::failure::{Failure, Result};
use crate::internal_queries;
use crate::mutations::join_all;
use crate::password::without_password;
use crate::prepared::{
    Compiled, Prepared, Source, id_of, is_fully_qualified, parse, plan_bytes, source_of,
};
use crate::sink::ResultSink;
use std::rc::Rc;

/// Plans a statement and puts it into this shard's cache.
///
/// # Errors
/// A [`Failure`] for the client.
pub fn prepare_here(
    executor: &Rc<Executor>,
    text: &str,
    keyspace: Option<&str>,
) -> Result<(Rc<Prepared>, bool)> {
    // Before it takes that memory.
    executor.prepared.check_size(text, plan_bytes(text))?;
    let statement = parse(text)?;
    let is_qualified = is_fully_qualified(&statement.kind);
    let id = id_of(text, keyspace.filter(|_| !is_qualified));
    if let Some(known) = executor.prepared.get(&id)
        && current(executor, &known).is_ok()
    {
        let compiled = known.compiled.borrow().clone();
        known.described_as.set(compiled.result().map(|r| *r.id()));
        return Ok((known, false));
    }
    let compiled = {
        let snapshot = executor.snapshot();
        Compiled::new(&statement, &snapshot, keyspace, &executor.plan_limits, executor.rt.wall())?
    };
    let markers = compiled.header().inputs.binds.len();
    if markers > usize::from(u16::MAX) {
        return Err(Failure::invalid(format!(
            "Too many markers(?). {markers} markers exceed the allowed maximum of 65535"
        )));
    }
    let kept = keyspace.filter(|_| !is_qualified);
    let prepared = Rc::new(Prepared::new(id, text, kept, is_qualified, compiled));
    executor.prepared.check_size(text, prepared.bytes)?;
    let evicted = executor.prepared.insert(prepared.clone());
    executor.counters.prepared_evicted.add(evicted.len() as u64);
    internal_queries::forget_prepared(executor, evicted);
    let count = i64::try_from(executor.prepared.len()).unwrap_or(i64::MAX);
    executor.counters.prepared_statements.set(count);
    Ok((prepared, true))
}

/// The plan of a statement by its text, out of this shard's cache or into it.
///
/// # Errors
/// A [`Failure`] for the client.
pub(crate) fn prepared_here(
    executor: &Rc<Executor>,
    text: &str,
    keyspace: Option<&str>,
) -> Result<Compiled> {
    if let Some(known) = executor.prepared.get(&id_of(text, keyspace)) {
        return current(executor, &known);
    }
    let (prepared, _) = prepare_here(executor, text, keyspace)?;
    let compiled = prepared.compiled.borrow().clone();
    Ok(compiled)
}

/// Prepares a statement: it becomes known to this shard, the others and the next start.
///
/// # Errors
/// A [`Failure`] for the client.
pub fn prepare<S: ResultSink>(
    text: &str,
    keyspace: Option<&str>,
    cx: &Cx<'_, S>,
) -> Result<Step<S::Answer>> {
    if let Some(trace) = &cx.ticket.trace {
        let query = ("query".to_owned(), without_password(text).into_owned());
        trace.describe("Preparing CQL3 query", vec![query]);
    }
    check_keyspace(cx.executor, keyspace)?;
    let used = cx.sink.client().keyspace.borrow().clone();
    let keyspace = keyspace.or(used.as_deref());
    let (prepared, is_new) = prepare_here(cx.executor, text, keyspace)?;
    if let Some(watch) = cx.ticket.watch()
        && let Compiled::Select(statement) = &*prepared.compiled.borrow()
        && statement.plan.select.groups()
    {
        watch.group_by()?;
    }
    cx.executor.counters.prepared.inc();
    // A statement that is already prepared is answered without a warning. Source:
    // `QueryProcessor.prepare`.
    let warns = is_new && !prepared.is_qualified && !cx.sink.client().warned_use.replace(true);
    let warning = warns.then(|| use_warning(&prepared, keyspace));
    let (executor, sink) = (cx.executor.clone(), cx.sink.clone());
    let ticket = cx.ticket.clone();
    let keyspace = keyspace.map(str::to_owned);
    Ok(Step::Waits(Box::pin(async move {
        let result = spread(&executor, &prepared, keyspace, is_new).await;
        finish(&executor, &sink, &ticket, result, |out| {
            sink.prepared(out, &ticket, &prepared, warning.as_deref())
        })
        .await
    })))
}

/// Makes a prepared statement known to the other shards and to the next start.
pub(crate) async fn spread(
    executor: &Rc<Executor>,
    prepared: &Rc<Prepared>,
    keyspace: Option<String>,
    is_new: bool,
) -> Result<()> {
    let others = (0..executor.rt.shard_count())
        .map(stdx::ShardId)
        .filter(|shard| *shard != executor.rt.shard());
    let mut calls = Vec::new();
    for shard in others {
        let (text, keyspace) = (prepared.text.to_string(), keyspace.clone());
        calls.push(executor.shards.prepare(shard, text, keyspace));
    }
    for answer in join_all(calls).await {
        if answer.is_err() {
            return Err(Failure::overloaded("a shard takes no more requests"));
        }
    }
    // Statements about roles may hold a password.
    let is_kept = !prepared.compiled.borrow().is_about_roles();
    if is_new && is_kept {
        let id = &prepared.id;
        let kept = prepared.keyspace.as_deref();
        if let Err(error) =
            internal_queries::store_prepared(executor, id, kept, &prepared.text).await
        {
            // It works until a restart; the client would then prepare again.
            executor.log_failure("storing a prepared statement", &error);
        }
    }
    Ok(())
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

/// The plan of a statement of another node: kept like a client's when a client has prepared it there.
pub(crate) fn compile(executor: &Rc<Executor>, source: &Source) -> Result<Compiled> {
    let keyspace = source.keyspace.as_deref();
    if source.is_prepared {
        return prepared_here(executor, &source.text, keyspace);
    }
    let snapshot = executor.snapshot();
    let (limits, now) = (&executor.plan_limits, executor.rt.wall());
    Ok(Compiled::new(&parse(&source.text)?, &snapshot, keyspace, limits, now)?)
}

/// Checks that the keyspace of a request exists, whatever it is needed for.
pub(crate) fn check_keyspace(executor: &Executor, keyspace: Option<&str>) -> Result<()> {
    match keyspace {
        Some(name) if executor.snapshot().schema.keyspace(name).is_none() => {
            Err(Failure::invalid(format!("Keyspace '{name}' does not exist")))
        }
        _ => Ok(()),
    }
}

/// The plan of a prepared statement on the schema in use, made again where the schema moved on.
pub(crate) fn current(executor: &Rc<Executor>, prepared: &Rc<Prepared>) -> Result<Compiled> {
    let compiled = prepared.compiled.borrow().clone();
    let snapshot = executor.snapshot();
    if compiled.is_valid_for(&snapshot) {
        return Ok(compiled);
    }
    executor.counters.replanned.inc();
    let made = parse(&prepared.text).and_then(|statement| {
        let keyspace = prepared.keyspace.as_deref();
        let now = executor.rt.wall();
        Compiled::new(&statement, &snapshot, keyspace, &executor.plan_limits, now)
    });
    match made {
        Ok(mut compiled) => {
            compiled.set_source(source_of(&prepared.text, prepared.keyspace.as_ref()));
            *prepared.compiled.borrow_mut() = compiled.clone();
            Ok(compiled)
        }
        Err(_) => {
            // Like in Cassandra, the client prepares again and gets the error then.
            executor.prepared.remove(&prepared.id);
            Err(Failure::Unprepared(prepared.id.to_vec()))
        }
    }
}
