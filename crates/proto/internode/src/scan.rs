//! Scans that shards of a replica filter or fold ([`crate::Verb::Scan`]): the request to one shard, and a
//! page of its answer.
//!
//! ```text
//! request: version u8 · flags u8 · shard u16 · of shards u16 · left out v · range count v · (start · end)*
//!          · work v, bytes · [state v, bytes] · read request, as of RangeRead, up to the end
//! page:    version u8 · flags u8 · [end: token i64 · key u16, bytes · [clustering v, bytes]]
//!          · partitions v · rows v · tombstones v · scanned v · left out: rows v · partitions v · bytes v
//!          · [state v, bytes] · items, up to the end
//! ```
//!
//! The further ranges of a request follow that of its read request, ascending. Work, states and items are
//! opaque here: the planner builds the first two, the coordinator the last.

use codec::{DecodeError, DecodeErrorKind, Reader, Writer};
use data::command::{KeyRange, Partitions, ReadCommand, RingBound};
use std::cmp::Ordering;
use stdx::{ShardId, Token};

use crate::read::{
    ReadLimits, ReadRequest, compare_ring_bounds, encode_read, put_bound, put_key, take_bound,
    take_clustering, take_count,
};

/// The version of both.
pub const SCAN_VERSION: u8 = 1;
/// Most ranges of one request.
pub const RANGES_MAX: usize = 65_536;

const HAS_STATE: u8 = 1;
const MORE: u8 = 2;
const FAILED: u8 = 4;
const END: u8 = 8;
const END_INSIDE: u8 = 16;
const END_SHOWN: u8 = 32;

/// Payload of [`crate::Verb::Scan`]: a page of what one shard has of ranges.
#[derive(Clone, Debug)]
pub struct ScanRequest<'a> {
    /// The shard.
    pub shard: ShardId,
    /// How many the node has, as far as the coordinator knows: with another number partitions lie otherwise.
    pub shards: u16,
    /// Rows and bytes after which the page ends.
    pub limits: ReadLimits,
    /// Bytes of rows that are left out, or folded, after which it ends.
    pub left_out: u64,
    /// The read, with the first of the ranges.
    pub command: ReadCommand,
    /// The ranges after that of the command, ascending and disjoint.
    pub further: Vec<KeyRange>,
    /// The work on the rows: a filter or a fold.
    pub work: &'a [u8],
    /// State that the previous page of a fold left.
    pub state: Option<&'a [u8]>,
}

/// End of a page: everything up to there was scanned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanEnd {
    /// Token of the partition.
    pub token: Token,
    /// Its key.
    pub key: Vec<u8>,
    /// A row of it, or a position without a row; `None`: all of the partition was scanned.
    pub clustering: Option<Vec<u8>>,
    /// The page has something of the partition, which is not to be shown for its static row alone any more.
    pub is_shown: bool,
}

/// Cost of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanCost {
    /// Partitions scanned.
    pub partitions: u64,
    /// Rows scanned.
    pub rows: u64,
    /// Tombstones met.
    pub tombstones: u32,
    /// Count at which it ended for its tombstones: these, and the cells that they hide.
    pub scanned: u32,
    /// Rows that were left out.
    pub dropped_rows: u64,
    /// Partitions without a scanned row.
    pub dropped_partitions: u64,
    /// Bytes of scanned data that was dropped or folded.
    pub dropped_bytes: u64,
}

/// Response to [`crate::Verb::Scan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPage<'a> {
    /// More data may follow.
    pub more: bool,
    /// The work cannot be done by shards.
    pub is_failed: bool,
    /// Up to where it goes; there when there may be more.
    pub end: Option<ScanEnd>,
    /// Its cost.
    pub cost: ScanCost,
    /// State of a fold after the page.
    pub state: Option<&'a [u8]>,
    /// Rows, or results.
    pub items: &'a [u8],
}

impl ScanRequest<'_> {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(SCAN_VERSION);
        out.put_u8(if self.state.is_some() { HAS_STATE } else { 0 });
        out.put_u16(self.shard.0);
        out.put_u16(self.shards);
        out.put_vint_unsigned(self.left_out);
        out.put_vint_unsigned(self.further.len() as u64);
        for KeyRange { start, end } in &self.further {
            put_bound(out, start);
            put_bound(out, end);
        }
        out.put_bytes_vint(self.work);
        if let Some(state) = self.state {
            out.put_bytes_vint(state);
        }
        encode_read(out, &self.command, self.limits, false);
    }

    /// Decodes a request; its read command is checked as in [`ReadRequest::decode`].
    ///
    /// # Errors
    /// Not a request of this version; ranges that do not ascend.
    pub fn decode(payload: &[u8]) -> Result<ScanRequest<'_>, DecodeError> {
        let mut reader = Reader::new(payload, "scan request");
        let version = reader.u8()?;
        if version != SCAN_VERSION {
            return Err(reader.invalid(i64::from(version)));
        }
        let flags = reader.u8()?;
        if flags & !HAS_STATE != 0 {
            return Err(reader.invalid(i64::from(flags)));
        }
        let (shard, shards) = (ShardId(reader.u16()?), reader.u16()?);
        if shard.0 >= shards {
            return Err(reader.invalid(i64::from(shard.0)));
        }
        let left_out = reader.vint_unsigned()?;
        let count = take_count(&mut reader, 18)?;
        if count > RANGES_MAX {
            let kind = DecodeErrorKind::TooLong { length: count as u64, max: RANGES_MAX as u64 };
            return Err(reader.error(kind));
        }
        let mut further = Vec::with_capacity(count);
        for _ in 0..count {
            further
                .push(KeyRange { start: take_bound(&mut reader)?, end: take_bound(&mut reader)? });
        }
        let work = reader.bytes_vint()?;
        let state = if flags & HAS_STATE != 0 { Some(reader.bytes_vint()?) } else { None };
        let ReadRequest { digest, limits, command } = ReadRequest::decode(reader.rest())?;
        let Partitions::Range(first) = &command.partitions else { return Err(reader.invalid(0)) };
        if digest || !ascend(first, &further) {
            return Err(reader.invalid(0));
        }
        Ok(ScanRequest { shard, shards, limits, left_out, command, further, work, state })
    }

    /// See [`ReadRequest::check_slices`].
    pub fn check_slices(&self, comparator: &data::clustering::ClusteringComparator) -> bool {
        let ScanRequest { limits, command, .. } = self;
        let read = ReadRequest { digest: false, limits: *limits, command: command.clone() };
        read.check_slices(comparator)
    }
}

