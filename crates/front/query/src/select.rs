//! Reads: from a bound SELECT to one page of rows in the answer.
//!
//! Owns: the deadline of a read, and the choice between stored and computed rows. What is around a page
//! (description, row count, paging state, warnings) is the sink's. What a row becomes is the planner's business
//! ([`cql_exec::SelectExec`]); it writes straight into the answer.

use crate::access;
use crate::account::{Charge, Refusal};
use crate::consistency::{Allowed, scope_of};
use crate::context::{Cx, Step, finish};
use crate::counters::Counters;
use crate::executor::Executor;
use crate::failure::{FailedKind, Failure, ReplicasFailed, Result};
use crate::guardrails;
use crate::latency::Kind;
use crate::outbound::{self, Outbound, Sent, Terms};
use crate::prepared::{ReadPlan, SelectStatement};
use crate::read_deadline::ReadDeadline;
use crate::read_strategy::ReadStrategy;
use crate::remote_fold;
use crate::replicas;
use crate::settings::Timeout;
use crate::sink::{Describe, PageEnd, ResultPage, ResultSink};
use crate::ticket::Ticket;
use crate::tombstones::{Tombstones, tombstone_warning};
use crate::virtual_tables;
use cluster::ClusterSnapshot;
use coordinator::{
    FoldError, FoldOf, FoldOrder, FoldSink, ReadOptions, ReadTrace, ReplicatedRead, SelectLimits,
    ShardFilter, Wanted,
};
use cql_exec::{Dropped, SelectDone, SelectExec, SelectFold, select};
use cql_plan::auth::is_computed;
use cql_plan::plan::BoundValue;
use cql_plan::select::{BoundSelect, CANNOT_PAGE, SelectPlan};
use cql_wire::{Consistency, QueryParameters};
use data::RowRef;
use data::command::{Partitions, ReadCommand};
use rt::sync::Permit;
use schema::{Table, TableKind};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use stdx::{Instant, TimestampMicros, Token, WallMicros};
use store::{Flow, Look, LookedAt, ReadStats, RowSink, StoreError};

/// Rows and partitions that are looked at before the next look at the clock.
const ITEMS_PER_LOOK: u32 = 1024;

/// Partitions of one read that are looked at before the next look whether others wait.
const READS_PER_LOOK: usize = 16;

/// Said of a read whose answer finds no room.
const NO_ROOM: &str = "The answers of reads take too much memory. Executor is currently in an overloaded state and \
     cannot accept more requests.";

/// A SELECT as a client asks for it.
#[derive(Clone, Copy)]
pub(crate) struct ReadRequest<'r> {
    pub(crate) statement: &'r Rc<SelectStatement>,
    pub(crate) values: &'r [BoundValue<'r>],
    pub(crate) parameters: &'r QueryParameters<'r>,
    pub(crate) describe: Describe,
}

/// Binds and begins a read. It is polled once in place; what it finds in memory is answered at once.
///
/// # Errors
/// Values that do not fit.
pub(crate) fn run<S: ResultSink>(
    request: &ReadRequest<'_>,
    allowed: Allowed,
    cx: &Cx<'_, S>,
) -> Result<Step<S::Answer>> {
    let &ReadRequest { statement, values, parameters, describe } = request;
    let plan = &*statement.plan.select;
    if cx.sink.client().answers.is_heavy() && cx.executor.account.is_full() {
        cx.executor.counters.overloaded.inc();
        return Err(Failure::overloaded(NO_ROOM));
    }
    let options = cx.options(parameters);
    let mut bound =
        plan.bind(values, &options).map_err(|error| match error.message == CANNOT_PAGE {
            true => warned(plan, error.into()),
            false => error.into(),
        })?;
    if let Some(watch) = cx.ticket.watch() {
        guardrails::check_bound_select(cx.executor, watch, &bound, request)?;
    }
    if access::unmasks(cx.executor, cx.sink.client(), plan.table()) {
        bound.unmask();
    }
    if plan.table().kind != TableKind::Virtual {
        cx.executor.latencies.note_table(plan.table().id);
    }
    let scope = serial_scope(plan, &bound, parameters.consistency)?;
    if scope.is_some() {
        cx.executor.latencies.note_kind(Kind::CasRead);
    } else if bound.reads().iter().any(|r| matches!(r.partitions, Partitions::Range(_))) {
        cx.executor.latencies.note_kind(Kind::Range);
    }
    let outbound = match scope {
        Some(scope) => outbound(request, &bound, scope, cx),
        None => None,
    };
    let (executor, sink) = (cx.executor.clone(), cx.sink.clone());
    let read = Read {
        snapshot: match scope {
            Some(_) => Some(executor.snapshot().clone()),
            None => allowed.snapshot(&executor),
        },
        scope,
        executor,
        sink,
        ticket: cx.ticket.clone(),
        statement: statement.clone(),
        describe,
        consistency: parameters.consistency,
        deadline: cx.sink.client().forwarded_deadline(),
    };
    if let Some(outbound) = outbound {
        return Ok(Step::Waits(Box::pin(read.run_elsewhere(outbound, bound))));
    }
    Ok(Step::Waits(Box::pin(read.run(bound))))
}

