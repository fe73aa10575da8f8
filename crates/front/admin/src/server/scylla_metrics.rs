//! Numbers by ScyllaDB's paths: `/stream_manager/`, `/messaging_service/`, `/cache_service/`,
//! `/column_family/metrics/`, `/storage_proxy/`. Those that this node has; any other path below them is
//! answered with 404 and a sentence, never with a number that was not counted.
//!
//! Source: its public API description.

use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use serde_json::{Value, json};
use telemetry::Snapshot;

use super::api::{Answer, Api, ApiError};
use super::scylla::Entry;
use super::{rates, scylla_histograms};
use crate::model::{CacheReport, ClusterReport, ErrorKind, NodeReport, StreamReport, TableReport};
use crate::request::ActionError;

/// Answer for a metric that is not counted here.
fn no_number(what: &str) -> ApiError {
    let text = format!("this node does not count {what}; /metrics has what it counts");
    ApiError(ErrorKind::NotFound, text)
}

pub(super) async fn unknown(Path(rest): Path<String>) -> ApiError {
    no_number(&rest)
}

/// The sum of a counter or gauge over all its labels that are let through; `None`: there is none.
fn sum(metrics: &Snapshot, name: &str, is_wanted: impl Fn(&str, &str) -> bool) -> Option<u64> {
    let all = metrics.metrics.iter().filter(|m| m.name == name);
    let all = all.filter(|m| m.labels.iter().all(|(key, value)| is_wanted(key, value)));
    all.fold(None, |sum, metric| match metric.value {
        telemetry::Value::Counter(n) => Some(sum.unwrap_or(0) + n),
        telemetry::Value::Gauge(n) => Some(sum.unwrap_or(0) + u64::try_from(n).unwrap_or(0)),
        _ => sum,
    })
}

// ------------------------------------------------------------- streams

/// Returns all running streams, one entry for each operation.
pub(super) async fn streams(State(api): State<Api>) -> Answer<Json<Vec<Value>>> {
    let (node, cluster) = (api.node().await?, api.cluster().await?);
    let streaming = cluster.streaming.ok_or(ActionError::Unsupported("streaming on this node"))?;
    Ok(Json(states(&node, &streaming.sessions)))
}

fn states(node: &NodeReport, sessions: &[StreamReport]) -> Vec<Value> {
    let mut plans: Vec<&str> = sessions.iter().map(|s| s.plan_id.as_str()).collect();
    plans.sort_unstable();
    plans.dedup();
    let state = |plan: &str| {
        let of = || sessions.iter().filter(|s| s.plan_id == plan);
        json!({
            "plan_id": plan,
            "description": of().next().map_or("", |s| &s.operation),
            "sessions": of().map(|s| session(node, s)).collect::<Vec<Value>>(),
        })
    };
    plans.into_iter().map(state).collect()
}

fn session(node: &NodeReport, session: &StreamReport) -> Value {
    let peer = address(node, &session.host_id);
    // Numbers are recorded by operation and peer, not by table.
    let summary = |progress: Option<crate::model::StreamProgress>| -> Vec<Value> {
        let one = |p: crate::model::StreamProgress| json!({"cf_id": "", "files": p.files, "total_size": p.bytes});
        progress.map(one).into_iter().collect()
    };
    let direction = if session.sending.is_some() { "OUT" } else { "IN" };
    let file = |of: &crate::model::StreamFileReport| {
        let value = json!({
            "peer": peer, "session_index": 0, "file_name": of.name, "direction": direction,
            "current_bytes": of.bytes_done, "total_bytes": of.bytes,
        });
        json!({"key": of.name, "value": value})
    };
    let files: Vec<Value> = session.current.iter().map(file).collect();
    let (sending, receiving) = match session.sending {
        Some(_) => (files, Vec::new()),
        None => (Vec::new(), files),
    };
    json!({
        "peer": peer,
        "session_index": 0,
        "connecting": peer,
        "receiving_summaries": summary(session.receiving),
        "sending_summaries": summary(session.sending),
        "state": if session.is_finished() { "COMPLETE" } else { "STREAMING" },
        "receiving_files": receiving,
        "sending_files": sending,
    })
}

