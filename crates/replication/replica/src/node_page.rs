//! The page of one node: the pages of its shards merged into one, as if the node had one shard.
//!
//! INV-reading-1: the page of a node depends on its content and the limits, not on its number of
//! shards: digests of nodes with different numbers of shards can be compared.

use data::command::Partitions;
use data::page_cursor::{PageChain, PageCursor, PageStops};
use data::replica_page::{FilteredPage, PageFlow, PageLimits, PageWriter, ReplicaPage};
use data::{Advance, Cursor, Item, MergeCursor, MergeMode, RowFilter, TableShape};
use stdx::ShardId;
use store::{ReplicaRead, StoreError};

use crate::node::Node;
use crate::replica_query::ReplicaQuery;
use crate::resume::resumed;
use crate::shard_reads::ShardReads;

/// A node's part of a read.
pub struct NodePage {
    /// Encoded.
    pub page: Vec<u8>,
    /// The rows of it that pass the requested filter.
    pub filtered: Option<FilteredPage>,
}

impl NodePage {
    fn of(read: ReplicaRead) -> NodePage {
        NodePage { page: read.page, filtered: read.filtered }
    }
}

/// A read of one node, of all its shards that have something of it.
pub struct NodeRead<'a> {
    shape: &'a TableShape,
    query: ReplicaQuery,
    limits: PageLimits,
    notes: Option<&'a ShardReads>,
    filter: Option<&'a dyn RowFilter>,
}

impl<'a> NodeRead<'a> {
    /// The page of the node has the limits of the query.
    pub fn new(shape: &'a TableShape, query: ReplicaQuery) -> NodeRead<'a> {
        NodeRead { shape, limits: query.limits, query, notes: None, filter: None }
    }

    /// The pages of the shards have the limits of the query, the page of the node has these: it ends there, or where
    /// the first of the shards' pages does.
    #[must_use]
    pub fn within(mut self, limits: PageLimits) -> NodeRead<'a> {
        self.limits = limits;
        self
    }

    /// Records the reads of each shard in `notes`.
    #[must_use]
    pub fn noted(mut self, notes: Option<&'a ShardReads>) -> NodeRead<'a> {
        self.notes = notes;
        self
    }

    /// For a range: also returns the rows that pass this filter.
    #[must_use]
    pub fn filtered(mut self, filter: Option<&'a dyn RowFilter>) -> NodeRead<'a> {
        self.filter = filter;
        self
    }

    /// Reads it.
    ///
    /// # Errors
    /// Those of [`crate::Replica::read`], of the first shard that fails.
    pub async fn read<N: Node>(self, node: &N) -> Result<NodePage, StoreError> {
        let env = node.env();
        let (shards, own) = (env.rt.shard_count(), env.rt.shard());
        let NodeRead { shape, query, limits, notes, filter } = self;
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
                let owner = env.shard_map().shard_of(query.command.table, token);
                let read = match owner == own {
                    true => env.replica.read(&query, None).await?,
                    false => node.replica_page_of(owner, query).await?,
                };
                Ok(noted(owner, read))
            }
            Partitions::Range(_) if shards == 1 => {
                Ok(noted(own, env.replica.read(&query, filter).await?))
            }
            Partitions::Range(_) => {
                // The others begin before this shard reads its own.
                let others: Vec<_> = (0..shards)
                    .map(ShardId)
                    .filter(|shard| *shard != own)
                    .map(|shard| (shard, node.replica_page_of(shard, query.clone())))
                    .collect();
                let mut pages = vec![noted(own, env.replica.read(&query, None).await?).page];
                for (shard, other) in others {
                    pages.push(noted(shard, other.await?).page);
                }
                merge_shards(&NodeRead { shape, query, limits, notes, filter }, &pages)
            }
        }
    }
}

/// Merges the pages of all shards up to where the first of them ends. A page that ended at a limit
/// holds as much as the limit allows, so the merge meets the limit there or before, where the page
/// of a node with one shard would have ended.
fn merge_shards(of: &NodeRead<'_>, pages: &[Vec<u8>]) -> Result<NodePage, StoreError> {
    let NodeRead { shape, query, limits, filter, .. } = of;
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
    let mut writer = PageWriter::new(shape, reversed, now, counts_static, *limits);
    if let Some(filter) = filter {
        writer.filter(*filter);
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
