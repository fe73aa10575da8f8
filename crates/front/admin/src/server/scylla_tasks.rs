//! `/task_manager/` and `repair_status` of ScyllaDB's REST API, for repairs: its tasks here are the
//! repairs of this run of the node. And `/failure_detector/endpoints/`.

use axum::Json;
use axum::extract::{Path, Query, State};
use serde::{Deserialize, Serialize};

use super::api::{Answer, Api, ApiError};
use crate::model::{ErrorKind, GossipReport, NodeReport, RepairCommand, RepairReport};
use crate::request::ActionError;

/// The only module that has tasks.
const MODULE: &str = "repair";

/// A task in a list.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct TaskStats {
    task_id: String,
    state: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    scope: &'static str,
    keyspace: String,
    table: String,
    entity: String,
    sequence_number: u32,
}

/// A single task.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct TaskStatus {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    scope: &'static str,
    state: &'static str,
    is_abortable: bool,
    error: String,
    sequence_number: u32,
    shard: u32,
    keyspace: String,
    table: String,
    entity: String,
    progress_units: &'static str,
    progress_total: f64,
    progress_completed: f64,
    children_ids: Vec<String>,
}

fn state_of(report: &RepairReport) -> &'static str {
    match report.state.as_str() {
        "RUNNING" => "running",
        "SUCCESSFUL" => "done",
        _ => "failed",
    }
}

fn stats(report: &RepairReport) -> TaskStats {
    TaskStats {
        task_id: report.session.clone(),
        state: state_of(report),
        kind: "user-requested repair",
        scope: "keyspace",
        keyspace: report.keyspace.clone(),
        table: String::new(),
        entity: String::new(),
        sequence_number: report.id,
    }
}

fn status_of(report: &RepairReport) -> TaskStatus {
    let state = state_of(report);
    let error = match state {
        "failed" => crate::nodetool::repair_failure(report),
        _ => String::new(),
    };
    TaskStatus {
        id: report.session.clone(),
        kind: "user-requested repair",
        scope: "keyspace",
        state,
        is_abortable: true,
        error,
        sequence_number: report.id,
        shard: 0,
        keyspace: report.keyspace.clone(),
        table: String::new(),
        entity: String::new(),
        progress_units: "percent",
        progress_total: 100.0,
        progress_completed: f64::from(report.percent),
        children_ids: Vec::new(),
    }
}

pub(super) async fn modules() -> Json<Vec<&'static str>> {
    Json(vec![MODULE])
}

#[derive(Debug, Deserialize)]
pub(super) struct TasksQuery {
    keyspace: Option<String>,
}

pub(super) async fn tasks(
    State(api): State<Api>,
    Path(module): Path<String>,
    Query(query): Query<TasksQuery>,
) -> Answer<Json<Vec<TaskStats>>> {
    if module != MODULE {
        let text = format!("there is no module {module}, only {MODULE}");
        return Err(ActionError::Argument(text).into());
    }
    let all = api.repair(RepairCommand::List).await?;
    let of = |r: &&RepairReport| query.keyspace.as_ref().is_none_or(|k| *k == r.keyspace);
    Ok(Json(all.iter().filter(of).map(stats).collect()))
}

async fn task(api: &Api, id: &str) -> Answer<RepairReport> {
    let all = api.repair(RepairCommand::List).await?;
    let found = all.into_iter().find(|r| r.session == id);
    let found = found.ok_or_else(|| ApiError(ErrorKind::NotFound, format!("no task {id}")))?;
    api.repair_of(found.id, 0).await
}

