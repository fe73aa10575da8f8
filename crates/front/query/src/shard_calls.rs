//! Calls between the executors of one node's shards; their owner provides the transport.

use rt::MeshError;
use std::future::Future;
use std::pin::Pin;
use stdx::ShardId;
use truncation::{ShardReply, ShardRequest};

/// A call to another shard.
pub type ShardCall<T> = Pin<Box<dyn Future<Output = Result<T, MeshError>>>>;

/// The way to the executors of the other shards.
pub trait ShardCalls {
    /// Has a shard prepare a statement, so that any connection can execute it.
    fn prepare(&self, shard: ShardId, text: String, keyspace: Option<String>) -> ShardCall<()>;

    /// Hashes a password on the shard that owns the threads for it, if that is another one.
    fn hash_password(&self, password: String) -> ShardCall<std::result::Result<String, String>>;

    /// Asks the truncations of a shard.
    fn truncations(&self, shard: ShardId, request: ShardRequest) -> ShardCall<ShardReply>;
}
