//! Where the value of a column comes from: key, clustering, static row or row, and in which form it is stored.

use data::{ColumnRef, RowRef};
use schema::{Column, ColumnKind};
use stdx::ColumnId;
use types::CqlType;

/// Stored form of a column of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One cell.
    Simple,
    /// One cell whose value is a counter context.
    Counter,
    /// Cells by time UUID.
    List,
    /// Cells by element, without values.
    Set,
    /// Cells by key.
    Map,
    /// Cells by field number; how many fields the type has.
    Udt(u16),
}

/// Source of a column's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Component of the partition key.
    Key(u16),
    /// Component of the clustering.
    Clustering(u16),
    /// Column of the static row.
    Static(ColumnId, Shape),
    /// Column of the row.
    Regular(ColumnId, Shape),
}

impl Source {
    /// Returns true for a counter: the stored bytes are not the value ([`data::counter`]).
    pub fn is_counter(self) -> bool {
        matches!(self, Source::Static(_, Shape::Counter) | Source::Regular(_, Shape::Counter))
    }

    /// That of a column.
    pub fn of(column: &Column) -> Source {
        let shape = match &column.ty {
            CqlType::Counter => Shape::Counter,
            ty if !ty.is_multi_cell() => Shape::Simple,
            CqlType::List { .. } => Shape::List,
            CqlType::Set { .. } => Shape::Set,
            CqlType::Map { .. } => Shape::Map,
            CqlType::Udt(udt) => Shape::Udt(u16::try_from(udt.fields.len()).unwrap_or(u16::MAX)),
            _ => Shape::Simple,
        };
        match column.kind {
            ColumnKind::PartitionKey(position) => Source::Key(position),
            ColumnKind::Clustering { position, .. } => Source::Clustering(position),
            ColumnKind::Static => Source::Static(column.id, shape),
            ColumnKind::Regular => Source::Regular(column.id, shape),
        }
    }
}

impl Source {
    /// A component of the partition key, which has this many, or of the clustering.
    pub fn primary<'a>(
        self,
        key: &'a [u8],
        key_columns: usize,
        clustering: Option<&'a [u8]>,
    ) -> Option<&'a [u8]> {
        match self {
            Source::Key(index) => key_component(key, key_columns, index),
            Source::Clustering(index) => {
                data::clustering::components(clustering?).nth(usize::from(index)).flatten()
            }
            Source::Static(..) | Source::Regular(..) => None,
        }
    }

    /// A regular or static column.
    pub fn column<'a>(
        self,
        row: Option<RowRef<'a>>,
        static_row: Option<RowRef<'a>>,
    ) -> Option<ColumnRef<'a>> {
        match self {
            Source::Static(id, _) => static_row?.column(id),
            Source::Regular(id, _) => row?.column(id),
            Source::Key(_) | Source::Clustering(_) => None,
        }
    }
}

/// Component of a serialised partition key with `count` components; `None` when it is missing.
pub fn key_component(key: &[u8], count: usize, index: u16) -> Option<&[u8]> {
    if count == 1 {
        return (index == 0).then_some(key);
    }
    let mut rest = key;
    for at in 0..=index {
        let (length, tail) = rest.split_first_chunk::<2>()?;
        let (component, tail) = tail.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        if at == index {
            return Some(component);
        }
        rest = tail.get(1..)?;
    }
    None
}
