//! The table that export and write are about: from statements in a file, such as the `schema.cql` of
//! a snapshot.

use std::path::Path;
use std::sync::Arc;

use cql_plan::ddl::{DdlContext, DdlPlan};
use cql_syntax::ast::{AlterTableChange, StatementKind};
use schema::{Schema, Table};
use stdx::{Uuid, WallMicros};
use types::CqlType;

use super::targets::Target;

/// Largest file of statements, bytes.
const BYTES_MAX: u64 = 16 << 20;

/// The schema that the statements of a file make. Keyspaces need not be created in it.
///
/// # Errors
/// A text that names the statement.
pub(super) fn read(path: &str) -> Result<Arc<Schema>, String> {
    let length = std::fs::metadata(path).map_err(|e| format!("{path}: {e}"))?.len();
    if length > BYTES_MAX {
        return Err(format!("{path} is longer than {BYTES_MAX} bytes"));
    }
    let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    of_text(&text).map_err(|e| format!("{path}: {e}"))
}

/// Like [`read`], for a text: returns the tables and types that result from its statements.
/// Statements that do not affect files are skipped: keyspaces, indexes, views, functions, roles,
/// and most properties of tables, which differ between versions.
///
/// # Errors
/// A text that names the statement.
pub(super) fn of_text(text: &str) -> Result<Arc<Schema>, String> {
    let mut schema = Schema::default();
    let mut last = 0_u128;
    let mut in_use: Option<String> = None;
    for statement in cql_syntax::split_statements(text.trim_start_matches('\u{feff}')) {
        let mut kind = parsed(statement)?;
        let keyspace = match &mut kind {
            StatementKind::Use(used) => {
                in_use = Some(used.keyspace.text.clone());
                continue;
            }
            StatementKind::CreateTable(create) => {
                create.options.properties.retain(|p| OF_FILES.contains(&p.name.text.as_str()));
                &create.table.keyspace
            }
            StatementKind::AlterTable(alter) => match alter.change {
                AlterTableChange::With(_) => continue,
                _ => &alter.table.keyspace,
            },
            StatementKind::CreateType(create) => &create.name.keyspace,
            StatementKind::AlterType(alter) => &alter.name.keyspace,
            StatementKind::DropTable(drop) => &drop.table.keyspace,
            StatementKind::DropType(drop) => &drop.name.keyspace,
            kind if is_of_others(kind) => continue,
            _ => return Err(format!("not a statement about tables and types: {statement}")),
        };
        let keyspace = keyspace.as_ref().map(|name| name.text.clone()).or_else(|| in_use.clone());
        if let Some(keyspace) = keyspace
            && schema.keyspace(&keyspace).is_none()
        {
            let quoted = types::name::quote_identifier(&keyspace);
            let create = format!(
                "CREATE KEYSPACE {quoted} WITH replication = \
                 {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
            );
            apply(&mut schema, &parsed(&create)?, &create, None, &mut last)?;
        }
        apply(&mut schema, &kind, statement, in_use.as_deref(), &mut last)?;
    }
    Ok(Arc::new(schema))
}

/// Properties of tables that affect files or their content.
const OF_FILES: [&str; 6] = [
    "id",
    "bloom_filter_fp_chance",
    "compression",
    "default_time_to_live",
    "max_index_interval",
    "min_index_interval",
];

/// Returns true if a statement is about anything but tables and types.
fn is_of_others(kind: &StatementKind) -> bool {
    use StatementKind::*;
    matches!(
        kind,
        CreateKeyspace(_)
            | AlterKeyspace(_)
            | CreateIndex(_)
            | DropIndex(_)
            | CreateView(_)
            | AlterView(_)
            | DropView(_)
            | CreateTrigger(_)
            | DropTrigger(_)
            | CreateFunction(_)
            | DropFunction(_)
            | CreateAggregate(_)
            | DropAggregate(_)
            | CreateRole(_)
            | AlterRole(_)
            | DropRole(_)
            | CreateUser(_)
            | AlterUser(_)
            | DropUser(_)
            | GrantPermissions(_)
            | RevokePermissions(_)
            | GrantRole(_)
            | RevokeRole(_)
            | AddIdentity(_)
            | DropIdentity(_)
    )
}

fn parsed(statement: &str) -> Result<StatementKind, String> {
    let parsed = cql_syntax::parse(statement).map_err(|e| format!("{e} in {statement}"))?;
    Ok(parsed.kind)
}

