//! Writes to tables with counters: bound to increments, each partition's given to its leader.
//!
//! Owns: the wait of such a request for its leader, and its timeout. Never: the choice of a leader,
//! the work of a leader ([`coordinator::Coordinator::count`]).

use crate::context::{Cx, Step, finish_void};
use crate::executor::Executor;
use crate::failure::{Failure, Result, level};
use crate::modification::{Checked, Modification, WriteOrder};
use crate::mutations::{bind, join_all};
use crate::settings::Timeout;
use crate::sink::ResultSink;
use crate::ticket::Ticket;
use cluster::ClusterSnapshot;
use coordinator::CounterWrite;
use coordinator::ReplicaMutation;
use cql_plan::FoundLists;
use cql_wire::WriteType;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Binds a modification of counters and sends it to a leader.
///
/// # Errors
/// Invalid values.
pub(crate) fn run<S: ResultSink>(
    request: &Modification<'_>,
    checked: Checked,
    cx: &Cx<'_, S>,
) -> Result<Step<S::Answer>> {
    let mut encoded = Vec::new();
    let found = FoundLists::default();
    let Checked { timeout_nanos, mut warnings } = checked;
    let (statements, options) = (&request.statements, &request.options);
    let bound = bind(cx.executor, statements, options, &found, &mut encoded)?;
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
        snapshot: Some(cx.executor.snapshot().clone()),
    };
    let (executor, sink) = (cx.executor.clone(), cx.sink.clone());
    let ticket = cx.ticket.clone();
    Ok(Step::Waits(Box::pin(async move {
        let result = carry_out(&executor, &ticket, writes, &order).await;
        finish_void(&executor, &sink, &ticket, result, &order.warnings).await
    })))
}

async fn carry_out(
    executor: &Rc<Executor>,
    ticket: &Ticket,
    writes: Vec<ReplicaMutation>,
    order: &WriteOrder,
) -> Result<()> {
    let usual = executor.timeouts.get(Timeout::CounterWrite);
    let timeout = order.timeout_nanos.map_or(usual, Duration::from_nanos);
    let deadline = executor.rt.now() + timeout;
    let Some(snapshot): &Option<Arc<ClusterSnapshot>> = &order.snapshot else {
        return Err(executor.internal_failure("a counter write without metadata"));
    };
    ticket.note(|| "Determining replicas for mutation".to_owned());
    let leading = writes.into_iter().map(|mutation| {
        let write = CounterWrite {
            snapshot: snapshot.clone(),
            consistency: level(order.consistency),
            mutation,
            deadline,
        };
        executor.coordinator.counters().count(write, ticket.request_trace())
    });
    let all = join_all(leading.collect());
    // A node that is alone keeps no deadline after its increments are applied.
    let done = executor.rt.timeout(deadline + GRACE, all).await;
    let Ok(results) = done else {
        let &WriteOrder { consistency, write_type, .. } = order;
        return Err(Failure::WriteTimeout { consistency, write_type });
    };
    for result in results {
        result.map_err(|error| {
            let log = |error: &store::StoreError| executor.log_failure("counter write", error);
            Failure::replicated(error, order.consistency, order.write_type, snapshot, log)
        })?;
    }
    Ok(())
}

/// Extra time for the coordinator, which checks the deadline itself and knows the replicas that
/// answered.
const GRACE: Duration = Duration::from_millis(50);