fn address(node: &NodeReport, host_id: &str) -> String {
    let member = node.nodes.iter().find(|m| m.host_id == host_id);
    member.map_or_else(|| host_id.to_owned(), |m| m.address.clone())
}

pub(super) async fn stream_number(
    State(api): State<Api>,
    Path(number): Path<String>,
) -> Answer<Json<u64>> {
    let cluster = api.cluster().await?;
    let found = match number.as_str() {
        "outbound" => cluster.streaming.map(|s| {
            let is_out = |s: &&StreamReport| s.sending.is_some() && !s.is_finished();
            s.sessions.iter().filter(is_out).count() as u64
        }),
        "incoming" => sum(&api.metrics().await?, "stream_received_bytes_total", |_, _| true),
        "outgoing" => sum(&api.metrics().await?, "stream_sent_bytes_total", |_, _| true),
        _ => None,
    };
    found.map(Json).ok_or_else(|| no_number(&format!("{number} of streams")))
}

// ------------------------------------------------------------- messages

pub(super) async fn messages(
    State(api): State<Api>,
    Path(number): Path<String>,
) -> Answer<Json<Vec<Entry<u64>>>> {
    let (node, cluster) = (api.node().await?, api.cluster().await?);
    let found = by_peer(&node, &cluster, &api.metrics().await?, &number);
    found.map(Json).ok_or_else(|| no_number(&format!("{number} messages")))
}

fn by_peer(
    node: &NodeReport,
    cluster: &ClusterReport,
    metrics: &Snapshot,
    number: &str,
) -> Option<Vec<Entry<u64>>> {
    let given_up = |host: &str, reasons: &[&str]| {
        let is_wanted = |key: &str, value: &str| match key {
            "peer" => value == host,
            "reason" => reasons.contains(&value),
            _ => false,
        };
        sum(metrics, "internode_dropped_messages_total", is_wanted).unwrap_or(0)
    };
    let value = |of: &crate::model::TrafficReport| match number {
        // Answers to the peer's requests among them.
        "sent" => Some(of.sent),
        "respond_pending" => Some(of.pending),
        "timeout" => Some(given_up(&of.host_id, &["timeout"])),
        "dropped" => Some(given_up(&of.host_id, &["overloaded", "expired-before-sent"])),
        _ => None,
    };
    let known = ["sent", "respond_pending", "timeout", "dropped"];
    if !known.contains(&number) {
        return None;
    }
    let entry = |of: &crate::model::TrafficReport| {
        Some(Entry { key: address(node, &of.host_id), value: value(of)? })
    };
    Some(cluster.traffic.iter().filter_map(entry).collect())
}

/// Messages of a kind.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct VerbCounter {
    verb: String,
    count: u64,
}

/// By Cassandra's name of the message, or ours where it has none like it.
pub(super) async fn dropped_by_verb(State(api): State<Api>) -> Answer<Json<Vec<VerbCounter>>> {
    let dropped = api.cluster().await?.dropped.into_iter();
    Ok(Json(dropped.map(|(verb, count)| VerbCounter { verb, count }).collect()))
}

// ------------------------------------------------------------- caches

/// There is no cache of keys: its content and capacity are 0. Blocks of files have another cache,
/// which is in the metrics.
pub(super) async fn cache(
    State(api): State<Api>,
    Path((cache, number)): Path<(String, String)>,
) -> Answer<Json<u64>> {
    let mut found = CacheReport::default();
    if let "row" | "counter" = cache.as_str() {
        let all = CacheReport::of_metrics(&api.metrics().await?);
        let name = format!("{cache}s");
        found = all.into_iter().find(|c| c.name == name).unwrap_or_default();
    }
    match (cache.as_str(), number.as_str()) {
        ("key" | "row" | "counter", "capacity") => Ok(Json(found.capacity_bytes)),
        ("key" | "row" | "counter", "entries") => Ok(Json(found.entries)),
        ("key" | "row" | "counter", "size") => Ok(Json(found.size_bytes)),
        ("row" | "counter", "hits") => Ok(Json(found.hits)),
        ("row" | "counter", "requests") => Ok(Json(found.requests)),
        _ => Err(no_number(&format!("{number} of the cache \"{cache}\""))),
    }
}

