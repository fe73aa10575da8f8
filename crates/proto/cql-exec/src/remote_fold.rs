//! Work of other nodes' shards on the rows of a SELECT, as bytes: `docs/formats/internode.md`, `Scan`.
//!
//! Owns: the parameters of a bound SELECT that another node needs beside the read. A fold is sent as text, and the
//! receiver plans it with its own schema. Values and clocks are sent as they were bound, so that all nodes compute
//! the same. Filters need no text. A node whose columns differ from the sender's refuses: see [`Shipped::decode`].

pub(crate) mod fuzz;

use std::sync::Arc;

use codec::{DecodeError, Reader, Writer};
use cql_plan::column_source::Source;
use cql_plan::select::{BoundFilters, BoundSelect, Filter, SelectPlan, Test};
use data::{RowFilter, RowFold};
use index_format::like::TOKENS_MAX;
use index_format::text::TextOptions;
use index_format::{Analysis, LikeKind, LikePattern, Tokens};
use schema::Table;
use stdx::{DeletionSeconds, WallMicros};

use crate::select::folding::Fold;
use crate::select::folding_state::{put_value, take_value};

const VERSION: u8 = 1;

const FOLD: u8 = 1;
const UNMASKED: u8 = 2;
const KEYSPACE: u8 = 4;
const PREPARED: u8 = 8;
const RESUMED: u8 = 16;

const EQ: u8 = 0;
const IN: u8 = 1;
const RANGE: u8 = 2;
const CONTAINS: u8 = 3;
const CONTAINS_KEY: u8 = 4;
const ENTRY: u8 = 5;
const ANALYZED: u8 = 6;
const LIKE: u8 = 7;

/// Options of analysed text.
const IGNORES_CASE: u8 = 1;
const NORMALIZES: u8 = 2;
const FOLDS_TO_ASCII: u8 = 4;
const UPPERCASES: u8 = 8;
/// Tokens: words, or the parts between a character that follows as u32.
const WORDS: u8 = 16;
const DELIMITED: u8 = 32;

const MATCHES: u8 = 0;
const PREFIX: u8 = 1;
const SUFFIX: u8 = 2;
const INSIDE: u8 = 3;

const START: u8 = 1;
const START_INCLUSIVE: u8 = 2;
const END: u8 = 4;
const END_INCLUSIVE: u8 = 8;

/// The statement that a fold is planned from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShippedText<'a> {
    /// Text of the statement, as the client wrote it.
    pub text: &'a str,
    /// Default keyspace of unqualified names.
    pub keyspace: Option<&'a str>,
    /// A client has prepared it.
    pub is_prepared: bool,
}

/// The work that another node sent, for a table.
#[derive(Debug)]
pub struct Shipped<'a> {
    now: DeletionSeconds,
    filters: Option<Arc<BoundFilters>>,
    fold: Option<ShippedFold<'a>>,
}

/// The rest, of a fold.
#[derive(Debug)]
struct ShippedFold<'a> {
    text: ShippedText<'a>,
    terms: Vec<Option<Vec<u8>>>,
    limit: u32,
    per_partition: u32,
    wall: WallMicros,
    protocol_version: u8,
    unmasked: bool,
    resumed: Option<(Vec<u8>, u32)>,
}

