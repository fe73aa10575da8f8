//! The messages of the verbs `Repair…`. `RepairRows` carries an `internode::ReadRequest` and is
//! answered by its page; `RepairApply` carries a mutation; the answers of `RepairApply` and
//! `RepairClose` are empty.
//!
//! ```text
//! RepairHashes  version u8 · scope · segments v · (length v · read request)*
//!   answer:     version u8 · segments v · (0 | 1 · digest 16)*      0: more than the request's bytes
//! RepairRows    version u8 · scope · read request
//! RepairApply   version u8 · session 16 · mutation
//! RepairOpen    version u8 · again u8 · session 16 · table 16 · ranges
//!   answer:     version u8 · 0 working | 1 ready | 2 failed · words
//! RepairClose   version u8 · kind u8 · value i64 · session 16 · table 16 · ranges
//!               kinds: 0 flush, 1 give up, 2 repaired at (ms), 3 sync, 4 note repaired at (s)
//! scope:        0 all | 1 · session 16 | 2 unrepaired | 3 repaired
//! ranges:       count v · (start i64 · end i64)*                     behind start, up to end
//! ```

use codec::{DecodeError, Reader, Writer};
use data::command::ReadCommand;
use data::replica_page::ReplicaPage;
use internode::{ReadLimits, ReadRequest};
use stdx::{TableId, Token, Uuid};
use store::ReadScope;

use crate::ranges::{put_ranges, take_ranges};

/// The version this build writes.
pub const VERSION: u8 = 2;
/// Most segments of one request.
pub const SEGMENTS_MAX: usize = 256;

/// Hash of what a replica has of a segment: MurmurHash3 x64-128 of the items of its page. `None`:
/// it has more than the asker wanted to have read.
pub type Digest = Option<u128>;

/// The digest of items.
pub fn digest_of(content: &[u8]) -> u128 {
    request::digest_of(content).0
}

/// The digest of a page of a whole segment.
pub fn digest_of_page(page: &ReplicaPage<'_>) -> Digest {
    page.is_exhausted().then(|| digest_of(page.content()))
}

/// Returns the limits of a page that ends after so many bytes.
pub fn limits(bytes: usize) -> ReadLimits {
    ReadLimits { rows: u64::from(u32::MAX), bytes: bytes as u64, rows_per_partition: u32::MAX }
}

/// Appends a request for the digests of the content that these commands read, of at most so many
/// bytes each.
pub fn encode_hashes(out: &mut Vec<u8>, scope: ReadScope, commands: &[(ReadCommand, usize)]) {
    out.put_u8(VERSION);
    put_scope(out, scope);
    out.put_vint_unsigned(commands.len() as u64);
    let mut one = Vec::new();
    for (command, bytes) in commands {
        one.clear();
        internode::encode_read(&mut one, command, limits(*bytes), true);
        out.put_bytes_vint(&one);
    }
}

/// Reads a request back.
///
/// # Errors
/// Not a request of a known version.
pub fn decode_hashes(payload: &[u8]) -> Result<(ReadScope, Vec<ReadRequest>), DecodeError> {
    let mut r = Reader::new(payload, "repair hashes");
    take_version(&mut r)?;
    let scope = take_scope(&mut r)?;
    let count = take_count(&mut r)?;
    let mut reads = Vec::with_capacity(count);
    for _ in 0..count {
        reads.push(ReadRequest::decode(r.bytes_vint()?)?);
    }
    r.finish()?;
    Ok((scope, reads))
}

/// Appends the answer.
pub fn encode_digests(out: &mut Vec<u8>, digests: &[Digest]) {
    out.put_u8(VERSION);
    out.put_vint_unsigned(digests.len() as u64);
    for digest in digests {
        out.put_u8(u8::from(digest.is_some()));
        if let Some(digest) = digest {
            out.put_bytes(&digest.to_be_bytes());
        }
    }
}

