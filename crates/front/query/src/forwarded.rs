//! Statements that other nodes forward to this one: see [`crate::outbound`].

use crate::client::{ClientState, Forwarded};
use crate::conditional;
use crate::consistency::Allowed;
use crate::context::{Cx, Step};
use crate::execute::NOT_IN_BATCH;
use crate::executor::Executor;
use crate::failure::{Failure, Result};
use crate::modification::{Modification, Statements, WithValues};
use crate::outbound::Kind;
use crate::outbound::wire::{Message, Statement, Value};
use crate::prepare::compile;
use crate::prepared::Compiled;
use crate::select::ReadRequest;
use crate::sink::{Describe, ResultSink};
use crate::ticket::Ticket;
use crate::trace::Trace;
use coordinator::{ForwardRefused, ForwardedStatement};
use cql_plan::plan::{BoundValue, ExecuteOptions};
use cql_syntax::ast::BatchKind;
use cql_wire::QueryParameters;
use std::rc::Rc;
use stdx::{Instant, WallMicros};

/// Executes a statement that another node forwarded, for the client that `sink_of` builds a sink
/// for.
///
/// # Errors
/// The bytes are no message.
pub async fn serve<S: ResultSink>(
    executor: &Rc<Executor>,
    statement: &ForwardedStatement,
    sink_of: impl FnOnce(ClientState) -> S,
) -> std::result::Result<S::Answer, ForwardRefused> {
    let (message, slack) = Message::decode(&statement.payload)
        .map_err(|error| ForwardRefused::Invalid(error.to_string()))?;
    let deadline = Instant(
        statement.deadline.0.saturating_sub(u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX)),
    );
    let forwarded = Forwarded { deadline, unmasks: message.unmasks };
    let node = executor.settings.storage_address;
    let sink = sink_of(ClientState::of_forwarded(node, message.negotiated, forwarded));
    let trace = statement.trace.map(|id| {
        let trace = Trace::of_peer(&executor.rt, id);
        trace.note("PAXOS_FORWARD message received".to_owned());
        Rc::new(trace)
    });
    let ticket = Ticket { connection: 0, trace, watch: None };
    let mut out = sink.begin(executor);
    let begun = begin(&message, &mut Cx { executor, sink: &sink, ticket: &ticket, out: &mut out });
    match begun {
        Ok(Step::Waits(answer)) => Ok(answer.await),
        Ok(Step::Done | Step::Held(_)) => {
            Err(ForwardRefused::Invalid("a statement that is not forwarded".to_owned()))
        }
        Err(failure) => {
            executor.counters.failed(failure.code());
            sink.failed(&mut out, &ticket, &failure);
            Ok(out)
        }
    }
}

/// Error for a forwarded statement that should have been executed where its client is connected.
const UNCONDITIONAL: &str = "a statement without conditions was forwarded";

fn begin<S: ResultSink>(message: &Message, cx: &mut Cx<'_, S>) -> Result<Step<S::Answer>> {
    let executor = cx.executor;
    let mut compiled = Vec::with_capacity(message.statements.len());
    for Statement { source, values } in &message.statements {
        let one = compile(executor, source)?;
        // Behind those of markers are the results of functions, which are not evaluated here again.
        if one.header().inputs.value_count_max() < values.len() {
            return Err(Failure::invalid("Invalid amount of bind variables"));
        }
        compiled.push(one);
    }
    let values: Vec<Vec<BoundValue<'_>>> =
        message.statements.iter().map(|s| s.values.iter().map(Value::borrow).collect()).collect();
    let mut parts = Vec::new();
    let statements = match message.kind {
        Kind::Select => return begin_select(&compiled, &values, message, cx),
        Kind::Statement => match (&*compiled, &*values) {
            ([Compiled::Modify(statement)], [values]) => {
                Statements::One(WithValues { statement, values })
            }
            ([Compiled::Batch(statement)], [values]) => {
                Statements::TextBatch(WithValues { statement, values })
            }
            _ => return Err(Failure::invalid(UNCONDITIONAL)),
        },
        Kind::LoggedBatch | Kind::UnloggedBatch => {
            for (one, values) in compiled.iter().zip(&values) {
                let Compiled::Modify(statement) = one else {
                    return Err(Failure::invalid(NOT_IN_BATCH));
                };
                parts.push(WithValues { statement, values });
            }
            let kind = match message.kind {
                Kind::UnloggedBatch => BatchKind::Unlogged,
                _ => BatchKind::Logged,
            };
            Statements::Message(kind, &parts)
        }
    };
    if !statements.has_conditions() {
        return Err(Failure::invalid(UNCONDITIONAL));
    }
    let modification = Modification {
        statements,
        consistency: message.consistency,
        allowed: Allowed::default(),
        has_timestamp: false,
        options: ExecuteOptions {
            now: message.now.unwrap_or_else(|| executor.rt.wall()),
            clock: executor.rt.wall(),
            default_timestamp: message.timestamp,
            page_size: None,
            paging_state: None,
            protocol_version: message.negotiated.version.number(),
            uuids: &executor.uuids,
            // The node that the client is connected to holds it against the limits.
            watch: None,
        },
    };
    conditional::run(&modification, Some(message.serial), message.describe, cx)
}

fn begin_select<S: ResultSink>(
    compiled: &[Compiled],
    values: &[Vec<BoundValue<'_>>],
    message: &Message,
    cx: &Cx<'_, S>,
) -> Result<Step<S::Answer>> {
    let ([compiled], [values]) = (compiled, values) else {
        return Err(Failure::invalid("several reads were forwarded as one"));
    };
    let Compiled::Select(statement) = compiled else {
        return Err(Failure::invalid("a statement that is no read was forwarded as one"));
    };
    let seconds = |now: WallMicros| i32::try_from(now.0.div_euclid(1_000_000)).ok();
    let parameters = QueryParameters {
        page_size: message.page_size,
        paging_state: message.paging_state.as_deref(),
        now_in_seconds: message.now.and_then(seconds),
        ..QueryParameters::new(message.consistency)
    };
    // The client knows the columns as the other node described them.
    let is_same = Some(*statement.plan.columns.id()) == message.described_as;
    let describe = match message.describe {
        Describe::Skip if is_same => Describe::Skip,
        Describe::Skip if message.negotiated.has_metadata_id() => Describe::Changed,
        Describe::Skip => Describe::Full,
        describe => describe,
    };
    let read = ReadRequest { statement, values, parameters: &parameters, describe };
    crate::select::run(&read, Allowed::default(), cx)
}
