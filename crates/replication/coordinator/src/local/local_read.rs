//! Reads: straight into the sink when this shard owns all of it, else page by page.
//!
//! See [`super::shard_pages`] for how the pages of several shards become one read.

use std::sync::Arc;

use data::RowFilter;
use data::command::{Partitions, ReadCommand};
use replica::{PackedPage, PageLimit, ShardReads, ShardWork};
use rt::MeshError;
use store::{ReadStats, RowSink, StoreError};

use super::shard_pages::{Asked, PageError, PageRequest, Pages, ShardsWanted, Step};
use super::{Local, mesh_error};
use crate::shard_requests::{ShardReply, ShardRequest};

/// Filter that each shard applies to its own rows, so that only matching rows cross shards.
#[derive(Clone, Debug)]
pub struct ShardFilter {
    /// The filter. The sink may still be shown rows that do not match.
    pub filter: Arc<dyn RowFilter>,
    /// How many of the rows that it keeps are worth fetching ahead.
    pub rows_wanted: usize,
    /// The encoded filter for other nodes, see [`crate::ScanPlanner`]; `None`: it is not sent to
    /// other nodes.
    pub shipped: Option<Vec<u8>>,
}

/// Limits of a read: how many rows the caller wants, and which ones.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'f> {
    /// Bounds what is fetched ahead from other shards.
    pub rows: usize,
    /// Other shards leave out what it does not keep.
    pub filter: Option<&'f ShardFilter>,
}

impl Wanted<'_> {
    /// So many rows, all that come.
    pub fn rows(rows: usize) -> Wanted<'static> {
        Wanted { rows, filter: None }
    }

    fn of_shards(self) -> ShardsWanted {
        ShardsWanted {
            rows: self.filter.map_or(self.rows, |filter| filter.rows_wanted),
            work: self.filter.map(|filter| ShardWork::Filter(filter.filter.clone())),
        }
    }
}

/// The page that another shard of this node has sent.
pub(super) fn page_of(answer: Result<ShardReply, MeshError>) -> Result<PackedPage, StoreError> {
    match answer {
        Ok(ShardReply::Page(page)) => page,
        Ok(other) => stdx::invariant::broken(format_args!("read answered by {other:?}")),
        Err(error) => Err(mesh_error(error)),
    }
}

impl Local {
    /// Reads into `sink`, from this shard or others; partitions of a range come in ring order.
    /// `rows_wanted` bounds what is fetched ahead from other shards.
    ///
    /// # Errors
    /// Those of [`store::Store::read`]; `Overloaded` when another shard's queue is full.
    pub async fn read<S: RowSink>(
        &self,
        command: &ReadCommand,
        rows_wanted: usize,
        sink: &mut S,
    ) -> Result<ReadStats, StoreError> {
        self.read_filtered(command, Wanted::rows(rows_wanted), sink).await
    }

    /// Like [`Local::read`]; rows of other shards are filtered there.
    ///
    /// # Errors
    /// Those of [`Local::read`].
    pub async fn read_filtered<S: RowSink>(
        &self,
        command: &ReadCommand,
        wanted: Wanted<'_>,
        sink: &mut S,
    ) -> Result<ReadStats, StoreError> {
        let shards = self.inner.env.rt.shard_count();
        let readers = match &command.partitions {
            _ if shards == 1 => return self.inner.env.store.read(command, sink).await,
            Partitions::Key(key) => {
                let owner =
                    self.inner.env.shard_map().shard_of(command.table, codec::token_of(key));
                if owner == self.inner.env.rt.shard() {
                    return self.inner.env.store.read(command, sink).await;
                }
                owner.0..owner.0 + 1
            }
            Partitions::Range(_) => 0..shards,
        };
        // Boxed, so that reads of this shard do not carry its size around.
        let mut pages =
            Box::new(Pages::new(readers, command, wanted.of_shards(), self.page_limit(sink)));
        Box::pin(self.replay(&mut pages, None, sink)).await
    }

