//! Replica side of writes: requests of peers to this node as a replica or as a keeper of batch
//! logs.
//!
//! Owns: [`PeerWrites`]. A peer's bytes are checked here, with the table's schema, before any other
//! code sees them; afterwards they are as trusted as this node's own.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::{ClusterSnapshot, Consistency, Replication};
use data::MutationRef;
use internode::{ErrorReply, ForwardAck, Hint, Mutation, MutationFlags, MutationForward, Verb};
use messaging::{Request, Responder};
use request::{RequestError, WriteType};
use schema::Table;
use stdx::{Epoch, HostId, TableId, Uuid, WallMicros};

use super::batch::batch_log::{BatchTable, is_durable};
use super::batch::batch_wire::{self, BatchRemove, BatchStore};
use super::batch::{BatchLog, keeps_batches};
use super::counter::Counters;
use super::counter::wire::Message as Incoming;
use super::write::applying::Acknowledge;
use super::write::{Purpose, Writer};
use crate::orders::CounterWrite;
use crate::shared::{Cluster, ReplicatedError, ReplicatedWrite, Shared};
use replica::{Env, PeerTrace, ReplicaMutation, RequestTrace, error_reply};

/// A request that is being served.
#[derive(Clone, Copy)]
struct Message<'a> {
    verb: Verb,
    from: HostId,
    /// The sender's.
    epoch: Epoch,
    /// This node has waited for that epoch already.
    has_waited: bool,
    /// Trace id of the request, for the nodes that it is forwarded to.
    trace: Option<Uuid>,
    payload: &'a [u8],
}

/// A mutation that was checked.
type Checked<'a> = ReplicaMutation<Cow<'a, [u8]>>;

