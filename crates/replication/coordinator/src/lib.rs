//! Requests against the replicas of this node and of others: the façade of a shard.
//!
//! Owns: [`Coordinator`], which puts the rooms together, and the registry of the verbs that peers ask ([`verbs`]).
//! [`local`] is this node alone; [`replicated`] has a room for each kind of request to several nodes; [`shared`] is what
//! these stand on. The data of a shard is reached through the crate `replica`, conditional writes and serial reads are
//! the crate `lwt`. Never: CQL, frames, schema changes, membership, liveness.
//!
//! Invariants: INV-coordinator-3: what belongs to one node never goes through the parts for several. Others: see the
//! rooms.
//!
//! Reading order: [`shard_requests`], [`local`], [`orders`], [`shared`], [`replicated`], this file.

pub mod fuzz;
mod local;
mod orders;
mod replicated;
mod shard_requests;
mod shared;
#[cfg(test)]
mod tests;
mod verbs;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use cluster::ClusterSnapshot;
use data::command::ReadCommand;
use lwt::Lwt;
use messaging::{Request, Responder};
use replica::{Env, VerbRegistry};
use rt::{Group, Reply, Rt};
use stdx::{HostId, ShardId, ShardMap, TableId, Token};
use store::{ReadStats, RowSink, Store, StoreError};

pub use local::{Local, ShardFilter, Wanted};
pub use lwt::{
    CasError, CasOperation, CasOrder, CasOutcome, CasRefused, Finished, ForwardRefused,
    ForwardTerms, ForwardedHandler, ForwardedStatement, HandoverError, NotForwarded, SerialRead,
    SerialRoute, rebuild_horizon,
};
pub use orders::{
    CounterWrite, Lead, ReplicatedError, ReplicatedRead, ReplicatedWrite, SelectLimits,
};
pub use replica::{
    ClusterParts, EpochWait, HintSink, NoHints, Origin, PackedPage, PageLimit, Replica,
    ReplicaMutation, ReplicaReads, ReplicationSettings, RequestTrace, ScanPlanner, ShardWork,
    TOMBSTONES_OF_A_PAGE, TraceSink, TracedEvent,
};
pub use replicated::batch::{BatchLog, BatchReplay, Batches, LoggedBatch};
pub use replicated::counter::{Counters, IdOrigin};
pub use replicated::index::{
    IndexOrder, IndexReadError, IndexReads, IndexedRead, NearestError, NearestOrder, Unselective,
};
pub use replicated::read::{ReadOptions, ReadRepairCounts, Reads};
pub use replicated::scan::{FoldError, FoldOf, FoldOrder, FoldSink, Folded, Scans};
pub use replicated::write::Writer;
pub use shard_requests::{ShardMesh, ShardReply, ShardRequest};
pub use shared::{ReadTrace, Shared};

use replicated::peer_writes::PeerWrites;

/// One shard's access to all data of the node, and of its cluster.
#[derive(Clone)]
pub struct Coordinator {
    local: Local,
    rooms: Rc<Rooms>,
}

/// The rooms of one shard.
pub(crate) struct Rooms {
    shared: Rc<Shared>,
    replica_reads: ReplicaReads<Local>,
    reads: Reads,
    scans: Scans,
    writer: Writer,
    batches: Batches,
    counters: Counters,
    peer_writes: PeerWrites,
    lwt: Lwt<Local>,
    verbs: VerbRegistry<Rooms>,
    /// Overrides the settings' limit of messages in flight to a replica.
    replica_window: Cell<Option<request::WindowSettings>>,
}

impl Rooms {
    fn new(local: &Local) -> Rooms {
        let shared = Rc::new(Shared::new(local.clone()));
        let reads = Reads::new(shared.clone());
        let log = BatchLog::new(local.clone());
        let writer = Writer::new(shared.clone(), log.clone());
        let counters = Counters::new(shared.clone(), writer.clone());
        let mut verbs = VerbRegistry::default();
        verbs.register(verbs::VERBS);
        Rooms {
            replica_reads: ReplicaReads::new(local.clone()),
            scans: Scans::new(shared.clone(), reads.clone()),
            batches: Batches::new(shared.clone(), log.clone(), writer.clone()),
            peer_writes: PeerWrites::new(shared.clone(), writer.clone(), log, counters.clone()),
            lwt: Lwt::new(local.clone()),
            shared,
            reads,
            writer,
            counters,
            verbs,
            replica_window: Cell::new(None),
        }
    }

    /// Releases what may hold these rooms.
    fn let_go(&self) {
        self.shared.env().let_go();
        self.lwt.let_go();
        self.replica_reads.let_go();
    }
}

