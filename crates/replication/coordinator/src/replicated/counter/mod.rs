//! Counters: increments become counts on one replica, their leader.
//!
//! Owns: the choice of the leader of an increment ([`Counters::count`]), the queue of a partition
//! ([`queue`]), the leader's computation ([`led`]), the verb `CounterMutation` ([`wire`]). Never: the
//! merge of contexts (that is [`data::counter`]), the write of a result to the replicas (that is
//! [`super::write`]).
//!
//! A leader reads its own shard of the counter, adds the increment, and applies the result here. Then
//! it writes the result to the replicas at the level; that write is idempotent.
//!
//! INV-counting-1: between the read and the application of a result nothing else is led for its
//! partition. INV-counting-2: a result leaves this node only after it was applied here.
//! INV-counting-3: an increment is given to another leader only when the previous one has certainly
//! done nothing. INV-counting-4: between the read and the application of a result the table is not
//! emptied on this shard.

mod led;
mod queue;
pub(crate) mod wire;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use cluster::{ClusterSnapshot, Consistency, Replication};
use data::counter::CounterId;
use data::{ClusteringComparator, MutationRef};
use internode::{ErrorReply, Verb};
use messaging::{MessagingError, Outgoing};
use request::{Need, ReplicaError, ReplicaInfo, RequestError, WritePlan, WriteType};
use smallvec::SmallVec;
use stdx::{Epoch, FixedMap, HostId, Instant, TableId, TimestampMicros, Token, Uuid, WallMicros};
use store::{CountsOf, StoreError};
use telemetry::Counter;

use crate::local::{Local, mesh_error};
use crate::orders::{CounterWrite, Lead};
use crate::replicated::write::{Purpose, Writer};
use crate::shard_requests::{ShardReply, ShardRequest};
use crate::shared::{Cluster, ReplicatedError, ReplicatedWrite, Shared};
use led::{Current, Leading, Noting};
use queue::{Queues, Turn};
use replica::{EVENTS_MAX, Env, Origin, ReplicaList, RequestTrace, Topology, replica_error};
use wire::Outcome;

/// Updates of counters, of one shard.
#[derive(Clone)]
pub struct Counters {
    inner: Rc<Inner>,
}

/// Counter state of one shard.
struct Inner {
    shared: Rc<Shared>,
    writer: Writer,
    queues: Queues,
    identity: RefCell<Identity>,
    emptied: Emptied,
    led: Counter,
    stage: telemetry::Stage,
    sent: Counter,
    resent: Counter,
    refused: Counter,
}

/// Since when a node writes its parts of counters with its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdOrigin {
    /// An earlier run has.
    EarlierRun,
    /// No earlier run has.
    ThisRun,
}

/// Counter id of this shard, and the cluster state that it is valid for.
#[derive(Default)]
struct Identity {
    id: Option<CounterId>,
    has_led: bool,
    /// Since when the members had their places, when it began to write as `id`.
    since: Option<Epoch>,
    /// Replication of the tables at their last write.
    replications: FixedMap<TableId, Replication>,
}

/// Truncations of tables on this shard. Data found in such a table afterwards was written
/// afterwards, whatever timestamps it has: those of increments are set by clients.
#[derive(Default)]
struct Emptied {
    /// Number of truncations in this run.
    times: Cell<u64>,
    /// When each was emptied last; not more tables than the metadata has.
    tables: RefCell<FixedMap<TableId, WallMicros>>,
}

impl Emptied {
    /// Records the truncations that the metadata has when this run starts: they are carried out
    /// before any request is served.
    fn found(&self, snapshot: &ClusterSnapshot) {
        let found = snapshot.truncations.iter().map(|(table, t)| (*table, t.truncated_at));
        self.tables.borrow_mut().extend(found);
    }

    fn note(&self, table: TableId, at: WallMicros, snapshot: Option<&ClusterSnapshot>) {
        self.times.set(self.times.get().wrapping_add(1));
        let Some(snapshot) = snapshot else { return };
        let mut tables = self.tables.borrow_mut();
        tables.retain(|table, _| snapshot.schema.table_by_id(*table).is_some());
        let latest = tables.entry(table).or_insert(at);
        *latest = at.max(*latest);
    }

