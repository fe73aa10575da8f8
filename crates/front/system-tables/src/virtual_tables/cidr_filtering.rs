//! `system_views.cidr_filtering_metrics_counts` and `…_latencies`: checks of clients' addresses. Source: Cassandra's
//! `CIDRFilteringMetricsTable`.

use cql_plan::virtual_row::VirtualRowBuilder;
use schema::Table;

use super::sources::{Sources, merged};
use super::{Rows, whole};

pub(super) async fn counts(sources: &Sources, table: &Table) -> Rows {
    let counts = admin::cidr_filtering(&merged(&sources.metrics().await)).counts.into_iter();
    let row = |(name, value): (String, u64)| {
        VirtualRowBuilder::new(table).text("name", &name).bigint("value", whole(value)).finish()
    };
    counts.map(row).collect()
}

/// How long the checks took.
pub(super) async fn latencies(sources: &Sources, table: &Table) -> Rows {
    let latencies = admin::cidr_filtering(&merged(&sources.metrics().await)).latencies.into_iter();
    let row = |(name, values): (String, Option<[f64; 5]>)| {
        let mut row = VirtualRowBuilder::new(table);
        row.text("name", &name);
        let columns = ["p50th", "p95th", "p99th", "p999th", "max"];
        for (column, value) in columns.into_iter().zip(values.into_iter().flatten()) {
            row.double(column, value);
        }
        row.finish()
    };
    latencies.map(row).collect()
}
