//! Paths about the node, its tables, compactions and snapshots.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use rt::MeshError;
use stdx::ShardId;

use super::api::{ANSWER_MAX, Answer, Api, ApiError};
use crate::model::{
    CacheReport, ClearRequest, ClientReport, ClusterReport, CompactionReport, CoordinatorReport,
    DrainRequest, GuardrailReport, GuardrailRequest, HistoryReport, NodeReport, PlannedReport,
    SnapshotReport, SnapshotRequest, TableReport, TablesRequest, UpgradeRequest,
};
use crate::prometheus;
use crate::request::{ActionError, AdminReply, AdminRequest, Selection};

pub(super) async fn health(State(api): State<Api>) -> Answer<&'static str> {
    let asked = api.caller.call(ShardId(0), AdminRequest::Node);
    match api.caller.within(ANSWER_MAX, asked).await {
        Ok(Ok(_)) => Ok("ok\n"),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(MeshError::Full.into()),
    }
}

pub(super) async fn metrics(State(api): State<Api>) -> Answer<Response> {
    let mut shards = Vec::new();
    for reply in api.ask(&AdminRequest::Metrics).await? {
        if let AdminReply::Metrics(snapshot) = reply {
            shards.push(snapshot);
        }
    }
    let node = api.node().await?;
    let tables = api.tables().await?;
    let compactions = api.compactions().await?;
    let mut cluster = ClusterReport::default();
    for reply in api.ask(&AdminRequest::Cluster).await? {
        if let AdminReply::Cluster(report) = reply {
            cluster.merge(*report);
        }
    }
    let mut text = prometheus::text(&node, &shards, &tables, &compactions, &cluster);
    text.push_str(&api.access.refusals.text());
    Ok(([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], text).into_response())
}

pub(super) async fn clients(State(api): State<Api>) -> Answer<Json<Vec<ClientReport>>> {
    let mut all = Vec::new();
    for reply in api.ask(&AdminRequest::Clients).await? {
        if let AdminReply::Clients(clients) = reply {
            all.extend(clients);
        }
    }
    all.sort_by(|a, b| (&a.address, a.port).cmp(&(&b.address, b.port)));
    Ok(Json(all))
}

pub(super) async fn key_samples(State(api): State<Api>) -> Answer<Json<Vec<String>>> {
    let mut all = Vec::new();
    for reply in api.ask(&AdminRequest::KeySamples).await? {
        if let AdminReply::KeySamples(tokens) = reply {
            all.extend(tokens);
        }
    }
    all.sort_unstable();
    Ok(Json(all.iter().map(ToString::to_string).collect()))
}

pub(super) async fn caches(State(api): State<Api>) -> Answer<Json<Vec<CacheReport>>> {
    Ok(Json(CacheReport::of_metrics(&api.metrics().await?)))
}

pub(super) async fn guardrails(State(api): State<Api>) -> Answer<Json<Vec<GuardrailReport>>> {
    let asked = api.caller.call(ShardId(0), AdminRequest::Guardrails);
    let reply = api.caller.within(ANSWER_MAX, asked).await;
    match reply.map_err(|_| ApiError::from(MeshError::Full))?? {
        AdminReply::Guardrails(all) => Ok(Json(all)),
        _ => Err(MeshError::Closed.into()),
    }
}

pub(super) async fn set_guardrail(
    State(api): State<Api>,
    Json(change): Json<GuardrailRequest>,
) -> Answer<Json<DrainRequest>> {
    api.command(AdminRequest::SetGuardrail(change)).await
}

pub(super) async fn node(State(api): State<Api>) -> Answer<Json<NodeReport>> {
    api.node().await.map(Json)
}

pub(super) async fn tables(State(api): State<Api>) -> Answer<Json<Vec<TableReport>>> {
    let mut tables = api.tables().await?;
    // Without snapshots, or where they cannot be listed, the rest is still worth showing.
    if let Ok(snapshots) = api.snapshots().await {
        for snapshot in snapshots {
            let of =
                |t: &&mut TableReport| t.keyspace == snapshot.keyspace && t.table == snapshot.table;
            if let Some(table) = tables.iter_mut().find(of) {
                table.snapshot_bytes += snapshot.true_bytes;
            }
        }
    }
    Ok(Json(tables))
}

pub(super) async fn latencies(State(api): State<Api>) -> Answer<Json<CoordinatorReport>> {
    api.latencies().await.map(Json)
}

