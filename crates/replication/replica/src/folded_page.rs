//! Pages of results that a shard makes of its rows, see [`data::row_fold`].
//!
//! Owns: the end of such a page, and the form of a result in a [`PackedPage`]: a row of its partition, with the
//! clustering of the last row that was folded into it. Its first byte says if the partition is done.

use data::{FoldFlow, Folding, RowRef};
use stdx::Token;
use store::{Flow, Look, LookedAt, ReadStats, RowSink};

use crate::packed_page::{
    LEFT_OUT_OVERHEAD, PackedPage, PageLimit, RowPosition, put_partition, put_row,
};

/// First byte of a result after which the partition continues.
const GOES_ON: u8 = 0;
/// First byte of the last result of a partition.
const IS_DONE: u8 = 1;

/// A result out of a page: the clustering of its last row, `None` where the partition is done, and its bytes.
pub fn open_result<'a>(
    clustering: &'a [u8],
    row: RowRef<'a>,
) -> Option<(Option<&'a [u8]>, &'a [u8])> {
    let (first, bytes) = row.bytes().split_first()?;
    Some(((*first == GOES_ON).then_some(clustering), bytes))
}

/// Folds rows, and builds a page of the results.
pub(crate) struct FoldSink<'f> {
    folding: Box<dyn Folding + 'f>,
    page: PackedPage,
    limit: PageLimit,
    /// The partition that was put into the page last.
    put: Option<(Token, Vec<u8>)>,
    result: Vec<u8>,
    /// The current partition.
    token: Token,
    key: Vec<u8>,
    /// It was announced and is not over.
    is_inside: bool,
    /// Bytes read, including the fixed cost of each row.
    bytes: u64,
    looked_at: usize,
    /// The fold needs nothing more.
    is_enough: bool,
}

impl<'f> FoldSink<'f> {
    /// It has reached a limit, or has all that is wanted.
    pub(crate) fn is_full(&self) -> bool {
        self.page.more || self.is_enough
    }

    pub(crate) fn new(folding: Box<dyn Folding + 'f>, limit: PageLimit) -> FoldSink<'f> {
        FoldSink {
            folding,
            page: PackedPage::default(),
            limit,
            put: None,
            result: Vec::new(),
            token: Token::MIN,
            key: Vec::new(),
            is_inside: false,
            bytes: 0,
            looked_at: 0,
            is_enough: false,
        }
    }

    #[inline]
    fn look_at(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.looked_at = self.looked_at.saturating_add(bytes + LEFT_OUT_OVERHEAD);
    }

    #[inline]
    fn take_result(&mut self) {
        let Some(result) = self.folding.take_result() else { return };
        let is_put = self.put.as_ref().is_some_and(|(_, key)| key == result.key);
        if !is_put {
            put_partition(&mut self.page.bytes, result.token, result.key, None);
            self.put = Some((result.token, result.key.to_vec()));
        }
        self.result.clear();
        self.result.push(if result.last.is_some() { GOES_ON } else { IS_DONE });
        self.result.extend_from_slice(result.bytes);
        put_row(&mut self.page.bytes, result.last.unwrap_or_default(), &self.result);
        self.page.rows += 1;
    }

    /// Translates the fold's verdict, and decides if the page ends after this row or after the
    /// current partition.
    #[inline]
    fn flow(&mut self, flow: FoldFlow, clustering: Option<&[u8]>) -> Flow {
        self.take_result();
        match flow {
            FoldFlow::Continue => {}
            // The end of the partition follows, and may end the page.
            FoldFlow::SkipPartition if clustering.is_some() => return Flow::SkipPartition,
            FoldFlow::SkipPartition => {}
            FoldFlow::Stop => {
                self.is_enough = true;
                return Flow::Stop;
            }
        }
        let at = RowPosition { token: self.token, key: &self.key, clustering };
        self.page.flow(&self.limit, self.looked_at, at)
    }

    /// The page. `stats`: what reading for it has cost.
    pub(crate) fn finish(mut self, mut stats: ReadStats) -> PackedPage {
        if !self.page.more && !self.is_enough {
            self.folding.end();
            self.take_result();
        }
        let end = self.folding.finish();
        stats.filtered.rows = end.dropped_rows;
        stats.filtered.partitions = end.dropped_partitions;
        stats.filtered.bytes = self.bytes;
        let (state, is_failed) = (end.state, end.is_failed);
        PackedPage { stats, state, is_failed, ..self.page }
    }
}

impl RowSink for FoldSink<'_> {
    fn partition(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        self.token = token;
        self.is_inside = true;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.look_at(key.len() + static_row.map_or(0, |row| row.bytes().len()));
        let flow = self.folding.partition(token, key, static_row);
        self.take_result();
        match flow {
            FoldFlow::Continue => Flow::Continue,
            FoldFlow::SkipPartition => Flow::SkipPartition,
            FoldFlow::Stop => {
                self.is_enough = true;
                Flow::Stop
            }
        }
    }

    #[inline]
    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        self.look_at(clustering.len() + row.bytes().len());
        let flow = self.folding.row(clustering, row);
        self.flow(flow, Some(clustering))
    }

    fn looked_at(&mut self, upto: LookedAt<'_>) -> Look {
        let is_shown = self.is_inside && self.key == upto.key;
        self.page.look(&self.limit, &upto, is_shown)
    }

    fn tombstones_per_look(&self) -> u32 {
        self.limit.tombstones
    }

    fn partition_end(&mut self) -> Flow {
        self.is_inside = false;
        let flow = self.folding.partition_end();
        self.flow(flow, None)
    }
}