    /// Returns the time of a truncation in the metadata that this shard has not carried out yet.
    fn due(&self, snapshot: &ClusterSnapshot, table: TableId) -> Option<WallMicros> {
        let at = snapshot.truncations.get(&table)?.truncated_at;
        let is_done = self.tables.borrow().get(&table).is_some_and(|done| *done >= at);
        (!is_done).then_some(at)
    }
}

impl Counters {
    pub(crate) fn new(shared: Rc<Shared>, writer: Writer) -> Counters {
        let telemetry = shared.env().rt.telemetry();
        let counter = |name, help| telemetry.counter(name, help, &[]);
        let inner = Inner {
            queues: Queues::default(),
            identity: RefCell::default(),
            emptied: Emptied::default(),
            stage: telemetry.stage("CounterMutationStage"),
            led: counter("coordinator_counters_led_total", "counter updates that this node led"),
            sent: counter(
                "coordinator_counters_sent_total",
                "counter updates sent to a leader on another node",
            ),
            resent: counter(
                "coordinator_counters_resent_total",
                "counter updates sent to one more leader, because the one before did nothing",
            ),
            refused: counter(
                "coordinator_counters_refused_total",
                "counter updates refused, because too many waited for their partition",
            ),
            shared,
            writer,
        };
        Counters { inner: Rc::new(inner) }
    }

    fn env(&self) -> &Env {
        self.inner.shared.env()
    }

    fn local(&self) -> &Local {
        &self.inner.shared.local
    }

    /// Sets the counter id under which this node writes its cells; the default is its host id. Two
    /// processes must not share an id unless the later one has everything that the earlier one
    /// wrote.
    pub fn set_counter_id(&self, id: CounterId) {
        self.inner.identity.borrow_mut().id = Some(id);
        self.env().store.counters().count_as(id);
    }

    /// The id in use, when something was written with it, by this run or an earlier one.
    pub fn counter_id(&self, origin: IdOrigin) -> Option<CounterId> {
        let writer = self.inner.identity.borrow();
        writer.id.filter(|_| origin == IdOrigin::EarlierRun || writer.has_led)
    }

    /// Starts tracking the places of members. All truncations known so far are carried out by then.
    pub(crate) fn counts_since(&self, snapshot: &ClusterSnapshot) {
        self.inner.identity.borrow_mut().since = Some(snapshot.places.last());
        self.inner.emptied.found(snapshot);
    }

    /// Empties a table on this shard, as of this moment by this node's clock ([`Store::truncate`]).
    ///
    /// # Errors
    /// Those of [`Store::truncate`].
    pub async fn truncate(&self, table: TableId, at: WallMicros) -> Result<(), StoreError> {
        let snapshot = self.inner.shared.cluster().map(|cluster| (cluster.parts.snapshot)());
        // Nothing waits between this and the moment when the table is empty.
        let emptied = &self.inner.emptied;
        emptied.note(table, at, snapshot.as_deref());
        let result = self.env().store.lifecycle().truncate(table, TimestampMicros(at.0)).await;
        if result.is_err() {
            // The remaining data may predate the truncation.
            emptied.tables.borrow_mut().remove(&table);
        }
        result
    }

    /// Returns the id to write under. It is a new one after every change of the places in the ring
    /// and of the table's replication. This node may have had the range, given it away, and got it
    /// back from a replica that lacks some of what this node had written.
    fn writer_of(&self, snapshot: &ClusterSnapshot, table: TableId) -> CounterId {
        let writer = &mut *self.inner.identity.borrow_mut();
        writer.has_led = true;
        let host = snapshot.local.host_id;
        let id = *writer.id.get_or_insert_with(|| CounterId(*host.0.as_bytes()));
        self.env().store.counters().count_as(id);
        let Some(cluster) = self.inner.shared.cluster() else { return id };
        let Some(topology) = cluster.topology(snapshot, table) else { return id };
        // Replicas of any range: one id is used for all of them.
        let (since, replication) = (snapshot.places.last(), topology.placements.replication());
        let is_same = writer.since.is_none_or(|before| before == since)
            && writer.replications.get(&table).is_none_or(|before| before == replication);
        writer.since = Some(since);
        writer.replications.insert(table, replication.clone());
        if is_same {
            return id;
        }
        let random = [self.env().rt.random_u64(), self.env().rt.random_u64()];
        let id = u128::from(random[0]) << 64 | u128::from(random[1]);
        let id = CounterId(id.to_be_bytes());
        writer.id = Some(id);
        self.env().store.counters().count_as(id);
        id
    }

