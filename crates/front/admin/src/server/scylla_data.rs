//! Paths of ScyllaDB's REST API about the node itself and its data: names, tables, snapshots,
//! compactions, settings.

use axum::Json;
use axum::extract::{Path, Query, State};
use serde::{Deserialize, Serialize};

use super::api::{Answer, Api, ApiError};
use super::scylla::{Entry, told};
use crate::model::{
    ClusterCommand, KeyspaceReport, LogLevelReport, NodeReport, SettingsReport, SnapshotReport,
    TableReport,
};
use crate::request::{ActionError, AdminRequest, Selection};

fn argument(text: impl Into<String>) -> ApiError {
    ActionError::Argument(text.into()).into()
}

async fn settings(api: &Api) -> Answer<SettingsReport> {
    let settings = api.cluster().await?.settings;
    settings.ok_or_else(|| ActionError::Unsupported("the settings of this node").into())
}

// ------------------------------------------------------------- the node

#[derive(Debug, Deserialize)]
pub(super) struct TypeQuery {
    #[serde(rename = "type")]
    kind: Option<String>,
}

fn is_system(name: &str) -> bool {
    name == "system" || name.starts_with("system_")
}

/// Names of keyspaces: `all`, `user`, `non_local_strategy`.
fn names(node: &NodeReport, kind: &str) -> Result<Vec<String>, ApiError> {
    let wanted: fn(&KeyspaceReport) -> bool = match kind {
        "all" => |_| true,
        "user" => |k| !is_system(&k.name),
        "non_local_strategy" => |k| k.strategy() != "LocalStrategy",
        other => return Err(argument(format!("there is no type {other} of keyspaces"))),
    };
    Ok(node.keyspaces.iter().filter(|k| wanted(k)).map(|k| k.name.clone()).collect())
}

pub(super) async fn keyspaces(
    State(api): State<Api>,
    Query(query): Query<TypeQuery>,
) -> Answer<Json<Vec<String>>> {
    Ok(Json(names(&api.node().await?, query.kind.as_deref().unwrap_or("all"))?))
}

pub(super) async fn user_keyspaces(State(api): State<Api>) -> Answer<Json<Vec<String>>> {
    Ok(Json(names(&api.node().await?, "user")?))
}

pub(super) async fn release(State(api): State<Api>) -> Answer<Json<String>> {
    Ok(Json(api.node().await?.release_version))
}

pub(super) async fn server_version(State(api): State<Api>) -> Answer<Json<String>> {
    Ok(Json(api.node().await?.server_version))
}

pub(super) async fn schema_version(State(api): State<Api>) -> Answer<Json<String>> {
    Ok(Json(api.node().await?.schema_version))
}

pub(super) async fn cluster_name(State(api): State<Api>) -> Answer<Json<String>> {
    Ok(Json(api.node().await?.cluster_name))
}

pub(super) async fn partitioner(State(api): State<Api>) -> Answer<Json<String>> {
    Ok(Json(api.node().await?.partitioner))
}

pub(super) async fn generation(State(api): State<Api>) -> Answer<Json<i64>> {
    Ok(Json(api.node().await?.generation))
}

pub(super) async fn load(State(api): State<Api>) -> Answer<Json<u64>> {
    Ok(Json(api.tables().await?.iter().map(|t| t.disk_bytes).sum()))
}

fn tokens(node: &NodeReport, name: &str) -> Result<Vec<String>, ApiError> {
    let member = node.nodes.iter().find(|m| m.address == name || m.host_id == name);
    let member = member.ok_or_else(|| argument(format!("no node {name} is known")))?;
    let mut tokens = member.tokens.clone();
    tokens.sort_unstable();
    Ok(tokens.iter().map(ToString::to_string).collect())
}

pub(super) async fn own_tokens(State(api): State<Api>) -> Answer<Json<Vec<String>>> {
    let node = api.node().await?;
    tokens(&node, &node.host_id).map(Json)
}

