//! Selected expressions that are more than a column, evaluated row by row.

use std::borrow::Cow;

use cql_functions::{EvalEnv, PlanError};
use cql_plan::column_source::{Shape, Source};
use cql_plan::select::Expr;
use data::{ColumnRef, RowRef};
use stdx::DeletionSeconds;
use types::wire::{CollectionKind, Elements, Entries, Fields};
use types::{Comparator, wire};

use crate::cells::append_complex;
use crate::writetime_ttl::fact_of;

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

/// Values that an expression may read.
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

/// The value; `None` is null.
pub(crate) fn eval<'a>(expr: &'a Expr, scope: &Scope<'a>) -> Result<Value<'a>, PlanError> {
    match expr {
        Expr::Column(source) => Ok(scope.row.and_then(|row| row.value(*source))),
        Expr::Masked(column, _) if scope.unmasked => eval(column, scope),
        Expr::Masked(column, masker) => {
            let value = eval(column, scope)?;
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
            let Some(value) = eval(receiver, scope)? else { return Ok(None) };
            let field = Fields::new(&value, *count).nth(*index).transpose();
            let field = field.map_err(PlanError::from)?.flatten();
            Ok(field.map(|f| Cow::Owned(f.to_vec())))
        }
        Expr::Element { receiver, key, order, map } => {
            let Some(value) = eval(receiver, scope)? else { return Ok(None) };
            let Some(key) = numbered(scope.terms, *key) else { return Ok(None) };
            element(&value, &key, order, *map)
        }
        Expr::Slice { receiver, from, to, order, map, multi_cell } => {
            let Some(value) = eval(receiver, scope)? else { return Ok(None) };
            let from = from.and_then(|i| numbered(scope.terms, i));
            let to = to.and_then(|i| numbered(scope.terms, i));
            let inside = |key: &[u8]| {
                from.as_ref().is_none_or(|from| order.compare(key, from).is_ge())
                    && to.as_ref().is_none_or(|to| order.compare(key, to).is_le())
            };
            slice(&value, inside, *map, *multi_cell)
        }
        Expr::Tuple(_) | Expr::List(_) | Expr::Set(..) | Expr::Map(..) | Expr::Vector(..) => {
            eval_composite(expr, scope)
        }
    }
}

/// A tuple, collection or vector that is written out.
fn eval_composite<'a>(expr: &'a Expr, scope: &Scope<'a>) -> Result<Value<'a>, PlanError> {
    match expr {
        Expr::Tuple(items) => {
            let values = eval_all(items, scope)?;
            Ok(Some(Cow::Owned(wire::encode_tuple(values).map_err(PlanError::from)?)))
        }
        Expr::List(items) => {
            let values = no_nulls(eval_all(items, scope)?)?;
            Ok(Some(Cow::Owned(wire::encode_collection(values).map_err(PlanError::from)?)))
        }
        Expr::Set(items, order) => {
            let mut values = no_nulls(eval_all(items, scope)?)?;
            values.sort_by(|a, b| order.compare(a, b));
            values.dedup_by(|a, b| order.compare(a, b).is_eq());
            Ok(Some(Cow::Owned(wire::encode_collection(values).map_err(PlanError::from)?)))
        }
        Expr::Map(items, order) => {
            let mut entries = Vec::with_capacity(items.len());
            for (key, value) in items {
                match (eval(key, scope)?, eval(value, scope)?) {
                    (Some(key), Some(value)) => entries.push((key, value)),
                    _ => return Err(null_inside()),
                }
            }
            entries.sort_by(|a, b| order.compare(&a.0, &b.0));
            entries.dedup_by(|a, b| order.compare(&a.0, &b.0).is_eq());
            Ok(Some(Cow::Owned(wire::encode_map(entries).map_err(PlanError::from)?)))
        }
        Expr::Vector(items, element, dimension) => {
            let values = no_nulls(eval_all(items, scope)?)?;
            let vector = wire::encode_vector(element, *dimension, values);
            Ok(Some(Cow::Owned(vector.map_err(PlanError::from)?)))
        }
        other => eval(other, scope),
    }
}

/// The values of several expressions.
pub(crate) fn eval_all<'a>(
    items: &'a [Expr],
    scope: &Scope<'a>,
) -> Result<Vec<Value<'a>>, PlanError> {
    items.iter().map(|item| eval(item, scope)).collect()
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
        for entry in Entries::new(value).map_err(PlanError::from)? {
            let (k, v) = entry.map_err(PlanError::from)?;
            if order.compare(k, key).is_eq() {
                return Ok(Some(Cow::Owned(v.to_vec())));
            }
        }
        return Ok(None);
    }
    for element in Elements::new(value, CollectionKind::Set).map_err(PlanError::from)? {
        let element = element.map_err(PlanError::from)?;
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
        for entry in Entries::new(value).map_err(PlanError::from)? {
            let (key, value) = entry.map_err(PlanError::from)?;
            if inside(key) {
                entries.push((key, value));
            }
        }
        let empty = entries.is_empty();
        (wire::encode_map(entries), empty)
    } else {
        let mut elements = Vec::new();
        for element in Elements::new(value, CollectionKind::Set).map_err(PlanError::from)? {
            if let Some(element) = element.map_err(PlanError::from)?.filter(|e| inside(e)) {
                elements.push(element);
            }
        }
        let empty = elements.is_empty();
        (wire::encode_collection(elements), empty)
    };
    if empty && multi_cell {
        return Ok(None);
    }
    Ok(Some(Cow::Owned(encoded.map_err(PlanError::from)?)))
}
