//! The difference of two schemas as Cassandra leaves them, and of roles.

use cql_plan::ddl::{DdlContext, DdlPlan};
use stdx::{Uuid, WallMicros};

use super::*;

/// The schema of these statements; tables get ids in the order in which they are made.
fn schema_of(statements: &[&str]) -> Schema {
    let mut schema = cql_plan::system::system_schema();
    let (mut last, mut clock) = (0_u128, 1000);
    for statement in statements {
        clock += 1000;
        let statement = cql_syntax::parse(statement).unwrap();
        let plan = DdlPlan::new(&statement.kind, None).unwrap().unwrap();
        let outcome = plan.outcome(&mut DdlContext {
            schema: &schema,
            datacenters: &[("dc", 1)],
            moving: &[],
            new_table_id: &mut || {
                last += 1;
                Uuid::from_u128(last)
            },
            now: WallMicros(clock),
            watch: None,
            default_factor: 1,
            default_compaction: None,
            drop_compact_storage: true,
            functions: None,
            indexes: &cql_plan::ddl::IndexSettings { available: true, ..Default::default() },
        });
        for change in outcome.unwrap().changes {
            schema = schema.apply(&change).unwrap();
        }
    }
    schema
}

const BEFORE: [&str; 4] = [
    "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'dc': 1}",
    "CREATE TYPE ks.pair (x int)",
    "CREATE TABLE ks.a (k int, c int, s text static, v text, u frozen<pair>, PRIMARY KEY (k, c))",
    "CREATE TABLE ks.b (k int PRIMARY KEY, v text)",
];

fn with<'t>(more: &[&'t str]) -> Schema {
    let all: Vec<&'t str> = BEFORE.iter().copied().chain(more.iter().copied()).collect();
    schema_of(&all)
}

/// Numbers columns like an import: from 0 in the order of the table, dropped ones last.
fn renumbered(schema: &Schema, name: &str) -> Table {
    let mut table = Table::clone(schema.table("ks", name).unwrap());
    for (column, id) in table.columns.iter_mut().zip(0..) {
        column.id = ColumnId(id);
    }
    for (dropped, id) in table.dropped.values_mut().zip(100..) {
        dropped.column.id = ColumnId(id);
    }
    table.next_column_id = 200;
    table
}

fn applied(before: &Schema, changes: &[SchemaChange]) -> Schema {
    changes.iter().fold(before.clone(), |schema, change| schema.apply(change).unwrap())
}

#[test]
fn what_did_not_change_makes_no_entry() {
    let before = with(&[]);
    assert_eq!(schema_changes(&before, &with(&[]), &|_| false).unwrap(), []);
}

#[test]
fn what_a_cassandra_made_altered_and_dropped_is_taken_over() {
    let before = with(&[]);
    let now = with(&[
        "ALTER KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'dc': 3}",
        "CREATE KEYSPACE other WITH replication = {'class': 'NetworkTopologyStrategy', 'dc': 1}",
        "CREATE TABLE ks.c (k int PRIMARY KEY)",
        "ALTER TYPE ks.pair ADD y int",
        "ALTER TABLE ks.a WITH comment = 'changed'",
        "DROP TABLE ks.b",
    ]);
    let changes = schema_changes(&before, &now, &|_| false).unwrap();
    let after = applied(&before, &changes);
    assert!(after.keyspace("other").is_some());
    let (ks, wanted) = (after.keyspace("ks").unwrap(), now.keyspace("ks").unwrap());
    assert_eq!(ks.params, wanted.params);
    assert_eq!(ks.types, wanted.types);
    assert_eq!(ks.tables.keys().collect::<Vec<_>>(), wanted.tables.keys().collect::<Vec<_>>());
    for table in wanted.tables.values() {
        assert!(looks_the_same(&after, &ks.tables[&table.name], table), "{}", table.name);
    }
    // Again: nothing is left to do, as after a crash before the end.
    assert_eq!(schema_changes(&after, &now, &|_| false).unwrap(), []);
    let back = schema_changes(&after, &before, &|_| false).unwrap();
    assert!(back.contains(&SchemaChange::DropKeyspace { name: "other".into() }), "{back:?}");
}

#[test]
fn a_table_that_may_hold_rows_is_kept_with_its_keyspace_and_types() {
    let before = with(&[]);
    let keep_a = |table: &Table| &*table.name == "a";
    let now = with(&["DROP TABLE ks.a", "DROP TABLE ks.b", "DROP TYPE ks.pair"]);
    let after = applied(&before, &schema_changes(&before, &now, &keep_a).unwrap());
    let ks = after.keyspace("ks").unwrap();
    assert_eq!(ks.tables.keys().map(|name| &**name).collect::<Vec<_>>(), ["a"]);
    assert!(ks.types.contains_key("pair"));
    let now = schema_of(&[]);
    let after = applied(&before, &schema_changes(&before, &now, &keep_a).unwrap());
    assert!(after.table("ks", "a").is_some());
    assert!(schema_changes(&before, &now, &|_| false).unwrap().len() == 1);
}

