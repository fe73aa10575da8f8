//! The other side: what peers ask of this node as a replica or as a keeper of batch logs.
//!
//! Owns: [`Coordinator::serve_peer`]. A peer's bytes are checked here, with the table's schema, before
//! anything else sees them; afterwards they are as trusted as this node's own.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use cluster::{ClusterSnapshot, Consistency};
use data::MutationRef;
use internode::{ErrorReply, Hint, Mutation, MutationForward, Verb};
use messaging::{Request, Responder};
use request::{RequestError, WriteType};
use schema::Table;
use stdx::{Epoch, TableId, Token, Uuid, WallMicros};

use crate::Coordinator;
use crate::applying::Acknowledge;
use crate::batch_log::{BatchTable, is_durable};
use crate::batch_wire::{self, BatchRemove, BatchStore};
use crate::cluster_parts::{ReplicatedError, ReplicatedWrite};
use crate::cluster_state::Cluster;
use crate::failing::error_reply;
use crate::writing::Purpose;

/// What is served of a request.
#[derive(Clone, Copy)]
struct Message<'a> {
    verb: Verb,
    /// The sender's; 0 when it was waited for already.
    epoch: Epoch,
    payload: &'a [u8],
}

/// A mutation that was checked.
struct Checked<'a> {
    token: Token,
    bytes: Cow<'a, [u8]>,
    durable: bool,
}

