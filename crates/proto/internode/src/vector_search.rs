//! Searches of the nearest rows by a vector ([`crate::Verb::VectorSearch`]), and their answers.
//!
//! ```text
//! request: version u8 · index 16 · dimension count v · component f32* · predicate count v · predicate*
//!          · read request, up to the end: its rows are the rows wanted
//! answer:  version u8 · flags u8 · row count v · (score f32 · key u16, bytes · 0 | 1 · [clustering v, bytes])*
//! ```
//!
//! Predicates: as in [`crate::index_search`]. Flags: 1 no further row qualifies.

use codec::{DecodeError, Reader, Writer};
use index_format::search::VECTOR_ROWS_MAX;
use index_format::vectors::DIMENSIONS_MAX;
use index_format::{Neighbour, Neighbours, VectorSearch};
use stdx::Uuid;

use crate::index_search::{PREDICATES_MAX, put_predicate, take_predicate};
use crate::read::{ReadLimits, ReadRequest, encode_read, put_key, take_clustering, take_count};

/// The version of both.
pub const VECTOR_SEARCH_VERSION: u8 = 1;

const IS_EXHAUSTED: u8 = 1;

/// Appends a request.
pub fn encode_vector_search(out: &mut Vec<u8>, search: &VectorSearch) {
    let VectorSearch { command, index, vector, limit, predicates } = search;
    out.put_u8(VECTOR_SEARCH_VERSION);
    out.put_bytes(index.as_bytes());
    out.put_vint_unsigned(vector.len() as u64);
    vector.iter().for_each(|component| out.put_f32(*component));
    out.put_vint_unsigned(predicates.len() as u64);
    predicates.iter().for_each(|predicate| put_predicate(out, predicate, true));
    let limits = ReadLimits { rows: u64::from(*limit), bytes: 1, rows_per_partition: u32::MAX };
    encode_read(out, command, limits, false);
}

/// Decodes a request; its read command is checked as in [`ReadRequest::decode`].
///
/// # Errors
/// Not a request of this version, without a vector, with a limit beyond [`VECTOR_ROWS_MAX`], reversed or with a position
/// to continue after.
pub fn decode_vector_search(payload: &[u8]) -> Result<VectorSearch, DecodeError> {
    let mut reader = Reader::new(payload, "vector search");
    let version = reader.u8()?;
    if version != VECTOR_SEARCH_VERSION {
        return Err(reader.invalid(i64::from(version)));
    }
    let index = Uuid::from_bytes(reader.array()?);
    let count = take_count(&mut reader, 4)?;
    if count == 0 || count > DIMENSIONS_MAX {
        return Err(reader.invalid(i64::try_from(count).unwrap_or(i64::MAX)));
    }
    let mut vector = Vec::with_capacity(count);
    for _ in 0..count {
        vector.push(f32::from_be_bytes(reader.array()?));
    }
    let count = take_count(&mut reader, 17)?;
    if count > PREDICATES_MAX {
        return Err(reader.invalid(i64::try_from(count).unwrap_or(i64::MAX)));
    }
    let mut predicates = Vec::with_capacity(count);
    for _ in 0..count {
        predicates.push(take_predicate(&mut reader, true)?);
    }
    let ReadRequest { digest, limits, command } = ReadRequest::decode(reader.rest())?;
    let limit = u32::try_from(limits.rows).unwrap_or(0);
    if digest
        || limit == 0
        || limit > VECTOR_ROWS_MAX
        || command.reversed
        || command.resume.is_some()
        || limits.rows_per_partition != u32::MAX
    {
        return Err(reader.invalid(i64::from(limit)));
    }
    Ok(VectorSearch { command, index, vector, limit, predicates })
}

/// Appends an answer.
pub fn encode_neighbours(out: &mut Vec<u8>, answer: &Neighbours) {
    let Neighbours { rows, is_exhausted } = answer;
    out.put_u8(VECTOR_SEARCH_VERSION);
    out.put_u8(if *is_exhausted { IS_EXHAUSTED } else { 0 });
    out.put_vint_unsigned(rows.len() as u64);
    for Neighbour { score, token: _, key, clustering } in rows {
        out.put_f32(*score);
        put_key(out, key);
        out.put_u8(u8::from(clustering.is_some()));
        if let Some(clustering) = clustering {
            out.put_bytes_vint(clustering);
        }
    }
}

