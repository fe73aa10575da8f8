//! The state of the HTTP server: how handlers ask the shards, and how they refuse.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use rt::MeshError;
use stdx::ShardId;
use tokio::sync::Mutex;

use super::access::Access;
use super::log::LogControl;
use super::rates::Rates;
use super::{ShardCaller, sampling};
use crate::histogram::HistogramReport;
use crate::model::{
    CompactionReport, CoordinatorReport, DrainRequest, ErrorKind, ErrorReport, NodeReport,
    SnapshotReport, TableReport,
};
use crate::request::{ActionError, AdminReply, AdminRequest, shard_ids};

/// Longest request body. The largest is a list of keyspaces.
pub(super) const BODY_BYTES_MAX: usize = 256 << 10;
/// Time limit for answers of a shard that need no IO.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(10);

/// State of every handler.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) caller: ShardCaller,
    pub(super) access: Arc<Access>,
    pub(super) shards: u16,
    /// Commands being carried out.
    pub(super) busy: Arc<AtomicUsize>,
    /// One snapshot is taken at a time: see [`Api::in_turn`].
    pub(super) snapshot_turn: Arc<Mutex<()>>,
    pub(super) log: Option<Arc<dyn LogControl>>,
    pub(super) rates: Rates,
    pub(super) jobs: sampling::Jobs,
}

/// Error answer: its kind, which implies the status, and a sentence.
#[derive(Debug)]
pub(super) struct ApiError(pub(super) ErrorKind, pub(super) String);

impl ApiError {
    pub(super) fn internal(detail: &str) -> ApiError {
        let text = format!("the command was not carried out: {detail}");
        ApiError(ErrorKind::Failed, text)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let ApiError(kind, error) = self;
        let status = StatusCode::from_u16(kind.status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(ErrorReport { error, kind: Some(kind) })).into_response()
    }
}

impl From<ActionError> for ApiError {
    fn from(error: ActionError) -> ApiError {
        ApiError(error.kind(), error.to_string())
    }
}

impl From<MeshError> for ApiError {
    fn from(error: MeshError) -> ApiError {
        let text = match error {
            MeshError::Full => "the node is busy, try again",
            MeshError::Closed => "the node is stopping",
        };
        ApiError(ErrorKind::Busy, text.to_owned())
    }
}

pub(super) type Answer<T> = Result<T, ApiError>;

impl Api {
    /// The state of a server that begins.
    pub(super) fn new(
        caller: ShardCaller,
        access: Arc<Access>,
        shards: u16,
        log: Option<Arc<dyn LogControl>>,
    ) -> Api {
        Api {
            caller,
            access,
            shards,
            busy: Arc::default(),
            snapshot_turn: Arc::default(),
            log,
            rates: Rates::new(),
            jobs: sampling::Jobs::default(),
        }
    }

    /// Asks every shard for something that needs no IO; answers in shard order.
    pub(super) async fn ask(&self, request: &AdminRequest) -> Answer<Vec<AdminReply>> {
        match self.caller.within(ANSWER_MAX, self.call(request)).await {
            Ok(answer) => answer,
            Err(_) => {
                let text = "a shard does not answer".to_owned();
                Err(ApiError(ErrorKind::Busy, text))
            }
        }
    }

    /// Sends to every shard at once and waits for all, also after a failure; the first failure.
    pub(super) async fn call(&self, request: &AdminRequest) -> Answer<Vec<AdminReply>> {
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
    pub(super) async fn in_turn(&self, request: &AdminRequest) -> Answer<()> {
        for shard in shard_ids(self.shards) {
            if let AdminReply::Failed(error) = self.caller.call(shard, request.clone()).await? {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Makes every shard carry out a command; answers when all have (INV-admin-2). It is completed
    /// even if the client disconnects.
    pub(super) async fn command(&self, request: AdminRequest) -> Answer<Json<DrainRequest>> {
        let this = self.clone();
        let task = tokio::spawn(async move {
            let _busy = Busy::new(&this.busy);
            if let AdminRequest::TakeSnapshot { tag, selection, .. } = &request {
                if let Err(error) = this.in_turn(&request).await {
                    // Half a snapshot would be mistaken for a whole one. The first error is
                    // returned.
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

    pub(super) async fn tables(&self) -> Answer<Vec<TableReport>> {
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

    pub(super) async fn node(&self) -> Answer<NodeReport> {
        let asked = self.caller.call(ShardId(0), AdminRequest::Node);
        let reply = self.caller.within(ANSWER_MAX, asked).await;
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

    pub(super) async fn compactions(&self) -> Answer<CompactionReport> {
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

    pub(super) async fn latencies(&self) -> Answer<CoordinatorReport> {
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

    pub(super) async fn snapshots(&self) -> Answer<Vec<SnapshotReport>> {
        let mut all = match self.caller.call(ShardId(0), AdminRequest::ListSnapshots).await? {
            AdminReply::Snapshots(list) => list,
            AdminReply::Failed(error) => return Err(error.into()),
            _ => return Err(MeshError::Closed.into()),
        };
        all.sort_by(|a, b| (&a.tag, &a.keyspace, &a.table).cmp(&(&b.tag, &b.keyspace, &b.table)));
        Ok(all)
    }
}

/// Counts a command while it lives.
pub(super) struct Busy(Arc<AtomicUsize>);

impl Busy {
    pub(super) fn new(counter: &Arc<AtomicUsize>) -> Busy {
        counter.fetch_add(1, Ordering::Relaxed);
        Busy(counter.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
