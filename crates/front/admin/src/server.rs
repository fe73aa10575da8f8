//! The HTTP server: its own thread, its own runtime, JSON in and out.
//!
//! Commands need a body of type `application/json`, so that a page in somebody's browser cannot
//! give one without being asked first (a cross-origin request of that type needs a permission that
//! is never given).

mod cidr;
mod cluster;
mod connections;
mod load;
mod log;
mod rates;
mod repair;
mod sampling;
mod scylla;
mod scylla_data;
mod scylla_histograms;
mod scylla_metrics;
mod scylla_tasks;
mod upkeep;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use rt::MeshError;
use stdx::ShardId;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, oneshot};

use crate::histogram::HistogramReport;
use crate::model::{
    CacheReport, ClearRequest, ClientReport, ClusterReport, CompactionReport, CoordinatorReport,
    DrainRequest, ErrorReport, GuardrailReport, GuardrailRequest, HistoryReport, NodeReport,
    PlannedReport, SnapshotReport, SnapshotRequest, TableReport, TablesRequest, UpgradeRequest,
};
use crate::prometheus;
use crate::shard::{ActionError, AdminCaller, AdminReply, AdminRequest, Selection, shard_ids};
pub use cidr::report as cidr_filtering;
pub use cluster::stages;
pub use log::LogControl;
use rates::Rates;

/// Longest request body. The largest is a list of keyspaces.
const BODY_BYTES_MAX: usize = 256 << 10;
/// How long a shard may take for an answer that needs no IO.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Address and port.
        address: SocketAddr,
        /// The system's word.
        error: io::Error,
    },
    /// No thread or no reactor.
    #[error("cannot run the admin server: {0}")]
    Runtime(io::Error),
}

/// The HTTP server.
pub struct AdminServer;

impl AdminServer {
    /// Listens and serves on a thread of its own until the handle is dropped or stopped. Port 0
    /// takes a free one. `log`: who can change what is logged, if anybody can.
    ///
    /// # Errors
    /// `Listen`: the address is taken; `Runtime`: the system refused a thread.
    pub fn start(
        address: IpAddr,
        port: u16,
        (caller, shards): (AdminCaller, u16),
        log: Option<Arc<dyn LogControl>>,
    ) -> Result<AdminHandle, AdminError> {
        let address = SocketAddr::new(address, port);
        let listen = |error| AdminError::Listen { address, error };
        let listener = StdListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let local = listener.local_addr().map_err(listen)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(AdminError::Runtime)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let main = async move {
            let listener = match TcpListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => {
                    tracing::error!(%error, "admin server cannot listen");
                    return;
                }
            };
            let busy = Arc::new(AtomicUsize::new(0));
            let snapshot_turn = Arc::new(Mutex::new(()));
            let rates = Rates::new();
            let state = Api {
                caller,
                shards,
                busy,
                snapshot_turn,
                log,
                rates: rates.clone(),
                jobs: sampling::Jobs::default(),
            };
            let follow = rates.follow(&state);
            let service = routes(state.clone())
                .layer(axum::middleware::from_fn(connections::receive))
                .into_make_service_with_connect_info::<connections::OfConnection>();
            let serve = axum::serve(connections::Limited::new(listener), service);
            // Whoever still has a connection open does not hold up the node: dropped, not drained.
            tokio::select! {
                result = serve => if let Err(error) = result {
                    tracing::error!(%error, "admin server ended");
                },
                () = follow => {}
                _ = stopped => {}
            }
        };
        let thread = std::thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || runtime.block_on(main))
            .map_err(AdminError::Runtime)?;
        tracing::info!(address = %local, "serving nodetool, the API and /metrics");
        Ok(AdminHandle { address: local, stop: Some(stop), thread: Some(thread) })
    }
}

/// A running server; dropping it stops it.
pub struct AdminHandle {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl AdminHandle {
    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops it without waiting.
    pub fn request_stop(&mut self) {
        // An error means that it has ended already.
        let _ = self.stop.take().map(|stop| stop.send(()));
    }