    /// Adds to the counters of one partition, through the replica that leads it. What this node does for
    /// it is noted in `trace`, and the other nodes write down what they do.
    ///
    /// # Errors
    /// `Request`: `Unavailable` when nothing was done; a timeout or failure when the increments may
    /// or may not have been added: they must not be repeated then. `Overloaded` and `Store`: nothing
    /// was done.
    pub async fn count(
        &self,
        write: CounterWrite,
        trace: Option<Rc<RequestTrace>>,
    ) -> Result<(), ReplicatedError> {
        let Some(table) = MutationRef::open(&write.mutation.bytes).map(|m| m.table) else {
            stdx::invariant::broken(format_args!("mutation made by this node does not open"))
        };
        match self.inner.shared.cluster() {
            Some(cluster) if self.inner.shared.is_replicated(&write.snapshot, table) => {
                Box::pin(self.count_in_cluster(cluster, table, write, trace)).await
            }
            _ => self.lead(write, false, trace).await,
        }
    }

    async fn count_in_cluster(
        &self,
        cluster: &Cluster,
        table: TableId,
        mut write: CounterWrite,
        trace: Option<Rc<RequestTrace>>,
    ) -> Result<(), ReplicatedError> {
        let mut tried: SmallVec<[HostId; 4]> = SmallVec::new();
        loop {
            let (leader, is_self) = leader_of(cluster, &write, table, &tried)?;
            if is_self {
                return self.lead(write, true, trace).await;
            }
            if !tried.is_empty() {
                self.inner.resent.inc();
            }
            let error = match self.send_to_leader(cluster, &write, leader, trace.as_deref()).await {
                Ok(outcome) => return outcome.result(write.consistency).map_err(Into::into),
                Err(error) => error,
            };
            if !did_nothing(&error) {
                return Err(unknown(&write, cluster, table, leader, &error).into());
            }
            tracing::debug!(%leader, %error, "retrying a counter update at another leader");
            tried.push(leader);
            if let MessagingError::Remote(
                ErrorReply::EpochTooOld { needed } | ErrorReply::EpochTooNew { known: needed },
            ) = error
                && let Some(wait) = cluster.parts.epoch_wait.clone()
            {
                wait(needed, write.deadline).await;
                let snapshot = (cluster.parts.snapshot)();
                if snapshot.epoch > write.snapshot.epoch {
                    write.snapshot = snapshot;
                    tried.clear();
                }
            }
        }
    }

    async fn send_to_leader(
        &self,
        cluster: &Cluster,
        write: &CounterWrite,
        leader: HostId,
        trace: Option<&RequestTrace>,
    ) -> Result<Outcome, MessagingError> {
        self.inner.sent.inc();
        let outgoing = Outgoing {
            host: leader,
            shard: write.mutation.owner(cluster.shard_map_of(leader)),
            verb: Verb::CounterMutation,
            deadline: write.deadline,
            trace: trace.map(RequestTrace::id),
        };
        if let Some(trace) = trace {
            trace.note(|| format!("Enqueuing counter update to {}", cluster.shown(leader)));
        }
        let message =
            wire::Message { consistency: write.consistency, mutation: &write.mutation.bytes };
        let mut bytes = 0;
        let asked = cluster.parts.messaging.request(&outgoing, |out| {
            let before = out.len();
            message.encode(out);
            bytes = out.len() - before;
        });
        if let Some(trace) = trace {
            trace.note_sent(&cluster.view, leader, outgoing.verb, bytes);
        }
        let response = asked.await;
        if let Some(trace) = trace {
            trace.note_response(&cluster.view, leader, outgoing.verb, &response);
        }
        let response = response?;
        Outcome::decode(&response.payload).map_err(|_| MessagingError::Malformed)
    }

