//! `sstabledump`. Source: `tools.JsonTransformer`.

use std::ops::ControlFlow;
use std::sync::Arc;

use data::command::KeyRange;
use data::row::{CellRef, ColumnRef};
use data::{Advance, BoundRef, Cursor, DeletionTime, Item, Liveness, Marker, RowRef, Slices};
use schema::Table;
use stdx::{ColumnId, DeletionSeconds};
use types::CqlType;

use crate::offline::internal::Lines;
use crate::offline::json::Json;
use crate::{Result, SstableReader};

/// Selection and format of a dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DumpOptions {
    /// Keys of the partitions wanted, serialised; empty: all.
    pub keys: Vec<Vec<u8>>,
    /// Texts of keys that are left out.
    pub excluded: Vec<String>,
    /// The form.
    pub form: DumpForm,
    /// Times are numbers as in the file (microseconds, seconds), in quotes.
    pub raw_times: bool,
}

/// The form of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DumpForm {
    /// An array of partitions, indented.
    #[default]
    Pretty,
    /// A line for each partition.
    Lines,
    /// An array of partition keys.
    Keys,
    /// A line for each deletion of a partition, row and marker, not JSON.
    Internal,
}

/// Passes the whole file to `out` as JSON, piece by piece, as `sstabledump` prints it. `now`
/// decides which cells are shown as expired. The reader must have been opened without a table:
/// columns are named as
/// in the file, dropped ones too.
///
/// # Errors
/// `Corrupt` or `Io` of reading.
pub async fn dump_json(
    reader: &SstableReader,
    now: DeletionSeconds,
    out: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut out = |text: &str| {
        out(text);
        ControlFlow::Continue(())
    };
    let to = DumpTo { out: &mut out, at: &mut |_, _| () };
    dump_with(reader, now, &DumpOptions::default(), to).await
}

/// Receivers of a dump.
pub struct DumpTo<'t> {
    /// Gets the text piece by piece; nothing more is read once it has enough.
    pub out: &'t mut dyn FnMut(&str) -> ControlFlow<()>,
    /// Called repeatedly with the (uncompressed) bytes done and their total.
    pub at: &'t mut dyn FnMut(u64, u64),
}

/// Like [`dump_json`], as the options say.
///
/// # Errors
/// `Corrupt` or `Io` of reading.
pub async fn dump_with(
    reader: &SstableReader,
    now: DeletionSeconds,
    options: &DumpOptions,
    DumpTo { out, at }: DumpTo<'_>,
) -> Result<()> {
    let meta = reader.meta();
    let table = super::table_of_header(&meta.statistics().header);
    let mut keys: Vec<_> = options.keys.iter().map(|key| (meta.token_of(key), key)).collect();
    keys.sort();
    keys.dedup();
    let mut ranges: Vec<KeyRange> =
        keys.into_iter().map(|(token, key)| super::range_of_key(token, key)).collect();
    if ranges.is_empty() {
        ranges.push(KeyRange::all());
    }
    let lines = matches!(options.form, DumpForm::Lines | DumpForm::Internal);
    let mut internal =
        (options.form == DumpForm::Internal).then(|| Lines::new(&table, &meta.statistics().header));
    let json = Json::new(lines);
    let raw_times = options.raw_times;
    let mut dump = Dump { table: table.clone(), now, json, raw_times, pending: None };
    if !lines {
        dump.json.start_array();
    }
    let mut blocks = reader.sequential();
    let mut is_first = true;
    for range in ranges {
        let mut cursor = reader.range_cursor(0, range, Arc::new(Slices::all()), None);
        loop {
            match cursor.advance()? {
                Advance::NeedBlock(request) => {
                    at(cursor.position(), meta.data_length());
                    let chunk = blocks.load_block(request.block).await?;
                    cursor.feed(request.block, chunk);
                }
                Advance::Item => {
                    if let Item::Partition { key, .. } = cursor.item() {
                        let text = || super::key_text(&meta.statistics().header.key_types, key);
                        if !options.excluded.is_empty() && options.excluded.contains(&text()) {
                            cursor.skip_partition();
                            continue;
                        }
                        if options.form == DumpForm::Keys {
                            dump.key(key);
                            if out(&dump.json.take()).is_break() {
                                return Ok(());
                            }
                            cursor.skip_partition();
                            continue;
                        }
                        if lines && internal.is_none() && !std::mem::take(&mut is_first) {
                            // The next piece reports if this one was too much.
                            let _ = out("\n");
                        }
                    }
                    let (rows_start, start) = (cursor.rows_start(), cursor.item_start());
                    let text = match &mut internal {
                        Some(internal) => internal.item(cursor.item(), rows_start, start),
                        None => {
                            dump.item(cursor.item(), rows_start, start);
                            dump.json.take()
                        }
                    };
                    if out(&text).is_break() {
                        return Ok(());
                    }
                }
                Advance::End => break,
            }
        }
    }
    if !lines {
        dump.json.end_array();
        let _ = out(&dump.json.take());
    }
    Ok(())
}

