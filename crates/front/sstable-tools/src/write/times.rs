//! The columns `writetime(…)` and `ttl(…)` of an export: the times of values, which are written
//! into the mutation that the plan of an `INSERT` built from the row.
//!
//! A value without given times keeps those of the plan (`--timestamp`, `--ttl`). Files do not have
//! the times of a row's own marker: it gets the greatest of the times of its values, as with one
//! `INSERT` each.

use std::collections::BTreeMap;
use std::sync::Arc;

use data::row::{CellRef, ColumnRef, RowBuilder};
use data::{DeletionTime, Liveness, MutationBuilder, MutationRef, RowRef};
use schema::{Column, ColumnKind, Table};
use serde::de::IgnoredAny;
use stdx::{ColumnId, DeletionSeconds, TimestampMicros, TtlSeconds};
use types::CqlType;

use crate::parquet::Value;

/// Which time a column of the input has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    WriteTime,
    Ttl,
}

impl Fact {
    fn name(self) -> &'static str {
        match self {
            Fact::WriteTime => "writetime",
            Fact::Ttl => "ttl",
        }
    }
}

/// A number, or one for each element: of a user type for each field.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Given {
    One(i64),
    Many(Vec<Option<i64>>),
}

/// The column that `writetime(name)` or `ttl(name)` is about. A column of the table with that whole name
/// is meant first; keys and counters have no such times.
pub(super) fn fact_of<'t>(table: &'t Table, name: &str) -> Option<(Fact, &'t Column)> {
    if table.column(name).is_some() {
        return None;
    }
    let inner = name.strip_suffix(')')?;
    let (fact, of) = match inner.strip_prefix("writetime(") {
        Some(of) => (Fact::WriteTime, of),
        None => (Fact::Ttl, inner.strip_prefix("ttl(")?),
    };
    let column = table.column(of)?;
    let has_times = matches!(column.kind, ColumnKind::Static | ColumnKind::Regular);
    (has_times && !column.ty.is_counter()).then_some((fact, column))
}

/// Timestamps and times to live that a row gives for its values.
#[derive(Debug, Default)]
pub(super) struct Times {
    of: BTreeMap<ColumnId, GivenTimes>,
}

/// From when on values live, and the last second at which one may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lives {
    pub(super) now: DeletionSeconds,
    pub(super) expiry_max: DeletionSeconds,
}

/// A column's name, the times when its values were written, and how long they live.
type GivenTimes = (Arc<str>, Option<Given>, Option<Given>);

/// Times of one column, checked.
struct OfColumn<'t> {
    name: &'t str,
    write: Option<&'t Given>,
    ttl: Option<&'t Given>,
}

impl Times {
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    fn put(&mut self, fact: Fact, column: &Column, given: Given) -> Result<(), String> {
        let name = &column.name;
        if matches!(given, Given::Many(_)) != column.is_complex() {
            let wanted = if column.is_complex() { "a list of numbers" } else { "one number" };
            return Err(format!("{}({name}): expects {wanted}", fact.name()));
        }
        let numbers = match &given {
            Given::One(number) => vec![*number],
            Given::Many(numbers) => numbers.iter().flatten().copied().collect::<Vec<i64>>(),
        };
        let fits = |number: &i64| match fact {
            // Lower numbers are reserved: "none", and the deletion of a collection's previous
            // content.
            Fact::WriteTime => *number > i64::MIN + 1,
            Fact::Ttl => (1..=i64::from(TtlSeconds::MAX.0)).contains(number),
        };
        if let Some(wrong) = numbers.iter().find(|number| !fits(number)) {
            return Err(format!("{}({name}): {wrong} is out of range", fact.name()));
        }
        let of = self.of.entry(column.id).or_insert_with(|| (name.clone(), None, None));
        match fact {
            Fact::WriteTime => of.1 = Some(given),
            Fact::Ttl => of.2 = Some(given),
        }
        Ok(())
    }

    /// Adds a value of a line of JSON; null is ignored.
    ///
    /// # Errors
    /// Neither a number nor a list of them; a number out of range.
    pub(super) fn put_json(
        &mut self,
        fact: Fact,
        column: &Column,
        json: &str,
    ) -> Result<(), String> {
        let wrong = |_| format!("{}({}): expects numbers", fact.name(), column.name);
        let given = match json.trim_start().starts_with('[') {
            true => Some(Given::Many(serde_json::from_str(json).map_err(wrong)?)),
            false => serde_json::from_str::<Option<i64>>(json).map_err(wrong)?.map(Given::One),
        };
        given.map_or(Ok(()), |given| self.put(fact, column, given))
    }

    /// Adds a value of a Parquet file; null is ignored.
    ///
    /// # Errors
    /// As those of JSON.
    pub(super) fn put_value(
        &mut self,
        fact: Fact,
        column: &Column,
        value: &Value,
    ) -> Result<(), String> {
        let wrong = || format!("{}({}): expects integers", fact.name(), column.name);
        let number = |value: &Value| match value {
            Value::Null => Ok(None),
            Value::Int(number) => i64::try_from(*number).map(Some).map_err(|_| wrong()),
            _ => Err(wrong()),
        };
        let given = match value {
            Value::List(values) => {
                Some(Given::Many(values.iter().map(number).collect::<Result<_, _>>()?))
            }
            value => number(value)?.map(Given::One),
        };
        given.map_or(Ok(()), |given| self.put(fact, column, given))
    }

