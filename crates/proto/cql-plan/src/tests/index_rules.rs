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
use index_format::search::IndexPredicate;
use index_format::{TermFilter, TermRange};
use schema::{IndexKind, IndexMetadata, IndexRules, IndexTarget, Schema, TargetPart};
use testkit::cases::{Case, check};

use super::{KEYSPACE, NOW};
use crate::error::{PlanError, PlanErrorCode};
use crate::plan::{
    BoundValue, ExecuteOptions, Plan, PlanContext, PlanKind, PlanLimits, UuidSource, plan,
};
use crate::select::BoundSelect;
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
        let (kind, rules) = match create.class.as_deref() {
            Some("legacy_local_table") => (IndexKind::Composites, IndexRules::Legacy),
            None if create.partition_key.is_some() => (IndexKind::Composites, IndexRules::Legacy),
            Some(class) if class.ends_with("SASIIndex") => (IndexKind::Custom, IndexRules::Sasi),
            _ => (IndexKind::Custom, IndexRules::Sai),
        };
        let name: Arc<str> = create.name.as_ref().expect(cql).text.as_str().into();
        let index = IndexMetadata {
            id: schema::index_id(table.id, &name, table.version + 1),
            name,
            kind,
            options: options(&create.properties),
            target: IndexTarget { column: column.name.clone(), part },
            rules,
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

const TEXTS: &[&str] = &[
    KEYSPACE,
    "CREATE TABLE t (k int PRIMARY KEY, x text, y text, m map<text, text>)",
    "CREATE CUSTOM INDEX t_x ON t (x) USING 'sai' WITH OPTIONS = {'case_sensitive': 'false', 'ascii': 'true'}",
    "CREATE CUSTOM INDEX t_m ON t (keys(m)) USING 'sai' WITH OPTIONS = {'case_sensitive': 'false'}",
    "CREATE INDEX t_y ON t (y) USING 'legacy_local_table'",
];

/// Plans a SELECT and binds it with one value, and what it searches its indexes for.
fn bound(text: &str, value: &[u8]) -> (BoundSelect, Result<Vec<IndexPredicate>, PlanError>) {
    let schema = indexed_schema(TEXTS);
    let limits = PlanLimits::default();
    let cx = PlanContext {
        schema: &schema,
        keyspace: Some("ks"),
        limits: &limits,
        now: NOW,
        functions: None,
    };
    let plan = plan(&cql_syntax::parse(text).expect(text), &cx).expect(text);
    let PlanKind::Select(select) = &plan.kind else { panic!("{text}: no SELECT") };
    let uuids = UuidSource::new(1);
    let values = [BoundValue::Bytes(value)];
    let options = options_with(&uuids);
    let searched = select.index_plan().expect(text).bind(&values, &options);
    (select.bind(&values, &options).expect(text), searched)
}

#[test]
fn a_legacy_index_is_asked_for_values_below_64_kib_only() {
    let fits = vec![b'a'; 65_535];
    let long = vec![b'a'; 65_536];
    let by_legacy = "SELECT k FROM t WHERE y = ?";
    assert_eq!(bound(by_legacy, &fits).1.expect("fits").len(), 1);
    let refused = bound(by_legacy, &long).1.expect_err("too long");
    assert_eq!(refused.message, "Index expression values may not be larger than 64K");
    // The storage-attached one is used, which has no such limit.
    let by_both = "SELECT k FROM t WHERE x = 'a' AND y = ? ALLOW FILTERING";
    assert_eq!(bound(by_both, &long).1.expect("fits").len(), 2);
    assert_eq!(bound("SELECT k FROM t WHERE x = ?", &long).1.expect("fits").len(), 1);
}

#[test]
fn text_passes_a_filter_as_its_index_finds_it() {
    let accepts = |text: &str, wanted: &str, value: &str| {
        let (bound, _) = bound(text, wanted.as_bytes());
        let filters = bound.filters.expect("filters");
        filters.row.iter().any(|filter| filter.accepts(Some(value.as_bytes())))
    };
    let by_analysed = "SELECT k FROM t WHERE x = ?";
    assert!(accepts(by_analysed, "ÉA", "ea"));
    assert!(accepts(by_analysed, "ea", "Éa"));
    assert!(!accepts(by_analysed, "ea", "eb"));
    let by_plain = "SELECT k FROM t WHERE y = ?";
    assert!(accepts(by_plain, "ea", "ea"));
    assert!(!accepts(by_plain, "ea", "Ea"));
}

/// Forms of a pattern, as they are searched for and as rows are tested.
#[test]
fn a_pattern_is_searched_by_its_form_and_analyzed_as_its_index() {
    let text = "SELECT k FROM t WHERE x LIKE ?";
    let search = |pattern: &str| match bound(text, pattern.as_bytes()).1.expect(pattern).as_slice()
    {
        [IndexPredicate { ranges, filter, .. }] => (ranges.clone(), filter.clone()),
        other => panic!("{pattern}: {other:?}"),
    };
    assert_eq!(search("\u{c9}A"), (vec![TermRange::equal(b"ea")], None));
    assert_eq!(search("\u{c9}A%"), (vec![TermRange::prefix(b"ea")], None));
    let all = vec![TermRange::all()];
    assert_eq!(search("%A"), (all.clone(), Some(TermFilter::EndsWith(b"a".to_vec()))));
    assert_eq!(search("%A%"), (all, Some(TermFilter::Contains(b"a".to_vec()))));
    let accepts = |pattern: &str, value: &str| {
        let (bound, _) = bound(text, pattern.as_bytes());
        let filters = bound.filters.expect("filters");
        filters.row.iter().all(|filter| filter.accepts(Some(value.as_bytes())))
    };
    assert!(accepts("%\u{c9}%", "ae") && accepts("a%", "Ab") && !accepts("%b", "ba"));
}

#[test]
fn a_pattern_of_too_many_tokens_is_refused() {
    let words =
        "CREATE CUSTOM INDEX t_y ON t (y) USING 'SASIIndex' WITH OPTIONS = {'analyzed': 'true'}";
    let schema = indexed_schema(&[KEYSPACE, "CREATE TABLE t (k int PRIMARY KEY, y text)", words]);
    let tokens = |count: usize| (0..count).map(|n| format!("w{n} ")).collect::<String>();
    let of = |count| answer(&schema, &format!("SELECT k FROM t WHERE y LIKE '{}'", tokens(count)));
    assert_eq!(of(128), "ok\n");
    assert_eq!(of(129), refused("LIKE pattern has 129 tokens, more than maximum of 128"));
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

pub(super) fn options_with(uuids: &UuidSource) -> ExecuteOptions<'_> {
    ExecuteOptions {
        now: NOW,
        clock: NOW,
        default_timestamp: stdx::TimestampMicros(1000),
        page_size: Some(5000),
        paging_state: None,
        protocol_version: 5,
        uuids,
        watch: None,
    }
}

fn warnings(plan: &Plan) -> Result<String, PlanError> {
    let uuids = UuidSource::new(1);
    let options = options_with(&uuids);
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