/// Appends the input of other nodes for [`BoundSelect::shard_filter`] or, with the text, for
/// [`crate::SelectFold::shard_fold`]. Returns false if it cannot be encoded.
pub(crate) fn ship(
    bound: &BoundSelect,
    plan: &SelectPlan,
    text: Option<ShippedText<'_>>,
    out: &mut Vec<u8>,
) -> bool {
    let table = plan.table();
    let (keyspace, prepared) = (text.and_then(|t| t.keyspace), text.map(|t| t.is_prepared));
    let flags = [
        (text.is_some(), FOLD),
        (bound.unmasked, UNMASKED),
        (keyspace.is_some(), KEYSPACE),
        (prepared == Some(true), PREPARED),
        (text.is_some() && bound.resumed.is_some(), RESUMED),
    ];
    out.put_u8(VERSION);
    out.put_u8(flags.iter().fold(0, |bits, (set, flag)| bits | if *set { *flag } else { 0 }));
    out.put_u64(digest(table));
    out.put_i64(bound.now.0);
    let filters = bound.filters.as_deref();
    let filters = || filters.into_iter().flat_map(|f| f.key.iter().chain(&f.statics).chain(&f.row));
    out.put_vint_unsigned(filters().count() as u64);
    for filter in filters() {
        let at = table.columns.iter().position(|c| Source::of(c) == filter.source);
        let Some(at) = at.and_then(|at| u16::try_from(at).ok()) else { return false };
        out.put_u16(at);
        put_test(filter.test(), out);
    }
    let Some(ShippedText { text, keyspace, .. }) = text else { return true };
    out.put_bytes_vint(text.as_bytes());
    if let Some(keyspace) = keyspace {
        out.put_bytes_vint(keyspace.as_bytes());
    }
    out.put_vint_unsigned(bound.terms.len() as u64);
    bound.terms.iter().for_each(|term| put_value(out, term.as_deref()));
    out.put_u32(bound.limit);
    out.put_u32(bound.per_partition);
    out.put_i64(bound.wall.0);
    out.put_u8(bound.protocol_version);
    if let Some((key, rows)) = &bound.resumed {
        out.put_bytes_vint(key);
        out.put_u32(*rows);
    }
    true
}

impl<'a> Shipped<'a> {
    /// Decodes the work for a table.
    ///
    /// # Errors
    /// The bytes are not of this version, or of a table with other columns.
    pub fn decode(bytes: &'a [u8], table: &Table) -> Result<Shipped<'a>, DecodeError> {
        let mut r = Reader::new(bytes, "work of a scan");
        let version = r.u8()?;
        if version != VERSION {
            return Err(r.invalid(i64::from(version)));
        }
        let flags = r.u8()?;
        let has = |flag: u8| flags & flag != 0;
        if flags & !(FOLD | UNMASKED | KEYSPACE | PREPARED | RESUMED) != 0 {
            return Err(r.invalid(i64::from(flags)));
        }
        let of_table = r.u64()?;
        if of_table != digest(table) {
            r.rename("work of a scan of a table with other columns");
            return Err(r.invalid(of_table.cast_signed()));
        }
        let now = DeletionSeconds(r.i64()?);
        let filters = take_filters(&mut r, table, now)?;
        if !has(FOLD) {
            r.finish()?;
            return Ok(Shipped { now, filters, fold: None });
        }
        let text = take_text(&mut r)?;
        let keyspace = if has(KEYSPACE) { Some(take_text(&mut r)?) } else { None };
        let count = take_count(&mut r)?;
        let terms = (0..count).map(|_| take_value(&mut r)).collect::<Result<Vec<_>, _>>()?;
        let (limit, per_partition) = (r.u32()?, r.u32()?);
        let (wall, protocol_version) = (WallMicros(r.i64()?), r.u8()?);
        let resumed = match has(RESUMED) {
            true => Some((r.bytes_vint()?.to_vec(), r.u32()?)),
            false => None,
        };
        r.finish()?;
        let fold = ShippedFold {
            text: ShippedText { text, keyspace, is_prepared: has(PREPARED) },
            terms,
            limit,
            per_partition,
            wall,
            protocol_version,
            unmasked: has(UNMASKED),
            resumed,
        };
        Ok(Shipped { now, filters, fold: Some(fold) })
    }

    /// Returns the statement to plan a fold from; `None`: rows are filtered.
    pub fn text(&self) -> Option<ShippedText<'a>> {
        self.fold.as_ref().map(|fold| fold.text)
    }

    /// The filter; `None`: there is no filter, or it is a fold.
    pub fn filter(self) -> Option<Arc<dyn RowFilter>> {
        let filters = self.filters.filter(|_| self.fold.is_none())?;
        Some(filters)
    }

