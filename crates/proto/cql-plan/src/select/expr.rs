//! Selected expressions that are more than a column, evaluated row by row.

use std::borrow::Cow;

use data::{CellRef, ColumnRef, RowRef};
use schema::{Column, Table};
use stdx::{DeletionSeconds, TimestampMicros};
use types::wire::{CollectionKind, Elements, Entries, Fields};
use types::{Comparator, CqlType, wire};

use super::cells::append_complex;
use crate::column_source::{Shape, Source};
use crate::context::PlanContext;
use crate::error::PlanError;
use crate::functions::EvalEnv;
use crate::functions::NativeFunction;
use crate::functions::masking::Masker;
use crate::term::invalid_value;

/// What of a cell is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellFact {
    WriteTime,
    MaxWriteTime,
    /// Seconds left.
    Ttl,
}

/// Which cells of a complex column a fact is about.
#[derive(Clone, Debug)]
pub(crate) enum Cells {
    /// The only cell, or all of them.
    All,
    /// That of one field.
    Field(u16),
    /// That of one key or element, by number of the term.
    Element(usize, Comparator),
    /// Those between two keys, by numbers of the terms.
    Slice(Option<usize>, Option<usize>, Comparator),
}

/// An expression over one row, or over the aggregates of a group.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Column(Source),
    /// A column that is shown masked unless the reader may see it; always an [`Expr::Column`].
    Masked(Box<Expr>, Box<Masker>),
    /// A literal, marker or other term, by number in the plan's list of terms.
    Term(usize),
    Null,
    Call(Box<NativeFunction>, Vec<Expr>),
    /// Result of an aggregate, by number.
    Aggregate(usize),
    /// What an expression gave for the first row of the group, by number.
    FirstRow(usize),
    Fact {
        fact: CellFact,
        source: Source,
        cells: Cells,
    },
    /// Field of a user type with so many fields.
    Field(Box<Expr>, usize, usize),
    /// Map value or set element by key.
    Element {
        receiver: Box<Expr>,
        key: usize,
        order: Comparator,
        map: bool,
    },
    Slice {
        receiver: Box<Expr>,
        from: Option<usize>,
        to: Option<usize>,
        order: Comparator,
        map: bool,
        /// Nothing in the slice is null, not an empty collection.
        multi_cell: bool,
    },
    Tuple(Vec<Expr>),
    List(Vec<Expr>),
    Set(Vec<Expr>, Comparator),
    Map(Vec<(Expr, Expr)>, Comparator),
    Vector(Vec<Expr>, CqlType, u32),
}

/// One row as expressions see it.
#[derive(Clone, Copy)]
pub(crate) struct RowView<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) key_columns: usize,
    /// Serialised clustering; `None` for a partition shown for its static row alone.
    pub(crate) clustering: Option<&'a [u8]>,
    pub(crate) row: Option<RowRef<'a>>,
    pub(crate) static_row: Option<RowRef<'a>>,
    pub(crate) now: DeletionSeconds,
}

impl<'a> RowView<'a> {
    /// A partition key or clustering component.
    pub(crate) fn primary(&self, source: Source) -> Option<&'a [u8]> {
        source.primary(self.key, self.key_columns, self.clustering)
    }

    /// A regular or static column.
    pub(crate) fn column(&self, source: Source) -> Option<ColumnRef<'a>> {
        source.column(self.row, self.static_row)
    }

    /// The value of any column.
    pub(crate) fn value(&self, source: Source) -> Option<Cow<'a, [u8]>> {
        let shape = match source {
            Source::Key(_) | Source::Clustering(_) => {
                return self.primary(source).map(Cow::Borrowed);
            }
            Source::Static(_, shape) | Source::Regular(_, shape) => shape,
        };
        match self.column(source)? {
            ColumnRef::Simple(cell) if !cell.is_live(self.now) => None,
            ColumnRef::Simple(cell) if shape == Shape::Counter => {
                Some(Cow::Owned(data::counter::total(cell.value).to_be_bytes().to_vec()))
            }
            ColumnRef::Simple(cell) => Some(Cow::Borrowed(cell.value)),
            ColumnRef::Complex(complex) => {
                let mut out = Vec::new();
                append_complex(&mut out, &complex, shape, self.now).then_some(Cow::Owned(out))
            }
        }
    }
}

/// Everything an expression may look at.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    /// `None` when a group is closed.
    pub(crate) row: Option<RowView<'a>>,
    pub(crate) terms: &'a [Option<Vec<u8>>],
    pub(crate) aggregates: &'a [Option<Vec<u8>>],
    pub(crate) first_row: &'a [Option<Vec<u8>>],
    pub(crate) env: &'a EvalEnv<'a>,
    /// Masks are left off.
    pub(crate) unmasked: bool,
}

