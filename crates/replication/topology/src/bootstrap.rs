//! The way of this node to `Normal`: finishing a join at the start, and resuming after an interrupted movement.
//! The steps and why they are safe: `cluster::topology`.

use std::rc::Rc;
use std::time::Duration;

use cluster::{ClusterSnapshot, Member, MemberState, Transformation};
use stdx::HostId;
use streaming::{MayLack, PlanError, StreamError};

use crate::copies::{Fetch, REGISTERS, RangeCopies};
use crate::env::Env;
use crate::error::{Result as TopologyResult, TopologyError};
use crate::resume_state::Received;
use crate::steps::Steps;
use crate::{description, seeds};

/// Longest wait of a start for its peers, the wait before it asks the missing ones, and the pause
/// between two checks.
const SETTLE: Duration = Duration::from_secs(3);
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Pause before data that could not be taken over is fetched again.
const FETCH_PAUSE: Duration = Duration::from_secs(5);
/// Attempts for which a node that replaces a dead one waits for more replicas to be alive, before
/// it continues without them.
const PATIENCE_WITH_REPLICAS: usize = 6;
/// Name of the file with the received ranges of a join.
const JOIN: &str = "join";
/// Patience with changes that only describe this node.
const DESCRIBE: Duration = Duration::from_secs(10);

/// Returns true if users have created tables. Tables of the system do not count: no client was
/// promised the data of `system_auth`, `system_distributed` and `system_traces`.
fn has_user_tables(snapshot: &ClusterSnapshot) -> bool {
    let mut keyspaces = snapshot.schema.keyspaces.values();
    keyspaces.any(|k| !k.name.starts_with("system") && !k.tables.is_empty())
}

/// Outcome of the attempts to take over data so far.
#[derive(Clone, Copy, Default)]
struct Takeover {
    /// Attempts that could not be made.
    refusals: usize,
    /// The last one did without data that only nodes that are down have.
    goes_without: bool,
}

/// The way of this node to `Normal`. Clones share.
#[derive(Clone)]
pub struct Bootstrap {
    env: Rc<Env>,
    steps: Steps,
    copies: RangeCopies,
}

impl Bootstrap {
    pub(crate) fn new(env: &Rc<Env>) -> Bootstrap {
        Bootstrap { env: env.clone(), steps: Steps::new(env), copies: RangeCopies::new(env) }
    }

