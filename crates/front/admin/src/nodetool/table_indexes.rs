//! Lines of `nodetool tablestats` about the indexes of a table. Source: Cassandra's `TableStatsPrinter` and
//! `StatsTable`.
//!
//! Legacy indexes count like storage-attached ones, as both are attached here. The time of the filter that follows a
//! search and time-outs of searches are not counted.

use serde_json::{Value, json};

use super::format::{decimal, java_double};
use crate::model::TableReport;

/// Lines of a table with indexes; none of one without.
pub(super) fn lines(
    table: &TableReport,
    bytes: impl Fn(u64) -> String,
) -> Vec<(&'static str, String)> {
    if table.indexes.is_empty() {
        return Vec::new();
    }
    let files = java_double(per_search(table, table.index_sstables_searched));
    vec![
        ("SAI local query latency (mean)", format!("{} ms", latency(table))),
        ("SAI post-filtering latency (mean)", "NaN ms".to_owned()),
        ("SAI space used (bytes)", bytes(table.index_bytes)),
        ("SAI sstable indexes hit per query (mean)", files.clone()),
        ("SAI index segments hit per query (mean)", files),
        (
            "SAI rows filtered per query (mean)",
            java_double(per_search(table, table.index_candidates)),
        ),
        ("SAI queryable/total indexes", queryable(table)),
    ]
}

/// The same as fields, which Cassandra also shows of a table without indexes.
pub(super) fn fields(table: &TableReport, bytes: impl Fn(u64) -> String) -> Value {
    if table.indexes.is_empty() {
        return json!({
            "sai_local_query_latency_ms": "0.000",
            "sai_post_filtering_read_latency": "0.000",
            "sai_disk_used_bytes": null,
            "sai_sstable_indexes_hit": 0.0,
            "sai_index_segments_hit": 0.0,
            "sai_rows_filtered": 0.0,
            "sai_total_query_timeouts": 0,
            "sai_total_queryable_index_ratio": null,
        });
    }
    json!({
        "sai_local_query_latency_ms": latency(table),
        "sai_post_filtering_read_latency": "NaN",
        "sai_disk_used_bytes": bytes(table.index_bytes),
        "sai_sstable_indexes_hit": per_search(table, table.index_sstables_searched),
        "sai_index_segments_hit": per_search(table, table.index_sstables_searched),
        "sai_rows_filtered": per_search(table, table.index_candidates),
        "sai_total_query_timeouts": null,
        "sai_total_queryable_index_ratio": queryable(table),
    })
}

/// Mean of a search in milliseconds.
fn latency(table: &TableReport) -> String {
    decimal(table.index_latency.mean_ms(), 3)
}

fn per_search(table: &TableReport, count: u64) -> f64 {
    match table.index_latency.count() {
        0 => 0.0,
        searches => count as f64 / searches as f64,
    }
}

fn queryable(table: &TableReport) -> String {
    let built = table.indexes.values().filter(|is_built| **is_built).count();
    format!("{built}/{}", table.indexes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::HistogramReport;

    fn table(searches: u64) -> TableReport {
        TableReport {
            indexes: [("a".to_owned(), true), ("b".to_owned(), false)].into(),
            index_bytes: 733,
            index_latency: HistogramReport { buckets: vec![searches], sum: searches * 105_778_000 },
            index_sstables_searched: 2 * searches,
            index_candidates: 3 * searches,
            ..TableReport::default()
        }
    }

    /// The lines of a Cassandra 5.0.9, but for what is not counted.
    #[test]
    fn a_table_with_indexes_has_cassandras_lines() {
        let text = |searches| {
            let lines = lines(&table(searches), |n| n.to_string()).into_iter();
            lines.map(|(name, value)| format!("{name}: {value}\n")).collect::<String>()
        };
        assert_eq!(
            text(2),
            "SAI local query latency (mean): 105.778 ms\n\
             SAI post-filtering latency (mean): NaN ms\n\
             SAI space used (bytes): 733\n\
             SAI sstable indexes hit per query (mean): 2.0\n\
             SAI index segments hit per query (mean): 2.0\n\
             SAI rows filtered per query (mean): 3.0\n\
             SAI queryable/total indexes: 1/2\n"
        );
        let idle = text(0);
        assert!(idle.starts_with("SAI local query latency (mean): NaN ms\n"), "{idle}");
        assert!(idle.contains("hit per query (mean): 0.0\n"), "{idle}");
        assert!(lines(&TableReport::default(), |n| n.to_string()).is_empty());
    }

    #[test]
    fn fields_have_the_same_numbers() {
        let fields = |table| fields(&table, |n| format!("{n} bytes"));
        let with = fields(table(2));
        assert_eq!(with["sai_disk_used_bytes"], "733 bytes");
        assert_eq!(with["sai_total_queryable_index_ratio"], "1/2");
        assert_eq!(with["sai_rows_filtered"], 3.0);
        assert!(with["sai_total_query_timeouts"].is_null());
        let without = fields(TableReport::default());
        assert!(without["sai_disk_used_bytes"].is_null());
        assert_eq!(without["sai_local_query_latency_ms"], "0.000");
    }
}
