//! Plain rows of a memtable, shown to a reader or put into a replica's page verbatim, without a merge.
//!
//! Most rows of most tables are of one source only, live without a TTL, and not deleted: a merge does not
//! change them. Owns: the loop over those of a partition that one memtable alone has. Everything else (range
//! deletions, static rows, slices, a second source) needs the merge.

use data::replica_page::{PageFlow, PageWriter};
use data::{ClusteredRow, Item, MergeCursor};

use crate::memtable::RowsFrom;
use crate::read::driver::{
    BYTES_PER_ITEM, Flow, ITEMS_PER_LOOK, RowSink, Shown, announce, show as show_item,
};
use crate::read::sources::Source;
use crate::tables::read_stats::ReadStats;

/// Shows the next plain rows, at most [`ITEMS_PER_LOOK`], and the end of the partition when they
/// are the last of it. Returns how to continue, and for how many items they count. `None`: there
/// are none, nothing was done.
#[inline]
pub(crate) fn show<S: RowSink>(
    merge: &mut MergeCursor<'_, Source>,
    shown: &mut Shown,
    static_alone: bool,
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

/// Like [`show`], into a replica's page; the end of the partition is put, too.
#[inline]
pub(crate) fn put(
    merge: &mut MergeCursor<'_, Source>,
    page: &mut PageWriter<'_>,
) -> Option<(PageFlow, usize)> {
    let index = merge.untouched()?;
    let source = merge.source_mut(u32::try_from(index).ok()?)?;
    let (mut count, mut items, mut flow) = (0, 0, PageFlow::Continue);
    for (clustering, row) in next_rows(source)? {
        if items >= ITEMS_PER_LOOK || !row.is_plain() {
            break;
        }
        count += 1;
        items += 1 + row.bytes().len() / BYTES_PER_ITEM;
        flow = page.plain_row(clustering, row);
        if flow != PageFlow::Continue {
            break;
        }
    }
    if count == 0 {
        return None;
    }
    let ended = pass_rows(source, count);
    merge.took_rows(ended);
    if ended && flow == PageFlow::Continue {
        flow = page.item(&Item::PartitionEnd);
    }
    Some((flow, items))
}

/// Puts partitions that have one plain row and nothing else, of a memtable that is the only source,
/// after a complete partition. Returns how to continue, how many, and for how many items they
/// count.
#[inline]
pub(crate) fn put_partitions(
    merge: &mut MergeCursor<'_, Source>,
    page: &mut PageWriter<'_>,
) -> (PageFlow, u64, usize) {
    let (mut count, mut items, mut flow) = (0, 0, PageFlow::Continue);
    let Some(Source::Scan(scan)) = merge.only_source() else { return (flow, count, items) };
    if !scan.is_of_all_rows() {
        return (flow, count, items);
    }
    while items < ITEMS_PER_LOOK
        && flow == PageFlow::Continue
        && let Some((key, entry)) = scan.next_plain()
    {
        let (clustering, row) = entry.parts();
        if !row.is_plain() {
            break;
        }
        flow = page.plain_partition(key, ClusteredRow { clustering, row });
        count += 1;
        items += 3 + row.bytes().len() / BYTES_PER_ITEM;
        scan.pass_plain();
    }
    (flow, count, items)
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
