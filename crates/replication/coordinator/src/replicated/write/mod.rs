//! Writes to several nodes: drives `request::WriteRequest` and `request::BatchRequest`.
//!
//! A write is a machine, its mutations and its waiting caller. It has no task: it advances when a peer answers,
//! when this node's own commit is done, or when its timer expires. So it continues (lingers) after the client has
//! its answer or is gone. It ends when all replicas have answered, or at the deadline, when the silent ones have
//! hints.
//!
//! Reading order: this, [`slots`], `backpressure` (when a write may begin), `plans` (targets and log nodes),
//! `drive` (outputs become sends), `applying` (this node as a replica), `forwarding` (mutations passed on inside a
//! datacenter), `timer`.

pub(crate) mod applying;
pub(crate) mod backpressure;
mod drive;
mod fair_queue;
mod forwarding;
mod plans;
mod slots;
mod timer;

use std::cell::{OnceCell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use cluster::{ClusterSnapshot, Consistency};
use internode::MutationFlags;
use messaging::{Client, Completion, Completions};
use replica::{Env, ReplicationSettings};
use request::{BatchRequest, ReplicaInfo, RequestError, Target, WriteRequest, WriteType};
use smallvec::SmallVec;
use stdx::{Instant, ShardId, ShardMap, TableId, TimestampMicros, Token, Uuid, WallMicros};

pub(crate) use slots::Writes;

use crate::local::Local;
use crate::replicated::batch::BatchLog;
use crate::shared::correlation_ids::Sent;
use crate::shared::{Cluster, ReplicatedError, ReplicatedWrite, Shared};
use applying::Committing;
use backpressure::{AllWrites, Backlog, Backlogs, Place, Places};
use forwarding::Forwards;
use replica::ReplicaList;
use replica::RequestTrace;
use replica::{Origin, ReplicaMutation};
use slots::SlotName;

/// Writes of this shard to several nodes, and its part in the writes of others.
#[derive(Clone)]
pub struct Writer {
    inner: Rc<Inner>,
}

struct Inner {
    shared: Rc<Shared>,
    log: BatchLog,
    committing: Committing,
    /// Set once, when the node is part of a cluster.
    attached: OnceCell<Rc<Attached>>,
}

/// Write state of a shard whose node is part of a cluster.
pub(crate) struct Attached {
    pub(crate) cluster: Rc<Cluster>,
    pub(crate) writes: Writes,
    /// Mutations in flight to each replica.
    pub(crate) backlogs: Backlogs,
    forwards: Forwards,
    /// Sends what `writes` and `forwards` send.
    client: Client,
}

impl Attached {
    /// Returns the backlog of a shard of a node.
    fn backlog(&self, place: Place) -> Rc<Backlog> {
        let is_known = |host| self.cluster.parts.messaging.peer(host).is_some();
        self.backlogs.of(place, is_known)
    }
}

/// New writes wait when half of the allowed amount is in flight.
fn backlogs_of(env: &Env, settings: &ReplicationSettings) -> Backlogs {
    let all = AllWrites {
        count: settings.writes_in_flight_max / 2,
        bytes: settings.write_bytes_in_flight_max / 2,
    };
    Backlogs::new(&env.rt.telemetry(), settings.replica_window, all)
}

/// Receives the ends of what writes and forwards sent.
struct Ends(Weak<Inner>);

impl Completions for Ends {
    fn complete(&self, completion: Completion<'_>) {
        let Some(inner) = self.0.upgrade() else { return };
        let writer = Writer { inner };
        match Sent::of(completion.token) {
            Sent::Forward => writer.forward_completed(completion),
            sent => writer.write_completed(sent, completion),
        }
    }
}

/// Parameters of a write.
#[derive(Default)]
pub(crate) struct Begin {
    pub(crate) purpose: Purpose,
    /// Fair-queue source of the write while replicas are busy: a connection, or [`NO_SOURCE`].
    source: u64,
    trace: Option<Rc<RequestTrace>>,
}

/// Approximate memory of a mutation in flight beyond its bytes.
const OVERHEAD_BYTES: usize = 768;

/// Purpose of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A client waits for the level.
    #[default]
    Client,
    /// From a batch log, written then: done when every replica has it, or a hint for it is stored.
    BatchReplay(WallMicros),
    /// A hint, created at this time, for a node that is no replica any more: likewise.
    MovedHint(WallMicros),
    /// An increment that this node, as the leader, has turned into counter cells: applied here
    /// before anything is sent.
    Counted,
}

