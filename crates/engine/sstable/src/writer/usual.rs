//! Rows of the usual form ([`sst_format::row_copy`]), many at a time: most rows of most files.

use std::cmp::Ordering;

use data::{DeletionTime, RowRef};
use sst_format::clustering::{Prefix, PrefixKind};
use sst_format::row::is_partition_end;
use sst_format::stats_collector::UsualRows;
use sst_format::{PackedRow, RawRow, RowCopier, UsualRow};

use super::SstableWriter;
use crate::Result;
use crate::meta::SstableMeta;

/// Counts of the data copied from another file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiedRows {
    /// Bytes.
    pub bytes: usize,
    /// Rows.
    pub rows: u64,
    /// The end of the partition was among them.
    pub ended: bool,
}

/// Limit up to which rows of another file are copied.
#[derive(Clone, Copy, Debug)]
pub enum CopyUntil<'a> {
    /// To the end of the partition, which is ended.
    PartitionEnd,
    /// To the end of the rows; the partition continues.
    RowsEnd,
    /// Down to this clustering.
    Before(&'a [u8]),
}

impl SstableWriter {
    /// Finds rows of a file that can be copied verbatim into this one; `None`: there are none, or the rows are
    /// indexed and must be decoded.
    pub fn copier(&self, from: &SstableMeta) -> Option<RowCopier> {
        if self.attached.indexes.is_some() {
            return None;
        }
        RowCopier::new(from.schema(), &self.schema)
    }

    /// Returns true if a row of so many bytes may exceed a limit of [`WriterOptions::large`] once
    /// its sizes and times are rewritten. Such rows must not be passed to
    /// [`SstableWriter::copy_rows`].
    ///
    /// [`WriterOptions::large`]: super::WriterOptions::large
    #[inline]
    pub fn may_be_large(&self, bytes: usize) -> bool {
        // Size, size of the row before, and time have nine bytes each at most.
        (bytes as u64).saturating_add(27) > self.large_row
    }

    /// Returns true if a row is to be copied.
    #[inline]
    pub fn is_before(&mut self, row: &RawRow<'_>, until: CopyUntil<'_>) -> bool {
        let CopyUntil::Before(end) = until else { return true };
        self.clustering.clear();
        row.put_clustering(&mut self.clustering);
        self.comparator.compare(&self.clustering, end) == Ordering::Less
    }

    /// Copies the rows at the start of `bytes`, of which `first` is the first one, down to one of another
    /// form or one that may be large, or as far as `until` says.
    ///
    /// # Errors
    /// `Unwritable`.
    pub fn copy_rows(
        &mut self,
        copier: &RowCopier,
        first: RawRow<'_>,
        bytes: &[u8],
        until: CopyUntil<'_>,
    ) -> Result<CopiedRows> {
        let mut copied = CopiedRows::default();
        let mut rows = UsualRows::NONE;
        let mut row = first;
        self.end_header()?;
        loop {
            self.usual_row(&row)?;
            rows.add(row.timestamp());
            copied.bytes += row.length;
            match copier.row(bytes.get(copied.bytes..).unwrap_or(&[])) {
                Some(next) if !self.may_be_large(next.length) && self.is_before(&next, until) => {
                    row = next;
                }
                _ => break,
            }
        }
        set(&mut self.partition.last, &row);
        self.stats.usual_rows(&rows, copier.columns() as u64);
        copied.rows = rows.count();
        let ends = matches!(until, CopyUntil::PartitionEnd);
        if ends && is_partition_end(bytes.get(copied.bytes..).unwrap_or(&[])) {
            copied.bytes += 1;
            copied.ended = true;
            self.partition_end()?;
        }
        Ok(copied)
    }

    /// Writes rows of the usual form, in order, down to one of another form, or until
    /// [`SstableWriter::write_full`] has something to do: how many. When the first one
    /// is, `begin` says which partition is to be begun before it.
    ///
    /// # Errors
    /// `Unwritable`.
    pub fn packed_rows<'r>(
        &mut self,
        begin: Option<&[u8]>,
        rows: impl IntoIterator<Item = (&'r [u8], RowRef<'r>)>,
    ) -> Result<u64> {
        let schema = self.schema.clone();
        let mut written = UsualRows::NONE;
        let mut last = None;
        for (clustering, row) in rows {
            let Some(row) = PackedRow::new(&schema, clustering, row) else { break };
            // Also where rows are indexed: then all count as large.
            if self.may_be_large(row.length_max()) {
                break;
            }
            if written.count() == 0 {
                if let Some(key) = begin {
                    self.partition(key, DeletionTime::LIVE)?;
                }
                self.end_header()?;
            }
            self.usual_row(&row)?;
            written.add(row.timestamp());
            last = Some(row);
            if self.is_full() {
                break;
            }
        }
        if let Some(last) = last {
            set(&mut self.partition.last, &last);
            self.stats.usual_rows(&written, schema.regulars.columns.len() as u64);
        }
        Ok(written.count())
    }

    /// Writes a row and notes where it lies, as [`SstableWriter::row`] does, but for what the last row of
    /// the partition is.
    #[inline]
    fn usual_row<R: UsualRow>(&mut self, row: &R) -> Result<()> {
        let at = self.offset();
        row.put(at - self.partition.previous, &mut self.chunk);
        let end = self.offset();
        let p = &mut self.partition;
        if p.rows == 0 {
            set(&mut p.first, row);
        }
        if !p.in_block {
            set(&mut p.block.first, row);
            p.block.offset = at;
            p.in_block = true;
        }
        p.rows += 1;
        p.previous = at;
        if end - p.block.offset >= self.options.column_index_size {
            set(&mut p.last, row);
            self.end_block()?;
        }
        self.cut_chunks()
    }
}

#[inline]
pub(super) fn set<R: UsualRow>(target: &mut Prefix, row: &R) {
    target.kind = PrefixKind::Clustering;
    target.values.clear();
    row.put_clustering(&mut target.values);
}