pub(super) async fn tokens_of(
    State(api): State<Api>,
    Path(endpoint): Path<String>,
) -> Answer<Json<Vec<String>>> {
    tokens(&api.node().await?, &endpoint).map(Json)
}

pub(super) async fn token_ownership(State(api): State<Api>) -> Answer<Json<Vec<Entry<String>>>> {
    Ok(Json(raw_shares(&api.node().await?)))
}

/// Part of the ring by member, without regard to replicas.
fn raw_shares(node: &NodeReport) -> Vec<Entry<String>> {
    let mut tokens: Vec<i64> = node.nodes.iter().flat_map(|m| m.tokens.clone()).collect();
    tokens.sort_unstable();
    let share = |token: i64| {
        let at = tokens.partition_point(|t| *t < token);
        let before = at.checked_sub(1).and_then(|i| tokens.get(i)).or(tokens.last());
        match before.map_or(0, |before| token.wrapping_sub(*before) as u64) {
            // One token has the whole ring.
            0 => 1.0,
            width => width as f64 / 2_f64.powi(64),
        }
    };
    let entry = |m: &crate::model::MemberReport| Entry {
        key: m.address.clone(),
        value: m.tokens.iter().map(|t| share(*t)).sum::<f64>().to_string(),
    };
    node.nodes.iter().map(entry).collect()
}

/// One range of `range_to_endpoint_map`.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct RangeEntry {
    key: [String; 2],
    value: Vec<String>,
}

pub(super) async fn range_map(
    State(api): State<Api>,
    Path(keyspace): Path<String>,
) -> Answer<Json<Vec<RangeEntry>>> {
    let node = api.node().await?;
    let ranges = node.ranges(&keyspace).map_err(ActionError::Argument)?;
    let entry = |range: crate::model::RangeReport| RangeEntry {
        key: [range.start.to_string(), range.end.to_string()],
        value: range
            .nodes
            .iter()
            .filter_map(|place| node.nodes.get(*place))
            .map(|m| m.address.clone())
            .collect(),
    };
    Ok(Json(ranges.into_iter().map(entry).collect()))
}

pub(super) async fn is_initialized(State(api): State<Api>) -> Answer<Json<bool>> {
    let mode = api.cluster().await?.operation_mode;
    Ok(Json(!matches!(mode.as_str(), "STARTING" | "JOINING" | "DECOMMISSIONED")))
}

/// Thrift is not supported.
pub(super) async fn no() -> Json<bool> {
    Json(false)
}

pub(super) async fn data_files(State(api): State<Api>) -> Answer<Json<Vec<String>>> {
    Ok(Json(settings(&api).await?.data_directories))
}

pub(super) async fn backups(State(api): State<Api>) -> Answer<Json<bool>> {
    Ok(Json(settings(&api).await?.incremental_backups))
}

#[derive(Debug, Deserialize)]
pub(super) struct SwitchQuery {
    value: bool,
}

pub(super) async fn set_backups(
    State(api): State<Api>,
    Query(query): Query<SwitchQuery>,
) -> Answer<()> {
    told(api, ClusterCommand::SetIncrementalBackups { enabled: query.value }).await
}

pub(super) async fn trace_probability(State(api): State<Api>) -> Answer<Json<f64>> {
    Ok(Json((settings(&api).await?.trace_probability * 1e6).round() / 1e6))
}

#[derive(Debug, Deserialize)]
pub(super) struct ProbabilityQuery {
    probability: f64,
}

pub(super) async fn set_trace_probability(
    State(api): State<Api>,
    Query(query): Query<ProbabilityQuery>,
) -> Answer<()> {
    if !(0.0..=1.0).contains(&query.probability) {
        return Err(argument("Trace probability must be between 0 and 1"));
    }
    let per_million = (query.probability * 1e6).round() as u32;
    told(api, ClusterCommand::SetTraceProbability { per_million }).await
}

