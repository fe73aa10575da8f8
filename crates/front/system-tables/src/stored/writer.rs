//! Rows about the node in ordinary tables, so that drivers read them and Cassandra can open a
//! drained directory: `system.local`, `system.peers`, `system.peers_v2`, `system_schema.*`,
//! `system_auth.*`.
//!
//! The metadata log is the truth. These tables are written from it and never read back, except
//! after a Cassandra ran on the directory (`takeover`). Their timestamps grow with every run, so
//! that they are newer than those of such a Cassandra. All of them are rewritten at each start,
//! because a power cut may have lost the unsynced writes of the last change: each keyspace is a
//! deletion of its rows followed by all of them. A change writes the rows that differ from those
//! that the tables show.
//!
//! INV-system-tables-1: changes that the tables do not show yet (disks or memtables were full) are
//! retried until they do. They have a reserve of memtables ([`store::Store::admit_write_of`]), so
//! that this is rare.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::ClusterSnapshot;
use coordinator::{Coordinator, Origin, ReplicaMutation};
use cql_plan::system_rows::{self, EncodedMutation, LocalRow};
use cql_plan::virtual_row::VirtualRowBuilder;
use data::{BoundRef, DeletionTime, MutationBuilder, MutationRef, RangeTombstoneRef, RowRef};
use membership::Membership;
use query::Executor;
use rt::sync::Semaphore;
use rt::{Gate, Group, Rt};
use schema::{Keyspace, Schema, Table};
use stdx::{DeletionSeconds, TimestampMicros, Token};
use store::StoreError;
use truncation::Truncations;

use super::row_sync::Moment;
use super::{auth, build_markers, estimates, peers, restored_schema};

/// Interval between attempts to write what the tables do not show yet.
const RETRY: Duration = Duration::from_millis(500);

/// Sources and tools of the writer of system tables.
pub struct SystemTables {
    /// Shard 0.
    pub rt: Rt,
    /// The metadata that they show.
    pub membership: Membership,
    /// The way to stored rows.
    pub coordinator: Coordinator,
    /// Reads what an earlier run has left.
    pub executor: Rc<Executor>,
    /// Carried out whenever the metadata changes, before the tables show it.
    pub truncations: Truncations,
    /// Where `metadata/truncated` is.
    pub work_dir: String,
    /// Addresses for `system.local`.
    pub addresses: LocalAddresses,
    /// Number of this run: wall-clock microseconds, larger than that of every earlier run.
    pub run: u64,
    /// Owner of the task that tries again.
    pub gate: Gate,
}

/// Addresses of this node as `system.local` shows them.
#[derive(Clone, Copy, Debug)]
pub struct LocalAddresses {
    /// Listened on for other nodes.
    pub listen: IpAddr,
    /// Announced to other nodes.
    pub broadcast: IpAddr,
    /// Announced to clients.
    pub rpc: IpAddr,
    /// Port for other nodes.
    pub storage_port: u16,
    /// Port for clients.
    pub native_transport_port: u16,
}

impl SystemTables {
    /// Writes everything and updates it from now on. Shard 0 only.
    ///
    /// # Errors
    /// The tables cannot be written.
    pub async fn install(self) -> Result<(), StoreError> {
        let SystemTables { rt, membership, coordinator, executor, truncations, work_dir, .. } =
            self;
        let writer = Rc::new(Writer {
            generation: i32::try_from(rt.wall().seconds().0).unwrap_or(i32::MAX),
            run: i64::try_from(self.run).unwrap_or(i64::MAX),
            rt,
            addresses: self.addresses,
            coordinator,
            executor,
            shown: RefCell::new(membership.snapshot()),
            not_durable: RefCell::default(),
            writing: Semaphore::new(1),
            is_retrying: Cell::new(false),
            gate: self.gate,
        });
        // First the hook: other nodes may change the metadata while everything is written.
        let (of_hook, latest) = (writer.clone(), membership.clone());
        membership.on_apply(move |_, after| {
            let (writer, latest) = (of_hook.clone(), latest.clone());
            let (truncations, work_dir) = (truncations.clone(), work_dir.clone());
            Box::pin(async move {
                if let Err(error) = truncations.apply(&work_dir, &after).await {
                    tracing::error!(%error, "cannot read the truncation records");
                }
                if let Err(error) = writer.show(&after).await {
                    // The change itself is durable.
                    tracing::error!(%error, "system tables do not show the last change yet; retrying");
                    writer.retry(latest);
                }
            })
        });
        let snapshot = membership.snapshot();
        let _one = writer.writing.acquire(1).await;
        let written = writer.all(&snapshot).await.and_then(|()| writer.check_durable());
        *writer.shown.borrow_mut() = snapshot;
        written
    }
}

