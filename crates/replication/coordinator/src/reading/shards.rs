//! What one node has of a read: the pages of its shards made into one, as if it had one shard.
//!
//! INV-reading-1: the page of a node depends on its content and the limits, not on its number of
//! shards: digests of nodes with different numbers of shards can be compared.

use data::command::{Partitions, ReadCommand};
use data::page_cursor::{PageChain, PageCursor, PageStops};
use data::replica_page::{FilteredPage, PageFlow, PageLimits, PageWriter, ReplicaPage};
use data::{Advance, Cursor, Item, MergeCursor, MergeMode, RowFilter, TableShape};
use stdx::{DeletionSeconds, ShardId};
use store::{ReadScope, ReplicaRead, StoreError};

use super::slot::resumed;
use crate::read_trace::ShardReads;
use crate::{Coordinator, ShardReply, ShardRequest, mesh_error};

/// A replica's read of one shard's data.
#[derive(Clone, Debug)]
pub struct ReplicaQuery {
    /// What to read; its partitions are restricted by the owner to its own.
    pub command: ReadCommand,
    /// Where the page ends.
    pub limits: PageLimits,
    /// Tombstones made before this are left out.
    pub purge_before: DeletionSeconds,
    /// What of the table it sees.
    pub scope: ReadScope,
}

/// What one node has of a read.
pub(super) struct NodePage {
    /// Encoded.
    pub(super) page: Vec<u8>,
    /// What of it passes the filter that was asked for.
    pub(super) filtered: Option<FilteredPage>,
}

impl NodePage {
    fn of(read: ReplicaRead) -> NodePage {
        NodePage { page: read.page, filtered: read.filtered }
    }
}

impl Coordinator {
    /// Reads what this shard has.
    pub(crate) async fn read_own_shard(
        &self,
        query: &ReplicaQuery,
    ) -> Result<ReplicaRead, StoreError> {
        self.read_own_filtered(query, None).await
    }

    async fn read_own_filtered(
        &self,
        query: &ReplicaQuery,
        filter: Option<&dyn RowFilter>,
    ) -> Result<ReplicaRead, StoreError> {
        let ReplicaQuery { command, limits, purge_before, scope } = query;
        let (counts_static, store) = (command.wants_static, &self.inner.store);
        if *scope != ReadScope::All {
            return store.reader().read_for_repair(command, *limits, *purge_before, *scope).await;
        }
        store
            .reader()
            .read_replica_filtered(command, *limits, (counts_static, *purge_before), filter)
            .await
    }

    async fn read_of_shard(
        &self,
        shard: ShardId,
        query: ReplicaQuery,
    ) -> Result<ReplicaRead, StoreError> {
        if shard == self.inner.rt.shard() {
            return self.read_own_shard(&query).await;
        }
        let request = ShardRequest::Replica(Box::new(query));
        match self.inner.mesh.call(&self.inner.rt, shard, request).await {
            Ok(ShardReply::Replica(read)) => read,
            Ok(other) => stdx::invariant::broken(format_args!("read answered by {other:?}")),
            Err(error) => Err(mesh_error(error)),
        }
    }

    /// The page of this node, and of a range what of it passes a filter. `notes`: what each shard has read for it is
    /// added there.
    pub(super) async fn read_node(
        &self,
        shape: &TableShape,
        query: ReplicaQuery,
        notes: Option<&ShardReads>,
        filter: Option<&dyn RowFilter>,
    ) -> Result<NodePage, StoreError> {
        let limits = query.limits;
        self.page_of_node(shape, query, (limits, notes), filter).await
    }

    /// As [`Coordinator::read_node`]; the pages of the shards have the limits of `query`, the page of
    /// the node has these: it ends there, or where the first of the shards' pages does.
    pub(super) async fn read_node_within(
        &self,
        shape: &TableShape,
        query: ReplicaQuery,
        within: (PageLimits, Option<&ShardReads>),
    ) -> Result<Vec<u8>, StoreError> {
        Ok(self.page_of_node(shape, query, within, None).await?.page)
    }