    /// Leads increments on the shard of this node that owns them.
    async fn lead(
        &self,
        write: CounterWrite,
        is_replicated: bool,
        trace: Option<Rc<RequestTrace>>,
    ) -> Result<(), ReplicatedError> {
        let owner = write.mutation.owner(self.env().shard_map());
        let lead = Lead { write, is_replicated, trace: trace.as_ref().map(|trace| trace.id()) };
        if owner == self.env().rt.shard() {
            return self.lead_here(lead, trace).await;
        }
        if let Some(trace) = &trace {
            trace.note(|| format!("Sending mutation to shard {}", owner.0));
        }
        let request = ShardRequest::Count(Box::new(lead));
        match self.local().call(owner, request).await {
            Ok(ShardReply::Counted(result, said)) => {
                if let Some(trace) = &trace {
                    said.into_iter().for_each(|activity| trace.note(|| activity));
                }
                result
            }
            Ok(other) => stdx::invariant::broken(format_args!("count answered by {other:?}")),
            Err(error) => Err(mesh_error(error).into()),
        }
    }

    /// Leads increments that a peer sent.
    pub(crate) async fn lead_for_peer(
        &self,
        write: CounterWrite,
        trace: Option<Rc<RequestTrace>>,
    ) -> Result<Outcome, ReplicatedError> {
        match self.lead(write, true, trace).await {
            Ok(()) => Ok(Outcome::Done),
            Err(ReplicatedError::Request(error)) => Ok(Outcome::of(&error)),
            Err(error) => Err(error),
        }
    }

    /// Leads increments that another shard was asked for.
    pub(crate) async fn lead_for_shard(&self, lead: Lead) -> ShardReply {
        let said: Rc<RefCell<Vec<String>>> = Rc::default();
        let trace = lead.trace.map(|id| {
            let said = said.clone();
            let note = move |activity| {
                let mut said = said.borrow_mut();
                if said.len() < EVENTS_MAX {
                    said.push(activity);
                }
            };
            Rc::new(RequestTrace::new(id, note))
        });
        let result = self.lead_here(lead, trace).await;
        ShardReply::Counted(result, said.take())
    }

    async fn lead_here(
        &self,
        lead: Lead,
        trace: Option<Rc<RequestTrace>>,
    ) -> Result<(), ReplicatedError> {
        let Lead { mut write, is_replicated, .. } = lead;
        let counting = &*self.inner;
        let Some(increments) = MutationRef::open(&write.mutation.bytes) else {
            stdx::invariant::broken(format_args!("mutation made by this node does not open"))
        };
        let facts = self.env().facts(&write.snapshot, increments.table);
        let Some(facts) = facts else {
            return Err(ReplicatedError::unknown_table(increments.table));
        };
        let table = trace.as_ref().and_then(|_| {
            let table = write.snapshot.schema.table_by_id(increments.table)?;
            Some(table.name.to_string())
        });
        if is_replicated {
            // Before its turn, which others wait for.
            let (table, token) = (increments.table, write.mutation.token);
            self.inner.writer.room_for(&write.snapshot, table, token, write.deadline).await;
        }
        let shard = self.env().rt.shard();
        let traced = trace.as_deref().zip(table.as_deref());
        let noting = traced.map(|(trace, table)| Noting { trace, table, shard });
        if let Some(noting) = &noting {
            noting.trace.note(|| "Acquiring counter locks".to_owned());
        }
        let turn = self.turn_of(&increments, write.deadline).await?;
        let _running = counting.stage.run();
        let comparator = facts.shape.clustering();
        let (rt, store) = (&self.env().rt, &self.env().store);
        let terms = CountTerms { comparator, noting: noting.as_ref(), deadline: write.deadline };
        let Counts { counts, current, emptied_at } =
            self.read_counts(&mut write.snapshot, &increments, terms).await?;
        // Nothing waits from here until the result is applied.
        let admitted = self.env().replica.admit(Origin::Client, None)?;
        let id = self.writer_of(&write.snapshot, increments.table);
        let leading = Leading { id, now_micros: rt.wall().0, emptied_at };
        let result = led::result(&increments, &current, comparator, leading);
        let result = write.mutation.with_bytes(result);
        counting.led.inc();
        let counts = counts.filter(|counts| store.counters().are_counts_current(counts));
        let applied = counts.as_ref().map(|_| result.bytes.clone());
        let keep = || {
            let applied = counts.as_ref().zip(applied.as_deref());
            led::keep(store, applied, &current, comparator, leading);
        };
        if !is_replicated {
            if let Some(Noting { trace, table, .. }) = &noting {
                trace.note(|| "Appending to commitlog".to_owned());
                trace.note(|| format!("Adding to {table} memtable"));
            }
            self.env().replica.apply(&result, admitted)?;
            keep();
            drop(turn);
            return Ok(store.commit().await?);
        }
        let order = ReplicatedWrite {
            snapshot: write.snapshot,
            consistency: write.consistency,
            write_type: WriteType::Counter,
            mutations: vec![result],
            logged: false,
            batch_id: Uuid::nil(),
            deadline: write.deadline,
        };
        let answer = self.inner.writer.begin_write_of(order, Purpose::Counted, trace.clone())?;
        keep();
        drop(turn);
        Ok(answer.await?)
    }

