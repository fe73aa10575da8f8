//! Pages shown to a sink as [`store::Store::read`] shows what it finds.

use data::command::ReadCommand;
use data::page_cursor::{PageChain, PageCursor, PageStops};
use data::replica_page::{PageEnd, ReplicaPage, WholePage};
use data::{Advance, Cursor, CursorError, Item, MergeCursor, MergeMode, RowRef, TableShape};
use stdx::{DeletionSeconds, Token};
use store::{Filtered, Flow, Look, LookedAt, ReadStats, RowSink};

/// Shows consecutive pages; a partition that continues in the next page is one partition for the
/// sink.
pub struct PageRows {
    reversed: bool,
    now: DeletionSeconds,
    /// A partition is shown for its static row alone.
    wants_static: bool,
    /// The partition that was shown in part to the client on an earlier page of its own, and how
    /// many rows of it: when there were some it is not shown for its static row alone.
    resumed: Option<(Vec<u8>, u32)>,
    /// The current partition: between pages, one that may continue.
    partition: Option<Partition>,
    /// Cost of the rows returned so far.
    pub stats: ReadStats,
    /// Work of the pages that their count of tombstones does not show.
    scanned: u32,
}

struct Partition {
    token: Token,
    key: Vec<u8>,
    /// The sink knows of it.
    announced: bool,
    /// The sink needs nothing more of it.
    skipped: bool,
    /// Rows of it shown so far, those on earlier pages of the client included.
    rows: u32,
    /// Packed.
    static_row: Option<Vec<u8>>,
}

/// The sink's answer to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// It wants more.
    Next,
    /// It wants more, but not of the partition in which the page ended.
    NextPartition,
    /// It has enough.
    Stop,
}

impl PageRows {
    /// Nothing is shown yet. `resumed`: the partition that was shown in part on an earlier page of the client, and how
    /// many rows of it.
    pub fn new(command: &ReadCommand, resumed: Option<(Vec<u8>, u32)>) -> PageRows {
        let ReadCommand { reversed, now, wants_static, .. } = *command;
        let stats = ReadStats::default();
        PageRows { reversed, now, wants_static, resumed, partition: None, stats, scanned: 0 }
    }

    /// A page has taken so much that its tombstones do not show.
    pub fn scan(&mut self, count: u32) {
        self.scanned = self.scanned.saturating_add(count);
    }

    /// The page that was shown is what a filter has left of this one; `before`: what had been read before it.
    pub fn count_filtered(&mut self, before: &ReadStats, whole: &WholePage) {
        let stats = &mut self.stats;
        stats.rows = stats.rows.saturating_add(whole.dropped_rows);
        stats.partitions = before.partitions.saturating_add(whole.partitions);
        stats.tombstones = before.tombstones.saturating_add(whole.tombstones);
        stats.filtered.add(&Filtered {
            rows: whole.dropped_rows,
            partitions: whole.dropped_partitions,
            bytes: whole.dropped_bytes,
        });
    }

    /// Reports to the sink the position up to which everything was read.
    pub fn tell<S: RowSink>(&self, end: &PageEnd<'_>, sink: &mut S) -> Look {
        let (token, key, clustering) = match *end {
            PageEnd::Exhausted => return Look::Continue,
            PageEnd::After { token, key } => (token, key, None),
            PageEnd::Inside { token, key, clustering } => (token, key, Some(clustering)),
        };
        let tombstones = self.stats.tombstones;
        let scanned = tombstones.saturating_add(self.scanned);
        sink.looked_at(LookedAt { token, key, clustering, tombstones, scanned })
    }

    /// Shows one page.
    pub fn page<S: RowSink>(
        &mut self,
        shape: &TableShape,
        page: ReplicaPage<'_>,
        sink: &mut S,
    ) -> Result<Shown, CursorError> {
        let end = page.end();
        let chain = PageChain::new(page);
        let stops = PageStops::NONE;
        let lane = PageCursor::new(shape, self.reversed, &chain, &stops);
        let mode = MergeMode::Live { now: self.now };
        let mut merge = MergeCursor::new(shape, mode, self.reversed, [lane]);
        let flow = self.items(&mut merge, &end, sink)?;
        self.stats.tombstones = self.stats.tombstones.saturating_add(merge.tombstones());
        if flow == Flow::Stop {
            return Ok(Shown::Stop);
        }
        let skipped = self.partition.as_ref().is_some_and(|p| p.skipped);
        if !matches!(end, PageEnd::Inside { .. }) {
            // Nothing of it can follow.
            if self.finish(sink) == Flow::Stop {
                return Ok(Shown::Stop);
            }
        } else if skipped && end.partition().map(|(_, k)| k) == self.key() {
            self.partition = None;
            return Ok(Shown::NextPartition);
        }
        Ok(Shown::Next)
    }

