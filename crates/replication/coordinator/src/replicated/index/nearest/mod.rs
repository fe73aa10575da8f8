//! Reads of the nearest rows: searches of vectors, reads of their candidates by name, and the best of the merged rows.
//!
//! Three ways lead to the rows. Searches by vector, in rounds ([`index_read::nearest`]); above one replica they know no
//! other predicate, for parts of a row that satisfy different predicates may lie on different replicas. A read by index
//! of all rows that match a predicate, where these are few. A scan, where the searches would give too many candidates.
//! Each row is read at the level of the statement and scored by the vector that it has then.
//!
//! INV-coordinator-nearest-1: the sink sees the best rows of those that are merged at the level, as far as the searches
//! of the replicas give their best rows.
//!
//! Reading order: this file, [`collector`].

mod collector;

use std::pin::Pin;
use std::rc::Rc;

use data::command::{Partitions, ReadCommand};
use data::{ClusteringComparator, RowFilter};
use index_format::{
    IndexPredicate, IndexSearch, Matches, Matching, Neighbours, SearchLimits, VectorIndex,
    VectorSearch,
};
use index_read::{NearestRounds, Round};
use replica::{part_of, search_vectors_node, tokens_of};
use request::range::next_merged;
use request::{ReplicaError, RequestError, SubRange};
use schema::Table;
use stdx::{ColumnId, Epoch, Uuid};
use store::{ReadStats, RowSink, StoreError};

use super::range_search::{RangeSearch, SearchError};
use super::ranges::{RANGES_IN_FLIGHT, join_all, newer_metadata, one_token};
use super::{IndexOrder, IndexRead, IndexReadError, IndexReads};
use crate::replicated::read::failed;
use crate::replicated::read::plan::Plan;
use crate::replicated::read::ring_walk::RingWalk;
use crate::shared::{ReadTrace, ReplicatedRead};
use collector::{Collector, Scoring};

/// Matches of a predicate up to which all of them are read and scored: less work than to search by vector and filter.
const MATCHES_READ_MAX: u64 = 10_000;
/// Rows asked for at first for each row that is wanted, where the rows are filtered afterwards.
const FIRST_FACTOR: u32 = 4;

/// A read of the nearest rows.
#[derive(Clone, Copy)]
pub struct NearestOrder<'a> {
    /// The table.
    pub table: &'a Table,
    /// Id of the index.
    pub index: Uuid,
    /// Its definition.
    pub vectors: VectorIndex,
    /// The column of the vectors.
    pub column: ColumnId,
    /// The vector.
    pub vector: &'a [f32],
    /// Rows that are wanted.
    pub rows: u32,
    /// Predicates that other indexes answer; all hold for a row that is wanted.
    pub predicates: &'a [IndexPredicate],
    /// Filter of rows, which the predicates are a part of.
    pub filter: Option<&'a dyn RowFilter>,
    /// Replicas of a read of several nodes; `None`: this node has all data.
    pub replicas: Option<&'a ReplicatedRead>,
    /// Records the searches and reads.
    pub trace: Option<&'a Rc<ReadTrace>>,
    /// Bytes of rows that may be held.
    pub bytes_max: usize,
}

/// Reason why a read of the nearest rows failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NearestError {
    /// As reads by index fail.
    #[error(transparent)]
    Read(#[from] IndexReadError),
    /// The rows take more memory than they may.
    #[error("the nearest rows take too much memory")]
    TooLarge,
}

impl From<StoreError> for NearestError {
    fn from(error: StoreError) -> NearestError {
        NearestError::Read(error.into())
    }
}

impl From<RequestError> for NearestError {
    fn from(error: RequestError) -> NearestError {
        NearestError::Read(error.into())
    }
}

/// Outcome of an attempt with one plan.
enum Attempt {
    Over,
    /// The read must be planned with this metadata.
    Outdated(Epoch),
}

/// A search of a sub-range that runs.
type Searching<'a> = Pin<Box<dyn Future<Output = Result<Vec<Neighbours>, SearchError>> + 'a>>;

/// Reads the nearest rows into `sink`, best first, each as a partition of its own. Rows of equal scores come in ring order.
///
/// # Errors
/// Those of [`IndexReads::read`]; rows that take too much memory.
pub(super) async fn read<S: RowSink>(
    this: &IndexReads,
    command: &ReadCommand,
    order: &NearestOrder<'_>,
    sink: &mut S,
) -> Result<ReadStats, NearestError> {
    let comparator = ClusteringComparator::for_table(order.table);
    let scoring = Scoring {
        column: order.column,
        vectors: order.vectors,
        vector: order.vector,
        now: command.now,
        filter: order.filter,
        is_clustered: !comparator.is_empty(),
        bytes_max: order.bytes_max,
    };
    let rounds = NearestRounds::new(0, 0, 1, &comparator);
    let collector = Collector::new(scoring, rounds);
    let stats = ReadStats::default();
    let mut read = NearestRead { this, command, order, comparator, collector, stats };
    // A predicate that no term satisfies.
    if order.predicates.iter().any(|predicate| predicate.ranges.is_empty()) {
        return Ok(read.stats);
    }
    match order.replicas {
        Some(replicas) => read.read_replicated(replicas).await?,
        None => read.read_here().await?,
    }
    read.collector.show(sink);
    Ok(read.stats)
}

