//! Strategies of reads to get their rows, chosen during planning.

use cql_plan::auth::is_computed;
use cql_plan::select::SelectPlan;
use cql_plan::system::{is_index_definitions, is_index_table};
use schema::TableKind;

/// Source of the rows of a SELECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadStrategy {
    /// This node computes them: a virtual table, the table of built indexes, the definitions of indexes.
    Virtual,
    /// This node computes them of its metadata: a table of roles.
    Roles,
    /// Indexes name rows, which are read by name and filtered; where they name none for the values, as `Stored`.
    Indexed,
    /// Indexes name the rows nearest to a vector.
    Nearest,
    /// Shards make the groups of an aggregation; where they cannot, as `Stored`.
    Folded,
    /// The store has them, on this shard, on others or on replicas; shards may filter them.
    Stored,
}

impl ReadStrategy {
    /// Returns the strategy of a plan.
    pub(crate) fn of(plan: &SelectPlan) -> ReadStrategy {
        let table = plan.table();
        match table.kind {
            TableKind::Virtual => ReadStrategy::Virtual,
            TableKind::Regular | TableKind::Compact(_)
                if is_index_table(table) || is_index_definitions(table) =>
            {
                ReadStrategy::Virtual
            }
            TableKind::Regular | TableKind::Compact(_) if is_computed(table) => ReadStrategy::Roles,
            TableKind::Regular | TableKind::Compact(_) if plan.nearest_plan().is_some() => {
                ReadStrategy::Nearest
            }
            TableKind::Regular | TableKind::Compact(_) if plan.index_plan().is_some() => {
                ReadStrategy::Indexed
            }
            TableKind::Regular | TableKind::Compact(_) if plan.folds() => ReadStrategy::Folded,
            TableKind::Regular | TableKind::Compact(_) => ReadStrategy::Stored,
        }
    }

    /// Returns true if the rows do not come from a scan or from reads of the statement's partitions.
    pub(crate) fn has_own_source(self) -> bool {
        match self {
            ReadStrategy::Virtual | ReadStrategy::Roles => true,
            ReadStrategy::Indexed | ReadStrategy::Nearest => true,
            ReadStrategy::Folded | ReadStrategy::Stored => false,
        }
    }
}
