//! Scores of rows: the vector that a row has now, and the predicates that it must satisfy.

use std::sync::Arc;

use data::{CellRef, ColumnRef, RowRef};
use index::nearest::{Nearest, Ranked};
use index_format::search::{IndexPredicate, VectorSearch};
use index_format::{IndexedPart, IndexedRow, TableIndexes, VectorIndex};
use stdx::{ColumnId, Token};

use crate::error::StoreError;
use crate::read::driver::{Flow, RowSink};

/// The vector that rows are compared with, and the index of their own.
pub(super) struct Wanted {
    /// The indexes of the table, to make keys of rows.
    indexes: std::rc::Rc<TableIndexes>,
    pub(super) index: VectorIndex,
    column: ColumnId,
    vector: Vec<f32>,
    predicates: Vec<IndexPredicate>,
    /// The indexes of the predicates.
    tested: TableIndexes,
}

impl Wanted {
    /// # Errors
    /// `IndexNotAvailable`, `Invalid`.
    pub(super) fn of(
        search: &VectorSearch,
        indexes: &std::rc::Rc<TableIndexes>,
    ) -> Result<Wanted, StoreError> {
        let missing = StoreError::IndexNotAvailable { index: search.index };
        let found = indexes.get(search.index).ok_or(missing)?;
        let invalid = |what: &str| StoreError::Invalid(what.to_owned());
        let (Some(index), IndexedPart::Regular(column)) = (found.vectors(), found.part) else {
            return Err(invalid("a search by a vector needs an index of vectors"));
        };
        if search.vector.len() != index.dimensions {
            return Err(invalid("a search by a vector of another number of dimensions"));
        }
        index.check(&search.vector).map_err(|defect| StoreError::Invalid(defect.to_string()))?;
        let ids: Vec<_> = search.predicates.iter().map(|predicate| predicate.index).collect();
        Ok(Wanted {
            indexes: indexes.clone(),
            index: *index,
            column,
            vector: search.vector.clone(),
            predicates: search.predicates.clone(),
            tested: indexes.only(&ids),
        })
    }

    /// The vector that is searched for.
    pub(super) fn vector(&self) -> &[f32] {
        &self.vector
    }

    pub(super) fn has_predicates(&self) -> bool {
        !self.predicates.is_empty()
    }

    /// Columns that decide about a row. `None`: the predicates need those of a primary key too.
    pub(super) fn columns(&self) -> Arc<[ColumnId]> {
        let of_index = |part: IndexedPart| match part {
            IndexedPart::Static(id) | IndexedPart::Regular(id) => Some(id),
            IndexedPart::PartitionKey(_) | IndexedPart::Clustering(_) => None,
        };
        let tested = self.tested.all().iter().filter_map(|index| of_index(index.part));
        let mut columns: Vec<ColumnId> = tested.chain([self.column]).collect();
        columns.sort_unstable();
        columns.dedup();
        columns.into()
    }

    /// Score of the vector of a row. `None`: it has none.
    pub(super) fn score(&self, row: RowRef<'_>) -> Option<f32> {
        let Some(ColumnRef::Simple(cell)) = row.column(self.column) else { return None };
        self.score_of_cell(&cell)
    }

    fn score_of_cell(&self, cell: &CellRef<'_>) -> Option<f32> {
        let vector = (!cell.is_tombstone()).then(|| self.index.vector_of(cell.value)).flatten()?;
        Some(self.score_of(&vector))
    }

    pub(super) fn score_of(&self, vector: &[f32]) -> f32 {
        self.index.similarity.score(&self.vector, vector)
    }

    /// Marks the predicates that a row, or with `clustering` none a static row, satisfies.
    fn test(
        &self,
        key: &[u8],
        clustering: Option<&[u8]>,
        row: RowRef<'_>,
        scratch: &mut Vec<u8>,
        is_met: &mut [bool],
    ) {
        let row = IndexedRow { key, clustering, row, is_first: true };
        self.tested.visit_row(&row, scratch, |number, term| {
            let id = self.tested.all().get(number).map(|index| index.id);
            for (predicate, is_met) in self.predicates.iter().zip(&mut *is_met) {
                *is_met |= Some(predicate.index) == id
                    && predicate.ranges.iter().any(|range| range.contains(term));
            }
        });
    }
}

/// Offers the rows of reads to the nearest.
pub(super) struct Scoring<'w> {
    wanted: &'w Wanted,
    pub(super) nearest: Nearest,
    /// Rows that were shown.
    pub(super) rows: u64,
    token: Token,
    key: Vec<u8>,
    /// Predicates that the static row and the partition key satisfy.
    of_partition: Vec<bool>,
    of_row: Vec<bool>,
    scratch: Vec<u8>,
    /// A row whose clustering has no order in bytes.
    has_impossible: bool,
}

impl<'w> Scoring<'w> {
    pub(super) fn new(wanted: &'w Wanted, limit: usize) -> Scoring<'w> {
        let none = vec![false; wanted.predicates.len()];
        Scoring {
            wanted,
            nearest: Nearest::new(limit),
            rows: 0,
            token: Token::MIN,
            key: Vec::new(),
            of_partition: none.clone(),
            of_row: none,
            scratch: Vec::new(),
            has_impossible: false,
        }
    }

    /// # Errors
    /// `Invalid` after a row that has no place among others.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.has_impossible {
            let what = "a clustering has no order in bytes".to_owned();
            return Err(StoreError::Invalid(what));
        }
        Ok(())
    }
}

impl RowSink for Scoring<'_> {
    fn partition(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        self.token = token;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.of_partition.fill(false);
        if let Some(row) = static_row {
            self.wanted.test(key, None, row, &mut self.scratch, &mut self.of_partition);
        }
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        self.rows += 1;
        let Some(score) = self.wanted.score(row) else { return Flow::Continue };
        if !self.nearest.admits(score) {
            self.nearest.pass();
            return Flow::Continue;
        }
        self.of_row.copy_from_slice(&self.of_partition);
        let clustering = Some(clustering);
        self.wanted.test(&self.key, clustering, row, &mut self.scratch, &mut self.of_row);
        if self.of_row.iter().all(|is_met| *is_met) {
            match self.wanted.indexes.row_key(self.token, &self.key, clustering) {
                Some(row) => self.nearest.offer(Ranked { score, row: Arc::new(row) }),
                None => {
                    self.has_impossible = true;
                    return Flow::Stop;
                }
            }
        }
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}