/// Decodes an answer. Tokens are computed from the keys; order and range are not checked.
///
/// # Errors
/// Not an answer of this version.
pub fn decode_neighbours(payload: &[u8]) -> Result<Neighbours, DecodeError> {
    let mut reader = Reader::new(payload, "answer to a vector search");
    let version = reader.u8()?;
    if version != VECTOR_SEARCH_VERSION {
        return Err(reader.invalid(i64::from(version)));
    }
    let flags = reader.u8()?;
    if flags & !IS_EXHAUSTED != 0 {
        return Err(reader.invalid(i64::from(flags)));
    }
    let count = take_count(&mut reader, 7)?;
    let mut rows = Vec::with_capacity(count);
    for _ in 0..count {
        let score = f32::from_be_bytes(reader.array()?);
        let key = reader.bytes_u16()?.to_vec();
        let clustering = match reader.u8()? {
            0 => None,
            1 => Some(take_clustering(&mut reader)?),
            tag => return Err(reader.invalid(i64::from(tag))),
        };
        rows.push(Neighbour { score, token: codec::token_of(&key), key, clustering });
    }
    reader.finish()?;
    Ok(Neighbours { rows, is_exhausted: flags & IS_EXHAUSTED != 0 })
}

#[cfg(test)]
mod tests {
    use data::command::{Partitions, ReadCommand, ResumePosition};
    use index_format::{IndexPredicate, TermRange};
    use stdx::{DeletionSeconds, TableId};

    use super::*;

    fn search() -> VectorSearch {
        let table = TableId(Uuid::from_u128(7));
        let command =
            ReadCommand::whole(table, Partitions::Key(b"key".to_vec()), DeletionSeconds(9));
        let predicates = vec![IndexPredicate {
            index: Uuid::from_u128(1),
            ranges: vec![TermRange::equal(b"a")],
            filter: None,
        }];
        let (index, vector) = (Uuid::from_u128(3), vec![1.0, -0.5]);
        VectorSearch { command, index, vector, limit: 100, predicates }
    }

    fn neighbours() -> Neighbours {
        let row = |score, key: &[u8], clustering| Neighbour {
            score,
            token: codec::token_of(key),
            key: key.to_vec(),
            clustering,
        };
        let clustering = data::clustering::ClusteringBuf::from_components([&b"c"[..]]).0;
        let rows = vec![row(1.0, b"k", Some(clustering)), row(0.25, b"w", None)];
        Neighbours { rows, is_exhausted: true }
    }

    fn encoded(search: &VectorSearch) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_vector_search(&mut bytes, search);
        bytes
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn a_search_and_its_answer_have_these_bytes_and_come_back() {
        let bytes = encoded(&search());
        assert_eq!(hex(&bytes), GOLDEN_SEARCH);
        let again = decode_vector_search(&bytes).unwrap();
        assert_eq!(encoded(&again), bytes);
        assert_eq!((again.limit, again.vector), (100, search().vector));
        assert_eq!((again.index, again.predicates), (search().index, search().predicates));
        for is_exhausted in [true, false] {
            let mut bytes = Vec::new();
            let expect = Neighbours { is_exhausted, ..neighbours() };
            encode_neighbours(&mut bytes, &expect);
            assert_eq!(decode_neighbours(&bytes), Ok(expect));
        }
        let mut bytes = Vec::new();
        encode_neighbours(&mut bytes, &neighbours());
        assert_eq!(hex(&bytes), GOLDEN_ANSWER);
    }

    #[test]
    fn a_cut_or_unknown_search_is_refused_at_every_length() {
        let mut answer = Vec::new();
        encode_neighbours(&mut answer, &neighbours());
        let request = encoded(&search());
        for end in 0..request.len() {
            assert!(decode_vector_search(request.get(..end).unwrap()).is_err(), "{end}");
        }
        for end in 0..answer.len() {
            assert!(decode_neighbours(answer.get(..end).unwrap()).is_err(), "{end}");
        }
        for message in [&request, &answer] {
            for bit in 0..message.len().saturating_mul(8) {
                let mut damaged = message.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                crate::fuzz::fuzz_internode_vector_search(&damaged);
            }
        }
        let refused = |change: &dyn Fn(&mut VectorSearch)| {
            let mut search = search();
            change(&mut search);
            decode_vector_search(&encoded(&search)).is_err()
        };
        assert!(!refused(&|_| {}));
        assert!(!refused(&|search| search.predicates.clear()));
        assert!(!refused(&|search| search.limit = VECTOR_ROWS_MAX));
        assert!(refused(&|search| search.limit = VECTOR_ROWS_MAX + 1));
        assert!(refused(&|search| search.limit = 0));
        assert!(refused(&|search| search.vector.clear()));
        assert!(refused(&|search| search.vector = vec![1.0; DIMENSIONS_MAX + 1]));
        assert!(refused(&|search| search.command.reversed = true));
        assert!(refused(&|search| {
            search.command.resume =
                Some(ResumePosition { clustering: Some(Vec::new()), rows_in_partition: 0 });
        }));
        assert!(refused(&|search| {
            search.predicates = vec![search.predicates[0].clone(); PREDICATES_MAX + 1];
        }));
    }

    const GOLDEN_SEARCH: &str = "0100000000000000000000000000000003023f800000bf000000010000000000000000000000000000000100\
        0105016101610100000000000000000000000000000000076401000000000000000900036b657901020000";
    const GOLDEN_ANSWER: &str = "0101023f80000000016b01020263\
         3e80000000017700";
}
