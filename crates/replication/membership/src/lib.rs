//! Drives the metadata log and publishes its fold to every shard of the node.
//!
//! Owns: the log file ([`log`]), the order of metadata changes (one at a time, on shard 0), votes
//! and catching up among nodes, the current [`ClusterSnapshot`] of each shard. Never: CQL, the
//! meaning of a change (that is `cluster` and `schema`), the consensus of voters (that is `paxos`).
//! A node that is the only member decides by its durable append.
//!
//! Invariants: INV-membership-1: a change is answered only after it is durable, published to every
//! shard and written to the system tables. INV-membership-2: epochs that a shard sees only grow.
//! INV-membership-3: entries are appended in order, each once.

pub mod fuzz;
pub mod log;
mod log_end;
mod owner;
mod peers;
#[cfg(test)]
mod tests;
mod wire;

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::{ClusterSnapshot, MetaLogError, Transformation};
use rt::sync::Notify;
use rt::{Mesh, MeshError, Reply, Rt};
use stdx::{Epoch, HostId, Instant, IoError, ShardId};

use crate::log::LogFile;
pub use crate::owner::Liveness;
use crate::owner::Owner;
pub use crate::peers::{JoinError, JoinRequest, ask_to_join, fetch_log};

/// How long a change of a keyspace's replication waits for the previous handover, and how often it
/// polls.
const HANDOVER_WAIT: Duration = Duration::from_secs(8);
const HANDOVER_LOOK: Duration = Duration::from_millis(50);

/// Metadata request of one shard to another.
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
    /// To shard 0: a peer has entries up to this one.
    Notice {
        /// Which peer.
        host: HostId,
        /// Its epoch.
        epoch: Epoch,
    },
    /// From shard 0: the system tables have the contents of `after`.
    Applied {
        /// The snapshot before the change.
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
    /// To `Publish`, `Applied` and `Notice`: the shard uses the snapshot, has run its hooks, checks
    /// for news.
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
    /// Larger than an entry may be.
    #[error("a metadata change of {bytes} bytes; at most {max} are possible")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// Too few voters answered; nothing happened.
    #[error(
        "a metadata change needs a majority of the voters ({required}), and {received} answered; nothing was \
         changed: {}start the nodes that are down and try again",
        no_answer_from(silent)
    )]
    NoMajority {
        /// Voters that answered.
        received: usize,
        /// Voters needed.
        required: usize,
        /// Addresses of the voters that did not answer.
        silent: Vec<SocketAddr>,
    },
    /// Too few voters answered after it was proposed: it may happen or not.
    #[error(
        "a metadata change was proposed and {received} of {required} voters answered: {}it may or may \
         not have happened; look before you try again",
        no_answer_from(silent)
    )]
    Unknown {
        /// Voters that answered.
        received: usize,
        /// Voters needed.
        required: usize,
        /// Addresses of the voters that did not answer.
        silent: Vec<SocketAddr>,
    },
    /// The voter that it was forwarded to could not decide it, in its words; nothing happened.
    #[error("{0}")]
    VoterCannot(String),
    /// The voter that it was forwarded to does not know the outcome, in its words: it may happen or not.
    #[error("{0}")]
    VoterUnsure(String),
    /// A voter refused it, in its words.
    #[error("{0}")]
    Refused(String),
    /// Metadata of a peer or of this node's log cannot be decoded.
    #[error("metadata cannot be read: {0}")]
    Unreadable(String),
}

impl SubmitError {
    /// Returns true if too few voters answered: a retry succeeds once they do.
    pub fn lacks_voters(&self) -> bool {
        matches!(
            self,
            SubmitError::NoMajority { .. }
                | SubmitError::Unknown { .. }
                | SubmitError::VoterCannot(_)
                | SubmitError::VoterUnsure(_)
        )
    }
}

/// Part of an error's text.
fn no_answer_from(silent: &[SocketAddr]) -> String {
    if silent.is_empty() {
        return String::new();
    }
    let named: Vec<String> = silent.iter().map(ToString::to_string).collect();
    format!("no answer from {}; ", named.join(", "))
}

type ChangeHook = Rc<dyn Fn(&Arc<ClusterSnapshot>, &Arc<ClusterSnapshot>)>;
type ApplyFuture = Pin<Box<dyn Future<Output = ()>>>;
pub(crate) type ApplyHook = Rc<dyn Fn(Arc<ClusterSnapshot>, Arc<ClusterSnapshot>) -> ApplyFuture>;

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
    /// Notified when the snapshot changes.
    changed: Notify,
    /// Shard 0 only.
    owner: Option<Owner>,
}