/// What went wrong while a statement ran, with what its client is warned of.
fn warned(plan: &SelectPlan, failure: Failure) -> Failure {
    match (failure, plan.warning()) {
        (Failure::Plan(error), Some(warning)) => Failure::Warned(error, warning),
        (failure, _) => failure,
    }
}

/// A serial read for the node that carries out the serial operations of its partition; `None` when
/// that is this one.
fn outbound<S: ResultSink>(
    request: &ReadRequest<'_>,
    bound: &BoundSelect,
    scope: paxos::Scope,
    cx: &Cx<'_, S>,
) -> Option<Box<Outbound>> {
    if !S::TAKES_FORWARDED || cx.sink.client().forwarded.is_some() {
        return None;
    }
    let &ReadRequest { statement, values, parameters, describe } = request;
    let command = bound.reads().first()?;
    let Partitions::Key(key) = &command.partitions else { return None };
    let (token, snapshot) = (codec::token_of(key), cx.executor.snapshot());
    let route =
        cx.executor.coordinator.lwt().serial_route(&snapshot, command.table, token, scope)?;
    let now = |seconds| WallMicros(i64::from(seconds).saturating_mul(1_000_000));
    let table = statement.plan.select.table();
    let terms = Terms {
        kind: outbound::Kind::Select,
        unmasks: !table.masks.is_empty() && access::unmasks(cx.executor, cx.sink.client(), table),
        consistency: parameters.consistency,
        serial: parameters.consistency,
        now: parameters.now_in_seconds.map(now),
        timestamp: TimestampMicros(0),
        page_size: parameters.page_size,
        paging_state: parameters.paging_state,
        describe,
        described_as: Some(*statement.plan.columns.id()),
    };
    let source = statement.header.source.as_ref();
    Outbound::new(route, token, &[(source, values)], &terms, cx.sink.client())
}

/// Whether a read must see every conditional write that ended before it: one of a partition at a
/// serial level. As in Cassandra a range is read at the level of a quorum instead.
fn serial_scope(
    plan: &SelectPlan,
    bound: &BoundSelect,
    consistency: Consistency,
) -> Result<Option<paxos::Scope>> {
    let Some(scope) = scope_of(consistency) else { return Ok(None) };
    let table = plan.table();
    let is_local = matches!(&*table.keyspace, "system" | "system_schema") || is_computed(table);
    let is_range = |r: &ReadCommand| matches!(r.partitions, Partitions::Range(_));
    if is_local || table.kind == TableKind::Virtual || bound.reads().iter().any(is_range) {
        return Ok(None);
    }
    if bound.reads().len() > 1 {
        return Err(Failure::invalid(
            "SERIAL/LOCAL_SERIAL consistency may only be requested for one partition at a time",
        ));
    }
    Ok(Some(scope))
}

/// One read on its way.
struct Read<S> {
    executor: Rc<Executor>,
    sink: S,
    ticket: Ticket,
    statement: Rc<SelectStatement>,
    describe: Describe,
    consistency: Consistency,
    /// The metadata the request began with, when other nodes may have the data too, or when it is
    /// serial.
    snapshot: Option<Arc<ClusterSnapshot>>,
    /// Of a serial read.
    scope: Option<paxos::Scope>,
    /// When it is to be answered at the latest, when that was set before it is carried out here.
    deadline: Option<Instant>,
}

