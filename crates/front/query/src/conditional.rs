//! Conditional statements and batches (IF): from their values to the coordinator's decision and the
//! rows of the answer.
//!
//! Owns: levels and timeout of such a request, its errors in the client's words. The planner reads, decides, writes and
//! builds the answer ([`cql_plan::cas`] and [`cql_exec::cas`]). Rounds of Paxos are the coordinator's
//! ([`coordinator::Coordinator::cas`]), with several nodes or with this one alone.

use crate::consistency::scope_of;
use crate::context::{Cx, Step, finish};
use crate::description::{Described, Description};
use crate::disk_usage;
use crate::executor::Executor;
use crate::failure::{CasFailed, Failure, ReplicasFailed, Result, level};
use crate::latency::Kind;
use crate::modification::{Modification, OwnedStatements, Statements, with_calls_evaluated};
use crate::outbound::{self, Outbound, Sent, Terms};
use crate::settings::Timeout;
use crate::sink::{Describe, MadeRows, ResultSink};
use crate::ticket::Ticket;
use crate::tombstones::tombstone_warning;
use cluster::ClusterSnapshot;
use coordinator::{CasError, CasOperation, CasOrder, CasOutcome, CasRefused};
use cql_exec::{CasExec, CasFlow, CasResult, Verdict};
use cql_plan::cas::{CasForm, CasStatement};
use cql_plan::plan::ExecuteOptions;
use cql_plan::{BoundCas, PlanError, check_conditional_batch};
use cql_syntax::ast::BatchKind;
use cql_wire::{Consistency, WriteType};
use data::RowRef;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::{Instant, TimestampMicros, Token, WallMicros};
use store::{Flow, ReadStats, RowSink};

/// Runs a statement or batch with IF. `serial` is the request's serial level; `describe` says how
/// the client wants the columns described.
///
/// # Errors
/// Invalid values; levels that conditional updates do not accept.
pub(crate) fn run<S: ResultSink>(
    request: &Modification<'_>,
    serial: Option<Consistency>,
    describe: Describe,
    cx: &Cx<'_, S>,
) -> Result<Step<S::Answer>> {
    cx.executor.latencies.note_kind(Kind::CasWrite);
    with_calls_evaluated(request, |request| run_evaluated(request, serial, describe, cx))
}

fn run_evaluated<S: ResultSink>(
    request: &Modification<'_>,
    serial: Option<Consistency>,
    describe: Describe,
    cx: &Cx<'_, S>,
) -> Result<Step<S::Answer>> {
    let statements: Vec<CasStatement<'_>> = request.statements.modifications().collect();
    let form = match request.statements {
        Statements::One(_) => CasForm::Statement,
        Statements::TextBatch(_) => CasForm::Batch,
        Statements::Message(kind, _) => {
            check_conditional_batch(kind, statements.iter().map(|(plan, _)| *plan))?;
            CasForm::Batch
        }
    };
    if form == CasForm::Batch {
        disk_usage::check(cx.executor, request, cx.ticket.watch())?;
    }
    let timeout_nanos = request.statements.timeout_nanos(&request.options)?;
    let bound = BoundCas::bind(&statements, form, &request.options, cx.executor.rt.wall())?;
    for (plan, values) in &statements {
        plan.watch_values(values, &request.options)?;
    }
    let executor = cx.executor;
    let snapshot = executor.snapshot().clone();
    let serial = serial.unwrap_or(Consistency::Serial);
    let (scope, durable) = check_levels(&snapshot, &bound, serial, request.consistency)?;
    let timeout =
        timeout_nanos.map_or(executor.timeouts.get(Timeout::CasContention), Duration::from_nanos);
    let forwarded = cx.sink.client().forwarded_deadline();
    let outbound = match forwarded {
        None if S::TAKES_FORWARDED => {
            let levels = Levels { serial, scope };
            outbound(request, &bound, levels, describe, cx)
        }
        // A forwarded statement is executed where it arrives.
        _ => None,
    };
    let write = Conditional {
        executor: executor.clone(),
        sink: cx.sink.clone(),
        ticket: cx.ticket.clone(),
        statements: OwnedStatements::of(&request.statements),
        bound,
        describe,
        serial,
        scope,
        commit: request.consistency,
        durable,
        snapshot,
        deadline: forwarded.unwrap_or_else(|| executor.rt.now() + timeout),
        outbound,
        now: request.options.now,
        timestamp: request.options.default_timestamp,
        protocol_version: request.options.protocol_version,
    };
    Ok(Step::Waits(Box::pin(write.run())))
}

/// The serial level of a request, with the levels of its phases.
#[derive(Clone, Copy)]
struct Levels {
    serial: Consistency,
    scope: paxos::Scope,
}

