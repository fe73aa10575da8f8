//! Prometheus' text form, version 0.0.4.
//!
//! Names are stable. A metric that means the same as one of ScyllaDB's dashboards has its name
//! (`scylla_…`), the others are `helenus_…`. Units are in the name. Series of tables are summed
//! over shards and bounded, so that a scrape stays small; `docs/user/metrics.md` is the list.

use std::collections::BTreeMap;
use std::fmt::Write;

use telemetry::{BOUNDS, EstimatedSnapshot, HistogramSnapshot, Snapshot, Value};

use crate::histogram::HistogramReport;
use crate::model::{ClusterReport, CompactionReport, NodeReport, TableReport, TrafficReport};

/// For the response's header.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Tables that have series of their own; of more, those with the most requests.
pub const TABLES_MAX: usize = 500;

/// Histogram buckets end at 2^k - 1 for these k, the same ones at every scrape.
const BUCKET_BITS: std::ops::RangeInclusive<u32> = 4..=26;

/// Every fourth bound of the latencies is a bucket's: each about twice the one before.
const LATENCY_STEP: usize = 4;

/// Names of ScyllaDB for metrics of the same meaning.
const SCYLLA_NAMES: &[(&str, &str)] = &[
    ("commitlog_written_bytes_total", "scylla_commitlog_bytes_written"),
    ("commitlog_syncs_total", "scylla_commitlog_flush"),
    ("coordinator_read_latency_micros", "scylla_storage_proxy_coordinator_read_latency"),
    ("coordinator_write_latency_micros", "scylla_storage_proxy_coordinator_write_latency"),
    ("cql_requests_total", "scylla_transport_requests_served"),
    ("cql_requests_shed_total", "scylla_transport_requests_shed"),
    ("large_cells_written_total", "scylla_database_large_cell_exceeding_threshold"),
    ("large_collections_written_total", "scylla_database_large_collection_exceeding_threshold"),
    ("large_rows_written_total", "scylla_database_large_rows_exceeding_threshold"),
    ("executor_poll_total", "scylla_reactor_tasks_processed"),
];

/// All metrics of a node: each shard's own with a `shard` label, then those of the node.
pub fn text(
    node: &NodeReport,
    shards: &[Snapshot],
    tables: &[TableReport],
    compactions: &CompactionReport,
    cluster: &ClusterReport,
) -> String {
    let mut page = Page::default();
    of_node(&mut page, node);
    of_cluster(&mut page, node, cluster);
    for (number, snapshot) in shards.iter().enumerate() {
        of_shard(&mut page, number, snapshot);
    }
    of_tables(&mut page, tables);
    of_compactions(&mut page, compactions);
    page.finish()
}

/// Counts of requests that the API refused, as the rest of the page.
pub(crate) fn refusals(failed_logins: u64, unauthenticated: u64, forbidden: u64) -> String {
    let mut page = Page::default();
    for (name, help, count) in [
        (
            "helenus_api_failed_logins_total",
            "logins at the API with wrong credentials",
            failed_logins,
        ),
        (
            "helenus_api_unauthenticated_total",
            "requests of the API refused without a valid login",
            unauthenticated,
        ),
        (
            "helenus_api_forbidden_total",
            "requests of the API refused because the login lacks the scope",
            forbidden,
        ),
    ] {
        page.family(name, Kind::Counter, help).sample(&[], count);
    }
    page.finish()
}

fn of_node(page: &mut Page, node: &NodeReport) {
    let labels = [
        ("version", node.server_version.as_str()),
        ("cassandra_version", node.release_version.as_str()),
        ("cluster", node.cluster_name.as_str()),
    ];
    let help = "version of the server; always 1";
    page.family("helenus_build_info", Kind::Gauge, help).sample(&labels, 1_u64);
    let help = "seconds since the node started";
    page.family("helenus_uptime_seconds", Kind::Gauge, help).sample(&[], node.uptime_seconds);
    let help = "memory budget of the node, bytes";
    page.family("helenus_memory_budget_bytes", Kind::Gauge, help)
        .sample(&[], node.memory_bytes_max);
    let help = "whether CQL clients are served";
    page.family("helenus_native_transport_active", Kind::Gauge, help)
        .sample(&[], u64::from(node.native_transport_active));
}

