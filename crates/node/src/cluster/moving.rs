//! `nodetool move`: this node takes another token. And `nodetool rebuild`: it copies what it owns.
//!
//! A move is a movement as a decommission is (`leaving`): the nodes that will own what this one gives
//! up copy it, this one copies what it will own, both on the same order.

use std::time::Duration;

use cluster::{MemberState, Transformation};
use membership::SubmitError;
use stdx::{Epoch, HostId, Token};
use streaming::{Rebuild, plan_rebuild};

use super::member::ClusterShard;
use super::received::Received;

/// Patience with the voters.
const SUBMIT: Duration = Duration::from_secs(30);

type Result<T> = std::result::Result<T, String>;

impl ClusterShard {
    /// Moves this node to another token, with its data. Shard 0 only.
    ///
    /// # Errors
    /// Why not, in words for the operator; the node stands where it stood.
    pub(crate) async fn move_to(&self, token: Token) -> Result<()> {
        let snapshot = self.membership.snapshot();
        let _turn = self.orders.begin(snapshot.local.host_id)?;
        if snapshot.local.tokens == [token] {
            return Ok(());
        }
        self.carry_out_move(token).await?;
        tracing::info!(token = token.0, "this node has moved");
        Ok(())
    }

    async fn carry_out_move(&self, token: Token) -> Result<()> {
        self.wait_for_handovers().await;
        let host = self.membership.snapshot().local.host_id;
        let submitted = self.submit_until_done(Some(self.rt.now() + SUBMIT), |snapshot| {
            let member = snapshot.members.get(&host)?;
            let is_there = member.state == MemberState::Moving && member.moving_to == [token];
            (!is_there).then(|| Transformation::Move { host, tokens: vec![token] })
        });
        submitted.await.map_err(|error: SubmitError| error.to_string())?;
        let epoch = self.membership.snapshot().epoch;
        let copied = async {
            self.wait_until_applied(epoch).await.map_err(|e| e.to_string())?;
            // Writes that began before the future owners were written to are over then.
            self.pause(self.options.write_request_timeout).await.map_err(|e| e.to_string())?;
            self.give_away(host, epoch).await?;
            self.orders.decide()
        };
        if let Err(error) = copied.await {
            let back = self.step(host, MemberState::Moving, MemberState::Normal).await;
            if let Err(also) = back {
                tracing::warn!(error = %also, "the node could not be made a full member again");
            }
            return Err(error);
        }
        let epoch = self.step(host, MemberState::Moving, MemberState::MoveHandover).await?;
        self.end_moving(host, epoch).await
    }

    /// All is copied, and since `epoch` the ranges are read where they will be.
    pub(super) async fn end_moving(&self, host: HostId, epoch: Epoch) -> Result<()> {
        self.wait_until_applied(epoch).await.map_err(|e| e.to_string())?;
        self.step(host, MemberState::MoveHandover, MemberState::Normal).await.map(|_| ())
    }

    /// Copies what this node owns from other replicas. Shard 0 only.
    ///
    /// # Errors
    /// Why not, in words for the operator; what came stays, and the same command goes on with the
    /// rest.
    pub(crate) async fn rebuild(&self, rebuild: Rebuild) -> Result<()> {
        self.orders.rebuilding.begin()?;
        let done = self.carry_out_rebuild(&rebuild).await;
        self.orders.rebuilding.end();
        done
    }

    async fn carry_out_rebuild(&self, rebuild: &Rebuild) -> Result<()> {
        let snapshot = self.membership.snapshot();
        let me = snapshot.local.host_id;
        // Every coordinator writes to this node as the keyspaces say now.
        self.wait_until_applied(snapshot.epoch).await.map_err(|e| e.to_string())?;
        self.pause(self.options.write_request_timeout).await.map_err(|e| e.to_string())?;
        let liveness = self.liveness.clone();
        let plan = plan_rebuild(&snapshot, me, rebuild, move |host| liveness.is_alive(host));
        let plan = plan.map_err(|error| error.to_string())?;
        // One that failed or was cut off goes on, as long as nothing else has changed.
        let key = format!("rebuild at {} {}", snapshot.epoch.0, fingerprint(rebuild));
        let received = Received::load(&self.rt, &self.options.workdir, "rebuild", key).await;
        let plan = received.rest(plan);
        if !plan.is_empty() {
            tracing::info!(ranges = plan.len(), ?rebuild, "rebuilding");
            let id = self.streaming.new_plan();
            self.orders.rebuilding.fetches(id)?;
            match self.fetch_keeping(("Rebuild", id), plan, (&received, &|_| ())).await {
                Ok(report) => tracing::info!(?report, "rebuilt"),
                Err(error) => return Err(error.to_string()),
            }
        }
        received.forget().await;
        Ok(())
    }
}

/// One word for what is asked.
fn fingerprint(rebuild: &Rebuild) -> String {
    format!("{:08x}", codec::crc32(format!("{rebuild:?}").as_bytes()))
}