impl Purpose {
    fn flags(self) -> MutationFlags {
        match self {
            Purpose::Client | Purpose::Counted | Purpose::MovedHint(_) => MutationFlags::NONE,
            Purpose::BatchReplay(_) => MutationFlags::BATCH_REPLAY,
        }
    }

    /// Not answered before nothing more can come.
    fn waits_for_all(self) -> bool {
        !matches!(self, Purpose::Client | Purpose::Counted)
    }
}

/// A write in flight.
pub(crate) struct Write {
    running: RefCell<Running>,
}

#[expect(clippy::large_enum_variant, reason = "nearly all writes are of one mutation")]
enum Machine {
    One(WriteRequest),
    Batch(Box<BatchRequest>),
}

/// The log of a batch.
struct Log {
    id: Uuid,
    written_at: TimestampMicros,
    snapshot: Arc<ClusterSnapshot>,
}

impl Log {
    fn token(&self) -> Token {
        codec::token_of(self.id.as_bytes())
    }

    /// The shard that keeps it on a node with such a map.
    fn owner(&self, map: ShardMap) -> ShardId {
        map.shard_of_lazy(self.token(), || {
            crate::replicated::batch::batch_log::table_id(&self.snapshot.schema)
        })
    }
}

/// A forwarded request: the mutation, the forwarding node, and the nodes it forwards to.
struct PassedOn {
    index: u16,
    by: Target,
    to: SmallVec<[Target; 4]>,
}

struct Running {
    name: SlotName,
    machine: Machine,
    /// Emptied when finished.
    mutations: Vec<ReplicaMutation>,
    bytes: usize,
    consistency: Consistency,
    write_type: WriteType,
    purpose: Purpose,
    deadline: Instant,
    began: Instant,
    trace: Option<Rc<RequestTrace>>,
    log: Option<Log>,
    passed_on: SmallVec<[PassedOn; 1]>,
    /// Requests to peers that have not ended.
    open: usize,
    result: Option<Result<(), RequestError>>,
    is_answered: bool,
    is_finished: bool,
    waker: Option<Waker>,
}

impl Running {
    fn machine_is_finished(&self) -> bool {
        match &self.machine {
            Machine::One(request) => request.is_finished(),
            Machine::Batch(request) => request.is_finished(),
        }
    }

    /// See [`WriteRequest::is_everywhere`].
    fn is_everywhere(&self) -> bool {
        match &self.machine {
            Machine::One(request) => request.is_everywhere(),
            Machine::Batch(request) => request.is_everywhere(),
        }
    }

    fn request(&self, index: u16) -> Option<&WriteRequest> {
        match &self.machine {
            Machine::One(request) => Some(request),
            Machine::Batch(request) => request.mutation(index),
        }
    }

    fn mutation(&self, index: u16) -> Option<&ReplicaMutation> {
        self.mutations.get(usize::from(index))
    }
}

impl Write {
    pub(crate) fn is_answered(&self) -> bool {
        self.running.borrow().is_answered
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.running.borrow().is_finished
    }
}

/// Source of writes without a connection.
const NO_SOURCE: u64 = 0;

fn no_cluster() -> ReplicatedError {
    store::StoreError::Invalid("this node is not part of a cluster".to_owned()).into()
}