/// A read that runs.
struct NearestRead<'a> {
    this: &'a IndexReads,
    command: &'a ReadCommand,
    order: &'a NearestOrder<'a>,
    comparator: ClusteringComparator,
    collector: Collector<'a>,
    stats: ReadStats,
}

impl<'a> NearestRead<'a> {
    /// Begins with rounds over so many parts. `pushes`: the searches know the predicates.
    fn begin(&mut self, parts: usize, pushes: bool) {
        let factor = if self.order.filter.is_some() && !pushes { FIRST_FACTOR } else { 1 };
        let first = self.order.rows.saturating_mul(factor);
        let wanted = usize::try_from(self.order.rows).unwrap_or(usize::MAX);
        self.collector.restart(NearestRounds::new(wanted, parts, first, &self.comparator));
    }

    fn search(&self, command: ReadCommand, limit: u32, pushes: bool) -> VectorSearch {
        self.this.inner.searches.inc();
        let predicates = if pushes { self.order.predicates.to_vec() } else { Vec::new() };
        let (index, vector) = (self.order.index, self.order.vector.to_vec());
        VectorSearch { command, index, vector, limit, predicates }
    }

    fn note(&self, text: impl FnOnce() -> String) {
        if let Some(trace) = self.order.trace {
            trace.note(text());
        }
    }

    /// Reads on a node that is alone.
    async fn read_here(&mut self) -> Result<(), NearestError> {
        let local = self.this.local();
        self.begin(1, true);
        loop {
            match self.collector.rounds.next_round() {
                Round::Done => return Ok(()),
                Round::Scan => return self.scan().await,
                Round::Search(searches) => {
                    for (part, limit) in searches {
                        let search = self.search(self.command.clone(), limit, true);
                        let answer = search_vectors_node(local, search, &self.comparator).await?;
                        self.collector.rounds.answered(part, vec![answer]);
                    }
                }
            }
            self.read_candidates().await?;
        }
    }

    /// Reads from the replicas.
    async fn read_replicated(&mut self, replicas: &'a ReplicatedRead) -> Result<(), NearestError> {
        let mut snapshot = replicas.snapshot.clone();
        let (table, level) = (self.command.table, replicas.consistency);
        loop {
            let Some(plan) = self.this.inner.reads.plan_read(&snapshot, table, level) else {
                let me = snapshot.local.host_id;
                return Err(failed(replicas, me, ReplicaError::IncompatibleSchema).into());
            };
            match self.attempt(&plan, snapshot.epoch, replicas).await? {
                Attempt::Over => return Ok(()),
                Attempt::Outdated(needed) => {
                    snapshot = newer_metadata(self.this, &plan, needed, replicas).await?;
                }
            }
        }
    }

    async fn attempt(
        &mut self,
        plan: &Plan,
        epoch: Epoch,
        replicas: &'a ReplicatedRead,
    ) -> Result<Attempt, NearestError> {
        let searches = RangeSearch {
            this: self.this,
            trace: self.order.trace,
            replicas,
            plan,
            epoch,
            comparator: self.comparator.clone(),
        };
        let parts = self.parts(plan);
        let pushes = plan.block_for() == 1;
        if !pushes && !self.order.predicates.is_empty() {
            match self.matches_are_few(&searches, parts.first()).await {
                Ok(true) => {
                    self.read_matches().await?;
                    return Ok(Attempt::Over);
                }
                Ok(false) => {}
                Err(SearchError::Outdated(needed)) => return Ok(Attempt::Outdated(needed)),
                Err(SearchError::Failed(error)) => return Err(error.into()),
            }
        }
        self.begin(parts.len(), pushes);
        loop {
            let asked = match self.collector.rounds.next_round() {
                Round::Done => return Ok(Attempt::Over),
                Round::Scan => {
                    self.scan().await?;
                    return Ok(Attempt::Over);
                }
                Round::Search(asked) => asked,
            };
            let in_flight = usize::try_from(RANGES_IN_FLIGHT).unwrap_or(1);
            for some in asked.chunks(in_flight) {
                if let Some(needed) = self.search_parts(&searches, &parts, some, pushes).await? {
                    return Ok(Attempt::Outdated(needed));
                }
            }
            if let Some(needed) = searches.has_moved(self.command) {
                return Ok(Attempt::Outdated(needed));
            }
            self.read_candidates().await?;
        }
    }

