//! Indexes in the WHERE clause of a SELECT: the predicates that they answer, and their terms.
//!
//! Owns: which restrictions an index answers ([`support`], [`like`]), the [`IndexPlan`] of a statement and its binding
//! ([`terms`]), filters of indexed columns ([`filters`]), `expr(…)` ([`expression`]). Never: which predicate drives a
//! search, reading.
//!
//! INV-index-plan-1: every predicate of an [`IndexPlan`] is among the filters of the statement too, so a row that an
//! index names wrongly is never shown.
//!
//! Source: `StatementRestrictions`, `IndexRestrictions`, `RowFilter`.

pub(crate) mod advice;
pub(crate) mod expression;
pub(crate) mod filters;
pub(crate) mod like;
pub(crate) mod support;
mod terms;

use std::sync::Arc;

use index_format::TableIndex;
use index_format::terms::TermEncoder;
use schema::{Column, IndexMetadata, IndexRules, Table};

use self::like::LikeIndexes;
use self::support::{IndexOperator, answers};
use super::restrictions::{Condition, Limit, Restriction, Row};
use crate::term::PlannedTerm;

/// Predicates of a SELECT that indexes answer. A row of the answer satisfies all of them, so any may drive a search.
#[derive(Clone, Debug)]
pub struct IndexPlan {
    predicates: Vec<IndexedPredicate>,
    answers_all_filters: bool,
}

/// One predicate with the index that answers it.
#[derive(Clone, Debug)]
pub struct IndexedPredicate {
    index: Arc<IndexMetadata>,
    column: Arc<str>,
    encoder: TermEncoder,
    comparison: Comparison,
}

/// Operator and operands of a predicate.
#[derive(Clone, Debug)]
enum Comparison {
    /// With a value, an element, a value or key of a map.
    Equal(PlannedTerm),
    /// With one field of a tuple that one marker stands for.
    EqualField(TupleField),
    /// With bounds, each with a flag that is true if it is inclusive.
    Range { start: Option<(PlannedTerm, bool)>, end: Option<(PlannedTerm, bool)> },
    /// With an entry of a map.
    Entry(PlannedTerm, PlannedTerm),
    /// With a pattern; the index depends on its form.
    Like(PlannedTerm, LikeIndexes),
}

/// A field of a tuple.
#[derive(Clone, Debug)]
struct TupleField {
    tuple: PlannedTerm,
    /// Position of the field.
    field: usize,
    /// Fields of the tuple.
    count: usize,
}

impl IndexPlan {
    /// The predicates, at least one, in the order of the columns.
    pub fn predicates(&self) -> &[IndexedPredicate] {
        &self.predicates
    }

    /// Returns true if the statement has no filter besides these predicates. Keys and slices of clustering columns are
    /// no filters.
    pub fn answers_all_filters(&self) -> bool {
        self.answers_all_filters
    }

    /// The plan for these filters. `None`: no index answers any of them.
    pub(crate) fn of_filters<'r>(
        table: &Table,
        filters: impl Iterator<Item = &'r Restriction>,
    ) -> Option<IndexPlan> {
        let (mut predicates, mut answers_all_filters) = (Vec::new(), true);
        for restriction in filters {
            answers_all_filters &= add_predicates(table, restriction, &mut predicates);
        }
        (!predicates.is_empty()).then_some(IndexPlan { predicates, answers_all_filters })
    }
}

impl IndexedPredicate {
    /// The index.
    pub fn index(&self) -> &Arc<IndexMetadata> {
        &self.index
    }

    /// Name of the column.
    pub fn column(&self) -> &Arc<str> {
        &self.column
    }
}

/// The index that answers an operator on a column: one of SASI before a storage-attached one before a legacy one, as in
/// Cassandra.
pub(super) fn answering<'t>(
    table: &'t Table,
    column: &Column,
    operator: IndexOperator,
) -> Option<&'t Arc<IndexMetadata>> {
    let of = |rules: IndexRules| {
        let mut indexes = table.indexes.iter();
        indexes.find(|index| index.rules == rules && answers(index, column, operator))
    };
    let order = [IndexRules::Sasi, IndexRules::Sai, IndexRules::Legacy];
    order.into_iter().find_map(of)
}

/// Adds the predicates of a restriction that indexes answer. Returns true if these are all of it.
fn add_predicates(
    table: &Table,
    restriction: &Restriction,
    out: &mut Vec<IndexedPredicate>,
) -> bool {
    let mut is_all = true;
    let mut add = |column: &Column, operator, comparison: Comparison| {
        // An index without terms for its column answers nothing; the filter does.
        if let Some(index) = answering(table, column, operator)
            && let Some(compiled) = TableIndex::of(table, index)
            && let Some(encoder) = compiled.encoder().cloned()
        {
            let (index, column) = (index.clone(), column.name.clone());
            out.push(IndexedPredicate { index, column, encoder, comparison });
        } else {
            is_all = false;
        }
    };
    let columns = support::columns(table, restriction);
    match &restriction.condition {
        Condition::Eq(Row::Each(terms)) => {
            for (column, term) in columns.iter().zip(terms) {
                add(column, IndexOperator::Equal, Comparison::Equal(term.clone()));
            }
        }
        Condition::Eq(Row::Packed(tuple)) => {
            let count = columns.len();
            for (field, column) in columns.iter().enumerate() {
                let field = TupleField { tuple: tuple.clone(), field, count };
                add(column, IndexOperator::Equal, Comparison::EqualField(field));
            }
        }
        Condition::Slice { start, end } => {
            // A slice of several columns is never a filter.
            if let [column] = columns
                && let (Some(start), Some(end)) = (bound(start), bound(end))
            {
                add(column, IndexOperator::Range, Comparison::Range { start, end });
            } else {
                is_all = false;
            }
        }
        Condition::Contains { values, keys, entries } => {
            let Some(column) = columns.first() else { return false };
            for term in values {
                add(column, IndexOperator::Contains, Comparison::Equal(term.clone()));
            }
            for term in keys {
                add(column, IndexOperator::ContainsKey, Comparison::Equal(term.clone()));
            }
            for (key, value) in entries {
                let comparison = Comparison::Entry(key.clone(), value.clone());
                add(column, IndexOperator::Equal, comparison);
            }
        }
        Condition::Like(term, indexes) => {
            let Some(column) = columns.first() else { return false };
            let Some(index) = indexes.first() else { return false };
            let Some(compiled) = TableIndex::of(table, index) else { return false };
            let Some(encoder) = compiled.encoder().cloned() else { return false };
            let (index, column) = (index.clone(), column.name.clone());
            let comparison = Comparison::Like(term.clone(), indexes.clone());
            out.push(IndexedPredicate { index, column, encoder, comparison });
        }
        Condition::In(_) | Condition::Analyzed(_, _) => is_all = false,
    }
    is_all
}

/// A bound of a slice of one column; the outer `None`: it is part of a tuple that one marker stands for.
#[expect(clippy::option_option, reason = "a slice may have no such bound")]
fn bound(limit: &Option<Limit>) -> Option<Option<(PlannedTerm, bool)>> {
    let Some(limit) = limit else { return Some(None) };
    match &limit.row {
        Row::Each(terms) => Some(Some((terms.first()?.clone(), limit.inclusive))),
        Row::Packed(_) => None,
    }
}
