//! Any bytes as another node's work for shards.

use std::sync::Arc;

use cql_plan::plan::{PlanContext, PlanKind, PlanLimits, plan};
use cql_plan::select::SelectPlan;
use schema::Table;
use stdx::WallMicros;

use super::{Shipped, digest};
use crate::cas::fuzz::schema;

/// The input lacks the digest of the table, which no fuzzer guesses; it is inserted here. The first
/// byte is the number of bytes at the end that are a state of the fold.
pub fn fuzz_scan_work(data: &[u8]) {
    let Some(schema) = schema() else { return };
    let Some(table) = schema.table("ks", "t") else { return };
    let Some((state, data)) = data.split_first() else { return };
    let at = data.len().saturating_sub(usize::from(*state));
    let (data, state) = data.split_at_checked(at).unwrap_or((data, &[]));
    let Some((head, rest)) = data.split_at_checked(2) else { return };
    let work = [head, &digest(table).to_be_bytes(), rest].concat();
    let Ok(shipped) = Shipped::decode(&work, table) else { return };
    let Some(text) = shipped.text() else {
        let kept = shipped.filter().is_some_and(|filter| filter.keeps_partition(b"k", None));
        stdx::invariant!(!kept || !work.is_empty(), "a filter says something");
        return;
    };
    let limits = PlanLimits::default();
    let cx = PlanContext {
        schema: &schema,
        keyspace: text.keyspace.or(Some("ks")),
        limits: &limits,
        now: WallMicros(0),
        functions: None,
    };
    let statement = cql_syntax::parse(text.text);
    let Some(Ok(planned)) = statement.ok().map(|statement| plan(&statement, &cx)) else { return };
    let PlanKind::Select(select) = planned.kind else { return };
    fold(shipped, &select, table, state);
}

fn fold(shipped: Shipped<'_>, select: &SelectPlan, table: &Arc<Table>, state: &[u8]) {
    let Some(fold) = shipped.fold(select, table) else { return };
    let _ = fold.is_result(state);
    let state = fold.decode_state(state);
    let mut again = Vec::new();
    if let Some(state) = &state {
        stdx::invariant!(fold.encode_state(state, &mut again), "a state that came goes");
        stdx::invariant!(fold.decode_state(&again).is_some(), "and comes again");
    }
    let (on_shard, mut out) = (fold.on_shard(), Vec::new());
    let mut folding = on_shard.begin(state, &mut out);
    folding.partition(codec::token_of(b"key"), b"key", None);
    folding.partition_end();
    folding.end();
    let _ = folding.take_result().is_some();
    let _ = folding.finish();
}