type Value<'a> = Option<Cow<'a, [u8]>>;

fn numbered<'a>(values: &'a [Option<Vec<u8>>], index: usize) -> Value<'a> {
    values.get(index)?.as_deref().map(Cow::Borrowed)
}

impl Expr {
    /// A column of a table, with the mask it has.
    ///
    /// # Errors
    /// The mask is not known.
    pub(crate) fn of_column(
        table: &Table,
        column: &Column,
        cx: &PlanContext<'_>,
    ) -> Result<Expr, PlanError> {
        let plain = Expr::Column(Source::of(column));
        Ok(match table.mask_of(column) {
            Some(mask) => {
                let masker = Masker::new(table, column, mask, cx.function_scope())?;
                Expr::Masked(Box::new(plain), Box::new(masker))
            }
            None => plain,
        })
    }

    /// The value; `None` is null.
    pub(crate) fn eval<'a>(&'a self, scope: &Scope<'a>) -> Result<Value<'a>, PlanError> {
        match self {
            Expr::Column(source) => Ok(scope.row.and_then(|row| row.value(*source))),
            Expr::Masked(column, _) if scope.unmasked => column.eval(scope),
            Expr::Masked(column, masker) => {
                let value = column.eval(scope)?;
                Ok(masker.mask(value.as_deref(), scope.env)?.map(Cow::Owned))
            }
            Expr::Term(index) => Ok(numbered(scope.terms, *index)),
            Expr::Null => Ok(None),
            Expr::Aggregate(index) => Ok(numbered(scope.aggregates, *index)),
            Expr::FirstRow(index) => Ok(numbered(scope.first_row, *index)),
            Expr::Call(function, args) => {
                let args = eval_all(args, scope)?;
                let args: Vec<Option<&[u8]>> = args.iter().map(|a| a.as_deref()).collect();
                Ok(function.eval(&args, scope.env)?.map(Cow::Owned))
            }
            Expr::Fact { fact, source, cells } => Ok(scope.row.and_then(|row| {
                let column = row.column(*source)?;
                let shape = match source {
                    Source::Static(_, shape) | Source::Regular(_, shape) => *shape,
                    Source::Key(_) | Source::Clustering(_) => return None,
                };
                fact_of(*fact, column, shape, cells, scope.terms, row.now).map(Cow::Owned)
            })),
            Expr::Field(receiver, index, count) => {
                let Some(value) = receiver.eval(scope)? else { return Ok(None) };
                let field = Fields::new(&value, *count).nth(*index).transpose();
                let field = field.map_err(invalid_value)?.flatten();
                Ok(field.map(|f| Cow::Owned(f.to_vec())))
            }
            Expr::Element { receiver, key, order, map } => {
                let Some(value) = receiver.eval(scope)? else { return Ok(None) };
                let Some(key) = numbered(scope.terms, *key) else { return Ok(None) };
                element(&value, &key, order, *map)
            }
            Expr::Slice { receiver, from, to, order, map, multi_cell } => {
                let Some(value) = receiver.eval(scope)? else { return Ok(None) };
                let from = from.and_then(|i| numbered(scope.terms, i));
                let to = to.and_then(|i| numbered(scope.terms, i));
                let inside = |key: &[u8]| {
                    from.as_ref().is_none_or(|from| order.compare(key, from).is_ge())
                        && to.as_ref().is_none_or(|to| order.compare(key, to).is_le())
                };
                slice(&value, inside, *map, *multi_cell)
            }
            Expr::Tuple(items) => {
                let values = eval_all(items, scope)?;
                Ok(Some(Cow::Owned(wire::encode_tuple(values).map_err(invalid_value)?)))
            }
            Expr::List(items) => {
                let values = no_nulls(eval_all(items, scope)?)?;
                Ok(Some(Cow::Owned(wire::encode_collection(values).map_err(invalid_value)?)))
            }
            Expr::Set(items, order) => {
                let mut values = no_nulls(eval_all(items, scope)?)?;
                values.sort_by(|a, b| order.compare(a, b));
                values.dedup_by(|a, b| order.compare(a, b).is_eq());
                Ok(Some(Cow::Owned(wire::encode_collection(values).map_err(invalid_value)?)))
            }
            Expr::Map(items, order) => {
                let mut entries = Vec::with_capacity(items.len());
                for (key, value) in items {
                    match (key.eval(scope)?, value.eval(scope)?) {
                        (Some(key), Some(value)) => entries.push((key, value)),
                        _ => return Err(null_inside()),
                    }
                }
                entries.sort_by(|a, b| order.compare(&a.0, &b.0));
                entries.dedup_by(|a, b| order.compare(&a.0, &b.0).is_eq());
                Ok(Some(Cow::Owned(wire::encode_map(entries).map_err(invalid_value)?)))
            }
            Expr::Vector(items, element, dimension) => {
                let values = no_nulls(eval_all(items, scope)?)?;
                let vector = wire::encode_vector(element, *dimension, values);
                Ok(Some(Cow::Owned(vector.map_err(invalid_value)?)))
            }
        }
    }

