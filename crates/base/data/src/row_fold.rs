//! Results that are computed from rows where they are stored.

use std::any::Any;
use std::fmt::Debug;

use stdx::Token;

use crate::row::RowRef;

/// Intermediate state of a fold over rows. It travels with the next page of the same shard, and at
/// the end to the caller. Only the fold that created it can interpret it.
pub type FoldState = Box<dyn Any + Send>;

/// A fold over the rows of a read, done by each shard separately, in row order. A partition belongs
/// to one shard, so the result for the rows of one partition is complete. The caller merges the
/// final states of all shards.
///
/// It crosses shards, so it holds nothing of the one that made it.
pub trait RowFold: Debug + Send + Sync {
    /// Creates the state that a shard needs while it folds.
    fn on_shard(&self) -> Box<dyn ShardFold>;

    /// Appends the state of a fold, for a shard of another node; false: it is none of this fold.
    fn encode_state(&self, state: &FoldState, out: &mut Vec<u8>) -> bool;

    /// Decodes the output of [`RowFold::encode_state`]; `None`: the bytes are none of this fold.
    fn decode_state(&self, bytes: &[u8]) -> Option<FoldState>;

    /// Returns true if bytes that another node sends may be a result of this fold: see
    /// [`FoldResult::bytes`].
    fn is_result(&self, bytes: &[u8]) -> bool;
}

/// A fold on one shard.
pub trait ShardFold {
    /// Begins a page where the previous page ended, with its final state. Results are appended to
    /// `out`.
    fn begin<'a>(&'a self, state: Option<FoldState>, out: &'a mut Vec<u8>)
    -> Box<dyn Folding + 'a>;
}

/// Folding of one page in progress. It is called as the sink of a read is. The partition in which
/// the previous page ended is announced again when more of it follows.
pub trait Folding {
    /// A partition begins, or continues.
    fn partition(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> FoldFlow;

    /// A live row of it.
    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> FoldFlow;

    /// The partition is over.
    fn partition_end(&mut self) -> FoldFlow;

    /// Nothing follows, on this page or another.
    fn end(&mut self);

    /// Takes the result of the last call, at most one.
    fn take_result(&mut self) -> Option<FoldResult<'_>>;

    /// Ends the page.
    fn finish(self: Box<Self>) -> FoldEnd;
}

/// Next request of a fold to its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoldFlow {
    /// Go on.
    Continue,
    /// Nothing more of this partition; its end is still reported.
    SkipPartition,
    /// Nothing more at all.
    Stop,
}

/// One result.
#[derive(Clone, Copy, Debug)]
pub struct FoldResult<'a> {
    /// The partition that it is of.
    pub token: Token,
    /// Its key.
    pub key: &'a [u8],
    /// Clustering of the last row in the result; `None`: the partition is complete.
    pub last: Option<&'a [u8]>,
    /// The encoded result.
    pub bytes: &'a [u8],
}

/// How a page of a fold ended.
#[derive(Debug, Default)]
pub struct FoldEnd {
    /// State for the next page, or for the caller.
    pub state: Option<FoldState>,
    /// The fold cannot be done this way: the caller reads the rows instead, and finds the cause.
    pub is_failed: bool,
    /// Rows that a filter left out.
    pub dropped_rows: u64,
    /// Partitions that it left out entirely.
    pub dropped_partitions: u64,
}