    fn key(&self) -> Option<&[u8]> {
        self.partition.as_ref().map(|p| p.key.as_slice())
    }

    fn items<S: RowSink, C: Cursor>(
        &mut self,
        merge: &mut MergeCursor<'_, C>,
        end: &PageEnd<'_>,
        sink: &mut S,
    ) -> Result<Flow, CursorError> {
        loop {
            match merge.advance()? {
                Advance::Item => {}
                Advance::End => return Ok(Flow::Continue),
                Advance::NeedBlock(_) => {
                    stdx::invariant::broken(format_args!("a page's cursor asks for a block"))
                }
            }
            let mut flow = Flow::Continue;
            match merge.item() {
                Item::Partition { token, key, .. } => {
                    if self.key() != Some(key) {
                        if self.finish(sink) == Flow::Stop {
                            return Ok(Flow::Stop);
                        }
                        self.begin(token, key);
                    }
                    if self.partition.as_ref().is_some_and(|p| p.skipped) {
                        merge.skip_partition();
                    }
                }
                Item::Static(row) => {
                    if let Some(partition) = &mut self.partition {
                        partition.static_row = Some(row.bytes().to_vec());
                    }
                }
                Item::Row { clustering, row } => {
                    flow = self.announce(sink);
                    if flow == Flow::Continue {
                        self.stats.rows += 1;
                        if let Some(partition) = &mut self.partition {
                            partition.rows = partition.rows.saturating_add(1);
                        }
                        flow = sink.row(clustering, row);
                    }
                }
                Item::Marker(_) => {}
                Item::PartitionEnd => {
                    let goes_on = matches!(end, PageEnd::Inside { key, .. }
                        if self.key() == Some(*key));
                    if !goes_on {
                        flow = self.finish(sink);
                    }
                }
            }
            match flow {
                Flow::Continue => {}
                Flow::SkipPartition => {
                    merge.skip_partition();
                    if self.skip(sink) == Flow::Stop {
                        return Ok(Flow::Stop);
                    }
                }
                Flow::Stop => return Ok(Flow::Stop),
            }
        }
    }

    fn resumed_rows(&self, key: &[u8]) -> Option<u32> {
        self.resumed.as_ref().filter(|(k, _)| k == key).map(|(_, rows)| *rows)
    }

    /// Rows of a partition that were shown, those on earlier pages of the client included.
    pub fn rows_of(&self, place: Option<(Token, &[u8])>) -> u32 {
        let Some((_, key)) = place else { return 0 };
        match &self.partition {
            Some(partition) if partition.key == key => partition.rows,
            _ => self.resumed_rows(key).unwrap_or(0),
        }
    }

    fn begin(&mut self, token: Token, key: &[u8]) {
        self.partition = Some(Partition {
            token,
            key: key.to_vec(),
            announced: false,
            skipped: false,
            rows: self.resumed_rows(key).unwrap_or(0),
            static_row: None,
        });
    }

    fn announce<S: RowSink>(&mut self, sink: &mut S) -> Flow {
        let Some(partition) = &mut self.partition else { return Flow::Continue };
        if std::mem::replace(&mut partition.announced, true) {
            return Flow::Continue;
        }
        self.stats.partitions += 1;
        let static_row = partition.static_row.as_deref().map(RowRef::trusted);
        sink.partition(partition.token, &partition.key, static_row)
    }

    /// The sink needs nothing more of the partition.
    fn skip<S: RowSink>(&mut self, sink: &mut S) -> Flow {
        match &mut self.partition {
            Some(partition) => {
                partition.skipped = true;
                sink.partition_end()
            }
            None => Flow::Continue,
        }
    }

    /// Ends the partition under way, if there is one: nothing more of it comes.
    pub fn finish<S: RowSink>(&mut self, sink: &mut S) -> Flow {
        let Some(partition) = &self.partition else { return Flow::Continue };
        let static_alone = self.wants_static
            && partition.static_row.is_some()
            && self.resumed_rows(&partition.key).unwrap_or(0) == 0;
        let skipped = partition.skipped;
        if !partition.announced && static_alone && self.announce(sink) == Flow::Stop {
            return Flow::Stop;
        }
        let announced = self.partition.take().is_some_and(|p| p.announced);
        if announced && !skipped { sink.partition_end() } else { Flow::Continue }
    }
}
