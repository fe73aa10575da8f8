//! Reads: straight into the sink when this shard owns all of it, else page by page.
//!
//! See [`crate::pages`] for how the pages of several shards become one read.

use std::sync::Arc;

use data::command::{Partitions, ReadCommand};
use data::{FoldState, RowFilter, RowFold, RowRef};
use request::RequestError;
use stdx::Token;
use store::{Flow, Look, LookedAt, ReadStats, RowSink, StoreError};

use crate::cluster_parts::ReplicatedRead;
use crate::folded_page::open_result;
use crate::pages::{Asked, PageError, PageRequest, Pages, Step};
use crate::read_trace::{ReadTrace, ShardReads};
use crate::scattered::Scattered;
use crate::{Coordinator, PageLimit, ShardReply, ShardRequest, mesh_error};

/// What is done with rows where they lie, so that only those that somebody has a use for cross shards.
#[derive(Clone, Debug)]
pub struct ShardFilter {
    /// What is wanted. The sink may be shown other rows all the same.
    pub filter: Arc<dyn RowFilter>,
    /// How many of the rows that it keeps are worth fetching ahead.
    pub rows_wanted: usize,
    /// The same for other nodes, see [`crate::ScanPlanner`]; `None`: it stays on this one.
    pub shipped: Option<Vec<u8>>,
}

/// What a shard does with the rows of a read, in the place of sending all of them.
#[derive(Clone, Debug)]
pub enum ShardWork {
    /// Leaves out what is not wanted.
    Filter(Arc<dyn RowFilter>),
    /// Makes results of them.
    Fold(Arc<dyn RowFold>),
}

/// What shards make of their rows.
#[derive(Clone, Debug)]
pub struct FoldOrder {
    /// How.
    pub fold: Arc<dyn RowFold>,
    /// How many results are worth fetching ahead.
    pub results_wanted: usize,
    /// The same for other nodes, see [`crate::ScanPlanner`]; `None`: it stays on this one.
    pub shipped: Option<Vec<u8>>,
}

/// How a read that was folded ended.
#[derive(Debug)]
pub struct Folded {
    /// What reading has cost; its rows and partitions are those that were looked at.
    pub stats: ReadStats,
    /// What the shards have left; `None`: it cannot be done this way.
    pub states: Option<Vec<FoldState>>,
}

/// Why a read was not folded to its end.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FoldError {
    /// On a node that is alone.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// On the only replica that was asked.
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// Takes the results of a fold.
pub trait FoldSink {
    /// A partition of which there are results, in ring order.
    fn partition(&mut self, key: &[u8]) -> Flow;

    /// One of its results: see [`data::FoldResult`].
    fn result(&mut self, last: Option<&[u8]>, bytes: &[u8]) -> Flow;

    /// More was looked at.
    fn looked_at(&mut self);
}

/// Shows results to a [`FoldSink`].
struct Results<'s, F>(&'s mut F);

impl<F: FoldSink> RowSink for Results<'_, F> {
    fn partition(&mut self, _: Token, key: &[u8], _: Option<RowRef<'_>>) -> Flow {
        self.0.partition(key)
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        match open_result(clustering, row) {
            Some((last, bytes)) => self.0.result(last, bytes),
            None => stdx::invariant::broken(format_args!("page: a result without a first byte")),
        }
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }

    fn looked_at(&mut self, _: LookedAt<'_>) -> Look {
        self.0.looked_at();
        Look::Continue
    }
}

impl Coordinator {
    /// Has shards make results of the rows of a range: those of this node, when it alone can answer, else those of
    /// the replicas, where one of each range is enough. Results come in ring order. `None`: nobody was asked.
    ///
    /// # Errors
    /// As [`Coordinator::read`], or as [`Coordinator::read_replicated`] with an order.
    pub async fn fold<F: FoldSink>(
        &self,
        command: &ReadCommand,
        fold: &FoldOrder,
        (order, trace): (Option<&ReplicatedRead>, Option<&ReadTrace>),
        sink: &mut F,
    ) -> Result<Option<Folded>, FoldError> {
        if !matches!(command.partitions, Partitions::Range(_)) {
            return Ok(None);
        }
        let mut results = Results(sink);
        if let (Some(order), Some(shipped)) = (order, &fold.shipped) {
            let work = (&ShardWork::Fold(fold.fold.clone()), shipped.as_slice());
            let wanted = (fold.results_wanted, work);
            let scattered = Box::pin(self.scatter(command, order, wanted, trace, &mut results));
            match scattered.await? {
                Scattered::NotBegun => {}
                Scattered::Refused(stats) => return Ok(Some(Folded { stats, states: None })),
                Scattered::Done(stats, states) => return Ok(Some(Folded { stats, states })),
            }
        }
        let is_here = order.is_none_or(|order| self.answers_alone(command, order));
        if self.inner.rt.shard_count() == 1 || !is_here {
            return Ok(None);
        }
        let work = Some(ShardWork::Fold(fold.fold.clone()));
        let shards = 0..self.inner.rt.shard_count();
        let mut pages = Box::new(Pages::new(
            shards,
            command,
            (fold.results_wanted, work),
            self.inner.page_limit.get(),
        ));
        let notes = trace.map(|trace| &trace.shards);
        let replay = self.replay(&mut pages, notes, &mut results).await;
        let stats = replay.map_err(|error| match order {
            Some(order) => FoldError::Request(self.failed_alone(order, error)),
            None => FoldError::Store(error),
        })?;
        let states = (!pages.is_failed).then(|| pages.into_states().collect());
        Ok(Some(Folded { stats, states }))
    }

