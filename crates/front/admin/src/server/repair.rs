//! Paths about repairs: `/storage_service/repair_async` as ScyllaDB has it, and `/api/v1/repairs`
//! with all that there is.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use axum::Json;
use axum::extract::{Path, Query, State};
use rt::MeshError;
use serde::Deserialize;
use stdx::ShardId;

use super::api::{ANSWER_MAX, Answer, Api, ApiError};
use crate::model::{
    AutoRepairReport, DrainRequest, ErrorKind, RepairCommand, RepairOrder, RepairReport,
    RepairSummary, RepairSummaryQuery,
};
use crate::request::{ActionError, AdminReply, AdminRequest};

impl Api {
    /// Repairs are shard 0's.
    pub(super) async fn repair(&self, command: RepairCommand) -> Answer<Vec<RepairReport>> {
        let asked = self.caller.call(ShardId(0), AdminRequest::Repair(command));
        let reply = self.caller.within(ANSWER_MAX, asked).await;
        match reply.map_err(|_| ApiError::from(MeshError::Full))?? {
            AdminReply::Repairs(reports) => Ok(reports),
            AdminReply::Failed(error) => Err(error.into()),
            _ => Err(MeshError::Closed.into()),
        }
    }

    pub(super) async fn repair_of(&self, id: u32, from: u64) -> Answer<RepairReport> {
        let found = self.repair(RepairCommand::Status { id, from }).await?.into_iter().next();
        found.ok_or_else(|| {
            ApiError(ErrorKind::NotFound, format!("there is no repair of number {id}"))
        })
    }
}

/// The query of `POST /storage_service/repair_async/{keyspace}`: ScyllaDB's names, which are
/// Cassandra's options, and those of the rest of these. Others are refused.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct StartQuery {
    primary_range: bool,
    /// 0 or `sequential`, 1 or `parallel`.
    parallelism: Option<String>,
    incremental: Option<bool>,
    job_threads: Option<u8>,
    /// `start:end,…`
    ranges: String,
    start_token: Option<i64>,
    end_token: Option<i64>,
    column_families: String,
    data_centers: String,
    hosts: String,
    preview: bool,
    /// Preview of repaired data.
    validate: bool,
    ignore_unreplicated_keyspaces: bool,
    trace: bool,
    pull_repair: bool,
    force_repair: bool,
    paxos_only: bool,
    skip_paxos: bool,
}

fn list_of(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|s| !s.is_empty()).map(str::to_owned).collect()
}

fn argument(text: impl Into<String>) -> ApiError {
    ActionError::Argument(text.into()).into()
}

fn order_of(keyspace: String, query: StartQuery) -> Answer<RepairOrder> {
    let (sequential, datacenter_parallel) = match query.parallelism.as_deref() {
        None | Some("1" | "parallel") => (false, false),
        Some("0" | "sequential") => (true, false),
        Some("2" | "dc_parallel") => (false, true),
        Some(other) => return Err(argument(format!("Unknown repair parallelism: {other}"))),
    };
    let mut ranges = Vec::new();
    for range in list_of(&query.ranges) {
        let tokens = range.split_once(':').and_then(|(start, end)| {
            Some((start.trim().parse::<i64>().ok()?, end.trim().parse::<i64>().ok()?))
        });
        let tokens = tokens.ok_or_else(|| argument(format!("Invalid range: {range}")))?;
        ranges.push(tokens);
    }
    match (query.start_token, query.end_token) {
        (None, None) => {}
        (Some(start), Some(end)) => ranges.push((start, end)),
        _ => return Err(argument("a range needs both its tokens")),
    }
    Ok(RepairOrder {
        keyspace,
        tables: list_of(&query.column_families),
        primary_range: query.primary_range,
        ranges,
        datacenters: list_of(&query.data_centers),
        hosts: list_of(&query.hosts),
        preview: query.preview,
        sequential,
        job_threads: query.job_threads.unwrap_or(1),
        incremental: query.incremental.unwrap_or(false),
        ignore_unreplicated: query.ignore_unreplicated_keyspaces,
        validate: query.validate,
        datacenter_parallel,
        force: query.force_repair,
        pull: query.pull_repair,
        paxos_only: query.paxos_only,
        skip_paxos: query.skip_paxos,
        trace: query.trace,
    })
}

pub(super) async fn start(
    State(api): State<Api>,
    Path(keyspace): Path<String>,
    Query(query): Query<StartQuery>,
) -> Answer<Json<u32>> {
    let order = order_of(keyspace, query)?;
    let started = api.repair(RepairCommand::Start(order)).await?;
    Ok(Json(started.first().map_or(0, |r| r.id)))
}

#[derive(Debug, Deserialize)]
pub(super) struct IdQuery {
    id: u32,
}

pub(super) async fn state(
    State(api): State<Api>,
    Path(keyspace): Path<String>,
    Query(query): Query<IdQuery>,
) -> Answer<Json<String>> {
    let found = api.repair_of(query.id, u64::MAX).await?;
    if found.keyspace != keyspace {
        let text = format!("the repair {} is one of the keyspace {}", query.id, found.keyspace);
        return Err(argument(text));
    }
    Ok(Json(found.state))
}

