//! Writes that must read lists before they can be bound (elements by index or by value).
//!
//! Owns: the order read, bind, apply. As in Cassandra nothing keeps another write from coming in
//! between: whoever needs that uses conditions. What is read and what becomes of it is the planner's
//! business ([`cql_plan::modify`]).

use crate::execute::{
    Allowed, Cx, Modification, Statement, Step, WriteOrder, bind, carry_out, finish,
};
use crate::failure::{Failure, Result};
use crate::prepared::Compiled;
use crate::replicas;
use crate::server::Server;
use crate::session::Ticket;
use crate::settings::Timeout;
use cluster::ClusterSnapshot;
use coordinator::ReplicaMutation;
use coordinator::{ReplicatedRead, SelectLimits};
use cql_plan::plan::{BoundValue, ExecuteOptions, PlanKind};
use cql_plan::{FoundLists, ListRead, PlanError};
use cql_syntax::ast::BatchKind;
use cql_wire::Consistency;
use data::RowRef;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::{Instant, TimestampMicros, Token, WallMicros};
use store::{Flow, RowSink};

/// A value of a request that outlives its frame.
enum OwnedValue {
    Null,
    Unset,
    Bytes(Vec<u8>),
}

/// Values of one statement.
pub(crate) struct OwnedValues(Vec<OwnedValue>);

impl OwnedValues {
    pub(crate) fn of(values: &[BoundValue<'_>]) -> OwnedValues {
        let own = |value: &BoundValue<'_>| match value {
            BoundValue::Null => OwnedValue::Null,
            BoundValue::Unset => OwnedValue::Unset,
            BoundValue::Bytes(bytes) => OwnedValue::Bytes(bytes.to_vec()),
        };
        OwnedValues(values.iter().map(own).collect())
    }

    pub(crate) fn borrow(&self) -> Vec<BoundValue<'_>> {
        let borrow = |value| match value {
            &OwnedValue::Null => BoundValue::Null,
            &OwnedValue::Unset => BoundValue::Unset,
            OwnedValue::Bytes(bytes) => BoundValue::Bytes(bytes),
        };
        self.0.iter().map(borrow).collect()
    }
}

/// A write to be bound after its reads: a [`Modification`] that outlives its request.
pub(crate) struct ListWrite {
    statements: Vec<(Rc<Compiled>, OwnedValues)>,
    batch: Option<BatchKind>,
    consistency: Consistency,
    allowed: Allowed,
    /// The metadata the request began with, when other nodes may have the data too.
    snapshot: Option<Arc<ClusterSnapshot>>,
    timeout_nanos: Option<u64>,
    /// What the client is warned about already.
    warnings: Vec<String>,
    now: WallMicros,
    timestamp: TimestampMicros,
    protocol_version: u8,
}