impl<S: ResultSink> Read<S> {
    /// Has another node read; when it surely does not, reads here.
    async fn run_elsewhere(mut self, outbound: Box<Outbound>, bound: BoundSelect) -> S::Answer {
        let deadline = self.executor.rt.now() + self.timeout(&bound);
        // What waiting for others takes is not there again for reading here.
        self.deadline = Some(deadline);
        let (executor, sink, ticket) = (&self.executor, &self.sink, &self.ticket);
        let lost = || {
            let failed = ReplicasFailed {
                kind: FailedKind::ReadTimeout { data_present: false },
                consistency: self.consistency,
                received: 0,
                block_for: outbound.quorum(),
                failures: Vec::new(),
                contentions: 0,
            };
            Failure::Replicas(Box::new(failed))
        };
        let sent = match outbound.send(executor, ticket, deadline).await {
            Ok(Sent::Here) => return self.run(bound).await,
            Ok(Sent::Answer(frame)) => Ok(frame),
            Ok(Sent::Lost) => Err(lost()),
            Err(failure) => Err(failure),
        };
        let (result, frame) = match sent {
            Ok(frame) => (Ok(()), frame),
            Err(failure) => (Err(failure), Vec::new()),
        };
        finish(executor, sink, ticket, result, |out| match sink.forwarded(out, ticket, &frame) {
            true => Ok(()),
            false => Err(lost()),
        })
        .await
    }

    fn timeout(&self, bound: &BoundSelect) -> Duration {
        let is_range = bound.reads().iter().any(|r| matches!(r.partitions, Partitions::Range(_)));
        let timeouts = &self.executor.timeouts;
        match bound.timeout_nanos() {
            Some(nanos) => Duration::from_nanos(nanos),
            None if is_range => timeouts.get(Timeout::Range),
            None => timeouts.get(Timeout::Read),
        }
    }

    async fn run(self, bound: BoundSelect) -> S::Answer {
        let mut out = self.sink.begin(&self.executor);
        let result = self.page(&bound, &mut out).await;
        self.sink.client().answers.note(S::bytes(&out));
        if result.is_ok() && self.ticket.trace.is_none() {
            return out;
        }
        let answer = out;
        let (executor, sink, ticket) = (&self.executor, &self.sink, &self.ticket);
        finish(executor, sink, ticket, result, move |out| {
            *out = answer;
            Ok(())
        })
        .await
    }

    /// Appends the whole answer.
    async fn page(&self, bound: &BoundSelect, out: &mut S::Answer) -> Result<()> {
        let ReadPlan { select: plan, columns, .. } = &self.statement.plan;
        let mut page = self.sink.page(out, &self.ticket, (columns, self.describe))?;
        let expansion = Charge::new(&self.executor.account);
        expansion.set(bound.expanded_bytes());
        let charge = Charge::new(&self.executor.account);
        let rows = self.rows(plan, bound, &charge, page.body()).await;
        let (done, stats) = rows.map_err(|failure| warned(plan, failure))?;
        let warnings = self.warnings(plan, &stats);
        let paging_state = done.paging_state.as_deref();
        page.finish(PageEnd { rows: done.rows, paging_state, warnings: &warnings })
    }

