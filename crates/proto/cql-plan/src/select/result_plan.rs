//! Processing of the rows that a SELECT reads: selection, groups, order.

use std::sync::Arc;

use data::ClusteringComparator;
use schema::Table;

use super::expr::Expr;
use super::group::GroupFunction;
use super::selection::PlannedSelection;
use crate::column_source::Source;

/// Conversion of rows to results.
#[derive(Clone, Debug)]
pub enum Shaping {
    /// Columns as they are. `streams`: regular columns ascend by id in the selection, so that one
    /// pass over the row writes them. `clustering`: some clustering column is selected.
    Plain {
        /// Sources of the columns of the result.
        sources: Vec<Source>,
        /// See above.
        streams: bool,
        /// See above.
        clustering: bool,
    },
    /// Expressions per row.
    Expressions,
    /// One result row per group: same partition and same first `prefix` clustering components;
    /// `None` is one group over everything.
    Groups {
        /// See above.
        prefix: Option<usize>,
    },
}

/// One column of an ordering that is done after reading.
#[derive(Clone, Debug)]
pub struct SortColumn {
    /// Position among the clustering columns.
    pub position: usize,
}

/// Processing of the rows that a SELECT reads. All shards share it, so it has no state of a single
/// shard.
#[derive(Clone, Debug)]
pub struct ResultPlan {
    /// The table read.
    pub table: Arc<Table>,
    /// Order of its clusterings.
    pub comparator: ClusteringComparator,
    /// The selection.
    pub selection: PlannedSelection,
    /// Conversion of rows to results.
    pub shaping: Shaping,
    /// JSON keys of the outputs, when the result is one JSON text.
    pub json: Option<Vec<String>>,
    /// DISTINCT is written.
    pub distinct: bool,
    /// Partitions are read backwards.
    pub reversed: bool,
    /// ORDER BY over more than one partition: sorted after reading.
    pub sort: Vec<SortColumn>,
    /// A partition without rows is shown for its static row.
    pub static_alone: bool,
    /// The static row is read.
    pub uses_statics: bool,
    /// True for a static compact table: only the static row of a partition counts, whatever else is
    /// stored.
    pub only_static_rows: bool,
    /// Said at execution about aggregates without a partition key.
    pub warning: Option<&'static str>,
    /// The function that GROUP BY applies to the last clustering column of the groups' prefix.
    pub group_function: Option<Box<GroupFunction>>,
}

impl ResultPlan {
    /// Returns true if shards may compute the groups: their results do not depend on the shard.
    pub(crate) fn can_be_folded(&self) -> bool {
        let Shaping::Groups { prefix } = self.shaping else { return false };
        let aggregates = &self.selection.aggregates;
        let outputs = self.selection.outputs.iter().map(|output| &output.expr);
        let arguments = aggregates.iter().flat_map(|a| &a.arguments);
        let function = self.group_function.iter().map(|function| function.expr());
        let mut exprs = outputs.chain(&self.selection.first_row).chain(arguments).chain(function);
        let mut depends = |expr: &Expr| match expr {
            Expr::Call(function, _) => !function.pure || function.callee.is_some(),
            Expr::Masked(_, masker) => !masker.is_native(),
            _ => false,
        };
        // Rows of a static compact table are skipped, so pages would end inside partitions of one
        // result.
        self.sort.is_empty()
            && !self.only_static_rows
            && aggregates.iter().all(|a| match prefix {
                Some(_) => a.function.is_native(),
                None => a.function.can_be_merged(),
            })
            && !exprs.any(|expr| expr.any(&mut depends))
    }
}