// ------------------------------------------------------------- tables

/// `<metric>/<keyspace>:<table>`, or `<metric>` of all tables together.
pub(super) async fn table_metric(
    State(api): State<Api>,
    Path(path): Path<String>,
) -> Answer<Json<Value>> {
    let path = path.trim_end_matches('/');
    let (metric, name) = match path.rsplit_once('/') {
        // Part of a metric's name, of all tables.
        Some((_, "estimated_histogram")) | None => (path, None),
        Some((metric, name)) => (metric, Some(name)),
    };
    let mut tables = api.tables().await?;
    if let Some(name) = name {
        tables.retain(|t| name.split_once(':') == Some((t.keyspace.as_str(), t.table.as_str())));
        if tables.is_empty() {
            let text = format!("Column family '{name}' not found");
            return Err(ActionError::Argument(text).into());
        }
    }
    if metric == "snapshots_size" && name.is_some() {
        let is_of = |s: &crate::model::SnapshotReport, t: &TableReport| {
            (&s.keyspace, &s.table) == (&t.keyspace, &t.table)
        };
        let all = api.snapshots().await?;
        let of = all.iter().filter(|s| tables.iter().any(|t| is_of(s, t)));
        return Ok(Json(of.map(|s| s.true_bytes).sum::<u64>().into()));
    }
    if let Some(histogram) = scylla_histograms::of_tables(&tables, metric) {
        return Ok(Json(json!(histogram)));
    }
    let found = number_of(&tables, metric, name.is_some());
    found.map(Json).ok_or_else(|| no_number(&format!("{metric} of tables")))
}

fn number_of(tables: &[TableReport], metric: &str, is_one: bool) -> Option<Value> {
    let add = |of: fn(&TableReport) -> u64| Some(tables.iter().map(of).sum::<u64>().into());
    let most = |of: fn(&TableReport) -> u64| Some(tables.iter().map(of).max()?.into());
    match metric {
        "live_ss_table_count" => add(|t| t.sstables),
        "live_disk_space_used" | "total_disk_space_used" => add(|t| t.disk_bytes),
        "memtable_live_data_size" => add(|t| t.memtable_bytes),
        "memtable_switch_count" => add(|t| t.flushes),
        "pending_compactions" => add(|t| t.pending_compactions),
        "max_row_size" => most(|t| t.partition_sizes.max()),
        "compression_ratio" => {
            let bytes = |of: fn(&TableReport) -> u64| tables.iter().map(of).sum::<u64>() as f64;
            let whole = bytes(|t| t.uncompressed_bytes);
            Some(if whole > 0.0 { bytes(|t| t.disk_bytes) / whole } else { 0.0 }.into())
        }
        // ScyllaDB reports these by shard when the request is for all tables.
        "read" if is_one => add(|t| t.reads),
        "write" if is_one => add(|t| t.writes),
        "estimated_row_count" if is_one => add(|t| t.partitions_estimate),
        "min_row_size" if is_one => add(|t| t.partition_sizes.min()),
        "mean_row_size" if is_one => add(|t| t.partition_sizes.mean()),
        _ => None,
    }
}

// ------------------------------------------------------------- requests

pub(super) async fn read_repair_attempted(State(api): State<Api>) -> Answer<Json<u64>> {
    let repairs = api.cluster().await?.read_repair;
    repairs.map(|r| Json(r.attempted)).ok_or_else(|| no_number("read repairs"))
}

pub(super) async fn read_repair_blocking(State(api): State<Api>) -> Answer<Json<u64>> {
    let repairs = api.cluster().await?.read_repair;
    repairs.map(|r| Json(r.blocking)).ok_or_else(|| no_number("read repairs"))
}

