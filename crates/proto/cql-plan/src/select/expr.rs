//! Selected expressions that are more than a column. `cql-exec` evaluates them row by row.

use schema::{Column, Table};
use types::{Comparator, CqlType};

use crate::column_source::Source;
use crate::context::PlanContext;
use crate::error::PlanError;
use crate::functions::NativeFunction;
use crate::functions::masking::Masker;

/// Property of a cell that a selector asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellFact {
    /// Timestamp.
    WriteTime,
    /// The latest timestamp.
    MaxWriteTime,
    /// Seconds left.
    Ttl,
}

/// Cells of a complex column that a fact is about.
#[derive(Clone, Debug)]
pub enum Cells {
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
pub enum Expr {
    /// A column.
    Column(Source),
    /// A column that is shown masked unless the reader may see it; always an [`Expr::Column`].
    Masked(Box<Expr>, Box<Masker>),
    /// A literal, marker or other term, by number in the plan's list of terms.
    Term(usize),
    /// Null.
    Null,
    /// A scalar function of expressions.
    Call(Box<NativeFunction>, Vec<Expr>),
    /// Result of an aggregate, by number.
    Aggregate(usize),
    /// Result of an expression for the first row of the group, by number.
    FirstRow(usize),
    /// A fact of the cells of a column.
    Fact {
        /// The fact.
        fact: CellFact,
        /// The column.
        source: Source,
        /// The cells.
        cells: Cells,
    },
    /// Field of a user type with this many fields.
    Field(Box<Expr>, usize, usize),
    /// Map value or set element by key.
    Element {
        /// The collection.
        receiver: Box<Expr>,
        /// The key, by number of the term.
        key: usize,
        /// Order of keys.
        order: Comparator,
        /// It is a map.
        map: bool,
    },
    /// The part of a map or set between two keys.
    Slice {
        /// The collection.
        receiver: Box<Expr>,
        /// Its first key, by number of the term.
        from: Option<usize>,
        /// Its last key, by number of the term.
        to: Option<usize>,
        /// Order of keys.
        order: Comparator,
        /// It is a map.
        map: bool,
        /// Nothing in the slice is null, not an empty collection.
        multi_cell: bool,
    },
    /// A tuple.
    Tuple(Vec<Expr>),
    /// A list.
    List(Vec<Expr>),
    /// A set, with the order of its elements.
    Set(Vec<Expr>, Comparator),
    /// A map, with the order of its keys.
    Map(Vec<(Expr, Expr)>, Comparator),
    /// A vector, with the type of its elements and their number.
    Vector(Vec<Expr>, CqlType, u32),
}

impl Expr {
    /// A column of a table, with the mask it has.
    ///
    /// # Errors
    /// The mask is not known.
    pub fn of_column(
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

    /// Returns the direct parts of the expression.
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

    pub(crate) fn has_aggregate(&self) -> bool {
        matches!(self, Expr::Aggregate(_)) || self.parts().into_iter().any(Expr::has_aggregate)
    }

    /// Returns true if some part of the expression, itself included, satisfies the predicate.
    pub fn any(&self, found: &mut dyn FnMut(&Expr) -> bool) -> bool {
        found(self) || self.parts().into_iter().any(|part| part.any(found))
    }

    /// For an aggregated query: what does not depend on aggregates is taken from the first row of
    /// the group.
    pub fn lift(self, first_row: &mut Vec<Expr>) -> Expr {
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
