//! `system_views.sstable_tasks`: what rewrites files. Source: Cassandra's `SSTableTasksTable`.

use admin::{AdminReply, AdminRequest};
use cql_plan::virtual_row::VirtualRowBuilder;
use schema::Table;
use stdx::Uuid;

use super::{Rows, Sources, int, whole};

pub(super) async fn rows(sources: &Sources, table: &Table) -> Rows {
    let mut rows = Vec::new();
    for reply in sources.ask(AdminRequest::Compactions).await {
        let AdminReply::Compactions(report) = reply else { continue };
        for task in report.running {
            let (total, done) = (whole(task.total), whole(task.completed));
            let id = Uuid::parse_str(&task.id).unwrap_or(Uuid::nil());
            let row = VirtualRowBuilder::new(table)
                .text("keyspace_name", &task.keyspace)
                .text("table_name", &task.table)
                .uuid("task_id", id)
                .double("completion_ratio", done as f64 / total.max(1) as f64)
                .text("kind", &task.kind.to_lowercase())
                .bigint("progress", done)
                .int("sstables", int(task.sstables))
                .bigint("total", total)
                .text("unit", "bytes")
                .finish()?;
            rows.push(row);
        }
    }
    Ok(rows)
}
