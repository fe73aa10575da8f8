//! Bytes of a hint file, versions 1 and 2 (encrypted). All integers little-endian. See `docs/formats/hints.md`.
//!
//! ```text
//! header (64): "HLHT" · version u16 · 0 u16 · sequence u64 · replica's host id 16
//!              · writer's host id 16 · shard u16 · shards u16 · created (wall us) i64 · crc32 u32
//! record:      length u32 · synced u32 · written (wall us) i64 · gc grace s u32
//!              · crc32 of the mutation u32 · crc32 of sequence, offset and the 24 bytes before u32
//!              · mutation (length)
//! progress:    "HLHO" · version u16 · flags u16 · sequence u64 · offset u64 · crc32 u32
//! ```
//! A record's checksum covers its place, so bytes of another file or offset are never taken for
//! one, and a record after damage is found by trying every offset.

use codec::checksum::Crc32;
use codec::{DecodeError, Reader};
use stdx::{HostId, Uuid, WallMicros};

/// Version of files whose mutations are stored as they are.
pub const FORMAT_VERSION: u16 = 1;
/// Version of files whose mutations are sealed (`sealed`); otherwise as version 1.
pub const SEALED_VERSION: u16 = 2;
/// Length of the file header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a record before its mutation.
pub const RECORD_HEADER_BYTES: usize = 28;
/// Length of a progress file.
pub const PROGRESS_BYTES: usize = 28;
/// Longest mutation of a record; messages between nodes do not carry longer ones.
pub const MUTATION_BYTES_MAX: usize = 64 << 20;

const MAGIC: &[u8; 4] = b"HLHT";
const PROGRESS_MAGIC: &[u8; 4] = b"HLHO";
const PROGRESS_DAMAGED: u16 = 1;

/// Which file: unique in the hints directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The replica that missed the writes.
    pub target: HostId,
    /// Grows with time, per writer.
    pub sequence: u64,
    /// The shard that wrote it.
    pub shard: u16,
}

impl FileId {
    /// File name.
    pub fn file_name(self) -> String {
        format!("helenus-hints-{}-{:016x}-{}.hints", self.target.0, self.sequence, self.shard)
    }

    /// The id in a file name.
    pub fn from_file_name(name: &str) -> Option<FileId> {
        let rest = name.strip_prefix("helenus-hints-")?.strip_suffix(".hints")?;
        let (rest, shard) = rest.rsplit_once('-')?;
        let (target, sequence) = rest.rsplit_once('-')?;
        let id = FileId {
            target: HostId(Uuid::parse_str(target).ok()?),
            sequence: u64::from_str_radix(sequence, 16).ok()?,
            shard: shard.parse().ok()?,
        };
        // One spelling per file.
        (id.file_name() == name).then_some(id)
    }
}

/// Form of new hint files: encrypted or plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HintSealing {
    /// Mutations are stored as they are.
    #[default]
    Plain,
    /// With a data key of its own, under the active key of the node.
    Sealed,
}

/// Header of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// The id in the file's name.
    pub id: FileId,
    /// The node that wrote it.
    pub writer: HostId,
    /// How many shards it had.
    pub shards: u16,
    /// Wall clock at its creation.
    pub created: WallMicros,
    /// Form of its mutations: sealed or plain.
    pub sealing: HintSealing,
}

/// Why a file header cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHeader {
    /// Cut short or damaged: the tail of a crash, or worse. Records may follow.
    Damaged,
    /// Whole, and of a version that this build does not read.
    Version(u16),
}

impl FileHeader {
    /// Appends the header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(MAGIC);
        let version = match self.sealing {
            HintSealing::Plain => FORMAT_VERSION,
            HintSealing::Sealed => SEALED_VERSION,
        };
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.id.sequence.to_le_bytes());
        out.extend_from_slice(self.id.target.0.as_bytes());
        out.extend_from_slice(self.writer.0.as_bytes());
        out.extend_from_slice(&self.id.shard.to_le_bytes());
        out.extend_from_slice(&self.shards.to_le_bytes());
        out.extend_from_slice(&self.created.0.to_le_bytes());
        let crc = codec::crc32(out.get(start..).unwrap_or(&[]));
        out.extend_from_slice(&crc.to_le_bytes());
    }

    /// Reads a header.
    ///
    /// # Errors
    /// See [`BadHeader`].
    pub fn decode(bytes: &[u8]) -> Result<FileHeader, BadHeader> {
        let header = bytes.get(..HEADER_BYTES).ok_or(BadHeader::Damaged)?;
        let (body, crc) = header.split_at(HEADER_BYTES - 4);
        if codec::crc32(body).to_le_bytes() != crc {
            return Err(BadHeader::Damaged);
        }
        let mut r = Reader::new(body, "hint file header");
        let magic = r.bytes(4).ok() == Some(MAGIC.as_slice());
        let version = r.array::<2>().map(u16::from_le_bytes).map_err(|_| BadHeader::Damaged)?;
        if !magic {
            return Err(BadHeader::Damaged);
        }
        let sealing = match version {
            FORMAT_VERSION => HintSealing::Plain,
            SEALED_VERSION => HintSealing::Sealed,
            _ => return Err(BadHeader::Version(version)),
        };
        let header = Self::decode_body(&mut r).map_err(|_| BadHeader::Damaged)?;
        Ok(FileHeader { sealing, ..header })
    }

    fn decode_body(r: &mut Reader<'_>) -> Result<FileHeader, DecodeError> {
        r.skip(2)?;
        let sequence = u64::from_le_bytes(r.array()?);
        let target = HostId(Uuid::from_bytes(r.array()?));
        let writer = HostId(Uuid::from_bytes(r.array()?));
        let shard = u16::from_le_bytes(r.array()?);
        Ok(FileHeader {
            id: FileId { target, sequence, shard },
            writer,
            shards: u16::from_le_bytes(r.array()?),
            created: WallMicros(i64::from_le_bytes(r.array()?)),
            sealing: HintSealing::Plain,
        })
    }
}

