//! The statement TRUNCATE, and its failures in the client's words. The work is [`truncation`]'s.

use crate::context::{Cx, Waiting, finish_void};
use crate::executor::Executor;
use crate::failure::{Failure, Result};
use crate::sink::ResultSink;
use cql_wire::ErrorCode;
use schema::Table;
use std::rc::Rc;
use std::sync::Arc;
use stdx::{TableId, Uuid};
use truncation::TruncateError;

pub(crate) fn run<S: ResultSink>(table: Arc<Table>, cx: &Cx<'_, S>) -> Waiting<S::Answer> {
    let (executor, sink) = (cx.executor.clone(), cx.sink.clone());
    let ticket = cx.ticket.clone();
    Box::pin(async move {
        let result = match table.is_virtual() {
            true => empty_virtual(&executor, &table),
            false => truncate(&executor, table.id).await,
        };
        finish_void(&executor, &sink, &ticket, result, &[]).await
    })
}

/// Empties a virtual table, if it is one that can be emptied.
fn empty_virtual(executor: &Executor, table: &Table) -> Result<()> {
    if executor.virtual_source.truncate(table) {
        return Ok(());
    }
    let name = format!("{}.{}", table.keyspace, table.name);
    Err(Failure::invalid(format!("Truncation is not supported by table {name}")))
}

/// Empties a table on all nodes, in a task of its own, as a schema change.
async fn truncate(executor: &Rc<Executor>, table: TableId) -> Result<()> {
    let this = executor.clone();
    let work = async move {
        let done = this.truncations.truncate(table).await;
        done.map_err(|error| failure(&this, error))
    };
    executor.to_its_end("truncate-table", work).await
}

fn failure(executor: &Executor, error: TruncateError) -> Failure {
    let failed = |text| Failure::Plain(ErrorCode::TruncateError, text);
    match error {
        TruncateError::ShardBusy => Failure::overloaded(error.to_string()),
        TruncateError::Submit(error) => {
            let id = Uuid::from_bytes(executor.uuids.random_uuid());
            tracing::error!(%id, %error, "truncation failed");
            match Failure::submit(&error, id) {
                Failure::Plain(ErrorCode::ServerError, text) => {
                    failed(format!("Error during truncate: {text}"))
                }
                other => other,
            }
        }
        _ => failed(error.to_string()),
    }
}
