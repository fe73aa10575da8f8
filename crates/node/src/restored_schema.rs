//! Rows of `system_schema` at a start that the metadata log knows nothing of: files of these tables that were put back,
//! as restores of whole directories do, or what a drop that was cut off has left.
//!
//! The metadata log decides what the schema is. Such rows are named and removed; what they stand for comes back by a
//! statement only.

use std::collections::BTreeSet;

use coordinator::Coordinator;
use data::clustering;
use schema::{Schema, Table};
use stdx::DeletionSeconds;
use store::StoreError;

use crate::row_sync::{self, RowKey};

/// Names in one line, at most.
const NAMED_MAX: usize = 50;

/// What the tables show and the schema does not have.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RestoredSchema {
    keyspaces: BTreeSet<String>,
    tables: BTreeSet<(String, String)>,
}

/// Reads the rows of keyspaces and tables.
///
/// # Errors
/// Those of a read.
pub(crate) async fn find(
    coordinator: &Coordinator,
    schema: &Schema,
    now: DeletionSeconds,
) -> Result<RestoredSchema, StoreError> {
    let mut found = RestoredSchema::default();
    for name in ["keyspaces", "tables"] {
        let Some(table) = schema.table("system_schema", name) else { continue };
        found.add(table, row_sync::present(coordinator, table, now).await?, schema);
    }
    Ok(found)
}

impl RestoredSchema {
    fn add(&mut self, table: &Table, rows: BTreeSet<RowKey>, schema: &Schema) {
        for (key, clustering) in rows {
            let keyspace = String::from_utf8_lossy(&key).into_owned();
            // A Cassandra shows tables there that are none of ours.
            if cql_plan::system::system_schema().keyspaces.contains_key(keyspace.as_str()) {
                continue;
            }
            let known = schema.keyspaces.get(keyspace.as_str());
            if known.is_none() {
                self.keyspaces.insert(keyspace.clone());
            }
            if &*table.name != "tables" {
                continue;
            }
            let name = clustering::components(&clustering).next().flatten().unwrap_or_default();
            let name = String::from_utf8_lossy(name).into_owned();
            if known.is_none_or(|known| !known.tables.contains_key(name.as_str())) {
                self.tables.insert((keyspace, name));
            }
        }
    }

    /// Keyspaces whose rows are to be removed as a whole; rows of other keyspaces are rewritten at each start.
    pub(crate) fn keyspaces(&self) -> impl Iterator<Item = &str> {
        self.keyspaces.iter().map(String::as_str)
    }

    /// Logs what was found.
    pub(crate) fn report(&self) {
        if let Some(text) = self.text() {
            tracing::warn!("{text}");
        }
    }

    fn text(&self) -> Option<String> {
        if self.keyspaces.is_empty() && self.tables.is_empty() {
            return None;
        }
        let tables: Vec<String> = self.tables.iter().map(|(k, t)| format!("{k}.{t}")).collect();
        let of = |what: &str, names: &[String]| match names.len() {
            0 => String::new(),
            n if n > NAMED_MAX => {
                let shown = names.get(..NAMED_MAX).unwrap_or(names).join(", ");
                format!(" {what} {shown} and {} more;", n - NAMED_MAX)
            }
            _ => format!(" {what} {};", names.join(", ")),
        };
        let keyspaces: Vec<String> = self.keyspaces.iter().cloned().collect();
        Some(format!(
            "files of system_schema have definitions that the metadata log does not have:{}{} they were restored, or \
             a drop was cut off. The metadata log decides: these rows are removed. To bring a table back, run the \
             statements of schema.cql in its snapshot or backup (CREATE TABLE … WITH ID = …): SSTables in its \
             directory are in use then",
            of("keyspaces", &keyspaces),
            of("tables", &tables),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(keyspace: &str, table: Option<&str>) -> RowKey {
        let clustering = table.map(|t| data::ClusteringBuf::from_components([t.as_bytes()]).0);
        (keyspace.as_bytes().to_vec(), clustering.unwrap_or_default())
    }

    #[test]
    fn what_the_schema_does_not_have_is_named_and_what_it_has_is_not() {
        let schema = cql_plan::system::system_schema();
        let table = |name| schema.table("system_schema", name).unwrap();
        let mut found = RestoredSchema::default();
        found.add(table("keyspaces"), BTreeSet::from([key("system", None)]), &schema);
        found.add(table("tables"), BTreeSet::from([key("system", Some("of_another"))]), &schema);
        assert_eq!(found.text(), None, "tables of a Cassandra");
        found.add(table("keyspaces"), BTreeSet::from([key("a", None), key("b", None)]), &schema);
        found.add(table("tables"), BTreeSet::from([key("b", Some("t"))]), &schema);
        assert_eq!(found.keyspaces().collect::<Vec<_>>(), ["a", "b"]);
        let text = found.text().unwrap();
        assert!(text.contains("have: keyspaces a, b; tables b.t; they were restored"), "{text}");
        let many = (0..60).map(|n| key("b", Some(&format!("t{n:02}"))));
        found.add(table("tables"), many.collect(), &schema);
        assert!(
            found.text().unwrap().contains("b.t48 and 11 more; they were"),
            "{:?}",
            found.text()
        );
    }
}
