//! Bytes of a segment, versions 1 to 3. All integers little-endian. See
//! `docs/formats/commitlog.md`.
//!
//! ```text
//! header (68): "HLCL" · version u16 · compression u8 · encryption u8 · segment id u64 · host id 16 · shard u16 · shards u16
//!              · created (wall us) i64 · run u64 · previous segment u64 · its length u32 · crc32 u32
//! record:      length u32 · crc32 u32 · kind u8 · payload (length - 1)
//! ```
//! The record's checksum covers segment id, offset, length, kind and payload, so bytes of another
//! segment or place are never taken for a record. In version 1 records follow the header, in versions
//! 2 and 3 blocks of them ([`crate::blocks`]); a record's offset is that of version 1 in all.

use codec::checksum::Crc32;
use codec::{Algorithm, DecodeError, Reader, Writer};
use schema::{ColumnKind, Table};
use stdx::{HostId, TableId, TimestampMicros, Uuid};

use crate::blocks::{compression_code, compression_of};

/// The version of segments that are not compressed, the only one of the first builds.
pub const FORMAT_VERSION: u16 = 1;
/// The version of compressed segments.
pub const FORMAT_VERSION_COMPRESSED: u16 = 2;
/// The version of encrypted segments, compressed or not.
pub const FORMAT_VERSION_SEALED: u16 = 3;
/// Length of the segment header.
pub const HEADER_BYTES: usize = 68;
/// Bytes of a record before its payload.
pub const RECORD_HEADER_BYTES: usize = 9;

/// Longest record that is read, header left out: half of the largest segment, and its kind. A
/// header with a larger length is damage, and no memory is allocated for it.
const RECORD_BYTES_MAX: usize = (1 << 30) + 1;

const MAGIC: &[u8; 4] = b"HLCL";
/// Begins the payload of every marker, so that markers are found after damage.
pub(crate) const MARKER_MAGIC: &[u8; 8] = b"\xf5HLSYNC\xf5";

const KIND_MUTATION: u8 = 1;
const KIND_DESCRIPTOR: u8 = 2;
const KIND_MARKER: u8 = 3;
const KIND_TRUNCATION: u8 = 4;

/// Number of a segment, unique in the node: `sequence << 12 | shard`. Later ones of a shard are
/// larger, also over restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SegmentId(pub u64);

impl SegmentId {
    /// The id with that sequence number, written by that shard (below 4,096).
    pub fn new(sequence: u64, shard: u16) -> SegmentId {
        SegmentId((sequence << 12) | u64::from(shard & 0xfff))
    }

    /// Grows with time.
    pub fn sequence(self) -> u64 {
        self.0 >> 12
    }

    /// The shard that wrote it.
    pub(crate) fn shard(self) -> u64 {
        self.0 & 0xfff
    }

    /// File name.
    pub fn file_name(self) -> String {
        format!("helenus-commitlog-{:016x}.log", self.0)
    }

    /// The id in a file name.
    pub fn from_file_name(name: &str) -> Option<SegmentId> {
        let hex = name.strip_prefix("helenus-commitlog-")?.strip_suffix(".log")?;
        if hex.len() != 16 {
            return None;
        }
        u64::from_str_radix(hex, 16).ok().map(SegmentId)
    }
}

/// A position in a shard's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogPosition {
    /// The segment.
    pub segment: SegmentId,
    /// Offset in it.
    pub offset: u64,
}

/// Header of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Its number, as in the file name.
    pub id: SegmentId,
    /// The node that wrote it.
    pub host: HostId,
    /// The shard that wrote it.
    pub shard: u16,
    /// Number of shards when it was written.
    pub shards: u16,
    /// Wall clock at its creation, microseconds.
    pub created: i64,
    /// The run of the node that wrote it.
    pub run: u64,
    /// The writer's segment before it and that one's full length; zeros when it is the first.
    pub previous: LogPosition,
    /// How its blocks are compressed; `None`: not, and unless they are encrypted there are none.
    pub compression: Option<Algorithm>,
    /// Its blocks are encrypted, with AES-256-GCM.
    pub sealed: bool,
}

/// How the records of a segment are wrapped.
struct Wrapping {
    compression: Option<Algorithm>,
    sealed: bool,
}

impl SegmentHeader {
    /// Returns true if blocks follow, not records.
    pub fn has_blocks(&self) -> bool {
        self.compression.is_some() || self.sealed
    }

