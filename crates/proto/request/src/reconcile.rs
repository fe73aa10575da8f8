//! Merge of the pages of several replicas into one, and the data of it that each replica misses.
//!
//! Owns: [`reconcile()`]: merge by `data`'s laws up to where all replicas have answered, and the
//! repair mutations. Never: messages, limits of the reader (a merged page may hold more live rows
//! than were asked for; the reader stops where it wants).
//!
//! INV-reconcile-1: a replica that applies its repair has, within the merged page, exactly the
//! merged content. INV-reconcile-2: the merged page depends on what the replicas have together, not
//! on how it is spread over them.
//!
//! Sources of the rules: Cassandra `DataResolver`, `RowIteratorMergeListener`.

mod diff;

use std::cmp::Ordering;

use data::page_cursor::{PageChain, PageCursor, PageStops};
use data::replica_page::{PageEnd, PageFlow, PageLimits, PageWriter, ReplicaPage};
use data::{Advance, Cursor, CursorError, Item, MergeCursor, MergeMode, TableShape};
use smallvec::SmallVec;
use stdx::DeletionSeconds;

use crate::types::{Target, TargetSet};

/// Parts of the read command that merging needs.
#[derive(Clone, Copy, Debug)]
pub struct ReconcileCommand {
    /// Rows in descending clustering order.
    pub reversed: bool,
    /// Clock of TTLs.
    pub now: DeletionSeconds,
    /// Live rows of one partition that the replicas were asked for; `u32::MAX` = all.
    pub rows_per_partition: u32,
    /// A live static row without rows counts as one row.
    pub counts_static: bool,
}

/// The pages of several replicas as one.
#[derive(Clone, Debug, Default)]
pub struct Reconciled {
    /// The merged page, encoded; the next page continues at its end.
    pub page: Vec<u8>,
    /// Its live rows.
    pub live_rows: u32,
    /// No replica has data after the page.
    pub exhausted: bool,
    /// Replicas with the pages that ended first.
    pub short: TargetSet,
    /// Encoded mutations, one per partition, for each replica that misses something.
    pub repairs: SmallVec<[(Target, Vec<Vec<u8>>); 4]>,
}

impl Reconciled {
    /// Returns the replicas that miss something.
    pub fn needs_repair(&self) -> TargetSet {
        self.repairs.iter().map(|(t, _)| *t).collect()
    }
}

/// Merges the pages of replicas that answered the same command.
///
/// # Errors
/// Those of cursors; cursors over pages have none, so an error means a broken page that was never
/// checked.
pub fn reconcile(
    shape: &TableShape,
    command: &ReconcileCommand,
    sources: &[(Target, PageChain<'_>)],
) -> Result<Reconciled, CursorError> {
    let reversed = command.reversed;
    let mut stops = PageStops::of(sources.iter().map(|(_, c)| c), shape, reversed);
    let (page, end) = merge(shape, command, sources, &stops)?;
    let merged = match ReplicaPage::open(&page) {
        Ok(merged) => merged,
        Err(error) => stdx::invariant::broken(format_args!("merged page: {error}")),
    };
    let at_end = |chain: &PageChain<'_>| {
        !merged.is_exhausted()
            && chain.end().compare(&merged.end(), shape, reversed) == Ordering::Equal
    };
    let short = sources.iter().filter(|(_, c)| at_end(c)).map(|(t, _)| *t).collect();
    // The merged page may have ended earlier than the pages did: data after its end is not
    // compared.
    stops.end = end;
    let no_stops = PageStops::NONE;
    let mut repairs = SmallVec::new();
    for (target, chain) in sources {
        let source = PageCursor::new(shape, reversed, chain, &stops);
        let all = PageChain::new(merged);
        let whole = PageCursor::new(shape, reversed, &all, &no_stops);
        let mutations = diff::diff(shape, reversed, whole, source)?;
        if !mutations.is_empty() {
            repairs.push((*target, mutations));
        }
    }
    let (live_rows, exhausted) = (merged.live_rows(), merged.is_exhausted());
    Ok(Reconciled { live_rows, exhausted, short, repairs, page })
}

/// The merged page, and where it ends.
fn merge<'p>(
    shape: &TableShape,
    command: &ReconcileCommand,
    sources: &[(Target, PageChain<'p>)],
    stops: &PageStops<'p>,
) -> Result<(Vec<u8>, PageEnd<'p>), CursorError> {
    let reversed = command.reversed;
    let lanes = sources.iter().map(|(_, c)| PageCursor::new(shape, reversed, c, stops));
    let mut cursor = MergeCursor::new(shape, MergeMode::All, reversed, lanes);
    let no_limits = PageLimits {
        rows: u32::MAX,
        rows_per_partition: u32::MAX,
        bytes: usize::MAX,
        tombstones: u32::MAX,
    };
    let mut writer =
        PageWriter::new(shape, reversed, command.now, command.counts_static, no_limits);
    let mut stop = None;
    loop {
        match cursor.advance()? {
            Advance::End => break,
            Advance::NeedBlock(_) => {
                stdx::invariant::broken(format_args!("a page's cursor asks for a block"))
            }
            Advance::Item => {}
        }
        let item = cursor.item();
        if let Item::Partition { token, key, .. } = item {
            stop = stops.partitions.iter().find(|s| s.token == token && s.key == key);
        }
        let is_end = matches!(item, Item::PartitionEnd);
        let flow = writer.item(&item);
        debug_assert_eq!(flow, PageFlow::Continue);
        let Some(cut) = stop.take_if(|_| is_end) else { continue };
        if writer.live_in_partition() >= command.rows_per_partition {
            // The partition has all the rows that are wanted of it: the cut is correct.
            writer.mark_cut();
            continue;
        }
        let (token, key, clustering) = (cut.token, cut.key, cut.clustering);
        let end = PageEnd::Inside { token, key, clustering };
        if end.compare(&stops.end, shape, reversed) == Ordering::Less {
            // Deletions of another replica removed rows: the next page continues from the cut.
            return Ok((writer.finish_at(end), end));
        }
    }
    Ok((writer.finish_at(stops.end), stops.end))
}