    /// Stops it and waits for its thread. Not for shards: it blocks.
    pub fn join(mut self) {
        self.request_stop();
        if let Some(thread) = self.thread.take() {
            // A panic there was logged there.
            let _ = thread.join();
        }
    }
}

impl Drop for AdminHandle {
    fn drop(&mut self) {
        self.request_stop();
    }
}

#[derive(Clone)]
struct Api {
    caller: AdminCaller,
    shards: u16,
    /// Commands being carried out.
    busy: Arc<AtomicUsize>,
    /// One snapshot is taken at a time: see [`Api::in_turn`].
    snapshot_turn: Arc<Mutex<()>>,
    log: Option<Arc<dyn LogControl>>,
    rates: Rates,
    jobs: sampling::Jobs,
}

fn routes(state: Api) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/api/v1/node", get(node))
        .route("/api/v1/tables", get(tables))
        .route("/api/v1/latencies", get(latencies))
        .route("/api/v1/compactions", get(compactions).post(upkeep::compaction))
        .route("/api/v1/compactions/history", get(compaction_history))
        .route("/api/v1/compactions/plan", get(compaction_plan))
        .route("/api/v1/snapshots", get(snapshots).post(take_snapshot).delete(clear_snapshots))
        .route("/api/v1/flush", post(flush))
        .route("/api/v1/compact", post(compact))
        .route("/api/v1/upgradesstables", post(upgrade))
        .route("/api/v1/drain", post(drain))
        .route("/api/v1/cluster", get(cluster::report).post(cluster::command))
        .route("/api/v1/endpoints", get(cluster::endpoints))
        .route("/api/v1/clients", get(clients))
        .route("/api/v1/key_samples", get(key_samples))
        .route("/api/v1/caches", get(caches))
        .route("/api/v1/guardrails", get(guardrails).put(set_guardrail))
        .route("/api/v1/log", get(log::levels).put(log::set))
        .merge(cidr::routes())
        .merge(scylla::routes())
        .merge(scylla_data::routes())
        .merge(scylla_metrics::routes())
        .merge(scylla_tasks::routes())
        .merge(repair::routes())
        .merge(sampling::routes())
        .merge(upkeep::routes())
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .merge(load::routes())
        .with_state(state)
}

/// What is answered instead: status and a sentence.
#[derive(Debug)]
struct ApiError(StatusCode, String);

impl ApiError {
    fn internal(detail: &str) -> ApiError {
        let text = format!("the command was not carried out: {detail}");
        ApiError(StatusCode::INTERNAL_SERVER_ERROR, text)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.0, Json(ErrorReport { error: self.1 })).into_response()
    }
}

impl From<ActionError> for ApiError {
    fn from(error: ActionError) -> ApiError {
        let status = match &error {
            ActionError::Argument(_) => StatusCode::BAD_REQUEST,
            ActionError::Exists(_) => StatusCode::CONFLICT,
            ActionError::Unsupported(_) => StatusCode::NOT_IMPLEMENTED,
            ActionError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        ApiError(status, error.to_string())
    }
}

impl From<MeshError> for ApiError {
    fn from(error: MeshError) -> ApiError {
        let text = match error {
            MeshError::Full => "the node is busy, try again",
            MeshError::Closed => "the node is stopping",
        };
        ApiError(StatusCode::SERVICE_UNAVAILABLE, text.to_owned())
    }
}

type Answer<T> = Result<T, ApiError>;

impl Api {
    /// Asks every shard for something that needs no IO; answers in shard order.
    async fn ask(&self, request: &AdminRequest) -> Answer<Vec<AdminReply>> {
        match tokio::time::timeout(ANSWER_MAX, self.call(request)).await {
            Ok(answer) => answer,
            Err(_) => {
                let text = "a shard does not answer".to_owned();
                Err(ApiError(StatusCode::SERVICE_UNAVAILABLE, text))
            }
        }
    }

