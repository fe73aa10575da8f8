//! Statements that were prepared before the last stop.

use crate::executor::Executor;
use crate::node_queries::{as_store_error, select_for_node};
use crate::prepare::{prepare_here, spread};
use crate::rows_sink::Rows;
use std::rc::Rc;
use store::StoreError;

const SELECT: &str = "SELECT logged_keyspace, query_string FROM system.prepared_statements";

/// Prepares the statements from before the last stop, on all shards. Returns their number.
///
/// # Errors
/// `system.prepared_statements` cannot be read.
pub async fn load_prepared(executor: &Rc<Executor>) -> std::result::Result<usize, StoreError> {
    let pages = select_for_node(executor, SELECT).await;
    let pages = pages.map_err(|failure| as_store_error(executor, &failure))?;
    let mut count = 0;
    for row in pages.iter().flat_map(Rows::iter) {
        let Some(text) = row.text("query_string") else { continue };
        let keyspace = row.text("logged_keyspace");
        // A statement whose table was dropped stays unprepared; EXECUTE reports that to its client.
        if let Ok((prepared, _)) = prepare_here(executor, text, keyspace)
            && spread(executor, &prepared, keyspace.map(str::to_owned), false).await.is_ok()
        {
            count += 1;
        }
    }
    Ok(count)
}
