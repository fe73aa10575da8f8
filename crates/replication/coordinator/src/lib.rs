//! Requests against the replicas of this node: which shard owns a key, one hop when it is another.
//!
//! Owns: the shard-to-shard requests ([`ShardRequest`]), pages of packed rows that cross shards
//! ([`page`]), range scans merged in ring order, the batch log ([`batches`]); in a cluster, what the
//! `request` machines decide: writes ([`Coordinator::write_replicated`]) and reads ([`reading`]) of
//! several nodes, lightweight transactions ([`serial`]), and the other side of all of them ([`Coordinator::serve_peer`]). Never: CQL, frames, schema
//! changes, membership, liveness.
//!
//! Invariants: INV-coordinator-1: a mutation is applied on the shard that owns its token, nowhere
//! else. INV-coordinator-2: a scan shows partitions in (token, key) order whatever the number of
//! shards. INV-batch-1 and -2: see [`batches`]. INV-coordinator-3: what belongs to one node never
//! goes through the parts for several.

mod applying;
mod batch_handover;
mod batch_log;
mod batch_wire;
pub mod batches;
mod cluster_parts;
mod cluster_state;
mod counters;
pub mod counting;
mod failing;
mod folded_page;
mod forwarding;
pub mod fuzz;
mod latency;
pub mod page;
mod pages;
mod peer_traces;
mod read;
mod read_trace;
pub mod reading;
pub mod replica;
mod request_trace;
mod scan_page;
mod scan_serve;
mod scattered;
pub mod serial;
mod serving;
#[cfg(test)]
mod tests;
mod tokens;
mod topology;
mod writing;

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use data::command::{KeyRange, Partitions, ReadCommand};
use data::{FoldState, MutationRef, RowFilter};
use replica::Replica;
use rt::{Mesh, MeshError, Reply, Rt};
use stdx::{ShardId, ShardMap, TableId, Token};
use store::{ReadStats, RowSink, Store, StoreError};

pub use batches::{BatchReplay, LoggedBatch};
pub use cluster_parts::{
    ClusterParts, EpochWait, HintSink, NoHints, ReplicatedError, ReplicatedRead, ReplicatedWrite,
    ReplicationSettings, SelectLimits,
};
pub use counting::{CounterWrite, Lead};
pub use page::PackedPage;
pub use peer_traces::{TraceSink, TracedEvent};
pub use read::{FoldError, FoldOrder, FoldSink, Folded, ShardFilter, ShardWork};
pub use read_trace::ReadTrace;
pub use replica::{Origin, ReplicaMutation};
pub use request_trace::RequestTrace;
pub use scan_serve::ScanPlanner;
pub use serial::{
    CasError, CasOperation, CasOrder, CasOutcome, CasRefused, Finished, ForwardRefused,
    ForwardTerms, ForwardedHandler, ForwardedStatement, HandoverError, NotForwarded, SerialRoute,
};

/// What one shard asks another.
#[derive(Debug)]
pub enum ShardRequest {
    /// Apply one mutation and make it as durable as configured.
    Apply(ReplicaMutation, Origin),
    /// Apply several mutations and make them as durable as configured.
    ApplyAll(Vec<ReplicaMutation>, Origin),
    /// Read one page.
    Read {
        /// What to read; its partitions are restricted by the owner to its own.
        command: Box<ReadCommand>,
        /// Of a range: ranges behind it that are read too, ascending.
        further: Vec<KeyRange>,
        /// Where the page stops.
        limit: PageLimit,
        /// What is done with it there; `None`: all of it is wanted as it is.
        work: Option<ShardWork>,
        /// What a fold had left when the page before ended.
        state: Option<FoldState>,
    },
    /// Read as a replica: with tombstones, for a coordinator that merges.
    Replica(Box<reading::ReplicaQuery>),
    /// Lead increments of counters.
    Count(Box<Lead>),
    /// Ask the acceptor of a partition.
    Paxos(Box<serial::Ask>),
    /// Wait for a turn to propose.
    PaxosTurn(Box<serial::TurnWish>),
    /// A turn, by its number, is over; what it left behind.
    PaxosTurnEnd(Box<serial::Partition>, u64, serial::Left),
    /// Shows promises in their rows, and promises this to every partition.
    PaxosPromises(paxos::Ballot),
}