/// Builds the request for the node that executes the serial operations of its partition; `None`
/// when that is this one.
fn outbound<S: ResultSink>(
    request: &Modification<'_>,
    bound: &BoundCas,
    levels: Levels,
    describe: Describe,
    cx: &Cx<'_, S>,
) -> Option<Box<Outbound>> {
    let (coordinator, snapshot) = (&cx.executor.coordinator, cx.executor.snapshot());
    let (table, token) = (bound.table().id, bound.token());
    let route = coordinator.lwt().serial_route(&snapshot, table, token, levels.scope)?;
    let terms = Terms {
        kind: match request.statements {
            Statements::One(_) | Statements::TextBatch(_) => outbound::Kind::Statement,
            Statements::Message(BatchKind::Unlogged, _) => outbound::Kind::UnloggedBatch,
            Statements::Message(BatchKind::Logged | BatchKind::Counter, _) => {
                outbound::Kind::LoggedBatch
            }
        },
        unmasks: false,
        consistency: request.consistency,
        serial: levels.serial,
        now: Some(request.options.now),
        timestamp: request.options.default_timestamp,
        page_size: None,
        paging_state: None,
        describe,
        described_as: None,
    };
    let statements = request.statements.sources();
    Outbound::new(route, token, &statements, &terms, cx.sink.client())
}

/// Checks both levels, in the order of Cassandra's `StorageProxy.doPaxos`. Returns the scope, and
/// true if the keyspace has durable writes.
fn check_levels(
    snapshot: &ClusterSnapshot,
    bound: &BoundCas,
    serial: Consistency,
    commit: Consistency,
) -> Result<(paxos::Scope, bool)> {
    let refuse = |error| Failure::replication(error, commit);
    level(serial).validate_for_cas().map_err(refuse)?;
    let Some(scope) = scope_of(serial) else {
        return Err(Failure::invalid(
            "Invalid consistency for conditional update. Must be one of SERIAL or LOCAL_SERIAL",
        ));
    };
    let Some(keyspace) = snapshot.schema.keyspace(&bound.table().keyspace) else {
        return Err(Failure::invalid("the table was dropped"));
    };
    let replication = snapshot.replication_of(keyspace);
    level(commit).validate_for_cas_commit(&replication).map_err(refuse)?;
    Ok((scope, keyspace.params.durable_writes))
}

/// Node that decided a conditional write, with its answer.
enum Answer {
    Here(CasResult, Option<String>),
    /// The whole answer, as the other node wrote it.
    There(Vec<u8>),
}

/// A running conditional write.
struct Conditional<S> {
    executor: Rc<Executor>,
    sink: S,
    ticket: Ticket,
    statements: OwnedStatements,
    bound: BoundCas,
    describe: Describe,
    serial: Consistency,
    scope: paxos::Scope,
    commit: Consistency,
    durable: bool,
    snapshot: Arc<ClusterSnapshot>,
    /// When the client is answered at the latest while nothing is decided.
    deadline: Instant,
    /// The request to another node that executes the statement.
    outbound: Option<Box<Outbound>>,
    now: WallMicros,
    timestamp: TimestampMicros,
    protocol_version: u8,
}

impl<S: ResultSink> Conditional<S> {
    async fn run(self) -> S::Answer {
        let (result, answer) = match self.answered().await {
            Ok(answer) => (Ok(()), Some(answer)),
            Err(failure) => (Err(failure), None),
        };
        let (executor, sink, ticket) = (&self.executor, &self.sink, &self.ticket);
        finish(executor, sink, ticket, result, |out| match &answer {
            Some(Answer::Here(answer, warning)) => self.answer(answer, warning.as_deref(), out),
            Some(Answer::There(frame)) => match sink.forwarded(out, ticket, frame) {
                true => Ok(()),
                // The other node's answer is not a valid frame; the outcome is unknown.
                false => Err(self.lost()),
            },
            None => Ok(()),
        })
        .await
    }

    async fn answered(&self) -> Result<Answer> {
        let Some(outbound) = &self.outbound else { return self.decide().await };
        match outbound.send(&self.executor, &self.ticket, self.deadline).await? {
            Sent::Answer(frame) => Ok(Answer::There(frame)),
            Sent::Here => self.decide().await,
            Sent::Lost => Err(self.lost()),
        }
    }

    /// Error for an unknown outcome: another node may have executed the statement, and its answer
    /// is lost.
    fn lost(&self) -> Failure {
        let block_for = self.outbound.as_ref().map_or(1, |outbound| outbound.quorum());
        Failure::CasUnknown(CasFailed { consistency: self.serial, received: 0, block_for })
    }

