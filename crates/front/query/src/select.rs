//! Reads: from a bound SELECT to one page of rows in the answer.
//!
//! Owns: the deadline of a read, reads of stored rows. Other sources of rows are in [`strategies`], the receivers of
//! rows in [`sinks`]. The sink builds the rest of a page (description, row count, paging state, warnings). The planner
//! turns rows into results ([`cql_exec::SelectExec`]); it writes straight into the answer.

mod index_advice;
mod sinks;
mod strategies;

use crate::access;
use crate::account::{Charge, Refusal};
use crate::consistency::{Allowed, scope_of};
use crate::context::{Cx, Step, finish};
use crate::executor::Executor;
use crate::failure::{FailedKind, Failure, ReplicasFailed, Result};
use crate::guardrails;
use crate::latency::Kind;
use crate::outbound::{self, Outbound, Sent, Terms};
use crate::prepared::{ReadPlan, SelectStatement};
use crate::read_deadline::ReadDeadline;
use crate::read_strategy::ReadStrategy;
use crate::remote_fold;
use crate::replicas::{self, Asked};
use crate::settings::Timeout;
use crate::sink::{Describe, PageEnd, ResultPage, ResultSink};
use crate::ticket::Ticket;
use crate::tombstones::{Tombstones, tombstone_warning};
use cluster::ClusterSnapshot;
use coordinator::{ReadTrace, ReplicatedRead, SelectLimits, ShardFilter};
use cql_exec::{SelectDone, SelectExec};
use cql_plan::auth::is_computed;
use cql_plan::error::PlanErrorKind;
use cql_plan::plan::BoundValue;
use cql_plan::select::{BoundSelect, SelectPlan};
use cql_wire::{Consistency, QueryParameters};
use data::command::{Partitions, ReadCommand};
use schema::{Table, TableKind};
use sinks::{Counting, FilterCost, Sink};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use stdx::{Instant, TimestampMicros, WallMicros};
use store::{ReadStats, StoreError};
use strategies::ReadTerms;

/// Partitions of one read that are scanned before the read yields to waiting tasks.
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

/// Result of a read: its page up to the paging state, and its cost.
struct Found {
    done: SelectDone,
    stats: ReadStats,
    /// Bytes of the scanned rows and keys, where they are counted.
    bytes: u64,
}

/// Binds and begins a read. It is polled once in place; data in memory is answered at once.
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
    check_level_of_nearest(plan, parameters.consistency)?;
    let options = cx.options(parameters);
    let mut bound = plan.bind(values, &options).map_err(|error| match error.kind {
        PlanErrorKind::Unpageable => warned(plan, error.into()),
        _ => error.into(),
    })?;
    if let Some(watch) = cx.ticket.watch() {
        guardrails::check_bound_select(cx.executor, watch, &bound, request)?;
    }
    if access::unmasks(cx.executor, cx.sink.client(), plan.table()) {
        bound.unmask();
    }
    if statement.plan.strategy == ReadStrategy::Stored {
        cx.executor.latencies.note_table(plan.table().id);
    } else {
        strategies::begin(cx.executor, request, &options, &mut bound)?;
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
        advice: Cell::default(),
    };
    if let Some(outbound) = outbound {
        return Ok(Step::Waits(Box::pin(read.run_elsewhere(outbound, bound))));
    }
    Ok(Step::Waits(Box::pin(read.run(bound))))
}

/// Refuses serial reads of the nearest rows.
fn check_level_of_nearest(plan: &SelectPlan, consistency: Consistency) -> Result<()> {
    if plan.nearest_plan().is_none() || scope_of(consistency).is_none() {
        return Ok(());
    }
    Err(Failure::invalid(format!(
        "Top-K queries can only be run with consistency level ONE/LOCAL_ONE. Consistency level {} was used.",
        consistency.name()
    )))
}

/// Adds the warnings of the plan to a failure of its statement.
fn warned(plan: &SelectPlan, failure: Failure) -> Failure {
    match (failure, plan.warning()) {
        (Failure::Plan(error), Some(warning)) => Failure::Warned(error, warning),
        (failure, _) => failure,
    }
}

/// Builds a serial read for the node that executes the serial operations of its partition; `None`
/// when that is this one.
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