    /// Reads and appends the rows.
    async fn rows(
        &self,
        plan: &SelectPlan,
        bound: &BoundSelect,
        charge: &Charge,
        body: &mut Vec<u8>,
    ) -> Result<(SelectDone, ReadStats)> {
        let executor = &self.executor;
        let is_range = bound.reads().iter().any(|r| matches!(r.partitions, Partitions::Range(_)));
        let timeout = self.timeout(bound);
        let table = plan.table().clone();
        self.ticket.note(|| {
            let kind = if is_range { "range query" } else { "single-partition query" };
            format!("Executing {kind} on {}", table.name)
        });
        if is_range && self.snapshot.is_some() {
            self.ticket.note(|| "Computing ranges to query".to_owned());
        }
        let trace = self.ticket.trace.as_ref().map(|trace| {
            let trace = trace.clone();
            Rc::new(ReadTrace::new(trace.id(), move |activity| trace.note(activity)))
        });
        let deadline = self.snapshot.is_some();
        let deadline =
            deadline.then(|| self.deadline.unwrap_or_else(|| executor.rt.now() + timeout));
        let is_patient = bound.reads_ahead() && bound.timeout_nanos().is_none();
        let patience = is_patient.then(|| ReadDeadline::new(&executor.rt, timeout));
        let (trace_of, patience_of) = (trace.as_ref(), patience.as_ref());
        let terms =
            Reading { table: &table, deadline, trace: trace_of, patience: patience_of, charge };
        let mut reading = pin!(self.read_all(plan, bound, terms, body));
        // What is in memory is read at once, without a timer.
        let first = poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await;
        let result = match first {
            Poll::Ready(result) => Ok(result),
            // The coordinator keeps the deadline, and knows who has answered.
            Poll::Pending if deadline.is_some() => Ok(reading.await),
            Poll::Pending => match &patience {
                Some(patience) => patience.wait(reading).await,
                None => executor.rt.timeout(executor.rt.now() + timeout, reading).await,
            },
        };
        if let Some(trace) = &trace {
            trace.finish(!is_range);
        }
        match result {
            Ok(result) => {
                let (page, stats, bytes) = result?;
                self.ticket.note(|| {
                    let ReadStats { rows, tombstones, .. } = stats;
                    format!("Read {rows} live rows and {tombstones} tombstone cells")
                });
                if let Some(trace) = &trace {
                    let columns = bound.filtered_columns(&table);
                    let seen = FilterCost {
                        stats: &stats,
                        bytes,
                        dropped: page.dropped,
                        page_bytes: trace.page_bytes(),
                        result_bytes: page.bytes,
                    };
                    if !columns.is_empty() {
                        self.ticket.note(|| seen.describe(&columns));
                    }
                }
                Ok((page, stats))
            }
            Err(_) => Err(Failure::ReadTimeout { consistency: self.consistency }),
        }
    }

    async fn read_all(
        &self,
        plan: &SelectPlan,
        bound: &BoundSelect,
        Reading { table, deadline, trace, patience, charge }: Reading<'_>,
        body: &mut Vec<u8>,
    ) -> Result<(SelectDone, ReadStats, u64)> {
        let mut bytes = 0;
        let mut stats = ReadStats::default();
        let strategy = self.statement.plan.strategy;
        if strategy.computes() {
            let read = self.read_computed((plan, bound), (table, patience, charge), body);
            return Box::pin(read).await;
        }
        let order = match (&self.snapshot, deadline) {
            (Some(snapshot), Some(deadline)) => Some(ReplicatedRead {
                snapshot: snapshot.clone(),
                consistency: replicas::level_of_read(self.consistency),
                deadline,
                page_timeout: patience.map(ReadDeadline::timeout),
                rows_wanted: bound.rows_wanted(),
                limits: SelectLimits { rows_per_partition: bound.rows_per_partition() },
            }),
            _ => None,
        };
        if strategy == ReadStrategy::Folded {
            let how = ReadTerms { order: order.as_ref(), trace, patience, charge };
            if let Some(folded) = self.read_folded((plan, bound), how, body).await? {
                return Ok(folded);
            }
        }
        let _permit = self.permit(table, bound).await;
        let filter = bound.shard_filter(plan).map(|(filter, rows_wanted)| {
            let shipped = order.as_ref().and_then(|_| remote_fold::ship(bound, plan, None));
            ShardFilter { filter, rows_wanted, shipped }
        });
        if let (Some(order), Some(filter), None) = (&order, &filter, self.scope) {
            let how = ReadTerms { order: Some(order), trace, patience, charge };
            if let Some(read) = self.read_scattered((plan, bound), filter, how, body).await? {
                return Ok(read);
            }
        }
        let mut exec = SelectExec::new(plan, bound, body);
        let settings = &self.executor.settings;
        let mut tombstones = Tombstones::new(settings, bound.is_one_page(plan));
        for (number, command) in bound.reads().iter().enumerate() {
            if exec.is_stopped() {
                break;
            }
            if number % READS_PER_LOOK == READS_PER_LOOK - 1 {
                // What is in memory is read without waiting.
                self.executor.rt.yield_if_due().await;
            }
            let counters = &self.executor.counters;
            let mut sink =
                Sink { exec: &mut exec, patience, items: 0, tombstones, counters, charge };
            let read = match (&order, trace) {
                (order, Some(trace)) => {
                    let mut counting = Counting { sink, bytes: 0 };
                    let wanted = (bound.rows_wanted(), filter.as_ref(), order.as_ref());
                    let read = self.read_noted(command, wanted, trace, &mut counting);
                    let read = Box::pin(read).await?;
                    bytes += counting.bytes + read.filtered.bytes;
                    read
                }
                // Boxed, so that reads of a node that is alone do not carry its size around.
                (Some(order), None) => {
                    let asked = (self.consistency, self.scope);
                    let to = (None, filter.as_ref(), &mut sink);
                    Box::pin(replicas::read(&self.executor, asked, command, order, to)).await?
                }
                (None, None) => {
                    let wanted = (bound.rows_wanted(), filter.as_ref());
                    self.read_stored(command, wanted, &mut sink).await?
                }
            };
            self.check_room(charge)?;
            if order.is_none() && tombstones.refuses(read.tombstones) {
                let error = StoreError::TombstoneFailure { scanned: read.tombstones };
                let id = self.executor.log_failure("read", &error);
                return Err(Failure::read(&error, self.consistency, id));
            }
            if let Partitions::Key(key) = &command.partitions
                && tombstones.pass(read.tombstones)
                && !exec.is_stopped()
                && exec.cut_at(key, None)
            {
                self.executor.counters.tombstone_pages.inc();
            }
            stats.rows = stats.rows.saturating_add(read.rows);
            stats.partitions = stats.partitions.saturating_add(read.partitions);
            stats.tombstones = stats.tombstones.saturating_add(read.tombstones);
            stats.filtered.add(&read.filtered);
        }
        Ok((exec.finish()?, stats, bytes))
    }