impl Coordinator {
    /// Puts the parts together and begins to serve the other shards.
    pub fn new(rt: Rt, store: Store, mesh: Arc<ShardMesh>) -> Coordinator {
        let local = Local::new(Env::new(rt.clone(), store), mesh.clone());
        let rooms = Rc::new(Rooms::new(&local));
        #[cfg(test)]
        ::lwt::testing::limit_acceptors(&rooms.lwt, ACCEPTORS_OF_TESTS);
        let this = Coordinator { local, rooms };
        let server = this.rooms.clone();
        mesh.serve(&rt, move |request, reply| serve(&server, request, reply));
        let ending = this.rooms.clone();
        // Breaks reference cycles.
        rt.at_end(move || ending.let_go());
        this
    }

    /// Makes this coordinator part of a cluster. Once, before peers and clients are served; a second
    /// call changes nothing.
    pub fn attach(&self, mut parts: ClusterParts) {
        if let Some(window) = self.rooms.replica_window.get() {
            parts.settings.replica_window = window;
        }
        self.rooms.counters.counts_since(&(parts.snapshot)());
        if let Some(cluster) = self.rooms.shared.attach(parts) {
            self.rooms.writer.attach(cluster);
            self.rooms.lwt.start_cleanup();
        }
    }

    /// Sets the limit of messages in flight to a replica once this is part of a cluster. For tests,
    /// which remove the limits.
    pub fn limit_windows(&self, window: request::WindowSettings) {
        self.rooms.replica_window.set(Some(window));
    }

    /// This shard's store.
    #[inline]
    pub fn store(&self) -> &Store {
        &self.local.env().store
    }

    /// Which shard of this node owns a token of a table.
    #[inline]
    pub fn shard_map(&self) -> ShardMap {
        self.local.env().shard_map()
    }

    /// Returns true if this shard owns the partition of a mutation.
    #[inline]
    pub fn owns<B: AsRef<[u8]>>(&self, mutation: &ReplicaMutation<B>) -> bool {
        self.local.env().owns(mutation)
    }

    /// The door to this shard's data.
    #[inline]
    pub fn replica(&self) -> &Replica {
        &self.local.env().replica
    }

    /// This node alone.
    #[inline]
    pub fn local(&self) -> &Local {
        &self.local
    }

    /// Reads of several nodes.
    #[inline]
    pub fn reads(&self) -> &Reads {
        &self.rooms.reads
    }

    /// Returns the scans and aggregations that run on the shards that own the rows.
    #[inline]
    pub fn scans(&self) -> &Scans {
        &self.rooms.scans
    }

    /// Writes to several nodes.
    #[inline]
    pub fn writer(&self) -> &Writer {
        &self.rooms.writer
    }

    /// Logged batches.
    #[inline]
    pub fn batches(&self) -> &Batches {
        &self.rooms.batches
    }

    /// Updates of counters.
    #[inline]
    pub fn counters(&self) -> &Counters {
        &self.rooms.counters
    }

    /// Conditional writes and serial reads.
    #[inline]
    pub fn lwt(&self) -> &Lwt<Local> {
        &self.rooms.lwt
    }

    /// Reads of this node as a replica.
    #[inline]
    pub fn replica_reads(&self) -> &ReplicaReads<Local> {
        &self.rooms.replica_reads
    }

    /// Returns true if a table's data is replicated on several nodes. Its statements then use
    /// [`Coordinator::writer`] and [`Coordinator::reads`]. Cheap on a single-node cluster.
    #[inline]
    pub fn is_replicated(&self, snapshot: &ClusterSnapshot, table: TableId) -> bool {
        self.rooms.shared.is_replicated(snapshot, table)
    }

    /// The nodes that a write to a token of a table goes to, live and down, pending ones too.
    pub fn write_replicas(
        &self,
        snapshot: &ClusterSnapshot,
        table: TableId,
        token: Token,
    ) -> Vec<HostId> {
        self.rooms.shared.write_replicas(snapshot, table, token)
    }

    /// Returns true if a node is considered alive; this node always is.
    pub fn is_alive(&self, host: HostId) -> bool {
        self.rooms.shared.is_alive(host)
    }

    /// Applies a mutation on the shard that owns it and waits until it may be acknowledged.
    ///
    /// # Errors
    /// Those of [`Local::apply`].
    pub async fn apply(&self, mutation: ReplicaMutation, origin: Origin) -> Result<(), StoreError> {
        self.local.apply(mutation, origin).await
    }

    /// Applies mutations that all belong to another shard.
    ///
    /// # Errors
    /// Those of [`Local::apply_at`].
    pub async fn apply_at(
        &self,
        owner: ShardId,
        mutations: Vec<ReplicaMutation>,
        origin: Origin,
    ) -> Result<(), StoreError> {
        self.local.apply_at(owner, mutations, origin).await
    }

