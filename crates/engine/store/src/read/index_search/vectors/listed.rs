//! A source whose vectors are all compared: those of a memtable, or the rows of a file or memtable that lacks the index.
//!
//! It keeps the nearest that were not given yet; when they are used up it compares all again and keeps more. So its
//! memory does not grow with the source.

use data::{Advance, Cursor, Item};
use index::nearest::{Nearest, Ranked};

use stdx::{Token, Uuid};

use super::scoring::Wanted;
use crate::read::driver::ITEMS_PER_LOOK;
use crate::read::index_search::{Searching, Stopped};

/// Rows kept at least.
const KEPT_MIN: usize = 64;
/// Rows kept at most.
const KEPT_MAX: usize = 1 << 17;

/// See the module.
pub(super) struct Listed {
    /// Number of the source.
    source: u32,
    /// The index, where the source is a memtable that has it.
    index: Option<Uuid>,
    /// Nearest last.
    kept: Vec<Ranked>,
    size: usize,
    /// The last row that was given or is kept.
    last: Option<Ranked>,
    is_end: bool,
}

impl Listed {
    /// A source of a search for so many rows.
    pub(super) fn new(source: u32, index: Option<Uuid>, limit: usize) -> Listed {
        let size = limit.saturating_mul(2).clamp(KEPT_MIN, KEPT_MAX);
        Listed { source, index, kept: Vec::new(), size, last: None, is_end: false }
    }

    /// The next row, nearest first. `None`: there is none.
    pub(super) async fn next(
        &mut self,
        searching: &mut Searching<'_>,
        wanted: &Wanted,
    ) -> Result<Option<Ranked>, Stopped> {
        if self.kept.is_empty() && !self.is_end {
            let mut nearest = Nearest::new(self.size);
            match self.index {
                Some(index) => self.compare_memtable(searching, wanted, index, &mut nearest).await,
                None => self.compare_rows(searching, wanted, &mut nearest).await?,
            }
            self.is_end = !nearest.is_cut();
            self.size = self.size.saturating_mul(2).min(KEPT_MAX);
            self.kept = nearest.into_rows();
            self.kept.reverse();
            self.last = self.kept.first().cloned().or(self.last.take());
        }
        Ok(self.kept.pop())
    }

    /// Returns false if rows of this score were given already, all of them.
    fn is_ahead(&self, score: f32) -> bool {
        self.last.as_ref().is_none_or(|last| score.total_cmp(&last.score).is_le())
    }

    /// Offers a row, unless it was given.
    fn offer(&self, ranked: Ranked, nearest: &mut Nearest) {
        if self.last.as_ref().is_none_or(|last| ranked > *last) {
            nearest.offer(ranked);
        }
    }

    async fn compare_memtable(
        &self,
        searching: &Searching<'_>,
        wanted: &Wanted,
        index: Uuid,
        nearest: &mut Nearest,
    ) {
        let Some(memtable) = searching.memtable(self.source) else { return };
        let comparator = searching.shape.clustering();
        let mut at = 0;
        loop {
            let compared = memtable.with_vectors(index, |vectors| {
                let part = vectors.part(at);
                for entry in part.iter().take(ITEMS_PER_LOOK) {
                    let score = wanted.score_of(&entry.vector);
                    if !self.is_ahead(score) {
                        continue;
                    }
                    let values = searching.clustering_of(&entry.row);
                    if !searching.range.contains(&entry.row, values, comparator) {
                        continue;
                    }
                    match nearest.admits(score) {
                        true => self.offer(Ranked { score, row: entry.row.clone() }, nearest),
                        false => nearest.pass(),
                    }
                }
                part.len().min(ITEMS_PER_LOOK)
            });
            match compared {
                None | Some(0) => return,
                Some(count) => at += count,
            }
            searching.reader.index_reads.vector_rows.add(compared.unwrap_or(0) as u64);
            searching.reader.env.rt.yield_if_due().await;
        }
    }

    async fn compare_rows(
        &self,
        searching: &mut Searching<'_>,
        wanted: &Wanted,
        nearest: &mut Nearest,
    ) -> Result<(), Stopped> {
        let mut cursor = searching.cursor_of(self.source, searching.range.range.clone())?;
        let (mut token, mut key) = (Token::MIN, Vec::new());
        let mut items = 0;
        loop {
            match cursor.advance()? {
                Advance::End => break,
                Advance::NeedBlock(request) => {
                    searching.feed(&mut cursor, request).await?;
                    continue;
                }
                Advance::Item => {}
            }
            match cursor.item() {
                Item::Partition { token: of, key: bytes, .. } => {
                    token = of;
                    key.clear();
                    key.extend_from_slice(bytes);
                }
                Item::Row { clustering, row } => {
                    if let Some(score) = wanted.score(row).filter(|score| self.is_ahead(*score)) {
                        match nearest.admits(score) {
                            true => {
                                let row = searching.row_key(token, &key, Some(clustering))?;
                                self.offer(Ranked { score, row: row.into() }, nearest);
                            }
                            false => nearest.pass(),
                        }
                    }
                }
                Item::Static(_) | Item::Marker(_) | Item::PartitionEnd => {}
            }
            items += 1;
            if items % ITEMS_PER_LOOK == 0 && searching.reader.env.rt.is_yield_due() {
                searching.reader.env.rt.yield_if_due().await;
            }
        }
        searching.reader.index_reads.vector_rows.add(items as u64);
        Ok(())
    }
}