    /// Reads rows that this node computes.
    async fn read_computed(
        &self,
        (plan, bound): (&SelectPlan, &BoundSelect),
        (table, patience, charge): (&Arc<Table>, Option<&ReadDeadline>, &Charge),
        body: &mut Vec<u8>,
    ) -> Result<(SelectDone, ReadStats, u64)> {
        let computed = match self.statement.plan.strategy {
            ReadStrategy::Roles => virtual_tables::auth_rows(&self.executor, table),
            _ => virtual_tables::rows(&self.executor, table).await,
        };
        let mut exec = SelectExec::new(plan, bound, body);
        let tombstones = Tombstones::new(&self.executor.settings, bound.is_one_page(plan));
        let counters = &self.executor.counters;
        let mut stats = ReadStats::default();
        for (number, command) in bound.reads().iter().enumerate() {
            if exec.is_stopped() {
                break;
            }
            if number % READS_PER_LOOK == READS_PER_LOOK - 1 {
                self.executor.rt.yield_if_due().await;
            }
            let mut sink =
                Sink { exec: &mut exec, patience, items: 0, tombstones, counters, charge };
            let read = virtual_tables::read(table, &computed, (command, bound.floor()), &mut sink);
            self.check_room(charge)?;
            stats.rows = stats.rows.saturating_add(read.rows);
            stats.partitions = stats.partitions.saturating_add(read.partitions);
        }
        Ok((exec.finish()?, stats, 0))
    }

    /// Has the shards make the groups of an aggregation; `None` when that cannot be: then nothing is appended.
    async fn read_folded(
        &self,
        (plan, bound): (&SelectPlan, &BoundSelect),
        ReadTerms { order, trace, patience, charge }: ReadTerms<'_>,
        body: &mut Vec<u8>,
    ) -> Result<Option<(SelectDone, ReadStats, u64)>> {
        let coordinator = &self.executor.coordinator;
        let Some((fold, results_wanted)) = bound.shard_fold(plan) else { return Ok(None) };
        let Some(command) = bound.reads().first() else { return Ok(None) };
        let mut attempt = Attempt::of(body);
        let mut exec = SelectExec::new(plan, bound, &mut attempt.body);
        let mut sink = FoldedSink { exec: &mut exec, patience, results: 0, charge };
        let source = order.and(self.statement.header.source.as_ref());
        let shipped = source.and_then(|source| remote_fold::ship(bound, plan, Some(source)));
        let fold = FoldOrder { fold, results_wanted, shipped };
        let read = coordinator.scans().fold(
            command,
            &fold,
            FoldOf { order, trace: trace.map(|t| &**t) },
            &mut sink,
        );
        let folded = Box::pin(read).await.map_err(|error| match error {
            FoldError::Request(error) => match order {
                Some(order) => Failure::request(error, self.consistency, &order.snapshot),
                None => self.executor.internal_failure("a read of this node alone"),
            },
            FoldError::Store(error) => {
                let id = self.executor.log_failure("read", &error);
                Failure::read(&error, self.consistency, id)
            }
        })?;
        self.check_room(charge)?;
        let Some(folded) = folded else { return Ok(None) };
        let merged = folded.states.is_some_and(|states| {
            !plan.is_one_group() || states.into_iter().all(|s| exec.merge_of_shard(s).is_ok())
        });
        // Whatever went wrong, the rows tell it in their order.
        let done = if merged { exec.finish().ok() } else { None };
        let Some(done) = done else { return Ok(None) };
        attempt.keep(body);
        Ok(Some((done, folded.stats, folded.stats.filtered.bytes)))
    }

