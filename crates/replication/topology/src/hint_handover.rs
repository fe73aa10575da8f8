//! Handover of a leaving node to members that stay: its hints and the entries of its batch log.

use std::rc::Rc;

use cluster::{ClusterSnapshot, MemberState};
use hints::PendingHints;
use rt::Group;
use stdx::{HostId, ShardId};

use crate::copies::{ASK_AGAIN, ATTEMPTS};
use crate::env::Env;

/// Members that a leaver offers its hints to, one after the other.
const HINT_TAKERS: usize = 3;

type Result<T> = std::result::Result<T, String>;

/// Describes hints for an operator: their target nodes and sizes.
fn hints_text(hints: &[PendingHints]) -> String {
    let each = hints.iter().map(|h| format!("{} bytes for node {}", h.bytes, h.host));
    format!("hints ({})", each.collect::<Vec<_>>().join(", "))
}

/// Hints and batches of a node that leaves. Clones share.
#[derive(Clone)]
pub struct HintHandover {
    env: Rc<Env>,
}

impl HintHandover {
    pub(crate) fn new(env: &Rc<Env>) -> HintHandover {
        HintHandover { env: env.clone() }
    }

    /// Hands this shard's hints over when shard 0 requests it.
    pub fn serve_hints_mesh(&self) {
        let (rt, hints, gate) =
            (self.env.rt.clone(), self.env.hints.clone(), self.env.gate.clone());
        self.env.hints_mesh.serve(&self.env.rt, move |host, reply| {
            let hints = hints.clone();
            let task = async move { reply.send(hints.transfer(host).await) };
            // A closed gate: the node stops, and the dropped reply reports it.
            let _ = gate.spawn(&rt, Group::Gossip, "transfer-hints", task);
        });
    }

    /// Members that are alive and stay, those of this node's datacenter first.
    fn heirs(&self, snapshot: &ClusterSnapshot) -> Vec<HostId> {
        let me = snapshot.local_member();
        let mut others: Vec<&std::sync::Arc<cluster::Member>> = snapshot.members.values().collect();
        others.retain(|m| {
            m.host_id != snapshot.local.host_id
                && m.state == MemberState::Normal
                && self.env.liveness.is_alive(m.host_id)
        });
        others.sort_by_key(|m| me.is_none_or(|me| me.datacenter != m.datacenter));
        others.into_iter().map(|m| m.host_id).collect()
    }

    /// Hands the entries of this node's batch log to other members, because no member hears it
    /// after it has left. From then on no coordinator stores batches here.
    pub(crate) async fn hand_over_batches(&self) -> Result<()> {
        let mut failure = String::new();
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                self.env.pause(ASK_AGAIN).await.map_err(|e| e.to_string())?;
            }
            let snapshot = self.env.membership.snapshot();
            let heirs = self.heirs(&snapshot);
            match self.env.coordinator.batches().hand_over_batches(&snapshot, &heirs).await {
                Ok(0) => return Ok(()),
                Ok(batches) => {
                    tracing::info!(batches, "logged batches were handed to other nodes");
                    return Ok(());
                }
                Err(text) => failure = text,
            }
        }
        Err(failure)
    }

    /// Delivers the hints of all shards, or gives them to another member, which keeps them for their
    /// replicas.
    ///
    /// # Errors
    /// Some are left, and the order was none that loses them.
    pub(crate) async fn hand_over_hints(&self) -> Result<()> {
        let mut left = Vec::new();
        let mut failure = String::new();
        let heirs = match self.env.options.transfer_hints_on_decommission {
            true => self.heirs(&self.env.membership.snapshot()),
            // The operator wants no hints handed over.
            false => return self.lose_hints(&self.env.hints.pending()),
        };
        if heirs.is_empty() {
            left = self.env.hints.pending();
        }
        for host in heirs.into_iter().take(HINT_TAKERS) {
            let calls: Vec<_> = (0..self.env.rt.shard_count())
                .map(|shard| self.env.hints_mesh.call(&self.env.rt, ShardId(shard), host))
                .collect();
            let mut lists = Vec::new();
            failure.clear();
            for call in calls {
                match call.await {
                    Ok(list) => lists.push(list),
                    Err(error) => failure = error.to_string(),
                }
            }
            left = PendingHints::merge(lists);
            if left.is_empty() && failure.is_empty() {
                return Ok(());
            }
            tracing::info!(%host, "some hints were neither delivered nor handed over to a node");
        }
        match (self.env.orders.loses_hints.get(), failure.is_empty()) {
            (false, false) => Err(format!("hints could not be handed over: {failure}")),
            (false, true) if !left.is_empty() => Err(format!(
                "{} could not be delivered or handed over; try again when their nodes are up, or leave \
                 without them with --force and repair these nodes",
                hints_text(&left)
            )),
            _ => self.lose_hints(&left),
        }
    }

    /// Abandons hints, and records it for the operator who gave the order.
    fn lose_hints(&self, left: &[PendingHints]) -> Result<()> {
        if !left.is_empty() {
            let text = hints_text(left);
            tracing::warn!(
                hints = text,
                "leaving without handing over all hints: repair the nodes that they are for"
            );
            *self.env.orders.lost_hints.borrow_mut() = Some(format!(
                "the node has left the cluster, and {text} are lost: repair these nodes"
            ));
        }
        Ok(())
    }
}
