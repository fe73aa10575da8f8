//! Answers recorded from Cassandra 5.0.9 (`testdata/index`), replayed.
//!
//! Directives: `settings` (as words), `setup` (statements), `run` (one statement: its answer, and the rows of
//! `system_schema.indexes` that it makes and removes; new indexes are dropped again unless the case says `keep`) and
//! `describe`. A case with `differs` has our answer, with Cassandra's above it.

use std::collections::BTreeMap;
use std::sync::Arc;

use schema::{IndexMetadata, Schema, Table};
use stdx::{Uuid, WallMicros};
use testkit::cases::{Case, check};

use super::*;
use crate::ddl::{
    DdlContext, DdlOutcome, DdlPlan, SchemaEvent, SchemaEventKind, SchemaEventTarget,
};
use crate::error::PlanErrorCode;
use crate::guardrails::{Feature, Guardrails, Threshold, Watch};
use crate::system::describe::{DescribeContext, DescribePlan};

/// Directory of the cases.
const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/index");

/// Name of an index with its keyspace to its table and itself.
type Indexes = BTreeMap<(String, String), (Arc<Table>, Arc<IndexMetadata>)>;

struct World {
    schema: Schema,
    keyspace: Option<String>,
    tables: u128,
    settings: IndexSettings,
    rails: Option<Guardrails>,
}

impl World {
    fn new() -> World {
        let settings = IndexSettings { available: true, ..IndexSettings::default() };
        let schema = crate::system::system_schema();
        World { schema, keyspace: None, tables: 0, settings, rails: None }
    }

    fn set(&mut self, name: &str, value: &str) {
        let number = || value.parse().unwrap_or_else(|_| panic!("{name}={value}"));
        match name {
            "default_secondary_index" => self.settings.default_class = Some(value.to_owned()),
            "default_secondary_index_enabled" => self.settings.default_class = None,
            "sasi_indexes_enabled" => self.settings.sasi = value == "true",
            "available" => self.settings.available = value == "true",
            _ => {
                let rails = self.rails.get_or_insert_default();
                let per_table: &mut Threshold = &mut rails.secondary_indexes_per_table;
                match name {
                    "secondary_indexes_per_table_warn_threshold" => per_table.warn = number(),
                    "secondary_indexes_per_table_fail_threshold" => per_table.fail = number(),
                    "secondary_indexes_enabled" => {
                        rails.secondary_indexes = Feature::of(value == "true");
                    }
                    other => panic!("no setting {other}"),
                }
            }
        }
    }

    fn outcome(&mut self, text: &str, watch: Option<&Watch>) -> Result<DdlOutcome, PlanError> {
        let statement = cql_syntax::parse(text).map_err(PlanError::from)?;
        let plan = DdlPlan::new(&statement.kind, self.keyspace.as_deref()).unwrap()?;
        let outcome = plan.outcome(&mut DdlContext {
            schema: &self.schema,
            datacenters: &[("datacenter1", 1)],
            moving: &[],
            new_table_id: &mut || {
                self.tables += 1;
                Uuid::from_u128(self.tables)
            },
            now: WallMicros(0),
            watch,
            default_factor: 1,
            default_compaction: None,
            drop_compact_storage: true,
            functions: None,
            indexes: &self.settings,
        })?;
        for change in &outcome.changes {
            self.schema = self.schema.apply(change).unwrap();
        }
        Ok(outcome)
    }