/// Returns the scope of a serial read: a read of one partition at a serial level, which must see
/// every conditional write that ended before it. As in Cassandra, a range is read at the level of a
/// quorum instead.
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

/// One running read.
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
    /// Scope of a serial read; `None` for other reads.
    scope: Option<paxos::Scope>,
    /// Latest instant of the answer, if it was set before the local execution.
    deadline: Option<Instant>,
    /// Advice about indexes, for the warnings of the answer.
    advice: Cell<Option<String>>,
}

impl<S: ResultSink> Read<S> {
    /// Has another node read; when it surely does not, reads here.
    async fn run_elsewhere(mut self, outbound: Box<Outbound>, bound: BoundSelect) -> S::Answer {
        let deadline = self.executor.rt.now() + self.timeout(&bound);
        // Time spent waiting for other nodes reduces the time left for a local read.
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
        let mut page = self.sink.page(out, &self.ticket, columns, self.describe)?;
        let expansion = Charge::new(&self.executor.account);
        expansion.set(bound.expanded_bytes());
        let charge = Charge::new(&self.executor.account);
        let rows = self.rows(plan, bound, &charge, page.body()).await;
        let (done, stats) = rows.map_err(|failure| warned(plan, failure))?;
        let mut warnings = self.warnings(plan, &stats);
        warnings.extend(bound.nearest.as_ref().and_then(|nearest| nearest.warning.clone()));
        let paging_state = done.paging_state.as_deref();
        page.finish(PageEnd { rows: done.rows, paging_state, warnings: &warnings })
    }

