//! Writes that must read lists before they can be bound (elements by index or by value).
//!
//! Owns: the order read, bind, apply. Like in Cassandra, another write may come between them;
//! conditions prevent that. The planner decides what is read and how the rows are used
//! ([`cql_plan::modify`]).

use crate::consistency::Allowed;
use crate::context::{Cx, Step, finish_void};
use crate::executor::Executor;
use crate::failure::{Failure, Result};
use crate::modification::{Checked, Modification, OwnedStatements, WriteOrder};
use crate::mutations::{bind, carry_out};
use crate::replicas::{self, Asked};
use crate::settings::Timeout;
use crate::sink::ResultSink;
use crate::ticket::Ticket;
use cluster::ClusterSnapshot;
use coordinator::ReplicaMutation;
use coordinator::{ReplicatedRead, SelectLimits};
use cql_plan::guardrails::Watch;
use cql_plan::plan::ExecuteOptions;
use cql_plan::{FoundLists, ListRead};
use cql_wire::Consistency;
use data::RowRef;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::{Instant, TimestampMicros, Token, WallMicros};
use store::{Flow, RowSink};

/// A write to be bound after its reads: a [`Modification`] that outlives its request.
pub(crate) struct ListWrite {
    statements: OwnedStatements,
    consistency: Consistency,
    allowed: Allowed,
    /// The metadata the request began with, when other nodes may have the data too.
    snapshot: Option<Arc<ClusterSnapshot>>,
    timeout_nanos: Option<u64>,
    /// Warnings that the client already gets.
    warnings: Vec<String>,
    now: WallMicros,
    timestamp: TimestampMicros,
    protocol_version: u8,
}

impl ListWrite {
    pub(crate) fn new(
        executor: &Executor,
        request: &Modification<'_>,
        checked: Checked,
    ) -> ListWrite {
        let Checked { timeout_nanos, warnings } = checked;
        ListWrite {
            statements: OwnedStatements::of(&request.statements),
            consistency: request.consistency,
            allowed: request.allowed,
            snapshot: request.allowed.snapshot(executor),
            timeout_nanos,
            warnings,
            now: request.options.now,
            timestamp: request.options.default_timestamp,
            protocol_version: request.options.protocol_version,
        }
    }

    /// Reads, binds and applies.
    ///
    /// # Errors
    /// A consistency level that nothing can be read at.
    pub(crate) fn run<S: ResultSink>(self, cx: &Cx<'_, S>) -> Result<Step<S::Answer>> {
        if self.consistency == Consistency::Any {
            return Err(Failure::invalid(
                "Write operation require a read but consistency ANY is not supported on reads",
            ));
        }
        let (executor, sink) = (cx.executor.clone(), cx.sink.clone());
        let ticket = cx.ticket.clone();
        Ok(Step::Waits(Box::pin(async move {
            let (result, warnings) = match self.execute(&executor, &ticket).await {
                Ok(warnings) => (Ok(()), warnings),
                Err(failure) => (Err(failure), Vec::new()),
            };
            finish_void(&executor, &sink, &ticket, result, &warnings).await
        })))
    }

    async fn execute(&self, executor: &Rc<Executor>, ticket: &Ticket) -> Result<Vec<String>> {
        // Limits are checked later, when the statement is bound.
        let unwatched = self.options(executor, None);
        // Binding reports an invalid key after the errors of the statements before it.
        let (reads, wrong) = self.statements.with(|all| all.list_reads(&unwatched));
        let options = self.options(executor, ticket.watch());
        let usual = executor.timeouts.get(Timeout::Read);
        let read_timeout = self.timeout_nanos.map_or(usual, Duration::from_nanos);
        ticket.note(|| format!("Reading {} existing rows of lists", reads.len()));
        let deadline = executor.rt.now() + read_timeout;
        let found = match &self.snapshot {
            // The coordinator checks the deadline, and knows the replicas that answered.
            Some(snapshot) => {
                Box::pin(self.read_replicas(executor, &reads, snapshot, deadline)).await?
            }
            None => executor
                .rt
                .timeout(deadline, self.read(executor, &reads))
                .await
                .map_err(|_| Failure::ReadTimeout { consistency: self.consistency })??,
        };
        let (writes, order) = self.bind(executor, &options, &found)?;
        if let Some(error) = wrong {
            return Err(Failure::Plan(error));
        }
        carry_out(executor, ticket, writes, &order).await?;
        Ok(order.warnings)
    }

    fn options<'s>(&self, executor: &'s Executor, watch: Option<&'s Watch>) -> ExecuteOptions<'s> {
        ExecuteOptions {
            now: self.now,
            clock: executor.rt.wall(),
            default_timestamp: self.timestamp,
            page_size: None,
            paging_state: None,
            protocol_version: self.protocol_version,
            uuids: &executor.uuids,
            watch,
        }
    }

    async fn read(&self, executor: &Executor, reads: &[ListRead]) -> Result<FoundLists> {
        let mut found = FoundLists::default();
        for read in reads {
            let mut sink = Sink { read, found: &mut found };
            let result = executor.coordinator.read(&read.command, 1, &mut sink).await;
            result.map_err(|error| {
                let id = executor.log_failure("read", &error);
                Failure::read(&error, self.consistency, id)
            })?;
        }
        Ok(found)
    }

    async fn read_replicas(
        &self,
        executor: &Executor,
        reads: &[ListRead],
        snapshot: &Arc<ClusterSnapshot>,
        deadline: Instant,
    ) -> Result<FoundLists> {
        let mut found = FoundLists::default();
        for read in reads {
            let order = ReplicatedRead {
                snapshot: snapshot.clone(),
                consistency: replicas::level_of_read(self.consistency),
                deadline,
                page_timeout: None,
                rows_wanted: 1,
                limits: SelectLimits { rows_per_partition: u32::MAX },
            };
            let mut sink = Sink { read, found: &mut found };
            let asked = Asked { level: self.consistency, scope: None, trace: None, filter: None };
            replicas::read(executor, asked, &read.command, &order, &mut sink).await?;
        }
        Ok(found)
    }

    fn bind(
        &self,
        executor: &Executor,
        options: &ExecuteOptions<'_>,
        found: &FoundLists,
    ) -> Result<(Vec<ReplicaMutation>, WriteOrder)> {
        let mut encoded = Vec::new();
        let bound =
            self.statements.with(|all| bind(executor, all, options, found, &mut encoded))?;
        let own = |m: &cql_plan::BoundMutation| {
            let bytes = encoded.get(m.range.clone()).unwrap_or_default();
            let bytes = bytes.to_vec();
            ReplicaMutation { token: m.token, bytes, durable: self.allowed.durable }
        };
        let mut warnings = self.warnings.clone();
        warnings.extend(bound.warnings);
        let order = WriteOrder {
            consistency: self.consistency,
            write_type: bound.write_type,
            warnings,
            timeout_nanos: self.timeout_nanos,
            snapshot: self.snapshot.clone(),
        };
        Ok((bound.mutations.iter().map(own).collect(), order))
    }
}

/// Lets the lists take the one row that a read finds.
struct Sink<'f> {
    read: &'f ListRead,
    found: &'f mut FoundLists,
}

impl RowSink for Sink<'_> {
    fn partition(&mut self, _: Token, _: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        if !self.read.is_static {
            return Flow::Continue;
        }
        if let Some(row) = static_row {
            self.found.take(self.read, row);
        }
        Flow::Stop
    }

    fn row(&mut self, _: &[u8], row: RowRef<'_>) -> Flow {
        self.found.take(self.read, row);
        Flow::Stop
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Stop
    }
}
