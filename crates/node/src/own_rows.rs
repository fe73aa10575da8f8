//! Rows that the node writes about itself while it runs: `system.size_estimates`,
//! `system.table_estimates`, `system.compaction_history`, and reading the last one back.
//!
//! Owns: their content and when they are written. Never: rows that follow from the metadata log
//! ([`crate::system_tables`]). Source: Cassandra's `SizeEstimatesRecorder`, `SystemKeyspace`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use admin::model::{EstimateReport, HistoryReport};
use admin::{AdminMesh, AdminReply, AdminRequest};
use cluster::{ClusterSnapshot, Member};
use coordinator::Coordinator;
use coordinator::{Origin, ReplicaMutation};
use cql_plan::plan::UuidSource;
use cql_plan::virtual_row::{VirtualRow, VirtualRowBuilder, VirtualRowError};
use data::{BoundRef, ClusteringBuf, DeletionTime, MutationBuilder};
use data::{RangeTombstoneRef, RowRef};
use membership::Membership;
use query::{Content, Executor, Row, RowWrite, as_store_error, encode_row, select_for_node};
use rt::{Gate, Group, Rt};
use schema::{Schema, Table};
use stdx::{ShardId, TableId, TimestampMicros, Token, TtlSeconds, Uuid, WallMicros};
use store::{CompactionRecord, Store, StoreError};

/// Between two rounds of estimates (`SizeEstimatesRecorder` in Cassandra's `CassandraDaemon`).
const ESTIMATES_PERIOD: Duration = Duration::from_secs(300);
/// `default_time_to_live` of `system.compaction_history`.
const HISTORY_TTL: TtlSeconds = TtlSeconds(7 * 86_400);

const ESTIMATES: [&str; 2] = ["size_estimates", "table_estimates"];

/// Everything that writes these rows needs. Clones share.
#[derive(Clone)]
pub(crate) struct OwnRows {
    pub(crate) rt: Rt,
    pub(crate) coordinator: Coordinator,
    pub(crate) membership: Membership,
    pub(crate) admin: Arc<AdminMesh>,
    /// Owner of the tasks that write.
    pub(crate) gate: Gate,
    /// The estimates that the tables have.
    pub(crate) written: Rc<RefCell<Written>>,
}

impl OwnRows {
    /// Counts the compactions that this shard's store finishes, and writes a row for each.
    pub(crate) fn record_compactions(&self, store: &Store) {
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
            let mutation = encode_row(table, &row, at, HISTORY_TTL);
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

    /// Writes estimates now and every five minutes; on one shard.
    pub(crate) fn record_estimates(self) {
        let (rt, gate) = (self.rt.clone(), self.gate.clone());
        let task = async move {
            loop {
                if let Err(error) = self.write_estimates().await {
                    tracing::debug!(%error, "size estimates could not be written");
                }
                let deadline = self.rt.now() + ESTIMATES_PERIOD;
                if self.rt.timeout(deadline, self.rt.stop_requested()).await.is_ok() {
                    return;
                }
            }
        };
        let _ = gate.spawn(&rt, Group::Admin, "size-estimates", task);
    }

    /// One round; what did not change since the last one is not written again. On the shard that
    /// [`OwnRows::record_estimates`] was called on.
    ///
    /// # Errors
    /// As writes.
    pub(crate) async fn write_estimates(&self) -> Result<(), StoreError> {
        let snapshot = self.membership.snapshot();
        let primary = PrimaryRanges::of(&snapshot);
        let ranges = [&*primary.in_ring, &*primary.in_datacenter].concat();
        let mut all: BTreeMap<TableId, Vec<EstimateReport>> = BTreeMap::new();
        for shard in (0..self.rt.shard_count()).map(ShardId) {
            let request = AdminRequest::Estimates(ranges.clone());
            let Ok(AdminReply::Estimates(tables)) = self.admin.call(&self.rt, shard, request).await
            else {
                // The node is stopping.
                return Ok(());
            };
            for (table, estimates) in tables {
                let sums = all.entry(table).or_insert_with(|| vec![<_>::default(); ranges.len()]);
                for (sum, estimate) in sums.iter_mut().zip(estimates) {
                    sum.merge(&estimate);
                }
            }
        }
        {
            let mut written = self.written.borrow_mut();
            if written.ranges != primary {
                *written = Written { ranges: primary.clone(), tables: BTreeMap::new() };
            }
            written.tables.retain(|table, _| all.contains_key(table));
        }
        for (id, estimates) in all {
            let before = self.written.borrow().tables.get(&id).cloned();
            if before.as_ref() == Some(&estimates) {
                continue;
            }
            // Asked again: it may have been dropped while the shards answered.
            let schema = self.membership.snapshot().schema.clone();
            let Some(table) = schema.table_by_id(id) else { continue };
            let now = self.rt.wall();
            let mut mutations = match before {
                Some(_) => Vec::new(),
                // Rows of an earlier run may be there, or of ranges that the ring had before.
                None => forget_estimates(&schema, table, WallMicros(now.0 - 1)),
            };
            let at = TimestampMicros(now.0);
            mutations.extend(estimate_mutations(&schema, table, &primary, &estimates, at));
            for (token, mutation) in mutations {
                self.coordinator
                    .apply(ReplicaMutation::durable(token, mutation), Origin::System)
                    .await?;
            }
            self.written.borrow_mut().tables.insert(id, estimates);
        }
        Ok(())
    }
}

/// What the tables of estimates have.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// For these ranges.
    ranges: PrimaryRanges,
    /// Of each table, in the order of the ranges.
    tables: BTreeMap<TableId, Vec<EstimateReport>>,
}