pub(super) async fn snitch(State(api): State<Api>) -> Answer<Json<String>> {
    Ok(Json(api.node().await?.snitch))
}

#[derive(Debug, Deserialize)]
pub(super) struct HostQuery {
    host: Option<String>,
}

async fn place(api: &Api, query: HostQuery) -> Answer<(String, String)> {
    let node = api.node().await?;
    let name = query.host.filter(|h| !h.is_empty()).unwrap_or_else(|| node.host_id.clone());
    let member = node.nodes.into_iter().find(|m| m.address == name || m.host_id == name);
    let member = member.ok_or_else(|| argument(format!("no node {name} is known")))?;
    Ok((member.datacenter, member.rack))
}

pub(super) async fn datacenter(
    State(api): State<Api>,
    Query(query): Query<HostQuery>,
) -> Answer<Json<String>> {
    Ok(Json(place(&api, query).await?.0))
}

pub(super) async fn rack(
    State(api): State<Api>,
    Query(query): Query<HostQuery>,
) -> Answer<Json<String>> {
    Ok(Json(place(&api, query).await?.1))
}

pub(super) async fn phi(State(api): State<Api>) -> Answer<Json<String>> {
    Ok(Json(settings(&api).await?.phi_convict_threshold.to_string()))
}

pub(super) async fn uptime(State(api): State<Api>) -> Answer<Json<u64>> {
    Ok(Json(api.node().await?.uptime_seconds.saturating_mul(1000)))
}

pub(super) async fn loggers(State(api): State<Api>) -> Answer<Json<Vec<String>>> {
    Ok(Json(api.log()?.levels().into_iter().map(|l| l.logger).collect()))
}