    /// Appends the header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(MAGIC);
        let version = match self.compression {
            _ if self.sealed => FORMAT_VERSION_SEALED,
            None => FORMAT_VERSION,
            Some(_) => FORMAT_VERSION_COMPRESSED,
        };
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&[compression_code(self.compression), u8::from(self.sealed)]);
        out.extend_from_slice(&self.id.0.to_le_bytes());
        out.extend_from_slice(self.host.0.as_bytes());
        out.extend_from_slice(&self.shard.to_le_bytes());
        out.extend_from_slice(&self.shards.to_le_bytes());
        out.extend_from_slice(&self.created.to_le_bytes());
        out.extend_from_slice(&self.run.to_le_bytes());
        out.extend_from_slice(&self.previous.segment.0.to_le_bytes());
        let length = u32::try_from(self.previous.offset).unwrap_or(u32::MAX);
        out.extend_from_slice(&length.to_le_bytes());
        let crc = codec::crc32(out.get(start..).unwrap_or(&[]));
        out.extend_from_slice(&crc.to_le_bytes());
    }

    /// Decodes a header; the error describes the fault.
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, &'static str> {
        let header = bytes.get(..HEADER_BYTES).ok_or("the header is cut short")?;
        let (body, crc) = header.split_at(HEADER_BYTES - 4);
        let mut r = Reader::new(body, "commit-log header");
        if r.bytes(4).ok() != Some(MAGIC.as_slice()) {
            return Err("no commit-log segment");
        }
        let version = r.array::<2>().map(u16::from_le_bytes).map_err(|_| "header")?;
        if !(FORMAT_VERSION..=FORMAT_VERSION_SEALED).contains(&version) {
            return Err("written by a version of the format that this build does not read");
        }
        if codec::crc32(body).to_le_bytes() != crc {
            return Err("the header's checksum is wrong");
        }
        let [code, cipher] = r.array::<2>().map_err(|_| "header")?;
        let sealed = version == FORMAT_VERSION_SEALED;
        if cipher != u8::from(sealed) {
            return Err("encrypted in a way that this build does not read");
        }
        let compression = compression_of(u32::from(code))
            .filter(|compression| sealed || compression.is_some() == (version != FORMAT_VERSION))
            .ok_or("compressed in a way that this build does not read")?;
        let wrapping = Wrapping { compression, sealed };
        Self::decode_body(&mut r, wrapping).map_err(|_| "the header is cut short")
    }

    fn decode_body(
        r: &mut Reader<'_>,
        Wrapping { compression, sealed }: Wrapping,
    ) -> Result<SegmentHeader, DecodeError> {
        Ok(SegmentHeader {
            compression,
            sealed,
            id: SegmentId(u64::from_le_bytes(r.array()?)),
            host: HostId(Uuid::from_bytes(r.array()?)),
            shard: u16::from_le_bytes(r.array()?),
            shards: u16::from_le_bytes(r.array()?),
            created: i64::from_le_bytes(r.array()?),
            run: u64::from_le_bytes(r.array()?),
            previous: LogPosition {
                segment: SegmentId(u64::from_le_bytes(r.array()?)),
                offset: u64::from(u32::from_le_bytes(r.array()?)),
            },
        })
    }
}

/// A TRUNCATE of one shard's slice of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TruncationRef<'a> {
    /// The table.
    pub table: TableId,
    /// When it was truncated.
    pub truncated_at: TimestampMicros,
    /// The shard whose slice was truncated, of how many.
    pub shard: u16,
    /// See `shard`.
    pub shards: u16,
    generations: &'a [u8],
}

