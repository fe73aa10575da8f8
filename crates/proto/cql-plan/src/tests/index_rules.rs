//! Answers of Cassandra 5.0.9 to statements on tables with indexes (`testdata/index_rules`).
//!
//! Directives: `schema` (statements that make the tables and indexes), `select` and `write` (a statement). An answer is
//! `ok` with warnings, or a code and a text. `needs ALLOW FILTERING` stands for the refusal of a query that would
//! filter. `with ALLOW FILTERING` is the answer with these words added, where it is another than the first, or than
//! `ok` after that refusal.

use std::collections::BTreeMap;
use std::sync::Arc;

use cql_syntax::ast::{
    IndexTargetKind, Literal, LiteralKind, Property, PropertyValue, StatementKind,
};
use schema::{IndexKind, IndexMetadata, IndexRules, IndexTarget, Schema, TargetPart};
use testkit::cases::{Case, check};

use super::{KEYSPACE, NOW};
use crate::error::{PlanError, PlanErrorCode};
use crate::plan::{ExecuteOptions, Plan, PlanContext, PlanKind, PlanLimits, UuidSource, plan};
use crate::select::relations::NEEDS_FILTERING;

/// Directory of the cases.
const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/index_rules");

/// A schema with the indexes of CREATE INDEX statements among the others.
pub(super) fn indexed_schema(statements: &[&str]) -> Arc<Schema> {
    let (indexes, others): (Vec<&str>, Vec<&str>) =
        statements.iter().partition(|cql| cql.contains(" INDEX "));
    let mut schema = (*cql_testing::schema_of(&others)).clone();
    for cql in indexes {
        let StatementKind::CreateIndex(create) = cql_syntax::parse(cql).expect(cql).kind else {
            panic!("{cql}: no index")
        };
        let table = schema.table("ks", &create.table.name.text).expect(cql);
        let written = &create.targets[0];
        let column = table.column(&written.column.text).expect(cql);
        let part = match written.kind {
            IndexTargetKind::Simple if column.ty.is_multi_cell() => TargetPart::Values,
            IndexTargetKind::Simple => TargetPart::Simple,
            IndexTargetKind::Values => TargetPart::Values,
            IndexTargetKind::Keys => TargetPart::Keys,
            IndexTargetKind::Entries => TargetPart::Entries,
            IndexTargetKind::Full => TargetPart::Full,
        };
        let is_legacy = create.class.as_deref() == Some("legacy_local_table");
        let name: Arc<str> = create.name.as_ref().expect(cql).text.as_str().into();
        let index = IndexMetadata {
            id: schema::index_id(table.id, &name, table.version + 1),
            name,
            kind: if is_legacy { IndexKind::Composites } else { IndexKind::Custom },
            options: options(&create.properties),
            target: IndexTarget { column: column.name.clone(), part },
            rules: if is_legacy { IndexRules::Legacy } else { IndexRules::Sai },
        };
        let mut changed = (**table).clone();
        changed.indexes = changed.indexes_with(index);
        changed.version += 1;
        schema = schema.apply(&schema::SchemaChange::AlterTable(changed)).expect(cql);
    }
    Arc::new(schema)
}

/// The pairs of `WITH OPTIONS`.
fn options(properties: &[Property]) -> BTreeMap<String, String> {
    let maps = properties.iter().filter_map(|property| match &property.value {
        PropertyValue::Map(pairs) => Some(pairs),
        _ => None,
    });
    maps.flatten().map(|(key, value)| (text_of(key), text_of(value))).collect()
}

fn text_of(literal: &Literal) -> String {
    match &literal.kind {
        LiteralKind::String(text) => text.clone(),
        other => panic!("{other:?}: no text"),
    }
}

fn runner() -> impl FnMut(&Case) -> String {
    let mut schema = Arc::new(Schema::default());
    move |case| match case.command.as_str() {
        "schema" => {
            let mut statements = vec![KEYSPACE];
            statements.extend(cql_syntax::split_statements(&case.input));
            schema = indexed_schema(&statements);
            String::new()
        }
        "select" => {
            let text = case.input.trim();
            let filtering = answer(&schema, &format!("{text} ALLOW FILTERING"));
            match answer(&schema, text) {
                plain if plain == refused(NEEDS_FILTERING) => match filtering == "ok\n" {
                    true => "needs ALLOW FILTERING\n".to_owned(),
                    false => format!("needs ALLOW FILTERING\nwith ALLOW FILTERING: {filtering}"),
                },
                plain if plain == filtering => plain,
                plain => format!("{plain}with ALLOW FILTERING: {filtering}"),
            }
        }
        "write" => answer(&schema, case.input.trim()),
        other => panic!("{}: no directive: {other}", case.place),
    }
}

#[test]
fn statements_on_indexed_tables_are_answered_as_recorded() {
    let cases = check(RULES, runner);
    assert!(cases >= 900, "{cases} cases");
}

fn refused(text: &str) -> String {
    format!("0x2200 {text}\n")
}

/// Plans and binds a statement without markers and returns the answer.
fn answer(schema: &Arc<Schema>, text: &str) -> String {
    let limits = PlanLimits::default();
    let cx =
        PlanContext { schema, keyspace: Some("ks"), limits: &limits, now: NOW, functions: None };
    let planned = cql_syntax::parse(text).map_err(PlanError::from);
    match planned.and_then(|statement| plan(&statement, &cx)).and_then(|plan| warnings(&plan)) {
        Ok(warnings) => format!("ok\n{warnings}"),
        Err(error) => {
            assert_eq!(error.code, PlanErrorCode::Invalid, "{text}: {error:?}");
            refused(&error.message)
        }
    }
}

fn warnings(plan: &Plan) -> Result<String, PlanError> {
    let uuids = UuidSource::new(1);
    let options = ExecuteOptions {
        now: NOW,
        clock: NOW,
        default_timestamp: stdx::TimestampMicros(1000),
        page_size: Some(5000),
        paging_state: None,
        protocol_version: 5,
        uuids: &uuids,
        watch: None,
    };
    match &plan.kind {
        PlanKind::Select(select) => {
            let bound = select.bind(&[], &options)?;
            if let Some(plan) = select.index_plan() {
                plan.bind(&[], &options)?;
                assert!(bound.filters.is_some(), "INV-index-plan-1");
            }
            Ok(select.warning().map_or_else(String::new, |text| format!("  warning: {text}\n")))
        }
        PlanKind::Modify(modify) => {
            modify.bind(&[], &options, &mut Vec::new()).map(|_| String::new())
        }
        other => panic!("no plan of these tests: {other:?}"),
    }
}
