//! Execution of planned statements over rows: results of SELECTs, decisions of conditional statements.
//!
//! Owns: [`SelectExec`] (filters, limits, groups, aggregates, result cells, the next paging state), folds that shards
//! run over their rows ([`SelectFold`], [`Shipped`]), [`CasExec`] (the decision on conditions). Never: reads, waits;
//! the caller feeds rows in read order. The plans are values of `cql-plan`, which knows nothing of this crate.
//!
//! Invariant: INV-select-1: pages of any size, put together, are the rows of one page without limit. A plain row is
//! written without allocation (`perf` counts them).
//!
//! Reading order: [`select`], `select::folding`, `eval`, `writetime_ttl`, `cells`, [`remote_fold`], [`cas`].

pub mod cas;
mod cells;
mod eval;
pub mod fuzz;
pub mod remote_fold;
pub mod select;
mod writetime_ttl;

use std::sync::Arc;

use cql_plan::select::{BoundSelect, SelectPlan};
use data::RowFold;

pub use cas::{CasExec, CasFlow, CasResult, Verdict};
pub use remote_fold::{Shipped, ShippedText};
pub use select::{Dropped, Flow, SelectDone, SelectExec};

/// Folding of a bound SELECT on the shards that have the rows.
pub trait SelectFold {
    /// Returns the fold that shards apply to their rows, with the number of results wanted. `None`:
    /// the coordinator computes the results from the rows. [`SelectExec::partition_of_shard`] and
    /// the methods after it take the output.
    fn shard_fold(&self, plan: &SelectPlan) -> Option<(Arc<dyn RowFold>, usize)>;

    /// Appends what other nodes need for [`BoundSelect::shard_filter`] or, with the text, for
    /// [`SelectFold::shard_fold`]; false: it cannot be encoded.
    fn ship(&self, plan: &SelectPlan, text: Option<ShippedText<'_>>, out: &mut Vec<u8>) -> bool;
}

impl SelectFold for BoundSelect {
    fn shard_fold(&self, plan: &SelectPlan) -> Option<(Arc<dyn RowFold>, usize)> {
        select::folding::shard_fold(self, plan)
    }

    fn ship(&self, plan: &SelectPlan, text: Option<ShippedText<'_>>, out: &mut Vec<u8>) -> bool {
        remote_fold::ship(self, plan, text, out)
    }
}
