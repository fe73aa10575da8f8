//! `system_views.cql_metrics` and `batch_metrics`. Source: Cassandra's `CQLMetricsTable`, `BatchMetricsTable`.

use cql_plan::virtual_row::VirtualRowBuilder;
use schema::Table;

use super::sources::{Sources, merged, number};
use super::{Rows, whole};

pub(super) async fn statements(sources: &Sources, table: &Table) -> Rows {
    statement_rows(table, &sources.metrics().await)
}

/// Every shard has the prepared statements; each execution is counted on one of them.
pub(super) fn statement_rows(table: &Table, shards: &[telemetry::Snapshot]) -> Rows {
    let kept = shards.iter().map(|m| number(m, "cql_prepared_statements")).max();
    let all = merged(shards);
    let prepared = number(&all, "cql_prepared_executions_total");
    let regular = number(&all, "cql_regular_executions_total");
    let executed = prepared.saturating_add(regular);
    let ratio = if executed == 0 { 0.0 } else { prepared as f64 / executed as f64 };
    [
        ("prepared_statements_count", kept.unwrap_or(0) as f64),
        ("prepared_statements_evicted", number(&all, "cql_prepared_evicted_total") as f64),
        ("prepared_statements_executed", prepared as f64),
        ("prepared_statements_ratio", ratio),
        ("regular_statements_executed", regular as f64),
    ]
    .into_iter()
    .map(|(name, value)| {
        VirtualRowBuilder::new(table).text("name", name).double("value", value).finish()
    })
    .collect()
}

pub(super) async fn batches(sources: &Sources, table: &Table) -> Rows {
    batch_rows(table, &sources.metrics().await)
}

/// How many partitions batches of each kind wrote to.
pub(super) fn batch_rows(table: &Table, shards: &[telemetry::Snapshot]) -> Rows {
    let all = merged(shards);
    ["logged", "unlogged", "counter"]
        .into_iter()
        .map(|kind| {
            let found = all.metrics.iter().find(|metric| {
                metric.name == "cql_batch_partitions"
                    && metric.labels.iter().any(|(name, value)| *name == "kind" && value == kind)
            });
            let partitions = match found.map(|metric| &metric.value) {
                Some(telemetry::Value::Histogram(partitions)) => partitions.clone(),
                _ => telemetry::HistogramSnapshot::default(),
            };
            VirtualRowBuilder::new(table)
                .text("name", &format!("partitions_per_{kind}_batch"))
                .bigint("max", whole(partitions.max))
                .double("p50th", partitions.quantile(0.5) as f64)
                .double("p999th", partitions.quantile(0.999) as f64)
                .double("p99th", partitions.quantile(0.99) as f64)
                .finish()
        })
        .collect()
}