    /// Updates this node's entry in the metadata: its addresses, shards, release. When too few
    /// voters answer, the start continues and the update is retried until it is done. Shard 0 only.
    ///
    /// # Errors
    /// An address of the configuration belongs to another member.
    pub async fn describe_itself(&self) -> TopologyResult<()> {
        let host = self.env.membership.snapshot().local.host_id;
        let (options, shards) = (self.env.options.clone(), self.env.rt.shard_count());
        // A wrong address in the configuration fails the start here.
        description::describe(&options, host, shards, &self.env.membership.snapshot().members)?;
        let wanted = move |snapshot: &ClusterSnapshot| {
            let description =
                description::describe(&options, host, shards, &snapshot.members).ok()?;
            let after = snapshot.apply(&description).ok();
            let is_same = after.is_some_and(|after| after.members == snapshot.members);
            (!is_same).then(|| description.clone())
        };
        let give_up = self.env.rt.now() + DESCRIBE;
        match self.steps.submit_until_done(Some(give_up), wanted.clone()).await {
            Ok(()) => Ok(()),
            Err(error) if error.lacks_voters() => {
                tracing::warn!(
                    %error,
                    "cannot record this node's address and shards yet; retrying"
                );
                let this = self.clone();
                let task = async move {
                    if let Err(error) = this.steps.submit_until_done(None, wanted).await {
                        tracing::warn!(%error, "cannot record this node's address");
                    }
                };
                let _ = self.env.gate.spawn(&self.env.rt, rt::Group::Gossip, "describe", task);
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
    pub async fn come_to_normal(&self) -> TopologyResult<()> {
        let mut begun = false;
        loop {
            let snapshot = self.env.membership.snapshot();
            let host = snapshot.local.host_id;
            // Without tables of users no data moves and no replica can miss a write: no step waits.
            let has_tables = has_user_tables(&snapshot);
            let Some(member) = snapshot.local_member() else {
                return Err(TopologyError::Removed { host });
            };
            let Some(next) = self.prepare_step(&snapshot, member, has_tables).await? else { break };
            begun |= matches!(member.state, MemberState::Joining | MemberState::JoinHandover);
            let from = member.state;
            let submitted = self.steps.submit_until_done(None, |snapshot| {
                let member = snapshot.members.get(&host)?;
                // A table was created meanwhile: the step is repeated, with it.
                let as_seen = member.state == from && (has_tables || !has_user_tables(snapshot));
                as_seen.then_some(Transformation::SetState { host, state: next })
            });
            match submitted.await {
                Ok(()) => {}
                Err(_) if self.env.rt.is_stop_requested() => return Err(TopologyError::Stopped),
                Err(error) => return Err(error.into()),
            }
        }
        if begun {
            tracing::info!("joined the cluster");
            let work_dir = &self.env.options.workdir;
            Received::load(&self.env.rt, work_dir, JOIN, String::new()).await.forget().await;
        }
        self.steps.settle_voters();
        Ok(())
    }

    /// Does the work before the next step of this node, and returns that step, if there is one at
    /// the start.
    async fn prepare_step(
        &self,
        snapshot: &ClusterSnapshot,
        member: &Member,
        has_tables: bool,
    ) -> TopologyResult<Option<MemberState>> {
        let next = match member.state {
            MemberState::Normal => return Ok(None),
            MemberState::Joining => {
                if has_tables {
                    self.take_over_ranges(snapshot).await?;
                }
                self.check_replaced(member)?;
                MemberState::JoinHandover
            }
            MemberState::JoinHandover => {
                if has_tables {
                    self.steps.wait_until_applied(snapshot.epoch).await?;
                }
                self.check_replaced(member)?;
                if let Some(old) = member.replaces {
                    self.take_vote_of_replaced(old).await?;
                }
                MemberState::Normal
            }
            // A decommission that was interrupted when all was copied. Reads use the other replicas
            // already: back here this node could return less than they did. The decommission
            // resumes when this node serves (`leaving`).
            MemberState::LeaveHandover => return Ok(None),
            MemberState::Leaving => {
                tracing::warn!("decommission rolled back");
                MemberState::Normal
            }
            MemberState::MoveHandover => {
                if has_tables {
                    self.steps.wait_until_applied(snapshot.epoch).await?;
                }
                MemberState::Normal
            }
            MemberState::Moving => {
                tracing::warn!("move rolled back: this node keeps its tokens");
                MemberState::Normal
            }
        };
        Ok(Some(next))
    }

    /// Waits until every other full member counts as alive, or does not answer at its address; no longer
    /// than [`SETTLE`]. Without it the first statements would be refused for want of replicas. Shard 0
    /// only.
    pub async fn settle(&self) {
        let end = self.env.rt.now() + SETTLE;
        let mut asked: Option<Vec<HostId>> = None;
        loop {
            let snapshot = self.env.membership.snapshot();
            let me = snapshot.local.host_id;
            let full = snapshot.members.values().filter(|m| m.state == MemberState::Normal);
            let missing =
                full.filter(|m| m.host_id != me && !self.env.liveness.is_alive(m.host_id));
            let missing: Vec<_> =
                missing.filter(|m| m.storage != cluster::ADDRESS_UNKNOWN).collect();
            let waits = match &asked {
                None => !missing.is_empty(),
                Some(answered) => missing.iter().any(|m| answered.contains(&m.host_id)),
            };
            let now = self.env.rt.now();
            if !waits || now >= end {
                return;
            }
            if asked.is_none() && now + SETTLE >= end + FIRST_LOOK {
                let addresses: Vec<_> = missing.iter().map(|m| m.storage).collect();
                let asking = seeds::ask_all(&self.env.rt, &self.env.messaging, &addresses);
                // A node that has not answered by then counts as down.
                let Ok(answers) = self.env.rt.timeout(end, asking).await else { return };
                let here = answers.into_iter().filter_map(|(_, answer)| Some(answer.ok()?.host_id));
                asked = Some(here.collect());
                continue;
            }
            let next = now + LOOK_AGAIN;
            if self.env.rt.timeout(next, self.env.rt.stop_requested()).await.is_ok() {
                return;
            }
        }
    }

    /// Takes over the data of the ranges that this node will own.
    ///
    /// # Errors
    /// `Streaming`: this node cannot keep it; `Stopped`.
    async fn take_over_ranges(&self, snapshot: &ClusterSnapshot) -> TopologyResult<()> {
        if !self.env.options.auto_bootstrap {
            tracing::warn!(
                "joining without fetching data (auto_bootstrap is false): repair this node \
                before clients read from it"
            );
            return Ok(());
        }
        // From here on every write reaches this node too, except those that had begun before.
        self.steps.wait_until_applied(snapshot.epoch).await?;
        self.env.pause(self.env.options.write_request_timeout).await?;
        let received = self.received_before(snapshot).await;
        let mut takeover = Takeover::default();
        while !self.take_over_rest(&received, &mut takeover).await? {
            self.env.pause(FETCH_PAUSE).await?;
        }
        self.take_over_registers(snapshot.local.host_id, takeover).await
    }

    /// Makes one attempt to fetch the missing ranges. Returns true if none is missing any more.
    async fn take_over_rest(
        &self,
        received: &Received,
        takeover: &mut Takeover,
    ) -> TopologyResult<bool> {
        let liveness = self.env.liveness.clone();
        let snapshot = self.env.membership.snapshot();
        let me = snapshot.local.host_id;
        let without = !self.env.options.consistent_rangemovement
            || self.goes_without(&snapshot, takeover.refusals);
        // Tables of the system do not delay a join once gossip had a moment to hear of all members.
        let may_lack = match takeover.refusals {
            _ if without => MayLack::Anything,
            0 => MayLack::Nothing,
            _ => MayLack::System,
        };
        let is_alive = move |host| liveness.is_alive(host);
        let plan = match streaming::plan_lacking(&snapshot, me, me, is_alive, may_lack) {
            Ok(plan) => plan,
            Err(PlanError::NoMember(host)) => return Err(TopologyError::Removed { host }),
            Err(error) => {
                takeover.refusals += 1;
                self.check_hope(&snapshot, &error, takeover.refusals)?;
                tracing::warn!(%error, "waiting before fetching data");
                return Ok(false);
            }
        };
        for lack in &plan.lacks {
            tracing::warn!(
                %lack,
                "fetching data without the replicas that are down: writes that only they have \
                are missing; repair this node when they are back"
            );
        }
        takeover.goes_without = without && !plan.lacks.is_empty();
        let plan = received.rest(plan.fetches);
        if plan.is_empty() {
            return Ok(true);
        }
        tracing::info!(ranges = plan.len(), "fetching data");
        let replaces = snapshot.local_member().is_some_and(|member| member.replaces.is_some());
        let operation = if replaces { "Replace" } else { "Bootstrap" };
        let fetch = Fetch { operation, id: self.env.streaming.new_plan(), plan, received };
        match self.copies.fetch_keeping(fetch, &|_| ()).await {
            Ok(report) => {
                tracing::info!(?report, "fetched all data");
                Ok(true)
            }
            Err(error @ StreamError::Incomplete { .. }) => {
                tracing::warn!(%error, "cannot fetch all data yet; retrying");
                Ok(false)
            }
            // A join is not aborted this way: the operator removes the node instead.
            Err(StreamError::Stopping | StreamError::Aborted) => Err(TopologyError::Stopped),
            Err(error @ StreamError::Store(_)) => {
                Err(TopologyError::Streaming { detail: error.to_string() })
            }
        }
    }

    /// Takes over the rounds of lightweight transactions that the present owners know of.
    async fn take_over_registers(&self, me: HostId, takeover: Takeover) -> TopologyResult<()> {
        let Takeover { mut refusals, goes_without } = takeover;
        loop {
            let without = goes_without
                || !self.env.options.consistent_rangemovement
                || self.goes_without(&self.env.membership.snapshot(), refusals);
            let taken =
                self.env.coordinator.lwt().take_over_registers(me, None, without, REGISTERS);
            let Err(error) = taken.await else { return Ok(()) };
            tracing::warn!(
                %error,
                "cannot fetch the state of lightweight transactions yet; retrying"
            );
            refusals += 1;
            self.env.pause(FETCH_PAUSE).await?;
        }
    }

    /// Loads the ranges that earlier runs have received for this node's join.
    async fn received_before(&self, snapshot: &ClusterSnapshot) -> Received {
        let replaces = snapshot.local_member().and_then(|member| member.replaces);
        let key = match replaces {
            Some(old) => format!("replace {old}"),
            None => "join".to_owned(),
        };
        Received::load(&self.env.rt, &self.env.options.workdir, JOIN, key).await
    }

    /// Checks that the dead replicas that a join waits for may still come back. The join is
    /// abandoned if a range has no live replica for too long.
    ///
    /// # Errors
    /// `Streaming`.
    fn check_hope(
        &self,
        snapshot: &ClusterSnapshot,
        error: &PlanError,
        refusals: usize,
    ) -> TopologyResult<()> {
        let PlanError::NoReplica { down, .. } = error else { return Ok(()) };
        let me = snapshot.local.host_id;
        let mut others = snapshot.members.keys().filter(|host| **host != me);
        // A node that sees no live member is cut off itself.
        if refusals <= PATIENCE_WITH_REPLICAS
            || !others.any(|host| self.env.liveness.is_alive(*host))
        {
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
        Err(TopologyError::Streaming { detail })
    }

    /// Returns true if this node replaces a dead one and no more replicas can be waited for.
    fn goes_without(&self, snapshot: &ClusterSnapshot, refusals: usize) -> bool {
        let me = snapshot.local.host_id;
        let Some(old) = snapshot.local_member().and_then(|member| member.replaces) else {
            return false;
        };
        let others = snapshot.members.keys().filter(|host| **host != me && **host != old);
        refusals >= PATIENCE_WITH_REPLICAS || { others }
            .all(|host| self.env.liveness.is_alive(*host))
    }

    /// Checks that the member whose place this node takes has not come back.
    ///
    /// # Errors
    /// `Join`.
    fn check_replaced(&self, member: &Member) -> TopologyResult<()> {
        match member.replaces {
            Some(old) if self.env.liveness.is_alive(old) => {
                let detail = format!(
                    "Cannot replace a live node: node {old} is back; stop it and start this node \
                     again, or keep it and take node {} out (nodetool removenode)",
                    member.host_id
                );
                Err(TopologyError::Join { through: member.storage.to_string(), detail })
            }
            _ => Ok(()),
        }
    }

    /// Removes the vote of the member whose place this node takes.
    ///
    /// # Errors
    /// `Stopped`, `Join`.
    async fn take_vote_of_replaced(&self, old: HostId) -> TopologyResult<()> {
        loop {
            let Err(error) = self.steps.take_vote(old).await else { return Ok(()) };
            tracing::warn!(host = %old, %error, "waiting until the dead node is no longer a voter");
            self.env.pause(FETCH_PAUSE).await?;
        }
    }
}
