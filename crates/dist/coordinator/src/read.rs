//! Reads: straight into the sink when this shard owns all of it, else page by page.

use data::command::{KeyRange, Partitions, ReadCommand, ResumePosition, RingBound};
use stdx::{ShardId, Token};
use store::{Flow, ReadStats, RowSink, StoreError};

use crate::page::{PackedPage, PageItem};
use crate::read_trace::{ReadTrace, ShardReads};
use crate::{Coordinator, PageLimit, ShardReply, ShardRequest, mesh_error};

impl Coordinator {
    /// Reads into `sink`, from this shard or others; partitions of a range come in ring order.
    /// `rows_wanted` bounds what is fetched ahead from other shards.
    ///
    /// # Errors
    /// As [`store::Store::read`]; `Overloaded` when another shard's queue is full.
    pub async fn read<S: RowSink>(
        &self,
        command: &ReadCommand,
        rows_wanted: usize,
        sink: &mut S,
    ) -> Result<ReadStats, StoreError> {
        let shards = self.inner.rt.shard_count();
        match &command.partitions {
            _ if shards == 1 => self.inner.store.read(command, sink).await,
            Partitions::Key(key) => {
                let owner = self.owner(codec::token_of(key));
                if owner == self.inner.rt.shard() {
                    return self.inner.store.read(command, sink).await;
                }
                // Boxed, so that reads of this shard do not carry its size around.
                let mut source = Box::new(Source::new(owner, command.clone(), rows_wanted));
                Box::pin(self.replay(std::slice::from_mut(&mut *source), None, sink)).await
            }
            Partitions::Range(_) => {
                let mut sources: Vec<Source> = (0..shards)
                    .map(|s| Source::new(ShardId(s), command.clone(), rows_wanted))
                    .collect();
                Box::pin(self.replay(&mut sources, None, sink)).await
            }
        }
    }

    /// As [`Coordinator::read`]; what each shard reads is added to a trace.
    ///
    /// # Errors
    /// As [`Coordinator::read`].
    pub async fn read_noted<S: RowSink>(
        &self,
        command: &ReadCommand,
        (rows_wanted, trace): (usize, &ReadTrace),
        sink: &mut S,
    ) -> Result<ReadStats, StoreError> {
        let (own, shards) = (self.inner.rt.shard(), self.inner.rt.shard_count());
        let readers = match &command.partitions {
            _ if shards == 1 => own.0..own.0 + 1,
            Partitions::Key(key) => {
                let owner = self.owner(codec::token_of(key)).0;
                owner..owner + 1
            }
            Partitions::Range(_) => 0..shards,
        };
        if readers == (own.0..own.0 + 1) {
            let stats = self.inner.store.read(command, sink).await?;
            trace.shards.add(own, &stats, None);
            return Ok(stats);
        }
        let source = |s| Source::new(ShardId(s), command.clone(), rows_wanted);
        let mut sources: Vec<Source> = readers.map(source).collect();
        Box::pin(self.replay(&mut sources, Some(&trace.shards), sink)).await
    }

