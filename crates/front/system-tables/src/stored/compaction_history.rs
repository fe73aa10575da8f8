//! `system.compaction_history`: a row for each compaction, and reading them back. Source: Cassandra's `SystemKeyspace`.

use std::rc::Rc;

use admin::model::HistoryReport;
use coordinator::{Origin, ReplicaMutation};
use cql_plan::plan::UuidSource;
use query::{Content, Executor, Row, RowWrite, as_store_error, encode_row, select_for_node};
use rt::Group;
use stdx::{TimestampMicros, TtlSeconds, Uuid};
use store::{CompactionRecord, Store, StoreError};
use types::wire::encode_map;

use super::own_rows::OwnRows;

/// `default_time_to_live` of the table.
const TTL: TtlSeconds = TtlSeconds(7 * 86_400);

impl OwnRows {
    /// Counts the compactions that this shard's store finishes, and writes a row for each.
    pub fn record_compactions(&self, store: &Store) {
        let (rt, gate) = (self.rt.clone(), self.gate.clone());
        let (coordinator, membership) = (self.coordinator.clone(), self.membership.clone());
        let uuids = UuidSource::new(rt.random_u64());
        let finished = rt.telemetry().counter(
            "compactions_finished_total",
            "compactions finished, also of tables that are not there any more",
            &[],
        );
        store.compactor().on_compacted(move |record| {
            finished.add(1);
            // Its own compaction would be the cause of the next one.
            if record.keyspace == "system" && record.name == "compaction_history" {
                return;
            }
            let id = uuids.time_uuid(rt.wall());
            let schema = membership.snapshot().schema.clone();
            let Some(table) = schema.table("system", "compaction_history") else { return };
            let (row, at) = (history_row(&id, &record), TimestampMicros(record.at.0));
            let mutation = encode_row(table, &row, at, TTL);
            let coordinator = coordinator.clone();
            let task = async move {
                let token = codec::token_of(&id);
                if let Err(error) = coordinator
                    .apply(ReplicaMutation::durable(token, mutation), Origin::System)
                    .await
                {
                    tracing::debug!(%error, "a compaction is missing in the history");
                }
            };
            // A closed gate: the node stops.
            let _ = gate.spawn(&rt, Group::Admin, "compaction-history", task);
        });
    }
}

fn history_row(id: &[u8; 16], record: &CompactionRecord) -> RowWrite {
    let value = |name, bytes: &[u8]| (name, Content::Value(bytes.to_vec()));
    let bigint = |n: u64| i64::try_from(n).unwrap_or(i64::MAX).to_be_bytes();
    let merged = record.merged.iter().map(|(inputs, count)| {
        let inputs = i32::try_from(*inputs).unwrap_or(i32::MAX);
        (inputs.to_be_bytes().to_vec(), bigint(*count).to_vec())
    });
    // One short entry has room in a map.
    let properties = encode_map([("compaction_type", record.kind)]).unwrap_or_default();
    RowWrite {
        key: id.to_vec(),
        clustering: Vec::new(),
        columns: vec![
            value("keyspace_name", record.keyspace.as_bytes()),
            value("columnfamily_name", record.name.as_bytes()),
            value("compacted_at", &record.at.millis().to_be_bytes()),
            value("bytes_in", &bigint(record.bytes_in)),
            value("bytes_out", &bigint(record.bytes_out)),
            ("rows_merged", Content::Entries(merged.collect())),
            value("compaction_properties", &properties),
        ],
    }
}

const SELECT: &str = "SELECT id, keyspace_name, columnfamily_name, compacted_at, bytes_in, bytes_out, \
                              rows_merged, compaction_properties FROM system.compaction_history";

/// Returns all rows of `system.compaction_history`, newest first.
///
/// # Errors
/// The read failed.
pub async fn read(executor: &Rc<Executor>) -> Result<Vec<HistoryReport>, StoreError> {
    let pages = select_for_node(executor, SELECT).await;
    let pages = pages.map_err(|failure| as_store_error(executor, &failure))?;
    let mut found: Vec<HistoryReport> =
        pages.iter().flat_map(query::Rows::iter).map(|row| history_report(&row)).collect();
    found.sort_by(|a, b| b.compacted_at.cmp(&a.compacted_at).then(a.id.cmp(&b.id)));
    Ok(found)
}

fn history_report(row: &Row<'_>) -> HistoryReport {
    let text =
        |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    let merged = |(inputs, count): (&[u8], &[u8])| {
        let inputs = i32::from_be_bytes(inputs.try_into().ok()?);
        Some((inputs, i64::from_be_bytes(count.try_into().ok()?)))
    };
    let properties = row.entries("compaction_properties").into_iter();
    HistoryReport {
        id: row.timeuuid("id").unwrap_or(Uuid::nil()).to_string(),
        keyspace: text(row.bytes("keyspace_name")),
        table: text(row.bytes("columnfamily_name")),
        compacted_at: row.timestamp_millis("compacted_at").unwrap_or(0),
        bytes_in: row.bigint("bytes_in").unwrap_or(0),
        bytes_out: row.bigint("bytes_out").unwrap_or(0),
        rows_merged: row.entries("rows_merged").into_iter().filter_map(merged).collect(),
        properties: properties.map(|(key, value)| (text(Some(key)), text(Some(value)))).collect(),
    }
}