/// Answer to a [`ShardRequest`].
#[derive(Debug)]
pub enum ShardReply {
    /// To `Apply` and `ApplyAll`.
    Applied(Result<(), StoreError>),
    /// To `Read`.
    Page(Result<PackedPage, StoreError>),
    /// To `Replica`.
    Replica(Result<store::ReplicaRead, StoreError>),
    /// To `Count`.
    /// With what a trace of it says.
    Counted(Result<(), ReplicatedError>, Vec<String>),
    /// To `Paxos`.
    Paxos(Result<serial::Answered, StoreError>),
    /// To `PaxosTurn`: the turn's number.
    PaxosTurn(Result<u64, serial::NoTurn>),
    /// To `PaxosTurnEnd`.
    PaxosTurnEnded,
    /// To `PaxosPromises`: what every partition has been promised.
    PaxosPromises(Result<paxos::Ballot, StoreError>),
}

/// Tombstones behind which the pages of replicas and of other shards end, unless a client's page ends before: some
/// milliseconds of work.
pub const TOMBSTONES_OF_A_PAGE: u32 = 10_000;

/// Bounds of one page that crosses shards.
#[derive(Clone, Copy, Debug)]
pub struct PageLimit {
    /// At most this many rows.
    pub rows: usize,
    /// Stop after the row that crosses this many bytes.
    pub bytes: usize,
    /// Stop after so many bytes of rows that a filter leaves out: some milliseconds of work, so that whoever waits
    /// can give up, and a shard does not read on for somebody who has enough.
    pub left_out: usize,
    /// Stop behind so many tombstones, at least 1.
    pub tombstones: u32,
}

impl Default for PageLimit {
    fn default() -> Self {
        // Tests have few rows.
        let (bytes, left_out) = if cfg!(test) { (400, 300) } else { (1 << 20, 4 << 20) };
        let tombstones = if cfg!(test) { 3 } else { TOMBSTONES_OF_A_PAGE };
        PageLimit { rows: usize::MAX, bytes, left_out, tombstones }
    }
}

/// The way between the shards of one node.
pub type ShardMesh = Mesh<ShardRequest, ShardReply>;

/// One shard's access to all data of the node.
#[derive(Clone)]
pub struct Coordinator {
    inner: Rc<Inner>,
}

struct Inner {
    rt: Rt,
    store: Store,
    replica: Replica,
    mesh: Arc<ShardMesh>,
    gate: rt::Gate,
    batches: batches::Batches,
    reading: reading::Reading,
    serial: serial::Serial,
    counting: counting::Counting,
    committing: applying::Committing,
    /// Of pages that this shard asks others for.
    page_limit: Cell<PageLimit>,
    /// Tombstones behind which pages of replicas end.
    replica_tombstones: Cell<u32>,
    /// What may be under way to a replica, in the place of the settings'.
    replica_window: Cell<Option<request::WindowSettings>>,
    /// Where traces of peers' requests go.
    peer_traces: RefCell<Option<TraceSink>>,
    /// Set once, when the node is part of a cluster.
    cluster: OnceCell<Rc<cluster_state::Cluster>>,
}

impl Coordinator {
    /// Puts the parts together and begins to serve the other shards.
    pub fn new(rt: Rt, store: Store, mesh: Arc<ShardMesh>) -> Coordinator {
        let gate = rt.gate("shard-requests");
        let batches = batches::Batches::new(&rt.telemetry());
        let reading = reading::Reading::new(&rt.telemetry());
        let serial = serial::Serial::new(&rt.telemetry());
        let counting = counting::Counting::new(&rt.telemetry());
        let cluster = OnceCell::new();
        let inner = Rc::new(Inner {
            rt: rt.clone(),
            replica: Replica::new(store.clone()),
            store,
            mesh: mesh.clone(),
            gate,
            batches,
            reading,
            serial,
            counting,
            committing: applying::Committing::default(),
            page_limit: Cell::default(),
            replica_tombstones: Cell::new(TOMBSTONES_OF_A_PAGE),
            replica_window: Cell::new(None),
            peer_traces: RefCell::default(),
            cluster,
        });
        let this = Coordinator { inner };
        let server = this.clone();
        mesh.serve(&rt, move |request, reply| server.serve(request, reply));
        let ending = this.clone();
        rt.at_end(move || {
            // They hold what holds this.
            drop(ending.inner.peer_traces.take());
            ending.inner.serial.let_go();
            ending.inner.reading.scans.let_go();
        });
        this
    }

