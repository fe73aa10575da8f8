//! Mutations that this node applies as a replica, for its own requests or for those of peers.
//!
//! An application whose commit does not wait completes at once. The others of one turn share a
//! commit, which reports its result through [`Acknowledge`].

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use internode::Verb;
use messaging::Responder;
use request::Target;
use rt::{Group, MeshError};
use stdx::ShardId;
use store::StoreError;

use super::forwarding::Forward;
use super::{Write, Writer};
use crate::local::mesh_error;
use crate::{ShardReply, ShardRequest};
use replica::error_reply;
use replica::{Origin, ReplicaMutation};

/// Pause before a retry at another shard of this node whose queue is full.
const QUEUE_PAUSE: Duration = Duration::from_millis(1);

/// Recipient of the result of a mutation.
pub(crate) enum Acknowledge {
    /// A write of this coordinator.
    Write {
        write: Rc<Write>,
        /// Which of its mutations.
        index: u16,
        /// This node.
        target: Target,
    },
    /// The log of a batch of this coordinator.
    Log {
        write: Rc<Write>,
        /// This node's place among the log's nodes.
        place: u8,
    },
    /// A peer's request.
    Peer(Responder),
    /// A peer's mutation that is passed on too.
    Forward(Rc<Forward>),
}

/// Applied, and waiting for the commit that they share.
#[derive(Default)]
pub(crate) struct Committing {
    waiting: RefCell<Vec<Acknowledge>>,
    is_scheduled: Cell<bool>,
}

impl Writer {
    /// Applies a mutation on the shard of this node that owns it. Returns the result if it is
    /// available at once, else reports it later.
    pub(crate) fn apply_own(
        &self,
        mutation: ReplicaMutation<&[u8]>,
        who: Acknowledge,
    ) -> Option<(Acknowledge, Result<(), StoreError>)> {
        if !self.env().owns(&mutation) {
            self.apply_elsewhere(mutation.to_owned(), who);
            return None;
        }
        let replica = &self.env().replica;
        let applied = match replica.admit(Origin::Coordinator, None) {
            Ok(admitted) => replica.apply(&mutation, admitted),
            Err(StoreError::Overloaded { .. }) => {
                self.apply_when_there_is_room(mutation.to_owned(), who);
                return None;
            }
            Err(error) => Err(error),
        };
        if applied.is_err() {
            return Some((who, applied));
        }
        self.commit_own(who)
    }

    /// Commits what was applied on this shard. Returns the result if it is available at once, else
    /// reports it later.
    pub(crate) fn commit_own(
        &self,
        who: Acknowledge,
    ) -> Option<(Acknowledge, Result<(), StoreError>)> {
        // In periodic mode a commit does not wait.
        let mut context = Context::from_waker(Waker::noop());
        match pin!(self.env().store.commit()).poll(&mut context) {
            Poll::Ready(result) => Some((who, result)),
            Poll::Pending => {
                self.commit_later(who);
                None
            }
        }
    }

    /// Like [`Writer::apply_own`], but reports the result in any case.
    pub(crate) fn apply_and_tell(&self, mutation: ReplicaMutation<&[u8]>, who: Acknowledge) {
        if let Some((who, result)) = self.apply_own(mutation, who) {
            self.tell(who, result);
        }
    }

    /// Must not be called while the write in question is being stepped.
    pub(crate) fn tell(&self, who: Acknowledge, result: Result<(), StoreError>) {
        match who {
            Acknowledge::Write { write, index, target } => {
                self.note_shed(&result, Verb::Mutation);
                self.write_applied(&write, index, target, &result);
            }
            Acknowledge::Log { write, place } => self.log_applied(&write, place, &result),
            Acknowledge::Peer(responder) => match result {
                Ok(()) => responder.respond(|_| {}),
                Err(error) => {
                    self.note_shed(&Err(error.clone()), responder.verb());
                    responder.fail(&error_reply(&error));
                }
            },
            Acknowledge::Forward(forward) => {
                forward.note(None, result.map_err(|e| error_reply(&e)));
            }
        }
    }

