//! Scans files that were not written here for large data: files that arrived whole from other nodes, were
//! imported, or were taken over with a directory.
//!
//! Owns: the queue of these files, and reading them in the background one after the other, slowly, until the
//! store stops or an operator stops it. Most files need not be read: their statistics say that no partition
//! has as many bytes as anything large.
//!
//! A file was not written here when it names another node, or has none of our checksums. The scanned ones, and
//! those that wait though they name this node, are kept per table and shard in `helenus-looked.<shard>`; losing
//! it only repeats scans. A file that shards share is scanned by the shard that its number belongs to.
//!
//! INV-large-1: the reports for a file are those that its writer would have made.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use data::command::KeyRange;
use data::{Advance, ColumnRef, Cursor, Item, RowRef, Slices};
use rt::Group;
use sstable::{LargeData, LargeLimits, LargePartition};
use stdx::{DeletionSeconds, Generation};

use super::{Limits, facts_of};
use crate::error::StoreError;
use crate::files::slots::{CompactionProgress, Progress};
use crate::observe::Observer;
use crate::tables::large_files::{LargeEvent, LargeFile, name_of, push};
use crate::tables::table::TableState;
use crate::tables::table_file::{TableFile, map_error};

/// Bytes of Data, uncompressed, that a shard scans per second.
const BYTES_PER_SECOND: u64 = 16 << 20;
/// Interval of the checks for waiting files, besides notifications.
const ROUND: Duration = Duration::from_secs(60);
/// A row takes at least its flags, its size, and that of the row before it.
const ROW_BYTES_MIN: u64 = 3;
/// An element takes at least its flags and the length of its path.
const ELEMENT_BYTES_MIN: u64 = 2;

impl Limits {
    /// Returns true if nothing in partitions of at most so many bytes is large.
    fn are_beyond(&self, bytes: u64) -> bool {
        let most = &self.thresholds;
        let least = self.partition_bytes().min(most.row_bytes).min(most.cell_bytes);
        bytes <= least
            && bytes / ROW_BYTES_MIN <= most.partition_rows
            && bytes / ELEMENT_BYTES_MIN <= most.elements
    }
}

