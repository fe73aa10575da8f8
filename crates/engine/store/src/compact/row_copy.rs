//! Output of a compaction: rows that it copies from its inputs verbatim, because the merge could not
//! change them (most rows of most tables), and the merged form of all others.
//!
//! INV-copying-1: a row is copied only when it is of the usual form ([`sst_format::row_copy`]), no deletion
//! covers it in the inputs, and either no other input has its partition, or all that others have of it is behind
//! the row, or the row hides all other versions whole.

use data::{Advance, Item};
use smallvec::SmallVec;
use sst_format::{RowCopier, UsualRow};
use sstable::{CopyUntil, ROWS_BLOCK, SequentialReader};
use stdx::TimestampMicros;

use crate::compact::Compactor;
use crate::compact::cleanup::OwnedRanges;
use crate::compact::compaction::MergeNotes;
use crate::compact::outputs::Outputs;
use crate::compact::partition_copy::Ahead;
use crate::error::StoreError;
use crate::files::slots::Progress;
use crate::memtable::ITEMS_PER_LOOK;
use crate::read::cache_handover::Warmth;
use crate::read::merging::Merging;
use crate::read::sources::Source;
use crate::tables::table_file::map_error;
use crate::write::verbatim_copy::is_on;

/// Bytes of outputs after which a compaction checks if it is too quick. Less than a request, so
/// that low rates are kept evenly, and for small tables too.
const PACE_BYTES: u64 = 256 * 1024;

/// Finders of rows that can be copied, one for each input.
pub(crate) struct Copiers {
    of: Vec<Option<RowCopier>>,
}

impl Copiers {
    /// After the first output was opened.
    pub(crate) fn new(merge: &impl Merging, outputs: &Outputs<'_>) -> Copiers {
        let of = |source: &Source| source.file().and_then(|source| outputs.copier(&source.file));
        let of = merge.inputs().map(|source| of(source).filter(|_| is_on())).collect();
        Copiers { of }
    }

    pub(crate) fn of(&self, input: usize) -> Option<&RowCopier> {
        self.of.get(input)?.as_ref()
    }

    /// Copies rows that follow in the merge, as far as they are in memory: how many.
    ///
    /// # Errors
    /// `Invalid`: what cannot be written.
    #[inline]
    pub(crate) fn take_rows(
        &self,
        merge: &mut impl Merging,
        outputs: &mut Outputs<'_>,
    ) -> Result<usize, StoreError> {
        let Some((index, source)) = merge.untouched() else {
            return match merge.has_one_row() {
                true => self.take_newest(merge, outputs),
                false => self.take_run(merge, outputs),
            };
        };
        let (Some(copier), Some(source)) = (self.of(index), source.file_mut()) else {
            return Ok(0);
        };
        let Some(bytes) = source.raw_rows() else { return Ok(0) };
        let copied = outputs.copy_rows(copier, bytes, CopyUntil::PartitionEnd)?;
        if copied.bytes > 0 {
            source.pass_rows(copied.bytes, copied.ended);
            merge.took_rows(copied.ended);
        }
        Ok(usize::try_from(copied.rows).unwrap_or(usize::MAX))
    }

    /// The same for a partition with rows in several inputs: copies the rows of one before the next
    /// row of all others.
    fn take_run(
        &self,
        merge: &mut impl Merging,
        outputs: &mut Outputs<'_>,
    ) -> Result<usize, StoreError> {
        let Some((index, next)) = merge.run() else { return Ok(0) };
        let source = merge.inputs().nth(index).and_then(Source::file);
        let bytes = source.and_then(|source| source.raw_rows());
        let (Some(copier), Some(bytes)) = (self.of(index), bytes) else { return Ok(0) };
        let copied =
            outputs.copy_rows(copier, bytes, next.map_or(CopyUntil::RowsEnd, CopyUntil::Before))?;
        if copied.bytes > 0
            && let Some(source) = merge.input_mut(index).and_then(Source::file_mut)
        {
            source.pass_rows(copied.bytes, false);
        }
        #[cfg(test)]
        crate::write::verbatim_copy::RUN_ROWS
            .set(crate::write::verbatim_copy::RUN_ROWS.get() + copied.rows);
        Ok(usize::try_from(copied.rows).unwrap_or(usize::MAX))
    }

    /// The same for a partition of one row with versions in several inputs.
    fn take_newest(
        &self,
        merge: &mut impl Merging,
        outputs: &mut Outputs<'_>,
    ) -> Result<usize, StoreError> {
        let members: SmallVec<[bool; 8]> = merge.members().collect();
        let members = || members.iter().enumerate().filter(|(_, is_in)| **is_in).map(|(n, _)| n);
        // Bytes of each version, and the newest one.
        let mut lengths: SmallVec<[(usize, usize); 8]> = SmallVec::new();
        let mut newest: Option<(TimestampMicros, usize)> = None;
        for index in members() {
            let (Some(copier), Some(source)) = (self.of(index), merge.input_mut(index)) else {
                return Ok(0);
            };
            let bytes = source.file().and_then(|source| source.raw_rows());
            let Some(bytes) = bytes else { return Ok(0) };
            let Some(row) = copier.row(bytes) else { return Ok(0) };
            let behind = bytes.get(row.length..).unwrap_or(&[]);
            let at = row.timestamp();
            // Between versions of one time, the values decide.
            if !sst_format::row::is_partition_end(behind)
                || newest.is_some_and(|(timestamp, _)| timestamp == at)
            {
                return Ok(0);
            }
            newest = newest.max(Some((at, index)));
            lengths.push((index, row.length + 1));
        }
        let Some((_, winner)) = newest else { return Ok(0) };
        let source = merge.input_mut(winner).and_then(Source::file_mut);
        let bytes = source.as_ref().and_then(|source| source.raw_rows());
        let (Some(copier), Some(bytes)) = (self.of(winner), bytes) else { return Ok(0) };
        let copied = outputs.copy_rows(copier, bytes, CopyUntil::PartitionEnd)?;
        if copied.rows == 0 {
            return Ok(0);
        }
        stdx::invariant!(copied.ended && copied.rows == 1, "a partition has more than a row");
        for (index, length) in lengths {
            if let Some(source) = merge.input_mut(index).and_then(Source::file_mut) {
                source.pass_rows(length, true);
            }
        }
        merge.took_partition();
        Ok(1)
    }
}

