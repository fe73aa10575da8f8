//! Requests against this node alone: the shard that owns a key, one hop when it is another one.
//!
//! Owns: [`Local`], pages of packed rows that cross shards ([`local_read`], [`shard_pages`]), range scans merged in ring
//! order. Never: other nodes.
//!
//! Invariants: INV-coordinator-1: a mutation is applied on the shard that owns its token, nowhere
//! else. INV-coordinator-2: a scan shows partitions in (token, key) order whatever the number of
//! shards.

mod local_read;
pub(crate) mod shard_pages;

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use index_format::{IndexSearch, Matches, Neighbours, VectorSearch};
use replica::{
    Env, Node, Origin, PackedPage, PackedRead, PageLimit, ReplicaMutation, ReplicaQuery,
};
use rt::MeshError;
use stdx::ShardId;
use store::{ReplicaRead, StoreError};
use telemetry::Counter;

use crate::shard_requests::{ShardMesh, ShardReply, ShardRequest};

pub use local_read::{ShardFilter, Wanted};

/// One shard's access to all data of its node.
#[derive(Clone)]
pub struct Local {
    inner: Rc<Inner>,
}

struct Inner {
    env: Env,
    mesh: Arc<ShardMesh>,
    /// Limit of the pages that this shard requests from other shards.
    page_limit: Cell<PageLimit>,
    /// Reads for other shards that were skipped because their caller was gone.
    abandoned: Counter,
}

/// The page limit until it is set.
fn page_limit() -> PageLimit {
    let limit = PageLimit::default();
    match cfg!(test) {
        // Tests have few rows.
        true => PageLimit { bytes: 400, left_out: 300, tombstones: 3, ..limit },
        false => limit,
    }
}

impl Local {
    pub(crate) fn new(env: Env, mesh: Arc<ShardMesh>) -> Local {
        let abandoned = env.rt.telemetry().counter(
            "coordinator_shard_reads_abandoned_total",
            "reads for another shard not begun, because their caller had stopped waiting",
            &[],
        );
        let page_limit = Cell::new(page_limit());
        Local { inner: Rc::new(Inner { env, mesh, page_limit, abandoned }) }
    }

    /// The environment of this shard.
    #[inline]
    pub fn env(&self) -> &Env {
        &self.inner.env
    }

    /// Sets the limit of the pages that this shard requests from others. For tests, whose tables
    /// are small.
    pub fn limit_pages(&self, limit: PageLimit) {
        self.inner.page_limit.set(limit);
    }

    /// See [`Env::limit_replica_pages`].
    pub fn limit_replica_pages(&self, tombstones: u32) {
        self.inner.env.limit_replica_pages(tombstones);
    }

    /// Sends a request to a shard of this node; it is sent when this returns.
    pub(crate) fn call(
        &self,
        shard: ShardId,
        request: ShardRequest,
    ) -> impl Future<Output = Result<ShardReply, MeshError>> + use<> {
        self.inner.mesh.call(&self.inner.env.rt, shard, request)
    }

    /// A read for another shard is not begun, because its caller is gone.
    pub(crate) fn note_abandoned(&self) {
        self.inner.abandoned.inc();
    }

    /// Applies a mutation on the shard that owns it and waits until it may be acknowledged.
    ///
    /// # Errors
    /// Those of [`Store::apply`] and [`Store::commit`]; `Overloaded` when the owner's queue is
    /// full.
    pub async fn apply(&self, mutation: ReplicaMutation, origin: Origin) -> Result<(), StoreError> {
        if self.inner.env.owns(&mutation) {
            self.inner.env.replica.admit_and_apply(&mutation, origin)?;
            return self.inner.env.store.commit().await;
        }
        let owner = mutation.owner(self.inner.env.shard_map());
        let request = ShardRequest::Apply(mutation, origin);
        match self.call(owner, request).await {
            Ok(ShardReply::Applied(result)) => result,
            Ok(other) => stdx::invariant::broken(format_args!("apply answered by {other:?}")),
            Err(error) => Err(mesh_error(error)),
        }
    }

