//! The answer of a search while it grows.

use index_format::RowKey;
use index_format::search::{Frontier, MatchedPartition, MatchedRows, SearchLimits};
use stdx::Token;

/// Bytes that a key of a row takes beside its values.
const KEY_BYTES: u64 = 16;

/// Keys found so far, with the position of the last candidate.
#[derive(Debug)]
pub(crate) struct Found {
    limits: SearchLimits,
    partitions: Vec<MatchedPartition>,
    keys: u64,
    bytes: u64,
    /// Position after the last candidate, whether it was given or not.
    frontier: Option<(Token, Frontier)>,
}

impl Found {
    pub(crate) fn new(limits: SearchLimits) -> Found {
        Found { limits, partitions: Vec::new(), keys: 0, bytes: 0, frontier: None }
    }

    /// Adds a partition, or with `row` one of its rows.
    pub(crate) fn push(&mut self, key: &RowKey, row: Option<&[u8]>) {
        let last = self.partitions.last_mut();
        let same = last.filter(|last| last.token == key.token && *last.key == *key.partition);
        self.keys += 1;
        self.bytes += KEY_BYTES + row.map_or(0, <[u8]>::len) as u64;
        match (same, row) {
            (Some(MatchedPartition { rows: MatchedRows::Rows(rows), .. }), Some(row)) => {
                rows.push(row.to_vec());
            }
            // All of its rows are given already.
            (Some(_), _) => {}
            (None, row) => {
                self.bytes += key.partition.len() as u64;
                let rows =
                    row.map_or(MatchedRows::Whole, |row| MatchedRows::Rows(vec![row.to_vec()]));
                let (token, key) = (key.token, key.partition.to_vec());
                self.partitions.push(MatchedPartition { token, key, rows });
            }
        }
    }

    /// Notes a candidate that lies after the start of the search.
    pub(crate) fn passed(&mut self, key: &RowKey, row: Option<&[u8]>) {
        self.frontier = Some((key.token, frontier_after(key, row)));
    }

    /// Returns true if the answer has as many keys as it may.
    pub(crate) fn is_full(&self) -> bool {
        self.keys >= u64::from(self.limits.keys.max(1)) || self.bytes >= self.limits.bytes.max(1)
    }

    /// Returns true if a search that read so many rows may end.
    pub(crate) fn is_tired(&self, scanned: u64) -> bool {
        scanned > self.limits.scanned
    }

    /// Token and position after the last candidate.
    pub(crate) fn frontier(&self) -> Option<&(Token, Frontier)> {
        self.frontier.as_ref()
    }

    pub(crate) fn take_partitions(&mut self) -> Vec<MatchedPartition> {
        std::mem::take(&mut self.partitions)
    }
}

/// The position after a partition, or after one of its rows.
pub(crate) fn frontier_after(key: &RowKey, row: Option<&[u8]>) -> Frontier {
    let (token, partition) = (key.token, key.partition.to_vec());
    match row {
        None => Frontier::After { token, key: partition },
        Some(row) => Frontier::Inside { token, key: partition, clustering: row.to_vec() },
    }
}
