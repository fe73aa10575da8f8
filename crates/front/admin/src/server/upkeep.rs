//! Imports of files, and compactions by request.
//!
//! Shard 0 takes an import in, then every shard shows it: see crate `store`.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::{Query, State};
use rt::MeshError;
use serde::Deserialize;
use stdx::ShardId;
use store::Descriptor;

use super::api::{Answer, Api, ApiError, Busy};
use crate::commands::{UpkeepReply, UpkeepRequest};
use crate::model::{
    CompactionCommand, CompactionSettings, DamagedReport, DrainRequest, ImportReport,
    ImportRequest, RefreshRequest, RepairedRequest, SstableReport,
};
use crate::request::{ActionError, AdminReply, AdminRequest};

impl Api {
    /// Asks shard 0.
    async fn upkeep(&self, request: UpkeepRequest) -> Answer<UpkeepReply> {
        match self.caller.call(ShardId(0), AdminRequest::Upkeep(request)).await? {
            AdminReply::Upkeep(reply) => Ok(reply),
            AdminReply::Failed(error) => Err(error.into()),
            _ => Err(MeshError::Closed.into()),
        }
    }

    /// Shard 0 takes files in, then all shards show them.
    async fn take_in(
        &self,
        keyspace: String,
        table: String,
        request: UpkeepRequest,
    ) -> Answer<ImportReport> {
        let UpkeepReply::Imported { files, failed } = self.upkeep(request).await? else {
            return Err(MeshError::Closed.into());
        };
        let report = ImportReport { files: files.len() as u64, failed };
        if !files.is_empty() {
            let adopt = UpkeepRequest::Adopt { keyspace, table, files };
            self.call(&AdminRequest::Upkeep(adopt)).await?;
        }
        Ok(report)
    }

    /// Files in the directory of a table that no shard knows: those to be taken in, and those whose numbers
    /// are in use.
    async fn new_files(&self, keyspace: &str, table: &str) -> Answer<NewFiles> {
        let (keyspace, table) = (keyspace.to_owned(), table.to_owned());
        let request = AdminRequest::Upkeep(UpkeepRequest::NewFiles { keyspace, table });
        let mut all = NewFiles::default();
        let mut unknown: Option<BTreeSet<String>> = None;
        for reply in self.call(&request).await? {
            if let AdminReply::Upkeep(UpkeepReply::Imported { files, failed }) = reply {
                all.files.extend(files);
                let of_shard: BTreeSet<String> = failed.into_iter().collect();
                unknown = Some(match unknown {
                    None => of_shard,
                    Some(before) => before.intersection(&of_shard).cloned().collect(),
                });
            }
        }
        all.skipped = unknown.unwrap_or_default();
        Ok(all)
    }
}

/// Files that were put into the directory of a table.
#[derive(Default)]
struct NewFiles {
    /// To be taken in.
    files: Vec<Descriptor>,
    /// File sets that cannot be, because their numbers are in use.
    skipped: BTreeSet<String>,
}

/// Most file sets that an error names.
const SKIPPED_NAMED: usize = 10;

/// The error for file sets that were skipped.
fn skipped_files(skipped: &BTreeSet<String>) -> ApiError {
    let named: Vec<&str> = skipped.iter().take(SKIPPED_NAMED).map(String::as_str).collect();
    let text = format!(
        "{} SSTables were not loaded, because this node has assigned their numbers: {}{}. Move them to another \
         directory and use nodetool import",
        skipped.len(),
        named.join(", "),
        if skipped.len() > named.len() { ", ..." } else { "" }
    );
    ActionError::Failed(text).into()
}

pub(super) async fn import(
    State(api): State<Api>,
    Json(body): Json<ImportRequest>,
) -> Answer<Json<ImportReport>> {
    // Completed even if the client disconnects: the shards must all show the same.
    let task = tokio::spawn(async move {
        let _busy = Busy::new(&api.busy);
        let (keyspace, table) = (body.keyspace.clone(), body.table.clone());
        api.take_in(keyspace, table, UpkeepRequest::Import(body)).await
    });
    let done = task.await.unwrap_or_else(|error| Err(ApiError::internal(&error.to_string())));
    done.map(Json)
}

