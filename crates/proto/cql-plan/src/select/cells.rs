//! Where a result column comes from, and how its value is written into the result.

use data::{ColumnRef, ComplexRef};
use schema::{Column, ColumnKind};
use stdx::{ColumnId, DeletionSeconds};
use types::CqlType;

/// How a column of a row is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
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

/// Where a column's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
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
    /// Whether it is a counter: then the stored bytes are not the value ([`data::counter`]).
    pub(crate) fn is_counter(self) -> bool {
        matches!(self, Source::Static(_, Shape::Counter) | Source::Regular(_, Shape::Counter))
    }

    pub(crate) fn of(column: &Column) -> Source {
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

/// Appends `[bytes]`: an i32 length and the bytes, -1 for null.
#[inline]
pub(crate) fn put_value(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        None => out.extend_from_slice(&(-1i32).to_be_bytes()),
        Some(value) => {
            let length = i32::try_from(value.len()).unwrap_or(-1);
            stdx::invariant!(length >= 0, "result: a value of 2 GiB or more");
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(value);
        }
    }
}

/// Appends a column as `[bytes]`; not one of counters.
#[inline]
pub(crate) fn put_column(
    out: &mut Vec<u8>,
    column: Option<ColumnRef<'_>>,
    shape: Shape,
    now: DeletionSeconds,
) {
    match column {
        Some(ColumnRef::Simple(cell)) if cell.is_live(now) => put_value(out, Some(cell.value)),
        Some(ColumnRef::Complex(complex)) => put_complex(out, &complex, shape, now),
        _ => put_value(out, None),
    }
}

/// Appends a collection or user type of many cells in the protocol's form; null without live cells.
fn put_complex(out: &mut Vec<u8>, complex: &ComplexRef<'_>, shape: Shape, now: DeletionSeconds) {
    let at = out.len();
    put_value(out, Some(&[]));
    if append_complex(out, complex, shape, now) {
        let length = i32::try_from(out.len() - at - 4).unwrap_or(-1);
        stdx::invariant!(length >= 0, "result: a collection of 2 GiB or more");
        set_i32(out, at, length);
    } else {
        out.truncate(at);
        put_value(out, None);
    }
}

/// Appends the value of a user type of many cells; false when it has no live cell.
pub(crate) fn append_udt(
    out: &mut Vec<u8>,
    complex: &ComplexRef<'_>,
    fields: u16,
    now: DeletionSeconds,
) -> bool {
    append_complex(out, complex, Shape::Udt(fields), now)
}

/// Appends the value of a complex column without its length; false (nothing useful appended) when
/// it has no live cell.
pub(crate) fn append_complex(
    out: &mut Vec<u8>,
    complex: &ComplexRef<'_>,
    shape: Shape,
    now: DeletionSeconds,
) -> bool {
    let live = || complex.cells().filter(|(_, cell)| cell.is_live(now));
    if let Shape::Udt(fields) = shape {
        let mut cells = live().peekable();
        let any = cells.peek().is_some();
        for field in 0..fields {
            let here = |path: &[u8]| path == field.to_be_bytes();
            match cells.peek() {
                Some((path, cell)) if here(path) => {
                    put_value(out, Some(cell.value));
                    cells.next();
                }
                _ => put_value(out, None),
            }
        }
        return any;
    }
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut count = 0i32;
    for (path, cell) in live() {
        count = count.saturating_add(1);
        match shape {
            Shape::Set => put_value(out, Some(path)),
            Shape::Map => {
                put_value(out, Some(path));
                put_value(out, Some(cell.value));
            }
            Shape::List | Shape::Simple | Shape::Counter | Shape::Udt(_) => {
                put_value(out, Some(cell.value));
            }
        }
    }
    set_i32(out, at, count);
    count > 0
}

fn set_i32(out: &mut [u8], at: usize, value: i32) {
    if let Some(slot) = out.get_mut(at..at + 4) {
        slot.copy_from_slice(&value.to_be_bytes());
    }
}

/// Component of a serialised partition key with `count` components; `None` when it is not there.
pub(crate) fn key_component(key: &[u8], count: usize, index: u16) -> Option<&[u8]> {
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
