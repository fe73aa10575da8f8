//! `system.size_estimates` and `system.table_estimates`: how much the tables have in the ranges of this node.
//!
//! Source: Cassandra's `SizeEstimatesRecorder`.

use std::collections::BTreeMap;
use std::time::Duration;

use admin::model::EstimateReport;
use admin::{AdminReply, AdminRequest};
use cluster::{ClusterSnapshot, Member};
use coordinator::{Origin, ReplicaMutation};
use cql_plan::virtual_row::{VirtualRow, VirtualRowBuilder, VirtualRowError};
use data::{BoundRef, ClusteringBuf, DeletionTime, MutationBuilder, RangeTombstoneRef, RowRef};
use rt::Group;
use schema::{Schema, Table};
use stdx::{ShardId, TableId, TimestampMicros, Token, WallMicros};
use store::StoreError;

use super::own_rows::OwnRows;

/// Between two rounds of estimates (`SizeEstimatesRecorder` in Cassandra's `CassandraDaemon`).
const ESTIMATES_PERIOD: Duration = Duration::from_secs(300);

const ESTIMATES: [&str; 2] = ["size_estimates", "table_estimates"];

impl OwnRows {
    /// Writes estimates now and every five minutes; on one shard.
    pub fn record_estimates(self) {
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
    pub async fn write_estimates(&self) -> Result<(), StoreError> {
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

/// Content of the tables of estimates.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// For these ranges.
    ranges: PrimaryRanges,
    /// Estimates of each table, in the order of the ranges.
    tables: BTreeMap<TableId, Vec<EstimateReport>>,
}

/// Tokens after the first, up to and including the second; `Token::MIN` as the second is the end of
/// the ring.
type Range = (Token, Token);

/// The ranges that end with this node's tokens, in ring order, the one over the end of the ring in two
/// parts, as `Range.unwrap` does. Each begins with the token before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrimaryRanges {
    /// Among the tokens of all nodes: `primary`.
    pub in_ring: Vec<Range>,
    /// Among those of its datacenter: `local_primary`.
    in_datacenter: Vec<Range>,
}

impl PrimaryRanges {
    /// Those of this node; none while it joins.
    pub fn of(snapshot: &ClusterSnapshot) -> PrimaryRanges {
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
    range: Range,
    estimate: &EstimateReport,
    at: TimestampMicros,
) -> Result<VirtualRow, VirtualRowError> {
    let (left, right) = range;
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
pub(super) fn forget_estimates(
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
