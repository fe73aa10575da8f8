//! Conditions that are checked row by row (ALLOW FILTERING).
//!
//! They are checked where rows lie, by the shards that read them ([`RowFilter`]), and again where the rows of
//! all shards come together: what another node sends was not filtered.

use std::borrow::Cow;
use std::cmp::Ordering;

use data::{ColumnRef, ComplexRef, RowFilter, RowRef};
use index_format::{Analysis, IndexPredicate, LikePattern};
use schema::Column;
use stdx::DeletionSeconds;
use types::wire::{CollectionKind, Elements, Entries};
use types::{Comparator, CqlType};

use crate::column_source::Source;

/// Test of one column's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// Equal to a value.
    Eq(Vec<u8>),
    /// Equal to one of them.
    In(Vec<Vec<u8>>),
    /// Bounds, each with a flag that is true if it is inclusive.
    Range {
        /// Lower bound.
        start: Option<(Vec<u8>, bool)>,
        /// Upper bound.
        end: Option<(Vec<u8>, bool)>,
    },
    /// A collection with that element or value.
    Contains(Vec<u8>),
    /// A map with that key.
    ContainsKey(Vec<u8>),
    /// A map with that key and value.
    Entry(Vec<u8>, Vec<u8>),
    /// Like a pattern.
    Like(LikePattern),
    /// The inner test, of text that is changed as an index changes it. The values of the test are
    /// changed already.
    Analyzed(Analysis, Box<Test>),
}

impl Test {
    /// The test on text that is changed by these options.
    fn analyzed(self, options: Analysis) -> Test {
        let change = |value: Vec<u8>| changed(options, &value).into_owned();
        let test = match self {
            Test::Eq(value) => Test::Eq(change(value)),
            Test::Contains(value) => Test::Contains(change(value)),
            Test::ContainsKey(value) => Test::ContainsKey(change(value)),
            other => return other,
        };
        Test::Analyzed(options, Box::new(test))
    }
}

/// Text as an index with these options has it; what is no text stays as it is.
fn changed(options: Analysis, value: &[u8]) -> Cow<'_, [u8]> {
    match std::str::from_utf8(value) {
        Ok(text) => {
            let mut out = Vec::with_capacity(value.len());
            options.filter(text, &mut out);
            Cow::Owned(out)
        }
        Err(_) => Cow::Borrowed(value),
    }
}

/// One condition on one column.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The column.
    pub source: Source,
    ty: CqlType,
    /// Order of values, or of the elements of a collection.
    order: Comparator,
    /// Order of map values for [`Test::Entry`].
    values: Comparator,
    test: Test,
}

impl Filter {
    /// A condition on a column.
    pub fn new(column: &Column, test: Test) -> Filter {
        let of = |ty: &CqlType| Comparator::for_type(ty);
        let (order, values) = match (&column.ty, &test) {
            (CqlType::Map { value, .. }, Test::Contains(_)) => (of(value), of(value)),
            (CqlType::Map { key, value, .. }, Test::ContainsKey(_) | Test::Entry(..)) => {
                (of(key), of(value))
            }
            (
                CqlType::List { element, .. } | CqlType::Set { element, .. },
                Test::Contains(_) | Test::ContainsKey(_),
            ) => (of(element), of(element)),
            (ty, _) => (of(ty), of(ty)),
        };
        Filter { source: Source::of(column), ty: column.ty.clone(), order, values, test }
    }

    /// The filter on text that is changed by these options, as an index with them compares it.
    pub fn analyzed(self, options: Analysis) -> Filter {
        Filter { test: self.test.analyzed(options), ..self }
    }

    /// Returns the test.
    pub fn test(&self) -> &Test {
        &self.test
    }

    /// Returns true if the filter is on this column.
    pub fn is_on(&self, column: &Column) -> bool {
        self.source == Source::of(column)
    }

    /// Returns true if a value of one cell passes; null never does.
    #[inline]
    pub fn accepts(&self, value: Option<&[u8]>) -> bool {
        let Some(value) = value else { return false };
        let equal = |wanted: &[u8]| self.order.compare(value, wanted) == Ordering::Equal;
        match &self.test {
            Test::Eq(wanted) => equal(wanted),
            Test::In(wanted) => wanted.iter().any(|w| equal(w)),
            Test::Range { start, end } => {
                let above = start.as_ref().is_none_or(|(limit, inclusive)| {
                    match self.order.compare(value, limit) {
                        Ordering::Greater => true,
                        Ordering::Equal => *inclusive,
                        Ordering::Less => false,
                    }
                });
                let below = end.as_ref().is_none_or(|(limit, inclusive)| {
                    match self.order.compare(value, limit) {
                        Ordering::Less => true,
                        Ordering::Equal => *inclusive,
                        Ordering::Greater => false,
                    }
                });
                above && below
            }
            Test::Contains(_) | Test::ContainsKey(_) | Test::Entry(..) => {
                self.frozen_contains(value)
            }
            Test::Like(pattern) => pattern.accepts(value),
            Test::Analyzed(options, test) => match &**test {
                Test::Eq(wanted) => *changed(*options, value) == **wanted,
                _ => self.frozen_contains(value),
            },
        }
    }