struct Writer {
    rt: Rt,
    addresses: LocalAddresses,
    coordinator: Coordinator,
    executor: Rc<Executor>,
    /// `gossip_generation`: when this run began, in seconds.
    generation: i32,
    /// Number of this run, larger than every earlier one: wall-clock microseconds.
    run: i64,
    /// Snapshot that the tables show, durably.
    shown: RefCell<Arc<ClusterSnapshot>>,
    /// Why something of the last attempt is in memory only.
    not_durable: RefCell<Option<StoreError>>,
    /// One writer at a time.
    writing: Semaphore,
    is_retrying: Cell<bool>,
    gate: Gate,
}

impl Writer {
    /// Writes what `after` changes in the tables; also what earlier attempts could not.
    async fn show(&self, after: &Arc<ClusterSnapshot>) -> Result<(), StoreError> {
        let _one = self.writing.acquire(1).await;
        let before = self.shown.borrow().clone();
        if after.epoch <= before.epoch {
            return Ok(());
        }
        self.difference(&before, after).await?;
        self.check_durable()?;
        *self.shown.borrow_mut() = after.clone();
        Ok(())
    }

    /// Shows the newest snapshot as soon as that is possible.
    fn retry(self: &Rc<Self>, membership: Membership) {
        if self.is_retrying.replace(true) {
            return;
        }
        let this = self.clone();
        let task = async move {
            loop {
                let next = this.rt.now() + RETRY;
                if this.rt.timeout(next, this.rt.stop_requested()).await.is_ok() {
                    break;
                }
                // Each attempt stays in memory until the disk has room: none is made before.
                if matches!(
                    this.coordinator.store().writer().admit_write(),
                    Err(StoreError::DiskFull { .. })
                ) {
                    continue;
                }
                let wanted = membership.snapshot();
                match this.show(&wanted).await {
                    Ok(()) => {
                        let shown = this.shown.borrow().epoch;
                        stdx::invariant!(
                            shown >= wanted.epoch,
                            "INV-system-tables-1: the tables show epoch {} after a retry for {}",
                            shown.0,
                            wanted.epoch.0
                        );
                        tracing::info!("system tables show all changes again");
                        break;
                    }
                    Err(StoreError::Stopping | StoreError::LogFailed(_)) => break,
                    Err(error) => {
                        tracing::debug!(%error, "system tables do not show the last change yet")
                    }
                }
            }
            this.is_retrying.set(false);
        };
        // A closed gate: the node stops, the next start writes everything.
        let _ = self.gate.spawn(&self.rt, Group::Admin, "system-tables", task);
    }

    async fn apply(&self, mutations: Vec<EncodedMutation>) -> Result<(), StoreError> {
        for mutation in mutations {
            self.put(mutation.token, mutation.bytes).await?;
        }
        Ok(())
    }

    /// Applies one mutation. While the disk is full it is shown and not durable, which is no reason to leave out
    /// the next one.
    async fn put(&self, token: Token, mutation: Vec<u8>) -> Result<(), StoreError> {
        match self
            .coordinator
            .apply(ReplicaMutation::durable(token, mutation), Origin::System)
            .await
        {
            Err(error @ StoreError::DiskFull { .. }) => {
                self.not_durable.borrow_mut().get_or_insert(error);
                Ok(())
            }
            result => result,
        }
    }