/// The answer of a write. If it is dropped early, the write continues without it.
struct Answer {
    writer: Writer,
    write: Rc<Write>,
}

impl Future for Answer {
    type Output = Result<(), RequestError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut running = self.write.running.borrow_mut();
        if (running.is_finished || !running.purpose.waits_for_all())
            && let Some(result) = running.result.take()
        {
            return Poll::Ready(result);
        }
        match &mut running.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            empty => *empty = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.write.is_answered()
            && let Some(attached) = self.writer.attached()
        {
            attached.cluster.counters.writes_abandoned.inc();
        }
    }
}

impl Writer {
    pub(crate) fn new(shared: Rc<Shared>, log: BatchLog) -> Writer {
        let (committing, attached) = (Committing::default(), OnceCell::new());
        Writer { inner: Rc::new(Inner { shared, log, committing, attached }) }
    }

    /// Attaches the cluster, once. Writes to several nodes are possible afterwards.
    pub(crate) fn attach(&self, cluster: Rc<Cluster>) {
        let settings = &cluster.parts.settings;
        let ends = Rc::new(Ends(Rc::downgrade(&self.inner)));
        let attached = Attached {
            writes: Writes::new(settings),
            backlogs: backlogs_of(self.env(), settings),
            forwards: Forwards::default(),
            client: cluster.parts.messaging.client(ends),
            cluster,
        };
        if self.inner.attached.set(Rc::new(attached)).is_ok() {
            self.start_write_timer();
        }
    }

    /// `None` for a node that is alone.
    #[inline]
    pub(crate) fn attached(&self) -> Option<&Rc<Attached>> {
        self.inner.attached.get()
    }

    /// Returns true if writes of this node and of peers are accepted.
    pub(crate) fn is_serving(&self) -> bool {
        self.attached().is_some_and(|attached| !attached.writes.stopping.get())
    }

    fn env(&self) -> &Env {
        self.inner.shared.env()
    }

    fn local(&self) -> &Local {
        &self.inner.shared.local
    }

    /// Writes to the replicas on several nodes; several mutations are one batch. A write that was
    /// started continues after the future is dropped.
    ///
    /// # Errors
    /// `Request`: as the level's replicas answered. `Overloaded`: too many writes are in flight,
    /// nothing was sent. `Store`: unknown tables, or this node is not part of a cluster; nothing
    /// was sent.
    pub async fn write_replicated(&self, order: ReplicatedWrite) -> Result<(), ReplicatedError> {
        self.write_for(order, Purpose::Client).await
    }

    /// Like [`Writer::write_replicated`], for a request that may be traced: this node's steps are
    /// recorded, and the other nodes record theirs. While replicas are busy, writes of different
    /// sources (connections) are started in turn.
    ///
    /// # Errors
    /// Those of [`Writer::write_replicated`].
    pub async fn write_traced(
        &self,
        order: ReplicatedWrite,
        source: u64,
        trace: Option<Rc<RequestTrace>>,
    ) -> Result<(), ReplicatedError> {
        let begin = Begin { purpose: Purpose::Client, source, trace };
        let write = self.begin_in_turn(order, begin).await?;
        Ok(Answer { writer: self.clone(), write }.await?)
    }

    /// Writes a mutation that a former replica missed. As [`Writer::write_replicated`], but
    /// completes only when every replica has it, or a hint for it that is as old as the write.
    ///
    /// # Errors
    /// Those of [`Writer::write_replicated`]; `WriteTimeout` also when a replica has neither.
    pub async fn write_missed(
        &self,
        order: ReplicatedWrite,
        written_at: WallMicros,
    ) -> Result<(), ReplicatedError> {
        self.write_for(order, Purpose::MovedHint(written_at)).await
    }

