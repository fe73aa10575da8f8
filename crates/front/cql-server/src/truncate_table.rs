//! The statement TRUNCATE, and its failures in the client's words. The work is [`truncation`]'s.

use crate::execute::{Cx, finish};
use crate::failure::{Failure, Result};
use crate::pending::Waiting;
use crate::prepared::Compiled;
use crate::server::Server;
use cql_plan::plan::PlanKind;
use cql_wire::ErrorCode;
use std::rc::Rc;
use stdx::{TableId, Uuid};
use truncation::TruncateError;

pub(crate) fn run(compiled: Rc<Compiled>, cx: &Cx<'_>) -> Waiting {
    let (server, session) = (cx.server.clone(), cx.session.clone());
    let ticket = cx.ticket.clone();
    Box::pin(async move {
        let result = match &compiled.plan.kind {
            PlanKind::Truncate(plan) if plan.table.is_virtual() => {
                let is_empty = server.virtual_source.truncate(&plan.table);
                let table = format!("{}.{}", plan.table.keyspace, plan.table.name);
                is_empty.then_some(()).ok_or_else(|| {
                    Failure::invalid(format!("Truncation is not supported by table {table}"))
                })
            }
            PlanKind::Truncate(plan) => truncate(&server, plan.table.id).await,
            _ => Err(server.internal_failure("a plan of another kind")),
        };
        finish(&server, &session, &ticket, result, |out| {
            session.respond_void(out, &ticket, &[]);
            Ok(())
        })
        .await
    })
}

/// Empties a table on all nodes, in a task of its own, as a schema change.
async fn truncate(server: &Rc<Server>, table: TableId) -> Result<()> {
    let this = server.clone();
    let work = async move {
        let done = this.truncations.truncate(table).await;
        done.map_err(|error| failure(&this, error))
    };
    server.to_its_end("truncate-table", work).await
}

fn failure(server: &Server, error: TruncateError) -> Failure {
    let failed = |text| Failure::Plain(ErrorCode::TruncateError, text);
    match error {
        TruncateError::ShardBusy => Failure::overloaded(error.to_string()),
        TruncateError::Submit(error) => {
            let id = Uuid::from_bytes(server.uuids.random_uuid());
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