    /// Applies mutations that all belong to another shard, in one message to it, and waits until they may
    /// be acknowledged. One that cannot be applied does not keep the others out.
    ///
    /// # Errors
    /// Those of [`Local::apply`], of the first that fails.
    pub async fn apply_at(
        &self,
        owner: ShardId,
        mutations: Vec<ReplicaMutation>,
        origin: Origin,
    ) -> Result<(), StoreError> {
        let request = ShardRequest::ApplyAll(mutations, origin);
        match self.call(owner, request).await {
            Ok(ShardReply::Applied(result)) => result,
            Ok(other) => stdx::invariant::broken(format_args!("apply answered by {other:?}")),
            Err(error) => Err(mesh_error(error)),
        }
    }

    /// Everything applied so far on this shard may be acknowledged afterwards.
    ///
    /// # Errors
    /// Those of [`Store::commit`].
    pub async fn commit(&self) -> Result<(), StoreError> {
        self.inner.env.store.commit().await
    }

    pub(crate) async fn serve_apply(
        &self,
        mutation: &ReplicaMutation,
        origin: Origin,
    ) -> Result<(), StoreError> {
        self.inner.env.replica.admit_and_apply(mutation, origin)?;
        self.inner.env.store.commit().await
    }

    pub(crate) async fn serve_apply_all(
        &self,
        mutations: &[ReplicaMutation],
        origin: Origin,
    ) -> Result<(), StoreError> {
        let admitted = self.inner.env.replica.admit(origin, None)?;
        let mut outcome = Ok(());
        for mutation in mutations {
            let applied = self.inner.env.replica.apply(mutation, admitted);
            outcome = outcome.and(applied);
            self.inner.env.rt.yield_if_due().await;
        }
        outcome?;
        self.inner.env.store.commit().await
    }
}

impl Node for Local {
    fn env(&self) -> &Env {
        &self.inner.env
    }

    fn replica_page_of(
        &self,
        shard: ShardId,
        query: ReplicaQuery,
    ) -> impl Future<Output = Result<ReplicaRead, StoreError>> + 'static {
        let answer = self.call(shard, ShardRequest::Replica(Box::new(query)));
        async move {
            match answer.await {
                Ok(ShardReply::Replica(read)) => read,
                Ok(other) => stdx::invariant::broken(format_args!("read answered by {other:?}")),
                Err(error) => Err(mesh_error(error)),
            }
        }
    }

    fn matches_of(
        &self,
        shard: ShardId,
        search: IndexSearch,
    ) -> impl Future<Output = Result<Matches, StoreError>> + 'static {
        let answer = self.call(shard, ShardRequest::Search(Box::new(search)));
        async move {
            match answer.await {
                Ok(ShardReply::Matches(matches)) => matches,
                Ok(other) => stdx::invariant::broken(format_args!("search answered by {other:?}")),
                Err(error) => Err(mesh_error(error)),
            }
        }
    }

    fn neighbours_of(
        &self,
        shard: ShardId,
        search: VectorSearch,
    ) -> impl Future<Output = Result<Neighbours, StoreError>> + 'static {
        let answer = self.call(shard, ShardRequest::SearchVectors(Box::new(search)));
        async move {
            match answer.await {
                Ok(ShardReply::Neighbours(neighbours)) => neighbours,
                Ok(other) => stdx::invariant::broken(format_args!("search answered by {other:?}")),
                Err(error) => Err(mesh_error(error)),
            }
        }
    }

    fn packed_page_of(
        &self,
        shard: ShardId,
        read: PackedRead,
    ) -> impl Future<Output = Result<PackedPage, StoreError>> + 'static {
        let answer = self.call(shard, ShardRequest::Read(Box::new(read)));
        async move { local_read::page_of(answer.await) }
    }
}

impl lwt::Shards for Local {
    fn lwt(
        &self,
        shard: ShardId,
        request: lwt::ShardRequest,
    ) -> impl Future<Output = Result<lwt::ShardReply, MeshError>> + 'static {
        let answer = self.call(shard, ShardRequest::Lwt(request));
        async move {
            match answer.await? {
                ShardReply::Lwt(reply) => Ok(reply),
                other => stdx::invariant::broken(format_args!("lwt answered by {other:?}")),
            }
        }
    }

    async fn read<S: store::RowSink>(
        &self,
        command: &data::command::ReadCommand,
        sink: &mut S,
    ) -> Result<store::ReadStats, StoreError> {
        Local::read(self, command, usize::MAX, sink).await
    }
}

/// A call to another shard of this node that was not answered.
pub(crate) fn mesh_error(error: MeshError) -> StoreError {
    match error {
        MeshError::Full => StoreError::QueueFull,
        MeshError::Closed => StoreError::Stopping,
    }
}