    /// Sends to every shard at once and waits for all, also after a failure; the first failure.
    async fn call(&self, request: &AdminRequest) -> Answer<Vec<AdminReply>> {
        let sent: Vec<_> =
            shard_ids(self.shards).map(|s| self.caller.call(s, request.clone())).collect();
        let mut replies = Vec::with_capacity(sent.len());
        let mut failure = None;
        for reply in sent {
            match reply.await {
                Ok(AdminReply::Failed(error)) => {
                    failure.get_or_insert(ApiError::from(error));
                }
                Ok(reply) => replies.push(reply),
                Err(error) => {
                    failure.get_or_insert(ApiError::from(error));
                }
            }
        }
        failure.map_or(Ok(replies), Err)
    }

    /// Has one shard after the other carry out a command, up to the first failure. Snapshots need
    /// it: all shards write the description into the same directory.
    async fn in_turn(&self, request: &AdminRequest) -> Answer<()> {
        for shard in shard_ids(self.shards) {
            if let AdminReply::Failed(error) = self.caller.call(shard, request.clone()).await? {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Has every shard carry out a command; answers when all have (INV-admin-2). It is carried out
    /// to the end even when the client goes away.
    async fn command(&self, request: AdminRequest) -> Answer<Json<DrainRequest>> {
        let this = self.clone();
        let task = tokio::spawn(async move {
            let _busy = Busy::new(&this.busy);
            if let AdminRequest::TakeSnapshot { tag, selection, .. } = &request {
                if let Err(error) = this.in_turn(&request).await {
                    // Half a snapshot would be taken for a whole one. The first error is told.
                    let (tag, selection) = (tag.clone(), selection.clone());
                    let abandon = AdminRequest::AbandonSnapshot { tag, selection };
                    let _ = this.caller.call(ShardId(0), abandon).await;
                    return Err(error);
                }
            } else {
                this.call(&request).await?;
            }
            Ok(Json(DrainRequest {}))
        });
        task.await.unwrap_or_else(|error| Err(ApiError::internal(&error.to_string())))
    }

    async fn tables(&self) -> Answer<Vec<TableReport>> {
        let mut all: Vec<TableReport> = Vec::new();
        for reply in self.ask(&AdminRequest::Tables).await? {
            let AdminReply::Tables(tables) = reply else { continue };
            for table in tables {
                let order = |t: &TableReport| {
                    (t.keyspace.as_str(), t.table.as_str())
                        .cmp(&(table.keyspace.as_str(), table.table.as_str()))
                };
                match all.binary_search_by(order) {
                    Ok(at) => {
                        if let Some(mine) = all.get_mut(at) {
                            mine.merge(&table);
                        }
                    }
                    Err(at) => all.insert(at, table),
                }
            }
        }
        Ok(all)
    }

    async fn node(&self) -> Answer<NodeReport> {
        let asked = self.caller.call(ShardId(0), AdminRequest::Node);
        let reply = tokio::time::timeout(ANSWER_MAX, asked).await;
        let AdminReply::Node(mut node) = reply.map_err(|_| ApiError::from(MeshError::Full))??
        else {
            return Err(MeshError::Closed.into());
        };
        node.exceptions = self.log.as_deref().map_or(0, LogControl::errors);
        let tables = self.tables().await?;
        let host_id = node.host_id.clone();
        if let Some(this) = node.nodes.iter_mut().find(|n| n.host_id == host_id) {
            this.load_bytes = Some(tables.iter().map(|t| t.disk_bytes).sum());
            this.uncompressed_bytes = Some(tables.iter().map(|t| t.uncompressed_bytes).sum());
        }
        Ok(*node)
    }

    async fn compactions(&self) -> Answer<CompactionReport> {
        let mut all = CompactionReport::default();
        for reply in self.ask(&AdminRequest::Compactions).await? {
            if let AdminReply::Compactions(report) = reply {
                all.merge(*report);
            }
        }
        let (rate_15_minutes, rate_mean) = self.rates.of_compactions();
        Ok(CompactionReport {
            rate_15_minutes: Some(rate_15_minutes),
            rate_mean: Some(rate_mean),
            ..all
        })
    }

    async fn latencies(&self) -> Answer<CoordinatorReport> {
        let mut all = telemetry::Snapshot::default();
        for reply in self.ask(&AdminRequest::Metrics).await? {
            if let AdminReply::Metrics(snapshot) = reply {
                all.merge(snapshot);
            }
        }
        let of = |name: &str| match all.find(name).map(|m| &m.value) {
            Some(telemetry::Value::Latency(snapshot)) => snapshot.clone().into(),
            _ => HistogramReport::default(),
        };
        Ok(CoordinatorReport {
            read: of("coordinator_read_latency_micros"),
            write: of("coordinator_write_latency_micros"),
            range: of("coordinator_range_latency_micros"),
        })
    }

    async fn snapshots(&self) -> Answer<Vec<SnapshotReport>> {
        let mut all = match self.caller.call(ShardId(0), AdminRequest::ListSnapshots).await? {
            AdminReply::Snapshots(list) => list,
            AdminReply::Failed(error) => return Err(error.into()),
            _ => return Err(MeshError::Closed.into()),
        };
        all.sort_by(|a, b| (&a.tag, &a.keyspace, &a.table).cmp(&(&b.tag, &b.keyspace, &b.table)));
        Ok(all)
    }
}

const INDEX: &str = "\
Helenus admin API

GET    /health              200 when the node answers
GET    /metrics             Prometheus text
GET    /api/v1/node         the cluster and this node
GET    /api/v1/tables       numbers of all tables
GET    /api/v1/latencies    how long clients' requests take
GET    /api/v1/compactions  pending, running and finished compactions
POST   /api/v1/compactions  {\"command\":\"stop\",\"kind\":\"COMPACTION\",\"id\":null}, or
                            set_thresholds (keyspace, table, min, max),
                            set_automatic (keyspaces, tables, enabled), files (files),
                            range (keyspaces, tables, start, end),
                            partition (keyspaces, tables, key), split (keyspaces, tables),
                            garbage_collect (keyspaces, tables, granularity: ROW or CELL),
                            verify (keyspaces, tables, extended, check_version,
                            failure_policy, check_tokens, quick, repair_status),
                            scrub (keyspaces, tables, snapshot, skip_corrupted, no_validate,
                            reinsert_overflowed_ttl), relocate and recompress (keyspaces, tables),
                            force (keyspace, table, keys)
GET    /api/v1/compactions/settings  thresholds, and whether compactions begin by themselves
GET    /api/v1/damaged      files that were found damaged
POST   /api/v1/repaired     {\"keyspaces\":[\"ks\"],\"tables\":[],\"repaired\":true,\"preview\":false}: files that
                            count as repaired, or not any more
POST   /api/v1/import       {\"keyspace\":\"ks\",\"table\":\"t\",\"directories\":[\"/d\"]}, and keep_level,
                            keep_repaired, no_verify, no_tokens, copy
GET    /api/v1/load         ?keyspace=ks&table=t: the table, for helenus sstable load
POST   /api/v1/load         ?keyspace=ks&table=t&consistency=ALL: its mutations (docs/user/sstable-tools.md)
POST   /api/v1/refresh      {\"keyspace\":\"ks\",\"table\":\"t\"}
GET    /api/v1/compactions/plan what would be compacted now, and why
GET    /api/v1/compactions/history  compactions of the last week
GET    /api/v1/snapshots    snapshots
POST   /api/v1/snapshots    {\"tag\":\"t\",\"keyspaces\":[],\"tables\":[]}
DELETE /api/v1/snapshots    {\"tag\":\"t\",\"keyspaces\":[]}; tag null: all
POST   /api/v1/flush        {\"keyspaces\":[],\"tables\":[]}
POST   /api/v1/compact      {\"keyspaces\":[],\"tables\":[]}
POST   /api/v1/upgradesstables {\"keyspaces\":[],\"tables\":[],\"all\":false}
POST   /api/v1/drain        {}
GET    /api/v1/cluster      gossip, messages between nodes, hints, streams
POST   /api/v1/cluster      {\"command\":\"decommission\",\"force\":false}, or remove_node (host_id),
                            force_removal, assassinate (address), cleanup (keyspace, tables),
                            set_gossip, set_native_transport, set_hinted_handoff (enabled),
                            set_hints_for_datacenter (datacenter, enabled), pause_hints (paused),
                            truncate_hints (address), set_hint_throttle (kib_per_second),
                            set_hint_window (millis), set_stream_throughput (bytes_per_second),
                            set_inter_dc_stream_throughput (bytes_per_second),
                            set_incremental_backups (enabled),
                            set_timeout (kind, millis), set_setting (name, value), set_trace_probability (per_million),
                            set_compaction_throughput (bytes_per_second),
                            set_row_cache_capacity (bytes), invalidate_row_cache,
                            set_counter_cache_capacity (bytes), invalidate_counter_cache,
                            set_concurrent_compactors (count), set_compaction_share (share),
                            set_batchlog_throttle (kib_per_second), replay_batchlog,
                            refresh_size_estimates, stop_daemon
POST   /api/v1/samples      {\"keyspace\":null,\"table\":null,\"capacity\":256,\"count\":10,\"duration\":10000,
                            \"samplers\":[\"READS\"]}: partitions read and written most
GET    /api/v1/samples/jobs the same again and again, into the log
POST   /api/v1/samples/jobs as samples, with \"interval\"
DELETE /api/v1/samples/jobs {\"keyspace\":null,\"table\":null}
GET    /api/v1/clients      connections of clients
GET    /api/v1/caches       what caches hold, and how often they had what was asked for
GET    /api/v1/key_samples  tokens of some of the keys on this node
GET    /api/v1/guardrails   limits on statements
PUT    /api/v1/guardrails   {\"name\":\"tables_threshold\",\"values\":[\"200\",\"150\"]}
GET    /api/v1/log          levels of the log
PUT    /api/v1/log          {\"logger\":\"store\",\"level\":\"DEBUG\"}; level \"\": as it was
GET    /api/v1/endpoints    ?keyspace=&table=&key=: who has a partition
GET    /api/v1/sstables     ?keyspace=&table=&key=[&hex=true]: files of this node that have it

The paths of ScyllaDB's API for the same things work too: /storage_service/, /gossiper/,
/failure_detector/, /hinted_handoff/, /storage_proxy/, /column_family/, /compaction_manager/,
/task_manager/, /snitch/, /system/.
";

async fn index() -> &'static str {
    INDEX
}

async fn health(State(api): State<Api>) -> Answer<&'static str> {
    let asked = api.caller.call(ShardId(0), AdminRequest::Node);
    match tokio::time::timeout(ANSWER_MAX, asked).await {
        Ok(Ok(_)) => Ok("ok\n"),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(MeshError::Full.into()),
    }
}

async fn metrics(State(api): State<Api>) -> Answer<Response> {
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
    let text = prometheus::text(&node, &shards, &tables, &compactions, &cluster);
    Ok(([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], text).into_response())
}

async fn clients(State(api): State<Api>) -> Answer<Json<Vec<ClientReport>>> {
    let mut all = Vec::new();
    for reply in api.ask(&AdminRequest::Clients).await? {
        if let AdminReply::Clients(clients) = reply {
            all.extend(clients);
        }
    }
    all.sort_by(|a, b| (&a.address, a.port).cmp(&(&b.address, b.port)));
    Ok(Json(all))
}

async fn key_samples(State(api): State<Api>) -> Answer<Json<Vec<String>>> {
    let mut all = Vec::new();
    for reply in api.ask(&AdminRequest::KeySamples).await? {
        if let AdminReply::KeySamples(tokens) = reply {
            all.extend(tokens);
        }
    }
    all.sort_unstable();
    Ok(Json(all.iter().map(ToString::to_string).collect()))
}

async fn caches(State(api): State<Api>) -> Answer<Json<Vec<CacheReport>>> {
    Ok(Json(CacheReport::of_metrics(&api.metrics().await?)))
}

async fn guardrails(State(api): State<Api>) -> Answer<Json<Vec<GuardrailReport>>> {
    let asked = api.caller.call(ShardId(0), AdminRequest::Guardrails);
    let reply = tokio::time::timeout(ANSWER_MAX, asked).await;
    match reply.map_err(|_| ApiError::from(MeshError::Full))?? {
        AdminReply::Guardrails(all) => Ok(Json(all)),
        _ => Err(MeshError::Closed.into()),
    }
}

async fn set_guardrail(
    State(api): State<Api>,
    Json(change): Json<GuardrailRequest>,
) -> Answer<Json<DrainRequest>> {
    api.command(AdminRequest::SetGuardrail(change)).await
}

async fn node(State(api): State<Api>) -> Answer<Json<NodeReport>> {
    api.node().await.map(Json)
}

async fn tables(State(api): State<Api>) -> Answer<Json<Vec<TableReport>>> {
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

async fn latencies(State(api): State<Api>) -> Answer<Json<CoordinatorReport>> {
    api.latencies().await.map(Json)
}

async fn compactions(State(api): State<Api>) -> Answer<Json<CompactionReport>> {
    api.compactions().await.map(Json)
}

async fn compaction_plan(State(api): State<Api>) -> Answer<Json<Vec<PlannedReport>>> {
    let mut all = Vec::new();
    for reply in api.ask(&AdminRequest::CompactionPlan).await? {
        if let AdminReply::Planned(plans) = reply {
            all.extend(plans);
        }
    }
    all.sort_by(|a, b| (&a.keyspace, &a.table, a.shard).cmp(&(&b.keyspace, &b.table, b.shard)));
    Ok(Json(all))
}

async fn compaction_history(State(api): State<Api>) -> Answer<Json<Vec<HistoryReport>>> {
    match api.caller.call(ShardId(0), AdminRequest::CompactionHistory).await? {
        AdminReply::History(history) => Ok(Json(history)),
        AdminReply::Failed(error) => Err(error.into()),
        _ => Err(MeshError::Closed.into()),
    }
}

async fn snapshots(State(api): State<Api>) -> Answer<Json<Vec<SnapshotReport>>> {
    api.snapshots().await.map(Json)
}

async fn flush(
    State(api): State<Api>,
    Json(body): Json<TablesRequest>,
) -> Answer<Json<DrainRequest>> {
    api.command(AdminRequest::Flush(body.into())).await
}

async fn compact(
    State(api): State<Api>,
    Json(body): Json<TablesRequest>,
) -> Answer<Json<DrainRequest>> {
    api.command(AdminRequest::Compact(body.into())).await
}

async fn upgrade(
    State(api): State<Api>,
    Json(body): Json<UpgradeRequest>,
) -> Answer<Json<DrainRequest>> {
    let UpgradeRequest { keyspaces, tables, all, written_by } = body;
    let selection = Selection { keyspaces, tables };
    api.command(AdminRequest::Upgrade { selection, all, written_by }).await
}

async fn drain(State(api): State<Api>, Json(_): Json<DrainRequest>) -> Answer<Json<DrainRequest>> {
    api.command(AdminRequest::Drain).await
}

/// Cassandra's, unless `cassandra.snapshot.min_allowed_ttl_seconds` says otherwise.
const TTL_SECONDS_MIN: u32 = 60;

async fn take_snapshot(
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

async fn clear_snapshots(
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

/// Counts a command while it lives.
struct Busy(Arc<AtomicUsize>);

impl Busy {
    fn new(counter: &Arc<AtomicUsize>) -> Busy {
        counter.fetch_add(1, Ordering::Relaxed);
        Busy(counter.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