    fn note_kind(&self, is_range: bool, table: &Table) {
        self.ticket.note(|| {
            let kind = if is_range { "range query" } else { "single-partition query" };
            format!("Executing {kind} on {}", table.name)
        });
        if is_range && self.snapshot.is_some() {
            self.ticket.note(|| "Computing ranges to query".to_owned());
        }
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
        let table = plan.table();
        self.note_kind(is_range, table);
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
        let terms = Reading { deadline, trace: trace_of, patience: patience_of, charge };
        let mut reading = pin!(self.read_all(plan, bound, terms, body));
        // The first poll reads data in memory at once, without a timer.
        let first = poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await;
        let result = match first {
            Poll::Ready(result) => Ok(result),
            // The coordinator checks the deadline, and knows the replicas that answered.
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
                let Found { done: page, stats, bytes } = result?;
                if let Some(index) = plan.advised_index()
                    && let Some(advice) = index_advice::of_filter(index, &stats, page.dropped)
                {
                    self.advice.set(Some(advice));
                }
                self.ticket.note(|| {
                    let ReadStats { rows, tombstones, .. } = stats;
                    format!("Read {rows} live rows and {tombstones} tombstone cells")
                });
                if let Some(trace) = &trace {
                    let columns = bound.filtered_columns(table);
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

    /// Returns the order to the replicas; `None`: this node has all data.
    #[inline]
    fn order(&self, bound: &BoundSelect, reading: &Reading<'_>) -> Option<ReplicatedRead> {
        let (snapshot, deadline) = (self.snapshot.as_ref()?, reading.deadline?);
        Some(ReplicatedRead {
            snapshot: snapshot.clone(),
            consistency: replicas::level_of_read(self.consistency),
            deadline,
            page_timeout: reading.patience.map(ReadDeadline::timeout),
            rows_wanted: bound.rows_wanted(),
            limits: SelectLimits { rows_per_partition: bound.rows_per_partition() },
        })
    }

    async fn read_all(
        &self,
        plan: &SelectPlan,
        bound: &BoundSelect,
        reading: Reading<'_>,
        body: &mut Vec<u8>,
    ) -> Result<Found> {
        let mut bytes = 0;
        let mut stats = ReadStats::default();
        let strategy = self.statement.plan.strategy;
        if strategy.has_own_source()
            && let Some(found) = Box::pin(self.read_own_source(bound, reading, body)).await?
        {
            return Ok(found);
        }
        let order = self.order(bound, &reading);
        if strategy == ReadStrategy::Folded
            && let Some(folded) = self.read_folded(bound, order.as_ref(), reading, body).await?
        {
            return Ok(folded);
        }
        let _permit = self.permit(bound).await;
        let filter = shard_filter(plan, bound, order.as_ref());
        if let (Some(order), Some(filter), None) = (&order, &filter, self.scope)
            && let Some(read) = self.read_scattered(bound, filter, order, reading, body).await?
        {
            return Ok(read);
        }
        let Reading { trace, patience, charge, .. } = reading;
        let (filter, rows) = (filter.as_ref(), bound.rows_wanted());
        let mut exec = SelectExec::new(plan, bound, body);
        let mut tombstones = Tombstones::new(&self.executor.settings, bound.is_one_page(plan));
        for (number, command) in bound.reads().iter().enumerate() {
            if exec.is_stopped() {
                break;
            }
            if number % READS_PER_LOOK == READS_PER_LOOK - 1 {
                // Reads from memory never wait, so the loop yields here.
                self.executor.rt.yield_if_due().await;
            }
            let counters = &self.executor.counters;
            let mut sink =
                Sink { exec: &mut exec, patience, items: 0, tombstones, counters, charge };
            let read = match (&order, trace) {
                (order, Some(trace)) => {
                    let mut counting = Counting { sink, bytes: 0 };
                    let terms = ReadTerms { rows, filter, order: order.as_ref() };
                    let read = self.read_noted(command, terms, trace, &mut counting);
                    let read = Box::pin(read).await?;
                    bytes += counting.bytes + read.filtered.bytes;
                    read
                }
                // Boxed, so that reads of a node that is alone do not carry its size around.
                (Some(order), None) => {
                    let (level, scope) = (self.consistency, self.scope);
                    let asked = Asked { level, scope, trace: None, filter };
                    let read = replicas::read(&self.executor, asked, command, order, &mut sink);
                    Box::pin(read).await?
                }
                (None, None) => self.read_stored(command, rows, filter, &mut sink).await?,
            };
            self.check_room(charge)?;
            if order.is_none() && tombstones.refuses(read.tombstones) {
                return Err(self.too_many_tombstones(read.tombstones));
            }
            if let Partitions::Key(key) = &command.partitions
                && tombstones.pass(read.tombstones)
                && !exec.is_stopped()
                && exec.cut_at(key, None)
            {
                counters.tombstone_pages.inc();
            }
            add_stats(&mut stats, &read);
        }
        Ok(Found { done: exec.finish()?, stats, bytes })
    }

    #[cold]
    fn too_many_tombstones(&self, scanned: u32) -> Failure {
        let error = StoreError::TombstoneFailure { scanned };
        let id = self.executor.log_failure("read", &error);
        Failure::read(&error, self.consistency, id)
    }

    /// Checks that the answer has stayed within its memory.
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

    fn warnings(&self, plan: &SelectPlan, stats: &ReadStats) -> Vec<String> {
        let mut warnings: Vec<String> = plan.warning().map(str::to_owned).into_iter().collect();
        warnings.extend(tombstone_warning(&self.executor.settings, plan.table(), stats));
        warnings.extend(self.advice.take());
        warnings
    }
}

/// Returns the filter that shards apply.
#[inline]
fn shard_filter(
    plan: &SelectPlan,
    bound: &BoundSelect,
    order: Option<&ReplicatedRead>,
) -> Option<ShardFilter> {
    bound.shard_filter(plan).map(|(filter, rows_wanted)| {
        let shipped = order.and_then(|_| remote_fold::ship(bound, plan, None));
        ShardFilter { filter, rows_wanted, shipped }
    })
}

#[inline]
fn add_stats(sum: &mut ReadStats, read: &ReadStats) {
    sum.rows = sum.rows.saturating_add(read.rows);
    sum.partitions = sum.partitions.saturating_add(read.partitions);
    sum.tombstones = sum.tombstones.saturating_add(read.tombstones);
    sum.filtered.add(&read.filtered);
}

/// Terms of a read.
#[derive(Clone, Copy)]
struct Reading<'r> {
    /// Deadline of a read of several nodes.
    deadline: Option<Instant>,
    trace: Option<&'r Rc<ReadTrace>>,
    /// Deadline of a read that may take long.
    patience: Option<&'r ReadDeadline>,
    /// Memory of the answer.
    charge: &'r Charge,
}
