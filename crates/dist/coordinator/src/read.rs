//! Reads: straight into the sink when this shard owns all of it, else page by page.
//!
//! See [`crate::pages`] for how the pages of several shards become one read.

use std::sync::Arc;

use data::RowFilter;
use data::command::{Partitions, ReadCommand};
use store::{ReadStats, RowSink, StoreError};

use crate::pages::{Pages, Step};
use crate::read_trace::{ReadTrace, ShardReads};
use crate::{Coordinator, ShardReply, ShardRequest, mesh_error};

/// What is done with rows where they lie, so that only those that somebody has a use for cross shards.
#[derive(Clone, Debug)]
pub struct ShardFilter {
    /// What is wanted. The sink may be shown other rows all the same.
    pub filter: Arc<dyn RowFilter>,
    /// How many of the rows that it keeps are worth fetching ahead.
    pub rows_wanted: usize,
}

impl Coordinator {
    /// Reads into `sink`, from this shard or others; partitions of a range come in ring order.
    /// `rows_wanted` bounds what is fetched ahead from other shards.
    ///
    /// # Errors
    /// As [`store::Store::read`]; `Overloaded` when another shard's queue is full.
    pub async fn read<S: RowSink>(
        &self,
        command: &ReadCommand,
        rows_wanted: usize,
        sink: &mut S,
    ) -> Result<ReadStats, StoreError> {
        self.read_filtered(command, (rows_wanted, None), sink).await
    }

    /// As [`Coordinator::read`]; what comes from other shards is filtered there.
    ///
    /// # Errors
    /// As [`Coordinator::read`].
    pub async fn read_filtered<S: RowSink>(
        &self,
        command: &ReadCommand,
        wanted: (usize, Option<&ShardFilter>),
        sink: &mut S,
    ) -> Result<ReadStats, StoreError> {
        let shards = self.inner.rt.shard_count();
        let readers = match &command.partitions {
            _ if shards == 1 => return self.inner.store.read(command, sink).await,
            Partitions::Key(key) => {
                let owner = self.owner(codec::token_of(key));
                if owner == self.inner.rt.shard() {
                    return self.inner.store.read(command, sink).await;
                }
                owner.0..owner.0 + 1
            }
            Partitions::Range(_) => 0..shards,
        };
        // Boxed, so that reads of this shard do not carry its size around.
        let mut pages = Box::new(Pages::new(readers, command, wanted));
        Box::pin(self.replay(&mut pages, None, sink)).await
    }

    /// As [`Coordinator::read_filtered`]; what each shard reads is added to a trace.
    ///
    /// # Errors
    /// As [`Coordinator::read`].
    pub async fn read_noted<S: RowSink>(
        &self,
        command: &ReadCommand,
        (wanted, trace): ((usize, Option<&ShardFilter>), &ReadTrace),
        sink: &mut S,
    ) -> Result<ReadStats, StoreError> {
        let (own, shards) = (self.inner.rt.shard(), self.inner.rt.shard_count());
        let readers = match &command.partitions {
            _ if shards == 1 => own.0..own.0 + 1,
            Partitions::Key(key) => {
                let owner = self.owner(codec::token_of(key)).0;
                owner..owner + 1
            }
            Partitions::Range(_) => 0..shards,
        };
        if readers == (own.0..own.0 + 1) {
            let stats = self.inner.store.read(command, sink).await?;
            trace.shards.add(own, &stats, None);
            return Ok(stats);
        }
        let mut pages = Box::new(Pages::new(readers, command, wanted));
        Box::pin(self.replay(&mut pages, Some(&trace.shards), sink)).await
    }

    /// Shows what the pages of all sources have, in ring order, fetching them as needed.
    async fn replay<S: RowSink>(
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
                Step::Fetch(source) => self.fetch(pages, source, notes).await?,
            }
            self.inner.rt.yield_if_due().await;
        }
    }

    /// Asks a source for its next page, unless there is none or it is asked already.
    fn ask_for_page(&self, pages: &mut Pages, source: usize) {
        let Some((shard, command, limit, filter)) = pages.next_request(source) else { return };
        let request = ShardRequest::Read { command, limit, filter };
        let answer = self.inner.mesh.call(&self.inner.rt, shard, request);
        pages.set_asked(source, Box::pin(answer));
    }

    /// Takes a source's next page in the place of the one before, and has the one behind it made.
    async fn fetch(
        &self,
        pages: &mut Pages,
        source: usize,
        notes: Option<&ShardReads>,
    ) -> Result<(), StoreError> {
        self.ask_for_page(pages, source);
        let Some(asked) = pages.take_asked(source) else { return Ok(()) };
        let page = match asked.await {
            Ok(ShardReply::Page(page)) => page?,
            Ok(other) => stdx::invariant::broken(format_args!("read answered by {other:?}")),
            Err(error) => return Err(mesh_error(error)),
        };
        if let (Some(notes), Some(shard)) = (notes, pages.shard(source)) {
            notes.add(shard, &page.stats, Some(page.len()));
        }
        if pages.put_page(source, page) {
            self.ask_for_page(pages, source);
        }
        Ok(())
    }
}
