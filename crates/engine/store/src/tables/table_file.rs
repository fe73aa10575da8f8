//! An open SSTable of a shard.

use std::rc::Rc;
use std::sync::Arc;

use data::command::{KeyRange, RingBound};
use data::{Advance, Cursor, Slices};
use sstable::{SstableError, SstableReader, TokenFilter};
use stdx::{Generation, ShardMap, TableId, Token, WallMicros};

use crate::error::StoreError;

/// An open SSTable of this shard.
pub(crate) struct TableFile {
    /// Its number in the chunk cache.
    pub(crate) id: u64,
    pub(crate) table: TableId,
    pub(crate) generation: Generation,
    pub(crate) reader: SstableReader,
    /// Other shards use it too.
    pub(crate) spanning: bool,
    pub(crate) filter: Option<TokenFilter>,
    /// Slices (shard, of how many) that were released: their partitions are invisible.
    pub(crate) hidden: Rc<[(u16, u16)]>,
    /// When it was opened.
    pub(crate) created_at: WallMicros,
    /// When its Data was written, also in an earlier run.
    pub(crate) written_at: WallMicros,
}

impl TableFile {
    /// The same file with other hidden slices.
    pub(crate) fn hiding(&self, hidden: Vec<(u16, u16)>) -> TableFile {
        TableFile { hidden: hidden.into(), reader: self.reader.clone(), ..*self }
    }

    /// The same file after one of its components was rewritten.
    pub(crate) fn with_reader(&self, reader: SstableReader) -> TableFile {
        TableFile { reader, hidden: self.hidden.clone(), ..*self }
    }

    /// Returns true if a partition of that token is visible through this file.
    pub(crate) fn shows(&self, map: ShardMap, token: Token) -> bool {
        let owner = |shards: u16| map.over(shards).shard_of(self.table, token);
        self.hidden.iter().all(|(shard, shards)| owner(*shards).0 != *shard)
    }
}

/// Returns true if every partition of a file lies in the ranges.
pub(crate) async fn lies_in(
    file: &TableFile,
    ranges: &[(Token, Token)],
) -> Result<bool, StoreError> {
    let meta = file.reader.meta();
    let (first, last) = (meta.first_token(), meta.last_token());
    let contains = |token: Token| {
        let at = ranges.partition_point(|(_, end)| *end < token);
        ranges.get(at).is_some_and(|(start, _)| *start < token || *start == Token::MIN)
    };
    if !contains(first) || !contains(last) {
        return Ok(false);
    }
    let between = ranges.windows(2).filter_map(|pair| match pair {
        [(_, end), (start, _)] if end < start => Some((*end, *start)),
        _ => None,
    });
    let gaps: Vec<(Token, Token)> =
        between.filter(|(start, end)| *end >= first && *start < last).collect();
    if gaps.len() > GAPS_MAX {
        return Ok(false);
    }
    for (start, end) in gaps {
        if has_partition(file, start, end).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns true if the file has a partition after the first token, up to the second.
pub(crate) async fn has_partition(
    file: &TableFile,
    start: Token,
    end: Token,
) -> Result<bool, StoreError> {
    let bound = |token| RingBound::Token { token, after: true };
    let range = KeyRange { start: bound(start), end: bound(end) };
    let mut cursor = file.reader.range_cursor(0, range, Arc::new(Slices::all()), None);
    loop {
        match cursor.advance()? {
            Advance::Item => return Ok(true),
            Advance::End => return Ok(false),
            Advance::NeedBlock(request) => {
                let chunk = file.reader.load_block(request.block).await.map_err(map_error)?;
                cursor.feed(request.block, chunk);
            }
        }
    }
}

pub(crate) fn map_error(error: SstableError) -> StoreError {
    match error {
        SstableError::Io(error) => error.into(),
        SstableError::Corrupt { file, offset, what } => {
            StoreError::Corrupt { file, what: format!("{what} at offset {offset}") }
        }
        SstableError::Missing { file } => {
            StoreError::Corrupt { file, what: "the file is missing".to_owned() }
        }
        SstableError::Unwritable { file, error } => {
            StoreError::Unwritable { what: error.to_string(), place: file }
        }
        SstableError::Unsupported { .. } => StoreError::Unsupported(error.to_string()),
        SstableError::NoKey { .. } => StoreError::Invalid(error.to_string()),
    }
}

/// Gaps between ranges in which a file is searched for partitions; with more it is sent as rows.
const GAPS_MAX: usize = 128;
