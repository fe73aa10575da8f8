//! The other shards of this node, for the partitions that they own.

use std::future::Future;

use data::command::ReadCommand;
use paxos::Ballot;
use paxos::queue::Left;
use replica::Node;
use rt::MeshError;
use stdx::ShardId;
use store::{ReadStats, RowSink, StoreError};

use crate::acceptors::{Answered, Ask};
use crate::paxos_row::Partition;
use crate::proposal_queue::{NoTurn, TurnWish};

/// Request to the shard that owns a partition.
#[derive(Debug)]
pub enum ShardRequest {
    /// Ask the acceptor of a partition.
    Acceptor(Box<Ask>),
    /// Wait for a turn to propose.
    Turn(Box<TurnWish>),
    /// Ends a turn, by its number; `Left` is its outcome.
    TurnEnd(Box<Partition>, u64, Left),
    /// Write promises to their rows, and promise this to every partition.
    Promises(Ballot),
}

/// Answer to a [`ShardRequest`].
#[derive(Debug)]
pub enum ShardReply {
    /// To `Acceptor`.
    Acceptor(Result<Answered, StoreError>),
    /// To `Turn`: the turn's number.
    Turn(Result<u64, NoTurn>),
    /// To `TurnEnd`.
    TurnEnded,
    /// To `Promises`: the promise to every partition.
    Promises(Result<Ballot, StoreError>),
}

/// Access to the other shards of this node, which lightweight transactions need.
pub trait Shards: Node {
    /// Sends a request to another shard; it is sent when this returns.
    fn lwt(
        &self,
        shard: ShardId,
        request: ShardRequest,
    ) -> impl Future<Output = Result<ShardReply, MeshError>> + 'static;

    /// Reads ordinary rows of all shards.
    fn read<S: RowSink>(
        &self,
        command: &ReadCommand,
        sink: &mut S,
    ) -> impl Future<Output = Result<ReadStats, StoreError>>;
}

/// A call to another shard that was not answered.
pub(crate) fn mesh_error(error: MeshError) -> StoreError {
    match error {
        MeshError::Full => StoreError::QueueFull,
        MeshError::Closed => StoreError::Stopping,
    }
}
