//! Writes: statements become mutations, mutations are applied where they belong.
//!
//! Owns: the one way of INSERT, UPDATE, DELETE and both forms of BATCH from their values to an
//! answer: read lists first if need be ([`crate::list_write`]), bind, apply. Applied at once when
//! this shard owns all of it, else as a future. Logged batches of more than one mutation go through
//! the batch log ([`coordinator::batches`]); nothing else pays for it. Where other nodes have the
//! data too, the coordinator is given all of it ([`crate::replicas`]). Writes to counters are
//! [`super::counting`]'s.

use super::counting;
use super::{Allowed, Cx, Step, finish, with_calls_evaluated};
use crate::connection::HeldWrite;
use crate::disk_usage;
use crate::failure::{Failure, Result};
use crate::guardrails::check_timestamps;
use crate::latency::Touched;
use crate::list_write::ListWrite;
use crate::prepared::Compiled;
use crate::replicas::{self, WriteTerms};
use crate::server::Server;
use crate::session::Ticket;
use crate::settings::Timeout;
use cluster::ClusterSnapshot;
use coordinator::{Origin, ReplicaMutation};
use cql_plan::plan::{BoundValue, ExecuteOptions, PlanKind};
use cql_plan::{FoundLists, ModifyPlan, bind_batch_found};
use cql_syntax::ast;
use cql_wire::{Consistency, WriteType};
use data::MutationRef;
use smallvec::SmallVec;
use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::ShardId;
use store::StoreError;

/// A statement and its values.
pub(crate) type Statement<'s> = (&'s Rc<Compiled>, &'s [BoundValue<'s>]);

/// What a client wants to write.
pub(crate) struct Modification<'m> {
    /// One statement (also a batch as text), or those of a batch message in order.
    pub(crate) statements: &'m [Statement<'m>],
    /// Of a batch message.
    pub(crate) batch: Option<ast::BatchKind>,
    pub(crate) consistency: Consistency,
    /// Whether the writes are logged in the commit log, and go to several nodes.
    pub(crate) allowed: Allowed,
    pub(crate) options: ExecuteOptions<'m>,
    /// The request came with a timestamp: `options.default_timestamp` is the client's.
    pub(crate) has_timestamp: bool,
}

type Writes<'b> = SmallVec<[ReplicaMutation<&'b [u8]>; 1]>;

/// How writes are carried out and answered.
pub(crate) struct WriteOrder {
    pub(crate) consistency: Consistency,
    pub(crate) write_type: WriteType,
    pub(crate) warnings: Vec<String>,
    /// `USING TIMEOUT`.
    pub(crate) timeout_nanos: Option<u64>,
    /// The metadata the request began with, when other nodes may have the data too.
    pub(crate) snapshot: Option<Arc<ClusterSnapshot>>,
}

/// What statements were bound to: places in the buffer of encoded mutations.
pub(crate) struct Bound {
    pub(crate) mutations: SmallVec<[cql_plan::BoundMutation; 1]>,
    pub(crate) write_type: WriteType,
    pub(crate) warnings: Vec<String>,
}

/// Runs INSERT, UPDATE, DELETE and batches.
///
/// # Errors
/// What is wrong with the values; why nothing was applied.
pub(super) fn modify(request: &Modification<'_>, cx: &Cx<'_>) -> Result<Step> {
    with_calls_evaluated(request, |request| modify_evaluated(request, cx))
}

fn modify_evaluated(request: &Modification<'_>, cx: &Cx<'_>) -> Result<Step> {
    for (compiled, _) in request.statements {
        match &compiled.plan.kind {
            PlanKind::Modify(plan) => cx.server.latencies.note_table(plan.table().id),
            PlanKind::Batch(plan) => {
                let tables = plan.statements().iter().map(|plan| plan.table().id);
                tables.for_each(|id| cx.server.latencies.note_table(id));
            }
            _ => {}
        }
    }
    let timeout_nanos = match (request.batch, request.statements) {
        (None, [(compiled, values)]) => match &compiled.plan.kind {
            PlanKind::Modify(plan) => plan.timeout_nanos(values, &request.options)?,
            PlanKind::Batch(plan) => plan.timeout_nanos(values, &request.options)?,
            _ => None,
        },
        _ => None,
    };
    disk_usage::check(cx.server, request, cx.ticket.watch())?;
    let mut warnings = check_timestamps(cx.server, request)?;
    if request.statements.iter().any(|(compiled, _)| takes_detour(compiled)) {
        if request.statements.iter().any(|(compiled, _)| is_counter(compiled)) {
            return counting::run(request, (timeout_nanos, warnings), cx);
        }
        return ListWrite::new(cx.server, request, (timeout_nanos, warnings)).run(cx);
    }
    let mut encoded = cx.server.scratch.borrow_mut();
    encoded.clear();
    let found = FoundLists::default();
    let bound = bind(
        cx.server,
        (request.statements, request.batch),
        &request.options,
        &found,
        &mut encoded,
    )?;
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
        snapshot: request.allowed.snapshot(cx.server),
    };
    write(&writes, order, cx)
}