    /// The fold, of the plan of its text; `None`: it is no fold, or this node would plan it
    /// otherwise than its sender.
    pub fn fold(self, plan: &SelectPlan, table: &Table) -> Option<Arc<dyn RowFold>> {
        let fold = self.fold?;
        let results = plan.results();
        let fits = plan.folds()
            && results.table.id == table.id
            && results.table.columns == table.columns
            && results.selection.terms.len() == fold.terms.len();
        let ShippedFold { terms, limit, per_partition, wall, protocol_version, .. } = fold;
        fits.then(|| -> Arc<dyn RowFold> {
            Arc::new(Fold {
                plan: results.clone(),
                filters: self.filters,
                terms,
                limit,
                per_partition,
                now: self.now,
                resumed: fold.resumed,
                unmasked: fold.unmasked,
                wall,
                protocol_version,
            })
        })
    }
}

/// Returns a digest of everything in a table that plans depend on: names, kinds, ids and types of
/// its columns, and their masks.
fn digest(table: &Table) -> u64 {
    let Table { id, kind, columns, masks, .. } = table;
    codec::xxh3_64(format!("{id:?} {kind:?} {columns:?} {masks:?}").as_bytes())
}

fn put_test(test: &Test, out: &mut Vec<u8>) {
    match test {
        Test::Eq(value) => {
            out.put_u8(EQ);
            out.put_bytes_vint(value);
        }
        Test::In(values) => {
            out.put_u8(IN);
            out.put_vint_unsigned(values.len() as u64);
            values.iter().for_each(|value| out.put_bytes_vint(value));
        }
        Test::Range { start, end } => {
            let flags = |limit: &Option<(Vec<u8>, bool)>, there: u8, inclusive: u8| match limit {
                None => 0,
                Some((_, is_inclusive)) => there | if *is_inclusive { inclusive } else { 0 },
            };
            out.put_u8(RANGE);
            out.put_u8(flags(start, START, START_INCLUSIVE) | flags(end, END, END_INCLUSIVE));
            start.iter().chain(end).for_each(|(value, _)| out.put_bytes_vint(value));
        }
        Test::Contains(value) => {
            out.put_u8(CONTAINS);
            out.put_bytes_vint(value);
        }
        Test::ContainsKey(value) => {
            out.put_u8(CONTAINS_KEY);
            out.put_bytes_vint(value);
        }
        Test::Entry(key, value) => {
            out.put_u8(ENTRY);
            out.put_bytes_vint(key);
            out.put_bytes_vint(value);
        }
        Test::Analyzed(options, test) => {
            out.put_u8(ANALYZED);
            put_analysis(*options, out);
            put_test(test, out);
        }
        Test::Like(LikePattern { kind, analysis, parts }) => {
            out.put_u8(LIKE);
            out.put_u8(match kind {
                LikeKind::Matches => MATCHES,
                LikeKind::Prefix => PREFIX,
                LikeKind::Suffix => SUFFIX,
                LikeKind::Contains => INSIDE,
            });
            put_analysis(*analysis, out);
            out.put_vint_unsigned(parts.len() as u64);
            parts.iter().for_each(|part| out.put_bytes_vint(part));
        }
    }
}

fn put_analysis(analysis: Analysis, out: &mut Vec<u8>) {
    let Analysis { text, uppercases, tokens } = analysis;
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let flags = flag(text.ignores_case, IGNORES_CASE)
        | flag(text.normalizes, NORMALIZES)
        | flag(text.folds_to_ascii, FOLDS_TO_ASCII)
        | flag(uppercases, UPPERCASES);
    match tokens {
        Tokens::Whole => out.put_u8(flags),
        Tokens::Words => out.put_u8(flags | WORDS),
        Tokens::Delimited(delimiter) => {
            out.put_u8(flags | DELIMITED);
            out.put_u32(delimiter.into());
        }
    }
}

fn take_analysis(r: &mut Reader<'_>) -> Result<Analysis, DecodeError> {
    let flags = r.u8()?;
    let has = |flag: u8| flags & flag != 0;
    let tokens = match (has(WORDS), has(DELIMITED)) {
        (false, false) => Tokens::Whole,
        (true, false) => Tokens::Words,
        (false, true) => {
            let delimiter = r.u32()?;
            let character = char::from_u32(delimiter);
            Tokens::Delimited(character.ok_or_else(|| r.invalid(i64::from(delimiter)))?)
        }
        (true, true) => return Err(r.invalid(i64::from(flags))),
    };
    if flags > DELIMITED | (UPPERCASES | IGNORES_CASE | NORMALIZES | FOLDS_TO_ASCII) {
        return Err(r.invalid(i64::from(flags)));
    }
    let text = TextOptions {
        ignores_case: has(IGNORES_CASE),
        normalizes: has(NORMALIZES),
        folds_to_ascii: has(FOLDS_TO_ASCII),
    };
    Ok(Analysis { text, uppercases: has(UPPERCASES), tokens })
}

