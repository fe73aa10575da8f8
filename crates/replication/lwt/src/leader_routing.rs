//! Routing of conditional statements and serial reads: those of a partition run at one replica, so that
//! the statements of all coordinators wait in one queue.
//!
//! Owns: the choice of the node, the forwarding, the meaning of a lost answer. Never: the contents of a
//! forwarded statement; the front end gives and takes bytes ([`ForwardedHandler`]).
//!
//! A statement is forwarded once: the receiving node executes it, even if it would choose another
//! leader. Two nodes that both execute statements of a partition only cost each other extra rounds.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::ClusterSnapshot;
use internode::{ErrorReply, Verb};
use messaging::{MessagingError, Outgoing, Request as PeerRequest, Responder};
use paxos::Scope;
use smallvec::SmallVec;
use stdx::{HostId, Instant, TableId, Token, Uuid};

use crate::Lwt;
use crate::shards::Shards;
use replica::ReplicaList;

/// Slack beyond the executing node's own deadlines, so that its answer still arrives, even the
/// answer that it is too late.
const ANSWER_SLACK: Duration = Duration::from_millis(500);

/// Route of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SerialRoute {
    /// The table of its partition.
    pub table: TableId,
    /// The live replicas before this node, in the ring's order; it is carried out here when nothing
    /// can be sent to any of them.
    pub hosts: SmallVec<[HostId; 3]>,
    /// How many acceptors make a quorum, for errors.
    pub quorum: u32,
}

/// Why a statement was not carried out elsewhere, or is not known to have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotForwarded {
    /// Nothing was done there: another node may do it.
    Elsewhere,
    /// The node has too much to do; nothing was done.
    Overloaded,
    /// It may have been done, or may still be.
    Lost,
}

/// A forwarded statement for the front end.
#[derive(Clone, Debug)]
pub struct ForwardedStatement {
    /// The statement, as the other front end wrote it.
    pub payload: Vec<u8>,
    /// Time at which the other node aborts; the client's answer does not depend on it.
    pub deadline: Instant,
    /// Id of the trace that the other node keeps.
    pub trace: Option<Uuid>,
}

/// Why the front end does not carry a forwarded statement out; nothing was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardRefused {
    /// Too much waits here.
    Overloaded,
    /// The node stops.
    Stopping,
    /// The bytes are no statement.
    Invalid(String),
}

/// Handler that executes a forwarded statement and returns the encoded answer.
pub type ForwardedHandler = Rc<
    dyn Fn(ForwardedStatement) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, ForwardRefused>>>>,
>;

/// The front end's handler, once there is one.
#[derive(Default)]
pub(crate) struct Forwarded(RefCell<Option<ForwardedHandler>>);

impl Forwarded {
    pub(crate) fn let_go(&self) {
        drop(self.0.take());
    }
}

/// Terms of a forwarded statement.
#[derive(Clone, Copy, Debug)]
pub struct ForwardTerms {
    /// The table of its partition.
    pub table: TableId,
    /// The client's.
    pub deadline: Instant,
    /// Not a serial read.
    pub is_write: bool,
    /// The id of the request's trace.
    pub trace: Option<Uuid>,
}

impl<N: Shards> Lwt<N> {
    /// Returns the route of a partition's conditional statements. `None`: this node executes them.
    pub fn serial_route(
        &self,
        snapshot: &ClusterSnapshot,
        table: TableId,
        token: Token,
        scope: Scope,
    ) -> Option<SerialRoute> {
        if snapshot.members.len() < 2 {
            return None;
        }
        let cluster = self.cluster()?;
        let topology = cluster.serial_topology(snapshot, table)?;
        let mut replicas = ReplicaList::new();
        cluster.replicas(&topology, token, &mut replicas);
        replicas.retain(|r| scope != Scope::Local || r.is_local_dc);
        let natural = replicas.iter().filter(|r| !r.pending);
        let now = self.env().rt.now();
        let mut silent = self.inner.silent.borrow_mut();
        // All other nodes refuse the ballots of a node with a wrong clock.
        let wrong_clock = self.inner.wrong_clock.borrow().clone();
        let is_wrong = |host| wrong_clock.as_ref().is_some_and(|is_wrong| is_wrong(host));
        let skips_self = is_wrong(snapshot.local.host_id);
        let hosts: SmallVec<[HostId; 3]> = natural
            .clone()
            .take_while(|r| !r.is_self || skips_self)
            .filter(|r| !r.is_self && r.alive && !is_wrong(r.host) && silent.may_try(r.host, now))
            .map(|r| r.host)
            .collect();
        if hosts.is_empty() {
            return None;
        }
        let pending = replicas.iter().filter(|r| r.pending).count();
        let quorum = crate::plan::narrow(natural.count() / 2 + 1 + pending);
        Some(SerialRoute { table, hosts, quorum })
    }

