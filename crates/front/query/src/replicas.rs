//! Statements on replicated data: orders for the coordinator, errors for the client.
//!
//! Owns: the level at which a request is executed, the translation of the coordinator's errors. Never: the choice of
//! replicas ([`coordinator`]), the choice of the statements that are sent here ([`crate::execute`] decides once per
//! plan and epoch).
//!
//! A read of one partition at SERIAL or LOCAL_SERIAL is the coordinator's serial read. A range at these levels is
//! read at QUORUM or LOCAL_QUORUM, as in Cassandra: it may miss a conditional write that is under way. A read at a
//! quorum repairs its rows before it returns them (INV-request-6), so that no later read returns less.

use crate::executor::Executor;
use crate::failure::{Failure, Result, level};
use crate::ticket::Ticket;
use cluster::ClusterSnapshot;
use coordinator::ReplicaMutation;
use coordinator::{CasError, ReadOptions, ReadTrace, ReplicatedRead, ReplicatedWrite, ShardFilter};
use cql_wire::{Consistency, WriteType};
use data::command::ReadCommand;
use std::rc::Rc;
use std::sync::Arc;
use stdx::{Instant, Uuid};
use store::{ReadStats, RowSink};

/// Returns the level that a read is executed at.
pub(crate) fn level_of_read(asked: Consistency) -> cluster::Consistency {
    match asked {
        Consistency::Serial => cluster::Consistency::Quorum,
        Consistency::LocalSerial => cluster::Consistency::LocalQuorum,
        asked => level(asked),
    }
}

/// A client's parameters of a read.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'r> {
    /// The level that it named.
    pub(crate) level: Consistency,
    /// Scope of a serial read.
    pub(crate) scope: Option<paxos::Scope>,
    pub(crate) trace: Option<&'r Rc<ReadTrace>>,
    /// Filter that replicas apply.
    pub(crate) filter: Option<&'r ShardFilter>,
}

/// Reads from the replicas.
///
/// # Errors
/// The failure for the client.
pub(crate) async fn read<S: RowSink>(
    executor: &Executor,
    asked: Asked<'_>,
    command: &ReadCommand,
    order: &ReplicatedRead,
    sink: &mut S,
) -> Result<ReadStats> {
    let Asked { level: asked, scope, trace, filter } = asked;
    if let Some(scope) = scope {
        let request = trace.map(|trace| trace.request().clone());
        let read = executor
            .coordinator
            .lwt()
            .read_serial(command, &order.serial(scope, request), sink)
            .await;
        return read.map_err(|error| match error {
            CasError::Request(error) => Failure::request(error, asked, &order.snapshot),
            CasError::Overloaded(message) => Failure::overloaded(message),
            CasError::Store(error) => {
                let id = executor.log_failure("serial read", &error);
                Failure::read(&error, asked, id)
            }
            error @ (CasError::Refused(_) | CasError::Unknown { .. }) => {
                Failure::invalid(error.to_string())
            }
        });
    }
    let read = executor
        .coordinator
        .reads()
        .read_traced(command, order, ReadOptions { trace, filter }, sink)
        .await;
    read.map_err(|error| Failure::request(error, asked, &order.snapshot))
}

/// Terms of a write to replicas.
pub(crate) struct WriteTerms<'w> {
    pub(crate) consistency: Consistency,
    /// `Batch` goes through the batch log.
    pub(crate) write_type: WriteType,
    pub(crate) snapshot: &'w Arc<ClusterSnapshot>,
    pub(crate) deadline: Instant,
}

/// Has mutations applied by their replicas, whichever nodes these are.
///
/// # Errors
/// The failure for the client.
pub(crate) async fn write(
    executor: &Rc<Executor>,
    ticket: &Ticket,
    mutations: Vec<ReplicaMutation>,
    terms: &WriteTerms<'_>,
) -> Result<()> {
    let &WriteTerms { consistency, write_type, snapshot, deadline } = terms;
    let logged = write_type == WriteType::Batch;
    ticket.note(|| match logged {
        true => "Determining replicas for atomic batch".to_owned(),
        false => "Determining replicas for mutation".to_owned(),
    });
    let request = ReplicatedWrite {
        snapshot: snapshot.clone(),
        consistency: level(consistency),
        write_type: match write_type {
            WriteType::Batch => request::WriteType::Batch,
            WriteType::UnloggedBatch => request::WriteType::UnloggedBatch,
            WriteType::Counter => request::WriteType::Counter,
            _ => request::WriteType::Simple,
        },
        mutations,
        logged,
        batch_id: Uuid::from_bytes(executor.next_time_uuid()),
        deadline,
    };
    let trace = ticket.request_trace();
    executor.coordinator.writer().write_traced(request, ticket.connection, trace).await.map_err(
        |error| {
            let log = |error: &store::StoreError| executor.log_failure("write", error);
            Failure::replicated(error, consistency, write_type, snapshot, log)
        },
    )
}