/// Returns true if each range ends where it begins or later, and before the next one.
fn ascend(first: &KeyRange, further: &[KeyRange]) -> bool {
    let is_before = |a: &RingBound, b: &RingBound| compare_ring_bounds(a, b) != Ordering::Greater;
    let mut at = &first.end;
    for range in further {
        if !is_before(at, &range.start) || !is_before(&range.start, &range.end) {
            return false;
        }
        at = &range.end;
    }
    true
}

impl ScanPage<'_> {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let inside = self.end.as_ref().is_some_and(|end| end.clustering.is_some());
        let flags = [
            (self.state.is_some(), HAS_STATE),
            (self.more, MORE),
            (self.is_failed, FAILED),
            (self.end.is_some(), END),
            (inside, END_INSIDE),
            (self.end.as_ref().is_some_and(|end| end.is_shown), END_SHOWN),
        ];
        out.put_u8(SCAN_VERSION);
        out.put_u8(flags.iter().fold(0, |bits, (set, flag)| bits | if *set { *flag } else { 0 }));
        if let Some(ScanEnd { token, key, clustering, .. }) = &self.end {
            out.put_i64(token.0);
            put_key(out, key);
            if let Some(clustering) = clustering {
                out.put_bytes_vint(clustering);
            }
        }
        let ScanCost { partitions, rows, tombstones, dropped_rows, dropped_partitions, .. } =
            self.cost;
        out.put_vint_unsigned(partitions);
        out.put_vint_unsigned(rows);
        out.put_vint_unsigned(u64::from(tombstones));
        out.put_vint_unsigned(u64::from(self.cost.scanned));
        out.put_vint_unsigned(dropped_rows);
        out.put_vint_unsigned(dropped_partitions);
        out.put_vint_unsigned(self.cost.dropped_bytes);
        if let Some(state) = self.state {
            out.put_bytes_vint(state);
        }
        out.put_bytes(self.items);
    }

    /// Reads one back; items and state are not looked into.
    ///
    /// # Errors
    /// Not a page of this version.
    pub fn decode(payload: &[u8]) -> Result<ScanPage<'_>, DecodeError> {
        let mut reader = Reader::new(payload, "page of a scan");
        let version = reader.u8()?;
        if version != SCAN_VERSION {
            return Err(reader.invalid(i64::from(version)));
        }
        let flags = reader.u8()?;
        let has = |flag: u8| flags & flag != 0;
        let is_known = flags & !(HAS_STATE | MORE | FAILED | END | END_INSIDE | END_SHOWN) == 0;
        if !is_known || has(MORE) != has(END) || (has(END_INSIDE | END_SHOWN) && !has(END)) {
            return Err(reader.invalid(i64::from(flags)));
        }
        let end = match has(END) {
            false => None,
            true => {
                let (token, key) = (Token(reader.i64()?), reader.bytes_u16()?.to_vec());
                let inside = has(END_INSIDE);
                let clustering = if inside { Some(take_clustering(&mut reader)?) } else { None };
                Some(ScanEnd { token, key, clustering, is_shown: has(END_SHOWN) })
            }
        };
        let cost = ScanCost {
            partitions: reader.vint_unsigned()?,
            rows: reader.vint_unsigned()?,
            tombstones: take_u32(&mut reader)?,
            scanned: take_u32(&mut reader)?,
            dropped_rows: reader.vint_unsigned()?,
            dropped_partitions: reader.vint_unsigned()?,
            dropped_bytes: reader.vint_unsigned()?,
        };
        let state = if has(HAS_STATE) { Some(reader.bytes_vint()?) } else { None };
        let (more, is_failed) = (has(MORE), has(FAILED));
        Ok(ScanPage { more, is_failed, end, cost, state, items: reader.rest() })
    }
}

pub(crate) fn take_u32(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let value = reader.vint_unsigned()?;
    u32::try_from(value).map_err(|_| reader.invalid(i64::try_from(value).unwrap_or(i64::MAX)))
}
