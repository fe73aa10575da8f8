//! Reads by index: a scan that skips to the rows that indexes name.
//!
//! Owns: the driver of an indexed read ([`IndexReads::read`]): searches of ranges in ring order, several at a time
//! ([`ranges`], [`range_search`]), reads of their candidates by name ([`named`]), and the one stream of rows for the sink
//! ([`stream`]); reads of the nearest rows ([`nearest`]). Never: which replicas are asked (`request::search`), unions and positions (`index_read`), how a shard
//! searches (`store`), the filter: the sink drops rows that do not match.
//!
//! A candidate is read at the level of the statement, so digests, merges and read repair are those of every read. The
//! position of the read is that of a scan: a paging state does not know the index.
//!
//! INV-index-read-4: the sink sees each row that matches the predicates at the statement's level, once, in ring order.
//!
//! Reading order: this file, [`stream`], [`named`], [`range_search`], [`ranges`], [`nearest`].

mod named;
mod nearest;
mod range_search;
mod ranges;
mod stream;

use std::rc::Rc;

use data::ClusteringComparator;
use data::command::ReadCommand;
use index_format::{IndexPredicate, IndexSearch, Matches, Matching, SearchLimits};
use index_read::driving::keys_of_search;
use index_read::{Continued, DriverEstimates, NamedReads, advance};
use replica::{add_stats, search_node};
use request::{ReplicaError, RequestError};
use schema::Table;
use store::{Look, ReadStats, RowSink, StoreError};
use telemetry::Counter;

use crate::local::Local;
use crate::replicated::read::{Reads, failed};
use crate::shared::{ReadTrace, ReplicatedRead, Shared};
use stream::RowStream;

pub use nearest::{NearestError, NearestOrder};

/// Bytes of keys after which a search's answer ends.
const KEY_BYTES: u64 = 256 << 10;
/// Rows that a search looks at before its answer ends: some milliseconds of work.
const SCANNED: u64 = 20_000;

/// An indexed read of a statement.
#[derive(Clone, Copy)]
pub struct IndexOrder<'a> {
    /// The table.
    pub table: &'a Table,
    /// The predicates; all hold for a row that is wanted. At least one.
    pub predicates: &'a [IndexPredicate],
    /// Replicas of a read of several nodes; `None`: this node has all data.
    pub replicas: Option<&'a ReplicatedRead>,
    /// Records the searches and reads.
    pub trace: Option<&'a Rc<ReadTrace>>,
    /// Matching rows that are worth fetching; `usize::MAX`: all.
    pub rows_wanted: usize,
}

/// Outcome of an indexed read.
#[derive(Clone, Debug, Default)]
pub struct IndexedRead {
    /// Statistics of the reads by name.
    pub stats: ReadStats,
    /// The driving predicate names so many per cent of the table's rows that a scan would be faster.
    pub unselective: Option<Unselective>,
}

/// A predicate that names a large part of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unselective {
    /// Its position.
    pub predicate: usize,
    /// Per cent of the table's rows.
    pub percent: u64,
}

/// Why an indexed read failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum IndexReadError {
    /// On a node that is alone.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// On the replicas.
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// Indexed reads, of one shard.
#[derive(Clone)]
pub struct IndexReads {
    inner: Rc<Inner>,
}

struct Inner {
    shared: Rc<Shared>,
    reads: Reads,
    indexed: Counter,
    nearest: Counter,
    searches: Counter,
    candidates: Counter,
    stand_ins: Counter,
}

impl IndexReads {
    pub(crate) fn new(shared: Rc<Shared>, reads: Reads) -> IndexReads {
        let telemetry = shared.env().rt.telemetry();
        let counter = |name, help| telemetry.counter(name, help, &[]);
        let inner = Inner {
            indexed: counter("coordinator_indexed_reads_total", "reads of rows that indexes name"),
            nearest: counter(
                "coordinator_nearest_reads_total",
                "reads of the rows nearest to a vector",
            ),
            searches: counter("coordinator_index_searches_total", "searches of indexes"),
            candidates: counter(
                "coordinator_index_candidates_total",
                "rows that searches named, which were read and filtered",
            ),
            stand_ins: counter(
                "coordinator_index_search_stand_ins_total",
                "replicas searched in place of failed or slow ones",
            ),
            shared,
            reads,
        };
        IndexReads { inner: Rc::new(inner) }
    }

    fn local(&self) -> &Local {
        &self.inner.shared.local
    }

    /// Reads the rows that the predicates' indexes name into `sink`, in ring order. The sink filters them.
    ///
    /// # Errors
    /// Those of [`Reads::read_replicated`] or, on a node that is alone, of [`Local::read`]; an index that is not built:
    /// `IndexNotAvailable`. Rows may have been shown before an error.
    pub async fn read<S: RowSink>(
        &self,
        command: &ReadCommand,
        order: &IndexOrder<'_>,
        sink: &mut S,
    ) -> Result<IndexedRead, IndexReadError> {
        self.inner.indexed.inc();
        let read = Box::pin(IndexRead::new(self, command, order, sink).run()).await;
        if let (Some(trace), Err(IndexReadError::Request(error))) = (order.trace, &read) {
            trace.request().note_error(error);
        }
        read
    }

