//! Searches: which keys of a table an index is asked for, and the answer of a shard, a node or several nodes.
//!
//! Owns: the values of the request and of its answer. Never: how a shard searches, the bytes between nodes, which
//! replicas are asked.
//!
//! INV-search-1: an answer holds every match of its predicates up to its frontier, and the frontier lies after the start
//! of the search. So a search that continues at the frontier misses nothing, and ends.

use std::cmp::Ordering;

use data::command::ReadCommand;
use stdx::{Token, Uuid};

use crate::{TermFilter, TermRange};

/// An indexed restriction: a row satisfies it if one of its terms is in one of the ranges and passes the filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexPredicate {
    /// Id of the index.
    pub index: Uuid,
    /// Ranges of encoded terms; none: no row satisfies it.
    pub ranges: Vec<TermRange>,
    /// Test of the terms in the ranges; `None`: all pass. With one, every term in the ranges is read.
    pub filter: Option<TermFilter>,
}

/// A request for the keys of rows that satisfy predicates.
#[derive(Clone, Debug)]
pub struct IndexSearch {
    /// Table, partitions, the clustering to continue after (`resume`), slices outside of which no row is wanted, the
    /// clock. Never reversed. Its columns do not matter.
    pub command: ReadCommand,
    /// The predicates, at least one.
    pub predicates: Vec<IndexPredicate>,
    /// Which of them must hold.
    pub matching: Matching,
    /// Bounds of the answer.
    pub limits: SearchLimits,
}

/// Which predicates a key must satisfy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matching {
    /// This one alone, by its position. What several replicas may be asked: parts of a row that satisfy different
    /// predicates may lie on different replicas.
    Driving(usize),
    /// All of them. Exact where one replica's rows are the answer.
    Intersection,
    /// No keys are wanted, only estimates. The frontier is [`Frontier::Done`].
    EstimateOnly,
}

/// Bounds of a search; beyond one the answer ends with a frontier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchLimits {
    /// Most keys of rows, at least 1.
    pub keys: u32,
    /// Bytes of keys after which the answer ends.
    pub bytes: u64,
    /// Rows that are looked at after which the answer ends: those of sources without an index, and candidates of one
    /// predicate that others do not have.
    pub scanned: u64,
}

/// Answer to an [`IndexSearch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matches {
    /// Candidates in table order (token, key, clustering), each once. A row may have lost the value since: the caller
    /// reads and filters each.
    pub partitions: Vec<MatchedPartition>,
    /// Position up to which all matches are given.
    pub frontier: Frontier,
    /// Candidates of each predicate in the table's files and memtables of the shards asked, about.
    pub estimates: Vec<u64>,
    /// Rows there, about; 0: unknown.
    pub rows: u64,
}

impl Matches {
    /// No match in the whole range; so many predicates.
    pub fn none(predicates: usize) -> Matches {
        let estimates = vec![0; predicates];
        Matches { partitions: Vec::new(), frontier: Frontier::Done, estimates, rows: 0 }
    }

    /// Number of keys; a whole partition counts as one.
    pub fn keys(&self) -> usize {
        self.partitions.iter().map(MatchedPartition::keys).sum()
    }
}

/// Candidates of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchedPartition {
    /// Token of the key.
    pub token: Token,
    /// Serialised partition key.
    pub key: Vec<u8>,
    /// Which of its rows.
    pub rows: MatchedRows,
}

impl MatchedPartition {
    /// Number of keys; a whole partition counts as one.
    pub fn keys(&self) -> usize {
        match &self.rows {
            MatchedRows::Whole => 1,
            MatchedRows::Rows(rows) => rows.len(),
        }
    }
}

/// Candidates within a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatchedRows {
    /// All rows: the match is the static row or a part of the partition key.
    Whole,
    /// The rows of these clusterings, serialised as in read commands; ascending in the order of the table.
    Rows(Vec<Vec<u8>>),
}

/// Most rows that a search by a vector gives.
pub const VECTOR_ROWS_MAX: u32 = 65_536;

/// A request for the rows whose vectors are nearest to a vector.
#[derive(Clone, Debug)]
pub struct VectorSearch {
    /// Table, partitions, slices outside of which no row is wanted, the clock. Never reversed, without a position to
    /// continue after. Its columns do not matter.
    pub command: ReadCommand,
    /// Id of the index of the vectors.
    pub index: Uuid,
    /// The vector.
    pub vector: Vec<f32>,
    /// Most rows, 1 to [`VECTOR_ROWS_MAX`].
    pub limit: u32,
    /// Predicates that a row must satisfy, all of them.
    pub predicates: Vec<IndexPredicate>,
}

/// A row and how near its vector is.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbour {
    /// Score of the vector that the row has: larger is nearer.
    pub score: f32,
    /// Token of the key.
    pub token: Token,
    /// Serialised partition key.
    pub key: Vec<u8>,
    /// Clustering, serialised as in read commands. `None`: the table has no clustering columns.
    pub clustering: Option<Vec<u8>>,
}

/// Answer to a [`VectorSearch`].
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbours {
    /// Rows that satisfy all predicates, nearest first, each once. Rows of equal scores in table order.
    pub rows: Vec<Neighbour>,
    /// No further row qualifies, whatever the limit.
    pub is_exhausted: bool,
}

impl Neighbours {
    /// No row qualifies.
    pub fn none() -> Neighbours {
        Neighbours { rows: Vec::new(), is_exhausted: true }
    }

    /// The nearest of the answers of several shards or ranges, at most `limit`. `order`: of rows in the table.
    pub fn merged(
        parts: Vec<Neighbours>,
        limit: usize,
        order: impl Fn(&Neighbour, &Neighbour) -> Ordering,
    ) -> Neighbours {
        let mut is_exhausted = parts.iter().all(|part| part.is_exhausted);
        let mut rows: Vec<Neighbour> = parts.into_iter().flat_map(|part| part.rows).collect();
        rows.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| order(a, b)));
        is_exhausted &= rows.len() <= limit;
        rows.truncate(limit);
        Neighbours { rows, is_exhausted }
    }
}

/// Position up to which a search is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frontier {
    /// The end of what was asked for.
    Done,
    /// All lower tokens, not this one.
    Before {
        /// The token.
        token: Token,
    },
    /// The end of this partition.
    After {
        /// Token of the key.
        token: Token,
        /// Serialised partition key.
        key: Vec<u8>,
    },
    /// This clustering of this partition, itself included.
    Inside {
        /// Token of the key.
        token: Token,
        /// Serialised partition key.
        key: Vec<u8>,
        /// Serialised clustering.
        clustering: Vec<u8>,
    },
}