fn take_like(r: &mut Reader<'_>) -> Result<Test, DecodeError> {
    let kind = match r.u8()? {
        MATCHES => LikeKind::Matches,
        PREFIX => LikeKind::Prefix,
        SUFFIX => LikeKind::Suffix,
        INSIDE => LikeKind::Contains,
        other => return Err(r.invalid(i64::from(other))),
    };
    let analysis = take_analysis(r)?;
    let count = take_count(r)?;
    if count > TOKENS_MAX {
        return Err(r.invalid(i64::try_from(count).unwrap_or(i64::MAX)));
    }
    let parts = (0..count).map(|_| r.bytes_vint().map(<[u8]>::to_vec));
    Ok(Test::Like(LikePattern { kind, analysis, parts: parts.collect::<Result<_, _>>()? }))
}

/// A test whose text is changed: its options, then the test, which is of one value.
fn take_analyzed(r: &mut Reader<'_>) -> Result<Test, DecodeError> {
    let options = take_analysis(r)?;
    if options.is_plain() {
        return Err(r.invalid(0));
    }
    let kind = r.u8()?;
    let value = r.bytes_vint()?.to_vec();
    let test = match kind {
        EQ => Test::Eq(value),
        CONTAINS => Test::Contains(value),
        CONTAINS_KEY => Test::ContainsKey(value),
        other => return Err(r.invalid(i64::from(other))),
    };
    Ok(Test::Analyzed(options, Box::new(test)))
}

fn take_test(r: &mut Reader<'_>) -> Result<Test, DecodeError> {
    let value = |r: &mut Reader<'_>| r.bytes_vint().map(<[u8]>::to_vec);
    Ok(match r.u8()? {
        EQ => Test::Eq(value(r)?),
        IN => {
            let count = take_count(r)?;
            Test::In((0..count).map(|_| value(r)).collect::<Result<_, _>>()?)
        }
        RANGE => {
            let flags = r.u8()?;
            let is_wrong = |there: u8, inclusive: u8| flags & (there | inclusive) == inclusive;
            if flags > 15 || is_wrong(START, START_INCLUSIVE) || is_wrong(END, END_INCLUSIVE) {
                return Err(r.invalid(i64::from(flags)));
            }
            let mut limit = |there: u8, inclusive: u8| match flags & there {
                0 => Ok(None),
                _ => Ok(Some((value(r)?, flags & inclusive != 0))),
            };
            let start = limit(START, START_INCLUSIVE)?;
            Test::Range { start, end: limit(END, END_INCLUSIVE)? }
        }
        CONTAINS => Test::Contains(value(r)?),
        CONTAINS_KEY => Test::ContainsKey(value(r)?),
        ENTRY => Test::Entry(value(r)?, value(r)?),
        ANALYZED => take_analyzed(r)?,
        LIKE => take_like(r)?,
        other => return Err(r.invalid(i64::from(other))),
    })
}

fn take_filters(
    r: &mut Reader<'_>,
    table: &Table,
    now: DeletionSeconds,
) -> Result<Option<Arc<BoundFilters>>, DecodeError> {
    let count = take_count(r)?;
    let mut filters = Vec::with_capacity(count);
    for _ in 0..count {
        let at = r.u16()?;
        let column = table.columns.get(usize::from(at)).ok_or_else(|| r.invalid(i64::from(at)))?;
        filters.push(Filter::new(column, take_test(r)?));
    }
    let key_columns = table.partition_key_count;
    Ok((count > 0).then(|| Arc::new(BoundFilters::new(filters, key_columns, now))))
}

/// A count of things that take a byte at least.
fn take_count(r: &mut Reader<'_>) -> Result<usize, DecodeError> {
    let count = r.vint_len()?;
    r.check_count(count, 1)
}

fn take_text<'a>(r: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    let length = r.vint_len()?;
    r.utf8(length)
}
