//! Acceptor side: serves the requests of proposers, of peers and of this node.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use cluster::ClusterSnapshot;
use data::MutationRef;
use data::command::{Partitions, ReadCommand};
use data::replica_page::PageLimits;
use internode::{ErrorReply, ReadRequest, Verb};
use messaging::{Request as PeerRequest, Responder};
use paxos::acceptor::{Rejection, Reply, Request};
use paxos::wire::{Answer, Electorate, Message};
use paxos::{Ballot, Scope};
use schema::Table;
use stdx::{Epoch, Instant};

use crate::Lwt;
use crate::PAGE_BYTES_MAX;
use crate::acceptors::{Answered, Ask, Checked};
use crate::paxos_row::{Partition, Payload};
use crate::plan::{electorate, replicas_of};
use crate::shards::Shards;
use replica::error_reply;
use replica::{ReplicaQuery, TableFacts};

/// A request to an acceptor before the check of its electorate.
pub(crate) struct Incoming {
    pub(crate) partition: Partition,
    /// Epoch of the proposer's plan.
    pub(crate) epoch: Epoch,
    pub(crate) electorate: Electorate,
    pub(crate) request: Request<Payload>,
    pub(crate) read: Option<(ReadCommand, PageLimits)>,
    pub(crate) durable: bool,
    pub(crate) deadline: Instant,
    /// The answer is waited for by a task that is not dropped before it has it.
    pub(crate) is_served: bool,
}

type AnswerFuture = Pin<Box<dyn Future<Output = Result<Answer<Payload>, ErrorReply>>>>;

/// Returns true if bytes are a mutation of this partition that fits its table.
pub(crate) fn is_sound(table: &Table, partition: &Partition, bytes: &[u8]) -> bool {
    let Some(opened) = MutationRef::open(bytes) else { return false };
    opened.table == partition.table
        && *opened.key == *partition.key
        && opened.schema_version <= table.version
        && MutationRef::parse(bytes, table.clustering_count).is_some()
}

fn value_of(request: &Request<Payload>) -> Option<&Payload> {
    match request {
        Request::Propose(accepted) | Request::Conclude(accepted) => accepted.value.as_ref(),
        Request::Commit(commit) | Request::Refresh { commit, .. } => commit.value.as_ref(),
        Request::Prepare { .. } | Request::Prune { .. } => None,
    }
}

fn verb_of(request: &Request<Payload>) -> Verb {
    match request {
        Request::Prepare { .. } => Verb::PaxosPrepare,
        Request::Propose(_) | Request::Conclude(_) => Verb::PaxosPropose,
        Request::Commit(_) => Verb::PaxosCommit,
        Request::Refresh { .. } => Verb::PaxosRefresh,
        Request::Prune { .. } => Verb::PaxosPrune,
    }
}

/// An acceptor's request, for a trace.
pub(crate) struct Asked {
    round: Option<Ballot>,
    /// Activity that the request causes, in Cassandra's words.
    text: String,
    is_proposal: bool,
}

impl Asked {
    pub(crate) fn of(request: &Request<Payload>) -> Asked {
        let is_proposal = matches!(request, Request::Propose(_) | Request::Conclude(_));
        Asked { round: ballot_of(request), text: describe(request), is_proposal }
    }

    /// Describes the acceptor's answer.
    pub(crate) fn describe(&self, answer: Option<&Answer<Payload>>) -> String {
        let Some(Answer::Reply { reply: Reply::Rejected { why, .. }, .. }) = answer else {
            return self.text.clone();
        };
        let round = self.round.map(|round| round.to_uuid().to_string()).unwrap_or_default();
        match (why, self.is_proposal) {
            (Rejection::Newer(latest), false) => {
                format!("Promise rejected; {round} older than {}", latest.to_uuid())
            }
            (Rejection::Newer(latest), true) => {
                format!("Rejecting proposal {round}; latest is now {}", latest.to_uuid())
            }
            (Rejection::TooFarAhead { ahead_micros, max_micros }, _) => format!(
                "Round {round} rejected: it is {ahead_micros} microseconds ahead of this clock, more \
                 than {max_micros}"
            ),
            (Rejection::Overloaded, _) => {
                format!("Round {round} rejected: too many answers wait for the disk")
            }
        }
    }
}

/// For a trace, as Cassandra puts it.
fn describe(request: &Request<Payload>) -> String {
    match request {
        Request::Prepare { ballot, .. } => format!("Promising ballot {}", ballot.to_uuid()),
        Request::Propose(value) => format!("Accepting proposal {}", value.ballot.to_uuid()),
        Request::Conclude(value) => {
            format!("Accepting and committing proposal {}", value.ballot.to_uuid())
        }
        Request::Commit(commit) => format!("Committing proposal {}", commit.ballot.to_uuid()),
        Request::Refresh { commit, .. } => {
            format!("Committing what another replica lacks, proposal {}", commit.ballot.to_uuid())
        }
        Request::Prune { ballot } => format!("Forgetting the rounds up to {}", ballot.to_uuid()),
    }
}

