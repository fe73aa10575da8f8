//! Removal of the files of another program's indexes from a directory that was taken over.
//!
//! Order: 1. the rows of `system."IndexInfo"` by which a Cassandra treats its indexes as built are deleted in SSTables;
//! 2. the files go. The other way round a kill in between would leave that Cassandra an empty index that counts as built.

use conf::Options;
use rt::Rt;
use schema::Schema;
use stdx::{ShardMap, TableId};
use store::Store;
use takeover::StaleIndexFiles;

/// Removes them from the keyspaces whose rows of `system."IndexInfo"` are on this shard. The system tables are written
/// already. Failures are logged, and retried at the next start.
pub(crate) async fn remove(
    rt: &Rt,
    options: &Options,
    schema: &Schema,
    map: ShardMap,
    store: &Store,
) {
    let Some(markers) = schema.table("system", "IndexInfo") else { return };
    let is_mine = |keyspace: &str| {
        let token = codec::murmur::token_of(keyspace.as_bytes());
        map.shard_of(markers.id, token) == rt.shard()
    };
    let keyspaces = schema.keyspaces.values().filter(|k| !k.is_virtual && is_mine(&k.name));
    let tables = keyspaces.flat_map(|keyspace| keyspace.tables.values()).map(|table| &**table);
    let removed = async {
        let found = StaleIndexFiles::find(&rt.fs(), options, tables).await;
        let found = found.map_err(|error| error.to_string())?;
        if !found.is_empty() {
            remove_found(rt, markers.id, store, &found).await?;
        }
        Ok::<usize, String>(found.count())
    };
    match removed.await {
        Ok(0) => {}
        Ok(files) => tracing::info!(
            files,
            "removed the files of another program's indexes: they lack the rows that are written from now on"
        ),
        Err(error) => {
            tracing::warn!(
                error,
                "cannot remove the files of another program's indexes; retrying at the next start"
            );
        }
    }
}

async fn remove_found(
    rt: &Rt,
    markers: TableId,
    store: &Store,
    found: &StaleIndexFiles,
) -> Result<(), String> {
    store.flush(Some(&[markers])).await.map_err(|error| error.to_string())?;
    found.remove(&rt.fs()).await.map_err(|error| error.to_string())
}
