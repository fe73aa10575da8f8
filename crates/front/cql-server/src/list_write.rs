//! Writes that must read lists before they can be bound (elements by index or by value).
//!
//! Owns: the order read, bind, apply. As in Cassandra nothing keeps another write from coming in
//! between: whoever needs that uses conditions. What is read and what becomes of it is the planner's
//! business ([`cql_plan::modify`]).

use crate::execute::{Cx, Step, apply_all, batch_type, finish};
use crate::failure::{Failure, Result};
use crate::prepared::Compiled;
use crate::server::Server;
use crate::session::Ticket;
use cql_plan::plan::{BoundValue, ExecuteOptions, PlanKind};
use cql_plan::{FoundLists, ListRead, ModifyPlan, bind_batch_found};
use cql_syntax::ast::BatchKind;
use cql_wire::{Consistency, WriteType};
use data::RowRef;
use std::rc::Rc;
use std::time::Duration;
use stdx::{TimestampMicros, Token, WallMicros};
use store::{Flow, RowSink};

/// A value of a request that outlives its frame.
enum OwnedValue {
    Null,
    Unset,
    Bytes(Vec<u8>),
}

/// Values of one statement.
struct OwnedValues(Vec<OwnedValue>);

impl OwnedValues {
    fn of(values: &[BoundValue<'_>]) -> OwnedValues {
        let own = |value: &BoundValue<'_>| match value {
            BoundValue::Null => OwnedValue::Null,
            BoundValue::Unset => OwnedValue::Unset,
            BoundValue::Bytes(bytes) => OwnedValue::Bytes(bytes.to_vec()),
        };
        OwnedValues(values.iter().map(own).collect())
    }

    fn borrow(&self) -> Vec<BoundValue<'_>> {
        let borrow = |value| match value {
            &OwnedValue::Null => BoundValue::Null,
            &OwnedValue::Unset => BoundValue::Unset,
            OwnedValue::Bytes(bytes) => BoundValue::Bytes(bytes),
        };
        self.0.iter().map(borrow).collect()
    }
}

/// A write to be bound after its reads.
pub(crate) struct ListWrite {
    /// The statement; those of a batch message in order.
    statements: Vec<(Rc<Compiled>, OwnedValues)>,
    /// Of a batch message.
    batch: Option<BatchKind>,
    consistency: Consistency,
    durable: bool,
    timeout_nanos: Option<u64>,
    now: WallMicros,
    timestamp: TimestampMicros,
    protocol_version: u8,
}

/// What a write was bound to.
struct Mutations {
    writes: Vec<(Token, Vec<u8>, bool)>,
    write_type: WriteType,
    warnings: Vec<String>,
}

/// What every list write needs beside its statements.
pub(crate) struct Order<'o> {
    /// Consistency of reads and writes.
    pub(crate) consistency: Consistency,
    /// Whether writes are logged.
    pub(crate) durable: bool,
    /// `USING TIMEOUT`.
    pub(crate) timeout_nanos: Option<u64>,
    /// Times of the request.
    pub(crate) options: &'o ExecuteOptions<'o>,
}

