//! Read requests: `data::command::ReadCommand` with its limits, as bytes.
//!
//! ```text
//! version u8 · flags u8 · [more flags u8] · table 16 · rows v · bytes v · [rows per partition v] · now i64
//! · key (u16, bytes) | start bound · end bound      bound: tag u8 · token i64 · [key u16, bytes]
//! · slice count v · (flags u8 · start v, bytes · end v, bytes)*
//! · [column count v · id u16 *] · [rows in partition v · [clustering v, bytes]]
//! ```

use codec::{DecodeError, DecodeErrorKind, Reader, Writer};
use data::clustering::{self, ClusteringComparator, Slice, Slices};
use data::command::{KeyRange, Partitions, ReadCommand, ResumePosition, RingBound};
use data::mutation::KEY_BYTES_MAX;
use std::cmp::Ordering;
use std::sync::Arc;
use stdx::{ColumnId, DeletionSeconds, TableId, Token, Uuid};

/// The version of what most reads need.
pub const READ_VERSION: u8 = 1;
/// The version with a second byte of flags, written only where one of them is set: a build before it
/// refuses such reads alone.
pub const READ_VERSION_MORE: u8 = 2;
/// Most components of a clustering: more columns than a table can have.
const COMPONENTS_MAX: usize = 65_536;

const DIGEST: u8 = 1;
const REVERSED: u8 = 2;
const WANTS_STATIC: u8 = 4;
const COLUMNS: u8 = 8;
const RESUME: u8 = 16;
const RANGE: u8 = 32;
const RESUME_CLUSTERING: u8 = 64;
const PER_PARTITION: u8 = 128;

/// Flag in the second byte.
const BYPASS_CACHE: u8 = 1;

const SLICE_START_AFTER: u8 = 1;
const SLICE_END_AFTER: u8 = 2;

const BOUND_AFTER: u8 = 1;
const BOUND_KEY: u8 = 2;

/// Limits of a replica's answer; a page may end before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// Most rows.
    pub rows: u64,
    /// Bytes of the answer after which it ends.
    pub bytes: u64,
    /// Most rows of one partition, at least 1; further ones are skipped. `u32::MAX`: all.
    pub rows_per_partition: u32,
}

/// Payload of [`crate::Verb::Read`] and [`crate::Verb::RangeRead`].
#[derive(Clone, Debug)]
pub struct ReadRequest {
    /// Only the digest of the answer is wanted.
    pub digest: bool,
    /// Limits of the answer.
    pub limits: ReadLimits,
    /// The read.
    pub command: ReadCommand,
}

/// Appends a read request without needing to own the command.
pub fn encode_read(out: &mut Vec<u8>, command: &ReadCommand, limits: ReadLimits, digest: bool) {
    // Named one by one, so that a new field cannot be forgotten here.
    let ReadCommand {
        table,
        partitions,
        slices,
        reversed,
        columns,
        now,
        wants_static,
        resume,
        bypass_cache,
    } = command;
    let mut flags = 0;
    let mut set = |condition: bool, flag: u8| flags |= if condition { flag } else { 0 };
    set(digest, DIGEST);
    set(*reversed, REVERSED);
    set(*wants_static, WANTS_STATIC);
    set(columns.is_some(), COLUMNS);
    set(resume.is_some(), RESUME);
    set(matches!(partitions, Partitions::Range(_)), RANGE);
    set(limits.rows_per_partition != u32::MAX, PER_PARTITION);
    set(resume.as_ref().is_some_and(|r| r.clustering.is_some()), RESUME_CLUSTERING);
    match bypass_cache {
        false => {
            out.put_u8(READ_VERSION);
            out.put_u8(flags);
        }
        true => {
            out.put_u8(READ_VERSION_MORE);
            out.put_u8(flags);
            out.put_u8(BYPASS_CACHE);
        }
    }
    out.put_bytes(table.0.as_bytes());
    out.put_vint_unsigned(limits.rows);
    out.put_vint_unsigned(limits.bytes);
    if limits.rows_per_partition != u32::MAX {
        out.put_vint_unsigned(u64::from(limits.rows_per_partition));
    }
    out.put_i64(now.0);
    match partitions {
        Partitions::Key(key) => put_key(out, key),
        Partitions::Range(range) => {
            put_bound(out, &range.start);
            put_bound(out, &range.end);
        }
    }
    out.put_vint_unsigned(slices.0.len() as u64);
    for slice in &slices.0 {
        let start = if slice.start_after { SLICE_START_AFTER } else { 0 };
        let end = if slice.end_after { SLICE_END_AFTER } else { 0 };
        out.put_u8(start | end);
        out.put_bytes_vint(&slice.start);
        out.put_bytes_vint(&slice.end);
    }
    if let Some(columns) = columns {
        out.put_vint_unsigned(columns.len() as u64);
        for column in columns.iter() {
            out.put_u16(column.0);
        }
    }
    if let Some(resume) = resume {
        out.put_vint_unsigned(u64::from(resume.rows_in_partition));
        if let Some(clustering) = &resume.clustering {
            out.put_bytes_vint(clustering);
        }
    }
}

