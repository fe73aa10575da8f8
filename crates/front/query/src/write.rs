//! Writes: the one way of INSERT, UPDATE, DELETE and both forms of BATCH from their values to an answer.
//!
//! Read lists first if need be ([`crate::list_write`]), bind, apply ([`crate::mutations`]). Applied at once when
//! this shard owns all of it, else as a future. Writes to counters are [`crate::counter_write`]'s.

use crate::context::{Cx, HeldWrite, Step, finish_void};
use crate::counter_write;
use crate::disk_usage;
use crate::failure::{Failure, Result};
use crate::guardrails::check_timestamps;
use crate::list_write::ListWrite;
use crate::modification::{Checked, Modification, WriteOrder, with_calls_evaluated};
use crate::mutations::{bind, carry_out};
use crate::sink::ResultSink;
use coordinator::{Origin, ReplicaMutation};
use cql_plan::FoundLists;
use cql_wire::WriteType;
use smallvec::SmallVec;
use store::StoreError;

type Writes<'b> = SmallVec<[ReplicaMutation<&'b [u8]>; 1]>;

/// Runs INSERT, UPDATE, DELETE and batches.
///
/// # Errors
/// A [`Failure`]; nothing was applied.
pub(crate) fn modify<S: ResultSink>(
    request: &Modification<'_>,
    cx: &Cx<'_, S>,
) -> Result<Step<S::Answer>> {
    with_calls_evaluated(request, |request| modify_evaluated(request, cx))
}

fn modify_evaluated<S: ResultSink>(
    request: &Modification<'_>,
    cx: &Cx<'_, S>,
) -> Result<Step<S::Answer>> {
    request.statements.note_tables(&cx.executor.latencies);
    let timeout_nanos = request.statements.timeout_nanos(&request.options)?;
    disk_usage::check(cx.executor, request, cx.ticket.watch())?;
    let mut warnings = check_timestamps(cx.executor, request)?;
    if request.statements.takes_detour() {
        let checked = Checked { timeout_nanos, warnings };
        if request.statements.is_counter() {
            return counter_write::run(request, checked, cx);
        }
        return ListWrite::new(cx.executor, request, checked).run(cx);
    }
    let mut encoded = cx.executor.scratch.borrow_mut();
    encoded.clear();
    let found = FoundLists::default();
    let (statements, options) = (&request.statements, &request.options);
    let bound = bind(cx.executor, statements, options, &found, &mut encoded)?;
    let writes: Writes<'_> = bound
        .mutations
        .iter()
        .map(|m| ReplicaMutation {
            token: m.token,
            bytes: encoded.get(m.range.clone()).unwrap_or_default(),
            durable: request.allowed.durable,
        })
        .collect();
    warnings.extend(bound.warnings);
    let order = WriteOrder {
        consistency: request.consistency,
        write_type: bound.write_type,
        warnings,
        timeout_nanos,
        snapshot: request.allowed.snapshot(cx.executor),
    };
    write(&writes, order, cx)
}

/// Applies mutations: at once when this shard owns them all, else as a future.
fn write<S: ResultSink>(
    writes: &[ReplicaMutation<&[u8]>],
    order: WriteOrder,
    cx: &Cx<'_, S>,
) -> Result<Step<S::Answer>> {
    let coordinator = &cx.executor.coordinator;
    let at_once = order.write_type != WriteType::Batch
        && order.snapshot.is_none()
        && cx.ticket.trace.is_none()
        && writes.iter().all(|w| coordinator.owns(w));
    if at_once {
        let failed = |error: &StoreError| {
            let id = cx.executor.log_failure("write", error);
            Failure::write(error, order.consistency, order.write_type, id)
        };
        match coordinator.replica().admit(Origin::Client, None) {
            Ok(admitted) => {
                for write in writes {
                    let applied = coordinator.replica().apply(write, admitted);
                    applied.map_err(|error| failed(&error))?;
                }
                let ticket = cx.ticket.clone();
                let WriteOrder { consistency, write_type, warnings, .. } = order;
                return Ok(Step::Held(HeldWrite { ticket, consistency, write_type, warnings }));
            }
            // Room may come: wait for it below.
            Err(StoreError::Overloaded { .. }) => {}
            Err(error) => return Err(failed(&error)),
        }
    }
    let owned: Vec<ReplicaMutation> = writes.iter().map(ReplicaMutation::to_owned).collect();
    let (executor, sink) = (cx.executor.clone(), cx.sink.clone());
    let ticket = cx.ticket.clone();
    Ok(Step::Waits(Box::pin(async move {
        let result = carry_out(&executor, &ticket, owned, &order).await;
        finish_void(&executor, &sink, &ticket, result, &order.warnings).await
    })))
}