pub(super) async fn proxy_number(
    State(api): State<Api>,
    Path((operation, number)): Path<(String, String)>,
) -> Answer<Json<Value>> {
    let found = match (operation.as_str(), number.as_str()) {
        (operation, "estimated_histogram") => {
            scylla_histograms::of_requests(&api.latencies().await?, operation).map(|h| json!(h))
        }
        _ => match number.strip_suffix("_rates") {
            Some(number) => api.rates.of(&format!("{operation}/{number}")).map(|rate| json!(rate)),
            None => rates::count(&api, &format!("{operation}/{number}")).await?.map(Value::from),
        },
    };
    found.map(Json).ok_or_else(|| no_number(&format!("{number} of {operation} requests")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::three_nodes;
    use crate::model::{StreamFileReport, StreamProgress, TrafficReport};

    #[test]
    fn streams_have_the_shape_that_scyllas_tools_read() {
        let node = three_nodes();
        let progress = StreamProgress { files: 3, files_done: 1, bytes: 900, bytes_done: 300 };
        let session = StreamReport {
            operation: "Rebuild".to_owned(),
            plan_id: "p".to_owned(),
            host_id: node.nodes[1].host_id.clone(),
            receiving: Some(progress),
            current: vec![StreamFileReport { name: "f".to_owned(), bytes: 9, bytes_done: 4 }],
            ..StreamReport::default()
        };
        let other = StreamReport {
            plan_id: "o".to_owned(),
            sending: Some(progress),
            receiving: None,
            ..session.clone()
        };
        let all = states(&node, &[session.clone(), other, session]);
        assert_eq!(all.len(), 2);
        let (out, into) = (&all[0], &all[1]);
        assert_eq!((&into["description"], &into["plan_id"]), (&json!("Rebuild"), &json!("p")));
        assert_eq!(into["sessions"].as_array().map(Vec::len), Some(2));
        let one = &into["sessions"][0];
        assert_eq!((&one["peer"], &one["state"]), (&json!("127.0.0.2"), &json!("STREAMING")));
        let summary = json!([{"cf_id": "", "files": 3, "total_size": 900}]);
        assert_eq!(
            (&one["receiving_summaries"], &one["sending_summaries"]),
            (&summary, &json!([]))
        );
        let file = &one["receiving_files"][0]["value"];
        assert_eq!((&file["direction"], &file["current_bytes"]), (&json!("IN"), &json!(4)));
        assert_eq!(out["sessions"][0]["sending_files"][0]["value"]["direction"], "OUT");
    }

    #[test]
    fn messages_are_counted_by_peer_and_reason() {
        let shard = telemetry::Shard::new();
        let node = three_nodes();
        let host_id = node.nodes[2].host_id.clone();
        for (peer, reason, n) in
            [(&*host_id, "timeout", 3), (&*host_id, "overloaded", 4), ("other", "timeout", 50)]
        {
            let labels = [("peer", peer), ("reason", reason)];
            shard.counter("internode_dropped_messages_total", "x", &labels).add(n);
        }
        let traffic = TrafficReport { host_id, sent: 7, pending: 2, ..TrafficReport::default() };
        let cluster = ClusterReport { traffic: vec![traffic], ..ClusterReport::default() };
        let metrics = shard.snapshot();
        let of = |number: &str| {
            let all = by_peer(&node, &cluster, &metrics, number)?;
            assert_eq!((all.len(), all[0].key.as_str()), (1, "127.0.0.3"));
            Some(all[0].value)
        };
        assert_eq!((of("sent"), of("respond_pending")), (Some(7), Some(2)));
        assert_eq!((of("timeout"), of("dropped"), of("replied")), (Some(3), Some(4), None));
    }

    #[test]
    fn numbers_of_tables_are_those_that_are_counted() {
        let table = |reads, disk_bytes| TableReport {
            reads,
            disk_bytes,
            uncompressed_bytes: 2 * disk_bytes,
            ..TableReport::default()
        };
        let all = [table(3, 10), table(4, 30)];
        assert_eq!(number_of(&all, "live_disk_space_used", false), Some(json!(40)));
        assert_eq!(number_of(&all, "compression_ratio", false), Some(json!(0.5)));
        assert_eq!(number_of(&all[..1], "read", true), Some(json!(3)));
        for (metric, is_one) in [("read", false), ("read_latency", true), ("nonsense", true)] {
            assert_eq!(number_of(&all, metric, is_one), None, "{metric}");
        }
    }
}
