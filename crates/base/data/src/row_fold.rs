//! Results that are made of rows where they lie.

use std::any::Any;
use std::fmt::Debug;

use stdx::Token;

use crate::row::RowRef;

/// What a fold has of rows that are no result yet: it goes with the next page of the same shard, and at the end
/// to whoever asked. Only the fold that made it knows what it is.
pub type FoldState = Box<dyn Any + Send>;

/// What is made of the rows of a read, by each shard of its own, in their order. A partition is of one shard, so
/// what is made of rows of one partition is whole; what is left in the end of all shards, the asker puts together.
///
/// It crosses shards, so it holds nothing of the one that made it.
pub trait RowFold: Debug + Send + Sync {
    /// What a shard needs while it folds.
    fn on_shard(&self) -> Box<dyn ShardFold>;

    /// Appends what a fold has left, for a shard of another node; false: it is none of this fold.
    fn encode_state(&self, state: &FoldState, out: &mut Vec<u8>) -> bool;

    /// What [`RowFold::encode_state`] has appended; `None`: the bytes are none of this fold.
    fn decode_state(&self, bytes: &[u8]) -> Option<FoldState>;

    /// Whether bytes that another node gives for a result of this fold may be one: see [`FoldResult::bytes`].
    fn is_result(&self, bytes: &[u8]) -> bool;
}

/// A fold on one shard.
pub trait ShardFold {
    /// Begins a page where the page before ended, with what that one left. Results are appended to `out`.
    fn begin<'a>(&'a self, state: Option<FoldState>, out: &'a mut Vec<u8>)
    -> Box<dyn Folding + 'a>;
}

/// A page under way. It is told what a sink of a read is told; the partition that the page before ended in is
/// told again when there is more of it.
pub trait Folding {
    /// A partition begins, or goes on.
    fn partition(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> FoldFlow;

    /// A live row of it.
    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> FoldFlow;

    /// The partition is over.
    fn partition_end(&mut self) -> FoldFlow;

    /// Nothing follows, on this page or another.
    fn end(&mut self);

    /// What the last call has made, at most one result.
    fn take_result(&mut self) -> Option<FoldResult<'_>>;

    /// Ends the page.
    fn finish(self: Box<Self>) -> FoldEnd;
}

/// What a fold wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoldFlow {
    /// Go on.
    Continue,
    /// Nothing more of this partition; its end is still told.
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
    /// Clustering of the last row that it was made of; `None`: the partition is done with it.
    pub last: Option<&'a [u8]>,
    /// What it is.
    pub bytes: &'a [u8],
}

/// How a page of a fold ended.
#[derive(Debug, Default)]
pub struct FoldEnd {
    /// For the next page, or for whoever asked.
    pub state: Option<FoldState>,
    /// It cannot be done this way: whoever asked reads the rows instead, and finds out why.
    pub is_failed: bool,
    /// Rows that a filter left out.
    pub dropped_rows: u64,
    /// Partitions of which it left out all.
    pub dropped_partitions: u64,
}