fn apply(
    schema: &mut Schema,
    kind: &StatementKind,
    statement: &str,
    in_use: Option<&str>,
    last: &mut u128,
) -> Result<(), String> {
    let Some(plan) = DdlPlan::new(kind, in_use) else {
        return Err(format!("not a statement about the schema: {statement}"));
    };
    let mut context = DdlContext {
        schema,
        datacenters: &[("datacenter1", 1)],
        moving: &[],
        // Only tables whose statement has no id get one of these.
        new_table_id: &mut || {
            *last += 1;
            Uuid::from_u128(*last)
        },
        now: WallMicros(0),
        watch: None,
        default_factor: 1,
        default_compaction: None,
        drop_compact_storage: true,
        functions: None,
        indexes: &cql_plan::ddl::IndexSettings::default(),
    };
    let wrong = |e: &dyn std::fmt::Display| format!("{e} in {statement}");
    let outcome = plan.and_then(|plan| plan.outcome(&mut context)).map_err(|e| wrong(&e))?;
    for change in &outcome.changes {
        *schema = schema.apply(change).map_err(|e| wrong(&e))?;
    }
    Ok(())
}

/// The table of that name (`keyspace.table`); without one, the only table there is.
///
/// # Errors
/// Which tables there are.
pub(super) fn table(schema: &Schema, name: Option<&str>) -> Result<Arc<Table>, String> {
    let mut tables: Vec<&Arc<Table>> = schema.tables_by_id.values().collect();
    tables.sort_by_key(|table| name_of(table));
    let found: Vec<&&Arc<Table>> =
        tables.iter().filter(|table| name.is_none_or(|name| name_of(table) == name)).collect();
    match found.as_slice() {
        [table] => Ok(Arc::clone(table)),
        _ => {
            let names: Vec<String> = tables.iter().map(|table| name_of(table)).collect();
            Err(format!("say with --table which table is meant; there are: {}", names.join(", ")))
        }
    }
}

/// Like [`table`]. If no name is given and there are several tables, the directory of a file set
/// selects the table, by id or by keyspace and name.
///
/// # Errors
/// See [`table`].
pub(super) fn table_of(
    schema: &Schema,
    name: Option<&str>,
    target: Option<&Target>,
) -> Result<Arc<Table>, String> {
    if let (None, Some(target)) = (name, target) {
        let of_id = |table: &&Arc<Table>| {
            let id = table.id.0.simple().to_string();
            target.table_id.as_deref() == Some(id.as_str())
        };
        let (keyspace, named) = target.place();
        let of_name = |table: &&Arc<Table>| {
            keyspace.as_deref() == Some(&*table.keyspace) && named.as_deref() == Some(&*table.name)
        };
        let all = || schema.tables_by_id.values();
        if let Some(found) = all().find(of_id).or_else(|| all().find(of_name)) {
            return Ok(found.clone());
        }
    }
    table(schema, name)
}

/// A table and the schema that it is in.
pub(super) struct TableInSchema {
    pub(super) schema: Arc<Schema>,
    pub(super) table: Arc<Table>,
}

/// A column that files have and the schema does not.
pub(super) struct UnknownColumn<'a> {
    pub(super) name: &'a str,
    pub(super) ty: &'a CqlType,
    pub(super) is_static: bool,
}

/// The schema after a column of that type was dropped from a table, and the table.
///
/// # Errors
/// There can be no such column.
pub(super) fn dropped(
    of: &TableInSchema,
    column: &UnknownColumn<'_>,
) -> Result<TableInSchema, String> {
    let UnknownColumn { name, ty, is_static } = column;
    let TableInSchema { schema, table } = of;
    let (of, name) = (quoted_name(table), types::name::quote_identifier(name));
    let form = if *is_static { " static" } else { "" };
    let mut schema = Schema::clone(schema);
    for statement in
        [format!("ALTER TABLE {of} ADD {name} {ty}{form}"), format!("ALTER TABLE {of} DROP {name}")]
    {
        apply(&mut schema, &parsed(&statement)?, &statement, None, &mut 0)?;
    }
    let table = schema.table_by_id(table.id).cloned().ok_or("the table is gone")?;
    Ok(TableInSchema { schema: Arc::new(schema), table })
}

/// Keyspace and table.
pub(super) fn name_of(table: &Table) -> String {
    format!("{}.{}", table.keyspace, table.name)
}

/// Returns the name in CQL.
pub(super) fn quoted_name(table: &Table) -> String {
    let quote = types::name::quote_identifier;
    format!("{}.{}", quote(&table.keyspace), quote(&table.name))
}

