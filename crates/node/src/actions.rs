//! What a shard can be told to do by an administrator, bound to its store and server.

use std::cell::Cell;

use admin::model::{CompactionReport, RunningReport, SnapshotReport};
use admin::{ActionError, ShardActions, Work};
use cql_server::CqlServer;
use rt::Rt;
use stdx::{ShardId, TableId};
use store::{Store, StoreError};

/// The commands of one shard.
pub(crate) struct Actions {
    /// The shard.
    pub(crate) rt: Rt,
    /// Its tables.
    pub(crate) store: Store,
    /// Its connections.
    pub(crate) server: CqlServer,
    /// Most bytes per second of the node's compactions.
    pub(crate) compaction_bytes_per_second: u64,
    /// Clients are served.
    pub(crate) serving: Cell<bool>,
}

fn failed(error: StoreError) -> ActionError {
    match error {
        StoreError::Invalid(text) if text.contains("exists") => ActionError::Exists(text),
        StoreError::Invalid(text) => ActionError::Argument(text),
        other => ActionError::Failed(other.to_string()),
    }
}

impl ShardActions for Actions {
    fn flush(&self, tables: Vec<TableId>) -> Work<()> {
        let store = self.store.clone();
        Box::pin(async move { store.flush(Some(&tables)).await.map_err(failed) })
    }

    fn compact(&self, tables: Vec<TableId>) -> Work<()> {
        let store = self.store.clone();
        Box::pin(async move {
            for table in tables {
                store.compact_major(table).await.map_err(failed)?;
            }
            Ok(())
        })
    }

    fn drain(&self) -> Work<()> {
        self.serving.set(false);
        let (store, server) = (self.store.clone(), self.server.clone());
        Box::pin(async move {
            server.stop().await;
            store.drain().await.map_err(failed)
        })
    }

    fn take_snapshot(&self, tag: String, tables: Vec<TableId>, skip_flush: bool) -> Work<()> {
        let store = self.store.clone();
        Box::pin(async move {
            if skip_flush {
                return Err(ActionError::Unsupported("a snapshot without flush"));
            }
            store.snapshot(&tag, Some(&tables)).await.map_err(failed)
        })
    }

    fn list_snapshots(&self) -> Work<Vec<SnapshotReport>> {
        let (store, shard) = (self.store.clone(), self.rt.shard());
        Box::pin(async move {
            // Snapshots are directories of the node, not of a shard: one shard tells of them.
            if shard != ShardId(0) {
                return Ok(Vec::new());
            }
            let found = store.snapshots().await.map_err(failed)?;
            Ok(found
                .into_iter()
                .map(|s| SnapshotReport {
                    tag: s.tag,
                    keyspace: s.keyspace,
                    table: s.name,
                    true_bytes: s.true_bytes,
                    disk_bytes: s.disk_bytes,
                    created_at: s.created_at,
                })
                .collect())
        })
    }

    fn clear_snapshots(&self, tag: Option<String>, keyspaces: Vec<String>) -> Work<()> {
        let (store, shard) = (self.store.clone(), self.rt.shard());
        Box::pin(async move {
            if shard != ShardId(0) {
                return Ok(());
            }
            let mut tables = Vec::new();
            for snapshot in store.snapshots().await.map_err(failed)? {
                if keyspaces.is_empty() || keyspaces.contains(&snapshot.keyspace) {
                    tables.push(snapshot.table);
                }
            }
            store.clear_snapshot(tag.as_deref(), Some(&tables)).await.map_err(failed)
        })
    }

    fn compactions(&self) -> CompactionReport {
        let running: Vec<RunningReport> = self
            .store
            .compactions()
            .into_iter()
            .enumerate()
            .map(|(i, c)| RunningReport {
                id: format!("{}-{}-{i}", self.rt.shard().0, c.table.to_hex()),
                kind: "Compaction".to_owned(),
                keyspace: c.keyspace,
                table: c.name,
                completed: c.done_bytes,
                total: c.total_bytes,
            })
            .collect();
        CompactionReport {
            concurrent: 1,
            bytes_per_second_max: self.compaction_bytes_per_second,
            running,
            ..CompactionReport::default()
        }
    }

    fn native_transport_active(&self) -> bool {
        self.serving.get()
    }
}
