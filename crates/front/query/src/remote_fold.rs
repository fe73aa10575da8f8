//! Work of shards on rows of a SELECT that another node coordinates: filters and aggregations.
//!
//! Owns: encoding it ([`ship`]), and planning with this node's schema what other nodes sent ([`install`]). Never:
//! the choice of shards, pages ([`coordinator`]); the bytes are the planner's ([`cql_exec::Shipped`]). The node
//! that the client is connected to has decided if the client may read the table, and which values masks hide from
//! it.

use crate::executor::Executor;
use crate::prepare::compile;
use crate::prepared::{Compiled, Source};
use coordinator::ShardWork;
use cql_exec::{SelectFold, Shipped, ShippedText};
use cql_plan::select::{BoundSelect, SelectPlan};
use schema::Table;
use std::rc::Rc;
use std::sync::Arc;

/// Encodes a filter or, with its statement, a fold for other nodes; `None`: it cannot be encoded.
pub(crate) fn ship(
    bound: &BoundSelect,
    plan: &SelectPlan,
    source: Option<&Source>,
) -> Option<Vec<u8>> {
    let text = source.map(|source| ShippedText {
        text: &source.text,
        keyspace: source.keyspace.as_deref(),
        is_prepared: source.is_prepared,
    });
    let mut bytes = Vec::new();
    bound.ship(plan, text, &mut bytes).then_some(bytes)
}

/// Plans what other nodes ask shards of this node to do, from now on.
pub fn install(executor: &Rc<Executor>) {
    let weak = Rc::downgrade(executor);
    executor.coordinator.replica_reads().serve_scans(Rc::new(move |work, table| {
        let executor = weak.upgrade().filter(|executor| !executor.is_draining());
        let executor = executor.ok_or_else(|| "the node stops".to_owned())?;
        plan(&executor, work, table)
    }));
}

fn plan(executor: &Rc<Executor>, work: &[u8], table: &Arc<Table>) -> Result<ShardWork, String> {
    let shipped = Shipped::decode(work, table).map_err(|error| error.to_string())?;
    let Some(ShippedText { text, keyspace, is_prepared }) = shipped.text() else {
        let filter = shipped.filter().ok_or_else(|| "a scan without a filter".to_owned())?;
        return Ok(ShardWork::Filter(filter));
    };
    let keyspace = keyspace.map(Rc::from);
    let source = Source { text: Rc::from(text), keyspace, is_prepared };
    let compiled = compile(executor, &source);
    let compiled = compiled.map_err(|error| format!("it is refused here: {error:?}"))?;
    let Compiled::Select(statement) = &compiled else {
        return Err("a statement that is no read".to_owned());
    };
    let fold = shipped
        .fold(&statement.plan.select, table)
        .ok_or_else(|| "it is planned otherwise here".to_owned())?;
    Ok(ShardWork::Fold(fold))
}
