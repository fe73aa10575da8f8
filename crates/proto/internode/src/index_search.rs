//! Searches of indexes ([`crate::Verb::IndexSearch`]): which keys a replica is asked for, and its answer.
//!
//! ```text
//! request: version u8 · matching u8 · driving predicate v · rows looked at v
//!          · predicate count v
//!          · (index 16 · [filter u8 · bytes v] · range count v · (flags u8 · [lower v, bytes] · [upper v, bytes])*)*
//!          · read request, up to the end: its rows are the keys, its bytes those of the keys
//! answer:  version u8 · rows v · estimate count v · estimate v*
//!          · partition count v · (key u16, bytes · 0 | 1 + row count v · (clustering v, bytes)*)*
//!          · frontier tag u8 · [token i64] · [key u16, bytes] · [clustering v, bytes]
//! ```
//!
//! Matching: 0 driving, 1 intersection, 2 estimates only. Range flags: 1 has lower, 2 lower excluded, 4 has upper,
//! 8 upper excluded. Filter, in version 2: 0 none, without bytes, 1 ends with, 2 contains. Rows of a partition: 0 stands for all. Frontier: 0 done, 1 before a token, 2 after a partition,
//! 3 inside one.

use std::ops::Bound;

use codec::{DecodeError, Reader, Writer};
use index_format::{
    Frontier, IndexPredicate, IndexSearch, MatchedPartition, MatchedRows, Matches, Matching,
    SearchLimits, TermFilter, TermRange,
};
use stdx::{Token, Uuid};

use crate::read::{ReadLimits, ReadRequest, encode_read, put_key, take_clustering, take_count};

/// The version of answers and of requests without filters of terms.
pub const INDEX_SEARCH_VERSION: u8 = 1;
/// The version of requests with a filter of terms.
const FILTERED_VERSION: u8 = 2;
/// Most predicates of a search: more than a statement may have.
pub const PREDICATES_MAX: usize = 256;

const DRIVING: u8 = 0;
const INTERSECTION: u8 = 1;
const ESTIMATE_ONLY: u8 = 2;

const HAS_LOWER: u8 = 1;
const LOWER_EXCLUDED: u8 = 2;
const HAS_UPPER: u8 = 4;
const UPPER_EXCLUDED: u8 = 8;

const NO_FILTER: u8 = 0;
const ENDS_WITH: u8 = 1;
const CONTAINS: u8 = 2;

const DONE: u8 = 0;
const BEFORE: u8 = 1;
const AFTER: u8 = 2;
const INSIDE: u8 = 3;

/// Appends a request.
pub fn encode_index_search(out: &mut Vec<u8>, search: &IndexSearch) {
    let IndexSearch { command, predicates, matching, limits } = search;
    let SearchLimits { keys, bytes, scanned } = *limits;
    let is_filtered = predicates.iter().any(|predicate| predicate.filter.is_some());
    out.put_u8(if is_filtered { FILTERED_VERSION } else { INDEX_SEARCH_VERSION });
    let (tag, driving) = match matching {
        Matching::Driving(predicate) => (DRIVING, *predicate),
        Matching::Intersection => (INTERSECTION, 0),
        Matching::EstimateOnly => (ESTIMATE_ONLY, 0),
    };
    out.put_u8(tag);
    out.put_vint_unsigned(driving as u64);
    out.put_vint_unsigned(scanned);
    out.put_vint_unsigned(predicates.len() as u64);
    predicates.iter().for_each(|predicate| put_predicate(out, predicate, is_filtered));
    let limits = ReadLimits { rows: u64::from(keys), bytes, rows_per_partition: u32::MAX };
    encode_read(out, command, limits, false);
}

/// Writes a predicate, with its filter if `is_filtered`.
pub(crate) fn put_predicate(out: &mut Vec<u8>, predicate: &IndexPredicate, is_filtered: bool) {
    let IndexPredicate { index, ranges, filter } = predicate;
    out.put_bytes(index.as_bytes());
    if is_filtered {
        put_filter(out, filter.as_ref());
    }
    out.put_vint_unsigned(ranges.len() as u64);
    ranges.iter().for_each(|range| put_range(out, range));
}

fn put_filter(out: &mut Vec<u8>, filter: Option<&TermFilter>) {
    let (tag, text) = match filter {
        None => return out.put_u8(NO_FILTER),
        Some(TermFilter::EndsWith(text)) => (ENDS_WITH, text),
        Some(TermFilter::Contains(text)) => (CONTAINS, text),
    };
    out.put_u8(tag);
    out.put_bytes_vint(text);
}

