//! Receivers of the rows of a read, and the cost of a filter.

use crate::account::Charge;
use crate::counters::Counters;
use crate::read_deadline::ReadDeadline;
use crate::tombstones::Tombstones;
use coordinator::FoldSink;
use cql_exec::{Dropped, SelectExec, select};
use data::RowRef;
use stdx::Token;
use store::{Flow, Look, LookedAt, ReadStats, RowSink};

/// Rows and partitions that are scanned between two checks of the clock.
const ITEMS_PER_LOOK: u32 = 1024;

/// Passes the rows of a read to the planner's executor.
pub(super) struct Sink<'e, 'p> {
    pub(super) exec: &'e mut SelectExec<'p>,
    pub(super) patience: Option<&'e ReadDeadline>,
    /// Number since the last check of the clock.
    pub(super) items: u32,
    pub(super) tombstones: Tombstones,
    pub(super) counters: &'e Counters,
    /// Memory of the answer.
    pub(super) charge: &'e Charge,
}

#[inline]
fn flow(flow: select::Flow) -> Flow {
    match flow {
        select::Flow::Continue => Flow::Continue,
        select::Flow::SkipPartition => Flow::SkipPartition,
        select::Flow::Stop => Flow::Stop,
    }
}

impl Sink<'_, '_> {
    /// Counts one more item; returns true if the page must end here because it has taken long.
    #[inline]
    fn is_long(&mut self) -> bool {
        self.items = self.items.wrapping_add(1);
        self.items.is_multiple_of(ITEMS_PER_LOOK) && self.patience.is_some_and(ReadDeadline::look)
    }

    /// Ends the page after this row, or the whole partition, if it has taken long or fills its
    /// memory. Returns false for a read without pages.
    #[inline]
    fn ends_page(&mut self, bytes: usize, clustering: Option<&[u8]>) -> bool {
        let is_large = self.charge.fills_page(bytes);
        (self.is_long() || is_large) && self.cut(is_large, clustering)
    }

    #[cold]
    fn cut(&mut self, is_large: bool, clustering: Option<&[u8]>) -> bool {
        let key = self.exec.key().to_vec();
        let is_cut = self.exec.cut_at(&key, clustering);
        if is_cut && is_large {
            self.counters.memory_pages.inc();
        }
        is_cut
    }
}

impl RowSink for Sink<'_, '_> {
    #[inline]
    fn partition(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        flow(self.exec.partition(token, key, static_row))
    }

    #[inline]
    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        let next = self.exec.row(clustering, row);
        let bytes = self.exec.held_bytes();
        if !self.charge.covers(bytes) {
            return Flow::Stop;
        }
        if next == select::Flow::Continue && self.ends_page(bytes, Some(clustering)) {
            return Flow::Stop;
        }
        flow(next)
    }

    #[inline]
    fn partition_end(&mut self) -> Flow {
        let next = self.exec.partition_end();
        let bytes = self.exec.held_bytes();
        if !self.charge.covers(bytes) {
            return Flow::Stop;
        }
        if next != select::Flow::Stop && self.ends_page(bytes, None) {
            return Flow::Stop;
        }
        flow(next)
    }

    fn looked_at(&mut self, upto: LookedAt<'_>) -> Look {
        if self.tombstones.refuses(upto.tombstones) {
            return Look::Refuse;
        }
        let is_long = self.patience.is_some_and(ReadDeadline::look);
        let is_enough = self.tombstones.is_enough(upto.scanned);
        if !((is_long || is_enough) && self.exec.cut_at(upto.key, upto.clustering)) {
            return Look::Continue;
        }
        if is_enough {
            self.counters.tombstone_pages.inc();
        }
        Look::Stop
    }

    fn tombstones_per_look(&self) -> u32 {
        self.tombstones.per_look()
    }
}

/// Passes the results of folds on shards to the planner's executor.
pub(super) struct FoldedSink<'e, 'p> {
    pub(super) exec: &'e mut SelectExec<'p>,
    pub(super) patience: Option<&'e ReadDeadline>,
    /// Number since the last check of the clock.
    pub(super) results: u32,
    /// Memory of the answer.
    pub(super) charge: &'e Charge,
}

impl FoldSink for FoldedSink<'_, '_> {
    fn partition(&mut self, key: &[u8]) -> Flow {
        flow(self.exec.partition_of_shard(key))
    }

    fn result(&mut self, last: Option<&[u8]>, bytes: &[u8]) -> Flow {
        self.results = self.results.wrapping_add(1);
        if self.results.is_multiple_of(ITEMS_PER_LOOK) {
            self.looked_at();
        }
        let next = self.exec.result_of_shard(last, bytes);
        if !self.charge.covers(self.exec.held_bytes()) {
            return Flow::Stop;
        }
        flow(next)
    }

    fn looked_at(&mut self) {
        // The answer is one, however long it takes.
        let _ = self.patience.is_some_and(ReadDeadline::look);
    }
}

/// Like [`Sink`], and counts the bytes of the rows.
pub(super) struct Counting<'e, 'p> {
    pub(super) sink: Sink<'e, 'p>,
    pub(super) bytes: u64,
}

impl RowSink for Counting<'_, '_> {
    fn partition(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        let of_static = static_row.map_or(0, |row| row.bytes().len());
        self.bytes += (key.len() + of_static) as u64;
        self.sink.partition(token, key, static_row)
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        self.bytes += (clustering.len() + row.bytes().len()) as u64;
        self.sink.row(clustering, row)
    }

    fn partition_end(&mut self) -> Flow {
        self.sink.partition_end()
    }

    fn looked_at(&mut self, upto: LookedAt<'_>) -> Look {
        self.sink.looked_at(upto)
    }

    fn tombstones_per_look(&self) -> u32 {
        self.sink.tombstones_per_look()
    }
}

/// Cost of a filter, for a trace: rows that other shards dropped, and rows that this one filtered.
pub(super) struct FilterCost<'r> {
    pub(super) stats: &'r ReadStats,
    /// Bytes of the scanned rows and keys.
    pub(super) bytes: u64,
    pub(super) dropped: Dropped,
    /// Bytes of all pages that came from other shards and nodes, and of the largest one.
    pub(super) page_bytes: (u64, u64),
    pub(super) result_bytes: u64,
}

impl FilterCost<'_> {
    pub(super) fn describe(&self, columns: &[&str]) -> String {
        let ReadStats { rows, partitions, .. } = self.stats;
        let FilterCost { bytes, dropped, page_bytes: (pages, largest), result_bytes, .. } = self;
        let filtered = self.stats.filtered;
        let dropped = Dropped {
            rows: dropped.rows.saturating_add(filtered.rows),
            partitions: dropped.partitions.saturating_add(filtered.partitions),
        };
        format!(
            "Filtering on {} looked at {rows} rows of {partitions} partitions in {bytes} bytes, \
             dropped {} rows and {} whole partitions, and kept {} rows; {pages} bytes came in pages \
             of up to {largest} in memory, the result has {result_bytes} bytes",
            columns.join(", "),
            dropped.rows,
            dropped.partitions,
            rows.saturating_sub(dropped.rows),
        )
    }
}