    /// Waits for the turn of a partition (INV-counting-1).
    async fn turn_of(
        &self,
        increments: &MutationRef<'_>,
        deadline: Instant,
    ) -> Result<Turn, ReplicatedError> {
        let partition = (increments.table, increments.key.to_vec());
        let turn = self.inner.queues.enter(Rc::downgrade(&self.inner), partition);
        let turn = turn.map_err(|full| {
            self.inner.refused.inc();
            ReplicatedError::Overloaded(full.to_string())
        })?;
        let waiting = self.inner.stage.wait();
        let turn = self.env().rt.timeout(deadline, turn).await.map_err(|_| late())?;
        drop(waiting);
        Ok(turn.map_err(|_| StoreError::Stopping)?)
    }

    /// Reads the counts that increments add to, and waits for room. Repeats if the table was
    /// truncated meanwhile (INV-counting-4).
    async fn read_counts(
        &self,
        snapshot: &mut Arc<ClusterSnapshot>,
        increments: &MutationRef<'_>,
        terms: CountTerms<'_>,
    ) -> Result<Counts, ReplicatedError> {
        let CountTerms { comparator, noting, deadline } = terms;
        let (rt, store) = (&self.env().rt, &self.env().store);
        loop {
            let emptied_at = self.emptied_at(snapshot, increments.table);
            let emptied = self.inner.emptied.times.get();
            let counts = store.counters().counts_of(increments.table, increments.key);
            let known = led::Known { counts: counts.as_ref(), noting };
            let current = led::read(store, known, increments, comparator, rt.wall());
            let current = rt.timeout(deadline, current).await.map_err(|_| late())??;
            if let Err(StoreError::Overloaded { .. }) = store.writer().admit_write() {
                let room = store.writer().wait_for_room();
                rt.timeout(deadline, room).await.map_err(|_| late())??;
            }
            // A count that was read before a TRUNCATE must not be written after it. Either this
            // shard or the metadata may learn of the truncation first, so both are checked.
            if self.inner.emptied.times.get() == emptied
                && self.emptied_at(snapshot, increments.table) == emptied_at
            {
                return Ok(Counts { counts, current, emptied_at });
            }
        }
    }

    /// Returns the time of the last truncation if this shard has not carried it out yet. The write
    /// uses the metadata that this time is from, so that replicas that know of a later TRUNCATE
    /// refuse it.
    fn emptied_at(
        &self,
        snapshot: &mut Arc<ClusterSnapshot>,
        table: TableId,
    ) -> Option<WallMicros> {
        // A single node truncates its shards first and updates the metadata afterwards.
        let cluster = self.inner.shared.cluster()?;
        let known = (cluster.parts.snapshot)();
        if known.epoch > snapshot.epoch {
            *snapshot = known;
        }
        self.inner.emptied.due(snapshot, table)
    }

    /// Returns true if this node may lead: it is one of the replicas that are read from.
    pub(crate) fn may_lead(
        &self,
        cluster: &Cluster,
        snapshot: &ClusterSnapshot,
        table: TableId,
        token: Token,
    ) -> bool {
        let own = snapshot.local.host_id;
        cluster.topology(snapshot, table).is_some_and(|topology| {
            let replicas = topology.placements.replicas(token);
            replicas.position(own).is_some_and(|at| at < replicas.natural_len())
        })
    }
}

fn late() -> ReplicatedError {
    ReplicatedError::Overloaded("a counter update waited too long".to_owned())
}