    fn must(&mut self, text: &str) -> DdlOutcome {
        self.outcome(text, None).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    fn setup(&mut self, statements: &str) -> String {
        for statement in cql_syntax::split_statements(statements) {
            match statement.trim().strip_prefix("USE ") {
                Some(keyspace) => {
                    self.keyspace = Some(keyspace.trim_end_matches(';').trim().to_owned());
                }
                None => {
                    self.must(statement);
                }
            }
        }
        "ok".to_owned()
    }

    fn indexes(&self) -> Indexes {
        let tables = self.schema.tables_by_id.values();
        let each = tables.flat_map(|table| table.indexes.iter().map(move |index| (table, index)));
        let name = |table: &Table, index: &IndexMetadata| {
            (table.keyspace.to_string(), index.name.to_string())
        };
        each.map(|(table, index)| (name(table, index), (table.clone(), index.clone()))).collect()
    }

    fn run(&mut self, statement: &str, keep: bool) -> String {
        let before = self.indexes();
        let watch = self.rails.clone().map(|rails| Watch::new(Arc::new(rails)));
        let mut lines = Vec::new();
        let mut warnings = Vec::new();
        match self.outcome(statement, watch.as_ref()) {
            Ok(outcome) => {
                lines.push("ok".to_owned());
                warnings = outcome.warnings;
            }
            Err(error) => lines.push(shown(&error)),
        }
        warnings.extend(watch.iter().flat_map(Watch::warnings));
        lines.extend(warnings.iter().map(|text| format!("warning: {text}")));
        let after = self.indexes();
        let gone = before.keys().filter(|name| !after.contains_key(*name));
        lines.extend(gone.map(|(keyspace, name)| format!("- {keyspace}.{name}")));
        let is_new = |name: &(String, String)| {
            before.get(name).map(|(_, index)| &index.options)
                != after.get(name).map(|(_, index)| &index.options)
        };
        for (name, (table, index)) in after.iter().filter(|(name, _)| is_new(name)) {
            let options: Vec<String> =
                index.options.iter().map(|(k, v)| format!("'{k}': '{v}'")).collect();
            lines.push(format!(
                "+ {}.{} on {} {} {{{}}}",
                name.0,
                name.1,
                table.name,
                index.kind.name(),
                options.join(", ")
            ));
            let quoted = |name: &str| format!("\"{name}\"");
            let text = format!("DESCRIBE INDEX {}.{}", quoted(&name.0), quoted(&name.1));
            lines.extend(self.describe(&text).lines().skip(1).map(str::to_owned));
        }
        if !keep {
            for (keyspace, name) in after.keys().filter(|name| !before.contains_key(*name)) {
                self.must(&format!("DROP INDEX \"{keyspace}\".\"{name}\""));
            }
        }
        lines.join("\n")
    }

    fn describe(&self, statement: &str) -> String {
        let statement = cql_syntax::parse(statement).unwrap();
        let cql_syntax::ast::StatementKind::Describe(describe) = &statement.kind else {
            panic!("{statement:?}");
        };
        let result = DescribePlan::new(describe).run(&DescribeContext {
            schema: &self.schema,
            keyspace: self.keyspace.as_deref(),
            cluster_name: "Test Cluster",
            snitch: "SimpleSnitch",
            range_owners: &|_| Vec::new(),
            page_size: None,
            paging_state: None,
        });
        let result = match result {
            Ok(result) => result,
            Err(error) => return shown(&error),
        };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let rows = result.rows.iter().map(|row| {
            let row: Vec<String> = row.iter().map(|bytes| text(bytes)).collect();
            format!("-- {}\n{}", row[..3].join(" "), row[3])
        });
        rows.collect::<Vec<_>>().join("\n")
    }
}

fn shown(error: &PlanError) -> String {
    let code = match &error.code {
        PlanErrorCode::Syntax => "2000",
        PlanErrorCode::Unauthorized => "2100",
        PlanErrorCode::Invalid => "2200",
        PlanErrorCode::Config => "2300",
        other => panic!("{other:?}"),
    };
    format!("{code} {}", error.message.replace('\n', "\\n"))
}

fn runner() -> impl FnMut(&Case) -> String {
    let mut world = World::new();
    move |case| match case.command.as_str() {
        "settings" => {
            for (name, value) in case.values() {
                world.set(name, value);
            }
            String::new()
        }
        "setup" => world.setup(&case.input),
        "run" => world.run(case.input.trim_end_matches('\n'), case.has("keep")),
        "describe" => world.describe(&case.input),
        other => panic!("{}: no directive: {other}", case.place),
    }
}

#[test]
fn statements_about_indexes_are_answered_as_recorded() {
    let cases = check(CASES, runner);
    assert!(cases >= 700, "{cases} cases");
}

/// A world with the table `ks.t (k, c, v, w, PRIMARY KEY (k, c))`.
fn with_table() -> World {
    let mut world = World::new();
    world.setup(
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};\
         USE ks; CREATE TABLE t (k int, c int, v int, w text, PRIMARY KEY (k, c))",
    );
    world
}

#[test]
fn creating_and_dropping_an_index_changes_and_reports_its_table() {
    let mut world = with_table();
    let event = SchemaEvent {
        kind: SchemaEventKind::Updated,
        target: SchemaEventTarget::Table,
        keyspace: "ks".to_owned(),
        name: "t".to_owned(),
    };
    let made = world.must("CREATE INDEX i ON t (v)");
    assert_eq!(made.event.as_ref(), Some(&event));
    let table = world.schema.table("ks", "t").unwrap().clone();
    assert_eq!((table.version, table.indexes.len()), (2, 1));
    assert_eq!(table.indexes[0].id, index_id(table.id, "i", 2));
    let nothing = world.must("CREATE INDEX IF NOT EXISTS i ON t (w)");
    assert_eq!((nothing.event, nothing.changes), (None, Vec::new()));

    assert_eq!(world.must("DROP INDEX i").event.as_ref(), Some(&event));
    world.must("CREATE INDEX i ON t (w)");
    let again = world.schema.table("ks", "t").unwrap();
    assert_eq!((again.version, &*again.indexes[0].target.column), (4, "w"));
    // Components of the first index are not those of the second.
    assert_ne!(again.indexes[0].id, table.indexes[0].id);
    assert_eq!(world.must("DROP INDEX IF EXISTS nope").event, None);
}

