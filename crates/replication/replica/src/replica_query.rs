//! The query that a shard answers as a replica.

use data::command::ReadCommand;
use data::replica_page::PageLimits;
use stdx::DeletionSeconds;
use store::ReadScope;

/// A replica's read of one shard's data.
#[derive(Clone, Debug)]
pub struct ReplicaQuery {
    /// Command to execute; the owner restricts its partitions to its own.
    pub command: ReadCommand,
    /// Where the page ends.
    pub limits: PageLimits,
    /// Tombstones made before this are left out.
    pub purge_before: DeletionSeconds,
    /// Part of the table that the query sees.
    pub scope: ReadScope,
}