/// Reads the answer back.
///
/// # Errors
/// Not an answer of a known version.
pub fn decode_digests(payload: &[u8]) -> Result<Vec<Digest>, DecodeError> {
    let mut r = Reader::new(payload, "repair digests");
    take_version(&mut r)?;
    let count = take_count(&mut r)?;
    let mut digests = Vec::with_capacity(count);
    for _ in 0..count {
        digests.push(match r.u8()? {
            0 => None,
            1 => Some(u128::from_be_bytes(r.array()?)),
            other => return Err(r.invalid(i64::from(other))),
        });
    }
    r.finish()?;
    Ok(digests)
}

fn put_scope(out: &mut Vec<u8>, scope: ReadScope) {
    match scope {
        // A repair's read is never a client's.
        ReadScope::All | ReadScope::Repair => out.put_u8(0),
        ReadScope::Pending(session) => {
            out.put_u8(1);
            out.put_bytes(session.as_bytes());
        }
        ReadScope::Unrepaired => out.put_u8(2),
        ReadScope::Repaired => out.put_u8(3),
    }
}

fn take_scope(r: &mut Reader<'_>) -> Result<ReadScope, DecodeError> {
    Ok(match r.u8()? {
        0 => ReadScope::Repair,
        1 => ReadScope::Pending(take_uuid(r)?),
        2 => ReadScope::Unrepaired,
        3 => ReadScope::Repaired,
        other => return Err(r.invalid(i64::from(other))),
    })
}

fn take_uuid(r: &mut Reader<'_>) -> Result<Uuid, DecodeError> {
    Ok(Uuid::from_bytes(r.array()?))
}

fn take_version(r: &mut Reader<'_>) -> Result<(), DecodeError> {
    match r.u8()? {
        VERSION => Ok(()),
        other => Err(r.invalid(i64::from(other))),
    }
}

/// Appends a request for rows.
pub fn encode_rows(out: &mut Vec<u8>, scope: ReadScope, command: &ReadCommand, bytes: usize) {
    out.put_u8(VERSION);
    put_scope(out, scope);
    internode::encode_read(out, command, limits(bytes), false);
}

/// Reads a request for rows back.
///
/// # Errors
/// Not a request of a known version.
pub fn decode_rows(payload: &[u8]) -> Result<(ReadScope, ReadRequest), DecodeError> {
    let mut r = Reader::new(payload, "repair rows");
    take_version(&mut r)?;
    let scope = take_scope(&mut r)?;
    Ok((scope, ReadRequest::decode(r.rest())?))
}

/// Appends what a replica lacks of a session's data.
pub fn encode_apply(out: &mut Vec<u8>, session: Uuid, mutation: &[u8]) {
    out.put_u8(VERSION);
    out.put_bytes(session.as_bytes());
    out.put_bytes(mutation);
}

/// Decodes it; the mutation is not validated.
///
/// # Errors
/// Not a message of a known version.
pub fn decode_apply(payload: &[u8]) -> Result<(Uuid, &[u8]), DecodeError> {
    let mut r = Reader::new(payload, "repair apply");
    take_version(&mut r)?;
    let session = take_uuid(&mut r)?;
    Ok((session, r.rest()))
}

/// The begin of an incremental session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// Repeated poll: a participant that does not know the session has lost it.
    pub again: bool,
    /// The session.
    pub session: Uuid,
    /// The table.
    pub table: TableId,
    /// Ascending, apart from each other, without wrap.
    pub ranges: Vec<(Token, Token)>,
}

/// Progress of a participant that opens a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// It is setting files apart.
    Working,
    /// Its files are set apart: it can be asked.
    Ready,
    /// It cannot take part.
    Failed(String),
}

/// Action of a participant for a session, or for the outcome of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseKind {
    /// Make durable what the session sent.
    Flush,
    /// Turn its files into ordinary ones again.
    GiveUp,
    /// Mark its files as repaired, at milliseconds since 1970.
    Repaired(i64),
    /// Have on the disk what was written so far.
    Sync,
    /// The ranges were repaired, by a repair that began at seconds since 1970.
    Noted(i64),
}