/// Members and what is pending for each: every sample has the peer's host id as a label. Counters
/// of messaging itself are among the shards' metrics (`helenus_internode_…`).
fn of_cluster(page: &mut Page, node: &NodeReport, cluster: &ClusterReport) {
    let help = "members of the cluster by what this node thinks of them";
    let members = page.family("helenus_cluster_members", Kind::Gauge, help);
    let count = |up: bool| {
        node.nodes.iter().filter(|m| m.up == up && (up || !m.liveness_unknown)).count() as u64
    };
    members.sample(&[("liveness", "up")], count(true));
    members.sample(&[("liveness", "down")], count(false));
    if let Some(gossip) = &cluster.gossip {
        let help = "whether gossip runs";
        page.family("helenus_gossip_active", Kind::Gauge, help)
            .sample(&[], u64::from(gossip.active));
        for peer in &gossip.peers {
            let labels = [("peer", peer.host_id.as_str())];
            let help = "whether the peer answers";
            page.family("helenus_gossip_peer_alive", Kind::Gauge, help)
                .sample(&labels, u64::from(peer.is_alive));
            let help = "epoch of the peer's metadata";
            page.family("helenus_gossip_peer_epoch", Kind::Gauge, help).sample(&labels, peer.epoch);
            if let Some(phi) = peer.phi {
                let help = "suspicion that the peer is down, as phi_convict_threshold counts it";
                page.family("helenus_gossip_peer_phi", Kind::Gauge, help).sample(&labels, phi);
            }
        }
    }
    type Field = fn(&TrafficReport) -> u64;
    let gauges: [(&str, &str, Field); 4] = [
        ("helenus_internode_peer_connections", "open connections to the peer", |t| t.links),
        ("helenus_internode_peer_inbound_connections", "open connections from the peer", |t| {
            t.inbounds
        }),
        ("helenus_internode_peer_pending_requests", "requests that wait for the peer", |t| {
            t.pending
        }),
        ("helenus_internode_peer_queued_bytes", "bytes that wait to be sent to the peer", |t| {
            t.queued_bytes
        }),
    ];
    for (name, help, field) in gauges {
        let family = page.family(name, Kind::Gauge, help);
        for traffic in &cluster.traffic {
            family.sample(&[("peer", traffic.host_id.as_str())], field(traffic));
        }
    }
    if let Some(hints) = &cluster.hints {
        let help = "whether new hints are stored";
        page.family("helenus_hints_enabled", Kind::Gauge, help)
            .sample(&[], u64::from(hints.enabled));
        for pending in &hints.pending {
            let labels = [("peer", pending.host_id.as_str())];
            let help = "bytes of hints that wait for the peer";
            page.family("helenus_hints_pending_bytes", Kind::Gauge, help)
                .sample(&labels, pending.bytes);
            let help = "files with hints that wait for the peer";
            page.family("helenus_hints_pending_files", Kind::Gauge, help)
                .sample(&labels, pending.files);
        }
    }
    if let Some(repair) = &cluster.read_repair {
        let family = page.family(
            "helenus_read_repairs_total",
            Kind::Counter,
            "reads whose replicas did not agree, by what was done",
        );
        family.sample(&[("kind", "blocking")], repair.blocking);
        family.sample(&[("kind", "background")], repair.background);
    }
}

fn of_shard(page: &mut Page, number: usize, snapshot: &Snapshot) {
    let shard = number.to_string();
    for metric in &snapshot.metrics {
        let name = exported_name(metric.name);
        let mut labels: Vec<(&str, &str)> =
            metric.labels.iter().map(|(k, v)| (*k, v.as_str())).collect();
        labels.push(("shard", shard.as_str()));
        match &metric.value {
            Value::Counter(n) => {
                page.family(&name, Kind::Counter, metric.help).sample(&labels, *n);
            }
            Value::Gauge(n) => {
                page.family(&name, Kind::Gauge, metric.help).sample(&labels, *n);
            }
            Value::Histogram(h) => {
                page.family(&name, Kind::Histogram, metric.help).histogram(&labels, h);
            }
            Value::Latency(h) => {
                page.family(&name, Kind::Histogram, metric.help).latency(&labels, h);
            }
        }
    }
}

/// Returns the exported name of a metric.
pub fn exported_name(name: &str) -> String {
    match SCYLLA_NAMES.iter().find(|(ours, _)| *ours == name) {
        Some((_, theirs)) => (*theirs).to_owned(),
        None => format!("helenus_{}", clean_name(name)),
    }
}

