//! `ORDER BY … ANN OF`: the rows nearest to a vector.
//!
//! Owns: the checks of the ordering itself, [`NearestPlan`] and its binding. Never: the checks of the WHERE clause beside it
//! ([`super::clause`]), scores.
//!
//! Source: `StatementRestrictions.addOrderingRestrictions`, `SelectStatement.execute`, `StorageAttachedIndexQueryPlan`.

use std::sync::Arc;

use cql_syntax::ast::{Order, OrderBy};
use index_format::VectorIndex;
use index_format::vectors::floats_of;
use schema::{IndexMetadata, IndexRules, Table};
use stdx::{ColumnId, Uuid};
use types::CqlType;

use super::relations::existing_column;
use super::restrictions::Restriction;
use super::{Shaping, UNLIMITED};
use crate::context::PlanContext;
use crate::error::PlanError;
use crate::term::{Binds, PlannedTerm, Receiver, plan_term};
use crate::values::{Bound, BoundValue, ExecuteOptions};

/// Most rows. Source: property `cassandra.sai.vector_search.max_top_k`.
const ROWS_MAX: u32 = 1000;

/// Said where an ordering by distance has no index.
pub(super) const NEEDS_INDEX: &str = "ANN ordering by vector requires the column to be indexed";

/// The column of an ordering by distance, for the checks of the WHERE clause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnnColumn {
    /// Its position in the table.
    pub(super) position: usize,
    /// Error of the ordering itself.
    pub(super) refusal: Option<&'static str>,
}

/// Index of the column of an ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IndexFound {
    /// It answers the ordering.
    OfVectors,
    /// It does not.
    Other,
}

/// An ordering by distance as it is written.
pub(super) struct AnnOrdering {
    pub(super) column: AnnColumn,
    term: PlannedTerm,
}

/// The ordering by distance among these.
pub(super) fn ann_ordering(
    order_by: &[OrderBy],
    table: &Table,
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<Option<AnnOrdering>, PlanError> {
    let (mut found, mut count) = (None, 0_usize);
    for ordering in order_by {
        let Some(term) = &ordering.ann_of else { continue };
        let (position, column) = existing_column(table, &ordering.column)?;
        let receiver = Receiver {
            keyspace: &table.keyspace,
            table: &table.name,
            name: column.name.clone(),
            ty: column.ty.clone(),
        };
        let term = plan_term(term, &receiver, cx, binds)?;
        found = Some((position, term));
        count = count.saturating_add(1);
    }
    let refusal = match count {
        0 | 1 if order_by.len() <= 1 => {
            let descends = order_by.iter().any(|ordering| ordering.order == Order::Desc);
            descends.then_some("Descending ANN ordering is not supported")
        }
        1 => Some("ANN ordering does not support any other ordering"),
        _ => Some("Cannot specify more than one ANN ordering"),
    };
    Ok(found.map(|(position, term)| AnnOrdering { column: AnnColumn { position, refusal }, term }))
}

/// The index that answers an ordering by the distance of a column.
pub(super) fn answering(
    table: &Table,
    position: usize,
) -> Option<(&Arc<IndexMetadata>, VectorIndex)> {
    let column = table.columns.get(position)?;
    let mut indexes = table.indexes_of(column).filter(|index| index.rules == IndexRules::Sai);
    indexes.find_map(|index| Some((index, VectorIndex::of(table, index)?)))
}

impl AnnColumn {
    /// Refuses an ordering that is wrong in itself, or whose column the WHERE clause restricts too.
    pub(super) fn check<'r>(
        &self,
        table: &Table,
        mut restrictions: impl Iterator<Item = &'r Restriction>,
    ) -> Result<(), PlanError> {
        if let Some(refusal) = self.refusal {
            return Err(PlanError::invalid(refusal));
        }
        let is_on = |r: &&Restriction| (r.first..r.first + r.count).contains(&self.position);
        let Some(restriction) = restrictions.find(is_on) else { return Ok(()) };
        let name = table.columns.get(self.position).map_or("", |column| &*column.name);
        Err(PlanError::invalid(match restriction.is_slice() {
            true => format!(
                "Column \"{name}\" cannot be restricted by both an equality and an inequality relation"
            ),
            false => format!(
                "{name} cannot be restricted by more than one relation if it includes an Equal"
            ),
        }))
    }

    /// Refuses a column without an index. An index of another kind is none unless rows may be filtered: see the caller.
    pub(super) fn check_index(&self, table: &Table) -> Result<IndexFound, PlanError> {
        let column = table.columns.get(self.position);
        let Some(column) = column.filter(|column| {
            matches!(&column.ty, CqlType::Vector { element, .. } if **element == CqlType::Float)
        }) else {
            return Err(PlanError::invalid("ANN ordering is only supported on float vector indexes"));
        };
        match (answering(table, self.position), table.indexes_of(column).next()) {
            (Some(_), _) => Ok(IndexFound::OfVectors),
            (None, Some(_)) => Ok(IndexFound::Other),
            (None, None) => Err(PlanError::invalid(NEEDS_INDEX)),
        }
    }
}