    /// Has shards of the replicas filter rows; `None` when that cannot be: then nothing is appended.
    async fn read_scattered(
        &self,
        (plan, bound): (&SelectPlan, &BoundSelect),
        filter: &ShardFilter,
        ReadTerms { order, trace, patience, charge }: ReadTerms<'_>,
        body: &mut Vec<u8>,
    ) -> Result<Option<(SelectDone, ReadStats, u64)>> {
        let Some(order) = order else { return Ok(None) };
        let [command] = bound.reads() else { return Ok(None) };
        if !matches!(command.partitions, Partitions::Range(_)) {
            return Ok(None);
        }
        let mut attempt = Attempt::of(body);
        let mut exec = SelectExec::new(plan, bound, &mut attempt.body);
        let tombstones = Tombstones::new(&self.executor.settings, bound.is_one_page(plan));
        let counters = &self.executor.counters;
        let sink = Sink { exec: &mut exec, patience, items: 0, tombstones, counters, charge };
        let mut counting = Counting { sink, bytes: 0 };
        let how = ReadOptions { trace, filter: Some(filter) };
        let read =
            self.executor.coordinator.scans().read_scattered(command, order, how, &mut counting);
        let read = Box::pin(read).await;
        let read = read.map_err(|e| Failure::request(e, self.consistency, &order.snapshot))?;
        let bytes = counting.bytes;
        self.check_room(charge)?;
        let Some(stats) = read else { return Ok(None) };
        let done = exec.finish()?;
        attempt.keep(body);
        Ok(Some((done, stats, bytes.saturating_add(stats.filtered.bytes))))
    }

    /// Waits until another read that has pages of other shards may begin.
    async fn permit(&self, table: &Table, bound: &BoundSelect) -> Option<Permit> {
        let executor = &self.executor;
        let permits = match bound.reads().first().map(|read| &read.partitions)? {
            // Short, and what drivers ask for before anything else.
            Partitions::Range(_) if table.keyspace.starts_with("system") => return None,
            Partitions::Range(_) => &executor.scans,
            Partitions::Key(_) if executor.rt.shard_count() == 1 && self.snapshot.is_none() => {
                return None;
            }
            Partitions::Key(key) => {
                let owner =
                    || executor.coordinator.shard_map().shard_of(table.id, codec::token_of(key));
                let is_here = || owner() == executor.rt.shard();
                if bound.reads().len() == 1 && self.snapshot.is_none() && is_here() {
                    return None;
                }
                &executor.remote_reads
            }
        };
        Some(match permits.try_acquire(1) {
            Some(permit) => permit,
            // Boxed: most reads do not wait.
            None => Box::pin(permits.acquire(1)).await,
        })
    }

    /// Whether the answer found room so far.
    fn check_room(&self, charge: &Charge) -> Result<()> {
        let Some(refusal) = charge.refusal() else { return Ok(()) };
        let limit = self.executor.account.answer_bytes_max();
        match refusal {
            Refusal::Full => {
                self.executor.counters.overloaded.inc();
                Err(Failure::overloaded(NO_ROOM))
            }
            Refusal::TooLarge => Err(self.executor.result_too_large(limit, self.consistency)),
        }
    }

    /// A read that is traced.
    async fn read_noted<R: RowSink>(
        &self,
        command: &ReadCommand,
        (rows, filter, order): (usize, Option<&ShardFilter>, Option<&ReplicatedRead>),
        trace: &Rc<ReadTrace>,
        sink: &mut R,
    ) -> Result<ReadStats> {
        if let Some(order) = order {
            let (asked, to) = ((self.consistency, self.scope), (Some(trace), filter, sink));
            return replicas::read(&self.executor, asked, command, order, to).await;
        }
        let coordinator = &self.executor.coordinator;
        let wanted = Wanted { rows, filter };
        let read = coordinator.local().read_noted(command, wanted, trace.shards(), sink).await;
        read.map_err(|error| {
            let id = self.executor.log_failure("read", &error);
            Failure::read(&error, self.consistency, id)
        })
    }

