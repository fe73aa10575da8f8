//! Summary.db: every 128th (or so) key of the index with its position, first and last key.
//!
//! Layout: min index interval i32, entry count i32, bytes of offsets and entries i64, sampling
//! level i32, size at full sampling i32; then little-endian offsets (u32, from the start of the
//! offsets), then entries (key, little-endian position u64); then first and last key with i32
//! lengths. Source: `io.sstable.indexsummary.IndexSummary`.

use codec::{Reader, Writer, token_of};
use stdx::Token;

use crate::{FormatError, Partitioner, Result};

/// Sampling level of a summary that was never thinned out.
const BASE_SAMPLING_LEVEL: u32 = 128;

/// A summary in memory: about key length + 20 bytes per entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Entries of the index per sample at full sampling.
    pub min_index_interval: u32,
    /// 128 unless Cassandra thinned the summary out.
    pub sampling_level: u32,
    /// Samples there were at full sampling.
    pub full_size: u32,
    /// First key of the file.
    pub first: Vec<u8>,
    /// Last key of the file.
    pub last: Vec<u8>,
    tokens: Vec<Token>,
    positions: Vec<u64>,
    key_ends: Vec<u32>,
    keys: Vec<u8>,
}

impl Summary {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// No samples: never so for a decoded or finished summary.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Key of a sample.
    pub fn key(&self, index: usize) -> &[u8] {
        let start = match index.checked_sub(1) {
            None => 0,
            Some(before) => self.key_ends.get(before).map_or(0, |end| *end as usize),
        };
        let end = self.key_ends.get(index).map_or(0, |end| *end as usize);
        self.keys.get(start..end).unwrap_or(&[])
    }

    /// Position in the index of a sample.
    pub fn position(&self, index: usize) -> Option<u64> {
        self.positions.get(index).copied()
    }

    /// Returns the range of the index that has the entry of a key, if it exists: from a position up
    /// to the next sample's position, `None` = to the end of the index. Outer `None`: the key is
    /// before the first.
    pub fn find(&self, token: Token, key: &[u8]) -> Option<(u64, Option<u64>)> {
        let mut after = self.tokens.partition_point(|t| *t < token);
        while self.tokens.get(after) == Some(&token) && self.key(after) <= key {
            after = after.saturating_add(1);
        }
        let index = after.checked_sub(1)?;
        Some((self.position(index)?, self.position(after)))
    }

    /// Where in the index to begin looking for the first key at or after a token: the position of
    /// the last sample before it, or the start.
    pub fn find_token(&self, token: Token) -> u64 {
        let after = self.tokens.partition_point(|t| *t < token);
        after.checked_sub(1).and_then(|i| self.position(i)).unwrap_or(0)
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.keys.len().saturating_add(self.positions.len().saturating_mul(20))
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// `TooLarge` above 2 GiB.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let too_large = || FormatError::TooLarge { what: "index summary" };
        let count = u32::try_from(self.len()).map_err(|_| too_large())?;
        let offsets = self.len().saturating_mul(4);
        let body =
            offsets.saturating_add(self.keys.len()).saturating_add(self.len().saturating_mul(8));
        if i32::try_from(body).is_err() {
            return Err(too_large());
        }
        let mut out = Vec::with_capacity(body.saturating_add(64));
        out.put_u32(self.min_index_interval);
        out.put_u32(count);
        out.put_u64(body as u64);
        out.put_u32(self.sampling_level);
        out.put_u32(self.full_size);
        let mut at = offsets;
        for index in 0..self.len() {
            out.put_u32_le(u32::try_from(at).map_err(|_| too_large())?);
            at = at.saturating_add(self.key(index).len()).saturating_add(8);
        }
        for (index, position) in self.positions.iter().enumerate() {
            out.put_bytes(self.key(index));
            out.put_u64_le(*position);
        }
        for key in [&self.first, &self.last] {
            out.put_bytes_i32(key, "key").map_err(|_| too_large())?;
        }
        Ok(out)
    }

