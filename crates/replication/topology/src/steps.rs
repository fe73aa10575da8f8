//! One change of the metadata at a time: submits it until it is decided, and waits until it is applied everywhere.

use std::rc::Rc;
use std::time::Duration;

use cluster::{ClusterSnapshot, MemberState, Transformation, choose_voters};
use membership::SubmitError;
use stdx::{Epoch, HostId, Instant};

use crate::env::Env;
use crate::error::{Result as TopologyResult, TopologyError};

/// Pause before a change of the metadata that could not be made is tried again.
const PAUSE: Duration = Duration::from_millis(500);
/// Time from its start after which gossip has heard of every live node.
const GOSSIP_SETTLES: Duration = Duration::from_secs(3);
/// Interval of the log line that says that a movement waits.
const REMIND: Duration = Duration::from_secs(10);
/// Patience with the voters at each step.
pub(crate) const SUBMIT: Duration = Duration::from_secs(30);
/// Longest wait for handovers of keyspaces before a node moves, and the pause between two checks.
const HANDOVERS: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

type Result<T> = std::result::Result<T, String>;

/// Changes of the metadata, step by step. Clones share.
#[derive(Clone)]
pub(crate) struct Steps {
    env: Rc<Env>,
}

impl Steps {
    pub(crate) fn new(env: &Rc<Env>) -> Steps {
        Steps { env: env.clone() }
    }

    /// Submits the change that `entry` derives from the present snapshot until it is decided or
    /// there is nothing to change. Too few voters are tolerated until `give_up`, if it is given.
    ///
    /// # Errors
    /// It does not fit, or the patience is over.
    pub(crate) async fn submit_until_done(
        &self,
        give_up: Option<Instant>,
        entry: impl Fn(&ClusterSnapshot) -> Option<Transformation>,
    ) -> std::result::Result<(), SubmitError> {
        loop {
            let snapshot = self.env.membership.snapshot();
            let Some(entry) = entry(&snapshot) else { return Ok(()) };
            let error = match self.env.membership.submit(snapshot.epoch, vec![entry]).await {
                Ok(_) => return Ok(()),
                Err(SubmitError::Conflict(_)) => continue,
                Err(error) => error,
            };
            let is_late = give_up.is_some_and(|at| self.env.rt.now() >= at);
            if !error.lacks_voters() || is_late {
                return Err(error);
            }
            tracing::debug!(%error, "change of the cluster deferred");
            let pause = self.env.rt.now() + PAUSE;
            if self.env.rt.timeout(pause, self.env.rt.stop_requested()).await.is_ok() {
                return Err(error);
            }
        }
    }

    /// Waits until every live member reports that it has applied an epoch. A node that is down
    /// requests the epoch before it serves any client again.
    pub(crate) async fn wait_until_applied(&self, epoch: Epoch) -> TopologyResult<()> {
        let mut remind_at = self.env.rt.now() + REMIND;
        loop {
            // An operator's order may arrive before this node gossips.
            let settled = self.env.gossips_since.get() + GOSSIP_SETTLES;
            let snapshot = self.env.membership.snapshot();
            let me = snapshot.local.host_id;
            let behind = |host: &HostId| {
                *host != me && self.env.liveness.applied_epoch(*host).is_some_and(|at| at < epoch)
            };
            let waits_for = snapshot.members.keys().copied().find(behind);
            let now = self.env.rt.now();
            match waits_for {
                None if now >= settled => return Ok(()),
                Some(host) if now >= remind_at => {
                    tracing::info!(%host, epoch = epoch.0, "waiting until a node has applied a change");
                    remind_at = now + REMIND;
                }
                _ => {}
            }
            let next = now + Duration::from_millis(100);
            if self.env.rt.timeout(next, self.env.rt.stop_requested()).await.is_ok() {
                return Err(TopologyError::Stopped);
            }
        }
    }

