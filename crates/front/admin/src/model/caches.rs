//! Caches of the stores, all shards together.

use serde::{Deserialize, Serialize};
use telemetry::{Snapshot, Value};

/// One cache; an element of `GET /api/v1/caches`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheReport {
    /// `chunks`: uncompressed blocks of SSTables. `rows`: partitions of tables whose option
    /// `caching` enables it. `counters`: this node's counter cells.
    pub name: String,
    /// Most bytes; 0: there is no such cache.
    pub capacity_bytes: u64,
    /// Bytes that are used.
    pub size_bytes: u64,
    /// Blocks, partitions or counters.
    pub entries: u64,
    /// How often it was asked since the start.
    pub requests: u64,
    /// Number of hits.
    pub hits: u64,
}

impl CacheReport {
    /// The caches that the merged metrics of the shards are of.
    pub fn of_metrics(metrics: &Snapshot) -> Vec<CacheReport> {
        let one = |name: &str, metric: &str| {
            let number = |what: &str| {
                let name = format!("{metric}_{what}");
                match metrics.metrics.iter().find(|m| m.name == name).map(|m| &m.value) {
                    Some(Value::Counter(n)) => *n,
                    Some(Value::Gauge(n)) => u64::try_from(*n).unwrap_or(0),
                    _ => 0,
                }
            };
            let hits = number("hits_total");
            CacheReport {
                name: name.to_owned(),
                capacity_bytes: number("capacity_bytes"),
                size_bytes: number("bytes"),
                entries: number("entries"),
                requests: hits.saturating_add(number("misses_total")),
                hits,
            }
        };
        vec![
            one("chunks", "chunk_cache"),
            one("counters", "counter_cache"),
            one("rows", "row_cache"),
        ]
    }

    /// Hits of all requests; not a number when there were none, as Cassandra has it.
    pub fn hit_ratio(&self) -> f64 {
        if self.requests == 0 { f64::NAN } else { self.hits as f64 / self.requests as f64 }
    }
}
