//! Updates the rows of a stored table to the wanted ones: the system tables whose content follows
//! from the metadata. Never: decides what the rows are.

use std::collections::{BTreeMap, BTreeSet};

use coordinator::Coordinator;
use cql_plan::virtual_row::VirtualRow;
use data::command::{KeyRange, Partitions, ReadCommand};
use data::{BoundRef, DeletionTime, MutationBuilder, RangeTombstoneRef, RowRef};
use schema::Table;
use stdx::{DeletionSeconds, TimestampMicros, Token};
use store::{Flow, RowSink, StoreError};

/// A row's partition key and clustering.
pub(super) type RowKey = (Vec<u8>, Vec<u8>);

/// Rows by key, packed.
pub(super) type Rows = BTreeMap<RowKey, Vec<u8>>;

/// When rows are written.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub(super) at: TimestampMicros,
    pub(super) now: DeletionSeconds,
}

/// Rows by key.
pub(super) fn by_key(rows: Vec<VirtualRow>) -> Rows {
    rows.into_iter().map(|row| ((row.key, row.clustering), row.row)).collect()
}

/// The mutations that delete the rows at `old` that are not wanted and write those that are.
pub(super) fn rewrite(
    table: &Table,
    old: BTreeSet<RowKey>,
    rows: Rows,
    moment: Moment,
) -> Vec<(Token, Vec<u8>)> {
    let gone = old.into_iter().filter(|key| !rows.contains_key(key));
    let gone: Vec<_> = gone.map(|key| (key, None)).collect();
    let written = rows.into_iter().map(|(key, row)| (key, Some(row)));
    written.chain(gone).map(|(key, row)| mutation(table, &key, row, moment)).collect()
}

/// Builds the mutation of one row, after a deletion of any row at its key.
fn mutation(
    table: &Table,
    (key, clustering): &RowKey,
    row: Option<Vec<u8>>,
    moment: Moment,
) -> (Token, Vec<u8>) {
    let before = TimestampMicros(moment.at.0.saturating_sub(1));
    let deletion = DeletionTime { timestamp: before, local: moment.now };
    let mut bytes = Vec::new();
    let mut builder = MutationBuilder::new(&mut bytes, table.id, table.version, key);
    if clustering.is_empty() {
        builder.deletion(deletion);
    }
    builder.rows(row.iter().map(|row| (clustering.as_slice(), RowRef::trusted(row))));
    if !clustering.is_empty() {
        let whole = RangeTombstoneRef {
            start: BoundRef { prefix: clustering, after: false },
            end: BoundRef { prefix: clustering, after: true },
            deletion,
        };
        builder.range_tombstones([whole].into_iter());
    }
    builder.finish();
    (codec::token_of(key), bytes)
}

/// The keys of all live rows.
///
/// # Errors
/// The table cannot be read.
pub(super) async fn present(
    coordinator: &Coordinator,
    table: &Table,
    now: DeletionSeconds,
) -> Result<BTreeSet<RowKey>, StoreError> {
    let command = ReadCommand::whole(table.id, Partitions::Range(KeyRange::all()), now);
    let mut sink = Keys::default();
    coordinator.read(&command, usize::MAX, &mut sink).await?;
    Ok(sink.found)
}

#[derive(Default)]
struct Keys {
    key: Vec<u8>,
    found: BTreeSet<RowKey>,
}

impl RowSink for Keys {
    fn partition(&mut self, _: Token, key: &[u8], _: Option<RowRef<'_>>) -> Flow {
        self.key = key.to_vec();
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], _: RowRef<'_>) -> Flow {
        self.found.insert((self.key.clone(), clustering.to_vec()));
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}
