//! The order of `nodetool tablestats -s`: Cassandra's `StatsTableComparator`.

use std::cmp::Ordering;

use super::tables::{compression_ratio, per_slice, percent_repaired, read_write_ratio};
use crate::model::TableReport;

/// Sort key of tables: one of [`SORT_KEYS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortKey(&'static str);

/// Cassandra's keys, in its order.
pub const SORT_KEYS: [&str; 39] = [
    "average_live_cells_per_slice_last_five_minutes",
    "average_tombstones_per_slice_last_five_minutes",
    "bloom_filter_false_positives",
    "bloom_filter_false_ratio",
    "bloom_filter_off_heap_memory_used",
    "bloom_filter_space_used",
    "compacted_partition_maximum_bytes",
    "compacted_partition_mean_bytes",
    "compacted_partition_minimum_bytes",
    "compression_metadata_off_heap_memory_used",
    "dropped_mutations",
    "full_name",
    "index_summary_off_heap_memory_used",
    "local_read_count",
    "local_read_latency_ms",
    "local_write_latency_ms",
    "maximum_live_cells_per_slice_last_five_minutes",
    "maximum_tombstones_per_slice_last_five_minutes",
    "memtable_cell_count",
    "memtable_data_size",
    "memtable_off_heap_memory_used",
    "memtable_switch_count",
    "number_of_partitions_estimate",
    "off_heap_memory_used_total",
    "pending_flushes",
    "percent_repaired",
    "read_latency",
    "reads",
    "space_used_by_snapshots_total",
    "space_used_live",
    "space_used_total",
    "sstable_compression_ratio",
    "sstable_count",
    "table_name",
    "write_latency",
    "writes",
    "max_sstable_size",
    "local_read_write_ratio",
    "twcs_max_duration",
];

impl SortKey {
    /// Returns the key of that name.
    ///
    /// # Errors
    /// In Cassandra's words: there is none, or it is no sort key; or it is not known here.
    pub fn parse(name: &str) -> Result<SortKey, String> {
        let Some(key) = SORT_KEYS.iter().find(|key| **key == name) else {
            return Err(format!("argument for sort must be one of: {}", SORT_KEYS.join(", ")));
        };
        match *key {
            "dropped_mutations" => Err("Unsupported sort key: dropped_mutations".to_owned()),
            "twcs_max_duration" => {
                Err("twcs_max_duration is not supported: tablestats shows no windows".to_owned())
            }
            key => Ok(SortKey(key)),
        }
    }

    /// Returns the name as written in the command.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// The largest first; of equal ones by name.
    pub(super) fn compare(self, a: &TableReport, b: &TableReport) -> Ordering {
        let full = |t: &TableReport| (t.keyspace.clone() + ".") + &t.table;
        match self.0 {
            "full_name" => full(b).cmp(&full(a)),
            "table_name" => b.table.cmp(&a.table),
            _ => {
                let (x, y) = (self.value(a), self.value(b));
                y.total_cmp(&x).then_with(|| full(a).cmp(&full(b)))
            }
        }
    }

    /// Value to compare; a value that is no number or not measured counts as 0.
    fn value(self, t: &TableReport) -> f64 {
        let value = match self.0 {
            "compacted_partition_maximum_bytes" => t.partition_sizes.max() as f64,
            "compacted_partition_mean_bytes" => t.partition_sizes.mean() as f64,
            "compacted_partition_minimum_bytes" => t.partition_sizes.min() as f64,
            "local_read_count" | "reads" => t.reads as f64,
            "local_read_latency_ms" | "read_latency" => t.read_latency.mean_ms(),
            "local_write_latency_ms" | "write_latency" => t.write_latency.mean_ms(),
            "writes" => t.writes as f64,
            "memtable_cell_count" => t.memtable_mutations as f64,
            "memtable_data_size" => t.memtable_bytes as f64,
            "memtable_switch_count" => t.flushes as f64,
            "number_of_partitions_estimate" => t.partitions_estimate as f64,
            "off_heap_memory_used_total" => t.off_heap_bytes() as f64,
            "bloom_filter_false_positives" => t.filter_misses as f64,
            "bloom_filter_false_ratio" => t.filter_false_ratio(),
            "bloom_filter_off_heap_memory_used" => t.filter_bytes as f64,
            "bloom_filter_space_used" => t.filter_file_bytes as f64,
            "index_summary_off_heap_memory_used" => t.summary_bytes as f64,
            "compression_metadata_off_heap_memory_used" => t.offsets_bytes as f64,
            "average_live_cells_per_slice_last_five_minutes" => per_slice(&t.rows_per_read).0,
            "maximum_live_cells_per_slice_last_five_minutes" => {
                per_slice(&t.rows_per_read).1 as f64
            }
            "average_tombstones_per_slice_last_five_minutes" => per_slice(&t.tombstones_per_read).0,
            "maximum_tombstones_per_slice_last_five_minutes" => {
                per_slice(&t.tombstones_per_read).1 as f64
            }
            "pending_flushes" => t.pending_flushes as f64,
            "percent_repaired" => percent_repaired(t),
            "space_used_by_snapshots_total" => t.snapshot_bytes as f64,
            "space_used_live" | "space_used_total" => t.disk_bytes as f64,
            "sstable_compression_ratio" => compression_ratio(t),
            "sstable_count" => t.sstables as f64,
            "max_sstable_size" => t.sstable_bytes_max as f64,
            "local_read_write_ratio" => read_write_ratio(t),
            _ => 0.0,
        };
        if value.is_nan() { 0.0 } else { value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str, reads: u64, disk_bytes: u64) -> TableReport {
        let (keyspace, table) = name.split_once('.').unwrap();
        TableReport {
            keyspace: keyspace.to_owned(),
            table: table.to_owned(),
            reads,
            disk_bytes,
            ..TableReport::default()
        }
    }

    #[test]
    fn the_largest_is_first_and_equal_ones_are_by_name() {
        let all = [table("b.x", 5, 10), table("a.z", 5, 30), table("a.y", 70, 20)];
        let order = |key: &str| {
            let key = SortKey::parse(key).unwrap();
            let mut all: Vec<&TableReport> = all.iter().collect();
            all.sort_by(|a, b| key.compare(a, b));
            all.iter().map(|t| format!("{}.{}", t.keyspace, t.table)).collect::<Vec<_>>()
        };
        assert_eq!(order("reads"), ["a.y", "a.z", "b.x"]);
        assert_eq!(order("space_used_live"), ["a.z", "a.y", "b.x"]);
        assert_eq!(order("pending_flushes"), ["a.y", "a.z", "b.x"]);
        assert_eq!(order("read_latency"), ["a.y", "a.z", "b.x"], "no number counts as 0");
        assert_eq!(order("full_name"), ["b.x", "a.z", "a.y"]);
        assert_eq!(order("table_name"), ["a.z", "a.y", "b.x"]);
    }

    #[test]
    fn other_keys_are_refused_in_cassandras_words() {
        let text = SortKey::parse("size").unwrap_err();
        assert!(text.starts_with("argument for sort must be one of: average_live_cells_per"));
        assert!(text.ends_with(", local_read_write_ratio, twcs_max_duration"), "{text}");
        let text = SortKey::parse("dropped_mutations").unwrap_err();
        assert_eq!(text, "Unsupported sort key: dropped_mutations");
        let known = SORT_KEYS.iter().filter(|key| SortKey::parse(key).is_ok()).count();
        assert_eq!(known, SORT_KEYS.len() - 2);
    }
}