    /// Like [`Writer::write_replicated`], for another purpose.
    pub(crate) async fn write_for(
        &self,
        order: ReplicatedWrite,
        purpose: Purpose,
    ) -> Result<(), ReplicatedError> {
        let begin = Begin { purpose, ..Begin::default() };
        let write = self.begin_in_turn(order, begin).await?;
        Ok(Answer { writer: self.clone(), write }.await?)
    }

    /// Like [`Writer::write_for`], begun when this returns, without waiting for room at the
    /// replicas.
    ///
    /// # Errors
    /// Those of [`Writer::write_replicated`] where nothing was sent; with [`Purpose::Counted`]
    /// nothing was applied then either.
    pub(crate) fn begin_write_of(
        &self,
        order: ReplicatedWrite,
        purpose: Purpose,
        trace: Option<Rc<RequestTrace>>,
    ) -> Result<impl Future<Output = Result<(), RequestError>> + use<>, ReplicatedError> {
        let machine = self.machine_of(&order)?;
        let write = self.begin_write(order, machine, purpose, trace)?;
        Ok(Answer { writer: self.clone(), write })
    }

    /// Starts a write when its replicas have room.
    async fn begin_in_turn(
        &self,
        order: ReplicatedWrite,
        begin: Begin,
    ) -> Result<Rc<Write>, ReplicatedError> {
        let Begin { purpose, source, trace } = begin;
        let machine = self.machine_of(&order)?;
        let Some(attached) = self.attached() else { return Err(no_cluster()) };
        let places = self.places_of(attached, &machine, &order);
        if attached.backlogs.has_room(&places, self.env().rt.now()) {
            return self.begin_write(order, machine, purpose, trace);
        }
        drop(machine);
        if let Some(trace) = &trace {
            trace.note(|| "Waiting for replicas that have much to do".to_owned());
        }
        let turn = attached
            .backlogs
            .room_at(
                &self.env().rt,
                &places,
                backpressure::Waiter { source, deadline: order.deadline },
            )
            .await;
        // Rebuilt: liveness may have changed during the wait.
        let machine = self.machine_of(&order)?;
        let write = self.begin_write(order, machine, purpose, trace);
        drop(turn);
        write
    }

    /// Waits until the replicas of a token have room, for a write that is begun a little later by
    /// [`Writer::begin_write_of`].
    pub(crate) async fn room_for(
        &self,
        snapshot: &ClusterSnapshot,
        table: TableId,
        token: Token,
        deadline: Instant,
    ) {
        let Some(attached) = self.attached() else { return };
        let Some(topology) = attached.cluster.topology(snapshot, table) else { return };
        let mut replicas = ReplicaList::new();
        attached.cluster.replicas(&topology, token, &mut replicas);
        let owner = |map: ShardMap| map.shard_of(table, token);
        let places: Places = self.places_of_replicas(attached, replicas.iter(), owner).collect();
        if !attached.backlogs.has_room(&places, self.env().rt.now()) {
            let terms = backpressure::Waiter { source: NO_SOURCE, deadline };
            drop(attached.backlogs.room_at(&self.env().rt, &places, terms).await);
        }
    }

    fn machine_of(&self, order: &ReplicatedWrite) -> Result<Machine, ReplicatedError> {
        let Some(attached) = self.attached() else { return Err(no_cluster()) };
        self.machine_for(attached, order)
    }

    /// The shards that get something of a write, but for this one.
    fn places_of(&self, attached: &Attached, machine: &Machine, order: &ReplicatedWrite) -> Places {
        let mut places = Places::new();
        for (index, mutation) in (0_u16..).zip(&order.mutations) {
            let plan = match machine {
                Machine::One(request) => Some(request.plan()),
                Machine::Batch(request) => request.mutation(index).map(WriteRequest::plan),
            };
            let Some(plan) = plan else { continue };
            let replicas = plan.replicas.iter().map(|(_, replica)| replica);
            let owner = |map| mutation.owner(map);
            for place in self.places_of_replicas(attached, replicas, owner) {
                if !places.contains(&place) {
                    places.push(place);
                }
            }
        }
        places
    }

