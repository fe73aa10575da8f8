//! Commands of an administrator about a node's part in its cluster.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use admin::{ActionError, ClusterAction};
use stdx::HostId;
use streaming::Rebuild;
use topology::orders::Force;

use super::member::ClusterShard;
use super::network;

impl ClusterShard {
    /// Carries a command out on this shard.
    ///
    /// # Errors
    /// `Failed`; `Unsupported` for what cannot be done.
    pub(crate) async fn command(&self, action: ClusterAction) -> Result<(), ActionError> {
        match action {
            ClusterAction::Cleanup { tables } => {
                let cleaned = self.topology.cleanup().clean(&tables).await;
                cleaned.map_err(|error| ActionError::Failed(error.to_string()))
            }
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
            ClusterAction::CutLinks { addresses } => self.cut_links(addresses),
            other => self.change_topology(other).await,
        }
    }

    /// Carries out a command about the ring.
    async fn change_topology(&self, action: ClusterAction) -> Result<(), ActionError> {
        let (departure, aborts) = (self.topology.departure(), self.topology.aborts());
        let done = match action {
            ClusterAction::Decommission { force } => {
                let force = if force { Force::LoseHints } else { Force::Nothing };
                departure.decommission(force).await
            }
            ClusterAction::RemoveNode { host } => departure.remove_node(host).await,
            ClusterAction::ForceRemoval => departure.force_removal(),
            ClusterAction::Assassinate { host } => departure.assassinate(host).await,
            ClusterAction::AbortMovement => aborts.abort_movement().await,
            ClusterAction::AbortRemoval { host } => aborts.abort_removal(host).await,
            ClusterAction::AbortRebuild => aborts.abort_rebuild(),
            ClusterAction::AbortBootstrap { host } => departure.abort_bootstrap(host).await,
            ClusterAction::Move { token } => self.topology.relocation().move_to(token).await,
            ClusterAction::Rebuild { datacenter, keyspace, ranges, sources, exclude_local_dc } => {
                let exclude_local_datacenter = exclude_local_dc;
                let rebuild =
                    Rebuild { datacenter, keyspace, ranges, sources, exclude_local_datacenter };
                self.topology.relocation().rebuild(rebuild).await
            }
            other => return Err(ActionError::Unsupported(other.name())),
        };
        done.map_err(ActionError::Failed)
    }

    fn cut_links(&self, addresses: BTreeSet<IpAddr>) -> Result<(), ActionError> {
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

    async fn truncate_hints(&self, host: Option<HostId>) -> Result<(), ActionError> {
        let truncated = self.hints.truncate(host).await;
        truncated.map_err(|error| ActionError::Failed(error.to_string()))
    }
}