    /// Starts a task that keeps the right members voting on metadata.
    pub(crate) fn settle_voters(&self) {
        let this = self.clone();
        let task = async move {
            let liveness = this.env.liveness.clone();
            let changed = this.submit_until_done(None, |snapshot| {
                let usable = |m: &cluster::Member| {
                    liveness.is_alive(m.host_id) || snapshot.voters.contains(&m.host_id)
                };
                let hosts = choose_voters(&snapshot.members, &snapshot.voters, usable);
                (hosts != snapshot.voters && !hosts.is_empty())
                    .then_some(Transformation::SetVoters { hosts })
            });
            if let Err(error) = changed.await
                && !this.env.rt.is_stop_requested()
            {
                tracing::warn!(%error, "cannot change the voters of the metadata log");
            }
        };
        // A closed gate: the node stops; another start checks again.
        let _ = self.env.gate.spawn(&self.env.rt, rt::Group::Gossip, "voters", task);
    }

    /// Takes `host` from one state to the next; returns the epoch after it.
    pub(crate) async fn step(
        &self,
        host: HostId,
        from: MemberState,
        to: MemberState,
    ) -> Result<Epoch> {
        self.step_if(host, from, to, || true).await
    }

    /// The same as long as `is_mine` holds, up to the moment at which it is decided.
    pub(crate) async fn step_if(
        &self,
        host: HostId,
        from: MemberState,
        to: MemberState,
        is_mine: impl Fn() -> bool,
    ) -> Result<Epoch> {
        let give_up = self.env.rt.now() + SUBMIT;
        let submitted = self.submit_until_done(Some(give_up), |snapshot| {
            let member = snapshot.members.get(&host)?;
            (member.state == from && is_mine())
                .then_some(Transformation::SetState { host, state: to })
        });
        submitted.await.map_err(|e| e.to_string())?;
        let snapshot = self.env.membership.snapshot();
        match snapshot.members.get(&host) {
            Some(member) if member.state == to => Ok(snapshot.epoch),
            Some(member) if member.state == from => Err(format!(
                "node {host} was restored and ordered to leave again meanwhile: the later order \
                continues"
            )),
            Some(member) => Err(format!("node {host} is {} now", member.state)),
            None => Err(format!("node {host} is no member any more")),
        }
    }

    /// Removes the vote of `host`.
    pub(crate) async fn take_vote(&self, host: HostId) -> Result<()> {
        let liveness = self.env.liveness.clone();
        let give_up = self.env.rt.now() + SUBMIT;
        let submitted = self.submit_until_done(Some(give_up), |snapshot| {
            if !snapshot.voters.contains(&host) {
                return None;
            }
            let present: Vec<HostId> =
                snapshot.voters.iter().copied().filter(|v| *v != host).collect();
            let usable = |m: &cluster::Member| m.host_id != host && liveness.is_alive(m.host_id);
            let hosts = choose_voters(&snapshot.members, &present, usable);
            (!hosts.is_empty()).then_some(Transformation::SetVoters { hosts })
        });
        submitted.await.map_err(|e| e.to_string())
    }

    /// Makes a member that stopped while it left, or moved to other tokens, a full one again. A
    /// member that has reached its handover is excluded: that movement is completed.
    pub(crate) async fn take_back(&self, host: HostId) -> Result<()> {
        use MemberState as S;
        for (from, to) in [(S::Leaving, S::Normal), (S::Moving, S::Normal)] {
            let snapshot = self.env.membership.snapshot();
            if snapshot.members.get(&host).is_some_and(|member| member.state == from) {
                self.step(host, from, to).await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn submit_leave(&self, host: HostId) -> Result<()> {
        let give_up = self.env.rt.now() + SUBMIT;
        let submitted = self.submit_until_done(Some(give_up), |snapshot| {
            // The others may have decided it, and do not answer this node any more.
            let is_out = host == snapshot.local.host_id && self.env.orders.put_out.get();
            let is_member = snapshot.members.contains_key(&host) && !is_out;
            is_member.then_some(Transformation::Leave { host })
        });
        submitted.await.map_err(|e| e.to_string())
    }

    /// Waits a while for handovers to end before a node begins to leave or move: the log refuses
    /// that during a handover.
    pub(crate) async fn wait_for_handovers(&self) {
        let give_up = self.env.rt.now() + HANDOVERS;
        while !self.env.membership.snapshot().handovers.is_empty() && self.env.rt.now() < give_up {
            let next = self.env.rt.now() + LOOK_AGAIN;
            if self.env.rt.timeout(next, self.env.rt.stop_requested()).await.is_ok() {
                return;
            }
        }
    }
}
