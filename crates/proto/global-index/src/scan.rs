//! The steps of a read by a global index: a page of entries, the rows that they name, the check of each, the next page.
//!
//! Holds INV-global-3 of the crate: a scan asks for each entry after its start once, in order, and names a row only
//! if the row has the value. Its position is an entry's clustering, that is a primary key of the base table: it means
//! the same after the index was dropped or built again, and a scan of the table may continue from it.

use index_format::{MatchedPartition, MatchedRows};
use stdx::{DeletionSeconds, WallMicros};

use crate::definition::GlobalIndex;
use crate::entry_key::RowName;
use crate::ghost::{GhostPolicy, delete_entry, is_deletable};
use crate::page::{Entry, EntryPage, PageDefect};
use crate::verdict::{BaseRow, Verdict, judge};

/// Bounds of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanBounds {
    /// Most entries of a page, and so rows read at a time.
    pub page: u32,
    /// Entries after which the scan ends although there may be more: a page of the client ends early then.
    pub examined: u32,
}

/// The next read of a scan, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanStep {
    /// A page of entries: call [`GlobalScan::entries`].
    Entries {
        /// Partition of the entry table.
        partition: Vec<u8>,
        /// Only entries after this one.
        after: Option<Vec<u8>>,
        /// At most so many.
        limit: u32,
    },
    /// Rows of the base table, by name: call [`GlobalScan::rows`].
    Rows(Vec<MatchedPartition>),
    /// The scan reached its bound; another one may begin after this position.
    Bound(Vec<u8>),
    /// The value has no more entries.
    Done,
}

/// A row of the base table that was read. Rows of which nothing exists may be left out.
#[derive(Clone, Copy, Debug)]
pub struct FoundRow<'a> {
    /// Serialised partition key.
    pub key: &'a [u8],
    /// Serialised clustering.
    pub clustering: &'a [u8],
    /// Its merged versions.
    pub base: BaseRow<'a>,
}

/// Outcome of the check of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Entries whose rows have the value, ascending.
    pub matches: Vec<Entry>,
    /// Mutations of the entry table that delete proven ghosts. They may be lost.
    pub deletions: Vec<Vec<u8>>,
    /// Entries whose rows do not have the value.
    pub ghosts: u32,
}

/// A scan of the entries of one value.
#[derive(Clone, Debug)]
pub struct GlobalScan {
    value: Vec<u8>,
    after: Option<Vec<u8>>,
    /// Entries that wait for their rows, and the end of their page.
    page: Option<EntryPage>,
    left: u32,
    limit: u32,
    policy: GhostPolicy,
    is_done: bool,
}

impl GlobalScan {
    /// A scan of the rows that have `value`, after a position.
    pub fn new(
        value: &[u8],
        after: Option<Vec<u8>>,
        bounds: ScanBounds,
        policy: GhostPolicy,
    ) -> GlobalScan {
        GlobalScan {
            value: value.to_vec(),
            after,
            page: None,
            left: bounds.examined,
            limit: bounds.page.max(1),
            policy,
            is_done: false,
        }
    }

    /// The next read.
    pub fn step(&self, index: &GlobalIndex) -> ScanStep {
        if let Some(page) = &self.page {
            return ScanStep::Rows(wanted(index, &page.entries));
        }
        match &self.after {
            _ if self.is_done => ScanStep::Done,
            Some(after) if self.left == 0 => ScanStep::Bound(after.clone()),
            after => ScanStep::Entries {
                partition: index.entry_partition(&self.value),
                after: after.clone(),
                limit: self.limit.min(self.left.max(1)),
            },
        }
    }

    /// Accepts the page that [`ScanStep::Entries`] asked for.
    ///
    /// # Errors
    /// It has more entries than were asked for.
    pub fn entries(&mut self, page: EntryPage) -> Result<(), PageDefect> {
        let count = u32::try_from(page.entries.len()).unwrap_or(u32::MAX);
        if count > self.limit.min(self.left.max(1)) {
            return Err(PageDefect("it has more entries than were asked for"));
        }
        // A page that reaches its position only by dead entries counts too, so the scan comes to its bound.
        self.left = self.left.saturating_sub(count.max(1));
        if page.entries.is_empty() {
            self.end_page(page.resume_after);
        } else {
            self.page = Some(page);
        }
        Ok(())
    }

    /// Checks the rows that [`ScanStep::Rows`] asked for, in that order.
    ///
    /// # Errors
    /// The rows are not those that were asked for, or not in that order.
    pub fn rows(
        &mut self,
        index: &GlobalIndex,
        found: &[FoundRow<'_>],
        ttl_clock: DeletionSeconds,
        now: WallMicros,
    ) -> Result<Checked, PageDefect> {
        let Some(page) = self.page.take() else {
            return Err(PageDefect("rows that were not asked for"));
        };
        let mut checked = Checked::default();
        let mut found = found.iter().peekable();
        for entry in page.entries {
            let row = found.next_if(|row| is_of(row, &entry.row));
            let base = row.map_or(BaseRow::ABSENT, |row| row.base);
            match judge(index, &self.value, &entry, &base, ttl_clock) {
                Verdict::Matches => checked.matches.push(entry),
                Verdict::ProvenGhost(at) => {
                    checked.ghosts = checked.ghosts.saturating_add(1);
                    if is_deletable(at, self.policy, now) {
                        checked.deletions.push(delete_entry(index, &self.value, &entry, at, now));
                    }
                }
                Verdict::Unproven => checked.ghosts = checked.ghosts.saturating_add(1),
            }
        }
        if found.next().is_some() {
            return Err(PageDefect("rows that were not asked for"));
        }
        self.end_page(page.resume_after);
        Ok(checked)
    }

    fn end_page(&mut self, resume_after: Option<Vec<u8>>) {
        match resume_after {
            Some(end) => self.after = Some(end),
            None => self.is_done = true,
        }
    }
}

fn is_of(row: &FoundRow<'_>, name: &RowName) -> bool {
    row.key == name.key && row.clustering == name.clustering
}

/// The rows that entries name, grouped by partition.
fn wanted(index: &GlobalIndex, entries: &[Entry]) -> Vec<MatchedPartition> {
    let mut partitions: Vec<MatchedPartition> = Vec::new();
    for Entry { row: name, .. } in entries {
        let rows = match index.keys().base_clustering() {
            0 => MatchedRows::Whole,
            _ => MatchedRows::Rows(vec![name.clustering.clone()]),
        };
        match (partitions.last_mut(), rows) {
            (Some(last), MatchedRows::Rows(more))
                if last.token == name.token && last.key == name.key =>
            {
                if let MatchedRows::Rows(rows) = &mut last.rows {
                    rows.extend(more);
                }
            }
            (_, rows) => {
                let (token, key) = (name.token, name.key.clone());
                partitions.push(MatchedPartition { token, key, rows });
            }
        }
    }
    partitions
}
