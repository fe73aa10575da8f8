//! `nodetool move`: this node takes another token. And `nodetool rebuild`: it copies the ranges that it owns.
//!
//! A move is a movement like a decommission (`leaving`). The nodes that will own this node's ranges copy them,
//! this node copies the ranges that it will own, both on the same order.

use std::rc::Rc;

use cluster::{MemberState, Transformation};
use membership::SubmitError;
use stdx::{Epoch, HostId, Token};
use streaming::{Rebuild, plan_rebuild};

use crate::copies::{Fetch, RangeCopies};
use crate::env::Env;
use crate::resume_state::Received;
use crate::steps::{SUBMIT, Steps};

type Result<T> = std::result::Result<T, String>;

/// Moves and rebuilds of this node. Clones share.
#[derive(Clone)]
pub struct Relocation {
    env: Rc<Env>,
    steps: Steps,
    copies: RangeCopies,
}

impl Relocation {
    pub(crate) fn new(env: &Rc<Env>) -> Relocation {
        Relocation { env: env.clone(), steps: Steps::new(env), copies: RangeCopies::new(env) }
    }

    /// Moves this node to another token, with its data. Shard 0 only.
    ///
    /// # Errors
    /// Why not, in words for the operator; the node stands where it stood.
    pub async fn move_to(&self, token: Token) -> Result<()> {
        let snapshot = self.env.membership.snapshot();
        let _turn = self.env.orders.begin(snapshot.local.host_id)?;
        if snapshot.local.tokens == [token] {
            return Ok(());
        }
        self.carry_out_move(token).await?;
        tracing::info!(token = token.0, "this node has moved");
        Ok(())
    }

    async fn carry_out_move(&self, token: Token) -> Result<()> {
        self.steps.wait_for_handovers().await;
        let host = self.env.membership.snapshot().local.host_id;
        let submitted =
            self.steps.submit_until_done(Some(self.env.rt.now() + SUBMIT), |snapshot| {
                let member = snapshot.members.get(&host)?;
                let is_there = member.state == MemberState::Moving && member.moving_to == [token];
                (!is_there).then(|| Transformation::Move { host, tokens: vec![token] })
            });
        submitted.await.map_err(|error: SubmitError| error.to_string())?;
        let epoch = self.env.membership.snapshot().epoch;
        let copied = async {
            self.steps.wait_until_applied(epoch).await.map_err(|e| e.to_string())?;
            // Writes that began before the future owners were written to are over then.
            self.env
                .pause(self.env.options.write_request_timeout)
                .await
                .map_err(|e| e.to_string())?;
            self.copies.give_away(host, epoch).await?;
            self.env.orders.decide()
        };
        if let Err(error) = copied.await {
            let back = self.steps.step(host, MemberState::Moving, MemberState::Normal).await;
            if let Err(also) = back {
                tracing::warn!(error = %also, "cannot make the node a full member again");
            }
            return Err(error);
        }
        let epoch = self.steps.step(host, MemberState::Moving, MemberState::MoveHandover).await?;
        self.end_moving(host, epoch).await
    }

    /// All is copied, and since `epoch` reads use the new owners.
    pub(crate) async fn end_moving(&self, host: HostId, epoch: Epoch) -> Result<()> {
        self.steps.wait_until_applied(epoch).await.map_err(|e| e.to_string())?;
        self.steps.step(host, MemberState::MoveHandover, MemberState::Normal).await.map(|_| ())
    }

    /// Copies the ranges that this node owns from other replicas. Shard 0 only.
    ///
    /// # Errors
    /// Why not, in words for the operator; what came stays, and the same command goes on with the
    /// rest.
    pub async fn rebuild(&self, rebuild: Rebuild) -> Result<()> {
        self.env.orders.rebuilding.begin()?;
        let done = self.carry_out_rebuild(&rebuild).await;
        self.env.orders.rebuilding.end();
        done
    }

    async fn carry_out_rebuild(&self, rebuild: &Rebuild) -> Result<()> {
        let snapshot = self.env.membership.snapshot();
        let me = snapshot.local.host_id;
        // Every coordinator writes to this node as the keyspaces say now.
        self.steps.wait_until_applied(snapshot.epoch).await.map_err(|e| e.to_string())?;
        self.env.pause(self.env.options.write_request_timeout).await.map_err(|e| e.to_string())?;
        let liveness = self.env.liveness.clone();
        let plan = plan_rebuild(&snapshot, me, rebuild, move |host| liveness.is_alive(host));
        let plan = plan.map_err(|error| error.to_string())?;
        // A rebuild that failed or was interrupted resumes, as long as nothing else has changed.
        let key = format!("rebuild at {} {}", snapshot.epoch.0, fingerprint(rebuild));
        let received =
            Received::load(&self.env.rt, &self.env.options.workdir, "rebuild", key).await;
        let plan = received.rest(plan);
        if !plan.is_empty() {
            tracing::info!(ranges = plan.len(), ?rebuild, "rebuilding");
            let id = self.env.streaming.new_plan();
            self.env.orders.rebuilding.fetches(id)?;
            let fetch = Fetch { operation: "Rebuild", id, plan, received: &received };
            match self.copies.fetch_keeping(fetch, &|_| ()).await {
                Ok(report) => tracing::info!(?report, "rebuilt"),
                Err(error) => return Err(error.to_string()),
            }
        }
        received.forget().await;
        Ok(())
    }
}

/// Returns one word that identifies the request.
fn fingerprint(rebuild: &Rebuild) -> String {
    format!("{:08x}", codec::crc32(format!("{rebuild:?}").as_bytes()))
}