fn take_filter(reader: &mut Reader<'_>) -> Result<Option<TermFilter>, DecodeError> {
    let tag = reader.u8()?;
    if tag == NO_FILTER {
        return Ok(None);
    }
    let text = reader.bytes_vint()?.to_vec();
    match tag {
        ENDS_WITH => Ok(Some(TermFilter::EndsWith(text))),
        CONTAINS => Ok(Some(TermFilter::Contains(text))),
        tag => Err(reader.invalid(i64::from(tag))),
    }
}

fn put_range(out: &mut Vec<u8>, range: &TermRange) {
    let flags = |bound: &Bound<Vec<u8>>, has: u8, excluded: u8| match bound {
        Bound::Included(_) => has,
        Bound::Excluded(_) => has | excluded,
        Bound::Unbounded => 0,
    };
    let TermRange { lower, upper } = range;
    out.put_u8(flags(lower, HAS_LOWER, LOWER_EXCLUDED) | flags(upper, HAS_UPPER, UPPER_EXCLUDED));
    for bound in [lower, upper] {
        if let Bound::Included(term) | Bound::Excluded(term) = bound {
            out.put_bytes_vint(term);
        }
    }
}

/// Decodes a request; its read command is checked as in [`ReadRequest::decode`].
///
/// # Errors
/// Not a request of this version, without a predicate, or reversed.
pub fn decode_index_search(payload: &[u8]) -> Result<IndexSearch, DecodeError> {
    let mut reader = Reader::new(payload, "index search");
    let version = reader.u8()?;
    if version != INDEX_SEARCH_VERSION && version != FILTERED_VERSION {
        return Err(reader.invalid(i64::from(version)));
    }
    let tag = reader.u8()?;
    let driving = reader.vint_len()?;
    let scanned = reader.vint_unsigned()?;
    let count = take_count(&mut reader, 17)?;
    if count == 0 || count > PREDICATES_MAX || driving >= count || (tag != DRIVING && driving != 0)
    {
        return Err(reader.invalid(i64::try_from(count).unwrap_or(i64::MAX)));
    }
    let matching = match tag {
        DRIVING => Matching::Driving(driving),
        INTERSECTION => Matching::Intersection,
        ESTIMATE_ONLY => Matching::EstimateOnly,
        tag => return Err(reader.invalid(i64::from(tag))),
    };
    let mut predicates = Vec::with_capacity(count);
    for _ in 0..count {
        predicates.push(take_predicate(&mut reader, version == FILTERED_VERSION)?);
    }
    let ReadRequest { digest, limits, command } = ReadRequest::decode(reader.rest())?;
    let keys = u32::try_from(limits.rows).unwrap_or(0);
    if digest || keys == 0 || command.reversed || limits.rows_per_partition != u32::MAX {
        return Err(reader.invalid(0));
    }
    let limits = SearchLimits { keys, bytes: limits.bytes, scanned };
    Ok(IndexSearch { command, predicates, matching, limits })
}

/// Reads what [`put_predicate`] wrote.
pub(crate) fn take_predicate(
    reader: &mut Reader<'_>,
    is_filtered: bool,
) -> Result<IndexPredicate, DecodeError> {
    let index = Uuid::from_bytes(reader.array()?);
    let filter = if is_filtered { take_filter(reader)? } else { None };
    let count = take_count(reader, 1)?;
    let mut ranges = Vec::with_capacity(count);
    for _ in 0..count {
        let flags = reader.u8()?;
        let is_known = flags & !(HAS_LOWER | LOWER_EXCLUDED | HAS_UPPER | UPPER_EXCLUDED) == 0;
        if !is_known
            || flags & (HAS_LOWER | LOWER_EXCLUDED) == LOWER_EXCLUDED
            || flags & (HAS_UPPER | UPPER_EXCLUDED) == UPPER_EXCLUDED
        {
            return Err(reader.invalid(i64::from(flags)));
        }
        let mut take = |has: u8, excluded: u8| {
            if flags & has == 0 {
                return Ok(Bound::Unbounded);
            }
            let term = reader.bytes_vint()?.to_vec();
            Ok(if flags & excluded == 0 { Bound::Included(term) } else { Bound::Excluded(term) })
        };
        let lower = take(HAS_LOWER, LOWER_EXCLUDED)?;
        ranges.push(TermRange { lower, upper: take(HAS_UPPER, UPPER_EXCLUDED)? });
    }
    Ok(IndexPredicate { index, ranges, filter })
}

