//! Values into a planned WHERE clause: partition keys, ring ranges, slices and filters.
//!
//! Owns: the order of partition keys (by value, as Cassandra's), slices ascending and disjoint
//! ([`data::Slices`]), one filter per restriction that keys and slices do not answer.
//!
//! Source: `MultiCBuilder`, `MultiColumnRestriction`,
//! `StatementRestrictions.getPartitionKeyBounds`.

use std::cmp::Ordering;

use data::clustering::push_component;
use data::command::{KeyRange, Partitions, RingBound};
use data::{ClusteringComparator, Slice, Slices};
use schema::{Column, ColumnKind, Table};
use smallvec::SmallVec;
use stdx::Token;
use types::Comparator;
use types::wire::{CollectionKind, Elements, Fields};

use super::filter::{Filter, Test};
use super::index::like::{self, LikeIndexes};
use super::restrictions::{
    Condition, InRows, Limit, Restriction, Restrictions, Row, TokenCondition, TokenLimit,
};
use crate::error::PlanError;
use crate::expansion::Combinations;
use crate::slices::{half_space, intersect, ordered};
use crate::term::{PlannedTerm, invalid_value};
use crate::values::{BindEnv, Bound, BoundValue};

/// Most combinations of the values of several IN restrictions that one statement may ask for. Each
/// costs a key or slice in memory before anything is read. The values of one restriction alone are
/// no more than the request has.
pub(crate) const IN_COMBINATIONS_MAX: usize = 65_536;

/// Longest partition key, as the commit log and SSTables store its length in 16 bits.
const KEY_BYTES_MAX: usize = 65_535;

/// A value, or null.
type Value = Option<Vec<u8>>;

/// Inputs of binding.
pub(crate) struct Values<'v> {
    pub(crate) table: &'v Table,
    pub(crate) values: &'v [BoundValue<'v>],
    pub(crate) env: &'v BindEnv<'v>,
}