/// What a message makes this node do.
enum Work<'a> {
    Apply(Checked<'a>),
    /// Apply it and pass it on.
    Forward(Checked<'a>, MutationForward<'a>),
    /// Write it to those who have its range now.
    SendOn(Checked<'a>),
    /// It is of no use any more.
    Nothing,
}

enum Refused {
    Error(ErrorReply),
    /// The metadata that this node has lacks the table, or a change of it that the writer knew: its
    /// cells may be of columns that would be dropped here as unknown ones.
    UnknownTable(TableId),
}

impl Coordinator {
    /// Serves a peer's request: verbs `Mutation`, `MutationForward`, `Hint`, `BatchStore`,
    /// `BatchRemove`, `Read` and `RangeRead`. Gives the responder back for others.
    pub fn serve_peer(&self, request: Request<'_>, responder: Responder) -> Option<Responder> {
        match request.verb {
            Verb::Mutation
            | Verb::MutationForward
            | Verb::Hint
            | Verb::BatchStore
            | Verb::BatchRemove
            | Verb::Read
            | Verb::RangeRead => {}
            _ => return Some(responder),
        }
        let Some(cluster) = self.inner.cluster.get().filter(|c| !c.writes.stopping.get()) else {
            responder.fail(&ErrorReply::Stopping);
            return None;
        };
        if matches!(request.verb, Verb::Read | Verb::RangeRead) {
            self.serve_read(&request, responder);
            return None;
        }
        if self.inner.rt.now() >= request.deadline {
            cluster.counters.replica_mutations_late.inc();
            responder.fail(&ErrorReply::Timeout);
            return None;
        }
        let Request { verb, epoch, payload, .. } = request;
        self.serve_message(cluster, Message { verb, epoch, payload }, responder);
        None
    }

    fn serve_message(&self, cluster: &Rc<Cluster>, message: Message<'_>, responder: Responder) {
        let snapshot = (cluster.parts.snapshot)();
        match self.work_of(cluster, &snapshot, message) {
            Ok(Work::Apply(Checked { token, bytes, durable })) => {
                cluster.counters.replica_mutations.inc();
                self.apply_and_tell(token, &bytes, durable, Acknowledge::Peer(responder));
            }
            Ok(Work::Forward(Checked { token, bytes, durable }, forward)) => {
                cluster.counters.replica_mutations.inc();
                let who = self.pass_on(&forward.targets, forward.mutation, responder);
                self.apply_and_tell(token, &bytes, durable, Acknowledge::Forward(who));
            }
            Ok(Work::SendOn(checked)) => self.send_on(cluster, snapshot, checked, responder),
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
                Ok(Work::Apply(check(snapshot, mutation.bytes)?.1))
            }
            Verb::MutationForward => {
                let forward = MutationForward::decode(payload).map_err(malformed)?;
                Ok(Work::Forward(check(snapshot, forward.mutation.bytes)?.1, forward))
            }
            Verb::Hint => {
                let hint = Hint::decode(payload).map_err(malformed)?;
                self.work_of_hint(cluster, snapshot, hint)
            }
            Verb::BatchStore => self.work_of_batch(snapshot, payload),
            _ => {
                let remove = BatchRemove::decode(payload).map_err(malformed)?;
                if let Some(table) = BatchTable::of(&snapshot.schema) {
                    self.remove_stored(table, remove.id.as_bytes(), remove.written_at);
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
        if is_obsolete(snapshot, table, &hint, self.inner.rt.wall()) {
            cluster.counters.hints_obsolete.inc();
            return Ok(Work::Nothing);
        }
        cluster.counters.hints_applied.inc();
        let own = snapshot.local.host_id;
        let topology = cluster.topology(snapshot, table.id);
        let is_mine = hint.target == own
            || topology
                .is_none_or(|t| t.placements.replicas(checked.token).position(own).is_some());
        Ok(if is_mine { Work::Apply(checked) } else { Work::SendOn(checked) })
    }

    fn work_of_batch<'a>(
        &self,
        snapshot: &ClusterSnapshot,
        payload: &[u8],
    ) -> Result<Work<'a>, Refused> {
        let BatchStore { id, written_at, mutations } =
            BatchStore::decode(payload).map_err(malformed)?;
        let Some(table) = BatchTable::of(&snapshot.schema) else {
            let text = "there is no table system.batches".to_owned();
            return Err(Refused::Error(ErrorReply::Internal(text)));
        };
        let mut next_id = batch_wire::following(id);
        let entry = table.entry(id.as_bytes(), written_at, mutations.into_iter(), &mut next_id);
        self.inner.batches.note_stored(*id.as_bytes(), self.inner.rt.now());
        let (token, bytes) = (codec::token_of(id.as_bytes()), Cow::Owned(entry));
        Ok(Work::Apply(Checked { token, bytes, durable: true }))
    }

    /// A hint for a node that has left: this one has its hints, others its ranges.
    fn send_on(
        &self,
        cluster: &Cluster,
        snapshot: Arc<ClusterSnapshot>,
        checked: Checked<'_>,
        responder: Responder,
    ) {
        let this = self.clone();
        let time = cluster.parts.settings.write_request_timeout;
        let order = ReplicatedWrite {
            snapshot,
            consistency: Consistency::One,
            write_type: WriteType::Simple,
            mutations: vec![(checked.token, checked.bytes.into_owned(), checked.durable)],
            logged: false,
            batch_id: Uuid::nil(),
            deadline: responder.deadline().min(self.inner.rt.now() + time),
        };
        let task = async move {
            match this.write_for(order, Purpose::MovedHint).await {
                Ok(()) => responder.respond(|_| {}),
                Err(error) => responder.fail(&reply_of(&error)),
            }
        };
        self.spawn_or_drop("moved-hint", task);
    }

    /// What is not known may be of the sender's newer metadata.
    fn serve_when_known(
        &self,
        cluster: &Rc<Cluster>,
        known: Epoch,
        table: TableId,
        message: Message<'_>,
        responder: Responder,
    ) {
        let wait = cluster.parts.epoch_wait.clone().filter(|_| message.epoch > known);
        let Some(wait) = wait else { return responder.fail(&ErrorReply::UnknownTable(table)) };
        let (this, cluster) = (self.clone(), cluster.clone());
        let (verb, payload) = (message.verb, message.payload.to_vec());
        let task = async move {
            if wait(message.epoch, responder.deadline()).await {
                let message = Message { verb, epoch: Epoch(0), payload: &payload };
                this.serve_message(&cluster, message, responder);
            } else {
                let known = (cluster.parts.snapshot)().epoch;
                responder.fail(&ErrorReply::EpochTooNew { known });
            }
        };
        self.spawn_or_drop("replica-epoch", task);
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
    Ok((table, Checked { token, bytes: Cow::Borrowed(bytes), durable }))
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