    /// Shows the sources' partitions to the sink in ring order, fetching pages as needed.
    async fn replay<S: RowSink>(
        &self,
        sources: &mut [Source],
        notes: Option<&ShardReads>,
        sink: &mut S,
    ) -> Result<ReadStats, StoreError> {
        let mut replay = Replay { stats: ReadStats::default(), notes };
        loop {
            for source in sources.iter_mut() {
                self.fill(source, &mut replay).await?;
            }
            let first = sources
                .iter()
                .enumerate()
                .filter_map(|(i, s)| s.head().map(|(token, key)| (token, key, i)))
                .min_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)))
                .map(|(_, _, i)| i);
            let Some(source) = first.and_then(|i| sources.get_mut(i)) else {
                return Ok(replay.stats);
            };
            if self.replay_partition(source, sink, &mut replay).await? == Flow::Stop {
                return Ok(replay.stats);
            }
        }
    }

    /// Shows one partition to the sink; it may span pages of its source.
    async fn replay_partition<S: RowSink>(
        &self,
        source: &mut Source,
        sink: &mut S,
        replay: &mut Replay<'_>,
    ) -> Result<Flow, StoreError> {
        let Some((PageItem::Partition { token, key, static_row }, next)) =
            source.page.item(source.at)
        else {
            return Ok(Flow::Stop);
        };
        let mut flow = sink.partition(token, key, static_row);
        replay.stats.partitions = replay.stats.partitions.saturating_add(1);
        let key = key.to_vec();
        source.at = next;
        source.last = Some(Last { token, key, clustering: None });
        while flow != Flow::Stop {
            if let Some((PageItem::Row { clustering, row }, next)) = source.page.item(source.at) {
                if flow == Flow::Continue {
                    flow = sink.row(clustering, row);
                    replay.stats.rows = replay.stats.rows.saturating_add(1);
                }
                if let Some(last) = &mut source.last {
                    let kept = last.clustering.get_or_insert_default();
                    kept.clear();
                    kept.extend_from_slice(clustering);
                }
                source.at = next;
            } else if source.page.item(source.at).is_some() || !source.page.more {
                break;
            } else if flow == Flow::SkipPartition {
                if let Some(last) = &mut source.last {
                    last.clustering = None;
                }
                break;
            } else {
                // The page ended at its limit: the partition may go on in the next one.
                self.fetch(source, replay).await?;
                if !source.continues_last_partition() {
                    break;
                }
                source.at = source.page.item(source.at).map_or(source.at, |(_, next)| next);
            }
        }
        if flow == Flow::Stop || sink.partition_end() == Flow::Stop {
            return Ok(Flow::Stop);
        }
        Ok(Flow::Continue)
    }

    /// Makes sure that the source shows its next partition, or is at its end.
    async fn fill(&self, source: &mut Source, replay: &mut Replay<'_>) -> Result<(), StoreError> {
        while source.page.item(source.at).is_none() && source.page.more {
            self.fetch(source, replay).await?;
        }
        Ok(())
    }

    async fn fetch(&self, source: &mut Source, replay: &mut Replay<'_>) -> Result<(), StoreError> {
        source.at = 0;
        source.page = PackedPage::default();
        if !source.move_past_last() {
            return Ok(());
        }
        let command = Box::new(source.command.clone());
        let request = ShardRequest::Read { command, limit: source.limit };
        source.page = match self.inner.mesh.call(&self.inner.rt, source.shard, request).await {
            Ok(ShardReply::Page(page)) => page?,
            Ok(other) => stdx::invariant::broken(format_args!("read answered by {other:?}")),
            Err(error) => return Err(mesh_error(error)),
        };
        let made = &source.page.stats;
        let tombstones = replay.stats.tombstones.saturating_add(made.tombstones);
        replay.stats.tombstones = tombstones;
        if let Some(notes) = replay.notes {
            notes.add(source.shard, made, Some(source.page.len()));
        }
        Ok(())
    }
}

/// What a read of several shards has cost so far.
struct Replay<'n> {
    /// Rows and partitions are those that were shown, not all that came with a page.
    stats: ReadStats,
    notes: Option<&'n ShardReads>,
}

/// What is left of one shard's part of a read.
struct Source {
    shard: ShardId,
    command: ReadCommand,
    limit: PageLimit,
    page: PackedPage,
    at: usize,
    last: Option<Last>,
}

/// The last item that was taken from a source.
struct Last {
    token: Token,
    key: Vec<u8>,
    /// The last row of the partition; `None` when nothing more of the partition is wanted.
    clustering: Option<Vec<u8>>,
}

impl Source {
    /// A source that was asked nothing yet: its empty page says that there is more.
    fn new(shard: ShardId, command: ReadCommand, rows_wanted: usize) -> Source {
        let limit = PageLimit { rows: rows_wanted.max(1), ..PageLimit::default() };
        let page = PackedPage { more: true, ..PackedPage::default() };
        Source { shard, command, limit, page, at: 0, last: None }
    }

    fn head(&self) -> Option<(Token, &[u8])> {
        match self.page.item(self.at)?.0 {
            PageItem::Partition { token, key, .. } => Some((token, key)),
            PageItem::Row { .. } => None,
        }
    }

    fn continues_last_partition(&self) -> bool {
        match (self.head(), &self.last) {
            (Some((_, key)), Some(last)) => key == last.key,
            _ => false,
        }
    }

    /// Moves the command's start behind what was already taken; false when nothing can be left.
    fn move_past_last(&mut self) -> bool {
        let Some(last) = &self.last else { return true };
        let inside = last.clustering.is_some();
        match &mut self.command.partitions {
            Partitions::Key(_) if !inside => return false,
            Partitions::Key(_) => {}
            Partitions::Range(KeyRange { start, .. }) => {
                let key = last.key.clone();
                *start = RingBound::Key { token: last.token, key, after: !inside };
            }
        }
        let rows_in_partition = self.command.resume.as_ref().map_or(0, |r| r.rows_in_partition);
        self.command.resume = inside
            .then(|| ResumePosition { clustering: last.clustering.clone(), rows_in_partition });
        true
    }
}
