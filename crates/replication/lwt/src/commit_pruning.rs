//! Batched prunes: commits that every replica has are announced to each replica for many partitions
//! at once.
//!
//! No request waits for a prune. Losing one costs a few bytes until the next round or sweep of its
//! partition. One message and one task per prune would cost a tenth of an uncontended write.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use internode::{ErrorReply, Verb};
use messaging::{Outgoing, Request as PeerRequest, Responder};
use paxos::Ballot;
use paxos::wire::{PRUNES_MAX, Prune, Prunes};
use stdx::{HostId, ShardId};

use crate::Lwt;
use crate::acceptors::Ask;
use crate::paxos_row::Partition;
use crate::shards::Shards;

/// How long a prune waits for others.
const WAIT: Duration = Duration::from_millis(10);
/// Number of prunes that are sent without waiting; half of a message's maximum.
const FULL: usize = PRUNES_MAX / 2;

/// Destination of prunes; no host: this node.
type To = (Option<HostId>, ShardId);

/// Waiting prunes, in the order in which their destinations were first needed: the order of sends
/// must not depend on a hash.
#[derive(Default)]
pub(crate) struct Waiting {
    lists: RefCell<Vec<(To, Prunes)>>,
    /// A scheduled task will send them.
    is_due: Cell<bool>,
}

impl Waiting {
    /// Adds one; gives the destination's when they are many enough.
    fn push(&self, to: To, partition: &Partition, ballot: Ballot) -> Option<Prunes> {
        let mut lists = self.lists.borrow_mut();
        let at = lists.iter().position(|(other, _)| *other == to);
        let at = at.unwrap_or_else(|| {
            lists.push((to, Prunes::default()));
            lists.len() - 1
        });
        let (_, prunes) = lists.get_mut(at)?;
        prunes.push(partition.table, &partition.key, ballot);
        (prunes.len() >= FULL).then(|| lists.remove(at).1)
    }
}

impl<N: Shards> Lwt<N> {
    /// Has a replica, `None` is this node, forget the rounds of a partition up to a ballot, within a
    /// moment. Nothing for a node that is alone.
    pub(crate) fn prune_soon(&self, host: Option<HostId>, partition: &Partition, ballot: Ballot) {
        let Some(cluster) = self.cluster() else { return };
        let map = host.map_or_else(|| self.env().shard_map(), |host| cluster.shard_map_of(host));
        let to = (host, partition.owner(map));
        let waiting = &self.inner.prunes;
        if let Some(full) = waiting.push(to, partition, ballot) {
            self.send_prunes(to, full);
        }
        if waiting.lists.borrow().is_empty() || waiting.is_due.replace(true) {
            return;
        }
        let this = self.clone();
        self.env().spawn_or_drop("paxos-prunes", async move {
            this.env().rt.sleep(WAIT).await;
            let waiting = &this.inner.prunes;
            waiting.is_due.set(false);
            for (to, prunes) in waiting.lists.take() {
                this.send_prunes(to, prunes);
            }
        });
    }

    fn send_prunes(&self, (host, shard): To, prunes: Prunes) {
        let Some(host) = host else {
            return self.prune_all(&Prunes::decode(prunes.as_bytes()).unwrap_or_default(), None);
        };
        let Some(cluster) = self.cluster() else { return };
        if !(cluster.parts.is_alive)(host) {
            return;
        }
        let deadline = self.env().rt.now() + cluster.parts.settings.write_request_timeout;
        let verb = Verb::PaxosPrunes;
        let to = Outgoing { host, shard, verb, deadline, trace: None };
        let write = |out: &mut Vec<u8>| out.extend_from_slice(prunes.as_bytes());
        let _ = cluster.parts.messaging.send_one_way(&to, write);
    }

    /// Serves the verb `PaxosPrunes`.
    pub fn serve_prunes(&self, request: &PeerRequest<'_>, responder: Responder) {
        match Prunes::decode(request.payload) {
            Ok(prunes) => {
                self.inner.served.add(prunes.len() as u64);
                self.prune_all(&prunes, Some(responder));
            }
            Err(error) => responder.fail(&ErrorReply::Invalid(error.to_string())),
        }
    }

    /// The message counts as one that is served until all of it is done: a peer that sends more than this
    /// node can do is held back by that.
    fn prune_all(&self, prunes: &[Prune<'_>], served: Option<Responder>) {
        let owned = |prune: &Prune<'_>| {
            let key = Arc::from(prune.key);
            (Partition { table: prune.table, key }, prune.ballot)
        };
        let prunes: Vec<(Partition, Ballot)> = prunes.iter().map(owned).collect();
        let this = self.clone();
        self.env().spawn_or_drop("paxos-prune", async move {
            let _served = served;
            for (partition, ballot) in prunes {
                let Some(cluster) = this.cluster() else { return };
                let snapshot = (cluster.parts.snapshot)();
                // The table was dropped, or never existed.
                if snapshot.schema.table_by_id(partition.table).is_none() {
                    continue;
                }
                let Some(paxos) = this.inner.table.of(&snapshot.schema) else { return };
                let ask = Ask::prune(partition, ballot, paxos);
                if let Err(error) = this.inner.acceptors.ask_to_its_end(ask).await {
                    // The rows keep a few bytes more.
                    tracing::debug!(%error, "Paxos prune failed");
                }
            }
        });
    }
}
