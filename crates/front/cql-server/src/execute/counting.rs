//! Writes to tables with counters: bound to increments, each partition's given to its leader.
//!
//! Owns: what such a request waits for, and for how long. Never: who leads, or what a leader does
//! ([`coordinator::Coordinator::count`]).

use super::write::{Modification, WriteOrder, bind, join_all};
use super::{Cx, Step, finish};
use crate::failure::{Failure, Result, level};
use crate::server::Server;
use crate::session::Ticket;
use crate::settings::Timeout;
use cluster::ClusterSnapshot;
use coordinator::CounterWrite;
use coordinator::ReplicaMutation;
use cql_plan::FoundLists;
use cql_wire::WriteType;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Binds a modification of counters and has it led.
///
/// # Errors
/// What is wrong with the values.
pub(super) fn run(
    request: &Modification<'_>,
    (timeout_nanos, mut warnings): (Option<u64>, Vec<String>),
    cx: &Cx<'_>,
) -> Result<Step> {
    let mut encoded = Vec::new();
    let found = FoundLists::default();
    let statements = (request.statements, request.batch);
    let bound = bind(cx.server, statements, &request.options, &found, &mut encoded)?;
    warnings.extend(bound.warnings);
    let writes = bound.mutations.iter().map(|m| {
        let bytes = encoded.get(m.range.clone()).unwrap_or_default().to_vec();
        ReplicaMutation { token: m.token, bytes, durable: request.allowed.durable }
    });
    let writes = writes.collect();
    let order = WriteOrder {
        consistency: request.consistency,
        write_type: WriteType::Counter,
        warnings,
        timeout_nanos,
        snapshot: Some(cx.server.snapshot().clone()),
    };
    let (server, session) = (cx.server.clone(), cx.session.clone());
    let ticket = cx.ticket.clone();
    Ok(Step::Waits(Box::pin(async move {
        let result = carry_out(&server, &ticket, writes, &order).await;
        finish(&server, &session, &ticket, result, |out| {
            let warnings: Vec<&str> = order.warnings.iter().map(String::as_str).collect();
            session.respond_void(out, &ticket, &warnings);
            Ok(())
        })
        .await
    })))
}

async fn carry_out(
    server: &Rc<Server>,
    ticket: &Ticket,
    writes: Vec<ReplicaMutation>,
    order: &WriteOrder,
) -> Result<()> {
    let usual = server.timeouts.get(Timeout::CounterWrite);
    let timeout = order.timeout_nanos.map_or(usual, Duration::from_nanos);
    let deadline = server.rt.now() + timeout;
    let Some(snapshot): &Option<Arc<ClusterSnapshot>> = &order.snapshot else {
        return Err(server.internal_failure("a counter write without metadata"));
    };
    ticket.note(|| "Determining replicas for mutation".to_owned());
    let asked = (order.consistency, order.write_type);
    let leading = writes.into_iter().map(|mutation| {
        let write = CounterWrite {
            snapshot: snapshot.clone(),
            consistency: level(order.consistency),
            mutation,
            deadline,
        };
        server.coordinator.count(write, ticket.request_trace())
    });
    let all = join_all(leading.collect());
    // A node that is alone keeps no deadline after its increments are applied.
    let done = server.rt.timeout(deadline + GRACE, all).await;
    let Ok(results) = done else {
        let (consistency, write_type) = asked;
        return Err(Failure::WriteTimeout { consistency, write_type });
    };
    for result in results {
        result.map_err(|error| {
            let log = |error: &store::StoreError| server.log_failure("counter write", error);
            Failure::replicated(error, asked, snapshot, log)
        })?;
    }
    Ok(())
}

/// For the coordinator, which keeps the deadline itself and knows who has answered.
const GRACE: Duration = Duration::from_millis(50);