    /// Everything applied so far on this shard may be acknowledged afterwards.
    ///
    /// # Errors
    /// Those of [`Store::commit`].
    pub async fn commit(&self) -> Result<(), StoreError> {
        self.local.commit().await
    }

    /// Reads into `sink`, from this shard or others.
    ///
    /// # Errors
    /// Those of [`Local::read`].
    pub async fn read<S: RowSink>(
        &self,
        command: &ReadCommand,
        rows_wanted: usize,
        sink: &mut S,
    ) -> Result<ReadStats, StoreError> {
        self.local.read(command, rows_wanted, sink).await
    }

    /// Has what this node does for traced requests of peers given to `sink`.
    pub fn on_peer_trace(&self, sink: TraceSink) {
        self.local.env().on_peer_trace(sink);
    }

    /// Serves a request of a peer. Gives the responder back for verbs that are not registered here.
    pub fn serve_peer(&self, request: Request<'_>, responder: Responder) -> Option<Responder> {
        let rooms = &*self.rooms;
        let Some(handler) = rooms.verbs.find(request.verb) else { return Some(responder) };
        match rooms.writer.is_serving() {
            true => handler(rooms, request, responder),
            false => responder.fail(&internode::ErrorReply::Stopping),
        }
        None
    }

    /// Refuses new requests of other shards and waits for the running ones. Replays the batch log
    /// once more where that is possible at once.
    pub async fn stop(&self) {
        self.rooms.batches.stop();
        self.rooms.writer.stop_writes();
        self.rooms.lwt.stop_cleanup();
        self.local.env().gate.close().await;
        self.rooms.lwt.close_horizon().await;
    }
}

/// Serves another shard of this node.
fn serve(rooms: &Rc<Rooms>, request: ShardRequest, reply: Reply<ShardReply>) {
    let is_read = matches!(
        request,
        ShardRequest::Read(_)
            | ShardRequest::Replica(_)
            | ShardRequest::Search(_)
            | ShardRequest::SearchVectors(_)
    );
    if is_read && !reply.is_wanted() {
        // The caller's deadline passed while the request was in the ring. Writes run regardless:
        // they have an effect even if no caller waits for them.
        rooms.shared.local.note_abandoned();
        return;
    }
    let (env, rooms) = (rooms.shared.env(), rooms.clone());
    let task = async move {
        let local = &rooms.shared.local;
        let answer = match request {
            ShardRequest::Apply(mutation, origin) => {
                ShardReply::Applied(local.serve_apply(&mutation, origin).await)
            }
            ShardRequest::ApplyAll(mutations, origin) => {
                ShardReply::Applied(local.serve_apply_all(&mutations, origin).await)
            }
            ShardRequest::Read(read) => ShardReply::Page(read.read(local.env()).await),
            ShardRequest::Replica(query) => {
                ShardReply::Replica(local.env().replica.read(&query, None).await)
            }
            ShardRequest::Search(search) => {
                ShardReply::Matches(local.env().replica.search(&search).await)
            }
            ShardRequest::SearchVectors(search) => {
                ShardReply::Neighbours(local.env().replica.search_vectors(&search).await)
            }
            ShardRequest::Count(lead) => Box::pin(rooms.counters.lead_for_shard(*lead)).await,
            ShardRequest::Lwt(request) => ShardReply::Lwt(rooms.lwt.serve(request).await),
        };
        reply.send(answer);
    };
    // A closed gate means that the node stops: the dropped reply notifies the caller.
    let _ = env.gate.spawn(&env.rt, Group::Statement, "shard-request", task);
}

/// Acceptors in memory of a shard of a test.
#[cfg(test)]
const ACCEPTORS_OF_TESTS: usize = 48;

#[cfg(test)]
impl Coordinator {
    pub(crate) fn cluster(&self) -> Option<Rc<shared::Cluster>> {
        self.rooms.shared.cluster().cloned()
    }

    pub(crate) fn answer_before_sync(&self) {
        ::lwt::testing::answer_before_sync(self.lwt());
    }

    pub(crate) fn forget_horizon(&self) {
        ::lwt::testing::forget_horizon(self.lwt());
    }

    pub(crate) fn acceptors(&self) -> usize {
        ::lwt::testing::acceptors(self.lwt())
    }

    pub(crate) async fn ask_acceptor(
        &self,
        snapshot: &ClusterSnapshot,
        (table, key): (TableId, &[u8]),
        request: paxos::acceptor::Request<Arc<[u8]>>,
    ) -> Result<Option<paxos::acceptor::Reply<Arc<[u8]>>>, StoreError> {
        let partition = ::lwt::Partition { table, key: Arc::from(key) };
        ::lwt::testing::ask_acceptor(self.lwt(), snapshot, partition, request).await
    }
}
