//! Members that leave: `decommission` of this node, `removenode` and `assassinate` of dead ones.
//!
//! The node that carries the removal out orders every node that will own more to copy it ([`crate::copies`]),
//! between the two steps of the movement. The steps: `cluster::topology`.

use std::rc::Rc;
use std::time::Duration;

use cluster::{MemberState, Transformation};
use membership::SubmitError;
use rt::Group;
use stdx::{Epoch, HostId, ShardId};

use crate::copies::RangeCopies;
use crate::env::Env;
use crate::hint_handover::HintHandover;
use crate::moving::Relocation;
use crate::orders::Force;
use crate::steps::{SUBMIT, Steps};

/// Pause before a node that stopped during its handover retries to leave.
const GO_ON: Duration = Duration::from_secs(10);

type Result<T> = std::result::Result<T, String>;

/// Removal of members. Clones share.
#[derive(Clone)]
pub struct Departure {
    env: Rc<Env>,
    steps: Steps,
    copies: RangeCopies,
    hints: HintHandover,
    relocation: Relocation,
}

impl Departure {
    pub(crate) fn new(env: &Rc<Env>) -> Departure {
        Departure {
            env: env.clone(),
            steps: Steps::new(env),
            copies: RangeCopies::new(env),
            hints: HintHandover::new(env),
            relocation: Relocation::new(env),
        }
    }

    /// `began`: epoch at which the member became [`MemberState::Leaving`]. If another node took the
    /// removal back and started it again since, the copied ranges miss writes.
    async fn finish_leaving(&self, host: HostId, began: Epoch) -> Result<()> {
        let (from, to) = (MemberState::Leaving, MemberState::LeaveHandover);
        let orders = self.env.orders.clone();
        let epoch = self.steps.step_if(host, from, to, || orders.changed_at.get() == began).await?;
        self.end_leaving(host, epoch).await
    }

    /// Completes the removal: all is copied, and since `epoch` reads use the other replicas. There
    /// is no way back: data that was read there and never acknowledged need not be on the former
    /// replicas.
    async fn end_leaving(&self, host: HostId, epoch: Epoch) -> Result<()> {
        self.steps.wait_until_applied(epoch).await.map_err(|e| e.to_string())?;
        if host == self.env.membership.snapshot().local.host_id {
            self.hints.hand_over_batches().await?;
            self.hints.hand_over_hints().await?;
        }
        self.steps.submit_leave(host).await
    }

    /// Carries out the whole removal of a member that owns data.
    async fn move_out(&self, host: HostId) -> Result<()> {
        self.steps.wait_for_handovers().await;
        let epoch = self.steps.step(host, MemberState::Normal, MemberState::Leaving).await?;
        let began = self.env.orders.changed_at.get();
        let copied = async {
            self.steps.wait_until_applied(epoch).await.map_err(|e| e.to_string())?;
            // Writes that began before the future owners were written to are over then.
            self.env
                .pause(self.env.options.write_request_timeout)
                .await
                .map_err(|e| e.to_string())?;
            self.steps.take_vote(host).await?;
            self.copies.give_away(host, epoch).await?;
            if host == self.env.membership.snapshot().local.host_id {
                // Hands hints over while there is a way back; later hints follow at the end.
                self.hints.hand_over_hints().await?;
            }
            self.env.orders.decide()
        };
        match copied.await {
            Ok(()) => self.finish_leaving(host, began).await,
            Err(error) => {
                // The member owns its ranges as before, unless another node has begun the same
                // removal since.
                let (from, to) = (MemberState::Leaving, MemberState::Normal);
                let orders = self.env.orders.clone();
                let back = self.steps.step_if(host, from, to, || orders.changed_at.get() == began);
                if let Err(also) = back.await {
                    tracing::warn!(
                        %host,
                        error = %also,
                        "cannot make the node a full member again"
                    );
                }
                self.steps.settle_voters();
                Err(error)
            }
        }
    }

    /// Hands this node's data to the others and leaves. Shard 0 only.
    ///
    /// # Errors
    /// Why not, in words for the operator; the node is a member as before.
    pub async fn decommission(&self, force: Force) -> Result<()> {
        let host = self.env.membership.snapshot().local.host_id;
        let _turn = self.env.orders.begin(host)?;
        self.env.orders.loses_hints.set(force == Force::LoseHints);
        drop(self.env.orders.lost_hints.take());
        if self.env.orders.put_out.get() {
            return Ok(());
        }
        let left = async {
            let snapshot = self.env.membership.snapshot();
            match snapshot.local_member().map(|member| member.state) {
                Some(MemberState::LeaveHandover) => self.end_leaving(host, snapshot.epoch).await,
                Some(MemberState::MoveHandover) => {
                    self.relocation.end_moving(host, snapshot.epoch).await?;
                    self.move_out(host).await
                }
                _ => {
                    self.steps.take_back(host).await?;
                    self.move_out(host).await
                }
            }
        };
        let left = left.await;
        self.env.orders.decommission_failed.set(left.is_err());
        left?;
        tracing::info!("this node has left the cluster");
        Ok(())
    }

