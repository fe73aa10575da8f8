//! The verb `StreamFetch`: a request for one page, and its answer.
//!
//! ```text
//! request: version u8 · flags u8 · table 16 · plan 16 · operation (u16, bytes) · bytes v
//! · shards of the peer as the sender knows them u16 · [slice: shard u16, shards u16]
//! · [position: key (u16, bytes) · [clustering v, bytes]]
//! · ranges v · (start i64 · end i64)*     start is exclusive but for the smallest token
//! answer: version u8 · shards u16 · replica page, empty when the request's number of shards is wrong
//! ```

use codec::{DecodeError, Reader, Writer};
use data::command::{KeyRange, RingBound};
use data::replica_page::PageEnd;
use stdx::{ShardId, TableId, Token, Uuid};

/// The version this build writes.
pub const VERSION: u8 = 1;
/// Most ranges of one request.
pub const RANGES_MAX: usize = 4096;
/// Most bytes of an operation's name.
const OPERATION_BYTES_MAX: usize = 64;

const SLICE: u8 = 1;
const POSITION: u8 = 2;
const INSIDE: u8 = 4;

/// Where the page before ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Serialised partition key.
    pub key: Vec<u8>,
    /// Clustering of the last row, when the page ended inside the partition.
    pub clustering: Option<Vec<u8>>,
}

impl Position {
    /// The end of a page; `None` when nothing lies behind it.
    pub fn of(end: PageEnd<'_>) -> Option<Position> {
        match end {
            PageEnd::Exhausted => None,
            PageEnd::After { key, .. } => Some(Position { key: key.to_vec(), clustering: None }),
            PageEnd::Inside { key, clustering, .. } => {
                Some(Position { key: key.to_vec(), clustering: Some(clustering.to_vec()) })
            }
        }
    }

    /// The position's place on the ring.
    pub fn token(&self) -> Token {
        codec::token_of(&self.key)
    }
}

/// Asks for one page of what a shard has of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// The table.
    pub table: TableId,
    /// The operation it belongs to, the same on all shards.
    pub plan: Uuid,
    /// Why, for `nodetool netstats`.
    pub operation: String,
    /// Bytes after which the page ends; the peer may end it before.
    pub bytes: u64,
    /// Number of the peer's shards, for which the asked one was chosen.
    pub peer_shards: u16,
    /// Only tokens of this slice (shard, of how many): the asking shard's own.
    pub slice: Option<(ShardId, u16)>,
    /// Where the page before ended.
    pub position: Option<Position>,
    /// `(start, end]`, ascending, `start < end`; at most [`RANGES_MAX`].
    pub ranges: Vec<(Token, Token)>,
}

