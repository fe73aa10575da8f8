//! Masked columns in a SELECT's conditions: a role without UNMASK must not learn masked values by
//! filtering on them. Masks of its result that cannot be computed.
//!
//! Source: `SelectStatement.authorize`, `ColumnMask.masker`.

use schema::Column;

use super::SelectPlan;
use super::expr::Expr;
use super::selection::PlannedSelection;
use crate::error::PlanError;
use crate::java_hash;

/// Why the first mask that cannot be computed with its fixed arguments cannot be.
pub(super) fn wrong(selection: &PlannedSelection) -> Option<PlanError> {
    let mut found = None;
    let mut is_wrong = |expr: &Expr| match expr {
        Expr::Masked(_, masker) => {
            found = masker.check().err();
            found.is_some()
        }
        _ => false,
    };
    let outputs = selection.outputs.iter().map(|output| &output.expr);
    let arguments = selection.aggregates.iter().flat_map(|a| &a.arguments);
    let mut all = outputs.chain(&selection.first_row).chain(arguments);
    all.any(|expr| expr.any(&mut is_wrong));
    found
}

impl SelectPlan {
    /// Names of the masked columns that the WHERE clause and an ordering by distance are about, in the order of Cassandra's map of
    /// columns, because a message lists them.
    pub(crate) fn restricted_masked_columns(&self) -> Vec<&str> {
        let table = &*self.results.table;
        if table.masks.is_empty() {
            return Vec::new();
        }
        let r = &self.restrictions;
        let by_token = r.token.is_some();
        let of_vectors = self.nearest.as_ref().map(|nearest| nearest.column());
        let is_ordered = |column: &Column| Some(column.id) == of_vectors;
        let is_restricted = |index: usize| {
            let mut all = r.partition.iter().chain(&r.clustering).chain(&r.other);
            (by_token && index < table.partition_key_count)
                || all.any(|r| (r.first..r.first + r.count).contains(&index))
        };
        let columns = table.columns.iter().enumerate();
        let is_asked = |i: usize, c: &Column| is_restricted(i) || is_ordered(c);
        let masked = columns.filter(|(i, c)| table.mask_of(c).is_some() && is_asked(*i, c));
        let mut names: Vec<&str> = masked.map(|(_, c)| &*c.name).collect();
        let slots = java_hash::slots_of(table.columns.len());
        names.sort_by_key(|name| java_hash::slot(java_hash::hash(name.as_bytes()), slots));
        names
    }
}