    /// Resumes the decommission of a node that stopped during its handover. Shard 0 only.
    pub fn go_on_leaving(&self) {
        let hands_over = |this: &Departure| {
            let snapshot = this.env.membership.snapshot();
            snapshot.local_member().is_some_and(|m| m.state == MemberState::LeaveHandover)
        };
        if self.env.rt.shard() != ShardId(0) || !hands_over(self) {
            return;
        }
        tracing::info!("resuming the decommission: all data of this node has been copied");
        let this = self.clone();
        let task = async move {
            while hands_over(&this) {
                if let Err(error) = this.decommission(Force::Nothing).await {
                    tracing::warn!(error, "decommission not complete yet; retrying");
                }
                if this.env.pause(GO_ON).await.is_err() {
                    return;
                }
            }
        };
        // A closed gate: the node stops, and the next start resumes.
        let _ = self.env.gate.spawn(&self.env.rt, Group::Admin, "go-on-leaving", task);
    }

    /// Removes a dead node, and makes the new owners copy its data from the other replicas. Shard 0
    /// only.
    ///
    /// # Errors
    /// Those of [`Departure::decommission`].
    pub async fn remove_node(&self, host: HostId) -> Result<()> {
        let snapshot = self.env.membership.snapshot();
        let state = match snapshot.members.get(&host) {
            Some(member) => member.state,
            None => return Err(format!("node {host} is no member")),
        };
        let _turn = self.env.orders.begin(host)?;
        if self.env.liveness.is_alive(host) {
            return Err(format!("node {host} is alive: decommission it there"));
        }
        match state {
            MemberState::Normal => return self.move_out(host).await,
            MemberState::Joining => {}
            MemberState::JoinHandover => {
                self.steps.step(host, MemberState::JoinHandover, MemberState::Joining).await?;
            }
            // The member died while it left or moved, or the node that removed it died.
            MemberState::Leaving | MemberState::Moving => {
                self.steps.take_back(host).await?;
                return self.move_out(host).await;
            }
            MemberState::LeaveHandover => return self.end_leaving(host, snapshot.epoch).await,
            MemberState::MoveHandover => {
                self.relocation.end_moving(host, snapshot.epoch).await?;
                return self.move_out(host).await;
            }
        }
        self.steps.submit_leave(host).await
    }

    /// Removes a joining node, dead or alive; the ring is as it was before. Shard 0 only.
    ///
    /// # Errors
    /// It has finished meanwhile.
    pub async fn abort_bootstrap(&self, host: HostId) -> Result<()> {
        let state = self.env.membership.snapshot().members.get(&host).map(|m| m.state);
        if state == Some(MemberState::JoinHandover) {
            if self.env.liveness.is_alive(host) {
                return Err("too late: everything is copied and the new replicas are read from \
                    already"
                    .to_owned());
            }
            // A dead node would hold up the ring for good. Data read from it since the handover is
            // on the other replicas too: reads are joint while ranges move.
            self.steps.step(host, MemberState::JoinHandover, MemberState::Joining).await?;
        }
        self.steps.submit_leave(host).await
    }

    /// Ends the removal in progress without waiting for copies.
    ///
    /// # Errors
    /// There is none.
    pub fn force_removal(&self) -> Result<()> {
        if self.env.orders.removal.borrow().is_none() {
            return Err("there is no removal in progress".to_owned());
        }
        self.env.orders.forced.set(true);
        Ok(())
    }

    /// Removes a dead node without copies; data that only this node had is lost. Shard 0 only.
    ///
    /// # Errors
    /// Those of [`Departure::decommission`].
    pub async fn assassinate(&self, host: HostId) -> Result<()> {
        if self.env.liveness.is_alive(host) {
            return Err(format!("node {host} is alive: decommission it there"));
        }
        self.steps.take_vote(host).await?;
        let give_up = self.env.rt.now() + SUBMIT;
        let submitted = self.steps.submit_until_done(Some(give_up), |snapshot| {
            snapshot.members.contains_key(&host).then_some(Transformation::Evict { host })
        });
        match submitted.await {
            Ok(()) => Ok(()),
            Err(SubmitError::Rejected(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}
