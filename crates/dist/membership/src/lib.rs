//! Drives the metadata log and publishes its fold to every shard of the node.
//!
//! Owns: the log file ([`log`]), the order of metadata changes (one at a time, on shard 0), the
//! current [`ClusterSnapshot`] of each shard. Never: CQL, what a change means (that is `cluster`
//! and `schema`). With one member an entry is decided when it is durable; when the cluster is
//! built, the same [`Membership::submit`] goes through the voters.
//!
//! Invariants: INV-membership-1: a change is answered only after it is durable, published to every
//! shard and written to the system tables. INV-membership-2: epochs that a shard sees only grow.

pub mod log;

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use cluster::{ClusterSnapshot, MetaLogError, Transformation};
use rt::sync::Semaphore;
use rt::{Mesh, MeshError, Reply, Rt};
use stdx::{Epoch, IoError, ShardId};

use crate::log::LogFile;

/// What one shard asks another about metadata.
#[derive(Debug)]
pub enum MetaRequest {
    /// To shard 0: append these entries if the epoch is still the expected one.
    Submit {
        /// The epoch the entries were planned on.
        expect: Epoch,
        /// In order.
        entries: Vec<Transformation>,
    },
    /// From shard 0: the new snapshot.
    Publish(Arc<ClusterSnapshot>),
    /// From shard 0: the system tables say what `after` says.
    Applied {
        /// What was before the change.
        before: Arc<ClusterSnapshot>,
        /// The published snapshot.
        after: Arc<ClusterSnapshot>,
    },
}

/// Answer to a [`MetaRequest`].
#[derive(Debug)]
pub enum MetaReply {
    /// To `Submit`.
    Submitted(Result<Arc<ClusterSnapshot>, SubmitError>),
    /// To `Publish` and `Applied`: the shard uses it, has told of it.
    Published,
}

/// The way between shards for metadata.
pub type MetaMesh = Mesh<MetaRequest, MetaReply>;

