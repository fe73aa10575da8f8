//! Mutations of statements: bound, and applied where they belong.
//!
//! Logged batches of more than one mutation go through the batch log ([`coordinator::BatchLog`]); nothing else pays
//! for it. Where other nodes have the data too, the coordinator is given all of it ([`crate::replicas`]).

use crate::executor::Executor;
use crate::failure::{Failure, Result};
use crate::modification::{Statements, WithValues, WriteOrder};
use crate::replicas::{self, WriteTerms};
use crate::settings::Timeout;
use crate::ticket::Ticket;
use coordinator::{Origin, ReplicaMutation};
use cql_plan::plan::{BoundValue, ExecuteOptions};
use cql_plan::{FoundLists, ModifyPlan, bind_batch_found};
use cql_syntax::ast;
use cql_wire::{Consistency, WriteType};
use data::MutationRef;
use smallvec::SmallVec;
use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use stdx::ShardId;
use store::StoreError;

/// Bound statements: ranges in the buffer of encoded mutations.
pub(crate) struct Bound {
    pub(crate) mutations: SmallVec<[cql_plan::BoundMutation; 1]>,
    pub(crate) write_type: WriteType,
    pub(crate) warnings: Vec<String>,
}

/// Binds statements, given the lists that were read for them, and appends the mutations to `out`.
///
/// # Errors
/// A [`Failure`]: a value does not fit.
pub(crate) fn bind(
    executor: &Executor,
    statements: &Statements<'_>,
    options: &ExecuteOptions<'_>,
    found: &FoundLists,
    out: &mut Vec<u8>,
) -> Result<Bound> {
    let limits = &executor.plan_limits;
    let (bound, kind) = match statements {
        Statements::One(one) => {
            let mutations = one.statement.plan.bind_found(one.values, options, found, out)?;
            // `StorageProxy.mutate` uses the same write types for the partitions of one IN.
            let write_type = match mutations.len() {
                0 | 1 => WriteType::Simple,
                _ => WriteType::UnloggedBatch,
            };
            return Ok(Bound { mutations, write_type, warnings: Vec::new() });
        }
        Statements::TextBatch(WithValues { statement, values }) => {
            let plan = &statement.plan;
            (plan.bind_found(values, options, limits, found, out)?, plan.kind())
        }
        Statements::Message(kind, parts) => {
            let parts: Vec<(&ModifyPlan, &[BoundValue<'_>])> =
                parts.iter().map(|part| (&part.statement.plan, part.values)).collect();
            (bind_batch_found(*kind, &parts, options, limits, found, out)?, *kind)
        }
    };
    executor.counters.batch(kind, bound.mutations.len());
    let write_type = batch_type(kind, bound.mutations.len());
    Ok(Bound { mutations: bound.mutations, write_type, warnings: bound.warnings })
}

/// Returns the write type that a failed batch reports: one partition is one write, as in Cassandra.
/// `Batch` goes through the batch log.
fn batch_type(kind: ast::BatchKind, partitions: usize) -> WriteType {
    match kind {
        ast::BatchKind::Logged if partitions > 1 => WriteType::Batch,
        ast::BatchKind::Unlogged if partitions > 1 => WriteType::UnloggedBatch,
        ast::BatchKind::Logged | ast::BatchKind::Unlogged => WriteType::Simple,
        ast::BatchKind::Counter => WriteType::Counter,
    }
}

/// Applies mutations on their replicas, a logged batch through the batch log, and waits until they
/// may be acknowledged, not beyond the timeout.
///
/// # Errors
/// The failure for the client.
pub(crate) async fn carry_out(
    executor: &Rc<Executor>,
    ticket: &Ticket,
    writes: Vec<ReplicaMutation>,
    order: &WriteOrder,
) -> Result<()> {
    let usual = executor.timeouts.get(Timeout::Write);
    let timeout = order.timeout_nanos.map_or(usual, Duration::from_nanos);
    let deadline = executor.rt.now() + timeout;
    if let Some(snapshot) = &order.snapshot {
        // Boxed, so that writes of a node that is alone do not carry its size around.
        let (consistency, write_type) = (order.consistency, order.write_type);
        let terms = WriteTerms { consistency, write_type, snapshot, deadline };
        return Box::pin(replicas::write(executor, ticket, writes, &terms)).await;
    }
    let WriteOrder { mut consistency, write_type, .. } = *order;
    let stage = Cell::new(write_type);
    let work = async {
        if write_type == WriteType::Batch {
            ticket.note(|| "Determining replicas for atomic batch".to_owned());
            apply_logged(executor, ticket, writes, &stage).await
        } else {
            ticket.note(|| "Determining replicas for mutation".to_owned());
            apply_all(executor, ticket, writes).await
        }
    };
    let done = executor.rt.timeout(deadline, work).await;
    let write_type = stage.get();
    if write_type == WriteType::BatchLog {
        // Cassandra's level: it asks for as many copies of the entry as there are nodes, up to two.
        consistency = Consistency::One;
    }
    match done {
        Ok(Ok(())) => Ok(()),
        // The batch is in its log: it will be applied when there is room.
        Ok(Err(StoreError::Overloaded { .. } | StoreError::QueueFull | StoreError::Stopping))
            if write_type == WriteType::Batch =>
        {
            Err(Failure::WriteTimeout { consistency, write_type })
        }
        Ok(Err(error)) => {
            let id = executor.log_failure("write", &error);
            Err(Failure::write(&error, consistency, write_type, id))
        }
        Err(_) => Err(Failure::WriteTimeout { consistency, write_type }),
    }
}

/// Applies a logged batch. `stage` is the write type of a failure: `BatchLog` as long as the batch
/// may have no effect, then `Batch`.
async fn apply_logged(
    executor: &Rc<Executor>,
    ticket: &Ticket,
    writes: Vec<ReplicaMutation>,
    stage: &Cell<WriteType>,
) -> std::result::Result<(), StoreError> {
    stage.set(WriteType::BatchLog);
    let coordinator = &executor.coordinator;
    coordinator.store().writer().wait_for_room().await?;
    let mutations: Vec<&[u8]> = writes.iter().map(|w| w.bytes.as_slice()).collect();
    let (schema, mut next_id) = (executor.schema(), || executor.next_time_uuid());
    let batch = coordinator.batches().log().log_batch(&schema, &mutations, &mut next_id).await?;
    stage.set(WriteType::Batch);
    apply_all(executor, ticket, writes).await?;
    batch.finish();
    Ok(())
}

/// The name of a mutation's table, for a trace.
#[cold]
fn table_of(executor: &Executor, mutation: &[u8]) -> String {
    let table = MutationRef::open(mutation).map(|mutation| mutation.table);
    let snapshot = executor.snapshot();
    let table = table.and_then(|table| snapshot.schema.table_by_id(table));
    table.map_or_else(|| "a".to_owned(), |table| table.name.to_string())
}

/// Applies mutations wherever they belong and waits until all may be acknowledged.
async fn apply_all(
    executor: &Rc<Executor>,
    ticket: &Ticket,
    writes: Vec<ReplicaMutation>,
) -> std::result::Result<(), StoreError> {
    let coordinator = &executor.coordinator;
    let mut elsewhere: SmallVec<[(ShardId, Vec<ReplicaMutation>); 1]> = SmallVec::new();
    let replica = coordinator.replica();
    let mut admitted = None;
    if writes.iter().any(|w| coordinator.owns(w)) {
        admitted = Some(match replica.admit(Origin::Client, None) {
            Err(StoreError::Overloaded { .. }) => replica.wait_for_room().await?,
            admitted => admitted?,
        });
    }
    for write in writes {
        if let (true, Some(admitted)) = (coordinator.owns(&write), admitted) {
            ticket.note(|| "Appending to commitlog".to_owned());
            replica.apply(&write, admitted)?;
            ticket.note(|| format!("Adding to {} memtable", table_of(executor, &write.bytes)));
        } else {
            let owner = write.owner(coordinator.shard_map());
            ticket.note(|| format!("Sending mutation to shard {}", owner.0));
            match elsewhere.iter_mut().find(|(shard, _)| *shard == owner) {
                Some((_, mutations)) => mutations.push(write),
                None => elsewhere.push((owner, vec![write])),
            }
        }
    }
    let local = async { if admitted.is_some() { coordinator.commit().await } else { Ok(()) } };
    // One message for each shard, however many mutations it gets.
    let remote = elsewhere
        .into_iter()
        .map(|(owner, all)| coordinator.apply_at(owner, all, Origin::Client))
        .collect();
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
pub(crate) async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
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
