//! Checks that an item can be written, without writing it.

use data::Item;
use sst_format::StatsCollector;
use sst_format::row_write::{
    EncodeScratch, RowKind, encode_marker, encode_partition_header, encode_row,
};

use super::SstableWriter;
use crate::Result;

impl SstableWriter {
    /// Checks that [`SstableWriter::put`] can encode an item, without a change to the file. It encodes the item like
    /// `put`, so it costs as much.
    ///
    /// # Errors
    /// `Unwritable`.
    pub fn check(&self, item: Item<'_>) -> Result<()> {
        let (mut scratch, mut stats) = (EncodeScratch::default(), StatsCollector::default());
        let mut out = Vec::new();
        let checked = match item {
            Item::Partition { key, deletion, .. } => {
                encode_partition_header(key, &deletion, self.options.version, &mut out)
            }
            Item::Static(row) => {
                let kind = RowKind::Static;
                encode_row(&self.schema, kind, row, 0, &mut scratch, &mut stats, &mut out)
            }
            Item::Row { clustering, row } => {
                let kind = RowKind::Regular(clustering);
                encode_row(&self.schema, kind, row, 0, &mut scratch, &mut stats, &mut out)
            }
            Item::Marker(marker) => {
                encode_marker(&self.schema, &marker, 0, &mut scratch, &mut stats, &mut out)
                    .map(drop)
            }
            Item::PartitionEnd => Ok(()),
        };
        checked.map_err(|error| self.unwritable(error))
    }
}
