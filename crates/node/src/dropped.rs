//! Directories of tables whose drop was decided when the process ended, and not carried out: the metadata log
//! knows that these tables were there.
//!
//! Owns: which tables were dropped. Never: what a drop does ([`Store::finish_drops_of`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::Transformation;
use membership::log::LogReader;
use schema::{Schema, SchemaChange, Table};
use stdx::{Epoch, TableId};
use store::Store;

/// Carries out the drops that an end of the process came before. Directories of which the log knows nothing
/// stay. On shard 0, when it has the log. What fails is told of, and tried again at the next start.
pub(crate) async fn finish(log: &LogReader, schema: &Schema, store: &Store) {
    if store.directories_of_unknown_tables().is_empty() {
        return;
    }
    let tables = match dropped_tables(log, schema).await {
        Ok(tables) => tables,
        Err(error) => {
            tracing::warn!(%error, "which tables were dropped cannot be read");
            return;
        }
    };
    match store.finish_drops_of(&tables).await {
        Ok(0) => {}
        Ok(directories) => tracing::info!(
            directories,
            "removed what was left of tables whose DROP was cut off, after a snapshot where that is wanted"
        ),
        Err(error) => {
            tracing::warn!(%error, "what is left of a dropped table could not be removed");
        }
    }
}

/// The tables that the log once had and the schema has no more, each as it was last.
async fn dropped_tables(
    log: &LogReader,
    schema: &Schema,
) -> Result<Vec<Arc<Table>>, membership::log::OpenError> {
    let mut known: BTreeMap<TableId, Arc<Table>> = BTreeMap::new();
    log.read(Epoch(1), |framed| {
        // What cannot be decoded has stopped the start.
        if let Ok(entry) = Transformation::decode(framed.payload) {
            note(entry, &mut known);
        }
        true
    })
    .await?;
    known.retain(|id, _| schema.table_by_id(*id).is_none());
    Ok(known.into_values().collect())
}

fn note(entry: Transformation, known: &mut BTreeMap<TableId, Arc<Table>>) {
    match entry {
        Transformation::Group(parts) => parts.into_iter().for_each(|part| note(part, known)),
        Transformation::Schema(change) => {
            if let SchemaChange::CreateTable(table) | SchemaChange::AlterTable(table) = *change {
                known.insert(table.id, Arc::new(table));
            }
        }
        _ => {}
    }
}