/// Behind the first token, up to the second; `Token::MIN` as the second is the end of the ring.
type Range = (Token, Token);

/// The ranges that end with this node's tokens, in ring order, the one over the end of the ring in two
/// parts, as `Range.unwrap` does. Each begins with the token before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrimaryRanges {
    /// Among the tokens of all nodes: `primary`.
    pub(crate) in_ring: Vec<Range>,
    /// Among those of its datacenter: `local_primary`.
    in_datacenter: Vec<Range>,
}

impl PrimaryRanges {
    /// Those of this node; none while it joins.
    pub(crate) fn of(snapshot: &ClusterSnapshot) -> PrimaryRanges {
        let Some(me) = snapshot.local_member() else { return PrimaryRanges::default() };
        let tokens = |is_wanted: &dyn Fn(&Member) -> bool| -> Vec<Token> {
            let members = snapshot.members.values().filter(|m| is_wanted(m));
            let mut all: Vec<Token> =
                members.flat_map(|m| m.tokens_when(false).iter().copied()).collect();
            all.sort_unstable();
            all
        };
        let own = me.tokens_when(false);
        PrimaryRanges {
            in_ring: ranges_within(own, &tokens(&|_| true)),
            in_datacenter: ranges_within(own, &tokens(&|m| m.datacenter == me.datacenter)),
        }
    }
}

/// The ranges of `own` tokens among those of a ring, which they are part of; both ascending.
fn ranges_within(own: &[Token], ring: &[Token]) -> Vec<Range> {
    let Some(last) = ring.last() else { return Vec::new() };
    let mut ranges = Vec::new();
    for token in own {
        let before = ring.partition_point(|t| t < token).checked_sub(1);
        match before.and_then(|n| ring.get(n)) {
            Some(before) => ranges.push((*before, *token)),
            None => ranges.extend([(Token::MIN, *token), (*last, Token::MIN)]),
        }
    }
    ranges.sort_unstable();
    ranges
}

fn estimate_mutations(
    schema: &Schema,
    of: &Table,
    ranges: &PrimaryRanges,
    estimates: &[EstimateReport],
    at: TimestampMicros,
) -> Vec<(Token, Vec<u8>)> {
    let (in_ring, in_datacenter) = estimates.split_at(ranges.in_ring.len().min(estimates.len()));
    let primary = |range_type| (range_type, &ranges.in_ring, in_ring);
    let local = ("local_primary", &ranges.in_datacenter, in_datacenter);
    let mut mutations = Vec::new();
    for name in ESTIMATES {
        let Some(table) = schema.table("system", name) else { continue };
        let types = match name {
            "table_estimates" => vec![local, primary("primary")],
            _ => vec![primary("")],
        };
        let mut rows = Vec::new();
        for (range_type, ranges, estimates) in types {
            for (range, estimate) in ranges.iter().zip(estimates) {
                match estimate_row(table, of, range_type, *range, estimate, at) {
                    Ok(row) => rows.push(row),
                    Err(error) => {
                        // A column is missing in the built-in definition: the program is at fault.
                        tracing::error!(%error, table = name, "an estimate cannot be written");
                    }
                }
            }
        }
        let order = data::ClusteringComparator::for_table(table);
        rows.sort_by(|a, b| order.compare(&a.clustering, &b.clustering));
        let key = of.keyspace.as_bytes();
        let mut bytes = Vec::new();
        let mut mutation = MutationBuilder::new(&mut bytes, table.id, table.version, key);
        mutation.rows(rows.iter().map(|r| (r.clustering.as_slice(), RowRef::trusted(&r.row))));
        mutation.finish();
        mutations.push((codec::token_of(key), bytes));
    }
    mutations
}

