//! A SELECT with its values: the reads and limits of one execution.
//!
//! Owns: [`BoundSelect`] and its accessors. The module above builds it from a plan.

use std::sync::Arc;

use data::RowFilter;
use data::command::{ReadCommand, ResumePosition, RingBound};
use index_format::IndexPredicate;
use schema::{Column, Table};
use smallvec::SmallVec;
use stdx::{DeletionSeconds, WallMicros};

use super::filter::BoundFilters;
use super::{NearestQuery, SelectPlan, Shaping, UNLIMITED};
use crate::functions::{EvalEnv, UuidSource};
use crate::paging::PagingState;

/// Memory of a read of one partition, and of a slice, which all reads share.
const READ_BYTES: usize = size_of::<ReadCommand>() + 48;
const SLICE_BYTES: usize = size_of::<data::Slice>() + 64;

/// Reads and limits of one execution.
#[derive(Debug)]
pub struct BoundSelect {
    /// See [`BoundSelect::reads`].
    pub reads: SmallVec<[ReadCommand; 1]>,
    /// See [`BoundSelect::timeout_nanos`].
    pub timeout_nanos: Option<u64>,
    /// `None`: everything that is read is wanted. Shared with the shards that read.
    pub filters: Option<Arc<BoundFilters>>,
    /// Values of the terms of the selection.
    pub terms: Vec<Option<Vec<u8>>>,
    /// Rows left of LIMIT.
    pub limit: u32,
    /// Rows of a partition at most.
    pub per_partition: u32,
    /// Rows of a page at most.
    pub page_rows: u32,
    /// More rows are read than are given: filters, aggregates, sorting.
    pub reads_ahead: bool,
    /// Current time, for expiry.
    pub now: DeletionSeconds,
    /// Only for a later page of a virtual table: start of the range on the first page.
    pub floor: Option<RingBound>,
    /// The partition that the last page ended in, with the rows it gave.
    pub resumed: Option<(Vec<u8>, u32)>,
    /// The user may see masked values.
    pub unmasked: bool,
    /// For functions in the selection.
    pub wall: WallMicros,
    /// Native protocol version of the connection.
    pub protocol_version: u8,
    /// For functions in the selection.
    pub uuids: UuidSource,
    /// The rows nearest to this vector are wanted.
    pub nearest: Option<Box<NearestQuery>>,
}

impl BoundSelect {
    /// Returns the reads to feed, in this order, into one `SelectExec`: partitions by key, or one
    /// range. The list is empty when the values leave nothing to read.
    pub fn reads(&self) -> &[ReadCommand] {
        &self.reads
    }

    /// Memory of what IN relations were expanded to; 0 where that is not worth counting.
    pub fn expanded_bytes(&self) -> usize {
        let slices = self.reads.first().map_or(0, |read| read.slices.0.len());
        match self.reads.len() + slices {
            0..=16 => 0,
            _ => self.reads.len() * READ_BYTES + slices * SLICE_BYTES,
        }
    }

    /// The columns that rows are filtered on, each once, in the order of the table; empty when
    /// everything that is read is wanted.
    pub fn filtered_columns<'t>(&self, table: &'t Table) -> Vec<&'t str> {
        let Some(filters) = &self.filters else { return Vec::new() };
        let all = || filters.key.iter().chain(&filters.statics).chain(&filters.row);
        let is_filtered = |column: &&Column| all().any(|f| f.is_on(column));
        table.columns.iter().filter(is_filtered).map(|column| &*column.name).collect()
    }

    /// Disables the masks of columns: the user may see the values that they hide. Set at each
    /// execution, for all users share a plan.
    pub fn unmask(&mut self) {
        self.unmasked = true;
    }

    /// Sets the terms by which indexes answer filters of this execution: [`super::IndexPlan::bind`].
    pub fn search_by(&mut self, predicates: Vec<IndexPredicate>) {
        if let Some(filters) = self.filters.as_mut().and_then(Arc::get_mut) {
            filters.indexed = predicates;
        }
    }

    /// The terms by which indexes answer filters; empty: the statement reads as a scan with its filters.
    pub fn index_predicates(&self) -> &[IndexPredicate] {
        self.filters.as_ref().map_or(&[], |filters| &filters.indexed)
    }

    /// Start of the range of a virtual table before a paging state moved it. Its partitions come in
    /// the order of their keys, so partitions after the last one may still lie before the range.
    /// `None` when the start alone decides.
    pub fn floor(&self) -> Option<&RingBound> {
        self.floor.as_ref()
    }

    /// `USING TIMEOUT`.
    pub fn timeout_nanos(&self) -> Option<u64> {
        self.timeout_nanos
    }

    /// Returns true if LIMIT allows more rows than a page has.
    pub fn exceeds(&self, page_rows: u32) -> bool {
        self.limit > page_rows
    }

    /// Returns the environment of functions in the selection.
    pub fn env(&self) -> EvalEnv<'_> {
        let (uuids, protocol_version) = (&self.uuids, self.protocol_version);
        EvalEnv { now: self.wall, clock: self.wall, uuids, protocol_version }
    }

    pub(super) fn resume(&mut self, state: PagingState) -> Option<ResumePosition> {
        let clustering = state.clustering?;
        self.resumed = Some((state.key, state.rows_in_partition));
        Some(ResumePosition {
            clustering: Some(clustering),
            rows_in_partition: state.rows_in_partition,
        })
    }

    /// Rows of one partition that are read at most; `u32::MAX` when there is no such limit, or when
    /// rows are read that are not given.
    pub fn rows_per_partition(&self) -> u32 {
        if self.reads_ahead { UNLIMITED } else { self.per_partition }
    }

    /// Returns true if more rows are read than are returned, for filters, aggregates, sorting. The
    /// time of a page then depends on the rows that are scanned for it.
    pub fn reads_ahead(&self) -> bool {
        self.reads_ahead
    }

    /// Returns true if the rows that are read are the whole answer, in one page: no page follows.
    pub fn is_one_page(&self, plan: &SelectPlan) -> bool {
        let is_grouped = matches!(plan.results.shaping, Shaping::Groups { .. });
        self.page_rows == UNLIMITED && !is_grouped
    }

    /// Returns the filter that shards may apply to their reads, with the number of matching rows
    /// that are wanted. `None` when all rows are wanted. `SelectExec` filters its input all the
    /// same.
    pub fn shard_filter(&self, plan: &SelectPlan) -> Option<(Arc<dyn RowFilter>, usize)> {
        let filters = self.filters.clone().filter(|_| !plan.results.only_static_rows)?;
        let gives_all =
            !plan.results.sort.is_empty() || matches!(plan.results.shaping, Shaping::Groups { .. });
        let rows = match self.limit.min(self.page_rows) {
            UNLIMITED => usize::MAX,
            _ if gives_all => usize::MAX,
            rows => usize::try_from(rows).unwrap_or(usize::MAX),
        };
        Some((filters, rows))
    }

    /// Returns the number of rows that are worth fetching ahead from other shards.
    pub fn rows_wanted(&self) -> usize {
        if self.reads_ahead {
            return usize::MAX;
        }
        let rows = self.limit.min(self.page_rows);
        usize::try_from(rows).unwrap_or(usize::MAX)
    }
}