/// `schema.cql` beside the files, as snapshots have it.
pub(super) fn beside(directory: &str) -> Option<String> {
    let path = Path::new(directory).join("schema.cql");
    path.is_file().then(|| path.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sstable::Descriptor;
    use stdx::Generation;

    use super::*;

    #[test]
    fn the_directory_says_which_table_is_meant() {
        let text =
            "CREATE TABLE ks.a (k int PRIMARY KEY) WITH id = 5bc52802-de25-35ed-aeab-188eecebb090;
            CREATE TABLE ks.b (k int PRIMARY KEY); CREATE TABLE other.b (k int PRIMARY KEY);";
        let schema = of_text(text).unwrap();
        let found = |directory: &str, name: Option<&str>| {
            let target = Target::new(Path::new(directory), Descriptor::nb(Generation(1)));
            table_of(&schema, name, Some(&target)).map(|table| name_of(&table))
        };
        let id = "5bc52802de2535edaeab188eecebb090";
        assert_eq!(found(&format!("/data/x/renamed-{id}"), None).unwrap(), "ks.a");
        assert_eq!(found(&format!("/data/ks/a-{id}/snapshots/s"), None).unwrap(), "ks.a");
        let other = id.replace('5', "6");
        assert_eq!(found(&format!("/data/other/b-{other}"), None).unwrap(), "other.b");
        assert_eq!(found("/data/ks/b", None).unwrap(), "ks.b");
        assert_eq!(found("/data/ks/b", Some("other.b")).unwrap(), "other.b");
        let error = found("/data/nosuch/b", None).unwrap_err();
        assert!(error.contains("ks.a, ks.b, other.b"), "{error}");
    }

    #[test]
    fn schemas_of_other_versions_say_what_the_tables_are() {
        // Cassandra 3, with options that are gone; ScyllaDB; an index, a view, a function, roles.
        let text = "\u{feff}CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'dc9': '3'};
            USE ks;
            CREATE TYPE \"Pair\" (a int, b text);
            CREATE TABLE IF NOT EXISTS ks.t (k text, c int, old text, p frozen<\"Pair\">, PRIMARY KEY (k, c))
              WITH ID = 5bc52802-de25-35ed-aeab-188eecebb090 AND CLUSTERING ORDER BY (c DESC)
              AND dclocal_read_repair_chance = 0.1 AND read_repair_chance = 0.0 AND cdc = false
              AND nodesync = {'enabled': 'true'} AND paxos_grace_seconds=864000
              AND compaction = {'class': 'com.example.Own'} AND memtable = 'own' AND speculative_retry = '99.0PERCENTILE'
              AND default_time_to_live = 60 AND compression = {'class': 'org.apache.cassandra.io.compress.ZstdCompressor'};
            ALTER TABLE ks.t DROP old USING TIMESTAMP 5;
            ALTER TABLE t WITH comment = 'x';
            ALTER TABLE t ADD v int;
            CREATE CUSTOM INDEX i ON ks.t (v) USING 'StorageAttachedIndex';
            CREATE MATERIALIZED VIEW ks.mv AS SELECT k, c FROM ks.t WHERE k IS NOT NULL AND c IS NOT NULL
              PRIMARY KEY (c, k) WITH CLUSTERING ORDER BY (k ASC);
            CREATE FUNCTION ks.f (x int) CALLED ON NULL INPUT RETURNS int LANGUAGE java AS $$ return x; $$;
            CREATE AGGREGATE ks.g(int) SFUNC f STYPE int;
            CREATE TRIGGER tr ON ks.t USING 'org.example.Trigger';
            CREATE ROLE r; GRANT SELECT ON ks.t TO r;";
        let schema = of_text(text).unwrap();
        let table = table(&schema, None).unwrap();
        assert_eq!((&*table.keyspace, &*table.name), ("ks", "t"));
        assert_eq!(table.id.0.to_string(), "5bc52802-de25-35ed-aeab-188eecebb090");
        let names: Vec<&str> = table.columns.iter().map(|c| &*c.name).collect();
        assert_eq!(names, ["k", "c", "p", "v"]);
        assert!(table.dropped.contains_key("old"));
        assert_eq!(table.options.default_time_to_live, 60);
        assert!(table.options.compression.values().any(|class| class.contains("Zstd")));
        // An unknown column of a file counts as dropped too.
        let gone = UnknownColumn { name: "older", ty: &CqlType::Int, is_static: true };
        let TableInSchema { schema, table } =
            dropped(&TableInSchema { schema, table }, &gone).unwrap();
        assert!(table.dropped.contains_key("older") && table.column("older").is_none());
        assert!(schema.table_by_id(table.id).unwrap().dropped.contains_key("old"));
        for wrong in [
            "INSERT INTO ks.t (k) VALUES ('a')",
            "CREATE TABLE t (k int PRIMARY KEY)",
            "CREATE TABL",
        ] {
            assert!(of_text(wrong).is_err(), "{wrong}");
        }
    }
}