    async fn read_stored<R: RowSink>(
        &self,
        command: &ReadCommand,
        wanted: (usize, Option<&ShardFilter>),
        sink: &mut R,
    ) -> Result<ReadStats> {
        let (rows, filter) = wanted;
        let wanted = Wanted { rows, filter };
        let read = self.executor.coordinator.local().read_filtered(command, wanted, sink).await;
        read.map_err(|error| {
            let id = self.executor.log_failure("read", &error);
            Failure::read(&error, self.consistency, id)
        })
    }

    fn warnings(&self, plan: &SelectPlan, stats: &ReadStats) -> Vec<String> {
        let mut warnings: Vec<String> = plan.warning().map(str::to_owned).into_iter().collect();
        warnings.extend(tombstone_warning(&self.executor.settings, plan.table(), stats));
        warnings
    }
}

/// A page that is made in a way that may turn out to be closed. Dropped, nothing has happened to the page before.
struct Attempt {
    body: Vec<u8>,
}

impl Attempt {
    /// Begins with what the page has: the description of its columns.
    fn of(page: &[u8]) -> Attempt {
        Attempt { body: page.to_vec() }
    }

    /// It went well: takes the page's place.
    fn keep(self, page: &mut Vec<u8>) {
        *page = self.body;
    }
}

/// The terms of a read by shards of this node or of replicas.
#[derive(Clone, Copy)]
struct ReadTerms<'r> {
    order: Option<&'r ReplicatedRead>,
    trace: Option<&'r Rc<ReadTrace>>,
    patience: Option<&'r ReadDeadline>,
    charge: &'r Charge,
}

/// How a read is done.
struct Reading<'r> {
    table: &'r Arc<Table>,
    /// Of a read of several nodes.
    deadline: Option<Instant>,
    trace: Option<&'r Rc<ReadTrace>>,
    /// Of one that may take long.
    patience: Option<&'r ReadDeadline>,
    /// Memory of the answer.
    charge: &'r Charge,
}

/// Lets the planner's executor take what a read finds.
struct Sink<'e, 'p> {
    exec: &'e mut SelectExec<'p>,
    patience: Option<&'e ReadDeadline>,
    /// Since the last look at the clock.
    items: u32,
    tombstones: Tombstones,
    counters: &'e Counters,
    /// Memory of the answer.
    charge: &'e Charge,
}

#[inline]
fn flow(flow: select::Flow) -> Flow {
    match flow {
        select::Flow::Continue => Flow::Continue,
        select::Flow::SkipPartition => Flow::SkipPartition,
        select::Flow::Stop => Flow::Stop,
    }
}

impl Sink<'_, '_> {
    /// One more was looked at; whether the page is to end here because it has taken long.
    #[inline]
    fn is_long(&mut self) -> bool {
        self.items = self.items.wrapping_add(1);
        self.items.is_multiple_of(ITEMS_PER_LOOK) && self.patience.is_some_and(ReadDeadline::look)
    }

    /// Ends the page behind this row, or the whole partition, where it has taken long or fills its memory; false where
    /// it is no page.
    #[inline]
    fn ends_page(&mut self, bytes: usize, clustering: Option<&[u8]>) -> bool {
        let is_large = self.charge.fills_page(bytes);
        (self.is_long() || is_large) && self.cut(is_large, clustering)
    }

    #[cold]
    fn cut(&mut self, is_large: bool, clustering: Option<&[u8]>) -> bool {
        let key = self.exec.key().to_vec();
        let is_cut = self.exec.cut_at(&key, clustering);
        if is_cut && is_large {
            self.counters.memory_pages.inc();
        }
        is_cut
    }
}

impl RowSink for Sink<'_, '_> {
    #[inline]
    fn partition(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        flow(self.exec.partition(token, key, static_row))
    }