    /// How large the pages are that this shard asks others for from now on. For tests, whose tables are small.
    pub fn limit_pages(&self, limit: PageLimit) {
        self.inner.page_limit.set(limit);
    }

    /// Tombstones behind which pages end that this node makes as a replica.
    fn tombstones_of_pages(&self) -> u32 {
        self.inner.replica_tombstones.get()
    }

    /// Behind how many tombstones pages of replicas end from now on, at least 1. The same on all nodes, or their
    /// pages differ.
    pub fn limit_replica_pages(&self, tombstones: u32) {
        self.inner.replica_tombstones.set(tombstones.max(1));
    }

    /// What may be under way to a replica once this is part of a cluster. For tests, which take the bounds
    /// away.
    pub fn limit_windows(&self, window: request::WindowSettings) {
        self.inner.replica_window.set(Some(window));
    }

    /// This shard's store.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Which shard of this node owns a token of a table.
    #[inline]
    pub fn shard_map(&self) -> ShardMap {
        ShardMap::ByTokenHash { shards: self.inner.rt.shard_count() }
    }

    /// Whether this shard owns the partition of a mutation.
    #[inline]
    pub fn owns<B: AsRef<[u8]>>(&self, mutation: &ReplicaMutation<B>) -> bool {
        self.inner.rt.shard_count() == 1
            || mutation.owner(self.shard_map()) == self.inner.rt.shard()
    }

    /// Whether this shard owns a token of a table.
    #[inline]
    pub(crate) fn is_local(&self, table: TableId, token: Token) -> bool {
        self.inner.rt.shard_count() == 1
            || self.shard_map().shard_of(table, token) == self.inner.rt.shard()
    }

    /// The door to this shard's data for writes.
    #[inline]
    pub fn replica(&self) -> &Replica {
        &self.inner.replica
    }

    /// Why no replica would apply a mutation; `None` when they would.
    pub(crate) fn refusal_of(&self, mutation: &[u8]) -> Option<String> {
        match self.inner.store.check(&MutationRef::open(mutation)?) {
            Err(StoreError::Unwritable { what, .. }) => Some(what),
            _ => None,
        }
    }

    /// Applies a mutation on the shard that owns it and waits until it may be acknowledged.
    ///
    /// # Errors
    /// As [`Store::apply`] and [`Store::commit`]; `Overloaded` when the owner's queue is full.
    pub async fn apply(&self, mutation: ReplicaMutation, origin: Origin) -> Result<(), StoreError> {
        if self.owns(&mutation) {
            self.inner.replica.admit_and_apply(&mutation, origin)?;
            return self.inner.store.commit().await;
        }
        let owner = mutation.owner(self.shard_map());
        let request = ShardRequest::Apply(mutation, origin);
        match self.inner.mesh.call(&self.inner.rt, owner, request).await {
            Ok(ShardReply::Applied(result)) => result,
            Ok(other) => stdx::invariant::broken(format_args!("apply answered by {other:?}")),
            Err(error) => Err(mesh_error(error)),
        }
    }

    /// Applies mutations that all belong to another shard, in one message to it, and waits until they may
    /// be acknowledged. One that cannot be applied does not keep the others out.
    ///
    /// # Errors
    /// As [`Coordinator::apply`], of the first that fails.
    pub async fn apply_at(
        &self,
        owner: ShardId,
        mutations: Vec<ReplicaMutation>,
        origin: Origin,
    ) -> Result<(), StoreError> {
        let request = ShardRequest::ApplyAll(mutations, origin);
        match self.inner.mesh.call(&self.inner.rt, owner, request).await {
            Ok(ShardReply::Applied(result)) => result,
            Ok(other) => stdx::invariant::broken(format_args!("apply answered by {other:?}")),
            Err(error) => Err(mesh_error(error)),
        }
    }

