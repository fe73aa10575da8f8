//! Filters that accept what the index that answers them finds.
//!
//! An index that analyzes text changes it, so its filter does too before it compares. An index with ranges has no
//! entries of empty values where their type gives them no meaning, and one of SASI of none, so a range does not accept
//! them.

use index_format::Analysis;
use index_format::indexed::analysis;
use schema::Table;

use super::super::restrictions::{Condition, Limit, Restriction, Row};
use super::support::IndexOperator;
use super::{answering, support};
use crate::term::PlannedTerm;

/// Analysis of the index that answers an operator on the first column of a restriction; `None`: text stays as it is.
fn options(table: &Table, restriction: &Restriction, operator: IndexOperator) -> Option<Analysis> {
    let column = support::columns(table, restriction).first()?;
    let index = answering(table, column, operator)?;
    let text = analysis(index, &column.ty);
    (!text.is_plain()).then_some(text)
}

/// The restrictions of columns outside the key as their indexes compare.
pub(crate) fn as_indexed(table: &Table, restrictions: Vec<Restriction>) -> Vec<Restriction> {
    restrictions.into_iter().flat_map(|restriction| compared(table, restriction)).collect()
}

/// A restriction as its indexes compare. Conditions on the values and on the keys of a map may have different
/// indexes, so they become restrictions of their own.
fn compared(table: &Table, restriction: Restriction) -> Vec<Restriction> {
    let analyzed = |condition: Condition, operator| {
        let condition = match options(table, &restriction, operator) {
            Some(options) => Condition::Analyzed(options, Box::new(condition)),
            None => condition,
        };
        Restriction { condition, ..restriction }
    };
    match restriction.condition.clone() {
        condition @ Condition::Eq(_) => vec![analyzed(condition, IndexOperator::Equal)],
        Condition::Slice { start: None, end } => {
            let column = support::columns(table, &restriction).first();
            let index = column.and_then(|c| answering(table, c, IndexOperator::Range));
            let start = index.map(|_| Limit {
                row: Row::Each(vec![PlannedTerm::Constant(Vec::new().into())]),
                inclusive: false,
            });
            vec![Restriction { condition: Condition::Slice { start, end }, ..restriction }]
        }
        Condition::Contains { values, keys, entries } => {
            let of = |values, keys, entries| Condition::Contains { values, keys, entries };
            let mut parts = Vec::new();
            if !values.is_empty() {
                let values = of(values, Vec::new(), Vec::new());
                parts.push(analyzed(values, IndexOperator::Contains));
            }
            if !keys.is_empty() {
                let keys = of(Vec::new(), keys, Vec::new());
                parts.push(analyzed(keys, IndexOperator::ContainsKey));
            }
            if !entries.is_empty() {
                // Indexes of entries analyse nothing.
                let entries = of(Vec::new(), Vec::new(), entries);
                parts.push(Restriction { condition: entries, ..restriction });
            }
            match parts.iter().any(|part| matches!(part.condition, Condition::Analyzed(..))) {
                true => parts,
                false => vec![restriction],
            }
        }
        _ => vec![restriction],
    }
}