    /// Reads a range of which one replica of each part is enough; rows are filtered by the shards that have them.
    /// `None`: it cannot be done this way. Rows may have been shown before that.
    ///
    /// # Errors
    /// As [`Coordinator::read_replicated`].
    pub async fn read_scattered<S: RowSink>(
        &self,
        command: &ReadCommand,
        order: &ReplicatedRead,
        (trace, filter): (Option<&ReadTrace>, &ShardFilter),
        sink: &mut S,
    ) -> Result<Option<ReadStats>, RequestError> {
        let Some(shipped) = &filter.shipped else { return Ok(None) };
        if self.answers_alone(command, order) {
            return Ok(None);
        }
        let work = (&ShardWork::Filter(filter.filter.clone()), shipped.as_slice());
        let wanted = (filter.rows_wanted, work);
        Ok(match Box::pin(self.scatter(command, order, wanted, trace, sink)).await? {
            Scattered::Done(stats, _) => Some(stats),
            Scattered::NotBegun | Scattered::Refused(_) => None,
        })
    }

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
                let owner = self.shard_map().shard_of(command.table, codec::token_of(key));
                if owner == self.inner.rt.shard() {
                    return self.inner.store.read(command, sink).await;
                }
                owner.0..owner.0 + 1
            }
            Partitions::Range(_) => 0..shards,
        };
        // Boxed, so that reads of this shard do not carry its size around.
        let mut pages =
            Box::new(Pages::new(readers, command, filtered(wanted), self.page_limit(sink)));
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
                let owner = self.shard_map().shard_of(command.table, codec::token_of(key)).0;
                owner..owner + 1
            }
            Partitions::Range(_) => 0..shards,
        };
        if readers == (own.0..own.0 + 1) {
            let stats = self.inner.store.read(command, sink).await?;
            trace.shards.add(own, &stats, None);
            return Ok(stats);
        }
        let mut pages =
            Box::new(Pages::new(readers, command, filtered(wanted), self.page_limit(sink)));
        Box::pin(self.replay(&mut pages, Some(&trace.shards), sink)).await
    }

    /// Where pages for a sink end.
    pub(crate) fn page_limit<S: RowSink>(&self, sink: &S) -> PageLimit {
        let limit = self.inner.page_limit.get();
        let tombstones = limit.tombstones.min(sink.tombstones_per_look()).max(1);
        PageLimit { tombstones, ..limit }
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
                Step::Refused => {
                    return Err(StoreError::TombstoneFailure { scanned: pages.stats.tombstones });
                }
                Step::Fetch(source) => self.fetch(pages, source, notes).await?,
            }
            if pages.is_failed {
                return Ok(pages.stats);
            }
            self.inner.rt.yield_if_due().await;
        }
    }

    /// Asks a source for its next page, unless there is none or it is asked already.
    fn ask_for_page(&self, pages: &mut Pages, source: usize) {
        let Some(request) = pages.next_request(source) else { return };
        pages.set_asked(source, self.ask_shard(request));
    }

    /// Asks a shard of this node.
    pub(crate) fn ask_shard(&self, request: PageRequest) -> Asked {
        let PageRequest { place, command, further, limit, work, state } = request;
        let command = Box::new(command);
        let request = ShardRequest::Read { command, further, limit, work, state };
        let answer = self.inner.mesh.call(&self.inner.rt, place.shard, request);
        Box::pin(async move {
            match answer.await {
                Ok(ShardReply::Page(page)) => page.map_err(PageError::Store),
                Ok(other) => stdx::invariant::broken(format_args!("read answered by {other:?}")),
                Err(error) => Err(PageError::Store(mesh_error(error))),
            }
        })
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

/// How many rows are wanted with which filter.
fn filtered((rows_wanted, filter): (usize, Option<&ShardFilter>)) -> (usize, Option<ShardWork>) {
    let rows_wanted = filter.map_or(rows_wanted, |filter| filter.rows_wanted);
    (rows_wanted, filter.map(|filter| ShardWork::Filter(filter.filter.clone())))
}