impl<'v> Values<'v> {
    fn column(&self, index: usize) -> Result<&'v Column, PlanError> {
        self.table
            .columns
            .get(index)
            .ok_or_else(|| PlanError::invalid("a column of the statement is gone"))
    }

    fn bind(&self, term: &'v PlannedTerm) -> Result<Bound<'v>, PlanError> {
        term.bind(self.values, self.env)
    }

    /// One value per column; null is `None`, unset is refused.
    fn row(&self, row: &'v Row, restriction: &Restriction) -> Result<Vec<Value>, PlanError> {
        match row {
            Row::Each(terms) => {
                let mut out = Vec::with_capacity(terms.len());
                for (i, term) in terms.iter().enumerate() {
                    let value = match self.bind(term)? {
                        Bound::Value(bytes) => Some(bytes.into_owned()),
                        Bound::Null => None,
                        Bound::Unset if restriction.multi => {
                            return Err(PlanError::invalid(format!(
                                "Invalid unset value for tuple field number {i}"
                            )));
                        }
                        Bound::Unset => return Err(self.unset(restriction.first)?),
                    };
                    out.push(value);
                }
                Ok(out)
            }
            Row::Packed(term) => match self.bind(term)? {
                Bound::Value(bytes) => tuple(&bytes, restriction.count),
                Bound::Null => Err(PlanError::invalid(format!(
                    "Invalid null value in condition for columns: {}",
                    self.names(restriction)
                ))),
                Bound::Unset => Err(PlanError::invalid(format!(
                    "Invalid unset value for tuple {}",
                    self.names(restriction)
                ))),
            },
        }
    }

    /// The rows of an equality (one) or IN.
    fn rows(&self, restriction: &'v Restriction) -> Result<Vec<Vec<Value>>, PlanError> {
        match &restriction.condition {
            Condition::Eq(row) => Ok(vec![self.row(row, restriction)?]),
            Condition::In(InRows::List(rows)) => {
                let all = rows.iter().map(|row| self.row(row, restriction));
                all.collect::<Result<_, _>>().map_err(|error| self.wrong(rows).unwrap_or(error))
            }
            Condition::In(InRows::Marker(term, tuple_type)) => {
                // A null inside the list is a null value of the column.
                if tuple_type.is_none() && self.has_null_element(term) {
                    return Err(self.null(restriction.first)?);
                }
                let bytes = match self.bind(term)? {
                    Bound::Value(bytes) => bytes,
                    Bound::Null if tuple_type.is_some() => {
                        return Err(PlanError::invalid("Invalid null value for IN restriction"));
                    }
                    Bound::Unset if tuple_type.is_some() => {
                        return Err(PlanError::invalid(format!(
                            "Invalid unset value for in{}",
                            self.names(restriction)
                        )));
                    }
                    Bound::Null => {
                        return Err(PlanError::invalid(format!(
                            "Invalid null value for column {}",
                            self.column(restriction.first)?.name
                        )));
                    }
                    Bound::Unset => return Err(self.unset(restriction.first)?),
                };
                let (mut out, mut size) = (Vec::new(), Combinations::new());
                for element in Elements::new(&bytes, CollectionKind::List).map_err(invalid_value)? {
                    let element = element.map_err(invalid_value)?;
                    size.add(element.map_or(0, <[u8]>::len))?;
                    out.push(match (tuple_type, element) {
                        (None, element) => vec![element.map(<[u8]>::to_vec)],
                        (Some(_), Some(bytes)) => tuple(bytes, restriction.count)?,
                        (Some(_), None) => vec![None; restriction.count],
                    });
                }
                Ok(out)
            }
            Condition::Slice { .. }
            | Condition::Contains { .. }
            | Condition::Like(..)
            | Condition::Analyzed(..) => Ok(Vec::new()),
        }
    }

    /// Returns the error of the first value that does not fit its type. It is reported before null
    /// and unset values.
    #[cold]
    fn wrong(&self, rows: &'v [Row]) -> Option<PlanError> {
        let terms = rows.iter().flat_map(|row| match row {
            Row::Each(terms) => terms.as_slice(),
            Row::Packed(term) => std::slice::from_ref(term),
        });
        terms.into_iter().find_map(|term| self.bind(term).err())
    }

    /// Returns true if the list that a marker is bound to has a null element.
    fn has_null_element(&self, term: &PlannedTerm) -> bool {
        let PlannedTerm::Bind { index, .. } = term else { return false };
        let Some(BoundValue::Bytes(bytes)) = self.values.get(usize::from(*index)) else {
            return false;
        };
        Elements::new(bytes, CollectionKind::List)
            .is_ok_and(|mut elements| elements.any(|element| element == Ok(None)))
    }

    fn unset(&self, column: usize) -> Result<PlanError, PlanError> {
        let name = &self.column(column)?.name;
        Ok(PlanError::invalid(format!("Invalid unset value for column {name}")))
    }

    fn null(&self, column: usize) -> Result<PlanError, PlanError> {
        let name = &self.column(column)?.name;
        Ok(PlanError::invalid(format!("Invalid null value in condition for column {name}")))
    }

    fn names(&self, restriction: &Restriction) -> String {
        let columns = self
            .table
            .columns
            .get(restriction.first..restriction.first + restriction.count)
            .unwrap_or(&[]);
        let names: Vec<&str> = columns.iter().map(|c| &*c.name).collect();
        format!("({})", names.join(", "))
    }
}

fn tuple(bytes: &[u8], count: usize) -> Result<Vec<Value>, PlanError> {
    Fields::new(bytes, count)
        .map(|field| Ok(field.map_err(invalid_value)?.map(<[u8]>::to_vec)))
        .collect()
}

