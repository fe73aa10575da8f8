//! Items of a file to mutations, cut to a bounded size; nothing of a deletion is lost at a cut.

use std::sync::Arc;

use admin::model::LOAD_MUTATIONS_MAX;
use data::clustering::BoundRef;
use data::counter::{ShardKind, shards};
use data::mutation::{MutationBuilder, RangeTombstoneRef};
use data::row::ColumnRef;
use data::{DeletionTime, Item, Marker, RowRef};
use schema::Table;

/// A mutation is ended when it is larger.
const MUTATION_BYTES: usize = 128 << 10;
/// A request is sent when it is larger.
const BATCH_BYTES: usize = 512 << 10;

/// A range deletion that was ended.
struct Range {
    start: (Vec<u8>, bool),
    end: (Vec<u8>, bool),
    deletion: DeletionTime,
}

/// Part of one partition that is sent with the next mutation.
#[derive(Default)]
struct Part {
    key: Vec<u8>,
    deletion: Option<DeletionTime>,
    static_row: Option<Vec<u8>>,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    ranges: Vec<Range>,
    /// Where the range deletion began that is open.
    open: Option<((Vec<u8>, bool), DeletionTime)>,
    bytes: usize,
}

impl Part {
    fn is_empty(&self) -> bool {
        self.deletion.is_none()
            && self.static_row.is_none()
            && self.rows.is_empty()
            && self.ranges.is_empty()
    }
}

/// Gathers mutations of one table.
pub(super) struct Mutations<'t> {
    table: &'t Arc<Table>,
    part: Part,
    /// Mutations, each preceded by its length.
    batch: Vec<u8>,
    count: usize,
}

/// The position of an item: the file, and the offset in its data.
#[derive(Clone, Copy)]
pub(super) struct ItemPlace<'a> {
    pub(super) file: &'a str,
    pub(super) position: u64,
}

impl<'t> Mutations<'t> {
    pub(super) fn new(table: &'t Arc<Table>) -> Mutations<'t> {
        Mutations { table, part: Part::default(), batch: Vec::new(), count: 0 }
    }

    /// Adds the next item; the place is for errors.
    ///
    /// # Errors
    /// The item that cannot be sent, and its place.
    pub(super) fn item(&mut self, item: Item<'_>, place: ItemPlace<'_>) -> Result<(), String> {
        match item {
            Item::Partition { key, deletion, .. } => {
                self.end_part();
                self.part = Part { key: key.to_vec(), ..Part::default() };
                if !deletion.is_live() {
                    self.part.deletion = Some(deletion);
                }
            }
            Item::Static(row) => {
                self.check(row, place)?;
                self.part.bytes += row.bytes().len();
                self.part.static_row = Some(row.bytes().to_vec());
            }
            Item::Row { clustering, row } => {
                self.check(row, place)?;
                self.part.bytes += clustering.len() + row.bytes().len();
                self.part.rows.push((clustering.to_vec(), row.bytes().to_vec()));
            }
            Item::Marker(marker) => self.marker(&marker),
            Item::PartitionEnd => self.end_part(),
        }
        if self.part.bytes > MUTATION_BYTES {
            self.cut();
        }
        Ok(())
    }

    /// Returns the batch if it is full.
    pub(super) fn take_full(&mut self) -> Option<Vec<u8>> {
        let is_full = self.batch.len() > BATCH_BYTES || self.count == LOAD_MUTATIONS_MAX;
        if is_full { self.take() } else { None }
    }

    /// Returns the remaining batch at the end of the file.
    pub(super) fn take_rest(&mut self) -> Option<Vec<u8>> {
        self.end_part();
        self.take()
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        self.count = 0;
        Some(std::mem::take(&mut self.batch)).filter(|batch| !batch.is_empty())
    }

    fn marker(&mut self, marker: &Marker<'_>) {
        let at = (marker.position.prefix.to_vec(), marker.position.after);
        if let Some((start, deletion)) = self.part.open.take() {
            self.part.bytes += start.0.len() + at.0.len() + 32;
            self.part.ranges.push(Range { start, end: at.clone(), deletion });
        }
        self.part.open = marker.open.map(|deletion| (at, deletion));
    }

    fn end_part(&mut self) {
        // A range that a file leaves open is an error of its cursor.
        self.cut();
        self.part = Part::default();
    }

    /// Builds a mutation of the collected items. An open range deletion is part of the mutation in
    /// which it ends.
    fn cut(&mut self) {
        if self.part.is_empty() {
            return;
        }
        let at = self.batch.len();
        self.batch.extend_from_slice(&[0; 4]);
        let part = &mut self.part;
        let table = self.table;
        let mut builder = MutationBuilder::new(&mut self.batch, table.id, table.version, &part.key);
        if let Some(deletion) = part.deletion.take() {
            builder.deletion(deletion);
        }
        if let Some(row) = part.static_row.take() {
            builder.static_row(RowRef::trusted(&row));
        }
        builder.rows(part.rows.iter().map(|(c, row)| (c.as_slice(), RowRef::trusted(row))));
        let bound = |(prefix, after)| BoundRef { prefix, after };
        builder.range_tombstones(part.ranges.iter().map(|range| RangeTombstoneRef {
            start: bound((range.start.0.as_slice(), range.start.1)),
            end: bound((range.end.0.as_slice(), range.end.1)),
            deletion: range.deletion,
        }));
        let length = builder.finish().len();
        part.rows.clear();
        part.ranges.clear();
        part.bytes = 0;
        let length = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        if let Some(head) = self.batch.get_mut(at..at + 4) {
            head.copy_from_slice(&length);
        }
        self.count += 1;
    }

    /// Increments of before Cassandra 2.1 are differences: they would count twice when they are sent
    /// twice.
    fn check(&self, row: RowRef<'_>, place: ItemPlace<'_>) -> Result<(), String> {
        let ItemPlace { file, position } = place;
        if !self.table.is_counter() {
            return Ok(());
        }
        for (_, column) in row.columns() {
            let ColumnRef::Simple(cell) = column else { continue };
            let is_local =
                |value| shards(value).is_none_or(|mut all| all.any(|s| s.kind == ShardKind::Local));
            if !cell.is_tombstone() && is_local(cell.value) {
                let key = super::super::out::hex(&self.part.key);
                return Err(format!(
                    "{file}: partition 0x{key}, near byte {position}: a counter has increments of \
                     before Cassandra 2.1, which cannot be loaded"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "partitions_tests.rs"]
mod tests;