    fn frozen_contains(&self, value: &[u8]) -> bool {
        match &self.ty {
            CqlType::Map { .. } => Entries::new(value).is_ok_and(|mut entries| {
                entries.any(|e| e.is_ok_and(|(key, value)| self.entry(key, value)))
            }),
            CqlType::Set { .. } => contains(value, CollectionKind::Set, |e| self.entry(e, e)),
            _ => contains(value, CollectionKind::List, |e| self.entry(e, e)),
        }
    }

    /// Returns true if one entry matches (lists and sets pass the element twice).
    fn entry(&self, key: &[u8], value: &[u8]) -> bool {
        let equal = |a: &[u8], b: &[u8]| self.order.compare(a, b) == Ordering::Equal;
        match &self.test {
            Test::Contains(wanted) => equal(value, wanted),
            Test::ContainsKey(wanted) => equal(key, wanted),
            Test::Entry(wanted, entry) => {
                equal(key, wanted) && self.values.compare(value, entry) == Ordering::Equal
            }
            Test::Analyzed(options, test) => match &**test {
                Test::Contains(wanted) => *changed(*options, value) == **wanted,
                Test::ContainsKey(wanted) => *changed(*options, key) == **wanted,
                _ => false,
            },
            Test::Eq(_) | Test::In(_) | Test::Range { .. } | Test::Like(_) => false,
        }
    }

    /// Returns true if a regular or static column passes.
    #[inline]
    pub fn accepts_column(&self, column: Option<ColumnRef<'_>>, now: DeletionSeconds) -> bool {
        match column {
            None => false,
            Some(ColumnRef::Simple(cell)) if self.source.is_counter() => {
                let total = data::counter::total(cell.value).to_be_bytes();
                cell.is_live(now) && self.accepts(Some(&total))
            }
            Some(ColumnRef::Simple(cell)) => cell.is_live(now) && self.accepts(Some(cell.value)),
            Some(ColumnRef::Complex(complex)) => self.complex_contains(&complex, now),
        }
    }

    fn complex_contains(&self, complex: &ComplexRef<'_>, now: DeletionSeconds) -> bool {
        complex.cells().filter(|(_, cell)| cell.is_live(now)).any(|(path, cell)| match &self.ty {
            CqlType::Set { .. } => self.entry(path, path),
            CqlType::Map { .. } => self.entry(path, cell.value),
            _ => self.entry(cell.value, cell.value),
        })
    }
}

/// Filters by the column that they test, with the parameters to find it.
#[derive(Clone, Debug)]
pub struct BoundFilters {
    /// Partition key components.
    pub key: Vec<Filter>,
    /// Columns of the static row.
    pub statics: Vec<Filter>,
    /// Clustering components and columns of the row.
    pub row: Vec<Filter>,
    /// Columns of the partition key.
    key_columns: usize,
    /// The reader's clock.
    now: DeletionSeconds,
    /// The terms by which indexes answer some of these filters. Not sent to other nodes with the filters.
    pub(super) indexed: Vec<IndexPredicate>,
}

impl BoundFilters {
    /// Filters of a table with this many columns in its partition key, for a reader at `now`.
    pub fn new(filters: Vec<Filter>, key_columns: usize, now: DeletionSeconds) -> Self {
        let (key, statics, row) = (Vec::new(), Vec::new(), Vec::new());
        let indexed = Vec::new();
        let mut sorted = BoundFilters { key, statics, row, key_columns, now, indexed };
        for filter in filters {
            match filter.source {
                Source::Key(_) => sorted.key.push(filter),
                Source::Static(..) => sorted.statics.push(filter),
                Source::Clustering(_) | Source::Regular(..) => sorted.row.push(filter),
            }
        }
        sorted
    }
}

impl RowFilter for BoundFilters {
    fn keeps_partition(&self, key: &[u8], static_row: Option<RowRef<'_>>) -> bool {
        if self.key.is_empty() && self.statics.is_empty() {
            return true;
        }
        self.key.iter().all(|f| f.accepts(f.source.primary(key, self.key_columns, None)))
            && self
                .statics
                .iter()
                .all(|f| f.accepts_column(f.source.column(None, static_row), self.now))
    }

    #[inline]
    fn keeps_row(&self, clustering: &[u8], row: RowRef<'_>) -> bool {
        self.row.iter().all(|f| match f.source {
            Source::Regular(..) => f.accepts_column(f.source.column(Some(row), None), self.now),
            source => f.accepts(source.primary(&[], self.key_columns, Some(clustering))),
        })
    }
}

fn contains(value: &[u8], kind: CollectionKind, found: impl Fn(&[u8]) -> bool) -> bool {
    Elements::new(value, kind)
        .is_ok_and(|mut elements| elements.any(|e| matches!(e, Ok(Some(e)) if found(e))))
}
