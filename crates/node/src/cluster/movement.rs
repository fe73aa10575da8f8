//! Movements of this node through the states of a member: finishing a join at the start, and what a
//! start after an interrupted movement does. The steps and why they are safe: `cluster::topology`.

use std::time::Duration;

use cluster::{ClusterSnapshot, Member, MemberState, Transformation, choose_voters};
use membership::SubmitError;
use stdx::{Epoch, HostId, Instant, Uuid};
use streaming::{FetchProgress, FetchRange, FetchReport, Keep, MayLack, PlanError, StreamError};

use super::member::ClusterShard;
use super::received::Received;
use super::seeds;
use crate::{StartError, open};

/// Pause before a change of the metadata that could not be made is tried again.
const PAUSE: Duration = Duration::from_millis(500);
/// So long after its beginning gossip has heard of every node that is there.
const GOSSIP_SETTLES: Duration = Duration::from_secs(3);
/// How long a start waits for the peers at most, how long before it asks who is there, and between two
/// looks.
const SETTLE: Duration = Duration::from_secs(3);
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How often it is said in the log that a movement waits.
const REMIND: Duration = Duration::from_secs(10);
/// Before data that could not be taken over is tried again.
const FETCH_PAUSE: Duration = Duration::from_secs(5);
/// How often a node that takes a dead one's place waits for more replicas to be alive, before it
/// goes on with what there is.
const PATIENCE_WITH_REPLICAS: usize = 6;
/// For one answer about rounds of lightweight transactions.
pub(super) const REGISTERS: Duration = Duration::from_secs(10);
/// Names what was received of a join.
const JOIN: &str = "join";
/// Patience with changes that only describe this node.
const DESCRIBE: Duration = Duration::from_secs(10);

/// Whether there are tables that users made and several nodes share. The tables of `system_auth`,
/// `system_distributed` and `system_traces` hold nothing that anybody was promised.
fn has_user_tables(snapshot: &ClusterSnapshot) -> bool {
    let mut keyspaces = snapshot.schema.keyspaces.values();
    keyspaces.any(|k| !k.name.starts_with("system") && !k.tables.is_empty())
}

impl ClusterShard {
    /// Submits what `entry` makes of the present snapshot until that is decided or there is nothing
    /// to change; to `give_up`, when there is one, while too few voters answer.
    ///
    /// # Errors
    /// It does not fit, or the patience is over.
    pub(crate) async fn submit_until_done(
        &self,
        give_up: Option<Instant>,
        entry: impl Fn(&ClusterSnapshot) -> Option<Transformation>,
    ) -> Result<(), SubmitError> {
        loop {
            let snapshot = self.membership.snapshot();
            let Some(entry) = entry(&snapshot) else { return Ok(()) };
            let error = match self.membership.submit(snapshot.epoch, vec![entry]).await {
                Ok(_) => return Ok(()),
                Err(SubmitError::Conflict(_)) => continue,
                Err(error) => error,
            };
            let is_passing =
                matches!(error, SubmitError::NoMajority { .. } | SubmitError::Unknown { .. });
            let is_late = give_up.is_some_and(|at| self.rt.now() >= at);
            if !is_passing || is_late {
                return Err(error);
            }
            tracing::debug!(%error, "a change of the cluster waits");
            let pause = self.rt.now() + PAUSE;
            if self.rt.timeout(pause, self.rt.stop_requested()).await.is_ok() {
                return Err(error);
            }
        }
    }