/// One stored hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintRef<'a> {
    /// When the write was made, by the coordinator's clock.
    pub written_at: WallMicros,
    /// `gc_grace_seconds` of its table then.
    pub gc_grace_seconds: u32,
    /// The encoded mutation (`docs/formats/mutation.md`).
    pub mutation: &'a [u8],
}

/// Position of a record, and the prefix that its writer had synced before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// [`FileId::sequence`] of the file.
    pub sequence: u64,
    /// Offset of the record.
    pub offset: u64,
    /// Length of the file's durable prefix when the record was written. Invalid bytes below it are
    /// damage; invalid bytes after it may be the tail of a crash.
    pub synced: u32,
}

/// Appends a record for `place`. A mutation is at most [`MUTATION_BYTES_MAX`] long.
pub fn encode_record(out: &mut Vec<u8>, place: Place, hint: &HintRef<'_>) {
    stdx::invariant!(
        hint.mutation.len() <= MUTATION_BYTES_MAX,
        "hint: mutation of {} bytes",
        hint.mutation.len()
    );
    stdx::invariant!(
        !hint.mutation.is_empty() && u64::from(place.synced) <= place.offset,
        "hint: {} bytes at {}, behind {} synced ones",
        hint.mutation.len(),
        place.offset,
        place.synced
    );
    let length = u32::try_from(hint.mutation.len()).unwrap_or(u32::MAX);
    let start = out.len();
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&place.synced.to_le_bytes());
    out.extend_from_slice(&hint.written_at.0.to_le_bytes());
    out.extend_from_slice(&hint.gc_grace_seconds.to_le_bytes());
    out.extend_from_slice(&codec::crc32(hint.mutation).to_le_bytes());
    let crc = header_crc(place.sequence, place.offset, out.get(start..).unwrap_or(&[]));
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(hint.mutation);
}

/// Returns the size of a record with this mutation.
pub fn record_bytes(mutation: usize) -> u64 {
    RECORD_HEADER_BYTES.saturating_add(mutation) as u64
}

fn header_crc(sequence: u64, offset: u64, fields: &[u8]) -> u32 {
    let mut crc = Crc32::new();
    crc.update(&sequence.to_le_bytes());
    crc.update(&offset.to_le_bytes());
    crc.update(fields);
    crc.value()
}

/// The fixed part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Length of the mutation, 1..=[`MUTATION_BYTES_MAX`].
    pub length: usize,
    /// See [`Place::synced`].
    pub synced: u32,
    /// See [`HintRef::written_at`].
    pub written_at: WallMicros,
    /// See [`HintRef::gc_grace_seconds`].
    pub gc_grace_seconds: u32,
    /// CRC32 of the mutation.
    pub mutation_crc: u32,
}

impl RecordHeader {
    /// The header at `offset` of the file; `None` when there is none.
    pub fn decode(sequence: u64, offset: u64, bytes: &[u8]) -> Option<RecordHeader> {
        let bytes = bytes.get(..RECORD_HEADER_BYTES)?;
        let (fields, crc) = bytes.split_at(RECORD_HEADER_BYTES - 4);
        let mut r = Reader::new(fields, "hint record");
        let length = usize::try_from(u32::from_le_bytes(r.array().ok()?)).ok()?;
        let synced = u32::from_le_bytes(r.array().ok()?);
        // Cheap tests first: after damage every offset is tried.
        if length == 0 || length > MUTATION_BYTES_MAX || u64::from(synced) > offset {
            return None;
        }
        if header_crc(sequence, offset, fields).to_le_bytes() != crc {
            return None;
        }
        Some(RecordHeader {
            length,
            synced,
            written_at: WallMicros(i64::from_le_bytes(r.array().ok()?)),
            gc_grace_seconds: u32::from_le_bytes(r.array().ok()?),
            mutation_crc: u32::from_le_bytes(r.array().ok()?),
        })
    }
}

/// Delivered part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// [`FileId::sequence`] of the file.
    pub sequence: u64,
    /// Everything before was delivered, or dropped for a reason that was counted.
    pub offset: u64,
    /// Damage was found before: once delivered, the file is quarantined instead of deleted.
    pub damaged: bool,
}

impl Progress {
    /// The bytes of a progress file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PROGRESS_BYTES);
        out.extend_from_slice(PROGRESS_MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        let flags = if self.damaged { PROGRESS_DAMAGED } else { 0 };
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        let crc = codec::crc32(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads one back; `None` when it is none of this version. Then the file is delivered from its
    /// beginning, which does no harm.
    pub fn decode(bytes: &[u8]) -> Option<Progress> {
        let (body, crc) = bytes.split_at_checked(PROGRESS_BYTES - 4)?;
        if codec::crc32(body).to_le_bytes() != crc {
            return None;
        }
        let mut r = Reader::new(body, "progress of a hint file");
        if r.bytes(4).ok()? != PROGRESS_MAGIC
            || u16::from_le_bytes(r.array().ok()?) != FORMAT_VERSION
        {
            return None;
        }
        let flags = u16::from_le_bytes(r.array().ok()?);
        Some(Progress {
            sequence: u64::from_le_bytes(r.array().ok()?),
            offset: u64::from_le_bytes(r.array().ok()?),
            damaged: flags & PROGRESS_DAMAGED != 0,
        })
    }
}