    /// The expressions this one is made of.
    fn parts(&self) -> Vec<&Expr> {
        match self {
            Expr::Call(_, items)
            | Expr::Tuple(items)
            | Expr::List(items)
            | Expr::Set(items, _)
            | Expr::Vector(items, _, _) => items.iter().collect(),
            Expr::Map(items, _) => items.iter().flat_map(|(k, v)| [k, v]).collect(),
            Expr::Masked(receiver, _)
            | Expr::Field(receiver, _, _)
            | Expr::Element { receiver, .. }
            | Expr::Slice { receiver, .. } => vec![receiver],
            Expr::Column(_)
            | Expr::Term(_)
            | Expr::Null
            | Expr::Aggregate(_)
            | Expr::FirstRow(_)
            | Expr::Fact { .. } => Vec::new(),
        }
    }

    pub(super) fn has_aggregate(&self) -> bool {
        matches!(self, Expr::Aggregate(_)) || self.parts().into_iter().any(Expr::has_aggregate)
    }

    /// Whether some part of the expression, itself included, is such.
    pub(crate) fn any(&self, found: &mut dyn FnMut(&Expr) -> bool) -> bool {
        found(self) || self.parts().into_iter().any(|part| part.any(found))
    }

    /// For an aggregated query: what does not depend on aggregates is taken from the first row of
    /// the group.
    pub(crate) fn lift(self, first_row: &mut Vec<Expr>) -> Expr {
        if !self.has_aggregate() {
            first_row.push(self);
            return Expr::FirstRow(first_row.len() - 1);
        }
        let mut all = |items: Vec<Expr>| -> Vec<Expr> {
            items.into_iter().map(|item| item.lift(first_row)).collect()
        };
        match self {
            Expr::Call(function, items) => Expr::Call(function, all(items)),
            Expr::Tuple(items) => Expr::Tuple(all(items)),
            Expr::List(items) => Expr::List(all(items)),
            Expr::Set(items, order) => Expr::Set(all(items), order),
            Expr::Vector(items, element, dimension) => Expr::Vector(all(items), element, dimension),
            Expr::Map(items, order) => Expr::Map(
                items.into_iter().map(|(k, v)| (k.lift(first_row), v.lift(first_row))).collect(),
                order,
            ),
            Expr::Field(receiver, index, count) => {
                Expr::Field(Box::new(receiver.lift(first_row)), index, count)
            }
            Expr::Element { receiver, key, order, map } => {
                let receiver = Box::new(receiver.lift(first_row));
                Expr::Element { receiver, key, order, map }
            }
            Expr::Slice { receiver, from, to, order, map, multi_cell } => {
                let receiver = Box::new(receiver.lift(first_row));
                Expr::Slice { receiver, from, to, order, map, multi_cell }
            }
            other => other,
        }
    }
}

pub(super) fn eval_all<'a>(
    items: &'a [Expr],
    scope: &Scope<'a>,
) -> Result<Vec<Value<'a>>, PlanError> {
    items.iter().map(|item| item.eval(scope)).collect()
}

fn null_inside() -> PlanError {
    PlanError::invalid("null is not supported inside collections")
}

fn no_nulls(values: Vec<Value<'_>>) -> Result<Vec<Cow<'_, [u8]>>, PlanError> {
    values.into_iter().map(|v| v.ok_or_else(null_inside)).collect()
}

fn element<'a>(
    value: &[u8],
    key: &[u8],
    order: &Comparator,
    map: bool,
) -> Result<Value<'a>, PlanError> {
    if map {
        for entry in Entries::new(value).map_err(invalid_value)? {
            let (k, v) = entry.map_err(invalid_value)?;
            if order.compare(k, key).is_eq() {
                return Ok(Some(Cow::Owned(v.to_vec())));
            }
        }
        return Ok(None);
    }
    for element in Elements::new(value, CollectionKind::Set).map_err(invalid_value)? {
        let element = element.map_err(invalid_value)?;
        if element.is_some_and(|e| order.compare(e, key).is_eq()) {
            return Ok(element.map(|e| Cow::Owned(e.to_vec())));
        }
    }
    Ok(None)
}

