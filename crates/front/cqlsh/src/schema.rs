//! Schema queries of the shell.
//!
//! Owns: the queries on the schema tables, real and virtual, and columns in the order that COPY and
//! colours need. Never: changes anything.

use std::time::Duration;

use cql_wire::{Consistency, QueryParameters, Request};

use crate::connection::{Answer, Connection, Page};
use crate::failure::Failure;

/// Role of a column in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Part of the partition key.
    Partition,
    /// Part of the clustering key.
    Clustering,
    /// One value per partition.
    Static,
    /// The rest.
    Regular,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableColumn {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) kind: String,
}

/// Columns of a table: partition key, clustering key, then the others by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) columns: Vec<TableColumn>,
}

impl Table {
    /// The column of this name.
    pub(crate) fn column(&self, name: &str) -> Option<&TableColumn> {
        self.columns.iter().find(|column| column.name == name)
    }
}

/// A literal for a query.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Returns all rows of a query, page by page.
///
/// # Errors
/// Those of the server or the connection.
pub(crate) fn rows(
    connection: &mut Connection,
    query: &str,
    consistency: Consistency,
    timeout: Duration,
) -> Result<Vec<Page>, Failure> {
    let mut pages = Vec::new();
    let mut state: Option<Vec<u8>> = None;
    loop {
        let parameters = QueryParameters {
            page_size: Some(5000),
            paging_state: state.as_deref(),
            ..QueryParameters::new(consistency)
        };
        let request = Request::Query { query, parameters };
        let reply = connection.request(&request, false, timeout)?;
        let Answer::Rows(page) = reply.answer else { return Ok(pages) };
        state.clone_from(&page.paging_state);
        pages.push(page);
        if state.is_none() {
            return Ok(pages);
        }
    }
}

/// The columns of a table, or `None` when there is no such table.
///
/// # Errors
/// As [`rows`].
pub(crate) fn table(
    connection: &mut Connection,
    keyspace: &str,
    table: &str,
    timeout: Duration,
) -> Result<Option<Table>, Failure> {
    for schema in ["system_schema", "system_virtual_schema"] {
        let query = format!(
            "SELECT column_name, kind, position, type FROM {schema}.columns WHERE keyspace_name = \
             {} AND table_name = {}",
            literal(keyspace),
            literal(table)
        );
        let mut found: Vec<(Role, i32, TableColumn)> = Vec::new();
        for page in rows(connection, &query, Consistency::One, timeout)? {
            for row in 0..page.len() {
                let role = match page.text(row, "kind").as_str() {
                    "partition_key" => Role::Partition,
                    "clustering" => Role::Clustering,
                    "static" => Role::Static,
                    _ => Role::Regular,
                };
                let position = page
                    .named(row, "position")
                    .and_then(|value| value.try_into().ok())
                    .map_or(-1, i32::from_be_bytes);
                let name = page.text(row, "column_name");
                let kind = page.text(row, "type");
                found.push((role, position, TableColumn { name, role, kind }));
            }
        }
        if found.is_empty() {
            continue;
        }
        found.sort_by(|(a_role, a_position, a), (b_role, b_position, b)| {
            let rank = |role: &Role| (*role).min(Role::Static);
            (rank(a_role), a_position, &a.name).cmp(&(rank(b_role), b_position, &b.name))
        });
        return Ok(Some(Table {
            columns: found.into_iter().map(|(_, _, column)| column).collect(),
        }));
    }
    Ok(None)
}

/// Returns true if the keyspace exists.
///
/// # Errors
/// As [`rows`].
pub(crate) fn has_keyspace(
    connection: &mut Connection,
    keyspace: &str,
    timeout: Duration,
) -> Result<bool, Failure> {
    for schema in ["system_schema", "system_virtual_schema"] {
        let query = format!(
            "SELECT keyspace_name FROM {schema}.keyspaces WHERE keyspace_name = {}",
            literal(keyspace)
        );
        let pages = rows(connection, &query, Consistency::One, timeout)?;
        if pages.iter().any(|page| page.len() > 0) {
            return Ok(true);
        }
    }
    Ok(false)
}
