//! The answer of the reference to a query without its indexes.
//!
//! An index must not change an answer. When the two servers differ, the reference is asked again: the statements of the
//! round are repeated on a table without indexes, and the query scans that. If this answer is ours, then the index
//! of the reference is wrong.

use anyhow::{Result, bail};

use super::bound::Statement;
use super::compare::Shown;
use super::round::ask;
use crate::client::{Answer, Client, Parameters};

/// The statements of a round that changed something, and how many of them the table without indexes has.
#[derive(Debug, Default)]
pub struct Replay {
    table: String,
    changes: Vec<(Statement, i32)>,
    replayed: usize,
}

impl Replay {
    /// A replay of the statements on this table.
    #[must_use]
    pub fn new(table: &str) -> Replay {
        Replay { table: table.to_owned(), ..Replay::default() }
    }

    /// Notes a statement that succeeded, and its seconds.
    pub fn note(&mut self, statement: &Statement, now: i32) {
        let is_of_index = ["CREATE INDEX", "CREATE CUSTOM INDEX", "DROP INDEX"];
        if !is_of_index.iter().any(|of| statement.text.starts_with(of)) {
            self.changes.push((statement.clone(), now));
        }
    }

    fn copied(&self, statement: &Statement) -> Statement {
        let text = statement.text.replace(&self.table, &self.copy());
        Statement { text, values: statement.values.clone() }
    }

    fn copy(&self) -> String {
        format!("{}_scan", self.table)
    }

    /// The answer of a scan to a query.
    ///
    /// # Errors
    /// The connection fails.
    pub fn scan(
        &mut self,
        client: &mut Client,
        query: &Statement,
        page: Option<i32>,
        now: i32,
    ) -> Result<Shown> {
        for (statement, now) in self.changes.iter().skip(self.replayed) {
            ask(client, &self.copied(statement), None, Some(*now))?;
        }
        self.replayed = self.changes.len();
        let mut query = self.copied(query);
        if !query.text.contains("ALLOW FILTERING") {
            query.text.push_str(" ALLOW FILTERING");
        }
        ask(client, &query, page, Some(now))
    }

    /// Removes the table without indexes, if there is one.
    ///
    /// # Errors
    /// The connection fails.
    pub fn end(&self, client: &mut Client) -> Result<()> {
        if self.replayed > 0 {
            let drop = Statement::plain(format!("DROP TABLE IF EXISTS {}", self.copy()));
            ask(client, &drop, None, None)?;
        }
        Ok(())
    }
}

/// Waits until a Cassandra has built all indexes of a keyspace: before that it refuses queries by them, with a reason that
/// it uses for other failures too. Returns false if it has not: its build fails when a compaction removes a file of it.
///
/// # Errors
/// The connection fails.
pub fn await_builds(client: &mut Client, keyspace: &str) -> Result<bool> {
    let names = |client: &mut Client, text: String| -> Result<Vec<Option<Vec<u8>>>> {
        match client.query(&text, &Parameters::default())?.answer {
            Answer::Rows(rows) => {
                Ok(rows.rows.into_iter().filter_map(|r| r.into_iter().next()).collect())
            }
            other => bail!("{text}: {other:?}"),
        }
    };
    for _ in 0..super::round::BUILD_RETRIES {
        let all = format!(
            "SELECT index_name FROM system_schema.indexes WHERE keyspace_name = '{keyspace}'"
        );
        let built =
            format!("SELECT index_name FROM system.\"IndexInfo\" WHERE table_name = '{keyspace}'");
        let (all, built) = (names(client, all)?, names(client, built)?);
        if all.iter().all(|name| built.contains(name)) {
            return Ok(true);
        }
        std::thread::sleep(super::round::BUILD_PAUSE);
    }
    Ok(false)
}