    /// Fails when something since the last call is not durable.
    fn check_durable(&self) -> Result<(), StoreError> {
        self.not_durable.borrow_mut().take().map_or(Ok(()), Err)
    }

    async fn all(&self, snapshot: &ClusterSnapshot) -> Result<(), StoreError> {
        let at = self.run_timestamp(snapshot);
        let now = self.rt.wall().seconds();
        let schema = &snapshot.schema;
        let restored = restored_schema::find(&self.executor, schema).await?;
        restored.report();
        for name in restored.keyspaces() {
            self.apply(system_rows::drop_keyspace_mutations(schema, name, at, now)).await?;
        }
        for keyspace in schema.keyspaces.values().filter(|k| !k.is_virtual) {
            self.apply(system_rows::keyspace_mutations(schema, keyspace, at, now)).await?;
        }
        let moment = Moment { at, now };
        self.write(peers::all(&self.coordinator, snapshot, moment).await?).await?;
        self.write(auth::all(&self.coordinator, snapshot, moment).await?).await?;
        self.write(build_markers::all(&self.coordinator, snapshot, moment).await?).await?;
        self.local(snapshot, schema).await
    }

    async fn write(&self, mutations: Vec<(Token, Vec<u8>)>) -> Result<(), StoreError> {
        for (token, mutation) in mutations {
            self.put(token, mutation).await?;
        }
        Ok(())
    }

    /// The run decides before the epoch: addresses may have changed since the last start, and a
    /// Cassandra may have written in between.
    fn run_timestamp(&self, snapshot: &ClusterSnapshot) -> TimestampMicros {
        let steps = snapshot.system_timestamp().0.saturating_sub(snapshot.local.created_at.0);
        TimestampMicros(self.run.saturating_add(steps))
    }

    async fn local(&self, snapshot: &ClusterSnapshot, schema: &Schema) -> Result<(), StoreError> {
        let at = self.run_timestamp(snapshot);
        let row = LocalRow {
            host_id: snapshot.local.host_id,
            cluster_name: &snapshot.local.cluster_name,
            datacenter: &snapshot.local.datacenter,
            rack: &snapshot.local.rack,
            tokens: &snapshot.local.tokens,
            schema_version: schema.version,
            listen_address: self.addresses.listen,
            broadcast_address: self.addresses.broadcast,
            rpc_address: self.addresses.rpc,
            storage_port: self.addresses.storage_port,
            native_transport_port: self.addresses.native_transport_port,
            gossip_generation: self.generation,
        };
        let mut mutations = vec![system_rows::local_mutation(schema, &row, at)];
        mutations.extend(truncated_at(snapshot, at));
        self.apply(mutations).await
    }

    async fn difference(
        &self,
        before: &ClusterSnapshot,
        after: &ClusterSnapshot,
    ) -> Result<(), StoreError> {
        let at = self.run_timestamp(after);
        let now = self.rt.wall().seconds();
        let schema = &after.schema;
        for (name, keyspace) in schema.keyspaces.iter().filter(|(_, k)| !k.is_virtual) {
            match before.schema.keyspaces.get(name) {
                Some(old) if Arc::ptr_eq(old, keyspace) => {}
                Some(old) => self.apply(changed_rows(schema, old, keyspace, at, now)).await?,
                None => {
                    self.apply(system_rows::keyspace_mutations(schema, keyspace, at, now)).await?;
                }
            }
        }
        let tables = before.schema.keyspaces.values().flat_map(|k| k.tables.values());
        for table in tables.filter(|t| schema.table_by_id(t.id).is_none()) {
            let estimates = estimates::forget_estimates(schema, table, self.rt.wall());
            for (token, mutation) in estimates {
                self.put(token, mutation).await?;
            }
        }
        for name in before.schema.keyspaces.keys() {
            if !schema.keyspaces.contains_key(name) {
                self.apply(system_rows::drop_keyspace_mutations(schema, name, at, now)).await?;
            }
        }
        let moment = Moment { at, now };
        self.write(peers::difference(before, after, moment)).await?;
        self.write(auth::difference(before, after, moment)).await?;
        self.local(after, schema).await
    }
}