/// Only what a metric name may hold: a name of ours that does not would spoil the whole page.
fn clean_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
}

type Field = fn(&TableReport) -> u64;

/// Name, kind, help and number of each series of a table.
const TABLE_FIELDS: [(&str, Kind, &str, Field); 11] = [
    ("scylla_column_family_live_disk_space", Kind::Gauge, "bytes of the SSTables in use", |t| {
        t.disk_bytes
    }),
    ("scylla_column_family_live_sstable", Kind::Gauge, "SSTables in use", |t| t.sstables),
    ("scylla_column_family_memtable_switch", Kind::Counter, "memtables flushed", |t| t.flushes),
    ("scylla_column_family_pending_compaction", Kind::Gauge, "compactions that wait", |t| {
        t.pending_compactions
    }),
    (
        "helenus_table_uncompressed_bytes",
        Kind::Gauge,
        "uncompressed bytes of the SSTables in use",
        |t| t.uncompressed_bytes,
    ),
    ("helenus_table_memtable_bytes", Kind::Gauge, "memory of memtables", |t| t.memtable_bytes),
    ("helenus_table_reads_total", Kind::Counter, "reads of the shards' data", |t| t.reads),
    ("helenus_table_writes_total", Kind::Counter, "writes to the shards' data", |t| t.writes),
    ("helenus_table_compactions_total", Kind::Counter, "compactions finished", |t| t.compactions),
    (
        "helenus_table_metadata_bytes",
        Kind::Gauge,
        "memory of Bloom filters, summaries and chunk offsets",
        |t| t.metadata_bytes,
    ),
    ("helenus_table_tombstones_scanned_total", Kind::Counter, "tombstones that reads met", |t| {
        t.tombstones_scanned
    }),
];

fn of_tables(page: &mut Page, tables: &[TableReport]) {
    let mut shown: Vec<&TableReport> = tables.iter().collect();
    shown.sort_by_key(|t| std::cmp::Reverse(t.reads.saturating_add(t.writes)));
    shown.truncate(TABLES_MAX);
    shown.sort_by_key(|t| (t.keyspace.as_str(), t.table.as_str()));
    let help = "tables without series of their own because there are too many";
    let omitted = tables.len().saturating_sub(shown.len()) as u64;
    page.family("helenus_table_series_omitted", Kind::Gauge, help).sample(&[], omitted);
    for (name, kind, help, field) in TABLE_FIELDS {
        let family = page.family(name, kind, help);
        for table in &shown {
            let labels = [("ks", table.keyspace.as_str()), ("cf", table.table.as_str())];
            family.sample(&labels, field(table));
        }
    }
    type Latency = fn(&TableReport) -> &HistogramReport;
    let latencies: [(&str, &str, Latency); 2] = [
        ("scylla_column_family_read_latency", "microseconds of local reads by key", |t| {
            &t.read_latency
        }),
        ("scylla_column_family_write_latency", "microseconds of local writes", |t| {
            &t.write_latency
        }),
    ];
    for (name, help, of) in latencies {
        let family = page.family(name, Kind::Histogram, help);
        // An empty series is left out.
        for table in shown.iter().filter(|t| of(t).count() > 0) {
            let labels = [("ks", table.keyspace.as_str()), ("cf", table.table.as_str())];
            let HistogramReport { buckets, sum } = of(table).clone();
            family.latency(&labels, &EstimatedSnapshot { buckets, sum });
        }
    }
}

fn of_compactions(page: &mut Page, compactions: &CompactionReport) {
    let pending: u64 = compactions.pending.iter().map(|p| p.tasks).sum();
    let running = compactions.running.len() as u64;
    let help = "compactions that wait";
    page.family("scylla_compaction_manager_pending_compactions", Kind::Gauge, help)
        .sample(&[], pending);
    let help = "compactions that run";
    page.family("scylla_compaction_manager_compactions", Kind::Gauge, help).sample(&[], running);
    let help = "compactions finished";
    page.family("scylla_compaction_manager_completed_compactions", Kind::Counter, help)
        .sample(&[], compactions.completed);
}

/// Type of a family of series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Families by name: all series of one name stand together below one HELP and one TYPE.
#[derive(Default)]
struct Page {
    families: BTreeMap<String, Family>,
}

