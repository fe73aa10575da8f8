//! Scans and aggregations that run on the shards that own the rows, of this node or of several ones.
//!
//! Owns: folds ([`Scans::fold`]), scans for which one replica of each range is enough ([`scatter`]). Never: levels that
//! need more than one answer.

mod scatter;

use std::rc::Rc;
use std::sync::Arc;

use data::command::{Partitions, ReadCommand};
use data::{FoldState, RowFold, RowRef};
use replica::{Env, ShardWork, open_result};
use request::RequestError;
use stdx::Token;
use store::{Flow, Look, LookedAt, ReadStats, RowSink, StoreError};
use telemetry::Counter;

use crate::local::Local;
use crate::local::shard_pages::{Pages, ShardsWanted};
use crate::replicated::index::IndexReads;
use crate::replicated::read::{ReadOptions, Reads};
use crate::shared::{ReadTrace, ReplicatedRead, Shared, UnsupportedVerb};
use scatter::{ScanWanted, Scattered};

/// A fold for shards to apply to their rows.
#[derive(Clone, Debug)]
pub struct FoldOrder {
    /// The fold.
    pub fold: Arc<dyn RowFold>,
    /// How many results are worth fetching ahead.
    pub results_wanted: usize,
    /// The encoded fold for other nodes, see [`crate::ScanPlanner`]; `None`: it is not sent to
    /// other nodes.
    pub shipped: Option<Vec<u8>>,
}

/// Result of a folded read.
#[derive(Debug)]
pub struct Folded {
    /// Statistics of the reads; rows and partitions are those scanned.
    pub stats: ReadStats,
    /// Final states of the shards; `None`: the fold cannot be done this way.
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

    /// Notes that the scan has advanced.
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

/// A read of several nodes that is folded, and its trace.
#[derive(Clone, Copy, Default)]
pub struct FoldOf<'a> {
    /// `None`: the node is alone.
    pub order: Option<&'a ReplicatedRead>,
    /// Records the requests and reads.
    pub trace: Option<&'a ReadTrace>,
}

/// Scans and aggregations, of one shard.
#[derive(Clone)]
pub struct Scans {
    inner: Rc<Inner>,
}

struct Inner {
    shared: Rc<Shared>,
    reads: Reads,
    index_reads: IndexReads,
    /// Nodes that do not know the verb `Scan`.
    not_scanning: UnsupportedVerb,
    scattered: Counter,
    scattered_refused: Counter,
    scattered_moved: Counter,
}

impl Scans {
    pub(crate) fn new(shared: Rc<Shared>, reads: Reads) -> Scans {
        let telemetry = shared.env().rt.telemetry();
        let counter = |name, help| telemetry.counter(name, help, &[]);
        let inner = Inner {
            not_scanning: UnsupportedVerb::default(),
            scattered: counter(
                "coordinator_scattered_reads_total",
                "scans that shards of several nodes filtered or aggregated",
            ),
            scattered_refused: counter(
                "coordinator_scattered_reads_refused_total",
                "such scans that a node would not do, so that rows were read",
            ),
            scattered_moved: counter(
                "coordinator_scattered_reads_moved_total",
                "parts of such scans that went on at another replica",
            ),
            index_reads: IndexReads::new(shared.clone(), reads.clone()),
            shared,
            reads,
        };
        Scans { inner: Rc::new(inner) }
    }

    /// Scans that skip to the rows that indexes name.
    pub fn index_reads(&self) -> &IndexReads {
        &self.inner.index_reads
    }

    fn env(&self) -> &Env {
        self.inner.shared.env()
    }

    fn local(&self) -> &Local {
        &self.inner.shared.local
    }

    /// Has shards fold the rows of a range: those of this node if it alone can answer, else those
    /// of the replicas, where one replica of each range is enough. Results arrive in ring order.
    /// `None`: no replica was asked.
    ///
    /// # Errors
    /// Those of [`Local::read`], or as [`Reads::read_replicated`] with an order.
    pub async fn fold<F: FoldSink>(
        &self,
        command: &ReadCommand,
        fold: &FoldOrder,
        of: FoldOf<'_>,
        sink: &mut F,
    ) -> Result<Option<Folded>, FoldError> {
        if !matches!(command.partitions, Partitions::Range(_)) {
            return Ok(None);
        }
        let FoldOf { order, trace } = of;
        let mut results = Results(sink);
        if let (Some(order), Some(shipped)) = (order, &fold.shipped) {
            let (rows, work) = (fold.results_wanted, &ShardWork::Fold(fold.fold.clone()));
            let wanted = ScanWanted { rows, work, shipped, trace };
            let scattered = Box::pin(self.scatter(command, order, wanted, &mut results));
            match scattered.await? {
                Scattered::NotBegun => {}
                Scattered::Refused(stats) => return Ok(Some(Folded { stats, states: None })),
                Scattered::Done(stats, states) => return Ok(Some(Folded { stats, states })),
            }
        }
        let is_here = order.is_none_or(|order| self.inner.reads.answers_alone(command, order));
        if self.env().rt.shard_count() == 1 || !is_here {
            return Ok(None);
        }
        let work = Some(ShardWork::Fold(fold.fold.clone()));
        let shards = 0..self.env().rt.shard_count();
        let mut pages = Box::new(Pages::new(
            shards,
            command,
            ShardsWanted { rows: fold.results_wanted, work },
            self.local().pages_limit(),
        ));
        let notes = trace.map(|trace| trace.shards());
        let replay = self.local().replay(&mut pages, notes, &mut results).await;
        let stats = replay.map_err(|error| match order {
            Some(order) => FoldError::Request(self.inner.reads.failed_alone(order, error)),
            None => FoldError::Store(error),
        })?;
        let states = (!pages.is_failed).then(|| pages.into_states().collect());
        Ok(Some(Folded { stats, states }))
    }

    /// Reads a range of which one replica of each part is enough; rows are filtered by the shards that have them.
    /// `None`: it cannot be done this way. Rows may have been shown before that.
    ///
    /// # Errors
    /// Those of [`Reads::read_replicated`].
    pub async fn read_scattered<S: RowSink>(
        &self,
        command: &ReadCommand,
        order: &ReplicatedRead,
        options: ReadOptions<'_>,
        sink: &mut S,
    ) -> Result<Option<ReadStats>, RequestError> {
        let ReadOptions { trace, filter: Some(filter) } = options else { return Ok(None) };
        let Some(shipped) = &filter.shipped else { return Ok(None) };
        if self.inner.reads.answers_alone(command, order) {
            return Ok(None);
        }
        let (rows, work) = (filter.rows_wanted, &ShardWork::Filter(filter.filter.clone()));
        let wanted = ScanWanted { rows, work, shipped, trace: trace.map(|trace| &**trace) };
        Ok(match Box::pin(self.scatter(command, order, wanted, sink)).await? {
            Scattered::Done(stats, _) => Some(stats),
            Scattered::NotBegun | Scattered::Refused(_) => None,
        })
    }
}
