//! A planned WHERE clause: the restricted columns, their conditions, and the access to the rows.
//!
//! Owns: the form that binding, merging and reading share. Never: how it comes from relations
//! ([`super::relations`]), values ([`super::bind`]).

use index_format::Analysis;
use schema::{ColumnKind, Table};
use types::CqlType;

use super::index::IndexPlan;
use super::index::like::LikeIndexes;
use super::relations::NEEDS_FILTERING;
use crate::error::PlanError;
use crate::term::PlannedTerm;

/// Values for the columns of one relation.
#[derive(Clone, Debug)]
pub(crate) enum Row {
    /// One term per column.
    Each(Vec<PlannedTerm>),
    /// One marker for a tuple of all columns.
    Packed(PlannedTerm),
}

/// Right side of IN.
#[derive(Clone, Debug)]
pub(crate) enum InRows {
    /// The rows as written.
    List(Vec<Row>),
    /// One marker for the list; the elements are values, or tuples of the given type.
    Marker(PlannedTerm, Option<CqlType>),
}

/// One side of a slice.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) row: Row,
    pub(crate) inclusive: bool,
}

/// Condition on some columns.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    Eq(Row),
    In(InRows),
    Slice {
        start: Option<Limit>,
        end: Option<Limit>,
    },
    Contains {
        values: Vec<PlannedTerm>,
        keys: Vec<PlannedTerm>,
        entries: Vec<(PlannedTerm, PlannedTerm)>,
    },
    /// LIKE, with the indexes that answer it.
    Like(PlannedTerm, LikeIndexes),
    /// A condition that compares text as its index changes it. Only in a checked clause.
    Analyzed(Analysis, Box<Condition>),
}

impl Condition {
    /// Returns the number of filters that it becomes.
    fn filters(&self) -> usize {
        match self {
            Condition::Contains { values, keys, entries } => {
                values.len() + keys.len() + entries.len()
            }
            Condition::Slice { start, end } => {
                usize::from(start.is_some()) + usize::from(end.is_some())
            }
            Condition::Eq(_) | Condition::In(_) | Condition::Like(..) => 1,
            Condition::Analyzed(_, condition) => condition.filters(),
        }
    }
}

/// One restriction: of one column, or of neighbouring clustering columns.
#[derive(Clone, Debug)]
pub(crate) struct Restriction {
    /// Index of the first column in `Table::columns`.
    pub(crate) first: usize,
    /// Number of columns.
    pub(crate) count: usize,
    /// Written as a tuple.
    pub(crate) multi: bool,
    pub(crate) condition: Condition,
}

impl Restriction {
    pub(crate) fn overlaps(&self, other: &Restriction) -> bool {
        self.first < other.first + other.count && other.first < self.first + self.count
    }

    pub(super) fn is_slice(&self) -> bool {
        matches!(self.condition, Condition::Slice { .. })
    }

    pub(super) fn is_contains(&self) -> bool {
        matches!(self.condition, Condition::Contains { .. })
    }

    /// Returns true if it is always a filter: no slice of keys has what it accepts.
    pub(super) fn gives_no_slices(&self) -> bool {
        matches!(self.condition, Condition::Contains { .. } | Condition::Like(..))
    }

    pub(crate) fn is_eq(&self) -> bool {
        matches!(self.condition, Condition::Eq(_))
    }

    pub(crate) fn is_in(&self) -> bool {
        matches!(self.condition, Condition::In(_))
    }
}

/// One side of a token range.
#[derive(Clone, Debug)]
pub(crate) struct TokenLimit {
    pub(crate) term: PlannedTerm,
    pub(crate) inclusive: bool,
}

/// `token(…)` relations.
#[derive(Clone, Debug)]
pub(crate) enum TokenCondition {
    Eq(PlannedTerm),
    Slice { start: Option<TokenLimit>, end: Option<TokenLimit> },
}

/// Access to the partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyAccess {
    /// All key columns have values.
    Keys,
    /// A part of the ring.
    Range,
}

