//! The built-in keyspaces, with Cassandra 5.0's tables, columns, options and ids; their rows, and what DESCRIBE shows.
//!
//! Reading order: this file, [`rows`], [`virtual_schema`], [`describe`].
//!
//! Their definitions are CQL text beside this file, so that they can be read and compared. A table
//! id is the version-3 UUID of keyspace and table name, as Cassandra derives it
//! (`TableId.forSystemTable`); a node whose data Cassandra opens depends on that.

pub mod describe;
pub mod rows;
pub mod virtual_schema;

use std::collections::BTreeMap;
use std::sync::Arc;

use cql_syntax::ast::StatementKind;
use md5::{Digest, Md5};
use schema::{Keyspace, KeyspaceParams, Schema, Table, TableKind};
use stdx::{TableId, Uuid};

use crate::ddl;
use crate::error::PlanError;
pub use crate::tables::{is_index_definitions, is_index_table, is_log_table};

const STORED: &[(&str, &str)] = &[
    ("system", include_str!("system.cql")),
    ("system_auth", include_str!("system_auth.cql")),
    ("system_distributed", include_str!("system_distributed.cql")),
    ("system_schema", include_str!("system_schema.cql")),
    ("system_traces", include_str!("system_traces.cql")),
];

const VIRTUAL: &[(&str, &str)] = &[
    ("system_views", include_str!("system_views.cql")),
    ("system_virtual_schema", include_str!("system_virtual_schema.cql")),
];

/// The id of a built-in table.
pub fn system_table_id(keyspace: &str, table: &str) -> TableId {
    let digest: [u8; 16] = Md5::new_with_prefix(keyspace).chain_update(table).finalize().into();
    let id = uuid::Builder::from_md5_bytes(digest).into_uuid();
    TableId(Uuid::from_bytes(*id.as_bytes()))
}

/// The schema of a new node: only the built-in keyspaces.
pub fn system_schema() -> Schema {
    let mut keyspaces = BTreeMap::new();
    for (name, text) in STORED {
        let keyspace = load(name, text, false);
        keyspaces.insert(keyspace.name.clone(), Arc::new(keyspace));
    }
    for (name, text) in VIRTUAL {
        let keyspace = load(name, text, true);
        keyspaces.insert(keyspace.name.clone(), Arc::new(keyspace));
    }
    Schema::from_keyspaces(keyspaces)
}

/// The same with a `default_compaction`, which also tables of the built-in keyspaces have, as in Cassandra; those
/// that name their own compaction keep it.
pub fn system_schema_with(default_compaction: Option<&BTreeMap<String, String>>) -> Schema {
    let Some(compaction) = default_compaction else { return system_schema() };
    let unset = schema::TableOptions::default().compaction;
    let mut keyspaces = system_schema().keyspaces;
    for keyspace in keyspaces.values_mut().filter(|k| !k.is_virtual) {
        for table in Arc::make_mut(keyspace).tables.values_mut() {
            if table.options.compaction == unset {
                Arc::make_mut(table).options.compaction.clone_from(compaction);
            }
        }
    }
    Schema::from_keyspaces(keyspaces)
}

fn load(name: &str, text: &str, is_virtual: bool) -> Keyspace {
    match try_load(name, text, is_virtual) {
        Ok(keyspace) => keyspace,
        // The text is part of the program; a test loads all of it.
        Err(error) => stdx::invariant::broken(format_args!("built-in keyspace {name}: {error}")),
    }
}

fn try_load(name: &str, text: &str, is_virtual: bool) -> Result<Keyspace, PlanError> {
    let mut keyspace = Keyspace {
        name: name.into(),
        params: KeyspaceParams { durable_writes: true, replication: BTreeMap::new() },
        tables: BTreeMap::new(),
        types: BTreeMap::new(),
        functions: Vec::new(),
        aggregates: Vec::new(),
        is_virtual,
    };
    for statement in cql_syntax::split_statements(text) {
        match cql_syntax::parse(statement)?.kind {
            StatementKind::CreateKeyspace(create) => {
                for (key, value) in replication(&create.properties) {
                    keyspace.params.replication.insert(key, value);
                }
            }
            StatementKind::CreateTable(create) => {
                let table = ddl::table_definition(&create, &keyspace)?;
                let id = system_table_id(name, &table.name);
                let kind = if is_virtual { TableKind::Virtual } else { TableKind::Regular };
                let table = Table { id, kind, ..table };
                keyspace.tables.insert(table.name.clone(), Arc::new(table));
            }
            other => return Err(PlanError::unsupported(other.name())),
        }
    }
    Ok(keyspace)
}

/// The replication map, class name completed; built-in keyspaces may be `LocalStrategy`.
fn replication(properties: &[cql_syntax::ast::Property]) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for property in properties {
        if let cql_syntax::ast::PropertyValue::Map(entries) = &property.value {
            for (key, value) in entries {
                let (key, value) = (key.raw_text(), value.raw_text());
                let value = match key.as_str() {
                    "class" => format!("org.apache.cassandra.locator.{value}"),
                    _ => value,
                };
                out.push((key, value));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_table_loads_with_cassandras_id() {
        let schema = system_schema();
        let id = |k: &str, t: &str| schema.table(k, t).map(|t| t.id.to_string());
        assert_eq!(id("system", "local").as_deref(), Some("7ad54392-bcdd-35a6-8417-4e047860b377"));
        assert_eq!(
            id("system", "IndexInfo").as_deref(),
            Some("9f5c6374-d485-3229-9a0a-5094af9ad1e3")
        );
        let map = BTreeMap::from([("class".to_owned(), "x".to_owned())]);
        let with = system_schema_with(Some(&map));
        let compaction = |k: &str, t: &str| with.table(k, t).unwrap().options.compaction.clone();
        assert_eq!(compaction("system", "local"), map);
        assert_eq!(compaction("system_auth", "roles"), map);
        // These name their own, as recorded from a 5.0.9 with cassandra_latest.yaml.
        for (keyspace, table) in [
            ("system", "batches"),
            ("system", "paxos"),
            ("system_distributed", "repair_history"),
            ("system_views", "clients"),
        ] {
            let own = &schema.table(keyspace, table).unwrap().options.compaction;
            assert_eq!(compaction(keyspace, table), *own, "{keyspace}.{table}");
        }
        assert_eq!(schema.keyspaces.len(), 7);
        assert!(schema.keyspaces.values().all(|k| !k.tables.is_empty()));
    }
}