    fn places_of_replicas<'r>(
        &self,
        attached: &Attached,
        replicas: impl Iterator<Item = &'r ReplicaInfo>,
        owner: impl Fn(ShardMap) -> ShardId,
    ) -> impl Iterator<Item = Place> {
        let own = owner(self.env().shard_map());
        let is_own_shard = own == self.env().rt.shard();
        let sent_to = replicas.filter(move |r| r.alive && !(r.is_self && is_own_shard));
        sent_to.map(move |r| match r.is_self {
            true => (r.host, own),
            false => (r.host, owner(attached.cluster.shard_map_of(r.host))),
        })
    }

    fn begin_write(
        &self,
        order: ReplicatedWrite,
        machine: Machine,
        purpose: Purpose,
        trace: Option<Rc<RequestTrace>>,
    ) -> Result<Rc<Write>, ReplicatedError> {
        let Some(attached) = self.attached() else { return Err(no_cluster()) };
        for mutation in &order.mutations {
            // Replicas would refuse it, each for itself.
            if let Some(mutation) = data::MutationRef::open(&mutation.bytes) {
                self.env().store.check(&mutation)?;
            }
        }
        let bytes = order.mutations.iter().map(|m| m.bytes.len() + OVERHEAD_BYTES).sum();
        self.make_room(attached, bytes)?;
        if purpose == Purpose::Counted {
            if let Machine::One(request) = &machine {
                request.plan().check()?;
            }
            let admitted = self.env().replica.admit(Origin::Counter, None)?;
            for mutation in &order.mutations {
                self.env().replica.apply(mutation, admitted)?;
            }
        }
        let now = self.env().rt.now();
        let log = order.logged.then(|| Log {
            id: order.batch_id,
            written_at: TimestampMicros(self.env().rt.wall().0),
            snapshot: order.snapshot.clone(),
        });
        let running = Running {
            name: SlotName { slot: u32::MAX, generation: 0 },
            machine,
            mutations: order.mutations,
            bytes,
            consistency: order.consistency,
            write_type: order.write_type,
            purpose,
            deadline: order.deadline,
            began: now,
            log,
            trace,
            passed_on: SmallVec::new(),
            open: 0,
            result: None,
            is_answered: false,
            is_finished: false,
            waker: None,
        };
        let write = Rc::new(Write { running: RefCell::new(running) });
        let name = attached.writes.enter(&write, bytes);
        attached.backlogs.all().sent(now, bytes);
        write.running.borrow_mut().name = name;
        attached.cluster.counters.writes.inc();
        attached.cluster.counters.writes_in_flight.add(1);
        attached
            .cluster
            .counters
            .write_bytes_in_flight
            .add(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.drive(attached, &write, now, drive::Event::Start);
        Ok(write)
    }

    /// Ends old answered writes when there is no room for a new one.
    fn make_room(&self, attached: &Attached, bytes: usize) -> Result<(), ReplicatedError> {
        let writes = &attached.writes;
        if writes.stopping.get() {
            return Err(store::StoreError::Stopping.into());
        }
        while !writes.has_room(bytes) {
            let Some(oldest) = writes.oldest_answered() else {
                attached.cluster.counters.writes_shed.inc();
                return Err(ReplicatedError::Overloaded(format!(
                    "too many writes under way: {} with {} bytes",
                    writes.in_flight.get(),
                    writes.bytes.get(),
                )));
            };
            self.cut_short(attached, &oldest);
        }
        Ok(())
    }

    /// Ends a write as its deadline would: silent replicas get hints.
    fn cut_short(&self, attached: &Attached, write: &Rc<Write>) {
        let deadline = write.running.borrow().deadline;
        attached.cluster.counters.writes_cut_short.inc();
        self.drive(attached, write, deadline.max(self.env().rt.now()), drive::Event::Tick);
    }
}