pub(crate) fn put_key(out: &mut Vec<u8>, key: &[u8]) {
    let put = out.put_bytes_u16(key, "partition key");
    stdx::invariant!(put.is_ok(), "read of a key of {} bytes", key.len());
}

pub(crate) fn put_bound(out: &mut Vec<u8>, bound: &RingBound) {
    let after_flag = |after: bool| if after { BOUND_AFTER } else { 0 };
    match bound {
        RingBound::Token { token, after } => {
            out.put_u8(after_flag(*after));
            out.put_i64(token.0);
        }
        RingBound::Key { token, key, after } => {
            out.put_u8(BOUND_KEY | after_flag(*after));
            out.put_i64(token.0);
            put_key(out, key);
        }
    }
}

impl ReadRequest {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode_read(out, &self.command, self.limits, self.digest);
    }

    /// Reads one back. What needs no schema is checked: lengths, clusterings' shape, that the range
    /// does not wrap; the rest by [`ReadRequest::check_slices`].
    ///
    /// # Errors
    /// Not a read request of a known version.
    pub fn decode(payload: &[u8]) -> Result<ReadRequest, DecodeError> {
        let mut reader = Reader::new(payload, "read request");
        let version = reader.u8()?;
        if version != READ_VERSION && version != READ_VERSION_MORE {
            return Err(reader.invalid(i64::from(version)));
        }
        let flags = reader.u8()?;
        let bypass_cache = version == READ_VERSION_MORE;
        if bypass_cache && reader.u8()? != BYPASS_CACHE {
            // A request without these flags is encoded in version 1: each request has one encoding.
            return Err(reader.invalid(i64::from(version)));
        }
        if flags & (RESUME | RESUME_CLUSTERING) == RESUME_CLUSTERING {
            return Err(reader.invalid(i64::from(flags)));
        }
        let table = TableId(Uuid::from_bytes(reader.array()?));
        let (rows, bytes) = (reader.vint_unsigned()?, reader.vint_unsigned()?);
        let rows_per_partition = match flags & PER_PARTITION {
            0 => u32::MAX,
            _ => take_rows_per_partition(&mut reader)?,
        };
        let limits = ReadLimits { rows, bytes, rows_per_partition };
        let now = DeletionSeconds(reader.i64()?);
        let partitions = if flags & RANGE == 0 {
            Partitions::Key(reader.bytes_u16()?.to_vec())
        } else {
            Partitions::Range(take_range(&mut reader)?)
        };
        let slices = take_slices(&mut reader)?;
        let columns = match flags & COLUMNS {
            0 => None,
            _ => Some(take_columns(&mut reader)?),
        };
        let resume = match flags & RESUME {
            0 => None,
            _ => Some(take_resume(&mut reader, flags & RESUME_CLUSTERING != 0)?),
        };
        reader.finish()?;
        let command = ReadCommand {
            table,
            partitions,
            slices: slices.into(),
            reversed: flags & REVERSED != 0,
            columns,
            now,
            wants_static: flags & WANTS_STATIC != 0,
            resume,
            bypass_cache,
        };
        Ok(ReadRequest { digest: flags & DIGEST != 0, limits, command })
    }

    /// Returns true if slices and resume position fit the table: no more components than it has
    /// clustering columns, slices ascending and disjoint. Callers check it before they run the
    /// command.
    pub fn check_slices(&self, comparator: &ClusteringComparator) -> bool {
        let columns = comparator.len();
        let fits = |prefix: &[u8]| clustering::check(prefix, columns).is_some();
        let slices = &self.command.slices.0;
        let resume = self.command.resume.as_ref().and_then(|r| r.clustering.as_deref());
        slices.iter().all(|s| {
            fits(&s.start)
                && fits(&s.end)
                && comparator.compare_bounds(s.start(), s.end()) != Ordering::Greater
        }) && slices.windows(2).all(|pair| match pair {
            [a, b] => comparator.compare_bounds(a.end(), b.start()) != Ordering::Greater,
            _ => true,
        }) && resume.is_none_or(|c| clustering::check(c, columns) == Some(columns))
    }
}

