use std::sync::Arc;

use schema::{Schema, Table};
use stdx::Uuid;

use super::*;
use crate::ddl::{DdlContext, DdlPlan};
use crate::system::describe::schema_text;

struct World {
    schema: Schema,
    tables: u128,
}

impl World {
    fn new() -> World {
        let mut world = World { schema: crate::system::system_schema(), tables: 0 };
        world.must(
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', \
             'replication_factor': 1}",
        );
        world
    }

    /// Returns true if the schema changed.
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

    fn table(&self) -> &Arc<Table> {
        self.schema.table("ks", "t").unwrap()
    }

    fn masked(&self) -> Vec<&str> {
        let table = self.table();
        let masked = table.columns.iter().filter(|c| table.mask_of(c).is_some());
        masked.map(|c| &*c.name).collect()
    }
}

#[test]
fn a_mask_follows_its_column_and_goes_with_it() {
    let mut world = World::new();
    world.must(
        "CREATE TABLE t (k int, c text MASKED WITH mask_inner(1, null, '#'), v int MASKED WITH \
         DEFAULT, l list<int> MASKED WITH mask_replace([1, 2]), PRIMARY KEY (k, c))",
    );
    assert_eq!(world.masked(), ["c", "l", "v"]);
    let text = schema_text(world.table());
    for line in [
        "c text MASKED WITH system.mask_inner(1, null, '#'),",
        "v int MASKED WITH system.mask_default(),",
        "l list<int> MASKED WITH system.mask_replace([1, 2]),",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let columns = text.split("\n) WITH").next().unwrap();
    world.must(&format!("{})", columns.replace("ks.t ", "ks.u ")));
    assert_eq!(world.schema.table("ks", "u").unwrap().masks, world.table().masks);

    world.must("ALTER TABLE t RENAME c TO d");
    world.must("ALTER TABLE t DROP v");
    world.must("ALTER TABLE t ADD v int");
    assert_eq!((world.masked(), world.table().masks.len()), (vec!["d", "l"], 2));
    world.must("ALTER TABLE t ALTER v MASKED WITH mask_replace(5)");
    assert_eq!(world.run("ALTER TABLE t ALTER v MASKED WITH mask_replace(5)"), Ok(false));
    world.must("ALTER TABLE t ALTER d DROP MASKED");
    assert_eq!(world.run("ALTER TABLE t ALTER d DROP MASKED"), Ok(false));
    world.must("ALTER TABLE t ADD b blob MASKED WITH mask_hash('SHA-512')");
    world.must("ALTER TABLE t DROP b");
    world.must("ALTER TABLE t ADD (e int MASKED WITH mask_null(), f int)");
    assert_eq!(world.masked(), ["e", "l", "v"]);
}

#[test]
fn what_is_no_mask_is_refused() {
    let mut world = World::new();
    world.must("CREATE TABLE t (k int PRIMARY KEY, v int, w text, b blob)");
    for (change, message) in [
        ("v MASKED WITH nothing(1)", "no declared function matches the signature nothing(1)"),
        ("v MASKED WITH k2.f()", "no declared function matches the signature k2.f()"),
        ("v MASKED WITH mask_inner(1, 1)", "found argument org.apache.cassandra.db.marshal.Int32"),
        ("w MASKED WITH mask_inner('a', 1)", "requires an argument of type int, but found argume"),
        ("v MASKED WITH max()", "Aggregate function max() cannot be used"),
        ("w MASKED WITH to_json()", "Not-masking function to_json() cannot be used"),
        ("v MASKED WITH mask_replace(?)", "cannot have bind variables"),
        ("v MASKED WITH mask_hash()", "Masking function mask_hash() return type is blob."),
        ("b MASKED WITH mask_hash(1)", "requires an argument of type text, but found argument 1"),
        ("nope MASKED WITH DEFAULT", "Column with name 'nope' doesn't exist on table 't'"),
    ] {
        let error = world.run(&format!("ALTER TABLE t ALTER {change}")).unwrap_err();
        assert!(error.contains(message), "{change}: {error}");
    }
    assert!(world.table().masks.is_empty());
}