    /// The mutation with these times.
    ///
    /// # Errors
    /// Times of a column that the row has no value of, or of another number of elements than it has; a life
    /// beyond what the files hold.
    pub(super) fn applied(
        &self,
        table: &Table,
        planned: &MutationRef<'_>,
        lives: Lives,
    ) -> Result<Vec<u8>, String> {
        let mut seen = Vec::new();
        let mut static_row = Vec::new();
        if let Some(row) = planned.static_row {
            static_row = self.row(table, &row, lives, &mut seen)?;
        }
        let mut rows = Vec::new();
        for (clustering, row) in planned.rows() {
            rows.push((clustering, self.row(table, &row, lives, &mut seen)?));
        }
        if let Some((_, (name, ..))) = self.of.iter().find(|(id, _)| !seen.contains(*id)) {
            return Err(format!("times of column {name}, which has no value"));
        }
        let mut out = Vec::new();
        let mut builder =
            MutationBuilder::new(&mut out, planned.table, planned.schema_version, planned.key);
        if !planned.deletion.is_live() {
            builder.deletion(planned.deletion);
        }
        if !static_row.is_empty() {
            builder.static_row(RowRef::trusted(&static_row));
        }
        builder.rows(rows.iter().map(|(clustering, row)| (*clustering, RowRef::trusted(row))));
        let tombstones: Vec<_> = planned.range_tombstones().collect();
        builder.range_tombstones(tombstones.into_iter());
        builder.finish();
        Ok(out)
    }

    fn row(
        &self,
        table: &Table,
        row: &RowRef<'_>,
        lives: Lives,
        seen: &mut Vec<ColumnId>,
    ) -> Result<Vec<u8>, String> {
        let mut columns = Vec::new();
        for (id, column) in row.columns() {
            let of = self.of.get(&id).map(|(name, write, ttl)| OfColumn {
                name,
                write: write.as_ref(),
                ttl: ttl.as_ref(),
            });
            let is_udt =
                table.columns.iter().any(|c| c.id == id && matches!(c.ty, CqlType::Udt(_)));
            let cells: Vec<(&[u8], CellRef<'_>)> = match column {
                ColumnRef::Simple(cell) => vec![(&[], cell)],
                ColumnRef::Complex(complex) => complex.cells().collect(),
            };
            let cells = match &of {
                Some(of) => of.timed(cells, is_udt, lives)?,
                None => cells,
            };
            if of.is_some() {
                seen.push(id);
            }
            columns.push((id, column, of.is_some(), cells));
        }
        let liveness = marker(
            row.liveness(),
            columns.iter().map(|(_, _, timed, cells)| (*timed, cells.as_slice())),
        );
        let mut out = Vec::new();
        let mut builder = RowBuilder::new(&mut out, liveness, row.deletion(), row.base_timestamp());
        for (id, column, is_timed, cells) in &columns {
            let ColumnRef::Complex(complex) = column else {
                if let Some((_, cell)) = cells.first() {
                    builder.cell(*id, cell);
                }
                continue;
            };
            let mut deletion = complex.deletion;
            let oldest = cells.iter().map(|(_, cell)| cell.timestamp).min();
            if let Some(oldest) = oldest.filter(|_| *is_timed && !deletion.is_live()) {
                // The previous content of the collection is deleted just before its first element.
                let timestamp = TimestampMicros(oldest.0.saturating_sub(1));
                deletion = DeletionTime { timestamp, local: deletion.local };
            }
            builder.begin_complex(*id, deletion);
            for (path, cell) in cells {
                builder.complex_cell(path, cell);
            }
            builder.end_complex();
        }
        builder.finish();
        Ok(out)
    }
}

/// Returns the marker of a row with these values; unchanged if none of them has given times.
fn marker<'c>(
    planned: Liveness,
    columns: impl Iterator<Item = (bool, &'c [(&'c [u8], CellRef<'c>)])>,
) -> Liveness {
    let (mut greatest, mut any) = (Liveness::NONE, false);
    for (is_timed, cells) in columns {
        any |= is_timed;
        for (_, cell) in cells.iter().filter(|(_, cell)| !cell.is_tombstone()) {
            let of_cell =
                Liveness { timestamp: cell.timestamp, ttl: cell.ttl, expires_at: cell.local };
            if of_cell.supersedes(&greatest) {
                greatest = of_cell;
            }
        }
    }
    if planned.is_empty() || !any || greatest.is_empty() { planned } else { greatest }
}