struct Dump {
    table: Table,
    now: DeletionSeconds,
    json: Json,
    raw_times: bool,
    /// A partition whose rows have not begun: they follow its position.
    pending: Option<(Vec<u8>, DeletionTime)>,
}

impl Dump {
    fn micros(&mut self, micros: i64) {
        let text = if self.raw_times { micros.to_string() } else { micros_text(micros) };
        self.json.string(&text);
    }

    fn seconds(&mut self, seconds: i64) {
        let text = if self.raw_times { seconds.to_string() } else { seconds_text(seconds) };
        self.json.string(&text);
    }

    fn item(&mut self, item: Item<'_>, rows_start: u64, start: u64) {
        if let Item::Partition { key, deletion, .. } = item {
            self.pending = Some((key.to_vec(), deletion));
            return;
        }
        if let Some((key, deletion)) = self.pending.take() {
            self.partition(&key, &deletion, rows_start);
        }
        match item {
            Item::Partition { .. } => {}
            Item::Static(row) => self.row(None, row, rows_start),
            Item::Row { clustering, row } => self.row(Some(clustering), row, start),
            Item::Marker(marker) => self.marker(&marker),
            Item::PartitionEnd => {
                self.json.end_array();
                self.json.end_object();
            }
        }
    }

    fn partition(&mut self, key: &[u8], deletion: &DeletionTime, position: u64) {
        self.json.start_object();
        self.json.field("table kind", "\"REGULAR\"");
        self.json.name("partition");
        self.json.start_object();
        self.json.name("key");
        self.key(key);
        self.json.field("position", &position.to_string());
        if !deletion.is_live() {
            self.deletion(deletion);
        }
        self.json.end_object();
        self.json.name("rows");
        self.json.start_array();
    }

    fn key(&mut self, key: &[u8]) {
        let columns = self.table.partition_key();
        self.json.compact_objects = true;
        self.json.compact_arrays = true;
        self.json.start_array();
        if let [column] = columns {
            self.json.string(&column.ty.format_plain(key));
        } else {
            let mut r = codec::Reader::new(key, "composite key");
            for column in columns {
                let Ok(value) = r.bytes_u16() else { break };
                self.json.string(&column.ty.format_plain(value));
                if r.u8() != Ok(0) {
                    break;
                }
            }
        }
        self.json.end_array();
        self.json.compact_objects = false;
        self.json.compact_arrays = false;
    }

    fn row(&mut self, clustering: Option<&[u8]>, row: RowRef<'_>, position: u64) {
        self.json.start_object();
        let kind = if clustering.is_some() { "\"row\"" } else { "\"static_block\"" };
        self.json.field("type", kind);
        self.json.field("position", &position.to_string());
        if let Some(clustering) = clustering {
            self.clustering(clustering);
        }
        let liveness = row.liveness();
        if !liveness.is_empty() {
            self.json.compact_objects = false;
            self.json.name("liveness_info");
            self.json.compact_objects = true;
            self.json.start_object();
            self.json.name("tstamp");
            self.micros(liveness.timestamp.0);
            if liveness.is_expiring() {
                self.expiry(liveness.ttl.0, liveness.expires_at, liveness.expires_at < self.now);
            }
            self.json.end_object();
            self.json.compact_objects = false;
        }
        if !row.deletion().is_live() {
            self.deletion(&row.deletion());
        }
        self.json.name("cells");
        self.json.start_array();
        // Ids of the made-up table are positions in the file, so this is the file's order.
        for (id, column) in row.columns() {
            self.column(id, column, &liveness);
        }
        self.json.end_array();
        self.json.end_object();
    }

