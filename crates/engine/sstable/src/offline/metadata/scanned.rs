//! Counts from a scan of every row: `sstablemetadata -s`.

use std::sync::Arc;

use data::command::KeyRange;
use data::row::{CellRef, ColumnRef};
use data::{Advance, Cursor, Item, RowRef, Slices};

use super::bytes_text;
use super::text::Text;
use crate::offline::key_text;
use crate::{Result, SstableReader};

/// Partitions that are named for each of the three reasons.
const LEADERS: usize = 5;
/// Items between two progress reports.
const ITEMS_PER_TOLD: u32 = 1024;
/// Overhead of a row, a cell and a collection beside their values, as Cassandra counts it in memory
/// (`Row.dataSize`).
const DELETION_BYTES: u64 = 12;
const ROW_DELETION_BYTES: u64 = DELETION_BYTES + 1;
const LIVENESS_BYTES: u64 = 8;
const EXPIRING_LIVENESS_BYTES: u64 = 20;
const CELL_BYTES: u64 = 20;

/// Keys with numbers, the largest first; of equal ones those first that were met first.
#[derive(Debug, Default)]
struct Leaders(Vec<(u64, Vec<u8>)>);

impl Leaders {
    fn add(&mut self, value: u64, key: &[u8]) {
        let at = self.0.partition_point(|(other, _)| *other >= value);
        if at < LEADERS {
            self.0.insert(at, (value, key.to_vec()));
            self.0.truncate(LEADERS);
        }
    }
}

/// Counts of a file's scan.
#[derive(Debug, Default)]
pub struct ScannedOverview {
    bytes: u64,
    partitions: u64,
    /// Static rows too.
    rows: u64,
    /// Tombstones of partitions, of ranges, and of cells of rows that are not static.
    tombstones: u64,
    /// Cells of rows that are not static.
    cells: u64,
    widest: Leaders,
    largest: Leaders,
    most_tombstones: Leaders,
}

/// One partition.
#[derive(Default)]
struct Partition {
    key: Vec<u8>,
    rows: u64,
    bytes: u64,
    tombstones: u64,
}

/// Reads all rows of a file. `at` receives the (uncompressed) bytes done and their total.
///
/// # Errors
/// `Corrupt`, `Io`.
pub async fn scan_overview(
    reader: &SstableReader,
    at: &mut dyn FnMut(u64, u64),
) -> Result<ScannedOverview> {
    let total = reader.meta().data_length();
    let mut overview = ScannedOverview { bytes: total, ..ScannedOverview::default() };
    let mut blocks = reader.sequential();
    let mut cursor = reader.range_cursor(0, KeyRange::all(), Arc::new(Slices::all()), None);
    let mut partition = Partition::default();
    let mut items = 0;
    loop {
        match cursor.advance()? {
            Advance::NeedBlock(request) => {
                let chunk = blocks.load_block(request.block).await?;
                cursor.feed(request.block, chunk);
                continue;
            }
            Advance::End => return Ok(overview),
            Advance::Item => {}
        }
        items += 1;
        if items >= ITEMS_PER_TOLD {
            items = 0;
            at(cursor.position(), total);
        }
        match cursor.item() {
            Item::Partition { key, deletion, .. } => {
                let tombstones = u64::from(!deletion.is_live());
                partition = Partition { key: key.to_vec(), tombstones, ..Partition::default() };
            }
            Item::Static(row) => {
                partition.rows += 1;
                partition.bytes += row_bytes(&[], row);
            }
            Item::Row { clustering, row } => {
                partition.rows += 1;
                partition.bytes += row_bytes(clustering, row);
                each_cell(row, &mut |cell, _| {
                    overview.cells += 1;
                    partition.tombstones += u64::from(cell.is_tombstone());
                });
            }
            Item::Marker(_) => partition.tombstones += 1,
            Item::PartitionEnd => overview.end(&partition),
        }
    }
}

/// Calls `visit` with each cell of a row and the bytes of its path in a collection.
fn each_cell(row: RowRef<'_>, visit: &mut dyn FnMut(&CellRef<'_>, u64)) {
    for (_, column) in row.parts().2 {
        match column {
            ColumnRef::Simple(cell) => visit(&cell, 0),
            ColumnRef::Complex(complex) => {
                for (path, cell) in complex.cells() {
                    visit(&cell, path.len() as u64);
                }
            }
        }
    }
}

fn row_bytes(clustering: &[u8], row: RowRef<'_>) -> u64 {
    let (liveness, _, columns) = row.parts();
    let clustering = data::clustering::components(clustering);
    let mut bytes: u64 = clustering.map(|value| value.map_or(0, <[u8]>::len) as u64).sum();
    bytes += ROW_DELETION_BYTES;
    bytes += if liveness.is_expiring() { EXPIRING_LIVENESS_BYTES } else { LIVENESS_BYTES };
    let collections = columns.filter(|(_, column)| matches!(column, ColumnRef::Complex(_)));
    bytes += collections.count() as u64 * DELETION_BYTES;
    each_cell(row, &mut |cell, path| bytes += CELL_BYTES + cell.value.len() as u64 + path);
    bytes
}

impl ScannedOverview {
    fn end(&mut self, of: &Partition) {
        self.partitions += 1;
        self.rows += of.rows;
        self.tombstones += of.tombstones;
        self.widest.add(of.rows, &of.key);
        self.largest.add(of.bytes, &of.key);
        self.most_tombstones.add(of.tombstones, &of.key);
    }

    pub(super) fn print(&self, reader: &SstableReader, out: &mut Text) {
        let types = &reader.meta().statistics().header.key_types;
        for (name, value) in [
            ("Size", self.bytes),
            ("Partitions", self.partitions),
            ("Rows", self.rows),
            ("Tombstones", self.tombstones),
            ("Cells", self.cells),
        ] {
            out.field(name, &value.to_string());
        }
        out.field("Widest Partitions", "");
        for (rows, key) in &self.widest.0 {
            out.leader(&key_text(types, key), *rows, None);
        }
        out.field("Largest Partitions", "");
        for (bytes, key) in &self.largest.0 {
            let words = bytes_text(*bytes);
            out.leader(&key_text(types, key), *bytes, Some(words.as_deref().unwrap_or("null")));
        }
        let mut leaders = out.alike();
        for (count, key) in self.most_tombstones.0.iter().filter(|(count, _)| *count > 0) {
            leaders.leader(&key_text(types, key), *count, None);
        }
        // A shorter list is none to the tool: the one partition with a short key.
        if leaders.out.len() > 10 {
            out.field("Tombstone Leaders", "");
            out.out.push_str(&leaders.out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_lead_and_of_equal_ones_the_first() {
        let mut leaders = Leaders::default();
        for (value, key) in
            [(1, b"a"), (7, b"b"), (3, b"c"), (1, b"d"), (9, b"e"), (3, b"f"), (2, b"g")]
        {
            leaders.add(value, key);
        }
        let found: Vec<&[u8]> = leaders.0.iter().map(|(_, key)| key.as_slice()).collect();
        assert_eq!(found, [b"e", b"b", b"c", b"f", b"g"]);
    }
}