#[test]
fn system_schema_has_a_row_for_each_index() {
    let mut world = with_table();
    world.must("CREATE INDEX i ON t (v)");
    world.must("CREATE INDEX j ON t (w) USING 'SAI' WITH OPTIONS = {'ascii': 'true'}");
    let keyspace = world.schema.keyspace("ks").unwrap();
    let (at, now) = (stdx::TimestampMicros(1000), stdx::DeletionSeconds(1));
    let mutations = crate::system::rows::keyspace_mutations(&world.schema, keyspace, at, now);
    let table = world.schema.table("system_schema", "indexes").unwrap().id;
    let rows = mutations.iter().find(|mutation| mutation.table == table).unwrap();
    assert_eq!(
        cql_testing::show(&world.schema, &rows.bytes),
        "6b73 deleted@999 ['t','i'](live kind='COMPOSITES' options={'target': 'v'}) ['t','j'](live \
         kind='CUSTOM' options={'ascii': 'true', 'class_name': 'SAI', 'target': 'w'})"
    );
}

#[test]
fn a_local_index_is_shown_as_scylladb_has_it_and_stored_as_cassandra_has_it() {
    let mut world = with_table();
    world.must("CREATE INDEX i ON t ((k), v)");
    world.must("CREATE INDEX j ON t (w)");
    let table = world.schema.table("system_schema", "indexes").unwrap();
    let options = |rows: Vec<crate::virtual_row::VirtualRow>| -> Vec<String> {
        let shown = rows.iter().map(|row| String::from_utf8_lossy(&row.row).into_owned());
        shown.collect()
    };
    let at = stdx::TimestampMicros(1000);
    let shown = crate::system::rows::shown_index_rows(&world.schema, table, at).unwrap();
    let shown = options(shown);
    assert!(shown[0].contains(r#"{"pk":["k"],"ck":["v"]}"#), "{shown:?}");
    assert_eq!(shown.len(), 2);
    let keyspace = world.schema.keyspace("ks").unwrap();
    let now = stdx::DeletionSeconds(1);
    let mutations = crate::system::rows::keyspace_mutations(&world.schema, keyspace, at, now);
    let stored = mutations.iter().find(|mutation| mutation.table == table.id).unwrap();
    assert_eq!(
        cql_testing::show(&world.schema, &stored.bytes),
        "6b73 deleted@999 ['t','i'](live kind='COMPOSITES' options={'target': 'v'}) ['t','j'](live \
         kind='COMPOSITES' options={'target': 'w'})"
    );
}

#[test]
fn a_copied_table_has_no_indexes() {
    let mut world = with_table();
    world.must("CREATE INDEX i ON t (v)");
    world.must("CREATE TABLE u LIKE t");
    assert!(!world.schema.table("ks", "u").unwrap().has_indexes());
}

#[test]
fn as_long_as_no_engine_answers_them_indexes_are_refused_after_all_checks() {
    let mut world = with_table();
    world.settings.available = false;
    for (statement, error) in [
        ("CREATE INDEX ON t (v)", "CREATE INDEX is not supported by this version of Helenus"),
        ("CREATE INDEX ON t (nope)", "Undefined column name nope in table ks.t"),
        ("CREATE INDEX ON t (v) USING 'x'", "Unable to find custom indexer class 'x'"),
    ] {
        assert_eq!(world.outcome(statement, None).unwrap_err().message, error, "{statement}");
    }
    assert_eq!(world.schema.table("ks", "t").unwrap().version, 1);
}

#[test]
fn names_that_cassandra_cannot_store_are_refused() {
    let mut world = with_table();
    let longest = "n".repeat(NAME_BYTES_MAX);
    world.must(&format!("CREATE INDEX {longest} ON t (v)"));
    let error = world.outcome(&format!("CREATE INDEX {longest}n ON t (w)"), None).unwrap_err();
    assert_eq!(error.message, "Index name of 201 bytes is longer than maximum of 200");
    // Names that the server finds are held to the same bound.
    let table = "t".repeat(190);
    world.must(&format!("CREATE TABLE {table} (k int PRIMARY KEY, value_ int)"));
    let error = world.outcome(&format!("CREATE INDEX ON {table} (value_)"), None).unwrap_err();
    assert_eq!(error.message, "Index name of 201 bytes is longer than maximum of 200");
}
