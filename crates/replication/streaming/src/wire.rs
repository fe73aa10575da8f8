//! Wire format of streams.
//!
//! - `StreamFetch` requests one page of rows.
//! - `StreamOpen` has a source hold its data and offer the files that may be sent whole.
//! - `StreamChunk` requests bytes of such a file.
//! - `StreamClose`, which has no answer, ends the hold.
//!
//! A component is its index in `Component::ALL`, an attached one 255 and its name.
//!
//! ```text
//! StreamFetch
//! request: version u8 · flags u8 · table 16 · plan 16 · operation (u16, bytes) · bytes v
//! · shards of the peer as the sender knows them u16 · [slice: shard u16, shards u16]
//! · [hold u64] · [position: key (u16, bytes) · [clustering v, bytes]]
//! · ranges v · (start i64 · end i64)*     start is exclusive but for the smallest token
//! answer: version u8 · shards u16 · replica page, empty when the request's number of shards is wrong
//!   or there is no such hold
//! StreamOpen
//! request: version u8 (2) · table 16 · plan 16 · operation (u16, bytes) · shards of the peer u16
//! · ranges v · (start i64 · end i64)* · forms of files that are taken u8 · (2 letters)*
//!   a form is a version of the format, or `+a`: attached components; a build skips what it does not know
//! answer: version u8 (2) · shards u16 · hold u64, 0 when nothing is held
//! · files v · (generation u64 · 2 letters · components v · (component u8 · [name u8, bytes] · bytes v)*)*
//!   in version 1 of both there are no versions of files: all are `nb`
//! StreamChunk
//! request: version u8 · hold u64 · generation u64 · component u8 · [name u8, bytes] · offset v · bytes v
//! answer: version u8 · known u8 · bytes of the component, not more than asked for; known is 0 and
//!   there are none when there is no such hold
//! StreamClose
//! version u8 · hold u64
//! ```

use codec::{DecodeError, Reader, Writer};
use data::command::{KeyRange, RingBound};
use data::replica_page::PageEnd;
use stdx::{Generation, ShardId, TableId, Token, Uuid};
use store::{
    ATTACHED_MAX, AttachedName, AttachedTaken, Component, TakenForms, Version as SstableVersion,
};

/// The version this build writes, but for [`OPEN_VERSION`].
pub const VERSION: u8 = 1;
/// The version of `StreamOpen` that this build asks with; it answers in that of the request.
pub const OPEN_VERSION: u8 = 2;
/// Most ranges of one request.
pub const RANGES_MAX: usize = 4096;
/// Most bytes of an operation's name.
const OPERATION_BYTES_MAX: usize = 64;

const SLICE: u8 = 1;
const POSITION: u8 = 2;
const INSIDE: u8 = 4;
const HOLD: u8 = 8;
/// The number of all attached components; the name follows.
const ATTACHED: u8 = u8::MAX;
/// Among the versions of files: attached components are taken.
const ATTACHED_FORM: [u8; 2] = *b"+a";
/// Most files of one answer to `StreamOpen`.
const FILES_MAX: usize = 4096;

/// End of the previous page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Serialised partition key.
    pub key: Vec<u8>,
    /// Clustering of the last row, when the page ended inside the partition.
    pub clustering: Option<Vec<u8>>,
}

impl Position {
    /// Returns the position after a page; `None` if nothing follows.
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
    /// Only what is held under this number and does not go as whole files.
    pub hold: Option<u64>,
    /// End of the previous page.
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
        flags |= if self.hold.is_some() { HOLD } else { 0 };
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
        if let Some(hold) = self.hold {
            out.put_u64(hold);
        }
        if let Some(position) = &self.position {
            put_u16_bytes(out, &position.key);
        }
        if let Some(clustering) = clustering {
            out.put_bytes_vint(clustering);
        }
        put_ranges(out, &self.ranges);
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
        if flags & !(SLICE | POSITION | INSIDE | HOLD) != 0 || flags & (POSITION | INSIDE) == INSIDE
        {
            return Err(r.invalid(i64::from(flags)));
        }
        let table = TableId(Uuid::from_bytes(r.array()?));
        let plan = Uuid::from_bytes(r.array()?);
        let operation = read_operation(&mut r)?;
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
        let hold = if flags & HOLD != 0 { Some(r.u64()?) } else { None };
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
        let ranges = read_ranges(&mut r)?;
        r.finish()?;
        Ok(FetchRequest {
            table,
            plan,
            operation,
            bytes,
            peer_shards,
            slice,
            hold,
            position,
            ranges,
        })
    }

    /// Returns the parts of the ranges after the position.
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

fn put_ranges(out: &mut Vec<u8>, ranges: &[(Token, Token)]) {
    out.put_vint_unsigned(ranges.len() as u64);
    for (start, end) in ranges {
        out.put_i64(start.0);
        out.put_i64(end.0);
    }
}

