//! `WRITETIME`, `MAXWRITETIME` and `TTL` of the cells of a row.

use cql_plan::column_source::Shape;
use cql_plan::select::{CellFact, Cells};
use data::{CellRef, ColumnRef};
use stdx::{DeletionSeconds, TimestampMicros};

use crate::cells::put_value;

/// The fact of a column's cells; `None` is null.
pub(crate) fn fact_of(
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
        put_value(&mut out, value.as_deref());
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
