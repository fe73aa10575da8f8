//! Partitions of one row of the usual form, many at a time: such a partition is known completely when it arrives. Its
//! bytes are written at once. Filter, statistics and index are updated for many of them together, one after the
//! other: each has tables of its own, which would else evict the others' from the nearest cache.

use std::rc::Rc;

use codec::KeyHash;
use data::{BoundRef, DeletionTime};
use sst_format::hyperloglog::murmur2_64;
use sst_format::row_write::{encode_partition_end, encode_partition_header};
use sst_format::stats_collector::UsualRows;
use sst_format::{UsualRow, WriteSchema};
use stdx::Token;

use super::SstableWriter;
use super::tries::PartitionFacts;
use super::usual::set;
use crate::Result;

/// Partitions that are settled together.
pub const WHOLE_MAX: usize = 64;

/// A partition that was written and is not settled.
#[derive(Clone, Copy, Debug)]
struct Written {
    hash: KeyHash,
    /// Hash of its key for the estimate of how many there are.
    cardinality: u64,
    start: u64,
    bytes: u64,
}

/// Partitions and rows that wait to be settled. Empty between two calls.
#[derive(Debug)]
pub(super) struct Unsettled {
    partitions: Vec<Written>,
    rows: UsualRows,
}

impl Default for Unsettled {
    fn default() -> Self {
        Unsettled { partitions: Vec::new(), rows: UsualRows::NONE }
    }
}

impl SstableWriter {
    /// Returns the schema that rows are written with.
    pub fn schema(&self) -> Rc<WriteSchema> {
        self.schema.clone()
    }

    /// Largest size of a partition for [`SstableWriter::whole_partitions`], by its key and its row
    /// as stored in another file or a memtable. `None`: it accepts none, as each partition needs
    /// more checks.
    pub fn whole_max(&self) -> Option<usize> {
        let limits = &self.options.large;
        let takes = !self.schema.has_static() && limits.rows > 0;
        // Size, size of the row before, and time have nine bytes each at most; a header beside its key has 14, and the
        // end one.
        let most = self.large_row.min(limits.bytes).checked_sub(64).filter(|_| takes)?;
        Some(usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// Writes partitions of one row with all columns, which follow each other in order: how many, at most
    /// [`WHOLE_MAX`]. Down to the end of them, or until [`SstableWriter::write_full`] has something to do, or
    /// [`SstableWriter::disk_length`] comes to `disk_max`; what is not written is not asked for. Pre: none of them is
    /// larger than [`SstableWriter::whole_max`] says, and no partition is open.
    ///
    /// # Errors
    /// `Unwritable`.
    pub fn whole_partitions<'p, R: UsualRow>(
        &mut self,
        disk_max: Option<u64>,
        mut next: impl FnMut() -> Option<(KeyHash, &'p [u8], R)>,
    ) -> Result<usize> {
        stdx::invariant!(!self.in_partition, "sstable writer: a partition is open");
        let mut count = 0;
        let mut last: Option<(Token, &[u8])> = None;
        while count < WHOLE_MAX
            && !self.is_full()
            && disk_max.is_none_or(|most| self.disk_length() < most)
            && let Some((hash, key, row)) = next()
        {
            self.check_order(last, hash, key);
            let is_of_last = match last {
                Some((token, _)) => token == hash.token,
                None => self.tries.as_ref().is_some_and(|tries| tries.is_of_last(hash.token)),
            };
            if let (Some((_, last)), true) = (last, is_of_last) {
                self.settle(last)?;
            }
            let index_at = self.index.length();
            self.whole_partition(hash, key, &row)?;
            // For keys with one token the index needs all bytes. With a bound the length of the
            // index must be known, as it must where its pages are kept.
            if is_of_last || disk_max.is_some() || self.warm.is_wanted() {
                self.settle(key)?;
                if self.warm.partition_end() {
                    self.index.keep_from(index_at);
                }
            }
            last = Some((hash.token, key));
            count += 1;
        }
        if let Some((_, key)) = last {
            self.settle(key)?;
            self.partition.key.clear();
            self.partition.key.extend_from_slice(key);
        }
        Ok(count)
    }

    #[inline]
    fn check_order(&self, last: Option<(Token, &[u8])>, hash: KeyHash, key: &[u8]) {
        stdx::debug_invariant!(hash == codec::hash_key(key), "sstable writer: another key's hash");
        let before = || {
            let of_call_before = &*self.partition.key;
            last.unwrap_or_else(|| (codec::token_of(of_call_before), of_call_before))
        };
        stdx::debug_invariant!(
            self.partitions() == 0 || before() < (hash.token, key),
            "sstable writer: keys do not ascend"
        );
    }

    /// Writes a partition; all but Data and, in format BIG, the index is left to [`SstableWriter::settle`].
    #[inline]
    fn whole_partition<R: UsualRow>(&mut self, hash: KeyHash, key: &[u8], row: &R) -> Result<()> {
        let version = self.options.version;
        let (start, at) = (self.data_length(), self.chunk.len());
        encode_partition_header(key, &DeletionTime::LIVE, version, &mut self.chunk)
            .map_err(|e| self.unwritable(e))?;
        let header = (self.chunk.len() - at) as u64;
        row.put(header, &mut self.chunk);
        encode_partition_end(&mut self.chunk);
        let bytes = (self.chunk.len() - at) as u64;
        // With format BTI positions in the index are not reported.
        self.summary.add(key, self.index.length());
        if self.tries.is_none() {
            self.promoted.clear();
            let (live, out) = (&DeletionTime::LIVE, &mut self.index.pending);
            let entry = self.promoted.encode_entry(key, start, header, live, version, out);
            entry.map_err(|e| self.unwritable(e))?;
        }
        if !self.schema.clustering.is_empty() {
            set(&mut self.partition.first, row);
            let prefix = &*self.partition.first.values;
            let (first, last) =
                (BoundRef { prefix, after: false }, BoundRef { prefix, after: true });
            self.stats.covered(&self.comparator, first, last);
        }
        self.unsettled.rows.add(row.timestamp());
        let cardinality = murmur2_64(key);
        self.unsettled.partitions.push(Written { hash, cardinality, start, bytes });
        self.cut_chunks()
    }

    /// Adds the written partitions to filter, statistics and index. `last` is the key of the last
    /// of them; the tokens of the others are unique.
    fn settle(&mut self, last: &[u8]) -> Result<()> {
        let Unsettled { partitions, rows } = &mut self.unsettled;
        for partition in &*partitions {
            self.filter.add(partition.hash.bloom);
        }
        let columns = self.schema.regulars.columns.len() as u64;
        let counted = partitions.iter().map(|partition| (partition.cardinality, partition.bytes));
        self.stats.usual_partitions(rows, columns, counted);
        if self.schema.clustering.is_empty() && !partitions.is_empty() {
            self.stats.covered(&self.comparator, BoundRef::BOTTOM, BoundRef::TOP);
        }
        let mut done = Ok(());
        if let (Some(tries), Some((end, others))) = (&mut self.tries, partitions.split_last()) {
            for partition in others {
                tries.partition_of_token(partition.hash, partition.start, &mut self.index);
            }
            let facts = PartitionFacts {
                key: last,
                hash: end.hash,
                start: end.start,
                deletion: DeletionTime::LIVE,
                rows_end: end.start + end.bytes - 1,
            };
            done = tries.partition(&facts, &mut self.index);
        }
        partitions.clear();
        *rows = UsualRows::NONE;
        done.map_err(|error| self.unwritable(error))
    }
}
