//! Plans as text files: a schema and statements in, plans and bound plans out (`testdata/plans`).
//!
//! Directives: `schema` (statements that make the tables), `plan` (a statement). A line of a statement's input that
//! begins with `values:` has the values of its markers, separated by `|`: a literal, `null`, `unset`, `0x` with bytes,
//! or `[a, b]` for a list. One that begins with `page:` has the rows of a page.

mod describe;
mod index_advice;
mod index_rules;
mod nearest;

use std::sync::Arc;

use schema::Schema;
use stdx::{TimestampMicros, WallMicros};
use testkit::cases::{Case, check};
use types::CqlType;

use crate::error::PlanError;
use crate::plan::{
    BindSpec, BoundValue, ExecuteOptions, Plan, PlanContext, PlanKind, PlanLimits, UuidSource, plan,
};

const NOW: WallMicros = WallMicros(1_700_000_000_000_000);
const KEYSPACE: &str =
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";

/// Directory of the cases.
const PLANS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/plans");

/// Runs the cases of one file, whose tables are made by its `schema`.
fn runner() -> impl FnMut(&Case) -> String {
    let mut schema = Arc::new(Schema::default());
    move |case| match case.command.as_str() {
        "schema" => {
            let mut statements = vec![KEYSPACE];
            statements.extend(cql_syntax::split_statements(&case.input));
            schema = index_rules::indexed_schema(&statements);
            String::new()
        }
        "plan" => planned(&schema, &case.input),
        other => panic!("{}: no directive: {other}", case.place),
    }
}

#[test]
fn statements_are_planned_as_recorded() {
    let cases = check(PLANS, runner);
    assert!(cases >= 300, "{cases} cases");
}

/// Plans and binds a statement and returns the result as text.
fn planned(schema: &Arc<Schema>, input: &str) -> String {
    let (mut text, mut values, mut page) = (String::new(), None, None);
    for line in input.lines() {
        if let Some(line) = line.strip_prefix("values:") {
            values = Some(line.trim());
        } else if let Some(rows) = line.strip_prefix("page:") {
            page = Some(rows.trim().parse().unwrap_or_else(|_| panic!("{line}: no number")));
        } else {
            text.push_str(line);
            text.push('\n');
        }
    }
    let limits = PlanLimits::default();
    let cx =
        PlanContext { schema, keyspace: Some("ks"), limits: &limits, now: NOW, functions: None };
    let plan = cql_syntax::parse(&text)
        .map_err(PlanError::from)
        .and_then(|statement| plan(&statement, &cx));
    let plan = match plan {
        Ok(plan) => plan,
        Err(error) => return describe::error("plan", &error),
    };
    let mut out = describe::markers(&plan);
    if let PlanKind::Select(select) = &plan.kind {
        describe::select(select, &mut out);
    }
    if values.is_none() && !plan.inputs.binds.is_empty() {
        return out;
    }
    let values: Vec<Value> = match values {
        None => Vec::new(),
        Some(line) => line.split('|').zip(&plan.inputs.binds).map(value).collect(),
    };
    out + &bound(schema, &plan, &values, page)
}

/// Binds a plan and returns the result as text.
fn bound(schema: &Schema, plan: &Plan, values: &[Value], page: Option<u32>) -> String {
    let values: Vec<BoundValue<'_>> = values.iter().map(Value::bound).collect();
    let uuids = UuidSource::new(1);
    let options = ExecuteOptions {
        now: NOW,
        clock: NOW,
        default_timestamp: TimestampMicros(1000),
        page_size: page,
        paging_state: None,
        protocol_version: 5,
        uuids: &uuids,
        watch: None,
    };
    let mut bytes = Vec::new();
    let mutations = match &plan.kind {
        PlanKind::Select(select) => {
            let searched = select.index_plan().map(|plan| plan.bind(&values, &options));
            return match (select.bind(&values, &options), searched) {
                (Ok(bound), None) => describe::bound(select, &bound),
                (Ok(bound), Some(Ok(terms))) => {
                    describe::bound(select, &bound) + &describe::terms(select, &terms)
                }
                (Err(error), None) => describe::error("bind", &error),
                (Err(error), Some(Err(same))) if error == same => describe::error("bind", &error),
                (bound, terms) => panic!("{bound:?} with {terms:?}"),
            };
        }
        PlanKind::Modify(modify) => modify.bind(&values, &options, &mut bytes),
        PlanKind::Batch(batch) => {
            let bound = batch.bind(&values, &options, &PlanLimits::default(), &mut bytes);
            bound.map(|bound| bound.mutations)
        }
        other => panic!("no plan of these tests: {other:?}"),
    };
    match mutations {
        Err(error) => describe::error("bind", &error),
        Ok(mutations) => mutations
            .iter()
            .map(|m| format!("write {}\n", cql_testing::show(schema, &bytes[m.range.clone()])))
            .collect(),
    }
}

/// A value of a marker.
enum Value {
    Null,
    Unset,
    Bytes(Vec<u8>),
}

impl Value {
    fn bound(&self) -> BoundValue<'_> {
        match self {
            Value::Null => BoundValue::Null,
            Value::Unset => BoundValue::Unset,
            Value::Bytes(bytes) => BoundValue::Bytes(bytes),
        }
    }
}

fn value((text, bind): (&str, &BindSpec)) -> Value {
    let text = text.trim();
    match text {
        "null" => Value::Null,
        "unset" => Value::Unset,
        _ => Value::Bytes(literal(text, &bind.ty)),
    }
}

fn literal(text: &str, ty: &CqlType) -> Vec<u8> {
    let wrong = || panic!("{text}: no {ty}");
    if let Some(hex) = text.strip_prefix("0x") {
        return CqlType::Blob.from_string(hex).unwrap_or_else(|_| wrong());
    }
    let items = |inner: &str, types: &mut dyn Iterator<Item = &CqlType>| -> Vec<Option<Vec<u8>>> {
        let of = |(item, ty): (&str, &CqlType)| match item.trim() {
            "null" => None,
            item => Some(literal(item, ty)),
        };
        inner.split(',').zip(types).map(of).collect()
    };
    match ty {
        CqlType::List { element, .. } | CqlType::Set { element, .. } => {
            let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
            let inner = inner.unwrap_or_else(|| panic!("{text}: no [..]"));
            let all = items(inner, &mut std::iter::repeat(&**element));
            let mut out = i32::try_from(all.len()).unwrap_or(0).to_be_bytes().to_vec();
            for item in all {
                let length = item.as_ref().map_or(-1, |i| i32::try_from(i.len()).unwrap_or(0));
                out.extend_from_slice(&length.to_be_bytes());
                out.extend(item.unwrap_or_default());
            }
            out
        }
        CqlType::Tuple(types) => {
            let inner = text.strip_prefix('(').and_then(|t| t.strip_suffix(')'));
            let inner = inner.unwrap_or_else(|| panic!("{text}: no (..)"));
            types::wire::encode_tuple(items(inner, &mut types.iter())).unwrap_or_else(|_| wrong())
        }
        ty => ty.from_string(text).unwrap_or_else(|_| wrong()),
    }
}
