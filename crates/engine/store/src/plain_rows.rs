//! Plain rows of a memtable, shown to a reader as they lie, without a merge.
//!
//! Most rows of most tables are of one source only, live without a TTL, and not deleted: what a merge makes of
//! them is themselves. Owns: the loop over those of a partition that one memtable alone has. Whatever else
//! there is (range deletions, static rows, slices, a second source) goes through the merge.

use data::{Item, MergeCursor};

use crate::memtable::RowsFrom;
use crate::read::{BYTES_PER_ITEM, Flow, ITEMS_PER_LOOK, ReadStats, RowSink, Shown};
use crate::read::{announce, show as show_item};
use crate::sources::Source;

/// Shows the plain rows that follow, at most [`ITEMS_PER_LOOK`], and the end of the partition when they are
/// the last of it: how to go on, and for how many items they count. `None`: there are none, nothing was done.
#[inline]
pub(crate) fn show<S: RowSink>(
    merge: &mut MergeCursor<'_, Source>,
    (shown, static_alone): (&mut Shown, bool),
    sink: &mut S,
    stats: &mut ReadStats,
) -> Option<(Flow, usize)> {
    let index = merge.untouched_live()?;
    let source = merge.source_mut(u32::try_from(index).ok()?)?;
    let (mut count, mut items, mut flow) = (0, 0, Flow::Continue);
    for (clustering, row) in next_rows(source)? {
        if items >= ITEMS_PER_LOOK || !row.is_plain() {
            break;
        }
        count += 1;
        items += 1 + row.bytes().len() / BYTES_PER_ITEM;
        if !shown.announced {
            flow = announce(shown, sink, stats);
            if flow != Flow::Continue {
                break;
            }
        }
        stats.rows += 1;
        flow = sink.row(clustering, row);
        if flow != Flow::Continue {
            break;
        }
    }
    if count == 0 {
        return None;
    }
    let ended = pass_rows(source, count);
    merge.took_rows(ended);
    if ended && flow == Flow::Continue {
        flow = show_item(shown, Item::PartitionEnd, sink, static_alone, stats);
    }
    Some((flow, items))
}

#[inline]
fn next_rows(source: &Source) -> Option<RowsFrom<'_>> {
    match source {
        Source::Scan(scan) => scan.next_rows(),
        Source::Partition(cursor) => cursor.next_rows(),
        Source::File(_) | Source::Begun(_) | Source::Tail(_) => None,
    }
}

#[inline]
fn pass_rows(source: &mut Source, count: u64) -> bool {
    match source {
        Source::Scan(scan) => scan.pass_rows(count),
        Source::Partition(cursor) => cursor.pass_rows(count),
        Source::File(_) | Source::Begun(_) | Source::Tail(_) => false,
    }
}
