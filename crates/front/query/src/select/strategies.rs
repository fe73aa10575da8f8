//! The ways of a read to its rows: computed by this node, folded by shards, filtered by shards of replicas, stored.

use super::index_advice;
use super::sinks::{Counting, FoldedSink, Sink};
use super::{Found, READS_PER_LOOK, Read, ReadRequest, Reading, add_stats};
use crate::executor::Executor;
use crate::failure::{Failure, Result};
use crate::read_strategy::ReadStrategy;
use crate::remote_fold;
use crate::replicas::{self, Asked};
use crate::sink::ResultSink;
use crate::tombstones::Tombstones;
use crate::virtual_tables;
use coordinator::{
    FoldError, FoldOf, FoldOrder, IndexOrder, IndexReadError, NearestError, NearestOrder,
    ReadOptions, ReadTrace, ReplicatedRead, ShardFilter, Unselective, Wanted,
};
use cql_exec::{SelectExec, SelectFold};
use cql_plan::plan::ExecuteOptions;
use cql_plan::select::{BoundSelect, NearestQuery};
use data::RowFilter;
use data::command::{Partitions, ReadCommand};
use rt::sync::Permit;
use std::rc::Rc;
use store::{ReadStats, RowSink};

/// A page that is built by a strategy that may fail. If it is dropped, the page is unchanged.
struct Attempt {
    body: Vec<u8>,
}

impl Attempt {
    /// Starts with the contents of the page: the description of its columns.
    fn of(page: &[u8]) -> Attempt {
        Attempt { body: page.to_vec() }
    }

    /// It went well: takes the page's place.
    fn keep(self, page: &mut Vec<u8>) {
        *page = self.body;
    }
}

/// Terms of the execution of one command of a read.
#[derive(Clone, Copy)]
pub(super) struct ReadTerms<'r> {
    /// Rows that are wanted.
    pub(super) rows: usize,
    /// Filter that shards apply.
    pub(super) filter: Option<&'r ShardFilter>,
    /// Replicas of a read of several nodes.
    pub(super) order: Option<&'r ReplicatedRead>,
}

/// Prepares the source of a read that is no plain one of stored rows.
///
/// # Errors
/// Values that an index cannot have.
#[cold]
pub(super) fn begin(
    executor: &Executor,
    request: &ReadRequest<'_>,
    options: &ExecuteOptions<'_>,
    bound: &mut BoundSelect,
) -> Result<()> {
    let &ReadRequest { statement, values, .. } = request;
    let plan = &*statement.plan.select;
    match (statement.plan.strategy, plan.index_plan()) {
        (ReadStrategy::Virtual, _) => return Ok(()),
        (ReadStrategy::Indexed | ReadStrategy::Nearest, Some(indexes)) => {
            bound.search_by(indexes.bind(values, options)?);
        }
        _ => {}
    }
    executor.latencies.note_table(plan.table().id);
    Ok(())
}

impl<S: ResultSink> Read<S> {
    /// Reads from the source of the strategy. `None`: the rows are read as stored ones.
    pub(super) async fn read_own_source(
        &self,
        bound: &BoundSelect,
        reading: Reading<'_>,
        body: &mut Vec<u8>,
    ) -> Result<Option<Found>> {
        if let Some(nearest) = &bound.nearest {
            return self.read_nearest(bound, nearest, reading, body).await.map(Some);
        }
        if self.statement.plan.strategy != ReadStrategy::Indexed {
            return self.read_computed(bound, reading, body).await.map(Some);
        }
        // A serial read is of one partition: it is read and filtered.
        if bound.index_predicates().is_empty() || self.scope.is_some() {
            return Ok(None);
        }
        self.read_indexed(bound, reading, body).await.map(Some)
    }

