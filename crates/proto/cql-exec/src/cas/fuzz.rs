//! Any text as a modification, with any bytes as its values.

use std::sync::Arc;

use cql_plan::cas::{BoundCas, CasForm, CasStatement};
use cql_plan::ddl::{DdlContext, DdlPlan};
use cql_plan::modify::ModifyPlan;
use cql_plan::plan::{
    BoundValue, ExecuteOptions, Plan, PlanContext, PlanKind, PlanLimits, UuidSource, plan,
};
use schema::Schema;
use stdx::{TimestampMicros, Uuid, WallMicros};

use super::{CasExec, Verdict};

const TABLES: &[&str] = &[
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TYPE ks.u (a text, b frozen<list<int>>)",
    "CREATE TABLE ks.t (k int, c text, d varint, s int static, l list<int>, e set<text>, \
     m map<text, duration>, f frozen<map<int, frozen<set<timeuuid>>>>, u u, t tuple<int, decimal>, \
     v vector<float, 2>, x vector<text, 2>, i inet, b blob, ts timestamp, PRIMARY KEY (k, c, d)) \
     WITH CLUSTERING ORDER BY (c DESC, d ASC)",
];

pub(crate) fn schema() -> Option<Arc<Schema>> {
    let mut schema = Schema::default();
    for cql in TABLES {
        let statement = cql_syntax::parse(cql).ok()?;
        let plan = DdlPlan::new(&statement.kind, None)?.ok()?;
        let mut cx = DdlContext {
            schema: &schema,
            datacenters: &[("dc", 1)],
            moving: &[],
            new_table_id: &mut || Uuid::from_u128(1),
            now: WallMicros(0),
            watch: None,
            default_factor: 1,
            default_compaction: None,
            drop_compact_storage: true,
            functions: None,
            indexes: &cql_plan::ddl::IndexSettings::default(),
        };
        for change in plan.outcome(&mut cx).ok()?.changes {
            schema = schema.apply(&change).ok()?;
        }
    }
    Some(Arc::new(schema))
}

/// Decides a conditional plan on an empty table; false when it has no conditions.
fn decide(plan: &Plan, values: &[BoundValue<'_>], options: ExecuteOptions<'_>) -> bool {
    let (plans, form) = match &plan.kind {
        PlanKind::Modify(modify) => (std::slice::from_ref(modify), CasForm::Statement),
        PlanKind::Batch(batch) => (batch.statements(), CasForm::Batch),
        _ => return false,
    };
    if !plans.iter().any(ModifyPlan::has_conditions) {
        return false;
    }
    let statements: Vec<CasStatement<'_>> = plans.iter().map(|p| (p, values)).collect();
    let bound = BoundCas::bind(&statements, form, &options, options.now);
    let Ok(bound) = bound else { return true };
    let exec = CasExec::new(&bound, &statements, options);
    if let Ok(Some(mutation)) = exec.decide(TimestampMicros(1)) {
        let parsed = data::MutationRef::parse(&mutation, 2).is_some();
        stdx::invariant!(parsed, "cas: a mutation that does not read back");
    }
    let result = exec.result(Verdict::NotApplied);
    stdx::invariant!(result.rows == [[Some(vec![0])]], "cas: a row out of nothing");
    true
}

/// Plans the text before the first zero byte and binds it to the bytes after it, cut in pieces by
/// their first bytes. Whatever it writes must read back.
pub fn fuzz_modify(data: &[u8]) {
    let Some(schema) = schema() else { return };
    let at = data.iter().position(|b| *b == 0).unwrap_or(data.len());
    let (text, mut rest) = data.split_at_checked(at).unwrap_or((data, &[]));
    let Ok(statement) = cql_syntax::parse(&String::from_utf8_lossy(text)) else { return };
    let limits = PlanLimits::default();
    let cx = PlanContext {
        schema: &schema,
        keyspace: Some("ks"),
        limits: &limits,
        now: WallMicros(1_700_000_000_000_000),
        functions: None,
    };
    let Ok(plan) = plan(&statement, &cx) else { return };
    let mut values = Vec::new();
    for _ in 0..plan.inputs.binds.len() {
        let (len, after) = rest.split_first().map_or((0, rest), |(len, after)| (*len, after));
        values.push(match len {
            254 => BoundValue::Null,
            255 => BoundValue::Unset,
            len => {
                let len = usize::from(len).min(after.len());
                let (value, after) = after.split_at_checked(len).unwrap_or((after, &[]));
                rest = after;
                BoundValue::Bytes(value)
            }
        });
    }
    let uuids = UuidSource::new(1);
    let options = ExecuteOptions {
        now: cx.now,
        clock: cx.now,
        default_timestamp: TimestampMicros(1),
        page_size: None,
        paging_state: None,
        protocol_version: 5,
        uuids: &uuids,
        watch: None,
    };
    if decide(&plan, &values, options) {
        return;
    }
    let mut out = Vec::new();
    let bound = match &plan.kind {
        PlanKind::Modify(modify) => {
            // The lists of no row: what needs them is refused.
            let reads = modify.list_reads(&values, &options).unwrap_or_default();
            stdx::invariant!(reads.is_empty() || modify.needs_read(), "bind: a read for nothing");
            modify.bind(&values, &options, &mut out)
        }
        PlanKind::Batch(batch) => {
            batch.bind(&values, &options, &limits, &mut out).map(|b| b.mutations)
        }
        _ => return,
    };
    for mutation in bound.into_iter().flatten() {
        let parsed =
            out.get(mutation.range).and_then(|bytes| data::MutationRef::parse(bytes, 2)).is_some();
        stdx::invariant!(parsed, "bind: a mutation that does not read back");
    }
}