pub(super) async fn logger(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Answer<Json<String>> {
    let levels = api.log()?.levels();
    let level = levels.iter().find(|l| l.logger == name).or(levels.first());
    let level = level.ok_or_else(|| argument(format!("Unknown logger {name}")))?;
    Ok(Json(level.level.to_lowercase()))
}

#[derive(Debug, Deserialize)]
pub(super) struct LevelQuery {
    level: String,
}

pub(super) async fn set_logger(
    State(api): State<Api>,
    Path(logger): Path<String>,
    Query(query): Query<LevelQuery>,
) -> Answer<()> {
    let wanted = LogLevelReport { logger, level: query.level };
    Ok(api.log()?.set(&wanted).map_err(ActionError::Argument)?)
}

// ------------------------------------------------------------- its data

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct TableEntry {
    ks: String,
    cf: String,
    #[serde(rename = "type")]
    kind: &'static str,
}

pub(super) async fn tables(State(api): State<Api>) -> Answer<Json<Vec<TableEntry>>> {
    let entry = |t: TableReport| TableEntry { ks: t.keyspace, cf: t.table, kind: "ColumnFamilies" };
    Ok(Json(api.tables().await?.into_iter().map(entry).collect()))
}

pub(super) async fn table_names(State(api): State<Api>) -> Answer<Json<Vec<String>>> {
    let name = |t: TableReport| format!("{}:{}", t.keyspace, t.table);
    Ok(Json(api.tables().await?.into_iter().map(name).collect()))
}

pub(super) async fn table_keyspaces(State(api): State<Api>) -> Answer<Json<Vec<String>>> {
    let mut names: Vec<String> = api.tables().await?.into_iter().map(|t| t.keyspace).collect();
    names.dedup();
    Ok(Json(names))
}

pub(super) async fn drain(State(api): State<Api>) -> Answer<()> {
    api.command(AdminRequest::Drain).await.map(|_| ())
}

pub(super) async fn move_to(State(api): State<Api>, Path(token): Path<String>) -> Answer<()> {
    told(api, ClusterCommand::Move { token }).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RebuildQuery {
    source_dc: Option<String>,
}

pub(super) async fn rebuild(
    State(api): State<Api>,
    Query(query): Query<RebuildQuery>,
) -> Answer<()> {
    let rebuild = ClusterCommand::Rebuild {
        datacenter: query.source_dc.filter(|dc| !dc.is_empty()),
        keyspace: None,
        tokens: None,
        sources: None,
        exclude_local_dc: false,
    };
    told(api, rebuild).await
}

#[derive(Debug, Deserialize)]
pub(super) struct TablesQuery {
    cf: Option<String>,
}

fn selection(keyspace: String, query: TablesQuery) -> Selection {
    let names = query.cf.unwrap_or_default();
    let tables = names.split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect();
    Selection { keyspaces: vec![keyspace], tables }
}

pub(super) async fn flush(
    State(api): State<Api>,
    Path(keyspace): Path<String>,
    Query(query): Query<TablesQuery>,
) -> Answer<()> {
    api.command(AdminRequest::Flush(selection(keyspace, query))).await.map(|_| ())
}

pub(super) async fn compact(
    State(api): State<Api>,
    Path(keyspace): Path<String>,
    Query(query): Query<TablesQuery>,
) -> Answer<()> {
    api.command(AdminRequest::Compact(selection(keyspace, query))).await.map(|_| ())
}

/// One table of a snapshot.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct SnapshotEntry {
    ks: String,
    cf: String,
    total: u64,
    live: u64,
}

/// By name, in order.
fn by_tag(snapshots: Vec<SnapshotReport>) -> Vec<Entry<Vec<SnapshotEntry>>> {
    let mut all: Vec<Entry<Vec<SnapshotEntry>>> = Vec::new();
    for s in snapshots {
        let entry =
            SnapshotEntry { ks: s.keyspace, cf: s.table, total: s.disk_bytes, live: s.true_bytes };
        match all.last_mut() {
            Some(last) if last.key == s.tag => last.value.push(entry),
            _ => all.push(Entry { key: s.tag, value: vec![entry] }),
        }
    }
    all
}

pub(super) async fn snapshots(
    State(api): State<Api>,
) -> Answer<Json<Vec<Entry<Vec<SnapshotEntry>>>>> {
    Ok(Json(by_tag(api.snapshots().await?)))
}

pub(super) async fn snapshots_size(State(api): State<Api>) -> Answer<Json<u64>> {
    Ok(Json(api.snapshots().await?.iter().map(|s| s.true_bytes).sum()))
}

#[derive(Debug, Deserialize)]
pub(super) struct SnapshotQuery {
    tag: Option<String>,
    /// Keyspaces.
    kn: Option<String>,
    /// Tables of the one keyspace.
    cf: Option<String>,
    #[serde(default)]
    sf: bool,
}

fn list(text: Option<String>) -> Vec<String> {
    let text = text.unwrap_or_default();
    text.split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect()
}

pub(super) async fn take_snapshot(
    State(api): State<Api>,
    Query(query): Query<SnapshotQuery>,
) -> Answer<()> {
    let tag = query.tag.unwrap_or_default();
    let body = crate::model::SnapshotRequest {
        tag,
        keyspaces: list(query.kn),
        tables: list(query.cf),
        skip_flush: query.sf,
        ttl_seconds: None,
    };
    super::node::take_snapshot(State(api), Json(body)).await.map(|_| ())
}

pub(super) async fn clear_snapshots(
    State(api): State<Api>,
    Query(query): Query<SnapshotQuery>,
) -> Answer<()> {
    if query.cf.is_some_and(|cf| !cf.is_empty()) {
        return Err(ActionError::Unsupported("removing the snapshot of a single table").into());
    }
    let tag = query.tag.filter(|tag| !tag.is_empty());
    let keyspaces = list(query.kn);
    let body = crate::model::ClearRequest { tag, keyspaces, ..Default::default() };
    super::node::clear_snapshots(State(api), Json(body)).await.map(|_| ())
}

pub(super) async fn compaction_throughput(State(api): State<Api>) -> Answer<Json<u64>> {
    Ok(Json(api.compactions().await?.bytes_per_second_max >> 20))
}

#[derive(Debug, Deserialize)]
pub(super) struct ValueQuery {
    value: u64,
}

pub(super) async fn set_compaction_throughput(
    State(api): State<Api>,
    Query(query): Query<ValueQuery>,
) -> Answer<()> {
    let bytes_per_second = query.value.saturating_mul(1 << 20);
    told(api, ClusterCommand::SetCompactionThroughput { bytes_per_second }).await
}

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct CompactionEntry {
    id: String,
    completed: u64,
    total: u64,
    task_type: String,
    unit: &'static str,
    ks: String,
    cf: String,
}

pub(super) async fn compactions(State(api): State<Api>) -> Answer<Json<Vec<CompactionEntry>>> {
    let running = api.compactions().await?.running.into_iter();
    let entry = |c: crate::model::RunningReport| CompactionEntry {
        id: c.id,
        completed: c.completed,
        total: c.total,
        task_type: c.kind.to_uppercase(),
        unit: "bytes",
        ks: c.keyspace,
        cf: c.table,
    };
    Ok(Json(running.map(entry).collect()))
}

pub(super) async fn pending_compactions(State(api): State<Api>) -> Answer<Json<u64>> {
    let report = api.compactions().await?;
    Ok(Json(report.pending.iter().map(|p| p.tasks).sum()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::{SIMPLE, keyspace, three_nodes};

    #[test]
    fn keyspaces_are_of_the_type_that_is_asked_for() {
        let mut node = three_nodes();
        node.keyspaces.clear();
        let local = "org.apache.cassandra.locator.LocalStrategy";
        node.keyspaces.push(keyspace("system", &[("class", local)]));
        let simple = [("class", SIMPLE), ("replication_factor", "1")];
        node.keyspaces.push(keyspace("system_auth", &simple));
        node.keyspaces.push(keyspace("systems", &simple));
        let of = |kind| names(&node, kind).unwrap();
        assert_eq!(of("all"), ["system", "system_auth", "systems"]);
        assert_eq!(of("user"), ["systems"]);
        assert_eq!(of("non_local_strategy"), ["system_auth", "systems"]);
        assert!(names(&node, "x").is_err());
    }

    #[test]
    fn raw_shares_are_widths_of_ranges() {
        let mut node = three_nodes();
        let tokens = [vec![0], vec![i64::MIN / 2, i64::MAX], vec![]];
        for (member, tokens) in node.nodes.iter_mut().zip(tokens) {
            member.tokens = tokens;
        }
        let shares: Vec<f64> = raw_shares(&node).iter().map(|e| e.value.parse().unwrap()).collect();
        assert!((shares[0] - 0.25).abs() < 1e-9 && (shares[1] - 0.75).abs() < 1e-9, "{shares:?}");
        assert_eq!(shares[2], 0.0);
        node.nodes[1].tokens.clear();
        assert_eq!(raw_shares(&node)[0].value, "1");
    }

    #[test]
    fn snapshots_have_the_shape_that_scyllas_tools_read() {
        let report = |tag: &str, table: &str| SnapshotReport {
            tag: tag.to_owned(),
            keyspace: "ks".to_owned(),
            table: table.to_owned(),
            true_bytes: 3,
            disk_bytes: 5,
            ..SnapshotReport::default()
        };
        let made = by_tag(vec![report("a", "t"), report("a", "u"), report("b", "t")]);
        assert_eq!(
            serde_json::to_value(&made).unwrap(),
            serde_json::json!([
                {"key": "a", "value": [
                    {"ks": "ks", "cf": "t", "total": 5, "live": 3},
                    {"ks": "ks", "cf": "u", "total": 5, "live": 3}]},
                {"key": "b", "value": [{"ks": "ks", "cf": "t", "total": 5, "live": 3}]},
            ])
        );
    }
}