impl<'a> TruncationRef<'a> {
    /// Generations of the SSTables that were emptied with it.
    pub fn generations(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.generations.as_chunks::<8>().0.iter().map(|c| u64::from_le_bytes(*c))
    }
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// An encoded mutation, unchecked.
    Mutation(&'a [u8]),
    /// Columns of a table version, stated before its first mutation in the segment: bytes of
    /// [`encode_descriptor`].
    Descriptor(&'a [u8]),
    /// Everything of the writer up to this position was on disk before the marker was appended.
    Marker(LogPosition),
    /// A TRUNCATE.
    Truncation(TruncationRef<'a>),
}

impl Record<'_> {
    fn kind(&self) -> u8 {
        match self {
            Record::Mutation(_) => KIND_MUTATION,
            Record::Descriptor(_) => KIND_DESCRIPTOR,
            Record::Marker(_) => KIND_MARKER,
            Record::Truncation(_) => KIND_TRUNCATION,
        }
    }
}

fn record_crc(at: LogPosition, length: u32, body: &[u8]) -> u32 {
    let mut prefix = [0; 16];
    let (segment, rest) = prefix.split_at_mut(8);
    segment.copy_from_slice(&at.segment.0.to_le_bytes());
    let (offset, len) = rest.split_at_mut(4);
    offset.copy_from_slice(&u32::try_from(at.offset).unwrap_or(u32::MAX).to_le_bytes());
    len.copy_from_slice(&length.to_le_bytes());
    let mut crc = Crc32::new();
    crc.update(&prefix);
    crc.update(body);
    crc.value()
}

/// Appends one record that will lie at `at`. `out` is anything that grows by slices.
pub fn encode_mutation(out: &mut impl Sink, at: LogPosition, mutation: &[u8]) {
    put_record(out, at, KIND_MUTATION, &[mutation]);
}

/// Appends a descriptor record that will lie at `at`.
pub fn encode_descriptor_record(out: &mut impl Sink, at: LogPosition, descriptor: &[u8]) {
    put_record(out, at, KIND_DESCRIPTOR, &[descriptor]);
}

/// Appends a marker that will lie at `at` and attests `synced`.
pub fn encode_marker(out: &mut impl Sink, at: LogPosition, synced: LogPosition) {
    let segment = synced.segment.0.to_le_bytes();
    put_record(out, at, KIND_MARKER, &[MARKER_MAGIC, &segment, &synced.offset.to_le_bytes()]);
}

/// Which shard truncates a table, of how many.
#[derive(Clone, Copy, Debug)]
pub struct TruncatingShard {
    /// Its number.
    pub shard: u16,
    /// Shards of the node.
    pub shards: u16,
}

/// Appends a truncation that will lie at `at`.
pub fn encode_truncation(
    out: &mut impl Sink,
    at: LogPosition,
    table: TableId,
    truncated_at: TimestampMicros,
    by: TruncatingShard,
    generations: &[u64],
) {
    let mut list = Vec::with_capacity(generations.len().saturating_mul(8));
    for g in generations {
        list.extend_from_slice(&g.to_le_bytes());
    }
    put_record(
        out,
        at,
        KIND_TRUNCATION,
        &[
            table.0.as_bytes(),
            &truncated_at.0.to_le_bytes(),
            &by.shard.to_le_bytes(),
            &by.shards.to_le_bytes(),
            &list,
        ],
    );
}

/// Bytes that a record with this payload takes.
pub fn record_bytes(payload: usize) -> usize {
    RECORD_HEADER_BYTES.saturating_add(payload)
}

/// Where records are appended: the log's aligned buffer, or a plain vector.
pub trait Sink {
    /// Appends bytes.
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl Sink for rt::Buf {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

fn put_record(out: &mut impl Sink, at: LogPosition, kind: u8, parts: &[&[u8]]) {
    let payload: usize = parts.iter().map(|p| p.len()).sum();
    let length = u32::try_from(payload.saturating_add(1)).unwrap_or(u32::MAX);
    stdx::invariant!(length != u32::MAX, "commit log: record of 4 GiB or more");
    let mut prefix = [0; 17];
    prefix[..8].copy_from_slice(&at.segment.0.to_le_bytes());
    prefix[8..12].copy_from_slice(&u32::try_from(at.offset).unwrap_or(u32::MAX).to_le_bytes());
    prefix[12..16].copy_from_slice(&length.to_le_bytes());
    prefix[16] = kind;
    let mut crc = Crc32::new();
    crc.update(&prefix);
    for part in parts {
        crc.update(part);
    }
    let mut header = [0; RECORD_HEADER_BYTES];
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..8].copy_from_slice(&crc.value().to_le_bytes());
    header[8] = kind;
    out.put(&header);
    for part in parts {
        out.put(part);
    }
}

/// Result of parsing bytes that may be truncated.
pub(crate) enum Parsed<T> {
    /// It is whole and its checksum is right.
    Found(T),
    /// This many bytes, from its first on, are needed to decide.
    Need(usize),
    /// There is none.
    Invalid,
}

/// Reads the record at an offset of a segment: the record and where the next one begins; `None`
/// when there is no valid record there.
pub fn decode_record(
    segment: SegmentId,
    bytes: &[u8],
    offset: usize,
) -> Option<(Record<'_>, usize)> {
    let at = LogPosition { segment, offset: u64::try_from(offset).ok()? };
    match parse_record(at, bytes.get(offset..)?) {
        Parsed::Found((record, size)) => Some((record, offset.checked_add(size)?)),
        Parsed::Need(_) | Parsed::Invalid => None,
    }
}

/// Reads the record that begins with `bytes` and has that position: the record and its length.
pub(crate) fn parse_record(at: LogPosition, bytes: &[u8]) -> Parsed<(Record<'_>, usize)> {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Parsed::Need(8) };
    let Some((crc, rest)) = rest.split_first_chunk::<4>() else { return Parsed::Need(8) };
    let length = u32::from_le_bytes(*length);
    let crc = u32::from_le_bytes(*crc);
    let Some((size, whole)) =
        usize::try_from(length).ok().and_then(|size| Some((size, size.checked_add(8)?)))
    else {
        return Parsed::Invalid;
    };
    if size > RECORD_BYTES_MAX {
        return Parsed::Invalid;
    }
    let Some(body) = rest.get(..size) else { return Parsed::Need(whole) };
    if record_crc(at, length, body) != crc {
        return Parsed::Invalid;
    }
    match record_of(body) {
        Some(record) => Parsed::Found((record, whole)),
        None => Parsed::Invalid,
    }
}

fn record_of(body: &[u8]) -> Option<Record<'_>> {
    let (kind, payload) = body.split_first()?;
    let record = match *kind {
        KIND_MUTATION => Record::Mutation(payload),
        KIND_DESCRIPTOR => Record::Descriptor(payload),
        KIND_MARKER => Record::Marker(decode_marker(payload)?),
        KIND_TRUNCATION => Record::Truncation(decode_truncation(payload)?),
        _ => return None,
    };
    debug_assert_eq!(record.kind(), *kind);
    Some(record)
}

fn decode_marker(payload: &[u8]) -> Option<LogPosition> {
    let rest = payload.strip_prefix(MARKER_MAGIC.as_slice())?;
    let (segment, rest) = rest.split_first_chunk::<8>()?;
    let (offset, rest) = rest.split_first_chunk::<8>()?;
    rest.is_empty().then_some(LogPosition {
        segment: SegmentId(u64::from_le_bytes(*segment)),
        offset: u64::from_le_bytes(*offset),
    })
}

fn decode_truncation(payload: &[u8]) -> Option<TruncationRef<'_>> {
    let (table, rest) = payload.split_first_chunk::<16>()?;
    let (at, rest) = rest.split_first_chunk::<8>()?;
    let (shard, rest) = rest.split_first_chunk::<2>()?;
    let (shards, generations) = rest.split_first_chunk::<2>()?;
    generations.len().is_multiple_of(8).then_some(TruncationRef {
        table: TableId(Uuid::from_bytes(*table)),
        truncated_at: TimestampMicros(i64::from_le_bytes(*at)),
        shard: u16::from_le_bytes(*shard),
        shards: u16::from_le_bytes(*shards),
        generations,
    })
}

/// A table version as a descriptor states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The table.
    pub table: TableId,
    /// Its version.
    pub version: u64,
    /// Keyspace and table name.
    pub names: (String, String),
    /// Column id, kind (0 partition key, 1 clustering, 2 clustering reversed, 3 static, 4 regular),
    /// name, CQL type.
    pub columns: Vec<(u16, u8, String, String)>,
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.put_vint_unsigned(text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// The payload of a table version's descriptor record.
pub fn encode_descriptor(table: &Table) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(table.id.0.as_bytes());
    out.put_vint_unsigned(table.version);
    put_text(&mut out, &table.keyspace);
    put_text(&mut out, &table.name);
    out.put_vint_unsigned(table.columns.len() as u64);
    for column in &table.columns {
        out.put_vint_unsigned(u64::from(column.id.0));
        out.push(match column.kind {
            ColumnKind::PartitionKey(_) => 0,
            ColumnKind::Clustering { reversed: false, .. } => 1,
            ColumnKind::Clustering { reversed: true, .. } => 2,
            ColumnKind::Static => 3,
            ColumnKind::Regular => 4,
        });
        put_text(&mut out, &column.name);
        put_text(&mut out, &column.ty.to_string());
    }
    out
}

/// Reads a descriptor's payload.
pub fn decode_descriptor(payload: &[u8]) -> Result<Descriptor, DecodeError> {
    let mut r = Reader::new(payload, "commit-log descriptor");
    let table = TableId(Uuid::from_bytes(r.array()?));
    let version = r.vint_unsigned()?;
    let text = |r: &mut Reader<'_>| -> Result<String, DecodeError> {
        let n = r.vint_len()?;
        Ok(r.utf8(n)?.to_owned())
    };
    let names = (text(&mut r)?, text(&mut r)?);
    let count = r.vint_len()?;
    let count = r.check_count(count, 4)?;
    let mut columns = Vec::with_capacity(count);
    for _ in 0..count {
        let id = r.vint_unsigned()?;
        let id = u16::try_from(id).map_err(|_| r.invalid(i64::MAX))?;
        let [kind] = r.array::<1>()?;
        columns.push((id, kind, text(&mut r)?, text(&mut r)?));
    }
    r.finish()?;
    Ok(Descriptor { table, version, names, columns })
}