impl ListWrite {
    /// One statement, or a batch as text.
    pub(crate) fn statement(
        compiled: &Rc<Compiled>,
        values: &[BoundValue<'_>],
        order: &Order<'_>,
    ) -> ListWrite {
        ListWrite::new(vec![(compiled.clone(), OwnedValues::of(values))], None, order)
    }

    /// The statements of a batch message.
    pub(crate) fn batch<'s>(
        kind: BatchKind,
        statements: impl Iterator<Item = (&'s Rc<Compiled>, &'s [BoundValue<'s>])>,
        order: &Order<'_>,
    ) -> ListWrite {
        let own = |(compiled, values): (&Rc<Compiled>, &[BoundValue<'_>])| {
            (compiled.clone(), OwnedValues::of(values))
        };
        ListWrite::new(statements.map(own).collect(), Some(kind), order)
    }

    fn new(
        statements: Vec<(Rc<Compiled>, OwnedValues)>,
        batch: Option<BatchKind>,
        order: &Order<'_>,
    ) -> ListWrite {
        ListWrite {
            statements,
            batch,
            consistency: order.consistency,
            durable: order.durable,
            timeout_nanos: order.timeout_nanos,
            now: order.options.now,
            timestamp: order.options.default_timestamp,
            protocol_version: order.options.protocol_version,
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
        let (reads, options) = (self.reads(server)?, self.options(server));
        let settings = &server.settings;
        let read_timeout = self.timeout_nanos.map_or(settings.read_timeout, Duration::from_nanos);
        ticket.note(|| format!("Reading {} existing rows of lists", reads.len()));
        let deadline = server.rt.now() + read_timeout;
        let found = server
            .rt
            .timeout(deadline, self.read(server, &reads))
            .await
            .map_err(|_| Failure::ReadTimeout { consistency: self.consistency })??;
        let Mutations { writes, write_type, warnings } = self.bind(server, &options, &found)?;
        let write_timeout = self.timeout_nanos.map_or(settings.write_timeout, Duration::from_nanos);
        let deadline = server.rt.now() + write_timeout;
        ticket.note(|| "Determining replicas for mutation".to_owned());
        let consistency = self.consistency;
        match server.rt.timeout(deadline, apply_all(server, ticket, writes)).await {
            Ok(Ok(())) => Ok(warnings),
            Ok(Err(error)) => {
                let id = server.log_failure("write", &error);
                Err(Failure::write(&error, consistency, write_type, id))
            }
            Err(_) => Err(Failure::WriteTimeout { consistency, write_type }),
        }
    }

    fn options<'s>(&self, server: &'s Server) -> ExecuteOptions<'s> {
        ExecuteOptions {
            now: self.now,
            default_timestamp: self.timestamp,
            page_size: None,
            paging_state: None,
            protocol_version: self.protocol_version,
            uuids: &server.uuids,
        }
    }

    fn reads(&self, server: &Server) -> Result<Vec<ListRead>> {
        let options = self.options(server);
        let mut reads = Vec::new();
        for (compiled, values) in &self.statements {
            let values = values.borrow();
            match &compiled.plan.kind {
                PlanKind::Modify(plan) => reads.extend(plan.list_reads(&values, &options)?),
                PlanKind::Batch(plan) => reads.extend(plan.list_reads(&values, &options)?),
                _ => return Err(server.internal_failure("a plan of another kind")),
            }
        }
        Ok(reads)
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

    fn bind(
        &self,
        server: &Server,
        options: &ExecuteOptions<'_>,
        found: &FoundLists,
    ) -> Result<Mutations> {
        let limits = &server.plan_limits;
        let mut encoded = Vec::new();
        let statements: Vec<(&Compiled, Vec<BoundValue<'_>>)> =
            self.statements.iter().map(|(c, values)| (&**c, values.borrow())).collect();
        let (mutations, kind, warnings) = match (self.batch, statements.as_slice()) {
            (Some(kind), _) => {
                let mut parts: Vec<(&ModifyPlan, &[BoundValue<'_>])> = Vec::new();
                for (compiled, values) in &statements {
                    let PlanKind::Modify(plan) = &compiled.plan.kind else {
                        return Err(server.internal_failure("a plan of another kind"));
                    };
                    parts.push((plan, values));
                }
                let bound = bind_batch_found(kind, &parts, options, limits, found, &mut encoded)?;
                (bound.mutations, Some(kind), bound.warnings)
            }
            (None, [(compiled, values)]) => match &compiled.plan.kind {
                PlanKind::Modify(plan) => {
                    let bound = plan.bind_found(values, options, found, &mut encoded)?;
                    (bound, None, Vec::new())
                }
                PlanKind::Batch(plan) => {
                    let bound = plan.bind_found(values, options, limits, found, &mut encoded)?;
                    (bound.mutations, Some(plan.kind()), bound.warnings)
                }
                _ => return Err(server.internal_failure("a plan of another kind")),
            },
            (None, _) => return Err(server.internal_failure("several statements, no batch")),
        };
        let write_type = kind.map_or(WriteType::Simple, |kind| batch_type(kind, mutations.len()));
        let writes = mutations
            .iter()
            .map(|m| {
                let bytes = encoded.get(m.range.clone()).unwrap_or_default();
                (m.token, bytes.to_vec(), self.durable)
            })
            .collect();
        Ok(Mutations { writes, write_type, warnings })
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