pub(super) async fn refresh(
    State(api): State<Api>,
    Json(RefreshRequest { keyspace, table }): Json<RefreshRequest>,
) -> Answer<Json<DrainRequest>> {
    let task = tokio::spawn(async move {
        let _busy = Busy::new(&api.busy);
        let NewFiles { files, skipped } = api.new_files(&keyspace, &table).await?;
        if !files.is_empty() {
            let (of_keyspace, of_table) = (keyspace.clone(), table.clone());
            let request = UpkeepRequest::Refresh { keyspace, table, files };
            api.take_in(of_keyspace, of_table, request).await?;
        }
        match skipped.is_empty() {
            true => Ok(()),
            false => Err(skipped_files(&skipped)),
        }
    });
    let done = task.await.unwrap_or_else(|error| Err(ApiError::internal(&error.to_string())));
    done.map(|()| Json(DrainRequest {}))
}

pub(super) async fn compaction(
    State(api): State<Api>,
    Json(command): Json<CompactionCommand>,
) -> Answer<Json<DrainRequest>> {
    api.command(AdminRequest::Upkeep(UpkeepRequest::Compaction(command))).await
}

/// The files by the prefix of their names, in order.
pub(super) async fn set_repaired(
    State(api): State<Api>,
    Json(request): Json<RepairedRequest>,
) -> Answer<Json<Vec<String>>> {
    // To the end, also when the client closes the connection.
    let task = tokio::spawn(async move {
        let _busy = Busy::new(&api.busy);
        let mut all = Vec::new();
        let request = AdminRequest::Upkeep(UpkeepRequest::SetRepaired(request));
        for reply in api.call(&request).await? {
            if let AdminReply::Upkeep(UpkeepReply::Marked(files)) = reply {
                all.extend(files);
            }
        }
        // A file that shards share is named by each that has it.
        all.sort_unstable();
        all.dedup();
        Ok(all)
    });
    let done = task.await.unwrap_or_else(|error| Err(ApiError::internal(&error.to_string())));
    done.map(Json)
}

#[derive(Debug, Deserialize)]
pub(super) struct PartitionQuery {
    keyspace: String,
    table: String,
    key: String,
    #[serde(default)]
    hex: bool,
}

pub(super) async fn sstables(
    State(api): State<Api>,
    Query(query): Query<PartitionQuery>,
) -> Answer<Json<Vec<SstableReport>>> {
    let PartitionQuery { keyspace, table, key, hex: is_hex } = query;
    let request = UpkeepRequest::FilesOfPartition { keyspace, table, key, is_hex };
    let mut all = Vec::new();
    for reply in api.call(&AdminRequest::Upkeep(request)).await? {
        if let AdminReply::Upkeep(UpkeepReply::Files(files)) = reply {
            all.extend(files);
        }
    }
    // A file that shards share is named by each that has it.
    all.sort_unstable();
    all.dedup();
    Ok(Json(all))
}

pub(super) async fn damaged(State(api): State<Api>) -> Answer<Json<Vec<DamagedReport>>> {
    let mut all: Vec<DamagedReport> = Vec::new();
    for reply in api.call(&AdminRequest::Upkeep(UpkeepRequest::Damaged)).await? {
        if let AdminReply::Upkeep(UpkeepReply::Damaged(files)) = reply {
            all.extend(files);
        }
    }
    // A file that shards share is named by each that has found it.
    all.sort_unstable();
    all.dedup_by(|next, kept| {
        let same = next.path == kept.path;
        kept.salvaged &= next.salvaged || !same;
        if same && kept.copy_failure.is_none() {
            kept.copy_failure = next.copy_failure.take();
        }
        if same && kept.repair.is_none() {
            kept.repair = next.repair.take();
        }
        same
    });
    Ok(Json(all))
}

pub(super) async fn settings(State(api): State<Api>) -> Answer<Json<Vec<CompactionSettings>>> {
    match api.upkeep(UpkeepRequest::Settings).await? {
        UpkeepReply::Settings(settings) => Ok(Json(settings)),
        _ => Err(MeshError::Closed.into()),
    }
}