fn slice<'a>(
    value: &[u8],
    inside: impl Fn(&[u8]) -> bool,
    map: bool,
    multi_cell: bool,
) -> Result<Value<'a>, PlanError> {
    let (encoded, empty) = if map {
        let mut entries = Vec::new();
        for entry in Entries::new(value).map_err(invalid_value)? {
            let (key, value) = entry.map_err(invalid_value)?;
            if inside(key) {
                entries.push((key, value));
            }
        }
        let empty = entries.is_empty();
        (wire::encode_map(entries), empty)
    } else {
        let mut elements = Vec::new();
        for element in Elements::new(value, CollectionKind::Set).map_err(invalid_value)? {
            if let Some(element) = element.map_err(invalid_value)?.filter(|e| inside(e)) {
                elements.push(element);
            }
        }
        let empty = elements.is_empty();
        (wire::encode_collection(elements), empty)
    };
    if empty && multi_cell {
        return Ok(None);
    }
    Ok(Some(Cow::Owned(encoded.map_err(invalid_value)?)))
}

fn fact_of(
    fact: CellFact,
    column: ColumnRef<'_>,
    shape: Shape,
    cells: &Cells,
    terms: &[Option<Vec<u8>>],
    now: DeletionSeconds,
) -> Option<Vec<u8>> {
    let complex = match column {
        ColumnRef::Simple(cell) => return cell.is_live(now).then(|| of_cell(fact, &cell, now))?,
        ColumnRef::Complex(complex) => complex,
    };
    let live = complex.cells().filter(|(_, cell)| cell.is_live(now));
    let term = |index: &usize| terms.get(*index).and_then(|t| t.as_deref());
    match cells {
        Cells::Field(field) => live
            .into_iter()
            .find(|(path, _)| *path == field.to_be_bytes())
            .and_then(|(_, cell)| of_cell(fact, &cell, now)),
        Cells::Element(key, order) => {
            let key = term(key)?;
            live.into_iter()
                .find(|(path, _)| order.compare(path, key).is_eq())
                .and_then(|(_, cell)| of_cell(fact, &cell, now))
        }
        Cells::All if shape_fields(shape).is_some() => {
            let mut facts = vec![None; shape_fields(shape).unwrap_or(0)];
            for (path, cell) in live {
                let field = <[u8; 2]>::try_from(path).map(u16::from_be_bytes).ok()?;
                if let Some(slot) = facts.get_mut(usize::from(field)) {
                    *slot = Some(cell);
                }
            }
            list_of(fact, facts, now)
        }
        Cells::All => list_of(fact, live.map(|(_, cell)| Some(cell)).collect(), now),
        Cells::Slice(from, to, order) => {
            let from = from.as_ref().and_then(term);
            let to = to.as_ref().and_then(term);
            let inside = |path: &[u8]| {
                from.is_none_or(|from| order.compare(path, from).is_ge())
                    && to.is_none_or(|to| order.compare(path, to).is_le())
            };
            let picked = live.filter(|(path, _)| inside(path)).map(|(_, cell)| Some(cell));
            list_of(fact, picked.collect(), now)
        }
    }
}

fn shape_fields(shape: Shape) -> Option<usize> {
    match shape {
        Shape::Udt(fields) => Some(usize::from(fields)),
        _ => None,
    }
}

/// Facts of many cells: the latest write time, or a list with null for cells without.
fn list_of(
    fact: CellFact,
    cells: Vec<Option<CellRef<'_>>>,
    now: DeletionSeconds,
) -> Option<Vec<u8>> {
    let latest = cells.iter().flatten().map(|c| c.timestamp).max()?;
    if fact == CellFact::MaxWriteTime {
        return Some(latest.0.to_be_bytes().to_vec());
    }
    let count = i32::try_from(cells.len()).ok()?;
    let mut out = count.to_be_bytes().to_vec();
    for cell in cells {
        let value = cell.and_then(|cell| of_cell(fact, &cell, now));
        super::cells::put_value(&mut out, value.as_deref());
    }
    Some(out)
}

fn of_cell(fact: CellFact, cell: &CellRef<'_>, now: DeletionSeconds) -> Option<Vec<u8>> {
    match fact {
        CellFact::WriteTime | CellFact::MaxWriteTime => (cell.timestamp != TimestampMicros::NONE)
            .then(|| cell.timestamp.0.to_be_bytes().to_vec()),
        CellFact::Ttl => {
            if !cell.is_expiring() {
                return None;
            }
            let left = i32::try_from(cell.local.0.saturating_sub(now.0)).unwrap_or(i32::MAX);
            (left > 0).then(|| left.to_be_bytes().to_vec())
        }
    }
}
