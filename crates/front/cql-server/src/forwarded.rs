//! Conditional statements and serial reads that another node carries out: one replica of the
//! partition, the same for all coordinators, so that contention makes a queue.
//!
//! Owns: sending a statement with everything its outcome depends on ([`Outbound`]), carrying out what
//! comes ([`serve`]), passing the answer on. What is forwarded is the statement and its values as
//! the client sent them, with the results of functions such as `uuid()` after them; what comes back is the finished
//! frame that the client would have got there.
//! Never: whom it goes to ([`Coordinator::serial_route`](coordinator::Coordinator::serial_route)).
//!
//! A forwarded statement is carried out where it arrives. When it surely arrived nowhere it is
//! carried out here; when its answer is lost, a write is uncertain, and a read is done again.

mod wire;

pub(crate) use wire::{Kind, Source};

use crate::conditional;
use crate::execute::{Allowed, Cx, Describe, Modification, Step, prepared_here};
use crate::failure::{Failure, Result};
use crate::pending::Freed;
use crate::prepared::{Compiled, parse};
use crate::select;
use crate::server::{CqlServer, Server};
use crate::session::{Session, Ticket};
use crate::trace::Trace;
use coordinator::{ForwardRefused, ForwardTerms, ForwardedStatement, NotForwarded, SerialRoute};
use cql_plan::plan::{BoundValue, ExecuteOptions, PlanKind};
use cql_syntax::ast::BatchKind;
use cql_wire::{Consistency, QueryParameters};
use std::future::Future;
use std::rc::Rc;
use stdx::{Instant, TimestampMicros, Token, WallMicros};
use wire::{Message, Statement, Value};

/// A statement on its way to another node.
pub(crate) struct Outbound {
    route: SerialRoute,
    token: Token,
    message: Message,
}

/// What the execution of a statement depends on beside the statements themselves.
pub(crate) struct Terms<'t> {
    pub(crate) kind: Kind,
    /// Whoever asks may see what masks hide.
    pub(crate) unmasks: bool,
    pub(crate) consistency: Consistency,
    pub(crate) serial: Consistency,
    /// `None`: the executing node's clock.
    pub(crate) now: Option<WallMicros>,
    pub(crate) timestamp: TimestampMicros,
    pub(crate) page_size: Option<i32>,
    pub(crate) paging_state: Option<&'t [u8]>,
    pub(crate) describe: Describe,
}

/// What became of a forwarded statement.
pub(crate) enum Sent {
    /// The answer: a whole frame, not compressed, of no trace.
    Answer(Vec<u8>),
    /// It is to be carried out here.
    Here,
    /// It may have been carried out: nobody knows.
    Lost,
}

