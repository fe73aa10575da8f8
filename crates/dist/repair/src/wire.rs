//! The verb `RepairHashes`: digests of stretches. `RepairRows` carries an `internode::ReadRequest`
//! and is answered by its page.
//!
//! ```text
//! request: version u8 · stretches v · (length v · read request)*
//! answer: version u8 · stretches v · (0 | 1 · digest 16)*      0: more than the request's bytes
//! ```

use codec::{DecodeError, Reader, Writer};
use data::command::ReadCommand;
use data::replica_page::ReplicaPage;
use internode::{ReadLimits, ReadRequest};

/// The version this build writes.
pub const VERSION: u8 = 1;
/// Most stretches of one request.
pub const STRETCHES_MAX: usize = 256;

/// Hash of what a replica has of a stretch: MurmurHash3 x64-128 of the items of its page. `None`:
/// it has more than the asker wanted to have read.
pub type Digest = Option<u128>;

/// The digest of items.
pub fn digest_of(content: &[u8]) -> u128 {
    request::digest_of(content).0
}

/// The digest of a page of a whole stretch.
pub fn digest_of_page(page: &ReplicaPage<'_>) -> Digest {
    page.is_exhausted().then(|| digest_of(page.content()))
}

/// Limits of a page that ends after so many bytes.
pub fn limits(bytes: usize) -> ReadLimits {
    ReadLimits { rows: u64::from(u32::MAX), bytes: bytes as u64, rows_per_partition: u32::MAX }
}

/// Appends a request for the digests of what these commands read, of at most so many bytes each.
pub fn encode_hashes(out: &mut Vec<u8>, commands: &[(ReadCommand, usize)]) {
    out.put_u8(VERSION);
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
pub fn decode_hashes(payload: &[u8]) -> Result<Vec<ReadRequest>, DecodeError> {
    let mut r = Reader::new(payload, "repair hashes");
    let count = take_header(&mut r)?;
    let mut reads = Vec::with_capacity(count);
    for _ in 0..count {
        reads.push(ReadRequest::decode(r.bytes_vint()?)?);
    }
    r.finish()?;
    Ok(reads)
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
    let count = take_header(&mut r)?;
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

fn take_header(r: &mut Reader<'_>) -> Result<usize, DecodeError> {
    let version = r.u8()?;
    if version != VERSION {
        return Err(r.invalid(i64::from(version)));
    }
    let count = r.vint_len()?;
    if count > STRETCHES_MAX {
        return Err(r.invalid(i64::try_from(count).unwrap_or(i64::MAX)));
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stretch::Stretch;
    use stdx::{DeletionSeconds, TableId, Token, Uuid};

    fn question() -> Vec<u8> {
        let table = TableId(Uuid::from_u128(7));
        let rows = Stretch::Rows { key: vec![1, 2], after: Some(vec![2, 9]), upto: None };
        let commands = [Stretch::of_tokens(Token(1), Token(5)), rows]
            .map(|s| (s.command(table, DeletionSeconds(3)), 4096));
        let mut out = Vec::new();
        encode_hashes(&mut out, &commands);
        out
    }

    #[test]
    fn questions_and_answers_are_read_back() {
        let reads = decode_hashes(&question()).unwrap();
        let [ring, rows] = reads.as_slice() else { panic!("{reads:?}") };
        assert!(ring.digest && rows.digest);
        assert_eq!((ring.limits, rows.limits.bytes), (limits(4096), 4096));
        assert_eq!(rows.command.slices.0[0].start, [2, 9]);
        let digests = [Some(5), None, Some(u128::MAX)];
        let mut out = Vec::new();
        encode_digests(&mut out, &digests);
        assert_eq!(out[..3], [1, 3, 1]);
        assert_eq!(decode_digests(&out).unwrap(), digests);
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
        assert!(decode_hashes(&[2, 0]).is_err());
        assert!(decode_hashes(&[1, 0xf1, 0xff, 0xff]).is_err());
        assert!(decode_digests(&[1, 1, 2]).is_err());
    }
}