    #[inline]
    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        let next = self.exec.row(clustering, row);
        let bytes = self.exec.held_bytes();
        if !self.charge.covers(bytes) {
            return Flow::Stop;
        }
        if next == select::Flow::Continue && self.ends_page(bytes, Some(clustering)) {
            return Flow::Stop;
        }
        flow(next)
    }

    #[inline]
    fn partition_end(&mut self) -> Flow {
        let next = self.exec.partition_end();
        let bytes = self.exec.held_bytes();
        if !self.charge.covers(bytes) {
            return Flow::Stop;
        }
        if next != select::Flow::Stop && self.ends_page(bytes, None) {
            return Flow::Stop;
        }
        flow(next)
    }

    fn looked_at(&mut self, upto: LookedAt<'_>) -> Look {
        if self.tombstones.refuses(upto.tombstones) {
            return Look::Refuse;
        }
        let is_long = self.patience.is_some_and(ReadDeadline::look);
        let is_enough = self.tombstones.is_enough(upto.scanned);
        if !((is_long || is_enough) && self.exec.cut_at(upto.key, upto.clustering)) {
            return Look::Continue;
        }
        if is_enough {
            self.counters.tombstone_pages.inc();
        }
        Look::Stop
    }

    fn tombstones_per_look(&self) -> u32 {
        self.tombstones.per_look()
    }
}

/// Lets the planner's executor take what shards have made of their rows.
struct FoldedSink<'e, 'p> {
    exec: &'e mut SelectExec<'p>,
    patience: Option<&'e ReadDeadline>,
    /// Since the last look at the clock.
    results: u32,
    /// Memory of the answer.
    charge: &'e Charge,
}

impl FoldSink for FoldedSink<'_, '_> {
    fn partition(&mut self, key: &[u8]) -> Flow {
        flow(self.exec.partition_of_shard(key))
    }

    fn result(&mut self, last: Option<&[u8]>, bytes: &[u8]) -> Flow {
        self.results = self.results.wrapping_add(1);
        if self.results.is_multiple_of(ITEMS_PER_LOOK) {
            self.looked_at();
        }
        let next = self.exec.result_of_shard(last, bytes);
        if !self.charge.covers(self.exec.held_bytes()) {
            return Flow::Stop;
        }
        flow(next)
    }

    fn looked_at(&mut self) {
        // The answer is one, however long it takes.
        let _ = self.patience.is_some_and(ReadDeadline::look);
    }
}

/// As [`Sink`], and counts the bytes of what is found.
struct Counting<'e, 'p> {
    sink: Sink<'e, 'p>,
    bytes: u64,
}

impl RowSink for Counting<'_, '_> {
    fn partition(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        let of_static = static_row.map_or(0, |row| row.bytes().len());
        self.bytes += (key.len() + of_static) as u64;
        self.sink.partition(token, key, static_row)
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        self.bytes += (clustering.len() + row.bytes().len()) as u64;
        self.sink.row(clustering, row)
    }

    fn partition_end(&mut self) -> Flow {
        self.sink.partition_end()
    }

    fn looked_at(&mut self, upto: LookedAt<'_>) -> Look {
        self.sink.looked_at(upto)
    }

    fn tombstones_per_look(&self) -> u32 {
        self.sink.tombstones_per_look()
    }
}

/// What a filter cost, for a trace: what other shards left out, and what this one was shown.
struct FilterCost<'r> {
    stats: &'r ReadStats,
    /// Of the rows and keys that were looked at.
    bytes: u64,
    dropped: Dropped,
    /// Of all pages that came from other shards and nodes, and of the largest one.
    page_bytes: (u64, u64),
    result_bytes: u64,
}

impl FilterCost<'_> {
    fn describe(&self, columns: &[&str]) -> String {
        let ReadStats { rows, partitions, .. } = self.stats;
        let FilterCost { bytes, dropped, page_bytes: (pages, largest), result_bytes, .. } = self;
        let filtered = self.stats.filtered;
        let dropped = Dropped {
            rows: dropped.rows.saturating_add(filtered.rows),
            partitions: dropped.partitions.saturating_add(filtered.partitions),
        };
        format!(
            "Filtering on {} looked at {rows} rows of {partitions} partitions in {bytes} bytes, \
             dropped {} rows and {} whole partitions, and kept {} rows; {pages} bytes came in pages \
             of up to {largest} in memory, the result has {result_bytes} bytes",
            columns.join(", "),
            dropped.rows,
            dropped.partitions,
            rows.saturating_sub(dropped.rows),
        )
    }
}
