//! Keyspaces that get other replicas (ALTER KEYSPACE): hands over the decisions of their lightweight transactions.
//! The stages and why they are safe: `cluster::handover`.
//!
//! The live member with the lowest host id orders every heir to take over (verb `TakeOver`), polls each until it
//! is done, and ends the stage in the log. When that member dies, the next one continues: an order that was
//! carried out can be repeated without harm.
//!
//! After [`PATIENCE`] heirs that are down are skipped, if the others suffice. Otherwise the stage waits and logs
//! it: a quorum's decisions are not abandoned because nodes are down. The operator removes a node that is down for
//! good (`nodetool assassinate`), which does not wait for a handover.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use cluster::{ClusterSnapshot, HandoverStep, MemberState, Transformation};
use rt::Group;
use stdx::{Epoch, HostId, Instant};

use crate::copies::{Mover, RangeCopies};
use crate::env::Env;
use crate::orders::{Job, Order, What};
use crate::steps::Steps;

/// Longest wait of a stage for nodes that are down.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two checks of the handovers.
const PAUSE: Duration = Duration::from_millis(500);
/// Interval of the log line that says that a stage waits.
const REMIND: Duration = Duration::from_secs(10);

type Result<T> = std::result::Result<T, String>;

/// Start of a stage's wait for a member.
struct Waiting {
    epoch: Epoch,
    since: Instant,
    remind_at: Instant,
    done: BTreeSet<HostId>,
}

/// Keyspaces that get other replicas. Clones share.
#[derive(Clone)]
pub struct ReplicationChange {
    env: Rc<Env>,
    steps: Steps,
    copies: RangeCopies,
}

impl ReplicationChange {
    pub(crate) fn new(env: &Rc<Env>) -> ReplicationChange {
        ReplicationChange {
            env: env.clone(),
            steps: Steps::new(env),
            copies: RangeCopies::new(env),
        }
    }

    /// Carries handovers out, as long as this is the first live member. Shard 0 only.
    pub fn hand_over_keyspaces(&self) {
        let this = self.clone();
        let task = async move {
            let mut waiting: BTreeMap<String, Waiting> = BTreeMap::new();
            loop {
                let next = this.env.rt.now() + PAUSE;
                if this.env.rt.timeout(next, this.env.rt.stop_requested()).await.is_ok() {
                    return;
                }
                let snapshot = this.env.membership.snapshot();
                waiting.retain(|name, w| {
                    snapshot.handovers.get(name.as_str()).is_some_and(|h| h.since == w.epoch)
                });
                if !this.hands_over(&snapshot) {
                    waiting.clear();
                    continue;
                }
                for (name, handover) in &snapshot.handovers {
                    let now = this.env.rt.now();
                    let stage = waiting.entry(name.to_string()).or_insert(Waiting {
                        epoch: handover.since,
                        since: now,
                        remind_at: now + REMIND,
                        done: BTreeSet::new(),
                    });
                    if let Err(error) = this.hand_over(&snapshot, name, stage).await {
                        tracing::debug!(keyspace = &**name, error, "handover deferred");
                        if now >= stage.remind_at {
                            tracing::warn!(
                                keyspace = &**name,
                                error,
                                "lightweight transactions of a keyspace are not handed over to \
                                its new replicas yet"
                            );
                            stage.remind_at = now + REMIND;
                        }
                    }
                }
            }
        };
        // A closed gate: the node stops.
        let _ = self.env.gate.spawn(&self.env.rt, Group::Gossip, "handovers", task);
    }

    /// Returns true if a keyspace is to be handed over and this node is the one that does it.
    fn hands_over(&self, snapshot: &ClusterSnapshot) -> bool {
        let me = snapshot.local.host_id;
        let is_there = |host: HostId| host == me || self.env.liveness.is_alive(host);
        let members = snapshot.members.values().filter(|m| m.state == MemberState::Normal);
        let first = members.map(|m| m.host_id).find(|host| is_there(*host));
        !snapshot.handovers.is_empty() && first == Some(me)
    }

    /// Asks every heir of a stage once, and ends the stage when all have taken over.
    async fn hand_over(
        &self,
        snapshot: &ClusterSnapshot,
        keyspace: &str,
        stage: &mut Waiting,
    ) -> Result<()> {
        let epoch = stage.epoch;
        self.steps.wait_until_applied(epoch).await.map_err(|e| e.to_string())?;
        let is_over = self.env.rt.now().since(stage.since) >= PATIENCE;
        let order = Order { what: What::Keyspace(keyspace.to_owned()), epoch };
        let mut down: BTreeSet<HostId> = BTreeSet::new();
        let mut waits_for: Option<String> = None;
        for host in snapshot.heirs(keyspace) {
            if stage.done.contains(&host) {
                continue;
            }
            let is_me = host == snapshot.local.host_id;
            if !is_me && !self.env.liveness.is_alive(host) {
                down.insert(host);
                continue;
            }
            let answer = match is_me {
                true => match self.copies.order(&order, Mover::Dead) {
                    Job::Running => Ok(false),
                    Job::Done => Ok(true),
                    Job::Failed(text) => Err(text),
                },
                false => {
                    let taken = self.copies.ask_to_take_over(host, &order).await;
                    taken.map(|taken| taken.is_done).map_err(|e| e.to_string())
                }
            };
            match answer {
                Ok(true) => {
                    stage.done.insert(host);
                }
                Ok(false) => {
                    waits_for.get_or_insert(format!("node {host} copies"));
                }
                Err(text) => {
                    waits_for = Some(format!("node {host}: {text}"));
                }
            }
        }
        if let Some(text) = waits_for {
            return Err(text);
        }
        if let Some(host) = down.first() {
            if !is_over || !snapshot.may_end_without(keyspace, &down) {
                return Err(format!(
                    "node {host} is down: start it, or take it out of the cluster"
                ));
            }
            tracing::warn!(
                keyspace,
                ?down,
                "new replicas are down and miss decisions of lightweight transactions; repair \
                the keyspace when they are back"
            );
        }
        let step = HandoverStep { keyspace: keyspace.to_owned(), done: Some(epoch) };
        let submitted = self.steps.submit_until_done(Some(self.env.rt.now()), |snapshot| {
            let known = snapshot.handovers.get(keyspace).is_some_and(|h| h.since == epoch);
            known.then(|| Transformation::HandOver(step.clone()))
        });
        submitted.await.map_err(|e| e.to_string())?;
        tracing::info!(keyspace, "handed over lightweight transactions to the new replicas");
        Ok(())
    }
}
