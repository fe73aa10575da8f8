//! Statements of the node itself: executed as those of clients, without limits on users, answered in memory.

use crate::client::ClientState;
use crate::context::{Cx, Step};
use crate::execute::query;
use crate::executor::Executor;
use crate::failure::{Failure, Result};
use crate::rows_sink::{MemoryResult, Outcome, Rows, RowsSink};
use crate::settings::Timeout;
use crate::sink::ResultSink;
use crate::ticket::Ticket;
use cql_wire::{Consistency, QueryParameters};
use std::rc::Rc;
use store::StoreError;

/// Rows of a page that a scan of the node asks for.
const PAGE_ROWS: i32 = 1_000;

/// Executes a statement for the node itself.
///
/// # Errors
/// As for a client.
pub async fn execute_for_node(
    executor: &Rc<Executor>,
    text: &str,
    parameters: &QueryParameters<'_>,
) -> Result<MemoryResult> {
    let client = ClientState::of_node(executor.settings.storage_address);
    let sink = RowsSink::new(Rc::new(client));
    let ticket = Ticket::default();
    let mut out = sink.begin(executor);
    let cx = &mut Cx { executor, sink: &sink, ticket: &ticket, out: &mut out };
    let step = query(text, parameters, cx);
    // It is no request of a client, whose latency would be measured.
    executor.latencies.take();
    let result = match step? {
        Step::Done => out,
        Step::Waits(answer) => answer.await,
        Step::Held(write) => {
            let deadline = executor.rt.now() + executor.timeouts.get(Timeout::Write);
            let (consistency, write_type) = (write.consistency, write.write_type);
            let committed = executor.rt.timeout(deadline, executor.coordinator.commit()).await;
            committed.map_err(|_| Failure::WriteTimeout { consistency, write_type })?.map_err(
                |error| {
                    let id = executor.log_failure("write", &error);
                    Failure::write(&error, consistency, write_type, id)
                },
            )?;
            MemoryResult { outcome: Outcome::Void, warnings: write.warnings }
        }
    };
    match result.outcome {
        Outcome::Failed(failure) => Err(failure),
        _ => Ok(result),
    }
}

/// Reads all rows of a SELECT on one node, page by page: a page ends at many tombstones, so that
/// they do not fail the read.
///
/// # Errors
/// The errors that a client would get; or the statement returns no rows. [`Failure::store_error`]
/// names a damaged file.
pub async fn select_for_node(executor: &Rc<Executor>, text: &str) -> Result<Vec<Rows>> {
    let mut pages: Vec<Rows> = Vec::new();
    loop {
        let paging_state = pages.last().and_then(|page| page.paging_state.as_deref());
        let parameters = QueryParameters {
            page_size: Some(PAGE_ROWS),
            paging_state,
            ..QueryParameters::new(Consistency::One)
        };
        let result = execute_for_node(executor, text, &parameters).await?;
        let Outcome::Rows(page) = result.outcome else {
            return Err(Failure::invalid("the statement gives no rows"));
        };
        let is_last = page.paging_state.is_none();
        pages.push(page);
        if is_last {
            return Ok(pages);
        }
    }
}

/// Converts the failure of a statement that the node executed for itself to an error of the store:
/// the store's own, or a refusal of the statement before it reached the store.
pub fn as_store_error(executor: &Executor, failure: &Failure) -> StoreError {
    let refused = || StoreError::Invalid(failure.message(executor.settings.storage_address));
    failure.store_error().cloned().unwrap_or_else(refused)
}