/// The serialised partition keys, ascending by value, without doubles.
pub(crate) fn partition_keys(
    restrictions: &Restrictions,
    v: &Values<'_>,
) -> Result<SmallVec<[Vec<u8>; 1]>, PlanError> {
    let composite = v.table.partition_key_count > 1;
    let mut keys: SmallVec<[Vec<u8>; 1]> = SmallVec::new();
    // Fast path of nearly every read: each column has one value.
    if let [Restriction { condition: Condition::Eq(Row::Each(terms)), first, .. }] =
        restrictions.partition.as_slice()
        && let [term] = terms.as_slice()
        && !composite
    {
        match v.bind(term)? {
            Bound::Value(bytes) => keys.push(bytes.into_owned()),
            Bound::Null => return Err(v.null(*first)?),
            Bound::Unset => return Err(v.unset(*first)?),
        }
        return filter_by_token(restrictions, v, keys);
    }
    keys.push(Vec::new());
    for restriction in &restrictions.partition {
        let column = v.column(restriction.first)?;
        let mut values = Vec::new();
        for row in v.rows(restriction)? {
            match row.into_iter().next().flatten() {
                Some(value) if value.len() > KEY_BYTES_MAX => return Err(long_key(value.len())),
                Some(value) => values.push(value),
                None => return Err(v.null(restriction.first)?),
            }
        }
        if values.len() > 1 {
            let comparator = Comparator::for_type(&column.ty);
            values.sort_by(|a, b| comparator.compare(a, b));
            values.dedup();
        }
        check_combinations(keys.len(), values.len())?;
        if let Some(watch) = v.env.watch.filter(|_| restrictions.key_is_in()) {
            watch.combinations("partition key", keys.len() * values.len())?;
        }
        let mut next = SmallVec::with_capacity(keys.len() * values.len());
        let mut size = Combinations::new();
        for key in &keys {
            for value in &values {
                size.add(key.len() + value.len())?;
                let mut key = key.clone();
                if composite {
                    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
                    key.extend_from_slice(&length.to_be_bytes());
                    key.extend_from_slice(value);
                    key.push(0);
                } else {
                    key.extend_from_slice(value);
                }
                next.push(key);
            }
        }
        keys = next;
    }
    filter_by_token(restrictions, v, keys)
}

/// Keys that no partition can have.
pub(crate) fn check_keys(keys: &[Vec<u8>]) -> Result<(), PlanError> {
    for key in keys {
        if key.is_empty() {
            return Err(PlanError::invalid("Key may not be empty"));
        }
        if key.len() > KEY_BYTES_MAX {
            return Err(long_key(key.len()));
        }
    }
    Ok(())
}

fn long_key(length: usize) -> PlanError {
    PlanError::invalid(format!("Key length of {length} is longer than maximum of {KEY_BYTES_MAX}"))
}

fn check_combinations(a: usize, b: usize) -> Result<(), PlanError> {
    if a <= 1 || b <= 1 || a.saturating_mul(b) <= IN_COMBINATIONS_MAX {
        return Ok(());
    }
    Err(PlanError::invalid(format!(
        "the IN restrictions ask for more than {IN_COMBINATIONS_MAX} combinations of values"
    )))
}

/// `token(k) > x AND k IN (…)`: the token relation only picks keys.
fn filter_by_token(
    restrictions: &Restrictions,
    v: &Values<'_>,
    mut keys: SmallVec<[Vec<u8>; 1]>,
) -> Result<SmallVec<[Vec<u8>; 1]>, PlanError> {
    let Some(condition) = &restrictions.token else { return Ok(keys) };
    let (start, end) = token_limits(condition, v)?;
    let after_start = |token: Token| match start {
        None => true,
        Some((limit, inclusive)) => token > limit || (inclusive && token == limit),
    };
    let before_end = |token: Token| match end {
        None => true,
        Some((limit, inclusive)) => token < limit || (inclusive && token == limit),
    };
    // Crossed bounds mean the two ends of the ring here (`TokenFilter.toRangeSet`).
    let crossed = matches!((start, end), (Some((s, _)), Some((e, _))) if s > e);
    keys.retain(|key| {
        let token = codec::token_of(key);
        if crossed {
            after_start(token) || before_end(token)
        } else {
            after_start(token) && before_end(token)
        }
    });
    Ok(keys)
}

type TokenSide = Option<(Token, bool)>;

