//! `sstabledump -d`: a line for each partition deletion, row and marker, as the storage engine has
//! them. Source: `tools.SSTableExport`, `db.rows.AbstractRow.toString` and its neighbours.

use std::fmt::Write;

use data::row::{CellRef, ColumnRef};
use data::{DeletionTime, Item, Marker, RowRef};
use schema::Table;
use sst_format::header::SerializationHeader;
use types::CqlType;

/// Lines of one file after the other.
pub(super) struct Lines<'f> {
    table: &'f Table,
    header: &'f SerializationHeader,
    /// Text of the key of the partition.
    key: String,
    /// Deletion of a partition whose rows have not begun: their position follows.
    deletion: Option<DeletionTime>,
}

impl<'f> Lines<'f> {
    pub(super) fn new(table: &'f Table, header: &'f SerializationHeader) -> Lines<'f> {
        Lines { table, header, key: String::new(), deletion: None }
    }

    /// The lines of an item; `rows_start`: where the rows of its partition begin, `start`: where it
    /// begins itself.
    pub(super) fn item(&mut self, item: Item<'_>, rows_start: u64, start: u64) -> String {
        let mut out = String::new();
        if let Item::Partition { key, deletion, .. } = item {
            self.key = super::key_text(&self.header.key_types, key);
            self.deletion = Some(deletion);
            return out;
        }
        if let Some(deletion) = self.deletion.take().filter(|deletion| !deletion.is_live()) {
            self.line(&mut out, rows_start, &deletion_text(&deletion));
        }
        match item {
            Item::Partition { .. } | Item::PartitionEnd => {}
            Item::Static(row) => {
                if !is_empty(row) {
                    self.line(&mut out, rows_start, &self.row("STATIC", row));
                }
            }
            Item::Row { clustering, row } => {
                let literals = self.values(clustering, CqlType::format_cql_literal);
                self.line(&mut out, start, &self.row(&literals, row));
            }
            Item::Marker(marker) => self.line(&mut out, start, &self.marker(&marker)),
        }
        out
    }

    fn line(&self, out: &mut String, position: u64, text: &str) {
        let _ = writeln!(out, "[{}]@{position} {text}", self.key);
    }

    /// The values of a clustering or bound.
    fn values(&self, prefix: &[u8], text: fn(&CqlType, &[u8]) -> String) -> String {
        let columns = self.table.clustering().iter();
        let values = columns.zip(data::clustering::components(prefix));
        let texts: Vec<String> = values
            .map(|(column, value)| value.map_or("null".to_owned(), |value| text(&column.ty, value)))
            .collect();
        texts.join(", ")
    }

    fn row(&self, clustering: &str, row: RowRef<'_>) -> String {
        let liveness = row.liveness();
        let mut out = format!("Row[info=[ts={}", liveness.timestamp.0);
        if liveness.is_expiring() {
            let _ = write!(out, " ttl={}, let={}", liveness.ttl.0, liveness.expires_at.0);
        }
        out.push(']');
        if !row.deletion().is_live() {
            let _ = write!(out, " del={}", deletion_text(&row.deletion()));
        }
        let _ = write!(out, " ]: {clustering} | ");
        for (n, (id, column)) in row.columns().enumerate() {
            let Some(of_table) = self.table.column_by_id(id) else { continue };
            if n > 0 {
                out.push_str(", ");
            }
            match column {
                ColumnRef::Simple(cell) => {
                    cell_text(&of_table.name, None, &of_table.ty, &cell, &mut out)
                }
                ColumnRef::Complex(complex) => {
                    if !complex.deletion.is_live() {
                        let text = deletion_text(&complex.deletion);
                        let _ = write!(out, "del({})={text}", of_table.name);
                    }
                    for (path, cell) in complex.cells() {
                        out.push_str(", ");
                        cell_text(&of_table.name, Some(path), &of_table.ty, &cell, &mut out);
                    }
                }
            }
        }
        out
    }

    fn marker(&self, marker: &Marker<'_>) -> String {
        let after = marker.position.after;
        let kind = match (marker.close.is_some(), marker.open.is_some(), after) {
            (true, true, false) => "EXCL_END_INCL_START_BOUNDARY",
            (true, true, true) => "INCL_END_EXCL_START_BOUNDARY",
            (true, false, false) => "EXCL_END_BOUND",
            (true, false, true) => "INCL_END_BOUND",
            (false, _, false) => "INCL_START_BOUND",
            (false, _, true) => "EXCL_START_BOUND",
        };
        let values = self.values(marker.position.prefix, CqlType::format_plain);
        let deletions: Vec<String> = [marker.close, marker.open]
            .into_iter()
            .flatten()
            .map(|deletion| format!("{}/{}", deletion.timestamp.0, deletion.local.0))
            .collect();
        format!("Marker {kind}({values})@{}", deletions.join("-"))
    }
}

fn is_empty(row: RowRef<'_>) -> bool {
    let is_bare = row.liveness().is_empty() && row.deletion().is_live();
    is_bare && row.columns().next().is_none()
}

fn deletion_text(deletion: &DeletionTime) -> String {
    format!("deletedAt={}, localDeletion={}", deletion.timestamp.0, deletion.local.0)
}

fn cell_text(name: &str, path: Option<&[u8]>, ty: &CqlType, cell: &CellRef<'_>, out: &mut String) {
    let timestamp = cell.timestamp.0;
    if ty.is_counter() && !cell.is_tombstone() {
        let total = data::counter::total(cell.value);
        let _ = write!(out, "[{name}={total} ts={timestamp}]");
        return;
    }
    let (path, of_value) = match (ty, path) {
        (CqlType::List { element, .. }, Some(path)) => {
            (format!("[{}]", CqlType::Timeuuid.format_plain(path)), Some(&**element))
        }
        (CqlType::Set { element, .. }, Some(path)) => {
            (format!("[{}]", element.format_plain(path)), Some(&CqlType::Empty))
        }
        (CqlType::Map { key, value, .. }, Some(path)) => {
            (format!("[{}]", key.format_plain(path)), Some(&**value))
        }
        // Cassandra takes the value of a field for one of the whole type, and shows the bytes when
        // it is none.
        _ => (String::new(), Some(ty).filter(|ty| ty.validate(cell.value).is_ok())),
    };
    let value = match of_value {
        _ if cell.is_tombstone() => "<tombstone>".to_owned(),
        Some(ty) => ty.format_plain(cell.value),
        None => format!("0x{}", CqlType::Blob.format_plain(cell.value)),
    };
    let _ = write!(out, "[{name}{path}={value} ts={timestamp}");
    if cell.is_expiring() {
        let _ = write!(out, " ttl={}", cell.ttl.0);
    }
    if cell.is_expiring() || cell.is_tombstone() {
        let _ = write!(out, " ldt={}", cell.local.0);
    }
    out.push(']');
}