    /// Brings what the metadata says of this node up to date: its addresses, shards, release. When
    /// too few voters answer it goes on and is tried again until it is done. Shard 0 only.
    ///
    /// # Errors
    /// An address of the configuration belongs to another member.
    pub(crate) async fn describe_itself(&self) -> Result<(), StartError> {
        let host = self.membership.snapshot().local.host_id;
        let (options, shards) = (self.options.clone(), self.rt.shard_count());
        // The addresses can be told, or the start fails here.
        open::describe(&options, host, shards, &self.membership.snapshot().members)?;
        let wanted = move |snapshot: &ClusterSnapshot| {
            let description = open::describe(&options, host, shards, &snapshot.members).ok()?;
            let after = snapshot.apply(&description).ok();
            let is_same = after.is_some_and(|after| after.members == snapshot.members);
            (!is_same).then(|| description.clone())
        };
        let give_up = self.rt.now() + DESCRIBE;
        match self.submit_until_done(Some(give_up), wanted.clone()).await {
            Ok(()) => Ok(()),
            Err(SubmitError::NoMajority { .. } | SubmitError::Unknown { .. }) => {
                tracing::warn!(
                    "the others could not be told this node's address and shards; \
                    they are as soon as a majority of the voters answers"
                );
                let this = self.clone();
                let task = async move {
                    if let Err(error) = this.submit_until_done(None, wanted).await {
                        tracing::warn!(%error, "this node's address could not be told");
                    }
                };
                let _ = self.gate.spawn(&self.rt, rt::Group::Gossip, "describe", task);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Takes this node to `Normal` from whatever state its last run left it in. Shard 0 only; the
    /// node serves its peers already, and no clients yet.
    ///
    /// # Errors
    /// `Removed`, `Streaming`, `Submit`, `Stopped`; `Join` when the node that it replaces lives.
    pub(crate) async fn come_to_normal(&self) -> Result<(), StartError> {
        let mut begun = false;
        loop {
            let snapshot = self.membership.snapshot();
            let host = snapshot.local.host_id;
            // Without tables of users nothing moves and nobody can miss a write: no step waits.
            let has_tables = has_user_tables(&snapshot);
            let Some(member) = snapshot.local_member() else {
                return Err(StartError::Removed { host });
            };
            let next = match member.state {
                MemberState::Normal => break,
                MemberState::Joining => {
                    begun = true;
                    if has_tables {
                        self.take_over_ranges(&snapshot).await?;
                    }
                    self.check_replaced(member)?;
                    MemberState::JoinHandover
                }
                MemberState::JoinHandover => {
                    begun = true;
                    if has_tables {
                        self.wait_until_applied(snapshot.epoch).await?;
                    }
                    self.check_replaced(member)?;
                    if let Some(old) = member.replaces {
                        self.take_vote_of_replaced(old).await?;
                    }
                    MemberState::Normal
                }
                // A decommission that was cut off when all was copied. The others are read from
                // already: back here it could show less than they did. It goes on when this node
                // serves (`leaving`).
                MemberState::LeaveHandover => break,
                MemberState::Leaving => {
                    tracing::warn!("this node was about to leave; it is a member again");
                    MemberState::Normal
                }
                MemberState::MoveHandover => {
                    if has_tables {
                        self.wait_until_applied(snapshot.epoch).await?;
                    }
                    MemberState::Normal
                }
                MemberState::Moving => {
                    tracing::warn!("this node was about to move; it stays where it was");
                    MemberState::Normal
                }
            };
            let from = member.state;
            let submitted = self.submit_until_done(None, |snapshot| {
                let member = snapshot.members.get(&host)?;
                // A table that has come meanwhile: the step is gone through again, with it.
                let as_seen = member.state == from && (has_tables || !has_user_tables(snapshot));
                as_seen.then_some(Transformation::SetState { host, state: next })
            });
            match submitted.await {
                Ok(()) => {}
                Err(_) if self.rt.is_stop_requested() => return Err(StartError::Stopped),
                Err(error) => return Err(error.into()),
            }
        }
        if begun {
            tracing::info!("joined the cluster");
            let work_dir = &self.options.workdir;
            Received::load(&self.rt, work_dir, JOIN, String::new()).await.forget().await;
        }
        self.settle_voters();
        Ok(())
    }

    /// Waits until every other full member counts as alive, or does not answer at its address; no longer
    /// than [`SETTLE`]. Without it the first statements would be refused for want of replicas. Shard 0
    /// only.
    pub(crate) async fn settle(&self) {
        let end = self.rt.now() + SETTLE;
        let mut asked: Option<Vec<HostId>> = None;
        loop {
            let snapshot = self.membership.snapshot();
            let me = snapshot.local.host_id;
            let full = snapshot.members.values().filter(|m| m.state == MemberState::Normal);
            let missing = full.filter(|m| m.host_id != me && !self.liveness.is_alive(m.host_id));
            let missing: Vec<_> =
                missing.filter(|m| m.storage != cluster::ADDRESS_UNKNOWN).collect();
            let waits = match &asked {
                None => !missing.is_empty(),
                Some(answered) => missing.iter().any(|m| answered.contains(&m.host_id)),
            };
            let now = self.rt.now();
            if !waits || now >= end {
                return;
            }
            if asked.is_none() && now + SETTLE >= end + FIRST_LOOK {
                let addresses: Vec<_> = missing.iter().map(|m| m.storage).collect();
                let asking = seeds::ask_all(&self.rt, &self.messaging, &addresses);
                // Who has not answered by then does not count.
                let Ok(answers) = self.rt.timeout(end, asking).await else { return };
                let here = answers.into_iter().filter_map(|(_, answer)| Some(answer.ok()?.host_id));
                asked = Some(here.collect());
                continue;
            }
            let next = now + LOOK_AGAIN;
            if self.rt.timeout(next, self.rt.stop_requested()).await.is_ok() {
                return;
            }
        }
    }

    /// Waits until every live member says that it has applied an epoch. Who is down asks for it
    /// before it serves anybody again.
    pub(crate) async fn wait_until_applied(&self, epoch: Epoch) -> Result<(), StartError> {
        let mut remind_at = self.rt.now() + REMIND;
        loop {
            // An order of an administrator may come before this node gossips.
            let settled = self.gossips_since.get() + GOSSIP_SETTLES;
            let snapshot = self.membership.snapshot();
            let me = snapshot.local.host_id;
            let behind = |host: &HostId| {
                *host != me && self.liveness.applied_epoch(*host).is_some_and(|at| at < epoch)
            };
            let waits_for = snapshot.members.keys().copied().find(behind);
            let now = self.rt.now();
            match waits_for {
                None if now >= settled => return Ok(()),
                Some(host) if now >= remind_at => {
                    tracing::info!(%host, epoch = epoch.0, "waiting until a node has applied a change");
                    remind_at = now + REMIND;
                }
                _ => {}
            }
            let next = now + Duration::from_millis(100);
            if self.rt.timeout(next, self.rt.stop_requested()).await.is_ok() {
                return Err(StartError::Stopped);
            }
        }
    }

    /// Sees to it, beside everything else, that the right members vote on metadata.
    pub(crate) fn settle_voters(&self) {
        let this = self.clone();
        let task = async move {
            let liveness = this.liveness.clone();
            let changed = this.submit_until_done(None, |snapshot| {
                let usable = |m: &cluster::Member| {
                    liveness.is_alive(m.host_id) || snapshot.voters.contains(&m.host_id)
                };
                let hosts = choose_voters(&snapshot.members, &snapshot.voters, usable);
                (hosts != snapshot.voters && !hosts.is_empty())
                    .then_some(Transformation::SetVoters { hosts })
            });
            if let Err(error) = changed.await
                && !this.rt.is_stop_requested()
            {
                tracing::warn!(%error, "the voters on metadata could not be changed");
            }
        };
        // A closed gate: the node stops; another start looks again.
        let _ = self.gate.spawn(&self.rt, rt::Group::Gossip, "voters", task);
    }

    /// Takes over the data of the ranges that this node will own.
    ///
    /// # Errors
    /// `Streaming`: this node cannot keep it; `Stopped`.
    async fn take_over_ranges(&self, snapshot: &ClusterSnapshot) -> Result<(), StartError> {
        if !self.options.auto_bootstrap {
            tracing::warn!(
                "joining without taking over data (auto_bootstrap is false): repair \
                this node before it is read from"
            );
            return Ok(());
        }
        let me = snapshot.local.host_id;
        let replaces = snapshot.local_member().is_some_and(|member| member.replaces.is_some());
        // From here on every write reaches this node too, but for those that had begun before.
        self.wait_until_applied(snapshot.epoch).await?;
        self.pause(self.options.write_request_timeout).await?;
        let mut refusals = 0;
        let received = self.received_before(snapshot).await;
        let goes_without = loop {
            let liveness = self.liveness.clone();
            let snapshot = self.membership.snapshot();
            let without =
                !self.options.consistent_rangemovement || self.goes_without(&snapshot, refusals);
            // Tables of the system hold nobody up, once gossip had a moment to hear of everybody.
            let may_lack = match refusals {
                _ if without => MayLack::Anything,
                0 => MayLack::Nothing,
                _ => MayLack::System,
            };
            let is_alive = move |host| liveness.is_alive(host);
            let plan = match streaming::plan_lacking(&snapshot, me, me, is_alive, may_lack) {
                Ok(plan) => plan,
                Err(PlanError::NoMember(host)) => return Err(StartError::Removed { host }),
                Err(error) => {
                    refusals += 1;
                    self.check_hope(&snapshot, &error, refusals)?;
                    tracing::warn!(%error, "waiting to take over data");
                    self.pause(FETCH_PAUSE).await?;
                    continue;
                }
            };
            for lack in &plan.lacks {
                tracing::warn!(%lack, "taking over what is left: writes that only nodes that are \
                    down have are not in it; repair this node when they are back");
            }
            let goes_without = without && !plan.lacks.is_empty();
            let plan = received.rest(plan.fetches);
            if plan.is_empty() {
                break goes_without;
            }
            tracing::info!(ranges = plan.len(), "taking over data");
            let operation = if replaces { "Replace" } else { "Bootstrap" };
            let operation = (operation, self.streaming.new_plan());
            match self.fetch_keeping(operation, plan, (&received, &|_| ())).await {
                Ok(report) => {
                    tracing::info!(?report, "took over data");
                    break goes_without;
                }
                Err(error @ StreamError::Incomplete { .. }) => {
                    tracing::warn!(%error, "not all data could be taken over; trying again");
                    self.pause(FETCH_PAUSE).await?;
                }
                // Nobody gives up a join in this way: the node is taken out instead.
                Err(StreamError::Stopping | StreamError::Aborted) => {
                    return Err(StartError::Stopped);
                }
                Err(error @ StreamError::Store(_)) => {
                    return Err(StartError::Streaming { detail: error.to_string() });
                }
            }
        };
        // The rounds of lightweight transactions that the present owners know of.
        loop {
            let without = goes_without
                || !self.options.consistent_rangemovement
                || self.goes_without(&self.membership.snapshot(), refusals);
            let taken = self.coordinator.take_over_registers(me, None, without, REGISTERS);
            let Err(error) = taken.await else { return Ok(()) };
            tracing::warn!(%error, "the rounds of lightweight transactions could not be taken over; \
                trying again");
            refusals += 1;
            self.pause(FETCH_PAUSE).await?;
        }
    }

    /// What earlier runs have received of this node's join.
    async fn received_before(&self, snapshot: &ClusterSnapshot) -> Received {
        let replaces = snapshot.local_member().and_then(|member| member.replaces);
        let key = match replaces {
            Some(old) => format!("replace {old}"),
            None => "join".to_owned(),
        };
        Received::load(&self.rt, &self.options.workdir, JOIN, key).await
    }

    /// Fetches under a name and a plan's id, remembers what is here, and tells how far it is.
    pub(super) async fn fetch_keeping(
        &self,
        operation: (&str, Uuid),
        plan: Vec<FetchRange>,
        (received, told): (&Received, &dyn Fn(&FetchProgress)),
    ) -> Result<FetchReport, StreamError> {
        let keep: &Keep<'_> = &|ranges| Box::pin(received.keep(ranges));
        let operation = streaming::Operation { name: operation.0, plan: operation.1 };
        self.streaming.fetch_keeping(operation, plan, told, keep).await
    }

    /// That the dead replicas that a join waits for may come back by themselves: with nobody alive
    /// who has a range it is given up after a while.
    ///
    /// # Errors
    /// `Streaming`.
    fn check_hope(
        &self,
        snapshot: &ClusterSnapshot,
        error: &PlanError,
        refusals: usize,
    ) -> Result<(), StartError> {
        let PlanError::NoReplica { down, .. } = error else { return Ok(()) };
        let me = snapshot.local.host_id;
        let mut others = snapshot.members.keys().filter(|host| **host != me);
        // Who sees nobody at all is cut off itself.
        if refusals <= PATIENCE_WITH_REPLICAS || !others.any(|host| self.liveness.is_alive(*host)) {
            return Ok(());
        }
        let remove = |host: &HostId| format!("nodetool removenode {host}");
        let removals: Vec<String> = std::iter::once(&me).chain(down).map(remove).collect();
        let detail = format!(
            "{error}. Start what is down, then this node again. Or take both out ({}) and let this \
             node join with an empty data directory. Or set consistent_rangemovement to false to \
             join without that data",
            removals.join("; ")
        );
        Err(StartError::Streaming { detail })
    }

    /// Whether this node takes a dead one's place and no more replicas can be waited for.
    fn goes_without(&self, snapshot: &ClusterSnapshot, refusals: usize) -> bool {
        let me = snapshot.local.host_id;
        let Some(old) = snapshot.local_member().and_then(|member| member.replaces) else {
            return false;
        };
        let others = snapshot.members.keys().filter(|host| **host != me && **host != old);
        refusals >= PATIENCE_WITH_REPLICAS || { others }.all(|host| self.liveness.is_alive(*host))
    }

    /// That the member whose place this node takes has not come back.
    ///
    /// # Errors
    /// `Join`.
    fn check_replaced(&self, member: &Member) -> Result<(), StartError> {
        match member.replaces {
            Some(old) if self.liveness.is_alive(old) => {
                let detail = format!(
                    "Cannot replace a live node: node {old} is back; stop it and start this node \
                     again, or keep it and take node {} out (nodetool removenode)",
                    member.host_id
                );
                Err(StartError::Join { through: member.storage.to_string(), detail })
            }
            _ => Ok(()),
        }
    }

    /// Sees to it that the member whose place this node takes does not vote.
    ///
    /// # Errors
    /// `Stopped`, `Join`.
    async fn take_vote_of_replaced(&self, old: HostId) -> Result<(), StartError> {
        loop {
            let Err(error) = self.take_vote(old).await else { return Ok(()) };
            tracing::warn!(host = %old, %error, "waiting until the dead node does not vote any more");
            self.pause(FETCH_PAUSE).await?;
        }
    }

    /// # Errors
    /// `Stopped` when the node is asked to stop meanwhile.
    pub(crate) async fn pause(&self, pause: Duration) -> Result<(), StartError> {
        let end = self.rt.now() + pause;
        match self.rt.timeout(end, self.rt.stop_requested()).await {
            Ok(()) => Err(StartError::Stopped),
            Err(_) => Ok(()),
        }
    }
}