impl OfColumn<'_> {
    fn timed<'c>(
        &self,
        mut cells: Vec<(&'c [u8], CellRef<'c>)>,
        is_udt: bool,
        lives: Lives,
    ) -> Result<Vec<(&'c [u8], CellRef<'c>)>, String> {
        let no_value = || format!("times of column {}, which has no value", self.name);
        if cells.iter().all(|(_, cell)| cell.is_tombstone()) {
            return Err(no_value());
        }
        for (fact, given) in [(Fact::WriteTime, self.write), (Fact::Ttl, self.ttl)] {
            if let Some(Given::Many(numbers)) = given
                && !is_udt
                && numbers.len() != cells.len()
            {
                let (fact, name) = (fact.name(), self.name);
                let (given, there) = (numbers.len(), cells.len());
                return Err(format!("{fact}({name}) has {given} elements, {name} has {there}"));
            }
        }
        for (at, (path, cell)) in cells.iter_mut().enumerate() {
            // Paths of a user type are the numbers of its fields, some of which may be null.
            let field = path.first_chunk::<2>().map(|two| usize::from(u16::from_be_bytes(*two)));
            let at = field.filter(|_| is_udt).unwrap_or(at);
            let number = |given: Option<&Given>| match given? {
                Given::One(number) => Some(*number),
                Given::Many(numbers) => numbers.get(at).copied().flatten(),
            };
            if let Some(timestamp) = number(self.write) {
                cell.timestamp = TimestampMicros(timestamp);
            }
            if let Some(seconds) = number(self.ttl)
                && !cell.is_tombstone()
            {
                cell.ttl = TtlSeconds(i32::try_from(seconds).unwrap_or(TtlSeconds::MAX.0));
                cell.local = DeletionSeconds(lives.now.0.saturating_add(seconds));
                if cell.local > lives.expiry_max {
                    return Err(format!(
                        "ttl({}): {seconds} seconds from now are after {}, the last second that files of \
                         this version hold",
                        self.name,
                        sstable::offline::micros_text(lives.expiry_max.0.saturating_mul(1_000_000))
                    ));
                }
            }
        }
        Ok(cells)
    }
}

/// A line of JSON without its times, and those.
///
/// # Errors
/// It is no object; a time that is none.
pub(super) fn taken_of_json(table: &Table, json: &str) -> Result<(Option<String>, Times), String> {
    let mut times = Times::default();
    // Most lines have none, and are read once only.
    if !json.contains("writetime(") && !json.contains("ttl(") {
        return Ok((None, times));
    }
    let not_an_object = || "expects an object of JSON".to_owned();
    let mut rest = json.trim().strip_prefix('{').ok_or_else(not_an_object)?.trim_start();
    let mut kept = "{".to_owned();
    while !rest.starts_with('}') {
        let mut names = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        let name = names.next().and_then(Result::ok).ok_or_else(not_an_object)?;
        let (key, behind) = rest.split_at_checked(names.byte_offset()).ok_or_else(not_an_object)?;
        let behind = behind.trim_start().strip_prefix(':').ok_or_else(not_an_object)?.trim_start();
        let mut values = serde_json::Deserializer::from_str(behind).into_iter::<IgnoredAny>();
        values.next().and_then(Result::ok).ok_or_else(not_an_object)?;
        let at = values.byte_offset();
        let (value, behind) = behind.split_at_checked(at).ok_or_else(not_an_object)?;
        match fact_of(table, name.trim_matches('"')) {
            Some((fact, column)) => times.put_json(fact, column, value)?,
            None => {
                if kept.len() > 1 {
                    kept.push_str(", ");
                }
                kept.push_str(key);
                kept.push_str(": ");
                kept.push_str(value);
            }
        }
        rest = behind.trim_start();
        match rest.strip_prefix(',') {
            Some(more) => rest = more.trim_start(),
            None if rest.starts_with('}') => {}
            None => return Err(not_an_object()),
        }
    }
    if !rest.strip_prefix('}').is_some_and(|end| end.trim().is_empty()) {
        return Err(not_an_object());
    }
    kept.push('}');
    Ok((Some(kept), times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_of_a_row_is_the_greatest_of_its_values_when_any_has_a_time() {
        let cell = |timestamp, ttl| CellRef {
            ttl: TtlSeconds(ttl),
            local: if ttl == 0 { DeletionSeconds::NONE } else { DeletionSeconds(1000) },
            ..CellRef::live(TimestampMicros(timestamp), &[])
        };
        let planned = Liveness::new(TimestampMicros(50));
        let of =
            |timed, cells: &[(&[u8], CellRef<'_>)]| marker(planned, [(timed, cells)].into_iter());
        let cells: [(&[u8], _); 2] = [(&[], cell(7, 0)), (&[], cell(9, 5))];
        assert_eq!(of(false, &cells), planned);
        let expires_at = DeletionSeconds(1000);
        let latest = Liveness { timestamp: TimestampMicros(9), ttl: TtlSeconds(5), expires_at };
        assert_eq!(of(true, &cells), latest);
        assert_eq!(of(true, &cells[..1]), Liveness::new(TimestampMicros(7)));
        let deleted = CellRef::tombstone(TimestampMicros(99), DeletionSeconds(1));
        assert_eq!(of(true, &[(&[], deleted)]), planned);
        // A static row has none.
        assert_eq!(marker(Liveness::NONE, [(true, &cells[..])].into_iter()), Liveness::NONE);
    }
}
