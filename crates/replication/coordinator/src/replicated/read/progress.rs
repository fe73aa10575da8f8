//! How far a shown page brings a read.

use data::command::{Partitions, ReadCommand, RingBound};
use data::replica_page::{PageEnd, ReplicaPage};
use request::read::RowsFrom;

use super::slot::Slot;

/// Moves a command past the partition that it begins in. Returns true if others follow.
pub(super) fn skip_partition(command: &mut ReadCommand) -> bool {
    match &mut command.partitions {
        Partitions::Key(_) => false,
        Partitions::Range(range) => {
            command.resume = None;
            if let RingBound::Key { after, .. } = &mut range.start {
                *after = true;
            }
            true
        }
    }
}

/// Up to where a page shows everything: the end of its last partition where nothing ended it before.
pub(super) fn last_place<'p>(page: &ReplicaPage<'p>) -> PageEnd<'p> {
    match page.end() {
        PageEnd::Exhausted => page
            .partitions()
            .last()
            .map_or(PageEnd::Exhausted, |(token, key)| PageEnd::After { token, key }),
        end => end,
    }
}

/// Returns the number of tombstones that a page scanned beyond those that it shows. A page that
/// ended without being full scanned the maximum: it ended for tombstones that are old enough to be
/// left out.
pub(super) fn page_scanned(page: &ReplicaPage<'_>, slot: &Slot, from: RowsFrom) -> u32 {
    let (bytes, live_rows) = match slot.filtered(from) {
        Some(filtered) => (filtered.page.whole.bytes, filtered.page.whole.live_rows),
        None => (page.bytes().len() as u64, page.live_rows()),
    };
    let is_full = bytes >= slot.limits.bytes as u64 || live_rows >= slot.limits.rows;
    let is_thin = match from {
        RowsFrom::Page(_) | RowsFrom::Filtered(_) => !is_full,
        RowsFrom::Merged => page.live_rows() == 0,
    };
    if is_thin && !page.is_exhausted() { slot.limits.tombstones } else { 0 }
}