impl Observer {
    /// Files that were not written here came into the view, or are about to. Pre: of those that name this node
    /// [`Observer::keep_waiting`] was called.
    pub(crate) fn look_through<'a>(
        &self,
        table: &TableState,
        files: impl Iterator<Item = &'a Rc<TableFile>>,
    ) {
        let mut known = table.large.0.borrow_mut();
        for file in files.filter(|file| self.env.is_mine(file.generation)) {
            known.looked.done.remove(&file.generation);
            known.looked.waiting.insert(file.generation);
        }
        self.large.waits.notify_one();
    }

    /// Records durably that files wait, where a start could not detect it. Best effort: without it
    /// they are missing in the tables when a restart comes first.
    pub(crate) async fn keep_waiting(&self, table: &TableState, files: &[Rc<TableFile>]) {
        let of_it =
            |file: &&Rc<TableFile>| self.env.is_mine(file.generation) && self.files.is_own(file);
        let mut own = files.iter().filter(of_it).map(|file| file.generation).peekable();
        if own.peek().is_none() {
            return;
        }
        let mut looked = table.large.0.borrow().looked.clone();
        looked.waiting.extend(own);
        self.files.write_looked(table, &looked).await;
    }

    /// Starts the scan of waiting files, which lasts as long as the store runs. For stores with a
    /// receiver of the events.
    pub(super) fn start_looking_through(self: &Rc<Self>) {
        let store = self.clone();
        let task = async move {
            while !store.env.stopping.get() {
                for table in store.tables.all_tables() {
                    while let Some(generation) = table.large.next()
                        && !store.env.stopping.get()
                    {
                        store.look_through_one(&table, generation).await;
                    }
                }
                if store.env.stopping.get() {
                    return;
                }
                let deadline = store.env.rt.now() + ROUND;
                // Elapsed: check again.
                let waits = store.large.waits.notified();
                let _ = store.env.rt.timeout(deadline, waits).await;
            }
        };
        // A closed gate: the store is stopping already.
        let _ = self.env.gate.spawn(&self.env.rt, Group::Compaction, "look-through", task);
    }

    /// One file; whatever becomes of it, it does not wait any more in this run.
    async fn look_through_one(&self, table: &Rc<TableState>, generation: Generation) {
        let view = table.view();
        let file = view.files.iter().find(|f| f.generation == generation).cloned();
        drop(view);
        let found = match &file {
            Some(file) if file.reader.meta().unreadable().is_none() => {
                self.find_large(table, file).await
            }
            _ => Ok(None),
        };
        if self.env.stopping.get() {
            return;
        }
        let (version, at) = (table.version(), self.env.rt.wall());
        let looked = {
            let mut known = table.large.0.borrow_mut();
            known.looked.waiting.remove(&generation);
            let Some(file) = file.filter(|file| table.has_all(std::slice::from_ref(file))) else {
                return;
            };
            match found {
                Ok(Some(data)) => {
                    let descriptor = file.reader.meta().descriptor();
                    let (name, limits) = (name_of(&version.table, descriptor), self.large.limits());
                    let found = facts_of(&version.table, name, at, &limits, &data);
                    if !found.is_empty() {
                        known.used.insert(descriptor);
                        push(&mut known.events, LargeEvent::Found(found));
                    }
                }
                Ok(None) => {}
                // It is known as damaged soon; or it was stopped, and has its turn after a restart.
                Err(error) => {
                    self.env.met(error);
                    return;
                }
            }
            if !self.files.is_own(&file) {
                known.looked.done.insert(generation);
            }
            let view = table.view();
            let is_used = |g: &Generation| view.files.iter().any(|f| f.generation == *g);
            known.looked.done.retain(is_used);
            known.looked.clone()
        };
        self.tell_large_events_of(table);
        self.files.write_looked(table, &looked).await;
    }

    /// Finds large data in a file; `None`: nothing is, by its statistics.
    async fn find_large(
        &self,
        table: &Rc<TableState>,
        file: &Rc<TableFile>,
    ) -> Result<Option<LargeData>, StoreError> {
        let limits = self.large.limits();
        let meta = file.reader.meta();
        if limits.are_beyond(meta.statistics().stats.partition_sizes.max()) {
            return Ok(None);
        }
        // No inputs: the files stay free for other compactions.
        let claim = self.files.slots.claim(table, Vec::new(), self.look_shown(table, file));
        let mut look = Look::new(limits, self.env.rt.wall().seconds());
        let (range, all) = (KeyRange::all(), Arc::new(Slices::all()));
        let mut cursor = file.reader.range_cursor(0, range, all, None);
        let mut blocks = file.reader.sequential();
        let mut due = self.env.rt.now();
        loop {
            match cursor.advance()? {
                Advance::End => return Ok(Some(look.found)),
                Advance::NeedBlock(request) => {
                    let chunk = blocks.load_block(request.block).await.map_err(map_error)?;
                    cursor.feed(request.block, chunk);
                    due = self.pace_look(due, cursor.position(), &claim.progress).await;
                    self.files.slots.check_goes_on(&claim.progress)?;
                    if !table.has_all(std::slice::from_ref(file)) {
                        return Ok(None);
                    }
                }
                Advance::Item => {
                    let at = At {
                        partition: cursor.partition_start(),
                        item: cursor.item_start(),
                        end: cursor.position(),
                    };
                    look.item(cursor.item(), at);
                }
            }
        }
    }

    /// Waits until so much may have been read; from when on the next may be.
    async fn pace_look(
        &self,
        due: stdx::Instant,
        position: u64,
        progress: &Progress,
    ) -> stdx::Instant {
        let read = position.saturating_sub(progress.done.replace(position));
        let micros = read.saturating_mul(1_000_000) / BYTES_PER_SECOND;
        let due = due.max(self.env.rt.now()) + Duration::from_micros(micros);
        self.env.pause_until(due).await;
        due
    }

    fn look_shown(&self, table: &TableState, file: &TableFile) -> CompactionProgress {
        let version = table.version();
        CompactionProgress {
            id: 0,
            table: table.id,
            keyspace: version.table.keyspace.to_string(),
            name: version.table.name.to_string(),
            done_bytes: 0,
            total_bytes: file.reader.meta().data_length(),
            inputs: 1,
            reason: "looking for large partitions, rows and cells".to_owned(),
            kind: "Unknown compaction type",
        }
    }
}

impl LargeFile {
    fn is_empty(&self) -> bool {
        self.partitions.is_empty() && self.rows.is_empty() && self.cells.is_empty()
    }
}

/// Where in Data an item lies.
#[derive(Clone, Copy)]
struct At {
    /// Where its partition begins.
    partition: u64,
    /// Where it begins, when it is a row or marker.
    item: u64,
    /// Position of the reading, after the item.
    end: u64,
}