/// See [`CloseKind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// What.
    pub kind: CloseKind,
    /// The session; nil for `Sync` and `Noted`.
    pub session: Uuid,
    /// The table.
    pub table: TableId,
    /// See [`Open`].
    pub ranges: Vec<(Token, Token)>,
}

/// Appends the begin of a session.
pub fn encode_open(out: &mut Vec<u8>, open: &Open) {
    out.put_u8(VERSION);
    out.put_u8(u8::from(open.again));
    out.put_bytes(open.session.as_bytes());
    out.put_bytes(open.table.0.as_bytes());
    put_ranges(out, &open.ranges);
}

/// Reads it back.
///
/// # Errors
/// Not a message of a known version, or impossible ranges.
pub fn decode_open(payload: &[u8]) -> Result<Open, DecodeError> {
    let mut r = Reader::new(payload, "repair open");
    take_version(&mut r)?;
    let again = r.u8()? != 0;
    let (session, table) = (take_uuid(&mut r)?, TableId(take_uuid(&mut r)?));
    let ranges = take_ranges(&mut r)?;
    r.finish()?;
    Ok(Open { again, session, table, ranges })
}

/// Appends the answer.
pub fn encode_opened(out: &mut Vec<u8>, opened: &Opened) {
    let (state, words) = match opened {
        Opened::Working => (0, ""),
        Opened::Ready => (1, ""),
        Opened::Failed(words) => (2, words.as_str()),
    };
    out.put_u8(VERSION);
    out.put_u8(state);
    out.put_bytes(words.as_bytes());
}

/// Reads the answer back.
///
/// # Errors
/// Not an answer of a known version.
pub fn decode_opened(payload: &[u8]) -> Result<Opened, DecodeError> {
    let mut r = Reader::new(payload, "repair opened");
    take_version(&mut r)?;
    let state = r.u8()?;
    let words = String::from_utf8_lossy(r.rest()).into_owned();
    match state {
        0 => Ok(Opened::Working),
        1 => Ok(Opened::Ready),
        2 => Ok(Opened::Failed(words)),
        other => Err(r.invalid(i64::from(other))),
    }
}

/// Appends the end of a session.
pub fn encode_close(out: &mut Vec<u8>, close: &Close) {
    let (kind, value) = match close.kind {
        CloseKind::Flush => (0, 0),
        CloseKind::GiveUp => (1, 0),
        CloseKind::Repaired(at) => (2, at),
        CloseKind::Sync => (3, 0),
        CloseKind::Noted(seconds) => (4, seconds),
    };
    out.put_u8(VERSION);
    out.put_u8(kind);
    out.put_i64(value);
    out.put_bytes(close.session.as_bytes());
    out.put_bytes(close.table.0.as_bytes());
    put_ranges(out, &close.ranges);
}

/// Reads it back.
///
/// # Errors
/// Not a message of a known version, or impossible ranges.
pub fn decode_close(payload: &[u8]) -> Result<Close, DecodeError> {
    let mut r = Reader::new(payload, "repair close");
    take_version(&mut r)?;
    let (kind, value) = (r.u8()?, r.i64()?);
    let kind = match kind {
        0 => CloseKind::Flush,
        1 => CloseKind::GiveUp,
        2 => CloseKind::Repaired(value),
        3 => CloseKind::Sync,
        4 => CloseKind::Noted(value),
        other => return Err(r.invalid(i64::from(other))),
    };
    let (session, table) = (take_uuid(&mut r)?, TableId(take_uuid(&mut r)?));
    let ranges = take_ranges(&mut r)?;
    r.finish()?;
    Ok(Close { kind, session, table, ranges })
}

