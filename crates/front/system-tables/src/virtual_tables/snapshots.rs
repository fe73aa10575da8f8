//! `system_views.snapshots`. Source: Cassandra's `SnapshotsTable`.

use admin::model::SnapshotReport;
use admin::{AdminReply, AdminRequest};
use cql_plan::virtual_row::{VirtualRow, VirtualRowBuilder, VirtualRowError};
use schema::Table;

use super::{Rows, Sources, whole};

pub(super) async fn rows(sources: &Sources, table: &Table) -> Rows {
    match sources.ask_first(AdminRequest::ListSnapshots).await {
        Some(AdminReply::Snapshots(all)) => all.iter().map(|s| snapshot(table, s)).collect(),
        _ => Ok(Vec::new()),
    }
}

/// A snapshot of one table.
pub(super) fn snapshot(
    table: &Table,
    snapshot: &SnapshotReport,
) -> Result<VirtualRow, VirtualRowError> {
    let mut row = VirtualRowBuilder::new(table);
    row.text("name", &snapshot.tag)
        .text("keyspace_name", &snapshot.keyspace)
        .text("table_name", &snapshot.table)
        .boolean("ephemeral", snapshot.is_ephemeral)
        .bigint("size_on_disk", whole(snapshot.disk_bytes))
        .bigint("true_size", whole(snapshot.true_bytes));
    if let Ok(millis) = types::temporal::parse_timestamp(&snapshot.created_at, None) {
        row.timestamp_millis("created_at", millis);
    }
    if let Ok(millis) = types::temporal::parse_timestamp(&snapshot.expires_at, None) {
        row.timestamp_millis("expires_at", millis);
    }
    row.finish()
}
