//! A page of entries, as the entry table was read: live rows of one partition, ascending.

use std::cmp::Ordering;

use data::{ColumnRef, RowRef};
use stdx::{DeletionSeconds, TimestampMicros};

use crate::definition::GlobalIndex;
use crate::entry_key::RowName;

/// An entry of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Clustering in the entry table.
    pub clustering: Vec<u8>,
    /// The row that it names.
    pub row: RowName,
    /// Timestamp of the lasting slot. `None`: only the expiring one is live.
    pub lasting: Option<TimestampMicros>,
}

/// Entries of a value between two positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPage {
    /// The entries, ascending.
    pub entries: Vec<Entry>,
    /// Position after which the next page begins. `None`: the value has no more entries.
    pub resume_after: Option<Vec<u8>>,
}

/// An answer that no correct read of an entry table gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("corrupt entries of a global index: {0}")]
pub struct PageDefect(pub &'static str);

impl EntryPage {
    /// Reads the rows of an entry table after a position. `resume_after`: the position that the read reached, if it has not
    /// reached the end. Rows without a live slot are skipped.
    ///
    /// # Errors
    /// The rows are not entries of this index, do not ascend, or the read made no progress.
    pub fn read<'a>(
        index: &GlobalIndex,
        after: Option<&[u8]>,
        rows: impl IntoIterator<Item = (&'a [u8], RowRef<'a>)>,
        resume_after: Option<Vec<u8>>,
        now: DeletionSeconds,
    ) -> Result<EntryPage, PageDefect> {
        let keys = index.keys();
        let mut entries: Vec<Entry> = Vec::new();
        for (clustering, row) in rows {
            let Some(name) = keys.row_of(clustering) else {
                return Err(PageDefect("an entry names no row of the base table"));
            };
            let before = entries.last().map(|entry| entry.clustering.as_slice()).or(after);
            if before.is_some_and(|b| keys.compare(b, clustering) != Ordering::Less) {
                return Err(PageDefect("the entries do not ascend"));
            }
            let liveness = row.liveness();
            let lasting = liveness.is_live(now).then_some(liveness.timestamp);
            let expiring = match row.column(index.expires_column()) {
                Some(ColumnRef::Simple(cell)) => cell.is_live(now),
                Some(ColumnRef::Complex(_)) => {
                    return Err(PageDefect("the column of expiry is a collection"));
                }
                None => false,
            };
            if lasting.is_some() || expiring {
                let clustering = clustering.to_vec();
                entries.push(Entry { clustering, row: name, lasting });
            }
        }
        if let Some(end) = &resume_after {
            if keys.row_of(end).is_none() {
                return Err(PageDefect("the position of the page names no row"));
            }
            let last = entries.last().map(|entry| entry.clustering.as_slice());
            let is_past = last.is_none_or(|last| keys.compare(last, end) != Ordering::Greater)
                && after.is_none_or(|after| keys.compare(after, end) == Ordering::Less);
            if !is_past {
                return Err(PageDefect("the page ends before its entries or makes no progress"));
            }
        }
        Ok(EntryPage { entries, resume_after })
    }
}
