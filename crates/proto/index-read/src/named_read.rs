//! Reads of candidates by name: one read a partition, of some of its rows or of all.
//!
//! INV-index-read-3: the reads of a list of matches name each match inside the statement's slices once, in the order of
//! the table.

use std::cmp::Ordering;
use std::sync::Arc;

use data::ClusteringComparator;
use data::clustering::{Slice, Slices};
use data::command::{Partitions, ReadCommand, RingBound};
use index_format::{MatchedPartition, MatchedRows};
use stdx::Token;

/// Most rows of one read.
pub const ROWS_MAX: usize = 128;

/// A read of candidates of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRead {
    /// Token of the key.
    pub token: Token,
    /// Serialised partition key.
    pub key: Vec<u8>,
    /// The rows, at most [`ROWS_MAX`].
    pub rows: MatchedRows,
}

/// Rows of a read that were not read because its buffer was full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remainder {
    /// None.
    Nothing,
    /// These.
    Read(NamedRead),
}

/// The part that the reads of a statement share.
#[derive(Clone, Debug)]
pub struct NamedReads {
    command: ReadCommand,
    order: ClusteringComparator,
}

impl NamedReads {
    /// The reads of a statement whose scan would be `command`.
    pub fn new(command: &ReadCommand, order: &ClusteringComparator) -> NamedReads {
        NamedReads { command: command.clone(), order: order.clone() }
    }

    /// The reads of these candidates.
    pub fn of(&self, partitions: Vec<MatchedPartition>) -> Vec<NamedRead> {
        let mut reads = Vec::with_capacity(partitions.len());
        for MatchedPartition { token, key, rows } in partitions {
            let rows = match rows {
                MatchedRows::Rows(rows) if !self.order.is_empty() => rows,
                // Without clustering columns a partition is a row.
                rows => {
                    let rows = if self.order.is_empty() { MatchedRows::Whole } else { rows };
                    reads.push(NamedRead { token, key, rows });
                    continue;
                }
            };
            let rows: Vec<_> = rows.into_iter().filter(|row| self.is_wanted(row)).collect();
            for some in rows.chunks(ROWS_MAX) {
                let rows = MatchedRows::Rows(some.to_vec());
                reads.push(NamedRead { token, key: key.clone(), rows });
            }
        }
        reads
    }

    fn is_wanted(&self, row: &[u8]) -> bool {
        let slices = &self.command.slices;
        slices.is_all() || slices.0.iter().any(|slice| self.holds(slice, row))
    }

    fn holds(&self, slice: &Slice, row: &[u8]) -> bool {
        self.order.compare_to_bound(row, slice.start()) == Ordering::Greater
            && self.order.compare_to_bound(row, slice.end()) == Ordering::Less
    }

    /// Returns true if a read may be large: it is shown as it comes, not collected.
    pub fn is_large(&self, read: &NamedRead) -> bool {
        read.rows == MatchedRows::Whole && !self.order.is_empty()
    }

    /// The command of a read.
    pub fn command(&self, read: &NamedRead) -> ReadCommand {
        let mut command = ReadCommand {
            partitions: Partitions::Key(read.key.clone()),
            resume: None,
            ..self.command.clone()
        };
        match &read.rows {
            MatchedRows::Whole if self.resumes_in(&read.key) => {
                command.resume.clone_from(&self.command.resume);
            }
            MatchedRows::Whole => {}
            MatchedRows::Rows(rows) => {
                let slices = rows.iter().map(|row| Slice::prefix(row.clone())).collect();
                command.slices = Arc::new(Slices(slices));
                // A partition that has its static row alone passes no filter on a row.
                command.wants_static = false;
            }
        }
        command
    }

    fn resumes_in(&self, key: &[u8]) -> bool {
        match &self.command.partitions {
            Partitions::Key(asked) => asked == key,
            Partitions::Range(range) => {
                matches!(&range.start, RingBound::Key { key: at, after: false, .. } if at == key)
            }
        }
    }

    /// The rest of a read that ended after a clustering (`None`: after its partition).
    pub fn after(&self, read: &NamedRead, clustering: Option<&[u8]>) -> Remainder {
        let (MatchedRows::Rows(rows), Some(clustering)) = (&read.rows, clustering) else {
            return Remainder::Nothing;
        };
        let is_left = |row: &&Vec<u8>| self.order.compare(row, clustering) == Ordering::Greater;
        let rows: Vec<_> = rows.iter().filter(is_left).cloned().collect();
        match rows.is_empty() {
            true => Remainder::Nothing,
            false => {
                let (token, key) = (read.token, read.key.clone());
                Remainder::Read(NamedRead { token, key, rows: MatchedRows::Rows(rows) })
            }
        }
    }
}