fn read_ranges(r: &mut Reader<'_>) -> Result<Vec<(Token, Token)>, DecodeError> {
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
    Ok(ranges)
}

fn read_operation(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    let operation = String::from_utf8_lossy(r.bytes_u16()?).into_owned();
    if operation.len() > OPERATION_BYTES_MAX {
        return Err(r.invalid(operation.len() as i64));
    }
    Ok(operation)
}

fn read_version(r: &mut Reader<'_>) -> Result<(), DecodeError> {
    let version = r.u8()?;
    if version == VERSION { Ok(()) } else { Err(r.invalid(i64::from(version))) }
}

fn read_open_version(r: &mut Reader<'_>) -> Result<u8, DecodeError> {
    let version = r.u8()?;
    match version {
        VERSION | OPEN_VERSION => Ok(version),
        _ => Err(r.invalid(i64::from(version))),
    }
}

fn letters_of(letters: &[u8; 2]) -> Option<SstableVersion> {
    SstableVersion::from_letters(std::str::from_utf8(letters).ok()?)
}

fn put_component(out: &mut Vec<u8>, component: Component) {
    if let Component::Attached(name) = component {
        let name = name.as_str().as_bytes();
        out.put_u8(ATTACHED);
        out.put_u8(u8::try_from(name.len()).unwrap_or(u8::MAX));
        out.put_bytes(name);
        return;
    }
    let place = Component::ALL.iter().position(|c| *c == component);
    out.put_u8(place.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX));
}

fn read_component(r: &mut Reader<'_>) -> Result<Component, DecodeError> {
    let place = r.u8()?;
    if place == ATTACHED {
        let length = usize::from(r.u8()?);
        let name = AttachedName::parse(r.utf8(length)?);
        return name.map(Component::Attached).ok_or_else(|| r.invalid(length as i64));
    }
    let found = Component::ALL.get(usize::from(place)).copied();
    found.ok_or_else(|| r.invalid(i64::from(place)))
}

/// Asks a shard to hold what it has of ranges of a table, and for the files that may go whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// The table.
    pub table: TableId,
    /// The operation it belongs to, the same on all shards.
    pub plan: Uuid,
    /// Why, for `nodetool netstats`.
    pub operation: String,
    /// Number of the peer's shards, for which the asked one was chosen.
    pub peer_shards: u16,
    /// See [`FetchRequest`].
    pub ranges: Vec<(Token, Token)>,
    /// Forms of files that are accepted verbatim.
    pub taken: TakenForms,
    /// Version of the message, and of its answer.
    pub version: u8,
}

impl OpenRequest {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.version);
        out.put_bytes(self.table.0.as_bytes());
        out.put_bytes(self.plan.as_bytes());
        put_u16_bytes(out, self.operation.as_bytes());
        out.put_u16(self.peer_shards);
        put_ranges(out, &self.ranges);
        if self.version >= OPEN_VERSION {
            let takes_attached = self.taken.attached == AttachedTaken::Yes;
            let forms = self.taken.versions.len() + usize::from(takes_attached);
            out.put_u8(u8::try_from(forms).unwrap_or(0));
            for version in &self.taken.versions {
                out.put_bytes(version.letters().as_bytes());
            }
            if takes_attached {
                out.put_bytes(&ATTACHED_FORM);
            }
        }
    }

    /// Reads one back. Forms of files that are not known here are skipped.
    ///
    /// # Errors
    /// Not a request of a known version.
    pub fn decode(payload: &[u8]) -> Result<OpenRequest, DecodeError> {
        let mut r = Reader::new(payload, "stream open");
        let version = read_open_version(&mut r)?;
        let table = TableId(Uuid::from_bytes(r.array()?));
        let plan = Uuid::from_bytes(r.array()?);
        let operation = read_operation(&mut r)?;
        let peer_shards = r.u16()?;
        let ranges = read_ranges(&mut r)?;
        let mut taken =
            TakenForms { versions: vec![SstableVersion::Nb], attached: AttachedTaken::No };
        if version >= OPEN_VERSION {
            taken.versions.clear();
            for _ in 0..r.u8()? {
                match r.array()? {
                    ATTACHED_FORM => taken.attached = AttachedTaken::Yes,
                    letters => taken.versions.extend(letters_of(&letters)),
                }
            }
        }
        r.finish()?;
        Ok(OpenRequest { table, plan, operation, peer_shards, ranges, taken, version })
    }
}

/// A file that may go whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOffer {
    /// Its number at the source.
    pub generation: Generation,
    /// Version of its format.
    pub version: SstableVersion,
    /// Its components with their bytes, in the order of their transfer.
    pub components: Vec<(Component, u64)>,
}

impl FileOffer {
    /// Bytes of all components.
    pub fn bytes(&self) -> u64 {
        self.components.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }
}