fn token_limits(
    condition: &TokenCondition,
    v: &Values<'_>,
) -> Result<(TokenSide, TokenSide), PlanError> {
    let token = |term: &PlannedTerm| -> Result<Token, PlanError> {
        match term.bind(v.values, v.env)? {
            Bound::Value(bytes) => match <[u8; 8]>::try_from(&*bytes) {
                Ok(bytes) => Ok(Token(i64::from_be_bytes(bytes))),
                Err(_) => Err(PlanError::invalid("Invalid null token value")),
            },
            Bound::Null => Err(PlanError::invalid("Invalid null token value")),
            Bound::Unset => Err(PlanError::invalid("Invalid unset value for partition key token")),
        }
    };
    let side = |limit: &Option<TokenLimit>| -> Result<TokenSide, PlanError> {
        limit.as_ref().map(|l| Ok((token(&l.term)?, l.inclusive))).transpose()
    };
    match condition {
        TokenCondition::Eq(term) => {
            let token = token(term)?;
            Ok((Some((token, true)), Some((token, true))))
        }
        TokenCondition::Slice { start, end } => Ok((side(start)?, side(end)?)),
    }
}

/// The part of the ring a scan goes over; `None` when nothing can be in it.
pub(crate) fn key_range(
    restrictions: &Restrictions,
    v: &Values<'_>,
) -> Result<Option<Partitions>, PlanError> {
    let mut range = KeyRange::all();
    if let Some(condition) = &restrictions.token {
        let (start, end) = token_limits(condition, v)?;
        // The minimum token is no key's: as an end it means the end of the ring.
        let end = end.filter(|(token, _)| *token != Token::MIN);
        if let (Some((s, s_in)), Some((e, e_in))) = (start, end)
            && s != Token::MIN
            && (s > e || (s == e && !(s_in && e_in)))
        {
            return Ok(None);
        }
        if let Some((token, inclusive)) = start {
            range.start = RingBound::Token { token, after: !inclusive };
        }
        if let Some((token, inclusive)) = end {
            range.end = RingBound::Token { token, after: inclusive };
        }
    }
    Ok(Some(Partitions::Range(range)))
}

/// The slices of the clustering restrictions, ascending and disjoint.
pub(crate) fn slices(
    restrictions: &Restrictions,
    v: &Values<'_>,
    comparator: &ClusteringComparator,
) -> Result<Slices, PlanError> {
    if restrictions.clustering.is_empty() {
        return Ok(Slices::all());
    }
    let mut prefixes: Vec<Vec<u8>> = vec![Vec::new()];
    let has_in = restrictions.clustering.iter().any(Restriction::is_in);
    let sliced = restrictions.clustering.iter().zip(&restrictions.clustering_sliced);
    for (restriction, _) in sliced.filter(|(_, sliced)| **sliced) {
        if let Condition::Slice { start, end } = &restriction.condition {
            let mut out = Vec::new();
            let mut size = Combinations::new();
            for prefix in &prefixes {
                size.add(prefix.len().saturating_mul(2))?;
                slice_pieces(
                    restriction,
                    start.as_ref(),
                    end.as_ref(),
                    prefix,
                    v,
                    comparator,
                    &mut out,
                )?;
            }
            return Ok(ordered(out, comparator));
        }
        let rows = v.rows(restriction)?;
        for row in &rows {
            if let Some(null) = row.iter().position(Option::is_none) {
                return Err(null_in_row(restriction, null, v)?);
            }
        }
        check_combinations(prefixes.len(), rows.len())?;
        if let Some(watch) = v.env.watch.filter(|_| has_in) {
            watch.combinations("clustering key", prefixes.len() * rows.len())?;
        }
        let mut next = Vec::with_capacity(prefixes.len() * rows.len());
        let mut size = Combinations::new();
        for prefix in &prefixes {
            for row in &rows {
                let values = row.iter().flatten().map(|value| value.len() + 4);
                size.add(values.fold(prefix.len(), usize::saturating_add))?;
                let mut prefix = prefix.clone();
                for value in row {
                    push_component(&mut prefix, value.as_deref());
                }
                next.push(prefix);
            }
        }
        if next.len() > 1 {
            next.sort_by(|a, b| comparator.compare(a, b));
            next.dedup_by(|a, b| comparator.compare(a, b) == Ordering::Equal);
        }
        prefixes = next;
    }
    Ok(Slices(prefixes.into_iter().map(Slice::prefix).collect()))
}