    async fn decide(&self) -> Result<Answer> {
        let executor = &self.executor;
        let values = self.statements.values();
        let statements = self.statements.modifications(&values);
        let options = ExecuteOptions {
            now: self.now,
            clock: executor.rt.wall(),
            default_timestamp: self.timestamp,
            page_size: None,
            paging_state: None,
            protocol_version: self.protocol_version,
            uuids: &executor.uuids,
            watch: None,
        };
        let mut operation = Operation {
            exec: CasExec::new(&self.bound, &statements, options),
            ticket: &self.ticket,
            refused: None,
            contentions: 0,
            read: ReadStats::default(),
        };
        let order = CasOrder {
            snapshot: self.snapshot.clone(),
            read: self.bound.read().clone(),
            rows_wanted: self.bound.rows_wanted(),
            scope: self.scope,
            commit: level(self.commit),
            durable: self.durable,
            deadline: self.deadline,
            trace: self.ticket.request_trace(),
        };
        let outcome = executor.coordinator.lwt().cas(order, &mut operation).await;
        let Operation { exec, refused, contentions, read, .. } = operation;
        let told = |verdict| {
            let result = match self.sink.client().negotiated.get().lwt_mark {
                true => exec.previous(verdict),
                false => exec.result(verdict),
            };
            Answer::Here(result, tombstone_warning(&executor.settings, self.bound.table(), &read))
        };
        match outcome {
            Ok(CasOutcome::Applied) => {
                self.ticket.note(|| "CAS successful".to_owned());
                Ok(told(Verdict::Applied))
            }
            Ok(CasOutcome::NotApplied) => {
                self.ticket.note(|| "CAS precondition does not match current values".to_owned());
                Ok(told(Verdict::NotApplied))
            }
            Err(CasError::Refused(CasRefused(text))) => {
                Err(refused.map_or_else(|| Failure::invalid(text), Failure::Plan))
            }
            Err(error) => Err(match self.failure(error) {
                Failure::Replicas(failed) => {
                    let contentions = u16::try_from(contentions).unwrap_or(u16::MAX);
                    Failure::Replicas(Box::new(ReplicasFailed { contentions, ..*failed }))
                }
                failure => failure,
            }),
        }
    }

    fn failure(&self, error: CasError) -> Failure {
        match error {
            CasError::Request(error) => Failure::request(error, self.commit, &self.snapshot),
            CasError::Unknown { received, required } => Failure::CasUnknown(CasFailed {
                consistency: self.serial,
                received: i32::try_from(received).unwrap_or(i32::MAX),
                block_for: i32::try_from(required).unwrap_or(i32::MAX),
            }),
            CasError::Refused(CasRefused(text)) => Failure::invalid(text),
            CasError::Overloaded(message) => Failure::overloaded(message),
            CasError::Store(error) => {
                let id = self.executor.log_failure("conditional write", &error);
                Failure::write(&error, self.commit, WriteType::Cas, id)
            }
        }
    }

    /// Appends the rows. PREPARED did not describe them (like in Cassandra), so every answer does.
    fn answer(&self, result: &CasResult, warning: Option<&str>, out: &mut S::Answer) -> Result<()> {
        let columns = result.columns.iter().map(|c| Described {
            keyspace: c.keyspace.clone(),
            table: c.table.clone(),
            name: c.name.clone(),
            ty: c.ty.clone(),
        });
        let made = MadeRows {
            columns: &Description::new(columns.collect::<Vec<_>>()),
            describe: match self.describe {
                Describe::Skip => Describe::Skip,
                Describe::Full | Describe::Changed => Describe::Full,
            },
            rows: result.rows.iter().map(|row| row.iter().map(Option::as_deref)),
            paging_state: None,
            warnings: warning.as_slice(),
        };
        self.sink.rows(out, &self.ticket, made)
    }
}

/// Passes the rows that the coordinator reads to the planner for its decision.
struct Operation<'c> {
    exec: CasExec<'c>,
    ticket: &'c Ticket,
    /// Error of the last decision.
    refused: Option<PlanError>,
    /// Rounds that were lost to other proposers.
    contentions: u32,
    /// Cost of the last read.
    read: ReadStats,
}

fn flow(flow: CasFlow) -> Flow {
    match flow {
        CasFlow::Continue => Flow::Continue,
        CasFlow::Stop => Flow::Stop,
    }
}

impl RowSink for Operation<'_> {
    fn partition(&mut self, _: Token, _: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        flow(self.exec.partition(static_row))
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        flow(self.exec.row(clustering, row))
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

impl CasOperation for Operation<'_> {
    fn contended(&mut self, rounds: u32) {
        self.contentions = rounds;
    }

    fn has_read(&mut self, stats: &ReadStats) {
        self.read = *stats;
    }

    fn restart(&mut self) {
        self.refused = None;
        self.exec.restart();
    }

    fn decide(
        &mut self,
        timestamp: TimestampMicros,
    ) -> std::result::Result<Option<Vec<u8>>, CasRefused> {
        self.ticket.note(|| "Reading existing values for CAS precondition".to_owned());
        self.exec.decide(timestamp).map_err(|error| {
            let text = error.message.clone();
            self.refused = Some(error);
            CasRefused(text)
        })
    }
}