/// Appends an answer.
pub fn encode_matches(out: &mut Vec<u8>, matches: &Matches) {
    let Matches { partitions, frontier, estimates, rows } = matches;
    out.put_u8(INDEX_SEARCH_VERSION);
    out.put_vint_unsigned(*rows);
    out.put_vint_unsigned(estimates.len() as u64);
    estimates.iter().for_each(|estimate| out.put_vint_unsigned(*estimate));
    out.put_vint_unsigned(partitions.len() as u64);
    for MatchedPartition { token: _, key, rows } in partitions {
        put_key(out, key);
        match rows {
            MatchedRows::Whole => out.put_vint_unsigned(0),
            MatchedRows::Rows(rows) => {
                out.put_vint_unsigned((rows.len() as u64).saturating_add(1));
                rows.iter().for_each(|clustering| out.put_bytes_vint(clustering));
            }
        }
    }
    put_frontier(out, frontier);
}

fn put_frontier(out: &mut Vec<u8>, frontier: &Frontier) {
    match frontier {
        Frontier::Done => out.put_u8(DONE),
        Frontier::Before { token } => {
            out.put_u8(BEFORE);
            out.put_i64(token.0);
        }
        Frontier::After { token, key } => {
            out.put_u8(AFTER);
            out.put_i64(token.0);
            put_key(out, key);
        }
        Frontier::Inside { token, key, clustering } => {
            out.put_u8(INSIDE);
            out.put_i64(token.0);
            put_key(out, key);
            out.put_bytes_vint(clustering);
        }
    }
}

/// Decodes an answer. Tokens of partitions are computed from their keys; order and range are not checked.
///
/// # Errors
/// Not an answer of this version.
pub fn decode_matches(payload: &[u8]) -> Result<Matches, DecodeError> {
    let mut reader = Reader::new(payload, "answer to an index search");
    let version = reader.u8()?;
    if version != INDEX_SEARCH_VERSION {
        return Err(reader.invalid(i64::from(version)));
    }
    let rows = reader.vint_unsigned()?;
    let count = take_count(&mut reader, 1)?;
    let mut estimates = Vec::with_capacity(count);
    for _ in 0..count {
        estimates.push(reader.vint_unsigned()?);
    }
    let count = take_count(&mut reader, 3)?;
    let mut partitions = Vec::with_capacity(count);
    for _ in 0..count {
        let key = reader.bytes_u16()?.to_vec();
        let rows = match take_count(&mut reader, 1)? {
            0 => MatchedRows::Whole,
            more => {
                let rows: Result<Vec<_>, _> =
                    (1..more).map(|_| take_clustering(&mut reader)).collect();
                MatchedRows::Rows(rows?)
            }
        };
        partitions.push(MatchedPartition { token: codec::token_of(&key), key, rows });
    }
    let frontier = take_frontier(&mut reader)?;
    reader.finish()?;
    Ok(Matches { partitions, frontier, estimates, rows })
}

fn take_frontier(reader: &mut Reader<'_>) -> Result<Frontier, DecodeError> {
    let tag = reader.u8()?;
    if tag == DONE {
        return Ok(Frontier::Done);
    }
    let token = Token(reader.i64()?);
    match tag {
        BEFORE => Ok(Frontier::Before { token }),
        AFTER => Ok(Frontier::After { token, key: reader.bytes_u16()?.to_vec() }),
        INSIDE => {
            let key = reader.bytes_u16()?.to_vec();
            Ok(Frontier::Inside { token, key, clustering: take_clustering(reader)? })
        }
        tag => Err(reader.invalid(i64::from(tag))),
    }
}

#[cfg(test)]
mod tests {
    use data::command::{Partitions, ReadCommand};
    use stdx::{DeletionSeconds, TableId};

    use super::*;

    fn search() -> IndexSearch {
        let table = TableId(Uuid::from_u128(7));
        let command =
            ReadCommand::whole(table, Partitions::Key(b"key".to_vec()), DeletionSeconds(9));
        let range = TermRange { lower: Bound::Included(vec![1]), upper: Bound::Excluded(vec![2]) };
        let predicates = vec![
            IndexPredicate {
                index: Uuid::from_u128(1),
                ranges: vec![TermRange::equal(b"a")],
                filter: None,
            },
            IndexPredicate {
                index: Uuid::from_u128(2),
                ranges: vec![range, TermRange::all()],
                filter: None,
            },
        ];
        let limits = SearchLimits { keys: 100, bytes: 4096, scanned: 9999 };
        IndexSearch { command, predicates, matching: Matching::Driving(1), limits }
    }

