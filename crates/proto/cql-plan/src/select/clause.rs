//! The relations of a WHERE clause as a whole: access to the partitions, slices, filters, indexes.
//!
//! Owns: the checks that Cassandra does once all relations are merged, in its order. Never: single
//! relations ([`super::relations`]), which predicates an index answers ([`super::index`]).
//!
//! Source: the constructor of `StatementRestrictions`, `processPartitionKeyRestrictions`,
//! `processClusteringColumnsRestrictions`, `ClusteringColumnRestrictions.needFiltering`.

use schema::{Column, Table};

use super::index::IndexPlan;
use super::index::advice::advised_index;
use super::index::filters::as_indexed;
use super::index::support::{attached_answer, has_supporting_index, need_filtering};
use super::nearest::{self, AnnColumn, IndexFound, NEEDS_INDEX};
use super::relations::{NEEDS_FILTERING, WhereContext};
use super::restrictions::{KeyAccess, Restriction, Restrictions, TokenCondition};
use crate::error::PlanError;

/// Said of a restriction that an index of vectors does not answer.
const ANN_ONLY: &str = "Vector indexes only support ANN queries";

/// Merged relations.
pub(super) struct Clause<'a> {
    pub(super) table: &'a Table,
    pub(super) context: WhereContext,
    pub(super) partition: Vec<Restriction>,
    pub(super) clustering: Vec<Restriction>,
    pub(super) other: Vec<Restriction>,
    pub(super) token: Option<TokenCondition>,
}

/// Indexes that answer restrictions of the clause.
#[derive(Clone, Copy)]
struct Supporting {
    /// One answers a restriction of a clustering column.
    clustering: bool,
    /// One answers any restriction.
    any: bool,
}

fn needs_filtering_error() -> PlanError {
    PlanError::invalid(NEEDS_FILTERING)
}