    /// Leaves nodes with a wrong clock, as `is_wrong` reports, out of the routes of statements.
    /// That includes this node, as long as there are others.
    pub fn route_around_clocks(&self, is_wrong: impl Fn(HostId) -> bool + 'static) {
        *self.inner.wrong_clock.borrow_mut() = Some(Rc::new(is_wrong));
    }

    /// Forwards a statement to another node and waits for its answer. `write` appends the payload;
    /// its argument is the time from the client's deadline until this node aborts.
    ///
    /// # Errors
    /// See [`NotForwarded`].
    pub async fn forward_serial(
        &self,
        host: HostId,
        token: Token,
        terms: ForwardTerms,
        write: impl FnOnce(&mut Vec<u8>, Duration),
    ) -> Result<Vec<u8>, NotForwarded> {
        let Some(cluster) = self.cluster() else { return Err(NotForwarded::Elsewhere) };
        let ForwardTerms { table, deadline, is_write, trace } = terms;
        // The longest time that the executing node waits for the commit.
        let commit_time = cluster.parts.settings.write_request_timeout;
        let ends = match is_write {
            true => deadline.max(self.env().rt.now() + commit_time),
            false => deadline,
        };
        let gives_up = ends + ANSWER_SLACK;
        let outgoing = Outgoing {
            host,
            shard: cluster.shard_map_of(host).shard_of(table, token),
            verb: Verb::PaxosForward,
            deadline: gives_up,
            trace,
        };
        let slack = gives_up.since(deadline);
        self.inner.forwarded_out.inc();
        let sent = cluster.parts.messaging.request(&outgoing, |out| write(out, slack)).await;
        let silent = &self.inner.silent;
        match &sent {
            Err(MessagingError::Timeout { .. } | MessagingError::Unreachable { .. }) => {
                silent.borrow_mut().lost(host, self.env().rt.now());
            }
            Ok(_) | Err(_) => silent.borrow_mut().answered(host),
        }
        match sent {
            Ok(response) => Ok(response.payload),
            Err(error) => Err(match error {
                MessagingError::UnknownHost(_)
                | MessagingError::TooLarge { .. }
                | MessagingError::Stopping
                | MessagingError::Overloaded(_)
                | MessagingError::Unreachable { .. }
                | MessagingError::Refused { .. }
                | MessagingError::Lost { maybe_delivered: false }
                | MessagingError::Timeout { maybe_delivered: false }
                | MessagingError::Remote(
                    ErrorReply::Stopping
                    | ErrorReply::EpochTooNew { .. }
                    | ErrorReply::UnknownVerb(_)
                    | ErrorReply::Invalid(_),
                ) => NotForwarded::Elsewhere,
                MessagingError::Remote(ErrorReply::Overloaded) => NotForwarded::Overloaded,
                MessagingError::Lost { .. }
                | MessagingError::Timeout { .. }
                | MessagingError::Malformed
                | MessagingError::Remote(_) => NotForwarded::Lost,
            }),
        }
    }

    /// Sets what carries out the statements that other nodes forward to this shard. Until then they
    /// are refused, and carried out elsewhere.
    pub fn serve_forwarded(&self, handler: ForwardedHandler) {
        *self.inner.forwarded.0.borrow_mut() = Some(handler);
    }

    /// Serves the verb `PaxosForward`.
    pub fn serve_forward(&self, request: &PeerRequest<'_>, responder: Responder) {
        let handler = self.inner.forwarded.0.borrow().clone();
        let (Some(handler), Some(cluster)) = (handler, self.cluster()) else {
            return responder.fail(&ErrorReply::Stopping);
        };
        let (epoch, deadline) = (request.epoch, request.deadline);
        self.inner.forwarded_in.inc();
        let (payload, trace) = (request.payload.to_vec(), request.trace);
        let statement = ForwardedStatement { payload, deadline, trace };
        let snapshot = cluster.parts.snapshot.clone();
        let known = move || -> Arc<ClusterSnapshot> { snapshot() };
        self.env().spawn_or_drop("paxos-forwarded", async move {
            if known().epoch < epoch {
                // The statement may be about what was made a moment ago.
                cluster.wait_for(epoch, deadline).await;
                let known = known().epoch;
                if known < epoch {
                    return responder.fail(&ErrorReply::EpochTooNew { known });
                }
            }
            match handler(statement).await {
                Ok(answer) => responder.respond(|out| out.extend_from_slice(&answer)),
                Err(ForwardRefused::Overloaded) => responder.fail(&ErrorReply::Overloaded),
                Err(ForwardRefused::Stopping) => responder.fail(&ErrorReply::Stopping),
                Err(ForwardRefused::Invalid(text)) => responder.fail(&ErrorReply::Invalid(text)),
            }
        });
    }
}
