//! Questions to replicas on other nodes.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use data::command::ReadCommand;
use internode::{ErrorReply, ReadLimits, Verb};
use messaging::{MessagingError, Outgoing, RequestFuture};
use request::{PageDigest, ReplicaError};
use stdx::{Epoch, HostId, Instant, ShardId};

use super::calls::{Answer, AnswerFuture, What};
use crate::shared::{Cluster, ReadTrace};
use replica::replica_error;

/// A page request to a replica. It owns all its inputs, so that it can be repeated in another form.
pub(super) struct ToPeer {
    pub(super) cluster: Rc<Cluster>,
    pub(super) host: HostId,
    pub(super) shard: ShardId,
    /// Verb for a range or for a partition.
    pub(super) verb: Verb,
    pub(super) deadline: Instant,
    pub(super) command: Rc<ReadCommand>,
    pub(super) limits: ReadLimits,
    /// Receives the epoch of a replica that knows newer metadata.
    pub(super) needed: Rc<Cell<Epoch>>,
    pub(super) trace: Option<Rc<ReadTrace>>,
}

impl ToPeer {
    /// Sends it.
    pub(super) fn request(&self, verb: Verb, write: impl FnOnce(&mut Vec<u8>)) -> RequestFuture {
        let trace = self.trace.as_ref().map(|trace| trace.id());
        let (host, shard, deadline) = (self.host, self.shard, self.deadline);
        let outgoing = Outgoing { host, shard, verb, deadline, trace };
        self.cluster.parts.messaging.request(&outgoing, write)
    }

    /// Records an answer; `page`: bytes of its page.
    pub(super) fn note(&self, elapsed: Duration, page: Option<usize>) {
        self.cluster.latencies.note(self.host, elapsed);
        if let (Some(trace), Some(bytes)) = (&self.trace, page) {
            trace.note_page(bytes);
        }
    }

    /// Records a failed request.
    pub(super) fn note_error(&self, error: &MessagingError) {
        note_needed(&self.needed, error);
    }

    /// Asks for the page or its digest.
    pub(super) fn ask(self, what: What) -> AnswerFuture {
        let is_digest = what == What::Digest;
        let answer = self.request(self.verb, |out| {
            internode::encode_read(out, &self.command, self.limits, is_digest);
        });
        Box::pin(async move {
            let response = answer.await.map_err(|error| {
                self.note_error(&error);
                replica_error(&error)
            })?;
            self.note(response.elapsed, (!is_digest).then_some(response.payload.len()));
            if !is_digest {
                return Ok(Answer::Page { bytes: response.payload, is_own: false });
            }
            let bytes = <[u8; 16]>::try_from(response.payload.as_slice());
            let digest = bytes.map_err(|_| ReplicaError::Unknown)?;
            Ok(Answer::Digest(PageDigest(u128::from_be_bytes(digest))))
        })
    }
}

/// Records the metadata that a replica wants the coordinator to have first: the read is planned again with it.
pub(super) fn note_needed(known: &Cell<Epoch>, error: &MessagingError) {
    if let MessagingError::Remote(ErrorReply::EpochTooOld { needed }) = error {
        known.set(known.get().max(*needed));
    }
}