    /// Reads the rows that indexes name.
    async fn read_indexed(
        &self,
        bound: &BoundSelect,
        reading: Reading<'_>,
        body: &mut Vec<u8>,
    ) -> Result<Found> {
        let plan = &*self.statement.plan.select;
        let Reading { trace, patience, charge, .. } = reading;
        let order = self.order(bound, &reading);
        let _permit = self.permit(bound).await;
        let rows_wanted = bound.shard_filter(plan).map_or(usize::MAX, |(_, rows)| rows);
        let indexed = IndexOrder {
            table: plan.table(),
            predicates: bound.index_predicates(),
            replicas: order.as_ref(),
            trace,
            rows_wanted,
        };
        let mut exec = SelectExec::new(plan, bound, body);
        let tombstones = Tombstones::new(&self.executor.settings, bound.is_one_page(plan));
        let counters = &self.executor.counters;
        let (mut stats, mut bytes) = (ReadStats::default(), 0);
        for command in bound.reads() {
            if exec.is_stopped() {
                break;
            }
            let sink = Sink { exec: &mut exec, patience, items: 0, tombstones, counters, charge };
            let mut counting = Counting { sink, bytes: 0 };
            let index_reads = self.executor.coordinator.scans().index_reads();
            let read = index_reads.read(command, &indexed, &mut counting).await;
            bytes += counting.bytes;
            let read = read.map_err(|error| self.index_failure(error, order.as_ref()))?;
            self.check_room(charge)?;
            if order.is_none() && tombstones.refuses(read.stats.tombstones) {
                return Err(self.too_many_tombstones(read.stats.tombstones));
            }
            add_stats(&mut stats, &read.stats);
            if let Some(unselective) = read.unselective {
                self.note_unselective(bound, unselective, &stats);
            }
        }
        Ok(Found { done: exec.finish()?, stats, bytes })
    }

    /// Reads the rows nearest to a vector.
    async fn read_nearest(
        &self,
        bound: &BoundSelect,
        nearest: &NearestQuery,
        reading: Reading<'_>,
        body: &mut Vec<u8>,
    ) -> Result<Found> {
        let plan = &*self.statement.plan.select;
        let Reading { trace, patience, charge, .. } = reading;
        let order = self.order(bound, &reading);
        let _permit = self.permit(bound).await;
        let limit = self.executor.account.answer_bytes_max();
        let order_of_rows = NearestOrder {
            table: plan.table(),
            index: nearest.index,
            vectors: nearest.vectors,
            column: nearest.column,
            vector: &nearest.vector,
            rows: bound.limit,
            predicates: bound.index_predicates(),
            filter: bound.filters.as_deref().map(|filters| filters as &dyn RowFilter),
            replicas: order.as_ref(),
            trace,
            bytes_max: limit,
        };
        let mut exec = SelectExec::new(plan, bound, body);
        let tombstones = Tombstones::new(&self.executor.settings, bound.is_one_page(plan));
        let counters = &self.executor.counters;
        let (mut stats, mut bytes) = (ReadStats::default(), 0);
        // One partition or one range.
        for command in bound.reads() {
            let sink = Sink { exec: &mut exec, patience, items: 0, tombstones, counters, charge };
            let mut counting = Counting { sink, bytes: 0 };
            let index_reads = self.executor.coordinator.scans().index_reads();
            let read = index_reads.read_nearest(command, &order_of_rows, &mut counting).await;
            bytes += counting.bytes;
            let read = read.map_err(|error| match error {
                NearestError::Read(error) => self.index_failure(error, order.as_ref()),
                NearestError::TooLarge => self.executor.result_too_large(limit, self.consistency),
            })?;
            self.check_room(charge)?;
            if order.is_none() && tombstones.refuses(read.tombstones) {
                return Err(self.too_many_tombstones(read.tombstones));
            }
            add_stats(&mut stats, &read);
        }
        Ok(Found { done: exec.finish()?, stats, bytes })
    }

    #[cold]
    fn index_failure(&self, error: IndexReadError, order: Option<&ReplicatedRead>) -> Failure {
        match (error, order) {
            (IndexReadError::Request(error), Some(order)) => {
                Failure::request(error, self.consistency, &order.snapshot)
            }
            (IndexReadError::Request(_), None) => {
                self.executor.internal_failure("an indexed read of this node alone")
            }
            (IndexReadError::Store(error), _) => {
                let id = self.executor.log_failure("read", &error);
                Failure::read(&error, self.consistency, id)
            }
        }
    }

    /// Says in the trace that an index names a large part of its table, and in a warning if that has cost much.
    #[cold]
    fn note_unselective(&self, bound: &BoundSelect, unselective: Unselective, stats: &ReadStats) {
        let Unselective { predicate, percent } = unselective;
        let table = self.statement.plan.select.table();
        let predicate = bound.index_predicates().get(predicate);
        let index = predicate.and_then(|predicate| table.index_by_id(predicate.index));
        if let Some(index) = index {
            self.ticket.note(|| index_advice::unselective_index(&index.name, percent));
            self.advice.set(index_advice::of_unselective_index(&index.name, percent, stats));
        }
    }