#[cold]
fn null_in_row(
    restriction: &Restriction,
    null: usize,
    v: &Values<'_>,
) -> Result<PlanError, PlanError> {
    if restriction.multi && restriction.is_in() {
        let names = v.names(restriction);
        let names = names.trim_matches(['(', ')']);
        return Ok(PlanError::invalid(format!(
            "Invalid null value in condition for columns: [{names}]"
        )));
    }
    if restriction.multi {
        let column = v.column(restriction.first + null)?;
        let name = &column.name;
        return Ok(PlanError::invalid(format!("Invalid null value for column {name}")));
    }
    v.null(restriction.first)
}

/// Slices below one prefix: those above `start` cut with those below `end`.
fn slice_pieces<'v>(
    restriction: &'v Restriction,
    start: Option<&'v Limit>,
    end: Option<&'v Limit>,
    prefix: &[u8],
    v: &Values<'v>,
    comparator: &ClusteringComparator,
    out: &mut Vec<Slice>,
) -> Result<(), PlanError> {
    let mut sides: [Option<Vec<Slice>>; 2] = [None, None];
    for (side, (limit, greater)) in sides.iter_mut().zip([(start, true), (end, false)]) {
        let Some(limit) = limit else { continue };
        let count = match &limit.row {
            Row::Each(terms) => terms.len(),
            Row::Packed(_) => restriction.count,
        };
        let row = v.row(&limit.row, &Restriction { count, ..restriction.clone_shape() })?;
        let mut reversed = Vec::with_capacity(count);
        for (index, value) in row.iter().enumerate() {
            let column = v.column(restriction.first + index)?;
            // One column may be compared to null, which is less than every value.
            if restriction.multi && value.is_none() {
                return Err(v.null(restriction.first + index)?);
            }
            reversed.push(matches!(column.kind, ColumnKind::Clustering { reversed: true, .. }));
        }
        *side = Some(half_space(prefix, &row, &reversed, greater, limit.inclusive));
    }
    match sides {
        [Some(lower), Some(upper)] => {
            for a in &lower {
                for b in &upper {
                    out.push(intersect(a, b, comparator));
                }
            }
        }
        [Some(side), None] | [None, Some(side)] => out.extend(side),
        [None, None] => out.push(Slice::prefix(prefix.to_vec())),
    }
    Ok(())
}

impl Restriction {
    /// The same columns without the condition's values.
    fn clone_shape(&self) -> Restriction {
        Restriction {
            first: self.first,
            count: self.count,
            multi: self.multi,
            condition: Condition::Slice { start: None, end: None },
        }
    }
}

/// The filters of everything that keys and slices do not answer.
pub(crate) fn filters(
    restrictions: &Restrictions,
    v: &Values<'_>,
) -> Result<Vec<Filter>, PlanError> {
    let mut out = Vec::new();
    if restrictions.filters_partition_key {
        for restriction in &restrictions.partition {
            add_filter(restriction, v, &mut out)?;
        }
    }
    let clustering = restrictions.clustering.iter().zip(&restrictions.clustering_filtered);
    for (restriction, _) in clustering.filter(|(_, filtered)| **filtered) {
        add_filter(restriction, v, &mut out)?;
    }
    for restriction in &restrictions.other {
        add_filter(restriction, v, &mut out)?;
    }
    Ok(out)
}

fn add_filter<'v>(
    restriction: &'v Restriction,
    v: &Values<'v>,
    out: &mut Vec<Filter>,
) -> Result<(), PlanError> {
    add_condition(&restriction.condition, restriction, v, out)
}

