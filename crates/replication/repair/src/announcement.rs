//! Announcements of a repair: its coordinator sends them to the replicas, so that each can show its part.
//! They are the messages of the verb `RepairTell`.
//!
//! Nothing depends on them. A replica that does not know the verb, or misses a message, shows less; one that
//! hears nothing for long treats the repair as failed.
//!
//! ```text
//! RepairTell    version u8 · repair 16 · kind u8
//!               0 begins: flags u8 (1 incremental, 2 global) · preview u8 · tables v · (table 16)* · ranges
//!               1 compares: session 16 · table 16 · ranges
//!               2 has compared: session 16 · table 16 · outcome
//!               3 goes on
//!               4 has ended: repaired at (ms since 1970, 0: no) i64 · outcome
//!   answer:     empty
//! outcome:      0 | 1 · words
//! preview:      0 none, 1 all, 2 unrepaired, 3 repaired
//! ```

use codec::{DecodeError, Reader, Writer};
use stdx::{TableId, Token, Uuid};

use crate::ranges::{put_ranges, take_ranges};
use crate::scope::{Preview, Session};

/// The version this build writes.
const VERSION: u8 = 1;
/// Tables of one message; more are not shown.
pub(crate) const TABLES_MAX: usize = 1024;
/// Ranges of one message; more are not shown.
pub(crate) const RANGES_MAX: usize = 4096;
/// Bytes of a reason; the rest is cut off.
const WORDS_MAX: usize = 1024;

/// Outcome: success, or the reason of a failure.
pub(crate) type Ending = Result<(), String>;

/// News of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The repair begins.
    Begins {
        incremental: bool,
        /// All replicas take part.
        global: bool,
        preview: Preview,
        tables: Vec<TableId>,
        /// Ascending, apart from each other, without wrap.
        ranges: Vec<(Token, Token)>,
    },
    /// A table's ranges are about to be compared.
    Compares { session: Uuid, table: TableId, ranges: Vec<(Token, Token)> },
    /// The comparison has ended, or failed.
    HasCompared { session: Uuid, table: TableId, ending: Ending },
    /// The repair is still running.
    GoesOn,
    /// The repair is over. `repaired_at`: milliseconds since 1970 as of which it marked data as
    /// repaired; 0: none.
    HasEnded { repaired_at: i64, ending: Ending },
}

fn put_ending(out: &mut Vec<u8>, ending: &Ending) {
    match ending {
        Ok(()) => out.put_u8(0),
        Err(words) => {
            out.put_u8(1);
            let mut end = words.len().min(WORDS_MAX);
            while !words.is_char_boundary(end) {
                end -= 1;
            }
            out.put_bytes(words.get(..end).unwrap_or_default().as_bytes());
        }
    }
}

fn take_ending(r: &mut Reader<'_>) -> Result<Ending, DecodeError> {
    match r.u8()? {
        0 => r.finish().map(Ok),
        1 => {
            let words = r.rest();
            let words = words.get(..WORDS_MAX).unwrap_or(words);
            Ok(Err(String::from_utf8_lossy(words).into_owned()))
        }
        other => Err(r.invalid(i64::from(other))),
    }
}