/// Why a metadata change did not happen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SubmitError {
    /// The state moved on: plan again on this snapshot's epoch.
    #[error("the metadata changed at the same time, epoch is now {0:?}")]
    Conflict(Epoch),
    /// The log could not be written; the change may be there after a restart.
    #[error("metadata log cannot be written: {0}")]
    Io(#[from] IoError),
    /// The entry does not fit the state.
    #[error(transparent)]
    Rejected(#[from] MetaLogError),
    /// The node stops or its queue is full.
    #[error("the node cannot take metadata changes now")]
    Unavailable,
}

type ChangeHook = Rc<dyn Fn(&Arc<ClusterSnapshot>, &Arc<ClusterSnapshot>)>;
type ApplyFuture = Pin<Box<dyn Future<Output = ()>>>;
type ApplyHook = Rc<dyn Fn(Arc<ClusterSnapshot>, Arc<ClusterSnapshot>) -> ApplyFuture>;

/// One shard's part of it; clones share.
#[derive(Clone)]
pub struct Membership {
    inner: Rc<Inner>,
}

struct Inner {
    rt: Rt,
    mesh: Arc<MetaMesh>,
    snapshot: RefCell<Arc<ClusterSnapshot>>,
    on_change: RefCell<Vec<ChangeHook>>,
    on_applied: RefCell<Vec<ChangeHook>>,
    gate: rt::Gate,
    /// Shard 0 only.
    owner: Option<Owner>,
}

struct Owner {
    log: RefCell<Option<LogFile>>,
    turn: Semaphore,
    on_apply: RefCell<Option<ApplyHook>>,
}

impl Membership {
    /// Joins this shard to the node's metadata. Shard 0 gives the opened log, the others `None`.
    pub fn new(
        rt: Rt,
        mesh: Arc<MetaMesh>,
        snapshot: Arc<ClusterSnapshot>,
        log: Option<LogFile>,
    ) -> Membership {
        let owner = log.map(|log| Owner {
            log: RefCell::new(Some(log)),
            turn: Semaphore::new(1),
            on_apply: RefCell::new(None),
        });
        let inner = Inner {
            rt: rt.clone(),
            mesh: mesh.clone(),
            snapshot: RefCell::new(snapshot),
            on_change: RefCell::new(Vec::new()),
            on_applied: RefCell::new(Vec::new()),
            gate: rt.gate("metadata"),
            owner,
        };
        let this = Membership { inner: Rc::new(inner) };
        let server = this.clone();
        mesh.serve(&rt, move |request, reply| server.serve(request, reply));
        this
    }

    /// The snapshot this shard uses. A request keeps the one it began with.
    pub fn snapshot(&self) -> Arc<ClusterSnapshot> {
        self.inner.snapshot.borrow().clone()
    }

    /// Calls `hook(before, after)` on this shard at each change, before the change is answered.
    pub fn on_change(&self, hook: impl Fn(&Arc<ClusterSnapshot>, &Arc<ClusterSnapshot>) + 'static) {
        self.inner.on_change.borrow_mut().push(Rc::new(hook));
    }

    /// Calls `hook(before, after)` on this shard once the system tables are written: who is told of
    /// a change now, and asks them, finds it.
    pub fn on_applied(
        &self,
        hook: impl Fn(&Arc<ClusterSnapshot>, &Arc<ClusterSnapshot>) + 'static,
    ) {
        self.inner.on_applied.borrow_mut().push(Rc::new(hook));
    }

    /// On shard 0: runs `hook(before, after)` after a change is published everywhere and before it
    /// is answered; it writes the system tables.
    pub fn on_apply(
        &self,
        hook: impl Fn(Arc<ClusterSnapshot>, Arc<ClusterSnapshot>) -> ApplyFuture + 'static,
    ) {
        if let Some(owner) = &self.inner.owner {
            *owner.on_apply.borrow_mut() = Some(Rc::new(hook));
        }
    }

    /// Appends entries that were planned on epoch `expect`; answers with the snapshot after them.
    ///
    /// # Errors
    /// `Conflict`: plan again; `Rejected`: does not fit; `Io`: not written, or not known to be.
    pub async fn submit(
        &self,
        expect: Epoch,
        entries: Vec<Transformation>,
    ) -> Result<Arc<ClusterSnapshot>, SubmitError> {
        if self.inner.owner.is_some() {
            return self.submit_here(expect, entries).await;
        }
        let request = MetaRequest::Submit { expect, entries };
        match self.inner.mesh.call(&self.inner.rt, ShardId(0), request).await {
            Ok(MetaReply::Submitted(result)) => result,
            Ok(MetaReply::Published) => {
                stdx::invariant::broken(format_args!("submit answered by Published"))
            }
            Err(MeshError::Full | MeshError::Closed) => Err(SubmitError::Unavailable),
        }
    }

    async fn submit_here(
        &self,
        expect: Epoch,
        entries: Vec<Transformation>,
    ) -> Result<Arc<ClusterSnapshot>, SubmitError> {
        let Some(owner) = &self.inner.owner else { return Err(SubmitError::Unavailable) };
        let _turn = owner.turn.acquire(1).await;
        let before = self.snapshot();
        if before.epoch != expect {
            return Err(SubmitError::Conflict(before.epoch));
        }
        let mut after = ClusterSnapshot::clone(&before);
        let mut framed = Vec::new();
        for entry in &entries {
            after = after.apply(entry)?;
            entry.encode_entry(after.epoch, &mut framed);
        }
        if entries.is_empty() {
            return Ok(before);
        }
        // The log is taken out while it is written: after a failure it stays out, so that nothing
        // is appended behind an entry whose fate is unknown.
        let Some(mut log) = owner.log.borrow_mut().take() else {
            return Err(SubmitError::Unavailable);
        };
        log.append(framed, after.epoch).await?;
        *owner.log.borrow_mut() = Some(log);
        let after = Arc::new(after);
        self.publish(&after).await?;
        let hook = owner.on_apply.borrow().clone();
        if let Some(hook) = hook {
            hook(before.clone(), after.clone()).await;
        }
        self.tell(&before, &after).await?;
        Ok(after)
    }

    async fn publish(&self, snapshot: &Arc<ClusterSnapshot>) -> Result<(), SubmitError> {
        for shard in 0..self.inner.rt.shard_count() {
            let shard = ShardId(shard);
            if shard == self.inner.rt.shard() {
                self.adopt(snapshot);
                continue;
            }
            let request = MetaRequest::Publish(snapshot.clone());
            let answer = self.inner.mesh.call(&self.inner.rt, shard, request).await;
            if answer.is_err() {
                return Err(SubmitError::Unavailable);
            }
        }
        Ok(())
    }

    /// Lets every shard tell its clients of an applied change.
    async fn tell(
        &self,
        before: &Arc<ClusterSnapshot>,
        after: &Arc<ClusterSnapshot>,
    ) -> Result<(), SubmitError> {
        for shard in 0..self.inner.rt.shard_count() {
            let shard = ShardId(shard);
            if shard == self.inner.rt.shard() {
                self.applied(before, after);
                continue;
            }
            let request = MetaRequest::Applied { before: before.clone(), after: after.clone() };
            let answer = self.inner.mesh.call(&self.inner.rt, shard, request).await;
            if answer.is_err() {
                return Err(SubmitError::Unavailable);
            }
        }
        Ok(())
    }

    fn applied(&self, before: &Arc<ClusterSnapshot>, after: &Arc<ClusterSnapshot>) {
        let hooks = self.inner.on_applied.borrow().clone();
        for hook in hooks {
            hook(before, after);
        }
    }

    fn adopt(&self, after: &Arc<ClusterSnapshot>) {
        let before = self.snapshot();
        stdx::invariant!(
            before.epoch <= after.epoch,
            "INV-membership-2: epoch {:?} published after {:?}",
            after.epoch,
            before.epoch
        );
        *self.inner.snapshot.borrow_mut() = after.clone();
        let hooks = self.inner.on_change.borrow().clone();
        for hook in hooks {
            hook(&before, after);
        }
    }

    fn serve(&self, request: MetaRequest, reply: Reply<MetaReply>) {
        match request {
            MetaRequest::Publish(snapshot) => {
                self.adopt(&snapshot);
                reply.send(MetaReply::Published);
            }
            MetaRequest::Applied { before, after } => {
                self.applied(&before, &after);
                reply.send(MetaReply::Published);
            }
            MetaRequest::Submit { expect, entries } => {
                let this = self.clone();
                let task = async move {
                    let result = this.submit_here(expect, entries).await;
                    reply.send(MetaReply::Submitted(result));
                };
                // A closed gate means that the node stops: the dropped reply tells the caller.
                let _ = self.inner.gate.spawn(&self.inner.rt, rt::Group::Admin, "submit", task);
            }
        }
    }

    /// Refuses new changes and waits for the running one.
    pub async fn stop(&self) {
        self.inner.gate.close().await;
        if let Some(owner) = &self.inner.owner {
            let _turn = owner.turn.acquire(1).await;
            owner.log.borrow_mut().take();
        }
    }
}
