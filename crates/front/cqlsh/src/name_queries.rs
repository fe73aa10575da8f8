//! The server's names, for completion.
//!
//! Owns: the queries for them. Never: the choice of suggestions.

use std::sync::Arc;
use std::time::Duration;

use cql_wire::Consistency;

use crate::complete::Names;
use crate::schema;
use crate::shell::Shell;

/// The prompt waits no longer than this for the server's schema version.
const VERSION_TIMEOUT: Duration = Duration::from_millis(250);

impl Shell {
    /// Loads the server's names. Names that it does not return are not completed.
    pub(crate) fn refresh_names(&mut self) {
        let mut names = Names { current: self.keyspace.clone(), ..Names::default() };
        for schema in ["system_schema", "system_virtual_schema"] {
            names.keyspaces.extend(
                self.texts(&format!("SELECT keyspace_name FROM {schema}.keyspaces"))
                    .into_iter()
                    .map(|[name, ..]| name),
            );
            let pairs =
                self.texts(&format!("SELECT keyspace_name, table_name FROM {schema}.tables"));
            names.tables.extend(pairs.into_iter().map(|[keyspace, name, _]| (keyspace, name)));
            let triples = self.texts(&format!(
                "SELECT keyspace_name, table_name, column_name FROM {schema}.columns"
            ));
            names
                .columns
                .extend(triples.into_iter().map(|[keyspace, table, name]| (keyspace, table, name)));
        }
        for (table, into) in [
            ("SELECT keyspace_name, type_name FROM system_schema.types", &mut names.types),
            (
                "SELECT keyspace_name, function_name FROM system_schema.functions",
                &mut names.functions,
            ),
            (
                "SELECT keyspace_name, aggregate_name FROM system_schema.aggregates",
                &mut names.aggregates,
            ),
        ] {
            into.extend(self.texts(table).into_iter().map(|[keyspace, name, _]| (keyspace, name)));
        }
        for table in ["system.local", "system.peers_v2"] {
            let rows = self.texts(&format!("SELECT data_center FROM {table}"));
            names.data_centers.extend(rows.into_iter().map(|[name, ..]| name));
        }
        names.data_centers.sort();
        names.data_centers.dedup();
        self.input.set_names(Arc::new(names));
        self.names_of = self.schema_version();
    }

    /// Reloads the names when the schema has changed since, whichever client changed it.
    pub(crate) fn refresh_changed_names(&mut self) {
        let version = self.schema_version();
        if version.is_some() && version != self.names_of {
            self.refresh_names();
        }
    }

    /// The schema version of the server; `None` when it cannot be asked.
    fn schema_version(&mut self) -> Option<String> {
        let query = "SELECT CAST(schema_version AS text) FROM system.local";
        self.texts_within(query, VERSION_TIMEOUT).pop().map(|[version, ..]| version)
    }

    /// The first three columns of a query as text; nothing when it fails.
    fn texts(&mut self, query: &str) -> Vec<[String; 3]> {
        self.texts_within(query, self.options.request_timeout)
    }

    fn texts_within(&mut self, query: &str, timeout: Duration) -> Vec<[String; 3]> {
        let pages = schema::rows(&mut self.connection, query, Consistency::One, timeout);
        let text =
            |value: Option<&[u8]>| String::from_utf8_lossy(value.unwrap_or_default()).into_owned();
        let mut rows = Vec::new();
        for page in pages.unwrap_or_default() {
            for row in 0..page.len() {
                rows.push([0, 1, 2].map(|column| text(page.value(row, column))));
            }
        }
        rows
    }
}
