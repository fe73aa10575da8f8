//! Sources of the rows of virtual tables: reports of all shards together, as administration has
//! them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use admin::model::{ClusterReport, NodeReport, TableReport};
use admin::{AdminMesh, AdminReply, AdminRequest};
use conf::Options;
use rt::Rt;
use stdx::ShardId;

use super::NodeLog;

/// Sources of a shard's facts about the node.
pub struct Sources {
    /// The shard.
    pub rt: Rt,
    /// The settings in force on this shard.
    pub live: Rc<RefCell<Options>>,
    /// The way to the numbers of all shards.
    pub admin: Arc<AdminMesh>,
    /// The log, if the program keeps one.
    pub log: Option<Arc<dyn NodeLog>>,
}

impl Sources {
    /// Asks every shard; one that does not answer because the node stops is left out.
    pub(super) async fn ask(&self, request: AdminRequest) -> Vec<AdminReply> {
        let mut replies = Vec::new();
        for shard in (0..self.rt.shard_count()).map(ShardId) {
            replies.extend(self.admin.call(&self.rt, shard, request.clone()).await);
        }
        replies
    }

    /// Asks the first shard; `None` when the node stops.
    pub(super) async fn ask_first(&self, request: AdminRequest) -> Option<AdminReply> {
        self.admin.call(&self.rt, ShardId(0), request).await.ok()
    }

    /// The metrics of each shard.
    pub(super) async fn metrics(&self) -> Vec<telemetry::Snapshot> {
        let replies = self.ask(AdminRequest::Metrics).await;
        let metrics = replies.into_iter().filter_map(|reply| match reply {
            AdminReply::Metrics(snapshot) => Some(snapshot),
            _ => None,
        });
        metrics.collect()
    }

    /// The members of the cluster; `None` when the node stops.
    pub(super) async fn node(&self) -> Option<NodeReport> {
        match self.ask_first(AdminRequest::Node).await {
            Some(AdminReply::Node(node)) => Some(*node),
            _ => None,
        }
    }

    /// The part of this node in the cluster, shards together.
    pub(super) async fn cluster(&self) -> ClusterReport {
        let mut all = ClusterReport::default();
        for reply in self.ask(AdminRequest::Cluster).await {
            if let AdminReply::Cluster(report) = reply {
                all.merge(*report);
            }
        }
        all
    }

    /// The numbers of all tables, shards together, by keyspace and name.
    pub(super) async fn tables(&self) -> Vec<TableReport> {
        let mut all: BTreeMap<(String, String), TableReport> = BTreeMap::new();
        for reply in self.ask(AdminRequest::Tables).await {
            let AdminReply::Tables(reports) = reply else { continue };
            for report in reports {
                let name = (report.keyspace.clone(), report.table.clone());
                match all.get_mut(&name) {
                    Some(mine) => mine.merge(&report),
                    None => {
                        all.insert(name, report);
                    }
                }
            }
        }
        all.into_values().collect()
    }
}

/// The metrics of all shards together.
pub(super) fn merged(shards: &[telemetry::Snapshot]) -> telemetry::Snapshot {
    let mut all = telemetry::Snapshot::default();
    for shard in shards {
        all.merge(shard.clone());
    }
    all
}

/// A counter or gauge; 0 when there is none of that name.
pub(super) fn number(metrics: &telemetry::Snapshot, name: &str) -> i64 {
    match metrics.find(name).map(|m| &m.value) {
        Some(telemetry::Value::Counter(n)) => super::whole(*n),
        Some(telemetry::Value::Gauge(n)) => *n,
        _ => 0,
    }
}