/// Neither 0 nor what stands for no limit: each request has one encoding.
fn take_rows_per_partition(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let rows = reader.vint_unsigned()?;
    match u32::try_from(rows) {
        Ok(rows) if rows != 0 && rows != u32::MAX => Ok(rows),
        _ => Err(reader.invalid(i64::try_from(rows).unwrap_or(i64::MAX))),
    }
}

pub(crate) fn take_bound(reader: &mut Reader<'_>) -> Result<RingBound, DecodeError> {
    let tag = reader.u8()?;
    if tag & !(BOUND_AFTER | BOUND_KEY) != 0 {
        return Err(reader.invalid(i64::from(tag)));
    }
    let token = Token(reader.i64()?);
    let after = tag & BOUND_AFTER != 0;
    if tag & BOUND_KEY == 0 {
        return Ok(RingBound::Token { token, after });
    }
    Ok(RingBound::Key { token, key: reader.bytes_u16()?.to_vec(), after })
}

/// Order of two positions of the ring.
pub(crate) fn compare_ring_bounds(a: &RingBound, b: &RingBound) -> Ordering {
    // Within a token: its start, its keys by their bytes, its end.
    fn place(bound: &RingBound) -> (Token, u8, &[u8], bool) {
        match bound {
            RingBound::Token { token, after } => (*token, if *after { 2 } else { 0 }, &[], false),
            RingBound::Key { token, key, after } => (*token, 1, key, *after),
        }
    }
    place(a).cmp(&place(b))
}

fn take_range(reader: &mut Reader<'_>) -> Result<KeyRange, DecodeError> {
    let range = KeyRange { start: take_bound(reader)?, end: take_bound(reader)? };
    if compare_ring_bounds(&range.start, &range.end) == Ordering::Greater {
        // A range that wraps is two commands.
        return Err(reader.invalid(0));
    }
    Ok(range)
}

pub(crate) fn take_clustering(reader: &mut Reader<'_>) -> Result<Vec<u8>, DecodeError> {
    let bytes = reader.bytes_vint()?;
    match clustering::check(bytes, COMPONENTS_MAX) {
        Some(_) => Ok(bytes.to_vec()),
        None => Err(reader.invalid(i64::try_from(bytes.len()).unwrap_or(i64::MAX))),
    }
}

/// A count of things that take at least `each` bytes, so that room for them may be reserved.
pub(crate) fn take_count(reader: &mut Reader<'_>, each: usize) -> Result<usize, DecodeError> {
    let count = reader.vint_len()?;
    let max = reader.remaining().checked_div(each).unwrap_or(0);
    if count > max {
        let kind = DecodeErrorKind::TooLong { length: count as u64, max: max as u64 };
        return Err(reader.error(kind));
    }
    Ok(count)
}

fn take_slices(reader: &mut Reader<'_>) -> Result<Slices, DecodeError> {
    let count = take_count(reader, 3)?;
    let mut slices = Vec::with_capacity(count);
    for _ in 0..count {
        let flags = reader.u8()?;
        if flags & !(SLICE_START_AFTER | SLICE_END_AFTER) != 0 {
            return Err(reader.invalid(i64::from(flags)));
        }
        slices.push(Slice {
            start: take_clustering(reader)?,
            start_after: flags & SLICE_START_AFTER != 0,
            end: take_clustering(reader)?,
            end_after: flags & SLICE_END_AFTER != 0,
        });
    }
    Ok(Slices(slices))
}

fn take_columns(reader: &mut Reader<'_>) -> Result<Arc<[ColumnId]>, DecodeError> {
    let count = take_count(reader, 2)?;
    let mut columns = Vec::with_capacity(count);
    for _ in 0..count {
        columns.push(ColumnId(reader.u16()?));
    }
    Ok(columns.into())
}

fn take_resume(
    reader: &mut Reader<'_>,
    has_clustering: bool,
) -> Result<ResumePosition, DecodeError> {
    let rows = reader.vint_unsigned()?;
    let rows_in_partition =
        u32::try_from(rows).map_err(|_| reader.invalid(i64::try_from(rows).unwrap_or(i64::MAX)))?;
    let clustering = if has_clustering { Some(take_clustering(reader)?) } else { None };
    Ok(ResumePosition { clustering, rows_in_partition })
}

const _: () = assert!(KEY_BYTES_MAX == u16::MAX as usize, "keys have two bytes of length");