/// The mutations that turn the rows of a keyspace into those of its new definition: what differs is
/// deleted at `at - 1` and written at `at`, the rest is left as it is.
fn changed_rows(
    schema: &Schema,
    old: &Keyspace,
    new: &Keyspace,
    at: TimestampMicros,
    now: DeletionSeconds,
) -> Vec<EncodedMutation> {
    // Both at the same time, so that equal rows are equal bytes.
    let before = system_rows::keyspace_mutations(schema, old, at, now);
    let after = system_rows::keyspace_mutations(schema, new, at, now);
    before.iter().zip(&after).filter_map(|(old, new)| difference(old, new, at, now)).collect()
}

/// `None` when nothing differs.
fn difference(
    old: &EncodedMutation,
    new: &EncodedMutation,
    at: TimestampMicros,
    now: DeletionSeconds,
) -> Option<EncodedMutation> {
    let (Some(before), Some(after)) =
        (MutationRef::open(&old.bytes), MutationRef::open(&new.bytes))
    else {
        stdx::invariant::broken(format_args!("mutation made by this node does not open"))
    };
    let rows = |of: &MutationRef<'_>| -> std::collections::BTreeMap<Vec<u8>, Vec<u8>> {
        of.rows().map(|(c, row)| (c.to_vec(), row.bytes().to_vec())).collect()
    };
    let (was, is) = (rows(&before), rows(&after));
    let gone: Vec<&Vec<u8>> =
        was.iter().filter(|(c, row)| is.get(*c) != Some(*row)).map(|(c, _)| c).collect();
    let written: Vec<(&[u8], RowRef<'_>)> =
        after.rows().filter(|(c, row)| was.get(*c).is_none_or(|old| old != row.bytes())).collect();
    if gone.is_empty() && written.is_empty() {
        return None;
    }
    let deletion = DeletionTime { timestamp: TimestampMicros(at.0.saturating_sub(1)), local: now };
    let tombstones = gone.iter().map(|clustering| RangeTombstoneRef {
        start: BoundRef { prefix: clustering, after: false },
        end: BoundRef { prefix: clustering, after: true },
        deletion,
    });
    let mut bytes = Vec::new();
    let mut mutation =
        MutationBuilder::new(&mut bytes, after.table, after.schema_version, after.key);
    mutation.rows(written.iter().copied());
    mutation.range_tombstones(tombstones);
    mutation.finish();
    Some(EncodedMutation { table: new.table, token: new.token, bytes })
}