pub(super) async fn status(
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Answer<Json<TaskStatus>> {
    Ok(Json(status_of(&task(&api, &id).await?)))
}

/// Interval of polls of a task that a client waits for.
const LOOK: std::time::Duration = std::time::Duration::from_millis(200);

pub(super) async fn wait(
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Answer<Json<TaskStatus>> {
    loop {
        let found = task(&api, &id).await?;
        if found.state != "RUNNING" {
            return Ok(Json(status_of(&found)));
        }
        tokio::time::sleep(LOOK).await;
    }
}

pub(super) async fn abort(State(api): State<Api>, Path(id): Path<String>) -> Answer<()> {
    let found = task(&api, &id).await?;
    if found.state == "RUNNING" {
        api.repair(RepairCommand::Abort { id: Some(found.id) }).await?;
    }
    Ok(())
}

#[derive(Debug, Deserialize)]
pub(super) struct StatusQuery {
    id: u32,
    /// Seconds to wait for its end; without it until then.
    timeout: Option<i64>,
}

pub(super) async fn repair_status(
    State(api): State<Api>,
    Query(query): Query<StatusQuery>,
) -> Answer<Json<String>> {
    let patience = query.timeout.and_then(|s| u64::try_from(s).ok());
    let until = patience.map(|s| tokio::time::Instant::now() + std::time::Duration::from_secs(s));
    loop {
        let found = api.repair_of(query.id, u64::MAX).await?;
        let is_late = until.is_some_and(|until| tokio::time::Instant::now() >= until);
        if found.state != "RUNNING" || is_late {
            return Ok(Json(found.state));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// A node's state in gossip.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct EndpointState {
    addrs: String,
    generation: u64,
    version: u64,
    /// Not recorded: 0.
    update_time: u64,
    is_alive: bool,
    application_state: Vec<ApplicationState>,
}

#[derive(Debug, PartialEq, Serialize)]
struct ApplicationState {
    application_state: u8,
    value: String,
    version: u64,
}

/// Numbers of application states there.
const STATUS: u8 = 0;
const LOAD: u8 = 1;
const SCHEMA: u8 = 2;
const DC: u8 = 3;
const RACK: u8 = 4;
const RELEASE_VERSION: u8 = 5;
const RPC_ADDRESS: u8 = 8;
const HOST_ID: u8 = 12;

fn endpoint_states(node: &NodeReport, gossip: &GossipReport) -> Vec<EndpointState> {
    let states = node.nodes.iter().filter_map(|member| {
        let peer = gossip.peer(&member.host_id)?;
        let first_token = member.tokens.iter().min().map_or(String::new(), ToString::to_string);
        let status = match (member.state.as_str(), peer.shutting_down) {
            (_, true) => "shutdown,true".to_owned(),
            ("Joining", _) => format!("BOOT,{first_token}"),
            ("Leaving", _) => format!("LEAVING,{first_token}"),
            ("Moving", _) => format!("MOVING,{first_token}"),
            _ => format!("NORMAL,{first_token}"),
        };
        let values = [
            (STATUS, status),
            (LOAD, peer.load_bytes.to_string()),
            (SCHEMA, peer.schema_version.clone().unwrap_or_default()),
            (DC, member.datacenter.clone()),
            (RACK, member.rack.clone()),
            (RELEASE_VERSION, member.release_version.clone()),
            (RPC_ADDRESS, member.rpc_address.clone()),
            (HOST_ID, member.host_id.clone()),
        ];
        let state = |(application_state, value)| ApplicationState {
            application_state,
            value,
            version: peer.version,
        };
        Some(EndpointState {
            addrs: member.address.clone(),
            generation: peer.generation,
            version: peer.heartbeat,
            update_time: 0,
            is_alive: peer.is_alive,
            application_state: values.into_iter().map(state).collect(),
        })
    });
    states.collect()
}

pub(super) async fn endpoints(State(api): State<Api>) -> Answer<Json<Vec<EndpointState>>> {
    let gossip = api.cluster().await?.gossip;
    let gossip = gossip.ok_or(ActionError::Unsupported("gossip on this node"))?;
    Ok(Json(endpoint_states(&api.node().await?, &gossip)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_is_a_task() {
        let report = RepairReport {
            id: 3,
            session: "s".to_owned(),
            keyspace: "ks".to_owned(),
            state: "RUNNING".to_owned(),
            percent: 40,
            ..RepairReport::default()
        };
        let shown = serde_json::to_value(stats(&report)).unwrap();
        assert_eq!(
            shown,
            serde_json::json!({
                "task_id": "s", "state": "running", "type": "user-requested repair",
                "scope": "keyspace", "keyspace": "ks", "table": "", "entity": "",
                "sequence_number": 3,
            })
        );
        let done = status_of(&RepairReport { state: "FAILED".to_owned(), ..report });
        assert_eq!((done.state, done.progress_completed), ("failed", 40.0));
        assert!(!done.error.is_empty());
    }
}