fn take_count(r: &mut Reader<'_>) -> Result<usize, DecodeError> {
    let count = r.vint_len()?;
    if count > SEGMENTS_MAX {
        return Err(r.invalid(i64::try_from(count).unwrap_or(i64::MAX)));
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Segment;
    use stdx::{DeletionSeconds, TableId, Token, Uuid};

    fn question() -> Vec<u8> {
        let table = TableId(Uuid::from_u128(7));
        let rows = Segment::Rows { key: vec![1, 2], after: Some(vec![2, 9]), upto: None };
        let commands = [Segment::of_tokens(Token(1), Token(5)), rows]
            .map(|s| (s.command(table, DeletionSeconds(3)), 4096));
        let mut out = Vec::new();
        encode_hashes(&mut out, ReadScope::Repair, &commands);
        out
    }

    #[test]
    fn questions_and_answers_are_read_back() {
        let (scope, reads) = decode_hashes(&question()).unwrap();
        assert_eq!(scope, ReadScope::Repair);
        let [ring, rows] = reads.as_slice() else { panic!("{reads:?}") };
        assert!(ring.digest && rows.digest);
        assert_eq!((ring.limits, rows.limits.bytes), (limits(4096), 4096));
        assert_eq!(rows.command.slices.0[0].start, [2, 9]);
        let digests = [Some(5), None, Some(u128::MAX)];
        let mut out = Vec::new();
        encode_digests(&mut out, &digests);
        assert_eq!(out[..3], [VERSION, 3, 1]);
        assert_eq!(decode_digests(&out).unwrap(), digests);
    }

    #[test]
    fn sessions_are_opened_and_closed_over_the_wire() {
        let (session, table) = (Uuid::from_u128(5), TableId(Uuid::from_u128(6)));
        let ranges = vec![(Token::MIN, Token(-4)), (Token(-4), Token(9))];
        let open = Open { again: true, session, table, ranges: ranges.clone() };
        let mut out = Vec::new();
        encode_open(&mut out, &open);
        assert_eq!(decode_open(&out), Ok(open));
        for length in 0..out.len() {
            assert!(decode_open(&out[..length]).is_err());
        }
        for opened in [Opened::Working, Opened::Ready, Opened::Failed("why".to_owned())] {
            let mut out = Vec::new();
            encode_opened(&mut out, &opened);
            assert_eq!(decode_opened(&out), Ok(opened));
        }
        for kind in [
            CloseKind::Flush,
            CloseKind::GiveUp,
            CloseKind::Repaired(7),
            CloseKind::Sync,
            CloseKind::Noted(8),
        ] {
            let close = Close { kind, session, table, ranges: ranges.clone() };
            let mut out = Vec::new();
            encode_close(&mut out, &close);
            assert_eq!(decode_close(&out), Ok(close));
        }
        for wrong in
            [[(Token(1), Token(1))].as_slice(), &[(Token(1), Token(5)), (Token(4), Token(6))]]
        {
            let mut out = Vec::new();
            encode_open(&mut out, &Open { again: false, session, table, ranges: wrong.to_vec() });
            assert!(decode_open(&out).is_err(), "{wrong:?}");
        }
        let mut out = Vec::new();
        encode_apply(&mut out, session, b"mutation");
        assert_eq!(decode_apply(&out), Ok((session, b"mutation".as_slice())));
        for scope in [ReadScope::Pending(session), ReadScope::Unrepaired, ReadScope::Repaired] {
            let mut out = Vec::new();
            let command = Segment::of_tokens(Token(1), Token(5)).command(table, DeletionSeconds(3));
            encode_rows(&mut out, scope, &command, 77);
            assert_eq!(decode_rows(&out).unwrap().0, scope);
        }
    }

    #[test]
    fn bytes_that_are_cut_short_or_longer_are_refused() {
        let mut answer = Vec::new();
        encode_digests(&mut answer, &[Some(5), None]);
        for length in 0..answer.len() {
            assert!(decode_digests(&answer[..length]).is_err());
        }
        answer.push(0);
        assert!(decode_digests(&answer).is_err());
        let question = question();
        for length in 0..question.len() {
            assert!(decode_hashes(&question[..length]).is_err());
        }
        // Another version, a count that no message has, a third kind of digest.
        assert!(decode_hashes(&[VERSION - 1, 0, 0]).is_err());
        assert!(decode_hashes(&[VERSION, 0, 0xf1, 0xff, 0xff]).is_err());
        assert!(decode_digests(&[VERSION, 1, 2]).is_err());
    }
}