    fn expiry(&mut self, ttl: i32, expires: DeletionSeconds, expired: bool) {
        self.json.field("ttl", &ttl.to_string());
        self.json.name("expires_at");
        self.seconds(expires.0);
        self.json.field("expired", if expired { "true" } else { "false" });
    }

    fn clustering(&mut self, prefix: &[u8]) {
        if prefix.is_empty() {
            return;
        }
        self.json.name("clustering");
        self.json.compact_objects = true;
        self.json.start_array();
        self.json.compact_arrays = true;
        let mut values = data::clustering::components(prefix);
        for column in self.table.clustering() {
            match values.next() {
                Some(value) => {
                    let text = value.map_or("null".to_owned(), |v| column.ty.to_json(v));
                    self.json.raw(&text);
                }
                None => self.json.string("*"),
            }
        }
        self.json.end_array();
        self.json.compact_objects = false;
        self.json.compact_arrays = false;
    }

    fn deletion(&mut self, deletion: &DeletionTime) {
        self.json.name("deletion_info");
        self.json.compact_objects = true;
        self.json.start_object();
        self.json.name("marked_deleted");
        self.micros(deletion.timestamp.0);
        self.json.name("local_delete_time");
        self.seconds(deletion.local.0);
        self.json.end_object();
        self.json.compact_objects = false;
    }

    fn column(&mut self, id: ColumnId, column: ColumnRef<'_>, liveness: &Liveness) {
        let Some((name, ty)) = self
            .table
            .column_by_id(id)
            .map(|c| (types::name::quote_identifier(&c.name), c.ty.clone()))
        else {
            return;
        };
        match column {
            ColumnRef::Simple(cell) => self.cell(&name, None, &ty, &cell, liveness),
            ColumnRef::Complex(complex) => {
                if !complex.deletion.is_live() {
                    self.json.compact_objects = true;
                    self.json.start_object();
                    self.json.name("name");
                    self.json.string(&name);
                    self.deletion(&complex.deletion);
                    self.json.compact_objects = true;
                    self.json.end_object();
                    self.json.compact_objects = false;
                }
                for (path, cell) in complex.cells() {
                    let (path, ty) = path_and_type(&ty, path);
                    self.cell(&name, Some(&path), &ty, &cell, liveness);
                }
            }
        }
    }

    fn cell(
        &mut self,
        name: &str,
        path: Option<&str>,
        ty: &CqlType,
        cell: &CellRef<'_>,
        liveness: &Liveness,
    ) {
        self.json.start_object();
        self.json.compact_objects = true;
        self.json.name("name");
        self.json.string(name);
        if let Some(path) = path {
            self.json.name("path");
            self.json.compact_arrays = true;
            self.json.start_array();
            self.json.string(path);
            self.json.end_array();
            self.json.compact_arrays = false;
        }
        if cell.is_tombstone() {
            self.json.name("deletion_info");
            self.json.compact_objects = true;
            self.json.start_object();
            self.json.name("local_delete_time");
            self.seconds(cell.local.0);
            self.json.end_object();
            self.json.compact_objects = false;
        } else {
            self.json.name("value");
            // Cassandra's tool shows the first bytes of the context instead.
            self.json.raw(&match ty.is_counter() {
                true => data::counter::total(cell.value).to_string(),
                false => ty.to_json(cell.value),
            });
        }
        if liveness.is_empty() || cell.timestamp != liveness.timestamp {
            self.json.name("tstamp");
            self.micros(cell.timestamp.0);
        }
        if cell.is_expiring() && (liveness.is_empty() || cell.ttl != liveness.ttl) {
            self.expiry(cell.ttl.0, cell.local, !cell.is_live(self.now));
        }
        self.json.end_object();
        self.json.compact_objects = false;
    }