/// The WHERE clause, merged and checked.
#[derive(Clone, Debug)]
pub(crate) struct Restrictions {
    /// Restrictions of partition key columns, by position.
    pub(crate) partition: Vec<Restriction>,
    pub(crate) token: Option<TokenCondition>,
    /// Restrictions of clustering columns, by position.
    pub(crate) clustering: Vec<Restriction>,
    /// Restrictions of other columns.
    pub(crate) other: Vec<Restriction>,
    pub(crate) access: KeyAccess,
    /// For each of `clustering`, true if it gives slices.
    pub(crate) clustering_sliced: Vec<bool>,
    /// For each of `clustering`, true if it is filtered: one that gives no slices, or that an index
    /// answers.
    pub(crate) clustering_filtered: Vec<bool>,
    /// The partition key restrictions are filtered.
    pub(crate) filters_partition_key: bool,
    /// Filtering is allowed.
    pub(super) may_filter: bool,
    /// Some filter is answered by no index.
    pub(super) needs_filtering: bool,
    /// The filters outside the primary key are several, and no index answers all of them.
    pub(super) intersects: bool,
    /// An index is used, by Cassandra's rules.
    pub(crate) uses_index: bool,
    /// The filters that indexes answer.
    pub(super) index_plan: Option<Box<IndexPlan>>,
    /// Statement that creates an index for a filter that none answers.
    pub(super) advised_index: Option<Box<str>>,
}

impl Restrictions {
    /// The key is given by IN. Of a range of tokens with parts of the key it is not, as in Cassandra
    /// (`TokenFilter.hasIN`).
    pub(crate) fn key_is_in(&self) -> bool {
        let is_on_token = self.token.is_some() && self.access == KeyAccess::Range;
        !is_on_token && self.partition.iter().any(Restriction::is_in)
    }

    /// An index is used without a partition key.
    pub(super) fn scans_by_index(&self) -> bool {
        self.uses_index && self.access == KeyAccess::Range
    }

    /// Some row may be left out by a filter.
    pub(crate) fn has_filters(&self) -> bool {
        self.filters_partition_key
            || !self.other.is_empty()
            || self.clustering_filtered.iter().any(|filtered| *filtered)
    }

    /// Check of filters that Cassandra does last: after the errors of the selection, the groups and
    /// the ordering. Source: `SelectStatement.checkNeedsFiltering`.
    pub(super) fn check_filters(&self) -> Result<(), PlanError> {
        let scans = self.access == KeyAccess::Range || self.uses_index;
        if scans && self.needs_filtering && !self.may_filter {
            return Err(PlanError::invalid(NEEDS_FILTERING));
        }
        for (restriction, filtered) in self.clustering.iter().zip(&self.clustering_filtered) {
            match &restriction.condition {
                Condition::In(_) if restriction.count > 1 && *filtered => {
                    return Err(PlanError::invalid("Multicolumn IN filters are not supported"));
                }
                Condition::Slice { .. } if restriction.multi && *filtered => {
                    return Err(PlanError::invalid(
                        "Multi-column slice restrictions cannot be used for filtering.",
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the number of filters on columns outside the primary key.
    pub(super) fn filters_outside_key(other: &[Restriction]) -> usize {
        other.iter().map(|restriction| restriction.condition.filters()).sum()
    }

    /// The column is restricted to one value.
    pub(crate) fn is_eq(&self, column: usize) -> bool {
        self.partition
            .iter()
            .chain(&self.clustering)
            .chain(&self.other)
            .any(|r| r.is_eq() && (r.first..r.first + r.count).contains(&column))
    }

    /// A static column is compared with something.
    pub(crate) fn filters_statics(&self, table: &Table) -> bool {
        self.other
            .iter()
            .any(|r| table.columns.get(r.first).is_some_and(|c| c.kind == ColumnKind::Static))
    }

    /// A partition without rows is shown for its static row.
    pub(crate) fn shows_static_alone(&self, table: &Table) -> bool {
        let regular = |r: &Restriction| {
            table.columns.get(r.first).is_some_and(|c| c.kind == ColumnKind::Regular)
        };
        // A row of a static compact table is the static row.
        table.is_static_compact()
            || table.static_count > 0
                && self.clustering.is_empty()
                && !self.other.iter().any(regular)
    }
}