/// A planned ordering by distance.
#[derive(Clone, Debug)]
pub struct NearestPlan {
    index: Arc<IndexMetadata>,
    vectors: VectorIndex,
    column: ColumnId,
    name: Arc<str>,
    term: PlannedTerm,
}

/// The ordering with its vector.
#[derive(Clone, Debug)]
pub struct NearestQuery {
    /// Id of the index.
    pub index: Uuid,
    /// Its definition.
    pub vectors: VectorIndex,
    /// The column of the vectors.
    pub column: ColumnId,
    /// The vector that rows are compared with.
    pub vector: Vec<f32>,
    /// Warning for the client.
    pub warning: Option<String>,
}

/// Limits of a statement; `UNLIMITED` where it has none.
#[derive(Clone, Copy)]
pub(super) struct RowLimits {
    pub(super) limit: u32,
    pub(super) per_partition: u32,
}

impl NearestPlan {
    /// The plan of a checked ordering.
    pub(super) fn new(table: &Table, ordering: AnnOrdering) -> Result<NearestPlan, PlanError> {
        let AnnOrdering { column: AnnColumn { position, .. }, term } = ordering;
        let found = answering(table, position).zip(table.columns.get(position));
        let Some(((index, vectors), column)) = found else {
            return Err(PlanError::invalid(NEEDS_INDEX));
        };
        let (index, name) = (index.clone(), column.name.clone());
        Ok(NearestPlan { index, vectors, column: column.id, name, term })
    }

    /// The column of the vectors.
    pub(super) fn column(&self) -> ColumnId {
        self.column
    }

    /// Checks the limits of the statement and binds the vector.
    pub(super) fn bind(
        &self,
        shaping: &Shaping,
        limits: RowLimits,
        values: &[BoundValue<'_>],
        options: &ExecuteOptions<'_>,
    ) -> Result<NearestQuery, PlanError> {
        let refuse = |text: &str| Err(PlanError::invalid(text));
        let RowLimits { limit, per_partition } = limits;
        if matches!(shaping, Shaping::Groups { .. }) {
            return refuse("Top-K queries can not be run with aggregation");
        }
        if limit == UNLIMITED && per_partition == UNLIMITED {
            return refuse(
                "Top-K queries must have a limit specified and the limit must be less than the query page size",
            );
        }
        if per_partition != UNLIMITED {
            return refuse("Top-K queries do not support per-partition limits");
        }
        if limit > ROWS_MAX {
            return refuse(&format!(
                "Use of ANN OF in an ORDER BY clause requires a LIMIT that is not greater than {ROWS_MAX}. LIMIT was {limit}"
            ));
        }
        let unsupported =
            |what| PlanError::invalid(format!("Unsupported {what} value for column {}", self.name));
        let bytes = match self.term.bind(values, &options.env())? {
            Bound::Value(bytes) => bytes,
            Bound::Null => return Err(unsupported("null")),
            Bound::Unset => return Err(unsupported("unset")),
        };
        let Some(vector) = floats_of(&bytes, self.vectors.dimensions) else {
            return Err(PlanError::invalid(format!("Invalid vector for column {}", self.name)));
        };
        self.vectors.check(&vector).map_err(|defect| PlanError::invalid(defect.to_string()))?;
        let page_rows = options.page_size.filter(|rows| (1..limit).contains(rows));
        let warning = page_rows.map(|rows| {
            format!(
                "Top-K queries do not support paging and the page size is set to {rows}, which is less than LIMIT \
                 {limit}. The page size has been set to {limit} to match the LIMIT."
            )
        });
        let (index, vectors, column) = (self.index.id, self.vectors, self.column);
        Ok(NearestQuery { index, vectors, column, vector, warning })
    }
}
