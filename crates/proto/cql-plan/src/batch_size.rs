//! The size of a batch as Cassandra counts it for its thresholds: bytes of keys and values with what
//! its objects in memory add.
//!
//! Source: `Mutation.getDataSize`, and `dataSize` of `PartitionUpdate`, `Row`, `Cell`,
//! `RangeTombstoneList`. The numbers were confirmed by the warnings of a Cassandra 5.0.9.

use data::{ColumnRef, MutationRef, RowRef};

/// Deletion of the partition.
const PARTITION_BYTES: usize = 8;
/// Row marker and deletion of each row; every partition has a static one.
const ROW_BYTES: usize = 21;
/// A row marker that expires has more.
const EXPIRING_BYTES: usize = 12;
/// Timestamp, TTL and time of deletion of a cell.
const CELL_BYTES: usize = 20;
/// Deletion of a collection.
const COMPLEX_BYTES: usize = 12;
/// The context of a counter's increment.
const COUNTER_BYTES: usize = 36;
/// Number of range tombstones.
const TOMBSTONES_BYTES: usize = 4;
/// Time of a range tombstone.
const TOMBSTONE_BYTES: usize = 12;

/// Bytes of an encoded mutation in Cassandra's count. 0: the bytes are no mutation.
pub(crate) fn data_size(mutation: &[u8], is_counter: bool) -> usize {
    let Some(mutation) = MutationRef::open(mutation) else { return 0 };
    let statics = mutation.static_row.map_or(ROW_BYTES, |row| row_size(row, is_counter));
    let mut size = PARTITION_BYTES + statics;
    for (clustering, row) in mutation.rows() {
        size += values_size(clustering) + row_size(row, is_counter);
    }
    let mut tombstones = 0;
    for tombstone in mutation.range_tombstones() {
        tombstones = TOMBSTONES_BYTES;
        size += TOMBSTONE_BYTES
            + values_size(tombstone.start.prefix)
            + values_size(tombstone.end.prefix);
    }
    size + tombstones
}

/// Bytes of the values of a clustering or a prefix.
fn values_size(prefix: &[u8]) -> usize {
    data::clustering::components(prefix).flatten().map(<[u8]>::len).sum()
}

fn row_size(row: RowRef<'_>, is_counter: bool) -> usize {
    let cell = |cell: data::CellRef<'_>| match is_counter && !cell.is_tombstone() {
        true => CELL_BYTES + COUNTER_BYTES,
        false => CELL_BYTES + cell.value.len(),
    };
    let expires = row.liveness().ttl != stdx::TtlSeconds::NONE;
    let mut size = ROW_BYTES + if expires { EXPIRING_BYTES } else { 0 };
    for (_, column) in row.columns() {
        size += match column {
            ColumnRef::Simple(one) => cell(one),
            ColumnRef::Complex(complex) => {
                let cells = complex.cells().map(|(path, one)| path.len() + cell(one));
                COMPLEX_BYTES + cells.sum::<usize>()
            }
        };
    }
    size
}