    /// Reads the file.
    ///
    /// # Errors
    /// `Decode`; `Invalid` when samples do not ascend or do not fill the announced bytes.
    pub fn decode(bytes: &[u8], order: Partitioner) -> Result<Summary> {
        let mut r = Reader::new(bytes, "index summary");
        let min_index_interval = r.u32()?;
        let count = r.len_i32()?;
        let body = usize::try_from(r.u64()?).unwrap_or(usize::MAX);
        let sampling_level = r.u32()?;
        let full_size = r.u32()?;
        let count = r.check_count(count, 12)?;
        let body_at = r.position() as u64;
        let body = r.bytes(body)?;
        let mut offsets = Reader::new(body, "index summary offsets");
        let mut starts = Vec::with_capacity(count.saturating_add(1));
        for _ in 0..count {
            starts.push(offsets.u32_le()? as usize);
        }
        let wrong = |what| FormatError::Invalid { what, offset: body_at };
        if count == 0 || starts.first() != Some(&offsets.position()) {
            return Err(wrong("summary entries do not begin behind their offsets"));
        }
        starts.push(body.len());
        let mut summary = Summary {
            min_index_interval,
            sampling_level,
            full_size,
            first: Vec::new(),
            last: Vec::new(),
            tokens: Vec::with_capacity(count),
            positions: Vec::with_capacity(count),
            key_ends: Vec::with_capacity(count),
            keys: Vec::new(),
        };
        for pair in starts.windows(2) {
            let &[start, end] = pair else { continue };
            let entry = body.get(start..end).and_then(|e| e.split_last_chunk::<8>());
            let Some((key, position)) = entry else {
                return Err(wrong("summary entry out of place"));
            };
            summary.push(key, order.token_of(key), u64::from_le_bytes(*position));
        }
        let ascending = |i: usize| {
            let j = i.saturating_add(1);
            summary.positions.get(i) < summary.positions.get(j)
                && (summary.tokens.get(i), summary.key(i)) < (summary.tokens.get(j), summary.key(j))
        };
        if !(0..count.saturating_sub(1)).all(ascending) || summary.positions.first() != Some(&0) {
            return Err(wrong("summary entries do not ascend"));
        }
        summary.first = r.bytes_i32()?.to_vec();
        summary.last = r.bytes_i32()?.to_vec();
        r.finish()?;
        Ok(summary)
    }

    fn push(&mut self, key: &[u8], token: Token, position: u64) {
        self.keys.extend_from_slice(key);
        self.key_ends.push(u32::try_from(self.keys.len()).unwrap_or(u32::MAX));
        self.positions.push(position);
        self.tokens.push(token);
    }
}

/// Collects samples while an index is written.
#[derive(Debug)]
pub struct SummaryBuilder {
    summary: Summary,
    keys: u64,
    /// Keys that come before the next sample.
    until_sample: u32,
}

impl SummaryBuilder {
    /// Takes every `interval`-th key (1 at least; the table's `min_index_interval`).
    pub fn new(interval: u32) -> SummaryBuilder {
        SummaryBuilder {
            summary: Summary {
                min_index_interval: interval.max(1),
                sampling_level: BASE_SAMPLING_LEVEL,
                full_size: 0,
                first: Vec::new(),
                last: Vec::new(),
                tokens: Vec::new(),
                positions: Vec::new(),
                key_ends: Vec::new(),
                keys: Vec::new(),
            },
            keys: 0,
            until_sample: 0,
        }
    }

    /// The next key, whose entry is at `position` in the index.
    pub fn add(&mut self, key: &[u8], position: u64) {
        let room = i32::MAX as usize / 2;
        if self.until_sample == 0 {
            self.until_sample = self.summary.min_index_interval;
            if self.summary.keys.len() < room {
                self.summary.push(key, token_of(key), position);
            }
        }
        self.until_sample = self.until_sample.saturating_sub(1);
        if self.keys == 0 {
            self.summary.first = key.to_vec();
        }
        self.keys = self.keys.saturating_add(1);
    }

    /// Keys so far.
    pub fn key_count(&self) -> u64 {
        self.keys
    }

    /// The finished summary. `last` is the last key; empty when there is none.
    pub fn finish(mut self, last: &[u8]) -> Summary {
        self.summary.last = last.to_vec();
        let full = self.keys.div_ceil(u64::from(self.summary.min_index_interval));
        self.summary.full_size = u32::try_from(full).unwrap_or(u32::MAX);
        self.summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted_keys(n: u32) -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = (0..n).map(|i| i.to_be_bytes().to_vec()).collect();
        keys.sort_by_key(|k| (token_of(k), k.clone()));
        keys
    }

    #[test]
    fn every_key_is_found_in_the_stretch_of_its_sample() {
        let keys = sorted_keys(1000);
        let mut builder = SummaryBuilder::new(128);
        for (i, key) in keys.iter().enumerate() {
            builder.add(key, i as u64 * 10);
        }
        let summary = builder.finish(&keys[999]);
        let back = Summary::decode(&summary.encode().unwrap(), Partitioner::Murmur3).unwrap();
        assert_eq!(back, summary);
        assert_eq!(back.len(), 8);
        assert_eq!((&back.first, &back.last), (&keys[0], &keys[999]));
        for (i, key) in keys.iter().enumerate() {
            let (from, to) = back.find(token_of(key), key).unwrap();
            let at = i as u64 * 10;
            assert!(from <= at && to.is_none_or(|to| at < to), "key {i}");
            assert!(back.find_token(token_of(key)) <= at);
        }
        assert_eq!(back.find(Token::MIN, b""), None);
    }

    #[test]
    fn offsets_are_little_endian_and_count_from_their_own_start() {
        let mut builder = SummaryBuilder::new(128);
        builder.add(b"k", 0);
        let bytes = builder.finish(b"k").encode().unwrap();
        assert_eq!(
            bytes,
            [
                0, 0, 0, 128, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 13, 0, 0, 0, 128, 0, 0, 0, 1, 4, 0,
                0, 0, b'k', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, b'k', 0, 0, 0, 1, b'k'
            ]
        );
    }
}