impl Outbound {
    /// `None`: it is carried out here, because this node is the first, or because a statement's text
    /// is not known.
    pub(crate) fn new(
        route: Option<SerialRoute>,
        token: Token,
        statements: &[(&Rc<Compiled>, &[BoundValue<'_>])],
        terms: &Terms<'_>,
        session: &Session,
    ) -> Option<Box<Outbound>> {
        let route = route?;
        let first = statements.first().and_then(|(compiled, _)| compiled.result.as_ref());
        let described_as = first.map(|result| *result.id());
        let statements = statements
            .iter()
            .map(|(compiled, values)| {
                let source = compiled.source.as_ref()?;
                let values = values.iter().map(Value::of).collect();
                Some(Statement { source: source.clone(), values })
            })
            .collect::<Option<Vec<_>>>()?;
        let message = Message {
            kind: terms.kind,
            unmasks: terms.unmasks,
            negotiated: session.negotiated.get(),
            consistency: terms.consistency,
            serial: terms.serial,
            now: terms.now,
            timestamp: terms.timestamp,
            page_size: terms.page_size,
            paging_state: terms.paging_state.map(<[u8]>::to_vec),
            describe: terms.describe,
            described_as,
            statements,
        };
        Some(Box::new(Outbound { route, token, message }))
    }

    /// A quorum of the acceptors.
    pub(crate) fn quorum(&self) -> i32 {
        i32::try_from(self.route.quorum).unwrap_or(i32::MAX)
    }

    /// Sends it to the first node that takes it. What may be done twice is, when an answer is lost.
    /// Behind the deadline nobody else is asked: connecting to one who is silent may have taken as long.
    ///
    /// # Errors
    /// The node that it goes to has too much to do.
    pub(crate) async fn send(
        &self,
        server: &Server,
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
            let sent = server.coordinator.forward_serial(*host, self.token, terms, write).await;
            match sent {
                Ok(frame) => return Ok(Sent::Answer(frame)),
                Err(NotForwarded::Elsewhere) if server.rt.now() < deadline => {}
                // It is too late here too, and that is what the client is told.
                Err(NotForwarded::Elsewhere) => break,
                Err(NotForwarded::Lost)
                    if self.message.kind == Kind::Select && server.rt.now() < deadline => {}
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

/// Carries out what other nodes forward to this shard from now on.
pub(crate) fn install(server: &CqlServer) {
    let weak = Rc::downgrade(server.inner());
    let handler =
        move |statement: ForwardedStatement| -> std::pin::Pin<Box<dyn Future<Output = _>>> {
            let server = weak.upgrade();
            Box::pin(async move {
                let Some(server) = server.filter(|s| !s.is_draining()) else {
                    return Err(ForwardRefused::Stopping);
                };
                serve(&server, &statement).await
            })
        };
    server.inner().coordinator.serve_forwarded(Rc::new(handler));
}

/// Gives a request's share of the limits back, also when its task is dropped.
struct Entered<'s>(&'s Server, Freed);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

async fn serve(
    server: &Rc<Server>,
    statement: &ForwardedStatement,
) -> std::result::Result<Vec<u8>, ForwardRefused> {
    let bytes = statement.payload.len();
    if server.refuses(bytes, false, 0).is_some() {
        server.counters.overloaded.inc();
        return Err(ForwardRefused::Overloaded);
    }
    let (message, slack) = Message::decode(&statement.payload)
        .map_err(|error| ForwardRefused::Invalid(error.to_string()))?;
    let freed = Freed { bytes, count: 1 };
    server.enter(freed);
    let _entered = Entered(server, freed);
    let deadline = Instant(
        statement.deadline.0.saturating_sub(u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX)),
    );
    let session = Rc::new(server.forwarded_session(message.negotiated, deadline));
    session.unmasks.set(message.unmasks);
    let trace = statement.trace.map(|id| {
        let trace = Trace::of_peer(&server.rt, id);
        trace.note("PAXOS_FORWARD message received".to_owned());
        Rc::new(trace)
    });
    let ticket = Ticket { stream: 0, connection: 0, trace, watch: None };
    let mut out = Vec::new();
    match begin(server, &session, &ticket, &message, &mut out) {
        Ok(Step::Waits(answer)) => Ok(answer.await),
        Ok(Step::Done | Step::Held(_)) => {
            Err(ForwardRefused::Invalid("a statement that is not forwarded".to_owned()))
        }
        Err(failure) => {
            server.counters.failed(failure.code());
            session.respond_failure(&mut out, &ticket, &failure);
            Ok(out)
        }
    }
}

fn begin(
    server: &Rc<Server>,
    session: &Rc<Session>,
    ticket: &Ticket,
    message: &Message,
    out: &mut Vec<u8>,
) -> Result<Step> {
    let mut compiled = Vec::with_capacity(message.statements.len());
    for Statement { source, values } in &message.statements {
        let one = compile(server, source)?;
        // Behind those of markers are the results of functions, which are not evaluated here again.
        if one.plan.value_count_max() < values.len() {
            return Err(Failure::invalid("Invalid amount of bind variables"));
        }
        compiled.push(one);
    }
    let values: Vec<Vec<BoundValue<'_>>> =
        message.statements.iter().map(|s| s.values.iter().map(Value::borrow).collect()).collect();
    let statements: Vec<_> = compiled.iter().zip(values.iter().map(Vec::as_slice)).collect();
    let cx = Cx { server, session, ticket, out };
    let batch = match message.kind {
        Kind::Select => return begin_select(&statements, message, &cx),
        Kind::Statement => None,
        Kind::LoggedBatch => Some(BatchKind::Logged),
        Kind::UnloggedBatch => Some(BatchKind::Unlogged),
    };
    if !compiled.iter().any(|one| conditional::is_conditional(&one.plan)) {
        return Err(Failure::invalid("a statement without conditions was forwarded"));
    }
    let modification = Modification {
        statements: &statements,
        batch,
        consistency: message.consistency,
        allowed: Allowed::default(),
        has_timestamp: false,
        options: ExecuteOptions {
            now: message.now.unwrap_or_else(|| server.rt.wall()),
            clock: server.rt.wall(),
            default_timestamp: message.timestamp,
            page_size: None,
            paging_state: None,
            protocol_version: message.negotiated.version.number(),
            uuids: &server.uuids,
            // The node that the client is connected to holds it against the limits.
            watch: None,
        },
    };
    conditional::run(&modification, Some(message.serial), message.describe, &cx)
}

fn begin_select(
    statements: &[(&Rc<Compiled>, &[BoundValue<'_>])],
    message: &Message,
    cx: &Cx<'_>,
) -> Result<Step> {
    let &[(compiled, values)] = statements else {
        return Err(Failure::invalid("several reads were forwarded as one"));
    };
    if !matches!(compiled.plan.kind, PlanKind::Select(_)) {
        return Err(Failure::invalid("a statement that is no read was forwarded as one"));
    }
    let seconds = |now: WallMicros| i32::try_from(now.0.div_euclid(1_000_000)).ok();
    let parameters = QueryParameters {
        page_size: message.page_size,
        paging_state: message.paging_state.as_deref(),
        now_in_seconds: message.now.and_then(seconds),
        ..QueryParameters::new(message.consistency)
    };
    // What the client knows of the columns is what the other node told it.
    let is_same = compiled.result.as_ref().map(|result| *result.id()) == message.described_as;
    let describe = match message.describe {
        Describe::Skip if is_same => Describe::Skip,
        Describe::Skip if message.negotiated.has_metadata_id() => Describe::Changed,
        Describe::Skip => Describe::Full,
        describe => describe,
    };
    select::run(compiled, values, &parameters, (describe, Allowed::default()), cx)
}

/// The plan of a statement of another node: kept like a client's when a client has prepared it there.
pub(crate) fn compile(server: &Rc<Server>, source: &Source) -> Result<Rc<Compiled>> {
    let keyspace = source.keyspace.as_deref();
    if source.is_prepared {
        return prepared_here(server, &source.text, keyspace);
    }
    let snapshot = server.snapshot();
    let (limits, now) = (&server.plan_limits, server.rt.wall());
    Ok(Rc::new(Compiled::new(&parse(&source.text)?, &snapshot, keyspace, limits, now)?))
}