    fn marker(&mut self, marker: &Marker<'_>) {
        self.json.start_object();
        let both = marker.close.is_some() && marker.open.is_some();
        let kind = if both { "\"range_tombstone_boundary\"" } else { "\"range_tombstone_bound\"" };
        self.json.field("type", kind);
        if let Some(open) = marker.open {
            // A start after the prefix leaves the prefix out.
            self.bound("start", !marker.position.after, marker.position, &open);
        }
        if let Some(close) = marker.close {
            self.bound("end", marker.position.after, marker.position, &close);
        }
        self.json.end_object();
        self.json.compact_objects = false;
    }

    fn bound(&mut self, name: &str, inclusive: bool, at: BoundRef<'_>, deletion: &DeletionTime) {
        self.json.name(name);
        self.json.start_object();
        self.json.field("type", if inclusive { "\"inclusive\"" } else { "\"exclusive\"" });
        self.clustering(at.prefix);
        self.deletion(deletion);
        self.json.end_object();
    }
}

/// Text of a cell's path and the type of its value.
fn path_and_type(ty: &CqlType, path: &[u8]) -> (String, CqlType) {
    match ty {
        CqlType::List { element, .. } => {
            (CqlType::Timeuuid.format_plain(path), (**element).clone())
        }
        CqlType::Set { element, .. } => (element.format_plain(path), CqlType::Empty),
        CqlType::Map { key, value, .. } => (key.format_plain(path), (**value).clone()),
        CqlType::Udt(udt) => {
            let position =
                path.try_into().map_or(usize::MAX, |b| usize::from(u16::from_be_bytes(b)));
            match udt.fields.get(position) {
                Some((name, ty)) => (name.clone(), ty.clone()),
                None => (CqlType::Blob.format_plain(path), CqlType::Blob),
            }
        }
        other => (CqlType::Blob.format_plain(path), other.clone()),
    }
}

/// Microseconds since 1970 as `Instant.toString` shows them.
pub fn micros_text(micros: i64) -> String {
    let nanos = micros.saturating_mul(1000).rem_euclid(1_000_000_000);
    // Cassandra rounds whole seconds towards zero here.
    instant_text(micros / 1_000_000, nanos)
}

/// Seconds since 1970 as `Instant.toString` shows them.
pub(crate) fn seconds_text(seconds: i64) -> String {
    instant_text(seconds, 0)
}

fn instant_text(seconds: i64, nanos: i64) -> String {
    let (year, month, day) = types::temporal::civil_from_days(seconds.div_euclid(86_400));
    let s = seconds.rem_euclid(86_400);
    let mut out = String::new();
    if (0..=9999).contains(&year) {
        out.push_str(&format!("{year:04}"));
    } else {
        out.push_str(&format!("{year:+05}"));
    }
    out.push_str(&format!("-{month:02}-{day:02}T{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60));
    if nanos != 0 {
        let digits = format!("{nanos:09}");
        let groups = if nanos % 1_000_000 == 0 {
            3
        } else if nanos % 1000 == 0 {
            6
        } else {
            9
        };
        out.push('.');
        out.push_str(digits.get(..groups).unwrap_or(&digits));
    }
    out.push('Z');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_shown_with_as_many_digits_as_needed_in_groups_of_three() {
        assert_eq!(micros_text(1_700_000_000_000_001), "2023-11-14T22:13:20.000001Z");
        assert_eq!(micros_text(1_700_000_000_120_000), "2023-11-14T22:13:20.120Z");
        assert_eq!(micros_text(1_700_000_000_000_000), "2023-11-14T22:13:20Z");
        assert_eq!(seconds_text(253_402_300_800), "+10000-01-01T00:00:00Z");
    }
}