pub(crate) fn encode(out: &mut Vec<u8>, repair: Uuid, news: &News) {
    out.put_u8(VERSION);
    out.put_bytes(repair.as_bytes());
    match news {
        News::Begins { incremental, global, preview, tables, ranges } => {
            out.put_u8(0);
            out.put_u8(u8::from(*incremental) | u8::from(*global) << 1);
            out.put_u8(match preview {
                Preview::None => 0,
                Preview::All => 1,
                Preview::Unrepaired => 2,
                Preview::Repaired => 3,
            });
            let tables = tables.get(..TABLES_MAX).unwrap_or(tables);
            out.put_vint_unsigned(tables.len() as u64);
            tables.iter().for_each(|table| out.put_bytes(table.0.as_bytes()));
            put_ranges(out, ranges.get(..RANGES_MAX).unwrap_or(ranges));
        }
        News::Compares { session, table, ranges } => {
            out.put_u8(1);
            out.put_bytes(session.as_bytes());
            out.put_bytes(table.0.as_bytes());
            put_ranges(out, ranges.get(..RANGES_MAX).unwrap_or(ranges));
        }
        News::HasCompared { session, table, ending } => {
            out.put_u8(2);
            out.put_bytes(session.as_bytes());
            out.put_bytes(table.0.as_bytes());
            put_ending(out, ending);
        }
        News::GoesOn => out.put_u8(3),
        News::HasEnded { repaired_at, ending } => {
            out.put_u8(4);
            out.put_i64(*repaired_at);
            put_ending(out, ending);
        }
    }
}

/// Reads news back: of which repair, and what.
///
/// # Errors
/// Not a message of a known version; more tables or ranges than one may have.
pub(crate) fn decode(payload: &[u8]) -> Result<(Uuid, News), DecodeError> {
    let mut r = Reader::new(payload, "repair news");
    let version = r.u8()?;
    if version != VERSION {
        return Err(r.invalid(i64::from(version)));
    }
    let uuid =
        |r: &mut Reader<'_>| -> Result<Uuid, DecodeError> { Ok(Uuid::from_bytes(r.array()?)) };
    let repair = uuid(&mut r)?;
    let news = match r.u8()? {
        0 => {
            let flags = r.u8()?;
            let preview = match r.u8()? {
                0 => Preview::None,
                1 => Preview::All,
                2 => Preview::Unrepaired,
                3 => Preview::Repaired,
                other => return Err(r.invalid(i64::from(other))),
            };
            let count = r.vint_len()?;
            let count = r.check_count(count, 16)?;
            if count > TABLES_MAX {
                return Err(r.invalid(i64::try_from(count).unwrap_or(i64::MAX)));
            }
            let mut tables = Vec::with_capacity(count);
            for _ in 0..count {
                tables.push(TableId(uuid(&mut r)?));
            }
            let ranges = few_ranges(&mut r)?;
            let (incremental, global) = (flags & 1 != 0, flags & 2 != 0);
            News::Begins { incremental, global, preview, tables, ranges }
        }
        1 => {
            let (session, table) = (uuid(&mut r)?, TableId(uuid(&mut r)?));
            News::Compares { session, table, ranges: few_ranges(&mut r)? }
        }
        2 => {
            let (session, table) = (uuid(&mut r)?, TableId(uuid(&mut r)?));
            let ending = take_ending(&mut r)?;
            return Ok((repair, News::HasCompared { session, table, ending }));
        }
        3 => News::GoesOn,
        4 => {
            let repaired_at = r.i64()?;
            let ending = take_ending(&mut r)?;
            return Ok((repair, News::HasEnded { repaired_at, ending }));
        }
        other => return Err(r.invalid(i64::from(other))),
    };
    r.finish()?;
    Ok((repair, news))
}

fn few_ranges(r: &mut Reader<'_>) -> Result<Vec<(Token, Token)>, DecodeError> {
    let ranges = take_ranges(r)?;
    match ranges.len() <= RANGES_MAX {
        true => Ok(ranges),
        false => Err(r.invalid(i64::try_from(ranges.len()).unwrap_or(i64::MAX))),
    }
}