/// Action that a message requires of this node.
enum Work<'a> {
    Apply(Checked<'a>),
    /// Apply it and pass it on.
    Forward(Checked<'a>, MutationForward<'a>),
    /// Lead its increments.
    Count(Checked<'a>, Consistency),
    /// Write it to the current replicas of its range.
    SendOn(Checked<'a>, Errand),
    /// It is obsolete.
    Nothing,
}

/// Why a mutation is written to others than its sender thought of.
#[derive(Clone, Copy)]
enum Errand {
    /// A hint for a node that is no replica any more, or of a range that moves.
    Hint {
        /// When its write was made.
        created_at: WallMicros,
    },
    /// A write of a coordinator that does not know the current replicas yet.
    Outdated {
        /// To how many others it was to be passed on, if it was.
        targets: Option<u8>,
    },
}

enum Refused {
    Error(ErrorReply),
    /// The metadata that this node has lacks the table, or a change of it that the writer knew: its
    /// cells may be of columns that would be dropped here as unknown ones.
    UnknownTable(TableId),
}

/// Writes of other coordinators for which this node is a replica, a leader or a keeper of batch logs.
#[derive(Clone)]
pub(crate) struct PeerWrites {
    inner: Rc<Inner>,
}

struct Inner {
    shared: Rc<Shared>,
    writer: Writer,
    log: BatchLog,
    counters: Counters,
}

/// An increment that a peer has traced.
struct CounterTrace {
    trace: Rc<PeerTrace>,
    id: Uuid,
    /// The peer as traces name it.
    from: String,
}

impl PeerWrites {
    pub(crate) fn new(
        shared: Rc<Shared>,
        writer: Writer,
        log: BatchLog,
        counters: Counters,
    ) -> PeerWrites {
        PeerWrites { inner: Rc::new(Inner { shared, writer, log, counters }) }
    }

    fn env(&self) -> &Env {
        self.inner.shared.env()
    }

    /// Serves the verbs `Mutation`, `MutationForward`, `CounterMutation`, `Hint`, `BatchStore` and `BatchRemove`.
    pub(crate) fn serve(&self, request: &Request<'_>, responder: Responder) {
        let Some(cluster) = self.inner.shared.cluster() else {
            return responder.fail(&ErrorReply::Stopping);
        };
        if self.env().rt.now() >= request.deadline {
            cluster.counters.replica_mutations_late.inc();
            cluster.parts.messaging.log_dropped(request.verb, Duration::ZERO);
            return responder.fail(&ErrorReply::Timeout);
        }
        // A leader's part of an increment is traced by the code that executes it.
        let is_count = request.verb == Verb::CounterMutation;
        let is_traced = request.trace.is_some() && !is_count;
        let trace = is_traced.then(|| self.env().peer_trace(request)).flatten();
        let Request { verb, epoch, payload, from, .. } = *request;
        let has_waited = false;
        let message = Message { verb, from, epoch, has_waited, trace: request.trace, payload };
        self.serve_message(cluster, message, responder);
        if let Some(trace) = trace {
            let mutation = match verb {
                Verb::Mutation => Mutation::decode(payload).ok(),
                Verb::MutationForward => {
                    MutationForward::decode(payload).ok().map(|forward| forward.mutation)
                }
                _ => None,
            };
            if let Some(mutation) = mutation {
                self.env().note_own_write(mutation.bytes, |text| trace.note(text));
            }
            trace.note(format!("Enqueuing response to {}", cluster.shown(from)));
        }
    }

    fn serve_message(&self, cluster: &Rc<Cluster>, message: Message<'_>, responder: Responder) {
        let snapshot = (cluster.parts.snapshot)();
        match self.work_of(cluster, &snapshot, message) {
            Ok(Work::Apply(mutation)) => {
                cluster.counters.replica_mutations.inc();
                self.inner.writer.apply_and_tell(mutation.as_slice(), Acknowledge::Peer(responder));
            }
            Ok(Work::Forward(mutation, forward)) => {
                cluster.counters.replica_mutations.inc();
                let who = self.inner.writer.pass_on(&forward, message.trace, responder);
                self.inner.writer.apply_and_tell(mutation.as_slice(), Acknowledge::Forward(who));
            }
            Ok(Work::Count(checked, consistency)) => {
                let trace = message.trace.and_then(|id| {
                    let trace = self.env().peer_trace_of(id, message.verb, message.from)?;
                    Some(CounterTrace { trace, id, from: cluster.shown(message.from) })
                });
                self.count_for_peer(snapshot, checked, consistency, trace, responder);
            }
            Ok(Work::SendOn(checked, errand)) => {
                self.send_on(cluster, snapshot, checked, errand, responder);
            }
            Ok(Work::Nothing) => responder.respond(|_| {}),
            Err(Refused::Error(error)) => responder.fail(&error),
            Err(Refused::UnknownTable(table)) => {
                self.serve_when_known(cluster, snapshot.epoch, table, message, responder);
            }
        }
    }

    fn work_of<'a>(
        &self,
        cluster: &Cluster,
        snapshot: &ClusterSnapshot,
        message: Message<'a>,
    ) -> Result<Work<'a>, Refused> {
        let payload = message.payload;
        match message.verb {
            Verb::Mutation => {
                let mutation = Mutation::decode(payload).map_err(malformed)?;
                let (table, checked) = check(snapshot, mutation.bytes)?;
                let is_new = mutation.flags == MutationFlags::NONE && !table.is_counter();
                if !is_new && message.epoch < cluster.emptied_at(snapshot) {
                    // Data read or logged before a truncation must not reappear after it; the
                    // leader read the counts before it.
                    let needed = snapshot.epoch;
                    return Err(Refused::Error(ErrorReply::EpochTooOld { needed }));
                }
                if is_outdated(cluster, snapshot, message.epoch, &checked) {
                    return Ok(Work::SendOn(checked, Errand::Outdated { targets: None }));
                }
                Ok(Work::Apply(checked))
            }
            Verb::MutationForward => {
                let forward = MutationForward::decode(payload).map_err(malformed)?;
                let (table, checked) = check(snapshot, forward.mutation.bytes)?;
                if table.is_counter() && message.epoch < cluster.emptied_at(snapshot) {
                    let needed = snapshot.epoch;
                    return Err(Refused::Error(ErrorReply::EpochTooOld { needed }));
                }
                if is_outdated(cluster, snapshot, message.epoch, &checked) {
                    let targets = u8::try_from(forward.targets.len()).ok();
                    return Ok(Work::SendOn(checked, Errand::Outdated { targets }));
                }
                Ok(Work::Forward(checked, forward))
            }
            Verb::CounterMutation => {
                let Incoming { consistency, mutation } =
                    Incoming::decode(payload).map_err(malformed)?;
                let (table, checked) = check(snapshot, mutation)?;
                if !table.is_counter() {
                    return Err(malformed("increments of a table without counters"));
                }
                if self.inner.counters.may_lead(cluster, snapshot, table.id, checked.token) {
                    return Ok(Work::Count(checked, consistency));
                }
                Err(match message.epoch > snapshot.epoch && !message.has_waited {
                    // This node may be a replica in the sender's newer metadata.
                    true => Refused::UnknownTable(table.id),
                    false => Refused::Error(ErrorReply::EpochTooOld { needed: snapshot.epoch }),
                })
            }
            Verb::Hint => {
                let hint = Hint::decode(payload).map_err(malformed)?;
                self.work_of_hint(cluster, snapshot, hint)
            }
            Verb::BatchStore => self.work_of_batch(snapshot, payload),
            _ => {
                let remove = BatchRemove::decode(payload).map_err(malformed)?;
                if let Some(table) = BatchTable::of(&snapshot.schema) {
                    self.inner.log.remove_stored(table, remove.id.as_bytes(), remove.written_at);
                }
                Ok(Work::Nothing)
            }
        }
    }

    fn work_of_hint<'a>(
        &self,
        cluster: &Cluster,
        snapshot: &ClusterSnapshot,
        hint: Hint<'a>,
    ) -> Result<Work<'a>, Refused> {
        let (table, checked) = check(snapshot, hint.bytes)?;
        if is_obsolete(snapshot, table, &hint, self.env().rt.wall()) {
            cluster.counters.hints_obsolete.inc();
            return Ok(Work::Nothing);
        }
        cluster.counters.hints_applied.inc();
        let own = snapshot.local.host_id;
        // A hint may be applied on this node alone only if it is addressed to this node and no node
        // is copying the range: a new owner may have read past the partition already.
        let is_here = cluster.topology(snapshot, table.id).is_none_or(|topology| {
            let replicas = topology.placements.replicas(checked.token);
            let is_settled = replicas.pending_len() == 0 && replicas.position(own).is_some();
            *topology.placements.replication() == Replication::Local
                || hint.target == own && is_settled
        });
        let errand = Errand::Hint { created_at: hint.created_at };
        Ok(if is_here { Work::Apply(checked) } else { Work::SendOn(checked, errand) })
    }

    fn work_of_batch<'a>(
        &self,
        snapshot: &ClusterSnapshot,
        payload: &[u8],
    ) -> Result<Work<'a>, Refused> {
        let BatchStore { id, written_at, mutations } =
            BatchStore::decode(payload).map_err(malformed)?;
        if !keeps_batches(snapshot) {
            // No node would replay it. Its coordinator will learn soon which nodes to ask instead.
            return Err(Refused::Error(ErrorReply::EpochTooOld { needed: snapshot.epoch }));
        }
        for mutation in &mutations {
            // A table that this node does not know yet would look as if it had been dropped.
            check(snapshot, mutation)?;
        }
        let Some(table) = BatchTable::of(&snapshot.schema) else {
            let text = "there is no table system.batches".to_owned();
            return Err(Refused::Error(ErrorReply::Internal(text)));
        };
        let mut next_id = batch_wire::following(id);
        let entry = table.entry(id.as_bytes(), written_at, mutations.into_iter(), &mut next_id);
        self.inner.log.note_stored(*id.as_bytes(), self.env().rt.now());
        let (token, bytes) = (codec::token_of(id.as_bytes()), Cow::Owned(entry));
        Ok(Work::Apply(ReplicaMutation::durable(token, bytes)))
    }

    fn count_for_peer(
        &self,
        snapshot: Arc<ClusterSnapshot>,
        checked: Checked<'_>,
        consistency: Consistency,
        trace: Option<CounterTrace>,
        responder: Responder,
    ) {
        let this = self.clone();
        let write = CounterWrite {
            snapshot,
            consistency,
            mutation: checked.to_owned(),
            deadline: responder.deadline(),
        };
        let task = async move {
            let noting = trace.as_ref().map(|CounterTrace { trace, id, .. }| {
                let trace = trace.clone();
                Rc::new(RequestTrace::new(*id, move |activity| trace.note(activity)))
            });
            let led = this.inner.counters.lead_for_peer(write, noting).await;
            if let Some(CounterTrace { trace, from, .. }) = trace {
                trace.note(format!("Enqueuing response to {from}"));
            }
            match led {
                Ok(outcome) => responder.respond(|out| outcome.encode(out)),
                // Nothing was done.
                Err(error) => responder.fail(&reply_of(&error)),
            }
        };
        self.env().spawn_or_drop("counter-mutation", task);
    }

    /// Writes a mutation to all current replicas of its range, whatever replicas its sender knew.
    fn send_on(
        &self,
        cluster: &Cluster,
        snapshot: Arc<ClusterSnapshot>,
        checked: Checked<'_>,
        errand: Errand,
        responder: Responder,
    ) {
        let this = self.clone();
        let time = self.inner.shared.write_timeout();
        let (consistency, purpose, name) = match errand {
            Errand::Hint { created_at } => {
                (Consistency::One, Purpose::MovedHint(created_at), "moved-hint")
            }
            // Any level that the sender counts up to is met by less than this.
            Errand::Outdated { .. } => {
                cluster.counters.outdated_mutations.inc();
                (Consistency::EachQuorum, Purpose::Client, "outdated-mutation")
            }
        };
        let order = ReplicatedWrite {
            snapshot,
            consistency,
            write_type: WriteType::Simple,
            mutations: vec![checked.to_owned()],
            logged: false,
            batch_id: Uuid::nil(),
            deadline: responder.deadline().min(self.env().rt.now() + time),
        };
        let task = async move {
            let result = this.inner.writer.write_for(order, purpose).await;
            match (result, errand) {
                (Ok(()), Errand::Outdated { targets: Some(targets) }) => {
                    for place in 0..targets {
                        let ack = ForwardAck { target: Some(place), result: Ok(()) };
                        responder.respond_partly(|out| ack.encode(out));
                    }
                    let own = ForwardAck { target: None, result: Ok(()) };
                    responder.respond(|out| own.encode(out));
                }
                (Ok(()), _) => responder.respond(|_| {}),
                (Err(error), _) => responder.fail(&reply_of(&error)),
            }
        };
        self.env().spawn_or_drop(name, task);
    }

    /// Serves a message whose table is unknown: it may belong to the sender's newer metadata.
    fn serve_when_known(
        &self,
        cluster: &Rc<Cluster>,
        known: Epoch,
        table: TableId,
        message: Message<'_>,
        responder: Responder,
    ) {
        let may_come = message.epoch > known && !message.has_waited;
        let wait = cluster.parts.epoch_wait.clone().filter(|_| may_come);
        let Some(wait) = wait else { return responder.fail(&ErrorReply::UnknownTable(table)) };
        let (this, cluster) = (self.clone(), cluster.clone());
        let payload = message.payload.to_vec();
        let Message { verb, from, epoch, trace, .. } = message;
        let task = async move {
            if wait(epoch, responder.deadline()).await {
                let (has_waited, payload) = (true, payload.as_slice());
                let message = Message { verb, from, epoch, has_waited, trace, payload };
                this.serve_message(&cluster, message, responder);
            } else {
                let known = (cluster.parts.snapshot)().epoch;
                responder.fail(&ErrorReply::EpochTooNew { known });
            }
        };
        self.env().spawn_or_drop("replica-epoch", task);
    }
}