impl FetchRequest {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut flags = 0;
        flags |= if self.slice.is_some() { SLICE } else { 0 };
        flags |= if self.position.is_some() { POSITION } else { 0 };
        let clustering = self.position.as_ref().and_then(|p| p.clustering.as_ref());
        flags |= if clustering.is_some() { INSIDE } else { 0 };
        out.put_u8(VERSION);
        out.put_u8(flags);
        out.put_bytes(self.table.0.as_bytes());
        out.put_bytes(self.plan.as_bytes());
        put_u16_bytes(out, self.operation.as_bytes());
        out.put_vint_unsigned(self.bytes);
        out.put_u16(self.peer_shards);
        if let Some((shard, shards)) = self.slice {
            out.put_u16(shard.0);
            out.put_u16(shards);
        }
        if let Some(position) = &self.position {
            put_u16_bytes(out, &position.key);
        }
        if let Some(clustering) = clustering {
            out.put_bytes_vint(clustering);
        }
        out.put_vint_unsigned(self.ranges.len() as u64);
        for (start, end) in &self.ranges {
            out.put_i64(start.0);
            out.put_i64(end.0);
        }
    }

    /// Reads one back. Everything that needs no schema is checked.
    ///
    /// # Errors
    /// Not a request of a known version.
    pub fn decode(payload: &[u8]) -> Result<FetchRequest, DecodeError> {
        let mut r = Reader::new(payload, "stream request");
        let version = r.u8()?;
        if version != VERSION {
            return Err(r.invalid(i64::from(version)));
        }
        let flags = r.u8()?;
        if flags & !(SLICE | POSITION | INSIDE) != 0 || flags & (POSITION | INSIDE) == INSIDE {
            return Err(r.invalid(i64::from(flags)));
        }
        let table = TableId(Uuid::from_bytes(r.array()?));
        let plan = Uuid::from_bytes(r.array()?);
        let operation = String::from_utf8_lossy(r.bytes_u16()?).into_owned();
        if operation.len() > OPERATION_BYTES_MAX {
            return Err(r.invalid(operation.len() as i64));
        }
        let bytes = r.vint_unsigned()?;
        let peer_shards = r.u16()?;
        let mut slice = None;
        if flags & SLICE != 0 {
            let (shard, shards) = (r.u16()?, r.u16()?);
            if shard >= shards {
                return Err(r.invalid(i64::from(shard)));
            }
            slice = Some((ShardId(shard), shards));
        }
        let mut position = None;
        if flags & POSITION != 0 {
            let key = r.bytes_u16()?.to_vec();
            let mut clustering = None;
            if flags & INSIDE != 0 {
                let bytes = r.bytes_vint()?;
                if data::clustering::check(bytes, usize::from(u16::MAX)).is_none() {
                    return Err(r.invalid(bytes.len() as i64));
                }
                clustering = Some(bytes.to_vec());
            }
            position = Some(Position { key, clustering });
        }
        let count = r.vint_len()?;
        if count > RANGES_MAX {
            return Err(r.invalid(count as i64));
        }
        let mut ranges: Vec<(Token, Token)> = Vec::with_capacity(count);
        for _ in 0..count {
            let (start, end) = (Token(r.i64()?), Token(r.i64()?));
            if start >= end || ranges.last().is_some_and(|(_, last)| start < *last) {
                return Err(r.invalid(start.0));
            }
            ranges.push((start, end));
        }
        r.finish()?;
        Ok(FetchRequest { table, plan, operation, bytes, peer_shards, slice, position, ranges })
    }

    /// What of the ranges lies behind the position.
    pub fn key_ranges(&self) -> Vec<KeyRange> {
        let whole = |(start, end): &(Token, Token)| KeyRange {
            // Nothing is before the smallest token, and no range could begin with it otherwise.
            start: RingBound::Token { token: *start, after: *start != Token::MIN },
            end: RingBound::Token { token: *end, after: true },
        };
        let Some(position) = &self.position else {
            return self.ranges.iter().map(whole).collect();
        };
        let token = position.token();
        let mut ranges = Vec::with_capacity(self.ranges.len());
        for range in self.ranges.iter().filter(|(_, end)| *end >= token) {
            let mut range_left = whole(range);
            let contains = token > range.0 || range.0 == Token::MIN;
            if contains {
                let after = position.clustering.is_none();
                range_left.start = RingBound::Key { token, key: position.key.clone(), after };
            }
            ranges.push(range_left);
        }
        ranges
    }
}

fn put_u16_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let put = out.put_bytes_u16(bytes, "stream request");
    stdx::invariant!(put.is_ok(), "stream request with {} bytes", bytes.len());
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchAnswer<'a> {
    /// Number of the peer's shards.
    pub shards: u16,
    /// The page; empty: `peer_shards` was wrong, ask again.
    pub page: &'a [u8],
}

impl<'a> FetchAnswer<'a> {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(VERSION);
        out.put_u16(self.shards);
        out.put_bytes(self.page);
    }

    /// Reads one back; the page is not looked into.
    ///
    /// # Errors
    /// Not an answer of a known version.
    pub fn decode(payload: &'a [u8]) -> Result<FetchAnswer<'a>, DecodeError> {
        let mut r = Reader::new(payload, "stream answer");
        let version = r.u8()?;
        if version != VERSION {
            return Err(r.invalid(i64::from(version)));
        }
        let shards = r.u16()?;
        if shards == 0 {
            return Err(r.invalid(0));
        }
        Ok(FetchAnswer { shards, page: r.rest() })
    }
}
