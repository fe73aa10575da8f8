//! What the node writes about itself into ordinary tables, so that drivers read it and Cassandra
//! can open a drained directory: `system.local` and `system_schema.*`.
//!
//! The metadata log is the truth; these tables are written from it and never read back. All of them
//! are written again at each start, because a power cut may have taken the unsynced writes of the
//! last change; each keyspace is a deletion of its rows followed by all of them.

use std::rc::Rc;
use std::sync::Arc;

use cluster::ClusterSnapshot;
use conf::Options;
use coordinator::Coordinator;
use cql_plan::system_rows::{self, EncodedMutation, LocalRow};
use membership::Membership;
use rt::Rt;
use schema::Schema;
use stdx::TimestampMicros;
use store::StoreError;

use crate::{StartError, parts};

/// Writes everything and keeps it up to date from now on. Shard 0 only.
///
/// # Errors
/// `Store` when the tables cannot be written.
pub(crate) async fn install(
    rt: &Rt,
    options: &Arc<Options>,
    membership: &Membership,
    coordinator: &Coordinator,
    run: u64,
) -> Result<(), StartError> {
    let writer = Rc::new(Writer {
        rt: rt.clone(),
        options: options.clone(),
        coordinator: coordinator.clone(),
        generation: i32::try_from(rt.wall().seconds().0).unwrap_or(i32::MAX),
        run: i64::try_from(run).unwrap_or(i64::MAX),
    });
    let snapshot = membership.snapshot();
    let written = writer.all(&snapshot).await;
    written.map_err(|error| StartError::Store { shard: rt.shard().0, error })?;
    membership.on_apply(move |before, after| {
        let writer = writer.clone();
        Box::pin(async move {
            if let Err(error) = writer.difference(&before, &after).await {
                // The change itself is durable; the tables are written again at the next start.
                tracing::error!(%error, "system tables could not be updated");
            }
        })
    });
    Ok(())
}

struct Writer {
    rt: Rt,
    options: Arc<Options>,
    coordinator: Coordinator,
    /// `gossip_generation`: when this run began, in seconds.
    generation: i32,
    /// Number of this run, larger than every earlier one: wall-clock microseconds.
    run: i64,
}

impl Writer {
    async fn apply(&self, mutations: Vec<EncodedMutation>) -> Result<(), StoreError> {
        for mutation in mutations {
            self.coordinator.apply(mutation.token, mutation.bytes, true).await?;
        }
        Ok(())
    }

    async fn all(&self, snapshot: &ClusterSnapshot) -> Result<(), StoreError> {
        let at = snapshot.system_timestamp();
        let now = self.rt.wall().seconds();
        let schema = &snapshot.schema;
        for keyspace in schema.keyspaces.values().filter(|k| !k.is_virtual) {
            self.apply(system_rows::keyspace_mutations(schema, keyspace, at, now)).await?;
        }
        self.local(snapshot, schema).await
    }

    async fn local(&self, snapshot: &ClusterSnapshot, schema: &Schema) -> Result<(), StoreError> {
        // The run decides before the epoch: addresses may have changed since the last start.
        let steps = snapshot.system_timestamp().0.saturating_sub(snapshot.local.created_at.0);
        let at = TimestampMicros(self.run.saturating_add(steps));
        let rpc = parts::ip(self.options.announced_rpc_address());
        let listen = parts::ip(&self.options.listen_address);
        let broadcast = parts::ip(self.options.announced_address());
        let (Ok(rpc), Ok(listen), Ok(broadcast)) = (rpc, listen, broadcast) else {
            return Err(StoreError::Invalid("an address is not an IP address".to_owned()));
        };
        let row = LocalRow {
            host_id: snapshot.local.host_id,
            cluster_name: &snapshot.local.cluster_name,
            datacenter: &snapshot.local.datacenter,
            rack: &snapshot.local.rack,
            tokens: &snapshot.local.tokens,
            schema_version: schema.version,
            listen_address: listen,
            broadcast_address: broadcast,
            rpc_address: rpc,
            storage_port: self.options.storage_port,
            native_transport_port: self.options.native_transport_port,
            gossip_generation: self.generation,
        };
        self.apply(vec![system_rows::local_mutation(schema, &row, at)]).await
    }

    async fn difference(
        &self,
        before: &ClusterSnapshot,
        after: &ClusterSnapshot,
    ) -> Result<(), StoreError> {
        let at = after.system_timestamp();
        let now = self.rt.wall().seconds();
        let schema = &after.schema;
        for (name, keyspace) in schema.keyspaces.iter().filter(|(_, k)| !k.is_virtual) {
            let same = before.schema.keyspaces.get(name).is_some_and(|k| Arc::ptr_eq(k, keyspace));
            if !same {
                self.apply(system_rows::keyspace_mutations(schema, keyspace, at, now)).await?;
            }
        }
        for name in before.schema.keyspaces.keys() {
            if !schema.keyspaces.contains_key(name) {
                self.apply(system_rows::drop_keyspace_mutations(schema, name, at, now)).await?;
            }
        }
        self.local(after, schema).await
    }
}
