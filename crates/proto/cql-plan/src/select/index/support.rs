//! Restrictions that the indexes of a table answer, by the rules of each kind of index.
//!
//! Source: `Restriction.hasSupportingIndex` and `needsFiltering`, `IndexTermType.supports` (storage-attached indexes),
//! `CassandraIndex.supportsExpression` and `CassandraIndexFunctions` (legacy indexes), `ColumnIndex.supports` (SASI).
//! LIKE by storage-attached indexes is ours.

use index_format::sasi::SasiOptions;
use schema::{Column, IndexMetadata, IndexRules, Table, TargetPart};
use types::CqlType;

use super::super::restrictions::{Condition, Restriction};

/// Operator of a predicate as an index sees it. IN has none: no index answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexOperator {
    /// `=`; of an entry of a map `m[k] = v`.
    Equal,
    /// `<`, `<=`, `>`, `>=`.
    Range,
    /// CONTAINS.
    Contains,
    /// CONTAINS KEY.
    ContainsKey,
    /// LIKE, with a pattern of some form.
    Like,
}

/// Returns true if a storage-attached index of such values answers ranges.
pub(super) fn has_ranges(ty: &CqlType) -> bool {
    match ty {
        CqlType::Ascii | CqlType::Text | CqlType::Boolean | CqlType::Uuid => false,
        // Frozen values are compared as a whole.
        ty => !ty.is_collection() && !ty.is_tuple() && !ty.is_udt() && !ty.is_vector(),
    }
}

/// Returns true if an index answers predicates with this operator on a column.
pub(crate) fn answers(index: &IndexMetadata, column: &Column, operator: IndexOperator) -> bool {
    if index.target.column != column.name {
        return false;
    }
    if column.ty.is_multi_cell() {
        return match index.target.part {
            TargetPart::Values => operator == IndexOperator::Contains,
            TargetPart::Keys => operator == IndexOperator::ContainsKey,
            TargetPart::Entries => operator == IndexOperator::Equal,
            TargetPart::Simple | TargetPart::Full => false,
        };
    }
    match (operator, index.rules) {
        (operator, IndexRules::Sasi) => {
            let options = SasiOptions::of(index, &column.ty);
            match operator {
                IndexOperator::Equal => options.answers_equality(),
                IndexOperator::Range => options.answers_ranges(),
                IndexOperator::Like => options.is_literal,
                IndexOperator::Contains | IndexOperator::ContainsKey => false,
            }
        }
        (IndexOperator::Equal, _) => true,
        (IndexOperator::Range, IndexRules::Sai) => {
            index.target.part == TargetPart::Simple && has_ranges(&column.ty)
        }
        (IndexOperator::Like, IndexRules::Sai) => {
            matches!(column.ty, CqlType::Text | CqlType::Ascii)
        }
        _ => false,
    }
}

/// Columns of a restriction.
pub(super) fn columns<'t>(table: &'t Table, restriction: &Restriction) -> &'t [Column] {
    let end = restriction.first.saturating_add(restriction.count);
    table.columns.get(restriction.first..end).unwrap_or(&[])
}

/// Returns true if an index answers this restriction, or one of its columns.
fn supports(index: &IndexMetadata, table: &Table, restriction: &Restriction) -> bool {
    let any = |operator| columns(table, restriction).iter().any(|c| answers(index, c, operator));
    match &restriction.condition {
        Condition::Eq(_) => any(IndexOperator::Equal),
        Condition::Slice { .. } => any(IndexOperator::Range),
        Condition::Like(..) => any(IndexOperator::Like),
        Condition::In(_) => false,
        Condition::Contains { values, keys, entries } => {
            !values.is_empty() && any(IndexOperator::Contains)
                || !keys.is_empty() && any(IndexOperator::ContainsKey)
                || !entries.is_empty() && any(IndexOperator::Equal)
        }
        Condition::Analyzed(_, _) => false,
    }
}

/// Returns true if an index of the table answers this restriction, or one of its columns.
pub(crate) fn has_supporting_index(table: &Table, restriction: &Restriction) -> bool {
    table.indexes.iter().any(|index| supports(index, table, restriction))
}

/// Returns true if the indexes of one group, which are used together, answer the whole restriction.
fn group_answers(group: &[&IndexMetadata], table: &Table, restriction: &Restriction) -> bool {
    let answered = |column: &Column, operator| group.iter().any(|i| answers(i, column, operator));
    let all = |operator| columns(table, restriction).iter().all(|c| answered(c, operator));
    match &restriction.condition {
        Condition::Eq(_) => all(IndexOperator::Equal),
        Condition::Slice { .. } => all(IndexOperator::Range),
        Condition::Like(..) => all(IndexOperator::Like),
        Condition::In(_) => false,
        Condition::Contains { values, keys, entries } => {
            let is_one = values.len() + keys.len() + entries.len() == 1;
            group.iter().any(|index| {
                supports(index, table, restriction) && (is_one || index.rules == IndexRules::Sai)
            })
        }
        Condition::Analyzed(_, _) => false,
    }
}

/// Returns true if the storage-attached indexes answer all of these restrictions.
pub(crate) fn attached_answer<'r>(
    table: &Table,
    mut restrictions: impl Iterator<Item = &'r Restriction>,
) -> bool {
    let indexes = table.indexes.iter().map(|index| &**index);
    let attached: Vec<&IndexMetadata> =
        indexes.filter(|index| index.rules == IndexRules::Sai).collect();
    restrictions.all(|restriction| group_answers(&attached, table, restriction))
}

/// Returns true if no group of indexes answers all of these restrictions, so that rows are filtered. The
/// storage-attached indexes of a table are one group, each other index is one.
pub(crate) fn need_filtering<'r>(
    table: &Table,
    restrictions: impl Iterator<Item = &'r Restriction> + Clone,
) -> bool {
    let of = |is_attached: bool| {
        let indexes = table.indexes.iter().map(|index| &**index);
        indexes.filter(move |index| (index.rules == IndexRules::Sai) == is_attached)
    };
    let answers_all = |group: &[&IndexMetadata]| {
        restrictions.clone().all(|restriction| group_answers(group, table, restriction))
    };
    let attached: Vec<&IndexMetadata> = of(true).collect();
    let is_answered = !attached.is_empty() && answers_all(&attached)
        || of(false).any(|index| answers_all(&[index]));
    !is_answered
}
