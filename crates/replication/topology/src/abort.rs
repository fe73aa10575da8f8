//! Operations that an operator aborts while data is copied: a movement or rebuild of this node, the removal of a dead one.
//!
//! Aborting never undoes a decision: an order is taken back in the metadata, as long as that is possible. Then
//! every node that copies for it ends on its own ([`RangeCopies::end_copies`](crate::copies::RangeCopies)).
//! [`crate::cleaning`] removes data that was copied in vain.

use std::rc::Rc;

use cluster::{ClusterSnapshot, MemberState};
use stdx::HostId;

use crate::env::Env;
use crate::steps::Steps;

/// Reason for refusing to abort a handover.
const TOO_LATE: &str = "too late: all data is copied and the new replicas are read from already; \
    repeat the original command to complete it";
type Result<T> = std::result::Result<T, String>;

/// Returns true if reads of the member's ranges already use the new owners.
fn is_handing_over(state: MemberState) -> bool {
    matches!(state, MemberState::LeaveHandover | MemberState::MoveHandover)
}

/// Returns the dead member whose removal by another node is to be taken back.
///
/// # Errors
/// There is none, or more than one and none is named, or it lives.
fn removed_elsewhere(
    snapshot: &ClusterSnapshot,
    named: Option<HostId>,
    is_alive: impl Fn(HostId) -> bool,
) -> Result<HostId> {
    let me = snapshot.local.host_id;
    let leavers = snapshot.members.values();
    let leavers = leavers.filter(|m| m.state == MemberState::Leaving && m.host_id != me);
    let mut leavers = leavers.map(|m| m.host_id).filter(|host| named.is_none_or(|n| n == *host));
    let Some(host) = leavers.next() else {
        let is_named = |host: HostId| named.is_none_or(|n| n == host);
        let mut members = snapshot.members.values();
        if members.any(|m| m.state == MemberState::LeaveHandover && is_named(m.host_id)) {
            return Err(TOO_LATE.to_owned());
        }
        return Err("there is no removal in progress to abort".to_owned());
    };
    if leavers.next().is_some() {
        return Err("several nodes leave: name one by its host id".to_owned());
    }
    if is_alive(host) {
        return Err(format!("node {host} is alive: run abortdecommission on it"));
    }
    Ok(host)
}

/// Operations that are aborted. Clones share.
#[derive(Clone)]
pub struct Aborts {
    env: Rc<Env>,
    steps: Steps,
}

impl Aborts {
    pub(crate) fn new(env: &Rc<Env>) -> Aborts {
        Aborts { env: env.clone(), steps: Steps::new(env) }
    }

    /// Aborts the change of the ring that this node carries out for itself. Shard 0 only.
    ///
    /// # Errors
    /// This node carries out none.
    pub async fn abort_movement(&self) -> Result<()> {
        let snapshot = self.env.membership.snapshot();
        let me = snapshot.local.host_id;
        let is_running = self.env.orders.removal.borrow().is_some();
        if !is_running && snapshot.local_member().is_some_and(|m| is_handing_over(m.state)) {
            return Err(TOO_LATE.to_owned());
        }
        let is_moving = snapshot.local_member().is_some_and(|m| {
            m.is_in_transition()
                && !matches!(m.state, MemberState::Joining | MemberState::JoinHandover)
        });
        // A movement that failed and could not be taken back then.
        if !is_running && is_moving {
            return self.steps.take_back(me).await;
        }
        self.env.orders.abort(me)
    }

    /// Aborts the removal of a dead node: the one that this node carries out, or one that another
    /// node abandoned. Shard 0 only.
    ///
    /// # Errors
    /// There is none, or all is copied and its end is being decided.
    pub async fn abort_removal(&self, named: Option<HostId>) -> Result<()> {
        let snapshot = self.env.membership.snapshot();
        let is_named = |host: &HostId| named.is_none_or(|n| n == *host);
        if let Some(host) = self.env.orders.removes(snapshot.local.host_id).filter(is_named) {
            return self.env.orders.abort(host);
        }
        let is_alive = |host| self.env.liveness.is_alive(host);
        let host = removed_elsewhere(&snapshot, named, is_alive)?;
        // The node that carries it out, when it lives, finds that it was taken back.
        let _turn = self.env.orders.begin(host)?;
        self.steps.take_back(host).await?;
        self.steps.settle_voters();
        Ok(())
    }

    /// Aborts the rebuild of this node. Received data stays, and the same command fetches the rest.
    /// Shard 0 only.
    ///
    /// # Errors
    /// There is none.
    pub fn abort_rebuild(&self) -> Result<()> {
        let rebuilding = &self.env.orders.rebuilding;
        if !rebuilding.is_running.get() {
            return Err("there is no rebuild in progress to abort".to_owned());
        }
        rebuilding.aborted.set(true);
        if let Some(plan) = rebuilding.plan.get() {
            self.env.streaming.abort(plan);
        }
        Ok(())
    }
}