    /// Reads rows that this node computes.
    pub(super) async fn read_computed(
        &self,
        bound: &BoundSelect,
        reading: Reading<'_>,
        body: &mut Vec<u8>,
    ) -> Result<Found> {
        let plan = &*self.statement.plan.select;
        let (table, Reading { patience, charge, .. }) = (plan.table(), reading);
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
            let read = virtual_tables::read(table, &computed, command, bound.floor(), &mut sink);
            self.check_room(charge)?;
            stats.rows = stats.rows.saturating_add(read.rows);
            stats.partitions = stats.partitions.saturating_add(read.partitions);
        }
        Ok(Found { done: exec.finish()?, stats, bytes: 0 })
    }

    /// Has the shards make the groups of an aggregation; `None` when that cannot be: then nothing is appended.
    pub(super) async fn read_folded(
        &self,
        bound: &BoundSelect,
        order: Option<&ReplicatedRead>,
        reading: Reading<'_>,
        body: &mut Vec<u8>,
    ) -> Result<Option<Found>> {
        let plan = &*self.statement.plan.select;
        let Reading { trace, patience, charge, .. } = reading;
        let coordinator = &self.executor.coordinator;
        let Some((fold, results_wanted)) = bound.shard_fold(plan) else { return Ok(None) };
        let Some(command) = bound.reads().first() else { return Ok(None) };
        let mut attempt = Attempt::of(body);
        let mut exec = SelectExec::new(plan, bound, &mut attempt.body);
        let mut sink = FoldedSink { exec: &mut exec, patience, results: 0, charge };
        let source = order.and(self.statement.header.source.as_ref());
        let shipped = source.and_then(|source| remote_fold::ship(bound, plan, Some(source)));
        let fold = FoldOrder { fold, results_wanted, shipped };
        let of = FoldOf { order, trace: trace.map(|t| &**t) };
        let read = coordinator.scans().fold(command, &fold, of, &mut sink);
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
        // On any error the rows are read in their order instead, and report it.
        let done = if merged { exec.finish().ok() } else { None };
        let Some(done) = done else { return Ok(None) };
        attempt.keep(body);
        let bytes = folded.stats.filtered.bytes;
        Ok(Some(Found { done, stats: folded.stats, bytes }))
    }

    /// Has shards of the replicas filter rows; `None` when that cannot be: then nothing is appended.
    pub(super) async fn read_scattered(
        &self,
        bound: &BoundSelect,
        filter: &ShardFilter,
        order: &ReplicatedRead,
        reading: Reading<'_>,
        body: &mut Vec<u8>,
    ) -> Result<Option<Found>> {
        let plan = &*self.statement.plan.select;
        let Reading { trace, patience, charge, .. } = reading;
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
        let bytes = bytes.saturating_add(stats.filtered.bytes);
        Ok(Some(Found { done, stats, bytes }))
    }

    /// Waits until another read that has pages of other shards may begin.
    pub(super) async fn permit(&self, bound: &BoundSelect) -> Option<Permit> {
        let (executor, table) = (&self.executor, self.statement.plan.select.table());
        let permits = match bound.reads().first().map(|read| &read.partitions)? {
            // Short reads, which drivers send first.
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

    /// A read that is traced.
    pub(super) async fn read_noted<R: RowSink>(
        &self,
        command: &ReadCommand,
        terms: ReadTerms<'_>,
        trace: &Rc<ReadTrace>,
        sink: &mut R,
    ) -> Result<ReadStats> {
        let ReadTerms { rows, filter, order } = terms;
        if let Some(order) = order {
            let asked =
                Asked { level: self.consistency, scope: self.scope, trace: Some(trace), filter };
            return replicas::read(&self.executor, asked, command, order, sink).await;
        }
        let coordinator = &self.executor.coordinator;
        let read = coordinator
            .local()
            .read_noted(command, Wanted { rows, filter }, trace.shards(), sink)
            .await;
        read.map_err(|error| {
            let id = self.executor.log_failure("read", &error);
            Failure::read(&error, self.consistency, id)
        })
    }

    pub(super) async fn read_stored<R: RowSink>(
        &self,
        command: &ReadCommand,
        rows: usize,
        filter: Option<&ShardFilter>,
        sink: &mut R,
    ) -> Result<ReadStats> {
        let read = self
            .executor
            .coordinator
            .local()
            .read_filtered(command, Wanted { rows, filter }, sink)
            .await;
        read.map_err(|error| {
            let id = self.executor.log_failure("read", &error);
            Failure::read(&error, self.consistency, id)
        })
    }
}