    /// Everything applied so far on this shard may be acknowledged afterwards.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub async fn commit(&self) -> Result<(), StoreError> {
        self.inner.store.commit().await
    }

    fn serve(&self, request: ShardRequest, reply: Reply<ShardReply>) {
        let is_read = matches!(request, ShardRequest::Read { .. } | ShardRequest::Replica(_));
        if is_read && !reply.is_wanted() {
            // Its deadline passed in the ring. Writes are done all the same: nobody need wait for
            // them.
            self.inner.reading.abandoned.inc();
            return;
        }
        let this = self.clone();
        let task = async move {
            let answer = match request {
                ShardRequest::Apply(mutation, origin) => {
                    ShardReply::Applied(this.serve_apply(&mutation, origin).await)
                }
                ShardRequest::ApplyAll(mutations, origin) => {
                    ShardReply::Applied(this.serve_apply_all(&mutations, origin).await)
                }
                ShardRequest::Read { command, further, limit, work, state } => {
                    let read = (&*command, further.as_slice());
                    ShardReply::Page(this.work_page(read, limit, work.as_ref(), state).await)
                }
                ShardRequest::Replica(query) => {
                    ShardReply::Replica(this.read_own_shard(&query).await)
                }
                ShardRequest::Count(lead) => Box::pin(this.lead_for_shard(*lead)).await,
                ShardRequest::Paxos(ask) => ShardReply::Paxos(this.ask_here(*ask).await),
                ShardRequest::PaxosTurn(wish) => {
                    ShardReply::PaxosTurn(this.lease_turn(*wish).await)
                }
                ShardRequest::PaxosTurnEnd(partition, turn, left) => {
                    this.end_turn(&partition, turn, left);
                    ShardReply::PaxosTurnEnded
                }
                ShardRequest::PaxosPromises(raise) => {
                    ShardReply::PaxosPromises(this.show_own_promises(raise).await)
                }
            };
            reply.send(answer);
        };
        // A closed gate means that the node stops: dropping the reply tells the caller.
        let _ = self.inner.gate.spawn(&self.inner.rt, rt::Group::Statement, "shard-request", task);
    }

    async fn serve_apply(
        &self,
        mutation: &ReplicaMutation,
        origin: Origin,
    ) -> Result<(), StoreError> {
        self.inner.replica.admit_and_apply(mutation, origin)?;
        self.inner.store.commit().await
    }

    async fn serve_apply_all(
        &self,
        mutations: &[ReplicaMutation],
        origin: Origin,
    ) -> Result<(), StoreError> {
        let admitted = self.inner.replica.admit(origin, None)?;
        let mut outcome = Ok(());
        for mutation in mutations {
            let applied = self.inner.replica.apply(mutation, admitted);
            outcome = outcome.and(applied);
            self.inner.rt.yield_if_due().await;
        }
        outcome?;
        self.inner.store.commit().await
    }

    /// A page of what this shard has, of the rows or of what is done with them.
    pub(crate) async fn work_page(
        &self,
        (command, further): (&ReadCommand, &[KeyRange]),
        limit: PageLimit,
        work: Option<&ShardWork>,
        state: Option<FoldState>,
    ) -> Result<PackedPage, StoreError> {
        let filter = match work {
            Some(ShardWork::Fold(fold)) => {
                return self.folded_page((command, further), limit, (&**fold, state)).await;
            }
            Some(ShardWork::Filter(filter)) => Some(&**filter as &dyn RowFilter),
            None => None,
        };
        let mut writer = page::PageWriter::new(limit, filter, command.wants_static);
        let is_full = page::PageWriter::is_full;
        let stats = self.read_ranges(command, further, &mut writer, is_full).await?;
        Ok(writer.finish(stats))
    }

    /// Reads a command and, until the sink is full, the same of the ranges behind its own.
    async fn read_ranges<S: RowSink>(
        &self,
        command: &ReadCommand,
        further: &[KeyRange],
        sink: &mut S,
        is_full: impl Fn(&S) -> bool,
    ) -> Result<ReadStats, StoreError> {
        let mut stats = self.inner.store.read(command, sink).await?;
        if further.is_empty() {
            return Ok(stats);
        }
        let mut next = ReadCommand { resume: None, ..command.clone() };
        for range in further {
            if is_full(sink) {
                break;
            }
            next.partitions = Partitions::Range(range.clone());
            read_trace::add(&mut stats, &self.inner.store.read(&next, sink).await?);
            self.inner.rt.yield_if_due().await;
        }
        Ok(stats)
    }

    /// Refuses new requests of other shards and waits for the running ones. What is in the batch
    /// log is replayed once more where that is possible at once.
    pub async fn stop(&self) {
        self.inner.batches.stop();
        self.stop_writes();
        self.stop_sweeps();
        self.inner.gate.close().await;
        self.close_horizon().await;
    }
}

fn mesh_error(error: MeshError) -> StoreError {
    match error {
        MeshError::Full => StoreError::QueueFull,
        MeshError::Closed => StoreError::Stopping,
    }
}
