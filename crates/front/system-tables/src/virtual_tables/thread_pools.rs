//! `system_views.thread_pools`: the stages of Cassandra that have a counterpart. Source: Cassandra's `ThreadPoolsTable`.

use admin::model::{CompactionReport, StageReport};
use admin::{AdminReply, AdminRequest};
use cql_plan::virtual_row::{VirtualRow, VirtualRowBuilder, VirtualRowError};
use schema::Table;

use super::sources::{Sources, merged};
use super::{Rows, int, whole};

pub(super) async fn rows(sources: &Sources, table: &Table) -> Rows {
    let metrics = merged(&sources.metrics().await);
    let mut compactions = CompactionReport::default();
    for reply in sources.ask(AdminRequest::Compactions).await {
        if let AdminReply::Compactions(report) = reply {
            compactions.merge(*report);
        }
    }
    let mut stages = admin::stages(&metrics, &compactions);
    stages.extend(sources.cluster().await.stages);
    stages.iter().map(|s| stage(table, s)).collect()
}

pub(super) fn stage(table: &Table, stage: &StageReport) -> Result<VirtualRow, VirtualRowError> {
    let mut row = VirtualRowBuilder::new(table);
    row.text("name", &stage.name).bigint("completed_tasks", whole(stage.completed));
    for (name, value) in [("active_tasks", stage.active), ("pending_tasks", stage.pending)] {
        row.int(name, int(value));
    }
    row.bigint("blocked_tasks", whole(stage.blocked));
    row.bigint("blocked_tasks_all_time", whole(stage.blocked_total));
    row.finish()
}