/// Context of reading the counts of increments.
#[derive(Clone, Copy)]
struct CountTerms<'a> {
    comparator: &'a ClusteringComparator,
    noting: Option<&'a Noting<'a>>,
    deadline: Instant,
}

/// Result of a leader's read.
struct Counts {
    /// Handle to the counter cache, if enabled.
    counts: Option<CountsOf>,
    current: Current,
    /// When the table was emptied last, if this shard has not done so yet.
    emptied_at: Option<WallMicros>,
}

/// Chooses the leader: this node if it is a replica, else the nearest live replica of this
/// datacenter. A replica of another datacenter is chosen last, unless the level is limited to one
/// datacenter. Source: `ReplicaPlans.findCounterLeaderReplica`.
fn leader_of(
    cluster: &Cluster,
    write: &CounterWrite,
    table: TableId,
    tried: &[HostId],
) -> Result<(HostId, bool), ReplicatedError> {
    let topology = cluster
        .topology(&write.snapshot, table)
        .ok_or_else(|| ReplicatedError::unknown_table(table))?;
    let mut replicas = ReplicaList::new();
    cluster.replicas(&topology, write.mutation.token, &mut replicas);
    cluster.rank(&topology, &mut replicas);
    let may = |r: &&ReplicaInfo| {
        r.alive
            && !r.pending
            && !tried.contains(&r.host)
            && (r.is_local_dc || !write.consistency.is_datacenter_local())
    };
    let nearness = |r: &&ReplicaInfo| (!r.is_self, !r.is_local_dc, r.latency_rank);
    if let Some(leader) = replicas.iter().filter(may).min_by_key(nearness) {
        return Ok((leader.host, leader.is_self));
    }
    let plan = plan_of(&topology, write, &replicas)?;
    plan.check()?;
    let consistency = write.consistency;
    let required = required(&topology, consistency);
    Err(RequestError::Unavailable { consistency, required, alive: 0 }.into())
}

fn plan_of(
    topology: &Topology,
    write: &CounterWrite,
    replicas: &ReplicaList,
) -> Result<WritePlan, ReplicatedError> {
    let need = Need::of(write.consistency, &topology.factors);
    WritePlan::new(write.consistency, WriteType::Counter, need, replicas)
        .map_err(|error| StoreError::Invalid(error.to_string()).into())
}

fn required(topology: &Topology, consistency: Consistency) -> u32 {
    let need = Need::of(consistency, &topology.factors);
    u32::try_from(need.sum()).unwrap_or(u32::MAX)
}

/// Returns true if the leader has certainly done nothing (INV-counting-3).
fn did_nothing(error: &MessagingError) -> bool {
    match error {
        MessagingError::UnknownHost(_)
        | MessagingError::Overloaded(_)
        | MessagingError::Unreachable { .. }
        | MessagingError::Refused { .. }
        | MessagingError::Lost { maybe_delivered: false } => true,
        MessagingError::Remote(reply) => matches!(
            reply,
            ErrorReply::Overloaded
                | ErrorReply::UnknownTable(_)
                | ErrorReply::EpochTooOld { .. }
                | ErrorReply::EpochTooNew { .. }
                | ErrorReply::DiskFull
                | ErrorReply::UnknownVerb(_)
        ),
        MessagingError::TooLarge { .. }
        | MessagingError::Stopping
        | MessagingError::Lost { maybe_delivered: true }
        | MessagingError::Timeout { .. }
        | MessagingError::Malformed => false,
    }
}

/// Builds the client's error for a leader that may have added the increments.
fn unknown(
    write: &CounterWrite,
    cluster: &Cluster,
    table: TableId,
    leader: HostId,
    error: &MessagingError,
) -> RequestError {
    let topology = cluster.topology(&write.snapshot, table);
    let consistency = write.consistency;
    let block_for = topology.map_or(1, |t| required(&t, consistency));
    let (received, write_type) = (0, WriteType::Counter);
    match replica_error(error) {
        // A node that went down meanwhile is as silent as a slow one.
        ReplicaError::Timeout | ReplicaError::NodeDown => {
            RequestError::WriteTimeout { consistency, received, block_for, write_type }
        }
        reason => {
            let failures = std::iter::once((leader, reason)).collect();
            RequestError::WriteFailure { consistency, received, block_for, failures, write_type }
        }
    }
}
