//! Sources of result columns, and the encoding of their values into the result.

use data::{ColumnRef, ComplexRef};
use stdx::DeletionSeconds;

use cql_plan::column_source::Shape;

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