    /// Reads the rows nearest to a vector into `sink`, best first, each as a partition of its own. Rows of equal scores
    /// come in ring order.
    ///
    /// # Errors
    /// Those of [`IndexReads::read`]; rows that take too much memory.
    pub async fn read_nearest<S: RowSink>(
        &self,
        command: &ReadCommand,
        order: &NearestOrder<'_>,
        sink: &mut S,
    ) -> Result<ReadStats, NearestError> {
        self.inner.nearest.inc();
        let read = Box::pin(nearest::read(self, command, order, sink)).await;
        if let (Some(trace), Err(NearestError::Read(IndexReadError::Request(error)))) =
            (order.trace, &read)
        {
            trace.request().note_error(error);
        }
        read
    }
}

/// The wish of the sink after some rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    More,
    Nothing,
}

/// An indexed read that runs.
struct IndexRead<'a, S> {
    this: &'a IndexReads,
    order: &'a IndexOrder<'a>,
    comparator: ClusteringComparator,
    named: NamedReads,
    stream: RowStream<'a, S>,
    /// The part of the statement that is not searched yet.
    rest: ReadCommand,
    matching: Matching,
    estimates: DriverEstimates,
    stats: ReadStats,
}

impl<'a, S: RowSink> IndexRead<'a, S> {
    fn new(
        this: &'a IndexReads,
        command: &ReadCommand,
        order: &'a IndexOrder<'a>,
        sink: &'a mut S,
    ) -> IndexRead<'a, S> {
        let comparator = ClusteringComparator::for_table(order.table);
        IndexRead {
            this,
            order,
            named: NamedReads::new(command, &comparator),
            comparator,
            stream: RowStream::new(sink),
            rest: command.clone(),
            matching: Matching::Intersection,
            estimates: DriverEstimates::default(),
            stats: ReadStats::default(),
        }
    }

    async fn run(mut self) -> Result<IndexedRead, IndexReadError> {
        // A predicate that no term satisfies.
        let is_empty = self.order.predicates.iter().any(|predicate| predicate.ranges.is_empty());
        if !is_empty {
            match self.order.replicas {
                Some(replicas) => self.read_ranges(replicas).await?,
                None => self.read_here().await?,
            }
        }
        let driving = match self.matching {
            Matching::Driving(predicate) => predicate,
            _ => self.estimates.driving(),
        };
        let percent = self.estimates.too_many(driving);
        let unselective = percent.map(|percent| Unselective { predicate: driving, percent });
        Ok(IndexedRead { stats: self.stats, unselective })
    }

    /// Reads on a node that is alone.
    async fn read_here(&mut self) -> Result<(), IndexReadError> {
        loop {
            let search = self.search(self.rest.clone());
            let (order, local) = (self.comparator.clone(), self.this.local());
            let matches = search_node(local, search, &order).await?;
            if self.show(&matches).await? == Wants::Nothing {
                return Ok(());
            }
            if advance(&mut self.rest, &matches.frontier) == Continued::Over {
                self.stream.finish();
                return Ok(());
            }
            local.env().rt.yield_if_due().await;
        }
    }

    /// The next search of a part of the read.
    fn search(&self, command: ReadCommand) -> IndexSearch {
        self.this.inner.searches.inc();
        let limits = SearchLimits {
            keys: keys_of_search(self.missing()),
            bytes: KEY_BYTES,
            scanned: SCANNED,
        };
        let predicates = self.order.predicates.to_vec();
        IndexSearch { command, predicates, matching: self.matching, limits }
    }

    /// Rows that are wanted; `u64::MAX`: all.
    fn wanted(&self) -> u64 {
        match self.order.rows_wanted {
            usize::MAX => u64::MAX,
            wanted => wanted as u64,
        }
    }

    /// Rows that are still wanted, as far as is known before the filter.
    fn missing(&self) -> u64 {
        match self.wanted().saturating_sub(self.stats.rows) {
            // The filter dropped some.
            0 => self.wanted().max(1),
            missing => missing,
        }
    }

    /// Reads the candidates of an answer, shows their rows, and reports the position of the read to the sink.
    async fn show(&mut self, matches: &Matches) -> Result<Wants, IndexReadError> {
        self.estimates.note(matches);
        self.this.inner.candidates.add(matches.keys() as u64);
        if let Some(trace) = self.order.trace {
            let (keys, partitions) = (matches.keys(), matches.partitions.len());
            trace.note(format!(
                "Index search found {keys} candidate rows in {partitions} partitions"
            ));
        }
        if self.read_named(matches.partitions.clone()).await? == Wants::Nothing {
            return Ok(Wants::Nothing);
        }
        match self.stream.look(matches, self.stats.tombstones) {
            Look::Continue => Ok(Wants::More),
            Look::Stop => Ok(Wants::Nothing),
            Look::Refuse => Err(self.refused()),
        }
    }

    /// The sink has met more tombstones than it may.
    #[cold]
    fn refused(&self) -> IndexReadError {
        match self.order.replicas {
            Some(replicas) => {
                let me = replicas.snapshot.local.host_id;
                failed(replicas, me, ReplicaError::TooManyTombstones).into()
            }
            None => StoreError::TombstoneFailure { scanned: self.stats.tombstones }.into(),
        }
    }

    fn add_stats(&mut self, stats: &ReadStats) {
        add_stats(&mut self.stats, stats);
    }
}