impl Clause<'_> {
    /// Checks the clause.
    ///
    /// # Errors
    /// Everything Cassandra refuses once all relations are merged.
    pub(super) fn finish(self) -> Result<Restrictions, PlanError> {
        let supporting = self.supporting();
        let may_filter = self.context.allow_filtering || self.context.filters_freely;
        let filters_partition_key = self.filters_partition_key();
        if filters_partition_key && !may_filter && !supporting.any {
            return Err(needs_filtering_error());
        }
        let keys = self.table.partition_key_count;
        let on_token =
            self.token.is_some() && (filters_partition_key || self.partition.len() < keys);
        let by_range = on_token || self.partition.is_empty() || filters_partition_key;
        let mut uses_index = supporting.any
            && (filters_partition_key || self.partition.is_empty() && self.token.is_none());
        self.check_statics()?;
        let sliced = self.sliced();
        let filters_clustering = sliced.iter().any(|sliced| !sliced);
        self.check_clustering(&sliced, supporting)?;
        uses_index |= supporting.any && filters_clustering || by_range && supporting.clustering;
        let keeps_slices = !filters_partition_key && !filters_clustering;
        let clustering_filtered = self.clustering_filtered(uses_index || filters_clustering);
        // All of them count for the need of filtering, also those that are no filters.
        let counts_clustering = uses_index || filters_clustering;
        match &self.context.ann {
            Some(ann) => {
                let has_key = keeps_slices && (!self.partition.is_empty() || self.token.is_some());
                self.check_nearest(ann, filters_partition_key, has_key, supporting)?;
            }
            None => self.check_other(supporting, may_filter)?,
        }
        let is_outside_key = !self.other.is_empty() || self.context.ann.is_some();
        uses_index |= supporting.any && is_outside_key;
        if uses_index && !on_token && self.partition.iter().any(Restriction::is_in) {
            return Err(PlanError::invalid(
                "Select on indexed columns and with IN clause for the PRIMARY KEY are not supported",
            ));
        }
        let needs_filtering = self.needs_filtering(filters_partition_key, counts_clustering);
        let index_plan = match uses_index {
            true => self.index_plan(filters_partition_key, &clustering_filtered),
            false => None,
        };
        let advised_index = match needs_filtering && self.context.allow_filtering {
            true => self.advised_index(filters_partition_key, &clustering_filtered),
            false => None,
        };
        let intersects = needs_filtering && Restrictions::filters_outside_key(&self.other) > 1;
        let other = match uses_index {
            true => as_indexed(self.table, self.other),
            false => self.other,
        };
        Ok(Restrictions {
            access: if by_range { KeyAccess::Range } else { KeyAccess::Keys },
            partition: self.partition,
            token: self.token,
            clustering: self.clustering,
            other,
            may_filter,
            clustering_sliced: sliced,
            clustering_filtered,
            filters_partition_key,
            needs_filtering,
            intersects,
            uses_index,
            index_plan: index_plan.map(Box::new),
            advised_index: advised_index.map(String::into_boxed_str),
        })
    }

    fn supporting(&self) -> Supporting {
        if !self.table.has_indexes() {
            return Supporting { clustering: false, any: false };
        }
        let any = |restrictions: &[Restriction]| {
            restrictions.iter().any(|r| has_supporting_index(self.table, r))
        };
        let clustering = any(&self.clustering);
        let is_near = |ann: &AnnColumn| nearest::answering(self.table, ann.position).is_some();
        let ordering = self.context.ann.as_ref().is_some_and(is_near);
        let restrictions = clustering || any(&self.partition) || any(&self.other);
        Supporting { clustering, any: ordering || restrictions }
    }

    fn filters_partition_key(&self) -> bool {
        !self.partition.is_empty()
            && (self.partition.len() < self.table.partition_key_count
                || self.partition.iter().any(|r| r.is_slice() || r.gives_no_slices()))
    }

    /// For each clustering restriction, true if it gives slices.
    fn sliced(&self) -> Vec<bool> {
        let mut position = self.table.partition_key_count;
        let mut sliced = Vec::with_capacity(self.clustering.len());
        for restriction in &self.clustering {
            let gives_slices = !restriction.gives_no_slices() && restriction.first == position;
            if gives_slices && !restriction.is_slice() {
                position = restriction.first + restriction.count;
            }
            sliced.push(gives_slices);
        }
        sliced
    }

    /// For each clustering restriction, true if it is filtered: one that an index answers is, and it
    /// gives no slices to those after it. Source: `ClusteringColumnRestrictions.addToRowFilter`.
    fn clustering_filtered(&self, any: bool) -> Vec<bool> {
        let mut position = self.table.partition_key_count;
        let mut filtered = Vec::with_capacity(self.clustering.len());
        for restriction in &self.clustering {
            let gives_slices = !restriction.gives_no_slices()
                && restriction.first == position
                && !has_supporting_index(self.table, restriction);
            if gives_slices && !restriction.is_slice() {
                position = restriction.first + restriction.count;
            }
            filtered.push(any && !gives_slices);
        }
        filtered
    }

    fn check_clustering(&self, sliced: &[bool], supporting: Supporting) -> Result<(), PlanError> {
        if self.context.allow_filtering || supporting.any {
            return Ok(());
        }
        if self.clustering.iter().any(Restriction::is_contains) {
            return Err(PlanError::invalid(
                "Clustering columns can only be restricted with CONTAINS with a secondary index \
                 or filtering",
            ));
        }
        if sliced.iter().all(|s| *s) {
            return Ok(());
        }
        let restricted = self.clustering.iter().flat_map(|r| r.first..r.first + r.count);
        let columns = self.table.clustering().iter().zip(self.table.partition_key_count..);
        for (index, (column, expected)) in restricted.zip(columns) {
            if index != expected {
                return Err(PlanError::invalid(format!(
                    "PRIMARY KEY column \"{}\" cannot be restricted as preceding column \"{}\" is \
                     not restricted",
                    self.table.columns.get(index).map_or("", |c| &*c.name),
                    column.name
                )));
            }
        }
        Ok(())
    }

    /// Checks the restrictions of columns outside the primary key.
    fn check_other(&self, supporting: Supporting, may_filter: bool) -> Result<(), PlanError> {
        let mut columns = self.other.iter().filter_map(|r| self.table.columns.get(r.first));
        if columns.any(|c| c.ty.is_vector() && self.table.indexes_of(c).next().is_some()) {
            return Err(PlanError::invalid(ANN_ONLY));
        }
        if !self.other.is_empty() && !may_filter && !supporting.any {
            return Err(needs_filtering_error());
        }
        Ok(())
    }

    fn check_statics(&self) -> Result<(), PlanError> {
        match self.context.selects_only_statics && !self.clustering.is_empty() {
            true => Err(PlanError::invalid(
                "Cannot restrict clustering columns when selecting only static columns",
            )),
            false => Ok(()),
        }
    }

    /// Checks the restrictions beside an ordering by distance: all of columns with indexes, of the whole partition key
    /// or its token, and with it of clustering columns that need no filter.
    fn check_nearest(
        &self,
        ann: &AnnColumn,
        filters_partition_key: bool,
        has_key: bool,
        supporting: Supporting,
    ) -> Result<(), PlanError> {
        let may_filter = self.context.allow_filtering || self.context.filters_freely;
        let column = |r: &Restriction| self.table.columns.get(r.first);
        let is_indexed = |c: &Column| self.table.indexes_of(c).next().is_some();
        if ann.check_index(self.table)? == IndexFound::Other {
            return Err(match may_filter || supporting.any {
                true => PlanError::invalid(NEEDS_INDEX),
                false => needs_filtering_error(),
            });
        }
        let clustering = if has_key { &[] } else { self.clustering.as_slice() };
        let mut filtered = self.other.iter().chain(clustering).filter_map(column);
        if filters_partition_key || filtered.any(|column| !is_indexed(column)) {
            return Err(PlanError::invalid(
                "ANN ordering by vector requires all restricted column(s) to be indexed",
            ));
        }
        if self.other.iter().filter_map(column).any(|column| column.ty.is_vector()) {
            return Err(PlanError::invalid(ANN_ONLY));
        }
        Ok(())
    }

    /// Returns true if some filter is answered by no index. Source: `StatementRestrictions.needFiltering`.
    fn needs_filtering(&self, of_partition_key: bool, of_clustering: bool) -> bool {
        let partition = if of_partition_key { self.partition.as_slice() } else { &[] };
        let clustering = if of_clustering { self.clustering.as_slice() } else { &[] };
        let filters = partition.iter().chain(clustering).chain(&self.other);
        if self.context.ann.is_some() {
            // The index of the ordering takes part.
            return !attached_answer(self.table, filters);
        }
        match filters.clone().next() {
            Some(_) => need_filtering(self.table, filters),
            // Slices of clustering columns over several partitions.
            None => !self.clustering.is_empty(),
        }
    }

    /// Restrictions that filter.
    fn filters(
        &self,
        filters_partition_key: bool,
        clustering_filtered: &[bool],
    ) -> impl Iterator<Item = &Restriction> {
        let partition = if filters_partition_key { self.partition.as_slice() } else { &[] };
        let clustering = self.clustering.iter().zip(clustering_filtered);
        let clustering = clustering.filter(|(_, filtered)| **filtered).map(|(r, _)| r);
        partition.iter().chain(clustering).chain(&self.other)
    }

    fn index_plan(
        &self,
        filters_partition_key: bool,
        clustering_filtered: &[bool],
    ) -> Option<IndexPlan> {
        let filters = self.filters(filters_partition_key, clustering_filtered);
        IndexPlan::of_filters(self.table, filters)
    }

    fn advised_index(
        &self,
        filters_partition_key: bool,
        clustering_filtered: &[bool],
    ) -> Option<String> {
        advised_index(self.table, self.filters(filters_partition_key, clustering_filtered))
    }
}