/// Findings while the items of a file are read.
struct Look {
    limits: LargeLimits,
    found: LargeData,
    partition: LargePartition,
    /// Where the header of the partition ends.
    header_end: u64,
}

impl Look {
    fn new(limits: Limits, now: DeletionSeconds) -> Look {
        Look {
            limits: limits.of_file(now),
            found: LargeData::default(),
            partition: LargePartition::default(),
            header_end: 0,
        }
    }

    fn item(&mut self, item: Item<'_>, at: At) {
        match item {
            Item::Partition { key, .. } => {
                let mut kept = std::mem::take(&mut self.partition.key);
                kept.clear();
                kept.extend_from_slice(key);
                self.partition = LargePartition { key: kept, ..LargePartition::default() };
                self.header_end = at.end;
            }
            Item::Static(row) => self.row(None, row, at.end.saturating_sub(self.header_end)),
            Item::Row { clustering, row } => {
                self.partition.rows += 1;
                if has_tombstone(row) && !row.has_live_data(self.limits.now) {
                    self.partition.dead_rows += 1;
                }
                self.row(Some(clustering), row, at.end.saturating_sub(at.item));
            }
            Item::Marker(marker) => {
                self.partition.range_tombstones += u64::from(marker.open.is_some());
            }
            Item::PartitionEnd => {
                self.partition.bytes = at.end.saturating_sub(at.partition);
                let (of, most) = (&self.partition, &self.limits);
                if of.bytes > most.bytes || of.rows > most.rows {
                    self.found.partition(of.clone());
                }
            }
        }
    }

    fn row(&mut self, clustering: Option<&[u8]>, row: RowRef<'_>, bytes: u64) {
        let most = self.limits;
        let elements = most.elements.saturating_mul(ELEMENT_BYTES_MIN);
        if bytes <= most.row_bytes.min(most.cell_bytes).min(elements) {
            return;
        }
        self.found.row(&most, &self.partition.key, clustering, row, bytes);
    }
}

fn has_tombstone(row: RowRef<'_>) -> bool {
    if row.is_plain() {
        return false;
    }
    let (_, deletion, mut columns) = row.parts();
    !deletion.is_live()
        || columns.any(|(_, content)| match content {
            ColumnRef::Simple(cell) => cell.is_tombstone(),
            ColumnRef::Complex(complex) => {
                !complex.deletion.is_live() || complex.cells().any(|(_, cell)| cell.is_tombstone())
            }
        })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::files::marks;
    use crate::files::scan_list::{encode, of_lines};
    use crate::observe::large_partitions::LargeThresholds;
    use crate::tables::large_files::Looked;

    #[test]
    fn a_list_is_read_back() {
        let looked = Looked {
            waiting: BTreeSet::from([Generation(4)]),
            done: BTreeSet::from([Generation(2), Generation(9)]),
        };
        let bytes = encode(&looked);
        let read = |bytes: &[u8]| marks::body_of(marks::LOOKED, bytes).ok();
        assert_eq!(of_lines(&read(&bytes).unwrap()), Some(looked));
        for at in 0..bytes.len() {
            assert_eq!(read(&bytes[..at]), None, "{at}");
        }
        let earlier = |text: &str| read(&codec::seal_text(text.to_owned()));
        let body = earlier("helenus-looked 1\nlooked 5\n").unwrap();
        assert_eq!(of_lines(&body).map(|l| l.done.len()), Some(1));
        assert_eq!(of_lines("elsewhere 5\n"), None);
        assert_eq!(earlier("helenus-looked 2\nlooked 5\n"), None);
    }

    #[test]
    fn statistics_say_enough_where_partitions_are_smaller_than_anything_large() {
        let of = |thresholds| Limits { thresholds, ..Limits::default() };
        assert!(of(LargeThresholds::default()).are_beyond(u64::MAX - 1));
        let all = LargeThresholds {
            partition_bytes: 1_000,
            partition_rows: 400,
            row_bytes: 1_100,
            cell_bytes: 1_200,
            elements: 600,
        };
        assert!(of(all).are_beyond(1_000));
        assert!(!of(all).are_beyond(1_001));
        assert!(!of(LargeThresholds { row_bytes: 999, ..all }).are_beyond(1_000));
        assert!(!of(LargeThresholds { cell_bytes: 999, ..all }).are_beyond(1_000));
        assert!(!of(LargeThresholds { elements: 499, ..all }).are_beyond(1_000));
        assert!(!of(LargeThresholds { partition_rows: 332, ..all }).are_beyond(1_000));
    }
}