fn estimate_row(
    table: &Table,
    of: &Table,
    range_type: &str,
    (left, right): (Token, Token),
    estimate: &EstimateReport,
    at: TimestampMicros,
) -> Result<VirtualRow, VirtualRowError> {
    let bigint = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let mut row = VirtualRowBuilder::at(table, at);
    row.text("keyspace_name", &of.keyspace).text("table_name", &of.name);
    if !range_type.is_empty() {
        row.text("range_type", range_type);
    }
    row.text("range_start", &left.to_string())
        .text("range_end", &right.to_string())
        .bigint("partitions_count", bigint(estimate.partitions))
        .bigint("mean_partition_size", bigint(estimate.mean_bytes()))
        .finish()
}

/// The mutations that forget the estimates of a dropped table.
pub(crate) fn forget_estimates(
    schema: &Schema,
    dropped: &Table,
    now: WallMicros,
) -> Vec<(Token, Vec<u8>)> {
    let name = ClusteringBuf::from_components([dropped.name.as_bytes()]).0;
    let deletion = DeletionTime { timestamp: TimestampMicros(now.0), local: now.seconds() };
    let tombstone = RangeTombstoneRef {
        start: BoundRef { prefix: &name, after: false },
        end: BoundRef { prefix: &name, after: true },
        deletion,
    };
    let tables = ESTIMATES.iter().filter_map(|table| schema.table("system", table));
    tables
        .map(|table| {
            let key = dropped.keyspace.as_bytes();
            let mut bytes = Vec::new();
            let mut mutation = MutationBuilder::new(&mut bytes, table.id, table.version, key);
            mutation.range_tombstones([tombstone].into_iter());
            mutation.finish();
            (codec::token_of(key), bytes)
        })
        .collect()
}

fn history_row(id: &[u8; 16], record: &CompactionRecord) -> RowWrite {
    let value = |name, bytes: &[u8]| (name, Content::Value(bytes.to_vec()));
    let bigint = |n: u64| i64::try_from(n).unwrap_or(i64::MAX).to_be_bytes();
    let merged = record.merged.iter().map(|(inputs, count)| {
        let inputs = i32::try_from(*inputs).unwrap_or(i32::MAX);
        (inputs.to_be_bytes().to_vec(), bigint(*count).to_vec())
    });
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
            value("compaction_properties", &frozen_map("compaction_type", record.kind)),
        ],
    }
}

/// A `frozen<map<text, text>>` of one entry.
fn frozen_map(key: &str, value: &str) -> Vec<u8> {
    let mut out = 1_i32.to_be_bytes().to_vec();
    for part in [key, value] {
        out.extend_from_slice(&i32::try_from(part.len()).unwrap_or(i32::MAX).to_be_bytes());
        out.extend_from_slice(part.as_bytes());
    }
    out
}

const SELECT_HISTORY: &str = "SELECT id, keyspace_name, columnfamily_name, compacted_at, bytes_in, bytes_out, \
                              rows_merged, compaction_properties FROM system.compaction_history";

/// All rows of `system.compaction_history`, newest first.
///
/// # Errors
/// As reads.
pub(crate) async fn compaction_history(
    executor: &Rc<Executor>,
) -> Result<Vec<HistoryReport>, StoreError> {
    let pages = select_for_node(executor, SELECT_HISTORY).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_one_node_go_once_around_the_ring() {
        let tokens = [Token(-5), Token(3), Token(9)];
        let expected = [
            (Token::MIN, Token(-5)),
            (Token(-5), Token(3)),
            (Token(3), Token(9)),
            (Token(9), Token::MIN),
        ];
        assert_eq!(ranges_within(&tokens, &tokens), expected);
        let one = [Token(1)];
        assert_eq!(ranges_within(&one, &one), [(Token::MIN, Token(1)), (Token(1), Token::MIN)]);
        assert_eq!(ranges_within(&[], &one), []);
        assert_eq!(ranges_within(&[], &[]), []);
    }

    #[test]
    fn ranges_of_several_nodes_share_the_ring() {
        let ring = [-5, 3, 9, 20].map(Token);
        let of = |own: &[i64]| {
            let own: Vec<Token> = own.iter().copied().map(Token).collect();
            ranges_within(&own, &ring)
        };
        assert_eq!(of(&[3, 20]), [(Token(-5), Token(3)), (Token(9), Token(20))]);
        let others = [(Token::MIN, Token(-5)), (Token(3), Token(9)), (Token(20), Token::MIN)];
        assert_eq!(of(&[-5, 9]), others);
    }
}