pub(super) async fn active(State(api): State<Api>) -> Answer<Json<Vec<u32>>> {
    let all = api.repair(RepairCommand::List).await?;
    Ok(Json(all.iter().filter(|r| r.state == "RUNNING").map(|r| r.id).collect()))
}

pub(super) async fn abort_all(State(api): State<Api>) -> Answer<()> {
    api.repair(RepairCommand::Abort { id: None }).await.map(|_| ())
}

impl Api {
    async fn auto_repair(&self, enabled: Option<bool>) -> Answer<AutoRepairReport> {
        let asked = self.caller.call(ShardId(0), AdminRequest::AutoRepair(enabled));
        let reply = self.caller.within(ANSWER_MAX, asked).await;
        match reply.map_err(|_| ApiError::from(MeshError::Full))?? {
            AdminReply::AutoRepair(report) => Ok(report),
            AdminReply::Failed(error) => Err(error.into()),
            _ => Err(MeshError::Closed.into()),
        }
    }
}

pub(super) async fn auto_status(State(api): State<Api>) -> Answer<Json<AutoRepairReport>> {
    api.auto_repair(None).await.map(Json)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AutoQuery {
    enabled: bool,
}

pub(super) async fn set_auto(
    State(api): State<Api>,
    Query(query): Query<AutoQuery>,
) -> Answer<Json<DrainRequest>> {
    api.auto_repair(Some(query.enabled)).await?;
    Ok(Json(DrainRequest {}))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SummaryQuery {
    keyspace: Option<String>,
    tables: String,
    start: Option<i64>,
    end: Option<i64>,
}

pub(super) async fn summary(
    State(api): State<Api>,
    Query(query): Query<SummaryQuery>,
) -> Answer<Json<Vec<RepairSummary>>> {
    let range = match (query.start, query.end) {
        (None, None) => None,
        (Some(start), Some(end)) if start < end => Some((start, end)),
        (Some(_), Some(_)) => return Err(argument("a range begins before it ends")),
        _ => return Err(argument("a range needs both its tokens")),
    };
    let (keyspace, tables) = (query.keyspace, list_of(&query.tables));
    let asked = RepairSummaryQuery { keyspace, tables, range };
    let mut all: BTreeMap<(String, String), RepairSummary> = BTreeMap::new();
    for reply in api.ask(&AdminRequest::RepairSummary(asked)).await? {
        match reply {
            AdminReply::RepairSummary(summaries) => {
                for one in summaries {
                    match all.entry((one.keyspace.clone(), one.table.clone())) {
                        Entry::Vacant(place) => drop(place.insert(one)),
                        Entry::Occupied(mut place) => place.get_mut().merge(one),
                    }
                }
            }
            AdminReply::Failed(error) => return Err(error.into()),
            _ => return Err(MeshError::Closed.into()),
        }
    }
    Ok(Json(all.into_values().collect()))
}

pub(super) async fn list(State(api): State<Api>) -> Answer<Json<Vec<RepairReport>>> {
    api.repair(RepairCommand::List).await.map(Json)
}

#[derive(Debug, Deserialize)]
pub(super) struct FromQuery {
    #[serde(default)]
    from: u64,
}

pub(super) async fn one(
    State(api): State<Api>,
    Path(id): Path<u32>,
    Query(query): Query<FromQuery>,
) -> Answer<Json<RepairReport>> {
    api.repair_of(id, query.from).await.map(Json)
}

pub(super) async fn abort(
    State(api): State<Api>,
    Path(id): Path<u32>,
) -> Answer<Json<DrainRequest>> {
    let found = api.repair_of(id, u64::MAX).await?;
    if found.state == "RUNNING" {
        api.repair(RepairCommand::Abort { id: Some(id) }).await?;
    }
    Ok(Json(DrainRequest {}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(query: StartQuery) -> Result<RepairOrder, String> {
        order_of("ks".to_owned(), query).map_err(|e| e.1)
    }

    #[test]
    fn options_are_scyllas_and_none_is_ignored() {
        let query = StartQuery {
            ranges: "-5:7,9:10".to_owned(),
            column_families: "a, b".to_owned(),
            parallelism: Some("0".to_owned()),
            incremental: Some(true),
            job_threads: Some(3),
            ..StartQuery::default()
        };
        let made = order(query).unwrap();
        assert_eq!((made.ranges, made.tables), (vec![(-5, 7), (9, 10)], list_of("a,b")));
        assert_eq!((made.sequential, made.incremental, made.job_threads), (true, true, 3));
        let query = StartQuery {
            parallelism: Some("2".into()),
            pull_repair: true,
            force_repair: true,
            validate: true,
            trace: true,
            ..Default::default()
        };
        let made = order(query).unwrap();
        assert!(made.datacenter_parallel && made.pull && made.force && made.validate && made.trace);
        let query = StartQuery { start_token: Some(1), end_token: Some(2), ..Default::default() };
        assert_eq!(order(query).unwrap().ranges, [(1, 2)]);
        for (query, word) in [
            (StartQuery { start_token: Some(1), ..Default::default() }, "both"),
            (StartQuery { ranges: "1-2".to_owned(), ..Default::default() }, "Invalid range"),
            (StartQuery { parallelism: Some("x".into()), ..Default::default() }, "Unknown"),
        ] {
            let words = order(query).unwrap_err();
            assert!(words.contains(word), "{words}");
        }
    }
}
