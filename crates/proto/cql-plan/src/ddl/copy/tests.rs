use schema::Schema;
use stdx::{Uuid, WallMicros};

use crate::ddl::{DdlContext, DdlPlan};
use crate::system::describe::schema_text;

struct World {
    schema: Schema,
    tables: u128,
}

impl World {
    fn run(&mut self, text: &str) -> Result<bool, String> {
        let statement = cql_syntax::parse(text).map_err(|e| e.message)?;
        let plan = DdlPlan::new(&statement.kind, Some("ks")).unwrap().map_err(|e| e.message)?;
        let outcome = plan.outcome(&mut DdlContext {
            schema: &self.schema,
            datacenters: &[("d", 1)],
            moving: &[],
            new_table_id: &mut || {
                self.tables += 1;
                Uuid::from_u128(self.tables)
            },
            now: WallMicros(0),
            watch: None,
            default_factor: 1,
            default_compaction: None,
            drop_compact_storage: true,
            functions: None,
            indexes: &crate::ddl::IndexSettings::default(),
        });
        let changes = outcome.map_err(|e| e.message)?.changes;
        for change in &changes {
            self.schema = self.schema.apply(change).unwrap();
        }
        Ok(!changes.is_empty())
    }

    fn must(&mut self, text: &str) {
        assert_eq!(self.run(text), Ok(true), "{text}");
    }
}

fn world() -> World {
    let mut world = World { schema: crate::system::system_schema(), tables: 0 };
    for keyspace in ["ks", "other"] {
        world.must(&format!(
            "CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', \
             'replication_factor': 1}}"
        ));
    }
    world.must("CREATE TYPE point (x int, y int)");
    world.must(
        "CREATE TABLE t (k int, c text, s int STATIC, v text MASKED WITH DEFAULT, gone int, \
         PRIMARY KEY (k, c)) WITH CLUSTERING ORDER BY (c DESC) AND gc_grace_seconds = 77 AND \
         comment = 'of t'",
    );
    world.must("ALTER TABLE t DROP gone");
    world.must("CREATE TABLE with_type (k int PRIMARY KEY, p frozen<point>)");
    world.must("CREATE TABLE counts (k int PRIMARY KEY, n counter)");
    world
}

#[test]
fn a_copy_has_the_columns_and_options_of_its_source() {
    let mut world = world();
    world.must("CREATE TABLE other.copy LIKE t WITH comment = 'of copy'");
    let source = world.schema.table("ks", "t").unwrap();
    let copy = world.schema.table("other", "copy").unwrap();
    assert_ne!(copy.id, source.id);
    assert_eq!((&copy.columns, &copy.masks), (&source.columns, &source.masks));
    assert_eq!(copy.options.gc_grace_seconds, 77);
    assert!(!source.dropped.is_empty() && copy.dropped.is_empty());
    let text = schema_text(copy);
    assert!(text.contains("comment = 'of copy'") && text.contains("(c DESC)"), "{text}");
    // A later change of one table does not affect the other.
    world.must("ALTER TABLE other.copy ADD gone text");
    assert!(world.schema.table("ks", "t").unwrap().column("gone").is_none());
    assert_eq!(world.run("CREATE TABLE IF NOT EXISTS other.copy LIKE t"), Ok(false));
    world.must("CREATE TABLE here LIKE with_type");
}

#[test]
fn the_schema_of_a_snapshot_has_the_tables_indexes() {
    let mut world = world();
    world.must("CREATE TABLE INDEXED (k int PRIMARY KEY, v text, w int)");
    world.must("CREATE INDEX by_v ON indexed (v)");
    world.must("CREATE INDEX by_w ON indexed (w) USING 'sai'");
    let text = schema_text(world.schema.table("ks", "indexed").unwrap());
    let (table, indexes) = text.split_once(";\n").unwrap();
    assert!(table.starts_with("CREATE TABLE IF NOT EXISTS ks.indexed ("), "{table}");
    assert_eq!(
        indexes,
        "CREATE INDEX IF NOT EXISTS by_v ON ks.indexed (v);\n\
         CREATE CUSTOM INDEX IF NOT EXISTS by_w ON ks.indexed (w) USING 'sai';"
    );
}

#[test]
fn a_copy_that_cannot_be_made_is_refused() {
    let mut world = world();
    for (text, error) in [
        (
            "CREATE TABLE t LIKE counts",
            "Cannot add already existing table \"t\" to keyspace \"ks\"",
        ),
        ("CREATE TABLE x LIKE missing", "Table 'ks.missing' doesn't exist"),
        ("CREATE TABLE x LIKE missing.t", "Table 'missing.t' doesn't exist"),
        ("CREATE TABLE missing.x LIKE t", "Keyspace 'missing' doesn't exist"),
        (
            "CREATE TABLE other.x LIKE with_type",
            "Cannot use CREATE TABLE LIKE in another keyspace: column 'p' has a user type of \
             keyspace 'ks'",
        ),
        (
            "CREATE TABLE x LIKE t WITH id = 5a1c395e-b41f-11e5-9f22-ba0be0483c18",
            "Cannot set the id of a table in CREATE TABLE LIKE",
        ),
        (
            "CREATE TABLE x LIKE counts WITH default_time_to_live = 5",
            "Cannot set default_time_to_live on a table with counters",
        ),
        ("CREATE TABLE system.x LIKE t", "system keyspace is not user-modifiable."),
    ] {
        assert_eq!(world.run(text), Err(error.to_owned()), "{text}");
    }
}