    async fn page_of_node(
        &self,
        shape: &TableShape,
        query: ReplicaQuery,
        (limits, notes): (PageLimits, Option<&ShardReads>),
        filter: Option<&dyn RowFilter>,
    ) -> Result<NodePage, StoreError> {
        let shards = self.inner.rt.shard_count();
        let own = self.inner.rt.shard();
        let noted = |shard: ShardId, read: ReplicaRead| {
            if let Some(notes) = notes {
                let page = read.filtered.as_ref().map_or(&read.page, |filtered| &filtered.page);
                notes.add(shard, &read.stats, Some(page.len()));
            }
            NodePage::of(read)
        };
        match &query.command.partitions {
            Partitions::Key(key) => {
                let token = codec::token_of(key);
                let owner = self.shard_map().shard_of(query.command.table, token);
                Ok(noted(owner, self.read_of_shard(owner, query).await?))
            }
            Partitions::Range(_) if shards == 1 => {
                Ok(noted(own, self.read_own_filtered(&query, filter).await?))
            }
            Partitions::Range(_) => {
                // The others begin before this shard reads its own.
                let others: Vec<_> = (0..shards)
                    .map(ShardId)
                    .filter(|shard| *shard != own)
                    .map(|shard| {
                        let request = ShardRequest::Replica(Box::new(query.clone()));
                        (shard, self.inner.mesh.call(&self.inner.rt, shard, request))
                    })
                    .collect();
                let mut pages = vec![noted(own, self.read_own_shard(&query).await?).page];
                for (shard, other) in others {
                    match other.await {
                        Ok(ShardReply::Replica(read)) => pages.push(noted(shard, read?).page),
                        Ok(other) => {
                            stdx::invariant::broken(format_args!("read answered by {other:?}"))
                        }
                        Err(error) => return Err(mesh_error(error)),
                    }
                }
                merge_shards(shape, &query, (limits, filter), &pages)
            }
        }
    }
}

/// Merges the pages of all shards up to where the first of them ends. A page that ended at a limit
/// holds as much as the limit allows, so the merge meets the limit there or before, where the page
/// of a node with one shard would have ended.
fn merge_shards(
    shape: &TableShape,
    query: &ReplicaQuery,
    (limits, filter): (PageLimits, Option<&dyn RowFilter>),
    pages: &[Vec<u8>],
) -> Result<NodePage, StoreError> {
    let open = |page| match ReplicaPage::open(page) {
        Ok(page) => PageChain::new(page),
        Err(error) => stdx::invariant::broken(format_args!("page of a shard: {error}")),
    };
    let chains: Vec<PageChain<'_>> = pages.iter().map(|page| open(page)).collect();
    let reversed = query.command.reversed;
    let stops = PageStops::of(&chains, shape, reversed);
    let lanes = chains.iter().map(|chain| PageCursor::new(shape, reversed, chain, &stops));
    let mut merge = MergeCursor::new(shape, MergeMode::All, reversed, lanes);
    let (now, counts_static) = (query.command.now, query.command.wants_static);
    let mut writer = PageWriter::new(shape, reversed, now, counts_static, limits);
    if let Some(filter) = filter {
        writer.filter(filter);
    }
    let resumed = resumed(&query.command);
    loop {
        match merge.advance()? {
            Advance::Item => {}
            Advance::End => break,
            Advance::NeedBlock(_) => {
                stdx::invariant::broken(format_args!("a page's cursor asks for a block"))
            }
        }
        let item = merge.item();
        if let Item::Partition { key, .. } = item
            && let Some((_, rows)) = resumed.filter(|(k, _)| *k == key)
        {
            writer.go_on_behind(rows);
            let resume = query.command.resume.as_ref();
            writer.set_floor(resume.and_then(|resume| resume.clustering.as_deref()));
        }
        match writer.item(&item) {
            PageFlow::Continue => {}
            PageFlow::SkipPartition => merge.skip_partition(),
            PageFlow::Full => break,
        }
    }
    let (page, filtered) = writer.finish_filtered(stops.end);
    Ok(NodePage { page, filtered })
}
