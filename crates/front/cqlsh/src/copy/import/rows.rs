//! Records of a chunk to bound values, or to literals where statements are not prepared.
//!
//! Owns: the values of all rows of a chunk in one buffer, the key of a row for its token. Never:
//! batches, connections.

use crate::copy::import::source::Chunk;
use crate::copy::import::worker::Job;
use crate::schema::Role;

/// A chunk whose records became values.
pub(super) struct Rows {
    chunk: Chunk,
    /// For each row the index of its record.
    records: Vec<usize>,
    /// Number of values of a row; with literals, followed by the key's values, as they are hashed.
    width: usize,
    bytes: Vec<u8>,
    /// Position of each value in `bytes`; `None` is null.
    cells: Vec<Option<(usize, usize)>>,
}

/// Records that cannot be read, by error text.
pub(super) type Unreadable = Vec<(String, Vec<Vec<u8>>)>;

impl Rows {
    /// Converts all records.
    pub(super) fn parse(job: &Job<'_>, chunk: Chunk) -> (Rows, Unreadable) {
        let statement = job.statement;
        let of_key = if statement.is_literal() { statement.key_fields.len() } else { 0 };
        let width = statement.kinds.len() + of_key;
        let mut rows = Rows {
            records: Vec::with_capacity(chunk.ends.len()),
            width,
            bytes: Vec::with_capacity(chunk.bytes.len()),
            cells: Vec::with_capacity(chunk.ends.len() * width),
            chunk,
        };
        let mut unreadable: Unreadable = Vec::new();
        let mut fields = Vec::new();
        for index in 0..rows.chunk.ends.len() {
            let record = rows.chunk.record(index);
            job.options.dialect.fields(record, &mut fields);
            let (bytes, cells) = (rows.bytes.len(), rows.cells.len());
            match values(job, &fields, &mut rows.bytes, &mut rows.cells) {
                Ok(()) => rows.records.push(index),
                Err(text) => {
                    rows.bytes.truncate(bytes);
                    rows.cells.truncate(cells);
                    match unreadable.iter_mut().find(|(known, _)| *known == text) {
                        Some((_, records)) => records.push(record.to_vec()),
                        None => unreadable.push((text, vec![record.to_vec()])),
                    }
                }
            }
        }
        (rows, unreadable)
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// A value of a row; `None` is null.
    pub(super) fn value(&self, row: usize, field: usize) -> Option<&[u8]> {
        let (start, end) = (*self.cells.get(row * self.width + field)?)?;
        self.bytes.get(start..end)
    }

    /// The record that a row is from.
    pub(super) fn record(&self, row: usize) -> &[u8] {
        self.records.get(row).map_or(&[], |index| self.chunk.record(*index))
    }

    /// The partition key of a row as it is hashed for its token.
    pub(super) fn key(&self, row: usize, fields: &[usize], key: &mut Vec<u8>) {
        key.clear();
        for field in fields {
            let value = self.value(row, *field).unwrap_or_default();
            cql_client::push_key_part(value, fields.len(), key);
        }
    }
}

fn values(
    job: &Job<'_>,
    fields: &[Vec<u8>],
    bytes: &mut Vec<u8>,
    cells: &mut Vec<Option<(usize, usize)>>,
) -> Result<(), String> {
    let Job { statement, conversion, keep, .. } = job;
    // Fields of skipped columns may be there; with more or fewer fields all are counted.
    let kept = || {
        let with_place = fields.iter().enumerate();
        with_place.filter(|(at, _)| keep.get(*at).copied().unwrap_or(true)).map(|(_, field)| field)
    };
    let (found, wanted) = (kept().count(), statement.kinds.len());
    if found != wanted {
        return Err(format!("Invalid row length {found} should be {wanted}"));
    }
    for (at, (field, kind)) in kept().zip(&statement.kinds).enumerate() {
        if field.len() > job.field_bytes_max {
            let most = job.field_bytes_max;
            return Err(format!("field larger than field limit ({most})"));
        }
        let text = std::str::from_utf8(field).map_err(|_| "a field is not UTF-8".to_owned())?;
        let is_key =
            matches!(statement.roles.get(at), Some(Some(Role::Partition | Role::Clustering)));
        let start = bytes.len();
        let is_there = match statement.is_literal() {
            true => conversion.literal(kind, text, bytes),
            false => conversion.field(kind, text, bytes)?,
        };
        if is_key && !is_there {
            return Err(null_key(statement.columns.get(at), &conversion.null));
        }
        cells.push(is_there.then_some((start, bytes.len())));
    }
    if statement.is_literal() {
        for at in &statement.key_fields {
            let (Some(field), Some(kind)) = (kept().nth(*at), statement.kinds.get(*at)) else {
                continue;
            };
            let text = std::str::from_utf8(field).map_err(|_| "a field is not UTF-8".to_owned())?;
            let start = bytes.len();
            let is_there = conversion.field(kind, text, bytes)?;
            cells.push(is_there.then_some((start, bytes.len())));
        }
    }
    Ok(())
}

fn null_key(column: Option<&String>, null: &str) -> String {
    let mut text = format!(
        "Cannot insert null value for primary key column '{}'.",
        column.map_or("", String::as_str)
    );
    if null.is_empty() {
        text.push_str(
            " If you want to insert empty strings, consider using the WITH NULL=<marker> option \
             for COPY.",
        );
    }
    text
}
