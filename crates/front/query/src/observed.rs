//! Records of requests that arrived while observers are installed.
//!
//! Never: what observers do with them ([`crate::observers`]).

use crate::client::ClientState;
use crate::executor::Executor;
use crate::failure::{Failure, Result};
use crate::observers::{
    ObservedRequest, ObservedStatement, ObservedValue, RequestDetails, RequestRecord,
};
use crate::prepare::current;
use crate::prepared::{Compiled, parse};
use cql_wire::{BatchQuery, BoundValue, ProtocolVersion, Request};
use std::rc::Rc;
use stdx::{Instant, WallMicros};

/// Describes a request that arrived at an instant; `None` for kinds that are not observed.
///
/// # Errors
/// An observer cannot take another request.
pub fn observe(
    executor: &Rc<Executor>,
    client: &ClientState,
    request: &Request<'_>,
    arrived: Instant,
) -> Result<Option<RequestRecord>> {
    let Some(mut record) = record(executor, client, request) else { return Ok(None) };
    record.began = executor.observers.wall_at(&executor.rt, arrived);
    record.answered = record.began;
    if !executor.observers.admit() {
        return Err(Failure::overloaded(
            "the log of requests cannot keep up; the request was not executed",
        ));
    }
    if executor.observers.want_details() {
        record.details = details(executor, client, request).map(Box::new);
    }
    Ok(Some(record))
}

/// Describes a request without its times; `None` for kinds that are not observed.
fn record(
    executor: &Rc<Executor>,
    client: &ClientState,
    request: &Request<'_>,
) -> Option<RequestRecord> {
    let text = |text: &str| ObservedStatement::Text(text.into());
    let by_id = |id: &[u8]| match executor.observers.prepared(&executor.prepared, id) {
        Some(prepared) => ObservedStatement::Prepared(prepared),
        None => ObservedStatement::Unknown,
    };
    let mut planned = 1;
    let (observed, keyspace, consistency) = match request {
        Request::Startup(_) | Request::AuthResponse(_) => (ObservedRequest::Login, None, None),
        Request::Options | Request::Register(_) => return None,
        Request::Query { query, parameters } => {
            let observed = ObservedRequest::Query(text(query));
            (observed, parameters.keyspace, Some(parameters.consistency))
        }
        Request::Prepare { query, keyspace } => {
            (ObservedRequest::Prepare(text(query)), *keyspace, None)
        }
        Request::Execute { id, parameters, .. } => {
            let observed = ObservedRequest::Execute(by_id(id));
            (observed, parameters.keyspace, Some(parameters.consistency))
        }
        Request::Batch(batch) => {
            let statements = batch.statements.iter().map(|statement| match statement.query {
                BatchQuery::Text(query) => text(query),
                BatchQuery::Prepared(id) => by_id(id),
            });
            let statements: Vec<ObservedStatement> = statements.collect();
            planned = statements.len();
            let observed = ObservedRequest::Batch { kind: batch.kind, statements };
            (observed, batch.parameters.keyspace, Some(batch.parameters.consistency))
        }
    };
    Some(RequestRecord {
        request: observed,
        own_keyspace: keyspace.map(Into::into),
        session_keyspace: client.keyspace.borrow().clone(),
        consistency,
        details: None,
        began: WallMicros(0),
        answered: WallMicros(0),
        planned,
        failure: None,
    })
}

/// Describes values and options; `None` for requests without them.
fn details(
    executor: &Executor,
    client: &ClientState,
    request: &Request<'_>,
) -> Option<RequestDetails> {
    let (parameters, batch_values) = match request {
        Request::Query { parameters, .. } | Request::Execute { parameters, .. } => {
            (*parameters, Vec::new())
        }
        Request::Batch(batch) => {
            let statements = batch.statements.iter();
            let values = statements.map(|one| one.values.values().map(observed_value).collect());
            (batch.parameters, values.collect())
        }
        _ => return None,
    };
    // Some clients set flags of version 5 in older versions.
    let needs_v5 = parameters.keyspace.is_some() || parameters.now_in_seconds.is_some();
    let version = match client.negotiated.get().version {
        version if needs_v5 => version.max(ProtocolVersion::V5),
        version => version,
    };
    let mut options = Vec::new();
    parameters.encode(version, &mut options).ok()?;
    Some(RequestDetails {
        protocol_version: version.number(),
        options,
        batch_values,
        generated_timestamp: None,
        lacks_timestamp: parameters.timestamp.is_none(),
        timestamp_before: executor.last_timestamp.get(),
        lacks_now: parameters.now_in_seconds.is_none(),
    })
}

fn observed_value(value: BoundValue<'_>) -> ObservedValue {
    match value {
        BoundValue::Null => ObservedValue::Null,
        BoundValue::Unset => ObservedValue::Unset,
        BoundValue::Bytes(bytes) => ObservedValue::Bytes(bytes.to_vec()),
    }
}

/// Records the timestamp that was generated for a request. To be called when the request has begun, before another
/// one of the shard begins.
pub fn note_generated(record: &mut RequestRecord, executor: &Executor) {
    let Some(details) = &mut record.details else { return };
    let last = executor.last_timestamp.get();
    if details.lacks_timestamp && last != details.timestamp_before {
        details.generated_timestamp = Some(last);
    }
}

/// Records how much of a request that failed before it ran can be planned: Cassandra's log depends on it.
pub fn note_planned(record: &mut RequestRecord, executor: &Rc<Executor>, request: &Request<'_>) {
    let keyspace = record.keyspace().cloned();
    let count = |statement: &ObservedStatement| {
        let compiled = match statement {
            ObservedStatement::Text(text) => plan(executor, text, keyspace.as_deref()),
            ObservedStatement::Prepared(prepared) => current(executor, prepared),
            ObservedStatement::Unknown => return None,
        };
        Some(compiled.ok()?.header().inputs.binds.len())
    };
    match (&record.request, request) {
        (
            ObservedRequest::Query(statement) | ObservedRequest::Prepare(statement),
            Request::Query { .. } | Request::Prepare { .. },
        ) => record.planned = usize::from(count(statement).is_some()),
        (ObservedRequest::Batch { statements, .. }, Request::Batch(batch)) => {
            let given = batch.statements.iter().map(|statement| statement.values.len());
            let pairs = statements.iter().zip(given);
            let planned = pairs.take_while(|(one, given)| count(one) == Some(*given)).count();
            record.planned = planned;
        }
        _ => {}
    }
}

fn plan(executor: &Rc<Executor>, text: &str, keyspace: Option<&str>) -> Result<Compiled> {
    let snapshot = executor.snapshot();
    let (limits, now) = (&executor.plan_limits, executor.rt.wall());
    Ok(Compiled::new(&parse(text)?, &snapshot, keyspace, limits, now)?)
}
