//! Keyspaces that get other replicas (ALTER KEYSPACE): what was decided for their lightweight
//! transactions is handed over. The stages and why they are safe: `cluster::handover`.
//!
//! The live member with the lowest host id orders every heir to take over (verb `TakeOver`), asks again
//! until it is done, and ends the stage in the log. Another one goes on when it dies: an order that was
//! carried out is carried out again without harm.
//!
//! After [`PATIENCE`] heirs that are down are passed over, when the others are enough. Else it waits, and
//! says so in the log: what a quorum decided is not given up because nodes are down. Who is down for
//! good is taken out (`nodetool assassinate`), which needs no handover to be over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::{ClusterSnapshot, HandoverStep, MemberState, Stage, Transformation};
use rt::Group;
use stdx::{Epoch, HostId, Instant};
use streaming::FetchProgress;

use super::leaving::{Job, Order, What};
use super::member::ClusterShard;
use super::movement::REGISTERS;
use super::received::Received;

/// How long a stage waits for what is down.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at what is handed over.
const PAUSE: Duration = Duration::from_millis(500);
/// How often it is said in the log that a stage waits.
const REMIND: Duration = Duration::from_secs(10);

type Result<T> = std::result::Result<T, String>;

/// Since when a stage waits for somebody.
struct Waiting {
    epoch: Epoch,
    since: Instant,
    remind_at: Instant,
    done: BTreeSet<HostId>,
}

impl ClusterShard {
    /// Carries handovers out, as long as this is the first live member. Shard 0 only.
    pub(crate) fn hand_over_keyspaces(&self) {
        let this = self.clone();
        let task = async move {
            let mut waiting: BTreeMap<String, Waiting> = BTreeMap::new();
            loop {
                let next = this.rt.now() + PAUSE;
                if this.rt.timeout(next, this.rt.stop_requested()).await.is_ok() {
                    return;
                }
                let snapshot = this.membership.snapshot();
                waiting.retain(|name, w| {
                    snapshot.handovers.get(name.as_str()).is_some_and(|h| h.since == w.epoch)
                });
                if !this.hands_over(&snapshot) {
                    waiting.clear();
                    continue;
                }
                for (name, handover) in &snapshot.handovers {
                    let now = this.rt.now();
                    let stage = waiting.entry(name.to_string()).or_insert(Waiting {
                        epoch: handover.since,
                        since: now,
                        remind_at: now + REMIND,
                        done: BTreeSet::new(),
                    });
                    if let Err(error) = this.hand_over(&snapshot, name, stage).await {
                        tracing::debug!(keyspace = &**name, error, "a handover waits");
                        if now >= stage.remind_at {
                            tracing::warn!(
                                keyspace = &**name,
                                error,
                                "a keyspace's lightweight \
                                transactions are not handed over to its new replicas yet"
                            );
                            stage.remind_at = now + REMIND;
                        }
                    }
                }
            }
        };
        // A closed gate: the node stops.
        let _ = self.gate.spawn(&self.rt, Group::Gossip, "handovers", task);
    }

    /// Waits a while for handovers to end before a node begins to go or move, which the log refuses till
    /// then.
    pub(super) async fn wait_for_handovers(&self) {
        let give_up = self.rt.now() + PATIENCE;
        while !self.membership.snapshot().handovers.is_empty() && self.rt.now() < give_up {
            let next = self.rt.now() + PAUSE / 5;
            if self.rt.timeout(next, self.rt.stop_requested()).await.is_ok() {
                return;
            }
        }
    }

    /// Whether there is something to hand over, and this node is the one that does it.
    fn hands_over(&self, snapshot: &ClusterSnapshot) -> bool {
        let me = snapshot.local.host_id;
        let is_there = |host: HostId| host == me || self.liveness.is_alive(host);
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
        self.wait_until_applied(epoch).await.map_err(|e| e.to_string())?;
        let is_over = self.rt.now().since(stage.since) >= PATIENCE;
        let order = Order { what: What::Keyspace(keyspace.to_owned()), epoch };
        let mut down: BTreeSet<HostId> = BTreeSet::new();
        let mut waits_for: Option<String> = None;
        for host in snapshot.heirs(keyspace) {
            if stage.done.contains(&host) {
                continue;
            }
            let is_me = host == snapshot.local.host_id;
            if !is_me && !self.liveness.is_alive(host) {
                down.insert(host);
                continue;
            }
            let answer = match is_me {
                true => match self.order(&order, false) {
                    Job::Running => Ok(false),
                    Job::Done => Ok(true),
                    Job::Failed(text) => Err(text),
                },
                false => {
                    let taken = self.ask_to_take_over(host, &order).await;
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
                "new replicas are down: they do not have what \
                lightweight transactions decided; repair the keyspace when they are back"
            );
        }
        let step = HandoverStep { keyspace: keyspace.to_owned(), done: Some(epoch) };
        let submitted = self.submit_until_done(Some(self.rt.now()), |snapshot| {
            let known = snapshot.handovers.get(keyspace).is_some_and(|h| h.since == epoch);
            known.then(|| Transformation::HandOver(step.clone()))
        });
        submitted.await.map_err(|e| e.to_string())?;
        tracing::info!(keyspace, "the new replicas know what lightweight transactions decided");
        Ok(())
    }

    /// Takes over what this node inherits in a stage.
    pub(super) async fn inherit(&self, keyspace: &str, epoch: Epoch) -> Result<()> {
        let snapshot = self.membership.snapshot();
        let me = snapshot.local.host_id;
        let present = snapshot.handovers.get(keyspace).filter(|h| h.since == epoch);
        let Some(handover) = present else {
            return Err("the keyspace is not handed over any more".to_owned());
        };
        if handover.stage == Stage::Gaining {
            let liveness = self.liveness.clone();
            let is_alive = move |host| host == me || liveness.is_alive(host);
            let plan = streaming::plan_inheritance(&snapshot, keyspace, me, is_alive);
            let plan = plan.map_err(|error| error.to_string())?;
            let (name, key) =
                (format!("keyspace-{keyspace}"), format!("{keyspace} since {}", epoch.0));
            let received = Received::load(&self.rt, &self.options.workdir, &name, key).await;
            let rest = received.rest(plan);
            if !rest.is_empty() {
                let operation = ("Replication change", self.streaming.new_plan());
                let copies = &self.orders.copies;
                let key = What::Keyspace(keyspace.to_owned()).key();
                let told = |p: &FetchProgress| copies.note_own(&key, p.into());
                let fetched = self.fetch_keeping(operation, rest, (&received, &told)).await;
                fetched.map_err(|error| error.to_string())?;
            }
            received.forget().await;
        }
        let taken = self.coordinator.lwt().inherit_registers(keyspace, REGISTERS).await;
        taken.map(|_| ()).map_err(|error| error.to_string())
    }
}