/// The round of a request for a promise or a vote.
fn ballot_of(request: &Request<Payload>) -> Option<Ballot> {
    match request {
        Request::Prepare { ballot, .. } => Some(*ballot),
        Request::Propose(value) | Request::Conclude(value) => Some(value.ballot),
        Request::Commit(_) | Request::Refresh { .. } | Request::Prune { .. } => None,
    }
}

/// Returns true if only the replicas of one datacenter vote on the request; `None`: the request has
/// no ballot.
fn scope_of(request: &Request<Payload>) -> Option<bool> {
    Some(ballot_of(request)?.scope() == Scope::Local)
}

fn invalid(text: &str) -> ErrorReply {
    ErrorReply::Invalid(text.to_owned())
}

impl<N: Shards> Lwt<N> {
    /// Serves the verbs `PaxosPrepare`, `PaxosPropose`, `PaxosCommit`, `PaxosRefresh` and
    /// `PaxosPrune`.
    pub fn serve_paxos(&self, request: &PeerRequest<'_>, responder: Responder) {
        let message = match Message::<Payload>::decode(request.payload) {
            Ok(message) => message,
            Err(error) => return responder.fail(&ErrorReply::Invalid(error.to_string())),
        };
        if verb_of(&message.request) != request.verb {
            return responder.fail(&invalid("the verb does not fit what is asked"));
        }
        let (epoch, deadline) = (request.epoch, request.deadline);
        if self.env().rt.now() >= deadline {
            return responder.fail(&ErrorReply::Timeout);
        }
        self.inner.served.inc();
        let trace = request.trace.and_then(|_| self.env().peer_trace(request));
        let from = request.from;
        let noted = trace.map(|trace| (trace, Asked::of(&message.request)));
        let this = self.clone();
        self.env().spawn_or_drop("paxos-served", async move {
            let answer = this.answer_peer(message, epoch, deadline).await;
            if let (Some((trace, asked)), Some(cluster)) = (noted, this.cluster()) {
                trace.note(asked.describe(answer.as_ref().ok()));
                trace.note(format!("Enqueuing response to {}", cluster.shown(from)));
            }
            match answer {
                Ok(answer) => responder.respond(|out| answer.encode(out)),
                Err(error) => responder.fail(&error),
            }
        });
    }

    async fn answer_peer(
        &self,
        message: Message<Payload>,
        epoch: Epoch,
        deadline: Instant,
    ) -> Result<Answer<Payload>, ErrorReply> {
        let Some(cluster) = self.cluster() else { return Err(ErrorReply::Stopping) };
        let partition = Partition { table: message.table, key: message.key.into() };
        let mut snapshot = (cluster.parts.snapshot)();
        let mut facts = self.env().facts(&snapshot, partition.table);
        let fits = |facts: &TableFacts| {
            value_of(&message.request).is_none_or(|v| is_sound(&facts.table, &partition, v))
        };
        if snapshot.epoch < epoch && !facts.as_deref().is_some_and(fits) {
            // A table, or a column, that was made a moment ago.
            cluster.wait_for(epoch, deadline).await;
            snapshot = (cluster.parts.snapshot)();
            facts = self.env().facts(&snapshot, partition.table);
        }
        let Some(facts) = facts else { return Err(ErrorReply::UnknownTable(partition.table)) };
        if !fits(&facts) {
            return Err(invalid("a value is not a mutation of the partition"));
        }
        let read = match message.read.is_empty() {
            true => None,
            false => Some(check_read(&facts, &partition, &message.read)?),
        };
        let incoming = Incoming {
            partition,
            epoch: message.epoch,
            electorate: message.electorate,
            request: message.request,
            read,
            durable: facts.durable,
            deadline,
            is_served: true,
        };
        self.consider(&snapshot, incoming).await
    }

    /// Asks the acceptor unless the electorate differs. Requests of other nodes were validated
    /// before. The request is on its way to the acceptor when this returns, unless it has to wait.
    pub(crate) fn consider(
        &self,
        snapshot: &Arc<ClusterSnapshot>,
        incoming: Incoming,
    ) -> AnswerFuture {
        let known = match self.cluster() {
            Some(cluster) => (cluster.parts.snapshot)(),
            None => snapshot.clone(),
        };
        if self.is_same_electorate(&known, &incoming) {
            return self.ask_about(&known, incoming, None);
        }
        let this = self.clone();
        Box::pin(async move {
            let mut known = known;
            if known.epoch < incoming.epoch
                && let Some(cluster) = this.cluster()
            {
                cluster.wait_for(incoming.epoch, incoming.deadline).await;
                known = (cluster.parts.snapshot)();
            }
            if this.is_same_electorate(&known, &incoming) {
                return this.ask_about(&known, incoming, None).await;
            }
            let ours = known.epoch;
            match &incoming.request {
                // A commit carries a chosen value: it is applied whatever the sender's epoch.
                Request::Commit(_) => {
                    let newer = (ours > incoming.epoch).then_some(ours);
                    this.ask_about(&known, incoming, newer).await
                }
                Request::Prepare { ballot, .. } if ours > incoming.epoch => {
                    Ok(Answer::WrongEpoch { ballot: *ballot, epoch: ours })
                }
                Request::Propose(value) | Request::Conclude(value) if ours > incoming.epoch => {
                    Ok(Answer::WrongEpoch { ballot: value.ballot, epoch: ours })
                }
                _ if ours < incoming.epoch => Err(ErrorReply::EpochTooNew { known: ours }),
                _ => Err(invalid("the electorate is not one of its epoch")),
            }
        })
    }

