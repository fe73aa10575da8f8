//! What an administrator can have a node do in its cluster.

use std::time::Duration;

use admin::{ActionError, ClusterAction};
use stdx::HostId;
use streaming::Rebuild;

use super::leaving::Force;
use super::member::ClusterShard;
use super::network;

impl ClusterShard {
    /// Carries a command out on this shard.
    ///
    /// # Errors
    /// `Failed`; `Unsupported` for what cannot be done.
    pub(crate) async fn command(&self, action: ClusterAction) -> Result<(), ActionError> {
        let failed = |text: String| ActionError::Failed(text);
        match action {
            ClusterAction::Decommission { force } => {
                let force = if force { Force::LoseHints } else { Force::Nothing };
                self.decommission(force).await.map_err(failed)
            }
            ClusterAction::RemoveNode { host } => self.remove_node(host).await.map_err(failed),
            ClusterAction::ForceRemoval => self.force_removal().map_err(failed),
            ClusterAction::AbortMovement => self.abort_movement().await.map_err(failed),
            ClusterAction::AbortRemoval { host } => self.abort_removal(host).await.map_err(failed),
            ClusterAction::AbortRebuild => self.abort_rebuild().map_err(failed),
            ClusterAction::AbortBootstrap { host } => {
                self.abort_bootstrap(host).await.map_err(failed)
            }
            ClusterAction::Move { token } => self.move_to(token).await.map_err(failed),
            ClusterAction::Rebuild { datacenter, keyspace, ranges, sources, exclude_local_dc } => {
                let exclude_local_datacenter = exclude_local_dc;
                let rebuild =
                    Rebuild { datacenter, keyspace, ranges, sources, exclude_local_datacenter };
                self.rebuild(rebuild).await.map_err(failed)
            }
            ClusterAction::Assassinate { host } => self.assassinate(host).await.map_err(failed),
            ClusterAction::Cleanup { tables } => self.clean(&tables).await,
            ClusterAction::SetGossip { enabled } => {
                self.liveness.set_gossiping(enabled);
                Ok(())
            }
            ClusterAction::SetHintedHandoff { enabled } => {
                self.hints.set_enabled(enabled);
                Ok(())
            }
            ClusterAction::SetHintsForDatacenter { datacenter, enabled } => {
                self.hints.set_datacenter_enabled(&datacenter, enabled);
                Ok(())
            }
            ClusterAction::PauseHints { paused } => {
                if paused {
                    self.hints.pause();
                } else {
                    self.hints.resume();
                }
                Ok(())
            }
            ClusterAction::TruncateHints { host } => self.truncate_hints(host).await,
            ClusterAction::SetHintThrottle { kib_per_second } => {
                self.hints.set_throttle(kib_per_second.saturating_mul(1024));
                Ok(())
            }
            ClusterAction::SetHintWindow { millis } => {
                self.hints.set_window(Duration::from_millis(millis));
                Ok(())
            }
            ClusterAction::SetStreamThroughput { bytes_per_second } => {
                self.streaming.set_throughput(bytes_per_second);
                Ok(())
            }
            ClusterAction::SetInterDcStreamThroughput { bytes_per_second } => {
                self.streaming.set_inter_dc_throughput(bytes_per_second);
                Ok(())
            }
            ClusterAction::CutLinks { addresses } => {
                if !network::may_cut(&self.options) {
                    return Err(ActionError::Argument(
                        "this node was started without --developer-link-faults, which \"helenus \
                         cluster start\" sets: links are cut in tests only"
                            .to_owned(),
                    ));
                }
                self.messaging.cut_links(addresses);
                Ok(())
            }
            other => Err(ActionError::Unsupported(other.name())),
        }
    }

    async fn truncate_hints(&self, host: Option<HostId>) -> Result<(), ActionError> {
        let truncated = self.hints.truncate(host).await;
        truncated.map_err(|error| ActionError::Failed(error.to_string()))
    }
}
