//! The statement TRUNCATE, and its failures in the client's words. The work is [`truncation`]'s.

use crate::context::{Cx, Waiting, finish_void};
use crate::executor::Executor;
use crate::failure::{Failure, Result};
use crate::prepared::Compiled;
use crate::sink::ResultSink;
use cql_plan::plan::PlanKind;
use cql_wire::ErrorCode;
use std::rc::Rc;
use stdx::{TableId, Uuid};
use truncation::TruncateError;

pub(crate) fn run<S: ResultSink>(compiled: Rc<Compiled>, cx: &Cx<'_, S>) -> Waiting<S::Answer> {
    let (executor, sink) = (cx.executor.clone(), cx.sink.clone());
    let ticket = cx.ticket.clone();
    Box::pin(async move {
        let result = match &compiled.plan.kind {
            PlanKind::Truncate(plan) if plan.table.is_virtual() => {
                let is_empty = executor.virtual_source.truncate(&plan.table);
                let table = format!("{}.{}", plan.table.keyspace, plan.table.name);
                is_empty.then_some(()).ok_or_else(|| {
                    Failure::invalid(format!("Truncation is not supported by table {table}"))
                })
            }
            PlanKind::Truncate(plan) => truncate(&executor, plan.table.id).await,
            _ => Err(executor.internal_failure("a plan of another kind")),
        };
        finish_void(&executor, &sink, &ticket, result, &[]).await
    })
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