/// `truncated_at` of `system.local`: for each truncated table, a position in the commit log and the
/// time. The position is Cassandra's "none", because a Cassandra on this directory would skip
/// entries before that position in a commit log of its own.
fn truncated_at(snapshot: &ClusterSnapshot, at: TimestampMicros) -> Option<EncodedMutation> {
    let schema = &snapshot.schema;
    let there = |table: &stdx::TableId| schema.table_by_id(*table).is_some();
    let truncations: Vec<_> = snapshot.truncations.iter().filter(|(t, _)| there(t)).collect();
    if truncations.is_empty() {
        return None;
    }
    let local: &Table = schema.table("system", "local")?;
    let mut map = i32::try_from(truncations.len()).unwrap_or(i32::MAX).to_be_bytes().to_vec();
    for (table, truncation) in truncations {
        // `CommitLogPosition.NONE`: segment -1, offset 0; then milliseconds.
        let mut record = (-1_i64).to_be_bytes().to_vec();
        record.extend_from_slice(&0_i32.to_be_bytes());
        record.extend_from_slice(&truncation.truncated_at.millis().to_be_bytes());
        for part in [table.0.as_bytes().as_slice(), &record] {
            map.extend_from_slice(&i32::try_from(part.len()).unwrap_or(i32::MAX).to_be_bytes());
            map.extend_from_slice(part);
        }
    }
    let row =
        VirtualRowBuilder::at(local, at).text("key", "local").bytes("truncated_at", map).finish();
    let row = match row {
        Ok(row) => row,
        Err(error) => stdx::invariant::broken(format_args!("system.local: {error}")),
    };
    let mut bytes = Vec::new();
    let mut mutation = MutationBuilder::new(&mut bytes, local.id, local.version, &row.key);
    mutation.rows([(row.clustering.as_slice(), RowRef::trusted(&row.row))].into_iter());
    mutation.finish();
    Some(EncodedMutation { table: local.id, token: codec::token_of(&row.key), bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::{KeyspaceParams, SchemaChange};
    use std::collections::BTreeMap;
    use stdx::{TableId, Uuid};

    const AT: TimestampMicros = TimestampMicros(1_000_000);
    const NOW: DeletionSeconds = DeletionSeconds(1);

    /// A keyspace with the tables of those names, copies of a built-in one.
    fn with_tables(names: &[&str]) -> Schema {
        let base = cql_plan::system::system_schema();
        let params = KeyspaceParams { durable_writes: true, replication: BTreeMap::new() };
        let create = SchemaChange::CreateKeyspace { name: "ks".into(), params };
        let mut schema = base.apply(&create).unwrap();
        for (i, name) in names.iter().enumerate() {
            let mut table = Table::clone(base.table("system_auth", "roles").unwrap());
            table.keyspace = "ks".into();
            table.name = (*name).into();
            table.id = TableId(Uuid::from_u128(100 + i as u128));
            schema = schema.apply(&SchemaChange::CreateTable(table)).unwrap();
        }
        schema
    }

    /// Table of `system_schema`, rows written, ranges deleted.
    fn summary(schema: &Schema, mutations: &[EncodedMutation]) -> Vec<(String, usize, usize)> {
        let of = |m: &EncodedMutation| {
            let view =
                MutationRef::parse(&m.bytes, schema.table_by_id(m.table).unwrap().clustering_count);
            let view = view.unwrap();
            let name = schema.table_by_id(m.table).unwrap().name.to_string();
            (name, view.rows().count(), view.range_tombstones().count())
        };
        mutations.iter().map(of).collect()
    }

    #[test]
    fn a_change_writes_the_rows_that_differ_and_deletes_those_that_are_gone() {
        let (one, two) = (with_tables(&["a"]), with_tables(&["a", "b"]));
        let keyspace = |schema: &Schema| schema.keyspace("ks").unwrap().clone();
        let (of_one, of_two) = (keyspace(&one), keyspace(&two));
        let columns = one.table("ks", "a").unwrap().columns.len();
        let expected = |name: &str, rows, gone| (name.to_owned(), rows, gone);
        let added = changed_rows(&two, &of_one, &of_two, AT, NOW);
        assert_eq!(
            summary(&two, &added),
            [expected("columns", columns, 0), expected("tables", 1, 0)]
        );
        let dropped = changed_rows(&one, &of_two, &of_one, AT, NOW);
        assert_eq!(
            summary(&one, &dropped),
            [expected("columns", 0, columns), expected("tables", 0, 1)]
        );
        let mut altered = Keyspace::clone(&of_one);
        altered.params.durable_writes = false;
        let altered = changed_rows(&one, &of_one, &altered, AT, NOW);
        assert_eq!(summary(&one, &altered), [expected("keyspaces", 1, 1)]);
        assert_eq!(changed_rows(&one, &of_one, &of_one, AT, NOW), []);
    }
}