    fn matches() -> Matches {
        let (key, clustering) =
            (b"k".to_vec(), data::clustering::ClusteringBuf::from_components([&b"c"[..]]).0);
        let token = codec::token_of(&key);
        let rows = MatchedRows::Rows(vec![clustering.clone()]);
        let whole = MatchedPartition {
            token: codec::token_of(b"w"),
            key: b"w".to_vec(),
            rows: MatchedRows::Whole,
        };
        let partitions = vec![whole, MatchedPartition { token, key: key.clone(), rows }];
        let frontier = Frontier::Inside { token, key, clustering };
        Matches { partitions, frontier, estimates: vec![300, 2], rows: 70_000 }
    }

    fn encoded(search: &IndexSearch) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_index_search(&mut bytes, search);
        bytes
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn a_search_and_its_answer_have_these_bytes_and_come_back() {
        let bytes = encoded(&search());
        assert_eq!(hex(&bytes), GOLDEN_SEARCH);
        let again = decode_index_search(&bytes).unwrap();
        assert_eq!(encoded(&again), bytes);
        assert_eq!((again.matching, again.predicates), (Matching::Driving(1), search().predicates));
        let mut bytes = Vec::new();
        encode_matches(&mut bytes, &matches());
        assert_eq!(hex(&bytes), GOLDEN_MATCHES);
        assert_eq!(decode_matches(&bytes), Ok(matches()));
        for frontier in [
            Frontier::Done,
            Frontier::Before { token: Token(-5) },
            Frontier::After { token: Token(5), key: b"k".to_vec() },
        ] {
            let mut bytes = Vec::new();
            let expect = Matches { frontier, ..matches() };
            encode_matches(&mut bytes, &expect);
            assert_eq!(decode_matches(&bytes), Ok(expect));
        }
    }

    #[test]
    fn a_search_with_a_filter_of_terms_comes_back() {
        for filter in [TermFilter::EndsWith(b"x".to_vec()), TermFilter::Contains(b"yz".to_vec())] {
            let mut search = search();
            search.predicates[0].filter = Some(filter);
            let bytes = encoded(&search);
            assert_eq!(bytes[0], FILTERED_VERSION);
            let again = decode_index_search(&bytes).unwrap();
            assert_eq!((again.predicates, encoded(&search)), (search.predicates.clone(), bytes));
            check_damage(&encoded(&search));
        }
    }

    /// Refuses every shorter message, and survives every flipped bit.
    fn check_damage(request: &[u8]) {
        for end in 0..request.len() {
            assert!(decode_index_search(request.get(..end).unwrap()).is_err(), "{end}");
        }
        for bit in 0..request.len().saturating_mul(8) {
            let mut damaged = request.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            crate::fuzz::fuzz_internode_index_search(&damaged);
        }
    }

    #[test]
    fn a_cut_or_unknown_search_is_refused_at_every_length() {
        let mut answer = Vec::new();
        encode_matches(&mut answer, &matches());
        let request = encoded(&search());
        check_damage(&request);
        for bit in 0..answer.len().saturating_mul(8) {
            let mut damaged = answer.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            crate::fuzz::fuzz_internode_index_search(&damaged);
        }
        for end in 0..answer.len() {
            assert!(decode_matches(answer.get(..end).unwrap()).is_err(), "{end}");
        }
        let refused = |change: &dyn Fn(&mut IndexSearch)| {
            let mut search = search();
            change(&mut search);
            decode_index_search(&encoded(&search)).is_err()
        };
        assert!(!refused(&|_| {}));
        assert!(refused(&|search| search.predicates.clear()));
        assert!(refused(&|search| search.matching = Matching::Driving(2)));
        assert!(refused(&|search| search.command.reversed = true));
        assert!(refused(&|search| search.limits.keys = 0));
    }

    const GOLDEN_SEARCH: &str = "010001a70f020000000000000000000000000000000101050161016100000000000000000000000000000\
        002020d0101010200010000000000000000000000000000000007649000000000000000000900036b657901020000";
    const GOLDEN_MATCHES: &str =
        "01c1117002812c02020001770000016b0202026303499adfba2b1435b200016b020263";
}