    /// Counts a mutation that was dropped because this node has no room for it, for the log and
    /// `tpstats`.
    fn note_shed(&self, result: &Result<(), StoreError>, verb: Verb) {
        let is_shed = matches!(result, Err(StoreError::Overloaded { .. } | StoreError::QueueFull));
        if is_shed && let Some(attached) = self.attached() {
            attached.cluster.parts.messaging.note_dropped(verb, Duration::ZERO);
        }
    }

    /// Schedules the commit of this turn unless it is scheduled already.
    fn commit_later(&self, who: Acknowledge) {
        let committing = &self.inner.committing;
        committing.waiting.borrow_mut().push(who);
        if committing.is_scheduled.replace(true) {
            return;
        }
        let this = self.clone();
        let task = async move {
            let committing = &this.inner.committing;
            committing.is_scheduled.set(false);
            let waiting = std::mem::take(&mut *committing.waiting.borrow_mut());
            let result = this.env().store.commit().await;
            for who in waiting {
                this.tell(who, result.clone());
            }
        };
        let (rt, group) = (&self.env().rt, Group::Statement);
        if self.env().gate.spawn(rt, group, "replica-commit", task).is_err() {
            committing.is_scheduled.set(false);
            committing.waiting.borrow_mut().clear();
        }
    }

    fn apply_elsewhere(&self, mutation: ReplicaMutation, who: Acknowledge) {
        let (this, owner) = (self.clone(), mutation.owner(self.env().shard_map()));
        let (began, bytes) = (self.env().rt.now(), mutation.bytes.len());
        let backlog = match (&who, self.attached()) {
            (Acknowledge::Write { .. }, Some(attached)) => {
                let own = (attached.cluster.parts.snapshot)().local.host_id;
                Some(attached.backlog((own, owner)))
            }
            _ => None,
        };
        if let Some(backlog) = &backlog {
            backlog.sent(began, bytes);
        }
        let call = |mutation: ReplicaMutation| {
            let request = ShardRequest::Apply(mutation, Origin::Coordinator);
            self.local().call(owner, request)
        };
        let first = call(mutation.clone());
        let task = async move {
            let result = this.applied_elsewhere(first, owner, mutation).await;
            if let Some(backlog) = backlog {
                let now = this.env().rt.now();
                backlog.answered(now, now.since(began), bytes);
            }
            this.tell(who, result);
        };
        self.env().spawn_or_drop("replica-apply", task);
    }

    /// Completes a call to a shard of this node. The call is retried while its queue is full: no
    /// node keeps a hint for this node itself.
    async fn applied_elsewhere(
        &self,
        first: impl Future<Output = Result<ShardReply, MeshError>>,
        owner: ShardId,
        mutation: ReplicaMutation,
    ) -> Result<(), StoreError> {
        let rt = &self.env().rt;
        let until = rt.now() + self.inner.shared.write_timeout();
        let mut answer = first.await;
        while matches!(answer, Err(MeshError::Full)) && rt.now() < until {
            rt.sleep(QUEUE_PAUSE).await;
            let request = ShardRequest::Apply(mutation.clone(), Origin::Coordinator);
            answer = self.local().call(owner, request).await;
        }
        match answer {
            Ok(ShardReply::Applied(result)) => result,
            Ok(other) => stdx::invariant::broken(format_args!("apply answered by {other:?}")),
            Err(error) => Err(mesh_error(error)),
        }
    }

    fn apply_when_there_is_room(&self, mutation: ReplicaMutation, who: Acknowledge) {
        let this = self.clone();
        let task = async move {
            let replica = &this.env().replica;
            let result = match replica.wait_for_room().await {
                Ok(admitted) => match replica.apply(&mutation, admitted) {
                    Ok(()) => this.env().store.commit().await,
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            this.tell(who, result);
        };
        self.env().spawn_or_drop("replica-apply", task);
    }
}