fn takes_detour(compiled: &Compiled) -> bool {
    match &compiled.plan.kind {
        PlanKind::Modify(plan) => plan.takes_detour(),
        PlanKind::Batch(plan) => plan.takes_detour(),
        _ => false,
    }
}

fn is_counter(compiled: &Compiled) -> bool {
    match &compiled.plan.kind {
        PlanKind::Modify(plan) => plan.is_counter(),
        PlanKind::Batch(plan) => plan.is_counter(),
        _ => false,
    }
}

/// Binds statements, given the lists that were read for them, and appends the mutations to `out`.
///
/// # Errors
/// What is wrong with the values.
pub(crate) fn bind(
    server: &Server,
    (statements, batch): (&[Statement<'_>], Option<ast::BatchKind>),
    options: &ExecuteOptions<'_>,
    found: &FoundLists,
    out: &mut Vec<u8>,
) -> Result<Bound> {
    let limits = &server.plan_limits;
    let (bound, kind) = match (batch, statements) {
        (None, [(compiled, values)]) => match &compiled.plan.kind {
            PlanKind::Modify(plan) => {
                let mutations = plan.bind_found(values, options, found, out)?;
                // As `StorageProxy.mutate` calls the partitions of one IN.
                let write_type = match mutations.len() {
                    0 | 1 => WriteType::Simple,
                    _ => WriteType::UnloggedBatch,
                };
                return Ok(Bound { mutations, write_type, warnings: Vec::new() });
            }
            PlanKind::Batch(plan) => {
                (plan.bind_found(values, options, limits, found, out)?, plan.kind())
            }
            _ => return Err(server.internal_failure("a plan of another kind")),
        },
        (Some(kind), _) => {
            let mut parts: Vec<(&ModifyPlan, &[BoundValue<'_>])> =
                Vec::with_capacity(statements.len());
            for (compiled, values) in statements {
                let PlanKind::Modify(plan) = &compiled.plan.kind else {
                    return Err(server.internal_failure("a plan of another kind"));
                };
                parts.push((plan, values));
            }
            (bind_batch_found(kind, &parts, options, limits, found, out)?, kind)
        }
        (None, _) => return Err(server.internal_failure("several statements, no batch")),
    };
    server.counters.batch(kind, bound.mutations.len());
    let write_type = batch_type(kind, bound.mutations.len());
    Ok(Bound { mutations: bound.mutations, write_type, warnings: bound.warnings })
}

/// What a failed batch is called: one partition is one write, as in Cassandra. `Batch` goes through
/// the batch log.
fn batch_type(kind: ast::BatchKind, partitions: usize) -> WriteType {
    match kind {
        ast::BatchKind::Logged if partitions > 1 => WriteType::Batch,
        ast::BatchKind::Unlogged if partitions > 1 => WriteType::UnloggedBatch,
        ast::BatchKind::Logged | ast::BatchKind::Unlogged => WriteType::Simple,
        ast::BatchKind::Counter => WriteType::Counter,
    }
}

/// Applies mutations: at once when this shard owns them all, else as a future.
fn write(writes: &[ReplicaMutation<&[u8]>], order: WriteOrder, cx: &Cx<'_>) -> Result<Step> {
    let coordinator = &cx.server.coordinator;
    let at_once = order.write_type != WriteType::Batch
        && order.snapshot.is_none()
        && cx.ticket.trace.is_none()
        && writes.iter().all(|w| coordinator.owns(w));
    if at_once {
        let failed = |error: &StoreError| {
            let id = cx.server.log_failure("write", error);
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
                // The connection says which tables it is of.
                let touched = Touched::default();
                return Ok(Step::Held(HeldWrite {
                    ticket,
                    consistency,
                    write_type,
                    warnings,
                    touched,
                }));
            }
            // Room may come: wait for it below.
            Err(StoreError::Overloaded { .. }) => {}
            Err(error) => return Err(failed(&error)),
        }
    }
    let owned: Vec<ReplicaMutation> = writes.iter().map(ReplicaMutation::to_owned).collect();
    let (server, session) = (cx.server.clone(), cx.session.clone());
    let ticket = cx.ticket.clone();
    Ok(Step::Waits(Box::pin(async move {
        let result = carry_out(&server, &ticket, owned, &order).await;
        finish(&server, &session, &ticket, result, |out| {
            let warnings: Vec<&str> = order.warnings.iter().map(String::as_str).collect();
            session.respond_void(out, &ticket, &warnings);
            Ok(())
        })
        .await
    })))
}

/// Applies mutations wherever they belong, a logged batch through the batch log, and waits until
/// they may be acknowledged, not beyond the timeout.
///
/// # Errors
/// What to tell the client.
pub(crate) async fn carry_out(
    server: &Rc<Server>,
    ticket: &Ticket,
    writes: Vec<ReplicaMutation>,
    order: &WriteOrder,
) -> Result<()> {
    let usual = server.timeouts.get(Timeout::Write);
    let timeout = order.timeout_nanos.map_or(usual, Duration::from_nanos);
    let deadline = server.rt.now() + timeout;
    if let Some(snapshot) = &order.snapshot {
        // Boxed, so that writes of a node that is alone do not carry its size around.
        let (consistency, write_type) = (order.consistency, order.write_type);
        let terms = WriteTerms { consistency, write_type, snapshot, deadline };
        return Box::pin(replicas::write(server, ticket, writes, &terms)).await;
    }
    let WriteOrder { mut consistency, write_type, .. } = *order;
    let stage = Cell::new(write_type);
    let work = async {
        if write_type == WriteType::Batch {
            ticket.note(|| "Determining replicas for atomic batch".to_owned());
            apply_logged(server, ticket, writes, &stage).await
        } else {
            ticket.note(|| "Determining replicas for mutation".to_owned());
            apply_all(server, ticket, writes).await
        }
    };
    let done = server.rt.timeout(deadline, work).await;
    let write_type = stage.get();
    if write_type == WriteType::BatchLog {
        // As in Cassandra, which asks for as many copies of the entry as there are nodes, up to two.
        consistency = Consistency::One;
    }
    match done {
        Ok(Ok(())) => Ok(()),
        // The batch is in its log: it will be carried out when there is room.
        Ok(Err(StoreError::Overloaded { .. } | StoreError::QueueFull | StoreError::Stopping))
            if write_type == WriteType::Batch =>
        {
            Err(Failure::WriteTimeout { consistency, write_type })
        }
        Ok(Err(error)) => {
            let id = server.log_failure("write", &error);
            Err(Failure::write(&error, consistency, write_type, id))
        }
        Err(_) => Err(Failure::WriteTimeout { consistency, write_type }),
    }
}

/// Applies a logged batch. `stage` says what a failure is a failure of: `BatchLog` as long as the
/// batch may have no effect, then `Batch`.
async fn apply_logged(
    server: &Rc<Server>,
    ticket: &Ticket,
    writes: Vec<ReplicaMutation>,
    stage: &Cell<WriteType>,
) -> std::result::Result<(), StoreError> {
    stage.set(WriteType::BatchLog);
    let coordinator = &server.coordinator;
    coordinator.store().writer().wait_for_room().await?;
    let mutations: Vec<&[u8]> = writes.iter().map(|w| w.bytes.as_slice()).collect();
    let (schema, mut next_id) = (server.schema(), || server.next_time_uuid());
    let batch = coordinator.log_batch(&schema, &mutations, &mut next_id).await?;
    stage.set(WriteType::Batch);
    apply_all(server, ticket, writes).await?;
    batch.finish();
    Ok(())
}

/// The name of a mutation's table, for a trace.
#[cold]
fn table_of(server: &Server, mutation: &[u8]) -> String {
    let table = MutationRef::open(mutation).map(|mutation| mutation.table);
    let snapshot = server.snapshot();
    let table = table.and_then(|table| snapshot.schema.table_by_id(table));
    table.map_or_else(|| "a".to_owned(), |table| table.name.to_string())
}

/// Applies mutations wherever they belong and waits until all may be acknowledged.
async fn apply_all(
    server: &Rc<Server>,
    ticket: &Ticket,
    writes: Vec<ReplicaMutation>,
) -> std::result::Result<(), StoreError> {
    let coordinator = &server.coordinator;
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
            ticket.note(|| format!("Adding to {} memtable", table_of(server, &write.bytes)));
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

#[cfg(test)]
mod tests {
    use crate::CqlServer;
    use crate::prepared::{Compiled, parse};
    use crate::tests::{Body, Client, Meshes, V4, node, run, settings};
    use coordinator::BatchReplay;
    use cql_plan::plan::{ExecuteOptions, PlanKind};
    use cql_wire::ErrorCode;
    use rt::Rt;
    use stdx::TimestampMicros;

    async fn start(rt: &Rt) -> (CqlServer, Client) {
        let server = node(rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client
            .must(
                "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', \
                 'replication_factor': 1}",
            )
            .await;
        for table in ["a", "b"] {
            client.must(&format!("CREATE TABLE ks.{table} (k int PRIMARY KEY, v int)")).await;
        }
        (server, client)
    }

    async fn count(client: &mut Client, table: &str) -> usize {
        client.must(&format!("SELECT * FROM {table}")).await.rows().rows.len()
    }

    fn logged(rt: &Rt) -> u64 {
        match rt.telemetry().snapshot().find("batchlog_writes_total").map(|m| &m.value) {
            Some(telemetry::Value::Counter(n)) => *n,
            other => panic!("{other:?}"),
        }
    }

    /// The mutation of an INSERT.
    fn mutation(server: &CqlServer, text: &str) -> Vec<u8> {
        let server = server.inner();
        let snapshot = server.snapshot().clone();
        let (limits, now) = (&server.plan_limits, server.rt.wall());
        let compiled = Compiled::new(&parse(text).unwrap(), &snapshot, None, limits, now).unwrap();
        let PlanKind::Modify(plan) = &compiled.plan.kind else { panic!("no INSERT") };
        let options = ExecuteOptions {
            now,
            clock: now,
            default_timestamp: TimestampMicros(now.0),
            page_size: None,
            paging_state: None,
            protocol_version: 4,
            uuids: &server.uuids,
            watch: None,
        };
        let mut out = Vec::new();
        plan.bind(&[], &options, &mut out).unwrap();
        out
    }

    /// Logs a batch whose coordinator then gives up.
    async fn abandon(server: &CqlServer, mutations: &[&[u8]]) {
        let inner = server.inner();
        let mut next_id = || inner.next_time_uuid();
        let schema = inner.schema();
        drop(inner.coordinator.log_batch(&schema, mutations, &mut next_id).await.unwrap());
    }

    async fn replay(server: &CqlServer) -> BatchReplay {
        let snapshot = server.inner().snapshot().clone();
        server.inner().coordinator.replay_batches(&snapshot).await
    }

    const BATCH: &str = "INSERT INTO ks.a (k, v) VALUES (1, 1); INSERT INTO ks.b (k, v) VALUES \
                         (1, 1); APPLY BATCH";

    #[test]
    fn only_logged_batches_of_several_mutations_go_through_the_batch_log() {
        run(|rt| async move {
            let (_server, mut client) = start(&rt).await;
            client.must("INSERT INTO ks.a (k, v) VALUES (0, 0)").await;
            client.must(&format!("BEGIN UNLOGGED BATCH {BATCH}")).await;
            let one = "BEGIN BATCH INSERT INTO ks.a (k, v) VALUES (2, 1); UPDATE ks.a SET v = 2 \
                       WHERE k = 2; APPLY BATCH";
            client.must(one).await;
            assert_eq!(logged(&rt), 0);
            client.must(&format!("BEGIN BATCH {BATCH}")).await;
            assert_eq!(logged(&rt), 1);
            assert_eq!(count(&mut client, "system.batches").await, 0);
            assert_eq!(
                (count(&mut client, "ks.a").await, count(&mut client, "ks.b").await),
                (3, 1)
            );
        });
    }

    #[test]
    fn an_abandoned_batch_is_replayed_once_and_leaves_the_log() {
        run(|rt| async move {
            let (server, mut client) = start(&rt).await;
            let a = mutation(&server, "INSERT INTO ks.a (k, v) VALUES (1, 1)");
            let b = mutation(&server, "INSERT INTO ks.b (k, v) VALUES (1, 1)");
            abandon(&server, &[&a, &b]).await;
            assert_eq!(count(&mut client, "system.batches").await, 1);
            assert_eq!(count(&mut client, "ks.a").await, 0);
            let done = BatchReplay { batches: 1, mutations: 2, ..BatchReplay::default() };
            assert_eq!(replay(&server).await, done);
            assert_eq!(count(&mut client, "system.batches").await, 0);
            assert_eq!(
                (count(&mut client, "ks.a").await, count(&mut client, "ks.b").await),
                (1, 1)
            );
            assert!(replay(&server).await.is_empty());
        });
    }

    #[test]
    fn a_replay_leaves_out_what_was_dropped_or_truncated_since_and_what_is_no_mutation() {
        run(|rt| async move {
            let (server, mut client) = start(&rt).await;
            client.must("CREATE TABLE ks.c (k int PRIMARY KEY)").await;
            let a = mutation(&server, "INSERT INTO ks.a (k, v) VALUES (1, 1)");
            let b = mutation(&server, "INSERT INTO ks.b (k, v) VALUES (1, 1)");
            let c = mutation(&server, "INSERT INTO ks.c (k) VALUES (1)");
            abandon(&server, &[&a, &b, &c, &a[..a.len() - 1]]).await;
            client.must("TRUNCATE ks.a").await;
            client.must("DROP TABLE ks.c").await;
            let expect = BatchReplay {
                batches: 1,
                mutations: 1,
                obsolete: 2,
                lost: 1,
                ..BatchReplay::default()
            };
            assert_eq!(replay(&server).await, expect);
            assert_eq!(
                (count(&mut client, "ks.a").await, count(&mut client, "ks.b").await),
                (0, 1)
            );
            // Written after the truncation: applied.
            abandon(&server, &[&a, &b]).await;
            assert_eq!(replay(&server).await.mutations, 2);
            assert_eq!(count(&mut client, "ks.a").await, 1);
        });
    }

    #[test]
    fn a_batch_older_than_the_grace_of_a_table_is_dropped() {
        run(|rt| async move {
            let (server, mut client) = start(&rt).await;
            let a = mutation(&server, "INSERT INTO ks.a (k, v) VALUES (1, 1)");
            let b = mutation(&server, "INSERT INTO ks.b (k, v) VALUES (1, 1)");
            client.must("ALTER TABLE ks.b WITH gc_grace_seconds = 2").await;
            abandon(&server, &[&a, &b]).await;
            assert_eq!(replay(&server).await.past_grace, 0);
            abandon(&server, &[&a, &b]).await;
            rt.sleep(std::time::Duration::from_secs(3)).await;
            let report = replay(&server).await;
            assert_eq!((report.past_grace, report.batches, report.mutations), (1, 1, 0));
            assert_eq!(count(&mut client, "system.batches").await, 0);
        });
    }

    #[test]
    fn the_background_replay_takes_what_was_left_behind_after_twice_the_timeout() {
        run(|rt| async move {
            let (server, mut client) = start(&rt).await;
            let inner = server.inner().clone();
            let snapshot = inner.snapshot().clone();
            let timeout = std::time::Duration::from_secs(8);
            inner.coordinator.start_batch_replay(timeout, move || snapshot.clone(), |_| ());
            let a = mutation(&server, "INSERT INTO ks.a (k, v) VALUES (1, 1)");
            abandon(&server, &[&a]).await;
            rt.sleep(std::time::Duration::from_secs(15)).await;
            assert_eq!(count(&mut client, "ks.a").await, 0);
            rt.sleep(std::time::Duration::from_secs(10)).await;
            assert_eq!(count(&mut client, "ks.a").await, 1);
            assert_eq!(count(&mut client, "system.batches").await, 0);
            inner.coordinator.stop().await;
        });
    }

    #[test]
    fn a_batch_that_the_log_does_not_take_has_no_effect() {
        run(|rt| async move {
            let (server, mut client) = start(&rt).await;
            server.inner().coordinator.store().drain().await.unwrap();
            let got = client.query(&format!("BEGIN BATCH {BATCH}")).await;
            assert!(matches!(got.body, Body::Error(ErrorCode::Overloaded, _)), "{got:?}");
            assert_eq!(count(&mut client, "ks.a").await, 0);
        });
    }
}
