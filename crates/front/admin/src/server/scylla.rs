//! Paths of ScyllaDB's REST API for what this node can do: tools that know them work here.
//!
//! Source: its public API description. Addresses are IP addresses without ports, as there; maps are
//! lists of `{"key": …, "value": …}`. Commands have no body, so a page in a user's browser could
//! send them. A command with an `Origin`, which every browser sends, is refused.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, Query, Request, State};
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::api::{Answer, Api, ApiError};
use super::cluster::EndpointsQuery;
use crate::model::{ClusterCommand, ErrorKind, HintsReport, MemberReport, NodeReport};
use crate::request::ActionError;

/// One entry of a map.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Entry<V> {
    pub(super) key: String,
    pub(super) value: V,
}

/// One range of `describe_ring`.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct RingRange {
    start_token: String,
    end_token: String,
    endpoints: Vec<String>,
    rpc_endpoints: Vec<String>,
    endpoint_details: Vec<EndpointDetail>,
}

#[derive(Debug, PartialEq, Serialize)]
struct EndpointDetail {
    host: String,
    datacenter: String,
    rack: String,
}

pub(super) async fn refuse_browsers(request: Request, next: Next) -> Response {
    let commands = request.method() != Method::GET && request.method() != Method::HEAD;
    if commands && request.headers().contains_key(header::ORIGIN) {
        let text = "commands are not taken from pages in a browser".to_owned();
        return ApiError(ErrorKind::Forbidden, text).into_response();
    }
    next.run(request).await
}

pub(super) async fn told(api: Api, command: ClusterCommand) -> Answer<()> {
    api.cluster_command(command).await.map(|_| ())
}

fn unsupported(what: &'static str) -> ApiError {
    ActionError::Unsupported(what).into()
}

// ------------------------------------------------------------- commands

pub(super) async fn decommission(State(api): State<Api>) -> Answer<()> {
    told(api, ClusterCommand::Decommission { force: false }).await
}

#[derive(Debug, Deserialize)]
pub(super) struct RemoveQuery {
    host_id: String,
    ignore_nodes: Option<String>,
}

pub(super) async fn remove_node(
    State(api): State<Api>,
    Query(query): Query<RemoveQuery>,
) -> Answer<()> {
    if query.ignore_nodes.is_some_and(|nodes| !nodes.is_empty()) {
        return Err(unsupported("ignore_nodes of remove_node"));
    }
    told(api, ClusterCommand::RemoveNode { host_id: query.host_id }).await
}

pub(super) async fn force_removal(State(api): State<Api>) -> Answer<()> {
    told(api, ClusterCommand::ForceRemoval {}).await
}

pub(super) async fn assassinate(State(api): State<Api>, Path(address): Path<String>) -> Answer<()> {
    told(api, ClusterCommand::Assassinate { address }).await
}

pub(super) async fn start_gossip(State(api): State<Api>) -> Answer<()> {
    told(api, ClusterCommand::SetGossip { enabled: true }).await
}

pub(super) async fn stop_gossip(State(api): State<Api>) -> Answer<()> {
    told(api, ClusterCommand::SetGossip { enabled: false }).await
}

pub(super) async fn start_native(State(api): State<Api>) -> Answer<()> {
    told(api, ClusterCommand::SetNativeTransport { enabled: true }).await
}

pub(super) async fn stop_native(State(api): State<Api>) -> Answer<()> {
    told(api, ClusterCommand::SetNativeTransport { enabled: false }).await
}

#[derive(Debug, Deserialize)]
pub(super) struct CleanupQuery {
    cf: Option<String>,
}

pub(super) async fn cleanup(
    State(api): State<Api>,
    Path(keyspace): Path<String>,
    Query(query): Query<CleanupQuery>,
) -> Answer<Json<u8>> {
    let names = query.cf.unwrap_or_default();
    let tables = names.split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect();
    told(api, ClusterCommand::Cleanup { keyspace, tables }).await?;
    Ok(Json(0))
}

#[derive(Debug, Deserialize)]
pub(super) struct ValueQuery {
    value: u64,
}

pub(super) async fn set_stream(
    State(api): State<Api>,
    Query(query): Query<ValueQuery>,
) -> Answer<()> {
    let bytes_per_second = query.value.saturating_mul(1 << 20);
    told(api, ClusterCommand::SetStreamThroughput { bytes_per_second }).await
}

#[derive(Debug, Deserialize)]
pub(super) struct ThrottleQuery {
    throttle: u64,
}

