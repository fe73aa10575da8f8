//! Limits on the tombstones that a client's read scans.
//!
//! A client that asked for pages gets a page that ends after `query_tombstone_page_limit` tombstones, even if it
//! holds no rows, and continues from there. A client that asked for no pages waits for one answer: above
//! `tombstone_failure_threshold` it gets an error, as in Cassandra. Aggregates have one answer, but are read in
//! pages: they may scan any number.

use crate::settings::QuerySettings;
use schema::Table;
use store::ReadStats;

/// Tombstones between two looks of a read that has no limit to end a page at.
const PER_LOOK: u32 = 128;

/// Tombstone limits and counts of one page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tombstones {
    /// A page ends after this many; `u32::MAX`: it does not.
    page: u32,
    /// A read fails above this many; `u32::MAX`: it does not.
    refused: u32,
    /// Those of the partitions before.
    before: u32,
}

impl Tombstones {
    /// Starts without tombstones. `is_one_page`: the rows that are read are the whole answer.
    pub(crate) fn new(settings: &QuerySettings, is_one_page: bool) -> Tombstones {
        let page = match settings.tombstone_page_limit {
            0 => u32::MAX,
            limit => limit,
        };
        let refused = if is_one_page { settings.tombstone_failure_threshold } else { u32::MAX };
        Tombstones { page, refused, before: 0 }
    }

    /// Returns true if a read of one partition or range fails at this number of tombstones.
    pub(crate) fn refuses(&self, tombstones: u32) -> bool {
        tombstones > self.refused
    }

    /// Returns true if the page ends after this many tombstones of the current partition or range.
    pub(crate) fn is_enough(&self, scanned: u32) -> bool {
        self.before.saturating_add(scanned) >= self.page
    }

    /// Counts the tombstones of a partition; returns true if the page ends.
    pub(crate) fn pass(&mut self, tombstones: u32) -> bool {
        self.before = self.before.saturating_add(tombstones);
        self.is_enough(0)
    }

    /// Number of tombstones after which a read reports its progress.
    pub(crate) fn per_look(&self) -> u32 {
        let left = self.page.saturating_sub(self.before).max(1);
        if self.refused == u32::MAX { left } else { left.min(PER_LOOK) }
    }
}

/// Returns the warning for a read that scanned many tombstones.
pub(crate) fn tombstone_warning(
    settings: &QuerySettings,
    table: &Table,
    stats: &ReadStats,
) -> Option<String> {
    (stats.tombstones > settings.tombstone_warn_threshold).then(|| {
        format!(
            "Read {} live rows and {} tombstone cells for query on {}.{} (see \
             tombstone_warn_threshold)",
            stats.rows, stats.tombstones, table.keyspace, table.name
        )
    })
}