    /// The sub-ranges of the read with their replicas.
    fn parts(&self, plan: &Plan) -> Vec<SubRange> {
        let range = match &self.command.partitions {
            Partitions::Key(key) => {
                let range = one_token(key);
                return vec![SubRange { range, plan: plan.of_token(range.upto), ranges: 1 }];
            }
            Partitions::Range(range) => tokens_of(range),
        };
        let mut walk = RingWalk::new(plan.placements(), range, |token| plan.of_token(token));
        let mut held = None;
        std::iter::from_fn(|| next_merged(&mut held, &mut walk)).collect()
    }

    /// The part of the read in a sub-range.
    fn part(&self, sub: &SubRange) -> ReadCommand {
        let mut command = self.command.clone();
        if let Partitions::Range(whole) = &mut command.partitions {
            *whole = part_of(whole, sub.range);
        }
        command
    }

    /// Searches parts at the same time. Returns the metadata that a replica wants the read to have.
    async fn search_parts(
        &mut self,
        searches: &RangeSearch<'_>,
        parts: &[SubRange],
        asked: &[(usize, u32)],
        pushes: bool,
    ) -> Result<Option<Epoch>, NearestError> {
        let mut running: Vec<Searching<'_>> = Vec::with_capacity(asked.len());
        for (part, limit) in asked {
            let Some(sub) = parts.get(*part) else { continue };
            let search = self.search(self.part(sub), *limit, pushes);
            running.push(Box::pin(searches.run(sub.plan.clone(), search)));
        }
        for ((part, _), answers) in asked.iter().zip(join_all(running).await) {
            match answers {
                Ok(answers) => self.collector.rounds.answered(*part, answers),
                Err(SearchError::Outdated(needed)) => return Ok(Some(needed)),
                Err(SearchError::Failed(error)) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Returns true if the most selective predicate has few matches, by the estimates of the first part's replicas.
    async fn matches_are_few(
        &self,
        searches: &RangeSearch<'_>,
        first: Option<&SubRange>,
    ) -> Result<bool, SearchError> {
        let Some(first) = first else { return Ok(false) };
        let search = IndexSearch {
            command: self.part(first),
            predicates: self.order.predicates.to_vec(),
            matching: Matching::EstimateOnly,
            limits: SearchLimits { keys: 1, bytes: 1, scanned: 1 },
        };
        let matches: Matches = searches.matches(first.plan.clone(), search).await?;
        let few = matches.estimates.iter().min().copied().unwrap_or(u64::MAX);
        self.note(|| format!("Index restrictions have about {few} candidates"));
        Ok(few <= MATCHES_READ_MAX)
    }

    /// Reads all rows that a predicate's index names.
    async fn read_matches(&mut self) -> Result<(), NearestError> {
        self.begin(0, true);
        let indexed = IndexOrder {
            table: self.order.table,
            predicates: self.order.predicates,
            replicas: self.order.replicas,
            trace: self.order.trace,
            rows_wanted: usize::MAX,
        };
        let read = self.this.read(self.command, &indexed, &mut self.collector).await?;
        self.add(&read.stats)
    }

    /// Reads everything.
    async fn scan(&mut self) -> Result<(), NearestError> {
        self.note(|| "Reading all rows: searches by vector would give too many".to_owned());
        self.begin(0, true);
        let indexed = self.by_name();
        let stats = self.this.read_command(self.command, &indexed, &mut self.collector).await?;
        self.add(&stats)
    }

    fn by_name(&self) -> IndexOrder<'a> {
        IndexOrder {
            table: self.order.table,
            predicates: &[],
            replicas: self.order.replicas,
            trace: self.order.trace,
            rows_wanted: usize::MAX,
        }
    }

    /// Reads the candidates of a round by name.
    async fn read_candidates(&mut self) -> Result<(), NearestError> {
        let candidates = self.collector.rounds.candidates();
        let keys: usize = candidates.iter().map(index_format::MatchedPartition::keys).sum();
        self.this.inner.candidates.add(keys as u64);
        self.note(|| format!("Vector searches found {keys} candidate rows"));
        let indexed = self.by_name();
        let mut reads = IndexRead::new(self.this, self.command, &indexed, &mut self.collector);
        reads.read_named(candidates).await?;
        reads.stream.finish();
        let stats = reads.stats;
        self.add(&stats)
    }

    /// Adds the cost of a read, and checks the room of the rows.
    fn add(&mut self, stats: &ReadStats) -> Result<(), NearestError> {
        replica::add_stats(&mut self.stats, stats);
        match self.collector.is_too_large {
            true => Err(NearestError::TooLarge),
            false => Ok(()),
        }
    }
}