pub(super) async fn set_throttle(
    State(api): State<Api>,
    Query(query): Query<ThrottleQuery>,
) -> Answer<()> {
    told(api, ClusterCommand::SetHintThrottle { kib_per_second: query.throttle }).await
}

#[derive(Debug, Deserialize)]
pub(super) struct PauseQuery {
    pause: bool,
}

pub(super) async fn pause_hints(
    State(api): State<Api>,
    Query(query): Query<PauseQuery>,
) -> Answer<()> {
    told(api, ClusterCommand::PauseHints { paused: query.pause }).await
}

#[derive(Debug, Deserialize)]
pub(super) struct HostQuery {
    host: Option<String>,
}

pub(super) async fn truncate_hints(
    State(api): State<Api>,
    Query(query): Query<HostQuery>,
) -> Answer<()> {
    let address = query.host.filter(|host| !host.is_empty());
    told(api, ClusterCommand::TruncateHints { address }).await
}

#[derive(Debug, Deserialize)]
pub(super) struct EnableQuery {
    enable: bool,
}

pub(super) async fn enable_hints(
    State(api): State<Api>,
    Query(query): Query<EnableQuery>,
) -> Answer<()> {
    told(api, ClusterCommand::SetHintedHandoff { enabled: query.enable }).await
}

#[derive(Debug, Deserialize)]
pub(super) struct WindowQuery {
    ms: u64,
}

pub(super) async fn set_hint_window(
    State(api): State<Api>,
    Query(query): Query<WindowQuery>,
) -> Answer<()> {
    told(api, ClusterCommand::SetHintWindow { millis: query.ms }).await
}

#[derive(Debug, Deserialize)]
pub(super) struct TimeoutQuery {
    timeout: f64,
}

pub(super) async fn set_timeout(
    State(api): State<Api>,
    kind: &str,
    Query(query): Query<TimeoutQuery>,
) -> Answer<()> {
    let seconds = query.timeout;
    let millis = seconds * 1000.0;
    if !(0.0..=u32::MAX as f64).contains(&millis) {
        return Err(ActionError::Argument(format!("{seconds} s is no timeout")).into());
    }
    let (kind, millis) = (kind.to_owned(), millis as u64);
    told(api, ClusterCommand::SetTimeout { kind, millis }).await
}

// ------------------------------------------------------------- questions

pub(super) async fn removal_status(State(api): State<Api>) -> Answer<Json<String>> {
    let (node, cluster) = (api.node().await?, api.cluster().await?);
    Ok(Json(crate::nodetool::removal_status(&node, &cluster, Default::default())))
}

pub(super) async fn gossiping(State(api): State<Api>) -> Answer<Json<bool>> {
    let gossip = api.cluster().await?.gossip.ok_or_else(|| unsupported("gossip on this node"))?;
    Ok(Json(gossip.active))
}

pub(super) async fn native(State(api): State<Api>) -> Answer<Json<bool>> {
    Ok(Json(api.node().await?.native_transport_active))
}

pub(super) async fn stream_throughput(State(api): State<Api>) -> Answer<Json<u64>> {
    let streaming = api.cluster().await?.streaming;
    let streaming = streaming.ok_or_else(|| unsupported("streaming on this node"))?;
    Ok(Json(streaming.bytes_per_second_max >> 20))
}

pub(super) async fn operation_mode(State(api): State<Api>) -> Answer<Json<String>> {
    let mode = api.cluster().await?.operation_mode;
    if mode.is_empty() {
        return Err(unsupported("the operation mode of this node"));
    }
    Ok(Json(mode))
}

#[derive(Debug, Deserialize)]
pub(super) struct NaturalQuery {
    cf: String,
    key: String,
}

pub(super) async fn natural_endpoints(
    State(api): State<Api>,
    Path(keyspace): Path<String>,
    Query(query): Query<NaturalQuery>,
) -> Answer<Json<Vec<String>>> {
    let NaturalQuery { cf: table, key } = query;
    let found = api.endpoints(EndpointsQuery { keyspace, table, key }).await?;
    let node = api.node().await?;
    let address = |id: &String| node.nodes.iter().find(|n| n.host_id == *id).map(address_of);
    Ok(Json(found.host_ids.iter().filter_map(address).collect()))
}

fn address_of(member: &MemberReport) -> String {
    member.address.clone()
}

pub(super) async fn describe_ring(
    State(api): State<Api>,
    Path(keyspace): Path<String>,
) -> Answer<Json<Vec<RingRange>>> {
    let node = api.node().await?;
    ring_ranges(&node, &keyspace).map(Json).map_err(|e| ActionError::Argument(e).into())
}

