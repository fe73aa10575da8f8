//! A source with a component: one segment of the vectors of a file.

use std::sync::Arc;

use ann::{RowFilter, Search, SearchOptions, SearchStep, VectorSummary};
use index_format::{IndexError, Lookup, RowKey, RowPlace, RowsReader};
use sstable::{Component, IndexComponent, SstableError};
use stdx::{Token, Uuid};

use super::scoring::Wanted;
use crate::error::StoreError;
use crate::read::driver::ITEMS_PER_LOOK;
use crate::read::index_search::{Searching, Stopped};
use crate::tables::table_file::TableFile;

/// A row of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentRow {
    /// Score that it may have at most.
    pub(super) most: f32,
    /// Its id in the file.
    pub(super) row: u32,
}

/// See the module.
pub(super) struct Segment {
    /// Number of the file among the sources.
    pub(super) source: u32,
    pub(super) is_exact: bool,
    index: Uuid,
    search: Search,
    nodes: usize,
}

impl Segment {
    pub(super) fn new(
        source: u32,
        index: Uuid,
        summary: &Arc<VectorSummary>,
        wanted: &Wanted,
        options: SearchOptions,
    ) -> Result<Segment, StoreError> {
        let search = Search::new(summary.clone(), wanted.vector(), options);
        let search = search.map_err(|error| StoreError::Invalid(error.to_string()))?;
        Ok(Segment { source, is_exact: summary.is_exact(), index, search, nodes: 0 })
    }

    /// Vectors that were compared since the last call.
    pub(super) fn take_compared(&mut self) -> usize {
        let seen = self.search.nodes_seen();
        seen - std::mem::replace(&mut self.nodes, seen)
    }

    /// The next row, nearest first by its quantised vector. `None`: there is none.
    pub(super) async fn next(
        &mut self,
        searching: &mut Searching<'_>,
    ) -> Result<Option<SegmentRow>, Stopped> {
        let component = IndexComponent::Entries(self.index);
        let Some(file) = searching.file(self.source) else { return Ok(None) };
        let mut steps = 0;
        loop {
            match self.search.advance() {
                Ok(SearchStep::Row { row, most, .. }) => return Ok(Some(SegmentRow { most, row })),
                Ok(SearchStep::End) => return Ok(None),
                Ok(SearchStep::NeedBlock(at)) => {
                    let block = searching.block(&file, component, at).await?;
                    self.search.feed(block);
                }
                Err(error) => return Err(searching.lose_to(&file, component, &error)),
            }
            steps += 1;
            if steps % ITEMS_PER_LOOK == 0 && searching.reader.env.rt.is_yield_due() {
                searching.reader.env.rt.yield_if_due().await;
            }
        }
    }
}

/// Places of the rows of a file.
pub(super) struct Places {
    source: u32,
    rows: RowsReader,
}

impl Places {
    pub(super) fn new(source: u32, rows: RowsReader) -> Places {
        Places { source, rows }
    }

    /// The ids of the rows of tokens from the first to the last.
    pub(super) async fn ids(
        &mut self,
        searching: &mut Searching<'_>,
        first: Token,
        last: Token,
        rows: u32,
    ) -> Result<std::ops::Range<u32>, Stopped> {
        let start = match first {
            Token::MIN => 0,
            first => self.first_of(searching, first).await?,
        };
        let end = match last.0.checked_add(1) {
            None => rows,
            Some(after) => self.first_of(searching, Token(after)).await?,
        };
        Ok(start..end.max(start))
    }

    async fn first_of(
        &mut self,
        searching: &mut Searching<'_>,
        token: Token,
    ) -> Result<u32, Stopped> {
        let Some(file) = searching.file(self.source) else { return Ok(0) };
        loop {
            match self.rows.first_of_token(token) {
                Ok(Lookup::Found(row)) => return Ok(row),
                Ok(Lookup::NeedBlock(at)) => {
                    let block = searching.block(&file, IndexComponent::Rows, at).await?;
                    self.rows.feed(block);
                }
                Err(error) => return Err(searching.lose_to(&file, IndexComponent::Rows, &error)),
            }
        }
    }

    async fn place(
        &mut self,
        searching: &mut Searching<'_>,
        file: &TableFile,
        row: u32,
    ) -> Result<RowPlace, Stopped> {
        loop {
            match self.rows.place(row) {
                Ok(Lookup::Found(place)) => return Ok(place),
                Ok(Lookup::NeedBlock(at)) => {
                    let block = searching.block(file, IndexComponent::Rows, at).await?;
                    self.rows.feed(block);
                }
                Err(error) => return Err(searching.lose_to(file, IndexComponent::Rows, &error)),
            }
        }
    }

    /// The key of a row. `None`: it is not one of the search, or is hidden from this shard.
    pub(super) async fn key(
        &mut self,
        searching: &mut Searching<'_>,
        row: u32,
    ) -> Result<Option<Arc<RowKey>>, Stopped> {
        let Some(file) = searching.file(self.source) else { return Ok(None) };
        let place = self.place(searching, &file, row).await?;
        let is_inside = (searching.range.first_token()..=searching.range.last_token())
            .contains(&place.token)
            && searching.visibility(&file).shows(place.token);
        if !is_inside {
            return Ok(None);
        }
        let key = searching.key_at(&file, self.source, place).await?;
        let clustering = searching.clustering_of(&key);
        // A static row has no vector; only a component that lies names one.
        let is_row = clustering.is_none() || !key.clustering.is_empty();
        let comparator = searching.shape.clustering();
        Ok((is_row && searching.range.contains(&key, clustering, comparator)).then_some(key))
    }
}

impl Searching<'_> {
    /// Stops using a component whose blocks contradict each other.
    fn lose_to(&self, file: &TableFile, component: IndexComponent, error: &IndexError) -> Stopped {
        let path = file.reader.meta().file(Component::Attached(component.name()));
        let (what, offset) = (error.to_string(), 0);
        self.lose(file, component, &SstableError::Corrupt { file: path, offset, what })
    }
}

/// Restricts a search to ids.
pub(super) fn filter_of(ids: &std::ops::Range<u32>, segment: &VectorSummary) -> RowFilter {
    let has_all = ids.start <= segment.rows.start && segment.rows.end <= ids.end;
    if has_all { RowFilter::All } else { RowFilter::Range(ids.clone()) }
}