/// Adds the filters of a condition on the columns of a restriction.
fn add_condition<'v>(
    condition: &'v Condition,
    restriction: &'v Restriction,
    v: &Values<'v>,
    out: &mut Vec<Filter>,
) -> Result<(), PlanError> {
    let column = v.column(restriction.first)?;
    let value = |term: &'v PlannedTerm| match v.bind(term)? {
        Bound::Value(bytes) => Ok(bytes.into_owned()),
        Bound::Null => Err(unsupported("null", column)),
        Bound::Unset => Err(unsupported("unset", column)),
    };
    match condition {
        Condition::Eq(Row::Each(terms)) if !restriction.multi => {
            for term in terms {
                out.push(Filter::new(column, Test::Eq(value(term)?)));
            }
        }
        Condition::Eq(row) => {
            for (index, value) in v.row(row, restriction)?.into_iter().enumerate() {
                let column = v.column(restriction.first + index)?;
                let value = value.ok_or_else(|| unsupported("null", column))?;
                out.push(Filter::new(column, Test::Eq(value)));
            }
        }
        Condition::In(_) => {
            let rows = v.rows(restriction)?;
            // Behind a null Cassandra finds no values any more.
            let values = rows.into_iter().map_while(|row| row.into_iter().next().flatten());
            out.push(Filter::new(column, Test::In(values.collect())));
        }
        Condition::Slice { start, end } => {
            let limit = |limit: &'v Option<Limit>| -> Result<Option<(Vec<u8>, bool)>, PlanError> {
                let Some(limit) = limit else { return Ok(None) };
                if let (Row::Each(terms), false) = (&limit.row, restriction.multi)
                    && let [term] = terms.as_slice()
                {
                    return Ok(Some((value(term)?, limit.inclusive)));
                }
                let value = v.row(&limit.row, restriction)?.into_iter().next().flatten();
                Ok(Some((value.ok_or_else(|| unsupported("null", column))?, limit.inclusive)))
            };
            out.push(Filter::new(column, Test::Range { start: limit(start)?, end: limit(end)? }));
        }
        Condition::Contains { values, keys, entries } => {
            for term in values {
                out.push(Filter::new(column, Test::Contains(value(term)?)));
            }
            for term in keys {
                out.push(Filter::new(column, Test::ContainsKey(value(term)?)));
            }
            for (key, entry) in entries {
                let key = entry_part(v, key, "key", column)?;
                let entry = entry_part(v, entry, "value", column)?;
                out.push(Filter::new(column, Test::Entry(key, entry)));
            }
        }
        Condition::Like(term, indexes) => {
            out.push(Filter::new(column, like_test(term, indexes, v, column)?));
        }
        Condition::Analyzed(options, condition) => {
            let first = out.len();
            add_condition(condition, restriction, v, out)?;
            let plain = out.split_off(first);
            out.extend(plain.into_iter().map(|filter| filter.analyzed(*options)));
        }
    }
    Ok(())
}

fn like_test<'v>(
    term: &'v PlannedTerm,
    indexes: &LikeIndexes,
    v: &Values<'v>,
    column: &Column,
) -> Result<Test, PlanError> {
    let bound = match v.bind(term)? {
        Bound::Value(bytes) => bytes,
        Bound::Null => return Err(unsupported("null", column)),
        Bound::Unset => return Err(like::empty()),
    };
    let (_, pattern) = indexes.pattern(&column.name, &bound)?;
    Ok(Test::Like(pattern))
}

/// The key or the value of an entry of a map.
fn entry_part<'v>(
    v: &Values<'v>,
    term: &'v PlannedTerm,
    part: &str,
    column: &Column,
) -> Result<Vec<u8>, PlanError> {
    let what = match v.bind(term)? {
        Bound::Value(bytes) => return Ok(bytes.into_owned()),
        Bound::Null => "null",
        Bound::Unset => "unset",
    };
    Err(PlanError::invalid(format!("Unsupported {what} map {part} for column {}", column.name)))
}

fn unsupported(what: &str, column: &Column) -> PlanError {
    PlanError::invalid(format!("Unsupported {what} value for column {}", column.name))
}
