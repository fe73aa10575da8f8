//! Statements that were prepared before the last stop.

use crate::executor::Executor;
use crate::prepare::{prepare_here, spread};
use data::command::{KeyRange, Partitions, ReadCommand};
use data::{ColumnRef, RowRef};
use std::rc::Rc;
use stdx::{ColumnId, Token};
use store::{Flow, RowSink, StoreError};

/// Collects the rows of `system.prepared_statements`.
struct Stored {
    keyspace: Option<ColumnId>,
    text: Option<ColumnId>,
    found: Vec<(Option<String>, String)>,
}

impl Stored {
    fn text_of(row: RowRef<'_>, id: Option<ColumnId>) -> Option<String> {
        match row.column(id?)? {
            ColumnRef::Simple(cell) => String::from_utf8(cell.value.to_vec()).ok(),
            ColumnRef::Complex(_) => None,
        }
    }
}

impl RowSink for Stored {
    fn partition(&mut self, _: Token, _: &[u8], _: Option<RowRef<'_>>) -> Flow {
        Flow::Continue
    }

    fn row(&mut self, _: &[u8], row: RowRef<'_>) -> Flow {
        if let Some(text) = Stored::text_of(row, self.text) {
            self.found.push((Stored::text_of(row, self.keyspace), text));
        }
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

/// Prepares what was prepared before the last stop, on all shards. Returns how many statements.
///
/// # Errors
/// `system.prepared_statements` cannot be read.
pub async fn load_prepared(executor: &Rc<Executor>) -> std::result::Result<usize, StoreError> {
    let schema = executor.schema();
    let Some(table) = schema.table("system", "prepared_statements") else { return Ok(0) };
    let id_of = |name| table.column(name).map(|c| c.id);
    let mut stored = Stored {
        keyspace: id_of("logged_keyspace"),
        text: id_of("query_string"),
        found: Vec::new(),
    };
    let command = ReadCommand::whole(
        table.id,
        Partitions::Range(KeyRange::all()),
        executor.rt.wall().seconds(),
    );
    executor.coordinator.read(&command, usize::MAX, &mut stored).await?;
    let mut count = 0;
    for (keyspace, text) in &stored.found {
        // A statement whose table is gone stays unprepared: its client is told so at EXECUTE.
        if let Ok((prepared, _)) = prepare_here(executor, text, keyspace.as_deref())
            && spread(executor, &prepared, keyspace.clone(), false).await.is_ok()
        {
            count += 1;
        }
    }
    Ok(count)
}