impl Membership {
    /// Joins this shard to the node's metadata. Shard 0 passes the opened log and the work
    /// directory, the others `None`.
    pub fn new(
        rt: Rt,
        mesh: Arc<MetaMesh>,
        snapshot: Arc<ClusterSnapshot>,
        log: Option<(LogFile, &str)>,
    ) -> Membership {
        let host = snapshot.local.host_id;
        let owner = log.map(|(log, work_dir)| Owner::new(&rt, work_dir, log, host));
        let inner = Inner {
            rt: rt.clone(),
            mesh: mesh.clone(),
            snapshot: RefCell::new(snapshot),
            on_change: RefCell::new(Vec::new()),
            on_applied: RefCell::new(Vec::new()),
            gate: rt.gate("metadata"),
            changed: Notify::new(),
            owner,
        };
        let this = Membership { inner: Rc::new(inner) };
        let server = this.clone();
        mesh.serve(&rt, move |request, reply| server.serve(request, reply));
        let ending = this.clone();
        rt.at_end(move || ending.let_go());
        this
    }

    /// Drops hooks and handles, to break their reference cycles with this.
    fn let_go(&self) {
        drop(self.inner.on_change.take());
        drop(self.inner.on_applied.take());
        if let Some(owner) = &self.inner.owner {
            drop(owner.on_apply.take());
            drop(owner.messaging.take());
            drop(owner.is_alive.replace(Rc::new(|_| true)));
        }
    }

    /// The snapshot this shard uses. A request keeps the one it began with.
    pub fn snapshot(&self) -> Arc<ClusterSnapshot> {
        self.inner.snapshot.borrow().clone()
    }

    /// Calls `hook(before, after)` on this shard at each change, before the change is answered.
    pub fn on_change(&self, hook: impl Fn(&Arc<ClusterSnapshot>, &Arc<ClusterSnapshot>) + 'static) {
        self.inner.on_change.borrow_mut().push(Rc::new(hook));
    }

    /// Calls `hook(before, after)` on this shard once the system tables are written: a client that
    /// is notified of the change and then queries them finds it.
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
        // A keyspace is often altered twice: the second change is planned again when the first one is
        // through.
        let give_up = self.inner.rt.now() + HANDOVER_WAIT;
        while self.snapshot().waits_for_handover(&entries) && self.inner.rt.now() < give_up {
            self.inner.rt.sleep(HANDOVER_LOOK).await;
        }
        let _turn = owner.turn.acquire(1).await;
        let before = self.snapshot();
        if before.epoch != expect {
            return Err(SubmitError::Conflict(before.epoch));
        }
        // Conditional statements of a keyspace go by its old replicas until the new ones know all.
        // What an older build cannot read waits until every member can.
        let entries = before.with_features(before.with_handovers(entries));
        let Some(change) = owner::joined(entries) else { return Ok(before) };
        // Refused before any voter is asked.
        before.apply(&change)?;
        let me = before.local.host_id;
        if before.members.len() <= 1 && before.voters == [me] {
            return self.append_alone(owner, &change).await;
        }
        let value = owner::payload_of(&change)?;
        if before.voters.contains(&me) {
            self.propose(owner, &before, value).await
        } else {
            self.forward(owner, &before, value).await
        }
    }

    /// Waits until this shard's snapshot is at `epoch`; false at the deadline.
    pub async fn wait_for(&self, epoch: Epoch, deadline: Instant) -> bool {
        loop {
            let changed = self.inner.changed.notified();
            if self.snapshot().epoch >= epoch {
                return true;
            }
            if self.inner.rt.timeout(deadline, changed).await.is_err() {
                return false;
            }
        }
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

    /// Has every shard notify its clients of an applied change.
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
        self.inner.changed.notify_waiters();
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
            MetaRequest::Notice { host, epoch } => {
                self.notice(host, epoch);
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
        if let Some(owner) = &self.inner.owner {
            // Steps that wait for other nodes do not delay the stop.
            owner.messaging.borrow_mut().take();
        }
        self.inner.gate.close().await;
        if let Some(owner) = &self.inner.owner {
            let _turn = owner.turn.acquire(1).await;
            owner.log.borrow_mut().take();
            owner.on_apply.borrow_mut().take();
        }
        // Breaks reference cycles: the hooks hold this.
        self.inner.on_change.borrow_mut().clear();
        self.inner.on_applied.borrow_mut().clear();
    }
}