/// The answer to [`OpenRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAnswer {
    /// Number of the peer's shards.
    pub shards: u16,
    /// Number of the hold; 0: nothing is held, everything goes as rows.
    pub hold: u64,
    /// The files.
    pub files: Vec<FileOffer>,
    /// Version of the message: that of the request.
    pub version: u8,
}

impl OpenAnswer {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.version);
        out.put_u16(self.shards);
        out.put_u64(self.hold);
        out.put_vint_unsigned(self.files.len() as u64);
        for file in &self.files {
            out.put_u64(file.generation.0);
            if self.version >= OPEN_VERSION {
                out.put_bytes(file.version.letters().as_bytes());
            }
            out.put_vint_unsigned(file.components.len() as u64);
            for (component, bytes) in &file.components {
                put_component(out, *component);
                out.put_vint_unsigned(*bytes);
            }
        }
    }

    /// Reads one back.
    ///
    /// # Errors
    /// Not an answer of a known version.
    pub fn decode(payload: &[u8]) -> Result<OpenAnswer, DecodeError> {
        let mut r = Reader::new(payload, "stream open answer");
        let version = read_open_version(&mut r)?;
        let (shards, hold) = (r.u16()?, r.u64()?);
        if shards == 0 {
            return Err(r.invalid(0));
        }
        let count = r.vint_len()?;
        if count > FILES_MAX {
            return Err(r.invalid(count as i64));
        }
        let mut files = Vec::with_capacity(count);
        for _ in 0..count {
            let generation = Generation(r.u64()?);
            let mut of_file = SstableVersion::Nb;
            if version >= OPEN_VERSION {
                let letters = r.array()?;
                let known = letters_of(&letters);
                of_file = known.ok_or_else(|| r.invalid(i64::from(u16::from_be_bytes(letters))))?;
            }
            let parts = r.vint_len()?;
            if parts > Component::ALL.len() + ATTACHED_MAX {
                return Err(r.invalid(parts as i64));
            }
            let mut components = Vec::with_capacity(parts);
            for _ in 0..parts {
                components.push((read_component(&mut r)?, r.vint_unsigned()?));
            }
            files.push(FileOffer { generation, version: of_file, components });
        }
        r.finish()?;
        Ok(OpenAnswer { shards, hold, files, version })
    }
}

/// Asks for bytes of a file that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRequest {
    /// The hold.
    pub hold: u64,
    /// The file.
    pub generation: Generation,
    /// Component of the file.
    pub component: Component,
    /// Offset of the first byte.
    pub offset: u64,
    /// Maximum number of bytes.
    pub bytes: u64,
}

impl ChunkRequest {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(VERSION);
        out.put_u64(self.hold);
        out.put_u64(self.generation.0);
        put_component(out, self.component);
        out.put_vint_unsigned(self.offset);
        out.put_vint_unsigned(self.bytes);
    }

    /// Reads one back.
    ///
    /// # Errors
    /// Not a request of a known version.
    pub fn decode(payload: &[u8]) -> Result<ChunkRequest, DecodeError> {
        let mut r = Reader::new(payload, "stream chunk");
        read_version(&mut r)?;
        let (hold, generation) = (r.u64()?, Generation(r.u64()?));
        let component = read_component(&mut r)?;
        let (offset, bytes) = (r.vint_unsigned()?, r.vint_unsigned()?);
        r.finish()?;
        Ok(ChunkRequest { hold, generation, component, offset, bytes })
    }
}

/// Appends the answer to a [`ChunkRequest`]; `None`: there is no such hold.
pub fn put_chunk(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    out.put_u8(VERSION);
    out.put_u8(u8::from(bytes.is_some()));
    out.put_bytes(bytes.unwrap_or_default());
}

/// Reads what [`put_chunk`] wrote.
///
/// # Errors
/// Not an answer of a known version.
pub fn read_chunk(payload: &[u8]) -> Result<Option<&[u8]>, DecodeError> {
    let mut r = Reader::new(payload, "stream chunk answer");
    read_version(&mut r)?;
    match r.u8()? {
        0 => r.finish().map(|()| None),
        1 => Ok(Some(r.rest())),
        other => Err(r.invalid(i64::from(other))),
    }
}

/// Appends a `StreamClose`.
pub fn put_close(out: &mut Vec<u8>, hold: u64) {
    out.put_u8(VERSION);
    out.put_u64(hold);
}

/// Reads what [`put_close`] wrote.
///
/// # Errors
/// Not one of a known version.
pub fn read_close(payload: &[u8]) -> Result<u64, DecodeError> {
    let mut r = Reader::new(payload, "stream close");
    read_version(&mut r)?;
    let hold = r.u64()?;
    r.finish()?;
    Ok(hold)
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

    /// Decodes an answer; the page is not validated.
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
