//! `/api/v1/load`: writes rows of other nodes' SSTables, for `helenus sstable load`.
//!
//! The tool reads the files and sends mutations (`docs/formats/mutation.md`) with every timestamp,
//! time to live and tombstone as it was. A shard writes them to all replicas as a coordinator does.
//! Mutations are idempotent, so a load can be retried from the start after any failure.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, header};
use rt::MeshError;
use serde::Deserialize;
use stdx::ShardId;

use super::api::{Answer, Api, ApiError, Busy};
use crate::commands::{UpkeepReply, UpkeepRequest};
use crate::model::{DrainRequest, ErrorKind, LoadTarget};
use crate::request::{AdminReply, AdminRequest};

/// Only this type is taken: a page in a browser cannot send it without being asked first.
const BODY_TYPE: &str = "application/octet-stream";
/// Loads carried out at a time; further ones are refused and must be retried.
const LOADS_MAX: usize = 32;

#[derive(Deserialize)]
pub(super) struct Of {
    keyspace: String,
    table: String,
    /// A consistency level; only for writes.
    #[serde(default)]
    consistency: String,
}

async fn ask(api: &Api, shard: ShardId, request: UpkeepRequest) -> Answer<UpkeepReply> {
    match api.caller.call(shard, AdminRequest::Upkeep(request)).await? {
        AdminReply::Upkeep(reply) => Ok(reply),
        AdminReply::Failed(error) => Err(error.into()),
        _ => Err(MeshError::Closed.into()),
    }
}

pub(super) async fn target(
    State(api): State<Api>,
    Query(of): Query<Of>,
) -> Answer<Json<LoadTarget>> {
    let request = UpkeepRequest::LoadTarget { keyspace: of.keyspace, table: of.table };
    match ask(&api, ShardId(0), request).await? {
        UpkeepReply::Table(definition) => Ok(Json(LoadTarget { definition })),
        _ => Err(MeshError::Closed.into()),
    }
}

pub(super) async fn load(
    State(api): State<Api>,
    Query(of): Query<Of>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer<Json<DrainRequest>> {
    if headers.get(header::CONTENT_TYPE).is_none_or(|value| value != BODY_TYPE) {
        let text = format!("the body must be of type {BODY_TYPE}");
        return Err(ApiError(ErrorKind::ContentType, text));
    }
    if api.busy.load(std::sync::atomic::Ordering::Relaxed) >= LOADS_MAX {
        return Err(MeshError::Full.into());
    }
    // Any shard can; the checksum spreads them.
    let shard = codec::checksum::crc32(&body) % u32::from(api.shards.max(1));
    let shard = ShardId(u16::try_from(shard).unwrap_or(0));
    let request = UpkeepRequest::Load {
        keyspace: of.keyspace,
        table: of.table,
        consistency: of.consistency,
        mutations: body.to_vec(),
    };
    let task = tokio::spawn(async move {
        let _busy = Busy::new(&api.busy);
        ask(&api, shard, request).await
    });
    let done = task.await.unwrap_or_else(|error| Err(ApiError::internal(&error.to_string())));
    done.map(|_| Json(DrainRequest {}))
}