pub(super) async fn compactions(State(api): State<Api>) -> Answer<Json<CompactionReport>> {
    api.compactions().await.map(Json)
}

pub(super) async fn compaction_plan(State(api): State<Api>) -> Answer<Json<Vec<PlannedReport>>> {
    let mut all = Vec::new();
    for reply in api.ask(&AdminRequest::CompactionPlan).await? {
        if let AdminReply::Planned(plans) = reply {
            all.extend(plans);
        }
    }
    all.sort_by(|a, b| (&a.keyspace, &a.table, a.shard).cmp(&(&b.keyspace, &b.table, b.shard)));
    Ok(Json(all))
}

pub(super) async fn compaction_history(State(api): State<Api>) -> Answer<Json<Vec<HistoryReport>>> {
    match api.caller.call(ShardId(0), AdminRequest::CompactionHistory).await? {
        AdminReply::History(history) => Ok(Json(history)),
        AdminReply::Failed(error) => Err(error.into()),
        _ => Err(MeshError::Closed.into()),
    }
}

pub(super) async fn snapshots(State(api): State<Api>) -> Answer<Json<Vec<SnapshotReport>>> {
    api.snapshots().await.map(Json)
}

pub(super) async fn flush(
    State(api): State<Api>,
    Json(body): Json<TablesRequest>,
) -> Answer<Json<DrainRequest>> {
    api.command(AdminRequest::Flush(body.into())).await
}

pub(super) async fn compact(
    State(api): State<Api>,
    Json(body): Json<TablesRequest>,
) -> Answer<Json<DrainRequest>> {
    api.command(AdminRequest::Compact(body.into())).await
}

pub(super) async fn upgrade(
    State(api): State<Api>,
    Json(body): Json<UpgradeRequest>,
) -> Answer<Json<DrainRequest>> {
    let UpgradeRequest { keyspaces, tables, all, written_by } = body;
    let selection = Selection { keyspaces, tables };
    api.command(AdminRequest::Upgrade { selection, all, written_by }).await
}

pub(super) async fn drain(
    State(api): State<Api>,
    Json(_): Json<DrainRequest>,
) -> Answer<Json<DrainRequest>> {
    api.command(AdminRequest::Drain).await
}

/// Cassandra's minimum, unless `cassandra.snapshot.min_allowed_ttl_seconds` overrides it.
const TTL_SECONDS_MIN: u32 = 60;

pub(super) async fn take_snapshot(
    State(api): State<Api>,
    Json(body): Json<SnapshotRequest>,
) -> Answer<Json<DrainRequest>> {
    let SnapshotRequest { tag, keyspaces, tables, skip_flush, ttl_seconds } = body;
    if ttl_seconds.is_some_and(|seconds| seconds < TTL_SECONDS_MIN) {
        let text = format!("ttl for snapshot must be at least {TTL_SECONDS_MIN} seconds");
        return Err(ActionError::Argument(text).into());
    }
    let _turn = api.snapshot_turn.lock().await;
    // Before any shard begins: half a snapshot under an old name would be two in one.
    let meets = |s: &SnapshotReport| {
        s.tag == tag
            && (keyspaces.is_empty() || keyspaces.contains(&s.keyspace))
            && (tables.is_empty() || tables.contains(&s.table))
    };
    if api.snapshots().await?.iter().any(meets) {
        return Err(ActionError::Exists(format!("Snapshot {tag} already exists.")).into());
    }
    let selection = Selection { keyspaces, tables };
    api.command(AdminRequest::TakeSnapshot { tag, selection, skip_flush, ttl_seconds }).await
}

pub(super) async fn clear_snapshots(
    State(api): State<Api>,
    Json(body): Json<ClearRequest>,
) -> Answer<Json<DrainRequest>> {
    if body.older_than_seconds.is_some() && body.older_than_millis.is_some() {
        let text = "Specify only one of --older-than or --older-than-timestamp".to_owned();
        return Err(ActionError::Argument(text).into());
    }
    // None is taken meanwhile, or half of it would be left.
    let _turn = api.snapshot_turn.lock().await;
    // Snapshots belong to the node, not to a shard.
    match api.caller.call(ShardId(0), AdminRequest::ClearSnapshots(body)).await? {
        AdminReply::Failed(error) => Err(error.into()),
        _ => Ok(Json(DrainRequest {})),
    }
}

impl From<TablesRequest> for Selection {
    fn from(body: TablesRequest) -> Selection {
        Selection { keyspaces: body.keyspaces, tables: body.tables }
    }
}
