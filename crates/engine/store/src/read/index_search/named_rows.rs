//! Rows of candidates, read by name from one view.

use std::sync::Arc;

use data::command::ReadCommand;
use data::{Slice, Slices};
use index_format::search::{MatchedPartition, MatchedRows};

use crate::error::StoreError;
use crate::read::Reader;
use crate::read::driver::{Flow, RowSink, Shaped};
use crate::tables::read_stats::ReadStats;
use crate::tables::table::bump;

/// See [`Reader::read_matches`].
pub(in crate::read) async fn read_named<S: RowSink>(
    reader: &Reader,
    command: &ReadCommand,
    keys: &[MatchedPartition],
    sink: &mut S,
) -> Result<ReadStats, StoreError> {
    let table = reader.files.opened_table(command.table).await?;
    let (shape, view) = (table.shape(), table.view());
    let of = Shaped { table: &table, shape: &shape };
    let _running = reader.env.stages.read.run();
    let mut stats = ReadStats::default();
    for partition in keys {
        bump(&table.counters.reads, 1);
        let slices = match &partition.rows {
            MatchedRows::Whole => command.slices.clone(),
            MatchedRows::Rows(rows) => {
                Arc::new(Slices(rows.iter().map(|row| Slice::prefix(row.clone())).collect()))
            }
        };
        let key = &partition.key;
        let read = reader.read_key(of, &view, command, slices, key, sink, &mut stats);
        if read.await? == Flow::Stop {
            break;
        }
    }
    bump(&table.counters.tombstones, u64::from(stats.tombstones));
    Ok(stats)
}
