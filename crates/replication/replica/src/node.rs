//! The other shards of this node, as seen from one of them.

use std::future::Future;

use index_format::{IndexSearch, Matches, Neighbours, VectorSearch};
use stdx::ShardId;
use store::{ReplicaRead, StoreError};

use crate::env::Env;
use crate::packed_page::PackedPage;
use crate::packed_read::PackedRead;
use crate::replica_query::ReplicaQuery;

/// A shard that can send requests to the other shards of its node. A request is sent when the
/// method returns.
pub trait Node: Clone + 'static {
    /// The environment of this shard.
    fn env(&self) -> &Env;

    /// Reads as a replica on a shard of this node, which may be this one.
    fn replica_page_of(
        &self,
        shard: ShardId,
        query: ReplicaQuery,
    ) -> impl Future<Output = Result<ReplicaRead, StoreError>> + 'static;

    /// Searches indexes on another shard of this node.
    fn matches_of(
        &self,
        shard: ShardId,
        search: IndexSearch,
    ) -> impl Future<Output = Result<Matches, StoreError>> + 'static;

    /// Searches the nearest rows of another shard of this node.
    fn neighbours_of(
        &self,
        shard: ShardId,
        search: VectorSearch,
    ) -> impl Future<Output = Result<Neighbours, StoreError>> + 'static;

    /// Requests a packed page from another shard of this node.
    fn packed_page_of(
        &self,
        shard: ShardId,
        read: PackedRead,
    ) -> impl Future<Output = Result<PackedPage, StoreError>> + 'static;
}