    /// Like [`Local::read_filtered`]; records the reads of each shard.
    ///
    /// # Errors
    /// Those of [`Local::read`].
    pub async fn read_noted<S: RowSink>(
        &self,
        command: &ReadCommand,
        wanted: Wanted<'_>,
        notes: &ShardReads,
        sink: &mut S,
    ) -> Result<ReadStats, StoreError> {
        let (own, shards) = (self.inner.env.rt.shard(), self.inner.env.rt.shard_count());
        let readers = match &command.partitions {
            _ if shards == 1 => own.0..own.0 + 1,
            Partitions::Key(key) => {
                let owner =
                    self.inner.env.shard_map().shard_of(command.table, codec::token_of(key)).0;
                owner..owner + 1
            }
            Partitions::Range(_) => 0..shards,
        };
        if readers == (own.0..own.0 + 1) {
            let stats = self.inner.env.store.read(command, sink).await?;
            notes.add(own, &stats, None);
            return Ok(stats);
        }
        let mut pages =
            Box::new(Pages::new(readers, command, wanted.of_shards(), self.page_limit(sink)));
        Box::pin(self.replay(&mut pages, Some(notes), sink)).await
    }

    /// Limit of pages.
    pub(crate) fn pages_limit(&self) -> PageLimit {
        self.inner.page_limit.get()
    }

    /// Limit of pages for a sink.
    pub(crate) fn page_limit<S: RowSink>(&self, sink: &S) -> PageLimit {
        let limit = self.inner.page_limit.get();
        let tombstones = limit.tombstones.min(sink.tombstones_per_look()).max(1);
        PageLimit { tombstones, ..limit }
    }

    /// Shows what the pages of all sources have, in ring order, fetching them as needed.
    pub(crate) async fn replay<S: RowSink>(
        &self,
        pages: &mut Pages,
        notes: Option<&ShardReads>,
        sink: &mut S,
    ) -> Result<ReadStats, StoreError> {
        // All shards begin before any is waited for.
        (0..pages.sources()).for_each(|source| self.ask_for_page(pages, source));
        loop {
            match pages.step(sink) {
                Step::Over => return Ok(pages.stats),
                Step::Refused => {
                    return Err(StoreError::TombstoneFailure { scanned: pages.stats.tombstones });
                }
                Step::Fetch(source) => self.fetch(pages, source, notes).await?,
            }
            if pages.is_failed {
                return Ok(pages.stats);
            }
            self.inner.env.rt.yield_if_due().await;
        }
    }

    /// Asks a source for its next page, unless there is none or it is asked already.
    fn ask_for_page(&self, pages: &mut Pages, source: usize) {
        let Some(request) = pages.next_request(source) else { return };
        pages.set_asked(source, self.ask_shard(request));
    }

    /// Asks a shard of this node.
    pub(crate) fn ask_shard(&self, request: PageRequest) -> Asked {
        let PageRequest { place, read } = request;
        let answer = self.call(place.shard, ShardRequest::Read(Box::new(read)));
        Box::pin(async move { page_of(answer.await).map_err(PageError::Store) })
    }

    /// Replaces a source's page with its next one, and requests the page after that ahead of time.
    async fn fetch(
        &self,
        pages: &mut Pages,
        source: usize,
        notes: Option<&ShardReads>,
    ) -> Result<(), StoreError> {
        self.ask_for_page(pages, source);
        let Some(asked) = pages.take_asked(source) else { return Ok(()) };
        let page = match asked.await {
            Ok(page) => page,
            Err(PageError::Store(error)) => return Err(error),
            Err(PageError::Peer(error)) => {
                stdx::invariant::broken(format_args!("a shard of this node answered: {error}"))
            }
        };
        if let (Some(notes), Some(place)) = (notes, pages.place(source)) {
            notes.add(place.shard, &page.stats, Some(page.len()));
        }
        if pages.put_page(source, page) {
            self.ask_for_page(pages, source);
        }
        Ok(())
    }
}