/// The ranges of several sessions as one list; none of two that overlap is lost.
pub(crate) fn joined<'s>(sessions: impl Iterator<Item = &'s Session>) -> Vec<(Token, Token)> {
    let mut all: Vec<(Token, Token)> =
        sessions.flat_map(|s| s.ranges.iter().map(|r| (r.start, r.end))).collect();
    all.sort_unstable();
    let mut joined: Vec<(Token, Token)> = Vec::with_capacity(all.len());
    for (start, end) in all {
        match joined.last_mut() {
            Some((_, last)) if start < *last => *last = end.max(*last),
            _ => joined.push((start, end)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::TokenRange;

    fn all_news() -> Vec<News> {
        let (session, table) = (Uuid::from_u128(3), TableId(Uuid::from_u128(4)));
        let ranges = vec![(Token::MIN, Token(-5)), (Token(1), Token(2))];
        vec![
            News::Begins {
                incremental: true,
                global: false,
                preview: Preview::Unrepaired,
                tables: vec![table, TableId(Uuid::from_u128(5))],
                ranges: ranges.clone(),
            },
            News::Compares { session, table, ranges },
            News::HasCompared { session, table, ending: Ok(()) },
            News::HasCompared { session, table, ending: Err("why".to_owned()) },
            News::GoesOn,
            News::HasEnded { repaired_at: 7, ending: Ok(()) },
            News::HasEnded { repaired_at: 0, ending: Err("ä".repeat(WORDS_MAX)) },
        ]
    }

    #[test]
    fn news_are_read_back_and_cut_bytes_are_refused() {
        let repair = Uuid::from_u128(9);
        for news in all_news() {
            let mut out = Vec::new();
            encode(&mut out, repair, &news);
            let (read_of, read) = decode(&out).unwrap();
            assert_eq!(read_of, repair);
            match (&read, &news) {
                (
                    News::HasEnded { ending: Err(read), .. },
                    News::HasEnded { ending: Err(words), .. },
                ) => assert!(words.starts_with(read.as_str()) && read.len() == WORDS_MAX),
                _ => assert_eq!(read, news),
            }
            let has_words = matches!(
                news,
                News::HasCompared { ending: Err(_), .. } | News::HasEnded { ending: Err(_), .. }
            );
            for length in 0..out.len() {
                // Words end where the message ends.
                assert!(decode(&out[..length]).is_err() || has_words, "{news:?} at {length}");
            }
            if !has_words {
                out.push(0);
                assert!(decode(&out).is_err(), "{news:?}");
            }
        }
    }

    #[test]
    fn too_many_ranges_and_unknown_numbers_are_refused() {
        let table = TableId(Uuid::nil());
        let ranges = |count: usize| (0..count as i64).map(|n| (Token(n), Token(n + 1)));
        let news =
            |count| News::Compares { session: Uuid::nil(), table, ranges: ranges(count).collect() };
        let mut out = Vec::new();
        encode(&mut out, Uuid::nil(), &news(RANGES_MAX + 1));
        let (_, read) = decode(&out).unwrap();
        assert_eq!(read, news(RANGES_MAX), "more are not sent");
        let mut out = vec![VERSION];
        out.put_bytes(Uuid::nil().as_bytes());
        out.put_u8(1);
        out.put_bytes(&[0; 32]);
        put_ranges(&mut out, &ranges(RANGES_MAX + 1).collect::<Vec<_>>());
        assert!(decode(&out).is_err());
        for (at, wrong) in [(0, VERSION + 1), (17, 9)] {
            let mut out = Vec::new();
            encode(&mut out, Uuid::nil(), &News::GoesOn);
            out[at] = wrong;
            assert!(decode(&out).is_err());
        }
    }

    #[test]
    fn ranges_of_several_sessions_ascend_and_are_apart() {
        let session = |ranges: &[(i64, i64)]| Session {
            others: Vec::new(),
            peers: Vec::new(),
            ranges: ranges
                .iter()
                .map(|(start, end)| TokenRange { start: Token(*start), end: Token(*end) })
                .collect(),
        };
        let sessions = [session(&[(5, 9), (20, 30)]), session(&[(0, 5), (8, 12)])];
        let expected = [(0, 5), (5, 12), (20, 30)].map(|(a, b)| (Token(a), Token(b)));
        assert_eq!(joined(sessions.iter()), expected);
    }
}