fn malformed(error: impl std::fmt::Display) -> Refused {
    Refused::Error(ErrorReply::Invalid(error.to_string()))
}

/// Opens a peer's mutation and checks all of it with its table's schema.
fn check<'s, 'a>(
    snapshot: &'s ClusterSnapshot,
    bytes: &'a [u8],
) -> Result<(&'s Table, Checked<'a>), Refused> {
    let Some(opened) = MutationRef::open(bytes) else {
        return Err(malformed("no mutation of a known version"));
    };
    let Some(table) = snapshot.schema.table_by_id(opened.table) else {
        return Err(Refused::UnknownTable(opened.table));
    };
    if opened.schema_version > table.version {
        return Err(Refused::UnknownTable(opened.table));
    }
    if MutationRef::parse(bytes, table.clustering_count).is_none() {
        return Err(malformed("a mutation that does not fit its table"));
    }
    let durable = is_durable(snapshot, table);
    let token = codec::token_of(opened.key);
    Ok((table, ReplicaMutation { token, bytes: Cow::Borrowed(bytes), durable }))
}

/// Returns true if the sender of a mutation knew other replicas of its partition than this node
/// does: the replicas it writes to are then not necessarily the ones that are read now.
fn is_outdated(
    cluster: &Cluster,
    snapshot: &ClusterSnapshot,
    epoch: Epoch,
    mutation: &Checked<'_>,
) -> bool {
    if epoch >= snapshot.places.last() {
        return false;
    }
    let topology = mutation.table().and_then(|table| cluster.topology(snapshot, table));
    topology.is_some_and(|t| {
        *t.placements.replication() != Replication::Local
            && epoch < t.placements.moved(mutation.token).at
    })
}

/// A hint that could bring back what was deleted: older than the tombstones that are kept, or than
/// the table's last truncation.
fn is_obsolete(
    snapshot: &ClusterSnapshot,
    table: &Table,
    hint: &Hint<'_>,
    now: WallMicros,
) -> bool {
    let grace = i64::from(hint.gc_grace_seconds).min(i64::from(table.options.gc_grace_seconds));
    let expires = hint.created_at.0.saturating_add(grace.saturating_mul(1_000_000));
    let truncated = snapshot.truncations.get(&table.id).map(|t| t.truncated_at);
    expires <= now.0 || truncated.is_some_and(|at| hint.created_at <= at)
}

fn reply_of(error: &ReplicatedError) -> ErrorReply {
    match error {
        ReplicatedError::Request(
            RequestError::WriteTimeout { .. } | RequestError::ReadTimeout { .. },
        ) => ErrorReply::Timeout,
        ReplicatedError::Request(_) | ReplicatedError::Overloaded(_) => ErrorReply::Overloaded,
        ReplicatedError::Store(error) => error_reply(error),
    }
}
