//! Reads for repair: stretches of a table with their deletions, without a reader's limits.

use cluster::ClusterSnapshot;
use data::command::{Partitions, ReadCommand};
use data::replica_page::PageLimits;
use internode::{ErrorReply, ReadRequest};
use stdx::{Epoch, Instant};
use store::{ReadScope, StoreError};

use super::shards::ReplicaQuery;
use crate::Coordinator;

impl Coordinator {
    /// The page of this node that a peer asks for, as the verbs `Read` and `RangeRead` answer it, of
    /// what the scope sees.
    ///
    /// # Errors
    /// What the peer is told: unknown table, metadata apart, invalid bounds, trouble of the store.
    pub async fn read_as_replica(
        &self,
        read: ReadRequest,
        epoch: Epoch,
        deadline: Instant,
        scope: ReadScope,
    ) -> Result<Vec<u8>, ErrorReply> {
        self.answer_read(read, (epoch, deadline), scope, None).await
    }

    /// A page of what this node has, of about so many bytes over all shards. Where it ends depends
    /// on the number of shards, and nothing is read that it does not show but what the shards have
    /// behind the first one's end.
    ///
    /// # Errors
    /// `UnknownTable`; as [`store::Store::read_replica`]. An error of the store is noted there.
    pub async fn read_stretch(
        &self,
        snapshot: &ClusterSnapshot,
        command: ReadCommand,
        bytes: usize,
        scope: ReadScope,
    ) -> Result<Vec<u8>, StoreError> {
        let Some(table) = self.inner.reading.tables.get(snapshot, command.table) else {
            return Err(StoreError::UnknownTable(command.table));
        };
        let shards = match &command.partitions {
            Partitions::Key(_) => 1,
            Partitions::Range(_) => usize::from(self.inner.rt.shard_count().max(1)),
        };
        let limits = PageLimits { bytes: (bytes / shards).max(1), ..PageLimits::default() };
        let purge_before = table.purge_before(&self.inner.store, command.now);
        let query = ReplicaQuery { command, limits, purge_before, scope };
        let whole = PageLimits {
            bytes: if shards == 1 { bytes } else { usize::MAX },
            ..PageLimits::default()
        };
        self.read_node_within(&table.shape, query, (whole, None)).await.inspect_err(|error| {
            self.inner.store.note_failure(error);
        })
    }
}
