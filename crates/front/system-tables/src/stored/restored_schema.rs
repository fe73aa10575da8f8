//! Rows of `system_schema` at a start that the metadata log does not know: restored files of these
//! tables, as restores of whole directories bring, or leftovers of an interrupted drop.
//!
//! The metadata log decides the schema. Such rows are reported and removed; only a statement brings
//! back their keyspaces and tables.

use std::collections::BTreeSet;
use std::rc::Rc;

use query::{Executor, Row, Rows, as_store_error, select_for_node};
use schema::Schema;
use store::StoreError;

/// Names in one line, at most.
const NAMED_MAX: usize = 50;

/// Keyspaces and tables that the tables show and the schema does not have.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RestoredSchema {
    keyspaces: BTreeSet<String>,
    tables: BTreeSet<(String, String)>,
}

/// Reads the rows of keyspaces and tables.
///
/// # Errors
/// Those of a read.
pub(super) async fn find(
    executor: &Rc<Executor>,
    schema: &Schema,
) -> Result<RestoredSchema, StoreError> {
    let select = async |text| {
        let pages = select_for_node(executor, text).await;
        pages.map_err(|failure| as_store_error(executor, &failure))
    };
    let text = |row: &Row<'_>, column| {
        String::from_utf8_lossy(row.bytes(column).unwrap_or_default()).into_owned()
    };
    let mut found = RestoredSchema::default();
    let keyspaces = select("SELECT keyspace_name FROM system_schema.keyspaces").await?;
    for row in keyspaces.iter().flat_map(Rows::iter) {
        found.add(schema, text(&row, "keyspace_name"), None);
    }
    let tables = select("SELECT keyspace_name, table_name FROM system_schema.tables").await?;
    for row in tables.iter().flat_map(Rows::iter) {
        found.add(schema, text(&row, "keyspace_name"), Some(text(&row, "table_name")));
    }
    Ok(found)
}

impl RestoredSchema {
    /// Adds what a row names, unless the schema has it.
    fn add(&mut self, schema: &Schema, keyspace: String, table: Option<String>) {
        // A Cassandra shows tables there that are none of ours.
        if cql_plan::system::system_schema().keyspaces.contains_key(keyspace.as_str()) {
            return;
        }
        let known = schema.keyspaces.get(keyspace.as_str());
        if known.is_none() {
            self.keyspaces.insert(keyspace.clone());
        }
        if let Some(table) = table
            && known.is_none_or(|known| !known.tables.contains_key(table.as_str()))
        {
            self.tables.insert((keyspace, table));
        }
    }

    /// Returns the keyspaces whose rows are to be removed as a whole; rows of other keyspaces are
    /// rewritten at each start.
    pub(super) fn keyspaces(&self) -> impl Iterator<Item = &str> {
        self.keyspaces.iter().map(String::as_str)
    }

    /// Logs the findings.
    pub(super) fn report(&self) {
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

    #[test]
    fn what_the_schema_does_not_have_is_named_and_what_it_has_is_not() {
        let schema = cql_plan::system::system_schema();
        let mut found = RestoredSchema::default();
        let mut add = |keyspace: &str, table: Option<&str>| {
            found.add(&schema, keyspace.to_owned(), table.map(str::to_owned));
            found.text()
        };
        assert_eq!(add("system", None), None);
        assert_eq!(add("system", Some("of_another")), None, "tables of a Cassandra");
        add("a", None);
        add("b", None);
        let text = add("b", Some("t")).unwrap();
        assert!(text.contains("have: keyspaces a, b; tables b.t; they were restored"), "{text}");
        let mut text = String::new();
        for n in 0..60 {
            text = add("b", Some(&format!("t{n:02}"))).unwrap();
        }
        assert!(text.contains("b.t48 and 11 more; they were"), "{text}");
        assert_eq!(found.keyspaces().collect::<Vec<_>>(), ["a", "b"]);
    }
}