fn ring_ranges(node: &NodeReport, keyspace: &str) -> Result<Vec<RingRange>, String> {
    let detail = |m: &MemberReport| EndpointDetail {
        host: m.address.clone(),
        datacenter: m.datacenter.clone(),
        rack: m.rack.clone(),
    };
    let ranges = node.ranges(keyspace)?.into_iter().map(|range| {
        let members: Vec<&MemberReport> =
            range.nodes.iter().filter_map(|place| node.nodes.get(*place)).collect();
        RingRange {
            start_token: range.start.to_string(),
            end_token: range.end.to_string(),
            endpoints: members.iter().map(|m| m.address.clone()).collect(),
            rpc_endpoints: members.iter().map(|m| m.rpc_address.clone()).collect(),
            endpoint_details: members.iter().map(|m| detail(m)).collect(),
        }
    });
    Ok(ranges.collect())
}

pub(super) async fn ownership(
    State(api): State<Api>,
    Path(keyspace): Path<String>,
) -> Answer<Json<Vec<Entry<String>>>> {
    let node = api.node().await?;
    let owned = node.ownership(Some(&keyspace)).map_err(ActionError::Argument)?;
    let Some(effective) = owned.effective else {
        return Err(ActionError::Argument(owned.note.unwrap_or_default()).into());
    };
    let entry = |(member, owns): (&MemberReport, f64)| Entry {
        key: member.address.clone(),
        value: owns.to_string(),
    };
    Ok(Json(node.nodes.iter().zip(effective).map(entry).collect()))
}

async fn map_of<V>(
    api: &Api,
    value: impl Fn(&MemberReport) -> Option<V>,
) -> Answer<Json<Vec<Entry<V>>>> {
    let node = api.node().await?;
    let entry = |m: &MemberReport| Some(Entry { key: m.address.clone(), value: value(m)? });
    Ok(Json(node.nodes.iter().filter_map(entry).collect()))
}

pub(super) async fn host_ids(State(api): State<Api>) -> Answer<Json<Vec<Entry<String>>>> {
    map_of(&api, |m| Some(m.host_id.clone())).await
}

pub(super) async fn local_host_id(State(api): State<Api>) -> Answer<Json<String>> {
    Ok(Json(api.node().await?.host_id))
}

pub(super) async fn load_map(State(api): State<Api>) -> Answer<Json<Vec<Entry<u64>>>> {
    map_of(&api, |m| m.load_bytes).await
}

pub(super) async fn simple_states(
    State(api): State<Api>,
) -> Answer<Json<Vec<Entry<&'static str>>>> {
    map_of(&api, |m| (!m.liveness_unknown).then_some(if m.up { "UP" } else { "DOWN" })).await
}

pub(super) async fn tokens_endpoint(State(api): State<Api>) -> Answer<Json<Vec<Entry<String>>>> {
    let node = api.node().await?;
    let mut tokens: Vec<(i64, &MemberReport)> =
        node.nodes.iter().flat_map(|m| m.tokens.iter().map(move |t| (*t, m))).collect();
    tokens.sort_by_key(|(token, _)| *token);
    let entry = |(token, m): (i64, &MemberReport)| Entry {
        key: token.to_string(),
        value: m.address.clone(),
    };
    Ok(Json(tokens.into_iter().map(entry).collect()))
}

async fn addresses(api: &Api, wanted: impl Fn(&MemberReport) -> bool) -> Answer<Vec<String>> {
    let node = api.node().await?;
    Ok(node.nodes.iter().filter(|m| wanted(m)).map(address_of).collect())
}

pub(super) async fn nodes_in_state(
    State(api): State<Api>,
    Path(state): Path<String>,
) -> Answer<Json<Vec<String>>> {
    let word = match state.as_str() {
        "leaving" => "Leaving",
        "moving" => "Moving",
        "joining" => "Joining",
        _ => return Err(ApiError(ErrorKind::NotFound, format!("no state {state}"))),
    };
    addresses(&api, |m| m.state == word).await.map(Json)
}

fn is_live(member: &MemberReport) -> bool {
    member.up
}

fn is_down(member: &MemberReport) -> bool {
    !member.up && !member.liveness_unknown
}

pub(super) async fn live(State(api): State<Api>) -> Answer<Json<Vec<String>>> {
    addresses(&api, is_live).await.map(Json)
}