struct Family {
    name: String,
    kind: Kind,
    help: String,
    lines: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: Kind, help: &str) -> &mut Family {
        self.families.entry(name.to_owned()).or_insert_with(|| Family {
            name: name.to_owned(),
            kind,
            help: help.to_owned(),
            lines: String::new(),
        })
    }

    fn finish(self) -> String {
        let mut out = String::new();
        for family in self.families.into_values() {
            if family.lines.is_empty() {
                continue;
            }
            let kind = match family.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let _ = writeln!(out, "# HELP {} {}", family.name, escaped(&family.help, false));
            let _ = writeln!(out, "# TYPE {} {kind}", family.name);
            out.push_str(&family.lines);
        }
        out
    }
}

impl Family {
    fn sample(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let name = self.name.clone();
        self.line(&name, labels, None, value);
    }

    fn histogram(&mut self, labels: &[(&str, &str)], histogram: &HistogramSnapshot) {
        let bucket = format!("{}_bucket", self.name);
        let mut cells = histogram.buckets().peekable();
        let mut seen = 0_u64;
        for bits in BUCKET_BITS {
            let bound = (1_u64 << bits) - 1;
            while let Some((_, n)) = cells.next_if(|(upper, _)| *upper <= bound) {
                seen += n;
            }
            self.line(&bucket, labels, Some(&bound.to_string()), seen);
        }
        let count = histogram.count();
        self.line(&bucket, labels, Some("+Inf"), count);
        let sum = format!("{}_sum", self.name);
        self.line(&sum, labels, None, histogram.sum);
        let total = format!("{}_count", self.name);
        self.line(&total, labels, None, count);
    }

    fn latency(&mut self, labels: &[(&str, &str)], latency: &EstimatedSnapshot) {
        let bucket = format!("{}_bucket", self.name);
        let mut seen = 0_u64;
        for (at, bound) in BOUNDS.iter().enumerate() {
            seen = seen.saturating_add(latency.buckets.get(at).copied().unwrap_or(0));
            if at % LATENCY_STEP == LATENCY_STEP - 1 {
                self.line(&bucket, labels, Some(&bound.to_string()), seen);
            }
        }
        let count = latency.count();
        self.line(&bucket, labels, Some("+Inf"), count);
        let sum = format!("{}_sum", self.name);
        self.line(&sum, labels, None, latency.sum / 1000);
        let total = format!("{}_count", self.name);
        self.line(&total, labels, None, count);
    }

    fn line(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        bound: Option<&str>,
        value: impl std::fmt::Display,
    ) {
        self.lines.push_str(name);
        let all = labels.iter().copied().chain(bound.map(|b| ("le", b)));
        let mut open = '{';
        for (key, text) in all {
            let _ = write!(self.lines, "{open}{}=\"{}\"", clean_name(key), escaped(text, true));
            open = ',';
        }
        if open == ',' {
            self.lines.push('}');
        }
        let _ = writeln!(self.lines, " {value}");
    }
}

