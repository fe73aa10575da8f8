//! Directories of tables whose drop was decided when the process ended, and not carried out: the metadata log
//! knows that these tables were there.
//!
//! Owns: which tables were dropped. Never: what a drop does ([`Store::finish_drops_of`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::Transformation;
use membership::Membership;
use membership::log::LogReader;
use schema::{SchemaChange, Table};
use stdx::{Epoch, TableId};
use store::Store;

/// Carries out the drops that an end of the process came before. Directories of which the log knows nothing
/// stay, and are named. On shard 0, when it has the log, behind the last step that may refuse the start. What
/// fails is told of, and tried again at the next start.
pub(crate) async fn finish(log: &LogReader, membership: &Membership, store: &Store) {
    if store.directories_of_unknown_tables().is_empty() {
        return;
    }
    match tables_of(log).await {
        Ok(mut tables) => {
            // By now: a table that clients or other nodes have made again is none of them.
            let schema = membership.snapshot().schema.clone();
            tables.retain(|table| schema.table_by_id(table.id).is_none());
            carry_out(&tables, store).await;
        }
        Err(error) => tracing::warn!(%error, "which tables were dropped cannot be read"),
    }
    for directory in store.directories_of_unknown_tables() {
        tracing::warn!(
            %directory,
            "SSTables of a table that is not in the schema are left alone; remove the directory or \
             create the table with this id"
        );
    }
}

async fn carry_out(tables: &[Arc<Table>], store: &Store) {
    match store.finish_drops_of(tables).await {
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

/// The tables that the log once had, each as it was last.
async fn tables_of(log: &LogReader) -> Result<Vec<Arc<Table>>, membership::log::OpenError> {
    let mut known: BTreeMap<TableId, Arc<Table>> = BTreeMap::new();
    log.read(Epoch(1), |framed| {
        // What cannot be decoded has stopped the start.
        if let Ok(entry) = Transformation::decode(framed.payload) {
            note(entry, &mut known);
        }
        true
    })
    .await?;
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