impl ListWrite {
    /// `timeout_nanos` is what `USING TIMEOUT` says, `warnings` what the client is told.
    pub(crate) fn new(
        server: &Server,
        request: &Modification<'_>,
        (timeout_nanos, warnings): (Option<u64>, Vec<String>),
    ) -> ListWrite {
        let own =
            |(compiled, values): &Statement<'_>| ((*compiled).clone(), OwnedValues::of(values));
        ListWrite {
            statements: request.statements.iter().map(own).collect(),
            batch: request.batch,
            consistency: request.consistency,
            allowed: request.allowed,
            snapshot: request.allowed.snapshot(server),
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
    pub(crate) fn run(self, cx: &Cx<'_>) -> Result<Step> {
        if self.consistency == Consistency::Any {
            return Err(Failure::invalid(
                "Write operation require a read but consistency ANY is not supported on reads",
            ));
        }
        let (server, session) = (cx.server.clone(), cx.session.clone());
        let ticket = cx.ticket.clone();
        Ok(Step::Waits(Box::pin(async move {
            let (result, warnings) = match self.execute(&server, &ticket).await {
                Ok(warnings) => (Ok(()), warnings),
                Err(failure) => (Err(failure), Vec::new()),
            };
            finish(&server, &session, &ticket, result, |out| {
                let warnings: Vec<&str> = warnings.iter().map(String::as_str).collect();
                session.respond_void(out, &ticket, &warnings);
                Ok(())
            })
            .await
        })))
    }

    async fn execute(&self, server: &Rc<Server>, ticket: &Ticket) -> Result<Vec<String>> {
        let ((reads, wrong), options) = (self.reads(server)?, self.options((server, ticket)));
        let usual = server.timeouts.get(Timeout::Read);
        let read_timeout = self.timeout_nanos.map_or(usual, Duration::from_nanos);
        ticket.note(|| format!("Reading {} existing rows of lists", reads.len()));
        let deadline = server.rt.now() + read_timeout;
        let found = match &self.snapshot {
            // The coordinator keeps the deadline, and knows who has answered.
            Some(snapshot) => {
                Box::pin(self.read_replicas(server, &reads, (snapshot, deadline))).await?
            }
            None => server
                .rt
                .timeout(deadline, self.read(server, &reads))
                .await
                .map_err(|_| Failure::ReadTimeout { consistency: self.consistency })??,
        };
        let (writes, order) = self.bind(server, &options, &found)?;
        if let Some(error) = wrong {
            return Err(Failure::Plan(error));
        }
        carry_out(server, ticket, writes, &order).await?;
        Ok(order.warnings)
    }

    fn options<'s>(&self, (server, ticket): (&'s Server, &'s Ticket)) -> ExecuteOptions<'s> {
        ExecuteOptions {
            now: self.now,
            clock: server.rt.wall(),
            default_timestamp: self.timestamp,
            page_size: None,
            paging_state: None,
            protocol_version: self.protocol_version,
            uuids: &server.uuids,
            watch: ticket.watch(),
        }
    }

    /// What is to be read, up to the first statement whose primary key is wrong, and what is wrong with
    /// it: binding tells so, behind what is wrong with the statements before.
    fn reads(&self, server: &Server) -> Result<(Vec<ListRead>, Option<PlanError>)> {
        // What binding is held against the limits for comes later.
        let nobody = Ticket { stream: 0, connection: 0, trace: None, watch: None };
        let options = self.options((server, &nobody));
        let mut reads = Vec::new();
        for (compiled, values) in &self.statements {
            let values = values.borrow();
            let (more, wrong) = match &compiled.plan.kind {
                PlanKind::Modify(plan) => match plan.list_reads(&values, &options) {
                    Ok(more) => (more, None),
                    Err(error) => (Vec::new(), Some(error)),
                },
                PlanKind::Batch(plan) => plan.list_reads(&values, &options),
                _ => return Err(server.internal_failure("a plan of another kind")),
            };
            reads.extend(more);
            if wrong.is_some() {
                return Ok((reads, wrong));
            }
        }
        Ok((reads, None))
    }

    async fn read(&self, server: &Server, reads: &[ListRead]) -> Result<FoundLists> {
        let mut found = FoundLists::default();
        for read in reads {
            let mut sink = Sink { read, found: &mut found };
            let result = server.coordinator.read(&read.command, 1, &mut sink).await;
            result.map_err(|error| {
                let id = server.log_failure("read", &error);
                Failure::read(&error, self.consistency, id)
            })?;
        }
        Ok(found)
    }

    async fn read_replicas(
        &self,
        server: &Server,
        reads: &[ListRead],
        (snapshot, deadline): (&Arc<ClusterSnapshot>, Instant),
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
            let asked = (self.consistency, None);
            replicas::read(server, asked, &read.command, &order, (None, None, &mut sink)).await?;
        }
        Ok(found)
    }

    fn bind(
        &self,
        server: &Server,
        options: &ExecuteOptions<'_>,
        found: &FoundLists,
    ) -> Result<(Vec<ReplicaMutation>, WriteOrder)> {
        let values: Vec<Vec<BoundValue<'_>>> =
            self.statements.iter().map(|(_, values)| values.borrow()).collect();
        let compiled = self.statements.iter().map(|(compiled, _)| compiled);
        let statements: Vec<Statement<'_>> =
            compiled.zip(values.iter().map(Vec::as_slice)).collect();
        let mut encoded = Vec::new();
        let bound = bind(server, (&statements, self.batch), options, found, &mut encoded)?;
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