/// Backslash and line feed, and in label values the quote.
fn escaped(text: &str, quotes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::one_node;

    /// One sample of a page.
    #[derive(Debug, PartialEq)]
    struct Sample {
        name: String,
        labels: Vec<(String, String)>,
        value: f64,
    }

    /// Reads a page as Prometheus does; panics where it would refuse it.
    fn parse(page: &str) -> (BTreeMap<String, String>, Vec<Sample>) {
        let (mut kinds, mut samples) = (BTreeMap::new(), Vec::new());
        let mut helped = std::collections::BTreeSet::new();
        assert!(page.ends_with('\n'));
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, _) = rest.split_once(' ').unwrap();
                assert!(helped.insert(name.to_owned()), "second HELP: {name}");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                let before = kinds.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "second TYPE: {name}");
            } else {
                samples.push(sample(line));
            }
        }
        for sample in &samples {
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|s| sample.name.strip_suffix(s).filter(|b| kinds.contains_key(*b)));
            let family = base.unwrap_or(&sample.name);
            assert!(kinds.contains_key(family) && helped.contains(family), "{}", sample.name);
        }
        (kinds, samples)
    }

    fn sample(line: &str) -> Sample {
        let end = line.find(['{', ' ']).unwrap();
        let (name, mut rest) = line.split_at(end);
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':'), "{line}");
        let mut labels = Vec::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            loop {
                let (key, after) = rest.split_once("=\"").unwrap();
                let mut value = String::new();
                let mut chars = after.char_indices();
                let end = loop {
                    match chars.next().unwrap() {
                        (at, '"') => break at,
                        (_, '\\') => value.push(match chars.next().unwrap().1 {
                            'n' => '\n',
                            c @ ('\\' | '"') => c,
                            c => panic!("escape {c} in {line}"),
                        }),
                        (_, c) => value.push(c),
                    }
                };
                labels.push((key.to_owned(), value));
                rest = &after[end + 1..];
                match rest.strip_prefix(',') {
                    Some(more) => rest = more,
                    None => break,
                }
            }
            rest = rest.strip_prefix('}').unwrap();
        }
        let value = rest.strip_prefix(' ').unwrap().parse().unwrap();
        Sample { name: name.to_owned(), labels, value }
    }

    fn value<'a>(samples: &'a [Sample], name: &str, labels: &[(&str, &str)]) -> &'a f64 {
        let found = samples.iter().find(|s| {
            let same = |(k, v): &(&str, &str)| s.labels.iter().any(|(a, b)| a == k && b == v);
            s.name == name && labels.iter().all(same)
        });
        &found.unwrap_or_else(|| panic!("no {name} {labels:?}")).value
    }

    #[test]
    fn page_is_what_prometheus_reads() {
        let (a, b) = (telemetry::Shard::new(), telemetry::Shard::new());
        a.counter("commitlog_syncs_total", "completed syncs", &[]).add(3);
        b.counter("commitlog_syncs_total", "completed syncs", &[]).add(4);
        b.counter("executor_stall_total", "long polls", &[("task", "a\"b\\c\nd")]).inc();
        a.gauge("cache_bytes", "memory\nof it", &[]).set(-5);
        let tables = [TableReport {
            keyspace: "k".to_owned(),
            table: "t".to_owned(),
            reads: 7,
            ..TableReport::default()
        }];
        let node = NodeReport { server_version: "0.1.0".to_owned(), ..one_node() };
        let shards = [a.snapshot(), b.snapshot()];
        let page =
            text(&node, &shards, &tables, &CompactionReport::default(), &ClusterReport::default());
        let (kinds, samples) = parse(&page);
        assert_eq!(kinds["scylla_commitlog_flush"], "counter");
        assert_eq!(*value(&samples, "scylla_commitlog_flush", &[("shard", "0")]), 3.0);
        assert_eq!(*value(&samples, "scylla_commitlog_flush", &[("shard", "1")]), 4.0);
        let labels = [("task", "a\"b\\c\nd"), ("shard", "1")];
        assert_eq!(*value(&samples, "helenus_executor_stall_total", &labels), 1.0);
        assert_eq!(*value(&samples, "helenus_cache_bytes", &[]), -5.0);
        assert_eq!(*value(&samples, "helenus_table_reads_total", &[("ks", "k"), ("cf", "t")]), 7.0);
        assert_eq!(*value(&samples, "helenus_build_info", &[("version", "0.1.0")]), 1.0);
    }

    #[test]
    fn peers_have_series_of_their_own() {
        use crate::model::{GossipPeerReport, GossipReport, HintsReport, PendingHintsReport};
        let mut node = crate::model::tests::three_nodes();
        node.nodes[2].up = false;
        let peer = |id: &str, is_alive, phi| GossipPeerReport {
            host_id: id.to_owned(),
            is_alive,
            phi,
            ..GossipPeerReport::default()
        };
        let pending = PendingHintsReport {
            host_id: "b".to_owned(),
            bytes: 9,
            ..PendingHintsReport::default()
        };
        let cluster = ClusterReport {
            gossip: Some(GossipReport {
                active: true,
                peers: vec![peer("a", true, None), peer("b", false, Some(9.5))],
            }),
            traffic: vec![TrafficReport {
                host_id: "b".to_owned(),
                queued_bytes: 70,
                ..TrafficReport::default()
            }],
            hints: Some(HintsReport { pending: vec![pending], ..HintsReport::default() }),
            ..ClusterReport::default()
        };
        let page = text(&node, &[], &[], &CompactionReport::default(), &cluster);
        let (_, samples) = parse(&page);
        let of = |name: &str, label: (&str, &str)| *value(&samples, name, &[label]);
        assert_eq!(of("helenus_cluster_members", ("liveness", "up")), 2.0);
        assert_eq!(of("helenus_cluster_members", ("liveness", "down")), 1.0);
        assert_eq!(of("helenus_gossip_peer_alive", ("peer", "b")), 0.0);
        assert_eq!(of("helenus_gossip_peer_phi", ("peer", "b")), 9.5);
        assert_eq!(of("helenus_internode_peer_queued_bytes", ("peer", "b")), 70.0);
        assert_eq!(of("helenus_hints_pending_bytes", ("peer", "b")), 9.0);
        assert!(!page.contains("helenus_gossip_peer_phi{peer=\"a\"}"));
        let alone = text(&node, &[], &[], &CompactionReport::default(), &ClusterReport::default());
        assert!(!alone.contains("gossip") && !alone.contains("hints"), "{alone}");
    }

    #[test]
    fn histogram_buckets_are_fixed_and_cumulative() {
        let shard = telemetry::Shard::new();
        let histogram = shard.histogram("sync_micros", "duration", &[]);
        for v in [1, 15, 16, 1000, 1 << 40] {
            histogram.record(v);
        }
        let page = text(
            &one_node(),
            &[shard.snapshot()],
            &[],
            &CompactionReport::default(),
            &ClusterReport::default(),
        );
        let (kinds, samples) = parse(&page);
        assert_eq!(kinds["helenus_sync_micros"], "histogram");
        let bucket = |le: &str| *value(&samples, "helenus_sync_micros_bucket", &[("le", le)]);
        assert_eq!((bucket("15"), bucket("31"), bucket("1023")), (2.0, 3.0, 4.0));
        assert_eq!((bucket("67108863"), bucket("+Inf")), (4.0, 5.0));
        assert_eq!(*value(&samples, "helenus_sync_micros_count", &[]), 5.0);
        let buckets: Vec<f64> = samples
            .iter()
            .filter(|s| s.name == "helenus_sync_micros_bucket")
            .map(|s| s.value)
            .collect();
        assert!(buckets.is_sorted() && buckets.len() == 24, "{buckets:?}");
    }

    #[test]
    fn latencies_are_cumulative_and_in_microseconds() {
        let shard = telemetry::Shard::new();
        let latency = shard.latency("coordinator_read_latency_micros", "reads", &[]);
        latency.record_nanos(3_900);
        latency.record_nanos(4_100);
        latency.record_nanos(8_500);
        latency.record_nanos(u64::MAX / 4);
        let tables = [TableReport {
            keyspace: "k".to_owned(),
            table: "t".to_owned(),
            write_latency: HistogramReport { buckets: vec![2], sum: 1_500 },
            ..TableReport::default()
        }];
        let shards = [shard.snapshot()];
        let page = text(
            &one_node(),
            &shards,
            &tables,
            &CompactionReport::default(),
            &ClusterReport::default(),
        );
        let (kinds, samples) = parse(&page);
        let name = "scylla_storage_proxy_coordinator_read_latency";
        assert_eq!(kinds[name], "histogram");
        let bucket = |le: &str| *value(&samples, &format!("{name}_bucket"), &[("le", le)]);
        assert_eq!((bucket("4"), bucket("8"), bucket("17"), bucket("+Inf")), (2.0, 3.0, 3.0, 4.0));
        assert_eq!(*value(&samples, &format!("{name}_count"), &[("shard", "0")]), 4.0);
        let of_table = "scylla_column_family_write_latency_sum";
        assert_eq!(*value(&samples, of_table, &[("ks", "k"), ("cf", "t")]), 1.0);
        assert!(!page.contains("scylla_column_family_read_latency_sum"));
    }

    #[test]
    fn series_of_tables_are_bounded_and_the_busiest_are_kept() {
        let tables: Vec<TableReport> = (0..TABLES_MAX + 2)
            .map(|i| TableReport {
                keyspace: "k".to_owned(),
                table: format!("t{i:04}"),
                writes: i as u64,
                ..TableReport::default()
            })
            .collect();
        let page = text(
            &one_node(),
            &[],
            &tables,
            &CompactionReport::default(),
            &ClusterReport::default(),
        );
        let (_, samples) = parse(&page);
        let shown = samples.iter().filter(|s| s.name == "helenus_table_writes_total").count();
        assert_eq!(shown, TABLES_MAX);
        assert_eq!(*value(&samples, "helenus_table_series_omitted", &[]), 2.0);
        assert!(page.contains("cf=\"t0501\"") && !page.contains("cf=\"t0001\""));
    }
}
