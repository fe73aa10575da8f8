//! Conditional statements and serial reads on their way to another node: one replica of the partition, the
//! same for all coordinators, so that contention makes a queue.
//!
//! Owns: sending a statement with everything its outcome depends on ([`Outbound`]). The request has the statement
//! and its values as the client sent them, followed by the results of functions such as `uuid()`. The response is
//! the finished frame that the client would have got there. Never: the choice of the node
//! ([`Coordinator::serial_route`](coordinator::Coordinator::serial_route)), the execution there
//! ([`crate::forwarded`]).
//!
//! A forwarded statement is executed where it arrives. If it surely arrived nowhere, it is executed here. If its
//! answer is lost, a write is uncertain, and a read is retried.

pub(crate) mod wire;

pub(crate) use wire::Kind;

use crate::client::ClientState;
use crate::executor::Executor;
use crate::failure::{Failure, Result};
use crate::prepared::Source;
use crate::sink::Describe;
use crate::ticket::Ticket;
use coordinator::{ForwardTerms, NotForwarded, SerialRoute};
use cql_plan::plan::BoundValue;
use cql_wire::Consistency;
use stdx::{Instant, TimestampMicros, Token, WallMicros};
use wire::{Message, Statement, Value};

/// A statement to be forwarded to another node.
pub(crate) struct Outbound {
    route: SerialRoute,
    token: Token,
    message: Message,
}

/// Parameters of the execution of a statement, beside the statements themselves.
pub(crate) struct Terms<'t> {
    pub(crate) kind: Kind,
    /// True if the requesting role may see masked values.
    pub(crate) unmasks: bool,
    pub(crate) consistency: Consistency,
    pub(crate) serial: Consistency,
    /// `None`: the executing node's clock.
    pub(crate) now: Option<WallMicros>,
    pub(crate) timestamp: TimestampMicros,
    pub(crate) page_size: Option<i32>,
    pub(crate) paging_state: Option<&'t [u8]>,
    pub(crate) describe: Describe,
    /// The id of the columns of a read's result.
    pub(crate) described_as: Option<[u8; 16]>,
}

/// Outcome of a forwarded statement.
pub(crate) enum Sent {
    /// The answer: a whole frame, not compressed, of no trace.
    Answer(Vec<u8>),
    /// Execute it here.
    Here,
    /// It may have been executed: the outcome is unknown.
    Lost,
}

impl Outbound {
    /// Returns `None` if it must be executed here, because a statement's text is not known.
    pub(crate) fn new(
        route: SerialRoute,
        token: Token,
        statements: &[(Option<&Source>, &[BoundValue<'_>])],
        terms: &Terms<'_>,
        client: &ClientState,
    ) -> Option<Box<Outbound>> {
        let statements = statements
            .iter()
            .map(|(source, values)| {
                let source = (*source)?.clone();
                Some(Statement { source, values: values.iter().map(Value::of).collect() })
            })
            .collect::<Option<Vec<_>>>()?;
        let message = Message {
            kind: terms.kind,
            unmasks: terms.unmasks,
            negotiated: client.negotiated.get(),
            consistency: terms.consistency,
            serial: terms.serial,
            now: terms.now,
            timestamp: terms.timestamp,
            page_size: terms.page_size,
            paging_state: terms.paging_state.map(<[u8]>::to_vec),
            describe: terms.describe,
            described_as: terms.described_as,
            statements,
        };
        Some(Box::new(Outbound { route, token, message }))
    }

    /// A quorum of the acceptors.
    pub(crate) fn quorum(&self) -> i32 {
        i32::try_from(self.route.quorum).unwrap_or(i32::MAX)
    }

    /// Sends it to the first node that takes it. What may be done twice is, when an answer is lost.
    /// After the deadline no other node is asked: connecting to a silent one may have taken that long.
    ///
    /// # Errors
    /// The node that it goes to has too much to do.
    pub(crate) async fn send(
        &self,
        executor: &Executor,
        ticket: &Ticket,
        deadline: Instant,
    ) -> Result<Sent> {
        let is_write = self.message.kind != Kind::Select;
        let table = self.route.table;
        let terms = ForwardTerms { table, deadline, is_write, trace: ticket.trace_session() };
        for host in &self.route.hosts {
            ticket.note(|| {
                format!("Sending the statement to {host}, which proposes for its partition")
            });
            let write = |out: &mut Vec<u8>, slack| self.message.encode(slack, out);
            let sent =
                executor.coordinator.lwt().forward_serial(*host, self.token, terms, write).await;
            match sent {
                Ok(frame) => return Ok(Sent::Answer(frame)),
                Err(NotForwarded::Elsewhere) if executor.rt.now() < deadline => {}
                // The deadline has passed here, too: local execution reports that to the client.
                Err(NotForwarded::Elsewhere) => break,
                Err(NotForwarded::Lost)
                    if self.message.kind == Kind::Select && executor.rt.now() < deadline => {}
                Err(NotForwarded::Lost) => return Ok(Sent::Lost),
                Err(NotForwarded::Overloaded) => {
                    return Err(Failure::overloaded(
                        "the node that proposes for the partition takes no more requests",
                    ));
                }
            }
        }
        Ok(Sent::Here)
    }
}
