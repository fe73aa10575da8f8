//! Rows of `system.large_partitions`, `system.large_rows` and `system.large_cells`: large data in
//! SSTables that are in use.
//!
//! Owns: their content. A row is written when an SSTable comes into use. It is deleted when the
//! SSTable goes out of use, or after thirty days; the next start removes leftovers of a crash.
//! Source: ScyllaDB's documentation of these tables; there is no row for their own SSTables.

use std::collections::BTreeSet;
use std::rc::Rc;

use coordinator::{Origin, ReplicaMutation};
use data::{BoundRef, ClusteringBuf, DeletionTime, MutationBuilder, RangeTombstoneRef};
use query::{Content, Executor, Row, RowWrite, as_store_error, encode_row, select_for_node};
use rt::Group;
use schema::{Schema, Table};
use stdx::{TimestampMicros, Token, TtlSeconds, WallMicros};
use store::{LargeEvent, LargeFate, LargeFile, SstableName, Store};

use super::own_rows::OwnRows;

/// The tables.
const TABLES: [&str; 3] = ["large_partitions", "large_rows", "large_cells"];
/// Time to live of a row, in case it is never deleted.
const TTL: TtlSeconds = TtlSeconds(30 * 86_400);

impl OwnRows {
    /// Maintains the rows of this shard's SSTables from now on.
    pub fn record_large_data(&self, store: &Store, executor: &Rc<Executor>) {
        let own = self.clone();
        store.observer().on_large_data(move |event| {
            let name = match &event {
                LargeEvent::Found(file) => &file.name,
                LargeEvent::Gone(name) => name,
            };
            if name.keyspace == "system" && TABLES.contains(&name.table.as_str()) {
                return;
            }
            own.write_large(mutations_of(&own.membership.snapshot().schema, &event, own.rt.wall()));
        });
        let (own, store, executor) = (self.clone(), store.clone(), executor.clone());
        let task = async move {
            match names_in(&executor).await {
                Ok(names) => own.forget_gone(&store, names),
                Err(failure) => {
                    let error = as_store_error(&executor, &failure);
                    tracing::debug!(%error, "tables of large rows could not be read");
                }
            }
        };
        let _ = self.gate.spawn(&self.rt, Group::Admin, "large-data-start", task);
    }

    /// Deletes the rows of SSTables that no longer exist.
    fn forget_gone(&self, store: &Store, names: BTreeSet<SstableName>) {
        for name in names {
            if store.observer().large_fate(&name) == LargeFate::Gone {
                let schema = self.membership.snapshot().schema.clone();
                self.write_large(mutations_of(&schema, &LargeEvent::Gone(name), self.rt.wall()));
            }
        }
    }

    fn write_large(&self, mutations: Vec<(Token, Vec<u8>)>) {
        let coordinator = self.coordinator.clone();
        let task = async move {
            for (token, mutation) in mutations {
                if let Err(error) = coordinator
                    .apply(ReplicaMutation::durable(token, mutation), Origin::System)
                    .await
                {
                    tracing::debug!(%error, "a row about what is large could not be written");
                }
            }
        };
        // A closed gate: the node stops; the next start retries.
        let _ = self.gate.spawn(&self.rt, Group::Admin, "large-data", task);
    }
}

/// Keyspace and table as a composite key.
fn key_of(name: &SstableName) -> Vec<u8> {
    let mut key = Vec::new();
    for part in [&name.keyspace, &name.table] {
        let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
        key.extend_from_slice(&length.to_be_bytes());
        key.extend_from_slice(part.as_bytes());
        key.push(0);
    }
    key
}

fn bigint(n: u64) -> [u8; 8] {
    i64::try_from(n).unwrap_or(i64::MAX).to_be_bytes()
}

/// The mutations that an event asks for, with their tokens.
fn mutations_of(schema: &Schema, event: &LargeEvent, now: WallMicros) -> Vec<(Token, Vec<u8>)> {
    match event {
        LargeEvent::Found(file) => rows_of(schema, file),
        LargeEvent::Gone(name) => {
            let tables = TABLES.iter().filter_map(|table| schema.table("system", table));
            tables.map(|table| deletion(table, name, now)).collect()
        }
    }
}

fn rows_of(schema: &Schema, file: &LargeFile) -> Vec<(Token, Vec<u8>)> {
    let key = key_of(&file.name);
    let (token, at) = (codec::token_of(&key), TimestampMicros(file.at.0));
    let sstable = file.name.sstable.as_bytes();
    let time = ("compaction_time", Content::Value(file.at.millis().to_be_bytes().to_vec()));
    let number = |name, n| (name, Content::Value(bigint(n).to_vec()));
    let mut mutations = Vec::new();
    let mut put = |table: &str, clustering: &[&[u8]], columns: Vec<(&'static str, Content)>| {
        let Some(table) = schema.table("system", table) else { return };
        let clustering = ClusteringBuf::from_components(clustering.iter().copied()).0;
        let row = RowWrite { key: key.clone(), clustering, columns };
        mutations.push((token, encode_row(table, &row, at, TTL)));
    };
    for p in &file.partitions {
        put(
            "large_partitions",
            &[sstable, &bigint(p.bytes), p.partition_key.as_bytes()],
            vec![
                time.clone(),
                number("rows", p.rows),
                number("range_tombstones", p.range_tombstones),
                number("dead_rows", p.dead_rows),
            ],
        );
    }
    for r in &file.rows {
        let (partition, clustering) = (r.partition_key.as_bytes(), r.clustering_key.as_bytes());
        let place = [sstable, &bigint(r.bytes), partition, clustering];
        put("large_rows", &place, vec![time.clone()]);
    }
    for c in &file.cells {
        let (partition, clustering) = (c.partition_key.as_bytes(), c.clustering_key.as_bytes());
        let place = [sstable, &bigint(c.bytes), partition, clustering, c.column.as_bytes()];
        let columns = vec![time.clone(), number("collection_elements", c.elements)];
        put("large_cells", &place, columns);
    }
    mutations
}

/// Deletes all rows of an SSTable.
fn deletion(table: &Table, name: &SstableName, now: WallMicros) -> (Token, Vec<u8>) {
    let key = key_of(name);
    let prefix = ClusteringBuf::from_components([name.sstable.as_bytes()]).0;
    let tombstone = RangeTombstoneRef {
        start: BoundRef { prefix: &prefix, after: false },
        end: BoundRef { prefix: &prefix, after: true },
        deletion: DeletionTime { timestamp: TimestampMicros(now.0), local: now.seconds() },
    };
    let mut bytes = Vec::new();
    let mut mutation = MutationBuilder::new(&mut bytes, table.id, table.version, &key);
    mutation.range_tombstones([tombstone].into_iter());
    mutation.finish();
    (codec::token_of(&key), bytes)
}

/// Returns all SSTables that the tables name.
///
/// # Errors
/// The read failed.
async fn names_in(executor: &Rc<Executor>) -> query::Result<BTreeSet<SstableName>> {
    let mut names = BTreeSet::new();
    for table in TABLES {
        let select = format!("SELECT keyspace_name, table_name, sstable_name FROM system.{table}");
        for page in select_for_node(executor, &select).await? {
            names.extend(page.iter().filter_map(|row| sstable_of(&row)));
        }
    }
    Ok(names)
}

fn sstable_of(row: &Row<'_>) -> Option<SstableName> {
    let text = |column| Some(String::from_utf8_lossy(row.bytes(column)?).into_owned());
    let (keyspace, table) = (text("keyspace_name")?, text("table_name")?);
    Some(SstableName { keyspace, table, sstable: text("sstable_name")? })
}