/// Writes the merged data. `blocks` are the files of the merge's sources, by number.
pub(crate) async fn write_merged<M: Merging>(
    compactor: &Compactor,
    mut merge: M,
    mut blocks: Vec<SequentialReader>,
    owned: Option<&OwnedRanges>,
    outputs: &mut Outputs<'_>,
    notes: MergeNotes<'_>,
) -> Result<(), StoreError> {
    let MergeNotes { progress, counts } = notes;
    let mut next_blocks = vec![0; merge.inputs().count()];
    let mut written = outputs.data_length();
    let mut items = 0;
    let mut is_foreign = false;
    let mut warmth = Warmth::new(&merge);
    let copiers = Copiers::new(&merge, outputs);
    let mut ahead = Ahead::new(&merge);
    loop {
        if items >= ITEMS_PER_LOOK {
            items = 0;
            if compactor.env.rt.is_yield_due() {
                compactor.env.rt.yield_if_due().await;
            }
        }
        let mut needs = None;
        if !is_foreign {
            let mut rows = 0;
            if owned.is_none() {
                (rows, needs) =
                    ahead.take(&mut merge, &copiers, outputs, &mut warmth, &mut *counts)?;
            }
            if rows == 0 && needs.is_none() {
                rows = copiers.take_rows(&mut merge, outputs)?;
            }
            if rows > 0 {
                items += rows;
                if outputs.is_full() {
                    write_out(compactor, outputs, progress, &mut written).await?;
                }
                continue;
            }
        }
        items += 1;
        let advance = match needs {
            Some(request) => Advance::NeedBlock(request),
            None => merge.advance()?,
        };
        match advance {
            Advance::End => return Ok(()),
            Advance::NeedBlock(request) => {
                let index = request.source as usize;
                let Some(reader) = blocks.get_mut(index) else { continue };
                let chunk = reader.load_block(request.block).await.map_err(map_error)?;
                // The total is that of the inputs' data; a block in which a row is cut off is
                // requested again.
                if let Some(next) = next_blocks.get_mut(index)
                    && (*next..ROWS_BLOCK).contains(&request.block)
                {
                    *next = request.block + 1;
                    progress.done.set(progress.done.get() + chunk.bytes().len() as u64);
                    let warm = warmth.feed(&compactor.files.cache, index, request.block);
                    outputs.credit_warm(warm * chunk.memory_bytes());
                    outputs.set_warm(warmth.is_warm());
                }
                merge.feed(request, chunk);
                compactor.files.slots.check_goes_on(progress)?;
                if outputs.data_length().saturating_sub(written) >= PACE_BYTES {
                    keep_pace(compactor, outputs, progress, &mut written).await?;
                }
            }
            Advance::Item => {
                let item = merge.item();
                if let (Some(owned), Item::Partition { token, .. }) = (owned, item) {
                    is_foreign = !owned.contains(token);
                }
                if is_foreign {
                    continue;
                }
                if outputs.is_due(item) && !outputs.turn().await? {
                    return Ok(());
                }
                if let Item::Partition { .. } = item {
                    counts.add(warmth.partition(&merge));
                    outputs.set_warm(warmth.is_warm());
                }
                let is_full = outputs.put(item)?;
                if let Item::Partition { .. } = item {
                    outputs.set_hash(merge.key_hash());
                }
                if is_full {
                    items = ITEMS_PER_LOOK;
                    write_out(compactor, outputs, progress, &mut written).await?;
                }
            }
        }
    }
}

/// Writes all full requests, and waits as the rate of compactions requires. `written` is the value
/// before.
async fn write_out(
    compactor: &Compactor,
    outputs: &mut Outputs<'_>,
    progress: &Progress,
    written: &mut u64,
) -> Result<(), StoreError> {
    outputs.write_full().await?;
    keep_pace(compactor, outputs, progress, written).await
}

/// Waits as the rate of compactions wants.
async fn keep_pace(
    compactor: &Compactor,
    outputs: &Outputs<'_>,
    progress: &Progress,
    written: &mut u64,
) -> Result<(), StoreError> {
    let (rate, now) = (compactor.compaction_rate.get(), compactor.env.rt.now());
    let length = outputs.data_length();
    let due = compactor.files.slots.pace(now, length.saturating_sub(*written), rate);
    *written = length;
    if due > compactor.env.rt.now() {
        compactor.env.rt.sleep_until(due).await;
        compactor.files.slots.check_goes_on(progress)?;
    }
    Ok(())
}