pub(super) async fn down(State(api): State<Api>) -> Answer<Json<Vec<String>>> {
    addresses(&api, is_down).await.map(Json)
}

pub(super) async fn count_up(State(api): State<Api>) -> Answer<Json<usize>> {
    Ok(Json(addresses(&api, is_live).await?.len()))
}

pub(super) async fn count_down(State(api): State<Api>) -> Answer<Json<usize>> {
    Ok(Json(addresses(&api, is_down).await?.len()))
}

/// A number that gossip knows of the node at an address, or of that id.
async fn of_peer(
    api: &Api,
    name: &str,
    value: fn(&crate::model::GossipPeerReport) -> u64,
) -> Answer<Json<u64>> {
    let gossip = api.cluster().await?.gossip.ok_or_else(|| unsupported("gossip on this node"))?;
    let node = api.node().await?;
    let member = node.nodes.iter().find(|m| m.address == name || m.host_id == name);
    let peer = member.and_then(|m| gossip.peer(&m.host_id));
    let peer = peer.ok_or_else(|| ActionError::Argument(format!("no node {name} is known")))?;
    Ok(Json(value(peer)))
}

pub(super) async fn generation(
    State(api): State<Api>,
    Path(address): Path<String>,
) -> Answer<Json<u64>> {
    of_peer(&api, &address, |p| p.generation).await
}

pub(super) async fn heartbeat(
    State(api): State<Api>,
    Path(address): Path<String>,
) -> Answer<Json<u64>> {
    of_peer(&api, &address, |p| p.heartbeat).await
}

#[derive(Debug, Serialize)]
pub(super) struct PhiValue {
    endpoint: String,
    phi: f64,
}

pub(super) async fn phi_values(State(api): State<Api>) -> Answer<Json<Vec<PhiValue>>> {
    let gossip = api.cluster().await?.gossip.ok_or_else(|| unsupported("gossip on this node"))?;
    let node = api.node().await?;
    let value = |m: &MemberReport| {
        Some(PhiValue { endpoint: m.address.clone(), phi: gossip.peer(&m.host_id)?.phi? })
    };
    Ok(Json(node.nodes.iter().filter_map(value).collect()))
}

async fn hints(api: &Api) -> Answer<HintsReport> {
    api.cluster().await?.hints.ok_or_else(|| unsupported("hinted handoff on this node"))
}

pub(super) async fn pending_hints(State(api): State<Api>) -> Answer<Json<Vec<String>>> {
    let hints = hints(&api).await?;
    let has = |m: &MemberReport| hints.pending.iter().any(|p| p.host_id == m.host_id);
    addresses(&api, has).await.map(Json)
}

pub(super) async fn hints_enabled(State(api): State<Api>) -> Answer<Json<bool>> {
    Ok(Json(hints(&api).await?.enabled))
}

pub(super) async fn hint_window(State(api): State<Api>) -> Answer<Json<u64>> {
    Ok(Json(hints(&api).await?.window_millis))
}

pub(super) async fn timeout(State(api): State<Api>, kind: &str) -> Answer<Json<f64>> {
    let timeouts = api.cluster().await?.timeouts;
    let millis = timeouts.get(kind).ok_or_else(|| unsupported("this timeout"))?;
    Ok(Json(*millis as f64 / 1000.0))
}

pub(super) async fn schema_versions(
    State(api): State<Api>,
) -> Answer<Json<Vec<Entry<Vec<String>>>>> {
    let node = api.node().await?;
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for member in &node.nodes {
        let version = crate::nodetool::schema_version(member).to_owned();
        versions.entry(version).or_default().push(member.address.clone());
    }
    let entries = versions.into_iter().map(|(key, value)| Entry { key, value });
    Ok(Json(entries.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::{SIMPLE, keyspace, three_nodes};

    #[test]
    fn ring_has_the_shape_that_scyllas_tools_read() {
        let mut node = three_nodes();
        node.keyspaces.push(keyspace("one", &[("class", SIMPLE), ("replication_factor", "1")]));
        let ranges = serde_json::to_value(ring_ranges(&node, "one").unwrap()).unwrap();
        assert_eq!(
            ranges[1],
            serde_json::json!({
                "start_token": (i64::MIN / 2).to_string(),
                "end_token": "0",
                "endpoints": ["127.0.0.2"],
                "rpc_endpoints": ["127.0.0.2"],
                "endpoint_details": [
                    {"host": "127.0.0.2", "datacenter": "dc1", "rack": "r2"}
                ],
            })
        );
        assert!(ring_ranges(&node, "none").is_err());
    }
}