#[test]
fn columns_keep_their_ids_and_an_added_one_gets_one_that_was_never_used() {
    let before = with(&[]);
    let was = before.table("ks", "a").unwrap();
    let id = |table: &Table, name: &str| table.column(name).unwrap().id;
    let now = with(&[
        "ALTER TABLE ks.a ADD (a0 int, w int)",
        "ALTER TABLE ks.a DROP v",
        "ALTER TABLE ks.a RENAME c TO d",
    ]);
    let new = with_ids_of(was, &renumbered(&now, "a"));
    for name in ["k", "s", "u"] {
        assert_eq!(id(&new, name), id(was, name), "{name}");
    }
    assert_eq!(id(&new, "d"), id(was, "c"));
    assert_eq!(new.dropped["v"].column.id, id(was, "v"));
    let added = [id(&new, "a0"), id(&new, "w")];
    assert!(added.iter().all(|id| id.0 >= was.next_column_id) && added[0] != added[1], "{added:?}");
    assert!(new.next_column_id > added[0].0.max(added[1].0));
    assert_eq!(new.version, was.version + 1);
}

#[test]
fn a_local_index_is_the_same_index_after_a_column_of_its_partition_key_was_renamed() {
    const LOCAL: &str = "CREATE INDEX i ON ks.a ((k), v)";
    let before = with(&[LOCAL]);
    let was = before.table("ks", "a").unwrap();
    let other = |index: &Arc<IndexMetadata>| {
        Arc::new(IndexMetadata { id: Uuid::from_u128(5), ..IndexMetadata::clone(index) })
    };
    let renamed = ["ALTER TABLE ks.a RENAME k TO key", "CREATE INDEX i ON ks.a ((key), v)"];
    let mut is = renumbered(&with(&renamed), "a");
    is.indexes = is.indexes.iter().map(other).collect();
    let new = with_ids_of(was, &is);
    assert_eq!(new.indexes[0].id, was.indexes[0].id);
    assert_eq!(new.indexes[0].options["target"], r#"{"pk":["key"],"ck":["v"]}"#);
}

#[test]
fn an_index_keeps_its_id_while_definition_and_column_are_the_same() {
    const INDEXES: [&str; 3] =
        ["CREATE INDEX i ON ks.a (v)", "CREATE INDEX j ON ks.a (s)", "CREATE INDEX l ON ks.a (c)"];
    let before = with(&INDEXES);
    let was = before.table("ks", "a").unwrap();
    let now = with(&[
        INDEXES[2],
        "CREATE INDEX new ON ks.a (u)",
        "CREATE INDEX i ON ks.a (v) USING 'sai'",
        "CREATE INDEX j ON ks.a (s) USING 'sai'",
        "DROP INDEX ks.j",
        INDEXES[1],
    ]);
    let mut is = renumbered(&now, "a");
    let others = |index: &Arc<IndexMetadata>| {
        Arc::new(IndexMetadata { id: Uuid::from_u128(5), ..IndexMetadata::clone(index) })
    };
    is.indexes = is.indexes.iter().map(others).collect();
    let new = with_ids_of(was, &is);
    let id = |table: &Table, name: &str| table.index(name).unwrap().id;
    for name in ["j", "l"] {
        assert_eq!(id(&new, name), id(was, name), "{name}");
    }
    for name in ["new", "i"] {
        assert_eq!(id(&new, name), schema::index_id(was.id, name, new.version), "{name}");
    }
    // The column was dropped and added again.
    let now = with(&["ALTER TABLE ks.a DROP v", "ALTER TABLE ks.a ADD v text", INDEXES[0]]);
    let mut is = renumbered(&now, "a");
    is.dropped.values_mut().for_each(|dropped| dropped.dropped_at = TimestampMicros(7));
    assert_ne!(id(&with_ids_of(was, &is), "i"), id(was, "i"));
}

#[test]
fn a_column_that_was_dropped_and_added_again_is_another_one() {
    let before = with(&[]);
    let was = before.table("ks", "a").unwrap();
    let now = with(&["ALTER TABLE ks.a DROP v", "ALTER TABLE ks.a ADD v text"]);
    let new = with_ids_of(was, &renumbered(&now, "a"));
    let old = was.column("v").unwrap().id;
    assert_eq!(new.dropped["v"].column.id, old);
    assert!(new.column("v").unwrap().id.0 >= was.next_column_id);
    // The same drop, known before: the column of now keeps its id.
    let known = with_ids_of(&new, &renumbered(&now, "a"));
    assert_eq!(known.column("v").unwrap().id, new.column("v").unwrap().id);
    assert_eq!(known.dropped["v"].column.id, old);
}