    fn is_same_electorate(&self, snapshot: &ClusterSnapshot, incoming: &Incoming) -> bool {
        let is_local = match (&incoming.request, scope_of(&incoming.request)) {
            (_, Some(is_local)) => is_local,
            (Request::Commit(_), None) => false,
            // These requests carry commits; their promise was given before.
            (_, None) => return true,
        };
        let replicas = replicas_of(self.env(), snapshot, &incoming.partition);
        replicas.is_some_and(|(list, _)| electorate(&list, is_local).is_same(&incoming.electorate))
    }

    fn ask_about(
        &self,
        snapshot: &ClusterSnapshot,
        incoming: Incoming,
        newer: Option<Epoch>,
    ) -> AnswerFuture {
        let checked = scope_of(&incoming.request).filter(|_| self.cluster().is_some());
        let Incoming { partition, request, read, durable, electorate, is_served, .. } = incoming;
        let checked = checked
            .map(|is_local| Box::new(Checked { epoch: snapshot.epoch, electorate, is_local }));
        let ballot = ballot_of(&request);
        let facts = self.env().facts(snapshot, partition.table);
        let Some(facts) = facts else {
            let error = ErrorReply::UnknownTable(partition.table);
            return Box::pin(std::future::ready(Err(error)));
        };
        let Some(table) = self.inner.table.of(&snapshot.schema) else {
            let error = ErrorReply::Internal("there is no table system.paxos".to_owned());
            return Box::pin(std::future::ready(Err(error)));
        };
        let truncated_at = snapshot.truncations.get(&partition.table).map(|t| t.truncated_at);
        let query = read.map(|(command, limits)| {
            let purge_before = facts.purge_before(&self.env().store, command.now);
            ReplicaQuery { command, limits, purge_before, scope: store::ReadScope::All }
        });
        let ask =
            Ask { partition, request, query, durable, truncated_at, table, adopted: None, checked };
        let asked = match is_served {
            true => Err(ask),
            false => Ok(self.inner.acceptors.ask(ask)),
        };
        let this = self.clone();
        Box::pin(async move {
            let answered = match asked {
                Ok(answer) => answer.await,
                Err(ask) => this.inner.acceptors.ask_to_its_end(ask).await,
            };
            let Answered { reply, page, moved } = answered.map_err(|error| {
                this.env().store.note_failure(&error);
                error_reply(&error)
            })?;
            if let (Some(epoch), Some(ballot)) = (moved, ballot) {
                return Ok(Answer::WrongEpoch { ballot, epoch });
            }
            let Some(reply) = reply else {
                return Err(ErrorReply::Internal("a prune has no answer".to_owned()));
            };
            match newer {
                Some(epoch) => Ok(Answer::WrongEpoch { ballot: reply.ballot(), epoch }),
                None => Ok(Answer::Reply { reply, page: page.unwrap_or_default() }),
            }
        })
    }
}

fn check_read(
    facts: &TableFacts,
    partition: &Partition,
    bytes: &[u8],
) -> Result<(ReadCommand, PageLimits), ErrorReply> {
    let read = match ReadRequest::decode(bytes) {
        Ok(read) => read,
        Err(error) => return Err(ErrorReply::Invalid(error.to_string())),
    };
    let is_of_it = read.command.table == partition.table
        && matches!(&read.command.partitions, Partitions::Key(key) if **key == *partition.key);
    if !is_of_it {
        return Err(invalid("a prepare reads another partition"));
    }
    if !read.check_slices(facts.shape.clustering()) {
        return Err(invalid("the slices do not fit the table's clustering columns"));
    }
    let limits = PageLimits {
        rows: u32::try_from(read.limits.rows).unwrap_or(u32::MAX).max(1),
        rows_per_partition: read.limits.rows_per_partition.max(1),
        bytes: usize::try_from(read.limits.bytes).unwrap_or(usize::MAX).min(PAGE_BYTES_MAX),
        // A condition needs all of its rows in one page.
        tombstones: u32::MAX,
    };
    Ok((read.command, limits))
}
